"""Draw docs/frames.png, the frames and signs of docs/conventions.md, from the library's own functions.

python docs/frames.py
"""

from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxquat as jq

matplotlib.use("Agg")
from matplotlib import pyplot

YAW_PITCH_ROLL = jnp.deg2rad(jnp.array([40.0, -25.0, 20.0]))
RATE = jnp.array([0.0, 0.0, 0.7])  # body axes
VIEW = {"elev": 25.0, "azim": -8.0}


def arrow(axes, v, color, label, style="-"):
    """From the origin to v, with its name beyond the tip."""
    x, y, z = np.asarray(v)
    axes.quiver(
        0, 0, 0, x, y, z, color=color, linestyle=style, arrow_length_ratio=0.12, linewidth=1.8
    )
    axes.text(1.1 * x, 1.1 * y, 1.1 * z, label, color=color, ha="center", va="center")


def main():
    """Two panels: an attitude and a body rate; the three turns of its Euler angles."""
    q = jq.euler.to_quaternion(YAW_PITCH_ROLL, "ZYX")
    unit, colors = jnp.eye(3), ("C3", "C2", "C0")
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(10, 4.8), subplot_kw={"projection": "3d"}, layout="constrained"
    )
    for k, name in enumerate("xyz"):
        arrow(left, unit[k], "0.5", f"world {name}", "--")
        arrow(left, jq.quaternion.rotate(q, unit[k]), colors[k], f"body {name}")
        arrow(right, unit[k], "0.5", f"world {name}", "--")
        arrow(right, jq.quaternion.rotate(q, unit[k]), colors[k], f"body {name}")
    rate = jq.quaternion.rotate(q, RATE)
    arrow(left, 0.75 * rate / jnp.linalg.norm(rate), "k", "")
    # A point of the body x axis moves by omega × r: the right-hand rule.
    turns = jq.quaternion.multiply(
        q, jq.quaternion.exp(jnp.linspace(0.0, 1.1, 40)[:, None] * unit[2])
    )
    track = np.asarray(jq.quaternion.rotate(turns, 0.6 * unit[0]))
    left.plot(*track.T, color="k", linewidth=1.2)
    left.quiver(*track[-2], *(track[-1] - track[-2]), color="k", arrow_length_ratio=5.0)
    left.set_title(
        "v_world = q v_body q*\nblack: omega = (0, 0, 0.7), body axes, and how body x moves",
        fontsize=10,
    )
    partial, names = (
        jnp.zeros(3),
        ("yaw about z", "pitch about the new y", "roll about the newest x"),
    )
    for k, (name, color) in enumerate(zip(names, ("C4", "C1", "C5"), strict=True)):
        along = partial + jnp.linspace(0.0, 1.0, 40)[:, None] * YAW_PITCH_ROLL[k] * unit[k]
        marked = unit[1] if k == 2 else unit[0]  # the nose shows yaw and pitch, the wing shows roll
        track = np.asarray(jq.quaternion.rotate(jq.euler.to_quaternion(along, "ZYX"), marked))
        right.plot(
            *track.T,
            color=color,
            linewidth=2.5,
            label=f"{name}, {float(jnp.rad2deg(YAW_PITCH_ROLL[k])):.0f}°",
        )
        partial = partial + YAW_PITCH_ROLL[k] * unit[k]
    right.set_title('Euler angles "ZYX" of the same attitude', fontsize=10)
    right.legend(loc="upper right", fontsize=8)
    for axes in (left, right):
        axes.view_init(**VIEW)
        axes.set(xlim=(-0.5, 0.9), ylim=(-0.5, 0.9), zlim=(-0.1, 1.1))
        axes.set_box_aspect((1.4, 1.4, 1.2), zoom=1.2)
        axes.set_axis_off()
    figure.savefig(Path(__file__).parent / "frames.png", dpi=90)


if __name__ == "__main__":
    main()

"""Draw docs/frames.png, the frames and signs of docs/conventions.md.

    python docs/frames.py

The library's own functions make the picture. The left panel shows an attitude and a body rate, the
right panel the three turns of the attitude's Euler angles.
"""

from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxquat as jq

matplotlib.use("Agg")
from matplotlib import pyplot

YAW_PITCH_ROLL = jnp.deg2rad(jnp.array([40.0, -25.0, 20.0]))
RATE = jnp.array([0.0, 0.0, 0.7])  # rad/s, body axes
VIEW = {"elev": 25.0, "azim": -8.0}
UNIT = jnp.eye(3)


def arrow(axes, v, color, label, style="-"):
    """Draw an arrow from the origin to v, with its name beyond the tip."""
    x, y, z = np.asarray(v)
    look = {"linestyle": style, "arrow_length_ratio": 0.12, "linewidth": 1.8}
    axes.quiver(0, 0, 0, x, y, z, color=color, **look)
    axes.text(1.1 * x, 1.1 * y, 1.1 * z, label, color=color, ha="center", va="center")


def draw_axes(axes, q):
    """Draw the world's axes and those of a body at attitude q."""
    for k, (name, color) in enumerate(zip("xyz", ("C3", "C2", "C0"), strict=True)):
        arrow(axes, UNIT[k], "0.5", f"world {name}", "--")
        arrow(axes, jq.quaternion.rotate(q, UNIT[k]), color, f"body {name}")


def draw_rate(axes, q):
    """Draw the body rate, and how it moves the body's x axis: by omega × r, the right-hand rule."""
    rate = jq.quaternion.rotate(q, RATE)
    arrow(axes, 0.75 * rate / jnp.linalg.norm(rate), "k", "")
    angles = jnp.linspace(0.0, 1.1, 40)[:, None]
    turns = jq.quaternion.multiply(q, jq.quaternion.exp(angles * UNIT[2]))
    track = np.asarray(jq.quaternion.rotate(turns, 0.6 * UNIT[0]))
    axes.plot(*track.T, color="k", linewidth=1.2)
    axes.quiver(*track[-2], *(track[-1] - track[-2]), color="k", arrow_length_ratio=5.0)
    moves = "black: omega = (0, 0, 0.7), body axes, and how body x moves"
    axes.set_title(f"v_world = q v_body q*\n{moves}", fontsize=10)


def draw_turns(axes):
    """Draw the three turns of the Euler angles, one after the other."""
    partial = jnp.zeros(3)
    names = ("yaw about z", "pitch about the new y", "roll about the newest x")
    for k, (name, color) in enumerate(zip(names, ("C4", "C1", "C5"), strict=True)):
        turn = YAW_PITCH_ROLL[k] * UNIT[k]
        angles = partial + jnp.linspace(0.0, 1.0, 40)[:, None] * turn
        marked = UNIT[1] if k == 2 else UNIT[0]  # the nose shows yaw and pitch, the wing shows roll
        track = np.asarray(jq.quaternion.rotate(jq.euler.to_quaternion(angles, "ZYX"), marked))
        degrees = float(jnp.rad2deg(YAW_PITCH_ROLL[k]))
        axes.plot(*track.T, color=color, linewidth=2.5, label=f"{name}, {degrees:.0f}°")
        partial = partial + turn
    axes.set_title('Euler angles "ZYX" of the same attitude', fontsize=10)
    axes.legend(loc="upper right", fontsize=8)


def main():
    """Draw both panels."""
    q = jq.euler.to_quaternion(YAW_PITCH_ROLL, "ZYX")
    figure = pyplot.figure(figsize=(10, 4.8), layout="constrained")
    panels = figure.subplots(1, 2, subplot_kw={"projection": "3d"})
    for axes in panels:
        draw_axes(axes, q)
    draw_rate(panels[0], q)
    draw_turns(panels[1])
    for axes in panels:
        axes.view_init(**VIEW)
        axes.set(xlim=(-0.5, 0.9), ylim=(-0.5, 0.9), zlim=(-0.1, 1.1))
        axes.set_box_aspect((1.4, 1.4, 1.2), zoom=1.2)
        axes.set_axis_off()
    figure.savefig(Path(__file__).parent / "frames.png", dpi=90)


if __name__ == "__main__":
    main()

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
from jaxquat import plot

matplotlib.use("Agg")
from matplotlib import pyplot

YAW_PITCH_ROLL = jnp.deg2rad(jnp.array([-30.0, -35.0, 35.0]))
RATE = jnp.array([0.0, 0.5, 0.5])  # rad/s, body axes
VIEW = {"elev": 20.0, "azim": 45.0}
UNIT = jnp.eye(3)
AXES, TURNS, OMEGA = plot.COLOURS[:3], plot.COLOURS[3:], "black"


def arrow(axes, v, color, label, style="-"):
    """Draw an arrow from the origin to v, with its name beyond the tip."""
    v = np.asarray(v)
    look = {"linestyle": style, "arrow_length_ratio": 0.12, "linewidth": 2.2}
    axes.quiver(0, 0, 0, *v, color=color, **look)
    axes.text(*(v + 0.19 * v / np.linalg.norm(v)), label, color=color, ha="center", va="center")


def arc(axes, track, color, label=None):
    """Draw a curve (n, 3) with an arrow's head at its end."""
    track = np.asarray(track)
    axes.plot(*track.T, color=color, linewidth=2.2, label=label)
    step = track[-1] - track[-2]
    tip = 0.12 / np.linalg.norm(step)
    look = {"color": color, "arrow_length_ratio": 1.0, "linewidth": 2.2}
    axes.quiver(*(track[-1] - tip * step), *(tip * step), **look)


def draw_axes(axes, q):
    """Draw the world's axes and those of a body at attitude q."""
    for k, (name, color) in enumerate(zip("xyz", AXES, strict=True)):
        arrow(axes, UNIT[k], "0.55", f"world {name}", "--")
        arrow(axes, jq.quaternion.rotate(q, UNIT[k]), color, f"body {name}")


def draw_rate(axes, q):
    """Draw the body rate, and how it moves the body's x axis: by omega × r, the right-hand rule."""
    arrow(axes, jq.quaternion.rotate(q, 1.2 * RATE), OMEGA, r"$\omega$")
    angles = jnp.linspace(0.0, 0.9, 40)[:, None]
    turns = jq.quaternion.multiply(q, jq.quaternion.exp(angles * RATE / jnp.linalg.norm(RATE)))
    arc(axes, jq.quaternion.rotate(turns, 0.7 * UNIT[0]), OMEGA)
    rate = ", ".join(f"{x:g}" for x in RATE)
    axes.set_title(f"$\\omega$ = ({rate}) rad/s, body axes;\nthe arc: how it moves body x")


def draw_turns(axes):
    """Draw the three turns of the Euler angles, one after the other."""
    partial = jnp.zeros(3)
    names = ("yaw about z", "pitch about the new y", "roll about the newest x")
    for k, (name, color) in enumerate(zip(names, TURNS, strict=True)):
        turn = YAW_PITCH_ROLL[k] * UNIT[k]
        angles = partial + jnp.linspace(0.0, 1.0, 40)[:, None] * turn
        marked = UNIT[1] if k == 2 else UNIT[0]  # the nose shows yaw and pitch, the wing shows roll
        track = jq.quaternion.rotate(jq.euler.to_quaternion(angles, "ZYX"), marked)
        degrees = float(jnp.rad2deg(YAW_PITCH_ROLL[k]))
        arc(axes, track, color, f"{name}, {degrees:.0f}°")
        partial = partial + turn
    axes.set_title('Euler angles "ZYX" of this attitude')
    axes.legend(loc="lower center", frameon=False, labelspacing=0.2)


def main():
    """Draw both panels."""
    q = jq.euler.to_quaternion(YAW_PITCH_ROLL, "ZYX")
    figure = pyplot.figure(figsize=(8.0, 4.6))
    panels = figure.subplots(1, 2, subplot_kw={"projection": "3d"})
    figure.subplots_adjust(0.0, 0.0, 1.0, 0.88, 0.0)
    for axes in panels:
        draw_axes(axes, q)
    draw_rate(panels[0], q)
    draw_turns(panels[1])
    for axes in panels:
        axes.view_init(**VIEW)
        axes.set(xlim=(-0.5, 1.0), ylim=(-0.5, 1.0), zlim=(-0.35, 1.15))
        axes.set_box_aspect((1, 1, 1), zoom=1.2)
        axes.set_axis_off()
    figure.savefig(Path(__file__).parent / "frames.png", dpi=125)


if __name__ == "__main__":
    main()

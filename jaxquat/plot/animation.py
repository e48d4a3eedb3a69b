"""A turning box: the body of a path as a film."""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from matplotlib.animation import FuncAnimation, writers
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from jaxquat._checks import exactly, instance, place, positive, positive_integer, real
from jaxquat.dynamics.body import Body
from jaxquat.plot.panels import BEHIND, COLOURS, DASHES, FRONT, frame, one_path, spatial, towards
from jaxquat.rotations import quaternion
from jaxquat.simulation.path import Path

_CORNERS = 0.5 * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
_FACES = np.array(
    [[0, 1, 3, 2], [4, 5, 7, 6], [0, 1, 5, 4], [2, 3, 7, 6], [0, 2, 6, 4], [1, 3, 7, 5]]
)  # x, x, y, y, z, z


class _Film(FuncAnimation):
    def _repr_html_(self) -> str:
        return self.to_jshtml()


@jax.jit
def _matrices(path: Path, t: Array) -> Array:
    return quaternion.to_matrix(path.at(t).q)


def box_sides(body: Body, mass: ArrayLike) -> Array:
    """Sides (3,) [m] of the homogeneous box of this mass [kg] with the body's moments, along its principal axes.

    The inverse of ``jq.Body.box``: ``a^2 = 6/m (I2 + I3 - I1)``; a flat body has a side of 0.
    """
    instance("body", body, Body, "a jq.Body")
    moments, _ = body.principal()
    mass = exactly("mass", mass, ()).astype(moments.dtype)
    positive("mass", mass)
    square = 6.0 / mass * (jnp.roll(moments, 1) + jnp.roll(moments, -1) - moments)
    return jnp.sqrt(jnp.maximum(square, 0.0))  # rounding may leave less than 0 for a flat body


def animate(
    path: Path,
    body: Body,
    file: str | os.PathLike | None = None,
    *,
    fps: int = 25,
    speed: float = 1.0,
    ax: Axes3D | None = None,
) -> FuncAnimation:
    """The body as the homogeneous box with its moments, turning in the world; the lines are its body axes.

    Args:
        path: one path; between rows it is interpolated by ``path.at``, so saved attitudes are less than a half turn apart.
        body: its principal moments give the ratios of the sides.
        file: written if given: ".gif" by pillow, ".mp4" and others where matplotlib finds ffmpeg.
        fps: frames per second of the film.
        speed: seconds of the path per second of the film.
        ax: where to draw; a new figure without.

    Returns:
        matplotlib's animation. A notebook shows it with controls; ``.save`` and ``.to_html5_video()`` are matplotlib's.
    """
    path, sides = one_path(path), np.asarray(box_sides(body, 1.0))
    fps, speed = positive_integer("fps", fps), real("speed", speed)
    positive("speed", speed)
    suffix = "" if file is None else place("file", file).suffix.lower()
    writer = "pillow" if suffix == ".gif" else "ffmpeg"
    if file is not None and not writers.is_available(writer):
        raise ValueError(
            f"file: wanted a name that ends in .gif, because {writer} is not installed, got {os.fspath(file)!r}"
        )
    ax = spatial(ax)
    first, last = float(path.t[0]), float(path.t[-1])
    count = int(np.floor((last - first) * fps / speed * (1 + 1e-6))) + 1
    times = np.minimum(first + np.arange(count) * speed / fps, last)
    matrices = np.asarray(_matrices(path, times.astype(path.t.dtype)))
    _, axes = body.principal()
    sides, turn = 2 * sides / np.linalg.norm(sides), np.asarray(quaternion.to_matrix(axes))
    corners = _CORNERS * sides @ turn.T
    surface = 1 / np.max(
        2 * np.abs(turn) / np.maximum(sides, 1e-3), axis=1
    )  # where the body axes leave the box

    box = Poly3DCollection(
        corners[_FACES], facecolors=np.repeat(COLOURS[:3], 2), edgecolors="white", linewidths=1.0
    )
    ax.add_collection3d(box)
    lines: list[Any] = [
        ax.plot([], [], [], DASHES[k], color=COLOURS[k], linewidth=2.0, label=f"body {name}")[0]
        for k, name in enumerate("xyz")
    ]
    frame(ax, 1.0, ("world x", "world y", "world z"))
    ax.set(xticks=[], yticks=[], zticks=[])
    ax.legend(loc="upper left")
    clock = ax.text2D(0.03, 0.03, "", transform=ax.transAxes)

    def show(number: int) -> list[Any]:
        matrix = matrices[number]
        box.set_verts((corners @ matrix.T)[_FACES])
        for line, axis, near in zip(lines, matrix.T, surface, strict=True):
            line.set_data_3d(*np.outer(axis, [near, near + 0.5]))
            line.set_zorder(FRONT if axis @ towards(ax) > 0 else BEHIND)
        clock.set_text(f"t = {times[number]:.2f} s")
        return [box, *lines, clock]

    film = _Film(ax.figure.canvas.figure, show, frames=count, interval=1000 / fps, blit=False)
    if file is not None:
        film.save(os.fspath(file), writer=writer, fps=fps)
    return film

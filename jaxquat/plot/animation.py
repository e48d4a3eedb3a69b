"""A film of a path: the body as a box that turns, and moves if the path has positions."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
from matplotlib.animation import FuncAnimation, writers
from mpl_toolkits.mplot3d import Axes3D
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from jaxquat import quaternion
from jaxquat._internal import progress as bars
from jaxquat._internal.checks import boolean, instance, place, positive, positive_integer, real
from jaxquat.dynamics.body import Body
from jaxquat.plot import panels
from jaxquat.simulation.path import Path

_CORNERS = 0.5 * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
_FACES = np.array(
    [[0, 1, 3, 2], [4, 5, 7, 6], [0, 1, 5, 4], [2, 3, 7, 6], [0, 2, 6, 4], [1, 3, 7, 5]]
)  # x, x, y, y, z, z


class _Film(FuncAnimation):
    """An animation that a notebook shows with controls."""

    def _repr_html_(self) -> str:
        return self.to_jshtml()


def animate(
    path: Path,
    body: Body,
    file: str | os.PathLike[str] | None = None,
    *,
    fps: int = 25,
    speed: float = 1.0,
    size: float | None = None,
    ax: Axes3D | None = None,
    progress: bool = True,
) -> FuncAnimation:
    """Animate the path: its body turns in the world as a box with lines along its axes.

    The box is the homogeneous one with the body's moments, the inverse of ``jq.Body.box``. A body
    with a position moves, with its path as a line behind it. The scales of the three axes are
    equal, and the view contains the whole path and everything already in ``ax``.

    Args:
        path: one path, whose neighbouring attitudes are less than a half turn apart (``path.at``).
        body: the body of the path.
        file: where to write the film, or None. Pillow writes ".gif"; ".mp4" and others need an
            ffmpeg.
        fps: frames per second of the film.
        speed: seconds of the path per second of the film.
        size: for a body with a position, the diagonal of its box as drawn [m]; by default a sixth
            of the longest side of the box around the path.
        ax: where to draw; a new figure if None.
        progress: show a bar with frames per second while the file is written.

    Returns:
        The animation of matplotlib, with ``save`` and ``to_html5_video``; a notebook shows it.

    Examples:
        >>> film = jq.plot.animate(path, body, fps=4)  # or animate(path, body, "film.gif")
        >>> page = film.to_jshtml()  # for a web page, with controls
    """
    path, (corners, surface) = panels.one_path(path), _box(body)
    radius = _radius(path, size)
    fps, speed = positive_integer("fps", fps), real("speed", speed)
    positive("speed", speed)
    boolean("progress", progress)
    writer = _writer(file)
    ax = panels.spatial(ax)
    times, rotations, positions = _frames(path, fps, speed)
    solid, lines, trail = _actors(ax, positions[0] + radius * corners)  # first limits of new axes
    clock = ax.text2D(0.03, 0.03, "", transform=ax.transAxes)
    if path.state.position is None:
        panels.frame(ax, (1.0, 1.0, 1.0), panels.WORLD_AXES)
        ax.set(xticks=[], yticks=[], zticks=[])
    else:
        reach = np.array([[-1.5], [1.5]]) * radius  # the box, and its axes halfway
        ax.auto_scale_xyz(*np.concatenate(positions + reach[:, None]).T)
        panels.metres(ax)
    ax.legend(loc="upper left")

    def show(number: int) -> list[Any]:
        centre, matrix = positions[number], rotations[number]
        trail.set_data_3d(*positions[: number + 1].T)
        solid.set_verts((centre + radius * corners @ matrix.T)[_FACES])
        for line, axis, near in zip(lines, matrix.T, surface, strict=True):
            ends = radius * np.outer(axis, [near, near + 0.5])
            line.set_data_3d(*(centre[:, None] + ends))
            line.set_zorder(panels.FRONT if axis @ panels.towards(ax) > 0 else panels.BEHIND)
        clock.set_text(f"t = {times[number]:.2f} s")
        return [solid, *lines, trail, clock]

    figure = ax.figure.canvas.figure
    film = _Film(figure, show, frames=len(times), interval=1000 / fps, blit=False)
    if file is not None:
        with bars.bar("frames", len(times), shown=progress) as bar:
            film.save(os.fspath(file), writer, fps, progress_callback=lambda *_: bar.update())
    return film


def _actors(ax: Axes3D, corners: np.ndarray) -> tuple[Poly3DCollection, list[Any], Any]:
    colours = np.repeat(panels.COLOURS[:3], 2)
    style: dict[str, Any] = {"facecolors": colours, "edgecolors": "white", "linewidths": 1.0}
    solid = Poly3DCollection(corners[_FACES], **style)
    ax.add_collection3d(solid)
    lines: list[Any] = []
    for name, colour, dashes in zip("xyz", panels.COLOURS, panels.DASHES, strict=False):
        lines += ax.plot([], [], [], dashes, label=f"body {name}", color=colour, linewidth=2.0)
    trail = ax.plot([], [], [], color="0.25", linewidth=1.2, zorder=panels.BEHIND)[0]
    return solid, lines, trail


def _writer(file: str | os.PathLike[str] | None) -> str:
    suffix = "" if file is None else place("file", file).suffix.lower()
    writer = "pillow" if suffix == ".gif" else "ffmpeg"
    if file is not None and not writers.is_available(writer):
        wanted = f"a name that ends in .gif, because {writer} is not installed"
        raise ValueError(f"file: wanted {wanted}, got {os.fspath(file)!r}")
    return writer


def _box(body: Body) -> tuple[np.ndarray, np.ndarray]:
    """Return corners (8, 3) of the box, diagonal 2, and where (3,) the body axes leave it."""
    instance("body", body, Body, "a jq.Body")
    moments = np.asarray(body.principal()[0], float)
    sides = np.sqrt(np.maximum(np.sum(moments) - 2 * moments, 0.0))  # 0 for a flat body
    sides = 2 * sides / np.linalg.norm(sides)
    turn = np.asarray(quaternion.to_matrix(body.principal()[1]))
    slopes = 2 * np.abs(turn) / np.maximum(sides, 1e-3)  # a flat box has a side of 0
    return _CORNERS * sides @ turn.T, 1 / np.max(slopes, axis=1)


def _radius(path: Path, size: float | None) -> float:
    if path.state.position is None:
        if size is not None:
            raise ValueError(f"size: wanted None for a body that only turns, got {size!r}")
        return 1.0
    return panels.drawn_size(size, np.asarray(path.state.position, float), 6) / 2


def _frames(path: Path, fps: int, speed: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times (n,), rotations (n, 3, 3) and positions (n, 3) or 0 at the frames of a film."""
    first, last = float(path.t[0]), float(path.t[-1])
    intervals = (last - first) * fps / speed * (1 + 1e-6)  # rounding must not lose the last frame
    count = int(np.floor(intervals)) + 1
    times = np.minimum(first + np.arange(count) * speed / fps, last)
    state = jax.jit(Path.at)(path, times.astype(path.t.dtype))
    matrices = np.asarray(jax.jit(quaternion.to_matrix)(state.q))
    positions = np.zeros((count, 3)) if state.position is None else np.asarray(state.position)
    return times, matrices, positions

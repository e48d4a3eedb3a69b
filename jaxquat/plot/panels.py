"""Common parts of ``plot``: figures, colours, and the checks of paths and axes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d import Axes3D

from jaxquat._internal.checks import finite, instance, positive, real
from jaxquat.recordings import Recording
from jaxquat.simulation.path import Path, check_rows

COLOURS = ("#14306e", "#c9472b", "#e8a91c", "#35897e", "#a157d8", "#5a2b2e")
"""The colours of every picture here, in order of use: navy, vermilion, amber, teal, violet, brown.

In CIELAB (CIE 1976) any two of the first four differ by at least 32, any two of all six by at least
28, for normal vision and for protanopia, deuteranopia and tritanopia, simulated as by G. M.
Machado, M. M. Oliveira and L. A. F. Fernandes (IEEE Trans. Visualization and Computer Graphics 15,
2009, 1291-1298, severity 1). The first three, for x, y and z, also differ in grey.
"""

# The zorder of lines in front of a surface in space and behind it: matplotlib sorts whole artists,
# and gives a surface a zorder slightly above 4.
FRONT, BEHIND = 30, 1
DASHES = ("-", "--", "-.")
# A legend above the axes, where it covers no curve.
ABOVE: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "frameon": False}
TIME = "time [s]"
WORLD_AXES = ("world x", "world y", "world z")


class _Shown:
    """A figure, or axes, that a notebook shows, whether pyplot is loaded or not."""

    def _repr_png_(self) -> bytes:
        shown: Any = self
        file = io.BytesIO()
        shown.figure.savefig(file, format="png", bbox_inches="tight")
        return file.getvalue()


class NotebookFigure(_Shown, Figure):
    """A figure that a notebook shows."""


class _NotebookAxes(_Shown, Axes):
    """Flat axes that a notebook shows with their figure."""


class _NotebookAxes3D(_Shown, Axes3D):
    """Axes in space that a notebook shows with their figure."""


def flat(ax: Any) -> Axes:
    """Return ``ax`` if it is flat, or the axes of a new figure if it is None."""
    if ax is None:
        figure = NotebookFigure(figsize=(7.0, 4.2), dpi=120, layout="constrained")
        ax = figure.add_subplot(axes_class=_NotebookAxes)
    instance("ax", ax, Axes, "matplotlib axes")
    if isinstance(ax, Axes3D):
        raise TypeError('ax: wanted flat axes, got axes of projection="3d"')
    return ax


def spatial(ax: Any, facing: np.ndarray | None = None) -> Axes3D:
    """Return ``ax`` if it is in space, or for None new axes viewed from the side of ``facing``."""
    if ax is None:
        figure = NotebookFigure(figsize=(6.0, 5.2), dpi=120)
        ax = figure.add_axes((0.0, 0.03, 0.94, 0.97), axes_class=_NotebookAxes3D)
        if facing is not None:
            ax.view_init(elev=25.0, azim=np.rad2deg(np.arctan2(facing[1], facing[0])) - 25.0)
    return instance("ax", ax, Axes3D, 'matplotlib axes of projection="3d"')


def draw_columns(
    ax: Axes,
    t: np.ndarray,
    values: np.ndarray,
    labels: Sequence[str],
    looks: Sequence[int],
    ylabel: str,
    **style: Any,
) -> None:
    """Draw the columns of ``values`` (n, k), in which a NaN is a gap, against times (n,) [s]."""
    here = ~np.isnan(values)
    outside = np.zeros((1, values.shape[1]), bool)
    before, after = np.concatenate([outside, here[:-1]]), np.concatenate([here[1:], outside])
    alone = here & ~before & ~after
    for k, (label, number) in enumerate(zip(labels, looks, strict=True)):
        look: dict[str, Any] = {"label": label, "color": COLOURS[number % len(COLOURS)]}
        look["linestyle"] = DASHES[(number + number // len(COLOURS)) % len(DASHES)]
        if np.any(alone[:, k]):
            look |= {"marker": ".", "markevery": np.flatnonzero(alone[:, k])}
        ax.plot(t, values[:, k], **look, **style)
    labelled(ax, TIME, ylabel)


def labelled(ax: Axes, xlabel: str, ylabel: str) -> None:
    """Label flat axes, with a light grid."""
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(alpha=0.3)


def frame(ax: Axes3D, reach: Sequence[float] | np.ndarray, labels: tuple[str, str, str]) -> None:
    """Show a box around the origin, from -reach to reach (3,), with equal scales and few ticks."""
    x, y, z = map(float, reach)
    ax.set(xlim=(-x, x), ylim=(-y, y), zlim=(-z, z), box_aspect=(x, y, z))
    ax.set(xlabel=labels[0], ylabel=labels[1], zlabel=labels[2])
    least = min(x, y, z)
    ticks = np.asarray(MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(-least, least))
    spacing = ticks[1] - ticks[0]
    for axis, end in zip(_axes_without_panes(ax), (x, y, z), strict=True):
        far = np.floor(0.9 * end / spacing)  # farther labels would meet in a corner
        axis.set_ticks(spacing * np.arange(-far, far + 1))
    ax.grid(False)


def metres(ax: Axes3D) -> None:
    """Label the world axes [m], with equal scales and few ticks."""
    ax.set(xlabel="world x [m]", ylabel="world y [m]", zlabel="world z [m]")
    for axis in _axes_without_panes(ax):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.set_aspect("equal")


def _axes_without_panes(ax: Axes3D) -> tuple[Any, ...]:
    axes: tuple[Any, ...] = (ax.xaxis, ax.yaxis, ax.zaxis)
    for axis in axes:
        axis.pane.set_visible(False)
    return axes


def towards(ax: Axes3D) -> np.ndarray:
    """Return the unit vector (3,) from the origin to the viewer, for the current view."""
    elevation, azimuth = np.deg2rad(ax.elev), np.deg2rad(ax.azim)
    across = np.cos(elevation)
    return np.array([across * np.cos(azimuth), across * np.sin(azimuth), np.sin(elevation)])


def drawn_size(size: float | None, positions: np.ndarray, part: int) -> float:
    """Return the size [m] of objects along a path, by default its longest extent over ``part``."""
    finite("path.state.position", positions)
    if size is None:
        size = float(np.ptp(positions, axis=0).max()) / part or 1.0
    size = real("size", size)
    positive("size", size)
    return size


def one_path(path: Any) -> Path:
    """Return ``path`` if it is one trajectory with the states of all rows; otherwise raise."""
    if isinstance(path, Recording):
        hint = "jq.plot.channels(recording) draws its channels"
        if path.q is not None and path.gyro is not None:
            attitudes = "jq.Path(recording.t, jq.State(recording.q, recording.gyro))"
            hint += f", {attitudes} is the path of its attitudes and rates"
        raise TypeError(f"path: wanted a jq.Path, got a Recording; {hint}")
    instance("path", path, Path, "a jq.Path, such as jq.Path(t, jq.State(q, omega))")
    if np.ndim(path.t) != 1:
        got = f"times of shape {np.shape(path.t)}; select one, or draw many with plot.fan"
        raise ValueError(f"path: wanted one path, got {got}")
    check_rows(path)
    return path

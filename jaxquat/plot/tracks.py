"""The track of a body in space, with its axes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from matplotlib.colors import is_color_like
from mpl_toolkits.mplot3d import Axes3D

from jaxquat import quaternion
from jaxquat._internal.checks import instance, positive_integer
from jaxquat.plot.panels import COLOURS, drawn_size, metres, one_path, spatial
from jaxquat.simulation.path import Path


def track(
    path: Path,
    *,
    frames: int = 8,
    size: float | None = None,
    colour: str = "0.25",
    label: str | None = None,
    ax: Axes3D | None = None,
) -> Axes3D:
    """Draw the positions [m] in space, world axes, with the body axes at some of them.

    The scales of the three axes are equal. Several tracks may share one ``ax``.

    Args:
        path: one path of a body with a position.
        frames: number of rows at which the body axes are drawn, from the first to the last.
        size: length of the body axes [m]; by default a twelfth of the longest side of the box
            around the path.
        colour: colour of the line.
        label: name of the line in a legend, for a picture with several tracks.
        ax: where to draw; a new figure if None.

    Examples:
        >>> along = path.t[:, None] * jnp.array([20.0, 0.0, 5.0])  # m
        >>> moving = path.state._replace(position=along, velocity=jnp.gradient(along, axis=0))
        >>> ax = jq.plot.track(jq.Path(path.t, moving), frames=5)
    """
    path, frames = one_path(path), positive_integer("frames", frames)
    if path.state.position is None:
        raise ValueError("path: wanted states with position, got a body that only turns")
    positions = np.asarray(path.state.position, float)
    size = drawn_size(size, positions, 12)
    if not is_color_like(instance("colour", colour, str, "the name of a colour")):
        raise ValueError(f"colour: wanted the name of a colour, got {colour!r}")
    ax = spatial(ax)
    ax.plot(*positions.T, color=colour, linewidth=1.6, label=label)
    rows = np.linspace(0, len(positions) - 1, frames).round().astype(int)
    matrices = np.asarray(jax.jit(quaternion.to_matrix)(path.state.q), float)[rows]
    for k in range(3):
        style: dict[str, Any] = {"color": COLOURS[k], "linewidth": 2.0, "solid_capstyle": "round"}
        for center, axis in zip(positions[rows], matrices[:, :, k], strict=True):
            ax.plot(*np.stack([center, center + size * axis]).T, **style)
        if f"body {'xyz'[k]}" not in ax.get_legend_handles_labels()[1]:
            ax.plot([], [], [], label=f"body {'xyz'[k]}", **style)
    metres(ax)
    return ax

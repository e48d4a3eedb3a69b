"""Pictures in space; parts of curves behind a surface at the time of the call are dashed."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from matplotlib.colors import is_color_like
from mpl_toolkits.mplot3d import Axes3D

from jaxquat import quaternion
from jaxquat._internal.checks import instance, positive_integer
from jaxquat.dynamics.body import Body
from jaxquat.plot.panels import (
    BEHIND,
    COLOURS,
    FRONT,
    WORLD_AXES,
    drawn_size,
    frame,
    metres,
    one_path,
    spatial,
    towards,
)
from jaxquat.simulation.path import Path

_MOMENTA = ("$L_x$ [N m s]", "$L_y$ [N m s]", "$L_z$ [N m s]")
_PHASE = np.linspace(0, 2 * np.pi, 241)  # along an ellipse of equal energy
_EQUAL = 1e-6  # moments count as equal below this relative difference


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
        size: length of the body axes [m]; by default a twelfth of the longest side of the path.
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


def body_axes(path: Path, *, frames: int = 5, ax: Axes3D | None = None) -> Axes3D:
    """Draw the traces of the tips of the body axes on the unit sphere of the world.

    The axes themselves are drawn at ``frames`` rows, from the first to the last; later ones are
    darker. Curves behind the sphere are dashed: turn ``ax`` before the call, not after.

    Examples:
        >>> ax = jq.plot.body_axes(path, frames=3)
    """
    path, frames = one_path(path), positive_integer("frames", frames)
    ax = spatial(ax)
    matrices = np.asarray(jax.jit(quaternion.to_matrix)(path.state.q))
    _sphere(ax, 1.0)
    rows = np.linspace(0, len(matrices) - 1, frames).astype(int)
    for k, name in enumerate("xyz"):
        tips = matrices[:, :, k]
        _curve(ax, tips, COLOURS[k], f"body {name}")
        style: dict[str, Any] = {"color": COLOURS[k], "linewidth": 2.0, "zorder": FRONT}
        for alpha, tip in zip(np.linspace(0.25, 1.0, frames), tips[rows], strict=True):
            ax.plot(*np.stack([0 * tip, tip]).T, alpha=alpha, **style)
    frame(ax, (1.0, 1.0, 1.0), WORLD_AXES)
    ax.legend(loc="upper left")
    return ax


def momentum_sphere(path: Path, body: Body, *, ax: Axes3D | None = None) -> Axes3D:
    """Draw the momentum in body axes [N m s] on its sphere, with curves of equal energy.

    The radius is the initial momentum. A free body follows a curve of equal energy; under a torque
    the momentum leaves the sphere. The separatrix has the energy of spin about the middle axis.
    Curves behind the sphere are dashed: turn ``ax`` before the call. The first rate is not 0.

    Examples:
        >>> ax = jq.plot.momentum_sphere(path, body)
    """
    path = one_path(path)
    instance("body", body, Body, "a jq.Body")
    moments, axes = jax.jit(Body.principal)(body)
    if moments.shape != (3,):
        raise ValueError(f"body: wanted one body, got moments of shape {moments.shape}")
    moments, omega = np.asarray(moments, float), np.asarray(path.state.omega, float)
    if not np.any(omega[0]):
        raise ValueError("path: wanted a body that turns at the start, got a rate of 0")
    turn = np.asarray(jax.jit(quaternion.to_matrix)(axes), float)  # from principal to body axes
    ax = spatial(ax, omega.mean(axis=0))
    momentum = omega @ (turn * moments) @ turn.T
    radius = float(np.linalg.norm(momentum[0]))
    _sphere(ax, radius)
    levels, separatrix = _levels(moments, (0.1, 0.35, 0.65, 0.9)), _levels(moments, (1.0,))[:2]
    for curve in levels:
        _curve(ax, radius * curve @ turn.T, "0.45", "equal energy", 0.9)
    for curve in separatrix:
        _curve(ax, radius * curve @ turn.T, COLOURS[0], "separatrix", 1.4)
    _curve(ax, momentum, COLOURS[1], "momentum")
    seen = momentum[0] @ towards(ax) >= 0
    style: dict[str, Any] = {"color": COLOURS[1], "markersize": 6}
    style |= {"zorder": FRONT} if seen else {"zorder": BEHIND, "markerfacecolor": "white"}
    ax.plot(*momentum[0][:, None], "o", **style)
    frame(ax, np.full(3, max(radius, np.abs(momentum).max())), _MOMENTA)
    ax.legend(loc="upper left")
    return ax


def _levels(moments: np.ndarray, shares: tuple[float, ...]) -> list[np.ndarray]:
    """Return curves (n, 3) of equal energy on the unit sphere of momentum, in principal axes."""
    # ``(a_j - a_k) l_j^2 + (a_i - a_k) l_i^2 = share (a_j - a_k)`` about axis k, with a = 1/I.
    inverse, order = 1 / moments, np.argsort(moments)
    curves = []
    for k, middle, other in (order, order[::-1]):
        gap, far = inverse[middle] - inverse[k], inverse[other] - inverse[k]
        if abs(gap) <= _EQUAL * inverse.max():
            continue
        for share in shares:
            curve = np.empty((len(_PHASE), 3))
            curve[:, middle] = np.sqrt(share) * np.cos(_PHASE)
            curve[:, other] = np.sqrt(share * gap / far) * np.sin(_PHASE)
            square = 1 - curve[:, middle] ** 2 - curve[:, other] ** 2
            curve[:, k] = np.sqrt(np.maximum(square, 0))
            curves += [curve, -curve]
    return curves


def _sphere(ax: Axes3D, radius: float) -> None:
    along, across = np.meshgrid(np.linspace(0, 2 * np.pi, 41), np.linspace(0, np.pi, 41))
    x, y = np.sin(across) * np.cos(along), np.sin(across) * np.sin(along)
    style: dict[str, Any] = {"color": "0.85", "alpha": 0.4, "linewidth": 0}
    ax.plot_surface(*(radius * np.stack([x, y, np.cos(across)])), rcount=41, ccount=41, **style)


def _curve(ax: Axes3D, points: np.ndarray, colour: str, label: str, width: float = 2.0) -> None:
    """Draw a curve (n, 3) on a sphere about the origin, dashed on the far side."""
    seen = points @ towards(ax) >= 0
    near = seen | np.append(seen[1:], False) | np.append(False, seen[:-1])  # so that the parts join
    style: dict[str, Any] = {"color": colour, "linewidth": width}
    ax.plot(*np.where(near[:, None], points, np.nan).T, zorder=FRONT, **style)
    style |= {"linewidth": 0.7 * width, "alpha": 0.6, "zorder": BEHIND}
    ax.plot(*np.where(seen[:, None], np.nan, points).T, linestyle=(0, (3.0, 2.0)), **style)
    if label not in ax.get_legend_handles_labels()[1]:
        ax.plot([], [], color=colour, linewidth=width, label=label)

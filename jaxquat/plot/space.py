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

_RATES = (r"$\omega_x$ [rad/s]", r"$\omega_y$ [rad/s]", r"$\omega_z$ [rad/s]")
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
    _surface(ax, _unit_sphere(41))
    rows = np.linspace(0, len(matrices) - 1, frames).astype(int)
    for k, name in enumerate("xyz"):
        tips = matrices[:, :, k]
        _curve(ax, tips, tips, COLOURS[k], f"body {name}")
        style: dict[str, Any] = {"color": COLOURS[k], "linewidth": 2.0, "zorder": FRONT}
        for alpha, tip in zip(np.linspace(0.25, 1.0, frames), tips[rows], strict=True):
            ax.plot(*np.stack([0 * tip, tip]).T, alpha=alpha, **style)
    frame(ax, (1.0, 1.0, 1.0), WORLD_AXES)
    ax.legend(loc="upper left")
    return ax


def polhode(path: Path, body: Body, *, ax: Axes3D | None = None) -> Axes3D:
    """Draw the body rate [rad/s] with the ellipsoids of the initial energy and momentum.

    The rate of a free body stays on both; under a torque the curve leaves them. What the energy
    ellipsoid hides is dashed: turn ``ax`` before the call, not after. The first rate is not 0.

    Examples:
        >>> ax = jq.plot.polhode(path, body)
    """
    path = one_path(path)
    moments, turn, omega = _principal(path, body)
    ax = spatial(ax, omega.mean(axis=0))
    start = turn.T @ omega[0]  # in principal axes
    energy = np.sqrt(moments @ start**2 / moments)  # semi-axes of the ellipsoids
    momentum = np.sqrt(moments**2 @ start**2) / moments
    _surface(ax, _turned(turn, energy, _unit_sphere(41)))
    points = _unit_sphere(181)
    mesh: dict[str, Any] = {"color": COLOURS[0], "alpha": 0.6, "linewidth": 0.6}
    mesh |= {"rcount": 14, "ccount": 14, "label": "momentum ellipsoid"}
    hidden = _hidden(momentum[:, None, None] * points, energy, turn.T @ towards(ax))
    grid = np.where(hidden, np.nan, _turned(turn, momentum, points))
    ax.plot_wireframe(*grid, **mesh)
    outward = omega @ (turn * moments) @ turn.T  # the momentum is normal to the energy ellipsoid
    _curve(ax, omega, outward, COLOURS[1], "polhode")
    _start(ax, omega[0], outward[0])
    ends = [np.linalg.norm(turn * axes, axis=1) for axes in (energy, momentum)]
    frame(ax, np.max([*ends, np.abs(omega).max(axis=0)], axis=0), _RATES)
    ax.plot([], [], color="0.75", linewidth=6, label="energy ellipsoid")
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
    moments, turn, omega = _principal(path, body)
    ax = spatial(ax, omega.mean(axis=0))
    momentum = omega @ (turn * moments) @ turn.T
    radius = float(np.linalg.norm(momentum[0]))
    _surface(ax, radius * _unit_sphere(41))
    levels = [(curve, "0.45", "equal energy", 0.9) for curve in _levels(moments)]
    separatrix = [(curve, COLOURS[0], "separatrix", 1.4) for curve in _separatrix(moments)]
    for curve, colour, label, width in levels + separatrix:
        points = radius * curve @ turn.T
        _curve(ax, points, points, colour, label, width)
    _curve(ax, momentum, momentum, COLOURS[1], "momentum")
    _start(ax, momentum[0], momentum[0])
    frame(ax, np.full(3, max(radius, np.abs(momentum).max())), _MOMENTA)
    ax.legend(loc="upper left")
    return ax


def _principal(path: Path, body: Body) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return moments (3,), matrix from principal to body axes (3, 3), and body rates (n, 3)."""
    instance("body", body, Body, "a jq.Body")
    moments, axes = jax.jit(Body.principal)(body)
    if moments.shape != (3,):
        raise ValueError(f"body: wanted one body, got moments of shape {moments.shape}")
    omega = np.asarray(path.state.omega, float)
    if not np.any(omega[0]):
        raise ValueError("path: wanted a body that turns at the start, got a rate of 0")
    turn = np.asarray(jax.jit(quaternion.to_matrix)(axes), float)
    return np.asarray(moments, float), turn, omega


def _levels(moments: np.ndarray) -> list[np.ndarray]:
    """Return curves (n, 3) of equal energy on the unit sphere of the momentum, in principal axes.

    About an outer axis k, with a = 1/I, ``(a_j - a_k) l_j^2 + (a_i - a_k) l_i^2`` is
    ``share (a_j - a_k)``: an ellipse in l_j and l_i.
    """
    inverse, order = 1 / moments, np.argsort(moments)
    curves = []
    for k, middle, other in (order, order[::-1]):
        gap, far = inverse[middle] - inverse[k], inverse[other] - inverse[k]
        if abs(gap) <= _EQUAL * inverse.max():
            continue
        for share in (0.1, 0.35, 0.65, 0.9):
            curve = np.empty((len(_PHASE), 3))
            curve[:, middle] = np.sqrt(share) * np.cos(_PHASE)
            curve[:, other] = np.sqrt(share * gap / far) * np.sin(_PHASE)
            curve[:, k] = np.sqrt(1 - curve[:, middle] ** 2 - curve[:, other] ** 2)
            curves += [curve, -curve]
    return curves


def _separatrix(moments: np.ndarray) -> list[np.ndarray]:
    if np.ptp(moments) <= _EQUAL * moments.max():
        return []
    low, middle, high = np.argsort(moments)
    inverse = 1 / moments
    part = (inverse[middle] - inverse[high]) / (inverse[low] - inverse[high])
    circles = np.zeros((2, len(_PHASE), 3))
    circles[:, :, middle] = np.cos(_PHASE)
    circles[:, :, low] = np.sqrt(part) * np.sin(_PHASE)
    circles[:, :, high] = np.outer([-1, 1], np.sqrt(1 - part) * np.sin(_PHASE))
    return list(circles)


def _unit_sphere(n: int) -> np.ndarray:
    along, across = np.meshgrid(np.linspace(0, 2 * np.pi, n), np.linspace(0, np.pi, n))
    x, y = np.sin(across) * np.cos(along), np.sin(across) * np.sin(along)
    return np.stack([x, y, np.cos(across)])


def _turned(turn: np.ndarray, axes: np.ndarray, points: np.ndarray) -> np.ndarray:
    return np.einsum("ij,jkl->ikl", turn * axes, points)


def _hidden(points: np.ndarray, axes: np.ndarray, view: np.ndarray) -> np.ndarray:
    """Return whether an ellipsoid hides points (3, n, n) from ``view`` (3,), (n, n) bool."""
    scaled, along = points / axes[:, None, None], view / axes
    a, b = along @ along, np.einsum("i,ijk", along, scaled)
    c = np.sum(scaled**2, axis=0) - 1
    return (c < 0) | ((b < 0) & (b**2 > a * c))


def _surface(ax: Axes3D, points: np.ndarray) -> None:
    ax.plot_surface(*points, color="0.85", alpha=0.4, linewidth=0, rcount=41, ccount=41)


def _curve(
    ax: Axes3D, points: np.ndarray, outward: np.ndarray, colour: str, label: str, width: float = 2.0
) -> None:
    """Draw a curve (n, 3), dashed where its normals ``outward`` (n, 3) face away."""
    seen = outward @ towards(ax) >= 0
    near = seen | np.append(seen[1:], False) | np.append(False, seen[:-1])  # so that the parts join
    style: dict[str, Any] = {"color": colour, "linewidth": width}
    ax.plot(*np.where(near[:, None], points, np.nan).T, zorder=FRONT, **style)
    style |= {"linewidth": 0.7 * width, "alpha": 0.6, "zorder": BEHIND}
    ax.plot(*np.where(seen[:, None], np.nan, points).T, linestyle=(0, (3.0, 2.0)), **style)
    if label not in ax.get_legend_handles_labels()[1]:
        ax.plot([], [], color=colour, linewidth=width, label=label)


def _start(ax: Axes3D, point: np.ndarray, outward: np.ndarray) -> None:
    """Mark the first point (3,) of a curve, hollow where the surface faces away from the viewer."""
    seen = outward @ towards(ax) >= 0
    style: dict[str, Any] = {"color": COLOURS[1], "markersize": 6}
    style |= {"zorder": FRONT} if seen else {"zorder": BEHIND, "markerfacecolor": "white"}
    ax.plot(*point[:, None], "o", **style)

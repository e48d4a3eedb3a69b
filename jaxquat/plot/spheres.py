"""Pictures in space: body axes on the unit sphere, the polhode on its ellipsoids, the momentum sphere."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from mpl_toolkits.mplot3d import Axes3D

from jaxquat._checks import fraction, instance, numbers, positive_integer
from jaxquat.dynamics.body import Body
from jaxquat.plot.panels import BEHIND, COLOURS, DASHES, FRONT, frame, one_path, spatial, towards
from jaxquat.rotations import quaternion
from jaxquat.simulation.path import Path


def body_axes(path: Path, *, frames: int = 5, ax: Axes3D | None = None) -> Axes3D:
    """The tips of the three body axes on the unit sphere of the world, and the axes at ``frames`` rows from the first to the last.

    Later axes are darker. What lies behind the sphere, as the axes are turned when this is called, is pale: turn them before.
    """
    path, frames = one_path(path), positive_integer("frames", frames)
    ax = spatial(ax)
    matrices = np.asarray(jax.jit(quaternion.to_matrix)(path.state.q))
    _surface(ax, _unit_sphere(41))
    shown = np.linspace(0, len(matrices) - 1, frames).astype(int)
    for k, name in enumerate("xyz"):
        tips = matrices[:, :, k]
        _curve(ax, tips, tips, COLOURS[k], DASHES[k], f"body {name}")
        for alpha, tip in zip(np.linspace(0.25, 1.0, frames), tips[shown], strict=True):
            ax.plot(
                *np.stack([0 * tip, tip]).T,
                color=COLOURS[k],
                alpha=alpha,
                linewidth=2.0,
                zorder=FRONT,
            )
    frame(ax, 1.0, ("world x", "world y", "world z"))
    ax.legend(loc="upper left")
    return ax


def polhode(path: Path, body: Body, *, ax: Axes3D | None = None) -> Axes3D:
    """The rate of the body in body axes [rad/s], on the ellipsoids of the energy and of the momentum that it starts with.

    A free body stays on both; under a torque the curve leaves them. What lies behind the ellipsoid of the energy, as the axes are
    turned when this is called, is pale: turn them before.
    """
    path = one_path(path)
    moments, turn, omega = _principal(path, body)
    ax = spatial(ax, omega.mean(axis=0))
    start = turn.T @ omega[0]
    energy, momentum = (
        np.sqrt(moments @ start**2 / moments),
        np.sqrt(moments**2 @ start**2) / moments,
    )
    points = _unit_sphere(41)
    _surface(ax, _turned(turn, energy, points))
    ax.plot_wireframe(
        *_turned(turn, momentum, points),
        color=COLOURS[0],
        alpha=0.35,
        linewidth=0.5,
        rcount=12,
        ccount=18,
        label="momentum ellipsoid",
    )
    outward = omega @ (turn * moments) @ turn.T
    _curve(ax, omega, outward, COLOURS[1], "-", "polhode")
    _start(ax, omega[0], outward[0])
    reach = max(np.abs(_turned(turn, axes, points)).max() for axes in (energy, momentum))
    frame(
        ax,
        max(reach, np.abs(omega).max()),
        (r"$\omega_x$ [rad/s]", r"$\omega_y$ [rad/s]", r"$\omega_z$ [rad/s]"),
    )
    ax.plot([], [], color="0.75", linewidth=6, label="energy ellipsoid")
    ax.legend(loc="upper left")
    return ax


def momentum_sphere(
    path: Path,
    body: Body,
    *,
    shares: Sequence[float] = (0.1, 0.35, 0.65, 0.9),
    ax: Axes3D | None = None,
) -> Axes3D:
    """The momentum in body axes [N m s], on the sphere of the momentum that it starts with, among curves of equal energy.

    A free body follows one of them; under a torque the curve leaves the sphere. The curves lie at ``shares`` of the way from the
    least energy to that of spin about the middle axis, and from the greatest to it; the separatrix is that energy itself. What
    lies behind the sphere, as the axes are turned when this is called, is pale: turn them before.
    """
    shares = tuple(fraction("shares", share) for share in numbers("shares", shares))
    path = one_path(path)
    moments, turn, omega = _principal(path, body)
    ax = spatial(ax, omega.mean(axis=0))
    momentum = omega @ (turn * moments) @ turn.T
    radius = float(np.linalg.norm(momentum[0]))
    _surface(ax, radius * _unit_sphere(41))
    for curve in _levels(moments, shares):
        points = radius * curve @ turn.T
        _curve(ax, points, points, "0.45", "-", "equal energy", 0.9)
    if np.ptp(moments) > 1e-6 * moments.max():
        for curve in _separatrix(moments):
            points = radius * curve @ turn.T
            _curve(ax, points, points, COLOURS[0], "--", "separatrix", 1.2)
    _curve(ax, momentum, momentum, COLOURS[1], "-", "momentum")
    _start(ax, momentum[0], momentum[0])
    frame(
        ax, max(radius, np.abs(momentum).max()), ("$L_x$ [N m s]", "$L_y$ [N m s]", "$L_z$ [N m s]")
    )
    ax.legend(loc="upper left")
    return ax


def _principal(path: Path, body: Body) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(moments (3,), matrix from principal to body axes, rates in body axes), in float64; ValueError for a start at rest."""
    instance("body", body, Body, "a jq.Body")
    moments, axes = jax.jit(Body.principal)(body)
    if moments.shape != (3,):
        raise ValueError(f"body: wanted one body, got moments of shape {moments.shape}")
    omega = np.asarray(path.state.omega, float)
    if not np.any(omega[0]):
        raise ValueError("path: wanted a body that turns at the start, got a rate of 0")
    return np.asarray(moments, float), np.asarray(jax.jit(quaternion.to_matrix)(axes), float), omega


def _levels(moments: np.ndarray, shares: Sequence[float]) -> list[np.ndarray]:
    """Curves (n, 3) of equal energy on the unit sphere of the momentum, principal axes.

    About axis k, an outer one, ``l_i = sqrt(share gap_j/gap_i') cos s`` and so on: with a = 1/I the energy gives
    ``(a_i - a_k) l_i^2 + (a_j - a_k) l_j^2 = share (a_middle - a_k)``, an ellipse.
    """
    inverse, order = 1 / moments, np.argsort(moments)
    phase, curves = np.linspace(0, 2 * np.pi, 241), []
    for k, middle, other in (order, order[::-1]):
        gap, far = inverse[middle] - inverse[k], inverse[other] - inverse[k]
        if abs(gap) <= 1e-6 * inverse.max():
            continue
        for share in shares:
            curve = np.empty((len(phase), 3))
            curve[:, middle], curve[:, other] = (
                np.sqrt(share) * np.cos(phase),
                np.sqrt(share * gap / far) * np.sin(phase),
            )
            curve[:, k] = np.sqrt(1 - curve[:, middle] ** 2 - curve[:, other] ** 2)
            curves += [curve, -curve]
    return curves


def _separatrix(moments: np.ndarray) -> list[np.ndarray]:
    """The two great circles (n, 3) through the middle axis where the energy is that of spin about it."""
    inverse = 1 / moments
    low, middle, high = np.argsort(moments)
    phase, circles = np.linspace(0, 2 * np.pi, 241), []
    for side in (-1, 1):
        direction = np.zeros(3)
        direction[low], direction[high] = (
            np.sqrt(inverse[middle] - inverse[high]),
            side * np.sqrt(inverse[low] - inverse[middle]),
        )
        direction /= np.linalg.norm(direction)
        circles.append(
            np.outer(np.cos(phase), np.eye(3)[middle]) + np.outer(np.sin(phase), direction)
        )
    return circles


def _unit_sphere(n: int) -> np.ndarray:
    """(3, n, n) points."""
    along, across = np.meshgrid(np.linspace(0, 2 * np.pi, n), np.linspace(0, np.pi, n))
    return np.stack(
        [np.sin(across) * np.cos(along), np.sin(across) * np.sin(along), np.cos(across)]
    )


def _turned(turn: np.ndarray, axes: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The points of the ellipsoid with these semi-axes."""
    return np.einsum("ij,jkl->ikl", turn * axes, points)


def _surface(ax: Axes3D, points: np.ndarray) -> None:
    ax.plot_surface(*points, color="0.85", alpha=0.4, linewidth=0, rcount=41, ccount=41)


def _curve(
    ax: Axes3D,
    points: np.ndarray,
    outward: np.ndarray,
    colour: str,
    dashes: str,
    label: str,
    width: float = 2.0,
) -> None:
    """A curve (n, 3) on a closed surface, pale where the surface, with these outward vectors, faces away from the viewer."""
    seen = outward @ towards(ax) >= 0
    _, labels = ax.get_legend_handles_labels()
    edge = (
        seen | np.append(seen[1:], False) | np.append(False, seen[:-1])
    )  # one row over, so that the parts join
    for shown, alpha, order in ((edge, 1.0, FRONT), (~seen, 0.35, BEHIND)):
        line = np.where(shown[:, None], points, np.nan)
        ax.plot(
            *line.T,
            dashes,
            color=colour,
            alpha=alpha,
            linewidth=width * (0.5 + 0.5 * alpha),
            zorder=order,
        )
    if label not in labels:
        ax.plot([], [], dashes, color=colour, linewidth=width, label=label)


def _start(ax: Axes3D, point: np.ndarray, outward: np.ndarray) -> None:
    seen = outward @ towards(ax) >= 0
    ax.plot(
        *point[:, None],
        "o",
        color=COLOURS[1],
        alpha=1.0 if seen else 0.35,
        markersize=6,
        zorder=FRONT if seen else BEHIND,
    )

"""Quantities against time, Euler angles, ensembles, and Nyquist curves."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator

from jaxquat import euler, quaternion
from jaxquat._internal.checks import finite, instance, trailing, unit_quaternion
from jaxquat.control.margins import Margins
from jaxquat.dynamics.contract import Commanded, Torque, evaluate
from jaxquat.plot.panels import ABOVE, COLOURS, DASHES, TIME, draw_columns, flat, labelled, one_path
from jaxquat.simulation.path import Path


def attitude_error(path: Path, target: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """Draw the rotation angle [deg] from the path's attitude to ``target`` against time [s].

    The target is a unit quaternion (4,), or one for each row, (rows, 4).

    Examples:
        >>> ax = jq.plot.attitude_error(path, target=start.q)
        >>> f"{ax.lines[0].get_ydata()[-1]:.0f} deg"  # 3 rad, after 1 s
        '172 deg'
    """
    path = one_path(path)
    target = trailing("target", target, (4,)).astype(path.state.q.dtype)
    if target.shape not in ((4,), path.state.q.shape):
        raise ValueError(f"target: wanted shape (4,) or {path.state.q.shape}, got {target.shape}")
    unit_quaternion("target", target)
    ax = flat(ax)
    angle = np.rad2deg(np.asarray(jax.jit(quaternion.distance)(path.state.q, target)))
    ax.plot(np.asarray(path.t), angle, color=COLOURS[len(ax.lines) % len(COLOURS)])
    labelled(ax, TIME, "attitude error [deg]")
    return ax


def euler_angles(path: Path, order: str = "ZYX", *, ax: Axes | None = None) -> Axes:
    """Draw the Euler angles [deg] of the path's attitude against time [s].

    An angle about x, y or z has the colour and dashes of that component in ``rates``. A curve is
    broken where its angle jumps: from 180 to -180 deg, and in gimbal lock, where the second angle
    is ±90 deg (three different axes), or 0 or 180 deg (first axis repeated), and first and third
    jump by a half turn; at the lock itself the third is drawn as 0. ``attitude_error`` and
    ``body_axes`` have no such singularities.

    Args:
        path: one path. A change from row to row counts as a jump above 180 deg, or 60 deg above the
            turn of the body: the rows must be close enough.
        order: one of the 24 of ``jq.euler``; "ZYX" is yaw, pitch, roll. Other angles are named by
            their axes: body axes for capitals, world axes for small letters.
        ax: where to draw; a new figure if None.

    Examples:
        >>> [line.get_label() for line in jq.plot.euler_angles(path).lines]
        ['yaw', 'pitch', 'roll']
    """
    path = one_path(path)
    instance("order", order, str, 'an order of jq.euler, such as "ZYX"')
    q = path.state.q
    angles = np.rad2deg(jax.jit(euler.from_quaternion, static_argnums=1)(q, order))
    turns = np.rad2deg(jax.jit(quaternion.distance)(q[:-1], q[1:]))
    t, angles = _broken(np.asarray(path.t), angles, turns)
    ax = flat(ax)
    draw_columns(ax, t, angles, *_labels_and_looks(order), "Euler angle [deg]")
    ax.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 3, 6, 9, 10]))  # 30, 60, 90
    ax.legend(ncols=3, markerscale=0, **ABOVE)
    return ax


def _broken(t: np.ndarray, angles: np.ndarray, turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return times (m,) and angles (m, 3) [deg] with a NaN in each angle where it jumps."""
    jumps = np.abs(np.diff(angles, axis=0)) > np.minimum(turns + 60.0, 180.0)[:, None]
    later = np.flatnonzero(np.any(jumps, axis=1)) + 1
    extra = np.where(jumps[later - 1], np.nan, angles[later])
    return np.insert(t, later, t[later]), np.insert(angles, later, extra, axis=0)


def _labels_and_looks(order: str) -> tuple[list[str], list[int]]:
    looks = ["XYZ".index(axis) for axis in order.upper()]
    if order == "ZYX":
        return ["yaw", "pitch", "roll"], looks
    if looks[0] == looks[2]:
        looks[2] = 3
    axes = "world" if order.islower() else "body"
    numbered = zip(("1st", "2nd", "3rd"), order.lower(), strict=True)
    return [f"{place} about {axes} {axis}" for place, axis in numbered], looks


def rates(path: Path, *, ax: Axes | None = None) -> Axes:
    """Draw the body rates [rad/s], in body axes, against time [s].

    Examples:
        >>> jq.plot.rates(path).get_ylabel()
        'body rate [rad/s]'
    """
    path = one_path(path)
    return _components(ax, path.t, path.state.omega, r"\omega", "body rate [rad/s]")


def torque(path: Path, torque: Torque, params: Any = None, *, ax: Axes | None = None) -> Axes:
    """Draw the torque [N m], in body axes, against time [s].

    Args:
        path: one path. If it has commands, the torque gets them as its last argument; at the last
            row it gets the command of the previous row.
        torque: the torque passed to ``rollout``. It is evaluated at each row.
        params: the parameters passed to ``rollout``.
        ax: where to draw; a new figure if None.

    Examples:
        >>> ax = jq.plot.torque(path, lambda t, state, damping: -damping * state.omega, 0.4)
        >>> f"{ax.lines[1].get_ydata()[0]:.2f} N m"  # about y at first
        '-1.20 N m'
    """
    path = one_path(path)
    commands = [path.command] if jax.tree.leaves(path.command) else []

    def at_row(t: Any, state: Any, *command: Any) -> Any:
        acting = Commanded(torque, *command) if command else torque
        return evaluate(acting, t, state, params)[0]

    tau = jax.jit(jax.vmap(at_row))(path.t, path.state, *commands)
    return _components(ax, path.t, tau, r"\tau", "torque [N m]")


def _components(ax: Axes | None, t: ArrayLike, values: ArrayLike, symbol: str, ylabel: str) -> Axes:
    ax, labels = flat(ax), [f"${symbol}_{name}$" for name in "xyz"]
    draw_columns(ax, np.asarray(t), np.asarray(values), labels, range(3), ylabel)
    ax.legend(ncols=3, **ABOVE)
    return ax


def fan(
    t: ArrayLike,
    values: ArrayLike,
    ylabel: str,
    *,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw an ensemble against time: its median, and bands of the middle 50 and 90 % of members.

    Args:
        t: times (times,) [s], or (members, times), as from vmapped rollouts, if all members have
            the same times.
        values: (members, times), finite.
        ylabel: quantity and unit, for instance "error angle [deg]".
        label: name of the median in the legend, for a picture with several fans.
        ax: where to draw; a new figure if None.

    Examples:
        >>> t = np.linspace(0.0, 2.0, 3)  # s
        >>> ax = jq.plot.fan(t, np.arange(5.0)[:, None] * t, "angle [deg]")  # 0 to 4 deg/s
        >>> ax.lines[0].get_ydata()  # the median
        array([0., 2., 4.])
    """
    times, values = _members(t, values)
    ax = flat(ax)
    number = len(ax.lines) % len(COLOURS)
    for band in ((0.05, 0.95), (0.25, 0.75)):
        low, high = np.quantile(values, band, axis=0)
        ax.fill_between(times, low, high, color=COLOURS[number], alpha=0.22, linewidth=0)
    bands = "median, middle 50, 90 %"
    style: dict[str, Any] = {"color": COLOURS[number], "linestyle": DASHES[number % 3]}
    ax.plot(times, np.median(values, axis=0), label=label or bands, **style)
    labelled(ax, TIME, ylabel)
    ax.legend(title=bands if label else None)
    return ax


def _members(t: ArrayLike, values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return the times (times,) and the values (members, times), finite; otherwise raise."""
    t, values = np.asarray(t), np.asarray(values)
    times = t[0] if t.ndim == 2 and len(t) and np.all(t == t[0]) else t
    if values.ndim != 2 or not len(values) or times.shape != values.shape[1:]:
        wanted = "shape (members, times) with a member and one row of times"
        raise ValueError(f"values: wanted {wanted}, got {values.shape} and t of {t.shape}")
    failed = np.flatnonzero(~np.all(np.isfinite(values), axis=1))
    if failed.size:
        got = f"{failed.size} that are not, the first is number {failed[0]}"
        raise ValueError(f"values: wanted finite members, got {got}")
    finite("t", times)
    return times, values


def nyquist(margins: Margins, *, ax: Axes | None = None) -> Axes:
    """Draw the transfer of each loop in the complex plane, and the disks that they must not enter.

    ``margins`` is the result of ``jq.control.margins``. A curve is the loop broken at one command,
    with the others closed, for positive frequencies. The disk about the critical point -1 has the
    size of that loop's disk margin, so the curve touches it; at the largest margin, 2, it is the
    left half plane and is not drawn. A loop with an integrator leaves the window.

    Examples:
        >>> level = jq.State(start.q, jnp.zeros(3))
        >>> loop = jq.Controller(lambda start, params: (), lambda t, s, m, k, i: (-k * s.omega, m))
        >>> plant = body, jq.torques.commanded
        >>> margins = jq.control.margins(jq.rkmk4, *plant, 0.0, level, 0.1, 0.2, loop)
        >>> ax = jq.plot.nyquist(margins)
    """
    instance("margins", margins, Margins, "what jq.control.margins returns")
    ax = flat(ax)
    for k, (loop, disk) in enumerate(zip(margins.loop, margins.disk, strict=True)):
        colour = COLOURS[k % len(COLOURS)]
        ax.plot(loop.real, loop.imag, color=colour, label=f"command {k + 1}")
        if disk < 2.0 - 1e-9:
            left, right = -(2.0 + disk) / (2.0 - disk), -(2.0 - disk) / (2.0 + disk)
            centre, radius = (0.5 * (left + right), 0.0), 0.5 * (right - left)
            ax.add_patch(Circle(centre, radius, alpha=0.15, color=colour))
    ax.plot(-1.0, 0.0, "k+", markersize=10)
    ax.set(xlim=(-4.0, 2.0), ylim=(-3.0, 3.0), aspect="equal")
    labelled(ax, "real part of the loop transfer", "imaginary part")
    ax.legend(loc="upper right")
    return ax

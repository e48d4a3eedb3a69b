"""Euler angles against time, with the curves broken at jumps."""

from __future__ import annotations

import functools

import jax
import numpy as np
from jax import Array
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from jaxquat import euler, quaternion
from jaxquat._internal.checks import instance
from jaxquat.plot.panels import ABOVE, draw_columns, flat, one_path
from jaxquat.simulation.path import Path


def euler_angles(path: Path, order: str = "ZYX", *, ax: Axes | None = None) -> Axes:
    """Draw the Euler angles [deg] of the path's attitude against time [s].

    An angle about x, y or z has the colour and dashes of that component in ``rates``. A curve is
    broken where its angle jumps: from 180 to -180 deg, and where the path passes through gimbal
    lock. There the second angle is ±90 deg (three different axes), or 0 or 180 deg (first axis
    repeated), and the first and the third jump by a half turn; at the lock itself the third is
    drawn as 0. ``attitude_error`` and ``body_axes`` have no such singularities.

    Args:
        path: one path. A change of an angle from row to row counts as a jump if it exceeds 180 deg,
            or exceeds the turn of the body by 60 deg: the rows must be close enough.
        order: one of ``jq.euler.ORDERS``; "ZYX" is yaw, pitch, roll. The angles of other orders are
            named by their axes: body axes for capitals, world axes for small letters.
        ax: where to draw; a new figure if None.

    Examples:
        >>> ax = jq.plot.euler_angles(path)
        >>> [line.get_label() for line in ax.lines]
        ['yaw', 'pitch', 'roll']
    """
    path = one_path(path)
    instance("order", order, str, 'one of jq.euler.ORDERS, such as "ZYX"')
    angles, turns = _angles_and_turns(path.state.q, order)
    t, angles = _broken(np.asarray(path.t), np.rad2deg(angles), np.rad2deg(turns))
    ax = flat(ax)
    draw_columns(ax, t, angles, *_labels_and_looks(order), "Euler angle [deg]")
    ax.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 3, 6, 9, 10]))  # 30, 60, 90
    ax.legend(ncols=3, markerscale=0, **ABOVE)
    return ax


@functools.partial(jax.jit, static_argnums=1)
def _angles_and_turns(q: Array, order: str) -> tuple[Array, Array]:
    """Return the angles (n, 3), and the angles (n - 1,) of the turns from row to row [rad]."""
    return euler.from_quaternion(q, order), quaternion.distance(q[:-1], q[1:])


def _broken(t: np.ndarray, angles: np.ndarray, turns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return times (m,) and angles (m, 3) [deg] with a NaN in each angle where it jumps.

    ``turns`` (n - 1,) [deg] are the turns of the body from row to row. At a jump of one angle, the
    others have one row twice, which is invisible.
    """
    jumps = np.abs(np.diff(angles, axis=0)) > np.minimum(turns + 60.0, 180.0)[:, None]
    later = np.flatnonzero(np.any(jumps, axis=1)) + 1
    extra = np.where(jumps[later - 1], np.nan, angles[later])
    return np.insert(t, later, t[later]), np.insert(angles, later, extra, axis=0)


def _labels_and_looks(order: str) -> tuple[list[str], list[int]]:
    """Return the names of the three angles and the numbers of their colours and dashes."""
    looks = ["XYZ".index(axis) for axis in order.upper()]
    if order == "ZYX":
        return ["yaw", "pitch", "roll"], looks
    if looks[0] == looks[2]:
        looks[2] = 3
    axes = "world" if order.islower() else "body"
    numbered = zip(("1st", "2nd", "3rd"), order.lower(), strict=True)
    return [f"{place} about {axes} {axis}" for place, axis in numbered], looks

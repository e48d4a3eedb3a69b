"""Axes of aircraft, FRD and NED, to those of robots, FLU and ENU, and back.

FRD (forward, right, down) and FLU (forward, left, up) are axes of the body, NED (north, east, down)
and ENU (east, north, up) of the world. Functions are their own inverses:
``ned_enu(ned_enu(v)) = v``.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal import frames as formulas
from jaxquat._internal.checks import function, trailing

__all__ = ["attitude", "covariance", "frd_flu", "ned_enu"]


def ned_enu(vector: ArrayLike) -> Array:
    """Convert north-east-down to east-north-up, or back: (y, x, -z). (..., 3) -> (..., 3).

    For vectors in world axes: positions, velocities, forces, magnetic fields. It is exact.

    Examples:
        >>> jq.frames.ned_enu(jnp.array([3.0, 1.0, -0.5]))
        Array([1. , 3. , 0.5], dtype=float32)
    """
    return formulas.ned_enu(trailing("vector", vector, (3,)))


def frd_flu(vector: ArrayLike) -> Array:
    """Convert forward-right-down to forward-left-up, or back: (x, -y, -z). (..., 3) -> (..., 3).

    For vectors in body axes: rates, torques, readings of sensors, places on the body. It is exact.

    Examples:
        >>> jq.frames.frd_flu(jnp.array([0.5, 0.2, -9.8]))
        Array([ 0.5, -0.2,  9.8], dtype=float32)
    """
    return formulas.frd_flu(trailing("vector", vector, (3,)))


def attitude(q: ArrayLike) -> Array:
    """Convert an attitude FRD to NED into FLU to ENU, or back. (..., 4) -> (..., 4).

    It is ``sqrt(1/2) (w + z, x + y, x - y, w - z)``, its own inverse to rounding, sign included.

    Examples:
        >>> q = jq.frames.attitude(jnp.array([1.0, 0.0, 0.0, 0.0]))  # level, forward is north
        >>> jnp.degrees(jq.euler.from_quaternion(q, "ZYX")).round(2)  # 90 deg from the east
        Array([90.,  0.,  0.], dtype=float32)
    """
    return formulas.attitude(trailing("q", q, (4,)))


def covariance(change: Callable[[ArrayLike], Array], matrix: ArrayLike) -> Array:
    """Return the covariance ``M P M^T`` of a vector that ``change`` turns into M v. -> (..., 3, 3).

    ``change`` is ``frames.ned_enu`` for world axes, ``frames.frd_flu`` for body axes; P is
    ``matrix`` (..., 3, 3). Inertias and matrices of gains change in the same way. It is exact.

    Examples:
        >>> P = jnp.diag(jnp.array([0.1, 0.2, 0.9]))  # m^2/s^2: north, east, down
        >>> jnp.diagonal(jq.frames.covariance(jq.frames.ned_enu, P))
        Array([0.2, 0.1, 0.9], dtype=float32)
    """
    function("change", change, "; it is frames.ned_enu or frames.frd_flu")
    if change is not ned_enu and change is not frd_flu:
        got = getattr(change, "__name__", type(change).__name__)
        raise ValueError(f"change: wanted frames.ned_enu or frames.frd_flu, got {got}")
    rows = change(trailing("matrix", matrix, (3, 3)))  # P M^T
    return jnp.swapaxes(change(jnp.swapaxes(rows, -1, -2)), -1, -2)

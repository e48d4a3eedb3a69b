"""Rotation vectors and matrices: the Lie algebra so(3) = R^3, its exponential and its differential.

``frame="body"`` is the left trivialisation, with ``omega = dexp(u, u')`` in body axes for
``q(t) = q0 exp(u(t))``; ``frame="world"`` the right one, in world axes, for
``q(t) = exp(u(t)) q0``. Negating u converts one to the other.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat import quaternion
from jaxquat._internal import series
from jaxquat._internal.checks import broadcast, one_of, trailing
from jaxquat._internal.linear import cross, square, stacked

__all__ = ["dexp", "dexpinv", "exp", "hat", "log", "vee"]


def hat(v: ArrayLike) -> Array:
    """Return the matrix with ``hat(v) w = v × w``. (..., 3) -> (..., 3, 3).

    Examples:
        >>> jq.so3.hat(jnp.array([1.0, 2.0, 3.0]))[0]
        Array([ 0., -3.,  2.], dtype=float32)
    """
    x, y, z = jnp.moveaxis(trailing("v", v, (3,)), -1, 0)
    zero = jnp.zeros_like(x)
    rows = [[zero, -z, y], [z, zero, -x], [-y, x, zero]]
    return stacked(rows)


def vee(matrix: ArrayLike) -> Array:
    """Return the vector of an antisymmetric matrix, or part of a matrix. (..., 3, 3) -> (..., 3).

    Examples:
        >>> jq.so3.vee(jq.so3.hat(jnp.array([1.0, 2.0, 3.0])))
        Array([1., 2., 3.], dtype=float32)
    """
    m = trailing("matrix", matrix, (3, 3))
    twice = [m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]]
    return 0.5 * jnp.stack(twice, axis=-1)


def exp(u: ArrayLike) -> Array:
    """Return the rotation matrix of a rotation vector [rad]. (..., 3) -> (..., 3, 3).

    Examples:
        >>> jq.so3.exp(jnp.array([0.0, 0.0, jnp.pi / 3]))[0].round(2)  # 60 deg about z
        Array([ 0.5 , -0.87,  0.  ], dtype=float32)
    """
    return quaternion.to_matrix(quaternion.exp(u))


def log(matrix: ArrayLike) -> Array:
    """Return the rotation vector [rad], |u| <= pi, of a rotation matrix. (..., 3, 3) -> (..., 3).

    Of u and -u at exactly pi it is the one whose first nonzero component is positive, with the
    derivative of this branch. ValueError for a concrete matrix that is no rotation, as in
    ``quaternion.from_matrix``.

    Examples:
        >>> jq.so3.log(jq.so3.exp(jnp.array([0.0, 0.0, 0.5]))).round(3)
        Array([0. , 0. , 0.5], dtype=float32)
    """
    return quaternion.log(quaternion.from_matrix(matrix))


def dexp(u: ArrayLike, v: ArrayLike, frame: str = "body") -> Array:
    """Apply the differential of the exponential at u to v. (..., 3), (..., 3) -> (..., 3).

    In the body frame it is ``v - (1 - cos a)/a^2 u × v + (a - sin a)/a^3 u × (u × v)`` with a =
    |u|, in the world frame with a plus before the second term; smooth everywhere. Terze, Mueller
    and Zlatar 2016 (A.2), where the sum should run over (-ad)^j with the fourth term -1/4!.

    Examples:
        >>> u, rate = jnp.array([0.0, 0.0, jnp.pi / 2]), jnp.array([1.0, 0.0, 0.0])  # rad, rad/s
        >>> jq.so3.dexp(u, rate).round(3)  # omega, body axes
        Array([ 0.637, -0.637,  0.   ], dtype=float32)
    """
    u, v = _at(u, v, frame)
    s = 0.25 * square(u)[..., None]
    once = cross(u, v)
    return v - 0.5 * series.sinc(s) ** 2 * once + series.sin_defect(s) * cross(u, once)


def dexpinv(u: ArrayLike, v: ArrayLike, frame: str = "body") -> Array:
    """Apply the inverse of ``dexp`` at u to v: ``u' = dexpinv(u, omega)``.

    (..., 3), (..., 3) -> (..., 3). In the body frame it is ``v + 1/2 u × v + b u × (u × v)`` with
    ``b = (1 - (a/2) cot(a/2))/a^2`` and a = |u|, in the world frame with a minus before the second
    term; NaN from the pole a = 2 pi on. Terze, Mueller and Zlatar 2016 (A.4), in closed form.

    Examples:
        >>> u, omega = jnp.array([0.0, 0.0, jnp.pi / 2]), jnp.array([1.0, 0.0, 0.0])  # rad, rad/s
        >>> jq.so3.dexpinv(u, omega).round(3)  # u': pi/4 (1, 1, 0)
        Array([0.785, 0.785, 0.   ], dtype=float32)
    """
    u, v = _at(u, v, frame)
    s = square(0.5 * u)[..., None]  # as in ``exp``, so that a step computes it once
    once = cross(u, v)
    return v + 0.5 * once + 0.25 * series.cot_defect(s) * cross(u, once)


def _at(u: ArrayLike, v: ArrayLike, frame: str) -> list[Array]:
    """Check u and v; return ``[±u, v]`` with the sign for which the body-frame formula holds."""
    one_of("frame", frame, ("body", "world"))
    u, v = broadcast(("u", u, (3,)), ("v", v, (3,)))
    return [u if frame == "body" else -u, v]

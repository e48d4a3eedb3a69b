"""Hamilton's algebra, the exponential and the logarithm. Conventions: ``jaxquat.quaternion``."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal import series
from jaxquat._internal.checks import broadcast, trailing
from jaxquat._internal.linear import cross, dot, near_one, square, stacked


def multiply(p: ArrayLike, q: ArrayLike) -> Array:
    """Return Hamilton's product ``p q``, q followed by p. (..., 4), (..., 4) -> (..., 4).

    Examples:
        >>> roll = jq.quaternion.exp(jnp.array([jnp.pi / 2, 0.0, 0.0]))  # 90 deg about x
        >>> yaw = jq.quaternion.exp(jnp.array([0.0, 0.0, jnp.pi / 2]))  # 90 deg about z
        >>> jq.quaternion.multiply(yaw, roll).round(3)  # first the roll, then the yaw
        Array([0.5, 0.5, 0.5, 0.5], dtype=float32)
    """
    p, q = broadcast(("p", p, (4,)), ("q", q, (4,)))
    pw, pv = p[..., :1], p[..., 1:]
    qw, qv = q[..., :1], q[..., 1:]
    scalar = pw * qw - dot(pv, qv)[..., None]
    return jnp.concatenate([scalar, pw * qv + qw * pv + cross(pv, qv)], axis=-1)


def conjugate(q: ArrayLike) -> Array:
    """Return ``q* = (w, -x, -y, -z)``, the inverse of a unit quaternion. (..., 4) -> (..., 4).

    Examples:
        >>> jq.quaternion.conjugate(jnp.array([0.5, 0.5, -0.5, 0.5]))  # the turn back
        Array([ 0.5, -0.5,  0.5, -0.5], dtype=float32)
    """
    q = trailing("q", q, (4,))
    return jnp.concatenate([q[..., :1], -q[..., 1:]], axis=-1)


def normalize(q: ArrayLike) -> Array:
    """Return ``q/|q|``; NaN at zero. (..., 4) -> (..., 4).

    Examples:
        >>> jq.quaternion.normalize(jnp.array([0.0, 3.0, 0.0, 4.0])).round(3)
        Array([0. , 0.6, 0. , 0.8], dtype=float32)
    """
    q = near_one(trailing("q", q, (4,)))
    return q / jnp.sqrt(dot(q, q))[..., None]


def correct_norm(q: ArrayLike) -> Array:
    """Return ``q (3 - |q|^2)/2``: one Newton step of |q| towards 1. (..., 4) -> (..., 4).

    An error e in the norm becomes -3/2 e^2. The derivative at a unit quaternion is the projection
    onto its tangent space. It is a smooth form of the norm controller n(2 - n) of Hoffmann,
    Application of Quaternions, 9.3.

    Examples:
        >>> q = jq.quaternion.correct_norm(jnp.array([1.01, 0.0, 0.0, 0.0]))  # too long by 1e-2
        >>> f"{q[0] - 1:.1e}"  # -3/2 (1e-2)^2
        '-1.5e-04'
    """
    q = trailing("q", q, (4,))
    return q + q * (0.5 - 0.5 * dot(q, q))[..., None]


def canonical(q: ArrayLike) -> Array:
    """Return ``q`` or ``-q``, so that the first nonzero component is positive.

    (..., 4) -> (..., 4).

    Examples:
        >>> jq.quaternion.canonical(jnp.array([-0.5, 0.5, -0.5, 0.5]))  # the same attitude
        Array([ 0.5, -0.5,  0.5, -0.5], dtype=float32)
    """
    q = trailing("q", q, (4,))
    w, x, y, z = q[..., 0], q[..., 1], q[..., 2], q[..., 3]
    leading = jnp.where(w != 0, w, jnp.where(x != 0, x, jnp.where(y != 0, y, z)))
    return jnp.where((leading < 0)[..., None], -q, q)


def rotate(q: ArrayLike, v: ArrayLike) -> Array:
    """Turn a body vector to world axes, ``q v q*``, for unit q. (..., 4), (..., 3) -> (..., 3).

    It is computed as ``v + 2 w (x × v) + 2 x × (x × v)``; for |q| != 1 this is not ``q v q*``.

    Examples:
        >>> yaw = jq.quaternion.exp(jnp.array([0.0, 0.0, jnp.pi / 3]))  # 60 deg about z
        >>> jq.quaternion.rotate(yaw, jnp.array([1.0, 0.0, 0.0])).round(2)  # body x in world axes
        Array([0.5 , 0.87, 0.  ], dtype=float32)
    """
    q, v = broadcast(("q", q, (4,)), ("v", v, (3,)))
    twice = 2.0 * cross(q[..., 1:], v)
    return v + q[..., :1] * twice + cross(q[..., 1:], twice)


def rotate_inverse(q: ArrayLike, v: ArrayLike) -> Array:
    """Turn a world vector to body axes, ``q* v q``, for unit q. (..., 4), (..., 3) -> (..., 3).

    Examples:
        >>> tilt = jq.quaternion.exp(jnp.array([jnp.pi / 6, 0.0, 0.0]))  # 30 deg about x
        >>> up = jnp.array([0.0, 0.0, 9.81])  # m/s^2, world axes
        >>> jq.quaternion.rotate_inverse(tilt, up).round(1)  # what an accelerometer at rest reads
        Array([0. , 4.9, 8.5], dtype=float32)
    """
    return rotate(conjugate(q), v)


def exp(u: ArrayLike) -> Array:
    """Return the unit quaternion of a rotation vector [rad]. (..., 3) -> (..., 4).

    The rounding of u is an error of the turn. Beyond |u| = 1e7 rad in float32, and 1e16 rad in
    float64, that error reaches about a radian and the turn is meaningless.

    Examples:
        >>> jq.quaternion.exp(jnp.array([0.0, 0.0, jnp.pi / 3])).round(2)  # 60 deg about z
        Array([0.87, 0.  , 0.  , 0.5 ], dtype=float32)
    """
    u = trailing("u", u, (3,))
    half = 0.5 * u
    s = square(half)[..., None]
    both = lax.optimization_barrier(jnp.concatenate([series.cos(s), series.sinc(s)], axis=-1))
    return jnp.concatenate([both[..., :1], both[..., 1:] * half], axis=-1)


def expm1(u: ArrayLike) -> Array:
    """Return ``exp(u) - 1``, each component accurate to the last digit. (..., 3) -> (..., 4).

    ``q + q expm1(u)`` turns q by u, as ``q exp(u)`` does. Over many steps it has less rounding
    error, because the rounding of the sine and the cosine acts only on the change (G. Vilmart, J.
    Comput. Phys. 227, 2008).

    Examples:
        >>> small = jnp.array([0.0, 0.0, 2e-6])  # rad
        >>> f"{jq.quaternion.expm1(small)[0]:.1e}"  # cos(1e-6) - 1; exp(small)[0] - 1 is 0
        '-5.0e-13'
    """
    u = trailing("u", u, (3,))
    half = 0.5 * u
    both = series.cosm1_sinc(square(half)[..., None])
    parts = lax.optimization_barrier(jnp.concatenate(both, axis=-1))
    return jnp.concatenate([parts[..., :1], parts[..., 1:] * half], axis=-1)


def log(q: ArrayLike) -> Array:
    """Return the rotation vector [rad] of an attitude, |u| <= pi. (..., 4) -> (..., 3).

    q, -q and their multiples have the same rotation vector. The dtype must be able to hold |q|^2:
    in float32, 1e-15 < |q| < 1e18. NaN for q = 0.

    It is smooth for angles below pi. At exactly pi the vector jumps from u to -u (one rotation, two
    vectors). There the value is that of ``canonical(q)`` and the derivative that of its branch.

    Examples:
        >>> quarter = jnp.array([1.0, 0.0, 0.0, 1.0])  # the scale has no effect
        >>> jnp.degrees(jq.quaternion.log(quarter)).round(2)  # 90 deg about z
        Array([ 0.,  0., 90.], dtype=float32)
    """
    q = canonical(q)
    v = q[..., 1:]
    return 2.0 * series.arctan_ratio(dot(v, v), q[..., 0])[..., None] * v


def left_matrix(p: ArrayLike) -> Array:
    """Return the matrix L(p) with ``L(p) q = p q``. (..., 4) -> (..., 4, 4).

    It is Hoffmann (1.7) in scalar-first order.

    Examples:
        >>> i, j = jnp.array([0.0, 1.0, 0.0, 0.0]), jnp.array([0.0, 0.0, 1.0, 0.0])
        >>> jq.quaternion.left_matrix(i) @ j  # i j = k
        Array([0., 0., 0., 1.], dtype=float32)
    """
    w, x, y, z = jnp.moveaxis(trailing("p", p, (4,)), -1, 0)
    return stacked([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])


def right_matrix(q: ArrayLike) -> Array:
    """Return the matrix R(q) with ``R(q) p = p q``. (..., 4) -> (..., 4, 4).

    Examples:
        >>> i, j = jnp.array([0.0, 1.0, 0.0, 0.0]), jnp.array([0.0, 0.0, 1.0, 0.0])
        >>> jq.quaternion.right_matrix(j) @ i  # i j = k
        Array([0., 0., 0., 1.], dtype=float32)
    """
    w, x, y, z = jnp.moveaxis(trailing("q", q, (4,)), -1, 0)
    return stacked([[w, -x, -y, -z], [x, w, z, -y], [y, -z, w, x], [z, y, -x, w]])

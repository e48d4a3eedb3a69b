"""Hamilton's algebra, the exponential and the logarithm. Conventions: ``jaxquat.quaternion``."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal import series
from jaxquat._internal.checks import broadcast, trailing
from jaxquat._internal.eager import compiled
from jaxquat._internal.linear import cross, dot, near_one, square, stacked


@compiled
def multiply(p: ArrayLike, q: ArrayLike) -> Array:
    """Return Hamilton's product ``p q``, q followed by p. (..., 4), (..., 4) -> (..., 4).

    Examples:
        >>> jq.quaternion.multiply(q, q).round(2)  # twice the turn
        Array([0.28, 0.  , 0.  , 0.96], dtype=float32)
    """
    p, q = broadcast(("p", p, (4,)), ("q", q, (4,)))
    pw, pv = p[..., :1], p[..., 1:]
    qw, qv = q[..., :1], q[..., 1:]
    scalar = pw * qw - dot(pv, qv)[..., None]
    return jnp.concatenate([scalar, pw * qv + qw * pv + cross(pv, qv)], axis=-1)


def conjugate(q: ArrayLike) -> Array:
    """Return ``q* = (w, -x, -y, -z)``, the inverse of a unit quaternion. (..., 4) -> (..., 4).

    Examples:
        >>> back = jq.quaternion.conjugate(q)
    """
    q = trailing("q", q, (4,))
    return jnp.concatenate([q[..., :1], -q[..., 1:]], axis=-1)


def normalize(q: ArrayLike) -> Array:
    """Return ``q/|q|``; NaN at zero. (..., 4) -> (..., 4).

    Examples:
        >>> unit = jq.quaternion.normalize(3.0 * q)
    """
    q = near_one(trailing("q", q, (4,)))
    return q / jnp.sqrt(dot(q, q))[..., None]


@compiled
def correct_norm(q: ArrayLike) -> Array:
    """Return ``q (3 - |q|^2)/2``: one Newton step of |q| towards 1. (..., 4) -> (..., 4).

    An error e in the norm becomes -3/2 e^2. The derivative at a unit quaternion projects onto its
    tangent space. It is a smooth form of the norm controller n(2 - n) of Hoffmann, Application of
    Quaternions, 9.3.

    Examples:
        >>> f"{jq.quaternion.correct_norm(1.01 * level)[0] - 1:.1e}"  # -3/2 (1e-2)^2
        '-1.5e-04'
    """
    q = trailing("q", q, (4,))
    return q + q * (0.5 - 0.5 * dot(q, q))[..., None]


def canonical(q: ArrayLike) -> Array:
    """Return ``q`` or ``-q`` (..., 4), whose first nonzero component is positive.

    Examples:
        >>> jq.quaternion.canonical(jnp.array([-0.5, 0.5, -0.5, 0.5]))
        Array([ 0.5, -0.5,  0.5, -0.5], dtype=float32)
    """
    q = trailing("q", q, (4,))
    w, x, y, z = q[..., 0], q[..., 1], q[..., 2], q[..., 3]
    leading = jnp.where(w != 0, w, jnp.where(x != 0, x, jnp.where(y != 0, y, z)))
    return jnp.where((leading < 0)[..., None], -q, q)


@compiled
def rotate(q: ArrayLike, v: ArrayLike) -> Array:
    """Turn a body vector to world axes, ``q v q*``, for unit q. (..., 4), (..., 3) -> (..., 3).

    It is ``v + 2 w (x × v) + 2 x × (x × v)``, which for |q| != 1 is not ``q v q*``.

    Examples:
        >>> jq.quaternion.rotate(q, x).round(2)  # body x in world axes
        Array([0.28, 0.96, 0.  ], dtype=float32)
    """
    q, v = broadcast(("q", q, (4,)), ("v", v, (3,)))
    twice = 2.0 * cross(q[..., 1:], v)
    return v + q[..., :1] * twice + cross(q[..., 1:], twice)


def rotate_inverse(q: ArrayLike, v: ArrayLike) -> Array:
    """Turn a world vector to body axes, ``q* v q``, for unit q. (..., 4), (..., 3) -> (..., 3).

    Examples:
        >>> jq.quaternion.rotate_inverse(q, x).round(2)  # world x in body axes
        Array([ 0.28, -0.96,  0.  ], dtype=float32)
    """
    return rotate(conjugate(q), v)


@compiled
def exp(u: ArrayLike) -> Array:
    """Return the unit quaternion of a rotation vector [rad]. (..., 3) -> (..., 4).

    The rounding of u, an error of the turn, is about a radian at |u| = 1e7 rad in float32 and at
    1e16 rad in float64.

    Examples:
        >>> jq.quaternion.exp(jnp.array([0.0, 0.0, jnp.pi / 3])).round(2)  # 60 deg about z
        Array([0.87, 0.  , 0.  , 0.5 ], dtype=float32)
    """
    u = trailing("u", u, (3,))
    half = 0.5 * u
    s = square(half)[..., None]
    both = lax.optimization_barrier(jnp.concatenate([series.cos(s), series.sinc(s)], axis=-1))
    return jnp.concatenate([both[..., :1], both[..., 1:] * half], axis=-1)


@compiled
def expm1(u: ArrayLike) -> Array:
    """Return ``exp(u) - 1``, each component accurate to the last digit. (..., 3) -> (..., 4).

    ``q + q expm1(u)`` turns q by u like ``q exp(u)``, but over many steps with less rounding error,
    because sine and cosine round in the change only (G. Vilmart, J. Comput. Phys. 227, 2008).

    Examples:
        >>> f"{jq.quaternion.expm1(2e-6 * z)[0]:.1e}"  # cos(1e-6) - 1; exp(2e-6 * z)[0] - 1 is 0
        '-5.0e-13'
    """
    u = trailing("u", u, (3,))
    half = 0.5 * u
    both = series.cosm1_sinc(square(half)[..., None])
    parts = lax.optimization_barrier(jnp.concatenate(both, axis=-1))
    return jnp.concatenate([parts[..., :1], parts[..., 1:] * half], axis=-1)


@compiled
def log(q: ArrayLike) -> Array:
    """Return the rotation vector [rad] of an attitude, |u| <= pi. (..., 4) -> (..., 3).

    q, -q and their multiples have the same one, if the dtype holds |q|^2 (in float32 1e-15 < |q| <
    1e18); q = 0 gives NaN. It is smooth for angles below pi. At exactly pi it jumps from u to -u:
    the value is then that of ``canonical(q)``, the derivative that of its branch.

    Examples:
        >>> jq.quaternion.log(jq.quaternion.exp(0.5 * z)).round(3)
        Array([0. , 0. , 0.5], dtype=float32)
    """
    q = canonical(q)
    v = q[..., 1:]
    return 2.0 * series.arctan_ratio(dot(v, v), q[..., 0])[..., None] * v


def left_matrix(p: ArrayLike) -> Array:
    """Return the matrix L(p) with ``L(p) q = p q``, Hoffmann (1.7). (..., 4) -> (..., 4, 4).

    Examples:
        >>> (jq.quaternion.left_matrix(q) @ q).round(2)
        Array([0.28, 0.  , 0.  , 0.96], dtype=float32)
    """
    w, x, y, z = jnp.moveaxis(trailing("p", p, (4,)), -1, 0)
    return stacked([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])

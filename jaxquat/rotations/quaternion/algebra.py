"""Hamilton's algebra, the exponential and the logarithm. Conventions: ``jaxquat.quaternion``."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat import _series as series
from jaxquat._checks import broadcast, trailing
from jaxquat._linear import cross, dot, square, stacked


def multiply(p: ArrayLike, q: ArrayLike) -> Array:
    """Hamilton product ``p q``: first the rotation q, then p. (..., 4), (..., 4) -> (..., 4)."""
    p, q = broadcast(("p", p, (4,)), ("q", q, (4,)))
    pw, pv = p[..., :1], p[..., 1:]
    qw, qv = q[..., :1], q[..., 1:]
    scalar = pw * qw - dot(pv, qv)[..., None]
    return jnp.concatenate([scalar, pw * qv + qw * pv + cross(pv, qv)], axis=-1)


def conjugate(q: ArrayLike) -> Array:
    """``q* = (w, -x, -y, -z)``, the inverse of a unit quaternion. (..., 4) -> (..., 4)."""
    q = trailing("q", q, (4,))
    return jnp.concatenate([q[..., :1], -q[..., 1:]], axis=-1)


def inverse(q: ArrayLike) -> Array:
    """``q^-1 = q*/|q|^2`` for any quaternion; NaN at zero. (..., 4) -> (..., 4)."""
    q = trailing("q", q, (4,))
    return conjugate(q) / dot(q, q)[..., None]


def normalize(q: ArrayLike) -> Array:
    """``q/|q|``; NaN at zero. (..., 4) -> (..., 4).

    The dtype must be able to hold |q|^2: |q| lies between 1e-18 and 1e18 in float32, between 1e-153
    and 1e153 in float64.
    """
    q = trailing("q", q, (4,))
    return q / jnp.sqrt(dot(q, q))[..., None]


def correct_norm(q: ArrayLike) -> Array:
    """``q (3 - |q|^2)/2``: one Newton step of |q| towards 1. (..., 4) -> (..., 4).

    It is for quaternions that are almost unit: an error e in the norm becomes -3/2 e^2. The
    derivative at a unit quaternion is the projection onto its tangent. Every integrator step ends
    with it. It is a smooth form of the norm controller n(2 - n) of Hoffmann, Application of
    Quaternions, 9.3.
    """
    q = trailing("q", q, (4,))
    return q + q * (0.5 - 0.5 * dot(q, q))[..., None]


def canonical(q: ArrayLike) -> Array:
    """``q`` or ``-q``: the one whose first nonzero component is positive. (..., 4) -> (..., 4)."""
    q = trailing("q", q, (4,))
    w, x, y, z = q[..., 0], q[..., 1], q[..., 2], q[..., 3]
    leading = jnp.where(w != 0, w, jnp.where(x != 0, x, jnp.where(y != 0, y, z)))
    return jnp.where((leading < 0)[..., None], -q, q)


def rotate(q: ArrayLike, v: ArrayLike) -> Array:
    """Body vector in world axes, ``q v q*``, for unit q. (..., 4), (..., 3) -> (..., 3).

    Computed as ``v + 2 w (x × v) + 2 x × (x × v)``; for |q| != 1 this is not ``q v q*``.
    """
    q, v = broadcast(("q", q, (4,)), ("v", v, (3,)))
    twice = 2.0 * cross(q[..., 1:], v)
    return v + q[..., :1] * twice + cross(q[..., 1:], twice)


def rotate_inverse(q: ArrayLike, v: ArrayLike) -> Array:
    """World vector in body axes, ``q* v q``, for unit q. (..., 4), (..., 3) -> (..., 3)."""
    return rotate(conjugate(q), v)


def exp(u: ArrayLike) -> Array:
    """Rotation vector [rad] to unit quaternion, smooth everywhere. (..., 3) -> (..., 4).

    The rounding of u is an error of the turn. Beyond |u| = 1e7 rad in float32, and 1e16 rad in
    float64, that error comes to about a radian and nothing is left of the turn.
    """
    u = trailing("u", u, (3,))
    s = 0.25 * square(u)[..., None]
    both = lax.optimization_barrier(jnp.concatenate([series.cos(s), 0.5 * series.sinc(s)], axis=-1))
    return jnp.concatenate([both[..., :1], both[..., 1:] * u], axis=-1)


def expm1(u: ArrayLike) -> Array:
    """``exp(u) - 1``, every component to its last digit, however small u is. (..., 3) -> (..., 4).

    ``q + q expm1(u)`` turns q by u, as ``q exp(u)`` does. Over many steps it rounds better, because
    the rounding of the sine and the cosine acts on the change alone (G. Vilmart, J. Comput. Phys.
    227, 2008).
    """
    u = trailing("u", u, (3,))
    both = series.cosm1_sinc(0.25 * square(u)[..., None])
    parts = lax.optimization_barrier(jnp.concatenate([both[0], 0.5 * both[1]], axis=-1))
    return jnp.concatenate([parts[..., :1], parts[..., 1:] * u], axis=-1)


def log(q: ArrayLike) -> Array:
    """Rotation vector [rad] of an attitude, |u| <= pi. (..., 4) -> (..., 3).

    q, -q and their multiples have the same one. The dtype must be able to hold |q|^2, with the
    bounds of ``normalize``; NaN for q = 0.

    It is smooth for angles below pi. At exactly pi the vector jumps from u to -u (one rotation, two
    vectors). There the value is that of ``canonical(q)`` and the derivative that of its branch.
    """
    q = canonical(q)
    v = q[..., 1:]
    return 2.0 * series.arctan_ratio(dot(v, v), q[..., 0])[..., None] * v


def left_matrix(p: ArrayLike) -> Array:
    """The matrix L(p) with ``L(p) q = p q``. (..., 4) -> (..., 4, 4).

    It is Hoffmann (1.7) in scalar-first order.
    """
    w, x, y, z = jnp.moveaxis(trailing("p", p, (4,)), -1, 0)
    return stacked([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])


def right_matrix(q: ArrayLike) -> Array:
    """The matrix R(q) with ``R(q) p = p q``. (..., 4) -> (..., 4, 4)."""
    w, x, y, z = jnp.moveaxis(trailing("q", q, (4,)), -1, 0)
    return stacked([[w, -x, -y, -z], [x, w, z, -y], [y, -z, w, x], [z, y, -x, w]])

"""Distances, angles, interpolation and random attitudes. Conventions: ``jaxquat.quaternion``."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jaxquat._internal import checks as arguments
from jaxquat._internal import series
from jaxquat._internal.checks import broadcast, floating_dtype, random_key
from jaxquat._internal.linear import dot, near_one, root
from jaxquat.quaternion.algebra import conjugate, log, multiply, normalize


def relative(p: ArrayLike, q: ArrayLike) -> Array:
    """Return the attitude of q relative to p, ``p* (±q)`` with w >= 0, of unit quaternions.

    (..., 4), (..., 4) -> (..., 4). As ``|p|^2 + p* (±q - p)`` it loses no digits to cancellation
    between near attitudes; equal ones give exactly the identity.

    Examples:
        >>> jq.quaternion.relative(q, q)
        Array([1., 0., 0., 0.], dtype=float32)
    """
    p, q = broadcast(("p", p, (4,)), ("q", q, (4,)))
    step = jnp.where(dot(p, q)[..., None] < 0, -q, q) - p
    turn = multiply(conjugate(p), step)
    return jnp.concatenate([dot(p, p)[..., None] + turn[..., :1], turn[..., 1:]], axis=-1)


def squared_distance(p: ArrayLike, q: ArrayLike) -> Array:
    """Return the square of the angle [rad^2] between attitudes. (..., 4), (..., 4) -> (...).

    Use it in losses: it is smooth below pi, also at coincidence, where its Hessian in the tangent
    space is twice the identity. At exactly pi the derivative is that of one of the two shortest
    ways.

    Examples:
        >>> f"{jq.quaternion.squared_distance(q, level):.3f}"
        '1.656'
    """
    u = log(relative(p, q))
    return dot(u, u)


def distance(p: ArrayLike, q: ArrayLike) -> Array:
    """Return the angle [rad] in [0, pi] between two attitudes. (..., 4), (..., 4) -> (...).

    The derivative is 0 at coincidence, where only ``squared_distance`` is smooth, and at exactly pi
    that of one of the two shortest ways.

    Examples:
        >>> f"{jq.quaternion.distance(level, -q):.3f}"  # -q is the same attitude
        '1.287'
    """
    return root(squared_distance(p, q))


def slerp(p: ArrayLike, q: ArrayLike, t: ArrayLike) -> Array:
    """Return the attitude at fraction t of the shortest way from p to q, unit.

    (..., 4), (..., 4), (...) -> (..., 4). It is ``(p sin((1 - t) a) + q sin(t a))/sin a`` with
    Hoffmann's bivector angle ``a = atan2(|p ^ q|, p.q)`` (Application of Quaternions, 11.1), |p ^
    q| the norm of the vector part of p* q; p and q of any length. At a half turn it takes +q, and
    is discontinuous.

    Examples:
        >>> jnp.degrees(jq.quaternion.log(jq.quaternion.slerp(level, q, 0.5))[2]).round(1)
        Array(36.9, dtype=float32)
    """
    p, q, t = broadcast(("p", p, (4,)), ("q", q, (4,)), ("t", t, ()))
    p, q = normalize(near_one(p)), normalize(near_one(q))
    q = jnp.where(dot(p, q)[..., None] < 0, -q, q)
    turn = relative(p, q)
    s = dot(turn[..., 1:], turn[..., 1:])
    square = s * series.arctan_ratio(s, jnp.maximum(turn[..., 0], 0.0)) ** 2
    near = (1.0 - t) * series.sinc((1.0 - t) ** 2 * square)
    far = t * series.sinc(t**2 * square)
    return normalize(near[..., None] * p + far[..., None] * q)


def random(key: Array, shape: tuple[int, ...] = (), *, dtype: DTypeLike | None = None) -> Array:
    """Draw attitudes uniformly from SO(3), as unit quaternions of either sign. -> (*shape, 4).

    Examples:
        >>> attitudes = jq.quaternion.random(jax.random.key(0), (1000,))
    """
    size = (*arguments.shape("shape", shape), 4)
    key, dtype = random_key("key", key), floating_dtype("dtype", dtype)
    return normalize(jax.random.normal(key, size, dtype))

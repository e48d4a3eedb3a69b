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

    (..., 4), (..., 4) -> (..., 4). It is computed as ``|p|^2 + p* (±q - p)``: attitudes that nearly
    coincide lose no digits to cancellation, and equal ones give exactly the identity.

    Examples:
        >>> yaws = jnp.radians(jnp.array([[0.0, 0.0, 30.0], [0.0, 0.0, 50.0]]))
        >>> p, q = jq.quaternion.exp(yaws)
        >>> jnp.degrees(jq.quaternion.log(jq.quaternion.relative(p, q))[2]).round(2)
        Array(20., dtype=float32)
    """
    p, q = broadcast(("p", p, (4,)), ("q", q, (4,)))
    step = jnp.where(dot(p, q)[..., None] < 0, -q, q) - p
    turn = multiply(conjugate(p), step)
    return jnp.concatenate([dot(p, p)[..., None] + turn[..., :1], turn[..., 1:]], axis=-1)


def squared_distance(p: ArrayLike, q: ArrayLike) -> Array:
    """Return the square of the angle [rad^2] between attitudes. (..., 4), (..., 4) -> (...).

    Use it in losses: it is smooth for angles below pi, including coincidence, where its Hessian in
    the tangent space is twice the identity. At exactly pi the derivative is that of one of the two
    shortest ways.

    Examples:
        >>> level = jnp.array([1.0, 0.0, 0.0, 0.0])
        >>> tilted = jq.quaternion.exp(jnp.array([0.2, 0.0, 0.0]))  # rad
        >>> jq.quaternion.squared_distance(tilted, level).round(3)
        Array(0.04, dtype=float32)
    """
    u = log(relative(p, q))
    return dot(u, u)


def distance(p: ArrayLike, q: ArrayLike) -> Array:
    """Return the angle [rad] in [0, pi] between two attitudes. (..., 4), (..., 4) -> (...).

    It is not differentiable at coincidence, where the returned derivative is 0, nor at exactly pi,
    where it is that of one of the two shortest ways. ``squared_distance`` is smooth at coincidence.

    Examples:
        >>> level = jnp.array([1.0, 0.0, 0.0, 0.0])
        >>> tilted = jq.quaternion.exp(jnp.array([0.2, 0.0, 0.0]))  # rad
        >>> jq.quaternion.distance(level, -tilted).round(3)  # -q is the same attitude
        Array(0.2, dtype=float32)
    """
    return root(squared_distance(p, q))


def slerp(p: ArrayLike, q: ArrayLike, t: ArrayLike) -> Array:
    """Return the attitude at fraction t of the shortest way from p to q, unit.

    (..., 4), (..., 4), (...) -> (..., 4). It is ``(p sin((1 - t) a) + q sin(t a))/sin a`` with
    Hoffmann's bivector angle ``a = atan2(|p ^ q|, p.q)`` (Application of Quaternions, 11.1), where
    |p ^ q| is the norm of the vector part of p* q. The scale of p and q has no effect. If they are
    a half turn apart, both ways are shortest; the result then uses +q, and is discontinuous there.

    Examples:
        >>> p, q = jq.quaternion.exp(jnp.radians(jnp.array([[0.0, 0.0, 0.0], [0.0, 0.0, 90.0]])))
        >>> third = jq.quaternion.slerp(p, q, 1 / 3)
        >>> jnp.degrees(jq.quaternion.log(third)[2]).round(2)
        Array(30., dtype=float32)
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
        >>> q = jq.quaternion.random(jax.random.key(0), (1000,))
        >>> jq.quaternion.rotate(q, jnp.array([1.0, 0.0, 0.0])).shape  # directions of body x
        (1000, 3)
    """
    size = (*arguments.shape("shape", shape), 4)
    key, dtype = random_key("key", key), floating_dtype("dtype", dtype)
    return normalize(jax.random.normal(key, size, dtype))

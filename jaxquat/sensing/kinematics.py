"""Attitude from rates: ``q' = 1/2 q (0, omega(t))`` by the Magnus expansion. No body, no torque; these are not steps.

All in body axes: ``q(t + h) = q(t) exp(Omega)``, Omega the rotation vector of the step. The source document on constant angular
acceleration (docs/errata.md) writes ``exp(Omega) q(t)`` in world axes, where the terms with an odd number of
vector products have the other sign. The forms for sampled rates are those of S. Blanes, F. Casas, J. A. Oteo and J. Ros, Phys.
Rep. 470, 2009, 151-238, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._checks import (
    broadcast,
    exactly,
    floating,
    instance,
    one_of,
    positive,
    takes,
    trailing,
    unit_quaternion,
)
from jaxquat._linear import cross, dot
from jaxquat.rotations.quaternion import correct_norm, expm1, multiply
from jaxquat.simulation.grid import Grid

__all__ = [
    "integrate",
    "magnus",
    "rollout",
    "truncated_exp",
]

# Gauss-Legendre nodes on [0, 1]: one, two and three of them integrate to order 2, 4 and 6.
_NODES = {
    2: (0.5,),
    4: (0.5 - math.sqrt(3) / 6, 0.5 + math.sqrt(3) / 6),
    6: (0.5 - math.sqrt(15) / 10, 0.5, 0.5 + math.sqrt(15) / 10),
}


def magnus(
    q0: ArrayLike, omega: ArrayLike, alpha: ArrayLike, dt: ArrayLike, *, order: int = 4
) -> Array:
    """The attitude after dt [s] of constant angular acceleration: rate ``omega + alpha t``, both in body axes [rad/s, rad/s^2].

    (..., 4), (..., 3), (..., 3), (...) -> (..., 4). The order in dt is 2, 4, 6 or 8: the first term of the Magnus series, the first
    two, all terms to dt^5, all terms to dt^7 in closed form. The series converges while the angle turned is below 2 pi (the source
    document's 127 degrees is the bound of the matrix norm). Driven by Euler's equation with alpha frozen over a step this is of
    order 1 in the rate: use a scheme of ``jq.SCHEMES`` there.
    """
    one_of("order", order, (2, 4, 6, 8))
    named = (("q0", q0, (4,)), ("omega", omega, (3,)), ("alpha", alpha, (3,)), ("dt", dt, ()))
    q0, omega, alpha, h = broadcast(*named)
    unit_quaternion("q0", q0)
    h = h[..., None]
    middle = omega + 0.5 * h * alpha
    turn = cross(alpha, middle)
    along, across, sideways = (
        h,
        jnp.zeros_like(h),
        jnp.zeros_like(h),
    )  # coefficients of middle, alpha, alpha × middle
    if order >= 4:
        sideways = sideways - h**3 / 12
    rate, acceleration, mixed = (
        dot(a, b)[..., None] for a, b in ((middle, middle), (alpha, alpha), (middle, alpha))
    )
    if order >= 6:
        along, across = along - h**5 * acceleration / 240, across + h**5 * mixed / 240
        sideways = sideways - h**5 * rate / 720
    if order == 8:
        along = along + h**7 * (mixed * mixed / 30240 - acceleration * rate / 7560)
        across = across + h**7 * mixed * rate / 10080
        sideways = sideways - h**7 * (rate * rate / 30240 - acceleration / 6720)
    return correct_norm(q0 + multiply(q0, expm1(along * middle + across * alpha + sideways * turn)))


def truncated_exp(u: ArrayLike) -> Array:
    """The source document's exponential without trigonometric functions: its series to third order, normalised.

    (..., 3) [rad] -> (..., 4): ``(1 - v^2/2, (1 - v^2/6) v)`` with v = u/2, divided by its norm. The rotation is wrong by 0.24 % of
    its angle at 60 degrees, 1.19 % at 90 and 15.8 % at 180 (the document's "less than 1 % up to 90 degrees" holds for the
    quaternion, not for the angle). As ``exp`` of a Magnus step it limits the order to 4.
    """
    v = 0.5 * trailing("u", u, (3,))
    square = dot(v, v)[..., None]
    series = jnp.concatenate([1.0 - 0.5 * square, (1.0 - square / 6.0) * v], axis=-1)
    return series / jnp.sqrt(dot(series, series))[..., None]


def rollout(
    q0: ArrayLike,
    rate: Callable[[Array, Any], Array],
    grid: Grid,
    params: Any = None,
    *,
    order: int = 4,
) -> Array:
    """Attitudes on a time grid from a body rate known as a function, ``rate(t, params) -> (3,)`` [rad/s]. -> (steps + 1, 4).

    The rate is evaluated at the 1, 2 or 3 Gauss nodes of every step, all at once; the order in dt is 2, 4 or 6. Differentiable by
    q0, params and grid, in both modes.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
    """
    one_of("order", order, tuple(_NODES))
    takes("rate", rate, "t, params")
    instance("grid", grid, Grid, "a jq.grid(t0, dt, steps)")
    q0 = _start(q0)
    starts, dt = grid.times(q0.dtype)[:-1], jnp.asarray(grid.dt, q0.dtype)

    def at(t: Array) -> Array:
        omega = exactly("rate", rate(t, params), (3,), " from rate(t, params)")
        if omega.dtype != q0.dtype:
            raise TypeError(f"rate: wanted the dtype of q0, {q0.dtype}, got {omega.dtype}")
        return omega

    return _product(
        q0, _step_vectors([jax.vmap(at)(starts + node * dt) for node in _NODES[order]], dt)
    )


def integrate(q0: ArrayLike, omega: ArrayLike, dt: ArrayLike, *, order: int = 4) -> Array:
    """Attitudes at the times of N uniform samples of the body rate, a gyroscope's for instance. (4,), (N, 3), () -> (N, 4).

    The rate at the Gauss nodes is that of the polynomial through the nearest 2, 4 or 6 samples (one-sided at the ends), which
    makes the order in the spacing dt [s] 2, 4 or 6; needs at least as many samples. Differentiable by everything, in both modes.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
    """
    one_of("order", order, tuple(_NODES))
    order = int(order)  # 2.0 is 2
    q0, omega, dt = _start(q0), floating("omega", omega), exactly("dt", dt, ())
    if omega.ndim != 2 or omega.shape[1] != 3 or omega.shape[0] < order:
        raise ValueError(
            f"omega: wanted shape (N, 3) with N >= {order} for order {order}, got {omega.shape}"
        )
    for name, value in (("omega", omega), ("dt", dt)):
        if value.dtype != q0.dtype and not value.weak_type:
            raise TypeError(f"{name}: wanted the dtype of q0, {q0.dtype}, got {value.dtype}")
    positive("dt", dt)
    # Samples beyond the ends, on the polynomial through the first and the last few, make every stencil the central one.
    places, outside = np.arange(order), np.arange(1, order // 2)
    before, after = (_weights(places, at) for at in (-outside[::-1], order - 1 + outside))
    extended = jnp.concatenate(
        [_combine(before, omega[:order]), omega, _combine(after, omega[-order:])]
    )
    steps, weights = len(omega) - 1, _weights(places, np.array(_NODES[order]) + order // 2 - 1)
    stencil = jnp.stack([extended[k : k + steps] for k in range(order)])  # (order, steps, 3)
    nodes = [
        jnp.sum(jnp.asarray(row, omega.dtype)[:, None, None] * stencil, axis=0) for row in weights
    ]
    return _product(q0, _step_vectors(nodes, dt))


def _start(q0: ArrayLike) -> Array:
    q0 = exactly("q0", q0, (4,))
    unit_quaternion("q0", q0)
    return q0


def _step_vectors(omega: list[Array], dt: Array) -> Array:
    """The rotation vectors of all steps from the rates at their Gauss nodes, each (steps, 3)."""
    if len(omega) == 1:
        return dt * omega[0]
    if len(omega) == 2:
        first, second = omega
        return 0.5 * dt * (first + second) + math.sqrt(3) / 12 * dt**2 * cross(first, second)
    first, second, third = omega
    b1, b2, b3 = (
        dt * second,
        math.sqrt(15) / 3 * dt * (third - first),
        10 / 3 * dt * (third - 2.0 * second + first),
    )
    c1 = -cross(b1, b2)
    c2 = cross(b1, 2.0 * b3 + c1) / 60
    return b1 + b3 / 12 - cross(-20.0 * b1 - b3 + c1, b2 + c2) / 240


def _product(q0: Array, u: Array) -> Array:
    """``q0, q0 exp(u[0]), q0 exp(u[0]) exp(u[1]), ...``."""

    def advance(q: Array, turn: Array) -> tuple[Array, Array]:
        q = correct_norm(q + multiply(q, turn))
        return q, q

    return jnp.concatenate([q0[None], lax.scan(advance, q0, expm1(u))[1]])


def _weights(places: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Lagrange's weights (points, places): the values at ``at`` of the polynomials that are 1 at one place, 0 at the others."""
    others = [np.delete(places, k) for k in range(len(places))]
    return np.array(
        [[np.prod((x - o) / (p - o)) for p, o in zip(places, others, strict=True)] for x in at]
    ).reshape(len(at), len(places))


def _combine(weights: np.ndarray, rows: Array) -> Array:
    return jnp.sum(jnp.asarray(weights, rows.dtype)[:, :, None] * rows[None], axis=1)

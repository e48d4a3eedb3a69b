"""Steps of the Magnus expansion, and the product of their turns.

``q' = 1/2 q (0, omega)`` has the solution ``q(t + h) = q(t) exp(Omega)``. The formulas come from S.
Blanes, F. Casas, J. A. Oteo and J. Ros, Phys. Rep. 470, 2009, 151-238, section 5, rewritten for the
rate on the right: their commutator is the negative vector product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from jaxquat._internal.linear import cross, dot
from jaxquat.quaternion import correct_norm, expm1, multiply

# Gauss-Legendre nodes on [0, 1]: one, two and three of them integrate to order 2, 4 and 6.
NODES: dict[int, tuple[float, ...]] = {
    2: (0.5,),
    4: (0.5 - math.sqrt(3) / 6, 0.5 + math.sqrt(3) / 6),
    6: (0.5 - math.sqrt(15) / 10, 0.5, 0.5 + math.sqrt(15) / 10),
}


def magnus_vector(omega: Array, alpha: Array, h: Array, order: int) -> Array:
    """Return the rotation vector of a step of constant angular acceleration; h is (..., 1)."""
    middle = omega + 0.5 * h * alpha
    turn = cross(alpha, middle)
    # Coefficients of middle, alpha and alpha × middle.
    along, across, sideways = h, jnp.zeros_like(h), jnp.zeros_like(h)
    if order >= 4:
        sideways = sideways - h**3 / 12
    rate, acceleration = dot(middle, middle)[..., None], dot(alpha, alpha)[..., None]
    mixed = dot(middle, alpha)[..., None]
    if order >= 6:
        along, across = along - h**5 * acceleration / 240, across + h**5 * mixed / 240
        sideways = sideways - h**5 * rate / 720
    if order == 8:
        along = along + h**7 * (mixed * mixed / 30240 - acceleration * rate / 7560)
        across = across + h**7 * mixed * rate / 10080
        sideways = sideways - h**7 * (rate * rate / 30240 - acceleration / 6720)
    return along * middle + across * alpha + sideways * turn


def expansion(values: Sequence[Array], dt: Array) -> Array:
    """Return Omega of all steps from the rates (steps, 3) at 1, 2 or 3 Gauss nodes."""
    # ``dt`` is () or (steps, 1). The order is twice the number of nodes.
    if len(values) == 1:
        return dt * values[0]
    if len(values) == 2:
        first, second = values
        return 0.5 * dt * (first + second) + math.sqrt(3) / 12 * dt**2 * cross(first, second)
    first, second, third = values
    b1 = dt * second
    b2 = math.sqrt(15) / 3 * dt * (third - first)
    b3 = 10 / 3 * dt * (third - 2.0 * second + first)
    c1 = -cross(b1, b2)
    c2 = cross(b1, 2.0 * b3 + c1) / 60
    return b1 + b3 / 12 - cross(-20.0 * b1 - b3 + c1, b2 + c2) / 240


def product(q0: Array, u: Array, is_empty: Array | None = None) -> Array:
    """Return ``q0, q0 exp(u[0]), q0 exp(u[0]) exp(u[1]), ...``; empty steps do not change q."""

    def advance(q: Array, step: tuple[Array, Any]) -> tuple[Array, Array]:
        turn, is_empty = step
        after = correct_norm(q + multiply(q, turn))
        q = after if is_empty is None else jnp.where(is_empty, q, after)
        return q, q

    return jnp.concatenate([q0[None], lax.scan(advance, q0, (expm1(u), is_empty))[1]])

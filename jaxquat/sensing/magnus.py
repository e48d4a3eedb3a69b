"""The Magnus expansion in any Lie algebra, from values at Gauss nodes, and those from samples.

``Y' = Y A(t)`` has the solution ``Y(t + h) = Y(t) exp(Omega)``. Omega is linear in the algebra and
its bracket, so one formula serves rotations (the bracket is the vector product) and the Galilean
group (``galilean.bracket``). The forms are those of S. Blanes, F. Casas, J. A. Oteo and J. Ros,
Phys. Rep. 470, 2009, 151-238, section 5, written for A on the right: their commutator is the
negative bracket.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

# Gauss-Legendre nodes on [0, 1]: one, two and three of them integrate to order 2, 4 and 6.
NODES = {
    2: (0.5,),
    4: (0.5 - math.sqrt(3) / 6, 0.5 + math.sqrt(3) / 6),
    6: (0.5 - math.sqrt(15) / 10, 0.5, 0.5 + math.sqrt(15) / 10),
}


def expansion(
    values: Sequence[Array], dt: Array, bracket: Callable[[Array, Array], Array]
) -> Array:
    """Omega of all steps from the values of A at their 1, 2 or 3 Gauss nodes, each (steps, n).

    ``dt`` is () or (steps, 1). The order is twice the number of nodes.
    """
    if len(values) == 1:
        return dt * values[0]
    if len(values) == 2:
        first, second = values
        return 0.5 * dt * (first + second) + math.sqrt(3) / 12 * dt**2 * bracket(first, second)
    first, second, third = values
    b1 = dt * second
    b2 = math.sqrt(15) / 3 * dt * (third - first)
    b3 = 10 / 3 * dt * (third - 2.0 * second + first)
    c1 = -bracket(b1, b2)
    c2 = bracket(b1, 2.0 * b3 + c1) / 60
    return b1 + b3 / 12 - bracket(-20.0 * b1 - b3 + c1, b2 + c2) / 240


def lagrange_weights(places: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Lagrange's weights (points, places): polynomials that are 1 at one place, 0 at the others.

    Row k has their values at the point ``at[k]``.
    """
    others = [np.delete(places, k) for k in range(len(places))]
    pairs = list(zip(places, others, strict=True))
    rows = [[np.prod((x - o) / (p - o)) for p, o in pairs] for x in at]
    return np.array(rows).reshape(len(at), len(places))


def at_gauss_nodes(
    samples: Array, dt: Array, steps: Array, count: Array | int, order: int
) -> list[Array]:
    """Values at the Gauss nodes of steps between samples at any times, each (len(steps), n).

    They are those of the polynomial through the nearest ``order`` samples, one-sided at the ends.

    Args:
        samples: (N, n), at increasing times, of which the first ``count`` are used.
        dt: the times between them, (N - 1,); positive where they are used.
        steps: numbers of the steps; step k is between the samples k and k + 1.
        count: how many samples there are, at least ``order``.
        order: even.
    """
    first = jnp.clip(steps - (order // 2 - 1), 0, count - order)
    stencil = first[:, None] + jnp.arange(order)[None]
    unit = dt[steps][:, None]
    gaps = dt[stencil[:, :-1]] / unit
    places = jnp.concatenate([jnp.zeros_like(unit), jnp.cumsum(gaps, axis=1)], axis=1)
    places = places - jnp.take_along_axis(places, (steps - first)[:, None], axis=1)
    itself = jnp.eye(order, dtype=bool)[None]  # a place is left out of its own weight
    apart = jnp.where(itself, 1.0, places[:, :, None] - places[:, None, :])
    nodes = []
    for node in NODES[order]:
        weights = jnp.prod(jnp.where(itself, 1.0, (node - places)[:, None, :] / apart), axis=2)
        nodes.append(jnp.sum(weights[:, :, None] * samples[stencil], axis=1))
    return nodes

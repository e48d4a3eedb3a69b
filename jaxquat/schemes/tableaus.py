"""Explicit Runge-Kutta tableaus.

E. Hairer, S. P. Norsett and G. Wanner, Solving Ordinary Differential Equations I, 2nd ed. 1993
(order conditions: II.2; Kutta and Dormand-Prince: II.1 and II.5); J. C. Butcher, On
Runge-Kutta processes of high order, J. Austral. Math. Soc. 4, 1964.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import numbers, positive, positive_integer, real


class Tableau(NamedTuple):
    """Coefficients of an explicit method of s stages; ``a`` and ``c`` start at the second stage.

    Attributes:
        a: s - 1 rows of 1, 2, ... weights of the earlier stages.
        b: s weights of the stages.
        c: s - 1 nodes, fractions of the step.
        order: the order up to which the order conditions hold.

    Examples:
        >>> jq.schemes.tableaus.HEUN.a, jq.schemes.tableaus.HEUN.b, jq.schemes.tableaus.HEUN.c
        (((1.0,),), (0.5, 0.5), (1.0,))
    """

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    order: int


def tableau(
    a: tuple[tuple[float, ...], ...],
    b: tuple[float, ...],
    c: tuple[float, ...],
    order: int,
    tolerance: float = 1e-13,
) -> Tableau:
    """Make a Tableau whose row sums and order conditions hold within ``tolerance``.

    TypeError for a coefficient that is no number or an order that is no integer; ValueError for a
    wrong number of coefficients, or with the name of a condition that fails.

    Examples:
        >>> ralston = jq.schemes.tableau(a=((2 / 3,),), b=(1 / 4, 3 / 4), c=(2 / 3,), order=2)
    """
    if isinstance(a, str) or not hasattr(a, "__len__"):
        raise TypeError(f"a: wanted rows of numbers, got {a!r}")
    a, b, c = tuple(numbers("a", row) for row in a), numbers("b", b), numbers("c", c)
    stages, order = len(b), positive_integer("order", order)
    tolerance = real("tolerance", tolerance)
    positive("tolerance", tolerance)
    if [len(row) for row in a] != list(range(1, stages)):
        wanted = f"{stages - 1} rows of 1, 2, ... entries (b has {stages})"
        raise ValueError(f"a: wanted {wanted}, got {[len(row) for row in a]}")
    if len(c) != stages - 1:
        raise ValueError(f"c: wanted {stages - 1} nodes, got {len(c)}")
    for row, node in zip(a, c, strict=True):
        if not abs(sum(row) - node) <= tolerance:
            raise ValueError(f"c: wanted the row sums of a, got {node} for the row {row}")
    for size in range(1, order + 1):
        for tree in _trees(size):
            weight = sum(x * y for x, y in zip(b, _stage_weights(tree, a, stages), strict=True))
            if not abs(weight - 1 / _density(tree)) <= tolerance:
                condition = f"the order-{size} condition of tree {tree}"
                raise ValueError(f"b: wanted {1 / _density(tree)} for {condition}, got {weight}")
    return Tableau(a, b, c, order)


def _trees(size: int) -> list[tuple]:
    """Return the rooted trees of ``size`` nodes, each the sorted tuple of its root's branches."""
    trees = {()} if size == 1 else set()
    for branches in range(1, size):
        for sizes in itertools.combinations_with_replacement(range(1, size), branches):
            if sum(sizes) == size - 1:
                forests = itertools.product(*map(_trees, sizes))
                trees |= {tuple(sorted(forest)) for forest in forests}
    return sorted(trees)


def _size(tree: tuple) -> int:
    return 1 + sum(map(_size, tree))


def _density(tree: tuple) -> int:
    """Return gamma(t): the size of the tree times the densities of its branches."""
    return _size(tree) * math.prod(map(_density, tree))


def _stage_weights(tree: tuple, a: tuple[tuple[float, ...], ...], stages: int) -> list[float]:
    weights = [1.0] * stages
    for branch in tree:
        inner = _stage_weights(branch, a, stages)
        for i, row in enumerate(((), *a)):
            weights[i] *= sum(x * y for x, y in zip(row, inner, strict=False))
    return weights


def combine(weights: tuple[float, ...], slopes: list[Any], dt: ArrayLike) -> Any:
    """Return ``dt`` times the weighted sum of pytrees of slopes, without those of weight zero."""
    used = [(weight, slope) for weight, slope in zip(weights, slopes, strict=True) if weight != 0]
    used = used or [(0.0, slopes[0])]

    def combined(*leaves: Array) -> Array:
        weight = used[0][0]
        if len(used) == 1 and weight != 1 and math.frexp(weight)[0] == 0.5:
            return weight * jnp.asarray(dt) * leaves[0]  # exact in either order, this one is faster
        terms = [weight * leaf for (weight, _), leaf in zip(used, leaves, strict=True)]
        return jnp.asarray(dt) * functools.reduce(operator.add, terms)

    return jax.tree.map(combined, *(slope for _, slope in used))


EULER = tableau(a=(), b=(1,), c=(), order=1)

MIDPOINT = tableau(a=((1 / 2,),), b=(0, 1), c=(1 / 2,), order=2)

HEUN = tableau(a=((1,),), b=(1 / 2, 1 / 2), c=(1,), order=2)

KUTTA3 = tableau(a=((1 / 2,), (-1, 2)), b=(1 / 6, 2 / 3, 1 / 6), c=(1 / 2, 1), order=3)

RK4 = tableau(
    a=((1 / 2,), (0, 1 / 2), (0, 0, 1)),
    b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
    c=(1 / 2, 1 / 2, 1),
    order=4,
)

DORMAND_PRINCE5 = tableau(
    a=(
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    ),
    b=(35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    c=(1 / 5, 3 / 10, 4 / 5, 8 / 9, 1),
    order=5,
)

BUTCHER6 = tableau(
    a=(
        (1 / 3,),
        (0, 2 / 3),
        (1 / 12, 1 / 3, -1 / 12),
        (-1 / 16, 9 / 8, -3 / 16, -3 / 8),
        (0, 9 / 8, -3 / 8, -3 / 4, 1 / 2),
        (9 / 44, -9 / 11, 63 / 44, 18 / 11, 0, -16 / 11),
    ),
    b=(11 / 120, 0, 27 / 40, 27 / 40, -4 / 15, -4 / 15, 11 / 120),
    c=(1 / 3, 2 / 3, 1 / 3, 1 / 2, 1 / 2, 1),
    order=6,
)

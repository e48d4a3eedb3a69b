"""Weights of compositions, and the order that they give.

M. Suzuki, Phys. Lett. A 146, 1990, 319-323; H. Yoshida, Phys. Lett. A 150, 1990, 262-268 (triple
jump, theory); W. Kahan and R.-C. Li, Math. Comp. 66, 1997, 1089-1099. A step of order p is
``exp(h Y_1 + h^(p+1) Y_(p+1) + ...)``, where Y_1 is the motion and the other Y_k, which do not
commute, are errors; a reversible step has only odd k (Yoshida). Sub-steps ``w_i h`` compose to
order n if the product agrees with ``exp(h Y_1)`` in every word of Y's whose indices sum to n or
less.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

_S = 1 / (4 - 4 ** (1 / 3))
SUZUKI4 = (_S, _S, 1 - 4 * _S, _S, _S)

_J = 1 / (2 - 2 ** (1 / 3))
TRIPLE_JUMP4 = (_J, 1 - 2 * _J, _J)

_K = (
    0.39216144400731413928,
    0.33259913678935943860,
    -0.70624617255763935981,
    0.08221359629355080023,
)
KAHAN_LI6 = (*_K, 1 - 2 * sum(_K), *reversed(_K))

HIGHEST = 10  # composed_order tries no higher order, unless that of the step itself is higher

_Series = dict[tuple[int, ...], float]  # coefficients of words of Y's, by their indices


def composed_order(order: int | None, reversible: bool, weights: Sequence[float]) -> int | None:
    """Return the order of a composition of steps of this order, which may be ``reversible``."""
    if not order:
        return order
    highest = max(HIGHEST, order)
    agrees = functools.partial(_agrees, order, reversible, weights)
    return next((k - 1 for k in range(order + 1, highest + 1) if not agrees(k)), highest)


def _agrees(order: int, reversible: bool, weights: Sequence[float], highest: int) -> bool:
    """Return whether composition and motion agree in the words whose indices sum to ``highest``."""
    errors = [k for k in range(order + 1, highest + 1) if k % 2 or not reversible]
    flow = functools.partial(_exponential, highest=highest)
    steps = [flow({(k,): weight**k for k in (1, *errors)}) for weight in weights]
    composed = functools.reduce(functools.partial(_product, highest=highest), steps)
    exact = flow({(1,): 1.0})
    return all(
        abs(coefficient - exact.get(word, 0.0)) <= 1e-11
        for word, coefficient in composed.items()
        if sum(word) == highest
    )


def _product(one: _Series, other: _Series, highest: int) -> _Series:
    total: _Series = {}
    for left, a in one.items():
        for right, b in other.items():
            if sum(left) + sum(right) <= highest:
                total[left + right] = total.get(left + right, 0.0) + a * b
    return total


def _exponential(series: _Series, highest: int) -> _Series:
    total: _Series = {(): 1.0}
    power: _Series = {(): 1.0}
    for n in range(1, highest + 1):
        power = {word: a / n for word, a in _product(power, series, highest).items()}
        total |= {word: total.get(word, 0.0) + a for word, a in power.items()}
    return total

"""Factorizations of small matrices, and solving with them: textbook algorithms, unrolled.

Selects choose a pivot, because its row is known only at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxquat.fused.errors import not_scalar
from jaxquat.fused.ir.builder import Builder, Scalar, sqrt, where
from jaxquat.fused.trace.values import Values


def _over_batch(function: Callable[..., list[Values]], *arrays: Values) -> list[Values]:
    batch = arrays[0].shape[:-2]
    rows = [function(*(x[place] for x in arrays)) for place in np.ndindex(batch)]
    columns = zip(*rows, strict=True)
    return [np.reshape(column, (*batch, *column[0].shape)) for column in columns]


def _exchanged(rows: np.ndarray, k: int, pivot: Scalar) -> None:
    table = rows.reshape(len(rows), -1)
    first = table[k].tolist()
    for i in range(k + 1, len(rows)):
        here = pivot.equals(i)
        for j, entry in enumerate(first):
            top, below = table[k, j], table[i, j]
            table[k, j], table[i, j] = where(here, below, top), where(here, entry, below)


def _pivot(column: np.ndarray, k: int, none: Scalar) -> Scalar:
    largest, pivot = abs(column[k]), none.like(k)
    for i in range(k + 1, len(column)):
        size = abs(column[i])
        larger = size > largest
        largest, pivot = where(larger, size, largest), where(larger, i, pivot)
    return pivot


def _lu(b: Builder, equation: Any, matrix: Values) -> list[Values]:
    """Factorize ``P A = L U`` by rows, with pivots and permutation; 0 pivots do not divide."""
    none = b.const(np.int32(0))

    def factors(matrix: Values) -> list[Values]:
        a: Any = matrix.copy()
        rows, columns = a.shape
        pivots = np.empty(min(rows, columns), object)
        for k in range(len(pivots)):
            pivots[k] = _pivot(a[:, k], k, none)
            _exchanged(a, k, pivots[k])
            zero = a[k, k].equals(0)
            inverse = 1 / where(zero, 1, a[k, k])
            for i in range(k + 1, rows):
                a[i, k] = a[i, k] * inverse
                for j in range(k + 1, columns):
                    a[i, j] = a[i, j] - a[i, k] * a[k, j]
        return [a, pivots, _permutation(none, pivots, rows)]

    return _over_batch(factors, matrix)


def _permutation(none: Scalar, pivots: np.ndarray, size: int) -> Values:
    order = np.array([none.like(k) for k in range(size)], object)
    for k, pivot in enumerate(pivots):
        _exchanged(order, k, pivot)
    return order


def _pivots_to_permutation(b: Builder, equation: Any, pivots: Values) -> Values:
    size, batch = equation.params["permutation_size"], pivots.shape[:-1]
    rows = [_permutation(row[0], row, size) for row in pivots.reshape(-1, pivots.shape[-1])]
    return np.reshape(rows, (*batch, size))


def _cholesky(b: Builder, equation: Any, matrix: Values) -> Values:
    """Return the lower factor, from the lower triangle; NaN if not positive definite, as in XLA."""

    def factor(matrix: Values) -> list[Values]:
        a: Any = matrix.copy()
        n = len(a)
        positive: Any = None
        for j in range(n):
            square = a[j, j]
            for k in range(j):
                square = square - a[j, k] * a[j, k]
            fails = square <= 0  # False for NaN, which spreads through the factor by itself
            positive = ~fails if positive is None else positive & ~fails
            a[j, j] = sqrt(square)
            inverse = 1 / a[j, j]
            for i in range(j + 1, n):
                for k in range(j):
                    a[i, j] = a[i, j] - a[i, k] * a[j, k]
                a[i, j] = a[i, j] * inverse
        for i, j in np.ndindex(a.shape):
            a[i, j] = a[i, j].like(0) if j > i else where(positive, a[i, j], np.nan)
        return [a]

    return _over_batch(factor, matrix)[0]


def _triangular_solve(b: Builder, equation: Any, matrix: Values, sides: Values) -> Values:
    """Return the solution X of ``A X = B`` or ``X A = B``; the latter is ``A^T X^T = B^T``."""
    p = equation.params
    transposed, lower = p["transpose_a"], p["lower"]
    if not p["left_side"]:
        sides, transposed = np.swapaxes(sides, -1, -2), not transposed
    if transposed:
        matrix, lower = np.swapaxes(matrix, -1, -2), not lower

    def solution(matrix: Values, sides: Values) -> list[Values]:
        a, x = matrix, sides.copy()
        order = range(len(a)) if lower else range(len(a) - 1, -1, -1)
        for column in x.T:
            for step, i in enumerate(order):
                for j in order[:step]:
                    column[i] = column[i] - a[i, j] * column[j]
                if not p["unit_diagonal"]:
                    column[i] = column[i] / a[i, i]
        return [x]

    result = _over_batch(solution, matrix, sides)[0]
    return result if p["left_side"] else np.swapaxes(result, -1, -2)


def _platform_index(b: Builder, equation: Any) -> Values:
    platforms = equation.params["platforms"]
    named = {name for names in platforms for name in names or ()}
    if None not in platforms or named & {"cpu", "cuda"}:
        raise not_scalar("platform_index: a branch of its own for the processor has no scalar form")
    return np.array(b.const(np.int32(platforms.index(None))))


RULES: dict[str, Callable[..., Any]] = {
    "lu": _lu,
    "lu_pivots_to_permutation": _pivots_to_permutation,
    "cholesky": _cholesky,
    "triangular_solve": _triangular_solve,
    "platform_index": _platform_index,
}

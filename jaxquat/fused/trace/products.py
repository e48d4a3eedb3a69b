"""Matrix products: small ones written out, large ones by loops.

A sum of two matrix products with short sums is one: with the columns of x, then those of u, in
[x u], ``x y^T + u v^T = [x u] [y v]^T``. The gradient with respect to a weight matrix is such a
sum, with one product g x^T for each stage of a step; as one product it is written to memory once.
``joined`` finds these sums; a function that is called several times returns the factors
(``calls``).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxquat.fused.ir.builder import Builder, Scalar
from jaxquat.fused.ir.program import Routine
from jaxquat.fused.trace.values import Values, array, each, flat, shaped

PRODUCTS = 64  # a matrix product of at most this many multiplications has no loop: 4x4 by 4x4
SUMS = 16  # sums carried by a loop over products: as many as the registers hold
SHORT = 8  # a sum of at most this many products is written out
LARGE = 64  # columns of such sums in the body of a loop over the rows


class Product(NamedTuple):
    """A product of matrices x y^T, and the order of its elements in an array."""

    x: Values
    y: Values
    order: Values  # in the shape of the array: the place of each element among those of x y^T


def _dot(b: Builder, equation: Any, x: Values, y: Values) -> Values:
    (xc, yc), (xb, yb) = equation.params["dimension_numbers"]
    (x, batch, left), (y, _, right) = _matrices(x, xb, xc), _matrices(y, yb, yc)
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    # for booleans, integers count the places where both hold; the result is whether any does
    zero = b.const(np.zeros((), np.int32 if dtype.kind == "b" else dtype)[()])
    # the result may be of a wider dtype
    x, y = (each(lambda z: z.convert(zero.dtype), z) for z in (x, y))
    small = x.shape[1] * x.shape[2] * y.shape[1] <= PRODUCTS
    dissolved = small or any(z.literal is not None for z in (*x.flat, *y.flat))
    if len(x) == 1 and not dissolved and x.shape[2] <= SHORT:
        order = np.arange(x.shape[1] * y.shape[1]).reshape(*batch, *left, *right)
        return computed(b, Product(x[0], y[0], order))
    product = _product if dissolved else _product_by_loops
    sums = flat(product(b, zero, *pair) for pair in zip(x, y, strict=True))
    sums = [total.differs(0) for total in sums] if dtype.kind == "b" else sums
    return array(sums, (*batch, *left, *right))


def _matrices(z: Values, batch: Sequence[int], summed: Sequence[int]) -> tuple[Any, Any, Any]:
    """Return an operand with axes (batch, free, summed), and the shapes of the first two."""
    free = [axis for axis in range(z.ndim) if axis not in (*batch, *summed)]
    shapes = [tuple(z.shape[axis] for axis in axes) for axes in (batch, free, summed)]
    z = z.transpose(*batch, *free, *summed).reshape(*map(math.prod, shapes))
    return z, shapes[0], shapes[1]


def computed(t: Any, product: Product) -> Values:
    """Return the array of a product with short sums, and enter it in ``t.products``."""
    product = _in_rows(product)
    x, y, order = product
    sums = _product_by_loops(t, x[0, 0].like(0), x, y)
    t.products[_first(sums)] = product, sums
    return sums.ravel()[order]


def _in_rows(product: Product) -> Product:
    """Return the product, x and y exchanged if that gives memory the order of the array."""
    x, y, order = product
    row, column = np.divmod(order, len(y))
    exchanged = column * len(x) + row
    inverted = np.all(np.diff(exchanged.ravel()) == 1) and not np.all(np.diff(order.ravel()) == 1)
    return Product(y, x, exchanged) if inverted else product


def factored(t: Any, values: Values) -> Product | None:
    """Return the product of which an array has each element once, in any order, or None."""
    match = t.products.get(_first(values)) if values.size else None
    if match is None or match[1].size != values.size:
        return None
    product, sums = match
    places = {x: place for place, x in enumerate(sums.flat)}
    order = [places.get(x, -1) for x in values.flat]
    complete = sorted(order) == list(range(sums.size))
    return product._replace(order=np.reshape(order, values.shape)) if complete else None


def _first(values: Values) -> int:
    return min(x.number for x in values.flat)


def joined(t: Any, p: Values, q: Values) -> Values | None:
    """Return the sum of two arrays as one product, if both are products with short sums."""
    if p.shape != q.shape:
        return None
    one, other = factored(t, p), factored(t, q)
    if one is None or other is None or not np.array_equal(one.order, other.order):
        return None
    if one.x.shape[0] != other.x.shape[0] or one.x.shape[1] + other.x.shape[1] > SHORT:
        return None
    x, y = (np.concatenate(pair, 1) for pair in zip(one[:2], other[:2], strict=True))
    return computed(t, Product(x, y, one.order))


def _product(b: Builder, zero: Scalar, x: Values, y: Values) -> Values:
    sums = np.empty((len(x), len(y)), object)
    for i, j in np.ndindex(sums.shape):
        sums[i, j] = sum(map(operator.mul, x[i], y[j]), zero)
    return sums


def _product_by_loops(b: Builder, zero: Scalar, x: Values, y: Values) -> Values:
    """Compute ``x y^T`` by loops over the terms of sums, or for short sums over the rows of x.

    About half of ``x x^T``, which is symmetric, is computed.
    """
    (rows, length), columns = x.shape, len(y)
    if length <= SHORT:
        if columns > rows and (rows == 1 or columns > LARGE):
            return _product_by_loops(b, zero, y, x).T
        inner = Builder([zero.dtype] * (y.size + length))
        fixed, row = shaped(inner.arguments, [y.shape, (1, length)])
        program = inner.finish(_product(inner, inner.const(zero.literal), row, fixed)[0].tolist())
        items = b.call(Routine(program, rows, y.size), [*y.flat, *x.T.flat])
        return array(items, (columns, rows)).T
    sums = np.empty((rows, columns), object)
    high, wide = (SUMS, 1) if columns == 1 else (1, SUMS) if rows == 1 else (4, SUMS // 4)
    symmetric = np.array_equal(x, y)
    for i in range(0, rows, high):
        for j in range(0, columns, wide):
            block = np.s_[i : i + high, j : j + wide]
            if symmetric and j < i:
                sums[block] = sums[j : j + wide, i : i + high].T
            else:
                sums[block] = _sums(b, zero, x[i : i + high], y[j : j + wide])
    return sums


def _sums(b: Builder, zero: Scalar, x: Values, y: Values) -> Values:
    """Compute ``x y^T`` by one loop; few sums are split, so that additions do not wait."""
    shape, length = (len(x), len(y)), x.shape[1]
    most = max(1, SUMS // (shape[0] * shape[1]))
    fitting = [p for p in range(1, most + 1) if length % p == 0]
    parts = max(p for p in fitting if p == 1 or length >= 4 * p)
    x, y = (z.reshape(len(z) * parts, length // parts) for z in (x, y))
    count = shape[0] * shape[1] * parts
    inner = Builder([zero.dtype] * (count + len(x) + len(y)))
    shapes = [(*shape, parts), (shape[0], 1, parts), (shape[1], parts)]
    totals, p, q = shaped(inner.arguments, shapes)
    routine = Routine(inner.finish(flat([totals + p * q])), length // parts, 0, count)
    sums = array(b.call(routine, [*[zero] * count, *x.flat, *y.flat]), (*shape, parts))
    return functools.reduce(operator.add, np.moveaxis(sums, -1, 0))


RULES: dict[str, Callable[..., Any]] = {"dot_general": _dot}

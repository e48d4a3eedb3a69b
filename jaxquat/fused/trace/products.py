"""Matrix products: small ones written out, large ones by loops.

A sum of two matrix products with short sums is one matrix product: if [x u] has the columns of x
and then those of u,

    x y^T + u v^T = [x u] [y v]^T.

The gradient with respect to a weight matrix is such a sum, with one product g x^T for each stage of
a step. As one product it is written to memory once. ``joined`` finds these sums, and ``finish`` of
the builder drops the products that are no longer needed. A function that a step calls several times
returns the factors, which are short, and its caller multiplies them (``calls``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxquat.fused.ir.builder import Builder
from jaxquat.fused.ir.program import Routine
from jaxquat.fused.trace.values import Values

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
    x = np.moveaxis(x, (*xb, *xc), (*range(len(xb)), *range(x.ndim - len(xc), x.ndim)))
    y = np.moveaxis(y, (*yb, *yc), (*range(len(yb)), *range(y.ndim - len(yc), y.ndim)))
    batch, contracted = x.shape[: len(xb)], x.shape[x.ndim - len(xc) :]
    left, right = x.shape[len(xb) : x.ndim - len(xc)], y.shape[len(yb) : y.ndim - len(yc)]
    x = x.reshape(int(np.prod(batch)), int(np.prod(left)), int(np.prod(contracted)))
    y = y.reshape(int(np.prod(batch)), int(np.prod(right)), int(np.prod(contracted)))
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    # for booleans, integers count the places where both hold; the result is whether any does
    zero = b.const(np.zeros((), np.int32 if dtype.kind == "b" else dtype)[()])
    x, y = (_of_dtype(b, z, b.dtype(zero)) for z in (x, y))  # the result may be of a wider dtype
    small = x.shape[1] * x.shape[2] * y.shape[1] <= PRODUCTS
    dissolved = small or any(b.literal(int(k)) is not None for k in (*x.flat, *y.flat))
    if len(x) == 1 and not dissolved and x.shape[2] <= SHORT:
        order = np.arange(x.shape[1] * y.shape[1]).reshape(*batch, *left, *right)
        return computed(b, Product(x[0], y[0], order))
    product = _product if dissolved else _product_by_loops
    results = [product(b, zero, *pair) for pair in zip(x, y, strict=True)]
    if dtype.kind == "b":
        results = [b.emit("ne", int(k), zero) for k in np.ravel(results)]
    return np.array(results, np.int64).reshape((*batch, *left, *right))


def computed(t: Any, product: Product) -> Values:
    """The array of a product with short sums, entered in ``t.products`` by its first number."""
    product = _in_rows(product)
    x, y, order = product
    zero = t.const(np.zeros((), t.dtype(int(x[0, 0])))[()])
    sums = _product_by_loops(t, zero, x, y)
    t.products[int(sums.min())] = product, sums
    return sums.ravel()[order]


def _in_rows(product: Product) -> Product:
    """Return the product, with x and y exchanged if the array has the elements of y x^T in order.

    Memory then has the order of the array, so a loop copies it, not one operation per number.
    """
    x, y, order = product
    row, column = np.divmod(order, len(y))
    exchanged = column * len(x) + row
    inverted = np.all(np.diff(exchanged.ravel()) == 1) and not np.all(np.diff(order.ravel()) == 1)
    return Product(y, x, exchanged) if inverted else product


def factored(t: Any, values: Values) -> Product | None:
    """Return the product of which an array has each element once, in any order, or None."""
    match = t.products.get(int(values.min())) if values.size else None
    if match is None or match[1].size != values.size:
        return None
    product, sums = match
    places = {number: place for place, number in enumerate(sums.ravel().tolist())}
    order = [places.get(number, -1) for number in values.ravel().tolist()]
    complete = sorted(order) == list(range(sums.size))
    return product._replace(order=np.reshape(order, values.shape)) if complete else None


def joined(t: Any, p: Values, q: Values) -> Values | None:
    """The sum of two arrays as one product, if both are products with short sums, else None."""
    if p.shape != q.shape:
        return None
    one, other = factored(t, p), factored(t, q)
    if one is None or other is None or not np.array_equal(one.order, other.order):
        return None
    if one.x.shape[0] != other.x.shape[0] or one.x.shape[1] + other.x.shape[1] > SHORT:
        return None
    x, y = (np.concatenate(pair, 1) for pair in zip(one[:2], other[:2], strict=True))
    return computed(t, Product(x, y, one.order))


def _of_dtype(b: Builder, values: Values, dtype: np.dtype) -> Values:
    converted = [b.emit("convert", k, dtype=dtype) for k in values.ravel().tolist()]
    return np.array(converted, np.int64).reshape(values.shape)


def _product(b: Builder, zero: int, x: Values, y: Values) -> Values:
    """``x y^T``, written out."""
    sums = np.empty((len(x), len(y)), np.int64)
    for i, j in np.ndindex(sums.shape):
        sums[i, j] = zero
        for p, q in zip(x[i].tolist(), y[j].tolist(), strict=True):
            sums[i, j] = b.emit("add", int(sums[i, j]), b.emit("mul", p, q))
    return sums


def _product_by_loops(b: Builder, zero: int, x: Values, y: Values) -> Values:
    """``x y^T`` by loops over the terms of the sums, where each loop carries several sums.

    If the sums are short, one loop goes over the rows of x. About half of ``x x^T``, which is
    symmetric, is computed.
    """
    (rows, length), columns = x.shape, len(y)
    if length <= SHORT:
        if columns > rows and (rows == 1 or columns > LARGE):
            return _product_by_loops(b, zero, y, x).T
        inner = Builder([b.dtype(zero)] * (y.size + length))
        fixed = np.arange(y.size).reshape(y.shape)
        row = np.arange(y.size, y.size + length)[None]
        program = inner.finish(_product(inner, inner.const(b.literal(zero)), row, fixed)[0])
        routine = Routine(program, rows, y.size)
        items = b.call(routine, [*y.ravel().tolist(), *x.T.ravel().tolist()])
        return np.array(items, np.int64).reshape(columns, rows).T
    sums = np.empty((rows, columns), np.int64)
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


def _sums(b: Builder, zero: int, x: Values, y: Values) -> Values:
    """``x y^T`` by one loop.

    If there are few sums, each is split into parts that are added at the end: additions to
    different sums do not wait for each other.
    """
    shape, length = (len(x), len(y)), x.shape[1]
    most = max(1, SUMS // (shape[0] * shape[1]))
    fitting = [p for p in range(1, most + 1) if length % p == 0]
    parts = max(p for p in fitting if p == 1 or length >= 4 * p)
    x, y = (z.reshape(len(z) * parts, length // parts) for z in (x, y))
    count = shape[0] * shape[1] * parts
    inner = Builder([b.dtype(zero)] * (count + len(x) + len(y)))
    totals = []
    for number, (i, j, part) in enumerate(np.ndindex(*shape, parts)):
        product = inner.emit("mul", count + i * parts + part, count + len(x) + j * parts + part)
        totals.append(inner.emit("add", number, product))
    rows = [*x.ravel().tolist(), *y.ravel().tolist()]
    routine = Routine(inner.finish(totals), length // parts, 0, count)
    sums = np.array(b.call(routine, [*[zero] * count, *rows])).reshape(-1, parts)
    added = [functools.reduce(lambda p, q: b.emit("add", p, q), row) for row in sums.tolist()]
    return np.array(added, np.int64).reshape(shape)


RULES: dict[str, Callable[..., Any]] = {"dot_general": _dot}

"""Reductions, cumulative reductions, argmax and argmin, and sorting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxquat._internal.branches import bind
from jaxquat.fused.errors import not_scalar
from jaxquat.fused.ir.builder import Builder, Scalar, where
from jaxquat.fused.trace.values import Values, array, constants, raw_dtype


def _reduce(name: str) -> Callable[..., Values]:
    def rule(b: Builder, equation: Any, x: Values) -> Values:
        axes = equation.params["axes"]
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        shape = tuple(x.shape[axis] for axis in kept)
        length = math.prod(x.shape[axis] for axis in axes)
        rows = x.transpose(*kept, *axes).reshape(math.prod(shape), length)
        if not length:  # the result is the neutral element of the operation
            with jax.ensure_compile_time_eval():
                nothing = jnp.zeros(x.shape, raw_dtype(equation.invars[0].aval))
                return constants(b, bind(equation, [nothing])[0])
        return array([functools.reduce(partial(b.emit, name), row) for row in rows], shape)

    return rule


def _cumulative(name: str) -> Callable[..., Values]:
    def rule(b: Builder, equation: Any, x: Values) -> Values:
        axis, step = equation.params["axis"], -1 if equation.params["reverse"] else 1
        rows = np.moveaxis(x, axis, 0)[::step]
        totals = np.frompyfunc(partial(b.emit, name), 2, 1).accumulate(rows)
        return np.moveaxis(totals[::step], 0, axis)

    return rule


def _arg_extreme(better: Callable[[Scalar, Scalar], Scalar]) -> Callable[..., Values]:
    """Return the index of the first extreme, or of the first NaN if there is one."""

    def rule(b: Builder, equation: Any, x: Values) -> Values:
        (axis,), dtype = equation.params["axes"], np.dtype(equation.params["index_dtype"])
        x = np.moveaxis(x, axis, -1)
        places = np.empty(x.shape[:-1], object)
        for place in np.ndindex(places.shape):
            best, *later_values = x[place]
            number = b.const(dtype.type(0))
            for k, value in enumerate(later_values, 1):
                takes = better(value, best)
                if value.dtype.kind == "f":
                    takes = (takes | value.differs(value)) & best.equals(best)
                best, number = where(takes, value, best), where(takes, k, number)
            places[place] = number
        return places

    return rule


def _sort(b: Builder, equation: Any, *arrays: Values) -> list[Values]:
    """Return all arrays sorted by the first one, stably, by odd-even transposition."""
    if equation.params["num_keys"] != 1:
        raise not_scalar("sort: by several keys it has no scalar form")
    columns = [np.moveaxis(x, equation.params["dimension"], 0).copy() for x in arrays]
    n = len(columns[0])
    for turn in range(n):
        for k in range(turn % 2, n - 1, 2):
            for place in np.ndindex(columns[0].shape[1:]):
                low, high = (columns[0][(j, *place)] for j in (k, k + 1))
                swap = high < low
                if low.dtype.kind == "f":  # NaN last
                    swap = swap | (low.differs(low) & high.equals(high))
                for column in columns:
                    x, y = (column[(j, *place)] for j in (k, k + 1))
                    column[(k, *place)] = where(swap, y, x)
                    column[(k + 1, *place)] = where(swap, x, y)
    return [np.moveaxis(x, 0, equation.params["dimension"]) for x in columns]


RULES: dict[str, Callable[..., Any]] = {
    "reduce_sum": _reduce("add"),
    "reduce_prod": _reduce("mul"),
    "reduce_max": _reduce("max"),
    "reduce_min": _reduce("min"),
    "reduce_and": _reduce("and"),
    "reduce_or": _reduce("or"),
    "argmax": _arg_extreme(lambda x, best: x > best),
    "argmin": _arg_extreme(lambda x, best: x < best),
    "cumsum": _cumulative("add"),
    "cumprod": _cumulative("mul"),
    "cummax": _cumulative("max"),
    "cummin": _cumulative("min"),
    "sort": _sort,
}

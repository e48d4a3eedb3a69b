"""Elementwise operations: unrolled, or as a loop over the elements if there are many."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jaxquat.fused.ir.builder import Builder, Scalar
from jaxquat.fused.ir.expansion import expanded
from jaxquat.fused.ir.program import Routine
from jaxquat.fused.trace.values import Values, each

WIDE = 16  # an elementwise operation on this many scalars may become a loop
LARGE = 500  # it does from this many operations on, counted with its functions expanded


def elementwise(b: Builder, rule: Callable[..., Scalar], args: list[Values]) -> Values:
    """Return the results of a rule for scalars, applied to the broadcast arrays."""
    shape = np.broadcast_shapes(*(a.shape for a in args))
    columns = [np.broadcast_to(a, shape).ravel() for a in args]
    results = mapped(b, rule, columns) if columns[0].size >= WIDE else None
    return (each(rule, *columns) if results is None else results).reshape(shape)


def mapped(b: Builder, rule: Callable[..., Scalar], columns: list[Values]) -> Values | None:
    """Return an elementwise operation as a loop over its elements, or None if a loop is no better.

    A column has the values of one operand for all elements. A loop is no better where a column has
    no kind (``_kind``), where none is a row, and for short operations.
    """
    kinds = list(map(_kind, columns))
    if None in kinds or "row" not in kinds:
        return None
    of_kind = lambda kind: [c for c, k in zip(columns, kinds, strict=True) if k == kind]  # noqa: E731
    fixed = dict.fromkeys(column[0] for column in of_kind("fixed"))
    # in the order in which the values were computed, so that they are adjacent in memory
    order = np.argsort([x.number for x in of_kind("row")[0]], kind="stable")
    rows = {tuple(column): column[order] for column in of_kind("row")}
    inner = Builder([x.dtype for x in (*fixed, *(row[0] for row in rows.values()))])
    inside = dict(zip((*fixed, *rows), inner.arguments, strict=True))

    def value(column: Values, kind: str | None) -> Scalar:
        if kind == "constant":
            return inner.const(column[0].literal)
        return inside[column[0] if kind == "fixed" else tuple(column)]

    program = inner.finish([rule(*map(value, columns, kinds))])
    if order.size * sum(expanded(program).counts().values()) < LARGE:
        return None
    arguments = [*fixed, *(x for row in rows.values() for x in row)]
    results = np.empty(order.size, object)
    results[order] = b.call(Routine(program, order.size, len(fixed)), arguments)
    return results


def _kind(column: Values) -> str | None:
    """Return the kind of a column, or None if only some of its values repeat or some are constants.

    "constant" and "fixed": the same value for all elements, which is a constant or not. "row": a
    different value for each element.
    """
    has_literal = any(x.literal is not None for x in column)
    count = len(set(column))
    if count == 1:
        return "constant" if has_literal else "fixed"
    return "row" if count == len(column) and not has_literal else None

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
    """The results of a rule for scalars, applied to the broadcast arrays."""
    shape = np.broadcast_shapes(*(a.shape for a in args))
    columns = [np.broadcast_to(a, shape).ravel() for a in args]
    results = mapped(b, rule, columns) if columns[0].size >= WIDE else None
    return (each(b, rule, *columns) if results is None else results).reshape(shape)


def mapped(b: Builder, rule: Callable[..., Scalar], columns: list[Values]) -> Values | None:
    """An elementwise operation as a loop over its elements, or None where a loop is no better.

    A column has the values of one operand for all elements: the same value everywhere (fixed), or
    a different value for each element (a row). A loop is no better for columns in which only some
    values repeat, for rows with constants in them, and for short operations.
    """
    literal = [[b.literal(k) is not None for k in column.tolist()] for column in columns]
    different = [len(set(column.tolist())) for column in columns]
    same = [count == 1 for count in different]
    if all(same) or not all(count in (1, len(columns[0])) for count in different):
        return None
    if any(any(is_known) and not once for is_known, once in zip(literal, same, strict=True)):
        return None
    described = list(zip(columns, same, literal, strict=True))
    fixed = [int(c[0]) for c, once, is_known in described if once and not is_known[0]]
    fixed = list(dict.fromkeys(fixed))
    # in the order in which the values were computed, so that they are adjacent in memory
    varying = [c for c, once in zip(columns, same, strict=True) if not once]
    order = np.argsort(varying[0], kind="stable")
    rows = list({c.tobytes(): c[order] for c in varying}.values())
    inner = Builder([b.dtype(k) for k in (*fixed, *(int(row[0]) for row in rows))])
    places = {c.tobytes(): len(fixed) + k for k, c in enumerate(rows)}
    inputs = []
    for c, once, is_known in described:
        if not once:
            inputs.append(places[c[order].tobytes()])
        elif is_known[0]:
            inputs.append(inner.const(b.literal(int(c[0]))))
        else:
            inputs.append(fixed.index(int(c[0])))
    program = inner.finish([rule(*map(inner.scalar, inputs)).number])
    if order.size * sum(expanded(program).counts().values()) < LARGE:
        return None
    routine = Routine(program, order.size, len(fixed))
    results = np.empty(order.size, np.int64)
    results[order] = b.call(routine, [*fixed, *(int(k) for row in rows for k in row)])
    return results

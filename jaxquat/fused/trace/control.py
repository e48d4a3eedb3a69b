"""Branches, loops and other primitives that contain jaxprs.

A loop of known length is unrolled, or kept from ``Tracing.loops`` operations on, without what does
not change from trip to trip. With at most ``LONG`` every loop of many trips is kept. Of branches
chosen at run time a short one is always computed and its result selected; a long one is a routine,
which a vector runs if a member chooses it. A loop of unknown length is a routine that runs until
all members of the vector have stopped.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxquat._internal.jaxprs import inputs_of_scan
from jaxquat.fused.errors import not_scalar
from jaxquat.fused.ir.builder import Scalar, where
from jaxquat.fused.ir.invariants import hoisted
from jaxquat.fused.ir.program import Routine
from jaxquat.fused.trace.calls import LONG, size, traced_apart
from jaxquat.fused.trace.values import (
    Values,
    array,
    constants,
    each,
    flat,
    known,
    opened,
    raw_dtype,
    raw_shape,
    raw_specs,
    shaped,
)  # fmt: skip

TRIPS = 4096  # the most iterations of a loop that is unrolled
SHORT = 20  # all members compute a branch up to this cost (``Program.cost``)


def _scan(t: Any, equation: Any, *args: Values) -> list[Values]:
    p = equation.params
    if p["length"] > TRIPS:
        raise not_scalar(f"scan: {p['length']} iterations are too many for scalar code")
    first, count = inputs_of_scan(equation)
    fixed, carry, xs = args[:first], list(args[first : first + count]), args[first + count :]
    if p["length"] > 1 and p["length"] * size(p["jaxpr"]) >= t.loops:
        return _looped(t, p, fixed, carry, xs)
    rows: list[list[Values]] = []
    order = range(p["length"])
    for k in reversed(order) if p["reverse"] else order:
        outputs = t.run(*opened(p["jaxpr"]), [*fixed, *carry, *(x[k, ...] for x in xs)])
        carry, row = outputs[:count], outputs[count:]
        rows.append(row)
    if not rows:
        return [*carry, *(np.empty(raw_shape(v.aval), object) for v in equation.outvars[count:])]
    rows = rows[::-1] if p["reverse"] else rows
    return [*carry, *(np.stack(column) for column in zip(*rows, strict=True))]


def _looped(
    t: Any, p: Any, fixed: Sequence[Values], carry: list[Values], xs: Sequence[Values]
) -> list[Values]:
    """Return a scan as a routine of many trips."""
    order = slice(None, None, -1 if p["reverse"] else 1)
    rows = [x[order].reshape(len(x), -1).T for x in xs]  # one for each number of an x
    free = flat(x for x in fixed if known(x) is None)
    scalars = [*free, *flat(carry), *(row[0] for x in rows for row in x)]
    inner = t.apart([x.dtype for x in scalars])
    arguments = iter(inner.arguments)
    specs = [*fixed, *carry, *(x[0, ...] for x in xs)]
    inputs = [
        constants(inner, known(x))
        if k < len(fixed) and known(x) is not None
        else array(itertools.islice(arguments, x.size), x.shape)
        for k, x in enumerate(specs)
    ]
    outputs = inner.run(*opened(p["jaxpr"]), inputs)
    count = len(flat(carry))
    routine = Routine(inner.finish(flat(outputs)), p["length"], len(free), count)
    routine, free = hoisted(t, routine, free)
    items = t.call(routine, [*free, *flat(carry), *(x for row in rows for x in row.flat)])
    ys = [x.shape for x in outputs[len(carry) :]]
    columns = shaped(items[count:], [(math.prod(shape), p["length"]) for shape in ys])
    ys = [x.T.reshape(p["length"], *y)[order] for x, y in zip(columns, ys, strict=True)]
    return [*shaped(items[:count], [x.shape for x in carry]), *ys]


def _while(t: Any, equation: Any, *args: Values) -> list[Values]:
    """Unroll a while loop as long as its condition is known; then make it a routine."""
    p = equation.params
    n, m = p["cond_nconsts"], p["body_nconsts"]
    test, body, carry = list(args[:n]), list(args[n : n + m]), list(args[n + m :])
    for _ in range(TRIPS):
        (go,) = t.run(*opened(p["cond_jaxpr"]), [*test, *carry])
        goes_on = known(_any(go))
        if goes_on is None or (t.loops <= LONG and goes_on):
            return _while_any(t, p, go, test, body, carry)
        if not goes_on:
            return carry
        news = t.run(*opened(p["body_jaxpr"]), [*body, *carry])
        carry = [_where(go, new, old) for new, old in zip(news, carry, strict=True)]
    raise not_scalar(f"while: more than {TRIPS} iterations are too many for scalar code")


def _while_any(
    t: Any, p: Any, go: Values, test: list[Values], body: list[Values], carry: list[Values]
) -> list[Values]:
    """Return the loop as a routine, where a member that has stopped keeps its values."""
    flags = [go] if go.ndim == 0 else [_any(go), go]
    fixed, carried = flat([*test, *body]), flat([*flags, *carry])
    inner = t.apart([x.dtype for x in (*fixed, *carried)])
    inputs = shaped(inner.arguments, [x.shape for x in (*test, *body, *flags, *carry)])
    test, inputs = inputs[: len(test)], inputs[len(test) :]
    body, inputs = inputs[: len(body)], inputs[len(body) :]
    go, olds = inputs[len(flags) - 1], inputs[len(flags) :]
    news = inner.run(*opened(p["body_jaxpr"]), [*body, *olds])
    news = [_where(go, new, old) for new, old in zip(news, olds, strict=True)]
    (more,) = inner.run(*opened(p["cond_jaxpr"]), [*test, *news])
    more = each(operator.and_, go, more)  # stopped stays stopped
    flags = [more] if more.ndim == 0 else [_any(more), more]
    program = inner.finish(flat([*flags, *news]))
    items = t.call(Routine(program, 1, len(fixed), len(carried), "while"), [*fixed, *carried])
    return shaped(items[len(flat(flags)) :], [x.shape for x in carry])


def _any(go: Values) -> Values:
    return np.array(functools.reduce(operator.or_, go.flat))


def _where(go: Values, new: Values, old: Values) -> Values:
    """Select ``new`` where ``go`` holds, else ``old``; ``go`` may lack axes at the end."""
    go = np.broadcast_to(go.reshape(go.shape + (1,) * (new.ndim - go.ndim)), new.shape)
    return each(where, go, new, old)


def _cond(t: Any, equation: Any, which: Values, *args: Values) -> list[Values]:
    branches, number = equation.params["branches"], which.item()
    number = number.boolean() or number
    if number.literal is not None:
        chosen = branches[min(max(int(number.literal), 0), len(branches) - 1)]
        return t.run(*opened(chosen), args)
    specs = [(raw_shape(v.aval), raw_dtype(v.aval)) for v in equation.outvars]
    dtypes = [dtype for shape, dtype in specs for _ in range(math.prod(shape))]
    routines = [_branch(t, branch, list(args), dtypes) for branch in branches]
    results: list[Scalar] = []
    for k, branch in enumerate(branches):
        if routines[k] is None:
            result = flat(t.run(*opened(branch), args))
            chosen = _is(number, k, len(branches))
            pairs = zip(result, results or result, strict=True)
            results = [where(chosen, x, y) for x, y in pairs]
    results = results or [t.const(dtype.type(0)) for dtype in dtypes]
    for k, long_branch in enumerate(routines):
        if long_branch is not None:
            routine, free = long_branch
            chosen = _is(number, k, len(branches))
            results = t.call(routine, [chosen, *free, *results])
    return shaped(results, [shape for shape, _ in specs])


def _branch(
    t: Any, jaxpr: Any, args: list[Values], dtypes: list[np.dtype]
) -> tuple[Routine, list[Scalar]] | None:
    """Return a branch as a routine of (is chosen, arguments, other results); None if short."""
    inner, outputs, free = traced_apart(t, jaxpr, args, [np.dtype(bool)], dtypes)
    if inner.finish(flat(outputs)).cost() <= SHORT:
        return None
    first = len(inner.arguments) - len(dtypes)
    pairs = zip(flat(outputs), inner.arguments[first:], strict=True)
    results = [where(inner.arguments[0], x, old) for x, old in pairs]
    kind = "seldom" if t.in_rare else "branch"
    return Routine(inner.finish(results), 1, first, len(dtypes), kind), free


def _is(which: Scalar, number: int, count: int) -> Scalar:
    """Return whether branch ``number`` is chosen, the first or last one for other numbers."""
    if which.dtype.kind == "b":
        return which if number else ~which
    if number == 0:
        return which <= 0
    return which >= number if number == count - 1 else which.equals(number)


def _expanded(t: Any, equation: Any, *args: Values) -> list[Values]:
    """Expand a primitive of newer versions of JAX that can expand itself (custom_root)."""
    primitive = equation.params["_prim"]

    def expanded(*leaves: Any) -> list[Any]:
        return jax.tree.leaves(primitive.expand(*jax.tree.unflatten(primitive.in_tree, leaves)))

    return t.traced(expanded, raw_specs(equation, args), args)


def _linear_solve(t: Any, equation: Any, *args: Values) -> list[Values]:
    lengths, solve = equation.params["const_lengths"], equation.params["jaxprs"].solve
    first = lengths.matvec + lengths.vecmat
    inputs = [*args[first : first + lengths.solve], *args[sum(lengths) :]]
    return t.run(*opened(solve), inputs)


RULES: dict[str, Callable[..., Any]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "call_hi_primitive": _expanded,
    "custom_linear_solve": _linear_solve,
}

"""Functions called several times: all calls of a long one share a routine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxquat._internal.jaxprs import nested
from jaxquat.fused.errors import NotScalarError
from jaxquat.fused.ir.builder import Scalar
from jaxquat.fused.ir.elementary import EXPANSIONS
from jaxquat.fused.ir.program import Routine
from jaxquat.fused.trace.products import Product, computed, factored
from jaxquat.fused.trace.values import Values, array, constants, each, flat, known, opened

# A sine or an exponential counts as so many operations: it has 20 and a rare branch, and LLVM takes
# 0.3 s for 40 of them in a row but 8 s for 200.
FUNCTION = 100
LONG = 300  # a function called several times becomes a routine from this many operations on


def sites(jaxpr: Any, counts: dict[int, int], times: int = 1) -> dict[int, int]:
    """Count calls of each inner jaxpr into ``counts``: a scan's by trips, a while loop's twice."""
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        trips = equation.params["length"] if name == "scan" else 2 if name == "while" else 1
        often = trips * times
        for inner in nested(equation):
            counts[id(inner)] = counts.get(id(inner), 0) + often
            if counts[id(inner)] == often:
                sites(opened(inner)[0], counts, 1 if name == "jit" else often)
    return counts


def size(jaxpr: Any) -> int:
    """Return the approximate number of scalar operations of a jaxpr, open or closed."""
    total = 0
    for equation in opened(jaxpr)[0].eqns:
        results = sum(math.prod(v.aval.shape) for v in equation.outvars)
        each = FUNCTION if equation.primitive.name in EXPANSIONS else 1
        total += 2 * _multiplied(equation) or each * results
        total += sum(trips * size(inner) for inner, trips in _inside(equation))
    return total


def multiplications(jaxpr: Any) -> int:
    """Return the number of multiplications in the matrix products of a jaxpr."""
    return sum(
        _multiplied(equation)
        + sum(trips * multiplications(inner) for inner, trips in _inside(equation))
        for equation in opened(jaxpr)[0].eqns
    )


def _inside(equation: Any) -> list[tuple[Any, int]]:
    """Return the jaxprs of an equation, and how often each runs; a kernel's at every step."""
    params = equation.params
    if "recurrence" not in params:
        return [(inner, params.get("length", 1)) for inner in nested(equation)]
    often = params["recurrence"].steps * (params["members"] or 1)
    return [(function, often) for function in params["recurrence"].functions.values()]


def _multiplied(equation: Any) -> int:
    if equation.primitive.name != "dot_general":
        return 0
    (axes, _), _ = equation.params["dimension_numbers"]
    summed = math.prod(equation.invars[0].aval.shape[axis] for axis in axes)
    return summed * math.prod(equation.outvars[0].aval.shape)


def traced_apart(
    t: Any,
    jaxpr: Any,
    args: list[Values],
    before: Sequence[np.dtype] = (),
    after: Sequence[np.dtype] = (),
) -> tuple[Any, list[Values], list[Scalar]]:
    """Run a jaxpr with inputs of its own; return builder, outputs in it, and arguments in ``t``."""
    free = _not_constant(args)
    inner = t.apart([*before, *(x.dtype for x in free), *after])
    arguments = iter(inner.arguments[len(before) :])
    inputs = [
        array(itertools.islice(arguments, values.size), values.shape)
        if constant is None
        else constants(inner, constant)
        for values, constant in zip(args, map(known, args), strict=True)
    ]
    return inner, inner.run(*opened(jaxpr), inputs), free


def _not_constant(args: list[Values]) -> list[Scalar]:
    return flat(values for values in args if known(values) is None)


def called(t: Any, equation: Any, args: list[Values]) -> list[Values] | None:
    """Return the outputs of a call, by a routine; None for a short function, which is inlined."""
    jaxpr, literals = equation.params["jaxpr"], map(known, args)
    key = id(jaxpr), *(None if x is None else (x.dtype, x.tobytes()) for x in literals)
    if key not in t.routines:
        t.routines[key] = _routine(t, jaxpr, args)
    if t.routines[key] is None:
        return None
    routine, arguments, inside, outputs = t.routines[key]
    scalars = _not_constant(args)
    here = dict(zip(arguments, scalars, strict=True))
    here |= zip(inside, t.call(routine, scalars), strict=True)

    def outside(values: Values) -> Values:
        return each(lambda x: here[x] if x in here else t.const(x.literal), values)

    return [
        computed(t, x._replace(x=outside(x.x), y=outside(x.y)))
        if isinstance(x, Product)
        else outside(x)
        for x in outputs
    ]


def _routine(t: Any, jaxpr: Any, args: list[Values]) -> Any:
    """Return a routine, its inputs, the values (or factors) that it returns, and the outputs."""
    try:
        inner, outputs, _ = traced_apart(t, jaxpr, args)
    except NotScalarError:  # for example, it needs an index that is known at the call
        return None
    outputs = [factored(inner, x) or x for x in outputs]
    results = {x for a in outputs for x in flat(a[:2] if isinstance(a, Product) else (a,))}
    results = results.difference(inner.arguments)
    inside = sorted((x for x in results if x.literal is None), key=lambda x: x.number)
    program = inner.finish(inside)
    passed = len(inner.arguments) + len(inside)
    if sum(program.counts().values()) < max(LONG, passed):  # passing a value is a line, too
        return None
    return Routine(program, fixed=len(inner.arguments)), inner.arguments, inside, outputs

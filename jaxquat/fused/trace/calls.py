"""Functions called several times: all calls of a long one share a routine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxquat._internal.jaxprs import nested
from jaxquat.fused.errors import NotScalarError
from jaxquat.fused.ir.program import Routine
from jaxquat.fused.trace.products import Product, computed, factored
from jaxquat.fused.trace.values import Values, constants, known, numbered, opened

LONG = 300  # a function called several times becomes a routine from this many operations on


def sites(jaxpr: Any, counts: dict[int, int], times: int = 1) -> dict[int, int]:
    """Count into ``counts`` how often each inner jaxpr is called, by its id.

    A call in a scan counts once for each iteration, a call in a while loop counts twice.
    """
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        trips = equation.params["length"] if name == "scan" else 2 if name == "while" else 1
        often = trips * times
        for inner in nested(equation):
            counts[id(inner)] = counts.get(id(inner), 0) + often
            if counts[id(inner)] == often:
                sites(opened(inner)[0], counts, 1 if name == "jit" else often)
    return counts


def traced_apart(
    t: Any,
    jaxpr: Any,
    args: list[Values],
    before: Sequence[np.dtype] = (),
    after: Sequence[np.dtype] = (),
) -> tuple[Any, list[Values], list[Values]]:
    """Run a jaxpr in a new builder; return it, the outputs in it, and the arguments in ``t``.

    The inputs of the new builder are inputs of the dtypes ``before``, then the scalars of the
    arguments that are not constants, then inputs of the dtypes ``after``.
    """
    literals = [known(t, values) for values in args]
    free = [values for values, x in zip(args, literals, strict=True) if x is None]
    dtypes = [t.dtype(k) for values in free for k in values.ravel().tolist()]
    inner = t.apart([*before, *dtypes, *after])
    numbers = iter(numbered([(len(before),), *(values.shape for values in free)])[1:])
    inputs = [next(numbers) if x is None else constants(inner, x) for x in literals]
    return inner, inner.run(*opened(jaxpr), inputs), free


def called(t: Any, equation: Any, args: list[Values]) -> list[Values] | None:
    """Return the outputs of a call, by a routine; None for a short function, which is inlined.

    All calls of a long function with the same constants share one routine. ``t.routines`` maps the
    jaxpr and these constants to the routine, or to None for a short function.
    """
    jaxpr = equation.params["jaxpr"]
    literals = [known(t, values) for values in args]
    key = id(jaxpr), *(None if x is None else (x.dtype, x.tobytes()) for x in literals)
    if key not in t.routines:
        t.routines[key] = _routine(t, jaxpr, args)
    if t.routines[key] is None:
        return None
    routine, inside, outputs, inner = t.routines[key]
    free = [values for values, x in zip(args, literals, strict=True) if x is None]
    scalars = [k for values in free for k in values.ravel().tolist()]
    places = dict(zip(inside, t.call(routine, scalars), strict=True))
    for k in _numbers(outputs).difference(places):
        places[k] = scalars[k] if k < len(scalars) else t.const(inner.literal(k))

    def here(x: Values) -> Values:
        return np.array([places[k] for k in x.ravel().tolist()], np.int64).reshape(x.shape)

    return [
        computed(t, x._replace(x=here(x.x), y=here(x.y))) if isinstance(x, Product) else here(x)
        for x in outputs
    ]


def _numbers(outputs: Sequence[Values | Product]) -> set[int]:
    """Return the numbers of the values in the outputs of a function."""
    arrays = [a for x in outputs for a in (x[:2] if isinstance(x, Product) else (x,))]
    return {k for a in arrays for k in a.ravel().tolist()}


def _routine(t: Any, jaxpr: Any, args: list[Values]) -> Any:
    """Return the routine of a function, the values that it returns, the outputs, and the builder.

    The routine does not return outputs that are inputs or constants. For a product it returns the
    factors.
    """
    try:
        inner, outputs, _ = traced_apart(t, jaxpr, args)
    except NotScalarError:  # for example, it needs an index that is known at the call
        return None
    outputs = [factored(inner, x) or x for x in outputs]
    inside = [k for k in _numbers(outputs) if k >= len(inner.inputs)]
    inside = sorted(k for k in inside if inner.literal(k) is None)
    program = inner.finish(inside)
    if sum(program.counts().values()) < LONG:
        return None
    return Routine(program, fixed=len(inner.inputs)), inside, outputs, inner

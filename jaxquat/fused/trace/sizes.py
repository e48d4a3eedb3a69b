"""The amount of computation in a jaxpr, counted before there is scalar code."""

from __future__ import annotations

import math
from typing import Any

from jaxquat._internal.jaxprs import nested
from jaxquat.fused.trace.values import opened


def size(jaxpr: Any) -> int:
    """Return the approximate number of scalar operations of a jaxpr, open or closed."""
    total = 0
    for equation in opened(jaxpr)[0].eqns:
        results = sum(math.prod(v.aval.shape) for v in equation.outvars)
        total += 2 * _multiplied(equation) or results
        total += _trips(equation) * sum(map(size, nested(equation)))
    return total


def multiplications(jaxpr: Any) -> int:
    """The number of multiplications in the matrix products of a jaxpr and of all that it calls."""
    return sum(
        _multiplied(equation) + _trips(equation) * sum(map(multiplications, nested(equation)))
        for equation in opened(jaxpr)[0].eqns
    )


def _trips(equation: Any) -> int:
    return equation.params.get("length", 1)


def _multiplied(equation: Any) -> int:
    """Return the number of multiplications of a matrix product; 0 for other equations."""
    if equation.primitive.name != "dot_general":
        return 0
    (axes, _), _ = equation.params["dimension_numbers"]
    summed = math.prod(equation.invars[0].aval.shape[axis] for axis in axes)
    return summed * math.prod(equation.outvars[0].aval.shape)

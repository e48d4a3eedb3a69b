"""Inspect jaxprs (their contents, which outputs depend on which inputs), and build new ones."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from jaxquat._internal.varying import shaped


def nested(equation: Any) -> list[Any]:
    """Return the jaxprs of bodies, branches and calls in an equation, open or closed."""
    parameters = [
        one
        for parameter in equation.params.values()
        for one in (parameter if isinstance(parameter, tuple | list) else (parameter,))
    ]
    return [one for one in parameters if hasattr(_open(one), "eqns")]


def equations(jaxpr: Any) -> Iterator[Any]:
    """Yield every equation of a jaxpr, open or closed, including those of nested jaxprs."""
    for equation in _open(jaxpr).eqns:
        yield equation
        for inner in nested(equation):
            yield from equations(inner)


def depends_on(jaxpr: Any, marks: Sequence[int], slope: bool = False) -> list[int]:
    """Return, for each output of a jaxpr, the marks of all inputs on which it may depend.

    A mark is a set of bits, or a bool. With ``slope``, an output that has no derivative with
    respect to an input, as integers and roundings have none, does not depend on it.
    """
    jaxpr = _open(jaxpr)
    dependent = dict(zip(jaxpr.invars, marks, strict=True))

    def marks_of(variables: Sequence[Any]) -> list[int]:
        return [0 if hasattr(v, "val") else dependent.get(v, 0) for v in variables]

    for equation in jaxpr.eqns:
        inputs = marks_of(equation.invars)
        if any(inputs) and not (slope and equation.primitive.name in _FLAT):
            outputs = _of_equation(equation, inputs, slope)
            pairs = zip(equation.outvars, outputs, strict=True)
            dependent.update((v, mark) for v, mark in pairs if not (slope and _is_flat(v)))
    return marks_of(jaxpr.outvars)


_FLAT = ("stop_gradient", "bitcast_convert_type", "ceil", "floor", "round", "sign")


def _is_flat(variable: Any) -> bool:
    return not jnp.issubdtype(variable.aval.dtype, jnp.inexact)


def _union(marks: Sequence[int]) -> int:
    return functools.reduce(operator.or_, marks, 0)


def _of_equation(equation: Any, inputs: list[int], slope: bool) -> list[int]:
    name = equation.primitive.name
    if name in _RULES:
        return _RULES[name](equation, inputs, slope)
    inner = None if slope and name.startswith("custom_") else called(equation)
    if inner is None:
        return [_union(inputs)] * len(equation.outvars)
    return depends_on(inner, inputs, slope)


def _of_branches(equation: Any, inputs: list[int], slope: bool) -> list[int]:
    which, *operands = inputs
    outputs = [depends_on(branch, operands, slope) for branch in equation.params["branches"]]
    return [_union([which, *one]) for one in zip(*outputs, strict=True)]


def _of_scan(equation: Any, inputs: list[int], slope: bool) -> list[int]:
    consts, carried = inputs_of_scan(equation)
    rows = inputs[consts + carried :]

    def once(carry: list[int]) -> list[int]:
        return depends_on(equation.params["jaxpr"], [*inputs[:consts], *carry, *rows], slope)

    carry = _settled(inputs[consts : consts + carried], lambda carry: once(carry)[:carried])
    return [*carry, *once(carry)[carried:]]


def _of_while(equation: Any, inputs: list[int], slope: bool) -> list[int]:
    params = equation.params
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

    def once(carry: list[int]) -> list[int]:
        # the condition decides how often all values change
        goes_on = _union(depends_on(params["cond_jaxpr"], [*inputs[:first], *carry], slope))
        after = depends_on(params["body_jaxpr"], [*inputs[first:second], *carry], slope)
        return [goes_on | mark for mark in after]

    return _settled(inputs[second:], once)


def _settled(carry: list[int], once: Callable[[list[int]], list[int]]) -> list[int]:
    """Repeat an iteration until no carried value receives a further mark."""
    while (after := [a | b for a, b in zip(carry, once(carry), strict=True)]) != carry:
        carry = after
    return carry


_RULES: dict[str, Callable[[Any, list[int], bool], list[int]]] = {
    "cond": _of_branches,
    "scan": _of_scan,
    "while": _of_while,
}


def inputs_of_scan(equation: Any) -> tuple[int, int]:
    """Return how many inputs of a scan are constants, and how many are carried."""
    params = equation.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    groups = params["ft_in"].update(equation.invars)  # jax 0.12 has a tree of the three groups
    constants, carried, _ = groups.unpack()
    return len(list(constants)), len(list(carried))


def called(equation: Any) -> Any:
    """Return the jaxpr of a call (jit, checkpoint, custom derivative) with its inputs, or None."""
    if equation.primitive.name in _RULES:
        return None
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = _open(equation.params.get(key))
        if hasattr(inner, "eqns"):
            inputs, outputs = (inner.invars, equation.invars), (inner.outvars, equation.outvars)
            if _alike(*inputs) and _alike(*outputs):
                return equation.params[key]
    return None


def sources(jaxpr: Any) -> list[Any]:
    """Return a key for each output of a jaxpr; equal keys stand for one differentiable value.

    Equal results of a function with a custom derivative may have different derivatives.
    """
    jaxpr = _open(jaxpr)
    places = {v: (e, k) for e in jaxpr.eqns for k, v in enumerate(e.outvars)}

    def source(variable: Any) -> Any:
        if hasattr(variable, "val") or variable not in places:
            return id(variable)
        equation, k = places[variable]
        inner = None if equation.primitive.name.startswith("custom_") else called(equation)
        return id(variable) if inner is None else (id(equation), sources(inner)[k])

    return [source(variable) for variable in jaxpr.outvars]


def _alike(one: Sequence[Any], other: Sequence[Any]) -> bool:
    types = [[(v.aval.shape, v.aval.dtype) for v in variables] for variables in (one, other)]
    return types[0] == types[1]


def _open(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def closed_jaxpr(
    like: Any, inputs: Sequence[Any], outputs: Sequence[Any], equations: Sequence[Any],
    consts: dict[Any, Any],
) -> Any:  # fmt: skip
    """Return a closed jaxpr; ``like`` is any jaxpr, ``consts`` map variables to values."""
    jaxpr = _open(like).replace(
        constvars=list(consts), invars=list(inputs), outvars=list(outputs), eqns=list(equations)
    )
    return ClosedJaxpr(jaxpr, list(consts.values()))


def specs(variables: Sequence[Any]) -> list[jax.ShapeDtypeStruct]:
    """Return shapes and dtypes of variables, varying over the same ``shard_map`` axes."""
    return [shaped(v.aval.shape, v.aval.dtype, v.aval) for v in variables]

"""Which outputs of a traced function depend on which of its inputs, and what is inside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax


def dependent(jaxpr: Any, marked: Sequence[bool]) -> list[bool]:
    """For each output of a jaxpr, open or closed, whether its value may depend on a ``marked`` input.

    Calls, branches and loops are entered. A loop is followed until no more of what it carries becomes
    dependent. Of any other primitive every output depends on every input.
    """
    jaxpr = _open(jaxpr)
    known = {variable for variable, mark in zip(jaxpr.invars, marked, strict=True) if mark}

    def marks(variables: Sequence[Any]) -> list[bool]:
        return [not hasattr(variable, "val") and variable in known for variable in variables]

    for equation in jaxpr.eqns:
        inputs = marks(equation.invars)
        if any(inputs):
            outputs = _of_equation(equation, inputs)
            known |= {
                variable for variable, mark in zip(equation.outvars, outputs, strict=True) if mark
            }
    return marks(jaxpr.outvars)


def _of_equation(equation: Any, inputs: list[bool]) -> list[bool]:
    name, params = equation.primitive.name, equation.params
    if name == "cond":
        return _of_branches(params["branches"], inputs)
    if name == "scan":
        return _of_scan(params["jaxpr"], *inputs_of_scan(equation), inputs)
    if name == "while":
        return _of_while(params, inputs)
    inner = called(equation)
    return [True] * len(equation.outvars) if inner is None else dependent(inner, inputs)


def inputs_of_scan(equation: Any) -> tuple[int, int]:
    """How many of a scan's inputs are constants, and how many are carried; the others are rows."""
    params = equation.params
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    constants, carried, _ = (
        params["ft_in"].update(equation.invars).unpack()
    )  # jax 0.12 says it by a tree of the three groups
    return len(list(constants)), len(list(carried))


def called(equation: Any) -> Any:
    """The jaxpr of an equation that is a call (jit, checkpoint, a custom derivative), or None.

    It takes and gives what the equation does. That of a reduction combines two elements; that of a kernel has references.
    """
    if equation.primitive.name in ("cond", "scan", "while"):
        return None
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = _open(equation.params.get(key))
        if (
            hasattr(inner, "eqns")
            and _alike(inner.invars, equation.invars)
            and _alike(inner.outvars, equation.outvars)
        ):
            return equation.params[key]
    return None


def contains(jaxpr: Any, predicate: Callable[[Any], bool]) -> bool:
    """Whether ``predicate(equation)`` holds anywhere in a jaxpr, open or closed, or in one inside."""
    return any(
        predicate(equation) or any(contains(inner, predicate) for inner in _inside(equation))
        for equation in _open(jaxpr).eqns
    )


def _inside(equation: Any) -> list[Any]:
    """All jaxprs among the parameters of an equation, whatever they are for."""
    leaves = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr)
    return [leaf for leaf in leaves if _is_jaxpr(leaf)]


def _is_jaxpr(x: Any) -> bool:
    return hasattr(_open(x), "eqns")


def _alike(one: Sequence[Any], other: Sequence[Any]) -> bool:
    types = [[(v.aval.shape, v.aval.dtype) for v in variables] for variables in (one, other)]
    return types[0] == types[1]


def _of_branches(branches: Sequence[Any], inputs: list[bool]) -> list[bool]:
    which, *operands = inputs
    outputs = [dependent(branch, operands) for branch in branches]
    return [which or any(one) for one in zip(*outputs, strict=True)]


def _of_scan(body: Any, consts: int, carried: int, inputs: list[bool]) -> list[bool]:
    carry = inputs[consts : consts + carried]
    while True:
        outputs = dependent(body, [*inputs[:consts], *carry, *inputs[consts + carried :]])
        after = [a or b for a, b in zip(carry, outputs[:carried], strict=True)]
        if after == carry:
            return [*carry, *outputs[carried:]]
        carry = after


def _of_while(params: dict[str, Any], inputs: list[bool]) -> list[bool]:
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    carry = inputs[second:]
    while True:
        after = [
            a or b
            for a, b in zip(
                carry, dependent(params["body_jaxpr"], [*inputs[first:second], *carry]), strict=True
            )
        ]
        if any(
            dependent(params["cond_jaxpr"], [*inputs[:first], *carry])
        ):  # it decides how often all of them change
            after = [True] * len(carry)
        if after == carry:
            return carry
        carry = after


def _open(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)

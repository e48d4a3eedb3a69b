"""A branch that is seldom needed: XLA always computes it, the fused engine skips it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array, lax

from jaxquat._internal.jaxprs import closed_jaxpr, specs


@functools.partial(jax.jit, static_argnums=0)
def rarely(
    function: Callable[..., tuple[Array, ...]], needed: Array, usual: tuple[Array, ...], *args: Any
) -> tuple[Array, ...]:
    """Return ``function(*args)``, evaluated everywhere, where ``needed``, else ``usual``."""
    results = function(*args)
    return tuple(lax.select(needed, x, y) for x, y in zip(results, usual, strict=True))


def is_rare(equation: Any) -> bool:
    """Return whether an equation calls ``rarely``, or a derivative of it, for one body."""
    params, first = equation.params, equation.invars[:1]
    named = equation.primitive.name == "jit" and params["name"].endswith("rarely")
    return named and any(x.aval.size == 1 and x.aval.dtype == bool for x in first)


def branched(closed: Any) -> Any:
    """Return the same closed jaxpr, in which every ``rarely`` for one body is a ``lax.cond``."""
    # Do not map the result with ``jax.vmap``: each side alone may have infinite slopes.
    return _branched(closed, {})


def _branched(closed: Any, known: dict[int, Any]) -> Any:
    """Return ``branched``; ``known`` has replacements of the jaxprs of calls, by id."""
    equations, changed = [], False
    for equation in closed.jaxpr.eqns:
        inner = equation.params.get("jaxpr")
        if equation.primitive.name == "jit":
            if id(inner) not in known:
                rare = is_rare(equation)
                known[id(inner)] = inner, _sides(inner) if rare else _branched(inner, known)
            new = known[id(inner)][1]
            changed |= new is not inner
            equation = equation.replace(params=equation.params | {"jaxpr": new})
        equations.append(equation)
    if not changed:
        return closed
    jaxpr, consts = closed.jaxpr, dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    return closed_jaxpr(closed, jaxpr.invars, jaxpr.outvars, equations, consts)


def _sides(closed: Any) -> Any:
    """Return the jaxpr of ``rarely``, or of a derivative of it, as a ``lax.cond``."""
    jaxpr, consts = closed.jaxpr, closed.consts

    def side(value: bool) -> Callable[..., list[Any]]:
        condition = np.full(jaxpr.invars[0].aval.shape, value)
        return lambda *operands: _computed(jaxpr, consts, [condition, *operands])

    def choice(needed: Any, *others: Any) -> list[Any]:
        return lax.cond(needed.reshape(()), side(True), side(False), *others)

    return jax.make_jaxpr(choice)(*specs(jaxpr.invars))


def _computed(jaxpr: Any, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
    """Return the outputs of a jaxpr whose first input is known; run only the equations needed."""
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *operands), strict=True))
    sources = {v: equation for equation in jaxpr.eqns for v in equation.outvars}
    condition = jaxpr.invars[0]

    def read(v: Any) -> Any:
        if hasattr(v, "val"):
            return v.val
        if v not in known:
            equation = sources[v]
            which, *choices = equation.invars
            if equation.primitive.name == "select_n" and which is condition:
                known[v] = read(choices[int(known[condition].item())])
            else:
                results = bind(equation, [read(v) for v in equation.invars])
                known.update(zip(equation.outvars, results, strict=True))
        return known[v]

    return [read(v) for v in jaxpr.outvars]


def bind(equation: Any, values: Sequence[Any]) -> list[Any]:
    """Evaluate one equation and return its outputs."""
    params, functions = equation.primitive.get_bind_params(equation.params), ()
    if isinstance(params, tuple):  # before jax 0.9
        functions, params = params
    results = equation.primitive.bind(*functions, *values, **params)
    return list(results) if equation.primitive.multiple_results else [results]

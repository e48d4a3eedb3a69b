"""What a traced function computes from nothing that changes during a run is computed once, before it."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

_LITERAL, _FIXED, _CHANGING = range(3)  # known now; the same through the whole run; the rest


def hoist(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., list[Array]], list[Any]]:
    """``rest`` and ``fixed``: ``rest(fixed, *leaves of the arguments)`` are the leaves of the result.

    ``fixed`` are arrays that the function makes of what it closes over alone: parameters, the inertia and its inverse. They are
    computed here, outside of the run, and so are their derivatives.
    """
    closed = jax.make_jaxpr(function)(*arguments)
    equations: list[tuple[Any, list[Any], list[int]]] = []  # equation, places of the inputs, of the outputs
    values: list[Any] = []  # of each place, None if it changes
    classes: list[int] = []

    made: dict[int, tuple[Any, list[int], list[int]]] = {}
    known_values: dict[Any, int] = {}
    known_results: dict[Any, list[int]] = {}

    def place(value: Any, kind: int) -> int:
        values.append(value)
        classes.append(kind)
        return len(values) - 1

    def constant(value: Any) -> int:
        """One place for each closed-over array."""
        if id(value) not in known_values:
            known_values[id(value)] = place(value, _class(value))
        return known_values[id(value)]

    def literal(value: np.ndarray) -> int:
        key = value.dtype, value.shape, value.tobytes()
        if key not in known_values:
            known_values[key] = place(value, _LITERAL)
        return known_values[key]

    def value_of(k: int) -> Any:
        """What is known now is computed when a fixed value asks for it."""
        if values[k] is None:
            equation, inputs, outputs = made[k]
            given = [value_of(k) for k in inputs]
            with jax.ensure_compile_time_eval():
                for output, value in zip(outputs, _bind(equation, given), strict=True):
                    values[output] = value
        return values[k]

    def computed(equation: Any, inputs: list[int]) -> list[int]:
        """The places of what an equation makes of fixed values, once for all equations that are alike."""
        try:
            key = equation.primitive, tuple(inputs), tuple(sorted(equation.params.items()))
            if key in known_results:
                return known_results[key]
        except TypeError:  # parameters without hash or order
            key = None
        found = [place(value, _FIXED) for value in _bind(equation, [value_of(k) for k in inputs])]
        if key is not None:
            known_results[key] = found
        return found

    def walk(jaxpr: Any, consts: Sequence[int], given: Sequence[int]) -> list[int]:
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True))

        def read(v: Any) -> int:
            return literal(np.asarray(v.val, v.aval.dtype)) if hasattr(v, "val") else known[v]

        for equation in jaxpr.eqns:
            inputs = [read(v) for v in equation.invars]
            inner = equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit", "closed_call", "core_call") else None
            if inner is not None:
                opened, consts = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
                outputs = walk(opened, [constant(c) for c in consts], inputs)
            else:
                kind = max((classes[k] for k in inputs), default=_LITERAL)
                outputs = computed(equation, inputs) if kind == _FIXED else [place(None, kind) for _ in equation.outvars]
                if kind != _FIXED:
                    equations.append((equation, inputs, outputs))
                if kind == _LITERAL:
                    made.update(dict.fromkeys(outputs, equations[-1]))
            known.update(zip(equation.outvars, outputs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    changing = [place(None, _CHANGING) for _ in closed.jaxpr.invars]
    results = walk(closed.jaxpr, [constant(c) for c in closed.consts], changing)
    wanted = {k for _, inputs, _ in equations for k in inputs} | set(results)
    frontier = [k for k in sorted(wanted) if classes[k] == _FIXED]
    literals = {k: value for k, value in enumerate(values) if classes[k] == _LITERAL and value is not None}

    def rest(fixed: Sequence[Any], *leaves: Any) -> list[Array]:
        env = {**literals, **dict(zip(frontier, fixed, strict=True)), **dict(zip(changing, leaves, strict=True))}
        for equation, inputs, outputs in equations:
            env.update(zip(outputs, _bind(equation, [env[k] for k in inputs]), strict=True))
        return [env[k] for k in results]

    return rest, [values[k] for k in frontier]


def _class(value: Any) -> int:
    """A constant that is no float and no tracer is part of the program; every other is an argument of it."""
    integral = not jnp.issubdtype(jnp.result_type(value), jnp.inexact) and not isinstance(value, Tracer)
    keyed = jnp.issubdtype(jnp.result_type(value), jax.dtypes.prng_key)
    return _LITERAL if integral and not keyed else _FIXED


def _bind(equation: Any, values: Sequence[Any]) -> list[Any]:
    """The outputs of one equation."""
    given = equation.primitive.get_bind_params(equation.params)
    functions, params = given if isinstance(given, tuple) else ((), given)  # a pair before jax 0.9
    found = equation.primitive.bind(*functions, *values, **params)
    return list(found) if equation.primitive.multiple_results else [found]

"""What a traced function computes from nothing that changes during a run is computed once, before it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from jaxquat._jaxprs import nested
from jaxquat.engines.fused.scalarize import LONG, dissolves, opened

_LITERAL, _FIXED, _CHANGING = range(3)  # known now; the same through the whole run; the rest
_OPENED = (
    "jit",
    "remat2",
)  # jit, checkpoint; not calls with derivatives of their own, which hold for the whole


def shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, all calls of which, if it is long, are calls of one traced function."""
    known: list[
        tuple[Any, list[Any], Callable[..., Any]]
    ] = []  # structure, leaves that are no tracers, function of the tracers

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        fixed = [
            None if isinstance(x, Tracer) else x for x in leaves
        ]  # concrete parameters remain concrete
        given = [x for x in leaves if isinstance(x, Tracer)]

        def of_tracers(*given: Any) -> Any:
            rest = iter(given)
            return function(
                *jax.tree.unflatten(structure, [next(rest) if x is None else x for x in fixed])
            )

        for other, others, found in known:
            if other == structure and all(x is y for x, y in zip(others, fixed, strict=True)):
                return found(*given)
        long = _size(jax.make_jaxpr(of_tracers)(*given).jaxpr) >= LONG
        known.append((structure, fixed, jax.jit(of_tracers) if long else of_tracers))
        return known[-1][2](*given)

    return call


def _size(jaxpr: Any) -> int:
    """Scalar operations, about."""
    total = 0
    for equation in jaxpr.eqns:
        numbers = sum(math.prod(v.aval.shape) for v in equation.outvars)
        if equation.primitive.name == "dot_general":
            (axes, _), _ = equation.params["dimension_numbers"]
            numbers *= 2 * math.prod(equation.invars[0].aval.shape[axis] for axis in axes)
        total += numbers
        for inner in nested(equation):
            total += equation.params.get("length", 1) * _size(opened(inner)[0])
    return total


def hoist(
    function: Callable[..., Any], *arguments: Any
) -> tuple[Callable[..., list[Array]], list[Any]]:
    """``rest`` and ``fixed``: ``rest(fixed, *leaves of the arguments)`` are the leaves of the result.

    ``fixed`` are arrays that the function makes of what it closes over alone: parameters, the inertia and its inverse. They are
    computed here, outside of the run, and so are their derivatives. Long functions called through ``jax.jit`` remain calls, all
    those alike calls of one function.
    """
    closed = jax.make_jaxpr(function)(*arguments)
    equations: list[
        tuple[Any, list[int], list[int]]
    ] = []  # equation or call, places of the inputs, of the outputs
    outermost = equations
    calls: dict[Any, tuple[_Call, list[int]]] = {}
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

    def called(jaxpr: Any, consts: Sequence[int], inputs: list[int]) -> list[int]:
        """The places of what a call gives; walked through once for all calls with the same fixed inputs."""
        nonlocal equations
        key = id(jaxpr), *(None if classes[k] == _CHANGING else k for k in inputs)
        if key not in calls:
            outside, equations = equations, []
            given = [place(None, _CHANGING) if classes[k] == _CHANGING else k for k in inputs]
            results = walk(jaxpr, consts, given)
            calls[key] = _Call(equations, changing(given), changing(results)), results
            equations = outside
        call, results = calls[key]
        call.sites += 1
        found = [place(None, _CHANGING) if classes[k] == _CHANGING else k for k in results]
        equations.append((call, changing(inputs), changing(found)))
        return found

    def changing(places: list[int]) -> list[int]:
        return [k for k in places if classes[k] == _CHANGING]

    def walk(jaxpr: Any, consts: Sequence[int], given: Sequence[int]) -> list[int]:
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given), strict=True))

        def read(v: Any) -> int:
            return literal(np.asarray(v.val, v.aval.dtype)) if hasattr(v, "val") else known[v]

        for equation in jaxpr.eqns:
            inputs = [read(v) for v in equation.invars]
            kind = max((classes[k] for k in inputs), default=_LITERAL)
            inner = equation.params["jaxpr"] if equation.primitive.name in _OPENED else None
            if inner is not None:
                callee, consts = opened(inner)
                through = called if kind == _CHANGING and _size(callee) >= LONG else walk
                outputs = through(callee, [constant(c) for c in consts], inputs)
            else:
                if kind == _LITERAL and not dissolves(equation):
                    kind = _FIXED  # the number of the platform, a decomposition of a constant
                outputs = (
                    computed(equation, inputs)
                    if kind == _FIXED
                    else [place(None, kind) for _ in equation.outvars]
                )
                if kind == _CHANGING:
                    equations.append((equation, inputs, outputs))
                if kind == _LITERAL:
                    outermost.append((equation, inputs, outputs))
                    made.update(dict.fromkeys(outputs, outermost[-1]))
            known.update(zip(equation.outvars, outputs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    first = [place(None, _CHANGING) for _ in closed.jaxpr.invars]
    results = walk(closed.jaxpr, [constant(c) for c in closed.consts], first)
    groups = equations, *(call.equations for call, _ in calls.values())
    wanted = {k for group in groups for _, inputs, _ in group for k in inputs} | set(results)
    frontier = [k for k in sorted(wanted) if classes[k] == _FIXED]
    literals = {
        k: value for k, value in enumerate(values) if classes[k] == _LITERAL and value is not None
    }

    def rest(fixed: Sequence[Any], *leaves: Any) -> list[Array]:
        compiled: dict[_Call, tuple[Callable[..., list[Array]], list[int]]] = {}

        def run(equations: Sequence[Any], env: dict[int, Any]) -> None:
            for equation, inputs, outputs in equations:
                given = [env[k] for k in inputs]
                if not isinstance(equation, _Call):
                    # what a custom_vjp function closes over must not be differentiated, and is not where the scan does not refuse
                    count = (
                        equation.params.get("num_consts", 0)
                        if equation.primitive.name.startswith("custom_vjp")
                        else 0
                    )
                    given[:count] = map(jax.lax.stop_gradient, given[:count])
                    found = _bind(equation, given)
                elif equation.sites == 1:
                    env.update(zip(equation.given, given, strict=True))
                    run(equation.equations, env)
                    found = [env[k] for k in equation.results]
                else:
                    if equation not in compiled:
                        compiled[equation] = of_call(equation)
                    function, also = compiled[equation]
                    found = function(given, [env[k] for k in also])
                env.update(zip(outputs, found, strict=True))

        def of_call(call: _Call) -> tuple[Callable[..., list[Array]], list[int]]:
            """A function of what changes and of other values from outside."""
            also = sorted(call.outside() - set(literals))

            def function(given: Sequence[Any], others: Sequence[Any]) -> list[Array]:
                env = {
                    **literals,
                    **dict(zip(call.given, given, strict=True)),
                    **dict(zip(also, others, strict=True)),
                }
                run(call.equations, env)
                return [env[k] for k in call.results]

            return jax.jit(function), also

        env = {
            **literals,
            **dict(zip(frontier, fixed, strict=True)),
            **dict(zip(first, leaves, strict=True)),
        }
        run(equations, env)
        return [env[k] for k in results]

    return rest, [values[k] for k in frontier]


class _Call:
    """A long function as equations: what it is given, what it gives, how often it is called."""

    def __init__(
        self,
        equations: list[tuple[Any, list[int], list[int]]],
        given: list[int],
        results: list[int],
    ) -> None:
        self.equations, self.given, self.results = equations, given, results
        self.sites = 0

    def outside(self) -> set[int]:
        """The values it needs beside those given."""
        needed, inside = set(self.results), set(self.given)
        for equation, inputs, outputs in self.equations:
            needed.update(inputs, equation.outside() if isinstance(equation, _Call) else ())
            inside.update(outputs)
        return needed - inside


def _class(value: Any) -> int:
    """A constant that is no float and no tracer is part of the program; every other is an argument of it."""
    integral = not jnp.issubdtype(jnp.result_type(value), jnp.inexact) and not isinstance(
        value, Tracer
    )
    keyed = jnp.issubdtype(jnp.result_type(value), jax.dtypes.prng_key)
    return _LITERAL if integral and not keyed else _FIXED


def _bind(equation: Any, values: Sequence[Any]) -> list[Any]:
    """The outputs of one equation."""
    given = equation.primitive.get_bind_params(equation.params)
    functions, params = given if isinstance(given, tuple) else ((), given)  # a pair before jax 0.9
    found = equation.primitive.bind(*functions, *values, **params)
    return list(found) if equation.primitive.multiple_results else [found]

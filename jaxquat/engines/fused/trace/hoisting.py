"""Hoisting: what does not change during a run is computed once, before it.

A step closes over parameters and the body. What it computes from these alone, such as the inverse
of the inertia, is the same in every step. ``hoist`` traces the step and walks through its equations
in order. Each value gets a place (an integer) and a class:

- _LITERAL: a number known now, such as an index; it becomes part of the program;
- _FIXED: made of closed-over arrays; it is computed here, by JAX, and becomes an argument of the
  kernel, so a new inertia compiles nothing anew and gradients flow through the argument;
- _CHANGING: depends on the arguments (the state, the step's number); its equations remain.

The class of an output is the largest class among the inputs of its equation. The equations that
remain are the new function, ``rest``; the fixed values that they use are its first argument.

A long function called several times stays a call: its equations are walked through once for all
calls with the same fixed inputs (``_Call``), and ``rest`` makes one ``jax.jit`` function of them,
of which ``scalarize`` makes a routine. ``shared`` sees to it that calls of one function are alike.
"""

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

from jaxquat._branches import bind, is_rare, sides
from jaxquat._jaxprs import nested
from jaxquat._varying import axes_of, cast, within_shard_map
from jaxquat.engines.fused.errors import NotScalarError
from jaxquat.engines.fused.trace.calls import LONG
from jaxquat.engines.fused.trace.tracing import dissolves
from jaxquat.engines.fused.trace.values import opened

_LITERAL, _FIXED, _CHANGING = range(3)
# jit and checkpoint are walked into; not calls with a custom derivative, which holds for the whole
_OPENED = ("jit", "remat2")


def shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; if it is long, all its calls are calls of one traced function."""
    # structure of the arguments, leaves that are no tracers, function of the tracers
    known: list[tuple[Any, list[Any], Callable[..., Any]]] = []

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        fixed = [None if isinstance(x, Tracer) else x for x in leaves]  # concrete leaves stay so
        tracers = [x for x in leaves if isinstance(x, Tracer)]

        def of_tracers(*tracers: Any) -> Any:
            remaining = iter(tracers)
            leaves = [next(remaining) if x is None else x for x in fixed]
            return function(*jax.tree.unflatten(structure, leaves))

        for other, others, traced in known:
            if other == structure and all(x is y for x, y in zip(others, fixed, strict=True)):
                return traced(*tracers)
        long = _size(jax.make_jaxpr(of_tracers)(*tracers).jaxpr) >= LONG
        known.append((structure, fixed, jax.jit(of_tracers) if long else of_tracers))
        return known[-1][2](*tracers)

    return call


def _size(jaxpr: Any) -> int:
    """About how many scalar operations a jaxpr is."""
    total = 0
    for equation in jaxpr.eqns:
        results = sum(math.prod(v.aval.shape) for v in equation.outvars)
        total += 2 * _multiplied(equation) or results
        for inner in nested(equation):
            total += equation.params.get("length", 1) * _size(opened(inner)[0])
    return total


def _multiplied(equation: Any) -> int:
    """How many numbers a matrix product multiplies; 0 for other equations."""
    if equation.primitive.name != "dot_general":
        return 0
    (axes, _), _ = equation.params["dimension_numbers"]
    summed = math.prod(equation.invars[0].aval.shape[axis] for axis in axes)
    return summed * math.prod(equation.outvars[0].aval.shape)


def _multiplications(equation: Any) -> int:
    """How many numbers the matrix products of an equation multiply, with those nested in it."""
    if isinstance(equation, _Call):
        return sum(_multiplications(inner) for inner, _, _ in equation.equations)
    trips = equation.params.get("length", 1)
    inner = (x for jaxpr in nested(equation) for x in opened(jaxpr)[0].eqns)
    return _multiplied(equation) + trips * sum(map(_multiplications, inner))


def hoist(
    function: Callable[..., Any], *arguments: Any
) -> tuple[Callable[..., list[Array]], list[Any], int]:
    """``(rest, fixed, n)`` with ``rest(fixed, *leaves)`` the leaves of ``function(*arguments)``.

    n is how many numbers the matrix products of ``rest`` multiply.

    ``leaves`` are those of the arguments. ``fixed`` are arrays that the function makes of what it
    closes over alone: parameters, the inertia and its inverse. They are computed here, outside of
    the run, and so are their derivatives. Long functions called through ``jax.jit`` remain calls;
    calls that are alike are calls of one function.
    """
    closed = jax.make_jaxpr(function)(*arguments)
    if closed.effects:  # computed once, before the run, they would happen once
        effects = ", ".join(sorted(map(str, closed.effects)))
        raise NotScalarError(f"{effects}: effects have no scalar form; use engine='scan'")
    varies = within_shard_map()
    # equation or call, places of its inputs, places of its outputs
    equations: list[tuple[Any, list[int], list[int]]] = []
    outermost = equations
    calls: dict[Any, tuple[_Call, list[int]]] = {}
    values: list[Any] = []  # by place; None if it changes, or is a literal not yet computed
    classes: list[int] = []  # by place
    sources: dict[int, tuple[Any, list[int], list[int]]] = {}  # of a literal, its equation
    known_values: dict[Any, int] = {}
    known_results: dict[Any, list[int]] = {}

    def place(value: Any, kind: int) -> int:
        """A new place."""
        values.append(value)
        classes.append(kind)
        return len(values) - 1

    def constant(value: Any) -> int:
        """The place of a closed-over array, one for each."""
        if id(value) not in known_values:
            known_values[id(value)] = place(value, _class(value))
        return known_values[id(value)]

    def literal(value: np.ndarray) -> int:
        """The place of a number that stands in the jaxpr, one for equal numbers."""
        key = value.dtype, value.shape, value.tobytes()
        if key not in known_values:
            known_values[key] = place(value, _LITERAL)
        return known_values[key]

    def value_of(k: int) -> Any:
        """The value of a place; literals are computed only when a fixed value asks for them."""
        if values[k] is None:
            equation, inputs, outputs = sources[k]
            operands = [value_of(k) for k in inputs]
            with jax.ensure_compile_time_eval():
                plain = equation.primitive.name == "pvary"  # numbers do not vary
                results = operands if plain else bind(equation, operands)
                for output, value in zip(outputs, results, strict=True):
                    values[output] = value
        return values[k]

    def computed(equation: Any, inputs: list[int]) -> list[int]:
        """The places of the outputs of an equation on fixed values; equal equations share them."""
        try:
            key = equation.primitive, tuple(inputs), tuple(sorted(equation.params.items()))
            if key in known_results:
                return known_results[key]
        except TypeError:  # parameters without hash or order
            key = None
        operands = [value_of(k) for k in inputs]
        if varies:
            operands = [_typed(x, v) for x, v in zip(operands, equation.invars, strict=True)]
        results = bind(equation, operands)
        outputs = [place(value, _FIXED) for value in results]
        if key is not None:
            known_results[key] = outputs
        return outputs

    def called(jaxpr: Any, consts: Sequence[int], inputs: list[int]) -> list[int]:
        """The places of the outputs of a call; the callee is walked through once.

        Once, that is, for all its calls with the same fixed inputs.
        """
        nonlocal equations
        key = id(jaxpr), *(None if classes[k] == _CHANGING else k for k in inputs)
        if key not in calls:
            outside, equations = equations, []
            parameters = [place(None, _CHANGING) if classes[k] == _CHANGING else k for k in inputs]
            results = walk(jaxpr, consts, parameters)
            calls[key] = _Call(equations, changing(parameters), changing(results)), results
            equations = outside
        call, results = calls[key]
        call.sites += 1
        outputs = [place(None, _CHANGING) if classes[k] == _CHANGING else k for k in results]
        equations.append((call, changing(inputs), changing(outputs)))
        return outputs

    def changing(places: list[int]) -> list[int]:
        return [k for k in places if classes[k] == _CHANGING]

    def walk(jaxpr: Any, consts: Sequence[int], parameters: Sequence[int]) -> list[int]:
        """The places of the outputs of a jaxpr; classifies its equations, one after the other."""
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *parameters), strict=True))

        def read(v: Any) -> int:
            return literal(np.asarray(v.val, v.aval.dtype)) if hasattr(v, "val") else known[v]

        for equation in jaxpr.eqns:
            inputs = [read(v) for v in equation.invars]
            kind = max((classes[k] for k in inputs), default=_LITERAL)
            opens = equation.primitive.name in _OPENED and not is_rare(equation)
            inner = equation.params["jaxpr"] if opens else None
            if inner is not None:
                callee, consts = opened(inner)
                through = called if kind == _CHANGING and _size(callee) >= LONG else walk
                outputs = through(callee, [constant(c) for c in consts], inputs)
            else:
                if kind == _LITERAL and not dissolves(equation):
                    kind = _FIXED  # the number of the platform, a decomposition of a constant
                if kind == _FIXED:
                    outputs = computed(equation, inputs)
                else:
                    outputs = [place(None, kind) for _ in equation.outvars]
                if kind == _CHANGING:
                    equations.append((equation, inputs, outputs))
                if kind == _LITERAL:
                    outermost.append((equation, inputs, outputs))
                    sources.update(dict.fromkeys(outputs, outermost[-1]))
            known.update(zip(equation.outvars, outputs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    first = [place(None, _CHANGING) for _ in closed.jaxpr.invars]
    results = walk(closed.jaxpr, [constant(c) for c in closed.consts], first)
    groups = equations, *(call.equations for call, _ in calls.values())
    used = {k for group in groups for _, inputs, _ in group for k in inputs} | set(results)
    frontier = [k for k in sorted(used) if classes[k] == _FIXED]
    numbers = {k: value for k, value in enumerate(values) if classes[k] == _LITERAL}
    literals = {k: value for k, value in numbers.items() if value is not None}

    def rest(fixed: Sequence[Any], *leaves: Any) -> list[Array]:
        compiled: dict[_Call, tuple[Callable[..., list[Array]], list[int]]] = {}

        def run(equations: Sequence[Any], env: dict[int, Any]) -> None:
            """Computes the outputs of equations into ``env``, the values by place."""
            for equation, inputs, outputs in equations:
                operands = [env[k] for k in inputs]
                if not isinstance(equation, _Call):
                    if varies:
                        operands = [
                            _typed(x, v) if isinstance(x, np.ndarray) else x
                            for x, v in zip(operands, equation.invars, strict=True)
                        ]
                    # What a custom_vjp function closes over must not be differentiated. The scan
                    # refuses it; where it does not, there is no derivative either.
                    custom = equation.primitive.name.startswith("custom_vjp")
                    count = equation.params.get("num_consts", 0) if custom else 0
                    operands[:count] = map(jax.lax.stop_gradient, operands[:count])
                    results = (sides if is_rare(equation) else bind)(equation, operands)
                elif equation.sites == 1:
                    env.update(zip(equation.parameters, operands, strict=True))
                    run(equation.equations, env)
                    results = [env[k] for k in equation.results]
                else:
                    if equation not in compiled:
                        compiled[equation] = of_call(equation)
                    function, also = compiled[equation]
                    results = function(operands, [env[k] for k in also])
                env.update(zip(outputs, results, strict=True))

        def of_call(call: _Call) -> tuple[Callable[..., list[Array]], list[int]]:
            """A function of the call's changing inputs and of others from outside; their places."""
            also = sorted(call.outside() - set(literals))

            def function(operands: Sequence[Any], others: Sequence[Any]) -> list[Array]:
                env = literals | dict(zip(call.parameters, operands, strict=True))
                env |= dict(zip(also, others, strict=True))
                run(call.equations, env)
                return [env[k] for k in call.results]

            return jax.jit(function), also

        env = literals | dict(zip(frontier, fixed, strict=True))
        env |= dict(zip(first, leaves, strict=True))
        run(equations, env)
        return [env[k] for k in results]

    multiplications = sum(_multiplications(equation) for equation, _, _ in equations)
    return rest, [values[k] for k in frontier], multiplications


def _typed(x: Any, v: Any) -> Any:
    """A value that varies as the variable does, for which it stands."""
    axes = axes_of(v.aval)
    return cast(jnp.asarray(x), axes) if axes else x


class _Call:
    """A long function: its equations, the places of its changing inputs and outputs.

    ``sites``: how often it is called.
    """

    def __init__(self, equations: list[Any], parameters: list[int], results: list[int]) -> None:
        self.equations, self.parameters, self.results = equations, parameters, results
        self.sites = 0

    def outside(self) -> set[int]:
        """The places of the values that it needs beside its changing inputs."""
        needed, inside = set(self.results), set(self.parameters)
        for equation, inputs, outputs in self.equations:
            needed.update(inputs, equation.outside() if isinstance(equation, _Call) else ())
            inside.update(outputs)
        return needed - inside


def _class(value: Any) -> int:
    """The class of a closed-over array: integers and booleans that are known become literals.

    Floats, tracers and keys become arguments of the program.
    """
    integral = not jnp.issubdtype(jnp.result_type(value), jnp.inexact) and not isinstance(
        value, Tracer
    )
    keyed = jnp.issubdtype(jnp.result_type(value), jax.dtypes.prng_key)
    return _LITERAL if integral and not keyed else _FIXED

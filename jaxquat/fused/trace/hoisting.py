"""Hoisting: values that do not change during a run are computed once, before it.

``hoist``, a pass from jaxpr to jaxpr, gives each variable a kind, the largest among the inputs of
its equation:

- _LITERAL: a number known now, such as an index; it becomes part of the program;
- _FIXED: made from closed-over arrays; JAX computes it here, and it becomes an argument of the
  kernel, so a new matrix needs no new compilation and gradients flow through the argument;
- _CHANGING: depends on the arguments (the state, the step's number); its equations remain.

Calls are inlined. A long function called several times stays a call: its equations are walked
through once for all calls with the same fixed inputs and become a ``jit`` equation, for a routine.
``shared`` makes all calls of a function use one trace.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import Var, jaxpr_as_fun

from jaxquat._internal.branches import bind, is_rare
from jaxquat._internal.checks import is_key
from jaxquat._internal.jaxprs import closed_jaxpr, specs
from jaxquat._internal.varying import axes_of, cast, within_shard_map
from jaxquat.fused.errors import not_scalar
from jaxquat.fused.trace.calls import LONG, sites, size
from jaxquat.fused.trace.tracing import dissolves
from jaxquat.fused.trace.values import opened

_LITERAL, _FIXED, _CHANGING = range(3)
# jit and checkpoint are walked into, but not calls with a custom derivative, which is for all of it
_OPENED = ("jit", "remat2")


def shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function, where all calls share one traced function."""
    # structure of the arguments, leaves that are not tracers, function of the tracers
    known: list[tuple[Any, list[Any], Callable[..., Any]]] = []

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        fixed = [None if isinstance(x, Tracer) else x for x in leaves]  # keep leaves concrete
        tracers = [x for x in leaves if isinstance(x, Tracer)]
        for tree, values, traced in known:
            if tree == structure and all(x is y for x, y in zip(values, fixed, strict=True)):
                return traced(*tracers)

        def of_tracers(*tracers: Any) -> Any:
            remaining = iter(tracers)
            leaves = [next(remaining) if x is None else x for x in fixed]
            return function(*jax.tree.unflatten(structure, leaves))

        known.append((structure, fixed, jax.jit(of_tracers)))
        return known[-1][2](*tracers)

    return call


def hoist(closed: Any) -> tuple[Any, list[Any]]:
    """Return ``(rest, fixed)`` where ``rest(*fixed, *arguments)`` equals ``closed(*arguments)``.

    ``fixed`` are arrays computed only from what the function closes over. NotScalarError for
    effects, which would happen only once.
    """
    if closed.effects:
        effects = ", ".join(sorted(map(str, closed.effects)))
        raise not_scalar(f"{effects}: effects have no scalar form")
    walk = _Walk(closed)
    arguments = [Var(v.aval) for v in closed.jaxpr.invars]
    results = walk.through(closed.jaxpr, closed.consts, arguments, walk.outermost)
    equations, used = _needed(walk.outermost, results)
    fixed = {v: value for v, value in walk.fixed.items() if v in used}
    consts = {v: value for v, value in walk.numbers.items() if v in used and v not in walk.sources}
    inputs = [*fixed, *arguments]
    return closed_jaxpr(closed, inputs, results, equations, consts), list(fixed.values())


def _needed(equations: Sequence[Any], results: Iterable[Any]) -> tuple[list[Any], set[Any]]:
    used = {v for v in results if not hasattr(v, "val")}
    needed = []
    for equation in reversed(equations):
        if not used.isdisjoint(equation.outvars):
            needed.append(equation)
            used.update(v for v in equation.invars if not hasattr(v, "val"))
    return needed[::-1], used


class _Callee(NamedTuple):
    """A function that stays a call ``equation`` of the changing inputs and ``free``, to ``own``."""

    equation: Any
    free: list[Any]
    own: list[Any]
    results: list[Any]


class _Walk:
    """A walk through a jaxpr and the functions that it calls.

    ``outermost`` has the equations that remain, ``fixed`` and ``numbers`` the values of fixed and
    literal variables, ``sources`` the equations of the latter.
    """

    def __init__(self, closed: Any) -> None:
        self.outermost: list[Any] = []
        self.fixed: dict[Any, Any] = {}
        self.numbers: dict[Any, Any] = {}
        self.sources: dict[Any, Any] = {}
        self._varies, self._sites = within_shard_map(), sites(closed.jaxpr, {})
        self._constants: dict[int, Any] = {}  # variables of closed-over arrays, by their ids
        self._computed: dict[Any, list[Any]] = {}  # variables of fixed results
        self._calls: dict[Any, _Callee] = {}

    def through(
        self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any], equations: list[Any]
    ) -> list[Any]:
        """Return the outputs of a jaxpr; its remaining equations are added to ``equations``."""
        known = dict(zip(jaxpr.invars, arguments, strict=True))
        known |= {v: self._constant(v, c) for v, c in zip(jaxpr.constvars, consts, strict=True)}
        read = lambda v: v if hasattr(v, "val") else known[v]  # noqa: E731
        for equation in jaxpr.eqns:
            here = equation.replace(invars=list(map(read, equation.invars)))
            known.update(zip(equation.outvars, self._outputs(here, equations), strict=True))
        return list(map(read, jaxpr.outvars))

    def _outputs(self, equation: Any, equations: list[Any]) -> Sequence[Any]:
        kind = max(map(self._kind, equation.invars), default=_LITERAL)
        if equation.primitive.name in _OPENED and not is_rare(equation):
            inner = equation.params["jaxpr"]
            if kind == _CHANGING and self._sites[id(inner)] > 1 and size(inner) >= LONG:
                return self._called(inner, equation.invars, equations)
            return self.through(*opened(inner), equation.invars, equations)
        if kind == _LITERAL and not dissolves(equation):
            kind = _FIXED  # for example the platform index, a decomposition of a constant
        if kind == _FIXED:
            return self._results(equation)
        outputs = [Var(v.aval) for v in equation.outvars]
        equation = equation.replace(outvars=outputs)
        if kind == _LITERAL:
            self.outermost.append(equation)
            self.sources.update(dict.fromkeys(outputs, equation))
        else:
            equations += _without_slopes(equation)
        return outputs

    def _kind(self, v: Any) -> int:
        if hasattr(v, "val") or v in self.numbers or v in self.sources:
            return _LITERAL
        return _FIXED if v in self.fixed else _CHANGING

    def _constant(self, v: Any, value: Any) -> Any:
        """Return the variable of a closed-over array: known integers and booleans are literals."""
        if id(value) not in self._constants:
            self._constants[id(value)] = new = Var(v.aval)
            dtype = jnp.result_type(value)
            known = not (jnp.issubdtype(dtype, jnp.inexact) or isinstance(value, Tracer))
            (self.numbers if known and not is_key(value) else self.fixed)[new] = value
        return self._constants[id(value)]

    def _value(self, v: Any) -> Any:
        """Return the value of a variable; compute literals only when a fixed value needs them."""
        if hasattr(v, "val"):
            return np.asarray(v.val, v.aval.dtype)
        if v in self.fixed:
            return self.fixed[v]
        if v not in self.numbers:
            equation = self.sources[v]
            operands = list(map(self._value, equation.invars))
            with jax.ensure_compile_time_eval():
                plain = equation.primitive.name == "pvary"  # numbers do not vary
                results = operands if plain else bind(equation, operands)
            self.numbers.update(zip(equation.outvars, results, strict=True))
        return self.numbers[v]

    def _results(self, equation: Any) -> list[Any]:
        """Return the fixed variables of an equation's outputs; equal equations share them."""
        names = tuple(map(_name, equation.invars))
        try:
            key = equation.primitive, names, tuple(sorted(equation.params.items()))
            if key in self._computed:
                return self._computed[key]
        except TypeError:  # parameters without hash or order
            key = None
        operands = list(map(self._value, equation.invars))
        if self._varies:
            operands = [
                cast(jnp.asarray(x), axes_of(v.aval))
                for x, v in zip(operands, equation.invars, strict=True)
            ]
        outputs = [Var(v.aval) for v in equation.outvars]
        self.fixed.update(zip(outputs, bind(equation, operands), strict=True))
        if key is not None:
            self._computed[key] = outputs
        return outputs

    def _called(self, inner: Any, inputs: Sequence[Any], equations: list[Any]) -> list[Any]:
        """Return the outputs of a call; walk through the callee once for equal fixed inputs."""
        changes = [self._kind(v) == _CHANGING for v in inputs]
        key = id(inner), *(None if c else _name(v) for c, v in zip(changes, inputs, strict=True))
        if key not in self._calls:
            self._calls[key] = self._callee(inner, inputs, changes)
        equation, free, own, results = self._calls[key]
        outputs = {v: Var(v.aval) for v in own}
        changing = [v for c, v in zip(changes, inputs, strict=True) if c]
        here = equation.replace(invars=[*changing, *free], outvars=list(outputs.values()))
        equations.append(here)
        return [v if hasattr(v, "val") else outputs.get(v, v) for v in results]

    def _callee(self, inner: Any, inputs: Sequence[Any], changes: Sequence[bool]) -> _Callee:
        body: list[Any] = []
        arguments = [Var(v.aval) if c else v for c, v in zip(changes, inputs, strict=True)]
        results = self.through(*opened(inner), arguments, body)
        own = list(dict.fromkeys(v for v in results if self._kind(v) == _CHANGING))
        body, used = _needed(body, own)
        parameters = [v for c, v in zip(changes, arguments, strict=True) if c]
        inside = {v for equation in body for v in equation.outvars}.union(parameters)
        free = [v for v in (*self.fixed, *self.sources, *self.numbers) if v in used - inside]
        free = list(dict.fromkeys(free))
        callee = closed_jaxpr(inner, [*parameters, *free], own, body, {})
        call = jax.make_jaxpr(jax.jit(jaxpr_as_fun(callee)))(*specs(callee.jaxpr.invars))
        return _Callee(call.jaxpr.eqns[0], free, own, results)


def _name(v: Any) -> Any:
    if not hasattr(v, "val"):
        return v
    value = np.asarray(v.val, v.aval.dtype)
    return value.dtype, value.shape, value.tobytes()


def _without_slopes(equation: Any) -> list[Any]:
    """Stop gradients along what a ``jax.custom_vjp`` function closes over, as the scan does."""
    custom = equation.primitive.name.startswith("custom_vjp")
    count = equation.params.get("num_consts", 0) if custom else 0
    stopped, inputs = [], list(equation.invars)
    for k in range(count):
        closed = jax.make_jaxpr(jax.lax.stop_gradient)(*specs(inputs[k : k + 1]))
        for stop in closed.jaxpr.eqns:  # none for integers
            stopped.append(stop.replace(invars=[inputs[k]], outvars=[Var(inputs[k].aval)]))
            inputs[k] = stopped[-1].outvars[0]
    return [*stopped, equation.replace(invars=inputs)]

"""A loop as JAX primitives: their operands, and how they batch.

Each primitive is a function of flat arrays that evaluates a ``Recurrence`` F (``keys``):

- ``value``: F(x); with ``keep`` also the residuals, the carry before every ``segment`` steps;
- ``jvp``: F'(x) dx, linear in dx. Its transpose is ``vjp``;
- ``vjp``: b F'(x), the derivative in reverse mode;
- ``jvp_of_vjp``: the derivative of ``vjp`` in a direction (dx, db), linear in it.

``jvp`` and ``jvp_of_vjp`` are lowered to ``value`` and ``vjp`` of the tangent G of F. ``jax.vmap``
runs the loop for more members (``_Axes``); where only tangents are batched, all go through one loop
(``_in_one_loop``), so ``jax.jacfwd`` with eight parameters is one kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import checkify
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from jaxquat._internal.varying import axes_of, cast, typed
from jaxquat.fused import keys
from jaxquat.fused.keys import Key, Operand, Operands
from jaxquat.fused.recurrence import Live, Recurrence
from jaxquat.fused.trace.tracing import ON_ARRAYS
from jaxquat.fused.trace.values import raw_specs

try:
    from jax._src.checkify import error_checks  # there is no public way to add a rule
except ImportError:  # then no errors of a kernel are reported
    error_checks: dict[Any, Any] = {}

TANGENTS = 8  # at most this many go through one loop with their primal


class LoopPrimitive:
    """A primitive, called with arrays by key.

    Its ``recurrence`` is F for ``value`` and ``vjp``, otherwise the tangent G. ``keep``: whether
    residuals are returned. ``live``: the results with a nonzero cotangent. ``by``: the gradients
    that ``vjp`` returns, None for all. ``members``: the length of the axis of members, or None;
    ``batched``: which operands have it.
    """

    by_scan: Callable[..., list[Array]]  # value and vjp only: the results by lax.scan

    def __init__(self, name: str) -> None:
        self.name, self.primitive = name, Primitive(f"fused_loop_{name}")
        self.primitive.multiple_results = True
        self.primitive.def_abstract_eval(self._shapes)
        batching.primitive_batchers[self.primitive] = self._batched

    def define(self, function: Callable[..., list[Array]], by_scan: Any = None) -> None:
        """Have this primitive evaluated as ``function``, or ``by_scan`` under ``checkify``."""
        program = by_scan or function
        if by_scan is not None:  # in the step of another kernel, this one is its scan
            ON_ARRAYS[self.primitive.name] = lambda t, equation, *args: t.traced(
                functools.partial(by_scan, **equation.params), raw_specs(equation, args), args
            )
        self.primitive.def_impl(function)
        mlir.register_lowering(self.primitive, mlir.lower_fun(program, multiple_results=True))

        def checked(*arguments: Any, **params: Any) -> Any:
            """Map (error, enabled, *operands) to (error, results); jax 0.12 adds a context."""
            first = len(arguments) - len(params["batched"])
            (*_, error, enabled), operands = arguments[:first], arguments[first:]
            if set(enabled) <= set(checkify.user_checks):
                return error, self.primitive.bind(*operands, **params)
            jitted = jax.jit(lambda *operands: program(*operands, **params))
            (call,) = jax.make_jaxpr(jitted)(*operands).eqns
            return error_checks[call.primitive](*arguments, **call.params)

        error_checks[self.primitive] = checked

    @property
    def is_linear(self) -> bool:
        """Whether this is the linear part of another primitive."""
        return self.name.startswith("jvp")

    def keys(
        self, recurrence: Recurrence, keep: bool, live: Live, by: tuple[Key, ...] | None = None
    ) -> tuple[list[Key], list[Key]]:
        """Return the keys of operands and results, in terms of F."""
        g, f = recurrence, recurrence.primal
        if self.name == "value":
            return keys.primals(g), keys.results(g, keep)
        if self.name == "vjp":
            outer = keys.gradients(g) if by is None else list(by)
            return keys.point(g) + keys.cotangents(g, live), outer
        assert f is not None

        def tangents(names: list[Key]) -> list[Key]:
            return [key for key in (keys.primal_key(g, key) for key in names) if key.is_tangent]

        if self.name == "jvp":
            return keys.point(f) + tangents(keys.primals(g)), tangents(keys.results(g, keep))
        linear = tangents(keys.point(g) + keys.cotangents(g, live))
        of_f = keys.live_of_primal(g, live)
        assert of_f is not None
        return keys.point(f) + keys.cotangents(f, of_f) + linear, tangents(keys.gradients(g))

    def keys_of(self, params: dict[str, Any]) -> tuple[list[Key], list[Key]]:
        """Return the keys of a call with these parameters."""
        return self.keys(*(params[name] for name in ("recurrence", "keep", "live", "by")))

    def __call__(
        self,
        operands: Operands,
        recurrence: Recurrence,
        members: int | None,
        keep: bool = False,
        live: Live = (),
        by: tuple[Key, ...] | None = None,
    ) -> Operands:
        """Return the results by key; ``operands`` may have more than the primitive needs."""
        inner, outer = self.keys(recurrence, keep, live, by)
        arrays = [operands[key].array for key in inner]
        outputs = self.primitive.bind(
            *cast(arrays, axes_of(arrays)), recurrence=recurrence, keep=keep, live=live, by=by,
            members=members, batched=tuple(operands[key].batched for key in inner),
        )  # fmt: skip
        return by_key(outer, outputs, members)

    def named(self, operands: Sequence[Any], params: dict[str, Any]) -> tuple[Operands, list[Key]]:
        """Return the operands of a call by key, and the keys of its results."""
        inner, outer = self.keys_of(params)
        return dict(zip(inner, map(Operand, operands, params["batched"]), strict=True)), outer

    def _shapes(self, *operands: Any, members: int | None, **params: Any) -> list[Any]:
        g, outer = params["recurrence"], self.keys_of(params)[1]
        f, count = (g.primal, g.tangents.directions) if self.is_linear else (g, 1)
        specs = [keys.shape_of(f, key, members) for key in outer]
        shapes = [(*x.shape[:-1], count * x.shape[-1]) for x in specs]
        return [typed(s, x.dtype, operands) for s, x in zip(shapes, specs, strict=True)]

    def _batched(
        self, operands: Sequence[Array], axes: Sequence[int | None], **params: Any
    ) -> tuple[list[Array], list[int | None]]:
        """Batch the primitive: merge the new axis with the axis of members of the kernel."""
        g, members = params["recurrence"], params["members"]
        size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
        inner, outer = self.keys_of(params)
        is_tangent = not self.is_linear and g.primal is not None
        names = [keys.primal_key(g, key) if is_tangent else key for key in inner]
        mapped = [key for key, axis in zip(names, axes, strict=True) if axis is not None]
        tangents_only = is_tangent and all(key.is_tangent for key in mapped)
        if tangents_only and self is value and 2 * g.tangents.directions <= TANGENTS:
            return _in_one_loop(operands, axes, size, params)
        linear = all(key.is_tangent or key.role == "cotangent" for key in mapped)
        new = _Axes(size, members, is_last=members is not None and linear)
        batched = params["batched"]
        arrays = [new.merged(*x) for x in zip(operands, axes, batched, strict=True)]
        flags = tuple(a is not None or b for a, b in zip(axes, batched, strict=True))
        outputs = self.primitive.bind(*arrays, **params | {"members": new.total, "batched": flags})
        moves = [not tangents_only or keys.primal_key(g, key).is_tangent for key in outer]
        outputs = [new.split(x, m) for x, m in zip(outputs, moves, strict=True)]
        return outputs, [int(new.is_last) if m else None for m in moves]


value, jvp, vjp, jvp_of_vjp = map(LoopPrimitive, ("value", "jvp", "vjp", "jvp_of_vjp"))


def by_key(names: Sequence[Key], outputs: Sequence[Any], members: int | None) -> Operands:
    """Return results by key; all of them have the axis of members if there is one."""
    return {key: Operand(x, members is not None) for key, x in zip(names, outputs, strict=True)}


class _Axes(NamedTuple):
    """The axis of a ``jax.vmap``, merged with that of members, which is first if it is sharded."""

    size: int  # the length of the new axis
    members: int | None  # the length of the axis of members
    is_last: bool  # whether the new axis is the second one

    @property
    def total(self) -> int:
        return self.size if self.members is None else self.size * self.members

    def merged(self, x: Array, axis: int | None, batched: bool) -> Array:
        """Return an operand with one axis for both, or with none; ``axis`` is the new one."""
        x = x if axis is None else jnp.moveaxis(x, axis, 0)
        if self.members is None or (axis is None and not batched):
            return x
        x = x if axis is not None else x[None]
        x = x if batched else x[:, None]
        x = jnp.broadcast_to(x, (self.size, self.members, *x.shape[2:]))
        x = x.swapaxes(0, 1) if self.is_last else x
        return x.reshape(self.total, *x.shape[2:])

    def split(self, x: Array, moves: bool) -> Array:
        """Split the axis of a result; drop the new one if the result does not move along it."""
        if self.members is not None:
            sizes = (self.members, self.size) if self.is_last else (self.size, self.members)
            x = x.reshape(*sizes, *x.shape[1:])
        if moves:
            return x
        return x[:, 0] if self.is_last else x[0]


def _in_one_loop(
    operands: Sequence[Array], axes: Sequence[int | None], size: int, params: dict[str, Any]
) -> tuple[list[Array], list[int | None]]:
    """Batch ``value`` where only tangents are batched, at most ``TANGENTS`` of them in one loop."""
    g, members, keep = params["recurrence"], params["members"], params["keep"]
    numbers, zero, count = g.tangents
    inner = min(size, TANGENTS // count)
    outer = -(-size // inner)
    wide = g.primal.tangent(numbers["constants"], numbers["inputs"], zero, count * inner)
    arrays, names = value.named(operands, params)
    tangents = {
        key: _grouped(x, axis, size, inner)
        for (key, (x, _)), axis in zip(arrays.items(), axes, strict=True)
        if keys.primal_key(g, key).is_tangent
    }

    def run(tangents: dict[Key, Array]) -> list[Array]:
        moved = {key: Operand(x, arrays[key].batched) for key, x in tangents.items()}
        return [x for x, _ in value(arrays | moved, wide, members, keep=keep).values()]

    if outer == 1:
        outputs = [x[None] for x in run({key: x[0] for key, x in tangents.items()})]
    else:
        outputs = jax.vmap(run)(tangents)
    moves = [keys.primal_key(g, key).is_tangent for key in names]
    outputs = [
        _ungrouped(x, size, inner) if m else x[0] for x, m in zip(outputs, moves, strict=True)
    ]
    return outputs, [0 if m else None for m in moves]


def _grouped(x: Array, axis: int | None, size: int, inner: int) -> Array:
    x = jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
    x = jnp.pad(x, [(0, -size % inner)] + [(0, 0)] * (x.ndim - 1))
    return together(x.reshape(len(x) // inner, inner, *x.shape[1:]), 1)


def _ungrouped(x: Array, size: int, inner: int) -> Array:
    x = apart(x, inner, 1)
    return x.reshape(len(x) * inner, *x.shape[2:])[:size]


def together(x: Array, axis: int = 0) -> Array:
    """Return an axis of directions side by side in the last axis, as in a tangent of a loop."""
    x = jnp.moveaxis(x, axis, -2)
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def apart(x: Array, count: int, axis: int = 0) -> Array:
    """Invert ``together``, where ``count`` is the number of directions."""
    return jnp.moveaxis(x.reshape(*x.shape[:-1], count, x.shape[-1] // count), -2, axis)

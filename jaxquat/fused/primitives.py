"""The fused rollout as JAX primitives: their operands, and how they batch.

Each primitive is a function of flat arrays that evaluates a ``Recurrence`` F (``keys`` defines the
terms):

- ``value``: F(x); with ``keep`` also the residuals, the states before every ``segment`` steps;
- ``jvp``: F'(x) dx, linear in dx. Its transpose is ``vjp``;
- ``vjp``: b F'(x), the derivative in reverse mode;
- ``jvp_of_vjp``: the derivative of ``vjp`` in a direction (dx, db), linear in it.

``jvp`` and ``jvp_of_vjp`` are parts of ``value`` and ``vjp`` of the tangent G of F: they are
lowered to these (``derivatives``), which are lowered to kernels (``lowering``).

All primitives batch alike, by one more axis of bodies. The exception: where only tangents are
batched, all of them go through one loop (``_together``), so ``jax.jacfwd`` by eight parameters is
one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import batching

from jaxquat._internal.varying import axes_of, cast, typed
from jaxquat.fused.keys import (
    Arrays,
    Flags,
    Key,
    below,
    cotangents,
    gradients,
    live_below,
    point,
    primals,
    results,
    shape_of,
)
from jaxquat.fused.recurrence import Live, Recurrence

TANGENTS = 8  # at most this many go through one loop with their primal


class Rollout:
    """A primitive, called with arrays by key.

    Parameters:
        recurrence: F for ``value`` and ``vjp``; its tangent G for ``jvp`` and ``jvp_of_vjp``.
        keep: whether ``value`` and ``jvp`` also return residuals.
        live: for the other primitives, the results of the recurrence with a nonzero cotangent.
        by: the gradients that ``vjp`` returns, by their keys; None for all.
        bodies: the length of the axis of bodies, or None.
        batched: which operands have that axis.
    """

    by_scan: Callable[..., list[Array]]  # value and vjp only: the results by lax.scan

    def __init__(self, name: str) -> None:
        self.name, self.primitive = name, Primitive(f"fused_rollout_{name}")
        self.primitive.multiple_results = True
        self.primitive.def_abstract_eval(self._shapes)
        batching.primitive_batchers[self.primitive] = self._batched

    @property
    def is_linear(self) -> bool:
        """Whether this is the linear part of another primitive."""
        return self.name.startswith("jvp")

    def keys(
        self, recurrence: Recurrence, keep: bool, live: Live, by: tuple[Key, ...] | None = None
    ) -> tuple[list[Key], list[Key]]:
        """The keys of operands and results, in terms of F."""
        g, f = recurrence, recurrence.primal
        if self.name == "value":
            return primals(g), results(g, keep)
        if self.name == "vjp":
            return point(g) + cotangents(g, live), gradients(g) if by is None else [*by]
        assert f is not None

        def tangents(keys: list[Key]) -> list[Key]:
            return [key for key in (below(g, key) for key in keys) if key.is_tangent]

        if self.name == "jvp":
            return point(f) + tangents(primals(g)), tangents(results(g, keep))
        linear, of_f = tangents(point(g) + cotangents(g, live)), live_below(g, live)
        assert of_f is not None
        return point(f) + cotangents(f, of_f) + linear, tangents(gradients(g))

    def keys_of(self, params: dict[str, Any]) -> tuple[list[Key], list[Key]]:
        """The keys of a call with these parameters."""
        return self.keys(*(params[name] for name in ("recurrence", "keep", "live", "by")))

    def __call__(
        self,
        arrays: Arrays,
        flags: Flags,
        recurrence: Recurrence,
        bodies: int | None,
        keep: bool = False,
        live: Live = (),
        by: tuple[Key, ...] | None = None,
    ) -> Arrays:
        """The results by key; ``arrays`` and ``flags`` may have more than the operands."""
        inner, outer = self.keys(recurrence, keep, live, by)
        operands = [arrays[key] for key in inner]
        outputs = self.primitive.bind(
            *cast(operands, axes_of(operands)), recurrence=recurrence, keep=keep, live=live, by=by,
            bodies=bodies, batched=tuple(flags[key] for key in inner),
        )  # fmt: skip
        return dict(zip(outer, outputs, strict=True))

    def named(
        self, operands: Sequence[Any], params: dict[str, Any]
    ) -> tuple[Arrays, Flags, list[Key]]:
        """Operands and flags by key, and the keys of the results."""
        inner, outer = self.keys_of(params)
        arrays = dict(zip(inner, operands, strict=True))
        return arrays, dict(zip(inner, params["batched"], strict=True)), outer

    def _shapes(self, *operands: Any, bodies: int | None, batched: Any, **params: Any) -> list[Any]:
        g, outer = params["recurrence"], self.keys_of(params)[1]
        f, count = (g.primal, g.tangents.directions) if self.is_linear else (g, 1)
        specs = [shape_of(f, key, bodies) for key in outer]
        shapes = [(*x.shape[:-1], count * x.shape[-1]) for x in specs]
        return [typed(s, x.dtype, operands) for s, x in zip(shapes, specs, strict=True)]

    def _batched(
        self, operands: Sequence[Array], axes: Sequence[int | None], **params: Any
    ) -> tuple[list[Array], list[int | None]]:
        """The rule of vmap: merge the new axis with the axis of bodies of the kernel.

        Where only tangents are batched, results that do not depend on them are not batched. Bodies
        stay sharded over devices if their axis is the first of the two merged axes. The first one
        is the new axis, except where only tangents or cotangents are batched.
        """
        g, bodies = params["recurrence"], params["bodies"]
        size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
        inner, outer = self.keys_of(params)
        lifted = not self.is_linear and g.primal is not None
        keys = [below(g, key) if lifted else key for key in inner]
        mapped = [key for key, axis in zip(keys, axes, strict=True) if axis is not None]
        tangents_only = lifted and all(key.is_tangent for key in mapped)
        last = bodies is not None and all(k.is_tangent or k.role == "cotangent" for k in mapped)
        if tangents_only and self is value and 2 * g.tangents.directions <= TANGENTS:
            return _together(operands, axes, size, params)
        arrays = [
            _merged(x, axis, has, size, bodies, last)
            for x, axis, has in zip(operands, axes, params["batched"], strict=True)
        ]
        flags = [a is not None or has for a, has in zip(axes, params["batched"], strict=True)]
        many = size if bodies is None else size * bodies
        outputs = self.primitive.bind(*arrays, **params | {"bodies": many, "batched": tuple(flags)})
        if bodies is not None:
            sizes = (bodies, size) if last else (size, bodies)
            outputs = [x.reshape(*sizes, *x.shape[1:]) for x in outputs]
        if not tangents_only:
            return outputs, [int(last)] * len(outputs)
        moved = [below(g, key).is_tangent for key in outer]
        first = (slice(None), 0) if last else 0
        outputs = [x if m else x[first] for x, m in zip(outputs, moved, strict=True)]
        return outputs, [int(last) if m else None for m in moved]


def _merged(
    x: Array, axis: int | None, has: bool, size: int, bodies: int | None, last: bool
) -> Array:
    """An operand after the merge; its axis of bodies, if any, is ``size`` times as long.

    ``last``: whether the new axis is the last of the two merged axes, otherwise it is the first.
    """
    x = x if axis is None else jnp.moveaxis(x, axis, 0)
    if bodies is None or (axis is None and not has):
        return x
    x = x if axis is not None else x[None]
    x = x if has else x[:, None]
    x = jnp.broadcast_to(x, (size, bodies, *x.shape[2:]))
    x = x.swapaxes(0, 1) if last else x
    return x.reshape(size * bodies, *x.shape[2:])


value, jvp, vjp, jvp_of_vjp = map(Rollout, ("value", "jvp", "vjp", "jvp_of_vjp"))


def _together(
    operands: Sequence[Array], axes: Sequence[int | None], size: int, params: dict[str, Any]
) -> tuple[list[Array], list[int | None]]:
    """The rule of vmap where only tangents are batched: they go through one loop.

    If there are more than ``TANGENTS``, several such loops run as bodies of one kernel.
    """
    g, bodies, keep = params["recurrence"], params["bodies"], params["keep"]
    numbers, zero, count = g.tangents
    inner = min(size, TANGENTS // count)
    outer = -(-size // inner)
    more = g.primal.tangent(numbers["constants"], numbers["inputs"], zero, count * inner)
    fixed: Arrays = {}
    tangents: Arrays = {}
    for key, x, axis in zip(primals(g), operands, axes, strict=True):
        if not below(g, key).is_tangent:
            fixed[key] = x
            continue
        x = jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        x = jnp.pad(x, [(0, outer * inner - size)] + [(0, 0)] * (x.ndim - 1))
        x = jnp.moveaxis(x.reshape(outer, inner, *x.shape[1:]), 1, -2)
        tangents[key] = x.reshape(*x.shape[:-2], -1)
    flags = dict(zip(primals(g), params["batched"], strict=True))

    def run(tangents: Arrays) -> list[Array]:
        return list(value(fixed | tangents, flags, more, bodies, keep=keep).values())

    if outer == 1:
        outputs = [x[None] for x in run({key: x[0] for key, x in tangents.items()})]
    else:
        outputs = jax.vmap(run)(tangents)
    arrays, out = [], []
    for key, x in zip(results(g, keep), outputs, strict=True):
        is_tangent = below(g, key).is_tangent
        if is_tangent:
            x = jnp.moveaxis(x.reshape(*x.shape[:-1], inner, -1), -2, 1)
            x = x.reshape(outer * inner, *x.shape[2:])[:size]
        arrays.append(x if is_tangent else x[0])
        out.append(0 if is_tangent else None)
    return arrays, out

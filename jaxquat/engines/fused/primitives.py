"""The fused rollout as JAX primitives: their arrays, batches and programs.

Each primitive is a function of flat arrays and computes with a ``Recurrence`` F:

- ``value``: F(x); with ``keep`` also the states that F passes every ``segment`` steps;
- ``push``: F'(x) dx, linear in dx. Its transpose is ``pull``;
- ``pull``: b F'(x), the derivative in reverse mode;
- ``bend``: the derivative of ``pull`` in a direction (dx, db), linear in it. It is its own
  transpose but for ``push``, as the Hessian of b F is symmetric.

``push`` and ``bend`` are parts of ``value`` and ``pull`` of the tangent G of F, the function
(x, dx) -> (F(x), F'(x) dx): they are lowered to these. ``value`` and ``pull`` are lowered to a
kernel; to a program of ``lax.scan`` where a program has no scalar form, where there are no kernels,
and for ``jax.export``.

An array is named by a ``Key``: its role, its group and its number there. The roles are "x" for what
F is given, "y" for its results, "kept" for states on the way, "b" for cotangents of y and "g" for
those of x. A "d" before it makes it the tangent. The arrays of G are those of F and their tangents;
``below`` translates the keys.

All primitives batch alike, by one more axis of bodies. Only where tangents alone are batched they
go through one loop together (``_together``): so ``jax.jacfwd`` by eight parameters is one kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from jaxquat._varying import axes_of, cast, typed
from jaxquat.engines.fused import checking, cpu, loading, partitioning
from jaxquat.engines.fused.errors import report
from jaxquat.engines.fused.kernel import Loop
from jaxquat.engines.fused.recurrence import CARRY, ENDS, Live, Recurrence
from jaxquat.engines.fused.targets import nvptx

START = ("constants", "inputs", "state", "memory")
TANGENTS = 8  # at most so many go through one loop with their primal
Key = tuple[str, str, int]
Arrays = dict[Key, Any]
Flags = dict[Key, bool]  # whether an array has an axis of bodies


# The keys of operands and results.


def whole(f: Recurrence, role: str, groups: Sequence[str]) -> list[Key]:
    """All leaves of some groups."""
    return [(role, group, i) for group in groups for i in range(len(f.specs[group]))]


def smooth(f: Recurrence, role: str, groups: Sequence[str]) -> list[Key]:
    """The floats of some groups."""
    return [(role, group, i) for group in groups for i in f.smooth(group)]


def start(f: Recurrence) -> list[Key]:
    """The operands of ``value``."""
    return whole(f, "x", START)


def results(f: Recurrence, keep: bool) -> list[Key]:
    """The results of ``value``."""
    return whole(f, "y", ENDS) + (whole(f, "kept", CARRY) if keep else [])


def fixed(f: Recurrence) -> list[Key]:
    """The operands of the linear primitives that stand for x."""
    return [*whole(f, "x", START[:2]), *whole(f, "kept", CARRY), *whole(f, "y", CARRY)]


def cotangents(f: Recurrence, live: Live) -> list[Key]:
    """The cotangents of F(x); of the saved leaves those in ``live`` alone."""
    saved: list[Key] = [("b", group, i) for group, i in live if group == "saved"]
    return saved + smooth(f, "b", CARRY)


def below(g: Recurrence, key: Key) -> Key:
    """The key in terms of F of an array of its tangent G.

    The cotangent of F'(x) dx is b and the gradient by dx is g; those of F(x) and x are tangents.
    """
    role, group, i = key
    assert g.primal is not None
    assert g.chosen is not None
    first = len(g.primal.specs[group])
    is_tangent = (i >= first) != (role in ("b", "g"))
    number = g.chosen[group][i - first] if i >= first else i
    return ("d" + role if is_tangent else role), group, number


def live_of(f: Recurrence, live: Live, moved: Live = ()) -> Live:
    """The results of the tangent of F with cotangents, where F has those of ``live``.

    ``moved`` are those of them whose cotangents have tangents.
    """
    of_tangent = lambda group, i: len(f.specs[group]) + f.smooth(group).index(i)  # noqa: E731
    return (*moved, *((group, of_tangent(group, i)) for group, i in live))


def live_below(g: Recurrence, live: Live) -> Live | None:
    """The inverse: the results of F with cotangents, where its tangent G has those of ``live``.

    None if a cotangent that does not belong to one of F has a tangent.
    """
    f = g.primal
    assert f is not None
    assert g.chosen is not None
    moved = [(group, i) for group, i in live if i < len(f.specs[group])]
    below = [
        (group, g.chosen[group][i - len(f.specs[group])])
        for group, i in live
        if i >= len(f.specs[group])
    ]
    return tuple(below) if set(moved) <= set(below) else None


def shape_of(f: Recurrence, key: Key, bodies: int | None = None) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an array: axes of bodies and of rows, where it has them, then its leaf."""
    role, group, i = key
    layout = f.layout
    leaf = getattr(layout, group)[i]
    if role.endswith("kept"):
        rows: tuple[int, ...] = (layout.segments,)
    else:
        rows = {"inputs": (layout.samples,), "saved": (layout.rows + 1,)}.get(group, ())
    first = () if bodies is None else (bodies,)
    return jax.ShapeDtypeStruct((*first, *rows, leaf.size), leaf.dtype)


def zeros(f: Recurrence, key: Key, bodies: int | None = None) -> Array:
    """An array of zeros."""
    like = shape_of(f, key, bodies)
    return jnp.zeros(like.shape, like.dtype)


def given_start(f: Recurrence, arrays: Arrays, flags: Flags) -> tuple[Arrays, Flags]:
    """What F was given, of the operands ``fixed``: the first state that was kept is the start."""
    x = {key: arrays[key] for key in whole(f, "x", START[:2])}
    marks = {key: flags[key] for key in x}
    for _, group, i in whole(f, "x", START[2:]):
        x["x", group, i] = arrays["kept", group, i][..., 0, :]
        marks["x", group, i] = flags["kept", group, i]
    return x, marks


class Rollout:
    """A primitive, called with arrays by key.

    Parameters:
        recurrence: F for ``value`` and ``pull``; its tangent G for ``push`` and ``bend``.
        keep: of ``value`` and ``push``.
        live: the results of the recurrence whose cotangent is not zero, for ``pull`` and ``bend``.
        by: the gradients that ``pull`` returns, by their keys; None for all.
        bodies: the length of the axis of bodies, or None.
        batched: which operands have that axis.
    """

    by_scan: Callable[..., list[Array]]  # of value and pull: the results, computed by lax.scan

    def __init__(self, name: str) -> None:
        self.name, self.primitive = name, Primitive(f"fused_rollout_{name}")
        self.primitive.multiple_results = True
        self.primitive.def_abstract_eval(self._shapes)
        batching.primitive_batchers[self.primitive] = self._batched

    def keys(
        self,
        recurrence: Recurrence,
        keep: bool,
        live: Live,
        by: tuple[Key, ...] | None = None,
    ) -> tuple[list[Key], list[Key]]:
        """The keys of operands and results, in terms of F."""
        g, f = recurrence, recurrence.primal
        if self.name == "value":
            return start(g), results(g, keep)
        if self.name == "pull":
            return fixed(g) + cotangents(g, live), smooth(g, "g", START) if by is None else [*by]
        assert f is not None

        def tangents(keys: list[Key]) -> list[Key]:
            return [key for key in (below(g, key) for key in keys) if key[0].startswith("d")]

        if self.name == "push":
            return fixed(f) + tangents(start(g)), tangents(results(g, keep))
        linear, of_f = tangents(fixed(g) + cotangents(g, live)), live_below(g, live)
        assert of_f is not None
        return fixed(f) + cotangents(f, of_f) + linear, tangents(smooth(g, "g", START))

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
        found = self.primitive.bind(
            *cast(operands, axes_of(operands)), recurrence=recurrence, keep=keep, live=live, by=by,
            bodies=bodies, batched=tuple(flags[key] for key in inner),
        )  # fmt: skip
        return dict(zip(outer, found, strict=True))

    def named(
        self, operands: Sequence[Any], params: dict[str, Any]
    ) -> tuple[Arrays, Flags, list[Key]]:
        """Operands and flags by key, and the keys of the results."""
        inner, outer = self.keys_of(params)
        arrays = dict(zip(inner, operands, strict=True))
        return arrays, dict(zip(inner, params["batched"], strict=True)), outer

    def _shapes(self, *operands: Any, bodies: int | None, batched: Any, **params: Any) -> list[Any]:
        g = params["recurrence"]
        linear = self.name in ("push", "bend")
        likes = [
            shape_of(g.primal if linear else g, key, bodies) for key in self.keys_of(params)[1]
        ]
        count = g.count if linear else 1
        shapes = [(*x.shape[:-1], count * x.shape[-1]) for x in likes]
        return [typed(s, x.dtype, operands) for s, x in zip(shapes, likes, strict=True)]

    def _batched(
        self, operands: Sequence[Array], axes: Sequence[int | None], **params: Any
    ) -> tuple[list[Array], list[int | None]]:
        """The rule of vmap: one more axis of bodies, which is merged with that of the kernel.

        Where tangents alone are batched, the results that do not depend on them are not. Bodies
        that are sharded over devices stay so if theirs is the first of the merged axes: it is,
        unless tangents or cotangents alone are batched.
        """
        g, bodies = params["recurrence"], params["bodies"]
        size = next(x.shape[a] for x, a in zip(operands, axes, strict=True) if a is not None)
        inner, outer = self.keys_of(params)
        lifted = self in (value, pull) and g.primal is not None
        keys = [below(g, key) if lifted else key for key in inner]
        roles = {key[0] for key, axis in zip(keys, axes, strict=True) if axis is not None}
        apart = lifted and all(role.startswith("d") for role in roles)
        last = bodies is not None and roles.isdisjoint(("x", "kept", "y"))
        if apart and self is value and 2 * g.count <= TANGENTS:
            return _together(operands, axes, size, params)
        arrays = [
            _merged(x, axis, has, size, bodies, last)
            for x, axis, has in zip(operands, axes, params["batched"], strict=True)
        ]
        flags = [a is not None or has for a, has in zip(axes, params["batched"], strict=True)]
        many = size if bodies is None else size * bodies
        found = self.primitive.bind(*arrays, **params | {"bodies": many, "batched": tuple(flags)})
        if bodies is not None:
            sizes = (bodies, size) if last else (size, bodies)
            found = [x.reshape(*sizes, *x.shape[1:]) for x in found]
        if not apart:
            return found, [int(last)] * len(found)
        slopes = [below(g, key)[0].startswith("d") for key in outer]
        first = (slice(None), 0) if last else 0
        found = [x if d else x[first] for x, d in zip(found, slopes, strict=True)]
        return found, [int(last) if d else None for d in slopes]


def _merged(
    x: Array, axis: int | None, has: bool, size: int, bodies: int | None, last: bool
) -> Array:
    """An operand whose axis of bodies, if it has one, is ``size`` times as long.

    ``last``: the new axis is the last of the two that are merged, otherwise the first.
    """
    x = x if axis is None else jnp.moveaxis(x, axis, 0)
    if bodies is None or (axis is None and not has):
        return x
    x = x if axis is not None else x[None]
    x = x if has else x[:, None]
    x = jnp.broadcast_to(x, (size, bodies, *x.shape[2:]))
    x = x.swapaxes(0, 1) if last else x
    return x.reshape(size * bodies, *x.shape[2:])


value, push, pull, bend = (Rollout(name) for name in ("value", "push", "pull", "bend"))


def _together(
    operands: Sequence[Array], axes: Sequence[int | None], size: int, params: dict[str, Any]
) -> tuple[list[Array], list[int | None]]:
    """The rule of vmap where tangents alone are batched: they go through one loop.

    Where they are many, several loops of ``TANGENTS`` run as bodies of one kernel.
    """
    g, bodies, keep = params["recurrence"], params["bodies"], params["keep"]
    inner = min(size, TANGENTS // g.count)
    outer = -(-size // inner)
    count = g.count * inner
    more = g.primal.tangent(g.chosen["constants"], g.chosen["inputs"], g.still, count)
    primals: Arrays = {}
    tangents: Arrays = {}
    for key, x, axis in zip(start(g), operands, axes, strict=True):
        if below(g, key)[0] == "x":
            primals[key] = x
            continue
        x = jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        x = jnp.pad(x, [(0, outer * inner - size)] + [(0, 0)] * (x.ndim - 1))
        x = jnp.moveaxis(x.reshape(outer, inner, *x.shape[1:]), 1, -2)
        tangents[key] = x.reshape(*x.shape[:-2], -1)
    flags = dict(zip(start(g), params["batched"], strict=True))

    def run(tangents: Arrays) -> list[Array]:
        return list(value(primals | tangents, flags, more, bodies, keep=keep).values())

    if outer == 1:
        found = [x[None] for x in run({key: x[0] for key, x in tangents.items()})]
    else:
        found = jax.vmap(run)(tangents)
    arrays, out = [], []
    for key, x in zip(results(g, keep), found, strict=True):
        is_tangent = below(g, key)[0].startswith("d")
        if is_tangent:
            x = jnp.moveaxis(x.reshape(*x.shape[:-1], inner, -1), -2, 1)
            x = x.reshape(outer * inner, *x.shape[2:])[:size]
        arrays.append(x if is_tangent else x[0])
        out.append(0 if is_tangent else None)
    return arrays, out


def chosen(primitive: Rollout, compute: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
    """The results of a primitive, of a function that computes those without ``by``."""

    def results(*operands: Array, **params: Any) -> list[Array]:
        found = compute(primitive, *operands, **params)
        every, some = (primitive.keys_of(params | {"by": by})[1] for by in (None, params["by"]))
        named = dict(zip(every, found, strict=True))
        return [named[key] for key in some]

    return results


# What they are lowered to.

kernel = Primitive("fused_rollout_kernel")
kernel.multiple_results = True


@kernel.def_abstract_eval
def _kernel_shapes(
    *operands: Any, loop: Loop, kind: str, bodies: int | None, batched: tuple[bool, ...]
) -> list[Any]:
    first = () if bodies is None else (bodies,)
    return [
        typed((*first, *(() if rows is None else (rows,)), leaf.size), leaf.dtype, operands)
        for leaf, rows in loop.results(kind)
    ]


@functools.lru_cache(maxsize=loading.KEPT)
def _compiled(**params: Any) -> Callable[..., list[Array]]:
    return jax.jit(functools.partial(kernel.bind, **params))


@kernel.def_impl
def _computed(*operands: Array, **params: Any) -> list[Array]:
    # who asks for NaNs finds them in the results; JAX would run the kernel again and again for them
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        return _compiled(**params)(*operands)


def _lower_kernel(call: Callable[..., Callable[..., list[Array]]], platform: str) -> None:
    def lowered(*operands: Array, bodies: int | None, **params: Any) -> list[Array]:
        """A call of the kernel; one body has no axis (``bodies`` is None)."""
        found = call()(operands=operands, bodies=bodies or 1, **params)
        return found if bodies else [x[0] for x in found]

    def rule(context: Any, *operands: Any, **params: Any) -> Any:
        program = lowered
        if params["bodies"] and partitioning.devices(context) > 1:
            context, program = partitioning.with_mesh(context), by_device
        return mlir.lower_fun(program, multiple_results=True)(context, *operands, **params)

    def by_device(*operands: Array, bodies: int, **params: Any) -> list[Array]:
        function = functools.partial(kernel.bind, **params)
        return partitioning.by_device(function, bodies, params["batched"], operands)

    mlir.register_lowering(kernel, rule, platform=platform)


_lower_kernel(lambda: cpu.call, "cpu")
_lower_kernel(lambda: nvptx.call, "cuda")


def checked_loop(f: Recurrence, kind: str, live: Live | None = None) -> Loop:
    """The loop of a kernel.

    "keeping" and "backward" go together, as what a scan keeps is not what a kernel reads.

    Raises:
        NotScalarError: a program has no scalar form.
        NotImplementedError: the kernel has more arrays than the default platform allows.
    """
    if jax.default_backend() in ("gpu", "cuda"):
        kinds = ("forward",) if kind == "forward" else ("keeping", "backward")
        excess = nvptx.too_many_arrays(f.layout, kinds)
        if excess:
            raise NotImplementedError(f'{excess}; use engine="scan"')
    return f.differentiated(live) if kind == "backward" else f.loop


def _by_kernel(primitive: Rollout, *operands: Array, **params: Any) -> list[Array]:
    """The results of ``value`` or ``pull`` by a kernel, or by a scan where there can be none."""
    f, keep, live = params["recurrence"], params["keep"], params["live"]
    bodies, batched = params["bodies"], params["batched"]
    if bodies == 0:
        return [zeros(f, key, bodies) for key in primitive.keys(f, keep, live)[1]]
    kind = "backward" if primitive is pull else "keeping" if keep else "forward"
    if f.value_by_scan and f.primal is None and kind == "forward":
        return _by_scan(primitive, *operands, **params)
    try:
        loop = checked_loop(f, kind, live)
    except Exception as error:
        if f.strict:
            raise
        found = _by_scan(primitive, *operands, **params)
        report(error)
        return found
    if primitive is pull and params["by"] is not None:
        loop = loop.by({i for _, group, i in params["by"] if group == "constants"})
    return kernel.bind(*operands, loop=loop, kind=kind, bodies=bodies, batched=batched)


def _by_scan(primitive: Rollout, *operands: Array, **params: Any) -> list[Array]:
    """The same results by ``lax.scan``. Of what is kept the first state alone is right."""
    f, keep, live = params["recurrence"], params["keep"], params["live"]

    def value_of_one(*operands: Array) -> list[Array]:
        found = f.scanned(operands)
        if not keep:
            return found
        first = dict(zip(start(f), operands, strict=True))
        for key in whole(f, "kept", CARRY):
            kept, begin = zeros(f, key), first.get(("x", *key[1:]))
            found.append(kept if begin is None else kept.at[0].set(begin))
        return found

    def pull_of_one(*operands: Array) -> list[Array]:
        inner, outer = pull.keys(f, False, live)
        given = dict(zip(inner, operands, strict=True))
        x, _ = given_start(f, given, dict.fromkeys(given, False))
        floats = [("x", *key[1:]) for key in outer]

        def ends(chosen: list[Array]) -> list[Array]:
            arrays = x | dict(zip(floats, chosen, strict=True))
            found = f.scanned([arrays[key] for key in start(f)])
            y = dict(zip(results(f, keep=False), found, strict=True))
            return [y["y", *key[1:]] for key in cotangents(f, live)]

        back = jax.vjp(ends, [x[key] for key in floats])[1]
        return back([given[key] for key in cotangents(f, live)])[0]

    of_one = pull_of_one if primitive is pull else value_of_one
    if params["bodies"] is not None:
        axes = [0 if has else None for has in params["batched"]]
        of_one = jax.vmap(of_one, axes, axis_size=params["bodies"])
    return of_one(*operands)


def _lower(primitive: Rollout) -> None:
    by_kernel, by_scan = chosen(primitive, _by_kernel), chosen(primitive, _by_scan)
    primitive.by_scan = by_scan
    kernels, scans = (mlir.lower_fun(f, multiple_results=True) for f in (by_kernel, by_scan))

    def rule(context: Any, *operands: Any, **params: Any) -> Any:
        exported = context.module_context.lowering_parameters.for_export
        return (scans if exported else kernels)(context, *operands, **params)

    primitive.primitive.def_impl(by_kernel)
    checking.report(primitive.primitive, by_scan)
    mlir.register_lowering(primitive.primitive, scans)
    for platform in ("cpu", "cuda"):
        mlir.register_lowering(primitive.primitive, rule, platform=platform)


_lower(value)
_lower(pull)

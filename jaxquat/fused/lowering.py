"""What the primitives are lowered to: a kernel, or without a scalar form a ``lax.scan``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import mlir

from jaxquat._internal.collection import paused
from jaxquat._internal.varying import typed
from jaxquat.fused import cpu, keys, partitioning
from jaxquat.fused.errors import report
from jaxquat.fused.kernel import CACHED, CARRY, Loop
from jaxquat.fused.keys import Operand
from jaxquat.fused.primitives import LoopPrimitive, value, vjp
from jaxquat.fused.recurrence import Live, Recurrence
from jaxquat.fused.scanned import scanned
from jaxquat.fused.targets import nvptx

OPERATIONS = 30_000
"""The tangents of larger programs compile in minutes, and run no faster than by the scan."""

kernel = Primitive("fused_loop_kernel")
kernel.multiple_results = True


@kernel.def_abstract_eval
def _kernel_shapes(
    *operands: Any, loop: Loop, kind: str, members: int | None, batched: tuple[bool, ...]
) -> list[Any]:
    first = () if members is None else (members,)
    return [typed((*first, *x.shape), x.dtype, operands) for x in loop.results(kind)]


@functools.lru_cache(maxsize=CACHED)
def _compiled(**params: Any) -> Callable[..., list[Array]]:
    return jax.jit(functools.partial(kernel.bind, **params))


@kernel.def_impl
def _computed(*operands: Array, **params: Any) -> list[Array]:
    # JAX checks the results for NaN outside; to check here, it would run the kernel repeatedly
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        return _compiled(**params)(*operands)


def _lower_kernel(call: Callable[..., Callable[..., list[Array]]], platform: str) -> None:
    @paused()
    def lowered(*operands: Array, members: int | None, **params: Any) -> list[Array]:
        outputs = call()(operands=operands, members=members or 1, **params)
        return outputs if members else [x[0] for x in outputs]

    def rule(context: Any, *operands: Any, **params: Any) -> Any:
        program = lowered
        if params["members"] and partitioning.devices(context) > 1:
            context, program = partitioning.with_mesh(context), by_device
        return mlir.lower_fun(program, multiple_results=True)(context, *operands, **params)

    def by_device(*operands: Array, members: int, **params: Any) -> list[Array]:
        function = functools.partial(kernel.bind, **params)
        return partitioning.by_device(function, members, params["batched"], operands)

    mlir.register_lowering(kernel, rule, platform=platform)


_lower_kernel(lambda: cpu.call, "cpu")
_lower_kernel(lambda: nvptx.call, "cuda")


@paused()
def checked_loop(f: Recurrence, kind: str, live: Live | None = None) -> Loop:
    """Return the loop of a kernel; NotScalarError or NotImplementedError if there can be none."""
    if jax.default_backend() in ("gpu", "cuda"):
        kinds = ("forward",) if kind == "forward" else ("keeping", "backward")
        excess = nvptx.too_many_arrays(f.layout, kinds)
        if excess:
            raise NotImplementedError(f'{excess}; use engine="scan"')
    return f.with_vjp(live) if kind == "backward" else f.loop


def _by_kernel(primitive: LoopPrimitive, *operands: Array, **params: Any) -> list[Array]:
    f, keep, live, by = (params[name] for name in ("recurrence", "keep", "live", "by"))
    members, batched = params["members"], params["batched"]
    if members == 0:
        return [keys.zeros(f, key, members) for key in primitive.keys_of(params)[1]]
    kind = "backward" if primitive is vjp else "keeping" if keep else "forward"
    try:
        loop = None if is_for_scan(f, kind) else checked_loop(f, kind, live)
    except Exception as error:
        if f.strict:
            raise
        outputs = _by_scan(primitive, *operands, **params)  # errors in user functions come first
        report(error)
        return outputs
    if loop is None:
        return _by_scan(primitive, *operands, **params)
    if primitive is vjp and by is not None:
        loop = loop.by({key.number for key in by if key.group == "constants"})
    outputs = kernel.bind(*operands, loop=loop, kind=kind, members=members, batched=batched)
    if by is None:
        return outputs
    named = dict(zip(keys.gradients(f), outputs, strict=True))
    return [named[key] for key in by]


def is_for_scan(f: Recurrence, kind: str) -> bool:
    """Return whether ``lax.scan`` is the better program, although there may be a kernel."""
    if f.primal is None:
        return f.value_by_scan and kind == "forward"
    return not f.strict and f.operations > OPERATIONS


def _by_scan(primitive: LoopPrimitive, *operands: Array, **params: Any) -> list[Array]:
    """Return the same results by ``lax.scan``; only the first row of the residuals is right."""
    f = params["recurrence"]
    of_one = (
        functools.partial(_vjp_of_one, f, params["live"], params["by"])
        if primitive is vjp
        else functools.partial(_value_of_one, f, params["keep"])
    )
    if params["members"] is not None:
        axes = [0 if batched else None for batched in params["batched"]]
        of_one = jax.vmap(of_one, axes, axis_size=params["members"])
    return of_one(*operands)


def _value_of_one(f: Recurrence, keep: bool, *operands: Array) -> list[Array]:
    outputs = scanned(f, operands)
    if not keep:
        return outputs
    first = dict(zip(keys.primals(f), operands, strict=True))
    for key in keys.leaves(f, "residual", CARRY):
        kept, begin = keys.zeros(f, key), first.get(key.at("primal"))
        outputs.append(kept if begin is None else kept.at[0].set(begin))
    return outputs


def _vjp_of_one(f: Recurrence, live: Live, by: Any, *operands: Array) -> list[Array]:
    inner, outer = vjp.keys(f, False, live, by)
    arrays = {key: Operand(x, False) for key, x in zip(inner, operands, strict=True)}
    x = {key: x for key, (x, _) in keys.primals_at(f, arrays).items()}
    smooth = [key.at("primal") for key in outer]

    def ends(of_smooth: list[Array]) -> list[Array]:
        merged = x | dict(zip(smooth, of_smooth, strict=True))
        outputs = scanned(f, [merged[key] for key in keys.primals(f)])
        named = dict(zip(keys.results(f, keep=False), outputs, strict=True))
        return [named[key.at("result")] for key in keys.cotangents(f, live)]

    back = jax.vjp(ends, [x[key] for key in smooth])[1]
    return back([arrays[key].array for key in keys.cotangents(f, live)])[0]


def _lower(primitive: LoopPrimitive) -> None:
    by_kernel, by_scan = (functools.partial(f, primitive) for f in (_by_kernel, _by_scan))
    primitive.by_scan = by_scan
    primitive.define(by_kernel, by_scan)
    kernels, scans = (mlir.lower_fun(f, multiple_results=True) for f in (by_kernel, by_scan))

    def rule(context: Any, *operands: Any, **params: Any) -> Any:
        exported = context.module_context.lowering_parameters.for_export
        return (scans if exported else kernels)(context, *operands, **params)

    for platform in ("cpu", "cuda"):
        mlir.register_lowering(primitive.primitive, rule, platform=platform)


_lower(value)
_lower(vjp)

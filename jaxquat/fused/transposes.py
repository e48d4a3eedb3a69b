"""The derivatives of the fused loop in reverse mode: the linear parts, and their transposes.

JAX computes the known part, stages the part that is linear in the unknown directions
(``derivatives``), and transposes it:

- ``jvp`` with respect to dx: ``vjp`` of F;
- ``jvp_of_vjp`` with respect to (dx, db), for cotangents c: the Hessian of b F is symmetric, so c
  plays the role of dx. The cotangent of dx is b F''(x) c, ``vjp`` of the tangent of F along c; that
  of db is F'(x) c, ``value`` of that tangent;
- ``vjp`` with respect to b: ``jvp``.

The rules of ``jax.checkpoint`` follow: the known part is computed before the backward pass, and
everything again within it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax import Array
from jax.interpreters import ad
from jax.interpreters import partial_eval as pe

from jaxquat._internal.varying import shaped
from jaxquat.fused import keys
from jaxquat.fused.derivatives import gradients_of, is_zero, tangent_along
from jaxquat.fused.kernel import ENDS, START
from jaxquat.fused.keys import Key, Operand, Operands
from jaxquat.fused.primitives import (
    LoopPrimitive,
    apart,
    by_key,
    jvp,
    jvp_of_vjp,
    together,
    value,
    vjp,
)  # fmt: skip
from jaxquat.fused.recurrence import Recurrence

Arrays = dict[Key, Any]

# The linear parts.


def _call_of_f(
    primitive: LoopPrimitive, params: dict[str, Any], unknown: Iterable[Key]
) -> dict[str, Any] | None:
    """Return parameters for a call of G as one of F, where only tangents are unknown; else None."""
    g, f = params["recurrence"], params["recurrence"].primal
    if f is None or not all(keys.primal_key(g, key).is_tangent for key in unknown):
        return None
    live = keys.live_of_primal(g, params["live"])
    if live is None:
        return None
    outer = (keys.primal_key(g, key) for key in primitive.keys_of(params)[1])
    by = tuple(key for key in outer if not key.is_tangent) if primitive is vjp else None
    return params | {"recurrence": f, "live": live, "by": by}


def _split(
    primitive: LoopPrimitive, linear: LoopPrimitive, trace: Any, *tracers: Any, **params: Any
) -> list[Any]:
    """Split ``primitive`` of G into that of F, computed now, and ``linear``, which is staged."""
    g, members = params["recurrence"], params["members"]
    arrays, outer = primitive.named(tracers, params)
    unknown = [key for key, x in arrays.items() if not x.array.is_known()]
    of_f = _call_of_f(primitive, params, unknown)
    if of_f is None or not unknown or (primitive is vjp and g.tangents.directions > 1):
        return trace.default_process_primitive(primitive.primitive, tracers, params)
    arrays = keys.of_primal(g, arrays)
    f, live, by = (of_f[name] for name in ("recurrence", "live", "by"))
    keep = primitive is value
    known = _known(arrays, primitive.keys(f, keep, live, by)[0])
    y = {} if by == () else primitive(known, f, members, keep, live, by)
    y = _constants(trace, y)
    y |= _staged(trace, linear, arrays | y, params | {"by": None})
    return [y[keys.primal_key(g, key)].array for key in outer]


def _known(arrays: Operands, names: Sequence[Key]) -> Operands:
    return {key: Operand(arrays[key].array.pval.get_known(), arrays[key].batched) for key in names}


def _constants(trace: Any, arrays: Operands) -> Operands:
    return {key: Operand(trace.new_const(x), batched) for key, (x, batched) in arrays.items()}


def _staged(
    trace: Any, primitive: LoopPrimitive, arrays: Operands, params: dict[str, Any]
) -> Operands:
    inner, outer = primitive.keys_of(params)
    params = params | {"batched": tuple(arrays[key].batched for key in inner)}
    operands = [arrays[key].array for key in inner]
    outputs = trace.default_process_primitive(primitive.primitive, operands, params)
    return by_key(outer, outputs, params["members"])


pe.custom_partial_eval_rules[value.primitive] = functools.partial(_split, value, jvp)
pe.custom_partial_eval_rules[vjp.primitive] = functools.partial(_split, vjp, jvp_of_vjp)


# Their transposes.


def _transpose_jvp(cs: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    """Transpose ``jvp`` by ``vjp`` of F; several directions are a ``jax.vmap`` of it."""
    g, members = params["recurrence"], params["members"]
    numbers, _, count = g.tangents
    arrays, outer = jvp.named(operands, params)
    c = {key: x for key, x in zip(outer, cs, strict=True) if not is_zero(x)}
    asked = {Key("gradient", group, i) for group in START for i in numbers[group]}
    of_one = functools.partial(_vjp_at, g.primal, arrays, members, asked)
    if count == 1:
        return _of_operands(arrays, members, of_one(c).get)

    apart_c = jax.tree.map(lambda x: apart(x, count), c)
    by_dx = jax.tree.map(together, jax.vmap(of_one)(apart_c))
    return _of_operands(arrays, members, by_dx.get)


def _vjp_at(
    f: Recurrence, arrays: Operands, members: int | None, asked: set[Key], c: Arrays
) -> Arrays:
    """Return the cotangents ``asked`` of dx, from those of F'(x) dx that are not 0."""
    live = tuple(key.place for key in keys.floats(f, "result", ENDS) if key.tangent in c)
    by_dx: Arrays = {}
    if live:
        b = {key: c.get(key.at("result").tangent) for key in keys.cotangents(f, live)}
        # leave out unused constants, for which 0 times an infinite slope would be NaN
        unused = {Key("gradient", "constants", i) for i in f.unused(live)}
        by = tuple(key for key in keys.gradients(f) if key in asked - unused)
        y = vjp(arrays | _filled(f, b, members), f, members, live=live, by=by) if by else {}
        by_dx = {key.at("primal").tangent: x for key, (x, _) in y.items()}
    for key, x in c.items():
        if key.role == "residual" and key.group in START:  # the first one is the start
            of_start, first = key.at("primal"), x[..., 0, :]
            by_dx[of_start] = by_dx[of_start] + first if of_start in by_dx else first
    return by_dx


def _filled(f: Recurrence, arrays: Arrays, members: int | None) -> Operands:
    full = [keys.zeros(f, k, members) if x is None or is_zero(x) else x for k, x in arrays.items()]
    return by_key(list(arrays), full, members)


def _transpose_jvp_of_vjp(cs: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    g, members = params["recurrence"], params["members"]
    f, live = g.primal, keys.live_of_primal(g, params["live"])
    assert live is not None
    arrays, outer = jvp_of_vjp.named(operands, params)
    c = {key.primal.at("primal"): x for key, x in zip(outer, cs, strict=True)}
    constant = dict.fromkeys(keys.cotangents(f, live))
    tangents = {key.tangent: x for key, x in _filled(f, c | constant, members).items()}
    x = arrays | keys.primals_at(f, arrays) | tangents
    h, more = tangent_along(f, c), keys.live_of_tangent(f, live)
    y = keys.of_primal(h, value(keys.of_tangent(h, keys.primals(h), x), h, members, keep=True))
    lifted = keys.of_tangent(h, keys.point(h) + keys.cotangents(h, more), x | y)
    by = gradients_of(h, [key.tangent for key in keys.gradients(f)])
    z = keys.of_primal(h, vjp(lifted, h, members, live=more, by=by))

    def cotangent(key: Key) -> Any:
        if key.role == "cotangent":
            return y[key.at("result")].array
        if key.role == "primal":
            return z[key.at("gradient")].array
        if key.role == "residual" and key.group in START:
            by_start = z[key.at("gradient")].array
            return keys.zeros(f, key.primal, members).at[..., 0, :].set(by_start)
        return None

    return _of_operands(arrays, members, cotangent)


def _of_operands(
    operands: Operands, members: int | None, cotangent: Callable[[Key], Any]
) -> list[Any]:
    outputs = []
    for key, (x, batched) in operands.items():
        if not ad.is_undefined_primal(x):
            outputs.append(None)
            continue
        c = cotangent(key)
        if c is not None and members is not None and not batched:
            c = c.sum(0)
        outputs.append(ad.Zero(x.aval) if c is None else c)
    return outputs


def _transpose_vjp(cs: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    """Transpose ``vjp`` by ``jvp`` if only the cotangents b are undefined, else by the scan."""
    f, members = params["recurrence"], params["members"]
    arrays, outer = vjp.named(operands, params)
    if any(ad.is_undefined_primal(arrays[key].array) for key in keys.point(f)):
        return _transpose_by_scan(vjp, cs, *operands, **params)
    zero = {key: ad.Zero(jax.typeof(keys.zeros(f, key, members))) for key in keys.gradients(f)}
    c = zero | dict(zip(outer, cs, strict=True))
    dx = {key.at("primal"): x for key, x in c.items()}
    tangents = {key.tangent: x for key, x in _filled(f, dx, members).items()}
    y = jvp(arrays | tangents, tangent_along(f, dx), members)
    return _of_operands(arrays, members, lambda key: y[key.at("result").tangent].array)


def _transpose_by_scan(
    primitive: LoopPrimitive, cs: Sequence[Any], *operands: Any, **params: Any
) -> list[Any]:
    """Transpose a primitive, linear in its undefined operands, by transposing the scan."""
    unknown = [k for k, x in enumerate(operands) if ad.is_undefined_primal(x)]
    types = [operands[k].aval for k in unknown]
    specs = [shaped(kind.shape, kind.dtype, kind) for kind in types]
    linear = [k for k, c in enumerate(cs) if not is_zero(c)]

    def of_unknown(arrays: list[Array]) -> list[Array]:
        merged = list(operands)
        for k, x in zip(unknown, arrays, strict=True):
            merged[k] = x
        results = primitive.by_scan(*merged, **params)
        return [results[k] for k in linear]

    (gradient,) = jax.linear_transpose(of_unknown, specs)([cs[k] for k in linear])
    return [gradient[unknown.index(k)] if k in unknown else None for k in range(len(operands))]


ad.primitive_transposes[value.primitive] = functools.partial(_transpose_by_scan, value)
ad.primitive_transposes[vjp.primitive] = _transpose_vjp
ad.primitive_transposes[jvp.primitive] = _transpose_jvp
ad.primitive_transposes[jvp_of_vjp.primitive] = _transpose_jvp_of_vjp


# jax.checkpoint.


def _checkpointed(primitive: LoopPrimitive) -> Callable[..., Any]:
    def rule(saveable: Any, unknown: Sequence[bool], there: Sequence[bool], equation: Any) -> Any:
        params, variables = equation.params, equation.invars
        needed = [v for v, t in zip(variables, there, strict=True) if not (t or hasattr(v, "val"))]
        count = len(equation.outvars)
        if not any(unknown):
            saved = saveable(equation.primitive, *(v.aval for v in variables), **params)
            if saved is True or type(saved).__name__ == "SaveableType":
                return equation, None, [False] * count, [False] * count, []
            return equation, equation, [False] * count, [True] * count, needed
        known, late = _known_part(primitive, equation, unknown)
        return known, equation, late, [True] * count, needed

    return rule


def _known_part(
    primitive: LoopPrimitive, equation: Any, unknown: Sequence[bool]
) -> tuple[Any, list[bool]]:
    """Return the equation of F if only tangents of G are unknown, or None; and unknown results."""
    g = equation.params["recurrence"]
    x, outer = primitive.named(equation.invars, equation.params)
    late = [key for key, u in zip(x, unknown, strict=True) if u]
    params = _call_of_f(primitive, equation.params, late)
    if params is None or params["by"] == ():
        return None, [True] * len(outer)
    x = keys.of_primal(g, x)
    y = {keys.primal_key(g, key): v for key, v in zip(outer, equation.outvars, strict=True)}
    inner, outer = primitive.keys_of(params)
    known = equation.replace(
        invars=[x[key].array for key in inner],
        outvars=[y[key] for key in outer],
        params=params | {"batched": tuple(x[key].batched for key in inner)},
    )
    return known, [key not in outer for key in y]


pe.partial_eval_jaxpr_custom_rules[value.primitive] = _checkpointed(value)
pe.partial_eval_jaxpr_custom_rules[vjp.primitive] = _checkpointed(vjp)

"""The derivatives of the fused rollout in reverse mode: the linear parts, and their transposes.

JAX computes the known part, stages the part that is linear in the unknown directions, and
transposes the linear part. ``derivatives`` says what these parts are. The transposes are:

- ``jvp`` with respect to dx: ``vjp`` of F;
- ``jvp_of_vjp`` with respect to (dx, db): let c be the cotangents of its results. The Hessian of
  b F is symmetric, so c can play the role of dx. The cotangent of dx is b F''(x) c, which is
  ``vjp`` of the tangent of F along c. The cotangent of db is F'(x) c, which is ``value`` of that
  tangent;
- ``vjp`` with respect to b: ``jvp``.

The last part of this file has the rules of ``jax.checkpoint``: the known part is computed before
the backward pass, and everything is computed again within it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.interpreters import ad
from jax.interpreters import partial_eval as pe

from jaxquat._internal.varying import shaped
from jaxquat.fused.derivatives import (
    gradients_of,
    is_zero,
    of_primal,
    of_tangent,
    tangent_along,
)
from jaxquat.fused.keys import (
    START,
    Arrays,
    Flags,
    Key,
    below,
    cotangents,
    floats,
    gradients,
    live_below,
    live_of,
    point,
    primals,
    primals_at,
    zeros,
)
from jaxquat.fused.primitives import Rollout, jvp, jvp_of_vjp, value, vjp
from jaxquat.fused.recurrence import ENDS, Recurrence

# The linear parts.


def _split_value(trace: Any, *tracers: Any, **params: Any) -> list[Any]:
    """Split ``value`` of G into ``value`` of F, computed now, and ``jvp``, which is staged."""
    g, f, bodies = params["recurrence"], params["recurrence"].primal, params["bodies"]
    arrays, flags, outer = value.named(tracers, params)
    unknown = [key for key, x in arrays.items() if not x.is_known()]
    if g.primal is None or not unknown or not all(below(g, k).is_tangent for k in unknown):
        return trace.default_process_primitive(value.primitive, tracers, params)
    arrays, flags = of_primal(g, arrays), of_primal(g, flags)
    known = {key: arrays[key].pval.get_known() for key in primals(f)}
    y = value(known, flags, f, bodies, keep=True)
    arrays |= {key: trace.new_const(x) for key, x in y.items()}
    flags |= dict.fromkeys(y, bodies is not None)
    arrays |= _staged(trace, jvp, arrays, flags, params)
    return [arrays[below(g, key)] for key in outer]


def _split_vjp(trace: Any, *tracers: Any, **params: Any) -> list[Any]:
    """Split ``vjp`` of G into ``vjp`` of F, computed now, and ``jvp_of_vjp``, which is staged."""
    g, f, bodies = params["recurrence"], params["recurrence"].primal, params["bodies"]
    unsplit = lambda: trace.default_process_primitive(vjp.primitive, tracers, params)  # noqa: E731
    live = live_below(g, params["live"]) if f is not None and g.tangents.directions == 1 else None
    if f is None or live is None or all(x.is_known() for x in tracers):
        return unsplit()
    arrays, flags, outer = vjp.named(tracers, params)
    arrays, flags = of_primal(g, arrays), of_primal(g, flags)
    inner = point(f) + cotangents(f, live)
    if not all(arrays[key].is_known() for key in inner):
        return unsplit()
    known = {key: arrays[key].pval.get_known() for key in inner}
    by = tuple(key for key in (below(g, key) for key in outer) if not key.is_tangent)
    y = vjp(known, flags, f, bodies, live=live, by=by) if by else {}
    slopes = _staged(trace, jvp_of_vjp, arrays, flags, params | {"by": None})
    y = {key: trace.new_const(x) for key, x in y.items()} | slopes
    return [y[below(g, key)] for key in outer]


def _staged(
    trace: Any, primitive: Rollout, arrays: Arrays, flags: Flags, params: dict[str, Any]
) -> Arrays:
    """The results of a primitive that is computed once its unknown operands are known."""
    inner, outer = primitive.keys_of(params)
    params = params | {"batched": tuple(flags[key] for key in inner)}
    operands = [arrays[key] for key in inner]
    outputs = trace.default_process_primitive(primitive.primitive, operands, params)
    return dict(zip(outer, outputs, strict=True))


pe.custom_partial_eval_rules[value.primitive] = _split_value
pe.custom_partial_eval_rules[vjp.primitive] = _split_vjp


# Their transposes.


def _transpose_jvp(cs: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    g, bodies = params["recurrence"], params["bodies"]
    numbers, _, count = g.tangents
    arrays, flags, outer = jvp.named(operands, params)
    c = {key: x for key, x in zip(outer, cs, strict=True) if not is_zero(x)}
    asked = {Key("gradient", group, i) for group in START for i in numbers[group]}
    of_one = functools.partial(_vjp_at, g.primal, arrays, flags, bodies, asked)
    if count == 1:
        return _of_operands(arrays, flags, bodies, of_one(c).get)

    def apart(x: Array) -> Array:
        return jnp.moveaxis(x.reshape(*x.shape[:-1], count, x.shape[-1] // count), -2, 0)

    def together(x: Array) -> Array:
        x = jnp.moveaxis(x, 0, -2)
        return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])

    by_dx = jax.tree.map(together, jax.vmap(of_one)(jax.tree.map(apart, c)))
    return _of_operands(arrays, flags, bodies, by_dx.get)


def _vjp_at(
    f: Recurrence, arrays: Arrays, flags: Flags, bodies: int | None, asked: set[Key], c: Arrays
) -> Arrays:
    """The cotangents of the directions dx; ``c`` has the nonzero cotangents of F'(x) dx.

    ``asked``: the gradients that are needed.
    """
    ends = floats(f, "result", ENDS)
    live = tuple(key.place for key in ends if key.tangent in c)
    by_dx: Arrays = {}
    if live:
        inner = {key: arrays[key] for key in point(f)}
        marks = {key: flags[key] for key in inner}
        for key in cotangents(f, live):
            b = c.get(key.at("result").tangent)
            inner[key] = zeros(f, key.at("result"), bodies) if b is None else b
            marks[key] = bodies is not None
        # leave out unused constants, for which 0 times an infinite slope would be NaN
        unused = {Key("gradient", "constants", i) for i in f.unused(live)}
        by = tuple(key for key in gradients(f) if key in asked - unused)
        y = vjp(inner, marks, f, bodies, live=live, by=by) if by else {}
        by_dx = {key.at("primal").tangent: x for key, x in y.items()}
    for key, x in c.items():
        if key.role == "residual" and key.group in START:  # the first one is the start
            of_start, first = key.at("primal"), x[..., 0, :]
            by_dx[of_start] = by_dx[of_start] + first if of_start in by_dx else first
    return by_dx


def _transpose_jvp_of_vjp(cs: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    """Transpose ``jvp_of_vjp`` by the tangent of F along the cotangents."""
    g, bodies = params["recurrence"], params["bodies"]
    f, live = g.primal, live_below(g, params["live"])
    assert live is not None
    arrays, flags, outer = jvp_of_vjp.named(operands, params)
    c = {key.primal.at("primal"): x for key, x in zip(outer, cs, strict=True)}
    h = tangent_along(f, c)
    x, marks = primals_at(f, arrays, flags)
    inner, marks = arrays | x, flags | marks

    def add(more: Arrays) -> None:
        inner.update(more)
        marks.update(dict.fromkeys(more, bodies is not None))

    add({key.tangent: zeros(f, key, bodies) if is_zero(x) else x for key, x in c.items()})
    y = of_primal(h, value(*of_tangent(h, primals(h), inner, marks), h, bodies, keep=True))
    constant = cotangents(f, live)
    add(y | {key.tangent: zeros(f, key.at("result"), bodies) for key in constant})
    more = live_of(f, live)
    lifted = of_tangent(h, point(h) + cotangents(h, more), inner, marks)
    by = gradients_of(h, [key.tangent for key in gradients(f)])
    z = of_primal(h, vjp(*lifted, h, bodies, live=more, by=by))

    def cotangent(key: Key) -> Any:
        by_x = key.at("gradient")
        if key.role == "cotangent":
            return y[key.at("result")]
        if key.role == "primal":
            return z[by_x]
        if key.role == "residual" and key.group in START:
            return zeros(f, key.primal, bodies).at[..., 0, :].set(z[by_x])
        return None

    return _of_operands(arrays, flags, bodies, cotangent)


def _of_operands(
    arrays: Arrays, flags: Flags, bodies: int | None, cotangent: Callable[[Key], Any]
) -> list[Any]:
    """What a transpose returns: a cotangent for each operand in which the primitive is linear."""
    outputs = []
    for key, x in arrays.items():
        if not ad.is_undefined_primal(x):
            outputs.append(None)
            continue
        c = cotangent(key)
        if c is not None and bodies is not None and not flags[key]:
            c = c.sum(0)
        outputs.append(ad.Zero(x.aval) if c is None else c)
    return outputs


def _transpose_value(cs: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    """Transpose ``value``, linear in its undefined operands, by transposing the scan."""
    return _transpose_by_scan(value, cs, operands, params)


def _transpose_vjp(cs: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    """Transpose ``vjp`` by ``jvp`` if only the cotangents b are undefined, else by the scan."""
    f, bodies = params["recurrence"], params["bodies"]
    arrays, flags, outer = vjp.named(operands, params)
    if any(ad.is_undefined_primal(arrays[key]) for key in point(f)):
        return _transpose_by_scan(vjp, cs, operands, params)
    c = dict(zip(outer, cs, strict=True))
    still = {key: ad.Zero(jax.typeof(zeros(f, key, bodies))) for key in floats(f, "primal", START)}
    dx = {key: c.get(key.at("gradient"), zero) for key, zero in still.items()}
    h = tangent_along(f, dx)
    full = {k.tangent: zeros(f, k, bodies) if is_zero(x) else x for k, x in dx.items()}
    y = jvp(arrays | full, flags | dict.fromkeys(full, bodies is not None), h, bodies)
    return _of_operands(arrays, flags, bodies, lambda key: y[key.at("result").tangent])


def _transpose_by_scan(
    primitive: Rollout, cs: Sequence[Any], operands: Sequence[Any], params: dict[str, Any]
) -> list[Any]:
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


ad.primitive_transposes[value.primitive] = _transpose_value
ad.primitive_transposes[vjp.primitive] = _transpose_vjp
ad.primitive_transposes[jvp.primitive] = _transpose_jvp
ad.primitive_transposes[jvp_of_vjp.primitive] = _transpose_jvp_of_vjp


# jax.checkpoint.


def _checkpointed(primitive: Rollout) -> Callable[..., Any]:
    def rule(saveable: Any, unknown: Sequence[bool], there: Sequence[bool], equation: Any) -> Any:
        params, variables = equation.params, equation.invars
        needed = [v for v, t in zip(variables, there, strict=True) if not (t or hasattr(v, "val"))]
        count = len(equation.outvars)
        if not any(unknown):
            types = [variable.aval for variable in variables]
            if _is_saved(saveable(equation.primitive, *types, **params)):
                return equation, None, [False] * count, [False] * count, []
            return equation, equation, [False] * count, [True] * count, needed
        known, late = _known_part(primitive, equation, unknown)
        return known, equation, late, [True] * count, needed

    return rule


def _is_saved(verdict: Any) -> bool:
    """Whether the verdict of a ``jax.checkpoint`` policy is to save the results."""
    return verdict is True or type(verdict).__name__ == "SaveableType"


def _known_part(
    primitive: Rollout, equation: Any, unknown: Sequence[bool]
) -> tuple[Any, list[bool]]:
    """The equation of F if only tangents are unknown in the equation of G, otherwise None.

    Also returns which results of the equation of G are unknown.
    """
    params = equation.params
    g, live = params["recurrence"], params["live"]
    inner, outer = primitive.keys_of(params)
    all_unknown = None, [True] * len(outer)
    late = [key for key, u in zip(inner, unknown, strict=True) if u]
    if g.primal is None or not all(below(g, key).is_tangent for key in late):
        return all_unknown
    names = (below(g, key) for key in outer)
    by = tuple(key for key in names if key.role == "gradient" and not key.is_tangent)
    if primitive is vjp and not by:
        return all_unknown
    live = tuple((group, i) for group, i in live if i < len(g.primal.specs[group]))
    of_f = params | {"recurrence": g.primal, "live": live, "by": by or None}
    x = {below(g, key): v for key, v in zip(inner, equation.invars, strict=True)}
    flags = {below(g, key): has for key, has in zip(inner, params["batched"], strict=True)}
    y = {below(g, key): v for key, v in zip(outer, equation.outvars, strict=True)}
    inner, outer = primitive.keys_of(of_f)
    known = equation.replace(
        invars=[x[key] for key in inner],
        outvars=[y[key] for key in outer],
        params=of_f | {"batched": tuple(flags[key] for key in inner)},
    )
    return known, [key not in outer for key in y]


pe.partial_eval_jaxpr_custom_rules[value.primitive] = _checkpointed(value)
pe.partial_eval_jaxpr_custom_rules[vjp.primitive] = _checkpointed(vjp)

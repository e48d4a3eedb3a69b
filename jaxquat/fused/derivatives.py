"""The derivatives of the fused loop in forward mode, and their linear parts.

Let G be the tangent of F, the function (x, dx) -> (F(x), F'(x) dx). Three rules give all orders:

- the derivative of ``value`` of F is ``value`` of G: primal and tangent in one loop;
- the derivative of ``vjp`` of F, with cotangents db of F(x) and b of F'(x) dx, is ``vjp`` of G:
  (x, dx) -> db F(x) + b F'(x) dx has the derivative b F''(x) dx + db F'(x) with respect to x, which
  is that of ``vjp`` of F along (dx, db), and b F'(x) with respect to dx, the value of ``vjp``;
- reverse mode needs the linear part alone (``transposes``). So where only the directions are
  unknown, ``value`` of G is split into ``value`` of F, with its residuals, and ``jvp``; ``vjp`` of
  G is split into ``vjp`` of F and ``jvp_of_vjp``.

Residuals are functions of x, so only the total cotangent of x matters: the first one receives the
cotangent of the start, and the others receive 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
from jax import Array
from jax.interpreters import ad

from jaxquat.fused import keys
from jaxquat.fused.errors import NotScalarError
from jaxquat.fused.kernel import START
from jaxquat.fused.keys import Key, Operands
from jaxquat.fused.primitives import LoopPrimitive, jvp, jvp_of_vjp, value, vjp
from jaxquat.fused.recurrence import Recurrence

Tangents = dict[Key, Any]  # by the key of the primal array; the arrays may be symbols for 0


def is_zero(x: Any) -> bool:
    """Return whether a tangent or cotangent is JAX's symbol for 0."""
    return type(x) is ad.Zero


def tangent_along(f: Recurrence, tangents: Tangents) -> Recurrence:
    """Return the tangent of F in the leaves of x, or of residuals, whose tangent is not zero."""
    moving = {
        key.place for key, x in tangents.items()
        if key.role in ("primal", "residual") and not is_zero(x)
    }  # fmt: skip
    constants, inputs = (
        tuple(i for i in f.smooth(group) if (group, i) in moving) for group in START[:2]
    )
    return f.tangent(constants, inputs, f.unmoved(moving))


def gradients_of(g: Recurrence, names: Collection[Key]) -> tuple[Key, ...]:
    """Return the gradients of G whose keys in terms of F are among ``names``."""
    return tuple(key for key in keys.gradients(g) if keys.primal_key(g, key) in names)


def _with_tangents(
    g: Recurrence, names: Collection[Key], arrays: Operands, tangents: Tangents
) -> Operands:
    moved = {key.tangent: x._replace(array=tangents[key]) for key, x in arrays.items()}
    operands = keys.of_tangent(g, names, arrays | moved)
    return {key: x._replace(array=ad.instantiate_zeros(x.array)) for key, x in operands.items()}


def _with_slopes(y: Operands, names: Sequence[Key]) -> tuple[list[Any], list[Any]]:
    values = [y[key].array for key in names]
    slopes = [
        y[key.tangent].array if key.tangent in y else ad.Zero(jax.typeof(x).to_tangent_aval())
        for key, x in zip(names, values, strict=True)
    ]
    return values, slopes


# Forward mode.


def _jvp_of_value(xs: Any, tangents: Any, **params: Any) -> tuple[list[Any], list[Any]]:
    f, keep = params["recurrence"], params["keep"]
    if keep and f.has_rules:  # residuals are for a first derivative; this is the second
        return _jvp_by_scan(value, xs, tangents, params | {"recurrence": f.by_rules})
    x, outer = value.named(xs, params)
    dx = dict(zip(x, tangents, strict=True))
    g = tangent_along(f, dx)
    y = value(_with_tangents(g, keys.primals(g), x, dx), g, params["members"], keep=keep)
    assert g.tangents is not None
    still = g.tangents.zero
    y = {k: r for k, r in keys.of_primal(g, y).items() if not (k.is_tangent and k.place in still)}
    return _with_slopes(y, outer)


def _jvp_of_vjp(xs: Any, tangents: Any, **params: Any) -> tuple[list[Any], list[Any]]:
    f, live, members = params["recurrence"], params["live"], params["members"]
    if f.has_rules:
        return _jvp_by_scan(vjp, xs, tangents, params)
    x, outer = vjp.named(xs, params)
    dx = dict(zip(x, tangents, strict=True))
    g = tangent_along(f, dx)
    moved = tuple(place for place in live if not is_zero(dx[Key("cotangent", *place)]))
    more = keys.live_of_tangent(f, live, moved)
    lifted = _with_tangents(g, keys.point(g) + keys.cotangents(g, more), x, dx)
    # leave out tangents of 0: 0 times an infinite slope would be NaN
    unused = {keys.primal_key(g, Key("gradient", "constants", i)) for i in g.unused(more)}
    by = gradients_of(g, {*outer, *(key.tangent for key in outer if key.tangent not in unused)})
    y = keys.of_primal(g, vjp(lifted, g, members, live=more, by=by))
    constant = tuple(key for key in outer if key not in y)  # along arrays without tangents
    if constant:
        y |= vjp(x, f, members, live=live, by=constant)
    return _with_slopes(y, outer)


def _jvp_by_scan(
    primitive: LoopPrimitive, xs: Any, tangents: Any, params: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """Differentiate by ``lax.scan``; ``vjp`` of the tangent would reverse the order of rules."""
    if params["recurrence"].strict:
        raise NotScalarError(
            "a second derivative of a function with a custom derivative: wanted jax.custom_jvp and "
            'a rule that calls the function itself for its value; use engine="auto" or "scan"'
        )
    return _jvp_of(functools.partial(primitive.by_scan, **params), xs, tangents)


def _jvp_of(
    function: Callable[..., list[Array]], xs: Any, tangents: Any
) -> tuple[list[Any], list[Any]]:
    moving = [k for k, x in enumerate(tangents) if not is_zero(x)]

    def of_moving(*moved: Any) -> list[Array]:
        operands = list(xs)
        for k, x in zip(moving, moved, strict=True):
            operands[k] = x
        return function(*operands)

    return jax.jvp(of_moving, [xs[k] for k in moving], [tangents[k] for k in moving])


ad.primitive_jvps[value.primitive] = _jvp_of_value
ad.primitive_jvps[vjp.primitive] = _jvp_of_vjp


# The linear parts are computed, and differentiated, as parts of ``value`` and ``vjp`` of G.


def _define(primitive: LoopPrimitive, whole: LoopPrimitive) -> None:
    def function(*operands: Array, **params: Any) -> list[Array]:
        g, options = params["recurrence"], {name: params[name] for name in ("keep", "live")}
        x, outer = primitive.named(operands, params)
        by = gradients_of(g, outer) if whole is vjp else None
        inner, _ = whole.keys(g, **options)
        lifted = keys.of_tangent(g, inner, x | keys.primals_at(g.primal, x))
        y = keys.of_primal(g, whole(lifted, g, params["members"], by=by, **options))
        return [y[key].array for key in outer]

    def rule(xs: Any, tangents: Any, **params: Any) -> Any:
        return _jvp_of(functools.partial(function, **params), xs, tangents)

    primitive.define(function)
    ad.primitive_jvps[primitive.primitive] = rule


_define(jvp, value)
_define(jvp_of_vjp, vjp)

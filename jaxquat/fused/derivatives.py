"""The derivatives of the fused rollout in forward mode, and their linear parts.

Let G be the tangent of F, the function (x, dx) -> (F(x), F'(x) dx). All derivatives, of any order,
follow from three rules:

- the derivative of ``value`` of F is ``value`` of G: primal and tangent in one loop;
- the derivative of ``vjp`` of F, with cotangents db of F(x) and b of F'(x) dx, is ``vjp`` of G,
  because the function (x, dx) -> db F(x) + b F'(x) dx has the derivatives

      with respect to x:   b F''(x) dx + db F'(x)
      with respect to dx:  b F'(x)

  The first is the derivative of ``vjp`` of F in the direction (dx, db), the second its value;
- reverse mode needs the linear part alone, to transpose it (``transposes``). So where only the
  directions are unknown, ``value`` of G is split into ``value`` of F, with its residuals, and
  ``jvp``; ``vjp`` of G is split into ``vjp`` of F and ``jvp_of_vjp``.

Residuals are functions of x, so only the total cotangent of x matters, not which residual receives
it: the first one receives the cotangent of the start, and the others receive 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.interpreters import ad, mlir

from jaxquat.fused import checking
from jaxquat.fused.errors import NotScalarError
from jaxquat.fused.keys import (
    START,
    Arrays,
    Flags,
    Key,
    below,
    cotangents,
    gradients,
    live_of,
    point,
    primals,
    primals_at,
)
from jaxquat.fused.primitives import Rollout, jvp, jvp_of_vjp, value, vjp
from jaxquat.fused.recurrence import Recurrence


def is_zero(x: Any) -> bool:
    """Whether a tangent or cotangent is JAX's symbol for 0."""
    return type(x) is ad.Zero


def tangent_along(f: Recurrence, tangents: Arrays) -> Recurrence:
    """The tangent of F in the leaves of x or of its residuals whose tangent is not zero.

    ``tangents`` has each tangent under the key of its primal array.
    """
    moving = {
        key.place for key, x in tangents.items()
        if key.role in ("primal", "residual") and not is_zero(x)
    }  # fmt: skip
    constants, inputs = (
        tuple(i for i in f.smooth(group) if (group, i) in moving) for group in START[:2]
    )
    return f.tangent(constants, inputs, f.unmoved(moving))


def of_tangent(
    g: Recurrence, keys: Collection[Key], arrays: Arrays, flags: Flags
) -> tuple[Arrays, Flags]:
    """The arrays ``keys`` of G and their flags, from arrays that have keys in terms of F."""
    named = {key: below(g, key) for key in keys}
    return {k: arrays[of_f] for k, of_f in named.items()}, {k: flags[v] for k, v in named.items()}


def of_primal(g: Recurrence, arrays: Arrays) -> Arrays:
    """The same arrays of G under their keys in terms of F."""
    return {below(g, key): x for key, x in arrays.items()}


def gradients_of(g: Recurrence, keys: Collection[Key]) -> tuple[Key, ...]:
    """The gradients of G whose keys in terms of F are among ``keys``."""
    return tuple(key for key in gradients(g) if below(g, key) in keys)


def _with_tangents(
    g: Recurrence, keys: Collection[Key], arrays: Arrays, tangents: Arrays, flags: Flags
) -> tuple[Arrays, Flags]:
    """The arrays ``keys`` of G and their flags, from arrays of F and their tangents."""
    named = {key: below(g, key) for key in keys}
    moved = [of_f.primal for of_f in named.values() if of_f.is_tangent]
    full = {key.tangent: _full(tangents[key], arrays[key]) for key in moved}
    marks = {key.tangent: flags[key] for key in moved}
    return of_tangent(g, keys, arrays | full, flags | marks)


def _full(tangent: Any, like: Array) -> Array:
    return jnp.zeros(jnp.shape(like), jnp.result_type(like)) if is_zero(tangent) else tangent


# Forward mode.


def _jvp_of_value(xs: Any, tangents: Any, **params: Any) -> tuple[list[Any], list[Any]]:
    f, keep, bodies = params["recurrence"], params["keep"], params["bodies"]
    if keep and f.has_rules:  # residuals are for a first derivative; this is the second
        return _jvp_by_scan(value, xs, tangents, params | {"recurrence": f.by_rules})
    x, flags, outer = value.named(xs, params)
    dx = dict(zip(x, tangents, strict=True))
    g = tangent_along(f, dx)
    lifted = _with_tangents(g, primals(g), x, dx, flags)
    y = of_primal(g, value(*lifted, g, bodies, keep=keep))
    still = g.tangents.zero if g.tangents is not None else ()
    moves = [key.tangent in y and key.place not in still for key in outer]
    slopes = [y[k.tangent] if m else _zero_at(y[k]) for k, m in zip(outer, moves, strict=True)]
    return [y[key] for key in outer], slopes


def _jvp_of_vjp(xs: Any, tangents: Any, **params: Any) -> tuple[list[Any], list[Any]]:
    f, live, bodies = params["recurrence"], params["live"], params["bodies"]
    if f.has_rules:
        return _jvp_by_scan(vjp, xs, tangents, params)
    x, flags, outer = vjp.named(xs, params)
    dx = dict(zip(x, tangents, strict=True))
    g = tangent_along(f, dx)
    moved = tuple(place for place in live if not is_zero(dx[Key("cotangent", *place)]))
    more = live_of(f, live, moved)
    lifted = _with_tangents(g, point(g) + cotangents(g, more), x, dx, flags)
    # leave out tangents of 0: 0 times an infinite slope would be NaN
    unused = {below(g, Key("gradient", "constants", i)) for i in g.unused(more)}
    by = gradients_of(g, {*outer, *(key.tangent for key in outer if key.tangent not in unused)})
    y = of_primal(g, vjp(*lifted, g, bodies, live=more, by=by))
    constant = tuple(key for key in outer if key not in y)  # those by arrays without tangents
    if constant:
        y |= vjp(x, flags, f, bodies, live=live, by=constant)
    slopes = [y[k.tangent] if k.tangent in y else _zero_at(y[k]) for k in outer]
    return [y[key] for key in outer], slopes


def _zero_at(x: Array) -> ad.Zero:
    """JAX's symbol for a tangent of 0 at x."""
    return ad.Zero(jax.typeof(x).to_tangent_aval())


def _jvp_by_scan(
    primitive: Rollout, xs: Any, tangents: Any, params: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """The second derivative by ``lax.scan``, where it depends on rules of custom derivatives.

    ``vjp`` of the tangent would apply these rules in the other order.
    """
    if params["recurrence"].strict:
        raise NotScalarError(
            "a second derivative of a function with a custom derivative: wanted jax.custom_jvp and "
            'a rule that calls the function itself for its value; use engine="auto" or "scan"'
        )
    return _jvp_of(functools.partial(primitive.by_scan, **params), xs, tangents)


def _jvp_of(
    function: Callable[..., list[Array]], xs: Any, tangents: Any
) -> tuple[list[Any], list[Any]]:
    """``jax.jvp`` of a function with respect to the operands whose tangent is not zero."""
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


def _jvp(*operands: Array, **params: Any) -> list[Array]:
    g, keep, bodies = params["recurrence"], params["keep"], params["bodies"]
    arrays, flags, outer = jvp.named(operands, params)
    x, marks = primals_at(g.primal, arrays, flags)
    lifted = of_tangent(g, primals(g), arrays | x, flags | marks)
    y = of_primal(g, value(*lifted, g, bodies, keep=keep))
    return [y[key] for key in outer]


def _linear_part_of_vjp(*operands: Array, **params: Any) -> list[Array]:
    g, live, bodies = params["recurrence"], params["live"], params["bodies"]
    arrays, flags, outer = jvp_of_vjp.named(operands, params)
    lifted = of_tangent(g, point(g) + cotangents(g, live), arrays, flags)
    y = of_primal(g, vjp(*lifted, g, bodies, live=live, by=gradients_of(g, outer)))
    return [y[key] for key in outer]


def _define(primitive: Rollout, function: Callable[..., list[Array]]) -> None:
    """Have a primitive evaluated and differentiated as this function of other primitives."""

    def rule(xs: Any, tangents: Any, **params: Any) -> Any:
        return _jvp_of(functools.partial(function, **params), xs, tangents)

    primitive.primitive.def_impl(function)
    mlir.register_lowering(primitive.primitive, mlir.lower_fun(function, multiple_results=True))
    ad.primitive_jvps[primitive.primitive] = rule
    checking.report(primitive.primitive, function)


_define(jvp, _jvp)
_define(jvp_of_vjp, _linear_part_of_vjp)

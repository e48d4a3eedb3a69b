"""The derivatives of the fused rollout, in both modes and of every order.

They follow from one construction (``primitives`` has the words). Let G be the tangent of F. Then
the derivative of ``value`` of F is ``value`` of G: primal and tangent in one loop. That of ``pull``
of F is ``pull`` of G, with cotangents db of F(x) and b of F'(x) dx: by x it gives
b F''(x) dx + db F'(x), and by dx it gives b F'(x) again.

Reverse mode wants the linear part alone, to transpose it. So where the directions dx alone are
unknown, ``value`` of G is split in ``value`` of F, with the states that it keeps, and ``push``, and
``pull`` of G in ``pull`` of F, and ``bend``. These two have derivatives as what they are lowered
to.

What is kept is a function of x. So of the cotangents of both it makes no difference which takes
what: that of the start goes to the first state kept, and those of the others are 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.interpreters import ad, mlir
from jax.interpreters import partial_eval as pe

from jaxquat._varying import shaped
from jaxquat.engines.fused import checking
from jaxquat.engines.fused.errors import NotScalarError
from jaxquat.engines.fused.primitives import (
    START,
    Arrays,
    Flags,
    Key,
    Rollout,
    below,
    bend,
    cotangents,
    fixed,
    given_start,
    live_below,
    live_of,
    pull,
    push,
    smooth,
    start,
    value,
    zeros,
)
from jaxquat.engines.fused.recurrence import ENDS, Recurrence


def _is_zero(x: Any) -> bool:
    return type(x) is ad.Zero


def _directions(f: Recurrence, tangents: Arrays) -> Recurrence:
    """The tangent of F in those leaves whose tangent is not zero, of x or of what is kept of it."""
    moving = {
        (group, i)
        for (role, group, i), x in tangents.items()
        if role in ("x", "kept") and not _is_zero(x)
    }
    constants, inputs = (
        tuple(i for i in f.smooth(group) if (group, i) in moving) for group in START[:2]
    )
    return f.tangent(constants, inputs, f.unmoved(moving))


def _lifted(
    g: Recurrence, keys: list[Key], arrays: Arrays, tangents: Arrays, flags: Flags
) -> tuple[Arrays, Flags]:
    """These arrays of G, from arrays of F and their tangents, with flags."""
    lifted: Arrays = {}
    marks: Flags = {}
    for key in keys:
        role, group, i = below(g, key)
        of_f = role.removeprefix("d"), group, i
        lifted[key], marks[key] = arrays[of_f], flags[of_f]
        if role.startswith("d"):
            tangent, primal = tangents[of_f], arrays[of_f]
            shape, dtype = jnp.shape(primal), jnp.result_type(primal)
            lifted[key] = jnp.zeros(shape, dtype) if _is_zero(tangent) else tangent
    return lifted, marks


def _in_terms_of_g(
    g: Recurrence, keys: list[Key], arrays: Arrays, flags: Flags
) -> tuple[Arrays, Flags]:
    """These arrays of G, from arrays that have the keys of F, with flags."""
    named = {key: below(g, key) for key in keys}
    lifted = {key: arrays[of_f] for key, of_f in named.items()}
    return lifted, {key: flags[of_f] for key, of_f in named.items()}


def _in_terms_of_f(g: Recurrence, arrays: Arrays) -> Arrays:
    return {below(g, key): x for key, x in arrays.items()}


def _gradients(g: Recurrence, keys: Collection[Key]) -> tuple[Key, ...]:
    """Those gradients of G that have these keys in terms of F."""
    return tuple(key for key in smooth(g, "g", START) if below(g, key) in keys)


def _slopes(f: Recurrence) -> list[Key]:
    """The derivatives of all gradients of F."""
    return [("dg", group, i) for _, group, i in smooth(f, "g", START)]


# Forward mode.


def _value_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[list[Any], list[Any]]:
    f, keep, bodies = params["recurrence"], params["keep"], params["bodies"]
    if keep and f.has_rules:  # the first derivative is taken: what is kept is for it
        once = params | {"recurrence": f.differentiated_once}
        return _jvp_by_scan(value, primals, tangents, once)
    x, flags, outer = value.named(primals, params)
    dx = dict(zip(x, tangents, strict=True))
    g = _directions(f, dx)
    found = value(*_lifted(g, start(g), x, dx, flags), g, bodies, keep=keep)
    y = _in_terms_of_f(g, found)
    slopes = [
        None if (group, i) in g.still else y.get(("d" + role, group, i)) for role, group, i in outer
    ]
    ends = [y[key] for key in outer]
    zero = lambda x: ad.Zero(jax.typeof(x).to_tangent_aval())  # noqa: E731
    return ends, [zero(x) if dx is None else dx for x, dx in zip(ends, slopes, strict=True)]


def _pull_jvp(primals: Any, tangents: Any, **params: Any) -> tuple[list[Any], list[Any]]:
    f, live, bodies = params["recurrence"], params["live"], params["bodies"]
    if f.has_rules:
        return _jvp_by_scan(pull, primals, tangents, params)
    x, flags, outer = pull.named(primals, params)
    dx = dict(zip(x, tangents, strict=True))
    g = _directions(f, dx)
    more = live_of(f, live, tuple(place for place in live if not _is_zero(dx["b", *place])))
    arrays, marks = _lifted(g, fixed(g) + cotangents(g, more), x, dx, flags)
    slopes = [("d" + role, group, i) for role, group, i in outer]
    by = _gradients(g, [*outer, *slopes])
    y = _in_terms_of_f(g, pull(arrays, marks, g, bodies, live=more, by=by))
    constant = tuple(key for key in outer if key not in y)  # those by arrays without a tangent
    if constant:
        y |= pull(x, flags, f, bodies, live=live, by=constant)
    return [y[key] for key in outer], [y[key] for key in slopes]


def _jvp_by_scan(
    primitive: Rollout, primals: Any, tangents: Any, params: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """The derivative after a first one, where rules of custom derivatives decide what it is.

    ``pull`` of the tangent would take the rules in the other order.
    """
    if params["recurrence"].strict:
        raise NotScalarError(
            "a second derivative of a function with a custom derivative: wanted a rule that calls "
            'the function itself for its value; use engine="auto" or "scan"'
        )
    return _jvp_of(functools.partial(primitive.by_scan, **params), primals, tangents)


def _jvp_of(
    function: Callable[..., list[Array]], primals: Any, tangents: Any
) -> tuple[list[Any], list[Any]]:
    """``jax.jvp``, of a function by those operands whose tangent is not zero."""
    moving = [k for k, x in enumerate(tangents) if not _is_zero(x)]

    def of_moving(*moved: Any) -> list[Array]:
        operands = list(primals)
        for k, x in zip(moving, moved, strict=True):
            operands[k] = x
        return function(*operands)

    return jax.jvp(of_moving, [primals[k] for k in moving], [tangents[k] for k in moving])


ad.primitive_jvps[value.primitive] = _value_jvp
ad.primitive_jvps[pull.primitive] = _pull_jvp


# ``push`` and ``bend`` are computed, and differentiated, as parts of ``value`` and ``pull``.


def _push(*operands: Array, **params: Any) -> list[Array]:
    g, keep, bodies = params["recurrence"], params["keep"], params["bodies"]
    given, flags, outer = push.named(operands, params)
    x, marks = given_start(g.primal, given, flags)
    lifted = _in_terms_of_g(g, start(g), given | x, flags | marks)
    y = _in_terms_of_f(g, value(*lifted, g, bodies, keep=keep))
    return [y[key] for key in outer]


def _bend(*operands: Array, **params: Any) -> list[Array]:
    g, live, bodies = params["recurrence"], params["live"], params["bodies"]
    given, flags, outer = bend.named(operands, params)
    lifted = _in_terms_of_g(g, fixed(g) + cotangents(g, live), given, flags)
    y = _in_terms_of_f(g, pull(*lifted, g, bodies, live=live, by=_gradients(g, outer)))
    return [y[key] for key in outer]


def _define(primitive: Rollout, function: Callable[..., list[Array]]) -> None:
    """Makes a primitive compute and differentiate as a function of others."""

    def jvp(primals: Any, tangents: Any, **params: Any) -> Any:
        return _jvp_of(functools.partial(function, **params), primals, tangents)

    primitive.primitive.def_impl(function)
    mlir.register_lowering(primitive.primitive, mlir.lower_fun(function, multiple_results=True))
    ad.primitive_jvps[primitive.primitive] = jvp
    checking.report(primitive.primitive, function)


_define(push, _push)
_define(bend, _bend)


# Reverse mode: the linear parts, and their transposes.


def _value_split(trace: Any, *tracers: Any, **params: Any) -> list[Any]:
    """``value`` of G as ``value`` of F, which is computed now, and ``push``, which is staged."""
    g, f, bodies = params["recurrence"], params["recurrence"].primal, params["bodies"]
    given, flags, outer = value.named(tracers, params)
    split = g.primal is not None and not all(x.is_known() for x in tracers)
    if not split or not all(x.is_known() for key, x in given.items() if below(g, key)[0] == "x"):
        return trace.default_process_primitive(value.primitive, tracers, params)
    given, flags = _in_terms_of_f(g, given), _in_terms_of_f(g, flags)
    known = {key: given[key].pval.get_known() for key in start(f)}
    y = value(known, flags, f, bodies, keep=True)
    given |= {key: trace.new_const(x) for key, x in y.items()}
    flags |= dict.fromkeys(y, bodies is not None)
    slopes = _staged(trace, push, given, flags, params)
    return [(given | slopes)[below(g, key)] for key in outer]


def _pull_split(trace: Any, *tracers: Any, **params: Any) -> list[Any]:
    """``pull`` of G as ``pull`` of F, which is computed now, and ``bend``, which is staged."""
    g, f, bodies = params["recurrence"], params["recurrence"].primal, params["bodies"]
    given, flags, outer = pull.named(tracers, params)
    split = g.primal is not None and g.count == 1 and not all(x.is_known() for x in tracers)
    live = live_below(g, params["live"]) if split else None
    if live is None:
        return trace.default_process_primitive(pull.primitive, tracers, params)
    given, flags = _in_terms_of_f(g, given), _in_terms_of_f(g, flags)
    inner = fixed(f) + cotangents(f, live)
    if not all(given[key].is_known() for key in inner):
        return trace.default_process_primitive(pull.primitive, tracers, params)
    known = {key: given[key].pval.get_known() for key in inner}
    by = tuple(key for key in (below(g, key) for key in outer) if key[0] == "g")
    y = pull(known, flags, f, bodies, live=live, by=by) if by else {}
    slopes = _staged(trace, bend, given, flags, params | {"by": None})
    return [
        ({key: trace.new_const(x) for key, x in y.items()} | slopes)[below(g, k)] for k in outer
    ]


def _staged(
    trace: Any, primitive: Rollout, given: Arrays, flags: Flags, params: dict[str, Any]
) -> Arrays:
    """The results of a primitive that is computed when the unknown becomes known."""
    inner, outer = primitive.keys_of(params)
    params = params | {"batched": tuple(flags[key] for key in inner)}
    operands = [given[key] for key in inner]
    found = trace.default_process_primitive(primitive.primitive, operands, params)
    return dict(zip(outer, found, strict=True))


pe.custom_partial_eval_rules[value.primitive] = _value_split
pe.custom_partial_eval_rules[pull.primitive] = _pull_split


def _push_transpose(found: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    g, bodies = params["recurrence"], params["bodies"]
    given, flags, outer = push.named(operands, params)
    c = {key: x for key, x in zip(outer, found, strict=True) if not _is_zero(x)}
    assert g.chosen is not None
    wanted = {("g", group, i) for group in START for i in g.chosen[group]}
    pulled = functools.partial(_pulled, g.primal, given, flags, bodies, wanted)
    if g.count == 1:
        return _of_operands(given, flags, bodies, pulled(c).get)

    def apart(x: Array) -> Array:
        return jnp.moveaxis(x.reshape(*x.shape[:-1], g.count, x.shape[-1] // g.count), -2, 0)

    def together(x: Array) -> Array:
        x = jnp.moveaxis(x, 0, -2)
        return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])

    gradients = jax.vmap(pulled)(jax.tree.map(apart, c))
    return _of_operands(given, flags, bodies, jax.tree.map(together, gradients).get)


def _pulled(
    f: Recurrence, given: Arrays, flags: Flags, bodies: int | None, wanted: set[Key], c: Arrays
) -> Arrays:
    """The cotangents of the directions dx, where ``c`` has those of F'(x) dx that are not zero.

    ``wanted``: the keys of the gradients that somebody asks for.
    """
    live = tuple((group, i) for _, group, i in smooth(f, "y", ENDS) if ("dy", group, i) in c)
    gradient: Arrays = {}
    if any(role == "dy" for role, *_ in c):
        arrays = {key: given[key] for key in fixed(f)}
        marks = {key: flags[key] for key in arrays}
        for key in cotangents(f, live):
            x = c.get(("dy", *key[1:]))
            arrays[key] = zeros(f, ("y", *key[1:]), bodies) if x is None else x
            marks[key] = bodies is not None
        # those that are not used are not 0, which an infinite slope would make NaN
        unused = {("g", "constants", i) for i in f.unused(live)}
        by = tuple(key for key in smooth(f, "g", START) if key in wanted - unused)
        pulled = pull(arrays, marks, f, bodies, live=live, by=by) if by else {}
        gradient = {("dx", *key[1:]): x for key, x in pulled.items()}
    for (role, group, i), x in c.items():
        if role == "dkept" and group in START:  # of the first state alone
            key = "dx", group, i
            gradient[key] = gradient[key] + x[..., 0, :] if key in gradient else x[..., 0, :]
    return gradient


def _bend_transpose(found: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    """By the tangent of F in the directions of the cotangents."""
    g, bodies = params["recurrence"], params["bodies"]
    f, live = g.primal, live_below(g, params["live"])
    assert live is not None
    given, flags, outer = bend.named(operands, params)
    dx = {("x", *key[1:]): x for key, x in zip(outer, found, strict=True)}
    h = _directions(f, dx)
    x, marks = given_start(f, given, flags)
    arrays, marks = given | x, flags | marks

    def add(more: Arrays) -> None:
        arrays.update(more)
        marks.update(dict.fromkeys(more, bodies is not None))

    add({("d" + k[0], *k[1:]): zeros(f, k, bodies) if _is_zero(c) else c for k, c in dx.items()})
    lifted = _in_terms_of_g(h, start(h), arrays, marks)
    y = _in_terms_of_f(h, value(*lifted, h, bodies, keep=True))
    more = live_of(f, live)
    constant = cotangents(f, live)
    add(y | {("db", *key[1:]): zeros(f, ("y", *key[1:]), bodies) for key in constant})
    lifted = _in_terms_of_g(h, fixed(h) + cotangents(h, more), arrays, marks)
    by = _gradients(h, _slopes(f))
    z = _in_terms_of_f(h, pull(*lifted, h, bodies, live=more, by=by))

    def cotangent(key: Key) -> Any:
        role, group, i = key
        if role == "db":
            return y["dy", group, i]
        if role == "dx":
            return z["dg", group, i]
        if role == "dkept" and group in START:
            return zeros(f, ("kept", group, i), bodies).at[..., 0, :].set(z["dg", group, i])
        return None

    return _of_operands(given, flags, bodies, cotangent)


def _of_operands(
    given: Arrays, flags: Flags, bodies: int | None, cotangent: Callable[[Key], Any]
) -> list[Any]:
    """What a transpose returns: a cotangent for each operand in which the primitive is linear."""
    found = []
    for key, x in given.items():
        if not ad.is_undefined_primal(x):
            found.append(None)
            continue
        c = cotangent(key)
        if c is not None and bodies is not None and not flags[key]:
            c = c.sum(0)
        found.append(ad.Zero(x.aval) if c is None else c)
    return found


def _value_transpose(found: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    """Of ``value`` where it is linear in what is undefined: that of the scan."""
    return _scan_transpose(value, found, operands, params)


def _pull_transpose(found: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
    """By ``push`` where the cotangents b alone are undefined, otherwise that of the scan."""
    f, bodies = params["recurrence"], params["bodies"]
    given, flags, outer = pull.named(operands, params)
    if any(ad.is_undefined_primal(given[key]) for key in fixed(f)):
        return _scan_transpose(pull, found, operands, params)
    c = dict(zip(outer, found, strict=True))
    zero = {key: ad.Zero(jax.typeof(zeros(f, key, bodies))) for key in smooth(f, "x", START)}
    dx = {key: c.get(("g", *key[1:]), none) for key, none in zero.items()}
    h = _directions(f, dx)
    lifted = {
        ("d" + k[0], *k[1:]): zeros(f, k, bodies) if _is_zero(x) else x for k, x in dx.items()
    }
    y = push(given | lifted, flags | dict.fromkeys(lifted, bodies is not None), h, bodies)
    return _of_operands(given, flags, bodies, lambda key: y["dy", *key[1:]])


def _scan_transpose(
    primitive: Rollout, found: Sequence[Any], operands: Sequence[Any], params: dict[str, Any]
) -> list[Any]:
    unknown = [k for k, x in enumerate(operands) if ad.is_undefined_primal(x)]
    types = [operands[k].aval for k in unknown]
    likes = [shaped(kind.shape, kind.dtype, kind) for kind in types]
    linear = [k for k, c in enumerate(found) if not _is_zero(c)]

    def of_unknown(arrays: list[Array]) -> list[Array]:
        merged = list(operands)
        for k, x in zip(unknown, arrays, strict=True):
            merged[k] = x
        results = primitive.by_scan(*merged, **params)
        return [results[k] for k in linear]

    (gradient,) = jax.linear_transpose(of_unknown, likes)([found[k] for k in linear])
    return [gradient[unknown.index(k)] if k in unknown else None for k in range(len(operands))]


ad.primitive_transposes[value.primitive] = _value_transpose
ad.primitive_transposes[pull.primitive] = _pull_transpose
ad.primitive_transposes[push.primitive] = _push_transpose
ad.primitive_transposes[bend.primitive] = _bend_transpose


# jax.checkpoint: what is known is computed before the backward pass, and all again within it.


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
    """Whether a policy of ``jax.checkpoint`` says that results are saved."""
    return verdict is True or type(verdict).__name__ == "SaveableType"


def _known_part(
    primitive: Rollout, equation: Any, unknown: Sequence[bool]
) -> tuple[Any, list[bool]]:
    """The equation of F, if the one of its tangent G has unknown tangents alone, otherwise None.

    And which results of the given equation are unknown.
    """
    params = equation.params
    g, live = params["recurrence"], params["live"]
    inner, outer = primitive.keys_of(params)
    nothing = None, [True] * len(outer)
    if g.primal is None:
        return nothing
    late = {below(g, key) for key, u in zip(inner, unknown, strict=True) if u}
    live = tuple((group, i) for group, i in live if i < len(g.primal.specs[group]))
    by = tuple(key for key in (below(g, key) for key in outer) if key[0] == "g")
    of_f = params | {"recurrence": g.primal, "live": live, "by": by or None}
    if any(not role.startswith("d") for role, *_ in late):
        return nothing
    if primitive is pull and (not by or live is None):
        return nothing
    if primitive is value:
        of_f["by"] = None
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
pe.partial_eval_jaxpr_custom_rules[pull.primitive] = _checkpointed(pull)

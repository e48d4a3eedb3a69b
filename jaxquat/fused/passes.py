"""The passes from jaxpr to jaxpr that make the derivatives of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import jaxpr_as_fun
from jax.interpreters import partial_eval as pe

from jaxquat._internal.jaxprs import closed_jaxpr, equations, specs
from jaxquat._internal.varying import shaped


def jvp(closed: Any, moving: Sequence[int], results: Sequence[int], count: int) -> Any:
    """Return ``(*inputs, *tangents) -> (*outputs, *tangents)``, a function with its derivative.

    Tangents have a leading axis of ``count`` directions, which share the values.
    """
    inputs = specs(closed.jaxpr.invars)

    def both(*arguments: Array) -> list[Array]:
        primals, tangents = arguments[: len(inputs)], arguments[len(inputs) :]
        function, points = _of(closed, moving, results, primals)
        push = lambda *t: jax.jvp(function, tuple(points), t, has_aux=True)  # noqa: E731
        mapped = jax.vmap(push, out_axes=(None, 0, None), axis_size=count)
        _, slopes, outputs = mapped(*tangents)
        return [*outputs, *slopes]

    tangents = [shaped((count, *inputs[i].shape), inputs[i].dtype, inputs[i]) for i in moving]
    return jax.make_jaxpr(both)(*inputs, *tangents)


def vjp(closed: Any, live: Sequence[int]) -> Any:
    """Return ``(*inputs, *cotangents) -> cotangents``, from outputs ``live`` to float inputs."""
    inputs, outputs = specs(closed.jaxpr.invars), specs(closed.jaxpr.outvars)

    def back(*arguments: Array) -> list[Array]:
        primals, cotangents = arguments[: len(inputs)], arguments[len(inputs) :]
        push, points = _pushed(closed, live, primals)
        tangents = [shaped(x.shape, x.dtype, x) for x in points]
        # the same as jax.vjp, in two thirds of its time
        return list(jax.linear_transpose(push, *tangents)(list(cotangents)))

    return jax.make_jaxpr(back)(*inputs, *(outputs[i] for i in live))


def has_sums(closed: Any, live: Sequence[int]) -> bool:
    """Return whether a user's derivative rule adds over the devices, or may do so."""

    def pushed(*primals: Array) -> list[Array]:
        push, points = _pushed(closed, live, primals)
        return push(*points)

    traced = jax.make_jaxpr(pushed)(*specs(closed.jaxpr.invars))
    names = {equation.primitive.name for equation in equations(traced)}
    return not names.isdisjoint(("psum_invariant", "custom_lin"))


def by_rules(closed: Any) -> Any:
    """Return the same values, computed by the rules of functions with a custom derivative."""
    inputs, outputs = specs(closed.jaxpr.invars), floats(specs(closed.jaxpr.outvars))

    def values(*primals: Array) -> list[Array]:
        function, points = _of(closed, floats(inputs), outputs, primals)
        _, _, all_outputs = jax.vjp(function, *points, has_aux=True)
        return all_outputs

    return jax.make_jaxpr(values)(*inputs)


def custom_calls(closed: Any) -> list[str]:
    """Return the sorted calls, "custom_jvp" or "custom_vjp", that the results need."""
    needed, _ = pe.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    kinds = [equation.primitive.name[:10] for equation in equations(needed)]
    return sorted(kind for kind in kinds if kind in ("custom_jvp", "custom_vjp"))


def arranged(
    closed: Any, inputs: Sequence[int | jax.ShapeDtypeStruct], outputs: Sequence[int] | None = None
) -> Any:
    """Return the function with other orders; a shape and dtype adds an input that is unused."""
    jaxpr, unused = closed.jaxpr, [x for x in inputs if not isinstance(x, int)]
    added = iter(jax.make_jaxpr(lambda *_: ())(*unused).jaxpr.invars if unused else ())
    variables = [jaxpr.invars[x] if isinstance(x, int) else next(added) for x in inputs]
    results = jaxpr.outvars if outputs is None else [jaxpr.outvars[k] for k in outputs]
    consts = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    return closed_jaxpr(closed, variables, results, jaxpr.eqns, consts)


def floats(leaves: Sequence[Any]) -> list[int]:
    """Return the numbers of the floats."""
    return [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _of(
    closed: Any, moving: Sequence[int], results: Sequence[int], primals: Sequence[Array]
) -> tuple[Callable[..., tuple[list[Array], list[Array]]], list[Array]]:
    """Return a function of the inputs ``moving`` to ``results`` and all outputs, and its inputs."""

    def function(*points: Array) -> tuple[list[Array], list[Array]]:
        merged = list(primals)
        for i, x in zip(moving, points, strict=True):
            merged[i] = x
        outputs = jaxpr_as_fun(closed)(*merged)
        return [outputs[i] for i in results], outputs

    return function, [primals[i] for i in moving]


def _pushed(
    closed: Any, live: Sequence[int], primals: Sequence[Array]
) -> tuple[Callable[..., list[Array]], list[Array]]:
    function, points = _of(closed, floats(primals), live, primals)

    def push(*tangents: Array) -> list[Array]:
        _, slopes, _ = jax.jvp(function, tuple(points), tangents, has_aux=True)
        return slopes

    return push, points

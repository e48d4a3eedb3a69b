"""Forward or reverse mode: the gradient in forward mode, and which mode a function wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from jaxquat._jaxprs import equations


def forward_value_and_grad(function: Callable[[Any], Array]) -> Callable[[Any], tuple[Array, Any]]:
    """``jax.value_and_grad`` in forward mode: one pass that carries a tangent per parameter."""

    def value_and_grad(params: Any) -> tuple[Array, Any]:
        flat, unravel = ravel_pytree(params)

        def both(vector: Array) -> tuple[Array, Array]:
            value = function(unravel(vector))
            return value, value

        gradient, value = jax.jacfwd(both, has_aux=True)(flat)
        return value, unravel(gradient)

    return value_and_grad


def wants_reverse(function: Callable[[Any], Any], params: Any) -> bool:
    """Whether the function contains what is differentiated in reverse mode.

    That is a ``jax.custom_vjp``, which has no forward mode, or the fused engine, whose gradient in
    reverse mode costs as much as that by two parameters in forward mode.
    """
    inside = equations(jax.make_jaxpr(function)(params))
    names = ("custom_vjp_call", "fused_rollout")
    return any(equation.primitive.name.startswith(names) for equation in inside)


def with_derivative(
    function: Callable[[Any], Array], value_and_grad: Callable[[Any], tuple[Array, Any]]
) -> Callable[[Any], Array]:
    """``function``, whose derivative in both modes is the gradient from ``value_and_grad``.

    Line searches differentiate the loss themselves, in either mode; a loss may have one mode alone.
    """

    @jax.custom_jvp
    def value_of(params: Any) -> Array:
        return function(params)

    @value_of.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        value, gradient = value_and_grad(*primals)
        slopes = jax.tree.map(lambda g, t: jnp.sum(g * t).astype(value.dtype), gradient, *tangents)
        return value, sum(jax.tree.leaves(slopes), jnp.zeros_like(value))

    return value_of

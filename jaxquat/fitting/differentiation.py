"""Forward or reverse mode: gradients, Jacobians, and which mode suits a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from jaxquat._internal.checks import vector
from jaxquat._internal.jaxprs import equations

GRADIENT = 4  # cost of value and gradient of a fused rollout, in evaluations (docs/performance.md)


def forward_value_and_grad(function: Callable[[Any], Array]) -> Callable[[Any], tuple[Array, Any]]:
    """Return ``jax.value_and_grad`` in forward mode: one pass with a tangent per parameter."""

    def value_and_grad(params: Any) -> tuple[Array, Any]:
        flat, unravel = ravel_pytree(params)
        twice = lambda x: (function(unravel(x)),) * 2  # noqa: E731
        gradient, value = jax.jacfwd(twice, has_aux=True)(flat)
        return value, unravel(gradient.astype(flat.dtype))  # as in reverse mode

    return value_and_grad


def wants_reverse(function: Callable[[Any], Any], params: Any, results: int = 1) -> bool:
    """Return whether to use reverse mode: for a ``custom_vjp``, or if it is cheaper (fused)."""
    inside = list(equations(jax.make_jaxpr(function)(params)))
    rollouts = [x for x in inside if x.primitive.name.startswith("fused_loop")]
    for recurrence in {x.params["recurrence"] for x in rollouts}:
        inside += [x for jaxpr in recurrence.functions.values() for x in equations(jaxpr)]
    if any(equation.primitive.name.startswith("custom_vjp_call") for equation in inside):
        return True
    tangents = sum(jnp.size(leaf) for leaf in jax.tree.leaves(params))
    return bool(rollouts) and 1 + tangents > GRADIENT * results


def with_jacobian(residuals: Callable[[Any], Any]) -> Callable[[Any], tuple[Array, Array]]:
    """Return ``params -> (residuals (m,), Jacobian (m, n))``, by the mode that suits."""

    def both(params: Any) -> tuple[Array, Array]:
        flat, unravel = ravel_pytree(params)
        of_flat = lambda x: vector("residuals", residuals(unravel(x)))  # noqa: E731
        number = jax.eval_shape(of_flat, flat).size
        forward = flat.size <= number and not wants_reverse(of_flat, flat, results=number)
        differentiate = jax.jacfwd if forward else jax.jacrev
        jacobian, value = differentiate(lambda x: (of_flat(x),) * 2, has_aux=True)(flat)
        return value, jacobian

    return both


def with_derivative(
    function: Callable[[Any], Array], value_and_grad: Callable[[Any], tuple[Array, Any]]
) -> Callable[[Any], Array]:
    """Give ``function`` the gradient of ``value_and_grad`` in both modes, for line searches."""

    @jax.custom_jvp
    def value_of(params: Any) -> Array:
        return function(params)

    @value_of.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        value, gradient = value_and_grad(*primals)
        slopes = jax.tree.map(lambda g, t: jnp.sum(g * t).astype(value.dtype), gradient, *tangents)
        return value, sum(jax.tree.leaves(slopes), jnp.zeros_like(value))

    return value_of

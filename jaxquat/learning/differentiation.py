"""Forward or reverse mode: the gradient in forward mode, and whether a function has a forward mode at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import Array
from jax.flatten_util import ravel_pytree


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


def reverse_only(function: Callable[[Any], Any], params: Any) -> bool:
    """Whether a ``jax.custom_vjp`` is anywhere in the function."""

    def within(jaxpr: Any) -> bool:
        return any(
            equation.primitive.name.startswith("custom_vjp_call")
            or any(
                within(getattr(x, "jaxpr", x))
                for x in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr)
                if _is_jaxpr(x)
            )
            for equation in jaxpr.eqns
        )

    return within(jax.make_jaxpr(function)(params).jaxpr)


def _is_jaxpr(x: Any) -> bool:
    return hasattr(getattr(x, "jaxpr", x), "eqns")

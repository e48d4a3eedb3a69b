"""Errors planted on purpose, to show that the fuzzer finds them.

Each changes the result of one primitive in the torque and in ``save`` for the fused engine but not
for the scan, as if the engine had a wrong rule for it. This does not depend on how the engine is
built.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from . import liberties, oracle


def _round(params: Any, right: Any, x: Any) -> Any:
    """Round halves away from zero by adding a half: 0.49999997 becomes 1."""
    return jnp.sign(x) * jnp.floor(jnp.abs(x) + jnp.asarray(0.5, x.dtype))


def _pow(params: Any, right: Any, x: Any, y: Any) -> Any:
    """A negative half-integer power as 1/x^n times a root: wrong where x^n overflows or is 0."""
    if not jnp.issubdtype(right.dtype, jnp.floating):
        return right
    half = (y < 0) & (jnp.floor(y) != y) & (jnp.floor(2 * y) == 2 * y)
    return jnp.where(half, 1 / x ** (-jnp.floor(y)) * jnp.sqrt(x), right)


def _gather(params: Any, right: Any, *args: Any) -> Any:
    """Zero in place of the given fill value."""
    if params.get("fill_value") is None:
        return right
    mark = jnp.zeros(args[0].shape, jnp.int32)
    dimensions, sizes, mode = params["dimension_numbers"], params["slice_sizes"], params["mode"]
    outside = lax.gather(mark, args[1], dimensions, sizes, mode=mode, fill_value=1) == 1
    return jnp.where(outside, jnp.zeros_like(right), right)


def _least(params: Any, right: Any, x: Any, y: Any) -> Any:
    """The other number if one of two is NaN."""
    if not jnp.issubdtype(right.dtype, jnp.floating):
        return right
    return jnp.where(jnp.isnan(x), y, jnp.where(jnp.isnan(y), x, right))


def _quotient(params: Any, right: Any, x: Any, y: Any) -> Any:
    """Zero if an integer is divided by zero."""
    if jnp.issubdtype(right.dtype, jnp.floating):
        return right
    return jnp.where(y == 0, jnp.zeros_like(right), right)


def _converted(params: Any, right: Any, x: Any) -> Any:
    """The wrong sign if a float beyond 100 is converted to an integer."""
    from_float = jnp.issubdtype(x.dtype, jnp.floating)
    if not (from_float and jnp.issubdtype(right.dtype, jnp.signedinteger)):
        return right
    return jnp.where(jnp.abs(x) > 100, -right, right)


def _shifted(params: Any, right: Any, x: Any, y: Any) -> Any:
    """A shift by the count modulo the width."""
    width = jnp.asarray(8 * x.dtype.itemsize - 1, x.dtype)
    return lax.shift_left(x, y & width)


PLANTED: dict[str, tuple[str, Callable[..., Any]]] = {  # primitive, function
    "round": ("round", _round),
    "pow": ("pow", _pow),
    "gather": ("gather", _gather),
    "min": ("min", _least),
    "div": ("div", _quotient),
    "convert": ("convert_element_type", _converted),
    "shift": ("shift_left", _shifted),
}


def wrong(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """``function`` with the planted error of this name."""
    primitive, change = PLANTED[name]

    def rule(equation: Any, args: list[Any], salt: int) -> list[Any]:
        results = liberties.bind(equation, args)
        if equation.primitive.name != primitive:
            return results
        return [change(equation.params, results[0], *(jnp.asarray(x) for x in args))]

    def planted(*arguments: Any) -> Any:
        keep = lambda constant, salt: constant
        return oracle.interpreted(function, arguments, jax.tree.leaves(arguments), rule, keep)

    return planted

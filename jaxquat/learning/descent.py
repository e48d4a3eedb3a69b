"""Updates of an optax optimiser, guarded and compiled: what ``fit`` runs between two returns to the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from jaxquat.learning.differentiation import forward_value_and_grad, reverse_only

FORWARD_LIMIT = 6
"""``mode="auto"`` differentiates forward up to this many parameters (benchmarks/fit_mode.py measures both modes)."""


class Draws(NamedTuple):
    """Loss and gradient of several updates: how many were finite, and the moments of these.

    Attributes:
        count: how many were finite, ().
        mean: (loss, gradient).
        square: sums of their squared deviations from the mean, alike; exactly 0 if all were the same bits.
    """

    count: Any
    mean: Any
    square: Any


def scalar(name: str, value: Any) -> Array:
    """``value`` if it is a scalar array of floating dtype; ValueError or TypeError otherwise."""
    if not hasattr(value, "shape"):
        raise TypeError(f"{name}: wanted a scalar, got {type(value).__name__}")
    if value.shape != ():
        raise ValueError(f"{name}: wanted a scalar, got shape {value.shape}")
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name}: wanted a floating dtype, got {value.dtype}")
    return value


def sampled(
    loss: Callable[[Any, Any, Array], Array], key: Array, batch: int | None, rows: int
) -> Callable[[Any, Any], Any]:
    """``(number, data) ->`` the loss that this update sees, a function of the parameters."""

    def loss_at(number: Any, data: Any) -> Callable[[Any], Array]:
        draw, own = jax.random.split(jax.random.fold_in(key, number))
        part = data
        if batch is not None:
            _, chosen = lax.top_k(
                jax.random.bits(draw, (rows,)), batch
            )  # without replacement, cheaper than to permute
            part = jax.tree.map(lambda x: x[chosen], data)
        return lambda p: scalar("loss", loss(p, part, own))

    return loss_at


def descent(
    loss_at: Callable[[Any, Any], Any],
    optimizer: optax.GradientTransformation,
    mode: str,
    size: int,
    over_starts: Callable[..., Any],
    room: int,
) -> Callable[..., Any]:
    """``((params, state, skipped), first, stop, data, moving) -> (the same, losses, draws)``: the updates from first to stop.

    ``losses`` have ``room`` rows, those of the updates made in front. ``over_starts`` is ``jax.vmap``
    or does nothing. With ``moving`` False the parameters stay where they are, and ``draws`` says what
    these updates see there: the same program, so that it costs no second compilation.
    """
    optimizer = optax.with_extra_args_support(optimizer)

    @jax.jit
    @partial(over_starts, in_axes=(0, None, None, None))
    def update(carry: Any, number: Array, data: Any, moving: Array) -> tuple[Any, Array, Any]:
        params, state, skipped = carry
        loss = loss_at(number, data)
        forward = mode == "forward" or (
            mode == "auto" and size <= FORWARD_LIMIT and not reverse_only(loss, params)
        )
        value_and_grad = (forward_value_and_grad if forward else jax.value_and_grad)(loss)
        value, gradient = value_and_grad(params)
        with jax.numpy_dtype_promotion(
            "standard"
        ):  # optax raises a float to the integer count of updates
            along = _differentiable(loss, value_and_grad)
            updates, moved = optimizer.update(
                gradient, state, params, value=value, grad=gradient, value_fn=along
            )
        good = jnp.all(
            jnp.array(
                [jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((value, gradient, updates))]
            )
        )
        new, old = (
            (optax.apply_updates(params, updates), moved, skipped),
            (params, state, skipped + 1),
        )
        return jax.tree.map(partial(jnp.where, good & moving), new, old), good, (value, gradient)

    @jax.jit
    def advance(
        carry: Any, first: Array, stop: Array, data: Any, moving: Array
    ) -> tuple[Any, Array, Draws]:
        def one(number: Array, before: tuple[Any, Array, Draws]) -> tuple[Any, Array, Draws]:
            carry, losses, draws = before
            carry, good, found = update(carry, number, data, moving)
            return (
                carry,
                losses.at[number - first].set(found[0]),
                over_starts(_with_one_more, in_axes=0)(draws, good, found),
            )

        nothing = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype),
            jax.eval_shape(update, carry, first, data, moving)[2],
        )
        losses = jnp.zeros((room, *nothing[0].shape), nothing[0].dtype)
        # first and stop are traced: one program makes every bit, wherever a chunk ends
        return lax.fori_loop(
            first, stop, one, (carry, losses, Draws(jnp.zeros_like(carry[2]), nothing, nothing))
        )

    return advance


def _with_one_more(draws: Draws, good: Array, found: Any) -> Draws:
    """With one more loss and gradient, if they are good.

    Welford's recurrence: no cancellation, and no deviation at all where nothing deviates.
    """
    count = draws.count + 1
    before = jax.tree.map(jnp.subtract, found, draws.mean)
    mean = jax.tree.map(lambda m, d: m + d / count.astype(d.dtype), draws.mean, before)
    after = jax.tree.map(jnp.subtract, found, mean)
    more = Draws(count, mean, jax.tree.map(lambda s, b, a: s + b * a, draws.square, before, after))
    return jax.tree.map(partial(jnp.where, good), more, draws)


def _differentiable(
    loss: Callable[[Any], Array], value_and_grad: Callable[[Any], Any]
) -> Callable[[Any], Array]:
    """The loss with the derivative of ``value_and_grad`` in both modes, as line searches ask for either."""

    @jax.custom_jvp
    def value_fn(params: Any) -> Array:
        return loss(params)

    @value_fn.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
        value, gradient = value_and_grad(*primals)
        slopes = jax.tree.map(lambda g, t: jnp.sum(g * t).astype(value.dtype), gradient, *tangents)
        return value, sum(jax.tree.leaves(slopes), jnp.zeros_like(value))

    return value_fn

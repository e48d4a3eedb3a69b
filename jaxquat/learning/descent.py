"""Updates of an optax optimiser, guarded and compiled: what ``fit`` runs on the device.

Update n draws its batch and its key from ``fold_in(key, n)``, whatever came before. It computes
loss and gradient, lets the optimiser make the update, and takes it if all of them are finite;
otherwise parameters and optimiser stay as they are, and the update is counted as skipped. The
updates from ``first`` to ``stop`` are one loop whose bounds are traced, so one program makes every
bit, wherever a chunk ends.

The same program also looks ahead: it computes losses and gradients of the next updates without
moving, and their moments tell whether the descent has converged (convergence.py). That costs no
second compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from jaxquat._checks import strong
from jaxquat.learning.differentiation import (
    forward_value_and_grad,
    wants_reverse,
    with_derivative,
)

FORWARD_LIMIT = 6
"""``mode="auto"`` differentiates forward up to this many parameters.

benchmarks/fit_mode.py measures both modes.
"""


class Position(NamedTuple):
    """Where a descent stands; with starts every array has their axis in front.

    Attributes:
        params: pytree of floating arrays.
        state: of the optimiser.
        skipped: updates left out because loss, gradient or update was not finite, () int32.
    """

    params: Any
    state: Any
    skipped: Array


class Moments(NamedTuple):
    """Moments of the loss and the gradient over several updates.

    Attributes:
        count: updates whose loss and gradient were finite, (); only these have a part in the
            others.
        mean: (loss, gradient).
        square: sums of their squared deviations from the mean, alike; exactly 0 if all were the
            same bits.
    """

    count: Any
    mean: Any
    square: Any


def checked_loss(name: str, value: Any) -> Array:
    """``value`` if it is a scalar array of floating dtype; ValueError or TypeError otherwise."""
    if not hasattr(value, "shape"):
        raise TypeError(f"{name}: wanted a scalar, got {type(value).__name__}")
    if value.shape != ():
        raise ValueError(f"{name}: wanted a scalar, got shape {value.shape}")
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name}: wanted a floating dtype, got {value.dtype}")
    return value


class Objective(NamedTuple):
    """What is minimised; every update sees a part of the data and a key of its own.

    Attributes:
        loss: ``loss(params, batch, key) -> ()``.
        key: of all updates.
        batch_size: rows of data per update, None for all.
        rows: of the data, 0 if there are none.
    """

    loss: Callable[[Any, Any, Array], Array]
    key: Array
    batch_size: int | None
    rows: int

    def at(self, number: Any, data: Any) -> Callable[[Any], Array]:
        """The loss that this update sees, a function of the parameters."""
        batch_key, loss_key = jax.random.split(jax.random.fold_in(self.key, number))
        batch = data
        if self.batch_size is not None:
            # The rows of the largest random numbers: without replacement, cheaper than to permute.
            _, chosen = lax.top_k(jax.random.bits(batch_key, (self.rows,)), self.batch_size)
            batch = jax.tree.map(lambda x: x[chosen], data)
        return lambda params: checked_loss("loss", self.loss(params, batch, loss_key))


class Descent:
    """The updates of an optimiser on an objective, compiled once."""

    def __init__(
        self,
        objective: Objective,
        optimizer: optax.GradientTransformation,
        data: Any,
        *,
        mode: Literal["auto", "forward", "reverse"],
        size: int,
        starts: int | None,
        longest: int,
    ) -> None:
        """``size`` parameters a start; at most ``longest`` updates in a call of ``advance``."""
        self.objective, self.data, self.starts = objective, data, starts
        self.optimizer = optax.with_extra_args_support(optimizer)
        self.mode, self.size, self.longest = mode, size, longest
        self._update = jax.jit(self.over_starts(self._one_update, (0, None, None, None)))
        self._updates = jax.jit(self._several_updates)

    def over_starts(self, function: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
        """``function`` of one start as a function of all: vmapped if there are starts."""
        return function if self.starts is None else jax.vmap(function, in_axes)

    def beginning(self, params: Any) -> Position:
        """The position before the first update."""
        state = jax.tree.map(strong, self.over_starts(self.optimizer.init)(params))
        return Position(params, state, jnp.zeros(self.leading, jnp.int32))

    @property
    def leading(self) -> tuple[int, ...]:
        """The leading axis of every array: that of the starts, if there are any."""
        return () if self.starts is None else (self.starts,)

    def advance(self, position: Position, first: int, stop: int) -> tuple[Position, Array]:
        """Make the updates from ``first`` to ``stop``.

        Returns the new position, and the loss before each update, (longest, ...), of which the
        first ``stop - first`` count.
        """
        bounds = np.int32(first), np.int32(stop)
        end, losses, _ = self._updates(position, *bounds, self.data, np.True_)
        return end, losses

    def seen(self, position: Position, number: int) -> tuple[np.ndarray, Any]:
        """The loss and the gradient of each start that update ``number`` sees."""
        arguments = position, np.int32(number), self.data, np.False_
        return jax.device_get(self._update(*arguments)[2])

    def look_ahead(self, position: Position, number: int, count: int) -> Moments:
        """Loss and gradient that ``count`` updates from ``number`` on see here, in numpy."""
        bounds = np.int32(number), np.int32(number + count)
        return jax.device_get(self._updates(position, *bounds, self.data, np.False_)[2])

    def losses_at(self, position: Position, number: int) -> Array:
        """The loss of each start that update ``number`` would see."""
        loss = lambda params, data: self.objective.at(number, data)(params)  # noqa: E731
        return jax.jit(self.over_starts(loss, (0, None)))(position.params, self.data)

    def _one_update(
        self, position: Position, number: Array, data: Any, moving: Array
    ) -> tuple[Position, Array, tuple[Array, Any]]:
        """One start after one update, whether all was finite, and (loss, gradient) before it."""
        params, state, skipped = position
        loss = self.objective.at(number, data)
        value_and_grad = self._differentiated(loss, params)
        value, gradient = value_and_grad(params)
        value_fn = with_derivative(loss, value_and_grad)
        extra = {"value": value, "grad": gradient, "value_fn": value_fn}
        # optax raises a float to its integer count of updates, which strict promotion refuses.
        with jax.numpy_dtype_promotion("standard"):
            updates, new_state = self.optimizer.update(gradient, state, params, **extra)
        good = _all_finite((value, gradient, updates))
        new = Position(optax.apply_updates(params, updates), new_state, skipped)
        old = Position(params, state, skipped + 1)
        return jax.tree.map(partial(jnp.where, good & moving), new, old), good, (value, gradient)

    def _differentiated(self, loss: Callable[[Any], Array], params: Any) -> Callable[[Any], Any]:
        """``params -> (loss, gradient)`` in the mode that was asked for."""
        few = self.mode == "auto" and self.size <= FORWARD_LIMIT
        forward = self.mode == "forward" or (few and not wants_reverse(loss, params))
        return (forward_value_and_grad if forward else jax.value_and_grad)(loss)

    def _several_updates(
        self, position: Position, first: Array, stop: Array, data: Any, moving: Array
    ) -> tuple[Position, Array, Moments]:
        """Make the updates from ``first`` to ``stop``.

        Of the ``longest`` losses, only the first ``stop - first`` count.
        """
        shapes = jax.eval_shape(self._update, position, first, data, moving)[2]
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        losses = jnp.zeros((self.longest, *zero[0].shape), zero[0].dtype)
        moments = Moments(jnp.zeros_like(position.skipped), zero, zero)

        def one(number: Array, carry: tuple[Position, Array, Moments]) -> Any:
            position, losses, moments = carry
            position, good, seen = self._update(position, number, data, moving)
            losses = losses.at[number - first].set(seen[0])
            return position, losses, self.over_starts(_with_one_more)(moments, good, seen)

        return lax.fori_loop(first, stop, one, (position, losses, moments))


def _all_finite(tree: Any) -> Array:
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


def _with_one_more(moments: Moments, good: Array, seen: Any) -> Moments:
    """The moments with one more loss and gradient, if these are good.

    Welford's recurrence: no cancellation, and no deviation at all where nothing deviates.
    """
    count = moments.count + 1
    before = jax.tree.map(jnp.subtract, seen, moments.mean)
    mean = jax.tree.map(lambda m, d: m + d / count.astype(d.dtype), moments.mean, before)
    after = jax.tree.map(jnp.subtract, seen, mean)
    square = jax.tree.map(lambda s, b, a: s + b * a, moments.square, before, after)
    return jax.tree.map(partial(jnp.where, good), Moments(count, mean, square), moments)

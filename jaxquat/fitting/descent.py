"""Updates of an optax optimiser, guarded and compiled: what ``fit`` runs on the device.

Update n draws its batch and its key from ``fold_in(key, n)``, and the updates from ``first`` to
``stop`` are one loop with traced bounds: one program computes every chunk, and no bit depends on
where a chunk ends.
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

from jaxquat._internal.checks import strong
from jaxquat.fitting.differentiation import forward_value_and_grad, wants_reverse, with_derivative

# ``mode="auto"`` differentiates forward up to this many parameters (benchmarks/fit_mode.py).
FORWARD_LIMIT = 6


class Position(NamedTuple):
    """The state of a descent; with starts, every array has a leading axis (starts,)."""

    params: Any
    state: Any  # of the optimiser
    skipped: Array  # number of updates skipped because something was not finite, () int32


def checked_loss(name: str, value: Any) -> Array:
    """Return ``value`` if it is a scalar array of floating dtype."""
    if not hasattr(value, "shape"):
        raise TypeError(f"{name}: wanted a scalar, got {type(value).__name__}")
    if value.shape != ():
        raise ValueError(f"{name}: wanted a scalar, got shape {value.shape}")
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"{name}: wanted a floating dtype, got {value.dtype}")
    return value


class Objective(NamedTuple):
    """The function to minimise; every update has its own batch of the data and its own key."""

    loss: Callable[[Any, Any, Array | None], Array]  # loss(params, batch, key) -> ()
    key: Array | None
    batch_size: int | None
    rows: int  # number of rows of the data, 0 without data

    def at(self, number: Any, data: Any) -> Callable[[Any], Array]:
        """Return the loss of update ``number`` as a function of the parameters."""
        batch, batch_key, loss_key = data, None, None
        if self.key is not None:
            batch_key, loss_key = jax.random.split(jax.random.fold_in(self.key, number))
        if self.batch_size is not None and batch_key is not None:  # fit demands a key for batches
            # Draw without replacement: the rows of the largest random numbers are cheaper than a
            # permutation.
            _, chosen = lax.top_k(jax.random.bits(batch_key, (self.rows,)), self.batch_size)
            batch = jax.tree.map(lambda x: x[chosen], data)
        return lambda params: checked_loss("loss", self.loss(params, batch, loss_key))


class Descent:
    """The updates of an optimiser on an objective, compiled once; at most ``longest`` in a call."""

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
        self.objective, self.data, self.starts = objective, data, starts
        self.optimizer = optax.with_extra_args_support(optimizer)
        self.mode, self.size, self.longest = mode, size, longest
        self._update = jax.jit(self.over_starts(self._one_update, (0, None, None)))
        self._updates = jax.jit(self._several_updates)

    def over_starts(self, function: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
        """Return a function of one start, vmapped over the starts if there are any."""
        return function if self.starts is None else jax.vmap(function, in_axes)

    def beginning(self, params: Any) -> Position:
        """Return the position before the first update."""
        state = jax.tree.map(strong, self.over_starts(self.optimizer.init)(params))
        return Position(params, state, jnp.zeros(self.leading, jnp.int32))

    @property
    def leading(self) -> tuple[int, ...]:
        """The leading axes of every array: (starts,), or () without starts."""
        return () if self.starts is None else (self.starts,)

    def advance(self, position: Position, first: int, stop: int) -> tuple[Position, Array]:
        """Return the position after these updates, and losses of which ``stop - first`` count."""
        return self._updates(position, np.int32(first), np.int32(stop), self.data)

    def _one_update(self, position: Position, number: Array, data: Any) -> tuple[Position, Array]:
        """Return the next position, and the loss."""
        params, state, skipped = position
        loss = self.objective.at(number, data)
        few = self.mode == "auto" and self.size <= FORWARD_LIMIT
        forward = self.mode == "forward" or (few and not wants_reverse(loss, params))
        value_and_grad = (forward_value_and_grad if forward else jax.value_and_grad)(loss)
        value, gradient = value_and_grad(params)
        value_fn = with_derivative(loss, value_and_grad)
        extra = {"value": value, "grad": gradient, "value_fn": value_fn}
        # optax raises a float to its integer count of updates, which strict promotion refuses.
        with jax.numpy_dtype_promotion("standard"):
            updates, new_state = self.optimizer.update(gradient, state, params, **extra)
        good = _all_finite((value, gradient, updates))
        new = Position(optax.apply_updates(params, updates), new_state, skipped)
        old = Position(params, state, skipped + 1)
        return jax.tree.map(partial(jnp.where, good), new, old), value

    def _several_updates(
        self, position: Position, first: Array, stop: Array, data: Any
    ) -> tuple[Position, Array]:
        """Return the position after these updates, and their losses."""
        loss = jax.eval_shape(self._update, position, first, data)[1]

        def one(number: Array, carry: tuple[Position, Array]) -> tuple[Position, Array]:
            position, losses = carry
            position, value = self._update(position, number, data)
            return position, losses.at[number - first].set(value)

        losses = jnp.zeros((self.longest, *loss.shape), loss.dtype)
        return lax.fori_loop(first, stop, one, (position, losses))


def _all_finite(tree: Any) -> Array:
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))

"""A sampled controller with memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._checks import arrays
from jaxquat.dynamics.state import State


class Controller(NamedTuple):
    """A sampled controller with memory.

    Between two samples its command stays the same. ::

        def update(t, state, memory, params, input):
            total = memory + state.q[1:]
            return -params * total, total

        controller = jq.Controller(lambda start, params: jnp.zeros(3), update)

    Attributes:
        init: ``init(start, params) -> memory``, any pytree of arrays.
        update: ``update(t, state, memory, params, input) -> (command, memory)`` at each sample. The
            memory keeps its shapes; ``input`` is this sample's slice of ``inputs`` (None without);
            the command is any pytree, which the torque is given.
        period: the time between two samples [s] that the controller counts on, if any;
            ValueError in ``rollout`` where it is not ``sample_every * dt``, or with ``jq.grid_at``
            not the length of every sample interval that is not empty.
    """

    init: Callable[[State, Any], Any]
    update: Callable[[Array, State, Any, Any, Any], tuple[Any, Any]]
    period: ArrayLike | None = None


def update_of(
    controller: Controller, t: Array, state: State, memory: Any, params: Any, value: Any
) -> tuple[Any, Any]:
    """What ``controller.update`` returns, checked; ``value`` is this sample's input."""
    update = controller.update(t, state, memory, params, value)
    if not (isinstance(update, tuple) and len(update) == 2):
        shapes = jax.tree.map(jnp.shape, update)
        raise TypeError(f"controller.update: wanted (command, memory), got {shapes}")
    arrays("controller.update", update)
    before, after = (jax.tree.map(jnp.shape, x) for x in (memory, update[1]))
    if before != after:
        raise TypeError(
            "controller.update: wanted a memory with the shapes of the one given, "
            f"{before}, got {after}"
        )
    return update

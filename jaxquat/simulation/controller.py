"""A sampled controller with memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array
from jax.typing import ArrayLike

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
            ValueError in ``rollout`` where it is not ``sample_every * dt``.
    """

    init: Callable[[State, Any], Any]
    update: Callable[[Array, State, Any, Any, Any], tuple[Any, Any]]
    period: ArrayLike | None = None

"""A sampled controller with memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array
from jax.typing import ArrayLike

from jaxquat.dynamics.state import State


class Controller(NamedTuple):
    """A sampled controller with memory. Between samples its command is held.

    Attributes:
        init: ``init(start, params) -> memory``, any pytree of arrays.
        update: ``update(t, state, memory, params, input) -> (command, memory)`` at each sample, the memory of the same shapes;
            ``input`` is this sample's slice of ``inputs`` (None without), the command any pytree, for the torque.
        period: the time between two samples [s] that the controller counts on, if any; ``rollout`` compares it with
            ``sample_every * dt``.
    """

    init: Callable[[State, Any], Any]
    update: Callable[[Array, State, Any, Any, Any], tuple[Any, Any]]
    period: ArrayLike | None = None

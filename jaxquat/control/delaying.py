"""A controller whose commands arrive some samples later."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._internal.checks import arrays, instance, positive_integer
from jaxquat.dynamics.state import State, describe
from jaxquat.simulation.controller import Controller, update_of


def delay(controller: Controller, samples: int, before: Any) -> Controller:
    """Delay the commands of a controller by a number of samples. -> Controller.

    Args:
        controller: any jq.Controller. The new memory is a pair: the commands on their way, the
            oldest first, and the memory of this controller.
        samples: at least 1.
        before: the command that acts until the first one arrives: the same pytree, shapes and
            dtypes as the controller's.

    Raises:
        TypeError, ValueError: an argument of wrong type or value. In a rollout: ``before`` is no
            command like the controller's.

    Examples:
        >>> count = jq.Controller(lambda start, params: 1.0, lambda t, s, m, p, i: (m, m + 1.0))
        >>> late = jq.control.delay(count, 2, before=0.0)
        >>> memory, state = late.init(None, None), jq.State(level, zero)
        >>> for _ in range(4):
        ...     command, memory = late.update(0.0, state, memory, None, None)
        ...     print(command, end=" ")
        0.0 0.0 1.0 2.0
    """
    instance("controller", controller, Controller, "a jq.Controller")
    samples = positive_integer("samples", samples)
    before = jax.tree.map(jnp.asarray, arrays("before", before))

    def init(start: State, params: Any) -> Any:
        return (before,) * samples, controller.init(start, params)

    def update(t: Array, state: State, memory: Any, params: Any, value: Any) -> Any:
        (first, *later), inner = memory
        command, inner = update_of(controller, t, state, inner, params, value)
        wanted, got = describe(command), describe(first)
        if wanted != got:
            raise ValueError(f"before: wanted a command like the controller's, {wanted}, got {got}")
        return first, ((*later, command), inner)

    return Controller(init, update, controller.period)

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
    """Delay the commands of a controller by a number of samples.

    Args:
        controller: its memory becomes a pair: the commands on their way, oldest first, and its own.
        samples: at least 1.
        before: the command until the first one arrives, with the structure, shapes and dtypes of
            the controller's; TypeError or ValueError in a rollout otherwise.

    Examples:
        >>> count = jq.Controller(lambda start, params: 1.0, lambda t, s, m, p, i: (m, m + 1.0))
        >>> late = jq.control.delay(count, 2, before=0.0)  # commands 0, 0, 1, 2, ...
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

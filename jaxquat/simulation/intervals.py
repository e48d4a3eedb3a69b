"""The intervals of a ``jq.grid_at``, and the treatment of empty ones, which pad recordings.

A ``where`` over the states is not enough: in derivatives 0 times an infinite slope is NaN. So an
empty step is computed from the arguments of the rollout's first step, and dropped
(``unless_empty``); a controller likewise (``holding``). Known grids without empty intervals skip
this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from jaxquat._internal.checks import is_concrete
from jaxquat.dynamics.state import State
from jaxquat.simulation.controller import Controller, update_of
from jaxquat.simulation.grid import GridAt


class Interval(NamedTuple):
    """Equal steps from one given time to the next; with a leading axis, several intervals."""

    first: Array  # the number of its first step, ()
    t: Array  # the time at which it begins [s], ()
    dt: Array  # its step [s], (), 0 if it is empty


class Held(NamedTuple):
    """The memory of a controller that holds its command and memory in empty sample intervals."""

    memory: Any
    command: Any  # the last one


def intervals_of(grid: GridAt, dtype: DTypeLike) -> Interval:
    """Return the rows of all intervals, (intervals + 1,), the last one empty, at the last time."""
    t, dt = jnp.asarray(grid.stamps, dtype), jnp.asarray(grid.step_lengths(), dtype)
    first = jnp.arange(grid.intervals + 1) * grid.substeps
    return Interval(first, t, jnp.concatenate([dt, jnp.zeros_like(dt[:1])]))


def first_step(intervals: Interval) -> Array:
    """Return the first step that is not 0 [s], (); 1 if there is none."""
    dt = intervals.dt[jnp.argmax(intervals.dt != 0)]
    return jnp.where(dt != 0, dt, jnp.ones_like(dt))


def may_be_empty(grid: GridAt, dtype: DTypeLike) -> bool:
    """Return whether an interval is empty in this dtype, or may be because the times are traced."""
    dt = grid.step_lengths()
    return not (is_concrete(dt) and np.all(dt.astype(dtype) != 0))


def unless_empty(
    is_empty: Array,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    regular: tuple[Any, ...],
    otherwise: Any,
) -> Any:
    """Return ``function(*arguments)``, or ``otherwise`` where the interval is empty."""
    chosen = _choose(is_empty, jax.tree.map(lax.stop_gradient, regular), arguments)
    return _choose(is_empty, otherwise, function(*chosen))


def _choose(condition: Array, first: Any, second: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), first, second)


def filled(inputs: Any, is_empty: Array) -> Any:
    """Give empty sample intervals the inputs of the sample before, or else of the first."""
    samples = len(is_empty)
    last = lax.cummax(jnp.where(is_empty, 0, jnp.arange(samples)))
    last = jnp.maximum(last, jnp.argmin(is_empty))
    return jax.tree.map(lambda x: jnp.asarray(x)[last], inputs)


def holding(controller: Controller, t0: Array, start: State, inputs: Any) -> Controller:
    """Keep command and memory of a controller in empty sample intervals; its input is a pair."""

    def init(start: State, params: Any) -> Held:
        memory = controller.init(start, params)
        first = jax.tree.map(lambda x: x[0], inputs)
        return Held(memory, update_of(controller, t0, start, memory, params, first)[0])

    def update(t: Array, state: State, held: Held, params: Any, value: Any) -> tuple[Any, Held]:
        is_empty, value = value

        def ask(t: Array, state: State) -> tuple[Any, Any]:
            return update_of(controller, t, state, held.memory, params, value)

        otherwise = held.command, held.memory
        command, memory = unless_empty(is_empty, ask, (t, state), (t0, start), otherwise)
        return command, Held(memory, command)

    return Controller(init, update, controller.period)

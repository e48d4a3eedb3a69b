"""The intervals of a ``jq.grid_at``: their times and steps, and the treatment of empty ones.

Repeating the last time of a recording makes it as long as others. The intervals of length 0 that
this adds must not contribute to the result. A ``where`` over the states before and after a step is
enough for the values, but not for derivatives: 0 times the infinite slope of a torque that is
singular there, or of a division by the step, is NaN. So such a step is computed from regular
arguments, those of the rollout's first step, and its result is dropped (``unless_empty``). A
controller is treated alike (``holding``). Both are left out if the times are known to have no empty
interval.
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
    """Equal steps from one given time to the next; with a leading axis, several intervals.

    Attributes:
        first: the number of its first step, ().
        t: the time at which it begins [s], ().
        dt: its step [s], (), 0 if it is empty.
    """

    first: Array
    t: Array
    dt: Array


class Held(NamedTuple):
    """The memory of a controller that holds its command and memory in empty sample intervals."""

    memory: Any
    command: Any  # the last one


def intervals_of(grid: GridAt, dtype: DTypeLike) -> Interval:
    """The rows of all intervals in this dtype, (intervals + 1,).

    The last row is empty and begins at the last time.
    """
    t, dt = jnp.asarray(grid.stamps, dtype), jnp.asarray(grid.step_lengths(), dtype)
    first = jnp.arange(grid.intervals + 1) * grid.substeps
    return Interval(first, t, jnp.concatenate([dt, jnp.zeros_like(dt[:1])]))


def first_step(intervals: Interval) -> Array:
    """The first step that is not 0 [s], (); 1 if there is none."""
    dt = intervals.dt[jnp.argmax(intervals.dt != 0)]
    return jnp.where(dt != 0, dt, jnp.ones_like(dt))


def may_be_empty(grid: GridAt, dtype: DTypeLike) -> bool:
    """Whether an interval is empty in this dtype, or may be because the times are traced."""
    dt = grid.step_lengths()
    return not (is_concrete(dt) and np.all(dt.astype(dtype) != 0))


def unless_empty(
    is_empty: Array,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    regular: tuple[Any, ...],
    otherwise: Any,
) -> Any:
    """``function(*arguments)``, or ``otherwise`` where the interval is empty.

    In an empty interval the function is called with the ``regular`` arguments, so that derivatives
    are finite.
    """
    chosen = _choose(is_empty, jax.tree.map(lax.stop_gradient, regular), arguments)
    return _choose(is_empty, otherwise, function(*chosen))


def _choose(condition: Array, first: Any, second: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), first, second)


def filled(inputs: Any, is_empty: Array) -> Any:
    """The inputs of all samples; empty sample intervals get the inputs of the sample before.

    So meaningless numbers there, such as NaN, are never used. Empty sample intervals at the
    beginning get the inputs of the first that is not empty.
    """
    samples = len(is_empty)
    last = lax.cummax(jnp.where(is_empty, 0, jnp.arange(samples)))
    last = jnp.maximum(last, jnp.argmin(is_empty))
    return jax.tree.map(lambda x: jnp.asarray(x)[last], inputs)


def holding(controller: Controller, t0: Array, start: State, inputs: Any) -> Controller:
    """A controller that keeps command and memory in empty sample intervals.

    Its input at a sample is the pair (is_empty, input). ``inputs`` are those of all samples.
    """

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

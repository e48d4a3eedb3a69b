"""A simulation through given times, as the kernel takes it: its times are inputs.

The kernel knows the number of a step, and reads inputs at every sample. So here every interval is a
sample. Its input is the row of the interval beside the input of the user's sample, and its command
is the row beside the user's command, from which ``step`` and ``save`` take their time. Times have
the derivatives of inputs for this reason: a cotangent for each row, the sum over its steps.

A controller that is sampled every few intervals is asked in each of them, and its answer dropped
where it is not due (``simulation.intervals.holding``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat.dynamics.state import State
from jaxquat.simulation.intervals import Interval, holding
from jaxquat.simulation.simulation import Simulation


class Timed(NamedTuple):
    """An input or a command, and the interval in which it is taken."""

    value: Any  # () or None where the torque has no command
    interval: Interval


class ByInterval:
    """The methods of a Simulation that a kernel is made of, with the interval in the command.

    Attributes:
        simulation: of which they are; its samples are its intervals.
        inputs: Timed, leading axis intervals.
    """

    is_commanded = True

    def __init__(self, simulation: Simulation) -> None:
        simulation = _sampled_in_each_interval(simulation)
        intervals = simulation.intervals
        assert intervals is not None
        intervals = intervals._replace(first=intervals.first.astype(jnp.int32))
        self.simulation = replace(simulation, intervals=intervals)
        self.inputs = Timed(simulation.inputs, jax.tree.map(lambda x: x[:-1], intervals))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.simulation, name)

    def command(self, k: Array, state: State, memory: Any, value: Timed) -> tuple[Timed, Any]:
        """The command from step k on, the first of an interval, and the memory then."""
        command, memory = self.simulation.command(k, state, memory, *value)
        return Timed(command, value.interval), memory

    def step(self, k: Array, state: State, command: Timed) -> State:
        """The state after step k."""
        return self.simulation.step(k, state, *command)

    def observe(self, k: Array, state: State, command: Timed) -> Any:
        """What a row keeps: the last one, under the last command, at the last time."""
        is_end, end = k == self.simulation.steps, self.simulation.end
        interval = jax.tree.map(lambda x, y: jnp.where(is_end, x, y), end, command.interval)
        return self.simulation.observe(k, state, command.value, interval)


def _sampled_in_each_interval(simulation: Simulation) -> Simulation:
    """The same simulation, of which every interval is a sample."""
    every = simulation.sample_every // simulation.substeps
    controller = simulation.controller
    inputs = jax.tree.map(lambda x: jnp.repeat(jnp.asarray(x), every, axis=0), simulation.inputs)
    if controller is not None and every > 1:
        not_due = jnp.arange(simulation.steps // simulation.substeps) % every != 0
        if simulation.may_be_empty:
            is_empty, inputs = inputs
            inputs = not_due | is_empty, inputs
        else:
            controller = holding(controller, simulation.t0, simulation.start, inputs)
            inputs = not_due, inputs
    return replace(
        simulation, controller=controller, inputs=inputs, sample_every=simulation.substeps
    )

"""A simulation through given times, as the kernel takes it: its times are inputs.

The kernel knows the number of a step, and reads inputs at every sample. So here every interval is a
sample. Its input is the row of the interval beside the input of the user's sample, and its command
is the row beside the user's command, from which ``step`` and ``save`` take their time. Times have
the derivatives of inputs for this reason: a cotangent for each row, the sum over its steps.

A controller that is sampled every few intervals is asked where it is due, by ``lax.cond``: all
bodies of a vector are at the same step, so elsewhere the kernel does not run it. Its last command
is part of the memory then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat.dynamics.state import State
from jaxquat.simulation.intervals import Held, Interval
from jaxquat.simulation.simulation import Simulation


class Timed(NamedTuple):
    """An input or a command, and the interval in which it is taken."""

    value: Any  # () or None where the torque has no command
    interval: Interval


class ByInterval:
    """The methods of a Simulation that a kernel is made of, with the interval in the command.

    Attributes:
        simulation: of which they are.
        inputs: Timed, leading axis intervals.
        sample_every: steps between two commands, those of an interval.
    """

    is_commanded = True

    def __init__(self, simulation: Simulation) -> None:
        intervals, self.sample_every = simulation.intervals, simulation.substeps
        assert intervals is not None
        intervals = intervals._replace(first=intervals.first.astype(jnp.int32))
        self.simulation = replace(simulation, intervals=intervals)
        every = simulation.sample_every // simulation.substeps
        repeated = lambda x: jnp.repeat(jnp.asarray(x), every, axis=0)  # noqa: E731
        inputs = jax.tree.map(repeated, simulation.inputs)
        self.inputs = Timed(inputs, jax.tree.map(lambda x: x[:-1], intervals))
        self.is_slow = simulation.controller is not None and every > 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.simulation, name)

    def initial_memory(self) -> Any:
        """The controller's memory at the start; a slow one's with a command, which is not used."""
        memory = self.simulation.initial_memory()
        if not self.is_slow:
            return memory
        first = jax.tree.map(lambda x: x[0], self.inputs)
        start = self.simulation.start
        command, _ = self.simulation.command(jnp.int32(0), start, memory, *first)
        return Held(memory, lax.stop_gradient(command))

    def command(self, k: Array, state: State, memory: Any, value: Timed) -> tuple[Timed, Any]:
        """The command from step k on, the first of an interval, and the memory then."""
        if not self.is_slow:
            command, memory = self.simulation.command(k, state, memory, *value)
            return Timed(command, value.interval), memory
        is_due = k % self.simulation.sample_every == 0
        ask = lambda: self.simulation.command(k, state, memory.memory, *value)  # noqa: E731
        command, inner = lax.cond(is_due, ask, lambda: (memory.command, memory.memory))
        return Timed(command, value.interval), Held(inner, command)

    def step(self, k: Array, state: State, command: Timed) -> State:
        """The state after step k."""
        return self.simulation.step(k, state, *command)

    def observe(self, k: Array, state: State, command: Timed) -> Any:
        """What a row keeps: the last one, under the last command, at the last time."""
        is_end, end = k == self.simulation.steps, self.simulation.end
        interval = jax.tree.map(lambda x, y: jnp.where(is_end, x, y), end, command.interval)
        return self.simulation.observe(k, state, command.value, interval)

"""A simulation through given times, in the form that the kernel needs: its times are inputs.

Every interval is a sample, with its row as another input, which the command passes on; so times are
differentiated as inputs are. A slower controller is called where it is due, by ``lax.cond``: all
bodies of a vector are at the same step. Its last command is then part of the memory.
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
    """An input or a command, and its interval."""

    value: Any  # () or None where the torque has no command
    interval: Interval


class ByInterval:
    """The methods of a Simulation that a kernel needs, with the interval in the command."""

    is_commanded = True

    def __init__(self, simulation: Simulation) -> None:
        intervals, self.sample_every = simulation.intervals, simulation.substeps
        assert intervals is not None
        intervals = intervals._replace(first=intervals.first.astype(jnp.int32))
        self.simulation = replace(simulation, intervals=intervals)
        intervals_each = simulation.sample_every // simulation.substeps
        repeated = lambda x: jnp.repeat(jnp.asarray(x), intervals_each, axis=0)  # noqa: E731
        inputs = jax.tree.map(repeated, simulation.inputs)
        self.inputs = Timed(inputs, jax.tree.map(lambda x: x[:-1], intervals))
        self.is_slow = simulation.controller is not None and intervals_each > 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.simulation, name)

    def initial_memory(self) -> Any:
        """Return the controller's initial memory; for a slow controller, with an unused command."""
        memory = self.simulation.initial_memory()
        if not self.is_slow:
            return memory
        first = jax.tree.map(lambda x: x[0], self.inputs)
        start = self.simulation.start
        command, _ = self.simulation.command(jnp.int32(0), start, memory, *first)
        return Held(memory, lax.stop_gradient(command))

    def command(self, k: Array, state: State, memory: Any, value: Timed) -> tuple[Timed, Any]:
        """Return the command from step k on, the first step of an interval, and the new memory."""
        if not self.is_slow:
            command, memory = self.simulation.command(k, state, memory, *value)
            return Timed(command, value.interval), memory
        is_due = k % self.simulation.sample_every == 0
        ask = lambda: self.simulation.command(k, state, memory.memory, *value)  # noqa: E731
        command, inner = lax.cond(is_due, ask, lambda: (memory.command, memory.memory))
        return Timed(command, value.interval), Held(inner, command)

    def step(self, k: Array, state: State, command: Timed) -> State:
        """Return the state after step k."""
        return self.simulation.step(k, state, *command)

    def observe(self, k: Array, state: State, command: Timed) -> Any:
        """Return the values of a row; the last row has the last command and the last time."""
        is_end, end = k == self.simulation.steps, self.simulation.end
        interval = jax.tree.map(lambda x, y: jnp.where(is_end, x, y), end, command.interval)
        return self.simulation.observe(k, state, command.value, interval)

"""The scan engine: nested ``lax.scan`` over rows of the path, samples of the controller, and steps.

Where a row holds whole samples, the nest is rows, samples, steps. Otherwise it is samples, rows,
steps, with rows so fine that they divide a sample; those that were not asked for are dropped.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat.dynamics.state import State
from jaxquat.engines.checkpointing import scan
from jaxquat.simulation.path import Path
from jaxquat.simulation.simulation import Simulation


class _Carry(NamedTuple):
    """What goes from one sample to the next."""

    k: Array  # the number of steps done, ()
    state: State
    memory: Any


def run(simulation: Simulation) -> Path:
    """Simulate by ``lax.scan``; differentiable in both modes, any number of times."""
    start = _Carry(jnp.asarray(0), simulation.start, simulation.initial_memory())
    if not simulation.is_commanded or simulation.save_every % simulation.sample_every == 0:
        end, rows, command = _rows_of_samples(simulation, start)
    else:
        end, rows, command = _samples_of_rows(simulation, start)
    last = simulation.observe(end.k, end.state, command)
    rows = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), rows, last)
    return simulation.path(rows, end.memory, end.state)


def _rows_of_samples(simulation: Simulation, start: _Carry) -> tuple[_Carry, Any, Any]:
    """The end, the observations of all rows but the last, and the last command."""
    steps, save_every, segment = simulation.steps, simulation.save_every, simulation.segment
    sample_every = simulation.sample_every if simulation.is_commanded else save_every
    rows, samples = steps // save_every, save_every // sample_every
    each_sample = _share(segment, sample_every, samples, steps)
    each_row = _share(segment, save_every, rows, steps)

    def sample(carry: _Carry, value: Any) -> tuple[_Carry, Any]:
        command, memory = simulation.command(*carry, value)
        k, state = _advance(simulation, carry.k, carry.state, command, sample_every)
        return _Carry(k, state, memory), command

    def row(carry: _Carry, values: Any) -> tuple[_Carry, Any]:
        after, commands = scan(sample, carry, values, samples, each_sample)
        first, last = (jax.tree.map(lambda x, i=i: x[i], commands) for i in (0, -1))
        return after, (simulation.observe(carry.k, carry.state, first), last)

    inputs = jax.tree.map(lambda x: x.reshape(rows, samples, *x.shape[1:]), simulation.inputs)
    end, (observed, commands) = scan(row, start, inputs, rows, each_row)
    return end, observed, jax.tree.map(lambda x: x[-1], commands)


def _samples_of_rows(simulation: Simulation, start: _Carry) -> tuple[_Carry, Any, Any]:
    """As ``_rows_of_samples``, for rows that do not hold whole samples."""
    steps, sample_every, segment = simulation.steps, simulation.sample_every, simulation.segment
    stride = math.gcd(simulation.save_every, sample_every)
    samples, rows = steps // sample_every, sample_every // stride
    each_row = _share(segment, stride, rows, steps)
    each_sample = _share(segment, sample_every, samples, steps)

    def sample(carry: _Carry, value: Any) -> tuple[_Carry, Any]:
        command, memory = simulation.command(*carry, value)

        def row(carry: tuple[Array, State], _: None) -> tuple[tuple[Array, State], Any]:
            return _advance(simulation, *carry, command, stride), simulation.observe(
                *carry, command
            )

        (k, state), observed = scan(row, (carry.k, carry.state), None, rows, each_row)
        return _Carry(k, state, memory), (observed, command)

    end, (observed, commands) = scan(sample, start, simulation.inputs, samples, each_sample)
    every = simulation.save_every // stride
    observed = jax.tree.map(lambda x: x.reshape(samples * rows, *x.shape[2:])[::every], observed)
    return end, observed, jax.tree.map(lambda x: x[-1], commands)


def _advance(
    simulation: Simulation, k: Array, state: State, command: Any, steps: int
) -> tuple[Array, State]:
    """``steps`` steps from step k on, under one command."""

    # Recomputing a step costs less than storing and reading back what it computed
    # (docs/performance.md). Inside a scan the compiler cannot merge the recomputation with the
    # original.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def one(carry: tuple[Array, State], _: None) -> tuple[tuple[Array, State], None]:
        k, state = carry
        return (k + 1, simulation.step(k, state, command)), None

    share = _share(simulation.segment, 1, steps, simulation.steps)
    return scan(one, (k, state), None, steps, share)[0]


def _share(segment: int | None, unit: int, count: int, total: int) -> int | None:
    """Iterations of ``unit`` steps that make a segment at this level of the nest.

    None where another level makes the segments, or none does.
    """
    if segment is None or segment < unit:
        return None
    here = unit * count
    if here <= segment < total or here < total <= segment:
        return None
    return segment // unit

"""The scan engine: nested ``lax.scan`` over rows of the path, samples of the controller, and steps.

If each row has whole samples, the nest is rows, samples, steps. Otherwise it is samples, rows,
steps, with rows so fine that they divide a sample; rows that were not requested are dropped. Each
scan gets only the intervals within it, so that the cotangent of a time is written once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._internal.checkpointing import scan
from jaxquat.dynamics.state import State
from jaxquat.simulation.path import Path
from jaxquat.simulation.simulation import Simulation


class _Carry(NamedTuple):
    k: Array  # the number of steps done, ()
    state: State
    memory: Any


def run(simulation: Simulation, advance: Any = None) -> Path:
    """Simulate by ``lax.scan``; differentiable in both modes, any number of times."""
    # Without commands, ``advance`` may replace ``_advance``: it takes the steps of a row.
    start = _Carry(jnp.asarray(0), simulation.start, simulation.initial_memory())
    if not simulation.is_commanded or simulation.save_every % simulation.sample_every == 0:
        end, rows, command = _rows_of_samples(simulation, start, advance or _advance)
    else:
        end, rows, command = _samples_of_rows(simulation, start)
    last = simulation.observe(end.k, end.state, command, simulation.end)
    rows = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), rows, last)
    return simulation.path(rows, end.memory, end.state)


def _rows_of_samples(
    simulation: Simulation, start: _Carry, advance: Callable[..., tuple[Array, State]]
) -> tuple[_Carry, Any, Any]:
    """Return the end, the observations of all rows but the last, and the last command."""
    steps, save_every, segment = simulation.steps, simulation.save_every, simulation.segment
    sample_every = simulation.sample_every if simulation.is_commanded else save_every
    rows, samples = steps // save_every, save_every // sample_every
    each_sample = _share(segment, sample_every, samples, steps)
    each_row = _share(segment, save_every, rows, steps)

    def sample(carry: _Carry, given: tuple[Any, Any]) -> tuple[_Carry, Any]:
        value, intervals = given
        command, memory = simulation.command(*carry, value, _at(intervals, 0))
        k, state = advance(simulation, carry.k, carry.state, command, sample_every, intervals)
        return _Carry(k, state, memory), command

    def row(carry: _Carry, given: tuple[Any, Any]) -> tuple[_Carry, Any]:
        after, commands = scan(sample, carry, given, samples, each_sample)
        first, last = _at(commands, 0), _at(commands, -1)
        interval = _at(given[1], (0, 0))
        return after, (simulation.observe(carry.k, carry.state, first, interval), last)

    inputs = _split(simulation.inputs, rows, samples)
    intervals = _intervals(simulation, rows, samples)
    end, (observed, commands) = scan(row, start, (inputs, intervals), rows, each_row)
    return end, observed, jax.tree.map(lambda x: x[-1], commands)


def _samples_of_rows(simulation: Simulation, start: _Carry) -> tuple[_Carry, Any, Any]:
    """Do as ``_rows_of_samples``, for rows that do not have whole samples."""
    steps, sample_every, segment = simulation.steps, simulation.sample_every, simulation.segment
    stride = math.gcd(simulation.save_every, sample_every)
    samples, rows = steps // sample_every, sample_every // stride
    each_row = _share(segment, stride, rows, steps)
    each_sample = _share(segment, sample_every, samples, steps)

    def sample(carry: _Carry, given: tuple[Any, Any]) -> tuple[_Carry, Any]:
        value, intervals = given
        command, memory = simulation.command(*carry, value, _at(intervals, (0, 0)))

        def row(carry: tuple[Array, State], intervals: Any) -> tuple[tuple[Array, State], Any]:
            after = _advance(simulation, *carry, command, stride, intervals)
            return after, simulation.observe(*carry, command, _at(intervals, 0))

        (k, state), observed = scan(row, (carry.k, carry.state), intervals, rows, each_row)
        return _Carry(k, state, memory), (observed, command)

    xs = simulation.inputs, _intervals(simulation, samples, rows)
    end, (observed, commands) = scan(sample, start, xs, samples, each_sample)
    every = simulation.save_every // stride
    observed = jax.tree.map(lambda x: x.reshape(samples * rows, *x.shape[2:])[::every], observed)
    return end, observed, jax.tree.map(lambda x: x[-1], commands)


def _at(tree: Any, index: Any) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


def _split(tree: Any, *lengths: int) -> Any:
    return jax.tree.map(lambda x: x.reshape(*lengths, *x.shape[1:]), tree)


def _intervals(simulation: Simulation, outer: int, inner: int) -> Any:
    """Split the intervals by the outer loops, (outer, inner, intervals); None for equal steps."""
    rows = jax.tree.map(lambda x: x[:-1], simulation.intervals)
    return _split(rows, outer, inner, -1)


def _advance(
    simulation: Simulation, k: Array, state: State, command: Any, steps: int, intervals: Any
) -> tuple[Array, State]:
    """Take ``steps`` steps from step k on, with one command; those of ``intervals`` if not None."""

    # Recomputing a step costs less than storing and reading back its values (docs/performance.md).
    # Inside a scan the compiler cannot merge the recomputation with the original computation.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def one(carry: tuple[Array, State], interval: Any) -> tuple[tuple[Array, State], None]:
        k, state = carry
        return (k + 1, simulation.step(k, state, command, interval)), None

    def through(carry: tuple[Array, State], interval: Any) -> tuple[tuple[Array, State], None]:
        return scan(lambda carry, _: one(carry, interval), carry, None, substeps, share)

    substeps, total = simulation.substeps, simulation.steps
    if substeps == 1:
        share = _share(simulation.segment, 1, steps, total)
        return scan(one, (k, state), intervals, steps, share)[0]
    share = _share(simulation.segment, 1, substeps, total)
    count = steps // substeps
    each_interval = _share(simulation.segment, substeps, count, total)
    return scan(through, (k, state), intervals, count, each_interval)[0]


def _share(segment: int | None, unit: int, count: int, total: int) -> int | None:
    """Return iterations of ``unit`` steps that make a segment at this level; None if none do."""
    if segment is None or segment < unit:
        return None
    here = unit * count
    if here <= segment < total or here < total <= segment:
        return None
    return segment // unit

"""The scan engine: nested ``lax.scan`` over saved rows, samples of the controller, and steps."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._checks import arrays, instance
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque, commanded
from jaxquat.dynamics.state import State
from jaxquat.engines.checkpointing import scan
from jaxquat.simulation.controller import Controller


class Problem(NamedTuple):
    """What is integrated: everything but the start, the inputs, and what is kept."""

    step: Step
    body: Body
    torque: Torque
    t0: Array  # () in the dtype of the state
    dt: Array  # ()
    steps: int
    params: Any
    controller: Controller | None
    save: Callable[..., Any] | None = None


def run(
    problem: Problem,
    start: State,
    inputs: Any,
    sample_every: int,
    save_every: int,
    segment: int | None,
) -> tuple[State, Any, Any]:
    """The saved states, the saved commands, and the final memory.

    ``segment`` is the number of steps between two states kept for the backward pass; None keeps all.
    """
    controller, sampled = problem.controller, is_sampled(problem, inputs)
    if not sampled:
        sample_every = save_every
    memory = arrays("controller.init", controller.init(start, problem.params)) if controller else ()
    carry = (jnp.asarray(0), start, memory)

    if save_every % sample_every == 0:  # rows, within each the samples, within each the steps
        rows, samples = problem.steps // save_every, save_every // sample_every
        each_sample = _share(segment, sample_every, samples, problem.steps)
        each_row = _share(segment, save_every, rows, problem.steps)

        def hold(carry: Any, value: Any) -> tuple[Any, Any]:
            k, state, memory = carry
            held, memory = sample(problem, k, state, memory, value)
            return (
                *_advance(problem, held, sampled, k, state, sample_every, segment),
                memory,
            ), held

        def row(carry: Any, values: Any) -> tuple[Any, Any]:
            after, held = scan(hold, carry, values, samples, each_sample)
            return after, (
                carry[1],
                jax.tree.map(lambda x: x[0], held),
                jax.tree.map(lambda x: x[-1], held),
            )

        values = jax.tree.map(lambda x: x.reshape(rows, samples, *x.shape[1:]), inputs)
        (_, last, memory), (states, commands, final) = scan(row, carry, values, rows, each_row)
    else:  # samples, within each the rows, within each the steps; rows finer than asked for where neither divides the other
        stride = math.gcd(save_every, sample_every)
        samples, rows = problem.steps // sample_every, sample_every // stride
        each_row = _share(segment, stride, rows, problem.steps)
        each_sample = _share(segment, sample_every, samples, problem.steps)

        def hold(carry: Any, value: Any) -> tuple[Any, Any]:
            k, state, memory = carry
            held, memory = sample(problem, k, state, memory, value)

            def row(carry: Any, _: None) -> tuple[Any, Any]:
                return _advance(problem, held, sampled, carry[0], carry[1], stride, segment), carry[
                    1
                ]

            (k, state), states = scan(row, (k, state), None, rows, each_row)
            return (k, state, memory), (states, held)

        (_, last, memory), (states, final) = scan(hold, carry, inputs, samples, each_sample)
        states = jax.tree.map(
            lambda x: x.reshape(samples * rows, *x.shape[2:])[:: save_every // stride], states
        )
        index = [row * save_every // sample_every for row in range(problem.steps // save_every)]
        commands = jax.tree.map(lambda x: x[jnp.asarray(index)], final)
    states = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), states, last)
    commands = jax.tree.map(lambda x, y: jnp.concatenate([x, y[-1:]]), commands, final)
    return states, commands if sampled else (), memory


def is_sampled(problem: Problem, inputs: Any) -> bool:
    """Whether something is held between samples, and so given to torque and ``save``."""
    return problem.controller is not None or inputs is not None


def sample(problem: Problem, k: Array, state: State, memory: Any, value: Any) -> tuple[Any, Any]:
    """The command held from step k on, and the memory then; ``value`` is this sample's slice of the inputs."""
    controller = problem.controller
    if controller is None:
        return value, memory
    result = controller.update(_time(problem, k), state, memory, problem.params, value)
    if not (isinstance(result, tuple) and len(result) == 2):
        raise TypeError(
            f"controller.update: wanted (command, memory), got {jax.tree.map(jnp.shape, result)}"
        )
    arrays("controller.update", result)
    before, after = (jax.tree.map(jnp.shape, x) for x in (memory, result[1]))
    if before != after:
        raise TypeError(
            f"controller.update: wanted a memory with the shapes of the one given, {before}, got {after}"
        )
    return result


def step(problem: Problem, held: Any, sampled: bool, k: Array, state: State) -> State:
    """Step number k. With ``sampled`` the torque is given what is held."""
    torque = commanded(problem.torque, held) if sampled else problem.torque
    after = problem.step(problem.body, torque, _time(problem, k), state, problem.dt, problem.params)
    return instance("step", after, State, "a State back")


def observe(problem: Problem, sampled: bool, k: Array, state: State, held: Any) -> Any:
    """What is kept of the state before step number k: state and command, or what ``save`` makes of them."""
    if problem.save is None:
        return state, held
    kept = problem.save(_time(problem, k), state, problem.params, *([held] if sampled else []))
    return jax.tree.map(jnp.asarray, arrays("save", kept))


def _time(problem: Problem, k: Array) -> Array:
    return problem.t0 + k.astype(problem.t0.dtype) * problem.dt


def _advance(
    problem: Problem,
    held: Any,
    sampled: bool,
    k: Array,
    state: State,
    steps: int,
    segment: int | None,
) -> tuple[Array, State]:
    """``steps`` steps from step number k, the command held."""

    # Recomputing a step costs less than storing and reading back what it computed (docs/performance.md). Inside a scan the
    # compiler cannot merge the recomputation with the original.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def one(carry: tuple[Array, State], _: None) -> tuple[tuple[Array, State], None]:
        k, state = carry
        return (k + 1, step(problem, held, sampled, k, state)), None

    return scan(one, (k, state), None, steps, _share(segment, 1, steps, problem.steps))[0]


def _share(segment: int | None, unit: int, count: int, total: int) -> int | None:
    """Iterations of ``unit`` steps that make a segment at this level of the nest; None where another level does it."""
    if (
        segment is None
        or segment < unit
        or unit * count <= segment < total
        or (unit * count < total <= segment)
    ):
        return None
    return segment // unit

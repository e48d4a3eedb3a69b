"""The records that the planners take, and their checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal.checks import (
    every,
    finite,
    floating,
    instance,
    is_concrete,
    one_shape,
    takes,
    unit_quaternion,
    vector,
)
from jaxquat.dynamics.state import State, describe
from jaxquat.planning.constraints import Kinds
from jaxquat.planning.trajectory import Limits, Problem
from jaxquat.simulation.simulation import Simulation


class Residuals(NamedTuple):
    """Functions whose squares are the cost: half their sum over all samples, and at the end.

    Attributes:
        stage: ``stage(k, state, params, command) -> (r,)`` at the start of sample k, in the dtype
            of the start. In ``mpc`` and ``mppi`` k counts the samples of the rollout.
        final: ``final(state, params) -> (r,)`` at the end; in ``mpc`` and ``mppi``
            ``final(k, state, params)`` at the end of the horizon, where sample k begins. None for
            no cost.

    Examples:
        >>> stopped = lambda state, params: 100.0 * state.omega
        >>> jq.planning.Residuals(effort, stopped).final is stopped
        True
    """

    stage: Callable[..., Array]
    final: Callable[..., Array] | None = None


class Constraints(NamedTuple):
    """What a plan must meet. ``mppi`` takes only limits.

    Attributes:
        limits: ``(least, largest)`` commands, each (), (m,) or (samples, m). Infinity is no limit.
        equalities: ``equalities(state, params) -> (e,)``, 0 at the end, in any unit;
            ``equalities(k, state, params)`` in ``mpc``, whose end moves.
        inequalities: ``inequalities(k, state, params, command) -> (c,)``, at most 0 at the start of
            each sample k, in any unit. In ``mpc`` k counts the samples of the rollout.

    Examples:
        >>> jq.planning.Constraints(limits=(-0.5, 0.5)).limits  # N m
        (-0.5, 0.5)
    """

    limits: tuple[ArrayLike, ArrayLike] | None = None
    equalities: Callable[..., Array] | None = None
    inequalities: Callable[..., Array] | None = None


class Solver(NamedTuple):
    """How ``ilqr`` minimises.

    Attributes:
        iterations: the largest number of steps.
        tolerance: the iteration has converged if the quadratic model promises a decrease of at most
            this number squared, as a fraction of the cost (D. M. Bates and D. G. Watts,
            Technometrics 23, 179, 1981) or, if larger, of the first cost times the tolerance.
            Between 0 and 1; None is the root of the dtype's epsilon: 1.5e-8 in float64, 3.5e-4 in
            float32. The cost of meeting constraints exactly must be below its 2.5th power.
        hessian: "exact" uses the exact Hessian where it is positive definite, Gauss and Newton's
            elsewhere; near the minimum the convergence is quadratic. "gauss-newton" never computes
            second derivatives: a step costs less, but the convergence is linear where the residuals
            do not vanish.

    Examples:
        >>> jq.planning.Solver(hessian="gauss-newton").iterations
        100
    """

    iterations: int = 100
    tolerance: float | None = None
    hessian: str = "exact"


class Sampling(NamedTuple):
    """How ``mppi`` draws sequences of commands, and weighs them.

    Attributes:
        std: standard deviation of the random changes, in the units of the commands, () or (m,).
        temperature: of the weights, in the units of the cost: low ones follow the best sequences,
            high ones the mean of all.
        samples: the number of random sequences.

    Examples:
        >>> jq.planning.Sampling(std=0.2, temperature=0.01).samples  # N m, and its square
        1024
    """

    std: ArrayLike
    temperature: ArrayLike
    samples: int = 1024


def residuals_of(residuals: Callable[..., Array] | Residuals, final_arguments: str) -> Residuals:
    """Return the residuals as a record, with functions that take the right arguments."""
    if not isinstance(residuals, Residuals):
        residuals = Residuals(residuals)
    takes("residuals", residuals.stage, "k, state, params, command")
    if residuals.final is not None:
        takes("residuals.final", residuals.final, final_arguments)
    return residuals


def checked_constraints(
    constraints: Constraints | None, at_end: str = "state, params"
) -> Constraints:
    """Return the constraints, those of None too, with functions that take the right arguments."""
    if constraints is None:
        return Constraints()
    instance("constraints", constraints, Constraints, "a planning.Constraints or None")
    if constraints.equalities is not None:
        takes("constraints.equalities", constraints.equalities, at_end)
    if constraints.inequalities is not None:
        takes("constraints.inequalities", constraints.inequalities, "k, state, params, command")
    return constraints


def checked_commands(commands: Any) -> Array:
    """Return the guess of the commands as a finite array (samples, m)."""
    guess = floating("commands", commands)
    if guess.ndim != 2 or not guess.size:
        raise ValueError(f"commands: wanted shape (samples, m), got {guess.shape}")
    finite("commands", guess)
    return guess


def parted(commands: Any) -> tuple[Any, State | None]:
    """Split a pair of commands and states; the states are None for anything else."""
    if isinstance(commands, tuple) and len(commands) == 2 and isinstance(commands[1], State):
        return commands
    return commands, None


def checked_states(states: State, start: State, samples: int) -> State:
    """Return a guess of the states as arrays, with leaves like those of the start."""
    rows = jax.tree.map(lambda x: floating("commands[1]", x), states)
    shaped = jax.tree.map(lambda x: jnp.zeros((samples + 1, *x.shape), x.dtype), start)
    if describe(rows) != describe(shaped):
        wanted = f"a jq.State like the start with leading axes {samples + 1}, a row for each of the"
        wanted += f" samples and one for the end: {describe(shaped)}"
        raise ValueError(f"commands[1]: wanted {wanted}, got {describe(rows)}")
    for leaf in jax.tree.leaves(rows):
        finite("commands[1]", leaf)
    unit_quaternion("commands[1].q", rows.q)
    return rows


def checked_limits(limits: Any, commands: Array) -> Limits:
    """Return the limits as arrays like the commands; None for None."""
    if limits is None:
        return None
    if not isinstance(limits, tuple | list) or len(limits) != 2:
        raise TypeError(f"constraints.limits: wanted (least, largest) or None, got {limits!r}")
    shapes = (), commands.shape[1:], commands.shape
    lower, upper = (one_shape("constraints.limits", limit, *shapes) for limit in limits)
    if is_concrete((lower, upper)):
        pairs = np.stack(np.broadcast_arrays(np.asarray(lower), np.asarray(upper)), axis=-1)
        good = np.broadcast_to(pairs[..., :1] <= pairs[..., 1:], pairs.shape)
        every("constraints.limits", "least <= largest", pairs, good)
    full = lambda x: jnp.broadcast_to(x.astype(commands.dtype), commands.shape)  # noqa: E731
    return full(lower), full(upper)


def problem_of(simulation: Simulation, residuals: Residuals) -> Problem:
    """Return the samples and the end of a simulation with these residuals."""
    params, count, dtype = simulation.params, simulation.sample_every, simulation.start.q.dtype
    final = at_end("residuals.final", residuals.final, params, dtype)

    def stage(k: Array, state: State, command: Array) -> tuple[State, Array]:
        values = numbers_of("residuals", residuals.stage(k, state, params, command), dtype)
        if count == 1:
            return simulation.step(k, state, command), values
        step = lambda state, i: (simulation.step(k * count + i, state, command), None)  # noqa: E731
        return lax.scan(step, state, jnp.arange(count))[0], values

    return Problem(stage, final)


def kinds_of(constraints: Constraints, params: Any, dtype: Any) -> Kinds:
    """Return the functions of the constraints; where they are None, functions of no numbers."""
    inequalities = constraints.inequalities

    def along(k: Array, state: State, command: Array) -> Array:
        if inequalities is None:
            return jnp.zeros(0, dtype)
        value = inequalities(k, state, params, command)
        return numbers_of("constraints.inequalities", value, dtype)

    end = at_end("constraints.equalities", constraints.equalities, params, dtype)
    return Kinds(end, along)


def at_end(
    name: str, function: Callable[..., Array] | None, params: Any, dtype: Any
) -> Callable[[State], Array]:
    """Return the function of the last state; for None, a function of no numbers."""
    if function is None:
        return lambda state: jnp.zeros(0, dtype)
    return lambda state: numbers_of(name, function(state, params), dtype)


def numbers_of(name: str, value: Any, dtype: Any) -> Array:
    """Return the result of a function of residuals or constraints, (r,) in this dtype."""
    array = vector(f"{name}(...)", value)
    if array.dtype != dtype and not array.weak_type:
        raise TypeError(f"{name}(...): wanted the dtype of the start, {dtype}, got {array.dtype}")
    return array.astype(dtype)

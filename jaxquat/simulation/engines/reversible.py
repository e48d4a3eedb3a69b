"""The reversible engine: reverse mode in constant memory.

``Scheme.undo`` undoes a step of a reversible scheme, given the noise of that step. So the backward
pass needs only the states in the rows of the path. From each row it goes back to the row before,
step by step: it undoes a step, differentiates that step at the state it has reached, and adds to
the cotangents. The engine defines this derivative itself, so it has no forward mode.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat._internal.checks import is_concrete
from jaxquat._internal.varying import axes_of, cast
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import evaluate_at_attitude
from jaxquat.dynamics.state import State
from jaxquat.schemes import SCHEMES
from jaxquat.simulation.grid import Grid, GridAt
from jaxquat.simulation.intervals import unless_empty
from jaxquat.simulation.noise import draw
from jaxquat.simulation.path import Path
from jaxquat.simulation.simulation import Simulation

AMPLIFIED = (
    'checkpoint: "reversible" wanted a drag that decays by at most 9 powers of e between two rows '
    "(29 in float64), because undoing it amplifies rounding by as much"
)
INSTEAD = 'save more rows, or use "sqrt"'


def run(simulation: Simulation, grid: Grid | GridAt) -> Path:
    """Simulate on this grid; reverse mode undoes the steps.

    If drag, body or grid are traced, derivatives are NaN where there is too much drag to be undone.

    Raises:
        ValueError: the scheme is not reversible or has too much drag to be undone, or there is a
            controller, or there are inputs, or the noise is an array.
        TypeError: the torque depends on the rate.
    """
    exponent, largest = amplification(simulation, grid), largest_amplification(simulation)
    _check(simulation, exponent, largest)
    states = _states(simulation)
    if not is_concrete(exponent):
        states = _if_undone(states, exponent <= largest)
    if simulation.save is None:
        rows = states, ()
    else:
        every = simulation.save_every // simulation.substeps
        numbers = jnp.arange(0, simulation.steps + 1, simulation.save_every)
        intervals = jax.tree.map(lambda x: x[::every], simulation.intervals)
        observe = lambda k, state, at: simulation.observe(k, state, (), at)  # noqa: E731
        rows = jax.vmap(observe)(numbers, states, intervals)
    return simulation.path(rows, (), jax.tree.map(lambda x: x[-1], states))


def _check(simulation: Simulation, exponent: Array, largest: float) -> None:
    if not simulation.scheme.reversible:
        known = ", ".join(name for name, scheme in SCHEMES.items() if scheme.reversible)
        raise ValueError(
            f'checkpoint: "reversible" wanted a time-reversible scheme ({known}, or composed of '
            f"one), got {simulation.scheme.name}"
        )
    if simulation.commands_torque:
        got = "inputs" if simulation.controller is None else "a controller"
        raise ValueError(
            f'checkpoint: "reversible" wanted neither controller nor inputs, got {got}; use "sqrt"'
        )
    if simulation.inputs is not None:  # noise for each step
        text = (
            "wanted a random key for noise, got an array, which takes as much memory as the states"
        )
        raise ValueError(f'checkpoint: "reversible" {text}; use "sqrt"')
    if is_concrete(exponent) and float(exponent) > largest:
        raise ValueError(f"{AMPLIFIED}, got {float(exponent):.3g}; {INSTEAD}")
    torque, start, t0 = simulation.torque, simulation.start, simulation.t0
    evaluate_at_attitude('checkpoint "reversible"', torque, t0, start, simulation.params)


def amplification(simulation: Simulation, grid: Grid | GridAt) -> Array:
    """An upper bound, (), of the exponent by which undoing a row's steps amplifies rounding.

    It is concrete under ``jit``, too, if scheme, body and grid are.
    """
    scheme, body, every = simulation.scheme, simulation.body, simulation.save_every
    known = is_concrete((scheme, body, grid))
    with jax.ensure_compile_time_eval() if known else contextlib.nullcontext():
        decay = scheme.decay(body)
        if decay is None:
            return jnp.zeros_like(simulation.dt)
        if isinstance(grid, Grid):
            return decay * every * grid.dt
        return jnp.max(jnp.diff(jnp.asarray(grid.stamps)[:: every // grid.substeps])) * decay


def largest_amplification(simulation: Simulation) -> float:
    """The exponent beyond which fewer than three digits remain."""
    return math.log(1e-3 / float(jnp.finfo(simulation.dt.dtype).eps))


@jax.custom_vjp
def _if_undone(states: State, fits: Array) -> State:
    """The states; their cotangents are NaN if the steps cannot be undone."""
    return states


def _keep(states: State, fits: Array) -> tuple[State, Array]:
    return states, fits


def _spoil(fits: Array, cotangents: State) -> tuple[State, None]:
    return jax.tree.map(lambda x: jnp.where(fits, x, jnp.nan), cotangents), None


_if_undone.defvjp(_keep, _spoil)


class _Clock(NamedTuple):
    """The times of steps: step k begins at ``t + k dt`` [s]. A leading axis is over intervals."""

    t: Array
    dt: Array


class _Arguments(NamedTuple):
    """The values that the states depend on, besides the start."""

    smooth: list[Array]  # float leaves of body and params, and of closed-over arrays
    clock: _Clock  # of all steps; or a row for each interval, where k begins at 0
    others: list[Any]  # the other leaves, and all that only undoing needs: they have no derivative
    regular: Any  # time, state and step for steps of empty intervals; None if there are none
    key: Any  # of the noise; None without noise


_Step = Callable[..., State]  # step(arguments, clock, k, state, undo=False), see _step


def _states(simulation: Simulation) -> State:
    """The states of all rows, with a derivative that undoes the steps."""
    step, arguments = _step(simulation)
    back: list[Callable[..., tuple[_Arguments, State]]] = []

    @jax.custom_vjp
    def states(arguments: _Arguments, start: State) -> State:
        return _forth(step, simulation, arguments, start)

    def forward(arguments: _Arguments, start: State) -> tuple[State, Any]:
        rows = states(arguments, start)
        # Traced here, because JAX runs ``backward`` without the names of vmapped axes.
        retreat = functools.partial(_back, step, simulation)
        traced, constants = jax.closure_convert(retreat, arguments, rows, rows)
        back[:] = [traced]
        return rows, (arguments, rows, constants)

    def backward(kept: Any, cotangents: State) -> tuple[_Arguments, State]:
        arguments, rows, constants = kept
        return back[0](arguments, rows, cotangents, *constants)

    states.defvjp(forward, backward)
    return states(arguments, simulation.start)


def _by_row(simulation: Simulation, clock: _Clock) -> _Clock | None:
    """The clocks of the intervals of each row, (rows, intervals); None for equal steps."""
    if simulation.intervals is None:
        return None
    rows = simulation.steps // simulation.save_every
    return jax.tree.map(lambda x: x.reshape(rows, -1), clock)


def _forth(step: _Step, simulation: Simulation, arguments: _Arguments, start: State) -> State:
    """The states of all rows, computed from the start on."""
    steps, save_every, substeps = simulation.steps, simulation.save_every, simulation.substeps

    def advance(clock: _Clock, carry: tuple[Array, State], count: int) -> tuple[Array, State]:
        def one(carry: tuple[Array, State], _: None) -> tuple[tuple[Array, State], None]:
            k, state = carry
            return (k + 1, step(arguments, clock, k, state)), None

        return lax.scan(one, carry, None, length=count)[0]

    def through(carry: tuple[Array, State], clock: _Clock) -> tuple[tuple[Array, State], None]:
        return advance(clock, carry, substeps), None

    def row(carry: tuple[Array, State], clocks: Any) -> tuple[tuple[Array, State], State]:
        if clocks is None:
            return advance(arguments.clock, carry, save_every), carry[1]
        return lax.scan(through, carry, clocks)[0], carry[1]

    carry, clocks = (jnp.asarray(0), start), _by_row(simulation, arguments.clock)
    (_, last), rows = lax.scan(row, carry, clocks, length=steps // save_every)
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), rows, last)


def _retreat(step: _Step, arguments: _Arguments, clock: _Clock, carry: Any, count: int) -> Any:
    """Go back over ``count`` steps of a clock."""

    def undo(carry: Any, _: None) -> tuple[Any, None]:
        """Go back over step k - 1; ``cotangent`` is the cotangent of the state after it."""
        k, state, cotangent, total = carry
        k = k - 1
        before = lax.optimization_barrier(step(arguments, clock, k, state, undo=True))

        def again(smooth: list[Array], t: Array, dt: Array, state: State) -> State:
            replaced = arguments._replace(smooth=smooth)
            return step(replaced, _Clock(t, dt), k, state)

        pull = jax.vjp(again, arguments.smooth, *clock, before)[1]
        smooth, t, dt, cotangent = pull(cotangent)
        total = jax.tree.map(jnp.add, total, (smooth, t, dt))
        return (k, before, cotangent, total), None

    return lax.scan(undo, carry, None, length=count)[0]


def _back(
    step: _Step, simulation: Simulation, arguments: _Arguments, rows: State, cotangents: State
) -> tuple[_Arguments, State]:
    """The cotangents of the arguments and of the start, from those of all rows."""
    steps, save_every, substeps = simulation.steps, simulation.save_every, simulation.substeps

    retreat = functools.partial(_retreat, step, arguments)

    def through(carry: Any, clock: _Clock) -> tuple[Any, _Clock]:
        """Go back over an interval; its clock has its own cotangent."""
        *carry, smooth = carry
        total = (smooth, *jax.tree.map(jnp.zeros_like, clock))
        *carry, (smooth, *by_clock) = retreat(clock, (*carry, total), substeps)
        return (*carry, smooth), _Clock(*by_clock)

    def row(carry: Any, given: tuple[State, State, Any]) -> tuple[Any, Any]:
        """Go back over the steps before a row; ``given`` has its state, cotangent and clocks."""
        k, cotangent, total = carry
        state, of_row, clocks = given
        cotangent = jax.tree.map(jnp.add, cotangent, of_row)
        if clocks is None:
            carry = k, state, cotangent, total
            k, _, cotangent, total = retreat(arguments.clock, carry, save_every)
            return (k, cotangent, total), None
        carry = k, state, cotangent, total[0]
        (k, _, cotangent, smooth), by_clocks = lax.scan(through, carry, clocks, reverse=True)
        return (k, cotangent, (smooth, *total[1:])), by_clocks

    clocks = _by_row(simulation, arguments.clock)
    total = jax.tree.map(jnp.zeros_like, (arguments.smooth, *arguments.clock))
    cotangent = jax.tree.map(lambda x: jnp.zeros_like(x[0]), rows)
    ends = jax.tree.map(lambda x: x[1:], (rows, cotangents))
    carry = jnp.asarray(steps), cotangent, total
    (_, cotangent, total), by_clocks = lax.scan(row, carry, (*ends, clocks), reverse=True)
    start = jax.tree.map(lambda x, y: x + y[0], cotangent, cotangents)
    smooth, *clock = total
    if by_clocks is not None:
        clock = jax.tree.map(lambda x, like: x.reshape(like.shape), by_clocks, arguments.clock)
    others = [None] * len(arguments.others)
    return _Arguments(smooth, _Clock(*clock), others, regular=None, key=None), start


def _step(simulation: Simulation) -> tuple[_Step, _Arguments]:
    """Return ``step(arguments, clock, k, state, undo)`` and its arguments.

    It takes step k of the rollout, whose time the clock tells, or undoes it.
    """
    scheme, torque, substeps = simulation.scheme, simulation.torque, simulation.substeps
    times = simulation.t0, simulation.dt, simulation.intervals
    t0, dt, intervals = cast(times, axes_of(simulation.start))
    count, dtype = scheme.noise(simulation.start), simulation.start.q.dtype
    normals = jnp.zeros(count, dtype) if count else None

    def plain(body: Body, params: Any, *of_step: Any) -> State:
        t, state, dt, noise = of_step
        return scheme(body, torque, t, state, dt, params, noise)

    def undone(body: Body, params: Any, *of_step: Any) -> State:
        t, state, dt, noise = of_step
        return scheme.undo(body, torque, t, state, dt, params, noise)

    # Arrays that torque and scheme close over become arguments, so that they are differentiated.
    examples = simulation.body, simulation.params, t0, simulation.start, dt, normals
    advance, closed_over = jax.closure_convert(plain, *examples)
    retreat, only_undone = jax.closure_convert(undone, *examples)
    leaves, structure = jax.tree.flatten((closed_over, simulation.body, simulation.params))
    is_smooth = [jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) for leaf in leaves]

    def step(
        arguments: _Arguments, clock: _Clock, k: Array, state: State, undo: bool = False
    ) -> State:
        smooth, others = iter(arguments.smooth), iter(arguments.others)
        merged = [next(smooth) if chosen else next(others) for chosen in is_smooth]
        closed_over, body, params = jax.tree.unflatten(structure, merged)
        only_undone = list(others)
        number = (k if intervals is None else k % substeps) + (1 if undo else 0)
        noise = None if arguments.key is None else draw(arguments.key, k, count, dtype)

        def after(*of_step: Any) -> State:
            if undo:
                return retreat(body, params, *of_step, *only_undone)
            return advance(body, params, *of_step, *closed_over)

        t = clock.t + number.astype(clock.dt.dtype) * clock.dt
        here = t, state, clock.dt, noise
        if arguments.regular is None:
            return after(*here)
        return unless_empty(clock.dt == 0, after, here, arguments.regular, otherwise=state)

    smooth = [leaf for leaf, chosen in zip(leaves, is_smooth, strict=True) if chosen]
    others = [leaf for leaf, chosen in zip(leaves, is_smooth, strict=True) if not chosen]
    others += only_undone
    clock = _Clock(t0, dt) if intervals is None else _Clock(intervals.t[:-1], intervals.dt[:-1])
    regular = (t0, simulation.start, dt, normals) if simulation.may_be_empty else None
    return step, _Arguments(smooth, clock, others, regular, simulation.noise)

"""The reversible engine: reverse mode in constant memory.

``Scheme.undo`` undoes a step of a reversible scheme, given its noise. So the backward pass needs
only the rows of the path: from each row it undoes the steps before, and differentiates each at the
state it has reached. The engine defines this derivative itself, so it has no forward mode.
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
from jax.experimental import checkify

from jaxquat._internal.checks import is_concrete
from jaxquat._internal.varying import axes_of, cast
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import evaluate_at_attitude
from jaxquat.dynamics.state import State
from jaxquat.schemes import SCHEMES
from jaxquat.simulation.grid import Grid, GridAt
from jaxquat.simulation.intervals import Interval, unless_empty
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

    Derivatives are NaN where traced drag is too strong to be undone. ValueError without a
    reversible scheme, or with such drag, a controller, inputs, or an array of noise; TypeError if
    the torque depends on the rate.
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


def report(simulation: Simulation, grid: Grid | GridAt) -> None:
    """Report with checkify that undoing the steps of a row would amplify rounding too much."""
    exponent = amplification(simulation, grid)
    text = f"{AMPLIFIED}, got {{exponent}}; {INSTEAD}"
    checkify.check(exponent <= largest_amplification(simulation), text, exponent=exponent)


def amplification(simulation: Simulation, grid: Grid | GridAt) -> Array:
    """Bound the exponent by which undoing a row's steps amplifies rounding, ()."""
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
    """Return the exponent beyond which fewer than three digits remain."""
    return math.log(1e-3 / float(jnp.finfo(simulation.dt.dtype).eps))


@jax.custom_vjp
def _if_undone(states: State, fits: Array) -> State:
    """Return the states; their cotangents are NaN if the steps cannot be undone."""
    return states


def _keep(states: State, fits: Array) -> tuple[State, Array]:
    return states, fits


def _spoil(fits: Array, cotangents: State) -> tuple[State, None]:
    return jax.tree.map(lambda x: jnp.where(fits, x, jnp.nan), cotangents), None


_if_undone.defvjp(_keep, _spoil)


class _Arguments(NamedTuple):
    smooth: list[Array]  # float leaves of body and params, and of closed-over arrays
    clocks: Interval  # (rows, intervals): when steps begin; equal steps have one interval a row
    others: list[Any]  # the other leaves, and all that only undoing needs: they have no derivative
    regular: Any  # time, state and step for steps of empty intervals; None if there are none
    key: Any  # of the noise; None without noise


class _Steps:
    """Steps forth and back as functions of ``arguments``, among them all closed-over arrays."""

    def __init__(self, simulation: Simulation) -> None:
        scheme, start = simulation.scheme, simulation.start
        t0, dt = cast((simulation.t0, simulation.dt), axes_of(start))
        self.count, self.dtype = scheme.noise(start), start.q.dtype
        normals = jnp.zeros(self.count, self.dtype) if self.count else None
        examples = simulation.body, simulation.params, t0, start, dt, normals

        def converted(step: Callable[..., State]) -> tuple[Callable[..., State], list[Any]]:
            def of_step(body: Body, params: Any, *at: Any) -> State:
                t, state, dt, noise = at
                return step(body, simulation.torque, t, state, dt, params, noise)

            return jax.closure_convert(of_step, *examples)

        self.advance, closed_over = converted(scheme)
        self.retreat, only_undone = converted(scheme.undo)
        tree = closed_over, simulation.body, simulation.params
        leaves, self.structure = jax.tree.flatten(tree)
        self.is_smooth = [jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) for leaf in leaves]
        chosen = list(zip(leaves, self.is_smooth, strict=True))
        self.arguments = _Arguments(
            smooth=[leaf for leaf, smooth in chosen if smooth],
            clocks=_clocks(simulation, t0, dt),
            others=[leaf for leaf, smooth in chosen if not smooth] + only_undone,
            regular=(t0, start, dt, normals) if simulation.may_be_empty else None,
            key=simulation.noise,
        )
        self.each = simulation.steps // self.arguments.clocks.t.size  # steps in an interval

    def step(
        self, arguments: _Arguments, clock: Interval, k: Array, state: State, undo: bool = False
    ) -> State:
        """Return the state after step k of this interval; with ``undo`` the one before."""
        smooth, others = iter(arguments.smooth), iter(arguments.others)
        merged = [next(smooth) if chosen else next(others) for chosen in self.is_smooth]
        closed_over, body, params = jax.tree.unflatten(self.structure, merged)
        only_undone = list(others)

        def after(*at: Any) -> State:
            if undo:
                return self.retreat(body, params, *at, *only_undone)
            return self.advance(body, params, *at, *closed_over)

        noise = None
        if arguments.key is not None:
            noise = draw(arguments.key, k, self.count, self.dtype)
        number = k - clock.first + (1 if undo else 0)
        here = clock.t + number.astype(clock.dt.dtype) * clock.dt, state, clock.dt, noise
        if arguments.regular is None:
            return after(*here)
        return unless_empty(clock.dt == 0, after, here, arguments.regular, otherwise=state)

    def undo(self, arguments: _Arguments, clock: Interval, carry: Any, _: None) -> tuple[Any, None]:
        """Go back over step k - 1; ``cotangent`` is the cotangent of the state after it."""
        k, state, cotangent, total = carry
        k = k - 1
        before = lax.optimization_barrier(self.step(arguments, clock, k, state, undo=True))

        def again(smooth: list[Array], t: Array, dt: Array, state: State) -> State:
            replaced = arguments._replace(smooth=smooth)
            return self.step(replaced, clock._replace(t=t, dt=dt), k, state)

        pull = jax.vjp(again, arguments.smooth, clock.t, clock.dt, before)[1]
        smooth, t, dt, cotangent = pull(cotangent)
        total = jax.tree.map(jnp.add, total, (smooth, t, dt))
        return (k, before, cotangent, total), None

    def forth(self, arguments: _Arguments, start: State) -> State:
        def interval(carry: Any, clock: Interval) -> tuple[Any, None]:
            def one(carry: tuple[Array, State], _: None) -> tuple[tuple[Array, State], None]:
                return (carry[0] + 1, self.step(arguments, clock, *carry)), None

            return lax.scan(one, carry, None, length=self.each)[0], None

        def row(carry: tuple[Array, State], clocks: Interval) -> tuple[Any, State]:
            return lax.scan(interval, carry, clocks)[0], carry[1]

        (_, last), rows = lax.scan(row, (jnp.asarray(0), start), arguments.clocks)
        return jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), rows, last)

    def back(
        self, arguments: _Arguments, rows: State, cotangents: State
    ) -> tuple[_Arguments, State]:
        """Return the cotangents of the arguments and of the start, from those of all rows."""
        clocks = arguments.clocks

        def interval(carry: Any, clock: Interval) -> tuple[Any, tuple[Array, Array]]:
            """Go back over an interval; its time and its step have cotangents of their own."""
            *carry, smooth = carry
            total = smooth, *jax.tree.map(jnp.zeros_like, (clock.t, clock.dt))
            undo = functools.partial(self.undo, arguments, clock)
            *carry, (smooth, t, dt) = lax.scan(undo, (*carry, total), None, length=self.each)[0]
            return (*carry, smooth), (t, dt)

        def row(carry: Any, given: tuple[State, State, Interval]) -> tuple[Any, Any]:
            """Go back over the steps before a row; ``given`` has its state and cotangent."""
            k, cotangent, smooth = carry
            state, of_row, clocks = given
            carry = k, state, jax.tree.map(jnp.add, cotangent, of_row), smooth
            carry, by_clock = lax.scan(interval, carry, clocks, reverse=True)
            k, _, cotangent, smooth = carry
            return (k, cotangent, smooth), by_clock

        smooth = jax.tree.map(jnp.zeros_like, arguments.smooth)
        cotangent = jax.tree.map(lambda x: jnp.zeros_like(x[0]), rows)
        ends = jax.tree.map(lambda x: x[1:], (rows, cotangents))
        carry = jnp.asarray(clocks.t.size * self.each), cotangent, smooth
        (_, cotangent, smooth), (t, dt) = lax.scan(row, carry, (*ends, clocks), reverse=True)
        start = jax.tree.map(lambda x, y: x + y[0], cotangent, cotangents)
        others: Any = [None] * len(arguments.others)
        by_clock: Any = Interval(None, t, dt)  # type: ignore[arg-type]
        return _Arguments(smooth, by_clock, others, regular=None, key=None), start


def _clocks(simulation: Simulation, t0: Array, dt: Array) -> Interval:
    """Return when the steps of each row begin, (rows, intervals); equal steps are one interval."""
    rows = simulation.steps // simulation.save_every
    if simulation.intervals is None:
        equal = Interval(jnp.asarray(0), t0, dt)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (rows, 1)), equal)
    intervals = cast(simulation.intervals, axes_of(simulation.start))
    return jax.tree.map(lambda x: x[:-1].reshape(rows, -1), intervals)


def _states(simulation: Simulation) -> State:
    steps = _Steps(simulation)
    back: list[Callable[..., tuple[_Arguments, State]]] = []
    states = jax.custom_vjp(steps.forth)

    def forward(arguments: _Arguments, start: State) -> tuple[State, Any]:
        rows = states(arguments, start)
        # Traced here, because JAX runs ``backward`` without the names of vmapped axes.
        traced, constants = jax.closure_convert(steps.back, arguments, rows, rows)
        back[:] = [traced]
        return rows, (arguments, rows, constants)

    def backward(kept: Any, cotangents: State) -> tuple[_Arguments, State]:
        arguments, rows, constants = kept
        return back[0](arguments, rows, cotangents, *constants)

    states.defvjp(forward, backward)
    return states(steps.arguments, simulation.start)

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
from dataclasses import replace
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
from jaxquat.simulation.engines import scan
from jaxquat.simulation.grid import Grid, GridAt
from jaxquat.simulation.intervals import Interval, unless_empty
from jaxquat.simulation.noise import draw
from jaxquat.simulation.path import Path
from jaxquat.simulation.simulation import Simulation

_WANTED = 'checkpoint: "reversible" wanted'
AMPLIFIED = (
    f"{_WANTED} a drag that decays by at most 9 powers of e between two rows "
    "(29 in float64), because undoing it amplifies rounding by as much"
)
INSTEAD = 'save more rows, or use "sqrt"'


def run(simulation: Simulation, grid: Grid | GridAt, *, report: bool = False) -> Path:
    """Simulate on this grid; reverse mode undoes the steps."""
    # Derivatives are NaN where traced drag is too strong to be undone. ValueError without a
    # reversible scheme, or with such drag, a controller, inputs, or an array of noise; TypeError if
    # the torque depends on the rate. ``report`` makes ``checkify`` report traced drag.
    exponent = amplification(simulation, grid)
    largest = math.log(1e-3 / float(jnp.finfo(simulation.dt.dtype).eps))  # leaves three digits
    if report:
        text = f"{AMPLIFIED}, got {{exponent}}; {INSTEAD}"
        checkify.check(exponent <= largest, text, exponent=exponent)
    _check(simulation, exponent, largest)
    times = simulation.t0, simulation.dt, simulation.intervals
    t0, dt, intervals = cast(times, axes_of(simulation.start))
    simulation = replace(simulation, t0=t0, dt=dt, intervals=intervals)
    steps = _Steps(simulation, exponent <= largest)
    forth = _undone(steps)
    equal = jax.tree.map(lambda x: x[None], Interval(jnp.asarray(0), t0, dt))

    def advance(_: Any, k: Array, state: State, command: Any, count: int, given: Any) -> Any:
        return k + count, forth(steps.arguments, k, state, equal if given is None else given)

    return scan.run(simulation, advance)


def _check(simulation: Simulation, exponent: Array, largest: float) -> None:
    if not simulation.scheme.reversible:
        known = ", ".join(name for name, scheme in SCHEMES.items() if scheme.reversible)
        wanted = f"a time-reversible scheme ({known}, or composed of one)"
        raise ValueError(f"{_WANTED} {wanted}, got {simulation.scheme.name}")
    if simulation.commands_torque:
        got = "inputs" if simulation.controller is None else "a controller"
        raise ValueError(f'{_WANTED} neither controller nor inputs, got {got}; use "sqrt"')
    if simulation.inputs is not None:  # noise for each step
        got = "an array, which takes as much memory as the states"
        raise ValueError(f'{_WANTED} a random key for noise, got {got}; use "sqrt"')
    if is_concrete(exponent) and float(exponent) > largest:
        raise ValueError(f"{AMPLIFIED}, got {float(exponent):.3g}; {INSTEAD}")
    torque, start, t0 = simulation.torque, simulation.start, simulation.t0
    evaluate_at_attitude('checkpoint "reversible"', torque, t0, start, simulation.params)


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


class _Arguments(NamedTuple):
    smooth: Any  # closed-over arrays, body and params, with None in place of what is not smooth
    others: Any  # the rest of these, and what only undoing needs: they have no derivative
    regular: Any  # time, state and step for steps of empty intervals; None if there are none
    key: Any  # of the noise; None without noise
    fits: Array  # whether the steps can be undone, ()


class _Steps:
    """Steps forth and back as functions of ``arguments``, among them all closed-over arrays."""

    def __init__(self, simulation: Simulation, fits: Array) -> None:
        scheme, start, t0, dt = simulation.scheme, simulation.start, simulation.t0, simulation.dt
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
        is_smooth = lambda x: jnp.issubdtype(jnp.result_type(x), jnp.inexact)  # noqa: E731
        self.arguments = _Arguments(
            smooth=jax.tree.map(lambda x: x if is_smooth(x) else None, tree),
            others=(jax.tree.map(lambda x: None if is_smooth(x) else x, tree), only_undone),
            regular=(t0, start, dt, normals) if simulation.may_be_empty else None,
            key=simulation.noise,
            fits=fits,
        )
        # steps in an interval; equal steps are one interval a row
        equal = simulation.intervals is None
        self.each = simulation.save_every if equal else simulation.substeps

    def step(
        self, arguments: _Arguments, clock: Interval, k: Array, state: State, undo: bool = False
    ) -> State:
        """Return the state after step k of this interval; with ``undo`` the one before."""
        others, only_undone = arguments.others
        either = lambda x, y: y if x is None else x  # noqa: E731
        tree = jax.tree.map(either, arguments.smooth, others, is_leaf=lambda x: x is None)
        closed_over, body, params = tree

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

    def forth(self, arguments: _Arguments, k: Array, state: State, clocks: Interval) -> State:
        """Return the state at the end of these intervals, which begin with step k."""

        def one(carry: tuple[Array, State], clock: Interval) -> tuple[tuple[Array, State], None]:
            return (carry[0] + 1, self.step(arguments, clock, *carry)), None

        def interval(carry: Any, clock: Interval) -> tuple[Any, None]:
            return lax.scan(lambda x, _: one(x, clock), carry, None, length=self.each)[0], None

        return lax.scan(interval, (k, state), clocks)[0][1]

    def undo(self, arguments: _Arguments, clock: Interval, carry: Any, _: None) -> tuple[Any, None]:
        """Go back over step k - 1; ``cotangent`` is the cotangent of the state after it."""
        k, state, cotangent, total = carry
        k = k - 1
        before = lax.optimization_barrier(self.step(arguments, clock, k, state, undo=True))

        def again(smooth: Any, t: Array, dt: Array, state: State) -> State:
            replaced = arguments._replace(smooth=smooth)
            return self.step(replaced, clock._replace(t=t, dt=dt), k, state)

        pull = jax.vjp(again, arguments.smooth, clock.t, clock.dt, before)[1]
        smooth, t, dt, cotangent = pull(cotangent)
        total = jax.tree.map(jnp.add, total, (smooth, t, dt))
        return (k, before, cotangent, total), None

    def back(
        self, arguments: _Arguments, k: Array, end: State, clocks: Interval, cotangent: State
    ) -> tuple[Any, ...]:
        """Return the cotangents of the arguments of ``forth``, from its result and that of it."""

        def interval(carry: Any, clock: Interval) -> tuple[Any, tuple[Array, Array]]:
            """Go back over an interval; its time and its step have cotangents of their own."""
            *carry, smooth = carry
            total = smooth, *jax.tree.map(jnp.zeros_like, (clock.t, clock.dt))
            undo = functools.partial(self.undo, arguments, clock)
            *carry, (smooth, t, dt) = lax.scan(undo, (*carry, total), None, length=self.each)[0]
            return (*carry, smooth), (t, dt)

        cotangent = jax.tree.map(lambda x: jnp.where(arguments.fits, x, jnp.nan), cotangent)
        smooth = jax.tree.map(jnp.zeros_like, arguments.smooth)
        carry = k + clocks.t.size * self.each, end, cotangent, smooth
        (_, _, cotangent, smooth), (t, dt) = lax.scan(interval, carry, clocks, reverse=True)
        none: Any = None  # the cotangent of what has no derivative
        of_arguments = _Arguments(smooth, others=none, regular=none, key=none, fits=none)
        return of_arguments, none, cotangent, Interval(none, t, dt)


def _undone(steps: _Steps) -> Callable[..., State]:
    """Return ``steps.forth``, with the derivative by ``steps.back``."""
    back: list[Callable[..., tuple[Any, ...]]] = []
    forth = jax.custom_vjp(steps.forth)

    def forward(arguments: _Arguments, k: Array, state: State, clocks: Interval) -> Any:
        end = forth(arguments, k, state, clocks)
        # Traced here, because JAX runs ``backward`` without the names of vmapped axes.
        traced, constants = jax.closure_convert(steps.back, arguments, k, end, clocks, end)
        back[:] = [traced]
        return end, (arguments, k, end, clocks, constants)

    def backward(kept: Any, cotangent: State) -> tuple[Any, ...]:
        *at, constants = kept
        return back[0](*at, cotangent, *constants)

    forth.defvjp(forward, backward)
    return forth

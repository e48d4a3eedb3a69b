"""The reversible engine: reverse mode in constant memory.

A step of -dt of a time-reversible scheme undoes a step of dt. So the backward pass needs no state
but the rows of the path: from each row it walks back to the one before, undoing a step, taking the
derivative of that step at the state it came to, and adding to the cotangents. Its derivative is its
own and has no forward mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import evaluate_at_attitude
from jaxquat.dynamics.state import State
from jaxquat.schemes import SCHEMES
from jaxquat.simulation.path import Path
from jaxquat.simulation.simulation import Simulation


def run(simulation: Simulation) -> Path:
    """Simulate; in reverse mode undo the steps.

    Raises:
        ValueError: the scheme is not reversible, or there is a controller, or there are inputs.
        TypeError: the torque depends on the rate.
    """
    _check(simulation)
    states = _states(simulation)
    if simulation.save is None:
        rows = states, ()
    else:
        numbers = jnp.arange(0, simulation.steps + 1, simulation.save_every)
        rows = jax.vmap(lambda k, state: simulation.observe(k, state, ()))(numbers, states)
    return simulation.path(rows, (), jax.tree.map(lambda x: x[-1], states))


def _check(simulation: Simulation) -> None:
    if not simulation.scheme.reversible:
        known = ", ".join(name for name, scheme in SCHEMES.items() if scheme.reversible)
        raise ValueError(
            f'checkpoint: "reversible" wanted a time-reversible scheme ({known}, or composed of '
            f"one), got {simulation.scheme.name}"
        )
    if simulation.is_commanded:
        got = "inputs" if simulation.controller is None else "a controller"
        raise ValueError(
            f'checkpoint: "reversible" wanted neither controller nor inputs, got {got}; use "sqrt"'
        )
    torque, start, t0 = simulation.torque, simulation.start, simulation.t0
    evaluate_at_attitude('checkpoint "reversible"', torque, t0, start, simulation.params)


class _Arguments(NamedTuple):
    """What the states depend on, beside the start."""

    smooth: list[Array]  # floating leaves of body and params, and of what torque and scheme hold
    t0: Array
    dt: Array
    others: list[Any]  # the other leaves, which have no derivative


_Step = Callable[..., State]  # step(arguments, k, state, sense=1.0), see _step


def _states(simulation: Simulation) -> State:
    """The states of all rows, with a derivative that undoes the steps."""
    step, arguments = _step(simulation)
    steps, save_every = simulation.steps, simulation.save_every

    @jax.custom_vjp
    def states(arguments: _Arguments, start: State) -> State:
        return _forth(step, steps, save_every, arguments, start)

    def forward(arguments: _Arguments, start: State) -> tuple[State, Any]:
        rows = states(arguments, start)
        return rows, (arguments, rows)

    def backward(kept: tuple[_Arguments, State], cotangents: State) -> tuple[_Arguments, State]:
        return _back(step, steps, save_every, *kept, cotangents)

    states.defvjp(forward, backward)
    return states(arguments, simulation.start)


def _forth(step: _Step, steps: int, save_every: int, arguments: _Arguments, start: State) -> State:
    """The states of all rows, from the start on."""

    def one(carry: tuple[Array, State], _: None) -> tuple[tuple[Array, State], None]:
        k, state = carry
        return (k + 1, step(arguments, k, state)), None

    def row(carry: tuple[Array, State], _: None) -> tuple[tuple[Array, State], State]:
        return lax.scan(one, carry, None, length=save_every)[0], carry[1]

    carry = jnp.asarray(0), start
    (_, last), rows = lax.scan(row, carry, None, length=steps // save_every)
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), rows, last)


def _back(
    step: _Step,
    steps: int,
    save_every: int,
    arguments: _Arguments,
    rows: State,
    cotangents: State,
) -> tuple[_Arguments, State]:
    """The cotangents of the arguments and of the start, from those of all rows."""

    def undo(carry: Any, _: None) -> tuple[Any, None]:
        """Go back over step k - 1: ``cotangent`` is that of the state after it."""
        k, state, cotangent, total = carry
        k = k - 1
        before = lax.optimization_barrier(step(arguments, k, state, -1.0))

        def again(smooth: list[Array], t0: Array, dt: Array, state: State) -> State:
            return step(_Arguments(smooth, t0, dt, arguments.others), k, state)

        pull = jax.vjp(again, arguments.smooth, arguments.t0, arguments.dt, before)[1]
        smooth, t0, dt, cotangent = pull(cotangent)
        total = jax.tree.map(jnp.add, total, (smooth, t0, dt))
        return (k, before, cotangent, total), None

    def row(carry: Any, ends: tuple[State, State]) -> tuple[Any, None]:
        """Go back over the steps before a row: its state, and its own cotangent."""
        k, cotangent, total = carry
        state, own = ends
        cotangent = jax.tree.map(jnp.add, cotangent, own)
        carry = k, state, cotangent, total
        (k, _, cotangent, total), _ = lax.scan(undo, carry, None, length=save_every)
        return (k, cotangent, total), None

    total = jax.tree.map(jnp.zeros_like, (arguments.smooth, arguments.t0, arguments.dt))
    cotangent = jax.tree.map(lambda x: jnp.zeros_like(x[0]), rows)
    ends = jax.tree.map(lambda x: x[1:], (rows, cotangents))
    carry = jnp.asarray(steps), cotangent, total
    (_, cotangent, total), _ = lax.scan(row, carry, ends, reverse=True)
    start = jax.tree.map(lambda x, y: x + y[0], cotangent, cotangents)
    return _Arguments(*total, others=[None] * len(arguments.others)), start


def _step(simulation: Simulation) -> tuple[_Step, _Arguments]:
    """Return ``step(arguments, k, state, sense)`` and its arguments.

    Sense 1 takes step k, sense -1 undoes it.
    """
    scheme, torque = simulation.scheme, simulation.torque
    t0, dt = simulation.t0, simulation.dt

    def plain(body: Body, params: Any, t: Array, state: State, dt: Array) -> State:
        return scheme(body, torque, t, state, dt, params)

    # What torque and scheme close over becomes an argument, so that it too is differentiated.
    advance, closed_over = jax.closure_convert(
        plain, simulation.body, simulation.params, t0, simulation.start, dt
    )
    leaves, structure = jax.tree.flatten((closed_over, simulation.body, simulation.params))
    is_smooth = [jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) for leaf in leaves]

    def step(arguments: _Arguments, k: Array, state: State, sense: float = 1.0) -> State:
        smooth, others = iter(arguments.smooth), iter(arguments.others)
        merged = [next(smooth) if chosen else next(others) for chosen in is_smooth]
        closed_over, body, params = jax.tree.unflatten(structure, merged)
        number = (k + 1 if sense < 0 else k).astype(arguments.dt.dtype)
        t = arguments.t0 + number * arguments.dt
        return advance(body, params, t, state, sense * arguments.dt, *closed_over)

    smooth = [leaf for leaf, chosen in zip(leaves, is_smooth, strict=True) if chosen]
    others = [leaf for leaf, chosen in zip(leaves, is_smooth, strict=True) if not chosen]
    return step, _Arguments(smooth, t0, dt, others)

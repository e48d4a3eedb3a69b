"""Reverse mode in constant memory: the backward pass undoes each step of a time-reversible scheme by a step of -dt."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.state import State


def run(
    step: Step,
    body: Body,
    torque: Torque,
    t0: Array,
    dt: Array,
    steps: int,
    params: Any,
    start: State,
    save_every: int,
) -> State:
    """The saved states, with a leading axis of ``steps // save_every + 1``.

    Nothing is kept for the backward pass but these rows, from each of which it walks back to the one before. It defines its own
    derivative, in reverse mode only.
    """

    def plain(body: Body, params: Any, t: Array, state: State, dt: Array) -> State:
        return step(body, torque, t, state, dt, params)

    # What torque and step close over becomes an argument, so that it too is differentiated.
    advance, hoisted = jax.closure_convert(plain, body, params, t0, start, dt)
    leaves, structure = jax.tree.flatten((hoisted, body, params))
    smooth = [
        index
        for index, leaf in enumerate(leaves)
        if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
    ]

    def one(
        chosen: list[Array],
        fixed: list[Any],
        t0: Array,
        dt: Array,
        k: Array,
        state: State,
        sense: float = 1.0,
    ) -> Any:
        """Step number k; with sense -1 the step that undoes it."""
        rest, given = iter(fixed), dict(zip(smooth, chosen, strict=True))
        hoisted, body, params = jax.tree.unflatten(
            structure, [given[i] if i in given else next(rest) for i in range(len(leaves))]
        )
        number = (k + 1 if sense < 0 else k).astype(dt.dtype)
        return advance(body, params, t0 + number * dt, state, sense * dt, *hoisted)

    def rows(chosen: list[Array], fixed: list[Any], t0: Array, dt: Array, start: State) -> State:
        def row(carry: tuple[Array, State], _: None) -> tuple[tuple[Array, State], State]:
            def inner(carry: tuple[Array, State], _: None) -> tuple[tuple[Array, State], None]:
                k, state = carry
                return (k + 1, one(chosen, fixed, t0, dt, k, state)), None

            return lax.scan(inner, carry, None, length=save_every)[0], carry[1]

        (_, last), saved = lax.scan(row, (jnp.asarray(0), start), None, length=steps // save_every)
        return jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), saved, last)

    solve = jax.custom_vjp(rows)

    def forward(
        chosen: list[Array], fixed: list[Any], t0: Array, dt: Array, start: State
    ) -> tuple[State, Any]:
        saved = rows(chosen, fixed, t0, dt, start)
        return saved, (chosen, fixed, t0, dt, saved)

    def backward(residual: Any, cotangent: State) -> tuple[Any, ...]:
        chosen, fixed, t0, dt, saved = residual

        def undo(carry: Any, _: None) -> tuple[Any, None]:
            k, state, bar, total = carry
            k = k - 1
            before = lax.optimization_barrier(one(chosen, fixed, t0, dt, k, state, -1.0))
            _, pull = jax.vjp(
                lambda chosen, t0, dt, state: one(chosen, fixed, t0, dt, k, state),
                chosen,
                t0,
                dt,
                before,
            )
            chosen_bar, t0_bar, dt_bar, bar = pull(bar)
            return (
                k,
                before,
                bar,
                jax.tree.map(jnp.add, total, (chosen_bar, t0_bar, dt_bar)),
            ), None

        def row(carry: Any, values: tuple[State, State]) -> tuple[Any, None]:
            k, bar, total = carry
            end, own = values
            bar = jax.tree.map(jnp.add, bar, own)
            (k, _, bar, total), _ = lax.scan(undo, (k, end, bar, total), None, length=save_every)
            return (k, bar, total), None

        zeros = jax.tree.map(jnp.zeros_like, (chosen, t0, dt))
        bar = jax.tree.map(lambda x: jnp.zeros_like(x[0]), saved)
        ends = jax.tree.map(lambda x: x[1:], (saved, cotangent))
        (_, bar, (chosen_bar, t0_bar, dt_bar)), _ = lax.scan(
            row, (jnp.asarray(steps), bar, zeros), ends, reverse=True
        )
        return chosen_bar, None, t0_bar, dt_bar, jax.tree.map(lambda x, y: x + y[0], bar, cotangent)

    solve.defvjp(forward, backward)
    chosen = [leaves[i] for i in smooth]
    fixed = [leaf for i, leaf in enumerate(leaves) if i not in smooth]
    return solve(chosen, fixed, t0, dt, start)

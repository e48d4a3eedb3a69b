"""Model predictive control."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._checks import positive_integer
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.state import State
from jaxquat.planning.horizon import checked_horizon, shifted
from jaxquat.planning.iteration import (
    STEPS,
    Limits,
    Problem,
    clipped,
    gauss_newton,
    open_loop,
    roll_out,
)
from jaxquat.planning.riccati import backward, forward, held, in_box
from jaxquat.schemes.scheme import Scheme
from jaxquat.simulation.controller import Controller


def mpc(
    scheme: Scheme | Step,
    body: Body,
    torque: Torque,
    dt: ArrayLike,
    commands: ArrayLike,
    residuals: Callable[..., Array],
    *,
    final: Callable[..., Array] | None = None,
    limits: tuple[ArrayLike, ArrayLike] | None = None,
    sample_every: int = 1,
    iterations: int = 1,
) -> Controller:
    horizon = checked_horizon(
        scheme, body, torque, dt, commands, residuals, final, limits, sample_every
    )
    iterations = positive_integer("iterations", iterations)

    def update(t: Array, state: State, memory: Any, params: Any, value: Any) -> Any:
        commands, k = memory
        problem, start = horizon.problem(t, state, params, k)
        better = lambda _, commands: _improved(problem, start, commands, horizon.limits)  # noqa: E731
        commands = lax.fori_loop(0, iterations, better, clipped(commands, horizon.limits))
        return commands[0], (shifted(commands), k + 1)

    return Controller(horizon.init, update, horizon.period)


def _improved(problem: Problem, start: State, commands: Array, limits: Limits) -> Array:
    """The commands after one step of Gauss and Newton, of the length that lowers the cost most."""
    states = roll_out(problem, start, commands, open_loop)[0]
    model = gauss_newton(problem, states, commands)
    if limits is None:
        rows, choose = jnp.ones(commands.shape, bool), held
    else:
        rows, choose = (limits[0] - commands, limits[1] - commands), in_box
    damping = 10.0 * float(jnp.finfo(commands.dtype).eps)
    change = forward(model, backward(model, damping, rows, choose))

    # The choice of a length has no derivative, and where a trial diverges, none must be computed.
    lengths = jnp.asarray((*STEPS, 0.0), commands.dtype)
    tried = clipped(commands[None] + lengths[:, None, None] * change[None], limits)
    cost = lambda commands: roll_out(problem, start, commands, open_loop)[2]  # noqa: E731
    costs = jax.vmap(cost)(lax.stop_gradient(tried))
    best = jnp.argmin(jnp.where(jnp.isnan(costs), jnp.inf, costs))
    return clipped(commands + lengths[best] * change, limits)

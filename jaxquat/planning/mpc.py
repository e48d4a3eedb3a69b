"""Model predictive control."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal.checks import positive_integer
from jaxquat._internal.renamed import refuses_old_keywords
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
    within,
)
from jaxquat.planning.problem import Constraints, Residuals
from jaxquat.planning.riccati import backward, forward
from jaxquat.schemes.scheme import Scheme
from jaxquat.simulation.controller import Controller


@refuses_old_keywords("planning.mpc")
def mpc(
    scheme: Scheme | Step,
    body: Body,
    torque: Torque,
    dt: ArrayLike,
    commands: ArrayLike,
    residuals: Callable[..., Array] | Residuals,
    *,
    constraints: Constraints | None = None,
    sample_every: int = 1,
    iterations: int = 1,
) -> Controller:
    """A ``jq.Controller`` that plans anew at each sample, from the state of now.

    At each sample it improves the commands of a horizon ahead by a fixed number of steps of Gauss
    and Newton, applies the first command, and keeps the others, with the last one twice, for the
    next sample (M. Diehl, H. G. Bock and J. P. Schloeder, SIAM J. Control Optim. 43, 1714, 2005).
    The costs are those of ``planning.ilqr``: half the sum of the squares of ``residuals`` along the
    horizon. The step is that of the linear regulator in
    the coordinates of ``dynamics.local``, between the limits, or as small a part of it as lowers
    the cost most, down to none.

    The references move with time: torques see the time, and ``k`` counts the samples of the
    rollout, not of the horizon. So ``planning.ilqr`` takes the same residuals on the rollout's
    grid. The memory is ``(commands, k)``: the plan of the next sample and its number.

    The closed loop is differentiable in both modes, of any order, through all iterations, whether
    they have converged or not: by params, start, limits, and whatever the functions close over. It
    jumps where another length of step becomes the best one. The commands are NaN if the Hessian of
    the commands is not positive definite; a residual of each command, however small, prevents it.

    Args:
        scheme: a deterministic scheme, for example ``jq.rkmk2``, of the model that plans. The
            rollout may have another scheme, body and torque.
        body: the Body of the model, in the dtype of the start.
        torque: ``torque(t, state, params, command) -> (3,)`` of the model, as in ``jq.rollout``.
        dt: the step of the model [s]. The controller's period is ``sample_every dt``.
        commands: the first guess for the samples of the horizon, (samples, m), in the dtype of the
            start. Those beyond the limits begin at the limits.
        residuals: ``residuals(k, state, params, command) -> (r,)`` of each sample, or
            ``planning.Residuals``, whose ``final(k, state, params)`` is at the end of the horizon.
        constraints: ``planning.Constraints`` with limits of the commands, and nothing else.
        sample_every: steps of the model per sample.
        iterations: steps of Gauss and Newton per sample.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value; the error names it.

    Examples:
        >>> spin = lambda k, state, params, command: jnp.concatenate([command, 10.0 * state.omega])
        >>> controller = jq.planning.mpc(
        ...     jq.rkmk2, body, motors, 0.5, jnp.zeros((5, 3)), spin,
        ...     constraints=jq.planning.Constraints(limits=(-0.5, 0.5)))
        >>> def stop():
        ...     grid = jq.grid(0.0, 0.5, 20)
        ...     return jq.rollout(jq.rkmk2, body, motors, turning, grid, controller=controller)
        >>> path = jax.jit(stop)()
        >>> path.command[0].round(2), bool(jnp.abs(path.final.omega).max() < 0.01)  # N m, rad/s
        (Array([ 0. ,  0. , -0.5], dtype=float32), True)
    """
    horizon = checked_horizon(
        scheme, body, torque, dt, commands, residuals, constraints, sample_every
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
    damping = 10.0 * float(jnp.finfo(commands.dtype).eps)
    z = forward(model, backward(model, damping, *within(commands, limits)))[1]
    change = z[:, -commands.shape[1] :]

    # The choice of a length has no derivative, and where a trial diverges, none must be computed.
    lengths = jnp.asarray((*STEPS, 0.0), commands.dtype)
    stepped = lambda length: clipped(commands + length * change, limits)  # noqa: E731
    cost = lambda commands: roll_out(problem, start, commands, open_loop)[2]  # noqa: E731
    costs = jax.vmap(cost)(lax.stop_gradient(jax.vmap(stepped)(lengths)))
    return stepped(lengths[jnp.argmin(jnp.where(jnp.isnan(costs), jnp.inf, costs))])

"""Model predictive control."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, positive, positive_integer
from jaxquat._internal.renamed import refuses_old_keywords
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.state import State
from jaxquat.fused.scanning import scan
from jaxquat.fused.trace.hoisting import shared
from jaxquat.planning.constraints import Kinds, largest_violation, values
from jaxquat.planning.horizon import checked_horizon, shifted
from jaxquat.planning.interior import program_of, solved
from jaxquat.planning.iteration import STEPS
from jaxquat.planning.linearization import gauss_newton
from jaxquat.planning.policies import within
from jaxquat.planning.problem import Constraints, Residuals
from jaxquat.planning.riccati import backward, forward
from jaxquat.planning.trajectory import Limits, Problem, Trajectory, clipped, simulated
from jaxquat.schemes.scheme import Scheme
from jaxquat.simulation.controller import Controller


class MpcMemory(NamedTuple):
    """What ``mpc`` remembers from sample to sample, the ``memory`` of its path; a pytree.

    Without equalities and inequalities ``holds`` is True and the violations are 0. Under
    ``jax.vmap`` all arrays have a further leading axis.

    Attributes:
        commands: the plan of the next sample, (samples, m).
        k: its number, an integer ().
        violation: the largest violation of a constraint along the last plan, in its unit, ().
        holds: whether that is at most the tolerance, ().
        failures: the number of samples so far whose plan did not hold, an integer ().

    Examples:
        >>> controller = jq.planning.mpc(jq.rkmk2, body, motors, 0.5, jnp.zeros((5, 3)), effort)
        >>> controller.init(turning, None).commands.shape
        (5, 3)
    """

    commands: Array
    k: Array
    violation: Array
    holds: Array
    failures: Array


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
    tolerance: ArrayLike | None = None,
) -> Controller:
    """Make a ``jq.Controller`` that plans at each sample, from the present state.

    At each sample it improves the commands of a horizon, by the cost of ``planning.ilqr``, in a
    fixed number of Gauss-Newton steps, applies the first command, and keeps the others, the last
    one twice, for the next sample (M. Diehl, H. G. Bock and J. P. Schloeder, SIAM J. Control Optim.
    43, 1714, 2005). Of each step, in the coordinates of ``dynamics.local`` and between the limits,
    it takes the part that lowers the cost most, perhaps none. Torques see the time and ``k`` counts
    the samples of the rollout, not of the horizon, so ``planning.ilqr`` takes the same residuals on
    the rollout's grid.

    Equalities and inequalities, linearised about the last plan, are rows of the quadratic program
    of each step, which a fixed number of interior-point passes solves (C. V. Rao, S. J. Wright and
    J. B. Rawlings, J. Optim. Theory Appl. 99, 723, 1998). They need not be met: see ``holds`` of
    the memory, a ``planning.MpcMemory``. A disturbance violates a constraint by up to what it can
    change within a sample; the next plan leads back if the commands can. Where no command can meet
    all of them, the sum of the squares of the violations is near its smallest value, in units of
    what the commands can change.

    The closed loop is differentiable in both modes, of any order, through all iterations, with
    respect to params, start, limits and closed-over arrays. With equalities or inequalities it has
    the derivative of the program's solution, only of first order. Derivatives jump where another
    length of step becomes the best, or other inequalities become active. The commands are NaN if
    their Hessian is not positive definite; a residual of each command, however small, prevents it.
    They are NaN, too, where a derivative of a constraint is.

    Args:
        scheme: a deterministic scheme of the model, for example ``jq.rkmk2``. The rollout may have
            another scheme, body and torque.
        body: the Body of the model, in the dtype of the start.
        torque: ``torque(t, state, params, command) -> (3,)`` of the model, as in ``jq.rollout``.
        dt: the step of the model [s]. The controller's period is ``sample_every dt``.
        commands: the first guess, (samples, m), in the dtype of the start, clipped to the limits,
            for instance those of a plan of ``ilqr``.
        residuals: ``residuals(k, state, params, command) -> (r,)`` of each sample, or
            ``planning.Residuals`` with ``final(k, state, params)`` at the end of the horizon.
        constraints: ``planning.Constraints``: limits, inequalities of each sample k of the rollout,
            and ``equalities(k, state, params)`` at the end of the horizon.
        sample_every: steps of the model per sample.
        iterations: Gauss-Newton steps per sample.
        tolerance: the largest violation of equalities and inequalities with which ``memory.holds``
            is True, in their unit, (); required if there are any. It does not change the plan.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value; the error names it.

    Examples:
        >>> spin = lambda k, state, params, command: jnp.concatenate([command, 10.0 * state.omega])
        >>> controller = jq.planning.mpc(
        ...     jq.rkmk2, body, motors, 0.5, jnp.zeros((5, 3)), spin,
        ...     constraints=jq.planning.Constraints(limits=(-0.5, 0.5)))
        >>> grid = jq.grid(0.0, 0.5, 20)
        >>> path = jq.rollout(jq.rkmk2, body, motors, turning, grid, controller=controller)
        >>> path.command[0].round(2), bool(jnp.abs(path.final.omega).max() < 0.01)  # N m, rad/s
        (Array([ 0. ,  0. , -0.5], dtype=float32), True)
    """
    horizon = checked_horizon(
        scheme, body, torque, dt, commands, residuals, constraints, sample_every
    )
    iterations = positive_integer("iterations", iterations)
    limits, constrained = horizon.limits, horizon.constrained
    if constrained != (tolerance is not None):
        wanted = "a violation that counts as none" if constrained else "None without constraints"
        raise ValueError(f"tolerance: wanted {wanted}, got {tolerance!r}")
    most = exactly("tolerance", tolerance if constrained else 1.0, ())
    positive("tolerance", most)

    def init(start: State, params: Any) -> MpcMemory:
        horizon.check_start(start)
        k, zero = jnp.zeros((), int), jnp.zeros((), start.q.dtype)
        return MpcMemory(horizon.commands, k, zero, zero == 0, k)

    def update(t: Array, state: State, memory: MpcMemory, params: Any, value: Any) -> Any:
        problem, start = horizon.problem(t, state, params, memory.k)
        kinds = horizon.kinds(params, memory.k) if constrained else None

        def one(_: Any, commands: Array) -> Array:
            path, cost = simulated(problem, start, commands, loop=scan)
            return _improved(problem, kinds, path, cost, limits)

        commands = lax.fori_loop(0, iterations, one, clipped(memory.commands, limits))
        memory = memory._replace(commands=shifted(commands), k=memory.k + 1)
        if kinds is not None:
            path, _ = simulated(problem, start, commands)
            violation = largest_violation(values(kinds, path))
            holds = violation <= most
            failures = memory.failures + (~holds).astype(memory.failures.dtype)
            memory = memory._replace(violation=violation, holds=holds, failures=failures)
        return commands[0], memory

    # The rollout traces it several times, for the dtypes of the memory and for each engine.
    return Controller(init, shared(update), horizon.period)


def _improved(
    problem: Problem, constraints: Kinds | None, path: Trajectory, cost: Array, limits: Limits
) -> Array:
    """Return the commands after the best part of one step."""
    commands, start = path.commands, jax.tree.map(lambda x: x[0], path.states)
    model = gauss_newton(problem, path)
    damping = 10.0 * float(jnp.finfo(commands.dtype).eps)
    program = None if constraints is None else program_of(model, cost, constraints, path, limits)
    if program is None:
        policy = backward(model, within(commands, limits, damping), loop=scan)
        z, multiplier = forward(model, policy, loop=scan)[1], 0.0
    else:
        z, multiplier = solved(program, damping)
    change = z[:, -commands.shape[1] :]

    def stepped(length: Array) -> Array:
        return clipped(commands + length * change, limits)

    def paid(commands: Array) -> Array:
        path, cost = simulated(problem, start, commands, loop=scan)
        if constraints is None or program is None:
            return cost
        return cost + 2.0 * multiplier * program.violations(values(constraints, path))

    # The choice of a length has no derivative, and where a trial diverges, none must be computed.
    lengths = jnp.asarray((*STEPS, 0.0), commands.dtype)
    costs = jax.vmap(paid)(lax.stop_gradient(jax.vmap(stepped)(lengths)))
    return stepped(lengths[jnp.argmin(jnp.where(jnp.isnan(costs), jnp.inf, costs))])

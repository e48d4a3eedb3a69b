"""``ilqr`` checks its arguments, minimises, and describes the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal.checks import (
    divisor,
    every,
    finite,
    floating,
    fraction,
    instance,
    is_concrete,
    one_of,
    one_shape,
    positive_integer,
    takes,
    unit_quaternion,
    vector,
)
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.state import State, check_state, describe
from jaxquat.planning.constraints import Constraints, values
from jaxquat.planning.iteration import Limits, Problem, Settings
from jaxquat.planning.optimum import described, optimum
from jaxquat.planning.plan import Plan
from jaxquat.schemes.scheme import Scheme, as_deterministic
from jaxquat.simulation.grid import Grid
from jaxquat.simulation.simulation import Simulation, checked_simulation


def ilqr(
    scheme: Scheme | Step,
    body: Body,
    torque: Torque,
    start: State,
    grid: Grid,
    commands: ArrayLike,
    residuals: Callable[..., Array],
    params: Any = None,
    *,
    final: Callable[..., Array] | None = None,
    limits: tuple[ArrayLike, ArrayLike] | None = None,
    equalities: Callable[..., Array] | None = None,
    inequalities: Callable[..., Array] | None = None,
    states: State | None = None,
    sample_every: int = 1,
    iterations: int = 100,
    tolerance: float | None = None,
    hessian: str = "exact",
) -> Plan:
    """Find the commands that minimise half a sum of squares along the path of one body.

    The cost is ``1/2 sum_k |residuals(k, state_k, params, command_k)|^2``, plus
    ``1/2 |final(state, params)|^2`` at the end, as in ``jq.least_squares``. The method is
    differential dynamic programming (D. H. Jacobson and D. Q. Mayne, 1970) in the coordinates of
    ``dynamics.local``, or, without second derivatives, the iterative linear quadratic regulator
    (W. Li and E. Todorov, ICINCO 2004), with limits as in Y. Tassa, N. Mansard and E. Todorov,
    ICRA 2014. It finds a local minimum: an attitude that is a half turn away can be reached in two
    directions, and the one that is found depends on the guess. Constraints are met by an augmented
    Lagrangian (T. A. Howell, B. E. Jackson and Z. Manchester, ALTRO, IROS 2019).
    Slopes of the residuals by the commands are squared: in float32 choose units in which they are
    between 1e-18 and 1e18. With larger ones, and with smaller ones from 1e-36, the plan does not
    converge: its reason is that no step lowers the cost, or that the cost is not finite.

    ``ilqr`` is not jitted: jit the function that calls it, and use ``jax.vmap`` for many starts or
    params. Commands, path, gains and cost are differentiable in both modes by params, start, limits
    and whatever the functions close over, by the implicit function theorem with the exact Hessian.
    The derivatives are NaN if the iteration has not converged, or if the Hessian is not positive
    definite. The error of a derivative is proportional to ``tolerance``. Inequalities with positive
    multipliers count as equalities; they must be independent of each other.

    Args:
        scheme: a deterministic scheme, for example ``jq.rkmk2``.
        body: the Body, in the dtype of the start.
        torque: ``torque(t, state, params, command) -> (3,)``, as in ``jq.rollout``.
        start: State of one body.
        grid: equal steps from ``jq.grid``.
        commands: where to start from, (steps // sample_every, m), in the dtype of the start. Those
            beyond the limits begin at the limits.
        residuals: ``residuals(k, state, params, command) -> (r,)`` at the start of sample k, with
            its state and command, in the dtype of the start.
        params: any pytree, passed to torque, residuals and ``final``.
        final: ``final(state, params) -> (r,)`` at the end.
        limits: ``(lower, upper)``, the least and the largest commands, each (), (m,) or
            (samples, m). Infinity is no limit.
        equalities: ``equalities(state, params) -> (e,)``, which is 0 at the end, in any unit.
        inequalities: ``inequalities(k, state, params, command) -> (c,)``, at most 0 at the start of
            each sample k, in any unit.
        states: a guess of the states, a State with leading axes samples + 1. It need not obey the
            equations of motion (C. Mastalli et al., Crocoddyl, ICRA 2020); its first row is not
            used. None follows the commands.
        sample_every: steps per sample, in which the command stays the same.
        iterations: the largest number of steps.
        tolerance: end as converged if the quadratic model promises a decrease of at most this
            number squared, as a fraction of the cost (D. M. Bates and D. G. Watts, Technometrics
            23, 179, 1981), or of the first cost times the tolerance if that is larger. Between 0
            and 1; None is the square root of the dtype's epsilon: 1.5e-8 in float64, 3.5e-4 in
            float32. With constraints, the cost of meeting them exactly must be below the 2.5th
            power.
        hessian: "exact" uses the exact Hessian where it is positive definite, and that of Gauss and
            Newton elsewhere; near the minimum the convergence is quadratic. "gauss-newton" never
            computes second derivatives, so a step costs less, but the convergence is linear where
            the residuals do not vanish.

    Returns:
        Plan, in the dtype of the start.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value; the error names it.

    Examples:
        >>> body = jq.Body.box(60.0, jnp.array([0.6, 0.8, 1.2]))  # kg, m
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
        >>> goal = jq.quaternion.exp(jnp.array([0.0, 0.0, 2.0]))  # 115 degrees about z
        >>> motors = lambda t, state, params, command: command  # N m
        >>> effort = lambda k, state, goal, command: command
        >>> def missed(state, goal):
        ...     turn = jq.quaternion.log(jq.quaternion.relative(goal, state.q))
        ...     return 1e2 * jnp.concatenate([turn, state.omega])
        >>> def slew(goal):
        ...     guess = jnp.zeros((20, 3))
        ...     grid = jq.grid(0.0, 1.0, 20)
        ...     return jq.planning.ilqr(
        ...         jq.rkmk2, body, motors, start, grid, guess, effort, goal, final=missed)
        >>> plan = jax.jit(slew)(goal)
        >>> bool(plan.converged), f"{plan.commands[0, 2]:.2f} N m"  # 6 I angle/T^2 (1 - 1/20)
        (True, '0.14 N m')
    """
    scheme = as_deterministic("scheme", scheme)
    instance("grid", grid, Grid, "a jq.grid(t0, dt, steps)")
    takes("residuals", residuals, "k, state, params, command")
    if final is not None:
        takes("final", final, "state, params")
    if equalities is not None:
        takes("equalities", equalities, "state, params")
    if inequalities is not None:
        takes("inequalities", inequalities, "k, state, params, command")
    iterations = positive_integer("iterations", iterations)
    one_of("hessian", hessian, ("exact", "gauss-newton"))
    dtype = check_state("start", start).q.dtype
    samples = grid.steps // divisor("sample_every", sample_every, grid.steps)
    guess = floating("commands", commands)
    if guess.ndim != 2 or guess.shape[0] != samples or not guess.size:
        wanted = f"shape ({samples}, m), a row for each of steps // sample_every samples"
        raise ValueError(f"commands: wanted {wanted}, got {guess.shape}")
    if guess.dtype != dtype:
        raise TypeError(f"commands: wanted the dtype of the start, {dtype}, got {guess.dtype}")
    finite("commands", guess)
    within = checked_limits(limits, guess)
    eps = float(jnp.finfo(dtype).eps)
    precision = eps**0.5 if tolerance is None else fraction("tolerance", tolerance)
    simulation = checked_simulation(
        scheme, body, torque, start, grid, params, inputs=guess,
        sample_every=sample_every, save_every=sample_every,
    )  # fmt: skip

    start = simulation.start
    if states is not None:
        states = _checked_states(states, start, samples)
    constrained = equalities is not None or inequalities is not None
    problem = problem_of(simulation, residuals, final)
    constraints = _constraints_of(simulation, equalities, inequalities)
    functions, constants = _without_closures(problem, constraints, start, guess[0])
    settings = Settings(iterations, precision, hessian == "exact", constrained)
    (best, multipliers), outcome = optimum(
        functions, settings, constants, start, within, (guess, states)
    )
    followed, cost, gains = described(
        functions, constrained, constants, start, within, best, (multipliers, outcome.penalties)
    )
    violation = jnp.zeros_like(cost)
    if constrained:
        off = values(constraints, followed, best)
        parts = [jnp.abs(off.equalities), jnp.maximum(off.inequalities.ravel(), 0.0)]
        violation = jnp.max(jnp.concatenate(parts))
    rows = followed, jnp.concatenate([best, best[-1:]])
    path = simulation.path(rows, (), jax.tree.map(lambda x: x[-1], followed))
    status, count = (x.astype(jnp.int32) for x in outcome[:2])
    return Plan(
        best, path, gains, cost, status, count, outcome.history, within, violation,
        tuple(multipliers) if constrained else None,
    )  # fmt: skip


def problem_of(
    simulation: Simulation, residuals: Callable[..., Array], final: Callable[..., Array] | None
) -> Problem:
    """The samples and the end of a simulation with these residuals."""
    params, count, dtype = simulation.params, simulation.sample_every, simulation.start.q.dtype

    def stage(k: Array, state: State, command: Array) -> tuple[State, Array]:
        values = checked_residuals("residuals", residuals(k, state, params, command), dtype)
        if count == 1:
            return simulation.step(k, state, command), values
        step = lambda state, i: (simulation.step(k * count + i, state, command), None)  # noqa: E731
        return lax.scan(step, state, jnp.arange(count))[0], values

    return Problem(stage, _at_end("final", final, simulation))


def _constraints_of(
    simulation: Simulation,
    equalities: Callable[..., Array] | None,
    inequalities: Callable[..., Array] | None,
) -> Constraints:
    params, dtype = simulation.params, simulation.start.q.dtype

    def along(k: Array, state: State, command: Array) -> Array:
        if inequalities is None:
            return jnp.zeros(0, dtype)
        return checked_residuals("inequalities", inequalities(k, state, params, command), dtype)

    return Constraints(_at_end("equalities", equalities, simulation), along)


def _at_end(
    name: str, function: Callable[..., Array] | None, simulation: Simulation
) -> Callable[[State], Array]:
    """The function of the last state, with no numbers where it is None."""
    params, dtype = simulation.params, simulation.start.q.dtype
    if function is None:
        return lambda state: jnp.zeros(0, dtype)
    return lambda state: checked_residuals(name, function(state, params), dtype)


def checked_residuals(name: str, value: Any, dtype: Any) -> Array:
    """The result of a function of residuals, (r,) in this dtype."""
    array = vector(f"{name}(...)", value)
    if array.dtype != dtype and not array.weak_type:
        raise TypeError(f"{name}(...): wanted the dtype of the start, {dtype}, got {array.dtype}")
    return array.astype(dtype)


def _without_closures(
    problem: Problem, constraints: Constraints, state: State, command: Array
) -> Any:
    """The functions of a problem, and the traced arrays that they close over, as arguments.

    A function with a derivative of its own, such as ``optimum``, must not close over them.
    """
    along, at_end = (jnp.arange(1)[0], state, command), (state,)
    pairs = [
        jax.closure_convert(problem.stage, *along),
        jax.closure_convert(problem.final, *at_end),
        jax.closure_convert(constraints.equalities, *at_end),
        jax.closure_convert(constraints.inequalities, *along),
    ]
    return tuple(zip(*pairs, strict=True))


def _checked_states(states: Any, start: State, samples: int) -> State:
    """A guess of the states as arrays, with leaves like those of the start."""
    wanted = f"a jq.State like the start with leading axes {samples + 1}, a row for each"
    wanted += " of the samples and one for the end"
    instance("states", states, State, wanted)
    rows = jax.tree.map(lambda x: floating("states", x), states)
    shaped = jax.tree.map(lambda x: jnp.zeros((samples + 1, *x.shape), x.dtype), start)
    if describe(rows) != describe(shaped):
        raise ValueError(f"states: wanted {wanted}: {describe(shaped)}, got {describe(rows)}")
    for leaf in jax.tree.leaves(rows):
        finite("states", leaf)
    unit_quaternion("states.q", rows.q)
    return rows


def checked_limits(limits: Any, commands: Array) -> Limits:
    """The limits as arrays like the commands; None for None."""
    if limits is None:
        return None
    if not isinstance(limits, tuple | list) or len(limits) != 2:
        raise TypeError(f"limits: wanted (lower, upper) or None, got {limits!r}")
    shapes = (), commands.shape[1:], commands.shape
    lower, upper = (one_shape("limits", limit, *shapes) for limit in limits)
    if is_concrete((lower, upper)):
        pairs = np.stack(np.broadcast_arrays(np.asarray(lower), np.asarray(upper)), axis=-1)
        good = pairs[..., :1] <= pairs[..., 1:]
        every("limits", "lower <= upper", pairs, np.broadcast_to(good, pairs.shape))
    full = lambda x: jnp.broadcast_to(x.astype(commands.dtype), commands.shape)  # noqa: E731
    return full(lower), full(upper)

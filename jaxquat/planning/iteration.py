"""The iteration of ``ilqr`` between limits; constraints.py puts others around it.

Each pass linearises samples and residuals about the path, solves the quadratic model backwards
(riccati.py), and tries several lengths of the step at once. Where the fused engine has kernels, one
kernel linearises and solves, another tries the lengths. The Hessian is that of the Lagrangian,
whose multipliers are the costates, if it is positive definite, and that of Gauss and Newton
otherwise. After a step whose cost is not low enough, the next one is damped more: a fraction of its
diagonal is added to each Hessian of the commands, so units do not matter. The iteration ends by the
decrease that the model without damping promises.

A guess of the states need not obey the equations of motion. The differences, or gaps, shift the
linear model of each sample; a step of length s closes them by the factor 1 - s (M. Giftthaler et
al., IROS 2018; C. Mastalli et al., Crocoddyl, ICRA 2020). While there are gaps the cost may have to
rise: a step is then good if the cost rises by at most twice what the model says.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat import quaternion
from jaxquat._internal.linear import dot, matvec, square
from jaxquat.dynamics.state import State, error_size, local, retract
from jaxquat.fused import engine as fused
from jaxquat.fused.scanning import scan
from jaxquat.planning.riccati import (
    Model,
    Policy,
    backward,
    forward,
    held,
    improved,
    in_box,
    product,
    summed,
    symmetric,
)

STEPS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01)
"""Lengths of the steps that a pass tries."""

FIRST_DAMPING, LARGEST_DAMPING = 1e-4, 1e8
"""The damping after the first refused step, and the one at which the iteration gives up."""

PATIENCE = 5
"""The passes in whose cost only rounding is left before the iteration ends."""

RUNNING, CONVERGED, ROUNDING, NO_DESCENT, NOT_FINITE, INFEASIBLE = range(6)

Columns = Callable[[Callable[..., Any], list[Array], list[Array]], Any]
"""``columns(push, parts, directions)``: the Jacobian of a linear function of parts, each moving in
its directions (columns, size)."""

Limits = tuple[Array, Array] | None
"""The least and the largest command of each sample, each (samples, m)."""


class Problem(NamedTuple):
    """What to minimise: ``stage(k, state, command) -> (next state, residuals)`` and ``final``."""

    stage: Callable[[Array, State, Array], tuple[State, Array]]
    final: Callable[[State], Array]


class Settings(NamedTuple):
    """The static arguments of an iteration; ``constrained``: by more than limits."""

    iterations: int
    tolerance: float
    exact: bool
    constrained: bool


class Trajectory(NamedTuple):
    """States (samples + 1) and commands; gaps (samples, n) by ``local``, None if there are none."""

    states: State
    commands: Array
    gaps: Array | None


class Progress(NamedTuple):
    """The best path so far; ``stale`` passes had only rounding left in the cost."""

    path: Trajectory
    cost: Array
    damping: Array
    status: Array
    passes: Array
    history: Array
    smallest: Array
    stale: Array


def roll_out(
    problem: Problem,
    start: State,
    rows: Any,
    command: Callable[[State, Any], Array],
    gaps: Array | None = None,
    loop: Callable[..., Any] = lax.scan,
) -> tuple[State, Array, Array]:
    """Return all states (samples + 1), commands ``command(state, row)`` and the cost."""

    def sample(state: State, numbered: Any) -> tuple[State, Any]:
        k, row, gap = numbered
        u = command(state, row)
        after, residuals = problem.stage(k, state, u)
        after = after if gap is None else retract(after, gap)
        return after, (state, u, _half_square(residuals))

    count = len(jax.tree.leaves(rows)[0])
    end, (states, commands, costs) = loop(sample, start, (jnp.arange(count), rows, gaps))
    states = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), states, end)
    of_end = lambda end: _half_square(problem.final(end))  # noqa: E731
    return (
        states,
        commands,
        jnp.sum(costs) + (at_once(of_end, end) if loop is scan else of_end(end)),
    )


def at_once(function: Callable[[Any], Any], argument: Any) -> Any:
    """Compute a function of arrays by one kernel, because XLA is slow with long scalar programs."""
    one = lambda carry, _: (carry, function(carry))  # noqa: E731
    return jax.tree.map(lambda x: x[0], scan(one, argument, length=1)[1])


def open_loop(state: State, command: Array) -> Array:
    """Return the row itself, for ``roll_out`` without feedback."""
    return command


def begun(
    problem: Problem,
    start: State,
    limits: Limits,
    guess: tuple[Array, State | None],
) -> tuple[Trajectory, Array]:
    """Return the first path, from commands and perhaps states, and its cost."""
    commands, states = clipped(guess[0], limits), guess[1]
    if states is None:
        states, _, cost = roll_out(problem, start, commands, open_loop, loop=scan)
        return Trajectory(states, commands, None), cost
    states = jax.tree.map(lambda x, first: x.at[0].set(first), states, start)
    before, after, _ = ends(states)
    reached = jax.vmap(problem.stage)(jnp.arange(len(commands)), before, commands)[0]
    path = Trajectory(states, commands, jax.vmap(local)(reached, after))
    return path, cost_along(problem, path)


def cost_along(problem: Problem, path: Trajectory) -> Array:
    """Return the cost of a path, with gaps or without."""
    before, _, last = ends(path.states)
    numbers = jnp.arange(len(path.commands))
    residuals = jax.vmap(problem.stage)(numbers, before, path.commands)[1]
    return _half_square(residuals.ravel()) + _half_square(problem.final(last))


def traced_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Trace a function of a problem once, unless the problem is an augmented one."""

    def of_parts(functions: Any, closed: Any, *arguments: Any) -> Any:
        parts = (partial(f, *x) for f, x in zip(functions, closed, strict=True))
        return function(Problem(*parts), *arguments)

    @wraps(function)
    def call(problem: Problem, *arguments: Any) -> Any:
        parts = [f for f in problem if isinstance(f, partial)]
        if len(parts) < len(problem):
            return function(problem, *arguments)
        functions: tuple[Any, ...] = tuple(f.func for f in parts)
        return functions[0].jitted(of_parts, functions)([f.args for f in parts], *arguments)

    return call


def gauss_newton(
    problem: Problem,
    states: State,
    commands: Array,
    gaps: Array | None = None,
    by_kernel: bool = False,
) -> Model:
    """Linearise the samples, with the Gauss-Newton Hessian of their costs."""
    before, after, last = ends(states)
    rows = jnp.arange(len(commands)), before, after, commands
    linearised, linearised_end = LINEARISED[columns_by_part if by_kernel else columns_at_once]
    if by_kernel:
        samples = scan(lambda _, row: ((), linearised(problem, *row)), (), rows)[1]
        end = at_once(partial(linearised_end, problem), last)
    else:
        samples = jax.vmap(partial(linearised, problem))(*rows)
        end = linearised_end(problem, last)
    return Model(*samples, end, None if gaps is None else -gaps)


def _linearised(
    columns: Columns, problem: Problem, k: Array, state: State, after: State, command: Array
) -> tuple[Array, Array, Array]:
    def moved(state: State, command: Array) -> tuple[Array, Array]:
        end, residuals = problem.stage(k, state, command)
        return local(after, end), residuals

    (_, residuals), (transition, jacobian) = _linear(columns, moved, state, command)
    return transition, *_squared(jacobian, residuals)


def _linear(
    columns: Columns, function: Callable[..., Any], state: State, *command: Array
) -> tuple[Any, Any]:
    """Return value and Jacobian with respect to the error of the state and the command."""
    q, omega, aux, *place = state
    parts, structure = jax.tree.flatten((q, omega, place, aux, *command))

    def of_parts(*parts: Array) -> Any:
        q, omega, place, aux, *command = jax.tree.unflatten(structure, parts)
        return function(State(q, omega, aux, *place), *command)

    value, push = jax.linearize(of_parts, *parts)
    turns = 0.5 * quaternion.left_matrix(q)[:, 1:].T  # d (q exp(u)) / du at u = 0
    others = [jnp.eye(x.size, dtype=q.dtype) for x in parts[1:]]
    return value, columns(push, parts, [turns, *others])


def columns_by_part(
    push: Callable[..., Any], parts: list[Array], directions: list[Array]
) -> list[Array]:
    """Return the Jacobian, whose zeros are known to a kernel: each part moves alone."""
    still = [jnp.zeros_like(x) for x in parts]

    def by(i: int, directions: Array) -> Any:
        def of_part(x: Array) -> Any:
            return push(*still[:i], x, *still[i + 1 :])

        def along(direction: Array) -> Any:  # so JAX knows that the other parts do not change
            return jax.jvp(of_part, (still[i],), (direction.reshape(still[i].shape),))[1]

        return jax.vmap(along, out_axes=1)(directions)

    columns = map(by, range(len(parts)), directions)
    return jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *columns)


def columns_at_once(
    push: Callable[..., Any], parts: list[Array], directions: list[Array]
) -> list[Array]:
    """Return the Jacobian by one program of all columns, which XLA compiles faster."""

    def along(*direction: Array) -> Any:
        return push(*(d.reshape(x.shape) for d, x in zip(direction, parts, strict=True)))

    sizes = [len(d) for d in directions]
    before = [sum(sizes[:i]) for i in range(len(sizes))]
    rows = [
        jnp.pad(d, ((first, sum(sizes) - first - len(d)), (0, 0)))
        for d, first in zip(directions, before, strict=True)
    ]
    return jax.vmap(along, out_axes=1)(*rows)


def _linearised_end(columns: Columns, problem: Problem, last: State) -> tuple[Array, Array]:
    residuals, jacobian = _linear(columns, problem.final, last)
    return _squared(jacobian, residuals)


LINEARISED = {
    of: (traced_once(partial(_linearised, of)), traced_once(partial(_linearised_end, of)))
    for of in (columns_by_part, columns_at_once)
}
"""The linear models of a sample and of the end, as a kernel needs them and as XLA does."""


def exact_model(problem: Problem, states: State, commands: Array) -> tuple[Model, Array]:
    """Linearise with the exact Hessians, and return the costate after each sample, (samples, n)."""
    before, after, last = ends(states)
    linearised, linearised_end = LINEARISED[columns_by_part]

    def ended(last: State) -> tuple[Array, Array]:
        return linearised_end(problem, last)[0], _curvature_end(problem, last)

    def sample(costate: Array, row: Any) -> tuple[Array, tuple[Array, ...]]:
        transition, gradient, _ = linearised(problem, *row)
        hessian = _curvature(problem, costate, *row)
        return _costate(costate, transition, gradient), (transition, gradient, hessian, costate)

    v, v_v = at_once(ended, last)
    rows = jnp.arange(len(commands)), before, after, commands
    *model, costates = scan(sample, v, rows, reverse=True)[1]
    return Model(*model, (v, v_v)), costates


def newton(problem: Problem, model: Model, states: State, commands: Array) -> Model:
    """Replace the Hessians of ``gauss_newton`` by the exact ones of the Lagrangian."""
    before, after, last = ends(states)
    rows = costates_of(model), jnp.arange(len(commands)), before, after, commands
    hessian = jax.vmap(partial(_curvature, problem))(*rows)
    return model._replace(hessian=hessian, end=(model.end[0], _curvature_end(problem, last)))


def costates_of(model: Model) -> Array:
    """Return the costate after each sample, (samples, n)."""

    def back(after: Array, row: Any) -> tuple[Array, Array]:
        return _costate(after, *row), after

    return lax.scan(back, model.end[0], (model.transition, model.gradient), reverse=True)[1]


def _costate(after: Array, transition: Array, gradient: Array) -> Array:
    """Return the costate before a sample from the one after it, both (n,)."""
    n = after.size
    return gradient[:n] + matvec(transition[:, :n].T, after)


def _curvature(
    problem: Problem, costate: Array, k: Array, state: State, after: State, command: Array
) -> Array:
    slope = lambda z: slope_of_sample(problem, costate, k, state, after, command, z)[0]  # noqa: E731
    return symmetric(jax.jacfwd(slope)(zeros(state, command)))


def slope_of_sample(
    problem: Problem,
    costate: Array,
    k: Array,
    state: State,
    after: State,
    command: Array,
    z: Array,
) -> tuple[Array, Array]:
    """Return the gradient of a sample's Lagrangian at z, (n + m,), and the error after it, (n,)."""
    n = costate.size

    def lagrangian(z: Array) -> tuple[Array, Array]:
        end, residuals = problem.stage(k, retract(state, z[:n]), command + z[n:])
        off = local(after, end)
        return _half_square(residuals) + dot(costate, off), off

    return jax.grad(lagrangian, has_aux=True)(z)


def _curvature_end(problem: Problem, last: State) -> Array:
    return jax.jacfwd(lambda delta: slope_at_end(problem, last, delta))(zeros(last))


def slope_at_end(problem: Problem, last: State, delta: Array) -> Array:
    """Return the gradient of the cost of the end at an error delta of its state, (n,)."""
    return jax.grad(lambda delta: _half_square(problem.final(retract(last, delta))))(delta)


def minimise(
    problem: Problem,
    limits: Limits,
    begin: Trajectory,
    settings: Settings,
    cost: Array,
    first: Array,
    floor: Array,
    passes: Array,
    history: Array,
) -> Progress:
    """Return the path after the last step, and how the iteration ended.

    The rounding of ``first``, the cost of the very first path, also limits later ones. A promised
    decrease is compared with a cost of at least ``floor``.
    """
    iterations, tolerance, exact, _ = settings
    eps = float(jnp.finfo(first.dtype).eps)
    least, lengths = 10.0 * eps, jnp.asarray(STEPS, first.dtype)

    def one(c: Progress) -> Progress:
        policy = policy_of(problem, c.path, c.damping, *within(c.path.commands, limits), exact)
        decrease = -lengths * (policy.slope + 0.5 * lengths * policy.curvature)
        gaps = jnp.zeros((), bool) if c.path.gaps is None else jnp.any(c.path.gaps != 0)
        scale = jnp.maximum(c.cost, floor)
        converged = (decrease[0] <= tolerance**2 * scale) & (c.damping <= least) & ~gaps

        # Rounding of the residuals, which may be small differences of numbers as large as the first
        # ones, hides small changes of the cost. Whole steps are then good while they get shorter.
        rounding = 4.0 * eps * jnp.sqrt(c.cost) * jnp.sqrt(first)
        quiet = (decrease[0] <= rounding) & (c.damping <= FIRST_DAMPING) & ~gaps
        stale = jnp.where(quiet & (decrease[0] < c.smallest), 0, c.stale + quiet.astype(jnp.int32))
        smallest = jnp.where(quiet, jnp.minimum(decrease[0], c.smallest), c.smallest)

        enough = jnp.where(decrease > 0, 1e-4, 2.0) * decrease
        most = c.cost - enough + rounding
        new, new_cost, length = _searched(problem, c.path, limits, policy, most, rounding, gaps)
        stepped = (length > 0) & ~converged & (c.passes < iterations)
        path, cost = jax.tree.map(
            lambda x, y: jnp.where(stepped, x, y), (new, new_cost), (c.path, c.cost)
        )

        damping = _next_damping(c.damping, length, least)
        status = jnp.where(damping > LARGEST_DAMPING, NO_DESCENT, c.status)
        status = jnp.where(stale == PATIENCE, ROUNDING, status)
        status = jnp.where(converged, CONVERGED, status)
        later = jnp.arange(iterations + 1, dtype=jnp.int32) > c.passes
        history = jnp.where(later, cost, c.history)
        passes = c.passes + (~converged).astype(jnp.int32)
        return Progress(path, cost, damping, status, passes, history, smallest, stale)

    status = jnp.where(jnp.isfinite(cost), RUNNING, NOT_FINITE).astype(jnp.int32)
    infinity, damping = jnp.full_like(cost, jnp.inf), jnp.full_like(cost, least)
    history = jnp.where(passes == 0, cost, history)
    zero = jnp.zeros_like(status)
    start = Progress(begin, cost, damping, status, passes, history, infinity, zero)
    # One more pass than steps, to say whether the last step has reached the minimum.
    return lax.while_loop(lambda c: (c.status == RUNNING) & (c.passes <= iterations), one, start)


def _next_damping(damping: Array, length: Array, least: float) -> Array:
    """Reduce the damping after a long step, raise it after a short one or none."""
    less = jnp.where(damping > FIRST_DAMPING, 0.1 * damping, least)
    more = jnp.maximum(10.0 * damping, FIRST_DAMPING)
    return jnp.where(length >= 0.5, less, jnp.where(length > 0.1, damping, more))


def policy_of(
    problem: Problem,
    path: Trajectory,
    damping: Array,
    rows: Any,
    choose: Callable[..., Any],
    exact: bool,
) -> Policy:
    """Take the step of the exact model if it is convex, otherwise of Gauss and Newton's."""
    arguments = problem, path, damping, rows, choose, exact
    n = error_size(jax.tree.map(lambda x: x[0], path.states))
    # With 12 errors the threads of a GPU have too few registers.
    if n <= 6 or jax.default_backend() == "cpu":
        return fused.if_possible(lambda: _in_one_sweep(*arguments), lambda: modelled(*arguments))
    return modelled(*arguments)


def modelled(
    problem: Problem,
    path: Trajectory,
    damping: Array,
    rows: Any,
    choose: Callable[..., Any],
    exact: bool,
) -> Policy:
    """Compute ``policy_of`` by XLA, which linearises all samples before it goes backwards."""
    states, commands, gaps = path
    models = [gauss_newton(problem, states, commands, gaps)]
    if exact:
        models = [newton(problem, models[0], states, commands), *models]
    policies = [backward(model, damping, rows, choose)._replace(hessian=None) for model in models]
    return _first_descent(policies, models if path.gaps is not None else None)


def within(commands: Array, limits: Limits) -> tuple[Any, Callable[..., Any]]:
    """Return ``rows`` and ``choose`` of ``backward`` that keep the commands in the limits."""
    if limits is None:
        return jnp.ones(commands.shape, bool), held
    return (limits[0] - commands, limits[1] - commands), in_box


def _in_one_sweep(
    problem: Problem,
    path: Trajectory,
    damping: Array,
    rows: Any,
    choose: Callable[..., Any],
    exact: bool,
) -> Policy:
    """Compute ``policy_of`` in one kernel; to store the linear model would take longer."""
    before, after, last = ends(path.states)
    linearised, linearised_end = LINEARISED[columns_by_part]

    def ended(last: State) -> tuple[Array, list[Array]]:
        v, v_v = linearised_end(problem, last)
        return v, [_curvature_end(problem, last), v_v] if exact else [v_v]

    v, at_end = at_once(ended, last)
    shifts = None if path.gaps is None else -path.gaps

    def sample(carry: Any, row: Any) -> tuple[Any, Any]:
        costate, values = carry
        of_sample, shift, row = row
        transition, gradient, gauss_newton = linearised(problem, *of_sample)
        hessians = [gauss_newton]
        if exact:
            hessians = [_curvature(problem, costate, *of_sample), gauss_newton]
            costate = _costate(costate, transition, gradient)
        models = [(transition, gradient, hessian, shift) for hessian in hessians]
        pairs = [
            improved(value, model, damping, row, choose)
            for value, model in zip(values, models, strict=True)
        ]
        values, policies = zip(*pairs, strict=True)
        policies = [policy._replace(hessian=None) for policy in policies]
        return (costate, list(values)), (policies, None if shift is None else models)

    numbers = jnp.arange(len(path.commands))
    stages = (numbers, before, after, path.commands), shifts, rows
    begin = v if exact else None, [(v, hessian) for hessian in at_end]
    policies, models = scan(sample, begin, stages, reverse=True, engine="fused")[1]
    if models is not None:
        models = [
            Model(transition, gradient, hessian, (v, v_v), shift)
            for (transition, gradient, hessian, shift), v_v in zip(models, at_end, strict=True)
        ]
    return _first_descent([summed(policy) for policy in policies], models)


def _first_descent(policies: list[Policy], models: list[Model] | None) -> Policy:
    """Return the first policy that lowers the cost, else the last; ``models`` if there are gaps."""
    lowers = jnp.isfinite(policies[0].slope) & (policies[0].slope <= 0)
    first = lambda *x: jnp.where(lowers, x[0], x[-1])  # noqa: E731
    policy = jax.tree.map(first, *policies)
    return policy if models is None else _with_gaps(jax.tree.map(first, *models), policy)


def _with_gaps(model: Model, policy: Policy) -> Policy:
    """Give the policy slope and curvature of the whole step, which also closes the gaps."""
    after, z = forward(model, policy)
    v, v_v = model.end
    slope = jnp.sum(model.gradient * z) + dot(v, after[-1])
    curvature = jnp.sum(z * matvec(model.hessian, z)) + dot(after[-1], matvec(v_v, after[-1]))
    return policy._replace(slope=slope, curvature=curvature)


def _searched(
    problem: Problem,
    path: Trajectory,
    limits: Limits,
    policy: Policy,
    most: Array,
    rounding: Array,
    gaps: Array,
) -> tuple[Trajectory, Array, Array]:
    """Return the cheapest path, with gaps the longest step, below ``most``; cost and length."""
    lengths = jnp.asarray(STEPS, most.dtype)
    start = jax.tree.map(lambda x: x[0], path.states)
    rows = path.commands, ends(path.states)[0], policy.change, policy.gains, limits

    def tried(length: Array) -> tuple[Trajectory, Array]:
        def command(state: State, row: Any) -> Array:
            u, planned, d, gain, limits = row
            return clipped(u + length * d - matvec(gain, local(planned, state)), limits)

        gaps = None if path.gaps is None else (1.0 - length) * path.gaps
        states, commands, cost = roll_out(problem, start, rows, command, gaps, scan)
        return Trajectory(states, commands, gaps), cost

    paths, costs = jax.vmap(tried)(lengths)
    good = costs <= most
    lowest = jnp.min(jnp.where(good, costs, jnp.inf))
    best = jnp.argmax(good & (gaps | (costs <= lowest + rounding)))
    length = jnp.where(jnp.any(good), lengths[best], 0.0)
    return jax.tree.map(lambda x: x[best], paths), costs[best], length


def has_converged(status: Array) -> Array:
    """Return whether an iteration with this status has ended at a minimum."""
    return (status == CONVERGED) | (status == ROUNDING)


def clipped(commands: Array, limits: Limits) -> Array:
    """Clip the commands (m,) or (samples, m) to limits of their shape."""
    return commands if limits is None else jnp.clip(commands, *limits)


def free_of(commands: Array, limits: Limits) -> Array:
    """Return which commands are at no limit, an array of booleans."""
    if limits is None:
        return jnp.ones(commands.shape, bool)
    return (commands > limits[0]) & (commands < limits[1])


def at_limits(commands: Array, limits: Limits) -> Array:
    """Move the commands that differ from a limit by rounding exactly to it."""
    if limits is not None:
        eps = 8.0 * float(jnp.finfo(commands.dtype).eps)
        for limit in limits:
            near = jnp.abs(commands - limit) <= eps * (jnp.abs(commands) + jnp.abs(limit))
            commands = jnp.where(near & jnp.isfinite(limit), limit, commands)
    return commands


def _half_square(residuals: Array) -> Array:
    return 0.5 * square(residuals)


def _squared(jacobian: Array, residuals: Array) -> tuple[Array, Array]:
    return matvec(jacobian.T, residuals), product(jacobian.T, jacobian)


def zeros(state: State, *command: Array) -> Array:
    """Return no error of the state and, if given, no change of the command, (n,) or (n + m,)."""
    return jnp.zeros(error_size(state) + sum(u.size for u in command), state.q.dtype)


def ends(states: State) -> tuple[State, State, State]:
    """Return the states before the samples and after them, and the last one."""
    parts = (slice(None, -1), slice(1, None), -1)
    before, after, last = (jax.tree.map(lambda x, i=i: x[i], states) for i in parts)
    return before, after, last

"""Plans against dense least squares, quadratic programs, differences and their own feedback.

About one principal axis, with residuals linear in angle, rate and torque, the problem is exactly
linear and quadratic in the error state, so NumPy and SciPy can solve it as a dense one.
"""

import functools

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some
from scipy.optimize import lsq_linear

import jaxquat as jq
from jaxquat.planning import Constraints, Residuals, Solver
from jaxquat.planning.riccati import in_box

BODY = jq.Body.from_principal(np.array([2.0, 3.0, 4.0]))
MOMENT, SAMPLES, DT = 4.0, 20, 0.25  # kg m^2 about z, s
STILL = jq.State(np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3))
GRID = jq.grid(0.0, DT, SAMPLES)
SIZES = {"angle": 0.3, "bias": 0.1, "rate": 0.2, "end": 10.0}
"""Weights of the angle and of the rate, a bias of the former, and the weight of the end."""


def about_z(t, state, params, command):
    return jnp.concatenate([jnp.zeros(2, command.dtype), command])


def angle(state):
    return jq.quaternion.log(state.q)[2]


def small(k, state, params, command):
    _, size = params
    turned = size["angle"] * angle(state) - size["bias"]
    return jnp.concatenate([command, jnp.stack([turned, size["rate"] * state.omega[2]])])


def missed_angle(state, params):
    goal, size = params
    return size["end"] * jnp.stack([angle(state) - goal, state.omega[2]])


@functools.partial(jax.jit, static_argnames="bounded")
def turned(goal, size, bounded=False):
    guess, limits = jnp.zeros((SAMPLES, 1)), (-0.3, 0.25) if bounded else None
    return jq.planning.ilqr(
        jq.lie_euler,
        BODY,
        about_z,
        STILL,
        GRID,
        (goal, size),
        guess,
        Residuals(small, missed_angle),
        constraints=Constraints(limits),
        solver=Solver(hessian="gauss-newton"),
    )


def dense(goal, size):
    """The residuals J u + r of a turn about z; a step of lie_euler adds DT omega, DT u/I."""
    by_angle, by_rate, rows, constants = np.zeros(SAMPLES), np.zeros(SAMPLES), [], []
    for k in range(SAMPLES):
        unit = np.eye(SAMPLES)[k]
        rows += [unit, size["angle"] * by_angle, size["rate"] * by_rate]
        constants += [0.0, -size["bias"], 0.0]
        by_angle, by_rate = by_angle + DT * by_rate, by_rate + DT / MOMENT * unit
    rows += [size["end"] * by_angle, size["end"] * by_rate]
    return np.array(rows), np.array([*constants, -size["end"] * goal, 0.0])


def test_a_linear_quadratic_problem_takes_one_iteration():
    plan = turned(1.0, SIZES)
    jacobian, constant = dense(1.0, SIZES)
    solution = np.linalg.lstsq(jacobian, -constant)[0]
    np.testing.assert_allclose(plan.commands[:, 0], solution, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        plan.cost, 0.5 * np.sum((jacobian @ solution + constant) ** 2), rtol=1e-14
    )
    assert plan.iterations == 1
    assert plan.reason == "no further decrease"


def test_the_gains_of_a_linear_plan_are_those_of_the_finite_regulator():
    a, b = np.array([[1.0, DT], [0.0, 1.0]]), np.array([[0.0], [DT / MOMENT]])
    q, r, p = (
        np.diag([SIZES["angle"], SIZES["rate"]]) ** 2,
        np.eye(1),
        SIZES["end"] ** 2 * np.eye(2),
    )
    gains = []
    for _ in range(SAMPLES):  # the Riccati recursion, from the end
        gain = np.linalg.solve(r + b.T @ p @ b, b.T @ p @ a)
        p = q + gain.T @ r @ gain + (a - b @ gain).T @ p @ (a - b @ gain)
        gains.append(gain)
    plan = turned(1.0, SIZES)
    np.testing.assert_allclose(plan.gains[:, :, [2, 5]], gains[::-1], rtol=0, atol=1e-12)


def test_a_turn_from_rest_to_rest_of_least_energy_is_the_closed_form_of_the_scheme():
    """u_j = 6 I angle/(DT^2 N (N + 1)) (1 - 2 j/(N - 1)), in the limit 6 I angle (1 - 2 t/T)/T^2.

    With the weight w of the end instead of a condition, ``C C^T + 1/w^2`` takes the place of C C^T,
    where C u is the end: the commands differ by at most 1/(w^2 eigenvalue) of their norm.
    """
    size = {"angle": 0.0, "bias": 0.0, "rate": 0.0, "end": 1e3}
    plan = turned(1.0, size)
    jacobian, constant = dense(1.0, size)
    solution = np.linalg.lstsq(jacobian, -constant)[0]
    np.testing.assert_allclose(plan.commands[:, 0], solution, rtol=0, atol=1e-10)
    j = np.arange(SAMPLES)
    closed = 6.0 * MOMENT / (DT**2 * SAMPLES * (SAMPLES + 1)) * (1.0 - 2.0 * j / (SAMPLES - 1))
    least = np.linalg.svd(jacobian[-2:])[1].min() ** 2
    off = np.linalg.norm(plan.commands[:, 0] - closed)
    assert off < np.linalg.norm(closed) / least


@pytest.mark.slow
def test_with_limits_it_is_the_optimum_of_the_quadratic_program():
    plan = turned(1.0, SIZES, bounded=True)
    jacobian, constant = dense(1.0, SIZES)
    solution = lsq_linear(jacobian, -constant, (-0.3, 0.25), method="bvls", tol=1e-14).x
    np.testing.assert_allclose(plan.commands[:, 0], solution, rtol=0, atol=1e-13)
    at_limit = np.isin(np.asarray(plan.commands), [-0.3, 0.25])
    assert plan.converged
    assert np.sum(at_limit) == 19
    assert not np.any(np.asarray(plan.gains)[at_limit])


def test_projected_newton_steps_reach_the_minimum_in_a_box():
    """Of 100 random positive definite problems with four commands, as bounded least squares."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(100, 6, 4))
    targets, lower, upper = rng.normal(size=(100, 6)), -rng.uniform(size=4), rng.uniform(size=4)
    hessians = np.einsum("nki,nkj->nij", roots, roots)
    gradients = -np.einsum("nki,nk->ni", roots, targets)
    room = jnp.asarray(lower), jnp.asarray(upper)
    changes, free = jax.jit(jax.vmap(lambda h, g: in_box(h, g, room)))(hessians, gradients)
    for root, target, change, is_free in zip(roots, targets, changes, free, strict=True):
        solution = lsq_linear(root, target, (lower, upper), method="bvls", tol=1e-14).x
        np.testing.assert_allclose(change, solution, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(is_free, (solution > lower) & (solution < upper))


# Slews about any axis, from any rate to rest, of least energy.

HORIZON = jq.grid(0.0, 0.25, 20)


def motors(t, state, params, command):
    return command


def effort(k, state, params, command):
    return command


def missed(state, goal):
    turn = jq.quaternion.log(jq.quaternion.relative(goal, state.q))
    return 30.0 * jnp.concatenate([turn, state.omega])


def slew(start, goal, limits=None, **options):
    guess = jnp.zeros((20, 3), start.q.dtype)
    return jq.planning.ilqr(
        jq.rkmk2, jax.tree.map(lambda x: x.astype(start.q.dtype), BODY), motors, start, HORIZON,
        goal, guess, Residuals(effort, missed), constraints=Constraints(limits),
        solver=Solver(**options),
    )  # fmt: skip


def slew_cost(commands, start, goal):
    path = jq.rollout(
        jq.rkmk2,
        BODY,
        motors,
        start,
        HORIZON,
        goal,
        inputs=commands,
        options=jq.RolloutOptions(engine="scan"),
    )
    return 0.5 * jnp.sum(commands**2) + 0.5 * jnp.sum(missed(path.final, goal) ** 2)


def pairs(count):
    """Starts and goals at random; the first half of the turns is within 1e-3 of a half turn."""
    rng = np.random.default_rng(0)
    unit = lambda *shape: (x := rng.normal(size=shape)) / np.linalg.norm(x, axis=1, keepdims=True)
    q, axes = unit(count, 4), unit(count, 3)
    near = np.pi + rng.uniform(-1e-3, 1e-3, count // 2)
    angles = np.concatenate([near, rng.uniform(0.0, np.pi, count - count // 2)])
    turns = jq.quaternion.exp(jnp.asarray(axes * angles[:, None]))
    omega = 0.2 * rng.normal(size=(count, 3))
    return jq.State(jnp.asarray(q), jnp.asarray(omega)), jq.quaternion.multiply(q, turns)


@functools.cache
def many_slews():
    options = {"tolerance": 1e-10}
    return jax.jit(jax.vmap(functools.partial(slew, **options)))(*pairs(200))


@pytest.mark.slow
def test_plans_of_attitudes_up_to_a_half_turn_apart_all_converge():
    plans = many_slews()
    gradients = jax.jit(jax.vmap(jax.grad(slew_cost)))(plans.commands, *pairs(200))
    assert np.all(plans.converged)
    assert np.abs(gradients).max() < 1e-8
    assert np.max(plans.iterations) <= 12  # quadratic convergence: 10 were counted


@pytest.mark.slow
def test_the_cost_never_rises_by_more_than_rounding():
    """Residuals of the end are differences of numbers as large as the residuals of the start."""
    history = np.asarray(many_slews().history)
    rounding = 4.0 * np.finfo(float).eps * np.sqrt(history[:, :-1] * history[:, :1])
    assert np.all(np.diff(history) <= 1.01 * rounding)


@pytest.mark.slow
def test_a_plan_is_the_same_alone_and_among_others():
    starts, goals = pairs(200)
    alone = jax.jit(functools.partial(slew, tolerance=1e-10))
    for k in (0, 150):
        start, goal, plan = jax.tree.map(lambda x, k=k: x[k], (starts, goals, many_slews()))
        one = alone(start, goal)
        np.testing.assert_allclose(one.commands, plan.commands, rtol=0, atol=1e-10)
        assert one.iterations == plan.iterations


@pytest.mark.slow
def test_single_precision_converges_to_its_rounding():
    start, goal = jax.tree.map(lambda x: x[150].astype(jnp.float32), pairs(200))
    plan = jax.jit(slew)(start, goal)
    wanted = many_slews().commands[150]
    assert plan.converged
    assert plan.commands.dtype == jnp.float32
    np.testing.assert_allclose(plan.commands, wanted, rtol=0, atol=1e-3 * np.abs(wanted).max())


@pytest.mark.slow
def test_the_controller_repeats_the_plan_and_corrects_a_perturbed_start():
    """With feedback a rate of 0.05 rad/s at the start shifts the end by less than 2e-3."""
    start, goal = jax.tree.map(lambda x: x[150], pairs(200))
    pushed = start._replace(omega=start.omega + jnp.array([0.05, -0.03, 0.02]))

    @jax.jit
    def fly(start, pushed, goal):
        plan = slew(start, goal)
        roll = functools.partial(flat.rollout, jq.rkmk2, BODY, motors, engine="scan")
        flown = roll(start, HORIZON, controller=plan.controller())
        held = roll(pushed, HORIZON, controller=plan.controller())
        free = roll(pushed, HORIZON, inputs=plan.commands)
        late = jq.rollout(
            jq.rkmk2, BODY, motors, start, jq.grid(0.0, 0.25, 22), controller=plan.controller()
        )
        return plan.path, flown, held.final, free.final, late.command

    planned, flown, held, free, late = fly(start, pushed, goal)
    np.testing.assert_allclose(flown.state.q, planned.state.q, rtol=0, atol=1e-13)
    np.testing.assert_allclose(flown.command, planned.command, rtol=0, atol=1e-13)
    off = lambda end: np.abs(jq.dynamics.local(planned.final, end)).max()
    assert off(held) < 2e-3
    assert off(free) > 0.1
    np.testing.assert_array_equal(np.isnan(late).all(1), np.arange(23) >= 20)


def test_a_row_of_a_plan_holds_until_the_next():
    """Of 100,000 rows in single precision a thousandth of a period misses 5020."""

    def commanded(count, dt, first, times):
        t = jnp.asarray((first + dt * np.arange(count + 1)).astype(np.float32))
        q = jnp.broadcast_to(np.float32([1.0, 0.0, 0.0, 0.0]), (count + 1, 4))
        path = jq.Path(t, jq.State(q, jnp.zeros_like(q[:, 1:])))
        commands, gains = jnp.arange(count, dtype=q.dtype)[:, None], jnp.zeros((count, 1, 6))
        zero, still = jnp.zeros(()), jax.tree.map(lambda x: x[0], path.state)
        plan = jq.planning.Plan(commands, path, gains.astype(q.dtype), zero, zero, zero, zero)
        update = plan.controller().update
        of_time = jax.jit(jax.vmap(lambda now: update(now, still, (), None, None)[0][0]))
        return of_time(jnp.asarray(times, jnp.float32))

    times = [0.999, 1.0, 1.05, 1.1999, 1.21, 1.79, 1.81]
    rows = [np.nan, 0.0, 0.0, 1.0, 1.0, 3.0, np.nan]
    np.testing.assert_array_equal(commanded(4, 0.2, 1.0, times), rows)
    number = np.arange(100_000)
    times = np.float32(0.7) * number.astype(np.float32)
    np.testing.assert_array_equal(commanded(100_000, 0.7, 0.0, times), number)


@pytest.mark.slow
def test_derivatives_are_those_of_differences_and_nan_where_the_iteration_has_not_converged():
    """By the goal, the rate at the start and a limit that 13 commands meet, in both modes.

    Of the two slews, 18 steps suffice for the first. Central differences of 1e-5 are good to 1e-8
    here.
    """
    starts, goals = jax.tree.map(lambda x: x[jnp.array([3, 11])], pairs(200))
    at = jnp.concatenate([jnp.zeros((2, 3)), starts.omega, jnp.full((2, 1), 0.98)], axis=1)
    weights = np.random.default_rng(1).normal(size=(20, 3))

    def commands(x, start, goal):
        there = jq.quaternion.multiply(goal, jq.quaternion.exp(x[:3]))
        start, limits = start._replace(omega=x[3:6]), (-x[6], x[6])
        plan = slew(start, there, limits, tolerance=1e-10, iterations=18)
        return plan.commands, plan

    def weighed(*arguments):
        return jnp.sum(weights * commands(*arguments)[0])

    forward, plans = jax.jit(jax.vmap(jax.jacfwd(commands, has_aux=True)))(at, starts, goals)
    assert list(plans.reason) == ["no further decrease", "iterations reached"]
    assert np.sum(np.abs(plans.commands[0]) == 0.98) == 13
    reverse = jax.jit(jax.vmap(jax.grad(weighed)))(at, starts, goals)
    assert np.all(np.isnan(forward[1]))
    assert np.all(np.isnan(reverse[1]))
    np.testing.assert_allclose(
        reverse[0], np.einsum("ki,kij->j", weights, forward[0]), rtol=0, atol=1e-10
    )
    start, goal = jax.tree.map(lambda x: x[0], (starts, goals))
    shifts = 1e-5 * jnp.concatenate([jnp.eye(7), -jnp.eye(7)])
    ends = jax.jit(jax.vmap(lambda shift: commands(at[0] + shift, start, goal)[0]))(shifts)
    differences = jnp.moveaxis(ends[:7] - ends[7:], 0, -1) / 2e-5
    np.testing.assert_allclose(forward[0], differences, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_gains_path_and_cost_have_the_derivatives_of_differences():
    """By the goal and a weight, in both modes, where some commands are at their limits."""
    weight = lambda x: jnp.exp(x[3])

    def effort(k, state, x, command):
        return jnp.concatenate([command, weight(x) * state.omega])

    def missed(state, x):
        turn = jq.quaternion.log(jq.quaternion.relative(jq.quaternion.exp(x[:3]), state.q))
        return 1e2 * weight(x) * jnp.concatenate([turn, state.omega])

    def total(x):
        plan = jq.planning.ilqr(
            jq.rkmk2, BODY, jq.torques.commanded, STILL, jq.grid(0.0, 0.5, 20), x,
            jnp.zeros((10, 3)), jq.planning.Residuals(effort, missed),
            constraints=jq.planning.Constraints(limits=(-0.25, 0.25)),
            solver=jq.planning.Solver(tolerance=1e-12),
        )  # fmt: skip
        return jnp.sum(jnp.sin(plan.gains)) + plan.cost + jnp.sum(plan.path.state.omega**3), plan

    x = jnp.array([0.1, 0.2, 1.5, 0.1])
    reverse, plan = jax.jit(jax.grad(total, has_aux=True))(x)
    assert 0 < np.sum(np.abs(plan.commands) == 0.25) < plan.commands.size
    forward = jax.jit(jax.jacfwd(lambda x: total(x)[0]))(x)
    shifts = 1e-5 * jnp.concatenate([jnp.eye(4), -jnp.eye(4)])
    ends = jax.jit(jax.vmap(lambda shift: total(x + shift)[0]))(shifts)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)
    np.testing.assert_allclose(forward, (ends[:4] - ends[4:]) / 2e-5, rtol=1e-5)


@pytest.mark.slow
def test_wheels_in_aux_and_arrays_that_the_functions_close_over():
    """Two steps a sample; the torque closes over a traced number, the residuals over an integer."""
    two = jnp.array([[0.1, 0.2, 0.5], [0.3, -0.4, 0.2]]), jnp.array([1, 2]), jnp.array([1.0, 1.2])

    def plan(turn, cheap, size):
        def wheels(t, state, params, command):
            return -size * command - jnp.cross(state.omega, state.aux), command

        def dear(k, state, params, command):
            return jnp.where(k < cheap, 1.0, 2.0) * command

        def missed(state, params):
            return 20.0 * jnp.concatenate([jq.quaternion.log(state.q) - turn, state.omega])

        return jq.planning.ilqr(
            jq.rkmk2, BODY, wheels, STILL._replace(aux=np.zeros(3)), jq.grid(0.0, 0.25, 8),
            None, jnp.zeros((4, 3)), Residuals(dear, missed), solver=Solver(tolerance=1e-10),
        )  # fmt: skip

    def first(turn, cheap, size):
        result = plan(turn, cheap, size)
        return result.commands[0, 0], result

    slope = jax.jit(jax.vmap(jax.grad(first, argnums=2, has_aux=True)))
    exact, plans = slope(*two)
    up, down = (slope(*two[:2], two[2] + shift)[1].commands[:, 0, 0] for shift in (1e-5, -1e-5))
    np.testing.assert_allclose(exact, (up - down) / 2e-5, rtol=0, atol=1e-8)
    assert np.all(plans.converged)
    np.testing.assert_allclose(plans.path.t, [[0.0, 0.5, 1.0, 1.5, 2.0]] * 2)
    assert plans.gains.shape == (2, 4, 3, 9)


def test_errors_say_what_was_wanted():
    def plan(**changes):
        arguments = {
            "scheme": jq.lie_euler, "body": BODY, "torque": about_z, "start": STILL, "grid": GRID,
            "commands": np.zeros((SAMPLES, 1)), "residuals": small, "params": (1.0, SIZES),
        }  # fmt: skip
        return jq.planning.ilqr(**(arguments | changes))

    for changes, error, text in (
        ({"commands": np.zeros(20)}, ValueError, r"^commands: wanted shape \(samples, m\)"),
        ({"commands": ()}, ValueError, r"^commands: wanted shape \(samples, m\), got \(0,\)"),
        ({"commands": np.zeros((20, 1), np.float32)}, TypeError, "^commands: wanted the dtype"),
        (
            {"commands": np.zeros((3, 1))},
            ValueError,
            "^commands: wanted a number of rows that divides the 20 steps of the grid, got 3 rows",
        ),
        ({"grid": jq.grid_at(np.arange(21.0))}, TypeError, "^grid: wanted a jq.grid"),
        (
            {"constraints": Constraints((1.0, -1.0))},
            ValueError,
            r"^constraints.limits: wanted least <= largest, got \[ 1. -1.\]",
        ),
        (
            {"constraints": Constraints((1.0, np.ones(3)))},
            ValueError,
            r"^constraints.limits: wanted shape \(\) or \(1,\)",
        ),
        ({"residuals": lambda k, *_: k}, TypeError, r"^residuals\(...\): wanted a floating dtype"),
        (
            {"residuals": Residuals(small, lambda *_: jnp.ones((2, 2)))},
            ValueError,
            r"^residuals.final\(...\): wanted shape \(m,\)",
        ),
        (
            {"solver": Solver(hessian="newton")},
            ValueError,
            "^solver.hessian: wanted one of 'exact', 'gauss-newton'",
        ),
        (
            {"final": missed},
            TypeError,
            r"^planning.ilqr: final is now residuals=jq.planning.Residuals\(stage, final\)",
        ),
        ({"sample_every": 2}, TypeError, "sample_every is now no argument: each command lasts"),
        (
            {"scheme": jq.stochastic.brownian(1.0, 1.0)},
            TypeError,
            "^scheme: wanted a deterministic one",
        ),
    ):
        with pytest.raises(error, match=text):
            plan(**changes)


@pytest.mark.parametrize("hessian", some(["exact", "gauss-newton"], ["exact"]))
def test_the_functions_of_the_user_are_traced_once(hessian):
    """All that a plan makes of them starts from this trace; a step of lie_euler asks one torque."""
    traces = []

    def counted(name, function):
        return lambda *arguments: traces.append(name) or function(*arguments)

    torque = counted("torque", about_z)
    stage = counted("stage", lambda k, state, params, command: command)
    final = counted("final", lambda state, params: jnp.stack([angle(state), state.omega[2]]))

    def plan(start):
        return jq.planning.ilqr(
            jq.lie_euler, BODY, torque, start, GRID, None, jnp.zeros((SAMPLES, 1)),
            Residuals(stage, final), solver=Solver(hessian=hessian),
        )  # fmt: skip

    jax.jit(plan).trace(STILL)
    assert sorted(traces) == ["final", "stage", "torque"]

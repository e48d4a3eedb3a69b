"""Constrained plans against quadratic programs, their conditions of optimality and differences.

About one principal axis, least energy from rest to rest with a limit of the rate is a quadratic
program, and a step of lie_euler makes it exactly one.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from jaxquat.planning import Constraints
from jaxquat.planning.constraints import verdict
from jaxquat.planning.iteration import (
    CONVERGED,
    INFEASIBLE,
    NO_DESCENT,
    NOT_FINITE,
    ROUNDING,
    RUNNING,
)

BODY = jq.Body.from_principal(np.array([2.0, 3.0, 4.0]))
MOMENT, SAMPLES, DT = 4.0, 20, 0.25  # kg m^2 about z, s
STILL = jq.State(np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3))
GRID = jq.grid(0.0, DT, SAMPLES)
GAUSS_NEWTON = jq.planning.Solver(hessian="gauss-newton")
LEAST_RATE = 1.0 / (DT * (SAMPLES - 1))
"""The smallest limit of the rate that lets the body turn by 1 rad: the first rate is 0."""


def about_z(t, state, params, command):
    return jnp.concatenate([jnp.zeros(2, command.dtype), command])


def angle(state):
    return jq.quaternion.log(state.q)[2]


def turned(problem, **options):
    """Turn by ``goal`` from rest to rest, at rates of at most ``limit``, in any units."""

    def effort(k, state, problem, command):
        return jnp.sqrt(problem["cost"]) * command

    def missed(state, problem):
        return problem["units"] * jnp.stack([angle(state) - problem["goal"], state.omega[2]])

    def fast(k, state, problem, command):
        return problem["units"] * jnp.stack([state.omega[2] - problem["limit"]])

    dtype = problem["goal"].dtype
    body, start = jax.tree.map(lambda x: x.astype(dtype), (BODY, STILL))
    return jq.planning.ilqr(
        jq.lie_euler, body, about_z, start, GRID, problem, jnp.zeros((SAMPLES, 1), dtype), effort,
        constraints=Constraints(equalities=missed, inequalities=fast),
        solver=GAUSS_NEWTON._replace(**options),
    )  # fmt: skip


def rows():
    """Rates at the samples, angle and rate at the end, by the commands."""
    by_angle, by_rate, rates = np.zeros(SAMPLES), np.zeros(SAMPLES), []
    for k in range(SAMPLES):
        rates.append(by_rate)
        by_angle, by_rate = by_angle + DT * by_rate, by_rate + DT / MOMENT * np.eye(SAMPLES)[k]
    return np.array(rates), np.array([by_angle, by_rate])


def quadratic_program(limit):
    """Commands and multipliers of the turn by 1 rad: the only set of active limits that is optimal.

    They are those of the samples in the middle.
    """
    rates, ends = rows()
    for first in range(SAMPLES // 2, 0, -1):
        active = np.arange(first, SAMPLES + 1 - first)
        active = active[: 0 if first == SAMPLES // 2 else None]
        matrix = np.concatenate([ends, rates[active]])
        target = np.concatenate([[1.0, 0.0], np.full(len(active), limit)])
        y = np.linalg.solve(matrix @ matrix.T, -target)
        commands = -matrix.T @ y
        if np.all(y[2:] > 0) and np.all(rates @ commands <= limit + 1e-12):
            multipliers = np.zeros(SAMPLES)
            multipliers[active] = y[2:]
            return commands, y[:2], multipliers
    raise AssertionError("no set of active limits is optimal")


@functools.cache
def many_turns():
    """Without a limit, with one, the latter in other units; then 100 at random."""
    limits = np.random.default_rng(0).uniform(0.5, 2.0, 100)
    limits += 0.02 * np.sign(limits - 1.0)
    limits = np.concatenate([[500.0], np.full(6, 1.2), limits]) * LEAST_RATE
    units, cost = np.ones(107), np.ones(107)
    units[2:4], cost[4:6] = (1e150, 1e-150), (1e30, 1e-30)
    units[6], cost[6] = 1e-30, 1e30
    problems = {"goal": np.ones(107), "limit": limits, "units": units, "cost": cost}
    problems = jax.tree.map(jnp.asarray, problems)
    return problems, jax.jit(jax.vmap(functools.partial(turned, tolerance=1e-10)))(problems)


def plan_of(number):
    return jax.tree.map(lambda x: x[number], many_turns()[1])


@pytest.mark.slow
def test_a_turn_from_rest_to_rest_of_least_energy_is_the_closed_form_of_the_scheme():
    """u_j = 6 I angle/(DT^2 N (N + 1)) (1 - 2 j/(N - 1)), in the limit 6 I angle (1 - 2 t/T)/T^2.

    Here u = a - b j. The N-th step adds DT^2/I sum_j (N - 1 - j) u_j to the angle.
    """
    plan = plan_of(0)
    j = np.arange(SAMPLES)
    closed = 6.0 * MOMENT / (DT**2 * SAMPLES * (SAMPLES + 1)) * (1.0 - 2.0 * j / (SAMPLES - 1))
    np.testing.assert_allclose(plan.commands[:, 0], closed, rtol=0, atol=1e-10)
    assert plan.converged
    assert plan.violation < 1e-11
    time = DT * SAMPLES
    continuous = 6.0 * MOMENT / time**2 * (1.0 - 2.0 * (j + 0.5) * DT / time)
    np.testing.assert_allclose(plan.commands[:, 0], continuous, rtol=0, atol=0.06)


@pytest.mark.slow
def test_with_a_limit_of_the_rate_it_is_the_optimum_of_the_quadratic_program():
    plan = plan_of(1)
    commands, ends, along = quadratic_program(1.2 * LEAST_RATE)
    np.testing.assert_allclose(plan.commands[:, 0], commands, rtol=0, atol=1e-10)
    np.testing.assert_allclose(plan.multipliers[0], ends, rtol=0, atol=1e-7)
    np.testing.assert_allclose(plan.multipliers[1][:, 0], along, rtol=0, atol=1e-7)
    assert np.sum(along > 0) > 4


@pytest.mark.slow
@pytest.mark.parametrize("units", [1.0, 1e30, 1e-30])
def test_one_step_of_mpc_is_the_optimum_of_the_quadratic_program(units):
    limit = 1.2 * LEAST_RATE

    def missed(k, state, units):
        return units * jnp.stack([angle(state) - 1.0, state.omega[2]])

    controller = jq.planning.mpc(
        jq.lie_euler, BODY, about_z, DT, jnp.zeros((SAMPLES, 1)),
        lambda k, state, params, command: command,
        constraints=Constraints(
            equalities=missed,
            inequalities=lambda k, state, units, command: units * (state.omega[2:] - limit),
        ),
        tolerance=1e-6 * units,
    )  # fmt: skip
    memory = controller.init(STILL, units)
    command, memory = jax.jit(controller.update)(0.0, STILL, memory, units, None)
    plan = np.concatenate([command, memory.commands[:-1, 0]])
    np.testing.assert_allclose(plan, quadratic_program(limit)[0], rtol=0, atol=1e-6)
    assert memory.holds


@pytest.mark.slow
def test_units_of_cost_and_constraints_change_neither_commands_nor_the_number_of_steps():
    for number in range(2, 7):
        plan = plan_of(number)
        np.testing.assert_allclose(plan.commands, plan_of(1).commands, rtol=0, atol=1e-10)
        assert plan.iterations == plan_of(1).iterations


@pytest.mark.slow
def test_units_of_constraints_change_no_plan_in_single_precision():
    limits = np.full(3, 1.2 * LEAST_RATE)
    problems = {
        "goal": np.ones(3),
        "limit": limits,
        "units": [1.0, 1e30, 1e-30],
        "cost": np.ones(3),
    }
    problems = {name: jnp.asarray(x, jnp.float32) for name, x in problems.items()}
    plans = jax.jit(jax.vmap(turned))(problems)
    assert np.all(plans.converged)
    wanted = np.broadcast_to(quadratic_program(limits[0])[0], (3, SAMPLES))
    np.testing.assert_allclose(plans.commands[..., 0], wanted, rtol=0, atol=2e-3)


@pytest.mark.slow
def test_each_of_many_plans_says_whether_its_constraints_are_met():
    problems, plans = many_turns()
    possible = np.asarray(problems["limit"]) >= LEAST_RATE
    assert 20 < np.sum(~possible) < 80
    np.testing.assert_array_equal(plans.converged, possible)
    assert np.all(np.char.startswith(plans.reason[~possible].astype(str), "constraints not met"))
    assert np.all(np.isfinite(plans.commands))
    assert np.all(np.asarray(plans.violation)[7:][possible[7:]] < 1e-11)
    assert np.all(np.asarray(plans.violation)[7:][~possible[7:]] > 1e-3)


@functools.partial(jax.jit, static_argnames="as_limits")
def pushed(most, as_limits):
    """The turn by 1 rad with commands of at most ``most``, as limits or as inequalities."""
    return jq.planning.ilqr(
        jq.lie_euler, BODY, about_z, STILL, GRID, most,
        jnp.zeros((SAMPLES, 1)), lambda k, state, most, command: command,
        constraints=Constraints(
            equalities=lambda state, most: jnp.stack([angle(state) - 1.0, state.omega[2]]),
            limits=(-most, most) if as_limits else None,
            inequalities=None if as_limits else within,
        ),
        solver=GAUSS_NEWTON._replace(tolerance=1e-10),
    )  # fmt: skip


def within(k, state, most, command):
    return jnp.concatenate([command - most, -command - most])


@pytest.mark.slow
def test_limits_of_commands_and_inequalities_of_commands_give_the_same_plan():
    """The turn is DT^2/I sum_j (19 - 2 j) u_j over the first half; the other half is its mirror.

    So with r = 19 - 2 j and sum r u = 64, u is 0.68 for r from 19 to 9, and for r = 7, 5, 3 and 1
    it is (64 - 0.68 * 84) r/84, the sum of these r^2. The least limit is 64/100.
    """
    limits, inequalities = pushed(0.68, True), pushed(0.68, False)
    assert limits.converged
    assert inequalities.converged
    assert np.sum(np.abs(limits.commands) == 0.68) == 12
    r = 19.0 - 2.0 * np.arange(SAMPLES)
    closed = np.where(np.abs(r) > 8.0, 0.68 * np.sign(r), (64.0 - 0.68 * 84.0) / 84.0 * r)
    np.testing.assert_allclose(limits.commands[:, 0], closed, rtol=0, atol=1e-10)
    np.testing.assert_allclose(inequalities.commands[:, 0], closed, rtol=0, atol=1e-10)
    assert pushed(0.63, True).reason.startswith("constraints not met")
    assert pushed(0.63, False).reason.startswith("constraints not met")


@pytest.mark.slow
def test_a_constraint_that_no_command_changes_is_said_to_be_not_met():
    @jax.jit
    def plan(off):
        return jq.planning.ilqr(
            jq.lie_euler, BODY, about_z, STILL, GRID, off,
            jnp.ones((SAMPLES, 1)), lambda k, state, off, command: command,
            constraints=Constraints(equalities=lambda state, off: jnp.stack([off])),
            solver=GAUSS_NEWTON,
        )  # fmt: skip

    assert plan(0.0).converged
    assert plan(1.0).reason == "constraints not met"


@pytest.mark.slow
def test_a_guess_of_the_states_says_which_way_round_to_turn():
    """To a goal at 170 degrees about z, by -190: the guess is a uniform rotation without torque.

    The problem is linear about this path. So the first step, which is a whole one, closes all gaps.
    """
    goal = jq.quaternion.exp(jnp.array([0.0, 0.0, np.deg2rad(170.0)]))

    def missed(state, goal):
        turn = jq.quaternion.log(jq.quaternion.relative(goal, state.q))
        return jnp.stack([turn[2], state.omega[2]])

    @jax.jit
    def plan(commands, turn):
        turns = jnp.linspace(0.0, 1.0, SAMPLES + 1)[:, None] * jnp.stack([0.0, 0.0, turn])[None]
        rate = turns[-1:] / (DT * SAMPLES) * jnp.ones((SAMPLES + 1, 1))
        guess = commands, jq.State(jq.quaternion.exp(turns), rate)
        return jq.planning.ilqr(
            jq.lie_euler, BODY, about_z, STILL, GRID, goal,
            guess, lambda k, state, goal, command: command,
            constraints=Constraints(equalities=missed),
            solver=GAUSS_NEWTON._replace(tolerance=1e-10),
        )  # fmt: skip

    j = np.arange(SAMPLES)
    unit = 6.0 * MOMENT / (DT**2 * SAMPLES * (SAMPLES + 1)) * (1.0 - 2.0 * j / (SAMPLES - 1))
    for degrees in (170.0, -190.0):
        found = plan(jnp.zeros((SAMPLES, 1)), np.deg2rad(degrees))
        wanted = np.deg2rad(degrees) * unit
        assert found.converged
        np.testing.assert_allclose(found.commands[:, 0], wanted, rtol=0, atol=1e-10)
        flown = jq.rollout(jq.lie_euler, BODY, about_z, STILL, GRID, inputs=found.commands)
        np.testing.assert_allclose(found.path.state.q, flown.state.q, rtol=0, atol=1e-13)


# Slews about any axis with a limit of the rate and a cone that an instrument must not enter.

HORIZON = jq.grid(0.0, 0.8, 12)
SUN = np.array([0.62, 0.62, -0.3])


def slew(x):
    """By the rotation vector ``x[:3]``, at rates up to ``x[3]``, the sun ``x[4]`` rad away."""

    def missed(state, x):
        turn = jq.quaternion.log(jq.quaternion.relative(jq.quaternion.exp(x[:3]), state.q))
        return jnp.concatenate([turn, state.omega])

    def along(k, state, x, command):
        ahead = jq.quaternion.rotate(state.q, jnp.array([1.0, 0.0, 0.0], x.dtype))
        sun = jnp.asarray(SUN / np.linalg.norm(SUN), x.dtype)
        rate = jnp.dot(state.omega, state.omega) - x[3] ** 2
        return jnp.stack([rate, jnp.dot(ahead, sun) - jnp.cos(x[4])])

    body, start = jax.tree.map(lambda leaf: leaf.astype(x.dtype), (BODY, STILL))
    return jq.planning.ilqr(
        jq.rkmk2, body, lambda t, state, x, command: command, start, HORIZON,
        x, jnp.zeros((12, 3), x.dtype), lambda k, state, x, command: command,
        constraints=Constraints(equalities=missed, inequalities=along),
        solver=GAUSS_NEWTON._replace(tolerance=1e-10 if x.dtype == jnp.float64 else None),
    )  # fmt: skip


AT = np.array([0.2, 0.3, 1.6, 0.25, np.deg2rad(25.0)])


@pytest.mark.slow
def test_derivatives_of_a_constrained_plan_are_those_of_differences_in_both_modes():
    """Central differences of 1e-5 are good to 1e-7 here. At a rate of 0.1 there is no plan."""
    weights = np.random.default_rng(1).normal(size=(12, 3))

    def numbers(x):
        plan = slew(x)
        return (plan.commands, plan.multipliers, plan.cost), plan.converged

    @jax.jit
    @jax.vmap
    def both(x):
        value, push, converged = jax.linearize(numbers, x, has_aux=True)
        forward = jax.vmap(push, out_axes=-1)(jnp.eye(5))
        weighed = lambda x: jnp.sum(weights * push(x)[0])
        return value, converged, forward, jax.linear_transpose(weighed, x)(jnp.ones(()))[0]

    points = jnp.asarray(np.concatenate([AT + 1e-5 * np.eye(5), AT - 1e-5 * np.eye(5), [AT] * 2]))
    values, converged, forward, reverse = both(points.at[-1, 3].set(0.1))
    commands, multipliers, cost = jax.tree.map(lambda x: x[10], forward)
    assert np.all(converged[:-1])
    assert np.all(np.sum(np.asarray(values[1][1][10]) > 0, axis=0) > 0)
    assert np.all(np.isnan(reverse[-1]))
    assert np.all(np.isnan(forward[0][-1]))
    differences = jax.tree.map(lambda x: np.moveaxis(x[:5] - x[5:10], 0, -1) / 2e-5, values)
    np.testing.assert_allclose(commands, differences[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(cost, differences[2], rtol=0, atol=1e-6)
    for exact, wanted in zip(multipliers, differences[1], strict=True):
        np.testing.assert_allclose(exact, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
    wanted = np.einsum("ki,kij->j", weights, commands)
    np.testing.assert_allclose(reverse[10], wanted, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_single_precision_meets_constraints_to_its_tolerance():
    """A command of size 1 turns the lightest axis by at most sqrt(S), from Newton's equations.

    The last constraint is met if its cost v^2/(2 S) is below tolerance^2.5 of the cost.
    """
    plan = jax.jit(slew)(jnp.asarray(AT, jnp.float32))
    assert plan.converged
    assert plan.commands.dtype == plan.violation.dtype == jnp.float32
    s = np.sum((0.8**2 / 2.0 * (11.5 - np.arange(12))) ** 2)
    most = np.sqrt(2.0 * s * float(plan.cost)) * np.finfo(np.float32).eps ** (2.5 / 4.0)
    assert float(plan.violation) < most


# A spacecraft with three wheels turns by 120 degrees in 20 s, and its camera past the sun.

CAMERA = np.array([0.0, 0.0, 1.0])


@pytest.mark.slow
def test_a_slew_with_wheels_keeps_its_camera_out_of_a_cone_about_the_sun():
    """Without the cone the camera passes the sun at 3 degrees; keeping 25 costs more energy."""
    box = jq.Body.box(60.0, jnp.array([0.6, 0.8, 1.2]))
    axis = jnp.array([2.0, 1.0, 2.0]) / 3.0
    goal, half = (jq.quaternion.exp(np.deg2rad(angle) * axis) for angle in (120.0, 60.0))
    middle = jq.quaternion.rotate(half, CAMERA)
    across = jnp.cross(middle, jnp.cross(axis, middle))
    sun = jnp.cos(0.15) * middle + jnp.sin(0.15) * across / jnp.linalg.norm(across)
    start = STILL._replace(aux=np.zeros(3))

    def wheels(t, state, cone, command):
        return jq.actuators.wheel_torque(np.eye(3), state, state.aux, command), command

    def missed(state, cone):
        turn = jq.quaternion.log(jq.quaternion.relative(goal, state.q))
        return jnp.concatenate([turn, state.omega])

    def glare(k, state, cone, command):
        return jnp.stack([jnp.dot(jq.quaternion.rotate(state.q, CAMERA), sun) - jnp.cos(cone)])

    @jax.jit
    @jax.vmap
    def slewed(cone):
        plan = jq.planning.ilqr(
            jq.rkmk2, box, wheels, start, jq.grid(0.0, 0.5, 40), cone,
            jnp.zeros((40, 3)), lambda k, state, cone, command: command,
            constraints=Constraints(equalities=missed, inequalities=glare), solver=GAUSS_NEWTON,
        )  # fmt: skip
        ahead = jax.vmap(jq.quaternion.rotate, (0, None))(plan.path.state.q, CAMERA)
        return plan, jnp.min(jnp.arccos(jnp.sum(ahead * sun[None], axis=1)))

    plans, closest = slewed(np.deg2rad([1.0, 25.0]))
    assert np.all(plans.converged)
    assert np.rad2deg(closest[0]) < 4.0
    np.testing.assert_allclose(closest[1], np.deg2rad(25.0), rtol=0, atol=1e-8)
    assert plans.cost[1] > 1.2 * plans.cost[0]
    momentum = jax.vmap(jax.vmap(jq.quaternion.rotate))(
        plans.path.state.q,
        plans.path.state.omega @ box.inertia.T + plans.path.state.aux,
    )
    assert np.abs(momentum).max() < 0.02  # of wheels that reach 1 N m s; rkmk2 loses the rest
    ends = plans.path.final
    assert np.rad2deg(jax.vmap(jq.quaternion.distance, (0, None))(ends.q, goal)).max() < 1e-6
    assert np.abs(ends.omega).max() < 1e-8


# A quadrotor of 1 kg flips about its x axis; aux is its position [m] and velocity [m/s].

QUADROTOR, GRAVITY, FLIP = jq.Body.from_principal(np.array([0.01, 0.01, 0.02])), 9.81, 30
HOVER = np.full(4, GRAVITY / 4.0)
MIXER = np.array([[0.15, 0.15, -0.15, -0.15], [-0.15, 0.15, 0.15, -0.15], [0.02, -0.02] * 2])


def rotors(t, state, params, thrusts):
    lift = jq.quaternion.rotate(state.q, jnp.zeros(3).at[2].set(jnp.sum(thrusts)))
    acceleration = lift - jnp.array([0.0, 0.0, GRAVITY])
    return MIXER @ thrusts, jnp.concatenate([state.aux[3:], acceleration])


@jax.jit
def flipped(time, most):
    """From hover to hover at the same place in ``time``; only the guess says to turn once."""
    turns = jnp.linspace(0.0, 2.0 * np.pi, FLIP + 1)[:, None] * jnp.array([[1.0, 0.0, 0.0]])
    rates = 2.0 * np.pi / time * jnp.tile(jnp.array([[1.0, 0.0, 0.0]]), (FLIP + 1, 1))
    start = STILL._replace(aux=np.zeros(6))
    states = jq.State(jq.quaternion.exp(turns), rates, jnp.zeros((31, 6)))
    hovers = lambda state, params: jnp.concatenate(
        [jq.quaternion.log(state.q), state.omega, state.aux]
    )
    return jq.planning.ilqr(
        jq.lie_euler,
        QUADROTOR,
        rotors,
        start,
        jq.grid(0.0, time / FLIP, FLIP),
        None,
        (jnp.tile(HOVER, (FLIP, 1)), states),
        lambda k, state, params, thrusts: thrusts - HOVER,
        constraints=Constraints(limits=(0.0, most), equalities=hovers),
        solver=jq.planning.Solver(iterations=300),
    )


@pytest.mark.slow
def test_a_quadrotor_flips_and_is_back_at_rest_where_it_was():
    """Rotors only push. After a full turn q is -1.

    In a plane a step of lie_euler turns by DT omega, so that these add up.
    """
    time, most = 1.0, 4.0
    plan = flipped(time, most)
    path, thrusts = plan.path.state, np.asarray(plan.commands)
    assert plan.converged
    assert thrusts.min() == 0.0
    assert thrusts.max() == most
    end = plan.path.final
    np.testing.assert_allclose(end.q, [-1.0, 0.0, 0.0, 0.0], rtol=0, atol=1e-7)
    np.testing.assert_allclose(end.omega, 0.0, rtol=0, atol=1e-7)
    np.testing.assert_allclose(end.aux, 0.0, rtol=0, atol=1e-7)
    turn = time / FLIP * np.sum(path.omega[:-1], axis=0)
    np.testing.assert_allclose(turn, [2.0 * np.pi, 0.0, 0.0], rtol=0, atol=1e-7)
    up = np.asarray(jax.vmap(jq.quaternion.rotate, (0, None))(path.q, np.array([0.0, 0.0, 1.0])))
    assert up[:, 2].min() < -0.9
    mean = np.mean(up[:-1] * thrusts.sum(axis=1, keepdims=True), axis=0)
    np.testing.assert_allclose(mean, [0.0, 0.0, GRAVITY], rtol=0, atol=1e-7)


def facts(status, *, met=False, nearly_met=False, stuck=False):
    return tuple(map(jnp.asarray, (status, met, nearly_met, stuck)))


@pytest.mark.parametrize(
    ("known", "status"),
    [
        (facts(CONVERGED), CONVERGED),  # the outer iteration goes on
        (facts(CONVERGED, met=True, nearly_met=True), CONVERGED),
        (facts(CONVERGED, met=True, nearly_met=True, stuck=True), CONVERGED),
        (facts(CONVERGED, nearly_met=True, stuck=True), ROUNDING),
        (facts(ROUNDING, nearly_met=True, stuck=True), ROUNDING),
        (facts(NO_DESCENT, nearly_met=True, stuck=True), NO_DESCENT),
        (facts(CONVERGED, stuck=True), INFEASIBLE),
        (facts(NO_DESCENT, stuck=True), INFEASIBLE),
        (facts(RUNNING), INFEASIBLE),  # all steps are made, and the constraints are not met
        (facts(RUNNING, nearly_met=True, stuck=True), RUNNING),
        (facts(NOT_FINITE), NOT_FINITE),
        (facts(NOT_FINITE, stuck=True), NOT_FINITE),
    ],
)
def test_the_verdict_of_a_constrained_plan(known, status):
    assert verdict(*known) == status


def test_constraints_and_guesses_of_states_say_what_was_wanted():
    def plan(guess=None, **constraints):
        guess = np.zeros((SAMPLES, 1)) if guess is None else guess
        return jq.planning.ilqr(
            jq.lie_euler, BODY, about_z, STILL, GRID, 1.0, guess, within,
            constraints=Constraints(**constraints),
        )  # fmt: skip

    rows = jax.tree.map(lambda x: np.tile(x, (SAMPLES, 1)), STILL)
    for arguments, error, text in (
        ({"equalities": lambda state: state.omega}, TypeError, "equalities: wanted equalities"),
        (
            {"equalities": lambda *_: jnp.arange(2)},
            TypeError,
            r"equalities\(...\): wanted a floating dtype",
        ),
        ({"inequalities": lambda *_: jnp.ones(())}, ValueError, r"inequalities\(...\): wanted sh"),
        ({"inequalities": 0.0}, TypeError, "inequalities: wanted a function"),
    ):
        with pytest.raises(error, match=rf"^constraints\.{text}"):
            plan(**arguments)
    with pytest.raises(ValueError, match=r"^commands\[1\]: wanted a jq.State .* leading axes 21"):
        plan((np.zeros((SAMPLES, 1)), rows))

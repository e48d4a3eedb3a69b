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

BODY = jq.Body.from_principal(np.array([2.0, 3.0, 4.0]))
MOMENT, SAMPLES, DT = 4.0, 20, 0.25  # kg m^2 about z, s
STILL = jq.State(np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3))
GRID = jq.grid(0.0, DT, SAMPLES)
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
        jq.lie_euler, body, about_z, start, GRID, jnp.zeros((SAMPLES, 1), dtype), effort, problem,
        equalities=missed, inequalities=fast, hessian="gauss-newton", **options,
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
    units[2:4], cost[4:6] = (1e30, 1e-30), (1e30, 1e-30)
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
def test_units_of_cost_and_constraints_change_neither_commands_nor_the_number_of_steps():
    for number in range(2, 7):
        plan = plan_of(number)
        np.testing.assert_allclose(plan.commands, plan_of(1).commands, rtol=0, atol=1e-10)
        assert plan.iterations == plan_of(1).iterations


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

"""Controllers that plan at each sample: against Riccati, known references and differences.

About one principal axis the problem is exactly linear and quadratic in the error state.
"""

import functools

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

import jaxquat as jq
from jaxquat.planning import Constraints, Residuals

BODY = jq.Body.from_principal(np.array([2.0, 3.0, 4.0]))
MOMENT, DT, HORIZON = 4.0, 0.25, 5  # kg m^2 about z, s, samples
A, B = np.array([[1.0, DT], [0.0, 1.0]]), np.array([[0.0], [DT / MOMENT]])  # a step of lie_euler
COST = np.diag([0.3, 0.2]) ** 2
END = solve_discrete_are(A, B, COST, np.eye(1))
ROOT = np.linalg.cholesky(END).T
TURNED = jq.State(jq.quaternion.exp(jnp.array([0.0, 0.0, 1.0])), jnp.array([0.0, 0.0, -0.1]))
GRID = jq.grid(0.0, DT, 40)


def about_z(t, state, params, command):
    return jnp.concatenate([jnp.zeros(2, command.dtype), command])


def errors(state, angle=0.0, rate=0.0):
    return jnp.stack([jq.quaternion.log(state.q)[2] - angle, state.omega[2] - rate])


def small(k, state, weight, command):
    return jnp.concatenate([weight * command, jnp.array([0.3, 0.2]) * errors(state)])


def infinite(k, state, weight):
    """The residuals whose half square is the cost of all later samples, with weight 1."""
    return jnp.sum(jnp.asarray(ROOT) * errors(state)[None], axis=1)


def loop(start, weight=1.0, limits=None, residuals=small, final=infinite, torque=about_z):
    guess = jnp.zeros((HORIZON, 1))
    controller = jq.planning.mpc(
        jq.lie_euler, BODY, about_z, DT, guess, Residuals(residuals, final),
        constraints=Constraints(limits),
    )  # fmt: skip
    return jq.rollout(
        jq.lie_euler,
        BODY,
        torque,
        start,
        GRID,
        weight,
        controller=controller,
        options=jq.RolloutOptions(engine="scan"),
    )


@pytest.mark.slow
def test_with_the_cost_of_all_later_samples_at_its_end_it_is_the_infinite_regulator():
    path = jax.jit(loop)(TURNED)
    gain = np.linalg.solve(np.eye(1) + B.T @ END @ B, B.T @ END @ A)
    state, commands = np.array([1.0, -0.1]), []
    for _ in range(40):
        commands.append(-gain @ state)
        state = A @ state + B @ commands[-1]
    np.testing.assert_allclose(path.command[:-1], commands, rtol=0, atol=1e-13)
    np.testing.assert_allclose(errors(path.final), state, rtol=0, atol=1e-13)
    assert path.memory[1] == 40


@pytest.mark.slow
def test_a_reference_that_moves_with_the_samples_is_followed_without_a_lag():
    """The commands 0.3 sin(k/5) make it, so all residuals can vanish, at the end and after it."""
    pushes, angle, rate = 0.3 * np.sin(0.2 * np.arange(60)), [0.0], [0.0]
    for push in pushes:
        angle, rate = [*angle, angle[-1] + DT * rate[-1]], [*rate, rate[-1] + DT / MOMENT * push]
    pushes, angle, rate = jnp.asarray(pushes), jnp.asarray(angle), jnp.asarray(rate)

    def following(k, state, params, command):
        return jnp.concatenate([command - pushes[k], 3.0 * errors(state, angle[k], rate[k])])

    def at_the_end(k, state, params):
        return 3.0 * errors(state, angle[k], rate[k])

    start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
    path = jax.jit(functools.partial(loop, residuals=following, final=at_the_end))(start)
    np.testing.assert_allclose(path.command[:-1, 0], pushes[:40], rtol=0, atol=1e-13)
    np.testing.assert_allclose(jq.quaternion.log(path.state.q)[:, 2], angle[:41], atol=1e-13)


@pytest.mark.slow
def test_the_closed_loop_differentiates_with_commands_at_their_limits():
    """By the weight of the commands and their limit, in both modes, against differences."""

    def cost(x):
        start = TURNED._replace(omega=TURNED.omega + 0.1 * x[2])
        push = lambda *call: about_z(*call) + jnp.array([0.0, 0.0, 0.02])
        path = loop(start, x[0], (-0.4 * x[1], 0.4 * x[1]), torque=push)
        return jnp.sum(path.state.omega**2) + jnp.sum(path.command**2), path.command

    x, h = jnp.array([0.1, 1.0, 0.5]), 1e-5
    points = x[None] + h * jnp.concatenate([jnp.zeros((1, 3)), jnp.eye(3), -jnp.eye(3)])
    values, commands = jax.jit(jax.vmap(cost))(points)
    assert np.sum(np.abs(np.asarray(commands[0, :-1])) == 0.4) == 5
    assert np.all(np.abs(np.asarray(commands[0])) <= 0.4)
    differences = (values[1:4] - values[4:]) / (2.0 * h)
    for mode in (jax.jacfwd, jax.jacrev):
        slope = jax.jit(mode(lambda x: cost(x)[0]))(x)
        np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-8)


# A spacecraft with wheels, about all axes.

SHIP = jq.Body.box(60.0, jnp.array([0.6, 0.8, 1.2]))
GOAL = jq.quaternion.exp(jnp.deg2rad(60.0) * jnp.array([2.0, 1.0, 2.0]) / 3.0)
LIMIT, MINUTE = 0.04, jq.grid(0.0, 1.0, 60)
REST = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3), aux=jnp.zeros(3))


def wheels(t, state, params, command):
    return jq.actuators.wheel_torque(jnp.eye(3), state, state.aux, command), command


def turn(state, goal):
    return jq.quaternion.log(jq.quaternion.relative(goal, state.q))


def effort(k, state, params, command):
    return jnp.concatenate([params["effort"] * command, 0.1 * turn(state, params["goal"])])


def missed(k, state, params):
    return 30.0 * jnp.concatenate([turn(state, params["goal"]), state.omega])


def slew(start, params, grid=MINUTE, iterations=1, horizon=10, **options):
    controller = jq.planning.mpc(
        jq.rkmk2, SHIP, wheels, 1.0, jnp.zeros((horizon, 3)), Residuals(effort, missed),
        constraints=Constraints((-LIMIT, LIMIT)), iterations=iterations,
    )  # fmt: skip
    return flat.rollout(
        jq.rkmk2, SHIP, wheels, start, grid, params, controller=controller, **options
    )


PARAMS = {"effort": jnp.asarray(1.0), "goal": GOAL}


@pytest.mark.slow
def test_after_a_kick_it_reaches_the_goal_that_the_plan_misses():
    """From rest, and from rates that nobody foresaw. The kernel and the scan agree."""
    rates = jnp.array([[0.0, 0.0, 0.0], [0.02, -0.01, 0.01], [-0.01, 0.02, 0.015]])
    starts = jax.vmap(lambda omega: REST._replace(omega=omega))(rates)
    fly = jax.jit(jax.vmap(lambda start: slew(start, PARAMS)))
    path = fly(starts)
    distance = jax.vmap(lambda q: jq.quaternion.distance(q, GOAL))
    assert np.all(np.rad2deg(distance(path.final.q)) < 0.1)
    assert np.abs(np.asarray(path.command)).max() == LIMIT
    momentum = jax.vmap(lambda s: jq.quaternion.rotate(s.q, SHIP.inertia @ s.omega + s.aux))
    np.testing.assert_allclose(momentum(path.final), momentum(starts), rtol=0, atol=2e-4)
    plan = jq.rollout(jq.rkmk2, SHIP, wheels, *[jax.tree.map(lambda x: x[1], starts)], MINUTE,
                      PARAMS, inputs=path.command[0, :-1])  # fmt: skip
    assert np.rad2deg(jq.quaternion.distance(plan.final.q, GOAL)) > 20.0
    alone = jax.jit(lambda start: slew(start, PARAMS, engine="scan"))(
        jax.tree.map(lambda x: x[1], starts)
    )
    np.testing.assert_allclose(path.command[1], alone.command, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_the_gradient_of_a_slew_is_that_of_the_iterations_made():
    """Two, which do not converge; by the weight of the effort and by the rate at the start."""
    start, grid = REST._replace(omega=jnp.array([0.02, -0.01, 0.01])), jq.grid(0.0, 1.0, 15)

    def cost(x):
        params = PARAMS | {"effort": 1.0 + x[0]}
        moved = start._replace(omega=start.omega + 0.01 * x[1:])
        path = slew(moved, params, grid, 2, horizon=5, engine="scan")
        off = jax.vmap(lambda s: turn(s, GOAL))(path.state)
        return jnp.sum(off**2) + jnp.sum(path.command**2)

    h, x = 1e-4, jnp.zeros(4)
    points = h * jnp.array([-2.0, -1.0, 1.0, 2.0])[:, None, None] * jnp.eye(4)[None]
    y = jax.jit(jax.vmap(jax.vmap(cost)))(points)
    differences = (y[0] - 8.0 * y[1] + 8.0 * y[2] - y[3]) / (12.0 * h)
    slope = jax.jit(jax.grad(cost))(x)
    np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-7)


def test_errors_say_what_was_wanted():
    def controller(**changes):
        arguments = {"dt": DT, "commands": jnp.zeros((3, 1)), "residuals": small} | changes
        return jq.planning.mpc(jq.lie_euler, BODY, about_z, **arguments)

    for changes, error, message in (
        (
            {"residuals": Residuals(small, lambda state, params: 0.0)},
            TypeError,
            r"residuals.final: wanted final\(k, state, params\)",
        ),
        (
            {"constraints": Constraints(equalities=lambda state, params: state.omega)},
            ValueError,
            "constraints.equalities: wanted None, because this controller holds only limits",
        ),
        ({"commands": jnp.zeros(3)}, ValueError, r"commands: wanted shape \(samples, m\), got"),
        ({"dt": 0.0}, ValueError, "dt: wanted positive"),
        (
            {"constraints": Constraints((1.0, -1.0))},
            ValueError,
            "constraints.limits: wanted least <= largest",
        ),
        ({"limits": None}, TypeError, r"limits is now constraints=jq.planning.Constraints\("),
        ({"iterations": 0}, ValueError, "iterations: wanted at least 1, got 0"),
    ):
        with pytest.raises(error, match=message):
            controller(**changes)
    single = jax.tree.map(lambda x: x.astype(jnp.float32), TURNED)
    with pytest.raises(TypeError, match="commands: wanted the dtype of the start, float32, got"):
        controller().init(single, None)
    options = {"controller": controller()}
    with pytest.raises(ValueError, match=r"controller: wanted a period of 0.5 s .* got 0.25"):
        flat.rollout(jq.lie_euler, BODY, about_z, TURNED, jq.grid(0.0, 0.5, 4), 1.0, **options)

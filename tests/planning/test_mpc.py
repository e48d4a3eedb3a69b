"""Controllers that plan at each sample: against Riccati, known references and differences.

About one principal axis the problem is exactly linear and quadratic in the error state.
"""

import functools
import math

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
    assert path.memory.k == 40
    assert path.memory.failures == 0


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


# Equalities and inequalities.

CUBE = jq.Body.from_principal(np.array([0.03, 0.04, 0.05]))  # kg m^2
AT_REST = jq.State(np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3))
PUSH, RATE, CONE = 2e-4, 0.06, float(np.deg2rad(20.0))  # N m, rad/s, rad
BORESIGHT = jnp.array([1.0, 0.0, 0.0])
SUN = jq.quaternion.rotate(jq.quaternion.exp(jnp.array([0.0, -0.08, 1.05])), BORESIGHT)
AIM = jq.quaternion.exp(jnp.array([0.0, 0.0, np.deg2rad(120.0)]))
LOOSE = 1e-5
"""What the iterations of a sample leave of violations, after the first two: here 7e-8 at most."""


def keep_out(k, state, params, command):
    boresight, sun = (x.astype(state.q.dtype) for x in (BORESIGHT, SUN))
    ahead = jnp.dot(jq.quaternion.rotate(state.q, boresight), sun)
    rates = [state.omega - RATE, -RATE - state.omega]
    return jnp.concatenate([*rates, jnp.stack([ahead - math.cos(CONE)])])


def to_aim(k, state, params, command):
    weighted = 0.3 * turn(state, AIM.astype(state.q.dtype)), state.omega, 1e2 * command
    return jnp.concatenate(weighted)


def at_aim(k, state, params):
    return jnp.concatenate([3.0 * turn(state, AIM.astype(state.q.dtype)), 10.0 * state.omega])


def reporting(controller):
    """The controller with all that it says of each sample in its command: whole plan, report."""

    def update(t, state, memory, params, value):
        command, memory = controller.update(t, state, memory, params, value)
        plan = jnp.concatenate([command[None], memory.commands[:-1]])
        return {"torque": command, "plan": plan, "memory": memory}, memory

    return controller._replace(update=update)


def pushed_at_random(t, state, seed, command):
    """The torque with one of each sample that is uniform between -PUSH and PUSH."""
    key = jax.random.fold_in(jax.random.key(seed), jnp.floor(t + 0.5).astype(int))
    push = jax.random.uniform(key, (3,), state.q.dtype, -PUSH, PUSH)
    return command["torque"] + push


@functools.cache
def minute(*, constrained, dtype="float64"):
    """Four slews of 60 s in which the straight way leads through the cone."""
    cube, start = jax.tree.map(lambda x: jnp.asarray(x, dtype), (CUBE, AT_REST))
    controller = jq.planning.mpc(
        jq.rkmk2, cube, motors, jnp.asarray(1.0, dtype), jnp.zeros((10, 3), dtype),
        Residuals(to_aim, at_aim),
        constraints=Constraints((-2e-3, 2e-3), None, keep_out if constrained else None),
        iterations=4, tolerance=LOOSE if constrained else None,
    )  # fmt: skip

    def fly(seed):
        grid = jq.grid(0.0, jnp.asarray(1.0, dtype), 60)
        return jq.rollout(
            jq.rkmk2, cube, pushed_at_random, start, grid, seed,
            controller=reporting(controller), options=jq.RolloutOptions(engine="scan"),
        )  # fmt: skip

    return jax.jit(jax.vmap(fly))(jnp.arange(4))


def motors(t, state, params, command):
    return command


def off_sun(q):
    ahead = jq.quaternion.rotate(q.astype(float), BORESIGHT)
    return jnp.arctan2(jnp.linalg.norm(jnp.cross(ahead, SUN)), ahead @ SUN)


def excess(path):
    """By how much the rates of axes exceed RATE, and how far the boresight is in the cone, rad."""
    rates = np.abs(np.asarray(path.state.omega)) - RATE
    return rates, CONE - np.asarray(jax.vmap(jax.vmap(off_sun))(path.state.q))


@pytest.mark.slow
def test_a_rate_limit_and_a_cone_hold_up_to_what_noise_does_within_a_sample():
    """A torque d changes the rate within a sample by dt d/I, and the attitude by dt^2 d/(2 I).

    From a state that it knows, a plan that holds is within the limits one sample later. So noise
    alone violates them: by PUSH/I for each axis [rad/s], and by at most the norm of PUSH/(2 I)
    [rad], since a turn moves the boresight by at most its angle. The gyroscopic torque, of slope
    ``|I_j - I_k|/I_i (|omega_j| + |omega_k|) < 0.07``, makes of it at most 4 % more. What the rate
    then does to the attitude in the next sample, the next plan knows. It can undo it: for this it
    needs about 3 d, and has ten.
    """
    rates, inside = excess(minute(constrained=False))
    assert np.all(np.max(rates, axis=(1, 2)) > 0.1)
    assert np.all(np.max(inside, axis=1) > np.deg2rad(10.0))
    path = minute(constrained=True)
    rates, inside = excess(path)
    by_noise = PUSH / np.asarray(jnp.diagonal(CUBE.inertia))
    assert np.all(rates <= 1.04 * by_noise + LOOSE)
    assert np.all(inside <= 1.04 * 0.5 * np.linalg.norm(by_noise) + LOOSE)
    assert np.max(rates) > 0.5 * np.max(by_noise)  # the noise is felt
    off = jax.vmap(lambda q: jq.quaternion.distance(q, AIM))(path.final.q)
    assert np.all(np.rad2deg(off) < 4.0)


@pytest.mark.slow
def test_at_each_sample_the_memory_says_whether_the_plan_holds():
    """Every plan is flown from its state, without noise, and its constraints are evaluated."""
    path = minute(constrained=True)
    said, plans = path.command["memory"], path.command["plan"]

    def violation(state, plan):
        flown = jq.rollout(jq.rkmk2, CUBE, motors, state, jq.grid(0.0, 1.0, 10), inputs=plan)
        before = jax.tree.map(lambda x: x[:-1], flown.state)
        return jnp.max(jax.vmap(lambda s: keep_out(0, s, None, None))(before), initial=0.0)

    rows = jax.tree.map(lambda x: x[:, :-1], (path.state, plans, said))
    state, plans, said = rows
    off = np.asarray(jax.jit(jax.vmap(jax.vmap(violation)))(state, plans))
    np.testing.assert_allclose(said.violation, off, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(said.holds, off <= LOOSE)
    np.testing.assert_array_equal(path.memory.failures, np.sum(off > LOOSE, axis=1))
    now = np.asarray(jax.vmap(jax.vmap(lambda s: keep_out(0, s, None, None)))(state))
    # Once the plan has converged, nothing but the state of now violates them by more: noise has
    # moved it.
    assert np.all((off <= np.maximum(np.max(now, axis=2), 0.0) + LOOSE)[:, 2:])
    assert 0.1 < np.mean(said.holds) < 0.9


@pytest.mark.slow
def test_in_single_precision_the_same_constraints_hold():
    rates, inside = excess(minute(constrained=True, dtype="float32"))
    by_noise = PUSH / np.asarray(jnp.diagonal(CUBE.inertia))
    assert np.all(rates <= 1.04 * by_noise + 1e-4)
    assert np.all(inside <= 1.04 * 0.5 * np.linalg.norm(by_noise) + 1e-3)


def at_mark(k, state, marks):
    return errors(state, marks[k], 0.0)


def marked(limit, inequalities=None):
    return jq.planning.mpc(
        jq.lie_euler, BODY, about_z, DT, jnp.zeros((HORIZON, 1)),
        lambda k, state, marks, command: command,
        constraints=Constraints(limit, at_mark, inequalities), tolerance=1e-6,
    )  # fmt: skip


def test_an_equality_at_the_end_of_the_horizon_moves_with_the_samples():
    """The commands are the least ones that lead to rest at the mark of the horizon's end."""
    marks = jnp.asarray(0.1 * np.random.default_rng(0).normal(size=20))
    controller = marked(None)

    @jax.jit
    def fly(start):
        options = jq.RolloutOptions(engine="scan")
        return jq.rollout(
            jq.lie_euler, BODY, about_z, start, jq.grid(0.0, DT, 8), marks,
            controller=controller, options=options,
        )  # fmt: skip

    path, state = fly(TURNED), np.array([1.0, -0.1])
    powers = [np.linalg.matrix_power(A, HORIZON - 1 - j) @ B for j in range(HORIZON)]
    reach = np.concatenate(powers, axis=1)
    for k in range(8):
        off = np.array([marks[k + HORIZON], 0.0]) - np.linalg.matrix_power(A, HORIZON) @ state
        commands = np.linalg.lstsq(reach, off)[0]
        np.testing.assert_allclose(path.command[k], commands[:1], rtol=1e-6, atol=1e-6)
        state = A @ state + B @ commands[:1]
    assert path.memory.failures == 0
    assert path.memory.violation < 1e-6


@pytest.mark.slow
def test_equalities_that_cannot_be_met_are_said_so_and_met_when_they_can():
    """With limits the goal is out of reach at first; the body comes nearer, until it is not."""
    marks = jnp.zeros(60)
    controller = reporting(marked((-1.0, 1.0)))
    torque = lambda t, state, params, command: about_z(t, state, params, command["torque"])
    options = jq.RolloutOptions(engine="scan")
    path = jax.jit(
        lambda: jq.rollout(
            jq.lie_euler, BODY, torque, TURNED, GRID, marks, controller=controller, options=options
        )
    )()
    holds = np.asarray(path.command["memory"].holds)
    first = int(np.argmax(holds))
    assert 2 < first < 35
    assert np.all(holds[first:])
    assert path.memory.failures == first
    assert np.abs(np.asarray(path.command["torque"])).max() == 1.0
    np.testing.assert_allclose(errors(path.final), 0.0, atol=2e-3)


@pytest.mark.slow
def test_the_constrained_closed_loop_differentiates_with_inequalities_active():
    """By the mark, the start and the limit of the rate, in both modes, against differences."""

    def cost(x):
        def slow(k, state, marks, command):
            return jnp.stack([-state.omega[2] - 0.25 * x[0]])

        start = TURNED._replace(omega=TURNED.omega.at[2].add(0.1 * x[1]))
        controller = marked((-4.0, 4.0), slow)
        marks, options = 0.75 * x[2] * jnp.ones(60), jq.RolloutOptions(engine="scan")
        path = jq.rollout(
            jq.lie_euler, BODY, about_z, start, jq.grid(0.0, DT, 10), marks,
            controller=controller, options=options,
        )  # fmt: skip
        return jnp.sum(path.state.omega**2) + jnp.sum(path.command**2), path

    x, h = jnp.array([1.0, 0.5, 1.0]), 1e-4  # values are rounded to 1e-8
    points = x[None] + h * jnp.concatenate([jnp.zeros((1, 3)), jnp.eye(3), -jnp.eye(3)])
    values, paths = jax.jit(jax.vmap(cost))(points)
    assert np.all(paths.memory.failures == 0)
    differences = (values[1:4] - values[4:]) / (2.0 * h)
    assert np.abs(differences[0]) > 1e-2  # the limit of the rate is active
    for mode in (jax.jacfwd, jax.jacrev):
        slope = jax.jit(mode(lambda x: cost(x)[0]))(x)
        np.testing.assert_allclose(slope, differences, rtol=1e-4, atol=1e-5)


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
            TypeError,
            r"constraints.equalities: wanted equalities\(k, state, params\)",
        ),
        (
            {"constraints": Constraints(inequalities=keep_out)},
            ValueError,
            "tolerance: wanted a violation that counts as none, got None",
        ),
        ({"tolerance": 0.1}, ValueError, "tolerance: wanted None without constraints, got 0.1"),
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

"""Attitude laws and limits: Hoffmann's torques by hand, the shortest way, saturation."""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from scipy.spatial.transform import Rotation

import jaxquat as jq
from jaxquat import control, euler, quaternion

RNG = np.random.default_rng(4)
N = 60
Q, C = RNG.normal(size=(2, N, 4))
Q /= np.linalg.norm(Q, axis=-1, keepdims=True)
C /= np.linalg.norm(C, axis=-1, keepdims=True)
OMEGA = RNG.normal(size=(N, 3))
STATES = jq.State(jnp.asarray(Q), jnp.asarray(OMEGA))
GAINS = control.Gains(jnp.array([3.0, 4, 6]), jnp.array([6.0, 10, 12]))


def law(function, targets):
    return np.asarray(
        jax.jit(jax.vmap(lambda state, target: function(state, GAINS, target)))(
            STATES, jnp.asarray(targets)
        )
    )


def his(q):
    """Ours to Hoffmann's components q1, q2, q3, q4."""
    return -q[:, 1], -q[:, 2], -q[:, 3], q[:, 0]


def test_quaternion_law_is_hoffmanns_code():
    """His controller of 9.10, line by line, at any attitude and any target: T1 = - d w + 2 k V(Q) dQ."""
    q, c = np.array(his(Q)), np.array(his(C))
    there, back = c - q, -c - q
    shorter = np.linalg.norm(back, axis=0) < np.linalg.norm(there, axis=0)
    q1, q2, q3, q4 = q
    d1, d2, d3, d4 = np.where(shorter, back, there)
    turns = [
        -q4 * d1 + q3 * d2 - q2 * d3 + q1 * d4,
        -q3 * d1 - q4 * d2 + q1 * d3 + q2 * d4,
        q2 * d1 - q1 * d2 - q4 * d3 + q3 * d4,
    ]
    wanted = -np.array([3.0, 4, 6]) * OMEGA + 2 * np.array([6.0, 10, 12]) * np.stack(turns, axis=-1)
    np.testing.assert_allclose(law(control.quaternion_law, C), wanted, rtol=0, atol=1e-13)


def test_quaternion_law_pulls_along_the_body_axis_of_the_error():
    """With equal gains: 2 k sin(angle/2) about the axis of q* c, seen from the body, not of c q*, seen from the world."""
    gains = control.Gains(jnp.zeros(3), jnp.ones(3))
    error = (
        Rotation.from_quat(np.roll(Q, -1, axis=-1)).inv()
        * Rotation.from_quat(np.roll(C, -1, axis=-1))
    ).as_rotvec()
    angle = np.linalg.norm(error, axis=-1, keepdims=True)
    got = jax.jit(jax.vmap(lambda state, target: control.quaternion_law(state, gains, target)))(
        STATES, jnp.asarray(C)
    )
    np.testing.assert_allclose(got, 2 * np.sin(angle / 2) * error / angle, rtol=0, atol=1e-14)


def test_quaternion_law_at_the_target_only_damps_and_knows_no_sign():
    np.testing.assert_allclose(
        law(control.quaternion_law, Q), -np.array([3.0, 4, 6]) * OMEGA, rtol=0, atol=1e-14
    )
    np.testing.assert_array_equal(law(control.quaternion_law, -C), law(control.quaternion_law, C))


def test_quaternion_law_is_the_rotation_vector_for_small_errors():
    u = 1e-4 * RNG.normal(size=(N, 3))
    target = quaternion.multiply(Q, quaternion.exp(u))
    got = law(control.quaternion_law, target) + np.array([3.0, 4, 6]) * OMEGA
    np.testing.assert_allclose(
        got, np.array([6.0, 10, 12]) * u, rtol=0, atol=12 * 4e-4**3 / 24
    )  # k |u|^3/24


def test_shortest_way():
    got = np.asarray(control.shortest(Q, C))
    assert (np.sum(Q * got, axis=-1) >= 0).all()
    np.testing.assert_array_equal(np.abs(got), np.abs(C))
    np.testing.assert_array_equal(control.shortest(Q, -C), got)
    half = np.array([0.0, 1, 0, 0])
    np.testing.assert_array_equal(
        control.shortest(np.array([1.0, 0, 0, 0]), -half), -half
    )  # neither is nearer: as given


def test_euler_law_is_hoffmanns_code():
    """T = - d w - k (sin a cos c - cos a sin c), roll on x, pitch on y, yaw on z; the angles from his Cayley matrix (7.21)."""
    angles = np.stack(
        [RNG.uniform(-3, 3, N), RNG.uniform(-1.4, 1.4, N), RNG.uniform(-3, 3, N)], axis=-1
    )  # roll, pitch, yaw
    targets = RNG.uniform(-1, 1, size=(N, 3))
    q = np.asarray(euler.to_quaternion(angles[:, ::-1], "ZYX"))
    cayley = np.asarray(quaternion.hoffmann_cayley(np.stack(his(q), axis=-1)))
    c11, c12, c13, c23, c33 = (
        cayley[:, i - 1, j - 1] for i, j in ((1, 1), (1, 2), (1, 3), (2, 3), (3, 3))
    )
    got_angles = np.stack(
        [np.arctan2(c23, c33), np.arctan2(-c13, np.hypot(c11, c12)), np.arctan2(c12, c11)], axis=-1
    )
    np.testing.assert_allclose(got_angles, angles, rtol=0, atol=1e-14)
    sines = np.sin(angles) * np.cos(targets) - np.cos(angles) * np.sin(targets)
    wanted = -np.array([3.0, 4, 6]) * OMEGA - np.array([6.0, 10, 12]) * sines
    one = jax.jit(jax.vmap(lambda state, target: control.euler_law(state, GAINS, target)))
    got = one(jq.State(jnp.asarray(q), STATES.omega), jnp.asarray(targets))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-13)


def test_both_laws_agree_near_the_target():
    """To first order both are k times the rotation vector where the axes of the angles are those of the body."""
    target, q = jnp.zeros(3), quaternion.exp(jnp.array([1e-5, -2e-5, 3e-5]))
    state = jq.State(q, jnp.zeros(3))
    by_angles = control.euler_law(state, GAINS, target)
    by_quaternion = control.quaternion_law(state, GAINS, jnp.array([1.0, 0, 0, 0]))
    np.testing.assert_allclose(by_angles, by_quaternion, rtol=0, atol=12 * 1e-9)


def test_gains_are_a_pytree_and_the_laws_differentiable_in_them():
    """The torque is linear in the gains: d/d damping = - omega, d/d stiffness = 2 vec(q* c)."""
    state, target = jax.tree.map(lambda x: x[0], STATES), jnp.asarray(C[0])
    jacobian = jax.jit(jax.jacobian(lambda gains: control.quaternion_law(state, gains, target)))(
        GAINS
    )
    np.testing.assert_allclose(jacobian.damping, -np.diag(OMEGA[0]), rtol=1e-15)
    error = quaternion.multiply(quaternion.conjugate(Q[0]), control.shortest(Q[0], C[0]))[1:]
    np.testing.assert_allclose(jacobian.stiffness, 2 * np.diag(error), rtol=0, atol=1e-15)


@pytest.mark.parametrize("function", [control.quaternion_law, control.euler_law])
def test_float32_stays_float32(function):
    state, gains = jax.tree.map(
        lambda x: jnp.asarray(x, jnp.float32), (jq.State(Q[0], OMEGA[0]), GAINS)
    )
    target = jnp.asarray(C[0] if function is control.quaternion_law else OMEGA[0], jnp.float32)
    assert jax.eval_shape(function, state, gains, target).dtype == jnp.float32


# Tracking

BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))


def attitude(t):
    return problems.manufactured(t)[0]


def test_follow_is_the_motion():
    """Rate and acceleration of a motion known in closed form, from its attitude alone."""
    for t in (0.0, 0.7, 2.3):
        q, omega, alpha = problems.manufactured(jnp.asarray(t))
        for got, wanted in zip(
            jax.jit(lambda t: control.follow(attitude, t))(t), (q, omega, alpha), strict=True
        ):
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("tracking", [control.tracking_law, control.geometric_law])
def test_without_error_the_torque_is_that_of_the_motion(tracking):
    """I omega' + omega × I omega, from either sign of the reference."""
    for t in (0.0, 0.7, 2.3):
        q, omega, alpha = problems.manufactured(jnp.asarray(t))
        inertia = np.asarray(BODY.inertia)
        wanted = inertia @ alpha + np.cross(omega, inertia @ omega)
        for sign in (1, -1):
            got = tracking(
                BODY, jq.State(q, omega), GAINS, control.Reference(sign * q, omega, alpha)
            )
            np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-14)


def numpy_geometric(state, gains, reference):
    """Lee, Leok and McClamroch in matrices."""
    turn, wanted = (np.asarray(quaternion.to_matrix(x)) for x in (state.q, reference.q))
    error = wanted.T @ turn - turn.T @ wanted
    error = 0.5 * np.array([error[2, 1], error[0, 2], error[1, 0]])
    omega, inertia = np.asarray(state.omega), np.asarray(BODY.inertia)
    rate, acceleration = turn.T @ wanted @ reference.omega, turn.T @ wanted @ reference.alpha
    forward = np.cross(omega, inertia @ omega) - inertia @ (np.cross(omega, rate) - acceleration)
    return -gains.stiffness * error - gains.damping * (omega - rate) + forward


def test_laws_against_matrices_and_each_other():
    """The geometric law is that of the paper; the quaternion one differs by cos(angle/2) in the pull only."""
    for k in range(6):
        state = jax.tree.map(lambda x, k=k: x[k], STATES)
        reference = control.Reference(
            jnp.asarray(C[k]), jnp.asarray(OMEGA[-k]), jnp.asarray(OMEGA[k + 7])
        )
        geometric = control.geometric_law(BODY, state, GAINS, reference)
        np.testing.assert_allclose(
            geometric, numpy_geometric(state, GAINS, reference), rtol=0, atol=2e-13
        )
        pull = np.asarray(control.tracking_law(BODY, state, GAINS, reference) - geometric)
        half = quaternion.multiply(
            quaternion.conjugate(state.q), control.shortest(state.q, reference.q)
        )
        np.testing.assert_allclose(
            pull, 2 * GAINS.stiffness * (1 - half[0]) * half[1:], rtol=0, atol=2e-13
        )


def test_geometric_law_is_smooth_through_the_half_turn():
    """The pull is k sin(angle): zero there, with slope -k; the quaternion law jumps by 4 k."""

    def pull(law, angle):
        state = jq.State(quaternion.exp(angle * jnp.array([0.0, 0, 1])), jnp.zeros(3))
        return law(BODY, state, GAINS, control.at_rest(jnp.array([1.0, 0, 0, 0])))[2]

    for law, jump in (
        (control.geometric_law, 2 * 12 * 1e-3),
        (control.tracking_law, 4 * 12 * np.cos(5e-4)),
    ):
        np.testing.assert_allclose(
            pull(law, np.pi + 1e-3) - pull(law, np.pi - 1e-3), jump, rtol=1e-6
        )
    np.testing.assert_allclose(
        jax.grad(lambda a: pull(control.geometric_law, a))(np.pi), 12.0, rtol=1e-14
    )


def test_tracking_converges_where_a_fixed_target_lags():
    """About one axis the error obeys e'' = -d e' - 2 k sin(e/2): with d = 4, k = 4 it decays as (1 + 2t) exp(-2t) e0."""
    axis = jnp.array([0.0, 0.0, 1.0])
    gains = control.Gains(4.0 * jnp.ones(3), 4.0 * jnp.ones(3))
    body, grid = jq.Body(jnp.eye(3)), jq.grid(0.0, 0.02, 150)

    def moving(t):
        return quaternion.exp((0.5 * t + 0.3 * jnp.sin(t)) * axis)

    def error(law):
        start = jq.State(quaternion.exp(0.02 * axis), 0.8 * axis)
        path = jq.rollout(jq.rkmk4, body, law, start, grid, gains)
        return jax.vmap(lambda t, q: quaternion.log(quaternion.relative(moving(t), q))[2])(
            path.t, path.state.q
        )

    follows = jax.jit(
        lambda: error(lambda t, s, p: control.tracking_law(body, s, p, control.follow(moving, t)))
    )()
    t = np.asarray(grid.times())
    np.testing.assert_allclose(follows, 0.02 * (1 + 2 * t) * np.exp(-2 * t), rtol=0, atol=2e-7)
    lags = jax.jit(lambda: error(lambda t, s, p: control.quaternion_law(s, p, moving(t))))()
    assert np.abs(lags[-50:]).min() > 0.1


# The controller with memory

PERIOD = 0.1
REST = control.at_rest(jnp.array([1.0, 0.0, 0.0, 0.0]))
PID = control.PIDGains(
    jnp.array([2.0, 2.5, 3.0]), jnp.array([2.0, 2.5, 3.0]), jnp.array([1.0, 1.2, 1.5])
)
DISTURBANCE = jnp.array([0.05, -0.1, 0.08])


def noisy(state, noise):
    return state if noise is None else state._replace(omega=state.omega + noise)


def regulated(
    gains,
    steps,
    limits=None,
    inputs=None,
    disturbance=DISTURBANCE,
    start=None,
    unwind=None,
    period=PERIOD,
):
    controller = control.pid(
        BODY, period, lambda t, p, v: REST, measure=noisy, limits=limits, unwind=unwind
    )

    def torque(t, state, params, held):
        return held + disturbance

    start = start or jq.State(quaternion.exp(jnp.array([0.3, -0.2, 0.1])), jnp.zeros(3))
    grid = jq.grid(0.0, PERIOD / 4, steps)
    return jq.rollout(
        jq.zhao,
        BODY,
        torque,
        start,
        grid,
        gains,
        controller=controller,
        inputs=inputs,
        sample_every=4,
        save_every=4,
    )


def test_pid_removes_a_constant_disturbance():
    """The memory ends at minus the disturbance and the attitude at the reference; without integral gain d/k is left."""
    path = jax.jit(lambda g: regulated(g, 2400))(PID)
    np.testing.assert_allclose(path.memory, -DISTURBANCE, rtol=0, atol=1e-6)
    np.testing.assert_allclose(path.command[-1], -DISTURBANCE, rtol=0, atol=1e-6)
    assert quaternion.distance(path.state.q[-1], REST.q) < 1e-6
    left = jax.jit(lambda g: regulated(g, 2400))(PID._replace(integral=jnp.zeros(3))).state.q[-1]
    np.testing.assert_allclose(2 * left[1:], DISTURBANCE / PID.stiffness, rtol=1e-6)


def test_pid_is_a_loop_over_samples():
    """The command and the memory sample by sample, with noise as input and limits that cut."""
    noise, limits = 0.05 * jax.random.normal(jax.random.key(1), (20, 3)), jnp.array([0.2, 0.3, 0.1])
    path = jax.jit(lambda: regulated(PID, 80, limits, noise))()
    memory = np.zeros(3)
    inertia = np.asarray(BODY.inertia)
    for k in range(20):
        q, omega = np.asarray(path.state.q[k]), np.asarray(path.state.omega[k] + noise[k])
        error = -2 * np.sign(q[0]) * q[1:]
        uncut = (
            PID.stiffness * error - PID.damping * omega + np.cross(omega, inertia @ omega) + memory
        )
        cut = np.clip(uncut, -limits, limits)
        np.testing.assert_allclose(path.command[k], cut, rtol=0, atol=1e-13)
        memory = memory + PERIOD * (PID.integral * error + (cut - uncut) / 1.0)
    np.testing.assert_allclose(path.memory, memory, rtol=0, atol=1e-13)
    assert (np.abs(path.command) == np.asarray(limits)).any()


def test_pid_with_gains_and_reference_that_stay():
    """As from functions; lists as arrays, one limit for all axes, and no word of unwind where the period is longer than 1 s."""
    state, memory = jax.tree.map(lambda x: x[0], STATES), jnp.array([0.1, 0.2, 0.3])
    lists = control.PIDGains(*(x.tolist() for x in PID))
    constant = control.pid(BODY, 2.0, REST, gains=lists, limits=1.5)
    called = control.pid(BODY, 2.0, lambda t, p, i: REST, limits=jnp.full(3, 1.5), unwind=2.0)
    for got, wanted in zip(
        constant.update(0.0, state, memory, None, None),
        called.update(0.0, state, memory, PID, None),
        strict=True,
    ):
        np.testing.assert_array_equal(got, wanted)


def test_the_period_of_a_controller_is_compared_where_it_is_known():
    """In float32 too, where both are rounded; traced ones are not; a controller need not have one, and can be hashed."""
    controller = control.pid(BODY, PERIOD, REST, gains=PID)
    assert controller.period == PERIOD
    assert hash(controller) == hash(controller._replace())

    def fly(dt, period, dtype=jnp.float64):
        body, start, law = jax.tree.map(
            lambda x: jnp.asarray(x, dtype), (BODY, jq.State(REST.q, jnp.zeros(3)), PID)
        )
        controller = control.pid(body, period, jax.tree.map(lambda x: x.astype(dtype), REST))
        return jq.rollout(
            jq.lie_euler,
            body,
            jq.torques.held,
            start,
            jq.grid(0.0, dt, 3),
            law,
            controller=controller,
            sample_every=3,
        ).command

    jax.eval_shape(lambda: fly(jnp.float32(0.1) / 3, jnp.float32(0.1), jnp.float32))
    jax.eval_shape(fly, 0.1, 0.2)
    jax.eval_shape(lambda dt: fly(dt, 0.1), 0.2)
    with pytest.raises(
        ValueError, match=r"controller: wanted a period of 0.3 s \(sample_every \* dt\), got 0.1"
    ):
        jax.eval_shape(lambda: fly(0.1, 0.1))


def test_anti_windup_bounds_the_memory():
    """An actuator too weak for the disturbance: the memory settles where k_i e unwind balances the cut, it does not grow."""
    limits = jnp.full(3, 0.05)
    held = jq.State(quaternion.exp(jnp.array([0.5, 0.0, 0.0])), jnp.zeros(3))

    def grown(samples, unwind):
        controller = control.pid(BODY, PERIOD, lambda t, p, v: REST, limits=limits, unwind=unwind)
        memory = controller.init(held, PID)
        for k in range(samples):
            _, memory = controller.update(jnp.asarray(k * PERIOD), held, memory, PID, None)
        return float(memory[0])

    pull = -2 * np.sin(0.25)  # the error that a body held fast keeps
    settled = (
        PID.integral[0] * pull * 1.0 - 0.05 - PID.stiffness[0] * pull
    )  # where the memory's rate is zero
    assert grown(200, 1.0) == pytest.approx(float(settled), rel=1e-8)
    assert grown(200, 1e9) == pytest.approx(float(PID.integral[0] * pull * 20.0), rel=1e-6)


def test_pid_differentiates_and_vmaps():
    def cost(gains):
        path = regulated(gains, 60, jnp.array([0.2, 0.3, 0.1]))
        return jnp.mean(jnp.sum(path.state.q[:, 1:] ** 2, axis=-1)) + 1e-2 * jnp.mean(
            path.command**2
        )

    direction = jax.tree.map(lambda x: jnp.cos(jnp.arange(3.0) + x), PID)
    value, slope = jax.jit(lambda g: jax.jvp(cost, (g,), (direction,)))(PID)
    h = np.array([-2e-4, -1e-4, 0.0, 1e-4, 2e-4])
    batch = jax.tree.map(lambda x, d: x[None] + h[:, None] * d[None], PID, direction)
    low2, low, middle, high, high2 = jax.jit(jax.vmap(cost))(batch)
    np.testing.assert_allclose(middle, value, rtol=1e-13)
    np.testing.assert_allclose(slope, (low2 - 8 * low + 8 * high - high2) / 12e-4, rtol=1e-7)


# The linear regulator


def direct(t, state, command):
    return command


def plant(dt=0.05):
    state = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3))
    return jq.dynamics.linearize(jq.zhao, BODY, direct, 0.0, state, dt, jnp.zeros(3))


def test_lqr():
    """The Riccati equation holds, the loop is stable, and a small error costs delta' P delta along the whole rollout."""
    a, b = jax.jit(plant)()
    q, r = jnp.diag(jnp.array([4.0, 4, 4, 1, 1, 1])), 0.5 * jnp.eye(3)
    gain = np.asarray(control.lqr(a, b, q, r))
    closed = np.asarray(a) - np.asarray(b) @ gain
    assert np.abs(np.linalg.eigvals(closed)).max() < 0.99
    cost, power = np.zeros((6, 6)), np.eye(6)
    for _ in range(2000):
        cost, power = (
            cost + power.T @ (np.asarray(q) + gain.T @ np.asarray(r) @ gain) @ power,
            closed @ power,
        )
    better = np.linalg.solve(np.asarray(r) + b.T @ cost @ b, b.T @ cost @ a)
    np.testing.assert_allclose(
        gain, better, rtol=0, atol=1e-9
    )  # the gain that its own cost asks for
    rest = jq.State(REST.q, jnp.zeros(3))
    delta = 1e-4 * jnp.arange(1.0, 7.0)

    def update(t, state, memory, params, value):
        return control.lqr_law(state, params, rest), memory

    @jax.jit
    def run(gain):
        start = jq.dynamics.retract(rest, delta)
        controller = jq.Controller(lambda start, params: (), update)
        grid = jq.grid(0.0, 0.05, 400)
        path = jq.rollout(
            jq.zhao, BODY, lambda t, s, p, held: held, start, grid, gain, controller=controller
        )
        errors = jax.vmap(lambda s: jq.dynamics.local(rest, s))(path.state)
        return jnp.sum(errors[:-1] ** 2 * jnp.diag(q)[None]) + 0.5 * jnp.sum(path.command[:-1] ** 2)

    np.testing.assert_allclose(run(jnp.asarray(gain)), delta @ cost @ delta, rtol=1e-5)


# Every law through sampled, vmapped, differentiated rollouts


def moving_reference(t):
    return quaternion.exp(jnp.stack([0.4 * jnp.sin(t), 0.3 * t, 0.2 * jnp.cos(2.0 * t)]))


LQR_START = 4.0 * jnp.concatenate([jnp.eye(3), jnp.eye(3)], axis=1)
LAWS = {
    "quaternion": (lambda t, s, g: control.quaternion_law(s, g, REST.q), GAINS),
    "euler": (lambda t, s, g: control.euler_law(s, g, jnp.array([0.1, -0.2, 0.3])), GAINS),
    "tracking": (
        lambda t, s, g: control.tracking_law(BODY, s, g, control.follow(moving_reference, t)),
        GAINS,
    ),
    "geometric": (
        lambda t, s, g: control.geometric_law(BODY, s, g, control.follow(moving_reference, t)),
        GAINS,
    ),
    "lqr": (lambda t, s, g: control.lqr_law(s, g, jq.State(REST.q, jnp.zeros(3))), LQR_START),
}


@pytest.mark.parametrize("name", [*LAWS, "pid"])
def test_every_law_differentiates_while_sampled_and_vmapped(name):
    """Forward and reverse slopes along one direction of the gains, one for each of three bodies, against central differences.

    Sampled every 4 of 40 steps, saved every 8; a loss of the states, the held commands and the last one.
    """
    if name == "pid":
        controller, gains = (
            control.pid(BODY, PERIOD, lambda t, p, v: REST, limits=jnp.full(3, 2.0)),
            PID,
        )
    else:
        law, gains = LAWS[name]
        controller = jq.Controller(
            lambda start, params: (), lambda t, state, memory, g, value: (law(t, state, g), memory)
        )

    def loss(gains, start):
        path = jq.rollout(
            jq.zhao, BODY, lambda t, s, p, held: held, start, jq.grid(0.0, PERIOD / 4, 40), gains,
            controller=controller, sample_every=4, save_every=8,
        )  # fmt: skip
        return (
            jnp.sum(path.state.q[-1] * jnp.arange(4.0))
            + jnp.mean(path.state.omega**2)
            + 1e-2 * jnp.mean(path.command**2)
        )

    starts = jax.tree.map(lambda x: x[:3], STATES)
    direction = jax.tree.map(
        lambda x: jnp.cos(1.0 + jnp.arange(float(x.size))).reshape(x.shape), gains
    )
    h = np.array([-2e-3, -1e-3, 1e-3, 2e-3])

    @jax.jit
    def run(gains):
        forward = jax.vmap(
            lambda start: jax.jvp(lambda g: loss(g, start), (gains,), (direction,))[1]
        )(starts)
        reverse = jax.vmap(lambda start: jax.grad(loss)(gains, start))(starts)
        moved = jax.vmap(lambda step: jax.tree.map(lambda x, d: x + step * d, gains, direction))(
            jnp.asarray(h)
        )
        return forward, reverse, jax.vmap(jax.vmap(loss, (None, 0)), (0, None))(moved, starts)

    forward, reverse, (low2, low, high, high2) = run(gains)
    pairs = zip(jax.tree.leaves(reverse), jax.tree.leaves(direction), strict=True)
    along = sum(jnp.sum((slope * d[None]).reshape(3, -1), axis=1) for slope, d in pairs)
    np.testing.assert_allclose(along, forward, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        forward, (low2 - 8 * low + 8 * high - high2) / 12e-3, rtol=0, atol=2e-10
    )
    assert (np.abs(forward) > 1e-4).all()


def test_control_bad_input():
    a, b, eye = jnp.eye(6), jnp.ones((6, 3)), jnp.eye(6)
    state = jax.tree.map(lambda x: x[0], STATES)
    for call, kind, message in (
        (
            lambda: control.lqr(a[:5], b, eye, jnp.eye(3)),
            ValueError,
            "a: wanted a square matrix, got shape",
        ),
        (
            lambda: control.lqr(a, b[:5], eye, jnp.eye(3)),
            ValueError,
            r"b: wanted shape \(6, m\), got \(5, 3\)",
        ),
        (
            lambda: control.lqr(a, b, jnp.eye(3), jnp.eye(3)),
            ValueError,
            r"state_cost: wanted shape \(6, 6\)",
        ),
        (lambda: control.lqr(a, b, eye, eye), ValueError, r"command_cost: wanted shape \(3, 3\)"),
        (
            lambda: control.lqr(2 * a, jnp.zeros((6, 3)), eye, jnp.eye(3)),
            ValueError,
            "a, b: wanted a system that",
        ),
        (
            lambda: jax.jit(lambda a: control.lqr(a, b, eye, jnp.eye(3)))(a),
            TypeError,
            "a: wanted concrete arrays",
        ),
        (
            lambda: control.lqr_law(state, jnp.ones((3, 5)), state),
            ValueError,
            r"gain: wanted shape \(m, 6\), got \(3, 5\)",
        ),
        (
            lambda: control.tracking_law(BODY, state, GAINS, state.q),
            TypeError,
            "reference: wanted a control.Reference",
        ),
        (
            lambda: control.tracking_law(1.0, state, GAINS, REST),
            TypeError,
            "body: wanted a jq.Body",
        ),
        (
            lambda: control.geometric_law(BODY, state, PID, REST),
            TypeError,
            "gains: wanted control.Gains",
        ),
        (lambda: control.at_rest(jnp.ones(3)), ValueError, r"q: wanted shape \(4,\)"),
        (
            lambda: control.follow(lambda t: jnp.ones(3) * t, 0.0),
            ValueError,
            r"attitude: wanted shape \(4,\)",
        ),
        (
            lambda: control.pid(BODY, 0.0, lambda t, p, v: REST),
            ValueError,
            "period: wanted positive values",
        ),
        (
            lambda: control.pid(BODY, 0.2, lambda t, p, v: REST, unwind=0.1),
            ValueError,
            "unwind: wanted at least the period",
        ),
        (
            lambda: control.pid(BODY, 0.1, REST.q),
            TypeError,
            "reference: wanted a function, got ArrayImpl; a control.Reference may",
        ),
        (
            lambda: control.pid(BODY, 0.1, REST._replace(q=2 * REST.q)),
            ValueError,
            "reference.q: wanted a unit quaternion",
        ),
        (
            lambda: control.pid(BODY, 0.1, REST, gains=GAINS),
            TypeError,
            "gains: wanted a function, got Gains; control.PIDGains may",
        ),
        (
            lambda: control.pid(BODY, 0.1, REST, gains=PID._replace(integral=1.0)),
            ValueError,
            r"gains.integral: wanted shape \(3,\)",
        ),
        (
            lambda: control.pid(BODY, None, REST),
            TypeError,
            "period: wanted an array of floats, got None",
        ),
        (
            lambda: control.pid(BODY, 0.1, REST, limits=-1.0),
            ValueError,
            "limits: wanted positive values, got -1.0",
        ),
        (
            lambda: control.pid(BODY, 0.1, REST, limits=jnp.ones(2)),
            ValueError,
            r"limits: wanted shape \(\) or \(3,\), got \(2,\)",
        ),
        (
            lambda: regulated(PID, 4, period=0.02),
            ValueError,
            r"controller: wanted a period of 0.1 s \(sample_every \* dt\), got 0.02",
        ),
        (
            lambda: regulated(PID, 4, period=1),
            ValueError,
            r"controller: wanted a period of 0.1 s \(sample_every \* dt\), got 1",
        ),
        (lambda: regulated(GAINS, 4), TypeError, "gains: wanted control.PIDGains"),
    ):
        with pytest.raises(kind, match=message):
            call()

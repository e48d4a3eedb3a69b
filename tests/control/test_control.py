"""Control laws by the formulas of their papers, PID by a loop, LQR by its Riccati equation."""

import re

import flat
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some
from scipy.spatial.transform import Rotation

import jaxquat as jq
from examples.validation import problems
from jaxquat import control, euler, quaternion
from jaxquat.control.laws import shortest

RNG = np.random.default_rng(4)
N = 60
Q, C = RNG.normal(size=(2, N, 4))
Q /= np.linalg.norm(Q, axis=-1, keepdims=True)
C /= np.linalg.norm(C, axis=-1, keepdims=True)
OMEGA = RNG.normal(size=(N, 3))
STATES = jq.State(jnp.asarray(Q), jnp.asarray(OMEGA))
GAINS = control.Gains(jnp.array([3.0, 4, 6]), jnp.array([6.0, 10, 12]))


def law(function, targets, gains=GAINS, states=STATES):
    one = jax.vmap(lambda state, target: function(state, gains, target))
    return np.asarray(jax.jit(one)(states, jnp.asarray(targets)))


def his(q):
    """Hoffmann's components q1, q2, q3, q4 of our quaternions."""
    return -q[:, 1], -q[:, 2], -q[:, 3], q[:, 0]


def test_quaternion_law_is_hoffmanns_code():
    """His controller of 9.10, line by line, at any attitude: T1 = - d w + 2 k V(Q) dQ."""
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
    """With equal gains it is 2 k sin(angle/2) about the axis of q* c, the error in body axes."""
    gains = control.Gains(jnp.zeros(3), jnp.ones(3))
    turn, target = (Rotation.from_quat(np.roll(x, -1, axis=-1)) for x in (Q, C))
    error = (turn.inv() * target).as_rotvec()
    angle = np.linalg.norm(error, axis=-1, keepdims=True)
    got = law(control.quaternion_law, C, gains)
    np.testing.assert_allclose(got, 2 * np.sin(angle / 2) * error / angle, rtol=0, atol=1e-14)


def test_quaternion_law_at_the_target_only_damps_and_knows_no_sign():
    damping = -np.array([3.0, 4, 6]) * OMEGA
    np.testing.assert_allclose(law(control.quaternion_law, Q), damping, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(law(control.quaternion_law, -C), law(control.quaternion_law, C))


def test_quaternion_law_is_the_rotation_vector_for_small_errors():
    u = 1e-4 * RNG.normal(size=(N, 3))
    target = jax.jit(lambda u: quaternion.multiply(Q, quaternion.exp(u)))(u)
    got = law(control.quaternion_law, target) + np.array([3.0, 4, 6]) * OMEGA
    remainder = 12 * 4e-4**3 / 24  # k |u|^3/24
    np.testing.assert_allclose(got, np.array([6.0, 10, 12]) * u, rtol=0, atol=remainder)


def test_the_shortest_way_is_that_of_the_sign_with_a_positive_scalar_part():
    both = jnp.concatenate([C, -C])
    got = jax.jit(jax.vmap(shortest))(both)
    wanted = 2.0 * np.sign(both[:, :1]) * both[:, 1:]
    np.testing.assert_array_equal(got, wanted)
    half_turn = jnp.array([0.0, -1, 0, 0])
    np.testing.assert_array_equal(shortest(half_turn), 2.0 * half_turn[1:])  # as given


def test_euler_law_is_hoffmanns_code():
    """T = - d w - k (sin a cos c - cos a sin c), with the angles of his Cayley matrix (7.21).

    Roll acts on x, pitch on y, yaw on z.
    """
    ranges = [3, 1.4, 3]  # of roll, pitch, yaw
    angles = np.stack([RNG.uniform(-x, x, N) for x in ranges], axis=-1)
    targets = RNG.uniform(-1, 1, size=(N, 3))
    q = np.asarray(euler.to_quaternion(angles[:, ::-1], "ZYX"))
    ours = quaternion.from_hoffmann(np.stack(his(q), axis=-1))
    cayley = np.swapaxes(np.asarray(quaternion.to_matrix(ours)), -1, -2)
    entries = (0, 0), (0, 1), (0, 2), (1, 2), (2, 2)
    c11, c12, c13, c23, c33 = (cayley[:, i, j] for i, j in entries)
    pitch = np.arctan2(-c13, np.hypot(c11, c12))
    by_matrix = np.stack([np.arctan2(c23, c33), pitch, np.arctan2(c12, c11)], axis=-1)
    np.testing.assert_allclose(by_matrix, angles, rtol=0, atol=1e-14)
    sines = np.sin(angles) * np.cos(targets) - np.cos(angles) * np.sin(targets)
    wanted = -np.array([3.0, 4, 6]) * OMEGA - np.array([6.0, 10, 12]) * sines
    states = jq.State(jnp.asarray(q), STATES.omega)
    got = law(control.euler_law, targets, states=states)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-13)


def test_both_laws_agree_near_the_target():
    """To first order both are k times the rotation vector, for small angles about body axes."""
    target, q = jnp.zeros(3), quaternion.exp(jnp.array([1e-5, -2e-5, 3e-5]))
    state = jq.State(q, jnp.zeros(3))
    by_angles = control.euler_law(state, GAINS, target)
    by_quaternion = control.quaternion_law(state, GAINS, jnp.array([1.0, 0, 0, 0]))
    np.testing.assert_allclose(by_angles, by_quaternion, rtol=0, atol=12 * 1e-9)


def test_gains_are_a_pytree_and_the_laws_differentiable_in_them():
    """The torque is linear in the gains: d/d damping = - omega, d/d stiffness = 2 vec(q* c)."""
    state, target = jax.tree.map(lambda x: x[0], STATES), jnp.asarray(C[0])
    of_gains = jax.jacobian(lambda gains: control.quaternion_law(state, gains, target))
    jacobian = jax.jit(of_gains)(GAINS)
    np.testing.assert_allclose(jacobian.damping, -np.diag(OMEGA[0]), rtol=1e-15)
    error = shortest(quaternion.multiply(quaternion.conjugate(Q[0]), C[0]))
    np.testing.assert_allclose(jacobian.stiffness, np.diag(error), rtol=0, atol=1e-15)


@pytest.mark.parametrize("function", [control.quaternion_law, control.euler_law])
def test_float32_stays_float32(function):
    given = (jq.State(Q[0], OMEGA[0]), GAINS)
    state, gains = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), given)
    target = jnp.asarray(C[0] if function is control.quaternion_law else OMEGA[0], jnp.float32)
    assert jax.eval_shape(function, state, gains, target).dtype == jnp.float32


# Tracking

BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))


def attitude(t):
    return problems.manufactured(t)[0]


def test_follow_is_the_motion():
    """Rate and acceleration of a motion known in closed form, from its attitude alone."""
    both = jax.jit(lambda t: (control.follow(attitude, t), problems.manufactured(t)))
    for t in (0.0, 0.7, 2.3):
        for got, wanted in zip(*both(t), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("tracking", [control.tracking_law, control.geometric_law])
def test_without_error_the_torque_is_that_of_the_motion(tracking):
    """I omega' + omega × I omega, from either sign of the reference."""

    @jax.jit
    def torques(t):
        q, omega, alpha = problems.manufactured(t)
        references = [control.Reference(sign * q, omega, alpha) for sign in (1, -1)]
        got = [tracking(jq.State(q, omega), GAINS, reference, BODY) for reference in references]
        return got, omega, alpha

    inertia = np.asarray(BODY.inertia)
    for t in (0.0, 0.7, 2.3):
        both, omega, alpha = torques(t)
        wanted = inertia @ alpha + np.cross(omega, inertia @ omega)
        for got in both:
            np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-14)


def numpy_geometric(state, gains, reference):
    """The law of Lee, Leok and McClamroch in matrices."""
    turn, wanted = (np.asarray(quaternion.to_matrix(x)) for x in (state.q, reference.q))
    error = wanted.T @ turn - turn.T @ wanted
    error = 0.5 * np.array([error[2, 1], error[0, 2], error[1, 0]])
    omega, inertia = np.asarray(state.omega), np.asarray(BODY.inertia)
    rate, acceleration = turn.T @ wanted @ reference.omega, turn.T @ wanted @ reference.alpha
    forward = np.cross(omega, inertia @ omega) - inertia @ (np.cross(omega, rate) - acceleration)
    return -gains.stiffness * error - gains.damping * (omega - rate) + forward


def test_laws_against_matrices_and_each_other():
    """The geometric law is the paper's; ``tracking_law`` has no cos(angle/2) in the pull."""
    for k in range(6):
        state = jax.tree.map(lambda x, k=k: x[k], STATES)
        reference = control.Reference(*map(jnp.asarray, (C[k], OMEGA[-k], OMEGA[k + 7])))
        geometric = control.geometric_law(state, GAINS, reference, BODY)
        by_matrices = numpy_geometric(state, GAINS, reference)
        np.testing.assert_allclose(geometric, by_matrices, rtol=0, atol=2e-13)
        got = np.asarray(control.tracking_law(state, GAINS, reference, BODY) - geometric)
        error = quaternion.multiply(quaternion.conjugate(state.q), reference.q)
        wanted = GAINS.stiffness * (1 - jnp.abs(error[0])) * shortest(error)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-13)


def test_geometric_law_is_smooth_through_the_half_turn():
    """The pull is k sin(angle): zero there, with slope -k; the quaternion law jumps by 4 k."""

    def pull(law, angle):
        state = jq.State(quaternion.exp(angle * jnp.array([0.0, 0, 1])), jnp.zeros(3))
        return law(state, GAINS, REST, BODY)[2]

    smooth, jumping = control.geometric_law, control.tracking_law
    for law, jump in ((smooth, 2 * 12 * 1e-3), (jumping, 4 * 12 * np.cos(5e-4))):
        of_angle = jax.jit(lambda angle, law=law: pull(law, angle))
        got = of_angle(np.pi + 1e-3) - of_angle(np.pi - 1e-3)
        np.testing.assert_allclose(got, jump, rtol=1e-6)
    slope = jax.jit(jax.grad(lambda angle: pull(smooth, angle)))(np.pi)
    np.testing.assert_allclose(slope, 12.0, rtol=1e-14)


@pytest.mark.slow
def test_tracking_converges_where_a_fixed_target_lags():
    """About one axis the error obeys e'' = -d e' - 2 k sin(e/2).

    With d = 4 and k = 4 it decays as (1 + 2t) exp(-2t) e0.
    """
    axis = jnp.array([0.0, 0.0, 1.0])
    gains = control.Gains(4.0 * jnp.ones(3), 4.0 * jnp.ones(3))
    body, grid = jq.Body(jnp.eye(3)), jq.grid(0.0, 0.02, 150)

    def moving(t):
        return quaternion.exp((0.5 * t + 0.3 * jnp.sin(t)) * axis)

    def tracking(t, state, gains):
        return control.tracking_law(state, gains, control.follow(moving, t), body)

    def chasing(t, state, gains):
        return control.quaternion_law(state, gains, moving(t))

    def error(law):
        start = jq.State(quaternion.exp(0.02 * axis), 0.8 * axis)
        path = jq.rollout(jq.rkmk4, body, law, start, grid, gains)
        relative = jax.vmap(lambda t, q: quaternion.relative(moving(t), q))(path.t, path.state.q)
        return quaternion.log(relative)[:, 2]

    t = np.asarray(grid.times())
    wanted = 0.02 * (1 + 2 * t) * np.exp(-2 * t)
    np.testing.assert_allclose(jax.jit(lambda: error(tracking))(), wanted, rtol=0, atol=2e-7)
    assert np.abs(jax.jit(lambda: error(chasing))()[-50:]).min() > 0.1


# The controller with memory

PERIOD = 0.1
REST = control.Reference(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3), jnp.zeros(3))
EQUAL = jnp.array([2.0, 2.5, 3.0])
PID = control.PIDGains(EQUAL, EQUAL, jnp.array([1.0, 1.2, 1.5]))
DISTURBANCE = jnp.array([0.05, -0.1, 0.08])


def noisy(state, noise):
    return state if noise is None else state._replace(omega=state.omega + noise)


def rest_at(t, params, sampled_input):
    return REST


def regulated(gains, steps, inputs=None, period=PERIOD, **options):
    """A body at an offset that a PID controller brings to rest against a disturbance."""
    controller = control.pid(BODY, period, rest_at, measure=noisy, **options)

    def torque(t, state, params, command):
        return command + DISTURBANCE

    start = jq.State(quaternion.exp(jnp.array([0.3, -0.2, 0.1])), jnp.zeros(3))
    grid, every = jq.grid(0.0, PERIOD / 4, steps), {"sample_every": 4, "save_every": 4}
    return flat.rollout(
        jq.zhao, BODY, torque, start, grid, gains, controller=controller, inputs=inputs, **every
    )


def test_pid_removes_a_constant_disturbance():
    """The memory ends at minus the disturbance, the attitude at the reference.

    Without integral gain the error d/k is left.
    """
    run = jax.jit(lambda g: regulated(g, 2400))
    path = run(PID)
    np.testing.assert_allclose(path.memory, -DISTURBANCE, rtol=0, atol=1e-6)
    np.testing.assert_allclose(path.command[-1], -DISTURBANCE, rtol=0, atol=1e-6)
    assert quaternion.distance(path.state.q[-1], REST.q) < 1e-6
    without_integral = PID._replace(integral=jnp.zeros(3))
    end = run(without_integral).state.q[-1]
    np.testing.assert_allclose(2 * end[1:], DISTURBANCE / PID.stiffness, rtol=1e-6)


def test_pid_is_a_loop_over_samples():
    """The command and the memory sample by sample, with noise as input and limits that cut."""
    noise, limits = 0.05 * jax.random.normal(jax.random.key(1), (20, 3)), jnp.array([0.2, 0.3, 0.1])
    path = jax.jit(lambda: regulated(PID, 80, noise, limits=limits))()
    memory = np.zeros(3)
    inertia = np.asarray(BODY.inertia)
    for k in range(20):
        q, omega = np.asarray(path.state.q[k]), np.asarray(path.state.omega[k] + noise[k])
        error = -2 * np.sign(q[0]) * q[1:]
        uncut = PID.stiffness * error - PID.damping * omega + memory
        uncut = uncut + np.cross(omega, inertia @ omega)
        cut = np.clip(uncut, -limits, limits)
        np.testing.assert_allclose(path.command[k], cut, rtol=0, atol=1e-13)
        memory = memory + PERIOD * (PID.integral * error + (cut - uncut) / 1.0)
    np.testing.assert_allclose(path.memory, memory, rtol=0, atol=1e-13)
    assert (np.abs(path.command) == np.asarray(limits)).any()


def test_pid_takes_constant_gains_and_references():
    """They act like functions, lists like arrays, one limit for all axes.

    The default of ``anti_windup_time`` is the period where that is longer than 1 s.
    """
    state, memory = jax.tree.map(lambda x: x[0], STATES), jnp.array([0.1, 0.2, 0.3])
    lists = control.PIDGains(*(x.tolist() for x in PID))
    constant = control.pid(BODY, 2.0, REST, gains=lists, limits=1.5)
    with pytest.warns(DeprecationWarning, match=r"^pid: unwind is now called anti_windup_time$"):
        called = control.pid(BODY, 2.0, rest_at, limits=jnp.full(3, 1.5), unwind=2.0)
    from_constants = constant.update(0.0, state, memory, None, None)
    from_functions = called.update(0.0, state, memory, PID, None)
    for got, wanted in zip(from_constants, from_functions, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_the_period_of_a_controller_is_compared_where_it_is_known():
    """In float32 too, where both are rounded; traced ones are not compared.

    A controller need not have a period, and can be hashed.
    """
    controller = control.pid(BODY, PERIOD, REST, gains=PID)
    assert controller.period == PERIOD
    assert hash(controller) == hash(controller._replace())

    def fly(dt, period, dtype=jnp.float64):
        given = BODY, jq.State(REST.q, jnp.zeros(3)), PID, REST
        body, start, gains, rest = jax.tree.map(lambda x: jnp.asarray(x, dtype), given)
        sampled = {"controller": control.pid(body, period, rest), "sample_every": 3}
        torque, grid = jq.torques.commanded, jq.grid(0.0, dt, 3)
        return flat.rollout(jq.lie_euler, body, torque, start, grid, gains, **sampled).command

    jax.eval_shape(lambda: fly(jnp.float32(0.1) / 3, jnp.float32(0.1), jnp.float32))
    jax.eval_shape(fly, 0.1, 0.2)
    jax.eval_shape(lambda dt: fly(dt, 0.1), 0.2)
    message = re.escape("controller: wanted a period of 0.3 s (sample_every * dt), got 0.1")
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda: fly(0.1, 0.1))


def test_anti_windup_bounds_the_memory():
    """An actuator too weak for the disturbance, at a body that does not move.

    The memory settles where its growth balances the cut, k_i e T = uncut - cut with the time T.
    """
    limits, pull = jnp.full(3, 0.05), -2 * np.sin(0.25)  # the error, which stays
    stuck = jq.State(quaternion.exp(jnp.array([0.5, 0.0, 0.0])), jnp.zeros(3))

    def grown(samples, unwind):
        controller = control.pid(BODY, PERIOD, rest_at, limits=limits, anti_windup_time=unwind)
        memory, update = controller.init(stuck, PID), jax.jit(controller.update)
        for k in range(samples):
            _, memory = update(k * PERIOD, stuck, memory, PID, None)
        return float(memory[0])

    settled = PID.integral[0] * pull * 1.0 - 0.05 - PID.stiffness[0] * pull
    assert grown(200, 1.0) == pytest.approx(float(settled), rel=1e-8)
    assert grown(200, 1e9) == pytest.approx(float(PID.integral[0] * pull * 20.0), rel=1e-6)


@pytest.mark.slow
def test_pid_differentiates_and_vmaps():
    def cost(gains):
        path = regulated(gains, 60, limits=jnp.array([0.2, 0.3, 0.1]))
        error = jnp.mean(jnp.sum(path.state.q[:, 1:] ** 2, axis=-1))
        return error + 1e-2 * jnp.mean(path.command**2)

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


def cost_of_gain(a, b, q, r, gain):
    """P with ``delta.P delta`` the cost of the loop from delta on, summed over 2000 steps."""
    closed, running = a - b @ gain, q + gain.T @ r @ gain
    assert np.abs(np.linalg.eigvals(closed)).max() < 0.99
    cost, power = np.zeros((6, 6)), np.eye(6)
    for _ in range(2000):
        cost, power = cost + power.T @ running @ power, closed @ power
    return cost


def test_lqr_minimises_the_cost_of_the_loop():
    """The loop is stable, and the gain is the one that its own cost asks for (Riccati).

    A small error costs delta' P delta along the whole rollout.
    """
    a, b = map(np.asarray, jax.jit(plant)())
    q, r = np.diag([4.0, 4, 4, 1, 1, 1]), np.diag([0.5, 0.1, 3.0])
    gain = np.asarray(control.lqr(a, b, q, r))
    cost = cost_of_gain(a, b, q, r, gain)
    better = np.linalg.solve(r + b.T @ cost @ b, b.T @ cost @ a)
    np.testing.assert_allclose(gain, better, rtol=0, atol=1e-9)
    rest, delta = jq.State(REST.q, jnp.zeros(3)), 1e-5 * jnp.arange(1.0, 7.0)

    def update(t, state, memory, params, sampled_input):
        return -params @ jq.dynamics.local(rest, state), memory

    @jax.jit
    def run(gain):
        start, grid = jq.dynamics.retract(rest, delta), jq.grid(0.0, 0.05, 400)
        controller, torque = jq.Controller(lambda start, params: (), update), jq.torques.commanded
        path = jq.rollout(jq.zhao, BODY, torque, start, grid, gain, controller=controller)
        errors = jax.vmap(lambda s: jq.dynamics.local(rest, s))(path.state)
        of_states = jnp.sum(errors[:-1] ** 2 * np.diag(q)[None])
        return of_states + jnp.sum(path.command[:-1] ** 2 * np.diag(r)[None])

    np.testing.assert_allclose(run(jnp.asarray(gain)), delta @ cost @ delta, rtol=1e-5)


# Every law through sampled, vmapped, differentiated rollouts


def moving_reference(t):
    return quaternion.exp(jnp.stack([0.4 * jnp.sin(t), 0.3 * t, 0.2 * jnp.cos(2.0 * t)]))


def to_rest(t, state, gains):
    return control.quaternion_law(state, gains, REST.q)


def to_angles(t, state, gains):
    return control.euler_law(state, gains, jnp.array([0.1, -0.2, 0.3]))


def tracking(t, state, gains):
    return control.tracking_law(state, gains, control.follow(moving_reference, t), BODY)


def geometric(t, state, gains):
    return control.geometric_law(state, gains, control.follow(moving_reference, t), BODY)


LAWS = {
    "quaternion": (to_rest, GAINS),
    "euler": (to_angles, GAINS),
    "tracking": (tracking, GAINS),
    "geometric": (geometric, GAINS),
}


def sampled(name):
    """A controller of this law, and its gains."""
    if name == "pid":
        return control.pid(BODY, PERIOD, rest_at, limits=jnp.full(3, 2.0)), PID
    law, gains = LAWS[name]

    def update(t, state, memory, gains, sampled_input):
        return law(t, state, gains), memory

    return jq.Controller(lambda start, params: (), update), gains


@pytest.mark.parametrize("name", some([*LAWS, "pid"], ("pid",)))
def test_every_law_differentiates_while_sampled_and_vmapped(name):
    """Slopes along one direction of the gains, in both modes, against central differences.

    Three bodies, sampled every 4 of 40 steps, saved every 8; a loss of states and commands.
    """
    controller, gains = sampled(name)
    grid = jq.grid(0.0, PERIOD / 4, 40)
    options = {"controller": controller, "sample_every": 4, "save_every": 8}

    def loss(gains, start):
        path = flat.rollout(jq.lie_euler, BODY, jq.torques.commanded, start, grid, gains, **options)
        end = jnp.sum(path.state.q[-1] * jnp.arange(4.0))
        return end + jnp.mean(path.state.omega**2) + 1e-2 * jnp.mean(path.command**2)

    def waves(x):
        return jnp.cos(1.0 + jnp.arange(float(x.size))).reshape(x.shape)

    starts, direction = jax.tree.map(lambda x: x[:3], STATES), jax.tree.map(waves, gains)
    h = jnp.array([-2e-3, -1e-3, 1e-3, 2e-3])

    @jax.jit
    def run(gains):
        def forward(start):
            return jax.jvp(lambda g: loss(g, start), (gains,), (direction,))[1]

        def moved(step):
            return jax.tree.map(lambda x, d: x + step * d, gains, direction)

        reverse = jax.vmap(jax.grad(loss), (None, 0))(gains, starts)
        losses = jax.vmap(jax.vmap(loss, (None, 0)), (0, None))(jax.vmap(moved)(h), starts)
        return jax.vmap(forward)(starts), reverse, losses

    forward, reverse, (low2, low, high, high2) = run(gains)
    pairs = zip(jax.tree.leaves(reverse), jax.tree.leaves(direction), strict=True)
    along = sum(jnp.sum((slope * d[None]).reshape(3, -1), axis=1) for slope, d in pairs)
    np.testing.assert_allclose(along, forward, rtol=0, atol=1e-12)
    differences = (low2 - 8 * low + 8 * high - high2) / 12e-3
    np.testing.assert_allclose(forward, differences, rtol=0, atol=2e-10)
    assert (np.abs(forward) > 1e-4).all()


A, B, EYE, THREE = jnp.eye(6), jnp.ones((6, 3)), jnp.eye(6), jnp.eye(3)
ONE = jax.tree.map(lambda x: x[0], STATES)


def regulate(reference=rest_at, period=0.1, **options):
    return lambda: control.pid(BODY, period, reference, **options)


REFUSED = {
    "b: wanted shape (6, m), got (5, 3)": lambda: control.lqr(A, B[:5], EYE, THREE),
    "a, b: wanted a system that": lambda: control.lqr(2 * A, 0 * B, EYE, THREE),
    "a: wanted concrete arrays": lambda: jax.jit(lambda a: control.lqr(a, B, EYE, THREE))(A),
    "gains: wanted control.Gains": lambda: control.geometric_law(ONE, PID, REST, BODY),
    "state: wanted a jq.State, got a Body; the order is state, gains, reference": (
        lambda: control.geometric_law(BODY, ONE, GAINS, REST)
    ),
    "period: wanted positive values": regulate(period=0.0),
    "limits: wanted positive values, got -1.0": regulate(limits=-1.0),
    "anti_windup_time: wanted at least the period": regulate(period=0.2, anti_windup_time=0.1),
    "reference: wanted a function, got ArrayImpl; a constant control.Reference": regulate(REST.q),
    "reference.q: wanted a unit quaternion": regulate(REST._replace(q=2 * REST.q)),
    "gains: wanted a function, got Gains; a constant control.PIDGains": regulate(gains=GAINS),
    "gains.integral: wanted shape (3,)": regulate(gains=PID._replace(integral=1.0)),
    "controller: wanted a period of 0.1 s (sample_every * dt), got 0.02": (
        lambda: regulated(PID, 4, period=0.02)
    ),
    "controller: wanted a period of 0.1 s (sample_every * dt), got 1": (
        lambda: regulated(PID, 4, period=1)
    ),
    "gains: wanted control.PIDGains": lambda: regulated(GAINS, 4),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_is_refused_by_name(message):
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(message)):
        REFUSED[message]()

"""Attitude laws and limits: Hoffmann's torques by hand, the shortest way, saturation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxquat as jq
from jaxquat import actuators, control, euler, quaternion

RNG = np.random.default_rng(4)
N = 60
Q, C = RNG.normal(size=(2, N, 4))
Q /= np.linalg.norm(Q, axis=-1, keepdims=True)
C /= np.linalg.norm(C, axis=-1, keepdims=True)
OMEGA = RNG.normal(size=(N, 3))
STATES = jq.State(jnp.asarray(Q), jnp.asarray(OMEGA))
GAINS = control.Gains(jnp.array([3.0, 4, 6]), jnp.array([6.0, 10, 12]))


def law(function, commands):
    return np.asarray(jax.jit(jax.vmap(lambda state, command: function(state, GAINS, command)))(STATES, jnp.asarray(commands)))


def his(q):
    """Ours to Hoffmann's components q1, q2, q3, q4."""
    return -q[:, 1], -q[:, 2], -q[:, 3], q[:, 0]


def test_quaternion_law_is_hoffmanns_code():
    """His controller of 9.10, line by line, at any attitude and any command: T1 = - d w + 2 k V(Q) dQ."""
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
    error = (Rotation.from_quat(np.roll(Q, -1, axis=-1)).inv() * Rotation.from_quat(np.roll(C, -1, axis=-1))).as_rotvec()
    angle = np.linalg.norm(error, axis=-1, keepdims=True)
    got = jax.jit(jax.vmap(lambda state, command: control.quaternion_law(state, gains, command)))(STATES, jnp.asarray(C))
    np.testing.assert_allclose(got, 2 * np.sin(angle / 2) * error / angle, rtol=0, atol=1e-14)


def test_quaternion_law_at_the_command_only_damps_and_knows_no_sign():
    np.testing.assert_allclose(law(control.quaternion_law, Q), -np.array([3.0, 4, 6]) * OMEGA, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(law(control.quaternion_law, -C), law(control.quaternion_law, C))


def test_quaternion_law_is_the_rotation_vector_for_small_errors():
    u = 1e-4 * RNG.normal(size=(N, 3))
    command = quaternion.multiply(Q, quaternion.exp(u))
    got = law(control.quaternion_law, command) + np.array([3.0, 4, 6]) * OMEGA
    np.testing.assert_allclose(got, np.array([6.0, 10, 12]) * u, rtol=0, atol=12 * 4e-4**3 / 24)  # k |u|^3/24


def test_shortest_way():
    got = np.asarray(control.shortest(Q, C))
    assert (np.sum(Q * got, axis=-1) >= 0).all()
    np.testing.assert_array_equal(np.abs(got), np.abs(C))
    np.testing.assert_array_equal(control.shortest(Q, -C), got)
    half = np.array([0.0, 1, 0, 0])
    np.testing.assert_array_equal(control.shortest(np.array([1.0, 0, 0, 0]), -half), -half)  # neither is nearer: as given


def test_euler_law_is_hoffmanns_code():
    """T = - d w - k (sin a cos c - cos a sin c), roll on x, pitch on y, yaw on z; the angles from his Cayley matrix (7.21)."""
    angles = np.stack([RNG.uniform(-3, 3, N), RNG.uniform(-1.4, 1.4, N), RNG.uniform(-3, 3, N)], axis=-1)  # roll, pitch, yaw
    commands = RNG.uniform(-1, 1, size=(N, 3))
    q = np.asarray(euler.to_quaternion(angles[:, ::-1], "ZYX"))
    cayley = np.asarray(quaternion.hoffmann_cayley(np.stack(his(q), axis=-1)))
    c11, c12, c13, c23, c33 = (cayley[:, i - 1, j - 1] for i, j in ((1, 1), (1, 2), (1, 3), (2, 3), (3, 3)))
    got_angles = np.stack([np.arctan2(c23, c33), np.arctan2(-c13, np.hypot(c11, c12)), np.arctan2(c12, c11)], axis=-1)
    np.testing.assert_allclose(got_angles, angles, rtol=0, atol=1e-14)
    sines = np.sin(angles) * np.cos(commands) - np.cos(angles) * np.sin(commands)
    wanted = -np.array([3.0, 4, 6]) * OMEGA - np.array([6.0, 10, 12]) * sines
    one = jax.jit(jax.vmap(lambda state, command: control.euler_law(state, GAINS, command)))
    got = one(jq.State(jnp.asarray(q), STATES.omega), jnp.asarray(commands))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-13)


def test_both_laws_agree_near_the_command():
    """To first order both are k times the rotation vector where the axes of the angles are those of the body."""
    command, q = jnp.zeros(3), quaternion.exp(jnp.array([1e-5, -2e-5, 3e-5]))
    state = jq.State(q, jnp.zeros(3))
    by_angles = control.euler_law(state, GAINS, command)
    by_quaternion = control.quaternion_law(state, GAINS, jnp.array([1.0, 0, 0, 0]))
    np.testing.assert_allclose(by_angles, by_quaternion, rtol=0, atol=12 * 1e-9)


def test_gains_are_a_pytree_and_the_laws_differentiable_in_them():
    """The torque is linear in the gains: d/d damping = - omega, d/d stiffness = 2 vec(q* c)."""
    state, command = jax.tree.map(lambda x: x[0], STATES), jnp.asarray(C[0])
    jacobian = jax.jit(jax.jacobian(lambda gains: control.quaternion_law(state, gains, command)))(GAINS)
    np.testing.assert_allclose(jacobian.damping, -np.diag(OMEGA[0]), rtol=1e-15)
    error = quaternion.multiply(quaternion.conjugate(Q[0]), control.shortest(Q[0], C[0]))[1:]
    np.testing.assert_allclose(jacobian.stiffness, 2 * np.diag(error), rtol=0, atol=1e-15)


@pytest.mark.parametrize("function", [control.quaternion_law, control.euler_law])
def test_float32_stays_float32(function):
    state, gains = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (jq.State(Q[0], OMEGA[0]), GAINS))
    command = jnp.asarray(C[0] if function is control.quaternion_law else OMEGA[0], jnp.float32)
    assert jax.eval_shape(function, state, gains, command).dtype == jnp.float32


# Limits

LIMITS = np.array([8.0, 2.0, 4.0])
TORQUES = np.array([[0.0, 0, 0], [7, -1, 3], [8, -2, 4], [9, -3, -100], [-1e300, 1e300, -4.1]])


def test_saturate():
    wanted = [[0, 0, 0], [7, -1, 3], [8, -2, 4], [8, -2, -4], [-8, 2, -4]]
    np.testing.assert_array_equal(actuators.saturate(TORQUES, LIMITS), wanted)
    slope = jax.grad(lambda tau: jnp.sum(actuators.saturate(tau, LIMITS)))(jnp.array([7.0, -3, 4.1]))
    np.testing.assert_array_equal(slope, [1, 0, 0])


def test_saturate_smooth():
    """Limits tanh(tau/limits): odd, increasing, slope 1 at zero, below the hard limit everywhere, equal to it far out."""
    got = np.asarray(actuators.saturate_smooth(TORQUES, LIMITS))
    np.testing.assert_allclose(got[:4], LIMITS * np.tanh(TORQUES[:4] / LIMITS), rtol=1e-14)
    np.testing.assert_allclose(got[4], [-8, 2, 4 * np.tanh(-4.1 / 4)], rtol=1e-14)
    assert (np.abs(got) <= np.abs(actuators.saturate(TORQUES, LIMITS))).all()
    np.testing.assert_array_equal(actuators.saturate_smooth(-TORQUES, LIMITS), -got)
    slope = jax.jacobian(lambda tau: actuators.saturate_smooth(tau, LIMITS))
    np.testing.assert_allclose(slope(jnp.zeros(3)), np.eye(3), rtol=0, atol=1e-15)
    np.testing.assert_array_equal(slope(jnp.full(3, 1e4)), np.zeros((3, 3)))

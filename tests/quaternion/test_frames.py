"""Axes of aircraft (FRD, NED) and of robots (FLU, ENU): components, attitudes, whole motions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from jaxquat import frames, quaternion

RNG = np.random.default_rng(3)
V, Q = RNG.normal(size=(5, 3)), RNG.normal(size=(5, 4))
MATRICES = RNG.normal(size=(5, 3, 3))
Q /= np.linalg.norm(Q, axis=-1, keepdims=True)
HALF = np.sqrt(0.5)
NED_TO_ENU = np.array([0.0, HALF, HALF, 0.0])  # the half turn about (1, 1, 0)
FLU_TO_FRD = np.array([0.0, 1.0, 0.0, 0.0])  # the half turn about x
CHANGES = {frames.ned_enu: [[0, 1, 0], [1, 0, 0], [0, 0, -1]], frames.frd_flu: np.diag([1, -1, -1])}
FUNCTIONS = {
    "ned_enu": (frames.ned_enu, V),
    "frd_flu": (frames.frd_flu, V),
    "attitude": (frames.attitude, Q),
    "covariance": (functools.partial(frames.covariance, frames.ned_enu), MATRICES),
}
EACH = pytest.mark.parametrize(("change", "values"), FUNCTIONS.values(), ids=FUNCTIONS)


@pytest.mark.parametrize("change", CHANGES)
def test_unit_vectors_change_exactly(change):
    """The images of the unit vectors are the columns of M."""
    np.testing.assert_array_equal(change(np.eye(3)), np.transpose(CHANGES[change]))


def test_both_changes_are_half_turns():
    np.testing.assert_allclose(frames.ned_enu(V), quaternion.rotate(NED_TO_ENU, V), atol=2e-15)
    np.testing.assert_array_equal(frames.frd_flu(V), quaternion.rotate(FLU_TO_FRD, V))


def test_an_attitude_turns_flu_to_frd_then_to_ned_then_to_enu():
    """This is r q s*, with the half turns r of the world and s of the body; s* is s^-1."""
    world = quaternion.multiply(NED_TO_ENU, Q)
    wanted = quaternion.multiply(world, quaternion.conjugate(FLU_TO_FRD))
    np.testing.assert_allclose(frames.attitude(Q), wanted, rtol=0, atol=3e-16)


def test_a_body_vector_reaches_the_same_place():
    """Converted and then turned, or turned and then converted."""
    turned = quaternion.rotate(frames.attitude(Q), frames.frd_flu(V))
    np.testing.assert_allclose(turned, frames.ned_enu(quaternion.rotate(Q, V)), atol=3e-15)


@EACH
def test_each_is_its_own_inverse(change, values):
    """Exactly, but for two roundings of sqrt(1/2) in an attitude."""
    atol = 5e-16 if change is frames.attitude else 0.0
    np.testing.assert_allclose(change(change(values)), values, rtol=0, atol=atol)


@pytest.mark.parametrize("change", CHANGES)
def test_the_covariance_is_m_p_m_transposed(change):
    p = MATRICES @ np.swapaxes(MATRICES, 1, 2)
    m = np.array(CHANGES[change], float)
    np.testing.assert_array_equal(frames.covariance(change, p), m @ p @ m.T)


@EACH
def test_every_dtype_stays_and_half_precision_rounds(change, values):
    for dtype in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64):
        assert jax.eval_shape(change, jax.ShapeDtypeStruct(values.shape, dtype)).dtype == dtype
    got, eps = jax.jit(change)(values.astype(jnp.bfloat16)), float(jnp.finfo(jnp.bfloat16).eps)
    np.testing.assert_allclose(np.asarray(got, float), change(values), rtol=2 * eps, atol=2 * eps)


@EACH
def test_vmap_gives_the_same_and_the_derivative_is_the_change_itself(change, values):
    tangent, wanted = values[::-1].copy(), np.asarray(change(values))[::-1]

    @jax.jit
    def derived(values):
        slope = jax.jvp(change, (values,), (tangent,))[1]
        return jax.vmap(change)(values), slope, jax.vjp(change, values)[1](tangent)[0]

    by_row, slope, gradient = derived(values)  # M is symmetric: both modes apply it
    np.testing.assert_allclose(by_row, wanted[::-1], rtol=0, atol=2e-16)
    np.testing.assert_allclose(slope, wanted, rtol=0, atol=2e-16)
    np.testing.assert_allclose(gradient, wanted, rtol=0, atol=2e-16)


def test_a_body_moves_in_both_axes_as_one():
    """The same motion under gravity, drag and a thrust off the centre, converted in every row."""
    inertia = np.array([[2.0, 0.1, 0.2], [0.1, 2.5, -0.3], [0.2, -0.3, 3.0]])
    thrust, place, gravity = np.array([[0.5, 0.2, -9.0], [0.1, 0.2, 0.05], [0.0, 0.0, 9.81]])
    start = jq.State(Q[0], V[0], position=V[1], velocity=V[2])

    def converted(state):
        q, omega = frames.attitude(state.q), frames.frd_flu(state.omega)
        position, velocity = frames.ned_enu(state.position), frames.ned_enu(state.velocity)
        return jq.State(q, omega, position=position, velocity=velocity)

    @jax.jit
    def moved(inertia, start, thrust, place, gravity):
        body = jq.Body(inertia, mass=1.2)

        def push(t, state, params):
            force = quaternion.rotate(state.q, thrust) + 1.2 * gravity - 0.1 * state.velocity
            return jq.Wrench(jnp.cross(place, thrust) - 0.2 * state.omega, force)

        grid = jq.grid(0.0, 0.02, 50)
        return jq.rollout(
            jq.lie_euler, body, push, start, grid, options=jq.RolloutOptions(engine="scan")
        ).state

    frd = moved(inertia, start, thrust, place, gravity)
    flu = moved(
        frames.covariance(frames.frd_flu, inertia),
        converted(start),
        frames.frd_flu(thrust),
        frames.frd_flu(place),
        frames.ned_enu(gravity),
    )
    assert quaternion.distance(frd.q[0], frd.q[-1]) > 0.3
    for got, wanted in zip(converted(frd), flu, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-13)

"""Torques: gradients of potentials, sums over point masses, and formulas by hand."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxquat as jq
from jaxquat import quaternion, torques
from jaxquat.dynamics.contract import evaluate

RNG = np.random.default_rng(2)
N = 50
Q = RNG.normal(size=(N, 4))
Q /= np.linalg.norm(Q, axis=-1, keepdims=True)
OMEGA = RNG.normal(size=(N, 3))
STATES = jq.State(jnp.asarray(Q), jnp.asarray(OMEGA))
ROTATIONS = Rotation.from_quat(np.roll(Q, -1, axis=-1))  # body to world
INERTIA = np.array([[0.6, 0.1, -0.2], [0.1, 1.0, 0.05], [-0.2, 0.05, 1.3]])


def over_states(torque, t=0.7, params=None):
    return np.asarray(
        jax.jit(jax.vmap(lambda state: torque(jnp.asarray(t), state, params)))(STATES)
    )


def from_potential(potential):
    """Torque in body axes: - d/dv U(q exp v) at v = 0."""

    def torque(t, state, params):
        return -jax.grad(lambda v: potential(quaternion.multiply(state.q, quaternion.exp(v))))(
            jnp.zeros(3)
        )

    return over_states(torque)


def test_heavy_top_is_the_gradient_of_its_potential():
    weight, offset = 3.2, jnp.array([0.1, -0.4, 0.9])
    wanted = from_potential(lambda q: weight * quaternion.rotate(q, offset)[2])
    np.testing.assert_allclose(
        over_states(torques.heavy_top(weight, offset)), wanted, rtol=0, atol=1e-14
    )


def test_heavy_top_by_hand():
    """Upright it is in equilibrium; tipped about world x by 90 degrees, the weight on z at height 1 turns it on about x."""
    torque = torques.heavy_top(2.0, jnp.array([0.0, 0, 1.5]))
    upright = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3))
    np.testing.assert_array_equal(torque(0.0, upright, None), np.zeros(3))
    tipped = jq.State(jnp.array([np.sqrt(0.5), np.sqrt(0.5), 0, 0]), jnp.zeros(3))
    np.testing.assert_allclose(torque(0.0, tipped, None), [3.0, 0, 0], rtol=0, atol=1e-15)


def test_magnetic_is_the_gradient_of_its_energy():
    """U = - m . B, and m × B with B turned into body axes."""
    dipole = jnp.array([0.3, -1.0, 0.2])
    field = lambda t: jnp.array([0.5, 0.1, -2.0]) * jnp.cos(t)
    got = over_states(torques.magnetic(dipole, field))
    wanted = from_potential(lambda q: -jnp.sum(quaternion.rotate(q, dipole) * field(0.7)))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)
    np.testing.assert_allclose(
        got, np.cross(dipole, ROTATIONS.inv().apply(np.array(field(0.7)))), rtol=0, atol=1e-14
    )


# Gravity gradient

PLACE = np.array([3.0, -1.0, 2.0])


def cube_of_masses(size):
    """Eight masses in pairs ±r, so that odd powers of r/R cancel, and their torque about the centre, body axes."""
    places = size * np.array([[1.0, 0.2, 0.1], [0.1, 1.5, -0.3], [0.0, -0.4, 0.7], [0.5, 0.5, 0.5]])
    places, masses = np.concatenate([places, -places]), np.tile([1.0, 0.7, 2.0, 0.4], 2)
    square = np.sum(places**2, axis=-1)
    inertia = np.einsum("n,n,ij->ij", masses, square, np.eye(3)) - np.einsum(
        "n,ni,nj->ij", masses, places, places
    )
    mu = 5.0
    arms = ROTATIONS.as_matrix() @ places.T  # (N, 3, 8), world
    away = PLACE[:, None] + arms
    forces = -mu * masses * away / np.linalg.norm(away, axis=1, keepdims=True) ** 3
    exact = ROTATIONS.inv().apply(np.cross(arms, forces, axis=1).sum(axis=-1))
    got = over_states(torques.gravity_gradient(jq.Body(inertia), lambda t: jnp.asarray(PLACE), mu))
    return np.abs(got - exact).max() / np.abs(exact).max()


def test_gravity_gradient_is_the_leading_term_of_the_sum_over_point_masses():
    """The relative remainder is of second order in the size of the body over its distance."""
    coarse, fine = cube_of_masses(1e-2), cube_of_masses(1e-3)
    assert coarse < 1e-3
    assert fine == pytest.approx(coarse / 100, rel=0.02)


def test_gravity_gradient_vanishes_on_principal_axes():
    body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5]))
    upright = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3))
    for axis in np.eye(3):
        torque = torques.gravity_gradient(body, lambda t, axis=axis: 7e6 * jnp.asarray(axis))
        np.testing.assert_array_equal(torque(jnp.asarray(0.0), upright, None), np.zeros(3))
    sphere = jq.Body(2.0 * jnp.eye(3))
    near = over_states(torques.gravity_gradient(sphere, lambda t: jnp.asarray(PLACE), 1.0))
    np.testing.assert_allclose(near, 0, atol=1e-16)


def test_gravity_gradient_in_an_orbit_of_the_earth():
    """45 degrees off the vertical in the plane of axes 1 and 3: 3/2 n^2 (I1 - I3) about axis 2, n^2 = mu/r^3; float32 too."""
    radius = 7e6
    for dtype, tolerance in ((jnp.float32, 1e-6), (jnp.float64, 1e-14)):
        body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5], dtype))
        place = jnp.array([1.0, 0, 1.0], dtype) * jnp.asarray(radius / np.sqrt(2), dtype)
        state = jq.State(jnp.array([1.0, 0, 0, 0], dtype), jnp.zeros(3, dtype))
        got = torques.gravity_gradient(body, lambda t, place=place: place)(
            jnp.asarray(0.0, dtype), state, None
        )
        assert got.dtype == dtype
        wanted = 1.5 * 3.986004418e14 / radius**3 * (1.0 - 2.5)
        np.testing.assert_allclose(got, [0, wanted, 0], rtol=tolerance, atol=0)


# The rest


def test_drag():
    matrix = np.array([[1.0, 0.2, 0], [0.2, 2.0, 0.3], [0, 0.3, 3.0]])
    diagonal = jnp.array([1.0, 2, 3])
    np.testing.assert_allclose(
        over_states(torques.drag(diagonal)), -OMEGA * np.asarray(diagonal), rtol=1e-15
    )
    np.testing.assert_allclose(
        over_states(torques.drag(matrix)), -OMEGA @ matrix, rtol=0, atol=1e-14
    )


def test_in_world_turns_a_world_torque_into_the_body():
    got = over_states(
        torques.in_world(lambda t, state, params: t * params + state.omega),
        params=jnp.array([1.0, 2, 3]),
    )
    wanted = ROTATIONS.inv().apply(0.7 * np.array([1.0, 2, 3]) + OMEGA)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)


def test_total_is_the_sum_and_passes_everything_on():
    top, drag = (
        torques.heavy_top(2.0, jnp.array([0.0, 0.1, 0.3])),
        torques.drag(jnp.array([1.0, 2, 3])),
    )
    own = lambda t, state, params: params * t
    got = over_states(torques.total(top, drag, own), params=jnp.array([5.0, 0, 1]))
    wanted = over_states(top) + over_states(drag) + 0.7 * np.array([5.0, 0, 1])
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(over_states(torques.total()), np.zeros((N, 3)))
    np.testing.assert_array_equal(over_states(torques.zero), np.zeros((N, 3)))


ONE = jax.tree.map(lambda x: x[0], STATES)
PUSH, DAMPING = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.1, 0.2, 0.3])


def pushing(t, state, params):
    return PUSH


def wind(t, state, params, held):
    return t * PUSH + held


def test_a_plant_beside_a_controller():
    """``held`` is the command, leaves ignore it, a user's own torque takes it, ``in_world`` passes it on."""
    plant = torques.total(torques.held, torques.drag(DAMPING), torques.in_world(wind))
    command = jnp.array([-1.0, 0.5, 0.2])
    wanted = (
        command - DAMPING * ONE.omega + ROTATIONS[0].inv().apply(np.array(0.5 * PUSH + command))
    )
    np.testing.assert_allclose(plant(0.5, ONE, None, command), wanted, rtol=0, atol=1e-15)
    controller = jq.Controller(
        lambda start, params: (), lambda t, state, memory, params, value: (params, memory)
    )
    body = jq.Body(INERTIA)
    path = jq.rollout(
        jq.lie_euler, body, plant, ONE, jq.grid(0.5, 0.01, 1), command, controller=controller
    )
    step = jq.lie_euler(body, lambda t, state, params: jnp.asarray(wanted), 0.5, ONE, 0.01, None)
    np.testing.assert_allclose(path.state.omega[-1], step.omega, rtol=0, atol=1e-15)


def test_aux_states_move_through_sums_and_the_world():
    """Rates of aux states are passed on, and added where several torques return some."""
    state = ONE._replace(aux={"a": jnp.zeros(2)})

    def wheels(t, state, params):
        return PUSH, {"a": jnp.array([1.0, t])}

    tau, rates = torques.total(
        torques.drag(DAMPING), wheels, torques.in_world(wheels), torques.zero
    )(0.5, state, None)
    wanted = PUSH - DAMPING * ONE.omega + ROTATIONS[0].inv().apply(np.array(PUSH))
    np.testing.assert_allclose(tau, wanted, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(rates["a"], [2.0, 1.0])


def bent(t, state, params):
    return ONE.omega, ONE.q


@pytest.mark.parametrize(
    ("torque", "given", "error", "message"),
    [
        (torques.held, (), TypeError, "torques.held: wanted a controller or inputs, which command a torque, got neither"),
        (torques.total(pushing), (PUSH,), TypeError, "torque: wanted torque(t, state, params, held)"),
        (torques.total(wind), (), TypeError, "torque: wanted torque(t, state, params)"),
        (
            torques.in_world(pushing),
            (PUSH,),
            TypeError,
            "world_torque: wanted world_torque(t, state, params, held) because there is a controller, or inputs, got pushing(t, st",
        ),
        (torques.total(torques.held), ({"u": PUSH},), TypeError, "torque held: wanted an array of shape (3,)"),
        (torques.in_world(lambda t, s, p: s.q), (), ValueError, "world_torque <lambda>: wanted an array of shape (3,)"),
        (torques.total(bent), (), TypeError, "torque bent: wanted an array of shape (3,)"),
        (torques.gravity_gradient(jq.Body(INERTIA), lambda t: PUSH[:2]), (), ValueError, "position(t): wanted shape (3,), got (2"),
        (torques.magnetic(PUSH, lambda t: PUSH[:2]), (), ValueError, "field(t): wanted shape (3,), got (2,)"),
    ],
)  # fmt: skip
def test_torques_of_the_wrong_kind_are_named(torque, given, error, message):
    with pytest.raises(error, match="^" + re.escape(message)):
        torque(0.0, ONE, None, *given)


def test_torques_have_names_for_errors():
    state = ONE._replace(aux=jnp.zeros(2))
    for torque, name in (
        (
            torques.total(torques.zero, torques.drag(DAMPING), torques.in_world(pushing)),
            "total(zero, drag, in_world(pushing))",
        ),
        (torques.gravity_gradient(jq.Body(INERTIA), lambda t: PUSH), "gravity_gradient"),
        (torques.heavy_top(1.0, PUSH), "heavy_top"),
        (torques.magnetic(PUSH, lambda t: PUSH), "magnetic"),
    ):
        with pytest.raises(
            TypeError, match="^" + re.escape(f"torque {name}: wanted (torque, d aux/dt)")
        ):
            evaluate(torque, 0.0, state, None)
    bad = torques.total(lambda t, s, p: (PUSH, PUSH))
    with pytest.raises(
        ValueError,
        match=r"^torque <lambda>: wanted d aux/dt like state.aux, float64\[2\], got float64\[3\]",
    ):
        bad(0.0, state, None)


def test_float32_stays_float32():
    state = jq.State(jnp.asarray(Q[0], jnp.float32), jnp.asarray(OMEGA[0], jnp.float32))
    three = jnp.ones(3, jnp.float32)
    made = [
        torques.zero,
        torques.heavy_top(2.0, three),
        torques.drag(three),
        torques.drag(jnp.eye(3, dtype=jnp.float32)),
        torques.magnetic(three, lambda t: three),
        torques.gravity_gradient(jq.Body(jnp.asarray(INERTIA, jnp.float32)), lambda t: 7e6 * three),
        torques.in_world(lambda t, state, params: three),
    ]
    for torque in (*made, torques.total(*made)):
        got = jax.eval_shape(torque, jnp.float32(0), state, None)
        assert (got.shape, got.dtype) == ((3,), jnp.float32)


def test_gradients_flow_to_what_the_factories_hold():
    state = jax.tree.map(lambda x: x[0], STATES)

    def squared(weight, offset, damping, inertia):
        held = torques.total(
            torques.heavy_top(weight, offset),
            torques.drag(damping),
            torques.gravity_gradient(jq.Body(inertia), lambda t: jnp.asarray(PLACE), 5.0),
        )
        return jnp.sum(held(jnp.asarray(0.0), state, None) ** 2)

    arguments = (
        jnp.asarray(2.0),
        jnp.array([0.1, 0.2, 0.3]),
        jnp.array([1.0, 2, 3]),
        jnp.asarray(INERTIA),
    )
    for gradient in jax.jit(jax.grad(squared, argnums=(0, 1, 2, 3)))(*arguments):
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0

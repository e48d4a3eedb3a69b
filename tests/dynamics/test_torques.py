"""Torques: gradients of potentials, sums over point masses, and formulas by hand."""

import inspect
import re
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxquat as jq
from jaxquat import quaternion, torques
from jaxquat.dynamics import Torque
from jaxquat.dynamics.contract import Commanded, evaluate

RNG = np.random.default_rng(2)
N = 50
Q = RNG.normal(size=(N, 4))
Q /= np.linalg.norm(Q, axis=-1, keepdims=True)
OMEGA = RNG.normal(size=(N, 3))
STATES = jq.State(jnp.asarray(Q), jnp.asarray(OMEGA))
ROTATIONS = Rotation.from_quat(np.roll(Q, -1, axis=-1))  # body to world
INERTIA = np.array([[0.6, 0.1, -0.2], [0.1, 1.0, 0.05], [-0.2, 0.05, 1.3]])


def over_states(torque, t=0.7, params=None):
    at_state = jax.vmap(lambda state: torque(jnp.asarray(t), state, params))
    return np.asarray(jax.jit(at_state)(STATES))


def from_potential(potential):
    """Torque in body axes: - d/dv U(q exp v) at v = 0."""

    def torque(t, state, params):
        def turned(v):
            return potential(quaternion.multiply(state.q, quaternion.exp(v)))

        return -jax.grad(turned)(jnp.zeros(3))

    return over_states(torque)


def test_heavy_top_is_the_gradient_of_its_potential():
    weight, offset = 3.2, jnp.array([0.1, -0.4, 0.9])
    wanted = from_potential(lambda q: weight * quaternion.rotate(q, offset)[2])
    got = over_states(torques.heavy_top(weight, offset))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)


def test_heavy_top_falls_on_once_it_is_tipped():
    """Upright it is in equilibrium; lying after a turn about x, 2 N at 1.5 m turn it on about x."""
    torque = torques.heavy_top(2.0, jnp.array([0.0, 0, 1.5]))
    upright = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3))
    np.testing.assert_array_equal(torque(0.0, upright, None), np.zeros(3))
    tipped = jq.State(jnp.array([np.sqrt(0.5), np.sqrt(0.5), 0, 0]), jnp.zeros(3))
    np.testing.assert_allclose(torque(0.0, tipped, None), [3.0, 0, 0], rtol=0, atol=1e-15)


# Gravity gradient

PLACE = np.array([3.0, -1.0, 2.0])


def error_of_gravity_gradient(size):
    """Its error for eight masses in pairs ±r, so that odd powers of r/R cancel, over the torque."""
    places = size * np.array([[1.0, 0.2, 0.1], [0.1, 1.5, -0.3], [0.0, -0.4, 0.7], [0.5, 0.5, 0.5]])
    places, masses = np.concatenate([places, -places]), np.tile([1.0, 0.7, 2.0, 0.4], 2)
    square = np.sum(places**2, axis=-1)
    outer = np.einsum("n,ni,nj->ij", masses, places, places)
    inertia = np.einsum("n,n,ij->ij", masses, square, np.eye(3)) - outer
    mu = 5.0
    arms = ROTATIONS.as_matrix() @ places.T  # (N, 3, 8), world
    away = PLACE[:, None] + arms
    forces = -mu * masses * away / np.linalg.norm(away, axis=1, keepdims=True) ** 3
    exact = ROTATIONS.inv().apply(np.cross(arms, forces, axis=1).sum(axis=-1))
    got = over_states(torques.gravity_gradient(jq.Body(inertia), mu, lambda t: jnp.asarray(PLACE)))
    return np.abs(got - exact).max() / np.abs(exact).max()


def test_gravity_gradient_is_the_leading_term_of_the_sum_over_point_masses():
    """The relative remainder is of second order in the size of the body over its distance."""
    coarse, fine = error_of_gravity_gradient(1e-2), error_of_gravity_gradient(1e-3)
    assert coarse < 1e-3
    assert fine == pytest.approx(coarse / 100, rel=0.02)


def test_gravity_gradient_vanishes_on_principal_axes():
    body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5]))
    upright = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3))
    for axis in np.eye(3):
        torque = torques.gravity_gradient(
            body, position=lambda t, axis=axis: 7e6 * jnp.asarray(axis)
        )
        np.testing.assert_array_equal(torque(jnp.asarray(0.0), upright, None), np.zeros(3))
    sphere = jq.Body(2.0 * jnp.eye(3))
    near = over_states(torques.gravity_gradient(sphere, 1.0, lambda t: jnp.asarray(PLACE)))
    np.testing.assert_allclose(near, 0, atol=1e-16)


def test_gravity_gradient_in_an_orbit_of_the_earth():
    """45 degrees off the vertical in the plane of axes 1 and 3, in both precisions.

    The torque is 3/2 n^2 (I1 - I3) about axis 2, with n^2 = mu/r^3.
    """
    radius = 7e6
    for dtype, tolerance in ((jnp.float32, 1e-6), (jnp.float64, 1e-14)):
        body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5], dtype))
        place = jnp.array([1.0, 0, 1.0], dtype) * jnp.asarray(radius / np.sqrt(2), dtype)
        state = jq.State(jnp.array([1.0, 0, 0, 0], dtype), jnp.zeros(3, dtype))
        torque = torques.gravity_gradient(body, position=lambda t, place=place: place)
        got = torque(jnp.asarray(0.0, dtype), state, None)
        assert got.dtype == dtype
        wanted = 1.5 * 3.986004418e14 / radius**3 * (1.0 - 2.5)
        np.testing.assert_allclose(got, [0, wanted, 0], rtol=tolerance, atol=0)


# Drag, world axes, sums


def test_drag_is_minus_a_matrix_times_the_rate():
    matrix = np.array([[1.0, 0.2, 0], [0.2, 2.0, 0.3], [0, 0.3, 3.0]])
    diagonal = np.array([1.0, 2, 3])
    got = over_states(torques.drag(diagonal))
    np.testing.assert_allclose(got, -OMEGA * diagonal, rtol=1e-15)
    got = over_states(torques.drag(matrix))
    np.testing.assert_allclose(got, -OMEGA @ matrix, rtol=0, atol=1e-14)


def test_in_world_turns_a_world_torque_into_the_body():
    torque = torques.in_world(lambda t, state, params: t * params + state.omega)
    got = over_states(torque, params=jnp.array([1.0, 2, 3]))
    wanted = ROTATIONS.inv().apply(0.7 * np.array([1.0, 2, 3]) + OMEGA)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)


def test_total_is_the_sum_and_passes_everything_on():
    top = torques.heavy_top(2.0, jnp.array([0.0, 0.1, 0.3]))
    drag = torques.drag(jnp.array([1.0, 2, 3]))
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


def wind(t, state, params, command):
    return t * PUSH + command


def constant_command(t, state, memory, params, sampled_input):
    return params, memory


def test_a_plant_is_a_sum_with_the_command_in_it():
    """``commanded`` returns it, drag ignores it, a user's torque takes it, in the world too."""
    plant = torques.total(torques.commanded, torques.drag(DAMPING), torques.in_world(wind))
    command = jnp.array([-1.0, 0.5, 0.2])
    of_wind = ROTATIONS[0].inv().apply(np.array(0.5 * PUSH + command))
    wanted = command - DAMPING * ONE.omega + of_wind
    np.testing.assert_allclose(plant(0.5, ONE, None, command), wanted, rtol=0, atol=1e-15)
    controller = jq.Controller(lambda start, params: (), constant_command)
    body, grid = jq.Body(INERTIA), jq.grid(0.5, 0.01, 1)
    path = jq.rollout(jq.lie_euler, body, plant, ONE, grid, command, controller=controller)
    step = jq.lie_euler(body, lambda t, state, params: jnp.asarray(wanted), 0.5, ONE, 0.01, None)
    np.testing.assert_allclose(path.state.omega[-1], step.omega, rtol=0, atol=1e-15)


def test_aux_states_move_through_sums_and_the_world():
    """Rates of aux states are passed on, and added where several torques return some."""
    state = ONE._replace(aux={"a": jnp.zeros(2)})

    def wheels(t, state, params):
        return PUSH, {"a": jnp.array([1.0, t])}

    drag, in_world = torques.drag(DAMPING), torques.in_world(wheels)
    tau, rates = torques.total(drag, wheels, in_world, torques.zero)(0.5, state, None)
    wanted = PUSH - DAMPING * ONE.omega + ROTATIONS[0].inv().apply(np.array(PUSH))
    np.testing.assert_allclose(tau, wanted, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(rates["a"], [2.0, 1.0])


def bent(t, state, params):
    return ONE.omega, ONE.q


WANTED = "wanted an array of shape (3,)"
REFUSED = {
    "torques.commanded: wanted a controller or inputs, which command a torque, got neither": (
        torques.commanded, ()
    ),
    "torque: wanted torque(t, state, params, command)": (torques.total(pushing), (PUSH,)),
    "torque: wanted torque(t, state, params)": (torques.total(wind), ()),
    "world_torque: wanted world_torque(t, state, params, command) because there is a controller, "
    "or inputs, got pushing(t, st": (torques.in_world(pushing), (PUSH,)),
    f"torque commanded: {WANTED}": (torques.total(torques.commanded), ({"u": PUSH},)),
    f"world_torque <lambda>: {WANTED}": (torques.in_world(lambda t, s, p: s.q), ()),
    f"torque bent: {WANTED}": (torques.total(bent), ()),
    "position(t): wanted shape (3,), got (2": (
        torques.gravity_gradient(jq.Body(INERTIA), position=lambda t: PUSH[:2]), ()
    ),
    "state: wanted position and velocity, got neither; or pass torques.gravity_gradient a pos": (
        torques.gravity_gradient(jq.Body(INERTIA)), ()
    ),
}  # fmt: skip
"""The error by its beginning: the torque, and the command."""


@pytest.mark.parametrize("message", REFUSED)
def test_torques_of_the_wrong_kind_are_named(message):
    torque, command = REFUSED[message]
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(message)):
        torque(0.0, ONE, None, *command)


def test_the_gravity_gradient_in_the_order_of_the_last_release_is_told_the_new_one():
    order = r"^mu: .* a function; the order is jq.torques.gravity_gradient\(body, mu, position\)$"
    with pytest.raises(TypeError, match=order):
        torques.gravity_gradient(jq.Body(INERTIA), lambda t: PUSH, 1.0)


PARTS = (torques.zero, torques.drag(DAMPING), torques.in_world(pushing))
NAMED = {
    "total(zero, drag, in_world(pushing))": torques.total(*PARTS),
    "gravity_gradient": torques.gravity_gradient(jq.Body(INERTIA), position=lambda t: PUSH),
    "heavy_top": torques.heavy_top(1.0, PUSH),
}


@pytest.mark.parametrize("name", NAMED)
def test_torques_have_names_for_errors(name):
    state = ONE._replace(aux=jnp.zeros(2))
    message = re.escape(f"torque {name}: wanted (torque, d aux/dt)")
    with pytest.raises(TypeError, match="^" + message):
        evaluate(NAMED[name], 0.0, state, None)


@pytest.mark.parametrize("around", [torques.total, torques.in_world])
def test_rates_unlike_the_aux_states_are_refused_within_other_torques(around):
    state = ONE._replace(aux=jnp.zeros(2))
    message = r"torque <lambda>: wanted d aux/dt like state.aux, float64\[2\], got float64\[3\]"
    with pytest.raises(ValueError, match=message):
        around(lambda t, s, p: (PUSH, PUSH))(0.0, state, None)


def test_the_examples_of_the_contract_are_torques():
    """The functions in the docstring of ``Torque``; its wheels are those of ``actuators``."""
    prose = inspect.getdoc(Torque).split("Examples:\n")[0]  # what follows has prompts
    blocks = re.findall(r"((?:^    .*\n)+)", prose, re.M)
    examples = {"quaternion": quaternion, "jnp": jnp}
    exec("\n".join(map(textwrap.dedent, blocks)), examples)
    params = {"stiffness": 2.0, "damping": DAMPING, "efficiency": 0.5}
    spring, *_ = evaluate(examples["spring"], 0.0, ONE, params)
    np.testing.assert_allclose(spring, -2.0 * quaternion.log(ONE.q) - DAMPING * ONE.omega)
    motors, *_ = evaluate(Commanded(examples["motors"], PUSH), 0.0, ONE, params)
    np.testing.assert_allclose(motors, 0.5 * PUSH - DAMPING * ONE.omega)
    state = ONE._replace(aux=2.0 * PUSH)
    wheels, rates, _ = evaluate(Commanded(examples["wheels"], PUSH), 0.0, state, params)
    wanted = jq.actuators.wheel_torque(np.eye(3), state, state.aux, PUSH)
    np.testing.assert_allclose(wheels, wanted, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(rates, PUSH)


def test_float32_stays_float32():
    state = jq.State(jnp.asarray(Q[0], jnp.float32), jnp.asarray(OMEGA[0], jnp.float32))
    three = jnp.ones(3, jnp.float32)
    made = [
        torques.zero,
        torques.heavy_top(2.0, three),
        torques.drag(three),
        torques.drag(jnp.eye(3, dtype=jnp.float32)),
        torques.gravity_gradient(
            jq.Body(jnp.asarray(INERTIA, jnp.float32)), position=lambda t: 7e6 * three
        ),
        torques.in_world(lambda t, state, params: three),
    ]
    for torque in (*made, torques.total(*made)):
        got = jax.eval_shape(torque, jnp.float32(0), state, None)
        assert (got.shape, got.dtype) == ((3,), jnp.float32)


def test_gradients_flow_to_the_arrays_that_factories_were_given():
    def squared(weight, offset, damping, inertia):
        torque = torques.total(
            torques.heavy_top(weight, offset),
            torques.drag(damping),
            torques.gravity_gradient(jq.Body(inertia), 5.0, lambda t: jnp.asarray(PLACE)),
        )
        return jnp.sum(torque(jnp.asarray(0.0), ONE, None) ** 2)

    arguments = (jnp.asarray(2.0), 0.1 * PUSH, PUSH, jnp.asarray(INERTIA))
    for gradient in jax.jit(jax.grad(squared, argnums=(0, 1, 2, 3)))(*arguments):
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0

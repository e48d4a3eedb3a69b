"""Euler's equation, energy and momentum, error states, linearisation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from examples.validation import problems
from jaxquat.dynamics.state import error_size, near

BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
STATE = jq.State(
    jnp.asarray(problems.TILTED),
    jnp.array([0.5, -1.0, 0.7]),
    {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)},
)

local, retract = jax.jit(jq.dynamics.local), jax.jit(jq.dynamics.retract)


def test_the_derivative_of_the_rate_balances_the_momentum():
    """In world axes L' = tau: R (I omega' + omega × I omega) = R tau."""
    tau = jnp.array([0.3, -0.2, 0.9])
    state, torque = STATE._replace(aux=()), lambda t, state, params: tau
    omega_dot = jq.dynamics.derivative(BODY, torque, 0.0, state, None).omega
    balance = BODY.inertia @ omega_dot + jnp.cross(STATE.omega, BODY.inertia @ STATE.omega)
    np.testing.assert_allclose(balance, tau, atol=1e-15)


def test_energy_and_momentum_of_a_spin_about_a_principal_axis():
    about_z, about_x = np.pi / 2 * jnp.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]), jq.quaternion.exp(about_z))
    state = jq.State(jq.quaternion.exp(about_x), jnp.array([2.0, 0.0, 0.0]))
    # Body x is the second principal axis (moment 0.8) and stays world x under a turn about x.
    np.testing.assert_allclose(jq.dynamics.energy(body, state), 0.5 * 0.8 * 4.0, rtol=1e-15)
    np.testing.assert_allclose(jq.dynamics.momentum(body, state), [1.6, 0.0, 0.0], atol=1e-15)


def test_free_motion_keeps_energy_and_momentum():
    """With rkmk6 at h = 0.01 for 10 s they drift far less than its order lets them, world axes."""
    start, grid = jq.State(STATE.q, STATE.omega), jq.grid(0.0, 0.01, 1000, save_every=10)

    @jax.jit
    def fly():
        path = jq.rollout(jq.rkmk6, BODY, jq.torques.zero, start, grid)
        quantities = lambda s: (jq.dynamics.energy(BODY, s), jq.dynamics.momentum(BODY, s))
        return jax.vmap(quantities)(path.state)

    energy, momentum = fly()
    assert np.abs(energy / energy[0] - 1).max() < 1e-12
    assert np.ptp(momentum, axis=0).max() < 1e-12


@pytest.mark.parametrize(
    "state", [STATE, STATE._replace(position=jnp.ones(3), velocity=-jnp.ones(3))]
)
def test_the_near_retraction_has_two_derivatives_of_the_retraction(state):
    """Value, Jacobian and second derivatives at 0, also of the error that ``local`` returns."""
    zero, other = jnp.zeros(error_size(state)), retract(state, jnp.full(error_size(state), 0.3))

    def of(moved):
        both = lambda delta: (moved(state, delta), jq.dynamics.local(other, moved(state, delta)))
        first = jax.jacfwd(both)
        return jax.jit(lambda x: (both(x), first(x), jax.jacfwd(first)(x)))(zero)

    close = functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-14)
    jax.tree.map(close, of(near), of(jq.dynamics.retract))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_retract_and_local_invert_each_other(dtype):
    state = jax.tree.map(lambda x: x.astype(dtype), STATE)
    delta = jnp.array([0.5, -1.2, 0.8, 0.1, 0.2, -0.3, 1.0, -2.0, 0.5], dtype)
    other = retract(state, delta)
    assert jax.tree.structure(other) == jax.tree.structure(state)
    assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(other))
    np.testing.assert_allclose(local(state, other), delta, atol=8 * np.finfo(dtype).eps)
    plain = jq.State(state.q, state.omega)
    assert np.abs(local(plain, plain)).max() < np.finfo(dtype).eps
    assert retract(plain, jnp.zeros(6, dtype)).aux == ()


def test_local_ignores_the_sign_of_the_quaternion():
    delta = np.arange(9.0) / 10
    other = retract(STATE, delta)
    other = other._replace(q=-np.asarray(other.q))
    np.testing.assert_allclose(local(STATE, other), delta, atol=1e-15)


def test_linearize_against_differences():
    """A and B of a forced step with aux states, by central differences of the error state."""

    def torque(t, state, u):
        tau = u["force"] - 0.3 * state.omega + 0.1 * state.aux["a"][0] * jnp.ones(3)
        return tau, {"a": -state.aux["a"], "b": u["feed"]}

    u = {"feed": jnp.array(0.4), "force": jnp.array([0.3, -0.1, 0.2])}
    step = jax.jit(lambda s, u: jq.lie_euler(BODY, torque, 0.2, s, 0.1, u))
    a, b = jax.jit(lambda: jq.dynamics.linearize(jq.lie_euler, BODY, torque, 0.2, STATE, 0.1, u))()
    assert a.shape == (9, 9)
    assert b.shape == (9, 4)
    end, h = step(STATE, u), 1e-5
    flat, unravel = jax.flatten_util.ravel_pytree(u)
    of_state = lambda x: jq.dynamics.local(end, step(jq.dynamics.retract(STATE, x), u))
    of_params = lambda x: jq.dynamics.local(end, step(STATE, unravel(flat + x)))
    for jacobian, moved in ((a, of_state), (b, of_params)):
        many, axes = jax.jit(jax.vmap(moved)), h * np.eye(jacobian.shape[1])
        got = np.asarray(many(axes) - many(-axes)) / (2 * h)
        np.testing.assert_allclose(jacobian, got.T, atol=1e-9)


@pytest.mark.slow
def test_linearize_at_rest_is_the_double_integrator():
    """There angle' = rate and rate' = I^-1 u, so A = [[1, h], [0, 1]] and B = [h^2/2; h] I^-1."""
    body = problems.reference_body()
    rest = jq.State(jnp.asarray(problems.TILTED), jnp.zeros(3))
    taken = jq.rkmk2, body, lambda t, s, u: u, 0.0, rest, 0.1
    a, b = jax.jit(lambda: jq.dynamics.linearize(*taken, jnp.zeros(3)))()
    eye, zero = np.eye(3), np.zeros((3, 3))
    np.testing.assert_allclose(a, np.block([[eye, 0.1 * eye], [zero, eye]]), atol=1e-15)
    wanted = np.vstack([0.005 * eye, 0.1 * eye]) / problems.MOMENTS
    np.testing.assert_allclose(b, wanted, atol=1e-15)


def test_a_step_without_parameters_is_linearised():
    """A rate moves the attitude of a resting free body by dt omega; B has no columns."""
    rest, eye, zero = jq.State(STATE.q, jnp.zeros(3)), np.eye(3), np.zeros((3, 3))
    taken = jq.lie_euler, BODY, jq.torques.zero, 0.0, rest, 0.1, None
    a, b = jax.jit(lambda: jq.dynamics.linearize(*taken))()
    np.testing.assert_allclose(a, np.block([[eye, 0.1 * eye], [zero, eye]]), atol=1e-14)
    assert b.shape == (6, 0)


def test_energies_and_momenta_of_many_states_at_once():
    rows = jq.State(jnp.stack([STATE.q] * 4), jnp.arange(12.0).reshape(4, 3))
    for quantity in (jq.dynamics.energy, jq.dynamics.momentum):
        with jax.numpy_rank_promotion("allow"):
            together = quantity(BODY, rows)
        one_by_one = jax.jit(jax.vmap(quantity, (None, 0)))(BODY, rows)
        np.testing.assert_allclose(together, one_by_one, rtol=1e-14)

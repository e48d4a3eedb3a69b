"""Bodies that also move: Newton's equation, energy and momenta, error states, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from examples.validation import problems
from jaxquat import dynamics, quaternion

BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]), 1.7)
TURNING = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.5, -1.0, 0.7]))
MOVING = TURNING._replace(
    position=jnp.array([1.0, -2.0, 0.5]), velocity=jnp.array([0.3, 0.8, -1.1])
)
FORCE, TORQUE = jnp.array([0.4, -0.7, 1.9]), jnp.array([-0.3, 0.2, 0.6])
LAGGING = MOVING._replace(aux=jnp.array([0.1, 0.2]))


def wrench(t, state, params):
    return jq.Wrench(TORQUE, FORCE)


def along(quantity, torque=wrench, state=MOVING):
    """The derivative by time of a quantity of the state, along the motion."""
    rates = dynamics.derivative(BODY, torque, 0.0, state, None)
    q_dot = 0.5 * quaternion.multiply(state.q, jnp.concatenate([jnp.zeros(1), state.omega]))
    return jax.jvp(quantity, (state,), (jq.State(q_dot, *rates),))[1]


def test_power_is_the_rate_of_the_energy():
    power = TORQUE @ MOVING.omega + FORCE @ MOVING.velocity
    got = along(lambda state: dynamics.energy(BODY, state))
    np.testing.assert_allclose(got, power, rtol=1e-14)


def test_the_force_is_the_rate_of_the_linear_momentum():
    got = along(lambda state: BODY.mass * state.velocity)
    np.testing.assert_allclose(got, FORCE, rtol=1e-14)


def test_the_moment_about_a_point_is_the_rate_of_the_angular_momentum_about_it():
    point, spin = jnp.array([0.2, 0.1, -3.0]), quaternion.rotate(MOVING.q, TORQUE)
    got = along(lambda state: dynamics.momentum(BODY, state, about=point))
    moment = spin + jnp.cross(MOVING.position - point, FORCE)
    np.testing.assert_allclose(got, moment, atol=1e-14)
    got = along(lambda state: dynamics.momentum(BODY, state))
    np.testing.assert_allclose(got, spin, atol=1e-15)
    at = dynamics.momentum(BODY, MOVING, about=MOVING.position)
    np.testing.assert_allclose(at, dynamics.momentum(BODY, MOVING), atol=1e-15)


def test_quantities_of_many_states_at_once():
    rows = jax.tree.map(lambda x: jnp.stack([x, 2 * x, -x]), MOVING)
    rows = rows._replace(q=jnp.stack([MOVING.q] * 3))
    about = lambda state: dynamics.momentum(BODY, state, about=jnp.ones(3))
    for quantity in (
        lambda state: dynamics.energy(BODY, state),
        about,
    ):
        with jax.numpy_rank_promotion("allow"):
            together = quantity(rows)
        np.testing.assert_allclose(together, jax.jit(jax.vmap(quantity))(rows), rtol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_retract_and_local_invert_each_other(dtype):
    state = jax.tree.map(lambda x: x.astype(dtype), LAGGING)
    delta = jnp.linspace(-1.0, 1.0, 14, dtype=dtype)
    other = jax.jit(dynamics.retract)(state, delta)
    assert {leaf.dtype for leaf in jax.tree.leaves(other)} == {jnp.dtype(dtype)}
    got = jax.jit(dynamics.local)(state, other)
    np.testing.assert_allclose(got, delta, atol=8 * np.finfo(dtype).eps)
    np.testing.assert_allclose(other.position - state.position, delta[6:9], atol=1e-6)
    np.testing.assert_allclose(other.velocity - state.velocity, delta[9:12], atol=1e-6)


@pytest.mark.slow
def test_linearize_against_differences():
    def torque(t, state, u):
        tau = u - 0.3 * state.omega + 0.2 * jnp.sin(state.position)
        return jq.Wrench(tau, quaternion.rotate(state.q, u) - 0.4 * state.velocity)

    u = jnp.array([0.3, -0.1, 0.2])
    step = jax.jit(lambda state, u: jq.rkmk4(BODY, torque, 0.2, state, 0.1, u))
    a, b = jax.jit(lambda: dynamics.linearize(jq.rkmk4, BODY, torque, 0.2, MOVING, 0.1, u))()
    assert a.shape == (12, 12)
    assert b.shape == (12, 3)
    end, h = step(MOVING, u), 1e-5
    of_state = lambda x: dynamics.local(end, step(dynamics.retract(MOVING, x), u))
    of_params = lambda x: dynamics.local(end, step(MOVING, u + x))
    for jacobian, moved in ((a, of_state), (b, of_params)):
        many, axes = jax.jit(jax.vmap(moved)), h * jnp.eye(jacobian.shape[1])
        got = (many(axes) - many(-axes)) / (2 * h)
        np.testing.assert_allclose(jacobian, got.T, atol=1e-9)


def test_total_adds_torques_and_wrenches():
    plain = lambda t, state, params: 2.0 * TORQUE
    tau, force = jq.torques.total(wrench, plain, wrench)(0.0, MOVING, None)
    np.testing.assert_allclose(tau, 4 * TORQUE, rtol=1e-15)
    np.testing.assert_allclose(force, 2 * FORCE, rtol=1e-15)
    assert not isinstance(jq.torques.total(plain, plain)(0.0, MOVING, None), jq.Wrench)
    lag = lambda t, state, params: (jq.Wrench(TORQUE, FORCE), -state.aux)
    load, rates = jq.torques.total(lag, wrench, plain, lag)(0.0, LAGGING, None)
    np.testing.assert_allclose(load.torque, 5 * TORQUE, rtol=1e-15)
    np.testing.assert_allclose(load.force, 3 * FORCE, rtol=1e-15)
    np.testing.assert_allclose(rates, -2 * LAGGING.aux, rtol=1e-15)


def test_in_world_turns_the_torque_and_leaves_the_force():
    tau, force = jq.torques.in_world(wrench)(0.0, MOVING, None)
    np.testing.assert_allclose(quaternion.rotate(MOVING.q, tau), TORQUE, atol=1e-15)
    np.testing.assert_array_equal(force, FORCE)


def test_a_torque_alone_exerts_no_force():
    rates = dynamics.derivative(BODY, lambda t, s, p: TORQUE, 0.0, MOVING, None)
    np.testing.assert_array_equal(rates.position, MOVING.velocity)
    np.testing.assert_array_equal(rates.velocity, jnp.zeros(3))


def test_a_state_without_position_has_no_more_leaves_than_before():
    assert len(jax.tree.leaves(TURNING)) == 2
    rates = dynamics.derivative(BODY, jq.torques.zero, 0.0, TURNING, None)
    assert len(jax.tree.leaves(rates)) == 1


def test_bodies_keep_their_mass():
    for body in (
        jq.Body.box(2.5, jnp.ones(3)),
        jq.Body.cylinder(2.5, 0.1, 1.0),
        jq.Body.random(jax.random.key(0), mass=2.5),
        jq.Body.from_principal(jnp.ones(3), mass=2.5),
        jq.Body.from_parameters(jnp.zeros(6), 2.5),
        jq.Body(np.eye(3, dtype=np.float32), 2.5),
    ):
        assert body.mass == 2.5
        assert body.mass.dtype == body.inertia.dtype
        assert "mass=2.5" in repr(body)
    assert jq.Body(jnp.eye(3)).mass is None
    # It turns about a point that is not its centre of mass, where Newton's equation does not hold.
    assert jq.Body.box(2.5, jnp.ones(3)).shifted(2.5, jnp.ones(3)).mass is None


NO_MASS = jq.Body(jnp.eye(3))
HALF = MOVING._replace(velocity=None)
STEP = (0.0, MOVING, 0.1, None)


def returning(value):
    return lambda t, state, params: value


def flown(start):
    return jq.rollout(jq.rkmk4, BODY, wrench, start, jq.grid(0, 0.1, 2))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: jq.Body(jnp.eye(3), -1.0), ValueError, "mass: wanted .*positive.*got -1"),
        (lambda: jq.Body(jnp.eye(3), np.float32(1)), TypeError, "mass: wanted the dtype of the in"),
        (
            lambda: jq.rkmk4(NO_MASS, wrench, *STEP),
            ValueError,
            "body: wanted a mass because the state has a position, got none",
        ),
        (
            lambda: jq.rollout(jq.rkmk4, NO_MASS, wrench, MOVING, jq.grid(0, 0.1, 2)),
            ValueError,
            "body: wanted a mass because the state has a position, got none",
        ),
        (
            lambda: jq.rkmk4(BODY, wrench, 0.0, HALF, 0.1, None),
            ValueError,
            "state: wanted position and velocity, or neither, got position without velocity",
        ),
        (
            lambda: flown(HALF),
            ValueError,
            "start: wanted position and velocity, or neither, got position without velocity",
        ),
        (
            lambda: flown(MOVING._replace(position=MOVING.position.at[1].set(np.nan))),
            ValueError,
            r"start.position: wanted finite values, got \[ *1. +nan",
        ),
        (
            lambda: flown(MOVING._replace(velocity=MOVING.velocity.at[2].set(np.inf))),
            ValueError,
            r"start.velocity: wanted finite values, got \[.* inf\]",
        ),
        (
            lambda: jq.rkmk4(BODY, wrench, 0.0, MOVING._replace(velocity=jnp.ones(2)), 0.1, None),
            ValueError,
            r"state.velocity: wanted .*\(3,\), got \(2,\)",
        ),
        (
            lambda: jq.rkmk4(BODY, wrench, 0.0, TURNING, 0.1, None),
            TypeError,
            "torque wrench: wanted a torque alone because the state has no position, got .*Wrench",
        ),
        (
            lambda: jq.rkmk4(BODY, returning(jq.Wrench(TORQUE, FORCE[:2])), *STEP),
            ValueError,
            r"torque <lambda>, force: wanted an array of shape \(3,\)",
        ),
        (
            lambda: jq.rkmk4(BODY, returning(jq.Wrench(TORQUE, 1.0)), *STEP),
            TypeError,
            r"torque <lambda>, force: wanted an array of shape \(3,\)",
        ),
        (
            lambda: jq.rkmk4(BODY, returning((TORQUE, FORCE)), *STEP),
            TypeError,
            r"torque <lambda>: wanted an array of shape \(3,\)",
        ),
        (
            lambda: jq.rkmk4(BODY, wrench, 0.0, LAGGING, 0.1, None),
            TypeError,
            r"torque wrench: wanted \(torque, d aux/dt\) because the state has aux",
        ),
        (
            lambda: jq.symmetric_top(BODY, lambda t, s, p: jq.Wrench(TORQUE, -s.velocity), *STEP),
            TypeError,
            "symmetric_top: wanted a torque of time and attitude.* which reads state.velocity",
        ),
        (
            lambda: jq.lgvi(BODY, lambda t, s, p: jq.Wrench(s.omega, FORCE), *STEP),
            TypeError,
            "lgvi: wanted a torque of time and attitude.* which reads state.omega",
        ),
        (
            lambda: dynamics.momentum(BODY, TURNING, about=jnp.zeros(3)),
            ValueError,
            "state: wanted position and velocity, got neither",
        ),
        (lambda: dynamics.energy(NO_MASS, MOVING), ValueError, "body: wanted a mass, got none"),
        (
            lambda: dynamics.local(MOVING, TURNING),
            ValueError,
            "b: wanted a state with position, like a, got one without",
        ),
    ],
)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("name", [n for n, s in jq.schemes.SCHEMES.items() if not s.translation])
def test_schemes_that_do_not_move_bodies_say_so(name):
    state = problems.start_of(name, TURNING.q, TURNING.omega)
    state = state._replace(position=MOVING.position, velocity=MOVING.velocity)
    with pytest.raises(TypeError, match=f"{name}: wanted a state without position, got one with"):
        jq.schemes.SCHEMES[name](BODY, jq.torques.zero, 0.0, state, 0.1, None)

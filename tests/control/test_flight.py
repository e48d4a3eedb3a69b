"""Position control of a rotorcraft: what Lee, Leok and McClamroch prove, and closed forms.

The position and the velocity of the craft are aux states here.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from jaxquat import control, quaternion
from jaxquat.control.reference import attitude_of

MASS, G = 1.3, 9.80665
BODY = jq.Body(jnp.array([[0.02, 0.001, -0.002], [0.001, 0.03, 0.0], [-0.002, 0.0, 0.04]]), MASS)
GAINS = control.FlightGains(
    position=jnp.array([5.0, 4.0, 8.0]),
    velocity=jnp.array([4.0, 4.5, 6.0]),
    damping=jnp.full(3, 0.5),
    stiffness=jnp.full(3, 2.0),
)
Z = jnp.array([0.0, 0.0, 1.0])


def figure_eight(t):
    return jnp.stack([2.0 * jnp.sin(t), jnp.sin(2.0 * t), 1.0 + 0.5 * jnp.cos(0.7 * t)])


def heading(t):
    return 0.5 * t


def course(t):
    return control.follow_position(figure_eight, t, heading)


def moving(state):
    """The state with the position and velocity that are its aux states."""
    return jq.State(state.q, state.omega, (), *state.aux)


def law(t, state, gains=GAINS):
    return control.flight_law(moving(state), gains, course(t), BODY)


def plant(t, state, params, lift):
    up = quaternion.rotate(state.q, jnp.asarray(Z, state.q.dtype))
    gravity = jnp.asarray(G * Z, state.q.dtype)
    return lift.torque, (state.aux[1], lift.thrust * up / MASS - gravity)


def closed_loop(t, state, gains):
    return plant(t, state, None, law(t, state, gains))


def off_course(t):
    """A state away from the course in all respects."""
    c = course(t)
    q = quaternion.exp(jnp.array([0.3, -0.5, 0.8]))
    x, v = c.position + jnp.array([0.3, -0.2, 0.5]), c.velocity + jnp.array([0.4, 0.1, -0.3])
    return jq.State(q, jnp.array([0.7, -0.4, 0.2]), (x, v))


def wanted_attitude(t, state):
    """Returns the attitude that the law wants, written anew from the paper by matrices."""
    (x, v), c = state.aux, course(t)
    force = -GAINS.position * (x - c.position) - GAINS.velocity * (v - c.velocity)
    force = force + MASS * (G * Z + c.acceleration)
    b3 = force / jnp.sqrt(jnp.sum(force**2))
    ahead = jnp.stack([jnp.cos(c.heading), jnp.sin(c.heading), jnp.zeros_like(c.heading)])
    b2 = jnp.cross(b3, ahead)
    b2 = b2 / jnp.sqrt(jnp.sum(b2**2))
    return jnp.stack([jnp.cross(b2, b3), b2, b3], axis=1)


def test_a_course_is_the_derivatives_of_its_functions():
    got = course(jnp.asarray(0.4))
    rates = [2.0, 1.0, -0.7 * 0.5]
    wanted = [2.0 * np.cos(0.4), 2.0 * np.cos(0.8), rates[2] * np.sin(0.28)]
    np.testing.assert_allclose(got.velocity, wanted, rtol=1e-14)
    wanted = [2.0 * np.sin(0.4), 16.0 * np.sin(0.8), 0.5 * 0.7**4 * np.cos(0.28)]
    np.testing.assert_allclose(got.snap, wanted, rtol=1e-13)
    np.testing.assert_allclose(got[5:], [0.2, 0.5, 0.0], rtol=1e-15)


@pytest.mark.parametrize("z", [1.0, -1.0])
def test_the_attitude_of_a_force_has_the_axes_of_the_paper(z):
    """Body z along the force; body x is the projection of the heading; upside down too."""
    rng = np.random.default_rng(1)
    force = rng.normal(size=(20, 3)) * np.array([1.0, 1.0, 0.5])
    force[:, 2] = z * np.abs(force[:, 2])
    angles = rng.uniform(-7, 7, 20)
    got = np.asarray(
        jax.jit(lambda *x: quaternion.to_matrix(jax.vmap(attitude_of)(*x)))(force, angles)
    )
    up = force / np.linalg.norm(force, axis=1, keepdims=True)
    ahead = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    ahead -= np.sum(ahead * up, axis=1, keepdims=True) * up
    ahead /= np.linalg.norm(ahead, axis=1, keepdims=True)
    np.testing.assert_allclose(got[:, :, 2], up, rtol=0, atol=1e-14)
    np.testing.assert_allclose(got[:, :, 0], ahead, rtol=0, atol=1e-13)


def test_the_attitude_error_follows_its_equation_exactly():
    """``I e_w' = -k_R e_R - k_w e_w`` along the closed loop, by differentiation of the errors.

    This holds only if the feed-forward has the true rate and acceleration of the wanted attitude.
    """
    t, state = jnp.asarray(0.6), off_course(0.6)

    def flow(t, state):
        rates = jq.dynamics.derivative(BODY, closed_loop, t, state, GAINS)
        q_dot = 0.5 * quaternion.multiply(state.q, jnp.concatenate([jnp.zeros(1), state.omega]))
        return jq.State(q_dot, *rates)

    def rate_error(t, state):
        rotation, along = quaternion.to_matrix(state.q), (jnp.ones_like(t), flow(t, state))
        wanted, slope = jax.jvp(wanted_attitude, (t, state), along)
        rate = wanted.T @ slope  # hat of the wanted rate in its own axes
        rate = jnp.stack([rate[2, 1], rate[0, 2], rate[1, 0]])
        skew = 0.5 * (wanted.T @ rotation - rotation.T @ wanted)
        e_r = jnp.stack([skew[2, 1], skew[0, 2], skew[1, 0]])
        return state.omega - rotation.T @ wanted @ rate, e_r

    @jax.jit
    def both(t, state):
        along = (jnp.ones_like(t), flow(t, state))
        e_w, slope, e_r = jax.jvp(rate_error, (t, state), along, has_aux=True)
        return BODY.inertia @ slope, -GAINS.stiffness * e_r - GAINS.damping * e_w

    got, wanted = both(t, state)
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12)


def on_attitude(dtype=jnp.float64):
    """A start at t = 0 off the course, with the wanted attitude and rate: a fixed point of both."""
    return jax.tree.map(lambda x: x.astype(dtype), of_wanted_rate())


@functools.cache
def of_wanted_rate():
    """The wanted rate depends on the rate itself through the jerk; two iterations give it."""
    state = off_course(0.0)
    rotation = wanted_attitude(jnp.asarray(0.0), state)
    state = state._replace(q=quaternion.from_matrix(rotation))

    @jax.jit
    def improved(omega):
        at = state._replace(omega=omega)
        v_dot = jq.dynamics.derivative(BODY, closed_loop, 0.0, at, GAINS).aux
        along = (jnp.ones(()), at._replace(q=0 * at.q, omega=0 * omega, aux=v_dot))
        slope = rotation.T @ jax.jvp(wanted_attitude, (jnp.zeros(()), at), along)[1]
        return jnp.stack([slope[2, 1], slope[0, 2], slope[1, 0]])

    omega = state.omega
    for _ in range(3):
        omega = improved(omega)
    return state._replace(omega=omega)


def decayed(t, start):
    """Position errors in closed form: three oscillators ``m e'' = -k_x e - k_v e'``."""
    (x, v), c = start.aux, course(jnp.asarray(0.0))
    e, e_dot = (np.asarray(a, float) for a in (x - c.position, v - c.velocity))
    k, d = np.asarray(GAINS.position) / MASS, np.asarray(GAINS.velocity) / MASS
    low, high = (0.5 * (-d + s * np.sqrt(d * d - 4.0 * k + 0j)) for s in (-1, 1))
    a = (high * e - e_dot) / (high - low)
    return (a * np.exp(low * t) + (e - a) * np.exp(high * t)).real


@functools.cache
def flown(scheme, steps, engine, dtype=jnp.float64):
    start = on_attitude(dtype)
    gains = jax.tree.map(lambda x: x.astype(dtype), GAINS)
    body = jax.tree.map(lambda x: x.astype(dtype), BODY)

    def torque(t, state, gains):
        lift = control.flight_law(moving(state), gains, course(t), body)
        return plant(t, state, None, lift)

    grid = jq.grid(0.0, 2.0 / steps, steps)
    run = jax.jit(
        lambda: (
            jq.rollout(
                scheme, body, torque, start, grid, gains, options=jq.RolloutOptions(engine=engine)
            ).final
        )
    )
    return run()


@pytest.mark.slow
def test_the_position_error_decays_as_in_closed_form_on_a_figure_eight():
    """Where the attitude has no error, the position errors are damped oscillators exactly."""
    start, end = on_attitude(), course(jnp.asarray(2.0)).position
    wanted = decayed(2.0, start)
    errors = [np.abs(flown(jq.rkmk4, n, "scan").aux[0] - end - wanted).max() for n in (100, 200)]
    assert errors[1] < 1e-7
    assert 3.7 < np.log2(errors[0] / errors[1]) < 4.4


@pytest.mark.needs("llvmlite")
@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(jnp.float64, 1e-11), (jnp.float32, 2e-4)])
def test_the_law_flies_in_the_fused_engine_and_in_float32(dtype, tolerance):
    wanted, got = flown(jq.rkmk4, 100, "scan"), flown(jq.rkmk4, 100, "fused", dtype)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


@pytest.mark.slow
def test_the_law_recovers_from_upside_down_and_has_gradients_by_its_gains():
    """The published example: a start almost inverted. The gradient is that of differences."""
    q = quaternion.exp(jnp.array([0.95 * np.pi, 0.0, 0.0]))
    still = control.hold_position(jnp.array([0.0, 0.0, 1.0]))

    def torque(t, state, gains):
        lift = control.flight_law(moving(state), gains, still, BODY)
        return plant(t, state, None, lift)

    def distance(gains, steps=600):
        start = jq.State(q, jnp.zeros(3), (jnp.zeros(3), jnp.zeros(3)))
        grid = jq.grid(0.0, 0.01, steps)
        final = jq.rollout(
            jq.rkmk2, BODY, torque, start, grid, gains, options=jq.RolloutOptions(engine="scan")
        ).final
        return jnp.sum((final.aux[0] - still.position) ** 2)

    assert jax.jit(distance)(GAINS) < 1e-4
    of_stiffness = lambda k: distance(GAINS._replace(stiffness=k), 150)
    slope = jax.jit(jax.grad(of_stiffness))(GAINS.stiffness)
    h = 1e-4 * np.eye(3)
    values = jax.jit(jax.vmap(of_stiffness))(GAINS.stiffness[None] + np.concatenate([h, -h]))
    np.testing.assert_allclose(slope, (values[:3] - values[3:]) / 2e-4, rtol=1e-6, atol=1e-9)
    assert np.abs(slope).max() > 1e-3


def test_hover_needs_the_weight_and_no_torque():
    still = control.hold_position(jnp.array([1.0, 2.0, 3.0]))
    level = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3), (), still.position, jnp.zeros(3))
    lift = jax.jit(lambda state: control.flight_law(state, GAINS, still, BODY))(level)
    np.testing.assert_allclose(lift.thrust, MASS * G, rtol=1e-15)
    np.testing.assert_array_equal(lift.torque, np.zeros(3))


def test_bad_input_of_the_law_is_named():
    state, v = moving(off_course(0.0)), jnp.zeros(3)
    still = control.hold_position(v)
    turning = state._replace(position=None, velocity=None)
    for changes, message in (
        ({"state": turning}, r"^state: wanted position and velocity, got neither"),
        ({"body": jq.Body(BODY.inertia)}, r"^body: wanted a mass, got none"),
        ({"gains": control.Gains(v, v)}, r"^gains: wanted control.FlightGains"),
        (
            {"reference": still._replace(jerk=Z[:2])},
            r"^reference.jerk: wanted shape \(3,\), got \(2,\)",
        ),
        (
            {"gravity": 0.0, "state": state._replace(position=v, velocity=v)},
            r"^reference: wanted a reference with a force that is neither 0 nor along",
        ),
    ):
        good = {"state": state, "gains": GAINS, "reference": still, "body": BODY}
        with pytest.raises((TypeError, ValueError), match=message):
            control.flight_law(**{**good, **changes})


def test_calls_in_the_order_of_the_last_release_are_told_the_new_one():
    state, v = moving(off_course(0.0)), jnp.zeros(3)
    still = control.hold_position(v)
    order = r"the order is jq.control.flight_law\(state, gains, reference, body, gravity\)$"
    with pytest.raises(TypeError, match=order):
        control.flight_law(state, v, v, GAINS, still, BODY, MASS)
    with pytest.raises(TypeError, match=r"^control.flight_law: mass is now body.mass"):
        control.flight_law(state, GAINS, still, BODY, mass=MASS)
    with pytest.raises(TypeError, match=r"position is now state._replace"):
        control.flight_law(state, gains=GAINS, position=v, velocity=v, reference=still, body=BODY)
    order = r"the order is jq.control.cascade\(body, period, reference\)$"
    with pytest.raises(TypeError, match=order):
        control.cascade(BODY, MASS, 0.01, still, lambda state, value: state.aux)
    with pytest.raises(TypeError, match=r"^control.cascade: motion is now measure=, which returns"):
        control.cascade(BODY, 0.01, still, motion=lambda state, value: state.aux)

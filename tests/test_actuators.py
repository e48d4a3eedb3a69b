"""Limits, lags, wheels, thrusters: exact solutions, conserved momentum, allocation against numpy and scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import scipy.optimize

import jaxquat as jq
from jaxquat import actuators

RNG = np.random.default_rng(5)
LIMITS = np.array([8.0, 2.0, 4.0])
TORQUES = np.array([[0.0, 0, 0], [7, -1, 3], [8, -2, 4], [9, -3, -100], [-1e300, 1e300, -4.1]])
BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
START = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.5, -1.0, 0.7]))
AXES = RNG.normal(size=(4, 3))
AXES /= np.linalg.norm(AXES, axis=1, keepdims=True)


def test_saturate():
    wanted = [[0, 0, 0], [7, -1, 3], [8, -2, 4], [8, -2, -4], [-8, 2, -4]]
    np.testing.assert_array_equal(actuators.saturate(TORQUES, LIMITS), wanted)
    slope = jax.grad(lambda tau: jnp.sum(actuators.saturate(tau, LIMITS)))(
        jnp.array([7.0, -3, 4.1])
    )
    np.testing.assert_array_equal(slope, [1, 0, 0])
    np.testing.assert_array_equal(
        actuators.saturate(jnp.arange(4.0), jnp.full(4, 1.5)), [0, 1, 1.5, 1.5]
    )  # four wheels


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


def lagged(time_constant):
    """The lag's state after 2 s of a unit command, and the rate of a unit inertia that it drives."""

    def torque(t, state, params):
        return state.aux, actuators.lag(state.aux, jnp.array([1.0, -2.0, 0.5]), params)

    start = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3), jnp.array([0.5, 0.0, 0.0]))
    return jq.rollout(
        jq.rkmk4,
        jq.Body(jnp.eye(3)),
        torque,
        start,
        jq.grid(0.0, 0.05, 40),
        time_constant,
        save_every=40,
    ).state


def test_lag_is_its_exponential():
    """State c + (a - c) exp(-t/T), the rate its integral, and the derivative by T; the step leaves 5 (1/8)^4/120 exp(-5) of it."""
    command, first = np.array([1.0, -2.0, 0.5]), np.array([0.5, 0, 0])
    constant = jnp.array(0.4)
    decay = np.exp(-2.0 / 0.4)
    end, slope = jax.jit(
        lambda T: jax.jvp(lambda T: (lagged(T).aux[-1], lagged(T).omega[-1]), (T,), (jnp.ones(()),))
    )(constant)
    np.testing.assert_allclose(end[0], command + (first - command) * decay, rtol=0, atol=2e-6)
    np.testing.assert_allclose(
        end[1], 2 * command + (first - command) * 0.4 * (1 - decay), rtol=0, atol=2e-6
    )
    np.testing.assert_allclose(slope[0], (first - command) * decay * 2 / 0.4**2, rtol=0, atol=2e-5)


def spinning(axes, dt, steps):
    """A body with four wheels driven by motors of time: its state, and the momentum of all in the world along the way."""

    def torque(t, state, axes):
        motor = jnp.sin(jnp.arange(1.0, 5.0) * t)
        return actuators.wheel_torque(axes, state, state.aux, motor), motor

    start = START._replace(aux=jnp.array([0.3, -0.2, 0.1, 0.4]))
    path = jq.rollout(jq.rkmk4, BODY, torque, start, jq.grid(0.0, dt, steps), axes)

    def total(state):
        return jq.dynamics.momentum(BODY, state) + jq.quaternion.rotate(
            state.q, jnp.sum(axes * state.aux[:, None], axis=0)
        )

    return path.state, jax.vmap(total)(path.state)


def test_wheels_conserve_the_momentum_of_all():
    """In the world, to the order of the scheme: four, as a slope; the body alone changes by as much as the wheels take."""
    errors = []
    for steps in (100, 200, 400):
        state, momentum = jax.jit(spinning, static_argnums=(1, 2))(
            jnp.asarray(AXES), 4.0 / steps, steps
        )
        errors.append(np.abs(momentum - momentum[:1]).max())
    assert errors[-1] < 1e-7
    assert abs(problems.slope(np.array([100, 200, 400]), np.array(errors)) - 4) < 0.15
    body = np.asarray(jax.vmap(lambda s: jq.dynamics.momentum(BODY, s))(state))
    assert np.abs(body - body[0]).max() > 0.1


def test_wheels_differentiate_by_their_axes_and_vmap():
    def last(axes):
        return spinning(axes, 0.1, 10)[0].omega[-1, 0]

    direction, axes = jnp.asarray(RNG.normal(size=(4, 3))), jnp.asarray(AXES)
    _, slope = jax.jit(lambda a, d: jax.jvp(last, (a,), (d,)))(axes, direction)
    shifts = jnp.array([-2.0, -1.0, 1.0, 2.0])[:, None, None] * 1e-3
    low2, low, high, high2 = jax.jit(jax.vmap(last))(axes[None] + shifts * direction[None])
    np.testing.assert_allclose(slope, (low2 - 8 * low + 8 * high - high2) / 12e-3, rtol=1e-9)


def test_full_wheels_are_not_driven_further():
    got = actuators.hold_momentum(
        jnp.array([2.0, 2.0, -2.5, 1.9]), jnp.array([1.0, -1.0, 1.0, -1.0]), jnp.array(2.0)
    )
    np.testing.assert_array_equal(got, [0.0, -1.0, 1.0, -1.0])


def test_allocation_is_the_pseudoinverse():
    tau = jnp.array([0.3, -0.2, 0.5])
    motor = actuators.allocate(AXES, tau)
    np.testing.assert_allclose(motor, -np.linalg.pinv(AXES.T) @ np.asarray(tau), rtol=0, atol=1e-14)
    still = jq.State(START.q, jnp.zeros(3))
    np.testing.assert_allclose(
        actuators.wheel_torque(AXES, still, jnp.ones(4), motor), tau, rtol=0, atol=1e-15
    )


def test_allocation_within_limits_keeps_the_direction():
    tau, limits = jnp.array([0.3, -0.2, 0.5]), jnp.array([0.1, 0.2, 0.3, 0.1])
    free, bound = actuators.allocate(AXES, tau), actuators.allocate(AXES, tau, limits)
    assert np.max(np.abs(bound) / limits) == pytest.approx(1.0, rel=1e-15)
    np.testing.assert_allclose(bound / free, np.min(np.asarray(limits) / np.abs(free)), rtol=1e-14)
    np.testing.assert_array_equal(
        actuators.allocate(AXES, 1e-3 * tau, limits), actuators.allocate(AXES, 1e-3 * tau)
    )
    slope = jax.jit(jax.jacfwd(lambda axes: actuators.allocate(axes, tau, limits)))(
        jnp.asarray(AXES)
    )
    shifted = [actuators.allocate(AXES + s * np.eye(4, 3), tau, limits) for s in (1e-5, -1e-5)]
    along = jnp.sum(slope * jnp.eye(4, 3)[None], axis=(1, 2))
    np.testing.assert_allclose(along, (shifted[0] - shifted[1]) / 2e-5, rtol=1e-8, atol=1e-12)


def test_one_limit_for_all():
    tau = jnp.array([0.3, -0.2, 0.5])
    for function in (actuators.saturate, actuators.saturate_smooth):
        np.testing.assert_array_equal(function(tau, 0.25), function(tau, jnp.full(3, 0.25)))
        assert function(tau.astype(jnp.float32), 0.25).dtype == jnp.float32
    np.testing.assert_array_equal(actuators.saturate(tau[None], 1), tau[None])
    np.testing.assert_array_equal(
        actuators.allocate(AXES, tau, 0.1), actuators.allocate(AXES, tau, jnp.full(4, 0.1))
    )


def test_thrusters():
    """Twelve thrusters on a box: never negative, the torque to 1e-6 where scipy's active-set solver reaches it too."""
    places = np.array(
        [[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
        + [[2, 0, 0], [-2, 0, 0], [0, 2, 0], [0, 0, 2]]
    )
    arms = np.asarray(actuators.thruster_arms(places.astype(float), RNG.normal(size=(12, 3))))
    solve = jax.jit(lambda arms, tau: actuators.allocate_thrusters(arms, tau))
    for _ in range(10):
        tau = RNG.normal(size=3)
        force = np.asarray(solve(arms, tau))
        assert (force >= 0).all()
        assert scipy.optimize.nnls(arms.T, tau)[1] < 1e-12
        np.testing.assert_allclose(arms.T @ force, tau, rtol=0, atol=1e-6)
    limits = np.full(12, 0.05)
    bound = np.asarray(actuators.allocate_thrusters(arms, 10 * tau, limits))
    assert np.max(bound) == pytest.approx(0.05, rel=1e-14)
    np.testing.assert_allclose(np.cross(arms.T @ bound, tau), 0, atol=1e-5)


def test_unreachable_torques_come_as_near_as_they_can():
    """Two thrusters about x alone: what they cannot make is left out, as nnls has it."""
    arms = np.array([[1.0, 0, 0], [0.5, 0, 0]])
    force = actuators.allocate_thrusters(arms, jnp.array([0.8, 0.3, 0.0]))
    np.testing.assert_allclose(arms.T @ np.asarray(force), [0.8, 0, 0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        actuators.allocate_thrusters(arms, jnp.array([-1.0, 0, 0])), [0, 0], atol=0
    )


def test_float32_stays_float32():
    axes, tau, momentum = (
        jnp.asarray(x, jnp.float32) for x in (AXES, [0.1, 0.2, 0.3], [1.0, 2, 3, 4])
    )
    state = jax.tree.map(lambda x: x.astype(jnp.float32), START)
    for value in (
        actuators.allocate(axes, tau, momentum),
        actuators.allocate_thrusters(axes, tau, momentum),
        actuators.wheel_torque(axes, state, momentum, momentum),
        actuators.lag(tau, tau, jnp.float32(0.1)),
        actuators.hold_momentum(momentum, momentum, momentum),
    ):
        assert value.dtype == jnp.float32


def test_bad_input():
    tau = jnp.ones(3)
    for call, kind, message in (
        (
            lambda: actuators.saturate(jnp.ones(5), tau),
            ValueError,
            r"limits: wanted shape \(..., 5\), got \(3,\)",
        ),
        (
            lambda: actuators.saturate_smooth(tau, jnp.ones(2)),
            ValueError,
            r"limits: wanted shape \(..., 3\), got \(2,\)",
        ),
        (
            lambda: actuators.saturate(jnp.ones(3, int), tau),
            TypeError,
            "tau: wanted a floating dtype",
        ),
        (lambda: actuators.saturate(tau, -1.0), ValueError, "limits: wanted positive values"),
        (
            lambda: actuators.allocate(AXES[0], tau),
            ValueError,
            r"axes: wanted shape \(n, 3\), got \(3,\)",
        ),
        (
            lambda: actuators.allocate(AXES, tau[:2]),
            ValueError,
            r"tau: wanted shape \(3,\), got \(2,\)",
        ),
        (
            lambda: actuators.allocate(AXES, tau, jnp.ones(3)),
            ValueError,
            r"limits: wanted shape \(\) or \(4,\), got \(3,\)",
        ),
        (
            lambda: actuators.allocate(AXES, tau, jnp.zeros(4)),
            ValueError,
            "limits: wanted positive values",
        ),
        (
            lambda: actuators.allocate_thrusters(AXES, tau, -jnp.ones(4)),
            ValueError,
            "limits: wanted positive values",
        ),
        (
            lambda: actuators.allocate_thrusters(AXES, tau, iterations=0),
            ValueError,
            "iterations: wanted at least 1, got 0",
        ),
        (
            lambda: actuators.wheel_torque(AXES, START, jnp.ones(3), jnp.ones(4)),
            ValueError,
            r"momentum: wanted shape \(4,\)",
        ),
        (
            lambda: actuators.wheel_torque(AXES, START, jnp.ones(4), 1.0),
            ValueError,
            r"motor: wanted shape \(4,\)",
        ),
        (
            lambda: actuators.lag(tau, jnp.ones(2), 0.1),
            ValueError,
            r"command: wanted the shape of actual",
        ),
        (
            lambda: actuators.lag(tau, tau, -0.1),
            ValueError,
            "time_constant: wanted positive values",
        ),
        (
            lambda: actuators.lag(tau, tau, jnp.ones(2)),
            ValueError,
            r"time_constant: wanted shape \(\) or \(3,\), got \(2,\)",
        ),
        (
            lambda: actuators.hold_momentum(tau, tau, 0.0),
            ValueError,
            "capacity: wanted positive values",
        ),
        (
            lambda: actuators.thruster_arms(AXES, tau[:2]),
            ValueError,
            r"directions: wanted shape \(..., 3\), got \(2,\)",
        ),
    ):
        with pytest.raises(kind, match=message):
            call()

"""Limits, lags, wheels, thrusters: exact solutions, conserved momentum, and numpy."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from examples.validation import problems
from jaxquat import actuators

RNG = np.random.default_rng(5)
BODY = jq.Body(jnp.array([[0.9, 0.1, -0.2], [0.1, 1.1, 0.05], [-0.2, 0.05, 1.3]]))
START = jq.State(jnp.asarray(problems.TILTED), jnp.array([0.5, -1.0, 0.7]))
AXES = RNG.normal(size=(4, 3))
AXES /= np.linalg.norm(AXES, axis=1, keepdims=True)
ALLOCATE = jax.jit(actuators.allocate)


def test_a_hard_limit_is_that_of_jax():
    with pytest.raises(AttributeError, match=r"use jnp.clip\(tau, -limits, limits\)$"):
        actuators.saturate  # noqa: B018


def lagged(time_constant):
    """A unit inertia and the lag that drives it, after 2 s of a constant command."""

    def torque(t, state, params):
        return state.aux, actuators.lag(state.aux, jnp.array([1.0, -2.0, 0.5]), params)

    start = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3), jnp.array([0.5, 0.0, 0.0]))
    body, grid = jq.Body(jnp.eye(3)), jq.grid(0.0, 0.05, 40, save_every=40)
    path = jq.rollout(jq.rkmk4, body, torque, start, grid, time_constant)
    return path.state.aux[-1], path.state.omega[-1]


def test_lag_is_its_exponential():
    """The lag is c + (a - c) exp(-t/T), the rate its integral; the derivative by T is right, too.

    Steps of T/8 leave an error of 5 (1/8)^4/120 exp(-5).
    """
    command, first = np.array([1.0, -2.0, 0.5]), np.array([0.5, 0, 0])
    constant, decay = 0.4, np.exp(-2.0 / 0.4)
    differentiated = jax.jit(lambda T: jax.jvp(lagged, (T,), (jnp.ones(()),)))
    (lag, rate), (slope, _) = differentiated(jnp.array(constant))
    off = first - command
    np.testing.assert_allclose(lag, command + off * decay, rtol=0, atol=2e-6)
    integral = 2 * command + off * constant * (1 - decay)
    np.testing.assert_allclose(rate, integral, rtol=0, atol=2e-6)
    np.testing.assert_allclose(slope, off * decay * 2 / constant**2, rtol=0, atol=2e-5)


def spinning(axes, dt, steps, scheme=jq.rkmk4):
    """A body whose four wheels have motors of time: its states, and the momentum of all, world."""

    def torque(t, state, axes):
        motor = jnp.sin(jnp.arange(1.0, 5.0) * t)
        return actuators.wheel_torque(axes, state, state.aux, motor), motor

    start = START._replace(aux=jnp.array([0.3, -0.2, 0.1, 0.4]))
    path = jq.rollout(scheme, BODY, torque, start, jq.grid(0.0, dt, steps), axes)

    def total(state):
        of_wheels = jnp.sum(axes * state.aux[:, None], axis=0)
        return jq.dynamics.momentum(BODY, state) + jq.quaternion.rotate(state.q, of_wheels)

    return path.state, jax.vmap(total)(path.state)


def test_wheels_conserve_the_momentum_of_all():
    """In the world, to the order of the scheme, four; the body alone changes its momentum."""
    errors, run = [], jax.jit(spinning, static_argnums=(1, 2))
    for steps in (200, 400):
        state, momentum = run(jnp.asarray(AXES), 4.0 / steps, steps)
        errors.append(np.abs(momentum - momentum[:1]).max())
    assert errors[-1] < 1e-7
    assert abs(problems.slope(np.array([200, 400]), np.array(errors)) - 4) < 0.15
    body = np.asarray(jax.jit(jax.vmap(lambda s: jq.dynamics.momentum(BODY, s)))(state))
    assert np.abs(body - body[0]).max() > 0.1


def test_friction_stops_a_wheel_when_and_where_it_must():
    """A wheel of inertia J coasts to rest in ``J/c log(1 + c s/Fc)``; the momentum of all stays.

    The body is so heavy that it takes 1e-9 of the speed. With ``J s' = -Fc - c s`` the speed
    before is ``(s + Fc/c) exp(-c t/J) - Fc/c``.
    """
    coulomb, viscous, spin_inertia, speed = 0.002, 1e-4, 0.01, 50.0
    axes, body = jnp.array([[0.0, 0.0, 1.0]]), jq.Body(1e7 * jnp.eye(3))

    def torque(t, state, params):
        turning = state.aux / spin_inertia - axes @ state.omega
        motor = -actuators.wheel_friction(turning, coulomb, viscous)
        return actuators.wheel_torque(axes, state, state.aux, motor), motor

    start = jq.State(START.q, jnp.zeros(3), jnp.array([spin_inertia * speed]))
    stops = spin_inertia / viscous * np.log1p(viscous * speed / coulomb)  # 125 s
    path = jax.jit(lambda: jq.rollout(jq.rkmk4, body, torque, start, jq.grid(0.0, 0.5, 240)))()
    assert path.t[-1] < stops
    wanted = (speed + coulomb / viscous) * np.exp(-viscous / spin_inertia * np.asarray(path.t))
    wanted -= coulomb / viscous
    np.testing.assert_allclose(path.state.aux[:, 0] / spin_inertia, wanted, rtol=0, atol=1e-7)
    total = 1e7 * path.state.omega[:, 2] + path.state.aux[:, 0]
    np.testing.assert_allclose(total, spin_inertia * speed, rtol=1e-12)


def test_stribeck_friction_peaks_at_its_speed_and_is_odd():
    """At x = 1 it is static; far above, Coulomb and viscous; at rest its slope is known."""
    s = np.array([2.0, -2.0, 40.0, 0.0])
    law = jax.jit(lambda s: actuators.wheel_friction(s, 0.3, 0.01, 0.5, 2.0))
    wanted = [0.52 - 0.3 * (1 - np.tanh(10)), 0, 0.7, 0]
    np.testing.assert_allclose(law(s), [wanted[0], -wanted[0], *wanted[2:]], atol=1e-15)
    slope = jax.jit(jax.vmap(jax.grad(law)))(s)
    np.testing.assert_allclose(slope[3], 0.2 * np.exp(0.5) / 2 + 0.3 * 10 / 2 + 0.01, rtol=1e-15)
    np.testing.assert_allclose(slope[0], 0.01, atol=1e-7)  # no more than viscous: the peak
    by_all = jax.jit(jax.grad(actuators.wheel_friction, argnums=(1, 2, 3, 4)))
    np.testing.assert_allclose(by_all(2.0, 0.3, 0.01, 0.5, 2.0), [0, 2, 1, 0], atol=1e-7)
    smooth = jax.jit(actuators.wheel_friction)(s, 0.3, 0.01, None, 2.0)
    np.testing.assert_allclose(smooth, 0.3 * np.tanh(5 * s) + 0.01 * s, rtol=1e-15)


def test_a_wheel_off_balance_shakes_a_body_in_a_circle_and_about_its_normal():
    """At constant speed s, ``v = Us s/M (n sin(s t) + (a × n)(1 - cos(s t)))``.

    The rate of a ball, in body axes, is ``Ud s/I`` times the same. The steps leave an error of
    (s dt)^4/120, relative.
    """
    axis, normal = jnp.array([[0.0, 0.6, 0.8]]), jnp.array([[1.0, 0.0, 0.0]])
    static, dynamic, s = 2e-3, 3e-3, 20.0
    ball, zero = jq.Body(5.0 * jnp.eye(3), mass=4.0), jnp.zeros(3)
    offset = jnp.array([[0.0, 0.6, 0.8]])  # along the axis: p × force turns the other way

    def torque(t, state, unbalanced):
        shake = actuators.wheel_imbalance(
            axis, normal, 0.0 * offset, state, state.aux, jnp.array([s]), *unbalanced
        )
        return shake, jnp.array([s])

    start = jq.State(jnp.array([1.0, 0, 0, 0]), zero, jnp.zeros(1), zero, zero)
    grid = jq.grid(0.0, 0.005, 100)
    run = jax.jit(jax.vmap(lambda x: jq.rollout(jq.rkmk4, ball, torque, start, grid, x).state))
    state = run(jnp.array([[static, 0.0], [0.0, dynamic]]))
    angle = s * 0.005 * np.arange(101.0)[:, None]
    swing = normal * np.sin(angle) + np.cross(axis, normal) * (1 - np.cos(angle))
    np.testing.assert_allclose(state.omega[1], dynamic * s / 5.0 * swing, rtol=0, atol=2e-8)
    np.testing.assert_allclose(state.velocity[0], static * s / 4.0 * swing, rtol=0, atol=2e-8)
    at = jax.jit(
        lambda where, ud: actuators.wheel_imbalance(
            axis, normal, where, start, jnp.array([0.5]), jnp.array([s]), static, ud
        )
    )
    still, lever = at(0.0 * offset, 0.0), at(offset, 0.0)
    np.testing.assert_array_equal(still.torque, zero)
    np.testing.assert_allclose(lever.torque, np.cross(offset[0], lever.force), rtol=1e-14)


PYRAMID = jnp.array([[1.0, 0, 1], [0, 1, 1], [-1, 0, 1], [0, -1, 1]]) / jnp.sqrt(2.0)
ROTORS = jnp.array([[0.0, 1, 0], [-1, 0, 0], [0, -1, 0], [1, 0, 0]])


def test_gyros_conserve_the_momentum_of_all():
    """In the world, to the order of the scheme, four, with gimbals that move by rates of time."""
    momenta, counts, errors = jnp.array([2.0, 1.5, 1.0, 0.5]), np.array([40, 80]), []

    def torque(t, state, params):
        rate, x = jnp.sin(jnp.arange(1.0, 5.0) * t), state.aux[:, None]
        axes = jnp.cos(x) * ROTORS + jnp.sin(x) * jnp.cross(PYRAMID, ROTORS)
        tau = actuators.wheel_torque(axes, state, momenta, 0.0 * momenta)
        return tau - (momenta * rate) @ jnp.cross(PYRAMID, axes), rate

    for steps in counts:
        grid = jq.grid(0.0, 2.0 / steps, int(steps))
        start = START._replace(aux=jnp.array([0.1, -0.4, 0.9, 2.0]))

        @jax.jit
        def total(start, grid=grid):
            state = jq.rollout(jq.rkmk4, BODY, torque, start, grid).state
            x = state.aux[..., None]
            axes = jnp.cos(x) * ROTORS[None] + jnp.sin(x) * jnp.cross(PYRAMID, ROTORS)[None]
            stored = jax.vmap(jq.quaternion.rotate)(state.q, momenta @ axes)
            return jax.vmap(lambda s: jq.dynamics.momentum(BODY, s))(state) + stored

        momentum = np.asarray(total(start))
        errors.append(np.abs(momentum - momentum[:1]).max())
    assert errors[-1] < 1e-4
    assert abs(problems.slope(counts, np.array(errors)) - 4) < 0.3


def test_wheels_differentiate_by_their_axes_and_vmap():
    def last(axes):
        return spinning(axes, 0.1, 10, jq.lie_euler)[0].omega[-1, 0]

    direction, axes = jnp.asarray(RNG.normal(size=(4, 3))), jnp.asarray(AXES)
    _, slope = jax.jit(lambda a, d: jax.jvp(last, (a,), (d,)))(axes, direction)
    shifts = jnp.array([-2.0, -1.0, 1.0, 2.0])[:, None, None] * 1e-3
    low2, low, high, high2 = jax.jit(jax.vmap(last))(axes[None] + shifts * direction[None])
    np.testing.assert_allclose(slope, (low2 - 8 * low + 8 * high - high2) / 12e-3, rtol=1e-9)


def test_allocation_is_the_pseudoinverse():
    tau = jnp.array([0.3, -0.2, 0.5])
    motor = ALLOCATE(AXES, tau)
    np.testing.assert_allclose(motor, -np.linalg.pinv(AXES.T) @ np.asarray(tau), rtol=0, atol=1e-14)
    still = jq.State(START.q, jnp.zeros(3))
    got = actuators.wheel_torque(AXES, still, jnp.ones(4), motor)
    np.testing.assert_allclose(got, tau, rtol=0, atol=1e-15)


def test_allocation_within_limits_keeps_the_direction():
    tau, limits = jnp.array([0.3, -0.2, 0.5]), jnp.array([0.1, 0.2, 0.3, 0.1])
    free, bound = ALLOCATE(AXES, tau), ALLOCATE(AXES, tau, limits)
    assert np.max(np.abs(bound) / limits) == pytest.approx(1.0, rel=1e-15)
    np.testing.assert_allclose(bound / free, np.min(np.asarray(limits) / np.abs(free)), rtol=1e-14)
    within = ALLOCATE(AXES, 1e-3 * tau, limits)
    np.testing.assert_array_equal(within, ALLOCATE(AXES, 1e-3 * tau))
    by_axes = jax.jit(jax.jacfwd(lambda axes: ALLOCATE(axes, tau, limits)))
    slope = by_axes(jnp.asarray(AXES))
    shifted = [ALLOCATE(AXES + s * np.eye(4, 3), tau, limits) for s in (1e-5, -1e-5)]
    along = np.sum(slope * np.eye(4, 3)[None], axis=(1, 2))
    np.testing.assert_allclose(along, (shifted[0] - shifted[1]) / 2e-5, rtol=1e-8, atol=1e-12)


def test_one_limit_serves_for_all():
    tau = jnp.array([0.3, -0.2, 0.5])
    one, four = (ALLOCATE(AXES, tau, limit) for limit in (0.1, jnp.full(4, 0.1)))
    np.testing.assert_array_equal(one, four)


def test_a_pulse_is_as_long_as_its_share_of_the_thrust():
    """``interval F/thrust``, up to the interval; a shorter one than the minimum is not fired."""
    forces, thrust = np.array([0.5, 2.0, 5.0, -1.0, 0.07, 0.08]), np.full(6, 2.0)
    widths = jax.jit(lambda f, t, m: actuators.pulse_widths(f, t, 0.4, m))
    np.testing.assert_allclose(
        widths(forces, thrust, 0.015), [0.1, 0.4, 0.4, 0.0, 0.0, 0.016], rtol=1e-15
    )
    np.testing.assert_allclose(widths(0.07, 2.0, 0.0), 0.014, rtol=1e-15)
    slopes = jax.jit(jax.vmap(jax.grad(widths, (0, 1)), (0, 0, None)))(forces, thrust, 0.015)
    by_force = np.array([0.2, 0.0, 0.0, 0.0, 0.0, 0.2])
    np.testing.assert_allclose(slopes[0], by_force, rtol=1e-15)
    np.testing.assert_allclose(slopes[1], -by_force * forces / 2.0, rtol=1e-15)
    assert np.isnan(widths(jnp.nan, 1.0, 0.0))


RODS, FIELD = jnp.asarray(AXES), jnp.array([1e-5, -2e-5, 3e-5])


def test_rods_give_the_torque_normal_to_the_field_by_the_least_dipoles():
    """``m × B`` is tau without its part along B; the dipoles are those of the pseudoinverse."""
    tau, b = np.array([0.3, -0.2, 0.5]), np.asarray(FIELD)
    dipoles_of = jax.jit(actuators.magnetorquer_dipoles)
    dipoles = dipoles_of(RODS, tau, FIELD)
    across = tau - b * (tau @ b) / (b @ b)
    np.testing.assert_allclose(np.cross(dipoles @ AXES, b), across, rtol=1e-13)
    wanted = np.linalg.pinv(AXES.T) @ np.cross(b, tau) / (b @ b)
    np.testing.assert_allclose(dipoles, wanted, rtol=1e-13)
    limited = dipoles_of(RODS, tau, FIELD, 100.0)
    np.testing.assert_allclose(np.abs(limited).max(), 100.0, rtol=1e-14)
    np.testing.assert_allclose(limited * np.abs(wanted).max() / 100.0, wanted, rtol=1e-13)
    assert np.isnan(dipoles_of(RODS, tau, 0.0 * FIELD)).all()


def test_units_of_thrust_and_field_change_no_digit_in_float32():
    """Values and derivatives: a width does not know the unit of forces, a dipole goes as tau/B."""
    forces, tau = jnp.array([0.5, 3.0], jnp.float32), jnp.array([0.3, -0.2, 0.5], jnp.float32)
    rods, field = jnp.eye(3, dtype=jnp.float32), 1e5 * FIELD.astype(jnp.float32)

    @jax.jit
    def both(unit):
        thrust = unit * jnp.array([2.0, 2.0], jnp.float32)
        width = lambda f, t: actuators.pulse_widths(f, t, jnp.float32(0.4))
        by_width = jax.jvp(width, (unit * forces, thrust), (unit * forces, -0.5 * thrust))
        dipole = lambda tau, field: actuators.magnetorquer_dipoles(rods, tau, field, 2.0)
        by_dipole = jax.jvp(dipole, (unit * tau, unit * field), (unit * tau, -0.5 * unit * field))
        back = jax.grad(lambda b: unit * jnp.sum(dipole(unit * tau, b)))(unit * field)
        return *by_width, *by_dipole, back

    wanted = both(jnp.float32(1.0))
    for unit in (2.0**-66, 2.0**66):  # 1e-20, 1e20
        for ours, theirs in zip(both(jnp.float32(unit)), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def unloaded(steps):
    """A body whose wheels keep it level while rods unload them in a field that turns about z.

    Returns the states, the momentum of body and wheels, and the impulse of the magnetic torque.
    """
    level, axes = jnp.array([1.0, 0, 0, 0]), jnp.eye(3)
    gains = jq.control.Gains(2.0 * jnp.ones(3), 2.0 * jnp.ones(3))

    def torque(t, state, params):
        momenta, _ = state.aux
        field = 3e-5 * jnp.stack([jnp.cos(0.5 * t), jnp.sin(0.5 * t), 0.0 * t])  # T
        field = jq.quaternion.rotate_inverse(state.q, field)
        dipoles = actuators.magnetorquer_dipoles(RODS, -0.02 * momenta, field)
        push = jnp.cross(dipoles @ RODS, field)
        motor = actuators.allocate(axes, jq.control.quaternion_law(state, gains, level))
        tau = push + actuators.wheel_torque(axes, state, momenta, motor)
        return tau, (motor, jq.quaternion.rotate(state.q, push))

    start = jq.State(level, jnp.zeros(3), (jnp.array([0.3, -0.2, 0.4]), jnp.zeros(3)))
    state = jq.rollout(jq.rkmk4, BODY, torque, start, jq.grid(0.0, 100.0 / steps, steps)).state
    of_wheels = jax.vmap(jq.quaternion.rotate)(state.q, state.aux[0])
    total = jax.vmap(lambda s: jq.dynamics.momentum(BODY, s))(state) + of_wheels
    return state, total, state.aux[1]


def test_rods_unload_wheels_and_their_impulse_is_all_that_changes_the_momentum():
    """To the order of the scheme, four. With a gain k the momentum along z falls as exp(-kt).

    The field has no part along it. The average of ``1 - b b^T`` over its turn is 1/2 in the plane,
    so there the momentum falls as exp(-kt/2).
    """
    counts, errors = np.array([1000, 2000]), []
    for steps in counts:
        state, total, impulse = jax.jit(unloaded, static_argnums=0)(int(steps))
        errors.append(np.abs(total - total[:1] - impulse).max())
    assert errors[-1] < 1e-8
    assert abs(problems.slope(counts, np.array(errors)) - 4) < 0.2
    momenta = state.aux[0]
    np.testing.assert_allclose(momenta[-1, 2], 0.4 * np.exp(-2.0), rtol=0.01)
    in_plane = np.linalg.norm(momenta[-1, :2])
    np.testing.assert_allclose(in_plane, np.hypot(0.3, 0.2) * np.exp(-1.0), rtol=0.05)


def test_float32_stays_float32():
    arrays = AXES, [0.1, 0.2, 0.3], [1.0, 2, 3, 4]
    axes, tau, momentum = (jnp.asarray(x, jnp.float32) for x in arrays)
    state = jax.tree.map(lambda x: x.astype(jnp.float32), START)

    def values(axes, tau, momentum, state):
        return (
            actuators.allocate(axes, tau, momentum),
            actuators.wheel_torque(axes, state, momentum, momentum),
            actuators.lag(tau, tau, jnp.float32(0.1)),
            actuators.pulse_widths(momentum, momentum, jnp.float32(0.1)),
            actuators.magnetorquer_dipoles(axes, tau, tau, momentum),
        )

    for value in jax.eval_shape(values, axes, tau, momentum, state):
        assert value.dtype == jnp.float32


TAU = jnp.ones(3)
# In float32 rounding lifts the third axis out of the plane, and A^T A is not singular.
IN_A_PLANE = np.float32([[0.6, 0.8, 0.0], [0.48, 0.6, 0.64], [0, 0, 0]])
IN_A_PLANE[2] = IN_A_PLANE[:2].sum(axis=0) / np.linalg.norm(IN_A_PLANE[:2].sum(axis=0))
REFUSED = {
    "limits: wanted shape () or (4,), got (3,)": lambda: actuators.allocate(AXES, TAU, jnp.ones(3)),
    "time_constant: wanted positive values": lambda: actuators.lag(TAU, TAU, -0.1),
    "limits: wanted positive values, got 0": lambda: actuators.allocate(AXES, TAU, 0.0),
    "command: wanted the shape of actual": lambda: actuators.lag(TAU, jnp.ones(2), 0.1),
    "time_constant: wanted shape () or (3,), got (2,)": (
        lambda: actuators.lag(TAU, TAU, jnp.ones(2))
    ),
    "axes: wanted a unit vector (to 0.0001), got [2.": (
        lambda: actuators.wheel_torque(2.0 * jnp.eye(3), START, TAU, TAU)
    ),
    "axes: wanted at least 3 axes, got 2": lambda: actuators.allocate(AXES[:2], TAU),
    "axes: wanted axes that span the space": lambda: actuators.allocate(IN_A_PLANE, TAU),
    "axes: wanted axes that span the space, got [[": (
        lambda: actuators.magnetorquer_dipoles(IN_A_PLANE, TAU, FIELD)
    ),
    "minimum: wanted at most the interval, 0.2 s, got 10.0": (
        lambda: actuators.pulse_widths(0.3, 1.0, 0.2, 10.0)
    ),
    "momentum: wanted an array, got (), the default of State.aux; give start an aux": (
        lambda: actuators.wheel_torque(np.eye(3), START, START.aux, TAU)
    ),
    "actual: wanted an array, got ()": lambda: actuators.lag(START.aux, TAU, 0.1),
    "angle: wanted an array, got (), the": (
        lambda: actuators.wheel_imbalance(*np.eye(3)[:, None], START, (), np.ones(1), 0.1, 0.1)
    ),
    "speed: wanted an array, got ()": (
        lambda: actuators.wheel_imbalance(*np.eye(3)[:, None], START, np.ones(1), (), 0.1, 0.1)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_is_refused_by_name(message):
    with pytest.raises((TypeError, ValueError), match="^" + re.escape(message)):
        REFUSED[message]()

"""The cascade: hover, its integral parts against wind and torque, its limits, and a helix.

The position and the velocity of the craft are aux states here.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from jaxquat import control, quaternion
from jaxquat.control.cascade import CascadeMemory

MASS, G, DT, EVERY = 1.3, 9.80665, 0.005, 2
BODY = jq.Body(jnp.array([[0.02, 0.001, -0.002], [0.001, 0.03, 0.0], [-0.002, 0.0, 0.04]]), MASS)
GAINS = control.CascadeGains(
    position=jnp.full(3, 1.5),
    velocity=jnp.full(3, 4.0),
    velocity_integral=jnp.full(3, 2.0),
    attitude=jnp.array([10.0, 10.0, 5.0]),
    rate=jnp.full(3, 30.0),
    rate_integral=jnp.full(3, 20.0),
)
LEVEL = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3), (jnp.zeros(3), jnp.zeros(3)))
STILL = control.hold_position(jnp.array([1.0, -2.0, 3.0]), 0.7)
PUSH, TURN = jnp.array([0.6, -0.4, 0.8]), jnp.array([0.01, -0.02, 0.005])  # N, N m


def moving(state, value):
    return jq.State(state.q, state.omega, (), *state.aux)


def cast(dtype, tree):
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


def plant(t, state, params, lift):
    """Thrust, gravity, and a constant push and turn that the controller does not know."""
    dtype = state.q.dtype
    up = quaternion.rotate(state.q, jnp.asarray([0.0, 0.0, 1.0], dtype))
    push, turn = cast(dtype, (PUSH, TURN))
    gravity = jnp.asarray([0.0, 0.0, -G], dtype)
    return lift.torque + turn, (state.aux[1], (lift.thrust * up + push) / MASS + gravity)


def controller(reference=STILL, dtype=jnp.float64, **changes):
    body = cast(dtype, BODY)
    return control.cascade(body, EVERY * DT, reference, **{"measure": moving, **changes})


def flown(
    reference,
    steps,
    gains=GAINS,
    start=LEVEL,
    dtype=jnp.float64,
    engine="scan",
    scheme=jq.rkmk2,
    **changes,
):
    gains, start = cast(dtype, (gains, start))
    return jq.rollout(
        scheme,
        cast(dtype, BODY),
        plant,
        start,
        jq.grid(0.0, DT, steps, sample_every=EVERY, save_every=EVERY),
        gains,
        controller=controller(reference, dtype, **changes),
        options=jq.RolloutOptions(engine=engine),
    )


def updated(state, memory=None, **changes):
    made = controller(**changes)
    memory = memory or made.init(state, GAINS)
    return made.update(jnp.asarray(0.0), state, memory, GAINS, None)


def test_hover_needs_the_weight_and_no_torque():
    state = LEVEL._replace(aux=(STILL.position, jnp.zeros(3)))
    state = state._replace(q=quaternion.exp(jnp.array([0.0, 0.0, 0.7])))
    lift, memory = updated(state)
    np.testing.assert_allclose(lift.thrust, MASS * G, rtol=1e-14)
    np.testing.assert_allclose(lift.torque, np.zeros(3), atol=1e-15)
    np.testing.assert_allclose(np.concatenate(memory), np.zeros(6), atol=1e-15)


def test_the_command_is_the_chain_of_the_four_regulators():
    """By hand: 0.1 m aside, level and at rest, asks for 0.15 m/s, 0.6 m/s^2, a tilt of 0.6/g."""
    state = LEVEL._replace(aux=(jnp.array([0.9, -2.0, 3.0]), jnp.zeros(3)))
    reference = control.hold_position(STILL.position)
    lift, memory = updated(state, reference=reference)
    np.testing.assert_allclose(lift.thrust, MASS * G, rtol=1e-14)
    half = 0.5 * np.arctan(0.6 / G)
    wanted = np.asarray(BODY.inertia) @ np.array([0.0, 30.0 * 2 * 10.0 * np.sin(half), 0.0])
    np.testing.assert_allclose(lift.torque, wanted, rtol=0, atol=1e-14)
    np.testing.assert_allclose(memory.acceleration, [0.01 * 2.0 * 0.15, 0, 0], atol=1e-16)


def test_a_steady_turn_needs_the_gyroscopic_torque_and_the_integral_parts_stay():
    """A tilted craft follows its reference; its rate is that of the heading, in body axes."""
    heading, spin, aside = 0.7, 0.9, np.array([2.0, -1.5, 0.5])  # rad, rad/s, m/s^2
    parts = CascadeMemory(jnp.array([0.3, 0.1, -0.2]), jnp.array([0.5, -0.4, 0.2]))
    force = aside + np.asarray(parts.acceleration) + [0.0, 0.0, G]
    up = force / np.linalg.norm(force)
    left = np.cross(up, [np.cos(heading), np.sin(heading), 0.0])
    left /= np.linalg.norm(left)
    axes = np.stack([np.cross(left, up), left, up], axis=1)  # body to world
    reference = STILL._replace(
        velocity=jnp.array([3.0, 1.0, -2.0]),
        acceleration=jnp.asarray(aside),
        heading_rate=jnp.asarray(spin),
    )
    omega, inertia = axes.T @ [0.0, 0.0, spin], np.asarray(BODY.inertia)
    q, seen = quaternion.from_matrix(jnp.asarray(axes)), (reference.position, reference.velocity)
    state = jq.State(q, jnp.asarray(omega), seen)
    lift, memory = updated(state, parts, reference=reference)
    np.testing.assert_allclose(lift.thrust, MASS * np.linalg.norm(force), rtol=1e-14)
    wanted = np.cross(omega, inertia @ omega) + inertia @ parts.angular_acceleration
    np.testing.assert_allclose(lift.torque, wanted, rtol=0, atol=1e-13)
    np.testing.assert_allclose(np.concatenate(memory), np.concatenate(parts), rtol=0, atol=1e-14)


def test_limits_cut_what_is_asked_for_and_the_integral_parts_give_way():
    """100 m aside and below: speed 2, tilt 0.3, thrust 15 N, torque 0.1; no growth into a limit."""
    limits = control.CascadeLimits(speed=2.0, tilt=0.3, thrust=15.0, torque=0.1)
    state = LEVEL._replace(aux=(jnp.array([-99.0, -2.0, 3.0]), jnp.zeros(3)))
    reference = control.hold_position(STILL.position)
    lift, memory = updated(state, reference=reference, limits=limits)
    assert np.abs(lift.torque).max() == pytest.approx(0.1, rel=1e-14)
    # 8 m/s^2 are asked for and tan(0.3) g is left
    growth = 2.0 * 2.0 + (np.tan(0.3) * G - 8.0)
    np.testing.assert_allclose(memory.acceleration[0], EVERY * DT * growth, rtol=1e-12)
    # a rate about y, for which 30 times as much acceleration is asked
    rate = np.array([0.0, 2 * 10.0 * np.sin(0.5 * 0.3), 0.0])
    growth = 20.0 * rate + np.linalg.solve(BODY.inertia, lift.torque) - 30.0 * rate
    got = memory.angular_acceleration
    np.testing.assert_allclose(got, EVERY * DT * growth, rtol=0, atol=1e-13)
    state = state._replace(aux=(jnp.array([1.0, -2.0, -97.0]), jnp.zeros(3)))
    lift, _ = updated(state, reference=reference, limits=limits)
    np.testing.assert_allclose(lift.thrust, 15.0, rtol=1e-14)
    state = state._replace(aux=(jnp.array([1.0, -2.0, 103.0]), jnp.zeros(3)))
    lift, _ = updated(state, reference=reference, limits=limits._replace(speed=9.0))
    np.testing.assert_allclose(lift.thrust, 0.1 * MASS * G, rtol=1e-14)


@pytest.mark.slow
def test_a_constant_push_and_turn_leave_no_error():
    """The integral parts end at the push over the mass and the turn over the inertia."""
    path = flown(STILL, 4000)
    np.testing.assert_allclose(path.final.aux[0], STILL.position, rtol=0, atol=1e-3)
    np.testing.assert_allclose(path.memory.acceleration, -PUSH / MASS, rtol=0, atol=2e-3)
    wanted = -np.linalg.solve(BODY.inertia, TURN)
    got = path.memory.angular_acceleration
    np.testing.assert_allclose(got, wanted, rtol=0, atol=5e-3)


def helix(t, params, value):
    return control.follow_position(
        lambda t: jnp.stack([jnp.cos(t) - 1.0, jnp.sin(t), 0.2 * t]), t, lambda t: 0.3 * t
    )


@pytest.mark.needs("llvmlite")
@pytest.mark.slow
def test_a_helix_is_flown_by_both_engines_in_both_precisions_and_many_at_once():
    """The feed-forward of the reference leaves centimetres, and vmap over gains changes nothing."""
    path = flown(helix, 2000)
    t = np.asarray(path.t)
    wanted = np.stack([np.cos(t) - 1, np.sin(t), 0.2 * t], axis=1)
    assert np.abs(np.asarray(path.state.aux[0]) - wanted)[t > 6].max() < 0.05
    by_fused = flown(helix, 2000, engine="fused").state.aux[0]
    np.testing.assert_allclose(by_fused, path.state.aux[0], rtol=0, atol=1e-10)
    single = flown(helix, 2000, engine="fused", dtype=jnp.float32).state.aux[0]
    np.testing.assert_allclose(single, path.state.aux[0], rtol=0, atol=1e-3)
    many = jax.tree.map(lambda x: jnp.stack([0.8 * x, x]), GAINS)
    ends = jax.jit(jax.vmap(lambda gains: flown(helix, 200, gains).final.aux[0]))(many)
    np.testing.assert_allclose(ends[1], flown(helix, 200).final.aux[0], rtol=0, atol=1e-11)


@pytest.mark.needs("llvmlite")
@pytest.mark.slow
def test_gradients_by_the_gains_are_those_of_differences():
    def miss(gains, engine="scan"):
        path = flown(helix, 100, gains, engine=engine, scheme=jq.lie_euler)
        return jnp.sum(path.final.aux[0] ** 2) + jnp.sum(path.state.omega**2)

    h, several = 1e-4, jax.jit(jax.vmap(miss))
    for engine in ("scan", "fused"):
        slope = jax.jit(jax.grad(miss), static_argnums=1)(GAINS, engine)
        for name in ("position", "rate_integral"):
            at = lambda s, name=name: GAINS._replace(
                **{name: getattr(GAINS, name).at[1].add(s * h)}
            )
            many = jax.tree.map(lambda a, b: jnp.stack([a, b]), at(1), at(-1))
            up, down = several(many)
            np.testing.assert_allclose(
                getattr(slope, name)[1], (up - down) / (2 * h), rtol=1e-6, atol=1e-10
            )


def test_bad_input_of_the_cascade_is_named():
    for changes, message in (
        ({"limits": control.CascadeLimits(tilt=2.0)}, r"^limits.tilt: wanted less than pi/2"),
        ({"limits": control.CascadeLimits(speed=-1.0)}, r"^limits.speed: wanted positive"),
        ({"limits": None}, r"^limits: wanted a control.CascadeLimits, got None"),
        ({"reference": lambda t: STILL}, r"^reference: wanted reference\(t, params, input\), got"),
        ({"gains": STILL}, r"^gains: wanted a function"),
        ({"anti_windup_time": 1e-3}, r"^anti_windup_time: wanted at least the period"),
        ({"measure": lambda state: state}, r"^measure: wanted measure\(state, input\), got"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            controller(**changes)
    with pytest.raises(ValueError, match=r"^body: wanted a mass, got none"):
        control.cascade(jq.Body(BODY.inertia), EVERY * DT, STILL)
    with pytest.raises(ValueError, match=r"^measure\(...\): wanted position and velocity, got"):
        updated(LEVEL, measure=lambda state, value: state)

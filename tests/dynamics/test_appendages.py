"""Slosh masses and modes: what their energy and momenta do, written down independently."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from examples.validation import problems
from jaxquat import dynamics, quaternion

RNG = np.random.default_rng(3)
BODY = jq.Body(jnp.array([[9.0, 0.4, -0.5], [0.4, 8.0, 0.3], [-0.5, 0.3, 7.0]]), mass=5.0)
AXIS = np.array([[0.6, 0.0, 0.8], [0.0, 1.0, 0.0]])
TANKS = dynamics.slosh_masses(
    jnp.array([0.8, 0.5]), RNG.normal(size=(2, 3)), AXIS, jnp.array([2.0, 1.0]), jnp.zeros(2)
)
PANELS = dynamics.flexible_modes(
    jnp.array([1.5, 2.5, 0.9]), jnp.zeros(3), *0.5 * RNG.normal(size=(2, 3, 3))
)
BOTH = jax.tree.map(lambda *x: jnp.concatenate(x), TANKS, PANELS)
START = jq.State(
    jnp.asarray(problems.TILTED),
    jnp.array([0.3, -0.4, 0.5]),
    (jnp.array([0.2, -0.1, 0.1, 0.2, -0.3]), jnp.array([0.1, 0.3, -0.2, 0.1, 0.2])),
    jnp.array([1.0, -2.0, 0.5]),
    jnp.array([0.2, 0.1, -0.3]),
)


def motion(appendages, acting):
    """Return the torque of a body with these appendages under a constant wrench."""

    def torque(t, state, params):
        x, rate = state.aux
        wrench, acceleration = dynamics.coupled(BODY, appendages, state, x, rate, acting)
        return wrench, (rate, acceleration)

    return torque


def totals(parts, state):
    """Return energy, momentum, and angular momentum about the origin of the world.

    The first two coordinates are point masses, each with its own place and velocity in the world.
    """
    x, rate = state.aux
    v, omega = quaternion.rotate_inverse(state.q, state.velocity), state.omega
    energy = jq.dynamics.energy(BODY, state) + 0.5 * jnp.sum(parts.stiffness * x**2)
    momentum = BODY.mass * state.velocity
    spin = jq.dynamics.momentum(BODY, state, about=jnp.zeros(3))
    for i in range(2):
        m, y = parts.mass[i], parts.position[i] + x[i] * jnp.asarray(AXIS)[i]
        place = state.position + quaternion.rotate(state.q, y)
        moved = v + jnp.cross(omega, y) + rate[i] * jnp.asarray(AXIS)[i]
        moved = quaternion.rotate(state.q, moved)
        energy += 0.5 * m * moved @ moved
        momentum += m * moved
        spin += jnp.cross(place, m * moved)
    for i in range(2, 5):
        l, d = parts.translation[i], parts.rotation[i]
        linear = rate[i] * l + jnp.cross(omega, x[i] * l)
        energy += 0.5 * rate[i] ** 2 + v @ linear + rate[i] * d @ omega
        linear = quaternion.rotate(state.q, linear)
        momentum += linear
        spin += quaternion.rotate(state.q, rate[i] * d + jnp.cross(x[i] * l, v))
        spin += jnp.cross(state.position, linear)
    return energy, momentum, spin


def change(parts, torque):
    """Return the rates of the totals at the start."""

    @jax.jit
    def rates(start):
        moving = dynamics.derivative(BODY, torque, 0.0, start, None)
        turn = jnp.concatenate([jnp.zeros(1), 0.5 * start.omega])
        tangent = jq.State(quaternion.multiply(start.q, turn), *moving)
        return jax.jvp(lambda s: totals(parts, s), (start,), (tangent,))[1]

    return rates(START)


def test_power_force_and_torque_are_what_changes_energy_and_momenta():
    """The rates of all at one state: ``F.v + tau.omega - sum c x'^2``, F, ``x × F + R tau``."""
    acting = jq.Wrench(jnp.array([0.4, -0.2, 0.7]), jnp.array([-0.5, 0.3, 0.9]))
    damped = BOTH._replace(damping=jnp.arange(1.0, 6.0) / 10)
    power, force, torque = change(damped, motion(damped, acting))
    lost = jnp.sum(damped.damping * START.aux[1] ** 2)
    wanted = acting.force @ START.velocity + acting.torque @ START.omega - lost
    np.testing.assert_allclose(power, wanted, rtol=0, atol=1e-14)
    np.testing.assert_allclose(force, acting.force, rtol=0, atol=1e-14)
    wanted = jnp.cross(START.position, acting.force) + quaternion.rotate(START.q, acting.torque)
    np.testing.assert_allclose(torque, wanted, rtol=0, atol=1e-14)


def test_energy_and_momenta_are_conserved_to_the_order_of_the_scheme():
    torque, steps = motion(BOTH, jnp.zeros(3)), np.array([0.1, 0.05])

    def run(dt):
        grid = jq.grid(0.0, dt, 80)
        state = jq.rollout(
            jq.rkmk4, BODY, torque, START, grid, options=jq.RolloutOptions(engine="scan")
        ).state
        return state, jax.vmap(lambda s: totals(BOTH, s))(state)

    states, parts = jax.tree.map(np.asarray, jax.jit(jax.vmap(run))(steps))
    off = [np.abs(x - x[:, :1]).reshape(2, 81, -1).max(axis=-1) for x in parts]
    found = [[float(x[0, :41].max()), float(x[1].max())] for x in off]  # until 4 s
    for errors in found:
        assert errors[-1] < 2e-5
        assert problems.slope(1.0 / steps, errors) > 3.8
    spin = dynamics.momentum(BODY, jax.tree.map(lambda x: x[1], states))
    assert jnp.ptp(jnp.linalg.norm(spin, axis=1)) > 0.3  # N m s, of 5: the appendages take part


def line(mass, stiffness):
    """A mass on a spring through the centre of mass; it oscillates against a body of 5 kg."""
    axis = jnp.array([[1.0, 0.0, 0.0]])
    return dynamics.slosh_masses(mass[None], axis, axis, stiffness[None], jnp.zeros(1))


def still(x):
    """A state at rest with one coordinate displaced."""
    level, zero = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3)
    return jq.State(level, zero, (jnp.array([x]), jnp.zeros(1)), zero, zero)


def oscillation(params, engine="scan"):
    """The displacement after 2 s, from 0.3 m."""
    parts, grid = line(params["mass"], params["stiffness"]), jq.grid(0.0, 0.02, 100, save_every=100)
    path = jq.rollout(
        jq.rkmk4,
        BODY,
        motion(parts, jnp.zeros(3)),
        still(0.3),
        grid,
        options=jq.RolloutOptions(engine=engine),
    )
    return path.state.aux[0][-1, 0]


def exact(params):
    """Two masses on a spring: ``0.3 cos(w t)``, ``w^2 = k (1/m + 1/M)``."""
    w = jnp.sqrt(params["stiffness"] * (1.0 / params["mass"] + 1.0 / BODY.mass))
    return 0.3 * jnp.cos(2.0 * w)


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("scan", marks=pytest.mark.slow),
        pytest.param("fused", marks=pytest.mark.needs("llvmlite")),
    ],
)
def test_a_mass_on_a_spring_has_the_frequency_of_two_bodies(engine):
    """And the derivatives by its mass and stiffness.

    Steps of w dt = 0.03 leave 0.3 (2 w) (w dt)^4/120 = 7e-9 of the phase.
    """
    params = {"mass": jnp.array(1.0), "stiffness": jnp.array(2.0)}
    end = lambda p: (oscillation(p, engine),) * 2
    slope, got = jax.jit(jax.jacrev(end, has_aux=True))(params)
    wanted, right = jax.value_and_grad(exact)(params)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-8)
    for name in params:
        np.testing.assert_allclose(slope[name], right[name], rtol=0, atol=1e-7)


def test_a_mode_on_a_body_with_a_fixed_point_is_faster_than_clamped():
    """``w / sqrt(1 - d^2/I)``, here 1.5 / sqrt(1 - 4/9): x'' at rest is -x times its square."""
    d = jnp.array([[2.0, 0.0, 0.0]])
    panel = dynamics.flexible_modes(jnp.array([1.5]), jnp.zeros(1), jnp.zeros((1, 3)), d)
    body, state = jq.Body(jnp.diag(jnp.array([9.0, 8.0, 7.0]))), still(0.2)
    state = state._replace(position=None, velocity=None)
    run = jax.jit(lambda s: dynamics.coupled(body, panel, s, s.aux[0], s.aux[1], jnp.zeros(3)))
    tau, acceleration = run(state)
    np.testing.assert_allclose(acceleration, [-(1.5**2) / (1 - 4 / 9) * 0.2], rtol=1e-15)
    np.testing.assert_allclose(tau, [-2.0 * acceleration[0], 0, 0], rtol=1e-15)


def test_uniform_gravity_outside_of_coupled_acts_on_added_masses_too():
    """The momentum grows by ``(M + sum m) g``, the energy by its work on the whole momentum."""
    g = jnp.array([1.0, 2.0, -9.8])
    fall = jq.torques.total(motion(BOTH, jnp.zeros(3)), jq.forces.gravity(BODY, g))
    power, force, _ = change(BOTH, fall)
    np.testing.assert_allclose(force, (5.0 + 0.8 + 0.5) * g, rtol=1e-14)
    np.testing.assert_allclose(power, g @ totals(BOTH, START)[1], rtol=1e-13)

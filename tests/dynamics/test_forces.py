"""Forces: gradients of one potential, exact motions, powers, and the reaction on an orbit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from examples.validation import problems
from jaxquat import dynamics, forces, quaternion, torques

MU = 2.3
BODY = jq.Body(jnp.array([[0.06, 0.01, -0.005], [0.01, 0.09, 0.004], [-0.005, 0.004, 0.11]]), 1.3)
STATE = jq.State(
    jnp.asarray(problems.TILTED),
    jnp.array([1.5, 0.3, -0.8]),
    position=jnp.array([0.9, -0.4, 0.3]),
    velocity=jnp.array([0.4, 1.1, 0.7]),
)
FIELD = torques.total(forces.point_mass(BODY, MU), torques.gravity_gradient(BODY, MU))


def turned(q, u):
    return quaternion.multiply(q, quaternion.exp(u))


def rotated(q, v):
    return np.asarray(quaternion.to_matrix(q)) @ np.asarray(v)


def test_field_and_gradient_are_those_of_the_potential():
    def energy(turn, position):
        here = STATE._replace(q=turned(STATE.q, turn), position=position)
        return forces.potential(BODY, here, MU)

    moment, slope = jax.jit(jax.grad(energy, (0, 1)))(jnp.zeros(3), STATE.position)
    torque, force = FIELD(0.0, STATE, None)
    np.testing.assert_allclose(torque, -moment, rtol=0, atol=1e-14)
    np.testing.assert_allclose(force, -slope, rtol=0, atol=1e-14)
    reaction = torques.gravity_gradient(BODY, MU)(0.0, STATE, None)
    about_origin = rotated(STATE.q, reaction.torque) + np.cross(STATE.position, reaction.force)
    np.testing.assert_allclose(about_origin, 0, atol=1e-15)
    known = torques.gravity_gradient(BODY, MU, lambda t: STATE.position)(0.0, STATE, None)
    np.testing.assert_allclose(reaction.torque, known, rtol=1e-13)


def test_field_and_gradient_are_the_leading_terms_of_the_sum_over_point_masses():
    """Pairs of masses at ±r: the next term is smaller by the square of the body over its distance.

    So the error of the gradient's force falls by 100 where the body shrinks by 10.
    """
    errors = []
    for size in (0.01, 0.001):
        places = size * np.array([[1.0, 0.2, 0.1], [0.1, 1.5, -0.3], [0.0, -0.4, 0.7]])
        places, masses = np.concatenate([places, -places]), np.tile([1.0, 0.7, 2.0], 2)
        outer = np.einsum("n,ni,nj->ij", masses, places, places)
        body = jq.Body(np.trace(outer) * np.eye(3) - outer, masses.sum())
        away = np.asarray(STATE.position) + places @ np.asarray(quaternion.to_matrix(STATE.q)).T
        pulls = -MU * masses[:, None] * away / np.linalg.norm(away, axis=1)[:, None] ** 3
        center = forces.point_mass(body, MU)(0.0, STATE, None).force
        exact = pulls.sum(axis=0) - np.asarray(center)
        got = np.asarray(torques.gravity_gradient(body, MU)(0.0, STATE, None).force)
        errors.append(np.abs(got - exact).max() / np.abs(exact).max())
    assert errors[0] < 1e-3
    assert errors[1] == pytest.approx(errors[0] / 100, rel=0.03)


@pytest.mark.parametrize(
    "scheme",
    [pytest.param(jq.no_squish, marks=pytest.mark.slow), jq.lgvi],
    ids=lambda scheme: scheme.name,
)
def test_the_energy_of_an_orbit_is_off_by_a_bounded_square_of_the_step(scheme):
    """Twice the steps leave a quarter of the error, and the second half as much as the first.

    The angular momentum about the origin, of orbit and body together, is held to rounding.
    """
    start = STATE._replace(
        position=jnp.array([2.0, 0.0, 0.0]), velocity=jnp.array([0.0, 0.8, 0.75])
    )

    def invariants(t, state, params):
        energy = dynamics.energy(BODY, state) + forces.potential(BODY, state, MU)
        return energy, dynamics.momentum(BODY, state, about=jnp.zeros(3))

    def worst(steps):
        grid = jq.grid(0.0, 40.0 / steps, steps, save_every=steps // 500)
        run = lambda: jq.rollout(
            scheme,
            BODY,
            FIELD,
            start,
            grid,
            options=jq.RolloutOptions(save=invariants),
        )
        energy, momentum = map(np.asarray, jax.jit(run)().saved)
        error = np.abs(energy / energy[0] - 1)
        assert error[250:].max() < 1.5 * error[:250].max()
        assert np.ptp(momentum, axis=0).max() < 1e-12
        return error.max()

    ratio = worst(4000) / worst(8000)
    assert ratio == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_an_orbit_of_the_earth_in_si_units(dtype):
    """``g = mu/r^2`` and its gradients by mu and mass are finite and right in both precisions."""
    radius = 7e6
    body = jax.tree.map(lambda x: x.astype(dtype), BODY)
    state = jax.tree.map(lambda x: x.astype(dtype), STATE)
    state = state._replace(position=jnp.asarray(radius * np.array([0.6, 0.0, 0.8]), dtype))

    def pull(mu, mass):
        heavy = jq.Body(body.inertia, mass)
        parts = (forces.point_mass(heavy, mu), torques.gravity_gradient(heavy, mu))
        return torques.total(*parts)(0.0, state, None).force[2]

    slope = jax.jit(jax.value_and_grad(pull, (0, 1)))
    value, slopes = slope(jnp.asarray(3.986e14, dtype), body.mass)
    wanted = -0.8 * 1.3 * 3.986e14 / radius**2
    rtol = 10 * float(jnp.finfo(dtype).eps) + 1e-13
    assert value.dtype == dtype
    np.testing.assert_allclose(value, wanted, rtol=rtol)
    np.testing.assert_allclose(slopes, [wanted / 3.986e14, wanted / 1.3], rtol=rtol)


def test_weight_points_down_and_follows_the_mass():
    weight = lambda mass: forces.gravity(jq.Body(BODY.inertia, mass))(0.0, STATE, None).force
    np.testing.assert_allclose(weight(1.3), [0, 0, -1.3 * 9.80665], rtol=1e-15)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(weight))(1.3), [0, 0, -9.80665], rtol=1e-15)
    moon = forces.gravity(BODY, (0.0, 1.62, 0.0))(0.0, STATE, None)
    np.testing.assert_allclose(moon.force, [0, 1.3 * 1.62, 0], rtol=1e-15)
    np.testing.assert_array_equal(moon.torque, np.zeros(3))


def falling(drag, mass, duration=2.0):
    body = jq.Body(BODY.inertia, mass)
    start = STATE._replace(position=jnp.zeros(3), velocity=jnp.zeros(3))
    plant = torques.total(forces.gravity(body), drag)
    grid = jq.grid(0.0, duration / 200, 200, save_every=200)
    path = jq.rollout(
        jq.rkmk4,
        body,
        plant,
        start,
        grid,
        options=jq.RolloutOptions(engine="scan"),
    )
    return path.final.velocity


def test_a_fall_against_linear_drag_and_its_slope_by_the_mass():
    """``v = -g s (1 - exp(-t/s))`` with s = m/c, in wind across the fall."""
    c, m, t = 0.8, 1.3, 2.0
    drag = forces.linear_drag(c, lambda t, position: jnp.array([3.0, 0.0, 0.0]))
    run = lambda mass: falling(drag, mass)
    v, slope = jax.jit(lambda m: jax.jvp(run, (m,), (jnp.ones_like(m),)))(jnp.asarray(m))
    s, g = m / c, 9.80665
    decay = np.exp(-t / s)
    np.testing.assert_allclose(v, [3 * (1 - decay), 0, -g * s * (1 - decay)], atol=1e-9)
    by_mass = np.array([-3 * decay * t / s**2, 0, -g * (1 - decay - decay * t / s)]) / c
    np.testing.assert_allclose(slope, by_mass, atol=1e-9)


def test_a_fall_against_quadratic_drag():
    """``v = -w tanh(g t/w)`` with ``w = sqrt(m g/k)``, from rest, where |v| has no slope."""
    k, m, g = 0.4, 1.3, 9.80665
    terminal = np.sqrt(m * g / k)
    run = lambda k: falling(forces.quadratic_drag(k), m)[2]
    v, slope = jax.jit(jax.value_and_grad(run))(jnp.asarray(k))
    x = g * 2.0 / terminal
    np.testing.assert_allclose(v, -terminal * np.tanh(x), rtol=1e-8)
    wanted = 0.5 / k * terminal * (np.tanh(x) - x / np.cosh(x) ** 2)
    np.testing.assert_allclose(slope, wanted, rtol=1e-7)


def test_drag_along_the_body_axes_against_wind_that_depends_on_place_and_time():
    k = np.array([0.3, 0.7, 1.1])
    wind = lambda t, position: jnp.stack([t, position[2], -position[0] * t])
    relative = np.asarray(STATE.velocity) - np.array([0.5, 0.3, -0.45])
    inside = rotated(quaternion.conjugate(STATE.q), relative)
    wanted = -rotated(STATE.q, k * inside)
    got = forces.linear_drag(k, wind)(0.5, STATE, None)
    np.testing.assert_allclose(got.force, wanted, rtol=1e-14)
    got = forces.quadratic_drag(k, wind)(0.5, STATE, None)
    np.testing.assert_allclose(got.force, np.linalg.norm(relative) * wanted, rtol=1e-14)


def test_the_power_of_a_thrust_is_that_at_its_point():
    """``f . R^T v_p``, where the point moves with ``v + R (omega × offset)``."""
    f, offset = jnp.array([0.3, -0.2, 4.0]), jnp.array([0.2, 0.1, -0.5])
    for thrust in (
        forces.thrust(f, offset),
        forces.thrust(lambda t, state, params: params * f, offset),
    ):
        load = thrust(0.0, STATE, 1.0)
        point = STATE.velocity + quaternion.rotate(STATE.q, jnp.cross(STATE.omega, offset))
        power = load.torque @ STATE.omega + load.force @ STATE.velocity
        np.testing.assert_allclose(power, quaternion.rotate(STATE.q, f) @ point, rtol=1e-13)
    by_command = forces.thrust(lambda t, state, params, command: command, offset)
    np.testing.assert_array_equal(by_command(0.0, STATE, None, f).force, load.force)


@pytest.mark.slow
@pytest.mark.needs("llvmlite")
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_the_fused_engine_has_the_forces_and_their_gradients(dtype):
    start, body = jax.tree.map(lambda x: x.astype(dtype), (STATE, BODY))

    def end(p, engine):
        heavy = jq.Body(body.inertia, p["mass"])
        plant = torques.total(
            forces.gravity(heavy),
            forces.point_mass(heavy, p["mu"]),
            torques.gravity_gradient(heavy, p["mu"]),
            forces.linear_drag(p["k"], lambda t, x: jnp.sin(x + t)),
            forces.quadratic_drag(p["k"]),
            forces.thrust(lambda t, state, params: params, jnp.asarray([0.1, 0, 0], dtype)),
        )
        grid = jq.grid(0.0, 0.01, 40)
        path = jq.rollout(
            jq.lie_euler,
            heavy,
            plant,
            start,
            grid,
            p["force"],
            options=jq.RolloutOptions(engine=engine),
        )
        weights = jnp.arange(1.0, 14.0, dtype=dtype)
        return weights @ jnp.concatenate([path.final[k] for k in (0, 1, 3, 4)])

    p = {"mass": 1.3, "mu": 2.0, "k": np.array([0.2, 0.3, 0.4]), "force": np.array([0.1, 0, 2])}
    p = jax.tree.map(lambda x: jnp.asarray(x, dtype), p)
    both = [jax.jit(jax.value_and_grad(end), static_argnums=1)(p, e) for e in ("scan", "fused")]
    atol = 1e-4 if dtype == jnp.float32 else 1e-11
    for a, b in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(a, b, rtol=atol, atol=atol)


def test_bad_input_of_forces_is_named():
    still = jq.State(STATE.q, STATE.omega)
    light = jq.Body(BODY.inertia)
    for make, error, message in (
        (lambda: forces.gravity(light), ValueError, r"^body: wanted a mass, got none"),
        (
            lambda: forces.gravity(BODY)(0.0, still, None),
            ValueError,
            r"^state: wanted position and velocity, got neither",
        ),
        (lambda: forces.linear_drag(-1.0), ValueError, r"^resistance: wanted finite values of at"),
        (lambda: forces.linear_drag(1.0, lambda t: 0), TypeError, r"^wind: wanted wind\(t, posit"),
        (
            lambda: forces.linear_drag(1.0, lambda t, x: jnp.ones(2))(0.0, STATE, None),
            ValueError,
            r"^wind\(...\): wanted shape \(3,\), got \(2,\)",
        ),
        (
            lambda: forces.thrust(lambda t, state: state)(0.0, STATE, None),
            TypeError,
            r"^force: wanted force\(t, state, params\), got",
        ),
        (lambda: forces.potential(BODY, still), ValueError, r"^state: wanted position and vel"),
    ):
        with pytest.raises(error, match=message):
            make()

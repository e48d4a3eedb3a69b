"""Coarser noise for the same path, and the orders of the stochastic schemes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

import jaxquat as jq
from examples.validation import noise as certificates
from jaxquat.stochastic.ornstein_uhlenbeck import ornstein_uhlenbeck

SKEWED = np.array([[1.0, 0.3, -0.2], [0.3, 2.0, 0.4], [-0.2, 0.4, 1.5]])  # N m s
TURNED = np.array([[2.0, 0.2, 0.1], [0.2, 1.0, -0.3], [0.1, -0.3, 2.5]])  # kg m^2
DTYPES = [pytest.param(np.float32, id="float32"), pytest.param(np.float64, id="float64")]


def skewed(make, kT, dtype):
    damping, kT = jnp.asarray(SKEWED, dtype), jnp.asarray(kT, dtype)
    if make == "brownian":
        return jq.stochastic.brownian(damping, kT)
    return jq.stochastic.langevin(jq.no_squish, damping, kT)


@pytest.mark.parametrize("dtype", some([np.float32, np.float64], [np.float64]))
def test_coarsened_normals_are_standard_normals_whatever_the_step(dtype):
    """They are linear in 12 normals; the covariance of the six is the product of the matrices."""
    inertia, damping = jnp.asarray(TURNED, dtype), jnp.asarray(SKEWED, dtype)
    of = lambda dt, noise: certificates.coarsened(inertia, damping, noise, dt)[0]
    units = jnp.eye(12, dtype=dtype).reshape(12, 2, 6)
    steps = jnp.asarray(10.0 ** np.arange(-6, 7), dtype)
    columns = jax.jit(jax.vmap(jax.vmap(of, (None, 0)), (0, None)))(steps, units)
    assert columns.dtype == dtype
    covariance = np.einsum("kai,kaj->kij", columns, columns)
    assert np.abs(covariance - np.eye(6)).max() < 20 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", some([np.float32, np.float64], [np.float32]))
def test_rate_and_turn_of_a_long_step_are_those_of_two_half_steps_to_rounding(dtype):
    """From rest at a fixed attitude, by the matrices of the step in body axes.

    A difference of turns gives y, sqrt(12) times as large, by roots of condition 2, of six sums.
    """
    rows = np.random.default_rng(0).normal(size=(2, 6)).astype(dtype)
    inertia, damping = jnp.asarray(TURNED, dtype), jnp.asarray(SKEWED, dtype)

    @jax.jit
    @jax.vmap
    def ends(dt):
        fixed = inertia, damping, jnp.asarray(0.3, dtype)

        def moved(o, rate, row):
            x, y = row[:3], row[3:]
            turn = o.turn @ rate + o.turn_of_x @ x + o.turn_of_y @ y
            return rate + o.change @ rate + o.rate_of_x @ x, turn / dt

        half, whole = (ornstein_uhlenbeck(*fixed, h) for h in (dt, 2.0 * dt))
        between, first = moved(half, jnp.zeros(3, dtype), rows[0])
        rate, second = moved(half, between, rows[1])
        (row,) = certificates.coarsened(inertia, damping, rows, dt)
        return (rate, first + second), moved(whole, jnp.zeros(3, dtype), row)

    two, one = ends(jnp.asarray([1e-6, 1e-2, 1.0, 1e2, 1e6], dtype))
    for both, single in zip(two, one, strict=True):
        size = np.abs(both).max(axis=1, keepdims=True)
        assert np.abs((both - single) / size).max() < 64 * np.finfo(dtype).eps


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_long_step_ends_where_two_half_steps_do(dtype):
    """Turns of 1e-8 rad add up, to a relative error of their size, without a gyroscopic term.

    The rounding is that of the coarsened normals, for which the test above derives its limit.
    """
    body, scheme = jq.Body(jnp.asarray(TURNED, dtype)), skewed("langevin", 1e-20, dtype)
    damping = jnp.asarray(SKEWED, dtype)
    steps = jnp.asarray([1e-3, 1.0, 1e3], dtype)
    rest = jq.State(jnp.tile(jnp.eye(4, dtype=dtype)[0], (3, 1)), jnp.zeros((3, 3), dtype))
    rows = np.random.default_rng(0).normal(size=(2, scheme.noise(rest))).astype(dtype)
    coarse = jax.vmap(lambda dt: certificates.coarsened(body.inertia, damping, rows, dt)[0])
    coarse = jax.jit(coarse)(steps)

    @jax.jit
    @jax.vmap
    def take(state, dt, row):
        return scheme(body, jq.torques.zero, 0.0, state, dt, None, row)

    half = take(rest, steps, jnp.tile(rows[0], (3, 1)))
    two, one = take(half, steps, jnp.tile(rows[1], (3, 1))), take(rest, 2.0 * steps, coarse)
    for both, single in ((two.q[:, 1:], one.q[:, 1:]), (two.omega, one.omega)):
        size = np.abs(both).max(axis=1, keepdims=True)
        assert np.all(np.abs(both - single) <= (64 * np.finfo(dtype).eps + 1e-8) * size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "f", "x", "order"),
    [
        ("langevin", certificates.motions, None, 2),
        ("Euler-Maruyama", certificates.motions, None, 1),
        ("langevin", certificates.attitudes, 1e8, 1),
        ("brownian", certificates.attitudes, None, 1),
    ],
)
def test_the_mean_after_a_step_is_that_of_the_generator_to_the_weak_order(name, f, x, order):
    """The mean of f is f + dt L f + dt^2/2 L^2 f + O(dt^3); at weak order 1 a step is dt^2 off."""
    dts = np.array([0.02, 0.01])
    slope = certificates.slope(certificates.local_errors(name, f, dts, x), dts)
    np.testing.assert_allclose(slope, order + 1, atol=0.05)


def test_the_generator_of_a_free_rate_is_that_of_ornstein_and_uhlenbeck():
    """L omega^2 = -2 gamma omega^2 + 2 gamma kT/I about each axis of a body with one moment."""
    kT, omega = 0.3, np.array([0.7, -0.5, 0.4])
    problem = certificates.with_inertia(2.0 * np.ones(3), 0.0)
    spread = (np.zeros((3, 3)), np.diag(np.sqrt(2.0 * kT * certificates.DAMPING) / 2.0))
    applied = certificates.generator(problem._replace(spread=spread), lambda q, omega: omega**2)
    gamma = certificates.DAMPING / 2.0
    mean = jax.jit(applied)(jnp.array([1.0, 0, 0, 0]), omega)
    np.testing.assert_allclose(mean, 2.0 * gamma * (kT / 2.0 - omega**2), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "moments", "order"),
    [
        ("langevin", certificates.MOMENTS, 1.0),
        ("langevin", 2.0 * certificates.BALL, 2.0),
        ("brownian", certificates.MOMENTS, 0.5),
    ],
)
def test_the_strong_order_is_that_of_its_first_iterated_integral(name, moments, order):
    """Langevin: of the rate and the gyroscopic term; without one, of the rate and the turn.

    Brownian: of the noises about two axes, whose turns do not commute.
    """
    errors, _ = certificates.strong_errors(name, moments, bodies=300)
    slopes = certificates.slope(errors, 1.0 / np.array(certificates.COUNTS))
    assert np.mean(slopes[1:]) == pytest.approx(order, abs=0.15)


@pytest.mark.slow
def test_langevin_without_inertia_is_brownian_on_the_path_of_its_noise():
    """The normals of brownian are ``K^T L^-T chol(L^T D^-1 L) y``, with D = K K^T and I = L L^T.

    The rate at the end of a step and its memory in the next one, each 1/x in a turn of
    sqrt(2/x), make the relative distance sqrt(2/x).
    """
    x, dt = 1e6, 1e-2
    inertia = TURNED * dt / x
    low, factor = np.linalg.cholesky(inertia), np.linalg.cholesky(SKEWED)
    root = np.linalg.cholesky(low.T @ np.linalg.solve(SKEWED, low))
    turned = factor.T @ np.linalg.solve(low.T, root)
    np.testing.assert_allclose(turned @ turned.T, np.eye(3), atol=1e-12)
    rows = np.random.default_rng(0).normal(size=(50, 6))
    start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))

    def last(make, rows):
        scheme = skewed(make, 0.5, float)
        body = jq.Body(jnp.asarray(inertia))
        return jq.rollout(
            scheme, body, certificates.dipole, start, jq.grid(0.0, dt, 50), 1.0, noise=rows
        ).final.q

    heavy, light = last("langevin", rows), last("brownian", rows[:, 3:] @ turned.T)
    assert float(jq.quaternion.distance(start.q, light)) > 0.1
    assert float(jq.quaternion.distance(heavy, light)) < 10.0 * np.sqrt(2.0 / x)

"""Pointing errors over windows, against closed forms of noise, sinusoids, walks and resonances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, linalg, optimize, special

import jaxquat as jq
from jaxquat.control import pointing

ERRORS = ("stride", "drift", "reproducibility")
N, WINDOW, DRIFT, LATER = 60, 10, 15, 40  # samples
LAGS = np.subtract.outer(np.arange(N), np.arange(N))

errors = jax.jit(pointing.errors, static_argnums=1, static_argnames=ERRORS)
percentile = jax.jit(pointing.percentile, static_argnums=1, static_argnames="interpretation")


def mean_squares(covariance):
    """The mean squares of the metrics of samples with this covariance, for the first window.

    The metrics are linear in the error, so the identity gives their matrices.
    """
    maps = errors(np.eye(N), WINDOW, drift=DRIFT, reproducibility=LATER)
    rows = (maps.ape[:WINDOW], maps.mpe[:1], maps.rpe[0], maps.pde[:1], maps.pre[:1])
    return [np.mean(np.einsum("ij,jk,ik->i", x, covariance, x)) for x in map(np.asarray, rows)]


def test_the_metrics_of_white_noise_are_those_of_means_of_n_samples():
    wanted = [1.0, 1 / WINDOW, 1 - 1 / WINDOW, 2 / WINDOW, 2 / WINDOW]
    np.testing.assert_allclose(mean_squares(np.eye(N)), wanted, rtol=1e-13)


def test_the_metrics_of_a_random_walk_grow_with_window_and_separation():
    """Steps of variance 1: (n^2 - 1)/(6 n) about the mean, s - (n^2 - 1)/(3 n) between means."""
    walk = np.minimum.outer(np.arange(N), np.arange(N)).astype(float)
    spread = (WINDOW**2 - 1) / (6 * WINDOW)
    got = mean_squares(walk)[2:]
    np.testing.assert_allclose(got, [spread, DRIFT - 2 * spread, LATER - 2 * spread], rtol=1e-12)


@pytest.mark.parametrize("factor", [0.3, 0.9, 0.99])
def test_the_metrics_of_an_autoregression_are_sums_of_powers(factor):
    n, f = WINDOW, factor
    mean = (n * (1 - f**2) - 2 * f * (1 - f**n)) / (n * (1 - f)) ** 2
    shared = [f ** (s - n + 1) * ((1 - f**n) / (n * (1 - f))) ** 2 for s in (DRIFT, LATER)]
    wanted = [1.0, mean, 1 - mean, *(2 * mean - 2 * x for x in shared)]
    np.testing.assert_allclose(mean_squares(f ** np.abs(LAGS)), wanted, rtol=1e-11)


def test_the_mean_of_a_sinusoid_is_that_of_dirichlet():
    """Over random phases the covariance is cos(theta (i - j))/2."""
    theta = 0.37
    mean = 0.5 * (np.sin(WINDOW * theta / 2) / (WINDOW * np.sin(theta / 2))) ** 2
    drifts = [4 * np.sin(s * theta / 2) ** 2 * mean for s in (DRIFT, LATER)]
    wanted = [0.5, mean, 0.5 - mean, *drifts]
    np.testing.assert_allclose(mean_squares(0.5 * np.cos(theta * LAGS)), wanted, rtol=1e-12)


def test_windows_begin_at_strides_and_keep_axes():
    error = np.arange(24.0).reshape(12, 2)  # a ramp of 2 a sample
    got = errors(error, 4, stride=3, drift=5, reproducibility=8)
    np.testing.assert_array_equal(got.ape, error)
    np.testing.assert_array_equal(got.mpe, [[3, 4], [9, 10], [15, 16]])
    np.testing.assert_array_equal(got.rpe[1, :, 0], [-3, -1, 1, 3])
    np.testing.assert_array_equal(got.pde, [[10, 10], [10, 10]])
    np.testing.assert_array_equal(got.pre, [[16, 16]])
    assert errors(error, 4).pde is None


# Spectra.

T, S = 3.0, 7.5  # s
EPS = np.finfo(float).eps
GRID = np.concatenate([[0.0], np.geomspace(1e-5, 1e4, 4000)])  # Hz; a decade has 444
FACTOR = np.log(GRID[2] / GRID[1])  # linear in between: f^-4 errs by 20/12 FACTOR^2, 5e-5


def mean_of(rate, window=T):
    """The mean over a window, twice, of ``exp(-rate |t|)``; the rate may be complex."""
    x = rate * window
    return 2 * (1 / x - (1 - np.exp(-x)) / x**2)


def between(rate, separation=S, window=T):
    """The mean of ``exp(-rate |t|)`` over the times between two windows."""
    return np.exp(-rate * separation) * (2 * np.sinh(rate * window / 2) / (rate * window)) ** 2


def from_density(density, grid=GRID):
    return pointing.from_spectrum(grid, density, T, drift=S, reproducibility=np.inf)


@pytest.mark.parametrize("time", [0.5, 2.0, 100.0])
def test_the_metrics_of_an_ornstein_uhlenbeck_process(time):
    density = 4 * time / (1 + (2 * np.pi * GRID * time) ** 2)  # of variance 1
    mean = mean_of(1 / time)
    wanted = [1.0, mean, 1 - mean, 2 * mean - 2 * between(1 / time), 2 * mean]
    np.testing.assert_allclose(from_density(density), wanted, rtol=1e-4)


@pytest.mark.parametrize("omega", [0.3, 2.0, 40.0])
def test_the_metrics_of_a_flexible_mode_that_white_noise_excites(omega):
    """The covariance is the real part of (1 - i k) exp(-(zeta omega - i omega_d) |t|).

    The grid has 40 frequencies in the half width of the resonance.
    """
    zeta = 0.01
    near = omega / (2 * np.pi) * (1 + zeta * np.arcsinh(np.arange(-4000, 4001) / 40))
    grid = np.unique(np.concatenate([GRID, near[near > 0]]))
    ratio = 2 * np.pi * grid / omega
    density = 8 * zeta / omega / ((1 - ratio**2) ** 2 + (2 * zeta * ratio) ** 2)  # of variance 1
    damped = np.sqrt(1 - zeta**2)
    rate, factor = zeta * omega - 1j * omega * damped, 1 - 1j * zeta / damped
    mean, shared = ((factor * x).real for x in (mean_of(rate), between(rate)))
    wanted = [1.0, mean, 1 - mean, 2 * mean - 2 * shared, 2 * mean]
    np.testing.assert_allclose(from_density(density, grid), wanted, rtol=1e-3)


def test_a_random_walk_has_relative_errors_though_no_variance():
    """Of intensity q = 1, one-sided density 2/(2 pi f)^2: q T/6, and q (s - T/3) between means.

    Below the grid, 1e-5 Hz times s, and above it, nothing counts.
    """
    got = from_density(np.append(0.0, 2 / (2 * np.pi * GRID[1:]) ** 2))
    np.testing.assert_allclose([got.rpe, got.pde], [T / 6, S - T / 3], rtol=2e-4)


def test_lines_have_the_weights_at_their_frequencies():
    f, power = np.array([0.1, 2.3, 0.0]), np.array([[0.5, 0.0], [2.0, 0.0], [0.0, 3.0]])
    spectrum = jax.jit(lambda power: pointing.from_spectrum(f, power, T, drift=S, lines=True))
    got = spectrum(power)
    mean = np.sinc(f * T) ** 2
    weights = np.ones(3), mean, 1 - mean, 4 * np.sin(np.pi * f * S) ** 2 * mean
    np.testing.assert_allclose(got[:4], [w @ power for w in weights], rtol=1e-14, atol=1e-16)


def test_a_slow_sinusoid_has_a_small_relative_error_without_cancellation():
    """1 - sinc^2 = x^2/3 - 2 x^4/45, x = pi f T, also in float32."""
    with jax.enable_x64(False):
        f = np.float32([1e-6, 1e-4, 1e-2])
        line = jax.jit(lambda f: pointing.from_spectrum(f, np.ones(1, "f"), T, lines=True))
        got = [line(f[k : k + 1]) for k in (0, 1, 2)]
    x = np.pi * np.float64(f) * T
    wanted = x**2 / 3 - 2 * x**4 / 45 + x**6 / 315
    np.testing.assert_allclose([x.rpe for x in got], wanted, rtol=5e-7)


@pytest.mark.parametrize(
    "grid",
    [[0.0, 0.3, 2.0, 50.0], [1.0, 1.001, 1.1, 7.0], [99.0, 100.0, 100.01, 100.02]],
    ids=["wide", "mixed", "narrow"],
)
def test_densities_that_are_linear_between_frequencies_are_integrated_exactly(grid):
    density = np.array([1.0, 3.0, 0.5, 0.2])
    weights = (
        lambda f: 1.0,
        lambda f: np.sinc(f * T) ** 2,
        lambda f: 1.0 - np.sinc(f * T) ** 2,
        lambda f: 4 * np.sin(np.pi * f * S) ** 2 * np.sinc(f * T) ** 2,
        lambda f: 2 * np.sinc(f * T) ** 2,
    )
    nodes, shares = np.polynomial.legendre.leggauss(20)
    edges = np.unique([*grid, *np.arange(grid[0], grid[-1], 0.05)])
    middle, half = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
    f = middle[:, None] + half[:, None] * nodes
    values = half[:, None] * shares * np.interp(f, grid, density)
    wanted = [np.sum(values * weight(f)) for weight in weights]
    got = from_density(density, np.array(grid))
    rounding = 8 * EPS * (1 + S / T) ** 2 * wanted[0]  # of the antiderivative, in wide bands
    np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=rounding)


# Confidence.


def test_each_interpretation_of_sinusoids_has_its_own_level():
    """Of a sin with random phases a share p is below a sin(pi p/2).

    The amplitudes are even from 0 to 1, so mixed the share below x is the mean over a of
    (2/pi) asin(min(x/a, 1)).
    """
    amplitude = (np.arange(400) + 0.5) / 400
    values = amplitude[:, None] * np.sin(2 * np.pi * (np.arange(500) + 0.5) / 500)
    level = {
        name: float(percentile(values, 0.9, interpretation=name)[0])
        for name in ("mixed", "ensemble", "temporal")
    }

    def share(x):
        rest = integrate.quad(lambda a: 2 / np.pi * np.arcsin(x / a), x, 1.0)[0]
        return x + rest - 0.9

    assert level["temporal"] == pytest.approx(np.sin(0.45 * np.pi), abs=3e-3)
    assert level["ensemble"] == pytest.approx(0.9, abs=3e-3)
    assert level["mixed"] == pytest.approx(optimize.brentq(share, 0.1, 1.0), abs=3e-3)


def test_the_level_is_the_least_sample_that_enough_do_not_exceed():
    values = np.array([[3.0, -1.0, 2.0, 0.5, -4.0]])
    for probability, wanted in [(0.2, 0.5), (0.21, 1.0), (0.6, 2.0), (0.8, 3.0), (0.81, 4.0)]:
        level, low, high = percentile(values, probability)
        assert float(level) == wanted, probability
        assert (float(low), float(high)) == (0.0, np.inf)  # one member says nothing of others
    assert np.all(np.isnan(percentile(np.array([[1.0, np.nan]]), 0.5)))


@pytest.mark.parametrize(("m", "probability"), [(60, 0.9), (400, 0.99), (1000, 0.997)])
def test_the_interval_of_the_ensemble_is_that_of_order_statistics(m, probability):
    """The ends are the nearest ranks beyond which the quantile is with at most 2.5 % each.

    The number of members below the quantile is binomial.
    """
    rank = np.arange(1.0, m + 1)
    level, low, high = percentile(rank[:, None], probability, interpretation="ensemble")
    assert float(level) == np.ceil(probability * m - 1e-9)
    at_most = [special.bdtr(k, m, probability) for k in range(m + 1)]
    low, high = float(low), float(high)
    assert at_most[int(low) - 1] <= 0.025 < at_most[int(low)]
    if np.isinf(high):
        assert at_most[m - 1] < 0.975
    else:
        assert 1 - at_most[int(high) - 1] <= 0.025 < 1 - at_most[int(high) - 2]


def test_too_few_members_have_no_upper_bound():
    """Without a member beyond the quantile: 0.9^m > 2.5 % up to m = 35."""
    for m, bounded in ((35, False), (36, True)):
        high = percentile(np.ones((m, 1)), 0.9, interpretation="ensemble")[2]
        assert bool(np.isfinite(high)) == bounded


def test_the_mixed_interval_counts_members_and_not_times():
    """Biases of deviation 1 and noise of 0.5 at 50 times: 95 % of the intervals hold the level.

    Of 400 intervals the share is within three standard errors, 3.3 %, of 95 %. If the 2000 samples
    counted as independent, the intervals would be about five times as narrow.
    """
    keys = jax.random.split(jax.random.key(3), 400)

    def interval(key):
        bias, noise = jax.random.split(key)
        draw = jax.random.normal(bias, (40, 1)) + 0.5 * jax.random.normal(noise, (40, 50))
        return percentile(draw, 0.8)

    level, low, high = jax.jit(jax.vmap(interval))(keys)
    right = np.sqrt(1.25 * 2) * special.erfinv(0.8)
    assert np.mean((low <= right) & (right <= high)) == pytest.approx(0.95, abs=0.033)
    assert np.all((low <= level) & (level <= high))


def test_members_are_reduced_by_ensembles():
    """The mean squares over 4000 members agree with 1/n and 1 - 1/n to four standard errors."""
    noise = np.random.default_rng(0).normal(size=(4000, N))
    of_members = jax.vmap(lambda error: errors(error, WINDOW))(noise)
    rows = {"mpe": np.asarray(of_members.mpe[:, 0]), "rpe": np.asarray(of_members.rpe[:, 0, 0])}
    square = jq.ensembles.mean(lambda rows: jax.tree.map(np.square, rows))
    result = square.finish(square.summarise(rows, np.arange(4000)))
    for name, wanted in (("mpe", 1 / WINDOW), ("rpe", 1 - 1 / WINDOW)):
        assert abs(result.mean[name] - wanted) < 4 * result.standard_error[name]


# Loops.


@jax.jit
def loop_of(gains, dt=0.05):
    """A panel on an axis, held by a law: its matrices, from the torque to the attitude error."""
    body = jq.Body.from_principal(jnp.array([2.0, 2.5, 3.0]))
    panel = jq.dynamics.flexible_modes(
        jnp.array([3.0]), jnp.array([0.02]), jnp.zeros((1, 3)), jnp.array([[0.6, 0.0, 0.0]])
    )
    level = jnp.array([1.0, 0.0, 0.0, 0.0])

    def torque(t, state, disturbance):
        held = jq.control.quaternion_law(state, gains, level) + disturbance
        tau, acceleration = jq.dynamics.coupled(body, panel, state, *state.aux, held)
        return tau, (state.aux[1], acceleration)

    still = jq.State(level, jnp.zeros(3), (jnp.zeros(1), jnp.zeros(1)))
    a, b = jq.dynamics.linearize(jq.rkmk2, body, torque, 0.0, still, dt, jnp.zeros(3))
    return a, b, jnp.eye(len(a))[:3]


GAINS = jq.control.Gains(jnp.array([2.0, 3.0, 4.0]), jnp.array([1.0, 2.0, 3.0]))


def test_the_spectrum_of_a_loop_has_the_variance_of_lyapunov():
    """White torques at each step; the covariance solves P = A P A' + B B'.

    The density is smooth and periodic, so the trapezoidal rule has no error.
    """
    dt, gains = 0.05, GAINS
    a, b, c = (np.asarray(x) for x in loop_of(gains))
    frequency = np.linspace(0.0, 0.5 / dt, 4001)
    h = pointing.transfer(a, b, c, frequency, dt)
    assert h.shape == (4001, 3, 3)
    power = 2 * dt * np.sum(np.abs(h) ** 2, axis=2)
    got = pointing.from_spectrum(frequency, power, T).ape
    covariance = linalg.solve_discrete_lyapunov(a, b @ b.T)
    np.testing.assert_allclose(got, np.diag(c @ covariance @ c.T), rtol=1e-9)


def test_the_relative_error_of_a_loop_is_differentiable_by_its_gains():
    """Against central differences, with noise and the line of a wheel whose speed changes."""
    frequency, dt = np.concatenate([[0.0], np.geomspace(1e-3, 10.0, 400)]), 0.05

    @jax.jit
    def relative(params):
        stiffness, damping, speed = params
        a = jnp.stack([jnp.array([1.0, dt]), jnp.stack([-stiffness * dt, 1.0 - damping * dt])])
        loop = a, jnp.array([[0.0], [dt]]), jnp.array([[1.0, 0.0]])
        density = jnp.abs(pointing.transfer(*loop, frequency, dt)[:, 0, 0]) ** 2
        line = jnp.abs(pointing.transfer(*loop, speed[None], dt)[:, 0, 0]) ** 2 / 2
        noise = pointing.from_spectrum(frequency, density, T, drift=S)
        wheel = pointing.from_spectrum(speed[None], line, T, drift=S, lines=True)
        return noise.rpe + wheel.rpe + noise.pde + wheel.mpe

    params = np.array([0.8, 1.1, 0.3])
    steps = 1e-6 * np.eye(3)
    changes = [(relative(params + x) - relative(params - x)) / 2e-6 for x in steps]
    np.testing.assert_allclose(jax.jit(jax.grad(relative))(params), changes, rtol=1e-7)


def test_a_bandwidth_that_is_fitted_to_a_percentile_is_the_optimum_of_mathematics():
    """A tracker, e' = -k e + w + k v, with white drift q and white noise r of its sensor.

    Its error is an Ornstein-Uhlenbeck process of variance (q + k^2 r)/(2 k) and rate k, so the
    99.7 % level of its RPE is a closed form in k, whose minimum SciPy finds. Without a window the
    minimum is at sqrt(q/r); a window moves it.
    """
    q, r = 2e-4, 5e-4
    level = np.sqrt(2) * special.erfinv(0.997)

    def exact(k):
        return level * np.sqrt((q + k**2 * r) / (2 * k) * (1 - mean_of(k)))

    grid = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 2000)])

    def fitted(logarithm, _):
        k = jnp.exp(logarithm)
        density = 2 * (q + k**2 * r) / (k**2 + (2 * jnp.pi * grid) ** 2)
        return level * jnp.sqrt(pointing.from_spectrum(grid, density, T).rpe)

    best = optimize.minimize_scalar(exact, bounds=(0.01, 10.0), method="bounded").x
    slope = jax.jit(jax.grad(fitted))
    found = np.exp(optimize.brentq(lambda x: float(slope(x, None)), np.log(0.01), np.log(10.0)))
    assert found == pytest.approx(best, rel=1e-3)
    assert abs(best / np.sqrt(q / r) - 1) > 0.2


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_results_have_the_dtype_of_the_error(dtype):
    error = jnp.asarray(np.random.default_rng(1).normal(size=(40, 3)), dtype)
    got = jax.jit(lambda x: errors(x, 8, drift=16))(error)
    assert {x.dtype for x in got[:4]} == {jnp.dtype(dtype)}
    power = jnp.ones(3, dtype)
    spectral = jax.jit(lambda x: pointing.from_spectrum(np.arange(3.0), x, 2.0, drift=4.0))(power)
    assert {x.dtype for x in spectral[:4]} == {jnp.dtype(dtype)}
    np.testing.assert_allclose(spectral.mpe + spectral.rpe, spectral.ape, rtol=1e-6)
    for name in ("mixed", "ensemble", "temporal"):
        levels = percentile(error.T, 0.7, interpretation=name)
        assert {x.dtype for x in levels} == {jnp.dtype(dtype)}
    loop = tuple(np.array([[x]], dtype) for x in (0.9, 1.0, 1.0))
    got = np.abs(jax.jit(pointing.transfer)(*loop, jnp.array([0.0, 5.0], dtype), 0.1))
    assert got.dtype == dtype
    np.testing.assert_allclose(got[:, 0, 0], [10.0, 1 / 1.9], rtol=1e-5)

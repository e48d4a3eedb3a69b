"""Allan deviation: closed forms, another package, and densities within their standard errors."""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import jaxquat as jq
from jaxquat.sensors import allan

MEASURED = jax.jit(jq.gyro.measure)
GYRO = jq.gyro.Gyro.ideal()._replace(noise=jnp.array(1e-3), bias_random_walk=jnp.array(1e-4))
STILL = np.zeros((36_000, 3))  # an hour at 10 Hz


def white(number=20_000, seed=0):
    return np.random.default_rng(seed).normal(size=(number, 3))


def flicker(instability, number, dt, rng):
    """Noise (number, 3) of the two-sided spectrum B^2/(2 pi f), from twice as many samples."""
    frequency = np.fft.rfftfreq(2 * number, dt)[1:]
    gain = np.append(0.0, instability / np.sqrt(2.0 * np.pi * frequency * dt))
    spectrum = gain[:, None] * np.fft.rfft(rng.normal(size=(2 * number, 3)), axis=0)
    return np.fft.irfft(spectrum, axis=0)[:number]


def test_the_deviation_is_the_sum_over_all_overlapping_triples_of_the_angle():
    """In loops: squares of second differences of the integrated rate."""
    samples, dt = white(100), 0.5
    times, deviation = jq.allan.deviation(samples, dt)
    np.testing.assert_array_equal(times, [0.5, 1.0, 2.0, 4.0])
    angle = np.concatenate([np.zeros((1, 3)), dt * np.cumsum(samples, axis=0)])
    for k, n in enumerate((1, 2, 4, 8)):
        triples = [angle[i + 2 * n] - 2 * angle[i + n] + angle[i] for i in range(101 - 2 * n)]
        wanted = np.sqrt(np.mean(np.square(triples), axis=0) / (2.0 * (n * dt) ** 2))
        np.testing.assert_allclose(deviation[k], wanted, rtol=1e-11)


@pytest.mark.slow
def test_the_deviation_is_that_of_allantools():
    allantools = pytest.importorskip("allantools", reason="allantools is not installed")
    samples = white()
    times, deviation = jq.allan.deviation(samples, 0.1)
    for k in range(3):
        others = allantools.oadev(samples[:, k], rate=10.0, data_type="freq", taus=times)[1]
        np.testing.assert_allclose(deviation[:, k], others, rtol=1e-11)


def test_white_noise_falls_with_the_root_of_the_time_and_a_walk_rises_with_it():
    """N/sqrt(tau), and K sqrt(tau/3) beyond the first few samples, to three standard errors.

    Of 200,000 samples the variance at n of them has a relative error of about sqrt(n/100,000).
    """
    times, deviation = jq.allan.deviation(white(200_000), 0.01)
    np.testing.assert_allclose(deviation[:7] * np.sqrt(times[:7, None]), 0.1, rtol=0.04)
    slope = np.polyfit(np.log(times[:7]), np.log(deviation[:7]), 1)[0]
    np.testing.assert_allclose(slope, -0.5, atol=0.01)
    walk = 1e-3 * np.sqrt(0.01) * np.cumsum(white(200_000, 1), axis=0)
    times, deviation = jq.allan.deviation(walk, 0.01)
    np.testing.assert_allclose(deviation[4:8] / np.sqrt(times[4:8, None] / 3), 1e-3, rtol=0.06)


def errors_of(number):
    """Errors over their standard errors, (number, 2, 3), of noise and walk of an hour."""
    fits = [jq.allan.fit(MEASURED(jax.random.key(k), GYRO, STILL, 0.1), 0.1) for k in range(number)]
    return np.array([
        [(getattr(fit, name) - getattr(GYRO, name)) / fit.standard_errors[name]
         for name in ("noise", "bias_random_walk")]
        for fit in fits
    ])  # fmt: skip


@pytest.mark.slow
def test_the_densities_of_a_simulated_gyroscope_come_back_within_their_standard_errors():
    """Of 60 independent standard normals the mean square is 1 within four times sqrt(2/60).

    One of 120 is beyond 3 in a quarter of such experiments, beyond 3.5 in one of 20.
    """
    errors = errors_of(20)
    assert np.abs(errors).max() < 3.5
    assert np.all(np.abs(np.mean(errors**2, axis=(0, 2)) - 1.0) < 4.0 * np.sqrt(2.0 / 60.0))


def an_hour(seed):
    rng = np.random.default_rng(seed)
    walk = 1e-4 * np.sqrt(0.1) * np.cumsum(rng.normal(size=STILL.shape), axis=0)
    return walk + 1e-3 / np.sqrt(0.1) * rng.normal(size=STILL.shape)


def test_an_hour_gives_noise_to_half_a_percent_and_walk_to_a_tenth():
    fit = jq.allan.fit(an_hour(0), 0.1)
    for name, part in (("noise", 5e-3), ("bias_random_walk", 0.12)):
        errors = fit.standard_errors[name]
        assert np.all(errors < part * getattr(GYRO, name)), name
        assert np.all(np.abs(getattr(fit, name) - getattr(GYRO, name)) < 3.5 * errors), name
    assert np.all(fit.reduced_chi_squared < 3.0)


def test_a_walk_alone_of_200000_samples_is_fitted():
    """K within 3.5 standard errors; sampled, it has white noise of ``K dt/sqrt(6)`` beside it."""
    fit = jq.allan.fit(1e-5 * np.cumsum(white(200_000, 1), axis=0) * np.sqrt(0.1), 0.01)
    off = fit.bias_random_walk - 1e-5 * np.sqrt(10.0)
    assert np.all(np.abs(off) < 3.5 * fit.standard_errors["bias_random_walk"])
    assert np.all(fit.standard_errors["bias_random_walk"] < 0.01 * fit.bias_random_walk)
    np.testing.assert_allclose(fit.noise, 1e-7 * np.sqrt(10.0 / 6.0), rtol=0.1)
    assert np.all(fit.reduced_chi_squared < 3.0)


@functools.cache
def kernels_at_lags(number):
    """Those of white noise, bias instability and random walk, at lags below ``number`` intervals.

    In 50 digits.
    """
    with mpmath.workdps(50):
        kernels = [
            lambda t: -t / 2,
            lambda t: t**2 * mpmath.log(t) / (2 * mpmath.pi) if t else mpmath.mpf(0),
            lambda t: t**3 / 12,
        ]
        return {t: [f(mpmath.mpf(t)) for f in kernels] for t in range(number)}


@pytest.mark.parametrize(("first", "second"), [(1, 1), (32, 32), (64, 2), (256, 64)])
def test_covariances_of_allan_variances_are_sums_over_all_lags(first, second):
    """Of 3000 samples, with the second differences in 50 digits."""
    number = 3000
    values = kernels_at_lags(2 * number)
    with mpmath.workdps(50):
        sizes, sums = [number + 1 - 2 * n for n in (first, second)], np.zeros((3, 3))
        terms = [(-first * i + second * j, (1, -2, 1)[i] * (1, -2, 1)[j])
                 for i in range(3) for j in range(3)]  # fmt: skip
        for lag in range(1 - sizes[1], sizes[0]):
            pairs = min(sizes[0], sizes[1] + lag) - max(0, lag)
            r = [float(sum(w * values[abs(lag - at)][p] for at, w in terms)) for p in range(3)]
            sums += pairs * np.outer(r, r) / (first * second) ** 2
    means = np.array(sorted({first, second}, reverse=True))
    moments = allan._moments(means, number)[-1 if first != second else 0, 0]
    np.testing.assert_allclose(moments, sums / (2 * sizes[0] * sizes[1]), rtol=1e-4)


def test_covariances_of_long_recordings_fall_with_their_length():
    """Those of one averaging time: as 1/N, since distant differences are nearly independent."""
    few, many = (allan._moments(np.array([4]), 10**n)[0, 0] for n in (5, 7))
    np.testing.assert_allclose(few, 100.0 * many, rtol=1e-3)


@pytest.mark.slow
def test_the_bias_instability_comes_back_within_its_standard_error():
    """Ten runs, three axes, beside white noise and a weak walk: 30 normals."""
    errors = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rates = flicker(1e-3, 60_000, 0.1, rng) + 3e-3 * rng.normal(size=(60_000, 3))
        fit = jq.allan.fit(rates + 1e-5 * np.cumsum(rng.normal(size=rates.shape), axis=0), 0.1)
        errors.append((fit.instability - 1e-3) / fit.standard_errors["instability"])
    assert abs(np.mean(np.square(errors)) - 1.0) < 4.0 * np.sqrt(2.0 / 30.0)


def test_the_errors_of_a_deviation_are_those_of_white_noise():
    """Of M differences of neighbouring means of n samples: half of sqrt(3/M), or sqrt(4 n/(3 M)).

    The covariance of these differences is 2, -1 for n = 1, and for large n it falls from 2 to -1
    and rises to 0 along lines; the variance of an Allan variance is half the sum of its squares.
    """
    fit = jq.allan.fit(white(100_000), 1.0)
    parts = 2.0 * fit.deviation * fit.deviation_errors / fit.fitted**2
    np.testing.assert_allclose(parts[0], np.sqrt(3.0 / 99_999), rtol=1e-2)
    np.testing.assert_allclose(parts[6], np.sqrt(4.0 * 64 / (3.0 * 99_873)), rtol=1e-2)


def test_the_fit_goes_into_the_settings_of_both_filters_and_into_a_gyroscope():
    fit = jq.allan.fit(an_hour(0), 0.1)
    settings = fit.settings()
    np.testing.assert_allclose(settings["gyro"], np.sqrt(np.mean(fit.noise**2)))
    np.testing.assert_allclose(
        settings["bias_random_walk"], np.sqrt(np.mean(fit.bias_random_walk**2))
    )
    ahrs, mekf = (
        kind(**settings) for kind in (jq.estimation.AhrsSettings, jq.estimation.MekfSettings)
    )
    assert ahrs.bias_random_walk == mekf.bias_random_walk
    jq.estimation.ahrs(jq.estimation.AhrsSettings(**settings))
    gyro = jq.gyro.Gyro.ideal()._replace(noise=fit.noise, bias_random_walk=fit.bias_random_walk)
    assert jq.gyro.measure(jax.random.key(0), gyro, STILL[:3], 0.1).shape == (3, 3)


def test_a_low_pass_in_the_sensor_is_left_out_by_means_of_blocks():
    """A mean of 8 samples halves the deviation at one; from 64 on, 2 percent are missing."""
    rates = np.apply_along_axis(np.convolve, 0, white(100_000), np.ones(8) / 8, "valid")
    fit = jq.allan.fit(rates[:99_968].reshape(-1, 64, 3).mean(axis=1), 0.64)
    np.testing.assert_allclose(fit.noise, 0.1, rtol=0.05)
    assert np.all(jq.allan.fit(rates, 0.01).reduced_chi_squared > 100.0)


def test_float32_readings_of_a_large_bias_are_integrated_in_float64():
    biased = (1.0 + 1e-3 * white(50_000)).astype(np.float32)
    wanted = jq.allan.deviation(np.asarray(biased, np.float64), 0.01)[1]
    np.testing.assert_array_equal(jq.allan.deviation(jnp.asarray(biased), 0.01)[1], wanted)


def test_readings_that_never_change_are_refused():
    with pytest.raises(ValueError, match=r"samples: wanted an Allan deviation above 0.* at 0\.1 s"):
        jq.allan.fit(white(200) * np.array([1.0, 1.0, 0.0]), 0.1)
    in_turn = np.tile([[1.0], [-1.0]], (100, 3))
    with pytest.raises(ValueError, match=r"samples: wanted an Allan deviation above 0.* at 0\.2 s"):
        jq.allan.fit(in_turn, 0.1)
    with pytest.raises(ValueError, match="samples: wanted at least 100, got 99"):
        jq.allan.fit(white(99), 0.1)


@pytest.mark.parametrize("dt", [1e-300, 1e-30, 0.1, 1e30, 1e290])
@pytest.mark.parametrize("unit", [1e-150, 1e-30, 1e30, 1e150])
def test_noise_has_the_unit_of_the_samples_at_any_scale_of_readings_and_time(unit, dt):
    """N [u/sqrt(Hz)] goes as the unit times sqrt(dt), K [u/s/sqrt(Hz)] as the unit over it."""
    samples = white(1000) + 0.1 * np.cumsum(white(1000), axis=0)
    one = jq.allan.fit(samples, 1.0)
    with jax.enable_x64(False):  # the fit is in float64 all the same
        other = jq.allan.fit(unit * samples, dt)
    for name, factor in (("noise", dt**0.5), ("instability", 1.0), ("bias_random_walk", dt**-0.5)):
        pairs = (getattr(one, name), getattr(other, name)), (
            one.standard_errors[name], other.standard_errors[name])  # fmt: skip
        for wanted, got in pairs:
            np.testing.assert_allclose(got / unit / factor, wanted, rtol=1e-6, err_msg=name)
    for name in ("deviation", "deviation_errors", "fitted"):
        np.testing.assert_allclose(getattr(other, name) / unit, getattr(one, name), rtol=1e-6)
    settings = [x.settings()["gyro"] for x in (one, other)]
    np.testing.assert_allclose(settings[1] / unit / dt**0.5, settings[0], rtol=1e-6)


def test_noise_beyond_the_range_of_float64_is_refused():
    samples = white(200) + np.cumsum(white(200), axis=0)
    with pytest.raises(ValueError, match=r"samples: wanted noise within the range of float64, got"):
        jq.allan.fit(1e250 * samples, 1e-300)
    with pytest.raises(ValueError, match=r"samples: wanted noise within the range of float64, got"):
        jq.allan.fit(1e-250 * samples, 1e-300)
    with pytest.raises(ValueError, match="dt, times the number of samples: wanted finite"):
        jq.allan.fit(samples, 1e307)

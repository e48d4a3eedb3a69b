"""The time from which an error stays small, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxquat.control import settling_time

T = np.array([0.0, 1.0, 3.0, 4.0, 6.0])
SLOPES = jax.jit(jax.grad(settling_time, argnums=(0, 1, 2)))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ([4.0, 2.0, 3.0, 0.0, 0.5], 3.0 + 2.0 / 3.0),  # from 3 to 0 it is 1 after 2/3 of the way
        ([4.0, 2.0, -3.0, 0.0, 0.5], 3.0 + 2.0 / 3.0),
        ([0.0, 0.0, 3.0, -1.0, 1.0], 3.5),  # it changes its sign: 1 is half way from 3 to -1
        ([0.0, 0.0, 0.0, 3.0, -1.0], 5.0),
        ([5.0, 1.0, -1.0, 1.0, -1.0], 1.0),  # the bound itself is small enough
        ([0.0, 0.5, -0.5, 0.0, 1.0], 0.0),  # never larger
        ([0.0, 0.0, 0.0, 0.0, 1.5], np.inf),
        ([-2.0, -2.0, -2.0, -2.0, -2.0], np.inf),
        ([np.nan, 0.0, 0.0, 0.0, 0.0], np.nan),
        ([0.0, 0.0, 0.0, 0.0, np.nan], np.nan),
        ([np.inf, 0.0, 0.0, 0.0, 2.0], np.inf),
    ],
)
def test_the_last_crossing_of_a_line_between_samples_is_exact(error, expected):
    time = settling_time(T, np.array(error), within=1.0)
    np.testing.assert_allclose(time, expected, rtol=4e-16)


def test_a_lag_settles_to_two_per_cent_after_its_time_constant_times_log_50():
    """The chord lies above the curve by at most ``dt^2 / 8 times x''``: late by dt^2/(8 lag)."""
    lag, dt = 0.7, 0.01
    t = dt * np.arange(1001)
    late = settling_time(t, np.exp(-t / lag), within=0.02) - lag * np.log(50.0)
    assert 0.0 < late < 1.01 * dt**2 / (8 * lag)


def test_its_derivatives_are_those_of_the_crossing():
    """From a at t = 3 to b at t = 4: ``3 + (a - w)/(a - b)``, with a = 3, b = -1 and w = 1."""
    error = jnp.array([9.0, 0.0, 3.0, -1.0, 0.5])
    by_t, by_error, by_within = SLOPES(T, error, 1.0)
    np.testing.assert_allclose(by_t, [0.0, 0.0, 0.5, 0.5, 0.0])
    np.testing.assert_allclose(by_error, [0.0, 0.0, 2 / 16, 2 / 16, 0.0])
    np.testing.assert_allclose(by_within, -1 / 4)
    forward = jax.jit(jax.jacfwd(settling_time, argnums=1))(T, error, 1.0)
    np.testing.assert_allclose(forward, by_error)


@pytest.mark.parametrize("error", [np.zeros(5), np.full(5, 2.0), np.array([2.0, 0, 0, 0, 0])])
def test_its_derivatives_are_numbers_whether_it_settles_or_not(error):
    for slope in SLOPES(T, error, 1.0):
        assert np.all(np.isfinite(slope))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_many_errors_are_those_of_each_in_their_dtype(dtype):
    t = np.linspace(0.0, 5.0, 50, dtype=dtype)
    rates = np.arange(1.0, 7.0, dtype=dtype).reshape(2, 3)
    error = np.exp(-rates[..., None] * t)
    times = jax.jit(settling_time)(t, error, 0.1)
    assert times.dtype == dtype
    assert times.shape == (2, 3)
    of_each = jax.vmap(jax.vmap(settling_time, (None, 0, None)), (None, 0, None))
    one_by_one = jax.jit(of_each)(t, error, 0.1)
    np.testing.assert_array_equal(times, one_by_one)
    np.testing.assert_allclose(
        times, np.log(10.0) / np.asarray(rates), rtol=0.05
    )  # dt is a tenth of 1/rate

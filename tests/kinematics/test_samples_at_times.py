"""Attitude from samples of the rate at given times: orders, derivatives by the times, padding."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some

from examples.validation import problems
from jaxquat import kinematics, quaternion

IDENTITY = jnp.array([1.0, 0.0, 0.0, 0.0])
SPIN, HALF_ANGLE = 4.0, 0.3
# Spacings that differ by more than a factor of 10, the same ones in every period.
PATTERN = np.exp(np.random.default_rng(0).uniform(0.0, np.log(12.0), 12))


def coning(t):
    """The attitude of coning and its rate, (N, 4) and (N, 3), in closed form."""
    c, s = np.cos(HALF_ANGLE), np.sin(HALF_ANGLE)
    sine, versine = np.sin(2 * HALF_ANGLE), 1 - np.cos(2 * HALF_ANGLE)
    q = np.stack([c + 0 * t, s * np.cos(SPIN * t), s * np.sin(SPIN * t), 0 * t], axis=-1)
    rate = [-sine * np.sin(SPIN * t), sine * np.cos(SPIN * t), -versine + 0 * t]
    return q, SPIN * np.stack(rate, axis=-1)


def stamps_of(periods, end=3.0):
    spacing = np.tile(PATTERN, periods)
    return end * np.concatenate([[0.0], np.cumsum(spacing)]) / spacing.sum()


@pytest.mark.parametrize("order", some([2, 4, 6], [4]))
def test_the_order_is_kept_where_spacings_differ_by_a_factor_of_ten(order):
    """The largest error is that of every sample: the ends are no worse than the middle."""
    assert PATTERN.max() / PATTERN.min() > 10
    counts, errors = np.array([6, 24]), []
    for periods in counts:
        t = stamps_of(int(periods))
        q, omega = coning(t)

        @jax.jit
        def run(q, omega, t=t):
            got = kinematics.integrate(q[0], omega, times=t, order=order)
            return got, jnp.max(quaternion.distance(got, q))

        got, error = run(q, omega)
        assert np.abs(np.linalg.norm(got, axis=1) - 1).max() < 1e-15
        errors.append(float(error))
    assert min(errors) > 1e-13
    assert abs(-problems.slope(1.0 / counts, np.array(errors)) - order) < 0.2


@pytest.mark.parametrize("order", [2, 4, 6])
def test_samples_of_a_polynomial_are_read_exactly(order):
    """A rate of degree order - 1 about a fixed axis is integrated exactly, up to both ends."""
    axis, powers, t = jnp.array([0.48, -0.6, 0.64]), np.arange(order), stamps_of(1, 1.0)
    rate = sum((k + 1.0) * t**k for k in powers)
    turned = sum(t ** (k + 1.0) for k in powers)

    @jax.jit
    def run(rate, turned):
        got = kinematics.integrate(IDENTITY, rate[:, None] * axis[None], times=t, order=order)
        return got, quaternion.exp(turned[:, None] * axis[None])

    np.testing.assert_allclose(*run(rate, turned), rtol=0, atol=1e-14)


@pytest.mark.parametrize("order", some([2, 4, 6], [6]))
def test_equal_distances_give_what_dt_gives(order):
    omega = jnp.asarray(np.random.default_rng(1).normal(size=(9, 3)))
    run = jax.jit(functools.partial(kinematics.integrate, order=order))
    at_times = run(IDENTITY, omega, times=0.125 * np.arange(9))
    np.testing.assert_allclose(at_times, run(IDENTITY, omega, 0.125), rtol=0, atol=1e-15)


@pytest.mark.parametrize("order", some([4, 6], [6]))
def test_stamps_that_nearly_coincide_cost_neither_rounding_nor_order_in_float32(order):
    """The spacing 0.1 s has one of 1e-9 s in it, whose slope would be rounding by a billion.

    The constant rate is integrated to a rounding a step; the error of the other, to which coning
    gives the scale, is that of the same samples without the second of the two.
    """
    apart = np.linspace(0.0, 1.0, 21)
    close = np.insert(apart, 5, apart[4] + 1e-9)
    start = IDENTITY.astype(jnp.float32)

    def last(constant, moving, fewer):
        rates = (constant, close), (moving, close), (fewer, apart)
        ends = [kinematics.integrate(start, w, times=t, order=order)[-1] for w, t in rates]
        return jnp.stack(ends).sum(), ends

    constant = np.full((22, 3), 0.1, np.float32)
    moving, fewer = (coning(t)[1].astype(np.float32) for t in (close, apart))
    slopes, ends = jax.jit(jax.grad(last, 1, has_aux=True))(constant, moving, fewer)
    turned, got, wanted = ends
    np.testing.assert_allclose(turned, quaternion.exp(0.1 * jnp.ones(3)), rtol=0, atol=2e-7)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=3e-6)
    assert np.isfinite(slopes).all()


@pytest.mark.slow
@pytest.mark.parametrize("mode", some(["jacfwd", "jacrev"], ["jacrev"]))
def test_derivatives_by_times_and_samples_are_those_of_central_differences(mode):
    """The last time is repeated once: the derivative there is that of both of its stamps."""
    t = stamps_of(1, 1.0)[:9]

    def last(x):
        times, omega = jnp.append(x[:9], x[8]), jnp.append(x[9:], jnp.ones(3)).reshape(10, 3)
        q = kinematics.integrate(IDENTITY, omega, times=times, order=6)
        return quaternion.log(q[-1])

    x, h = np.concatenate([t, coning(t)[1].ravel()]), 2e-5
    run = jax.jit(getattr(jax, mode)(lambda x: (last(x),) * 2, has_aux=True))
    at = [[run(x + n * h * unit)[1] for n in (-2, -1, 1, 2)] for unit in np.eye(x.size)]
    rows = [(8 * (above - below) - (far - back)) / (12 * h) for back, below, above, far in at]
    slopes, central = run(x)[0], np.stack(rows, axis=1)
    np.testing.assert_allclose(slopes, central, rtol=0, atol=1e-9)
    assert np.abs(slopes).max(axis=0).min() > 1e-6


@pytest.mark.slow
def test_a_clock_offset_cancels_and_a_latency_does_not():
    """A latency shifts every stamp but that of the start: a constant rate turns so much longer."""
    omega = jnp.array([0.3, -0.8, 0.5])
    t = jnp.asarray(stamps_of(1))
    varying = jnp.asarray(coning(t)[1])

    def offset(shift):
        return kinematics.integrate(IDENTITY, varying, times=t + shift)[-1]

    def late(latency):
        times = t + latency * np.minimum(np.arange(t.size), 1.0)
        q = kinematics.integrate(IDENTITY, jnp.tile(omega, (t.size, 1)), times=times)
        return quaternion.log(q[-1])

    np.testing.assert_allclose(jax.jit(jax.jacrev(offset))(0.0), 0.0, rtol=0, atol=1e-13)
    np.testing.assert_allclose(jax.jit(jax.jacrev(late))(0.0), omega, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("order", [4, *(pytest.param(k, marks=pytest.mark.weekly) for k in (2, 6))])
def test_padded_recordings_under_vmap_are_what_they_are_alone(order):
    """The recordings have 7, 13 and 4 samples; where they are padded, the rates are NaN."""
    lengths, n, rng = (7, 13, 4), 13, np.random.default_rng(2)
    times = 5.0 + np.cumsum(np.exp(rng.uniform(0, np.log(12), (3, n))), axis=1) / 40
    omega = coning(times.ravel())[1].reshape(3, n, 3)
    for k, length in enumerate(lengths):
        times[k, length:], omega[k, length:] = times[k, length - 1], np.nan

    def loss(q0, omega, times):
        q = kinematics.integrate(q0, omega, times=times, order=order)
        return jnp.sum(q[-1] ** 3), q

    differentiated = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)
    padded = jax.jit(jax.vmap(differentiated, (None, 0, 0)))(IDENTITY, omega, times)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(padded))
    for k, length in enumerate(lengths):
        if length < order:
            continue
        (value, q), slopes = jax.tree.map(lambda x, k=k: x[k], padded)
        np.testing.assert_array_equal(q[length:], np.tile(q[length - 1], (n - length, 1)))
        (value_alone, q_alone), alone = jax.jit(differentiated)(
            IDENTITY, omega[k, :length], times[k, :length]
        )
        close = {"rtol": 1e-12, "atol": 1e-13}
        np.testing.assert_allclose(value, value_alone, **close)
        np.testing.assert_allclose(q[:length], q_alone, **close)
        for got, wanted in zip(slopes[1:], alone[1:], strict=True):
            np.testing.assert_allclose(got[:length], wanted, **close)
            np.testing.assert_array_equal(got[length:], 0.0)


@pytest.mark.slow
def test_fewer_times_than_the_order_have_the_polynomial_through_all_of_them():
    """Three samples of a quadratic rate are read exactly by order 6; equal times are no motion."""
    axis, t = jnp.array([0.48, -0.6, 0.64]), jnp.array([0.0, 0.1, 0.7, 0.7, 0.7, 0.7])
    omega = (1.0 + 3 * t**2)[:, None] * axis[None]
    run = jax.jit(functools.partial(kinematics.integrate, order=6))
    q = run(IDENTITY, omega, times=t)
    turned = (t + t**3)[:, None] * axis[None]
    np.testing.assert_allclose(q, quaternion.exp(turned), rtol=0, atol=1e-15)
    still = jax.jit(jax.jacrev(lambda t: kinematics.integrate(IDENTITY, omega, times=t)))
    np.testing.assert_array_equal(run(IDENTITY, omega, times=jnp.full(6, 0.7)), [IDENTITY] * 6)
    np.testing.assert_array_equal(still(jnp.full(6, 0.7)), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("x64", [False, pytest.param(True, marks=pytest.mark.weekly)])
def test_stamps_since_1970_are_subtracted_in_float64(x64):
    """To the rounding of the products in float32; the stamps are multiples of 1/64 s.

    A float32 of 1.7e9 s is a multiple of 128 s: all of these stamps would be equal.
    """
    steps = np.cumsum(np.random.default_rng(3).integers(1, 12, 40)) / 64
    omega = coning(steps)[1].astype(np.float32)
    with jax.enable_x64(x64):
        q0 = jnp.array([1.0, 0.0, 0.0, 0.0], jnp.float32)
        late = kinematics.integrate(q0, omega, times=1.7e9 + steps)
        early = kinematics.integrate(q0, omega, times=steps)
    assert late.dtype == jnp.float32
    np.testing.assert_allclose(late, early, rtol=0, atol=1e-6)
    assert np.abs(late[-1] - q0).max() > 0.1


ONES = jnp.ones((6, 3))
BAD = {
    "neither": ({}, "dt, times: wanted one of them, got neither"),
    "both": ({"dt": 0.1, "times": np.arange(6.0)}, "dt, times: wanted one of them, got both"),
    "too few": ({"times": np.arange(5.0)}, "times: wanted shape (6,), a time for each sample, got"),
    "several": ({"times": np.ones((2, 6))}, "got (2, 6); use jax.vmap for several recordings"),
    "back": (
        {"times": np.array([0.0, 1, 3, 2, 4, 5])},
        "times: wanted times that do not decrease, got times[2] = 3.0, times[3] = 2.0",
    ),
    "still": (
        {"times": np.array([0.0, 1, 1, 2, 3, 3])},
        "times: wanted times that increase, up to repeats of the last one, got times[1] = times[2]",
    ),
}


@pytest.mark.parametrize(("options", "message"), BAD.values(), ids=BAD)
def test_bad_times_are_named(options, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        kinematics.integrate(IDENTITY, ONES, **options)


def test_traced_times_that_stand_still_before_the_end_give_nan():
    times = jnp.array([0.0, 1.0, 1.0, 2.0, 3.0, 4.0])
    run = jax.jit(lambda times: kinematics.integrate(IDENTITY, ONES, times=times))
    assert np.isnan(run(times)[-1]).all()

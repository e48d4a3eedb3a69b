"""Tests of fitting an even clock to stamps that come in bursts or jitter."""

import jax
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxquat import estimation, quaternion, recordings
from jaxquat.recordings import even_clock


def bursts(rng, t, size=5, jitter=0.02):
    """Stamps of samples that a driver delivers ``size`` at a time, up to ``jitter`` later [s]."""
    lag = np.repeat(rng.uniform(0.0, jitter, len(t) // size), size)
    return np.maximum.accumulate(np.repeat(t[size - 1 :: size], size) + lag)


def stamped(stamps):
    return recordings.Recording(stamps, channels={"row": np.arange(float(len(stamps)))})


def error(clock, t):
    """The largest deviation of the times from true ones, but for a constant lag [s]."""
    late = clock.t - t
    return np.abs(late - late.mean()).max()


def with_gap(count, rate, gap):
    """Times of ``count`` samples, of which ``gap`` seconds in the middle are lost."""
    return np.arange(count) / rate + np.where(np.arange(count) < count // 2, 0.0, gap)


def turning(t):
    """A recording at times t of a body that turns by up to 2 rad/s, with noise of MEMS."""
    rng = np.random.default_rng(1)
    row = np.round(100 * t).astype(int)
    phases = 2 * np.pi * np.outer(np.arange(row[-1] + 1) / 100, [0.11, 0.17, 0.23])
    rates = [1.0, 1.2, 0.8] * np.sin(phases + np.arange(3.0)) + [0.3, -0.2, 0.1]
    turn, downs = Rotation.identity(), []
    for step in Rotation.from_rotvec(0.01 * rates):
        turn = turn * step
        downs.append(turn.inv().apply([0.0, 0.0, 9.80665]))
    gyro = rates[row] + rng.normal(0.0, 0.01, (len(t), 3))
    force = np.array(downs)[row] + rng.normal(0.0, 0.2, (len(t), 3))
    return recordings.Recording(t, gyro, accelerometer=force)


def test_bursts_give_the_attitude_of_true_stamps():
    """100 Hz, bursts of 5, 20 ms of jitter, a gap of 3 s: within 0.1 degrees.

    The stamps themselves, spread by 1 us to be accepted, are off by degrees, because the body turns
    by up to 4 degrees during a burst. Stamps lag by 0 to 40 ms in a burst, of the variance
    (5^2 - 1)/12 (10 ms)^2, and by the jitter, of the variance (20 ms)^2/12; the deviations of 2400
    bursts are known to 2 %.
    """
    t = with_gap(12_000, 100.0, 3.0)
    true, stamps = turning(t), bursts(np.random.default_rng(0), t)
    forces = {"gyro": true.gyro, "accelerometer": true.accelerometer}
    recording = recordings.Recording(stamps, **forces)
    with pytest.raises(ValueError, match=r"times that increase, .*; recordings\.even_clock fits"):
        estimation.imu_samples(recording)
    run = jax.jit(lambda samples: estimation.run(estimation.ahrs(), samples)[1].q)
    distance = jax.jit(quaternion.distance)

    def off(recording):
        q = run(estimation.imu_samples(recording))
        return np.rad2deg(np.max(distance(q, expected)))

    expected = run(estimation.imu_samples(true))
    fitted, residuals = even_clock(recording)
    assert off(fitted) < 0.1
    assert off(even_clock(recording, rate=100)[0]) < 0.1
    assert off(recordings.Recording(stamps + 1e-6 * np.arange(len(t)), **forces)) > 2.0
    deviation = np.sqrt(2e-4 + 0.02**2 / 12)
    assert residuals.std() == pytest.approx(deviation, rel=0.05)
    np.testing.assert_allclose(fitted.t + residuals, stamps, rtol=0, atol=1e-12)


def test_stamps_that_jitter_and_run_back_give_an_even_clock():
    """A line fitted to N stamps of deviation s is off by 2 s/sqrt(N) at its ends; three times."""
    rng, t = np.random.default_rng(0), 1.7e9 + np.arange(12_000) / 100
    stamps = t + rng.uniform(0.0, 0.02, len(t))
    assert (np.diff(stamps) < 0).sum() > 1000
    clock, _ = even_clock(stamped(stamps))
    assert error(clock, t) < 3 * 2 * 0.02 / np.sqrt(12 * len(t))
    np.testing.assert_array_equal(clock["row"], np.arange(len(t)))
    assert clock.spacing() == pytest.approx(0.01, rel=1e-5)


def test_gaps_are_kept_and_their_lengths_are_fitted():
    """Each half has 1200 bursts of deviation 15 ms: a step is known to 2 * 15 ms/sqrt(1200)."""
    t = with_gap(12_000, 100.0, 3.004)  # the sensor need not continue on the same clock
    intervals = np.diff(even_clock(stamped(bursts(np.random.default_rng(0), t)))[0].t)
    assert np.flatnonzero(intervals > 0.02).tolist() == [5999]
    assert intervals[5999] == pytest.approx(3.014, abs=3 * 2 * 0.015 / np.sqrt(1200))


def test_samples_that_catch_up_after_a_stall_are_no_gap():
    """A driver stalls for a second and delivers its samples at once: it loses none."""
    t = np.arange(12_000) / 100
    stamps = bursts(np.random.default_rng(0), t)
    stamps[6000:6100] = np.maximum(stamps[6000:6100], t[6099])
    clock, residuals = even_clock(stamped(stamps))
    assert np.diff(clock.t).max() < 0.0101
    assert error(clock, t) < 1e-3
    assert residuals.max() > 0.9  # they tell


def test_a_clock_may_drift_slowly():
    """A crystal changes by 1e-4 in ten minutes: a line is off by 1e-4/4 * 600 s = 15 ms.

    Segments of L = 300 s are off by 1/8 of L^2 times the change of slope, 2e-4/1200 1/s.
    """
    rows = np.arange(120_000)
    t = np.cumsum(0.01 * (1 + 1e-4 * np.abs(rows / 60_000 - 1)))
    stamps = bursts(np.random.default_rng(0), t)
    bound = 300**2 / 8 * 2e-4 / 1200 + 3 * 2 * 0.015 / np.sqrt(6000)
    assert error(even_clock(stamped(stamps))[0], t) < bound
    assert error(even_clock(stamped(stamps), rate=100)[0], t) > 5 * bound


def test_bad_stamps_are_named():
    for stamps, options, text in (
        (np.zeros(5), {}, r"recording\.t: wanted stamps that rise, got 0\.0 in all rows"),
        (np.array([0.0, np.nan]), {}, r"recording\.t: wanted finite times"),
        (-np.arange(9.0) + 3 * (np.arange(9) == 4), {}, "a clock that runs back at row"),
        (np.arange(9.0), {"rate": 0.0}, "rate: wanted positive values"),
        (np.arange(9.0), {"gap": -1.0}, "gap: wanted positive values"),
    ):
        with pytest.raises(ValueError, match=text):
            even_clock(stamped(stamps), **options)


def test_a_table_of_bursts_is_read_in_its_order(tmp_path):
    """Equal stamps and one that runs back are refused with the way on."""
    path, names = tmp_path / "a.csv", {"t": "t", "u": "u"}
    way = r"keep.*; recordings\.even_clock fits a clock to stamps of bursts"
    for stamps in ([0.0, 0.0, 0.2, 0.2], [0.0, 0.2, 0.1, 0.3]):
        path.write_text("\n".join(["t,u", *(f"{t},{k}" for k, t in enumerate(stamps))]))
        with pytest.raises(ValueError, match=way):
            recordings.read(path, names)
        got = recordings.read(path, names, duplicates="keep")
        np.testing.assert_array_equal(got.t, stamps)
        np.testing.assert_array_equal(got["u"], np.arange(4))
        with pytest.raises(ValueError, match=r"recordings\[0\]\.t: wanted times.*even_clock"):
            recordings.join(got)

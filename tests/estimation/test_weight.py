"""Tests of what gyroscope and accelerometer tell about gravity, and of what they do not."""

import re

import jax
import jax.numpy as jnp
import motions
import numpy as np
import pytest
from commands import ROOT
from scipy.spatial.transform import Rotation

from jaxquat import estimation, quaternion, recordings

DATA = ROOT.parent / "shared" / "data"


def recording(force, rate=50.0):
    t = np.arange(len(force)) / rate
    return recordings.Recording(t, np.zeros((len(force), 3)), accelerometer=force)


def refused(force, rate=50.0):
    """Whether the error says so; between 0.5 and 2 m/s^2 it asks for the unit, too."""
    try:
        estimation.imu_samples(recording(force, rate))
    except ValueError as error:
        return re.search("recording: wanted specific forces .* is gravity subtracted", str(error))
    return None


def times_up(lengths):
    return np.outer(lengths, [0.0, 0.6, 0.8])


@pytest.mark.parametrize("size", [0.01, 0.3, 3.0, 4.5])
def test_accelerations_without_gravity_are_refused(size):
    """In a minute gravity changes the velocity by 588 m/s; none of them comes near it."""
    rng = np.random.default_rng(0)
    assert refused(size / 1.6 * rng.normal(size=(3000, 3)))  # 1.6: the mean length of the normals


@pytest.mark.parametrize("motion", ["hover", "walk", "drive", "fly"])
def test_motions_are_accepted_with_gravity_and_refused_without(motion):
    attitude, _, force = motions.recorded(getattr(motions, motion), 0, 120.0, 50.0)
    assert not refused(force)
    weight = np.swapaxes(attitude, 1, 2) @ [0.0, 0.0, motions.GRAVITY]
    assert refused(force - weight)


def test_a_fall_that_lasts_half_a_minute_is_no_reason_to_refuse():
    """A free fall of T seconds changes the velocity by g T: 300 m/s in 30.6 s."""
    assert not refused(np.full((1500, 3), 1e-3))
    assert refused(np.full((1600, 3), 1e-3))
    after = times_up(np.full(5000, 9.81))
    assert not refused(np.concatenate([np.full((1400, 3), 1e-3), after]))


def test_a_body_that_jumps_most_of_the_time_is_accepted():
    """It flies for 3/4 of the time and pushes with 4 g: the median is 0, the mean length is g."""
    pushes = np.where(np.arange(6000) % 40 < 10, 4 * 9.80665, 1e-3)
    assert np.median(pushes) < 0.01
    assert not refused(times_up(pushes))


def test_gaps_and_missing_readings_are_no_time_without_weight():
    """Twenty seconds of free fall, in ten parts with an hour between."""
    t = np.concatenate([3600.0 * k + np.arange(100) / 50 for k in range(10)])
    force = np.full((1000, 3), 1e-3)
    estimation.imu_samples(recordings.Recording(t, 0 * force, accelerometer=force))
    force[::2] = np.nan
    estimation.imu_samples(recordings.Recording(t, 0 * force, accelerometer=force))


def test_samples_that_are_no_recording_are_judged_too():
    force, still = jnp.full((3000, 3), 3.0), jnp.zeros((3000, 3))
    samples = estimation.ImuSample(
        estimation.Interval(jnp.full(3000, 0.02)), still, force / 2, still
    )
    with pytest.raises(ValueError, match=r"samples: .* mean length of 4\.8 m/s"):
        estimation.run(estimation.ahrs(), samples)


def test_a_reversed_accelerometer_reads_as_a_body_upside_down():
    """No reading of gyroscope and accelerometer tells which of the two it is.

    A half turn X about a horizontal axis takes gravity to its opposite. The body with the attitude
    X R and the acceleration -X a has the rates of the one with R and a, because X is constant, and
    the specific force (X R)^T (-X a + g) = -R^T a + R^T X^T g = -R^T (a + g).
    """
    attitude, gyro, force = motions.recorded(motions.walk, 0, 30.0, 50.0)
    half_turn = np.diag([1.0, -1.0, -1.0])
    g, a = np.array([0.0, 0.0, motions.GRAVITY]), np.random.default_rng(0).normal(size=(1500, 3))
    forces = np.einsum("nji,nj->ni", attitude, a + g)
    other = np.einsum("nji,nj->ni", half_turn @ attitude, -a @ half_turn + g)
    np.testing.assert_allclose(other, -forces, rtol=0, atol=1e-14)
    relative = np.swapaxes(attitude[:-1], 1, 2) @ attitude[1:]
    turned = half_turn @ attitude
    np.testing.assert_array_equal(np.swapaxes(turned[:-1], 1, 2) @ turned[1:], relative)

    @jax.jit
    def run(samples):
        estimates = estimation.run(estimation.ahrs(), samples)[1]
        return estimates.nis, quaternion.rotate_inverse(estimates.q, jnp.array([0.0, 0.0, 1.0]))

    def estimates(sign):
        log = recordings.Recording(np.arange(1500) / 50, gyro, accelerometer=sign * force)
        return run(estimation.imu_samples(log))

    nis, tilt = zip(estimates(1.0), estimates(-1.0), strict=True)
    np.testing.assert_allclose(nis[1], nis[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(tilt[0], -tilt[1], rtol=0, atol=1e-9)


@pytest.mark.slow
def test_real_recordings_have_their_weight():
    folders = sorted((DATA / "broad").glob("*.npz")), sorted((DATA / "nanodrone").glob("*.npz"))
    if not all(folders):
        pytest.skip("the recordings are not beside this checkout")
    for path in folders[0]:
        log = np.load(path)
        force, q = np.float64(log["imu_acc"]), np.float64(log["opt_quat"])
        assert not refused(force, 285.714)
        seen = np.isfinite(q).all(axis=1)
        weight = Rotation.from_quat(np.roll(q[seen], -1, 1)).inv().apply([0.0, 0.0, 9.81])
        lively = "16_undisturbed_fast_translation" in path.name  # mean acceleration 9.8 m/s^2
        assert bool(refused(force[seen] - weight, 285.714)) != lively
    for path in folders[1]:
        log = np.load(path)
        assert not refused(np.float64(log["accel"]), 100.0)

"""Tests of recordings of several rates that become one."""

import dataclasses
import re

import numpy as np
import pytest

from jaxquat import estimation, recordings
from jaxquat.recordings import Recording

NAN = np.nan
IMU = Recording(
    np.array([0.1, 0.2, 0.3]),
    gyro=np.arange(9.0).reshape(3, 3),
    movement=np.array([False, True, True]),
)
FIELD = Recording(np.array([0.2, 0.25]), magnetometer=np.array([[1, 2, 3], [4, 5, 6]]) * 1e-5)
VOLTS = Recording(np.array([0.25, 0.4]), channels={"volts": np.array([12, 11])})


def test_the_rows_are_all_times_and_equal_ones_merge():
    """Times that differ in the last bit do not: 0.1 + 0.2 is the float64 after 0.3."""
    got = recordings.join(IMU, FIELD, VOLTS)
    np.testing.assert_array_equal(got.t, [0.1, 0.2, 0.25, 0.3, 0.4])
    np.testing.assert_array_equal(got.gyro[:, 0], [0, 3, NAN, 6, NAN])
    np.testing.assert_array_equal(got.magnetometer[:, 1], [NAN, 2e-5, 5e-5, NAN, NAN])
    np.testing.assert_array_equal(got["volts"], [NAN, NAN, 12, NAN, 11])
    np.testing.assert_array_equal(got.movement, [0, 1, NAN, 1, NAN])
    late = Recording(np.array([0.1, 0.1 + 0.2]), channels={"u": np.ones(2)})
    assert len(recordings.join(IMU, late).t) == 4


def test_joined_sensors_come_apart_as_they_were():
    joined = recordings.join(VOLTS, FIELD, IMU)
    for one in (IMU, FIELD, VOLTS):
        for name in one.names:
            again = joined.rows_with(name)
            np.testing.assert_array_equal(again.t, one.t)
            np.testing.assert_array_equal(again[name], one[name])
    assert joined.rows_with("gyro").movement.dtype == bool


def test_a_clock_that_is_ahead_is_shifted_by_its_user():
    shifted = dataclasses.replace(FIELD, t=FIELD.t - 0.125)
    got = recordings.join(IMU, shifted)
    np.testing.assert_array_equal(got.t, [0.2 - 0.125, 0.1, 0.125, 0.2, 0.3])


def test_samples_of_the_filter_keep_the_rows_of_every_sensor():
    """The intervals are those between any two rows: 0.1, 0.05 and 0.05 s."""
    force = Recording(IMU.t[:2], accelerometer=np.full((2, 3), 5.7))
    samples = estimation.imu_samples(recordings.join(IMU, FIELD, force))
    np.testing.assert_allclose(samples.dt.seconds, [0, 0.1, 0.05, 0.05], rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(np.isnan(samples.magnetometer[:, 0]), [True, False, False, True])
    np.testing.assert_array_equal(np.isnan(samples.accelerometer[:, 0]), [False, False, True, True])


BAD = {
    "nothing": ((), "recordings: wanted at least one recording, got none"),
    "a name twice": (
        (IMU, FIELD, dataclasses.replace(IMU, gyro=None)),
        "recordings[2]: wanted new names, got a second channel movement",
    ),
    "no channels": (
        (Recording(np.arange(2.0)), IMU),
        "recordings[0]: wanted at least one channel, got none",
    ),
    "times that stand": (
        (IMU, Recording(np.zeros(2), gyro=np.zeros((2, 3)))),
        "recordings[1].t: wanted times that increase, got 0.0 and then 0.0 at row 1",
    ),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=BAD)
def test_recordings_that_cannot_be_joined_are_named(given, message):
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        recordings.join(*given)


def test_notes_are_joined_unless_they_differ():
    def part(t, name, **notes):
        return recordings.Recording(t, channels={name: t}, notes=notes)

    t = np.arange(3.0)
    joined = recordings.join(
        part(t, "a", declination=0.1, TIME_SYSTEM="UTC"), part(t, "b", declination=0.2, REF="X")
    )
    assert joined.notes == {"TIME_SYSTEM": "UTC", "REF": "X"}

"""Tests of reading telemetry logs of MAVLink that are packed here."""

import re

import numpy as np
import pytest

from jaxquat import recordings

pytestmark = pytest.mark.needs("pymavlink")
GYRO = {"gyro": [f"SCALED_IMU2.{axis}gyro" for axis in "xyz"]}


def packed(system, messages, version=2):
    """Frames of these messages, each after its stamp of reception."""
    from pymavlink.dialects.v20 import ardupilotmega as mavlink

    sender = mavlink.MAVLink(None, srcSystem=system, srcComponent=1)
    kinds = {
        "imu": mavlink.MAVLink_scaled_imu2_message,
        "attitude": mavlink.MAVLink_attitude_message,
        "temperature": mavlink.MAVLink_vfr_hud_message,
    }
    frames = [kinds[name](*values).pack(sender, version == 1) for name, *values in messages]
    return [(1_700_000_000_000_000).to_bytes(8, "big") + frame for frame in frames]


def imu(k):
    """Counts of mg, mrad/s and mgauss, with the time since the start [ms]."""
    return ("imu", 1000 + 20 * k, 0, 0, -1000, 500 * k, 0, -250, 200, 0, 400, 2500)


def written(tmp_path, *frames):
    path = tmp_path / "a.tlog"
    path.write_bytes(b"".join(frames))
    return path


@pytest.mark.parametrize("version", [1, 2])
def test_messages_are_read_at_the_vehicles_times_in_si_units(tmp_path, version):
    """Yaw 90 degrees is the half turn (1, 0, 0, 1) of sqrt(1/2)."""
    attitude = ("attitude", 1030, 0.0, 0.0, np.pi / 2, 0.0, 0.0, 0.0)
    frames = packed(1, [imu(0), imu(1), attitude, imu(2)], version)
    columns = {
        **GYRO,
        "accelerometer": [f"SCALED_IMU2.{axis}acc" for axis in "xyz"],
        "magnetometer": [f"SCALED_IMU2.{axis}mag" for axis in "xyz"],
        "q": ("ATTITUDE.roll", "ATTITUDE.pitch", "ATTITUDE.yaw"),
    }
    got = recordings.read_tlog(written(tmp_path, *frames), columns)
    np.testing.assert_allclose(got.t, [1.0, 1.02, 1.03, 1.04], rtol=1e-12)
    np.testing.assert_allclose(got.gyro[[0, 1, 3], 0], [0.0, 0.5, 1.0], rtol=1e-12)
    np.testing.assert_allclose(got.accelerometer[0], [0, 0, -9.80665], rtol=1e-12)
    np.testing.assert_allclose(got.magnetometer[0], [2e-5, 0, 4e-5], rtol=1e-12)
    np.testing.assert_allclose(got.q[2], np.sqrt(0.5) * np.array([1, 0, 0, 1]), atol=1e-7)
    assert got.present("gyro").tolist() == [True, True, False, True]
    flu = recordings.read_tlog(tmp_path / "a.tlog", columns, frame="flu_enu")
    np.testing.assert_allclose(flu.accelerometer[0], [0, 0, 9.80665], rtol=1e-12)


def test_sources_are_told_apart(tmp_path):
    ours, others = packed(1, [imu(0), imu(1)]), packed(7, [imu(2), imu(3)])
    path = written(tmp_path, ours[0], others[0], ours[1], others[1])
    second = {"gyro": [field.replace("2.", "2:1.") for field in GYRO["gyro"]]}
    for columns, first in ((GYRO, 0.0), (second, 1.0)):
        got = recordings.read_tlog(path, columns).gyro[:, 0]
        np.testing.assert_allclose(got, [first, first + 0.5], rtol=1e-12)


def test_damage_is_refused_by_its_place_or_skipped_on_request(tmp_path):
    frames = packed(1, [imu(k) for k in range(5)])
    path = written(tmp_path, *frames[:2], b"noise", *frames[2:4], frames[4][:-3])
    at = len(frames[0])  # the message before the damage may be part of it
    with pytest.raises(ValueError, match=f"wanted a MAVLink message .*, got other bytes at {at} "):
        recordings.read_tlog(path, GYRO)
    with pytest.warns(RuntimeWarning, match="skipped .* bytes that are no MAVLink message"):
        got = recordings.read_tlog(path, GYRO, skip_damaged=True)
    assert set(np.round(got.gyro[:, 0], 9)) <= {0.0, 0.5, 1.0, 1.5}
    assert len(got.t) >= 2
    broken = bytearray(frames[1])
    broken[30] ^= 1  # the checksum tells
    path = written(tmp_path, frames[0], bytes(broken), *frames[2:])
    with pytest.raises(ValueError, match=f"SCALED_IMU2 at byte {len(frames[0])}: "):
        recordings.read_tlog(path, GYRO)
    with pytest.warns(RuntimeWarning, match=f"skipped {len(frames[1])} bytes"):
        assert len(recordings.read_tlog(path, GYRO, skip_damaged=True).t) == 4


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"x": "OTHER.x"}, "wanted messages for x, got 0 sources of them among SCALED_IMU2"),
        ({"x": "SCALED_IMU2:1.xacc"}, "got 1 sources of them among SCALED_IMU2"),
        ({"x": "SCALED_IMU2.speed"}, "field speed: wanted one of numbers for x, got time_boot_ms"),
        ({"x": "SCALED_IMU2.temperature"}, "field temperature: wanted one of 1, %"),
    ],
)
def test_what_a_log_does_not_have_is_named(tmp_path, columns, text):
    path = written(tmp_path, *packed(1, [imu(0), imu(1)]))
    with pytest.raises(ValueError, match=re.escape(text)):
        recordings.read_tlog(path, columns)

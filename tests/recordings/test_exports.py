"""Tests of reading exports without stamps, in counts or with matrices."""

import re

import numpy as np
import pytest

from jaxquat import quaternion, recordings

XYZ = {"gyro": ("gx", "gy", "gz")}
COUNTED = {"t": "PacketCounter", **XYZ}


def written(tmp_path, *lines):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    return path


def export(tmp_path, counts):
    """Writes an export with a packet counter; the rate about x is 1e-3 of the counter [rad/s]."""
    lines = [f"{k:05}\t{1e-3 * k}\t0\t0" for k in counts]
    return written(tmp_path, "# ENU", "PacketCounter\tgx\tgy\tgz", *lines)


def test_a_counter_of_samples_is_no_time(tmp_path):
    """100 Hz would become 1 Hz, and a turn of 1 rad one of 100."""
    path = export(tmp_path, range(4097, 4397))
    with pytest.raises(ValueError, match=r"t: its unit is not stated and it counts by 1; say rate"):
        recordings.read(path, COUNTED)
    got = recordings.read(path, COUNTED, rate=100.0)
    np.testing.assert_allclose(got.t, np.arange(4097, 4397) / 100, rtol=1e-15)
    assert recordings.read(path, COUNTED, units={"t": "s"}).t[0] == 4097.0


def test_a_counter_that_omits_numbers_is_recognised_and_keeps_its_gap(tmp_path):
    counts = [*range(50), *range(350, 400)]  # 300 lost samples are 3 s at 100 Hz
    path = export(tmp_path, counts)
    with pytest.raises(ValueError, match="it counts by 1"):
        recordings.read(path, COUNTED)
    intervals = np.diff(recordings.read(path, COUNTED, rate=100).t)
    assert intervals.max() == pytest.approx(3.01, rel=1e-12)


def test_stamps_of_whole_seconds_are_read_where_they_do_not_count_by_one(tmp_path):
    path = export(tmp_path, [*range(0, 40, 2), 40.5])
    with pytest.raises(ValueError, match="median interval is 2 s"):
        recordings.read(path, COUNTED)
    path = written(tmp_path, "t,u", *(f"{k}.5,1" for k in range(30)))
    assert recordings.read(path, {"t": "t", "u": "u"}).t[-1] == 29.5


def test_a_file_without_stamps_is_read_at_a_known_rate(tmp_path):
    path = export(tmp_path, range(30))
    with pytest.raises(ValueError, match="columns: wanted one for t, got gyro; rate= reads a file"):
        recordings.read(path, XYZ)
    got = recordings.read(path, XYZ, rate=50.0)
    np.testing.assert_allclose(got.t, np.arange(30) / 50, rtol=1e-15)
    np.testing.assert_allclose(got.gyro[:, 0], 1e-3 * np.arange(30), rtol=1e-15)
    for options, text in (
        ({"rate": -1.0}, "rate: wanted positive values, got"),
        ({"rate": 50.0, "units": {"t": "ms"}}, "units: wanted none for t beside rate, got 'ms'"),
    ):
        with pytest.raises(ValueError, match=text):
            recordings.read(path, COUNTED, **options)
    with pytest.raises(ValueError, match=r"rate: wanted columns beside it, got 50\.0 without them"):
        recordings.read(path, rate=50.0)


def test_rotation_matrices_are_a_channel(tmp_path):
    """A turn by 0.6, 0.8 about z takes x to (0.28, 0.96, 0): its quaternion is (0.8, 0, 0, 0.6)."""
    names = {"t": "t", "matrix": [f"Mat[{i}][{j}]" for i in (1, 2, 3) for j in (1, 2, 3)]}
    header = "t,Mat[1][1],Mat[2][1],Mat[3][1],Mat[1][2],Mat[2][2],Mat[3][2],"
    header += "Mat[1][3],Mat[2][3],Mat[3][3]"  # by columns, as Xsens exports it
    rows = ["0,0.28,0.96,0,-0.96,0.28,0,0,0,1", "0.1,1,0,0,0,1,0,0,0,1"]
    got = recordings.read(written(tmp_path, header, *rows), names)
    q = quaternion.from_matrix(got["matrix"].reshape(-1, 3, 3))
    np.testing.assert_allclose(q[0], [0.8, 0, 0, 0.6], rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match="columns: wanted 4 names for q, got"):
        recordings.read(tmp_path / "a.csv", {"t": "t", "q": names["matrix"]})


def table(tmp_path, force):
    """Writes a body at rest at 100 Hz, with this number of counts to g."""
    lines = [f"{0.01 * k:.2f},0,0,{force}" for k in range(50)]
    return written(tmp_path, "t,ax,ay,az", *lines)


FORCE = {"t": "t", "accelerometer": ("ax", "ay", "az")}


@pytest.mark.parametrize(
    ("force", "hint"),
    [
        (1867, "9.80665 / 2048"),  # a body that accelerates downwards, as in a hover that sinks
        (16384, "9.80665 / 16384"),
        (256, "9.80665 / 256"),
        (1000, "'mg'"),
        (1, "'g'"),
    ],
)
def test_the_unit_that_an_error_proposes_has_the_length_of_gravity(tmp_path, force, hint):
    """In mg, 1867 counts of 1/2048 g would be 1.87 g."""
    path = table(tmp_path, force)
    text = f"say the unit, units={{'accelerometer': {hint}}} for instance"
    with pytest.raises(ValueError, match=re.escape(text)):
        recordings.read(path, FORCE)
    unit = eval(hint)  # as a user would type it
    got = recordings.read(path, FORCE, units={"accelerometer": unit}).accelerometer
    assert np.abs(np.linalg.norm(got, axis=1) / 9.80665 - 1).max() < 0.1


@pytest.mark.parametrize("unit", [0.0, -1.0, float("nan"), float("inf"), True, None])
def test_the_value_of_a_count_is_a_positive_number(unit):
    with pytest.raises(ValueError, match=r"units: wanted one of 1, .* or its value in SI, got"):
        recordings.read("nowhere.csv", FORCE, units={"accelerometer": unit})


def test_a_line_that_cannot_be_read_is_not_skipped(tmp_path):
    """One that is cut off, a number that is none, half a sample: they would be gaps in silence."""
    for line, message in (
        ("0.07,7,", "line 3, column gz: wanted 4 cells, got 3"),
        ("0.08,8,$2,3", "line 3, column gy: wanted a number, got '$2'"),
        ("0.50,5,,3", "line 3, column gx: wanted finite numbers, or NaN in all of them, got"),
    ):
        path = written(tmp_path, "t,gx,gy,gz", "0.0,1,2,3", line, "0.9,1,2,3")
        with pytest.raises(ValueError, match=re.escape(message)):
            recordings.read(path, {"t": "t", **XYZ})
    with pytest.raises(TypeError, match="skip_damaged is now no argument: remove the line"):
        recordings.read(path, {"t": "t", **XYZ}, skip_damaged=True)

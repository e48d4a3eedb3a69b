"""Attitude ephemeris messages: a figure of the standard, files of other programs, conventions."""

import re

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxquat import recordings

# Two segments with the times and numbers of figure G-4 of CCSDS 504.0-B-2.
STANDARD = """CCSDS_AEM_VERS = 2.0
CREATION_DATE = 2002-11-04T17:22:31
ORIGINATOR = NASA/JPL
META_START
OBJECT_NAME = MARS GLOBAL SURVEYOR
OBJECT_ID = 1996-062A
CENTER_NAME = MARS BARYCENTER
REF_FRAME_A = EME2000
REF_FRAME_B = SC_BODY_1
TIME_SYSTEM = UTC
START_TIME = 1996-11-28T21:29:07.2555
STOP_TIME = 1996-11-30T01:28:02.5555
ATTITUDE_TYPE = QUATERNION
META_STOP
DATA_START
1996-11-28T21:29:07.2555 0.56748 0.03146 0.45689 0.68427
1996-11-28T22:08:03.5555 0.42319 -0.45697 0.23784 0.74533
1996-11-28T22:08:04.5555 -0.84532 0.26974 -0.06532 0.45652
1996-11-30T01:28:02.5555 0.74563 -0.45375 0.36875 0.31964
DATA_STOP

META_START
COMMENT after a manoeuvre
OBJECT_NAME = MARS GLOBAL SURVEYOR
OBJECT_ID = 1996-062A
REF_FRAME_A = EME2000
REF_FRAME_B = SC_BODY_1
TIME_SYSTEM = UTC
START_TIME = 1996-12-18T12:05:00.5555
STOP_TIME = 1996-12-28T21:28:00.5555
ATTITUDE_TYPE = QUATERNION
META_STOP
DATA_START
1996-12-18T12:05:00.5555 -0.64585 0.018542 -0.23854 0.72501
1996-12-28T21:28:00.5555 -0.25485 0.58745 -0.36845 0.67394
DATA_STOP
"""
# Rows that the flight dynamics of GSFC wrote for MMS (AEMExample17.txt of the tests of Orekit):
# a spin of 18.3 deg/s, ten seconds apart.
SPINNING = """CCSDS_AEM_VERS = 2.0
CREATION_DATE  = 2023-02-14T12:00:00
ORIGINATOR  = GSFC
META_START
COMMENT          Quaternions and Angular Velocity
OBJECT_NAME    = MMS
OBJECT_ID      = 2015-011A
CENTER_NAME    = EARTH
REF_FRAME_A    = EME2000
REF_FRAME_B    = SC_BODY_1
TIME_SYSTEM    = TAI
START_TIME     = 2023-054T00:00:09.150001
STOP_TIME      = 2023-054T00:01:39.150001
ATTITUDE_TYPE  = QUATERNION/ANGVEL
ANGVEL_FRAME   = SC_BODY_1
META_STOP
DATA_START
2023-054T00:00:09.150001   0.056482   0.209807  -0.912091   0.347679 -0.021029   0.023643  18.288407
2023-054T00:00:19.150001   0.208972  -0.060605   0.371436   0.902603 -0.019288   0.021817  18.291279
2023-054T00:00:29.150001  -0.067228  -0.206654   0.892979  -0.394162 -0.017372   0.021786  18.279166
2023-054T00:00:39.150001  -0.205497   0.071319  -0.417691  -0.882167 -0.017781   0.022754  18.298575
DATA_STOP
"""
# Rows of CS GROUP, scalar first, with derivatives (AEMExample04.txt of the tests of Orekit).
STEERING = """CCSDS_AEM_VERS       = 1.0
CREATION_DATE        = 2021-04-13T08:41:42
ORIGINATOR           = CS GROUP

META_START
OBJECT_NAME          = COPIHUE
OBJECT_ID            = 2100-017F
CENTER_NAME          = EARTH
REF_FRAME_A          = EME2000
REF_FRAME_B          = SC_BODY_1
ATTITUDE_DIR         = A2B
TIME_SYSTEM          = UTC
START_TIME           = 2021-12-31T00:00:00.000
STOP_TIME            = 2021-12-31T00:00:06.000
ATTITUDE_TYPE        = QUATERNION/DERIVATIVE
QUATERNION_TYPE      = FIRST
META_STOP

DATA_START
COMMENT              yaw steering on a 600km altitude orbit
2021-12-31T00:00:00.000    0.488615 -0.402157  0.581628  0.511111   0.000300776  0.000259458 -0.000283621  0.000239362
2021-12-31T00:00:02.000    0.489216 -0.401638  0.581060  0.511589   0.000300524  0.000259651 -0.000283993  0.000239023
2021-12-31T00:00:04.000    0.489817 -0.401118  0.580492  0.512067   0.000300273  0.000259841 -0.000284366  0.000238680
2021-12-31T00:00:06.000    0.490417 -0.400599  0.579923  0.512544   0.000300023  0.000260030 -0.000284739  0.000238337
DATA_STOP
"""  # noqa: E501
# Rows of GSFC for version 2 (AEMExample15.txt of the tests of Orekit): the angles of a spin grow by
# a degree in a second.
ANGLES = """CCSDS_AEM_VERS = 2.0
CREATION_DATE  = 2023-02-06T12:00:00
ORIGINATOR  = GSFC
MESSAGE_ID  = A000004

META_START
COMMENT          Spinning Euler Angles and Euler Rates
OBJECT_NAME    = MMS1
OBJECT_ID      = 2015-011A
CENTER_NAME    = EARTH
REF_FRAME_A    = EME2000
REF_FRAME_B    = SC_BODY_1
TIME_SYSTEM    = TAI
START_TIME     = 2023-01-01T00:00:00.0000
STOP_TIME      = 2023-01-01T00:04:30.0000
ATTITUDE_TYPE  = EULER_ANGLE/DERIVATIVE
EULER_ROT_SEQ  = ZXZ
META_STOP

DATA_START
2023-01-01T00:00:00.0000  10.00000  20.00000  -10.00000  1.00000  1.00000  -1.00000
2023-01-01T00:00:30.0000  40.00000  50.00000  -40.00000  1.00000  1.00000  -1.00000
2023-01-01T00:01:00.0000  70.00000  80.00000  -70.00000  1.00000  1.00000  -1.00000
2023-01-01T00:01:30.0000  100.00000  110.00000  -100.00000  1.00000  1.00000  -1.00000
2023-01-01T00:02:00.0000  130.00000  140.00000  -130.00000  1.00000  1.00000  -1.00000
DATA_STOP
"""
METADATA = {
    "OBJECT_NAME": "CUBE",
    "OBJECT_ID": "2026-001A",
    "REF_FRAME_A": "EME2000",
    "REF_FRAME_B": "SC_BODY_1",
    "TIME_SYSTEM": "UTC",
    "START_TIME": "2026-03-20T23:59:59.9",
    "ORIGINATOR": "TEST",
}


def written(tmp_path, text):
    (tmp_path / "a.aem").write_text(text)
    return tmp_path / "a.aem"


def rotations(q):
    return Rotation.from_quat(np.roll(q, -1, axis=1))


def test_the_figure_of_the_standard_is_read_to_the_bit(tmp_path):
    file = written(tmp_path, STANDARD)
    first, second = (recordings.read_aem(file, segment=k) for k in (1, 2))
    np.testing.assert_array_equal(first.q[0], [0.68427, 0.56748, 0.03146, 0.45689])
    np.testing.assert_array_equal(first.q[2], [0.45652, -0.84532, 0.26974, -0.06532])
    np.testing.assert_array_equal(first.t, [0.0, 2336.3, 2337.3, 100735.3])
    np.testing.assert_array_equal(second.q[1], [0.67394, -0.25485, 0.58745, -0.36845])
    assert second.t[1] == 10 * 86400 + 9 * 3600 + 23 * 60
    assert first.gyro is None
    assert first.notes["CENTER_NAME"] == "MARS BARYCENTER"
    assert first.notes["ORIGINATOR"] == second.notes["ORIGINATOR"] == "NASA/JPL"


def test_rates_turn_the_attitude_of_a_spinning_spacecraft(tmp_path):
    """Body axes, and q from the body to EME2000: q(10 s) = q(0) exp(10 s omega), to 0.2 degrees.

    The rates scatter by 0.01 deg/s. Another order of the quaternion, or the opposite rate, is wrong
    by 5.8 degrees or more, because 182.9 degrees in 10 s are no half turn.
    """
    recording = recordings.read_aem(written(tmp_path, SPINNING))
    np.testing.assert_array_equal(recording.t, [0.0, 10.0, 20.0, 30.0])
    np.testing.assert_array_equal(recording.q[0], [0.347679, 0.056482, 0.209807, -0.912091])
    np.testing.assert_array_equal(recording.gyro[3], np.deg2rad([-0.017781, 0.022754, 18.298575]))
    turns = rotations(recording.q)
    mean = 0.5 * (recording.gyro[1:] + recording.gyro[:-1])
    off = turns[1:].inv() * turns[:-1] * Rotation.from_rotvec(10.0 * mean)
    assert np.rad2deg(off.magnitude()).max() < 0.2


def test_derivatives_of_quaternions_become_rates(tmp_path):
    """The mean of two rates turns one row into the next, to the six digits of the file."""
    recording = recordings.read_aem(written(tmp_path, STEERING))
    np.testing.assert_array_equal(recording.q[1], [0.489216, -0.401638, 0.58106, 0.511589])
    turns = rotations(recording.q)
    between = (turns[:-1].inv() * turns[1:]).as_rotvec() / 2.0
    mean = 0.5 * (recording.gyro[1:] + recording.gyro[:-1])
    assert 1e-3 < np.linalg.norm(mean[0]) < 2e-3  # rad/s, near that of the orbit
    np.testing.assert_allclose(mean, between, rtol=0, atol=2e-6)


def test_euler_angles_and_their_rates_are_those_of_the_textbook(tmp_path):
    """The ZXZ sequence: z of the body in the other axes, and Euler's kinematic equations."""
    recording = recordings.read_aem(written(tmp_path, ANGLES))
    first = np.deg2rad([10.0, 40.0, 70.0, 100.0, 130.0])
    second, third = first + np.deg2rad(10.0), -first
    z = np.array([np.sin(first) * np.sin(second), -np.cos(first) * np.sin(second), np.cos(second)])
    np.testing.assert_allclose(rotations(recording.q).apply([0.0, 0.0, 1.0]), z.T, atol=1e-15)
    sine, cosine = np.sin(third), np.cos(third)
    rates = [np.sin(second) * sine + cosine, np.sin(second) * cosine - sine, np.cos(second) - 1.0]
    np.testing.assert_allclose(recording.gyro, np.deg2rad(rates).T, atol=1e-16)


@pytest.mark.parametrize("order", ["XYZ", "YXY", "ZYX", "YZX"])
def test_sequences_of_angles_turn_the_axes_one_after_another(tmp_path, order):
    """Elementary rotations of axes, and their angular velocity by a central difference."""
    text = ANGLES.replace("ZXZ", order)
    recording = recordings.read_aem(written(tmp_path, text))
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith("2023")]
    rows = np.deg2rad(np.array(lines, float))

    def into_body(angles):
        matrix = np.eye(3)
        for letter, angle in zip(order, angles, strict=True):
            i, j = (("XYZ".index(letter) + k) % 3 for k in (1, 2))
            turn = np.eye(3)
            turn[[i, j], [i, j]] = np.cos(angle)
            turn[i, j], turn[j, i] = np.sin(angle), -np.sin(angle)
            matrix = turn @ matrix
        return matrix

    for q, rate, row in zip(recording.q, recording.gyro, rows, strict=True):
        angles, rates = np.split(row, 2)
        matrix, h = into_body(angles), 1e-3
        np.testing.assert_allclose(rotations(q[None]).as_matrix()[0], matrix.T, atol=1e-15)
        slope = (into_body(angles + h * rates) - into_body(angles - h * rates)) / (2 * h)
        skew = -slope @ matrix.T  # C' = -[omega] C
        np.testing.assert_allclose([skew[2, 1], skew[0, 2], skew[1, 0]], rate, atol=1e-11)
    with_spin = text.replace("DERIVATIVE", "ANGVEL")
    with_spin = with_spin.replace("META_STOP", "ANGVEL_FRAME = EME2000\nMETA_STOP")
    turned = recordings.read_aem(written(tmp_path, with_spin))
    np.testing.assert_array_equal(turned.q, recording.q)
    np.testing.assert_allclose(
        rotations(turned.q).apply(turned.gyro), np.deg2rad([[1.0, 1.0, -1.0]] * 5), atol=1e-16
    )
    bare = re.sub(r"(?<=\d)  1\.00000  1\.00000  -1\.00000", "", text).replace("/DERIVATIVE", "")
    assert recordings.read_aem(written(tmp_path, bare)).gyro is None


def test_all_conventions_of_one_attitude_are_read_alike(tmp_path):
    """Four texts, by who is A, the direction and the order of the quaternion."""
    q = np.array([0.347679, 0.056482, 0.209807, -0.912091])
    read = []
    for frames in (("EME2000", "SC_BODY_1"), ("SC_BODY_1", "EME2000")):
        for direction in ("A2B", "B2A"):
            from_body = (frames[0] == "SC_BODY_1") == (direction == "A2B")
            for order in ("FIRST", "LAST"):
                numbers = q * [1, -1, -1, -1] if from_body else q
                numbers = numbers if order == "FIRST" else np.roll(numbers, -1)
                row = " ".join(map(repr, numbers.tolist()))
                text = STEERING.replace("A2B", direction).replace("FIRST", order)
                text = re.sub("FRAME_A +=.*", f"FRAME_A = {frames[0]}", text)
                text = re.sub("FRAME_B +=.*", f"FRAME_B = {frames[1]}", text)
                text = text.replace("/DERIVATIVE", "").split("COMMENT")[0]
                text += f"2021-12-31T00:00:00 {row}\n2021-12-31T00:00:01 {row}\nDATA_STOP\n"
                read.append(recordings.read_aem(written(tmp_path, text)).q[1])
    np.testing.assert_array_equal(read, [q] * 8)


def test_other_forms_of_lines_and_numbers_are_read_alike(tmp_path):
    """Line ends of Windows, tabs, no blanks, signs, exponents, small letters, any comment."""
    lines = SPINNING.replace("ANGVEL_FRAME   = SC_BODY_1", "ANGVEL_FRAME=sc_body_1").splitlines()
    lines = [line.replace(" = ", "=").replace("   ", "\t ") for line in lines]
    lines[5:5] = ["", "  COMMENT\ta\x0cb\u2028c = d  ", "COMMENT"]
    text = "\r\n".join(lines).replace("0.209807", "+.209807").replace("18.288407", "1.8288407E+01")
    (tmp_path / "b.aem").write_bytes(text.encode())
    one = recordings.read_aem(written(tmp_path, SPINNING))
    other = recordings.read_aem(tmp_path / "b.aem")
    np.testing.assert_array_equal(other.q, one.q)
    np.testing.assert_array_equal(other.gyro, one.gyro)
    small = recordings.read_aem(written(tmp_path, ANGLES.replace("ZXZ", "zxz")))
    np.testing.assert_array_equal(small.q, recordings.read_aem(written(tmp_path, ANGLES)).q)


def test_the_rate_in_the_other_frame_is_turned_into_the_body(tmp_path):
    """And with the body as A it is the rate of the world, with the opposite sign."""
    right = recordings.read_aem(written(tmp_path, SPINNING))
    lines, turns = SPINNING.splitlines(), rotations(right.q)
    rows = [k for k, line in enumerate(lines) if line.startswith("2023")]
    for first, second, sign in (("EME2000", "SC_BODY_1", 1.0), ("SC_BODY_1", "EME2000", -1.0)):
        text = lines.copy()
        for k, q, rate in zip(rows, right.q, turns.apply(right.gyro), strict=True):
            q = q * [1, sign, sign, sign]
            numbers = [*np.roll(q, -1), *(sign * np.rad2deg(rate))]
            text[k] = " ".join([lines[k].split()[0], *(repr(float(x)) for x in numbers)])
        text = "\n".join(text).replace("= EME2000", f"= {first}")
        text = text.replace("REF_FRAME_B    = SC_BODY_1", f"REF_FRAME_B    = {second}")
        text = text.replace("ANGVEL_FRAME   = SC_BODY_1", "ANGVEL_FRAME   = EME2000")
        recording = recordings.read_aem(written(tmp_path, text))
        np.testing.assert_array_equal(recording.q, right.q)
        np.testing.assert_allclose(recording.gyro, right.gyro, rtol=0, atol=1e-15)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("swapped", [False, True])
def test_what_is_written_is_read_to_the_bit(tmp_path, version, swapped):
    """Times that no decimal holds shortly, across midnight; rates to rounding."""
    rng = np.random.default_rng(3)
    q = rng.normal(size=(20, 4))
    q /= np.linalg.norm(q, axis=1)[:, None]
    t = np.concatenate([np.arange(10) / 7e4, 1.0 + np.arange(10) / 7.0])
    recording = recordings.Recording(t, 0.1 * rng.normal(size=(20, 3)), q)
    frames = {"REF_FRAME_A": "SC_BODY_1", "REF_FRAME_B": "EME2000"} if swapped else {}
    recordings.write_aem(tmp_path / "b.aem", recording, METADATA | frames, version=version)
    back = recordings.read_aem(tmp_path / "b.aem")
    np.testing.assert_array_equal(back.t, t)
    np.testing.assert_array_equal(back.q, q)
    if version == "2.0":
        np.testing.assert_allclose(back.gyro, recording.gyro, rtol=0, atol=1e-15)
    else:
        assert back.gyro is None
    recordings.write_aem(tmp_path / "c.aem", back)
    lines = [(tmp_path / name).read_text().splitlines() for name in ("b.aem", "c.aem")]
    rows = [[line.split()[:5] for line in file if line.startswith("2026")] for file in lines]
    assert len(rows[0]) == 20
    assert rows[0] == rows[1]
    assert rows[0][-1][0].startswith("2026-03-21T00:00:02.1857142857")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STANDARD, r"^segment: wanted one of the 2 of .*, got None"),
        (STEERING.replace("ATTITUDE_DIR ", "COMMENT "), r"ATTITUDE_DIR: wanted one of 'A2B'"),
        (STEERING.replace("QUATERNION_TYPE ", "COMMENT "), r"QUATERNION_TYPE: wanted one of"),
        (STEERING.replace("/DERIVATIVE", "/RATE"), r"ATTITUDE_TYPE: .*got 'QUATERNION/RATE'"),
        (SPINNING.replace("QUATERNION/ANGVEL", "SPIN"), r"'SPIN'"),
        (SPINNING.replace("QUATERNION/ANGVEL", "SPIN/NUTATION_MOM"), r"got 'SPIN/NUTATION_MOM'"),
        (SPINNING.replace("META_STOP", "ATTITUDE_DIR = B2A\nMETA_STOP"), r"wanted no ATTITUDE_DIR"),
        (SPINNING.replace("VERS = 2.0", "VERS = 3.0"), r"CCSDS_AEM_VERS: wanted one of '1.0'"),
        (SPINNING.replace("EME2000", "IMU_1"), r"wanted one frame on the spacecraft.* IMU_1"),
        (SPINNING.replace("= SC_BODY_1\nTIME", "= GCRF\nTIME"), r"got EME2000 and GCRF"),
        (SPINNING.replace("  18.279166", ""), r"line 20: wanted a time and 7 finite numbers, got"),
        (SPINNING.replace("18.279166", "x"), r"line 20: wanted a time and 7 finite .* x$"),
        (SPINNING.replace("054T00:00:19", "354T00:61:19x"), r"line 19: wanted a time such as"),
        (SPINNING.replace("00:00:19", "00:00:49"), r"times \[s\]: wanted times that increase"),
        (SPINNING.replace("DATA_STOP\n", ""), r"wanted whole segments, got 1, the last cut short"),
        (SPINNING.replace("0.912091", "0.812091"), r"wanted a unit quaternion"),
        ("<?xml version='1.0'?>\n<aem>\n", r"a.aem: wanted KVN, lines such as .*, got XML$"),
        ("\ufeff\n<aem/>", r"a.aem: wanted KVN, lines such as .*, got XML$"),
        ("a,b\n1,2\n", r"wanted CCSDS_AEM_VERS = ... first, got"),
        (ANGLES.replace("EULER_ANGLE/DERIVATIVE", "SPIN/NUTATION"), r"got 'SPIN/NUTATION'$"),
        (ANGLES.replace("ZXZ", "313"), r"EULER_ROT_SEQ: wanted one of 'XYX', .*, got '313'$"),
        (ANGLES.replace("EULER_ROT_SEQ", "COMMENT"), r"EULER_ROT_SEQ: .*, got 'NOTHING'$"),
        (ANGLES.replace("VERS = 2.0", "VERS = 1.0"), r"ATTITUDE_TYPE: .*got 'EULER_ANGLE/DERIV"),
        (ANGLES.replace("/DERIVATIVE", ""), r"line 21: wanted a time and 3 finite numbers, got 10"),
        (ANGLES.replace("/DERIVATIVE", "/ANGVEL"), r"ANGVEL_FRAME: wanted one of 'EME2000'"),
        (SPINNING.replace("054T00:00:19", "054T25:00:19"), r"line 19: wanted a time such as"),
        (SPINNING.replace("054T00:00:19", "054T00:00:61"), r"line 19: wanted a time such as"),
        (SPINNING.replace("054T00:00:19", "366T00:00:19"), r"line 19: wanted a time such as"),
        (SPINNING.replace("= 2023-054T00:00:09", "= x"), r"START_TIME: wanted a time such as"),
        (SPINNING.replace("18.279166", "1_8.279166"), r"line 20: .* finite numbers, got .*1_8"),
        (SPINNING.replace("18.279166", "1e999"), r"line 20: .* finite numbers, got .* 1e999$"),
        (ANGLES.replace("130.00000", "1e999"), r"line 25: .* finite numbers, got 1e999"),
        (SPINNING.replace("DATA_START\n", "DATA_START\nDATA_START\n"), "wanted no DATA_START here"),
        (SPINNING.replace("META_STOP\n", ""), r"wanted no DATA_START here"),
        (SPINNING.replace("= MMS", "="), r"line 6: wanted a new keyword and a value"),
    ],
)  # fmt: skip
def test_what_is_missing_or_not_supported_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        recordings.read_aem(written(tmp_path, text))


def test_metadata_and_attitudes_must_be_complete(tmp_path):
    q = np.array([[1.0, 0, 0, 0], [np.nan] * 4, [0.6, 0.8, 0, 0]])
    gaps = recordings.Recording(np.arange(3.0), q=q)
    with pytest.raises(ValueError, match=r"^recording: wanted q in all rows, .*rows_with"):
        recordings.write_aem(tmp_path / "d.aem", gaps, METADATA)
    with pytest.raises(ValueError, match=r"^metadata: wanted OBJECT_NAME, got nothing"):
        recordings.write_aem(tmp_path / "d.aem", gaps.rows_with("q"))


@pytest.mark.parametrize(
    ("times", "gyro", "metadata", "message"),
    [
        ([0.0, 1e300], None, {}, r"^recording.t: wanted times in the years 1 to 9999"),
        ([-1e12, 0.0], None, {}, r"^recording.t: wanted times in the years 1 to 9999"),
        ([0.0, 5e-324], None, {}, r"^recording.t: wanted times in the years 1 to 9999"),
        ([0.0, 1.0], np.full((2, 3), 1e308), {}, r"^recording.gyro \[deg/s\]: wanted finite"),
        ([0.0, 1.0], None, {"OBJECT_NAME": "A\nDATA_START"}, r"wanted a line of text for OBJECT"),
        ([0.0, 1.0], None, {"OBJECT_NAME": ""}, r"wanted a line of text for OBJECT_NAME, got ''"),
    ],
)
def test_what_would_not_be_read_back_is_not_written(tmp_path, times, gyro, metadata, message):
    q = np.array([[1.0, 0, 0, 0], [0.6, 0.8, 0, 0]])
    recording = recordings.Recording(np.array(times), gyro, q)
    with pytest.raises(ValueError, match=message):
        recordings.write_aem(tmp_path / "e.aem", recording, {**METADATA, **metadata})
    assert not (tmp_path / "e.aem").exists()


def test_conventions_of_the_message_that_was_read_are_not_written(tmp_path):
    """A message of version 1 has an ATTITUDE_DIR, which version 2 has not."""
    read = recordings.read_aem(written(tmp_path, STEERING))
    assert "ATTITUDE_DIR" in read.notes
    recordings.write_aem(tmp_path / "f.aem", read, {"ORIGINATOR": "ME"})
    np.testing.assert_array_equal(recordings.read_aem(tmp_path / "f.aem").q, read.q)

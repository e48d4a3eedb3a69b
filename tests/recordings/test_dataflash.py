"""Tests of reading logs of ArduPilot: files that are written here byte by byte."""

import re
import struct
import sys

import numpy as np
import pytest

from jaxquat import recordings

NEEDS_PYMAVLINK = pytest.mark.needs("pymavlink")
CODES = {"n": "4s", "N": "16s", "Z": "64s", "c": "h", "L": "i"}


def message(number, form, *values):
    code = "<" + "".join(CODES.get(kind, kind) for kind in form)
    values = [value.encode() if isinstance(value, str) else value for value in values]
    return struct.pack("BBB", 0xA3, 0x95, number) + struct.pack(code, *values)


def defined(number, name, form, columns):
    length = 3 + struct.calcsize("<" + "".join(CODES.get(kind, kind) for kind in form))
    return message(0x80, "BBnNZ", number, length, name, form, columns)


UNITS = [("s", "s"), ("#", "instance"), ("E", "rad/s"), ("o", "m/s/s"), ("G", "Gauss")]
UNITS += [("d", "deg"), ("k", "deg/s"), ("D", "deglatitude")]
HEAD = (
    defined(0x80, "FMT", "BBnNZ", "Type,Length,Name,Format,Columns")
    + defined(1, "UNIT", "QbZ", "TimeUS,Id,Label")
    + defined(2, "MULT", "Qbd", "TimeUS,Id,Mult")
    + defined(3, "FMTU", "QBNN", "TimeUS,FmtType,UnitIds,MultIds")
    + b"".join(message(1, "QbZ", 0, ord(key), label) for key, label in UNITS)
    + b"".join(message(2, "Qbd", 0, ord(key), x) for key, x in (("F", 1e-6), ("C", 1e-3)))
)
FORMATS = {
    "IMU": (10, "QBffffff", "TimeUS,I,GyrX,GyrY,GyrZ,AccX,AccY,AccZ", "s#EEEooo", "F-------"),
    "MAG": (11, "QBhhh", "TimeUS,I,MagX,MagY,MagZ", "s#GGG", "F-CCC"),
    "ATT": (12, "Qccc", "TimeUS,Roll,Pitch,Yaw", "sddh", "F---"),
    "XKQ": (13, "QBffff", "TimeUS,C,Q1,Q2,Q3,Q4", "s#----", "F-----"),
    "RATE": (14, "Qff", "TimeUS,R,P", "skk", "F--"),
    "ACC": (15, "QBQfff", "TimeUS,I,SampleUS,AccX,AccY,AccZ", "s#sooo", "F-F---"),
    "GPS": (16, "QLZ", "TimeUS,Lat,Note", "sD-", "F--"),
    "OLD": (17, "Ifff", "TimeMS,GyrX,GyrY,GyrZ", "", ""),
    "GPS2": (18, "IHfI", "TimeMS,Week,Spd,T", "", ""),
    "PARM": (20, "QNf", "TimeUS,Name,Value", "s--", "F--"),
    "WEEK": (19, "IHf", "TimeMS,Week,Spd", "", ""),
}


def log(with_units=True, **rows):
    """Returns a log of these messages, by name, in the order of their times."""
    content, messages = HEAD, []
    for name, values in rows.items():
        number, form, columns, units, multipliers = FORMATS[name]
        content += defined(number, name, form, columns)
        if with_units:
            content += message(3, "QBNN", 0, number, units, multipliers)
        messages += [(row[0], message(number, form, *row)) for row in values]
    return content + b"".join(text for _, text in sorted(messages))


IMU = [(1000 + 2000 * k, i, 0.5 * k + i, 1, -1, 0, 0, -9.75) for k in range(3) for i in (0, 1)]
MAG = [(3000, 0, 200, -100, 400), (4000, 0, 201, -101, 401)]
ATT = [(2000, 0, 0, 9000), (6000, 18000, 3000, 0)]  # hundredths of a degree
XKQ = [(2000, 0, 1, 0, 0, 0), (2000, 1, 0, 0.6, 0, 0.8), (5000, 1, 0, 0, 0, 1)]
WHOLE = log(IMU=IMU, MAG=MAG, ATT=ATT, XKQ=XKQ)


def written(tmp_path, content=WHOLE):
    (tmp_path / "a.bin").write_bytes(content)
    return tmp_path / "a.bin"


@NEEDS_PYMAVLINK
def test_the_default_channels_are_in_si_units_at_their_own_times(tmp_path):
    """1 milligauss is 1e-7 T. A yaw of 90 degrees is the half turn (1, 0, 0, 1) of sqrt(1/2).

    Roll 180 and pitch 30 degrees: first the pitch, (cos 15, 0, sin 15, 0), then i about the new
    axis, whose product is (0, cos 15, 0, -sin 15).
    """
    got = recordings.read_dataflash(written(tmp_path))
    np.testing.assert_allclose(got.t, [0.001, 0.002, 0.003, 0.004, 0.005, 0.006], rtol=1e-15)
    n = np.nan
    np.testing.assert_array_equal(got.gyro[:, 0], [0, n, 0.5, n, 1, n])
    np.testing.assert_array_equal(got.rows_with("gyro").accelerometer, [[0, 0, -9.75]] * 3)
    field = got.rows_with("magnetometer").magnetometer
    np.testing.assert_allclose(field[0], [200e-7, -100e-7, 400e-7], rtol=1e-15)
    half, angle = np.sqrt(0.5), np.deg2rad(15)
    wanted = [[half, 0, 0, half], [0, np.cos(angle), 0, -np.sin(angle)]]
    np.testing.assert_allclose(got.rows_with("q").q, wanted, rtol=0, atol=2e-16)


@NEEDS_PYMAVLINK
def test_instances_and_quaternions_are_read_by_name(tmp_path):
    columns = {
        "gyro": [f"IMU:1.Gyr{axis}" for axis in "XYZ"],
        "q": [f"XKQ:1.Q{k}" for k in range(1, 5)],
    }
    got = recordings.read_dataflash(written(tmp_path), columns)
    np.testing.assert_array_equal(got.rows_with("gyro").gyro[:, 0], [1, 1.5, 2])
    np.testing.assert_allclose(got.rows_with("q").q, [[0, 0.6, 0, 0.8], [0, 0, 0, 1]], atol=1e-7)


@NEEDS_PYMAVLINK
def test_flu_enu_has_the_other_axes(tmp_path):
    """Facing east is the identity of FLU to ENU."""
    got = recordings.read_dataflash(written(tmp_path), frame="flu_enu")
    np.testing.assert_array_equal(got.rows_with("gyro").gyro[1], [0.5, -1, 1])
    np.testing.assert_array_equal(got.rows_with("gyro").accelerometer[0], [0, 0, 9.75])
    np.testing.assert_allclose(
        got.rows_with("magnetometer").magnetometer[0], [200e-7, 100e-7, -400e-7], rtol=1e-15
    )
    np.testing.assert_allclose(got.rows_with("q").q[0], [1, 0, 0, 0], rtol=0, atol=1e-15)


@NEEDS_PYMAVLINK
def test_the_units_are_those_that_the_log_states_or_those_of_the_user(tmp_path):
    """RATE is in deg/s and latitudes are in degrees, a unit that is left as it is."""
    rates = [(1000, 180, 90), (2000, 0, 360)]
    path = written(tmp_path, log(RATE=rates, GPS=[(1000, 471234567, "x")]))
    columns = {"rates": ("RATE.R", "RATE.P"), "latitude": "GPS.Lat"}
    got = recordings.read_dataflash(path, columns)
    np.testing.assert_allclose(got["rates"], [[np.pi, np.pi / 2], [0, 2 * np.pi]], rtol=1e-15)
    np.testing.assert_allclose(got["latitude"], [47.1234567, np.nan], rtol=1e-15)
    got = recordings.read_dataflash(path, columns, units={"rates": "rpm"})
    np.testing.assert_allclose(got["rates"][0, 0], 6 * np.pi, rtol=1e-15)
    angles = {"q": recordings.ARDUPILOT["q"]}
    got = recordings.read_dataflash(written(tmp_path), angles, units={"q": np.pi / 360})  # halves
    np.testing.assert_allclose(got.q[0], [np.cos(np.pi / 8), 0, 0, np.sin(np.pi / 8)], rtol=1e-15)
    path = written(tmp_path, log(with_units=False, MAG=MAG))
    columns = {"magnetometer": recordings.ARDUPILOT["magnetometer"]}
    got = recordings.read_dataflash(path, columns)
    np.testing.assert_allclose(got.magnetometer[0, 0], 200e-7, rtol=1e-15)


@NEEDS_PYMAVLINK
def test_samples_have_the_time_at_which_they_were_taken(tmp_path):
    rows = [(2000, 0, 1500, 0, 0, -9.75), (3000, 0, 2500, 0, 0, -9.75)]
    columns = {"accelerometer": [f"ACC.Acc{axis}" for axis in "XYZ"]}
    got = recordings.read_dataflash(written(tmp_path, log(ACC=rows)), columns)
    np.testing.assert_allclose(got.t, [0.0015, 0.0025], rtol=1e-15)


@NEEDS_PYMAVLINK
def test_old_logs_count_in_milliseconds_and_gps_messages_have_two_times(tmp_path):
    rows = {"OLD": [(1000, 1, 2, 3), (1020, 4, 5, 6)], "GPS2": [(3_880_600, 1815, 2.5, 1010)]}
    path = written(tmp_path, log(with_units=False, **rows))
    columns = {"gyro": ("OLD.GyrX", "OLD.GyrY", "OLD.GyrZ"), "speed": "GPS2.Spd"}
    got = recordings.read_dataflash(path, columns)
    np.testing.assert_allclose(got.t, [1.0, 1.01, 1.02], rtol=1e-15)
    np.testing.assert_array_equal(got.rows_with("gyro").gyro, [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(got["speed"], [np.nan, 2.5, np.nan])


@NEEDS_PYMAVLINK
def test_the_default_magnetometer_may_be_absent_and_a_named_one_may_not(tmp_path):
    path = written(tmp_path, log(IMU=IMU, ATT=ATT))
    assert recordings.read_dataflash(path).names == ("gyro", "q", "accelerometer")
    with pytest.raises(ValueError, match="message MAG:0: wanted messages for magnetometer, got"):
        recordings.read_dataflash(path, recordings.ARDUPILOT)


DAMAGED = {
    "cut short": (WHOLE[:-5], "ends within a message", 5),
    "zeros at the end": (WHOLE + bytes(100), "has 100 bytes of no message", 6),
    "zeros in the middle": (
        WHOLE.replace(message(12, "Qccc", *ATT[0]), bytes(17)),
        "has 17 bytes of no message",
        5,
    ),
}


@NEEDS_PYMAVLINK
@pytest.mark.parametrize(("content", "text", "rows"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_log_is_read_on_request(tmp_path, content, text, rows, capsys):
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=f"{text}; skip_damaged=True reads the others"):
        recordings.read_dataflash(path)
    with pytest.warns(RuntimeWarning, match=text):
        got = recordings.read_dataflash(path, skip_damaged=True)
    assert len(got.t) == rows
    assert capsys.readouterr() == ("", "")


GYRO = {"gyro": recordings.ARDUPILOT["gyro"]}
BAD = {
    "empty": (b"", None, "wanted a DataFlash log, which begins with the format of a message, got"),
    "text": (b"t,gyr_x\n", None, "got one that begins with b't,g'"),
    "missing message": (log(MAG=MAG), GYRO, "message IMU:0: wanted messages for gyro, got none"),
    "missing instance": (WHOLE, {"x": "IMU:2.GyrX"}, "message IMU:2: wanted messages for x"),
    "no instances": (WHOLE, {"x": "ATT:1.Roll"}, "message ATT:1: wanted messages for x, got none"),
    "missing field": (
        WHOLE,
        {"x": "ATT.Bank"},
        "message ATT:0, field Bank: wanted one of numbers for x, got TimeUS, Roll, Pitch, Yaw",
    ),
    "text field": (
        log(GPS=[(1000, 0, "x")]),
        {"x": "GPS.Note"},
        "field Note: wanted one of numbers for x, got TimeUS, Lat, Note",
    ),
    "only the time of a week": (
        log(WEEK=[(1, 1815, 2), (2, 1815, 2)]),
        {"x": "WEEK.Spd"},
        "field T: wanted one of numbers for x, got TimeMS, Week, Spd",
    ),
    "another quantity": (
        WHOLE,
        {"gyro": ("IMU.AccX", "IMU.AccY", "IMU.AccZ")},
        "field AccX: wanted a unit that is a multiple of rad/s, got 'm/s/s' for gyro",
    ),
    "two numbers": (WHOLE, {"gyro": ("IMU.GyrX", "IMU.GyrY")}, "wanted 3 numbers for gyro, got"),
    "time stands": (
        log(ATT=[ATT[0], ATT[0]]),
        {"x": "ATT.Roll"},
        "message ATT:0, times [s]: wanted times that increase, got 0.002 and then 0.002",
    ),
}


@NEEDS_PYMAVLINK
@pytest.mark.parametrize(("content", "columns", "text"), BAD.values(), ids=BAD)
def test_a_bad_log_is_refused_by_file_message_and_field(tmp_path, content, columns, text):
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=re.escape(text)) as error:
        recordings.read_dataflash(path, columns)
    assert str(path) in str(error.value)


def test_without_pymavlink_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymavlink.DFReader", None)
    wanted = re.escape('wanted the package pymavlink, got none: pip install "jaxquat[logs]"')
    with pytest.raises(ImportError, match=wanted):
        recordings.read_dataflash("nowhere.bin")


@NEEDS_PYMAVLINK
def test_the_declination_of_the_log_is_a_note(tmp_path):
    """The last value of the parameter, in radians."""
    rows = [(1000, b"COMPASS_DEC", 0.5), (1500, b"COMPASS_USE", 1.0), (3000, b"COMPASS_DEC", 0.125)]
    got = recordings.read_dataflash(written(tmp_path, log(IMU=IMU, MAG=MAG, ATT=ATT, PARM=rows)))
    assert got.notes == {"declination": 0.125}
    assert recordings.read_dataflash(written(tmp_path)).notes == {}

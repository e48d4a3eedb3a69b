"""Tests of reading named columns with units, and of bringing sensors of several rates together."""

import datetime
import gzip
import re

import numpy as np
import pytest
from commands import ROOT

from jaxquat import recordings
from jaxquat.recordings.columns import SI, ends_in_a_unit

DATA = ROOT.parent / "shared" / "data"
NAMES = {
    "t": "stamp",
    "gyro": ("gx", "gy", "gz"),
    "accelerometer": ("ax", "ay", "az"),
    "magnetometer": ("mx", "my", "mz"),
    "q": ("ow", "ox", "oy", "oz"),
    "motors": ("m1", "m2"),
    "speed": "n",
}
HEADER = "n,m2,m1,ow,oz,oy,ox,mz,my,mx,az,ay,ax,gz,gy,gx,stamp,note"
SECONDS = {"t": "s"}
UNITS = {"t": "ms", "gyro": "deg/s", "accelerometer": "g", "magnetometer": "uT", "speed": "rpm"}
ROWS = (
    "60,0.2,0.1,1,0,0,0,3,2,1,-1,0.5,0,180,90,-360,1000,hello",
    "120,0.4,0.3,0,0,0.8,0.6,6,5,4,1,0,0,0,0,36,1002.5,there",
)


def written(tmp_path, *lines):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    return path


def test_named_columns_become_channels_in_si_units(tmp_path):
    """By the definitions of the units: a turn is 360 degrees, standard gravity is 9.80665 m/s^2."""
    path = written(tmp_path, HEADER, *ROWS)
    got = recordings.read(path, NAMES, units=UNITS)
    close = {"rtol": 1e-15, "atol": 0}
    np.testing.assert_allclose(got.t, [1.0, 1.0025], **close)
    np.testing.assert_allclose(got.gyro, np.pi * np.array([[-2, 0.5, 1], [0.2, 0, 0]]), **close)
    np.testing.assert_allclose(got.accelerometer, 9.80665 * np.array([[0, 0.5, -1], [0, 0, 1]]))
    np.testing.assert_allclose(got.magnetometer, [[1e-6, 2e-6, 3e-6], [4e-6, 5e-6, 6e-6]], **close)
    np.testing.assert_array_equal(got.q, [[1, 0, 0, 0], [0, 0.6, 0.8, 0]])
    np.testing.assert_array_equal(got["motors"], [[0.1, 0.2], [0.3, 0.4]])
    np.testing.assert_allclose(got["speed"], [2 * np.pi, 4 * np.pi], **close)
    assert got.movement is None
    assert got["speed"].shape == (2,)
    assert got.names == ("gyro", "q", "accelerometer", "magnetometer", "motors", "speed")


def test_units_may_stand_in_the_header(tmp_path):
    """With or without a space, in either kind of brackets; an index is no unit."""
    path = written(
        tmp_path, "t [us],out[0],gx(deg/s),gy (deg/s),gz [deg/s]", "0,5,1,2,3", "9,6,1,2,3"
    )
    names = {"t": "t", "gyro": ("gx", "gy", "gz"), "out": "out[0]"}
    got = recordings.read(path, names)
    np.testing.assert_allclose(got.t, [0.0, 9e-6], rtol=1e-15)
    np.testing.assert_allclose(got.gyro[0], np.deg2rad([1.0, 2.0, 3.0]), rtol=1e-15)
    np.testing.assert_array_equal(got["out"], [5.0, 6.0])
    again = recordings.read(path, {**names, "t": "t [us]"}, units={"gyro": "deg/s"})
    np.testing.assert_array_equal(again.gyro, got.gyro)


def test_a_file_of_the_own_columns_may_have_units_too(tmp_path):
    own = "t [ms],gyr_x [deg/s],gyr_y [deg/s],gyr_z [deg/s],q_w,q_x,q_y,q_z,movement"
    got = recordings.read(written(tmp_path, own, "0,1,2,3,1,0,0,0,0", "10,1,2,3,1,0,0,0,1", ""))
    np.testing.assert_array_equal(got.t, [0.0, 0.01])
    np.testing.assert_allclose(got.gyro[0], np.deg2rad([1.0, 2.0, 3.0]), rtol=1e-15)


def joined(tmp_path):
    """Returns rates at 1, 2, 4 s, a field at 2, 3 s, and commands at 1, 3 s."""
    lines = "1,1,1,1,,,,7", "2,2,2,2,5,5,5,", "3,nan,NaN,,6,6,6,8", "4,4,4,4,,,,"
    path = written(tmp_path, "t,x,y,z,a,b,c,u", *lines)
    names = {"t": "t", "gyro": ("x", "y", "z"), "magnetometer": ("a", "b", "c"), "u": "u"}
    return recordings.read(path, names, units={"magnetometer": "T"})


def test_what_is_missing_in_a_row_is_nan_and_nothing_is_interpolated(tmp_path):
    recording = joined(tmp_path)
    nan = np.nan
    np.testing.assert_array_equal(recording.gyro[:, 0], [1, 2, nan, 4])
    np.testing.assert_array_equal(recording.magnetometer[:, 2], [nan, 5, 6, nan])
    np.testing.assert_array_equal(recording.present("gyro"), [True, True, False, True])
    assert repr(recording) == (
        "<Recording: 4 samples, duration 3 s, rate 1 Hz, channels gyro magnetometer u, "
        "gyro missing 25 %, magnetometer missing 50 %, u missing 50 %>"
    )


def test_a_held_channel_is_its_last_sample_before_at_the_rows_of_another(tmp_path):
    got = joined(tmp_path).hold("u").rows_with("gyro")
    np.testing.assert_array_equal(got.t, [1, 2, 4])
    np.testing.assert_array_equal(got["u"], [7, 7, 8])
    np.testing.assert_array_equal(got.gyro[:, 1], [1, 2, 4])
    before = joined(tmp_path).hold("magnetometer").magnetometer
    np.testing.assert_array_equal(before[:, 0], [np.nan, 5, 6, 6])
    with pytest.raises(
        ValueError, match="channel: wanted one of gyro magnetometer u, got 'motors'"
    ):
        got["motors"]
    alone = recordings.Recording(np.arange(3.0), channels={"u": np.array([1.0, np.nan, np.nan])})
    with pytest.raises(ValueError, match="channel: wanted at least two rows with u, got 1"):
        alone.rows_with("u")


def changed(line, old, new):
    assert old in line
    return line.replace(old, new)


MALFORMED = {
    "empty": ([""], "line 1, column stamp: missing from the header, got an empty file; columns="),
    "stamps beyond float64": (
        [HEADER, *(changed(ROWS[0], "1000", f"17000000000000001{k}0") for k in (0, 1))],
        "line 3, column stamp: wanted a time after 1.7e+18, got 1.7e+18; duplicates=",
    ),
    "lines before the header": (
        ["Device,IMU 7", HEADER, *ROWS],
        "line 1, column stamp: missing from the header, got Device, IMU 7; columns=",
    ),
    "a quote of the header that is not closed": (
        [changed(HEADER, "n,m2", 'n,"m2'), *ROWS],
        "line 1, column stamp: missing from the header, got n, ",
    ),
    "empty cells at the end": (
        [HEADER, ROWS[0], f"{ROWS[1]},,"],
        "line 3, column note: wanted 18 cells, got 20",
    ),
    "short line": ([HEADER, ROWS[0], "120,0.4"], "line 3, column m1: wanted 18 cells, got 2"),
    "decimal comma": (
        [line.replace(",", ";").replace(".", ",") for line in (HEADER, *ROWS)],
        "line 2, column ay: wanted a number, got '0,5'",
    ),
    "text far below": (
        [HEADER, *(changed(ROWS[0], "1000", str(k)) for k in range(10_001)), "x"],
        "line 10003, column m2: wanted 18 cells, got 1",
    ),
    "header only": ([HEADER], "wanted at least two rows of numbers below the header, got 0"),
    "one row": ([HEADER, ROWS[0]], "wanted at least two rows of numbers below the header, got 1"),
    "column missing": (
        [changed(HEADER, "m2,", "")],
        "line 1, column m2: missing from the header, got n, m1, ",
    ),
    "column twice": ([f"{HEADER},gx"], "line 1, column gx: more than once in the header"),
    "unknown unit": (
        [changed(HEADER, "ax", "ax [furlong]")],
        "line 1, column ax: wanted the unit of units['accelerometer'], 'g', got 'furlong'",
    ),
    "unknown unit of a channel without one": (
        [changed(HEADER, "m1", "m1 (LSB)")],
        "line 1, column m1: wanted one of 1, %, s, ",
    ),
    "unit of another quantity": (
        [changed(HEADER, "ox", "ox [deg]")],
        "line 1, column ox: wanted a unit that is a multiple of 1, got 'deg'",
    ),
    "half a sample": (
        [HEADER, ROWS[0], changed(ROWS[1], "6,5,4", "6,,4")],
        "line 3, column mx: wanted finite numbers, or NaN in all of them, got [4.0, nan, 6.0]",
    ),
    "text": ([HEADER, changed(ROWS[0], "-360", "-36O")], "column gx: wanted a number, got '-36O'"),
    "Arabic digits": (
        [HEADER, changed(ROWS[0], "-360", "٣٦٠")],
        "line 2, column gx: wanted a number, got '٣٦٠'",
    ),
    "column twice, once with a unit": (
        [f"{HEADER},gx [deg/s]"],
        "line 1, column gx: more than once in the header",
    ),
    "a unit of one of two columns": (
        [changed(HEADER, "m1", "m1 [%]"), *ROWS],
        "column m2: wanted units of all columns of motors in the header, or of none",
    ),
    "infinite": (
        [HEADER, changed(ROWS[0], "-360", "inf")],
        "line 2, column gx: wanted finite numbers, or NaN in all of them, got [inf, 90.0, 180.0]",
    ),
    "no stamp": (
        [HEADER, changed(ROWS[0], "1000", "")],
        "line 2, column stamp: wanted a time, got none",
    ),
    "NaN for a stamp": (
        [HEADER, changed(ROWS[0], "1000", "nan")],
        "line 2, column stamp: wanted a time, got none",
    ),
    "stamp twice": (
        [HEADER, ROWS[0], ROWS[0]],
        "line 3, column stamp: wanted a time after 1000.0, got 1000.0",
    ),
    "stamps run back": (
        [HEADER, ROWS[1], ROWS[0]],
        "line 3, column stamp: wanted a time after 1002.5, got 1000.0",
    ),
    "not unit": (
        [HEADER, changed(ROWS[0], "1,0,0,0", "2,0,0,0")],
        "line 2, column ow: wanted a unit quaternion, or NaN in all four, got [2.0, 0.0, 0.0, 0.0]",
    ),
}


@pytest.mark.parametrize(("lines", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_is_refused_by_line_and_column(tmp_path, lines, message):
    path = written(tmp_path, *lines)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        recordings.read(path, NAMES, units=UNITS)
    assert str(path) in str(error.value)


PLAIN = ["t,x,y,z,u", "0,1.5,2,3,4", "0.5,-1e-2,5,6,7"]
DIALECTS = {
    "semicolons": [line.replace(",", ";") for line in PLAIN],
    "tabs": [line.replace(",", "\t") for line in PLAIN],
    "spaces": [line.replace(",", "  ") for line in PLAIN],
    "spaces around commas": [f" {line.replace(',', ' , ')} " for line in PLAIN],
    "a header that is a comment": [f"# {PLAIN[0]}", *PLAIN[1:]],
    "comments and blank lines": ["# a flight", "", PLAIN[0], PLAIN[1], "", "# half-time", PLAIN[2]],
    "a comma after every line": [f"{line}," for line in PLAIN],
    "carriage returns": [f"{line}\r" for line in PLAIN],
}


@pytest.mark.parametrize("lines", DIALECTS.values(), ids=DIALECTS)
def test_a_table_is_read_however_its_cells_are_separated(tmp_path, lines):
    path = written(tmp_path, *lines)
    for names in ({"t": "t", "gyro": ("x", "y", "z")}, {"t": "t", "gyro": ["x", "y", "z"]}):
        got = recordings.read(path, names)
        np.testing.assert_array_equal(got.t, [0.0, 0.5])
        np.testing.assert_array_equal(got.gyro, [[1.5, 2, 3], [-0.01, 5, 6]])


@pytest.mark.parametrize("separator", [",", ";", "\t", " "])
def test_the_columns_of_a_file_without_a_header_are_numbered(tmp_path, separator):
    lines = ["# recorded by hand", *PLAIN[1:]]
    path = written(tmp_path, *(line.replace(",", separator) for line in lines))
    numbers = {"t": np.int64(0), "gyro": (3, 2, 1)}
    got = recordings.read(path, numbers, units={"t": "ms"})
    np.testing.assert_array_equal(got.t, [0.0, 0.5e-3])
    np.testing.assert_array_equal(got.gyro, [[3, 2, 1.5], [6, 5, -0.01]])
    with pytest.raises(
        ValueError,
        match="line 1, column 5: missing from the first row, whose columns are 0, 1, 2, 3, 4",
    ):
        recordings.read(path, {"t": 0, "u": 5})


def test_the_columns_of_a_file_with_a_header_are_not_numbered(tmp_path):
    path = written(tmp_path, "Time (ms);Gyro [deg/s];;", ";X;Y;Z", "1;180;0;0", "2;0;0;90")
    with pytest.raises(ValueError, match=r"line 1, column 0: wanted a number, got 'Time \(ms\)'"):
        recordings.read(path, {"t": 0, "gyro": (1, 2, 3)})


def test_cells_of_text_in_other_columns_may_have_any_characters(tmp_path):
    path = written(tmp_path, "0\t1\ta,b", "1\t2\ta_b")
    np.testing.assert_array_equal(recordings.read(path, {"t": 0, "x": 1})["x"], [1.0, 2.0])


@pytest.mark.parametrize(
    "content",
    ["t;x [°/s]\n0;1\n1;2\n".encode("latin-1"), gzip.compress(b"t,x")],
    ids=["latin-1", "gzip"],  # a file of gzip has the time
)
def test_a_file_that_is_not_in_utf_8_is_refused(tmp_path, content):
    """In Latin-1, or compressed without the suffix .gz."""
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.csv: cannot be read as text in UTF-8, 'utf-8'"):
        recordings.read(tmp_path / "a.csv", {"t": "t", "x": "x"})


def test_a_time_that_runs_back_is_refused_however_rows_of_one_time_are_treated(tmp_path):
    path = written(tmp_path, "t,x", *(f"{k},{k}" for k in range(100)), "7,0")
    for which in ("raise", "merge"):
        with pytest.raises(
            ValueError, match=r"line 102, column t: wanted a time after 99\.0, got 7"
        ):
            recordings.read(path, {"t": "t", "x": "x"}, units=SECONDS, duplicates=which)
    with pytest.raises(ValueError, match="duplicates: wanted one of 'raise', 'merge', 'keep'"):
        recordings.read(path, {"t": "t", "x": "x"}, duplicates="first")


def test_rows_of_one_time_that_fill_different_cells_become_one_row(tmp_path):
    """Gyro at 1 kHz and commands at 500 Hz in rows of their own lose nothing."""
    lines = [f"{k},{k},{k},{k}," for k in range(12_000)]
    lines = [row for k, line in enumerate(lines) for row in [line, f"{k},,,,{-k}"][: 2 - k % 2]]
    path = written(tmp_path, "t,x,y,z,u", *lines)
    columns = {"t": "t", "gyro": ("x", "y", "z"), "u": "u"}
    options = {"units": {"t": "ms", "gyro": "deg/s"}}
    with pytest.raises(ValueError, match=r'line 3, .*, got 0\.0; duplicates="merge" makes rows'):
        recordings.read(path, columns, **options)
    got = recordings.read(path, columns, duplicates="merge", **options)
    np.testing.assert_allclose(got.t, np.arange(12_000) / 1e3, rtol=1e-15)
    np.testing.assert_allclose(got.gyro[:, 2], np.deg2rad(np.arange(12_000)), rtol=1e-15)
    np.testing.assert_array_equal(got["u"][::2], -np.arange(0.0, 12_000, 2))
    assert np.isnan(got["u"][1::2]).all()


def test_rows_of_one_time_that_fill_a_cell_differently_are_refused_by_line_and_column(tmp_path):
    """Equal numbers are one sample."""
    lines = ["0,1,", "0,1.0,7", "1,2,8", "2,,9", "2,3,", "2,,5", "2,4,5"]
    path = written(tmp_path, "t,x,u", *lines)
    columns = {"t": "t", "u": "u", "x": "x"}
    wanted = "line 5, column u: wanted one sample of u at this time, got another one below"
    with pytest.raises(ValueError, match=wanted):
        recordings.read(path, columns, duplicates="merge")
    path = written(tmp_path, "t,x,u", *lines[:5])
    np.testing.assert_array_equal(
        recordings.read(path, columns, duplicates="merge")["u"], [7.0, 8.0, 9.0]
    )


def test_one_time_that_is_written_in_two_ways_is_one(tmp_path):
    path = written(tmp_path, "t,x,y", "0.10,1,", "0.1,,2", "1e0,3,", "1.0,,4")
    got = recordings.read(path, {"t": "t", "x": "x", "y": "y"}, duplicates="merge")
    np.testing.assert_array_equal(got["y"], [2.0, 4.0])


def test_of_several_comments_the_last_one_before_the_numbers_is_the_header(tmp_path):
    """And a line that is no comment goes before them."""
    path = written(tmp_path, "# x against t", "", "# t x y", "0 1 2", "1 3 4", "# y x t", "2 5 6")
    np.testing.assert_array_equal(recordings.read(path, {"t": "t", "x": "x"})["x"], [1, 3, 5])
    path = written(tmp_path, "# x and t", "t x", "0 1", "1 3")
    np.testing.assert_array_equal(recordings.read(path, {"t": "t", "x": "x"})["x"], [1, 3])


@pytest.mark.parametrize(
    ("channel", "names"),
    [
        ("accelerometer", ("ax_g", "ay_g", "az_g")),
        ("magnetometer", ("mx_uT", "my_uT", "mz_uT")),
        ("magnetometer", tuple(f"magnetometer_ga[{k}]" for k in range(3))),
        ("speed", "v_kmh"),
    ],
)
def test_endings_of_one_letter_and_of_capitals_are_units_too(tmp_path, channel, names):
    header = ",".join(names) if isinstance(names, tuple) else names
    zeros = header.count(",") * ",0"
    path = written(tmp_path, f"t,{header}", f"0,0{zeros}", f"1,0{zeros}")
    with pytest.raises(ValueError, match="its name ends in a unit; say which"):
        recordings.read(path, {"t": "t", channel: names})
    with pytest.raises(ValueError, match="column t_min: its name ends in a unit"):
        recordings.read(
            written(tmp_path, "t_min,x_min", "0,1", "1,2"), {"t": "t_min", "x": "x_min"}
        )


def test_the_first_line_that_is_wrong_is_named(tmp_path):
    """Whatever is wrong with it, and whatever is wrong below."""
    path = written(tmp_path, "t,x,y", "0,1,1", "1,1", "0,1,1", "3,u,1")
    with pytest.raises(ValueError, match="line 3, column y: wanted 3 cells, got 2"):
        recordings.read(path, {"t": "t", "x": "x"})


@pytest.mark.parametrize("other", ["fine", '"fine"', '""'])
@pytest.mark.parametrize("count", [4, 11000])
def test_a_quote_that_is_not_closed_is_refused_where_it_opens(tmp_path, other, count):
    """Its column is not asked for; the lines after it would be part of its cell."""
    lines = [f"{k},1,{other}" for k in range(count)]
    lines[count // 2] = f'{count // 2},1,"open'
    path = written(tmp_path, "t,x,note", *lines)
    message = rf"^.*a\.csv: line {count // 2 + 2}: cannot be read as CSV text, .*a quote there not"
    with pytest.raises(ValueError, match=message):
        recordings.read(path, {"t": "t", "x": "x"})


def test_a_closed_cell_of_several_lines_is_read(tmp_path):
    """An error after it names the line in the file."""
    lines = "t,x,note", '0,1,"two\nlines, and ""quotes"""', "1,2,b"
    got = recordings.read(written(tmp_path, *lines), {"t": "t", "x": "x"})
    np.testing.assert_array_equal(got["x"], [1.0, 2.0])
    with pytest.raises(ValueError, match="line 5, column x: wanted a number, got 'y'"):
        recordings.read(written(tmp_path, *lines, "2,y,c"), {"t": "t", "x": "x"})


@pytest.mark.parametrize(
    "stamp", ["time_us", "timeUs", "timestampUSec", "t2_micros", "TIME US", "t_µs", "us"]
)
def test_a_name_that_ends_in_a_unit_wants_it_said(tmp_path, stamp):
    """Read in silence, an hour of microseconds would last 114 years."""
    path = written(tmp_path, f"{stamp},x,y,z", "0,1,2,3", "10,1,2,3")
    names = {"t": stamp, "gyro": ("x", "y", "z")}
    with pytest.raises(ValueError, match=f"column {stamp}: its name ends in a unit; say which"):
        recordings.read(path, names)
    np.testing.assert_allclose(recordings.read(path, names, units={"t": "us"}).t, [0.0, 1e-5])
    assert recordings.read(path, names, units={"t": "s"}).t[1] == 10.0


@pytest.mark.parametrize(
    ("stamp", "second"),
    [("timestamp", 10_000), ("stamp", 1717011034612537500), ("time", 10.0), ("t", 2.0)],
)
def test_times_that_lie_far_apart_want_their_unit_said(tmp_path, stamp, second):
    """In microseconds, nanoseconds or milliseconds 100 Hz would be intervals of hours."""
    first = 1717011034602537500 if second > 1e9 else 0
    path = written(tmp_path, f"{stamp},x", f"{first},1", f"{second},2")
    with pytest.raises(ValueError, match="t: its unit is not stated and its median interval is"):
        recordings.read(path, {"t": stamp, "x": "x"})
    assert recordings.read(path, {"t": stamp, "x": "x"}, units={"t": "s"}).t[1] == second


def test_accelerations_of_the_size_of_gravity_in_g_want_their_unit_said(tmp_path):
    path = written(tmp_path, "t,ax,ay,az", "0,0,0.1,-1", "1,,,", "2,0.3,0,1")
    names = {"t": "t", "accelerometer": ("ax", "ay", "az")}
    with pytest.raises(ValueError, match=r"accelerometer: its unit .* median norm is 1.02 m/s"):
        recordings.read(path, names)
    got = recordings.read(path, names, units={"accelerometer": "g"}).accelerometer
    np.testing.assert_allclose(got[2], [0.3 * 9.80665, 0.0, 9.80665], rtol=1e-15)


@pytest.mark.parametrize("ending", [" deg/s", "_deg/s", "_deg_per_s", "DegPerSec", ".dps"])
def test_a_rate_whose_name_ends_in_degrees_wants_its_unit_said(tmp_path, ending):
    path = written(tmp_path, f"t,g{ending},y,z", "0,1,2,3", "10,1,2,3")
    names = {"t": "t", "gyro": (f"g{ending}", "y", "z")}
    with pytest.raises(ValueError, match="its name ends in a unit; say which"):
        recordings.read(path, names)


NAMES_WITH_UNITS = {
    "gyro": """
        gx_dps gx_degs gx_deg gx_degps gxDps gx_rpm gyro_x_deg_per_s gyroXDegPerSec
        gyr_x_mdps gx_deg/s gx.deg_s gx_deg_sec gx_raw gx_lsb gx_millidegs gx-dps
        omega_deg gx_degrees_per_second rate_dps_x dps_x gx_dps_filtered x_rps gx_hz
        gx_urad_s gx_mrad_s gx_counts gyroXDPS gx_mrad_per_sec roll_rate_deg_h gx_dps[0]
        gx_dps_0 gx_°/s rpm_1
    """,
    "t": """
        time_ms timestamp_us timestamp_ns TimeUS timeUs t_ms millis micros t.ms epoch_ms
        unix_ms time_usec msec time_minutes t_h days timestamp_micros ms nanosec
        header.stamp.nanosec time_h ticks
    """,
    "accelerometer": """
        ax_g ax_mg accX_g acc_g_x ax_gs ax_cms2 ax_cm_s2 accel_x_G ax_gal ax_ft_s2
        ax_ft/s^2 ax_mm_s2 accXg ax_mgal ax_g_filt
    """,
    "magnetometer": """
        mx_uT mx_gauss mx_ga mx_mG mx_nT mx_uT_cal mag_x_microtesla mx_mgauss mx_adc mx_au
        MagXuT mag_x_G mx_milligauss mx_uTeslas
    """,
}
ORDINARY_NAMES = """
    gx gy gz gyro_x gyro.x gyroX GyroX gyr_z gyro_rad gx_rads gx_radps gx_rad_s gx_rad/s
    rollspeed ang_vel_z angular_velocity.x imu.angular_velocity.x omega omega_x omega_1
    omega[0] w_x wx p q r roll_rate pitchRate YawRate rates[2] rate_body xyz[0] gyro_filtered
    gyro_cal_x gyro_corrected_0 gyro_unfiltered[1] x y z gyrADC2x accel_x acc.x accX ax az a_x
    ax_ms2 ax_mps2 ax_m_s2 accelerometer_m_s2[0] specific_force_z linear_acceleration.x f_x
    AccX acc_mean_x acc_m_s2_filtered mag0 mx magX mag_x mag_tesla mx_T MagX magnetic_field.x
    B_x hx mag_calibrated_y timestamp time stamp t Time sec secs seconds time_s time_sec
    t_seconds header.stamp.sec unix_time epoch utc timestamp_sample elapsed SampleTimeFine
    time_utc rostime time_1 t0 system_time host_time q_w q_x qw q0 quat_1 q[3] attitude_w
    orientation.z movement moving motor_1 motors[2] m1 m2 output[3] thrust thrust_n throttle
    pwm pwm_1 esc_rate servo_3 control[0] actuator_controls cmd_x torque_z tau_y voltage
    voltage_v vbat current current_a battery power watts temp temperature temp_c pressure baro
    alt altitude lat lon longitude height distance range_1 us_1 sonar ultrasonic_2 pos_x
    position[2] vx vel_x v_m_s velocity.z speed_m_s heading course roll pitch yaw theta phi
    rssi status mode flags id frame index sample seq count_total gps_sats hdop max minimum
    maximum margins legs dogs things items terms bias_x noise gain scale error cost score
    reward label hours_flown deg_of_freedom radius gradient radians theta_rad
"""


def test_a_name_that_ends_in_a_unit_of_the_table_has_a_unit():
    """But for those in SI, and for "g", "h" and "min", which also are names."""
    names = [name for name, (_, value) in recordings.UNITS.items() if value != 1.0]
    missed = [name for name in names if not ends_in_a_unit(f"x_{name}", "other")]
    assert missed == ["min", "h", "g"]


@pytest.mark.parametrize("channel", NAMES_WITH_UNITS)
def test_a_name_with_a_unit_is_told_from_an_ordinary_one(channel):
    """Units stand at the end, or before an axis or a word such as "raw"; some have no separator."""
    names = NAMES_WITH_UNITS[channel].split()
    assert [name for name in names if not ends_in_a_unit(name, channel)] == []
    ordinary = ORDINARY_NAMES.split()
    assert len(ordinary) > 150
    assert [name for name in ordinary if ends_in_a_unit(name, channel)] == []
    assert [name for name in ordinary if ends_in_a_unit(name, "other")] == []


@pytest.mark.parametrize(
    ("channel", "row", "norm"),
    [
        ("gyro", "0,200,300,-400", "539 rad/s"),
        ("accelerometer", "0,0,0,1000", r"1e\+03 m/s"),
        ("magnetometer", "0,20,0,-40", "44.7 T"),
    ],
)
def test_vectors_of_a_size_that_is_unlikely_in_si_want_their_unit_said(
    tmp_path, channel, row, norm
):
    path = written(tmp_path, "t,x,y,z", row, row.replace("0,", "0.01,", 1))
    names = {"t": "t", channel: ("x", "y", "z")}
    with pytest.raises(ValueError, match=f"{channel}: its unit .* median norm is {norm}"):
        recordings.read(path, names)
    unit = SI[channel]
    got = recordings.read(path, names, units={channel: unit})[channel]
    np.testing.assert_array_equal(got[0], np.array(row.split(",")[1:], float))


GYRO = {"t": "t", "gyro": ("x", "y", "z")}
ARGUMENTS = {
    "columns without t": (({"gyro": ("x", "y", "z")},), {}, "columns: wanted one for t, got gyro"),
    "two columns of t": (
        ({"t": ("a", "b")},),
        {},
        r"columns: wanted one name for t, got ('a', 'b')",
    ),
    "two rates": (
        ({"t": "t", "gyro": ("x", "y")},),
        {},
        "columns: wanted 3 names for gyro, got ('x', 'y')",
    ),
    "one rate": (({"t": "t", "gyro": "x"},), {}, "columns: wanted 3 names for gyro, got 'x'"),
    "a name and a number": (
        ({"t": 0, "u": "x"},),
        {},
        "columns: wanted names of columns for 't', got 0",
    ),
    "a column twice": (
        ({"t": "t", "gyro": ("x", "x", "z")},),
        {},
        "columns: wanted each column of gyro once, got ('x', 'x', 'z')",
    ),
    "a boolean": (({"t": True},), {}, "columns: wanted names of columns for 't', got True"),
    "no names": (({"t": "t", "u": ()},), {}, "columns: wanted names of columns for 'u', got ()"),
    "unknown unit": ((GYRO,), {"units": {"gyro": "deg/min"}}, "units: wanted one of 1, %, s, sec"),
    "unit of another quantity": (
        (GYRO,),
        {"units": {"gyro": "g"}},
        "units: wanted a unit that is a multiple of rad/s, got 'g' for gyro",
    ),
    "unit of nothing": (
        (GYRO,),
        {"units": {"motors": "rpm"}},
        "units: wanted names among t, gyro, got 'motors'",
    ),
}


@pytest.mark.parametrize(("args", "options", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_bad_arguments_are_named_before_the_file_is_opened(args, options, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        recordings.read("nowhere.csv", *args, **options)


def any_channels(n=7):
    """Returns all fields and channels of all shapes, each with its own missing row."""
    rng = np.random.default_rng(1)
    fields = {
        "gyro": rng.normal(size=(n, 3)) * 1e-300,
        "q": np.tile([0.0, 0.6, 0.8, -0.0], (n, 1)),
        "movement": np.arange(n) % 2.0,
        "accelerometer": rng.normal(size=(n, 3)) / 3,
        "magnetometer": rng.normal(size=(n, 3)) * 1e-5,
    }
    channels = {
        "motors": rng.normal(size=(n, 12)),
        "volts": rng.normal(size=n),
        "angle_deg": rng.normal(size=(n, 1)),  # as in every Recording, it is in SI
        'a "name", or [two] (x)': rng.normal(size=n),
        "speed [km/h]": rng.normal(size=(n, 2)),
        "#": np.full(n, np.nan),
    }
    for k, values in enumerate([*fields.values(), *channels.values()]):
        values[k % n] = np.nan
    return recordings.Recording(1.7e9 + np.arange(n) / 7, **fields, channels=channels)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_any_channels_are_read_back_to_the_last_bit_without_naming_them(tmp_path, name):
    recording = any_channels()
    recordings.write(tmp_path / name, recording)
    again = recordings.read(tmp_path / name)
    assert again.names == recording.names
    for name in ("t", *recording.names):
        one, two = (getattr(r, name) if name == "t" else r[name] for r in (recording, again))
        assert one.shape == two.shape
        assert one.tobytes() == two.tobytes(), name


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_notes_are_read_back(tmp_path, name):
    """A text may have what separates lines, cells and comments; a number keeps its bits."""
    notes = {
        "declination": 0.1 + 0.2,
        "OBJECT_NAME": 'a, "b"\r\n# t, ä \ud800',
        "t": [None, True, 2],
    }
    recording = recordings.Recording(np.array([0.0, 0.5]), np.ones((2, 3)), notes=notes)
    recordings.write(tmp_path / name, recording)
    again = recordings.read(tmp_path / name)
    assert again.notes == notes
    np.testing.assert_array_equal(again.gyro, recording.gyro)
    columns = {"t": "t", "gyro": ("gyr_x", "gyr_y", "gyr_z")}
    assert recordings.read(tmp_path / name, columns, units={"gyro": "rad/s"}).notes == {}


@pytest.mark.parametrize(
    "value",
    [
        np.ones(3),
        np.float32(1.0),
        float("nan"),
        (1, 2),
        {1: 2},
        datetime.date(2026, 3, 20),
        {"a": {1, 2}},
    ],
)
def test_notes_that_would_change_are_refused(tmp_path, value):
    recording = recordings.Recording(np.array([0.0, 0.5]), np.ones((2, 3)), notes={"x": value})
    with pytest.raises(ValueError, match=r"^recording\.notes: wanted texts, .* for 'x'$"):
        recordings.write(tmp_path / "a.csv", recording)
    assert not (tmp_path / "a.csv").exists()


def test_damaged_notes_name_the_file(tmp_path):
    for damaged in ('{"a": ', "[1]"):
        (tmp_path / "a.csv").write_text(f"t,volts[]\n# notes of jaxquat: {damaged}\n0,1\n1,2\n")
        with pytest.raises(ValueError, match=r"a\.csv: wanted notes"):
            recordings.read(tmp_path / "a.csv")


def test_a_recording_is_written_with_the_channels_that_it_has(tmp_path):
    t = np.array([0.0, 0.5])
    motors = np.array([[1.0, 2.0], [np.nan, np.nan]])
    gyro = t[:, None] + np.array([1.0, 2.0, 3.0])
    recordings.write(tmp_path / "a.csv", recordings.Recording(t, gyro))
    text = (tmp_path / "a.csv").read_text()
    assert text.split() == ["t,gyr_x,gyr_y,gyr_z", "0.0,1.0,2.0,3.0", "0.5,1.5,2.5,3.5"]
    channels = {"motors": motors, "volts": np.array([7, 8])}
    recordings.write(tmp_path / "a.csv", recordings.Recording(t, channels=channels))
    text = (tmp_path / "a.csv").read_text()
    assert text.split() == ["t,motors[0],motors[1],volts[]", "0.0,1.0,2.0,7.0", "0.5,,,8.0"]
    named = recordings.read(tmp_path / "a.csv", {"t": "t", "u": "volts", "m": ("motors[1]",)})
    np.testing.assert_array_equal(named["u"], [7, 8])
    np.testing.assert_array_equal(named["m"], [[2], [np.nan]])


def test_a_written_file_that_is_cut_off_is_refused(tmp_path):
    """Its last number would be 123."""
    t = np.arange(3.0)
    volts = {"volts": np.array([1.5, 2.5, 1234.75])}
    recordings.write(tmp_path / "a.csv", recordings.Recording(t, channels=volts))
    content = (tmp_path / "a.csv").read_bytes()
    (tmp_path / "a.csv").write_bytes(content[:-6])
    with pytest.raises(
        ValueError, match=r"a\.csv: line 4: wanted an end of the last line, got none"
    ):
        recordings.read(tmp_path / "a.csv")


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_integer_times_that_float64_cannot_hold_are_refused(tmp_path, dtype):
    """Two times would be one, and a sample lost."""
    held = recordings.Recording(np.arange(2**53 - 3, 2**53, dtype=dtype), np.eye(3))
    recordings.write(tmp_path / "a.csv", held)
    np.testing.assert_array_equal(recordings.read(tmp_path / "a.csv").t, held.t)
    with pytest.raises(ValueError, match=r"^t: wanted times .* float64 holds; subtract the first"):
        recordings.Recording(np.arange(2**53, 2**53 + 3, dtype=dtype), np.eye(3))


def test_joined_recordings_are_written_and_read_back(tmp_path):
    """The movement is bool again where every row has it."""
    t = np.arange(3.0)
    gyro = recordings.Recording(t, np.ones((3, 3)), movement=t > 1)
    joined = recordings.join(gyro, recordings.Recording(t + 0.5, channels={"volts": t}))
    recordings.write(tmp_path / "a.csv", joined)
    again = recordings.read(tmp_path / "a.csv")
    np.testing.assert_array_equal(again.movement, [0, np.nan, 0, np.nan, 1, np.nan])
    np.testing.assert_array_equal(again.gyro, joined.gyro)
    movement = again.rows_with("gyro").movement
    assert movement.dtype == bool
    np.testing.assert_array_equal(movement, t > 1)


T = np.arange(2.0)
UNWRITABLE = {
    "nothing": ({}, "recording: wanted channels with names that a header can hold, got none"),
    "two alike": ({"a": T[:, None], "a[0]": T}, "a header can hold, got 'a', 'a[0]'"),
    "a column of the library": ({"gyr_x": T, "q_w": T}, "can hold, got 'gyr_x', 'q_w'"),
    "no name": ({"": T}, "can hold, got ''"),
    "spaces": ({" a": T}, "can hold, got ' a'"),
    "two lines": ({"a\nb": T}, r"can hold, got 'a\nb'"),
    "no columns": ({"a": np.ones((2, 0))}, "can hold, got 'a'"),
    "a NUL": ({"a\0": T}, r"can hold, got 'a\x00'"),
    "half a pair of UTF-16": ({"a\ud800": T}, r"can hold, got 'a\ud800'"),
    "half a sample": (
        {"a": np.array([[1, 2], [np.nan, 3]])},
        'recording["a"]: wanted finite numbers, or NaN in all of them, got [nan, 3.0] at row 1',
    ),
    "infinite": (
        {"a": np.array([1.0, np.inf])},
        'recording["a"]: wanted finite numbers, or NaN in all of them, got inf at row 1',
    ),
}


@pytest.mark.parametrize(("channels", "message"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_what_cannot_be_read_back_is_not_written(tmp_path, channels, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        recordings.write(tmp_path / "b.csv", recordings.Recording(T, channels=channels))
    assert not (tmp_path / "b.csv").exists()


FLIGHT = {
    "t": "t",
    "gyro": ("gyr_x", "gyr_y", "gyr_z"),
    "accelerometer": ("acc_x", "acc_y", "acc_z"),
    "motors": ("motor_1", "motor_2", "motor_3", "motor_4"),
}


def test_a_real_flight_is_read_and_cut(tmp_path):
    """At rest the accelerometer feels gravity; every row of the flight is in a window."""
    path = DATA / "crazyflie" / "crazyflie_yaw.csv.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not beside this checkout")
    flight = recordings.read(path, FLIGHT)
    assert np.linalg.norm(flight.accelerometer[:200].mean(axis=0)) == pytest.approx(9.81, abs=0.05)
    w = recordings.windows(flight, 100, 100)
    np.testing.assert_array_equal(w.channels["gyro"][w.mask], flight.gyro)


def test_a_table_of_bursts_is_read_in_its_order(tmp_path):
    """Equal stamps and one that runs back are refused with the way on."""
    path, names = tmp_path / "a.csv", {"t": "t", "u": "u"}
    for stamps in ([0.0, 0.0, 0.2, 0.2], [0.0, 0.2, 0.1, 0.3]):
        path.write_text("\n".join(["t,u", *(f"{t},{k}" for k, t in enumerate(stamps))]))
        with pytest.raises(ValueError, match=r"keep.*; np\.polyfit over the rows fits an even"):
            recordings.read(path, names)
        got = recordings.read(path, names, duplicates="keep")
        np.testing.assert_array_equal(got.t, stamps)
        np.testing.assert_array_equal(got["u"], np.arange(4))
        with pytest.raises(ValueError, match=r"recordings\[0\]\.t: wanted times.*np\.polyfit"):
            recordings.join(got)

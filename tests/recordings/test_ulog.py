"""Tests of reading logs of PX4: small files of known numbers, and files that are damaged."""

import re
import struct
import sys

import jax
import numpy as np
import pytest

from jaxquat import frames, recordings

NEEDS_PYULOG = pytest.mark.needs("pyulog")
CODES = {"uint64_t": "Q", "int32_t": "i", "float": "f", "uint8_t": "B"}


def message(kind, content):
    return struct.pack("<HB", len(content), ord(kind)) + content


def topic(number, name, fields, rows, instance=0):
    """Returns the definition of a topic, its subscription and its messages.

    ``fields`` are pairs (type, name), types as in "float[3]"; rows are flat.
    """
    text = f"{name}:" + "".join(f"{kind} {field};" for kind, field in fields)
    code = "<H"
    for kind, _ in fields:
        base, _, count = kind.rstrip("]").partition("[")
        code += f"{count}{CODES[base]}"
    added = struct.pack("<BH", instance, number) + name.encode()
    data = [message("D", struct.pack(code, number, *row)) for row in rows]
    return message("F", text.encode()), message("A", added), data


def log(*topics):
    """Returns a file: header, formats, subscriptions and messages in the order of their times."""
    formats, added, data = zip(*topics, strict=True)
    messages = sorted((d for rows in data for d in rows), key=lambda d: d[5:13][::-1])
    header = b"ULog\x01\x12\x35\x01" + struct.pack("<Q", 0)
    flags = message("B", bytes(40))
    return header + flags + b"".join([*dict.fromkeys(formats), *added, *messages])


STAMP = ("uint64_t", "timestamp")
SENSOR = (STAMP, ("float[3]", "gyro_rad"), ("float[3]", "accelerometer_m_s2"))
RATES = [(1_000_000 + 4000 * k, 0.5 * k, 1, -1, 0, 0, -9.75) for k in range(4)]
ATTITUDE = [(1_002_000, 1, 0, 0, 0), (1_010_000, 0, 0.6, 0, 0.8)]
NAN = float("nan")
MOTORS = [(999_000, 0.25, 0.5, NAN), (1_008_000, 0.75, 1.0, NAN)]
PARTS = {
    "sensor_combined": topic(3, "sensor_combined", SENSOR, RATES),
    "vehicle_attitude": topic(1, "vehicle_attitude", (STAMP, ("float[4]", "q")), ATTITUDE),
    "actuator_motors": topic(2, "actuator_motors", (STAMP, ("float[3]", "control")), MOTORS),
    "mag": topic(4, "sensor_mag", (STAMP, ("float", "x")), [(1_000_000, 0.5)]),
    "mag 1": topic(5, "sensor_mag", (STAMP, ("float", "x")), [(1_000_000, 0.25)], instance=1),
}
WHOLE = log(*PARTS.values())
FLIGHT = {name: recordings.PX4[name] for name in ("gyro", "accelerometer", "q")}


def written(tmp_path, content=WHOLE):
    path = tmp_path / "a.ulg"
    path.write_bytes(content)
    return path


@NEEDS_PYULOG
def test_every_topic_keeps_its_times_and_nothing_is_interpolated(tmp_path):
    """The rows are the times of all topics; 1,008,000 us is that of two of them."""
    motors = ["actuator_motors.control[0]", "actuator_motors.control[1]"]
    got = recordings.read_ulog(written(tmp_path), {**FLIGHT, "motors": motors})
    np.testing.assert_allclose(got.t, [0.999, 1.0, 1.002, 1.004, 1.008, 1.01, 1.012], rtol=1e-15)
    n = np.nan
    np.testing.assert_array_equal(got.gyro[:, 0], [n, 0, n, 0.5, 1, n, 1.5])
    np.testing.assert_array_equal(got.accelerometer[3], [0, 0, -9.75])
    np.testing.assert_array_equal(got.present("q"), [0, 0, 1, 0, 0, 1, 0])
    np.testing.assert_allclose(got.q[5], [0, 0.6, 0, 0.8], rtol=1e-7)  # they are float32
    np.testing.assert_array_equal(got["motors"][:, 0], [0.25, n, n, n, 0.75, n, n])
    flight = got.hold("motors").rows_with("gyro")
    np.testing.assert_allclose(flight.t, [1.0, 1.004, 1.008, 1.012], rtol=1e-15)
    np.testing.assert_array_equal(flight["motors"], [[0.25, 0.5]] * 2 + [[0.75, 1.0]] * 2)


@NEEDS_PYULOG
def test_instances_units_and_single_fields(tmp_path):
    columns = {"first": "sensor_mag.x", "second": "sensor_mag:1.x", "gyro": recordings.PX4["gyro"]}
    units = {"second": "gauss", "gyro": "deg/s"}
    got = recordings.read_ulog(written(tmp_path), columns, units=units)
    assert got["first"].shape == (4,)
    assert got["first"][0] == 0.5
    assert got["second"][0] == pytest.approx(0.25e-4, rel=1e-15)
    np.testing.assert_allclose(got.gyro[3, 0], np.deg2rad(1.5), rtol=1e-15)


@NEEDS_PYULOG
def test_flu_enu_converts_sensors_and_attitude_and_converting_back_gives_the_log(tmp_path):
    """In float64; the fields of a topic that has no body axes, the motors, stay."""
    field = [(1_000_000 + 4000 * k, 0.25, 0.125, 0.5 * k) for k in range(2)]
    fields = (STAMP, ("float[3]", "magnetometer_ga"))
    parts = {**PARTS, "field": topic(6, "vehicle_magnetometer", fields, field)}
    columns = {
        **recordings.PX4,
        "motors": [f"actuator_motors.control[{k}]" for k in range(2)],
    }
    path = written(tmp_path, log(*parts.values()))
    logged = recordings.read_ulog(path, columns)
    frd = recordings.read_ulog(path, columns, frame="frd_ned")
    flu = recordings.read_ulog(path, columns, frame="flu_enu")
    for name in columns:
        np.testing.assert_array_equal(frd[name], logged[name])
        assert flu[name].dtype == np.float64
    np.testing.assert_array_equal(flu.t, frd.t)
    np.testing.assert_array_equal(flu["motors"], frd["motors"])
    np.testing.assert_array_equal(flu.rows_with("gyro").gyro[3], [1.5, -1, 1])
    np.testing.assert_array_equal(flu.rows_with("gyro").accelerometer[0], [0, 0, 9.75])
    strengths = flu.rows_with("magnetometer").magnetometer
    np.testing.assert_allclose(strengths[1], [0.25e-4, -0.125e-4, -0.5e-4], rtol=1e-15)
    half = np.sqrt(0.5)
    np.testing.assert_allclose(flu.rows_with("q").q[0], [half, 0, 0, half], rtol=0, atol=1e-16)
    with jax.enable_x64(True):
        for name in ("gyro", "accelerometer", "magnetometer"):
            np.testing.assert_array_equal(frames.frd_flu(flu[name]), frd[name])
        np.testing.assert_allclose(frames.attitude(flu.q), frd.q, rtol=0, atol=3e-16)


STRENGTHS = [(1_004_500, 1_003_000, 0.5, 0.25, -1), (1_011_000, 1_009_000, 0.5, 0.25, -2)]
SAMPLED = (STAMP, ("uint64_t", "timestamp_sample"))


def magnetometer(rows, instance=0):
    fields = (*SAMPLED, ("float[3]", "magnetometer_ga"))
    return topic(6 + instance, "vehicle_magnetometer", fields, rows, instance)


@NEEDS_PYULOG
def test_the_magnetometer_is_read_in_tesla_at_the_times_of_its_samples(tmp_path):
    """1 gauss is 1e-4 T. The message of 1,004,500 us has the sample of 1,003,000 us."""
    parts = [*PARTS.values(), magnetometer(STRENGTHS)]
    got = recordings.read_ulog(written(tmp_path, log(*parts))).rows_with("magnetometer")
    np.testing.assert_allclose(got.t, [1.003, 1.009], rtol=1e-15)
    np.testing.assert_allclose(got.magnetometer[1], [0.5e-4, 0.25e-4, -2e-4], rtol=1e-15)
    second = magnetometer([(t, s, 0.75, 0, 0) for t, s, *_ in STRENGTHS], instance=1)
    columns = {"magnetometer": "vehicle_magnetometer:1.magnetometer_ga"}
    got = recordings.read_ulog(written(tmp_path, log(*parts, second)), columns)
    np.testing.assert_allclose(got.magnetometer[:, 0], [0.75e-4] * 2, rtol=1e-15)


@NEEDS_PYULOG
def test_the_default_magnetometer_may_be_absent_and_a_named_one_may_not(tmp_path):
    assert recordings.read_ulog(written(tmp_path)).names == ("gyro", "q", "accelerometer")
    with pytest.raises(ValueError, match="vehicle_magnetometer:0: wanted messages for magnetom"):
        recordings.read_ulog(written(tmp_path), recordings.PX4)


@NEEDS_PYULOG
def test_the_magnetometer_of_an_old_log_has_the_times_of_its_own_samples(tmp_path):
    """``sensor_combined`` repeats a sample until there is a new one; 2**31 - 1 stands for none."""
    stamps = ("int32_t", "magnetometer_timestamp_relative"), ("float[3]", "magnetometer_ga")
    added = [(2**31 - 1, 0, 0, 0), (-1500, 0.5, 0, 0), (-5500, 0.5, 0, 0), (-250, 0.75, 0, 0)]
    rows = [(*row, *more) for row, more in zip(RATES, added, strict=True)]
    old = topic(3, "sensor_combined", (*SENSOR, *stamps), rows)
    path = written(tmp_path, log(old, PARTS["vehicle_attitude"]))
    got = recordings.read_ulog(path)
    np.testing.assert_allclose(got.rows_with("gyro").t, [1.0, 1.004, 1.008, 1.012], rtol=1e-15)
    field = got.rows_with("magnetometer")
    np.testing.assert_allclose(field.t, [1.0025, 1.01175], rtol=1e-15)
    np.testing.assert_allclose(field.magnetometer[:, 0], [0.5e-4, 0.75e-4], rtol=1e-15)
    both = written(tmp_path, log(old, PARTS["vehicle_attitude"], magnetometer(STRENGTHS)))
    field = recordings.read_ulog(both).rows_with("magnetometer")
    np.testing.assert_allclose(field.t, [1.003, 1.009], rtol=1e-15)


@NEEDS_PYULOG
def test_times_of_samples_that_are_unknown_or_repeated_or_of_commands_are_not_used(tmp_path):
    """PX4 sets 0 for unknown. A motor obeys a command when it comes, not when its cause was."""
    unknown = [(t, 0, *numbers) for t, _, *numbers in STRENGTHS]
    flags = topic(9, "flags", (*SAMPLED, ("float", "x")), [(2000, 1000, 1), (4000, 1000, 0)])
    control = (*SAMPLED, ("float", "control"))
    motors = topic(8, "actuator_motors", control, [(2000, 1000, 0.5), (4000, 3000, 0.75)])
    path = written(tmp_path, log(magnetometer(unknown), motors, flags))
    columns = {"magnetometer": recordings.PX4["magnetometer"], "u": "actuator_motors.control"}
    columns["flags"] = "flags.x"
    got = recordings.read_ulog(path, columns)
    np.testing.assert_allclose(got.t, [0.002, 0.004, 1.0045, 1.011], rtol=1e-15)


@NEEDS_PYULOG
def test_fields_within_elements_of_an_array_are_read_by_name(tmp_path):
    """A format of two elements of another format, as in esc_status."""
    inner = message("F", b"esc_report:float[2] pair;float esc_rpm;")
    fields = (STAMP, ("uint8_t", "count"), ("float[6]", "esc"))
    rows = [(1000 * k, 2, 1, 2, 60 * k, 3, 4, -30 * k) for k in (1, 2)]
    definition, added, data = topic(9, "esc_status", fields, rows)
    definition = message("F", definition[3:].replace(b"float[6] esc", b"esc_report[2] esc"))
    path = written(tmp_path, log((inner + definition, added, data)))
    columns = {
        "speed": [f"esc_status.esc[{k}].esc_rpm" for k in range(2)],
        "pair": "esc_status.esc[1].pair",
        "one": "esc_status.esc[0].pair[1]",
    }
    got = recordings.read_ulog(path, columns, units={"speed": "rpm"})
    np.testing.assert_allclose(got["speed"], np.pi * np.array([[2, -1], [4, -2]]), rtol=1e-15)
    np.testing.assert_array_equal(got["pair"], [[3, 4]] * 2)
    np.testing.assert_array_equal(got["one"], [2, 2])
    with pytest.raises(ValueError, match="field esc: wanted one for all, got timestamp, count"):
        recordings.read_ulog(path, {"all": "esc_status.esc"})


def with_rows(name, rows):
    number = {"sensor_combined": 3, "vehicle_attitude": 1, "actuator_motors": 2}[name]
    fields = {
        "sensor_combined": SENSOR,
        "vehicle_attitude": (STAMP, ("float[4]", "q")),
        "actuator_motors": (STAMP, ("float[3]", "control")),
    }[name]
    return log(*{**PARTS, name: topic(number, name, fields, rows)}.values())


CONTROL = {"motors": "actuator_motors.control"}
HOSTILE = {
    "empty": (b"", None, "wanted a ULog file, got one that begins with b''"),
    "text": (b"t,gyr_x\n0,1", None, "wanted a ULog file, got one that begins with b't,gyr_x'"),
    "half a header": (WHOLE[:10], None, "wanted a ULog file, got one that begins with b'ULog"),
    "cut short": (WHOLE[:-5], None, "an unfinished message begins at byte"),
    "no definitions": (WHOLE[:16], None, "topic sensor_combined:0: wanted messages for gyro"),
    "damaged": (
        WHOLE[:59] + b"\xff" * 40 + WHOLE[99:],
        None,
        "cannot be read as ULog, no message begins at byte 59",
    ),
    "missing topic": (
        log(PARTS["mag"]),
        None,
        "topic sensor_combined:0: wanted messages for gyro, got none in the log",
    ),
    "no times": (
        WHOLE.replace(b"uint64_t timestamp;float[4] q", b"uint64_t timestimp;float[4] q"),
        None,
        "topic vehicle_attitude:0: wanted a field timestamp, got timestimp, q[0]",
    ),
    "missing instance": (
        WHOLE,
        {"x": "sensor_mag:2.x"},
        "topic sensor_mag:2: wanted messages for x, got none in the log",
    ),
    "missing field": (
        WHOLE,
        {"x": "sensor_mag.y"},
        "topic sensor_mag:0, field y: wanted one for x, got timestamp, x",
    ),
    "too many numbers": (
        WHOLE,
        {"gyro": "vehicle_attitude.q"},
        "topic vehicle_attitude:0: wanted 3 numbers for gyro, got q[0], q[1], q[2], q[3]",
    ),
    "partly NaN": (
        WHOLE,
        CONTROL,
        "wanted finite numbers, or NaN in all of them, got [0.25, 0.5, nan] at row 0",
    ),
    "infinite": (
        with_rows("actuator_motors", [(1000, float("inf"), 1, 1)]),
        CONTROL,
        "wanted finite numbers, or NaN in all of them, got [inf, 1.0, 1.0] at row 0",
    ),
    "not unit": (
        with_rows("vehicle_attitude", [(1000, 2, 0, 0, 0)]),
        {"q": "vehicle_attitude.q"},
        "wanted a unit quaternion, or NaN in all four, got [2.0, 0.0, 0.0, 0.0] at row 0",
    ),
    "time stands": (
        with_rows("vehicle_attitude", [ATTITUDE[0], ATTITUDE[0]]),
        {"q": "vehicle_attitude.q"},
        "times [s]: wanted times that increase, got 1.002 and then 1.002 at row 1",
    ),
    "late time stands": (
        with_rows("vehicle_attitude", [(2**63, 1, 0, 0, 0)] * 2),
        {"q": "vehicle_attitude.q"},
        "wanted times that increase, got 9223372036854.775 and then 9223372036854.775 at row 1",
    ),
    "two subscriptions": (
        log(PARTS["mag"], topic(9, "sensor_mag", (STAMP, ("float", "x")), [(2_000_000, 0.5)])),
        {"x": "sensor_mag.x"},
        "topic sensor_mag:0: wanted one subscription, got several, by the ids 9, 4",
    ),
    "one message": (WHOLE, {"x": "sensor_mag.x"}, "wanted messages of at least two times, got 1"),
    "NaN alone": (
        with_rows("actuator_motors", [(1000, NAN, NAN, NAN), (2000, NAN, NAN, NAN)]),
        CONTROL,
        "wanted messages of at least two times, got 0",
    ),
}


@NEEDS_PYULOG
@pytest.mark.parametrize(("content", "columns", "text"), HOSTILE.values(), ids=HOSTILE)
def test_a_bad_log_is_refused_by_file_topic_and_field(tmp_path, content, columns, text, capsys):
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match=re.escape(text)) as error:
        recordings.read_ulog(path, columns)
    assert str(path) in str(error.value)
    assert capsys.readouterr() == ("", "")


@NEEDS_PYULOG
@pytest.mark.parametrize("lost", range(1, 40))
def test_a_log_that_was_cut_short_is_read_up_to_there_on_request(tmp_path, lost):
    """The last message, of 37 bytes, is the last of the rates; an attitude is before it."""
    path, columns = written(tmp_path, WHOLE[:-lost]), {"gyro": recordings.PX4["gyro"]}
    if lost == 37:
        rates = recordings.read_ulog(path, columns).gyro[:, 0]
        np.testing.assert_array_equal(rates, [0, 0.5, 1])
        return
    with pytest.raises(ValueError, match="an unfinished message begins at byte"):
        recordings.read_ulog(path, columns)
    with pytest.warns(RuntimeWarning, match="damaged bytes"):
        rates = recordings.read_ulog(path, columns, skip_damaged=True).gyro[:, 0]
    np.testing.assert_array_equal(rates, [0, 0.5, 1])


SYNC = message("S", b"\x2f\x73\x13\x20\x25\x0c\xbb\x12")
LONG = topic(1, "a", (STAMP, ("float", "x")), [(1000 * k, k) for k in range(1, 13)])
BYTES = len(LONG[2][0])  # 17


def synchronized(damage):
    """Returns 12 messages with one of synchronization after each 4; ``damage`` changes the data."""
    data = b"".join(row + SYNC * (k % 4 == 3) for k, row in enumerate(LONG[2]))
    return log((LONG[0], LONG[1], [])) + damage(data)


DAMAGE = {
    "a header": (lambda data: b"\0\0\0" + data[3:], 4 * BYTES, [1, 2, 3, 4]),
    "a number of a topic": (lambda data: data[:3] + b"\x09" + data[4:], BYTES, [1]),
    "missing bytes": (
        lambda data: data[: BYTES + 5] + data[BYTES + 9 :],
        3 * BYTES - 4,
        [2, 3, 4],
    ),
    "zeros, and the message before": (
        lambda data: data[: 3 * BYTES] + bytes(2 * BYTES + 11) + data[5 * BYTES + 11 :],
        6 * BYTES + 11,
        [3, 4, 5, 6, 7, 8],
    ),
    "half a message, and the one before": (lambda data: data[:-40], BYTES + 5, [10, 11, 12]),
    "text": (
        lambda data: data[: 2 * BYTES] + b"hello" + data[2 * BYTES :],
        3 * BYTES + 5,
        [2, 3, 4],
    ),
}


@NEEDS_PYULOG
@pytest.mark.parametrize(("damage", "skipped", "lost"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_log_is_read_on_after_the_damage_on_request(tmp_path, damage, skipped, lost):
    """It goes on at the next synchronization, and says how many bytes are skipped.

    They include the message of data before the damage, for instance the one that lacks bytes. A
    message with a wrong topic is skipped alone, because others follow it.
    """
    content = synchronized(damage)
    path = written(tmp_path, content)
    with pytest.raises(ValueError, match="cannot be read as ULog, "):
        recordings.read_ulog(path, {"x": "a.x"})
    with pytest.warns(RuntimeWarning, match=f"skipped {skipped} damaged bytes of {len(content)}"):
        got = recordings.read_ulog(path, {"x": "a.x"}, skip_damaged=True)
    np.testing.assert_array_equal(got["x"], [k for k in range(1, 13) if k not in lost])
    np.testing.assert_allclose(got.t, 1e-3 * got["x"], rtol=1e-15)


@NEEDS_PYULOG
def test_a_wrong_size_that_ends_with_a_later_message_is_damage_too(tmp_path):
    """0x30 bytes and 3 of the header are three messages."""
    content = synchronized(lambda data: data[:BYTES] + b"\x30\0" + data[BYTES + 2 :])
    path, text = written(tmp_path, content), "there are damaged messages in it"
    with pytest.raises(ValueError, match=text):
        recordings.read_ulog(path, {"x": "a.x"})
    with pytest.warns(RuntimeWarning, match=text):
        got = recordings.read_ulog(path, {"x": "a.x"}, skip_damaged=True)
    np.testing.assert_array_equal(got["x"], [1, *range(5, 13)])


@NEEDS_PYULOG
def test_a_log_without_damage_is_read_without_a_warning(tmp_path):
    path = written(tmp_path, synchronized(bytes))
    got = recordings.read_ulog(path, {"x": "a.x"}, skip_damaged=True)
    np.testing.assert_array_equal(got["x"], np.arange(1.0, 13.0))


@NEEDS_PYULOG
def test_data_that_were_appended_are_read_although_the_log_before_ends_within_a_message(tmp_path):
    """The flags have their positions: bit 0 of byte 27, and the first offset at byte 35."""
    proper, data = log((LONG[0], LONG[1], [])), LONG[2]
    before = proper + b"".join(data[:4]) + data[4][:9]
    content = bytearray(before + b"".join(data[5:]))
    content[27] |= 1
    content[35:43] = struct.pack("<Q", len(before))
    got = recordings.read_ulog(written(tmp_path, bytes(content)), {"x": "a.x"})
    np.testing.assert_array_equal(got["x"], [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12])


ARGUMENTS = {
    "no field": ({"gyro": "sensor_combined"}, {}, 'columns: wanted "topic.field"'),
    "instance": ({"x": "sensor_mag:a.x"}, {}, "for x, got 'sensor_mag:a.x'"),
    "two topics": ({"u": ("a.x", "b.x")}, {}, "columns: wanted fields of one topic for u, got"),
    "t": ({"t": "a.x"}, {}, "columns: wanted channels of topics, got 't'"),
    "nothing": ({}, {}, "columns: wanted at least one channel, got none"),
    "unit": (None, {"units": {"q": "deg"}}, "units: wanted a unit that is a multiple of 1, got"),
    "a unit in the name": (
        {"speed": "esc_status.esc[0].esc_rpm"},
        {},
        "columns: the name 'esc[0].esc_rpm' of speed ends in a unit; say which it has",
    ),
}


@pytest.mark.parametrize(("columns", "options", "text"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_bad_arguments_are_named_before_the_file_is_opened(columns, options, text):
    with pytest.raises((ValueError, TypeError), match=re.escape(text)):
        recordings.read_ulog("nowhere.ulg", columns, **options)


@pytest.mark.parametrize(("name", "content"), [("a.ulg", b"t\n0\n1\n"), ("a.csv", WHOLE)])
def test_read_sends_a_log_to_read_ulog(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"got a PX4 log; recordings\.read_ulog reads it"):
        recordings.read(path, {"t": "t"})


def test_without_pyulog_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyulog", None)
    wanted = re.escape('wanted the package pyulog, got none: pip install "jaxquat[logs]"')
    with pytest.raises(ImportError, match=wanted):
        recordings.read_ulog("nowhere.ulg")


@NEEDS_PYULOG
def test_the_declination_of_the_log_is_a_note_and_turns_nothing(tmp_path):
    """The last value of the parameter, in degrees; a log without it has no note."""

    def parameter(degrees):
        name = b"float EKF2_MAG_DECL"
        return message("P", bytes([len(name)]) + name + struct.pack("<f", degrees))

    file = tmp_path / "a.ulg"
    start = 16 + len(message("B", bytes(40)))
    file.write_bytes(WHOLE)
    before = recordings.read_ulog(file, FLIGHT)
    file.write_bytes(WHOLE[:start] + parameter(1.5) + WHOLE[start:] + parameter(6.25))
    after = recordings.read_ulog(file, FLIGHT, frame="flu_enu")
    assert before.notes == {}
    assert after.notes == {"declination": np.deg2rad(6.25)}
    back = frames.attitude(after.rows_with("q").q)
    np.testing.assert_allclose(back, before.rows_with("q").q, rtol=0, atol=1e-15)
    assert after.rows_with("q").notes == after.hold("q").notes == after.notes

"""Recordings from ArduPilot's logs (DataFlash) and from telemetry of MAVLink, by pymavlink."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from jaxquat._internal.checks import boolean, place
from jaxquat.recordings import topics
from jaxquat.recordings.columns import unit_problem
from jaxquat.recordings.recording import Recording
from jaxquat.recordings.units import UNITS, si_value

ARDUPILOT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gyro": ("IMU.GyrX", "IMU.GyrY", "IMU.GyrZ"),
        "accelerometer": ("IMU.AccX", "IMU.AccY", "IMU.AccZ"),
        "magnetometer": ("MAG.MagX", "MAG.MagY", "MAG.MagZ"),
        "q": ("ATT.Roll", "ATT.Pitch", "ATT.Yaw"),
    }
)
"""The channels that ``read_dataflash`` reads by default; a log may lack the magnetometer.

q is an estimate, from the vehicle's axes forward-right-down, which AHRS_TRIM_X and AHRS_TRIM_Y,
often 2 degrees, turn from those of the sensors, to north-east-down.
"""

_STAMP = 8  # bytes before each frame: the time at which it was received
_MAGIC = {0xFE: (6, 2), 0xFD: (10, 2)}  # bytes of the header and of the checksum
_SIGNATURE = 13  # bytes, if flag 1 of a frame of version 2 is set

# At least one message of a kind, the field with their time, its unit [s], the units of fields.
Messages = tuple[list[Any], str, float, Callable[[str], "str | float"]]


def read_dataflash(
    path: str | os.PathLike[str],
    columns: Mapping[str, str | Sequence[str]] | None = None,
    *,
    units: Mapping[str, str | float] | None = None,
    frame: str = "frd_ned",
    skip_damaged: bool = False,
) -> Recording:
    """Read channels from an ArduPilot log, a ``.bin`` file; needs the extra ``logs`` (pymavlink).

    Rows are as in ``read_ulog``, and ``notes`` has the last ``declination`` [rad] of the log, the
    parameter COMPASS_DEC. The time of a message is its ``SampleUS`` if it has one, otherwise
    ``TimeUS``; in logs of before 2015 ``TimeMS``, or ``T`` where ``TimeMS`` is that of a GPS week.

    Args:
        path: the file.
        columns: for each channel a field, "MESSAGE.Field", or several of one message. "IMU:1.GyrX"
            is a field of instance 1; old logs have messages ``IMU2`` instead. Three fields of q are
            roll, pitch and yaw in degrees, four a quaternion, scalar first. By default
            ``recordings.ARDUPILOT``.
        units: the unit of each channel in place of the one that the log states. Numbers whose unit
            is neither stated nor in ``recordings.UNITS`` are not converted; MAG is in milligauss.
        frame: as for ``read_ulog``.
        skip_damaged: accept a file that is damaged or ends within a message, as after a loss of
            power; a RuntimeWarning has the number of bytes skipped.

    Raises:
        ValueError, TypeError, OSError, ImportError: as ``read_ulog``, with pymavlink.

    Examples:
        >>> columns = {"motors": [f"RCOU.C{k}" for k in range(1, 5)]}
        >>> log = jq.recordings.read_dataflash("00000012.BIN", columns)  # doctest: +SKIP
    """
    sources, units = topics.checked_sources(ARDUPILOT if columns is None else columns, units, frame)
    boolean("skip_damaged", skip_damaged)
    names = {source.topic for source in sources.values()}
    messages = _dataflash(place("path", path), names | {"PARM"}, skip_damaged)
    if columns is None and not messages["MAG"]:
        del sources["magnetometer"]
    samples = functools.partial(_samples, path, units, functools.partial(_of_dataflash, messages))
    recording = topics.recording_of(path, sources, samples, frame == "flu_enu")
    angles = [row.Value for row in messages["PARM"] if row.Name == "COMPASS_DEC"]
    return dataclasses.replace(recording, notes={"declination": angles[-1]} if angles else {})


def _dataflash(file: Path, names: set[str], skip_damaged: bool) -> dict[str, list[Any]]:
    binary = topics.package("read_dataflash", "pymavlink.DFReader").DFReader_binary
    with open(file, "rb") as start:
        first = start.read(3)
    if first != b"\xa3\x95\x80":
        wanted = "a DataFlash log, which begins with the format of a message"
        raise ValueError(f"{file}: wanted {wanted}, got one that begins with {first!r}")
    messages = {name: [] for name in names}
    quiet = io.StringIO()  # pymavlink prints messages
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        try:
            with contextlib.closing(binary(os.fspath(file), True)) as reader:
                lengths = [reader.formats[k].len * len(reader.offsets[k]) for k in reader.formats]
                skipped = reader.data_len - sum(lengths)  # negative if the last one is not whole
                while (message := reader.recv_match(type=[*names])) is not None:
                    messages[message.get_type()].append(message)
        except Exception as error:  # damaged bytes may raise anything
            raise ValueError(f"{file}: cannot be read as DataFlash, {error!r}") from error
    if skipped:
        text = "ends within a message" if skipped < 0 else f"has {skipped} bytes of no message"
        topics.report_damage(f"{file}: {text}", skip_damaged, 3)
    return messages


def _of_dataflash(
    messages: Mapping[str, list[Any]], where: str, name: str, source: topics.Source
) -> Messages:
    rows = messages[source.topic]
    index = rows[0].fmt.instance_field if rows else None
    if index:
        rows = [row for row in rows if getattr(row, index) == source.instance]
    if not rows or (source.instance and not index):
        raise ValueError(f"{where}: wanted messages for {name}, got none in the log")
    form, fields = rows[0].fmt, rows[0].fmt.columns
    stamp, tick = ("SampleUS" if "SampleUS" in fields else "TimeUS"), 1e-6
    if "TimeMS" in fields and "TimeUS" not in fields:
        stamp, tick = ("T" if "Week" in fields else "TimeMS"), 1e-3

    def unit(field: str) -> str | float:
        if name == "q" and len(source.fields) == 3:
            return "deg"
        stated = form.get_unit(field).replace("Gauss", "gauss")
        if not stated and form.name.startswith("MAG"):
            return "mgauss"
        return stated if stated in UNITS else 1.0

    return rows, stamp, tick, unit


def read_tlog(
    path: str | os.PathLike[str],
    columns: Mapping[str, str | Sequence[str]],
    *,
    units: Mapping[str, str | float] | None = None,
    frame: str = "frd_ned",
    skip_damaged: bool = False,
) -> Recording:
    """Read channels from a telemetry log of MAVLink, a ``.tlog`` file; needs the extra ``logs``.

    Rows are as in ``read_ulog``. The time is the vehicle's, ``time_boot_ms`` or ``time_usec``.

    Args:
        path: the file.
        columns: for each channel a field, "MESSAGE.field", or several of one message.
            "RAW_IMU:1.xgyro" is of the second source of these messages, in the order of system,
            component and sensor. Fields of q as in ``read_dataflash``, but angles in MAVLink's
            unit.
        units: as for ``read_ulog``, in place of the units that MAVLink states.
        frame: as for ``read_ulog``.
        skip_damaged: skip bytes that are no message, also at the end, and the message before them;
            a RuntimeWarning has their number.

    Raises:
        ValueError, TypeError, OSError, ImportError: as ``read_ulog``, with pymavlink.

    Examples:
        >>> columns = {"q": ("ATTITUDE.roll", "ATTITUDE.pitch", "ATTITUDE.yaw")}
        >>> log = jq.recordings.read_tlog("flight.tlog", columns)  # doctest: +SKIP
    """
    sources, units = topics.checked_sources(columns, units, frame)
    boolean("skip_damaged", skip_damaged)
    names = {source.topic for source in sources.values()}
    messages = _tlog(place("path", path), names, skip_damaged)
    samples = functools.partial(_samples, path, units, functools.partial(_of_tlog, messages))
    return topics.recording_of(path, sources, samples, frame == "flu_enu")


def _tlog(file: Path, names: set[str], skip_damaged: bool) -> dict[str, list[Any]]:
    """Return the messages of all names that occur; only those of these names are decoded."""
    ardupilotmega = topics.package("read_tlog", "pymavlink.dialects.v20.ardupilotmega")
    content, at, skipped = file.read_bytes(), 0, 0
    kinds, decoder = ardupilotmega.mavlink_map, ardupilotmega.MAVLink(None)
    messages: dict[str, list[Any]] = {}
    while at < len(content):
        end, problem = _end(content, at), ""
        if end is None:
            end, wanted = at + 1, "a MAVLink message that another follows"
            problem = f"wanted {wanted}, got other bytes at {at} of {len(content)}"
        else:
            frame = content[at + _STAMP : end]
            number = frame[5] if frame[0] == 0xFE else int.from_bytes(frame[7:10], "little")
            name = kinds[number].msgname if number in kinds else f"number {number}"
            rows = messages.setdefault(name, [])
            try:
                if name in names:
                    rows.append(decoder.decode(bytearray(frame)))
            except ardupilotmega.MAVError as error:
                problem = f"{name} at byte {at}: {error}"
        if problem and not skip_damaged:
            raise ValueError(f"{file}: {problem}; skip_damaged=True skips it")
        skipped += end - at if problem else 0
        at = end
    if skipped:
        problem = f"skipped {skipped} bytes that are no MAVLink message"
        topics.report_damage(f"{file}: {problem}", skip_damaged, 3)
    return messages


def _end(content: bytes, at: int) -> int | None:
    """Return the end of the message whose stamp is here, None if no other message follows."""
    header = content[at + _STAMP : at + _STAMP + 3]
    if len(header) < 3 or header[0] not in _MAGIC:
        return None
    signature = _SIGNATURE if header[0] == 0xFD and header[2] & 1 else 0
    end = at + _STAMP + sum(_MAGIC[header[0]]) + header[1] + signature
    is_whole = end == len(content) or content[end + _STAMP : end + _STAMP + 1] in (b"\xfe", b"\xfd")
    return end if is_whole else None


def _of_tlog(
    messages: Mapping[str, list[Any]], where: str, name: str, source: topics.Source
) -> Messages:
    by_source: dict[tuple[int, ...], list[Any]] = {}
    for message in messages.get(source.topic, ()):
        sensor = getattr(message, message.instance_field or "", 0)
        key = message.get_srcSystem(), message.get_srcComponent(), sensor
        by_source.setdefault(key, []).append(message)
    if source.instance >= len(by_source):
        got = f"{len(by_source)} sources of them among {', '.join(sorted(messages)) or 'nothing'}"
        raise ValueError(f"{where}: wanted messages for {name}, got {got}")
    rows = by_source[sorted(by_source)[source.instance]]
    is_boot = hasattr(rows[0], "time_boot_ms") or not hasattr(rows[0], "time_usec")
    stamp, tick = ("time_boot_ms", 1e-3) if is_boot else ("time_usec", 1e-6)
    stated = rows[0].fieldunits_by_name
    return rows, stamp, tick, lambda field: stated.get(field, "1").replace("mG", "mg")


def _samples(
    path: str | os.PathLike[str],
    units: Mapping[str, str | float],
    messages_of: Callable[[str, str, topics.Source], Messages],
    name: str,
    source: topics.Source,
) -> topics.Samples:
    """Return the samples of a channel; three fields of q are roll, pitch and yaw."""
    where = f"{os.fspath(path)}: message {source.topic}:{source.instance}"
    rows, stamp, tick, unit = messages_of(where, name, source)
    for field in (stamp, *source.fields):
        if not isinstance(getattr(rows[0], field, None), int | float):
            wanted, got = f"one of numbers for {name}", ", ".join(rows[0].get_fieldnames())
            raise ValueError(f"{where}, field {field}: wanted {wanted}, got {got}")
    is_angles, factors = name == "q" and len(source.fields) == 3, []
    for field in source.fields:
        chosen = units.get(name) or unit(field)
        is_angle = is_angles and chosen in ("rad", "deg")
        problem = "" if is_angle else unit_problem(name, chosen)
        if problem:
            hint = "units= states another"
            raise ValueError(f"{where}, field {field}: {problem} for {name}; {hint}")
        factors.append(si_value(chosen))
    t = tick * np.array([getattr(row, stamp) for row in rows], float)
    numbers = [[getattr(row, field) for field in source.fields] for row in rows]
    numbers = np.array(numbers, float) * factors
    if is_angles:
        from scipy.spatial.transform import Rotation  # here, because it takes 0.1 s

        numbers = np.roll(Rotation.from_euler("xyz", numbers).as_quat(), 1, axis=1)
    return topics.Samples(where, source.fields, t, numbers)

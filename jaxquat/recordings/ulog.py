"""Recordings from the logs of PX4 (ULog), read by pyulog.

The format is described at https://docs.px4.io/main/en/dev_log/ulog_file_format: a header of 16
bytes, then messages, each of which begins with its size (2 bytes) and its type (1 byte). pyulog
silently accepts a file that ends within a message, and may never finish reading a damaged one, so
the chain of messages is checked here first.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from jaxquat._checks import boolean, missing_package, one_of, place
from jaxquat._frames import attitude, frd_flu
from jaxquat.recordings.columns import SIZES, checked_names, checked_units, ends_in_a_unit
from jaxquat.recordings.joining import union
from jaxquat.recordings.recording import UNIT_NORM, Recording
from jaxquat.recordings.units import UNITS

PX4: Mapping[str, str] = MappingProxyType(
    {
        "gyro": "sensor_combined.gyro_rad",
        "accelerometer": "sensor_combined.accelerometer_m_s2",
        "q": "vehicle_attitude.q",
    }
)
"""The channels that ``read_ulog`` reads by default.

Body axes are forward-right-down; q is an estimate, body to north-east-down.
"""

MAGIC = b"ULog\x01\x12\x35"
"""The first bytes of a log."""

_FLU_ENU = {"gyro": frd_flu, "accelerometer": frd_flu, "magnetometer": frd_flu, "q": attitude}
_HEADER = 16
_TYPES = b"FIMPQARDSOLCB"
_LONGEST = 10_000  # bytes: the longest message of an unknown type that is accepted


class _Source(NamedTuple):
    topic: str
    instance: int
    fields: tuple[str, ...]


def read_ulog(
    path: str | os.PathLike,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    *,
    units: Mapping[str, str] | None = None,
    frame: str = "frd_ned",
    cut_short: bool = False,
) -> Recording:
    """Read channels from a PX4 log, a ``.ulg`` file; needs the extra ``logs`` (pyulog).

    ::

        log = jq.recordings.read_ulog(
            "flight.ulg",
            {
                "gyro": "sensor_combined.gyro_rad",
                "q": "vehicle_attitude.q",
                "magnetometer": "vehicle_magnetometer:1.magnetometer_ga",
                "motors": [f"actuator_motors.control[{k}]" for k in range(4)],
            },
            units={"magnetometer": "gauss"},
        )

    Topics are logged at different times. The recording has a row for every time at which one of
    these topics was logged, and a channel is NaN in the rows where its topic was not logged:
    nothing is interpolated, and no time is changed. ``rows_with`` selects the rows of one channel,
    and ``hold`` holds a command until the next one. For instance, the motors' commands at the times
    of the gyroscope::

        flight = log.hold("motors").rows_with("gyro")

    A message with NaN in all fields of a channel counts as missing.

    Args:
        path: the file.
        columns: for each channel, a field of a topic, "topic.field", or several fields of one
            topic. An array field without an index is read as a whole. "topic:1.field" is a field of
            instance 1. By default ``recordings.PX4``. PX4's quaternions are scalar first.
        units: the unit of each channel that is not in SI, one of ``recordings.UNITS``. A field
            whose name ends in such a unit, as ``magnetometer_ga`` does, is refused without it.
        frame: the axes of gyro, accelerometer, magnetometer and q in the recording. "frd_ned"
            leaves them as PX4 has them: body forward-right-down, world north-east-down. "flu_enu"
            converts them to body forward-left-up and world east-north-up, the axes of
            ``estimation.ahrs``. Other channels stay as they are; see ``jq.frames``.
        cut_short: whether to accept a file that ends within a message, as after a loss of power,
            and read its complete messages.

    Raises:
        ValueError, TypeError: a bad argument, by name; a file that is not ULog, is damaged or cut
            short, lacks a topic or field, or has a topic whose times do not increase: the message
            names file, topic and field.
        OSError: the file cannot be opened.
        ImportError: pyulog is not installed.

    Examples:
        >>> jq.recordings.PX4["gyro"]  # what it reads if nothing else is asked for
        'sensor_combined.gyro_rad'
        >>> log = jq.recordings.read_ulog("flight.ulg")  # doctest: +SKIP
    """
    named = checked_names("columns", PX4 if columns is None else columns)
    sources = {name: _source(name, value) for name, value in named.items()}
    if not sources:
        raise ValueError("columns: wanted at least one channel, got none")
    units = checked_units(units, list(sources))
    one_of("frame", frame, ("frd_ned", "flu_enu"))
    boolean("cut_short", cut_short)
    for name, source in sources.items():
        for field in source.fields:
            if name not in units and ends_in_a_unit(field, name):
                hint = f"say which it has, as in units={{{name!r}: ...}}"
                raise ValueError(f"columns: the name {field!r} of {name} ends in a unit; {hint}")
    log = _log(path, sorted({source.topic for source in sources.values()}), cut_short)
    samples = {name: _samples(path, log, name, source) for name, source in sources.items()}
    for name, (times, numbers) in samples.items():
        factor = UNITS[units[name]][1] if name in units else 1.0
        if frame == "flu_enu" and name in _FLU_ENU:
            numbers = _FLU_ENU[name](numbers)
        samples[name] = 1e-6 * times.astype(np.float64), factor * numbers
    count = sum(len(times) for times, _ in samples.values())
    if count < 2:
        raise ValueError(f"{os.fspath(path)}: wanted at least two messages, got {count}")
    return union(samples)


def _source(name: str, value: str | tuple[str, ...]) -> _Source:
    """The topic, the instance and the fields of a channel."""
    if name in ("t", "movement"):
        raise ValueError(f"columns: wanted channels of topics, got {name!r}")
    parts = []
    for text in (value,) if isinstance(value, str) else value:
        topic, _, field = text.partition(".")
        topic, colon, instance = topic.partition(":")
        if not topic or not field or (colon and not instance.isdecimal()):
            wanted = '"topic.field" or "topic:1.field"'
            raise ValueError(f"columns: wanted {wanted} for {name}, got {text!r}")
        parts.append((topic, int(instance or 0), field))
    if len({part[:2] for part in parts}) > 1:
        raise ValueError(f"columns: wanted fields of one topic for {name}, got {value!r}")
    topic, instance, _ = parts[0]
    return _Source(topic, instance, tuple(field for _, _, field in parts))


def _log(path: str | os.PathLike, topics: list[str], cut_short: bool) -> Any:
    """The log as read by pyulog, with only these topics."""
    file = place("path", path)
    try:
        from pyulog import ULog
    except ImportError as error:
        message = missing_package("recordings.read_ulog", "pyulog", "logs")
        raise ImportError(message) from error
    content = file.read_bytes()
    if len(content) < _HEADER or not content.startswith(MAGIC):
        raise ValueError(f"{file}: wanted a ULog file, got one that begins with {content[:7]!r}")
    content = content[: _end(file, content, cut_short)]
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # pyulog prints messages
            log = ULog(io.BytesIO(content), topics)
    except Exception as error:  # damaged bytes may raise anything
        raise ValueError(f"{file}: cannot be read as ULog, {error!r}") from error
    if log.file_corruption:
        raise ValueError(f"{file}: cannot be read as ULog, there are damaged messages in it")
    return log


def _end(file: Path, content: bytes, cut_short: bool) -> int:
    """The end of the last complete message; ValueError for a damaged or an unfinished one.

    If data were appended after the log proper, the log proper may end within a message.
    """
    at = _HEADER
    appended = _appended(content)
    while at < len(content):
        size, kind = int.from_bytes(content[at : at + 2], "little"), content[at + 2 : at + 3]
        after = at + 3 + size
        if appended and after > appended[0]:
            at = appended.pop(0)
            continue
        known = kind in _TYPES or (kind != b"\0" and size <= _LONGEST)
        if len(content) >= at + 3 and (size == 0 or not known):
            raise ValueError(f"{file}: cannot be read as ULog, no message begins at byte {at}")
        if after > len(content):
            if cut_short:
                return at
            wanted = "complete messages (cut_short=True reads only these)"
            got = f"an unfinished one at byte {at} of {len(content)}"
            raise ValueError(f"{file}: wanted {wanted}, got {got}")
        at = after
    return len(content)


def _appended(content: bytes) -> list[int]:
    """The positions where appended data begin, from the flags in the first message."""
    if content[_HEADER + 2 : _HEADER + 3] != b"B" or not content[27:28] or not content[27] & 1:
        return []
    places = [int.from_bytes(content[k : k + 8], "little") for k in (35, 43, 51)]
    return sorted(place for place in places if _HEADER < place < len(content))


def _samples(
    path: str | os.PathLike, log: Any, name: str, source: _Source
) -> tuple[np.ndarray, np.ndarray]:
    """Times [us] and numbers of the messages of a channel, without those that are all NaN."""
    where = f"{os.fspath(path)}: topic {source.topic}:{source.instance}"
    subscriptions = [
        data
        for data in log.data_list
        if (data.name, data.multi_id) == (source.topic, source.instance)
    ]
    if not subscriptions:
        raise ValueError(f"{where}: wanted messages for {name}, got none in the log")
    if len(subscriptions) > 1:
        numbers = ", ".join(str(data.msg_id) for data in subscriptions)
        raise ValueError(f"{where}: wanted one subscription, got several, by the ids {numbers}")
    data = subscriptions[0].data
    if "timestamp" not in data:
        raise ValueError(f"{where}: wanted a field timestamp, got {', '.join(data)}")
    keys = []
    for field in source.fields:
        elements = [key for key in data if key.startswith(f"{field}[")]
        if field not in data and not elements:
            got = ", ".join(data)
            raise ValueError(f"{where}, field {field}: wanted one for {name}, got {got}")
        keys += [field] if field in data else elements
    if name in SIZES and len(keys) != SIZES[name]:
        wanted = f"{SIZES[name]} numbers for {name}"
        raise ValueError(f"{where}: wanted {wanted}, got {', '.join(keys)}")
    numbers = np.stack([data[key].astype(np.float64) for key in keys], axis=-1)
    times = data["timestamp"].astype(np.uint64)
    for k in np.flatnonzero(times[1:] <= times[:-1])[:1]:
        got = f"{times[k]} and then {times[k + 1]} us at message {k + 1}"
        raise ValueError(f"{where}, field timestamp: wanted times that increase, got {got}")
    missing = np.isnan(numbers)
    bad = (missing.any(axis=1) & ~missing.all(axis=1)) | np.isinf(numbers).any(axis=1)
    if name == "q":
        bad |= np.abs(np.linalg.norm(numbers, axis=1) - 1.0) > UNIT_NORM
    for k in np.flatnonzero(bad)[:1]:
        wanted = "a unit quaternion" if name == "q" else "finite numbers, or NaN in all of them"
        got = f"{numbers[k].tolist()} at message {k}"
        raise ValueError(f"{where}, {', '.join(keys)}: wanted {wanted}, got {got}")
    is_vector = len(keys) > 1 or keys[0] not in source.fields
    has_sample = ~missing.all(axis=1)
    return times[has_sample], (numbers if is_vector else numbers[:, 0])[has_sample]

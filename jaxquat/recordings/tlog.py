"""Recordings from telemetry logs of MAVLink (``.tlog``), whose messages pymavlink decodes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxquat._internal.checks import boolean, place
from jaxquat.recordings import topics
from jaxquat.recordings.recording import Recording

_STAMP = 8  # bytes before each frame: the time at which it was received
_MAGIC = {0xFE: (6, 2), 0xFD: (10, 2)}  # bytes of the header and of the checksum
_SIGNATURE = 13  # bytes, if flag 1 of a frame of version 2 is set


def read_tlog(
    path: str | os.PathLike,
    columns: Mapping[str, str | Sequence[str]],
    *,
    units: Mapping[str, str | float] | None = None,
    frame: str = "frd_ned",
    skip_damaged: bool = False,
) -> Recording:
    """Read channels from a telemetry log of MAVLink, a ``.tlog`` file; needs the extra ``logs``.

    As in ``read_ulog`` the rows are the times of all these messages, and nothing is interpolated.
    The time is the vehicle's, ``time_boot_ms`` or ``time_usec``, not the one of reception.

    Args:
        path: the file.
        columns: for each channel a field, "MESSAGE.field", or several fields of one message.
            "RAW_IMU:1.xgyro" is of the second source of these messages, in the order of system,
            component and sensor. Three fields of q are roll, pitch and yaw, four a quaternion,
            scalar first.
        units: the unit of each channel in place of the one that MAVLink states, one of
            ``recordings.UNITS`` or a number, the value of one count in SI units.
        frame: as for ``read_ulog``.
        skip_damaged: whether to accept bytes that are no message, also at the end; a RuntimeWarning
            has the number of bytes skipped. The message before them is skipped, too.

    Raises:
        ValueError, TypeError, OSError, ImportError: as ``read_ulog``, with pymavlink.

    Examples:
        >>> columns = {"q": ("ATTITUDE.roll", "ATTITUDE.pitch", "ATTITUDE.yaw")}
        >>> log = jq.recordings.read_tlog("flight.tlog", columns)  # doctest: +SKIP
    """
    sources, units = topics.checked_sources(columns, units, frame)
    boolean("skip_damaged", skip_damaged)
    names = {source.topic for source in sources.values()}
    messages = _messages(place("path", path), names, skip_damaged)
    samples = {
        name: _samples(path, messages, name, source, units.get(name))
        for name, source in sources.items()
    }
    return topics.recording_of(path, samples, frame == "flu_enu")


def _messages(file: Path, names: set[str], skip_damaged: bool) -> dict[str, list[Any]]:
    """Return the messages of all names that occur; only those of these names are decoded."""
    ardupilotmega = topics.package("read_tlog", "pymavlink.dialects.v20.ardupilotmega")
    content, at, skipped = file.read_bytes(), 0, 0
    kinds, decoder = ardupilotmega.mavlink_map, ardupilotmega.MAVLink(None)
    messages: dict[str, list[Any]] = {}
    while at < len(content):
        end = _end(content, at)
        if end is None:
            if not skip_damaged:
                got = f"other bytes at {at} of {len(content)}; skip_damaged=True skips them"
                wanted = "a MAVLink message that another follows"
                raise ValueError(f"{file}: wanted {wanted}, got {got}")
            at, skipped = at + 1, skipped + 1
            continue
        frame = content[at + _STAMP : end]
        number = frame[5] if frame[0] == 0xFE else int.from_bytes(frame[7:10], "little")
        name = kinds[number].msgname if number in kinds else f"number {number}"
        rows = messages.setdefault(name, [])
        if name in names:
            try:
                rows.append(decoder.decode(bytearray(frame)))
            except ardupilotmega.MAVError as error:
                if not skip_damaged:
                    raise ValueError(f"{file}: {name} at byte {at}: {error}") from error
                skipped += end - at
        at = end
    if skipped:
        problem = f"skipped {skipped} bytes that are no MAVLink message"
        warnings.warn(f"{file}: {problem}", RuntimeWarning, stacklevel=3)
    return messages


def _end(content: bytes, at: int) -> int | None:
    """Return the end of the message whose stamp is here, None without one that another follows."""
    header = content[at + _STAMP : at + _STAMP + 3]
    if len(header) < 3 or header[0] not in _MAGIC:
        return None
    signature = _SIGNATURE if header[0] == 0xFD and header[2] & 1 else 0
    end = at + _STAMP + sum(_MAGIC[header[0]]) + header[1] + signature
    is_whole = end == len(content) or content[end + _STAMP : end + _STAMP + 1] in (b"\xfe", b"\xfd")
    return end if is_whole else None


def _samples(
    path: str | os.PathLike,
    messages: Mapping[str, Sequence[Any]],
    name: str,
    source: topics.Source,
    unit: str | float | None,
) -> topics.Samples:
    where = f"{os.fspath(path)}: message {source.topic}:{source.instance}"
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
    stamp = ("time_boot_ms", 1e-3) if is_boot else ("time_usec", 1e-6)

    def stated(field: str) -> str | float:
        return unit or rows[0].fieldunits_by_name.get(field, "1").replace("mG", "mg")

    return topics.samples_of(where, name, source, rows, stamp, stated)

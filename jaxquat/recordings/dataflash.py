"""Recordings from the logs of ArduPilot (DataFlash, ``.bin``), read by pymavlink."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jaxquat._internal.checks import boolean, place
from jaxquat.recordings import topics
from jaxquat.recordings.recording import Recording
from jaxquat.recordings.units import UNITS

ARDUPILOT: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gyro": ("IMU.GyrX", "IMU.GyrY", "IMU.GyrZ"),
        "accelerometer": ("IMU.AccX", "IMU.AccY", "IMU.AccZ"),
        "magnetometer": ("MAG.MagX", "MAG.MagY", "MAG.MagZ"),
        "q": ("ATT.Roll", "ATT.Pitch", "ATT.Yaw"),
    }
)
"""The channels that ``read_dataflash`` reads by default; a log may lack the magnetometer.

Body axes are forward-right-down; q is an estimate, body to north-east-down. Its body axes are those
of the vehicle, which the log's parameters AHRS_TRIM_X and AHRS_TRIM_Y, often 2 degrees, turn from
those of the sensors.
"""


def read_dataflash(
    path: str | os.PathLike,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    *,
    units: Mapping[str, str | float] | None = None,
    frame: str = "frd_ned",
    skip_damaged: bool = False,
) -> Recording:
    """Read channels from an ArduPilot log, a ``.bin`` file; needs the extra ``logs`` (pymavlink).

    As in ``read_ulog`` the rows are the times of all these messages, and nothing is interpolated.
    The time of a message is its ``SampleUS`` if it has one, otherwise ``TimeUS``. Logs of before
    2015 have milliseconds, ``TimeMS``, or ``T`` where ``TimeMS`` is the time of a GPS week.

    Args:
        path: the file.
        columns: for each channel a field, "MESSAGE.Field", or several fields of one message.
            "IMU:1.GyrX" is a field of instance 1; old logs have messages ``IMU2`` instead. Three
            fields of q are roll, pitch and yaw in degrees, four a quaternion, scalar first. By
            default ``recordings.ARDUPILOT``.
        units: the unit of each channel in place of the one that the log states. Numbers whose unit
            is neither stated nor in ``recordings.UNITS`` are not converted, except that MAG is in
            milligauss.
        frame: as for ``read_ulog``.
        skip_damaged: whether to accept a file that is damaged or ends within a message, as after a
            loss of power, and read what pymavlink finds; a RuntimeWarning has the number of bytes
            skipped.

    Raises:
        ValueError, TypeError, OSError, ImportError: as ``read_ulog``, with pymavlink.

    Examples:
        >>> columns = {"motors": [f"RCOU.C{k}" for k in range(1, 5)]}
        >>> log = jq.recordings.read_dataflash("00000012.BIN", columns)  # doctest: +SKIP
    """
    sources, units = topics.checked_sources(ARDUPILOT if columns is None else columns, units, frame)
    boolean("skip_damaged", skip_damaged)
    names = {source.topic for source in sources.values()}
    messages = _messages(place("path", path), names, skip_damaged)
    if columns is None and not messages["MAG"]:
        del sources["magnetometer"]
    samples = {
        name: _samples(path, messages[source.topic], name, source, units.get(name))
        for name, source in sources.items()
    }
    return topics.recording_of(path, samples, frame == "flu_enu")


def _messages(file: Path, names: set[str], skip_damaged: bool) -> dict[str, list[Any]]:
    """Return the messages of these names, as read by pymavlink."""
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
        if not skip_damaged:
            raise ValueError(f"{file}: {text}; skip_damaged=True reads the others")
        warnings.warn(f"{file}: {text}", RuntimeWarning, stacklevel=3)
    return messages


def _samples(
    path: str | os.PathLike,
    messages: list[Any],
    name: str,
    source: topics.Source,
    unit: str | float | None,
) -> topics.Samples:
    where = f"{os.fspath(path)}: message {source.topic}:{source.instance}"
    index = messages[0].fmt.instance_field if messages else None
    if index:
        messages = [m for m in messages if getattr(m, index) == source.instance]
    if not messages or (source.instance and not index):
        raise ValueError(f"{where}: wanted messages for {name}, got none in the log")
    form = messages[0].fmt

    def stated(field: str) -> str | float:
        if name == "q" and len(source.fields) == 3:
            return unit or "deg"
        text = unit or form.get_unit(field).replace("Gauss", "gauss")
        if not text and form.name.startswith("MAG"):
            return "mgauss"
        return 1.0 if isinstance(text, str) and text not in UNITS else text

    return topics.samples_of(where, name, source, messages, _stamp(form.columns), stated)


def _stamp(columns: Sequence[str]) -> tuple[str, float]:
    """Return the column with the time of a message, and its unit [s]."""
    if "TimeMS" in columns and "TimeUS" not in columns:
        return ("T" if "Week" in columns else "TimeMS"), 1e-3
    return ("SampleUS" if "SampleUS" in columns else "TimeUS"), 1e-6

"""Recordings from the logs of PX4 (ULog), read by pyulog."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from jaxquat._internal.checks import boolean, place
from jaxquat._internal.renamed import refuses_old_keywords
from jaxquat.recordings import topics
from jaxquat.recordings.columns import ends_in_a_unit
from jaxquat.recordings.recording import Recording
from jaxquat.recordings.ulog_messages import whole_messages
from jaxquat.recordings.units import si_value

PX4: Mapping[str, str] = MappingProxyType(
    {
        "gyro": "sensor_combined.gyro_rad",
        "accelerometer": "sensor_combined.accelerometer_m_s2",
        "magnetometer": "vehicle_magnetometer.magnetometer_ga",
        "q": "vehicle_attitude.q",
    }
)
"""The channels that ``read_ulog`` reads by default; the magnetometer may be missing.

Before version 1.8 it is in ``sensor_combined``. q is an estimate, from forward-right-down to
north-east-down.
"""

_GAUSS = "magnetometer_ga"  # the name of PX4's fields in gauss
_NO_SAMPLE = 2**31 - 1  # us: PX4's relative time of a sensor without a sample


@refuses_old_keywords("recordings.read_ulog")
def read_ulog(
    path: str | os.PathLike[str],
    columns: Mapping[str, str | Sequence[str]] | None = None,
    *,
    units: Mapping[str, str | float] | None = None,
    frame: str = "frd_ned",
    skip_damaged: bool = False,
) -> Recording:
    """Read channels from a PX4 log, a ``.ulg`` file; needs the extra ``logs`` (pyulog).

    The recording has a row for every time at which one of the topics was logged; a channel is NaN
    where its topic was not. Nothing is interpolated, and no time is changed. The time of a message
    is ``timestamp_sample``, if the topic always sets it (0 means unknown) and never repeats it;
    otherwise, and in commands (``actuator_...``, ``..._setpoint``), it is ``timestamp``, the time
    of sending. A message with NaN in all fields of a channel is missing. q has true north, a field
    in world axes magnetic north: ``notes`` has the ``declination`` [rad] of the log, the parameter
    EKF2_MAG_DECL, 0 before the first flight with a position; nothing is turned by it.

    Args:
        path: the file.
        columns: for each channel a field, "topic.field", or several of one topic. An array field
            without an index is read as a whole, ``topic.array[1].field`` is a field within one of
            its elements, "topic:1.field" a field of instance 1. By default ``recordings.PX4``.
            PX4's quaternions are scalar first.
        units: the unit of each channel that is not in SI, one of ``recordings.UNITS`` or a number,
            the value of one count in SI units. A field whose name ends in such a unit is refused
            without it, except ``magnetometer_ga``, which is in gauss.
        frame: the axes of gyro, accelerometer, magnetometer and q in the recording: "frd_ned" as in
            the log (body forward-right-down, world north-east-down), or "flu_enu" (body
            forward-left-up, world east-north-up), as for ``estimation.ahrs``. Other channels stay
            as they are.
        skip_damaged: accept a file that is damaged or ends within a message, as after a loss of
            power. Reading continues at the next message of synchronization; the message before the
            damage is skipped too. A RuntimeWarning has the number of bytes skipped. ULog has no
            checksums: damage within numbers cannot be noticed.

    Raises:
        ValueError, TypeError: a bad argument, by name; a file that is not ULog, is damaged or cut
            short, lacks a topic or field, or has a topic whose times do not increase.
        OSError, ImportError: the file cannot be opened; pyulog is not installed.

    Examples:
        >>> motors = [f"actuator_motors.control[{k}]" for k in range(4)]
        >>> columns = {"gyro": jq.recordings.PX4["gyro"], "motors": motors}
        >>> log = jq.recordings.read_ulog("flight.ulg", columns)  # doctest: +SKIP
    """
    sources, units = topics.checked_sources(PX4 if columns is None else columns, units, frame)
    boolean("skip_damaged", skip_damaged)
    for name, source in sources.items():
        if name not in units and all(field.startswith(_GAUSS) for field in source.fields):
            units = {**units, name: "gauss"}
        for field in source.fields:
            if name not in units and ends_in_a_unit(field, name):
                hint = f"say which it has, as in units={{{name!r}: ...}}"
                raise ValueError(f"columns: the name {field!r} of {name} ends in a unit; {hint}")
    names = sorted({source.topic for source in sources.values()})
    log = _log(place("path", path), names, skip_damaged)
    if columns is None and not _subscriptions(log, sources["magnetometer"]):
        del sources["magnetometer"]
        if any(f"{_GAUSS}[0]" in data.data for data in _subscriptions(log, sources["gyro"])):
            sources["magnetometer"] = sources["gyro"]._replace(fields=(_GAUSS,))

    def samples(name: str, source: topics.Source) -> topics.Samples:
        where = f"{os.fspath(path)}: topic {source.topic}:{source.instance}"
        return _samples(where, log, name, source, si_value(units.get(name, 1.0)))

    recording = topics.recording_of(path, sources, samples, frame == "flu_enu")
    return dataclasses.replace(recording, notes=_notes(log))


def _notes(log: Any) -> dict[str, float]:
    """Return the declination [rad] that the log has last, if any."""
    values = {**log.initial_parameters, **{name: x for _, name, x in log.changed_parameters}}
    if "EKF2_MAG_DECL" not in values:
        return {}
    return {"declination": float(np.deg2rad(values["EKF2_MAG_DECL"]))}


def _log(file: Path, names: list[str], skip_damaged: bool) -> Any:
    reader = topics.package("read_ulog", "pyulog").ULog
    content = whole_messages(file, skip_damaged)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # pyulog prints messages
            log = reader(io.BytesIO(content), names)
    except Exception as error:  # damaged bytes may raise anything
        raise ValueError(f"{file}: cannot be read as ULog, {error!r}") from error
    if log.file_corruption:
        text = f"{file}: cannot be read as ULog, there are damaged messages in it"
        topics.report_damage(text, skip_damaged, 4)
    return log


def _subscriptions(log: Any, source: topics.Source) -> list[Any]:
    wanted = source.topic, source.instance
    return [data for data in log.data_list if (data.name, data.multi_id) == wanted]


def _samples(
    where: str, log: Any, name: str, source: topics.Source, factor: float
) -> topics.Samples:
    """Return the samples of a channel; ``factor`` is the value of its unit in SI units."""
    subscriptions = _subscriptions(log, source)
    if not subscriptions:
        raise ValueError(f"{where}: wanted messages for {name}, got none in the log")
    if len(subscriptions) > 1:
        numbers = ", ".join(str(data.msg_id) for data in subscriptions)
        raise ValueError(f"{where}: wanted one subscription, got several, by the ids {numbers}")
    data = subscriptions[0].data
    if "timestamp" not in data:
        raise ValueError(f"{where}: wanted a field timestamp, got {', '.join(data)}")
    keys = [key for field in source.fields for key in _keys(where, data, name, field)]
    numbers = factor * np.stack([data[key].astype(np.float64) for key in keys], axis=-1)
    t = _times(data, source.topic)
    if "magnetometer_timestamp_relative" in data and keys[0].startswith("magnetometer"):
        # A row of sensor_combined repeats the last sample of the magnetometer.
        relative = data["magnetometer_timestamp_relative"]
        t = t.astype(np.int64) + relative
        rows = np.flatnonzero(relative != _NO_SAMPLE)
        rows = rows[np.diff(t[rows], prepend=-1) != 0]
        t, numbers = t[rows], numbers[rows]
    return topics.Samples(where, keys, 1e-6 * t.astype(float), numbers)


def _keys(where: str, data: Mapping[str, np.ndarray], name: str, field: str) -> list[str]:
    if field in data:
        return [field]
    elements = [key for key in data if re.fullmatch(re.escape(field) + r"\[\d+\]", key)]
    if not elements:
        raise ValueError(f"{where}, field {field}: wanted one for {name}, got {', '.join(data)}")
    return elements


def _times(data: Mapping[str, np.ndarray], topic: str) -> np.ndarray:
    """Return the times of messages [us]: ``timestamp_sample`` if all are set and increase."""
    is_command = topic.startswith("actuator_") or topic.endswith("_setpoint")
    sampled = data.get("timestamp_sample")
    if sampled is None or is_command or not (sampled.all() and (sampled[1:] > sampled[:-1]).all()):
        return data["timestamp"]
    return sampled

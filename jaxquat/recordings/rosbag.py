"""Recordings from bags of ROS 1 and ROS 2, read by rosbags, which needs no installed ROS."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxquat._internal.checks import one_of, place
from jaxquat.recordings import topics
from jaxquat.recordings.recording import Recording
from jaxquat.recordings.units import si_value


def read_rosbag(
    path: str | os.PathLike[str],
    columns: Mapping[str, str | Sequence[str]],
    *,
    units: Mapping[str, str | float] | None = None,
    frame: str = "flu_enu",
    duplicates: str = "raise",
) -> Recording:
    """Read channels from a bag of ROS 1 (``.bag``) or ROS 2 (a folder); needs the extra ``logs``.

    Rows are as in ``read_ulog``. The time of a message is the stamp of its header. Fields that
    ``sensor_msgs/Imu`` does not estimate (element 0 of their covariance is -1) are missing.

    Args:
        path: the bag.
        columns: for each channel a field, "/topic.field", or several of one topic. Vectors become
            (N, 3), and quaternions, which ROS has scalar last, (N, 4) with the scalar first; list
            four fields of q scalar first too. "/odom.pose.pose.orientation" and
            "/joints.position[2]" are a field of a field and an element of an array.
        units: as for ``read_ulog``.
        frame: as for ``read_ulog``, but ROS has "flu_enu" (REP 103). Some drivers have other axes.
        duplicates: "raise" refuses times that do not increase. "keep" keeps all messages of one
            topic in the order in which the bag received them.

    Raises:
        ValueError, TypeError: a bad argument, by name; a bag that cannot be read, lacks a topic or
            field, or has times that do not increase; a message without a header.
        OSError, ImportError: the bag cannot be opened; rosbags is not installed.

    Examples:
        >>> columns = {"gyro": "/imu/data.angular_velocity", "q": "/imu/data.orientation"}
        >>> log = jq.recordings.read_rosbag("flight.bag", columns)  # doctest: +SKIP
    """
    sources, units = topics.checked_sources(columns, units, frame)
    one_of("duplicates", duplicates, ("raise", "keep"))
    names = {source.topic for source in sources.values()}
    if duplicates == "keep" and len(names) > 1:
        wanted = 'one topic with duplicates="keep"; recordings.join joins several recordings'
        raise ValueError(f"columns: wanted {wanted}, got {', '.join(sorted(names))}")
    messages, types = _messages(place("path", path), names)

    def samples(name: str, source: topics.Source) -> topics.Samples:
        where = f"{os.fspath(path)}: topic {source.topic}"
        if not messages[source.topic]:
            there = ", ".join(f"{topic} ({kind})" for topic, kind in sorted(types.items()))
            got = f"none in the bag, which has {there}"
            raise ValueError(f"{where}: wanted messages for {name}, got {got}")
        t, numbers = _numbers(where, messages[source.topic], name, source.fields)
        return topics.Samples(where, source.fields, t, si_value(units.get(name, 1.0)) * numbers)

    return topics.recording_of(path, sources, samples, frame == "frd_ned", duplicates)


def _messages(file: Path, names: set[str]) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Return the messages of these topics as the bag received them, and the types of all topics."""
    reader = topics.package("read_rosbag", "rosbags.highlevel").AnyReader
    typesys = topics.package("read_rosbag", "rosbags.typesys")
    newest = typesys.get_typestore(typesys.Stores.LATEST)
    if file.is_dir() and not (file / "metadata.yaml").exists():
        got = ", ".join(sorted(part.name for part in file.iterdir())[:5]) or "an empty folder"
        wanted = "metadata.yaml in the folder of a ROS 2 bag; `ros2 bag reindex` writes it"
        raise ValueError(f"{file}: wanted {wanted}, got {got}")
    messages = {name: [] for name in names}
    try:  # older bags of ROS 2 do not contain the definitions of their messages
        with reader([file], default_typestore=newest) as bag:
            types = {one.topic: str(one.msgtype) for one in bag.connections}
            connections = [one for one in bag.connections if one.topic in names]
            for one, _, raw in bag.messages(connections) if connections else ():
                messages[one.topic].append(bag.deserialize(raw, one.msgtype))
    except OSError:
        raise
    except Exception as error:  # damaged bytes may raise anything
        raise ValueError(f"{file}: cannot be read as a bag, {error!r}") from error
    return messages, types


def _numbers(
    where: str, messages: list[Any], name: str, fields: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the times [s] of messages, (n,), and the numbers of these fields, (n, k)."""
    try:
        stamps = [message.header.stamp for message in messages]
        rows = [[_of_field(message, field) for field in fields] for message in messages]
        numbers = np.array([np.concatenate(row) for row in rows], float)
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        wanted = f"a header and the numbers {', '.join(fields)} for {name}"
        raise ValueError(f"{where}: wanted {wanted}, got {error}") from error
    return np.array([stamp.sec + 1e-9 * stamp.nanosec for stamp in stamps]), numbers


def _of_field(message: Any, field: str) -> np.ndarray:
    """Return the numbers of a field such as "pose.position" or "position[2]", NaN if unknown."""
    value: Any = message
    for name in re.findall(r"[^.\[\]]+", field):
        value = value[int(name)] if name.isdecimal() else getattr(value, name)
    if hasattr(value, "z"):
        value = [getattr(value, axis) for axis in "wxyz" if hasattr(value, axis)]
    covariance = getattr(message, f"{field}_covariance", (0.0,))
    return np.atleast_1d(np.asarray(value, float)) * (np.nan if covariance[0] == -1.0 else 1.0)

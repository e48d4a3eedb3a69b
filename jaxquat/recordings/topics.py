"""Channels that are fields of a log's topics: their names, their samples and their axes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxquat._internal.checks import missing_package, one_of
from jaxquat._internal.frames import attitude, frd_flu
from jaxquat.recordings.columns import SIZES, checked_names, checked_units
from jaxquat.recordings.joining import union
from jaxquat.recordings.recording import (
    FITS,
    Recording,
    check_samples,
    check_times,
    from_channels,
)

FRAMES = {"gyro": frd_flu, "accelerometer": frd_flu, "magnetometer": frd_flu, "q": attitude}
"""For each channel with axes, the change from FRD and NED to FLU and ENU, and back."""


class Source(NamedTuple):
    """Where a channel comes from: "topic:1.field", or several fields of a topic."""

    topic: str
    instance: int
    fields: tuple[str, ...]


class Samples(NamedTuple):
    """Times [s], (n,), and numbers in SI units, (n,) or (n, k), of one channel."""

    t: np.ndarray
    numbers: np.ndarray


def checked_sources(
    columns: Mapping[str, str | Sequence[str]], units: Mapping[str, str | float] | None, frame: str
) -> tuple[dict[str, Source], Mapping[str, str | float]]:
    """The sources of the channels, and the units that are stated; the arguments are checked."""
    named = checked_names("columns", columns)
    sources = {name: _source(name, value) for name, value in named.items()}
    if not sources:
        raise ValueError("columns: wanted at least one channel, got none")
    one_of("frame", frame, ("frd_ned", "flu_enu"))
    return sources, checked_units(units, list(sources))


def _source(name: str, value: str | tuple[str, ...]) -> Source:
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
    fields = tuple(field for _, _, field in parts)
    if len(set(fields)) < len(fields):
        raise ValueError(f"columns: wanted each field of {name} once, got {value!r}")
    axes = "".join(field[-1] for field in fields)
    if name == "q" and axes != "wxyz" and set(axes) == set("wxyz"):
        raise ValueError(f"columns: wanted the fields of q scalar first, got {value!r}")
    topic, instance, _ = parts[0]
    return Source(topic, instance, fields)


KEEP = f'duplicates="keep" keeps them all, and {FITS}'


def checked_samples(
    where: str, name: str, fields: Sequence[str], samples: Samples, duplicates: str | None = None
) -> Samples:
    """The samples (n,) or (n, k) of a channel without those that are all NaN.

    ValueError that begins with ``where`` if they are not what a recording has, or if their times do
    not increase. ``duplicates`` is an argument of some readers; "keep" keeps all samples.
    """
    shape = np.shape(samples.numbers)
    if name in SIZES and shape[1:] != (SIZES[name],):
        wanted = f"{SIZES[name]} numbers for {name}"
        raise ValueError(f"{where}: wanted {wanted}, got {', '.join(fields)}")
    check_samples(f"{where}, {', '.join(fields)}", name, samples.numbers)
    if duplicates == "keep":
        return samples
    check_times(f"{where}, times [s]", samples.t, KEEP if duplicates else "")
    present = ~np.isnan(samples.numbers.reshape(len(samples.t), -1)).all(axis=1)
    return Samples(samples.t[present], samples.numbers[present])


def samples_of(
    where: str,
    name: str,
    source: Source,
    messages: Sequence[Any],
    stamp: tuple[str, float],
    factor: Callable[[str], float],
) -> Samples:
    """The samples of a channel in messages of pymavlink, at least one, all of one kind.

    Three fields of q are roll, pitch and yaw.

    Args:
        where: the beginning of an error.
        name: the channel.
        source: where it comes from.
        messages: their attributes are the fields.
        stamp: the field with the time of a message, and its unit [s].
        factor: ``factor(field)`` is the value of the unit of a field in SI units.
    """
    at, tick = stamp
    for field in (at, *source.fields):
        if not isinstance(getattr(messages[0], field, None), int | float):
            got = ", ".join(messages[0].get_fieldnames())
            raise ValueError(f"{where}, field {field}: wanted one of numbers for {name}, got {got}")
    t = tick * np.array([getattr(message, at) for message in messages], float)
    numbers = [[getattr(message, field) for field in source.fields] for message in messages]
    numbers = np.array(numbers, float) * [factor(field) for field in source.fields]
    if name == "q" and len(source.fields) == 3:
        from scipy.spatial.transform import Rotation  # here, because it takes 0.1 s

        numbers = np.roll(Rotation.from_euler("xyz", numbers).as_quat(), 1, axis=1)
    if len(source.fields) == 1:
        numbers = numbers[:, 0]
    return checked_samples(where, name, source.fields, Samples(t, numbers))


def package(reader: str, module: str) -> Any:
    """Import a module of a package of the extra ``logs``; ImportError that names the reader."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise ImportError(missing_package(f"recordings.{reader}", name, "logs")) from error


def check_one_topic(sources: Mapping[str, Source]) -> None:
    """ValueError if rows in the order of their messages are wanted of several topics."""
    topics = sorted({source.topic for source in sources.values()})
    if len(topics) > 1:
        wanted = 'one topic with duplicates="keep"; recordings.join joins several recordings'
        raise ValueError(f"columns: wanted {wanted}, got {', '.join(topics)}")


def recording_of(
    path: str | os.PathLike,
    samples: Mapping[str, Samples],
    other_axes: bool,
    duplicates: str | None = None,
) -> Recording:
    """The recording of these channels, in other axes than they are logged in if wanted."""
    if other_axes:
        samples = {
            name: Samples(t, FRAMES[name](numbers) if name in FRAMES else numbers)
            for name, (t, numbers) in samples.items()
        }
    times = [t for t, _ in samples.values()]
    count = len(times[0]) if duplicates == "keep" else len(np.unique(np.concatenate(times)))
    if count < 2:
        wanted = "messages of at least two times"
        raise ValueError(f"{os.fspath(path)}: wanted {wanted}, got {count}")
    if duplicates == "keep":
        return from_channels(times[0], {name: numbers for name, (_, numbers) in samples.items()})
    return union(samples)

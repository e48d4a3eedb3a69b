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
from jaxquat.recordings.recording import (
    FITS,
    Recording,
    check_samples,
    check_times,
    from_channels,
    union,
)

# Changes from FRD and NED to FLU and ENU, and back.
FRAMES: dict[str, Callable[..., Any]] = {
    "gyro": frd_flu,
    "accelerometer": frd_flu,
    "magnetometer": frd_flu,
    "q": attitude,
}


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
    """Return the sources of the channels, and the units that are stated, checked."""
    named = checked_names(columns)
    sources = {name: _source(name, value) for name, value in named.items()}
    if not sources:
        raise ValueError("columns: wanted at least one channel, got none")
    one_of("frame", frame, ("frd_ned", "flu_enu"))
    return sources, checked_units(units, list(sources))


def _source(name: str, value: str | tuple[str, ...]) -> Source:
    if name in ("t", "movement"):
        raise ValueError(f"columns: wanted channels of topics, got {name!r}")
    fields: list[str] = []
    sources: set[tuple[str, int]] = set()
    for text in (value,) if isinstance(value, str) else value:
        topic, _, field = text.partition(".")
        topic, colon, instance = topic.partition(":")
        if not topic or not field or (colon and not instance.isdecimal()):
            wanted = '"topic.field" or "topic:1.field"'
            raise ValueError(f"columns: wanted {wanted} for {name}, got {text!r}")
        sources.add((topic, int(instance or 0)))
        fields.append(field)
    if len(sources) > 1:
        raise ValueError(f"columns: wanted fields of one topic for {name}, got {value!r}")
    if len(set(fields)) < len(fields):
        raise ValueError(f"columns: wanted each field of {name} once, got {value!r}")
    axes = "".join(field[-1] for field in fields)
    if name == "q" and axes != "wxyz" and set(axes) == set("wxyz"):
        raise ValueError(f"columns: wanted the fields of q scalar first, got {value!r}")
    return Source(*sources.pop(), tuple(fields))


def checked_samples(
    where: str, name: str, fields: Sequence[str], samples: Samples, duplicates: str | None = None
) -> Samples:
    """Return the samples without rows of NaN; ValueError if they or their times are bad."""
    shape = np.shape(samples.numbers)
    if name in SIZES and shape[1:] != (SIZES[name],):
        wanted = f"{SIZES[name]} numbers for {name}"
        raise ValueError(f"{where}: wanted {wanted}, got {', '.join(fields)}")
    check_samples(f"{where}, {', '.join(fields)}", name, samples.numbers)
    if duplicates == "keep":
        return samples
    remedy = f'duplicates="keep" keeps them all, and {FITS}' if duplicates else ""
    check_times(f"{where}, times [s]", samples.t, remedy)
    present = ~np.isnan(samples.numbers.reshape(len(samples.t), -1)).all(axis=1)
    return Samples(samples.t[present], samples.numbers[present])


def package(reader: str, module: str) -> Any:
    """Import a module of a package of the extra ``logs``; ImportError that names the reader."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise ImportError(missing_package(f"recordings.{reader}", name, "logs")) from error


def recording_of(
    path: str | os.PathLike[str],
    samples: Mapping[str, Samples],
    other_axes: bool,
    duplicates: str | None = None,
) -> Recording:
    """Return the recording of these channels; ``other_axes`` changes the axes of the log."""
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

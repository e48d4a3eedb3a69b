"""Channels that are fields of a log's topics: their names, their samples and their axes."""

from __future__ import annotations

import importlib
import os
import warnings
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
    """The samples of one channel: ``where`` begins errors, t [s] is (n,), numbers in SI (n, k)."""

    where: str
    fields: Sequence[str]
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
    return Source(*sources.pop(), tuple(fields))


def package(reader: str, module: str) -> Any:
    """Import a module of a package of the extra ``logs``; ImportError that names the reader."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise ImportError(missing_package(f"recordings.{reader}", name, "logs")) from error


def report_damage(problem: str, skip_damaged: bool, frames: int) -> None:
    """Raise ValueError, or warn the caller of the reader, which is so many frames above."""
    if not skip_damaged:
        raise ValueError(f"{problem}; skip_damaged=True reads the others")
    warnings.warn(problem, RuntimeWarning, stacklevel=frames + 1)


def recording_of(
    path: str | os.PathLike[str],
    sources: Mapping[str, Source],
    samples_of: Callable[[str, Source], Samples],
    other_axes: bool,
    duplicates: str | None = None,
) -> Recording:
    """Return the recording of these channels; ``other_axes`` changes the axes of the log."""
    samples = {}
    for name, source in sources.items():
        where, fields, t, numbers = samples_of(name, source)
        if numbers.shape[1] == 1 and source.fields == tuple(fields):
            numbers = numbers[:, 0]
        if name in SIZES and numbers.shape[1:] != (SIZES[name],):
            wanted = f"{SIZES[name]} numbers for {name}"
            raise ValueError(f"{where}: wanted {wanted}, got {', '.join(fields)}")
        check_samples(f"{where}, {', '.join(fields)}", name, numbers)
        if duplicates != "keep":
            remedy = f'duplicates="keep" keeps them all, and {FITS}' if duplicates else ""
            check_times(f"{where}, times [s]", t, remedy)
            present = ~np.isnan(numbers.reshape(len(t), -1)).all(axis=1)
            t, numbers = t[present], numbers[present]
        samples[name] = t, FRAMES[name](numbers) if other_axes and name in FRAMES else numbers
    times = [t for t, _ in samples.values()]
    count = len(times[0]) if duplicates == "keep" else len(np.unique(np.concatenate(times)))
    if count < 2:
        wanted = "messages of at least two times"
        raise ValueError(f"{os.fspath(path)}: wanted {wanted}, got {count}")
    if duplicates == "keep":
        return from_channels(times[0], {name: numbers for name, (_, numbers) in samples.items()})
    return union(samples)

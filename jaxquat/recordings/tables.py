"""Recordings from text files with any columns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxquat._internal.checks import instance, one_of, positive, real
from jaxquat._internal.renamed import refuses_old_keywords
from jaxquat.recordings.cells import Columns, malformed, names_of, numbers_of, place_of
from jaxquat.recordings.columns import (
    SI,
    SIZES,
    checked_names,
    checked_units,
    ends_in_a_unit,
    name_and_unit,
    unit_problem,
)
from jaxquat.recordings.headers import Header, header_of, text_of
from jaxquat.recordings.recording import Recording, from_channels
from jaxquat.recordings.units import si_value, unlikely_median
from jaxquat.recordings.writing import OWN, own_columns, own_notes

_COUNTED = 20  # rows from which on whole numbers that rise by 1 are hardly seconds


@refuses_old_keywords("recordings.read")
def read(
    path: str | os.PathLike[str],
    columns: Mapping[str, str | int | Sequence[str | int]] | None = None,
    *,
    units: Mapping[str, str | float] | None = None,
    rate: float | None = None,
    duplicates: str = "raise",
) -> Recording:
    """Read the recording in a text file with a table, plain or gzip (``.gz``).

    The header is the first line, or a comment above it that has the names of all ``columns``. The
    columns of a file without a header are numbered from 0: ``{"t": 0, "gyro": (1, 2, 3)}``. One of
    semicolon, tab, comma and space, the first of them that is in this line, separates cells. Blank
    lines and lines that begin with ``#`` are skipped. The text is UTF-8. All rows have as many
    cells as the header, and a time; a sensor whose cells are all empty or ``nan`` in a row has no
    sample there. Nothing is repaired.

    A header may have the unit itself, as in ``gx [deg/s]`` or ``gx (deg/s)``; the column's name is
    then ``gx``. Columns without a unit are taken to be SI. Refused without ``units`` are names that
    end in another unit (``time_us``, ``gyroXDegPerSec``, ``mx_raw``), times of 20 rows or more that
    count by 1, and values whose median is unlikely in SI units: intervals of 2 or more, rates of 35
    or more, specific forces of 0.5 to 2 or of 100 or more, and magnetic fields of 1 or more. Fields
    in gauss, 0.25 to 0.65 on Earth, are not noticed.

    Without ``columns`` the file has the header of ``write``, in any order: ``t``;
    ``gyr_x, gyr_y, gyr_z``; ``q_w, q_x, q_y, q_z`` (sensor to world); ``movement`` (1 in the
    movement phase, 0 at rest); other channels as ``motors[0]``, ``motors[1]``, or ``volts[]`` for
    one number in a row. The comment with the notes is read, too. A last line without an end is
    refused, because it may be cut off.

    Args:
        path: the file.
        columns: for each channel the name or number of its column, which makes it (N,), or a
            sequence of them, which makes it (N, k). "t" must be among them without ``rate``.
            "gyro", "accelerometer" and "magnetometer" (3), "q" (4, scalar first) and "movement"
            become the fields of ``Recording``, other channels its ``channels``.
        units: the unit of each channel whose columns do not have it in the header, one of
            ``recordings.UNITS``; or a number, the value of one count in SI units, such as
            ``9.80665 / 2048`` for 2048 counts to standard gravity.
        rate: samples per second [Hz] of a file without stamps: rows are 1/rate apart. If
            ``columns`` has "t", it counts samples, and numbers that it omits are a gap.
        duplicates: "raise" refuses rows with the same time. "merge" makes them one row, such as
            those of sensors and of commands, and refuses two different samples of a channel at one
            time. "keep" keeps all rows, also of stamps that run back.

    Raises:
        ValueError, TypeError: an argument, by name; a malformed file, by line and column: also
            times that run back, or stand still unless ``duplicates`` allows it; a unit that is
            unknown or of another quantity.
        OSError: the file cannot be opened.

    Examples:
        >>> import tempfile
        >>> file, rows = tempfile.mkdtemp() + "/flight.txt", [[0, 90, 0, 0], [10, 180, 0, 0]]
        >>> np.savetxt(file, rows, header="stamp gx gy gz")
        >>> columns = {"t": "stamp", "gyro": ("gx", "gy", "gz")}
        >>> recording = jq.recordings.read(file, columns, units={"t": "ms", "gyro": "deg/s"})
        >>> recording.gyro[:, 0].round(2)  # rad/s
        array([1.57, 3.14])
    """
    if columns is None and rate is not None:
        raise ValueError(f"rate: wanted columns beside it, got {rate} without them")
    named, is_numbered = ({}, False) if columns is None else _checked_columns(columns, rate)
    given = _given_units(units, named, rate) if named else {}
    one_of("duplicates", duplicates, ("raise", "merge", "keep"))
    text = text_of(path)
    if columns is None:
        header = header_of(text, ("t",))
        named = own_columns(header.names)
        given = {name: SI.get(name, "1") for name in named if name not in ("t", *OWN)}
        given |= _given_units(units, named, None)
    else:
        names = [column for value in named.values() for column in names_of(value)]
        header = header_of(text, names, is_numbered)
    stated = {name: _units(path, header, name, x, given.get(name)) for name, x in named.items()}
    values = numbers_of(path, text, header, named, duplicates)
    if len(values["t"]) < 2:
        wanted = "at least two rows of numbers below the header"
        raise ValueError(f"{os.fspath(path)}: wanted {wanted}, got {len(values['t'])}")
    if columns is None and not text.endswith("\n"):
        problem = "wanted an end of the last line, got none: a number there may lack digits"
        raise ValueError(f"{os.fspath(path)}: line {len(text.splitlines())}: {problem}")
    for name, units_of in stated.items():
        size = "" if columns is None or any(units_of) else _size_problem(name, values[name])
        if size:
            raise ValueError(f"{os.fspath(path)}: {name}: its unit is not stated and {size}")
        values[name] = values[name] * np.squeeze([si_value(unit or 1.0) for unit in units_of])
    notes = own_notes(path, text) if columns is None else {}
    return from_channels(values.pop("t"), values, notes)


def _given_units(
    units: Mapping[str, str | float] | None, columns: Columns, rate: float | None
) -> dict[str, str | float]:
    given = dict(checked_units(units, list(columns)))
    if rate is not None:
        positive("rate", real("rate", rate))
        if "t" in given:
            raise ValueError(f"units: wanted none for t beside rate, got {given['t']!r}")
        given["t"] = 1.0 / rate
    return given


def _checked_columns(columns: Mapping[str, Any], rate: float | None) -> tuple[Columns, bool]:
    """Return the names of the columns of each channel, and whether they are numbers."""
    instance("columns", columns, Mapping, 'a dict such as {"t": "time", "gyro": ("x", "y", "z")}')
    cells = {name: x if isinstance(x, tuple | list) else (x,) for name, x in columns.items()}
    numbers = [type(x) is int or isinstance(x, np.integer) for one in cells.values() for x in one]
    if is_numbered := bool(numbers) and all(numbers):
        texts = {name: tuple(map(str, x)) for name, x in cells.items()}
        columns = {k: x if cells[k] is columns[k] else x[0] for k, x in texts.items()}
    named = checked_names(columns)
    if "t" not in named and (rate is None or not named):
        got = ", ".join(named) or "none"
        raise ValueError(f"columns: wanted one for t, got {got}; rate= reads a file without stamps")
    for name, value in named.items():
        is_one = isinstance(value, str)
        if name in ("t", "movement") and not is_one:
            raise ValueError(f"columns: wanted one name for {name}, got {value!r}")
        if name in SIZES and (is_one or len(value) != SIZES[name]):
            raise ValueError(f"columns: wanted {SIZES[name]} names for {name}, got {value!r}")
    return {"t": (), **named}, is_numbered


def _units(
    path: str | os.PathLike[str],
    header: Header,
    channel: str,
    columns: str | tuple[str, ...],
    given: str | float | None,
) -> list[str | float | None]:
    """Return the unit of each column, stated by the argument or in the header."""
    units = []
    for column in names_of(columns):
        name, stated = name_and_unit(header.names[place_of(path, header, column)])
        unit, problem = given or stated, ""
        if unit is None and ends_in_a_unit(name, channel):
            problem = f"its name ends in a unit; say which it has, as in units={{{channel!r}: ...}}"
            problem += ", one of recordings.UNITS or its value in SI"
        elif given is not None and stated not in (None, given):
            problem = f"wanted the unit of units[{channel!r}], {given!r}, got {stated!r}"
        elif unit is not None:
            problem = unit_problem(channel, unit)
        if not problem and units and (unit is None) != (units[0] is None):
            problem = f"wanted units of all columns of {channel} in the header, or of none"
        if problem:
            raise malformed(path, header.line or 1, column, problem)
        units.append(unit)
    return units or [given]


def _size_problem(channel: str, values: np.ndarray) -> str:
    steps = np.diff(np.unique(values)) if channel == "t" else np.empty(0)
    if len(steps) >= _COUNTED and np.median(steps) == 1.0 and np.all(values == np.round(values)):
        return "it counts by 1; say rate= if it counts samples, units={'t': 's'} if seconds"
    unlikely = unlikely_median(channel, steps if channel == "t" else values)
    if unlikely is None:
        return ""
    median, unit = unlikely
    name = "median interval" if channel == "t" else "median norm"
    remedy = f"say the unit, units={{{channel!r}: {unit or '...'}}} for instance"
    return f"its {name} is {median:.3g} {SI[channel]}; {remedy}; {SI[channel]!r} if it is"

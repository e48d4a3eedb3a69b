"""Recordings from text files with any columns."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxquat._internal.checks import boolean, instance, one_of, positive, real
from jaxquat._internal.renamed import refuses_old_keywords
from jaxquat.recordings.cells import Channel, malformed, numbers_of
from jaxquat.recordings.columns import (
    SI,
    SIZES,
    checked_names,
    checked_units,
    ends_in_a_unit,
    name_and_unit,
    unit_problem,
)
from jaxquat.recordings.headers import Header, header_of, numbered_header, positions, text_of
from jaxquat.recordings.recording import Recording, from_channels
from jaxquat.recordings.units import si_value, unlikely_median
from jaxquat.recordings.writing import OWN, own_channels, own_notes

_COUNTED = 20  # rows from which on whole numbers that rise by 1 are hardly seconds


@refuses_old_keywords("recordings.read")
def read(
    path: str | os.PathLike[str],
    columns: Mapping[str, str | int | Sequence[str | int]] | None = None,
    *,
    units: Mapping[str, str | float] | None = None,
    rate: float | None = None,
    duplicates: str = "raise",
    skip_damaged: bool = False,
) -> Recording:
    """Read the recording in a text file with a table, plain or gzip (``.gz``).

    The header is the first line that has the names of all ``columns``; it may follow other lines
    and may be a comment. Commas, semicolons, tabs or spaces separate cells. Columns without names,
    or with names that occur twice, are numbered from 0: ``{"t": 0, "gyro": (1, 2, 3)}``. Blank
    lines, lines that begin with ``#`` and empty cells at the end of a line are skipped. The text is
    UTF-8 or else Latin-1. Times must be in every row; a sensor whose cells are all empty or ``nan``
    in a row has no sample there.

    A header may have the unit itself, as in ``gx [deg/s]`` or ``gx (deg/s)``; the column's name is
    then ``gx``. Columns without a unit are taken to be SI. Refused without ``units`` are names that
    end in another unit (``time_us``, ``gyroXDegPerSec``, ``mx_raw``), times of 20 rows or more that
    count by 1, and values whose median is unlikely in SI units: intervals of 2 or more, rates of 35
    or more, specific forces of 0.5 to 2 or of 100 or more, and magnetic fields of 1 or more. Fields
    in gauss, 0.25 to 0.65 on Earth, are not noticed.

    Without ``columns`` the file has the header of ``write``, in any order: ``t``;
    ``gyr_x, gyr_y, gyr_z``; ``q_w, q_x, q_y, q_z`` (sensor to world); ``movement`` (1 in the
    movement phase, 0 at rest); other channels as ``motors[0]``, ``motors[1]``, or ``volts[]`` for
    one number in a row. The comment with the notes is read, too. A RuntimeWarning reports a last
    line without an end, which may be cut off.

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
        duplicates: "merge" makes one row of all rows with the same time, such as those of sensors
            and of commands, and refuses two different samples of a channel at one time. "first" or
            "last" keeps one of these samples. "raise" refuses rows with the same time. "keep" keeps
            all rows, also of stamps that run back.
        skip_damaged: skip lines with too few or too many cells, or with a cell that cannot be read;
            a RuntimeWarning names them. With ``rate`` they remain gaps.

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
    channels, are_numbered = _checked_columns(columns, rate)
    given = {} if columns is None else _given_units(units, channels, rate)
    one_of("duplicates", duplicates, ("raise", "merge", "first", "last", "keep"))
    boolean("skip_damaged", skip_damaged)
    text = text_of(path)
    if columns is None:
        header = header_of(text, ("t",))
        channels = own_channels(header.names)
        indexed = [channel.name for channel in channels[1:] if channel.name not in OWN]
        given = {name: SI.get(name, "1") for name in indexed} | _given_units(units, channels, None)
    else:
        names = [column for channel in channels for column in channel.columns]
        header = (numbered_header if are_numbered else header_of)(text, names)
    channels = [_located(path, header, channel, given.get(channel.name)) for channel in channels]
    options: Any = {"duplicates": duplicates, "skip_damaged": skip_damaged}
    arrays = numbers_of(path, text, header, channels, **options)
    values = {c.name: x if c.is_vector else x[:, 0] for c, x in zip(channels, arrays, strict=True)}
    _check_units(path, header, channels, values, columns is None)
    if len(values["t"]) < 2:
        wanted = "at least two rows of numbers below the header"
        raise ValueError(f"{os.fspath(path)}: wanted {wanted}, got {len(values['t'])}")
    if columns is None and not text.endswith("\n"):
        problem = "its last line has no end: if the file is cut off, a number there lacks digits"
        warnings.warn(f"{os.fspath(path)}: {problem}", RuntimeWarning, stacklevel=3)
    for name, _, _, _, stated in channels:
        values[name] = values[name] * np.squeeze([si_value(unit or 1.0) for unit in stated])
    notes = own_notes(path, text) if columns is None else {}
    return from_channels(values.pop("t"), values, notes)


def _given_units(
    units: Mapping[str, str | float] | None, channels: Sequence[Channel], rate: float | None
) -> dict[str, str | float]:
    given = dict(checked_units(units, [channel.name for channel in channels]))
    if rate is None:
        return given
    positive("rate", real("rate", rate))
    if "t" in given:
        raise ValueError(f"units: wanted none for t beside rate, got {given['t']!r}")
    return given | {"t": 1.0 / rate}


def _checked_columns(
    columns: Mapping[str, Any] | None, rate: float | None
) -> tuple[list[Channel], bool]:
    """Return the channels in ``columns``, "t" first, and whether the columns are numbered."""
    if columns is None:
        if rate is not None:
            raise ValueError(f"rate: wanted columns beside it, got {rate} without them")
        return [], False
    instance("columns", columns, Mapping, 'a dict such as {"t": "time", "gyro": ("x", "y", "z")}')
    are_numbered = [_is_number(cell) for value in columns.values() for cell in _cells(value)]
    if any(are_numbered):
        if not all(are_numbered):
            raise TypeError(f"columns: wanted names alone or numbers alone, got {columns}")
        columns = {
            name: tuple(map(str, value)) if isinstance(value, tuple | list) else str(value)
            for name, value in columns.items()
        }
    named = checked_names(columns)
    if "t" not in named and (rate is None or not named):
        got = ", ".join(named) or "none"
        hint = "; rate= reads a file without stamps" if named else ""
        raise ValueError(f"columns: wanted one for t, got {got}{hint}")
    for name, value in named.items():
        is_one = isinstance(value, str)
        if name in ("t", "movement") and not is_one:
            raise ValueError(f"columns: wanted one name for {name}, got {value!r}")
        if name in SIZES and (is_one or len(value) != SIZES[name]):
            raise ValueError(f"columns: wanted {SIZES[name]} names for {name}, got {value!r}")
    channels = [
        Channel(name, tuple(_cells(value)), name != "t" and not isinstance(value, str))
        for name, value in {"t": (), **named}.items()
    ]
    return channels, any(are_numbered)


def _cells(value: Any) -> Sequence[Any]:
    return value if isinstance(value, tuple | list) else (value,)


def _is_number(cell: Any) -> bool:
    return isinstance(cell, int | np.integer) and not isinstance(cell, bool) and int(cell) >= 0


def _located(
    path: str | os.PathLike[str], header: Header, channel: Channel, unit: str | float | None
) -> Channel:
    """Return a channel with the places of its columns and their units, stated or in the header."""
    places = [_place(path, header, column) for column in channel.columns]
    units = [unit or name_and_unit(header.names[k])[1] for k in places]
    return channel._replace(places=places, units=units or [unit])


def _place(path: str | os.PathLike[str], header: Header, column: str) -> int:
    places = positions(header, column)
    if not places and not header.line:
        count = len(header.names)
        problem = f"wanted one of columns 0 to {count - 1} of the first row, got {column}"
        raise malformed(path, 1, column, problem if count else "missing from an empty file")
    if len(places) != 1:
        problem = "more than once in" if places else "missing from"
        got = ", ".join(header.names) or "an empty file"
        hint = '; columns={"t": ..., "gyro": (...)} names those of the file, units= their units'
        hint = "" if places else hint
        raise malformed(path, header.line or 1, column, f"{problem} the header, got {got}{hint}")
    return places[0]


def _check_units(
    path: str | os.PathLike[str],
    header: Header,
    channels: Sequence[Channel],
    values: Mapping[str, np.ndarray],
    is_own: bool,
) -> None:
    """Raise ValueError that names every channel whose unit is bad, or absent and unlikely SI."""
    problems = []
    for channel in channels:
        name, columns, units = channel.name, channel.columns, channel.units
        cells = zip(columns, channel.places, units, strict=False)  # t may have no columns
        wrong = [(column, _unit_problem(name, header.names[k], unit)) for column, k, unit in cells]
        wrong = [(column, problem) for column, problem in wrong if problem]
        if not wrong and any(units) and not all(units):  # numbers of one sensor are not in two
            others = ", ".join(itertools.compress(columns, units))
            problem = f"wanted a unit in the header, as {others} of {name} has, got none"
            wrong = [(columns[units.index(None)], problem)]
        if wrong:
            problems.append(str(malformed(path, header.line or 1, *wrong[0])))
        elif not is_own and not any(units) and (size := _size_problem(name, values[name])):
            problems.append(f"{os.fspath(path)}: {name}: its unit is not stated and {size}")
    if problems:
        raise ValueError("\n".join(problems))


def _unit_problem(channel: str, cell: str, unit: str | float | None) -> str:
    name, stated = name_and_unit(cell)
    if unit is None:
        if not ends_in_a_unit(name, channel):
            return ""
        problem = f"its name ends in a unit; say which it has, as in units={{{channel!r}: ...}}"
        return f"{problem}, one of recordings.UNITS or its value in SI"
    if stated is not None and stated != unit:
        return f"wanted the unit of units[{channel!r}], {unit!r}, got {stated!r}"
    return unit_problem(channel, unit)


def _size_problem(channel: str, values: np.ndarray) -> str:
    steps = np.diff(values) if channel == "t" else np.empty(0)
    if len(steps) >= _COUNTED and np.median(steps) == 1.0 and np.all(values == np.round(values)):
        return "it counts by 1; say rate= if it counts samples, units={'t': 's'} if seconds"
    unlikely = unlikely_median(channel, steps if channel == "t" else values)
    if unlikely is None:
        return ""
    median, unit = unlikely
    name = "median interval" if channel == "t" else "median norm"
    remedy = f"say the unit, units={{{channel!r}: {unit or '...'}}} for instance"
    return f"its {name} is {median:.3g} {SI[channel]}; {remedy}; {SI[channel]!r} if it is"

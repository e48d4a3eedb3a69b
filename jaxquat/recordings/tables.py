"""Recordings from text files with any columns."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxquat._checks import instance, one_of
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
from jaxquat.recordings.units import UNITS, unlikely_median
from jaxquat.recordings.writing import OWN, own_channels


def read(
    path: str | os.PathLike,
    columns: Mapping[str, str | int | Sequence[str | int]] | None = None,
    *,
    units: Mapping[str, str] | None = None,
    order: str = "wxyz",
    decimal: str = ".",
    duplicates: str = "raise",
) -> Recording:
    """Read the recording in a text file with a table, plain or gzip (``.gz``).

    Any file with stamps is read by naming its columns. With a time in milliseconds, rates in
    deg/s, accelerations in g, the attitude of a ROS message and four motors::

        recording = jq.recordings.read(
            "flight.csv",
            {
                "t": "stamp",
                "gyro": ("gx", "gy", "gz"),
                "accelerometer": ("ax", "ay", "az"),
                "q": ("ox", "oy", "oz", "ow"),
                "motors": ("m1", "m2", "m3", "m4"),
            },
            units={"t": "ms", "gyro": "deg/s", "accelerometer": "g"},
            order="xyzw",
        )
        recording.gyro, recording["motors"]  # (N, 3) [rad/s], (N, 4)

    The header is the first line that has all these names; it may follow other lines and may be a
    comment, as NumPy writes it. Cells are separated as in the header: by commas, semicolons, tabs
    or spaces. Columns without names, or with names that occur twice, are numbered from 0:
    ``{"t": 0, "gyro": (1, 2, 3)}``; lines of names above the numbers are then read for units only.
    Blank lines and lines that begin with ``#`` are skipped, and empty cells at the end of a line
    are ignored. The text is UTF-8 or else Latin-1.

    A header may have the unit itself, as in ``gx [deg/s]`` or ``gx (deg/s)``; the column's name is
    then ``gx``. Columns without a unit are taken to be SI. A name that ends in another unit, such
    as ``time_us``, ``gyroXDegPerSec``, ``rate_dps_x``, ``acc_g_filtered`` or ``mx_raw``, is refused
    unless ``units`` says what it has. So are values without a unit whose median is unlikely in SI:
    intervals of 2 or more, rates of 35 or more, specific forces of 0.5 to 2 or of 100 or more, and
    magnetic fields of 1 or more. Fields in gauss, 0.25 to 0.65 on Earth, are not noticed.

    Without ``columns`` the file is one that ``write`` wrote, or one with the same header: ``t``;
    ``gyr_x, gyr_y, gyr_z``; ``q_w, q_x, q_y, q_z`` (sensor to world); ``movement`` (1 during the
    movement phase, 0 at rest). Other channels have an index in their columns, ``motors[0]``,
    ``motors[1]``, or an empty one if they have one number in a row, ``volts[]``. Columns may have
    any order; those without an index are ignored. A RuntimeWarning says that the last line of such
    a file has no end: what ``write`` wrote is cut off, perhaps within a number.

    A sensor has no sample in a row whose cells are all empty or ``nan``: its numbers are NaN there.
    Times must be in every row.

    Args:
        path: the file.
        columns: for each channel the name or number of its column, which makes it (N,), or a
            sequence of them, which makes it (N, k). "t" must be among them. "gyro",
            "accelerometer" and "magnetometer" (3), "q" (4) and "movement" become the fields of
            ``Recording``, other channels its ``channels``.
        units: the unit of each channel whose columns do not have it in the header, one of
            ``recordings.UNITS``.
        order: of the four columns of q, "wxyz" or "xyzw" (ROS, SciPy, crazyflow). Wherever they
            come from, ``Recording.q`` is scalar first.
        decimal: the decimal point, "." or ",".
        duplicates: "merge" makes one row of all rows with the same time, such as those of sensors
            and of commands, and refuses two different samples of a channel at one time. "first" or
            "last" keeps one of these samples. "raise" refuses rows with the same time.

    Raises:
        ValueError, TypeError: an argument is bad, by name; or the file is malformed: the message
            names file, line and column. Times that run back are malformed, and so are times that
            stand still, unless ``duplicates`` allows them, and a unit that is unknown or of another
            quantity.
        OSError: the file cannot be opened.

    Examples:
        >>> import tempfile
        >>> file, rows = tempfile.mkdtemp() + "/flight.txt", [[0, 90, 0, 0], [10, 180, 0, 0]]
        >>> np.savetxt(file, rows, header="stamp gx gy gz")
        >>> columns = {"t": "stamp", "gyro": ("gx", "gy", "gz")}
        >>> recording = jq.recordings.read(file, columns, units={"t": "ms", "gyro": "deg/s"})
        >>> recording.t, recording.gyro[:, 0].round(2)  # s, rad/s
        (array([0.  , 0.01]), array([1.57, 3.14]))
    """
    channels, are_numbered = ([], False) if columns is None else _checked_columns(columns)
    given: Mapping[str, str] = {}
    if columns is not None:
        given = checked_units(units, [channel.name for channel in channels])
    one_of("order", order, ("wxyz", "xyzw"))
    one_of("decimal", decimal, (".", ","))
    one_of("duplicates", duplicates, ("raise", "merge", "first", "last"))
    if order != "wxyz" and (columns is None or "q" not in columns):
        raise ValueError(f"order: wanted columns for q beside it, got {order!r} without them")
    text = text_of(path)
    if columns is None:
        header = header_of(text, ("t",), decimal)
        channels = own_channels(header.names)
        given = checked_units(units, [channel.name for channel in channels])
        indexed = [channel.name for channel in channels[1:] if channel.name not in OWN]
        given = {name: SI.get(name, "1") for name in indexed} | dict(given)
    else:
        names = [column for channel in channels for column in channel.columns]
        header = (numbered_header if are_numbered else header_of)(text, names, decimal)
    places = {
        channel.name: _places(path, header, channel, given.get(channel.name))
        for channel in channels
    }
    columns_of = {name: [k for k, _ in found] for name, found in places.items()}
    arrays = numbers_of(
        path, text, header, channels, columns_of, decimal=decimal, duplicates=duplicates
    )
    count = len(arrays[0]) if arrays else 0
    if count < 2:
        wanted = "at least two rows of numbers below the header"
        raise ValueError(f"{os.fspath(path)}: wanted {wanted}, got {count}")
    values = {}
    for channel, numbers in zip(channels, arrays, strict=True):
        units_of = [unit for _, unit in places[channel.name]]
        numbers = numbers * [UNITS[unit][1] if unit else 1.0 for unit in units_of]
        values[channel.name] = numbers if channel.is_vector else numbers[:, 0]
        if units_of[0] is None and columns is not None:
            _check_size(path, channel.name, values[channel.name])
    if order == "xyzw":
        values["q"] = np.roll(values["q"], 1, axis=1)
    if columns is None and not text.endswith("\n"):
        problem = "its last line has no end: if the file is cut off, a number there lacks digits"
        warnings.warn(f"{os.fspath(path)}: {problem}", RuntimeWarning, stacklevel=2)
    return from_channels(values.pop("t"), values)


def _is_number(column: Any) -> bool:
    return (
        isinstance(column, int | np.integer) and not isinstance(column, bool) and int(column) >= 0
    )


def _checked_columns(columns: Mapping[str, Any]) -> tuple[list[Channel], bool]:
    """The channels in the argument ``columns`` of ``read``, "t" first; are the columns numbered?"""
    instance("columns", columns, Mapping, 'a dict such as {"t": "time", "gyro": ("x", "y", "z")}')
    are_numbers = [
        _is_number(column)
        for value in columns.values()
        for column in (value if isinstance(value, tuple | list) else (value,))
    ]
    if any(are_numbers) and not all(are_numbers):
        raise TypeError(f"columns: wanted names alone or numbers alone, got {columns}")
    if any(are_numbers):
        columns = {
            name: tuple(map(str, value)) if isinstance(value, tuple | list) else str(value)
            for name, value in columns.items()
        }
    named = checked_names("columns", columns)
    if "t" not in named:
        raise ValueError(f"columns: wanted one for t, got {', '.join(named) or 'none'}")
    for name in {"t", "movement"} & set(named):
        if not isinstance(named[name], str):
            raise ValueError(f"columns: wanted one name for {name}, got {named[name]!r}")
    for name, value in named.items():
        if not isinstance(value, str) and len(set(value)) < len(value):
            raise ValueError(f"columns: wanted each column of {name} once, got {value!r}")
        if name in SIZES and (isinstance(value, str) or len(value) != SIZES[name]):
            raise ValueError(f"columns: wanted {SIZES[name]} names for {name}, got {value!r}")
    ordered = {"t": named["t"], **named}
    channels = [
        Channel(
            name,
            (value,) if isinstance(value, str) else value,
            not isinstance(value, str),
            name != "t",
        )
        for name, value in ordered.items()
    ]
    return channels, any(are_numbers)


def _places(
    path: str | os.PathLike, header: Header, channel: Channel, unit: str | None
) -> list[tuple[int, str | None]]:
    """Where the columns of a channel are, and their units if these are known.

    All columns state a unit or none does: numbers of one sensor are not in two.
    """
    found = [_place(path, header, column, channel.name, unit) for column in channel.columns]
    without = [name for name, (_, unit) in zip(channel.columns, found, strict=True) if not unit]
    if without and len(without) < len(found):
        others = ", ".join(name for name in channel.columns if name not in without)
        problem = f"wanted a unit in the header, as {others} of {channel.name} has, got none"
        raise malformed(path, header.line or 1, without[0], problem)
    return found


def _place(
    path: str | os.PathLike, header: Header, column: str, channel: str, unit: str | None
) -> tuple[int, str | None]:
    """Where a column is, and its unit if that is known."""
    found = positions(header, column)
    if not found and not header.line:
        count = len(header.names)
        problem = f"wanted one of columns 0 to {count - 1} of the first row, got {column}"
        raise malformed(path, 1, column, problem if count else "missing from an empty file")
    if len(found) != 1:
        problem = "more than once in" if found else "missing from"
        got = ", ".join(header.names) or "an empty file"
        hint = '; columns={"t": ..., "gyro": (...)} names those of the file, units= their units'
        hint = "" if found else hint
        raise malformed(path, header.line or 1, column, f"{problem} the header, got {got}{hint}")
    stated = name_and_unit(header.names[found[0]])[1]
    if stated is not None and unit is not None and stated != unit:
        problem = f"wanted the unit of units[{channel!r}], {unit!r}, got {stated!r}"
        raise malformed(path, header.line or 1, column, problem)
    unit = unit or stated
    if unit is None:
        if ends_in_a_unit(name_and_unit(header.names[found[0]])[0], channel):
            problem = f"its name ends in a unit; say which it has, as in units={{{channel!r}: ...}}"
            problem += "; for one that recordings.UNITS lacks say that of SI and scale the numbers"
            raise malformed(path, header.line or 1, column, problem)
        return found[0], None
    problem = unit_problem(channel, unit)
    if problem:
        raise malformed(path, header.line or 1, column, problem)
    return found[0], unit


def _check_size(path: str | os.PathLike, channel: str, values: np.ndarray) -> None:
    """ValueError if values of unknown unit have the size that they have in another than SI's."""
    unlikely = unlikely_median(channel, np.diff(values) if channel == "t" else values)
    if unlikely:
        size, unit = unlikely
        name = "median interval" if channel == "t" else "median norm"
        hint = (
            f"say the unit, units={{{channel!r}: {unit!r}}} for instance; {SI[channel]!r} if it is"
        )
        got = f"{channel}: its unit is not stated and its {name} is {size:.3g} {SI[channel]}"
        raise ValueError(f"{os.fspath(path)}: {got}; {hint}")

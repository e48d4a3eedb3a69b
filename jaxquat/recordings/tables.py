"""Recordings as text files: reading any columns, writing the library's own."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from jaxquat._checks import every, finite, instance, one_of, place
from jaxquat.recordings.cells import (
    Channel,
    Header,
    header_of,
    is_named,
    malformed,
    numbered_header,
    numbers_of,
    text_of,
)  # fmt: skip
from jaxquat.recordings.columns import (
    SI,
    SIZES,
    checked_names,
    checked_units,
    ends_in_a_unit,
    name_and_unit,
    unit_problem,
)
from jaxquat.recordings.recording import (
    UNIT_NORM,
    Recording,
    check_recording,
    check_times,
    from_channels,
)
from jaxquat.recordings.units import UNITS, norm_as_in_g

_GYRO = ("gyr_x", "gyr_y", "gyr_z")
_ATTITUDE = ("q_w", "q_x", "q_y", "q_z")
COLUMNS = ("t", *_GYRO, *_ATTITUDE, "movement")
"""The columns of the library's own files: ``read`` without ``columns`` wants them all."""

_LONG = 2.0  # s: a median interval from which on times may be in another unit

_OWN = (
    Channel("t", ("t",), False, False),
    Channel("gyro", _GYRO, True, False),
    Channel("q", _ATTITUDE, True, True),
    Channel("movement", ("movement",), False, False),
)


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
    or spaces. The columns of a file without a header are numbered from 0:
    ``{"t": 0, "gyro": (1, 2, 3)}``. Blank lines and lines that begin with ``#`` are skipped, and
    empty cells at the end of a line are ignored. The text is UTF-8 or else Latin-1.

    A header may have the unit itself, as in ``gx [deg/s]`` or ``gx (deg/s)``; the column's name is
    then ``gx``. What has no unit is in SI already. A name that ends in another unit, such as
    ``time_us`` or ``roll_rate_deg_s``, is refused unless ``units`` says what it has, and so are
    times without a unit whose median interval is 2 s or more, and accelerations of 0.5 to 2.

    Without ``columns`` the file is one of the library's own: ``t``; ``gyr_x, gyr_y, gyr_z``;
    ``q_w, q_x, q_y, q_z`` (sensor to world); ``movement`` (1 during the movement phase, 0 at
    rest), in any order and all of them. Other columns are ignored.

    A sensor has no sample in a row whose cells are all empty or ``nan``: its numbers are NaN there.
    Times, the movement, and the rates of an own file must be in every row.

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
        duplicates: of rows with the same time, "first" or "last" keeps one; "raise" refuses them.

    Raises:
        ValueError, TypeError: an argument is bad, by name; or the file is malformed: the message
            names file, line and column. Times that stand still or run back are malformed, and so
            is a unit that is unknown or of another quantity.
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
    channels = _OWN if columns is None else _checked_columns(columns)
    given = checked_units(units, [channel.name for channel in channels])
    one_of("order", order, ("wxyz", "xyzw"))
    one_of("decimal", decimal, (".", ","))
    one_of("duplicates", duplicates, ("raise", "first", "last"))
    if order != "wxyz" and (columns is None or "q" not in columns):
        raise ValueError(f"order: wanted columns for q beside it, got {order!r} without them")
    text = text_of(path)
    names = [column for channel in channels for column in channel.columns]
    numbered = columns is not None and all(map(_is_number, _flat(columns)))
    header = (numbered_header if numbered else header_of)(text, names, decimal)
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
    changes = np.diff(arrays[0][:, 0]) != 0
    kept = np.append(changes, True) if duplicates == "last" else np.append(True, changes)
    values = {}
    for channel, numbers in zip(channels, arrays, strict=True):
        units_of = [unit for _, unit in places[channel.name]]
        numbers = numbers[kept] * [UNITS[unit][1] if unit else 1.0 for unit in units_of]
        values[channel.name] = numbers if channel.is_vector else numbers[:, 0]
        if units_of[0] is None and columns is not None:
            _check_size(path, channel.name, values[channel.name])
    if order == "xyzw":
        values["q"] = np.roll(values["q"], 1, axis=1)
    if "movement" in values:
        values["movement"] = values["movement"] == 1.0
    return from_channels(values.pop("t"), values)


def _flat(columns: Mapping[str, Any]) -> list[Any]:
    return [
        name
        for value in columns.values()
        for name in (value if isinstance(value, tuple | list) else (value,))
    ]


def _is_number(column: Any) -> bool:
    return (
        isinstance(column, int | np.integer) and not isinstance(column, bool) and int(column) >= 0
    )


def _checked_columns(columns: Mapping[str, Any]) -> tuple[Channel, ...]:
    """The channels that the argument ``columns`` of ``read`` names, "t" first."""
    instance("columns", columns, Mapping, 'a dict such as {"t": "time", "gyro": ("x", "y", "z")}')
    are_numbers = [_is_number(x) for x in _flat(columns)]
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
    return tuple(
        Channel(
            name,
            (value,) if isinstance(value, str) else value,
            not isinstance(value, str),
            name not in ("t", "movement"),
        )
        for name, value in ordered.items()
    )


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
    found = [k for k, cell in enumerate(header.names) if is_named(cell, column)]
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
        if ends_in_a_unit(column, channel):
            problem = f"its name ends in a unit; say which it has, as in units={{{channel!r}: ...}}"
            raise malformed(path, header.line or 1, column, problem)
        return found[0], None
    problem = unit_problem(channel, unit)
    if problem:
        raise malformed(path, header.line or 1, column, problem)
    return found[0], unit


def _check_size(path: str | os.PathLike, channel: str, values: np.ndarray) -> None:
    """ValueError if values of unknown unit have the size that they have in another than SI's."""
    size, name, unit = None, "median norm", "g"
    if channel == "t":
        interval = float(np.median(np.diff(values)))
        size, name, unit = interval if interval >= _LONG else None, "median interval", "ms"
    elif channel == "accelerometer":
        size = norm_as_in_g(values)
    if size is not None:
        hint = (
            f"say the unit, units={{{channel!r}: {unit!r}}} for instance; {SI[channel]!r} if it is"
        )
        got = f"{channel}: its unit is not stated and its {name} is {size:.3g} {SI[channel]}"
        raise ValueError(f"{os.fspath(path)}: {got}; {hint}")


def write(path: str | os.PathLike, recording: Recording) -> None:
    """Write a file that ``read`` reads to the last bit; it is compressed if its name ends in .gz.

    It has the columns of ``COLUMNS`` and no others. ValueError or TypeError, with the field, for a
    recording that ``read`` would refuse or that has more than these columns hold.

    Examples:
        >>> import tempfile
        >>> file, t = tempfile.mkdtemp() + "/rest.csv.gz", np.arange(3) / 7
        >>> still, q = np.zeros((3, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (3, 1))
        >>> recording = jq.recordings.Recording(t, still, q, movement=np.zeros(3, bool))
        >>> jq.recordings.write(file, recording)
        >>> bool((jq.recordings.read(file).t == recording.t).all())  # to the last bit
        True
    """
    if isinstance(recording, str | os.PathLike):
        hint = "; the order is jq.recordings.write(file, recording)"
        raise TypeError(f"recording: wanted a recordings.Recording, got {recording!r}{hint}")
    recording = _checked(recording)
    file, text = place("path", path), io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for t, gyro, q, movement in zip(*_fields(recording), strict=True):
        cells = ["" if math.isnan(x) else repr(float(x)) for x in (t, *gyro, *q)]
        writer.writerow([*cells, int(movement)])
    content = text.getvalue().encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


def _fields(recording: Recording) -> tuple[np.ndarray, ...]:
    fields = recording.t, recording.gyro, recording.q, recording.movement
    return cast(tuple[np.ndarray, ...], fields)


def _checked(recording: Recording) -> Recording:
    """The recording, or an error that names the field which ``read`` would refuse."""
    check_recording(recording)
    for name in recording.names:
        if name not in ("gyro", "q", "movement"):
            raise ValueError(f"recording: wanted gyro, q and movement alone, got {name} too")
    for name in ("gyro", "q", "movement"):
        if getattr(recording, name) is None:
            raise ValueError(f"recording: wanted gyro, q and movement, got no {name}")
    for name, value in zip(("t", "gyro", "q", "movement"), _fields(recording), strict=True):
        if value.dtype.kind not in "bif":
            raise ValueError(f"recording.{name}: wanted signed numbers, got {value.dtype}")
    t, gyro, q, movement = map(np.asarray, _fields(recording))
    check_times("recording.t", t)
    finite("recording.gyro", gyro)
    lost = np.isnan(q)
    is_unit = np.abs(np.linalg.norm(q, axis=1) - 1.0) <= UNIT_NORM
    for k in np.flatnonzero(~(is_unit | lost.all(axis=1)))[:1]:
        wanted = "unit quaternions, or NaN in all four"
        raise ValueError(f"recording.q: wanted {wanted}, got {q[k]} at row {k}")
    every("recording.movement", "0 or 1", movement, (movement == 0) | (movement == 1))
    return recording

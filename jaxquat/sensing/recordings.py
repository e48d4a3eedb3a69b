"""Recordings of a gyroscope beside a reference attitude, as CSV files (plain or gzip).

The first line names the columns, in any order: ``t`` [s]; ``gyr_x, gyr_y, gyr_z`` [rad/s, sensor
axes]; ``q_w, q_x, q_y, q_z`` (sensor to world, all four cells empty where the reference was lost);
``movement`` (1 during the movement phase, 0 at rest). Other columns are ignored.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO, cast

import numpy as np

from jaxquat._checks import finite, instance, not_negative, place, real
from jaxquat._reprs import table

__all__ = ["COLUMNS", "Recording", "read", "write"]

_GYRO = ("gyr_x", "gyr_y", "gyr_z")
_ATTITUDE = ("q_w", "q_x", "q_y", "q_z")
COLUMNS = ("t", *_GYRO, *_ATTITUDE, "movement")
"""Names that the first line of a file must have."""
_UNIT = 1e-2
"""How far the norm of a reference attitude may be off 1."""


@dataclass(frozen=True, repr=False, eq=False)
class Recording:
    """N samples in time order, float64.

    Attributes:
        t: times [s], (N,).
        gyro: measured rates, sensor axes [rad/s], (N, 3).
        q: reference attitudes, sensor to world, (N, 4); NaN where the reference was lost.
        movement: whether in the movement phase, (N,) bool.
    """

    t: np.ndarray
    gyro: np.ndarray
    q: np.ndarray
    movement: np.ndarray

    def spacing(self, tolerance: float = 1e-3) -> float:
        """The sampling interval [s]: the mean one.

        A sample may be off its time by ``tolerance`` of the interval, plus one unit of the last
        decimal of t where that unit is less than half the interval. Where the decimals are coarser,
        as for 600 Hz in milliseconds, nothing tells whether a sample is missing: give
        ``tolerance=1.0`` to accept such times. ValueError where a sample is off by more.
        """
        tolerance = real("tolerance", tolerance)
        not_negative("tolerance", tolerance)
        mean = (self.t[-1] - self.t[0]) / (len(self.t) - 1)
        off = np.abs(self.t - (self.t[0] + mean * np.arange(len(self.t))))
        worst, digit = int(np.argmax(off)), _last_decimal(self.t)
        decimal = digit if 2.0 * digit < mean else 0.0
        rounding = 4.0 * np.spacing(np.abs(self.t).max())
        if off[worst] > tolerance * mean + decimal + rounding:
            wanted = f"samples {mean:.6g} s apart to {tolerance:g} of it"
            due = self.t[0] + mean * worst
            raise ValueError(f"t: wanted {wanted}, got t = {self.t[worst]} where {due:.6g} was due")
        return float(mean)

    def __repr__(self) -> str:
        facts = "".join(f", {name} {text}" for name, text in self._facts())
        return f"<Recording: {len(self.t)} samples{facts}>"

    def _repr_html_(self) -> str:
        return table(f"Recording: {len(self.t)} samples", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """Names and texts of what a reader wants to know first."""
        duration = float(self.t[-1] - self.t[0])
        lost = np.isnan(self.q).any(axis=1).mean()
        return [
            ("duration", f"{duration:.6g} s"),
            ("rate", f"{(len(self.t) - 1) / duration:.6g} Hz"),
            ("reference lost", f"{100.0 * lost:.3g} %"),
        ]


def read(path: str | os.PathLike) -> Recording:
    """Read the recording in a ``.csv`` or ``.csv.gz`` file.

    Raises:
        ValueError: the file is malformed; the message names file, line and column.
        OSError: it cannot be opened.
    """
    rows, previous = [], -math.inf
    for line, cells in _lines(path):
        row = [_number(path, line, name, cells[name], name in _ATTITUDE) for name in COLUMNS]
        _check_row(path, line, row, cells, previous)
        previous = row[0]
        rows.append(row)
    if len(rows) < 2:
        wanted = "at least two rows of numbers below the header"
        raise ValueError(f"{os.fspath(path)}: wanted {wanted}, got {len(rows)}")
    numbers = np.array(rows)
    return Recording(numbers[:, 0], numbers[:, 1:4], numbers[:, 4:8], numbers[:, 8] == 1.0)


def write(path: str | os.PathLike, recording: Recording) -> None:
    """Write a file that ``read`` reads to the last bit; it is compressed if its name ends in .gz.

    ValueError or TypeError, with the field, for a recording that ``read`` would refuse.
    """
    recording = _checked(recording)
    with _opened(path, "wt") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for t, gyro, q, movement in zip(*_fields(recording), strict=True):
            cells = ["" if math.isnan(x) else repr(float(x)) for x in (t, *gyro, *q)]
            writer.writerow([*cells, int(movement)])


def _fields(recording: Recording) -> tuple[np.ndarray, ...]:
    return recording.t, recording.gyro, recording.q, recording.movement


def _checked(recording: Recording) -> Recording:
    """The recording, or an error that names the field which ``read`` would refuse."""
    instance("recording", recording, Recording, "a recordings.Recording")
    shapes = {"t": ("N",), "gyro": ("N", 3), "q": ("N", 4), "movement": ("N",)}
    rows = np.shape(recording.t)[:1]
    for (name, shape), value in zip(shapes.items(), _fields(recording), strict=True):
        array = np.asarray(value)
        right_shape = array.shape == (*rows, *shape[1:]) and array.shape[0] >= 2
        if not right_shape or array.dtype.kind not in "bif":
            wanted = f"numbers of shape ({', '.join(map(str, shape))}), N >= 2"
            raise ValueError(f"recording.{name}: wanted {wanted}, got {array!r}")
    t, gyro, q, movement = map(np.asarray, _fields(recording))
    finite("recording.t", t)
    finite("recording.gyro", gyro)
    if not np.all(np.diff(t) > 0):
        raise ValueError(f"recording.t: wanted times that increase, got {t}")
    lost = np.isnan(q)
    off = np.abs(np.linalg.norm(q[~lost.any(axis=1)], axis=1) - 1.0)
    if np.any(lost.any(axis=1) != lost.all(axis=1)) or np.any(off > _UNIT):
        raise ValueError(f"recording.q: wanted unit quaternions, or NaN in all four, got {q}")
    if not np.all((movement == 0) | (movement == 1)):
        raise ValueError(f"recording.movement: wanted 0 or 1, got {movement}")
    return recording


def _last_decimal(t: np.ndarray) -> float:
    """The unit of the last decimal that any of the times has, 0.001 for milliseconds."""
    rounding = 4.0 * np.spacing(np.abs(t).max())
    fits = (10.0**-k for k in range(18) if np.all(np.abs(np.round(t, k) - t) <= rounding))
    return next(fits, 0.0)


def _opened(path: str | os.PathLike, mode: str) -> TextIO:
    opener = gzip.open if place("path", path).suffix == ".gz" else open
    encoding = "utf-8-sig" if "r" in mode else "utf-8"  # a byte order mark is no part of a name
    return cast(TextIO, opener(path, mode, newline="", encoding=encoding))


def _lines(path: str | os.PathLike) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells by column name of every line below the header that is not blank."""
    with _opened(path, "rt") as file:
        reader = csv.reader(file)
        try:
            header = _header(path, reader)
            for cells in filter(None, reader):
                if len(cells) != len(header):
                    name = header[min(len(cells), len(header) - 1)]
                    problem = f"wanted {len(header)} cells, got {len(cells)}"
                    raise _malformed(path, reader.line_num, name, problem)
                yield reader.line_num, dict(zip(header, cells, strict=True))
        except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile, zlib.error) as error:
            where = f"{os.fspath(path)}: line {reader.line_num + 1}"
            raise ValueError(f"{where}: cannot be read as CSV text, {error}") from error


def _header(path: str | os.PathLike, reader: Iterator[list[str]]) -> list[str]:
    """The names of the columns, with each of ``COLUMNS`` once."""
    header = [name.strip() for name in next(reader, [])]
    for name in COLUMNS:
        if header.count(name) != 1:
            problem = "missing from" if name not in header else "more than once in"
            got = ",".join(header) or "an empty file"
            raise _malformed(path, 1, name, f"{problem} the header, got {got}")
    return header


def _number(path: str | os.PathLike, line: int, name: str, text: str, may_be_empty: bool) -> float:
    """The number in a cell; NaN for an empty cell where one may be empty."""
    if may_be_empty and not text.strip():
        return math.nan
    try:
        value = math.nan if "_" in text else float(text)  # Python takes 1_0 for 10
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _malformed(path, line, name, f"wanted a number, got {text!r}")
    return value


def _check_row(
    path: str | os.PathLike, line: int, row: list[float], cells: dict[str, str], previous: float
) -> None:
    """ValueError for numbers that are no sample, or a time that is not after ``previous``."""
    lost = [math.isnan(x) for x in row[4:8]]
    if any(lost) and not all(lost):
        problem = "wanted all four of q_w, q_x, q_y, q_z or none, got it empty"
        raise _malformed(path, line, _ATTITUDE[lost.index(True)], problem)
    norm = math.hypot(*row[4:8])
    if abs(norm - 1.0) > _UNIT:
        problem = f"wanted a unit quaternion in q_w, q_x, q_y, q_z, got norm {norm:.6g}"
        raise _malformed(path, line, "q_w", problem)
    if not row[0] > previous:
        raise _malformed(path, line, "t", f"wanted a time after {previous}, got {row[0]}")
    if row[8] not in (0.0, 1.0):
        raise _malformed(path, line, "movement", f"wanted 0 or 1, got {cells['movement']!r}")


def _malformed(path: str | os.PathLike, line: int, column: str, problem: str) -> ValueError:
    return ValueError(f"{os.fspath(path)}: line {line}, column {column}: {problem}")

"""Recordings of a gyroscope beside a reference attitude, as CSV files (plain or gzip).

Columns, in any order, by the names of the first line: ``t`` [s]; ``gyr_x, gyr_y, gyr_z`` [rad/s,
sensor axes]; ``q_w, q_x, q_y, q_z`` (sensor to world, all four cells empty where the reference was
lost); ``movement`` (1 during the movement phase, 0 at rest). Other columns are ignored.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import zlib
from collections.abc import Iterator
from typing import NamedTuple, TextIO, cast

import numpy as np

from jaxquat._checks import finite, instance, not_negative, place, real

__all__ = ["COLUMNS", "Recording", "read", "write"]

_GYRO = ("gyr_x", "gyr_y", "gyr_z")
_ATTITUDE = ("q_w", "q_x", "q_y", "q_z")
COLUMNS = ("t", *_GYRO, *_ATTITUDE, "movement")
"""Names that the first line of a file must have."""


class Recording(NamedTuple):
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
        """The sampling interval [s]: the mean one. ValueError where a sample is off its time by more than ``tolerance`` of it.

        Beyond that a sample may be off by one in the last decimal of t, where that is less than
        half the interval. Of times with coarser decimals, such as 600 Hz in milliseconds, nothing
        tells whether a sample is missing: give ``tolerance=1.0`` to take them.
        """
        tolerance = real("tolerance", tolerance)
        not_negative("tolerance", tolerance)
        mean = (self.t[-1] - self.t[0]) / (len(self.t) - 1)
        off = np.abs(self.t - (self.t[0] + mean * np.arange(len(self.t))))
        worst, digit = int(np.argmax(off)), _last_decimal(self.t)
        if off[worst] > tolerance * mean + (
            digit if 2.0 * digit < mean else 0.0
        ) + 4.0 * np.spacing(np.abs(self.t).max()):
            due = self.t[0] + mean * worst
            raise ValueError(
                f"t: wanted samples {mean:.6g} s apart to {tolerance:g} of it, got t = {self.t[worst]} where {due:.6g} was due"
            )
        return float(mean)


def read(path: str | os.PathLike) -> Recording:
    """The recording in a ``.csv`` or ``.csv.gz`` file.

    Raises:
        ValueError: the file is malformed; the message names file, line and column.
        OSError: it cannot be opened.
    """
    rows, previous = [], -math.inf
    for line, cells in _lines(path):
        row = [_number(path, line, name, cells[name], name in _ATTITUDE) for name in COLUMNS]
        lost = [math.isnan(x) for x in row[4:8]]
        if any(lost) and not all(lost):
            raise _malformed(
                path,
                line,
                _ATTITUDE[lost.index(True)],
                "wanted all four of q_w, q_x, q_y, q_z or none, got it empty",
            )
        norm = math.hypot(*row[4:8])
        if abs(norm - 1.0) > 1e-2:
            raise _malformed(
                path,
                line,
                "q_w",
                f"wanted a unit quaternion in q_w, q_x, q_y, q_z, got norm {norm:.6g}",
            )
        if not row[0] > previous:
            raise _malformed(path, line, "t", f"wanted a time after {previous}, got {row[0]}")
        if row[8] not in (0.0, 1.0):
            raise _malformed(path, line, "movement", f"wanted 0 or 1, got {cells['movement']!r}")
        previous = row[0]
        rows.append(row)
    if len(rows) < 2:
        raise ValueError(
            f"{os.fspath(path)}: wanted at least two rows of numbers below the header, got {len(rows)}"
        )
    table = np.array(rows)
    return Recording(table[:, 0], table[:, 1:4], table[:, 4:8], table[:, 8] == 1.0)


def write(path: str | os.PathLike, recording: Recording) -> None:
    """The file that ``read`` reads, to the last bit; compressed if its name ends in .gz.

    ValueError or TypeError, with the field, for a recording that ``read`` would refuse.
    """
    recording = _checked(recording)
    with _opened(path, "wt") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for t, gyro, q, movement in zip(*recording, strict=True):
            cells = ["" if math.isnan(x) else repr(float(x)) for x in (t, *gyro, *q)]
            writer.writerow([*cells, int(movement)])


def _checked(recording: Recording) -> Recording:
    instance("recording", recording, Recording, "a recordings.Recording")
    wanted = {"t": ("N",), "gyro": ("N", 3), "q": ("N", 4), "movement": ("N",)}
    rows = np.shape(recording.t)[:1]
    for (name, core), value in zip(wanted.items(), recording, strict=True):
        array = np.asarray(value)
        if array.shape != (*rows, *core[1:]) or array.shape[0] < 2 or array.dtype.kind not in "bif":
            raise ValueError(
                f"recording.{name}: wanted numbers of shape ({', '.join(map(str, core))}), N >= 2, got {array!r}"
            )
    t, gyro, q, movement = (np.asarray(value) for value in recording)
    lost = np.isnan(q)
    finite("recording.t", t)
    finite("recording.gyro", gyro)
    if not np.all(np.diff(t) > 0):
        raise ValueError(f"recording.t: wanted times that increase, got {t}")
    if np.any(lost.any(axis=1) != lost.all(axis=1)) or np.any(
        np.abs(np.linalg.norm(q[~lost.any(axis=1)], axis=1) - 1.0) > 1e-2
    ):
        raise ValueError(f"recording.q: wanted unit quaternions, or NaN in all four, got {q}")
    if not np.all((movement == 0) | (movement == 1)):
        raise ValueError(f"recording.movement: wanted 0 or 1, got {movement}")
    return recording


def _last_decimal(t: np.ndarray) -> float:
    """The unit of the last decimal that any of the times has, 0.001 for milliseconds."""
    rounding = 4.0 * np.spacing(np.abs(t).max())
    return next(
        (10.0**-k for k in range(18) if np.all(np.abs(np.round(t, k) - t) <= rounding)), 0.0
    )


def _opened(path: str | os.PathLike, mode: str) -> TextIO:
    opener = gzip.open if place("path", path).suffix == ".gz" else open
    return cast(
        TextIO, opener(path, mode, newline="", encoding="utf-8-sig" if "r" in mode else "utf-8")
    )


def _lines(path: str | os.PathLike) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells by column name of every line below the header that is not blank."""
    with _opened(path, "rt") as file:
        reader = csv.reader(file)
        try:
            header = [name.strip() for name in next(reader, [])]
            for name in COLUMNS:
                if header.count(name) != 1:
                    problem = (
                        "missing from the header"
                        if name not in header
                        else "more than once in the header"
                    )
                    raise _malformed(
                        path, 1, name, f"{problem}, got {','.join(header) or 'an empty file'}"
                    )
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    name = header[min(len(cells), len(header) - 1)]
                    raise _malformed(
                        path, reader.line_num, name, f"wanted {len(header)} cells, got {len(cells)}"
                    )
                yield reader.line_num, dict(zip(header, cells, strict=True))
        except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{os.fspath(path)}: line {reader.line_num + 1}: cannot be read as CSV text, {error}"
            ) from error


def _number(path: str | os.PathLike, line: int, name: str, text: str, may_be_empty: bool) -> float:
    if may_be_empty and not text.strip():
        return math.nan
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise _malformed(path, line, name, f"wanted a number, got {text!r}")
    return value


def _malformed(path: str | os.PathLike, line: int, column: str, problem: str) -> ValueError:
    return ValueError(f"{os.fspath(path)}: line {line}, column {column}: {problem}")

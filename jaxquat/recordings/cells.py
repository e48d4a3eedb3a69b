"""The numbers in the cells of a text file, and the line and column of a wrong one."""

from __future__ import annotations

import array
import math
import os
from collections.abc import Mapping, Sequence

import numpy as np

from jaxquat.recordings.headers import Header, positions, rows_of
from jaxquat.recordings.recording import FITS, sample_problems

Path = str | os.PathLike[str]
# The columns of every channel: the name of one, which makes it (N,), or names, (N, k).
Columns = Mapping[str, str | tuple[str, ...]]


def malformed(path: Path, line: int, column: str, problem: str) -> ValueError:
    """Return the error that names file, line and column."""
    return ValueError(f"{os.fspath(path)}: line {line}, column {column}: {problem}")


def names_of(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the columns of a channel."""
    return (value,) if isinstance(value, str) else value


def place_of(path: Path, header: Header, column: str) -> int:
    """Return the position of a column, or raise ValueError if it is not there once."""
    places = positions(header, column)
    if len(places) == 1:
        return places[0]
    problem = "more than once in" if places else "missing from"
    problem += " the header, got " if header.line else " the first row, whose columns are "
    problem += ", ".join(header.names) or "an empty file"
    if header.line and not places:
        problem += '; columns={"t": ..., "gyro": (...)} names those of the file, units= their units'
        problem += "; its header is the first line that is no comment"
    raise malformed(path, header.line or 1, column, problem)


def numbers_of(
    path: Path, text: str, header: Header, columns: Columns, duplicates: str
) -> dict[str, np.ndarray]:
    """Return times and numbers of every channel below the header; ``duplicates`` as in ``read``."""
    names = [column for value in columns.values() for column in names_of(value)]
    places = [place_of(path, header, column) for column in names]
    width, lines, numbers = len(header.names), [], array.array("d")
    for line, cells in rows_of(path, text, header):
        if len(cells) != width:
            problem = f"wanted {width} cells, got {len(cells)}"
            raise malformed(path, line, header.names[min(len(cells), width - 1)], problem)
        try:
            numbers.extend(map(_number, [cells[k] for k in places]))
        except ValueError:  # the array ends before the cell
            k = len(numbers) % len(names)
            problem = f"wanted a number, got {cells[places[k]]!r}"
            raise malformed(path, line, names[k], problem) from None
        lines.append(line)
    table, values = np.array(numbers).reshape(len(lines), len(names)), {}
    for name, value in columns.items():
        count = len(names_of(value))
        values[name], table = table[:, :count], table[:, count:]
        values[name] = values[name][:, 0] if isinstance(value, str) else values[name]
        for row, problem in sample_problems(name, values[name]):
            raise malformed(path, lines[row], names_of(value)[0], problem)
    if not columns["t"]:
        values["t"] = np.arange(float(len(lines)))
    _check_order(path, lines, columns, values["t"], duplicates)
    return _merged(path, lines, columns, values) if duplicates == "merge" else values


def _number(cell: str) -> float:
    """Return the number in a cell, NaN if it is empty."""
    if "_" in cell or not cell.isascii():  # Python takes 1_0 and Arabic digits
        raise ValueError
    return float(cell) if cell.strip() else math.nan


def _check_order(
    path: Path, lines: Sequence[int], columns: Columns, t: np.ndarray, duplicates: str
) -> None:
    """Raise ValueError if a time is missing, or in an order that ``duplicates`` does not allow."""
    column = str(columns["t"])
    for k in np.flatnonzero(np.isnan(t))[:1]:
        raise malformed(path, lines[k], column, "wanted a time, got none")
    steps = np.diff(t)
    wrong = {"raise": steps <= 0, "merge": steps < 0}.get(duplicates, [])
    for k in np.flatnonzero(wrong)[:1]:
        remedy = 'duplicates="merge" makes rows of one time one row, "keep" keeps all'
        problem = f"wanted a time after {t[k]}, got {t[k + 1]}; {remedy}; {FITS}"
        raise malformed(path, lines[k + 1], column, problem)


def _merged(
    path: Path, lines: Sequence[int], columns: Columns, values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the numbers with one row per time, if no channel has two different samples there."""
    is_new = np.diff(values["t"], prepend=np.nan) != 0
    of_row, merged = np.cumsum(is_new) - 1, {"t": values["t"][is_new]}
    for name in [name for name in values if name != "t"]:
        x = values[name]
        rows = np.flatnonzero(~np.isnan(x if x.ndim == 1 else x[:, 0]))
        merged[name] = np.full((is_new.sum(), *x.shape[1:]), np.nan)
        merged[name][of_row[rows]] = x[rows]
        for k in rows[np.any(np.c_[merged[name][of_row[rows]] != x[rows]], axis=1)][:1]:
            problem = f"wanted one sample of {name} at this time, got another one below"
            raise malformed(path, lines[k], names_of(columns[name])[0], problem)
    return merged

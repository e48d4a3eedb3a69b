"""The numbers in the cells of a table, and which line and column is wrong if one is."""

from __future__ import annotations

import csv
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TextIO

import numpy as np

from jaxquat.sensing.recordings.recording import UNIT_NORM

_BLOCK = 10_000  # lines that are read at once


class Channel(NamedTuple):
    """What is read from which columns."""

    name: str
    columns: tuple[str, ...]
    is_vector: bool  # (N, k) and not (N,)
    may_be_missing: bool  # in some rows, in all its cells


class Rows:
    """The rows of a CSV file, an iterator.

    A quote that is not closed is a ``csv.Error``: the csv module would otherwise take all lines
    from there to the next quote, or to the end of the file, for one cell.

    Attributes:
        line: the line on which the last row began, 1 for the first line.
    """

    def __init__(self, file: TextIO) -> None:
        self._reader = csv.reader(file, strict=True)
        self.line = 1

    def __iter__(self) -> Rows:
        return self

    def __next__(self) -> list[str]:
        self.line = self._reader.line_num + 1
        return next(self._reader)


def blocks_of(
    path: str | os.PathLike,
    rows: Rows,
    header: list[str],
    channels: Sequence[Channel],
    places: Mapping[str, list[tuple[int, float]]],
) -> Iterator[list[np.ndarray]]:
    """The numbers of every channel, (rows, k), for the lines below the header that are not blank.

    A block in which nothing is missing or wrong is read by columns; any other one by rows, which
    finds the line.
    """
    lines = ((rows.line, cells) for cells in rows if cells)
    stamp, previous = places["t"][0][0], ""
    while block := list(itertools.islice(lines, _BLOCK)):
        values = _columns(block, len(header), channels, places, previous)
        if values is None:
            samples = list(_rows(path, block, header, channels, places, previous))
            values = [np.array(of_one) for of_one in zip(*samples, strict=True)]
        previous = block[-1][1][stamp].strip()
        yield values


def _columns(
    block: list[tuple[int, list[str]]],
    width: int,
    channels: Sequence[Channel],
    places: Mapping[str, list[tuple[int, float]]],
    previous: str,
) -> list[np.ndarray] | None:
    """The numbers of a block, or None if a cell is no finite number or a check fails."""
    if any(len(cells) != width for _, cells in block):
        return None
    values = []
    for channel in channels:
        columns = [[cells[k] for _, cells in block] for k, _ in places[channel.name]]
        if any("_" in (text := "".join(column)) or not text.isascii() for column in columns):
            return None
        try:
            numbers = np.array([list(map(float, column)) for column in columns]).T
        except ValueError:
            return None
        off = np.abs(np.linalg.norm(numbers, axis=1) - 1.0) if channel.name == "q" else 0.0
        is_bad = channel.name == "movement" and not np.all((numbers == 0.0) | (numbers == 1.0))
        if is_bad or not np.all(np.isfinite(numbers)) or np.any(off > UNIT_NORM):
            return None
        values.append(numbers)
    t = np.append(float(previous or "-inf"), values[0])
    return values if np.all(np.diff(t) > 0) else None


def _rows(
    path: str | os.PathLike,
    block: list[tuple[int, list[str]]],
    header: list[str],
    channels: Sequence[Channel],
    places: Mapping[str, list[tuple[int, float]]],
    previous: str,
) -> Iterator[list[list[float]]]:
    """The numbers of every channel for every line; ValueError with the first one that is wrong.

    ``previous`` is the time before, as in the file, "" at the beginning.
    """
    for line, cells in block:
        if len(cells) != len(header):
            name = header[min(len(cells), len(header) - 1)]
            raise malformed(path, line, name, f"wanted {len(header)} cells, got {len(cells)}")
        row = []
        for channel in channels:
            texts = [cells[k] for k, _ in places[channel.name]]
            numbers = _numbers(path, line, channel, texts)
            _check_sample(path, line, channel, numbers, texts)
            row.append(numbers)
        t, before, text = row[0][0], float(previous or "-inf"), cells[places["t"][0][0]].strip()
        if not t > before:
            problem = f"wanted a time after {before}, got {t}"
            if t == before and text != previous:
                problem = f"wanted times that differ in float64, got {previous} and {text}"
            raise malformed(path, line, channels[0].columns[0], problem)
        previous = text
        yield row


def _numbers(path: str | os.PathLike, line: int, channel: Channel, texts: list[str]) -> list[float]:
    """The numbers in the cells of a channel; all NaN where it may be missing and is."""
    missing = [text.strip().lower() in ("", "nan") for text in texts]
    if channel.may_be_missing and any(missing):
        if all(missing):
            return [math.nan] * len(texts)
        problem = f"wanted all of {', '.join(channel.columns)} or none, got it empty"
        raise malformed(path, line, channel.columns[missing.index(True)], problem)
    numbers = []
    for column, text in zip(channel.columns, texts, strict=True):
        try:
            plain = text.isascii() and "_" not in text  # Python takes 1_0 and Arabic digits
            value = float(text) if plain else math.nan
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise malformed(path, line, column, f"wanted a number, got {text!r}")
        numbers.append(value)
    return numbers


def _check_sample(
    path: str | os.PathLike, line: int, channel: Channel, numbers: list[float], texts: list[str]
) -> None:
    """ValueError for an attitude that is not unit, or a movement that is not 0 or 1."""
    first = channel.columns[0]
    if channel.name == "q" and abs(math.hypot(*numbers) - 1.0) > UNIT_NORM:
        names = ", ".join(channel.columns)
        got = f"got norm {math.hypot(*numbers):.6g}"
        raise malformed(path, line, first, f"wanted a unit quaternion in {names}, {got}")
    if channel.name == "movement" and numbers[0] not in (0.0, 1.0):
        raise malformed(path, line, first, f"wanted 0 or 1, got {texts[0]!r}")


def malformed(path: str | os.PathLike, line: int, column: str, problem: str) -> ValueError:
    """The error that names file, line and column."""
    return ValueError(f"{os.fspath(path)}: line {line}, column {column}: {problem}")

"""The numbers in the cells of a text file, and the line and column of a wrong one.

Python's ``csv`` in its strict form refuses a quote that is not closed, and tells a short line from
one with empty cells.
"""

from __future__ import annotations

import csv
import itertools
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from jaxquat.recordings.headers import Header, floats_of, lines_of
from jaxquat.recordings.recording import FITS, sample_problems

_BLOCK = 10_000  # rows that are converted at once


class Channel(NamedTuple):
    """A channel, its columns, their places and units; "t" without columns is the row's number."""

    name: str
    columns: tuple[str, ...]
    is_vector: bool  # (N, k) and not (N,)
    places: Sequence[int] = ()
    units: Sequence[str | float | None] = ()


# The line on which a row of numbers begins, its number from 0 on, and its cells.
Row = tuple[int, int, list[str]]
Problem = tuple[int, str, str]  # the row in its block, the column, what is wrong


def numbers_of(
    path: str | os.PathLike[str],
    text: str,
    header: Header,
    channels: Sequence[Channel],
    *,
    duplicates: str,
    skip_damaged: bool,
) -> list[np.ndarray]:
    """Return the numbers of every channel, (times, k), below the header; options as in ``read``."""
    rows, time = _rows(path, text, header), channels[0]
    blocks, lines, skipped, last = [], [], [], (-math.inf, "")
    while block := list(itertools.islice(rows, _BLOCK)):
        values, problems = _values(block, header, channels)
        if problems and skip_damaged:
            first = {k: (column, reason) for k, column, reason in reversed(problems)}
            for k, (column, reason) in sorted(first.items()):
                skipped.append(f"line {block[k][0]}, column {column}: {reason}")
            good = [k for k in range(len(block)) if k not in first]
            block, values, problems = [block[k] for k in good], [x[good] for x in values], []
        if duplicates != "keep" and time.places and block:
            stamps = [cells[time.places[0]].strip() for _, _, cells in block]
            times = np.append(last[0], values[0])
            problems += itertools.islice(_time_problems(time, times, [last[1], *stamps]), 1)
            last = values[0][-1, 0], stamps[-1]
        if problems:
            k, *problem = min(problems, key=lambda problem: problem[0])
            raise malformed(path, block[k][0], *problem)
        blocks.append(values)
        lines += [line for line, _, _ in block]
    if skipped:
        more = f" and {len(skipped) - 5} more" if len(skipped) > 5 else ""
        problem = f"skipped {len(skipped)} lines: {'; '.join(skipped[:5])}{more}"
        warnings.warn(f"{os.fspath(path)}: {problem}", RuntimeWarning, stacklevel=4)
    if not blocks:
        return [np.empty((0, len(channel.columns) or 1)) for channel in channels]
    arrays = [np.concatenate(of_one) for of_one in zip(*blocks, strict=True)]
    return arrays if duplicates == "keep" else _by_time(path, lines, channels, arrays, duplicates)


def _rows(path: str | os.PathLike[str], text: str, header: Header) -> Iterator[Row]:
    lines = itertools.islice(lines_of(text), header.line, None)
    if header.separator == " ":
        lines = (" ".join(line.split()) for line in lines)
    if "#" in text:
        lines = ("\n" if line.startswith("#") else line for line in lines)
    reader = csv.reader(lines, delimiter=header.separator, strict=True)
    line, number = header.line + 1, 0
    try:
        for cells in reader:
            if any(cells):
                yield line, number, cells
                number += 1
            line = header.line + reader.line_num + 1
    except csv.Error as error:
        problem = f"cannot be read as CSV text, {error}; is a quote there not closed?"
        raise ValueError(f"{os.fspath(path)}: line {line}: {problem}") from error


def _values(
    block: Sequence[Row], header: Header, channels: Sequence[Channel]
) -> tuple[list[np.ndarray], list[Problem]]:
    """Return the numbers of every channel in these rows, (rows, k), and what is wrong."""
    rows = [cells for _, _, cells in block]
    problems, values = list(_width_problems(rows, header)), []
    for channel in channels:
        if channel.places:
            cells = [[row[k] for row in rows] for k in channel.places]
            numbers = np.array([floats_of(column) for column in cells]).T
            problems += _problems(channel, numbers, cells)
        else:
            numbers = np.array([[number] for _, number, _ in block], float)
        values.append(numbers)
    return values, problems


def _by_time(
    path: str | os.PathLike[str],
    lines: Sequence[int],
    channels: Sequence[Channel],
    arrays: Sequence[np.ndarray],
    duplicates: str,
) -> list[np.ndarray]:
    """Return the numbers (times, k) with one row per time, by ``duplicates`` of ``read``."""
    is_new = np.append(True, np.diff(arrays[0][:, 0]) != 0)
    if not lines or is_new.all():
        return list(arrays)
    time_of, merged, conflicts = np.cumsum(is_new) - 1, [], []
    for channel, numbers in zip(channels, arrays, strict=True):
        samples = np.flatnonzero(~np.isnan(numbers[:, 0]))  # its cells are all empty or all filled
        times = time_of[samples]
        values = np.full((time_of[-1] + 1, numbers.shape[1]), np.nan)
        order = samples if duplicates == "last" else samples[::-1]
        values[time_of[order]] = numbers[order]  # of equal indices NumPy takes the last
        merged.append(values)
        differs = numbers[samples] != values[times]
        for k in np.flatnonzero(differs.any(axis=1))[:1]:
            row, other = int(samples[k]), int(samples[np.searchsorted(times, times[k])])
            column = int(np.argmax(differs[k]))
            problem = (
                f"wanted {numbers[other, column]}, as in line {lines[other]} of the same time, got "
                f'{numbers[row, column]}; duplicates="first" or "last" keeps one'
            )
            conflicts.append((lines[row], channel.columns[column], problem))
    if duplicates == "raise":
        k = int(np.argmin(is_new))
        before, t = arrays[0][k - 1 : k + 1, 0]
        remedy = '"merge" makes them one row'
        if conflicts:
            remedy = '"first" or "last" keeps one sample of each channel'
        remedy += f', "keep" all rows; {FITS}'
        problem = f"wanted a time after {before}, got {t}; duplicates={remedy}"
        raise malformed(path, lines[k], channels[0].columns[0], problem)
    if duplicates == "merge" and conflicts:
        raise malformed(path, *min(conflicts))
    return merged


def malformed(path: str | os.PathLike[str], line: int, column: str, problem: str) -> ValueError:
    """Return the error that names file, line and column."""
    return ValueError(f"{os.fspath(path)}: line {line}, column {column}: {problem}")


def _width_problems(rows: Sequence[list[str]], header: Header) -> Iterator[Problem]:
    """Find rows of too few or too many cells, and fill short ones; ignore empty ends."""
    width = len(header.names)
    for k, cells in enumerate(rows):
        count = len(cells)
        if count < width or any(cells[width:]):
            yield k, header.names[min(count, width - 1)], f"wanted {width} cells, got {count}"
        cells += [""] * (width - count)


def _problems(channel: Channel, numbers: np.ndarray, cells: list[list[str]]) -> Iterator[Problem]:
    """Find cells that are no numbers, and rows that are no samples of the channel."""
    missing = np.zeros(numbers.shape, bool)
    for row, column in np.argwhere(~np.isfinite(numbers)):
        text = cells[column][row]
        if channel.name != "t" and text.strip().lower() in ("", "nan"):
            missing[row, column] = True
        else:
            hint = "; write points for decimals, and nothing between thousands"
            problem = f"wanted a number, got {text!r}{hint if ',' in text else ''}"
            yield int(row), channel.columns[column], problem
    for row in np.flatnonzero(missing.any(axis=1) & ~missing.all(axis=1)):
        problem = f"wanted all of {', '.join(channel.columns)} or none, got it empty"
        yield int(row), channel.columns[int(np.argmax(missing[row]))], problem
    samples = numbers if channel.is_vector else numbers[:, 0]
    for row, problem in sample_problems(channel.name, samples):
        yield row, channel.columns[0], problem


def _time_problems(time: Channel, times: np.ndarray, stamps: list[str]) -> Iterator[Problem]:
    """Find times before the one above, or equal to it only in float64; ``stamps`` are texts."""
    for k in np.flatnonzero(~(np.diff(times) > 0)):
        before, t = times[k : k + 2]
        problem = f'wanted a time after {before}, got {t}; duplicates="keep" keeps the row; {FITS}'
        if t == before:
            if Decimal(stamps[k]) == Decimal(stamps[k + 1]):
                continue
            problem = f"wanted times that differ in float64, got {stamps[k]} and {stamps[k + 1]}"
        yield int(k), time.columns[0], problem

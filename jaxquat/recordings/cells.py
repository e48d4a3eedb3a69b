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
from jaxquat.recordings.recording import FITS, sample_problem

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
Problem = tuple[int, str, str] | None  # the row in its block, the column, what is wrong


def numbers_of(
    path: str | os.PathLike[str],
    text: str,
    header: Header,
    channels: Sequence[Channel],
    *,
    decimal: str,
    duplicates: str,
    skip_damaged: bool,
) -> list[np.ndarray]:
    """Return the numbers of every channel, (times, k), below the header; options as in ``read``."""
    rows, time = _rows(path, text, header), channels[0]
    blocks, lines, skipped, last = [], [], [], (-math.inf, "")
    while block := list(itertools.islice(rows, _BLOCK)):
        values, problem = _values(block, header, channels, decimal)
        while problem and skip_damaged:
            k, column, reason = problem
            skipped.append(f"line {block[k][0]}, column {column}: {reason}")
            del block[k]
            values, problem = _values(block, header, channels, decimal)
        if duplicates != "keep" and time.places and block:
            stamps = [cells[time.places[0]].strip().replace(decimal, ".") for _, _, cells in block]
            at = _time_problem(time, np.append(last[0], values[0]), [last[1], *stamps])
            problem = _first(problem, at)
            last = values[0][-1, 0], stamps[-1]
        if problem:
            raise malformed(path, block[problem[0]][0], *problem[1:])
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
    block: Sequence[Row], header: Header, channels: Sequence[Channel], decimal: str
) -> tuple[list[np.ndarray], Problem]:
    """Return the numbers of every channel in these rows, (rows, k), and the first problem."""
    rows = [cells for _, _, cells in block]
    problems, values = [_width_problem(rows, header)], []
    for channel in channels:
        cells = [[row[k] for row in rows] for k in channel.places]
        if channel.places:
            numbers, problem = _channel(channel, cells, decimal)
        else:
            numbers, problem = np.array([[number] for _, number, _ in block], float), None
        values.append(numbers)
        problems.append(problem)
    return values, _first(*problems)


def _first(*problems: Problem) -> Problem:
    return min(filter(None, problems), key=lambda problem: problem[0], default=None)


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


def _width_problem(rows: Sequence[list[str]], header: Header) -> Problem:
    """Find the first row of too few or too many cells, and fill short ones; ignore empty ends."""
    problem, width = None, len(header.names)
    for k, cells in enumerate(rows):
        if len(cells) != width:
            if problem is None and (len(cells) < width or any(cells[width:])):
                column = header.names[min(len(cells), width - 1)]
                problem = k, column, f"wanted {width} cells, got {len(cells)}"
            cells += [""] * (width - len(cells))
    return problem


def _channel(channel: Channel, cells: list[list[str]], decimal: str) -> tuple[np.ndarray, Problem]:
    numbers = np.array([floats_of(column, decimal) for column in cells]).T
    bad = ~np.isfinite(numbers)
    missing = np.zeros(numbers.shape, bool)
    if channel.name != "t":
        for row, column in np.argwhere(bad):
            missing[row, column] = cells[column][row].strip().lower() in ("", "nan")
    for row, column in np.argwhere(bad & ~missing)[:1]:
        text = cells[column][row]
        problem = f"wanted a number, got {text!r}{_hint(text, decimal)}"
        return numbers, (row, channel.columns[column], problem)
    for row in np.flatnonzero(missing.any(axis=1) & ~missing.all(axis=1))[:1]:
        problem = f"wanted all of {', '.join(channel.columns)} or none, got it empty"
        return numbers, (row, channel.columns[int(np.argmax(missing[row]))], problem)
    if problem := sample_problem(channel.name, numbers if channel.is_vector else numbers[:, 0]):
        return numbers, (problem[0], channel.columns[0], problem[1])
    return numbers, None


def _hint(text: str, decimal: str) -> str:
    if "," in text and text.count(",") + text.count(".") > 1:
        return "; separators of thousands are not read"
    return '; decimal="," reads it' if decimal == "." and "," in text else ""


def _time_problem(time: Channel, times: np.ndarray, stamps: list[str]) -> Problem:
    """Find a time before the one above, or equal to it only in float64; ``stamps`` are texts."""
    for k in np.flatnonzero(~(np.diff(times) > 0)):
        before, t = times[k : k + 2]
        if t == before and Decimal(stamps[k]) == Decimal(stamps[k + 1]):
            continue
        problem = f'wanted a time after {before}, got {t}; duplicates="keep" keeps the row; {FITS}'
        if t == before:
            problem = f"wanted times that differ in float64, got {stamps[k]} and {stamps[k + 1]}"
        return int(k), time.columns[0], problem
    return None

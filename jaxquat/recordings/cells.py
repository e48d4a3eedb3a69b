"""The numbers in the cells of a text file, and which line and column is wrong if one is.

A file is split by Python's ``csv`` in its strict form. That refuses a quote that is not closed, and
tells a line that was cut short from one with empty cells; readers of whole tables do neither.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from jaxquat._checks import place
from jaxquat.recordings.columns import name_and_unit
from jaxquat.recordings.recording import UNIT_NORM
from jaxquat.recordings.ulog_messages import MAGIC

_SEPARATORS = ",;\t "
_BEFORE = 1000  # lines among which the header is looked for
_BLOCK = 10_000  # rows that are converted at once


class Channel(NamedTuple):
    """What is read from which columns."""

    name: str
    columns: tuple[str, ...]
    is_vector: bool  # (N, k) and not (N,)
    may_be_missing: bool  # in some rows, in all its cells


class Header(NamedTuple):
    """The names of a file's columns, where they stand, and what separates the cells."""

    names: list[str]
    line: int  # 0 if there is none; the last one of several
    separator: str
    is_numbered: bool = False


class Block(NamedTuple):
    """Some rows of a file: the cells, and the line on which each row begins."""

    lines: list[int]
    rows: list[list[str]]


def text_of(path: str | os.PathLike) -> str:
    """The text of a file in UTF-8 or else Latin-1, plain or gzip. ValueError if it is no text."""
    file = place("path", path)
    content = file.read_bytes()
    if content.startswith(MAGIC) or file.suffix == ".ulg":
        got = "got a PX4 log; recordings.read_ulog reads it"
        raise ValueError(f"{file}: wanted a text file, {got}")
    try:
        is_gzip = file.suffix == ".gz" or content.startswith(b"\x1f\x8b")
        content = gzip.decompress(content) if is_gzip else content
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{file}: cannot be read as CSV text, {error}") from error
    try:
        text = content.decode("utf-8-sig")  # a byte order mark is no part of a name
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    if "\0" in text:
        raise ValueError(f"{file}: cannot be read as CSV text, it has NUL characters (UTF-16?)")
    return text


def header_of(text: str, columns: Sequence[str], decimal: str) -> Header:
    """The first line that names all these columns, or of several comments that do so the last one.

    Where there is none, it is the first line that is not blank. The separator is the one with which
    the line has all the names, or else the one that gives the most cells.
    """
    marks = _SEPARATORS.replace(decimal, "")
    first = comment = None
    for number, line in enumerate(itertools.islice(_lines(text), _BEFORE), 1):
        if not line.strip():
            continue
        candidates = [Header(_cells(line, mark), number, mark) for mark in marks]
        named = [header for header in candidates if _has(header, columns)]
        if not line.lstrip().startswith("#"):
            if named:
                return named[0]
            if comment:
                return comment
        elif named:
            comment = named[0]
        first = first or max(candidates, key=lambda header: len(header.names))
    return comment or first or Header([], 1, marks[0])


def positions(header: Header, column: str) -> list[int]:
    """Where the columns of this name are, or the one of this number."""
    if header.is_numbered:
        return [int(column)] if int(column) < len(header.names) else []
    return [k for k, cell in enumerate(header.names) if is_named(cell, column)]


def _has(header: Header, columns: Sequence[str]) -> bool:
    return all(positions(header, column) for column in columns)


def numbered_header(text: str, columns: Sequence[str], decimal: str) -> Header:
    """The header of a file whose columns are numbered: the lines above its first row of numbers.

    That is the first line with a number in one of these columns. The separator is one with which
    they are numbers there, or at least are there. A column without a name has its number as name.
    """
    lines = enumerate(itertools.islice(_lines(text), _BEFORE))
    lines = [(k, text) for k, text in lines if text.strip() and not text.lstrip().startswith("#")]
    numbers, marks = list(map(int, columns)), _SEPARATORS.replace(decimal, "")

    def suits(row: list[str]) -> tuple[int, int]:
        here = [row[k] for k in numbers if k < len(row)]
        return sum(map(math.isfinite, _floats(here, decimal))), len(row)

    def parted(line: str) -> tuple[str, list[str]]:
        return max(
            ((mark, _cells(line, mark)) for mark in marks), key=lambda cells: suits(cells[1])
        )

    are_rows = (suits(parted(line)[1])[0] > 0 for _, line in lines)
    first = next(itertools.compress(itertools.count(), are_rows), 0)
    mark, row = parted(lines[first][1] if lines else "")
    above = [_cells(line, mark) for _, line in lines[:first]]
    names = [_joined([line[k] for line in above if k < len(line)], k) for k in range(len(row))]
    return Header(names, lines[first - 1][0] + 1 if first else 0, mark, True)


def _joined(cells: list[str], number: int) -> str:
    """The name of a column from the cells above it, with the last unit that one of them has."""
    parts = [name_and_unit(cell) for cell in cells]
    name = " ".join(name for name, _ in parts if name) or str(number)
    return name + "".join([f" [{unit}]" for _, unit in parts if unit][-1:])


def is_named(cell: str, column: str) -> bool:
    """Whether a cell of the header has this name, with or without a unit after it."""
    return column in (cell, name_and_unit(cell)[0])


def numbers_of(
    path: str | os.PathLike,
    text: str,
    header: Header,
    channels: Sequence[Channel],
    columns: Mapping[str, list[int]],
    *,
    decimal: str,
    duplicates: str,
) -> list[np.ndarray]:
    """The numbers of every channel, (times, k), of the lines below the header.

    ``columns`` has for each channel where its columns are; ``decimal`` and ``duplicates`` are
    arguments of ``read``. Blank lines, lines of empty cells and lines that begin with "#" have no
    numbers.
    """
    blocks, lines, stamp, previous = [], [], columns["t"][0], ""
    for block in _blocks(path, text, header):
        problems = [_width_problem(block, header)]
        values = []
        for channel in channels:
            cells = [[row[k] for row in block.rows] for k in columns[channel.name]]
            numbers, problem = _channel(channel, cells, decimal)
            values.append(numbers)
            problems.append(problem)
        stamps = [previous, *(row[stamp].strip() for row in block.rows)]
        first = blocks[-1][0][-1:] if blocks else np.array([[-math.inf]])
        times = np.concatenate([first, values[0]])[:, 0]
        stamps = [stamp.replace(decimal, ".") for stamp in stamps]
        problems.append(_time_problem(channels[0], times, stamps))
        for k, column, problem in sorted(filter(None, problems), key=lambda found: found[0])[:1]:
            raise malformed(path, block.lines[k], column, problem)
        previous = stamps[-1]
        blocks.append(values)
        lines += block.lines
    arrays = [np.concatenate(of_one) for of_one in zip(*blocks, strict=True)]
    return _by_time(path, lines, channels, arrays, duplicates) if blocks else []


def _by_time(
    path: str | os.PathLike,
    lines: Sequence[int],
    channels: Sequence[Channel],
    arrays: Sequence[np.ndarray],
    duplicates: str,
) -> list[np.ndarray]:
    """The numbers of every channel, (times, k): rows of one time become one row.

    Each channel has its first sample of the time, or the last; ``duplicates="merge"`` refuses a
    time at which they differ, and "raise" every time that has several rows.
    """
    is_new = np.append(True, np.diff(arrays[0][:, 0]) != 0)
    if is_new.all():
        return list(arrays)
    time_of, merged, conflicts = np.cumsum(is_new) - 1, [], []
    for channel, numbers in zip(channels, arrays, strict=True):
        samples = np.flatnonzero(~np.isnan(numbers[:, 0]))  # of its cells all are empty or none
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
        problem = f"wanted a time after {before}, got {t}; duplicates={remedy}"
        raise malformed(path, lines[k], channels[0].columns[0], problem)
    if duplicates == "merge" and conflicts:
        raise malformed(path, *min(conflicts))
    return merged


def malformed(path: str | os.PathLike, line: int, column: str, problem: str) -> ValueError:
    """The error that names file, line and column."""
    return ValueError(f"{os.fspath(path)}: line {line}, column {column}: {problem}")


def _lines(text: str) -> Iterator[str]:
    return iter(io.StringIO(text, newline=""))


def _cells(line: str, separator: str) -> list[str]:
    """The cells of a line that may be a comment."""
    line = line.strip(" \r\n" if separator == "\t" else None).removeprefix("#")
    if separator == " ":
        return line.split()
    try:
        cells = next(csv.reader([line], delimiter=separator, strict=True), [])
    except csv.Error:  # a quote that is not closed
        return []
    return [cell.strip() for cell in cells]


def _blocks(path: str | os.PathLike, text: str, header: Header) -> Iterator[Block]:
    """The rows below the header, many at once; cells that are missing at the end are ""."""
    lines = itertools.islice(_lines(text), header.line, None)
    if header.separator == " ":
        lines = (" ".join(line.split()) for line in lines)
    if "#" in text:
        lines = ("\n" if line.startswith("#") else line for line in lines)
    reader = csv.reader(lines, delimiter=header.separator, strict=True)
    block, line = Block([], []), header.line + 1
    try:
        for row in reader:
            if any(row):
                block.lines.append(line)
                block.rows.append(row)
            line = header.line + reader.line_num + 1
            if len(block.rows) == _BLOCK:
                yield block
                block = Block([], [])
    except csv.Error as error:
        problem = f"cannot be read as CSV text, {error}; is a quote there not closed?"
        raise ValueError(f"{os.fspath(path)}: line {line}: {problem}") from error
    if block.rows:
        yield block


Problem = tuple[int, str, str] | None  # the row in its block, the column, what is wrong


def _width_problem(block: Block, header: Header) -> Problem:
    """A row of too few or too many cells. Empty ones more are none: spreadsheets write them.

    Rows that are too short are filled up.
    """
    problem, width = None, len(header.names)
    for k, row in enumerate(block.rows):
        if len(row) != width:
            if problem is None and (len(row) < width or any(row[width:])):
                column = header.names[min(len(row), width - 1)]
                problem = k, column, f"wanted {width} cells, got {len(row)}"
            row += [""] * (width - len(row))
    return problem


def _channel(channel: Channel, cells: list[list[str]], decimal: str) -> tuple[np.ndarray, Problem]:
    """The numbers of a channel, NaN where one is missing, and the first problem."""
    numbers = np.array([_floats(column, decimal) for column in cells]).T
    missing = np.zeros(numbers.shape, bool)
    bad = ~np.isfinite(numbers)
    if channel.may_be_missing:
        for row, column in np.argwhere(bad):
            missing[row, column] = cells[column][row].strip().lower() in ("", "nan")
        bad &= ~missing
    for row, column in np.argwhere(bad)[:1]:
        text = cells[column][row]
        hint = '; decimal="," reads it' if decimal == "." and "," in text else ""
        if "," in text and text.count(",") + text.count(".") > 1:
            hint = "; separators of thousands are not read"
        return numbers, (row, channel.columns[column], f"wanted a number, got {text!r}{hint}")
    names = ", ".join(channel.columns)
    for row in np.flatnonzero(missing.any(axis=1) & ~missing.all(axis=1))[:1]:
        problem = f"wanted all of {names} or none, got it empty"
        return numbers, (row, channel.columns[int(np.argmax(missing[row]))], problem)
    if channel.name == "q":
        norms = np.linalg.norm(numbers, axis=1)
        for row in np.flatnonzero(np.abs(norms - 1.0) > UNIT_NORM)[:1]:
            problem = f"wanted a unit quaternion in {names}, got norm {norms[row]:.6g}"
            return numbers, (row, channel.columns[0], problem)
    if channel.name == "movement":
        for row in np.flatnonzero(~missing[:, 0] & ~np.isin(numbers[:, 0], (0.0, 1.0)))[:1]:
            return numbers, (row, channel.columns[0], f"wanted 0 or 1, got {cells[0][row]!r}")
    return numbers, None


def _floats(cells: list[str], decimal: str) -> list[float]:
    """The numbers of cells, NaN where one is no decimal number."""
    if decimal == ",":
        cells = [cell.replace(",", ".") if "." not in cell else "" for cell in cells]
    text = "".join(cells)
    if text.isascii() and "_" not in text:  # Python takes 1_0 and Arabic digits
        try:
            return list(map(float, cells))
        except ValueError:
            pass
    return [_float(cell) for cell in cells]


def _float(cell: str) -> float:
    try:
        return float(cell) if cell.isascii() and "_" not in cell else math.nan
    except ValueError:
        return math.nan


def _time_problem(channel: Channel, times: np.ndarray, stamps: list[str]) -> Problem:
    """A time before the one above, or equal to it only in float64; ``stamps`` are the texts."""
    for k in np.flatnonzero(~(np.diff(times) > 0)):
        before, t = times[k : k + 2]
        if t == before and Decimal(stamps[k]) == Decimal(stamps[k + 1]):
            continue
        problem = f"wanted a time after {before}, got {t}"
        if t == before:
            problem = f"wanted times that differ in float64, got {stamps[k]} and {stamps[k + 1]}"
        return int(k), channel.columns[0], problem
    return None

"""The text of a file with a table, and its header: the names and places of its columns."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jaxquat._internal.checks import place
from jaxquat.recordings.columns import name_and_unit
from jaxquat.recordings.ulog_messages import MAGIC

_SEPARATORS = ",;\t "
_BEFORE = 1000  # lines among which the header is looked for


class Header(NamedTuple):
    """The names of a file's columns in their order, and the separator of the cells."""

    names: list[str]
    line: int  # 0 if there is none; the last one of several
    separator: str
    is_numbered: bool = False


def text_of(path: str | os.PathLike[str]) -> str:
    """Return the text of a file in UTF-8 or else Latin-1, plain or gzip."""
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


def header_of(text: str, columns: Sequence[str]) -> Header:
    """Return the first line, or the last of several comments, that names all these columns."""
    first = comment = None
    for number, line in enumerate(itertools.islice(lines_of(text), _BEFORE), 1):
        if not line.strip():
            continue
        candidates = [Header(_cells(line, mark), number, mark) for mark in _SEPARATORS]
        named = next((x for x in candidates if all(positions(x, one) for one in columns)), None)
        if line.lstrip().startswith("#"):
            comment = named or comment
        elif header := named or comment:
            return header
        first = first or max(candidates, key=lambda header: len(header.names))
    return comment or first or Header([], 1, ",")


def positions(header: Header, column: str) -> list[int]:
    """Return the positions of the columns of this name, or of the one of this number."""
    if header.is_numbered:
        return [int(column)] if int(column) < len(header.names) else []
    return [k for k, cell in enumerate(header.names) if is_named(cell, column)]


def numbered_header(text: str, columns: Sequence[str]) -> Header:
    """Return the header of numbered columns: the lines above the first number in one of them."""
    lines = enumerate(itertools.islice(lines_of(text), _BEFORE), 1)
    lines = [(k, text) for k, text in lines if text.strip() and not text.lstrip().startswith("#")]

    def numbers(cells: list[str]) -> int:
        chosen = [cells[int(k)] for k in columns if int(k) < len(cells)]
        return sum(map(math.isfinite, floats_of(chosen)))

    def parted(line: str) -> tuple[list[str], str]:
        split = [(_cells(line, mark), mark) for mark in _SEPARATORS]
        return max(split, key=lambda one: (numbers(one[0]), len(one[0])))

    first = next((k for k, (_, line) in enumerate(lines) if numbers(parted(line)[0])), 0)
    row, mark = parted(lines[first][1] if lines else "")
    above = [_cells(line, mark) for _, line in lines[:first]]
    names = [_joined([line[k] for line in above if k < len(line)], k) for k in range(len(row))]
    return Header(names, lines[first - 1][0] if first else 0, mark, True)


def _joined(cells: list[str], number: int) -> str:
    parts = [name_and_unit(cell) for cell in cells]
    name = " ".join(name for name, _ in parts if name) or str(number)
    return name + "".join([f" [{unit}]" for _, unit in parts if unit][-1:])


def is_named(cell: str, column: str) -> bool:
    """Return whether a cell of the header has this name, with or without a unit after it."""
    return column in (cell, name_and_unit(cell)[0])


def lines_of(text: str) -> Iterator[str]:
    """Return the lines of a text, with their ends."""
    return iter(io.StringIO(text, newline=""))


def _cells(line: str, separator: str) -> list[str]:
    """Return the cells of a line that may be a comment; none if a quote is not closed."""
    line = line.strip(" \r\n" if separator == "\t" else None).removeprefix("#")
    if separator == " ":
        return line.split()
    try:
        cells = next(csv.reader([line], delimiter=separator, strict=True), [])
    except csv.Error:
        return []
    return [cell.strip() for cell in cells]


def floats_of(cells: list[str]) -> list[float]:
    """Return the numbers in cells, NaN where one is no decimal number."""
    text = "".join(cells)
    if text.isascii() and "_" not in text:  # Python takes 1_0 and Arabic digits
        with contextlib.suppress(ValueError):
            return list(map(float, cells))
    return [_float(cell) for cell in cells]


def _float(cell: str) -> float:
    try:
        return float(cell) if cell.isascii() and "_" not in cell else math.nan
    except ValueError:
        return math.nan

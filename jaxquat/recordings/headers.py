"""The text of a file with a table, its header, and the cells of its rows."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jaxquat._internal.checks import place
from jaxquat.recordings.columns import name_and_unit
from jaxquat.recordings.ulog_messages import MAGIC


class Header(NamedTuple):
    """The names of a file's columns in their order, and the separator of the cells."""

    names: list[str]
    line: int  # 0 if there is none
    separator: str


def text_of(path: str | os.PathLike[str]) -> str:
    """Return the text of a file in UTF-8, plain or gzip."""
    file = place("path", path)
    content = file.read_bytes()
    if content.startswith(MAGIC) or file.suffix == ".ulg":
        got = "got a PX4 log; recordings.read_ulog reads it"
        raise ValueError(f"{file}: wanted a text file, {got}")
    try:
        content = gzip.decompress(content) if file.suffix == ".gz" else content
        return content.decode("utf-8-sig")  # a byte order mark is no part of a name
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{file}: cannot be read as text in UTF-8, {error}") from error


def header_of(text: str, columns: Sequence[str], is_numbered: bool = False) -> Header:
    """Return the first line that is no comment, or the one above it if that names all columns."""
    comment = Header([], 1, ",")
    for number, line in enumerate(io.StringIO(text, newline=""), 1):
        if not line.strip(" #\t\r\n"):
            continue
        separator = next((mark for mark in ";\t," if mark in line), " ")
        text = line.removeprefix("#")
        cells = text.split() if separator == " " else next(csv.reader([text], delimiter=separator))
        header = Header([cell.strip() for cell in cells], number, separator)
        if line.startswith("#"):
            comment = header
        elif is_numbered:
            return Header([str(k) for k in range(len(cells))], 0, separator)
        else:
            both = (header, comment)
            return next((x for x in both if all(positions(x, one) for one in columns)), header)
    return comment


def positions(header: Header, column: str) -> list[int]:
    """Return the positions of the columns of this name, with or without a unit after it."""
    return [k for k, cell in enumerate(header.names) if column in (cell, name_and_unit(cell)[0])]


def rows_of(
    path: str | os.PathLike[str], text: str, header: Header
) -> Iterator[tuple[int, list[str]]]:
    """Return the line and the cells of every row; a strict csv refuses a quote that stays open."""
    lines = itertools.islice(io.StringIO(text, newline=""), header.line, None)
    lines = ("\n" if line.startswith("#") else line for line in lines)
    if header.separator == " ":
        lines = (" ".join(line.split()) for line in lines)
    reader, line = csv.reader(lines, delimiter=header.separator, strict=True), header.line + 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = header.line + reader.line_num + 1
    except csv.Error as error:
        problem = f"cannot be read as CSV text, {error}; is a quote there not closed?"
        raise ValueError(f"{os.fspath(path)}: line {line}: {problem}") from error

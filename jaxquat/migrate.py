"""Rewrite files that use the last release: ``python -m jaxquat.migrate PATH...``.

Changed names, modules and keywords are rewritten in Python files and in the Python blocks of
Markdown files; the rest, such as other orders of arguments, is printed.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from jaxquat._internal.renamed import tables

_, RENAMED, MOVED, DELETED, OLD_KEYWORDS, RENAMED_ARGUMENTS, OLD_ORDERS = tables()

_BLOCK = re.compile(r"(```python\n)(.*?)(```)", re.DOTALL)
_FIELD = re.compile(r"(\w+)=jq\.([\w.]+)\(\w+=\.\.\.\)")
_MODULE = re.compile(rf"^(\s*(?:from|import)\s+jaxquat\.)({'|'.join(MOVED)})\b", re.M)


class _Source:
    """A file's text, its syntax tree, and the edits that are to be made.

    ``names`` maps names imported from jaxquat to their public paths ("" is the package), ``edits``
    are pairs of a slice of the text and its replacement, ``notes`` what is left to do by hand.
    """

    def __init__(self, text: str) -> None:
        self.text, self.tree = text, ast.parse(text)
        lines = text.split("\n")  # as Python counts them: str.splitlines knows more ends of lines
        self._lines = [line.encode() for line in lines]
        self._starts = list(itertools.accumulate((len(line) + 1 for line in lines), initial=0))
        self.names = {"jq": "", **dict(self._imported())}
        self.edits: list[tuple[slice, str]] = []
        self.notes: list[str] = []

    def _imported(self) -> Iterator[tuple[str, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    package, _, rest = name.name.partition(".")
                    if package == "jaxquat":
                        yield (name.asname or package), (rest if name.asname else "")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxquat"):
                owner = (node.module or "").partition(".")[2]
                for name in node.names:
                    yield name.asname or name.name, f"{owner}.{name.name}".lstrip(".")

    @property
    def package(self) -> str:
        """The name under which the file knows the package."""
        return [name for name, path in self.names.items() if path == ""][-1]

    def at(self, node: ast.expr | ast.keyword) -> slice:
        """Return where a node stands in the text."""

        def offset(line: int, column: int) -> int:
            return self._starts[line - 1] + len(self._lines[line - 1][:column].decode())

        end = node.end_lineno or 0, node.end_col_offset or 0
        return slice(offset(node.lineno, node.col_offset), offset(*end))

    def path(self, node: ast.expr) -> str | None:
        """Return the public path of an expression such as ``jq.planning.ilqr``, or None."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self.path(node.value)
            return None if owner is None else f"{owner}.{node.attr}".lstrip(".")
        return None

    def remove(self, call: ast.Call, keyword: ast.keyword) -> None:
        """Remove a keyword of a call together with the comma before it."""
        place = self.at(keyword)
        others = map(self.at, [*call.args, *call.keywords])
        start = max(other.stop for other in others if other.stop <= place.start)
        self.edits.append((slice(self.text.rfind(",", start, place.start), place.stop), ""))

    def result(self) -> str:
        """Return the text after all edits."""
        text, end = "", len(self.text)
        for place, new in sorted(self.edits, key=lambda edit: (-edit[0].start, -edit[0].stop)):
            if place.stop <= end:
                text = new + self.text[place.stop : end] + text
                end = place.start
        return self.text[:end] + text


def rewritten(text: str) -> tuple[str, list[str]]:
    """Return the text of a Python file in the names of this release, and notes about the rest."""
    text = _MODULE.sub(lambda match: match[1] + MOVED[match[2]], text)
    notes: list[str] = []
    for change in (_keywords, _orders, _names):  # each reads what the one before it has written
        source = _Source(text)
        change(source)
        notes += source.notes
        text = source.result()
    return text, notes


def _calls(source: _Source) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and (path := source.path(node.func)):
            yield path, node


def _keywords(source: _Source) -> None:
    """Move old keywords into their records and grids."""
    for old_path, call in _calls(source):
        path = RENAMED.get(old_path, old_path)
        records: dict[tuple[str, str], list[ast.keyword]] = {}
        for keyword in call.keywords:
            old = keyword.arg or ""
            if name := RENAMED_ARGUMENTS.get(path, {}).get(old):
                start = source.at(keyword).start
                source.edits.append((slice(start, start + len(old)), name))
            new = OLD_KEYWORDS.get(path, {}).get(old, "")
            if match := _FIELD.fullmatch(new):
                records.setdefault((match[1], match[2]), []).append(keyword)
            elif new:
                source.notes.append(f"line {call.lineno}: {path}: {keyword.arg} is now {new}")
        for (argument, record), keywords in records.items():
            if any(keyword.arg == argument for keyword in call.keywords):
                source.notes.append(f"line {call.lineno}: {path}: two values for {argument}")
                continue
            fields = ", ".join(source.text[source.at(keyword)] for keyword in keywords)
            first, *others = keywords
            new = f"{argument}={source.package}.{record}({fields})"
            source.edits.append((source.at(first), new))
            for keyword in others:
                source.remove(call, keyword)


def _orders(source: _Source) -> None:
    """Note calls whose positional arguments have another order now."""
    for path, call in _calls(source):
        orders = [OLD_ORDERS.get(path, {}).get(which, "").split() for which in ("old", "new")]
        old, new = ([name.partition("=")[0] for name in order] for order in orders)
        count = len(call.args)
        hidden = any(isinstance(x, ast.Starred) for x in call.args)
        if new and (hidden or old[:count] != new[:count]):
            source.notes.append(f"line {call.lineno}: the order is {path}({', '.join(new)})")


def _names(source: _Source) -> None:
    """Replace names by their new ones, and note those that are gone."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute):
            old = source.path(node) or ""
            if new := RENAMED.get(old):
                place, (owner, _, name) = source.at(node), new.rpartition(".")
                if old.rpartition(".")[0] == owner:  # however the file names the owner
                    source.edits.append((slice(place.stop - len(node.attr), place.stop), name))
                else:
                    source.edits.append((place, f"{source.package}.{new}"))
            elif old in DELETED:
                source.notes.append(f"line {node.lineno}: {old} is gone; use {DELETED[old]}")
        elif isinstance(node, ast.ImportFrom):
            for name in node.names:
                path = f"{(node.module or '').partition('.')[2]}.{name.name}".lstrip(".")
                if path in RENAMED:
                    text = f"line {node.lineno}: {path} is now called jq.{RENAMED[path]}"
                    source.notes.append(text)


def migrate(path: Path) -> list[str]:
    """Rewrite a file and return what is left to do by hand."""
    text, notes = path.read_bytes().decode(), []  # bytes, so that ends of lines stay
    if path.suffix == ".md":

        def block(match: re.Match[str]) -> str:
            try:
                new, left = rewritten(match[2])
            except SyntaxError as error:
                new, left = match[2], [f"a block is not read: {error}"]
            notes.extend(left)
            return f"{match[1]}{new}{match[3]}"

        new = _BLOCK.sub(block, text)
    else:
        new, notes = rewritten(text)
    if new != text:
        path.write_bytes(new.encode())
        print(f"{path}: rewritten")  # noqa: T201
    return notes


def main(arguments: list[str]) -> None:
    """Rewrite the files of these paths and print notes."""
    for argument in map(Path, arguments):
        files = sorted(argument.rglob("*")) if argument.is_dir() else [argument]
        for file in (x for x in files if x.suffix in (".py", ".md")):
            try:
                notes = migrate(file)
            except (SyntaxError, ValueError) as error:  # no Python, or no UTF-8
                notes = [f"not read: {error}"]
            for note in notes:
                print(f"{file}: {note}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])

"""Tests and benchmarks share examples/validation/ and import nothing of each other."""

import ast

import pytest
from commands import ROOT

FOLDERS = ("benchmarks", "tests", "examples/validation")
FILES = {folder: sorted((ROOT / folder).rglob("*.py")) for folder in FOLDERS}
NAMES = {folder: {folder, *(file.stem for file in FILES[folder])} for folder in FOLDERS}
MAY_NOT_IMPORT = {
    "benchmarks": ("tests",),
    "tests": ("benchmarks",),
    "examples/validation": ("benchmarks", "tests"),
}


def imported(nodes):
    """The first parts of the names of the modules that a program imports."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def extends_the_path(node):
    """Whether a node is a call such as ``sys.path.insert``."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("sys.path.")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_nothing_of_the_others_but_validation(folder):
    """So every file of tests runs alone."""
    others = set().union(*(NAMES[other] for other in MAY_NOT_IMPORT[folder]))
    forbidden = others - NAMES[folder] - {"__init__"}
    for file in FILES[folder]:
        nodes = list(ast.walk(ast.parse(file.read_text())))
        assert not forbidden & set(imported(nodes)), file
        assert not any(map(extends_the_path, nodes)), file

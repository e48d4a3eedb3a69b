"""Tests and benchmarks import validation/ and never each other, so every test file runs alone."""

import ast

import pytest
from commands import ROOT

FOLDERS = ("benchmarks", "tests", "validation")
FILES = {folder: sorted((ROOT / folder).rglob("*.py")) for folder in FOLDERS}
NAMES = {folder: {folder, *(file.stem for file in FILES[folder])} for folder in FOLDERS}
MAY_IMPORT = {"benchmarks": ("validation",), "tests": ("validation",), "validation": ()}


def imported(tree):
    """The first parts of the names of the modules that a program imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def extends_the_path(node):
    """Whether a node is a call such as ``sys.path.insert``."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("sys.path.")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_of_the_others_only_validation(folder):
    others = [other for other in FOLDERS if other not in (folder, *MAY_IMPORT[folder])]
    forbidden = set().union(*(NAMES[other] for other in others)) - NAMES[folder] - {"__init__"}
    for file in FILES[folder]:
        tree = ast.parse(file.read_text())
        assert not forbidden & set(imported(tree)), file
        assert not any(map(extends_the_path, ast.walk(tree))), file

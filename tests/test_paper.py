"""The numbers of docs/paper/paper.md are those of the documentation's tables."""

import importlib.util
import re

from commands import ROOT

FOLDER = ROOT / "docs" / "paper"
_spec = importlib.util.spec_from_file_location("numbers_of_the_paper", FOLDER / "numbers.py")
numbers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(numbers)
TEXT = numbers.PAPER.read_text().split("\n---\n", 1)[1]


def test_the_clauses_stand_in_the_paper():
    """If not: ``python docs/paper/numbers.py --write`` corrects the numbers."""
    line = numbers.without_breaks(TEXT)
    assert [x for x in [*numbers.clauses(), *numbers.CONDITIONS] if x not in line] == []


def test_the_paper_has_no_other_number():
    line = numbers.without_breaks(TEXT)
    for clause in [*numbers.clauses(), *numbers.CONDITIONS]:
        line = line.replace(clause, "")
    line = re.sub(r"`[^`]*`", "", line)  # names in code
    assert re.findall(r"\d\S*", line) == []


def test_outdated_numbers_are_rewritten():
    clause = numbers.clauses()[0]
    old = re.sub(r"\d+", "3", clause).replace("integrators of", "integrators\nof")
    assert numbers.without_breaks(numbers.written(f"It has {old}, so.")) == f"It has {clause}, so."


def test_the_paper_cites_what_its_bibliography_has():
    cited = set(re.findall(r"@(\w+)", TEXT))
    entries = re.findall(r"^@\w+\{(\w+),$", (FOLDER / "paper.bib").read_text(), re.M)
    assert sorted(cited) == sorted(entries)


def test_the_paper_has_the_length_and_the_sections_that_joss_wants():
    assert 700 <= len(TEXT.split()) <= 1150
    sections = re.findall(r"^# (.+)$", TEXT, re.M)
    wanted = ["Summary", "Statement of need", "State of the field", "Software design"]
    assert sections[:4] == wanted
    assert sections[-2:] == ["Acknowledgements", "References"]

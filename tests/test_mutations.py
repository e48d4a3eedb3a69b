"""Planted errors (mutations.py): every one can be planted, and quick tests find the usual ones."""

import mutations
import pytest
from commands import ROOT
from mutations import MUTATIONS


def test_the_text_that_changes_and_the_test_that_finds_it_are_there():
    for name, mutation in MUTATIONS.items():
        text = (ROOT / "jaxquat" / mutation.file).read_text()
        assert text.count(mutation.old) == 1, name
        file, _, rest = mutation.test.partition("::")
        test = f"def {rest.partition('[')[0]}"
        assert test in (ROOT / "tests" / file).read_text(), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "torque at q0: rkmk",
        "wrong stage time: rkmk",
        "series switched at 1e-6",
        "lost aux: the stages of rkmk",
    ],
)
def test_a_quick_test_finds(name):
    mutation = MUTATIONS[name]
    assert mutations.unchanged(frozenset([mutation.test]))
    assert mutations.found(mutation)

"""Planted errors (mutations.py): every one can be planted, and quick tests find the usual ones."""

import mutations
import pytest
from commands import ROOT
from mutations import MUTATIONS


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_text_that_changes_and_the_test_that_finds_it_are_there(name):
    mutation = MUTATIONS[name]
    assert mutation.old in (ROOT / "jaxquat" / mutation.file).read_text()
    file, _, rest = mutation.test.partition("::")
    assert f"def {rest.partition('[')[0]}" in (ROOT / "tests" / file).read_text()


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
    assert mutations.found(MUTATIONS[name])

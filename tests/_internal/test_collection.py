"""Cycles are collected again after a block, as they were before it."""

import gc
import os
import sys

import pytest

from jaxquat._internal import collection
from jaxquat._internal.collection import paused


@pytest.mark.parametrize("enabled", [True, False])
def test_a_block_leaves_the_collector_as_it_was(enabled):
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with paused():
            assert not gc.isenabled()
            with pytest.raises(ZeroDivisionError), paused():
                1 / 0  # noqa: B018
            assert not gc.isenabled()  # the outer block has not ended
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_pauses_that_always_overlap_end_after_some_seconds(monkeypatch):
    """As in several threads that plan at once."""
    monkeypatch.setattr(collection, "LONGEST", -1.0)
    assert gc.isenabled()
    with paused():
        assert not gc.isenabled()
        with paused():
            assert gc.isenabled()
        assert gc.isenabled()
    assert gc.isenabled()


@pytest.mark.skipif(sys.platform == "win32", reason="no fork on Windows")
@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_the_child_of_a_fork_collects_cycles():
    with paused():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert not gc.isenabled()

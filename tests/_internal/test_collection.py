"""Cycles are collected again after a block, as they were before it."""

import gc

import pytest

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

"""Launches and times of a program that XLA compiled for a GPU, read from its text."""

import pytest

from examples.validation import launches

TEXT = """HloModule jit_f, is_scheduled=true

%fused_store (p.0: f32[100,64], p.1: f32[64], p.2: s32[]) -> f32[100,64] {
  %p.0 = f32[100,64]{1,0} parameter(0)
  %p.1 = f32[64]{0} parameter(1)
  %p.2 = s32[] parameter(2)
  %row = f32[1,64]{1,0} bitcast(%p.1)
  %zero = s32[] constant(0)
  ROOT %store = f32[100,64]{1,0} dynamic-update-slice(%p.0, %row, %p.2, %zero)
}

%fused_product (p.3: f32[64,33], p.4: f32[33,4]) -> f32[64,4] {
  %p.3 = f32[64,33]{1,0} parameter(0)
  %p.4 = f32[33,4]{1,0} parameter(1)
  ROOT %dot.1 = f32[64,4]{1,0} dot(%p.3, %p.4), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (carry.1: (s32[], f32[100,64], f32[64])) -> (s32[], f32[100,64], f32[64]) {
  %carry.1 = (s32[], f32[100,64]{1,0}, f32[64]{0}) parameter(0)
  %k = s32[] get-tuple-element(%carry.1), index=0
  %rows = f32[100,64]{1,0} get-tuple-element(%carry.1), index=1
  %x = f32[64]{0} get-tuple-element(%carry.1), index=2
  %stored = f32[100,64]{1,0} fusion(%rows, %x, %k), kind=kLoop, calls=%fused_store
  %copy.1 = f32[64]{0} copy(%x)
  ROOT %after = (s32[], f32[100,64]{1,0}, f32[64]{0}) tuple(%k, %stored, %copy.1)
}

%condition (carry.2: (s32[], f32[100,64], f32[64])) -> pred[] {
  %carry.2 = (s32[], f32[100,64]{1,0}, f32[64]{0}) parameter(0)
  ROOT %more = pred[] constant(true)
}

ENTRY %main (a: f32[64,33], b: f32[33,4], c: (s32[], f32[100,64], f32[64])) -> f32[64,4] {
  %a = f32[64,33]{1,0} parameter(0)
  %b = f32[33,4]{1,0} parameter(1)
  %c = (s32[], f32[100,64]{1,0}, f32[64]{0}) parameter(2)
  %loop = (s32[], f32[100,64]{1,0}, f32[64]{0}) while(%c), condition=%condition, body=%bodyTRIPS
  ROOT %product = f32[64,4]{1,0} fusion(%a, %b), kind=kCustom, calls=%fused_product
}
"""
KNOWN = ', backend_config={"known_trip_count":{"n":"100"}}'


def test_a_loop_counts_by_its_trips_and_a_stored_row_by_its_own_size():
    """A trip reads 64 numbers and the index and stores 64 of them, and copies 64."""
    total, (loop,) = launches.program(TEXT.replace("TRIPS", KNOWN))
    assert (loop.trips, loop.depth, loop.each.launches) == (100, 0, 2)
    assert loop.each.bytes == (64 + 1 + 64) * 4 + (64 + 64) * 4
    assert total.launches == 2 * 100 + 1
    assert total.bytes == 100 * loop.each.bytes + 4 * (64 * 33 + 33 * 4 + 64 * 4)
    assert total.flops == 2 * 64 * 33 * 4
    assert total.seconds == pytest.approx(201 * launches.LAUNCH)


def test_of_a_loop_of_unknown_length_one_trip_counts():
    total, (loop,) = launches.program(TEXT.replace("TRIPS", ""))
    assert loop.trips is None
    assert total.launches == 2 + 1


def test_large_arrays_take_the_time_to_move_them():
    text = TEXT.replace("TRIPS", KNOWN).replace("f32[64]", "f32[67108864]")
    text = text.replace("f32[100,64]", "f32[100,67108864]").replace("f32[1,64]", "f32[1,67108864]")
    total, (loop,) = launches.program(text)
    assert loop.each.seconds == pytest.approx(loop.each.bytes / launches.BYTES)
    assert total.seconds == pytest.approx(100 * loop.each.bytes / launches.BYTES, rel=1e-4)

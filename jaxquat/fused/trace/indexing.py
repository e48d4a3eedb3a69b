"""Slices, gathers and scatters, at indices that are constants or known only at run time.

A slice may begin at several places, so each of its elements is one of several candidates, which one
number selects (``_Start``). Reading uses "take". Writing goes through all candidates. With constant
indices there is one candidate, and elements only move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxquat.fused.ir.builder import Builder, Scalar, maximum, minimum, operation, where
from jaxquat.fused.ir.program import Routine
from jaxquat.fused.trace.elementwise import choice
from jaxquat.fused.trace.values import Values, array, raw_dtype

FEW = 8  # up to this many candidates, selects choose an element
MANY = 64  # from this many candidates on, a loop replaces the chosen one


Starts = dict[int, Any]  # by axis: a Scalar, or an integer within the array
Combine = Callable[[Any, Scalar, Scalar], Scalar]  # of a tracing, an element and a new value


class _Start(NamedTuple):
    """Where a slice begins: ``number``, an int32, of the flat places ``offsets``; -1 for none."""

    number: Scalar
    offsets: list[int]


def _start(
    b: Builder, shape: Sequence[int], sizes: Sequence[int], starts: Starts, drops: bool
) -> _Start:
    """Return the beginning of a slice, which is moved inside or, if ``drops``, left out."""
    total, inside = None, None
    offsets = [0]
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    for axis, index in starts.items():
        last = shape[axis] - sizes[axis]
        if isinstance(index, int):
            offsets = [offset + index * strides[axis] for offset in offsets]
            continue
        if index.dtype.kind == "u":  # int32 cannot hold the largest ones
            index = minimum(index, index.like(min(last + 1, np.iinfo(index.dtype).max)))
        if drops:
            within = (index >= 0) & (index <= last)
            inside = within if inside is None else inside & within
        index = minimum(maximum(index, 0), last).convert(np.int32)
        if index.literal is not None:
            offsets = [offset + int(index.literal) * strides[axis] for offset in offsets]
            continue
        offsets = [offset + k * strides[axis] for offset in offsets for k in range(last + 1)]
        total = index if total is None else total * (last + 1) + index
    total = b.const(np.int32(0)) if total is None else total
    return _Start(total if inside is None else where(inside, total, -1), offsets)


def _taken(b: Builder, elements: Values, start: _Start, offset: int) -> Scalar:
    candidates = [elements[at + offset] for at in start.offsets]
    if len(candidates) <= FEW:
        return choice(start.number, candidates)
    number, dtype = maximum(start.number, 0), candidates[0].dtype
    if dtype.kind == "b":  # they have no addresses in memory
        return b.emit("take", number, *(x.convert(np.int8) for x in candidates)).differs(0)
    return b.emit("take", number, *candidates)


def _replaced(
    t: Any, elements: Values, start: _Start, offset: int, combine: Combine, new: Scalar
) -> None:
    places = [at + offset for at in start.offsets]
    if len(places) < MANY:
        for k, place in enumerate(places):
            old = elements[place]
            elements[place] = where(start.number.equals(k), combine(t, old, new), old)
        return
    inner = t.apart([new.dtype, np.dtype(np.int32), new.dtype])
    value, turn, old = inner.arguments
    result = where(turn.equals(0), combine(inner, old, value), old)
    routine = Routine(inner.finish([turn - 1, result]), len(places), 1, 1)
    elements[places] = t.call(routine, [new, start.number, *elements[places]])[1:]


def _window(sizes: Sequence[int], shape: Sequence[int]) -> list[tuple[tuple[int, ...], int]]:
    """Return the places of a slice at the origin, and their numbers in the flat array."""
    numbers = np.arange(math.prod(shape)).reshape(shape)
    return [(place, int(numbers[place])) for place in np.ndindex(*sizes)]


def _dynamic_slice(b: Builder, equation: Any, x: Values, *index: Values) -> Values:
    sizes = equation.params["slice_sizes"]
    start = _start(b, x.shape, sizes, {axis: k.item() for axis, k in enumerate(index)}, False)
    elements = x.ravel()
    return array((_taken(b, elements, start, k) for _, k in _window(sizes, x.shape)), sizes)


def _update_slice(b: Any, equation: Any, x: Values, update: Values, *index: Values) -> Values:
    start = _start(
        b, x.shape, update.shape, {axis: k.item() for axis, k in enumerate(index)}, False
    )
    elements = x.flatten()
    for place, offset in _window(update.shape, x.shape):
        _replaced(b, elements, start, offset, _newest, update[place])
    return elements.reshape(x.shape)


def _slices(
    b: Builder, x: Values, indices: Values, sizes: Sequence[int], axes: Sequence[int],
    batching: dict[int, int], windows: dict[int, int], drops: bool,
) -> Iterator[tuple[_Start, int, tuple[int, ...]]]:  # fmt: skip
    """Yield, for each element of each slice, start, offset, and place in the array of slices.

    ``axes`` are the axes of x that a row of ``indices`` indexes. ``batching`` maps batch axes of x
    to those of ``indices``, ``windows`` other axes of x to those of the array of slices.
    """
    window = _window(sizes, x.shape)
    count = indices.ndim - 1 + len(windows)
    rows = [axis for axis in range(count) if axis not in windows.values()]
    for place in np.ndindex(*indices.shape[:-1]):
        starts: Starts = dict(zip(axes, indices[place], strict=True))
        starts |= {axis: place[other] for axis, other in batching.items()}
        start = _start(b, x.shape, sizes, starts, drops)
        for within, offset in window:
            at = dict(zip(rows, place, strict=True))
            at |= {other: within[axis] for axis, other in windows.items()}
            yield start, offset, tuple(at[axis] for axis in range(count))


def _windows(
    x: Values, without: Sequence[int], windows: Sequence[int], batching: Sequence[Sequence[int]]
) -> tuple[dict[int, int], dict[int, int]]:
    """Return ``batching`` and ``windows`` of ``_slices``, which have no axes ``without``."""
    kept = [axis for axis in range(x.ndim) if axis not in (*without, *batching[0])]
    return dict(zip(*batching, strict=True)), dict(zip(kept, windows, strict=True))


def _gather(b: Builder, equation: Any, x: Values, indices: Values) -> Values:
    p, n = equation.params, equation.params["dimension_numbers"]
    modes = jax.lax.GatherScatterMode
    fills = modes.from_any(p["mode"]) == modes.FILL_OR_DROP
    pairs = n.operand_batching_dims, n.start_indices_batching_dims
    maps = _windows(x, n.collapsed_slice_dims, n.offset_dims, pairs)
    result = np.empty(equation.outvars[0].aval.shape, object)
    slices = _slices(b, x, indices, p["slice_sizes"], n.start_index_map, *maps, fills)
    elements = x.ravel()
    for start, offset, place in slices:
        value = _taken(b, elements, start, offset)
        if fills:
            value = where(start.number < 0, _filler(equation), value)
        result[place] = value
    return result


def _newest(t: Any, old: Scalar, new: Scalar) -> Scalar:
    return new


def _combining(equation: Any) -> Combine:
    """Combine as the name says, or the function of ``scatter``; without one, to the new value."""
    name = equation.primitive.name.removeprefix("scatter")[1:]
    if name:
        return lambda t, old, new: operation(name, old, new)
    jaxpr, consts = equation.params["update_jaxpr"], equation.params["update_consts"]
    if jaxpr is None:
        return _newest

    def combine(t: Any, old: Scalar, new: Scalar) -> Scalar:
        (result,) = t.run(jaxpr, consts, [np.array(old), np.array(new)])
        return result.item()

    return combine


def _scatter(b: Any, equation: Any, x: Values, indices: Values, updates: Values) -> Values:
    """Apply the updates one by one, in the order of XLA."""
    p, n, combine = equation.params, equation.params["dimension_numbers"], _combining(equation)
    drops = jax.lax.GatherScatterMode.from_any(p["mode"]) != jax.lax.GatherScatterMode.CLIP
    pairs = n.operand_batching_dims, n.scatter_indices_batching_dims
    maps = _windows(x, n.inserted_window_dims, n.update_window_dims, pairs)
    sizes = [updates.shape[maps[1][axis]] if axis in maps[1] else 1 for axis in range(x.ndim)]
    axes = n.scatter_dims_to_operand_dims
    elements = x.flatten()
    for start, offset, place in _slices(b, x, indices, sizes, axes, *maps, drops):
        _replaced(b, elements, start, offset, combine, updates[place])
    return elements.reshape(x.shape)


def _filler(equation: Any) -> Any:
    """Return what ``lax.gather`` fills with: NaN, least signed or largest unsigned, True."""
    dtype, value = raw_dtype(equation.outvars[0].aval), equation.params.get("fill_value")
    if value is None:
        value = np.nan if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).min
        value = np.iinfo(dtype).max if dtype.kind == "u" else value
    return np.asarray(value).astype(dtype)[()]


RULES: dict[str, Callable[..., Any]] = {
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _update_slice,
    "scatter": _scatter,
    **{
        f"scatter{dash}{name}": _scatter
        for name in ("add", "sub", "mul", "min", "max")
        for dash in "-_"
    },
}

"""Rules of primitives that move elements: ``rule(tracing, equation, *arrays of values)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxquat.fused.ir.builder import Builder
from jaxquat.fused.trace.values import Values, constants, raw_shape


def _broadcast(b: Builder, equation: Any, x: Values, *_: Values) -> Values:
    shape, places = raw_shape(equation.outvars[0].aval), equation.params["broadcast_dimensions"]
    spread = [1] * len(shape)
    for axis, place in enumerate((*places, *range(len(equation.params["shape"]), len(shape)))):
        spread[place] = x.shape[axis]
    return np.broadcast_to(x.reshape(spread), shape)


def _pad(b: Builder, equation: Any, x: Values, filler: Values) -> Values:
    result = np.full(equation.outvars[0].aval.shape, filler.item(), object)
    for place in np.ndindex(x.shape):
        config = zip(place, equation.params["padding_config"], strict=True)
        at = tuple(low + k * (inner + 1) for k, (low, _, inner) in config)
        if all(0 <= k < length for k, length in zip(at, result.shape, strict=True)):
            result[at] = x[place]
    return result


def _slice(b: Builder, equation: Any, x: Values) -> Values:
    p = equation.params
    strides = p["strides"] or [1] * x.ndim
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]


def _split(b: Builder, equation: Any, x: Values) -> list[Values]:
    return np.split(x, np.cumsum(equation.params["sizes"])[:-1], axis=equation.params["axis"])


def _iota(b: Builder, equation: Any) -> Values:
    p = equation.params
    return constants(b, np.indices(p["shape"])[p["dimension"]].astype(p["dtype"]))


def _empty(b: Builder, equation: Any) -> Values:
    aval = equation.outvars[0].aval
    return constants(b, np.zeros(aval.shape, aval.dtype))


def _reshaped(b: Builder, equation: Any, x: Values) -> Values:
    return x.reshape(raw_shape(equation.outvars[0].aval))


def _in_order(b: Builder, equation: Any, x: Values) -> Values:
    order = equation.params["dimensions"]
    return _reshaped(b, equation, x if order is None else x.transpose(order))


RULES: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": _in_order,
    "squeeze": _reshaped,
    "expand_dims": _reshaped,
    "transpose": lambda b, e, x: x.transpose(*e.params["permutation"]),
    "rev": lambda b, e, x: np.flip(x, e.params["dimensions"]),
    "concatenate": lambda b, e, *xs: np.concatenate(xs, e.params["dimension"]),
    "stack": lambda b, e, *xs: np.stack(xs, e.params.get("axis", 0)),
    "unstack": lambda b, e, x: list(np.moveaxis(x, e.params.get("axis", 0), 0)),
    "slice": _slice,
    "split": _split,
    "iota": _iota,
    "empty": _empty,
    "empty2": _empty,
    "pad": _pad,
    "tile": lambda b, e, x: np.tile(x, e.params["reps"]),
    **dict.fromkeys(("optimization_barrier", "pvary", "reshard"), lambda b, e, *xs: list(xs)),
}

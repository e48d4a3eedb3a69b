"""Random keys and bits: a key is its words, and the operations of its generator are traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxquat.fused.errors import not_scalar
from jaxquat.fused.ir.builder import Builder
from jaxquat.fused.trace.values import Values, array, constants, raw_specs


def _threefry(b: Builder, equation: Any, *words: Values) -> list[Values]:
    """Apply Threefry 2x32, 20 rounds (Salmon et al., SC 2011): two words of key, two of counter."""
    pairs = []
    arrays = np.broadcast_arrays(*words)
    for first, second, p, q in zip(*(x.flat for x in arrays), strict=True):
        keys = [first, second, first ^ second ^ 0x1BD11BDA]
        p, q = p + first, q + second
        for group in range(5):
            for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
                p = p + q
                q = p ^ ((q << turn) | (q >> (32 - turn)))
            p = p + keys[(group + 1) % 3]
            q = (q + keys[(group + 2) % 3]) + (group + 1)
        pairs.append((p, q))
    return [array(column, arrays[0].shape) for column in zip(*pairs, strict=True)]


def _random(t: Any, equation: Any, *args: Values) -> Values:
    """Trace the generator's operations on the words of a key."""
    name, p = equation.primitive.name, equation.params
    kind = equation.invars[0].aval if name != "random_seed" else equation.outvars[0].aval
    if kind.shape:
        raise not_scalar(f"{name}: for an array of keys it has no scalar form")
    impl = kind.dtype._impl
    function = {
        "random_bits": lambda key: impl.random_bits(key, p["bit_width"], p["shape"]),
        "random_split": lambda key: impl.split(key, p["shape"]),
        "random_fold_in": impl.fold_in,
        "random_seed": impl.seed,
    }[name]
    return t.traced(function, raw_specs(equation, args), args)[0]


def _iota_words(b: Builder, equation: Any) -> list[Values]:
    shape = equation.params["shape"]
    low = np.arange(int(np.prod(shape)), dtype=np.uint32).reshape(shape)
    return [constants(b, np.zeros_like(low)), constants(b, low)]


RULES: dict[str, Callable[..., Any]] = {
    "threefry2x32": _threefry,
    "iota_2x32_shape": _iota_words,
    "random_wrap": lambda b, e, x: x,
    "random_unwrap": lambda b, e, x: x,
    **dict.fromkeys(("random_bits", "random_split", "random_fold_in", "random_seed"), _random),
}

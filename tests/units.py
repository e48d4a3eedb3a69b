"""Errors of the fused engine's elementary functions on the CPU, in units in the last place.

``worst(name, dtype)`` is the largest error over many arguments; docs/fused.md states these.
"""

import jax.numpy as jnp
import numpy as np

from jaxquat.engines.fused import cpu
from jaxquat.engines.fused.ir.builder import Builder
from jaxquat.engines.fused.kernel import Leaf, Loop

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0])
RANGES = {  # largest arguments, float32 and float64
    "sin": (3.4e38, 1.79e308),
    "cos": (3.4e38, 1.79e308),
    "exp": (110.0, 800.0),
    "expm1": (110.0, 800.0),
    "tanh": (12.0, 25.0),
    "log": (1e37, 1e300),
    "log1p": (1e37, 1e300),
    "atan2": (1e6, 1e6),
    "pow": (87.0, 708.0),  # of the exponent times the logarithm
}


def worst(name, dtype):
    """The largest error over 100,000 arguments of all sizes, the special ones included."""
    rng, largest = np.random.default_rng(9), RANGES[name][np.dtype(dtype).itemsize // 8]
    if name == "atan2":
        y, x = rng.normal(size=(2, 100_000)) * largest ** rng.uniform(-1, 1, (2, 100_000))
        pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL])
        return ulps(name, dtype, np.concatenate([y, pairs[:, 0]]), np.concatenate([x, pairs[:, 1]]))
    if name == "pow":
        x = np.exp(rng.uniform(-largest, largest, 100_000) * 10.0 ** rng.uniform(-4, 0, 100_000))
        y = rng.uniform(-largest, largest, 100_000) / np.log(x)
        bases, exponents = [*SPECIAL, 0.5, -2.5, 3.0], [*SPECIAL, 0.5, -2.5, 3.0, -3.0]
        pairs = np.array([(a, b) for a in bases for b in exponents])
        return ulps(name, dtype, np.concatenate([x, pairs[:, 0]]), np.concatenate([y, pairs[:, 1]]))
    if name in ("sin", "cos"):  # of all sizes, and near multiples of a quarter turn
        signs = rng.choice([-1, 1], 100_000)
        all_sizes = signs * np.exp2(rng.uniform(-20, np.log2(largest), 100_000))
        turns = np.pi / 2 * np.round(np.exp2(rng.uniform(0, 60, 50_000)))
        return ulps(name, dtype, np.concatenate([all_sizes, turns, SPECIAL]))
    if name == "log1p":
        near = rng.uniform(-1, 1, 50_000) * 10.0 ** rng.uniform(-9, 0, 50_000)
        all_sizes = largest ** rng.uniform(-1, 1, 50_000)
        return ulps(name, dtype, np.concatenate([all_sizes, near, SPECIAL]))
    if name == "log":
        near = 1.0 + rng.uniform(-0.4, 0.6, 50_000) * 10.0 ** rng.uniform(-6, 0, 50_000)
        all_sizes = largest ** rng.uniform(-1, 1, 50_000)
        return ulps(name, dtype, np.concatenate([all_sizes, near, SPECIAL]))
    sizes = [rng.uniform(-scale, scale, 20_000) for scale in (1e-8, 1e-3, 1.0, 10.0, largest)]
    return ulps(name, dtype, np.concatenate([*sizes, SPECIAL]))


@np.errstate(all="ignore")
def ulps(name, dtype, *arguments):
    """The largest error against extended precision; NaN and infinity must be where they belong."""
    arguments, kind = [x.astype(dtype) for x in arguments], np.dtype(dtype)
    count, n = len(arguments), arguments[0].size
    # inputs of the programs: constants, the number of the step, a state
    b = Builder([*[kind] * count, np.dtype(np.int32), kind])
    value = b.emit(name, *range(count))
    leaf = Leaf(kind, 1)
    loop = Loop(
        constants=(leaf,) * count, state=(leaf,), saved=(leaf,),
        step=b.finish([count + 1]), save=b.finish([value]),
    )  # fmt: skip
    operands = [jnp.asarray(x)[:, None] for x in (*arguments, np.zeros(n, dtype))]
    saved, *_ = cpu.call(loop, "forward", (True,) * len(operands), n, operands)
    got = np.asarray(saved)[:, -1, 0]
    function = getattr(np, {"atan2": "arctan2", "pow": "power"}.get(name, name))
    exact = function(*(x.astype(np.longdouble) for x in arguments))
    wanted = exact.astype(dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    infinite = ~np.isfinite(wanted)
    np.testing.assert_array_equal(got[infinite], wanted[infinite])
    normal = np.isfinite(wanted) & (np.abs(wanted) >= np.finfo(kind).tiny)
    errors = (got[normal] - exact[normal]) / np.spacing(np.abs(wanted[normal]))
    return float(np.abs(errors).max())

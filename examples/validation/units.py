"""Errors of the fused engine's elementary functions on the CPU, in units in the last place.

``worst(name, dtype)`` is the largest error over many arguments; docs/architecture.md states these.
"""

from functools import partial

import jax.numpy as jnp
import mpmath
import numpy as np

from jaxquat.fused import cpu
from jaxquat.fused.ir import special
from jaxquat.fused.ir.builder import Builder, operation
from jaxquat.fused.kernel import Leaf, Loop

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
MADE_OF_THEM = ("asinh", "acosh", "atanh", "cbrt", "erf", "erfc", "erf_inv")


def worst(name, dtype, count=40):
    """The largest error over 100,000 arguments of all sizes, the special ones included.

    Functions that mpmath computes have about four times ``count`` arguments.
    """
    rng = np.random.default_rng(9)
    if name in MADE_OF_THEM:
        return ulps(name, dtype, arguments_of(name, dtype, rng, count))
    largest = RANGES[name][np.dtype(dtype).itemsize // 8]
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


def arguments_of(name, dtype, rng, n):
    """Arguments of a special function: of all sizes, in its range, near its ends, and special."""
    info = np.finfo(dtype)
    ends = [1.5, -2.0, info.max, -info.max, 1 - info.epsneg, info.epsneg - 1, 1 + info.eps]
    sizes = np.exp2(rng.uniform(0.99 * info.minexp, 0.99 * info.maxexp, n))
    near = np.exp2(rng.uniform(-info.nmant, 2, n))
    largest = {"erfc": 10.0 if info.bits == 32 else 27.0, "erf": 6.0}.get(name, 1.0)
    x = np.concatenate([sizes, near, rng.uniform(0, largest, 2 * n)])
    if name in ("atanh", "erf_inv"):
        x = np.concatenate([x[np.abs(x) < 1], 1 - near[near < 1]])
    x = 1 + np.concatenate([x, near]) if name == "acosh" else x * rng.choice([-1.0, 1.0], x.size)
    return np.concatenate([x, SPECIAL, ends])


def exactly(name: str, x):
    """The value of a function in extended precision, by numpy or mpmath."""
    if name not in MADE_OF_THEM:
        function = getattr(np, {"atan2": "arctan2", "pow": "power"}.get(name, name))
        return function(*(a.astype(np.longdouble) for a in x))
    function = getattr(mpmath, "erfinv" if name == "erf_inv" else name)

    def real(v):
        """The value as text; NaN outside the domain."""
        outside = v < 1 if name == "acosh" else abs(v) > 1 and name in ("atanh", "erf_inv")
        if np.isnan(v) or outside:
            return "nan"
        if name == "cbrt" and v < 0:  # mpmath has the complex root
            return mpmath.nstr(-function(-v), 25)
        return mpmath.nstr(function(min(v, 100.0) if name == "erfc" else v), 25)

    with mpmath.workprec(120):
        return np.array([np.longdouble(real(v)) for v in x[0].tolist()])


@np.errstate(all="ignore")
def ulps(name, dtype, *arguments):
    """The largest error against extended precision; NaN and infinity must be where they belong."""
    arguments, kind = [x.astype(dtype) for x in arguments], np.dtype(dtype)
    count, n = len(arguments), arguments[0].size
    # inputs of the programs: constants, the number of the step, a state
    b = Builder([*[kind] * count, np.dtype(np.int32), kind])
    function = getattr(special, name) if name in MADE_OF_THEM else partial(operation, name)
    value, leaf = function(*b.arguments[:count]), Leaf((), kind)
    loop = Loop(
        constants=(leaf,) * count, state=(leaf,), saved=(leaf,),
        step=b.finish(b.arguments[-1:]), save=b.finish([value]),
    )  # fmt: skip
    operands = [jnp.asarray(x)[:, None] for x in (*arguments, np.zeros(n, dtype))]
    saved, *_ = cpu.call(loop, "forward", (True,) * len(operands), n, operands)
    got = np.asarray(saved)[:, -1, 0]
    exact = exactly(name, arguments)
    wanted = exact.astype(dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    infinite = ~np.isfinite(wanted)
    np.testing.assert_array_equal(got[infinite], wanted[infinite])
    normal = np.isfinite(wanted) & (np.abs(wanted) >= np.finfo(kind).tiny)
    errors = (got[normal] - exact[normal]) / np.spacing(np.abs(wanted[normal]))
    return float(np.abs(errors).max())

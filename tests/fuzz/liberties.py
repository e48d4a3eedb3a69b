"""Liberties: results that XLA or the kernel may return instead of the correctly rounded one.

The fuzzer found them. For example, XLA may leave a NaN out of a maximum. ``LIBERTIES[name]`` are
functions ``liberty(equation, args, x, sample, salt) -> x`` for the primitive of that name. They
replace its result ``x`` in some samples of ``oracle.shaken``: in a random half of them, or in
turns. ``salt`` is a number that depends on the place of the operation in the program, so that each
operation has its own samples.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Liberty = Callable[[Any, list[Any], Any, Any, int], Any]


def bind(equation: Any, args: Sequence[Any]) -> list[Any]:
    """The outputs of one operation."""
    params, functions = equation.primitive.get_bind_params(equation.params), ()
    if isinstance(params, tuple):  # before jax 0.9
        functions, params = params
    results = equation.primitive.bind(*functions, *args, **params)
    return list(results) if equation.primitive.multiple_results else [results]


@jax.jit
def hashed(words: Any, sample: Any) -> Any:
    """Words of 32 random bits, which depend on ``words`` and on the sample."""
    h = words ^ (sample.astype(jnp.uint32) * jnp.uint32(0x85EBCA6B))
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h = (h ^ (h >> shift)) * jnp.uint32(factor)
    return h ^ (h >> 16)


def word(salt: int) -> np.uint32:
    """A random word that depends on the place."""
    return np.uint32(salt * 2654435761 % 2**32)


def at_random(sample: Any, salt: int) -> Any:
    """Whether this sample is in a random half of the samples, which depends on the place."""
    return hashed(word(salt), sample) % 2 == 1


def _turn(sample: Any, salt: int, turns: int) -> Any:
    """The turn of this sample, one of ``turns``; the first turn's sample depends on the place."""
    return (sample + salt % turns) % turns


def chosen(equation: Any, args: list[Any], x: Any, sample: Any, salt: int, masks: Any) -> Any:
    """A product with a boolean, converted to 0 or 1, as a select: 0 also for NaN and infinity.

    Sample 1 has all of them, as the kernel does; others have some.

    Args:
        equation: of the product.
        args: its factors.
        x: the product.
        sample: the number of the sample.
        salt: depends on the place of the product.
        masks: the numbers that were booleans, by id.
    """
    for mask in (a for a in args if id(a) in masks):
        selects = (sample == 1) | at_random(sample, salt + 1)
        x = jnp.where((mask == 0) & selects, jnp.zeros_like(x), x)
    return x


def _signed(equation: Any, args: list[Any], x: Any, sample: Any, salt: int) -> Any:
    """Zero with either sign: in XLA -0 + 0 is -0, and sign(-0) is 0, for a constant operand."""
    return jnp.where((x == 0) & (sample > 0) & at_random(sample, salt), -x, x)


def _contracted(equation: Any, args: list[Any], x: Any, sample: Any, salt: int) -> Any:
    """The last product without overflow, as if it were one operation with a sum."""
    finite = jnp.asarray(True)
    for a in args:
        finite = finite & jnp.isfinite(a)
    if "exp" in equation.primitive.name:  # in XLA inf - exp(inf) = inf, also within a loop
        finite = ~jnp.isnan(x)
    return jnp.where(finite & at_random(sample, salt), _largest(x), x)


def _largest(x: Any) -> Any:
    """``x`` with the largest number in place of infinity."""
    return jnp.clip(x, -jnp.finfo(x.dtype).max, jnp.finfo(x.dtype).max)


def _in_order(equation: Any, args: list[Any], x: Any, sample: Any, salt: int) -> Any:
    """Sums and products in the order of the elements, which may overflow in other parts."""
    name, params, other = equation.primitive.name, equation.params, args[0]
    step = jnp.add if name.endswith("sum") else jnp.multiply
    for axis in sorted(params["axes"] if "axes" in params else (params["axis"],), reverse=True):
        rows = jnp.moveaxis(other, axis, 0)
        rows = rows[::-1] if params.get("reverse", False) else rows
        totals = list(itertools.accumulate(rows, step))
        if "axes" in params:
            nothing = jnp.full(rows.shape[1:], step is jnp.multiply, other.dtype)
            other = totals[-1] if totals else nothing
        elif totals:
            totals = totals[::-1] if params.get("reverse", False) else totals
            other = jnp.moveaxis(jnp.stack(totals), 0, axis)
    return jnp.where(sample % 2 == 1, other, x)


def _apart(equation: Any, args: list[Any], x: Any, sample: Any, salt: int) -> Any:
    """A product of numbers near 1 times a power of two, without intermediate overflow."""
    fraction, exponent = jnp.frexp(args[0])
    axes = equation.params["axes"]
    product = jnp.ldexp(jnp.prod(fraction, axis=axes), jnp.sum(exponent, axis=axes))
    return jnp.where(_turn(sample, salt, 3) == 0, product, x)


def _dot(equation: Any, args: list[Any], x: Any, sample: Any, salt: int) -> Any:
    """The dot product without overflow, or infinite where a part of its sum may overflow."""
    half = jnp.asarray(2.0**64 if x.dtype == jnp.float32 else 2.0**512, x.dtype)
    small = [_shrunk(jnp.asarray(a), half) for a in args]
    (total,), (size,) = bind(equation, small), bind(equation, [abs(a) for a in small])
    whole = jnp.where(jnp.isfinite(total), _largest(total * half * half), total)
    above, below = ((part / 2 * half) * half for part in (size + total, size - total))
    turn = _turn(sample, salt, 4)
    part = jnp.where(turn == 2, above, -below)
    other = jnp.where((turn >= 2) & jnp.isinf(part), part, jnp.where(jnp.isfinite(x), x, whole))
    return jnp.where(turn == 0, x, other)


def _shrunk(x: Any, half: Any) -> Any:
    """``x/half``, but not zero: zero times infinity would be NaN."""
    y, least = x / half.astype(x.dtype), jnp.sign(x) * jnp.finfo(x.dtype).tiny
    return jnp.where(jnp.abs(y) > jnp.abs(least), y, least)


def _quotient(equation: Any, args: list[Any], x: Any, sample: Any, salt: int) -> Any:
    """The quotient by a reciprocal, as XLA divides rows; a subnormal reciprocal is zero."""
    a, b = args
    large = jnp.abs(b) > (1e30 if x.dtype == jnp.float32 else 1e300)
    factor = jnp.where(large, jnp.asarray(2.0**-64, x.dtype), jnp.asarray(1, x.dtype))
    turn = _turn(sample, salt, 4)
    other = jnp.where(turn == 1, a * (1 / b), (a * factor) / (b * factor))
    return jnp.where(turn % 2 == 0, x, other)


def _remainder(equation: Any, args: list[Any], x: Any, sample: Any, salt: int) -> Any:
    """Other remainders by a tiny number: glibc's fmod needs subnormals, which are zero here."""
    near = jnp.abs(args[1]) < jnp.finfo(x.dtype).tiny * 2.0**26
    turn = _turn(sample, salt, 4)
    lost = jnp.where(turn == 0, args[0], jnp.where(turn == 1, jnp.nan, args[0] * 0))
    return jnp.where(near & (turn < 3), lost, x)


def _some_nan(equation: Any, args: list[Any], x: Any, sample: Any, salt: int) -> Any:
    """NaN, or the extreme of the other numbers: XLA's reductions of large arrays leave out NaN.

    Sample 1 has NaN, as the kernel does.
    """
    largest = equation.primitive.name == "reduce_max"
    least, choice = (-jnp.inf, jnp.max) if largest else (jnp.inf, jnp.min)
    is_nan, axes, turn = jnp.isnan(args[0]), equation.params["axes"], _turn(sample, salt, 3)
    turn = jnp.where(sample == 1, 0, turn)
    extreme = choice(jnp.where(is_nan, jnp.asarray(least, x.dtype), args[0]), axis=axes)
    any_nan = jnp.any(is_nan, axis=axes)
    return jnp.where(any_nan & (turn < 2), jnp.where(turn == 0, jnp.nan, extreme), x)


def _bound(equation: Any, args: list[Any], x: Any, sample: Any, salt: int) -> Any:
    """The limit of a function that saturates, even where the value does not yet round to it."""
    near = jnp.abs(x - jnp.round(x)) <= 8 * jnp.finfo(x.dtype).eps
    return jnp.where(near & (_turn(sample, salt, 3) == 0), jnp.round(x), x)


SATURATE = ("tanh", "logistic", "erf", "erfc")
LIBERTIES: dict[str, tuple[Liberty, ...]] = {
    **dict.fromkeys(("add", "add_any", "sign", "scatter-add", "scatter_add"), (_signed,)),
    **dict.fromkeys(
        ("mul", "exp", "exp2", "expm1", "pow", "integer_pow", "square"), (_contracted,)
    ),
    **dict.fromkeys(("sinh", "cosh"), (_contracted,)),
    **dict.fromkeys(("reduce_sum", "cumsum", "cumprod"), (_in_order, _signed)),
    **dict.fromkeys(SATURATE, (_bound,)),
    **dict.fromkeys(("reduce_max", "reduce_min"), (_some_nan,)),
    "reduce_prod": (_in_order, _apart, _signed),
    "dot_general": (_dot, _signed),
    "div": (_quotient,),
    "rem": (_remainder,),
}

"""Transcendental functions as scalar operations, for a compiler without a vector library.

``expand`` replaces sin, exp, pow and their kin by operations that LLVM has for vectors: sums,
products, fma, comparisons, selects and operations on bits. Each function follows one pattern.

1. Reduce the argument: x = k c + r with a whole k and a small r, where c is pi/2 or log 2, in three
   parts (Cody and Waite); or x = 2^e (1 + f) from the bits of x.
2. Evaluate the Taylor series at r or f, which converges to rounding in few terms.
3. Put the parts together: a quarter turn chooses sine or cosine, 2^k is made from its bits.
4. Select the values at zero, infinity and NaN.

Angles beyond ``FAR`` need more digits of pi. A rare routine reduces them, in integers (Payne and
Hanek); the kernel skips it where no body of a vector has such an angle. A value "in two floats" is
the sum of a head and a rest that is small beside the head's last bit. The functions here take and
return value numbers of the builder ``b``. docs/performance.md states the errors in ulp.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from jaxquat.engines.fused.program import Builder, Program, Routine

# decimals, of which ``_parts`` makes sums of three floats
_HALF_PI = "1.5707963267948966192313216916397514420985846996875529104874722961539"
_LOG_2 = "0.69314718055994530941723212145817656807550013436025525412068000949339"

TRANSCENDENTAL = ("sin", "cos", "tanh", "exp", "expm1", "log", "log1p", "atan2", "pow")

FAR = {4: 1e5, 8: 1e9}  # angles for which three parts of pi/2 are too few, by bytes of the dtype


def expand(program: Program, names: Sequence[str] = TRANSCENDENTAL) -> Program:
    """The same program without the functions ``names``, of which "round" may be one too."""
    if not any(op.name == "loop" or op.name in names for op in program.ops):
        return program
    b = Builder(program.inputs)
    values = list(range(len(program.inputs)))
    routines: dict[int, Routine] = {}
    for op in program.ops:
        args = [values[a] for a in op.args]
        if op.name == "const":
            values.append(b.const(op.number))
        elif op.name == "loop":
            if id(op.value) not in routines:
                routines[id(op.value)] = op.value._replace(program=expand(op.value.program, names))
            values.append(b.loop(routines[id(op.value)], args))
        elif op.name == "item":
            values.append(b.item(args[0], op.value))
        elif op.name in names:
            values.append(_EXPANSIONS[op.name](b, *args))
        else:
            values.append(b.emit(op.name, *args, dtype=op.dtype))
    return b.finish([values[k] for k in program.outputs])


def _parts(decimal: str, dtype: np.dtype) -> list[float]:
    """A number as a sum of three numbers of the dtype, the largest first."""
    remainder, parts = Fraction(decimal), []
    for _ in range(3):
        part = dtype.type(float(remainder))
        parts.append(part)
        remainder -= Fraction(float(part))
    return parts


def _constant(b: Builder, value: float, like: int) -> int:
    """A constant in the dtype of ``like``."""
    return b.const(b.dtype(like).type(value))


def _integer(b: Builder, value: int, like: int) -> int:
    """A constant in the signed integer dtype as wide as ``like``."""
    return b.const((np.int32 if b.dtype(like).itemsize == 4 else np.int64)(value))


def _bits(b: Builder, x: int) -> int:
    """The bits of a float, as a signed integer: negative for a set sign bit, that of -0 too."""
    return b.emit("bitcast", x, dtype=np.int32 if b.dtype(x).itemsize == 4 else np.int64)


def _horner(b: Builder, coefficients: Sequence[float], at: int) -> int:
    """The polynomial with these coefficients, the lowest power first."""
    total = _constant(b, coefficients[-1], at)
    for c in reversed(coefficients[:-1]):
        total = b.emit("fma", total, at, _constant(b, c, at))
    return total


def _single(b: Builder, x: int) -> bool:
    return b.dtype(x).itemsize == 4


def _less_multiple(b: Builder, x: int, k: int, decimal: str) -> int:
    """``x - k c``, c in three parts (Cody and Waite 1980)."""
    for part in _parts(decimal, b.dtype(x)):
        x = b.emit("fma", b.emit("neg", k), b.const(part), x)
    return x


def _two_to(b: Builder, k: int, like: int) -> int:
    """2^k for a whole float k within the normal exponents."""
    bias, place = (127, 23) if _single(b, like) else (1023, 52)
    whole = b.emit("convert", k, dtype=b.dtype(_integer(b, 0, like)))
    exponent = b.emit("add", whole, _integer(b, bias, like))
    bits = b.emit("shl", exponent, _integer(b, place, like))
    return b.emit("bitcast", bits, dtype=b.dtype(like))


def _quadrant(b: Builder, x: int) -> tuple[int, int, int]:
    """Sine and cosine of the remainder modulo pi/2, and an integer with the quarter turns.

    Its two lowest bits are their number modulo 4.
    """
    # Adding 3/2 times 2^23 (2^52) rounds to an integer, which is then in the low bits of the sum.
    shift = _constant(b, 1.5 * 2.0 ** (23 if _single(b, x) else 52), x)
    turned = b.emit("fma", x, _constant(b, 2 / math.pi, x), shift)
    r = _less_multiple(b, x, b.emit("sub", turned, shift), _HALF_PI)
    far = b.emit("lt", _constant(b, FAR[b.dtype(x).itemsize], x), b.emit("abs", x))
    remainder = b.loop(_far_remainder(b.dtype(x)), [far, x, r, _bits(b, turned)])
    r, k = b.item(remainder, 0), b.item(remainder, 1)
    s = b.emit("mul", r, r)
    terms = 5 if _single(b, x) else 9
    sine = [(-1) ** n / math.factorial(2 * n + 1) for n in range(1, terms)]
    cosine = [(-1) ** n / math.factorial(2 * n) for n in range(1, terms + 1)]
    sine = b.emit("fma", b.emit("mul", r, s), _horner(b, sine, s), r)
    cosine = b.emit("fma", s, _horner(b, cosine, s), _constant(b, 1, x))
    return sine, cosine, k


@functools.cache
def _far_remainder(dtype: np.dtype) -> Routine:
    """The routine that reduces large angles (Payne and Hanek 1983).

    Inputs: whether x is large, x, and the remainder and quarter turns of ``_quadrant``; outputs:
    these two, replaced where x is large.

    With x = m 2^e in integers, the bits of 2/pi above 2^(1 - e) make whole turns and are left out.
    The next ones, in words of 32 bits, are multiplied by m: the first two bits of the product are
    the quarter turns, and the other bits the remainder as a fraction of a quarter turn.
    """
    single = dtype.itemsize == 4
    place, bias, words = (23, 127, 3) if single else (52, 1023, 6)
    wide, signed = np.dtype(np.uint64), np.dtype(np.int64)
    b = Builder([np.dtype(bool), dtype, dtype, np.dtype(f"i{dtype.itemsize}")])
    far, x, r, k = range(4)

    def whole(value: int) -> int:
        return b.const(np.uint64(value))

    def low(value: int) -> int:
        return b.emit("and", value, whole(2**32 - 1))

    def high(value: int) -> int:
        return b.emit("shr", value, whole(32))

    bits = b.emit("bitcast", b.emit("abs", x), dtype=np.dtype(f"u{dtype.itemsize}"))
    bits = b.emit("convert", bits, dtype=wide)
    exponent = b.emit("shr", bits, whole(place))
    m = b.emit("or", b.emit("and", bits, whole(2**place - 1)), whole(2**place))
    # the first bit that matters, in a table that begins 64 bits before the point
    first = b.emit("sub", b.emit("add", exponent, whole(64 - 2)), whole(bias + place))
    begin, turn = b.emit("shr", first, whole(5)), b.emit("and", first, whole(31))
    largest = 2 * bias - bias - place + 64 - 2
    count = largest // 32 + 1
    scaled = _two_over_pi(32 * (count + words))
    shifts = [32 * k for k in reversed(range(count + words))]
    table = [0, 0, *(scaled >> shift & (2**32 - 1) for shift in shifts)]
    smallest = (int(math.log2(FAR[dtype.itemsize])) - place + 64 - 2) // 32

    def word(offset: int) -> int:
        """The word of the table that lies ``offset`` after the first one that matters."""
        value = whole(table[smallest + offset])
        for start in range(smallest + 1, count):
            here = b.emit("le", whole(start), begin)
            value = b.emit("select", here, whole(table[start + offset]), value)
        return value

    window = []
    for a, c in itertools.pairwise([word(offset) for offset in range(words + 1)]):
        pair = b.emit("or", b.emit("shl", a, whole(32)), c)
        window.append(high(b.emit("shl", pair, turn)))
    columns = [whole(0)] * (words + 2)  # words of the product; the first two are whole turns
    for position, w in enumerate(window, 2):
        for offset, part in ((0, low(m)), (1, high(m)))[: 1 if single else 2]:
            product, column = b.emit("mul", w, part), position - offset
            columns[column] = b.emit("add", columns[column], low(product))
            columns[column - 1] = b.emit("add", columns[column - 1], high(product))
    digits, carry = [], whole(0)
    for column in reversed(columns[2:]):
        total = b.emit("add", column, carry)
        digits.insert(0, low(total))
        carry = high(total)
    joined = lambda i: b.emit("or", b.emit("shl", digits[i], whole(32)), digits[i + 1])  # noqa: E731
    top = joined(0)
    # of a quarter turn, from -1/2 to 1/2 in units of 2^-64
    fraction = b.emit("or", b.emit("shl", top, whole(2)), b.emit("shr", digits[2], whole(30)))
    fraction = b.emit("bitcast", fraction, dtype=signed)
    up = b.emit("lt", fraction, b.const(np.int64(0)))
    quarter = b.emit("add", b.emit("shr", top, whole(62)), b.emit("convert", up, dtype=wide))
    double = np.dtype(np.float64)
    real = lambda value: b.const(np.float64(value))  # noqa: E731
    high_part, low_part, _ = _parts(_HALF_PI, double)
    if single:
        value = b.emit("mul", b.emit("convert", fraction, dtype=double), real(high_part * 2.0**-64))
    else:  # in two floats: head has the upper bits, exactly
        head = b.emit("and", fraction, b.const(np.int64(-(2**11))))
        rest = b.emit("convert", b.emit("sub", fraction, head), dtype=double)
        head = b.emit("mul", b.emit("convert", head, dtype=double), real(2.0**-64))
        after = b.emit("shl", joined(2), whole(2))
        after = b.emit("or", after, b.emit("shr", digits[4], whole(30)))
        after = b.emit("mul", b.emit("convert", after, dtype=double), real(2.0**-64))
        rest = b.emit("mul", b.emit("add", rest, after), real(2.0**-64))
        value = _head(b, b.emit("mul", head, real(high_part)))
        error = b.emit("fma", head, real(high_part), b.emit("neg", value))
        error = b.emit("fma", rest, real(high_part), b.emit("fma", head, real(low_part), error))
        value = b.emit("add", value, error)
    value = b.emit("convert", value, dtype=dtype)
    negative = b.emit("lt", x, _constant(b, 0, x))
    value = b.emit("select", negative, b.emit("neg", value), value)
    infinite = b.emit("eq", b.emit("abs", x), _constant(b, np.inf, x))
    value = b.emit("select", infinite, _constant(b, np.nan, x), value)
    quarter = b.emit("convert", quarter, dtype=b.dtype(k))
    quarter = b.emit("select", negative, b.emit("neg", quarter), quarter)
    program = b.finish([b.emit("select", far, value, r), b.emit("select", far, quarter, k)])
    return Routine(program, 1, 2, 2, rare=True)


def _two_over_pi(bits: int) -> int:
    """2/pi times 2^bits, rounded down; pi by Machin's formula in integers."""
    one = 1 << (bits + 64)

    def inverse_tangent(n: int) -> int:
        """The arctangent of 1/n, in units of 1/one."""
        total, power, k = 0, one // n, 1
        while power:
            total += power // k if k % 4 == 1 else -(power // k)
            power //= n * n
            k += 2
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    return (2 * one << bits) // pi


def _circular(shift: int) -> Callable[[Builder, int], int]:
    """The sine of an angle advanced by ``shift`` quarter turns: the sine itself, or the cosine."""

    def rule(b: Builder, x: int) -> int:
        sine, cosine, k = _quadrant(b, x)
        k = b.emit("add", k, _integer(b, shift, x))
        zero = _integer(b, 0, x)
        odd = b.emit("ne", b.emit("and", k, _integer(b, 1, x)), zero)
        value = b.emit("select", odd, cosine, sine)
        below = b.emit("ne", b.emit("and", k, _integer(b, 2, x)), zero)
        value = b.emit("select", below, b.emit("neg", value), value)
        if shift:
            return value
        return b.emit("select", b.emit("eq", x, _constant(b, 0, x)), x, value)  # -0 is its own sine

    return rule


def _less_one(b: Builder, x: int, more: int | None = None) -> tuple[int, int]:
    """``exp(r) - 1`` and k, where ``x + more = k log 2 + r``."""
    k = b.emit("round", b.emit("mul", x, _constant(b, 1 / math.log(2), x)))
    r = _less_multiple(b, x, k, _LOG_2)
    r = r if more is None else b.emit("add", r, more)
    terms = [1 / math.factorial(n) for n in range(2, 8 if _single(b, x) else 15)]
    return b.emit("fma", b.emit("mul", r, r), _horner(b, terms, r), r), k


def _exp(b: Builder, x: int, more: int | None = None) -> int:
    """``exp(x + more)``; ``more`` is too small to change the number k of doublings."""
    low, high = (-104.0, 89.0) if _single(b, x) else (-746.0, 710.0)
    clipped = b.emit("min", b.emit("max", x, _constant(b, low, x)), _constant(b, high, x))
    p, k = _less_one(b, clipped, more)
    half = b.emit("floor", b.emit("mul", k, _constant(b, 0.5, x)))
    value = b.emit("mul", b.emit("add", p, _constant(b, 1, x)), _two_to(b, half, x))
    return b.emit("mul", value, _two_to(b, b.emit("sub", k, half), x))


def _expm1(b: Builder, x: int) -> int:
    """``2^k p + (2^k - 1)`` with ``p = exp(r) - 1``; its half first, as 2^k may be infinite."""
    low, high = (-20.0, 89.0) if _single(b, x) else (-40.0, 710.0)
    clipped = b.emit("min", b.emit("max", x, _constant(b, low, x)), _constant(b, high, x))
    p, k = _less_one(b, clipped)
    half, power = _constant(b, 0.5, x), _two_to(b, b.emit("sub", k, _constant(b, 1, x)), x)
    value = b.emit("fma", power, p, b.emit("sub", power, half))
    return b.emit("select", b.emit("eq", x, _constant(b, 0, x)), x, b.emit("add", value, value))


def _tanh(b: Builder, x: int) -> int:
    """``m/(m + 2)`` with ``m = exp(2|x|) - 1``."""
    one = _constant(b, 1, x)
    twice = b.emit("mul", _constant(b, 2, x), b.emit("abs", x))
    p, k = _less_one(b, b.emit("min", twice, _constant(b, 40, x)))
    power = _two_to(b, k, x)
    m = b.emit("fma", power, p, b.emit("sub", power, one))
    return with_sign(b, b.emit("div", m, b.emit("add", m, _constant(b, 2, x))), x)


def with_sign(b: Builder, magnitude: int, x: int) -> int:
    """``magnitude``, which is not negative, with the sign of x, where -0 is negative too."""
    sign = b.emit("and", _bits(b, x), _integer(b, -(2**31) if _single(b, x) else -(2**63), x))
    return b.emit("bitcast", b.emit("or", _bits(b, magnitude), sign), dtype=b.dtype(x))


def _exponent(b: Builder, x: int) -> tuple[int, int]:
    """Floats e and f, x = 2^e (1 + f), with 1 + f in [sqrt 1/2, sqrt 2], for a positive finite x.

    Subnormal numbers are lifted into the normal ones first.
    """
    if _single(b, x):
        place, mantissa, one_bits, normal, lift = 23, 0x7FFFFF, 0x3F800000, 2.0**-126, 24
    else:
        place, mantissa, one_bits = 52, 0xFFFFFFFFFFFFF, 0x3FF << 52
        normal, lift = 2.0**-1022, 53
    one = _constant(b, 1, x)
    small = b.emit("lt", x, _constant(b, normal, x))
    bits = _bits(b, b.emit("select", small, b.emit("mul", x, _constant(b, 2.0**lift, x)), x))
    e = b.emit("sub", b.emit("shr", bits, _integer(b, place, x)), _integer(b, one_bits >> place, x))
    m = b.emit("or", b.emit("and", bits, _integer(b, mantissa, x)), _integer(b, one_bits, x))
    m = b.emit("bitcast", m, dtype=b.dtype(x))
    e = b.emit("convert", e, dtype=b.dtype(x))
    e = b.emit("select", small, b.emit("sub", e, _constant(b, lift, x)), e)
    large = b.emit("lt", _constant(b, math.sqrt(2), x), m)
    m = b.emit("select", large, b.emit("mul", m, _constant(b, 0.5, x)), m)
    e = b.emit("select", large, b.emit("add", e, one), e)
    return e, b.emit("sub", m, one)


def _at_the_ends(b: Builder, x: int, value: int) -> int:
    """``value``, but the limits of the logarithm where x is not a positive finite number."""
    zero = _constant(b, 0, x)
    value = b.emit("select", b.emit("lt", x, _constant(b, np.inf, x)), value, x)  # inf and NaN
    value = b.emit("select", b.emit("eq", x, zero), _constant(b, -np.inf, x), value)
    return b.emit("select", b.emit("lt", x, zero), _constant(b, np.nan, x), value)


def _log_of(b: Builder, x: int, more: int | None = None) -> int:
    """``e log 2 + 2 artanh(f/(2 + f)) + more`` for a positive finite x."""
    e, f = _exponent(b, x)
    s = b.emit("div", f, b.emit("add", f, _constant(b, 2, x)))
    z = b.emit("mul", s, s)
    series = _horner(b, [2 / (2 * n + 1) for n in range(1, 6 if _single(b, x) else 12)], z)
    # 2 s is taken as f - s f: f is exact, and the error of s counts only in the small second term
    rest = b.emit("mul", s, b.emit("sub", b.emit("mul", z, series), f))
    rest = rest if more is None else b.emit("add", rest, more)
    high, low, _ = _parts(_LOG_2, b.dtype(x))
    return b.emit("fma", e, b.const(high), b.emit("add", f, b.emit("fma", e, b.const(low), rest)))


def _log(b: Builder, x: int) -> int:
    return _at_the_ends(b, x, _log_of(b, x))


def _log1p(b: Builder, x: int) -> int:
    """``log u + (1 + x - u)/u``, where u is 1 + x rounded."""
    one = _constant(b, 1, x)
    u = b.emit("add", one, x)
    far = b.emit("lt", one, x)
    big, little = b.emit("select", far, x, one), b.emit("select", far, one, x)
    lost = b.emit("div", b.emit("sub", little, b.emit("sub", u, big)), u)
    value = _at_the_ends(b, u, _log_of(b, u, lost))
    return b.emit("select", b.emit("eq", x, _constant(b, 0, x)), x, value)


def _atan2(b: Builder, y: int, x: int) -> int:
    """The arctangent of min(|x|, |y|)/max(|x|, |y|), then put into its quadrant.

    A ratio t above tan(pi/8) becomes (t - 1)/(t + 1), an eighth of a turn less.
    """
    one, zero = _constant(b, 1, x), _constant(b, 0, x)
    high, low, _ = _parts(_HALF_PI, b.dtype(x))
    up, across = b.emit("abs", y), b.emit("abs", x)
    most, least = b.emit("max", up, across), b.emit("min", up, across)
    t = b.emit("div", least, b.emit("select", b.emit("eq", most, zero), one, most))
    t = b.emit("select", b.emit("eq", least, _constant(b, np.inf, x)), one, t)
    steep = b.emit("lt", _constant(b, math.tan(math.pi / 8), x), t)
    r = b.emit("select", steep, b.emit("div", b.emit("sub", t, one), b.emit("add", t, one)), t)
    z = b.emit("mul", r, r)
    series = _horner(b, [(-1) ** n / (2 * n + 1) for n in range(1, 9 if _single(b, x) else 20)], z)
    angle = b.emit("fma", b.emit("mul", r, z), series, r)
    eighth = b.emit("add", angle, b.emit("mul", _constant(b, 0.5, x), b.const(low)))
    eighth = b.emit("add", b.emit("mul", _constant(b, 0.5, x), b.const(high)), eighth)
    angle = b.emit("select", steep, eighth, angle)
    over = b.emit("lt", across, up)
    quarter = b.emit("sub", b.const(high), b.emit("sub", angle, b.const(low)))
    angle = b.emit("select", over, quarter, angle)
    behind = b.emit("lt", _bits(b, x), _integer(b, 0, x))
    half = b.emit("sub", _constant(b, 2 * high, x), b.emit("sub", angle, _constant(b, 2 * low, x)))
    angle = b.emit("select", b.emit("and", behind, b.emit("eq", x, x)), half, angle)
    return with_sign(b, angle, y)


def _pow(b: Builder, x: int, y: int) -> int:
    """``exp(y log |x|)``, with the signs and limits of IEEE 754.

    A relative error of the logarithm is multiplied by y log |x|, which may be 745. So the logarithm
    is computed in float64 for float32, and in two float64 for float64.
    """
    dtype = b.dtype(x)
    zero, one, nan = _constant(b, 0, x), _constant(b, 1, x), _constant(b, np.nan, x)
    size = b.emit("abs", x)
    if _single(b, x):
        wide = [b.emit("convert", value, dtype=np.dtype(np.float64)) for value in (size, y)]
        value = b.emit("convert", _exp(b, b.emit("mul", wide[1], _log(b, wide[0]))), dtype=dtype)
    else:
        log, rest = _log_in_two(b, size)
        product = b.emit("mul", y, log)
        rest = b.emit("fma", y, rest, b.emit("fma", y, log, b.emit("neg", product)))
        # beyond 800 the result is 0 or infinite without the rest, which may be NaN there
        fine = b.emit("lt", b.emit("abs", product), _constant(b, 800, x))
        value = _exp(b, product, b.emit("select", fine, rest, zero))
    unit = b.emit("and", b.emit("eq", size, one), b.emit("eq", y, y))
    value = b.emit("select", unit, one, value)
    whole = b.emit("eq", b.emit("floor", y), y)
    half = b.emit("mul", y, _constant(b, 0.5, x))
    odd = b.emit("and", whole, b.emit("ne", b.emit("floor", half), half))
    minus = b.emit("lt", _bits(b, x), _integer(b, 0, x))
    value = b.emit("select", b.emit("and", minus, odd), b.emit("neg", value), value)
    finite = b.emit("lt", size, _constant(b, np.inf, x))
    root = b.emit("and", b.emit("and", b.emit("lt", x, zero), finite), b.emit("not", whole))
    value = b.emit("select", root, nan, value)
    return b.emit("select", b.emit("or", b.emit("eq", x, one), b.emit("eq", y, zero)), one, value)


def _head(b: Builder, x: int) -> int:
    """The float x with its last bit cleared.

    That keeps LLVM from contracting a product and the next sum to an fma, in which the product is
    not rounded: its rest is computed for the rounded one.
    """
    return b.emit("bitcast", b.emit("and", _bits(b, x), _integer(b, -2, x)), dtype=b.dtype(x))


def _log_in_two(b: Builder, x: int) -> tuple[int, int]:
    """``log x`` as a sum of two float64, head and rest.

    It is ``e log 2 + 2 artanh s`` with s = f/(2 + f). The first two terms of the series, s and
    s^3/3, are computed in two floats each.
    """
    e, f = _exponent(b, x)
    low = lambda p, q, head: b.emit("fma", p, q, b.emit("neg", head))  # noqa: E731
    below = b.emit("add", f, _constant(b, 2, x))
    s = b.emit("div", f, below)
    error = b.emit("fma", b.emit("neg", s), below, f)
    lost = b.emit("sub", f, b.emit("sub", below, _constant(b, 2, x)))
    s_low = b.emit("div", b.emit("fma", b.emit("neg", s), lost, error), below)
    z = _head(b, b.emit("mul", s, s))
    z_low = b.emit("fma", b.emit("mul", _constant(b, 2, x), s), s_low, low(s, s, z))
    third = np.float64(1) / 3
    third_low = float(Fraction(1, 3) - Fraction(float(third)))
    p = _head(b, b.emit("mul", z, b.const(third)))
    lowest = b.const(np.float64(third_low))
    p_low = b.emit("fma", z_low, b.const(third), low(z, b.const(third), p))
    p_low = b.emit("fma", z, lowest, p_low)
    others = b.emit("mul", z, z)
    others = b.emit("mul", others, _horner(b, [1 / (2 * n + 1) for n in range(2, 13)], z))
    total = b.emit("add", p, others)
    total_low = b.emit("add", p_low, b.emit("add", b.emit("sub", p, total), others))
    cubic = _head(b, b.emit("mul", s, total))
    cubic_low = b.emit("fma", s, total_low, b.emit("fma", s_low, total, low(s, total, cubic)))
    head = b.emit("add", s, cubic)
    rest = b.emit("add", b.emit("sub", s, head), cubic)
    rest = b.emit("add", rest, b.emit("add", s_low, cubic_low))
    # log 2 in two parts, the first short enough for its product with e to be exact
    first = np.float64(math.floor(math.log(2) * 2**40) / 2**40)
    second = np.float64(float(Fraction(_LOG_2) - Fraction(float(first))))
    twice = b.emit("mul", _constant(b, 2, x), head)
    doublings = b.emit("mul", e, b.const(first))
    log = b.emit("add", doublings, twice)
    after = b.emit("add", b.emit("sub", doublings, log), twice)
    rest = b.emit("fma", e, b.const(second), b.emit("fma", _constant(b, 2, x), rest, after))
    return _at_the_ends(b, x, log), rest


def _round(b: Builder, x: int) -> int:
    """To the nearest integer, half-way to the even one."""
    half, one = _constant(b, 0.5, x), _constant(b, 1, x)
    low = b.emit("floor", x)
    rest, pair = b.emit("sub", x, low), b.emit("mul", half, low)
    odd = b.emit("ne", pair, b.emit("floor", pair))
    up = b.emit("or", b.emit("lt", half, rest), b.emit("and", b.emit("eq", rest, half), odd))
    return b.emit("select", up, b.emit("add", low, one), low)


_EXPANSIONS: dict[str, Callable[..., int]] = {
    "sin": _circular(0), "cos": _circular(1), "exp": _exp, "expm1": _expm1, "tanh": _tanh,
    "log": _log, "log1p": _log1p, "atan2": _atan2, "pow": _pow, "round": _round,
}  # fmt: skip

"""Elementary functions as polynomials in the scalar program itself, for a compiler that has no vector library.

Ranges are reduced until Taylor series converge to rounding in few terms. docs/performance.md states the errors in ulp.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from jaxquat.fused.program import Builder, Program, Routine

# pi/2 and log 2 in three parts each, the first two exact in the dtype
_HALF_PI = "1.5707963267948966192313216916397514420985846996875529104874722961539"
_LOG_2 = "0.69314718055994530941723212145817656807550013436025525412068000949339"


TRANSCENDENTAL = ("sin", "cos", "tanh", "exp", "log", "atan2")


def expand(program: Program, names: Sequence[str] = TRANSCENDENTAL) -> Program:
    """The same program without these functions; "round" is one that may be named."""
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
    """A number as a sum of three of the dtype."""
    rest, found = Fraction(decimal), []
    for _ in range(3):
        part = dtype.type(float(rest))
        found.append(part)
        rest -= Fraction(float(part))
    return found


def _constant(b: Builder, value: float, like: int) -> int:
    return b.const(b.dtype(like).type(value))


def _integer(b: Builder, value: int, like: int) -> int:
    """In the integer dtype as wide as ``like``."""
    return b.const((np.int32 if b.dtype(like).itemsize == 4 else np.int64)(value))


def _bits(b: Builder, x: int) -> int:
    return b.emit("bitcast", x, dtype=np.int32 if b.dtype(x).itemsize == 4 else np.int64)


def _horner(b: Builder, coefficients: Sequence[float], at: int) -> int:
    total = _constant(b, coefficients[-1], at)
    for c in reversed(coefficients[:-1]):
        total = b.emit("fma", total, at, _constant(b, c, at))
    return total


def _single(b: Builder, x: int) -> bool:
    return b.dtype(x).itemsize == 4


def _less_multiple(b: Builder, x: int, k: int, decimal: str) -> int:
    """``x - k c`` with the constant in three parts (Cody and Waite 1980)."""
    for part in _parts(decimal, b.dtype(x)):
        x = b.emit("fma", b.emit("neg", k), b.const(part), x)
    return x


def _two_to(b: Builder, k: int, like: int) -> int:
    """2^k for a whole float k within the normal exponents."""
    bias, place = (127, 23) if _single(b, like) else (1023, 52)
    whole = b.emit("add", b.emit("convert", k, dtype=b.dtype(_integer(b, 0, like))), _integer(b, bias, like))
    return b.emit("bitcast", b.emit("shl", whole, _integer(b, place, like)), dtype=b.dtype(like))


def _quadrant(b: Builder, x: int) -> tuple[int, int, int]:
    """Sine and cosine of the remainder modulo pi/2, and the number of quarter turns."""
    k = b.emit("round", b.emit("mul", x, _constant(b, 2 / math.pi, x)))
    r = _less_multiple(b, x, k, _HALF_PI)
    s = b.emit("mul", r, r)
    terms = 5 if _single(b, x) else 9
    sine = [(-1) ** n / math.factorial(2 * n + 1) for n in range(1, terms)]
    cosine = [(-1) ** n / math.factorial(2 * n) for n in range(1, terms + 1)]
    sine = b.emit("fma", b.emit("mul", r, s), _horner(b, sine, s), r)
    cosine = b.emit("fma", s, _horner(b, cosine, s), _constant(b, 1, x))
    return sine, cosine, b.emit("convert", k, dtype=b.dtype(_integer(b, 0, x)))


def _circular(shift: int) -> Callable[[Builder, int], int]:
    def rule(b: Builder, x: int) -> int:
        sine, cosine, k = _quadrant(b, x)
        k = b.emit("add", k, _integer(b, shift, x))
        zero = _integer(b, 0, x)
        odd = b.emit("ne", b.emit("and", k, _integer(b, 1, x)), zero)
        value = b.emit("select", odd, cosine, sine)
        return b.emit("select", b.emit("ne", b.emit("and", k, _integer(b, 2, x)), zero), b.emit("neg", value), value)

    return rule


def _less_one(b: Builder, x: int) -> tuple[int, int]:
    """``exp(r) - 1`` and k with ``x = k log 2 + r``."""
    k = b.emit("round", b.emit("mul", x, _constant(b, 1 / math.log(2), x)))
    r = _less_multiple(b, x, k, _LOG_2)
    terms = [1 / math.factorial(n) for n in range(2, 8 if _single(b, x) else 15)]
    return b.emit("fma", b.emit("mul", r, r), _horner(b, terms, r), r), k


def _exp(b: Builder, x: int) -> int:
    low, high = (-104.0, 89.0) if _single(b, x) else (-746.0, 710.0)
    clipped = b.emit("min", b.emit("max", x, _constant(b, low, x)), _constant(b, high, x))
    p, k = _less_one(b, clipped)
    half = b.emit("floor", b.emit("mul", k, _constant(b, 0.5, x)))
    value = b.emit("mul", b.emit("add", p, _constant(b, 1, x)), _two_to(b, half, x))
    return b.emit("mul", value, _two_to(b, b.emit("sub", k, half), x))


def _tanh(b: Builder, x: int) -> int:
    """``m/(m + 2)`` with ``m = exp(2|x|) - 1``."""
    one = _constant(b, 1, x)
    twice = b.emit("mul", _constant(b, 2, x), b.emit("abs", x))
    p, k = _less_one(b, b.emit("min", twice, _constant(b, 40, x)))
    power = _two_to(b, k, x)
    m = b.emit("fma", power, p, b.emit("sub", power, one))
    return _with_sign(b, b.emit("div", m, b.emit("add", m, _constant(b, 2, x))), x)


def _with_sign(b: Builder, magnitude: int, x: int) -> int:
    """A value that is not negative with the sign of x, that of zero too."""
    sign = b.emit("and", _bits(b, x), _integer(b, -(2**31) if _single(b, x) else -(2**63), x))
    return b.emit("bitcast", b.emit("or", _bits(b, magnitude), sign), dtype=b.dtype(x))


def _log(b: Builder, x: int) -> int:
    """``e log 2 + 2 artanh(f/(2 + f))`` with ``x = 2^e (1 + f)``, 1 + f within [sqrt 1/2, sqrt 2]."""
    place, mantissa, one_bits, normal, lift = (
        (23, 0x7FFFFF, 0x3F800000, 2.0**-126, 24) if _single(b, x) else (52, 0xFFFFFFFFFFFFF, 0x3FF << 52, 2.0**-1022, 53)
    )
    one, zero = _constant(b, 1, x), _constant(b, 0, x)
    small = b.emit("lt", x, _constant(b, normal, x))
    bits = _bits(b, b.emit("select", small, b.emit("mul", x, _constant(b, 2.0**lift, x)), x))
    e = b.emit("sub", b.emit("shr", bits, _integer(b, place, x)), _integer(b, one_bits >> place, x))
    m = b.emit("bitcast", b.emit("or", b.emit("and", bits, _integer(b, mantissa, x)), _integer(b, one_bits, x)), dtype=b.dtype(x))
    e = b.emit("convert", e, dtype=b.dtype(x))
    e = b.emit("select", small, b.emit("sub", e, _constant(b, lift, x)), e)
    large = b.emit("lt", _constant(b, math.sqrt(2), x), m)
    m = b.emit("select", large, b.emit("mul", m, _constant(b, 0.5, x)), m)
    e = b.emit("select", large, b.emit("add", e, one), e)
    f = b.emit("sub", m, one)
    s = b.emit("div", f, b.emit("add", f, _constant(b, 2, x)))
    z = b.emit("mul", s, s)
    series = _horner(b, [2 / (2 * n + 1) for n in range(1, 6 if _single(b, x) else 12)], z)
    # 2 s = f - s f loses less than 2 s does
    rest = b.emit("mul", s, b.emit("sub", b.emit("mul", z, series), f))
    high, low, _ = _parts(_LOG_2, b.dtype(x))
    value = b.emit("fma", e, b.const(high), b.emit("add", f, b.emit("fma", e, b.const(low), rest)))
    value = b.emit("select", b.emit("lt", x, _constant(b, np.inf, x)), value, x)  # inf and NaN
    value = b.emit("select", b.emit("eq", x, zero), _constant(b, -np.inf, x), value)
    return b.emit("select", b.emit("lt", x, zero), _constant(b, np.nan, x), value)


def _atan2(b: Builder, y: int, x: int) -> int:
    """Of the smaller over the larger, brought below tan(pi/8)."""
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
    angle = b.emit("select", steep, b.emit("add", b.emit("mul", _constant(b, 0.5, x), b.const(high)), eighth), angle)
    over = b.emit("lt", across, up)
    angle = b.emit("select", over, b.emit("sub", b.const(high), b.emit("sub", angle, b.const(low))), angle)
    behind = b.emit("lt", _bits(b, x), _integer(b, 0, x))
    half = b.emit("sub", _constant(b, 2 * high, x), b.emit("sub", angle, _constant(b, 2 * low, x)))
    angle = b.emit("select", b.emit("and", behind, b.emit("eq", x, x)), half, angle)
    return _with_sign(b, angle, y)


def _round(b: Builder, x: int) -> int:
    """To the nearest, of two the even one."""
    half, one = _constant(b, 0.5, x), _constant(b, 1, x)
    low = b.emit("floor", x)
    rest, pair = b.emit("sub", x, low), b.emit("mul", half, low)
    odd = b.emit("ne", pair, b.emit("floor", pair))
    up = b.emit("or", b.emit("lt", half, rest), b.emit("and", b.emit("eq", rest, half), odd))
    return b.emit("select", up, b.emit("add", low, one), low)


_EXPANSIONS: dict[str, Callable[..., int]] = {
    "sin": _circular(0), "cos": _circular(1), "exp": _exp, "tanh": _tanh, "log": _log, "atan2": _atan2, "round": _round,
}  # fmt: skip

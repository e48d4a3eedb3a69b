"""Functions of floats as scalar operations, for a compiler without a vector library.

``EXPANSIONS`` has sin, exp, pow and similar functions in operations that LLVM has for vectors.

1. Reduce the argument: x = k c + r with an integer k and a small r, where c is pi/2 or log 2, in
   three parts (Cody and Waite); or x = 2^e (1 + f) from the bits of x.
2. Evaluate the Taylor series at r or f, which converges to rounding in few terms.
3. Put the parts together: a quarter turn chooses sine or cosine, 2^k is made from its bits.
4. Select the values at zero, infinity and NaN.

A value "in two floats" is the sum of a head and a tail that is small beside the head's last bit.
docs/architecture.md states the errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from jaxquat.fused.ir.builder import Scalar, floor, fma, maximum, minimum, nearest, where
from jaxquat.fused.ir.large_angles import HALF_PI, parts, with_large_angles
from jaxquat.fused.ir.remainder import magnitude_of_remainder

_LOG_2 = "0.69314718055994530941723212145817656807550013436025525412068000949339"


def single(x: Scalar) -> bool:
    """Return whether the value is a float32."""
    return x.dtype.itemsize == 4


def bits(x: Scalar) -> Scalar:
    """Return the bits of a float as a signed integer, negative for -0 too."""
    return x.bitcast(np.int32 if single(x) else np.int64)


def horner(coefficients: Sequence[float], x: Scalar) -> Scalar:
    """Return the polynomial with these coefficients, the lowest power first."""
    total = x.like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, c)
    return total


def with_sign(magnitude: Scalar, x: Scalar) -> Scalar:
    """Return ``magnitude``, which is not negative, with the sign of x; -0 is negative too."""
    sign = bits(x) & (-(2**31) if single(x) else -(2**63))
    return (bits(magnitude) | sign).bitcast(x.dtype)


def _less_multiple(x: Scalar, k: Scalar, decimal: str) -> Scalar:
    """Return ``x - k c``, c in three parts (Cody and Waite 1980)."""
    for part in parts(decimal, x.dtype):
        x = fma(-k, part, x)
    return x


def two_to(k: Scalar) -> Scalar:
    """Return 2^k for an integer-valued float k within the normal exponents."""
    bias, place, signed = (127, 23, np.int32) if single(k) else (1023, 52, np.int64)
    return ((k.convert(signed) + bias) << place).bitcast(k.dtype)


def _quadrant(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Return sine and cosine of the remainder modulo pi/2, and the quarter turns (modulo 4)."""
    # Adding 3/2 times 2^23 (2^52) rounds to an integer, which is then in the low bits of the sum.
    shift = 1.5 * 2.0 ** (23 if single(x) else 52)
    turned = fma(x, 2 / math.pi, shift)
    r = _less_multiple(x, turned - shift, HALF_PI)
    r, k = with_large_angles(x, r, bits(turned))
    s = r * r
    terms = 5 if single(x) else 9
    sine = [(-1) ** n / math.factorial(2 * n + 1) for n in range(1, terms)]
    cosine = [(-1) ** n / math.factorial(2 * n) for n in range(1, terms + 1)]
    return fma(r * s, horner(sine, s), r), fma(s, horner(cosine, s), 1), k


def _sin(x: Scalar) -> Scalar:
    sine, cosine, k = _quadrant(x)
    value = where((k & 1).differs(0), cosine, sine)
    value = where((k & 2).differs(0), -value, value)
    return where(x.equals(0), x, value)  # sin(-0) is -0


def _cos(x: Scalar) -> Scalar:
    sine, cosine, k = _quadrant(x)
    value = where((k & 1).differs(0), sine, cosine)
    return where(((k + 1) & 2).differs(0), -value, value)


def _less_one(x: Scalar, more: Scalar | None = None) -> tuple[Scalar, Scalar]:
    """Return ``exp(r) - 1`` and k, where ``x + more = k log 2 + r``."""
    k = nearest(x * (1 / math.log(2)))
    r = _less_multiple(x, k, _LOG_2)
    r = r if more is None else r + more
    terms = [1 / math.factorial(n) for n in range(2, 8 if single(x) else 15)]
    return fma(r * r, horner(terms, r), r), k


def _exp(x: Scalar, more: Scalar | None = None) -> Scalar:
    """Return ``exp(x + more)``; ``more`` is too small to change the number k of doublings."""
    low, high = (-104, 89) if single(x) else (-746, 710)
    p, k = _less_one(minimum(maximum(x, low), high), more)
    half = floor(k * 0.5)
    return (p + 1) * two_to(half) * two_to(k - half)


def _expm1(x: Scalar) -> Scalar:
    """Return ``2^k p + (2^k - 1)``, p = exp(r) - 1; half of it first, as 2^k may overflow."""
    low, high = (-20, 89) if single(x) else (-40, 710)
    p, k = _less_one(minimum(maximum(x, low), high))
    power = two_to(k - 1)
    value = fma(power, p, power - 0.5)
    return where(x.equals(0), x, value + value)


def _tanh(x: Scalar) -> Scalar:
    """Return ``m/(m + 2)`` with ``m = exp(2|x|) - 1``."""
    p, k = _less_one(minimum(2 * abs(x), 40))
    power = two_to(k)
    m = fma(power, p, power - 1)
    return with_sign(m / (m + 2), x)


def exponent(x: Scalar) -> tuple[Scalar, Scalar]:
    """Return e and f with x = 2^e (1 + f), 1 + f in [sqrt 1/2, sqrt 2], for a positive finite x."""
    place, bias, normal, lift = (
        (23, 127, 2.0**-126, 24) if single(x) else (52, 1023, 2.0**-1022, 53)
    )
    small = x < normal
    word = bits(where(small, x * 2.0**lift, x))
    e = ((word >> place) - bias).convert(x.dtype)
    e = where(small, e - lift, e)
    m = ((word & (2**place - 1)) | (bias << place)).bitcast(x.dtype)
    large = m > math.sqrt(2)
    return where(large, e + 1, e), where(large, m * 0.5, m) - 1


def _at_the_ends(x: Scalar, value: Scalar) -> Scalar:
    value = where(x < np.inf, value, x)  # infinity and NaN
    return where(x < 0, np.nan, where(x.equals(0), -np.inf, value))


def _log_of(x: Scalar, more: Scalar | None = None) -> Scalar:
    """Return ``e log 2 + 2 artanh(f/(2 + f)) + more`` for a positive finite x."""
    e, f = exponent(x)
    s = f / (f + 2)
    z = s * s
    series = horner([2 / (2 * n + 1) for n in range(1, 6 if single(x) else 12)], z)
    # 2 s is computed as f - s f: f is exact, and the error of s is only in the small second term
    tail = s * fma(z, series, -f)
    tail = tail if more is None else tail + more
    high, low, _ = parts(_LOG_2, x.dtype)
    return fma(e, high, f + fma(e, low, tail))


def _log(x: Scalar) -> Scalar:
    return _at_the_ends(x, _log_of(x))


def _log1p(x: Scalar) -> Scalar:
    """Return ``log u + (1 + x - u)/u``, where u is 1 + x rounded."""
    u = x + 1
    far = x > 1
    lost = (where(far, 1, x) - (u - where(far, x, 1))) / u
    return where(x.equals(0), x, _at_the_ends(u, _log_of(u, lost)))


def _atan2(y: Scalar, x: Scalar) -> Scalar:
    """Return the arctangent of min(|x|, |y|)/max(|x|, |y|), moved to its quadrant.

    A ratio t above tan(pi/8) is replaced by (t - 1)/(t + 1), whose angle is pi/4 less.
    """
    high, low, _ = parts(HALF_PI, x.dtype)
    up, across = abs(y), abs(x)
    most, least = maximum(up, across), minimum(up, across)
    t = least / where(most.equals(0), 1, most)
    t = where(least.equals(np.inf), 1, t)
    steep = t > math.tan(math.pi / 8)
    r = where(steep, (t - 1) / (t + 1), t)
    z = r * r
    series = horner([(-1) ** n / (2 * n + 1) for n in range(1, 9 if single(x) else 20)], z)
    angle = fma(r * z, series, r)
    angle = where(steep, 0.5 * high + (angle + 0.5 * low), angle)
    behind = (bits(x) < 0) & x.equals(x)
    flat = where(behind, 2 * high - (angle - 2 * low), angle)
    upright = high + (where(behind, angle, -angle) + low)
    return with_sign(where(across < up, upright, flat), y)


def _pow(x: Scalar, y: Scalar) -> Scalar:
    """Return ``exp(y log |x|)``, with the signs and limits of IEEE 754.

    A relative error of the logarithm is multiplied by y log |x|, up to 745. So the logarithm is
    computed in float64 for float32, and in two float64 for float64.
    """
    size = abs(x)
    if single(x):
        value = _exp(y.convert(np.float64) * _log(size.convert(np.float64))).convert(x.dtype)
    else:
        log, tail = _log_in_two(size)
        product = y * log
        tail = fma(y, tail, fma(y, log, -product))
        # beyond 800 the result is 0 or infinite without the tail, which may be NaN there
        value = _exp(product, where(abs(product) < 800, tail, 0))
    value = where(size.equals(1) & y.equals(y), 1, value)
    is_integer, half = floor(y).equals(y), y * 0.5
    odd = is_integer & floor(half).differs(half)
    value = where((bits(x) < 0) & odd, -value, value)
    value = where((x < 0) & (size < np.inf) & ~is_integer, np.nan, value)
    return where(x.equals(1) | y.equals(0), 1, value)


def _log_in_two(x: Scalar) -> tuple[Scalar, Scalar]:
    """Return ``log x = e log 2 + 2 artanh s``, s = f/(2 + f), as head and tail in float64.

    The first two terms of the series, s and s^3/3, are computed in two floats each.
    """
    e, f = exponent(x)
    below = f + 2
    s = f / below
    s_low = fma(-s, f - (below - 2), fma(-s, below, f)) / below
    z = s * s
    z_low = fma(2 * s, s_low, fma(s, s, -z))
    third = np.float64(1) / 3
    p = z * third
    p_low = fma(
        z, float(Fraction(1, 3) - Fraction(float(third))), fma(z_low, third, fma(z, third, -p))
    )
    higher = z * z * horner([1 / (2 * n + 1) for n in range(2, 13)], z)
    total = p + higher
    total_low = p_low + ((p - total) + higher)
    cubic = s * total
    cubic_low = fma(s, total_low, fma(s_low, total, fma(s, total, -cubic)))
    head = s + cubic
    tail = ((s - head) + cubic) + (s_low + cubic_low)
    # log 2 in two parts; the first is so short that its product with e is exact
    first = math.floor(math.log(2) * 2**40) / 2**40
    second = float(Fraction(_LOG_2) - Fraction(first))
    doublings = e * first
    log = doublings + 2 * head
    tail = fma(e, second, fma(2, tail, (doublings - log) + 2 * head))
    return _at_the_ends(x, log), tail


def _rem(x: Scalar, y: Scalar) -> Scalar:
    return with_sign(magnitude_of_remainder(x, y), x)


EXPANSIONS: dict[str, Callable[..., Scalar]] = {
    "sin": _sin, "cos": _cos, "exp": _exp, "expm1": _expm1, "tanh": _tanh, "log": _log,
    "log1p": _log1p, "atan2": _atan2, "pow": _pow, "rem": _rem,
}  # fmt: skip

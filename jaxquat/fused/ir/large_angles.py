"""The remainder of a large angle modulo pi/2, by integers (Payne and Hanek 1983).

With x = m 2^e in integers, the bits of 2/pi above 2^(1 - e) make whole turns and are left out. The
next bits, in words of 32, are multiplied by m: the first two bits of the product are the quarter
turns, the others the remainder as a fraction of one. A rare routine computes this.
"""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import numpy as np

from jaxquat.fused.ir.builder import Builder, Scalar, fma, where
from jaxquat.fused.ir.program import Routine

HALF_PI = "1.5707963267948966192313216916397514420985846996875529104874722961539"
FAR = {4: 1e5, 8: 1e9}  # angles for which three parts of pi/2 are too few, by bytes of the dtype


def parts(decimal: str, dtype: np.dtype) -> list[float]:
    """Return a number as a sum of three numbers of the dtype, the largest first."""
    remainder, numbers = Fraction(decimal), []
    for _ in range(3):
        part = float(dtype.type(float(remainder)))
        numbers.append(part)
        remainder -= Fraction(part)
    return numbers


def with_large_angles(x: Scalar, r: Scalar, k: Scalar) -> tuple[Scalar, Scalar]:
    """Return the remainder ``r`` and the quarter turns ``k`` of x, replaced where x is large."""
    far = abs(x) > FAR[x.dtype.itemsize]
    r, k = x.b.call(_routine(x.dtype), [far, x, r, k])
    return r, k


@functools.cache
def _routine(dtype: np.dtype) -> Routine:
    b = Builder([np.dtype(bool), dtype, dtype, np.dtype(f"i{dtype.itemsize}")])
    far, x, r, k = b.arguments
    digits = _product_with_two_over_pi(x)
    remainder, quarter = (_single if dtype.itemsize == 4 else _double)(digits)
    negative = x < 0
    remainder = remainder.convert(dtype)
    remainder = where(negative, -remainder, remainder)
    remainder = where(abs(x).equals(np.inf), np.nan, remainder)
    quarter = quarter.convert(k.dtype)
    quarter = where(negative, -quarter, quarter)
    results = [where(far, remainder, r), where(far, quarter, k)]
    return Routine(b.finish(results), 1, 2, 2, "rare")


def _low(x: Scalar) -> Scalar:
    return x & (2**32 - 1)


def _high(x: Scalar) -> Scalar:
    return x >> 32


def _product_with_two_over_pi(x: Scalar) -> list[Scalar]:
    """Return words of x times 2/pi without whole turns; quarter turns come first."""
    is_single = x.dtype.itemsize == 4
    place, bias, words = (23, 127, 3) if is_single else (52, 1023, 6)
    bits = abs(x).bitcast(f"u{x.dtype.itemsize}").convert(np.uint64)
    m = (bits & (2**place - 1)) | 2**place
    # the first bit that matters, in a table that begins 64 bits before the point
    first = (bits >> place) + (64 - 2) - (bias + place)
    window = _window(first, words, bias, place)
    columns = [first.like(0)] * (words + 2)  # words of the product; the first two are whole turns
    for position, w in enumerate(window, 2):
        for offset, part in ((0, _low(m)), (1, _high(m)))[: 1 if is_single else 2]:
            product, column = w * part, position - offset
            columns[column] = columns[column] + _low(product)
            columns[column - 1] = columns[column - 1] + _high(product)
    digits, carry = [], first.like(0)
    for column in reversed(columns[2:]):
        total = column + carry
        digits.insert(0, _low(total))
        carry = _high(total)
    return digits


def _window(first: Scalar, words: int, bias: int, place: int) -> list[Scalar]:
    """Return ``words`` words of 32 bits of 2/pi, from bit ``first`` of the table on."""
    begin, turn = first >> 5, first & 31
    largest = bias - place + 64 - 2
    count = largest // 32 + 1
    scaled = _two_over_pi(32 * (count + words))
    table = [0, 0, *(scaled >> 32 * k & (2**32 - 1) for k in reversed(range(count + words)))]
    smallest = (int(math.log2(FAR[4 if place == 23 else 8])) - place + 64 - 2) // 32

    def word(offset: int) -> Scalar:
        value = first.like(table[smallest + offset])
        for start in range(smallest + 1, count):
            value = where(begin >= start, table[start + offset], value)
        return value

    pairs = itertools.pairwise([word(offset) for offset in range(words + 1)])
    return [_high(((a << 32) | c) << turn) for a, c in pairs]


def _joined(digits: list[Scalar], i: int) -> Scalar:
    return (digits[i] << 32) | digits[i + 1]


def _fraction(digits: list[Scalar]) -> tuple[Scalar, Scalar]:
    """Return the remainder, -1/2 to 1/2 quarter turns in units of 2^-64, and the quarter turns."""
    top = _joined(digits, 0)
    fraction = ((top << 2) | (digits[2] >> 30)).bitcast(np.int64)
    return fraction, (top >> 62) + (fraction < 0).convert(np.uint64)


def _single(digits: list[Scalar]) -> tuple[Scalar, Scalar]:
    fraction, quarter = _fraction(digits)
    high, _, _ = parts(HALF_PI, np.dtype(np.float64))
    return fraction.convert(np.float64) * (high * 2.0**-64), quarter


def _double(digits: list[Scalar]) -> tuple[Scalar, Scalar]:
    """Return the remainder of a float64: the fraction times pi/2, in two floats each."""
    fraction, quarter = _fraction(digits)
    high, low, _ = parts(HALF_PI, np.dtype(np.float64))
    upper = fraction & -(2**11)  # a float has these bits exactly
    lower = (fraction - upper).convert(np.float64)
    after = ((_joined(digits, 2) << 2) | (digits[4] >> 30)).convert(np.float64)
    head = upper.convert(np.float64) * 2.0**-64
    tail = (lower + after * 2.0**-64) * 2.0**-64
    value = head * high
    error = fma(tail, high, fma(head, low, fma(head, high, -value)))
    return value + error, quarter


def _two_over_pi(bits: int) -> int:
    """Return 2/pi times 2^bits, rounded down; pi by Machin's formula in integers."""
    one = 1 << (bits + 64)

    def inverse_tangent(n: int) -> int:
        total, power, k = 0, one // n, 1
        while power:
            total += power // k if k % 4 == 1 else -(power // k)
            power //= n * n
            k += 2
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    return (2 * one << bits) // pi

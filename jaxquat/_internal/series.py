"""Smooth even functions of an angle x, written as functions of s = x^2.

In this form they have no singular point to guard, and every derivative exists at zero. The Taylor
series is used up to s = 4; beyond, cos and sinc use it at the remainder of x modulo pi. So values
and first and second derivatives agree to rounding on both sides of the switch; at s = 1 second
derivatives of the closed forms would be off by hundreds of ulp.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import Array

from jaxquat._internal.branches import rarely

_COS = tuple((-1) ** n / math.factorial(2 * n) for n in range(15))
_SINC = tuple((-1) ** n / math.factorial(2 * n + 1) for n in range(15))
_SIN_DEFECT = tuple((-1) ** n * 4.0**n / math.factorial(2 * n + 3) for n in range(19))
_COS_DEFECT = tuple((-1) ** n * 4.0**n / math.factorial(2 * n + 4) for n in range(19))
_SIN_DEFECT_SLOPE = tuple(n * c for n, c in enumerate(_SIN_DEFECT) if n)
_COS_DEFECT_SLOPE = tuple(n * c for n, c in enumerate(_COS_DEFECT) if n)
_ARCTAN = tuple((-1) ** n / (2 * n + 1) for n in range(12))

_SWITCH = 4.0


def _powers_from_three(p: int) -> float:
    """Return the sum of k^-p over k = 3, 4, ...: 97 terms, the tail by Euler-Maclaurin."""
    tail = 100.0 ** (1 - p) / (p - 1) + 100.0**-p / 2 + p * 100.0 ** (-p - 1) / 12
    tail -= p * (p + 1) * (p + 2) * 100.0 ** (-p - 3) / 720
    return sum(float(k) ** -p for k in range(3, 100)) + tail


_FAR_POLES = tuple(2 * _powers_from_three(2 * n + 2) / math.pi ** (2 * n + 2) for n in range(20))


def _polynomial(coefficients: Sequence[float], s: Array, largest: float) -> Array:
    """Return the polynomial in s up to ``largest``, without terms that even f'' rounds away."""
    tiny = float(jnp.finfo(s.dtype).eps) / 64
    kept = [c for n, c in enumerate(coefficients) if abs(c) * largest**n * max(1, n * n) > tiny]
    total = jnp.full_like(s, kept[-1])
    for coefficient in reversed(kept[:-1]):
        total = total * s + coefficient
    return total


def _reduced(s: Array) -> tuple[Array, Array, Array]:
    """Return (r^2, sign, sign r/x), x = r + k pi, sign = (-1)^k; (s, 1, 1) below the switch."""
    one = jnp.ones_like(s)
    return rarely(_modulo_pi, ~(s < _SWITCH), (s, one, one), s)


def _modulo_pi(s: Array) -> tuple[Array, Array, Array]:
    largest = float(jnp.finfo(s.dtype).max)  # s itself may have overflowed
    x = jnp.sqrt(jnp.minimum(jnp.where(s < _SWITCH, _SWITCH, s), largest))  # never of zero
    k = jnp.round(x / math.pi)
    remainder = x - math.pi * k
    # If the rounding of x is more than a turn, only whole turns remain.
    remainder = jnp.where(remainder * remainder > _SWITCH, 0.0, remainder)
    sign = 1.0 - 2.0 * (k - 2.0 * jnp.floor(0.5 * k))
    return remainder * remainder, sign, sign * remainder / x


def cos(s: Array) -> Array:
    """Return cos x with s = x^2 >= 0, any shape."""
    square, sign, _ = _reduced(s)
    return sign * _polynomial(_COS, square, _SWITCH)


def sinc(s: Array) -> Array:
    """Return sin(x)/x with s = x^2 >= 0, any shape."""
    square, _, ratio = _reduced(s)
    return ratio * _polynomial(_SINC, square, _SWITCH)


def cosm1_sinc(s: Array) -> tuple[Array, Array]:
    """Return (cos x - 1, sin(x)/x) with s = x^2 >= 0: no cancellation, by the half angle."""
    square, sign, ratio = _reduced(0.25 * s)
    cosine, sine = sign * _polynomial(_COS, square, _SWITCH), _polynomial(_SINC, square, _SWITCH)
    return -2.0 * square * sine * sine, ratio * sine * cosine


def cot_defect(s: Array) -> Array:
    """Return (1 - x cot x)/x^2 with 0 <= s = x^2 < pi^2, any shape; 1/3 at zero, else NaN."""
    # It is the sum of 2/((k pi)^2 - s) over k = 1, 2, ...: two terms exactly, then a power series.
    pole = math.pi**2
    first_two = (10.0 * pole - 4.0 * s) / ((pole - s) * (4.0 * pole - s))
    return jnp.where(s < pole, first_two + _polynomial(_FAR_POLES, s, pole), jnp.nan)


def _near_or_far(
    coefficients: Sequence[float], far: Callable[[Array], tuple[Array]], s: Array
) -> Array:
    """Return the polynomial below the switch, ``far``, finite everywhere, above it."""
    near = s < _SWITCH
    value = _polynomial(coefficients, jnp.where(near, s, _SWITCH), _SWITCH)
    return rarely(far, ~near, (value,), s)[0]


def _far(which: int, s: Array) -> tuple[Array]:
    """Return one of both defects and their slopes in closed form; powers of x may overflow."""
    s = jnp.where(s < _SWITCH, _SWITCH, s)
    x, over = jnp.sqrt(s), 1.0 / s
    square, double = jnp.sin(x) ** 2, jnp.sin(2.0 * x) / x
    forms = (
        lambda: 0.125 * (2.0 - double) * over,
        lambda: 0.125 * (1.0 - square * over) * over,
        lambda: 0.0625 * (4.0 * square - 6.0 + 3.0 * double) * over * over,
        lambda: 0.0625 * (4.0 * square * over - double - 2.0) * over * over,
    )
    return (forms[which](),)


_FAR = [functools.partial(_far, which) for which in range(4)]  # the same objects for ``jax.jit``


def sin_defect(s: Array) -> Array:
    """Return (2x - sin 2x)/(2x)^3 with s = x^2 >= 0, any shape; 1/6 at zero."""
    return _near_or_far(_SIN_DEFECT, _FAR[0], s)


def cos_defect(s: Array) -> Array:
    """Return (cos 2x - 1 + 2x^2)/(2x)^4 with s = x^2 >= 0, any shape; 1/24 at zero."""
    return _near_or_far(_COS_DEFECT, _FAR[1], s)


def sin_defect_slope(s: Array) -> Array:
    """Return the derivative of ``sin_defect`` with respect to s, any shape; -1/30 at zero."""
    return _near_or_far(_SIN_DEFECT_SLOPE, _FAR[2], s)


def cos_defect_slope(s: Array) -> Array:
    """Return the derivative of ``cos_defect`` with respect to s, any shape; -1/180 at zero."""
    return _near_or_far(_COS_DEFECT_SLOPE, _FAR[3], s)


def arctan_ratio(s: Array, c: Array) -> Array:
    """Return atan2(sqrt(s), c)/sqrt(s) for s >= 0, c >= 0, not both zero; any shape."""
    # It is smooth through s = 0, without a branch: three half-angle steps bring the tangent below
    # 0.2, where the series converges to rounding. No root is taken of less than max(s, c^2).
    first = 1.0 / (c + jnp.sqrt(s + c * c))
    tangent = s * first * first
    second = 1.0 / (1.0 + jnp.sqrt(1.0 + tangent))
    tangent = tangent * second * second
    third = 1.0 / (1.0 + jnp.sqrt(1.0 + tangent))
    tangent = tangent * third * third
    return 8.0 * first * second * third * _polynomial(_ARCTAN, tangent, 0.04)

"""Smooth even functions of an angle, written as functions of its square.

cos x, sin(x)/x and their kin are entire functions of s = x^2: written that way they have no singular point to guard,
and every derivative exists at zero. The Taylor series serves up to s = 4, the closed form beyond. Neither cancels
there, so values and first and second derivatives agree to rounding on both sides of the switch; at s = 1 the second
derivatives of the closed forms would still be off by hundreds of ulp.
"""

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jax import Array

_COS = tuple((-1) ** n / math.factorial(2 * n) for n in range(15))
_SINC = tuple((-1) ** n / math.factorial(2 * n + 1) for n in range(15))
_COSC = tuple((-1) ** n * (2 * n + 2) / math.factorial(2 * n + 3) for n in range(15))
_SIN_DEFECT = tuple((-1) ** n * 4.0**n / math.factorial(2 * n + 3) for n in range(19))
_ARCTAN = tuple((-1) ** n / (2 * n + 1) for n in range(12))


_SWITCH = 4.0


def _polynomial(coefficients: Sequence[float], s: Array, largest: float) -> Array:
    """Horner's rule for s up to ``largest``, without the terms that the dtype cannot see even in the second derivative."""
    tiny = float(jnp.finfo(s.dtype).eps) / 64
    kept = [c for n, c in enumerate(coefficients) if abs(c) * largest**n * max(1, n * n) > tiny]
    total = jnp.full_like(s, kept[-1])
    for coefficient in reversed(kept[:-1]):
        total = total * s + coefficient
    return total


def _entire(closed: Callable[[Array], Array], coefficients: Sequence[float], s: Array) -> Array:
    near = s < _SWITCH
    root = jnp.sqrt(jnp.where(near, _SWITCH, s))  # never the root of zero, in either branch
    return jnp.where(near, _polynomial(coefficients, jnp.where(near, s, _SWITCH), _SWITCH), closed(root))


def cos(s: Array) -> Array:
    """Cos x with s = x^2 >= 0, any shape."""
    return _entire(jnp.cos, _COS, s)


def sinc(s: Array) -> Array:
    """sin(x)/x with s = x^2 >= 0, any shape."""
    return _entire(lambda x: jnp.sin(x) / x, _SINC, s)


def cosc(s: Array) -> Array:
    """(sin(x)/x - cos x)/x^2 with s = x^2 >= 0, any shape; 1/3 at zero (the spherical Bessel function j1(x)/x)."""
    return _entire(lambda x: (jnp.sin(x) / x - jnp.cos(x)) / (x * x), _COSC, s)


def sin_defect(s: Array) -> Array:
    """(2x - sin 2x)/(2x)^3 with s = x^2 >= 0, any shape; 1/6 at zero."""
    return _entire(lambda x: (2.0 * x - jnp.sin(2.0 * x)) / (8.0 * x * x * x), _SIN_DEFECT, s)


def arctan_ratio(s: Array, c: Array) -> Array:
    """atan2(sqrt(s), c)/sqrt(s) for s >= 0, c >= 0, not both zero; any shape.

    Smooth through s = 0, without a branch: three half-angle steps bring the tangent below 0.2, where the series of the
    arctangent converges to rounding. No square root here ever sees less than max(s, c^2).
    """
    first = 1.0 / (c + jnp.sqrt(s + c * c))
    tangent = s * first * first
    second = 1.0 / (1.0 + jnp.sqrt(1.0 + tangent))
    tangent = tangent * second * second
    third = 1.0 / (1.0 + jnp.sqrt(1.0 + tangent))
    tangent = tangent * third * third
    return 8.0 * first * second * third * _polynomial(_ARCTAN, tangent, 0.04)

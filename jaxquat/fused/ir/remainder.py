"""The remainder of a division of floats, exact for every quotient.

LLVM's ``frem`` is rounded on a GPU. So loops compute the remainder, the same for all targets: |y|
is doubled until it is more than half of |x|, then halved again, and subtracted from the rest of |x|
wherever it fits. Nothing is rounded: the difference of two floats is a float if one is at most
twice the other (Sterbenz). A quotient of 2^n needs n trips up and n + 1 down.
"""

from __future__ import annotations

import functools

import numpy as np

from jaxquat.fused.ir.builder import Builder, Scalar, where
from jaxquat.fused.ir.program import Program, Routine

BOOLEAN = np.dtype(bool)


def magnitude_of_remainder(x: Scalar, y: Scalar) -> Scalar:
    """Return ``|x - n y|``, n the truncated x / y; NaN for infinite x, zero y, or a NaN."""
    return x.b.call(_function(x.dtype), [x, y])[0]


@functools.cache
def _function(dtype: np.dtype) -> Routine:
    b = Builder([dtype, dtype])
    size, divisor = map(abs, b.arguments)
    is_finite, is_divisor = size < np.inf, divisor > 0
    # with these values the loops end for all arguments
    size, divisor = where(is_finite, size, 0), where(is_divisor, divisor, 1)
    going = b.const(np.bool_(True))
    up = Routine(_up(dtype), 1, fixed=1, carried=2, kind="while")
    _, part = b.call(up, [size, going, divisor])
    down = Routine(_down(dtype), 1, fixed=1, carried=3, kind="while")
    _, _, remainder = b.call(down, [divisor, going, part, size])
    result = where(is_finite & is_divisor, remainder, np.nan)
    return Routine(b.finish([result]), 1, fixed=2)


def _up(dtype: np.dtype) -> Program:
    """Double ``part`` if the result is not more than ``size``: a trip up."""
    b = Builder([dtype, BOOLEAN, dtype])
    size, _, part = b.arguments
    double = part + part
    fits = double <= size
    return b.finish([fits, where(fits, double, part)])


def _down(dtype: np.dtype) -> Program:
    """Subtract ``part`` if it fits, and halve it until it is the divisor: a trip down."""
    b = Builder([dtype, BOOLEAN, dtype, dtype])
    divisor, _, part, remainder = b.arguments
    remainder = where(part <= remainder, remainder - part, remainder)
    goes_on = divisor < part
    part = where(goes_on, part * 0.5, part)
    return b.finish([goes_on, part, remainder])

"""The remainder of a division of floats, exact whatever the quotient is.

LLVM's ``frem`` is a call of the C library on a processor, and on a GPU it is x - trunc(x / y) y,
which is rounded. So the scalar program has the remainder as loops, the same for all targets: |y| is
doubled up to more than half of |x|, and on the way back subtracted wherever it fits into what is
left of |x|. Each sum doubles a number, each product halves one that was doubled, and a difference
of two numbers of which one is at most twice the other is a float too (Sterbenz): nothing is
rounded. A quotient of 2^n takes n trips up and n + 1 down.
"""

from __future__ import annotations

import functools

import numpy as np

from jaxquat.fused.ir.builder import Builder, Scalar, where
from jaxquat.fused.ir.program import Program, Routine

BOOLEAN = np.dtype(bool)


def magnitude_of_remainder(x: Scalar, y: Scalar) -> Scalar:
    """The size of ``x - n y``, where n is x / y without its fraction.

    It is not a number where x is infinite, where y is zero, and where one of them is not a number.
    """
    return x.b.scalar(x.b.call(_function(x.dtype), [x.number, y.number])[0])


@functools.cache
def _function(dtype: np.dtype) -> Routine:
    b = Builder([dtype, dtype])
    size, divisor = map(abs, map(b.scalar, range(2)))
    is_finite, is_divisor = size < np.inf, divisor > 0
    # with these the loops end, whatever the arguments are
    size, divisor = where(is_finite, size, 0), where(is_divisor, divisor, 1)
    going = b.const(np.bool_(True))
    up = Routine(_up(dtype), 1, fixed=1, carried=2, kind="while")
    _, part = b.call(up, [size.number, going, divisor.number])
    down = Routine(_down(dtype), 1, fixed=1, carried=3, kind="while")
    _, _, rest = b.call(down, [divisor.number, going, part, size.number])
    result = where(is_finite & is_divisor, b.scalar(rest), np.nan)
    return Routine(b.finish([result.number]), 1, fixed=2)


def _up(dtype: np.dtype) -> Program:
    """A trip: ``part`` is doubled if it is not more than ``size`` then."""
    b = Builder([dtype, BOOLEAN, dtype])
    size, _, part = map(b.scalar, range(3))
    double = part + part
    fits = double <= size
    return b.finish([fits.number, where(fits, double, part).number])


def _down(dtype: np.dtype) -> Program:
    """A trip: ``part`` is subtracted if it fits, and halved if it is not the divisor yet."""
    b = Builder([dtype, BOOLEAN, dtype, dtype])
    divisor, _, part, rest = map(b.scalar, range(4))
    rest = where(part <= rest, rest - part, rest)
    goes_on = divisor < part
    part = where(goes_on, part * 0.5, part)
    return b.finish([goes_on.number, part.number, rest.number])

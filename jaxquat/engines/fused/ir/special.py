"""Special functions made of elementary ones: error functions, inverse hyperbolic ones, roots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxquat.engines.fused.errors import NotScalarError
from jaxquat.engines.fused.ir.builder import Scalar, operation, sqrt, where


def erf_inv(x: Scalar) -> Scalar:
    """In float32, by M. Giles, Approximating the erfinv function, GPU Computing Gems 2, 2011."""
    if x.dtype != np.float32:
        raise NotScalarError(
            "erf_inv: in float64 it has no scalar form; use engine='scan', "
            "or draw the noise as inputs"
        )
    w = -operation("log1p", -(x * x))

    def horner(at: Scalar, numbers: Sequence[float]) -> Scalar:
        """The polynomial with these coefficients, the highest power first."""
        p = at.like(numbers[0])
        for number in numbers[1:]:
            p = p * at + number
        return p

    near = horner(w - 2.5, (
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
        -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
    ))  # fmt: skip
    far = horner(sqrt(w) - 3, (
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
    ))  # fmt: skip
    value = where(w < 5, near, far) * x
    return where(abs(x).equals(1), x * np.inf, value)

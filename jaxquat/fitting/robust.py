"""Robust losses as transformations of residuals.

With a robust loss rho, the objective is the same as in ``scipy.optimize.least_squares``,

    1/2 sum(C^2 rho(f^2 / C^2)),

where f are the residuals and C is ``f_scale``. It equals the plain least-squares objective of the
transformed residuals ``f ratio``, with ``ratio^2 = rho(z)/z`` and ``z = f^2/C^2``. So the
Levenberg-Marquardt iteration on the transformed residuals has exactly the cost and the gradient of
the robust objective. The derivative of the transformed residuals by f is ``rho'(z)/ratio``, which
is never negative.
"""

from __future__ import annotations

import warnings
from typing import Literal, NamedTuple

import numpy as np

LOSSES = ("linear", "huber", "cauchy")


class Loss(NamedTuple):
    """A loss function of residuals.

    Attributes:
        name: "linear" has rho(z) = z; "huber" z up to z = 1 and 2 sqrt(z) - 1 beyond; "cauchy"
            log(1 + z).
        scale: the residual C at which z = 1.
    """

    name: Literal["linear", "huber", "cauchy"]
    scale: float

    def transformed(self, residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The transformed residuals (twice the cost is their sum of squares), their slopes by f."""
        z = self._squares(residuals)
        if self.name == "linear":
            return residuals, np.ones_like(residuals)
        with np.errstate(invalid="ignore", divide="ignore"):  # infinite residuals give NaN
            if self.name == "huber":
                z = np.maximum(z, 1.0)  # rho(z) = z up to 1
                rho, first = 2.0 * np.sqrt(z) - 1.0, 1.0 / np.sqrt(z)
            else:
                rho, first = np.log1p(z), 1.0 / (1.0 + z)
            ratio = np.sqrt(np.divide(rho, z, out=np.ones_like(z), where=z > 0))
            return residuals * ratio, first / ratio

    def noise(self, residuals: np.ndarray, freedom: int) -> float:
        """The factor that turns the roots of the diagonal of ``inv(J^T J)`` into standard errors.

        The formula is for M-estimators with independent errors of one distribution (P. J. Huber,
        Ann. Statist. 1, 799, 1973): ``sqrt(mean(psi^2)) / mean(psi')`` with ``psi(f) = rho'(z) f``.
        ``freedom`` replaces the number of residuals in the first mean. The result is NaN, with a
        warning, if so many residuals are large that ``mean(psi')`` is not positive.
        """
        z = self._squares(residuals)
        if self.name == "linear":
            first, slope = np.ones_like(z), np.ones_like(z)
        elif self.name == "huber":
            first, slope = 1.0 / np.sqrt(np.maximum(z, 1.0)), np.where(z > 1.0, 0.0, 1.0)
        else:
            first, slope = 1.0 / (1.0 + z), (1.0 - z) / (1.0 + z) ** 2
        mean_slope = np.mean(slope)
        if mean_slope <= 0:
            wanted = "a scale larger than most residuals (mean psi' > 0)"
            message = f"f_scale: the standard errors are NaN: wanted {wanted}, got {self.scale}"
            warnings.warn(message, RuntimeWarning, stacklevel=5)
            return np.nan
        return float(np.sqrt(np.sum((first * residuals) ** 2) / freedom) / mean_slope)

    def _squares(self, residuals: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):  # a step may lead too far
            return (residuals / self.scale) ** 2

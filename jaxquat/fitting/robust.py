"""Robust losses as transformations of residuals.

With a robust loss rho, residuals f and C = ``f_scale``, the objective is the one of
``scipy.optimize.least_squares``, ``1/2 sum(C^2 rho(f^2/C^2))``. It equals the plain least-squares
objective of the transformed residuals ``f ratio``, with ``ratio^2 = rho(z)/z`` and ``z = f^2/C^2``,
whose derivative with respect to f is ``rho'(z)/ratio``. So the Levenberg-Marquardt iteration on
them has exactly the cost and the gradient of the robust objective.
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
        """Return the transformed residuals and their derivative with respect to f."""
        if self.name == "linear":
            return residuals, np.ones_like(residuals)
        square, first, _ = self._factors(residuals)
        with np.errstate(invalid="ignore"):  # infinite residuals give NaN
            ratio = np.sqrt(square)
            return residuals * ratio, first / ratio

    def noise(self, residuals: np.ndarray, freedom: int) -> float:
        """Return the factor from the roots of the diagonal of ``inv(J^T J)`` to standard errors.

        The formula is for M-estimators with independent errors of one distribution (P. J. Huber,
        Ann. Statist. 1, 799, 1973): ``sqrt(mean(psi^2)) / mean(psi')`` with ``psi(f) = rho'(z) f``.
        ``freedom`` replaces the number of residuals in the first mean. The result is NaN, with a
        warning, if so many residuals are large that ``mean(psi')`` is not positive.
        """
        _, first, slope = self._factors(residuals)
        mean_slope = np.mean(slope)
        if mean_slope <= 0:
            wanted = "a scale larger than most residuals (mean psi' > 0)"
            message = f"f_scale: the standard errors are NaN: wanted {wanted}, got {self.scale}"
            warnings.warn(message, RuntimeWarning, stacklevel=5)
            return np.nan
        return float(np.sqrt(np.sum((first * residuals) ** 2) / freedom) / mean_slope)

    def _factors(self, residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rho(z)/z, rho'(z) and psi'(f) of a robust loss."""
        # A step may lead too far, and infinite residuals give NaN.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            z = (residuals / self.scale) ** 2
            if self.name == "huber":
                far = np.maximum(z, 1.0)
                root = np.sqrt(far)
                return (2.0 * root - 1.0) / far, 1.0 / root, np.where(z > 1.0, 0.0, 1.0)
            square = np.divide(np.log1p(z), z, out=np.ones_like(z), where=z > 0)
            return square, 1.0 / (1.0 + z), (1.0 - z) / (1.0 + z) ** 2

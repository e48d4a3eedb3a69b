"""Robust losses as transformations of residuals.

The cost ``1/2 sum(C^2 rho(f^2/C^2))`` equals the plain one of the residuals ``f ratio``, with
``ratio^2 = rho(z)/z`` and ``z = f^2/C^2``, whose derivative is ``rho'(z)/ratio``. So an iteration
on them has exactly the cost and the gradient of the robust objective.
"""

from __future__ import annotations

import warnings
from typing import Literal, NamedTuple

import numpy as np

LOSSES = ("linear", "huber", "cauchy")


class Loss(NamedTuple):
    """A loss function, by its name in ``least_squares``; z = 1 at the residual ``scale``."""

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

        It is ``sqrt(mean(psi^2)) / mean(psi')``, ``psi(f) = rho'(z) f`` (P. J. Huber, Ann. Statist.
        1, 799, 1973), with ``freedom`` in the first mean; NaN, with a warning, without positive
        ``mean(psi')``.
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
        # A step may lead too far, and infinite residuals give NaN.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            z = (residuals / self.scale) ** 2
            if self.name == "huber":
                far = np.maximum(z, 1.0)
                root = np.sqrt(far)
                return (2.0 * root - 1.0) / far, 1.0 / root, np.where(z > 1.0, 0.0, 1.0)
            square = np.divide(np.log1p(z), z, out=np.ones_like(z), where=z > 0)
            return square, 1.0 / (1.0 + z), (1.0 - z) / (1.0 + z) ** 2

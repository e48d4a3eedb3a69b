"""Weights of the metrics of pointing at a frequency, and for densities of frequencies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import Array

from jaxquat._internal.checks import concrete, every

_SERIES = [(-1) ** k * 2.0 ** (2 * k + 3) / math.factorial(2 * k + 4) for k in range(10)]
_NODES, _SHARES = np.polynomial.legendre.leggauss(8)
_NARROW = 0.3  # 1/window: Gauss's nodes integrate the weight over such a band to rounding


def checked_grid(frequency: Array) -> np.ndarray:
    """Return the frequencies of a density in float64, at least two, which increase."""
    concrete("frequency", frequency, "only the frequencies of lines may be traced")
    grid = np.asarray(frequency, np.float64)
    if len(grid) < 2:
        raise ValueError(f"frequency: wanted at least 2 for a density, got {len(grid)}")
    every("frequency", "frequencies that increase", grid, np.diff(grid, prepend=-1.0) > 0)
    return grid


def weights(xp: Any, f: Any, window: float, separations: list[float]) -> list[Any]:
    """Return the weights of APE, MPE, RPE and of differences of means, by the functions of xp."""
    mean, square = xp.sinc(f * window) ** 2, (np.pi * f * window) ** 2
    small = square < 1.0
    inner, series = xp.where(small, square, 0.0), 0.0
    for coefficient in reversed(_SERIES):
        series = coefficient + inner * series
    rest = xp.where(small, inner * series, 1.0 - mean)  # 1 - sinc^2 without a cancellation
    return [xp.ones_like(f), mean, rest, *(_difference(xp, f, s) * mean for s in separations)]


def _difference(xp: Any, f: Any, separation: float) -> Any:
    """Return ``4 sin(pi f s)^2``, or its mean for an infinite separation s."""
    if np.isinf(separation):
        return 2.0
    return (2.0 * np.pi * separation * f * xp.sinc(f * separation)) ** 2


def panel_weights(f: np.ndarray, window: float, separations: list[float]) -> list[np.ndarray]:
    """Return the weights of a density at the frequencies, in its integrals times ``weights``."""
    # The density is linear in each band between two frequencies. Gauss's nodes integrate the weight
    # times a line over narrow bands, an antiderivative over wide ones. It needs only that of
    # ``D(c) = sinc(f c)^2``, because ``4 sin(pi f s)^2 sinc(f T)^2 T^2`` is
    # ``2 s^2 D(s) + 2 T^2 D(T) - (s + T)^2 D(s + T) - (s - T)^2 D(s - T)``.
    width = np.diff(f)
    share = 0.5 * (1.0 + _NODES)
    ends = np.stack([1.0 - share, share]) * 0.5 * _SHARES
    at_nodes = weights(np, f[:-1, None] + width[:, None] * share, window, separations)
    longest = window + max([0.0, *(s for s in separations if np.isfinite(s))])
    wide = width * longest > _NARROW
    one, mean = np.stack([width, width]) / 2.0, _sinc_squared(f, window)

    def difference(s: float) -> np.ndarray:
        if np.isinf(s):
            return 2.0 * mean
        terms = (s, 2.0), (window, 2.0), (s + window, -1.0), (s - window, -1.0)
        parts = [sign * (c / window) ** 2 * _sinc_squared(f, c) for c, sign in terms if c > 0]
        return np.sum(parts, axis=0)

    result = []
    closed = [one, mean, one - mean, *map(difference, separations)]
    for inside, outside in zip(at_nodes, closed, strict=True):
        left, right = np.where(wide, outside, width * np.einsum("en,pn->ep", ends, inside))
        result.append(np.append(left, 0.0) + np.append(0.0, right))
    return result


def _sinc_squared(f: np.ndarray, c: float) -> np.ndarray:
    """Return the integrals of ``sinc(f c)^2`` times lines from 1 to 0 and from 0 to 1, (2, K-1)."""
    # With x = pi f c, that of ``sinc(f c)^2`` up to f is ``(Si(2 x) - sin(x)^2/x)/(pi c)``, and
    # that of f times it ``(gamma + ln(2 x) - Ci(2 x))/(2 (pi c)^2)``.
    from scipy.special import sici  # here, because it takes 0.1 s

    x = np.pi * c * f
    positive = np.where(x > 0, x, 1.0)
    si, ci = sici(2.0 * positive)
    area = np.where(x > 0, si - np.sin(x) ** 2 / positive, 0.0) / (np.pi * c)
    moment = np.where(x > 0, np.euler_gamma + np.log(2.0 * positive) - ci, 0.0)
    total = np.diff(area)
    right = (np.diff(moment) / (2.0 * (np.pi * c) ** 2) - f[:-1] * total) / np.diff(f)
    return np.stack([total - right, right])

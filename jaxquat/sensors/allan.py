"""Allan variance of a sensor at rest, and the densities of its noise (IEEE Std 952-1997, annex C).

One recording at rest is enough to simulate a gyroscope or an accelerometer, and to set a filter.
Densities are as of ``jq.gyro.Gyro``. The examples use white noise of 0.1 rad/s/sqrt(Hz):

Examples:
    >>> samples = np.random.default_rng(0).normal(size=(20_000, 3))  # rad/s, 0.01 s apart
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxquat._internal import reprs
from jaxquat._internal.checks import every, finite, positive, real
from jaxquat._internal.renamed import has_old_fields
from jaxquat.sensors.calibration import static_samples

__all__ = ["Noise", "deviation", "fit"]

_LEAST = 100  # samples
_MEANS = np.array([1.0, -2.0, 1.0])  # second difference of the integral: difference of two means

_GRADED = np.array([0, *(sign * 64 * 4**k for k in range(20) for sign in (-1, 1))])


@has_old_fields("allan.Noise")
@dataclass(frozen=True, eq=False, repr=False)
class Noise(reprs.Tabular):
    """The noise of a sensor, fitted to its Allan deviation by ``fit``; float64, [u] of the samples.

    Attributes:
        noise: density N of the white noise [u/sqrt(Hz)], (3,): angle or velocity random walk.
        bias_random_walk: density K of the random walk of the bias [u/s/sqrt(Hz)], (3,).
        instability: bias instability B [u], (3,), of noise whose spectrum falls as 1/f. Alone, it
            has the Allan deviation 0.664 B.
        standard_errors: of these three, by name, each (3,): ``sqrt(x^2 + e) - x`` for a density x,
            with the standard error e of x^2.
        reduced_chi_squared: (3,): 1 within ``sqrt(2/(m - 3))`` for the m times of the fit if the
            noise is the sum of these three; if not, compare ``fitted`` with ``deviation``.
        times: averaging times [s], (m,).
        deviation: overlapping Allan deviation [u], (m, 3).
        deviation_errors: its standard errors [u], (m, 3), for the fitted noise.
        fitted: the Allan deviation of the fitted noise [u], (m, 3).

    Examples:
        >>> noise = jq.allan.fit(samples, 0.01)
    """

    noise: np.ndarray
    bias_random_walk: np.ndarray
    instability: np.ndarray
    standard_errors: dict[str, np.ndarray]
    reduced_chi_squared: np.ndarray
    times: np.ndarray
    deviation: np.ndarray
    deviation_errors: np.ndarray
    fitted: np.ndarray

    def _table(self) -> reprs.Table:
        rows = []
        for name in ("noise", "bias_random_walk", "instability"):
            pairs = zip(getattr(self, name), self.standard_errors[name], strict=True)
            rows.append((name, *(f"{x:.4g} +- {error:.2g}" for x, error in pairs)))
        rows.append(("reduced chi-squared", *(f"{x:.3g}" for x in self.reduced_chi_squared)))
        title = f"Noise: averaging times {self.times[0]:.3g} to {self.times[-1]:.3g} s"
        return title, rows, ("", "x", "y", "z")

    def settings(self) -> dict[str, float]:
        """Return ``gyro`` and ``bias_random_walk`` for ``AhrsSettings`` and ``MekfSettings``.

        They are root mean squares over the axes. A recording too short for the walk of the bias
        gives 0, which ``AhrsSettings`` refuses: use the standard error of the walk.

        Examples:
            >>> f"{noise.settings()['gyro']:.2f}"
            '0.10'
        """
        rms = [float(np.hypot.reduce(x) / 3**0.5) for x in (self.noise, self.bias_random_walk)]
        return dict(zip(("gyro", "bias_random_walk"), rms, strict=True))


def deviation(samples: ArrayLike, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the overlapping Allan deviation of N samples at rest. -> (times [s], deviation).

    The samples (N, 3), N >= 100, are ``dt`` [s] apart, without gaps. The averaging times (m,) are
    ``dt``, ``2 dt``, ``4 dt`` and so on, up to an eighth of the recording; the deviation is (m, 3).

    Examples:
        >>> times, deviation = jq.allan.deviation(samples, 0.01)
        >>> np.round(deviation[:3, 0] * np.sqrt(times[:3]), 2)  # falls as 1/sqrt(time)
        array([0.1, 0.1, 0.1])
    """
    values, exponents, dt = _checked(samples, dt)
    means = _averages(values.shape[1])
    return dt * means, np.ldexp(np.sqrt(_variances(values, means)), exponents)


def fit(samples: ArrayLike, dt: float) -> Noise:
    """Fit white noise, bias instability and walk of the bias to the Allan variance.

    The model is ``N^2/time + (2 ln 2/pi) B^2 + K^2 time/3`` (IEEE Std 952-1997, annex C).
    Generalised least squares takes the covariance of Allan variances from the model, and bounds the
    three squares by 0, which the standard errors leave out. ValueError for an axis whose readings
    do not vary.

    Args:
        samples: rates or specific forces at rest, (N, 3), N >= 100, without gaps. The walk of the
            bias shows only beyond the time ``sqrt(3) N/K``, so record for hours. A low-pass filter
            or coarse digits change the deviation near ``dt``: average blocks, as 8 by
            ``samples.reshape(-1, 8, 3).mean(axis=1)``, so that it falls as 1/sqrt(time).
        dt: time between the samples [s], for instance ``recording.spacing()``.

    Examples:
        >>> noise = jq.allan.fit(samples, 0.01)
        >>> np.abs(noise.noise - 0.1) < 3 * noise.standard_errors["noise"]
        array([ True,  True,  True])
    """
    values, exponents, dt = _checked(samples, dt)
    means = _averages(values.shape[1])
    times, variances = dt * means, _variances(values, means)
    if not np.all(variances > 0):
        time = times[np.argmin(variances.min(axis=1))]
        wanted = "an Allan deviation above 0"
        raise ValueError(f"samples: wanted {wanted}, got an axis where it is 0 at {time:.3g} s")
    # fitted for samples that are 1 s apart
    model = np.stack([1.0 / means, 0.0 * means + 2.0 * np.log(2.0) / np.pi, means / 3.0], 1)
    moments = _moments(means, values.shape[1])
    axes = [_fitted(model, variances[:, k], moments) for k in range(3)]
    squares, errors, chi_squared, spread = (np.stack(x, axis=-1) for x in zip(*axes, strict=True))
    units = np.array([[np.sqrt(dt)], [1.0], [1.0 / np.sqrt(dt)]])
    densities = _scaled(units * np.sqrt(squares), exponents)
    ways = _scaled(units * (np.sqrt(squares + errors) - np.sqrt(squares)), exponents)
    deviations = np.sqrt(variances)
    return Noise(
        noise=densities[0],
        bias_random_walk=densities[2],
        instability=densities[1],
        standard_errors={"noise": ways[0], "bias_random_walk": ways[2], "instability": ways[1]},
        reduced_chi_squared=chi_squared,
        times=times,
        deviation=_scaled(deviations, exponents),
        deviation_errors=_scaled(spread / (2.0 * deviations), exponents),
        fitted=_scaled(np.sqrt(model @ squares), exponents),
    )


def _checked(samples: ArrayLike, dt: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return samples (3, N) in float64 without their mean, scaled to 1; exponents, and interval."""
    with jax.enable_x64(True):  # else 1e150 is infinite
        static_samples(samples, _LEAST)
    dt = real("dt", dt)
    positive("dt", dt)
    finite("dt, times the number of samples", dt * np.shape(samples)[0])
    values = np.ascontiguousarray(np.asarray(samples, np.float64).T)
    exponents = np.frexp(np.abs(values).max(axis=1))[1]  # squares of 1e-200 or 1e200 are lost
    values = np.ldexp(values, -exponents[:, None])
    return values - values.mean(axis=1, keepdims=True), exponents, dt


def _scaled(results: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """Return results (n, 3) in the unit of the samples."""
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(results, exponents)
    held = np.isfinite(scaled) & ((scaled != 0) | (results == 0))
    every("samples", "noise within the range of float64", scaled, held)
    return scaled


def _averages(number: int) -> np.ndarray:
    return 2 ** np.arange(int(np.log2(number / 8.0)) + 1)


def _variances(values: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return overlapping Allan variances, (m, 3): half the mean square of differences of means."""
    sums = np.pad(np.cumsum(values, axis=1), [(0, 0), (1, 0)])
    differences = ((sums[:, 2 * n :] - 2.0 * sums[:, n:-n] + sums[:, : -2 * n]) / n for n in means)
    return np.stack([0.5 * np.mean(x**2, axis=1) for x in differences])


def _fitted(
    model: np.ndarray, variances: np.ndarray, moments: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """Return squares of N, B and K, their errors, chi-squared, and errors of the variances."""
    from scipy.optimize import nnls  # here, because it takes 0.1 s

    scale = 1.0 / np.max(model / variances[:, None], axis=0)
    design, wanted = scale * model / variances[:, None], np.ones(len(model))
    root = np.diag(variances)  # equal relative errors at first
    for _ in range(10):
        squares = scale * nnls(design, wanted)[0]
        root = np.linalg.cholesky(np.einsum("ijpq,p,q->ij", moments, squares, squares))
        design, wanted = np.linalg.solve(root, scale * model), np.linalg.solve(root, variances)
    solution, spread = nnls(design, wanted)[0], np.linalg.norm(root, axis=1)
    errors = scale * np.sqrt(np.diagonal(np.linalg.inv(design.T @ design)))
    chi_squared = float(np.sum((design @ solution - wanted) ** 2)) / (len(model) - 3)
    return scale * solution, errors, chi_squared, spread


def _moments(means: np.ndarray, number: int) -> np.ndarray:
    """Return the covariance of two Allan variances, by pairs of the squares, (m, m, 3, 3).

    Of ``sum(z^2)/(2 M)``, z normal, it is ``sum(R(s - t)^2)/(2 M M')``, R that of both kinds of z.
    """
    result = np.zeros((len(means), len(means), 3, 3))
    for i, n in enumerate(means):
        for j, m in enumerate(means[: i + 1]):
            sizes = number + 1 - 2 * n, number + 1 - 2 * m
            knots = np.add.outer(-n * np.arange(3), m * np.arange(3)).ravel()
            stretches = np.add.outer(knots, _GRADED).ravel()  # R has logarithms at the knots
            ends = [-sizes[1], sizes[0], 0, sizes[0] - sizes[1]]
            lags, weights = _sum_over(np.clip([*stretches, *ends], -sizes[1], sizes[0]))
            pairs = np.minimum(sizes[0], sizes[1] + lags) - np.maximum(0.0, lags)
            covariance = _covariance(lags, knots, n, m) / (n * m)
            sums = np.einsum("pl,ql,l->pq", covariance, covariance, weights * pairs)
            result[i, j] = result[j, i] = sums / (2.0 * sizes[0] * sizes[1])
    return result


def _covariance(lags: np.ndarray, knots: np.ndarray, n: int, m: int) -> np.ndarray:
    """Return the covariance of sums over n and over m samples of unit noises, (3, lags).

    It is the second difference, by both times, of ``-|t|/2``, ``t^2 ln|t|/(2 pi)`` and
    ``|t|^3/12``; far away a polynomial, 0, or a series, without cancellation.
    """
    time, u = np.abs(lags[:, None] - knots), np.abs(lags - (m - n))  # u: from centre to centre
    logarithm = np.log(np.where(time > 0, time, 1.0))
    kernel = np.stack([-time / 2.0, time**2 * logarithm / (2.0 * np.pi), time**3 / 12.0])
    white, flicker, walk = kernel @ np.outer(_MEANS, _MEANS).ravel()
    inverse = 1.0 / np.maximum(u, 1.0) ** 2
    series = -((n * m) ** 2) * inverse * (1.0 + 0.5 * (n * n + m * m) * inverse) / np.pi
    near, close = u < n + m, u < 16 * max(n, m)
    white, walk = (np.where(near, x, 0.0) for x in (white, walk))
    return np.stack([white, np.where(close, flicker, series), walk])


def _sum_over(knots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of a sum over integers between knots; Gauss's on long stretches."""
    knots, (gauss, shares) = np.unique(knots), np.polynomial.legendre.leggauss(8)
    nodes, weights = [], []
    for a, b in itertools.pairwise(knots):
        if b - a <= 64:
            nodes.append(np.arange(a, b))
            weights.append(np.ones(b - a))
        else:
            nodes.append(np.concatenate([0.5 * (a + b + (b - a) * gauss), [a, b]]))
            weights.append(np.concatenate([0.5 * (b - a) * shares, [0.5, -0.5]]))
    return np.concatenate(nodes), np.concatenate(weights)

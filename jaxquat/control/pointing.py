"""Pointing errors over windows of time, from samples and from spectra.

The metrics are those of ECSS-E-ST-60-10C (2008), annex A. A window has the duration of an exposure
or an image. Each metric has a weight for the frequency f, with the window T, the separation s
between the starts of two windows, and sinc(x) = sin(pi x)/(pi x): 1 for APE, sinc(f T)^2 for MPE,
1 - sinc(f T)^2 for RPE, 4 sin(pi f s)^2 sinc(f T)^2 for PDE and PRE (R. L. Lucke, S. W. Sirlin and
A. M. San Martin, J. Astronaut. Sci. 40, 1992, 557-576; M. E. Pittelkau, Proc. SPIE 5151, 2003). The
mean square of a metric is the integral of its weight times the density of the error. Mean squares
of independent sources add. The examples use the error of a sinusoid at 0.1 Hz:

Examples:
    >>> pointing = jq.control.pointing
    >>> error = 1e-3 * jnp.sin(2.0 * jnp.pi * 0.1 * 0.5 * jnp.arange(2000))  # rad, every 0.5 s
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal import checks
from jaxquat.control.window_weights import checked_grid, panel_weights, weights

__all__ = ["Errors", "errors", "from_spectrum", "percentile", "transfer"]


class Errors(NamedTuple):
    """The performance errors of pointing, or their mean squares, in the unit of the error.

    Attributes:
        ape: absolute performance error, the error itself.
        mpe: mean performance error, the mean over a window.
        rpe: relative performance error, the difference between the error and its mean over the
            window.
        pde: performance drift error, the mean over a later window minus that over an earlier one,
            in the same period of observation; None without ``drift``.
        pre: performance reproducibility error, the same for two periods of observation, or None.

    Examples:
        >>> pointing.errors(error, 20).mpe.shape
        (100,)
    """

    ape: Array
    mpe: Array
    rpe: Array
    pde: Array | None = None
    pre: Array | None = None


def errors(
    error: ArrayLike,
    window: int,
    *,
    stride: int | None = None,
    drift: int | None = None,
    reproducibility: int | None = None,
) -> Errors:
    """Compute the performance errors of a trajectory. It is linear in the error.

    Args:
        error: N samples at equal intervals, (N, ...), for instance rotation vectors (N, 3) from the
            target. Use ``jax.vmap`` for members.
        window: number of samples of a window.
        stride: samples between the starts of windows, by default ``window``.
        drift: samples between the starts of the two windows of PDE, at least ``window``.
        reproducibility: the same for PRE.

    Returns:
        For M windows: ape (N, ...), mpe (M, ...), rpe (M, window, ...), pde and pre (P, ...),
        P <= M. Window k begins at sample k ``stride``.

    Examples:
        >>> of_windows = pointing.errors(error, 10, drift=30)  # 5 s long, 15 s apart
        >>> round(1e3 * float(jnp.abs(of_windows.pde).max()), 2)  # mrad: 4/pi, but for sums
        1.26
    """
    error, window = checks.floating("error", error), checks.positive_integer("window", window)
    stride = window if stride is None else checks.positive_integer("stride", stride)
    if not error.ndim or len(error) < window:
        raise ValueError(f"error: wanted shape (N, ...), N >= {window}, got {error.shape}")
    starts = np.arange(0, len(error) - window + 1, stride)
    windows_at = lambda starts: error[starts[:, None] + np.arange(window)]  # noqa: E731
    windows = windows_at(starts)
    mean = jnp.mean(windows, axis=1)

    def difference(name: str, separation: int | None) -> Array | None:
        if separation is None:
            return None
        apart = _apart(name, checks.positive_integer(name, separation), window)
        later = starts[starts + apart + window <= len(error)] + apart
        if not later.size:
            wanted = f"at most {len(error) - window} for {len(error)} samples"
            raise ValueError(f"{name}: wanted {wanted}, got {apart}")
        return jnp.mean(windows_at(later), axis=1) - mean[: len(later)]

    pde, pre = difference("drift", drift), difference("reproducibility", reproducibility)
    return Errors(error, mean, windows - mean[:, None], pde, pre)


def from_spectrum(
    frequency: ArrayLike,
    power: ArrayLike,
    window: float,
    *,
    drift: float | None = None,
    reproducibility: float | None = None,
    lines: bool = False,
) -> Errors:
    """Compute the mean squares of the performance errors from the spectrum of the error.

    The integrals are exact for a density that is linear between the given frequencies and 0
    outside, so these need to resolve only the density. White noise of density N [u/sqrt(Hz)] has
    the power N^2.

    Args:
        frequency: increasing and concrete, not negative, (K,) [Hz]. With ``lines`` any order.
        power: one-sided power spectral density at these frequencies, (K, ...) [u^2/Hz]. With
            ``lines`` the mean squares [u^2] of sinusoids, amplitude^2/2, as from the imbalance of
            wheels; frequencies may then be traced.
        window: duration of a window [s].
        drift: time between the starts of the two windows of PDE [s], at least ``window``.
        reproducibility: the same for PRE; infinite for windows without correlation.
        lines: whether the spectrum consists of sinusoids instead of a density.

    Returns:
        Mean squares [u^2], (...), in the dtype of ``power``. The p-quantile of a normal error is
        ``sqrt(2) erfinv(p)`` times the root.

    Examples:
        >>> line = pointing.from_spectrum(jnp.array([0.1]), jnp.array([5e-7]), 5.0, lines=True)
        >>> jnp.sqrt(line.rpe / line.ape).round(3)  # sqrt(1 - (2/pi)^2): half a period
        Array(0.771, dtype=float32)
    """
    power, lines = checks.floating("power", power), checks.boolean("lines", lines)
    frequency = checks.vector("frequency", frequency)
    if power.shape[:1] != frequency.shape:
        wanted = f"shape ({frequency.size}, ...), a number for each frequency"
        raise ValueError(f"power: wanted {wanted}, got {power.shape}")
    checks.not_negative("power", power)
    window = checks.real("window", window)
    checks.positive("window", window)
    given = {"drift": drift, "reproducibility": reproducibility}
    times = {k: _apart(k, checks.real(k, x), window) for k, x in given.items() if x is not None}
    checks.not_negative("frequency", frequency)
    if lines:
        weight = weights(jnp, frequency.astype(power.dtype), window, [*times.values()])
    else:
        weight = panel_weights(checked_grid(frequency), window, [*times.values()])
    rows = jnp.stack([jnp.asarray(x, power.dtype) for x in weight])
    sums = jnp.tensordot(rows, power, 1, precision="highest")
    rest = dict(zip(times, sums[3:], strict=True))
    return Errors(sums[0], sums[1], sums[2], rest.get("drift"), rest.get("reproducibility"))


def _apart(name: str, separation: Any, window: float) -> Any:
    if not separation >= window:
        raise ValueError(f"{name}: wanted at least the window, {window}, got {separation}")
    return separation


def percentile(
    values: ArrayLike,
    probability: float,
    *,
    interpretation: str = "mixed",
    confidence: float = 0.95,
) -> tuple[Array, Array, Array]:
    """Compute the level of ``|values|`` for a probability, and its confidence interval.

    The level is the smallest sample that at least this share of the samples does not exceed. The
    interpretation (ECSS-E-ST-60-10C, 4.2.3) says of which samples:

    - "mixed": all times of all members. The interval takes members as independent, times not: it
      is that of their mean share of time below the level (R. S. Woodruff, J. Am. Stat. Assoc. 47,
      1952, 635-646), by Student's t.
    - "ensemble": the largest of each member. The interval is that of order statistics.
    - "temporal": the times of the worst member. Random members do not bound the worst one, so the
      upper end is infinite; a share of at least ``(1 - confidence)^(1/m)`` of members is below.

    Args:
        values: errors of m members at N times, (m, N).
        probability: between 0 and 1; ECSS calls it level of confidence.
        interpretation: "mixed", "ensemble" or "temporal".
        confidence: probability that the interval contains the level.

    Returns:
        The level and both ends of the interval, each (). The upper end is infinite if there are too
        few members. All are NaN if a value is NaN.

    Examples:
        >>> members = jnp.arange(1000.0).reshape(100, 10)
        >>> [float(x) for x in pointing.percentile(members, 0.9, interpretation="ensemble")]
        [899.0, 839.0, 959.0]
    """
    values = checks.floating("values", values)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"values: wanted shape (m, N) of m members, got {values.shape}")
    probability = checks.fraction("probability", probability)
    checks.one_of("interpretation", interpretation, ("mixed", "ensemble", "temporal"))
    tail = 0.5 * (1.0 - checks.fraction("confidence", confidence))
    size = jnp.abs(values)
    if interpretation == "temporal":
        level = jnp.max(jnp.sort(size, axis=1)[:, _rank(probability, size.shape[1])])
        bounds = level, level, jnp.full_like(level, jnp.inf)
    elif interpretation == "ensemble":
        largest = jnp.pad(jnp.sort(jnp.max(size, axis=1)), 1, constant_values=(0.0, jnp.inf))
        low, high = _ends(probability, len(size), tail)
        bounds = largest[_rank(probability, len(size)) + 1], largest[low], largest[high]
    else:
        ordered = jnp.sort(size, axis=None)
        level = ordered[_rank(probability, size.size)]
        bounds = level, *_woodruff(size, ordered, level, probability, tail)
    level, low, high = (jnp.where(jnp.any(jnp.isnan(size)), jnp.nan, x) for x in bounds)
    return level, low, high


def _rank(probability: float, n: int) -> int:
    """Return the index, from 0, of the sorted sample that this share of n does not exceed."""
    return max(math.ceil(probability * n * (1.0 - 1e-12)) - 1, 0)


def _ends(probability: float, m: int, tail: float) -> tuple[int, int]:
    """Return the ranks, from 1, of the ends of an interval; 0 and m + 1 if there are none."""
    from scipy.special import bdtr

    below = bdtr(np.arange(m), m, probability)  # probability that at most k of m are below
    return int(np.sum(below <= tail)), int(np.sum(below < 1.0 - tail)) + 1


def _woodruff(
    size: Array, ordered: Array, level: Array, probability: float, tail: float
) -> tuple[Array, Array]:
    """Return the interval of a quantile of all times of independent members."""
    from scipy.special import stdtrit

    if len(size) < 2:
        return jnp.zeros_like(level), jnp.full_like(level, jnp.inf)
    shares = jnp.mean(size <= level, axis=1, dtype=ordered.dtype)
    factor = -float(stdtrit(len(size) - 1, tail)) / math.sqrt(len(size))
    spread = factor * jnp.std(shares, ddof=1)
    places = jnp.ceil((probability + jnp.stack([-spread, spread])) * ordered.size).astype(int) - 1
    low, high = ordered[jnp.clip(places, 0, ordered.size - 1)]
    return jnp.where(places[0] < 0, 0.0, low), jnp.where(places[1] >= ordered.size, jnp.inf, high)


def transfer(
    a: ArrayLike, b: ArrayLike, c: ArrayLike, frequency: ArrayLike, dt: ArrayLike
) -> Array:
    """Compute the transfer function ``c (exp(2 pi i f dt) - a)^-1 b`` of a linear loop.

    ``dynamics.linearize`` returns a and b of a step with the control law in the torque and the
    disturbances as params. A disturbance of density S makes an error of density
    ``abs(transfer)**2 * S``; noise of deviation sigma at each step has ``S = 2 dt sigma^2``, up to
    half of the sampling frequency. A sinusoid of amplitude A makes one of ``abs(transfer) * A``.

    Args:
        a: (n, n), the closed loop, whose eigenvalues lie within the unit circle.
        b: (n, m), the disturbances that are held for a step.
        c: (p, n), the errors in the states, for instance ``jnp.eye(n)[:3]`` for the attitude.
        frequency: (K,) [Hz].
        dt: the step [s].

    Returns:
        (K, p, m), complex, differentiable.

    Examples:
        >>> slow, one = jnp.array([[0.9]]), jnp.ones((1, 1))
        >>> jnp.abs(pointing.transfer(slow, one, one, jnp.array([0.0, 5.0]), 0.1)).ravel().round(2)
        Array([10.  ,  0.53], dtype=float32)
    """
    a, b, c = checks.floating("a", a), checks.floating("b", b), checks.floating("c", c)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not a.size:
        raise ValueError(f"a: wanted a square matrix, got shape {a.shape}")
    for name, value, axis, shape in (("b", b, 0, "(n, m)"), ("c", c, 1, "(p, n)")):
        if value.ndim != 2 or value.shape[axis] != len(a) or not value.size:
            raise ValueError(f"{name}: wanted shape {shape}, n = {len(a)}, got {value.shape}")
    frequency, dt = checks.vector("frequency", frequency).astype(a.dtype), checks.scalar("dt", dt)
    checks.positive("dt", dt)
    turn = 2.0 * jnp.pi * frequency * dt.astype(frequency.dtype)
    z = lax.complex(jnp.cos(turn), jnp.sin(turn))
    a, b, c = (x.astype(z.dtype) for x in (a, b, c))
    unit = jnp.eye(len(a), dtype=z.dtype)
    # One by one: where two batches of solutions run at once, they may wait for each other for ever.
    solved = lax.map(lambda z: jnp.linalg.solve(z * unit - a, b), z)
    return jnp.matmul(c[None], solved, precision="highest")

"""The intervals between samples: a type of their own, which no array of times can replace."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import concrete, every, not_negative

_COARSE = 0.05  # of the mean interval: a coarser unit of the last digit is refused
_FINE = 1e-6  # s: and a finer one is never
_LONGEST = 1e3  # s: a longer median interval is one of milliseconds or less


class Interval(NamedTuple):
    """The time since the sample before, the field ``dt`` of a sample. A pytree.

    ``estimation.intervals(times)`` makes it from times. A filter refuses a plain array, which might
    be times.

    Attributes:
        seconds: finite, at least 0 [s], (), or (N,) for a recording.

    Examples:
        >>> jq.estimation.Interval(jnp.full(50, 0.1)).seconds.shape  # at 10 Hz
        (50,)
    """

    seconds: Array


def intervals(times: ArrayLike) -> Interval:
    """Compute the intervals between the times of N samples. -> Interval of (N,), the first 0.

    Differences are computed in float64; the result has JAX's default precision.

    Args:
        times: [s], (N,), finite and not decreasing. Equal times of several sensors give 0.

    Raises:
        TypeError: the times are traced; compute the intervals outside of ``jax.jit``.
        ValueError: times that decrease, are masked or not finite; whose last digit is coarser than
            a twentieth of the mean interval, as of float32 times since 1970; or whose median
            interval is that of another unit: above 1000 s, or of integers above 1 s.

    Examples:
        >>> jq.estimation.intervals(1.7e9 + np.array([0.0, 0.5, 0.5, 0.75])).seconds
        Array([0.  , 0.5 , 0.  , 0.25], dtype=float32)
    """
    concrete("times", times, "call estimation.intervals outside of jax.jit and jax.vmap")
    if np.ma.is_masked(times):
        raise ValueError("times: wanted times without masked values, got some; leave them out")
    given = np.asarray(times)
    if given.ndim != 1 or len(given) == 0 or given.dtype.kind not in "iuf":
        cure = "; give (t - t[0]) / np.timedelta64(1, 's')" if given.dtype.kind in "mM" else ""
        raise ValueError(f"times: wanted numbers (N,), got {given.dtype} {given.shape}{cure}")
    every("times", "finite times", given, np.isfinite(given))
    for k in np.flatnonzero(given[1:] < given[:-1])[:1]:
        got = f"{given[k]} and then {given[k + 1]} at row {k + 1}"
        raise ValueError(f"times: wanted times that do not decrease, got {got}")
    # Integers since 1970 in nanoseconds are no float64, but their differences are exact.
    exact = given if given.dtype.kind in "iu" else given.astype(np.float64)
    steps = np.concatenate([[0.0], np.diff(exact).astype(np.float64)])
    if len(given) > 1:
        _check_unit(given, steps[1:])
        _check_digits(given, steps[1:])
    return Interval(jnp.asarray(steps))


def _check_unit(times: np.ndarray, steps: np.ndarray) -> None:
    """Raise ValueError if the intervals are too long for seconds."""
    median, most = float(np.median(steps)), 1.0 if times.dtype.kind in "iu" else _LONGEST
    if median > most:
        got = f"{times.dtype} with a median interval of {median:.3g}"
        cure = "for nanoseconds, for instance, give (t - t[0]) * 1e-9"
        raise ValueError(f"times: wanted seconds, got {got}; {cure}")


def _check_digits(times: np.ndarray, steps: np.ndarray) -> None:
    """Raise ValueError if the last digit of the times is coarse beside their intervals."""
    # Times in float64 may have been rounded to float32 before.
    if times.dtype.kind != "f":
        return
    dtype, largest = times.dtype, np.max(np.abs(times))
    digit, cure = float(np.spacing(largest)), "use float64"
    if dtype == np.float64 and largest < np.finfo(np.float32).max:
        single, varies = times.astype(np.float32), np.ptp(steps) > 0 or not np.any(steps)
        if varies and np.all(single == times):
            digit = float(np.spacing(np.max(np.abs(single))))
            cure = "they were rounded to float32 before"
    if digit > max(_FINE, _COARSE * np.mean(steps)):
        got = f"{dtype} at {times[-1]:.6g} s, where the last digit is {digit:.2g} s"
        raise ValueError(f"times: wanted all digits of the intervals, got {got}; {cure}")


def checked(name: str, dt: Any) -> Array:
    """Return the seconds of an Interval; TypeError for others, ValueError for concrete bad ones."""
    if not isinstance(dt, Interval):
        got = "an array" if hasattr(dt, "shape") else f"a {type(dt).__name__}"
        wanted = "estimation.intervals(times), or an estimation.Interval of seconds"
        raise TypeError(f"{name}: wanted {wanted}, got {got}")
    not_negative(name, dt.seconds)
    return dt.seconds

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
        ValueError: times that decrease or are not finite, or whose last digit is coarser than a
            twentieth of the mean interval, as float32 times since 1970.

    Examples:
        >>> jq.estimation.intervals(1.7e9 + np.array([0.0, 0.5, 0.5, 0.75])).seconds
        Array([0.  , 0.5 , 0.  , 0.25], dtype=float32)
    """
    concrete("times", times, "call estimation.intervals outside of jax.jit and jax.vmap")
    given = np.asarray(times)
    if given.ndim != 1 or len(given) == 0 or given.dtype.kind not in "iuf":
        raise ValueError(f"times: wanted numbers (N,), got {given.dtype} {given.shape}")
    t = np.asarray(given, np.float64)
    every("times", "finite times", t, np.isfinite(t))
    steps = np.diff(t, prepend=t[0])
    for k in np.flatnonzero(steps < 0)[:1]:
        got = f"{t[k - 1]} and then {t[k]} at row {k}"
        raise ValueError(f"times: wanted times that do not decrease, got {got}")
    digit = float(np.spacing(np.max(np.abs(given)))) if given.dtype.kind == "f" else 0.0
    if len(t) > 1 and digit > max(_FINE, _COARSE * np.mean(steps[1:])):
        got = f"{given.dtype} at {t[-1]:.6g} s, where the last digit is {digit:.2g} s"
        raise ValueError(f"times: wanted all digits of the intervals, got {got}; use float64")
    return Interval(jnp.asarray(steps))


def checked(name: str, dt: Any) -> Array:
    """Return the seconds of an Interval; TypeError for others, ValueError for concrete bad ones."""
    if not isinstance(dt, Interval):
        got = "an array" if hasattr(dt, "shape") else f"a {type(dt).__name__}"
        wanted = "estimation.intervals(times), or an estimation.Interval of seconds"
        raise TypeError(f"{name}: wanted {wanted}, got {got}")
    not_negative(name, dt.seconds)
    return dt.seconds

"""Checks of samples that the filters share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxquat._internal.checks import exactly, is_concrete, single_or_double, unit_quaternion
from jaxquat.estimation.interval import Interval, checked
from jaxquat.recordings.columns import SI
from jaxquat.recordings.units import unlikely_median

Record = TypeVar("Record", bound=tuple)
GRAVITY = 9.80665  # m/s^2
_FALL = 300.0  # m/s: no body on Earth comes to fall faster, it is nearly the speed of sound
_SCALE = 0.85  # share of gravity: an accelerometer has errors of 5 % of gain and 1 m/s^2
_GAP = 1.0  # s: in longer intervals the force is unknown


def sample_of(sample: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Return a sample with checked ``dt`` and shapes, all in the gyroscope's dtype."""
    dt = Interval(exactly("sample.dt", checked("sample.dt", sample.dt), ()))
    sensors = [exactly(f"sample.{x}", getattr(sample, x), shape) for x, shape in shapes.items()]
    sample = type(sample)(dt, *sensors)
    single_or_double("sample.gyro", sample.gyro)
    return cast(sample, sample.gyro.dtype)


def check_sizes(name: str, dt: np.ndarray, gyro: np.ndarray, force: np.ndarray) -> None:
    """Raise ValueError if intervals, rates or forces have sizes of other units, or no gravity."""
    for channel, values, quantity in (
        ("t", dt, "intervals"),
        ("gyro", gyro, "rates"),
        ("accelerometer", force, "specific forces"),
    ):
        unlikely = unlikely_median(channel, values)
        if unlikely:
            median, unit = unlikely
            unit = f", {unit} for instance?" if unit else "?"
            got = f"a median of {median:.3g}; are they in another unit{unit}"
            got += " Subtract times in float64, with NumPy" if channel == "t" else ""
            got += " Or is gravity subtracted?" if channel == "accelerometer" else ""
            raise ValueError(f"{name}: wanted {quantity} in {SI[channel]}, got {got}")
    _check_weight(name, dt, force)


def _check_weight(name: str, dt: np.ndarray, force: np.ndarray) -> None:
    """Raise ValueError if forces (N, 3), at intervals (N,) [s], are too short on average."""
    # A mean length below g by V/T over T means a fall faster by V, or that gravity was subtracted.
    present = np.isfinite(force).all(axis=1)
    t = np.cumsum(np.asarray(dt, np.float64))[present]
    intervals = np.minimum(np.diff(t), _GAP)
    total = float(np.sum(intervals))
    if not total > _FALL / GRAVITY:
        return
    lengths = np.linalg.norm(np.asarray(force, np.float64)[present], axis=1)
    mean = float(np.sum(intervals * 0.5 * (lengths[1:] + lengths[:-1]))) / total
    least = min(_SCALE * GRAVITY, GRAVITY - _FALL / total)
    if mean < least:
        wanted = f"specific forces of a mean length of {least:.3g} m/s^2 or more in {total:.3g} s"
        got = f"{mean:.3g} m/s^2; is gravity subtracted? For free fall and orbits use mekf"
        raise ValueError(f"{name}: wanted {wanted}, got {got}")


def unit_or_missing(name: str, value: Any) -> None:
    """Raise ValueError if a concrete quaternion (..., 4) without a NaN is off the unit sphere."""
    if is_concrete(value):
        rows = np.asarray(value).reshape(-1, np.shape(value)[-1])
        measured: Any = rows[~np.isnan(rows).any(axis=1)]
        unit_quaternion(name, measured)


def cast(record: Record, dtype: Any) -> Record:
    """Return the record with arrays of this dtype."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), record)

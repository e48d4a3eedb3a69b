"""Checks of samples that the filters share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np

from jaxquat._internal.checks import (
    exactly,
    is_concrete,
    not_negative,
    single_or_double,
    unit_quaternion,
)

Record = TypeVar("Record", bound=tuple)
"""A NamedTuple of numbers or arrays."""


def sample_of(sample: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """A sample with checked ``dt`` and shapes, all in the gyroscope's dtype."""
    dt = exactly("sample.dt", sample.dt, ())
    not_negative("sample.dt", dt)
    sensors = [exactly(f"sample.{x}", getattr(sample, x), shape) for x, shape in shapes.items()]
    sample = type(sample)(dt, *sensors)
    single_or_double("sample.gyro", sample.gyro)
    return cast(sample, sample.gyro.dtype)


def not_stamps(name: str, dt: Any) -> None:
    """ValueError if concrete intervals (N,) are times that rise evenly, as stamps do.

    Constant intervals do not rise, and intervals within a factor of 4 are never refused. Of wider
    ones, 8 exponential numbers rise as evenly as this in 5 of 10^9 recordings, more even more
    seldom. Stamps whose own jitter is a sixth of their spacing are still recognised.
    """
    if not is_concrete(dt) or len(dt) < 8:
        return
    times = np.asarray(dt, np.float64)
    rises = np.diff(times)
    if 0 < rises.max() <= 2 * rises.min() and times[-1] > 4 * times[0]:
        raise ValueError(
            f"{name}: wanted the seconds since the sample before, got stamps, which rise evenly "
            f"from {times[0]:.6g} to {times[-1]:.6g}; pass np.diff(t, prepend=t[0])"
        )


def unit_or_missing(name: str, value: Any) -> None:
    """ValueError if a concrete quaternion (..., 4) without a NaN is off the unit sphere."""
    if is_concrete(value):
        rows = np.asarray(value).reshape(-1, np.shape(value)[-1])
        measured: Any = rows[~np.isnan(rows).any(axis=1)]
        unit_quaternion(name, measured)


def cast(record: Record, dtype: Any) -> Record:
    """The record with arrays of this dtype."""
    return type(record)(*(jnp.asarray(x, dtype) for x in record))

"""Attitude from measurements: filters, smoothers, and their likelihood, all differentiable.

The examples of the functions use 5 s at rest of a gyroscope with a star tracker, and of an inertial
sensor with magnetometer.

Examples:
    >>> n, level = 50, jnp.array([1.0, 0.0, 0.0, 0.0])
    >>> dt = jq.estimation.Interval(jnp.full(n, 0.1))  # s
    >>> none, bias = jnp.zeros((n, 0, 3)), jnp.full((n, 3), 2e-3)  # no vectors; rad/s
    >>> samples = jq.estimation.VectorSample(dt, bias, none, none, jnp.tile(level, (n, 1)))
    >>> mekf = jq.estimation.mekf(level)
    >>> up, north = jnp.array([0.0, 0.0, 9.81]), jnp.array([2e-5, 0.0, -4e-5])  # m/s^2, T
    >>> sensors = jnp.zeros((n, 3)), jnp.tile(up, (n, 1)), jnp.tile(north, (n, 1))
    >>> imu = jq.estimation.ImuSample(dt, *sensors)
"""

from __future__ import annotations

from jaxquat.estimation.ahrs import ahrs
from jaxquat.estimation.filtering import Estimate, Filter, run, smooth
from jaxquat.estimation.imu import AhrsSettings, ImuSample, imu_samples, merge
from jaxquat.estimation.interval import Interval, intervals
from jaxquat.estimation.mekf import MekfSettings, VectorSample, mekf

__all__ = [
    "AhrsSettings",
    "Estimate",
    "Filter",
    "ImuSample",
    "Interval",
    "MekfSettings",
    "VectorSample",
    "ahrs",
    "imu_samples",
    "intervals",
    "mekf",
    "merge",
    "run",
    "smooth",
]

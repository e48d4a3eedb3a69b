"""Attitude from measurements: filters, smoothers, and their likelihood, all differentiable.

A ``Filter`` is a pure step over samples; ``run`` scans it over a recording, and ``smooth`` also
uses later samples. A filter can be mapped over recordings with ``jax.vmap``, and its noises can be
fitted with ``jax.grad`` of the likelihood, of the error against a reference, or of the performance
of a controller that uses the estimates.

- ``mekf``: attitude and gyroscope bias from vectors and attitudes with known references.
- ``ahrs``: attitude from an inertial sensor with magnetometer on a body that is moved about.
  ``samples`` makes its samples of a recording.

Examples:
    The examples of the functions use 5 s of a gyroscope at rest and a star tracker:

    >>> n, level = 50, jnp.array([1.0, 0.0, 0.0, 0.0])
    >>> none = jnp.zeros((n, 0, 3))  # no vectors
    >>> bias = jnp.full((n, 3), 2e-3)  # rad/s, measured at rest
    >>> stars = jnp.tile(level, (n, 1))  # what a star tracker sees
    >>> samples = jq.estimation.Sample(jnp.full(n, 0.1), bias, none, none, stars)
    >>> mekf = jq.estimation.mekf(level)
"""

from __future__ import annotations

from jaxquat.estimation.ahrs import ahrs
from jaxquat.estimation.filtering import Estimate, Filter, run, smooth
from jaxquat.estimation.imu import ImuSample, Settings, merge, samples
from jaxquat.estimation.mekf import Noises, Sample, mekf

__all__ = [
    "Estimate",
    "Filter",
    "ImuSample",
    "Noises",
    "Sample",
    "Settings",
    "ahrs",
    "mekf",
    "merge",
    "run",
    "samples",
    "smooth",
]

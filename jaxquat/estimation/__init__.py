"""Attitude from measurements: filters, smoothers, and their likelihood, all differentiable.

A ``Filter`` is a pure step over samples; ``run`` makes a scan of it, ``smooth`` looks back. So a
filter is mapped over recordings by ``jax.vmap``, and its noises are fitted by ``jax.grad``: of the
likelihood, of the error beside a reference, or of what a controller makes of it.

- ``mekf``: attitude and gyroscope bias from vectors and attitudes with known references.
- ``ahrs``: attitude from an inertial sensor with magnetometer that is moved about.
"""

from __future__ import annotations

from jaxquat.estimation.ahrs import ahrs
from jaxquat.estimation.filtering import Estimate, Filter, run, smooth
from jaxquat.estimation.imu import ImuSample, Settings, merge
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
    "smooth",
]

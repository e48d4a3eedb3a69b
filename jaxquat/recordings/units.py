"""Units of recorded numbers, and their values in SI units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from types import MappingProxyType

import numpy as np

_DEGREE = math.pi / 180
_GRAVITY = 9.80665  # standard gravity [m/s^2], exact
_BY_SI_UNIT: Mapping[str, Mapping[str, float]] = {  # µ is a micro sign, μ is Greek
    "1": {"1": 1.0, "%": 0.01},
    "s": {
        "s, sec": 1.0,
        "ms, msec": 1e-3,
        "us, µs, μs, usec": 1e-6,
        "ns, nsec": 1e-9,
        "min": 60.0,
        "h": 3600.0,
    },
    "rad": {"rad": 1.0, "deg, °": _DEGREE},
    "rad/s": {
        "rad/s, rad/sec, rad s^-1": 1.0,
        "deg/s, deg/sec, dps, °/s": _DEGREE,
        "mrad/s": 1e-3,
        "mdps": 1e-3 * _DEGREE,
        "rpm": math.pi / 30,
    },
    "Hz": {"Hz": 1.0},
    "m/s^2": {"m/s^2, m/s2, m/s², m/s/s, m s^-2": 1.0, "g": _GRAVITY, "mg": 1e-3 * _GRAVITY},
    "T": {"T": 1.0, "mT": 1e-3, "uT, µT, μT": 1e-6, "nT": 1e-9, "gauss": 1e-4, "mgauss": 1e-7},
    "m": {"m": 1.0, "km": 1000.0, "cm": 1e-2, "mm": 1e-3},
    "m/s": {"m/s, m s^-1": 1.0, "km/h": 1 / 3.6},
    "Pa": {"Pa": 1.0, "hPa": 100.0},
    **{unit: {unit: 1.0} for unit in ("N", "N m", "kg", "A", "V", "W", "K")},
}

UNITS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        name: (si_unit, value)
        for si_unit, values in _BY_SI_UNIT.items()
        for names, value in values.items()
        for name in names.split(", ")
    }
)
"""For every unit its SI unit, and its value in this; case-sensitive, without an ambiguous "G"."""


def si_value(unit: str | float) -> float:
    """Return the value in SI units of one of ``UNITS``, or of a count, which is given by it."""
    return UNITS[unit][1] if isinstance(unit, str) else float(unit)


def is_value(unit: object) -> bool:
    """Return whether a unit is given by its value in SI units, a positive number."""
    return isinstance(unit, Real) and not isinstance(unit, bool) and 0 < float(unit) < math.inf


# The least unlikely median in SI units, the range of likely ones, and other units to try.
# Intervals of 2 s may be 500 Hz in milliseconds. Most gyroscopes measure up to 2000 deg/s, 34.9
# rad/s. The field of the Earth is 25 to 65 uT; in gauss it is 0.25 to 0.65, which may be T.
_MEDIANS = {
    "t": (2.0, 5e-4, 0.5, ("ms", "us", "ns")),
    "gyro": (35.0, 0.1, 35.0, ("deg/s", "mdps")),
    "accelerometer": (100.0, 7.0, 13.0, ("g", "mg")),
    "magnetometer": (1.0, 2e-5, 8e-5, ("uT", "mgauss", "nT")),
}


def unlikely_median(channel: str, values: np.ndarray) -> tuple[float, str] | None:
    """Return the median size if it is unlikely in SI units, and a unit of the values, or ""."""
    if channel not in _MEDIANS or not len(values):
        return None
    rows = np.asarray(values, np.float64).reshape(len(values), -1)
    rows = rows[np.isfinite(rows).all(axis=1)]
    with np.errstate(over="ignore"):
        sizes = np.linalg.norm(rows, axis=1)
    sizes = sizes[sizes > 0] if channel == "t" else sizes
    median = float(np.median(sizes)) if sizes.size else 0.0
    limit, low, high, units = _MEDIANS[channel]
    is_force_in_g = channel == "accelerometer" and 0.5 < median < 2.0
    if median < limit and not is_force_in_g:
        return None
    likely = next((repr(unit) for unit in units if low <= median * si_value(unit) < high), "")
    if channel == "accelerometer" and not likely and 100.0 <= median < math.inf:
        likely = f"{_GRAVITY} / {2 ** round(math.log2(median))}"
    return median, likely

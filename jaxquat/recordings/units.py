"""Units of recorded numbers, and their values in SI units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from types import MappingProxyType

import numpy as np

_TURN = 2.0 * math.pi
_GRAVITY = 9.80665  # standard gravity [m/s^2], exact

UNITS: Mapping[str, tuple[str, float]] = MappingProxyType(
    {
        "1": ("1", 1.0),
        "%": ("1", 0.01),
        **dict.fromkeys(("s", "sec"), ("s", 1.0)),
        **dict.fromkeys(("ms", "msec"), ("s", 1e-3)),
        # micro sign and Greek mu
        **dict.fromkeys(("us", "µs", "μs", "usec"), ("s", 1e-06)),
        **dict.fromkeys(("ns", "nsec"), ("s", 1e-9)),
        "min": ("s", 60.0),
        "h": ("s", 3600.0),
        "rad": ("rad", 1.0),
        **dict.fromkeys(("deg", "°"), ("rad", _TURN / 360)),
        **dict.fromkeys(("rad/s", "rad/sec", "rad s^-1"), ("rad/s", 1.0)),
        **dict.fromkeys(("deg/s", "deg/sec", "dps", "°/s"), ("rad/s", _TURN / 360)),
        "mrad/s": ("rad/s", 1e-3),
        "mdps": ("rad/s", 1e-3 * _TURN / 360),
        "rpm": ("rad/s", _TURN / 60),
        "Hz": ("Hz", 1.0),
        **dict.fromkeys(("m/s^2", "m/s2", "m/s²", "m/s/s", "m s^-2"), ("m/s^2", 1.0)),
        "g": ("m/s^2", _GRAVITY),
        "mg": ("m/s^2", 1e-3 * _GRAVITY),
        "T": ("T", 1.0),
        "mT": ("T", 1e-3),
        **dict.fromkeys(("uT", "µT", "μT"), ("T", 1e-06)),
        "nT": ("T", 1e-9),
        "gauss": ("T", 1e-4),
        "mgauss": ("T", 1e-7),
        "m": ("m", 1.0),
        "km": ("m", 1000.0),
        "cm": ("m", 1e-2),
        "mm": ("m", 1e-3),
        **dict.fromkeys(("m/s", "m s^-1"), ("m/s", 1.0)),
        "km/h": ("m/s", 1 / 3.6),
        **{name: (name, 1.0) for name in ("N", "N m", "kg", "A", "V", "W", "Pa", "K")},
        "hPa": ("Pa", 100.0),
    }
)
"""For every unit that ``read`` knows: its SI unit, and its value in this SI unit.

Names are case-sensitive. "G" is not included, because it stands for gauss and for standard gravity.
"""


def si_value(unit: str | float) -> float:
    """The value of a unit in SI units: of one of ``UNITS``, or of one count, which is given."""
    return UNITS[unit][1] if isinstance(unit, str) else float(unit)


def is_value(unit: object) -> bool:
    """Whether a unit is given as its value in SI units, a positive number."""
    return isinstance(unit, Real) and not isinstance(unit, bool) and 0 < float(unit) < math.inf


_LIMITS = {"t": 2.0, "gyro": 35.0, "accelerometer": 100.0, "magnetometer": 1.0}
"""From which medians on values are hardly in SI.

Intervals of 2 s may be 500 Hz in milliseconds, and ``ahrs`` uses at most 1 s of one. Most
gyroscopes measure up to 2000 deg/s, 34.9 rad/s. Few bodies are accelerated by 10 g for half of a
recording. The field of the Earth is 25 to 65 uT; in gauss it is 0.25 to 0.65, which may be T.
"""

_LIKELY = {
    "t": (5e-4, 0.5, ("ms", "us", "ns")),
    "gyro": (0.1, 35.0, ("deg/s", "mdps")),
    "accelerometer": (7.0, 13.0, ("g", "mg")),
    "magnetometer": (2e-5, 8e-5, ("uT", "mgauss", "nT")),
}
"""Between which medians in SI values are likely, and in which other units they may be."""


def unlikely_median(channel: str, values: np.ndarray) -> tuple[float, str] | None:
    """The median size of values if it is hardly one in SI, and a unit that they may have.

    Values are intervals (N,) for "t", vectors (N, 3) for a sensor. Those that are not finite do not
    count, nor do intervals of 0. The unit is one in which the median is likely, as Python has it:
    "'ms'", or "9.80665 / 2048" for counts of an accelerometer, powers of two to g. "" if none is.
    """
    if channel not in _LIMITS or not len(values):
        return None
    rows = np.asarray(values, np.float64).reshape(len(values), -1)
    rows = rows[np.isfinite(rows).all(axis=1)]
    with np.errstate(over="ignore"):
        sizes = np.linalg.norm(rows, axis=1)
    sizes = sizes[sizes > 0] if channel == "t" else sizes
    median = float(np.median(sizes)) if sizes.size else 0.0
    is_force_in_g = channel == "accelerometer" and 0.5 < median < 2.0
    if median < _LIMITS[channel] and not is_force_in_g:
        return None
    low, high, units = _LIKELY[channel]
    likely = next((repr(unit) for unit in units if low <= median * si_value(unit) < high), "")
    if channel == "accelerometer" and not likely and 100.0 <= median < math.inf:
        likely = f"{_GRAVITY} / {2 ** round(math.log2(median))}"
    return median, likely

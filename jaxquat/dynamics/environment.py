"""The surroundings of a spacecraft near the Earth: magnetic field, Sun, eclipse, air, orbit.

Inertial axes have their origin at the Earth's centre, x to the mean equinox and z to the mean pole
of the date of the run. An epoch is a ``datetime``, UTC unless it has another zone, or a Julian
date, from 1900 to 2030; ``t`` (...) are seconds after it. What depends on the epoch alone is
computed in float64 on the host, so float32 suffices for runs of a day. Functions broadcast over
leading axes; t takes the dtype of the position (..., 3) [m]. Concrete places below the ground and
times outside these years are refused. The examples use a satellite above the equator:

Examples:
    >>> import datetime
    >>> epoch = datetime.datetime(2026, 3, 20, 12)
    >>> place = jnp.array([6.878e6, 0.0, 0.0])  # m
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal import checks
from jaxquat._internal.linear import cross, dot, root, square
from jaxquat.dynamics import igrf
from jaxquat.dynamics.contract import constant_of
from jaxquat.dynamics.forces import EARTH
from jaxquat.euler import to_quaternion
from jaxquat.quaternion import rotate, rotate_inverse

__all__ = [
    "declination",
    "density",
    "earth_attitude",
    "kepler_orbit",
    "magnetic_field",
    "sun_direction",
    "sunlight",
]

_FIRST, _LAST = -36524.5, 10957.5  # days after J2000: the beginnings of 1900 and 2030
_CENTURY, _SIDEREAL = 3.15576e9, 2.0 * math.pi * 1.00273790935 / 86400.0  # s; rad/s: the Earth's
_EQUATOR, _SQUEEZED = 6378137.0, (1.0 - 1.0 / 298.257223563) ** 2  # WGS 84: m, (b/a)^2
_UNIT, _SUN = 1.495978707e11 / _EQUATOR, 6.957e8 / _EQUATOR  # astronomical unit, Sun's radius
_AIR = np.array(  # base [km], density there [kg/m^3], scale height [km]
    [
        (0, 25, *range(30, 150, 10), 150, 180, *range(200, 500, 50), *range(500, 1001, 100)),
        (1.225, 3.899e-2, 1.774e-2, 3.972e-3, 1.057e-3, 3.206e-4, 8.770e-5, 1.905e-5, 3.396e-6,
         5.297e-7, 9.661e-8, 2.438e-8, 8.484e-9, 3.845e-9, 2.070e-9, 5.464e-10, 2.789e-10,
         7.248e-11, 2.418e-11, 9.518e-12, 3.725e-12, 1.585e-12, 6.967e-13, 1.454e-13, 3.614e-14,
         1.170e-14, 5.245e-15, 3.019e-15),
        (7.249, 6.349, 6.682, 7.554, 8.382, 7.714, 6.549, 5.799, 5.382, 5.877, 7.263, 9.473,
         12.636, 16.149, 22.523, 29.740, 37.105, 45.546, 53.628, 53.298, 58.515, 60.828, 63.822,
         71.835, 88.667, 124.64, 181.05, 268.0),
    ]
)  # fmt: skip
Epoch = datetime | float


def magnetic_field(epoch: Epoch, t: ArrayLike, position: ArrayLike, degree: int = 13) -> Array:
    """Return the Earth's main magnetic field [T] by IGRF-14, inertial axes. -> (..., 3).

    ``degree`` is from 1, the tilted dipole, to 13, the whole model. The field changes linearly in
    time, as in the five years around the epoch. Float32 adds up to 0.1 nT. Coefficients: IAGA, doi
    10.5281/zenodo.14012302; recursion: O. Montenbruck and E. Gill, Satellite Orbits, 2000, 3.29.

    Examples:
        >>> (1e9 * jq.environment.magnetic_field(epoch, 0.0, place)).round(-1)  # nT
        Array([10840., -1430., 21670.], dtype=float32)
    """
    days, t, position = _arguments(epoch, t, position)
    if checks.positive_integer("degree", degree) > 13:
        raise ValueError(f"degree: wanted at most 13, got {degree}")
    attitude = _sidereal_turn(days, t)
    field = igrf.field(igrf.coefficients(days, degree), t, rotate_inverse(attitude, position))
    return rotate(attitude, field)


def declination(
    epoch: Epoch, latitude: ArrayLike, longitude: ArrayLike, height: ArrayLike = 0.0
) -> Array:
    """Return the angle of magnetic north east of true north [rad]. -> (...).

    Geodetic latitude and longitude (east) [rad], and height above the ellipsoid [m], broadcast. Add
    it to a magnetic heading, or turn an attitude from body to magnetic east, north and up:
    ``quaternion.multiply(quaternion.exp(jnp.array([0.0, 0.0, -declination])), q)``.

    Examples:
        >>> zurich = jnp.deg2rad(jnp.array([47.4, 8.5]))
        >>> print(f"{jnp.rad2deg(jq.environment.declination(epoch, *zurich)):.1f} deg")
        3.6 deg
    """
    days, numbers = _days(epoch), {"latitude": latitude, "longitude": longitude, "height": height}
    for name, value in numbers.items():
        checks.single_or_double(name, checks.floating(name, value))
    phi, lam, above = checks.broadcast(*((name, value, ()) for name, value in numbers.items()))
    if checks.is_concrete(phi):
        checks.every("latitude", "up to pi/2 rad", phi, ~(np.abs(np.asarray(phi)) > 1.6))
    phi, lam, above = jnp.broadcast_arrays(phi, lam.astype(phi.dtype), above.astype(phi.dtype))
    s, c, along, across = jnp.sin(phi), jnp.cos(phi), jnp.cos(lam), jnp.sin(lam)
    normal = _EQUATOR / jnp.sqrt(c * c + _SQUEEZED * s * s)
    level, axial = (normal + above) * c, (_SQUEEZED * normal + above) * s
    place = jnp.stack([level * along, level * across, axial], axis=-1)
    field = igrf.field(igrf.coefficients(days, 13), jnp.zeros_like(phi), _place(place))
    north = dot(field, jnp.stack([-s * along, -s * across, c], axis=-1))
    return jnp.arctan2(field[..., 1] * along - field[..., 0] * across, north)


def earth_attitude(epoch: Epoch, t: ArrayLike) -> Array:
    """Return the attitude of the Earth, from Earth-fixed to inertial axes. (...) -> (..., 4).

    Convert vectors by ``quaternion.rotate``, or back by ``rotate_inverse``. It turns about z by the
    mean sidereal time (S. Aoki et al., Astronomy and Astrophysics 105, 1982, 359, 13) at the UTC.

    Examples:
        >>> q = jq.environment.earth_attitude(epoch, 0.0)
        >>> jq.quaternion.rotate_inverse(q, place)[0].round(-4)  # m: above Greenwich's meridian
        Array(6.87e+06, dtype=float32)
    """
    return _sidereal_turn(*_instant(epoch, t))


def sun_direction(epoch: Epoch, t: ArrayLike) -> Array:
    """Return the unit vector from the Earth to the Sun, inertial axes. (...) -> (..., 3).

    It is right to 0.01 degrees, with aberration (J. Meeus, Astronomical Algorithms, 1998, 25).

    Examples:
        >>> print(f"{jq.environment.sun_direction(epoch, 86400.0 * 93)[2]:.3f}")  # at midsummer
        0.398
    """
    return _sun(*_instant(epoch, t))[0]


def sunlight(epoch: Epoch, t: ArrayLike, position: ArrayLike) -> Array:
    """Return the fraction of the Sun's disc that the Earth leaves uncovered, 0 to 1. -> (...).

    The Earth is a sphere with the equator's radius, without air (O. Montenbruck and E. Gill,
    Satellite Orbits, 2000, 3.85 to 3.87). The derivative is 0 outside of the half-shadow.

    Examples:
        >>> jq.environment.sunlight(epoch, 0.0, jnp.stack([place, -place]))
        Array([1., 0.], dtype=float32)
    """
    days, t, position = _arguments(epoch, t, position)
    (direction, distance), down = _sun(days, t), -position / _EQUATOR
    to_sun = distance[..., None] * direction + down
    far, near = root(square(to_sun)), root(square(down))
    earth = jnp.arctan2(jnp.ones_like(near), root(near * near - 1.0))
    apart = jnp.arctan2(root(square(cross(to_sun, down))), dot(to_sun, down))
    return 1.0 - _covered(jnp.arcsin(_SUN / far), earth, apart)


def density(position: ArrayLike) -> Array:
    """Return the density of the air [kg/m^3] at a position (..., 3), inertial axes. -> (...).

    It is exponential between 28 heights up to 1000 km, and above (D. A. Vallado, Fundamentals of
    Astrodynamics, 2013, table 8-4). With the Sun's activity, densities at 500 km vary tenfold.

    Examples:
        >>> print(f"{jq.environment.density(place):.1e} kg/m^3")
        7.0e-13 kg/m^3
    """
    height = 1e-3 * _height(_place(position))
    base, air, scale = jnp.asarray(_AIR, height.dtype)

    def at(height: Array) -> Array:
        row = jnp.maximum(jnp.sum(height >= base) - 1, 0) == np.arange(len(_AIR[0]))
        h, rho, s = (jnp.sum(jnp.where(row, x, 0.0)) for x in (base, air, scale))
        return rho * jnp.exp((h - height) / s)

    return jnp.vectorize(at)(height)


def kepler_orbit(
    semi_major_axis: ArrayLike,
    inclination: ArrayLike = 0.0,
    *,
    eccentricity: ArrayLike = 0.0,
    ascending_node: ArrayLike = 0.0,
    perigee: ArrayLike = 0.0,
    anomaly: ArrayLike = 0.0,
) -> Callable[[ArrayLike], tuple[Array, Array]]:
    """Make the two-body motion ``orbit(t)`` -> (position (3,) [m], velocity (3,) [m/s]).

    Inertial axes, t () [s]. All arguments, numbers in m and rad, are differentiable. ``perigee`` is
    its angle from the node, ``anomaly`` the mean anomaly at t = 0. For ``torques.gravity_gradient``
    pass ``lambda t: orbit(t)[0]``.

    Examples:
        >>> orbit = jq.environment.kepler_orbit(6.878e6, jnp.deg2rad(97.4))
        >>> jnp.linalg.norm(orbit(1000.0)[1]).round(0)  # m/s
        Array(7613., dtype=float32)
    """
    names = "semi_major_axis", "eccentricity", "ascending_node", "inclination", "perigee", "anomaly"
    given = semi_major_axis, eccentricity, ascending_node, inclination, perigee, anomaly
    values = [constant_of(name, x, ()) for name, x in zip(names, given, strict=True)]
    checks.positive("semi_major_axis", values[0])
    eccentric = values[1]
    if checks.is_concrete(eccentric) and not 0.0 <= float(eccentric) < 1.0:
        raise ValueError(f"eccentricity: wanted a number from 0 to below 1, got {eccentric}")

    def orbit(t: ArrayLike) -> tuple[Array, Array]:
        time = checks.one_shape("t", t, ())
        a, e, *angles, start = (jnp.asarray(x, time.dtype) for x in values)
        motion, minor = jnp.sqrt(EARTH / a / a / a), jnp.sqrt(1.0 - e * e)
        mean = start + motion * time
        mean = mean - 2.0 * math.pi * jnp.round(mean / (2.0 * math.pi))
        x = mean + e * jnp.sin(mean) / jnp.sqrt(1.0 - 2.0 * e * jnp.cos(mean) + e * e)
        for _ in range(6):  # Newton's method reaches rounding at all eccentricities up to 0.99
            x = x - (x - e * jnp.sin(x) - mean) / (1.0 - e * jnp.cos(x))
        c, s, q = jnp.cos(x), jnp.sin(x), to_quaternion(jnp.stack(angles), "ZXZ")
        rate = jnp.stack([-s, minor * c, 0.0 * c]) / (1.0 - e * c)
        return a * rotate(q, jnp.stack([c - e, minor * s, 0.0 * s])), a * motion * rotate(q, rate)

    return orbit


def _days(epoch: Any) -> float:
    """Return the days of an epoch after 2000-01-01 12:00 UTC."""
    if isinstance(epoch, datetime):
        days = (epoch.replace(tzinfo=epoch.tzinfo or UTC) - igrf.J2000) / timedelta(days=1)
    else:
        days = checks.real("epoch", epoch) - 2451545.0
    if not _FIRST <= days <= _LAST:
        raise ValueError(f"epoch: wanted a datetime or Julian date, 1900 to 2030, got {epoch}")
    return days


def _instant(epoch: Any, t: Any) -> tuple[float, Array]:
    days, t = _days(epoch), checks.floating("t", t)
    checks.single_or_double("t", t)
    if checks.is_concrete(t):
        after = days + np.asarray(t, np.float64) / 86400.0
        checks.every("t", "times from 1900 to 2030", t, ~((after < _FIRST) | (after > _LAST)))
    return days, t


def _place(position: Any) -> Array:
    position = checks.trailing("position", position, (3,))
    checks.single_or_double("position", position)
    if checks.is_concrete(position):  # all places on the ground are above -500 m
        with jax.ensure_compile_time_eval():
            height = np.asarray(_height(position))
        inside = (height < -500.0) | (np.asarray(position) == 0.0).all(axis=-1)  # 0 has no height
        checks.every("position", "heights above the ground [m]", height, ~inside)
    return position


def _arguments(epoch: Any, t: Any, position: Any) -> tuple[float, Array, Array]:
    (days, t), position = _instant(epoch, t), _place(position)
    t, position = checks.broadcast(("t", t, ()), ("position", position, (3,)))
    return days, t.astype(position.dtype), position


def _height(position: Array) -> Array:
    """Return the height above the ellipsoid (...) [m], to 6e-6 of it."""
    r = root(square(position / _EQUATOR))
    sine = position[..., 2] / _EQUATOR / r
    return _EQUATOR * (r - jnp.sqrt(_SQUEEZED / (_SQUEEZED + (1.0 - _SQUEEZED) * sine * sine)))


def _sidereal_turn(days: float, t: Array) -> Array:
    c = days / 36525.0
    seconds = 67310.54841 + c * (3164400184.812866 + c * (0.093104 - 6.2e-6 * c))
    half = 0.5 * (2.0 * math.pi * (seconds % 86400.0) / 86400.0 + _SIDEREAL * t)
    return jnp.stack([jnp.cos(half), 0.0 * half, 0.0 * half, jnp.sin(half)], axis=-1)


def _sun(days: float, t: Array) -> tuple[Array, Array]:
    """Return the apparent direction (..., 3) and the distance (...) of the Sun, in Earth radii."""
    c = days / 36525.0
    mean, anomaly = (
        math.radians((degrees + rate * c) % 360.0) + math.radians(rate) * (t / _CENTURY)
        for degrees, rate in ((280.46077 + 3.032e-4 * c * c, 36000.76983), (357.52911, 35999.05029))
    )
    sizes = np.radians([1.914602 - 0.004817 * c, 0.019993 - 1.01e-4 * c, 2.89e-4]).tolist()
    centre = sum((sizes[k] * jnp.sin((k + 1.0) * anomaly) for k in range(3)), 0.0 * t)
    e, tilt = 0.016708634 - 4.2037e-5 * c, math.radians(23.439291 - 0.0130042 * c)
    x, y = jnp.cos(mean + centre), jnp.sin(mean + centre)
    direction = jnp.stack([x, math.cos(tilt) * y, math.sin(tilt) * y], axis=-1)
    return direction, _UNIT * (1.0 - e * e) / (1.0 + e * jnp.cos(anomaly + centre))


def _covered(sun: Array, earth: Array, apart: Array) -> Array:
    """Return the fraction of a disc that another one covers, by their radii and distance [rad]."""
    partial = (apart > jnp.abs(earth - sun)) & (apart < earth + sun)
    c = jnp.where(partial, apart, jnp.sqrt(earth * earth + sun * sun))  # here, too, they intersect
    x = 0.5 * ((c - earth) * (c + earth) + sun * sun) / c
    y = root((sun - x) * (sun + x))  # half of the common chord
    lens = sun * sun * jnp.arctan2(y, x) - x * y
    lens = lens + (earth * earth * jnp.arctan2(y, c - x) - (c - x) * y)  # small minus small
    ring = jnp.where(apart < earth + sun, jnp.minimum(1.0, (earth / sun) ** 2), 0.0)
    return jnp.where(partial, lens / (math.pi * sun * sun), ring + 0.0 * apart)  # NaN stays NaN

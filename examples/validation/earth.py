"""The Earth of NASA's check cases: WGS 84, gravity with J2, the US standard atmosphere of 1976.

SI units and radians. An inertial frame has its axes along those of the Earth-fixed one at t = 0.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import jaxquat as jq


class Earth(NamedTuple):
    """A rotating ellipsoid with its gravity.

    Attributes:
        mu: gravitational parameter [m^3/s^2].
        radius: equatorial [m].
        flattening: of the ellipsoid.
        j2: of the gravity; 0 for that of a point mass.
        rotation: [rad/s].
    """

    mu: float = 3.986004418e14
    radius: float = 6378137.0
    flattening: float = 1 / 298.257223563
    j2: float = 1.08262982e-3
    rotation: float = 7.292115e-5

    def spin(self):
        """Return the Earth's rate of turn (3,), in its own axes and in inertial ones."""
        return jnp.array([0.0, 0.0, self.rotation])

    def turn(self, t):
        """Return the attitude (4,) of the Earth-fixed frame in the inertial one."""
        return jq.quaternion.exp(t * self.spin())

    def gravity(self, position):
        """Return the acceleration (3,) of a point mass and J2, in the axes of ``position``.

        It is the gradient of ``mu/r (1 - J2 (a/r)^2 (3 sin^2 - 1)/2)``, sin the sine of the
        geocentric latitude.
        """
        r = jnp.sqrt(position @ position)
        sine = position[2] / r
        bulge = 1.5 * self.j2 * (self.radius / r) ** 2
        along = jnp.array([1.0, 1.0, 3.0]) - 5 * sine**2
        return -self.mu / r**3 * position * (1 + bulge * along)

    def position(self, latitude, longitude, altitude):
        """Return the Earth-fixed position (3,) of geodetic coordinates."""
        square = self.flattening * (2 - self.flattening)
        normal = self.radius / jnp.sqrt(1 - square * jnp.sin(latitude) ** 2)
        across = (normal + altitude) * jnp.cos(latitude)
        z = (normal * (1 - square) + altitude) * jnp.sin(latitude)
        return jnp.stack([across * jnp.cos(longitude), across * jnp.sin(longitude), z])

    def geodetic(self, position):
        """Return latitude, longitude and altitude of an Earth-fixed position (3,).

        B. R. Bowring, Survey Review 23, 1976, 323-327; after three iterations the error near the
        Earth is rounding.
        """
        x, y, z = position
        across = jnp.sqrt(x * x + y * y)
        square = self.flattening * (2 - self.flattening)
        minor = self.radius * (1 - self.flattening)
        second = square / (1 - square)
        tangent = z / ((1 - self.flattening) * across)  # of the latitude
        for _ in range(3):
            reduced = jnp.arctan((1 - self.flattening) * tangent)
            up = z + second * minor * jnp.sin(reduced) ** 3
            tangent = up / (across - square * self.radius * jnp.cos(reduced) ** 3)
        latitude = jnp.arctan(tangent)
        s, c = jnp.sin(latitude), jnp.cos(latitude)
        altitude = across * c + z * s - self.radius * jnp.sqrt(1 - square * s * s)
        return latitude, jnp.arctan2(y, x), altitude


def north_east_down(latitude, longitude):
    """Return the attitude (4,) of the local vertical frame in the Earth-fixed one."""
    about_z = jq.quaternion.exp(longitude * jnp.array([0.0, 0.0, 1.0]))
    about_y = jq.quaternion.exp((-latitude - jnp.pi / 2) * jnp.array([0.0, 1.0, 0.0]))
    return jq.quaternion.multiply(about_z, about_y)


GAS, STANDARD = 8314.32 / 28.9644, 9.80665  # J/(kg K), m/s^2
BASES = np.array([0.0, 11e3, 20e3, 32e3, 47e3, 51e3, 71e3])  # m, geopotential
LAPSES = np.array([-6.5e-3, 0.0, 1e-3, 2.8e-3, 0.0, -2.8e-3, -2e-3])  # K/m
TEMPERATURES = np.concatenate([[288.15], 288.15 + np.cumsum(LAPSES[:-1] * np.diff(BASES))])


def _pressures():
    pressures = [101325.0]
    for height, low, lapse, cold in zip(
        np.diff(BASES), TEMPERATURES, LAPSES, TEMPERATURES[1:], strict=False
    ):
        if lapse:
            factor = (cold / low) ** (-STANDARD / (GAS * lapse))
        else:
            factor = np.exp(-STANDARD * height / (GAS * low))
        pressures.append(pressures[-1] * factor)
    return np.array(pressures)


PRESSURES = _pressures()


def atmosphere(altitude):
    """Return density [kg/m^3] and speed of sound [m/s] at a geometric altitude up to 84 km."""
    height = 6356766.0 * altitude / (6356766.0 + altitude)
    layer = jnp.clip(jnp.searchsorted(BASES, height, side="right") - 1, 0, len(BASES) - 1)
    base, lapse, low, pressure = (
        jnp.asarray(x)[layer] for x in (BASES, LAPSES, TEMPERATURES, PRESSURES)
    )
    temperature = low + lapse * (height - base)
    steep = jnp.where(lapse == 0, 1.0, lapse)
    power = (temperature / low) ** (-STANDARD / (GAS * steep))
    even = jnp.exp(-STANDARD * (height - base) / (GAS * low))
    pressure = pressure * jnp.where(lapse == 0, even, power)
    return pressure / (GAS * temperature), jnp.sqrt(1.4 * GAS * temperature)

"""Compare ``jq.environment`` with ppigrf: the field on a globe, and its speed.

    pip install ppigrf && python benchmarks/environment.py

The points are geocentric, 500 km above the sphere of IGRF and 1 degree apart. ``ppigrf`` is the
Python code of one of the authors of IGRF-14. Between its years, multiples of five, it interpolates
by days and jaxquat by decimal years, as the official program does: 0.2 nT. jaxquat evaluates all
points of a year in one compiled call; compilation is not in its time.
"""

import datetime
import time

import jax
import jax.numpy as jnp
import numpy as np

from jaxquat.dynamics import igrf

try:
    import ppigrf  # pyright: ignore[reportMissingImports]
except ImportError as error:
    raise SystemExit("benchmarks/environment.py: pip install ppigrf") from error

jax.config.update("jax_enable_x64", True)

RADIUS = 6871.2  # km
YEARS = (1900, 1945, 1980, 2005, 2020, 2025, 2027)


def globe():
    """Return colatitudes and longitudes [deg], and axes (N, 3, 3): rows north, east, down."""
    colatitude, longitude = np.meshgrid(np.arange(1.0, 180.0), np.arange(0.0, 360.0), indexing="ij")
    colatitude, longitude = colatitude.ravel(), longitude.ravel()
    s, c = np.sin(np.deg2rad(colatitude)), np.cos(np.deg2rad(colatitude))
    x, y = np.cos(np.deg2rad(longitude)), np.sin(np.deg2rad(longitude))
    north, east = np.stack([-c * x, -c * y, s], axis=1), np.stack([-y, x, 0 * x], axis=1)
    return colatitude, longitude, np.stack([north, east, np.cross(north, east)], axis=1)


def main():
    """Print the largest differences [nT] and the times."""
    colatitude, longitude, axes = globe()
    place = -1e3 * RADIUS * axes[:, 2]
    field = jax.jit(lambda gauss, t, place: igrf.field(gauss, t, place))
    print(f"{len(place)} points; largest difference of a component [nT], and times of a call [s]")
    print("year   float64   float32    ppigrf  float64  float32")
    for year in YEARS:
        date = datetime.datetime(year, 1, 1)
        began = time.perf_counter()
        up, south, east = ppigrf.igrf_gc(RADIUS, colatitude, longitude, date)
        theirs = time.perf_counter() - began
        right = np.stack([-south.ravel(), east.ravel(), -up.ravel()], axis=1)
        days = (date.replace(tzinfo=datetime.UTC) - igrf.J2000) / datetime.timedelta(days=1)
        gauss, off, ours = igrf.coefficients(days, 13), [], []
        for dtype in (jnp.float64, jnp.float32):
            arguments = jnp.asarray(gauss, dtype), jnp.zeros((), dtype), jnp.asarray(place, dtype)
            jax.block_until_ready(field(*arguments))
            began = time.perf_counter()
            fixed = np.asarray(field(*arguments), float)
            ours.append(time.perf_counter() - began)
            found = 1e9 * np.einsum("nij,nj->ni", axes, fixed)
            off.append(np.abs(found - right).max())
        print(f"{year}  {off[0]:8.1e}  {off[1]:8.1e}  {theirs:8.3f} {ours[0]:8.3f} {ours[1]:8.3f}")


if __name__ == "__main__":
    main()

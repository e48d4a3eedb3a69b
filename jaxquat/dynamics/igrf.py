"""The International Geomagnetic Reference Field: its coefficients, and the field they give."""

from __future__ import annotations

import datetime
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat._internal.linear import dot, root, square

J2000 = datetime.datetime(2000, 1, 1, 12, tzinfo=datetime.UTC)
_RADIUS = 6.3712e6  # m, of the coefficients
_YEAR = 3.15576e7  # s


@functools.cache
def _table() -> tuple[np.ndarray, np.ndarray]:
    """Return years (27,), and coefficients (27, 2, 14, 14) [nT]: g or h, degree, order."""
    text = Path(__file__).with_name("igrf14.shc").read_text()
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    table = np.zeros((len(rows[1]), 2, 14, 14))
    for n, m, *values in rows[2:]:
        table[:, int(m[0] == "-"), int(n), abs(int(m))] = np.array(values, float)
    return np.array(rows[1], float), table


def coefficients(days: float, degree: int) -> np.ndarray:
    """Return the coefficients [T] and their rates [T/s], days after J2000: (2, 2, n+1, n+1)."""
    date, (years, table) = J2000 + datetime.timedelta(days=days), _table()
    first = date.replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0)
    year = date.year + (date - first) / (first.replace(year=date.year + 1) - first)
    k = min(int((year - years[0]) // 5), len(years) - 2)
    rate = (table[k + 1] - table[k]) / 5.0  # in a year
    both = np.stack([table[k] + (year - years[k]) * rate, rate / _YEAR])
    return 1e-9 * both[..., : degree + 1, : degree + 1]


def field(gauss: np.ndarray, t: Array, position: Array) -> Array:
    """Return the field [T] at t (...) and positions (..., 3) [m], Earth-fixed axes. -> (..., 3)."""
    # The potential is the sum over degree n and order m of ``row[m] (g c[m] + h s[m])``: c and s
    # are the real and imaginary parts of ``(x + iy)^m``, the rows Schmidt's functions of z and r
    # without that factor, both scaled by powers of r: no division by the distance to the axis.
    degree = gauss.shape[-1] - 1
    n, m = np.arange(degree + 1)[:, None], np.arange(degree + 1)
    size = np.maximum(n * n - m * m, 1)
    first = np.where(m < n, (2 * n - 1) / np.sqrt(size), 0.0)
    second = np.where(m < n, np.sqrt(np.maximum((n - 1) ** 2 - m * m, 0) / size), 0.0)
    corner = np.diag(np.sqrt(np.cumprod([1.0, 1.0, *(1.0 - 0.5 / m[2:])])[: degree + 1]))
    rows, dtype = np.stack([first, second, corner], axis=1), position.dtype

    def potential(p: Array, t: Array) -> Array:
        """Return the potential over the radius [T], at a position in units of the radius."""
        inverse = 1.0 / square(p)
        x, y, z = inverse * p
        c, s = [inverse * root(square(p))], [jnp.zeros_like(t)]
        for _ in range(degree):
            c, s = [*c, x * c[-1] - y * s[-1]], [*s, x * s[-1] + y * c[-1]]
        g, h = jnp.asarray(gauss[0], dtype) + jnp.asarray(gauss[1], dtype) * t
        products = g * jnp.stack(c)[None] + h * jnp.stack(s)[None]
        before, row, total = jnp.zeros(degree + 1, dtype), jnp.zeros(degree + 1, dtype), 0.0 * t
        for k in range(degree + 1):
            a, b, start = jnp.asarray(rows[k], dtype)
            before, row = row, a * z * row - b * inverse * before + start
            total = total + dot(row, products[k])
        return total

    slope = jnp.vectorize(jax.grad(potential), signature="(3),()->(3)")
    return -slope(position / _RADIUS, t)

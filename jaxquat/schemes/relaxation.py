"""How rate and turn relax under a linear drag, and how they spread under noise.

With ``Z = dt I^-1 D``, of inertia I and drag D constant over a step dt:

    mean    m = (1 - exp(-Z)) Z^-1        the turn per initial rate, over dt
    ramp    n = (1 - m) Z^-1              the turn per initial acceleration, over dt^2
    change  c = exp(-Z) - 1               of the rate
    spread  g = 2 n - m^2                 the variance of the turn under white noise, over dt^2 kT/I

At Z/2^11 the Padé approximant (2, 3), ``(1 - 2/5 Z + Z^2/20) / (1 + 3/5 Z + 3/20 Z^2 + Z^3/60)``,
replaces exp(-Z): its error is below rounding up to Z = 40, and it vanishes at infinity. Written in
``R = (1 + Z)^-1`` and ``N = Z R``, between 0 and 1, nothing overflows. Then Z is doubled 11 times,
without cancellation. c and g are proportional to a small Z, so they are computed as ``c' u`` and
``g' u``: u is diagonal, ``Z = Z' u``, and the largest element of a column of Z' is about 1 or more.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxquat._internal.linear import inverse, matmul

_DOUBLINGS = 11


class Relaxation(NamedTuple):
    """The functions of Z, each (3, 3): see the head of the module."""

    mean: Array
    ramp: Array
    change: Array
    spread: Array


def relaxation(z: Array) -> Relaxation:
    """Return the functions of a matrix Z (3, 3) whose eigenvalues are not negative."""
    # They are accurate to a few ulp, for eigenvalues up to the largest number of the dtype. (Small
    # ones whose axes are not coordinate axes are accurate to an ulp of the largest.)
    units = _units(z)
    per_unit = z / units / 2**_DOUBLINGS
    z = per_unit * units
    r = inverse_by_rows(jnp.eye(3, dtype=z.dtype) + z)
    n = matmul(z, r)
    rr, nr, nn = matmul(r, r), matmul(n, r), matmul(n, n)
    below = inverse_by_rows(matmul(r, rr + 0.6 * nr + 0.15 * nn) + matmul(nn, n) / 60.0)
    mean = matmul(matmul(r, rr + 0.1 * nr + nn / 60.0), below)
    ramp = matmul(matmul(r, 0.5 * rr + 2.0 / 15.0 * nr + nn / 60.0), below)
    quartic = matmul(rr, rr / 1.5 + 0.3 * nr + 11.0 / 150.0 * nn)
    quartic = quartic + matmul(nn, 11.0 / 1200.0 * nr + nn / 1800.0)
    spread = matmul(matmul(matmul(matmul(quartic, below), below), rr), per_unit)
    change = -matmul(mean, per_unit)
    for _ in range(_DOUBLINGS):
        drop, squares = matmul(mean, change), matmul(change * units, change)
        # of two half steps: their own spreads, and the turn by the spread of the rate between them
        between = matmul(mean, 4.0 * drop + matmul(mean, squares))
        spread = 0.5 * spread - 0.25 * between
        ramp = 0.5 * ramp + 0.25 * (matmul(change * units, ramp) + mean)
        mean = mean + 0.5 * drop * units
        change = 2.0 * change + squares
    return Relaxation(mean, ramp, change * units, spread * units)


def _units(z: Array) -> Array:
    """Return for each column of Z the power of two next to its largest element, at most 1."""
    info = jnp.finfo(z.dtype)
    largest = jnp.max(jnp.abs(lax.stop_gradient(z)), axis=0, keepdims=True)
    return lax.reduce_precision(jnp.clip(largest, float(info.tiny), 1.0), info.nexp, 0)


def inverse_by_rows(matrix: Array) -> Array:
    """Return the inverse of (3, 3). Scaled rows keep a partly stiff determinant in range."""
    exponent = jnp.finfo(matrix.dtype).nexp
    sizes = lax.reduce_precision(lax.stop_gradient(jnp.diagonal(matrix)), exponent, 0)
    return inverse(matrix / sizes[:, None]) / sizes[None, :]

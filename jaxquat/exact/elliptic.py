"""Jacobi's elliptic functions and an integral of the third kind by theta series, differentiable.

Functions take the parameter m = k^2, m1 = 1 - m and the root k' = sqrt(m1), because one loses
digits if computed from another: near m = 1 the motion of a body that flips depends on log m1, and
k' is normal where m1 underflows. Each half of 0 <= m <= 1 has its own nome:

- m <= 1/2, "circular": trigonometric series in q = exp(-pi K'/K);
- m > 1/2, "hyperbolic": Jacobi's imaginary transformation, series of exponentials in
  q1 = exp(-pi K/K'). They are power series in m1, sech and tanh at m1 = 0, with derivatives that
  hold there, too. Only the quarter period K contains log m1.

No nome exceeds exp(-pi) = 0.0432, so terms with exponent n^2 reach rounding at n = 3 or 4. Both
branches are always computed, with arguments for which they are finite. E. T. Whittaker and G. N.
Watson, A Course of Modern Analysis, 4th ed. 1927, 21.1, 21.51, 22.1; M. Abramowitz and I. A.
Stegun, Handbook of Mathematical Functions, 1964, 17.3.21 (the nome).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

_LANDEN = 5  # steps from a parameter of 1/2 to 1e-42; the last one enters by its square root
_Three = tuple[Array, Array, Array]


class Modulus(NamedTuple):
    """The parameter m <= 1, ``m1 = 1 - m`` and ``root = sqrt(m1)``; root = 0 means m1 = 0."""

    m: Array
    m1: Array
    root: Array


class Pole(NamedTuple):
    """The pole dn = -1/kappa, across = 1 - kappa^2, and ratio = m kappa^2/across, always finite."""

    kappa: Array
    across: Array
    ratio: Array


def jacobi_and_third(u: Array, modulus: Modulus, pole: Pole) -> tuple[Array, Array, Array, Array]:
    """Return (sn, cn, dn)(u | m) and an integral of the third kind, an angle."""
    # It integrates ``(1 - dn)/(1 + kappa dn)`` from 0 to u times ``sqrt(1 + ratio) (1 - kappa)/2``.
    # The residues are then +-i/2, and the integral is a linear term minus the argument of a theta
    # function of nome q^2, whose zeros lie at least K' off the real axis, so no branch cut is near.
    circular, hyperbolic, is_circular = _halves(modulus)
    # The circular half, where it is not used, computes with an ordinary pole: the given pole may
    # not exist for its modulus.
    ordinary = 0.6, 0.64, 0.14
    safe = Pole(*(jnp.where(is_circular, x, y) for x, y in zip(pole, ordinary, strict=True)))
    ratio = jnp.where(is_circular, 1.0, pole.ratio)
    pairs = zip(_circular(u, circular, safe), _hyperbolic(u, hyperbolic, ratio), strict=True)
    sn, cn, dn, integral = (jnp.where(is_circular, x, y) for x, y in pairs)
    return sn, cn, dn, integral


def _halves(modulus: Modulus) -> tuple[Modulus, Modulus, Array]:
    """Return a modulus for each half, an ordinary one in the other, and whether it is circular."""
    is_circular = modulus.m1 >= 0.5
    low, high = (0.25, 0.75, 0.75**0.5), (0.75, 0.25, 0.5)
    circular = (jnp.where(is_circular, x, y) for x, y in zip(modulus, low, strict=True))
    hyperbolic = (jnp.where(is_circular, y, x) for x, y in zip(modulus, high, strict=True))
    return Modulus(*circular), Modulus(*hyperbolic), is_circular


def _nome_ratio(m: Array, m1: Array) -> Array:
    """Return q/m for m <= 1/2, by the series in ``(1 - m1^(1/4))/(1 + m1^(1/4))/2`` = share m."""
    half = jnp.sqrt(m1)
    share = 0.5 / ((1.0 + jnp.sqrt(half)) ** 2 * (1.0 + half))
    x = (share * m) ** 4
    return share * (1.0 + x * (2.0 + x * (15.0 + x * 150.0)))


def _constants(q: Array) -> tuple[Array, Array, Array]:
    even, odd = q**4, q + q**9
    return 2.0 * (1.0 + q**2 + q**6), 1.0 + 2.0 * (even + odd), 1.0 + 2.0 * (even - odd)


def _circular(u: Array, modulus: Modulus, pole: Pole) -> tuple[Array, Array, Array, Array]:
    """Return (sn, cn, dn, the integral), from arg theta_4(z + i v | q^2) with e^(2v) = e/q."""
    ratio = _nome_ratio(modulus.m, modulus.m1)
    q = modulus.m * ratio
    two, three, four = _constants(q)
    z = u / three**2
    multiples = jnp.arange(1, 7, dtype=u.dtype) * z
    sines, cosines = jnp.sin(multiples), jnp.cos(multiples)
    theta1 = 2.0 * (sines[0] - q**2 * sines[2] + q**6 * sines[4])
    theta2 = 2.0 * (cosines[0] + q**2 * cosines[2] + q**6 * cosines[4])
    even, odd = q**4 * cosines[3], q * cosines[1] + q**9 * cosines[5]
    theta3, theta4 = 1.0 + 2.0 * (even + odd), 1.0 + 2.0 * (even - odd)
    sn, cn = three / two * theta1 / theta4, four / two * theta2 / theta4
    dn = four / three * theta3 / theta4

    e, f = _depth(modulus, pole, ratio)
    down, up = jnp.stack([q * e, -((q**3 * e) ** 2)]), jnp.stack([q * q * f, -((q**4 * f) ** 2)])
    real = 1.0 - jnp.sum((down + up) * cosines[1:4:2])
    imaginary = jnp.sum((down - up) * sines[1:4:2])
    slope = jnp.sum((down - up) * jnp.asarray([2.0, 4.0], u.dtype)) / (1.0 - jnp.sum(down + up))
    return sn, cn, dn, slope * z - jnp.arctan2(imaginary, real)


def _depth(modulus: Modulus, pole: Pole, ratio: Array) -> tuple[Array, Array]:
    """Return (e, q/e) for ``e = exp(-pi g/K)`` with ``sn(g | m1) = kappa``."""
    # Ascending Landen transformations of tau = k sn/cn bring m1 to 1, where e = cn^2/(1 + sn)^2.
    # They begin at the nearer end of 0 to K', as from the other there are many: it gives e or q/e.
    kappa, across, square = pole
    slant = jnp.sqrt(1.0 + square)  # dn/cn
    near = square < 1.0

    def ascended(carry: _Three, _: None) -> tuple[_Three, Array]:
        s, square, complement = carry
        root = jnp.sqrt(1.0 + square)
        factor = root * (1.0 + s) / (1.0 + complement * s)
        square = (square / (s * (1.0 + complement) * root)) ** 2
        s = (1.0 + complement) * s / (1.0 + complement * s * s)
        return (s, square, 2.0 * jnp.sqrt(complement) / (1.0 + complement)), factor

    start = (
        jnp.where(near, kappa, 1.0 / slant),
        jnp.where(near, square, across / kappa**2),
        modulus.root,
    )
    _, factors = lax.scan(ascended, start, None, length=_LANDEN)
    product = jnp.exp(jnp.sum(jnp.log(factors) * 0.5 ** jnp.arange(_LANDEN, dtype=kappa.dtype)))
    from_zero, from_quarter = product / (1.0 + kappa) ** 2, product * square / (1.0 + slant) ** 2
    safe_zero, safe_quarter = jnp.where(near, from_zero, 1.0), jnp.where(near, 1.0, from_quarter)
    e = jnp.where(near, across * from_zero, modulus.m * ratio / safe_quarter)
    return e, jnp.where(near, ratio * square / (kappa**2 * safe_zero), from_quarter)


def _log_nome(modulus: Modulus) -> Array:
    """Return log(q1) in the hyperbolic half from the root; where that is 0, for root = 1."""
    root = jnp.where(modulus.root > 0, modulus.root, 1.0)
    return jnp.log(_nome_ratio(modulus.m1, modulus.m)) + 2.0 * jnp.log(root)


def _hyperbolic(u: Array, modulus: Modulus, ratio: Array) -> tuple[Array, Array, Array, Array]:
    """Return (sn, cn, dn, the integral), at the distance of u to the next multiple of 2 K."""
    q = modulus.m1 * _nome_ratio(modulus.m1, modulus.m)
    flips = modulus.root > 0
    # K = -K' log(q1)/pi
    quarter = jnp.where(flips, -0.5 * _constants(q)[1] ** 2 * _log_nome(modulus), 1.0)
    n = jnp.where(flips, lax.round(lax.stop_gradient(u / (2.0 * quarter))), 0.0)
    # For n = 0 leave out K, whose derivative is infinite at m1 = 0.
    reduced = jnp.where(n == 0, u, u - 2.0 * n * jnp.where(n == 0, 1.0, quarter))
    sign = jnp.where(reduced < 0, -1.0, 1.0).astype(u.dtype)
    # At m1 = 0 everything has long converged where exp(3 u) comes near the largest number.
    bound = math.log(float(jnp.finfo(u.dtype).max)) / 3.2
    distance = jnp.where(flips, sign * reduced, jnp.minimum(sign * reduced, bound))

    sn, cn, dn = _exponential_functions(distance, quarter, q, modulus)
    turned = 1.0 - 2.0 * (n - 2.0 * jnp.floor(0.5 * n))  # (-1)^n
    a, slope, argument = _exponential_argument(distance, q, modulus, ratio)
    integral = slope * u - sign * argument - 2.0 * n * a
    return sign * turned * sn, turned * cn, dn, integral


def _grown(x: Array, q: Array, modulus: Modulus) -> Array:
    """Return ``q e^x``, at most q^(1/2), without a derivative that overflows where q underflows."""
    flips = modulus.root > 0
    flat = q * jnp.exp(jnp.where(flips, 0.0, x))
    return jnp.where(flips, jnp.exp(x + _log_nome(modulus)), flat)


def _exponential_functions(
    distance: Array, quarter: Array, q: Array, modulus: Modulus
) -> tuple[Array, Array, Array]:
    """Return (sn, cn, dn) for 0 <= distance <= K; beyond K/2 by reflection of the values below."""
    two, three, four = _constants(q)
    mirrored = (modulus.root > 0) & (distance > 0.5 * quarter)
    y = jnp.where(mirrored, quarter - distance, distance) / three**2
    g = _grown(2.0 * y, q, modulus)
    k = jnp.arange(4, dtype=y.dtype)
    # The terms of theta(i y), without q^(1/4) e^y.
    terms = jnp.stack([jnp.ones_like(q), q * g, q**4 * g**2, q**9 * g**3])
    signs = jnp.asarray([1.0, -1.0, 1.0, -1.0], y.dtype)
    theta1 = -jnp.sum(signs * terms * jnp.expm1(-2.0 * (2.0 * k + 1.0) * y))
    theta2 = jnp.sum(terms * (1.0 + jnp.exp(-2.0 * (2.0 * k + 1.0) * y)))
    terms = jnp.stack([g, q**2 * g**2, q**6 * g**3]) * (1.0 + jnp.exp(-4.0 * k[1:] * y))
    theta3, theta4 = 1.0 + jnp.sum(terms), 1.0 + jnp.sum(signs[1:] * terms)
    fall = two * jnp.exp(-y) / theta2
    sn, cn, dn = three / four * theta1 / theta2, fall * theta4 / four, fall * theta3 / three
    # Where the values are mirrored, dn is at least half = sqrt(k'): half (half/dn) for k'/dn keeps
    # its derivatives within the range of float32.
    half = jnp.sqrt(jnp.where(modulus.root > 0, modulus.root, 1.0))
    share = half / dn
    return (
        jnp.where(mirrored, cn / dn, sn),
        jnp.where(mirrored, half * sn * share, cn),
        jnp.where(mirrored, half * share, dn),
    )


def _exponential_argument(
    distance: Array, q: Array, modulus: Modulus, ratio: Array
) -> tuple[Array, Array, Array]:
    """Return a, slope and argument of slope u - arg theta_2(a - i y/2 | q1^(1/2))."""
    three = _constants(q)[1]
    a = _angle(modulus, ratio)
    y = distance / three**2
    h = _grown(y, q, modulus)
    odd = 2.0 * jnp.arange(6, dtype=y.dtype) + 1.0
    sines, cosines = jnp.sin(odd * a), jnp.cos(odd * a)
    terms = jnp.stack([jnp.ones_like(q), h, q * h**2, q**3 * h**3, q**6 * h**4, q**10 * h**5])
    real = jnp.sum(terms * cosines * (1.0 + jnp.exp(-odd * y)))
    imaginary = -jnp.sum(terms * sines * jnp.expm1(-odd * y))
    terms = jnp.stack([jnp.ones_like(q), q, q**3, q**6, q**10, q**15])
    slope = jnp.sum(terms * odd * sines) / jnp.sum(terms * cosines) / (2.0 * three**2)
    return a, slope, jnp.arctan2(imaginary, real)


def _angle(modulus: Modulus, ratio: Array) -> Array:
    """Return ``pi b/(4 K')`` with ``sn(b | m1) = 1/sqrt(1 + ratio)``, by Landen steps."""

    def descended(carry: _Three, _: None) -> tuple[_Three, None]:
        phase, a, b = carry
        s, c = jnp.sin(phase), jnp.cos(phase)
        phase = 2.0 * phase - jnp.arctan2((a - b) * s * c, a * c * c + b * s * s)
        return (phase, 0.5 * (a + b), jnp.sqrt(a * b)), None

    one = jnp.ones_like(ratio)
    start = jnp.arctan2(one, jnp.sqrt(ratio)), one, jnp.sqrt(modulus.m)
    (phase, _, _), _ = lax.scan(descended, start, None, length=_LANDEN)
    return phase / 2.0 ** (_LANDEN + 1)

"""Jacobi's elliptic functions and an integral of the third kind by theta series, differentiable in every argument.

Every function takes the parameter m = k^2 together with its complement m1 = 1 - m and the root
k' = sqrt(m1), because each of the three is lost if it is formed from another: near m = 1 the motion
of a body that flips depends on log m1, and k' is a number where m1 underflows.

Theta series converge fast in both halves of 0 <= m <= 1 if each has its own nome:

- m <= 1/2, "circular": trigonometric series in q = exp(-pi K'/K);
- m > 1/2, "hyperbolic": Jacobi's imaginary transformation, series of exponentials in
  q1 = exp(-pi K/K'). All are power series in m1 about m1 = 0, where they end in sech and tanh, so
  that derivatives hold there too. Only the quarter period K contains log m1.

Neither nome exceeds exp(-pi) = 0.0432, so that terms of order n^2 come to rounding at n = 3 or 4.
E. T. Whittaker and G. N. Watson, A Course of Modern Analysis, 4th ed. 1927, sections 21.1, 21.51,
22.1; M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions, 1964, 17.3.21 (the nome).

Scalars; vmap. Both branches are always computed, each from values at which it is finite.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

_LANDEN = 5  # steps from a parameter of 1/2 to one of 1e-42; the last enters by its square root


class Modulus(NamedTuple):
    """The parameter m <= 1, ``m1 = 1 - m`` and ``root = sqrt(m1)``; with root = 0 the limit m1 = 0."""

    m: Array
    m1: Array
    root: Array


class Pole(NamedTuple):
    """Where the integrand of ``third`` is infinite: ``dn = -1/kappa``, 0 < kappa <= 1.

    Beside kappa, ``across = 1 - kappa^2`` and ``ratio = m kappa^2/across``, which stays finite
    where m and across vanish together.
    """

    kappa: Array
    across: Array
    ratio: Array


def complete(modulus: Modulus) -> Array:
    """K(m), the quarter period; infinite at m1 = 0."""
    circular, hyperbolic, where = _halves(modulus)
    slow = _theta3(_nome(circular.m, circular.m1)) ** 2
    return jnp.where(where, 0.5 * jnp.pi * slow, _quarter(hyperbolic))


def jacobi(u: Array, modulus: Modulus) -> tuple[Array, Array, Array]:
    """(sn, cn, dn)(u | m). Near m = 1 cn and dn keep their relative accuracy where they are small."""
    circular, hyperbolic, where = _halves(modulus)
    pairs = zip(_circular(u, circular), _hyperbolic(u, hyperbolic), strict=True)
    sn, cn, dn = (jnp.where(where, a, b) for a, b in pairs)
    return sn, cn, dn


def third(u: Array, modulus: Modulus, pole: Pole) -> Array:
    """``sqrt(1 + ratio) (1 - kappa)/2`` times the integral of ``(1 - dn)/(1 + kappa dn)`` from 0 to u.

    With this factor the residues are +-i/2, and the integral is an angle: a linear term less the
    argument of a theta function of nome q^2, whose quasi-periods are those of the integrand. Its
    zeros lie at least K' away from the real axis, so that nothing here comes near a branch.
    """
    circular, hyperbolic, where = _halves(modulus)
    one = jnp.ones_like(u)
    # in each half the pole of the other may not exist: (0.6, 0.64, m 0.36/0.64) does for m < 1/2
    near = [jnp.where(where, x, y * one) for x, y in zip(pole, (0.6, 0.64, 0.14), strict=True)]
    far = jnp.where(where, one, pole.ratio)
    return jnp.where(where, _circular_third(u, circular, Pole(*near)), _hyperbolic_third(u, hyperbolic, far))


def _halves(modulus: Modulus) -> tuple[Modulus, Modulus, Array]:
    """For either half a modulus that lies in it, and whether this one lies in the circular half."""
    where = modulus.m1 >= 0.5
    m, m1, root = (jnp.asarray(x, modulus.m.dtype) for x in (0.25, 0.75, 0.75**0.5))
    circular = Modulus(*(jnp.where(where, x, y) for x, y in zip(modulus, (m, m1, root), strict=True)))
    m, m1, root = (jnp.asarray(x, modulus.m.dtype) for x in (0.75, 0.25, 0.5))
    hyperbolic = Modulus(*(jnp.where(where, y, x) for x, y in zip(modulus, (m, m1, root), strict=True)))
    return circular, hyperbolic, where


def _nome_ratio(m: Array, m1: Array) -> Array:
    """q/m for m <= 1/2, by the series in ``(1 - m1^(1/4))/(1 + m1^(1/4))/2``, which is proportional to m."""
    half = jnp.sqrt(m1)
    quarter = jnp.sqrt(half)
    share = 0.5 / ((1.0 + quarter) ** 2 * (1.0 + half))
    x = (share * m) ** 4
    return share * (1.0 + x * (2.0 + x * (15.0 + x * 150.0)))


def _nome(m: Array, m1: Array) -> Array:
    return m * _nome_ratio(m, m1)


def _theta2(q: Array) -> Array:
    """theta_2(0)/q^(1/4)."""
    return 2.0 * (1.0 + q**2 + q**6)


def _theta3(q: Array) -> Array:
    return 1.0 + 2.0 * (q + q**4 + q**9)


def _theta4(q: Array) -> Array:
    return 1.0 - 2.0 * (q - q**4 + q**9)


def _circular(u: Array, modulus: Modulus) -> tuple[Array, Array, Array]:
    q = _nome(modulus.m, modulus.m1)
    two, three, four = _theta2(q), _theta3(q), _theta4(q)
    z = u / three**2
    sines, cosines = [jnp.sin(z)], [jnp.cos(z)]
    for _ in range(5):
        s, c = sines[-1], cosines[-1]
        sines.append(s * cosines[0] + c * sines[0])
        cosines.append(c * cosines[0] - s * sines[0])
    theta1 = 2.0 * (sines[0] - q**2 * sines[2] + q**6 * sines[4])
    theta2 = 2.0 * (cosines[0] + q**2 * cosines[2] + q**6 * cosines[4])
    even, odd = q**4 * cosines[3], q * cosines[1] + q**9 * cosines[5]
    theta3, theta4 = 1.0 + 2.0 * (even + odd), 1.0 + 2.0 * (even - odd)
    return three / two * theta1 / theta4, four / two * theta2 / theta4, four / three * theta3 / theta4


def _quarter(modulus: Modulus) -> Array:
    """K(m) in the hyperbolic half: ``-K' log(q1)/pi``, the logarithm of m1 by way of its root."""
    ratio = _nome_ratio(modulus.m1, modulus.m)
    flips = modulus.root > 0
    log = -jnp.log(ratio) - 2.0 * jnp.log(jnp.where(flips, modulus.root, 1.0))
    three = _theta3(modulus.m1 * ratio)
    return jnp.where(flips, 0.5 * three**2 * log, jnp.inf)


def _reduced(u: Array, modulus: Modulus) -> tuple[Array, Array, Array, Array]:
    """(n, sign, |r|, K): ``u = 2 n K + sign |r|`` with |r| <= K. Where K is infinite, n = 0 and K = 1."""
    flips = modulus.root > 0
    quarter = jnp.where(flips, _quarter(modulus._replace(root=jnp.where(flips, modulus.root, 1.0))), 1.0)
    n = jnp.where(flips, lax.round(lax.stop_gradient(u / (2.0 * quarter))), 0.0)
    # 0 K has no derivative by K, whose own is infinite at m1 = 0
    rest = jnp.where(n == 0, u, u - 2.0 * n * jnp.where(n == 0, 1.0, quarter))
    sign = jnp.where(rest < 0, -1.0, 1.0).astype(u.dtype)
    # at m1 = 0 all has long converged where exp(3 u) comes near the largest number
    bound = math.log(float(jnp.finfo(u.dtype).max)) / 3.2
    distance = sign * rest
    return n, sign, jnp.where(flips, distance, jnp.minimum(distance, bound)), quarter


def _hyperbolic(u: Array, modulus: Modulus) -> tuple[Array, Array, Array]:
    """Up to K/2 by their series, from there to K by the values at K - u."""
    n, sign, distance, quarter = _reduced(u, modulus)
    mirrored = (modulus.root > 0) & (distance > 0.5 * quarter)
    v = jnp.where(mirrored, quarter - distance, distance)
    q = _nome(modulus.m1, modulus.m)
    two, three, four = _theta2(q), _theta3(q), _theta4(q)
    y = v / three**2
    e = jnp.exp(-2.0 * y)
    g = q * jnp.exp(2.0 * y)  # at most q^(1/2)
    powers = [jnp.ones_like(e), e]
    for _ in range(6):
        powers.append(powers[-1] * e)
    # theta functions of i y, without their factors q^(1/4) e^y
    terms = [q ** (k * k) * g**k for k in range(4)]
    theta1 = -jnp.expm1(-2.0 * y) * sum((-1) ** k * terms[k] * sum(powers[: 2 * k + 1]) for k in range(4))
    theta2 = sum(terms[k] * (1.0 + powers[2 * k + 1]) for k in range(4))
    terms = [q ** (k * k - k) * g**k * (1.0 + powers[2 * k]) for k in range(1, 4)]
    theta3 = 1.0 + terms[0] + terms[1] + terms[2]
    theta4 = 1.0 - terms[0] + terms[1] - terms[2]
    fall = two * jnp.exp(-y) / theta2
    sn, cn, dn = three / four * theta1 / theta2, fall * theta4 / four, fall * theta3 / three
    turned = sign * (1.0 - 2.0 * (n - 2.0 * jnp.floor(0.5 * n)))
    return (
        turned * jnp.where(mirrored, cn / dn, sn),
        turned * sign * jnp.where(mirrored, modulus.root * sn / dn, cn),
        jnp.where(mirrored, modulus.root / dn, dn),
    )


def _circular_third(u: Array, modulus: Modulus, pole: Pole) -> Array:
    """From arg theta_4(z + i v | q^2), in whose series e^(2v) = e/q = 1/f."""
    ratio = _nome_ratio(modulus.m, modulus.m1)
    q = modulus.m * ratio
    e, f = _depth(modulus, pole, ratio)
    z = u / _theta3(q) ** 2
    first, second = (q * e, q * q * f), ((q * q * q * e) ** 2, (q**4 * f) ** 2)
    sine, cosine = jnp.sin(2.0 * z), jnp.cos(2.0 * z)
    real = 1.0 - cosine * sum(first) + (cosine * cosine - sine * sine) * sum(second)
    imaginary = sine * (first[0] - first[1]) - 2.0 * sine * cosine * (second[0] - second[1])
    slope = (2.0 * (first[0] - first[1]) - 4.0 * (second[0] - second[1])) / (1.0 - sum(first) + sum(second))
    return slope * z - jnp.arctan2(imaginary, real)


def _depth(modulus: Modulus, pole: Pole, ratio: Array) -> tuple[Array, Array]:
    """(e, q/e): ``e = exp(-pi g/K)`` with ``sn(g | m1) = kappa``, by ascending Landen transformations.

    Each brings the parameter m1 closer to 1, where e = cn^2/(1 + sn)^2. From the nearer end, 0 or
    K', since at the other end many steps were needed; the distances to both add up to K' and e and
    q/e are each other's counterpart. The steps go by tau = k sn/cn, which is regular where cn and k
    vanish together, and every step contributes a factor.
    """
    kappa, across, t = pole
    d = jnp.sqrt(1.0 + t)  # dn/cn
    near = t < 1.0
    s, square, complement = jnp.where(near, kappa, 1.0 / d), jnp.where(near, t, across / kappa**2), modulus.root
    factors = []
    for _ in range(_LANDEN):
        root = jnp.sqrt(1.0 + square)
        factors.append(root * (1.0 + s) / (1.0 + complement * s))
        square = (square / (s * (1.0 + complement) * root)) ** 2
        s = (1.0 + complement) * s / (1.0 + complement * s * s)
        complement = 2.0 * jnp.sqrt(complement) / (1.0 + complement)
    product = factors[-1]
    for factor in factors[-2::-1]:
        product = factor * jnp.sqrt(product)
    from_zero, from_quarter = product / (1.0 + kappa) ** 2, product * t / (1.0 + d) ** 2
    safe_zero, safe_quarter = jnp.where(near, from_zero, 1.0), jnp.where(near, 1.0, from_quarter)
    e = jnp.where(near, across * from_zero, modulus.m * ratio / safe_quarter)
    return e, jnp.where(near, ratio * t / (kappa**2 * safe_zero), from_quarter)


def _hyperbolic_third(u: Array, modulus: Modulus, ratio: Array) -> Array:
    """From arg theta_2(a - i y/2 | q1^(1/2)), which over the half period K grows by a."""
    n, sign, distance, _ = _reduced(u, modulus)
    q = _nome(modulus.m1, modulus.m)
    three = _theta3(q)
    y = distance / three**2
    h = q * jnp.exp(y)  # at most q^(1/2)
    a = _angle(modulus, ratio)
    real, imaginary, rise, level = (jnp.zeros_like(u) for _ in range(4))
    for k in range(6):
        odd = 2 * k + 1
        sine, cosine, e = jnp.sin(odd * a), jnp.cos(odd * a), jnp.exp(-odd * y)
        term, first = q ** (k * (k - 1) // 2) * h**k, q ** (k * (k + 1) // 2)
        real, imaginary = real + term * cosine * (1.0 + e), imaginary - term * sine * jnp.expm1(-odd * y)
        level, rise = level + first * cosine, rise + first * odd * sine
    slope = rise / level / (2.0 * three**2)
    return slope * u - sign * jnp.arctan2(imaginary, real) - 2.0 * n * a


def _angle(modulus: Modulus, ratio: Array) -> Array:
    """``pi b/(4 K')`` with ``sn(b | m1) = 1/sqrt(1 + ratio)``, by descending Landen transformations."""
    phase = jnp.arctan2(jnp.ones_like(ratio), jnp.sqrt(ratio))
    a, b = jnp.ones_like(ratio), jnp.sqrt(modulus.m)
    for _ in range(_LANDEN - 1):
        s, c = jnp.sin(phase), jnp.cos(phase)
        phase = 2.0 * phase - jnp.arctan2((a - b) * s * c, a * c * c + b * s * s)
        a, b = 0.5 * (a + b), jnp.sqrt(a * b)
    return phase / 2.0**_LANDEN

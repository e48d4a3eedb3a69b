"""Jacobi's elliptic functions and elliptic integrals, differentiable in every argument.

Of the parameter m = k^2, given as its complement m1 = 1 - m, which the caller knows better than the difference. Scalars; vmap.
Where m1 is so small that the functions are those of m1 = 0 and a term of order m1, these serve (16.15): there derivatives hold too.
Landen's transformation: M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions, 1964, 16.4, 17.6; Carlson's forms:
B. C. Carlson, Numer. Algorithms 10, 1995, 13-26.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from jaxquat import series

_ROUNDS = 14  # of the arithmetic-geometric mean, enough for m1 = 1e-300
_DUPLICATIONS = 16


def _means(m1: Array) -> tuple[Array, tuple[Array, Array]]:
    """The arithmetic-geometric mean of 1 and sqrt(m1), and the (a, b) on the way there."""

    def halved(means: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        a, b = means
        return (0.5 * (a + b), jnp.sqrt(a * b)), means

    (mean, _), way = lax.scan(halved, (jnp.ones_like(m1), jnp.sqrt(m1)), None, length=_ROUNDS)
    return mean, way


def complete(m1: Array) -> Array:
    """K(m), the complete integral of the first kind; infinite at m1 = 0."""
    return jnp.where(m1 > 0, 0.5 * jnp.pi / _means(jnp.where(m1 > 0, m1, 1.0))[0], jnp.inf)


def jacobi(u: Array, m1: Array) -> tuple[Array, Array, Array, Array]:
    """(sn, cn, dn, am)(u | m), the amplitude unwrapped: it grows by pi with 2 K(m)."""
    v, regular = _hyperbolic(u, m1)
    mean, way = _means(jnp.where(regular, m1, 1.0))

    def unfolded(phase: Array, means: tuple[Array, Array]) -> tuple[Array, None]:
        a, b = means
        return 0.5 * (phase + jnp.arcsin((a - b) / (a + b) * jnp.sin(phase))), None

    am, _ = lax.scan(unfolded, 2.0**_ROUNDS * mean * u, way, reverse=True)
    cn = jnp.cos(am)
    square = jnp.where(regular, m1 + (1.0 - m1) * cn * cn, 1.0)
    sinh, tanh, sech = jnp.sinh(v), jnp.tanh(v), 1.0 / jnp.cosh(v)
    less, more = 0.25 * m1 * (sinh - v * sech), 0.25 * m1 * (sinh + v * sech)
    return (
        jnp.where(regular, jnp.sin(am), tanh + less * sech),
        jnp.where(regular, cn, sech - less * tanh),
        jnp.where(regular, jnp.sqrt(square), sech + more * tanh),
        jnp.where(regular, am, 2.0 * jnp.arctan(jnp.tanh(0.5 * v)) + less),
    )


def first(phase: Array, m1: Array) -> Array:
    """F(phase | m), the incomplete integral of the first kind: the inverse of the amplitude."""
    c = jnp.cos(phase)
    regular = (m1 > 0) & (m1 >= _small(m1) * c * c)
    mean, way = _means(jnp.where(regular, m1, 1.0))

    def folded(phase: Array, means: tuple[Array, Array]) -> tuple[Array, None]:
        (a, b), s, c = means, jnp.sin(phase), jnp.cos(phase)
        return 2.0 * phase - jnp.arctan2((a - b) * s * c, a * c * c + b * s * s), None

    end, _ = lax.scan(folded, phase, way)
    v = jnp.arctanh(jnp.where(regular, 0.0, jnp.sin(phase)))
    return jnp.where(regular, end / (2.0**_ROUNDS * mean), v - 0.25 * m1 * (jnp.sinh(v) * jnp.cosh(v) - v))


def _small(m1: Array) -> float:
    """Where the terms of order m1^2 cosh^4 u are below rounding."""
    return float(jnp.finfo(m1.dtype).eps) ** 0.5


def _hyperbolic(u: Array, m1: Array) -> tuple[Array, Array]:
    """(u where the formulas of m1 = 0 serve, so far that they stay finite, else 0; whether those of m1 > 0 do)."""
    v = jnp.clip(u, -40.0, 40.0)
    regular = (m1 > 0) & (m1 * jnp.cosh(v) ** 2 >= _small(m1))
    return jnp.where(regular, 0.0, jnp.clip(u, -80.0, 80.0)), regular


def rj_complement(s: Array, c: Array, d: Array, p: Array) -> Array:
    """``s^3 R_J(c^2, d^2, 1, p)`` for c >= 0, d >= 0, p >= 1: three times (Pi(n) - F)/n with p = 1 - n s^2.

    From the roots c and d themselves, so that it is smooth where they vanish.
    """

    def duplicated(carry: Any, _: None) -> tuple[Any, None]:
        roots, root_p, scale, total = carry
        x, y, z = roots
        share = x * y + y * z + z * x
        d_n = (root_p + x) * (root_p + y) * (root_p + z)
        e_n = scale**3 * delta / (d_n * d_n)
        total = total + scale / d_n * _rc(e_n)
        roots = tuple(0.5 * jnp.sqrt(root * root + share) for root in roots)
        return (roots, 0.5 * jnp.sqrt(root_p * root_p + share), 0.25 * scale, total), None

    one, root_p = jnp.ones_like(c), jnp.sqrt(p)
    delta = (p - c * c) * (p - d * d) * (p - 1.0)
    carry = ((c, d, one), root_p, one, jnp.zeros_like(c))
    (roots, root_p, scale, total), _ = lax.scan(duplicated, carry, None, length=_DUPLICATIONS)
    x, y, z, w = (root * root for root in (*roots, root_p))
    mean = (x + y + z + 2.0 * w) / 5.0
    x, y, z = (1.0 - v / mean for v in (x, y, z))
    w = -0.5 * (x + y + z)
    e2 = x * y + x * z + y * z - 3.0 * w * w
    e3 = x * y * z + 2.0 * e2 * w + 4.0 * w * w * w
    rest = 1.0 - 3.0 * e2 / 14.0 + e3 / 6.0 + 9.0 * e2 * e2 / 88.0
    return s**3 * (scale * rest / (mean * jnp.sqrt(mean)) + 6.0 * total)


def _rc(e: Array) -> Array:
    """R_C(1, 1 + e) = arctan(sqrt e)/sqrt e, e >= 0."""
    return series.arctan_ratio(e, jnp.ones_like(e))

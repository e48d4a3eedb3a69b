"""The series against mpmath: values and two derivatives, on both sides of the switch at s = 1."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxquat import series

# Each is hypergeometric in s = x^2, so that mpmath needs no branch at zero either.
EXACT = {
    "cos": lambda s: mpmath.hyp0f1(mpmath.mpf(1) / 2, -s / 4),
    "sinc": lambda s: mpmath.hyp0f1(mpmath.mpf(3) / 2, -s / 4),
    "cosc": lambda s: mpmath.hyp0f1(mpmath.mpf(5) / 2, -s / 4) / 3,
    "sin_defect": lambda s: mpmath.hyp1f2(1, 2, mpmath.mpf(5) / 2, -s) / 6,
}
SQUARES = [0.0, 1e-30, 1e-12, 1e-4, *np.linspace(0.05, 0.95, 10), *np.linspace(0.99, 1.2, 22), *np.linspace(1.5, 9.9, 15)]


def with_derivatives(function):
    first = jax.grad(lambda s: function(s))
    return jax.jit(lambda s: jnp.stack([jax.vmap(f)(s) for f in (function, first, jax.grad(first))]))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", EXACT)
def test_value_and_two_derivatives(name, dtype):
    s = jnp.asarray(SQUARES, dtype)
    got = with_derivatives(getattr(series, name))(s)
    assert got.dtype == dtype
    with mpmath.workdps(50):
        rows = [mpmath.taylor(EXACT[name], mpmath.mpf(float(x)), 2) for x in s]
        wanted = np.array([[float(k * row[n]) for row in rows] for n, k in enumerate((1, 1, 2))])
    # in units of the value at zero, the largest in modulus; every differentiation of the closed form adds its own roundings
    errors = np.abs(np.asarray(got, np.float64) - wanted).max(axis=1) / np.abs(wanted[:, 0])
    assert (errors < np.array([4, 16, 32]) * jnp.finfo(dtype).eps).all(), errors / jnp.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_arctan_ratio(dtype):
    angles = [1e-30, 1e-12, 1e-4, 0.1, 0.39, 0.4, 0.8, 1.2, 1.5, 1.57]
    sine, cosine = np.sin(angles).astype(dtype), np.cos(angles).astype(dtype)
    s = np.append(sine * sine, [0, 1, 0.25]).astype(dtype)
    c = np.append(cosine, [0.5, 0, 0]).astype(dtype)
    got = np.asarray(jax.jit(series.arctan_ratio)(s, c), np.float64)
    with mpmath.workdps(50):
        roots = [mpmath.sqrt(mpmath.mpf(float(x))) for x in s]
        wanted = [mpmath.atan2(r, float(y)) / r if r else 1 / mpmath.mpf(float(y)) for r, y in zip(roots, c, strict=True)]
        wanted = np.array([float(x) for x in wanted])
    np.testing.assert_allclose(got, wanted, rtol=8 * jnp.finfo(dtype).eps)


def test_arctan_ratio_is_smooth_at_zero():
    """With c = 1: 1 - s/3 + s^2/5 - ..., so the derivatives in s at zero are -1/3 and 2/5."""
    first = jax.grad(series.arctan_ratio)
    zero, one = jnp.asarray(0.0), jnp.asarray(1.0)
    assert float(first(zero, one)) == pytest.approx(-1 / 3, rel=1e-15)
    assert float(jax.grad(first)(zero, one)) == pytest.approx(2 / 5, rel=1e-15)

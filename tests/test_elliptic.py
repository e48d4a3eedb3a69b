"""Elliptic functions and integrals against mpmath: values, and derivatives in both arguments."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxquat import elliptic

M1 = [1.0, 0.7, 0.1, 1e-3, 1e-9, 1e-14, 1e-40, 0.0]
U = [-3.0, -0.5, 0.0, 1e-6, 0.7, 2.0, 9.0]


def theirs(kind, u, m1):
    with mpmath.workdps(60):
        return mpmath.ellipfun(kind, mpmath.mpf(u), m=1 - mpmath.mpf(m1))


@pytest.mark.parametrize("m1", M1)
def test_jacobi(m1):
    """To rounding of u; the derivatives with respect to u to rounding too."""
    got = jax.jit(jax.vmap(lambda u, m1: jnp.stack(elliptic.jacobi(u, m1)[:3]), (0, None)))
    slopes = jax.jit(jax.vmap(jax.jacfwd(lambda u, m1: jnp.stack(elliptic.jacobi(u, m1))), (0, None)))
    values, slopes = got(jnp.array(U), jnp.asarray(m1)), slopes(jnp.array(U), jnp.asarray(m1))
    wanted = np.array([[float(theirs(kind, u, m1)) for kind in ("sn", "cn", "dn")] for u in U])
    s, c, d = wanted.T
    # near the middle axis sech(u) is as good as u + 1/sqrt(m1) roundings of the turning point allow
    np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-13)
    np.testing.assert_allclose(slopes, np.stack([c * d, -s * d, -(1 - m1) * s * c, d], 1), rtol=0, atol=2e-13)


@pytest.mark.parametrize("m1", [0.7, 0.1, 1e-3, 1e-6, 1e-7, 1e-9, 1e-14, 0.0])
def test_derivative_by_the_parameter(m1):
    """Across the place where the formulas change; there to the square root of eps, which is what is left of either."""
    u = np.array([-0.5, 0.7, 2.0])
    slope = jax.jit(jax.vmap(jax.jacfwd(lambda m1, u: jnp.stack(elliptic.jacobi(u, m1)[:3])), (None, 0)))(
        jnp.asarray(m1), jnp.asarray(u)
    )
    with mpmath.workdps(60):
        step = mpmath.mpf(10) ** -20
        wanted = [[(theirs(k, x, m1 + step) - theirs(k, x, m1 - step)) / (2 * step) for k in ("sn", "cn", "dn")] for x in u]
    wanted = np.array([[complex(x).real for x in row] for row in wanted])  # beyond m = 1 mpmath leaves the real line by rounding
    tolerance = 1e-13 if m1 > 1e-4 else 1e-6
    np.testing.assert_allclose(slope, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def test_amplitude_and_first_kind_are_inverse_over_many_turns():
    for m1 in (1.0, 0.5, 1e-4):
        u = jnp.linspace(-40.0, 40.0, 81)
        phase = jax.vmap(elliptic.jacobi, (0, None))(u, jnp.asarray(m1))[3]
        assert (np.diff(phase) > 0).all()
        np.testing.assert_allclose(jax.vmap(elliptic.first, (0, None))(phase, jnp.asarray(m1)), u, rtol=1e-13, atol=1e-14 / m1)
        period = 2.0 * elliptic.complete(jnp.asarray(m1))
        np.testing.assert_allclose(elliptic.jacobi(u[3] + period, jnp.asarray(m1))[3], phase[3] + np.pi, rtol=1e-14)


def test_complete():
    for m1 in M1[:-1]:
        with mpmath.workdps(60):
            np.testing.assert_allclose(elliptic.complete(jnp.asarray(m1)), float(mpmath.ellipk(1 - mpmath.mpf(m1))), rtol=1e-15)
    assert elliptic.complete(jnp.asarray(0.0)) == np.inf


def test_third_kind():
    rng = np.random.default_rng(1)
    phase, m = rng.uniform(-np.pi / 2, np.pi / 2, 200), rng.choice([0.0, 0.3, 0.9, 1 - 1e-9], 200)
    n = -(10.0 ** rng.uniform(-6, 6, 200))
    s, c = np.sin(phase), np.cos(phase)
    d, p = np.sqrt(1 - m * s * s), 1 - n * s * s
    got = jax.jit(jax.vmap(elliptic.rj_complement))(s, c, d, p)
    with mpmath.workdps(40):
        squares = [[mpmath.mpf(x) ** 2 for x in row] for row in zip(c, d, strict=True)]
        wanted = [float(mpmath.mpf(a) ** 3 * mpmath.elliprj(*sq, 1, mpmath.mpf(b))) for a, sq, b in zip(s, squares, p, strict=True)]
    np.testing.assert_allclose(got, wanted, rtol=1e-14)

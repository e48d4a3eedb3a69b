"""Elliptic functions and the integral of the third kind against mpmath, with all derivatives."""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from exact_motions import jacobi
from marks import some
from scipy.special import ellipkm1

from jaxquat.exact import elliptic

M1 = [1.0, 0.7, 0.5, 0.4999, 0.1, 1e-3, 1e-9, 1e-14, 1e-40, 0.0]
KINDS = "sn", "cn", "dn"
U = [-3.0, -0.5, 0.0, 1e-6, 0.7, 2.0, 9.0]


def modulus(m1):
    with mpmath.workdps(60):
        m1 = mpmath.mpf(m1)
        return elliptic.Modulus(*(jnp.asarray(float(x)) for x in (1 - m1, m1, mpmath.sqrt(m1))))


def moved(modulus, change, at_zero):
    """The modulus of m1 + change, differentiable; the root of zero stays what it is."""
    m, m1, root = modulus
    return elliptic.Modulus(m - change, m1 + change, root if at_zero else jnp.sqrt(m1 + change))


@functools.partial(jax.jit, static_argnames="at_zero")
def slopes_by_m1(u, modulus, at_zero):
    of_change = lambda change, u: functions(u, moved(modulus, change, at_zero))
    return jax.vmap(jax.jacfwd(of_change), (None, 0))(0.0, u)


def theirs(kind, u, m1):
    with mpmath.workdps(60):
        return mpmath.ellipfun(kind, mpmath.mpf(u), m=1 - mpmath.mpf(m1))


def functions(u, modulus):
    return jnp.stack(jacobi(u, modulus))


# compiled once for all moduli
values_at = jax.jit(jax.vmap(functions, (0, None)))
slopes_at = jax.jit(jax.vmap(jax.jacfwd(functions), (0, None)))
third_at = jax.jit(lambda u, modulus, pole: elliptic.jacobi_and_third(u, modulus, pole)[3])


@pytest.mark.slow
@pytest.mark.parametrize("m1", M1)
def test_jacobis_functions_and_their_slopes_are_right_to_rounding_of_u(m1):
    """Relative to cn and dn where these are small."""
    values, slopes = (f(jnp.array(U), modulus(m1)) for f in (values_at, slopes_at))
    wanted = np.array([[float(theirs(kind, u, m1)) for kind in KINDS] for u in U])
    s, c, d = wanted.T
    np.testing.assert_allclose(values, wanted, rtol=2e-14, atol=1e-50)
    wanted = np.stack([c * d, -s * d, -(1 - m1) * s * c], 1)
    np.testing.assert_allclose(slopes, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize("m1", [0.7, 0.5, 0.4, 1e-3, 1e-7, 1e-14, 0.0])
def test_derivatives_by_the_parameter_are_right(m1):
    """On both sides of the switch between the series, near m = 1 and at it."""
    u = np.array([-0.5, 0.7, 2.0])
    slope = slopes_by_m1(u, modulus(m1), at_zero=m1 == 0)
    with mpmath.workdps(60):
        step = mpmath.mpf(10) ** -20

        def difference(kind, x):
            return (theirs(kind, x, m1 + step) - theirs(kind, x, m1 - step)) / (2 * step)

        wanted = [[difference(kind, x) for kind in KINDS] for x in u]
    # beyond m = 1 mpmath leaves the real line by rounding
    wanted = np.array([[complex(x).real for x in row] for row in wanted])
    np.testing.assert_allclose(slope, wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())


@pytest.mark.parametrize("dtype", some([np.float32, np.float64], [np.float32]))
def test_a_flip_where_the_complement_underflows(dtype):
    """At K - 0.7 cn is k' sinh 0.7 and dn is k' cosh 0.7, here with k' = 1e-30.

    Float32 cannot hold m1 = 1e-60.
    """
    root = dtype(1e-30)
    near = elliptic.Modulus(*(jnp.asarray(x, dtype) for x in (1.0, float(root) ** 2, root)))
    before = jax.jit(lambda near: jacobi(jnp.log(4.0 / near.root) - dtype(0.7), near))
    _, cn, dn = before(near)
    wanted = root * np.sinh(0.7), root * np.cosh(0.7)
    # K = log(4/k') = 70.5 is rounded
    np.testing.assert_allclose([cn, dn], wanted, rtol=200 * np.finfo(dtype).eps)


@pytest.mark.parametrize("m1", [1.0, 0.9, 0.5001, 0.4999, 0.1, 1e-9])
def test_the_integral_of_the_third_kind_is_that_of_quadrature(m1):
    """Over two quarter periods it is twice what it is over one."""
    run = lambda u, pole: third_at(u, modulus(m1), pole)
    with mpmath.workdps(20):
        m = 1 - mpmath.mpf(m1)
        for kappa in (0.999, 0.7, 0.3, 0.01):
            across = 1 - mpmath.mpf(kappa) ** 2
            numbers = kappa, across, m * kappa**2 / across
            pole = elliptic.Pole(*(jnp.asarray(float(x)) for x in numbers))

            def integrand(x, kappa=kappa):
                dn = mpmath.ellipfun("dn", x, m=m).real
                return (1 - dn) / (1 + kappa * dn)

            factor = mpmath.sqrt(1 + m * kappa**2 / across) * (1 - kappa) / 2
            for u in (0.3, 3.0):
                wanted = float(factor * mpmath.quad(integrand, [0, u / 2, u]))
                np.testing.assert_allclose(run(jnp.asarray(u), pole), wanted, rtol=0, atol=3e-15)
            quarter = jnp.asarray(ellipkm1(m1))
            once, twice = run(quarter, pole), run(2.0 * quarter, pole)
            np.testing.assert_allclose(twice, 2.0 * once, rtol=1e-14, atol=1e-14)


@pytest.mark.slow
def test_derivatives_of_the_third_kind_are_those_of_central_differences():
    """By every argument, in both halves."""

    @jax.vmap
    def integral(m1, x):
        m = 1.0 - m1 + x[0]
        modulus = elliptic.Modulus(m, 1.0 - m, jnp.sqrt(1.0 - m))
        kappa = 0.6 + x[1]
        across = 1.0 - kappa * kappa
        pole = elliptic.Pole(kappa, across, m * kappa**2 / across)
        return elliptic.jacobi_and_third(3.0 + x[2], modulus, pole)[3]

    m1, h, here = jnp.array([0.7, 0.2]), 1e-3, jnp.zeros((2, 3))

    def total(x):
        values = integral(m1, x)
        return jnp.sum(values), values

    run = jax.jit(jax.grad(total, has_aux=True))
    slopes, _ = run(here)
    for argument in range(3):
        places = (here.at[:, argument].set(k * h) for k in (-2, -1, 1, 2))
        low2, low, high, high2 = (np.asarray(run(place)[1]) for place in places)
        central = (low2 - 8 * low + 8 * high - high2) / (12 * h)
        np.testing.assert_allclose(slopes[:, argument], central, atol=1e-10)

"""Tests of the elliptic functions and of the integral of the third kind.

They compare values with mpmath and check the derivatives by every argument.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxquat.analytic import elliptic

M1 = [1.0, 0.7, 0.5, 0.4999, 0.1, 1e-3, 1e-9, 1e-14, 1e-40, 0.0]
U = [-3.0, -0.5, 0.0, 1e-6, 0.7, 2.0, 9.0]


def modulus(m1):
    with mpmath.workdps(60):
        m1 = mpmath.mpf(m1)
        return elliptic.Modulus(*(jnp.asarray(float(x)) for x in (1 - m1, m1, mpmath.sqrt(m1))))


def moved(m1, change):
    """Return the modulus of m1 + change, differentiable by the change.

    At m1 = 0 the root keeps its value.
    """
    at_zero = m1 == 0
    m, m1, root = modulus(m1)
    return elliptic.Modulus(m - change, m1 + change, root if at_zero else jnp.sqrt(m1 + change))


def theirs(kind, u, m1):
    with mpmath.workdps(60):
        return mpmath.ellipfun(kind, mpmath.mpf(u), m=1 - mpmath.mpf(m1))


@pytest.mark.parametrize("m1", M1)
def test_jacobi(m1):
    """The functions and their derivatives by u are accurate to rounding of u.

    The errors of the values are relative to them, also where cn and dn are small.
    """
    got = jax.jit(jax.vmap(lambda u: jnp.stack(elliptic.jacobi(u, modulus(m1)))))
    slopes = jax.jit(jax.vmap(jax.jacfwd(lambda u: jnp.stack(elliptic.jacobi(u, modulus(m1))))))
    values, slopes = got(jnp.array(U)), slopes(jnp.array(U))
    wanted = np.array([[float(theirs(kind, u, m1)) for kind in ("sn", "cn", "dn")] for u in U])
    s, c, d = wanted.T
    np.testing.assert_allclose(values, wanted, rtol=2e-14, atol=1e-50)
    np.testing.assert_allclose(
        slopes, np.stack([c * d, -s * d, -(1 - m1) * s * c], 1), rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("m1", [0.7, 0.5, 0.4, 1e-3, 1e-7, 1e-14, 0.0])
def test_derivative_by_the_parameter(m1):
    """The derivative by the parameter agrees with differences of mpmath.

    The parameters are on both sides of the switch between the series, near m = 1 and at m = 1.
    """
    u = np.array([-0.5, 0.7, 2.0])
    slope = jax.jit(
        jax.vmap(
            jax.jacfwd(lambda change, u: jnp.stack(elliptic.jacobi(u, moved(m1, change)))),
            (None, 0),
        )
    )(0.0, u)
    with mpmath.workdps(60):
        step = mpmath.mpf(10) ** -20
        wanted = [
            [
                (theirs(k, x, m1 + step) - theirs(k, x, m1 - step)) / (2 * step)
                for k in ("sn", "cn", "dn")
            ]
            for x in u
        ]
    # mpmath has a small imaginary part beyond m = 1 by rounding
    wanted = np.array([[complex(x).real for x in row] for row in wanted])
    np.testing.assert_allclose(slope, wanted, rtol=0, atol=1e-13 * np.abs(wanted).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_flip_where_the_complement_underflows(dtype):
    """At K - 0.7 the values of cn and dn are k' sd and k' nd of 0.7.

    Here k' = 1e-30 and m1 = 1e-60, which float32 cannot hold.
    """
    root = dtype(1e-30)
    near = elliptic.Modulus(*(jnp.asarray(x, dtype) for x in (1.0, float(root) ** 2, root)))
    _, cn, dn = elliptic.jacobi(elliptic.complete(near) - dtype(0.7), near)
    # The tolerance covers the rounding of K = log(4/k') = 70.5.
    np.testing.assert_allclose(
        [cn, dn], [root * np.sinh(0.7), root * np.cosh(0.7)], rtol=200 * np.finfo(dtype).eps
    )


def test_complete():
    for m1 in M1[:-1]:
        with mpmath.workdps(60):
            np.testing.assert_allclose(
                elliptic.complete(modulus(m1)), float(mpmath.ellipk(1 - mpmath.mpf(m1))), rtol=1e-15
            )
    assert elliptic.complete(modulus(0.0)) == np.inf


@pytest.mark.parametrize("m1", [1.0, 0.9, 0.5001, 0.4999, 0.1, 1e-9])
def test_third_kind(m1):
    """The integral of the third kind agrees with quadrature of its definition.

    Over two quarter periods it is twice its value over one.
    """
    run = jax.jit(lambda u, pole: elliptic.jacobi_and_third(u, modulus(m1), pole)[3])
    with mpmath.workdps(20):
        m = 1 - mpmath.mpf(m1)
        for kappa in (0.999, 0.7, 0.3, 0.01):
            across = 1 - mpmath.mpf(kappa) ** 2
            pole = elliptic.Pole(
                *(jnp.asarray(float(x)) for x in (kappa, across, m * kappa**2 / across))
            )

            def integrand(x, kappa=kappa):
                dn = mpmath.ellipfun("dn", x, m=m).real
                return (1 - dn) / (1 + kappa * dn)

            factor = mpmath.sqrt(1 + m * kappa**2 / across) * (1 - kappa) / 2
            for u in (0.3, 3.0):
                wanted = factor * mpmath.quad(integrand, [0, u / 2, u])
                np.testing.assert_allclose(
                    run(jnp.asarray(u), pole), float(wanted), rtol=0, atol=3e-15
                )
            quarter = elliptic.complete(modulus(m1))
            np.testing.assert_allclose(
                run(2.0 * quarter, pole), 2.0 * run(quarter, pole), rtol=1e-14, atol=1e-14
            )


def test_derivatives_of_the_third_kind():
    """The derivatives by every argument agree with central differences of float64.

    The parameter lies once in each half of its range.
    """

    @jax.vmap
    def integral(m1, x):
        m = 1.0 - m1 + x[0]
        modulus = elliptic.Modulus(m, 1.0 - m, jnp.sqrt(1.0 - m))
        kappa = 0.6 + x[1]
        across = 1.0 - kappa * kappa
        return elliptic.jacobi_and_third(
            3.0 + x[2], modulus, elliptic.Pole(kappa, across, m * kappa**2 / across)
        )[3]

    m1, h = jnp.array([0.7, 0.2]), 1e-3
    run, slopes = (
        jax.jit(integral),
        jax.jit(lambda m1: jax.grad(lambda x: jnp.sum(integral(m1, x)))(jnp.zeros((2, 3))))(m1),
    )
    for argument in range(3):
        low2, low, high, high2 = (
            np.asarray(run(m1, jnp.zeros((2, 3)).at[:, argument].set(k * h)))
            for k in (-2, -1, 1, 2)
        )
        np.testing.assert_allclose(
            slopes[:, argument], (low2 - 8 * low + 8 * high - high2) / (12 * h), atol=1e-10
        )


def test_wrong_arguments_are_refused():
    half = elliptic.Modulus(*map(jnp.asarray, (0.5, 0.5, 0.5**0.5)))
    pole = elliptic.Pole(*map(jnp.asarray, (0.6, 0.64, 0.28125)))
    with pytest.raises(TypeError, match=r"^modulus: wanted an elliptic.Modulus, got None"):
        elliptic.complete(None)
    with pytest.raises(TypeError, match=r"^modulus.m1: wanted an array of floats, got None"):
        elliptic.complete(half._replace(m1=None))
    with pytest.raises(ValueError, match=r"^u: wanted shape \(\), got \(3,\); use jax.vmap"):
        elliptic.jacobi(jnp.zeros(3), half)
    with pytest.raises(TypeError, match=r"^modulus: wanted an elliptic.Modulus, got 'half'"):
        elliptic.jacobi(jnp.zeros(()), "half")
    with pytest.raises(TypeError, match=r"^pole: wanted an elliptic.Pole, got None"):
        elliptic.jacobi_and_third(jnp.zeros(()), half, None)
    with pytest.raises(TypeError, match=r"^u: wanted an array of floats, got None"):
        elliptic.jacobi_and_third(None, half, pole)

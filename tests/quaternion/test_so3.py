"""Rotation vectors and matrices: exp and log against scipy, dexp against mpmath and its series."""

import functools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.spatial.transform import Rotation
from scipy.special import bernoulli

from jaxquat import quaternion, so3

RNG = np.random.default_rng(11)
ANGLES = np.array([0.0, 1e-30, 1e-8, 1e-3, 0.5, 1.0, 1.9, 2.1, 3.0, np.pi, 4.0, 5.5])
AXES, V = RNG.normal(size=(2, len(ANGLES), 4, 3))
U = (ANGLES[:, None, None] * AXES / np.linalg.norm(AXES, axis=-1, keepdims=True)).reshape(-1, 3)
V = V.reshape(-1, 3)
DTYPES = [np.float32, np.float64]


@functools.cache
def compiled(name, frame):
    return jax.jit(functools.partial(getattr(so3, name), frame=frame))


def dexp(u, v, frame="body"):
    return np.asarray(compiled("dexp", frame)(u, v))


def dexpinv(u, v, frame="body"):
    return np.asarray(compiled("dexpinv", frame)(u, v))


def test_hat_is_the_vector_product_and_vee_its_inverse():
    wanted = [[0, -3, 2], [3, 0, -1], [-2, 1, 0]]
    np.testing.assert_array_equal(so3.hat(np.array([1.0, 2, 3])), wanted)
    hat = np.asarray(jax.jit(so3.hat)(U))
    np.testing.assert_allclose(np.einsum("nij,nj->ni", hat, V), np.cross(U, V), rtol=0, atol=1e-14)
    vee = jax.jit(so3.vee)
    np.testing.assert_array_equal(vee(hat), U)
    symmetric = hat @ hat
    np.testing.assert_allclose(vee(hat + symmetric), U, rtol=0, atol=1e-14)


def test_exp_is_the_matrix_exponential_of_hat():
    matrix = np.asarray(jax.jit(so3.exp)(U))
    np.testing.assert_allclose(matrix, Rotation.from_rotvec(U).as_matrix(), rtol=0, atol=1e-14)
    wanted = [expm(np.cross(np.eye(3), u)) for u in U]  # itself to 4e-14
    np.testing.assert_allclose(matrix, wanted, rtol=0, atol=1e-13)


def test_log_inverts_exp_and_lies_in_the_ball():
    got = np.asarray(jax.jit(so3.log)(np.asarray(jax.jit(so3.exp)(U))))
    assert np.linalg.norm(got, axis=-1).max() <= np.pi * (1 + 1e-15)
    wanted = Rotation.from_rotvec(U).as_rotvec()
    same_way = np.sign(np.sum(got * wanted, axis=-1))
    wanted *= np.where(np.repeat(ANGLES, 4) == np.pi, same_way, 1)[:, None]  # at pi either will do
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)


def test_log_at_exactly_a_half_turn():
    """The first nonzero component is positive."""
    axes = np.array([[1.0, 0, 0], [0, -1, 0], [0, 0, -1], [-0.6, 0.8, 0], [0, -0.6, 0.8]])
    matrices = 2 * axes[:, :, None] * axes[:, None, :] - np.eye(3)
    signs = np.array([[1.0], [-1], [-1], [-1], [-1]])
    np.testing.assert_allclose(jax.jit(so3.log)(matrices), np.pi * signs * axes, rtol=0, atol=4e-15)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("frame", ["body", "world"])
def test_dexp_and_dexpinv_are_inverse(frame, dtype):
    """Up to 5.5 rad; the pole of dexpinv at 2 pi amplifies by |beta| u^2, about 6 there."""
    u, v = U.astype(dtype), V.astype(dtype)
    for there, back in ((dexp, dexpinv), (dexpinv, dexp)):
        got = back(u, there(u, v, frame), frame)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, v, rtol=0, atol=100 * np.finfo(dtype).eps)


def test_dexp_is_the_derivative_of_exp():
    """It is the rate along u + t v, 2 q* dq/dt (body) and 2 dq/dt q* (world).

    The attitude is differentiated numerically with 60 digits.
    """

    def product(p, q):
        pw, qw, pv, qv = p[0], q[0], p[1:], q[1:]
        cross = [pv[i - 2] * qv[i - 1] - pv[i - 1] * qv[i - 2] for i in range(3)]
        return [
            pw * qw - sum(a * b for a, b in zip(pv, qv, strict=True)),
            *(pw * qv[i] + qw * pv[i] + cross[i] for i in range(3)),
        ]

    def exp(u):
        half = mpmath.norm(u) / 2
        return [mpmath.cos(half), *(mpmath.sinc(half) / 2 * x for x in u)]

    body, world = dexp(U, V), dexp(U, V, "world")
    with mpmath.workdps(60):
        h = mpmath.mpf(10) ** -20
        for k in range(0, len(U), 3):
            u, v = ([mpmath.mpf(float(x)) for x in row[k]] for row in (U, V))
            pairs = list(zip(u, v, strict=True))
            forth, back = (exp([a + step * b for a, b in pairs]) for step in (h, -h))
            rate = [(a - b) / h for a, b in zip(forth, back, strict=True)]  # 2 dq/dt
            conjugate = [x if i == 0 else -x for i, x in enumerate(exp(u))]
            in_body, in_world = product(conjugate, rate), product(rate, conjugate)
            for got, wanted in ((body[k], in_body), (world[k], in_world)):
                np.testing.assert_allclose(got, [float(x) for x in wanted[1:]], rtol=0, atol=1e-14)


def test_world_is_body_with_u_negated_and_its_rotation():
    for function in (dexp, dexpinv):
        np.testing.assert_allclose(function(U, V, "world"), function(-U, V), rtol=0, atol=4e-15)
    turned = Rotation.from_rotvec(U).apply(dexp(U, V).copy())
    np.testing.assert_allclose(dexp(U, V, "world"), turned, rtol=0, atol=2e-14)


def test_the_differential_and_its_inverse_are_their_series():
    """They are dexp = sum (-ad)^j/(j+1)! and dexpinv = sum B_j (-ad)^j/j! with B_1 = -1/2.

    The second converges for |u| < 2 pi.
    """
    u = U[np.repeat(ANGLES, 4) <= 1.0]
    v = V[: len(u)]
    terms = 30  # |u|^30/31! and (1/2 pi)^30 are below 1e-23
    b = bernoulli(terms)
    powers = [v]
    for _ in range(terms):
        powers.append(-np.cross(u, powers[-1]))
    exact = sum(power / math.factorial(j + 1) for j, power in enumerate(powers))
    inverse = sum(b[j] / math.factorial(j) * power for j, power in enumerate(powers))
    np.testing.assert_allclose(dexp(u, v), exact, rtol=0, atol=4e-15)
    np.testing.assert_allclose(dexpinv(u, v), inverse, rtol=0, atol=4e-15)


def test_the_coefficient_of_the_double_product_in_the_inverse_is_its_series():
    """It is 1/12 + a^2/720 + a^4/30240 + a^6/1209600 + a^8/47900160 + ...

    The next term is 1e-12 at a = 1/2.
    """
    a = 0.5
    got = (1 - dexpinv(np.array([a, 0, 0]), np.array([0.0, 1, 0]))[1]) / a**2
    wanted = 1 / 12 + a**2 / 720 + a**4 / 30240 + a**6 / 1209600 + a**8 / 47900160
    assert got == pytest.approx(wanted, abs=2e-12)


@pytest.mark.parametrize("function", [dexp, dexpinv])
def test_a_parallel_rate_passes(function):
    """Along u the differential is the identity, at any angle."""
    np.testing.assert_allclose(function(U, 0.3 * U), 0.3 * U, rtol=0, atol=4e-15)


def test_the_rotation_vector_of_a_constant_rate_grows_in_proportion_to_time():
    """In q(t) = q0 exp(u(t)) it is u = omega t, since there u' = dexpinv(u, omega) = omega."""
    omega = jnp.array([0.3, -0.4, 1.2])
    step = quaternion.multiply(quaternion.exp(omega), quaternion.exp(0.5 * omega))
    np.testing.assert_allclose(quaternion.log(step), 1.5 * omega, rtol=0, atol=4e-15)

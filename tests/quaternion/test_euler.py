"""Euler angles of all 24 orders: against scipy, Hoffmann's printed matrices, and derivatives."""

import functools
import warnings

import hypothesis.extra.numpy as hnp
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from jaxquat import euler, quaternion

RNG = np.random.default_rng(5)
N = 120
ANGLES = RNG.uniform(-np.pi, np.pi, size=(N, 3))
Q = RNG.normal(size=(N, 4))
Q /= np.linalg.norm(Q, axis=-1, keepdims=True)


# Plain calls: one operation after the other, so that the orders share what is compiled.
def to_quaternion(angles, order):
    return np.asarray(euler.to_quaternion(angles, order))


def from_quaternion(q, order):
    return np.asarray(euler.from_quaternion(q, order))


compiled_to, compiled_from = (
    jax.jit(f, static_argnums=1) for f in (euler.to_quaternion, euler.from_quaternion)
)


def proper(order):
    return order[0] == order[2]


def attitude_error(p, q):
    return np.abs(np.minimum(np.linalg.norm(p - q, axis=-1), np.linalg.norm(p + q, axis=-1))).max()


def test_there_are_24_orders():
    assert len(set(euler._ORDERS)) == len(euler._ORDERS) == 24
    assert sum(order.isupper() for order in euler._ORDERS) == 12


@pytest.mark.parametrize("order", euler._ORDERS)
def test_both_conversions_agree_with_scipy(order):
    """The angles lie in scipy's ranges; the scale and the sign of q have no effect.

    An extrinsic order is the intrinsic one read backwards.
    """
    got = to_quaternion(ANGLES, order)
    wanted = np.roll(Rotation.from_euler(order, ANGLES).as_quat(), 1, axis=-1)
    assert attitude_error(got, wanted) < 1e-15 * 4
    angles = from_quaternion(Q, order)
    theirs = Rotation.from_quat(np.roll(Q, -1, axis=-1)).as_euler(order)
    np.testing.assert_allclose(angles, theirs, rtol=0, atol=1e-12)
    np.testing.assert_allclose(from_quaternion(-3.0 * Q, order), angles, rtol=0, atol=1e-12)
    assert attitude_error(to_quaternion(angles, order), Q) < 1e-15 * 4
    backwards = to_quaternion(ANGLES[:, ::-1], order.swapcase()[::-1])
    np.testing.assert_allclose(backwards, got, rtol=0, atol=1e-15)


def locked(order, gaps):
    """Attitudes with the second angle ``gaps`` away from either gimbal lock."""
    middles = np.array([0.0, np.pi] if proper(order) else [-np.pi / 2, np.pi / 2])
    inward = np.sign(middles.mean() - middles + (middles == middles.mean()))
    second = (middles[:, None] + gaps * inward[:, None]).ravel()
    first, third = RNG.uniform(-3, 3, size=(2, len(second)))
    angles = np.stack([first, second, third], axis=-1)
    return np.roll(Rotation.from_euler(order, angles).as_quat(), 1, axis=-1)


@pytest.mark.parametrize("order", euler._ORDERS)
def test_attitudes_near_and_in_gimbal_lock_are_kept(order):
    """To rounding at any distance from lock; in lock the third angle is zero and scipy agrees."""
    near = locked(order, np.geomspace(1e-14, 1e-2, N // 2))
    assert attitude_error(to_quaternion(from_quaternion(near, order), order), near) < 1e-14
    exact = locked(order, np.zeros(N // 2))
    angles = from_quaternion(exact, order)
    assert np.isfinite(angles).all()
    assert attitude_error(to_quaternion(angles, order), exact) < 1e-14
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        wanted = Rotation.from_quat(np.roll(exact, -1, axis=-1)).as_euler(order)
    # the rounding of q may leave it just outside lock, for one of the two or both
    both = (angles[:, 2] == 0) & (wanted[:, 2] == 0)
    assert both.sum() > N // 4
    turn = (angles - wanted)[both]
    np.testing.assert_allclose(turn - 2 * np.pi * np.round(turn / (2 * np.pi)), 0, atol=1e-7)


@pytest.mark.parametrize("order", ["ZYX", "ZXZ", "xyz", "zxz"])
def test_the_third_angle_is_zero_in_exact_gimbal_lock(order):
    """The components of these quaternions are equal or zero to the bit."""
    q = np.array([np.cos(0.3), 0, 0, np.sin(0.3)] if proper(order) else [0.5, 0.5, 0.5, -0.5])
    angles = from_quaternion(q, order)
    assert angles[2] == 0
    if proper(order):
        np.testing.assert_allclose(angles, [0.6, 0, 0], rtol=0, atol=1e-15)
    else:
        assert angles[1] == pytest.approx(np.pi / 2, abs=1e-15)
    assert attitude_error(to_quaternion(angles, order), q) < 1e-15


SPECIAL = [0.0, 1.0, -1.0, 0.5, 1e-3, 1e-9, -1e-6, 0.7, -0.3]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(deadline=None, max_examples=60)
@given(x=hnp.arrays(np.float64, 4, elements=st.sampled_from(SPECIAL)))
def test_angles_of_special_attitudes_lie_in_range_and_give_them_back(dtype, x):
    """On, near and between the symmetric positions."""
    if not x.any():
        return
    q = (x / np.linalg.norm(x)).astype(dtype)
    for order in ("ZYX", "zxz"):
        angles = np.asarray(compiled_from(q, order))
        assert angles.dtype == dtype
        low, high = (0, np.pi) if proper(order) else (-np.pi / 2, np.pi / 2)
        slack = 4 * np.finfo(dtype).eps
        assert (np.abs(angles[[0, 2]]) <= np.pi + slack).all()
        assert low - slack <= angles[1] <= high + slack
        assert attitude_error(compiled_to(angles, order), q) < 10 * np.finfo(dtype).eps


# Rates

relative = jax.jit(lambda p, q: quaternion.multiply(quaternion.conjugate(p), q))


@pytest.mark.parametrize("order", euler._ORDERS)
def test_the_rate_matrix_is_the_derivative_of_the_attitude(order):
    """Its columns are 2 vec(q* dq/d angle_k).

    Half angles enter linearly by sine and cosine, so that dq/d angle_k = q(angles + pi e_k)/2.
    """
    matrix = np.asarray(euler.rate_matrix(ANGLES, order))
    q = to_quaternion(ANGLES, order)
    for k, shift in enumerate(np.pi * np.eye(3)):
        rate = np.asarray(relative(q, to_quaternion(ANGLES + shift, order)))
        np.testing.assert_allclose(rate[:, 0], 0, atol=1e-14)
        np.testing.assert_allclose(matrix[:, :, k], rate[:, 1:], rtol=0, atol=1e-14)
    second = ANGLES[:, 1]
    sine = np.sin(second) if proper(order) else np.cos(second)
    np.testing.assert_allclose(np.abs(np.linalg.det(matrix)), np.abs(sine), rtol=0, atol=1e-14)


def test_the_rate_matrix_gives_the_rate_of_the_jvp_of_the_attitude():
    def omega(angles, speed):
        q, dq = jax.jvp(functools.partial(euler.to_quaternion, order="zxy"), (angles,), (speed,))
        return 2 * relative(q, dq)[..., 1:]

    speed = RNG.normal(size=ANGLES.shape)
    wanted = np.einsum("nij,nj->ni", euler.rate_matrix(ANGLES, "zxy"), speed)
    np.testing.assert_allclose(jax.jit(omega)(ANGLES, speed), wanted, rtol=0, atol=2e-14)


def test_the_rate_matrix_is_singular_in_gimbal_lock():
    angles = np.zeros((N, 3))
    np.testing.assert_array_equal(np.linalg.det(euler.rate_matrix(angles, "ZXZ")), 0)


# Hoffmann's printed formulas: (first, second, third) is (phi, theta, psi) for "ZXZ", (psi, theta,
# phi) for "ZYX"

FIRST, SECOND, THIRD = ANGLES.T
S1, S2, S3 = np.sin(ANGLES).T
C1, C2, C3 = np.cos(ANGLES).T
ZERO, ONE = np.zeros(N), np.ones(N)


def stack(rows):
    return np.array(rows).transpose(2, 0, 1)


def cayley(order):
    ours = jax.jit(quaternion.to_matrix)(to_quaternion(ANGLES, order))
    return np.swapaxes(np.asarray(ours), -1, -2)


def test_hoffmann_6_13_is_the_matrix_of_zxz():
    sf, cf, st, ct, sp, cp = S1, C1, S2, C2, S3, C3
    wanted = [
        [cp * cf - sp * ct * sf, cp * sf + sp * ct * cf, sp * st],
        [-sp * cf - cp * ct * sf, -sp * sf + cp * ct * cf, cp * st],
        [st * sf, -st * cf, ct],
    ]
    np.testing.assert_allclose(cayley("ZXZ"), stack(wanted), rtol=0, atol=2e-15)


def test_hoffmann_7_13_is_the_matrix_of_zyx():
    """Row 3 lost a plus in column 1."""
    sp, cp, st, ct, sf, cf = S1, C1, S2, C2, S3, C3
    wanted = [
        [cp * ct, sp * ct, -st],
        [-sp * cf + cp * st * sf, cp * cf + sp * st * sf, ct * sf],
        [sp * sf + cp * st * cf, -cp * sf + sp * st * cf, ct * cf],
    ]
    np.testing.assert_allclose(cayley("ZYX"), stack(wanted), rtol=0, atol=2e-15)


def half_angles():
    return [f(angle / 2) for angle in (FIRST, SECOND, THIRD) for f in (np.sin, np.cos)]


def test_hoffmanns_angles_to_quaternion_have_our_sign_too():
    """His procedure AngToQuat, psi, theta, phi, component by component."""
    sp, cp, st, ct, sf, cf = half_angles()
    his = [
        sp * st * cf - cp * ct * sf,
        -cp * st * cf - sp * ct * sf,
        cp * st * sf - sp * ct * cf,
        sp * st * sf + cp * ct * cf,
    ]
    got = quaternion.from_hoffmann(np.stack(his, axis=-1))
    np.testing.assert_allclose(got, to_quaternion(ANGLES, "ZYX"), rtol=0, atol=1e-15)


def test_hoffmann_6_18_is_the_quaternion_of_zxz():
    """The formula lost in his text, by half sums and half differences of phi and psi."""
    less, more = (FIRST - THIRD) / 2, (FIRST + THIRD) / 2
    s, c = np.sin(SECOND / 2), np.cos(SECOND / 2)
    vector = -s * np.cos(less), -s * np.sin(less), -c * np.sin(more)
    ours = quaternion.from_hoffmann(np.stack([*vector, c * np.cos(more)], axis=-1))
    np.testing.assert_allclose(ours, to_quaternion(ANGLES, "ZXZ"), rtol=0, atol=1e-15)


def test_hoffmann_6_16_is_the_rate_matrix_of_zxz():
    wanted = [[S2 * S3, C3, ZERO], [S2 * C3, -S3, ZERO], [C2, ZERO, ONE]]
    np.testing.assert_allclose(euler.rate_matrix(ANGLES, "ZXZ"), stack(wanted), rtol=0, atol=2e-15)


def test_hoffmann_7_16_is_the_rate_matrix_of_zyx():
    """Its entry (3, 3) should be 0."""
    wanted = [[-S2, ZERO, ONE], [S3 * C2, C3, ZERO], [C3 * C2, -S3, ZERO]]
    np.testing.assert_allclose(euler.rate_matrix(ANGLES, "ZYX"), stack(wanted), rtol=0, atol=2e-15)

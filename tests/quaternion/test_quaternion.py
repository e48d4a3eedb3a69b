"""Quaternions: group laws, conversions, distances, estimation.

The oracles are scipy, mpmath, numpy and the printed formulas of Hoffmann.
"""

import functools
import itertools
from fractions import Fraction

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import some
from scipy.spatial.transform import Rotation

from jaxquat import euler, quaternion, so3
from jaxquat.quaternion import (
    conjugate,
    exp,
    log,
    multiply,
    normalize,
    rotate,
    to_matrix,
)

RNG = np.random.default_rng(7)
EPS = {np.float32: float(np.finfo(np.float32).eps), np.float64: float(np.finfo(np.float64).eps)}
DTYPES = [np.float32, np.float64]


def unit(*shape):
    x = RNG.normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


P, Q, R = unit(3, 200, 4)
V, W = RNG.normal(size=(2, 200, 3))
ONE = np.array([1.0, 0.0, 0.0, 0.0])
jit = functools.cache(jax.jit)


def call(function, *arguments):
    return np.asarray(jit(function)(*arguments))


def scipy(q):
    return Rotation.from_quat(np.roll(q, -1, axis=-1))


def close(got, wanted, ulp=16):
    tolerance = ulp * EPS[np.float64] * max(1.0, np.abs(wanted).max())
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance)


def same_attitude(p, q, ulp=16):
    """Assert that p and q are equal up to the sign of each."""
    sign = np.sign(np.sum(np.asarray(p) * q, axis=-1, keepdims=True))
    close(sign * p, q, ulp)


# The algebra


def test_the_units_multiply_as_hamiltons_do():
    i, j, k = np.eye(4)[1:]
    products = [(i, j, k), (j, k, i), (k, i, j), (j, i, -k), (ONE, i, i)]
    for a, b, ab in [*products, (i, i, -ONE), (j, j, -ONE), (k, k, -ONE)]:
        np.testing.assert_array_equal(call(multiply, a, b), ab)


def test_the_laws_of_a_group_hold():
    pq = call(multiply, P, Q)
    close(call(multiply, pq, R), call(multiply, P, call(multiply, Q, R)))
    close(call(multiply, Q, call(conjugate, Q)), np.broadcast_to(ONE, Q.shape))
    close(call(conjugate, pq), call(multiply, call(conjugate, Q), call(conjugate, P)))
    close(np.linalg.norm(call(multiply, 3.0 * P, 2.0 * Q), axis=-1), np.full(len(P), 6.0))


def test_normalize_of_any_quaternion():
    scale = np.exp(RNG.normal(size=(200, 1)))
    close(call(normalize, scale * Q), Q)
    assert np.isnan(call(normalize, np.zeros((200, 4)))).all()


def test_product_against_scipy():
    same_attitude(call(multiply, P, Q), np.roll((scipy(P) * scipy(Q)).as_quat(), 1, axis=-1))


def test_rotation_is_the_sandwich_product():
    """``q v q*`` maps body to world, as scipy's Rotation of the same components does."""
    embedded = np.concatenate([np.zeros((200, 1)), V], axis=-1)
    sandwich = call(multiply, call(multiply, Q, embedded), call(conjugate, Q))
    close(sandwich[:, 0], np.zeros(200))
    close(call(rotate, Q, V), sandwich[:, 1:])
    close(call(rotate, Q, V), scipy(Q).apply(V))
    close(call(rotate, -Q, V), call(rotate, Q, V))
    close(call(quaternion.rotate_inverse, Q, V), scipy(Q).inv().apply(V))
    close(call(rotate, P, call(rotate, Q, V)), call(rotate, call(multiply, P, Q), V))


def test_quarter_turn_about_z_takes_x_to_y():
    q = np.array([np.sqrt(0.5), 0, 0, np.sqrt(0.5)])
    close(call(rotate, q, np.array([1.0, 0, 0])), np.array([0.0, 1, 0]), ulp=2)


def test_the_left_matrix_multiplies_as_quaternions_do():
    wanted = call(multiply, P, Q)
    close(np.einsum("nij,nj->ni", call(quaternion.left_matrix, P), Q), wanted)


def test_canonical_has_a_positive_first_nonzero_component():
    turned = [[-1.0, 2, 3, 4], [0, -1, 2, 3], [0, 0, -2, 1], [0, 0, 0, -1]]
    kept = [[-0.0, 0, 0, 1], [1, -1, -1, -1], [0, 0, 0, 0]]
    q, signs = np.array(turned + kept), np.array([-1.0] * 4 + [1] * 3)[:, None]
    got = call(quaternion.canonical, q)
    np.testing.assert_array_equal(got, signs * q)
    np.testing.assert_array_equal(call(quaternion.canonical, -q), got)


def test_correct_norm_squares_the_error():
    """|q| = 1 + e becomes 1 - 3/2 e^2 - 1/2 e^3, exactly."""
    for e in (1e-2, -1e-3):
        norm = np.linalg.norm(call(quaternion.correct_norm, (1 + e) * Q), axis=-1)
        close(norm - 1, np.full(200, -1.5 * e**2 - 0.5 * e**3), ulp=4)


# Exponential and logarithm

SMALL = [0.0, 1e-30, 1e-15, 1e-7, 1e-3, 0.1]
ANGLES = [*SMALL, 1.0, 1.9, 2.0, 2.1, 3.0, 3.14, np.pi, 3.2, 4.5, 6.0, 2 * np.pi]


def rotation_vectors(dtype):
    return (np.array(ANGLES)[:, None, None] * unit(8, 3)).reshape(-1, 3).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_exp_is_right_to_rounding(dtype):
    u = rotation_vectors(dtype)
    got = call(exp, u)
    assert got.dtype == dtype
    with mpmath.workdps(60):
        for q, row in zip(got, u, strict=True):
            v = [mpmath.mpf(float(x)) for x in row]
            half = mpmath.norm(v) / 2
            ratio = mpmath.sin(half) / half / 2 if half else mpmath.mpf(1) / 2
            wanted = np.array([float(mpmath.cos(half)), *(float(ratio * x) for x in v)])
            error = np.abs(q - wanted)
            assert error[0] <= 3 * EPS[dtype]
            # the rounding of |u|/2 <= pi alone moves the sine by pi eps/2; relative to |u| it is a
            # few eps, also at 1e-30
            assert (error[1:] <= 4 * EPS[dtype] * min(1.0, float(2 * half))).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_expm1_has_every_digit_of_a_small_turn(dtype):
    """The scalar part too, -|u|^2/8, of which 1 + it knows nothing."""
    u = rotation_vectors(dtype)
    got = call(quaternion.expm1, u)
    with mpmath.workdps(100):
        for q, row in zip(got, u, strict=True):
            v = [mpmath.mpf(float(x)) for x in row]
            half = mpmath.norm(v) / 2
            scalar = -2 * mpmath.sin(half / 2) ** 2
            ratio = mpmath.sin(half) / half / 2 if half else mpmath.mpf(1) / 2
            # 1e-30 squared is below the normal numbers of float32
            tiny = float(np.finfo(dtype).tiny)
            assert abs(float(q[0]) - float(scalar)) <= 4 * EPS[dtype] * abs(float(scalar)) + tiny
            error = np.abs(q[1:] - np.array([float(ratio * x) for x in v]))
            assert (error <= 4 * EPS[dtype] * min(1.0, float(2 * half))).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_is_right_to_rounding(dtype):
    """Against 2 atan2(|v|, w) v/|v| of the very floats, relative to the length of the result.

    Of q and -q it is that of the one that ``canonical`` chooses, where w is exactly 0 too.
    """
    parts = [call(exp, rotation_vectors(dtype)), unit(60, 4).astype(dtype), np.eye(4, dtype=dtype)]
    q = np.concatenate(parts)
    got = call(log, q)
    assert got.dtype == dtype
    with mpmath.workdps(60):
        for u, row in zip(got, q, strict=True):
            leading = row[np.flatnonzero(row)[0]]
            w, *v = (mpmath.mpf(float(x)) * (-1 if leading < 0 else 1) for x in row)
            length = mpmath.norm(v)
            ratio = 2 * mpmath.atan2(length, w) / length if length else 0
            wanted = np.array([float(ratio * x) for x in v])
            assert np.linalg.norm(u - wanted) <= 8 * EPS[dtype] * np.linalg.norm(wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_inverts_exp(dtype):
    """To the rounding of q below a half turn; at small angles relative to |u|, which q carries."""
    u = rotation_vectors(dtype)
    angle, error = (np.linalg.norm(x, axis=-1) for x in (u, call(log, call(exp, u)) - u))
    assert (error <= 16 * EPS[dtype] * np.minimum(1, angle))[angle < 1].all()
    assert (error <= 16 * EPS[dtype])[angle < 3.13].all()


def test_exp_and_log_against_scipy():
    u = rotation_vectors(np.float64)
    same_attitude(call(exp, u), np.roll(Rotation.from_rotvec(u).as_quat(), 1, axis=-1))
    close(call(log, Q), scipy(Q).as_rotvec())


FINITE = st.floats(-1e3, 1e3, allow_nan=False, allow_subnormal=False).map(
    lambda x: 0.0 if abs(x) < 1e-30 else x
)
QUATERNIONS = hnp.arrays(np.float64, 4, elements=FINITE).filter(lambda q: np.abs(q).max() > 1e-3)


@settings(deadline=None, max_examples=100)
@given(QUATERNIONS)
def test_log_lies_in_the_ball_and_knows_neither_sign_nor_scale(q):
    u = call(log, q)
    assert np.linalg.norm(u) <= np.pi * (1 + 4 * EPS[np.float64])
    np.testing.assert_array_equal(call(log, -q), u)
    np.testing.assert_allclose(call(log, 1e-3 * q), u, rtol=0, atol=16 * EPS[np.float64])
    same_attitude(call(exp, u), call(normalize, q))


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_at_exactly_a_half_turn(dtype):
    axes = np.concatenate([np.eye(3), unit(20, 3), [[0, 0.6, -0.8], [0, -0.6, 0.8]]]).astype(dtype)
    q = np.concatenate([np.zeros((len(axes), 1), dtype), axes], axis=-1)
    u = call(log, q)
    np.testing.assert_array_equal(call(log, -q), u)
    np.testing.assert_allclose(np.linalg.norm(u, axis=-1), np.pi, rtol=4 * EPS[dtype])
    np.testing.assert_allclose(np.abs(u), np.pi * np.abs(axes), rtol=0, atol=8 * EPS[dtype])
    first = u[np.arange(len(u)), (u != 0).argmax(axis=-1)]
    assert (first > 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_log_is_free_of_the_scale(dtype, scale):
    q = unit(200, 4).astype(dtype)
    np.testing.assert_allclose(
        call(log, dtype(scale) * q), call(log, q), rtol=0, atol=16 * EPS[dtype]
    )


def test_log_of_zero_is_nan():
    assert np.isnan(call(log, np.zeros(4))).all()


# Distance and interpolation


def test_the_distance_is_the_angle_of_the_relative_rotation():
    wanted = (scipy(P).inv() * scipy(Q)).magnitude()
    close(call(quaternion.distance, P, Q), wanted)
    close(call(quaternion.squared_distance, P, Q), wanted**2)
    # signs, symmetry, invariance under both translations
    left = call(multiply, R, P), call(multiply, R, Q)
    right = call(multiply, P, R), call(multiply, Q, R)
    for p, q in ((-P, Q), (Q, P), left, right):
        close(call(quaternion.distance, p, q), wanted, ulp=32)
    np.testing.assert_array_equal(call(quaternion.distance, ONE, ONE), 0.0)
    half = call(quaternion.distance, ONE, np.array([0.0, 0.6, 0, -0.8]))
    np.testing.assert_allclose(half, np.pi, rtol=1e-15)


def test_small_distances_are_resolved():
    """An angle of 1e-12 to 12 digits of itself would drown in arccos(p.q)."""
    q = call(multiply, Q, call(exp, 1e-12 * unit(200, 3)))
    np.testing.assert_allclose(call(quaternion.distance, Q, q), 1e-12, rtol=1e-3)
    u, ones = 1e-12 * unit(200, 3), np.broadcast_to(ONE, (200, 4))
    np.testing.assert_allclose(call(quaternion.distance, ones, call(exp, u)), 1e-12, rtol=1e-14)


T = np.linspace(-0.5, 1.5, 200)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_relative_is_the_product_and_the_exact_identity_at_coincidence(dtype):
    p, q = P.astype(dtype), Q.astype(dtype)
    product = np.asarray(call(quaternion.multiply, call(quaternion.conjugate, p), q))
    got = np.asarray(call(quaternion.relative, p, q))
    wanted = np.where(product[:, :1] < 0, -product, product)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=4 * EPS[dtype])
    assert got[:, 0].min() >= 0
    assert np.all(np.asarray(call(quaternion.relative, p, p))[:, 1:] == 0)
    assert np.all(np.asarray(call(quaternion.relative, p, -p))[:, 1:] == 0)
    assert np.all(np.asarray(call(quaternion.distance, p, p)) == 0)


def test_slerp_runs_the_shortest_way_at_constant_rate():
    """It is p exp(t log(p* q)), also outside [0, 1]."""
    way = call(log, call(multiply, call(conjugate, P), Q))
    got = call(quaternion.slerp, P, Q, T)
    same_attitude(got, call(multiply, P, call(exp, T[:, None] * way)), ulp=64)
    close(np.linalg.norm(got, axis=-1), np.ones(200), ulp=2)
    part = call(quaternion.slerp, P, Q, 0.3 * np.ones(200))
    close(call(quaternion.distance, P, part), 0.3 * call(quaternion.distance, P, Q))


def test_slerp_meets_its_ends_and_knows_neither_signs_nor_scale():
    zero, one = np.zeros(200), np.ones(200)
    close(call(quaternion.slerp, P, Q, zero), P, ulp=2)
    same_attitude(call(quaternion.slerp, P, Q, one), Q, ulp=4)
    got = call(quaternion.slerp, P, Q, T)
    same_attitude(call(quaternion.slerp, P, -Q, T), got)
    same_attitude(call(quaternion.slerp, -P, Q, T), got)
    same_attitude(call(quaternion.slerp, 5.0 * P, 1e-3 * Q, T), got)
    same_attitude(call(quaternion.slerp, Q, P, 1 - T), got, ulp=64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("angle", [0.0, 1e-30, 1e-9, 1e-4, 1e-2, np.pi / 180, 2.0, 3.14])
def test_slerp_from_the_identity_to_any_angle(dtype, angle):
    """From 1 to exp(u) it is exp(t u), without loss near parallel and just short of a half turn."""
    u = (angle * unit(200, 3)).astype(dtype)
    t = np.linspace(0, 1, 200).astype(dtype)
    got = call(quaternion.slerp, np.broadcast_to(ONE.astype(dtype), (200, 4)), call(exp, u), t)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, call(exp, t[:, None] * u), rtol=0, atol=8 * EPS[dtype])
    if 0 < angle < 1e-3:
        np.testing.assert_allclose(got[:, 1:], 0.5 * t[:, None] * u, rtol=1e-6, atol=0)


def test_slerp_at_exactly_a_half_turn_goes_by_way_of_plus_q():
    q = np.concatenate([np.zeros((200, 1)), unit(200, 3)], axis=-1)
    p = np.broadcast_to(ONE, (200, 4))
    close(call(quaternion.slerp, p, q, np.full(200, 0.5)), (p + q) / np.sqrt(2))
    close(call(quaternion.slerp, p, -q, np.full(200, 0.5)), (p - q) / np.sqrt(2))


# Mean and observed directions


@functools.cache
def cloud():
    """Attitudes centre exp(±u): their mean is the centre."""
    u = 0.7 * RNG.normal(size=(4, 3))
    attitudes = scipy(Q[0]) * Rotation.from_rotvec(np.concatenate([u, -u]))
    return np.roll(attitudes.as_quat(), 1, axis=-1)


def test_mean_of_a_symmetric_cloud_is_its_centre():
    same_attitude(call(quaternion.mean, cloud()), Q[0])


def test_mean_knows_no_signs():
    signs = np.where(np.arange(8) % 3 == 0, -1.0, 1.0)[:, None]
    got = call(quaternion.mean, cloud())
    close(call(quaternion.mean, signs * cloud()), got)
    assert got[0] > 0


def test_mean_against_scipy():
    q, weights = unit(8, 4), np.arange(1.0, 9.0)
    wanted = np.roll(scipy(q).mean(weights=weights).as_quat(), 1)
    same_attitude(call(quaternion.mean, q, weights), wanted, ulp=100)
    close(call(quaternion.mean, q, 1e-3 * weights), call(quaternion.mean, q, weights), ulp=100)


def test_mean_of_two_weighted_attitudes():
    """It lies on the great circle at x from the first, where tan 2x = w2 sin 2a/(w1 + w2 cos 2a).

    There w1 cos^2 x + w2 cos^2 (a - x) is largest.
    """
    p, u, w1, w2, angle = Q[1], unit(200, 3), 2.0, 0.7, 1.1
    q = call(multiply, Q, call(exp, angle * u))[1]
    # 2x, with 2a = angle: the rotation angle to the mean
    turn = np.arctan2(w2 * np.sin(angle), w1 + w2 * np.cos(angle))
    pad, weights = np.stack([p, q, *P[:6]]), np.array([w1, w2, 0, 0, 0, 0, 0, 0])
    wanted = call(multiply, Q, call(exp, turn * u))[1]
    same_attitude(call(quaternion.mean, pad, weights), wanted, ulp=32)


def test_mean_of_one_attitude_is_itself():
    q = Q[:1].astype(np.float32)
    got = call(quaternion.mean, q)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, q[0] * np.sign(q[0, 0]), rtol=0, atol=4 * EPS[np.float32])


def wahba(q, body, world, weights):
    """Wahba's loss, which ``from_vectors`` minimises."""
    return np.sum(weights[:, None] * (world - scipy(q).apply(body)) ** 2)


def test_from_vectors_recovers_the_attitude_of_exact_directions():
    body = unit(6, 3)
    for q in Q[:5]:
        same_attitude(call(quaternion.from_vectors, 2.5 * body, scipy(q).apply(body)), q, ulp=64)


def test_from_vectors_of_noisy_directions_is_optimal():
    """Scipy finds the same (by singular values), and every turn away from it costs."""
    body, weights = unit(6, 3), np.array([1.0, 2, 0.5, 3, 1, 0.1])
    world = scipy(Q[0]).apply(body) + 0.3 * RNG.normal(size=(6, 3))
    world /= np.linalg.norm(world, axis=-1, keepdims=True)
    got = call(quaternion.from_vectors, body, world, weights)
    best = np.roll(Rotation.align_vectors(world, body, weights=weights)[0].as_quat(), 1)
    same_attitude(got, best, ulp=200)
    least = wahba(got, body, world, weights)
    turns = np.concatenate([scale * unit(50, 3) for scale in (1e-3, 0.1, 1.0, 3.0)])
    turned = call(multiply, np.broadcast_to(got, (200, 4)), call(exp, turns))
    others = [wahba(q, body, world, weights) for q in turned]
    assert min(others) > least
    assert min(others[:50]) - least > 1e-7  # a quadratic minimum, not a plateau


def test_from_two_vectors_turns_a_half_turn():
    body, weights = np.tile(np.eye(3), (2, 1)), np.array([1.0, 1, 0, 0, 0, 0])
    close(call(quaternion.from_vectors, body, -body, weights), np.array([0.0, 0, 0, 1]), ulp=4)


def test_random_attitudes_are_uniform():
    """E[R] = 0 and E[q q^T] = 1/4: means of n attitudes are within five standard errors."""
    n = 20_000
    q = np.asarray(jit(functools.partial(quaternion.random, shape=(n,)))(jax.random.key(0)))
    close(np.linalg.norm(q, axis=-1), np.ones(n), ulp=2)
    assert np.abs(scipy(q).as_matrix().mean(axis=0)).max() < 5 / np.sqrt(3 * n)  # E[R_ij^2] = 1/3
    # Var q_i^2 = 1/8 - 1/16, Var q_i q_j = 1/24
    assert np.abs(q.T @ q / n - np.eye(4) / 4).max() < 5 / np.sqrt(16 * n)
    one = jax.eval_shape(functools.partial(quaternion.random, dtype=jnp.float32), jax.random.key(0))
    assert (one.shape, one.dtype) == ((4,), jnp.float32)


# Representations


def test_matrices_against_scipy():
    matrix = scipy(Q).as_matrix()
    close(call(to_matrix, Q), matrix)
    close(call(quaternion.from_matrix, matrix), call(quaternion.canonical, Q))
    close(call(to_matrix, 3.0 * Q), 9.0 * matrix)
    close(np.einsum("nij,nj->ni", call(to_matrix, Q), V), call(rotate, Q, V))


def test_from_matrix_takes_what_four_decimals_leave_and_no_less():
    """An entry is off by 5e-5 at most, an entry of R^T R by 2 sqrt(3) times that.

    With three decimals both are ten times as much.
    """
    matrices = scipy(Q).as_matrix()
    call(quaternion.from_matrix, np.round(matrices, 4))
    call(quaternion.from_matrix, call(to_matrix, Q * (1 + 0.99e-4)))
    with pytest.raises(ValueError, match="matrix: wanted a rotation matrix"):
        quaternion.from_matrix(np.round(matrices, 3))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_mean_and_from_vectors_take_half_precision(dtype):
    """Three turns about z by 10, 20, 30 degrees, and their mean: to the rounding of the dtype."""
    turns = np.roll(
        Rotation.from_euler("z", [[10.0], [20.0], [30.0]], degrees=True).as_quat(), 1, 1
    )
    wanted, rounding = turns[1], float(jnp.finfo(dtype).eps)
    world = np.eye(3)
    body = scipy(wanted).inv().apply(world)
    both = jax.jit(lambda q, u, v: (quaternion.mean(q), quaternion.from_vectors(u, v)))
    for q in both(*(jnp.asarray(x, dtype) for x in (turns, body, world))):
        assert q.dtype == dtype
        np.testing.assert_allclose(np.asarray(q, float), wanted, atol=2 * rounding)


def test_what_has_no_mean_is_nan_where_it_is_traced():
    """Two attitudes a half turn apart, weights of 0, negative weights; NaN even if concrete."""
    apart, mean = jnp.asarray([[1.0, 0, 0, 0], [0, 0, 1, 0]]), jax.jit(quaternion.mean)
    for weights in ([1.0, 1.0], [0.0, 0.0], [1.0, -1.0], [2.0, -1.0]):
        assert np.isnan(mean(apart, jnp.asarray(weights))).all()
    np.testing.assert_allclose(mean(apart, jnp.asarray([1.0, 1.0 - 1e-9])), [1, 0, 0, 0], atol=1e-6)
    assert np.isnan(quaternion.mean(apart.at[0, 0].set(jnp.nan))).all()


def test_the_angles_and_the_axis_of_nan_are_nan():
    """Neither the branch for gimbal lock nor the one for the identity takes it."""
    lost = jnp.full(4, jnp.nan)
    for order in ("ZYX", "zxz"):
        assert np.isnan(euler.from_quaternion(lost, order)).all()
    axis, angle = quaternion.to_axis_angle(lost)
    assert np.isnan(axis).all()
    assert np.isnan(angle)


def test_directions_that_determine_no_attitude_give_nan_where_they_are_traced():
    attitude = jax.jit(quaternion.from_vectors)
    v = jnp.asarray([[0.1, 0.2, 0.3], [-0.2, -0.4, -0.6]])
    assert np.isnan(attitude(v, v)).all()
    assert np.isnan(attitude(jnp.eye(3)[:2], 0.0 * v)).all()


def test_from_matrix_near_and_at_half_turns():
    """Each of the four branches is right, also at its worst."""
    angles = np.array([np.pi, np.pi - 1e-12, np.pi - 1e-6, np.pi - 1e-3, 2.2])
    axes = np.concatenate([np.eye(3), -np.eye(3), unit(34, 3)])
    u = (angles[:, None, None] * axes).reshape(-1, 3)
    q = np.roll(Rotation.from_rotvec(u).as_quat(), 1, axis=-1)
    same_attitude(call(quaternion.from_matrix, scipy(q).as_matrix()), q)
    for k in range(3):
        half = np.diag(np.where(np.arange(3) == k, 1.0, -1.0))
        np.testing.assert_array_equal(call(quaternion.from_matrix, half), np.eye(4)[1 + k])


def test_mrp_against_their_angles():
    angle, axis = RNG.uniform(0, np.pi, 200), unit(200, 3)
    q = call(exp, angle[:, None] * axis)
    close(call(quaternion.to_mrp, q), np.tan(angle / 4)[:, None] * axis)
    close(call(quaternion.to_mrp, -q), scipy(q).as_mrp())
    close(call(quaternion.from_mrp, np.tan(angle / 4)[:, None] * axis), q)
    long = np.roll(Rotation.from_mrp(4.0 * V).as_quat(), 1, axis=-1)
    same_attitude(call(quaternion.from_mrp, 4.0 * V), long)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parameters_of_any_length_give_unit_quaternions(dtype):
    """Up to the largest number, (1 - p^2, 2 p)/(1 + p^2) in exact fractions."""
    kind = np.finfo(dtype)
    largest = float(kind.max)
    for size in (1.5, 2.0**29, 2.0**31, 2.0**33, largest**0.4, largest**0.5, largest**0.7, largest):
        v = np.array([0.6 * size, 0.0, 0.8 * size], dtype)
        q = jit(quaternion.from_mrp)(v)
        assert q.dtype == dtype
        p = [Fraction(float(x)) for x in v]
        square = sum(x * x for x in p)
        wanted = [float(x / (1 + square)) for x in (1 - square, *(2 * x for x in p))]
        np.testing.assert_allclose(
            np.asarray(q, float), wanted, rtol=4 * kind.eps, atol=2 * kind.tiny
        )


def test_mrp_of_a_half_turn_is_on_the_unit_sphere():
    q = np.array([0.0, 0.6, 0.0, 0.8])
    np.testing.assert_array_equal(quaternion.to_mrp(q), q[1:])
    assert np.linalg.norm(call(quaternion.to_mrp, Q), axis=-1).max() <= 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_axis_and_angle_are_recovered(dtype):
    angle, axis = np.geomspace(1e-15, 3.14, 200).astype(dtype), unit(200, 3).astype(dtype)
    q = call(quaternion.exp, axis * angle[:, None])
    got_axis, got_angle = jit(quaternion.to_axis_angle)(q)
    assert got_axis.dtype == got_angle.dtype == dtype
    np.testing.assert_allclose(got_angle, angle, rtol=8 * EPS[dtype])
    np.testing.assert_allclose(got_axis, axis, rtol=0, atol=8 * EPS[dtype])


def test_axis_and_angle_beyond_a_half_turn_and_at_the_identity():
    axis, angle = jit(quaternion.to_axis_angle)(np.array([np.cos(2.0), 0, 0, np.sin(2.0)]))
    close(angle, 2 * np.pi - 4)
    close(axis, np.array([0.0, 0, -1]))
    axis, angle = jit(quaternion.to_axis_angle)(-ONE)
    np.testing.assert_array_equal(axis, [1, 0, 0])
    assert angle == 0


def test_xyzw_is_the_order_of_scipy():
    np.testing.assert_array_equal(quaternion.to_xyzw(np.array([1.0, 2, 3, 4])), [2, 3, 4, 1])
    np.testing.assert_array_equal(quaternion.from_xyzw(np.array([2.0, 3, 4, 1])), [1, 2, 3, 4])
    close(call(rotate, call(quaternion.from_xyzw, Q), V), Rotation.from_quat(Q).apply(V))
    close(Rotation.from_quat(call(quaternion.to_xyzw, Q)).apply(V), call(rotate, Q, V))


# Hoffmann's forms: his product (1.9) of (q1, q2, q3, q4) is the only thing assumed


def his_product(q, s):
    u, a = q[..., :3], q[..., 3:]
    v, b = s[..., :3], s[..., 3:]
    scalar = a * b - np.sum(u * v, axis=-1, keepdims=True)
    return np.concatenate([a * v + b * u + np.cross(u, v), scalar], axis=-1)


def his_conjugate(q):
    return q * np.array([-1.0, -1, -1, 1])


def test_hoffmann_is_the_conjugate_written_scalar_last():
    hoffmann = call(quaternion.to_hoffmann, Q)
    wanted = np.stack([-Q[:, 1], -Q[:, 2], -Q[:, 3], Q[:, 0]], axis=-1)
    np.testing.assert_array_equal(hoffmann, wanted)
    np.testing.assert_array_equal(call(quaternion.from_hoffmann, hoffmann), Q)
    # (2.2): x_body = Q x_world Q'; composition runs the other way
    world = np.concatenate([V, np.zeros((200, 1))], axis=-1)
    body = his_product(his_product(hoffmann, world), his_conjugate(hoffmann))
    close(body[:, :3], call(quaternion.rotate_inverse, Q, V))
    close(body[:, 3], np.zeros(200))
    other = call(quaternion.to_hoffmann, P)
    close(call(quaternion.from_hoffmann, his_product(other, hoffmann)), call(multiply, Q, P))


def test_hoffmann_v_has_his_properties():
    """(3.26): V(Q) X = Q . X', orthogonal; (3.33): V(Q) Q = (0, 0, 0, 1)."""
    v = call(quaternion.hoffmann_v, Q)
    close(np.einsum("nij,nj->ni", v, P), his_product(Q, his_conjugate(P)))
    close(np.einsum("nji,nj->ni", v, P), his_product(his_conjugate(P), Q))
    close(np.einsum("nij,nj->ni", v, Q), np.broadcast_to([0.0, 0, 0, 1], (200, 4)))
    close(v @ v.transpose(0, 2, 1), np.broadcast_to(np.eye(4), (200, 4, 4)))


def test_hoffmann_v_gives_the_body_rate():
    """(omega, 0) = 2 V(Q) Q' with Q' of ours, q' = 1/2 q (0, omega)."""
    rate = call(multiply, Q, np.concatenate([np.zeros((200, 1)), V], axis=-1)) / 2
    v = call(quaternion.hoffmann_v, call(quaternion.to_hoffmann, Q))
    got = 2.0 * np.einsum("nij,nj->ni", v, call(quaternion.to_hoffmann, rate))
    close(got, np.concatenate([V, np.zeros((200, 1))], axis=-1))


def test_hoffmanns_example_about_z():
    """In (3.30) to (3.32) a turn by a about z at the rate a' gives (omega, 0) = (0, 0, a', 0)."""
    alpha, rate = 0.8, 1.7
    s, c = np.sin(alpha / 2), np.cos(alpha / 2)
    speed = np.array([0, 0, -rate / 2 * c, -rate / 2 * s])
    got = 2.0 * call(quaternion.hoffmann_v, np.array([0, 0, -s, c])) @ speed
    close(got, np.array([0, 0, rate, 0]), ulp=2)


def test_hoffmanns_cayley_matrix_is_ours_transposed():
    """It is x_body = C(Q) x_world (2.12); about z it is (2.8)."""
    q1, q2, q3, q4 = call(quaternion.to_hoffmann, Q).T
    cayley = [
        [q1 * q1 - q2 * q2 - q3 * q3 + q4 * q4, 2 * (q1 * q2 - q3 * q4), 2 * (q1 * q3 + q2 * q4)],
        [2 * (q1 * q2 + q3 * q4), -q1 * q1 + q2 * q2 - q3 * q3 + q4 * q4, 2 * (q2 * q3 - q1 * q4)],
        [2 * (q1 * q3 - q2 * q4), 2 * (q1 * q4 + q2 * q3), -q1 * q1 - q2 * q2 + q3 * q3 + q4 * q4],
    ]
    close(np.array(cayley).transpose(2, 1, 0), call(to_matrix, Q))
    c, s = np.cos(0.6), np.sin(0.6)
    about_z = call(quaternion.from_hoffmann, np.array([0, 0, -np.sin(0.3), np.cos(0.3)]))
    close(call(to_matrix, about_z).T, np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]]), ulp=2)


# Leading axes, dtypes, transformations: one case per public function of quaternion, so3, euler


def only(function, *cores):
    """A case: a function and the core shapes of its arguments."""
    partial = isinstance(function, functools.partial)
    name = f"{function.func.__name__} {function.keywords}" if partial else function.__name__
    return pytest.param(function, cores, id=name)


FOUR, THREE, MATRIX = (4,), (3,), (3, 3)
CASES = [
    only(quaternion.multiply, FOUR, FOUR),
    only(quaternion.conjugate, FOUR),
    only(quaternion.normalize, FOUR),
    only(quaternion.correct_norm, FOUR),
    only(quaternion.canonical, FOUR),
    only(quaternion.rotate, FOUR, THREE),
    only(quaternion.rotate_inverse, FOUR, THREE),
    only(quaternion.exp, THREE),
    only(quaternion.expm1, THREE),
    only(quaternion.log, FOUR),
    only(quaternion.left_matrix, FOUR),
    only(quaternion.squared_distance, FOUR, FOUR),
    only(quaternion.distance, FOUR, FOUR),
    only(quaternion.slerp, FOUR, FOUR, ()),
    only(quaternion.relative, FOUR, FOUR),
    only(quaternion.mean, (6, 4), (6,)),
    only(quaternion.from_vectors, (6, 3), (6, 3), (6,)),
    only(quaternion.to_axis_angle, FOUR),
    only(quaternion.from_mrp, THREE),
    only(quaternion.to_mrp, FOUR),
    only(quaternion.from_matrix, MATRIX),
    only(quaternion.to_matrix, FOUR),
    only(quaternion.from_xyzw, FOUR),
    only(quaternion.to_xyzw, FOUR),
    only(quaternion.from_hoffmann, FOUR),
    only(quaternion.to_hoffmann, FOUR),
    only(quaternion.hoffmann_v, FOUR),
    only(so3.hat, THREE),
    only(so3.vee, MATRIX),
    only(so3.exp, THREE),
    only(so3.log, MATRIX),
    only(so3.dexp, THREE, THREE),
    only(functools.partial(so3.dexp, frame="world"), THREE, THREE),
    only(so3.dexpinv, THREE, THREE),
    only(functools.partial(so3.dexpinv, frame="world"), THREE, THREE),
    only(functools.partial(euler.to_quaternion, order="ZYX"), THREE),
    only(functools.partial(euler.from_quaternion, order="zxz"), FOUR),
    only(functools.partial(euler.rate_matrix, order="xyz"), THREE),
]


def test_every_public_function_has_its_case():
    functions = [case.values[0] for case in CASES]
    covered = {getattr(function, "func", function) for function in functions}
    public = {getattr(room, name) for room in (quaternion, so3, euler) for name in room.__all__}
    assert covered >= public - {quaternion.random}


def sample(core, leading):
    if core == FOUR or core[1:] == FOUR:
        return unit(*leading, *core)
    if core == MATRIX:
        return np.asarray(to_matrix(unit(*leading, 4)))
    return np.abs(RNG.normal(size=(*leading, *core))) + 0.1  # weights and limits are positive


@pytest.mark.parametrize(
    ("function", "cores"),
    some([case.values for case in CASES], [case.values for case in CASES[::2]]),
)
def test_leading_axes_of_any_rank_broadcast(function, cores):
    """Every mixture of (), (2,) and (5, 2) in two arguments has the right shape.

    For one of them the plain call equals jit and vmap of the call.
    """

    def shaped(leading):
        """Shapes and dtypes of the results."""
        shapes = [x + core for x, core in zip(leading, cores, strict=True)]
        structures = [jax.ShapeDtypeStruct(shape, jnp.float64) for shape in shapes]
        return jax.tree.leaves(jax.eval_shape(function, *structures))

    one = shaped([()] * len(cores))
    kinds = (), (2,), (5, 2)
    mixtures = itertools.product(kinds, repeat=min(2, len(cores)))
    if len(cores) > 2:  # every mixture of two arguments
        numbers = itertools.product(range(3), repeat=2)
        mixtures = [(kinds[i], kinds[j], kinds[(i + j) % 3]) for i, j in numbers]
    for leading in mixtures:
        got = shaped(leading)
        assert [x.shape for x in got] == [max(leading, key=len) + x.shape for x in one]
    leading = [(), (5, 2), (2,)] if len(cores) > 1 else [(5, 2)]
    arguments = [sample(core, x) for core, x in zip(cores, leading, strict=False)]
    spread = [np.broadcast_to(x, (5, 2, *core)) for x, core in zip(arguments, cores, strict=True)]
    both = lambda one, many: (function(*one), jax.vmap(jax.vmap(function))(*many))
    plain, mapped = jit(both)(arguments, spread)
    for got, wanted in zip(jax.tree.leaves(plain), jax.tree.leaves(mapped), strict=True):
        # the eigenvector's gap may cost two digits
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("function", "cores"), CASES)
def test_float32_stays_float32(function, cores):
    arguments = [jax.ShapeDtypeStruct((7, *core), jnp.float32) for core in cores]
    for got in jax.tree.leaves(jax.eval_shape(function, *arguments)):
        assert got.dtype == jnp.float32
        assert not got.weak_type
        assert got.shape[0] == 7


def test_python_numbers_do_not_widen():
    four = jax.ShapeDtypeStruct((4,), jnp.float32)
    interpolated = jax.eval_shape(lambda q: quaternion.slerp(q, q, 0.5), four)
    assert interpolated.dtype == jnp.float32


def test_the_distance_of_a_diverged_attitude_is_nan():
    assert np.isnan(quaternion.distance(jnp.full(4, jnp.nan), jnp.array([1.0, 0, 0, 0])))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_exp_of_any_turn_is_unit(dtype):
    """Where rounding leaves nothing of the angle, what remains is unit to rounding."""
    sizes = np.logspace(-30, np.log10(np.finfo(dtype).max) - 1, 400)
    u = (
        sizes[:, None, None] * np.array([[1.0, 0, 0], [0.6, 0, -0.8], [2 / 3, 2 / 3, 1 / 3]])
    ).astype(dtype)
    for turn, unit_part in ((quaternion.exp, 0.0), (quaternion.expm1, 1.0)):
        q = np.array(jax.jit(turn)(u), float)
        q[..., 0] += unit_part
        assert np.abs(np.linalg.norm(q, axis=-1) - 1).max() < 6 * np.finfo(dtype).eps


def free_of_scale(both):
    """What does not depend on the scale of two quaternions, and the derivative of their mean."""
    p, q = both
    slope = jax.jacrev(quaternion.mean)(both)
    angles, (axis, angle) = euler.from_quaternion(p, "ZYX"), quaternion.to_axis_angle(p)
    return quaternion.slerp(p, q, 0.3), angles, axis, angle, quaternion.mean(both), slope


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_the_scale_has_no_effect_in_float32(scale):
    both = Q[:2].astype(np.float32)
    s = np.float32(2.0 ** round(np.log2(scale)))
    *scaled, slope = jit(free_of_scale)(s * both)
    *wanted, slope_of_one = jit(free_of_scale)(both)
    for ours, theirs in zip(scaled, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(slope * s, slope_of_one)


@pytest.mark.parametrize(
    ("dtype", "ends"), [("float32", (1e-15, 1e18)), ("float64", (1e-147, 1e153))]
)
def test_normalize_and_log_are_right_to_the_ends_of_the_range_that_the_docs_promise(dtype, ends):
    for scale in ends:
        q = np.asarray(scale * Q, dtype)
        tolerance = 10 * jnp.finfo(dtype).eps
        np.testing.assert_allclose(call(normalize, q), Q, rtol=0, atol=tolerance)
        near = call(log, np.asarray(Q, dtype))
        np.testing.assert_allclose(call(log, q), near, rtol=0, atol=2 * tolerance)


def test_the_derivative_of_exp_is_finite_to_the_largest_numbers():
    """The square of 3e38 is infinite; the derivative is of the order of 1/|u|, or 0."""
    u = jnp.full(3, 3e38, jnp.float32)
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_array_equal(jax.jit(mode(exp))(u), np.zeros((4, 3)))


def test_two_directions_a_tenth_of_a_degree_apart_err_as_eps_over_the_angle():
    body = np.array([[1.0, 0, 0], [np.cos(np.pi / 1800), np.sin(np.pi / 1800), 0]])
    world = scipy(Q[0]).apply(body)
    got = call(quaternion.from_vectors, body.astype(np.float32), world.astype(np.float32))
    error = np.linalg.norm(np.asarray(got, float) - Q[0] * np.sign(Q[0, 0])) * 2
    assert error < 4 * np.finfo(np.float32).eps / (np.pi / 1800)


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**100])
def test_powers_of_two_of_weights_and_directions_change_no_bit_in_float32(scale):
    s, weights = jnp.float32(scale), jnp.array([1.0, 2.0], jnp.float32)
    q = jnp.asarray(Q[:2], jnp.float32)
    mean, fit = quaternion.mean, quaternion.from_vectors
    np.testing.assert_array_equal(call(mean, q, s * weights), call(mean, q, weights))
    body, world = q[:, 1:], q[:, :3]
    np.testing.assert_array_equal(
        call(fit, s * body, world / s, s * weights), call(fit, body, world, weights)
    )


def test_the_differential_of_a_turn_of_1e15_rad_is_the_part_along_its_axis_in_float32():
    """Its other two terms are at most of order |v|/|u|."""
    u, v = jnp.array([1e15, 0.0, 0.0], jnp.float32), jnp.array([1.0, 2.0, 3.0], jnp.float32)
    np.testing.assert_allclose(so3.dexp(u, v), [1.0, 0.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("exponent", [-120, -66, 66, 126])
def test_a_quaternion_of_any_length_is_normalised_with_its_derivatives(exponent):
    """Powers of two: q/|q| is the same to the last bit, and its derivative goes as 1/|q|."""
    q, size = np.float32([0.9, -0.5, 0.25, 0.75]), np.float32(2.0**exponent)
    slope = jax.jit(lambda q: jax.jvp(quaternion.normalize, (q,), (q[::-1],)))
    for ours, theirs in zip(slope(size * q), slope(q), strict=True):
        np.testing.assert_array_equal(ours, theirs)

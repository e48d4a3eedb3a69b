"""Laws on generated inputs: of the algebra, of the conversions beside scipy, and of paths."""

import functools

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

import jaxquat as jq
from jaxquat import euler, quaternion, so3
from jaxquat.quaternion import conjugate, exp, from_xyzw, log, multiply, rotate, rotate_inverse, to_xyzw

EPS = float(np.finfo(np.float64).eps)
ONE = np.array([1.0, 0.0, 0.0, 0.0])
PRODUCT, EXP, LOG, ROTATE = 2, 4, 8, 8  # ulp: of |p||q| a component, of 1, of |u|, of |v|; the tolerances below are made of these
jit = functools.cache(jax.jit)
law = settings(deadline=None, max_examples=50)


def call(function, *arguments):
    return np.asarray(jit(function)(*arguments))


def close(got, wanted, ulp, size=1.0):
    np.testing.assert_allclose(got, wanted, rtol=0, atol=ulp * EPS * size)


def same_attitude(p, q, ulp):
    sign = np.where(np.sum(p * q, axis=-1, keepdims=True) < 0, -1.0, 1.0)
    close(sign * p, q, ulp)


def scipy(q):
    return Rotation.from_quat(np.roll(q, -1, axis=-1))


# Generated inputs: on the symmetric positions, next to them by anything down to 1e-300 (XLA flushes what is subnormal), anywhere

TINY = st.integers(1, 300).map(lambda n: 10.0**-n)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.7, 1e-3, -1e-9, 1e-17, 1e-300]
COMPONENTS = st.sampled_from(SPECIAL) | st.floats(-1, 1)
SIGNS = st.sampled_from([1.0, -1.0])


def flushed(x):
    return np.where(np.abs(x) < 1e-300, 0.0, x)


def unit_vectors(n):
    """Of n components: along an axis, in a plane, between axes, or anywhere."""
    some = hnp.arrays(np.float64, n, elements=COMPONENTS).filter(lambda x: np.abs(x).max() > 0.1)
    return st.sampled_from([*np.eye(n), *-np.eye(n)]) | some.map(lambda x: flushed(x / np.linalg.norm(x)))


def near(angle):
    return st.builds(lambda sign, gap: angle + sign * gap, SIGNS, TINY)


AXES = unit_vectors(3)
ANGLES = TINY | near(np.pi / 2) | near(np.pi) | st.sampled_from([0.0, 2 * np.pi / 3, np.pi / 2, np.pi]) | st.floats(0, 6)
TURNS = st.builds(lambda axis, angle: flushed(axis * angle), AXES, ANGLES)  # rotation vectors, also beyond a half turn
SHORT = TURNS.map(lambda u: flushed(u / max(1.0, np.linalg.norm(u) / 3.13)))  # below a half turn
SMALL = st.builds(lambda axis, s: np.array([1.0, *(s * axis)]), AXES, TINY)  # next to the identity
HALF = st.builds(lambda axis, c: np.array([c, *axis]), AXES, TINY | st.just(0.0))  # next to a half turn, or there
UNIT = st.builds(lambda sign, q: flushed(sign * q / np.linalg.norm(q)), SIGNS, unit_vectors(4) | SMALL | HALF)
VECTORS = st.builds(lambda axis, n: axis * 10.0**n, AXES, st.integers(-100, 100))


# The algebra


@law
@given(UNIT, UNIT, UNIT)
def test_group_laws(p, q, r):
    pq = call(multiply, p, q)
    close(call(multiply, pq, r), call(multiply, p, call(multiply, q, r)), ulp=6 * PRODUCT)
    close(call(conjugate, pq), call(multiply, call(conjugate, q), call(conjugate, p)), ulp=2 * PRODUCT)
    close(call(multiply, q, call(conjugate, q)), ONE, ulp=2 * PRODUCT)
    for got, wanted in ((call(multiply, ONE, q), q), (call(multiply, q, ONE), q), (call(multiply, -p, q), -pq)):
        np.testing.assert_array_equal(got, wanted)


@law
@given(UNIT, UNIT, st.integers(-70, 70), st.integers(-70, 70))
def test_norm_is_multiplicative_and_every_quaternion_has_an_inverse(p, q, m, n):
    p, q, inverse = 10.0**m * p, 10.0**n * q, functools.partial(call, quaternion.inverse)
    size = np.linalg.norm(p) * np.linalg.norm(q)
    close(np.linalg.norm(call(multiply, p, q)), size, ulp=4 * PRODUCT, size=size)
    close(call(multiply, q, inverse(q)), ONE, ulp=3 * PRODUCT)
    close(inverse(call(multiply, p, q)), call(multiply, inverse(q), inverse(p)), ulp=6 * PRODUCT, size=1 / size)


@law
@given(SHORT)
def test_log_inverts_exp(u):
    """Relative to |u|, however small it is."""
    q, size = call(exp, u), min(1.0, np.linalg.norm(u))
    close(call(log, q), u, ulp=2 * EXP + LOG, size=size)
    close(call(log, -q), u, ulp=2 * EXP + LOG, size=size)
    close(np.linalg.norm(q), 1.0, ulp=EXP)
    np.testing.assert_array_equal(call(exp, -u), call(conjugate, q))


@law
@given(UNIT, UNIT)
def test_exp_inverts_log(p, q):
    """And the turn seen from elsewhere has the turned vector; where w is rounding its sign is open."""
    u = call(log, q)
    same_attitude(call(exp, u), q, ulp=EXP + LOG * np.pi / 2)
    np.testing.assert_array_equal(call(log, call(conjugate, q)), u if q[0] == 0 else -u)
    assume(abs(q[0]) > 100 * EPS)
    turned = call(multiply, call(multiply, p, q), call(conjugate, p))
    close(call(log, turned), call(rotate, p, u), ulp=6 * PRODUCT + LOG * np.pi)


@law
@given(AXES, ANGLES, ANGLES)
def test_turns_about_one_axis_add(axis, a, b):
    got = call(multiply, call(exp, a * axis), call(exp, -b * axis))
    close(got, call(exp, (a - b) * axis), ulp=3 * EXP + PRODUCT)
    close(call(quaternion.from_axis_angle, axis, a), call(exp, a * axis), ulp=EXP)


@law
@given(UNIT, UNIT, VECTORS, VECTORS)
def test_rotate_is_a_homomorphism_and_an_isometry(p, q, v, w):
    size, turned = np.linalg.norm(v), call(rotate, q, v)
    close(call(rotate, p, turned), call(rotate, call(multiply, p, q), v), ulp=3 * ROTATE + 4 * PRODUCT, size=size)
    close(call(rotate_inverse, q, turned), v, ulp=2 * ROTATE, size=size)
    close(call(rotate_inverse, q, v), call(rotate, call(conjugate, q), v), ulp=ROTATE, size=size)
    np.testing.assert_array_equal(call(rotate, -q, v), turned)
    other, scale = call(rotate, q, w), size * np.linalg.norm(w)
    close(turned @ other, v @ w, ulp=2 * ROTATE, size=scale)
    close(np.cross(turned, other), call(rotate, q, np.cross(v, w)), ulp=3 * ROTATE, size=scale)  # no reflection


@law
@given(UNIT, UNIT, VECTORS)
def test_matrices(p, q, v):
    matrix, size = call(quaternion.to_matrix, q), np.linalg.norm(v)
    close(matrix, scipy(q).as_matrix(), ulp=ROTATE)
    close(matrix @ matrix.T, np.eye(3), ulp=2 * ROTATE)
    close(np.linalg.det(matrix), 1.0, ulp=2 * ROTATE)
    close(matrix @ v, call(rotate, q, v), ulp=2 * ROTATE, size=size)
    close(call(quaternion.to_matrix, call(multiply, p, q)), call(quaternion.to_matrix, p) @ matrix, ulp=3 * ROTATE)
    np.testing.assert_array_equal(call(quaternion.to_matrix, call(conjugate, q)), matrix.T)
    back = call(quaternion.from_matrix, matrix)
    same_attitude(back, q, ulp=ROTATE)
    np.testing.assert_array_equal(back, call(quaternion.canonical, back))


@law
@given(SHORT)
def test_log_of_a_matrix_inverts_exp(u):
    """Through the matrix, too, no turn is too small to come back."""
    matrix = call(so3.exp, u)
    close(matrix, Rotation.from_rotvec(u).as_matrix(), ulp=2 * EXP + ROTATE)
    close(call(so3.log, matrix), u, ulp=2 * EXP + LOG + ROTATE, size=min(1.0, np.linalg.norm(u)))


def rate_of_exp(u, v):
    """2 q* dq and 2 dq q* along u + t v."""
    q, dq = jax.jvp(exp, (u,), (v,))
    return 2.0 * jnp.stack([multiply(conjugate(q), dq), multiply(dq, conjugate(q))])[:, 1:]


FRAMES = {(f, frame): functools.partial(getattr(so3, f), frame=frame) for f in ("dexp", "dexpinv") for frame in ("body", "world")}


@law
@given(TURNS, VECTORS)
def test_the_differential_of_exp_and_its_inverse(u, v):
    """Up to 6 rad, where the inverse multiplies by 3/sin 3 = 21."""
    size = np.linalg.norm(v)
    body, world = (call(FRAMES["dexp", frame], u, v) for frame in ("body", "world"))
    close(np.stack([body, world]), call(rate_of_exp, u, v), ulp=2 * EXP + 2 * PRODUCT, size=size)
    close(world, call(rotate, call(exp, u), body), ulp=2 * EXP + ROTATE, size=size)
    for frame in ("body", "world"):
        for first, second in (("dexp", "dexpinv"), ("dexpinv", "dexp")):
            close(call(FRAMES[second, frame], u, call(FRAMES[first, frame], u, v)), v, ulp=21 * 2 * EXP, size=size)


@law
@given(UNIT, UNIT, UNIT, st.floats(0, 1))
def test_slerp(p, q, r, t):
    """Both ends, constant speed, the same path backwards and seen from elsewhere; exactly a half turn apart the way is open."""
    distance, slerp = functools.partial(call, quaternion.distance), functools.partial(call, quaternion.slerp)
    here, angle = slerp(p, q, t), distance(p, q)
    same_attitude(slerp(p, q, 0.0), p, ulp=PRODUCT)
    same_attitude(slerp(p, q, 1.0), q, ulp=PRODUCT)
    close([distance(p, here), distance(here, q)], [t * angle, (1 - t) * angle], ulp=LOG * np.pi)
    close(np.linalg.norm(here), 1.0, ulp=PRODUCT)
    assume(abs(p @ q) > 100 * EPS)
    same_attitude(slerp(q, p, 1 - t), here, ulp=4 * PRODUCT)
    same_attitude(slerp(-p, q, t), here, ulp=4 * PRODUCT)
    same_attitude(slerp(call(multiply, r, p), call(multiply, r, q), t), call(multiply, r, here), ulp=6 * PRODUCT)
    same_attitude(slerp(call(multiply, p, r), call(multiply, q, r), t), call(multiply, here, r), ulp=6 * PRODUCT)


@law
@given(UNIT, UNIT, UNIT, st.sampled_from([None, 0.0, 1e-8, 0.5, 1.0]) | st.floats(0, 1))
def test_distance_is_a_metric_invariant_from_both_sides(p, q, r, t):
    """The triangle is also tried where it is flat, with its middle on the way between the others."""
    distance, ulp = functools.partial(call, quaternion.distance), LOG * np.pi
    if t is not None:
        q = call(quaternion.slerp, p, r, t)
    pq = distance(p, q)
    assert 0 <= pq <= np.pi * (1 + 4 * EPS)
    np.testing.assert_array_equal([distance(p, p), distance(p, -p)], 0.0)
    np.testing.assert_array_equal([distance(-p, q), distance(p, -q)], pq)
    close(distance(q, p), pq, ulp)
    assert distance(p, r) <= pq + distance(q, r) + ulp * EPS
    close(distance(call(multiply, r, p), call(multiply, r, q)), pq, ulp)
    close(distance(call(multiply, p, r), call(multiply, q, r)), pq, ulp)
    close(pq, (scipy(p).inv() * scipy(q)).magnitude(), ulp)
    close(call(quaternion.squared_distance, p, q), pq * pq, ulp)


@law
@given(UNIT)
def test_representations_come_back(q):
    same_attitude(call(quaternion.from_mrp, call(quaternion.to_mrp, q)), q, ulp=2 * PRODUCT)
    same_attitude(np.asarray(quaternion.from_axis_angle(*jit(quaternion.to_axis_angle)(q))), q, ulp=EXP + LOG * np.pi / 2)
    np.testing.assert_array_equal(call(quaternion.from_hoffmann, call(quaternion.to_hoffmann, q)), q)
    if abs(q[0]) > 1e-150:  # the square of the Gibbs vector is finite
        same_attitude(call(quaternion.from_gibbs, call(quaternion.to_gibbs, q)), q, ulp=2 * PRODUCT)


# Beside scipy: both orders of the components, all orders of the angles


@law
@given(UNIT, UNIT, VECTORS)
def test_both_orders_of_components(p, q, v):
    """Its (x, y, z, w) and ours: the same turns, the same products."""
    size, there = np.linalg.norm(v), Rotation.from_quat(call(to_xyzw, q))
    np.testing.assert_array_equal(call(from_xyzw, call(to_xyzw, q)), q)
    np.testing.assert_array_equal(call(to_xyzw, call(from_xyzw, q)), q)
    close(there.apply(v), call(rotate, q, v), ulp=2 * ROTATE, size=size)
    close(there.inv().apply(v), call(rotate_inverse, q, v), ulp=2 * ROTATE, size=size)
    same_attitude(call(from_xyzw, there.as_quat()), q, ulp=PRODUCT)
    same_attitude(call(from_xyzw, (Rotation.from_quat(call(to_xyzw, p)) * there).as_quat()), call(multiply, p, q), ulp=2 * PRODUCT)


def each_to_quaternion(angles):
    """(24, 3) -> (24, 4), each row in its own order."""
    return jnp.stack([euler.to_quaternion(a, order) for a, order in zip(angles, euler.ORDERS, strict=True)])


def each_from_quaternion(q):
    return jnp.stack([euler.from_quaternion(row, order) for row, order in zip(q, euler.ORDERS, strict=True)])


def scipy_from_euler(angles):
    turns = [Rotation.from_euler(order, a) for a, order in zip(angles, euler.ORDERS, strict=True)]
    return Rotation.concatenate(turns)


PROPER = np.array([order[0] == order[2] for order in euler.ORDERS])
LOW, HIGH = np.where(PROPER, 0.0, -np.pi / 2), np.where(PROPER, np.pi, np.pi / 2)
SIGNED = st.builds(lambda sign, angle: sign * angle, SIGNS, ANGLES)
THREE_ANGLES = st.tuples(SIGNED, SIGNED, SIGNED).map(np.array)  # the second in lock, of one kind or the other, every few times


@law
@given(THREE_ANGLES)
def test_angles_of_all_orders_to_quaternions(angles):
    angles = np.broadcast_to(angles, (24, 3))
    wanted = scipy_from_euler(angles).as_quat()
    got = call(each_to_quaternion, angles)
    same_attitude(got, call(from_xyzw, wanted), ulp=3 * EXP)
    same_attitude(call(to_xyzw, got), wanted, ulp=3 * EXP)


@pytest.mark.filterwarnings("ignore:Gimbal lock")
@law
@given(THREE_ANGLES | UNIT)
def test_angles_of_all_orders_from_quaternions(x):
    """In range, and the same attitude back, here and by scipy; away from lock the angles are those of scipy, too."""
    q = call(from_xyzw, scipy_from_euler(np.broadcast_to(x, (24, 3))).as_quat()) if x.size == 3 else np.broadcast_to(x, (24, 4))
    angles = call(each_from_quaternion, q)
    first, second, third = angles.T
    assert np.abs([first, third]).max() <= np.pi * (1 + EPS)
    assert ((LOW - 4 * EPS <= second) & (second <= HIGH + 4 * EPS)).all()
    same_attitude(call(each_to_quaternion, angles), q, ulp=5 * EXP)
    same_attitude(call(from_xyzw, scipy_from_euler(angles).as_quat()), q, ulp=5 * EXP)
    there = Rotation.from_quat(call(to_xyzw, q))
    theirs = np.stack([there[k].as_euler(order) for k, order in enumerate(euler.ORDERS)])
    gap = np.abs(np.where(PROPER, np.sin(second), np.cos(second)))[:, None]
    apart = (angles - theirs + np.pi) % (2 * np.pi) - np.pi
    assert (np.abs(apart) * gap)[gap[:, 0] > 1e-6].max(initial=0) <= 5 * EXP * EPS

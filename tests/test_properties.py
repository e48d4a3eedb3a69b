"""Tests of laws on generated inputs: the algebra, the conversions against scipy, and paths."""

import functools

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import some
from scipy.spatial.transform import Rotation

import jaxquat as jq
from examples.validation import problems
from examples.validation.orders import COMPOSED
from jaxquat import euler, quaternion, so3
from jaxquat.quaternion import (
    conjugate,
    exp,
    from_xyzw,
    log,
    multiply,
    rotate,
    rotate_inverse,
    to_xyzw,
)

EPS = float(np.finfo(np.float64).eps)
ONE = np.array([1.0, 0.0, 0.0, 0.0])
# These are the errors of one operation in ulp. They are relative to |p||q| for each component, to
# 1, to |u| and to |v|. The tolerances below are made of these.
PRODUCT, EXP, LOG, ROTATE = 2, 4, 8, 8
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


# Generated inputs lie on the symmetric positions, near them or anywhere. The distances from the
# symmetric positions go down to 1e-300, because XLA flushes subnormal numbers to zero.

TINY = (st.integers(1, 18) | st.integers(1, 300)).map(lambda n: 10.0**-n)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.7, 1e-3, -1e-9, 1e-17, 1e-300]
COMPONENTS = st.sampled_from(SPECIAL) | st.floats(-1, 1)
SIGNS = st.sampled_from([1.0, -1.0])


def flushed(x):
    return np.where(np.abs(x) < 1e-300, 0.0, x)


def unit_vectors(n):
    """Generate unit vectors of n components.

    They are along an axis, in a plane, between axes, or anywhere.
    """
    some = hnp.arrays(np.float64, n, elements=COMPONENTS).map(
        lambda x: x if np.abs(x).max() > 0.1 else np.eye(n)[-1] + x
    )
    return st.sampled_from([*np.eye(n), *-np.eye(n)]) | some.map(
        lambda x: flushed(x / np.linalg.norm(x))
    )


def near(angle):
    return st.builds(lambda sign, gap: angle + sign * gap, SIGNS, TINY)


AXES = unit_vectors(3)
ANGLES = (
    TINY
    | near(np.pi / 2)
    | near(np.pi)
    | st.sampled_from([0.0, 2 * np.pi / 3, np.pi / 2, np.pi])
    | st.floats(0, 6)
)
# these are rotation vectors, also beyond a half turn
TURNS = st.builds(lambda axis, angle: flushed(axis * angle), AXES, ANGLES)
# these are below a half turn
SHORT = TURNS.map(lambda u: flushed(u / max(1.0, np.linalg.norm(u) / 3.13)))
# these are near the identity
SMALL = st.builds(lambda axis, s: np.array([1.0, *(s * axis)]), AXES, TINY)
# these are at a half turn or near it
HALF = st.builds(lambda axis, c: np.array([c, *axis]), AXES, TINY | st.just(0.0))
UNIT = st.builds(
    lambda sign, q: flushed(sign * q / np.linalg.norm(q)), SIGNS, unit_vectors(4) | SMALL | HALF
)
VECTORS = st.builds(lambda axis, n: axis * 10.0**n, AXES, st.integers(-100, 100))


# These tests check the algebra.


@law
@given(UNIT, UNIT, UNIT)
def test_group_laws(p, q, r):
    pq = call(multiply, p, q)
    close(call(multiply, pq, r), call(multiply, p, call(multiply, q, r)), ulp=6 * PRODUCT)
    close(
        call(conjugate, pq), call(multiply, call(conjugate, q), call(conjugate, p)), ulp=2 * PRODUCT
    )
    close(call(multiply, q, call(conjugate, q)), ONE, ulp=2 * PRODUCT)
    for got, wanted in (
        (call(multiply, ONE, q), q),
        (call(multiply, q, ONE), q),
        (call(multiply, -p, q), -pq),
    ):
        np.testing.assert_array_equal(got, wanted)


@law
@given(UNIT, UNIT, st.integers(-70, 70), st.integers(-70, 70))
def test_norm_is_multiplicative(p, q, m, n):
    p, q = 10.0**m * p, 10.0**n * q
    size = np.linalg.norm(p) * np.linalg.norm(q)
    close(np.linalg.norm(call(multiply, p, q)), size, ulp=4 * PRODUCT, size=size)


@law
@given(SHORT)
def test_log_inverts_exp(u):
    """The error is relative to |u| for |u| below 1, also for the smallest |u|."""
    q, size = call(exp, u), min(1.0, np.abs(u).max())
    close(call(log, q), u, ulp=2 * EXP + LOG, size=size)
    close(call(log, -q), u, ulp=2 * EXP + LOG, size=size)
    close(np.linalg.norm(q), 1.0, ulp=EXP)
    np.testing.assert_array_equal(call(exp, -u), call(conjugate, q))


@law
@given(UNIT, UNIT)
def test_exp_inverts_log(p, q):
    """exp(log(q)) is the attitude q, and the log of p q p* is the log of q turned by p.

    The test skips the second law where w is only rounding, because the sign of w is then random.
    """
    u = call(log, q)
    same_attitude(call(exp, u), q, ulp=EXP + LOG * np.pi / 2)
    np.testing.assert_array_equal(call(log, call(conjugate, q)), u if q[0] == 0 else -u)
    if abs(q[0]) > 100 * EPS:
        turned = call(multiply, call(multiply, p, q), call(conjugate, p))
        close(call(log, turned), call(rotate, p, u), ulp=6 * PRODUCT + LOG * np.pi)


@law
@given(AXES, ANGLES, ANGLES)
def test_turns_about_one_axis_add(axis, a, b):
    got = call(multiply, call(exp, a * axis), call(exp, -b * axis))
    close(got, call(exp, (a - b) * axis), ulp=3 * EXP + PRODUCT)


@law
@given(UNIT, UNIT, VECTORS, VECTORS)
def test_rotate_is_a_homomorphism_and_an_isometry(p, q, v, w):
    size, turned = np.linalg.norm(v), call(rotate, q, v)
    close(
        call(rotate, p, turned),
        call(rotate, call(multiply, p, q), v),
        ulp=3 * ROTATE + 4 * PRODUCT,
        size=size,
    )
    close(call(rotate_inverse, q, turned), v, ulp=2 * ROTATE, size=size)
    close(call(rotate_inverse, q, v), call(rotate, call(conjugate, q), v), ulp=ROTATE, size=size)
    np.testing.assert_array_equal(call(rotate, -q, v), turned)
    other, scale = call(rotate, q, w), size * np.linalg.norm(w)
    close(turned @ other, v @ w, ulp=2 * ROTATE, size=scale)
    # a rotation is no reflection
    close(np.cross(turned, other), call(rotate, q, np.cross(v, w)), ulp=3 * ROTATE, size=scale)


@law
@given(UNIT, UNIT, VECTORS)
def test_matrices(p, q, v):
    matrix, size = call(quaternion.to_matrix, q), np.linalg.norm(v)
    close(matrix, scipy(q).as_matrix(), ulp=ROTATE)
    close(matrix @ matrix.T, np.eye(3), ulp=2 * ROTATE)
    close(np.linalg.det(matrix), 1.0, ulp=2 * ROTATE)
    close(matrix @ v, call(rotate, q, v), ulp=2 * ROTATE, size=size)
    close(
        call(quaternion.to_matrix, call(multiply, p, q)),
        call(quaternion.to_matrix, p) @ matrix,
        ulp=3 * ROTATE,
    )
    np.testing.assert_array_equal(call(quaternion.to_matrix, call(conjugate, q)), matrix.T)
    back = call(quaternion.from_matrix, matrix)
    same_attitude(back, q, ulp=ROTATE)
    np.testing.assert_array_equal(back, call(quaternion.canonical, back))


@law
@given(SHORT)
def test_log_of_a_matrix_inverts_exp(u):
    """A turn also comes back through its matrix, with an error relative to |u| for small |u|."""
    matrix = call(so3.exp, u)
    close(matrix, Rotation.from_rotvec(u).as_matrix(), ulp=2 * EXP + ROTATE)
    close(call(so3.log, matrix), u, ulp=2 * EXP + LOG + ROTATE, size=min(1.0, np.abs(u).max()))


def rate_of_exp(u, v):
    """Return 2 q* dq and 2 dq q* along u + t v."""
    q, dq = jax.jvp(exp, (u,), (v,))
    return 2.0 * jnp.stack([multiply(conjugate(q), dq), multiply(dq, conjugate(q))])[:, 1:]


FRAMES = {
    (f, frame): functools.partial(getattr(so3, f), frame=frame)
    for f in ("dexp", "dexpinv")
    for frame in ("body", "world")
}


@law
@given(TURNS, VECTORS)
def test_the_differential_of_exp_and_its_inverse(u, v):
    """The laws hold up to 6 rad, where the inverse multiplies errors by 3/sin 3 = 21."""
    size = np.linalg.norm(v)
    body, world = (call(FRAMES["dexp", frame], u, v) for frame in ("body", "world"))
    close(np.stack([body, world]), call(rate_of_exp, u, v), ulp=2 * EXP + 2 * PRODUCT, size=size)
    close(world, call(rotate, call(exp, u), body), ulp=2 * EXP + ROTATE, size=size)
    for frame in ("body", "world"):
        for first, second in (("dexp", "dexpinv"), ("dexpinv", "dexp")):
            close(
                call(FRAMES[second, frame], u, call(FRAMES[first, frame], u, v)),
                v,
                ulp=21 * 2 * EXP,
                size=size,
            )


@law
@given(UNIT, UNIT, UNIT, st.floats(0, 1))
def test_slerp(p, q, r, t):
    """Slerp has the right ends, a constant speed, and the same path backwards and in other axes.

    At exactly a half turn the path may go in either direction.
    """
    distance, slerp = (
        functools.partial(call, quaternion.distance),
        functools.partial(call, quaternion.slerp),
    )
    here, angle = slerp(p, q, t), distance(p, q)
    same_attitude(slerp(p, q, 0.0), p, ulp=2 * PRODUCT)
    same_attitude(slerp(p, q, 1.0), q, ulp=2 * PRODUCT)
    close([distance(p, here), distance(here, q)], [t * angle, (1 - t) * angle], ulp=LOG * np.pi)
    close(np.linalg.norm(here), 1.0, ulp=PRODUCT)
    if abs(p @ q) > 100 * EPS:
        same_attitude(slerp(q, p, 1 - t), here, ulp=4 * PRODUCT)
        same_attitude(slerp(-p, q, t), here, ulp=4 * PRODUCT)
        same_attitude(
            slerp(call(multiply, r, p), call(multiply, r, q), t),
            call(multiply, r, here),
            ulp=6 * PRODUCT,
        )
        same_attitude(
            slerp(call(multiply, p, r), call(multiply, q, r), t),
            call(multiply, here, r),
            ulp=6 * PRODUCT,
        )


@law
@given(UNIT, UNIT, UNIT, st.sampled_from([None, 0.0, 1e-8, 0.5, 1.0]) | st.floats(0, 1))
def test_distance_is_a_metric_invariant_from_both_sides(p, q, r, t):
    """The distance satisfies the laws of a metric and is invariant from both sides.

    Some of the triangles are flat, with the middle point on the path between the other two.
    """
    distance, ulp = functools.partial(call, quaternion.distance), LOG * np.pi
    if t is not None:
        q = call(quaternion.slerp, p, r, t)
    pq = distance(p, q)
    assert 0 <= pq <= np.pi * (1 + 4 * EPS)
    np.testing.assert_array_equal([distance(p, p), distance(p, -p)], 0.0)
    # At a half turn the sign chooses between two shortest ways, which round apart.
    np.testing.assert_allclose([distance(-p, q), distance(p, -q)], pq, rtol=2 * EPS, atol=0)
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
    axis, angle = jit(quaternion.to_axis_angle)(q)
    same_attitude(call(exp, angle * axis), q, ulp=EXP + LOG * np.pi / 2)
    np.testing.assert_array_equal(
        call(quaternion.from_hoffmann, call(quaternion.to_hoffmann, q)), q
    )


# These tests compare with scipy: both orders of the components and all orders of the angles.


@law
@given(UNIT, UNIT, VECTORS)
def test_both_orders_of_components(p, q, v):
    """The (x, y, z, w) of scipy and our (w, x, y, z) give the same turns and the same products."""
    size, there = np.linalg.norm(v), Rotation.from_quat(call(to_xyzw, q))
    np.testing.assert_array_equal(call(from_xyzw, call(to_xyzw, q)), q)
    np.testing.assert_array_equal(call(to_xyzw, call(from_xyzw, q)), q)
    close(there.apply(v), call(rotate, q, v), ulp=2 * ROTATE, size=size)
    close(there.inv().apply(v), call(rotate_inverse, q, v), ulp=2 * ROTATE, size=size)
    same_attitude(call(from_xyzw, there.as_quat()), q, ulp=PRODUCT)
    same_attitude(
        call(from_xyzw, (Rotation.from_quat(call(to_xyzw, p)) * there).as_quat()),
        call(multiply, p, q),
        ulp=2 * PRODUCT,
    )


@jax.vmap
def each_to_quaternion(angles):
    """Convert angles (n, 24, 3) to quaternions (n, 24, 4), each column in its own order."""
    return jnp.stack(
        [euler.to_quaternion(a, order) for a, order in zip(angles, euler._ORDERS, strict=True)]
    )


@jax.vmap
def each_from_quaternion(q):
    return jnp.stack(
        [euler.from_quaternion(row, order) for row, order in zip(q, euler._ORDERS, strict=True)]
    )


def scipy_from_euler(angles):
    """The quaternions (n, 24, 4) of scipy, in its order of components."""
    columns = zip(np.moveaxis(angles, 1, 0), euler._ORDERS, strict=True)
    return np.stack([Rotation.from_euler(order, a).as_quat() for a, order in columns], axis=1)


def in_all_orders(rows):
    """Repeat each of n rows for the 24 orders."""
    rows = np.array(rows)
    return np.broadcast_to(rows[:, None], (len(rows), 24, rows.shape[-1]))


PROPER = np.array([order[0] == order[2] for order in euler._ORDERS])
LOW, HIGH = np.where(PROPER, 0.0, -np.pi / 2), np.where(PROPER, np.pi, np.pi / 2)
SIGNED = st.builds(lambda sign, angle: sign * angle, SIGNS, ANGLES)
# the second angle is often in gimbal lock of one of the two kinds
THREE_ANGLES = st.tuples(SIGNED, SIGNED, SIGNED).map(np.array)


@pytest.mark.slow
@law
@given(st.tuples(*[THREE_ANGLES] * 4))
def test_angles_of_all_orders_to_quaternions(angles):
    angles = in_all_orders(angles)
    wanted = scipy_from_euler(angles)
    got = call(each_to_quaternion, angles)
    same_attitude(got, call(from_xyzw, wanted), ulp=3 * PRODUCT)
    same_attitude(call(to_xyzw, got), wanted, ulp=3 * PRODUCT)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Gimbal lock")
@law
@given(st.tuples(*[THREE_ANGLES] * 2), st.tuples(*[UNIT] * 2))
def test_angles_of_all_orders_from_quaternions(angles, q):
    """The angles are in range and give the same attitude back, here and by scipy.

    Away from gimbal lock they also equal the angles of scipy.
    """
    of_angles = np.roll(scipy_from_euler(in_all_orders(angles)), 1, axis=-1)
    q = np.concatenate([of_angles, in_all_orders(q)])
    angles = call(each_from_quaternion, q)
    first, second, third = np.moveaxis(angles, -1, 0)
    assert np.abs([first, third]).max() <= np.pi * (1 + EPS)
    assert (np.maximum(LOW - second, second - HIGH) <= 4 * EPS).all()
    again, there = call(each_to_quaternion, angles), call(to_xyzw, q)
    same_attitude(again, q, ulp=3 * EXP)
    same_attitude(scipy_from_euler(angles), there, ulp=3 * EXP)
    theirs = np.stack(
        [Rotation.from_quat(there[:, k]).as_euler(order) for k, order in enumerate(euler._ORDERS)],
        axis=1,
    )
    gap = np.abs(np.where(PROPER, np.sin(second), np.cos(second)))[..., None]
    apart = (angles - theirs + np.pi) % (2 * np.pi) - np.pi
    assert (np.abs(apart) * gap)[gap[..., 0] > 1e-6].max(initial=0) <= 3 * EXP * EPS


# These tests check paths. A problem is a dict of numbers for a body, its start and a torque. The
# torque depends on time, on attitude and, where the scheme allows it, on the rate.

NAMES = list(jq.schemes.SCHEMES)
OF_ONE_STEP = [name for name in NAMES if name not in COMPOSED]
QUICK = ("rkmk2", "zhao", "no_squish", "lgvi")
SPLITTING = {name for name in NAMES if name.startswith(("no_squish", "symmetric_top"))}
REVERSIBLE = {name for name in NAMES if jq.schemes.SCHEMES[name].reversible}
STEPS = 10
# This is the difference in ulp of two computations of a path. A step has at most ten sub-steps, and
# each computation rounds each of them by one ulp.
ROUNDING = 20 * STEPS
CONJUGATE = np.array([1.0, -1.0, -1.0, -1.0])
ORBIT = np.array([0.5, 0.5, 0.5, 0.5])  # it turns x to y, y to z and z to x
path_law = settings(deadline=None, max_examples=20)


def hamilton(p, q):
    (pw, pv), (qw, qv) = ((x[..., :1], x[..., 1:]) for x in np.broadcast_arrays(p, q))
    return np.concatenate(
        [pw * qw - np.sum(pv * qv, -1, keepdims=True), pw * qv + qw * pv + np.cross(pv, qv)], -1
    )


def turned(q, v):
    return hamilton(hamilton(q, np.concatenate([np.zeros_like(v[..., :1]), v], -1)), q * CONJUGATE)[
        ..., 1:
    ]


def matrix_of(q):
    return turned(q, np.eye(3)).T


def problem_from(x):
    rotation = matrix_of(x["axes"])
    inertia = (rotation * x["moments"]) @ rotation.T
    return {
        key: np.asarray(value)
        for key, value in (x | {"inertia": 0.5 * (inertia + inertia.T)}).items()
    }


SIZES = {"omega": 3.0, "pull": 0.5, "arm": 0.5, "down": 1.0, "thrust": 0.5}


@st.composite
def problem_of(draw, name):
    """Draw a problem with principal moments from .4 to 2.

    Two moments are equal for the scheme that needs a symmetric body.
    """
    vector = hnp.arrays(np.float64, 3, elements=COMPONENTS)
    # these are second moments of mass, so the inertia is physical
    second = 0.6 + 0.4 * draw(vector)
    if name == "symmetric_top_bm4":
        second[1] = second[0]
    x = {key: size * draw(vector) for key, size in SIZES.items()} | {
        "moments": second.sum() - second
    }
    x |= {
        "q": draw(UNIT),
        "axes": draw(UNIT),
        "rate": 0.5 * draw(hnp.arrays(np.float64, (3, 3), elements=COMPONENTS)),
    }
    x |= {"frequency": draw(st.floats(-3, 3)), "phase": draw(st.floats(-3, 3))}
    return problem_from(x | {"t0": draw(st.floats(-1, 1)), "dt": draw(st.floats(0.01, 0.04))})


def torque_of(name):
    """Return the torque of a problem.

    It is the sum of an oscillating pull fixed in the world, a weight at an arm of the body, and an
    oscillating thrust fixed in the body. A term linear in the rate follows where the scheme allows
    it.
    """
    scheme = jq.schemes.SCHEMES[name]

    def torque(t, state, x):
        # rotate is a rotation only for a unit q
        q = state.q if "norm" in scheme.conserves else quaternion.normalize(state.q)
        phase = x["frequency"] * t + x["phase"]
        swing = rotate_inverse(q, jnp.cos(phase) * x["pull"])
        tau = (
            swing + jnp.cross(x["arm"], rotate_inverse(q, x["down"])) + jnp.sin(phase) * x["thrust"]
        )
        return tau + x["rate"] @ state.omega if scheme.torques == "any" else tau

    return torque


def body_of(name, x):
    """Return the body with the given principal axes for splitting schemes, else by its matrix."""
    return (
        jq.Body.from_principal(x["moments"], x["axes"])
        if name in SPLITTING
        else jq.Body(x["inertia"])
    )


def rollout(name, x, start):
    grid = jq.grid(x["t0"], x["dt"], STEPS)
    return jq.rollout(
        jq.schemes.SCHEMES[name], body_of(name, x), torque_of(name), start, grid, x
    ).state


@functools.cache
def compiled(name):
    return jax.jit(functools.partial(rollout, name))


def start_of(name, x):
    return problems.start_of(name, x["q"], x["omega"])


def path(name, x, start=None):
    """Return the states at STEPS + 1 times. Under jit a step may be negative."""
    return jax.tree.map(
        np.asarray, compiled(name)(x, start_of(name, x) if start is None else start)
    )


def close_paths(got, q, omega, ulp=ROUNDING):
    close(got.q, q, ulp)
    close(got.omega, omega, ulp, size=max(1.0, np.abs(omega).max()))


# These functions transform a problem and its path to other axes.


def in_the_world(p, x):
    """Turn the body and the forces fixed in the world by p."""
    return x | {
        "q": hamilton(p, x["q"]),
        "pull": turned(p, x["pull"]),
        "down": turned(p, x["down"]),
    }


def in_body_axes(r, x):
    """Take new body axes with ``v_old = r v_new r*``."""
    vectors = {key: turned(r * CONJUGATE, x[key]) for key in ("omega", "arm", "thrust")}
    rate = matrix_of(r).T @ x["rate"] @ matrix_of(r)
    return problem_from(
        x
        | vectors
        | {"q": hamilton(x["q"], r), "axes": hamilton(r * CONJUGATE, x["axes"]), "rate": rate}
    )


def permuted(_, x):
    """Take the new body axes (y, z, x) and rename the principal axes in the same way."""
    vectors = {key: np.roll(x[key], -1) for key in ("omega", "arm", "thrust", "moments")}
    tensors = {key: np.roll(x[key], (-1, -1), (0, 1)) for key in ("inertia", "rate")}
    axes = hamilton(hamilton(ORBIT * CONJUGATE, x["axes"]), ORBIT)
    return x | vectors | tensors | {"q": hamilton(x["q"], ORBIT), "axes": axes}


VIEWS = {
    "world": (in_the_world, lambda p, q, omega: (hamilton(p, q), omega)),
    "axes": (in_body_axes, lambda r, q, omega: (hamilton(q, r), turned(r * CONJUGATE, omega))),
    "permutation": (
        permuted,
        lambda _, q, omega: (hamilton(q, ORBIT), np.roll(omega, -1, axis=-1)),
    ),
}
SINGLED_OUT = [  # the results of these schemes depend on the axes
    # half_quat assigns one component of Q after the other, each from the new ones before it
    *(("half_quat", view) for view in VIEWS),
    # full_quat overwrites parts of matrices in body axes
    *(("full_quat", view) for view in ("axes", "permutation")),
    # these turn about the principal axes in the order of their names
    *((name, "permutation") for name in ("no_squish", "no_squish_kl6")),
]


def tied(moments):
    """Return whether rounding decides which two moments are closest.

    Then rounding also decides about which axis symmetric_top splits.
    """
    gaps = np.sort(np.abs(moments - np.roll(moments, 1)))
    return gaps[1] - gaps[0] < 1e-5 < gaps[0]


@pytest.mark.parametrize("name", some(OF_ONE_STEP, ("zhao", "lgvi")))
@path_law
@given(data=st.data(), turn=UNIT)
def test_a_path_seen_from_elsewhere(name, data, turn):
    """A path in other axes is the same path.

    Turning the world turns the path. Turning or permuting the body axes does the same to the axes
    of the path. The start -q moves like q.
    """
    x = data.draw(problem_of(name))
    wanted, opposite = path(name, x), path(name, x | {"q": -x["q"]})
    np.testing.assert_array_equal(opposite.q, -wanted.q)
    np.testing.assert_array_equal(opposite.omega, wanted.omega)
    for view, (of_problem, of_path) in VIEWS.items():
        if (name, view) in SINGLED_OUT or (
            view == "permutation" and name in SPLITTING and tied(x["moments"])
        ):
            continue
        close_paths(path(name, of_problem(turn, x)), *of_path(turn, wanted.q, wanted.omega))


@pytest.mark.parametrize("name", some(NAMES, QUICK))
@path_law
@given(data=st.data(), shift=st.floats(-1, 1))
def test_a_path_in_other_time(name, data, shift):
    """A path in another time is the same path.

    The first law takes another origin of time. The second reverses the time, the rates and all that
    is odd in the rates. The third runs a reversible scheme back with -dt.
    """
    x = data.draw(problem_of(name))
    wanted = path(name, x)
    later = path(name, x | {"t0": x["t0"] + shift, "phase": x["phase"] - shift * x["frequency"]})
    close_paths(later, wanted.q, wanted.omega)
    # full_quat writes a one into a corner of a matrix that is odd in the rate
    if name != "full_quat":
        reverse = path(
            name, x | {key: -x[key] for key in ("t0", "dt", "frequency", "omega", "rate")}
        )
        np.testing.assert_array_equal(reverse.q, wanted.q)
        np.testing.assert_array_equal(reverse.omega, -wanted.omega)
    if name in REVERSIBLE:
        back = x | {"t0": x["t0"] + STEPS * x["dt"], "dt": -x["dt"]}
        end = jax.tree.map(lambda leaf: leaf[-1], wanted)
        close_paths(path(name, back, end), wanted.q[::-1], wanted.omega[::-1])


# These laws hold to the order of the scheme.


def some_problems():
    rng = np.random.default_rng(3)
    for _ in range(12):
        second = rng.uniform(0.2, 1.0, 3)
        x = {key: size * rng.uniform(-0.5, 0.5, 3) for key, size in SIZES.items()} | {
            "moments": second.sum() - second
        }
        q, axes = rng.normal(size=(2, 4))
        x |= {
            "q": q / np.linalg.norm(q),
            "axes": axes / np.linalg.norm(axes),
            "rate": rng.uniform(-0.5, 0.5, (3, 3)),
        }
        yield problem_from(
            x | dict(zip(("frequency", "phase", "t0"), rng.uniform(-3, 3, 3), strict=True))
        )


def moved(name, x, start, t0, t1, steps):
    dt = (t1 - t0) / steps
    for k in range(0, steps, STEPS):
        start = jax.tree.map(
            lambda leaf: leaf[-1], path(name, x | {"t0": t0 + k * dt, "dt": dt}, start)
        )
    return start


def assert_slopes(errors_of, order):
    """Assert the order of the errors (q, omega) between 20 and 40 steps per second."""
    coarse, fine = (
        np.sqrt(np.mean(np.square([errors_of(x, steps) for x in some_problems()]), axis=0))
        for steps in (20, 40)
    )
    slopes = np.log2(coarse / fine)
    assert np.abs(slopes - order).max() < 0.15, slopes


@pytest.mark.parametrize("name", some((n for n in NAMES if n not in REVERSIBLE), QUICK))
def test_back_by_negative_steps(name):
    """A path and its way back have one order more where the order of the scheme is even.

    The leading error of a step and of the step back then cancel.
    """

    def errors(x, steps):
        far = moved(name, x, start_of(name, x), x["t0"], x["t0"] + 1, steps)
        back = moved(name, x, far, x["t0"] + 1, x["t0"], steps)
        return call(quaternion.distance, x["q"], back.q), np.linalg.norm(back.omega - x["omega"])

    order = jq.schemes.SCHEMES[name].order
    assert_slopes(errors, order + 1 - order % 2)


@pytest.mark.parametrize(
    ("name", "view"),
    [
        pytest.param(*case, marks=() if case[0] in QUICK else pytest.mark.slow)
        for case in SINGLED_OUT
    ],
)
def test_a_path_seen_from_elsewhere_to_the_order_of_the_scheme(name, view):
    """The difference of two paths in other axes has the order of the scheme.

    full_quat has order 0: it converges to another motion, which depends on the body axes.
    """
    of_problem, of_path = VIEWS[view]

    def errors(x, steps):
        end, other = (
            moved(name, y, start_of(name, y), x["t0"], x["t0"] + 1, steps)
            for y in (x, of_problem(problems.TILTED, x))
        )
        q, omega = of_path(problems.TILTED, end.q, end.omega)
        return call(quaternion.distance, q, other.q), np.linalg.norm(other.omega - omega)

    assert_slopes(errors, jq.schemes.SCHEMES[name].order)


# These tests compute the same path in another way.


@pytest.mark.parametrize("name", some(OF_ONE_STEP, ("rkmk2", "no_squish")))
@path_law
@given(data=st.data())
def test_a_path_in_float32_is_that_of_float64(name, data):
    """Both paths start from the same float32 numbers."""
    x = {key: value.astype(np.float32) for key, value in data.draw(problem_of(name)).items()}
    got = path(name, x)
    assert {leaf.dtype for leaf in jax.tree.leaves(got)} == {np.dtype(np.float32)}
    if not (name in SPLITTING and tied(x["moments"])):
        wanted = path(name, {key: value.astype(np.float64) for key, value in x.items()})
        close_paths(got, wanted.q, wanted.omega, ulp=ROUNDING * 2**29)


@functools.cache
def compiled_for_many(name):
    return jax.jit(jax.vmap(functools.partial(rollout, name)))


FAMILIES = [
    "zhao",
    "lgvi",
    "rkmk3",
    "formulation1",
    "full_quat",
    "symmetric_top",
    "lie_midpoint",
]


@pytest.mark.parametrize("name", some(FAMILIES, ("lgvi",)))
@path_law
@given(data=st.data())
def test_paths_under_vmap(name, data):
    alone = [data.draw(problem_of(name)) for _ in range(3)]
    starts = [start_of(name, x) for x in alone]
    together = compiled_for_many(name)(
        *jax.tree.map(lambda *leaves: np.stack(leaves), *zip(alone, starts, strict=True))
    )
    for k, x in enumerate(alone):
        wanted = path(name, x)
        close_paths(jax.tree.map(lambda leaf, k=k: leaf[k], together), wanted.q, wanted.omega)


@pytest.mark.parametrize("name", some(NAMES, ("zhao",)))
@settings(deadline=None, max_examples=3)
@given(data=st.data())
def test_one_step_without_jit(name, data):
    x = data.draw(problem_of(name))
    first = jax.tree.map(lambda leaf: leaf[1], path(name, x))
    got = jq.schemes.SCHEMES[name](
        body_of(name, x), torque_of(name), x["t0"], start_of(name, x), x["dt"], x
    )
    close_paths(got, first.q, first.omega)

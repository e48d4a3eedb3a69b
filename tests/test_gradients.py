"""Tests of the VALUES of first and second derivatives, in both modes and both precisions.

The references are the definitions in a hundred digits. The tests differentiate a function of an
attitude in the tangent: f(q0 exp(v)) by v at 0. A case compiles once for each dtype and mode, for
all its points together. The modes give the value, the Jacobian forward and reverse, and the second
derivative along given directions, forward over reverse and reverse over forward.

The unit of an error is (machine epsilon) x (scale). The scale is the largest entry of that
derivative at that point. It is at least 1, the size of the terms of the sums there, unless the
point gives another least scale. An error may have BOUND such units, which are a few dozen
roundings.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import gmpy2
import jax
import jax.numpy as jnp
import multiprecision as exact
import numpy as np
import pytest
from jax import Array
from multiprecision import ZERO, mpfr

import jaxquat as jq
from jaxquat import euler, quaternion, so3
from jaxquat.schemes import tableaus
from jaxquat.schemes.munthe_kaas import MuntheKaas

BOUND = 32
MODES = {
    "reverse": ("value", "reverse", "forward over reverse"),
    "forward": ("forward", "reverse over forward"),
}
QUANTITIES = MODES | {"first": ("value", "reverse")}  # the last compiles in half the time
ORDER = {
    "value": 0,
    "reverse": 1,
    "forward over reverse": 2,
    "forward": 1,
    "reverse over forward": 2,
}
DTYPES = {"float32": jnp.float32, "float64": jnp.float64}

# These angles lie on both sides of every switch. The series switch at an angle of 4, and
# from_matrix switches between its rows below pi.
SMALL = (0.0, 1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
LARGE = (0.5, 1.0, 1.999, 2.0, 2.001, 3.0, math.pi - 1e-3, math.pi - 1e-6)
BEYOND = (3.999, 4.0, 4.001, 5.5)  # only functions of rotation vectors take these
AXES = ((0.48, -0.6, 0.64), (0.0, 0.0, 1.0))
IDENTITY, MINUS_IDENTITY, GENERIC = (
    (1.0, 0.0, 0.0, 0.0),
    (-1.0, 0.0, 0.0, 0.0),
    (0.3, -0.5, 0.7, 0.4123105625617661),
)


class Point(NamedTuple):
    """A point has the numbers where the tests evaluate a case, and the least scales there.

    The three scales belong to the value, the first derivative and the second derivative.
    """

    base: Sequence[Any]
    scale: tuple[float, float, float] = (1.0, 1.0, 1.0)


class Case(NamedTuple):
    """A case compares ``library(base, e)`` with ``reference(base, e)`` at e = 0 in R^size.

    Both return a flat vector.
    """

    library: Callable[[Array, Array], Array]
    reference: Callable[[list, list], list]
    size: int
    points: Sequence[Point]
    directions: Any = None  # (k, size), for jvp and the second derivative; None means all of them
    # the sizes of the groups of outputs that share a scale; () is one group
    groups: tuple[int, ...] = ()
    jit: bool = True
    amplification: float = 1.0  # the method multiplies the roundings of its sums by this


def attitude(angle: float, axis: Sequence[float], start: Sequence[float] = IDENTITY) -> list:
    """Return ``start exp(angle axis)`` in many digits; the tests round it to the dtype once."""
    return exact.moved(exact.vector(start), exact.scaled(angle, exact.vector(axis)))


def negated(q: Sequence[Any]) -> list:
    return [-x for x in q]


def turned(q: Array, v: Array) -> Array:
    return quaternion.multiply(q, quaternion.exp(v))


def parts(array: Any, *sizes: int) -> list:
    """Cut a vector into pieces of these sizes; size 0 gives one number by itself."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append(array[start : start + size] if size else array[start])
        start += size or 1
    return pieces


def rows(values: Any, width: int) -> list:
    return [values[i : i + width] for i in range(0, len(values), width)]


CASES: dict[str, Case] = {}


# These cases test the exponential, the logarithm and the differential of the exponential.

CASES["exp"] = Case(
    lambda u, e: quaternion.exp(u + e),
    lambda u, e: exact.exp(exact.add(u, e)),
    3,
    [Point(exact.scaled(angle, axis)) for axis in AXES for angle in (*SMALL, *LARGE, *BEYOND)],
)

CASES["expm1"] = Case(
    lambda u, e: quaternion.expm1(u + e),
    lambda u, e: exact.expm1(exact.add(u, e)),
    3,
    [Point(exact.scaled(angle, axis)) for axis in AXES for angle in (*SMALL, *LARGE, *BEYOND)],
)

CASES["log"] = Case(
    lambda q, v: quaternion.log(turned(q, v)),
    lambda q, v: exact.log(exact.moved(q, v)),
    3,
    [
        # a small value is accurate relative to itself
        Point(sign(attitude(angle, axis)), (0.0, 1.0, 1.0))
        for axis in AXES
        for angle in (*SMALL, *LARGE)
        for sign in (list, negated)
    ],
)

for name, library, reference in (
    ("dexp", so3.dexp, exact.dexp),
    ("dexpinv", so3.dexpinv, exact.dexpinv),
):
    CASES[name] = Case(
        lambda base, e, f=library: f(base[:3] + e[:3], base[3:] + e[3:]),
        lambda base, e, f=reference: f(exact.add(base[:3], e[:3]), exact.add(base[3:], e[3:])),
        6,
        [
            Point([*exact.scaled(angle, axis), 0.3, -0.8, 0.5])
            for axis in AXES
            for angle in (*SMALL, *LARGE, *BEYOND)
        ],
    )


# These cases test functions of attitudes.

CASES["rotate"] = Case(
    lambda base, e: quaternion.rotate(turned(base[:4], e[:3]), base[4:] + e[3:]),
    lambda base, e: exact.rotate(exact.moved(base[:4], e[:3]), exact.add(base[4:], e[3:])),
    6,
    [
        Point([*q, 0.3, -0.8, 0.5])
        for q in (
            *(attitude(angle, axis) for axis in AXES for angle in (*SMALL, *LARGE)),
            MINUS_IDENTITY,
            GENERIC,
        )
    ],
)


def distances(base: Array, e: Array) -> Array:
    p, q = turned(base[:4], e[:3]), turned(base[4:], e[3:])
    return jnp.stack([quaternion.squared_distance(p, q), quaternion.distance(p, q)])


def exact_distances(base: list, e: list) -> list:
    """Return the squared distance and the distance.

    The distance has no derivative where the attitudes coincide. There the library defines the
    distance and its derivatives as 0.
    """
    square = exact.squared_distance(exact.moved(base[:4], e[:3]), exact.moved(base[4:], e[3:]))
    coincident = base[:4] in (base[4:], negated(base[4:]))
    return [square, ZERO if coincident else gmpy2.sqrt(square)]


CASES["distances"] = Case(
    distances,
    exact_distances,
    6,
    [
        Point([*attitude(0.0, axis, p), *sign(attitude(angle, axis, p))])
        for p, sign in ((IDENTITY, list), (MINUS_IDENTITY, negated), (GENERIC, list))
        for axis in AXES
        for angle in (*SMALL, *LARGE)
    ],
    groups=(1, 1),
)

CASES["slerp"] = Case(
    lambda base, e: quaternion.slerp(
        turned(base[:4], e[:3]), turned(base[4:8], e[3:6]), base[8] + e[6]
    ),
    lambda base, e: exact.slerp(
        exact.moved(base[:4], e[:3]), exact.moved(base[4:8], e[3:6]), base[8] + e[6]
    ),
    7,
    [
        Point([*p, *sign(attitude(angle, axis, p)), t])
        for p, sign, t in (
            (IDENTITY, list, 0.3),
            (GENERIC, list, 0.75),
            (GENERIC, negated, 0.5),
            (MINUS_IDENTITY, negated, 0.0),
        )
        for axis in AXES
        for angle in (0.0, 1e-12, 1e-6, 1e-3, 1.0, 2.001, math.pi - 1e-6)
    ],
)

CASES["from_matrix"] = Case(
    lambda q, v: quaternion.from_matrix(quaternion.to_matrix(turned(q, v))),
    lambda q, v: exact.canonical(exact.moved(q, v)),
    3,
    [
        Point(attitude(angle, axis))
        for axis in (*AXES, (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (-0.8, 0.36, 0.48))
        for angle in (0.0, 1e-9, 1e-4, 1e-1, 1.0, 2.0, 2.2, 3.0, math.pi - 1e-3, math.pi - 1e-6)
    ],
)


# These cases test the estimates. The three smaller eigenvalues coincide for identical attitudes
# and for orthonormal directions that fit exactly.

SPREAD = ((0.2, -0.1, 0.3), (-0.3, 0.2, 0.1), (0.1, 0.4, -0.2))
NONE = ((0.0, 0.0, 0.0),) * 3


def mean(base: Array, e: Array) -> Array:
    attitudes = [turned(q, v) for q, v in zip(rows(base[:12], 4), rows(e[:9], 3), strict=True)]
    return quaternion.mean(jnp.stack(attitudes), base[12:] + e[9:])


def exact_mean(base: list, e: list) -> list:
    attitudes = [exact.moved(q, v) for q, v in zip(rows(base[:12], 4), rows(e[:9], 3), strict=True)]
    return exact.mean(attitudes, exact.add(base[12:], e[9:]))


CASES["mean"] = Case(
    mean,
    exact_mean,
    12,
    [
        Point(
            exact.flat(
                *(
                    sign(exact.moved(exact.vector(p), exact.vector(v)))
                    for v, sign in zip(spread, signs, strict=True)
                ),
                weights,
            )
        )
        for p in (IDENTITY, GENERIC)
        for spread in (NONE, SPREAD)
        for signs, weights in (
            ((list, list, list), (1.0, 1.0, 1.0)),
            ((list, negated, list), (0.5, 2.0, 1.0)),
        )
    ],
)

FRAME, SKEW = (
    ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    ((1.0, 0.2, -0.3), (0.1, 0.9, 0.4), (-0.5, 0.3, 0.8)),
)


def some_directions(size: int, count: int) -> np.ndarray:
    return np.cos(1.0 + np.arange(count * size)).reshape(count, size)


CASES["from_vectors"] = Case(
    lambda base, e: quaternion.from_vectors(*(base + e)[:18].reshape(2, 3, 3), (base + e)[18:]),
    lambda base, e: exact.from_vectors(
        *rows(rows(exact.add(base, e)[:18], 3), 3), exact.add(base, e)[18:]
    ),
    21,
    [
        Point(
            exact.flat(
                *body,
                *(
                    exact.add(exact.rotate(exact.vector(q), exact.vector(b)), exact.vector(n))
                    for b, n in zip(body, noise, strict=True)
                ),
                (1.0, 1.0, 1.0),
            )
        )
        for q, body, noise in (
            (IDENTITY, FRAME, NONE),
            (GENERIC, FRAME, NONE),
            (GENERIC, SKEW, NONE),
            (GENERIC, SKEW, SPREAD),
        )
    ],
    some_directions(21, 2),
)

# These cases test Euler angles. They run without jit, because then the twenty-four orders share
# their compiled operations.


def angle_functions(angles: Array, order: str) -> Array:
    matrix = euler.rate_matrix(angles, order)
    return jnp.concatenate([euler.to_quaternion(angles, order), matrix.ravel()])


def exact_angle_functions(angles: list, order: str) -> list:
    matrix = exact.euler_rate_matrix(angles, order)
    return exact.flat(exact.euler_to_quaternion(angles, order), *matrix)


def middle(order: str, angle: float) -> float:
    """Return the second angle that is ``angle`` away from the middle of its range.

    The middle of the range is the farthest from gimbal lock.
    """
    return math.pi / 2 - angle if order[0] == order[2] else angle


def near_lock(order: str, angles: tuple[float, float, float], short: float) -> Point:
    """Return the point ``short`` away from gimbal lock.

    There the first and the third angle are known to eps/short, and each derivative divides by
    ``short`` once more.
    """
    q = exact.euler_to_quaternion([angles[0], middle(order, math.pi / 2 - short), angles[2]], order)
    return Point(q, (1 / short, 1 / short**2, 1 / short**3))


TRIPLES = (
    (0.0, 0.0, 0.0),
    (0.4, 0.7, -1.1),
    (-2.5, -1.0, 3.0),
    (math.pi - 1e-6, 0.5, 1e-6),
    (1e-9, -1e-9, 1e-6),
)

for order in euler._ORDERS:
    triples = [(first, middle(order, second), third) for first, second, third in TRIPLES]
    CASES[f"euler {order} angles"] = Case(
        lambda base, e, order=order: angle_functions(base + e, order),
        lambda base, e, order=order: exact_angle_functions(exact.add(base, e), order),
        3,
        [Point(triple) for triple in triples],
        groups=(4, 9),
        jit=False,
    )
    CASES[f"euler {order} attitude"] = Case(
        lambda q, v, order=order: euler.from_quaternion(turned(q, v), order),
        lambda q, v, order=order: exact.euler_from_quaternion(exact.moved(q, v), order),
        3,
        [
            *(
                Point(sign(exact.euler_to_quaternion(triple, order)))
                for triple in triples
                for sign in (list, negated)
            ),
            *(near_lock(order, (0.4, 0.0, -1.1), short) for short in (0.1, 1e-2)),
        ],
        jit=False,
    )


# These cases test one step of a body with products of inertia. The torque depends on time,
# attitude, rate, an aux state and two parameters. The steps run without jit. Then the schemes share
# their compiled operations. With jit, the second derivatives of one step of four stages take
# minutes to compile.

INERTIA = (0.9, 1.3, 1.1, 0.1, -0.2, 0.15)  # xx, yy, zz, xy, xz, yz
STEP_SIZES = (4, 3, 0, 2, 6, 0, 0)  # attitude, rate, aux, parameters, inertia, dt, t
TANGENT_SIZES = (3, *STEP_SIZES[1:])
PARTS = np.repeat([0, 1, 2], [6, 3, 8])  # attitude and rate; aux and parameters; inertia, dt and t
STEP_DIRECTIONS = np.where(PARTS == [[0], [1], [2]], some_directions(17, 3), 0.0)


def symmetric(six: Any) -> list:
    xx, yy, zz, xy, xz, yz = six
    return [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]


def torque(t: Array, state: jq.State, params: Array) -> tuple[Array, Array]:
    q, omega, lag, *_ = state
    wind = params[0] * jnp.stack([jnp.sin(3.0 * t), jnp.cos(2.0 * t), t * t])
    pull = quaternion.rotate_inverse(q, jnp.stack([0.4 * lag, -params[1], params[0] * params[1]]))
    drag = -0.05 * omega * omega * omega + 0.3 * lag * omega[::-1]
    return wind + pull + drag, 0.5 * omega[2] * omega[0] - 0.8 * lag + q[1] * q[0] + jnp.cos(t)


def exact_torque(params: list) -> Callable:
    def torque(t: Any, q: list, omega: list, aux: list) -> tuple[list, list]:
        wind = [params[0] * x for x in (gmpy2.sin(3 * t), gmpy2.cos(2 * t), t * t)]
        pull = exact.rotate_inverse(q, [mpfr(2) / 5 * aux[0], -params[1], params[0] * params[1]])
        drag = [
            -(x**3) / 20 + mpfr(3) / 10 * aux[0] * y
            for x, y in zip(omega, omega[::-1], strict=True)
        ]
        rate = omega[2] * omega[0] / 2 - mpfr(4) / 5 * aux[0] + q[1] * q[0] + gmpy2.cos(t)
        return exact.add(exact.add(wind, pull), drag), [rate]

    return torque


def stepped(step: Callable, base: Array, e: Array) -> Array:
    q, *rest = parts(base, *STEP_SIZES)
    v, *shifts = parts(e, *TANGENT_SIZES)
    omega, lag, params, inertia, dt, t = (x + d for x, d in zip(rest, shifts, strict=True))
    body = jq.Body(jnp.stack([jnp.stack(row) for row in symmetric(inertia)]))
    q, omega, lag, *_ = step(body, torque, t, jq.State(turned(q, v), omega, lag), dt, params)
    return jnp.concatenate([q, omega, lag[None]])


def exact_stepped(step: Callable, base: list, e: list) -> list:
    omega, lag, params, inertia, dt, t = parts(exact.add(base[4:], e[3:]), *STEP_SIZES[1:])
    state = (exact.moved(base[:4], e[:3]), omega, [lag])
    return exact.flat(*step(symmetric(inertia), exact_torque(params), t, state, dt))


TABLEAUS = {
    "lie_euler": tableaus.EULER,
    "rkmk2": tableaus.MIDPOINT,
    "rkmk3": tableaus.KUTTA3,
    "rkmk4": tableaus.RK4,
    "rkmk5": tableaus.DORMAND_PRINCE5,
    "rkmk6": tableaus.BUTCHER6,
}
STEPS = {
    name: functools.partial(exact.lifted_step, tableau) for name, tableau in TABLEAUS.items()
} | {"zhao": exact.zhao_step}
# Slopes enter a stage with weights of both signs and cancel. For Dormand-Prince the row sum of |a|
# is up to 25, and so is the loss.
CANCELLATION = {
    name: max([1.0, *(sum(map(abs, row)) for row in tableau.a)])
    for name, tableau in TABLEAUS.items()
}

for name, reference in STEPS.items():
    CASES[name] = Case(
        functools.partial(stepped, jq.schemes.SCHEMES[name]),
        functools.partial(exact_stepped, reference),
        17,
        [
            Point([*q, *omega, lag, 0.7, -0.4, *INERTIA, dt, t])
            for q, omega, lag, dt, t in (
                (IDENTITY, (0.0, 0.0, 0.0), 0.0, 0.01, 0.0),
                (MINUS_IDENTITY, (0.0, 0.0, 0.0), 0.3, 0.1, 1.0),
                (attitude(1.0, AXES[0]), (1e-9, 0.0, -1e-6), 0.3, 1e-4, 0.5),
                (GENERIC, (0.8, -1.1, 0.6), -0.5, 0.1, 0.5),
                (attitude(math.pi - 1e-6, AXES[0], GENERIC), (3.0, 4.0, -2.0), 0.2, 0.5, 2.0),
            )
        ],
        STEP_DIRECTIONS,
        (4, 3, 1),
        jit=False,
        amplification=CANCELLATION.get(name, 1.0),
    )


def rows_of(f: Callable[[Array], Array], mode: str, direction: Array, cotangent: Array) -> tuple:
    """Return what a mode finds of f: R^n -> R^m at 0 by one direction (n,) and one cotangent (m,).

    That is the value (m,), the cotangent times the Jacobian (n,), and times its derivative (n,), or
    the Jacobian times the direction (m,), and the derivative of cotangent times that (n,). Mode
    "first" is reverse mode without the second derivative.
    """
    zero = jnp.zeros_like(direction)
    if mode == "first":
        value, pullback = jax.vjp(f, zero)
        return value, *pullback(cotangent)
    if mode == "forward":
        first, pullback = jax.vjp(lambda e: jax.jvp(f, (e,), (direction,))[1], zero)
        return first, *pullback(cotangent)

    def reverse(e: Array) -> tuple[Array, Array]:
        value, pullback = jax.vjp(f, e)
        return value, *pullback(cotangent)

    (value, row), (_, second) = jax.jvp(reverse, (zero,), (direction,))
    return value, row, second


def rounded(name: str, dtype: str) -> np.ndarray:
    return np.array([[float(x) for x in point.base] for point in CASES[name].points], dtype)


def directions_of(case: Case, dtype: str = "float32") -> np.ndarray:
    return np.asarray(
        np.eye(case.size) if case.directions is None else case.directions, np.float32
    ).astype(dtype)


def evaluated(
    f: Callable[[Array, Array], Array], base: Any, directions: Any, mode: str, jit: bool = True
) -> dict[str, np.ndarray]:
    """Return the quantities of a mode for ``e -> f(x, e)`` at 0, for every row x of base (p, ...).

    The shapes along (k, n) directions: value (p, m), reverse (p, m, n), forward (p, k, m), both
    second derivatives (p, k, m, n). One vmap goes over all rows, directions and cotangents: each
    vmap around another would cost the time of an operation once more where there is no jit.
    """
    base, directions = jnp.asarray(base), jnp.asarray(directions)
    m = jax.eval_shape(f, base[0], directions[0]).shape[0]
    cotangents = jnp.eye(m, dtype=directions.dtype)
    shape = len(base), len(directions), m
    chosen = np.indices(shape).reshape(3, -1)

    def everywhere(base: Array) -> tuple:
        given = (x[rows] for x, rows in zip((base, directions, cotangents), chosen, strict=True))
        return jax.vmap(lambda x, *given: rows_of(lambda e: f(x, e), mode, *given))(*given)

    results = (jax.jit(everywhere) if jit else everywhere)(base)
    results = [np.asarray(x).reshape(*shape, x.shape[-1]) for x in results]
    if mode == "first":
        value, reverse = results
        return {"value": value[:, 0, 0], "reverse": reverse[:, 0]}
    *first, second = results
    if mode == "forward":
        return {"forward": first[0][:, :, 0], "reverse over forward": second}
    value, reverse = first
    return {"value": value[:, 0, 0], "reverse": reverse[:, 0], "forward over reverse": second}


@functools.cache
def computed(name: str, dtype: str, mode: str) -> dict[str, np.ndarray]:
    case = CASES[name]
    return evaluated(case.library, rounded(name, dtype), directions_of(case, dtype), mode, case.jit)


@functools.cache
def wanted(name: str, dtype: str) -> dict[str, np.ndarray]:
    """Return the quantities from the reference, at exactly the numbers that the library gets."""
    case, found = CASES[name], []
    for base in rounded(name, dtype):
        f = functools.partial(case.reference, exact.vector(base))
        value, jacobian, second = exact.derivatives(f, case.size, directions_of(case))
        found.append((value, jacobian, second, directions_of(case, "float64") @ jacobian.T, second))
    return {
        quantity: np.stack(each)
        for quantity, each in zip(ORDER, zip(*found, strict=True), strict=True)
    }


def errors(name: str, dtype: str, mode: str, quantity: str) -> np.ndarray:
    """Return the largest error at every point for every group, in units of eps x scale."""
    case, order = CASES[name], ORDER[quantity]
    got, want = computed(name, dtype, mode)[quantity], wanted(name, dtype)[quantity]
    assert got.dtype == dtype
    assert got.shape == want.shape
    outputs = 1 if quantity in ("value", "reverse") else 2
    groups = (
        np.split(np.arange(want.shape[outputs]), np.cumsum(case.groups)[:-1])
        if case.groups
        else [slice(None)]
    )
    found = []
    for group in groups:
        index = (slice(None),) * outputs + (group,)
        size, difference = (
            np.abs(x[index]).reshape(len(want), -1).max(-1)
            for x in (want, got.astype(np.float64) - want)
        )
        scale = np.maximum(size, [point.scale[order] for point in case.points])
        found.append(
            np.where(
                difference == 0,
                0.0,
                difference / np.where(scale == 0, np.finfo(np.float64).tiny, scale),
            )
        )
    return np.stack(found, -1) / np.finfo(dtype).eps / case.amplification


# The quick suite has the first derivatives in float32 without those of the long cases, and the
# second ones of the logarithm.
LONG = {"slerp", "distances", "mean", "from_vectors", *STEPS, *euler._ORDERS}
# Float64 alone takes these, in reverse mode: extrinsic orders are intrinsic ones reversed, and the
# stages of lifted steps are those of rkmk4, with other weights.
LIKE_ANOTHER = {*filter(str.islower, euler._ORDERS), *STEPS} - {"rkmk4", "zhao"}
# Float64 alone takes these: the same arithmetic with the axes in another order.
PERMUTED = {*euler._ORDERS} - {"XYZ", "ZYX", "ZXZ", "XYX"}


MARKS = {"quick": (), "slow": pytest.mark.slow, "weekly": (pytest.mark.slow, pytest.mark.weekly)}


def is_quick(name: str, dtype: str, mode: str) -> bool:
    if mode == "first":
        return dtype == "float32" and not set(name.split()) & LONG
    return (name, dtype, mode) == ("log", "float64", "forward")


def tier(name: str, dtype: str, mode: str) -> str:
    """Float64 in reverse mode is slow for all cases but those that are like another.

    The other long cases, and float32 in forward mode, are weekly.
    """
    if is_quick(name, dtype, mode):
        return "quick"
    words = set(name.split())
    brief = (dtype, mode) == ("float64", "reverse") and not words & (LIKE_ANOTHER | PERMUTED)
    long = words & LONG or (dtype, mode) == ("float32", "forward")
    return "slow" if brief or not long else "weekly"


def together(name: str) -> str:
    """Return the kind of a case.

    Cases without jit share their compiled operations within a process. Therefore one test takes all
    cases of a kind.
    """
    return name if CASES[name].jit else "steps" if name in STEPS else f"euler {name.split()[-1]}"


def combinations() -> Iterator[Any]:
    """Yield the cases of a test: pairs (name, mode) of one kind, dtype and tier."""
    kinds = dict.fromkeys(map(together, CASES))
    for dtype, kind, speed in itertools.product(DTYPES, kinds, MARKS):
        pairs = [
            (name, mode)
            for mode, name in itertools.product(QUANTITIES, CASES)
            if together(name) == kind
            and (mode in MODES or is_quick(name, dtype, mode))
            and tier(name, dtype, mode) == speed
            and not ((dtype, mode) != ("float64", "reverse") and set(name.split()) & LIKE_ANOTHER)
            and not (dtype == "float32" and set(name.split()) & PERMUTED)
        ]
        if pairs:
            ending = "" if speed == "quick" else f"-{speed}"
            yield pytest.param(pairs, dtype, marks=MARKS[speed], id=f"{kind}-{dtype}{ending}")


@pytest.mark.parametrize(("pairs", "dtype"), list(combinations()))
def test_derivatives(pairs: Sequence[tuple[str, str]], dtype: str) -> None:
    worst = {
        (name, quantity): errors(name, dtype, mode, quantity).max()
        for name, mode in pairs
        for quantity in QUANTITIES[mode]
    }
    assert all(error < BOUND for error in worst.values()), {
        case: error for case, error in worst.items() if not error < BOUND
    }


def test_every_scheme_of_tableaus_has_a_reference() -> None:
    """test_scheme_gradients.py differentiates the other schemes."""
    lifted = {
        name for name, scheme in jq.schemes.SCHEMES.items() if isinstance(scheme.step, MuntheKaas)
    }
    assert set(STEPS) == lifted | {"zhao"}


def linear_map(f: Callable[[list, list], list], u: list) -> np.ndarray:
    """Return the (3, 3) matrix of ``v -> f(u, v)``."""
    return np.array([f(u, [mpfr(i == j) for j in range(3)]) for i in range(3)]).astype(np.float64).T


def test_reference_of_the_differential() -> None:
    """The reference of dexp is the derivative of the reference of exp.

    exp(u)* exp(u + v) = 1 + dexp(u, v)/2 to first order.
    """
    for u in ([ZERO] * 3, exact.vector((0.3, -2.0, 1.5))):
        back = exact.conjugate(exact.exp(u))
        _, jacobian, _ = exact.derivatives(
            lambda v, u=u, back=back: exact.multiply(back, exact.exp(exact.add(u, v))), 3, np.eye(3)
        )
        np.testing.assert_allclose(
            2 * jacobian[1:], linear_map(exact.dexp, u), rtol=1e-15, atol=1e-15
        )


# Where a function is not differentiable, it returns what its docstring states.

BOTH = [
    pytest.param(dtype, mode, marks=MARKS[speed], id=f"{dtype}-{mode}")
    for dtype, mode, speed in (
        ("float32", "first", "quick"),
        ("float64", "forward", "slow"),
        ("float32", "reverse", "weekly"),
        ("float32", "forward", "weekly"),
        ("float64", "reverse", "weekly"),
    )
]
HALF_TURNS = ((0.48, -0.6, 0.64), (-0.48, 0.6, 0.64), (0.0, 0.0, 1.0), (0.0, -1.0, 0.0))


def tolerance(dtype: str) -> dict[str, float]:
    return {"rtol": BOUND * np.finfo(dtype).eps, "atol": BOUND * np.finfo(dtype).eps}


@pytest.mark.parametrize(("dtype", "mode"), BOTH)
def test_half_turn(dtype: str, mode: str) -> None:
    """The log is that of canonical(q), and distances have the slope of one of the two directions.

    All derivatives are finite to second order.
    """

    def functions(axis: Array, v: Array) -> Array:
        q = turned(jnp.concatenate([jnp.zeros_like(axis[:1]), axis]), v)
        identity = jnp.asarray(IDENTITY, axis.dtype)
        distances = [quaternion.squared_distance(identity, q), quaternion.distance(identity, q)]
        return jnp.concatenate([quaternion.log(q), jnp.stack(distances)])

    found = evaluated(functions, np.array(HALF_TURNS, dtype), np.eye(3, dtype=dtype), mode)
    jacobians = found["reverse"] if "reverse" in found else found["forward"].swapaxes(1, 2)
    for k, axis in enumerate(HALF_TURNS):
        branch = np.array(axis) * np.sign(next(x for x in axis if x))
        if "value" in found:
            np.testing.assert_allclose(
                found["value"][k], [*np.pi * branch, np.pi**2, np.pi], **tolerance(dtype)
            )
        way = branch * np.sign(jacobians[k, 4] @ branch)
        slopes = np.concatenate(
            [linear_map(exact.dexpinv, exact.vector(np.pi * branch)), [2 * np.pi * way, way]]
        )
        np.testing.assert_allclose(jacobians[k], slopes, **tolerance(dtype))
    assert all(np.isfinite(each).all() for each in found.values())


@pytest.mark.parametrize(
    ("dtype", "mode"),
    [
        pytest.param(dtype, mode, marks=MARKS[tier("distances", dtype, mode)])
        for dtype, mode in itertools.product(DTYPES, MODES)
    ],
)
def test_coincidence(dtype: str, mode: str) -> None:
    """The distance of coincident attitudes is 0 and has derivatives 0.

    The Hessian of squared_distance is twice the identity in each argument.
    """
    base, found = rounded("distances", dtype), computed("distances", dtype, mode)
    coincident = (base[:, :4] == base[:, 4:]).all(-1) | (base[:, :4] == -base[:, 4:]).all(-1)
    assert coincident.sum() >= 6
    first, second = (found[quantity][coincident] for quantity in MODES[mode][-2:])
    np.testing.assert_array_equal(first if mode == "reverse" else first.swapaxes(1, 2), 0)
    np.testing.assert_array_equal(second[:, :, 1], 0)
    both = np.kron([[1, -1], [-1, 1]], 2 * np.eye(3))
    np.testing.assert_allclose(
        second[:, :, 0], np.broadcast_to(both, second[:, :, 0].shape), **tolerance(dtype)
    )
    if "value" in found:
        np.testing.assert_array_equal(found["value"][coincident], 0)


@pytest.mark.slow
@pytest.mark.weekly
def test_third_derivative_at_coincidence() -> None:
    """The third derivative is zero, because squared_distance is exactly |v|^2 near coincidence."""
    p, zero = jnp.asarray(GENERIC), jnp.zeros(3)
    third = jax.jacfwd(
        jax.jacfwd(jax.jacrev(lambda v: quaternion.squared_distance(p, turned(p, v))))
    )
    np.testing.assert_allclose(jax.jit(third)(zero), np.zeros((3, 3, 3)), **tolerance("float64"))


@pytest.mark.parametrize(("dtype", "mode"), BOTH)
def test_axis_and_angle_at_the_identity(dtype: str, mode: str) -> None:
    def axis_and_angle(q: Array, v: Array) -> Array:
        axis, angle = quaternion.to_axis_angle(turned(q, v))
        return jnp.concatenate([axis, angle[None]])

    found = evaluated(
        axis_and_angle, np.array([IDENTITY, MINUS_IDENTITY], dtype), np.eye(3, dtype=dtype), mode
    )
    for quantity, got in found.items():
        np.testing.assert_array_equal(
            got, np.broadcast_to([1, 0, 0, 0], got.shape) if quantity == "value" else 0
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_slerp_of_a_half_turn_goes_by_way_of_q(dtype: str) -> None:
    p, q = jnp.asarray(IDENTITY, DTYPES[dtype]), jnp.asarray((0.0, 0.0, -0.6, 0.8), DTYPES[dtype])
    middle = jax.jit(quaternion.slerp)(p, q, jnp.asarray(0.5, p.dtype))
    np.testing.assert_allclose(middle, (p + q) / math.sqrt(2), **tolerance(dtype))


def locks() -> Iterator[Any]:
    for dtype, mode, speed in itertools.product(DTYPES, MODES, MARKS):
        orders = [
            order
            for order in euler._ORDERS
            if tier(f"euler {order} attitude", dtype, mode) == speed
            and not ((dtype, mode) != ("float64", "reverse") and order in LIKE_ANOTHER)
        ]
        if orders:
            yield pytest.param(
                orders, dtype, mode, marks=MARKS[speed], id=f"{dtype}-{mode}-{speed}"
            )


@pytest.mark.parametrize(("orders", "dtype", "mode"), list(locks()))
def test_gimbal_lock(orders: Sequence[str], dtype: str, mode: str) -> None:
    """In gimbal lock the third angle is 0, the attitude is right and the derivatives are finite.

    The rate matrix is singular to rounding.
    """
    for order in orders:
        ends = (0.0, math.pi) if order[0] == order[2] else (math.pi / 2, -math.pi / 2)
        case = CASES[f"euler {order} attitude"]
        locked = [
            exact.euler_to_quaternion([mpfr("0.7"), mpfr(end), mpfr("-0.4")], order) for end in ends
        ]
        # the operations are already compiled for this shape
        q = np.repeat(np.array(locked).astype(dtype), len(case.points) // 2, 0)
        found = evaluated(case.library, q, np.eye(3, dtype=dtype), mode, jit=False)
        assert all(np.isfinite(each).all() for each in found.values())
        if "value" in found:
            angles = jnp.asarray(found["value"])
            np.testing.assert_array_equal(angles[:, 2], 0)
            cosine = np.sum(np.asarray(euler.to_quaternion(angles, order)) * q, -1)
            np.testing.assert_allclose(np.abs(cosine), 1, **tolerance(dtype))
            # singular to the rounding of pi/2
            determinants = np.linalg.det(np.asarray(euler.rate_matrix(angles, order), float))
            assert not (np.abs(determinants) > 10 * np.finfo(dtype).eps).any()

"""This module has the library's functions in a hundred digits, and derivatives of any function.

Every function follows its definition. Derivatives are central differences. Vectors are lists of
numbers of MPFR, by gmpy2, whose precision the import of this module sets. With steps of 1e-25 a
first or second central difference has an error of 1e-50 of a derivative two orders higher, plus a
rounding error of 1e-50. This is exact compared with float64. The functions treat a removable
singularity only at exactly zero. Near it up to half of the digits cancel, and the hundred digits
leave enough of them.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import gmpy2
import numpy as np
from gmpy2 import agm, atan2, const_pi, cos, mpc, mpfr, sin, sqrt


def digits(number: int) -> gmpy2.context:
    """Return a context: ``with digits(180):`` the results of operations have so many digits."""
    return gmpy2.context(precision=math.ceil(number * math.log2(10)) + 8)


def rounding() -> Any:
    """Return the distance of 1 to the next number."""
    return mpfr(2) ** (1 - gmpy2.get_context().precision)


gmpy2.set_context(digits(100))
ZERO, ONE = mpfr(0), mpfr(1)
_STEP = mpfr(10) ** -25

Vector = list[Any]


def vector(values: Any) -> Vector:
    """Return the numbers of an array without rounding."""
    return [mpfr(float(x)) for x in values]


def derivatives(
    f: Callable[[Vector], Vector], size: int, directions: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the value and two derivatives of f: (n,) -> (m,) at zero, in float64.

    The results are the value (m,), the Jacobian (m, n), and f''(0)[d, .] for each of the k
    directions d, (k, m, n).
    """

    @functools.cache
    def at(offset: tuple[Any, ...]) -> np.ndarray:
        return np.array(f([_STEP * x for x in offset]), dtype=object)

    def even(offset: tuple[Any, ...]) -> np.ndarray:
        return at(offset) + at(tuple(-x for x in offset)) - 2 * at((ZERO,) * size)

    units = [tuple(mpfr(i == j) for j in range(size)) for i in range(size)]
    directions = [tuple(vector(d)) for d in directions]
    jacobian = [(at(e) - at(tuple(-x for x in e))) / (2 * _STEP) for e in units]
    second = [
        [
            (even(tuple(x + y for x, y in zip(d, e, strict=True))) - even(d) - even(e))
            / (2 * _STEP**2)
            for e in units
        ]
        for d in directions
    ]
    return (
        at((ZERO,) * size).astype(np.float64),
        np.array(jacobian).astype(np.float64).T,
        np.moveaxis(np.array(second).astype(np.float64), 1, 2),
    )


def dot(a: Vector, b: Vector) -> Any:
    return sum(map(operator.mul, a, b))


def add(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def scaled(factor: Any, a: Vector) -> Vector:
    return [factor * x for x in a]


def cross(a: Vector, b: Vector) -> Vector:
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def unit(a: Vector) -> Vector:
    return scaled(1 / sqrt(dot(a, a)), a)


def matvec(matrix: Sequence[Vector], v: Vector) -> Vector:
    return [dot(row, v) for row in matrix]


def solve(columns: Sequence[Vector], v: Vector) -> Vector:
    """Solve ``x[0] columns[0] + x[1] columns[1] + x[2] columns[2] = v`` for x by Cramer's rule."""
    a, b, c = columns
    volume = dot(a, cross(b, c))
    return [
        dot(v, cross(b, c)) / volume,
        dot(v, cross(c, a)) / volume,
        dot(v, cross(a, b)) / volume,
    ]


def multiply(p: Vector, q: Vector) -> Vector:
    (a, b, c, d), (w, x, y, z) = p, q
    return [
        a * w - b * x - c * y - d * z,
        a * x + b * w + c * z - d * y,
        a * y - b * z + c * w + d * x,
        a * z + b * y - c * x + d * w,
    ]


def conjugate(q: Vector) -> Vector:
    return [q[0], -q[1], -q[2], -q[3]]


def canonical(q: Vector) -> Vector:
    return unit(q) if next(x for x in q if x != 0) > 0 else unit(scaled(-1, q))


def exp(u: Vector) -> Vector:
    angle = sqrt(dot(u, u))
    return [cos(angle / 2), *scaled(sin(angle / 2) / angle if angle else mpfr(1) / 2, u)]


def expm1(u: Vector) -> Vector:
    w, *v = exp(u)
    return [w - 1, *v]


def moved(q: Vector, v: Vector) -> Vector:
    """Return the unit quaternion ``q exp(v)``, the attitude at the tangent coordinates v."""
    return multiply(unit(q), exp(v))


def log(q: Vector) -> Vector:
    w, *v = canonical(q)
    length = sqrt(dot(v, v))
    return scaled(2 * atan2(length, w) / length if length else mpfr(2), v)


def rotate(q: Vector, v: Vector) -> Vector:
    q = unit(q)
    return multiply(multiply(q, [ZERO, *v]), conjugate(q))[1:]


def rotate_inverse(q: Vector, v: Vector) -> Vector:
    return rotate(conjugate(q), v)


def to_matrix(q: Vector) -> list[Vector]:
    columns = [rotate(q, [mpfr(i == j) for j in range(3)]) for i in range(3)]
    return [list(row) for row in zip(*columns, strict=True)]


def squared_distance(p: Vector, q: Vector) -> Any:
    u = log(multiply(conjugate(p), q))
    return dot(u, u)


def slerp(p: Vector, q: Vector, t: Any) -> Vector:
    return multiply(unit(p), exp(scaled(t, log(multiply(conjugate(p), q)))))


def dexp(u: Vector, v: Vector) -> Vector:
    """Return ``2 vec(exp(u)* d/de exp(u + e v))`` with the derivative written out."""
    half = sqrt(dot(u, u)) / 2
    if half == 0:
        return v
    sinc = sin(half) / half
    slope = dot(u, v) / (4 * half * half)  # the derivative of half, divided by half
    change = [
        -sin(half) * half * slope,
        *add(scaled(sinc / 2, v), scaled((cos(half) - sinc) * slope / 2, u)),
    ]
    return scaled(2, multiply(conjugate(exp(u)), change)[1:])


def dexpinv(u: Vector, v: Vector) -> Vector:
    """Return the vector that ``dexp`` at u maps to v."""
    return solve([dexp(u, [mpfr(i == j) for j in range(3)]) for i in range(3)], v)


def dominant(matrix: list[Vector]) -> Vector:
    """Return the unit eigenvector of the largest eigenvalue.

    The matrix M is symmetric and positive semidefinite. Scaled M^n tends to the projector on this
    eigenvector. With n = 2^12 the error is (ratio of the eigenvalues)^4096, which is below 1e-100
    for ratios below 0.94.
    """
    size = range(len(matrix))
    for _ in range(12):
        trace = sum(matrix[i][i] for i in size)
        matrix = [scaled(1 / trace, row) for row in matrix]
        # the matrix is symmetric, so a row is also a column
        half = [[dot(row, other) for other in matrix[: i + 1]] for i, row in enumerate(matrix)]
        matrix = [[half[max(i, j)][min(i, j)] for j in size] for i in size]
    return canonical(max(matrix, key=lambda row: dot(row, row)))


def mean(attitudes: list[Vector], weights: Vector) -> Vector:
    """Return the attitude p that maximises ``sum w (p.q)^2`` over the given attitudes q."""
    outer = [
        [sum(w * q[i] * q[j] for w, q in zip(weights, attitudes, strict=True)) for j in range(4)]
        for i in range(4)
    ]
    return dominant(outer)


def from_vectors(body: list[Vector], world: list[Vector], weights: Vector) -> Vector:
    """Return the attitude q that maximises ``sum w world.(q body q*)``.

    This sum is a quadratic form of q. The function adds the sum of the w to its diagonal, which
    makes the form positive.
    """
    pairs = [(unit(b), unit(v), w) for b, v, w in zip(body, world, weights, strict=True)]

    def gain(p: Vector, q: Vector) -> Any:
        images = [multiply(multiply(p, [ZERO, *b]), conjugate(q))[1:] for b, _, _ in pairs]
        return sum(w * dot(v, image) for (_, v, w), image in zip(pairs, images, strict=True))

    units = [[mpfr(i == j) for j in range(4)] for i in range(4)]
    shift = sum(weights)
    return dominant(
        [[(gain(p, q) + gain(q, p)) / 2 + shift * (p == q) for q in units] for p in units]
    )


def about(axis: int, angle: Any) -> Vector:
    """Return the turn by an angle about a coordinate axis."""
    q = [cos(angle / 2), ZERO, ZERO, ZERO]
    q[1 + axis] = sin(angle / 2)
    return q


def _turns(angles: Vector, order: str) -> list[tuple[int, Any]]:
    """Return the pairs (axis, angle) in the order of multiplication.

    Intrinsic turns multiply on the right, extrinsic turns on the left.
    """
    turns = [
        ("XYZ".index(letter), angle) for letter, angle in zip(order.upper(), angles, strict=True)
    ]
    return turns[::-1] if order.islower() else turns


def euler_to_quaternion(angles: Vector, order: str) -> Vector:
    first, second, third = (about(*turn) for turn in _turns(angles, order))
    return multiply(multiply(first, second), third)


def euler_rate_matrix(angles: Vector, order: str) -> list[Vector]:
    """Return the matrix with the columns ``2 vec(q* dq/dangle)``.

    The derivative of a turn by its angle is half the turn by the angle plus pi.
    """
    columns = []
    for k in range(3):
        raised = [angle + const_pi() * (j == k) for j, angle in enumerate(angles)]
        columns.append(
            multiply(
                conjugate(euler_to_quaternion(angles, order)), euler_to_quaternion(raised, order)
            )[1:]
        )
    return [list(row) for row in zip(*columns, strict=True)]


def euler_from_quaternion(q: Vector, order: str) -> Vector:
    """Return the angles from the entries of the rotation matrix R.

    Row i belongs to the first axis and column k to the last axis. The entries of this row and this
    column give each angle by itself.
    """
    i, j, k = ["XYZ".index(letter) for letter in order.upper()][:: -1 if order.islower() else 1]
    other = 3 - i - j
    sign = 1 if (j - i) % 3 == 1 else -1
    r = to_matrix(q)
    if i == k:
        angles = [
            atan2(r[j][i], -sign * r[other][i]),
            atan2(gmpy2.hypot(r[i][j], r[i][other]), r[i][i]),
            atan2(r[i][j], sign * r[i][other]),
        ]
    else:
        angles = [
            atan2(-sign * r[j][k], r[k][k]),
            atan2(sign * r[i][k], gmpy2.hypot(r[i][i], r[i][j])),
            atan2(-sign * r[i][j], r[i][i]),
        ]
    return angles[::-1] if order.islower() else angles


def acceleration(inertia: list[Vector], omega: Vector, tau: Vector) -> Vector:
    """Return the angular acceleration by Euler's equation in body axes, for a symmetric inertia."""
    return solve(inertia, add(tau, scaled(-1, cross(omega, matvec(inertia, omega)))))


def lifted_step(
    tableau: Any, inertia: list[Vector], torque: Callable, t: Any, state: tuple, dt: Any
) -> tuple:
    """Take one step of the tableau on ``(u, omega, aux)`` with ``q = q0 exp(u)``.

    ``torque(t, q, omega, aux)`` returns ``(torque, d aux/dt)``.
    """
    q, omega, aux = state
    start = [ZERO] * 3 + omega + aux
    slopes: list[Vector] = []

    def reached(weights: Sequence[float]) -> Vector:
        return [
            x + dt * sum(w * slope[i] for w, slope in zip(weights, slopes, strict=True))
            for i, x in enumerate(start)
        ]

    for row, node in zip(((), *tableau.a), (0, *tableau.c), strict=True):
        here = reached(row)
        u, rate, extra = here[:3], here[3:6], here[6:]
        tau, extra_rate = torque(t + node * dt, moved(q, u), rate, extra)
        slopes.append(dexpinv(u, rate) + acceleration(inertia, rate, tau) + extra_rate)
    end = reached(tableau.b)
    return moved(q, end[:3]), end[3:6], end[6:]


def zhao_step(inertia: list[Vector], torque: Callable, t: Any, state: tuple, dt: Any) -> tuple:
    """Take one step of Zhao and van Wachem 2013 as they wrote it, with their misprints corrected.

    The rotations use WORLD rates and multiply on the left.
    """
    q0, omega0, aux = state
    q0 = unit(q0)
    tau, aux_rate = torque(t, q0, omega0, aux)
    rate = acceleration(inertia, omega0, tau)
    quarter, half = add(omega0, scaled(dt / 4, rate)), add(omega0, scaled(dt / 2, rate))
    q12 = multiply(exp(scaled(dt / 2, rotate(q0, quarter))), q0)
    tau, aux_rate = torque(t + dt / 2, q12, half, add(aux, scaled(dt / 2, aux_rate)))
    q1 = multiply(exp(scaled(dt, rotate(q12, half))), q0)
    return (
        q1,
        add(omega0, scaled(dt, acceleration(inertia, half, tau))),
        add(aux, scaled(dt, aux_rate)),
    )


def flat(*parts: Any) -> Vector:
    return list(itertools.chain(*parts))


def free_body(moments: Vector, omega: Vector, q: Vector, t: Any) -> Vector:
    """Return (q, omega) of the free body from Jacobi's amplitudes and the phase of the start.

    The moments and the rates are in principal axes. The rates follow Whittaker 1937, section 69.
    The attitude needs arg theta_4(z + i v | q^2): twice its slope is the rate of turn about the
    momentum minus the mean of this rate. Theta series in the one nome exp(-pi K'/K) give both.

    These formulas divide by zero at the middle axis, at equal moments and elsewhere. Therefore the
    function changes every moment and every rate by about 1e-60, relative to its size. The motion
    amplifies this change by exp(rate t) at most.
    """
    with digits(180):
        size = sqrt(dot(omega, omega))
        if size == 0:
            return [*q, *omega]
        tiny = mpfr(10) ** -60
        moments = [x * (1 + k * tiny) for x, k in zip(moments, (1, 3, -2), strict=True)]
        omega = [x + size * k * tiny for x, k in zip(omega, (3, 2, 5), strict=True)]

        order = sorted(range(3), key=lambda k: moments[k])
        (i1, i2, i3), (w1, _, w3) = ([x[k] for k in order] for x in (moments, omega))
        if i3 * (i3 - i2) * w3**2 < i1 * (i2 - i1) * w1**2:
            order = order[::-1]  # the momentum circles axis 3
        signs = [-1 if omega[k] < 0 else 1 for k in order]
        signs[1] = signs[0] * signs[2] * (1 if order in ([0, 1, 2], [1, 2, 0], [2, 0, 1]) else -1)
        i1, i2, i3 = (moments[k] for k in order)
        w1, w2, w3 = (sign * omega[k] for k, sign in zip(order, signs, strict=True))
        outer, lower, upper = i3 - i1, i2 - i1, i3 - i2
        sense = gmpy2.sign(outer)

        a1 = sqrt(w1**2 + i2 * upper / (i1 * outer) * w2**2)
        a2 = a1 * sqrt(i1 * outer / (i2 * upper))
        a3 = sqrt(w3**2 + i2 * lower / (i3 * outer) * w2**2)
        rate = a3 * sqrt(outer * upper / (i1 * i2))
        k = a1 / a3 * sqrt(i1 * lower / (i3 * upper))
        complement = sqrt(
            outer * (i3 * upper * w3**2 - i1 * lower * w1**2) / (upper * (i3 * outer * a3**2))
        )
        quarter = const_pi() / (2 * agm(1, complement))
        nome = gmpy2.exp(-const_pi() * agm(1, complement) / agm(1, k))
        momentum = sqrt((i1 * w1) ** 2 + (i2 * w2) ** 2 + (i3 * w3) ** 2)
        kappa = i3 * a3 / momentum
        v = const_pi() / (2 * quarter) * _first_kind(atan2(1, sqrt(i3 * lower / (i1 * upper))), k)
        _, two, three, four = _thetas(ZERO, nome)

        def at(u: Any) -> tuple[Vector, Any]:
            one, other, third, fourth = _thetas(const_pi() * u / (2 * quarter), nome)
            amplitudes = (
                three / two * a2 * sense * one,
                four / two * a1 * other,
                four / three * a3 * third,
            )
            sn, cn, dn = (x / fourth for x in amplitudes)
            return [cn, sn, dn], _theta_argument(const_pi() * u / (2 * quarter), v, nome**2)[0]

        phase = _first_kind(atan2(sense * w2 / a2, w1 / a1), complement)
        (_, start), (rates, end) = at(phase), at(phase + rate * t)
        slope = _theta_argument(ZERO, v, nome**2)[1] * const_pi() / (2 * quarter)
        mean = momentum * (kappa / i3 + (1 - kappa) / i1) + 2 * sense * rate * slope
        half = mean * t / 2 - sense * (end - start)

        def upright(rates: Vector) -> Vector:
            x, y, z = (i * w / momentum for i, w in zip((i1, i2, i3), rates, strict=True))
            return unit([1 + z, y, -x, ZERO])

        turn = multiply([cos(half), ZERO, ZERO, sin(half)], upright(rates))
        turn = multiply(conjugate(upright([w1, w2, w3])), turn)
        vector_part, end_rates = [ZERO] * 3, [ZERO] * 3
        for k, axis in enumerate(order):
            vector_part[axis], end_rates[axis] = signs[k] * turn[1 + k], signs[k] * rates[k]
        return [*multiply(q, [turn[0], *vector_part]), *end_rates]


def _first_kind(phase: Any, complement: Any) -> Any:
    """Return F(phase | 1 - complement^2) by Landen's transformation."""
    a, b, turns, last = ONE, complement, 1, False
    while not last:
        last = abs(a - b) < sqrt(rounding())
        sine, cosine = sin(phase), cos(phase)
        phase = 2 * phase - atan2((a - b) * sine * cosine, a * cosine**2 + b * sine**2)
        a, b, turns = (a + b) / 2, sqrt(a * b), 2 * turns
    return phase / (turns * a)


def _thetas(z: Any, nome: Any) -> Vector:
    """Return theta_1 to theta_4 of a real z."""
    double = 2 * cos(2 * z)
    even, odd, sines = (ONE, double / 2), (cos(z), cos(z)), (-sin(z), sin(z))
    first, second, third, fourth = ZERO, ZERO, ONE, ONE
    sign, square, between, step = 1, nome, ONE, nome * nome
    # square, between and step are nome^(n^2), nome^(n (n + 1)) and nome^(2 n)
    while between > rounding():
        first, second = first + 2 * sign * between * sines[1], second + 2 * between * odd[1]
        third, fourth = third + 2 * square * even[1], fourth - 2 * sign * square * even[1]
        even, odd, sines = ((x[1], double * x[1] - x[0]) for x in (even, odd, sines))
        sign, between = -sign, between * step
        step *= nome * nome
        square *= step / nome
    root = sqrt(sqrt(nome))
    return [root * first, root * second, third, fourth]


def _theta_argument(z: Any, v: Any, nome: Any) -> tuple[Any, Any]:
    """Return the argument of theta_4(z + i v) and its derivative by z."""
    up, down = gmpy2.exp(mpc(-2 * v, 2 * z)), gmpy2.exp(mpc(2 * v, -2 * z))
    total, slope, powers, n, square, step = mpc(1), mpc(0), (up, down), 1, -nome, -(nome**3)
    while abs(square) * abs(powers[1]) > rounding():
        total += square * (powers[0] + powers[1])
        slope += square * 2j * n * (powers[0] - powers[1])
        powers, n = (powers[0] * up, powers[1] * down), n + 1
        square, step = square * step, step * nome**2
    return gmpy2.phase(total), (slope / total).imag

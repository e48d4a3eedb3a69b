"""The library's functions in a hundred digits, from their definitions, and derivatives of anything by central differences.

Vectors are lists of mpmath numbers. With steps of 1e-25 a first or second central difference errs by 1e-50 of a derivative two
orders higher and by 1e-50 of rounding: beside float64 it is exact. A removable singularity is removed at exactly zero and nowhere
else: what cancels near it (half of the digits at worst) is what the hundred digits are for.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np

mp = mpmath.MPContext()  # a context of our own: the precision of the global one stays as it is
mp.dps = 100
_STEP = mp.mpf(10) ** -25

Vector = list[Any]


def vector(values: Any) -> Vector:
    """The numbers of an array, exactly as they are."""
    return [mp.mpf(float(x)) for x in values]


def derivatives(
    f: Callable[[Vector], Vector], size: int, directions: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of f (n,) -> (m,) at zero: value (m,), Jacobian (m, n), and f''(0)[d, .] for every direction d, (k, m, n), in float64."""

    @functools.cache
    def at(offset: tuple[Any, ...]) -> np.ndarray:
        return np.array(f([_STEP * x for x in offset]), dtype=object)

    def even(offset: tuple[Any, ...]) -> np.ndarray:
        return at(offset) + at(tuple(-x for x in offset)) - 2 * at((mp.zero,) * size)

    units = [tuple(mp.mpf(i == j) for j in range(size)) for i in range(size)]
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
        at((mp.zero,) * size).astype(np.float64),
        np.array(jacobian).astype(np.float64).T,
        np.moveaxis(np.array(second).astype(np.float64), 1, 2),
    )


def dot(a: Vector, b: Vector) -> Any:
    return mp.fdot(a, b)


def add(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def scaled(factor: Any, a: Vector) -> Vector:
    return [factor * x for x in a]


def cross(a: Vector, b: Vector) -> Vector:
    return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]


def unit(a: Vector) -> Vector:
    return scaled(1 / mp.sqrt(dot(a, a)), a)


def matvec(matrix: Sequence[Vector], v: Vector) -> Vector:
    return [dot(row, v) for row in matrix]


def solve(columns: Sequence[Vector], v: Vector) -> Vector:
    """The x with ``x[0] columns[0] + x[1] columns[1] + x[2] columns[2] = v``, by Cramer's rule."""
    a, b, c = columns
    volume = dot(a, cross(b, c))
    return [
        dot(v, cross(b, c)) / volume,
        dot(v, cross(c, a)) / volume,
        dot(v, cross(a, b)) / volume,
    ]


def inverse(matrix: Sequence[Vector]) -> list[Vector]:
    """Of a 3x3 matrix, by rows."""
    columns = list(zip(*matrix, strict=True))
    solutions = [solve(columns, [mp.mpf(i == j) for j in range(3)]) for i in range(3)]
    return [list(row) for row in zip(*solutions, strict=True)]


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
    angle = mp.sqrt(dot(u, u))
    return [mp.cos(angle / 2), *scaled(mp.sin(angle / 2) / angle if angle else mp.mpf(1) / 2, u)]


def expm1(u: Vector) -> Vector:
    w, *v = exp(u)
    return [w - 1, *v]


def moved(q: Vector, v: Vector) -> Vector:
    """``q exp(v)``: the attitude at tangent coordinates v, unit."""
    return multiply(unit(q), exp(v))


def log(q: Vector) -> Vector:
    w, *v = canonical(q)
    length = mp.sqrt(dot(v, v))
    return scaled(2 * mp.atan2(length, w) / length if length else mp.mpf(2), v)


def rotate(q: Vector, v: Vector) -> Vector:
    q = unit(q)
    return multiply(multiply(q, [mp.zero, *v]), conjugate(q))[1:]


def rotate_inverse(q: Vector, v: Vector) -> Vector:
    return rotate(conjugate(q), v)


def to_matrix(q: Vector) -> list[Vector]:
    columns = [rotate(q, [mp.mpf(i == j) for j in range(3)]) for i in range(3)]
    return [list(row) for row in zip(*columns, strict=True)]


def squared_distance(p: Vector, q: Vector) -> Any:
    u = log(multiply(conjugate(p), q))
    return dot(u, u)


def slerp(p: Vector, q: Vector, t: Any) -> Vector:
    return multiply(unit(p), exp(scaled(t, log(multiply(conjugate(p), q)))))


def dexp(u: Vector, v: Vector) -> Vector:
    """``2 vec(exp(u)* d/de exp(u + e v))``, the derivative written out."""
    half = mp.sqrt(dot(u, u)) / 2
    if half == 0:
        return v
    sinc = mp.sin(half) / half
    slope = dot(u, v) / (4 * half * half)  # of the angle half, by half itself
    change = [
        -mp.sin(half) * half * slope,
        *add(scaled(sinc / 2, v), scaled((mp.cos(half) - sinc) * slope / 2, u)),
    ]
    return scaled(2, multiply(conjugate(exp(u)), change)[1:])


def dexpinv(u: Vector, v: Vector) -> Vector:
    """The vector that ``dexp`` at u takes to v."""
    return solve([dexp(u, [mp.mpf(i == j) for j in range(3)]) for i in range(3)], v)


def dominant(matrix: list[Vector]) -> Vector:
    """Unit eigenvector of the largest eigenvalue of a symmetric positive semidefinite matrix: M^n is its projector in the limit.

    n = 2^12 leaves (ratio of the eigenvalues)^4096, below 1e-100 for ratios below 0.94.
    """
    size = range(len(matrix))
    for _ in range(12):
        trace = sum(matrix[i][i] for i in size)
        matrix = [scaled(1 / trace, row) for row in matrix]
        half = [
            [dot(row, other) for other in matrix[: i + 1]] for i, row in enumerate(matrix)
        ]  # symmetric: a row is a column
        matrix = [[half[max(i, j)][min(i, j)] for j in size] for i in size]
    return canonical(max(matrix, key=lambda row: dot(row, row)))


def mean(attitudes: list[Vector], weights: Vector) -> Vector:
    """Maximises ``sum w (p.q)^2``."""
    outer = [
        [sum(w * q[i] * q[j] for w, q in zip(weights, attitudes, strict=True)) for j in range(4)]
        for i in range(4)
    ]
    return dominant(outer)


def from_vectors(body: list[Vector], world: list[Vector], weights: Vector) -> Vector:
    """Maximises ``sum w world.(q body q*)``, a quadratic form of q; the sum of the w on its diagonal makes it positive."""
    pairs = [(unit(b), unit(v), w) for b, v, w in zip(body, world, weights, strict=True)]

    def gain(p: Vector, q: Vector) -> Any:
        images = [multiply(multiply(p, [mp.zero, *b]), conjugate(q))[1:] for b, _, _ in pairs]
        return sum(w * dot(v, image) for (_, v, w), image in zip(pairs, images, strict=True))

    units = [[mp.mpf(i == j) for j in range(4)] for i in range(4)]
    shift = sum(weights)
    return dominant(
        [[(gain(p, q) + gain(q, p)) / 2 + shift * (p == q) for q in units] for p in units]
    )


def triad(body: list[Vector], world: list[Vector]) -> Vector:
    """The rotation of the frames (first, normal of both, their product); its quaternion dominates ``sum world.(q body q*)``."""

    def frame(a: Vector, b: Vector) -> list[Vector]:
        first, normal = unit(a), unit(cross(a, b))
        return [first, normal, cross(first, normal)]

    return from_vectors(frame(*body), frame(*world), [mp.one] * 3)


def about(axis: int, angle: Any) -> Vector:
    """The turn by an angle about a coordinate axis."""
    q = [mp.cos(angle / 2), mp.zero, mp.zero, mp.zero]
    q[1 + axis] = mp.sin(angle / 2)
    return q


def _turns(angles: Vector, order: str) -> list[tuple[int, Any]]:
    """(axis, angle) in the order of multiplication: intrinsic turns multiply on the right, extrinsic ones on the left."""
    turns = [
        ("XYZ".index(letter), angle) for letter, angle in zip(order.upper(), angles, strict=True)
    ]
    return turns[::-1] if order.islower() else turns


def euler_to_quaternion(angles: Vector, order: str) -> Vector:
    first, second, third = (about(*turn) for turn in _turns(angles, order))
    return multiply(multiply(first, second), third)


def euler_rate_matrix(angles: Vector, order: str) -> list[Vector]:
    """Columns ``2 vec(q* dq/dangle)``; the derivative of a turn by its angle is half the turn by an angle larger by pi."""
    columns = []
    for k in range(3):
        raised = [angle + mp.pi * (j == k) for j, angle in enumerate(angles)]
        columns.append(
            multiply(
                conjugate(euler_to_quaternion(angles, order)), euler_to_quaternion(raised, order)
            )[1:]
        )
    return [list(row) for row in zip(*columns, strict=True)]


def euler_from_quaternion(q: Vector, order: str) -> Vector:
    """From the rotation matrix R, in whose row i and column k, of the first and last axis, the angles stand one by one."""
    i, j, k = ["XYZ".index(letter) for letter in order.upper()][:: -1 if order.islower() else 1]
    other = 3 - i - j
    sign = 1 if (j - i) % 3 == 1 else -1
    r = to_matrix(q)
    if i == k:
        angles = [
            mp.atan2(r[j][i], -sign * r[other][i]),
            mp.atan2(mp.hypot(r[i][j], r[i][other]), r[i][i]),
            mp.atan2(r[i][j], sign * r[i][other]),
        ]
    else:
        angles = [
            mp.atan2(-sign * r[j][k], r[k][k]),
            mp.atan2(sign * r[i][k], mp.hypot(r[i][i], r[i][j])),
            mp.atan2(-sign * r[i][j], r[i][i]),
        ]
    return angles[::-1] if order.islower() else angles


def acceleration(inertia: list[Vector], omega: Vector, tau: Vector) -> Vector:
    """Euler's equation in body axes; the inertia is symmetric."""
    return solve(inertia, add(tau, scaled(-1, cross(omega, matvec(inertia, omega)))))


def lifted_step(
    tableau: Any, inertia: list[Vector], torque: Callable, t: Any, state: tuple, dt: Any
) -> tuple:
    """The tableau on ``(u, omega, aux)``, ``q = q0 exp(u)``; ``torque(t, q, omega, aux) -> (torque, d aux/dt)``."""
    q, omega, aux = state
    start = [mp.zero] * 3 + omega + aux
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
    """Zhao and van Wachem 2013 as they wrote it, the rotations taken with WORLD rates on the left; misprints mended."""
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
    """(q, omega) of the free body, moments and rates in principal axes, from Jacobi's amplitudes and the phase of the start.

    Whittaker 1937, section 69, and for the attitude arg theta_4(z + i v | q^2), twice whose slope is the rate of turn about the
    momentum less its mean: both by theta series in the one nome exp(-pi K'/K). These formulas divide by zero at the middle axis,
    at equal moments and elsewhere: hence everything is moved by 1e-60, which the motion amplifies by exp(rate t) at most.
    """
    with mp.workdps(180):
        size = mp.sqrt(dot(omega, omega))
        if size == 0:
            return [*q, *omega]
        tiny = mp.mpf(10) ** -60
        moments = [x * (1 + k * tiny) for x, k in zip(moments, (1, 3, -2), strict=True)]
        omega = [x + size * k * tiny for x, k in zip(omega, (3, 2, 5), strict=True)]

        order = sorted(range(3), key=lambda k: moments[k])
        (i1, i2, i3), (w1, _, w3) = ([x[k] for k in order] for x in (moments, omega))
        if i3 * (i3 - i2) * w3**2 < i1 * (i2 - i1) * w1**2:
            order = order[::-1]  # axis 3 is the one that the momentum circles
        signs = [-1 if omega[k] < 0 else 1 for k in order]
        signs[1] = signs[0] * signs[2] * (1 if order in ([0, 1, 2], [1, 2, 0], [2, 0, 1]) else -1)
        i1, i2, i3 = (moments[k] for k in order)
        w1, w2, w3 = (sign * omega[k] for k, sign in zip(order, signs, strict=True))
        outer, lower, upper = i3 - i1, i2 - i1, i3 - i2
        sense = mp.sign(outer)

        a1 = mp.sqrt(w1**2 + i2 * upper / (i1 * outer) * w2**2)
        a2 = a1 * mp.sqrt(i1 * outer / (i2 * upper))
        a3 = mp.sqrt(w3**2 + i2 * lower / (i3 * outer) * w2**2)
        rate = a3 * mp.sqrt(outer * upper / (i1 * i2))
        k = a1 / a3 * mp.sqrt(i1 * lower / (i3 * upper))
        complement = mp.sqrt(
            outer * (i3 * upper * w3**2 - i1 * lower * w1**2) / (upper * (i3 * outer * a3**2))
        )
        quarter = mp.pi / (2 * mp.agm(1, complement))
        nome = mp.exp(-mp.pi * mp.agm(1, complement) / mp.agm(1, k))
        momentum = mp.sqrt((i1 * w1) ** 2 + (i2 * w2) ** 2 + (i3 * w3) ** 2)
        kappa = i3 * a3 / momentum
        v = mp.pi / (2 * quarter) * _first_kind(mp.atan2(1, mp.sqrt(i3 * lower / (i1 * upper))), k)
        _, two, three, four = _thetas(mp.zero, nome)

        def at(u: Any) -> tuple[Vector, Any]:
            one, other, third, fourth = _thetas(mp.pi * u / (2 * quarter), nome)
            amplitudes = (
                three / two * a2 * sense * one,
                four / two * a1 * other,
                four / three * a3 * third,
            )
            sn, cn, dn = (x / fourth for x in amplitudes)
            return [cn, sn, dn], _theta_argument(mp.pi * u / (2 * quarter), v, nome**2)[0]

        phase = _first_kind(mp.atan2(sense * w2 / a2, w1 / a1), complement)
        (_, start), (rates, end) = at(phase), at(phase + rate * t)
        slope = _theta_argument(mp.zero, v, nome**2)[1] * mp.pi / (2 * quarter)
        mean = momentum * (kappa / i3 + (1 - kappa) / i1) + 2 * sense * rate * slope
        half = mean * t / 2 - sense * (end - start)

        def upright(rates: Vector) -> Vector:
            x, y, z = (i * w / momentum for i, w in zip((i1, i2, i3), rates, strict=True))
            return unit([1 + z, y, -x, mp.zero])

        turn = multiply([mp.cos(half), mp.zero, mp.zero, mp.sin(half)], upright(rates))
        turn = multiply(conjugate(upright([w1, w2, w3])), turn)
        vector_part, end_rates = [mp.zero] * 3, [mp.zero] * 3
        for k, axis in enumerate(order):
            vector_part[axis], end_rates[axis] = signs[k] * turn[1 + k], signs[k] * rates[k]
        return [*multiply(q, [turn[0], *vector_part]), *end_rates]


def _first_kind(phase: Any, complement: Any) -> Any:
    """F(phase | 1 - complement^2) by Landen's transformation."""
    a, b, turns, last = mp.one, complement, 1, False
    while not last:
        last = abs(a - b) < mp.mpf(10) ** (-mp.dps // 2)
        sine, cosine = mp.sin(phase), mp.cos(phase)
        phase = 2 * phase - mp.atan2((a - b) * sine * cosine, a * cosine**2 + b * sine**2)
        a, b, turns = (a + b) / 2, mp.sqrt(a * b), 2 * turns
    return phase / (turns * a)


def _thetas(z: Any, nome: Any) -> Vector:
    """theta_1 to theta_4 of real z."""
    double = 2 * mp.cos(2 * z)
    even, odd, sines = (mp.one, double / 2), (mp.cos(z), mp.cos(z)), (-mp.sin(z), mp.sin(z))
    first, second, third, fourth = mp.zero, mp.zero, mp.one, mp.one
    sign, square, between, step = 1, nome, mp.one, nome * nome
    while between > mp.eps:  # nome^(n^2), nome^(n (n + 1)) and nome^(2 n)
        first, second = first + 2 * sign * between * sines[1], second + 2 * between * odd[1]
        third, fourth = third + 2 * square * even[1], fourth - 2 * sign * square * even[1]
        even, odd, sines = ((x[1], double * x[1] - x[0]) for x in (even, odd, sines))
        sign, between = -sign, between * step
        step *= nome * nome
        square *= step / nome
    root = mp.sqrt(mp.sqrt(nome))
    return [root * first, root * second, third, fourth]


def _theta_argument(z: Any, v: Any, nome: Any) -> tuple[Any, Any]:
    """The argument of theta_4(z + i v) and its slope by z."""
    up, down = mp.expj(2 * z) * mp.exp(-2 * v), mp.expj(-2 * z) * mp.exp(2 * v)
    total, slope, powers, n, square, step = mp.mpc(1), mp.mpc(0), (up, down), 1, -nome, -(nome**3)
    while abs(square) * abs(powers[1]) > mp.eps:
        total += square * (powers[0] + powers[1])
        slope += square * 2j * n * (powers[0] - powers[1])
        powers, n = (powers[0] * up, powers[1] * down), n + 1
        square, step = square * step, step * nome**2
    return mp.arg(total), (slope / total).imag

"""How errors of samples propagate to the end of a motion: by biases, and by white noise.

A shift of one sensor channel during one step changes the turn, the gain in velocity and the
displacement of that step; the motion that remains carries these to the end. The sum over the steps
is the derivative by a bias, the sum of weighted squares the covariance.

Each component is an array of its own here, with one number a step: a vector is a tuple of three of
them, a matrix a tuple of three columns. XLA makes one plain loop over all steps of each. With a
last axis of length 3 the same formulas take three times as long.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxquat import _series as series
from jaxquat._linear import stacked
from jaxquat.sensing.galilean import Motion

Vector = list[Array]
Matrix = list[Vector]  # its columns


def propagate(
    xi: Array, by_shift: Array | None, before: Motion, after: Motion, variances: Array
) -> tuple[Array, Array]:
    """The derivative of the errors at the end by a shift of all samples, and their covariance.

    The nine errors are turn, velocity and displacement, all in axes at the start of the motion.

    Args:
        xi: elements of the Galilean algebra, whose exponentials are the M steps, (M, 10).
        by_shift: their derivatives by a shift of the six channels, (M, 10, 6). None where xi is the
            sample times the time of the step.
        before: the motions up to the beginning of each step, (M, ...).
        after: the motions up to its end, (M, ...).
        variances: of the white noise in the samples of each step, (M, 6).

    Returns:
        (9, 6) and (9, 9).
    """
    gyro, accel = _steps_by_shift(xi) if by_shift is None else _steps_by_shift_of(xi, by_shift)
    errors = [_at_the_end(turn, v, p, before, after) for turn, v, p in gyro]
    errors += [_at_the_end(None, v, p, before, after) for v, p in accel]
    zero = jnp.zeros((), xi.dtype)
    jacobian = [[jnp.sum(e[i]) if i in e else zero for e in errors] for i in range(9)]
    weights = _components(variances)

    def covariance(i: int, j: int) -> Array:
        terms = [w * e[i] * e[j] for w, e in zip(weights, errors, strict=True) if i in e and j in e]
        return jnp.sum(sum(terms[1:], terms[0]))

    lower = {(i, j): covariance(i, j) for i in range(9) for j in range(i + 1)}
    rows = [[lower[max(i, j), min(i, j)] for j in range(9)] for i in range(9)]
    return stacked(jacobian), stacked(rows)


def _at_the_end(
    turn: Vector | None, v: Vector, p: Vector, before: Motion, after: Motion
) -> dict[int, Array]:
    """The errors at the end, by their numbers, from those of the steps in axes at their start.

    A turn of all that remains moves the remaining velocity and displacement with it. The specific
    force turns nothing.
    """
    rotation = _rotation(_components(before.q))
    left = after.t[-1] - after.t[:, 0]
    v, p = _product(rotation, v), _product(rotation, p)
    p = [x + left * y for x, y in zip(p, v, strict=True)]
    if turn is None:
        return dict(enumerate([*v, *p], 3))
    turn = _product(rotation, turn)
    velocity = after.v[-1:] - after.v
    displacement = after.p[-1:] - after.p - after.v * left[:, None]
    v = _plus(v, _cross(turn, _components(velocity)))
    p = _plus(p, _cross(turn, _components(displacement)))
    return dict(enumerate([*turn, *v, *p]))


def _steps_by_shift(xi: Array) -> tuple[list[Any], list[Any]]:
    """Turn, velocity and displacement of all steps by the channels of the rate, then of the force.

    They stand in axes at the start of the steps. Of the force there is no turn.
    """
    theta, nu, _, tau = _parts(xi)
    (mean, v_by_turn), (second, p_by_turn) = _mean(theta, nu), _second_mean(theta, nu)
    turn, v_by_turn = _times(tau, mean), _times(tau, v_by_turn)
    p_by_force, p_by_turn = _times(tau * tau, second), _times(tau * tau, p_by_turn)
    gyro = list(zip(turn, v_by_turn, p_by_turn, strict=True))
    return gyro, list(zip(turn, p_by_force, strict=True))


def _steps_by_shift_of(xi: Array, by_shift: Array) -> tuple[list[Any], list[Any]]:
    """Like ``_steps_by_shift`` where a shift changes all of xi but its time."""
    theta, nu, rho, tau = _parts(xi)
    (mean, v_by_turn), (second, p_by_turn) = _mean(theta, nu), _second_mean(theta, nu)
    moved = _mean(theta, rho)[1]
    p_by_turn = [_plus(x, y) for x, y in zip(_times(tau, p_by_turn), moved, strict=True)]
    p_by_force = _times(tau, second)
    gyro, accel = [], []
    for channel in range(6):
        d_theta, d_nu, d_rho, _ = _parts(by_shift[..., channel])
        v, p = _product(mean, d_nu), _plus(_product(mean, d_rho), _product(p_by_force, d_nu))
        if channel < 3:
            turn = _product(mean, d_theta)
            v, p = _plus(v, _product(v_by_turn, d_theta)), _plus(p, _product(p_by_turn, d_theta))
            gyro.append((turn, v, p))
        else:
            accel.append((v, p))
    return gyro, accel


def _mean(theta: Vector, v: Vector) -> tuple[Matrix, Matrix]:
    """J, the sum of ``hat(theta)^n/(n+1)!``, and the derivative of ``J v`` by theta.

    ``exp(theta + d) = exp(J d) exp(theta)`` to first order, and ``J v`` is the mean of v turned on
    the way.
    """
    y = _dot(theta, theta)
    b, d = series.sin_defect(0.25 * y), series.cos_defect(0.25 * y)
    slopes = d - 0.5 * b, 0.25 * series.sin_defect_slope(0.25 * y)
    return _sum_of_powers(theta, v, 1.0 - y * b, (0.5 - y * d, b), slopes)


def _second_mean(theta: Vector, v: Vector) -> tuple[Matrix, Matrix]:
    """N, the sum of ``hat(theta)^n/(n+2)!``, and the derivative of ``N v`` by theta."""
    y = _dot(theta, theta)
    b, d = series.sin_defect(0.25 * y), series.cos_defect(0.25 * y)
    slopes = series.sin_defect_slope(0.25 * y), series.cos_defect_slope(0.25 * y)
    return _sum_of_powers(theta, v, 0.5 - y * d, (b, d), (0.25 * slopes[0], 0.25 * slopes[1]))


def _sum_of_powers(
    theta: Vector, v: Vector, one: Array, factors: tuple[Array, Array], slopes: tuple[Array, Array]
) -> tuple[Matrix, Matrix]:
    """``M = one + f hat(theta) + g theta theta^T``, and the derivative of ``M v`` by theta.

    ``M v`` is ``c v + f theta × v + g theta × (theta × v)`` with a constant c. The slopes are those
    of f and g by ``|theta|^2``.
    """
    f, g = factors
    once = _cross(theta, v)
    along = _plus(_times(slopes[0], once), _times(slopes[1], _cross(theta, once)))
    along = _times(2.0, _plus(along, _times(-g, v)))
    g_theta = _times(g, theta)
    matrix = _matrix(one, _times(f, theta), (g_theta, theta))
    return matrix, _matrix(g * _dot(theta, v), _times(-f, v), (along, theta), (g_theta, v))


def _matrix(one: Array, axis: Vector, *dyads: tuple[Vector, Vector]) -> Matrix:
    """``one + hat(axis)`` and the sum of the dyads ``a b^T``."""
    columns = []
    for j in range(3):
        column = [one, axis[(j + 2) % 3], -axis[(j + 1) % 3]]  # of the rows j, j + 1 and j + 2
        column = [column[(i - j) % 3] for i in range(3)]
        for a, b in dyads:
            column = _plus(column, _times(b[j], a))
        columns.append(column)
    return columns


def _rotation(q: Vector) -> Matrix:
    """The matrix of unit quaternions: ``1 + 2 w hat(x) - 2 |x|^2 + 2 x x^T``."""
    w, x = q[0], q[1:]
    twice = _times(2.0, x)
    return _matrix(1.0 - _dot(twice, x), _times(w, twice), (twice, x))


def _parts(xi: Array) -> tuple[Vector, Vector, Vector, Array]:
    """theta, nu, rho and tau of (M, 10)."""
    components = _components(xi)
    return components[:3], components[3:6], components[6:9], components[9]


def _components(rows: Array) -> Vector:
    return [rows[:, k] for k in range(rows.shape[1])]


def _product(matrix: Matrix, v: Vector) -> Vector:
    x, y, z = (_times(factor, column) for factor, column in zip(v, matrix, strict=True))
    return _plus(_plus(x, y), z)


def _times(factor: Any, value: Any) -> Any:
    """A vector or a matrix times a number."""
    return [_times(factor, x) if isinstance(x, list) else factor * x for x in value]


def _plus(a: Vector, b: Vector) -> Vector:
    return [x + y for x, y in zip(a, b, strict=True)]


def _dot(a: Vector, b: Vector) -> Array:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _cross(a: Vector, b: Vector) -> Vector:
    return [a[i] * b[j] - a[j] * b[i] for i, j in ((1, 2), (2, 0), (0, 1))]

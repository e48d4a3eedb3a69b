"""An ellipsoid in a creeping flow whose velocity gradient is uniform over the body.

    rate = flow.jeffery_rate(semi_axes, gradient)
    damping = flow.rotational_resistance(semi_axes, viscosity)
    scheme = schemes.damp(jq.no_squish, damping, toward=rate)

The torque on the body is ``damping (rate - omega)`` (G. B. Jeffery, Proc. R. Soc. A 102, 1922,
161-179, (36)). For a particle that also settles, add
``resistance=flow.translational_resistance(...)``. Semi-axes (3,) [m] lie along the body axes; the
viscosity is that of the fluid [Pa s]. The gradient (3, 3) [1/s], ``gradient[i, j] = du_i/dx_j`` in
WORLD axes, is constant or ``gradient(t, state, params)``, with the command, if any, as for torques.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, positive
from jaxquat._internal.linear import matmul, sums_of_others, transpose
from jaxquat.dynamics.contract import of_state
from jaxquat.dynamics.state import State
from jaxquat.quaternion import to_matrix

__all__ = ["jeffery_rate", "rotational_resistance", "translational_resistance"]

_DUPLICATIONS = 9  # the remainder is below 1e-17 for semi-axes in ratios up to 10^4

Gradient = ArrayLike | Callable[..., Array]


def rotational_resistance(semi_axes: ArrayLike, viscosity: ArrayLike) -> Array:
    """Return the torque per angular velocity [N m s] about the axes of an ellipsoid. -> (3,).

    It is ``16 pi mu (a_2^2 + a_3^2)/(3 (a_2^2 b_2 + a_3^2 b_3))`` about the first axis and cyclic,
    with b the integrals of ``1/((a_i^2 + l) sqrt((a_1^2 + l)(a_2^2 + l)(a_3^2 + l)))`` over l > 0.
    G. B. Jeffery, Proc. R. Soc. A 102, 1922, 161-179, (36).

    Examples:
        >>> f"{jq.flow.rotational_resistance(jnp.full(3, 0.01), 1.0)[0]:.2e} N m s"  # 8 pi mu a^3
        '2.51e-05 N m s'
    """
    viscosity, size, square, pressure = _ellipsoid(semi_axes, viscosity)
    factor = 16.0 * jnp.pi / 3.0 * viscosity * size**3
    return factor * sums_of_others(square) / sums_of_others(pressure)


def translational_resistance(semi_axes: ArrayLike, viscosity: ArrayLike) -> Array:
    """Return the force per velocity [N s/m] along the axes of an ellipsoid. -> (3,).

    It is ``16 pi mu/(c + a_i^2 b_i)``, with b of ``rotational_resistance`` and
    ``c = sum a_i^2 b_i``. J. Happel and H. Brenner, Low Reynolds Number Hydrodynamics, 1965,
    section 5-11.

    Examples:
        >>> f"{jq.flow.translational_resistance(jnp.full(3, 0.01), 1.0)[0]:.2f} N s/m"  # 6 pi mu a
        '0.19 N s/m'
    """
    viscosity, size, _, pressure = _ellipsoid(semi_axes, viscosity)
    return 16.0 * jnp.pi * viscosity * size / (jnp.sum(pressure) + pressure)


def jeffery_rate(semi_axes: ArrayLike, gradient: Gradient) -> Callable[..., Array]:
    """Return the rate (3,) [rad/s], body axes, of an ellipsoid without inertia, as a function.

    Call it as ``rate(t, q, params)``, for ``kinematics.rollout_of_attitude``, or
    ``rate(t, state, params)``, for ``toward`` of ``schemes.damp``, with the command, if any; with
    q, the gradient gets a State at rest. The rate is ``W_1 + (a_2^2 - a_3^2)/(a_2^2 + a_3^2) E_23``
    about the first axis and cyclic, with the rate of strain E and half the vorticity W in body axes
    (Jeffery 1922, (37)). A spheroid of aspect ratio r in a shear flow of rate g repeats after
    ``2 pi (r + 1/r)/g``.

    Examples:
        >>> shear = jnp.zeros((3, 3)).at[0, 1].set(2.0)  # u_x = 2 y [m/s]
        >>> spheroid = jq.flow.jeffery_rate(jnp.array([2.0, 1.0, 1.0]), shear)  # along the flow
        >>> spheroid(0.0, jnp.array([1.0, 0.0, 0.0, 0.0]))[2].round(3)  # rad/s
        Array(-0.4, dtype=float32)
    """
    a = exactly("semi_axes", semi_axes, (3,))
    positive("semi_axes", a)
    gradient_at = of_state("gradient", gradient, (3, 3))
    square = (a / jnp.sum(a)) ** 2
    second, third = jnp.roll(square, -1), jnp.roll(square, 1)
    slenderness = (second - third) / (second + third)

    def jeffery_rate(
        t: ArrayLike, q: ArrayLike | State, params: Any = None, *command: Any
    ) -> Array:
        state = q if isinstance(q, State) else State(jnp.asarray(q), jnp.zeros_like(q, shape=(3,)))
        rotation = to_matrix(state.q)
        g = matmul(transpose(rotation), matmul(gradient_at(t, state, params, *command), rotation))
        above = jnp.stack([g[1, 2], g[2, 0], g[0, 1]])
        below = jnp.stack([g[2, 1], g[0, 2], g[1, 0]])
        return 0.5 * (below - above + slenderness * (below + above))

    return jeffery_rate


def _ellipsoid(semi_axes: ArrayLike, viscosity: ArrayLike) -> tuple[Array, Array, Array, Array]:
    """Return the viscosity, the mean semi-axis s, (a/s)^2, and (a/s)^2 times the integrals b."""
    a, viscosity = exactly("semi_axes", semi_axes, (3,)), exactly("viscosity", viscosity, ())
    positive("semi_axes", a)
    positive("viscosity", viscosity)
    viscosity, size = jnp.asarray(viscosity, a.dtype), jnp.mean(a)
    square = (a / size) ** 2
    integrals = 2.0 / 3.0 * _carlson(jnp.roll(square, -1), jnp.roll(square, 1), square)
    return viscosity, size, square, square * integrals


def _carlson(x: Array, y: Array, z: Array) -> Array:
    """Return R_D(x, y, z) by duplication (B. C. Carlson, Numerical Algorithms 10, 1995, 13-26)."""
    mean = (x + y + 3.0 * z) / 5.0
    dx, dy, share, total = mean - x, mean - y, 1.0, jnp.zeros_like(z)
    for _ in range(_DUPLICATIONS):
        rx, ry, rz = jnp.sqrt(x), jnp.sqrt(y), jnp.sqrt(z)
        shift = rx * ry + rx * rz + ry * rz
        total = total + share / (rz * (z + shift))
        x, y, z, mean = (0.25 * (value + shift) for value in (x, y, z, mean))
        share = 0.25 * share
    u, v = share * dx / mean, share * dy / mean
    w = -(u + v) / 3.0
    product, square = u * v, w * w
    e2, e3 = product - 6.0 * square, (3.0 * product - 8.0 * square) * w
    e4, e5 = 3.0 * (product - square) * square, product * square * w
    series = 1.0 - 3.0 / 14.0 * e2 + e3 / 6.0 + 9.0 / 88.0 * e2 * e2
    series = series - 3.0 / 22.0 * e4 - 9.0 / 52.0 * e2 * e3 + 3.0 / 26.0 * e5
    return share * series / (mean * jnp.sqrt(mean)) + 3.0 * total

"""Prescribed motions: coning, and any smooth attitude of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import scalar, takes
from jaxquat._internal.linear import cross, matvec
from jaxquat.control import follow
from jaxquat.dynamics.body import Body, check_body
from jaxquat.dynamics.contract import Torque
from jaxquat.dynamics.state import State


def coning(t: ArrayLike, *, half_angle: ArrayLike, rate: ArrayLike) -> State:
    """Return the State of a body whose axis z describes a cone, at one time t [s].

    The attitude is a turn by ``half_angle`` [rad] about a horizontal axis, which turns at ``rate``
    [rad/s].

    Examples:
        >>> state = jq.exact.coning(0.0, half_angle=0.1, rate=2.0)  # rad, rad/s
        >>> state.omega[1:].round(3)  # 2 sin(0.1) about y, -2 (1 - cos(0.1)) about z
        Array([ 0.2 , -0.01], dtype=float32)
    """
    t, b, rate = scalar("t", t), scalar("half_angle", half_angle), scalar("rate", rate)
    dtype = jnp.result_type(b, rate, t)
    t, b, rate = (x.astype(dtype) for x in (t, b, rate))
    sine, cosine, half = jnp.sin(rate * t), jnp.cos(rate * t), jnp.sin(0.5 * b)
    q = jnp.stack([jnp.cos(0.5 * b), half * cosine, half * sine, jnp.zeros_like(b)])
    across = rate * jnp.sin(b)
    # 2 sin^2(b/2) instead of 1 - cos b, which loses all digits for narrow cones
    return State(q, jnp.stack([-across * sine, across * cosine, -2.0 * rate * half**2]))


def prescribed(
    body: Body, attitude: Callable[[Array], Array]
) -> tuple[Callable[[ArrayLike], State], Torque]:
    """Return ``(state, torque)`` of a motion ``attitude(t) -> (4,)``, smooth and unit.

    ``state(t)`` is the State at time t [s]; ``torque(t, state, params)`` depends only on t.

    Examples:
        >>> attitude = lambda t: jq.quaternion.exp(jnp.array([0.0, 0.0, 0.5]) * t**2)  # 1 rad/s^2
        >>> state, torque = jq.exact.prescribed(jq.Body(4.0 * jnp.eye(3)), attitude)
        >>> f"{state(3.0).omega[2]:.2f} rad/s, {torque(3.0, state(3.0), None)[2]:.2f} N m"
        '3.00 rad/s, 4.00 N m'
    """
    check_body(body)
    takes("attitude", attitude, "t")

    def state(t: ArrayLike) -> State:
        reference = follow(attitude, scalar("t", t))
        return State(reference.q, reference.omega)

    def torque(t: ArrayLike, state: State, params: Any, *command: Any) -> Array:
        _, omega, alpha = follow(attitude, t)
        return matvec(body.inertia, alpha) + cross(omega, matvec(body.inertia, omega))

    return state, torque

"""A precession at a constant rate: coning."""

from __future__ import annotations

import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxquat._internal.checks import scalar
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

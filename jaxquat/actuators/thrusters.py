"""Thrusters that are open or closed."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import broadcast, every, is_concrete, not_negative, positive
from jaxquat._internal.linear import scale_of


def pulse_widths(
    forces: ArrayLike, thrust: ArrayLike, interval: ArrayLike, minimum: ArrayLike = 0.0
) -> Array:
    """Return how long to open on-off thrusters in an interval for mean forces. -> (...) [s].

    The width is ``interval * force/thrust``, at most the interval, and 0 below ``minimum``.
    ``schemes.split_steps`` steps to the ends of the pulses.

    Args:
        forces: mean forces [N], (...); negative ones count as 0.
        thrust: of the open thruster [N], positive; like the others () or broadcast with forces.
        interval: from one command to the next [s], positive.
        minimum: shortest pulse [s], such as a valve's least on-time, from 0 to the interval.

    Examples:
        >>> forces = jnp.array([0.25, 0.01, 3.0])  # N
        >>> jq.actuators.pulse_widths(forces, thrust=1.0, interval=0.5, minimum=0.02)  # s
        Array([0.125, 0.   , 0.5  ], dtype=float32)
    """
    forces, thrust, interval, minimum = broadcast(
        ("forces", forces, ()), ("thrust", thrust, ()), ("interval", interval, ()),
        ("minimum", minimum, ()),
    )  # fmt: skip
    positive("thrust", thrust)
    positive("interval", interval)
    not_negative("minimum", minimum)
    if is_concrete((minimum, interval)):
        shortest, longest = np.broadcast_arrays(minimum, interval)
        every("minimum", f"at most the interval, {longest} s", shortest, shortest <= longest)
    scale = scale_of(thrust)
    forces, thrust = scale * forces, scale * thrust
    full = forces >= thrust
    share = jnp.where(full | (forces <= 0), 0.0, forces) / thrust
    width = interval * jnp.where(full, 1.0, share)
    return jnp.where(width < minimum, 0.0, width)

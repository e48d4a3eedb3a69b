"""What stands between a commanded torque and the body."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat.arguments import broadcast, positive


def saturate(tau: ArrayLike, limits: ArrayLike) -> Array:
    """Hard limit per axis, ``-limits <= tau <= limits`` [N m]. (..., 3), (..., 3) -> (..., 3).

    The gradient is 1 inside and 0 outside. Hoffmann, Application of Quaternions, 9.10.
    """
    tau, limits = broadcast(("tau", tau, (3,)), ("limits", limits, (3,)))
    positive("limits", limits)
    return jnp.clip(tau, -limits, limits)


def saturate_smooth(tau: ArrayLike, limits: ArrayLike) -> Array:
    """``limits tanh(tau/limits)``: never beyond the limits, slope 1 at zero, smooth. (..., 3), (..., 3) -> (..., 3)."""
    tau, limits = broadcast(("tau", tau, (3,)), ("limits", limits, (3,)))
    positive("limits", limits)
    return limits * jnp.tanh(tau / limits)

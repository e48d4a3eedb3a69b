"""The body's own units, in which every step works.

Only the ratios of torques to moments and of forces to the mass matter. A step divides moments and
torques by the power of two next to the largest moment, mass and forces by that next to the mass. No
digit changes, but intermediate values and derivatives stay within the range of the dtype: JAX's
derivative of x / y with respect to y, -x y^-2, leaves it long before x / y does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import Array

from jaxquat._internal.linear import scale_of
from jaxquat.dynamics.body import Body, scaled
from jaxquat.dynamics.contract import Torque, evaluate, name_of
from jaxquat.dynamics.state import State, Wrench


class Scales(NamedTuple):
    """Powers of two () that convert to the body's own units."""

    torque: Array | float  # for moments and torques
    force: Array | float  # for mass and forces; 1 without a mass


def own_units(body: Body) -> tuple[Body, Scales]:
    """Return the body in its own units, and the scales that convert to them."""
    moments = jax.tree.leaves(body)[0]  # or the inertia
    scales = Scales(scale_of(moments), 1.0 if body.mass is None else scale_of(body.mass))
    return scaled(body, *scales), scales


def torque_in(scales: Scales, torque: Torque) -> Torque:
    """Return the torque in the units of these scales, and so its force if there is one."""

    def torque_in_units(t: Array, state: State, params: Any) -> Any:
        tau, aux_rates, force = evaluate(torque, t, state, params)
        acting = scales.torque * tau
        if force is not None:
            acting = Wrench(acting, scales.force * force)
        return (acting, aux_rates) if jax.tree.leaves(state.aux) else acting

    torque_in_units.__name__ = name_of(torque)
    return torque_in_units

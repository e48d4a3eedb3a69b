"""Units of the body's own, in which every step works.

Euler's and Newton's equations hold torques and moments, forces and the mass as ratios only. A step
therefore divides moments and torques by the power of two next to the largest moment, the mass and
forces by that next to the mass. That changes no digit. But what a step makes of them stays within
the range of the dtype, in the units of a molecule as in those of a planet, and so do derivatives:
JAX has that of x / y by y as -x y^-2, which leaves the range long before x / y does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import Array
from jax.typing import ArrayLike

from jaxquat._linear import scale_of
from jaxquat.dynamics.body import Body, scaled
from jaxquat.dynamics.contract import Torque, check_step, evaluate, name_of
from jaxquat.dynamics.state import State, Wrench


class Scales(NamedTuple):
    """By what numbers are multiplied to be in the body's own units: powers of two.

    Attributes:
        torque: for moments, torques and all else that is proportional to them, ().
        force: for the mass, forces and all else that is proportional to them, (); 1 without a mass.
    """

    torque: Array | float
    force: Array | float


def own_units(body: Body) -> tuple[Body, Scales]:
    """The body in its own units, and the scales of these."""
    moments = jax.tree.leaves(body)[0]  # or the inertia
    scales = Scales(scale_of(moments), 1.0 if body.mass is None else scale_of(body.mass))
    return scaled(body, *scales), scales


def own_step(
    body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike
) -> tuple[Body, Torque, Array, State, Array]:
    """The checked arguments of a step, with body and torque in the units of the body."""
    t, state, dt = check_step(body, t, state, dt)
    body, scales = own_units(body)

    def torque_in_own_units(t: Array, state: State, params: Any) -> Any:
        tau, aux_rates, force = evaluate(torque, t, state, params)
        acting = scales.torque * tau
        if force is not None:
            acting = Wrench(acting, scales.force * force)
        return (acting, aux_rates) if jax.tree.leaves(state.aux) else acting

    torque_in_own_units.__name__ = name_of(torque)
    return body, torque_in_own_units, t, state, dt

"""The motion of one rigid body: its state, Euler's equation, energy, momentum, error states.

``q' = 1/2 q (0, omega)`` and ``I omega' = tau - omega × (I omega)``, in body axes; with a position,
``m velocity' = force`` in world axes. The examples use a body that spins about its z axis:

Examples:
    >>> body = jq.Body(jnp.diag(jnp.array([2.0, 3.0, 4.0])))  # kg m^2
    >>> state = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.0, 2.0]))  # rad/s
"""

from jaxquat.dynamics.appendages import Appendages, coupled, flexible_modes, slosh_masses
from jaxquat.dynamics.contract import Torque
from jaxquat.dynamics.motion import derivative, energy, linearize, momentum
from jaxquat.dynamics.state import Rates, local, retract

__all__ = [
    "Appendages",
    "Rates",
    "Torque",
    "coupled",
    "derivative",
    "energy",
    "flexible_modes",
    "linearize",
    "local",
    "momentum",
    "retract",
    "slosh_masses",
]

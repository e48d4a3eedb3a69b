"""The motion of one rigid body: its state, Euler's equation, energy, momentum, error states.

``q' = 1/2 q (0, omega)`` and ``I omega' = tau - omega × (I omega)``, all in body axes; with a
position ``m velocity' = force`` in world axes. The conventions are those of ``jaxquat.quaternion``.
"""

from jaxquat.dynamics.appendages import Appendages, coupled, flexible_modes, slosh_masses
from jaxquat.dynamics.contract import Torque
from jaxquat.dynamics.motion import (
    angular_acceleration,
    derivative,
    energy,
    linearize,
    momentum,
)
from jaxquat.dynamics.state import Rates, local, retract

__all__ = [
    "Appendages",
    "Rates",
    "Torque",
    "angular_acceleration",
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

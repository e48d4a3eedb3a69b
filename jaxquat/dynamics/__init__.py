"""The motion of one rigid body: its state, Euler's equation, energy, momentum, error states.

``q' = 1/2 q (0, omega)`` and ``I omega' = tau - omega × (I omega)``, all in body axes. The
conventions are those of ``jaxquat.quaternion``.
"""

from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.motion import angular_acceleration, derivative, energy, linearize, momentum
from jaxquat.dynamics.state import State, local, retract

__all__ = [
    "State",
    "Step",
    "Torque",
    "angular_acceleration",
    "derivative",
    "energy",
    "linearize",
    "local",
    "momentum",
    "retract",
]

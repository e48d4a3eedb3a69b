"""Actuators between a commanded torque and the body: limits, lags, wheels, gyros, thrusters, rods.

Wheels and lags have states. Keep them in ``State.aux``, and return their rates with the torque:

    def torque(t, state, params, command):
        motor = actuators.allocate(AXES, command)  # the rate of each wheel's momentum, too
        return actuators.wheel_torque(AXES, state, state.aux, motor), motor

``lagged`` and ``delayed`` compute the response to recorded commands.

Wheel axes are rows: ``axes`` is (n, 3), unit vectors in body axes.
"""

from __future__ import annotations

from jaxquat.actuators.actuation import (
    allocate,
    allocate_thrusters,
    hold_momentum,
    lag,
    magnetorquer_dipoles,
    pulse_widths,
    saturate,
    saturate_smooth,
    thruster_arms,
    wheel_torque,
)
from jaxquat.actuators.cmgs import cmg_torque, steer_cmgs
from jaxquat.actuators.recorded_commands import delayed, lagged
from jaxquat.actuators.wheels import wheel_friction, wheel_imbalance

__all__ = [
    "allocate",
    "allocate_thrusters",
    "cmg_torque",
    "delayed",
    "hold_momentum",
    "lag",
    "lagged",
    "magnetorquer_dipoles",
    "pulse_widths",
    "saturate",
    "saturate_smooth",
    "steer_cmgs",
    "thruster_arms",
    "wheel_friction",
    "wheel_imbalance",
    "wheel_torque",
]

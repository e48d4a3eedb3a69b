"""Actuators between a commanded torque and the body: lags, wheels, thrusters, rods.

The axes of n wheels are the rows of ``axes`` (n, 3), unit vectors in body axes. Keep the states of
wheels and lags in ``State.aux``, and return their rates with the torque:

    def torque(t, state, params, command):
        motor = actuators.allocate(AXES, command)  # also the rate of each wheel's momentum
        return actuators.wheel_torque(AXES, state, state.aux, motor), motor

Examples:
    >>> still = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))  # in other examples, too
"""

from __future__ import annotations

from jaxquat.actuators.actuation import allocate, lag, magnetorquer_dipoles
from jaxquat.actuators.recorded_commands import delay_record, lag_record
from jaxquat.actuators.thrusters import pulse_widths
from jaxquat.actuators.wheels import wheel_friction, wheel_imbalance, wheel_torque

__all__ = [
    "allocate",
    "delay_record",
    "lag",
    "lag_record",
    "magnetorquer_dipoles",
    "pulse_widths",
    "wheel_friction",
    "wheel_imbalance",
    "wheel_torque",
]

"""Attitude control: laws are pure functions of state, gains and target; controllers have memory.

``quaternion_law`` and ``euler_law`` (G. Hoffmann, Application of Quaternions, appendix A) go to a
fixed target, ``tracking_law`` and ``geometric_law`` follow a ``Reference``, ``flight_law`` and
``cascade`` a ``ReferenceTrajectory`` with a rotorcraft. Torques are in body axes. Only ``pid`` and
``cascade`` limit them; ``jq.actuators`` has limits for the others. The examples use this body:

Examples:
    >>> level, zero = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3)
    >>> body = jq.Body.from_principal(jnp.array([1.0, 2.0, 3.0]), mass=1.2)  # kg m^2, kg
    >>> start = jq.State(level, zero)
    >>> low = start._replace(position=zero, velocity=zero)  # 1 m below the reference
    >>> gains = jq.control.Gains(damping=jnp.full(3, 0.4), stiffness=jnp.full(3, 2.0))
"""

from __future__ import annotations

from jaxquat.control import pointing
from jaxquat.control.cascade import CascadeGains, CascadeLimits, cascade
from jaxquat.control.delaying import delay
from jaxquat.control.flight import FlightGains, Lift, flight_law
from jaxquat.control.laws import Gains, euler_law, geometric_law, quaternion_law, tracking_law
from jaxquat.control.lqr import lqr
from jaxquat.control.margins import Margins, margins
from jaxquat.control.pid import PIDGains, pid
from jaxquat.control.reference import (
    Reference,
    ReferenceTrajectory,
    follow,
    follow_position,
    hold_position,
)

__all__ = [
    "CascadeGains",
    "CascadeLimits",
    "FlightGains",
    "Gains",
    "Lift",
    "Margins",
    "PIDGains",
    "Reference",
    "ReferenceTrajectory",
    "cascade",
    "delay",
    "euler_law",
    "flight_law",
    "follow",
    "follow_position",
    "geometric_law",
    "hold_position",
    "lqr",
    "margins",
    "pid",
    "pointing",
    "quaternion_law",
    "tracking_law",
]

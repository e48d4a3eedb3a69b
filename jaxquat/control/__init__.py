"""Attitude control: laws are pure functions of the state, the gains and the target; controllers have memory.

``quaternion_law`` and ``euler_law`` are those of G. Hoffmann, Application of Quaternions, appendix A, for a fixed target;
``tracking_law`` and ``geometric_law`` follow a moving ``Reference``. ``pid`` makes a ``jq.Controller``, ``lqr`` the gain of a
linear regulator. Torques are in body axes and not limited unless a limit is an argument: ``jq.actuators`` has the limits.
"""

from __future__ import annotations

from jaxquat.control.laws import (
    Gains,
    Reference,
    at_rest,
    euler_law,
    follow,
    geometric_law,
    quaternion_law,
    shortest,
    tracking_law,
)
from jaxquat.control.lqr import lqr, lqr_law
from jaxquat.control.pid import PIDGains, pid

__all__ = [
    "Gains",
    "PIDGains",
    "Reference",
    "at_rest",
    "euler_law",
    "follow",
    "geometric_law",
    "lqr",
    "lqr_law",
    "pid",
    "quaternion_law",
    "shortest",
    "tracking_law",
]

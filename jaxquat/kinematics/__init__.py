"""Attitude from rates: ``q' = 1/2 q (0, omega(t))`` by the Magnus expansion.

``rollout_of_attitude`` integrates a rate that depends on the attitude, too, by lifted Runge-Kutta
methods.

These functions have no body and no torque, and are not schemes. Everything is in body axes:
``q(t + h) = q(t) exp(Omega)``, where Omega is the rotation vector of the step. The source document
on constant angular acceleration (docs/errata.md) writes ``exp(Omega) q(t)`` in world axes, where
the terms with an odd number of vector products have the opposite sign. The formulas for sampled
rates come from S. Blanes, F. Casas, J. A. Oteo and J. Ros, Phys. Rep. 470, 2009, 151-238, section
5.
"""

from __future__ import annotations

from jaxquat.kinematics.integration import integrate, magnus, truncated_exp
from jaxquat.kinematics.known_rates import rollout, rollout_of_attitude
from jaxquat.kinematics.preintegrated import Imu, Preintegrated
from jaxquat.kinematics.preintegration import preintegrate

__all__ = [
    "Imu",
    "Preintegrated",
    "integrate",
    "magnus",
    "preintegrate",
    "rollout",
    "rollout_of_attitude",
    "truncated_exp",
]

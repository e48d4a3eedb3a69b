"""Attitude from rates without a body: ``q' = 1/2 q (0, omega(t))`` by the Magnus expansion.

All functions are differentiable with respect to all arrays, in both modes.

Everything is in body axes: ``q(t + h) = q(t) exp(Omega)``, where Omega is the rotation vector of
the step. The source document on constant angular acceleration (docs/errata.md) writes
``exp(Omega) q(t)`` in world axes, where the terms with an odd number of vector products have the
opposite sign. The formulas for sampled rates come from S. Blanes, F. Casas, J. A. Oteo and J. Ros,
Phys. Rep. 470, 2009, 151-238, section 5.

Examples:
    The examples of the functions use an inertial unit that accelerates at 1 m/s^2 for 1 s:

    >>> level, zero, gravity = jnp.eye(4)[0], jnp.zeros(3), jnp.array([0.0, 0.0, -9.81])  # m/s^2
    >>> gyro, force = jnp.zeros((101, 3)), jnp.tile(jnp.array([1.0, 0.0, 9.81]), (101, 1))
    >>> times = jnp.linspace(0.0, 1.0, 101)  # s
"""

from __future__ import annotations

from jaxquat.kinematics.integration import integrate, magnus
from jaxquat.kinematics.known_rates import Attitudes, rollout_of_attitude, rollout_of_rate
from jaxquat.kinematics.preintegration import Imu, Preintegrated, preintegrate

__all__ = [
    "Attitudes",
    "Imu",
    "Preintegrated",
    "integrate",
    "magnus",
    "preintegrate",
    "rollout_of_attitude",
    "rollout_of_rate",
]

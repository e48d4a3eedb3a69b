"""Attitude from rates without a body: ``q' = 1/2 q (0, omega(t))`` by the Magnus expansion.

All is in body axes, ``q(t + h) = q(t) exp(Omega)`` with the rotation vector Omega of the step, and
differentiable in both modes. The source document on constant angular acceleration
(docs/validation.md) writes ``exp(Omega) q(t)`` in world axes, where terms with an odd number of
vector products have the opposite sign. For sampled rates: S. Blanes, F. Casas, J. A. Oteo and
J. Ros, Phys. Rep. 470, 2009, section 5. The examples use an inertial unit that accelerates at
1 m/s^2 for 1 s:

Examples:
    >>> level, zero, gravity = jnp.eye(4)[0], jnp.zeros(3), jnp.array([0.0, 0.0, -9.81])  # m/s^2
    >>> gyro, force = jnp.zeros((101, 3)), jnp.tile(jnp.array([1.0, 0.0, 9.81]), (101, 1))
    >>> times = jnp.linspace(0.0, 1.0, 101)  # s
"""

from __future__ import annotations

from jaxquat.kinematics.integration import integrate, magnus
from jaxquat.kinematics.known_rates import Attitudes, rollout_of_attitude
from jaxquat.kinematics.preintegration import Imu, Preintegrated, preintegrate

__all__ = [
    "Attitudes",
    "Imu",
    "Preintegrated",
    "integrate",
    "magnus",
    "preintegrate",
    "rollout_of_attitude",
]

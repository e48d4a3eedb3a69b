"""Random motion: bodies in a fluid that shakes them, and random torques for any scheme.

The steps take standard normals: ``jq.rollout(..., noise=)``.
"""

from __future__ import annotations

from jaxquat.stochastic.disturbance import Disturbance, add_gauss_markov_torque, add_torque_noise
from jaxquat.stochastic.langevin import brownian, langevin

__all__ = ["Disturbance", "add_gauss_markov_torque", "add_torque_noise", "brownian", "langevin"]

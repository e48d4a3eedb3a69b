"""Random motion: bodies in a fluid that shakes them, and random torques for any scheme.

The steps of all these schemes take standard normals, ``jq.rollout(..., noise=)``. ``jq.flow`` has
the torques of a viscous flow.
"""

from __future__ import annotations

from jaxquat.stochastic.coarsening import coarsened
from jaxquat.stochastic.disturbance import (
    Disturbance,
    with_gauss_markov_torque,
    with_torque_noise,
)
from jaxquat.stochastic.langevin import brownian, langevin

__all__ = [
    "Disturbance",
    "brownian",
    "coarsened",
    "langevin",
    "with_gauss_markov_torque",
    "with_torque_noise",
]

"""Random motion: bodies in a fluid that shakes them, and random torques for any scheme.

``langevin`` and ``brownian`` are schemes for bodies in a fluid that drags and shakes them.
``with_torque_noise`` and ``with_gauss_markov_torque`` add a random torque to any scheme, and
``coarsened`` makes the noise of longer steps for the same path. The steps of all of them take
standard normals, ``jq.rollout(..., noise=)``. ``jq.flow`` has the torques of a viscous flow.
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

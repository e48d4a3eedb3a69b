"""Plans: the commands that minimise a cost over a horizon, and the feedback that follows them.

The examples of the functions and classes share these lines:

    >>> body = jq.Body.box(60.0, jnp.array([0.6, 0.8, 1.2]))  # kg, m
    >>> still = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
    >>> turning = still._replace(omega=jnp.array([0.0, 0.0, 0.1]))  # rad/s
    >>> motors = lambda t, state, params, command: command  # N m
    >>> effort = lambda k, state, params, command: command
"""

from __future__ import annotations

from jaxquat.planning.ilqr import ilqr
from jaxquat.planning.mpc import MpcMemory, mpc
from jaxquat.planning.mppi import mppi
from jaxquat.planning.plan import Plan
from jaxquat.planning.problem import Constraints, Residuals, Sampling, Solver

__all__ = [
    "Constraints",
    "MpcMemory",
    "Plan",
    "Residuals",
    "Sampling",
    "Solver",
    "ilqr",
    "mpc",
    "mppi",
]

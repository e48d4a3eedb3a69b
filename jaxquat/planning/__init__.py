"""Plans: the commands that minimise a cost over a horizon, and the feedback that holds them.

``ilqr`` minimises half the squares of ``Residuals`` within ``Constraints``, in the error state of
``dynamics.local`` and ``dynamics.retract``. Its ``Plan`` has the commands, the path, the gains of a
time-varying linear regulator about it, and a ``jq.Controller`` made of them. ``mpc`` and ``mppi``
are controllers that plan anew at each sample, by Gauss-Newton steps or by random commands.
"""

from __future__ import annotations

from jaxquat.planning.ilqr import ilqr
from jaxquat.planning.mpc import mpc
from jaxquat.planning.mppi import mppi
from jaxquat.planning.plan import Plan
from jaxquat.planning.problem import Constraints, Residuals, Sampling, Solver

__all__ = ["Constraints", "Plan", "Residuals", "Sampling", "Solver", "ilqr", "mpc", "mppi"]

"""Monte Carlo: many members of one simulation, drawn, simulated, reduced and stored chunk by chunk.

Member i is ``draw(fold_in(key, i))``: it does not depend on chunk, devices or engine (XLA may round
the last bit differently), and ``jax.vmap(draw)(jq.ensembles.keys(key, index))`` draws it alone.
"""

from __future__ import annotations

from jaxquat.ensembles.drawing import bodies, keys, members
from jaxquat.ensembles.reducers import Extremes, Mean, Reducer, largest, mean, quantiles
from jaxquat.ensembles.simulating import Ensemble, run
from jaxquat.ensembles.stopping import standard_error

__all__ = [
    "Ensemble",
    "Extremes",
    "Mean",
    "Reducer",
    "bodies",
    "keys",
    "largest",
    "mean",
    "members",
    "quantiles",
    "run",
    "standard_error",
]

"""Monte Carlo: many members of one simulation, drawn, simulated, reduced and stored chunk by chunk. ``jq.ensemble`` runs it.

Member i is ``sample(fold_in(key, i))``, so it is the same member whatever the chunk, the devices and the engine (XLA may round a
last bit otherwise), and it can be had alone: ``jax.vmap(sample)(jq.ensembles.keys(key, index))``. Statistics are reducers:
``mean``, ``covariance``, ``quantiles``, ``largest``, ``smallest``, or a ``Reducer`` of your own.
"""

from __future__ import annotations

from jaxquat.ensembles.reducers import (
    Covariance,
    Extremes,
    Mean,
    Reducer,
    covariance,
    largest,
    mean,
    quantiles,
    smallest,
)
from jaxquat.ensembles.sampling import draw, keys
from jaxquat.ensembles.simulating import Ensemble, ensemble

__all__ = [
    "Covariance",
    "Ensemble",
    "Extremes",
    "Mean",
    "Reducer",
    "covariance",
    "draw",
    "ensemble",
    "keys",
    "largest",
    "mean",
    "quantiles",
    "smallest",
]

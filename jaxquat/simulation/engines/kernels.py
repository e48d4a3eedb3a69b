"""The engine "fused": a simulation as a loop that ``jaxquat.fused`` compiles into one kernel."""

from __future__ import annotations

import dataclasses
from typing import Any

from jax import Array

from jaxquat._internal.varying import axes_of, cast
from jaxquat.fused.engine import results_of, traced
from jaxquat.fused.recurrence import Recurrence
from jaxquat.fused.trace.hoisting import shared
from jaxquat.simulation.engines.by_interval import ByInterval
from jaxquat.simulation.path import Path
from jaxquat.simulation.simulation import Simulation


def run(simulation: Simulation, strict: bool = True) -> Path:
    """Simulate in one kernel; the errors are those of ``fused.engine.results_of``."""
    return simulation.path(*results_of(_timed(simulation), strict))


def trace(simulation: Simulation, strict: bool = True) -> tuple[Recurrence, list[Array], Any]:
    """Return the recurrence, its operands, and the trees of saved values, state and memory."""
    return traced(_timed(simulation), strict)


def _timed(simulation: Simulation) -> Simulation | ByInterval:
    """Trace the torque only once; through given times, make these inputs."""
    # Cast the times to vary over devices as the state does: the cotangents of operands are summed
    # over devices outside the kernel.
    times = simulation.t0, simulation.dt, simulation.intervals
    t0, dt, intervals = cast(times, axes_of(simulation.start))
    torque = shared(simulation.torque)
    simulation = dataclasses.replace(simulation, torque=torque, t0=t0, dt=dt, intervals=intervals)
    return simulation if simulation.intervals is None else ByInterval(simulation)

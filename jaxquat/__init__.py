"""Differentiable integrators for rigid-body rotation with unit quaternions, in JAX.

A scheme is a pure function that takes one step,
``scheme(body, torque, t, state, dt, params) -> state``; ``rollout`` repeats it and returns the
trajectory. ``jit``, ``vmap`` and ``grad`` work on both. For conventions see
``help(jaxquat.quaternion)``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jaxquat import (
    actuators,
    control,
    dynamics,
    ensembles,
    estimation,
    euler,
    exact,
    frames,
    fused,
    kinematics,
    planning,
    quaternion,
    recordings,
    schemes,
    so3,
    stochastic,
)
from jaxquat._internal import renamed
from jaxquat.actuators import rotors
from jaxquat.dynamics import environment, forces, torques
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.state import State, Wrench
from jaxquat.fitting.covariance import FitCovariance, fit_covariance
from jaxquat.fitting.fit import Fit, FitOptions, fit
from jaxquat.fitting.least_squares import LeastSquares, LeastSquaresOptions, least_squares
from jaxquat.fitting.prediction import Prediction
from jaxquat.schemes import (
    lgvi,
    lie_euler,
    no_squish,
    rkmk2,
    rkmk4,
    rkmk6,
    symmetric_top,
    zhao,
)
from jaxquat.sensors import accelerometer, allan, gyro, magnetometer
from jaxquat.simulation.controller import Controller
from jaxquat.simulation.engines.explaining import explain
from jaxquat.simulation.engines.selfcheck import check_gpu
from jaxquat.simulation.grid import Grid, GridAt, grid, grid_at
from jaxquat.simulation.options import RolloutOptions
from jaxquat.simulation.path import Path
from jaxquat.simulation.rollout import rollout
from jaxquat.stochastic import flow

__version__ = importlib.metadata.version("jaxquat")

if TYPE_CHECKING:
    from jaxquat import export as export
    from jaxquat import interop as interop
    from jaxquat import plot as plot

_ON_DEMAND = ("export", "interop", "plot")  # the last two import the packages of their extras


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND or name in renamed.tables().moved:  # an old place gives a warning
        return importlib.import_module(f"jaxquat.{name}")
    return renamed.found("", __dir__(), name, stacklevel=3)


def __dir__() -> list[str]:
    return sorted([*__all__, *_ON_DEMAND, "__version__"])


__all__ = [
    "Body",
    "Controller",
    "Fit",
    "FitCovariance",
    "FitOptions",
    "Grid",
    "GridAt",
    "LeastSquares",
    "LeastSquaresOptions",
    "Path",
    "Prediction",
    "RolloutOptions",
    "State",
    "Wrench",
    "accelerometer",
    "actuators",
    "allan",
    "check_gpu",
    "control",
    "dynamics",
    "ensembles",
    "environment",
    "estimation",
    "euler",
    "exact",
    "explain",
    "fit",
    "fit_covariance",
    "flow",
    "forces",
    "frames",
    "fused",
    "grid",
    "grid_at",
    "gyro",
    "kinematics",
    "least_squares",
    "lgvi",
    "lie_euler",
    "magnetometer",
    "no_squish",
    "planning",
    "quaternion",
    "recordings",
    "rkmk2",
    "rkmk4",
    "rkmk6",
    "rollout",
    "rotors",
    "schemes",
    "so3",
    "stochastic",
    "symmetric_top",
    "torques",
    "zhao",
]

_modules = {x: globals()[x] for x in __all__ if isinstance(globals()[x], ModuleType)}
_classes = (Body, Fit, Grid, GridAt, Path, State, recordings.Recording)
renamed.answer({**_modules, **{kind.__name__: kind for kind in _classes}})
renamed.find_old_places()

"""Differentiable integrators for rigid-body rotation with unit quaternions, in JAX.

An integrator step is a pure function, ``step(body, torque, t, state, dt, params) -> state``; ``rollout`` scans it into a
trajectory; ``jit``, ``vmap`` and ``grad`` go through the whole of it. Conventions: ``help(jaxquat.quaternion)``.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from jaxquat import control, dynamics, ensembles, schemes
from jaxquat.analytic import exact
from jaxquat.control import actuators
from jaxquat.dynamics import torques
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.state import State
from jaxquat.engines import fused
from jaxquat.ensembles import Ensemble
from jaxquat.learning.covariance import FitCovariance, fit_covariance
from jaxquat.learning.fit import Fit, fit
from jaxquat.rollout import rollout
from jaxquat.rotations import euler, quaternion, so3
from jaxquat.schemes import SCHEMES, compose, crouch_grossman, rkmk
from jaxquat.sensing import gyro as sensors
from jaxquat.sensing import kinematics, recordings
from jaxquat.simulation.controller import Controller
from jaxquat.simulation.grid import Grid, grid
from jaxquat.simulation.path import Path

lie_euler = SCHEMES["lie_euler"].step
rkmk2 = SCHEMES["rkmk2"].step
rkmk3 = SCHEMES["rkmk3"].step
rkmk4 = SCHEMES["rkmk4"].step
rkmk5 = SCHEMES["rkmk5"].step
rkmk6 = SCHEMES["rkmk6"].step
crouch_grossman3 = SCHEMES["crouch_grossman3"].step
crouch_grossman4 = SCHEMES["crouch_grossman4"].step
cf4 = SCHEMES["cf4"].step
zhao = SCHEMES["zhao"].step
pcdm1 = SCHEMES["pcdm1"].step
formulation1 = SCHEMES["formulation1"].step
formulation2 = SCHEMES["formulation2"].step
half_quat = SCHEMES["half_quat"].step
full_quat = SCHEMES["full_quat"].step
full_quat_corrected = SCHEMES["full_quat_corrected"].step
no_squish = SCHEMES["no_squish"].step
symmetric_top = SCHEMES["symmetric_top"].step
symmetric_top_suzuki4 = SCHEMES["symmetric_top_suzuki4"].step
symmetric_top_bm4 = SCHEMES["symmetric_top_bm4"].step
no_squish_kl6 = SCHEMES["no_squish_kl6"].step
lgvi = SCHEMES["lgvi"].step
lie_midpoint = SCHEMES["lie_midpoint"].step
simo_wong = SCHEMES["simo_wong"].step

__version__ = version("jaxquat")

if TYPE_CHECKING:
    from jaxquat import interop as interop
    from jaxquat import plot as plot

_ON_DEMAND = ("interop", "plot")  # they load the packages of their extras


def __getattr__(name: str) -> Any:
    if name in _ON_DEMAND:
        return importlib.import_module(f"jaxquat.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})


__all__ = [
    "SCHEMES",
    "Body",
    "Controller",
    "Ensemble",
    "Fit",
    "FitCovariance",
    "Grid",
    "Path",
    "State",
    "actuators",
    "cf4",
    "compose",
    "control",
    "crouch_grossman",
    "crouch_grossman3",
    "crouch_grossman4",
    "dynamics",
    "ensembles",
    "euler",
    "exact",
    "fit",
    "fit_covariance",
    "formulation1",
    "formulation2",
    "full_quat",
    "full_quat_corrected",
    "fused",
    "grid",
    "half_quat",
    "kinematics",
    "lgvi",
    "lie_euler",
    "lie_midpoint",
    "no_squish",
    "no_squish_kl6",
    "pcdm1",
    "quaternion",
    "recordings",
    "rkmk",
    "rkmk2",
    "rkmk3",
    "rkmk4",
    "rkmk5",
    "rkmk6",
    "rollout",
    "schemes",
    "sensors",
    "simo_wong",
    "so3",
    "symmetric_top",
    "symmetric_top_bm4",
    "symmetric_top_suzuki4",
    "torques",
    "zhao",
]

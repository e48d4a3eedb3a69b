"""Differentiable integrators for rigid-body rotation with unit quaternions, in JAX.

An integrator step is a pure function, ``step(body, torque, t, state, dt, params) -> state``; ``rollout`` scans it into a
trajectory; ``jit``, ``vmap`` and ``grad`` go through the whole of it. Conventions: ``help(jaxquat.quaternion)``.
"""

from importlib.metadata import version

from jaxquat import actuators, control, euler, kinematics, mechanics, quaternion, recordings, schemes, sensors, so3, torques
from jaxquat.body import Body
from jaxquat.fitting import Fit, fit
from jaxquat.mechanics import State
from jaxquat.scanning import Controller
from jaxquat.schemes import SCHEMES, rkmk
from jaxquat.trajectory import Grid, Path, grid, rollout

lie_euler = SCHEMES["lie_euler"].step
rkmk2 = SCHEMES["rkmk2"].step
rkmk3 = SCHEMES["rkmk3"].step
rkmk4 = SCHEMES["rkmk4"].step
rkmk5 = SCHEMES["rkmk5"].step
rkmk6 = SCHEMES["rkmk6"].step
zhao = SCHEMES["zhao"].step

__version__ = version("jaxquat")

__all__ = [
    "SCHEMES",
    "Body",
    "Controller",
    "Fit",
    "Grid",
    "Path",
    "State",
    "actuators",
    "control",
    "euler",
    "fit",
    "grid",
    "kinematics",
    "lie_euler",
    "mechanics",
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
    "so3",
    "torques",
    "zhao",
]

"""Every public function refuses values that cannot be meant, and the error names the argument.

The table says how each function is called, and which bad values are meant after all. A public
function without an entry fails, and so does an entry that lacks an argument. test_errors.py tests
what an error says beyond the name.
"""

import functools
import gc
import importlib
import importlib.util
import inspect
import re
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from marks import some
from scipy.spatial.transform import Rotation

import jaxquat as jq
from jaxquat import control, ensembles, estimation, gyro, recordings, schemes

Q, V, ONE, KEY = np.array([1.0, 0.0, 0.0, 0.0]), np.array([0.1, 0.2, 0.3]), 0.5, jax.random.key(0)
ROWS, FOUR = np.ones((6, 3)) * V, np.ones((4, 3))
START, GRID = jq.State(Q, V), jq.grid(0.0, 0.1, 4)
BODY = jq.Body.from_principal(np.array([1.0, 1.0, 1.5]), mass=1.0)
GAINS, PID = control.Gains(V, V), control.PIDGains(V, V, V)
REFERENCE = control.Reference(Q, V, V)
GYRO = jax.tree.map(np.asarray, gyro.Gyro.ideal())
ACCELEROMETER = jax.tree.map(np.asarray, jq.accelerometer.Accelerometer.ideal())
MAGNETOMETER = jax.tree.map(np.asarray, jq.magnetometer.Magnetometer.ideal())
BIAS, DENSITIES = jq.kinematics.Imu(V, V), jq.kinematics.Imu(V, V)
PREINTEGRATED = jq.kinematics.Preintegrated(
    Q, V, V, np.array(ONE), 0.1 * np.eye(9), 0.1 * np.ones((9, 6)), BIAS
)
POSES = Rotation.random(30, random_state=1).apply(Q[:3] + V)
LEAST = jq.least_squares(lambda p: jnp.concatenate([p, 2.0 * p]) - 1.0, V)
RECORDING = recordings.Recording(
    np.array([0.0, 0.1]), FOUR[:2], np.stack([Q, Q]), np.array([False, True])
)
FLIGHT_LOG = recordings.Recording(np.array([0.0, 0.1]), FOUR[:2], accelerometer=9.8 * FOUR[:2])
CASCADE = control.CascadeGains(V, V, V, V, V, V)
FLIGHT = control.FlightGains(V, V, V, V)
COURSE = jax.tree.map(np.asarray, control.hold_position(V))
ROTORS = jq.rotors.Rotors(
    np.array([[1.0, 1, 0], [-1, 1, 0], [-1, -1, 0], [1, -1, 0]]),
    np.tile([0.0, 0.0, 1.0], (4, 1)),
    np.array([1.0, -1, 1, -1]),
    np.array([0.0, 0.0, 1.0]),
    np.array([0.0, 0.0, 0.1]),
)
IMU = estimation.ImuSample(estimation.Interval(np.full(4, 0.1)), FOUR, 9.8 * FOUR, FOUR)
TANK = jax.tree.map(
    np.asarray, jq.dynamics.slosh_masses(ONE * np.ones(1), *[np.eye(3)[:1]] * 2, *[np.ones(1)] * 2)
)
MANY = np.random.default_rng(0).normal(size=(120, 3))
LONGER = recordings.Recording(0.1 * np.arange(10.0), 0.01 * MANY[:10])
NOISE = jq.allan.fit(MANY, 0.1)
TABLEAU = schemes.tableaus.RK4
DAMPER = jq.Controller(lambda start, params: (), lambda t, s, m, params, value: (-s.omega, m))
MARGINS = control.Margins(V, V, V, V, 1.0, V, np.ones((3, 3)))


def zero(t, state, params, *command):
    return jnp.zeros(3) + 0.0 * t


def at(t):
    return jnp.asarray(Q) + 0.0 * t


class Argument(NamedTuple):
    """One argument of a function.

    Attributes:
        good: a value with which the function works.
        meant: the reasons why bad values are meant here, in a word, by their labels; "propagates"
            must make the result NaN or infinite.
        word: a regular expression of what the error must name; None stands for the argument itself.
    """

    good: Any
    meant: Mapping[str, str] = MappingProxyType({})
    word: str | None = None


PROPAGATES = {"nan": "propagates", "inf": "propagates"}
COMPLEX = {"nan": "a complex NaN", "inf": "a complex NaN"}
BATCH = {"wrong": "a batch", "empty": "an empty batch"}


def algebra(good, **meant):
    """Returns an array of pure algebra, through which NaN and infinity propagate."""
    return Argument(good, {**PROPAGATES, **meant})


def number(good, **meant):
    """Returns a number per element of a batch, in pure algebra."""
    return Argument(good, {**PROPAGATES, **BATCH, **meant})


def optional(good, **meant):
    return Argument(good, {"none": "the default", **meant})


def like(tree, change):
    return jax.tree.map(lambda x: change(np.asarray(x)), tree)


CHANGES = {
    "int": lambda x: np.ones(x.shape, int),
    "wrong": lambda x: np.ones((*x.shape[:-1], x.shape[-1] + 4) if x.ndim else 2),
    "empty": lambda x: np.zeros(0),
    "nan": lambda x: np.full(x.shape, np.nan),
    "inf": lambda x: np.full(x.shape, np.inf),
}
NOTHING = {"none": None, "str": "word", "object": object()}


def bad_values(good):
    """Returns bad values by label: things that are no arrays, and changes of the good value.

    If the good value is no array and no tree of arrays, a vector is changed instead.
    """
    arrays = isinstance(
        good,
        np.ndarray
        | float
        | jq.State
        | control.Gains
        | control.PIDGains
        | control.CascadeGains
        | control.ReferenceTrajectory
        | control.FlightGains
        | control.Reference
        | gyro.Gyro
        | jq.accelerometer.Accelerometer
        | jq.kinematics.Imu
        | jq.magnetometer.Magnetometer
        | estimation.ImuSample
        | estimation.Interval
        | estimation.MekfSettings
        | estimation.AhrsSettings
        | jq.rotors.Rotors
        | jq.dynamics.Appendages,
    )
    return {
        **NOTHING,
        **{label: like(good if arrays else V, change) for label, change in CHANGES.items()},
    }


def key():
    return Argument(KEY)


ANY = Argument(None, dict.fromkeys([*NOTHING, *CHANGES], "any pytree"))
STATE = Argument(START, PROPAGATES)
MOVING = Argument(START._replace(position=V, velocity=V), PROPAGATES)
FILTERING = {
    "filter": Argument(estimation.ahrs()),
    "samples": Argument(IMU, {}, r"samples?"),
    "memory": optional(None),
}
ORDER = Argument("ZYX")
STEP = {
    "body": Argument(BODY),
    "torque": Argument(zero),
    "t": Argument(0.0, PROPAGATES),
    "state": STATE,
    "dt": Argument(0.1, PROPAGATES),
    "params": ANY,
}
EVERY = {"sample_every": Argument(1), "save_every": Argument(1)}
ROLLOUT = {
    "scheme": Argument(jq.lie_euler),
    "body": Argument(BODY),
    "torque": Argument(zero),
    "start": Argument(START),
    "grid": Argument(GRID),
    "params": ANY,
    "controller": optional(None),
    "inputs": optional(None),
    "noise": optional(None),
    "options": Argument(jq.RolloutOptions()),
    "save": optional(None),
    "engine": Argument("scan"),
    "checkpoint": Argument("none"),
    "check": Argument(False),
}
HORIZON = {
    **{key: ROLLOUT[key] for key in ("scheme", "body", "torque")},
    "dt": Argument(0.1),
    "commands": Argument(FOUR, {"wrong": "seven motors"}),
    "residuals": Argument(lambda k, state, params, command: command),
    "constraints": optional(None),
    "sample_every": Argument(1),
}
FIT = {
    "loss": Argument(lambda params, batch, key: jnp.sum(params**2)),
    "params": Argument(V, {"wrong": "seven"}),
    "optimizer": Argument(optax.sgd(0.1)),
    "data": optional(None, int="data", wrong="data", nan="gaps", inf="gaps"),
    "steps": Argument(2),
    "key": optional(KEY),
    "batch_size": optional(None),
    "starts": optional(None),
    "validation": optional(None),
    "options": Argument(jq.FitOptions()),
    "patience": optional(None),
    "mode": Argument("auto"),
    "chunk": Argument(10),
    "snapshot_dir": optional(None, str="a folder"),
    "snapshot_every": Argument(100),
    "progress": Argument(False),
}
ENSEMBLE = {
    "key": key(),
    "draw": Argument(lambda key: jax.random.normal(key)),
    "simulate": Argument(lambda member: member),
    "n": Argument(3),
    "chunk": optional(None),
    "reduce": Argument(ensembles.mean()),
    "until": optional(None),
    "mesh": optional(None),
    "store": optional(None, str="a folder"),
    "progress": Argument(False),
}
OF = optional(None)
AEM = dict.fromkeys(("OBJECT_NAME", "OBJECT_ID", "TIME_SYSTEM", "ORIGINATOR"), "X")
AEM |= {"REF_FRAME_A": "EME2000", "REF_FRAME_B": "SC_BODY_1", "START_TIME": "2026-079T12:00:00"}
EPOCH = Argument(2461120.0)
SECONDS = Argument(0.5, {"nan": "propagates", **BATCH})
ABOVE = algebra(3e7 * V)
TABLE = {
    "accelerometer.Accelerometer.ideal": {"dtype": optional(None)},
    "accelerometer.calibrate": {"samples": Argument(POSES), "gravity": Argument(1.0)},
    "accelerometer.correct": {
        "accelerometer": Argument(ACCELEROMETER),
        "measured": algebra(ROWS),
    },
    "accelerometer.measure": {
        "key": key(),
        "accelerometer": Argument(ACCELEROMETER),
        "q": Argument(np.stack([Q] * 6)),
        "acceleration": algebra(ROWS),
        "gravity": algebra(V),
        "dt": Argument(0.1),
    },
    "allan.Noise.settings": {},
    "allan.deviation": {"samples": Argument(MANY), "dt": Argument(0.1, {"int": "a number"})},
    "allan.fit": {
        "samples": Argument(MANY),
        "dt": Argument(0.1, {"int": "a number"}),
    },
    "Body": {"inertia": Argument(np.eye(3)), "mass": optional(1.0)},
    "Body.from_principal": {
        "moments": Argument(np.ones(3)),
        "axes": optional(Q),
        "mass": optional(1.0),
    },
    "Body.from_parameters": {"theta": Argument(np.zeros(6)), "mass": optional(1.0)},
    "Body.box": {"mass": Argument(1.0), "sides": Argument(np.ones(3))},
    "Body.cylinder": {"mass": Argument(1.0), "radius": Argument(1.0), "height": Argument(1.0)},
    "Body.sphere": {"mass": Argument(1.0), "radius": Argument(1.0)},
    "Body.ellipsoid": {"mass": Argument(1.0), "semi_axes": Argument(np.ones(3))},
    "Body.random": {"key": key(), "dtype": optional(None), "mass": optional(1.0)},
    "Body.principal": {},
    "Body.shifted": {"mass": Argument(1.0), "offset": Argument(V)},
    "Grid.times": {"dtype": optional(None)},
    "GridAt.step_lengths": {},
    "GridAt.times": {"dtype": optional(None)},
    "Controller.resume": {"memory": Argument(V, ANY.meant)},
    "Path.at": {"t": Argument(0.5, BATCH)},
    "actuators.allocate": {
        "axes": Argument(np.eye(3)),
        "tau": algebra(V),
        "limits": optional(1.0, inf="no limit"),
    },
    "actuators.delay_record": {
        "times": Argument(np.arange(4.0)),
        "commands": Argument(FOUR, word="(commands|times|start)"),
        "delay": Argument(0.1),
        "between": optional(np.arange(3.0), wrong="other times"),
        "start": optional(V),
    },
    "actuators.lag": {
        "actual": Argument(V, PROPAGATES, "(actual|command)"),
        "command": algebra(V),
        "time_constant": Argument(1.0),
    },
    "actuators.lag_record": {
        "times": Argument(np.arange(4.0)),
        "commands": Argument(FOUR, word="(commands|times|start)"),
        "time_constant": Argument(0.1),
        "at": optional(np.arange(3.0), wrong="other times", empty="no times"),
        "delay": Argument(0.1),
        "start": optional(V),
    },
    "actuators.magnetorquer_dipoles": {
        "axes": Argument(np.eye(3)),
        "tau": algebra(V),
        "field": algebra(V),
        "limits": optional(1.0, inf="no limit"),
    },
    "actuators.pulse_widths": {
        "forces": Argument(V, {"nan": "propagates", "inf": "all of it"}, "(forces|thrust)"),
        "thrust": Argument(V + 1.0),
        "interval": Argument(0.5),
        "minimum": Argument(0.01),
    },
    "actuators.wheel_friction": {
        "speed": number(ONE),
        "coulomb": Argument(ONE, BATCH),
        "viscous": Argument(ONE, BATCH),
        "static": optional(2.0 * ONE, **BATCH),
        "stribeck_speed": Argument(ONE, BATCH),
    },
    "actuators.wheel_imbalance": {
        "axes": Argument(np.eye(3)[:1]),
        "normals": Argument(np.eye(3)[1:2]),
        "positions": algebra(FOUR[:1]),
        "state": STATE,
        "angle": algebra(np.ones(1)),
        "speed": Argument(np.ones(1), PROPAGATES, "(speed|angle)"),
        "static": algebra(ONE),
        "dynamic": algebra(ONE),
    },
    "actuators.wheel_torque": {
        "axes": Argument(np.eye(3)),
        "state": STATE,
        "momentum": algebra(V),
        "motor": algebra(V),
    },
    "schemes.compose": {"scheme": Argument(jq.no_squish), "weights": Argument((0.5, 0.5))},
    "control.cascade": {
        "body": Argument(BODY),
        "period": Argument(0.1),
        "reference": Argument(COURSE),
        "gains": Argument(CASCADE),
        "measure": Argument(lambda state, value: state),
        "limits": Argument(control.CascadeLimits()),
        "anti_windup_time": optional(1.0, inf="no unwinding"),
        "gravity": Argument(9.8),
    },
    "control.euler_law": {"state": STATE, "gains": Argument(GAINS), "target": algebra(V)},
    "control.flight_law": {
        "state": Argument(START._replace(position=V, velocity=V)),
        "gains": Argument(FLIGHT),
        "reference": Argument(COURSE),
        "body": Argument(BODY),
        "gravity": Argument(9.8),
    },
    "control.follow_position": {
        "position": Argument(lambda t: V + 0.0 * t),
        "t": algebra(0.5),
        "heading": optional(None),
    },
    "control.hold_position": {"position": Argument(V), "heading": Argument(0.5)},
    "control.follow": {"attitude": Argument(at), "t": algebra(0.5)},
    "control.geometric_law": {
        "state": STATE,
        "gains": Argument(GAINS),
        "reference": Argument(REFERENCE),
        "body": Argument(BODY),
    },
    "control.lqr": {
        "a": Argument(np.eye(2)),
        "b": Argument(np.eye(2), {}, "(b|command_cost)"),
        "state_cost": Argument(np.eye(2)),
        "command_cost": Argument(np.eye(2)),
    },
    "control.margins": {
        "scheme": Argument(jq.lie_euler),
        **STEP,
        "torque": Argument(jq.torques.commanded),
        "t": Argument(0.0),
        "state": Argument(START._replace(omega=0.0 * V)),  # at rest
        "dt": Argument(0.1),
        "controller": Argument(DAMPER),
        "sample_every": Argument(1),
        "inputs": ANY,
    },
    "control.pid": {
        "body": Argument(BODY),
        "period": Argument(0.1),
        "reference": Argument(REFERENCE),
        "gains": Argument(PID),
        "measure": Argument(lambda state, noise: state),
        "limits": optional(1.0, inf="no limit"),
        "anti_windup_time": optional(1.0, inf="no unwinding"),
    },
    "control.pointing.errors": {
        "error": algebra(ROWS, wrong="seven axes"),
        "window": Argument(2),
        "stride": optional(1),
        "drift": optional(2),
        "reproducibility": optional(3),
    },
    "control.pointing.from_spectrum": {
        "frequency": Argument(np.array([0.0, 1.0, 2.0]), word=r"\b(frequency|power)\b"),
        "power": Argument(V),
        "window": Argument(2.0, {"int": "a number"}),
        "drift": optional(3.0, inf="windows without correlation"),
        "reproducibility": optional(3.0, inf="windows without correlation"),
        "lines": Argument(False),
    },
    "control.pointing.percentile": {
        "values": algebra(ROWS, wrong="seven times"),
        "probability": Argument(0.5),
        "interpretation": Argument("mixed"),
        "confidence": Argument(0.9),
    },
    "control.pointing.transfer": {
        "a": Argument(0.5 * np.eye(3), COMPLEX),
        "b": Argument(np.ones((3, 1)), {**COMPLEX, "wrong": "five disturbances"}),
        "c": Argument(np.ones((1, 3)), COMPLEX),
        "frequency": Argument(np.array([0.0, 1.0]), {**COMPLEX, "wrong": "six frequencies"}),
        "dt": Argument(0.1),
    },
    "control.quaternion_law": {"state": STATE, "gains": Argument(GAINS), "target": Argument(Q)},
    "control.delay": {
        "controller": Argument(jq.Controller(lambda start, params: (), zero)),
        "samples": Argument(2),
        "before": Argument(V, dict.fromkeys(["none", *CHANGES], "a command")),
    },
    "control.tracking_law": {
        "state": STATE,
        "gains": Argument(GAINS),
        "reference": Argument(REFERENCE),
        "body": Argument(BODY),
    },
    "ensembles.bodies": {
        "key": key(),
        "body": Argument(BODY),
        "spread": Argument(0.1),
        "shape": Argument((2,)),
    },
    "ensembles.keys": {"key": key(), "index": Argument(np.arange(3), {"int": "numbers"})},
    "ensembles.largest": {"k": Argument(1), "of": OF},
    "ensembles.mean": {"of": OF},
    "ensembles.members": {"key": key(), "draw": Argument(lambda key: key), "n": Argument(3)},
    "ensembles.quantiles": {
        "probabilities": Argument([0.5], {"wrong": "seven", "int": "numbers"}),
        "of": OF,
        "accuracy": Argument(0.01),
    },
    "ensembles.run": ENSEMBLE,
    "ensembles.standard_error": {
        "of": OF,
        "below": Argument(0.1, {"wrong": "a limit for each of two numbers"}),
        "minimum": Argument(100),
    },
    "environment.declination": {
        "epoch": EPOCH,
        "latitude": SECONDS,
        "longitude": number(0.5),
        "height": number(0.5),
    },
    "environment.density": {"position": ABOVE},
    "environment.earth_attitude": {"epoch": EPOCH, "t": SECONDS},
    "environment.kepler_orbit": {
        "semi_major_axis": Argument(7e6),
        "inclination": Argument(0.5),
        "eccentricity": Argument(0.5),
        "ascending_node": Argument(0.5),
        "perigee": Argument(0.5),
        "anomaly": Argument(0.5),
    },
    "environment.magnetic_field": {
        "epoch": EPOCH,
        "t": SECONDS,
        "position": ABOVE,
        "degree": Argument(1),
    },
    "environment.sun_direction": {"epoch": EPOCH, "t": SECONDS},
    "environment.sunlight": {"epoch": EPOCH, "t": SECONDS, "position": ABOVE},
    "estimation.ahrs": {"settings": optional(estimation.AhrsSettings())},
    "estimation.intervals": {
        "times": Argument(np.arange(4.0), {"int": "numbers", "wrong": "eight times"})
    },
    "estimation.mekf": {
        "q": Argument(Q),
        "settings": optional(estimation.MekfSettings()),
        "gate": Argument(3.0, {"inf": "no gate"}),
    },
    "estimation.merge": {
        "samples": Argument(IMU),
        "every": Argument(2),
    },
    "estimation.run": FILTERING
    | {"save": Argument(lambda estimate: estimate.q), "engine": Argument("scan")},
    "estimation.imu_samples": {"recording": Argument(FLIGHT_LOG)},
    "estimation.smooth": FILTERING,
    "euler.from_quaternion": {"q": algebra(Q), "order": ORDER},
    "euler.rate_matrix": {"angles": algebra(V), "order": ORDER},
    "euler.to_quaternion": {"angles": algebra(V), "order": ORDER},
    "exact.free_body": {"body": Argument(BODY), "t": Argument(0.1), "start": Argument(START)},
    "fit": FIT,
    "FitCovariance.predict": {"function": Argument(lambda params: params)},
    "LeastSquares.predict": {"function": Argument(lambda params: params)},
    "fit_covariance": {
        "residuals": Argument(lambda params: jnp.concatenate([params, 2.0 * params])),
        "params": Argument(V, {"wrong": "seven"}),
        "sigma": optional(9.0),
    },
    "least_squares": {
        "residuals": Argument(lambda params, data=None: jnp.concatenate([params, 2.0 * params])),
        "params": Argument(V, {"wrong": "seven"}),
        "data": optional(V, int="data", wrong="data", nan="gaps", inf="gaps", empty="no data"),
        "bounds": optional(None),
        "sigma": optional(9.0),
        "prefixes": Argument((0.5,), {"empty": "no parts"}),
        "options": Argument(jq.LeastSquaresOptions()),
        "max_steps": Argument(3),
        "ftol": optional(0.1),
        "xtol": optional(0.1),
        "gtol": optional(0.1),
        "progress": Argument(False),
    },
    "grid": {"t0": Argument(0.0), "dt": Argument(0.1), "steps": Argument(4), **EVERY},
    "grid_at": {
        "times": Argument(np.arange(4.0), {"wrong": "other times"}),
        "substeps": Argument(2),
        **EVERY,
    },
    "flow.jeffery_rate": {"semi_axes": Argument(np.ones(3)), "gradient": Argument(np.eye(3))},
    "flow.rotational_resistance": {
        "semi_axes": Argument(np.ones(3)),
        "viscosity": Argument(1.0),
    },
    "flow.translational_resistance": {
        "semi_axes": Argument(np.ones(3)),
        "viscosity": Argument(1.0),
    },
    "forces.gravity": {"body": Argument(BODY), "acceleration": Argument(V)},
    "forces.linear_drag": {"resistance": Argument(1.0), "wind": Argument(V)},
    "forces.point_mass": {"body": Argument(BODY), "mu": Argument(1.0)},
    "forces.potential": {"body": Argument(BODY), "state": MOVING, "mu": Argument(1.0)},
    "forces.quadratic_drag": {"coefficient": Argument(V), "wind": Argument(V)},
    "forces.thrust": {"force": Argument(V), "offset": Argument(V)},
    "frames.attitude": {"q": algebra(Q)},
    "frames.covariance": {
        "change": Argument(jq.frames.ned_enu),
        "matrix": algebra(np.eye(3)),
    },
    "frames.frd_flu": {"vector": algebra(V)},
    "frames.ned_enu": {"vector": algebra(V)},
    "gyro.Gyro.ideal": {"dtype": optional(None)},
    "gyro.correct": {"gyro": Argument(GYRO), "measured": algebra(ROWS)},
    "gyro.measure": {
        "key": key(),
        "gyro": Argument(GYRO),
        "omega": algebra(ROWS),
        "dt": Argument(0.1),
    },
    "gyro.sample": {
        "gyro": Argument(GYRO),
        "memory": algebra(V),
        "omega": algebra(V),
        "dt": Argument(0.1),
        "noise": algebra(np.zeros((2, 3))),
    },
    "kinematics.integrate": {
        "q0": Argument(Q),
        "omega": algebra(ROWS),
        "dt": Argument(0.1),
        "times": optional(None),
        "order": Argument(2),
    },
    "kinematics.magnus": {
        "q0": Argument(Q),
        "omega": algebra(V),
        "alpha": algebra(V),
        "dt": number(0.1),
        "order": Argument(2),
    },
    "kinematics.rollout_of_attitude": {
        "rate": Argument(lambda t, q, params, *given: jnp.asarray(V)),
        "q0": Argument(Q),
        "grid": Argument(GRID),
        "params": ANY,
        "order": Argument(2),
        "inputs": optional(np.ones(4), nan="any pytree", inf="any pytree", int="any pytree"),
        "engine": Argument("scan"),
    },
    "kinematics.Preintegrated.predict": {
        "q": Argument(Q),
        "velocity": algebra(V),
        "position": algebra(V),
        "gravity": algebra(V),
        "earth_rate": algebra(V, none="the default"),
    },
    "kinematics.Preintegrated.residual": {
        "start": Argument((Q, V, V)),
        "end": Argument((Q, V, V)),
        "gravity": algebra(V),
        "earth_rate": algebra(V, none="the default"),
    },
    "kinematics.Preintegrated.with_bias": {"bias": Argument(BIAS)},
    "kinematics.preintegrate": {
        "gyro": algebra(ROWS),
        "accelerometer": algebra(ROWS),
        "times": Argument(0.1 * np.arange(6)),
        "bias": optional(BIAS),
        "noise": optional(DENSITIES),
    },
    "magnetometer.Magnetometer.ideal": {"dtype": optional(None)},
    "magnetometer.calibrate": {"samples": Argument(POSES), "strength": Argument(1.0)},
    "magnetometer.correct": {"magnetometer": Argument(MAGNETOMETER), "measured": algebra(ROWS)},
    "magnetometer.measure": {
        "key": key(),
        "magnetometer": Argument(MAGNETOMETER),
        "q": Argument(np.stack([Q] * 6)),
        "field": Argument(V),
        "dt": Argument(0.1),
    },
    "dynamics.coupled": {
        "body": Argument(BODY),
        "appendages": Argument(TANK, PROPAGATES),
        "state": MOVING,
        "displacement": algebra(np.ones(1)),
        "rate": algebra(np.ones(1)),
        "acting": algebra(V),
    },
    "dynamics.derivative": {k: v for k, v in STEP.items() if k != "dt"},
    "dynamics.energy": {"body": Argument(BODY), "state": MOVING},
    "dynamics.flexible_modes": {
        "frequency": Argument(np.ones(1), word="(frequency|ratio)"),
        "ratio": Argument(np.ones(1)),
        "translation": Argument(FOUR[:1]),
        "rotation": Argument(FOUR[:1]),
    },
    "dynamics.linearize": {
        "scheme": Argument(jq.lie_euler),
        **STEP,
        "t": Argument(0.0, {"nan": "unused", "inf": "unused"}),
    },
    "dynamics.local": {"a": STATE, "b": STATE},
    "dynamics.momentum": {
        "body": Argument(BODY),
        "state": MOVING,
        "about": optional(V, **PROPAGATES),
    },
    "dynamics.retract": {"state": STATE, "delta": algebra(np.zeros(6))},
    "dynamics.slosh_masses": {
        "mass": Argument(np.ones(1), word="(mass|position)"),
        "position": Argument(FOUR[:1]),
        "axis": Argument(np.eye(3)[:1]),
        "stiffness": Argument(np.ones(1)),
        "damping": Argument(np.ones(1)),
    },
    "planning.Plan.controller": {},
    "planning.ilqr": {
        **{key: ROLLOUT[key] for key in ("scheme", "body", "torque", "start", "grid", "params")},
        "commands": Argument(FOUR, {"wrong": "seven motors"}),
        "residuals": Argument(lambda k, state, params, command: command),
        "constraints": optional(None),
        "solver": Argument(jq.planning.Solver(2, 0.1, "gauss-newton")),
    },
    "planning.mpc": {**HORIZON, "iterations": Argument(1), "tolerance": optional(None)},
    "planning.mppi": {
        "key": key(),
        **dict(tuple(HORIZON.items())[:6]),
        "sampling": Argument(jq.planning.Sampling(0.1, 1.0, 2)),
        **dict(tuple(HORIZON.items())[6:]),
    },
    "quaternion.distance": {"p": algebra(Q), "q": algebra(Q)},
    "quaternion.from_matrix": {"matrix": Argument(np.eye(3))},
    "quaternion.from_vectors": {
        "body": algebra(np.eye(3)),
        "world": algebra(np.eye(3)),
        "weights": optional(V, nan=None),
    },
    "quaternion.mean": {"q": algebra(np.stack([Q, Q])), "weights": optional(V[:2])},
    "quaternion.multiply": {"p": algebra(Q), "q": algebra(Q)},
    "quaternion.random": {"key": key(), "shape": Argument((2,)), "dtype": optional(None)},
    "quaternion.relative": {"p": algebra(Q), "q": algebra(Q)},
    "quaternion.rotate": {"q": algebra(Q), "v": algebra(V)},
    "quaternion.rotate_inverse": {"q": algebra(Q), "v": algebra(V)},
    "quaternion.slerp": {"p": algebra(Q), "q": algebra(Q), "t": number(0.5)},
    "quaternion.squared_distance": {"p": algebra(Q), "q": algebra(Q)},
    "recordings.Recording.hold": {"channel": Argument("gyro")},
    "recordings.Recording.present": {"channel": Argument("gyro")},
    "recordings.Recording.rows_with": {"channel": Argument("gyro")},
    "recordings.Recording.spacing": {"tolerance": Argument(1e-3, {"int": "a number"})},
    "recordings.join": {"recordings": Argument(RECORDING)},
    "recordings.read": {
        "path": Argument("nowhere.csv", {"str": "a file that is not there"}),
        "columns": optional({"t": "t"}, none="a file that is not there"),
        "units": optional({"t": "s"}, none="a file that is not there"),
        "rate": optional(None, none="a file that is not there"),
        "duplicates": Argument("raise"),
    },
    "recordings.read_aem": {
        "path": Argument("nowhere.aem", {"str": "a file that is not there"}),
        "segment": optional(1, none="a file that is not there"),
    },
    "recordings.read_dataflash": {
        "path": Argument("nowhere.bin", {"str": "a file that is not there"}),
        "columns": optional({"x": "IMU.x"}, none="a file that is not there"),
        "units": optional({"x": "1"}, none="a file that is not there"),
        "frame": Argument("flu_enu"),
        "skip_damaged": Argument(False),
    },
    "recordings.read_euroc": {"path": Argument("nowhere", {"str": "a file that is not there"})},
    "recordings.read_rosbag": {
        "path": Argument("nowhere.bag", {"str": "a file that is not there"}),
        "columns": Argument({"x": "/topic.x"}),
        "units": optional({"x": "1"}, none="a file that is not there"),
        "frame": Argument("flu_enu"),
        "duplicates": Argument("raise"),
    },
    "recordings.read_tlog": {
        "path": Argument("nowhere.tlog", {"str": "a file that is not there"}),
        "columns": Argument({"x": "IMU.x"}),
        "units": optional({"x": "1"}, none="a file that is not there"),
        "frame": Argument("flu_enu"),
        "skip_damaged": Argument(False),
    },
    "recordings.read_tum": {"path": Argument("nowhere.txt", {"str": "a file that is not there"})},
    "recordings.read_ulog": {
        "path": Argument("nowhere.ulg", {"str": "a file that is not there"}),
        "columns": optional({"x": "topic.x"}, none="a file that is not there"),
        "units": optional({"x": "1"}, none="a file that is not there"),
        "frame": Argument("flu_enu"),
        "skip_damaged": Argument(False),
    },
    "recordings.stationary_intervals": {
        "recording": Argument(LONGER),
        "duration": Argument(0.5),
        "factor": Argument(2.0, {"int": "a number"}),
        "rate": Argument(0.1, {"int": "a number"}),
        "acceleration": Argument(0.5, {"int": "a number"}),
    },
    "recordings.windows": {
        "recording": Argument(RECORDING),
        "length": Argument(2),
        "stride": Argument(1),
        "gap": optional(None),
    },
    "recordings.windows_by_time": {
        "recording": Argument(RECORDING),
        "duration": Argument(0.1),
        "stride": Argument(0.1, {"int": "a second"}),
        "gap": optional(None),
    },
    "recordings.write": {
        "path": Argument("/dev/null", {"str": "a file"}),
        "recording": Argument(RECORDING),
    },
    "recordings.write_aem": {
        "path": Argument("/dev/null", {"str": "a file"}),
        "recording": Argument(RECORDING),
        "metadata": Argument(AEM),
        "version": Argument("2.0"),
    },
    "schemes.rkmk": {"tableau": Argument(TABLEAU)},
    "rollout": ROLLOUT,
    "rotors.allocate": {
        "rotors": Argument(ROTORS),
        "thrust": algebra(8.0),
        "torque": algebra(V),
        "min": Argument(0.0),
        "max": optional(5.0),
    },
    "rotors.command_speeds": {
        "controller": Argument(jq.Controller(lambda start, params: (), zero)),
        "rotors": Argument(ROTORS),
        "min": Argument(0.0),
        "max": optional(5.0),
    },
    "rotors.lag": {"rotors": Argument(ROTORS), "time_constant": Argument(0.1)},
    "rotors.speeds": {
        "rotors": Argument(ROTORS),
        "thrusts": algebra(np.ones(4)),
    },
    "rotors.wrench": {
        "rotors": Argument(ROTORS),
        "speeds": algebra(np.ones(4)),
        "q": algebra(Q),
    },
    "stochastic.brownian": {
        "damping": Argument(V + 1.0),
        "temperature": Argument(0.1),
        "toward": optional(lambda t, state, params: jnp.asarray(V)),
        "resistance": Argument(V + 1.0, word="resistance|wind"),
        "wind": optional(V),
    },
    "stochastic.langevin": {
        "scheme": Argument(jq.no_squish),
        "damping": Argument(V + 1.0),
        "temperature": Argument(0.1),
        "toward": optional(lambda t, state, params: jnp.asarray(V)),
        "resistance": Argument(V + 1.0, word="resistance|wind"),
        "wind": optional(V),
    },
    "schemes.damp": {
        "scheme": Argument(jq.no_squish),
        "damping": Argument(V, word="damping|toward"),
        "toward": optional(lambda t, state, params: jnp.asarray(V)),
        "resistance": Argument(V, word="resistance|wind"),
        "wind": optional(V),
    },
    "schemes.hoffmann.lagrange": {
        "body": Argument(BODY),
        "hoffmann": algebra(Q),
        "p": algebra(Q),
        "generalized": algebra(Q),
    },
    "schemes.hoffmann.full_quat_start": {"q": algebra(Q), "omega": algebra(V)},
    "schemes.restart": {
        "scheme": Argument(jq.no_squish),
        "ended": Argument(lambda t, state, params: t > 1.0),
        "fresh": Argument(lambda t, state, params: state),
    },
    "schemes.split_steps": {
        "scheme": Argument(jq.no_squish),
        "instants": Argument(lambda t, state, params, command: command),
    },
    "schemes.tableau": {
        "a": Argument(((0.5,),)),
        "b": Argument((0.0, 1.0), {}, "(a|b)"),
        "c": Argument((0.5,)),
        "order": Argument(2),
        "tolerance": Argument(1e-13, {"int": "a number"}),
    },
    "stochastic.add_gauss_markov_torque": {
        "scheme": Argument(jq.no_squish),
        "deviation": Argument(V),
        "time_constant": Argument(V),
    },
    "stochastic.add_torque_noise": {"scheme": Argument(jq.no_squish), "density": Argument(V)},
    "so3.dexp": {"u": algebra(V), "v": algebra(V), "frame": Argument("body")},
    "so3.dexpinv": {"u": algebra(V), "v": algebra(V), "frame": Argument("body")},
    "so3.log": {"matrix": Argument(np.eye(3))},
    "so3.vee": {"matrix": algebra(np.zeros((3, 3)))},
    "torques.commanded": {"t": ANY, "state": ANY, "params": ANY, "command": ANY},
    "torques.drag": {"damping": Argument(V)},
    "torques.gravity_gradient": {
        "body": Argument(BODY),
        "mu": Argument(1.0),
        "position": optional(lambda t: V),
    },
    "torques.heavy_top": {"weight": Argument(1.0), "offset": Argument(V)},
    "torques.in_world": {"world_torque": Argument(zero)},
    "torques.total": {"torques": Argument(zero)},
    "torques.zero": {
        "t": ANY,
        "state": Argument(START, {"nan": "0", "inf": "0"}),
        "params": ANY,
        "command": ANY,
    },
}
for _name in (
    "canonical",
    "conjugate",
    "correct_norm",
    "left_matrix",
    "log",
    "normalize",
):
    TABLE[f"quaternion.{_name}"] = {"p" if _name == "left_matrix" else "q": algebra(Q)}
for _name in (
    "to_axis_angle",
    "to_hoffmann",
    "to_matrix",
    "to_mrp",
    "to_xyzw",
    "from_xyzw",
):
    TABLE[f"quaternion.{_name}"] = {"q": algebra(Q)}
for _name in ("from_hoffmann", "hoffmann_v"):
    TABLE[f"quaternion.{_name}"] = {"hoffmann": algebra(Q)}
for _name in (
    "quaternion.exp u",
    "quaternion.expm1 u",
    "quaternion.from_mrp p",
    "so3.exp u",
    "so3.hat v",
):
    TABLE[_name.split()[0]] = {_name.split()[1]: algebra(V)}
TAKEN = {**STEP, "noise": optional(None)}
PLACES = {name: name if name in dir(jq) else f"schemes.{name}" for name in jq.schemes.SCHEMES}
for _name in PLACES.values():
    TABLE[_name] = TAKEN
FULL_QUAT_START = jax.jit(schemes.hoffmann.full_quat_start)(Q, V)
for _name in ("schemes.full_quat", "schemes.full_quat_corrected"):
    TABLE[_name] = {**TAKEN, "state": Argument(FULL_QUAT_START, PROPAGATES)}
MOVED = {"position": ROWS[:2], "velocity": ROWS[:2]}
PATH = jq.Path(jnp.array([0.0, 1.0]), jq.State(jnp.stack([Q, Q]), jnp.stack([V, V])))
REPORTED = jq.fit_covariance(lambda p: jnp.arange(3.0) - p, jnp.ones(1), sigma=1.0)
OF_PLOTS = {
    "plot.animate": {
        "path": Argument(jq.Path(PATH.t, PATH.state._replace(**MOVED))),
        "body": Argument(BODY),
        "file": optional(None, str="a name that matplotlib refuses"),
        "fps": Argument(1),
        "speed": Argument(1.0, {"int": "a number"}),
        "size": optional(0.1, int="a number"),
        "ax": optional(None),
        "progress": Argument(False),
    },
    "plot.attitude_error": {"path": Argument(PATH), "target": Argument(Q), "ax": optional(None)},
    "plot.body_axes": {"path": Argument(PATH), "frames": Argument(2), "ax": optional(None)},
    "plot.channels": {
        "recording": Argument(RECORDING),
        "names": Argument("gyro"),
        "ax": optional(None),
    },
    "plot.euler_angles": {"path": Argument(PATH), "order": ORDER, "ax": optional(None)},
    "plot.fan": {
        "t": Argument(np.arange(3.0), {"int": "times"}, "(t|values)"),
        "values": Argument(FOUR, {"int": "numbers"}, "(t|values)"),
        "ylabel": ANY,
        "label": ANY,
        "ax": optional(None),
    },
    "plot.identification": {
        "fit": Argument(REPORTED),
        "t": Argument(np.arange(3.0), {"int": "times"}, "(t|measured)"),
        "measured": Argument(np.arange(3.0), {"int": "numbers"}, "(measured|fitted)"),
        "fitted": Argument(np.arange(3.0), {"int": "numbers"}),
        "held_out": Argument((np.arange(1.0), np.ones(1), REPORTED.predict(lambda p: p))),
    },
    "plot.momentum_sphere": {
        "path": Argument(PATH),
        "body": Argument(BODY),
        "ax": optional(None),
    },
    "plot.nyquist": {"margins": Argument(MARGINS), "ax": optional(None)},
    "plot.rates": {"path": Argument(PATH), "ax": optional(None)},
    "plot.torque": {
        "path": Argument(PATH),
        "torque": Argument(zero),
        "params": ANY,
        "ax": optional(None),
    },
    "plot.track": {
        "path": Argument(jq.Path(PATH.t, PATH.state._replace(**MOVED))),
        "frames": Argument(2),
        "size": optional(0.1, int="a number"),
        "colour": Argument("0.25"),
        "label": ANY,
        "ax": optional(None),
    },
}
OF_DIFFRAX = {
    "interop.diffrax.controller": {
        "attitude": Argument(1e-6),
        "rate": Argument(1e-6),
        "aux": Argument(1e-6),
        "position": Argument(1e-6),
        "velocity": Argument(1e-6),
        "options": ANY,
    },
    "interop.diffrax.term": {"body": Argument(BODY), "torque": Argument(zero)},
}
TABLE |= OF_PLOTS if importlib.util.find_spec("matplotlib") else {}
TABLE |= OF_DIFFRAX if importlib.util.find_spec("diffrax") else {}
ELSEWHERE = {
    "export.c": "takes any function of any pytrees: tests/fused/test_export.py",
    "fused.NotScalarError": "an exception",
    "check_gpu": "takes nothing",
    "explain": "checked as rollout is",
    "fused.scan": "takes any function of any pytrees: tests/fused/test_scanning.py",
    "fused.scalarize": "traces any function of any arrays: tests/fused/test_scalarize.py",
    "fused.set_threads": "its own test: tests/simulation/engines/test_fused.py",
    "interop.diffrax.Dopri5": "called by diffrax",
    "schemes.Scheme.check": "a check itself: tests/schemes/test_scheme.py",
    "schemes.Scheme.decay": "a fact of a scheme and a body: tests/schemes/test_damping.py",
    "schemes.Scheme.noise": "a fact of a scheme and a state: tests/stochastic/test_noise.py",
    "schemes.Scheme.undo": "a step: tests/stochastic/test_noise.py",
    "schemes.Scheme.tree_flatten": "called by JAX",
    "schemes.Scheme.tree_unflatten": "called by JAX",
    "schemes.tableaus.combine": "internal",
    "schemes.weights.composed_order": "internal",
    "dynamics.Torque": "a type",
}
"""These are not called here, and the values say why."""


def public():
    """Every public function and method by its dotted name, each once.

    Records hold what they are given; they have no entry, but their methods have.
    """
    found, seen = {}, set()

    def enter(name, value):
        if not callable(value) or id(value) in seen:
            return
        seen.add(id(value))
        if inspect.isclass(value):
            for key, method in methods(value).items():
                found[f"{name}.{key}"] = getattr(OBJECTS.get(value.__name__, value), key, method)
        if not is_record(value):
            found[name] = value

    def is_record(value):
        record = inspect.isclass(value) and (issubclass(value, tuple) or is_dataclass(value))
        return record and value is not jq.Body

    def methods(kind):
        kinds = (types.FunctionType, classmethod, staticmethod)
        return {
            key: value
            for key, value in vars(kind).items()
            if not key.startswith("_") and isinstance(value, kinds)
        }

    def walk(module, path):
        names = getattr(module, "__all__", None)
        if names is None:
            names = [
                key
                for key, value in vars(module).items()
                if getattr(value, "__module__", "") == module.__name__ and key[0] != "_"
            ]
        is_module = lambda key: isinstance(getattr(module, key), types.ModuleType)
        for key in sorted(names, key=is_module):
            value = getattr(module, key)
            if isinstance(value, types.ModuleType):
                walk(value, f"{path}{key}.")
            else:
                enter(f"{path}{key}", value)

    walk(jq, "")
    walk(importlib.import_module("jaxquat.export"), "export.")
    if importlib.util.find_spec("matplotlib"):
        walk(importlib.import_module("jaxquat.plot"), "plot.")
    if importlib.util.find_spec("diffrax"):
        walk(importlib.import_module("jaxquat.interop.diffrax"), "interop.diffrax.")
    return found


OBJECTS = {
    "Body": BODY,
    "Noise": NOISE,
    "Controller": jq.Controller(lambda start, params: V, lambda *now: now[1:3]),
    "FitCovariance": LEAST.covariance,
    "Grid": GRID,
    "GridAt": jq.grid_at(np.arange(4.0), 2),
    "LeastSquares": LEAST,
    "Plan": jq.planning.Plan(
        FOUR,
        jq.Path(0.1 * jnp.arange(5.0), jq.State(jnp.stack([Q] * 5), jnp.zeros((5, 3)))),
        np.zeros((4, 3, 6)),
        *(jnp.zeros(()), jnp.asarray(1), jnp.asarray(1), jnp.zeros(3)),
    ),
    "Path": jq.Path(jnp.array([0.0, 1.0]), jq.State(jnp.stack([Q, Q]), jnp.zeros((2, 3)))),
    "Preintegrated": PREINTEGRATED,
    "Recording": RECORDING,
}
"""The tests call the methods of these objects."""
PUBLIC = public()
OPTIONS = {
    "fit": jq.FitOptions,
    "least_squares": jq.LeastSquaresOptions,
    "rollout": jq.RolloutOptions,
}
"""The records of options; TABLE has their fields beside the arguments of the function."""


def fields(name):
    return OPTIONS[name]._fields if name in OPTIONS else ()


def test_the_table_has_every_public_function_and_every_argument():
    assert set(PUBLIC) - set(ELSEWHERE) - set(TABLE) == set(), "rows to add to TABLE"
    assert set(TABLE) - set(PUBLIC) == set(), "rows of names that are not public"
    for name, arguments in TABLE.items():
        arguments = [key for key in arguments if key not in fields(name)]
        assert arguments == list(inspect.signature(PUBLIC[name]).parameters), name


def called(name, **changes):
    given = {key: argument.good for key, argument in TABLE[name].items()} | changes
    record = {key: given.pop(key) for key in fields(name)}
    if record and "options" not in changes:
        given["options"] = OPTIONS[name](**record)
    kinds = inspect.signature(PUBLIC[name]).parameters
    given = {
        key: value
        for key, value in given.items()
        if kinds[key].kind is not inspect.Parameter.VAR_KEYWORD
    }
    several = [key for key in given if kinds[key].kind is inspect.Parameter.VAR_POSITIONAL]
    if several:
        after = {key: given.pop(key) for key in list(given)[list(given).index(several[0]) + 1 :]}
        return PUBLIC[name](*given.values(), **after)
    return PUBLIC[name](**given)


def cases(meant):
    """Returns (function, argument, label) of the bad values.

    They are those that are meant after all, or the others.
    """
    return [
        (name, key, label)
        for name, arguments in TABLE.items()
        for key, argument in arguments.items()
        for label in bad_values(argument.good)
        if (argument.meant.get(label) is not None) == meant
    ]


def outcome(name, key, label):
    """Says what is wrong with the way the function takes this bad value; "" means nothing is."""
    argument = TABLE[name][key]
    try:
        result = called(name, **{key: bad_values(argument.good)[label]})
    except (TypeError, ValueError) as error:
        text = str(error)
        if re.search(rf"\b{argument.word or key}\b.*: ", text.splitlines()[0]):
            return ""
        return f"{key}={label}: {type(error).__name__}: {text[:150]!r}"
    except Exception as error:
        return f"{key}={label}: {type(error).__name__}: {str(error)[:150]!r}"
    return f"{key}={label}: taken without a word: {str(result)[:80]}"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A bad value that is taken for a relative path leads into an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def films_end(request):
    """A film that was never drawn warns when it is collected.

    It is collected here, where the warning is ignored, and not in a later test. Objects of earlier
    tests are not looked through.
    """
    films = "plot.animate" in request.node.name
    if films:
        gc.freeze()
    yield
    if films:
        gc.collect()


# Every scheme checks its arguments by the same function. Here is one of each module.
OF_EACH_MODULE = {"lie_euler", "zhao", "no_squish", "lgvi"}
OF_EACH_MODULE |= {"formulation1", "half_quat", "full_quat"}
ALIKE = {place for name, place in PLACES.items() if name not in OF_EACH_MODULE}


@pytest.mark.filterwarnings("ignore:Animation was deleted:UserWarning")
@pytest.mark.parametrize("name", some(TABLE, {*TABLE} - ALIKE))
def test_what_cannot_be_meant_is_refused_by_the_name_of_the_argument(name):
    wrong = [outcome(*case) for case in cases(meant=False) if case[0] == name]
    assert not any(wrong), "\n".join(filter(None, wrong))


TRACED = [name for name in TABLE if name != "fit_covariance" and not name.startswith("plot.")]
QUICK = ("schemes.damp", "estimation.mekf", "Path.at", "actuators.lag")


def test_a_scalar_limit_written_inside_of_jit_is_checked():
    with pytest.raises(ValueError, match=r"^limits: wanted positive values, got -1"):
        jax.jit(lambda tau: jq.actuators.allocate(jnp.eye(3), tau, -1.0))(jnp.ones(3))


@pytest.mark.parametrize("name", some((n for n in TRACED if n not in ALIKE), QUICK))
def test_a_number_written_inside_of_jit_is_checked_as_outside(name, monkeypatch):
    function = PUBLIC[name]
    monkeypatch.setitem(
        PUBLIC,
        name,
        functools.wraps(function)(
            lambda *args, **kwargs: jax.jit(lambda: (function(*args, **kwargs), 0.0)[1])()
        ),
    )
    values = [case for case in cases(meant=False) if case[0] == name and case[2] in PROPAGATES]
    wrong = [outcome(*case) for case in values]
    assert not any(wrong), "\n".join(filter(None, wrong))


def is_floating(leaf):
    return jnp.issubdtype(getattr(leaf, "dtype", int), jnp.floating)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Animation was deleted:UserWarning")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.weekly] * (name in ALIKE)) for name in TABLE],
)
def test_what_is_meant_after_all_gives_what_the_table_says(name):
    """NaN and infinity propagate through algebra.

    A batch, a default and a limit of infinity give a result.
    """
    for _, key, label in [case for case in cases(meant=True) if case[0] == name]:
        why = TABLE[name][key].meant[label]
        if why not in {"any pytree", "a file that is not there", "a name that matplotlib refuses"}:
            result = called(name, **{key: bad_values(TABLE[name][key].good)[label]})
            numbers = [np.asarray(leaf) for leaf in jax.tree.leaves(result) if is_floating(leaf)]
            assert why != "propagates" or not all(np.isfinite(x).all() for x in numbers), (
                f"{key}={label}: {result}"
            )

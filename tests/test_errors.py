"""Bad input raises an exception whose message names the argument.

Each case is a row with the exception and parts of its message, which says what was wanted and what
came.
"""

import functools
import re
from dataclasses import FrozenInstanceError

import flat
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.experimental import checkify

import jaxquat as jq
from jaxquat import actuators, control, dynamics, euler, frames, quaternion, so3, torques
from jaxquat._internal import checks as arguments
from jaxquat.estimation import Interval
from jaxquat.schemes import tableaus

KEY = jax.random.key(0)
Q, V, NAN = jnp.array([1.0, 0, 0, 0]), jnp.array([0.1, 0.2, 0.3]), float("nan")
TEN, FOUR_ROWS = jnp.ones(10), jnp.ones((4, 3))
START = jq.State(Q, V)
INERTIA = jnp.diag(jnp.array([1.0, 2.0, 2.5]))
BODY = jq.Body(INERTIA)
GRID = jq.grid(0.0, 0.1, 4)
GAINS = control.Gains(V, V)
AUX = jq.State(Q, V, V)


def single(tree):
    return jax.tree.map(lambda x: x.astype(jnp.float32), tree)


def rollout(**changes):
    given = {
        "scheme": jq.lie_euler,
        "body": BODY,
        "torque": torques.zero,
        "start": START,
        "grid": GRID,
    }
    return flat.rollout(**{**given, **changes})


def sampled(
    init=lambda start, params: jnp.zeros(()),
    update=lambda t, state, memory, params, value: (V, memory),
):
    return rollout(torque=torques.commanded, controller=jq.Controller(init, update))


def fit(**changes):
    given = {
        "loss": lambda params, batch, key: jnp.sum(params**2),
        "params": jnp.ones(2),
        "optimizer": optax.sgd(0.1),
    }
    fields = {name: changes.pop(name) for name in jq.FitOptions._fields if name in changes}
    given["options"] = jq.FitOptions(**{"progress": False, **fields})
    return jq.fit(**{**given, "steps": 2, "key": jax.random.key(0), **changes})


def gyro(**changes):
    return jq.gyro.measure(KEY, jq.gyro.Gyro.ideal()._replace(**changes), FOUR_ROWS, 0.1)


def coupled(state, acting, body=BODY):
    one = jnp.ones(1)
    panel = dynamics.flexible_modes(one, one, jnp.zeros((1, 3)), jnp.zeros((1, 3)))
    return dynamics.coupled(body, panel, state, one, one, acting)


IMU = jq.estimation.ImuSample(Interval(jnp.full(2, 0.1)), *jnp.full((3, 2, 3), 9.8))


def imu(**changes):
    return jq.estimation.run(jq.estimation.ahrs(), IMU._replace(**changes))


def lqr(**changes):
    """Calls ``control.lqr`` with a double integrator."""
    given = {
        "a": jnp.array([[1.0, 0.1], [0.0, 1.0]]),
        "b": jnp.array([[0.0], [0.1]]),
        "state_cost": jnp.eye(2),
    }
    return control.lqr(**{**given, "command_cost": jnp.eye(1), **changes})


def without_x64(function, *arguments):
    with jax.enable_x64(False):
        return function(*arguments)


def path():
    """Returns a path of two rows at rest, at t = 0 and 1; it needs no compiled rollout."""
    return jq.Path(jnp.array([0.0, 1.0]), jq.State(jnp.stack([Q, Q]), jnp.zeros((2, 3))))


def own(value):
    """Returns a torque of ``value``; its name is the one that messages should mention."""

    def spring(t, state, params):
        return value

    return spring


# Each public function of quaternions refuses a wrong shape, an integer dtype and a thing that is no
# array, in every argument.

ALGEBRA = [
    (quaternion.multiply, {"p": (4,), "q": (4,)}),
    (quaternion.conjugate, {"q": (4,)}),
    (quaternion.normalize, {"q": (4,)}),
    (quaternion.correct_norm, {"q": (4,)}),
    (quaternion.canonical, {"q": (4,)}),
    (quaternion.rotate, {"q": (4,), "v": (3,)}),
    (quaternion.rotate_inverse, {"q": (4,), "v": (3,)}),
    (quaternion.exp, {"u": (3,)}),
    (quaternion.log, {"q": (4,)}),
    (quaternion.left_matrix, {"p": (4,)}),
    (quaternion.distance, {"p": (4,), "q": (4,)}),
    (quaternion.squared_distance, {"p": (4,), "q": (4,)}),
    (quaternion.slerp, {"p": (4,), "q": (4,)}),
    (quaternion.to_axis_angle, {"q": (4,)}),
    (quaternion.from_mrp, {"p": (3,)}),
    (quaternion.to_mrp, {"q": (4,)}),
    (quaternion.from_matrix, {"matrix": (3, 3)}),
    (quaternion.to_matrix, {"q": (4,)}),
    (quaternion.from_xyzw, {"q": (4,)}),
    (quaternion.to_xyzw, {"q": (4,)}),
    (quaternion.from_hoffmann, {"hoffmann": (4,)}),
    (quaternion.to_hoffmann, {"q": (4,)}),
    (quaternion.hoffmann_v, {"hoffmann": (4,)}),
    (so3.hat, {"v": (3,)}),
    (so3.vee, {"matrix": (3, 3)}),
    (so3.exp, {"u": (3,)}),
    (so3.log, {"matrix": (3, 3)}),
    (so3.dexp, {"u": (3,), "v": (3,)}),
    (so3.dexpinv, {"u": (3,), "v": (3,)}),
    (lambda angles: euler.to_quaternion(angles, "ZYX"), {"angles": (3,)}),
    (lambda q: euler.from_quaternion(q, "ZYX"), {"q": (4,)}),
    (lambda angles: euler.rate_matrix(angles, "ZYX"), {"angles": (3,)}),
    (frames.ned_enu, {"vector": (3,)}),
    (frames.frd_flu, {"vector": (3,)}),
    (frames.attitude, {"q": (4,)}),
    (lambda matrix: frames.covariance(frames.ned_enu, matrix), {"matrix": (3, 3)}),
]
EXTRA = {quaternion.slerp: {"t": 0.5}}


@pytest.mark.parametrize(
    ("function", "shapes", "name"),
    [(function, shapes, name) for function, shapes in ALGEBRA for name in shapes],
)
def test_arrays_of_the_algebra(function, shapes, name):
    good = {key: np.ones(shape) for key, shape in shapes.items()} | EXTRA.get(function, {})
    wanted = "(..., " + ", ".join(map(str, shapes[name])) + ")"
    for value, error, got in (
        (np.ones(5), ValueError, f"wanted shape {wanted}, got (5,)"),
        (np.float64(1.0), ValueError, f"wanted shape {wanted}, got ()"),
        (np.ones(shapes[name], int), TypeError, "wanted a floating dtype, got int64"),
        (np.ones(shapes[name], complex), TypeError, "wanted a floating dtype, got complex128"),
        (None, TypeError, "wanted an array of floats, got None"),
        ("word", TypeError, "wanted an array of floats, got 'word'"),
    ):
        with pytest.raises(error, match=re.escape(f"{name}: {got}")):
            function(**{**good, name: value})


ONE_UNIT = "wanted a unit quaternion (| |q| - 1 | <= 0.0001), got"
SCHEME_HINT = "use jax.vmap for a batch"
ORDER = "order: wanted three of XYZ (intrinsic) or xyz (extrinsic), no axis twice in a row, got"
TWO_DIRECTIONS = jnp.eye(3)[:2]

CASES = [
    # quaternion
    (
        lambda: quaternion.multiply(jnp.ones((2, 4)), jnp.ones((3, 4))),
        ValueError,
        "p, q: wanted leading axes",
        "(2, 4), (3, 4)",
    ),
    (
        lambda: quaternion.slerp(jnp.ones((2, 4)), Q, V),
        ValueError,
        "p, q, t: wanted leading axes",
        "(2, 4), (4,), (3,)",
    ),
    (
        lambda: quaternion.slerp(Q, Q, np.int64(1)),
        TypeError,
        "t: wanted a floating dtype, got int64",
        "1.0, not 1",
    ),
    (lambda: quaternion.mean(Q), ValueError, "q: wanted shape (..., n, 4) with n >= 1, got (4,)"),
    (
        lambda: quaternion.mean(jnp.zeros((0, 4))),
        ValueError,
        "q: wanted shape (..., n, 4) with n >= 1, got (0, 4)",
    ),
    (
        lambda: quaternion.mean(jnp.ones((3, 4), int)),
        TypeError,
        "q: wanted a floating dtype, got int64",
    ),
    (
        lambda: quaternion.mean(jnp.ones((3, 4)), jnp.ones(2)),
        ValueError,
        "weights: wanted shape (..., 3), got (2,)",
    ),
    (
        lambda: quaternion.from_vectors(V, TWO_DIRECTIONS),
        ValueError,
        "body: wanted shape (..., n, 3) with n >= 2, got (3,)",
    ),
    (
        lambda: quaternion.from_vectors(jnp.ones((1, 3)), TWO_DIRECTIONS),
        ValueError,
        "body: wanted",
        "n >= 2, got (1, 3)",
    ),
    (
        lambda: quaternion.mean(jnp.stack([Q, Q[::-1]])),
        ValueError,
        "q, weights: wanted attitudes that have one mean, got several equally good ones "
        "(largest eigenvalues [1. 1.])",
    ),
    (
        lambda: quaternion.mean(jnp.stack([Q, Q]), jnp.zeros(2)),
        ValueError,
        "q, weights: wanted attitudes that have one mean",
    ),
    (
        lambda: quaternion.mean(jnp.stack([Q, Q]), jnp.array([2.0, -1.0])),
        ValueError,
        "weights: wanted finite values of at least 0, got [ 2. -1.]",
    ),
    (
        lambda: quaternion.mean(jnp.stack([Q, Q]), jnp.array([1.0, jnp.inf])),
        ValueError,
        "weights: wanted finite values",
    ),
    (
        lambda: quaternion.from_vectors(jnp.stack([V, 2 * V]), jnp.stack([V, 2 * V])),
        ValueError,
        "body, world: wanted directions that determine the attitude, got several equally good ones",
    ),
    (
        lambda: quaternion.from_vectors(jnp.eye(3), jnp.eye(3), -jnp.ones(3)),
        ValueError,
        "weights: wanted finite values of at le",
    ),
    (
        lambda: quaternion.from_vectors(jnp.eye(3)[:2] * V[0], jnp.zeros((2, 3))),
        ValueError,
        "world: wanted directions, got one",
    ),
    (
        lambda: quaternion.from_matrix(-jnp.eye(3)),
        ValueError,
        "matrix: wanted a rotation matrix (R^T R = 1 to 0.0005, determinant 1), got [[-1",
        "of determinant -1, R^T R off 1 by 0",
    ),
    (
        lambda: quaternion.from_matrix(2 * jnp.eye(3)),
        ValueError,
        "matrix: wanted a rotation",
        "determinant 8, R^T R off 1 by 3",
    ),
    (
        lambda: quaternion.from_matrix(jnp.stack([jnp.eye(3), NAN * jnp.eye(3)])),
        ValueError,
        "matrix: wanted finite values",
        "nan",
    ),
    (
        lambda: so3.log(jnp.diag(jnp.array([1.0, 1, -1]))),
        ValueError,
        "matrix: wanted a rotation matrix",
        "determinant -1",
    ),
    # so3, frames, euler
    (
        lambda: so3.dexp(V, V, "space"),
        ValueError,
        "frame: wanted one of 'body', 'world', got 'space'",
    ),
    (lambda: so3.dexpinv(V, V, None), ValueError, "frame: wanted one of 'body', 'world', got None"),
    (
        lambda: so3.dexp(jnp.ones((2, 3)), jnp.ones((3, 3))),
        ValueError,
        "u, v: wanted leading axes that broadcast",
        "(2, 3), (3, 3)",
    ),
    (
        lambda: frames.covariance(frames.attitude, jnp.eye(3)),
        ValueError,
        "change: wanted frames.ned_enu or frames.frd_flu, got attitude",
    ),
    (
        lambda: frames.covariance("ned_enu", jnp.eye(3)),
        TypeError,
        "change: wanted a function, got 'ned_enu'; it is frames.ned_enu or frames.frd_flu",
    ),
    (lambda: euler.to_quaternion(V, "XXY"), ValueError, ORDER, "'XXY'"),
    (lambda: euler.from_quaternion(Q, "ZyX"), ValueError, ORDER, "'ZyX'"),
    (lambda: euler.rate_matrix(V, "ZY"), ValueError, ORDER, "'ZY'"),
    (lambda: euler.to_quaternion(V, ["Z", "Y", "X"]), ValueError, ORDER, "['Z', 'Y', 'X']"),
    # Body and its constructors
    (lambda: jq.Body(None), TypeError, "inertia: wanted an array of floats, got None"),
    (
        lambda: jq.Body(np.diag([1, 2, 2])),
        TypeError,
        "inertia: wanted a floating dtype, got int64",
        "1.0, not 1",
    ),
    (
        lambda: jq.Body(INERTIA.at[0, 1].set(0.1)),
        ValueError,
        "inertia: wanted a symmetric matrix, got",
        "0.1",
    ),
    (
        lambda: jq.Body(jnp.diag(jnp.array([1.0, -1, 1]))),
        ValueError,
        "inertia: wanted a positive definite inertia",
        "-1.",
    ),
    (
        lambda: jq.Body(jnp.diag(jnp.array([1.0, 0, 1]))),
        ValueError,
        "inertia: wanted a positive definite inertia",
        "0.",
    ),
    (
        lambda: jq.Body(jnp.diag(jnp.array([1.0, 1, 3]))),
        ValueError,
        "inertia: wanted moments with I1 + I2 >= I3",
        "[1. 1. 3.]",
    ),
    (lambda: jq.Body(INERTIA * NAN), ValueError, "inertia: wanted finite values, got", "nan"),
    (
        lambda: jq.Body.from_principal(np.array([1, 2, 2])),
        TypeError,
        "moments: wanted a floating dtype, got int64",
    ),
    (
        lambda: jq.Body.from_principal(jnp.array([1.0, -1, 1])),
        ValueError,
        "moments: wanted a positive definite inertia",
        "-1.",
    ),
    (
        lambda: jq.Body.from_principal(jnp.array([1.0, 1, 3])),
        ValueError,
        "moments: wanted moments with I1 + I2 >= I3",
        "[1. 1. 3.]",
    ),
    (
        lambda: jq.Body.from_principal(V * NAN),
        ValueError,
        "moments: wanted finite values, got",
        "nan",
    ),
    (
        lambda: jq.Body.from_principal(jnp.ones(3, jnp.float32), Q),
        TypeError,
        "axes: wanted the dtype of the moments, float32, got float64",
    ),
    (lambda: jq.Body.from_principal(jnp.ones(3), 2 * Q), ValueError, "axes: " + ONE_UNIT, "norm 2"),
    (
        lambda: jq.Body.from_parameters(jnp.full(6, 1e3)),
        ValueError,
        "theta: wanted exponentials",
        "float64 can hold",
        "[inf inf",
    ),
    (
        lambda: jq.Body.from_parameters(jnp.array([-400.0] * 3 + [0.0] * 3)),
        ValueError,
        "theta: wanted exponentials",
        "[0. 0. 0.]",
    ),
    (
        lambda: jq.Body.from_parameters(jnp.full(6, 60.0, jnp.float32)),
        ValueError,
        "theta: wanted exponentials",
        "float32 can",
    ),
    (lambda: jq.Body.box(-2.0, V), ValueError, "mass: wanted positive values, got -2.0"),
    (lambda: jq.Body.box(float("inf"), V), ValueError, "mass: wanted finite values, got inf"),
    (
        lambda: jq.Body.box(2.0, jnp.array([1.0, 0, 1])),
        ValueError,
        "sides: wanted positive values, got [1. 0. 1.]",
    ),
    (lambda: jq.Body.box(2.0, V * NAN), ValueError, "sides: wanted positive values, got", "nan"),
    (lambda: jq.Body.cylinder(0.0, 1.0, 1.0), ValueError, "mass: wanted positive values, got 0.0"),
    (lambda: setattr(BODY, "mass", 1.0), FrozenInstanceError, "cannot assign to field 'mass'"),
    # torques, control
    (
        lambda: jq.estimation.mekf(Q, jq.estimation.MekfSettings(attitude=-jnp.eye(3))),
        ValueError,
        "settings.attitude: wanted a positive definite covariance, got [[-1.0",
    ),
    (
        lambda: jq.estimation.ahrs({"heading": 0.1}),
        TypeError,
        "settings: wanted estimation.AhrsSettings, got dict",
    ),
    (
        lambda: imu(dt=Interval(jnp.ones(3))),
        ValueError,
        "samples: wanted arrays with one axis (N,) in front",
    ),
    (
        lambda: imu(dt=Interval(jnp.array([0.1, -0.1]))),
        ValueError,
        "samples.dt: wanted finite values of at least 0, got [ 0.1 -0.1]",
    ),
    (
        lambda: imu(dt=Interval(jnp.array([0.1, NAN]))),
        ValueError,
        "samples.dt: wanted finite values of at least 0, got [0.1 nan]",
    ),
    (
        lambda: imu(dt=Interval(jnp.full(2, 10.0))),
        ValueError,
        "samples: wanted intervals in s",
        "'ms' for",
    ),
    (lambda: imu(gyro=jnp.full((2, 3), 300.0)), ValueError, "samples: wanted rates in rad/s"),
    (
        lambda: imu(accelerometer=jnp.full((2, 3), 1e20, jnp.float32)),
        ValueError,
        "samples: wanted specific forces in m/s^2, got a median of 1.73e+20",
    ),
    (
        lambda: imu(gyro=[[0.1, 0.0, 0.0]] * 2),
        TypeError,
        "samples.gyro: wanted an array, got a list",
    ),
    (
        lambda: jq.estimation.merge(IMU._replace(dt=Interval(jnp.array([0.1, -0.1]))), 2),
        ValueError,
        "samples.dt: wanted finite values of at least 0, got [ 0.1 -0.1]",
    ),
    (
        lambda: jq.recordings.Recording(STAMPS, channels={3: STAMPS}),
        TypeError,
        "channels: wanted names that are strings, got int",
    ),
    (
        lambda: jq.recordings.Recording(STAMPS, channels={"gyro": STAMPS}),
        ValueError,
        "channels: wanted names of no field, got 'gyro'",
    ),
    (
        lambda: jq.recordings.Recording(STAMPS, channels={"t": STAMPS}),
        ValueError,
        "channels: wanted names of no field, got 't'",
    ),
    (
        lambda: jq.recordings.Recording(STAMPS * NAN).spacing(),
        ValueError,
        "t: wanted finite times, got nan at [0]",
    ),
    (
        lambda: jq.recordings.Recording(STAMPS * 0.0).spacing(),
        ValueError,
        "t: wanted times that increase, got 0.0 at first and 0.0 at last",
    ),
    (
        lambda: jq.estimation.run(jq.estimation.ahrs(), IMU, memory=V),
        TypeError,
        "memory: wanted the memory of the filter",
    ),
    (
        lambda: jq.estimation.merge(IMU, 3),
        ValueError,
        "every: wanted a divisor of the 2 samples, got 3",
    ),
    (
        lambda: gyro(noise=-1.0),
        ValueError,
        "gyro.noise: wanted finite values of at least 0, got -1.0",
    ),
    (
        lambda: gyro(bias_random_walk=jnp.array([0.0, 1.0, NAN])),
        ValueError,
        "gyro.bias_random_walk: wanted finite values of at least 0, got [ 0.  1. nan]",
    ),
    (
        lambda: gyro(scale=jnp.array([0.0, 0.0, -1.0])),
        ValueError,
        "gyro.scale: wanted values above -1, got [ 0.  0. -1.]",
    ),
    (
        lambda: gyro(misalignment=jnp.ones(6)),
        ValueError,
        "gyro.misalignment: wanted axes that span space, got [1. 1.",
    ),
    (lambda: gyro(bias=V * NAN), ValueError, "gyro.bias: wanted finite values"),
    (
        lambda: lqr(command_cost=jnp.zeros((1, 1))),
        ValueError,
        "command_cost: wanted a positive definite matrix, got [[0.0]]",
    ),
    (
        lambda: lqr(b=jnp.eye(2), command_cost=jnp.ones((2, 2))),
        ValueError,
        "command_cost: wanted a positive definite matrix",
    ),
    (
        lambda: lqr(state_cost=jnp.diag(jnp.array([1.0, -1.0]))),
        ValueError,
        "state_cost: wanted a positive semidefinite matrix",
    ),
    (
        lambda: lqr(state_cost=jnp.triu(jnp.ones((2, 2)))),
        ValueError,
        "state_cost: wanted a symmetric matrix, got [[1.0, 1.0],",
    ),
    (lambda: lqr(a=jnp.eye(2) * NAN), ValueError, "a: wanted finite values"),
    (lambda: lqr(a=jnp.ones((2, 3))), ValueError, "; a, b = jq.dynamics.linearize(scheme, body, "),
    (lambda: lqr(b=jnp.ones((3, 1))), ValueError, "; a, b = jq.dynamics.linearize(scheme, body, "),
    (lambda: lqr(b=jnp.zeros((2, 1))), ValueError, "b is 0: the params of linearize must be the "),
    (
        lambda: dynamics.linearize(jq.rkmk2, BODY, lambda t, s, p, u: u, 0.0, START, 0.1, V),
        TypeError,
        "linearize takes a command as params: lambda t, state, u: plant(t, state, params, u), got",
    ),
    (
        lambda: dynamics.linearize(jq.rkmk2, BODY, torques.commanded, 0.0, START, 0.1, V),
        TypeError,
        "got neither; for linearize write lambda t, state, u: plant(t, state, params, u)",
    ),
    (
        lambda: control.pointing.errors(jnp.ones(8), 4, drift=3),
        ValueError,
        "drift: wanted at least the window, 4, got 3",
    ),
    (
        lambda: control.pointing.errors(jnp.ones(8), 4, reproducibility=5),
        ValueError,
        "reproducibility: wanted at most 4 for 8 samples, got 5",
    ),
    (
        lambda: control.pointing.from_spectrum(V[::-1], V, 1.0),
        ValueError,
        "frequency: wanted frequencies that increase",
    ),
    (
        lambda: control.pointing.from_spectrum(V[:1], V[:1], 1.0),
        ValueError,
        "frequency: wanted at least 2 for a density, got 1",
    ),
    (
        lambda: jax.jit(lambda f: control.pointing.from_spectrum(f, V, 1.0))(V),
        TypeError,
        "only the frequencies of lines may be traced",
    ),
    (
        lambda: jq.kinematics.preintegrate(FOUR_ROWS, FOUR_ROWS, jnp.arange(3.0)),
        ValueError,
        "times: wanted one for each of 4 samples, got 3",
    ),
    (
        lambda: jq.kinematics.preintegrate(FOUR_ROWS[:1], FOUR_ROWS[:1], jnp.ones(1)),
        ValueError,
        "gyro: wanted shape (N, 3) with N >= 2, got (1, 3)",
    ),
    (
        lambda: jq.kinematics.preintegrate(FOUR_ROWS, single(FOUR_ROWS), jnp.arange(4.0)),
        TypeError,
        "accelerometer: wanted the dtype of gyro, float64, got float32",
    ),
    (
        lambda: jq.kinematics.Preintegrated(
            Q, V, V, V[0], jnp.eye(9), jnp.ones((9, 6)), jq.kinematics.Imu(V, V)
        ).residual((Q, V), (Q, V, V), V),
        ValueError,
        "start: wanted (q, velocity, position), got 2 elements",
    ),
    (
        lambda: jq.magnetometer.correct(
            jq.magnetometer.Magnetometer(-jnp.eye(3), V, jnp.array(0.0)), FOUR_ROWS
        ),
        ValueError,
        "magnetometer.soft_iron: wanted a positive determinant, got [[-1.0",
    ),
    (
        lambda: jq.accelerometer.calibrate(FOUR_ROWS, 9.8),
        ValueError,
        "samples: wanted at least 10, got 4",
    ),
    (
        lambda: gyro(bias_random_walk="low"),
        TypeError,
        "gyro.bias_random_walk: wanted an array of floats, got 'low'",
    ),
    (
        lambda: control.quaternion_law(START, GAINS, 2 * Q),
        ValueError,
        "target: " + ONE_UNIT,
        "norm 2",
    ),
    (
        lambda: control.tracking_law(START, GAINS, control.Reference(2 * Q, V, V), BODY),
        ValueError,
        "reference.q: " + ONE_UNIT,
        "norm 2",
    ),
    # dynamics
    # grid
    (lambda: jq.grid(0.0, 0.0, 4), ValueError, "dt: wanted a positive step, got 0.0"),
    (lambda: jq.grid(0.0, -0.1, 4), ValueError, "dt: wanted a positive step, got -0.1"),
    (lambda: jq.grid(0.0, NAN, 4), ValueError, "dt: wanted a finite number, got nan"),
    (lambda: jq.grid(0.0, V, 4), ValueError, "dt: wanted a scalar, got shape (3,)"),
    (lambda: jq.grid(0.0, "0.1", 4), TypeError, "dt: wanted an array of floats, got '0.1'"),
    (lambda: jq.grid(float("inf"), 0.1, 4), ValueError, "t0: wanted a finite number, got inf"),
    (lambda: jq.grid(V, 0.1, 4), ValueError, "t0: wanted a scalar, got shape (3,)"),
    (lambda: jq.grid(0.0, 0.1, 0), ValueError, "steps: wanted at least 1, got 0"),
    (
        lambda: jq.grid(0.0, 0.1, 4.0),
        TypeError,
        "steps: wanted an integer, got 4.0; the order is jq.grid(t0, dt, steps)",
    ),
    (lambda: jq.grid(0.0, 0.1, True), TypeError, "steps: wanted an integer, got True"),
    (lambda: jq.grid(0.0, 0.1, jnp.asarray(4)), TypeError, "steps: wanted an integer, got Array(4"),
    (
        lambda: jq.grid_at(np.array([0.0, 0.2, 0.1])),
        ValueError,
        "times: wanted times that do not decrease, got times[1] = 0.2, times[2] = 0.1",
    ),
    (
        lambda: jq.grid_at(jnp.asarray(1.7e9 + np.arange(3.0), jnp.float32)),
        ValueError,
        "times: wanted times that differ, got 3 times 1700000000.0 in float32; float32 there has "
        "steps of 1.3e+02 s: subtract the first time in float64",
    ),
    (
        lambda: jq.rkmk4(BODY, lambda t, state, p: (V, V), 0.0, START, 0.1, None),
        TypeError,
        "wanted an array of shape (3,), got ('float64[3]', 'float64[3]') for a state without aux",
        "for d aux/dt, put the initial aux states into the start",
    ),
    (lambda: jq.grid_at(V * NAN), ValueError, "times: wanted finite values, got [nan nan nan]"),
    (lambda: jq.grid_at(np.arange(3.0), 0), ValueError, "substeps: wanted at least 1, got 0"),
    (lambda: jq.grid_at(np.arange(3.0), 2.0), TypeError, "substeps: wanted an integer, got 2.0"),
    # keys
    (lambda: quaternion.random(0), TypeError, "key: wanted a jax.random.key, got 0"),
    (
        lambda: quaternion.random(jnp.uint32(3)),
        TypeError,
        "key: wanted a jax.random.key, got Array(3",
    ),
    (
        lambda: quaternion.random(jnp.arange(3, dtype=jnp.uint32)),
        TypeError,
        "key: wanted a jax.random.key, got Array(",
    ),
    (
        lambda: quaternion.random(jax.random.split(KEY)),
        ValueError,
        "key: wanted one key, got shape (2,)",
    ),
    (
        lambda: quaternion.random(jax.random.split(jax.random.PRNGKey(0))),
        ValueError,
        "key: wanted one key, got shape (2,)",
    ),
    (
        lambda: jq.Body.random(jax.random.split(KEY)),
        ValueError,
        "key: wanted one key, got shape (2,)",
    ),
    (
        lambda: jq.gyro.measure(jax.random.split(KEY), jq.gyro.Gyro.ideal(), FOUR_ROWS, 0.1),
        ValueError,
        "key: wanted one key, got shape (2,)",
    ),
    (
        lambda: jq.ensembles.members(jax.random.split(KEY), lambda key: key, 3),
        ValueError,
        "key: wanted one key, got shape (2,)",
    ),
    (
        lambda: jq.ensembles.keys(None, jnp.arange(3)),
        TypeError,
        "key: wanted a jax.random.key, got None",
    ),
    (
        lambda: jq.ensembles.keys(KEY, jnp.arange(3.0)),
        TypeError,
        "index: wanted integers, got float64",
    ),
    (
        lambda: without_x64(jq.ensembles.keys, KEY, np.array([7, 2**32 + 7])),
        ValueError,
        "index: wanted integers that int32 holds, got [         7 4294967303]",
    ),
    (lambda: fit(snapshot_dir=""), TypeError, "snapshot_dir: wanted a path, got ''"),
    (lambda: fit(key=jax.random.split(KEY)), ValueError, "key: wanted one key, got shape (2,)"),
    # rollout: start
    (lambda: rollout(start=(Q, V)), TypeError, "start: wanted a jq.State, got tuple"),
    (lambda: rollout(start=None), TypeError, "start: wanted a jq.State, got None"),
    (lambda: rollout(start=jq.State(V, V)), ValueError, "start.q: wanted shape (4,), got (3,)"),
    (lambda: rollout(start=jq.State(Q, Q)), ValueError, "start.omega: wanted shape (3,), got (4,)"),
    (
        lambda: rollout(start=jq.State(jnp.stack([Q, Q]), FOUR_ROWS[:2])),
        ValueError,
        "start.q: wanted",
        "(2, 4)",
        SCHEME_HINT,
    ),
    (
        lambda: rollout(start=jq.State(Q.astype(int), V)),
        TypeError,
        "start.q: wanted a floating dtype, got int64",
    ),
    (
        lambda: rollout(start=jq.State(None, V)),
        TypeError,
        "start.q: wanted an array of floats, got None",
    ),
    (lambda: rollout(start=jq.State(1.01 * Q, V)), ValueError, "start.q: " + ONE_UNIT, "norm 1.01"),
    (lambda: rollout(start=jq.State(Q * NAN, V)), ValueError, "start.q: " + ONE_UNIT, "nan"),
    (
        lambda: rollout(start=jq.State(Q, V * NAN)),
        ValueError,
        "start.omega: wanted finite values, got [nan nan nan]",
    ),
    (
        lambda: rollout(start=jq.State(single(Q), V)),
        TypeError,
        "start: wanted one dtype, got q float32 beside float64",
    ),
    (
        lambda: rollout(start=jq.State(Q, V, {"wheel": V.astype(int)})),
        TypeError,
        "start.aux: wanted a floating dtype, got int64",
    ),
    (
        lambda: rollout(start=jq.State(Q, V, V * NAN)),
        ValueError,
        "start.aux: wanted finite values, got [nan nan nan]",
    ),
    (
        lambda: rollout(start=jq.State(Q, V, single(V))),
        TypeError,
        "start: wanted one dtype, got q float64 beside float32",
    ),
    # rollout: body, grid
    (lambda: rollout(body=INERTIA), TypeError, "body: wanted a jq.Body, got ArrayImpl"),
    (lambda: rollout(body=None), TypeError, "body: wanted a jq.Body, got None"),
    (
        lambda: rollout(body=single(BODY)),
        TypeError,
        "body: wanted the dtype of the start, float64, got float32",
    ),
    (
        lambda: rollout(body=jax.vmap(jq.Body)(jnp.stack([INERTIA, INERTIA]))),
        ValueError,
        "body: wanted one body, inertia of shape (3, 3), got (2, 3, 3)",
        SCHEME_HINT,
    ),
    (
        lambda: rollout(grid=(0.0, 0.1, 4)),
        TypeError,
        "grid: wanted a jq.grid(t0, dt, steps) or jq.grid_at(times), got tuple",
    ),
    (
        lambda: rollout(grid=None),
        TypeError,
        "grid: wanted a jq.grid(t0, dt, steps) or jq.grid_at(times), got None",
    ),
    # rollout: what the torque returns
    (
        lambda: rollout(torque=own(Q)),
        ValueError,
        "torque spring: wanted an array of shape (3,) and dtype float64, got float64[4]",
    ),
    (
        lambda: rollout(torque=own(single(V))),
        ValueError,
        "torque spring: wanted",
        "dtype float64, got float32[3]",
    ),
    (
        lambda: rollout(torque=own(V.astype(int))),
        ValueError,
        "torque spring: wanted",
        "dtype float64, got int64[3]",
    ),
    (
        lambda: rollout(torque=own(0.0)),
        TypeError,
        "torque spring: wanted an array of shape (3,)",
        "got float",
    ),
    (
        lambda: rollout(torque=own(None)),
        TypeError,
        "torque spring: wanted an array of shape (3,)",
        "got None",
    ),
    (
        lambda: rollout(torque=own([0.0, 0.0, 0.0])),
        TypeError,
        "torque spring: wanted an array of shape (3,)",
        "got ['float'",
    ),
    (
        lambda: rollout(torque=own((V, V))),
        TypeError,
        "torque spring: wanted an array of shape (3,)",
        "got ('float64[3]', 'float64[3]')",
    ),
    (
        lambda: rollout(start=single(START), body=single(BODY), torque=own(V)),
        ValueError,
        "torque spring: wanted an array of shape (3,) and dtype float32, got float64[3]",
    ),
    (
        lambda: rollout(start=AUX, torque=own(V)),
        TypeError,
        "torque spring: wanted (torque, d aux/dt)",
        "got float64[3]",
    ),
    (
        lambda: rollout(start=AUX, torque=own([V, V])),
        TypeError,
        "torque spring: wanted (torque, d aux/dt)",
        "got ['float64[3]'",
    ),
    (
        lambda: rollout(start=AUX, torque=own((V, Q))),
        ValueError,
        "torque spring: wanted d aux/dt",
        "float64[3], got float64[4]",
    ),
    (
        lambda: rollout(start=AUX, torque=own((V, {"a": V}))),
        ValueError,
        "torque spring: wanted d aux/dt",
        "got {'a': 'float64[3]'}",
    ),
    (
        lambda: rollout(start=AUX, torque=own((V, single(V)))),
        ValueError,
        "torque spring: wanted d aux/dt",
        "got float32[3]",
    ),
    (
        lambda: rollout(start=AUX, torque=own((Q, V))),
        ValueError,
        "torque spring: wanted an array of shape (3,)",
        "got float64[4]",
    ),
    (
        lambda: jq.zhao(BODY, own(Q), 0.0, START, 0.1, None),
        ValueError,
        "torque spring: wanted an array",
        "got float64[4]",
    ),
    (
        lambda: jq.lie_euler(BODY, own(V), 0.0, AUX, 0.1, None),
        TypeError,
        "torque spring: wanted (torque, d aux/dt)",
    ),
    # rollout: sampling, saving, options
    (
        lambda: rollout(inputs=FOUR_ROWS[:3]),
        ValueError,
        "inputs: wanted leading axis 4 (steps // grid.sample_every), got shape (3, 3)",
    ),
    (
        lambda: rollout(inputs=FOUR_ROWS, sample_every=2),
        ValueError,
        "inputs: wanted leading axis 2",
        "got shape (4, 3)",
    ),
    (
        lambda: rollout(inputs={"wind": jnp.asarray(1.0)}),
        ValueError,
        "inputs: wanted leading axis 4",
        "got shape ()",
    ),
    (lambda: rollout(sample_every=0), ValueError, "sample_every: wanted at least 1, got 0"),
    (
        lambda: rollout(sample_every=3),
        ValueError,
        "sample_every: wanted a divisor of the 4 steps, got 3",
    ),
    (lambda: rollout(sample_every=2.0), TypeError, "sample_every: wanted an integer, got 2.0"),
    (lambda: rollout(save_every=-1), ValueError, "save_every: wanted at least 1, got -1"),
    (
        lambda: rollout(save_every=8),
        ValueError,
        "save_every: wanted a divisor of the 4 steps, got 8",
    ),
    (lambda: rollout(save_every=None), TypeError, "save_every: wanted an integer, got None"),
    (
        lambda: rollout(checkpoint="all"),
        ValueError,
        "checkpoint: wanted one of 'none', 'sqrt', 'reversible', got 'all'",
    ),
    (lambda: rollout(checkpoint=0), ValueError, "checkpoint: wanted at least 1, got 0"),
    (lambda: rollout(checkpoint=True), TypeError, "checkpoint: wanted an integer, got True"),
    (lambda: rollout(checkpoint=None), TypeError, "checkpoint: wanted an integer, got None"),
    (
        lambda: rollout(checkpoint="reversible"),
        ValueError,
        'checkpoint: "reversible" wanted a time-reversible scheme (no_squish',
        "got lie_euler",
    ),
    (
        lambda: rollout(engine="gpu"),
        ValueError,
        "engine: wanted one of 'scan', 'fused', 'auto', got 'gpu'",
    ),
    (
        lambda: rollout(engine=None),
        ValueError,
        "engine: wanted one of 'scan', 'fused', 'auto', got None",
    ),
    (
        lambda: rollout(engine="fused", check=True),
        ValueError,
        'engine: wanted "scan" or "auto" with check=True, got "fused"',
    ),
    # rollout: things that are no arrays
    (
        lambda: rollout(save=lambda t, state, params: "ab"),
        TypeError,
        "save: wanted arrays, got 'ab'",
    ),
    (
        lambda: rollout(save=lambda t, state, params: {"a": V, "b": [object]}),
        TypeError,
        "save: wanted arrays, got <",
        "at ['b'][0]",
    ),
    (
        lambda: rollout(inputs=np.array(["a", "b", "c", "d"])),
        TypeError,
        "inputs: wanted arrays of numbers, got <U1",
    ),
    (lambda: rollout(check=1), TypeError, "check: wanted True or False, got 1"),
    (
        lambda: sampled(init=lambda start, params: "none"),
        TypeError,
        "controller.init: wanted arrays, got 'none'",
    ),
    (
        lambda: sampled(update=lambda t, state, memory, p, value: ("go", memory)),
        TypeError,
        "controller.update: wanted arrays, got 'go'",
    ),
    (
        lambda: sampled(
            init=lambda start, params: jnp.int32(0),
            update=lambda t, s, m, p, value: (V, jnp.ones(())),
        ),
        TypeError,
        "controller.update: wanted a memory with the dtypes of the one given, int32, got float",
    ),
    (
        lambda: sampled(update=lambda t, s, m, p, value: (V, jnp.zeros((2, 2)))),
        TypeError,
        "controller.update: wanted a memory with the shapes of the one given, (",
    ),
    (
        lambda: rollout(scheme=lambda b, f, t, s, dt, p: s._replace(omega=jnp.zeros(3, "int32"))),
        ValueError,
        "scheme: wanted a state with the shapes and dtypes of the one given, State(q='float",
        "omega='int32[3]'",
    ),
    # ensembles
    (
        lambda: jq.ensembles.run(
            KEY, lambda key: 1.0, lambda m: "ab", 3, reduce=jq.ensembles.mean()
        ),
        TypeError,
        "simulate: wanted arrays",
    ),
    (
        lambda: jq.ensembles.run(
            KEY, lambda key: "ab", lambda m: 1.0, 3, reduce=jq.ensembles.mean()
        ),
        TypeError,
        "draw: wanted arrays",
    ),
    (
        lambda: jq.ensembles.run(
            KEY,
            lambda key: 1.0,
            jnp.sin,
            3,
            reduce=jq.ensembles.mean(lambda rows: "ab"),
            progress=False,
        ),
        TypeError,
        "of: wanted arrays, got 'ab'",
    ),
    (
        lambda: jq.ensembles.quantiles("ab"),
        TypeError,
        "probabilities: wanted a sequence of numbers, got 'ab'",
    ),
    (
        lambda: jq.ensembles.quantiles([0.5], accuracy="ab"),
        TypeError,
        "accuracy: wanted a number, got 'ab'",
    ),
    (
        lambda: quaternion.random(KEY, 5),
        TypeError,
        "shape: wanted a tuple of integers, got 5 (write (5,))",
    ),
    (
        lambda: quaternion.random(KEY, (-1,)),
        ValueError,
        "shape: wanted integers of at least 0, got (-1,)",
    ),
    (lambda: dynamics.energy(BODY, None), TypeError, "state: wanted a jq.State, got None"),
    (
        lambda: jq.schemes.symmetric_top_bm4(None, torques.zero, 0.0, START, 0.1, None),
        TypeError,
        "body: wanted a jq.Body, got None",
    ),
    # the path
    (lambda: path().at(1.5), ValueError, "t: wanted times within [0.0, 1.0], got 1.5"),
    (
        lambda: path().at(jnp.array([0.5, -0.1])),
        ValueError,
        "t: wanted times within [0.0, 1.0], got [ 0.5 -0.1]",
    ),
    (
        lambda: jax.tree.map(lambda x: x[:1], path()).at(0.0),
        ValueError,
        "path: wanted at least two rows",
        "got 1",
    ),
    (
        lambda: jax.jit(lambda x: fit(params=x))(V),
        TypeError,
        "params: wanted concrete arrays",
        "outside jit",
    ),
    (
        lambda: jax.jit(lambda x: jq.fit_covariance(lambda p: p, x))(V),
        TypeError,
        "params: wanted concrete arrays",
        "outside jit",
    ),
    (
        lambda: jax.jit(lambda x: jq.least_squares(lambda p: p, x, sigma=1.0))(V),
        TypeError,
        "params: wanted concrete arrays",
        "outside jit",
    ),
    (
        lambda: jq.least_squares(lambda p: p, V, sigma=1.0, bounds=(0.2, None)),
        ValueError,
        "params: wanted params[0] in [0.2, inf], got",
    ),
    (
        lambda: jq.least_squares(lambda p: p, BODY, sigma=1.0),
        TypeError,
        "params: wanted no jq.Body",
    ),
    (
        lambda: jax.grad(lambda x: jq.least_squares(lambda p: x * p, V, sigma=1.0).cost)(1.0),
        TypeError,
        "residuals: wanted concrete arrays",
        "outside jit, grad and vmap",
    ),
    (
        lambda: jax.vmap(lambda x: jq.fit_covariance(lambda p: x * p, V, sigma=1.0).covariance)(V),
        TypeError,
        "residuals: wanted concrete arrays",
        "outside jit, grad and vmap",
    ),
    (
        lambda: jq.least_squares(lambda p: p, V.astype(jnp.bfloat16), sigma=1.0),
        TypeError,
        "params: wanted float32 or float64, got bfloat16",
    ),
    (
        lambda: jq.fit_covariance(lambda p: p, {"a": V.astype(jnp.float16)}, sigma=1.0),
        TypeError,
        "params: wanted float32 or float64, got float16 at params['a']",
    ),
    (lambda: jq.least_squares(lambda p: p, V), ValueError, "residuals: wanted more than the 3"),
    (
        lambda: jq.least_squares(lambda p: p / 0.0, V, sigma=1.0),
        ValueError,
        "residuals at the start: wanted finite values",
    ),
    (
        lambda: jq.least_squares(lambda p: p, V, sigma=1.0, prefixes=(0.3, 0.1)),
        ValueError,
        "prefixes: wanted rising parts",
    ),
    (
        lambda: imu(gyro=jnp.ones((2, 3), jnp.bfloat16)),
        TypeError,
        "sample.gyro: wanted float32 or float64, got bfloat16",
    ),
    (
        lambda: gyro(misalignment=jnp.zeros(6, jnp.float16)),
        TypeError,
        "gyro.misalignment: wanted float32 or float64, got float16",
    ),
    (
        lambda: jq.magnetometer.calibrate(jnp.ones((12, 3), jnp.float16), 1.0),
        TypeError,
        "samples: wanted float32 or float64, got float16",
    ),
    (
        lambda: jq.kinematics.preintegrate(jnp.ones((4, 3), jnp.bfloat16), FOUR_ROWS, np.arange(4)),
        TypeError,
        "gyro: wanted float32 or float64, got bfloat16",
    ),
    (
        lambda: jq.magnetometer.measure(
            KEY, jq.magnetometer.Magnetometer.ideal(), Q[None].astype(jnp.bfloat16), V, 0.1
        ),
        TypeError,
        "q: wanted float32 or float64, got bfloat16",
    ),
    (
        lambda: lqr(b=jnp.ones((2, 1), jnp.bfloat16)),
        TypeError,
        "b: wanted float32 or float64, got bfloat16",
    ),
    (
        lambda: jq.Body(INERTIA.astype(jnp.bfloat16)),
        TypeError,
        "inertia: wanted float32 or float64, got bfloat16",
    ),
    (
        lambda: jq.Body.from_principal(V.astype(jnp.float16)),
        TypeError,
        "moments: wanted float32 or float64, got float16",
    ),
    (
        lambda: rollout(body=single(BODY), start=single(START), grid=jq.grid(0.0, 1e-46, 2)),
        ValueError,
        "grid: wanted a dt within the range of float32, got 1e-46",
    ),
    (
        lambda: rollout(body=single(BODY), start=single(START), grid=jq.grid(1e39, 0.1, 2)),
        ValueError,
        "grid: wanted a t0 within the range of float32, got 1e+39",
    ),
    (
        lambda: rollout(body=single(BODY), start=single(START), grid=jq.grid(1e9, 0.01, 100)),
        ValueError,
        "grid: wanted steps that float32 can tell apart at t = 1e+09 s (at least 119 s), got 0.01"
        " s; start at 0 and add the offset in the torque, or use float64",
    ),
    (
        lambda: rollout(
            body=single(BODY), start=single(START), grid=jq.grid_at(np.array([0.0, 1e39]))
        ),
        ValueError,
        "grid: wanted times within the range of float32, got [0.e+00 1.e+39]",
    ),
    (
        lambda: jq.ensembles.keys(KEY, jnp.array([-1])),
        ValueError,
        "index: wanted finite values of at least 0, got [-1]",
    ),
    (
        lambda: jq.ensembles.run(
            KEY, lambda key: None, lambda member: V, 5, reduce=jq.ensembles.mean(), progress=False
        ),
        ValueError,
        "draw: wanted at least one array of a member, got None",
    ),
    (lambda: path().at(NAN), ValueError, "t: wanted times within [0.0, 1.0], got nan"),
    # fit
    (lambda: fit(params=()), ValueError, "params: wanted at least one number, got none"),
    (
        lambda: fit(params={"gain": TEN, "bodies": [jq.Body.from_principal(jnp.ones(3))]}),
        TypeError,
        "params: wanted no jq.Body, whose moments an update would make negative, got one at "
        "params['bodies'][0]; give theta of",
    ),
    (
        lambda: fit(data=(TEN, jnp.ones(5))),
        ValueError,
        "data: wanted one leading axis throughout, got [(10,), (5,)]",
    ),
    (
        lambda: fit(data=jnp.asarray(1.0)),
        ValueError,
        "data: wanted one leading axis throughout, got [()]",
    ),
    (lambda: fit(data=jnp.ones((0, 3))), ValueError, "data: wanted at least one row, got [(0, 3)]"),
    (
        lambda: fit(data=TEN, batch_size=11),
        ValueError,
        "batch_size: wanted at most the rows of data, got 11 for 10",
    ),
    (
        lambda: fit(batch_size=1),
        ValueError,
        "batch_size: wanted at most the rows of data, got 1 for no data",
    ),
    (
        lambda: fit(starts=3),
        ValueError,
        "params: wanted a leading axis of 3 starts throughout, got shape (2,)",
    ),
    (
        lambda: fit(params=jnp.asarray(1.0), starts=1),
        ValueError,
        "params: wanted a leading axis of 1 starts throughout, got shape ()",
    ),
    (
        lambda: fit(params=jnp.ones((2, 0)), starts=2),
        ValueError,
        "params: wanted at least one number, got none",
    ),
    (
        lambda: fit(patience=3),
        ValueError,
        "patience: wanted a validation function with it, got 3 without",
    ),
    (
        lambda: fit(validation=lambda params: params),
        ValueError,
        "validation: wanted a scalar, got shape (2,)",
    ),
    (
        lambda: fit(loss=lambda p, b, k: jnp.sum(p) * NAN),
        FloatingPointError,
        "loss: ",
        "not finite at all 2 updates",
        "nan",
    ),
]


@pytest.mark.parametrize(
    "case", CASES, ids=[f"{case[2].split(':')[0]}-{k}" for k, case in enumerate(CASES)]
)
def test_refused_by_name(case):
    call, error, *fragments = case
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    for fragment in fragments:
        assert fragment in str(caught.value)


def with_one(array, index, value):
    """A copy of a long array in which one element is bad, in the middle, where NumPy shows none."""
    array = np.array(array, float)
    array[index] = value
    return array


ROWS = np.zeros((3000, 3))
STAMPS = np.arange(5000.0)
LONG = {
    "wanted positive values, got -2.0 at [1234] of shape (5000,)": (
        lambda: arguments.positive("x", with_one(STAMPS + 1, 1234, -2.0))
    ),
    "wanted finite values, got inf at [1234] of shape (5000,)": (
        lambda: arguments.positive("x", with_one(STAMPS + 1, 1234, np.inf))
    ),
    "inputs: wanted finite values, got nan at [700, 2] of shape (3000, 3)": (
        lambda: arguments.finite("inputs", with_one(ROWS, (700, 2), NAN))
    ),
    "weights: wanted finite values of at least 0, got -1.0 at [1234] of shape (5000,)": (
        lambda: quaternion.mean(jnp.ones((5000, 4)) / 2, with_one(STAMPS, 1234, -1.0))
    ),
    "between: wanted times that do not decrease, got 7.0 at [1, 1234] of shape (2, 5000)": (
        lambda: actuators.delay_record(
            STAMPS, jnp.ones(5000), 0.1, between=with_one([STAMPS, STAMPS], (1, 1234), 7.0)
        )
    ),
    "recording.t: wanted finite times, got nan at [1234] of shape (5000,)": (
        lambda: jq.recordings.write("a.csv", recording(t=with_one(STAMPS, 1234, NAN)))
    ),
    'recording["q"]: wanted a unit quaternion, or NaN in all four, got [2.0, 0.0, 0.0, 0.0] at row '
    "1234": (lambda: jq.recordings.write("a.csv", recording(q=with_one(LEVEL, (1234, 0), 2.0)))),
    'recording["movement"]: wanted 0 or 1, got 3.0 at row 1234': (
        lambda: jq.recordings.write("a.csv", recording(movement=with_one(STAMPS > 9, 1234, 3.0)))
    ),
}
LEVEL = np.tile([1.0, 0.0, 0.0, 0.0], (5000, 1))


def recording(**changes):
    fields = {"t": STAMPS, "gyro": np.zeros((5000, 3)), "q": LEVEL, "movement": STAMPS > 9}
    return jq.recordings.Recording(**fields | changes)


@pytest.mark.parametrize("message", LONG)
def test_of_a_long_array_the_message_has_the_first_bad_element(message):
    with pytest.raises(ValueError, match=re.escape(message) + "$"):
        LONG[message]()


def test_a_torque_in_the_dtype_of_its_parameters_is_refused():
    """The states are float32, the parameter is float64, and promotion is not strict."""
    with (
        jax.numpy_dtype_promotion("standard"),
        pytest.raises(ValueError, match=r"torque drag: .* dtype float32, got float64\[3\]"),
    ):
        rollout(start=single(START), body=single(BODY), torque=drag, params=jnp.float64(2.0))


def drag(t, state, params):
    return -params * state.omega


# Without a check, each of these is accepted without a word or refused in the words of some inner
# function.


def changing(t, state, memory, params, value):
    return V, (memory, memory)


# Every message has the form "name: wanted ..., got ...".
MISLEADING = [
    # not callable, or of the wrong kind
    (
        lambda: rollout(scheme="rkmk6"),
        TypeError,
        "scheme: wanted a function, got 'rkmk6'; write jq.rkmk6",
    ),
    (
        lambda: rollout(scheme="euler"),
        TypeError,
        "scheme: wanted a function, got 'euler'; a scheme is for example jq.rkmk4, "
        "or a function of your own",
    ),
    (lambda: rollout(torque=None), TypeError, "torque", "None", "jq.torques.zero"),
    (lambda: rollout(torque=V), TypeError, "torque", "ArrayImpl"),
    (
        lambda: rollout(controller=lambda *given: V),
        TypeError,
        "controller",
        "jq.Controller",
        "function",
    ),
    (lambda: rollout(save=1), TypeError, "save", "function", "int"),
    (lambda: sampled(init=None), TypeError, "controller", "init", "None"),
    # what a function of the user returns
    (
        lambda: rollout(scheme=lambda body, torque, t, state, dt, params: (state.q, state.omega)),
        TypeError,
        "scheme",
        "State",
        "tuple",
    ),
    (
        lambda: sampled(update=lambda t, state, memory, params, value: V),
        TypeError,
        "controller",
        "(command, memory)",
    ),
    (lambda: fit(loss=lambda params, batch, key: params), ValueError, "loss", "scalar", "(2,)"),
    (
        lambda: fit(loss=lambda params, batch, key: params, mode="reverse"),
        ValueError,
        "loss",
        "scalar",
        "(2,)",
    ),
    (
        lambda: fit(loss=lambda params, batch, key: jnp.sum(params)[None]),
        ValueError,
        "loss",
        "scalar",
        "(1,)",
    ),
    (
        lambda: torques.total(own(jnp.ones(())), torques.zero)(0.0, START, None),
        ValueError,
        "torque spring",
        "(3,)",
    ),
    (
        lambda: coupled(START, jq.Wrench(V, V)),
        TypeError,
        "acting: wanted a torque alone because the state has no position",
        "Wrench",
    ),
    (
        lambda: coupled(START._replace(position=V, velocity=V), V, jq.Body(jnp.eye(3))),
        ValueError,
        "body",
        "a mass because the state has a position",
    ),
    # values
    (lambda: jq.Body.from_parameters(jnp.full(6, NAN)), ValueError, "theta", "nan"),
    (lambda: BODY.shifted(1.0, V * NAN), ValueError, "offset", "nan"),
    (lambda: actuators.wheel_friction(V, 0.1, 0.1, 0.2), TypeError, "stribeck_speed", "static"),
    (lambda: actuators.wheel_friction(V, -0.1, 0.1), ValueError, "coulomb", "at least 0"),
    (
        lambda: actuators.wheel_imbalance(*jnp.ones((3, 1, 3)) / 3**0.5, START, *jnp.ones((4, 1))),
        ValueError,
        "normals",
        "normal to the axes",
    ),
    # shapes and structures
    (
        lambda: control.quaternion_law(START, control.Gains(Q, V), Q),
        ValueError,
        "damping",
        "(3,)",
        "(4,)",
    ),
    (lambda: dynamics.local(START, AUX), ValueError, "aux"),
    (
        lambda: jq.lgvi(BODY, torques.zero, 0.0, jax.tree.map(lambda x: x[None], START), 0.1, None),
        ValueError,
        "state.q",
        "jax.vmap",
    ),
    (
        lambda: jq.no_squish(BODY, torques.zero, 0.0, single(START), 0.1, None),
        TypeError,
        "body: wanted",
        "float32, got float64",
    ),
    (
        lambda: jq.rkmk4(BODY, torques.zero, 0.0, jq.State(Q, single(V)), 0.1, None),
        TypeError,
        "state: wanted one dtype",
    ),
    (
        lambda: jq.rkmk4(BODY, changing, 0.0, START, 0.1, None),
        TypeError,
        "torque: wanted torque(t, state, params), got changing(",
    ),
    (lambda: dynamics.energy(START, BODY), TypeError, "body: wanted a jq.Body, got State"),
    (lambda: dynamics.local(START, BODY), TypeError, "b: wanted a jq.State, got Body"),
    (
        lambda: dynamics.retract(START, single(jnp.zeros(6))),
        TypeError,
        "delta: wanted the dtype of the state, float64, got float32",
    ),
    (lambda: jax.tree.map(lambda x: x[None], path()).at(0.5), ValueError, "jax.vmap"),
    (lambda: euler.to_quaternion(V, np.array([2, 1, 0])), ValueError, "order: wanted", "[2"),
]


KINEMATIC = (lambda t: V, Q, GRID)
FREE = "because there is neither controller nor inputs"

# These functions of the user have the wrong arguments.
ARGUMENTS = [
    (
        lambda: rollout(scheme=jq.exact.free_body),
        "scheme: wanted scheme(body, torque, t, state, dt, params), got free_body(",
    ),
    (
        lambda: rollout(torque=lambda t, s: V),
        f"torque: wanted torque(t, state, params) {FREE}, got <lambda>(t, s)",
    ),
    (
        lambda: rollout(torque=lambda t, s, p, command: V),
        f"torque: wanted torque(t, state, params) {FREE}, got",
    ),
    (
        lambda: rollout(torque=own(V), inputs=FOUR_ROWS),
        "torque: wanted torque(t, state, params, command) because there are inputs, "
        "got spring(t, state, params)",
    ),
    (lambda: rollout(save=lambda t, s: s), f"save: wanted save(t, state, params) {FREE}, got"),
    (
        lambda: sampled(init=None),
        "controller.init: wanted a function, got None; it is called as init(start, params)",
    ),
    (
        lambda: sampled(init=lambda: 0),
        "controller.init: wanted init(start, params), got <lambda>()",
    ),
    (
        lambda: sampled(update=lambda t, s, m: 0),
        "controller.update: wanted update(t, state, memory, params, input), got",
    ),
    (
        lambda: rollout(
            torque=own(V),
            controller=jq.Controller(lambda start, params: (), lambda *given: (V, ())),
        ),
        "torque: wanted torque(t, state, params, command) because there is a controller, "
        "got spring(t, state, params)",
    ),
    (
        lambda: jq.schemes.compose(lambda state: state, (1.0,)),
        "scheme: wanted scheme(body, torque, t, state, dt, params), got",
    ),
    (
        lambda: jq.schemes.damp(jnp.sin, V),
        "scheme: wanted scheme(body, torque, t, state, dt, params), got sin(",
    ),
    (lambda: fit(loss=lambda p: p), "loss: wanted loss(params, batch, key), got <lambda>(p)"),
    (lambda: fit(validation=lambda: 0.0), "validation: wanted validation(params), got <lambda>()"),
    (lambda: jq.fit_covariance(lambda: V, V), "residuals: wanted residuals(params), got"),
    (lambda: jq.kinematics.rollout_of_attitude(*KINEMATIC), "rate: wanted rate(t, q, params), got"),
    (
        lambda: control.pid(BODY, 0.1, lambda t: V),
        "reference: wanted reference(t, params, input), got",
    ),
    (
        lambda: control.pid(BODY, 0.1, lambda t, p, i: V, gains=lambda: V),
        "gains: wanted gains(params), got",
    ),
    (
        lambda: control.pid(BODY, 0.1, lambda t, p, i: V, measure=lambda s: s),
        "measure: wanted measure(state, input), got",
    ),
    (lambda: control.follow(lambda: Q, 0.0), "attitude: wanted attitude(t), got"),
    (lambda: jq.ensembles.run(KEY, lambda: 0, lambda m: m, 3), "draw: wanted draw(key), got"),
    (
        lambda: jq.ensembles.run(KEY, lambda key: key, lambda: 0, 3),
        "simulate: wanted simulate(member), got",
    ),
    (
        lambda: torques.gravity_gradient(BODY, position=lambda: V),
        "position: wanted position(t), got",
    ),
]


@pytest.mark.parametrize(("call", "message"), ARGUMENTS)
def test_functions_with_other_arguments_are_refused_by_name(call, message):
    with pytest.raises(TypeError, match="^" + re.escape(message)):
        call()


class Wind:
    """This torque is an object."""

    def __call__(self, t, state, params, scale=1.0):
        return scale * V


@pytest.mark.parametrize(
    "torque",
    [
        functools.partial(lambda scale, t, state, params: scale * V, 2.0),
        functools.partial(lambda t, state, params, *, scale: scale * V, scale=2.0),
        Wind(),
        jax.jit(own(V)),
        jax.checkpoint(own(V)),
        lambda *given: V,
        lambda t, *rest, **options: V,
    ],
)
def test_functions_of_every_kind_are_taken(torque):
    assert arguments.takes("torque", torque, "t, state, params") is torque


@pytest.mark.parametrize(
    "case", MISLEADING, ids=[f"{case[2].strip(': ')}-{k}" for k, case in enumerate(MISLEADING)]
)
def test_refused_in_the_words_of_the_caller(case):
    test_refused_by_name(case)


def test_a_step_takes_numbers_as_a_rollout_does():
    """A step takes lists and numpy's arrays."""
    q, omega = [0.5, -0.5, 0.5, 0.5], np.array([0.1, 0.2, 0.3])
    found, wanted = (
        jq.rkmk4(BODY, torques.zero, 0.0, jq.State(*given), 0.1, None)
        for given in ((q, omega), map(jnp.asarray, (q, omega)))
    )
    np.testing.assert_array_equal(found.q, wanted.q)


def test_a_step_called_directly_keeps_the_dtype_of_its_state():
    """Time and step are float64 from numpy, and the state is float32.

    Promotion is not strict.
    """
    with jax.numpy_dtype_promotion("standard"):
        for step in (jq.lie_euler, jq.zhao):
            got = jax.eval_shape(
                lambda t, dt, step=step: step(
                    single(BODY), torques.zero, t, single(START), dt, None
                ),
                *np.ones(2),
            )
            assert got.q.dtype == got.omega.dtype == jnp.float32


def test_a_tableau_is_what_the_factory_takes():
    assert callable(jq.schemes.rkmk(tableaus.HEUN))


def test_the_hint_of_batches_is_for_batches_alone():
    with pytest.raises(ValueError, match=r"^start.q: wanted shape \(4,\), got \(3,\)$"):
        rollout(start=jq.State(V, V))


@pytest.mark.slow
@pytest.mark.needs("llvmlite")
def test_auto_differentiates_a_jit_that_was_traced_before():
    def attitudes(omega, engine):
        return rollout(start=START._replace(omega=omega), engine=engine).state.q

    wanted = jax.jit(jax.jacfwd(lambda omega: attitudes(omega, "scan")))(V)
    traced_before = jax.jit(lambda omega: attitudes(omega, "auto"))
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(mode(traced_before)(V), wanted, rtol=0, atol=1e-12)


def test_a_bare_int_is_a_float():
    np.testing.assert_array_equal(jq.Body.box(3, V).inertia, jq.Body.box(3.0, V).inertia)
    np.testing.assert_array_equal(quaternion.slerp(Q, Q, 1), Q)
    np.testing.assert_array_equal(actuators.lag(V, 2 * V, 1), V)
    np.testing.assert_array_equal(
        torques.heavy_top(1, V)(0.0, START, None), torques.heavy_top(1.0, V)(0.0, START, None)
    )
    np.testing.assert_array_equal(path().at(0).q, Q)
    assert jax.eval_shape(lambda v: jq.Body.box(3, v).inertia, single(V)).dtype == jnp.float32
    assert jq.grid(0, 1, 4).times(jnp.float32)[-1] == 4


def test_what_is_checked_is_what_is_used():
    """Gains and gyroscopes take lists and numbers."""
    lists = control.Gains([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    np.testing.assert_array_equal(
        control.quaternion_law(START, lists, Q), control.quaternion_law(START, GAINS, Q)
    )
    np.testing.assert_array_equal(
        control.euler_law(START, lists, V), control.euler_law(START, GAINS, V)
    )
    still, listed = (
        control.Reference(Q, 0.0 * V, 0.0 * V),
        control.Reference([1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
    )
    for law in (control.tracking_law, control.geometric_law):
        np.testing.assert_array_equal(
            law(START, lists, listed, BODY), law(START, GAINS, still, BODY)
        )
    np.testing.assert_array_equal(
        gyro(noise=[0.1, 0.1, 0.1], bias_random_walk=[0.2, 0.2, 0.2]),
        gyro(noise=0.1, bias_random_walk=jnp.asarray(0.2)),
    )


def test_a_key_of_the_older_kind_is_that_key():
    old, new = (
        quaternion.random(jax.random.PRNGKey(5), (3,)),
        quaternion.random(jax.random.key(5), (3,)),
    )
    np.testing.assert_array_equal(old, new)


def test_the_hint_of_integers_is_for_integers_alone():
    with pytest.raises(TypeError, match=r"^mass: wanted a floating dtype, got key<fry>$"):
        jq.Body.box(KEY, V)


# While jit traces, no value is known, so check=True reports through checkify.


def simulate(q, omega, dt, inertia, poison):
    """Runs a rollout whose torque is ``poison`` (such as NaN) after t = 0.25, and zero before."""

    def torque(t, state, params):
        return jnp.where(t > 0.25, poison, jnp.zeros(3))

    body = jax.vmap(jq.Body)(inertia[None])
    # The body is unchecked, as if it came from inside a traced function.
    body = jax.tree.map(lambda x: x[0], body)
    return jq.rollout(
        jq.lie_euler,
        body,
        torque,
        jq.State(q, omega),
        jq.grid(0.0, dt, 4),
        options=jq.RolloutOptions(check=True),
    )


checked = jax.jit(checkify.checkify(simulate))
GOOD = {"q": Q, "omega": V, "dt": jnp.asarray(0.1), "inertia": INERTIA, "poison": jnp.zeros(3)}


def test_good_input_under_jit_is_reported_as_good():
    error, path = checked(**GOOD)
    assert error.get() is None
    assert np.isfinite(path.state.omega).all()
    error, _ = checked(**{**GOOD, "q": (1 + 0.9e-4) * Q})
    assert error.get() is None


@pytest.mark.parametrize(
    ("name", "value", "fragments"),
    [
        ("q", 1.01 * Q, ("start.q: wanted a unit quaternion, got norm 1.01",)),
        ("q", (1 - 1.1e-4) * Q, ("start.q: wanted a unit quaternion, got norm 0.9998",)),
        ("q", Q * NAN, ("start.q: wanted a unit quaternion, got norm nan",)),
        ("omega", V.at[1].set(NAN), ("state: not finite, first at the saved time t = 0.0",)),
        ("dt", jnp.asarray(0.0), ("dt: wanted a positive step, got 0.0",)),
        ("dt", jnp.asarray(-0.1), ("dt: wanted a positive step, got -0.1",)),
        ("dt", jnp.asarray(NAN), ("dt: wanted a positive step, got nan",)),
        (
            "inertia",
            jnp.diag(jnp.array([1.0, 2, -2.5])),
            ("body: wanted a positive definite inertia", "-2.5"),
        ),
        (
            "inertia",
            jnp.diag(jnp.array([1.0, 2, 5])),
            ("body: wanted", "I1 + I2 >= I3, got principal moments", "5."),
        ),
        ("inertia", INERTIA * NAN, ("body: wanted a positive definite inertia", "nan")),
        ("poison", V * NAN, ("state: not finite, first at the saved time t = 0.4",)),
    ],
)
def test_bad_values_under_jit_are_reported_by_name(name, value, fragments):
    error, _ = checked(**{**GOOD, name: value})
    assert error.get() is not None
    for fragment in fragments:
        assert fragment in error.get()


def test_checkify_outside_of_jit():
    error, _ = checkify.checkify(jax.jit(simulate))(**{**GOOD, "dt": jnp.asarray(-0.1)})
    with pytest.raises(checkify.JaxRuntimeError, match=r"dt: wanted a positive step, got -0\.1"):
        error.throw()


def test_an_infinite_start_time_under_jit_is_reported():
    def shifted(t0):
        return jq.rollout(
            jq.lie_euler,
            BODY,
            torques.zero,
            START,
            jq.grid(t0, 0.1, 4),
            options=jq.RolloutOptions(check=True),
        )

    error, _ = jax.jit(checkify.checkify(shifted))(jnp.asarray(jnp.inf))
    assert error.get() is not None
    assert "t0" in error.get()


def test_without_check_nothing_is_reported_and_the_path_shows_the_nan():
    def unchecked(dt):
        return jq.rollout(jq.lie_euler, BODY, torques.zero, START, jq.grid(0.0, dt, 4)).state.omega

    assert np.isnan(jax.jit(unchecked)(jnp.asarray(NAN))).any()

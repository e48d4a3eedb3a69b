"""Names that are not there, and what to use instead: the errors that answer a first guess.

scipy, MJX, diffrax and textbooks call things by other names. Such a name is an ``AttributeError``
that says what it is called here. It is no alias: a thing has one name, and ``dir`` and ``hasattr``
say so. Type checkers do not see these answers, so a wrong name stays an error there.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, NoReturn

_STEPS = "jq.rollout(jq.rkmk4, body, torque, start, jq.grid(t0, dt, steps), params)"
_ADAPTIVE = "jq.interop.diffrax for adaptive steps, jq.rollout for equal ones"
_MATRIX = "jq.quaternion.from_matrix(matrix), jq.quaternion.to_matrix(q)"
_VECTOR = "jq.quaternion.exp(u) of a rotation vector [rad], jq.quaternion.log(q)"
_ANGLES = 'jq.euler.to_quaternion(angles, "ZYX"), jq.euler.from_quaternion(q, "ZYX"), in rad'
_XYZW = "jq.quaternion.from_xyzw(q), jq.quaternion.to_xyzw(q): scipy has the scalar last"
_ROTATION = "functions of arrays (w, x, y, z): jq.quaternion.exp, jq.quaternion.rotate, jq.euler"
_READ = "jq.recordings.read(path, columns), jq.recordings.read_ulog(path)"
_FREE = "jq.torques.zero"
_FILTERS = "jq.estimation.mekf, jq.estimation.ahrs"
_FIT = "jq.fit(loss, params, optimizer), jq.least_squares(residuals, params)"
_SPLIT = "jq.no_squish, jq.symmetric_top"

INSTEAD: dict[str, dict[str, str]] = {
    "": {
        **dict.fromkeys(("integrate", "simulate", "odeint", "trajectory", "solve_ivp"), _STEPS),
        **dict.fromkeys(("solve", "diffeqsolve", "ODETerm", "Tsit5", "tsit5"), _ADAPTIVE),
        **dict.fromkeys(("rk4", "RK4", "runge_kutta", "RKMK4", "integrators"), "jq.rkmk4"),
        "step": "jq.rkmk4(body, torque, t, state, dt, params): a scheme is its own step",
        **dict.fromkeys(("dopri", "dopri5", "Dopri5"), "jq.rkmk5"),
        **dict.fromkeys(("euler_step", "Euler"), "jq.lie_euler"),
        **dict.fromkeys(("verlet", "leapfrog", "velocity_verlet", "nosquish"), _SPLIT),
        "NO_SQUISH": _SPLIT,
        **dict.fromkeys(("rattle", "shake"), "jq.lgvi"),
        "predictor_corrector": "jq.pcdm1, jq.zhao",
        **dict.fromkeys(("Rotation", "Quaternion", "quat", "quaternions", "SO3"), _ROTATION),
        **dict.fromkeys(("rotation", "math", "lie"), _ROTATION),
        "SE3": "jq.State with position and velocity",
        **dict.fromkeys(("state", "Data", "make_data"), "jq.State"),
        **dict.fromkeys(("torque", "force", "scheme"), "jq.torques, jq.forces, jq.schemes"),
        **dict.fromkeys(("vmap", "batch"), "jax.vmap: jq.rollout takes one body"),
        "grad": "jax.grad, which goes through jq.rollout",
        **dict.fromkeys(("quat_mul", "quat_multiply"), "jq.quaternion.multiply(p, q)"),
        **dict.fromkeys(("RigidBody", "Inertia", "Model", "Spacecraft"), "jq.Body(inertia)"),
        **dict.fromkeys(("Trajectory", "Solution"), "jq.Path, what jq.rollout returns"),
        **dict.fromkeys(("linspace", "time_grid"), "jq.grid(t0, dt, steps), jq.grid_at(times)"),
        **dict.fromkeys(("minimize", "optimize", "train", "curve_fit"), _FIT),
        **dict.fromkeys(("identify", "estimate", "system_id"), _FIT),
        **dict.fromkeys(("load", "read", "read_csv", "load_csv", "from_csv", "logs"), _READ),
        **dict.fromkeys(("read_ulog", "load_ulog", "ulog"), "jq.recordings.read_ulog(path)"),
        **dict.fromkeys(("ekf", "EKF", "kalman", "mekf", "ahrs", "filters"), _FILTERS),
        **dict.fromkeys(("sensors", "imu"), "jq.gyro, jq.accelerometer, jq.magnetometer"),
        "diffrax": "jq.interop.diffrax",
        "mechanics": "jq.dynamics",
        **dict.fromkeys(("ensemble", "monte_carlo"), "jq.ensembles.run(draw, simulate, n, key)"),
        "animate": "jq.plot.animate(path, body)",
        "visualize": "jq.plot",
        **dict.fromkeys(("jeffery", "Ellipsoid"), "jq.flow.jeffery, jq.flow.jeffery_rate"),
        "wheels": "jq.actuators.wheel_torque",
        **dict.fromkeys(("quadrotor", "Quadrotor"), "jq.rotors, jq.control.cascade"),
        "version": "jq.__version__",
    },
    "quaternion": {
        **dict.fromkeys(("from_euler", "to_euler", "as_euler"), _ANGLES),
        **dict.fromkeys(("from_rotvec", "as_rotvec", "to_rotvec", "from_rotation_vector"), _VECTOR),
        **dict.fromkeys(("as_matrix", "from_dcm", "to_dcm", "dcm", "as_dcm"), _MATRIX),
        **dict.fromkeys(("from_quat", "as_quat"), _XYZW),
        **dict.fromkeys(("Rotation", "Quaternion"), _ROTATION),
        **dict.fromkeys(("as_mrp", "mrp"), "jq.quaternion.from_mrp(p), jq.quaternion.to_mrp(q)"),
        **dict.fromkeys(("inv", "conj"), "jq.quaternion.conjugate(q)"),
        **dict.fromkeys(("apply", "act", "rotate_vector"), "jq.quaternion.rotate(q, v)"),
        **dict.fromkeys(("mul", "product", "qmul", "quat_mul"), "jq.quaternion.multiply(p, q)"),
        **dict.fromkeys(("norm", "unit"), "jq.quaternion.normalize(q)"),
        **dict.fromkeys(("angle", "magnitude", "error"), "jq.quaternion.distance(p, q) [rad]"),
        "identity": "jnp.array([1.0, 0.0, 0.0, 0.0])",
        "uniform": "jq.quaternion.random(key, shape)",
        "align_vectors": "jq.quaternion.from_vectors",
        "axis_angle_to_quat": "jq.quaternion.from_axis_angle(axis, angle)",
        **dict.fromkeys(("integrate", "quat_integrate"), "jq.kinematics.integrate(q0, omega, dt)"),
        "derivative": "jq.dynamics.derivative(body, torque, t, state, params)",
    },
    "euler": {
        **dict.fromkeys(("from_euler", "to_quat"), "jq.euler.to_quaternion(angles, order)"),
        **dict.fromkeys(("to_euler", "quaternion_to_euler"), "jq.euler.from_quaternion(q, order)"),
        "to_matrix": "jq.quaternion.to_matrix(jq.euler.to_quaternion(angles, order))",
        "from_matrix": "jq.euler.from_quaternion(jq.quaternion.from_matrix(matrix), order)",
    },
    "so3": {
        **dict.fromkeys(("from_matrix", "as_matrix", "to_matrix"), _MATRIX),
        "skew": "jq.so3.hat(v)",
        **dict.fromkeys(("left_jacobian", "right_jacobian"), "jq.so3.dexp(u, v)"),
    },
    "torques": {
        **dict.fromkeys(("none", "free"), _FREE),
        "held": "jq.torques.commanded",
        "gravity": "jq.torques.heavy_top, jq.torques.gravity_gradient, jq.forces.gravity",
        **dict.fromkeys(("damping", "friction", "viscous"), "jq.torques.drag(damping)"),
        "magnetorquer": "jq.torques.magnetic(dipole, field)",
        **dict.fromkeys(("reaction_wheel", "wheel"), "jq.actuators.wheel_torque"),
        "jeffery": "jq.flow.jeffery",
        "constant": "lambda t, state, params: params: a torque is any function of these",
        "sum": "jq.torques.total(...)",
    },
    "schemes": {"rk4": "jq.rkmk4", **dict.fromkeys(("verlet", "leapfrog"), _SPLIT)},
    "forces": {
        "drag": "jq.forces.linear_drag, jq.forces.quadratic_drag",
        "weight": "jq.forces.gravity(body)",
        "stokes": "jq.flow.translational_resistance",
    },
    "flow": {
        **dict.fromkeys(("shear", "simple_shear"), "the argument gradient of jq.flow.jeffery"),
        **dict.fromkeys(("drag", "stokes"), "jq.flow.translational_resistance"),
        "jeffery_period": "the formula in help(jq.flow.jeffery_rate)",
    },
    "control": {
        **dict.fromkeys(("pd", "PD", "quaternion_feedback"), "jq.control.quaternion_law"),
        **dict.fromkeys(("PID", "LQR"), "jq.control.pid, jq.control.lqr"),
        "bdot": "jq.Controller; examples/detumble.py has the law",
        "settling_time": "jq.quaternion.distance(path.state.q, target), beside path.t",
    },
    "dynamics": {
        "angular_momentum": "jq.dynamics.momentum(body, state)",
        "kinetic_energy": "jq.dynamics.energy(body, state)",
        "euler": "jq.dynamics.angular_acceleration",
    },
    "actuators": {"ReactionWheel": "jq.actuators.wheel_torque"},
    "rotors": {"quadrotor": "jq.rotors.Rotors, as in examples/quadrotor.py"},
    "exact": {
        "torque_free": "jq.exact.free_body(body, t, start)",
        **dict.fromkeys(("jeffery", "jeffery_period"), "jq.flow, whose help has the period"),
    },
    "gyro": {"integrate": "jq.kinematics.integrate(q0, omega, dt)"},
    "estimation": {
        **dict.fromkeys(("ekf", "EKF", "ukf", "kalman"), "jq.estimation.mekf"),
        **dict.fromkeys(("madgwick", "mahony"), "jq.estimation.ahrs"),
        "triad": "jq.quaternion.from_vectors",
    },
    "recordings": {
        **dict.fromkeys(("load", "read_csv", "from_csv", "csv"), "jq.recordings.read(path)"),
        "load_ulog": "jq.recordings.read_ulog(path)",
    },
    "ensembles": {
        **dict.fromkeys(("ensemble", "monte_carlo", "simulate"), "jq.ensembles.run"),
        "draw": "jq.ensembles.members(draw, n, key)",
        **dict.fromkeys(("std", "variance"), "jq.ensembles.mean(), whose result has std"),
        **dict.fromkeys(("median", "percentile", "histogram"), "jq.ensembles.quantiles"),
    },
    "plot": {
        **dict.fromkeys(("omega", "history"), "jq.plot.rates(path)"),
        **dict.fromkeys(("trajectory", "plot"), "jq.plot.track(path), jq.plot.rates(path)"),
        "attitude": "jq.plot.body_axes(path), jq.plot.attitude_error(path, target)",
        **dict.fromkeys(("video", "film"), "jq.plot.animate(path, body)"),
        **dict.fromkeys(("error_angle", "angle_error"), "jq.plot.attitude_error(path, target)"),
        "loss": "jq.plot.fit_history(fit)",
        **dict.fromkeys(("euler", "angles"), 'jq.plot.euler_angles(path, "ZYX")'),
        **dict.fromkeys(("recording", "sensors", "gyro"), "jq.plot.channels(recording)"),
        "sphere": "jq.plot.momentum_sphere(path, body)",
        "show": "the axes: end a cell with ax.figure, or ax.figure.savefig(file)",
    },
    "Path": {
        **dict.fromkeys(("time", "times", "ts"), "path.t"),
        **dict.fromkeys(("states", "ys", "y", "x"), "path.state"),
        **dict.fromkeys(("q", "quat", "quaternion", "attitude"), "path.state.q"),
        **dict.fromkeys(("omega", "angular_velocity"), "path.state.omega"),
        "position": "path.state.position",
        "velocity": "path.state.velocity",
        **dict.fromkeys(("last", "final_state"), "path.final"),
        "interpolate": "path.at(t)",
        "qpos": "path.state.position, path.state.q",
        "to_numpy": "np.asarray(path.state.q)",
        "to_csv": "np.savetxt(file, np.column_stack([path.t, path.state.q, path.state.omega]))",
        "torque": "jq.plot.torque(path, torque, params); commands are path.command",
        "plot": "jq.plot.rates(path), jq.plot.body_axes(path)",
        "energy": "jax.vmap(lambda state: jq.dynamics.energy(body, state))(path.state)",
    },
    "Grid": dict.fromkeys(("t", "ts", "time"), "grid.times()"),
    "GridAt": dict.fromkeys(("t", "ts", "time"), "grid.times()"),
    "State": {
        **dict.fromkeys(("quat", "quaternion", "rot", "attitude"), "state.q"),
        **dict.fromkeys(("w", "angular_velocity"), "state.omega"),
        "pos": "state.position",
        "vel": "state.velocity",
        "qpos": "state.position, state.q",
        "qvel": "state.velocity (world axes), state.omega (body axes)",
        "replace": "state._replace(omega=...)",
    },
    "Body": {
        **dict.fromkeys(("I", "J"), "body.inertia"),
        **dict.fromkeys(("moments", "principal_moments", "axes"), "body.principal()"),
        "m": "body.mass",
    },
    "Recording": {
        **dict.fromkeys(("time", "times"), "recording.t"),
        **dict.fromkeys(("omega", "rate", "rates"), "recording.gyro"),
        **dict.fromkeys(("acc", "accel"), "recording.accelerometer"),
        "mag": "recording.magnetometer",
        "dt": "recording.spacing()",
        "plot": "jq.plot.channels(recording)",
        "duration": "recording.t[-1] - recording.t[0]",
    },
}
"""What to use instead, by the owner's public name ("" is the package) and the name guessed."""


def missing(owner: str, name: str, names: Iterable[str] = ()) -> NoReturn:
    """Raise the AttributeError of a name that the package, a module, or an instance lacks.

    ``names`` are those there are: one that is spelled nearly so is proposed.
    """
    described = f"{owner!r} object" if owner[:1].isupper() else f"module {_full(owner)!r}"
    near = difflib.get_close_matches(name, names, 1, 0.7)
    instead = INSTEAD.get(owner, {}).get(name, f"jq.{owner}.{near[0]}" if near else None)
    hint = "" if instead is None else f"; use {instead}"
    raise AttributeError(f"{described} has no attribute {name!r}{hint}")


def answer(owners: Mapping[str, Any]) -> None:
    """Let the modules and classes of these public names answer with ``missing``.

    The ``dir`` of a module, and so its completion, is then what is public.
    """
    for owner, value in owners.items():
        # Set from outside: a __getattr__ in the source would tell type checkers that any name is
        # there. Only names that are not found ask for it, and it looks at nothing of an instance,
        # so copy and pickle find what they found before.
        if isinstance(value, ModuleType):
            value.__getattr__ = functools.partial(missing, owner, names=value.__all__)
            value.__dir__ = functools.partial(sorted, value.__all__)
        elif owner in INSTEAD:
            value.__getattr__ = lambda self, name, owner=owner: missing(owner, name)


def _full(owner: str) -> str:
    return f"jaxquat.{owner}" if owner else "jaxquat"

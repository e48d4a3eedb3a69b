"""Answer names that are not there, by tables that ``python -m jaxquat.migrate`` uses, too.

``INSTEAD`` has guesses of newcomers. ``DELETED``, ``OLD_KEYWORDS`` and ``OLD_ORDERS`` raise an
error with the new spelling; ``RENAMED``, ``MOVED`` and ``RENAMED_ARGUMENTS`` work for one release,
with a DeprecationWarning. ``dir`` and type checkers see only new names.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NoReturn, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
Record = TypeVar("Record", bound=type)

_STEPS = "jq.rollout(jq.rkmk4, body, torque, start, jq.grid(t0, dt, steps), params)"
_ADAPTIVE = "jq.interop.diffrax for adaptive steps, jq.rollout for equal ones"
_ROTATION = "functions of arrays (w, x, y, z): jq.quaternion.exp, jq.quaternion.rotate, jq.euler"
_ANGLES = 'jq.euler.to_quaternion(angles, "ZYX"), jq.euler.from_quaternion(q, "ZYX"), in rad'
_TABLE = "np.column_stack([path.t, path.state.q, path.state.omega])"
_FRAME = f'pandas.DataFrame({_TABLE}, columns=["t", *"wxyz", "omega_x", "omega_y", "omega_z"])'

_ANSWERS: dict[str, dict[str, str]] = {
    "": {
        "simulate odeint solve_ivp": _STEPS,
        "integrate": f"{_STEPS}, or jq.kinematics.integrate(q0, omega, dt) for a gyroscope",
        "diffeqsolve Tsit5": _ADAPTIVE,
        "event events": "jq.interop.diffrax, which locates events in a step",
        "rk4": "jq.rkmk4",
        "Rotation Quaternion": _ROTATION,
        "slerp": "jq.quaternion.slerp(p, q, t)",
        "vmap": "jax.vmap: jq.rollout takes one body",
        "read_csv": "jq.recordings.read(path, columns)",
        "ekf": "jq.estimation.mekf, jq.estimation.ahrs",
        "orbit": "a jq.State with position and velocity, and jq.forces.point_mass",
    },
    "quaternion": {
        "from_euler to_euler": _ANGLES,
        "from_rotvec": "jq.quaternion.exp(u) of a rotation vector [rad]",
        "as_matrix": "jq.quaternion.to_matrix(q)",
        "inv": "jq.quaternion.conjugate(q)",
        "apply": "jq.quaternion.rotate(q, v)",
        "mul": "jq.quaternion.multiply(p, q)",
        "angle": "jq.quaternion.distance(p, q) [rad]",
        "from_scipy from_rotation": "jq.quaternion.from_xyzw(r.as_quat())",
        "squad": "path.at(t), which uses the rates of the rows",
        "identity": "jnp.array([1.0, 0.0, 0.0, 0.0])",
    },
    "so3": {"skew": "jq.so3.hat(v)"},
    "frames": {
        "ned_to_enu enu_to_ned": "jq.frames.ned_enu(v), in both directions",
        "frd_to_flu flu_to_frd": "jq.frames.frd_flu(v), in both directions",
    },
    "forces": {
        "potential_energy": "mass * 9.80665 * z with jq.forces.gravity, or jq.forces.potential "
        "with jq.forces.point_mass"
    },
    "actuators": {
        "pulse": "jq.actuators.pulse_widths, with jq.schemes.split_steps",
        "wheel reaction_wheel": "jq.actuators.wheel_torque",
    },
    "dynamics": {"potential_energy": "mass * 9.80665 * z with jq.forces.gravity"},
    "torques": {
        "pulse step": "jq.schemes.split_steps, for a torque that jumps",
        "constant": "lambda t, state, params: params: a torque is any function of these",
    },
    "control": {
        "pd": "jq.control.quaternion_law",
        "gain_margin phase_margin stability_margins": "jq.control.margins",
        "bode": "jq.control.margins, which returns the loop at many frequencies",
        "bdot": "a jq.Controller; examples/detumble.py has the law",
        "mrp_law": "jq.control.tracking_law with a quarter of the stiffness",
    },
    "plot": {"bode": "jq.plot.nyquist(margins)", "angles": 'jq.plot.euler_angles(path, "ZYX")'},
    "Path": {
        "ts time": "path.t",
        "plot show": "jq.plot.rates(path), jq.plot.euler_angles(path)",
        "animate": "jq.plot.animate(path, body)",
        "q": "path.state.q",
        "omega": "path.state.omega",
        "to_csv": f"np.savetxt(file, {_TABLE})",
        "to_dataframe": _FRAME,
        "energy": "jax.vmap(lambda state: jq.dynamics.energy(body, state))(path.state)",
    },
    "Grid": {"t": "grid.times()"},
    "GridAt": {"t": "grid.times()"},
    "State": {"quat": "state.q"},
    "Body": {"I": "body.inertia"},
    "Recording": {
        "omega gyroscope": "recording.gyro",
        "acc accel": "recording.accelerometer",
        "mag": "recording.magnetometer",
    },
}
"""What to use instead of names that newcomers have typed, by the owner ("" is the package)."""

INSTEAD = {
    owner: {name: answer for names, answer in answers.items() for name in names.split()}
    for owner, answers in _ANSWERS.items()
}
"""``_ANSWERS`` by single names."""


_PUBLIC: dict[str, list[str]] = {}
"""The public names of each module, for the names that users seek in another one."""

_IN_SCHEMES = """
    SCHEMES Scheme cf4 compose crouch_grossman crouch_grossman3 crouch_grossman4 formulation1
    formulation2 full_quat full_quat_corrected half_quat lie_midpoint no_squish_kl6 pcdm1 rkmk rkmk3
    rkmk5 simo_wong symmetric_top_bm4 symmetric_top_suzuki4
"""
RENAMED = {
    **{name: f"schemes.{name}" for name in _IN_SCHEMES.split()},
    "Ensemble": "ensembles.Ensemble",
    "actuators.delayed": "actuators.delay_record",
    "actuators.lagged": "actuators.lag_record",
    "control.Course": "control.ReferenceTrajectory",
    "control.delayed": "control.delay",
    "dynamics.State": "State",
    "dynamics.Wrench": "Wrench",
    "forces.gravity_gradient": "torques.gravity_gradient",
    "fused.check_gpu": "check_gpu",
    "fused.explain": "explain",
    "rotors.commanding_speeds": "rotors.command_speeds",
    "rotors.lagging": "rotors.lag",
    "estimation.Noises": "estimation.MekfSettings",
    "estimation.Sample": "estimation.VectorSample",
    "estimation.Settings": "estimation.AhrsSettings",
    "estimation.samples": "estimation.imu_samples",
    "recordings.rests": "recordings.stationary_intervals",
    "schemes.Disturbance": "stochastic.Disturbance",
    "schemes.brownian": "stochastic.brownian",
    "schemes.coarsened": "stochastic.coarsen",
    "schemes.damped": "schemes.damp",
    "schemes.langevin": "stochastic.langevin",
    "schemes.restarted": "schemes.restart",
    "schemes.switched": "schemes.split_steps",
    "schemes.with_gauss_markov_torque": "stochastic.add_gauss_markov_torque",
    "schemes.with_torque_noise": "stochastic.add_torque_noise",
}
"""Names of the last release and their new names. The next release removes them."""

MOVED = {
    "accelerometer": "sensors.accelerometer",
    "allan": "sensors.allan",
    "engines": "simulation.engines",
    "flow": "stochastic.flow",
    "forces": "dynamics.forces",
    "fused.__main__": "simulation.engines.__main__",
    "gyro": "sensors.gyro",
    "learning": "fitting",
    "magnetometer": "sensors.magnetometer",
    "rollout": "simulation.rollout",
    "rotors": "actuators.rotors",
    "sensing": "sensors",
    "torques": "dynamics.torques",
}
"""Modules of the last release and their places now; ``jq.gyro`` and other short names stay."""

DELETED = {
    "accelerometer.response": "(1 + diag(scale)) (1 + M), which its fields determine",
    "actuators.hold_momentum": "jnp.where((abs(h) >= capacity) & (u * h > 0), 0.0, u)",
    "actuators.saturate": "jnp.clip(tau, -limits, limits)",
    "actuators.saturate_smooth": "limits * jnp.tanh(tau / limits)",
    "actuators.thruster_arms": "jnp.cross(positions, directions)",
    "control.CascadeMemory": "the fields acceleration and angular_acceleration of the memory",
    "control.at_rest": "jq.control.Reference(q, jnp.zeros(3), jnp.zeros(3))",
    "control.shortest": "jnp.where(jnp.dot(q, target) < 0, -target, target)",
    "dynamics.Step": "Callable[..., jq.State]",
    "dynamics.linear_momentum": "body.mass * state.velocity",
    "ensembles.Covariance": "jq.ensembles.Mean",
    "ensembles.covariance": "jq.ensembles.mean(lambda x: x[:, :, None] * x[:, None, :]) of "
    "deviations from a nominal value",
    "ensembles.smallest": "jq.ensembles.largest(k, of), where of returns the negative number",
    "euler.rate_matrix_inverse": "jnp.linalg.inv(jq.euler.rate_matrix(angles, order))",
    "exact.fixed_axis": "jq.quaternion.multiply(q, jq.quaternion.exp(angle * axis))",
    "exact.flip_interval": "its formula, in tests/exact_motions.py of the repository",
    "exact.free_symmetric": "jq.exact.free_body, for any three moments",
    "exact.kovalevskaya": "its formula, in tests/exact_motions.py of the repository",
    "exact.nutation": "its formulas, in tests/exact_motions.py of the repository",
    "exact.steady_precession": "its formula, in examples/validation/tops.py of the repository",
    "gyro.response": "(1 + diag(scale)) (1 + M), which its fields determine",
    "interop.diffrax.BOGACKI_SHAMPINE3": "its coefficients, with jq.schemes.tableaus.tableau",
    "interop.diffrax.Bosh3": "jq.interop.diffrax.Dopri5",
    "interop.diffrax.Heun": "jq.interop.diffrax.Dopri5",
    "interop.diffrax.Interpolation": "interpolation_cls of jq.interop.diffrax.Dopri5",
    "interop.gymnax": "two functions, reset and step: docs/policies.md has them",
    "kinematics.rollout": "jq.kinematics.rollout_of_attitude, with a rate(t, q, params)",
    "kinematics.truncated_exp": "jq.quaternion.exp(u)",
    "plot.allan_deviation": "ax.loglog(noise.times, noise.deviation), and noise.fitted likewise",
    "plot.box_sides": "sqrt(6/mass (I2 + I3 - I1)) of the moments body.principal()[0]",
    "plot.fit_history": "ax.semilogy(fit.history.T)",
    "plot.polhode": "jq.plot.momentum_sphere(path, body)",
    "plot.work_precision": "ax.loglog(work, error) for each scheme",
    "quaternion.angle_between": "jnp.arctan2(jnp.linalg.norm(jnp.cross(u, v)), jnp.dot(u, v))",
    "quaternion.from_gibbs": "jq.quaternion.normalize(jnp.concatenate([jnp.ones(1), g]))",
    "quaternion.hoffmann_w": "2.0 * jq.quaternion.hoffmann_v(Q)",
    "quaternion.inverse": "jq.quaternion.conjugate(q), divided by |q|^2 unless q is unit",
    "quaternion.to_gibbs": "q[..., 1:] / q[..., :1]",
    "recordings.COLUMNS": "the header of a file that jq.recordings.write wrote",
    "recordings.write_tum": "np.savetxt of the columns that help(jq.recordings.read_tum) shows",
    "rotors.Load": "jq.Wrench, whose force is in WORLD axes",
    "rotors.drag_torques": "jnp.polyval(rotors.drag[::-1], speeds)",
    "rotors.load": "jq.rotors.wrench(rotors, speeds, state.q), whose force is in WORLD axes",
    "rotors.thrusts": "jnp.polyval(rotors.thrust[::-1], speeds)",
}
"""Names and modules of the last release that are gone, and what to use instead."""


def _fields(argument: str, names: str) -> dict[str, str]:
    """Return the new spelling of old keywords that are now fields of a record."""
    return {name: f"{argument}({name}=...)" for name in names.split()}


_FINAL = {"final": "residuals=jq.planning.Residuals(stage, final)"}
_LIMITS = _fields("constraints=jq.planning.Constraints", "limits")
_OF_BODY = {"mass": "body.mass, of jq.Body(inertia, mass)"}
_EVERY = {name: f"grid=jq.grid(..., {name}=...)" for name in ("sample_every", "save_every")}
_ROLLOUT = {
    **_EVERY,
    **_fields("options=jq.RolloutOptions", "save engine checkpoint check"),
    "memory": "controller=controller.resume(memory)",
}
_HOLD = {"hold": "no argument: a command holds until the next one"}
OLD_KEYWORDS: dict[str, dict[str, str]] = {
    "actuators.delay_record": _HOLD,
    "actuators.lag_record": _HOLD,
    "control.cascade": {**_OF_BODY, "motion": "measure=, which returns a jq.State"},
    "control.flight_law": {
        **_OF_BODY,
        **{name: f"state._replace({name}=...)" for name in ("position", "velocity")},
    },
    "control.margins": {"memory": "controller=controller.resume(memory)"},
    "explain": _ROLLOUT,
    "fit": _fields(
        "options=jq.FitOptions", "mode chunk patience snapshot_dir snapshot_every progress"
    ),
    "kinematics.preintegrate": {"order": "no argument: each sample is held until the next one"},
    "kinematics.rollout_of_attitude": {"save_every": _EVERY["save_every"]},
    "least_squares": {
        **_fields("options=jq.LeastSquaresOptions", "max_steps ftol xtol gtol progress"),
        "starts": "min((jq.least_squares(residuals, guess) for guess in guesses), "
        "key=lambda fit: fit.cost)",
    },
    "planning.ilqr": {
        **_FINAL,
        **_LIMITS,
        **_fields("constraints=jq.planning.Constraints", "equalities inequalities"),
        **_fields("solver=jq.planning.Solver", "iterations tolerance hessian"),
        "states": "commands=(commands, states)",
        "sample_every": "no argument: each command lasts steps / len(commands) steps",
    },
    "planning.mpc": {**_FINAL, **_LIMITS},
    "planning.mppi": {
        **_FINAL,
        **_LIMITS,
        **_fields("sampling=jq.planning.Sampling", "std temperature samples"),
    },
    "quaternion.from_vectors": {
        "method": "no argument: weights=jnp.array([1.0, 1e-6]) is nearly TRIAD"
    },
    "rollout": _ROLLOUT,
}
"""Keywords of the last release and their new spelling, by function."""

_WALK = {"walk": "bias_random_walk"}
RENAMED_ARGUMENTS: dict[str, dict[str, str]] = {
    "FitCovariance": {"flat": "unidentifiable", "parts": "unidentifiable_scaled"},
    "control.Margins": {"together": "multiloop"},
    "control.cascade": {"course": "reference", "unwind": "anti_windup_time"},
    "control.flight_law": {"course": "reference"},
    "control.pid": {"unwind": "anti_windup_time"},
    "accelerometer.Accelerometer": _WALK,
    "allan.Noise": _WALK,
    "estimation.AhrsSettings": _WALK,
    "estimation.MekfSettings": _WALK,
    "estimation.mekf": {"noises": "settings"},
    "gyro.Gyro": _WALK,
    "kinematics.Imu": {"accel": "accelerometer"},
    "kinematics.preintegrate": {"accel": "accelerometer"},
    "least_squares": {"horizon": "prefixes"},
    "rotors.allocate": {"lowest": "min", "highest": "max"},
    "rotors.command_speeds": {"lowest": "min", "highest": "max"},
}
"""Old names of arguments, and of fields of records, by function or class."""

OLD_ORDERS = {
    "accelerometer.measure": (
        "accelerometer q acceleration gravity dt key",
        "key accelerometer q acceleration gravity dt",
    ),
    "control.cascade": ("body mass period reference motion", "body period reference"),
    "control.flight_law": (
        "state position velocity gains reference body mass gravity=9.80665",
        "state gains reference body gravity",
    ),
    "ensembles.members": ("draw n key", "key draw n"),
    "ensembles.run": ("draw simulate n key", "key draw simulate n"),
    "gyro.measure": ("gyro omega dt key", "key gyro omega dt"),
    "magnetometer.measure": ("magnetometer q field dt key", "key magnetometer q field dt"),
    "planning.ilqr": (
        "scheme body torque start grid commands residuals params=None",
        "scheme body torque start grid params commands residuals",
    ),
    "planning.mppi": (
        "scheme body torque dt commands residuals",
        "key scheme body torque dt commands residuals",
    ),
    "torques.gravity_gradient": ("body position mu=3.986004418e14", "body mu position"),
}
"""Positional arguments in the order of the last release, and in the order of this one."""


def refuses_old_keywords(owner: str) -> Callable[[F], F]:
    """Let a function answer old keywords, and calls in its old order, with the new spelling."""

    def decorator(f: F) -> F:
        signature = inspect.signature(f)

        @functools.wraps(f)
        def called(*args: Any, **kwargs: Any) -> Any:
            new = OLD_KEYWORDS[owner]
            old = [f"{name} is now {new[name]}" for name in kwargs if name in new]
            if old:
                raise TypeError(f"{owner}: {'; '.join(old)}")
            if owner in OLD_ORDERS:
                try:
                    signature.bind(*args, **kwargs)
                except TypeError as error:
                    raise TypeError(f"{owner}: {error}{order_of(owner)}") from None
            return f(*args, **kwargs)

        return cast(F, called)

    return decorator


def order_of(owner: str) -> str:
    """Return the end of an error message about positional arguments in their old order."""
    names = [name.partition("=")[0] for name in OLD_ORDERS[owner][1].split()]
    return f"; the order is jq.{owner}({', '.join(names)})"


def takes_old_names(owner: str) -> Callable[[F], F]:
    """Let a function take its arguments by their old names, with a DeprecationWarning."""

    def decorator(f: F) -> F:
        @functools.wraps(f)
        def called(*args: Any, **kwargs: Any) -> Any:
            return f(*args, **_in_new_names(owner, kwargs))

        return cast(F, called)

    return decorator


def has_old_fields(owner: str) -> Callable[[Record], Record]:
    """Let a NamedTuple or dataclass have its old fields, too, with a DeprecationWarning."""

    def decorator(record: Record) -> Record:
        name = "__new__" if issubclass(record, tuple) else "__init__"
        new = getattr(record, name)

        def made(self: Any, *args: Any, **kwargs: Any) -> Any:
            return new(self, *args, **_in_new_names(owner, kwargs))

        def read(self: Any, old: str) -> Any:  # only of names that are not there: dir has the new
            if old not in RENAMED_ARGUMENTS[owner]:
                _raise(record.__name__, old)
            return getattr(self, *_in_new_names(owner, {old: None}))

        setattr(record, name, functools.wraps(new)(made))
        record.__getattr__ = read  # type: ignore[attr-defined]
        return record

    return decorator


def _in_new_names(owner: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    names = RENAMED_ARGUMENTS[owner]
    for old in names.keys() & kwargs.keys():
        text = f"{owner.rpartition('.')[2]}: {old} is now called {names[old]}"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
        if names[old] in kwargs:
            raise TypeError(f"{text}, got both")
    return {names.get(name, name): value for name, value in kwargs.items()}


def found(owner: str, names: Iterable[str], name: str, stacklevel: int = 2) -> Any:
    """Return a renamed object with a DeprecationWarning; otherwise the name is ``missing``."""
    new = RENAMED.get(f"{owner}.{name}".lstrip("."))
    if new is None:
        missing(owner, name, names)
    text = f"{_place(owner)}.{name} is now called jq.{new}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)
    return functools.reduce(getattr, new.split("."), sys.modules["jaxquat"])


def missing(owner: str, name: str, names: Iterable[str] = ()) -> NoReturn:
    """Raise the AttributeError for an unknown name, with the same or a similar one elsewhere."""
    known = INSTEAD.get(owner, {})
    instead = known.get(name, known.get(name.lower(), DELETED.get(f"{owner}.{name}")))
    if instead is None:
        near = [f"{_place(owner)}.{x}" for x in difflib.get_close_matches(name, names, 1, 0.7)]
        public = {"": sys.modules["jaxquat"].__all__, **_PUBLIC}
        elsewhere = [f"{_place(x)}.{name}" for x, known in public.items() if name in known]
        instead = " or ".join(elsewhere or near) or None
    _raise(owner, name, instead)


def _missing_of(instance: Any, owner: str, name: str) -> NoReturn:
    """Call ``missing`` for an instance, whose own names it proposes."""
    if name.startswith("_"):  # Python and JAX look up many of these; dir itself uses __dict__
        _raise(owner, name)
    if owner == "Recording" and name in vars(instance).get("channels", ()):
        _raise(owner, name, f'recording["{name}"]')
    names = {known for known in dir(instance) if not known.startswith("_")}
    missing(owner, name, sorted(names - {name}))  # name exists if a property raised AttributeError


def _raise(owner: str, name: str, instead: str | None = None) -> NoReturn:
    described = f"{owner!r} object"
    if not owner[:1].isupper():
        described = f"module {f'jaxquat.{owner}'.rstrip('.')!r}"
    message = f"{described} has no attribute {name!r}"
    if instead is None:
        raise AttributeError(message)
    raise AttributeError(f"{message}; use {instead}", name=name)  # so Python adds no own proposal


def answer(owners: Mapping[str, Any]) -> None:
    """Make ``missing`` handle unknown names of these modules and classes."""
    for owner, value in owners.items():
        # Set from outside: a __getattr__ in the source would tell type checkers that any name
        # exists. It is called only for names that are not found, and reads only the names of an
        # instance, so copy and pickle work as before.
        if isinstance(value, ModuleType):
            _PUBLIC[owner] = value.__all__
            value.__getattr__ = functools.partial(found, owner, value.__all__)
            value.__dir__ = functools.partial(sorted, value.__all__)
        elif owner in INSTEAD:
            value.__getattr__ = functools.partialmethod(_missing_of, owner)


class _OldPlaces(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of a module that moved; None leaves the others to other finders."""
        package, _, old = fullname.partition(".")
        if package != "jaxquat":
            return None
        if old in DELETED:
            # with its name, ``from package import module`` would replace the error by another
            raise ModuleNotFoundError(f"{fullname} is gone; use {DELETED[old]}")
        new = _new_place(old)
        if new is None:
            return None
        # Python does not count the import's own frames
        warnings.warn(f"{fullname} is now {new}", DeprecationWarning, stacklevel=2)
        return importlib.machinery.ModuleSpec(fullname, _SameModule(new))


class _SameModule(importlib.abc.Loader):
    """Load a module under its old name: the same object as under the new one."""

    def __init__(self, place: str) -> None:
        self.place = place

    def create_module(self, spec: Any) -> ModuleType:
        module = importlib.import_module(self.place)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back, which Python has replaced by that of the old name."""
        module.__spec__ = self.spec

    def get_code(self, fullname: str) -> Any:
        spec: Any = importlib.util.find_spec(self.place)
        return spec.loader.get_code(self.place)


class _Hidden(ModuleType):
    """A module that moved, in place already so that it does not replace a function of its name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks these up in every module
            raise AttributeError(name)
        new = _new_place(self.__name__.partition(".")[2])
        assert new is not None
        warnings.warn(f"{self.__name__} is now {new}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(new), name)


def _new_place(old: str) -> str | None:
    """Return the full new name of a module of the last release; None if it did not move."""
    name, rest = old, ""
    while name not in MOVED and "." in name:
        name, _, last = name.rpartition(".")
        rest = f".{last}{rest}"
    return f"jaxquat.{MOVED[name]}{rest}" if name in MOVED else None


def find_old_places() -> None:
    """Let ``import`` find the modules of the last release."""
    # before the finder of paths, which would load a part of a package a second time
    sys.meta_path.insert(0, _OldPlaces())
    sys.modules.setdefault("jaxquat.rollout", _Hidden("jaxquat.rollout"))


def _place(owner: str) -> str:
    """Return the text that users write before the dot of a name of this owner."""
    if owner[:1].isupper():
        return {"GridAt": "grid"}.get(owner, owner.lower())
    return f"jq.{owner}" if owner else "jq"

"""The numbers of the library before a change and after it.

    python benchmarks/same_numbers.py record before.npz     with the library as it was
    python benchmarks/same_numbers.py compare before.npz    as it is; exit status 1 where they differ

Paths of every scheme on a forced problem by both engines, in both precisions; their gradients by
parameters, start and inertia in both modes; functions of rotations, exact motions, kinematics,
control laws, an ensemble, a covariance; what the examples print. ``--only PATTERN`` takes a part of them.

Arrays of the same bits are counted. Others may differ by 4 ulp of their largest number for every
step that they took. Lines of the examples that differ are printed, times and speeds excepted.
"""

import argparse
import functools
import inspect
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

import jaxquat as jq  # noqa: E402

ROOT = Path(__file__).parents[1]
STEPS = 20
ULPS = 4
TIMED = re.compile(r"\b[\d.e+-]+ ?(ms|s|us|min|x|/s|it/s)\b|\d+%|00:\d\d")
Group = Callable[[], Any]


def torque(t: Any, state: Any, params: Any) -> Any:
    """Of time, attitude and rate; with a rate of aux where the state has one."""
    tau = at_attitude(t, state, params) - params["damping"] * state.omega
    return (tau, params["damping"] * (state.omega - state.aux)) if len(state.aux) else tau


def at_attitude(t: Any, state: Any, params: Any) -> Any:
    """Of time and attitude."""
    world = params["force"] * jnp.stack([jnp.sin(1.3 * t), jnp.cos(2.6 * t), jnp.sin(0.4 * t)])
    return jq.quaternion.rotate_inverse(state.q, world)


def weight(t: Any, state: Any, params: Any) -> Any:
    """Of a potential."""
    down = jnp.array([0.0, 0.0, -1.0], state.q.dtype)
    lever = params["force"] * jnp.array([0.1, 0.0, 0.3], state.q.dtype)
    return jnp.cross(lever, jq.quaternion.rotate_inverse(state.q, down))


def step_of(name: str) -> Any:
    """Of a scheme, which is its step or has one."""
    scheme = jq.SCHEMES[name]
    return getattr(scheme, "step", scheme)


def problem(name: str, dtype: Any) -> tuple[Callable[..., Any], Any]:
    """``end(engine, numbers)``, the path and a loss of it, and the numbers."""
    facts, cast = jq.SCHEMES[name], lambda x: jnp.asarray(x, dtype)
    symmetric, own = name.startswith("symmetric"), name.startswith("full_quat")
    kinds: dict[str, Any] = {"any": torque, "attitude": at_attitude, "potential": weight}
    numbers = {
        "params": {"damping": cast([0.1, 0.2, 0.05]), "force": cast(0.7)},
        "q": cast([0.8, 0.4, -0.2, 0.4]),
        "omega": cast([0.9, 0.4, -0.6]),
        "inertia": cast([0.6, 1.0] if symmetric else [0.1, 0.3, -0.2, 0.1, 0.05, -0.1]),
    }

    def path(engine: str, numbers: Any) -> Any:
        moments = numbers["inertia"]
        if symmetric:
            body = jq.Body.from_principal(jnp.stack([moments[0], moments[0], moments[1]]))
        else:
            body = jq.Body.from_parameters(moments)
        q, omega = jq.quaternion.normalize(numbers["q"]), numbers["omega"]
        plain = jq.State(q, omega, omega if facts.aux else ())
        start = jq.schemes.hoffmann.full_quat_start(q, omega) if own else plain
        grid = jq.grid(0.0, 0.05, STEPS)
        rolled = jq.rollout(
            step_of(name), body, kinds[facts.torques], start, grid, numbers["params"], engine=engine
        )
        return {"q": rolled.state.q, "omega": rolled.state.omega, "aux": rolled.state.aux}

    return path, numbers


def loss_of(end: Callable[..., Any], *given: Any) -> Any:
    """Of all rows, each with another weight."""
    rows = jax.tree.leaves(end(*given))
    return sum(jnp.sum(jnp.sin(x + jnp.arange(x.size).reshape(x.shape))) for x in rows)


def schemes() -> Iterator[tuple[str, Group]]:
    """Every scheme."""
    for name in jq.SCHEMES:
        for dtype in (np.float32, np.float64):
            path, numbers = problem(name, dtype)
            label = f"{name}/{np.dtype(dtype)}"
            for engine in ("scan",) if name.startswith("full_quat") else ("scan", "fused"):
                end = functools.partial(path, engine)
                yield f"{label}/{engine} path", functools.partial(jax.jit(end), numbers)
                of_all = functools.partial(loss_of, end)
                yield (
                    f"{label}/{engine} reverse",
                    functools.partial(jax.jit(jax.grad(of_all)), numbers),
                )
                if engine == "scan":
                    yield (
                        f"{label}/forward",
                        functools.partial(jax.jit(jax.jacfwd(of_all)), numbers),
                    )


def rotations() -> Iterator[tuple[str, Group]]:
    """Functions of arrays, at random ones."""
    rng = np.random.default_rng(1)
    for dtype in (np.float32, np.float64):
        q = rng.normal(size=(64, 4))
        q = (q / np.linalg.norm(q, axis=1, keepdims=True)).astype(dtype)
        v = rng.normal(size=(64, 3)).astype(dtype)
        matrices = jq.quaternion.to_matrix(q)
        given = {"q": q, "p": q[::-1], "v": v, "u": v, "g": v, "angle": v[:, 0], "t": v[:, 0] ** 2}
        given |= {"matrix": matrices, "m": matrices, "axis": v / np.linalg.norm(v, axis=1)[:, None]}
        for label, room in (("quaternion", jq.quaternion), ("so3", jq.so3)):
            for name in sorted(room.__all__):
                function = getattr(room, name)
                if not callable(function) or name in ("random", "mean", "from_vectors"):
                    continue
                values = (
                    dict(given)
                    if room is jq.quaternion or name not in ("log", "vee")
                    else {"matrix": matrices}
                )
                values |= {"p": v} if name == "from_mrp" else {}
                values |= {"q": q[:, [1, 2, 3, 0]], "hoffmann": q}
                wanted = [
                    p.name
                    for p in inspect.signature(function).parameters.values()
                    if p.default is p.empty
                ]
                if set(wanted) <= set(values):
                    yield (
                        f"{label}.{name}/{np.dtype(dtype)}",
                        lambda f=function, a=[values[k] for k in wanted]: f(*a),
                    )
        yield f"mean/{np.dtype(dtype)}", lambda q=q: jq.quaternion.mean(q[:5])
        for order in ("xyz", "ZYX", "zxz", "XYX"):
            yield (
                f"euler {order}/{np.dtype(dtype)}",
                lambda q=q, order=order: jq.euler.from_quaternion(q, order),
            )


def motions() -> Iterator[tuple[str, Group]]:
    """Exact motions, kinematics, control laws, an ensemble and a covariance, in double precision."""
    body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
    start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), jnp.array([0.3, -0.2, 0.5]))
    times = jnp.linspace(0.0, 9.0, 31)
    yield "free_body", lambda: jax.vmap(lambda t: jq.exact.free_body(body, start, t))(times)
    yield "energy", lambda: (jq.dynamics.energy(body, start), jq.dynamics.momentum(body, start))
    rates = jnp.stack([jnp.sin(times), jnp.cos(times), 0.3 * times], axis=1)
    for order in (2, 4, 6):
        yield (
            f"integrate {order}",
            lambda order=order: jq.kinematics.integrate(start.q, rates, 0.1, order=order),
        )

    gains = jq.control.Gains(jnp.array([2.0, 1.5, 1.0]), jnp.array([1.0, 2.0, 3.0]))

    def controlled(options: Any, gains: Any) -> Any:
        def law(t: Any, state: Any, params: Any) -> Any:
            return jq.control.quaternion_law(state, params, jnp.array([1.0, 0.0, 0.0, 0.0]))

        return jq.rollout(
            jq.rkmk4, body, law, start, jq.grid(0.0, 0.05, STEPS), gains, **options
        ).state

    def free(omega: Any) -> Any:
        grid, given = jq.grid(0.0, 0.05, STEPS), start._replace(omega=omega)
        return jq.rollout(
            jq.no_squish, body, jq.torques.zero, given, grid, checkpoint="reversible"
        ).state

    for options in ({}, {"save_every": 4}, {"checkpoint": 5}):
        for engine in ("scan", "fused"):
            end = functools.partial(controlled, options | {"engine": engine})
            label = f"controlled {engine} {options}"
            yield f"{label} path", functools.partial(jax.jit(end), gains)
            gradient = jax.jit(jax.grad(functools.partial(loss_of, end)))
            yield f"{label} reverse", functools.partial(gradient, gains)
    gradient = jax.jit(jax.grad(functools.partial(loss_of, free)))
    yield "reversible reverse", functools.partial(gradient, start.omega)
    statistics = {"reduce": jq.ensembles.mean(), "progress": False}
    averaged = functools.partial(
        jq.ensembles.run, draw, jnp.square, 100, jax.random.key(3), **statistics
    )
    yield "ensemble", lambda: averaged().result
    yield "covariance", lambda: jq.fit_covariance(residuals, jnp.array([1.0, 1.0])).covariance


def draw(key: Any) -> Any:
    """A member."""
    return jax.random.normal(key, (3,))


def residuals(p: Any) -> Any:
    """Of a line."""
    return jnp.array([1.0, 2.1, 2.9, 4.2]) - p[0] - p[1] * jnp.arange(4.0)


GROUPS = {"schemes": schemes, "rotations": rotations, "motions": motions}


def numbers(only: str) -> dict[str, np.ndarray]:
    """All arrays by name."""
    found = {}
    for group in GROUPS.values():
        for name, make in group():
            if re.search(only, name):
                for path, x in jax.tree_util.tree_leaves_with_path(make()):
                    found[name + jax.tree_util.keystr(path)] = np.asarray(x)
                print(name, file=sys.stderr)
    return found


def printed(only: str) -> dict[str, np.ndarray]:
    """What each example prints, as an array of lines."""
    found = {}
    for file in sorted((ROOT / "examples").glob("*.py")):
        if (
            not re.search(only, file.name) or file.name == "calibrate_gyro.py"
        ):  # which wants recordings
            continue
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, file], cwd=folder, capture_output=True, text=True, check=True
            )
        lines = [line for line in done.stdout.splitlines() if not TIMED.search(line)]
        found[file.name] = np.array(lines or [""])
        print(file.name, file=sys.stderr)
    return found


def apart(name: str, a: np.ndarray, b: np.ndarray) -> float:
    """By how many ulp of the largest number of ``a`` for every step."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.inf
    both = np.isnan(a) & np.isnan(b)
    with np.errstate(all="ignore"):
        far = np.abs(np.where(both | (a == b), 0, a.astype(float) - b.astype(float))).max(initial=0)
        size = np.abs(a[np.isfinite(a)]).astype(float).max(initial=np.finfo(a.dtype).tiny)
    return (
        far
        / size
        / np.finfo(a.dtype).eps
        / (STEPS if re.search("path|forward|reverse", name) else 1)
    )


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="a regular expression for the names")
    parser.add_argument("--examples", action="store_true", help="what they print, too: ten minutes")
    given = parser.parse_args()
    found = numbers(given.only) | (printed(given.only) if given.examples else {})
    if given.what == "record":
        np.savez_compressed(given.file, allow_pickle=False, **found)
        print(f"{len(found)} arrays")
        return 0
    before, bad, same, worst = np.load(given.file), 0, 0, 0.0
    for name in before.files:
        if name not in found:
            if re.search(given.only, name) and (given.examples or not name.endswith(".py")):
                bad += 1
                print(f"{name}: gone")
        elif before[name].dtype.kind == "U":
            for a in sorted({*before[name].tolist()} ^ {*found[name].tolist()}):
                print(f"{name}: {'-' if a in before[name] else '+'} {a}")
        elif (
            before[name].tobytes() == found[name].tobytes()
            and before[name].shape == found[name].shape
        ):
            same += 1
        else:
            ulps = apart(name, before[name], found[name])
            worst = max(worst, ulps)
            bad += ulps > ULPS
            print(f"{name}: {ulps:.3g} ulp a step{' TOO FAR' if ulps > ULPS else ''}")
    print(
        f"{same} arrays of the same bits, others within {worst:.3g} ulp a step, {bad} too far or gone"
    )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())

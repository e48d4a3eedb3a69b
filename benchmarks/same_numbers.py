"""Compare the numbers of the library before a change with those after it.

    python benchmarks/same_numbers.py record before.npz     # before the change
    python benchmarks/same_numbers.py compare before.npz    # after it; exit status 1 if they differ

It computes

- paths of every scheme on a forced problem by both engines, in both precisions, and their gradients
  by parameters, start and inertia in both modes;
- functions of rotations, exact motions, kinematics, control laws, an ensemble and a covariance;
- with ``--examples``, what the examples print.

``--only PATTERN`` takes a part of them. Arrays of the same bits are counted. Others may differ by 4
ulp of their largest number for every step that they took. Lines of the examples that differ are
printed, times and speeds excepted.
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
IDENTITY = jnp.array([1.0, 0.0, 0.0, 0.0])
Group = Callable[[], Any]


# Schemes: paths and their gradients.


def torque(t: Any, state: Any, params: Any) -> Any:
    """Return a torque of time, attitude and rate, and a rate of aux where the state has one."""
    tau = at_attitude(t, state, params) - params["damping"] * state.omega
    return (tau, params["damping"] * (state.omega - state.aux)) if len(state.aux) else tau


def at_attitude(t: Any, state: Any, params: Any) -> Any:
    """Return a torque of time and attitude."""
    world = params["force"] * jnp.stack([jnp.sin(1.3 * t), jnp.cos(2.6 * t), jnp.sin(0.4 * t)])
    return jq.quaternion.rotate_inverse(state.q, world)


TORQUES: dict[str, Any] = {"any": torque, "attitude": at_attitude}


def problem(name: str, dtype: Any) -> tuple[Callable[..., Any], Any]:
    """Return ``path(engine, numbers)`` of a forced problem for this scheme, and its numbers."""
    scheme, cast = jq.schemes.SCHEMES[name], lambda x: jnp.asarray(x, dtype)
    symmetric, own = name.startswith("symmetric"), name.startswith("full_quat")
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
        plain = jq.State(q, omega, omega if scheme.aux else ())
        start = jq.schemes.hoffmann.full_quat_start(q, omega) if own else plain
        acting, grid = TORQUES[scheme.torques], jq.grid(0.0, 0.05, STEPS)
        options = jq.RolloutOptions(engine=engine)
        path = jq.rollout(scheme, body, acting, start, grid, numbers["params"], options=options)
        state = path.state
        return {"q": state.q, "omega": state.omega, "aux": state.aux}

    return path, numbers


def loss_of(path: Callable[..., Any], *arguments: Any) -> Any:
    """Return a loss of all rows, each with another weight."""
    rows = jax.tree.leaves(path(*arguments))
    return sum(jnp.sum(jnp.sin(x + jnp.arange(x.size).reshape(x.shape))) for x in rows)


def schemes() -> Iterator[tuple[str, Group]]:
    """Yield every scheme, in both precisions, by its engines: path and gradients."""
    for name in jq.schemes.SCHEMES:
        for dtype in (np.float32, np.float64):
            path, numbers = problem(name, dtype)
            label = f"{name}/{np.dtype(dtype)}"
            for engine in ("scan",) if name.startswith("full_quat") else ("scan", "fused"):
                end = functools.partial(path, engine)
                loss = functools.partial(loss_of, end)
                yield f"{label}/{engine} path", functools.partial(jax.jit(end), numbers)
                gradient = jax.jit(jax.grad(loss))
                yield f"{label}/{engine} reverse", functools.partial(gradient, numbers)
                if engine == "scan":
                    jacobian = jax.jit(jax.jacfwd(loss))
                    yield f"{label}/forward", functools.partial(jacobian, numbers)


# Functions of rotations.


def rotations() -> Iterator[tuple[str, Group]]:
    """Yield functions of arrays, at random arrays."""
    rng = np.random.default_rng(1)
    for dtype in (np.float32, np.float64):
        q = rng.normal(size=(64, 4))
        q = (q / np.linalg.norm(q, axis=1, keepdims=True)).astype(dtype)
        v = rng.normal(size=(64, 3)).astype(dtype)
        suffix = np.dtype(dtype)
        for label, module in (("quaternion", jq.quaternion), ("so3", jq.so3)):
            for name in sorted(module.__all__):
                function, values = getattr(module, name), arguments(label, name, q, v)
                if not callable(function) or name in ("random", "mean", "from_vectors"):
                    continue
                parameters = inspect.signature(function).parameters.values()
                required = [p.name for p in parameters if p.default is p.empty]
                if set(required) <= set(values):
                    chosen = [values[key] for key in required]
                    yield f"{label}.{name}/{suffix}", functools.partial(function, *chosen)
        yield f"mean/{suffix}", functools.partial(jq.quaternion.mean, q[:5])
        for order in ("xyz", "ZYX", "zxz", "XYX"):
            yield f"euler {order}/{suffix}", functools.partial(jq.euler.from_quaternion, q, order)


def arguments(label: str, name: str, q: Any, v: Any) -> dict[str, Any]:
    """Return arrays by the names of the parameters that take them."""
    matrices = jq.quaternion.to_matrix(q)
    values = {"matrix": matrices}
    if label == "quaternion" or name not in ("log", "vee"):
        axis = v / np.linalg.norm(v, axis=1)[:, None]
        values |= {"p": q[::-1], "v": v, "u": v, "g": v, "angle": v[:, 0], "t": v[:, 0] ** 2}
        values |= {"m": matrices, "axis": axis}
    values |= {"p": v} if name == "from_mrp" else {}
    return values | {"q": q[:, [1, 2, 3, 0]], "hoffmann": q}


# Exact motions, kinematics, control laws, an ensemble and a covariance, in double precision.


def motions() -> Iterator[tuple[str, Group]]:
    """Yield closed forms and kinematics, rollouts with their gradients, and statistics."""
    body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
    start = jq.State(jnp.array([0.5, 0.5, -0.5, 0.5]), jnp.array([0.3, -0.2, 0.5]))
    times = jnp.linspace(0.0, 9.0, 31)
    yield "free_body", lambda: jax.vmap(lambda t: jq.exact.free_body(body, t, start))(times)
    yield "energy", lambda: (jq.dynamics.energy(body, start), jq.dynamics.momentum(body, start))
    rates = jnp.stack([jnp.sin(times), jnp.cos(times), 0.3 * times], axis=1)
    for order in (2, 4, 6):
        integrate = functools.partial(jq.kinematics.integrate, order=order)
        yield f"integrate {order}", functools.partial(integrate, start.q, rates, 0.1)
    yield from rollouts(body, start)

    def mean() -> Any:
        key, options = jax.random.key(3), {"reduce": jq.ensembles.mean(), "progress": False}
        return jq.ensembles.run(key, draw, jnp.square, 100, **options).result

    yield "ensemble", mean
    yield "covariance", lambda: jq.fit_covariance(residuals, jnp.array([1.0, 1.0])).covariance


def rollouts(body: Any, start: Any) -> Iterator[tuple[str, Group]]:
    """Yield rollouts under a control law by both engines, and a reversible one."""
    grid = jq.grid(0.0, 0.05, STEPS)
    gains = jq.control.Gains(jnp.array([2.0, 1.5, 1.0]), jnp.array([1.0, 2.0, 3.0]))

    def law(t: Any, state: Any, gains: Any) -> Any:
        return jq.control.quaternion_law(state, gains, IDENTITY)

    def controlled(grid: Any, options: Any, gains: Any) -> Any:
        return jq.rollout(jq.rkmk4, body, law, start, grid, gains, options=options).state

    rarely = jq.grid(0.0, 0.05, STEPS, save_every=4)
    for name, times, checkpoint in (
        ("{}", grid, "none"),
        ("{'save_every': 4}", rarely, "none"),
        ("{'checkpoint': 5}", grid, 5),
    ):
        for engine in ("scan", "fused"):
            options = jq.RolloutOptions(engine=engine, checkpoint=checkpoint)
            end = functools.partial(controlled, times, options)
            label = f"controlled {engine} {name}"
            yield f"{label} path", functools.partial(jax.jit(end), gains)
            gradient = jax.jit(jax.grad(functools.partial(loss_of, end)))
            yield f"{label} reverse", functools.partial(gradient, gains)

    def free(omega: Any) -> Any:
        begin, zero = start._replace(omega=omega), jq.torques.zero
        options = jq.RolloutOptions(checkpoint="reversible")
        return jq.rollout(jq.no_squish, body, zero, begin, grid, options=options).state

    gradient = jax.jit(jax.grad(functools.partial(loss_of, free)))
    yield "reversible reverse", functools.partial(gradient, start.omega)


def draw(key: Any) -> Any:
    """Draw a member."""
    return jax.random.normal(key, (3,))


def residuals(p: Any) -> Any:
    """Return the residuals of a line."""
    return jnp.array([1.0, 2.1, 2.9, 4.2]) - p[0] - p[1] * jnp.arange(4.0)


# The program.

GROUPS = {"schemes": schemes, "rotations": rotations, "motions": motions}


def computed(only: str) -> dict[str, np.ndarray]:
    """Return all arrays by name."""
    arrays = {}
    for group in GROUPS.values():
        for name, compute in group():
            if re.search(only, name):
                for path, x in jax.tree_util.tree_leaves_with_path(compute()):
                    arrays[name + jax.tree_util.keystr(path)] = np.asarray(x)
                print(name, file=sys.stderr)
    return arrays


def printed(only: str) -> dict[str, np.ndarray]:
    """Return what each example prints, as an array of lines, without those that tell times."""
    output = {}
    for file in sorted((ROOT / "examples").glob("[!_]*.py")):
        needs_recordings = file.name == "calibrate_gyro.py"
        if needs_recordings or not re.search(only, file.name):
            continue
        command = [sys.executable, file]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        lines = [line for line in done.stdout.splitlines() if not TIMED.search(line)]
        output[file.name] = np.array(lines or [""])
        print(file.name, file=sys.stderr)
    return output


def apart(name: str, a: np.ndarray, b: np.ndarray) -> float:
    """Return the difference in ulp of the largest number of ``a``, for every step."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.inf
    both_nan = np.isnan(a) & np.isnan(b)
    with np.errstate(all="ignore"):
        difference = np.where(both_nan | (a == b), 0, a.astype(float) - b.astype(float))
        largest = np.abs(difference).max(initial=0)
        size = np.abs(a[np.isfinite(a)]).astype(float).max(initial=np.finfo(a.dtype).tiny)
    steps = STEPS if re.search("path|forward|reverse", name) else 1
    return largest / size / np.finfo(a.dtype).eps / steps


def compare(before: Any, after: dict[str, np.ndarray], expected: Callable[[str], bool]) -> int:
    """Print what differs, and return how many arrays are too far apart or gone."""
    bad, same, worst = 0, 0, 0.0
    for name in before.files:
        a, b = before[name], after.get(name)
        if b is None:
            if expected(name):
                bad += 1
                print(f"{name}: gone")
        elif a.dtype.kind == "U":
            for line in sorted({*a.tolist()} ^ {*b.tolist()}):
                print(f"{name}: {'-' if line in a else '+'} {line}")
        elif a.tobytes() == b.tobytes() and a.shape == b.shape:
            same += 1
        else:
            ulps = apart(name, a, b)
            worst = max(worst, ulps)
            bad += ulps > ULPS
            print(f"{name}: {ulps:.3g} ulp a step{' TOO FAR' if ulps > ULPS else ''}")
    others = f"others within {worst:.3g} ulp a step"
    print(f"{same} arrays of the same bits, {others}, {bad} too far or gone")
    return bad


def main() -> int:
    """Record or compare, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="a regular expression for the names")
    parser.add_argument("--examples", action="store_true", help="what they print too: ten minutes")
    options = parser.parse_args()
    arrays = computed(options.only) | (printed(options.only) if options.examples else {})
    if options.what == "record":
        np.savez_compressed(options.file, allow_pickle=False, **arrays)
        print(f"{len(arrays)} arrays")
        return 0

    def expected(name: str) -> bool:
        is_example = name.endswith(".py")
        return bool(re.search(options.only, name)) and (options.examples or not is_example)

    return int(compare(np.load(options.file), arrays, expected) > 0)


if __name__ == "__main__":
    sys.exit(main())

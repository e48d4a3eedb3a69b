"""Measure the fused engine beside the scan engine, diffrax and a C loop by hand, in one run.

    python benchmarks/fused.py [--bodies 1 64 1024 16384] [--dtypes float32 float64] [--steps 1024]
    python benchmarks/fused.py --tables derivatives --bodies 64 1024

The first tables have the milliseconds of the forward pass and of value and gradient by two gains,
as ratios to the fused engine. The C loop (limit.c, the same arithmetic) runs where there is a
compiler. Below each is the arithmetic of a body-step, as the engine counts it in its own programs,
and the share of what chains of multiplications with addition reach on as many threads. Then come
derivatives of every kind in units of the forward pass, the gradient by the number of states that
are kept, and the seconds to compile, cold and from the disk cache, also for neural torques.
"""

import argparse
import ctypes
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import neural
import numpy as np
import rollout as peers
from limit_cuda import coefficients

import jaxquat as jq
from jaxquat.fitting.differentiation import forward_value_and_grad
from jaxquat.fused.ir.expansion import lowered
from jaxquat.simulation.engines.kernels import trace
from jaxquat.simulation.simulation import checked_simulation

HERE = Path(__file__).parent
GAINS = (6.0, 4.0)
FLAGS = "-O3 -march=native -mprefer-vector-width=512 -fno-math-errno -fno-trapping-math"
FLAGS += " -ffp-contract=fast -shared -fPIC"


def timed(function, repeats=5):
    """Return the best time [ms]."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function())
        best = min(best, time.perf_counter() - began)
    return 1e3 * best


# The loop in C.


def c_loop():
    """Return ``limit.c`` compiled, or None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    defines = [f"-D{name}={table}" for name, table in coefficients().items()]
    library = Path(tempfile.mkdtemp()) / "limit.so"
    files = [str(HERE / "limit.c"), "-o", str(library), "-lm", "-lpthread"]
    subprocess.run([compiler, *FLAGS.split(), *defines, *files], check=True)
    return ctypes.CDLL(str(library))


def peak_by_c(library, threads):
    """Return the GFlop/s of float32 that chains of multiplications with addition reach."""
    rounds, best = 2_000_000, float("inf")
    for _ in range(100):
        began = time.perf_counter()
        library.peak(ctypes.c_long(rounds), ctypes.c_long(threads))
        best = min(best, time.perf_counter() - began)
    numbers = ctypes.c_long.in_dll(library, "numbers").value
    return threads * rounds * numbers * 2 / best / 1e9


def by_c(rollout, starts, steps, threads):
    """Return the milliseconds and the last attitudes of the C loop."""
    inertia = np.asarray(peers.INERTIA, np.float32)
    inverse, gains = np.linalg.inv(inertia).astype(np.float32), np.asarray(GAINS, np.float32)
    q0, omega0 = (np.ascontiguousarray(np.asarray(x).T) for x in (starts.q, starts.omega))

    def pointer(x):
        return x.ctypes.data_as(ctypes.POINTER(ctypes.c_float))

    dt, bodies = ctypes.c_float(peers.DT), ctypes.c_long(q0.shape[1])
    sizes = bodies, ctypes.c_long(steps), dt, ctypes.c_long(threads)
    best, q = float("inf"), q0
    for _ in range(6):
        q, omega = q0.copy(), omega0.copy()
        arrays = [pointer(x) for x in (inertia, inverse, gains, q, omega)]
        began = time.perf_counter()
        rollout(*arrays, *sizes)
        best = min(best, time.perf_counter() - began)
    return 1e3 * best, q.T


# The arithmetic of a body-step.

FLOPS = dict.fromkeys(("add", "sub", "mul", "div", "sqrt"), 1) | {"fma": 2}


def arithmetic(starts, gains, steps):
    """Return {"forward", "gradient"}: operations, fma and flop of a body-step, in the programs.

    All operations count, selections too; only those of ``FLOPS`` are flop. The gradient computes
    the step, computes it again where its state is not kept, and goes back.
    """
    body, start = (
        jq.Body(jnp.asarray(peers.INERTIA, starts.q.dtype)),
        jax.tree.map(lambda x: x[0], starts),
    )
    grid = jq.grid(0.0, peers.DT, steps)
    simulation = checked_simulation(jq.rkmk4, body, peers.torque, start, grid, gains)
    loop = trace(simulation)[0].with_vjp()

    def counted(program):
        counts = lowered(program).counts()
        flop = sum(FLOPS.get(name, 0) * count for name, count in counts.items())
        return np.array([sum(counts.values()), counts.get("fma", 0), flop])

    step, back = counted(loop.step), counted(loop.step_back)
    return {"forward": step, "gradient": step * (2 - 1 / loop.segment) + back}


def print_arithmetic(times, arithmetic, work, peak):
    """Print operations, GFlop/s and the share of the peak; ``times`` [ms] by row and pass."""
    print("\n| row | pass | operations | of them fma | flop | GFlop/s | of the peak |")
    print("|---|---|---|---|---|---|---|")
    for (name, kind), ms in times.items():
        operations, fma, flop = arithmetic[kind]
        speed = flop * work / ms / 1e3  # work: thousands of body-steps
        share = f"{100 * speed / peak:.0f} %" if peak else ""
        cells = f"{operations:.0f} | {fma:.0f} | {flop:.0f} | {speed:.0f} | {share}"
        print(f"| {name} | {kind} | {cells} |", flush=True)


# Engines side by side.


def engines_for(bodies):
    """Return {name: (rollout of one body, differentiation)}, without the slow ones for many."""
    reverse = jax.value_and_grad
    fused = partial(peers.library, checkpoint="none", engine="fused")
    scan, sqrt = (partial(peers.library, checkpoint=checkpoint) for checkpoint in ("none", "sqrt"))
    engines: dict[str, tuple[Callable, Callable]] = {"fused": (fused, reverse)}
    engines |= {'scan, "sqrt"': (sqrt, reverse)} if bodies > 4096 else {"scan": (scan, reverse)}
    engines["scan, forward mode"] = scan, forward_value_and_grad
    if bodies <= 4096:
        engines["diffrax Tsit5"] = peers.by_diffrax, reverse
    return engines


def measured(engine, differentiate, starts, gains, steps, repeats):
    """Return the last states, the times [ms] of forward pass and gradient, and its temporaries."""

    def run(gains, starts):
        return jax.vmap(lambda start: engine(start, gains, steps=steps))(starts)

    forward = jax.jit(run).lower(gains, starts).compile()
    ends = jax.block_until_ready(forward(gains, starts))
    forward_ms = timed(lambda: forward(gains, starts), repeats)
    loss = differentiate(lambda gains: peers.mean_square(run(gains, starts)))
    gradient = jax.jit(loss).lower(gains).compile()
    jax.block_until_ready(gradient(gains))
    gradient_ms = timed(lambda: gradient(gains), repeats)
    memory = gradient.memory_analysis()
    megabytes = f"{memory.temp_size_in_bytes / 1e6:.1f}" if memory else ""
    return ends, forward_ms, gradient_ms, megabytes


def table(bodies, dtype, steps, library):
    """Print the tables of one number of bodies."""
    starts, gains = peers.random_starts(bodies, dtype), jnp.asarray(GAINS, dtype)
    print(f"\n{bodies} bodies, {steps} steps, {dtype}\n")
    print("| engine | forward ms | ratio | M body-steps/s | gradient ms | ratio", end="")
    print(" | gradient / forward | temporaries MB |")
    print("|---|---|---|---|---|---|---|---|")
    work = bodies * steps / 1e3
    first, ends = None, None
    for name, (engine, differentiate) in engines_for(bodies).items():
        repeats = 10 if name == "fused" else 1 if bodies > 4096 else 3
        last, *times, megabytes = measured(engine, differentiate, starts, gains, steps, repeats)
        forward, gradient = times
        first, ends = first or times, last if ends is None else ends
        cells = f"{forward:.2f} | {forward / first[0]:.2f} | {work / forward:.1f}"
        cells += f" | {gradient:.2f} | {gradient / first[1]:.2f} | {gradient / forward:.1f}"
        print(f"| {name} | {cells} | {megabytes} |", flush=True)
    assert first
    counted = {("fused", "forward"): first[0], ("fused", "gradient"): first[1]}
    threads = len(os.sched_getaffinity(0))
    if library is not None and dtype == "float32" and bodies % 16 == 0 and ends:
        ms, q = by_c(library.rollout, starts, steps, threads)
        assert np.abs(q - np.asarray(ends.q)).max() < 1e-4, "the C loop computes something else"
        cells = f"{ms:.2f} | {ms / first[0]:.2f} | {work / ms:.1f}"
        print(f"| C by hand | {cells} | | | | |", flush=True)
        counted["C by hand", "forward"] = ms
    used = min(threads, -(-bodies // (16 if dtype == "float32" else 8)))
    peak = peak_by_c(library, used) / (1 if dtype == "float32" else 2) if library else None
    print_arithmetic(counted, arithmetic(starts, gains, steps), work, peak)


# Derivatives.


def along(function, gains):
    """Return the derivative of a function in the direction of ones."""
    return lambda x: jax.jvp(function, (x,), (jnp.ones_like(gains),))


def derivatives(bodies, dtype, steps):
    """Return {name: (forwards, ratio)} of derivatives by two gains, of a mean square at the end.

    The time of the kernel in its own forward passes, and that of the scan in times of the kernel.
    They run in turn, so that all see the same machine.
    """
    starts, gains = peers.random_starts(bodies, dtype), jnp.asarray(GAINS, dtype)
    times = {}
    for engine in ("fused", "scan"):
        rollout = partial(peers.library, checkpoint="none", engine=engine, steps=steps)

        def loss(gains, rollout=rollout):
            return peers.mean_square(jax.vmap(lambda start: rollout(start, gains))(starts))

        functions = {
            "value": loss,
            "value and one tangent": along(loss, gains),
            "value and gradient, forward mode": forward_value_and_grad(loss),
            "value and gradient, reverse mode": jax.value_and_grad(loss),
            "product with the Hessian": lambda x, f=loss: along(jax.grad(f), gains)(x)[1],
            "Hessian": jax.hessian(loss),
        }
        runs = {name: jax.jit(f).lower(gains).compile() for name, f in functions.items()}
        repeats = 20 if engine == "fused" else 2
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(repeats):
            for name, run in runs.items():
                best[name] = min(best[name], timed(lambda run=run: run(gains), 1))
        times[engine] = best
    fused, scan = times["fused"], times["scan"]
    names = [name for name in fused if name != "value"]
    return {name: (fused[name] / fused["value"], scan[name] / fused[name]) for name in names}


def print_derivatives(numbers, dtype, steps):
    """Print the derivatives for each number of bodies, side by side."""
    columns = [derivatives(bodies, dtype, steps) for bodies in numbers]
    names = ["1 body" if bodies == 1 else f"{bodies} bodies" for bodies in numbers]
    print(f"\n| {dtype} | {' | '.join(f'{name}, forwards | ratio' for name in names)} |")
    print("|---" * (1 + 2 * len(names)) + "|")
    for name in columns[0]:
        cells = " | ".join("{:.2f} | {:.1f}".format(*column[name]) for column in columns)
        print(f"| {name} | {cells} |", flush=True)


def keeping(dtype, steps, bodies):
    """Print value and gradient in forward passes where a state is kept every m steps.

    "none" is what the engine chooses. The second table has a neural torque, whose step costs more;
    the engine then takes m = 1, and the root of the number of steps is beside it.
    """
    numbers = (1, 2, 4, 8, "none")
    gains = jnp.asarray(GAINS, dtype)
    print(f"\n{steps} steps, {dtype}: value and gradient in forward passes")
    print_costs(peers.torque, gains, steps)
    print(f"\n| bodies | {' | '.join(map(str, numbers))} |")
    print("|---" * (1 + len(numbers)) + "|")
    for count in bodies:
        cells = kept_every(numbers, peers.torque, gains, count, steps)
        print(f"| {count} | {cells} |", flush=True)
    steps, weights = 500, neural.weights(64)
    root = math.isqrt(steps - 1) + 1
    numbers = (1, root)
    print(f"\ntwo layers of 64, 256 bodies, {steps} steps")
    print_costs(neural.torque, weights, steps)
    print(f"\n| {' | '.join(map(str, numbers))} |\n{'|---' * len(numbers)}|")
    print(f"| {kept_every(numbers, neural.torque, weights, 256, steps)} |", flush=True)


def kept_every(numbers, torque, params, count, steps):
    """Return the cells of these numbers m; the programs run in turn."""
    starts = peers.random_starts(count, "float32")
    body = jq.Body(jnp.asarray(peers.INERTIA, jnp.float32))
    grid, runs = jq.grid(0.0, peers.DT, steps, save_every=steps), []
    for m in ("none", *numbers):
        options = jq.RolloutOptions(engine="fused", checkpoint=m)

        def end(start, params, options=options):
            return jq.rollout(jq.rkmk4, body, torque, start, grid, params, options=options).final

        def loss(params, end=end):
            return peers.mean_square(jax.vmap(lambda start: end(start, params))(starts))

        run = jax.value_and_grad(loss) if runs else loss
        runs.append(jax.jit(run).lower(params).compile())
    best = [float("inf")] * len(runs)
    for _ in range(10 if count > 4096 else 40):
        for k, run in enumerate(runs):
            best[k] = min(best[k], timed(lambda run=run: run(params), 1))
    return " | ".join(f"{ms / best[0]:.2f}" for ms in best[1:])


def print_costs(torque, params, steps):
    """Print what a step costs, and the m that the engine chooses by it."""
    body, start = (jq.Body(jnp.asarray(peers.INERTIA)), jq.State(jnp.eye(4)[0], jnp.ones(3)))
    grid = jq.grid(0.0, peers.DT, steps)
    recurrence = trace(checked_simulation(jq.rkmk4, body, torque, start, grid, params))[0]
    cost = recurrence.loop.step.cost() / 7  # seven numbers of a state
    print(f"{cost:.0f} additions a step for each number of state: m = {recurrence.kept_every}")


# Compiling.

COMPILE = """
import sys, time
import jax, jax.numpy as jnp
sys.path.insert(0, {here!r})
import neural, rollout as peers, jaxquat as jq

if {width}:
    params, torque = neural.weights({width}), neural.torque
else:
    params, torque = jnp.array([6.0, 4.0]), peers.torque
starts = jq.State(jq.quaternion.random(jax.random.key(0), (64,)), jnp.ones((64, 3)))
body, grid = jq.Body(jnp.asarray(peers.INERTIA)), jq.grid(0.0, 0.01, 256)

def loss(params):
    def one(start):
        options = dict(save_every=256, engine={engine!r})
        return jq.rollout(jq.rkmk4, body, torque, start, grid, params, **options).state
    ends = jax.vmap(one)(starts)
    return jnp.mean(ends.q[:, -1, 1:] ** 2) + jnp.mean(ends.omega[:, -1] ** 2)

jax.block_until_ready(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((3, 3))))
began = time.perf_counter()
traced = jax.jit(jax.value_and_grad(loss)).trace(params)
halfway = time.perf_counter()
run = traced.lower().compile()
tracing, compiling = halfway - began, time.perf_counter() - halfway
before = float(run(params)[0])
times = []
for _ in range(5):
    began_run = time.perf_counter()
    jax.block_until_ready(run(params))
    times.append(1e3 * (time.perf_counter() - began_run))
for _ in range({updates}):
    value, slope = run(params)
    params = jax.tree.map(lambda p, g: p - 0.05 * g, params, slope)
after, ms = float(run(params)[0]), min(times)
print(f"{{tracing:.2f}} {{compiling:.2f}} {{before:.4f}} {{after:.4f}} {{ms:.1f}}")
"""


def compiled(engine, width, updates, cache):
    """Compile, run and train in a fresh process, and return the five numbers that it prints."""
    code = COMPILE.format(here=str(HERE), width=width, updates=updates, engine=engine)
    environment, command = os.environ | {"JAXQUAT_CACHE": cache}, [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.split()


def compile_times():
    """Print how long it takes to compile and run value and gradient in fresh processes.

    The first has no object code on disk, the second has; the third uses the scan.
    """
    print("\n| torque | tracing s | lowering and compiling, cold s | from the disk cache s", end="")
    print(" | gradient ms | by the scan ms |")
    print("|---|---|---|---|---|---|")
    torques = (("quaternion law", 0, 0), ("two layers of 16", 16, 200), ("two layers of 64", 64, 0))
    for name, width, updates in torques:
        with tempfile.TemporaryDirectory() as folder:
            processes = (compiled(x, width, updates, folder) for x in ("fused", "fused", "scan"))
            cold, warm, scan = processes
        fit = f" (loss {cold[2]} -> {cold[3]} in {updates} updates)" if updates else ""
        cells = f"{warm[0]} | {cold[1]} | {warm[1]} | {warm[4]} | {scan[4]}"
        print(f"| {name}{fit} | {cells} |", flush=True)


# A fit, and elementary functions.


def fit_updates():
    """Print the time of value and gradient of examples/fit_gains.py: 64 starts, 10 s, six gains.

    The scan uses forward mode, as ``jq.fit`` chooses.
    """
    from examples import fit_gains

    starts = fit_gains.random_starts(jax.random.key(0), 64)
    initial = jax.tree.map(jnp.log, fit_gains.HOFFMANN)
    print("\n| value and gradient of fit_gains.py | ms |\n|---|---|")
    for engine, differentiate in (("scan", forward_value_and_grad), ("fused", jax.value_and_grad)):
        loss = partial(fit_gains.loss, jq.rkmk4, engine, starts=starts, key=None)
        run = jax.jit(differentiate(loss))
        jax.block_until_ready(run(initial))
        print(f"| {engine} | {timed(lambda run=run: run(initial)):.2f} |", flush=True)


def elementary():
    """Print the errors of the functions in scalar code (examples/validation/units.py)."""
    from examples.validation import units

    print("\n| function | float32 | float64 |\n|---|---|---|")
    with jax.enable_x64(True):
        for name in (*units.RANGES, *units.MADE_OF_THEM):
            errors = [f"{units.worst(name, dtype, 400):.2f}" for dtype in (np.float32, np.float64)]
            print(f"| {name} | {' | '.join(errors)} |", flush=True)


def main():
    """Print all tables, for every combination asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    dtypes = ["float32", "float64"]
    parser.add_argument("--bodies", type=int, nargs="+", default=[1, 64, 1024, 16384])
    parser.add_argument("--dtypes", nargs="+", default=dtypes, choices=dtypes)
    parser.add_argument("--steps", type=int, default=1024)
    tables = ["engines", "derivatives", "keeping", "fit", "compile", "elementary"]
    parser.add_argument("--tables", nargs="+", default=tables, choices=tables)
    options = parser.parse_args()
    library = c_loop() if "engines" in options.tables else None
    for dtype in options.dtypes:
        with jax.enable_x64(dtype == "float64"):
            for bodies in options.bodies:
                if "engines" in options.tables:
                    table(bodies, dtype, options.steps, library)
            few = [bodies for bodies in options.bodies if bodies <= 4096]
            if "derivatives" in options.tables and few:
                print_derivatives(few, dtype, options.steps)
        if "keeping" in options.tables and dtype == "float32":
            keeping(dtype, options.steps, [n for n in options.bodies if n > 1])
    others = {"fit": fit_updates, "compile": compile_times, "elementary": elementary}
    for name, print_table in others.items():
        if name in options.tables:
            print_table()


if __name__ == "__main__":
    main()

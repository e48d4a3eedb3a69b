"""The fused engine beside the scan engine, diffrax and a C loop by hand, in one run.

    python benchmarks/fused.py [--bodies 1 64 1024 16384] [--dtypes float32 float64] [--steps 1024]

Milliseconds of the forward pass and of value and gradient by two gains, as ratios to the fused engine; the C loop (limit.c, the
same arithmetic) where there is a compiler; then seconds to compile, cold and from the disk cache, also for neural torques.
"""

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import rollout as peers

import jaxquat as jq
from jaxquat import _series as series
from jaxquat.learning.differentiation import forward_value_and_grad

HERE = Path(__file__).parent
GAINS = (6.0, 4.0)


def c_loop():
    """``limit.c`` compiled, or None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    tiny = float(np.finfo(np.float32).eps) / 64  # the terms that series.py keeps in float32
    tables = {
        "COS": (series._COS, 4.0),
        "SINC": (series._SINC, 4.0),
        "POLES": (series._FAR_POLES, np.pi**2),
    }
    defines = []
    for name, (coefficients, largest) in tables.items():
        kept = [c for n, c in enumerate(coefficients) if abs(c) * largest**n * max(1, n * n) > tiny]
        defines.append(f"-D{name}={{{','.join(f'{c!r}f' for c in kept)}}}")
    library = Path(tempfile.mkdtemp()) / "limit.so"
    flags = [
        "-O3",
        "-march=native",
        "-mprefer-vector-width=512",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-ffp-contract=fast",
    ]
    command = [
        compiler,
        *flags,
        *defines,
        "-shared",
        "-fPIC",
        str(HERE / "limit.c"),
        "-o",
        str(library),
        "-lm",
        "-lpthread",
    ]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library)).rollout


def timed(function, repeats=5):
    """The best [ms]."""
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(function())
        best = min(best, time.perf_counter() - began)
    return 1e3 * best


def by_c(loop, starts, steps, threads):
    """(ms, the last attitudes) of the C loop."""
    inertia = np.asarray(peers.INERTIA, np.float32)
    inverse, gains = np.linalg.inv(inertia).astype(np.float32), np.asarray(GAINS, np.float32)
    begin = [np.ascontiguousarray(np.asarray(x).T) for x in (starts.q, starts.omega)]
    pointer = lambda x: x.ctypes.data_as(ctypes.POINTER(ctypes.c_float))  # noqa: E731
    best = float("inf")
    q = begin[0]
    for _ in range(6):
        q, w = (x.copy() for x in begin)
        sizes = (
            ctypes.c_long(q.shape[1]),
            ctypes.c_long(steps),
            ctypes.c_float(peers.DT),
            ctypes.c_long(threads),
        )
        began = time.perf_counter()
        loop(*map(pointer, (inertia, inverse, gains, q, w)), *sizes)
        best = min(best, time.perf_counter() - began)
    return 1e3 * best, q.T


def table(bodies, dtype, steps, loop):
    """Print one table."""
    turn, spin = jax.random.split(jax.random.key(0))
    starts = jq.State(
        jq.quaternion.random(turn, (bodies,), dtype=dtype),
        jax.random.normal(spin, (bodies, 3), dtype),
    )
    gains = jnp.asarray(GAINS, dtype)
    scan = partial(peers.library, checkpoint="none")
    engines = {
        "fused": (partial(peers.library, checkpoint="none", engine="fused"), jax.value_and_grad),
        "scan": (scan, jax.value_and_grad),
        "scan, forward mode": (scan, forward_value_and_grad),
        "diffrax Tsit5": (peers.by_diffrax, jax.value_and_grad),
    }
    if bodies > 4096:
        engines['scan, "sqrt"'] = partial(peers.library, checkpoint="sqrt"), jax.value_and_grad
        del engines["scan"], engines["diffrax Tsit5"]
    print(f"\n{bodies} bodies, {steps} steps, {dtype}\n")
    print(
        "| engine | forward ms | ratio | M body-steps/s | gradient ms | ratio | gradient / forward | temporaries MB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    first, ends = None, None
    for name, (engine, differentiate) in engines.items():
        run = lambda gains, starts, engine=engine: jax.vmap(
            lambda start: engine(start, gains, steps=steps)
        )(starts)

        def loss(gains, run=run):
            ends = run(gains, starts)
            return jnp.mean(ends.q[:, 1:] ** 2) + jnp.mean(ends.omega**2)

        repeats = 10 if name == "fused" else 1 if bodies > 4096 else 3
        forward = jax.jit(run).lower(gains, starts).compile()
        last = jax.block_until_ready(forward(gains, starts))
        ends = last if ends is None else ends
        forward_ms = timed(lambda forward=forward: forward(gains, starts), repeats)
        reverse = jax.jit(differentiate(loss)).lower(gains).compile()
        jax.block_until_ready(reverse(gains))
        reverse_ms = timed(lambda reverse=reverse: reverse(gains), repeats)
        memory = reverse.memory_analysis()
        first = first or (forward_ms, reverse_ms)
        cells = [
            f"{forward_ms:.2f}",
            f"{forward_ms / first[0]:.2f}",
            f"{bodies * steps / forward_ms / 1e3:.1f}",
        ]
        cells += [
            f"{reverse_ms:.2f}",
            f"{reverse_ms / first[1]:.2f}",
            f"{reverse_ms / forward_ms:.1f}",
        ]
        cells.append(f"{memory.temp_size_in_bytes / 1e6:.1f}" if memory else "")
        print("|", " | ".join([name, *cells]), "|", flush=True)
    if loop is not None and dtype == "float32" and bodies % 16 == 0 and first and ends:
        ms, q = by_c(loop, starts, steps, len(os.sched_getaffinity(0)))
        assert np.abs(q - np.asarray(ends.q)).max() < 1e-4, "the C loop computes something else"
        print(
            f"| C by hand | {ms:.2f} | {ms / first[0]:.2f} | {bodies * steps / ms / 1e3:.1f} | | | | |",
            flush=True,
        )


COMPILE = """
import sys, time
import jax, jax.numpy as jnp
sys.path.insert(0, {here!r})
import rollout as peers, jaxquat as jq

def network(t, state, params):
    x = jnp.concatenate([state.q, state.omega])
    for weight, bias in params[:-1]:
        x = jnp.tanh(weight @ x + bias)
    return params[-1][0] @ x + params[-1][1]

if {width}:
    keys = jax.random.split(jax.random.key(1), 3)
    sizes = [({width}, 7), ({width}, {width}), (3, {width})]
    params = [(1.2 / {width} ** 0.5 * jax.random.normal(k, s), jnp.zeros(s[0])) for k, s in zip(keys, sizes)]
    torque = network
else:
    params, torque = jnp.array([6.0, 4.0]), peers.torque
starts = jq.State(jq.quaternion.random(jax.random.key(0), (64,)), jnp.ones((64, 3)))
body = jq.Body(jnp.asarray(peers.INERTIA))

def loss(params):
    one = lambda s: jq.rollout(jq.rkmk4, body, torque, s, jq.grid(0.0, 0.01, 256), params, save_every=256, engine={engine!r})
    ends = jax.vmap(one)(starts).state
    return jnp.mean(ends.q[:, -1, 1:] ** 2) + jnp.mean(ends.omega[:, -1] ** 2)

jax.block_until_ready(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((3, 3))))
began = time.perf_counter()
traced = jax.jit(jax.value_and_grad(loss)).trace(params)
halfway = time.perf_counter()
run = traced.lower().compile()
seconds = time.perf_counter() - halfway
before = float(run(params)[0])
times = []
for _ in range(5):
    began_run = time.perf_counter()
    jax.block_until_ready(run(params))
    times.append(1e3 * (time.perf_counter() - began_run))
for _ in range({updates}):
    value, slope = run(params)
    params = jax.tree.map(lambda p, g: p - 0.05 * g, params, slope)
print(f"{{halfway - began:.2f}} {{seconds:.2f}} {{before:.4f}} {{float(run(params)[0]):.4f}} {{min(times):.1f}}")
"""


def compile_times():
    """Of value and gradient in fresh processes, without and then with object code on disk; how long they run, by the scan too."""
    print(
        "\n| torque | tracing s | lowering and compiling, cold s | from the disk cache s | gradient ms | by the scan ms |"
    )
    print("|---|---|---|---|---|---|")
    for name, width, updates in (
        ("quaternion law", 0, 0),
        ("two layers of 16", 16, 200),
        ("two layers of 64", 64, 0),
    ):
        with tempfile.TemporaryDirectory() as folder:

            def compiled(engine, folder=folder, width=width, updates=updates):
                code = COMPILE.format(here=str(HERE), width=width, updates=updates, engine=engine)
                environment = {**os.environ, "JAXQUAT_CACHE": folder}
                command = [sys.executable, "-c", code]
                return subprocess.run(
                    command, env=environment, check=True, capture_output=True, text=True
                ).stdout.split()

            cold, kept, scan = (compiled(engine) for engine in ("fused", "fused", "scan"))
        fit = f" (loss {cold[2]} -> {cold[3]} in {updates} updates)" if updates else ""
        print(
            f"| {name}{fit} | {kept[0]} | {cold[1]} | {kept[1]} | {kept[4]} | {scan[4]} |",
            flush=True,
        )


def fit_updates():
    """Of examples/fit_gains.py: 64 starts over 10 s, six gains; forward mode for the scan, as ``jq.fit`` chooses."""
    sys.path.insert(0, str(HERE.parent / "examples"))
    import fit_gains  # pyright: ignore[reportMissingImports]

    starts = fit_gains.random_starts(jax.random.key(0), 64)
    initial = jax.tree.map(jnp.log, fit_gains.HOFFMANN)
    print("\n| value and gradient of fit_gains.py | ms |\n|---|---|")
    for engine, differentiate in (("scan", forward_value_and_grad), ("fused", jax.value_and_grad)):
        run = jax.jit(
            differentiate(
                lambda gains, engine=engine: fit_gains.loss(jq.rkmk4, engine, gains, starts, None)
            )
        )
        jax.block_until_ready(run(initial))
        print(f"| {engine} | {timed(lambda run=run: run(initial)):.2f} |", flush=True)


def elementary():
    """Errors of the functions that scalar code brings along, as tests/units.py finds them."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    import units  # pyright: ignore[reportMissingImports]

    print("\n| function | float32 | float64 | arguments |\n|---|---|---|---|")
    with jax.enable_x64(True):
        for name, (single, double) in units.RANGES.items():
            errors = [f"{units.worst(name, dtype):.2f}" for dtype in (np.float32, np.float64)]
            print(
                f"| {name} | {' | '.join(errors)} | up to {single:g} and {double:g} |", flush=True
            )


def main():
    """Every combination asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bodies", type=int, nargs="+", default=[1, 64, 1024, 16384])
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32", "float64"], choices=["float32", "float64"]
    )
    parser.add_argument("--steps", type=int, default=1024)
    options = parser.parse_args()
    loop = c_loop()
    for dtype in options.dtypes:
        with jax.enable_x64(dtype == "float64"):
            for bodies in options.bodies:
                table(bodies, dtype, options.steps, loop)
    fit_updates()
    compile_times()
    elementary()


if __name__ == "__main__":
    main()

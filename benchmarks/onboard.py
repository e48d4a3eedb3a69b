"""Filters as C: time of a step beside the kernel and VQF in C++, size, growth of rounding.

    python benchmarks/onboard.py [--arm | --cycles]

Prints the tables of docs/policies.md (In C). Times are microseconds of processor time a sample,
float32, best of five runs over 20,000 samples of benchmarks/attitude_filter.py; gcc -O2, without
and with the instructions of this processor. VQF (the package vqf, C++ in double precision) runs
over the same samples. "own" and "libm" are the argument ``functions`` of ``jq.export.c``. The last
table has the largest difference of attitudes [rad] between "libm" and "own" after so many samples.

``--arm`` also prints the bytes of code and constants for a Cortex-M4F, by arm-none-eabi-gcc -O2.
``--cycles`` instead runs 1000 steps of a scheme, filters and a policy on an emulated Cortex-M4F
(cortex_m4.py, pip install unicorn), and says how many of the results have the bits of the kernel.
"""

import argparse
import ctypes
import importlib.util
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import cortex_m4
import jax
import jax.numpy as jnp
import numpy as np

import jaxquat as jq
from jaxquat import estimation

FILE = Path(__file__).with_name("attitude_filter.py")
SPEC = importlib.util.spec_from_file_location("attitude_filter", FILE)
assert SPEC is not None
assert SPEC.loader is not None
COMMON = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(COMMON)

STRICT = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-ffp-contract=off"]
LOOP = """
void many(const {n}_memory *start, const {n}_sample *samples, int32_t count, float *q);

void many(const {n}_memory *start, const {n}_sample *samples, int32_t count, float *q)
{{
    static {n}_memory memory;
    static {n}_result1 estimate;
    memory = *start;
    for (int32_t k = 0; k < count; k++) {{
        {n}(&memory, &samples[k], &memory, &estimate);
        for (int32_t j = 0; j < 4; j++) {{
            q[4 * k + j] = estimate.q[j];
        }}
    }}
}}
"""


def structs(trees):
    """Return an array of the structs of some trees, as C lays them out."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(trees) if np.size(x)]
    dtype = np.dtype([(f"f{k}", x.dtype, x.shape[1:]) for k, x in enumerate(leaves)], align=True)
    rows = np.zeros(len(leaves[0]), dtype)
    for k, x in enumerate(leaves):
        rows[f"f{k}"] = x
    return rows


def in_c(kind, samples, name, functions):
    """Return the text of a filter's step."""
    first = jax.tree.map(lambda x: x[0], samples)

    def step(memory, sample):
        return kind.step(memory, sample)

    return jq.export.c(step, (kind.init(first), first), name=name, functions=functions)


def compiled(text, options, folder):
    """Return the function ``many`` of a text, compiled."""
    source, library = folder / "filter.c", folder / f"filter{time.perf_counter_ns()}.so"
    source.write_text(text)
    command = ["gcc", *STRICT, *options, "-shared", "-fPIC", source, "-o", library, "-lm"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library)).many


def arm(text, folder):
    """Return the bytes of code and constants of a file for a Cortex-M4F."""
    (folder / "arm.c").write_text(text)
    command = ["arm-none-eabi-gcc", *cortex_m4.OPTIONS, "-c", "arm.c", "-o", "arm.o"]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(
        ["arm-none-eabi-size", folder / "arm.o"], check=True, capture_output=True, text=True
    )
    return int(done.stdout.splitlines()[1].split()[0])


def filters(imu):
    """Return the filters and their samples."""
    settings = estimation.MekfSettings(vectors=0.05)
    mekf = estimation.mekf(jnp.array([1.0, 0.0, 0.0, 0.0]), settings)
    return {"mekf": (mekf, COMMON.vectors(imu)), "ahrs": (estimation.ahrs(), imu)}


def scheme(count, dtype):
    """Return a step of a driven and damped body, its start, and torques at random."""
    body = jq.Body(jnp.array([[0.6, 0.0, -0.2], [0.0, 1.0, 0.0], [-0.2, 0.0, 1.5]], dtype))

    def step(state, push):
        torque = lambda t, state, params: push - 0.2 * state.omega  # noqa: E731
        state = jq.rkmk4(body, torque, 0.0, state, 0.01, None)
        return state, state.q

    start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0], dtype), jnp.array([0.1, 0.2, 0.3], dtype))
    return step, start, jnp.asarray(np.random.default_rng(0).normal(size=(count, 3)), dtype)


def policy(count):
    """Return a policy with two hidden layers of 64, its first command, and observations."""
    rng, sizes = np.random.default_rng(0), ((64, 33), (64, 64), (4, 64))
    layers = [jnp.float32(rng.normal(size=size)) / size[1] ** 0.5 for size in sizes]

    def step(command, seen):
        x = jnp.concatenate([command, seen])
        for weights in layers[:-1]:
            x = jnp.tanh(weights @ x)
        command = jax.nn.sigmoid(layers[-1] @ x)
        return command, command

    return step, jnp.zeros(4), jnp.float32(rng.normal(size=(count, 29)))


def emulated_row(folder, label, step, memory, samples, further=""):
    """Print a row of the table of the emulated processor; ``further``: C code after the step."""
    one = lambda tree: jax.tree.map(lambda x: x[None], tree)  # noqa: E731
    text = jq.export.c(step, (memory, jax.tree.map(lambda x: x[0], samples))) + further
    last, wanted = jq.fused.scan(step, memory, samples, engine="fused")
    right, rows = [structs(one(last)), structs(wanted)], structs(samples)
    code, entry, listing = cortex_m4.built(text, "step", folder)
    *found, branches, stack = cortex_m4.executed(
        code, entry, structs(one(memory)), rows, right[1].dtype
    )
    fields = [(a[f], b[f]) for a, b in zip(found, right, strict=True) for f in a.dtype.names]
    equal = sum(int(np.sum((a == b) | ((a != a) & (b != b)))) for a, b in fields)
    numbers = (round(x / len(rows)) for x in cortex_m4.cost(branches, listing))
    total, low, high = (f"{x:,}" for x in numbers)
    share = f"{equal:,} of {sum(a.size for a, _ in fields):,}"
    cells = label, share, total, f"{low} to {high}", f"{stack:,}", f"{arm(text, folder):,}"
    print(f"| {' | '.join(cells)} |", flush=True)


def emulated(folder, count=1000):
    """Print the table of the emulated processor."""
    if shutil.which("arm-none-eabi-gcc") is None:
        raise SystemExit("--cycles: wanted arm-none-eabi-gcc with newlib on the path")
    if importlib.util.find_spec("unicorn") is None:
        raise SystemExit("--cycles: wanted the emulator: pip install unicorn")
    print(
        "| step | numbers with the kernel's bits | instructions | cycles "
        "| bytes of stack | of code and constants |"
    )
    print("|---|---|---|---|---|---|")
    emulated_row(folder, "`rkmk4`", *scheme(count, jnp.float32))
    for name, (kind, samples) in filters(COMMON.recordings(1, count)).items():
        one = jax.tree.map(lambda x: x[0], samples)
        step = lambda memory, sample, kind=kind: kind.step(memory, sample)  # noqa: E731
        emulated_row(folder, f"`{name}`", step, kind.init(jax.tree.map(lambda x: x[0], one)), one)
    emulated_row(folder, "policy, 2 x 64", *policy(count))
    with jax.enable_x64(True):
        double = scheme(count, jnp.float64)
        emulated_row(folder, "`rkmk4`, double, `fma` of newlib", *double)
        emulated_row(folder, "`rkmk4`, double, exact `fma`", *double, cortex_m4.FMA)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arm", action="store_true", help="also the size on a Cortex-M4F")
    parser.add_argument("--cycles", action="store_true", help="emulate a Cortex-M4F")
    options, folder = parser.parse_args(), Path(tempfile.mkdtemp())
    if options.cycles:
        emulated(folder)
    else:
        measured(folder, options.arm)


def measured(folder, with_arm):
    """Print the tables of this processor, and of sizes if asked."""
    count = COMMON.LENGTH[1]
    imu = COMMON.recordings(1, count)
    rows = filters(imu)
    vqf = COMMON.best(5, time.process_time, COMMON.run_vqf, imu)
    print("| us a sample | kernel | own | own, native | libm | libm, native |")
    print("|---|---|---|---|---|---|")
    attitudes, sizes = {}, {}
    for name, (kind, samples) in rows.items():
        one = jax.tree.map(lambda x: x[0], samples)
        keep = {"save": lambda estimate: estimate.q, "engine": "fused"}
        run = jax.jit(lambda x, kind=kind, keep=keep: estimation.run(kind, x, **keep)[1])
        cells = [COMMON.best(5, time.process_time, run, one)]
        first = structs(
            jax.tree.map(lambda x: x[None], kind.init(jax.tree.map(lambda x: x[0], one)))
        )
        table = structs(one)
        for functions in ("own", "libm"):
            text = in_c(kind, one, name, functions)
            sizes[name, functions] = text
            for flags in ([], ["-march=native"]):
                many = compiled(text + LOOP.format(n=name), flags, folder)
                q = np.zeros((count, 4), np.float32)
                arguments = [x.ctypes.data_as(ctypes.c_void_p) for x in (first, table)]
                at = q.ctypes.data_as(ctypes.c_void_p)
                cells.append(COMMON.best(5, time.process_time, many, *arguments, count, at))
            attitudes[name, functions] = q
        print(
            f"| {name} | " + " | ".join(f"{1e6 * x / count:.2f}" for x in cells) + " |", flush=True
        )
    print(f"| VQF, C++ | {1e6 * vqf / count:.2f} | | | | |")
    print("\n| rad between libm and own after | 1 | 100 | 10,000 samples |\n|---|---|---|---|")
    for name in rows:
        own, libm = (jnp.asarray(attitudes[name, x]) for x in ("own", "libm"))
        apart = np.asarray(jax.vmap(jq.quaternion.distance)(own, libm))
        print(
            f"| {name} | " + " | ".join(f"{apart[:n].max():.1g}" for n in (1, 100, 10_000)) + " |"
        )
    if with_arm:
        print("\n| bytes for a Cortex-M4F | own | libm |\n|---|---|---|")
        for name in rows:
            cells = (f"{arm(sizes[name, functions], folder):,}" for functions in ("own", "libm"))
            print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

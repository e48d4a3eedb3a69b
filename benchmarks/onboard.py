"""Filters as C: time of a step beside the kernel and VQF in C++, size, growth of rounding.

    python benchmarks/onboard.py [--arm]

Prints the tables of docs/policies.md (In C). Times are microseconds of processor time a sample,
float32, best of five runs over 20,000 samples of benchmarks/attitude_filter.py; gcc -O2, without
and with the instructions of this processor. VQF (the package vqf, C++ in double precision) runs
over the same samples. "own" and "libm" are the argument ``functions`` of ``jq.export.c``. The last
table has the largest difference of attitudes [rad] between "libm" and "own" after so many samples.

``--arm`` also prints the bytes of code and constants for a Cortex-M4F, by arm-none-eabi-gcc -O2.
"""

import argparse
import ctypes
import importlib.util
import subprocess
import tempfile
import time
from pathlib import Path

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
ARM = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
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
    command = ["arm-none-eabi-gcc", *STRICT, *ARM, "-c", folder / "arm.c", "-o", folder / "arm.o"]
    subprocess.run(command, check=True)
    done = subprocess.run(
        ["arm-none-eabi-size", folder / "arm.o"], check=True, capture_output=True, text=True
    )
    return int(done.stdout.splitlines()[1].split()[0])


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arm", action="store_true")
    options, folder = parser.parse_args(), Path(tempfile.mkdtemp())
    count = COMMON.LENGTH[1]
    imu = COMMON.recordings(1, count)
    rows = {
        "mekf": (
            estimation.mekf(jnp.array([1.0, 0.0, 0.0, 0.0]), estimation.MekfSettings(vectors=0.05)),
            COMMON.vectors(imu),
        ),
        "ahrs": (estimation.ahrs(), imu),
    }
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
    if options.arm:
        print("\n| bytes for a Cortex-M4F | own | libm |\n|---|---|---|")
        for name in rows:
            cells = (f"{arm(sizes[name, functions], folder):,}" for functions in ("own", "libm"))
            print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

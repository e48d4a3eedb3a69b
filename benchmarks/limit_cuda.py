"""The loop by hand for NVIDIA's GPUs, limit.cu: compiled, timed, and compared.

``Compiled`` is used by gpu.py on a device. As a script it compiles the loop for the host, one
thread after the other, and prints the largest differences of the last attitudes and rates [rad/s]
to those of the library, after 50 steps of 0.01 s at rates up to 60 rad/s.
"""

import ctypes
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import rollout as peers

import jaxquat as jq
from examples.validation import ahead
from jaxquat._internal import series

SOURCE = Path(__file__).with_name("limit.cu")
BLOCKS = (32, 64, 128, 256)
KINDS = ("library's accuracy", "short series", "short series, fast math")
CUDA = """
#include <cmath>
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __grid_constant__
struct { int x; } static blockIdx, threadIdx;
"""
LOOP = """
extern "C" void rollout(const Body *body, const float *q0, const float *w0, float *q1, float *w1,
                        int n, int steps) {
    for (blockIdx.x = 0; blockIdx.x * 32 < n; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < 32; threadIdx.x++)
            run<32>(*body, q0, w0, q1, w1, n, steps);
}
"""


def coefficients():
    """Return the library's series in float32 as initializers in C, by the names in limit.c."""
    tiny, tables = float(np.finfo(np.float32).eps) / 64, {}  # the terms that series.py keeps
    series_of = {"COS": (series._COS, 4.0), "SINC": (series._SINC, 4.0)}
    for name, (terms, largest) in {**series_of, "POLES": (series._FAR_POLES, np.pi**2)}.items():
        kept = [c for n, c in enumerate(terms) if abs(c) * largest**n * max(1, n * n) > tiny]
        tables[name] = f"{{{','.join(f'{c!r}f' for c in kept)}}}"
    return tables


def compiled(kind, path, *more, processor="sm_90a"):
    """Compile limit.cu to a file, and return what the compiler told."""
    compiler = ahead.program("nvcc")
    if compiler is None:
        raise SystemExit("nvcc is not at hand: install the CUDA toolkit")
    tables = coefficients() if kind == KINDS[0] else {}
    header = Path(path).with_suffix(".h")  # nvcc splits options at commas
    header.write_text("".join(f"#define {name} {table}\n" for name, table in tables.items()))
    arguments = ["-O3", "-std=c++17", f"-arch={processor}", "-include", str(header), *more]
    arguments += ["-use_fast_math"] if kind == KINDS[2] else []
    command = [compiler, *arguments, str(SOURCE), "-o", str(path)]
    return subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True).stderr


class Parameters(ctypes.Structure):
    """The struct Body of limit.cu."""

    _fields_ = [("inertia", 9 * ctypes.c_float), ("inverse", 9 * ctypes.c_float)]
    _fields_ += [(name, ctypes.c_float) for name in ("stiffness", "damping", "h")]


def parameters(gains):
    """Return the body of rollout.py with these gains."""
    inertia = np.asarray(peers.INERTIA, np.float32)
    inverse = np.linalg.inv(inertia).astype(np.float32)
    nine = 9 * ctypes.c_float
    numbers = [nine(*inertia.ravel()), nine(*inverse.ravel()), *map(float, gains), peers.DT]
    return Parameters(*numbers)


class Compiled:
    """One of ``KINDS``, as a library."""

    def __init__(self, kind):
        folder = Path(tempfile.mkdtemp())
        path, options = folder / "limit.so", ["-shared", "-Xcompiler=-fPIC"]
        compiled(kind, path, *options, processor="native")
        self.library = ctypes.CDLL(str(path))

    def call(self, name, *arguments):
        """Call a function, which returns CUDA's error code."""
        error = getattr(self.library, name)(*arguments)
        if error:
            raise RuntimeError(f"{name}: CUDA's error {error}")

    def run(self, starts, gains, steps):
        """Return the best times of all blocks, and the last attitudes and rates.

        "kernel" [s] is the time between two events, "call" [s] that of the host until the kernel
        has ended, as block_until_ready times the library's; "block" is the best number of threads.
        """
        body, count = parameters(gains), starts.q.shape[0]
        arrays = [np.ascontiguousarray(np.asarray(x).T) for x in (starts.q, starts.omega)]
        self.call("load", *map(_pointer, arrays), count)
        times = []
        for block in BLOCKS:
            for _ in range(6):
                milliseconds, began = ctypes.c_float(), time.perf_counter()
                self.call("rollout", ctypes.byref(body), steps, block, ctypes.byref(milliseconds))
                times.append((time.perf_counter() - began, milliseconds.value / 1e3, block))
        self.call("results", *map(_pointer, arrays))
        self.call("release")
        seconds, kernel, block = min(times)
        return {"call": seconds, "kernel": kernel, "block": block}, [x.T for x in arrays]


def _pointer(x):
    return x.ctypes.data_as(ctypes.c_void_p)


def compared(ends, library_ends):
    """Return the largest differences of last attitudes and rates to those of the library."""
    pairs = zip(ends, (library_ends.q, library_ends.omega), strict=True)
    return [float(np.abs(a - np.asarray(b)).max()) for a, b in pairs]


def on_host(kind, folder):
    """Return the largest differences of attitudes and rates, by the loop compiled for the host."""
    text = SOURCE.read_text().replace("#include <cuda_runtime.h>", CUDA)
    tables = coefficients() if kind == KINDS[0] else {}
    defines = "".join(f"#define {name} {table}\n" for name, table in tables.items())
    library = Path(folder) / f"limit{KINDS.index(kind)}.so"  # a path is loaded once
    source = library.with_suffix(".cpp")
    source.write_text(defines + re.split(r"static float \*memory", text)[0] + LOOP)
    compiler = shutil.which("g++") or shutil.which("clang++") or "c++"
    options = ["-O2", "-std=c++17", "-w", "-shared", "-fPIC"]
    subprocess.run([compiler, *options, str(source), "-o", str(library)], check=True)
    starts, gains = peers.random_starts(70, "float32"), jnp.array([6.0, 4.0], jnp.float32)
    faster = jnp.geomspace(0.1, 25.0, 70, dtype=jnp.float32)
    starts = jq.State(starts.q, starts.omega * faster[:, None])
    ends = jax.vmap(lambda x: peers.library(x, gains, 50, "none"))(starts)
    arrays = [np.ascontiguousarray(np.asarray(x).T) for x in (starts.q, starts.omega)]
    results = [np.zeros_like(x) for x in arrays]
    body = parameters(gains)
    pointers = map(_pointer, (*arrays, *results))
    ctypes.CDLL(str(library)).rollout(ctypes.byref(body), *pointers, 70, 50)
    return compared([x.T for x in results], ends)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS[:2]:
            print(*on_host(kind, folder), kind)

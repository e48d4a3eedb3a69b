"""The loop by hand for a GPU, limit.cu, compiled for the host: one thread after the other."""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
COMPILER = shutil.which("g++") or shutil.which("clang++")
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


@pytest.mark.skipif(COMPILER is None, reason="no compiler of C++")
@pytest.mark.parametrize("number", [0, 1], ids=["accuracy of the library", "short series"])
def test_last_states_are_those_of_the_library(number, tmp_path, monkeypatch):
    """Rates up to 60 rad/s in steps of 0.01 s; both sides round differently in each of 50 steps."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    pytest.importorskip("diffrax")
    pytest.importorskip("jaxlie")
    import limit_cuda
    import rollout as peers

    text = (BENCHMARKS / "limit.cu").read_text().replace("#include <cuda_runtime.h>", CUDA)
    text = re.split(r"static float \*memory", text)[0] + LOOP
    tables = limit_cuda.coefficients() if number == 0 else {}
    defines = "".join(f"#define {name} {table}\n" for name, table in tables.items())
    source, library = tmp_path / "limit.cpp", tmp_path / "limit.so"
    source.write_text(defines + text)
    assert COMPILER is not None
    options = ["-O2", "-std=c++17", "-w", "-shared", "-fPIC"]
    subprocess.run([COMPILER, *options, str(source), "-o", str(library)], check=True)

    starts, gains = peers.random_starts(70, "float32"), jnp.array([6.0, 4.0], jnp.float32)
    faster = jnp.geomspace(0.1, 25.0, 70, dtype=jnp.float32)
    starts = jq.State(starts.q, starts.omega * faster[:, None])
    ends = jax.vmap(lambda x: peers.library(x, gains, 50, "none"))(starts)
    arrays = [np.ascontiguousarray(np.asarray(x).T) for x in (starts.q, starts.omega)]
    results = [np.zeros_like(x) for x in arrays]
    pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (*arrays, *results)]
    body = limit_cuda.parameters(gains)
    ctypes.CDLL(str(library)).rollout(ctypes.byref(body), *pointers, 70, 50)
    np.testing.assert_allclose(results[0].T, ends.q, atol=2e-5)
    np.testing.assert_allclose(results[1].T, ends.omega, atol=2e-5 * 60)

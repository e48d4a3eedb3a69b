"""The loop by hand for a GPU, limit.cu, compiled for the host: one thread after the other."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
def test_last_states_are_those_of_the_library():
    """With series as accurate and short ones; both sides round differently in each of 50 steps."""
    pytest.importorskip("diffrax")
    pytest.importorskip("jaxlie")
    command = [sys.executable, str(ROOT / "benchmarks" / "limit_cuda.py")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_ENABLE_X64": "0"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = [line.split() for line in run.stdout.splitlines()]
    assert len(lines) == 2
    for q, omega, *_ in lines:
        assert float(q) < 2e-5
        assert float(omega) < 2e-5 * 60

"""Tests run with float64, strict dtype promotion and no implicit rank promotion.

Tests of float32 ask for it by name. With ``JAX_ENABLE_X64=0`` float64 stays off, as users have it;
then ``-k "float32 and not float64"`` chooses the tests that can pass.
"""

import importlib.util
import os

import jax
import pytest

jax.config.update("jax_enable_x64", os.environ.get("JAX_ENABLE_X64") != "0")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

NEEDS = {
    "test_agreement.py": "llvmlite",
    "test_ensembles_devices.py": "zarr",
    "test_ensembles_store.py": "zarr",
    "test_examples.py": "matplotlib",
    "test_fused.py": "llvmlite",
    "test_interop_diffrax.py": "diffrax",
    "test_plot.py": "matplotlib",
    "test_snapshots.py": "orbax",
}
LEFT_OUT = {
    file: module for file, module in NEEDS.items() if importlib.util.find_spec(module) is None
}
collect_ignore = list(LEFT_OUT)


def pytest_report_header():
    return [f"{file} is left out: {module} is not installed" for file, module in LEFT_OUT.items()]


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        for module in mark.args:
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"{module} is not installed")

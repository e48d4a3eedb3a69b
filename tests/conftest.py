"""Tests run with float64, strict dtype promotion and no implicit rank promotion.

Tests of float32 ask for it by name. With ``JAX_ENABLE_X64=0`` float64 stays off, as users have it;
then ``-k "float32 and not float64"`` chooses the tests that can pass.

With ``-m`` XLA compiles with less effort (examples/validation/effort.py); without ``-m`` and after
``XLA_FLAGS=`` it compiles as for a user.

``pytest --cpu 30`` prints the thirty tests that used the processor longest, in seconds of its time.
Unlike ``--durations`` these are nearly the same on a busy machine.
"""

import collections
import gc
import importlib.util
import os
import random
import resource
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # waiting threads would take cores from workers

import jax
import pytest

from examples.validation import effort

HERE = Path(__file__).parent
NEEDS = {
    "simulation/engines/test_agreement.py": "llvmlite",
    "ensembles/test_ensembles_devices.py": "zarr",
    "ensembles/test_ensembles_store.py": "zarr",
    "test_examples.py": "matplotlib",
    "simulation/engines/test_fused.py": "llvmlite",
    "simulation/engines/test_nvptx.py": "llvmlite",
    "simulation/engines/test_selfcheck.py": "llvmlite",
    "simulation/engines/test_fused_grid_at.py": "llvmlite",
    "interop/test_interop_diffrax.py": "diffrax",
    "plot/test_plot.py": "matplotlib",
    "test_notebooks.py": "nbclient",
}
WEEKLY = {
    "fused/test_scalarize.py",
    *(
        f"simulation/engines/test_{x}.py"
        for x in ("fuzz", "nvptx", "shard_map", "steps_as_scalars")
    ),
    "ensembles/test_ensembles_devices.py",
    "exact/test_elliptic.py",
    "schemes/test_rounding.py",
    "kinematics/test_preintegration.py",
    *(f"test_{x}.py" for x in ("browser", "examples", "moving", "mutations", "notebooks")),
    *(f"test_{x}.py" for x in ("own_units", "packaging", "properties")),
}
"""Files whose slow tests are run once a week."""

LEFT_OUT = {
    file: module for file, module in NEEDS.items() if importlib.util.find_spec(module) is None
}
collect_ignore = list(LEFT_OUT)


def pytest_configure(config):
    if config.option.markexpr and effort.FLAGS:
        os.environ.setdefault("XLA_FLAGS", effort.FLAGS)  # read where XLA is first used
    jax.config.update("jax_enable_x64", os.environ.get("JAX_ENABLE_X64") != "0")
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_traceback_in_locations_limit", 0)  # lowering takes less time
    config.add_cleanup(gc.freeze)  # at the end pytest collects all objects twice, Python once more


def pytest_addoption(parser):
    meaning = "print the N tests that used the processor longest"
    parser.addoption("--cpu", type=int, default=0, metavar="N", help=meaning)
    meaning = "run the tests in the random order that this number seeds"
    parser.addoption("--shuffle", type=int, metavar="SEED", help=meaning)


def pytest_report_header():
    flags = f"XLA_FLAGS: {os.environ.get('XLA_FLAGS') or 'none'}"
    left_out = [
        f"{file} is left out: {module} is not installed" for file, module in LEFT_OUT.items()
    ]
    return [flags, *left_out]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """The longest tests come first, so that no worker is left alone with one at the end."""
    if config.option.shuffle is not None:
        random.Random(config.option.shuffle).shuffle(items)
    for item in items:
        weekly = item.path.relative_to(HERE).as_posix() in WEEKLY
        if weekly and item.get_closest_marker("slow"):
            item.add_marker("weekly")
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish():
    """Collect garbage less often: traced programs are many small objects.

    By default the collector takes a tenth of the time.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        for module in mark.args:
            if importlib.util.find_spec(module) is None:
                pytest.skip(f"{module} is not installed")


def processor_time():
    """Seconds of this process and of its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


USED = pytest.StashKey[float]()  # in a worker: processor time at the last report
TIMES = collections.Counter()  # where the reports arrive: seconds of each test


def pytest_sessionstart(session):
    session.stash[USED] = processor_time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """The report of every phase of a test brings its processor time along, from a worker too."""
    report, now = (yield), processor_time()
    report.processor_time = now - item.session.stash[USED]
    item.session.stash[USED] = now
    return report


def pytest_runtest_logreport(report):
    TIMES[report.nodeid] += report.processor_time


def pytest_terminal_summary(terminalreporter, config):
    if config.option.cpu:
        terminalreporter.section(f"processor time: {TIMES.total():.0f} s")
        for name, seconds in TIMES.most_common(config.option.cpu):
            terminalreporter.write_line(f"{seconds:7.1f} s  {name}")

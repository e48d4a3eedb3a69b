"""Errors planted in a copy of the package: the quick tests must find each of them.

    python tests/mutations.py                 all of them, a minute each
    python tests/mutations.py --list
    python tests/mutations.py "stage time"    those whose names contain this

Each mutation names the tests that find it. They must pass on the unchanged copy and fail on the
changed one. With ``--all`` the whole quick suite runs on every mutation, to its first failure.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Mutation(NamedTuple):
    """In a file of jaxquat/ every ``old`` becomes ``new``; the tests are quick ones."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


STAGES = "tests/test_schemes.py::test_stage_times_on_a_manufactured_motion"
ORDER = "tests/test_schemes.py::test_order_on_forced_bodies"
AUX = "tests/test_schemes.py::test_aux_states_are_integrated_at_the_scheme_order"
MUTATIONS = {
    "torque at q0 instead of the stage's attitude": Mutation(
        "schemes/munthe_kaas.py",
        "stage = State(turned, ",
        "stage = State(state.q, ",
        (f"{ORDER}[rkmk4]",),
    ),
    "wrong stage time": Mutation(
        "schemes/munthe_kaas.py",
        "*rates(t + node * dt, stage)",
        "*rates(t + dt, stage)",
        (f"{STAGES}[rkmk4]", f"{ORDER}[rkmk4]"),
    ),
    "series switched at 1e-6": Mutation(
        "_series.py",
        "near = s < _SWITCH\n",
        "near = s < 1e-6\n",
        ("tests/test_series.py",),
    ),
    "lost aux state": Mutation(
        "schemes/munthe_kaas.py",
        "aux = jax.tree.map(lambda x, d: x + d, state.aux, aux_shift)\n    return",
        "aux = state.aux\n    return",
        (f"{AUX}[rkmk4]",),
    ),
    "lost aux state of the stages": Mutation(
        "schemes/munthe_kaas.py",
        "aux = jax.tree.map(lambda x, d: x + d, state.aux, aux_shift)\n        stage",
        "aux = state.aux\n        stage",
        (f"{AUX}[rkmk4]",),
    ),
}


def pytest(package: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Runs quick tests on a copy of the package, to the first failure."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-m", "not slow"]
    environment = os.environ | {"PYTHONPATH": str(package)}
    options = {"env": environment, "cwd": ROOT, "capture_output": True, "text": True}
    return subprocess.run([*command, "-p", "no:cacheprovider", *tests], check=False, **options)


def planted(mutation: Mutation, folder: Path) -> None:
    """Changes the copy in a folder."""
    file = folder / "jaxquat" / mutation.file
    text = file.read_text()
    assert mutation.old in text, f"{mutation.file} has no {mutation.old!r}"
    file.write_text(text.replace(mutation.old, mutation.new))

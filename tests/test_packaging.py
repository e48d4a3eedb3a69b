"""The wheel, and what importing it does."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command, cwd=None):
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def test_import_starts_no_device_and_loads_no_extra():
    """How long it takes is measured by benchmarks/import_time.py."""
    extras = ("matplotlib", "diffrax", "llvmlite", "zarr", "orbax")
    program = (
        "import sys, jaxquat\n"
        "from jax._src import xla_bridge\n"
        f"print(xla_bridge.backends_are_initialized(), [name for name in {extras} if name in sys.modules])\n"
    )
    assert run(sys.executable, "-c", program).strip() == "False []"


@pytest.mark.slow
def test_wheel_is_typed_and_imports_in_a_clean_environment(tmp_path):
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "jaxquat/py.typed" in names
    assert not [name for name in names if not name.startswith(("jaxquat/", "jaxquat-"))]
    run(sys.executable, "-m", "venv", str(tmp_path / "clean"))
    python = str(tmp_path / "clean" / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", str(wheel))
    program = "import jaxquat as jq; print(jq.__version__, jq.quaternion.exp(__import__('jax').numpy.zeros(3)))"
    assert run(python, "-c", program, cwd=tmp_path).split()[0] == "0.1.0"
    installed = run(python, "-m", "pip", "list", "--format=freeze")
    assert "matplotlib" not in installed

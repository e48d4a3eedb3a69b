"""These tests check the wheel and what importing it does."""

import subprocess
import sys
import zipfile

import pytest
from commands import ROOT


def run(*command, cwd=None):
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


IMPORTED = """
import sys, jaxquat as jq
from jax._src import xla_bridge
extras = "matplotlib", "diffrax", "llvmlite", "zarr", "orbax"
print(xla_bridge.backends_are_initialized(), [name for name in extras if name in sys.modules])
listed = {"plot", "interop", "quaternion"} <= set(dir(jq))
print(listed, "jaxquat.plot" in sys.modules, hasattr(jq, "pilot"))
for name in ("matplotlib", "diffrax"):
    sys.modules[name] = None
for get in (lambda: jq.plot, lambda: jq.interop.diffrax):
    try:
        get()
    except ImportError as error:
        print(error)
"""


def test_import_starts_no_device_and_loads_extras_on_demand():
    """benchmarks/import_time.py measures how long the import takes."""
    assert run(sys.executable, "-c", IMPORTED).splitlines() == [
        "False []",
        "True False False",
        'plot: wanted the package matplotlib, got none: pip install "jaxquat[plot]"',
        'interop.diffrax: wanted the package diffrax, got none: pip install "jaxquat[diffrax]"',
    ]


@pytest.mark.slow
@pytest.mark.needs("matplotlib", "diffrax")
def test_plot_and_interop_are_attributes():
    program = (
        "import jaxquat as jq; "
        "print(jq.plot.fan.__name__, jq.interop.diffrax.term.__name__, "
        "'diffrax' in dir(jq.interop))"
    )
    assert run(sys.executable, "-c", program).strip() == "fan term True"


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
    program = (
        "import jaxquat as jq; "
        "print(jq.__version__, jq.quaternion.exp(__import__('jax').numpy.zeros(3)))"
    )
    assert run(python, "-c", program, cwd=tmp_path).split()[0] == "0.2.0"
    installed = run(python, "-m", "pip", "list", "--format=freeze")
    assert "matplotlib" not in installed

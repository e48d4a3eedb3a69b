"""These tests check the wheel and what importing it does."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest
from commands import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(*command, cwd=None):
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


IMPORTED = """
import sys, jaxquat as jq
from jax._src import xla_bridge
extras = "matplotlib", "diffrax", "llvmlite", "zarr"
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


def test_the_version_and_its_pythons_are_the_same_everywhere():
    """RELEASING.md says where to change them."""
    version = PROJECT["version"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (\S+)$", citation, re.M)[1] == version
    assert re.search(r"^date-released: \d{4}-\d\d-\d\d$", citation, re.M)
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] in (
        version,
        "Unreleased",
    )
    pythons = re.search(r"^PYTHONS = \[(.*)\]$", (ROOT / "noxfile.py").read_text(), re.M)[1]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert re.findall(r"3\.\d+", pythons) == named
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_addresses_are_all_placeholders_or_all_real():
    """Names in .invalid never exist; the workflow ``wheels`` publishes none."""
    urls = PROJECT["urls"]
    assert list(urls) == ["Homepage", "Documentation", "Source", "Changelog", "Issues"]
    assert all(url.startswith("https://") for url in urls.values())
    assert len({".invalid/" in url for url in urls.values()}) == 1


def test_the_conda_recipe_wants_what_the_wheel_wants():
    """Extras are constraints there; tests and documentation have none."""
    recipe = (ROOT / "docs" / "packaging" / "recipe.yaml").read_text()
    assert f'version: "{PROJECT["version"]}"' in recipe
    assert f'python_min: "{PROJECT["requires-python"].removeprefix(">=")}"' in recipe
    names = {"matplotlib": "matplotlib-base", "flatbuffers": "python-flatbuffers"}

    def section(key):
        lines = re.search(rf"^  {key}:.*\n((?:    - .*\n)+)", recipe, re.M)[1]
        return re.findall(r"- (\S+) (>=\S+)$", lines, re.M)

    def wanted(requirements):
        pairs = (re.split("(?=>=)", requirement) for requirement in requirements)
        return [(names.get(name, name), bound) for name, bound in pairs]

    assert section("run") == wanted(PROJECT["dependencies"])
    extras = ("plot", "fused", "diffrax", "store", "export", "logs")
    optional = [need for key in extras for need in PROJECT["optional-dependencies"][key]]
    assert section("run_constraints") == wanted(optional)


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """A folder with the wheel, and an environment that has the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", str(folder / "environment"))
    python = folder / "environment" / "bin" / "python"
    run(str(python), "-m", "pip", "install", "--quiet", str(wheel))
    return folder


@pytest.mark.slow
def test_wheel_is_typed_and_imports_in_a_clean_environment(clean):
    (wheel,) = clean.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"jaxquat/py.typed", "jaxquat/_internal/renamed.toml"} <= set(names)
    assert not [name for name in names if not name.startswith(("jaxquat/", "jaxquat-"))]
    python = str(clean / "environment" / "bin" / "python")
    program = (
        "import jaxquat as jq; "
        "print(jq.__version__, jq.quaternion.exp(__import__('jax').numpy.zeros(3)))"
    )
    assert run(python, "-c", program, cwd=clean).split()[0] == PROJECT["version"]
    installed = run(python, "-m", "pip", "list", "--format=freeze")
    assert "matplotlib" not in installed


USER = ROOT / "tests" / "typed" / "user.py"
OTHERS = ("jax.", "jnp.", "optax")
"""Types of these packages are partly unknown; what begins so in the program is not jaxquat's."""


@pytest.mark.slow
def test_a_program_with_types_runs_with_the_wheel(clean):
    printed = run(str(clean / "environment" / "bin" / "python"), str(USER), cwd=clean)
    assert printed.startswith("Gains(")


@pytest.mark.slow
@pytest.mark.needs("pyright")
def test_a_program_with_types_passes_pyright_strict(clean):
    shutil.copy(USER, clean)
    settings = {"typeCheckingMode": "strict", "include": ["user.py"]}
    (clean / "pyrightconfig.json").write_text(json.dumps(settings))
    python = str(clean / "environment" / "bin" / "python")
    command = [sys.executable, "-m", "pyright", "--pythonpath", python, "--outputjson"]
    done = subprocess.run(command, cwd=clean, check=False, capture_output=True, text=True)
    report, lines = json.loads(done.stdout), USER.read_text().splitlines()
    assert report["summary"]["filesAnalyzed"] == 1
    for found in report["generalDiagnostics"]:
        start = found["range"]["start"]
        source = lines[start["line"]][start["character"] :]
        assert source.startswith(OTHERS), found
        assert "Unknown" in found["rule"] or found["rule"] == "reportMissingTypeStubs", found


@pytest.mark.slow
@pytest.mark.needs("mypy")
def test_a_program_with_types_passes_mypy_strict(clean):
    (clean / "mypy.ini").write_text("[mypy]\n[mypy-optax.*]\nignore_missing_imports = True\n")
    python = str(clean / "environment" / "bin" / "python")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", python, str(USER)]
    done = subprocess.run(command, cwd=clean, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

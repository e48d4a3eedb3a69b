"""The tasks of the project. ``nox --list`` names them; ``nox`` alone runs what a change must pass.

    nox                              # lint, types, the quick tests and the site
    nox -s tests -- -k rollout       # what follows "--" is for pytest
    nox -s slow                      # the slow tests
    nox -s weekly                    # the longest tests, the fuzzer, and all planted errors
    nox -s alone                     # each file of tests in a process of its own
    nox -s matrix                    # the quick tests on every Python, with extras and without
    nox -s "matrix-3.13(float32)"    # one row of it
    nox -s matrix -- --part          # a minute or two of every row

Each task has an environment of its own; with ``--no-venv`` it runs in that of nox.
"""

import random
import re
import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests", "site"]
nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = True
nox.options.reuse_existing_virtualenvs = True

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
QUICK = ["pytest", "-m", "not slow"]
AS_FOR_A_USER = {"XLA_FLAGS": ""}  # the tests otherwise ask XLA for less effort
PART = [
    "tests/test_packaging.py",
    "tests/test_errors.py",
    "tests/_internal/test_jaxprs.py",
    "tests/_internal/test_recognition.py",
    "tests/quaternion/test_so3.py",
    "tests/dynamics/test_dynamics.py",
    "tests/dynamics/test_torques.py",
    "tests/simulation/engines/test_fuzz.py::test_other_roundings_admit_a_tanh_that_reaches_one_early",
]
FLOAT32 = ["-k", "float32 and not float64"]
PART_OF_FLOAT32 = [
    "tests/_internal/test_series.py",
    "tests/_internal/test_linear.py",
    "tests/simulation/test_rollout.py",
    "tests/quaternion",
    "tests/dynamics",
    "tests/control",
    "tests/schemes/test_schemes.py",
    "tests/simulation/engines/test_derivatives.py",
]
NO_TESTS = 5
"""The exit status of pytest where all tests of a file are slow, or need what is not installed."""
OLD = ("matplotlib._fontconfig_pattern", "matplotlib._mathtext")
"""Modules that call what the newest pyparsing deprecates."""


def install(session, *packages):
    """Install packages in the task's environment; in that of nox they are there."""
    if session.venv_backend != "none":
        session.install(*packages)


@nox.session
def lint(session):
    """Check style and format."""
    install(session, "ruff>=0.14")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session):
    """Check types."""
    install(session, "-e", ".[dev]")
    python = session.run("python", "-c", "import sys; print(sys.executable)", silent=True)
    session.run("pyright", "--pythonpath", python.strip())


@nox.session
def tests(session):
    """Run the quick tests."""
    install(session, "-e", ".[dev]")
    session.run(*QUICK, *session.posargs)


@nox.session
def slow(session):
    """Run the slow tests but for those that run once a week."""
    install(session, "-e", ".[dev,docs]")
    session.run("pytest", "-m", "slow and not weekly", *session.posargs)


@nox.session
def weekly(session):
    """Run the longest tests, the fuzzer and all planted errors, which takes hours."""
    install(session, "-e", ".[dev,docs]")
    session.run("pytest", "-m", "weekly", *session.posargs)
    session.run("python", "-m", "tests.fuzz", "--programs", "500", "--rollouts", "50")
    session.run("python", "tests/mutations.py")


@nox.session
def alone(session):
    """Run each file of quick tests in a process of its own, in a random order.

    ``nox -s alone -- --collect-only`` shows in a few minutes that every file can be imported alone.
    """
    install(session, "-e", ".[dev]")
    seed = random.randrange(10**6)
    files = sorted(map(str, Path("tests").rglob("test_*.py")))
    random.Random(seed).shuffle(files)
    arguments = ["-q", "-n0", "--shuffle", str(seed), *session.posargs]
    for file in files:
        session.run(*QUICK, *arguments, file, success_codes=[0, NO_TESTS])


@nox.session
def coverage(session):
    """Print which lines the quick tests do not reach."""
    install(session, "-e", ".[dev]", "pytest-cov")
    session.run(*QUICK, "--cov=jaxquat", "--cov-report=term-missing:skip-covered", *session.posargs)


@nox.session
def site(session):
    """Build the site; a link that leads nowhere is an error."""
    install(session, "-e", ".[docs]")
    session.run("zensical", "build", "--clean", "--strict", "-f", "docs/mkdocs.yml")


def chosen(session, kind="all"):
    """Return the arguments of pytest for a row of the matrix."""
    arguments = [x for x in session.posargs if x != "--part"]
    part = PART_OF_FLOAT32 if kind == "float32" else PART
    arguments += FLOAT32 if kind == "float32" else []
    return arguments + (part if "--part" in session.posargs else [])


@nox.session(python=PYTHONS)
@nox.parametrize("kind", ["all", "core", "float32"], ids=["all", "core", "float32"])
def matrix(session, kind):
    """Run the quick tests with the jax that pip gives: with extras, without, or without float64."""
    install(session, "-e", ".[test-core]" if kind == "core" else ".[test]")
    environment = AS_FOR_A_USER | ({"JAX_ENABLE_X64": "0"} if kind == "float32" else {})
    session.run(*QUICK, "-q", *chosen(session, kind), env=environment)


@nox.session(python=PYTHONS[0])
def oldest(session):
    """Run the quick tests with every dependency at its lower bound."""
    constraints = Path(session.create_tmp(), "constraints.txt")
    constraints.write_text("\n".join(lower_bounds()) + "\n")
    install(session, "-e", ".[test]", "-c", str(constraints))
    warned = [part for x in OLD for part in ("-W", f"default::DeprecationWarning:{x}")]
    session.run(*QUICK, "-q", *chosen(session), *warned, env=AS_FOR_A_USER)


@nox.session(python="3.13")
def nightly(session):
    """Run the quick tests with the newest source of jax, which may fail."""
    install(session, "-e", ".[test]")
    install(session, "--upgrade", "jax @ git+https://github.com/jax-ml/jax")
    session.run(*QUICK, "-q", *chosen(session), env=AS_FOR_A_USER)


@nox.session(python="3.13")
def gpu(session):
    """Compile the fused engine's kernels for an H200, which takes no GPU but large packages."""
    install(session, "-e", ".[fused,test-core]")
    version = session.run(
        "python", "-c", "import jax; print(jax.__version__)", silent=True, log=False
    ).strip()
    plugin = [f"jax-cuda12-{part}=={version}" for part in ("plugin", "pjrt")]
    install(session, "--no-deps", *plugin, "nvidia-cuda-nvcc", "nvidia-cuda-nvdisasm")
    environment = AS_FOR_A_USER | {"JAX_PLATFORMS": "cpu"}
    session.run(
        *QUICK, "-q", "tests/simulation/engines/test_ahead.py", *session.posargs, env=environment
    )


def lower_bounds():
    """Return the lower bounds of pyproject.toml as constraints; the tests' own tools are free."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = ("plot", "fused", "diffrax", "store", "export", "logs")
    wanted = project["dependencies"] + [need for name in names for need in extras[name]]
    return [re.sub(r"\[.*?\]|\s", "", need).replace(">=", "==") for need in wanted]

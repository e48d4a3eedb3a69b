"""A name of scipy, MJX or diffrax is an error that says what it is called here.

Everything that such an error names is there.
"""

import copy
import importlib.util
import pickle
import re
import subprocess
import sys
import traceback
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT

import jaxquat as jq
from jaxquat._internal.renamed import tables

INSTEAD, RENAMED, MOVED, DELETED, OLD_KEYWORDS, RENAMED_ARGUMENTS, OLD_ORDERS = tables()
STATE = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3), (), jnp.zeros(3), jnp.zeros(3))
ROWS = jax.tree.map(lambda x: jnp.stack([x, x]), STATE)
BODY = jq.Body.from_principal(jnp.array([1.0, 1.0, 2.0]))
INSTANCES = {
    "path": jq.Path(jnp.array([0.0, 1.0]), ROWS, final=STATE),
    "state": STATE,
    "body": jq.Body(jnp.eye(3), mass=1.0),
    "fit": jq.Fit(0.0, np.zeros(1), 0, None, 1, None, 10),
    "recording": jq.recordings.Recording(np.array([0.0, 0.1]), np.zeros((2, 3))),
    "grid": jq.grid(0.0, 0.1, 2),
    "gridat": jq.grid_at(np.array([0.0, 0.1, 0.3])),
}
EXTRAS = {"jq.plot": "matplotlib", "jq.interop": "diffrax"}
OWNERS = [
    pytest.param(owner, marks=[pytest.mark.needs("matplotlib")] if owner == "plot" else [])
    for owner in INSTEAD
]


def owner_of(name):
    """The package, a module, or an instance of a class."""
    return INSTANCES[name.lower()] if name[:1].isupper() else getattr(jq, name) if name else jq


def resolved(chain):
    """The value of a chain of names such as "jq.quaternion.exp" or "path.state.q"."""
    first, *names = chain.split(".")
    value = jq if first == "jq" else INSTANCES[first]
    for name in names:
        value = getattr(value, name)
    return value


@pytest.mark.parametrize(
    ("owner", "name", "instead"),
    [
        (jq, "preintegrate", "jq.kinematics.preintegrate"),
        (jq, "log", "jq.quaternion.log or jq.so3.log"),
        (jq.control, "ilqr", "jq.planning.ilqr"),
        (jq.planning, "rollout", "jq.rollout"),
    ],
)
def test_a_name_of_another_module_is_found_there(owner, name, instead):
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; use {instead}$"):
        getattr(owner, name)


@pytest.mark.parametrize("owner", OWNERS)
def test_a_guess_is_answered_and_is_not_there(owner):
    thing = owner_of(owner)
    for name, instead in INSTEAD[owner].items():
        assert not hasattr(thing, name)
        assert name not in dir(thing)
        message = f"has no attribute {name!r}; use {instead}"
        with pytest.raises(AttributeError, match=f"{re.escape(message)}$"):
            getattr(thing, name)


def test_a_name_that_is_nearly_right_is_proposed():
    with pytest.raises(AttributeError, match=r"use jq\.actuators\.allocate$"):
        jq.actuators.allocation  # noqa: B018


@pytest.mark.parametrize(
    ("owner", "name", "nearest"),
    [
        ("", "rkm4", "jq.rkmk4"),
        ("", "RK4", "jq.rkmk4"),
        ("", "quaternon", "jq.quaternion"),
        ("", "Boddy", "jq.Body"),
        ("", "interopt", "jq.interop"),
        ("Path", "finl", "path.final"),
        ("Body", "inerta", "body.inertia"),
        ("State", "omgea", "state.omega"),
        ("Recording", "gyr", "recording.gyro"),
        ("GridAt", "tims", "grid.times"),
    ],
)
def test_a_slip_of_the_pen_is_answered_by_the_name_that_is_there(owner, name, nearest):
    with pytest.raises(AttributeError, match=f"; use {re.escape(nearest)}$"):
        getattr(owner_of(owner), name)


def test_a_channel_that_its_user_named_is_no_attribute():
    t, numbers = np.array([0.0, 0.1]), np.zeros((2, 3))
    recording = jq.recordings.Recording(t, channels={"omega": numbers})
    with pytest.raises(AttributeError, match=r'use recording\["omega"\]$'):
        _ = recording.omega
    assert recording["omega"] is numbers


@pytest.mark.parametrize("module", ["kinematics", "actuators", "recordings", "control"])
def test_completion_shows_what_is_public(module):
    assert dir(getattr(jq, module)) == sorted(getattr(jq, module).__all__)


@pytest.mark.parametrize("owner", INSTEAD)
def test_what_an_answer_names_is_there(owner):
    for hint in INSTEAD[owner].values():
        for chain in re.findall(r"\b(?:jq|path|state|body|recording|grid)(?:\.\w+)+", hint):
            extra = EXTRAS.get(".".join(chain.split(".")[:2]))
            if extra is None or importlib.util.find_spec(extra):
                resolved(chain)
        for file in re.findall(r"\bexamples/\w+\.py", hint):
            assert (ROOT / file).exists()


def test_a_path_becomes_a_data_frame_by_the_line_that_is_said():
    """A table by columns stands for pandas, which nothing here needs."""
    table = types.SimpleNamespace(
        DataFrame=lambda values, columns: dict(zip(columns, values.T, strict=True))
    )
    path = INSTANCES["path"]
    frame = eval(INSTEAD["Path"]["to_dataframe"], {"np": np, "path": path, "pandas": table})
    assert list(frame) == ["t", "w", "x", "y", "z", "omega_x", "omega_y", "omega_z"]
    np.testing.assert_array_equal(frame["t"], path.t)
    np.testing.assert_array_equal(frame["w"], path.state.q[:, 0])
    np.testing.assert_array_equal(frame["omega_z"], path.state.omega[:, 2])


def test_a_path_becomes_a_file_by_the_line_that_is_said(tmp_path):
    file, path = tmp_path / "path.csv", INSTANCES["path"]
    eval(INSTEAD["Path"]["to_csv"], {"np": np, "path": path, "file": file})
    np.testing.assert_array_equal(np.loadtxt(file)[:, 0], path.t)
    np.testing.assert_array_equal(np.loadtxt(file)[:, 1:5], path.state.q)


@pytest.mark.needs("matplotlib")
def test_python_proposes_no_other_name_beside_the_answer():
    """``angles`` is spelled much like a module of ``plot``."""
    with pytest.raises(AttributeError, match=r"use jq\.plot\.euler_angles") as caught:
        _ = jq.plot.angles
    assert "Did you mean" not in "".join(traceback.format_exception_only(caught.value))


def test_other_names_are_missing_as_ever():
    with pytest.raises(AttributeError, match=r"^module 'jaxquat.so3' has no attribute 'pilot'$"):
        _ = jq.so3.pilot
    with pytest.raises(AttributeError, match=r"^'Path' object has no attribute 'pilot'$"):
        _ = INSTANCES["path"].pilot
    with pytest.raises(AttributeError, match=r"^module 'jaxquat' has no attribute 'kite'$"):
        _ = jq.kite


def test_a_name_of_the_last_release_is_still_there_and_says_the_new_one():
    with pytest.warns(DeprecationWarning, match="Course is now called jq.control.ReferenceTraj"):
        assert jq.control.Course is jq.control.ReferenceTrajectory
    with pytest.warns(DeprecationWarning, match="least_squares: horizon is now called prefixes"):
        jq.least_squares(lambda p: p - 1.0, jnp.ones(2), sigma=1.0, horizon=())
    with (
        pytest.warns(DeprecationWarning, match="horizon"),
        pytest.raises(TypeError, match="now called prefixes, got both"),
    ):
        jq.least_squares(lambda p: p, jnp.ones(2), horizon=(), prefixes=())


KEY, GYRO = jax.random.key(0), jq.gyro.Gyro.ideal()
RECORDS = {
    "gyro.Gyro": GYRO,
    "accelerometer.Accelerometer": jq.accelerometer.Accelerometer.ideal(),
    "estimation.AhrsSettings": jq.estimation.AhrsSettings(),
    "estimation.MekfSettings": jq.estimation.MekfSettings(),
    "allan.Noise": jq.allan.Noise(*(np.full(3, x) for x in range(9))),
    "kinematics.Imu": jq.kinematics.Imu(1.0, 2.0),
}


@pytest.mark.parametrize("owner", RECORDS)
def test_fields_of_the_last_release_can_be_given_and_read(owner):
    record, ((old, new),) = RECORDS[owner], RENAMED_ARGUMENTS[owner].items()
    fields = record._asdict() if isinstance(record, tuple) else dict(vars(record))
    fields[old] = fields.pop(new)
    warned = f": {old} is now called {new}"
    with pytest.warns(DeprecationWarning, match=warned):
        same = type(record)(**fields)
    with pytest.warns(DeprecationWarning, match=warned):
        assert getattr(same, old) is getattr(record, new)
    assert old not in dir(same)
    with pytest.raises(AttributeError, match=f"{type(same).__name__}' object has no attribute 'pi"):
        same.pilot  # noqa: B018
    assert type(pickle.loads(pickle.dumps(copy.copy(same)))) is type(record)


@pytest.mark.parametrize(
    "call",
    [
        lambda: jq.gyro.measure(GYRO, np.zeros((4, 3)), 0.1, KEY),
        lambda: jq.accelerometer.measure(
            RECORDS["accelerometer.Accelerometer"], np.zeros((4, 4)), np.zeros((4, 3)), 3, 0.1, KEY
        ),
        lambda: jq.magnetometer.measure(
            jq.magnetometer.Magnetometer.ideal(), np.zeros((4, 4)), np.zeros(3), 0.1, KEY
        ),
    ],
)
def test_a_sensor_before_the_key_is_the_order_of_the_last_release(call):
    message = r"^key: wanted a key of jax.random, got a \w+; the order is jq.\w+.measure\(key, "
    with pytest.raises(TypeError, match=message):
        call()


def test_all_old_keywords_of_a_call_are_in_one_error():
    new = r"gtol is now options=jq.LeastSquaresOptions\(gtol=...\); ftol is now options="
    with pytest.raises(TypeError, match=f"^least_squares: {new}"):
        jq.least_squares(abs, 1.0, gtol=1e-3, ftol=1e-3)


@pytest.mark.parametrize("name", INSTANCES)
def test_copies_and_pickles_are_as_ever(name):
    thing = INSTANCES[name]
    for other in (copy.copy(thing), copy.deepcopy(thing), pickle.loads(pickle.dumps(thing))):
        assert type(other) is type(thing)
        for a, b in zip(jax.tree.leaves(thing), jax.tree.leaves(other), strict=True):
            a, b = (getattr(x, "t", getattr(x, "history", x)) for x in (a, b))
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.needs("pyright")
def test_a_type_checker_still_finds_wrong_names(tmp_path):
    """The package itself has a ``__getattr__`` for what is loaded on demand, so not there."""
    (tmp_path / "guess.py").write_text(
        "import jaxquat as jq\n"
        "def run(path: jq.Path, state: jq.State):\n"
        "    jq.quaternion.from_euler\n"
        "    path.q\n"
        "    state.quat\n"
    )
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "guess.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = re.findall(r"guess.py:(\d):.*error", done.stdout)
    assert errors == ["3", "4", "5"], done.stdout


def test_the_changelog_has_every_old_name():
    """Schemes that are now in ``jq.schemes`` under the same name stand there together."""
    words = set(re.findall(r"\w+", (ROOT / "CHANGELOG.md").read_text()))
    renamed = [x for old, new in RENAMED.items() if new != f"schemes.{old}" for x in (old, new)]
    places = [*renamed, *DELETED, *OLD_KEYWORDS, *OLD_ORDERS, *RENAMED_ARGUMENTS]
    places += [x.removesuffix(".__main__") for x in MOVED]
    arguments = [x for table in (OLD_KEYWORDS, RENAMED_ARGUMENTS) for x in table.values()]
    names = {place.rpartition(".")[2] for place in places} | {x for y in arguments for x in y}
    assert names - words == set()

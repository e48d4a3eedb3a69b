"""Modules and names of the last release work for one more, with a warning that names the new."""

import functools
import importlib
import importlib.util
import re
import subprocess
import sys

import pytest

import jaxquat as jq
from jaxquat._internal.renamed import tables

TABLES = tables()
OF_THE_LAST_RELEASE = {  # a public name of each module that moved
    "accelerometer": "Accelerometer",
    "allan": "fit",
    "flow": "jeffery_rate",
    "forces": "gravity",
    "gyro": "Gyro",
    "magnetometer": "Magnetometer",
    "rotors": "Rotors",
    "torques": "drag",
}
MODULES = [name for name in TABLES.moved if name not in {"rollout", "fused.__main__"}]


@pytest.fixture(autouse=True)
def as_at_the_start(monkeypatch):
    """No module has been imported by its old name."""
    olds = tuple(f"jaxquat.{name}" for name in MODULES)
    for name in [x for x in sys.modules if x.startswith(olds)]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("name", MODULES)
def test_an_old_place_gives_the_module_of_the_new_one(name):
    new = importlib.import_module(f"jaxquat.{TABLES.moved[name]}")
    spec = new.__spec__
    with pytest.warns(
        DeprecationWarning, match=rf"^jaxquat\.{name} is now {new.__name__}$"
    ) as seen:
        old = importlib.import_module(f"jaxquat.{name}")
    assert len(seen) == 1
    assert old is new
    assert new.__spec__ is spec
    assert new.__name__ == f"jaxquat.{TABLES.moved[name]}"


@pytest.mark.parametrize("name", OF_THE_LAST_RELEASE)
def test_a_public_name_is_imported_from_the_old_place(name):
    public = OF_THE_LAST_RELEASE[name]
    with pytest.warns(DeprecationWarning, match=TABLES.moved[name]) as seen:
        exec(f"from jaxquat.{name} import {public} as found", namespace := {})
    assert namespace["found"] is getattr(getattr(jq, name), public)
    assert seen[0].filename == "<string>"  # the warning is at the line that imports


def test_a_module_in_a_folder_that_moved_is_not_loaded_twice():
    from jaxquat.fitting import descent

    with pytest.warns(
        DeprecationWarning, match=r"^jaxquat\.learning(\.descent)? is now jaxquat\.fit"
    ):
        assert importlib.import_module("jaxquat.learning.descent") is descent


def test_the_module_of_rollout_leaves_the_function_where_it_is():
    function = jq.rollout
    with pytest.warns(
        DeprecationWarning, match=r"jaxquat\.rollout is now jaxquat\.simulation\.rollout"
    ):
        from jaxquat.rollout import rollout
    assert rollout is function
    importlib.import_module("jaxquat.rollout")
    assert jq.rollout is function


@pytest.mark.parametrize("old", TABLES.renamed)
def test_a_name_that_moved_is_the_same_object(old):
    owner, _, name = old.rpartition(".")
    module = getattr(jq, owner) if owner else jq
    value = functools.reduce(getattr, TABLES.renamed[old].split("."), jq)
    text = rf"^jq\.{old} is now called jq\.{TABLES.renamed[old]}$"
    with pytest.warns(DeprecationWarning, match=text):
        assert getattr(module, name) is value
    assert name not in dir(module)


def test_a_module_that_is_gone_says_what_to_use(monkeypatch):
    monkeypatch.setitem(TABLES.deleted, "tea", "jq.coffee")
    with pytest.raises(ModuleNotFoundError, match=r"^jaxquat\.tea is gone; use jq\.coffee$"):
        importlib.import_module("jaxquat.tea")


def test_names_that_are_gone_say_what_to_use():
    for path, instead in TABLES.deleted.items():
        owner, _, name = path.rpartition(".")
        extra = {"plot": "matplotlib", "interop.diffrax": "diffrax"}.get(owner)
        if extra and importlib.util.find_spec(extra) is None:
            continue
        message = re.escape(f"has no attribute {name!r}; use {instead}")
        with pytest.raises(AttributeError, match=f"{message}$"):
            getattr(functools.reduce(getattr, owner.split("."), jq), name)


def test_other_modules_are_missing_as_ever():
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'jaxquat\.kite'$"):
        importlib.import_module("jaxquat.kite")


def test_rooms_of_the_house_are_not_shown():
    assert not {"_internal", "fitting", "sensors", "simulation", *TABLES.moved} & (
        set(dir(jq)) - set(OF_THE_LAST_RELEASE) - {"rollout"}
    )


@pytest.mark.slow
def test_the_command_of_the_last_release_still_checks_a_gpu():
    command = [sys.executable, "-W", "default", "-m", "jaxquat.fused"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "check_gpu: wanted a GPU, got cpu" in done.stderr
    assert "jaxquat.fused.__main__ is now jaxquat.simulation.engines.__main__" in done.stderr


def test_old_keywords_show_the_new_spelling():
    for owner, old in TABLES.old_keywords.items():
        function = functools.reduce(getattr, owner.split("."), jq)
        for keyword, new in old.items():
            with pytest.raises(TypeError, match=re.escape(f"{owner}: {keyword} is now {new}")):
                function(**{keyword: None})

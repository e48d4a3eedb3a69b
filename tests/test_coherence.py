"""The rules of docs/conventions.md for names and orders of arguments, in all public signatures."""

import importlib
import inspect
import re
import types

import jaxquat as jq

ORDER = ["key", "scheme", "body", "torque", "t", "start", "state", "dt", "grid", "params"]
"""Positional arguments that many functions have, in the order in which they stand."""
AFTER_STATE = ["state", "gains", "reference", "body"]
"""The order of arguments of a control law."""
OLD_WORDS = {
    "walk": "bias_random_walk",
    "lowest": "min",
    "highest": "max",
    "accel": "accelerometer",
    "unwind": "anti_windup_time",
    "course": "reference",
}


def public():
    """Every public function, class and method by its path; each object once."""
    found, seen = {}, set()

    def walk(module, path):
        for name in getattr(module, "__all__", ()):  # two modules of coefficients have none
            value = getattr(module, name)
            if isinstance(value, types.ModuleType):
                walk(value, f"{path}{name}.")
            elif id(value) not in seen:
                seen.add(id(value))
                found[f"{path}{name}"] = value

    walk(jq, "")
    for name in ("plot", "interop.diffrax", "export"):
        try:
            walk(importlib.import_module(f"jaxquat.{name}"), f"{name}.")
        except ImportError:
            continue
    return found


PUBLIC = public()


def signatures():
    for path, value in PUBLIC.items():
        if callable(value):
            try:
                yield path, inspect.signature(value).parameters
            except (ValueError, TypeError):
                continue


def positional(parameters):
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, p in parameters.items() if p.kind in kinds]


def test_common_arguments_stand_in_one_order():
    for path, parameters in signatures():
        if path.endswith("_law") or inspect.isclass(PUBLIC[path]):
            continue
        common = [name for name in positional(parameters) if name in ORDER]
        assert common == sorted(common, key=ORDER.index), path


def test_laws_take_state_gains_reference_and_body():
    for path, parameters in signatures():
        if path.endswith("_law"):
            names = [name for name in positional(parameters) if name in AFTER_STATE]
            assert names == sorted(names, key=AFTER_STATE.index), path
            assert positional(parameters)[0] == "state", path


def test_what_state_and_body_hold_is_no_argument_beside_them():
    for path, parameters in signatures():
        if not inspect.isclass(PUBLIC[path]):
            assert not ("body" in parameters and {"mass", "inertia"} & {*parameters}), path
            held = {"q", "omega", "position", "velocity"} & {*parameters}
            assert not ("state" in parameters and held), path


def test_controllers_name_their_arguments_alike():
    common = ["body", "period", "reference", "gains", "measure", "limits", "anti_windup_time"]
    assert list(inspect.signature(jq.control.pid).parameters) == common
    assert list(inspect.signature(jq.control.cascade).parameters) == [*common, "gravity"]


def test_factories_are_nouns_and_transformations_verbs_so_few_names_are_participles():
    """Torques and motions, which are neither, and a published scheme."""
    others = {"dynamics.coupled", "torques.commanded"}
    others |= {"schemes.full_quat_corrected"}
    functions = {path for path, value in PUBLIC.items() if inspect.isfunction(value)}
    assert {path for path in functions if path.endswith(("ed", "ing"))} <= others


def test_a_key_is_first_where_it_is_needed_and_a_keyword_where_it_is_not():
    for path, parameters in signatures():
        key = parameters.get("key")
        if key is None or inspect.isclass(PUBLIC[path]):
            continue
        if key.default is inspect.Parameter.empty:
            assert next(iter(parameters)) == "key", path
        else:
            assert key.kind is inspect.Parameter.KEYWORD_ONLY, path


def test_old_words_are_gone():
    for path, parameters in signatures():
        fields = getattr(PUBLIC[path], "_fields", ())
        for name in (*parameters, *fields):
            assert name not in OLD_WORDS, f"{path}: {name} should be {OLD_WORDS.get(name)}"


def test_functions_take_at_most_ten_arguments():
    for path, parameters in signatures():
        if not inspect.isclass(PUBLIC[path]):
            assert len(parameters) <= 10, path


def test_the_package_is_small():
    assert len(dir(jq)) <= 60
    assert len(PUBLIC) <= 290


def test_each_name_is_public_in_one_place():
    """The common schemes stand at the top and in jq.schemes, nothing else in two places."""
    places = {}

    def walk(module):
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if isinstance(value, types.ModuleType):
                walk(value)
            elif callable(value):
                places.setdefault(id(value), []).append(f"{module.__name__}.{name}")

    walk(jq)
    twice = [names for names in places.values() if len(names) > 1]
    for names in twice:
        assert all(re.search(r"^jaxquat\.(\w+|schemes\.\w+(\.\w+)?)$", x) for x in names), names
        assert any(x.startswith("jaxquat.schemes.") for x in names), names

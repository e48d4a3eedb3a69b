"""The rules of docs/conventions.md about names and arguments, on every public signature."""

import inspect

import jaxquat as jq


def signatures():
    """The arguments of every public function by its dotted name."""
    modules = {"": jq} | {x: getattr(jq, x) for x in jq.__all__ if inspect.ismodule(getattr(jq, x))}
    return {
        f"{owner}.{name}".lstrip("."): list(inspect.signature(value).parameters)
        for owner, module in modules.items()
        for name in module.__all__
        if inspect.isfunction(value := getattr(module, name))
    }


SIGNATURES = signatures()
ORDER = "scheme body torque t state|start dt|grid params command"
LAW = "state gains|gain reference|target|about body gravity"
LAWS = {name: arguments for name, arguments in SIGNATURES.items() if name.endswith("_law")}
PARTICIPLES = {
    "dynamics.coupled",
    "exact.coning",  # a motion
    "exact.prescribed",
    "schemes.damped",
    "schemes.restarted",
    "schemes.switched",
    "stochastic.coarsened",
    "torques.commanded",  # a torque, not a factory
}


def is_in_order(arguments, order):
    places = {name: k for k, names in enumerate(order.split()) for name in names.split("|")}
    ranks = [places[name] for name in arguments if name in places]
    return ranks == sorted(ranks)


def test_arguments_come_in_one_order():
    for name in SIGNATURES.keys() - LAWS.keys():
        assert is_in_order(SIGNATURES[name], ORDER), name


def test_a_law_takes_state_gains_what_to_reach_and_body():
    assert len(LAWS) == 6
    for name, arguments in LAWS.items():
        assert arguments[0] == "state", name
        assert set(arguments) <= set(LAW.replace("|", " ").split()), name
        assert is_in_order(arguments, LAW), name


def test_what_state_and_body_hold_is_no_argument_beside_them():
    for name, arguments in SIGNATURES.items():
        if "body" in arguments:
            assert not {"mass", "inertia"} & {*arguments}, name
        if "state" in arguments:
            assert not {"q", "omega", "position", "velocity"} & {*arguments}, name


def test_the_bounds_of_a_result_are_min_and_max():
    for name, arguments in SIGNATURES.items():
        assert not {"lowest", "highest", "lower", "upper", "maximum", "limit"} & {*arguments}, name


def test_controllers_name_their_arguments_alike():
    common = ["body", "period", "reference", "gains", "measure", "limits", "anti_windup_time"]
    assert SIGNATURES["control.pid"] == common
    assert SIGNATURES["control.cascade"] == [*common, "gravity"]


def test_factories_are_nouns_and_transformations_are_imperatives():
    """A participle is neither; the older names that are participles are listed."""
    assert {name for name in SIGNATURES if name.endswith(("ed", "ing"))} <= PARTICIPLES

"""The site without its builder: navigation, links and the reference are complete."""

import dataclasses
import importlib.util
import inspect
import re
import types

from commands import ROOT

import jaxquat as jq

DOCS = ROOT / "docs"
NO_PAGES = ("packaging", "paper")
"""Folders of docs/ that the site leaves out, as docs/mkdocs.yml says."""
PAGES = [
    page for page in sorted(DOCS.rglob("*.md")) if page.relative_to(DOCS).parts[0] not in NO_PAGES
]
NAVIGATION = re.findall(
    r"^ +- [^:\n]+: (\S+\.md)$", (DOCS / "mkdocs.yml").read_text().split("\nnav:\n")[1], re.M
)
REFERENCE = {
    name: page for page in PAGES for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M)
}


PUBLIC_MODULES = [name for name in jq.__all__ if isinstance(getattr(jq, name), types.ModuleType)]
EXTRAS = {
    "jaxquat.plot": "matplotlib",
    "jaxquat.interop.diffrax": "diffrax",
}
AT_HAND = [
    name for name in REFERENCE if name not in EXTRAS or importlib.util.find_spec(EXTRAS[name])
]


def anchors(page):
    """Those of the headings: words in small letters, joined by hyphens."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    words = [re.sub(r"[^\w\s-]", "", title.lower()).strip() for title in titles]
    return {re.sub(r"[\s-]+", "-", title) for title in words}


def shown(name):
    """The module of this name, or the object of this name in a module."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError:
        return importlib.import_module(name)


def test_every_page_is_in_the_navigation_once():
    assert sorted(NAVIGATION) == [str(page.relative_to(DOCS)) for page in PAGES]


def test_the_site_leaves_the_same_folders_out():
    left_out = (DOCS / "mkdocs.yml").read_text().split("exclude_docs: |\n")[1].split("\ntheme")[0]
    assert all(f"  {folder}/\n" in left_out for folder in NO_PAGES)


def links_of(page):
    """The links of a page to files and headings of the site."""
    text = re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S))
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link for link in links if not link.startswith("https://")]


def test_links_lead_somewhere():
    for page, link in ((x, link) for x in PAGES for link in links_of(x)):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.is_file(), f"{page.name}: {link}: no such file"
        assert target.is_relative_to(DOCS), f"{page.name}: {link}: outside the site"
        assert not anchor or anchor in anchors(target), f"{page.name}: {link}: no such heading"


def test_the_reference_names_what_there_is():
    for name in AT_HAND:
        shown(name)


def test_the_reference_has_every_public_name():
    """A module with all of it, a name of the package itself, or a scheme in the list of them."""
    listed = re.findall(r"`(\w+)`", (DOCS / "api" / "schemes.md").read_text())
    assert set(jq.schemes.SCHEMES) <= set(listed)
    for name in jq.__all__:
        value = getattr(jq, name)
        place = value.__name__ if isinstance(value, types.ModuleType) else f"jaxquat.{name}"
        assert place in REFERENCE or name in jq.schemes.SCHEMES, (
            f"{place} is in no page of the reference"
        )


def option(key, block):
    """The list that a directive gives for an option, or None."""
    line = re.search(rf"^ +{key}: \[(.*)\]$", block, re.M)
    return line and [name.strip(' "') for name in line[1].split(",")]


BLOCKS = {
    name: block
    for page in PAGES
    for name, block in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", page.read_text() + "\n", re.M)
}
MODULES = [
    name
    for name in AT_HAND
    if isinstance(shown(name), types.ModuleType) and hasattr(shown(name), "__all__")
]


def own_names(module):
    """The names that a module defines itself."""
    names = vars(module).items()
    return {key for key, value in names if getattr(value, "__module__", None) == module.__name__}


def shown_names(module, block):
    """The names that a directive shows."""
    members, filters = option("members", block), option("filters", block)
    names = set(module.__all__) if members is None else set(members)
    if filters is None:
        return names
    patterns = [pattern.lstrip("!") for pattern in filters]
    names |= own_names(module)
    return {key for key in names if not any(re.search(pattern, key) for pattern in patterns)}


def test_the_reference_shows_what_is_public():
    """Names of ``__all__``, on the page of their module or under a heading of their own."""
    for name in MODULES:
        module = shown(name)
        public = set(module.__all__)
        assert all(hasattr(module, key) for key in public), name
        assert {key for key in own_names(module) if not key.startswith("_")} <= public, name
        names = shown_names(module, BLOCKS[name])
        assert names <= public, name
        modules = {key for key in public if isinstance(getattr(module, key), types.ModuleType)}
        missing = public - modules - names
        assert all(f"jaxquat.{key}" in REFERENCE for key in missing), missing


def test_a_module_says_what_is_public():
    for module in PUBLIC_MODULES:
        names = getattr(jq, module).__all__
        assert len(set(names)) == len(names), module
    for name in names:
        assert not name.startswith("_")
        assert hasattr(getattr(jq, module), name)


RECORDS = [
    jq.State,
    jq.Wrench,
    jq.dynamics.Rates,
    jq.dynamics.Appendages,
    jq.Path,
    jq.Grid,
    jq.GridAt,
    jq.Controller,
    jq.ensembles.Ensemble,
    jq.Fit,
    jq.FitCovariance,
    jq.FitOptions,
    jq.LeastSquares,
    jq.LeastSquaresOptions,
    jq.Prediction,
    jq.RolloutOptions,
    jq.control.Gains,
    jq.control.PIDGains,
    jq.control.Reference,
    jq.control.ReferenceTrajectory,
    jq.control.CascadeGains,
    jq.control.CascadeLimits,
    jq.control.FlightGains,
    jq.control.Lift,
    jq.control.Margins,
    jq.control.pointing.Errors,
    jq.planning.Constraints,
    jq.planning.MpcMemory,
    jq.planning.Plan,
    jq.planning.Residuals,
    jq.planning.Sampling,
    jq.planning.Solver,
    jq.rotors.Rotors,
    jq.gyro.Gyro,
    jq.accelerometer.Accelerometer,
    jq.magnetometer.Magnetometer,
    jq.allan.Noise,
    jq.kinematics.Attitudes,
    jq.kinematics.Imu,
    jq.kinematics.Preintegrated,
    jq.estimation.Estimate,
    jq.estimation.Filter,
    jq.estimation.ImuSample,
    jq.estimation.Interval,
    jq.estimation.MekfSettings,
    jq.estimation.VectorSample,
    jq.estimation.AhrsSettings,
    jq.recordings.Recording,
    jq.recordings.Windows,
    jq.ensembles.Mean,
    jq.ensembles.Extremes,
    jq.ensembles.Reducer,
    jq.stochastic.Disturbance,
    jq.schemes.Episode,
    jq.schemes.Scheme,
    jq.schemes.Tableau,
]


def fields_of(kind):
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return list(kind._fields)


def test_fields_are_documented_in_their_order():
    for kind in RECORDS:
        section = inspect.getdoc(kind).split("Attributes:\n")[1].split("\n\n")[0]
        assert re.findall(r"^    (\w+): ", section, re.M) == fields_of(kind), kind


def is_record(value):
    return isinstance(value, type) and (
        hasattr(value, "_fields") or dataclasses.is_dataclass(value)
    )


def test_every_record_is_among_them():
    modules = [jq, *map(shown, MODULES)]
    public = [getattr(module, name) for module in modules for name in module.__all__]
    ours = {x for x in public if is_record(x) and "interop" not in x.__module__} - {jq.Body}
    assert ours <= set(RECORDS)


def test_what_is_public_has_a_docstring():
    """Without one its page leaves it out and says nothing."""
    for name in AT_HAND:
        module = shown(name)
        if not isinstance(module, types.ModuleType):
            continue
        names = [key for key in vars(module) if not key.startswith("_")]
        for key in getattr(module, "__all__", names):
            value = getattr(module, key)
            if getattr(value, "__module__", "").startswith("jaxquat") and callable(value):
                assert value.__doc__, f"{name}.{key} has no docstring"

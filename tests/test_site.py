"""The site without its builder: navigation, links and the reference are complete."""

import dataclasses
import importlib.util
import inspect
import re
import types
from pathlib import Path

import pytest

import jaxquat as jq

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NAVIGATION = re.findall(
    r"^ +- [^:\n]+: (\S+\.md)$", (DOCS / "mkdocs.yml").read_text().split("\nnav:\n")[1], re.M
)
REFERENCE = {
    name: page for page in PAGES for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M)
}


EXTRAS = {"jaxquat.plot": "matplotlib", "jaxquat.interop.diffrax": "diffrax"}
AT_HAND = [
    name for name in REFERENCE if name not in EXTRAS or importlib.util.find_spec(EXTRAS[name])
]


def anchors(page):
    """Those of the headings: words in small letters, joined by hyphens."""
    titles = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M
    )
    return {
        re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles
    }


def shown(name):
    """The module, or what is in one."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except AttributeError:
        return importlib.import_module(name)


def test_every_page_is_in_the_navigation_once():
    assert sorted(NAVIGATION) == [str(page.relative_to(DOCS)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page):
    text = re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith("https://"):
            file, _, anchor = link.partition("#")
            target = (page.parent / file).resolve() if file else page
            assert target.is_file(), f"{link}: no such file"
            assert target.is_relative_to(DOCS), f"{link}: outside the site"
            assert not anchor or anchor in anchors(target), f"{link}: no such heading"


@pytest.mark.parametrize("name", AT_HAND)
def test_the_reference_names_what_there_is(name):
    shown(name)


def test_the_reference_has_every_public_name():
    """A module with all of it, a name of the package itself, or a scheme in the list of them."""
    listed = re.findall(r"`(\w+)`", (DOCS / "api" / "schemes.md").read_text())
    assert set(jq.SCHEMES) <= set(listed)
    for name in jq.__all__:
        value = getattr(jq, name)
        place = value.__name__ if isinstance(value, types.ModuleType) else f"jaxquat.{name}"
        assert place in REFERENCE or name in jq.SCHEMES, f"{place} is in no page of the reference"


def named(key, block):
    """The list of an option, or None."""
    found = re.search(rf"^ +{key}: \[(.*)\]$", block, re.M)
    return found and [name.strip(' "') for name in found[1].split(",")]


BLOCKS = {
    name: block
    for page in PAGES
    for name, block in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", page.read_text() + "\n", re.M)
}
LISTED = [
    name
    for name in AT_HAND
    if isinstance(shown(name), types.ModuleType) and hasattr(shown(name), "__all__")
]


@pytest.mark.parametrize("name", LISTED)
def test_the_reference_shows_what_is_public(name):
    """Names of ``__all__``, on the page of their room or with a heading of their own; and nothing else."""
    room, filters, members = (
        shown(name),
        named("filters", BLOCKS[name]),
        named("members", BLOCKS[name]),
    )
    assert all(hasattr(room, key) for key in room.__all__)
    own = {
        key
        for key, value in vars(room).items()
        if getattr(value, "__module__", None) == room.__name__
    }
    assert {key for key in own if not key.startswith("_")} - set(room.__all__) <= INTERNAL.get(
        name, set()
    )
    listed = set(room.__all__) if members is None else set(members)
    if filters is not None:
        listed = {
            key
            for key in own | listed
            if not any(re.search(pattern.lstrip("!"), key) for pattern in filters)
        }
    assert listed <= set(room.__all__)
    missing = {
        key for key in room.__all__ if not isinstance(getattr(room, key), types.ModuleType)
    } - listed
    assert all(f"jaxquat.{key}" in REFERENCE for key in missing), missing


INTERNAL: dict[str, set[str]] = {}
"""What other rooms use and users need not know."""
ROOMS = [name for name in jq.__all__ if isinstance(getattr(jq, name), types.ModuleType)]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_is_public(room):
    module = getattr(jq, room)
    assert len(set(module.__all__)) == len(module.__all__)
    assert not [
        name for name in module.__all__ if name.startswith("_") or not hasattr(module, name)
    ]


FIELDS = [jq.State, jq.Path, jq.Grid, jq.Controller, jq.Ensemble, jq.Fit, jq.FitCovariance, jq.control.Gains, jq.control.PIDGains,
          jq.control.Reference, jq.gyro.Gyro, jq.recordings.Recording, jq.ensembles.Mean, jq.ensembles.Covariance,
          jq.ensembles.Extremes, jq.ensembles.Reducer, jq.schemes.Scheme, jq.schemes.Tableau]  # fmt: skip


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_fields_are_documented_in_their_order(kind):
    section = inspect.getdoc(kind).split("Attributes:\n")[1].split("\n\n")[0]
    assert re.findall(r"^    (\w+): ", section, re.M) == list(kind.__annotations__)


def test_every_record_is_among_them():
    rooms = [jq, *map(shown, LISTED)]
    public = [getattr(room, name) for room in rooms for name in room.__all__]
    records = [
        kind
        for kind in public
        if isinstance(kind, type) and (hasattr(kind, "_fields") or dataclasses.is_dataclass(kind))
    ]
    ours = {kind for kind in records if "interop" not in kind.__module__} - {jq.Body}
    assert ours <= set(FIELDS)


def test_what_is_public_has_a_docstring():
    """Otherwise its page leaves it out without a word."""
    for name in AT_HAND:
        module = shown(name)
        if not isinstance(module, types.ModuleType):
            continue
        public = getattr(
            module, "__all__", [key for key in vars(module) if not key.startswith("_")]
        )
        for key in public:
            value = getattr(module, key)
            if getattr(value, "__module__", "").startswith("jaxquat") and callable(value):
                assert value.__doc__, f"{name}.{key} has no docstring"

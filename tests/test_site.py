"""The site without its builder: navigation, links and the reference are complete."""

import importlib
import re
import types
from pathlib import Path

import pytest

import jaxquat as jq

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NAVIGATION = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", (DOCS / "mkdocs.yml").read_text().split("\nnav:\n")[1], re.M)
REFERENCE = {name: page for page in PAGES for name in re.findall(r"^::: (\S+)$", page.read_text(), re.M)}


def anchors(page):
    """Those of the headings: words in small letters, joined by hyphens."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


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


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_names_what_there_is(name):
    shown(name)


def test_the_reference_has_every_public_name():
    """A module with all of it, a name of the package itself, or a scheme in the list of them."""
    listed = re.findall(r"`(\w+)`", (DOCS / "api" / "schemes.md").read_text())
    assert set(jq.SCHEMES) <= set(listed)
    for name in jq.__all__:
        assert f"jaxquat.{name}" in REFERENCE or name in jq.SCHEMES, f"jaxquat.{name} is in no page of the reference"


def test_what_is_public_has_a_docstring():
    """Otherwise its page leaves it out without a word."""
    for name in REFERENCE:
        module = shown(name)
        if not isinstance(module, types.ModuleType):
            continue
        public = getattr(module, "__all__", [key for key in vars(module) if not key.startswith("_")])
        for key in public:
            value = getattr(module, key)
            if getattr(value, "__module__", "").startswith("jaxquat") and callable(value):
                assert value.__doc__, f"{name}.{key} has no docstring"

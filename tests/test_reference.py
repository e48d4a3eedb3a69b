"""Every function, class, method and property of the reference has an example, and it runs.

They run as a user has them: float32, in the order of the lines, with ``jax``, ``jnp``, ``np`` and
``jq`` at hand, and after the examples of the module and of the class, which may prepare names.
"""

import doctest
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_docs import as_a_user_has_it
from test_site import AT_HAND, shown

import jaxquat as jq
from jaxquat._internal.renamed import tables

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def public_members(kind):
    """The public methods and properties of a class, but not the two by which JAX takes it apart."""
    for name, value in vars(kind).items():
        is_public = not name.startswith(("_", "tree_"))
        if is_public and (isinstance(value, property) or inspect.isroutine(getattr(kind, name))):
            yield name


def documented():
    """What is documented by the name under which a reader finds it."""
    found = {}
    for name in AT_HAND:
        value = shown(name)
        members = [name]
        if inspect.ismodule(value):
            members = [f"{name}.{member}" for member in getattr(value, "__all__", [])]
        for member in members:
            value = shown(member)
            if inspect.isfunction(value) or inspect.isclass(value):
                found.setdefault(value, member)
    named = {name: value for value, name in found.items()}
    for kind, name in found.items():
        if inspect.isclass(kind):
            # without fields under old names
            old = tables().renamed_arguments.get(name.removeprefix("jaxquat."), {})
            members = [key for key in public_members(kind) if key not in old]
            named |= {f"{name}.{key}": getattr(kind, key) for key in members}
    return named


DOCUMENTED = documented()


def examples(name, names=None):
    docstring = inspect.getdoc(DOCUMENTED[name] if name in DOCUMENTED else shown(name)) or ""
    return doctest.DocTestParser().get_doctest(docstring, names or {}, name, None, None)


def prepared(name):
    """The names that the examples of the module and of the class have made."""
    names = {"jax": jax, "jnp": jnp, "np": np, "jq": jq}
    for parent in (name[:k] for k, letter in enumerate(name) if letter == "."):
        if parent in AT_HAND or parent in DOCUMENTED:
            for example in examples(parent).examples:
                exec(example.source, names)
    return names


def test_every_public_name_has_an_example():
    assert not [name for name in DOCUMENTED if not examples(name).examples]


def is_long(name):
    return name.startswith("jaxquat.interop.")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.weekly] * is_long(x)) for x in DOCUMENTED]
)
def test_the_example_prints_what_it_says(name):
    said = []
    with as_a_user_has_it():
        example = examples(name, prepared(name))
        doctest.DocTestRunner(optionflags=FLAGS).run(example, out=said.append)
    assert not said, "".join(said)

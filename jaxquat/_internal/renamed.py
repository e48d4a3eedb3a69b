"""Answer names that are not there, by the tables of ``renamed.toml``, which ``migrate`` uses, too.

Guesses of newcomers, deleted names, old keywords and old orders raise an error with the new
spelling; renamed names, modules and arguments work for one release, with a DeprecationWarning.
``dir`` and type checkers see only new names.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
Record = TypeVar("Record", bound=type)

_PUBLIC: dict[str, list[str]] = {}  # by module, for the names that users seek in another one


class Tables(NamedTuple):
    """The tables of ``renamed.toml``, with an entry for each name."""

    instead: dict[str, dict[str, str]]
    renamed: dict[str, str]
    moved: dict[str, str]
    deleted: dict[str, str]
    old_keywords: dict[str, dict[str, str]]
    renamed_arguments: dict[str, dict[str, str]]
    old_orders: dict[str, dict[str, str]]


@functools.cache
def tables() -> Tables:
    """Read the tables, when a name is first missing."""
    import tomllib  # here, because most programs need no table

    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return Tables(**_by_name(tomllib.loads(text)))


def _by_name(table: Mapping[str, Any]) -> dict[str, Any]:
    """Give each name of a key such as "q omega" an entry of its own."""
    return {
        name: _by_name(new) if isinstance(new, dict) else new.replace("{}", name)
        for names, new in table.items()
        for name in names.split() or [""]
    }


def refuses_old_keywords(owner: str) -> Callable[[F], F]:
    """Let a function answer old keywords, and calls in its old order, with the new spelling."""

    def decorator(f: F) -> F:
        signature = inspect.signature(f)

        @functools.wraps(f)
        def called(*args: Any, **kwargs: Any) -> Any:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                new = tables().old_keywords[owner]
                old = [f"{name} is now {new[name]}" for name in kwargs if name in new]
                if old or owner in tables().old_orders:
                    problem = "; ".join(old) or f"{error}{order_of(owner)}"
                    raise TypeError(f"{owner}: {problem}") from None
            return f(*args, **kwargs)

        return cast(F, called)

    return decorator


def order_of(owner: str) -> str:
    """Return the end of an error message about positional arguments in their old order."""
    names = [name.partition("=")[0] for name in tables().old_orders[owner]["new"].split()]
    return f"; the order is jq.{owner}({', '.join(names)})"


def takes_old_names(owner: str) -> Callable[[F], F]:
    """Let a function take its arguments by their old names, with a DeprecationWarning."""

    def decorator(f: F) -> F:
        known = inspect.signature(f).parameters.keys()

        @functools.wraps(f)
        def called(*args: Any, **kwargs: Any) -> Any:
            return f(*args, **_in_new_names(owner, known, kwargs))

        return cast(F, called)

    return decorator


def has_old_fields(owner: str) -> Callable[[Record], Record]:
    """Let a NamedTuple or dataclass have its old fields, too, with a DeprecationWarning."""

    def decorator(record: Record) -> Record:
        name = "__new__" if issubclass(record, tuple) else "__init__"

        def read(self: Any, old: str) -> Any:  # only of names that are not there: dir has the new
            if old.startswith("_") or old not in tables().renamed_arguments[owner]:
                _raise(record.__name__, old)
            return getattr(self, *_in_new_names(owner, set(), {old: None}))

        setattr(record, name, takes_old_names(owner)(getattr(record, name)))
        record.__getattr__ = read  # type: ignore[attr-defined]
        return record

    return decorator


def _in_new_names(owner: str, known: Set[str], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments, of which those not ``known`` may be old, by their new names."""
    if kwargs.keys() <= known:
        return kwargs
    names = tables().renamed_arguments[owner]
    for old in names.keys() & kwargs.keys():
        text = f"{owner.rpartition('.')[2]}: {old} is now called {names[old]}"
        warnings.warn(text, DeprecationWarning, stacklevel=3)
        if names[old] in kwargs:
            raise TypeError(f"{text}, got both")
    return {names.get(name, name): value for name, value in kwargs.items()}


def found(owner: str, names: Iterable[str], name: str, stacklevel: int = 2) -> Any:
    """Return a renamed object with a DeprecationWarning; otherwise the name is ``missing``."""
    if name.startswith("_"):  # Python looks up many of these
        _raise(owner, name)
    new = tables().renamed.get(f"{owner}.{name}".lstrip("."))
    if new is None:
        missing(owner, name, names)
    text = f"{_place(owner)}.{name} is now called jq.{new}"
    warnings.warn(text, DeprecationWarning, stacklevel=stacklevel)
    return functools.reduce(getattr, new.split("."), sys.modules["jaxquat"])


def missing(owner: str, name: str, names: Iterable[str] = ()) -> NoReturn:
    """Raise the AttributeError for an unknown name, with the same or a similar one elsewhere."""
    known = tables().instead.get(owner, {})
    instead = known.get(name, known.get(name.lower(), tables().deleted.get(f"{owner}.{name}")))
    if instead is None:
        near = [f"{_place(owner)}.{x}" for x in difflib.get_close_matches(name, names, 1, 0.7)]
        public = {"": sys.modules["jaxquat"].__all__, **_PUBLIC}
        elsewhere = [f"{_place(x)}.{name}" for x, known in public.items() if name in known]
        instead = " or ".join(elsewhere or near) or None
    _raise(owner, name, instead)


def _missing_of(instance: Any, owner: str, name: str) -> NoReturn:
    """Call ``missing`` for an instance, whose own names it proposes."""
    if name.startswith("_"):  # Python and JAX look up many of these; dir itself uses __dict__
        _raise(owner, name)
    if owner == "Recording" and name in vars(instance).get("channels", ()):
        _raise(owner, name, f'recording["{name}"]')
    names = {known for known in dir(instance) if not known.startswith("_")}
    missing(owner, name, sorted(names - {name}))  # name exists if a property raised AttributeError


def _raise(owner: str, name: str, instead: str | None = None) -> NoReturn:
    described = f"{owner!r} object"
    if not owner[:1].isupper():
        described = f"module {f'jaxquat.{owner}'.rstrip('.')!r}"
    message = f"{described} has no attribute {name!r}"
    if instead is None:
        raise AttributeError(message)
    raise AttributeError(f"{message}; use {instead}", name=name)  # so Python adds no own proposal


def answer(owners: Mapping[str, Any]) -> None:
    """Make ``missing`` handle unknown names of these modules and classes."""
    for owner, value in owners.items():
        # Set from outside: a __getattr__ in the source would tell type checkers that any name
        # exists. It is called only for names that are not found.
        if isinstance(value, ModuleType):
            _PUBLIC[owner] = value.__all__
            value.__getattr__ = functools.partial(found, owner, value.__all__)
            value.__dir__ = functools.partial(sorted, value.__all__)
        else:
            value.__getattr__ = functools.partialmethod(_missing_of, owner)


class _OldPlaces(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec of a module that moved; None leaves the others to other finders."""
        package, _, old = fullname.partition(".")
        if package != "jaxquat":
            return None
        if instead := tables().deleted.get(old):
            # with its name, ``from package import module`` would replace the error by another
            raise ModuleNotFoundError(f"{fullname} is gone; use {instead}")
        for name, place in tables().moved.items():
            if f"{old}.".startswith(f"{name}."):
                new = f"jaxquat.{place}{old.removeprefix(name)}"
                # Python does not count the import's own frames
                warnings.warn(f"{fullname} is now {new}", DeprecationWarning, stacklevel=2)
                return importlib.machinery.ModuleSpec(fullname, _SameModule(new))
        return None


class _SameModule(importlib.abc.Loader):
    """Load a module under its old name: the same object as under the new one."""

    def __init__(self, place: str) -> None:
        self.place = place

    def create_module(self, spec: Any) -> ModuleType:
        module = importlib.import_module(self.place)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back, which Python has replaced by that of the old name."""
        module.__spec__ = self.spec

    def get_code(self, fullname: str) -> Any:
        spec: Any = importlib.util.find_spec(self.place)
        return spec.loader.get_code(self.place)


class _OldRollout(ModuleType):
    """The old module of ``rollout``, in place already so that it does not replace the function."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks these up in every module
            raise AttributeError(name)
        new = f"jaxquat.{tables().moved['rollout']}"
        warnings.warn(f"{self.__name__} is now {new}", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(new), name)


def find_old_places() -> None:
    """Let ``import`` find the modules of the last release."""
    # before the finder of paths, which would load a part of a package a second time
    sys.meta_path.insert(0, _OldPlaces())
    sys.modules.setdefault("jaxquat.rollout", _OldRollout("jaxquat.rollout"))


def _place(owner: str) -> str:
    """Return the text that users write before the dot of a name of this owner."""
    if owner[:1].isupper():
        return {"GridAt": "grid"}.get(owner, owner.lower())
    return f"jq.{owner}" if owner else "jq"

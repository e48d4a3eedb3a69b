"""Keywords that a function no longer has: an error says what to write instead."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def refusing(advice: Mapping[str, str]) -> Callable[[F], F]:
    """Let a function raise a TypeError for old keywords.

    ``advice`` has the new spelling for each old keyword.
    """

    def decorator(f: F) -> F:
        @functools.wraps(f)
        def called(*args: Any, **kwargs: Any) -> Any:
            old = [name for name in kwargs if name in advice]
            if old:
                text = "; ".join(f"{name}: write {advice[name]}" for name in old)
                raise TypeError(f"{f.__name__}: it no longer takes {text}")
            return f(*args, **kwargs)

        return cast(F, called)

    return decorator


def fields(record: Any, argument: str = "options") -> dict[str, str]:
    """Return the advice for keywords that are now fields of a record, a NamedTuple."""
    return {name: f"{argument}=jq.{record.__name__}({name}=...)" for name in record._fields}

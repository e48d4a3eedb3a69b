"""Bridges to other libraries, imported when asked for; each needs the extra of its name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jaxquat._internal.renamed import missing

if TYPE_CHECKING:
    from jaxquat.interop import diffrax

__all__ = ["diffrax"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"jaxquat.interop.{name}")
    return missing("interop", name, __all__)


def __dir__() -> list[str]:
    return __all__

"""Bridges to other libraries; each needs the extra of the same name.

``import jaxquat`` imports none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxquat.interop import diffrax, gymnax

__all__ = ["diffrax", "gymnax"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"jaxquat.interop.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

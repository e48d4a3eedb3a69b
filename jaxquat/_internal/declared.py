"""Records whose fields' demands are declared in one table.

For instance, of a record ``sensors.Array`` with n gains and an axis for each::

    _FIELDS = {
        "axes": Field([("n", 3)], unit_vector),
        "gains": Field([("n",), ()], finite, positive),
    }
    array = checked_record("array", array, Array, _FIELDS)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax.numpy as jnp
from jax import Array

from jaxquat._internal.checks import floating, instance

Record = TypeVar("Record", bound=tuple)
Shape = tuple[int | str, ...]


class Field:
    """The shapes of a field, whose letters are lengths, and its checks of (name, array)."""

    def __init__(self, shapes: Sequence[Shape], *checks: Callable[[str, Array], None]) -> None:
        self.shapes = shapes
        self.checks = checks


def checked_record(
    name: str, record: Any, kind: type[Record], fields: Mapping[str, Field], wanted: str = ""
) -> Record:
    """Return the record of class ``kind`` with checked arrays; errors name "name.field"."""
    instance(name, record, kind, wanted or f"a jq.{kind.__module__.split('.')[-1]}.{kind.__name__}")
    lengths: dict[str, int] = {}
    values = []
    for key, field in fields.items():
        place, value = f"{name}.{key}", getattr(record, key)
        if getattr(value, "weak_type", False) and jnp.issubdtype(value.dtype, jnp.integer):
            value = value.astype(float)  # a Python int that was passed through jax.jit
        array = floating(place, value)
        shapes = [tuple(lengths.get(str(n), n) for n in shape) for shape in field.shapes]
        fits = [shape for shape in shapes if _fits(array.shape, shape)]
        if not fits:
            text = " or ".join(str(shape).replace("'", "") for shape in shapes)
            raise ValueError(f"{place}: wanted shape {text}, got {array.shape}")
        pairs = zip(fits[0], array.shape, strict=True)
        lengths |= {letter: n for letter, n in pairs if isinstance(letter, str)}
        for check in field.checks:
            check(place, array)
        values.append(array)
    return kind(*values)


def _fits(shape: tuple[int, ...], wanted: Shape) -> bool:
    pairs = zip(shape, wanted, strict=False)
    return len(shape) == len(wanted) and all(n == m if isinstance(m, int) else n for n, m in pairs)

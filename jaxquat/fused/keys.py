"""The names of the arrays of a loop and of its derivatives.

Let F be the recurrence of a loop, x its operands, and b a cotangent of F(x). The roles of a ``Key``
are ``primal`` (one of x), ``result`` (of F(x)), ``residual`` (carried, kept for the backward pass),
``cotangent`` (of b) and ``gradient`` (of b F'(x)). The tangent G of F is (x, dx) -> (F(x), F'(x)
dx), so each array of G is an array of F or its tangent (``primal_key``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat.fused.kernel import CARRY, OPERANDS, POINT, RESULTS, START
from jaxquat.fused.recurrence import Live, Place, Recurrence


class Key(NamedTuple):
    """The name of an array."""

    role: str
    group: str
    number: int
    is_tangent: bool = False

    @property
    def place(self) -> Place:
        """The group and the number within it."""
        return self.group, self.number

    @property
    def tangent(self) -> Key:
        """The key of the tangent of this array."""
        return self._replace(is_tangent=True)

    @property
    def primal(self) -> Key:
        """The key of the array of which this is the tangent."""
        return self._replace(is_tangent=False)

    def at(self, role: str) -> Key:
        """Return the key of the array at the same place in another role."""
        return self._replace(role=role)


class Operand(NamedTuple):
    """An array, and whether it has an axis of members."""

    array: Any
    batched: bool


Operands = dict[Key, Operand]


def leaves(f: Recurrence, role: str, groups: Sequence[str]) -> list[Key]:
    """Return all leaves of some groups."""
    return [Key(role, *place) for place in f.places(groups)]


def floats(f: Recurrence, role: str, groups: Sequence[str]) -> list[Key]:
    """Return the floats of some groups."""
    return [Key(role, group, i) for group in groups for i in f.smooth(group)]


def _keys(f: Recurrence, places: Sequence[tuple[str, str]]) -> list[Key]:
    return [key for role, group in places for key in leaves(f, role, (group,))]


def primals(f: Recurrence) -> list[Key]:
    """Return the operands of F."""
    return _keys(f, OPERANDS["forward"])


def results(f: Recurrence, keep: bool) -> list[Key]:
    """Return the results of F; with ``keep``, the residuals too."""
    return _keys(f, RESULTS["keeping" if keep else "forward"])


def point(f: Recurrence) -> list[Key]:
    """Return the arrays that replace x where F is differentiated in reverse mode."""
    return _keys(f, POINT)


def cotangents(f: Recurrence, live: Live) -> list[Key]:
    """Return the cotangents of F(x) of all carried floats and of ``live`` saved ones."""
    saved = [Key("cotangent", *place) for place in live if place[0] == "saved"]
    return saved + floats(f, "cotangent", CARRY)


def gradients(f: Recurrence) -> list[Key]:
    """Return the cotangents of x."""
    return floats(f, "gradient", START)


def primal_key(g: Recurrence, key: Key) -> Key:
    """Return the key in terms of F of an array of its tangent G.

    In each group of G the leaves of F come first, then their tangents. With the cotangents db of
    F(x) and b of F'(x) dx, the gradients are db F'(x) + b F''(x) dx with respect to x, the tangent
    of that with respect to dx, b F'(x). So among cotangents and gradients those of the leaves of F
    are the tangents. For example, let the state of F be one float q, that of G (q, dq)::

        Key("primal", "state", 1)     ->  Key("primal", "state", 0, is_tangent=True)
        Key("cotangent", "state", 1)  ->  Key("cotangent", "state", 0, is_tangent=False)
    """
    assert g.primal is not None
    assert g.tangents is not None
    is_bar, first = key.role in ("cotangent", "gradient"), len(g.primal.specs[key.group])
    if key.number < first:
        return key._replace(is_tangent=is_bar)
    number = g.tangents.numbers[key.group][key.number - first]
    return Key(key.role, key.group, number, not is_bar)


def of_primal(g: Recurrence, arrays: dict[Key, Any]) -> dict[Key, Any]:
    """Return the same arrays of G under their keys in terms of F."""
    return {primal_key(g, key): x for key, x in arrays.items()}


def of_tangent(g: Recurrence, keys: Collection[Key], arrays: dict[Key, Any]) -> dict[Key, Any]:
    """Return the arrays ``keys`` of G, from arrays that have keys in terms of F."""
    return {key: arrays[primal_key(g, key)] for key in keys}


def live_of_tangent(f: Recurrence, live: Live, moved: Live = ()) -> Live:
    """Return the results of the tangent of F with cotangents; those of ``moved`` have tangents."""
    tangents = ((group, len(f.specs[group]) + f.smooth(group).index(i)) for group, i in live)
    return (*moved, *tangents)


def live_of_primal(g: Recurrence, live: Live) -> Live | None:
    """Invert ``live_of_tangent``; None if a tangent belongs to a cotangent that F does not have."""
    keys = [primal_key(g, Key("cotangent", *place)) for place in live]
    moved = {key.place for key in keys if key.is_tangent}
    of_f = tuple(key.place for key in keys if not key.is_tangent)
    return of_f if moved <= set(of_f) else None


def shape_of(f: Recurrence, key: Key, members: int | None = None) -> jax.ShapeDtypeStruct:
    """Return shape and dtype of an array: axes of members and rows, if any, then its elements."""
    leaf, rows = f.specs[key.group][key.number], f.layout.leading(key.role, key.group)
    first = () if members is None else (members,)
    return jax.ShapeDtypeStruct((*first, *rows, leaf.size), leaf.dtype)


def zeros(f: Recurrence, key: Key, members: int | None = None) -> Array:
    """Return an array of zeros."""
    spec = shape_of(f, key, members)
    return jnp.zeros(spec.shape, spec.dtype)


def primals_at(f: Recurrence, arrays: Operands) -> Operands:
    """Return the operands of F from its ``point``: the first residual is the start."""
    fixed = {key: arrays[key] for key in leaves(f, "primal", START[:2])}
    kept = {key: arrays[key.at("residual")] for key in leaves(f, "primal", START[2:])}
    return fixed | {key: Operand(x.array[..., 0, :], x.batched) for key, x in kept.items()}

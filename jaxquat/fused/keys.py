"""The names of the arrays of a rollout and of its derivatives.

Let F be the recurrence of a rollout, x its operands, and b a cotangent of F(x). An array is named
by a ``Key``: its role, its group, its number within the group, and whether it is a tangent.

=============  ==============================================================
role           the array
=============  ==============================================================
``primal``     one of x
``result``     one of F(x)
``residual``   states along the way, kept for the backward pass
``cotangent``  one of b
``gradient``   one of b F'(x)
=============  ==============================================================

The tangent G of F is the function (x, dx) -> (F(x), F'(x) dx). Its arrays are the arrays of F and
their tangents: ``below`` converts the key of an array of G to a key in terms of F.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat.fused.recurrence import CARRY, ENDS, Live, Place, Recurrence

START = ("constants", "inputs", "state", "memory")


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
        """The key of the array at the same place in another role."""
        return self._replace(role=role)


Arrays = dict[Key, Any]
Flags = dict[Key, bool]  # whether an array has an axis of bodies


def leaves(f: Recurrence, role: str, groups: Sequence[str]) -> list[Key]:
    """All leaves of some groups."""
    return [Key(role, *place) for place in f.places(groups)]


def floats(f: Recurrence, role: str, groups: Sequence[str]) -> list[Key]:
    """The floats of some groups."""
    return [Key(role, group, i) for group in groups for i in f.smooth(group)]


def primals(f: Recurrence) -> list[Key]:
    """The operands of F."""
    return leaves(f, "primal", START)


def results(f: Recurrence, keep: bool) -> list[Key]:
    """The results of F; with ``keep``, the residuals too."""
    return leaves(f, "result", ENDS) + (leaves(f, "residual", CARRY) if keep else [])


def point(f: Recurrence) -> list[Key]:
    """The arrays that replace x where F is differentiated in reverse mode."""
    carried = leaves(f, "residual", CARRY) + leaves(f, "result", CARRY)
    return leaves(f, "primal", START[:2]) + carried


def cotangents(f: Recurrence, live: Live) -> list[Key]:
    """The cotangents of F(x); among the saved leaves, only those in ``live``.

    The kernel reads cotangents of all carried floats; they are zeros where they are not live.
    """
    saved = [Key("cotangent", *place) for place in live if place[0] == "saved"]
    return saved + floats(f, "cotangent", CARRY)


def gradients(f: Recurrence) -> list[Key]:
    """The cotangents of x."""
    return floats(f, "gradient", START)


def below(g: Recurrence, key: Key) -> Key:
    """The key in terms of F of an array of its tangent G.

    The cotangent of F'(x) dx is b, and the gradient with respect to dx is b F'(x), so these are
    primals. The cotangent of F(x) and the gradient with respect to x are their tangents.
    """
    role, group, i, _ = key
    assert g.primal is not None
    assert g.tangents is not None
    first = len(g.primal.specs[group])
    is_tangent = (i >= first) != (role in ("cotangent", "gradient"))
    number = g.tangents.numbers[group][i - first] if i >= first else i
    return Key(role, group, number, is_tangent)


def live_of(f: Recurrence, live: Live, moved: Live = ()) -> Live:
    """The results of the tangent of F with cotangents, if ``live`` are the results of F with some.

    ``moved`` are the results among ``live`` whose cotangents have tangents.
    """
    of_tangent = lambda group, i: len(f.specs[group]) + f.smooth(group).index(i)  # noqa: E731
    return (*moved, *((group, of_tangent(group, i)) for group, i in live))


def live_below(g: Recurrence, live: Live) -> Live | None:
    """The inverse of ``live_of``: the results of F with cotangents, from those of its tangent G.

    None if a tangent belongs to a cotangent that F does not have.
    """
    keys = [below(g, Key("cotangent", *place)) for place in live]
    moved = [key.place for key in keys if key.is_tangent]
    of_f = tuple(key.place for key in keys if not key.is_tangent)
    return of_f if set(moved) <= set(of_f) else None


def shape_of(f: Recurrence, key: Key, bodies: int | None = None) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an array: axes of bodies and rows, if it has them, then its elements."""
    layout = f.layout
    leaf = getattr(layout, key.group)[key.number]
    rows = {"inputs": (layout.samples,), "saved": (layout.rows + 1,)}.get(key.group, ())
    rows = (layout.segments,) if key.role == "residual" else rows
    first = () if bodies is None else (bodies,)
    return jax.ShapeDtypeStruct((*first, *rows, leaf.size), leaf.dtype)


def zeros(f: Recurrence, key: Key, bodies: int | None = None) -> Array:
    """An array of zeros."""
    spec = shape_of(f, key, bodies)
    return jnp.zeros(spec.shape, spec.dtype)


def primals_at(f: Recurrence, arrays: Arrays, flags: Flags) -> tuple[Arrays, Flags]:
    """The operands of F, from the arrays of its ``point``: the first residual is the start."""
    x = {key: arrays[key] for key in leaves(f, "primal", START[:2])}
    marks = {key: flags[key] for key in x}
    for key in leaves(f, "primal", START[2:]):
        x[key], marks[key] = arrays[key.at("residual")][..., 0, :], flags[key.at("residual")]
    return x, marks

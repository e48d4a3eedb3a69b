"""A recurrence by ``lax.scan``, for use where it has no scalar form or there are no kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import jaxpr_as_fun

from jaxquat._internal.checkpointing import scan
from jaxquat._internal.varying import axes_of, cast
from jaxquat.fused.recurrence import FLOWS, GROUPS, Recurrence

Groups = dict[str, list[Array]]


def scanned(f: Recurrence, operands: Sequence[Array]) -> list[Array]:
    """The results of the kernel "forward", as flat arrays like its operands.

    A scan goes over the rows, and an inner one over the steps of a row.
    """
    start, specs = _shaped(f, operands), f.specs
    functions = {name: jaxpr_as_fun(closed) for name, closed in f.functions.items()}

    def results(name: str, k: Array, given: Groups) -> Groups:
        """The results of a function, by group."""
        inner, outer = FLOWS[name]
        leaves = [x for group in inner for x in given[group]]
        return _by_group(f, outer, functions[name](*start["constants"], k, *leaves))

    def sampled(k: Array, carry: Groups) -> Groups:
        """State, and memory and command from step k on."""
        if "sample" not in functions:
            return carry

        def anew() -> Groups:
            values = [x[k // f.sample_every] for x in start["inputs"]]
            return carry | results("sample", k, carry | {"inputs": values})

        return jax.lax.cond(k % f.sample_every == 0, anew, lambda: carry)

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def one(carry: tuple[Array, Groups], _: None) -> tuple[Any, None]:
        k, before = carry
        before = sampled(k, before)
        return (k + 1, before | results("step", k, before)), None

    segment = math.isqrt(f.save_every - 1) + 1

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def row(carry: tuple[Array, Groups], _: None) -> tuple[Any, list[Array]]:
        saved = results("save", carry[0], sampled(*carry))["saved"]
        return scan(one, carry, None, f.save_every, segment)[0], saved

    command = [jnp.zeros(x.shape, x.dtype) for x in specs["command"]]
    k, command = cast((jnp.int32(0), command), axes_of(operands))
    carry = {"state": start["state"], "memory": start["memory"], "command": command}
    (k, end), rows = scan(row, (k, carry), None, f.layout.rows, None)
    last = results("save", k, end)["saved"]
    rows = [jnp.concatenate([x, y[None]]) for x, y in zip(rows, last, strict=True)]
    rows = [x.reshape(len(x), -1) for x in rows]
    carried = [*end["state"], *end["memory"], *end["command"]]
    return [*rows, *(x.reshape(-1) for x in carried)]


def _shaped(f: Recurrence, operands: Sequence[Array]) -> Groups:
    """The operands of "forward" in their shapes, by group."""
    leading = [rows for _, rows in f.layout.operands("forward")]
    shapes = [f.spec(place).shape for place in f.places(GROUPS[:4])]
    arrays = [
        x.reshape(shape if rows is None else (rows, *shape))
        for x, shape, rows in zip(operands, shapes, leading, strict=True)
    ]
    return _by_group(f, GROUPS[:4], arrays)


def _by_group(f: Recurrence, groups: Sequence[str], arrays: Sequence[Array]) -> Groups:
    ends: Any = np.cumsum([0, *(len(f.specs[group]) for group in groups)])
    return {g: list(arrays[i:j]) for g, i, j in zip(groups, ends[:-1], ends[1:], strict=True)}

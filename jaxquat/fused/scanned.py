"""A recurrence by ``lax.scan``, for use where it has no scalar form or there are no kernels."""

from __future__ import annotations

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
from jaxquat.fused.kernel import CARRY, FLOWS, START
from jaxquat.fused.recurrence import Recurrence

Groups = dict[str, list[Array]]


def scanned(f: Recurrence, operands: Sequence[Array]) -> list[Array]:
    """Return the results of the kernel "forward" by a scan over rows and one over their steps."""
    arrays = [
        x.reshape(*f.layout.leading("primal", group), *f.specs[group][i].shape)
        for x, (group, i) in zip(operands, f.places(START), strict=True)
    ]
    groups = _by_group(f, START, arrays)
    if f.reverse:
        groups["inputs"] = [jnp.flip(x, 0) for x in groups["inputs"]]
    functions = {name: jaxpr_as_fun(closed) for name, closed in f.functions.items()}

    def call(name: str, k: Array, groups_now: Groups) -> Groups:
        inner, outer = FLOWS[name]
        leaves = [x for group in inner for x in groups_now[group]]
        return _by_group(f, outer, functions[name](*groups["constants"], k, *leaves))

    def sampled(k: Array, carry: Groups) -> Groups:
        if "sample" not in functions:
            return carry

        def sample() -> Groups:
            row = [x[k // f.sample_every] for x in groups["inputs"]]
            return carry | call("sample", k, carry | {"inputs": row})

        return jax.lax.cond(k % f.sample_every == 0, sample, lambda: carry)

    def step(carry: tuple[Array, Groups], _: None) -> tuple[Any, None]:
        k, before = carry[0], sampled(*carry)
        return (k + 1, before | call("step", k, before)), None

    def row(carry: tuple[Array, Groups], _: None) -> tuple[Any, list[Array]]:
        saved = call("save", carry[0], sampled(*carry))["saved"]
        one, steps = jax.checkpoint(step, prevent_cse=False), f.save_every
        return scan(one, carry, None, steps, math.isqrt(steps - 1) + 1)[0], saved

    command = [jnp.zeros(x.shape, x.dtype) for x in f.specs["command"]]
    k, command = cast((jnp.int32(0), command), axes_of(operands))
    carry = {"state": groups["state"], "memory": groups["memory"], "command": command}
    one_row = jax.checkpoint(row, prevent_cse=False)
    (k, end), rows = scan(one_row, (k, carry), None, f.layout.rows, None)
    last = call("save", k, end)["saved"]
    rows = [jnp.concatenate([x[f.first :], y[None]]) for x, y in zip(rows, last, strict=True)]
    rows = [jnp.flip(x, 0) for x in rows] if f.reverse else rows
    carried = [x.reshape(-1) for group in CARRY for x in end[group]]
    return [*(x.reshape(len(x), -1) for x in rows), *carried]


def _by_group(f: Recurrence, groups: Sequence[str], arrays: Sequence[Array]) -> Groups:
    ends: Any = np.cumsum([0, *(len(f.specs[group]) for group in groups)])
    return {g: list(arrays[i:j]) for g, i, j in zip(groups, ends[:-1], ends[1:], strict=True)}

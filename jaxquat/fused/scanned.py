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
from jaxquat.fused.kernel import CARRY, START
from jaxquat.fused.recurrence import FLOWS, Recurrence

Groups = dict[str, list[Array]]


def scanned(f: Recurrence, operands: Sequence[Array]) -> list[Array]:
    """Return the results of the kernel "forward" by a scan over rows and one over their steps."""
    groups = _shaped(f, operands)
    functions = _Functions(f, groups["constants"], groups["inputs"])
    command = [jnp.zeros(x.shape, x.dtype) for x in f.specs["command"]]
    k, command = cast((jnp.int32(0), command), axes_of(operands))
    carry = {"state": groups["state"], "memory": groups["memory"], "command": command}
    row = jax.checkpoint(functions.row, prevent_cse=False)
    (k, end), rows = scan(row, (k, carry), None, f.layout.rows, None)
    last = functions.call("save", k, end)["saved"]
    rows = [jnp.concatenate([x, y[None]]) for x, y in zip(rows, last, strict=True)]
    carried = [x.reshape(-1) for group in CARRY for x in end[group]]
    return [*(x.reshape(len(x), -1) for x in rows), *carried]


class _Functions:
    def __init__(self, f: Recurrence, constants: list[Array], inputs: list[Array]) -> None:
        self.f, self.constants, self.inputs = f, constants, inputs
        self.functions = {name: jaxpr_as_fun(closed) for name, closed in f.functions.items()}

    def call(self, name: str, k: Array, groups: Groups) -> Groups:
        inner, outer = FLOWS[name]
        leaves = [x for group in inner for x in groups[group]]
        return _by_group(self.f, outer, self.functions[name](*self.constants, k, *leaves))

    def sampled(self, k: Array, carry: Groups) -> Groups:
        if "sample" not in self.functions:
            return carry

        def sample() -> Groups:
            row = [x[k // self.f.sample_every] for x in self.inputs]
            return carry | self.call("sample", k, carry | {"inputs": row})

        return jax.lax.cond(k % self.f.sample_every == 0, sample, lambda: carry)

    def step(self, carry: tuple[Array, Groups], _: None) -> tuple[Any, None]:
        k, before = carry
        before = self.sampled(k, before)
        return (k + 1, before | self.call("step", k, before)), None

    def row(self, carry: tuple[Array, Groups], _: None) -> tuple[Any, list[Array]]:
        saved = self.call("save", carry[0], self.sampled(*carry))["saved"]
        step, steps = jax.checkpoint(self.step, prevent_cse=False), self.f.save_every
        return scan(step, carry, None, steps, math.isqrt(steps - 1) + 1)[0], saved


def _shaped(f: Recurrence, operands: Sequence[Array]) -> Groups:
    arrays = [
        x.reshape(*f.layout.leading("primal", group), *f.specs[group][i].shape)
        for x, (group, i) in zip(operands, f.places(START), strict=True)
    ]
    return _by_group(f, START, arrays)


def _by_group(f: Recurrence, groups: Sequence[str], arrays: Sequence[Array]) -> Groups:
    ends: Any = np.cumsum([0, *(len(f.specs[group]) for group in groups)])
    return {g: list(arrays[i:j]) for g, i, j in zip(groups, ends[:-1], ends[1:], strict=True)}

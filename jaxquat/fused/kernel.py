"""The description of a kernel: scalar programs, and the time loop over the steps around them.

``timeloop`` has the algorithms of the three kinds of kernel, "forward", "keeping" and "backward",
``OPERANDS`` and ``RESULTS`` their arrays: leaves of a group in a role (``keys``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat.fused.ir.program import Program

CACHED = 64  # the number of kernels whose text and program are cached
EMPTY = Program((), (), ())
Leaf = jax.ShapeDtypeStruct  # one array of one member; kernels have its numbers in one row
Leaves = tuple[Leaf, ...]

START = ("constants", "inputs", "state", "memory")
CARRY = ("state", "memory", "command")  # what goes from step to step
ENDS = ("saved", *CARRY)
GROUPS = (*START, "command", "saved")
# The arguments of each function of a loop, after constants and k, and its results.
FLOWS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "step": (("state", "command"), ("state",)),
    "save": (("state", "command"), ("saved",)),
    "sample": (("state", "memory", "inputs"), ("command", "memory")),
}

# Role and group of the arrays of a kernel, in order. Only floats have cotangents and gradients.
_START = [("primal", group) for group in START]
_ENDS = [("result", group) for group in ENDS]
_KEPT = [("residual", group) for group in CARRY]
POINT = [*_START[:2], *_KEPT, *_ENDS[1:]]
OPERANDS = {
    "forward": _START,
    "keeping": _START,
    "backward": [*POINT, *(("cotangent", group) for group in ENDS)],
}
RESULTS = {
    "forward": _ENDS,
    "keeping": [*_ENDS, *_KEPT],
    "backward": [("gradient", group) for group in START],
}


def is_smooth(leaf: Leaf) -> bool:
    """Return whether an array has a cotangent: only floats do."""
    return leaf.dtype.kind == "f"


class Arrays(NamedTuple):
    """Arrays that follow each other among the operands or among the results of a kernel."""

    leaves: Leaves
    rows: tuple[int, ...]  # the length of their leading axis, if they have one
    number: int  # the number of the first array


class Loop(NamedTuple):
    """The time loop of one member.

    Inputs and outputs of the programs, where k is the number of the step (int32) and a bar marks
    cotangents, which only smooth leaves have:

    =============  ===================================  ====================================
    program        inputs                               outputs
    =============  ===================================  ====================================
    step           constants, k, state, command         state
    save           constants, k, state, command         saved
    sample         constants, k, state, memory, input   command, memory
    step_back      those of step, state bar             bars of constants, state, command
    save_back      those of save, saved bar             bars of constants, state, command
    sample_back    those of sample, command bar,        bars of constants, state, memory, input
                   memory bar (after the sample)
    =============  ===================================  ====================================

    ``sample`` is None without a controller or inputs, derivatives until they are requested.
    """

    constants: Leaves = ()
    inputs: Leaves = ()  # one sample's
    state: Leaves = ()
    memory: Leaves = ()
    command: Leaves = ()
    saved: Leaves = ()  # one row's
    step: Program = EMPTY
    save: Program = EMPTY
    sample: Program | None = None
    step_back: Program | None = None
    save_back: Program | None = None
    sample_back: Program | None = None
    steps: int = 1
    sample_every: int = 1
    save_every: int = 1  # a divisor of ``steps``
    segment: int = 1  # steps between two states that are kept for the backward pass
    first: int = 0  # the first row that is saved, 0 or 1
    reverse: bool = False  # whether the rows of inputs and saved values go from last to first

    @property
    def rows(self) -> int:
        """Number of saved rows, not counting the last one."""
        return self.steps // self.save_every

    @property
    def samples(self) -> int:
        """Number of rows of the inputs."""
        return self.steps // self.sample_every

    @property
    def segments(self) -> int:
        """Number of states that are kept for the backward pass."""
        return -(-self.steps // self.segment)

    def leading(self, role: str, group: str) -> tuple[int, ...]:
        """Return the length of the leading axis of arrays, if they have one."""
        if role == "residual":
            return (self.segments,)
        lengths = {"inputs": self.samples, "saved": self.rows + 1 - self.first}
        return (lengths[group],) if group in lengths else ()

    def by(self, wanted: set[int]) -> Loop:
        """Return the loop with derivatives for the constants ``wanted`` alone, 0 for the others."""
        dropped, first = set(), 0
        for number, leaf in enumerate(self.constants):
            if is_smooth(leaf):
                if number not in wanted:
                    dropped.update(range(first, first + leaf.size))
                first += leaf.size
        names = ("step_back", "save_back", "sample_back")
        programs = {name: getattr(self, name) for name in names}
        return self._replace(**{k: p and p.with_zeros(dropped) for k, p in programs.items()})

    def arrays(self, places: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Arrays]:
        """Return the arrays of ``OPERANDS`` or ``RESULTS``, by role and group."""
        arrays, number = {}, 0
        for role, group in places:
            leaves: Leaves = getattr(self, group)
            if role in ("cotangent", "gradient"):
                leaves = tuple(filter(is_smooth, leaves))
            arrays[role, group] = Arrays(leaves, self.leading(role, group), number)
            number += len(leaves)
        return arrays

    def operands(self, kind: str) -> list[Leaf]:
        """Return shape (rows, size) or (size,) and dtype of the arrays that a kernel reads."""
        return _flat(self.arrays(OPERANDS[kind]))

    def results(self, kind: str) -> list[Leaf]:
        """Return shape (rows, size) or (size,) and dtype of the arrays that a kernel writes."""
        return _flat(self.arrays(RESULTS[kind]))


def _flat(arrays: dict[tuple[str, str], Arrays]) -> list[Leaf]:
    return [Leaf((*x.rows, y.size), y.dtype) for x in arrays.values() for y in x.leaves]


def launched(
    target: str, loop: Loop, kind: str, batched: Sequence[bool], operands: Sequence[Array],
    counts: Sequence[int], scratch: tuple[int, ...] | None, **attributes: Any,
) -> list[Array]:  # fmt: skip
    """Return the results of a call by XLA; ``counts``: the number of members, and further numbers.

    In a kernel arrays have the layout (rows, size, members), and absent axes are left out. The last
    operand is ``counts``, the last result memory of the shape ``scratch`` in bytes, if any.
    """
    results = [Leaf((*x.shape, counts[0]), x.dtype) for x in loop.results(kind)]
    memory = [] if scratch is None else [Leaf(scratch, np.uint8)]
    last = [jnp.moveaxis(x, 0, -1) if b else x for x, b in zip(operands, batched, strict=True)]
    call = jax.ffi.ffi_call(target, [*results, *memory])
    arrays = call(*last, np.array(counts, np.int32), **attributes)
    return [jnp.moveaxis(x, -1, 0) for x in arrays[: len(results)]]


def split(values: Sequence[Any], *groups: Leaves) -> list[Any]:
    """Return the values of each group of leaves."""
    ends = np.cumsum([0, *(sum(leaf.size for leaf in leaves) for leaves in groups)]).tolist()
    return [values[i:j] for i, j in itertools.pairwise(ends)]

"""The description of a kernel: scalar programs, and the time loop over the steps around them.

A ``Loop`` has all that a target needs to know. It lists the arrays of one member and has three
programs, each with its derivative:

- ``sample`` runs at every ``sample_every``-th step and sets the command and the memory,
- ``save`` runs at every ``save_every``-th step, after ``sample``, and at the end,
- ``step`` runs at every step.

There are three kinds of kernel: "forward", "keeping" and "backward". ``timeloop`` has their
algorithms. The arrays that a kernel reads and writes have names (``Loop.arrays``): ``Start`` has
the operands of a loop, ``End`` its results, and ``Backward`` the operands of the derivative.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat.fused.ir.program import Program

CACHED = 64  # the number of kernels whose text and program are cached
EMPTY = Program((), (), ())
T = TypeVar("T")


class Leaf(NamedTuple):
    """One array of one member, flattened."""

    dtype: np.dtype
    size: int

    @property
    def smooth(self) -> bool:
        """Whether the array has a cotangent: only floats do."""
        return self.dtype.kind == "f"


class Arrays(NamedTuple):
    """Arrays that follow each other among the operands or among the results of a kernel."""

    leaves: tuple[Leaf, ...]
    rows: int | None = None  # the length of their leading axis
    number: int = 0  # the number of the first array

    @property
    def smooth(self) -> Arrays:
        """The arrays among these that have a cotangent."""
        return self._replace(leaves=tuple(leaf for leaf in self.leaves if leaf.smooth))


class Carried(NamedTuple, Generic[T]):
    """One item for each group that goes from step to step."""

    state: T
    memory: T
    command: T


class Start(NamedTuple):
    """The operands of a loop. Its smooth arrays are also the results of the derivative."""

    constants: Arrays
    inputs: Arrays  # a row for each sample
    state: Arrays
    memory: Arrays


class End(NamedTuple):
    """The results of a loop. The smooth arrays except ``kept`` also have cotangents."""

    saved: Arrays
    last: Carried[Arrays]  # after the last step
    kept: Carried[Arrays] | None = None  # before the first step of each segment


class Backward(NamedTuple):
    """The operands of the derivative of a loop."""

    constants: Arrays
    inputs: Arrays
    kept: Carried[Arrays]
    last: Carried[Arrays]
    cotangents: End


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

    ``sample`` is None without a controller or inputs. The programs of the derivative are None
    until a derivative is requested.
    """

    constants: tuple[Leaf, ...] = ()
    inputs: tuple[Leaf, ...] = ()  # one sample's
    state: tuple[Leaf, ...] = ()
    memory: tuple[Leaf, ...] = ()
    command: tuple[Leaf, ...] = ()
    saved: tuple[Leaf, ...] = ()  # one row's
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

    @property
    def rows(self) -> int:
        """The number of saved rows, not counting the last one."""
        return self.steps // self.save_every

    @property
    def samples(self) -> int:
        """The number of commands."""
        return self.steps // self.sample_every

    @property
    def segments(self) -> int:
        """The number of states that are kept for the backward pass."""
        return -(-self.steps // self.segment)

    @property
    def carried(self) -> Carried[tuple[Leaf, ...]]:
        """The leaves that go from step to step."""
        return Carried(self.state, self.memory, self.command)

    def by(self, wanted: set[int]) -> Loop:
        """The same loop with derivatives only for the constants ``wanted``, and 0 for the others.

        A kernel then need not compute the others, nor have registers for their sums.
        """
        dropped, first = set(), 0
        for number, leaf in enumerate(self.constants):
            if leaf.smooth:
                if number not in wanted:
                    dropped.update(range(first, first + leaf.size))
                first += leaf.size
        names = ("step_back", "save_back", "sample_back")
        programs = {name: getattr(self, name) for name in names}
        return self._replace(**{k: p and p.with_zeros(dropped) for k, p in programs.items()})

    def forward(self, keeping: bool) -> tuple[Start, End]:
        """Operands and results of "forward" or "keeping"."""
        constants, inputs = Arrays(self.constants), Arrays(self.inputs, self.samples)
        last, kept = (
            Carried(*(Arrays(leaves, rows) for leaves in self.carried))
            for rows in (None, self.segments)
        )
        end = End(Arrays(self.saved, self.rows + 1), last, kept if keeping else None)
        return _numbered(Start(constants, inputs, last.state, last.memory)), _numbered(end)

    def backward(self) -> tuple[Backward, Start]:
        """Operands and results of "backward"."""
        start, (saved, last, kept) = self.forward(keeping=True)
        assert kept
        cotangents = End(saved.smooth, Carried(*(arrays.smooth for arrays in last)))
        operands = Backward(start.constants, start.inputs, kept, last, cotangents)
        return _numbered(operands), _numbered(Start(*(arrays.smooth for arrays in start)))

    def arrays(self, kind: str) -> tuple[Any, Any]:
        """Operands and results of a kernel: "forward", "keeping" or "backward"."""
        return self.backward() if kind == "backward" else self.forward(kind == "keeping")

    def operands(self, kind: str) -> list[tuple[Leaf, int | None]]:
        """The arrays that a kernel reads, each with the length of its leading axis or None."""
        return _listed(self.arrays(kind)[0])

    def results(self, kind: str) -> list[tuple[Leaf, int | None]]:
        """Return the arrays that a kernel writes, in the form of ``operands``."""
        return _listed(self.arrays(kind)[1])

    def shapes(self, kind: str, members: int) -> list[jax.ShapeDtypeStruct]:
        """Return the shapes and dtypes of ``results`` in the layout of a kernel."""
        return [
            jax.ShapeDtypeStruct((*(() if n is None else (n,)), leaf.size, members), leaf.dtype)
            for leaf, n in self.results(kind)
        ]


def members_last(operands: Sequence[Array], batched: Sequence[bool]) -> list[Array]:
    """Return operands in the layout of a kernel: (rows, size, members), without absent axes."""
    return [jnp.moveaxis(x, 0, -1) if b else x for x, b in zip(operands, batched, strict=True)]


def _listed(groups: Any) -> list[tuple[Leaf, int | None]]:
    arrays = jax.tree.leaves(groups, is_leaf=lambda x: isinstance(x, Arrays))
    return [(leaf, x.rows) for x in arrays for leaf in x.leaves]


def _numbered(groups: Any) -> Any:
    """The same groups, each with the number of its first array when all arrays are counted."""
    arrays, structure = jax.tree.flatten(groups, is_leaf=lambda x: isinstance(x, Arrays))
    ends = np.cumsum([0, *(len(x.leaves) for x in arrays)]).tolist()
    return structure.unflatten(x._replace(number=n) for x, n in zip(arrays, ends, strict=False))


def split(values: Sequence[Any], *groups: tuple[Leaf, ...]) -> list[Any]:
    """Return the values of each group of leaves."""
    ends = np.cumsum([0, *(sum(leaf.size for leaf in leaves) for leaves in groups)]).tolist()
    return [values[i:j] for i, j in itertools.pairwise(ends)]

"""The description of a kernel: scalar programs, and the time loop over the steps around them.

A ``Loop`` is all that a target (``cpu`` or ``targets.nvptx``) is told. It lists
the arrays of one body and names three programs, each with its derivative:

- ``sample`` runs at every ``sample_every``-th step and sets the command and the memory,
- ``save`` runs at every ``save_every``-th step, after ``sample``, and at the end,
- ``step`` runs at every step.

There are three kinds of kernel. "forward" does just this. "keeping" also writes state, memory and
command before the first step of each segment. "backward" takes the segments from the last to the
first: it computes the states of a segment again from what was kept, then runs the derivatives from
its last step to its first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxquat.engines.fused.program import Program


class Leaf(NamedTuple):
    """One array of one body, flattened."""

    dtype: np.dtype
    size: int

    @property
    def smooth(self) -> bool:
        """Whether the array has a cotangent: only floats do."""
        return self.dtype.kind == "f"


class Loop(NamedTuple):
    """The time loop of one body.

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

    ``sample`` is None without a controller and inputs. The programs of the derivative are None
    before a derivative is asked for.
    """

    constants: tuple[Leaf, ...]
    inputs: tuple[Leaf, ...]  # one sample's
    state: tuple[Leaf, ...]
    memory: tuple[Leaf, ...]
    command: tuple[Leaf, ...]
    saved: tuple[Leaf, ...]  # one row's
    step: Program
    save: Program
    sample: Program | None
    step_back: Program | None
    save_back: Program | None
    sample_back: Program | None
    steps: int
    sample_every: int
    save_every: int
    segment: int  # steps between two states that are kept for the backward pass

    @property
    def rows(self) -> int:
        """How many rows are saved, the last one not counted."""
        return self.steps // self.save_every

    @property
    def samples(self) -> int:
        """How many commands there are."""
        return self.steps // self.sample_every

    @property
    def segments(self) -> int:
        """How many states are kept for the backward pass."""
        return -(-self.steps // self.segment)

    def operands(self, kind: str) -> list[tuple[Leaf, int | None]]:
        """The arrays that a kernel reads, each with the length of its leading axis or None.

        ``kind``: "forward", "keeping" or "backward".
        """
        arrays: list[tuple[Leaf, int | None]] = [(leaf, None) for leaf in self.constants]
        arrays += [(leaf, self.samples) for leaf in self.inputs]
        if kind != "backward":
            return arrays + [(leaf, None) for leaf in (*self.state, *self.memory)]
        arrays += [*self.kept(), *self.last()]
        arrays += [(leaf, self.rows + 1) for leaf in self.saved if leaf.smooth]
        return arrays + [(leaf, None) for leaf, _ in self.last() if leaf.smooth]

    def results(self, kind: str) -> list[tuple[Leaf, int | None]]:
        """The arrays that a kernel writes, as ``operands`` gives those that it reads."""
        if kind == "backward":
            arrays: list[tuple[Leaf, int | None]] = [
                (leaf, None) for leaf in self.constants if leaf.smooth
            ]
            arrays += [(leaf, self.samples) for leaf in self.inputs if leaf.smooth]
            return arrays + [(leaf, None) for leaf in (*self.state, *self.memory) if leaf.smooth]
        arrays = [(leaf, self.rows + 1) for leaf in self.saved] + self.last()
        return arrays + (self.kept() if kind == "keeping" else [])

    def last(self) -> list[tuple[Leaf, int | None]]:
        """State, memory and command at the end."""
        return [(leaf, None) for leaf in (*self.state, *self.memory, *self.command)]

    def kept(self) -> list[tuple[Leaf, int | None]]:
        """State, memory and command before the first step of each segment."""
        return [(leaf, self.segments) for leaf in (*self.state, *self.memory, *self.command)]

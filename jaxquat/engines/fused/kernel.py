"""What a fused kernel computes: the loop over the time steps, forward or backward, around scalar programs."""

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
        """Whether it has a cotangent."""
        return self.dtype.kind == "f"


class Loop(NamedTuple):
    """The time loop of one body.

    ``step``: constants, number of the step (int32), state, held -> state. ``save``: the same -> saved. ``sample``: constants,
    number, state, memory, input -> held, memory; None without a controller and inputs. ``step_back``, ``save_back``: the inputs of
    step, cotangent of the result -> those of constants, state, held. ``sample_back``: the inputs of sample, cotangents of held and
    memory after -> those of constants, state, memory, input. Cotangents are those of the smooth leaves alone.
    """

    constants: tuple[Leaf, ...]
    inputs: tuple[Leaf, ...]  # one sample's
    state: tuple[Leaf, ...]
    memory: tuple[Leaf, ...]
    held: tuple[Leaf, ...]
    saved: tuple[Leaf, ...]  # of one row
    step: Program
    save: Program
    sample: Program | None
    step_back: Program | None  # None before a derivative is asked for
    save_back: Program | None
    sample_back: Program | None
    steps: int
    sample_every: int
    save_every: int
    segment: int  # steps between two states kept for the backward pass

    @property
    def rows(self) -> int:
        """Saved rows without the last."""
        return self.steps // self.save_every

    @property
    def samples(self) -> int:
        """Commands."""
        return self.steps // self.sample_every

    @property
    def segments(self) -> int:
        """States kept for the backward pass."""
        return -(-self.steps // self.segment)

    def operands(self, kind: str) -> list[tuple[Leaf, int | None]]:
        """The arrays that a kernel reads, each with the length of its leading axis, None without one.

        ``kind``: "forward", "keeping" (which also gives what the backward pass needs) or "backward".
        """
        found: list[tuple[Leaf, int | None]] = [(leaf, None) for leaf in self.constants]
        found += [(leaf, self.samples) for leaf in self.inputs]
        if kind != "backward":
            return found + [(leaf, None) for leaf in (*self.state, *self.memory)]
        found += [*self.kept(), *self.last()]
        found += [(leaf, self.rows + 1) for leaf in self.saved if leaf.smooth]
        return found + [(leaf, None) for leaf, _ in self.last() if leaf.smooth]

    def results(self, kind: str) -> list[tuple[Leaf, int | None]]:
        """The arrays that a kernel writes."""
        if kind == "backward":
            found: list[tuple[Leaf, int | None]] = [
                (leaf, None) for leaf in self.constants if leaf.smooth
            ]
            found += [(leaf, self.samples) for leaf in self.inputs if leaf.smooth]
            return found + [(leaf, None) for leaf in (*self.state, *self.memory) if leaf.smooth]
        found = [(leaf, self.rows + 1) for leaf in self.saved] + self.last()
        return found + (self.kept() if kind == "keeping" else [])

    def last(self) -> list[tuple[Leaf, int | None]]:
        """State, memory and command at the end."""
        return [(leaf, None) for leaf in (*self.state, *self.memory, *self.held)]

    def kept(self) -> list[tuple[Leaf, int | None]]:
        """State, memory and command before the first step of each segment."""
        return [(leaf, self.segments) for leaf in (*self.state, *self.memory, *self.held)]

"""Scalar programs: typed lists of scalar operations in which each value is assigned once.

A value is a number: the inputs come first, then one value for each operation. For example x * x + 1
of one float32 input is

    inputs %0:float32
    %1:float32 = mul %0 %0
    %2:float32 = const 1.0
    %3:float32 = add %1 %2
    outputs %3

A ``Routine`` is a program within another one: a loop, a function, or a branch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxquat.fused.ir.operations import OPERATIONS


class Op(NamedTuple):
    """One operation; ``args`` are the numbers of earlier values.

    ``name`` is a key of ``OPERATIONS`` or "const" (``value``: its bytes); "convert" or "bitcast" to
    ``dtype``; "take", element ``args[0]`` of ``args[1:]``; "call" of a routine (``value``); "item"
    of a call (``value``: its number).
    """

    name: str
    dtype: np.dtype
    args: tuple[int, ...] = ()
    value: Any = None

    @property
    def number(self) -> Any:
        """The number of a constant; it is kept as bytes, where -0 is not 0 and NaN equals NaN."""
        return np.frombuffer(self.value, self.dtype)[0]


class Routine(NamedTuple):
    """A program within a program.

    The inputs are ``fixed`` values, ``carried`` values, which go from trip to trip, and one value
    from each row. The outputs are the carried values, then one value for each row of results. The
    arguments of "call" are the fixed and the first carried values and all values of each row; its
    items are the last carried values and all values of each row of results.

    Kinds: a "loop" runs ``trips`` times, as ``lax.scan``; with one trip it is a function. A
    "branch" runs if the first input is true for any member of a vector, a "while" until the first
    carried value is false for all; the program keeps the carried values of the other members. A
    "seldom" branch is rarely taken, and so is a "rare" one, which is a function of its own.
    """

    program: Program
    trips: int = 1
    fixed: int = 0
    carried: int = 0
    kind: str = "loop"

    def split(self, args: Sequence[Any]) -> tuple[list[Any], list[Any], list[list[Any]]]:
        """Return the arguments in three groups: fixed values, carried values, rows."""
        first = self.fixed + self.carried
        rows = [list(args[k : k + self.trips]) for k in range(first, len(args), self.trips)]
        return list(args[: self.fixed]), list(args[self.fixed : first]), rows

    def dtype(self, item: int) -> np.dtype:
        """Return the dtype of an item."""
        place = item if item < self.carried else self.carried + (item - self.carried) // self.trips
        return self.program.dtype(self.program.outputs[place])

    @property
    def items(self) -> int:
        """The number of items."""
        return self.carried + (len(self.program.outputs) - self.carried) * self.trips


def needed(
    ops: Sequence[Op], first: int, outputs: Iterable[int], known: Collection[int] = ()
) -> set[int]:
    """Return the values that these outputs need; the first operation has the number ``first``.

    Values that are known need nothing.
    """
    wanted = set(outputs)
    for number in range(first + len(ops) - 1, first - 1, -1):
        if number in wanted and number not in known:
            wanted.update(ops[number - first].args)
    return wanted


class Program(NamedTuple):
    """Operations on numbered values: first the inputs, then one value for each operation."""

    inputs: tuple[np.dtype, ...]
    ops: tuple[Op, ...]
    outputs: tuple[int, ...]

    def dtype(self, value: int) -> np.dtype:
        """Return the dtype of a value."""
        count = len(self.inputs)
        return self.inputs[value] if value < count else self.ops[value - count].dtype

    def counts(self) -> dict[str, int]:
        """Return how often operations run, most frequent first; a "while" makes one trip."""
        counts: dict[str, int] = {}
        for op in self.ops:
            if op.name == "call":
                rare = op.value.kind == "rare"
                for name, count in op.value.program.counts().items() if not rare else ():
                    counts[name] = counts.get(name, 0) + op.value.trips * count
            elif op.name not in ("const", "item"):
                counts[op.name] = counts.get(op.name, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def cost(self) -> float:
        """Return the cost of the operations that run, in units of an addition (``operations``)."""
        cost = lambda name: OPERATIONS[name].cost if name in OPERATIONS else 1  # noqa: E731
        return sum(cost(name) * count for name, count in self.counts().items())

    def with_zeros(self, places: set[int]) -> Program:
        """Return the same program with the constant 0 for the outputs at ``places``."""
        outputs, ops = list(self.outputs), list(self.ops)
        for place in sorted(places):
            dtype = self.dtype(outputs[place])
            outputs[place] = len(self.inputs) + len(ops)
            ops.append(Op("const", dtype, (), dtype.type(0).tobytes()))
        return Program(self.inputs, tuple(ops), tuple(outputs))

    def routines(self) -> list[Routine]:
        """Return the routines of the program, each once, and after those that it contains."""
        routines: dict[Routine, None] = {}
        for op in self.ops:
            if op.name == "call" and op.value not in routines:
                routines.update(dict.fromkeys((*op.value.program.routines(), op.value)))
        return list(routines)

    def __str__(self) -> str:
        names = {routine: f"@{k}" for k, routine in enumerate(self.routines())}
        lines = []
        for routine, name in names.items():
            counts = f"{routine.trips} trips, {routine.fixed} fixed, {routine.carried} carried"
            lines += [f"{name}: {routine.kind}, {counts}"]
            lines += [f"  {line}" for line in routine.program._lines(names)]
        return "\n".join([*lines, *self._lines(names)])

    def _lines(self, names: dict[Routine, str]) -> list[str]:
        lines = [f"inputs {' '.join(f'%{k}:{dtype}' for k, dtype in enumerate(self.inputs))}"]
        for number, op in enumerate(self.ops, len(self.inputs)):
            right = "" if op.name != "const" else repr(op.number.item())
            right += " ".join(f"%{a}" for a in op.args)
            if op.name == "call":
                lines.append(f"%{number} = call {names[op.value]} {right}")
            else:
                right += f" {op.value}" if op.name == "item" else ""
                lines.append(f"%{number}:{op.dtype} = {op.name} {right}")
        return [*lines, f"outputs {' '.join(f'%{k}' for k in self.outputs)}"]

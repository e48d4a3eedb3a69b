"""The target of a time loop: a vector of members, with one lane for each member.

Operands and results have the layout (rows, size, members). A function written here uses the names
``%first`` of its first member, ``%members`` of the number of all, ``%scratch`` of its memory. The
caller sets ``sources`` and ``targets``. On a GPU, a vector of one lane is a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxquat.fused.ir.expansion import lowered
from jaxquat.fused.ir.invariants import apart
from jaxquat.fused.ir.program import Program
from jaxquat.fused.ir.speculation import speculated
from jaxquat.fused.kernel import Arrays, Leaf, split
from jaxquat.fused.targets.memory import Cell
from jaxquat.fused.targets.programs import Programs
from jaxquat.fused.targets.text import Index, Module, Number

LONG = 16  # a leaf with more numbers than this stays in memory, and loops go through it


class Lanes(Programs):
    """The operations of a time loop; ``batched`` marks operands with a value per member."""

    def __init__(self, module: Module, batched: Sequence[bool]) -> None:
        super().__init__(module)
        self.batched = batched
        self.first, self.members = self.number("%first"), self.number("%members")
        self.sources: list[str] = []
        self.targets: list[str] = []

    def read(self, arrays: Arrays, row: Index = 0) -> list[str | Cell]:
        """Return one row of some operands."""
        values: list[str | Cell] = []
        for k, leaf in enumerate(arrays.leaves, arrays.number):
            values += self.elements(leaf, self.array(leaf, self.sources[k], row, self.batched[k]))
        return values

    def write(self, arrays: Arrays, values: Sequence[str | Cell], row: Index = 0) -> None:
        """Write one row of some results."""
        parts = split(values, *((leaf,) for leaf in arrays.leaves))
        for k, (leaf, part) in enumerate(zip(arrays.leaves, parts, strict=True), arrays.number):
            self.assign(leaf, self.array(leaf, self.targets[k], row, batched=True), part)

    def variable(self, leaves: tuple[Leaf, ...], rows: int = 1) -> Variable:
        """Return a new variable, which has no values yet."""
        return Variable(self, leaves, rows)

    def zeros(self, leaves: tuple[Leaf, ...]) -> list[str]:
        """Return a zero for each number of the leaves."""
        return [self.constant(leaf.dtype, 0) for leaf in leaves for _ in range(leaf.size)]

    def run(self, program: Program, inputs: Sequence[Any]) -> list[str]:
        """Return the outputs of a scalar program; the number of a step may be among the inputs."""
        program = lowered(program)
        if self.module.speculates:
            program = speculated(program)
        return self.program(program, [self.in_lanes(x) for x in inputs])

    def apart(self, program: Program, constants: list[Any]) -> tuple[Program, list[Any]]:
        """Compute what depends on constants alone; return the rest, and what it takes of them."""
        parts = None if self.module.speculates else apart(program, len(constants))
        return (program, constants) if parts is None else (parts[1], self.run(parts[0], constants))

    def saved(self, program: Program, inputs: Sequence[Any]) -> list[str | Cell]:
        """Return the outputs of ``run``, to be written at once: of inputs, the places."""
        places = dict(enumerate(map(self.in_lanes, inputs)))
        computed = [k for k in program.outputs if k not in places]
        names = self.run(program._replace(outputs=tuple(computed)), [*places.values()])
        values = places | dict(zip(computed, names, strict=True))
        return [values[k] for k in program.outputs]

    def in_lanes(self, x: Any) -> str | Cell:
        """Return a value as a vector; the number of a step becomes an int32."""
        dtype = np.dtype(np.int32)
        if isinstance(x, Number):
            return self.splat(dtype, self.set(f"trunc i64 {x} to i32"))
        return self.constant(dtype, x) if isinstance(x, int) else x

    def array(self, leaf: Leaf, base: str, row: Index, batched: bool) -> Cell:
        """Return the place of the first number in a row of an array, for the first member."""
        size = leaf.dtype.itemsize
        if not batched:
            return Cell(leaf.dtype, self.moved(base, row * (leaf.size * size)), 0, size, "one")
        pitch = self.members * size
        start = row * leaf.size * pitch + self.first * size
        return Cell(leaf.dtype, self.moved(base, start), 0, pitch, "lanes")

    # The numbers of one leaf, which are adjacent from a place on.

    def elements(self, leaf: Leaf, first: Cell) -> list[str | Cell]:
        """Return the values of a leaf; the values of a long leaf are read when they are used."""
        places = [first._replace(element=first.element + k) for k in range(leaf.size)]
        return [*places] if leaf.size > LONG else [self.read_from(place) for place in places]

    def assign(self, leaf: Leaf, first: Cell, values: Sequence[str | Cell]) -> None:
        """Write the values of a leaf."""
        source = self.together(leaf, values)
        if source and source.base != first.base:
            with self.loop(leaf.size) as k:
                self.write_to(first, self.read_from(source, k), k)
        else:
            names = [x if isinstance(x, str) else self.read_from(x) for x in values]
            most, count = Counter(names).most_common(1)[0] if leaf.size > LONG else ("", 0)
            fills = 2 * count > leaf.size  # as the zeros of a sparse matrix
            if fills:
                with self.loop(leaf.size) as k:
                    self.write_to(first, most, k)
            for k, name in enumerate(names):
                if not fills or name != most:
                    self.write_to(first, name, k)
        # names of the old values no longer stand for the values in memory
        old = self.places.items()
        self.places = {name: place for name, place in old if place.base != first.base}

    def add(self, leaf: Leaf, first: Cell, values: Sequence[str]) -> None:
        """Add values to the values of a leaf."""
        kind, source = self.vector(leaf.dtype), self.together(leaf, values)

        def add_one(value: str, k: Index) -> None:
            old = self.read_from(first, k)
            self.write_to(first, self.set(f"fadd {kind} {old}, {value}"), k)

        if source and source.base != first.base:
            with self.loop(leaf.size) as k:
                add_one(self.read_from(source, k), k)
            return
        zero = self.constant(leaf.dtype, 0)
        for k, value in enumerate(values):
            if value != zero:
                add_one(value, k)

    def together(self, leaf: Leaf, values: Sequence[str | Cell]) -> Cell | None:
        """Return the place of the first value of a long leaf if its values are adjacent."""
        first, stride = (self.regular(values) if leaf.size > LONG else None) or (None, 0)
        return first if stride == 1 else None


class Variable:
    """Values that change, perhaps in rows; a piece is a number of a short leaf, or a long leaf."""

    def __init__(self, lanes: Lanes, leaves: tuple[Leaf, ...], rows: int) -> None:
        self.lanes, self.leaves = lanes, leaves
        self.pieces: list[Leaf] = []
        self.first: list[Cell] = []  # of each piece
        for leaf in leaves:
            if rows == 1 and leaf.size <= LONG:
                self.pieces += [Leaf((), leaf.dtype)] * leaf.size
                self.first += [lanes.slot(leaf.dtype) for _ in range(leaf.size)]
            else:
                self.pieces.append(leaf)
                self.first.append(lanes.buffer([leaf.dtype], rows * leaf.size))

    def row(self, row: Index) -> list[Cell]:
        """Return the place of the first number of each piece in a row."""
        return [
            place._replace(base=self.lanes.moved(place.base, row * (piece.size * place.pitch)))
            for piece, place in zip(self.pieces, self.first, strict=True)
        ]

    def get(self, row: Index = 0) -> list[str | Cell]:
        """Return the values, to be used before the variable is set again."""
        places = zip(self.pieces, self.row(row), strict=True)
        return [x for piece, place in places for x in self.lanes.elements(piece, place)]

    def set(self, values: Sequence[str | Cell], row: Index = 0) -> None:
        """Replace the values."""
        for piece, place, part in self._parts(values, row):
            self.lanes.assign(piece, place, part)

    def add(self, values: list[str]) -> None:
        """Add to the values."""
        for piece, place, part in self._parts(values, 0):
            self.lanes.add(piece, place, part)

    def _parts(self, values: Sequence[Any], row: Index) -> Iterator[tuple[Leaf, Cell, Any]]:
        parts = split(values, *((piece,) for piece in self.pieces))
        return zip(self.pieces, self.row(row), parts, strict=True)

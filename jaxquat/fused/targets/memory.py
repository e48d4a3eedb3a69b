"""Where values lie: a value is the name of a vector, or a ``Cell`` that was not read yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxquat.fused.targets.text import Index, Module, Text, scalar, stored


class Cell(NamedTuple):
    """A value in memory."""

    dtype: np.dtype
    base: str  # a pointer
    element: int
    pitch: Index  # bytes from one element to the next
    kind: str  # "one": an operand's number for all lanes; "lanes": one each; "slot": own memory


class Memory(Text):
    """Reads and writes the values of a function."""

    def __init__(self, module: Module) -> None:
        super().__init__(module)
        self.places: dict[str, Cell] = {}  # for names whose value also lies in memory
        self.loaded: dict[Cell, str] = {}  # names of places that have been read

    def value(self, x: str | Cell) -> str:
        """Return the name of a value; a place is read once."""
        if isinstance(x, str):
            return x
        if x not in self.loaded:
            self.loaded[x] = self.read_from(x)
            self.places[self.loaded[x]] = x
        return self.loaded[x]

    def place(self, x: str | Cell | None) -> Cell | None:
        """Return the place of a value in memory, or None."""
        return self.places.get(x) if isinstance(x, str) else x

    def read_from(self, place: Cell, further: Index = 0) -> str:
        """Return the value that lies ``further`` elements after a place."""
        at, dtype = self.address(place, further), place.dtype
        if place.kind == "slot":
            return self.set(f"load {self.vector(dtype)}, ptr {at}, align {self.aligned(dtype)}")
        if place.kind == "lanes":
            value = self.set(f"load {self.packed(dtype)}, ptr {at}, align {dtype.itemsize}")
            return self.unpacked(dtype, value)
        value = self.set(f"load {stored(dtype)}, ptr {at}, align {dtype.itemsize}")
        if dtype.kind == "b":
            value = self.set(f"trunc i8 {value} to i1")
        return self.splat(dtype, value)

    def write_to(self, place: Cell, value: str, further: Index = 0) -> None:
        """Write a value to the memory that lies ``further`` elements after a place."""
        at, dtype = self.address(place, further), place.dtype
        if place.kind == "slot":
            kind, align = self.vector(dtype), self.aligned(dtype)
        else:
            kind, value, align = self.packed(dtype), self.pack(dtype, value), dtype.itemsize
        self.line(f"store {kind} {value}, ptr {at}, align {align}")

    def taken(self, index: str, first: Cell, stride: int) -> str:
        """Return for each lane the element ``index`` of a row from ``first``, ``stride`` apart."""
        dtype, kind = first.dtype, self.vector(first.dtype)
        base, size = self.address(first), scalar(dtype)
        pitch = self.set(f"mul i64 {first.pitch}, {stride}")
        value = "poison"
        for lane in range(self.lanes):
            number = self.set(f"extractelement <{self.lanes} x i32> {index}, i32 {lane}")
            wide = self.set(f"zext i32 {number} to i64")
            at = self.moved(base, self.number(self.set(f"mul i64 {wide}, {pitch}")))
            if first.kind != "one":
                at = self.moved(at, lane * dtype.itemsize)
            one = self.set(f"load {size}, ptr {at}, align {dtype.itemsize}")
            value = self.set(f"insertelement {kind} {value}, {size} {one}, i32 {lane}")
        return value

    def address(self, place: Cell, further: Index = 0) -> str:
        """Return a pointer to the element that lies ``further`` elements after a place."""
        return self.moved(place.base, (place.element + further) * place.pitch)

    def moved(self, pointer: str, size: Index) -> str:
        """Return a pointer that is ``size`` bytes after another one."""
        same = isinstance(size, int) and size == 0
        return pointer if same else self.set(f"getelementptr i8, ptr {pointer}, i64 {size}")

    def aligned(self, dtype: np.dtype) -> int:
        """Return the alignment of a vector in a slot, where a boolean takes one bit."""
        return max(1, min(64, self.lanes * dtype.itemsize // (8 if dtype.kind == "b" else 1)))

    def packed(self, dtype: np.dtype) -> str:
        """Return the type of a passed vector, booleans as bytes: LLVM 22 may crash on i1."""
        return f"<{self.lanes} x {stored(dtype)}>"

    def pack(self, dtype: np.dtype, value: str) -> str:
        """Return a vector as it is in an operand or an argument."""
        if dtype.kind != "b":
            return value
        return self.set(f"zext {self.vector(dtype)} {value} to {self.packed(dtype)}")

    def unpacked(self, dtype: np.dtype, value: str) -> str:
        """Return the inverse of ``pack``."""
        if dtype.kind != "b":
            return value
        return self.set(f"trunc {self.packed(dtype)} {value} to {self.vector(dtype)}")

    # Memory of the function, and rows of values in it.

    def pitch(self, dtypes: Sequence[np.dtype]) -> int:
        """Return the bytes for a value of any of the dtypes."""
        return self.lanes * max(dtype.itemsize for dtype in dtypes)

    def slot(self, dtype: np.dtype) -> Cell:
        """Return memory for a value, which LLVM keeps in a register."""
        return Cell(dtype, self.local(self.vector(dtype)), 0, self.pitch([dtype]), "slot")

    def buffer(self, dtypes: Sequence[np.dtype], count: int) -> Cell:
        """Return memory for ``count`` values of any of the dtypes, for this function alone."""
        pitch, module = self.pitch(dtypes), self.module
        size = count * pitch
        if module.stack + size <= module.most:
            module.stack += size
            return Cell(dtypes[0], self.local(f"[{size} x i8]"), 0, pitch, "slot")
        first, base = module.scratch, self.name()
        module.scratch += -(-size // 64) * 64
        if not module.interleaved:
            self.entry.append(f"  {base} = getelementptr i8, ptr %scratch, i64 {first}")
            return Cell(dtypes[0], base, 0, pitch, "slot")
        between = self.name()
        self.entry += [
            f"  {base} = call ptr @element(ptr %scratch, i64 {first}, i64 {pitch})",
            f"  {between} = call i64 @between(i64 {pitch})",
        ]
        return Cell(dtypes[0], base, 0, self.number(between), "slot")

    def regular(self, values: Sequence[str | Cell | None]) -> tuple[Cell, int] | None:
        """Return the first place of equally spaced values and their stride in elements, or None."""
        places = [self.place(x) for x in values]
        first, second = places[:2]
        if first is None or second is None:
            return None
        stride = second.element - first.element
        row = [first._replace(element=first.element + k * stride) for k in range(len(places))]
        return (first, stride) if places == row else None

    def row(self, dtype: np.dtype, values: Sequence[str | Cell]) -> tuple[Cell, int]:
        """Return ``regular``; values without equal spacing are copied to a buffer."""
        regular = self.regular(values)
        if regular:
            return regular
        buffer = self.buffer([dtype], len(values))
        for k, x in enumerate(values):
            name, place = self.value(x), buffer._replace(element=k)
            self.write_to(place, name)
            self.places[name] = place
        return buffer, 1

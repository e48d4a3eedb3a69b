"""The lines of a function in LLVM's assembly, with numbers, loops and branches.

``loop`` and ``when`` surround lines as ``for`` and ``if`` do. Values that change lie in memory,
which LLVM turns into registers (its pass "mem2reg").
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


def scalar(dtype: np.dtype) -> str:
    """Return the LLVM type of a number."""
    return {"f4": "float", "f8": "double", "b1": "i1"}.get(dtype.str[1:], f"i{8 * dtype.itemsize}")


def stored(dtype: np.dtype) -> str:
    """Return the LLVM type of a number in operands and results, where booleans are bytes."""
    return "i8" if dtype.kind == "b" else scalar(dtype)


def literal(dtype: np.dtype, value: Any) -> str:
    """Return a constant; floats of both precisions are written as the bits of a float64."""
    if dtype.kind == "f":
        return f"0x{np.float64(value).view(np.uint64):016X}"
    return ("true" if value else "false") if dtype.kind == "b" else str(int(value))


@dataclass
class Module:
    """The state that the functions of a module share."""

    lanes: int
    declared: set[str] = field(default_factory=set)
    functions: list[str] = field(default_factory=list)  # texts
    routines: dict[Any, str] = field(default_factory=dict)  # names of functions
    most: int = 2**18  # bytes of a thread's stack for arrays; larger ones lie in scratch memory
    speculates: bool = False  # whether rare branches are left out and the program repeated
    interleaved: bool = False  # in scratch memory, the same element of all threads is adjacent
    stack: int = 0  # bytes of each thread's stack that arrays use
    scratch: int = 0  # bytes of each thread's scratch memory


def _operator(word: str) -> Callable[[Any, Index], Number]:
    return lambda self, other: self.text.number(self.text.set(f"{word} i64 {self}, {other}"))


_sum, _product = map(_operator, ("add", "mul"))


class Number:
    """An integer (i64) that a function computes; Python's operators write the lines for it."""

    def __init__(self, text: Text, name: str) -> None:
        self.text, self.name = text, name

    def __str__(self) -> str:
        return self.name

    __sub__, __floordiv__, __mod__ = map(_operator, ("sub", "udiv", "urem"))
    __lt__, __ge__, is_ = map(_operator, ("icmp ult", "icmp uge", "icmp eq"))

    def __add__(self, other: Index) -> Number:
        return self if isinstance(other, int) and other == 0 else _sum(self, other)

    def __mul__(self, other: Index) -> Index:
        if isinstance(other, int) and other in (0, 1):
            return self if other else 0
        return _product(self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: int) -> Index:
        return self * -1 + other

    def multiple_of(self, period: int) -> Number:
        """Return whether it is a multiple of ``period``."""
        return (self % period).is_(0)

    def at_most(self, most: int) -> Number:
        """Return the smaller of this number and ``most``."""
        return self.text.number(self.text.set(f"select i1 {self < most}, i64 {self}, i64 {most}"))


Index = int | Number


class Text:
    """Collects the lines of a function."""

    def __init__(self, module: Module) -> None:
        self.module, self.lanes, self.count = module, module.lanes, 0
        self.entry: list[str] = []  # memory of the function, before all lines
        self.lines: list[str] = []

    def function(self, head: str) -> str:
        """Return the text of the function, which returns after its last line."""
        lines = [f"define {head} {{", "entry:", *self.entry, *self.lines, "  ret void", "}"]
        return "\n".join(lines)

    def name(self) -> str:
        """Return a new name."""
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append("  " + text)

    def set(self, text: str) -> str:
        """Add a line that computes a value, and return the value's new name."""
        name = self.name()
        self.line(f"{name} = {text}")
        return name

    def number(self, name: str) -> Number:
        """Return the integer with this name."""
        return Number(self, name)

    def local(self, kind: str) -> str:
        """Return a pointer to memory of the function for a value of an LLVM type."""
        name = self.name()
        self.entry.append(f"  {name} = alloca {kind}, align 64")
        return name

    @contextlib.contextmanager
    def loop(self, count: Index) -> Iterator[Number]:
        """Write ``for trip in range(count)``; ``count`` is at least 1."""
        label, counter = self.name()[1:], self.local("i64")
        self.line(f"store i64 0, ptr {counter}")
        self._begin(label)
        trip = Number(self, self.set(f"load i64, ptr {counter}"))
        yield trip
        following = trip + 1
        self.line(f"store i64 {following}, ptr {counter}")
        self.line(f"br i1 {following < count}, label %{label}, label %{label}_after")
        self.lines.append(f"{label}_after:")

    @contextlib.contextmanager
    def repeat(self, condition: Callable[[], str]) -> Iterator[None]:
        """Write ``while condition()``; the condition is computed anew before each trip."""
        label = self.name()[1:]
        self._begin(label)
        self.line(f"br i1 {condition()}, label %{label}_trip, label %{label}_after")
        self.lines.append(f"{label}_trip:")
        yield
        self.line(f"br label %{label}")
        self.lines.append(f"{label}_after:")

    @contextlib.contextmanager
    def when(self, condition: Number | str, rarely: bool = False) -> Iterator[None]:
        """Write ``if condition``; ``rarely`` tells LLVM how to lay out the code."""
        label = self.name()[1:]
        hint = ", !prof !0" if rarely else ""
        self.line(f"br i1 {condition}, label %{label}, label %{label}_after{hint}")
        self.lines.append(f"{label}:")
        yield
        self._begin(f"{label}_after")

    def _begin(self, label: str) -> None:
        self.line(f"br label %{label}")
        self.lines.append(f"{label}:")

    # Vectors, with one number for each lane.

    def vector(self, dtype: np.dtype) -> str:
        """Return the LLVM type of a vector."""
        return f"<{self.lanes} x {scalar(dtype)}>"

    def splat(self, dtype: np.dtype, value: str) -> str:
        """Return a vector with the same number in all lanes."""
        kind, zeros = self.vector(dtype), f"<{self.lanes} x i32> zeroinitializer"
        first = self.set(f"insertelement {kind} poison, {scalar(dtype)} {value}, i32 0")
        return self.set(f"shufflevector {kind} {first}, {kind} poison, {zeros}")

    def constant(self, dtype: np.dtype, value: object) -> str:
        """Return a vector with the same constant in all lanes."""
        one = f"{scalar(dtype)} {literal(dtype, value)}"
        return f"<{', '.join([one] * self.lanes)}>"

    def call(self, result: str, function: str, arguments: Sequence[tuple[str, str]]) -> str:
        """Call an intrinsic function of LLVM; ``arguments`` has the type and name of each."""
        kinds = ", ".join(kind for kind, _ in arguments)
        passed = ", ".join(f"{kind} {value}" for kind, value in arguments)
        self.module.declared.add(f"declare {result} @{function}({kinds})")
        return self.set(f"call {result} @{function}({passed})")

    def any(self, mask: str) -> str:
        """Return whether a boolean is true in some lane."""
        kind = self.vector(np.dtype(bool))
        return self.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", [(kind, mask)])

"""How scalar programs are built: ``Builder`` appends operations, ``Scalar`` is one of its values.

The same operation on the same values is one value. An operation on constants is evaluated at once
("folding"); x + 0 is left out, and signs are moved where they cost nothing: x + (-y) is x - y, bit
for bit ("shortening").
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxquat.fused.ir.operations import OPERATIONS, converted
from jaxquat.fused.ir.program import Op, Program, Routine, needed

_BOOLEAN = np.dtype(bool)
_CHECKED = ("convert", "bitcast", "take", "select")
"""Operations that may be an earlier value although no argument is a constant or negative."""


class Builder:
    """Appends operations after sharing, folding and shortening (see the top of this file)."""

    def __init__(self, inputs: Sequence[np.dtype]) -> None:
        self.arguments = [Scalar(self, k, np.dtype(d)) for k, d in enumerate(inputs)]
        self.values = list(self.arguments)  # and one for each operation
        self.ops: list[Op] = []
        self._known: dict[Any, Scalar] = {}

    def const(self, value: Any) -> Scalar:
        """Return a constant, from a numpy scalar."""
        bits = value.tobytes()
        return self._append(Op("const", value.dtype, (), bits), bits, value)

    def emit(self, name: str, *args: Scalar, dtype: Any = None) -> Scalar:
        """Return the result of an operation; "convert" and "bitcast" need its ``dtype``."""
        row = OPERATIONS.get(name)
        if row is not None:
            dtype = _BOOLEAN if row.compares else args[-1].dtype
        else:
            dtype = args[-1].dtype if dtype is None else np.dtype(dtype)
        for x in args:
            if x.literal is not None or x.minus is not None or name in _CHECKED:
                shorter = self._constant(name, args, dtype) or self._shorter(name, args, dtype)
                if shorter is not None:
                    return shorter
                break
        numbers = tuple([x.number for x in args])
        if row is not None and row.commutes and numbers[0] > numbers[1]:
            numbers = numbers[::-1]
        return self._append(Op(name, dtype, numbers))

    def call(self, routine: Routine, args: Sequence[Scalar]) -> list[Scalar]:
        """Return the items of a call."""
        op = Op("call", np.dtype(np.void), tuple([x.number for x in args]), routine)
        call = self._append(op, routine)
        return [
            self._append(Op("item", routine.dtype(k), (call.number,), k), k)
            for k in range(routine.items)
        ]

    def copy(self, op: Op, values: Any) -> Any:
        """Append the same operation of new values, by number; a call has the list of its items."""
        args = [values[a] for a in op.args]
        if op.name == "const":
            return self.const(op.number)
        if op.name == "call":
            return self.call(op.value, args)
        if op.name == "item":
            return args[0][op.value]
        return self.emit(op.name, *args, dtype=op.dtype)

    def finish(self, outputs: Sequence[Scalar]) -> Program:
        """Return the program, without the operations that the outputs do not need."""
        base = len(self.arguments)
        wanted = needed(self.ops, base, (x.number for x in outputs))
        new, ops = {k: k for k in range(base)}, []
        for number, op in enumerate(self.ops, base):
            if number in wanted:
                new[number] = base + len(ops)
                args = tuple([new[a] for a in op.args])
                ops.append(op if args == op.args else Op(op.name, op.dtype, args, op.value))
        inputs = tuple(x.dtype for x in self.arguments)
        return Program(inputs, tuple(ops), tuple(new[x.number] for x in outputs))

    def forget(self) -> None:
        """Drop all values, which refer to this builder: Python would free such a circle late."""
        self.arguments.clear()
        self.values.clear()
        self._known.clear()

    def _append(self, op: Op, value: Any = None, literal: Any = None) -> Scalar:
        key = op.name, op.dtype, op.args, value
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Scalar(self, len(self.values), op.dtype, literal)
            if op.name == "neg" and op.dtype.kind == "f":
                known.minus = self.values[op.args[0]]
            self.values.append(known)
            self.ops.append(op)
        return known

    def _constant(self, name: str, args: tuple[Scalar, ...], dtype: np.dtype) -> Scalar | None:
        """Return the result of an operation on constants."""
        literals = [x.literal for x in args]
        folded = None if any(x is None for x in literals) else _folded(name, dtype, literals)
        return None if folded is None else self.const(folded)

    def _shorter(self, name: str, args: tuple[Scalar, ...], dtype: np.dtype) -> Scalar | None:
        """Return an earlier value that equals the result, or that of a shorter operation."""
        if name in ("convert", "bitcast"):
            return args[0] if dtype == args[0].dtype else None
        if name == "take":
            return args[1] if len(set(args[1:])) == 1 else None
        if name == "select":
            if args[0].literal is not None:
                return args[1] if args[0].literal else args[2]
            return args[1] if args[1] is args[2] else None
        value = self._without_sign(name, args) if len(args) < 3 else None
        return self._neutral(name, args) if value is None and len(args) == 2 else value

    def _without_sign(self, name: str, args: tuple[Scalar, ...]) -> Scalar | None:
        positive = [x.minus for x in args]
        if not any(positive) or name not in ("neg", "add", "sub", "mul", "div"):
            return None
        sizes = [size or x for size, x in zip(positive, args, strict=True)]
        match name, *map(bool, positive):
            case "neg", True:
                return sizes[0]
            case "add", _, True:
                return self.emit("sub", args[0], sizes[1])
            case "add", True, False:
                return self.emit("sub", args[1], sizes[0])
            case "sub", _, True:
                return self.emit("add", args[0], sizes[1])
            case "mul" | "div", True, True:
                return self.emit(name, *sizes)
            case "mul" | "div", _, _:
                return self.emit("neg", self.emit(name, *sizes))
        return None

    def _neutral(self, name: str, args: tuple[Scalar, ...]) -> Scalar | None:
        if args[0].literal is None and args[1].literal is None:
            return None
        kind = args[0].dtype.kind
        for x, other, is_second in zip(args, reversed(args), (False, True), strict=True):
            if x.literal is None:
                continue
            match name, float(x.literal):
                case "add", 0.0:
                    return other
                case "sub", 0.0 if is_second:
                    return other
                case "div", 1.0 if is_second:
                    return other
                case "mul", 1.0 if kind == "f":
                    return other
                case "mul", -1.0 if kind == "f":
                    return self.emit("neg", other)
                case "and" | "or", float(value) if kind == "b":
                    return other if bool(value) == (name == "and") else x
        return None


def _folded(name: str, dtype: np.dtype, values: list[Any]) -> Any:
    """Return the result on constants, or None; denormal numbers count as zero, as in the kernel."""
    with np.errstate(all="ignore"):
        if name == "bitcast":
            return values[0].view(dtype)
        if name == "take":
            return values[1 + int(values[0])]
        fold = OPERATIONS[name].fold if name != "convert" else lambda x: converted(x, dtype)
        by_zero = name == "div" and dtype.kind != "f" and values[1] == 0
        if fold is None or by_zero:
            return None
        if name in ("neg", "abs", "select"):
            return dtype.type(fold(*values))
        return _normal(dtype.type(fold(*map(_normal, values))))


def _normal(x: Any) -> Any:
    return x * 0 if x.dtype.kind == "f" and abs(x) < np.finfo(x.dtype).tiny else x


def _operator(name: str) -> Callable[[Any, Any], Scalar]:
    def of(self: Scalar, other: Any) -> Scalar:
        plain = isinstance(other, Scalar)
        return self.b.emit(name, self, other) if plain else operation(name, self, other)

    return of


def _reflected(name: str) -> Callable[[Any, Any], Scalar]:
    return lambda self, other: operation(name, other, self)


class Scalar:
    """A value of a builder, with the operators of a number.

    Python numbers become constants of the same dtype. Equality is ``equals``, because ``==``
    remains identity. A right shift keeps the sign of signed integers. ``literal`` is the constant
    that the value is, ``minus`` the float whose negative it is, or None.
    """

    __slots__ = ("b", "dtype", "literal", "minus", "number")

    def __init__(self, b: Builder, number: int, dtype: np.dtype, literal: Any = None) -> None:
        self.b, self.number, self.dtype, self.literal = b, number, dtype, literal
        self.minus: Scalar | None = None

    def boolean(self) -> Scalar | None:
        """Return the boolean that was converted to this number, or None."""
        place = self.number - len(self.b.arguments)
        if place < 0 or self.b.ops[place].name != "convert":
            return None
        x = self.b.values[self.b.ops[place].args[0]]
        return x if x.dtype.kind == "b" else None

    def like(self, value: Any) -> Scalar:
        """Return a constant of the same dtype; a Scalar is returned as it is."""
        return value if isinstance(value, Scalar) else self.b.const(self.dtype.type(value))

    def convert(self, dtype: Any) -> Scalar:
        """Return the value in another dtype, as XLA converts it."""
        return self if dtype == self.dtype else self.b.emit("convert", self, dtype=dtype)

    def bitcast(self, dtype: Any) -> Scalar:
        """Return the same bits as a value of a dtype of the same size."""
        return self.b.emit("bitcast", self, dtype=dtype)

    def equals(self, other: Any) -> Scalar:
        """Return whether the values are equal."""
        return operation("eq", self, other)

    def differs(self, other: Any) -> Scalar:
        """Return whether the values are not equal; NaN differs from itself."""
        return operation("ne", self, other)

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected("div")
    __lt__, __gt__ = _operator("lt"), _reflected("lt")
    __le__, __ge__ = _operator("le"), _reflected("le")
    __and__, __or__, __xor__, __lshift__ = map(_operator, ("and", "or", "xor", "shl"))

    def __neg__(self) -> Scalar:
        return operation("neg", self) if self.dtype.kind == "f" else 0 - self

    def __abs__(self) -> Scalar:
        if self.dtype.kind == "f":
            return operation("abs", self)
        return operation("max", self, -self) if self.dtype.kind == "i" else self

    def __invert__(self) -> Scalar:
        return self ^ (True if self.dtype.kind == "b" else np.invert(self.dtype.type(0)))

    def __rshift__(self, other: Any) -> Scalar:
        return operation("sar" if self.dtype.kind == "i" else "shr", self, other)


def operation(name: str, *args: Any) -> Scalar:
    """Return the result of an operation of the table; Python numbers become constants."""
    for x in args:
        if not isinstance(x, Scalar):
            first = next(x for x in reversed(args) if isinstance(x, Scalar))
            return first.b.emit(name, *map(first.like, args))
    return args[0].b.emit(name, *args)


where, fma, sqrt, floor, nearest, maximum, minimum, exp = (
    functools.partial(operation, name)
    for name in ("select", "fma", "sqrt", "floor", "round", "max", "min", "exp")
)
"""The operations as functions: fma rounds once, nearest halves to even; extremes keep NaN."""

"""How scalar programs are built: ``Builder`` appends operations, ``Scalar`` is one of its values.

The same operation on the same values is one value. An operation on constants is evaluated at once
("folding"). An operation that changes nothing, such as x + 0, is left out, and signs are moved to
where they cost nothing: x + (-y) is x - y, and (-x) y is -(x y), bit for bit ("shortening").
``finish`` drops operations that the outputs do not need.

Numerics are written with ``Scalar``, as if it were a number:

    size = abs(x)
    return where(size < 1, 1 - x * x, 0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxquat.fused.ir.operations import OPERATIONS, converted
from jaxquat.fused.ir.program import Op, Program, Routine


class Builder:
    """Appends operations after sharing, folding and shortening (see the top of this file)."""

    def __init__(self, inputs: Sequence[np.dtype]) -> None:
        self.inputs = tuple(np.dtype(d) for d in inputs)
        self.ops: list[Op] = []
        self._known: dict[Any, int] = {}
        self._literals: dict[int, Any] = {}

    def dtype(self, value: int) -> np.dtype:
        """Return the dtype of a value."""
        count = len(self.inputs)
        return self.inputs[value] if value < count else self.ops[value - count].dtype

    def literal(self, value: int) -> Any:
        """Return the constant that a value is, or None."""
        return self._literals.get(value)

    def made_by(self, value: int, name: str) -> Op | None:
        """Return the operation that computes a value, if it has this name, or None."""
        op = self.ops[value - len(self.inputs)] if value >= len(self.inputs) else None
        return op if op and op.name == name else None

    def scalar(self, value: int) -> Scalar:
        """Return a value as a number to compute with."""
        return Scalar(self, value)

    def const(self, value: Any) -> int:
        """Return the value of a constant, a numpy scalar."""
        bits = value.tobytes()
        number = self._append(Op("const", value.dtype, (), bits), ("const", value.dtype, bits))
        self._literals[number] = value
        return number

    def emit(self, name: str, *args: int, dtype: Any = None) -> int:
        """The value of an operation; ``dtype`` is the result's, for "convert" and "bitcast"."""
        if dtype is None:
            compares = name in OPERATIONS and OPERATIONS[name].compares
            dtype = np.bool_ if compares else self.dtype(args[-1])
        dtype = np.dtype(dtype)
        literals = [self.literal(a) for a in args]
        if literals and all(x is not None for x in literals):
            folded = _folded(name, dtype, literals)
            if folded is not None:
                return self.const(folded)
        shorter = self._shorter(name, args, literals, dtype)
        if shorter is not None:
            return shorter
        if name in OPERATIONS and OPERATIONS[name].commutes:
            args = tuple(sorted(args))
        return self._append(Op(name, dtype, args), (name, dtype, args))

    def call(self, routine: Routine, args: Sequence[int]) -> list[int]:
        """Return the items of a call."""
        args = tuple(args)
        # the key has the program as text, where the constants 0.0 and -0.0 differ
        key = ("call", args, str(routine.program), routine[1:])
        call = self._append(Op("call", np.dtype(np.void), args, routine), key)
        return [
            self._append(Op("item", routine.dtype(k), (call,), k), ("item", call, k))
            for k in range(routine.items)
        ]

    def finish(self, outputs: Sequence[int]) -> Program:
        """Return the program, without the operations that the outputs do not need."""
        base, needed = len(self.inputs), set(outputs)
        for number in range(len(self.ops) - 1, -1, -1):
            if number + base in needed:
                needed.update(self.ops[number].args)
        new, ops = {k: k for k in range(base)}, []
        for number, op in enumerate(self.ops, base):
            if number in needed:
                new[number] = base + len(ops)
                ops.append(Op(op.name, op.dtype, tuple([new[a] for a in op.args]), op.value))
        return Program(self.inputs, tuple(ops), tuple(new[k] for k in outputs))

    def _append(self, op: Op, key: Any) -> int:
        if key not in self._known:
            self._known[key] = len(self.inputs) + len(self.ops)
            self.ops.append(op)
        return self._known[key]

    def _shorter(
        self, name: str, args: tuple[int, ...], literals: list[Any], dtype: np.dtype
    ) -> int | None:
        """An earlier value that equals the result, or the value of a shorter operation, or None."""
        if name in ("convert", "bitcast"):
            return args[0] if dtype == self.dtype(args[0]) else None
        if name == "take":
            return args[1] if len(set(args[1:])) == 1 else None
        if name == "select":
            if literals[0] is not None:
                return args[1] if literals[0] else args[2]
            return args[1] if args[1] == args[2] else None
        value = self._without_sign(name, args) if len(args) < 3 else None
        return self._neutral(name, args, literals) if value is None and len(args) == 2 else value

    def _without_sign(self, name: str, args: tuple[int, ...]) -> int | None:
        """The value of the operation with signs of floats moved out of it or into it, or None."""
        if name not in ("neg", "add", "sub", "mul", "div") or self.dtype(args[0]).kind != "f":
            return None
        negated = [self.made_by(a, "neg") for a in args]
        if not any(negated):
            return None
        sizes = [op.args[0] if op else a for op, a in zip(negated, args, strict=True)]
        match name, *(op is not None for op in negated):
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
            case "mul" | "div", True, False:
                return self.emit("neg", self.emit(name, *sizes))
            case "mul" | "div", False, True:
                return self.emit("neg", self.emit(name, *sizes))
        return None

    def _neutral(self, name: str, args: tuple[int, ...], literals: list[Any]) -> int | None:
        """Return the other argument if one is neutral, or None."""
        kind = self.dtype(args[0]).kind
        for literal, other, is_second in zip(literals, reversed(args), (False, True), strict=True):
            if literal is None:
                continue
            match name, float(literal):
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
                case "and" | "or", float(x) if kind == "b":
                    return other if bool(x) == (name == "and") else self.const(np.bool_(x))
        return None


def _folded(name: str, dtype: np.dtype, values: list[Any]) -> Any:
    """Return the result of an operation on constants, or None if it cannot be evaluated now.

    Denormal numbers count as zero, as in the kernel, but keep their bits where they are moved.
    """
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
    """Return the number, or zero of its sign for a denormal one."""
    return x * 0 if x.dtype.kind == "f" and abs(x) < np.finfo(x.dtype).tiny else x


def _operator(name: str) -> Callable[[Any, Any], Scalar]:
    return lambda self, other: operation(name, self, other)


def _reflected(name: str) -> Callable[[Any, Any], Scalar]:
    return lambda self, other: operation(name, other, self)


class Scalar:
    """A value of a builder, with the operators of a number.

    Python numbers among the operands become constants of the same dtype. Equality is ``equals``,
    because ``==`` remains identity. A right shift depends on the dtype: it keeps the sign of signed
    integers.
    """

    __slots__ = ("b", "number")

    def __init__(self, b: Builder, number: int) -> None:
        self.b, self.number = b, number

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the value."""
        return self.b.dtype(self.number)

    @property
    def literal(self) -> Any:
        """The constant that the value is, or None."""
        return self.b.literal(self.number)

    def like(self, value: Any) -> Scalar:
        """Return a constant of the same dtype; a Scalar is returned as it is."""
        if isinstance(value, Scalar):
            return value
        return Scalar(self.b, self.b.const(self.dtype.type(value)))

    def convert(self, dtype: Any) -> Scalar:
        """Return the value in another dtype, as XLA converts it."""
        return Scalar(self.b, self.b.emit("convert", self.number, dtype=np.dtype(dtype)))

    def bitcast(self, dtype: Any) -> Scalar:
        """Return the same bits as a value of a dtype of the same size."""
        return Scalar(self.b, self.b.emit("bitcast", self.number, dtype=np.dtype(dtype)))

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
    first = next(x for x in reversed(args) if isinstance(x, Scalar))
    numbers = [first.like(x).number for x in args]
    return Scalar(first.b, first.b.emit(name, *numbers))


def where(condition: Scalar, x: Any, y: Any) -> Scalar:
    """``x`` where the condition is true, else ``y``; one of them may be a Python number."""
    return operation("select", condition, x, y)


def fma(x: Any, y: Any, z: Any) -> Scalar:
    """``x y + z``, rounded once."""
    return operation("fma", x, y, z)


def sqrt(x: Scalar) -> Scalar:
    """Return the square root, rounded correctly."""
    return operation("sqrt", x)


def floor(x: Scalar) -> Scalar:
    """Return the largest integer that is not larger than x."""
    return operation("floor", x)


def nearest(x: Scalar) -> Scalar:
    """Return the nearest integer; halfway cases go to the even one."""
    return operation("round", x)


def maximum(x: Any, y: Any) -> Scalar:
    """Return the larger of two values; NaN if one is NaN."""
    return operation("max", x, y)


def minimum(x: Any, y: Any) -> Scalar:
    """Return the smaller of two values; NaN if one is NaN."""
    return operation("min", x, y)


def exp(x: Scalar) -> Scalar:
    """Return the exponential function."""
    return operation("exp", x)

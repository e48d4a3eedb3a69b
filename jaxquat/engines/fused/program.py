"""A scalar program: a typed list of scalar operations in single assignment, built with folding and sharing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


class Op(NamedTuple):
    """One operation. ``args`` are numbers of earlier values; a constant has its bytes as ``value`` instead.

    "loop" runs a program several times, its ``value`` is a Routine; "item" is one of its results, ``value`` says which.
    """

    name: str
    dtype: np.dtype
    args: tuple[int, ...] = ()
    value: Any = None

    @property
    def number(self) -> Any:
        """The value of a constant; as bytes -0 differs from 0, and NaN equals itself."""
        return np.frombuffer(self.value, self.dtype)[0]


class Routine(NamedTuple):
    """A program that runs ``trips`` times, as ``lax.scan`` does; one trip is a call.

    Inputs of the program: those that stay, those that are carried from trip to trip, those that take another value each trip.
    Outputs: what is carried, then one value a trip each. The arguments of its operation are what stays, what is carried at
    first, and the values of each row; its items are what is carried at last, and the values of each row.

    A rare routine, of one trip, does nothing where its first input is false: what is carried comes out as it was. It is left out
    where that input is false for all bodies of a vector.
    """

    program: Program
    trips: int
    fixed: int = 0  # inputs that stay
    carried: int = 0
    rare: bool = False

    def split(self, args: Sequence[Any]) -> tuple[list[Any], list[Any], list[list[Any]]]:
        """The arguments: what stays, what is carried, rows."""
        first = self.fixed + self.carried
        rows = [list(args[k : k + self.trips]) for k in range(first, len(args), self.trips)]
        return list(args[: self.fixed]), list(args[self.fixed : first]), rows

    def dtype(self, item: int) -> np.dtype:
        """Of a result."""
        place = item if item < self.carried else self.carried + (item - self.carried) // self.trips
        return self.program.dtype(self.program.outputs[place])

    @property
    def items(self) -> int:
        """How many results there are."""
        return self.carried + (len(self.program.outputs) - self.carried) * self.trips


class Program(NamedTuple):
    """Values are numbered: first the inputs, then one for each operation."""

    inputs: tuple[np.dtype, ...]
    ops: tuple[Op, ...]
    outputs: tuple[int, ...]

    def dtype(self, value: int) -> np.dtype:
        """Of a value by its number."""
        return (
            self.inputs[value]
            if value < len(self.inputs)
            else self.ops[value - len(self.inputs)].dtype
        )

    def counts(self) -> dict[str, int]:
        """How often each operation occurs in a run, constants and rare routines left out, most frequent first."""
        found: dict[str, int] = {}
        for op in self.ops:
            if op.name == "loop":
                for name, count in op.value.program.counts().items() if not op.value.rare else ():
                    found[name] = found.get(name, 0) + op.value.trips * count
            elif op.name not in ("const", "item"):
                found[op.name] = found.get(op.name, 0) + 1
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def routines(self) -> list[Routine]:
        """Each that occurs, once, those within others before them."""
        found: dict[Routine, None] = {}
        for op in self.ops:
            if op.name == "loop" and op.value not in found:
                found.update(dict.fromkeys((*op.value.program.routines(), op.value)))
        return list(found)

    def __str__(self) -> str:
        names = {routine: f"@{k}" for k, routine in enumerate(self.routines())}
        lines = []
        for routine, name in names.items():
            lines += [
                f"{name}: {routine.trips} trips, {routine.fixed} fixed, {routine.carried} carried"
            ]
            lines += [f"  {line}" for line in routine.program._lines(names)]
        return "\n".join([*lines, *self._lines(names)])

    def _lines(self, names: dict[Routine, str]) -> list[str]:
        lines = [f"inputs {' '.join(f'%{k}:{dtype}' for k, dtype in enumerate(self.inputs))}"]
        for number, op in enumerate(self.ops, len(self.inputs)):
            right = "" if op.name != "const" else repr(op.number.item())
            right += " ".join(f"%{a}" for a in op.args)
            if op.name == "loop":
                lines.append(f"%{number} = loop {names[op.value]} {right}")
            else:
                lines.append(
                    f"%{number}:{op.dtype} = {op.name} {right}{f' {op.value}' if op.name == 'item' else ''}"
                )
        return [*lines, f"outputs {' '.join(f'%{k}' for k in self.outputs)}"]


def evaluate(program: Program, inputs: Sequence[Any]) -> list[Array]:
    """The outputs for inputs of any one shape, by ``jax.lax``, one operation after the other, loops unrolled."""
    values: list[Any] = list(inputs)
    for op in program.ops:
        if op.name == "const":
            values.append(op.number)
        elif op.name == "loop":
            values.append(_trips(op.value, [values[a] for a in op.args]))
        elif op.name == "item":
            values.append(values[op.args[0]][op.value])
        elif op.name == "convert":
            values.append(lax.convert_element_type(values[op.args[0]], op.dtype))
        elif op.name == "bitcast":
            values.append(lax.bitcast_convert_type(values[op.args[0]], jnp.dtype(op.dtype)))
        else:
            shape = jnp.broadcast_shapes(*(jnp.shape(values[a]) for a in op.args))
            values.append(
                _EVALUATE[op.name](*(jnp.broadcast_to(values[a], shape) for a in op.args))
            )
    return [values[k] for k in program.outputs]


def _trips(routine: Routine, args: Sequence[Any]) -> list[Array]:
    """The items."""
    fixed, carried, rows = routine.split(args)
    made = []
    for k in range(routine.trips):
        found = evaluate(routine.program, [*fixed, *carried, *(row[k] for row in rows)])
        carried = found[: routine.carried]
        made.append(found[routine.carried :])
    return [*carried, *(x for row in zip(*made, strict=True) for x in row)]


_EVALUATE: dict[str, Callable[..., Array]] = {
    "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "rem": lax.rem, "neg": lax.neg, "abs": lax.abs,
    "sqrt": lax.sqrt, "sin": lax.sin, "cos": lax.cos, "tanh": lax.tanh, "exp": lax.exp, "expm1": lax.expm1,
    "log": lax.log, "log1p": lax.log1p, "atan2": lax.atan2, "pow": lax.pow,
    "floor": lax.floor, "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), "max": lax.max, "min": lax.min,
    "eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le, "and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor,
    "not": lax.bitwise_not, "select": lax.select, "shl": lax.shift_left, "shr": lax.shift_right_logical,
    "sar": lax.shift_right_arithmetic, "fma": lambda x, y, z: lax.add(lax.mul(x, y), z),
}  # fmt: skip


def _whole_quotient(x: Any, y: Any) -> int:
    """Towards zero, in whole numbers, which floats of 64 bits do not hold."""
    size = abs(int(x)) // abs(int(y))
    return size if (x < 0) == (y < 0) else -size


def _unsigned(x: Any) -> Any:
    return x.view(f"u{x.dtype.itemsize}")


def _signed(x: Any) -> Any:
    return x.view(f"i{x.dtype.itemsize}")


def _converted(x: Any, dtype: np.dtype) -> Any:
    """A float as an integer: the nearest there is towards zero, 0 for NaN, as XLA converts."""
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        return x.astype(dtype)
    limits = np.iinfo(dtype)
    return dtype.type(
        0
        if np.isnan(x)
        else limits.min
        if x <= limits.min
        else limits.max
        if x >= limits.max
        else int(x)
    )


_FOLD: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "abs": abs, "sqrt": np.sqrt,
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "exp": np.exp, "expm1": np.expm1, "log": np.log,
    "log1p": np.log1p, "atan2": np.arctan2, "floor": np.floor,
    "round": np.rint, "max": np.maximum, "min": np.minimum, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "and": operator.and_, "or": operator.or_, "xor": operator.xor, "select": lambda p, x, y: x if p else y,
    "div": lambda x, y: x / y if x.dtype.kind == "f" else _whole_quotient(x, y), "rem": np.fmod, "not": np.invert,
    "shl": np.left_shift, "sar": lambda x, y: (_signed(x) >> _signed(y)).view(x.dtype),
    "shr": lambda x, y: (_unsigned(x) >> _unsigned(y)).view(x.dtype), "pow": np.power,
}  # fmt: skip
_COMMUTES = {"add", "mul", "and", "or", "xor", "eq", "ne"}


class Builder:
    """Appends operations; the same operation on the same values is one value, operations on constants are done here."""

    def __init__(self, inputs: Sequence[np.dtype]) -> None:
        self.inputs = tuple(np.dtype(d) for d in inputs)
        self.ops: list[Op] = []
        self._known: dict[Any, int] = {}
        self._literals: dict[int, Any] = {}

    def dtype(self, value: int) -> np.dtype:
        """Of a value by its number."""
        return (
            self.inputs[value]
            if value < len(self.inputs)
            else self.ops[value - len(self.inputs)].dtype
        )

    def literal(self, value: int) -> Any:
        """The constant that a value is, or None."""
        return self._literals.get(value)

    def const(self, value: Any) -> int:
        """A numpy scalar."""
        bits = value.tobytes()
        number = self._append(Op("const", value.dtype, (), bits), ("const", value.dtype, bits))
        self._literals[number] = value
        return number

    def emit(self, name: str, *args: int, dtype: Any = None) -> int:
        """The value of an operation; ``dtype`` for convert and bitcast."""
        dtype = np.dtype(
            dtype
            if dtype is not None
            else np.bool_
            if name in ("eq", "ne", "lt", "le")
            else self.dtype(args[-1])
        )
        if name in ("convert", "bitcast") and dtype == self.dtype(args[0]):
            return args[0]
        literals = [self.literal(a) for a in args]
        if literals and all(x is not None for x in literals):
            folded = self._fold(name, dtype, literals)
            if folded is not None:
                return self.const(folded)
        shorter = self._shorten(name, args, literals)
        if shorter is not None:
            return shorter
        if name in _COMMUTES:
            args = tuple(sorted(args))
        return self._append(Op(name, dtype, args), (name, dtype, args))

    def loop(self, routine: Routine, args: Sequence[int]) -> int:
        """A loop, from which ``item`` takes results."""
        args = tuple(args)
        # as text, for which zero and minus zero are two
        return self._append(
            Op("loop", np.dtype(np.void), args, routine),
            ("loop", args, str(routine.program), routine[1:]),
        )

    def item(self, loop: int, number: int) -> int:
        """One result of a loop."""
        dtype = self.ops[loop - len(self.inputs)].value.dtype(number)
        return self._append(Op("item", dtype, (loop,), number), ("item", loop, number))

    def finish(self, outputs: Sequence[int]) -> Program:
        """The program of what the outputs need."""
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

    def _fold(self, name: str, dtype: np.dtype, values: list[Any]) -> Any:
        with np.errstate(all="ignore"):
            if name == "convert":
                return _converted(values[0], dtype)
            if name == "bitcast":
                return values[0].view(dtype)
            if name == "div" and dtype.kind != "f" and values[1] == 0:
                return None
            return dtype.type(_FOLD[name](*values)) if name in _FOLD else None

    def converted_boolean(self, value: int) -> int | None:
        """The boolean of which a value is the number, or None."""
        op = self.ops[value - len(self.inputs)] if value >= len(self.inputs) else None
        return (
            op.args[0]
            if op and op.name == "convert" and self.dtype(op.args[0]).kind == "b"
            else None
        )

    def _shorten(self, name: str, args: tuple[int, ...], literals: list[Any]) -> int | None:
        """The value itself where an operation changes nothing."""
        if name == "select":
            if literals[0] is not None:
                return args[1] if literals[0] else args[2]
            return args[1] if args[1] == args[2] else None
        if len(args) != 2:
            return None
        (a, b), (x, y) = args, literals
        if name == "add":
            return b if x is not None and x == 0 else a if y is not None and y == 0 else None
        if name == "sub" and y is not None and y == 0:
            return a
        if name == "mul" and self.dtype(a).kind == "f":
            for value, other in ((x, b), (y, a)):
                if value is not None and abs(value) == 1:
                    return other if value == 1 else self.emit("neg", other)
        if name == "div" and y is not None and y == 1:
            return a
        if name in ("and", "or") and self.dtype(a).kind == "b":
            for value, other in ((x, b), (y, a)):
                if value is not None:
                    return (
                        other
                        if bool(value) == (name == "and")
                        else self.const(np.bool_(name == "or"))
                    )
        return None

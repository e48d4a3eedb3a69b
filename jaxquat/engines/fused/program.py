"""Scalar programs: typed lists of scalar operations, in which each value is assigned once.

A value is a number: the inputs come first, then one value for each operation. For example
x * x + 1 of one float32 input is

    inputs %0:float32
    %1:float32 = mul %0 %0
    %2:float32 = const 1.0
    %3:float32 = add %1 %2
    outputs %3

A ``Builder`` appends operations. The same operation on the same values is one value; an operation
on constants is done at once ("folding"); an operation that changes nothing, such as x + 0, is left
out ("shortening"). ``finish`` drops what the outputs do not need. A ``Routine`` is a program that
runs several times within another one. ``evaluate`` runs a program by ``jax.lax``: on the GPU, and
as the reference in the tests. The operations are the keys of ``_EVALUATE``, with "const",
"convert", "bitcast", "loop" and "item".
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


class Op(NamedTuple):
    """One operation; ``args`` are the numbers of earlier values.

    ``value``: the bytes of a "const"; the Routine of a "loop"; for "item", which result of the
    loop it takes.
    """

    name: str
    dtype: np.dtype
    args: tuple[int, ...] = ()
    value: Any = None

    @property
    def number(self) -> Any:
        """The number that a constant is; it is kept as bytes, where -0 is not 0 and NaN is NaN."""
        return np.frombuffer(self.value, self.dtype)[0]


class Routine(NamedTuple):
    """A program that runs ``trips`` times, as ``lax.scan`` does; one trip is a call.

    The program's inputs are ``fixed`` values that stay, ``carried`` values that go from trip to
    trip, and values that are another one in each trip (the rows). Its outputs are the carried
    values, then one value a trip for each row of results. The arguments of the operation "loop" are
    the fixed values, the first carried values and all values of each row; its items are the last
    carried values and all values of each row of results.

    A ``rare`` routine has one trip and does nothing where its first input is false: the carried
    values come out as they went in. The kernel skips it where that input is false for all bodies
    of a vector.
    """

    program: Program
    trips: int
    fixed: int = 0  # inputs that stay
    carried: int = 0
    rare: bool = False

    def split(self, args: Sequence[Any]) -> tuple[list[Any], list[Any], list[list[Any]]]:
        """The arguments in three groups: fixed values, carried values, rows."""
        first = self.fixed + self.carried
        rows = [list(args[k : k + self.trips]) for k in range(first, len(args), self.trips)]
        return list(args[: self.fixed]), list(args[self.fixed : first]), rows

    def dtype(self, item: int) -> np.dtype:
        """The dtype of an item."""
        place = item if item < self.carried else self.carried + (item - self.carried) // self.trips
        return self.program.dtype(self.program.outputs[place])

    @property
    def items(self) -> int:
        """How many items there are."""
        return self.carried + (len(self.program.outputs) - self.carried) * self.trips


class Program(NamedTuple):
    """Operations on numbered values: first the inputs, then one value for each operation."""

    inputs: tuple[np.dtype, ...]
    ops: tuple[Op, ...]
    outputs: tuple[int, ...]

    def dtype(self, value: int) -> np.dtype:
        """The dtype of a value."""
        count = len(self.inputs)
        return self.inputs[value] if value < count else self.ops[value - count].dtype

    def counts(self) -> dict[str, int]:
        """How often each operation runs, most frequent first; no constants, no rare routines."""
        counts: dict[str, int] = {}
        for op in self.ops:
            if op.name == "loop":
                for name, count in op.value.program.counts().items() if not op.value.rare else ():
                    counts[name] = counts.get(name, 0) + op.value.trips * count
            elif op.name not in ("const", "item"):
                counts[op.name] = counts.get(op.name, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def zeros(self) -> list[bool]:
        """For each output whether it is the constant 0."""
        literals = [op.number if op.name == "const" else None for op in self.ops]
        known = [None] * len(self.inputs) + literals
        return [known[k] is not None and bool(known[k] == 0) for k in self.outputs]

    def routines(self) -> list[Routine]:
        """The routines of the program, each once; a routine comes after those that it contains."""
        routines: dict[Routine, None] = {}
        for op in self.ops:
            if op.name == "loop" and op.value not in routines:
                routines.update(dict.fromkeys((*op.value.program.routines(), op.value)))
        return list(routines)

    def __str__(self) -> str:
        names = {routine: f"@{k}" for k, routine in enumerate(self.routines())}
        lines = []
        for routine, name in names.items():
            counts = f"{routine.trips} trips, {routine.fixed} fixed, {routine.carried} carried"
            lines += [f"{name}: {counts}"]
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
                right += f" {op.value}" if op.name == "item" else ""
                lines.append(f"%{number}:{op.dtype} = {op.name} {right}")
        return [*lines, f"outputs {' '.join(f'%{k}' for k in self.outputs)}"]


def evaluate(program: Program, inputs: Sequence[Any]) -> list[Array]:
    """The outputs, by ``jax.lax``, with loops unrolled; the inputs may have any one shape."""
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
            args = [jnp.broadcast_to(values[a], shape) for a in op.args]
            values.append(_EVALUATE[op.name](*args))
    return [values[k] for k in program.outputs]


def _trips(routine: Routine, args: Sequence[Any]) -> list[Array]:
    """The items of a loop."""
    fixed, carried, rows = routine.split(args)
    results = []
    for k in range(routine.trips):
        outputs = evaluate(routine.program, [*fixed, *carried, *(row[k] for row in rows)])
        carried = outputs[: routine.carried]
        results.append(outputs[routine.carried :])
    return [*carried, *(x for row in zip(*results, strict=True) for x in row)]


_EVALUATE: dict[str, Callable[..., Array]] = {
    "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "rem": lax.rem,
    "neg": lax.neg, "abs": lax.abs, "sqrt": lax.sqrt, "max": lax.max, "min": lax.min,
    "sin": lax.sin, "cos": lax.cos, "tanh": lax.tanh, "exp": lax.exp, "expm1": lax.expm1,
    "log": lax.log, "log1p": lax.log1p, "atan2": lax.atan2, "pow": lax.pow, "floor": lax.floor,
    "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "fma": lambda x, y, z: lax.add(lax.mul(x, y), z), "select": lax.select,
    "eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le,
    "and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor, "not": lax.bitwise_not,
    "shl": lax.shift_left, "shr": lax.shift_right_logical, "sar": lax.shift_right_arithmetic,
}  # fmt: skip


def _whole_quotient(x: Any, y: Any) -> int:
    """The quotient of integers, towards zero; in Python's integers, as float64 has too few bits."""
    size = abs(int(x)) // abs(int(y))
    return size if (x < 0) == (y < 0) else -size


def _unsigned(x: Any) -> Any:
    return x.view(f"u{x.dtype.itemsize}")


def _signed(x: Any) -> Any:
    return x.view(f"i{x.dtype.itemsize}")


def _converted(x: Any, dtype: np.dtype) -> Any:
    """A number in another dtype, as XLA converts it.

    A float as an integer is cut towards zero, and kept within the limits of the dtype; NaN is 0.
    """
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        return x.astype(dtype)
    limits = np.iinfo(dtype)
    if np.isnan(x):
        return dtype.type(0)
    if x <= limits.min:
        return dtype.type(limits.min)
    return dtype.type(limits.max if x >= limits.max else int(x))


_FOLD: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "rem": np.fmod,
    "div": lambda x, y: x / y if x.dtype.kind == "f" else _whole_quotient(x, y),
    "neg": operator.neg, "abs": abs, "sqrt": np.sqrt, "max": np.maximum, "min": np.minimum,
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "exp": np.exp, "expm1": np.expm1,
    "log": np.log, "log1p": np.log1p, "atan2": np.arctan2, "pow": np.power, "floor": np.floor,
    "round": np.rint, "select": lambda p, x, y: x if p else y,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "not": np.invert,
    "shl": np.left_shift, "shr": lambda x, y: (_unsigned(x) >> _unsigned(y)).view(x.dtype),
    "sar": lambda x, y: (_signed(x) >> _signed(y)).view(x.dtype),
}  # fmt: skip
_COMMUTES = {"add", "mul", "and", "or", "xor", "eq", "ne"}


class Builder:
    """Appends operations, which it shares, folds and shortens (see the top of this file)."""

    def __init__(self, inputs: Sequence[np.dtype]) -> None:
        self.inputs = tuple(np.dtype(d) for d in inputs)
        self.ops: list[Op] = []
        self._known: dict[Any, int] = {}
        self._literals: dict[int, Any] = {}

    def dtype(self, value: int) -> np.dtype:
        """The dtype of a value."""
        count = len(self.inputs)
        return self.inputs[value] if value < count else self.ops[value - count].dtype

    def literal(self, value: int) -> Any:
        """The constant that a value is, or None."""
        return self._literals.get(value)

    def const(self, value: Any) -> int:
        """The value of a constant, a numpy scalar."""
        bits = value.tobytes()
        number = self._append(Op("const", value.dtype, (), bits), ("const", value.dtype, bits))
        self._literals[number] = value
        return number

    def emit(self, name: str, *args: int, dtype: Any = None) -> int:
        """The value of an operation; ``dtype`` is that of the result of "convert" and "bitcast"."""
        if dtype is None:
            dtype = np.bool_ if name in ("eq", "ne", "lt", "le") else self.dtype(args[-1])
        dtype = np.dtype(dtype)
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
        # the key has the program as text, in which 0.0 and -0.0 are two constants
        key = ("loop", args, str(routine.program), routine[1:])
        return self._append(Op("loop", np.dtype(np.void), args, routine), key)

    def item(self, loop: int, number: int) -> int:
        """One result of a loop."""
        dtype = self.ops[loop - len(self.inputs)].value.dtype(number)
        return self._append(Op("item", dtype, (loop,), number), ("item", loop, number))

    def finish(self, outputs: Sequence[int]) -> Program:
        """The program, without the operations that the outputs do not need."""
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
        """The boolean that was converted to this value, or None."""
        op = self.ops[value - len(self.inputs)] if value >= len(self.inputs) else None
        if op and op.name == "convert" and self.dtype(op.args[0]).kind == "b":
            return op.args[0]
        return None

    def _shorten(self, name: str, args: tuple[int, ...], literals: list[Any]) -> int | None:
        """An earlier value that the operation would only repeat, or None."""
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
                    neutral = bool(value) == (name == "and")
                    return other if neutral else self.const(np.bool_(name == "or"))
        return None

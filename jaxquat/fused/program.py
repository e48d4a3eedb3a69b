"""A scalar program: a typed list of scalar operations in single assignment, built with folding and sharing."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


class Op(NamedTuple):
    """One operation. ``args`` are numbers of earlier values; a constant has its ``value`` instead."""

    name: str
    dtype: np.dtype
    args: tuple[int, ...] = ()
    value: Any = None


class Program(NamedTuple):
    """Values are numbered: first the inputs, then one for each operation."""

    inputs: tuple[np.dtype, ...]
    ops: tuple[Op, ...]
    outputs: tuple[int, ...]

    def dtype(self, value: int) -> np.dtype:
        """Of a value by its number."""
        return self.inputs[value] if value < len(self.inputs) else self.ops[value - len(self.inputs)].dtype

    def counts(self) -> dict[str, int]:
        """How often each operation occurs, constants left out, most frequent first."""
        found: dict[str, int] = {}
        for op in self.ops:
            if op.name != "const":
                found[op.name] = found.get(op.name, 0) + 1
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def __str__(self) -> str:
        lines = [f"inputs {' '.join(f'%{k}:{dtype}' for k, dtype in enumerate(self.inputs))}"]
        for number, op in enumerate(self.ops, len(self.inputs)):
            right = repr(op.value.item()) if op.name == "const" else " ".join(f"%{a}" for a in op.args)
            lines.append(f"%{number}:{op.dtype} = {op.name} {right}")
        return "\n".join([*lines, f"outputs {' '.join(f'%{k}' for k in self.outputs)}"])


def evaluate(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """The outputs for inputs of any one shape, by ``jax.lax``, one operation after the other."""
    values: list[Any] = list(inputs)
    for op in program.ops:
        if op.name == "const":
            values.append(op.value)
        elif op.name == "convert":
            values.append(lax.convert_element_type(values[op.args[0]], op.dtype))
        elif op.name == "bitcast":
            values.append(lax.bitcast_convert_type(values[op.args[0]], jnp.dtype(op.dtype)))
        else:
            shape = jnp.broadcast_shapes(*(jnp.shape(values[a]) for a in op.args))
            values.append(_EVALUATE[op.name](*(jnp.broadcast_to(values[a], shape) for a in op.args)))
    return [values[k] for k in program.outputs]


_EVALUATE: dict[str, Callable[..., Array]] = {
    "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "rem": lax.rem, "neg": lax.neg, "abs": lax.abs,
    "sqrt": lax.sqrt, "sin": lax.sin, "cos": lax.cos, "tanh": lax.tanh, "exp": lax.exp, "log": lax.log, "atan2": lax.atan2,
    "floor": lax.floor, "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), "max": lax.max, "min": lax.min,
    "eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le, "and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor,
    "not": lax.bitwise_not, "select": lax.select, "shl": lax.shift_left, "shr": lax.shift_right_logical,
    "sar": lax.shift_right_arithmetic, "fma": lambda x, y, z: lax.add(lax.mul(x, y), z),
}  # fmt: skip

_FOLD: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "neg": operator.neg, "abs": abs, "sqrt": np.sqrt,
    "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "exp": np.exp, "log": np.log, "atan2": np.arctan2, "floor": np.floor,
    "round": np.rint, "max": np.maximum, "min": np.minimum, "eq": operator.eq, "ne": operator.ne, "lt": operator.lt,
    "le": operator.le, "and": operator.and_, "or": operator.or_, "xor": operator.xor, "select": lambda p, x, y: x if p else y,
    "div": lambda x, y: x / y if x.dtype.kind == "f" else np.fix(x / y), "rem": np.fmod, "not": np.invert,
}  # fmt: skip
_COMMUTES = {"add", "mul", "and", "or", "xor", "eq", "ne"}


class Builder:
    """Appends operations; the same operation on the same values is one value, operations on constants are done here."""

    def __init__(self, inputs: Sequence[np.dtype]) -> None:
        self.inputs = tuple(np.dtype(d) for d in inputs)
        self.ops: list[Op] = []
        self._known: dict[Any, int] = {}

    def dtype(self, value: int) -> np.dtype:
        """Of a value by its number."""
        return self.inputs[value] if value < len(self.inputs) else self.ops[value - len(self.inputs)].dtype

    def literal(self, value: int) -> Any:
        """The constant that a value is, or None."""
        return self.ops[value - len(self.inputs)].value if value >= len(self.inputs) else None

    def const(self, value: Any) -> int:
        """A numpy scalar."""
        return self._append(Op("const", value.dtype, (), value), ("const", value.dtype, value.tobytes()))

    def emit(self, name: str, *args: int, dtype: Any = None) -> int:
        """The value of an operation; ``dtype`` for convert and bitcast."""
        dtype = np.dtype(dtype if dtype is not None else np.bool_ if name in ("eq", "ne", "lt", "le") else self.dtype(args[-1]))
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
                ops.append(op._replace(args=tuple(new[a] for a in op.args)))
        return Program(self.inputs, tuple(ops), tuple(new[k] for k in outputs))

    def _append(self, op: Op, key: Any) -> int:
        if key not in self._known:
            self._known[key] = len(self.inputs) + len(self.ops)
            self.ops.append(op)
        return self._known[key]

    def _fold(self, name: str, dtype: np.dtype, values: list[Any]) -> Any:
        with np.errstate(all="ignore"):
            if name == "convert":
                return values[0].astype(dtype)
            if name == "bitcast":
                return values[0].view(dtype)
            if name == "div" and dtype.kind != "f" and values[1] == 0:
                return None
            return dtype.type(_FOLD[name](*values)) if name in _FOLD else None

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
                    return other if bool(value) == (name == "and") else self.const(np.bool_(name == "or"))
        return None

"""The target "C": scalar programs as functions of C99, for one member, without allocation.

A value is an expression, or an ``Element`` of an array. An operation whose value is used once may
stand within the expression that uses it; any other one gets a name. A routine of many trips is a
``for`` loop. The numbers of a loop's rows lie in arrays: those of the arguments, constant tables,
or local ones. What has a name does not change, except the carried variables of a loop, which are
set at the end of a trip.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxquat.fused.ir.builder import Builder
from jaxquat.fused.ir.elementary import EXPANSIONS
from jaxquat.fused.ir.program import Op, Program, Routine
from jaxquat.fused.targets.c_operations import (
    Element,
    Value,
    after,
    bare,
    ctype,
    function_of,
    helper,
    listed,
    literal,
    operation,
    variable_of,
)

SHORT = 26  # characters of an expression that may stand within another one
LONG = 16  # so many adjacent numbers are copied by a loop
CONSTANT = r"\(?-?\d\S*|\(?-?(NAN|INFINITY)\)?|true|false"


class File:
    """What the functions of a file share; ``own``: it has the functions of ``EXPANSIONS``."""

    def __init__(self, prefix: str, own: bool) -> None:
        self.prefix, self.own = prefix, own
        self.parts: list[str] = []  # tables and functions, each before its first use
        self.names: dict[Any, str] = {}  # of tables and functions
        self.stacks: dict[str, int] = {}  # bytes of locals of a function and of all that it calls
        self.table_bytes = 0

    def table(self, dtype: np.dtype, numbers: Sequence[Value]) -> str:
        """Return the name of an array of constants."""
        key = dtype, tuple(numbers)
        if key not in self.names:
            name = self.names[key] = f"{self.prefix}_table{len(self.names)}"
            head = f"static const {ctype(dtype)} {name}[{len(numbers)}]"
            self.parts.append("\n".join(listed(head, map(bare, numbers))))
            self.table_bytes += dtype.itemsize * len(numbers)
        return self.names[key]

    def function(self, name: str, dtype: np.dtype, source: np.dtype) -> str:
        """Return the name of a function of ``EXPANSIONS``, or of ``helper``."""
        key = name, dtype, source
        if key in self.names:
            return self.names[key]
        kinds = dict.fromkeys(x.str[1:] for x in (dtype, source))
        called = self.names[key] = "_".join([self.prefix, name, *kinds])
        if name not in EXPANSIONS:
            self.parts.append(helper(called, name, dtype, source))
            return called
        b = Builder([dtype] * (2 if name in ("atan2", "pow", "rem") else 1))
        program, body = b.finish([EXPANSIONS[name](*b.arguments)]), Body(self)
        inputs = [f"x{k}_" for k in range(len(program.inputs))]
        (result,) = body.program(program, inputs)
        body.line(f"return {bare(result)};")
        parameters = ", ".join(f"{ctype(dtype)} {x}" for x in inputs)
        self.add(called, f"static {ctype(dtype)} {called}({parameters})", body)
        return called

    def add(self, name: str, head: str, body: Body) -> None:
        """Add a function."""
        self.parts.append("\n".join([head, "{", *body.lines, "}"]))
        self.stacks[name] = body.stack + body.deepest


class Body:
    """The lines of a function."""

    def __init__(self, file: File) -> None:
        self.file, self.indent = file, "    "
        self.lines: list[str] = []
        self.stack = self.deepest = 0  # bytes of its own locals, and of what it calls
        self._numbers = itertools.count(1)
        self._arrays: dict[Any, str] = {}  # local arrays by their values

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append(self.indent + text)

    def program(self, program: Program, inputs: Sequence[Value]) -> list[Value]:
        """Write the operations of a program, and return its outputs."""
        uses = Counter(a for op in program.ops for a in op.args)
        uses.update(program.outputs)
        items = {(op.args[0], op.value) for op in program.ops if op.name == "item"}
        values: list[Any] = list(inputs)
        for number, op in enumerate(program.ops, len(inputs)):
            args, dtypes = [values[a] for a in op.args], [program.dtype(a) for a in op.args]
            if op.name == "call":
                results = self._routine(op.value, args)
                used = [x for k, x in enumerate(results) if (number, k) in items]
                for name in sorted({*map(variable_of, results)} - {*map(variable_of, used)}):
                    self.line(f"(void){name};")
                values.append(results)
            elif op.name == "item":
                values.append(args[0][op.value])
            else:
                value = self._operation(op, args, dtypes)
                values.append(self.named(op.dtype, value) if uses[number] > 1 else value)
        return [values[k] for k in program.outputs]

    def named(self, dtype: np.dtype, value: Value) -> Value:
        """Return the value without operations: a name, a constant or an element."""
        if isinstance(value, Element) or re.fullmatch(r"[\w.]+(->\w+)?|\(-[\w.]+\)", value):
            return value
        return self.variable("v", dtype, value)

    def variable(self, letter: str, dtype: np.dtype, value: Value) -> str:
        """Declare a variable, which is constant if its letter is "v"."""
        name, const = self._name(letter), "const " if letter == "v" else ""
        self.line(f"{const}{ctype(dtype)} {name} = {bare(value)};")
        self.stack += dtype.itemsize
        return name

    def array(self, dtype: np.dtype, length: int) -> str:
        """Declare an array without values."""
        name = self._name("r")
        self.line(f"{ctype(dtype)} {name}[{length}];")
        self.stack += dtype.itemsize * length
        return name

    def copy(self, target: Value, source: Value, length: int) -> None:
        """Copy adjacent numbers."""
        if length >= LONG and isinstance(target, Element) and isinstance(source, Element):
            with self._loop(length) as k:
                self.line(f"{target.at(k)} = {source.at(k)};")
            return
        for k in range(length):
            self.line(f"{after(target, k)} = {bare(after(source, k))};")

    def _name(self, letter: str) -> str:
        return f"{letter}{next(self._numbers)}_"

    def _row(self, dtype: np.dtype, values: Sequence[Value]) -> tuple[Element, int]:
        """Return the first element of a row of values in an array, and their distance."""
        first, second = (*values, "", "")[:2]
        if isinstance(first, Element) and isinstance(second, Element):
            step = second.number - first.number
            places = [Element(first.base, first.number + k * step) for k in range(len(values))]
            if [*values] == places:
                return first, step
        return Element(self._packed(dtype, values), 0), 1

    def _packed(self, dtype: np.dtype, values: Sequence[Value]) -> str:
        """Return the name of a local array of these values."""
        if all(re.fullmatch(CONSTANT, str(x)) for x in values):
            return self.file.table(dtype, values)
        key = dtype, tuple(values)
        if key not in self._arrays:
            name = self._arrays[key] = self._name("r")
            head = f"const {ctype(dtype)} {name}[{len(values)}]"
            self.lines += [self.indent + line for line in listed(head, map(bare, values))]
            self.stack += dtype.itemsize * len(values)
        return self._arrays[key]

    @contextlib.contextmanager
    def _block(self, head: str) -> Iterator[None]:
        """Surround lines by braces; arrays declared within are not known after it."""
        indent, arrays = self.indent, dict(self._arrays)
        self.line(f"{head} {{")
        self.indent += "    "
        yield
        self.indent, self._arrays = indent, arrays
        self.line("}")

    @contextlib.contextmanager
    def _loop(self, trips: int) -> Iterator[str]:
        k = self._name("k")
        with self._block(f"for (int32_t {k} = 0; {k} < {trips}; {k}++)"):
            yield k

    def _operation(self, op: Op, args: Sequence[Value], dtypes: Sequence[np.dtype]) -> str:
        if op.name == "const":
            return literal(op.number)
        if op.name == "take":
            first, step = self._row(op.dtype, args[1:])
            return first.at(str(self.named(dtypes[0], args[0])), step)
        if op.name == "select" and args[0] == "true":
            return str(args[1])
        short = [
            str(x if len(str(x)) <= SHORT else self.named(dtype, x))
            for dtype, x in zip(dtypes, args, strict=True)
        ]
        needed = function_of(op, dtypes[-1], self.file.own)
        if needed is None:
            return operation(op, short, dtypes[-1])
        called = self.file.function(*needed)
        self.deepest = max(self.deepest, self.file.stacks.get(called, 0))
        return f"{called}({', '.join(map(bare, short))})"

    def _routine(self, routine: Routine, args: Sequence[Value]) -> list[Value]:
        dtypes, n, m = routine.program.inputs, routine.fixed, routine.carried
        if routine.kind == "loop" and routine.trips == 1:
            results = self.program(routine.program, args)
            return [self.named(routine.dtype(k), x) for k, x in enumerate(results)]
        fixed, starts, rows = routine.split(args)
        fixed = [self.named(d, x) for d, x in zip(dtypes, fixed, strict=False)]
        sources = [self._row(d, x) for d, x in zip(dtypes[n + m :], rows, strict=True)]
        carried = [self.variable("c", d, x) for d, x in zip(dtypes[n:], starts, strict=False)]
        if routine.kind != "loop":
            head = f"while ({carried[0]})" if routine.kind == "while" else f"if ({fixed[0]})"
            inputs = fixed if routine.kind == "while" else ["true", *fixed[1:]]
            with self._block(head):
                self._set(carried, routine, self.program(routine.program, [*inputs, *carried]))
            return [*carried]
        firsts = range(m, routine.items, routine.trips)
        targets = [self.array(routine.dtype(k), routine.trips) for k in firsts]
        with self._loop(routine.trips) as k:
            inputs = [*fixed, *carried, *(first.at(k, step) for first, step in sources)]
            results = self.program(routine.program, inputs)
            for target, result in zip(targets, results[m:], strict=True):
                self.line(f"{target}[{k}] = {bare(result)};")
            self._set(carried, routine, results[:m])
        return [*carried, *(Element(r, k) for r in targets for k in range(routine.trips))]

    def _set(self, carried: Sequence[str], routine: Routine, results: Sequence[Value]) -> None:
        """Set the carried variables; values made of those that are set before get names first."""
        new, past = [], "$"
        for k, (name, x) in enumerate(zip(carried, results, strict=True)):
            depends = re.search(past, str(x))
            new.append(self.variable("v", routine.dtype(k), x) if depends else x)
            past += rf"|\b{name}\b"
        for name, x in zip(carried, new, strict=True):
            if name != x:
                self.line(f"{name} = {bare(x)};")

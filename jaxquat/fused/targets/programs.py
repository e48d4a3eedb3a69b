"""Scalar programs as lines of LLVM; a routine of many trips is a loop, of one a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxquat.fused.ir.operations import OPERATIONS
from jaxquat.fused.ir.program import Op, Program, Routine
from jaxquat.fused.targets.memory import Cell, Memory
from jaxquat.fused.targets.text import Index, Text

ROW = 4  # at least this many adjacent arguments are passed as a pointer


class _Passed(NamedTuple):
    """How arguments are passed to a function: one by value, or a row by a pointer."""

    dtype: np.dtype
    length: int = 0  # of a row
    kind: str = ""  # of the places of a row
    pitch: Index | None = None  # None if the kernel computes it; then it is passed too


class Programs(Memory):
    """Writes scalar programs into a function."""

    def program(
        self, program: Program, inputs: Sequence[str | Cell], targets: Sequence[Cell] = ()
    ) -> list[str]:
        """Return the names of the outputs, or write them, and rows of loops, to ``targets``."""
        # names that are read or written inside a loop or a branch are not defined after it
        places, loaded = dict(self.places), dict(self.loaded)
        outputs = list(zip(program.outputs, targets, strict=False))
        values = self._values(program, inputs, dict(reversed(outputs)))
        names = [] if targets else [self.value(values[k]) for k in program.outputs]
        for k, target in outputs:
            if values[k] != target:
                self.write_to(target, self.value(values[k]))
        kept = {x: self.places[x] for x in names if x in self.places}
        self.places, self.loaded = {**places, **kept}, loaded
        return names

    def _values(
        self, program: Program, inputs: Sequence[str | Cell], target_of: dict[int, Cell]
    ) -> list[Any]:
        """Return all values of a program; ``target_of`` has places of outputs by number."""
        values: list[Any] = list(inputs)
        operations = list(enumerate(program.ops, len(inputs)))
        items = {(op.args[0], op.value): number for number, op in operations if op.name == "item"}
        for number, op in operations:
            args, dtypes = [values[a] for a in op.args], [program.dtype(a) for a in op.args]
            if op.name == "call":
                numbers = [items.get((number, item), -1) for item in range(op.value.items)]
                wanted = [target_of.get(item) for item in numbers]
                values.append(self._routine(op.value, args, wanted))
            elif op.name == "item":
                values.append(args[0][op.value])
            elif op.name == "take":
                values.append(self.taken(self.value(args[0]), *self.row(op.dtype, args[1:])))
            else:
                values.append(_operation(self, op, [self.value(x) for x in args], dtypes))
        return values

    def _routine(
        self, routine: Routine, args: Sequence[str | Cell], wanted: Sequence[Cell | None]
    ) -> Sequence[str | Cell]:
        if routine.kind in ("branch", "seldom", "rare"):
            return self._branch(routine, args)
        if routine.kind == "while":
            return self._while(routine, args)
        if routine.trips == 1:
            return self._call(routine, args)
        return self._loop(routine, args, wanted)

    def _loop(
        self, routine: Routine, args: Sequence[str | Cell], wanted: Sequence[Cell | None]
    ) -> list[str | Cell]:
        program, trips, n = routine.program, routine.trips, routine.carried
        fixed, starts, rows = routine.split(args)
        kinds = program.inputs[routine.fixed + n :]
        sources = [self.row(dtype, row) for dtype, row in zip(kinds, rows, strict=True)]
        carried = self._slots(program.inputs[routine.fixed :][:n], starts)
        targets = self._targets(routine, wanted)
        with self.loop(trips) as trip:
            values = [self.read_from(place) for place in carried]
            values += [self.read_from(place, trip * stride) for place, stride in sources]
            results = self.program(program, [*fixed, *values])
            self._set(carried, results[:n])
            for (place, stride), value in zip(targets, results[n:], strict=True):
                self.write_to(place, value, trip * stride)
        items = [
            place._replace(element=place.element + k * stride)
            for place, stride in targets
            for k in range(trips)
        ]
        return [*(self.read_from(place) for place in carried), *items]

    def _targets(self, routine: Routine, wanted: Sequence[Cell | None]) -> list[tuple[Cell, int]]:
        """Return place and stride of each row of results; rows not ``wanted`` share a buffer."""
        firsts = range(routine.carried, routine.items, routine.trips)
        targets: dict[int, Any] = {k: self.regular(wanted[k : k + routine.trips]) for k in firsts}
        missing = {k: routine.dtype(k) for k, target in targets.items() if target is None}
        if missing:
            buffer = self.buffer([*missing.values()], len(missing) * routine.trips)
            for number, (k, dtype) in enumerate(missing.items()):
                targets[k] = buffer._replace(dtype=dtype, element=number), len(missing)
        return list(targets.values())

    def _slots(self, dtypes: Sequence[np.dtype], values: Sequence[str | Cell]) -> list[Cell]:
        slots = [self.slot(dtype) for dtype in dtypes]
        self._set(slots, values)
        return slots

    def _set(self, places: Sequence[Cell], values: Sequence[str | Cell]) -> None:
        for place, value in zip(places, values, strict=True):
            self.write_to(place, self.value(value))

    def _branch(self, routine: Routine, args: Sequence[str | Cell]) -> list[str | Cell]:
        """Write a branch, taken if the first argument is true for any member; a rare one apart."""
        names, rare = [self.value(x) for x in args], routine.kind == "rare"
        carried = self._slots(routine.program.inputs[routine.fixed :], names[routine.fixed :])
        with self.when(self.any(names[0]), rarely=routine.kind != "branch"):
            if rare:
                results = [self.read_from(x) for x in self._call(routine, names)]
            else:
                results = self.program(routine.program, names)
            self._set(carried, results)
        return [self.read_from(place) for place in carried]

    def _while(self, routine: Routine, args: Sequence[str | Cell]) -> list[str | Cell]:
        fixed, starts, _ = routine.split(args)
        carried = self._slots(routine.program.inputs[routine.fixed :], starts)
        with self.repeat(lambda: self.any(self.read_from(carried[0]))):
            values = [self.read_from(place) for place in carried]
            self._set(carried, self.program(routine.program, [*fixed, *values]))
        return [self.read_from(place) for place in carried]

    def _call(self, routine: Routine, args: Sequence[str | Cell]) -> Sequence[Cell]:
        passed, values, k, dtypes = [], [], 0, routine.program.inputs
        while k < len(args):
            row = self._row_from(args, k)
            if len(row) < ROW:
                passed.append(_Passed(dtypes[k]))
                value = self.pack(dtypes[k], self.value(args[k]))
                values.append(f"{self.packed(dtypes[k])} {value}")
            else:
                passed.append(self._by_pointer(row[0], len(row), values))
            k += max(1, passed[-1].length)
        results = [routine.dtype(item) for item in range(routine.items)]
        out = self.buffer(results, len(results))
        passed.append(self._by_pointer(out, len(results), values))
        key, routines = (routine, tuple(passed)), self.module.routines
        if key not in routines:
            routines[key] = f"@routine{len(routines)}"
            self._function(routines[key], routine, passed)
        self.line(f"call fastcc void {routines[key]}({', '.join(['ptr %scratch', *values])})")
        return [out._replace(dtype=dtype, element=item) for item, dtype in enumerate(results)]

    def _by_pointer(self, first: Cell, length: int, values: list[str]) -> _Passed:
        """Add to ``values`` a pointer to a row, and the pitch if the kernel computes it."""
        known = isinstance(first.pitch, int)
        values += [f"ptr {self.address(first)}", *([] if known else [f"i64 {first.pitch}"])]
        return _Passed(first.dtype, length, first.kind, first.pitch if known else None)

    def _row_from(self, values: Sequence[str | Cell], k: int) -> list[Cell]:
        first, row = self.place(values[k]), []
        while first and k < len(values) and self.place(values[k]) == first:
            row.append(first)
            first, k = first._replace(element=first.element + 1), k + 1
        return row

    def _function(self, name: str, routine: Routine, passed: Sequence[_Passed]) -> None:
        """Write the function of a routine; ``passed``: its arguments, then the row of results."""
        w = Programs(self.module)
        parameters, values = ["ptr %scratch"], []
        for number, (dtype, length, kind, pitch) in enumerate(passed):
            if not length:
                parameters.append(f"{w.packed(dtype)} %x{number}")
                values.append(w.unpacked(dtype, f"%x{number}"))
                continue
            noalias = " noalias" if number == len(passed) - 1 else ""
            parameters.append(f"ptr{noalias} %x{number}")
            if pitch is None:
                pitch = w.number(f"%pitch{number}")
                parameters.append(f"i64 {pitch}")
            values += [Cell(dtype, f"%x{number}", k, pitch, kind) for k in range(length)]
        inputs, places = values[: -routine.items], values[-routine.items :]
        places = [x._replace(dtype=routine.dtype(item)) for item, x in enumerate(places)]
        w.program(routine.program, inputs, places)
        kind = "noinline cold" if routine.kind == "rare" else "noinline"
        head = f"internal fastcc void {name}({', '.join(parameters)}) {kind} #0"
        self.module.functions.append(w.function(head))


def _operation(text: Text, op: Op, args: list[str], kinds: list[np.dtype]) -> str:
    """Return the name of the result of one operation; ``kinds``: the dtypes of its arguments."""
    name, dtype = op.name, op.dtype
    if name == "const":
        return text.constant(dtype, op.number)
    real, unsigned = kinds[-1].kind == "f", kinds[-1].kind in "ub"
    width = 1 if kinds[-1].kind == "b" else 8 * kinds[-1].itemsize
    kind, suffix = text.vector(kinds[-1]), f"v{text.lanes}{'f' if real else 'i'}{width}"
    if name == "select":
        mask = f"{text.vector(kinds[0])} {args[0]}"
        return text.set(f"select {mask}, {kind} {args[1]}, {kind} {args[2]}")
    if name in OPERATIONS:
        instructions = OPERATIONS[name].llvm
        assert instructions is not None
        instruction = instructions[0 if real else 2 if unsigned else 1]
        if "." in instruction:
            return text.call(kind, f"{instruction}.{suffix}", [(kind, a) for a in args])
        return text.set(f"{instruction} {kind} {', '.join(args)}")
    if name == "bitcast":
        return text.set(f"bitcast {kind} {args[0]} to {text.vector(dtype)}")
    if name == "convert":
        return _convert(text, dtype, kinds[0], args[0])
    raise AssertionError(name)


def _convert(text: Text, dtype: np.dtype, old: np.dtype, value: str) -> str:
    source, target = text.vector(old), text.vector(dtype)
    if old.kind == "f" and dtype.kind != "f":
        sense = "fptoui" if dtype.kind == "u" else "fptosi"
        integers, floats = f"i{8 * dtype.itemsize}", f"f{8 * old.itemsize}"
        name = f"llvm.{sense}.sat.v{text.lanes}{integers}.v{text.lanes}{floats}"
        return text.call(target, name, [(source, value)])
    if dtype.kind == "f" and old.kind != "f":
        word = "sitofp" if old.kind == "i" else "uitofp"
    elif old.kind == "b" or dtype.itemsize > old.itemsize:
        word = {"f": "fpext", "i": "sext"}.get(old.kind, "zext")
    elif dtype.itemsize < old.itemsize:
        word = "fptrunc" if old.kind == "f" else "trunc"
    else:
        return value
    return text.set(f"{word} {source} {value} to {target}")

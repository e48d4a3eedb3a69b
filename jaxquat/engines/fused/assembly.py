"""Kernels as LLVM assembly: lanes of bodies in vectors, the whole time loop for one vector after the other, on several threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxquat.engines.fused.elementary import expand
from jaxquat.engines.fused.kernel import Leaf, Loop
from jaxquat.engines.fused.program import Op, Program, Routine

STACK = 2**18  # bytes of a thread's stack for arrays; what is beyond lies in the scratch memory
FLAGS = "contract"  # a product and a sum may become one operation, nothing else changes


def _scalar(dtype: np.dtype) -> str:
    return {"f4": "float", "f8": "double", "b1": "i1"}.get(dtype.str[1:], f"i{8 * dtype.itemsize}")


def _stored(dtype: np.dtype) -> str:
    return "i8" if dtype.kind == "b" else _scalar(dtype)


def _literal(dtype: np.dtype, value: Any) -> str:
    if dtype.kind == "f":
        return f"0x{np.float64(value).view(np.uint64):016X}"
    return ("true" if value else "false") if dtype.kind == "b" else str(int(value))


class _Place(NamedTuple):
    """A value in memory."""

    dtype: np.dtype
    base: str  # a pointer
    element: int
    pitch: int | str  # bytes from one element to the next
    kind: str  # "one" number for all lanes, "lanes" of an operand, a "slot" of our own


class _Trip(NamedTuple):
    """Of a loop: the number of the trip, what is carried into it, what out of it."""

    trip: str
    carried: list[str]
    after: list[str]


class _Writer:
    """Collects the lines of one function; values are names with the vector type of their dtype, or places not yet read."""

    def __init__(self, lanes: int, outer: _Writer | None = None) -> None:
        self.lanes, self.count, self.block = lanes, 0, "entry"
        self.entry: list[str] = []  # memory of the function, before all lines
        self.lines: list[str] = []
        self.declared: set[str] = outer.declared if outer else set()
        self.routines: dict[Any, str] = (
            outer.routines if outer else {}
        )  # name by routine and how arguments are passed
        self.functions: list[str] = outer.functions if outer else []
        self.whole: _Writer = outer.whole if outer else self  # of the kernel
        self.stack, self.scratch = (
            0,
            0,
        )  # bytes of each thread: on its stack, and beside it, from %scratch on
        self.places: dict[str, _Place] = {}  # of names that are in memory too
        self.loaded: dict[_Place, str] = {}

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        self.block = name
        self.lines.append(f"{name}:")

    def set(self, text: str) -> str:
        name = self.name()
        self.line(f"{name} = {text}")
        return name

    def vector(self, dtype: np.dtype) -> str:
        return f"<{self.lanes} x {_scalar(dtype)}>"

    def splat(self, dtype: np.dtype, scalar: str) -> str:
        kind = self.vector(dtype)
        first = self.set(f"insertelement {kind} poison, {_scalar(dtype)} {scalar}, i32 0")
        return self.set(
            f"shufflevector {kind} {first}, {kind} poison, <{self.lanes} x i32> zeroinitializer"
        )

    def constant(self, dtype: np.dtype, value: object) -> str:
        one = f"{_scalar(dtype)} {_literal(dtype, value)}"
        return f"<{', '.join([one] * self.lanes)}>"

    def load(self, dtype: np.dtype, pointer: str, batched: bool) -> str:
        """Of the lanes at ``pointer``, or one value for all of them."""
        if batched:
            return self.unpacked(
                dtype, self.set(f"load {self.packed(dtype)}, ptr {pointer}, align {dtype.itemsize}")
            )
        value = self.set(f"load {_stored(dtype)}, ptr {pointer}, align {dtype.itemsize}")
        return self.splat(
            dtype, self.set(f"trunc i8 {value} to i1") if dtype.kind == "b" else value
        )

    def store(self, dtype: np.dtype, value: str, pointer: str) -> None:
        self.line(
            f"store {self.packed(dtype)} {self.pack(dtype, value)}, ptr {pointer}, align {dtype.itemsize}"
        )

    def packed(self, dtype: np.dtype) -> str:
        """The type of a vector in memory and as an argument, where booleans are bytes: LLVM 22 can end the process over a mask."""
        return f"<{self.lanes} x {_stored(dtype)}>"

    def pack(self, dtype: np.dtype, value: str) -> str:
        return (
            self.set(f"zext {self.vector(dtype)} {value} to {self.packed(dtype)}")
            if dtype.kind == "b"
            else value
        )

    def unpacked(self, dtype: np.dtype, value: str) -> str:
        return (
            self.set(f"trunc {self.packed(dtype)} {value} to {self.vector(dtype)}")
            if dtype.kind == "b"
            else value
        )

    def call(self, result: str, function: str, arguments: Sequence[tuple[str, str]]) -> str:
        self.declared.add(
            f"declare {result} @{function}({', '.join(kind for kind, _ in arguments)})"
        )
        flags = f"{FLAGS} " if "float" in result or "double" in result else ""
        return self.set(
            f"call {flags}{result} @{function}({', '.join(f'{kind} {value}' for kind, value in arguments)})"
        )

    def program(
        self, program: Program, inputs: Sequence[str | _Place], into: _Place | None = None
    ) -> list[str]:
        """The values of the outputs, or what writes them to the places from ``into`` on."""
        before = (
            dict(self.places),
            dict(self.loaded),
        )  # what is read or written in a loop or a branch is not there after it
        values: list[Any] = list(inputs)
        wanted = (
            {k: number for number, k in reversed(list(enumerate(program.outputs)))} if into else {}
        )
        items = {
            (op.args[0], op.value): number
            for number, op in enumerate(program.ops, len(inputs))
            if op.name == "item"
        }
        written = set()
        for number, op in enumerate(program.ops, len(inputs)):
            given = [values[a] for a in op.args]
            if op.name == "loop":
                rows = [
                    wanted.get(items.get((number, k), -1))
                    for k in range(op.value.carried, op.value.items)
                ]
                values.append(
                    self._loop(op.value, [program.dtype(a) for a in op.args], given, into, rows)
                )
            elif op.name == "item":
                values.append(given[0][op.value])
                if (
                    into
                    and number in wanted
                    and values[-1]
                    == into._replace(dtype=op.dtype, element=into.element + wanted[number])
                ):
                    written.add(wanted[number])
            else:
                kinds = [program.dtype(a) for a in op.args]
                values.append(self._operation(op, [self.value(x) for x in given], kinds))
        found = [] if into else [self.value(values[k]) for k in program.outputs]
        for number, k in enumerate(program.outputs if into else ()):
            if into and number not in written:
                self.write_to(
                    into._replace(dtype=program.dtype(k), element=into.element + number),
                    self.value(values[k]),
                )
        self.places, self.loaded = (
            {**before[0], **{x: self.places[x] for x in found if x in self.places}},
            before[1],
        )
        return found

    def value(self, x: str | _Place) -> str:
        """A name, read from memory once."""
        if isinstance(x, str):
            return x
        if x not in self.loaded:
            self.loaded[x] = self.read_from(x)
            self.places[self.loaded[x]] = x
        return self.loaded[x]

    def read_from(self, place: _Place, stride: int = 0, trip: str = "0") -> str:
        """What lies ``trip`` times ``stride`` places after a place."""
        at = self.address(place, stride, trip)
        if place.kind != "slot":
            return self.load(place.dtype, at, place.kind == "lanes")
        return self.set(
            f"load {self.vector(place.dtype)}, ptr {at}, align {self.aligned(place.dtype)}"
        )

    def write_to(self, place: _Place, value: str, stride: int = 0, trip: str = "0") -> None:
        """To a slot."""
        at = self.address(place, stride, trip)
        self.line(
            f"store {self.vector(place.dtype)} {value}, ptr {at}, align {self.aligned(place.dtype)}"
        )

    def address(self, place: _Place, stride: int, trip: str) -> str:
        if isinstance(place.pitch, int):
            at = str(place.element * place.pitch)
            if stride:
                at = self.set(
                    f"add i64 {self.set(f'mul i64 {trip}, {stride * place.pitch}')}, {at}"
                )
        else:
            index = str(place.element)
            if stride:
                index = self.set(f"add i64 {self.set(f'mul i64 {trip}, {stride}')}, {index}")
            at = self.set(f"mul i64 {index}, {place.pitch}")
        return (
            self.set(f"getelementptr i8, ptr {place.base}, i64 {at}") if at != "0" else place.base
        )

    def aligned(self, dtype: np.dtype) -> int:
        return max(1, min(64, self.lanes * dtype.itemsize // (8 if dtype.kind == "b" else 1)))

    def buffer(self, dtypes: Sequence[np.dtype], count: int) -> _Place:
        """Memory of the function for ``count`` values of any of the dtypes; no function is entered twice at a time."""
        pitch = self.lanes * max(dtype.itemsize for dtype in dtypes)
        return _Place(dtypes[0], self.reserve(count * pitch), 0, pitch, "slot")

    def reserve(self, size: int) -> str:
        """Where memory of the function begins that nothing else uses."""
        name, whole = self.name(), self.whole
        if whole.stack + size <= STACK:
            whole.stack += size
            self.entry.append(f"  {name} = alloca [{size} x i8], align 64")
        else:
            self.entry.append(f"  {name} = getelementptr i8, ptr %scratch, i64 {whole.scratch}")
            whole.scratch += -(-size // 64) * 64
        return name

    def place(self, x: str | _Place) -> _Place | None:
        return self.places.get(x) if isinstance(x, str) else x

    def row(self, dtype: np.dtype, values: Sequence[str | _Place]) -> tuple[_Place, int]:
        """Where the first value lies and how far it is from each to the next; brought into line if they do not lie so."""
        places = [self.place(x) for x in values]
        first, second = places[:2]
        if first and second:
            stride = second.element - first.element
            if all(
                p == first._replace(element=first.element + k * stride)
                for k, p in enumerate(places)
            ):
                return first, stride
        buffer = self.buffer([dtype], len(values))
        for k, x in enumerate(values):
            name, place = self.value(x), buffer._replace(element=k)
            self.write_to(place, name)
            self.places[name] = place
        return buffer, 1

    @contextlib.contextmanager
    def repeated(self, count: int, carried: Sequence[tuple[str, str]] = ()) -> Iterator[_Trip]:
        """A loop around the lines that follow. ``carried``: type and first value of each."""
        label = self.name()[1:]
        self.line(f"br label %{label}_before")
        self.label(f"{label}_before")
        self.line(f"br label %{label}")
        self.label(label)
        trip, after, place = f"%{label}_trip", f"%{label}_next", len(self.lines) + 1
        self.line(f"{trip} = phi i64 [ 0, %{label}_before ], [ {after}, %{label}_end ]")
        loop = _Trip(trip, [f"%{label}_{k}" for k in range(len(carried))], [])
        yield loop
        self.line(f"br label %{label}_end")
        self.label(f"{label}_end")
        for name, (kind, start), end in zip(loop.carried, carried, loop.after, strict=True):
            self.lines.insert(
                place,
                f"  {name} = phi {kind} [ {start}, %{label}_before ], [ {end}, %{label}_end ]",
            )
        self.line(f"{after} = add i64 {trip}, 1")
        self.line(
            f"br i1 {self.set(f'icmp ult i64 {after}, {count}')}, label %{label}, label %{label}_after"
        )
        self.label(f"{label}_after")

    def _loop(
        self,
        routine: Routine,
        dtypes: Sequence[np.dtype],
        args: Sequence[Any],
        into: _Place | None,
        wanted: list[int | None],
    ) -> list[str | _Place]:
        """The items. ``wanted``: which output of the program, to be written from ``into`` on, each value of the rows is."""
        if routine.rare:
            return self._rare(routine, dtypes, args)
        if routine.trips == 1:
            return self._call(routine, dtypes, args)
        fixed, carried, rows = routine.split(args)
        program, trips = routine.program, routine.trips
        kinds = program.inputs[routine.fixed + routine.carried :]
        given = [self.row(dtype, row) for dtype, row in zip(kinds, rows, strict=True)]
        starts = [self.value(x) for x in carried]
        made: list[tuple[_Place, int]] = []
        for j, k in enumerate(program.outputs[routine.carried :]):
            there = wanted[j * trips : (j + 1) * trips]
            first, stride = there[0], (there[1] or 0) - (there[0] or 0)
            if (
                into
                and first is not None
                and there == [first + i * stride for i in range(trips)]
                and stride
            ):
                made.append(
                    (into._replace(dtype=program.dtype(k), element=into.element + first), stride)
                )
            else:
                made.append((self.buffer([program.dtype(k)], trips), 1))
        first = routine.fixed
        kinds = [self.vector(dtype) for dtype in program.inputs[first : first + routine.carried]]
        with self.repeated(trips, list(zip(kinds, starts, strict=True))) as loop:
            values = [self.read_from(place, stride, loop.trip) for place, stride in given]
            found = self.program(program, [*fixed, *loop.carried, *values])
            loop.after.extend(found[: routine.carried])
            for (place, stride), value in zip(made, found[routine.carried :], strict=True):
                self.write_to(place, value, stride, loop.trip)
        rows = [
            place._replace(element=place.element + i * stride)
            for place, stride in made
            for i in range(trips)
        ]
        return [*found[: routine.carried], *rows]

    def _rare(
        self, routine: Routine, dtypes: Sequence[np.dtype], args: Sequence[Any]
    ) -> list[str | _Place]:
        """A call where the first argument holds for a body of the vector; a branch that is seldom taken."""
        names = [self.value(x) for x in args]
        flag = self.vector(dtypes[0])
        known = f"declare i1 @llvm.vector.reduce.or.v{self.lanes}i1({flag})"
        self.declared.add(known)
        some = self.set(f"call i1 @llvm.vector.reduce.or.v{self.lanes}i1({flag} {names[0]})")
        label, before = self.name()[1:], self.block
        self.line(f"br i1 {some}, label %{label}_rare, label %{label}_after, !prof !0")
        self.label(f"{label}_rare")
        results = [
            x if isinstance(x, str) else self.read_from(x)
            for x in self._call(routine, dtypes, names)
        ]
        self.line(f"br label %{label}_after")
        self.label(f"{label}_after")
        kinds = [self.vector(dtype) for dtype in dtypes[routine.fixed :]]
        others = names[routine.fixed :]
        return [
            self.set(f"phi {kind} [ {new}, %{label}_rare ], [ {old}, %{before} ]")
            for kind, new, old in zip(kinds, results, others, strict=True)
        ]

    def _call(
        self, routine: Routine, dtypes: Sequence[np.dtype], args: Sequence[Any]
    ) -> list[str | _Place]:
        """By a function of its own, which reads long rows of arguments where they lie and writes its results to memory."""
        layout: list[tuple[Any, ...]] = []
        passed: list[str] = []
        k = 0
        while k < len(args):
            first = self.place(args[k])
            count = 1
            while (
                first
                and k + count < len(args)
                and self.place(args[k + count]) == first._replace(element=first.element + count)
            ):
                count += 1
            if first and count >= 4:
                layout.append(
                    (
                        first.dtype,
                        count,
                        first.kind,
                        first.pitch if isinstance(first.pitch, int) else None,
                    )
                )
                passed.append(f"ptr {self.address(first, 0, '0')}")
                passed += [] if isinstance(first.pitch, int) else [f"i64 {first.pitch}"]
            else:
                count = 1
                layout.append((dtypes[k],))
                passed.append(
                    f"{self.packed(dtypes[k])} {self.pack(dtypes[k], self.value(args[k]))}"
                )
            k += count
        key = routine, tuple(layout)
        if key not in self.routines:
            self.routines[key] = f"@routine{len(self.routines)}"
            self._function(self.routines[key], routine, layout)
        into = self.buffer([routine.dtype(j) for j in range(routine.items)], routine.items)
        self.line(
            f"call fastcc void {self.routines[key]}({', '.join(['ptr %scratch', f'ptr {into.base}', *passed])})"
        )
        return [into._replace(dtype=routine.dtype(j), element=j) for j in range(routine.items)]

    def _function(self, name: str, routine: Routine, layout: list[tuple[Any, ...]]) -> None:
        w = _Writer(self.lanes, self)
        wanted, inputs = ["ptr %scratch", "ptr noalias %out"], []
        for number, (dtype, *row) in enumerate(layout):
            if not row:
                wanted.append(f"{w.packed(dtype)} %x{number}")
                inputs.append(w.unpacked(dtype, f"%x{number}"))
            else:
                count, kind, pitch = row
                wanted += [
                    f"ptr %x{number}",
                    *([] if pitch is not None else [f"i64 %pitch{number}"]),
                ]
                first = _Place(
                    dtype, f"%x{number}", 0, f"%pitch{number}" if pitch is None else pitch, kind
                )
                inputs += [first._replace(element=k) for k in range(count)]
        dtypes = [routine.dtype(j) for j in range(routine.items)]
        into = _Place(
            dtypes[0], "%out", 0, self.lanes * max(dtype.itemsize for dtype in dtypes), "slot"
        )
        w.program(routine.program, inputs, into)
        body = "\n".join(["entry:", *w.entry, *w.lines, "  ret void"])
        kind = "noinline cold" if routine.rare else "noinline"
        self.functions.append(
            f"define internal fastcc void {name}({', '.join(wanted)}) {kind} #0 {{\n{body}\n}}"
        )

    def _operation(self, op: Op, args: list[str], kinds: list[np.dtype]) -> str:
        name, dtype = op.name, op.dtype
        if name == "const":
            return self.constant(dtype, op.number)
        width = 1 if kinds[-1].kind == "b" else 8 * kinds[-1].itemsize
        kind, suffix = (
            self.vector(kinds[-1]),
            f"v{self.lanes}{'f' if kinds[-1].kind == 'f' else 'i'}{width}",
        )
        real, unsigned = kinds[-1].kind == "f", kinds[-1].kind in "ub"
        if name in _BINARY:
            word = _BINARY[name][0 if real else 2 if unsigned else 1]
            return self.set(f"{word} {kind} {args[0]}, {args[1]}")
        if name in _COMPARISONS:
            word = _COMPARISONS[name][0 if real else 2 if unsigned else 1]
            return self.set(f"{word} {kind} {args[0]}, {args[1]}")
        if name == "select":
            return self.set(
                f"select {self.vector(kinds[0])} {args[0]}, {kind} {args[1]}, {kind} {args[2]}"
            )
        if name == "neg":
            return self.set(
                f"fneg {kind} {args[0]}" if real else f"sub {kind} zeroinitializer, {args[0]}"
            )
        if name == "not":
            return self.set(
                f"xor {kind} {args[0]}, splat ({_scalar(dtype)} {'true' if dtype.kind == 'b' else -1})"
            )
        if name in ("max", "min"):
            word = (
                ("maximum", "minimum")
                if real
                else ("umax", "umin")
                if unsigned
                else ("smax", "smin")
            )
            return self.call(
                kind, f"llvm.{word[name == 'min']}.{suffix}", [(kind, a) for a in args]
            )
        if name == "abs" and not real:
            return self.call(kind, f"llvm.abs.{suffix}", [(kind, args[0]), ("i1", "false")])
        if name in _INTRINSICS:
            return self.call(kind, f"llvm.{_INTRINSICS[name]}.{suffix}", [(kind, a) for a in args])
        if name == "bitcast":
            return self.set(f"bitcast {kind} {args[0]} to {self.vector(dtype)}")
        if name == "convert":
            return self._convert(dtype, kinds[0], args[0])
        raise AssertionError(name)

    def _convert(self, dtype: np.dtype, old: np.dtype, value: str) -> str:
        source, target = self.vector(old), self.vector(dtype)
        if dtype.kind == "f":
            if old.kind == "f":
                word = "fpext" if dtype.itemsize > old.itemsize else "fptrunc"
            else:
                word = "sitofp" if old.kind == "i" else "uitofp"
            return self.set(f"{word} {source} {value} to {target}")
        if old.kind == "f":
            sense = "fptoui" if dtype.kind == "u" else "fptosi"
            short = f"v{self.lanes}{{}}{{}}"
            name = f"llvm.{sense}.sat.{short.format('i', 8 * dtype.itemsize)}.{short.format('f', 8 * old.itemsize)}"
            return self.call(target, name, [(source, value)])
        if old.kind == "b" or dtype.itemsize > old.itemsize:
            return self.set(f"{'sext' if old.kind == 'i' else 'zext'} {source} {value} to {target}")
        return (
            self.set(f"trunc {source} {value} to {target}")
            if dtype.itemsize < old.itemsize
            else value
        )


_BINARY = {
    "add": (f"fadd {FLAGS}", "add", "add"), "sub": (f"fsub {FLAGS}", "sub", "sub"), "mul": (f"fmul {FLAGS}", "mul", "mul"),
    "div": (f"fdiv {FLAGS}", "sdiv", "udiv"), "rem": ("frem", "srem", "urem"), "and": ("and",) * 3, "or": ("or",) * 3,
    "xor": ("xor",) * 3, "shl": ("shl",) * 3, "shr": ("lshr",) * 3, "sar": ("ashr",) * 3,
}  # fmt: skip
_COMPARISONS = {
    "eq": ("fcmp oeq", "icmp eq", "icmp eq"), "ne": ("fcmp une", "icmp ne", "icmp ne"), "lt": ("fcmp olt", "icmp slt", "icmp ult"),
    "le": ("fcmp ole", "icmp sle", "icmp ule"),
}  # fmt: skip
_INTRINSICS = {"sqrt": "sqrt", "abs": "fabs", "floor": "floor", "round": "rint", "fma": "fma"}


class _Kernel(_Writer):
    """The function that works off blocks of lanes until none is left."""

    def __init__(self, loop: Loop, kind: str, batched: Sequence[bool], lanes: int) -> None:
        super().__init__(lanes)
        self.loop = loop
        self.batched = batched
        self.owned: dict[str, _Place] = {}  # slots of large leaves
        operands, results = loop.operands(kind), loop.results(kind)
        self.sources = [self.pointer("%ins", k) for k in range(len(operands))]
        self.targets = [self.pointer("%outs", k) for k in range(len(results))]

    def pointer(self, table: str, k: int) -> str:
        return self.set(f"load ptr, ptr {self.set(f'getelementptr ptr, ptr {table}, i64 {k}')}")

    def element(
        self, leaf: Leaf, base: str, element: int | str, row: str | None, batched: bool
    ) -> str:
        """Where an element of a row begins for this block: arrays lie as (rows, size, bodies)."""
        index = (
            str(element)
            if row is None
            else self.set(f"add i64 {self.set(f'mul i64 {row}, {leaf.size}')}, {element}")
        )
        if batched:
            index = self.set(f"add i64 {self.set(f'mul i64 {index}, %bodies')}, %first")
        return self.set(f"getelementptr {_stored(leaf.dtype)}, ptr {base}, i64 {index}")

    def read(self, leaves: Iterable[Leaf], number: int, row: str | None = None) -> list[Any]:
        """All elements of the leaves that begin with operand ``number``; those of large leaves when they are used."""
        found: list[Any] = []
        for k, leaf in enumerate(leaves, number):
            if _large(leaf) and row is None:
                kind, base, pitch = "one", self.sources[k], leaf.dtype.itemsize
                if self.batched[k]:
                    kind, base = (
                        "lanes",
                        self.set(f"getelementptr {_stored(leaf.dtype)}, ptr {base}, i64 %first"),
                    )
                    pitch = self.set(f"mul i64 %bodies, {pitch}")
                found += [_Place(leaf.dtype, base, e, pitch, kind) for e in range(leaf.size)]
                continue
            for e in range(leaf.size):
                at = self.element(leaf, self.sources[k], e, row, self.batched[k])
                found.append(self.load(leaf.dtype, at, self.batched[k]))
        return found

    def write(
        self, leaves: Iterable[Leaf], number: int, values: Sequence[str], row: str | None = None
    ) -> None:
        """All elements of the leaves that begin with result ``number``."""
        for (k, leaf), some in zip(enumerate(leaves, number), _split(leaves, values), strict=True):
            place = self.together(some) if _large(leaf) else None
            if place:
                with self.repeated(leaf.size) as loop:
                    value = self.read_from(place, 1, loop.trip)
                    self.store(
                        leaf.dtype, value, self.element(leaf, self.targets[k], loop.trip, row, True)
                    )
                continue
            for e, value in enumerate(some):
                self.store(leaf.dtype, value, self.element(leaf, self.targets[k], e, row, True))

    def together(self, values: Sequence[str | _Place]) -> _Place | None:
        """Where values begin that lie one after the other."""
        first = self.place(values[0])
        if first and all(
            self.place(x) == first._replace(element=first.element + k) for k, x in enumerate(values)
        ):
            return first
        return None

    def every(self, k: str, period: int, label: str) -> str:
        """A branch taken at each multiple of ``period``; the label that follows."""
        self.line(f"br i1 {self.due(k, period)}, label %{label}, label %{label}_done")
        self.label(label)
        return f"{label}_done"

    def due(self, k: str, period: int) -> str:
        return self.set(f"icmp eq i64 {self.set(f'urem i64 {k}, {period}')}, 0")

    def slots(self, leaves: Iterable[Leaf]) -> list[str]:
        """Stack memory for all elements of the leaves."""
        found = []
        for leaf in leaves:
            if _large(leaf):
                first = self.buffer([leaf.dtype], leaf.size)
                places = [first._replace(element=e) for e in range(leaf.size)]
                found += [self.address(place, 0, "0") for place in places]
                self.owned.update(zip(found[-leaf.size :], places, strict=True))
            else:
                found += [
                    self.set(f"alloca {self.vector(leaf.dtype)}, align 64")
                    for _ in range(leaf.size)
                ]
        return found

    def rows(self, leaves: Iterable[Leaf], count: int) -> list[str]:
        """Memory for all elements of the leaves, ``count`` of each one after the other."""
        return [
            self.reserve(count * self.size(leaf.dtype)) for leaf in leaves for _ in range(leaf.size)
        ]

    def of_row(self, leaves: Iterable[Leaf], slots: Sequence[str], number: str) -> list[str]:
        """The slots of a row."""
        dtypes = [leaf.dtype for leaf in leaves for _ in range(leaf.size)]
        return [
            self.set(f"getelementptr {self.vector(d)}, ptr {s}, i64 {number}")
            for d, s in zip(dtypes, slots, strict=True)
        ]

    def size(self, dtype: np.dtype) -> int:
        """Bytes of a vector."""
        return max(1, self.lanes // 8) if dtype.kind == "b" else self.lanes * dtype.itemsize

    def get(self, leaves: Iterable[Leaf], slots: Sequence[str]) -> list[str]:
        found = []
        for d, s in zip(
            (leaf.dtype for leaf in leaves for _ in range(leaf.size)), slots, strict=True
        ):
            found.append(self.set(f"load {self.vector(d)}, ptr {s}, align {self.aligned(d)}"))
            if s in self.owned:
                self.places[found[-1]] = self.owned[s]
        return found

    def put(self, leaves: Iterable[Leaf], slots: Sequence[str], values: Sequence[Any]) -> None:
        for leaf, some, news in zip(
            leaves, _split(leaves, slots), _split(leaves, values), strict=True
        ):
            d = leaf.dtype
            self.forget(some)
            owned = bool(some) and some[0] in self.owned
            place = self.together(news) if owned else None
            if owned and (len(set(news)) == 1 or (place and place.kind != "slot")):
                with self.repeated(leaf.size) as loop:
                    self.write_to(
                        self.owned[some[0]],
                        self.read_from(place, 1, loop.trip) if place else news[0],
                        1,
                        loop.trip,
                    )
                continue
            for s, x in zip(some, news, strict=True):
                value = self.value(x)
                self.line(f"store {self.vector(d)} {value}, ptr {s}, align {self.aligned(d)}")

    def forget(self, slots: Sequence[str]) -> None:
        """What was read from slots is no longer there."""
        if slots and slots[0] in self.owned:
            base = self.owned[slots[0]].base
            self.places = {name: place for name, place in self.places.items() if place.base != base}

    def zeros(self, leaves: Iterable[Leaf]) -> list[str]:
        return [self.constant(leaf.dtype, 0) for leaf in leaves for _ in range(leaf.size)]

    def number(self, k: str) -> str:
        return self.splat(np.dtype(np.int32), self.set(f"trunc i64 {k} to i32"))

    def add_to(self, leaves: Sequence[Leaf], slots: Sequence[str], values: Sequence[str]) -> None:
        for leaf, some, news in zip(
            leaves, _split(leaves, slots), _split(leaves, values), strict=True
        ):
            kind, place = self.vector(leaf.dtype), self.together(news) if _large(leaf) else None
            if place:
                self.forget(some)
                with self.repeated(leaf.size) as loop:
                    old, new = (
                        self.read_from(self.owned[some[0]], 1, loop.trip),
                        self.read_from(place, 1, loop.trip),
                    )
                    self.write_to(
                        self.owned[some[0]], self.set(f"fadd {kind} {old}, {new}"), 1, loop.trip
                    )
                continue
            one = [Leaf(leaf.dtype, 1)]
            for slot, value in zip(some, news, strict=True):
                if value != self.constant(leaf.dtype, 0):
                    (old,) = self.get(one, [slot])
                    self.put(one, [slot], [self.set(f"fadd {kind} {old}, {value}")])


def _large(leaf: Leaf) -> bool:
    """Whether its elements are gone through in loops where they lie together."""
    return leaf.size > 16 and leaf.dtype.kind != "b"


def _split(leaves: Iterable[Leaf], values: Sequence[Any]) -> list[Sequence[Any]]:
    """By leaf."""
    ends = np.cumsum([leaf.size for leaf in leaves]).tolist()
    return [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _smooth(leaves: Iterable[Leaf]) -> list[Leaf]:
    return [leaf for leaf in leaves if leaf.smooth]


def _forward(loop: Loop, kind: str, batched: Sequence[bool], lanes: int) -> _Kernel:
    w = _Kernel(loop, kind, batched, lanes)
    state, memory, held, carry = (
        loop.state,
        loop.memory,
        loop.held,
        (*loop.state, *loop.memory, *loop.held),
    )
    slots = w.slots(carry)
    s, m, h = (
        slots[: _size(state)],
        slots[_size(state) : _size(state + memory)],
        slots[_size(state + memory) :],
    )
    first_state = len(loop.constants) + len(loop.inputs)
    w.line("br label %blocks")
    _blocks(w)
    constants = w.read(loop.constants, 0)
    w.put(state + memory, s + m, w.read(state + memory, first_state))
    w.put(held, h, w.zeros(held))
    before = w.block
    w.line("br label %steps")
    w.label("steps")
    k = "%k"
    w.line(f"%k = phi i64 [ 0, %{before} ], [ %next, %after ]")
    w.line(f"br i1 {w.set(f'icmp ult i64 {k}, {loop.steps}')}, label %within, label %save")
    w.label("within")
    if kind == "keeping":
        done = w.every(k, loop.segment, "keep")
        row = w.set(f"udiv i64 {k}, {loop.segment}")
        w.write(carry, len(loop.saved) + len(carry), w.get(carry, slots), row)
        w.line(f"br label %{done}")
        w.label(done)
    _sample(w, constants, k, s, m, h)
    w.line(f"br i1 {w.due(k, loop.save_every)}, label %save, label %ahead")
    w.label("save")
    row = w.set(f"udiv i64 {k}, {loop.save_every}")
    w.write(
        loop.saved,
        0,
        w.program(expand(loop.save), [*constants, w.number(k), *w.get(state, s), *w.get(held, h)]),
        row,
    )
    w.line(f"br i1 {w.set(f'icmp ult i64 {k}, {loop.steps}')}, label %ahead, label %last")
    w.label("ahead")
    w.put(
        state,
        s,
        w.program(expand(loop.step), [*constants, w.number(k), *w.get(state, s), *w.get(held, h)]),
    )
    w.line("br label %after")
    w.label("after")
    w.line(f"%next = add i64 {k}, 1")
    w.line("br label %steps")
    w.label("last")
    w.write(carry, len(loop.saved), w.get(carry, slots))
    w.line("br label %blocks")
    return w


def _sample(
    w: _Kernel,
    constants: list[str],
    k: str,
    s: list[str],
    m: list[str],
    h: list[str],
    label: str = "sample",
) -> None:
    loop = w.loop
    if loop.sample is None:
        return
    done = w.every(k, loop.sample_every, label)
    row = w.set(f"udiv i64 {k}, {loop.sample_every}")
    values = w.read(loop.inputs, len(loop.constants), row)
    found = w.program(
        expand(loop.sample),
        [*constants, w.number(k), *w.get(loop.state, s), *w.get(loop.memory, m), *values],
    )
    w.put((*loop.held, *loop.memory), [*h, *m], found)
    w.line(f"br label %{done}")
    w.label(done)


def _backward(loop: Loop, batched: Sequence[bool], lanes: int) -> _Kernel:
    assert loop.step_back is not None
    w = _Kernel(loop, "backward", batched, lanes)
    state, memory, held, carry = (
        loop.state,
        loop.memory,
        loop.held,
        (*loop.state, *loop.memory, *loop.held),
    )
    n_state, n_memory = _size(state), _size(memory)
    now = w.slots(carry)
    s, m, h = now[:n_state], now[n_state : n_state + n_memory], now[n_state + n_memory :]
    rows = w.rows(carry, loop.segment)
    smooth = {
        name: _smooth(getattr(loop, name))
        for name in ("constants", "inputs", "state", "memory", "held")
    }
    bars = {name: w.slots(leaves) for name, leaves in smooth.items()}
    first_kept = len(loop.constants) + len(loop.inputs)
    first_last = first_kept + len(carry)
    first_rows = first_last + len(carry)
    first_bars = first_rows + len(_smooth(loop.saved))
    w.line("br label %blocks")
    _blocks(w)
    constants = w.read(loop.constants, 0)
    w.put(smooth["constants"], bars["constants"], w.zeros(smooth["constants"]))
    w.put(
        _smooth(carry),
        [*bars["state"], *bars["memory"], *bars["held"]],
        w.read(_smooth(carry), first_bars),
    )
    last = w.read(carry, first_last)
    _save_back(
        w, constants, str(loop.steps), last[:n_state], last[n_state + n_memory :], bars, first_rows
    )
    before = w.block
    w.line("br label %segments")
    w.label("segments")
    w.line(
        f"%segment = phi i64 [ {loop.segments - 1}, %{before} ], [ %segment_next, %segment_done ]"
    )
    w.line(f"%begin = mul i64 %segment, {loop.segment}")
    beyond = w.set(f"add i64 %begin, {loop.segment}")
    short = w.set(f"icmp ult i64 {beyond}, {loop.steps}")
    w.line(f"%end = select i1 {short}, i64 {beyond}, i64 {loop.steps}")
    w.put(carry, now, w.read(carry, first_kept, "%segment"))
    before = w.block
    w.line("br label %again")

    w.label("again")  # the states of the segment
    w.line(f"%j = phi i64 [ %begin, %{before} ], [ %j_next, %again_done ]")
    past = w.of_row(carry, rows, w.set("sub i64 %j, %begin"))
    w.put(state + memory, past[: n_state + n_memory], w.get(state + memory, s + m))
    _sample(w, constants, "%j", s, m, h, "sample_again")
    w.put(held, past[n_state + n_memory :], w.get(held, h))
    w.line("%j_next = add i64 %j, 1")
    w.line(f"br i1 {w.set('icmp ult i64 %j_next, %end')}, label %again_step, label %back_first")
    w.label("again_step")
    w.put(
        state,
        s,
        w.program(
            expand(loop.step), [*constants, w.number("%j"), *w.get(state, s), *w.get(held, h)]
        ),
    )
    w.line("br label %again_done")
    w.label("again_done")
    w.line("br label %again")

    w.label("back_first")
    w.line("%last_step = sub i64 %end, 1")
    w.line("br label %back")
    w.label("back")
    w.line("%k = phi i64 [ %last_step, %back_first ], [ %k_next, %back_done ]")
    there = w.get(carry, w.of_row(carry, rows, w.set("sub i64 %k, %begin")))
    states, memories, helds = (
        there[:n_state],
        there[n_state : n_state + n_memory],
        there[n_state + n_memory :],
    )
    found = w.program(
        expand(loop.step_back),
        [*constants, w.number("%k"), *states, *helds, *w.get(smooth["state"], bars["state"])],
    )
    ends = np.cumsum([_size(smooth[name]) for name in ("constants", "state", "held")])
    w.add_to(smooth["constants"], bars["constants"], found[: ends[0]])
    w.put(smooth["state"], bars["state"], found[ends[0] : ends[1]])
    w.add_to(smooth["held"], bars["held"], found[ends[1] :])
    done = w.every("%k", loop.save_every, "save")
    _save_back(w, constants, "%k", states, helds, bars, first_rows)
    w.line(f"br label %{done}")
    w.label(done)
    if loop.sample_back is not None:
        done = w.every("%k", loop.sample_every, "sample")
        row = w.set(f"udiv i64 %k, {loop.sample_every}")
        values = w.read(loop.inputs, len(loop.constants), row)
        cotangents = w.get((*smooth["held"], *smooth["memory"]), [*bars["held"], *bars["memory"]])
        found = w.program(
            expand(loop.sample_back),
            [*constants, w.number("%k"), *states, *memories, *values, *cotangents],
        )
        ends = np.cumsum([_size(smooth[name]) for name in ("constants", "state", "memory")])
        w.add_to(smooth["constants"], bars["constants"], found[: ends[0]])
        w.add_to(smooth["state"], bars["state"], found[ends[0] : ends[1]])
        w.put(smooth["memory"], bars["memory"], found[ends[1] : ends[2]])
        w.write(smooth["inputs"], len(smooth["constants"]), found[ends[2] :], row)
        w.put(smooth["held"], bars["held"], w.zeros(smooth["held"]))
        w.line(f"br label %{done}")
        w.label(done)
    w.line(f"br i1 {w.set('icmp ugt i64 %k, %begin')}, label %back_done, label %segment_done")
    w.label("back_done")
    w.line("%k_next = sub i64 %k, 1")
    w.line("br label %back")
    w.label("segment_done")
    w.line("%segment_next = sub i64 %segment, 1")
    w.line(f"br i1 {w.set('icmp ugt i64 %segment, 0')}, label %segments, label %last")
    w.label("last")
    w.write(smooth["constants"], 0, w.get(smooth["constants"], bars["constants"]))
    ends = (*smooth["state"], *smooth["memory"])
    w.write(
        ends,
        len(smooth["constants"]) + len(smooth["inputs"]),
        w.get(ends, [*bars["state"], *bars["memory"]]),
    )
    w.line("br label %blocks")
    return w


def _save_back(
    w: _Kernel,
    constants: list[str],
    k: str,
    states: list[str],
    helds: list[str],
    bars: dict[str, list[str]],
    first_rows: int,
) -> None:
    """Adds the cotangents of what is saved before step number k."""
    loop = w.loop
    assert loop.save_back is not None
    cotangents = w.read(_smooth(loop.saved), first_rows, w.set(f"udiv i64 {k}, {loop.save_every}"))
    found = w.program(
        expand(loop.save_back), [*constants, w.number(k), *states, *helds, *cotangents]
    )
    for name in ("constants", "state", "held"):
        leaves = _smooth(getattr(loop, name))
        w.add_to(leaves, bars[name], found[: _size(leaves)])
        found = found[_size(leaves) :]


def _size(leaves: Iterable[Leaf]) -> int:
    return sum(leaf.size for leaf in leaves)


def _blocks(w: _Writer) -> None:
    """The next block of bodies; the last begins early rather than being ragged, and gives the bodies that overlap twice."""
    w.label("blocks")
    w.line("%block = atomicrmw add ptr %work, i64 1 monotonic")
    w.line(
        "br i1 " + w.set("icmp ult i64 %block, %blocks_in_all") + ", label %start, label %finished"
    )
    w.label("finished")
    w.line("ret ptr null")
    w.label("start")
    due = w.set(f"mul i64 %block, {w.lanes}")
    w.line(f"%latest = sub i64 %bodies, {w.lanes}")
    late = w.set(f"icmp ugt i64 {due}, %latest")
    w.line(f"%first = select i1 {late}, i64 %latest, i64 {due}")


def assembly(
    loop: Loop, kind: str, batched: Sequence[bool], lanes: int, symbol: str, features: str
) -> tuple[str, int]:
    """The module, and how many bytes each of its threads wants beside its stack.

    Its function ``symbol`` is a handler of XLA's foreign function interface. Its last input are int32: the number of
    bodies, that of the rows of its last result, (threads, bytes) of memory for the run alone, and what ``loading`` wants.

    The offsets are those of ``XLA_FFI_CallFrame`` and ``XLA_FFI_Buffer`` in xla/ffi/api/c_api.h.
    ``kind`` is "forward", "keeping" or "backward" (``Loop.operands``); ``batched`` says which operands have one value a body.
    """
    w = (
        _backward(loop, batched, lanes)
        if kind == "backward"
        else _forward(loop, kind, batched, lanes)
    )
    body = "\n".join([*w.entry, *w.lines])
    declarations = "\n".join([*sorted(w.declared), *w.functions])
    operands, results = len(loop.operands(kind)), len(loop.results(kind))
    text = f"""
%work_list = type {{ i64, i64, i64, ptr, ptr, i64 }}
@jaxquat_threads = external global i64
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
{declarations}

define internal void @buffer(ptr %from, ptr %to, i64 %number) #0 {{
  %buffer_at = getelementptr ptr, ptr %from, i64 %number
  %buffer = load ptr, ptr %buffer_at
  %data_at = getelementptr i8, ptr %buffer, i64 24
  %data = load ptr, ptr %data_at
  %to_at = getelementptr ptr, ptr %to, i64 %number
  store ptr %data, ptr %to_at
  ret void
}}

define internal ptr @worker(ptr %work) #0 {{
entry:
  %p1 = getelementptr %work_list, ptr %work, i32 0, i32 1
  %blocks_in_all = load i64, ptr %p1
  %p2 = getelementptr %work_list, ptr %work, i32 0, i32 2
  %bodies = load i64, ptr %p2
  %p3 = getelementptr %work_list, ptr %work, i32 0, i32 3
  %outs = load ptr, ptr %p3
  %p4 = getelementptr %work_list, ptr %work, i32 0, i32 4
  %ins = load ptr, ptr %p4
  %p5 = getelementptr %work_list, ptr %work, i32 0, i32 5
  %own = atomicrmw add ptr %p5, i64 1 monotonic
  %own_at = mul i64 %own, {w.scratch + 64}
  %rows_at = getelementptr ptr, ptr %outs, i64 {results}
  %rows = load ptr, ptr %rows_at
  %unaligned = getelementptr i8, ptr %rows, i64 %own_at
  %address = ptrtoint ptr %unaligned to i64
  %beyond = add i64 %address, 63
  %aligned = and i64 %beyond, -64
  %scratch = inttoptr i64 %aligned to ptr
{body}
}}

define ptr @{symbol}(ptr %frame) #0 {{
entry:
  %work = alloca %work_list
  %threads = alloca [256 x i64]
  %ins = alloca [{operands + 1} x ptr]
  %outs = alloca [{results + 1} x ptr]
  %args_at = getelementptr i8, ptr %frame, i64 72
  %args = load ptr, ptr %args_at
  %rets_at = getelementptr i8, ptr %frame, i64 112
  %rets = load ptr, ptr %rets_at
  br label %read_args
read_args:
  %a = phi i64 [ 0, %entry ], [ %a_next, %read_args ]
  call void @buffer(ptr %args, ptr %ins, i64 %a)
  %a_next = add i64 %a, 1
  %more_args = icmp ult i64 %a_next, {operands + 1}
  br i1 %more_args, label %read_args, label %read_rets
read_rets:
  %r = phi i64 [ 0, %read_args ], [ %r_next, %read_rets ]
  call void @buffer(ptr %rets, ptr %outs, i64 %r)
  %r_next = add i64 %r, 1
  %more_rets = icmp ult i64 %r_next, {results + 1}
  br i1 %more_rets, label %read_rets, label %begin
begin:
  %last = getelementptr ptr, ptr %ins, i64 {operands}
  %bodies_at = load ptr, ptr %last
  %bodies32 = load i32, ptr %bodies_at
  %bodies = zext i32 %bodies32 to i64
  %most_at = getelementptr i8, ptr %bodies_at, i64 4
  %most32 = load i32, ptr %most_at
  %most = zext i32 %most32 to i64
  %more = add i64 %bodies, {lanes - 1}
  %blocks = udiv i64 %more, {lanes}
  %p0 = getelementptr %work_list, ptr %work, i32 0, i32 0
  store i64 0, ptr %p0
  %p1 = getelementptr %work_list, ptr %work, i32 0, i32 1
  store i64 %blocks, ptr %p1
  %p2 = getelementptr %work_list, ptr %work, i32 0, i32 2
  store i64 %bodies, ptr %p2
  %p3 = getelementptr %work_list, ptr %work, i32 0, i32 3
  store ptr %outs, ptr %p3
  %p4 = getelementptr %work_list, ptr %work, i32 0, i32 4
  store ptr %ins, ptr %p4
  %wanted = load i64, ptr @jaxquat_threads
  %p5 = getelementptr %work_list, ptr %work, i32 0, i32 5
  store i64 0, ptr %p5
  %enough = icmp ult i64 %wanted, %blocks
  %fewer = select i1 %enough, i64 %wanted, i64 %blocks
  %scarce = icmp ult i64 %most, %fewer
  %useful = select i1 %scarce, i64 %most, i64 %fewer
  br label %launch
launch:
  %n = phi i64 [ 1, %begin ], [ %n_next, %launched ]
  %more_threads = icmp ult i64 %n, %useful
  br i1 %more_threads, label %one, label %own
one:
  %slot = getelementptr i64, ptr %threads, i64 %n
  %failed = call i32 @pthread_create(ptr %slot, ptr null, ptr @worker, ptr %work)
  %fine = icmp eq i32 %failed, 0
  br i1 %fine, label %launched, label %own
launched:
  %n_next = add i64 %n, 1
  br label %launch
own:
  %ignored = call ptr @worker(ptr %work)
  br label %join
join:
  %m = phi i64 [ 1, %own ], [ %m_next, %joined ]
  %waiting = icmp ult i64 %m, %n
  br i1 %waiting, label %joined, label %end
joined:
  %slot2 = getelementptr i64, ptr %threads, i64 %m
  %thread = load i64, ptr %slot2
  %ignored2 = call i32 @pthread_join(i64 %thread, ptr null)
  %m_next = add i64 %m, 1
  br label %join
end:
  ret ptr null
}}

attributes #0 = {{ nounwind {features} }}
!0 = !{{!"branch_weights", i32 1, i32 1000000}}
"""
    return text, w.scratch + 64

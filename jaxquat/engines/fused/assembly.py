"""From scalar programs and the time loop to LLVM assembly, for the CPU.

Every value of a scalar program becomes a vector with one lane for each body, so one operation is
one line of text: ``%v7 = fmul <8 x float> %v5, %v6``. A block is as many bodies as a vector has
lanes. The kernel takes one block after the other and runs the whole time loop for it, with the
state in memory of its own ("slots", which LLVM turns into registers). Threads take blocks from a
counter.

- ``_Writer`` writes the lines of a function: ``program`` those of a scalar program. A routine
  becomes a loop (``repeated``), a call of a function (``_call``) or a seldom taken branch
  (``_rare``). A ``_Place`` is a value in memory that has not been read; long rows stay there.
- ``Kernel`` adds what the time loop needs: operands, results, and slots for what is carried.
- ``_forward`` writes the loop over the steps. ``_backward`` writes two loops inside a loop over the
  segments, last segment first: one computes the states of the segment again, from what was kept,
  into ``rows`` of memory; the other goes back through them and adds up the cotangents ("bars").
- ``assembly`` puts these lines into a function and adds what XLA calls: it takes the addresses of
  operands and results from XLA's call frame and starts the threads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxquat.engines.fused.elementary import expand
from jaxquat.engines.fused.kernel import Leaf, Loop
from jaxquat.engines.fused.program import Op, Program, Routine

FLAGS = "contract"  # a product and a sum may become one operation; nothing else may change


def _scalar(dtype: np.dtype) -> str:
    """The LLVM type of a number."""
    return {"f4": "float", "f8": "double", "b1": "i1"}.get(dtype.str[1:], f"i{8 * dtype.itemsize}")


def _stored(dtype: np.dtype) -> str:
    """Its type in memory, where booleans are bytes."""
    return "i8" if dtype.kind == "b" else _scalar(dtype)


def _literal(dtype: np.dtype, value: Any) -> str:
    """A constant; a float as the bits of a float64, as LLVM wants it for both precisions."""
    if dtype.kind == "f":
        return f"0x{np.float64(value).view(np.uint64):016X}"
    return ("true" if value else "false") if dtype.kind == "b" else str(int(value))


class _Place(NamedTuple):
    """A value in memory."""

    dtype: np.dtype
    base: str  # a pointer
    element: int
    pitch: int | str  # bytes from one element to the next: a number or a name
    kind: str  # "one": an operand's number for all lanes; "lanes" of an operand; our own "slot"


class _Trip(NamedTuple):
    """The names within a loop that ``repeated`` opens."""

    trip: str  # the number of the trip
    carried: list[str]  # values carried into this trip
    after: list[str]  # and out of it: filled by the body of the loop


class _Writer:
    """Collects the lines of one function.

    A value is a name, of the vector type of its dtype, or a place, which has not been read yet. The
    writer of a routine's function shares declarations and functions with its ``outer`` writer.
    """

    most = 2**18  # bytes of a thread's stack for arrays; beyond that they lie in scratch memory

    def __init__(self, lanes: int, outer: _Writer | None = None) -> None:
        self.lanes, self.count, self.block = lanes, 0, "entry"
        self.entry: list[str] = []  # memory of the function, before all lines
        self.lines: list[str] = []
        self.declared: set[str] = outer.declared if outer else set()
        # the name of a function, by its routine and how the arguments are passed
        self.routines: dict[Any, str] = outer.routines if outer else {}
        self.functions: list[str] = outer.functions if outer else []
        self.whole: _Writer = outer.whole if outer else self  # the writer of the whole kernel
        # bytes of each thread that are in use: on its stack, and in the memory from %scratch on
        self.stack = self.scratch = 0
        self.places: dict[str, _Place] = {}  # where the value of a name lies in memory too
        self.loaded: dict[_Place, str] = {}  # names of places that have been read

    def name(self) -> str:
        """A new name."""
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def label(self, name: str) -> None:
        """A new block of lines, which branches can go to."""
        self.block = name
        self.lines.append(f"{name}:")

    def set(self, text: str) -> str:
        """A line that gives a new name to a value."""
        name = self.name()
        self.line(f"{name} = {text}")
        return name

    def vector(self, dtype: np.dtype) -> str:
        return f"<{self.lanes} x {_scalar(dtype)}>"

    def splat(self, dtype: np.dtype, scalar: str) -> str:
        """A vector with the same number in all lanes."""
        kind, zeros = self.vector(dtype), f"<{self.lanes} x i32> zeroinitializer"
        first = self.set(f"insertelement {kind} poison, {_scalar(dtype)} {scalar}, i32 0")
        return self.set(f"shufflevector {kind} {first}, {kind} poison, {zeros}")

    def constant(self, dtype: np.dtype, value: object) -> str:
        one = f"{_scalar(dtype)} {_literal(dtype, value)}"
        return f"<{', '.join([one] * self.lanes)}>"

    def load(self, dtype: np.dtype, pointer: str, batched: bool) -> str:
        """The vector at ``pointer``, one number for each lane; unbatched, one number for all."""
        at = f"ptr {pointer}, align {dtype.itemsize}"
        if batched:
            return self.unpacked(dtype, self.set(f"load {self.packed(dtype)}, {at}"))
        value = self.set(f"load {_stored(dtype)}, {at}")
        if dtype.kind == "b":
            value = self.set(f"trunc i8 {value} to i1")
        return self.splat(dtype, value)

    def store(self, dtype: np.dtype, value: str, pointer: str) -> None:
        packed = f"{self.packed(dtype)} {self.pack(dtype, value)}"
        self.line(f"store {packed}, ptr {pointer}, align {dtype.itemsize}")

    def packed(self, dtype: np.dtype) -> str:
        """The type of a vector in an operand or an argument, where booleans are bytes.

        LLVM 22 can end the process over a mask that is passed as one.
        """
        return f"<{self.lanes} x {_stored(dtype)}>"

    def pack(self, dtype: np.dtype, value: str) -> str:
        if dtype.kind != "b":
            return value
        return self.set(f"zext {self.vector(dtype)} {value} to {self.packed(dtype)}")

    def unpacked(self, dtype: np.dtype, value: str) -> str:
        if dtype.kind != "b":
            return value
        return self.set(f"trunc {self.packed(dtype)} {value} to {self.vector(dtype)}")

    def call(self, result: str, function: str, arguments: Sequence[tuple[str, str]]) -> str:
        """A call of an intrinsic function of LLVM; ``arguments``: type and name of each."""
        kinds = ", ".join(kind for kind, _ in arguments)
        passed = ", ".join(f"{kind} {value}" for kind, value in arguments)
        self.declared.add(f"declare {result} @{function}({kinds})")
        flags = f"{FLAGS} " if "float" in result or "double" in result else ""
        return self.set(f"call {flags}{result} @{function}({passed})")

    def program(
        self, program: Program, inputs: Sequence[str | _Place], into: _Place | None = None
    ) -> list[str]:
        """The names of the outputs; with ``into`` none: they are written to memory, from there on.

        Rows of results of a loop are written to their places of ``into`` at once.
        """
        # what is read or written in a loop or a branch is not there after it
        places, loaded = dict(self.places), dict(self.loaded)
        values: list[Any] = list(inputs)
        # with ``into``: which output a value is, and which value an item of a loop is
        numbers = {k: n for n, k in reversed(list(enumerate(program.outputs)))} if into else {}
        operations = list(enumerate(program.ops, len(inputs)))
        items = {(op.args[0], op.value): n for n, op in operations if op.name == "item"}
        written = set()
        for number, op in operations:
            args, kinds = [values[a] for a in op.args], [program.dtype(a) for a in op.args]
            if op.name == "loop":
                rows = range(op.value.carried, op.value.items)
                outputs = [numbers.get(items.get((number, k), -1)) for k in rows]
                values.append(self._loop(op.value, kinds, args, into, outputs))
            elif op.name == "item":
                values.append(args[0][op.value])
                if into and number in numbers:
                    element = into.element + numbers[number]
                    if values[-1] == into._replace(dtype=op.dtype, element=element):
                        written.add(numbers[number])
            else:
                values.append(self._operation(op, [self.value(x) for x in args], kinds))
        names = [] if into else [self.value(values[k]) for k in program.outputs]
        for number, k in enumerate(program.outputs if into else ()):
            if into and number not in written:
                place = into._replace(dtype=program.dtype(k), element=into.element + number)
                self.write_to(place, self.value(values[k]))
        kept = {x: self.places[x] for x in names if x in self.places}
        self.places, self.loaded = {**places, **kept}, loaded
        return names

    def value(self, x: str | _Place) -> str:
        """The name of a value; a place is read once."""
        if isinstance(x, str):
            return x
        if x not in self.loaded:
            self.loaded[x] = self.read_from(x)
            self.places[self.loaded[x]] = x
        return self.loaded[x]

    def read_from(self, place: _Place, stride: int = 0, trip: str = "0") -> str:
        """The value that lies ``trip`` times ``stride`` elements after a place."""
        at = self.address(place, stride, trip)
        if place.kind != "slot":
            return self.load(place.dtype, at, place.kind == "lanes")
        align = self.aligned(place.dtype)
        return self.set(f"load {self.vector(place.dtype)}, ptr {at}, align {align}")

    def write_to(self, place: _Place, value: str, stride: int = 0, trip: str = "0") -> None:
        """Writes a value to the slot ``trip`` times ``stride`` elements after a place."""
        at, align = self.address(place, stride, trip), self.aligned(place.dtype)
        self.line(f"store {self.vector(place.dtype)} {value}, ptr {at}, align {align}")

    def address(self, place: _Place, stride: int, trip: str) -> str:
        """A pointer to the element ``trip`` times ``stride`` after a place."""
        if isinstance(place.pitch, int):
            at = str(place.element * place.pitch)
            if stride:
                moved = self.set(f"mul i64 {trip}, {stride * place.pitch}")
                at = self.set(f"add i64 {moved}, {at}")
        else:
            index = str(place.element)
            if stride:
                moved = self.set(f"mul i64 {trip}, {stride}")
                index = self.set(f"add i64 {moved}, {index}")
            at = self.set(f"mul i64 {index}, {place.pitch}")
        if at == "0":
            return place.base
        return self.set(f"getelementptr i8, ptr {place.base}, i64 {at}")

    def aligned(self, dtype: np.dtype) -> int:
        """The alignment of a vector in a slot, where a boolean takes one bit."""
        return max(1, min(64, self.lanes * dtype.itemsize // (8 if dtype.kind == "b" else 1)))

    def buffer(self, dtypes: Sequence[np.dtype], count: int) -> _Place:
        """Memory for ``count`` values of any of the dtypes, of this function alone.

        It is there once, since no function is entered again before it has returned.
        """
        pitch = self.lanes * max(dtype.itemsize for dtype in dtypes)
        return _Place(dtypes[0], self.reserve(count * pitch), 0, pitch, "slot")

    def reserve(self, size: int) -> str:
        """A pointer to memory that nothing else uses."""
        name, whole = self.name(), self.whole
        if whole.stack + size <= whole.most:
            whole.stack += size
            self.entry.append(f"  {name} = alloca [{size} x i8], align 64")
        else:
            self.entry.append(f"  {name} = getelementptr i8, ptr %scratch, i64 {whole.scratch}")
            whole.scratch += -(-size // 64) * 64
        return name

    def place(self, x: str | _Place) -> _Place | None:
        """Where a value lies in memory, if it does."""
        return self.places.get(x) if isinstance(x, str) else x

    def row(self, dtype: np.dtype, values: Sequence[str | _Place]) -> tuple[_Place, int]:
        """The place of the first of some values, and the elements from each to the next.

        Values that do not lie at equal distances are copied to a buffer.
        """
        places = [self.place(x) for x in values]
        first, second = places[:2]
        if first and second:
            stride = second.element - first.element
            elements = [first.element + k * stride for k in range(len(places))]
            if places == [first._replace(element=element) for element in elements]:
                return first, stride
        buffer = self.buffer([dtype], len(values))
        for k, x in enumerate(values):
            name, place = self.value(x), buffer._replace(element=k)
            self.write_to(place, name)
            self.places[name] = place
        return buffer, 1

    @contextlib.contextmanager
    def repeated(self, count: int, carried: Sequence[tuple[str, str]] = ()) -> Iterator[_Trip]:
        """A loop of ``count`` trips around the lines that follow.

        ``carried``: type and first value of each value that goes from trip to trip.
        """
        label = self.name()[1:]
        before, end = f"%{label}_before", f"%{label}_end"
        self.line(f"br label {before}")
        self.label(before[1:])
        self.line(f"br label %{label}")
        self.label(label)
        trip, after, place = f"%{label}_trip", f"%{label}_next", len(self.lines) + 1
        self.line(f"{trip} = phi i64 [ 0, {before} ], [ {after}, {end} ]")
        loop = _Trip(trip, [f"%{label}_{k}" for k in range(len(carried))], [])
        yield loop
        self.line(f"br label {end}")
        self.label(end[1:])
        for name, (kind, start), last in zip(loop.carried, carried, loop.after, strict=True):
            phi = f"  {name} = phi {kind} [ {start}, {before} ], [ {last}, {end} ]"
            self.lines.insert(place, phi)
        self.line(f"{after} = add i64 {trip}, 1")
        more = self.set(f"icmp ult i64 {after}, {count}")
        self.line(f"br i1 {more}, label %{label}, label %{label}_after")
        self.label(f"{label}_after")

    def _loop(
        self,
        routine: Routine,
        dtypes: Sequence[np.dtype],
        args: Sequence[Any],
        into: _Place | None,
        outputs: list[int | None],
    ) -> list[str | _Place]:
        """The items of a routine.

        ``outputs``: for each value of its rows of results, which output of the program around it
        that is, to be written from ``into`` on.
        """
        if routine.rare:
            return self._rare(routine, dtypes, args)
        if routine.trips == 1:
            return self._call(routine, dtypes, args)
        fixed, carried, rows = routine.split(args)
        program, trips = routine.program, routine.trips
        kinds = program.inputs[routine.fixed + routine.carried :]
        sources = [self.row(dtype, row) for dtype, row in zip(kinds, rows, strict=True)]
        starts = [self.value(x) for x in carried]
        targets: list[tuple[_Place, int]] = []
        for j, k in enumerate(program.outputs[routine.carried :]):
            row, dtype = outputs[j * trips : (j + 1) * trips], program.dtype(k)
            first, stride = row[0], (row[1] or 0) - (row[0] or 0)
            regular = first is not None and row == [first + i * stride for i in range(trips)]
            if into and first is not None and regular and stride:
                place = into._replace(dtype=dtype, element=into.element + first)
                targets.append((place, stride))
            else:
                targets.append((self.buffer([dtype], trips), 1))
        first = routine.fixed
        kinds = [self.vector(dtype) for dtype in program.inputs[first : first + routine.carried]]
        with self.repeated(trips, list(zip(kinds, starts, strict=True))) as loop:
            values = [self.read_from(place, stride, loop.trip) for place, stride in sources]
            results = self.program(program, [*fixed, *loop.carried, *values])
            loop.after.extend(results[: routine.carried])
            for (place, stride), value in zip(targets, results[routine.carried :], strict=True):
                self.write_to(place, value, stride, loop.trip)
        items = [
            place._replace(element=place.element + i * stride)
            for place, stride in targets
            for i in range(trips)
        ]
        return [*results[: routine.carried], *items]

    def _rare(
        self, routine: Routine, dtypes: Sequence[np.dtype], args: Sequence[Any]
    ) -> list[str | _Place]:
        """A call in a branch, taken if the first argument is true for any body of the vector."""
        names = [self.value(x) for x in args]
        mask = self.vector(dtypes[0])
        self.declared.add(f"declare i1 @llvm.vector.reduce.or.v{self.lanes}i1({mask})")
        some = self.set(f"call i1 @llvm.vector.reduce.or.v{self.lanes}i1({mask} {names[0]})")
        label, before = self.name()[1:], self.block
        self.line(f"br i1 {some}, label %{label}_rare, label %{label}_after, !prof !0")
        self.label(f"{label}_rare")
        items = self._call(routine, dtypes, names)
        results = [x if isinstance(x, str) else self.read_from(x) for x in items]
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
        """The items of a routine, which a function of its own computes and writes to memory.

        Four arguments or more that lie one after the other in memory are passed as a pointer, the
        others as values. ``layout`` says which: (dtype,) of a value, or (dtype, count, kind, pitch)
        of a row, where pitch is None if it is a name.
        """
        layout: list[tuple[Any, ...]] = []
        passed: list[str] = ["ptr %scratch"]
        k = 0
        while k < len(args):
            first = self.place(args[k])
            count = 1
            while first and k + count < len(args):
                if self.place(args[k + count]) != first._replace(element=first.element + count):
                    break
                count += 1
            if first and count >= 4:
                known = isinstance(first.pitch, int)
                layout.append((first.dtype, count, first.kind, first.pitch if known else None))
                passed.append(f"ptr {self.address(first, 0, '0')}")
                passed += [] if known else [f"i64 {first.pitch}"]
            else:
                count, dtype = 1, dtypes[k]
                layout.append((dtype,))
                value = self.pack(dtype, self.value(args[k]))
                passed.append(f"{self.packed(dtype)} {value}")
            k += count
        key = routine, tuple(layout)
        if key not in self.routines:
            self.routines[key] = f"@routine{len(self.routines)}"
            self._function(self.routines[key], routine, layout)
        into = self.buffer([routine.dtype(j) for j in range(routine.items)], routine.items)
        passed.insert(1, f"ptr {into.base}")
        self.line(f"call fastcc void {self.routines[key]}({', '.join(passed)})")
        return [into._replace(dtype=routine.dtype(j), element=j) for j in range(routine.items)]

    def _function(self, name: str, routine: Routine, layout: list[tuple[Any, ...]]) -> None:
        """Writes the function of a routine; ``layout``: see ``_call``."""
        w = _Writer(self.lanes, self)
        parameters, inputs = ["ptr %scratch", "ptr noalias %out"], []
        for number, (dtype, *row) in enumerate(layout):
            if not row:
                parameters.append(f"{w.packed(dtype)} %x{number}")
                inputs.append(w.unpacked(dtype, f"%x{number}"))
                continue
            count, kind, pitch = row
            parameters.append(f"ptr %x{number}")
            if pitch is None:
                pitch = f"%pitch{number}"
                parameters.append(f"i64 {pitch}")
            first = _Place(dtype, f"%x{number}", 0, pitch, kind)
            inputs += [first._replace(element=k) for k in range(count)]
        dtypes = [routine.dtype(j) for j in range(routine.items)]
        pitch = self.lanes * max(dtype.itemsize for dtype in dtypes)
        w.program(routine.program, inputs, _Place(dtypes[0], "%out", 0, pitch, "slot"))
        body = "\n".join(["entry:", *w.entry, *w.lines, "  ret void"])
        kind = "noinline cold" if routine.rare else "noinline"
        head = f"define internal fastcc void {name}({', '.join(parameters)}) {kind} #0"
        self.functions.append(f"{head} {{\n{body}\n}}")

    def _operation(self, op: Op, args: list[str], kinds: list[np.dtype]) -> str:
        """The name of the result of one operation; ``kinds``: the dtypes of its arguments."""
        name, dtype = op.name, op.dtype
        if name == "const":
            return self.constant(dtype, op.number)
        real, unsigned = kinds[-1].kind == "f", kinds[-1].kind in "ub"
        width = 1 if kinds[-1].kind == "b" else 8 * kinds[-1].itemsize
        kind, suffix = self.vector(kinds[-1]), f"v{self.lanes}{'f' if real else 'i'}{width}"
        if name in _BINARY:
            word = _BINARY[name][0 if real else 2 if unsigned else 1]
            return self.set(f"{word} {kind} {args[0]}, {args[1]}")
        if name in _COMPARISONS:
            word = _COMPARISONS[name][0 if real else 2 if unsigned else 1]
            return self.set(f"{word} {kind} {args[0]}, {args[1]}")
        if name == "select":
            mask = f"{self.vector(kinds[0])} {args[0]}"
            return self.set(f"select {mask}, {kind} {args[1]}, {kind} {args[2]}")
        if name == "neg":
            word = "fneg" if real else "sub"
            return self.set(f"{word} {kind} {'' if real else 'zeroinitializer, '}{args[0]}")
        if name == "not":
            ones = f"splat ({_scalar(dtype)} {'true' if dtype.kind == 'b' else -1})"
            return self.set(f"xor {kind} {args[0]}, {ones}")
        if name in ("max", "min"):
            word = f"{name}imum" if real else f"{'u' if unsigned else 's'}{name}"
            return self.call(kind, f"llvm.{word}.{suffix}", [(kind, a) for a in args])
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
        """A value of dtype ``old`` as one of ``dtype``, as XLA converts it."""
        source, target = self.vector(old), self.vector(dtype)
        if dtype.kind == "f":
            if old.kind == "f":
                word = "fpext" if dtype.itemsize > old.itemsize else "fptrunc"
            else:
                word = "sitofp" if old.kind == "i" else "uitofp"
            return self.set(f"{word} {source} {value} to {target}")
        if old.kind == "f":
            sense = "fptoui" if dtype.kind == "u" else "fptosi"
            integers, floats = f"i{8 * dtype.itemsize}", f"f{8 * old.itemsize}"
            name = f"llvm.{sense}.sat.v{self.lanes}{integers}.v{self.lanes}{floats}"
            return self.call(target, name, [(source, value)])
        if old.kind == "b" or dtype.itemsize > old.itemsize:
            return self.set(f"{'sext' if old.kind == 'i' else 'zext'} {source} {value} to {target}")
        if dtype.itemsize < old.itemsize:
            return self.set(f"trunc {source} {value} to {target}")
        return value


# instructions for floats, signed and unsigned integers
_BINARY = {
    "add": (f"fadd {FLAGS}", "add", "add"),
    "sub": (f"fsub {FLAGS}", "sub", "sub"),
    "mul": (f"fmul {FLAGS}", "mul", "mul"),
    "div": (f"fdiv {FLAGS}", "sdiv", "udiv"),
    "rem": ("frem", "srem", "urem"),
    "and": ("and",) * 3,
    "or": ("or",) * 3,
    "xor": ("xor",) * 3,
    "shl": ("shl",) * 3,
    "shr": ("lshr",) * 3,
    "sar": ("ashr",) * 3,
}
_COMPARISONS = {
    "eq": ("fcmp oeq", "icmp eq", "icmp eq"),
    "ne": ("fcmp une", "icmp ne", "icmp ne"),
    "lt": ("fcmp olt", "icmp slt", "icmp ult"),
    "le": ("fcmp ole", "icmp sle", "icmp ule"),
}
_INTRINSICS = {"sqrt": "sqrt", "abs": "fabs", "floor": "floor", "round": "rint", "fma": "fma"}


class Kernel(_Writer):
    """The function of a thread, which takes blocks of bodies until none is left.

    Names in its text: ``%first`` is the first body of the block, ``%bodies`` their number in all.
    Operands and results lie as (rows, size, bodies).
    """

    def __init__(self, loop: Loop, kind: str, batched: Sequence[bool], lanes: int) -> None:
        super().__init__(lanes)
        self.loop = loop
        self.kind = kind
        self.batched = batched
        self.owned: dict[str, _Place] = {}  # places of the slots of large leaves
        operands, results = loop.operands(kind), loop.results(kind)
        self.sources = [self.pointer("%ins", k) for k in range(len(operands))]
        self.targets = [self.pointer("%outs", k) for k in range(len(results))]

    def pointer(self, table: str, k: int) -> str:
        """The k-th address of a table."""
        entry = self.set(f"getelementptr ptr, ptr {table}, i64 {k}")
        return self.set(f"load ptr, ptr {entry}")

    def next_block(self) -> None:
        """Takes the next block of bodies, or returns.

        The last block begins early rather than being ragged: bodies that are in two blocks are
        computed twice, with the same results.
        """
        self.label("blocks")
        self.line("%block = atomicrmw add ptr %work, i64 1 monotonic")
        more = self.set("icmp ult i64 %block, %blocks_in_all")
        self.line(f"br i1 {more}, label %start, label %finished")
        self.label("finished")
        self.line("ret ptr null")
        self.label("start")
        due = self.set(f"mul i64 %block, {self.lanes}")
        self.line(f"%latest = sub i64 %bodies, {self.lanes}")
        late = self.set(f"icmp ugt i64 {due}, %latest")
        self.line(f"%first = select i1 {late}, i64 %latest, i64 {due}")

    def element(
        self, leaf: Leaf, base: str, element: int | str, row: str | None, batched: bool
    ) -> str:
        """A pointer to an element of a row, for the first body of the block."""
        index = str(element)
        if row is not None:
            before = self.set(f"mul i64 {row}, {leaf.size}")
            index = self.set(f"add i64 {before}, {element}")
        if batched:
            before = self.set(f"mul i64 {index}, %bodies")
            index = self.set(f"add i64 {before}, %first")
        return self.set(f"getelementptr {_stored(leaf.dtype)}, ptr {base}, i64 {index}")

    def read(self, leaves: Iterable[Leaf], number: int, row: str | None = None) -> list[Any]:
        """All elements of the leaves that begin with operand ``number``.

        Of a large leaf these are places, which are read when they are used.
        """
        values: list[Any] = []
        for k, leaf in enumerate(leaves, number):
            if _large(leaf) and row is None:
                kind, base, pitch = "one", self.sources[k], leaf.dtype.itemsize
                if self.batched[k]:
                    kind, stored = "lanes", _stored(leaf.dtype)
                    base = self.set(f"getelementptr {stored}, ptr {base}, i64 %first")
                    pitch = self.set(f"mul i64 %bodies, {pitch}")
                values += [_Place(leaf.dtype, base, e, pitch, kind) for e in range(leaf.size)]
                continue
            for e in range(leaf.size):
                at = self.element(leaf, self.sources[k], e, row, self.batched[k])
                values.append(self.load(leaf.dtype, at, self.batched[k]))
        return values

    def write(
        self, leaves: Iterable[Leaf], number: int, values: Sequence[str], row: str | None = None
    ) -> None:
        """Writes all elements of the leaves that begin with result ``number``."""
        for (k, leaf), some in zip(enumerate(leaves, number), _split(leaves, values), strict=True):
            place = self.together(some) if _large(leaf) else None
            if place:
                with self.repeated(leaf.size) as loop:
                    value = self.read_from(place, 1, loop.trip)
                    at = self.element(leaf, self.targets[k], loop.trip, row, True)
                    self.store(leaf.dtype, value, at)
                continue
            for e, value in enumerate(some):
                self.store(leaf.dtype, value, self.element(leaf, self.targets[k], e, row, True))

    def together(self, values: Sequence[str | _Place]) -> _Place | None:
        """The place of the first of some values if they lie one after the other, else None."""
        first = self.place(values[0])
        if first is None:
            return None
        row = [first._replace(element=first.element + k) for k in range(len(values))]
        return first if row == [self.place(x) for x in values] else None

    def every(self, k: str, period: int, label: str) -> str:
        """Begins a branch that is taken at each multiple of ``period``; the label after it."""
        self.line(f"br i1 {self.due(k, period)}, label %{label}, label %{label}_done")
        self.label(label)
        return f"{label}_done"

    def due(self, k: str, period: int) -> str:
        """Whether k is a multiple of ``period``."""
        remainder = self.set(f"urem i64 {k}, {period}")
        return self.set(f"icmp eq i64 {remainder}, 0")

    def slots(self, leaves: Iterable[Leaf]) -> list[str]:
        """Pointers to memory of this function, for each element of the leaves.

        LLVM keeps the slots of small leaves in registers.
        """
        pointers = []
        for leaf in leaves:
            if _large(leaf):
                first = self.buffer([leaf.dtype], leaf.size)
                places = [first._replace(element=e) for e in range(leaf.size)]
                pointers += [self.address(place, 0, "0") for place in places]
                self.owned.update(zip(pointers[-leaf.size :], places, strict=True))
            else:
                text = f"alloca {self.vector(leaf.dtype)}, align 64"
                pointers += [self.set(text) for _ in range(leaf.size)]
        return pointers

    def rows(self, leaves: Iterable[Leaf], count: int) -> list[str]:
        """Pointers to memory for ``count`` vectors of each element of the leaves."""
        dtypes = [leaf.dtype for leaf in leaves for _ in range(leaf.size)]
        return [self.reserve(count * self.size(dtype)) for dtype in dtypes]

    def of_row(self, leaves: Iterable[Leaf], slots: Sequence[str], number: str) -> list[str]:
        """Of memory from ``rows``, the pointers to row ``number``."""
        dtypes = [leaf.dtype for leaf in leaves for _ in range(leaf.size)]
        return [
            self.set(f"getelementptr {self.vector(d)}, ptr {s}, i64 {number}")
            for d, s in zip(dtypes, slots, strict=True)
        ]

    def size(self, dtype: np.dtype) -> int:
        """Bytes of a vector in a slot."""
        return max(1, self.lanes // 8) if dtype.kind == "b" else self.lanes * dtype.itemsize

    def get(self, leaves: Iterable[Leaf], slots: Sequence[str]) -> list[str]:
        """The values in slots."""
        values, dtypes = [], [leaf.dtype for leaf in leaves for _ in range(leaf.size)]
        for d, s in zip(dtypes, slots, strict=True):
            values.append(self.set(f"load {self.vector(d)}, ptr {s}, align {self.aligned(d)}"))
            if s in self.owned:
                self.places[values[-1]] = self.owned[s]
        return values

    def put(self, leaves: Iterable[Leaf], slots: Sequence[str], values: Sequence[Any]) -> None:
        """Writes values to slots."""
        by_leaf = zip(leaves, _split(leaves, slots), _split(leaves, values), strict=True)
        for leaf, some, news in by_leaf:
            d = leaf.dtype
            self.forget(some)
            owned = bool(some) and some[0] in self.owned
            place = self.together(news) if owned else None
            if owned and (len(set(news)) == 1 or (place and place.kind != "slot")):
                with self.repeated(leaf.size) as loop:
                    value = self.read_from(place, 1, loop.trip) if place else news[0]
                    self.write_to(self.owned[some[0]], value, 1, loop.trip)
                continue
            for s, x in zip(some, news, strict=True):
                value = self.value(x)
                self.line(f"store {self.vector(d)} {value}, ptr {s}, align {self.aligned(d)}")

    def forget(self, slots: Sequence[str]) -> None:
        """Forgets what was read from slots, which are about to be written."""
        if slots and slots[0] in self.owned:
            base = self.owned[slots[0]].base
            self.places = {name: place for name, place in self.places.items() if place.base != base}

    def zeros(self, leaves: Iterable[Leaf]) -> list[str]:
        """A zero for each element of the leaves."""
        return [self.constant(leaf.dtype, 0) for leaf in leaves for _ in range(leaf.size)]

    def number(self, k: str) -> str:
        """The number of a step, as scalar programs take it."""
        return self.splat(np.dtype(np.int32), self.set(f"trunc i64 {k} to i32"))

    def add_to(self, leaves: Sequence[Leaf], slots: Sequence[str], values: Sequence[str]) -> None:
        """Adds values to those in slots."""
        by_leaf = zip(leaves, _split(leaves, slots), _split(leaves, values), strict=True)
        for leaf, some, news in by_leaf:
            kind, place = self.vector(leaf.dtype), self.together(news) if _large(leaf) else None
            if place:
                self.forget(some)
                slot = self.owned[some[0]]
                with self.repeated(leaf.size) as loop:
                    old = self.read_from(slot, 1, loop.trip)
                    new = self.read_from(place, 1, loop.trip)
                    self.write_to(slot, self.set(f"fadd {kind} {old}, {new}"), 1, loop.trip)
                continue
            one = [Leaf(leaf.dtype, 1)]
            for slot, value in zip(some, news, strict=True):
                if value != self.constant(leaf.dtype, 0):
                    (old,) = self.get(one, [slot])
                    self.put(one, [slot], [self.set(f"fadd {kind} {old}, {value}")])


def _large(leaf: Leaf) -> bool:
    """Whether a leaf stays in memory, and loops go through its elements where they lie together."""
    return leaf.size > 16 and leaf.dtype.kind != "b"


def _split(leaves: Iterable[Leaf], values: Sequence[Any]) -> list[Sequence[Any]]:
    """The values of each leaf."""
    ends = np.cumsum([leaf.size for leaf in leaves]).tolist()
    return [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _smooth(leaves: Iterable[Leaf]) -> list[Leaf]:
    return [leaf for leaf in leaves if leaf.smooth]


def write(w: Kernel) -> None:
    """Writes the time loop."""
    if w.kind == "backward":
        _backward(w)
    else:
        _forward(w)


def _forward(w: Kernel) -> None:
    """The kernels "forward" and "keeping".

    Blocks of lines: "steps" begins step k, "keep" writes what is kept before a segment, "sample"
    runs the controller, "save" writes a row, "ahead" takes the step. After the last step "save"
    goes on to "last".
    """
    loop = w.loop
    state, memory, command = loop.state, loop.memory, loop.command
    carry = state + memory + command
    n_state, n_memory = _size(state), _size(memory)
    slots = w.slots(carry)
    s, m, c = slots[:n_state], slots[n_state : n_state + n_memory], slots[n_state + n_memory :]
    first_state = len(loop.constants) + len(loop.inputs)
    w.line("br label %blocks")
    w.next_block()
    constants = w.read(loop.constants, 0)
    w.put(state + memory, s + m, w.read(state + memory, first_state))
    w.put(command, c, w.zeros(command))
    before = w.block
    w.line("br label %steps")
    w.label("steps")
    k = "%k"
    w.line(f"%k = phi i64 [ 0, %{before} ], [ %next, %after ]")
    within = w.set(f"icmp ult i64 {k}, {loop.steps}")
    w.line(f"br i1 {within}, label %within, label %save")
    w.label("within")
    if w.kind == "keeping":
        done = w.every(k, loop.segment, "keep")
        row = w.set(f"udiv i64 {k}, {loop.segment}")
        w.write(carry, len(loop.saved) + len(carry), w.get(carry, slots), row)
        w.line(f"br label %{done}")
        w.label(done)
    _sample(w, constants, k, s, m, c)
    w.line(f"br i1 {w.due(k, loop.save_every)}, label %save, label %ahead")
    w.label("save")
    row = w.set(f"udiv i64 {k}, {loop.save_every}")
    inputs = [*constants, w.number(k), *w.get(state, s), *w.get(command, c)]
    w.write(loop.saved, 0, w.program(expand(loop.save), inputs), row)
    within = w.set(f"icmp ult i64 {k}, {loop.steps}")
    w.line(f"br i1 {within}, label %ahead, label %last")
    w.label("ahead")
    inputs = [*constants, w.number(k), *w.get(state, s), *w.get(command, c)]
    w.put(state, s, w.program(expand(loop.step), inputs))
    w.line("br label %after")
    w.label("after")
    w.line(f"%next = add i64 {k}, 1")
    w.line("br label %steps")
    w.label("last")
    w.write(carry, len(loop.saved), w.get(carry, slots))
    w.line("br label %blocks")


def _sample(
    w: Kernel,
    constants: list[str],
    k: str,
    s: list[str],
    m: list[str],
    c: list[str],
    label: str = "sample",
) -> None:
    """Command and memory from step k on, into their slots ``c`` and ``m``."""
    loop = w.loop
    if loop.sample is None:
        return
    done = w.every(k, loop.sample_every, label)
    row = w.set(f"udiv i64 {k}, {loop.sample_every}")
    values = w.read(loop.inputs, len(loop.constants), row)
    inputs = [*constants, w.number(k), *w.get(loop.state, s), *w.get(loop.memory, m), *values]
    w.put(loop.command + loop.memory, [*c, *m], w.program(expand(loop.sample), inputs))
    w.line(f"br label %{done}")
    w.label(done)


def _backward(w: Kernel) -> None:
    """The kernel "backward".

    Blocks of lines: for each segment, the last one first, "again" computes and stores the states of
    the segment, and "back" goes through them from the last step to the first. At step k it runs the
    derivatives in the reverse order of the forward kernel: of the step, of "save" and of "sample".
    ``bars`` are the slots of the cotangents: those of the constants are added up over all steps;
    those of state and memory are replaced; those of the command are added up back to the sample
    that gave it, and start again from zero there.
    """
    loop = w.loop
    assert loop.step_back is not None
    state, memory, command = loop.state, loop.memory, loop.command
    carry = state + memory + command
    n_state, n_memory = _size(state), _size(memory)
    now = w.slots(carry)
    s, m, c = now[:n_state], now[n_state : n_state + n_memory], now[n_state + n_memory :]
    rows = w.rows(carry, loop.segment)
    names = ("constants", "inputs", "state", "memory", "command")
    smooth = {name: _smooth(getattr(loop, name)) for name in names}
    bars = {name: w.slots(leaves) for name, leaves in smooth.items()}
    first_kept = len(loop.constants) + len(loop.inputs)
    first_last = first_kept + len(carry)
    first_rows = first_last + len(carry)
    first_bars = first_rows + len(_smooth(loop.saved))
    w.line("br label %blocks")
    w.next_block()
    constants = w.read(loop.constants, 0)
    w.put(smooth["constants"], bars["constants"], w.zeros(smooth["constants"]))
    carried_bars = [*bars["state"], *bars["memory"], *bars["command"]]
    w.put(_smooth(carry), carried_bars, w.read(_smooth(carry), first_bars))
    last = w.read(carry, first_last)
    last_state, last_command = last[:n_state], last[n_state + n_memory :]
    _save_back(w, constants, str(loop.steps), last_state, last_command, bars, first_rows)
    before = w.block
    w.line("br label %segments")
    w.label("segments")
    first = f"[ {loop.segments - 1}, %{before} ]"
    w.line(f"%segment = phi i64 {first}, [ %segment_next, %segment_done ]")
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
    _sample(w, constants, "%j", s, m, c, "sample_again")
    w.put(command, past[n_state + n_memory :], w.get(command, c))
    w.line("%j_next = add i64 %j, 1")
    w.line(f"br i1 {w.set('icmp ult i64 %j_next, %end')}, label %again_step, label %back_first")
    w.label("again_step")
    inputs = [*constants, w.number("%j"), *w.get(state, s), *w.get(command, c)]
    w.put(state, s, w.program(expand(loop.step), inputs))
    w.line("br label %again_done")
    w.label("again_done")
    w.line("br label %again")

    w.label("back_first")
    w.line("%last_step = sub i64 %end, 1")
    w.line("br label %back")
    w.label("back")
    w.line("%k = phi i64 [ %last_step, %back_first ], [ %k_next, %back_done ]")
    stored = w.get(carry, w.of_row(carry, rows, w.set("sub i64 %k, %begin")))
    states, memories = stored[:n_state], stored[n_state : n_state + n_memory]
    commands = stored[n_state + n_memory :]
    point = [*constants, w.number("%k"), *states, *commands]
    cotangents = w.get(smooth["state"], bars["state"])
    results = w.program(expand(loop.step_back), [*point, *cotangents])
    ends = np.cumsum([_size(smooth[name]) for name in ("constants", "state", "command")])
    w.add_to(smooth["constants"], bars["constants"], results[: ends[0]])
    w.put(smooth["state"], bars["state"], results[ends[0] : ends[1]])
    w.add_to(smooth["command"], bars["command"], results[ends[1] :])
    done = w.every("%k", loop.save_every, "save")
    _save_back(w, constants, "%k", states, commands, bars, first_rows)
    w.line(f"br label %{done}")
    w.label(done)
    if loop.sample_back is not None:
        done = w.every("%k", loop.sample_every, "sample")
        row = w.set(f"udiv i64 %k, {loop.sample_every}")
        values = w.read(loop.inputs, len(loop.constants), row)
        leaves = smooth["command"] + smooth["memory"]
        cotangents = w.get(leaves, [*bars["command"], *bars["memory"]])
        inputs = [*constants, w.number("%k"), *states, *memories, *values, *cotangents]
        results = w.program(expand(loop.sample_back), inputs)
        ends = np.cumsum([_size(smooth[name]) for name in ("constants", "state", "memory")])
        w.add_to(smooth["constants"], bars["constants"], results[: ends[0]])
        w.add_to(smooth["state"], bars["state"], results[ends[0] : ends[1]])
        w.put(smooth["memory"], bars["memory"], results[ends[1] : ends[2]])
        w.write(smooth["inputs"], len(smooth["constants"]), results[ends[2] :], row)
        w.put(smooth["command"], bars["command"], w.zeros(smooth["command"]))
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
    leaves = smooth["state"] + smooth["memory"]
    first = len(smooth["constants"]) + len(smooth["inputs"])
    w.write(leaves, first, w.get(leaves, [*bars["state"], *bars["memory"]]))
    w.line("br label %blocks")


def _save_back(
    w: Kernel,
    constants: list[str],
    k: str,
    states: list[str],
    commands: list[str],
    bars: dict[str, list[str]],
    first_rows: int,
) -> None:
    """Adds to ``bars`` what the row contributes that is saved before step k."""
    loop = w.loop
    assert loop.save_back is not None
    cotangents = w.read(_smooth(loop.saved), first_rows, w.set(f"udiv i64 {k}, {loop.save_every}"))
    inputs = [*constants, w.number(k), *states, *commands, *cotangents]
    results = w.program(expand(loop.save_back), inputs)
    for name in ("constants", "state", "command"):
        leaves = _smooth(getattr(loop, name))
        w.add_to(leaves, bars[name], results[: _size(leaves)])
        results = results[_size(leaves) :]


def _size(leaves: Iterable[Leaf]) -> int:
    return sum(leaf.size for leaf in leaves)


def assembly(
    loop: Loop, kind: str, batched: Sequence[bool], lanes: int, symbol: str, features: str
) -> tuple[str, int]:
    """The text of a module, and the bytes of scratch memory that each of its threads needs.

    ``kind`` is "forward", "keeping" or "backward" (``Loop.operands``); ``batched`` says which
    operands have one value for each body.

    The function ``symbol`` is a handler of XLA's foreign function interface. Its last input is an
    int32 array: the number of bodies, the number of rows of the last result, and what ``loading``
    needs. Its last result, (threads, bytes), is the scratch memory of a run. The offsets are those
    of ``XLA_FFI_CallFrame`` and ``XLA_FFI_Buffer`` in xla/ffi/api/c_api.h.
    """
    w = Kernel(loop, kind, batched, lanes)
    write(w)
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

"""How often a program that XLA compiled for a GPU launches a kernel, and how long that takes.

``program`` reads the optimised HLO, as ``compiled.as_text()`` gives it. Each instruction of the
entry or of a loop's body that computes or copies is one launch: a fusion, a product of matrices, a
call of a kernel, a copy. A loop's launches are multiplied by its trips; of a loop whose trips XLA
does not know, one trip counts.

The time is a sum over launches. One takes at least ``LAUNCH``, otherwise what its arrays need to
move and its products to compute. A slice that is read or updated in place counts by its own size.

Both constants come from scans measured on an H200 and an H100 (docs/benchmarks/gpu.json): with 1024
bodies a launch took 1.0 us forward and 2.0 us in the gradient, and 1.6 us in an update of
examples/train_policy.py; with 2^18 bodies arrays moved at 1.4 and 1.5 TB/s, with 2^20 at 1.6.
"""

import math
import re
from typing import NamedTuple

LAUNCH = 1.6e-6  # s, from the begin of a kernel to the begin of the next one that waits for it
GRAPH = 1.0e-6  # s, the same where the whole loop is one command buffer: an assumption
BYTES, FLOPS = 1.5e12, 67e12  # a second: arrays of scans, and products in float32 at best
WIDTHS = {"pred": 1, "s8": 1, "u8": 1, "f16": 2, "bf16": 2, "f64": 8, "s64": 8, "u64": 8}
FREE = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all"}
CALLS = {"call", "while", "conditional", "async-start", "async-done"}
HEAD = re.compile(r"(ENTRY )?%([\w.\-]+) \(.*\) -> .*\{")
LINE = re.compile(r"\s*(ROOT )?%([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)")
TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')


class Instruction(NamedTuple):
    """One instruction of a computation."""

    name: str
    shape: str
    opcode: str
    rest: str  # operands and attributes
    is_root: bool

    @property
    def operands(self) -> list[str]:
        """The names of the operands."""
        return re.findall(r"%([\w.\-]+)", self.rest.split(")")[0])

    def called(self, attribute: str) -> str | None:
        """Return the computation that an attribute names, such as "body" of a loop."""
        match = re.search(rf"\b{attribute}=%([\w.\-]+)", self.rest)
        return match[1] if match else None


class Cost(NamedTuple):
    """What a part of a program needs."""

    launches: float = 0
    bytes: float = 0.0
    flops: float = 0.0
    seconds: float = 0.0

    def plus(self, other: "Cost", times: float = 1) -> "Cost":
        """Add another part, which runs this often."""
        return Cost(*(x + times * y for x, y in zip(self, other, strict=True)))


class Loop(NamedTuple):
    """A loop: its trips, None if XLA does not know them, and the cost of one trip."""

    body: str
    trips: int | None
    each: Cost
    depth: int  # the loops around it


class Program(NamedTuple):
    """The cost of a program, one trip of each loop of unknown length, and its loops."""

    total: Cost
    loops: list[Loop]


def program(text: str, launch: float = LAUNCH) -> Program:
    """Return what the text of an optimised HLO module says, if a launch takes so many seconds."""
    computations, entry = _parsed(text)
    loops: list[Loop] = []

    def of(name: str, depth: int) -> Cost:
        cost, own = Cost(), computations[name]
        shapes = {each.name: each.shape for each in own}
        for each in own:
            if each.opcode == "while":
                place = len(loops)
                inside = of(each.called("body") or "", depth + 1)
                match = TRIPS.search(each.rest)
                trips = int(match[1]) if match else None
                loops.insert(place, Loop(each.called("body") or "", trips, inside, depth))
                cost = cost.plus(inside, trips or 1)
            elif each.opcode == "call":
                cost = cost.plus(of(each.called("to_apply") or "", depth))
            elif each.opcode not in FREE | CALLS:
                cost = cost.plus(_launch(each, shapes, computations, launch))
        return cost

    return Program(of(entry, 0), loops)


def _parsed(text: str) -> tuple[dict[str, list[Instruction]], str]:
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        head, match = HEAD.match(line), LINE.match(line)
        if head:
            current = computations.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif match and current is not None:
            current.append(Instruction(match[2], match[3], match[4], match[5], bool(match[1])))
    return computations, entry


def _launch(each: Instruction, shapes: dict[str, str], computations: dict, launch: float) -> Cost:
    called = each.called("calls")
    inner = computations[called] if called else []
    moved = (
        _moved(inner)
        if inner
        else size(each.shape) + sum(size(shapes.get(name, "")) for name in each.operands)
    )
    flops = sum(_flops(x, {y.name: y.shape for y in inner}) for x in inner)
    flops += _flops(each, shapes)
    return Cost(1, moved, flops, max(launch, moved / BYTES + flops / FLOPS))


def _moved(inner: list[Instruction]) -> int:
    """Return the bytes that a fusion reads and writes."""
    shapes, total = {each.name: each.shape for each in inner}, 0
    updated = [each for each in inner if each.opcode == "dynamic-update-slice"]
    in_place = {each.operands[0] for each in updated}
    for each in inner:
        users = [x for x in inner if each.name in x.operands]
        if each.opcode == "parameter" and each.name not in in_place:
            sliced = users and all(x.opcode == "dynamic-slice" for x in users)
            total += sum(size(x.shape) for x in users) if sliced else size(each.shape)
        if each.is_root:
            results = [size(shapes[x.operands[1]]) for x in updated]
            total += sum(results) if updated else size(each.shape)
    return total


def _flops(each: Instruction, shapes: dict[str, str]) -> int:
    match = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", each.rest)
    if each.opcode != "dot" or not match:
        return 0
    left = dimensions(shapes[each.operands[0]])
    summed = math.prod(left[int(k)] for k in match[1].split(",") if k)
    return 2 * math.prod(dimensions(each.shape)) * summed


def dimensions(shape: str) -> list[int]:
    """Return the lengths of the axes of an array such as "f32[64,3]{1,0}"."""
    match = re.match(r"\w+\[([\d,]*)\]", shape)
    return [int(n) for n in match[1].split(",") if n] if match else []


def size(shape: str) -> int:
    """Return the bytes of an array, or of all arrays of a tuple."""
    arrays = re.findall(r"(\w+)\[([\d,]*)\]", shape)
    lengths = [(kind, [int(n) for n in axes.split(",") if n]) for kind, axes in arrays]
    return sum(WIDTHS.get(kind, 4) * math.prod(axes) for kind, axes in lengths)

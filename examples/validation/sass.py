"""How long a loop of NVIDIA's machine code takes, from its listing alone.

Every instruction of sm_90a carries what the assembler decided about time: how many cycles the
scheduler waits before the next instruction of the same warp, which of six barriers an instruction
of unknown duration releases when it ends, and for which barriers an instruction waits.
``nvdisasm -hex`` prints these bits, and ``loops`` reads them. A loop's usual path is the one with
the fewest instructions (``path``), so divisions of special numbers, large angles
and saved rows do not count.

The prediction has two bounds. One warp alone takes the sum of its waits, ``latency``. Many warps
of a scheduler take what its units need, ``issue``: a cycle for each instruction, two for each of
the unit of integers, comparisons and selects (16 lanes), eight for each of the unit of roots and
reciprocals (4 lanes). With W warps a scheduler a step takes about max(latency, W issue / SHARE).

Assumed: the durations in ``DURATION``, and all local memory in the first cache. ``SHARE`` and
``TURN`` were chosen once, for two kernels measured on an H100 (docs/benchmarks/gpu_h100.json and
the same loop in CUDA): each explains both.
"""

import itertools
import re
from typing import NamedTuple

DURATION = {"MUFU": 22, "FCHK": 22, "FRND": 22, "F2I": 22, "I2F": 22, "F2F": 22, "LDL": 33}
DURATION |= {"LDG": 200, "LDC": 40, "LDS": 30, "DMUL": 48, "DFMA": 48, "DADD": 48}
UNKNOWN = 22  # cycles of another instruction that releases a barrier
SPECIAL = ("MUFU", "FCHK", "FRND", "F2I", "I2F", "F2F")
FLOAT = ("FADD", "FMUL", "FFMA", "HFMA2", "IMAD")  # of the units with 32 lanes
MEMORY = ("LD", "ST", "ATOM", "RED", "ULDC")
BRANCHES = ("BRA", "BSSY", "BSYNC", "CALL", "RET", "EXIT", "WARPSYNC", "BREAK", "NOP")
SHORT = 50  # instructions of a loop that is no time loop
TURN = 14  # cycles that a branch, or the place where its two ways meet, takes besides
SHARE = 0.82  # of a scheduler's cycles in which it issues an instruction at most
MULTIPROCESSORS, CLOCK = 132, 1.98e9  # of an H100 or H200, and its cycles a second

LINE = re.compile(
    r"\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)(.*?);\s*/\* 0x([0-9a-f]{16}) \*/"
)
UPPER = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/")


class Instruction(NamedTuple):
    """One instruction and what its control bits say."""

    name: str
    predicated: bool
    target: str | None  # the label of a branch
    wait: int  # cycles until the next one
    releases: tuple[int, ...]  # barriers
    needs: int  # barriers, as bits


class Loop(NamedTuple):
    """The usual path through a loop."""

    names: list[str]
    latency: int  # cycles of one warp alone
    issue: int  # cycles of a scheduler for each warp, if there are many

    def classes(self) -> dict[str, int]:
        """Return how many instructions there are of each class."""
        counts: dict[str, int] = dict.fromkeys(
            ("FMA", "float", "special", "memory", "branch", "other"), 0
        )
        for name in self.names:
            counts[kind(name)] += 1
        return counts


def kind(name: str) -> str:
    """Return the class of an instruction."""
    first = name.split(".")[0]
    if first in SPECIAL:
        return "special"
    if first == "FFMA":
        return "FMA"
    if first in ("FADD", "FMUL", "FSEL", "FSETP", "FMNMX"):
        return "float"
    if first.startswith(MEMORY):
        return "memory"
    return "branch" if first in BRANCHES else "other"


def resident(registers: int, block: int) -> int:
    """Return how many blocks of threads a multiprocessor holds at once."""
    by_registers = 2**16 // (-(-registers // 8) * 8 * block)
    return min(by_registers, 2048 // block, 32)


def seconds(kernel_loops: list[Loop], registers: int, bodies: int, steps: int, block=128) -> float:
    """Return the time of a kernel that runs its loops ``steps`` times, without its launch.

    Blocks run in waves: all multiprocessors full, and the last wave with what remains.
    """
    latency = sum(loop.latency for loop in kernel_loops)
    issue = sum(loop.issue for loop in kernel_loops)

    def wave(blocks: int) -> float:
        warps = blocks * block / 128  # of a scheduler
        return max(latency, warps * issue / SHARE)

    most = resident(registers, block)
    full, left = divmod(-(-bodies // block), MULTIPROCESSORS * most)
    last = wave(-(-left // MULTIPROCESSORS)) if left else 0.0
    return steps * (full * wave(most) + last) / CLOCK


def parsed(listing: str) -> tuple[list[Instruction], dict[str, int]]:
    """Return the instructions of ``nvdisasm -c -hex``, and the index of the next one by label."""
    code: list[Instruction] = []
    labels, pending = {}, None
    for line in listing.splitlines():
        label, match, upper = re.match(r"(\.L\w+):", line), LINE.match(line), UPPER.match(line)
        if label:
            labels[label[1]] = len(code)
        elif match:
            pending = match
        elif upper and pending:
            code.append(_instruction(pending, int(upper[1], 16)))
            pending = None
    return code, labels


def _instruction(match, upper):
    control = upper >> 41
    barriers = {(control >> 5) & 7, (control >> 8) & 7} - {7}
    branch = re.search(r"`\((\.L\w+)\)", match[4]) if match[3].startswith("BRA") else None
    return Instruction(
        name=match[3],
        predicated=bool(match[2]),
        target=branch[1] if branch else None,
        wait=control & 15,
        releases=tuple(barriers),
        needs=(control >> 11) & 63,
    )


def loops(listing: str) -> list[Loop]:
    """Return the usual path of each loop in which there is no other loop, in their order."""
    code, labels = parsed(listing)
    ends = {}
    for last, instruction in enumerate(code):
        first = labels.get(instruction.target or "", last + 1)
        if last - first >= SHORT:
            ends[first] = last
    inner = [
        (first, end)
        for first, end in sorted(ends.items())
        if not any(first < other <= ends[other] <= end for other in ends)
    ]
    return [_loop([code[k] for k in path(code, labels, *ends)]) for ends in inner]


def path(code: list[Instruction], labels: dict[str, int], first: int, last: int) -> list[int]:
    """Return the shortest way from a label back to it, of at least ``SHORT`` instructions.

    If there is a shorter one, which leaves out the step, return the shortest one through the
    longest part without a branch.
    """
    shortest = _way(code, labels, first, first)
    if len(shortest) >= SHORT:
        return shortest
    cuts = [first, *(k + 1 for k in range(first, last + 1) if code[k].target), last + 1]
    cuts = sorted({*cuts, *(k for k in labels.values() if first < k <= last)})
    _, middle = max((end - begin, begin) for begin, end in itertools.pairwise(cuts))
    begin = _way(code, labels, first, middle) if middle != first else []
    return [*begin, *_way(code, labels, middle, first)]


def _way(code, labels, first, last):
    """Return the instructions from one up to another, without it, by breadth-first search."""
    before, ways = {first: -1}, [first]
    for k in ways:
        for following in _following(code, labels, k):
            if following == last:
                way = [k]
                while before[way[-1]] >= 0:
                    way.append(before[way[-1]])
                return way[::-1]
            if following < len(code) and following not in before:
                before[following] = k
                ways.append(following)
    return []


def _following(code, labels, k):
    name, target = code[k].name.split(".")[0], code[k].target
    ahead = [] if name in ("BRA", "EXIT", "RET") and not code[k].predicated else [k + 1]
    return [*ahead, labels[target]] if target in labels else ahead


def _loop(way):
    names = [instruction.name for instruction in way]
    alone = _clock(way * 4)
    latency = (alone[-1] - alone[len(way) - 1]) // 3
    of = [name.split(".")[0] for name in names]
    special = sum(name in SPECIAL for name in of)
    integers = sum(name not in (*SPECIAL, *FLOAT, *BRANCHES) for name in of)
    return Loop(names, latency, max(len(way), 2 * integers, 8 * special))


def _clock(way):
    """Return the cycle after each instruction of one warp that runs alone."""
    now, free, times = 0, [0] * 6, []
    for instruction in way:
        now = max([now, *(free[b] for b in range(6) if instruction.needs >> b & 1)])
        duration = DURATION.get(instruction.name.split(".")[0], UNKNOWN)
        for barrier in instruction.releases:
            free[barrier] = max(free[barrier], now + duration)
        turns = instruction.name.split(".")[0] in ("BRA", "BSYNC")
        now += max(1, instruction.wait) + turns * TURN
        times.append(now)
    return times

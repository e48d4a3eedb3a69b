"""What does not change from trip to trip of a loop is computed once, before the loop.

A branch or a function in the loop may have results of both kinds. It is then called twice, before
the loop and in it, each time for what is needed there. Products that are used only in sums stay,
because both are rounded together (``expansion``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxquat.fused.ir.builder import Builder, Scalar
from jaxquat.fused.ir.expansion import summed
from jaxquat.fused.ir.program import Op, Program, Routine, needed

Known = dict[int, Any]  # a value for its number, a list of items for a call's


def hoisted(outer: Builder, loop: Routine, fixed: Sequence[Scalar]) -> tuple[Routine, list[Scalar]]:
    """Return a loop without its invariants, which ``outer`` computes, and its fixed values."""
    program, before = loop.program, dict(enumerate(fixed))
    numbered = list(enumerate(program.ops, len(program.inputs)))
    both = {number for number, op in numbered if op.name == "const"}.union(summed(program))
    parts: dict[int, dict[int, Scalar]] = {}
    for number, op in numbered:
        if all(a in before for a in op.args):
            before[number] = outer.copy(op, before)
        elif op.name == "item" and op.value in parts.get(op.args[0], ()):
            before[number] = parts[op.args[0]][op.value]
        elif op.name == "call":
            parts[number] = _called(outer, op, before)

    known = before.keys() - both
    wanted = needed(program.ops, len(program.inputs), program.outputs, known)
    changing = range(loop.fixed, len(program.inputs))
    staying = wanted - known
    stays = [(number, op) for number, op in numbered if number in staying]
    inputs = sorted(wanted & known)
    inner = Builder([program.dtype(a) for a in (*inputs, *changing)])
    values: Known = dict(zip((*inputs, *changing), inner.arguments, strict=True))
    for number, op in stays:
        if parts.get(number):
            others = [k for k in range(op.value.items) if k not in parts[number]]
            values[number] = _part(inner, op, others, values)
        else:
            values[number] = inner.copy(op, values)
    body = inner.finish([values[k] for k in program.outputs])
    return loop._replace(program=body, fixed=len(inputs)), [before[a] for a in inputs]


def apart(program: Program, fixed: int) -> tuple[Program, Program] | None:
    """Return what depends on the first ``fixed`` inputs alone, and the rest, which takes that.

    None for less than a twentieth of the operations: the kernel would not be faster.
    """
    known, count = set(range(fixed)), 0
    for number, op in enumerate(program.ops, len(program.inputs)):
        if known.issuperset(op.args):
            known.add(number)
            count += op.name != "const"
    if 20 * count < len(program.ops) or not count:
        return None
    outer = Builder(program.inputs[:fixed])
    loop = Routine(program, fixed=fixed, carried=len(program.inputs) - fixed)
    rest, values = hoisted(outer, loop, outer.arguments)
    return outer.finish(values), rest.program


def _called(b: Builder, op: Op, values: Known) -> dict[int, Scalar]:
    """Call a routine for the items that depend only on known arguments, by their numbers."""
    routine, program = op.value, op.value.program
    known = {k for k, a in enumerate(op.args) if a in values}
    unknown = routine.kind != "loop" and 0 not in known  # the condition of a branch
    if unknown or routine.trips != 1 or routine.kind == "while":
        return {}
    for number, inner in enumerate(program.ops, len(program.inputs)):
        if known.issuperset(inner.args):
            known.add(number)
    needs = lambda k: {program.outputs[k], *([routine.fixed + k] if k < routine.carried else [])}  # noqa: E731
    wanted = [k for k in range(len(program.outputs)) if needs(k) <= known]
    return _part(b, op, wanted, values) if wanted else {}


def _part(b: Builder, op: Op, wanted: Sequence[int], values: Known) -> dict[int, Scalar]:
    """Call a routine of one trip for some of its items."""
    routine, program = op.value, op.value.program
    outputs = [program.outputs[k] for k in wanted]
    used = needed(program.ops, len(program.inputs), outputs)
    carried = [routine.fixed + k for k in wanted if k < routine.carried]
    others = [k for k in range(len(program.inputs)) if k not in carried]
    taken = [k for k in others if k in used or (k == 0 and routine.kind != "loop")]
    inner = Builder([program.inputs[k] for k in (*taken, *carried)])
    of_inner: Known = dict(zip((*taken, *carried), inner.arguments, strict=True))
    for number, step in enumerate(program.ops, len(program.inputs)):
        if number in used:
            of_inner[number] = inner.copy(step, of_inner)
    body = inner.finish([of_inner[k] for k in outputs])
    part = Routine(body, 1, len(taken), len(carried), routine.kind)
    items = b.call(part, [values[op.args[k]] for k in (*taken, *carried)])
    return dict(zip(wanted, items, strict=True))

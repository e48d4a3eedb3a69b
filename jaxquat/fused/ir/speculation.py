"""A program without its rare branches, and a single branch at its end that repeats the program.

A GPU pays for every branch: its threads part and meet again, and instructions do not move across.
``speculated`` leaves the rare branches out, as if none were taken, and returns to the program as it
was if one of them had to be. The first branch that had to be taken saw right values, so at least
one of the conditions is true then, whatever the values after it.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from jaxquat.fused.ir.builder import Builder, Scalar, where
from jaxquat.fused.ir.program import Program, Routine

RARE = ("rare", "seldom")
VALUES = 256  # inputs and outputs: all are read in every step, whether the program repeats or not
LONG = 6000  # operations of a program, which the text has twice


def speculated(program: Program) -> Program:
    """Return the same program with one rare branch in place of all, where that is faster."""
    rare = [op for op in program.ops if op.name == "call" and op.value.kind in RARE]
    values = len(program.inputs) + len(program.outputs)
    if not rare or values > VALUES or sum(program.counts().values()) > LONG:
        return program
    b = Builder(program.inputs)
    needed: list[Scalar] = []
    usual = _outputs(b, program, b.arguments, needed)
    again = functools.reduce(operator.or_, needed)
    return b.finish(b.call(_whole(program), [again, *b.arguments, *usual]))


def _outputs(
    b: Builder, program: Program, inputs: list[Scalar], needed: list[Scalar] | None
) -> list[Scalar]:
    """Write a program into a builder; conditions of rare branches left out go into ``needed``."""
    values: dict[int, Any] = dict(enumerate(inputs))
    for number, op in enumerate(program.ops, len(inputs)):
        if needed is not None and op.name == "call" and op.value.kind in RARE:
            args = [values[a] for a in op.args]
            needed.append(args[0])
            values[number] = op.value.split(args)[1]
        else:
            values[number] = b.copy(op, values)
    return [values[k] for k in program.outputs]


def _whole(program: Program) -> Routine:
    """Return a program as a rare branch of (is needed, inputs, usual outputs)."""
    dtypes = [program.dtype(k) for k in program.outputs]
    b = Builder([np.dtype(bool), *program.inputs, *dtypes])
    needed, count = b.arguments[0], 1 + len(program.inputs)
    results = _outputs(b, program, b.arguments[1:count], None)
    pairs = zip(results, b.arguments[count:], strict=True)
    chosen = [where(needed, x, usual) for x, usual in pairs]
    return Routine(b.finish(chosen), 1, count, len(dtypes), "seldom")

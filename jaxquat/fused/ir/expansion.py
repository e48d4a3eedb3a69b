"""Passes over scalar programs, before they become machine code.

``expanded`` replaces functions such as sin by the operations in ``elementary``. ``contracted``
joins x y + z into one operation that rounds once ("fma"). LLVM could do so too, but then the last
bit would depend on the rest of the program, the number of lanes and the processor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxquat.fused.ir.builder import Builder, Scalar, fma
from jaxquat.fused.ir.elementary import EXPANSIONS
from jaxquat.fused.ir.program import Op, Program, Routine

Rule = Callable[[Builder, Op, list[Any]], Scalar]  # of an operation and the new values of all


def lowered(program: Program) -> Program:
    """Return the program in operations that LLVM has; sums in functions are not contracted."""
    return _rewritten(program, _contracting(program, _expand), lowered)


def expanded(program: Program) -> Program:
    """Return the same program without the functions of ``elementary``."""
    if not any(op.name == "call" or op.name in EXPANSIONS for op in program.ops):
        return program
    return _rewritten(program, _expand, expanded)


def contracted(program: Program) -> Program:
    """Return the same program with fma where a product is used only in sums and differences.

    A product minus itself stays: x y - y x is 0, but fma would return the rounding error.
    """
    return _rewritten(program, _contracting(program, Builder.copy), contracted)


def _expand(b: Builder, op: Op, values: list[Any]) -> Scalar:
    if op.name in EXPANSIONS and op.dtype.kind == "f":
        return EXPANSIONS[op.name](*(values[a] for a in op.args))
    return b.copy(op, values)


def _contracting(program: Program, otherwise: Rule) -> Rule:
    products = summed(program)

    def rule(b: Builder, op: Op, values: list[Any]) -> Scalar:
        if op.name not in ("add", "sub"):
            return otherwise(b, op, values)
        first, second = op.args
        if first in products:
            x, y = (values[a] for a in products[first])
            z = values[second]
            return fma(x, y, z if op.name == "add" else -z)
        if second in products:
            x, y = (values[a] for a in products[second])
            return fma(x if op.name == "add" else -x, y, values[first])
        return otherwise(b, op, values)

    return rule


def summed(program: Program) -> dict[int, tuple[int, ...]]:
    """Return the float products that are used only in sums and differences, with their factors."""
    products = {
        k: op.args
        for k, op in enumerate(program.ops, len(program.inputs))
        if op.name == "mul" and op.dtype.kind == "f"
    }
    used_otherwise = set(program.outputs)
    for op in program.ops:
        if op.name not in ("add", "sub") or (op.name == "sub" and op.args[0] == op.args[1]):
            used_otherwise.update(op.args)
    return {k: factors for k, factors in products.items() if k not in used_otherwise}


def _rewritten(program: Program, rule: Rule, of_routine: Callable[[Program], Program]) -> Program:
    b = Builder(program.inputs)
    values: list[Any] = list(b.arguments)  # the value of a call is the list of its items
    routines: dict[int, tuple[Routine, list[int]]] = {}
    for op in program.ops:
        if op.name == "call":
            if id(op.value) not in routines:
                routine = op.value._replace(program=of_routine(op.value.program))
                routines[id(op.value)] = _without_unused(routine)
            routine, inputs = routines[id(op.value)]
            fixed, carried, rows = op.value.split(op.args)
            groups = [*([a] for a in (*fixed, *carried)), *rows]
            values.append(b.call(routine, [values[a] for k in inputs for a in groups[k]]))
        else:
            values.append(rule(b, op, values))
    result = b.finish([values[k] for k in program.outputs])
    b.forget()
    return result


def _without_unused(routine: Routine) -> tuple[Routine, list[int]]:
    """Return a routine without the fixed values and rows that it does not use, and its inputs."""
    program, first = routine.program, routine.fixed + routine.carried
    condition = range(routine.kind not in ("loop", "while"))  # the first input of a branch
    used = {a for op in program.ops for a in op.args}
    used.update(program.outputs, range(routine.fixed, first), condition)
    count = len(program.inputs)
    inputs = sorted(used.intersection(range(count)))
    kept = [*inputs, *range(count, count + len(program.ops))]
    new = {number: place for place, number in enumerate(kept)}
    ops = [op._replace(args=tuple([new[a] for a in op.args])) for op in program.ops]
    dtypes, outputs = (program.inputs[k] for k in inputs), (new[k] for k in program.outputs)
    program = Program(tuple(dtypes), tuple(ops), tuple(outputs))
    fixed = sum(k < routine.fixed for k in inputs)
    return routine._replace(program=program, fixed=fixed), inputs

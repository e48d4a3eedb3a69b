"""The line of LLVM for each scalar operation, from the table of ``ir.operations``."""

from __future__ import annotations

import numpy as np

from jaxquat.fused.ir.operations import OPERATIONS
from jaxquat.fused.ir.program import Op
from jaxquat.fused.targets.text import Text


def operation(text: Text, op: Op, args: list[str], kinds: list[np.dtype]) -> str:
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
    if dtype.kind == "f":
        if old.kind == "f":
            word = "fpext" if dtype.itemsize > old.itemsize else "fptrunc"
        else:
            word = "sitofp" if old.kind == "i" else "uitofp"
        return text.set(f"{word} {source} {value} to {target}")
    if old.kind == "f":
        sense = "fptoui" if dtype.kind == "u" else "fptosi"
        integers, floats = f"i{8 * dtype.itemsize}", f"f{8 * old.itemsize}"
        name = f"llvm.{sense}.sat.v{text.lanes}{integers}.v{text.lanes}{floats}"
        return text.call(target, name, [(source, value)])
    if old.kind == "b" or dtype.itemsize > old.itemsize:
        return text.set(f"{'sext' if old.kind == 'i' else 'zext'} {source} {value} to {target}")
    if dtype.itemsize < old.itemsize:
        return text.set(f"trunc {source} {value} to {target}")
    return value

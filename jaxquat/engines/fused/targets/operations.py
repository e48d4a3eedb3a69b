"""The line of LLVM for each scalar operation."""

from __future__ import annotations

import numpy as np

from jaxquat.engines.fused.program import Op
from jaxquat.engines.fused.targets.text import FLAGS, Text, scalar

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


def operation(text: Text, op: Op, args: list[str], kinds: list[np.dtype]) -> str:
    """The name of the result of one operation; ``kinds``: the dtypes of its arguments."""
    name, dtype = op.name, op.dtype
    if name == "const":
        return text.constant(dtype, op.number)
    real, unsigned = kinds[-1].kind == "f", kinds[-1].kind in "ub"
    width = 1 if kinds[-1].kind == "b" else 8 * kinds[-1].itemsize
    kind, suffix = text.vector(kinds[-1]), f"v{text.lanes}{'f' if real else 'i'}{width}"
    if name in _BINARY:
        word = _BINARY[name][0 if real else 2 if unsigned else 1]
        return text.set(f"{word} {kind} {args[0]}, {args[1]}")
    if name in _COMPARISONS:
        word = _COMPARISONS[name][0 if real else 2 if unsigned else 1]
        return text.set(f"{word} {kind} {args[0]}, {args[1]}")
    if name == "select":
        mask = f"{text.vector(kinds[0])} {args[0]}"
        return text.set(f"select {mask}, {kind} {args[1]}, {kind} {args[2]}")
    if name == "neg":
        word = "fneg" if real else "sub"
        return text.set(f"{word} {kind} {'' if real else 'zeroinitializer, '}{args[0]}")
    if name == "not":
        ones = f"splat ({scalar(dtype)} {'true' if dtype.kind == 'b' else -1})"
        return text.set(f"xor {kind} {args[0]}, {ones}")
    if name in ("max", "min"):
        word = f"{name}imum" if real else f"{'u' if unsigned else 's'}{name}"
        return text.call(kind, f"llvm.{word}.{suffix}", [(kind, a) for a in args])
    if name == "abs" and not real:
        return text.call(kind, f"llvm.abs.{suffix}", [(kind, args[0]), ("i1", "false")])
    if name in _INTRINSICS:
        return text.call(kind, f"llvm.{_INTRINSICS[name]}.{suffix}", [(kind, a) for a in args])
    if name == "bitcast":
        return text.set(f"bitcast {kind} {args[0]} to {text.vector(dtype)}")
    if name == "convert":
        return _convert(text, dtype, kinds[0], args[0])
    raise AssertionError(name)


def _convert(text: Text, dtype: np.dtype, old: np.dtype, value: str) -> str:
    """A value of dtype ``old`` as one of ``dtype``, as XLA converts it."""
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

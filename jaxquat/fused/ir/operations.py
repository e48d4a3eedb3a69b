"""The scalar operations: the meaning of each to Python and LLVM, and its cost.

All arguments of an operation and its result have one dtype, except that comparisons return a
boolean and the first argument of "select" is one. ``program.Op`` has six more operations. Without
an LLVM instruction for floats, ``elementary`` expands an operation for floats.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Operation(NamedTuple):
    """One row of the table."""

    fold: Callable[..., Any] | None  # on numpy scalars, for constants
    llvm: tuple[str, str, str] | None = None  # float, signed, unsigned; with a dot, an intrinsic
    cost: float = 1  # in units of the addition of two vectors
    commutes: bool = False  # whether the order of two arguments does not matter
    compares: bool = False  # whether the result is a boolean


def _quotient(x: Any, y: Any) -> Any:
    """Divide; integers towards zero and by Python's ints, as float64 has too few bits."""
    if x.dtype.kind == "f":
        return x / y
    size = abs(int(x)) // abs(int(y))
    return size if (x < 0) == (y < 0) else -size


def _shifted(x: Any, y: Any, kind: str) -> Any:
    dtype = f"{kind}{x.dtype.itemsize}"
    return (x.view(dtype) >> y.view(dtype)).view(x.dtype)


def _select(p: Any, x: Any, y: Any) -> Any:
    return x if p else y


def _of_floats(instruction: str) -> tuple[str, str, str]:
    return (instruction, "", "")


def _of_integers(instruction: str) -> tuple[str, str, str]:
    return ("", instruction, instruction)


OPERATIONS: dict[str, Operation] = {
    "add": Operation(operator.add, ("fadd", "add", "add"), commutes=True),
    "sub": Operation(operator.sub, ("fsub", "sub", "sub")),
    "mul": Operation(operator.mul, ("fmul", "mul", "mul"), commutes=True),
    "div": Operation(_quotient, ("fdiv", "sdiv", "udiv"), cost=8),
    "rem": Operation(np.fmod, ("", "srem", "urem"), cost=40),
    "max": Operation(np.maximum, ("llvm.maximum", "llvm.smax", "llvm.umax")),
    "min": Operation(np.minimum, ("llvm.minimum", "llvm.smin", "llvm.umin")),
    "neg": Operation(operator.neg, _of_floats("fneg")),
    "abs": Operation(abs, _of_floats("llvm.fabs")),
    "fma": Operation(None, _of_floats("llvm.fma")),
    "sqrt": Operation(np.sqrt, _of_floats("llvm.sqrt"), cost=10),
    "floor": Operation(np.floor, _of_floats("llvm.floor")),
    "round": Operation(np.rint, _of_floats("llvm.rint")),  # halfway: to the even one
    "eq": Operation(operator.eq, ("fcmp oeq", "icmp eq", "icmp eq"), commutes=True, compares=True),
    "ne": Operation(operator.ne, ("fcmp une", "icmp ne", "icmp ne"), commutes=True, compares=True),
    "lt": Operation(operator.lt, ("fcmp olt", "icmp slt", "icmp ult"), compares=True),
    "le": Operation(operator.le, ("fcmp ole", "icmp sle", "icmp ule"), compares=True),
    "select": Operation(_select, ("select", "select", "select")),
    "and": Operation(operator.and_, _of_integers("and"), commutes=True),
    "or": Operation(operator.or_, _of_integers("or"), commutes=True),
    "xor": Operation(operator.xor, _of_integers("xor"), commutes=True),
    "shl": Operation(np.left_shift, _of_integers("shl")),
    "shr": Operation(functools.partial(_shifted, kind="u"), _of_integers("lshr")),
    "sar": Operation(functools.partial(_shifted, kind="i"), _of_integers("ashr")),
    "sin": Operation(np.sin, cost=25),
    "cos": Operation(np.cos, cost=25),
    "exp": Operation(np.exp, cost=20),
    "expm1": Operation(np.expm1, cost=20),
    "log": Operation(np.log, cost=25),
    "log1p": Operation(np.log1p, cost=35),
    "tanh": Operation(np.tanh, cost=30),
    "atan2": Operation(np.arctan2, cost=40),
    "pow": Operation(np.power, cost=80),
}


def converted(x: Any, dtype: np.dtype) -> Any:
    """Convert a number as XLA does: truncated and clamped to the limits of an integer; NaN to 0."""
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        return x.astype(dtype)
    limits = np.iinfo(dtype)
    if np.isnan(x):
        return dtype.type(0)
    if x <= limits.min:
        return dtype.type(limits.min)
    return dtype.type(limits.max if x >= limits.max else int(x))

"""A function as one file of C99, for a flight controller (provisional).

The file is printed from the scalar program of the fused engine, not from the jaxpr. A jaxpr has
whole arrays as values and would need loops and buffers for each of them. The scalar program has
the order of operations, the joined products and sums, and the elementary functions of the kernel,
so the C code has the same bits. What a function closes over is an input of the program, so a matrix
of weights is a constant table, and its products are loops over the table.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable, Sequence
from importlib import metadata
from typing import Any

import jax
import numpy as np

from jaxquat._internal import checks
from jaxquat.fused.ir.expansion import contracted
from jaxquat.fused.ir.program import Program
from jaxquat.fused.recurrence import LOOPS
from jaxquat.fused.targets.c import CONSTANT, LONG, Body, File
from jaxquat.fused.targets.c_operations import (
    RESERVED,
    Element,
    Value,
    after,
    ctype,
    literal,
    parts,
    variable_of,
)
from jaxquat.fused.trace import calls
from jaxquat.fused.trace.hoisting import hoist
from jaxquat.fused.trace.tracing import program_of
from jaxquat.fused.trace.values import raw_dtype, raw_shape

__all__ = ["c"]

_FILE = """\
/* {name}: written by jaxquat {version}.

   A call has {operations} operations. Local variables have at most {stack} bytes in the deepest
   chain of calls, if none share memory; constant tables have {tables} bytes. Nothing is allocated,
   nothing is static but the tables, and nothing calls itself. Results may lie where arguments do.
   {functions}

   Other files get the declarations alone with #define {upper}_DECLARATIONS before the #include. */

#ifndef {upper}_H
#define {upper}_H

#include <stdbool.h>
#include <stdint.h>

{types}{prototype};

#endif

#ifndef {upper}_DECLARATIONS

#include <math.h>
{guard}
{parts}

#endif
"""
_OWN = "Compile without contraction of products and sums: gcc -std=c99, -ffp-contract=off."
_LIBM = "Sine, exponential and other functions are those of math.h."
_GUARD = """
#ifdef __FAST_MATH__
#error "the elementary functions need the arithmetic of IEEE 754: compile without -ffast-math"
#endif
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif
"""


def c(
    function: Callable[..., Any],
    example_arguments: tuple[Any, ...],
    *,
    name: str = "step",
    functions: str = "own",
) -> str:
    """Write a function as one file of C99. -> the text.

    The function may be a scheme's step with its torque, the update of a controller, the ``step`` of
    a filter, or a policy: what ``jq.fused`` compiles. The C function takes an argument for each of
    the function, then pointers to the results: numbers by value, arrays, and structs with a field
    for each leaf, named by its path (``state.q`` of a memory is ``state_q``); arrays of several
    axes lie row by row. Results of the same structure as an argument have its type, so a state may
    be overwritten. What the function closes over is constant. Loops of fixed length are unrolled if
    they have fewer than 10,000 operations as in a kernel, or 300 with "libm". All memory is on the
    stack, whose size a comment states.

    Args:
        function: a pure function of pytrees of arrays, float32 or float64, integers, booleans.
        example_arguments: its arguments, for shapes and dtypes; values do not matter.
        name: of the C function, and the prefix of its types.
        functions: "own" writes out sine, exponential and others, so results have the bits of
            ``jq.fused.scan`` on a CPU. There numbers below the normal range are zero, here only in
            a processor's mode for it (FTZ and DAZ of an x86's MXCSR, FZ of an ARM's FPSCR). "libm"
            calls those of ``math.h``. Both call its exact functions, such as ``fmaf``.

    Raises:
        ValueError, TypeError: a bad argument, by name.
        NotScalarError: a primitive, an array of more than 4096 numbers or a program that is too
            long for scalar code.

    Examples:
        >>> text = jq.export.c(lambda angle: jnp.sin(angle), (jnp.zeros(3),), name="sines")
        >>> "void sines(const float angle[3], float result[3])" in text
        True
    """
    checks.function("function", function)
    checks.instance("example_arguments", example_arguments, tuple, "a tuple")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z]\w*", name) or name in RESERVED:
        raise ValueError(f"name: wanted a name of C, got {name!r}")
    checks.one_of("functions", functions, ("own", "libm"))
    checks.arrays("example_arguments", example_arguments)
    arguments = jax.eval_shape(lambda *x: x, *example_arguments)
    closed, results = jax.make_jaxpr(function, return_shape=True)(*example_arguments)
    closed, fixed = hoist(closed)
    program = contracted(program_of(closed, loops=LOOPS if functions == "own" else calls.LONG))
    file, interface = File(name, functions == "own"), _Interface(name)
    inputs: list[Value] = []
    for x in fixed:
        array = np.asarray(jax.random.key_data(x) if checks.is_key(x) else x).ravel()
        numbers = list(map(literal, array))
        long = array.size >= LONG
        inputs += _numbers(file.table(array.dtype, numbers), array.size) if long else numbers
    labels = _labels(function, len(arguments), name)
    for label, tree in zip(labels, arguments, strict=True):
        inputs += interface.added(label, tree, "const ")
    several = type(results) is tuple
    targets: list[Value] = []
    for k, tree in enumerate(results if several else [results]):
        targets += interface.added(f"result{k}" if several else "result", tree, "")
    head = f"void {name}({', '.join(interface.parameters) or 'void'})"
    file.add(name, head, _body(file, program, inputs, targets, labels))
    return _FILE.format(
        name=name, version=metadata.version("jaxquat"), upper=name.upper(),
        operations=sum(program.counts().values()), stack=file.stacks[name],
        tables=file.table_bytes, functions=_OWN if file.own else _LIBM,
        types="".join(interface.types), prototype=head, guard=_GUARD if file.own else "",
        parts="\n\n".join(file.parts),
    )  # fmt: skip


def _body(
    file: File, program: Program, inputs: list[Value], targets: list[Value], labels: list[str]
) -> Body:
    """Return the lines of the function, which writes its results after all that it reads."""
    body, dtypes = Body(file), [program.dtype(k) for k in program.outputs]
    results = _kept(body, dtypes, body.program(program, inputs))
    text = "\n".join(body.lines)
    for name in {variable_of(x).split("->")[0] for x in inputs} & {*labels}:
        if not re.search(rf"\b{name}\b", text):
            body.line(f"(void){name};")
    place = 0
    for part in parts(dtypes, targets):
        end = place + len(part)
        for source in parts(dtypes[place:end], results[place:end]):
            body.copy(targets[place], source[0], len(source))
            place += len(source)
    return body


def _kept(body: Body, dtypes: Sequence[np.dtype], values: Sequence[Value]) -> list[Value]:
    """Return values that stay the same when the arguments change."""
    kept: list[Value] = []
    for part in parts(dtypes, values):
        dtype, first = dtypes[len(kept)], part[0]
        if isinstance(first, Element) and not re.fullmatch(r"r\d+_|\w+_table\d+", first.base):
            array = Element(body.array(dtype, len(part)), 0)
            body.copy(array, first, len(part))
            kept += [after(array, k) for k in range(len(part))]
        elif isinstance(first, Element) or re.fullmatch(rf"[vc]\d+_|{CONSTANT}", first):
            kept += part
        else:
            kept.append(body.variable("v", dtype, first))
    return kept


class _Interface:
    """The parameters of the C function, and the struct types of its arguments and results."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.types: list[str] = []  # texts
        self.parameters: list[str] = []
        self._names: dict[Any, str] = {}  # of the types, by structure, shapes and dtypes

    def added(self, label: str, tree: Any, const: str) -> list[Value]:
        """Add a parameter for an argument, or for a result without ``const``; -> its numbers."""
        leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
        shapes = [(raw_shape(x), raw_dtype(x)) for _, x in leaves]
        sizes = [math.prod(shape) if shape else None for shape, _ in shapes]
        if not any(size is None or size for size in sizes):
            return []
        if jax.tree_util.treedef_is_leaf(structure):
            single, star = sizes[0] is None, "" if const or sizes[0] else "*"
            kind = f"{'' if single else const}{ctype(shapes[0][1])}"
            self.parameters.append(f"{kind} {star}{label}{'' if single else f'[{sizes[0]}]'}")
            return _numbers(star + label, sizes[0])
        path_text = functools.partial(jax.tree_util.keystr, simple=True, separator="_")
        fields = _identifiers((path_text(path) for path, _ in leaves), self.prefix.upper())
        key = structure, tuple(shapes)
        if key not in self._names:
            self._names[key] = f"{self.prefix}_{label}"
            self.types.append(_struct(self._names[key], fields, shapes))
        self.parameters.append(f"{const}{self._names[key]} *{label}")
        pairs = zip(fields, sizes, strict=True)
        return [x for field, size in pairs for x in _numbers(f"{label}->{field}", size)]


def _numbers(base: str, size: int | None) -> list[Value]:
    return [base] if size is None else [Element(base, k) for k in range(size)]


def _struct(name: str, fields: Sequence[str], shapes: Sequence[tuple[Any, Any]]) -> str:
    lines = ["typedef struct {"]
    for field, (shape, dtype) in zip(fields, shapes, strict=True):
        size = f"[{math.prod(shape)}]" if shape else ""
        comment = f" /* {' x '.join(map(str, shape))} */" if len(shape) > 1 else ""
        lines += [f"    {ctype(dtype)} {field}{size};{comment}"] if math.prod(shape) else []
    return "\n".join([*lines, f"}} {name};\n\n"])


def _labels(function: Callable[..., Any], count: int, prefix: str) -> list[str]:
    """Return the names of the arguments of a function, as names of C."""
    try:
        last = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [k for k, p in inspect.signature(function).parameters.items() if p.kind <= last]
    except (TypeError, ValueError):  # a function written in C
        names = []
    names += [f"argument{k}" for k in range(len(names), count)]
    return _identifiers(names[:count], f"(?i:{prefix})")


def _identifiers(names: Iterable[str], prefix: str) -> list[str]:
    """Return different names of C that the file does not use; none begins with the prefix."""
    taken: list[str] = []
    own = re.compile(r"[a-z]\d+_|(result|table)\d*|\w+_[biuf]\d")
    for name in names:
        new = re.sub(r"\W", "_", name)
        new = new if re.match(rf"(?!{prefix}_)[A-Za-z]", new) else f"item{new}"
        while new in RESERVED or new in taken or own.fullmatch(new):
            new += "_"
        taken.append(new)
    return taken

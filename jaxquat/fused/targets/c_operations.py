"""Types, constants and expressions of the target "C", as C99 defines them on common compilers.

Integers wrap around: sums are computed in unsigned types and converted back.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxquat.fused.errors import NotScalarError
from jaxquat.fused.ir.elementary import EXPANSIONS
from jaxquat.fused.ir.program import Op

_WORDS = (
    "auto bool break case char const continue default do double else enum extern false float for "
    "goto if inline int long main register restrict return short signed sizeof static struct "
    "switch true typedef union unsigned void volatile while"
)
_MATH = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 "
    "fabs fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 "
    "log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow remainder remquo "
    "rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc j0 j1 jn y0 y1 yn"
)
_LIBRARY = (  # that compilers know without a header, and names of math.h and stdint.h
    "abort abs calloc exit fprintf fputc fputs free fscanf fwrite isalnum isalpha iscntrl "
    "isdigit isgraph islower isprint ispunct isspace isupper isxdigit labs llabs malloc memchr "
    "memcmp memcpy memmove memset printf putchar puts realloc scanf snprintf sprintf sscanf "
    "strcat strchr strcmp strcpy strcspn strlen strncat strncmp strncpy strpbrk strrchr strspn "
    "strstr tolower toupper vfprintf vprintf vscanf vsnprintf vsprintf float_t double_t "
    "isfinite isinf isnan isnormal signbit fpclassify INFINITY NAN NULL HUGE_VAL HUGE_VALF "
    "intmax_t uintmax_t intptr_t uintptr_t"
)
_INTEGERS_OF_C = [f"{u}int{x}{n}" for u in ("", "u") for x in ("", "_least", "_fast")
                  for n in (8, 16, 32, 64)]  # fmt: skip
RESERVED = {
    *_WORDS.split(), *_MATH.split(), *(f"{name}f" for name in _MATH.split()),
    *_LIBRARY.split(), *(f"{name}_t" for name in _INTEGERS_OF_C),
    *(f"{name.upper()}_{limit}" for name in _INTEGERS_OF_C for limit in ("MIN", "MAX", "C")),
}  # fmt: skip
"""Names that have a meaning in C and in the file."""

WIDTH = 96  # of lines of numbers
_FLOATS = {
    "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "div": "({0} / {1})",
    "neg": "(-{0})", "abs": "fabs{f}({0})", "fma": "fma{f}({0}, {1}, {2})",
    "sqrt": "sqrt{f}({0})", "floor": "floor{f}({0})", "round": "rint{f}({0})",
    "rem": "fmod{f}({0}, {1})", "pow": "pow{f}({0}, {1})", "atan2": "atan2{f}({0}, {1})",
    **{name: f"{name}{{f}}({{0}})"
       for name in ("sin", "cos", "exp", "expm1", "log", "log1p", "tanh")},
}  # fmt: skip
_INTEGERS = {
    "add": "(({t})(({u}){0} + ({u}){1}))", "sub": "(({t})(({u}){0} - ({u}){1}))",
    "mul": "(({t})(({u}){0} * ({u}){1}))", "div": "(({t})({0} / {1}))",
    "rem": "(({t})({0} % {1}))", "and": "(({t})({0} & {1}))", "or": "(({t})({0} | {1}))",
    "xor": "(({t})({0} ^ {1}))", "shl": "(({t})(({u}){0} << {1}))",
    "shr": "(({t})(({same}){0} >> {1}))", "sar": "(({t})({0} >> {1}))",
}  # fmt: skip
_BOOLEANS = {
    "and": "({0} && {1})", "or": "({0} || {1})", "xor": "({0} != {1})",
    "max": "({0} || {1})", "min": "({0} && {1})",
}  # fmt: skip
_ANY = {
    "eq": "({0} == {1})", "ne": "({0} != {1})", "lt": "({0} < {1})", "le": "({0} <= {1})",
    "select": "({0} ? {1} : {2})",
}  # fmt: skip

_EXTREME = """static {t} {name}({t} x, {t} y)
{{
    return x {sign} y ? x : y;
}}"""
# NaN stays; -0 is less than 0
_EXTREME_OF_FLOATS = """static {t} {name}({t} x, {t} y)
{{
    if (x {sign} y) {{
        return x;
    }}
    if (y {sign} x) {{
        return y;
    }}
    return (x == y) && (x != 0.0{f}) ? x : {zero};
}}"""
_TRUNCATED = """static {t} {name}({source} x)
{{
    if (!(x > {low})) {{
        return x <= {low} ? {least} : 0;
    }}
    return x >= {high} ? {most} : ({t})x;
}}"""
_BITS = """static {t} {name}({source} x)
{{
    union {{
        {source} from;
        {t} to;
    }} both;
    both.from = x;
    return both.to;
}}"""


class Element(NamedTuple):
    """An element of an array."""

    base: str
    number: int

    def __str__(self) -> str:
        return f"{self.base}[{self.number}]"

    def at(self, k: str, step: int = 1) -> str:
        """Return the element that lies ``step`` times k after this one."""
        further = k if step == 1 else f"{step} * {k}"
        return f"{self.base}[{f'{self.number} + {further}' if self.number else further}]"


Value = str | Element


def ctype(dtype: np.dtype) -> str:
    """Return the C type of a number."""
    if dtype.kind == "b":
        return "bool"
    if dtype.kind == "f":
        return "float" if dtype.itemsize == 4 else "double"
    return f"{'u' if dtype.kind == 'u' else ''}int{8 * dtype.itemsize}_t"


def literal(x: Any) -> str:
    """Return a constant; the decimals of a float determine its bits."""
    kind, size = x.dtype.kind, x.dtype.itemsize
    if kind == "b":
        return "true" if x else "false"
    if kind == "f":
        suffix = "f" if size == 4 else ""
        text = f"{abs(x)!s}{suffix}" if np.isfinite(x) else "NAN" if np.isnan(x) else "INFINITY"
        return f"(-{text})" if np.signbit(x) and not np.isnan(x) else text
    suffix = ("u" if kind == "u" else "") + ("LL" if size == 8 else "")
    if kind == "i" and x == np.iinfo(x.dtype).min:
        return f"(-{np.iinfo(x.dtype).max}{suffix} - 1)"
    return f"(-{-int(x)}{suffix})" if x < 0 else f"{int(x)}{suffix}"


def function_of(op: Op, source: np.dtype, own: bool) -> tuple[str, np.dtype, np.dtype] | None:
    """Return name, result and argument of the file's function for an operation, if it has one."""
    name, real = op.name, source.kind == "f"
    if name in EXPANSIONS and real:
        return (name, op.dtype, source) if own else None
    if name in ("max", "min") and source.kind != "b":
        return name, op.dtype, source
    if name == "convert" and real and op.dtype.kind in "iu":
        return "truncated", op.dtype, source
    if name == "bitcast" and "f" in (op.dtype.kind, source.kind):
        return "bits", op.dtype, source
    return None


def helper(called: str, name: str, dtype: np.dtype, source: np.dtype) -> str:
    """Return the text of a function that ``function_of`` names, but of ``EXPANSIONS``."""
    words = {"name": called, "t": ctype(dtype), "source": ctype(source)}
    words["f"] = "f" if source.itemsize == 4 else ""
    if name in ("max", "min"):
        words["sign"] = ">" if name == "max" else "<"
        words["zero"] = "x + y" if name == "max" else "-((-x) - y)"
        return (_EXTREME_OF_FLOATS if dtype.kind == "f" else _EXTREME).format(**words)
    if name == "bits":
        return _BITS.format(**words)
    limits = np.iinfo(dtype)
    low, high = source.type(limits.min), source.type(float(limits.max) + 1.0)
    words |= {"low": literal(low), "high": literal(high)}
    words |= {"least": literal(dtype.type(limits.min)), "most": literal(dtype.type(limits.max))}
    return _TRUNCATED.format(**words)


def operation(op: Op, args: list[str], source: np.dtype) -> str:
    """Return the expression of an operation; ``source``: the dtype of its last argument."""
    if op.name in ("convert", "bitcast"):
        return f"(({ctype(op.dtype)}){args[0]})"
    if source.kind == "u" and args[0] == literal(source.type(0)) and op.name == "le":
        return "true"  # compilers warn of such a comparison
    table = {"f": _FLOATS, "b": _BOOLEANS}.get(source.kind, _INTEGERS)
    text = _ANY.get(op.name) or table.get(op.name)
    if text is None:
        raise NotScalarError(f"{op.name}: this operation on {source} has no form in C")
    wide = 8 * max(4, source.itemsize)
    words = {"t": ctype(op.dtype), "u": f"uint{wide}_t", "f": "f" if source.itemsize == 4 else ""}
    args = list(map(bare, args)) if text[0].isalpha() else args
    return text.format(*args, same=f"uint{8 * source.itemsize}_t", **words)


def parts(dtypes: Sequence[np.dtype], values: Sequence[Value]) -> list[list[Value]]:
    """Return the values in parts: adjacent elements of an array, or one value."""
    parts: list[list[Value]] = []
    for k, x in enumerate(values):
        last = parts[-1][-1] if parts else None
        follows = isinstance(last, Element) and x == Element(last.base, last.number + 1)
        if follows and dtypes[k] == dtypes[k - 1]:
            parts[-1].append(x)
        else:
            parts.append([x])
    return parts


def bare(value: Value) -> str:
    """Return an expression without parentheses around all of it."""
    text, depth = str(value), 0
    for letter in text[:-1]:
        depth += (letter == "(") - (letter == ")")
        if not depth:
            return text
    return text[1:-1] if text.startswith("(") else text


def after(x: Value, k: int) -> Value:
    """Return the k-th element after one."""
    return Element(x.base, x.number + k) if isinstance(x, Element) else x


def variable_of(x: Value) -> str:
    """Return the name of the array or variable of a value."""
    return x.base if isinstance(x, Element) else x


def listed(head: str, items: Iterable[str]) -> list[str]:
    """Return the lines of a constant array."""
    indent: Any = {"initial_indent": "    ", "subsequent_indent": "    "}
    lines = textwrap.wrap(", ".join(items), WIDTH, break_on_hyphens=False, **indent)
    return [f"{head} = {{", *lines, "};"]

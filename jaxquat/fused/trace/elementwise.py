"""Elementwise primitives: unrolled, or as a loop over the elements if there are many."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxquat.fused.errors import not_scalar
from jaxquat.fused.ir import special
from jaxquat.fused.ir.builder import (
    Builder,
    Scalar,
    exp,
    floor,
    maximum,
    minimum,
    nearest,
    operation,
    sqrt,
    where,
)  # fmt: skip
from jaxquat.fused.ir.elementary import bits, with_sign
from jaxquat.fused.ir.expansion import expanded
from jaxquat.fused.ir.program import Routine
from jaxquat.fused.trace.values import Values, each, raw_dtype

WIDE = 16  # an elementwise operation on this many scalars may become a loop
LARGE = 500  # it does from this many operations on, counted with its functions expanded
PRODUCTS_OF_POWER = 4  # the largest exponent for which products compute a power

Rule = Callable[..., Scalar]


def elementwise(b: Builder, rule: Rule, args: Sequence[Values]) -> Values:
    """Return the results of a rule for scalars, applied to the broadcast arrays."""
    shape = args[0].shape
    if any(a.shape != shape for a in args):
        shape = np.broadcast_shapes(*(a.shape for a in args))
        args = [np.broadcast_to(a, shape) for a in args]
    results = mapped(b, rule, [a.ravel() for a in args]) if args[0].size >= WIDE else None
    return each(rule, *args) if results is None else results.reshape(shape)


def mapped(b: Builder, rule: Rule, columns: list[Values]) -> Values | None:
    """Return an operation as a loop over the elements, or None if a loop is no better."""
    kinds = list(map(_kind, columns))
    if None in kinds or "row" not in kinds:
        return None
    of_kind = lambda kind: [c for c, k in zip(columns, kinds, strict=True) if k == kind]  # noqa: E731
    fixed = dict.fromkeys(column[0] for column in of_kind("fixed"))
    # in the order in which the values were computed, so that they are adjacent in memory
    order = np.argsort([x.number for x in of_kind("row")[0]], kind="stable")
    rows = {tuple(column): column[order] for column in of_kind("row")}
    inner = Builder([x.dtype for x in (*fixed, *(row[0] for row in rows.values()))])
    inside = dict(zip((*fixed, *rows), inner.arguments, strict=True))

    def value(column: Values, kind: str | None) -> Scalar:
        if kind == "constant":
            return inner.const(column[0].literal)
        return inside[column[0] if kind == "fixed" else tuple(column)]

    program = inner.finish([rule(*map(value, columns, kinds))])
    if order.size * sum(expanded(program).counts().values()) < LARGE:
        return None
    arguments = [*fixed, *(x for row in rows.values() for x in row)]
    results = np.empty(order.size, object)
    results[order] = b.call(Routine(program, order.size, len(fixed)), arguments)
    return results


def _kind(column: Values) -> str | None:
    """Return "constant" or "fixed" for equal values, "row" for different ones, or else None."""
    has_literal = any(x.literal is not None for x in column)
    count = len(set(column))
    if count == 1:
        return "constant" if has_literal else "fixed"
    return "row" if count == len(column) and not has_literal else None


def power(x: Scalar, n: int) -> Scalar:
    """Return x^n for an integer n, by repeated squaring."""
    if n < 0:
        return 1 / power(x, -n)
    result = None
    while n:
        if n & 1:
            result = x if result is None else result * x
        n >>= 1
        if n:
            x = x * x
    return x.like(1) if result is None else result


def _pow(x: Scalar, y: Scalar) -> Scalar:
    """Return x^y; for a constant y such as 2, 1.5 or -2.5, by products and a square root.

    Up to PRODUCTS_OF_POWER the products lose no more digits than the function does. A negative
    power is a product of 1/x: x^n may overflow or be zero where the power is an ordinary number.
    """
    if y.dtype.kind != "f":
        y = y.convert(x.dtype)
    if x.dtype.kind != "f":
        raise not_scalar("pow: a power of integers has no scalar form")
    exponent = None if y.literal is None else float(y.literal)
    if (
        exponent is None
        or abs(exponent) > PRODUCTS_OF_POWER
        or 2 * exponent != np.round(2 * exponent)
    ):
        return operation("pow", x, y)
    whole = int(abs(exponent))
    if abs(exponent) == whole:
        return power(1 / x if exponent < 0 else x, whole)
    size = abs(x)
    if abs(exponent) == 0.5:  # 1/x may be too small to keep its digits
        value = 1 / sqrt(size) if exponent < 0 else sqrt(size)
    else:
        base = 1 / size if exponent < 0 else size
        value = power(base, whole) * sqrt(base)
    return where((x < 0) & (size < np.inf), np.nan, value)


def _sign(x: Scalar) -> Scalar:
    kind = x.dtype.kind
    if kind == "u":
        return where(x.equals(0), x, 1)
    nothing = x * 0 if kind == "f" else x.like(0)  # x * 0 keeps NaN and the sign of zero
    return where(x > 0, 1, where(x < 0, -1, nothing))


def _convert(params: Any, dtype: Any, x: Scalar) -> Scalar:
    if dtype.kind == "b":
        return x.differs(0) if x.dtype.kind != "b" else x
    return x.convert(dtype)


def _round(params: Any, dtype: Any, x: Scalar) -> Scalar:
    """Round halfway cases to even or away from 0; ``floor(|x| + 1/2)`` is 1 for 0.49999997."""
    if params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        return nearest(x)
    size = abs(x)
    low = floor(size)
    return with_sign(where(size - low >= 0.5, low + 1, low), x)


def _quotient(name: str) -> Rule:
    """Return the rule of a quotient or remainder. Integers are divided as XLA defines it.

    x/0 is -1 (all bits set) with remainder x; the least integer divided by -1 is itself, with
    remainder 0. Both end the process, even where a select drops them: the divisor becomes 1.
    """

    def rule(x: Scalar, y: Scalar) -> Scalar:
        dtype = x.dtype
        if dtype.kind == "f":
            return operation(name, x, y)
        by_zero = y.equals(0)
        divisor = where(by_zero, 1, y)
        if dtype.kind == "i":
            beyond = x.equals(np.iinfo(dtype).min) & y.equals(-1)
            divisor = where(beyond, 1, divisor)
        otherwise = x if name == "rem" else ~x.like(0)
        return where(by_zero, otherwise, operation(name, x, divisor))

    return rule


def _shift(name: str) -> Rule:
    """Return a shift as in XLA: an unsigned count of all bits or more shifts everything out."""

    def rule(x: Scalar, count: Scalar) -> Scalar:
        bits = 8 * x.dtype.itemsize
        within = count.bitcast(f"u{x.dtype.itemsize}") < bits
        value = operation(name, x, where(within, count, 0))
        beyond = operation(name, x, bits - 1) if name == "sar" else x.like(0)
        return where(within, value, beyond)

    return rule


def _reduce_precision(params: Any, dtype: Any, x: Scalar) -> Scalar:
    """Return the nearest number with fewer bits, halfway cases even, infinite or 0 out of range."""
    bits, mantissa = (32, 23) if dtype.itemsize == 4 else (64, 52)
    exponent, kept = params["exponent_bits"], min(params["mantissa_bits"], mantissa)
    size = x.bitcast(f"u{dtype.itemsize}") & (2 ** (bits - 1) - 1)
    if kept < mantissa:
        lost = mantissa - kept
        raised = size + (((size >> lost) & 1) + (2 ** (lost - 1) - 1))
        size = raised & (2 ** (bits - 1) - 2**lost)
    if exponent < bits - 1 - mantissa:
        bias, small = 2 ** (bits - 2 - mantissa) - 1, 2 ** (exponent - 1) - 1
        largest = ((bias + small) << mantissa) | (2**mantissa - 2 ** (mantissa - kept))
        infinite = (2 ** (bits - 1 - mantissa) - 1) << mantissa
        size = where(size > largest, infinite, size)
        size = where(size < ((bias - small + 1) << mantissa), 0, size)
    return where(x.differs(x), x, with_sign(size.bitcast(dtype), x))


def _bitcast(params: Any, dtype: Any, x: Scalar) -> Scalar:
    if "b" in (dtype.kind, x.dtype.kind) or dtype.itemsize != x.dtype.itemsize:
        raise not_scalar(f"bitcast_convert_type: from {x.dtype} to {dtype} it has no scalar form")
    return x.bitcast(dtype)


def choice(which: Scalar, choices: list[Scalar]) -> Scalar:
    """Return the choice with number ``which``, from 0; False means the first choice."""
    if which.dtype.kind == "b":
        return where(which, choices[1], choices[0]) if len(choices) == 2 else choices[0]
    value = choices[-1]
    for number in range(len(choices) - 2, -1, -1):
        value = where(which <= number, choices[number], value)
    return value


def _arc(x: Scalar, sine: bool) -> Scalar:
    """Return asin(x) or acos(x), by atan2 with ``sqrt((1 - x)(1 + x))``."""
    root = sqrt((1 - x) * (1 + x))
    return operation("atan2", x, root) if sine else operation("atan2", root, x)


def _hyperbolic(x: Scalar, sense: str) -> Scalar:
    """Return cosh or sinh, ``(m + m/(m + 1))/2`` with ``m = e^x - 1``; large: ``e^(x - 1) e/2``."""
    size = abs(x)
    large = size > (80 if x.dtype.itemsize == 4 else 700)
    u = exp(size - 1) * (np.e / 2)
    if sense == "cosh":
        v = 0.5 * exp(size)
        return where(large, u, v + 0.25 / v)
    m = operation("expm1", size)
    return with_sign(where(large, u, 0.5 * (m + m / (m + 1))), x)


def _mul(x: Scalar, y: Scalar) -> Scalar:
    """Return a product; a product with a boolean, converted to 0 or 1, is a select, as in XLA.

    So it is 0 even where the other factor is NaN or infinite. Within a dot it is not a select.
    """
    for number, other in ((x, y), (y, x)) if x.dtype.kind == "f" else ():
        condition = number.boolean()
        if condition:
            return where(condition, other, 0)
    return x * y


def _in_total_order(name: str) -> Rule:
    """Compare with -0 below 0 and NaN above all (below, if its sign bit is set)."""

    def key(x: Scalar) -> Scalar:
        if x.dtype.kind != "f":
            return x
        word, last = bits(x), 8 * x.dtype.itemsize - 1
        return word ^ ((word >> last) & (2**last - 1))

    return lambda x, y: operation(name, key(x), key(y))


_SAME_NAME = (
    "add", "sub", "sqrt", "sin", "cos", "tanh", "exp", "expm1", "log", "log1p", "atan2", "floor",
    "max", "min", "eq", "ne", "lt", "le", "and", "or", "xor",
)  # fmt: skip

ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{name: partial(operation, name) for name in _SAME_NAME},
    "add_any": partial(operation, "add"),
    "neg": operator.neg,
    "abs": abs,
    "not": operator.invert,
    "div": _quotient("div"),
    "rem": _quotient("rem"),
    "ge": operator.ge,
    "gt": operator.gt,
    "eq_to": _in_total_order("eq"),
    "lt_to": _in_total_order("lt"),
    "le_to": _in_total_order("le"),
    "tan": lambda x: operation("sin", x) / operation("cos", x),
    "rsqrt": lambda x: 1 / sqrt(x),
    "logistic": lambda x: 1 / (1 + exp(-x)),
    "exp2": lambda x: exp(x * float(np.log(2.0))),
    "one_minus_square": lambda x: (1 - x) * (1 + x),
    "square": lambda x: x * x,
    "atan": lambda x: operation("atan2", x, 1),
    "asin": partial(_arc, sine=True),
    "acos": partial(_arc, sine=False),
    "sinh": partial(_hyperbolic, sense="sinh"),
    "cosh": partial(_hyperbolic, sense="cosh"),
    "asinh": special.asinh,
    "acosh": special.acosh,
    "atanh": special.atanh,
    "cbrt": special.cbrt,
    "erf": special.erf,
    "erfc": special.erfc,
    "erf_inv": special.erf_inv,
    "ceil": lambda x: -floor(-x),
    "is_finite": lambda x: abs(x) < np.inf,
    "polynomial": lambda x, *a: functools.reduce(lambda y, c: y * x + c, reversed(a)),
    "pow": _pow,
    "sign": _sign,
    "clamp": lambda low, x, high: minimum(maximum(x, low), high),
    "select_n": lambda which, *choices: choice(which, list(choices)),
    "shift_left": _shift("shl"),
    "shift_right_logical": _shift("shr"),
    "shift_right_arithmetic": _shift("sar"),
    **{name: lambda x: x for name in ("copy", "copy_p", "stop_gradient")},
}

_WITH_PARAMS: dict[str, Rule] = {
    "mul": lambda params, dtype, x, y: _mul(x.convert(dtype), y.convert(dtype)),
    "round": _round,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "reduce_precision": _reduce_precision,
    "integer_pow": lambda params, dtype, x: power(x, params["y"]),
}


def _of_equation(rule: Rule) -> Callable[..., Values]:
    return lambda b, equation, *args: elementwise(
        b, partial(rule, equation.params, raw_dtype(equation.outvars[0].aval)), args
    )


RULES = {name: _of_equation(rule) for name, rule in _WITH_PARAMS.items()}

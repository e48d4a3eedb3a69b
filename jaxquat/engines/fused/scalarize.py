"""From a traced function to a scalar program: every array dissolves into its scalars.

JAX traces the function to a jaxpr. ``_run`` walks through its equations in order. To each variable
belongs an array of value numbers (``Values``): integers that name values of the program, in the
shape of the array that they stand for. So an operation that moves elements, such as a transpose or
a slice, moves numbers and emits nothing, while an elementwise one emits one scalar operation for
each element. Each primitive has a rule, in ``ELEMENTWISE`` or in ``STRUCTURAL``.

Calls and branches are inlined, loops of known length unrolled. Where that would grow too long,
three things stay together as a ``Routine``: a matrix product (``_product_by_loops``), a wide
elementwise operation (``_mapped``), and a long function called several times (``_called``).

What has no rule, or needs an index that only the run knows, is a NotScalarError.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxquat._jaxprs import called, inputs_of_scan, nested
from jaxquat.engines.fused.elementary import expand, with_sign
from jaxquat.engines.fused.program import Builder, Program, Routine

LARGEST = 4096  # scalars in one array
LONGEST = 200_000  # operations
TRIPS = 4096  # iterations of a loop
PRODUCTS = 64  # a matrix product of at most so many products has no loop: 4x4 by 4x4
WIDE = 16  # an elementwise operation on so many scalars may be a loop
LARGE = 500  # and is one from so many operations on, counted with its functions expanded
SUMS = 16  # sums carried by a loop over products: what the registers hold
PRODUCTS_OF_POWER = 4  # the largest exponent of a power that is computed by products
LONG = 300  # a function called several times is a routine from so many operations on

Values = np.ndarray  # value numbers, in the shape of the array that they stand for


class NotScalarError(NotImplementedError):
    """The function has no scalar form; the message names the primitive that has none."""


def scalarize(function: Callable[..., Any], *arguments: Any) -> Program:
    """The scalar program of a function, at the shapes and dtypes of ``arguments``.

    Its inputs are the scalars of the leaves of the arguments, its outputs those of the result.
    Loops of fixed length are unrolled and calls inlined. Long functions that are called at least
    twice through ``jax.jit`` and operations on large arrays stay together, as routines.

    Raises:
        NotScalarError: names the primitive that has no scalar form.
    """
    closed = jax.make_jaxpr(function)(*arguments)
    sizes = [(_raw_shape(v.aval), _raw_dtype(v.aval)) for v in closed.jaxpr.invars]
    builder = _Calls(
        [dtype for shape, dtype in sizes for _ in range(int(np.prod(shape)))],
        _call_sites(closed.jaxpr, {}),
        {},
    )
    outputs = _run(builder, closed.jaxpr, closed.consts, _numbered([shape for shape, _ in sizes]))
    return builder.finish([int(k) for values in outputs for k in values.ravel()])


def _numbered(shapes: Sequence[tuple[int, ...]]) -> list[Values]:
    """The numbers of a program's inputs, in arrays of these shapes."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return [
        np.arange(end - int(np.prod(shape)), end).reshape(shape)
        for shape, end in zip(shapes, ends.tolist(), strict=True)
    ]


class _Calls(Builder):
    """A builder that knows how often each function is called and which routines there are.

    ``sites``: number of calls by the id of the jaxpr. ``routines``: see ``_called``.
    """

    def __init__(
        self, inputs: Sequence[np.dtype], sites: dict[int, int], routines: dict[Any, Any]
    ) -> None:
        super().__init__(inputs)
        self.sites, self.routines = sites, routines


def _call_sites(jaxpr: Any, sites: dict[int, int], times: int = 1) -> dict[int, int]:
    """How often each inner jaxpr is called, by its id, entered into ``sites``.

    A call in a scan counts once for each iteration, one in a while loop twice.
    """
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        trips = equation.params["length"] if name == "scan" else 2 if name == "while" else 1
        often = trips * times
        for inner in nested(equation):
            sites[id(inner)] = sites.get(id(inner), 0) + often
            if sites[id(inner)] == often:
                _call_sites(opened(inner)[0], sites, 1 if name == "jit" else often)
    return sites


def _raw_shape(aval: Any) -> tuple[int, ...]:
    """The shape of an array; keys have one more axis, of their words."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return (*aval.shape, *aval.dtype._impl.key_shape)
    return aval.shape


def _raw_dtype(aval: Any) -> np.dtype:
    """The dtype of an array, uint32 for keys."""
    is_key = jnp.issubdtype(aval.dtype, jax.dtypes.prng_key)
    dtype = np.dtype(np.uint32) if is_key else np.dtype(aval.dtype)
    if dtype.kind not in "biuf" or (dtype.kind == "f" and dtype.itemsize < 4):
        raise NotScalarError(
            f"{dtype}: scalar code has float32, float64, integers and booleans alone; "
            "use engine='scan'"
        )
    return dtype


def _constants(b: Builder, value: Any) -> Values:
    """The values of an array of constants."""
    if jnp.issubdtype(jnp.result_type(value), jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    value = np.asarray(value)
    _fits("constant", value.shape)
    return np.array([b.const(x) for x in value.ravel()], np.int64).reshape(value.shape)


def _fits(name: str, shape: tuple[int, ...]) -> None:
    if np.prod(shape) > LARGEST:
        raise NotScalarError(
            f"{name}: an array of shape {shape} is too large for scalar code; use engine='scan'"
        )


def _run(b: Builder, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Values]) -> list[Values]:
    """The outputs of a jaxpr: its equations, one after the other."""
    known: dict[Any, Values] = dict(zip(jaxpr.invars, inputs, strict=True))
    known.update((v, _constants(b, c)) for v, c in zip(jaxpr.constvars, consts, strict=True))

    def read(v: Any) -> Values:
        return _constants(b, np.asarray(v.val, v.aval.dtype)) if hasattr(v, "val") else known[v]

    for equation in jaxpr.eqns:
        name = equation.primitive.name
        for variable in equation.outvars:
            _fits(name, _raw_shape(variable.aval))
        results = _apply(b, equation, [read(v) for v in equation.invars])
        if len(b.ops) > LONGEST:
            raise NotScalarError(
                f"{name}: more than {LONGEST} scalar operations; use engine='scan'"
            )
        known.update(zip(equation.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """A jaxpr and its constants; an open jaxpr has none."""
    return (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())


def dissolves(equation: Any) -> bool:
    """Whether an equation, with all that it calls, consists of primitives with a scalar form."""
    name = equation.primitive.name
    jaxprs = [opened(inner)[0] for inner in nested(equation)]
    known = name in ELEMENTWISE or name in STRUCTURAL or called(equation) is not None
    return known and all(map(dissolves, (e for j in jaxprs for e in j.eqns)))


def _apply(b: Builder, equation: Any, args: list[Values]) -> list[Values]:
    """The outputs of one equation, by the rule of its primitive."""
    name, params = equation.primitive.name, equation.params
    if name == "jit" and isinstance(b, _Calls) and b.sites.get(id(params["jaxpr"]), 0) > 1:
        outputs = _called(b, equation, args)
        if outputs is not None:
            return outputs
    inner = called(equation)
    if inner is not None:
        return _run(b, *opened(inner), args)
    if name in ELEMENTWISE:
        rule, shape = ELEMENTWISE[name], np.broadcast_shapes(*(a.shape for a in args))
        dtype = _raw_dtype(equation.outvars[0].aval)
        columns = [np.broadcast_to(a, shape).ravel() for a in args]
        results = None
        if columns[0].size >= WIDE:
            results = _mapped(b, lambda b, *scalars: rule(b, params, dtype, *scalars), columns)
        if results is None:
            rows = zip(*(c.tolist() for c in columns), strict=True)
            results = [rule(b, params, dtype, *scalars) for scalars in rows]
        return [np.array(results, np.int64).reshape(shape)]
    if name in STRUCTURAL:
        result = STRUCTURAL[name](b, equation, *args)
        return list(result) if isinstance(result, (list, tuple)) else [result]
    raise NotScalarError(f"{name}: this primitive has no scalar form; use engine='scan'")


def _called(b: _Calls, equation: Any, args: list[Values]) -> list[Values] | None:
    """The outputs of a call, by a routine; None for a short function, which is inlined.

    All calls of a long function with the same constants share one routine. ``b.routines`` has it by
    the jaxpr and those constants, or None where there is none.
    """
    jaxpr = equation.params["jaxpr"]
    known = [_known(b, values) for values in args]
    key = id(jaxpr), *(None if x is None else (x.dtype, x.tobytes()) for x in known)
    free = [values for values, x in zip(args, known, strict=True) if x is None]
    if key not in b.routines:
        inner = _Calls(
            [b.dtype(k) for values in free for k in values.ravel().tolist()], b.sites, b.routines
        )
        numbers = iter(_numbered([values.shape for values in free]))
        inputs = [next(numbers) if x is None else _constants(inner, x) for x in known]
        try:
            outputs = _run(inner, *opened(jaxpr), inputs)
        except NotScalarError:  # of an index, say, that is known where the function is called
            b.routines[key] = None
        else:
            # outputs that are inputs or constants do not come from the routine
            inside = {int(k) for x in outputs for k in x.flat if k >= len(inner.inputs)}
            inside = sorted(k for k in inside if inner.literal(k) is None)
            program = inner.finish(inside)
            routine = Routine(program, 1, len(inner.inputs))
            long = sum(program.counts().values()) >= LONG
            b.routines[key] = (routine, inside, outputs, inner) if long else None
    if b.routines[key] is None:
        return None
    routine, inside, outputs, inner = b.routines[key]
    scalars = [k for values in free for k in values.ravel().tolist()]
    loop = b.loop(routine, scalars)
    places = {k: b.item(loop, number) for number, k in enumerate(inside)}
    for k in {int(k) for x in outputs for k in x.flat}.difference(places):
        places[k] = scalars[k] if k < len(scalars) else b.const(inner.literal(k))
    return [np.array([places[int(k)] for k in x.flat], np.int64).reshape(x.shape) for x in outputs]


def _known(b: Builder, values: Values) -> np.ndarray | None:
    """The constants that values are, if all are; else None."""
    literals = [b.literal(k) for k in values.ravel().tolist()]
    return None if any(x is None for x in literals) else np.array(literals).reshape(values.shape)


def _mapped(b: Builder, rule: Callable[..., int], columns: list[Values]) -> Values | None:
    """An elementwise operation as a loop over its elements, or None where that is no better.

    A column has one operand's values for all elements: one value throughout (fixed), or as many
    different ones as there are elements (a row). It is no better for columns in which some values
    repeat, for rows with constants in them, and for short operations.
    """
    literal = [[b.literal(k) is not None for k in column.tolist()] for column in columns]
    different = [len(set(column.tolist())) for column in columns]
    same = [count == 1 for count in different]
    if all(same) or not all(count in (1, len(columns[0])) for count in different):
        return None
    if any(any(known) and not once for known, once in zip(literal, same, strict=True)):
        return None
    described = list(zip(columns, same, literal, strict=True))
    fixed = [int(c[0]) for c, once, known in described if once and not known[0]]
    fixed = list(dict.fromkeys(fixed))
    # in the order in which the values came about, so that they lie one after the other
    varying = [c for c, once in zip(columns, same, strict=True) if not once]
    order = np.argsort(varying[0], kind="stable")
    rows = list({c.tobytes(): c[order] for c in varying}.values())
    inner = Builder([b.dtype(k) for k in (*fixed, *(int(row[0]) for row in rows))])
    places = {c.tobytes(): len(fixed) + k for k, c in enumerate(rows)}
    inputs = []
    for c, once, known in described:
        if not once:
            inputs.append(places[c[order].tobytes()])
        elif known[0]:
            inputs.append(inner.const(b.literal(int(c[0]))))
        else:
            inputs.append(fixed.index(int(c[0])))
    program = inner.finish([rule(inner, *inputs)])
    if order.size * sum(expand(program).counts().values()) < LARGE:
        return None
    routine = Routine(program, order.size, len(fixed))
    loop = b.loop(routine, [*fixed, *(int(k) for row in rows for k in row)])
    results = np.empty(order.size, np.int64)
    results[order] = [b.item(loop, k) for k in range(order.size)]
    return results


# rules of elementwise operations: rule(builder, params, dtype of the result, *values) -> value


def _plain(name: str) -> Callable[..., int]:
    return lambda b, params, dtype, *args: b.emit(name, *args)


def _number(b: Builder, value: float, like: int) -> int:
    return b.const(b.dtype(like).type(value))


def _power(b: Builder, x: int, n: int) -> int:
    """x^n for a whole n, by repeated squares."""
    if n < 0:
        return b.emit("div", _number(b, 1, x), _power(b, x, -n))
    result = None
    while n:
        if n & 1:
            result = x if result is None else b.emit("mul", result, x)
        n >>= 1
        if n:
            x = b.emit("mul", x, x)
    return _number(b, 1, x) if result is None else result


def _pow(b: Builder, params: Any, dtype: Any, x: int, y: int) -> int:
    """x^y; where y is a constant such as 2, 1.5 or -2.5, by products and a root.

    Up to PRODUCTS_OF_POWER the products lose no more digits than the function does. A negative
    power is a product of 1/x, not 1/x^n: 1/x overflows only where the power does too, while x^n
    may overflow, or be zero, where the power is an ordinary number.
    """
    if b.dtype(y).kind != "f":
        y = b.emit("convert", y, dtype=b.dtype(x))
    if b.dtype(x).kind != "f":
        raise NotScalarError("pow: a power of integers has no scalar form; use engine='scan'")
    exponent = b.literal(y)
    if exponent is None or abs(float(exponent)) > PRODUCTS_OF_POWER:
        return b.emit("pow", x, y)
    if 2 * float(exponent) != np.round(2 * float(exponent)):
        return b.emit("pow", x, y)
    exponent, whole = abs(float(exponent)), int(abs(float(exponent)))
    negative, one = b.literal(y) < 0, _number(b, 1, x)
    if exponent == whole:
        return _power(b, b.emit("div", one, x) if negative else x, whole)
    zero, size = _number(b, 0, x), b.emit("abs", x)
    if exponent == 0.5:  # 1/x may be too small to keep its digits
        value = b.emit("sqrt", size)
        value = b.emit("div", one, value) if negative else value
    else:
        base = b.emit("div", one, size) if negative else size
        value = b.emit("mul", _power(b, base, whole), b.emit("sqrt", base))
    below = b.emit("and", b.emit("lt", x, zero), b.emit("lt", size, _number(b, np.inf, x)))
    return b.emit("select", below, _number(b, np.nan, x), value)


def _sign(b: Builder, params: Any, dtype: Any, x: int) -> int:
    zero, one = _number(b, 0, x), _number(b, 1, x)
    if dtype.kind == "u":
        return b.emit("select", b.emit("eq", x, zero), zero, one)
    # x * 0 keeps NaN and the sign of zero
    nothing = b.emit("mul", x, zero) if dtype.kind == "f" else zero
    low = b.emit("select", b.emit("lt", x, zero), _number(b, -1, x), nothing)
    return b.emit("select", b.emit("lt", zero, x), one, low)


def _clamp(b: Builder, params: Any, dtype: Any, low: int, x: int, high: int) -> int:
    return b.emit("min", b.emit("max", x, low), high)


def _erf_inv(b: Builder, params: Any, dtype: Any, x: int) -> int:
    """In float32, by M. Giles, Approximating the erfinv function, GPU Computing Gems 2, 2011."""
    if dtype != np.float32:
        raise NotScalarError(
            "erf_inv: in float64 it has no scalar form; use engine='scan', "
            "or draw the noise as inputs"
        )
    one = _number(b, 1, x)
    w = b.emit("neg", b.emit("log1p", b.emit("neg", b.emit("mul", x, x))))

    def horner(at: int, numbers: Sequence[float]) -> int:
        """The polynomial with these coefficients, the highest power first."""
        p = _number(b, numbers[0], x)
        for number in numbers[1:]:
            p = b.emit("add", b.emit("mul", p, at), _number(b, number, x))
        return p

    near = horner(b.emit("sub", w, _number(b, 2.5, x)), (
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
        -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
    ))  # fmt: skip
    far = horner(b.emit("sub", b.emit("sqrt", w), _number(b, 3, x)), (
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
    ))  # fmt: skip
    value = b.emit("mul", b.emit("select", b.emit("lt", w, _number(b, 5, x)), near, far), x)
    edge = b.emit("mul", x, _number(b, np.inf, x))
    return b.emit("select", b.emit("eq", b.emit("abs", x), one), edge, value)


def _convert(b: Builder, params: Any, dtype: Any, x: int) -> int:
    if dtype.kind == "b":
        return b.emit("ne", x, _number(b, 0, x)) if b.dtype(x).kind != "b" else x
    return b.emit("convert", x, dtype=dtype)


def _round(b: Builder, params: Any, dtype: Any, x: int) -> int:
    """To the nearest integer; half-way, to the even one or to the one away from zero.

    The latter is not ``floor(|x| + 1/2)``: of 0.49999997 that sum rounds to 1.
    """
    if params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN:
        return b.emit("round", x)
    size = b.emit("abs", x)
    low = b.emit("floor", size)
    up = b.emit("le", _number(b, 0.5, x), b.emit("sub", size, low))
    return with_sign(b, b.emit("select", up, b.emit("add", low, _number(b, 1, x)), low), x)


def _quotient(name: str) -> Callable[..., int]:
    """The quotient or remainder. Integers divide as XLA defines it.

    x/0 is -1 (all bits set) and its remainder x; the least integer over -1 is itself, with
    remainder 0. In both cases the processor ends the process, even where a select drops the result,
    so the divisor is replaced by 1.
    """

    def rule(b: Builder, params: Any, dtype: Any, x: int, y: int) -> int:
        if dtype.kind == "f":
            return b.emit(name, x, y)
        one = _number(b, 1, x)
        by_zero = b.emit("eq", y, _number(b, 0, x))
        divisor = b.emit("select", by_zero, one, y)
        if dtype.kind == "i":
            least = b.emit("eq", x, _number(b, np.iinfo(dtype).min, x))
            beyond = b.emit("and", least, b.emit("eq", y, _number(b, -1, x)))
            divisor = b.emit("select", beyond, one, divisor)
        otherwise = x if name == "rem" else b.emit("not", _number(b, 0, x))
        return b.emit("select", by_zero, otherwise, b.emit(name, x, divisor))

    return rule


def _shift(name: str) -> Callable[..., int]:
    """A shift, as XLA defines it: a count of all bits or more shifts everything out.

    The count is read as an unsigned number.
    """

    def rule(b: Builder, params: Any, dtype: Any, x: int, count: int) -> int:
        bits = 8 * dtype.itemsize
        unsigned = b.emit("bitcast", count, dtype=np.dtype(f"u{dtype.itemsize}"))
        within = b.emit("lt", unsigned, _number(b, bits, unsigned))
        value = b.emit(name, x, b.emit("select", within, count, _number(b, 0, x)))
        beyond = b.emit(name, x, _number(b, bits - 1, x)) if name == "sar" else _number(b, 0, x)
        return b.emit("select", within, value, beyond)

    return rule


def _reduce_precision(b: Builder, params: Any, dtype: Any, x: int) -> int:
    """The nearest number with fewer bits, as XLA defines it: half-way the even one.

    Beyond the exponents that are left a number is infinite or zero.
    """
    bits, mantissa = (32, 23) if dtype.itemsize == 4 else (64, 52)
    exponent, kept = params["exponent_bits"], min(params["mantissa_bits"], mantissa)
    word = np.dtype(f"u{dtype.itemsize}")
    whole = lambda value: b.const(word.type(value))  # noqa: E731
    size = b.emit("and", b.emit("bitcast", x, dtype=word), whole(2 ** (bits - 1) - 1))
    if kept < mantissa:
        lost = mantissa - kept
        last = b.emit("and", b.emit("shr", size, whole(lost)), whole(1))
        raised = b.emit("add", size, b.emit("add", last, whole(2 ** (lost - 1) - 1)))
        size = b.emit("and", raised, whole(2 ** (bits - 1) - 2**lost))
    if exponent < bits - 1 - mantissa:
        bias, small = 2 ** (bits - 2 - mantissa) - 1, 2 ** (exponent - 1) - 1
        largest = ((bias + small) << mantissa) | (2**mantissa - 2 ** (mantissa - kept))
        infinite = (2 ** (bits - 1 - mantissa) - 1) << mantissa
        size = b.emit("select", b.emit("lt", whole(largest), size), whole(infinite), size)
        least = (bias - small + 1) << mantissa
        size = b.emit("select", b.emit("lt", size, whole(least)), whole(0), size)
    value = with_sign(b, b.emit("bitcast", size, dtype=dtype), x)
    return b.emit("select", b.emit("ne", x, x), x, value)


def _bitcast(b: Builder, params: Any, dtype: Any, x: int) -> int:
    if "b" in (dtype.kind, b.dtype(x).kind) or dtype.itemsize != b.dtype(x).itemsize:
        raise NotScalarError(
            f"bitcast_convert_type: from {b.dtype(x)} to {dtype} it has no scalar form; "
            "use engine='scan'"
        )
    return b.emit("bitcast", x, dtype=dtype)


def _select_n(b: Builder, params: Any, dtype: Any, which: int, *choices: int) -> int:
    if b.dtype(which).kind == "b":
        return b.emit("select", which, *reversed(choices)) if len(choices) == 2 else choices[0]
    value = choices[-1]
    for number in range(len(choices) - 2, -1, -1):
        first = b.emit("le", which, _number(b, number, which))
        value = b.emit("select", first, choices[number], value)
    return value


def _of_one(function: Callable[[Builder, int], int]) -> Callable[..., int]:
    return lambda b, params, dtype, x: function(b, x)


def _logistic(b: Builder, x: int) -> int:
    one = _number(b, 1, x)
    return b.emit("div", one, b.emit("add", one, b.emit("exp", b.emit("neg", x))))


def _one_minus_square(b: Builder, x: int) -> int:
    """``(1 - x)(1 + x)``."""
    below = b.emit("sub", _number(b, 1, x), x)
    return b.emit("mul", below, b.emit("add", _number(b, 1, x), x))


def _arc(b: Builder, x: int, sine: bool) -> int:
    """asin(x) or acos(x), by atan2 with ``sqrt((1 - x)(1 + x))``."""
    one = _number(b, 1, x)
    root = b.emit("sqrt", b.emit("mul", b.emit("sub", one, x), b.emit("add", one, x)))
    return b.emit("atan2", x, root) if sine else b.emit("atan2", root, x)


def _hyperbolic(b: Builder, x: int, sense: str) -> int:
    """Cosine ``(e^x + 1/e^x)/2`` or sine ``(m + m/(m + 1))/2``, where ``m = e^x - 1``.

    Where e^x may be infinite both are ``e^(x - 1) e/2``.
    """
    half, size = _number(b, 0.5, x), b.emit("abs", x)
    large = b.emit("lt", _number(b, 80 if b.dtype(x).itemsize == 4 else 700, x), size)
    u = b.emit("mul", b.emit("exp", b.emit("sub", size, _number(b, 1, x))), _number(b, np.e / 2, x))
    if sense == "cosh":
        v = b.emit("mul", half, b.emit("exp", size))
        v = b.emit("add", v, b.emit("div", _number(b, 0.25, x), v))
        return b.emit("select", large, u, v)
    m = b.emit("expm1", size)
    v = b.emit("mul", half, b.emit("add", m, b.emit("div", m, b.emit("add", m, _number(b, 1, x)))))
    return with_sign(b, b.emit("select", large, u, v), x)


def _mul(b: Builder, params: Any, dtype: Any, x: int, y: int) -> int:
    """A product; one with a boolean, converted to 0 or 1, is a choice, as in XLA.

    So it is 0 also where the other factor is NaN or infinite. Within a dot it is not a choice.
    """
    if dtype.kind == "f":
        for number, other in ((x, y), (y, x)):
            chosen = b.converted_boolean(number)
            if chosen is not None:
                return b.emit("select", chosen, other, _number(b, 0, other))
    return b.emit("mul", x, y)


_SAME_NAME = (
    "add", "sub", "neg", "abs", "sqrt", "sin", "cos", "tanh", "exp", "expm1", "log", "log1p",
    "atan2", "floor", "max", "min", "eq", "ne", "lt", "le", "and", "or", "xor", "not",
)  # fmt: skip

ELEMENTWISE: dict[str, Callable[..., int]] = {
    "mul": _mul,
    **{name: _plain(name) for name in _SAME_NAME},
    "add_any": _plain("add"),
    "div": _quotient("div"),
    "rem": _quotient("rem"),
    "ge": lambda b, params, dtype, x, y: b.emit("le", y, x),
    "gt": lambda b, params, dtype, x, y: b.emit("lt", y, x),
    "tan": _of_one(lambda b, x: b.emit("div", b.emit("sin", x), b.emit("cos", x))),
    "rsqrt": _of_one(lambda b, x: b.emit("div", _number(b, 1, x), b.emit("sqrt", x))),
    "logistic": _of_one(_logistic),
    "exp2": _of_one(lambda b, x: b.emit("exp", b.emit("mul", x, _number(b, np.log(2.0), x)))),
    "one_minus_square": _of_one(_one_minus_square),
    "square": _of_one(lambda b, x: b.emit("mul", x, x)),
    "atan": _of_one(lambda b, x: b.emit("atan2", x, _number(b, 1, x))),
    "asin": _of_one(lambda b, x: _arc(b, x, True)),
    "acos": _of_one(lambda b, x: _arc(b, x, False)),
    "sinh": _of_one(lambda b, x: _hyperbolic(b, x, "sinh")),
    "cosh": _of_one(lambda b, x: _hyperbolic(b, x, "cosh")),
    "ceil": _of_one(lambda b, x: b.emit("neg", b.emit("floor", b.emit("neg", x)))),
    "is_finite": _of_one(lambda b, x: b.emit("lt", b.emit("abs", x), _number(b, np.inf, x))),
    "integer_pow": lambda b, params, dtype, x: _power(b, x, params["y"]),
    "pow": _pow,
    "sign": _sign,
    "clamp": _clamp,
    "select_n": _select_n,
    "erf_inv": _erf_inv,
    "round": _round,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "reduce_precision": _reduce_precision,
    "shift_left": _shift("shl"),
    "shift_right_logical": _shift("shr"),
    "shift_right_arithmetic": _shift("sar"),
    **{name: (lambda b, params, dtype, x: x) for name in ("copy", "copy_p", "stop_gradient")},
}  # fmt: skip


# rules for whole arrays: rule(builder, equation, *arrays of values) -> array or arrays of values


def _broadcast(b: Builder, equation: Any, x: Values, *_: Values) -> Values:
    shape, places = _raw_shape(equation.outvars[0].aval), equation.params["broadcast_dimensions"]
    spread = [1] * len(shape)
    for axis, place in enumerate((*places, *range(len(equation.params["shape"]), len(shape)))):
        spread[place] = x.shape[axis]
    return np.broadcast_to(x.reshape(spread), shape)


def _pad(b: Builder, equation: Any, x: Values, filler: Values) -> Values:
    for axis, (low, high, inner) in enumerate(equation.params["padding_config"]):
        length = max(0, x.shape[axis] + (x.shape[axis] - 1) * inner) if x.shape[axis] else 0
        shape = (*x.shape[:axis], length + max(low, 0) + max(high, 0), *x.shape[axis + 1 :])
        wide = np.full(shape, int(filler), np.int64)
        where = [slice(None)] * x.ndim
        where[axis] = slice(max(low, 0), max(low, 0) + length, inner + 1)
        wide[tuple(where)] = x
        where[axis] = slice(max(-low, 0), shape[axis] - max(-high, 0))
        x = wide[tuple(where)]
    return x


def _dot(b: Builder, equation: Any, x: Values, y: Values) -> Values:
    (xc, yc), (xb, yb) = equation.params["dimension_numbers"]
    x = np.moveaxis(x, (*xb, *xc), (*range(len(xb)), *range(x.ndim - len(xc), x.ndim)))
    y = np.moveaxis(y, (*yb, *yc), (*range(len(yb)), *range(y.ndim - len(yc), y.ndim)))
    batch, contracted = x.shape[: len(xb)], x.shape[x.ndim - len(xc) :]
    left, right = x.shape[len(xb) : x.ndim - len(xc)], y.shape[len(yb) : y.ndim - len(yc)]
    x = x.reshape(int(np.prod(batch)), int(np.prod(left)), int(np.prod(contracted)))
    y = y.reshape(int(np.prod(batch)), int(np.prod(right)), int(np.prod(contracted)))
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    # booleans are counted in integers: the result is whether both hold anywhere
    zero = b.const(np.zeros((), np.int32 if dtype.kind == "b" else dtype)[()])
    x, y = (_of_dtype(b, z, b.dtype(zero)) for z in (x, y))  # the result may be of a wider dtype
    small = x.shape[1] * x.shape[2] * y.shape[1] <= PRODUCTS
    dissolved = small or any(b.literal(int(k)) is not None for k in (*x.flat, *y.flat))
    product = _product if dissolved else _product_by_loops
    results = [product(b, zero, *pair) for pair in zip(x, y, strict=True)]
    if dtype.kind == "b":
        results = [b.emit("ne", int(k), zero) for k in np.ravel(results)]
    return np.array(results, np.int64).reshape((*batch, *left, *right))


def _of_dtype(b: Builder, values: Values, dtype: np.dtype) -> Values:
    converted = [b.emit("convert", k, dtype=dtype) for k in values.ravel().tolist()]
    return np.array(converted, np.int64).reshape(values.shape)


def _product(b: Builder, zero: int, x: Values, y: Values) -> Values:
    """``x y^T``, product by product."""
    sums = np.empty((len(x), len(y)), np.int64)
    for i, j in np.ndindex(sums.shape):
        sums[i, j] = zero
        for p, q in zip(x[i].tolist(), y[j].tolist(), strict=True):
            sums[i, j] = b.emit("add", int(sums[i, j]), b.emit("mul", p, q))
    return sums


def _product_by_loops(b: Builder, zero: int, x: Values, y: Values) -> Values:
    """``x y^T`` by loops over the products of a sum, each of which carries several sums.

    Where the sums are short, of four products at most, the loop goes over the rows of x.
    """
    (rows, length), columns = x.shape, len(y)
    if length <= 4:
        if columns > rows:
            return _product_by_loops(b, zero, y, x).T
        inner = Builder([b.dtype(zero)] * (y.size + length))
        fixed = np.arange(y.size).reshape(y.shape)
        row = np.arange(y.size, y.size + length)[None]
        program = inner.finish(_product(inner, inner.const(b.literal(zero)), row, fixed)[0])
        loop = b.loop(Routine(program, rows, y.size), [*y.ravel().tolist(), *x.T.ravel().tolist()])
        items = [[b.item(loop, j * rows + i) for j in range(columns)] for i in range(rows)]
        return np.array(items, np.int64)
    sums = np.empty((rows, columns), np.int64)
    high, wide = (SUMS, 1) if columns == 1 else (1, SUMS) if rows == 1 else (4, SUMS // 4)
    for i in range(0, rows, high):
        for j in range(0, columns, wide):
            sums[i : i + high, j : j + wide] = _sums(b, zero, x[i : i + high], y[j : j + wide])
    return sums


def _sums(b: Builder, zero: int, x: Values, y: Values) -> Values:
    """``x y^T`` by one loop.

    Where there are few sums each is split into parts, which are added at the end: additions to
    different sums do not wait for each other.
    """
    shape, length = (len(x), len(y)), x.shape[1]
    most = max(1, SUMS // (shape[0] * shape[1]))
    fitting = [p for p in range(1, most + 1) if length % p == 0]
    parts = max(p for p in fitting if p == 1 or length >= 4 * p)
    x, y = (z.reshape(len(z) * parts, length // parts) for z in (x, y))
    count = shape[0] * shape[1] * parts
    inner = Builder([b.dtype(zero)] * (count + len(x) + len(y)))
    totals = []
    for number, (i, j, part) in enumerate(np.ndindex(*shape, parts)):
        product = inner.emit("mul", count + i * parts + part, count + len(x) + j * parts + part)
        totals.append(inner.emit("add", number, product))
    rows = [*x.ravel().tolist(), *y.ravel().tolist()]
    routine = Routine(inner.finish(totals), length // parts, 0, count)
    loop = b.loop(routine, [*[zero] * count, *rows])
    sums = np.array([b.item(loop, k) for k in range(count)]).reshape(-1, parts)
    wholes = [functools.reduce(lambda p, q: b.emit("add", p, q), row) for row in sums.tolist()]
    return np.array(wholes, np.int64).reshape(shape)


def _neutral(name: str, dtype: np.dtype) -> Any:
    """The result of a reduction of an empty array."""
    if name in ("max", "min") and dtype.kind == "f":
        return dtype.type(-np.inf if name == "max" else np.inf)
    limits = np.iinfo(dtype) if dtype.kind in "iu" else None
    if name in ("max", "min"):
        lowest, highest = (limits.min, limits.max) if limits else (False, True)
        return dtype.type(lowest if name == "max" else highest)
    return np.invert(np.zeros((), dtype))[()] if name == "and" else dtype.type(name == "mul")


def _reduce(name: str) -> Callable[..., Values]:
    def rule(b: Builder, equation: Any, x: Values) -> Values:
        axes = equation.params["axes"]
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        shape = tuple(x.shape[axis] for axis in kept)
        length = int(np.prod([x.shape[axis] for axis in axes]))
        rows = x.transpose(*kept, *axes).reshape(int(np.prod(shape)), length).tolist()
        if rows and not rows[0]:
            rows = [[b.const(_neutral(name, _raw_dtype(equation.outvars[0].aval)))]] * len(rows)
        results = [functools.reduce(lambda a, c: b.emit(name, a, c), row) for row in rows]
        return np.array(results, np.int64).reshape(shape)

    return rule


def _arg_extreme(less: Callable[..., int]) -> Callable[..., Values]:
    """The place of the first extreme, or of the first NaN if there is one."""

    def rule(b: Builder, equation: Any, x: Values) -> Values:
        (axis,), dtype = equation.params["axes"], np.dtype(equation.params["index_dtype"])
        x = np.moveaxis(x, axis, -1)
        places = np.empty(x.shape[:-1], np.int64)
        for place in np.ndindex(places.shape):
            row = x[place].tolist()
            best, where = row[0], b.const(dtype.type(0))
            for number, value in enumerate(row[1:], 1):
                better = less(b, value, best)
                if b.dtype(value).kind == "f":
                    fine = b.emit("eq", best, best)
                    better = b.emit("and", b.emit("or", better, b.emit("ne", value, value)), fine)
                best = b.emit("select", better, value, best)
                where = b.emit("select", better, b.const(dtype.type(number)), where)
            places[place] = where
        return places

    return rule


def _cumulative(name: str) -> Callable[..., Values]:
    def rule(b: Builder, equation: Any, x: Values) -> Values:
        axis, backward = equation.params["axis"], equation.params["reverse"]
        if not x.size:
            return x
        x = np.moveaxis(x, axis, 0)
        rows = x[::-1] if backward else x
        totals = [rows[0]]
        for row in rows[1:]:
            pairs = zip(totals[-1].ravel().tolist(), row.ravel().tolist(), strict=True)
            total = np.array([b.emit(name, p, q) for p, q in pairs], np.int64)
            totals.append(total.reshape(row.shape))
        return np.moveaxis(np.stack(totals[::-1] if backward else totals), 0, axis)

    return rule


def _sort(b: Builder, equation: Any, *arrays: Values) -> list[Values]:
    """All arrays in the order of the first, stable, by odd-even transposition."""
    if equation.params["num_keys"] != 1:
        raise NotScalarError("sort: by several keys it has no scalar form; use engine='scan'")
    columns = [np.moveaxis(x, equation.params["dimension"], 0).copy() for x in arrays]
    n = len(columns[0])
    for turn in range(n):
        for k in range(turn % 2, n - 1, 2):
            for place in np.ndindex(columns[0].shape[1:]):
                low, high = (int(columns[0][(j, *place)]) for j in (k, k + 1))
                swap = b.emit("lt", high, low)
                if b.dtype(low).kind == "f":  # NaN last
                    misplaced = b.emit("and", b.emit("ne", low, low), b.emit("eq", high, high))
                    swap = b.emit("or", swap, misplaced)
                for column in columns:
                    x, y = int(column[(k, *place)]), int(column[(k + 1, *place)])
                    column[(k, *place)] = b.emit("select", swap, y, x)
                    column[(k + 1, *place)] = b.emit("select", swap, x, y)
    return [np.moveaxis(x, 0, equation.params["dimension"]) for x in columns]


def _literals(b: Builder, name: str, values: Values) -> np.ndarray:
    """The constants that indices are."""
    literals = [b.literal(int(v)) for v in values.ravel()]
    if any(x is None for x in literals):
        raise NotScalarError(
            f"{name}: an index that is not known before the run has no scalar form; "
            "use engine='scan', or select"
        )
    return np.array(literals).reshape(values.shape)


def _moved(equation: Any, b: Builder, args: Sequence[Values], data: Sequence[int]) -> Values:
    """The result of any primitive that only moves elements: it is run on their numbers.

    ``data``: which of the arguments have the elements; the others are indices.
    """
    concrete, table, offset = [], [], 0
    for number, values in enumerate(args):
        if number in data:
            places = np.arange(offset, offset + values.size, dtype=np.int32)
            concrete.append(places.reshape(values.shape))
            table += values.ravel().tolist()
            offset += values.size
        else:
            concrete.append(_literals(b, equation.primitive.name, values))
    params = dict(equation.params)
    if "fill_value" in params:
        params["fill_value"] = -1
    with jax.ensure_compile_time_eval():
        moved = np.asarray(equation.primitive.bind(*map(jnp.asarray, concrete), **params))
    outside = (moved < 0) | (moved >= offset)
    if outside.any():  # there the fill value stands
        dtype = _raw_dtype(equation.outvars[0].aval)
        table.append(b.const(_filler(dtype, equation.params.get("fill_value"))))
        moved = np.where(outside, offset, moved)
    return np.array(table, np.int64)[moved]


def _filler(dtype: np.dtype, value: Any) -> Any:
    """What ``lax.gather`` fills with.

    Without a value that is NaN, the least signed or the largest unsigned integer, or True.
    """
    if value is None:
        value = np.nan if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).min
        value = np.iinfo(dtype).max if dtype.kind == "u" else value
    return np.asarray(value).astype(dtype)[()]


def _scatter(add: bool) -> Callable[..., Values]:
    """A scatter: JAX scatters one update after the other, which shows the place of each."""

    def rule(b: Builder, equation: Any, x: Values, indices: Values, updates: Values) -> Values:
        index, result = _literals(b, equation.primitive.name, indices), x.copy()
        numbers = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        options = {name: equation.params[name] for name in numbers}
        for number in range(updates.size):
            alone = (np.arange(updates.size) == number).astype(np.int32).reshape(updates.shape)
            with jax.ensure_compile_time_eval():
                hit = jax.lax.scatter_add(
                    np.zeros(x.shape, np.int32), jnp.asarray(index), jnp.asarray(alone), **options
                )
                (targets,) = np.nonzero(np.asarray(hit).ravel())
            value = int(updates.ravel()[number])
            for target in targets.tolist():
                old = int(result.ravel()[target])
                result.ravel()[target] = b.emit("add", old, value) if add else value
        return result

    return rule


def _update_slice(b: Builder, equation: Any, x: Values, update: Values, *start: Values) -> Values:
    first = [int(_literals(b, "dynamic_update_slice", s)) for s in start]
    first = [min(max(f, 0), n - m) for f, n, m in zip(first, x.shape, update.shape, strict=True)]
    result = x.copy()
    result[tuple(slice(f, f + m) for f, m in zip(first, update.shape, strict=True))] = update
    return result


def _dynamic_slice(b: Builder, equation: Any, x: Values, *start: Values) -> Values:
    sizes = equation.params["slice_sizes"]
    first = [int(_literals(b, "dynamic_slice", s)) for s in start]
    first = [min(max(f, 0), n - m) for f, n, m in zip(first, x.shape, sizes, strict=True)]
    return x[tuple(slice(f, f + m) for f, m in zip(first, sizes, strict=True))]


def _slice(b: Builder, equation: Any, x: Values) -> Values:
    p = equation.params
    strides = p["strides"] or [1] * x.ndim
    return x[tuple(map(slice, p["start_indices"], p["limit_indices"], strides))]


def _split(b: Builder, equation: Any, x: Values) -> list[Values]:
    return np.split(x, np.cumsum(equation.params["sizes"])[:-1], axis=equation.params["axis"])


def _iota(b: Builder, equation: Any) -> Values:
    p = equation.params
    along = np.arange(p["shape"][p["dimension"]]).astype(p["dtype"])
    spread = [1] * len(p["shape"])
    spread[p["dimension"]] = -1
    return np.array(np.broadcast_to(_constants(b, along).reshape(spread), p["shape"]))


def _empty(b: Builder, equation: Any) -> Values:
    """Zeros for an uninitialised array."""
    aval = equation.outvars[0].aval
    return _constants(b, np.zeros(aval.shape, aval.dtype))


def _iota_words(b: Builder, equation: Any) -> list[Values]:
    """The high and the low words of 0, 1, 2, ..."""
    shape = equation.params["shape"]
    low = np.arange(int(np.prod(shape)), dtype=np.uint32).reshape(shape)
    return [_constants(b, np.zeros_like(low)), _constants(b, low)]


def _scan(b: Builder, equation: Any, *args: Values) -> list[Values]:
    p = equation.params
    if p["length"] > TRIPS:
        raise NotScalarError(
            f"scan: {p['length']} iterations are too many for scalar code; use engine='scan'"
        )
    first, count = inputs_of_scan(equation)
    fixed, carry, xs = args[:first], list(args[first : first + count]), args[first + count :]
    rows: list[list[Values]] = []
    order = range(p["length"])
    for k in reversed(order) if p["reverse"] else order:
        outputs = _run(b, *opened(p["jaxpr"]), [*fixed, *carry, *(x[k] for x in xs)])
        carry, row = outputs[:count], outputs[count:]
        rows.append(row)
    if not rows:
        return [*carry, *(np.empty(_raw_shape(v.aval), np.int64) for v in equation.outvars[count:])]
    rows = rows[::-1] if p["reverse"] else rows
    return [*carry, *(np.stack(column) for column in zip(*rows, strict=True))]


def _while(b: Builder, equation: Any, *args: Values) -> list[Values]:
    """A while loop whose end is known before the run."""
    p = equation.params
    n, m = p["cond_nconsts"], p["body_nconsts"]
    test, body, carry = args[:n], args[n : n + m], list(args[n + m :])
    for _ in range(TRIPS):
        (go,) = _run(b, *opened(p["cond_jaxpr"]), [*test, *carry])
        known = b.literal(int(go))
        if known is None:
            raise NotScalarError(
                "while: a loop whose end depends on the run has no scalar form; use engine='scan'"
            )
        if not known:
            return carry
        carry = _run(b, *opened(p["body_jaxpr"]), [*body, *carry])
    raise NotScalarError(
        f"while: more than {TRIPS} iterations are too many for scalar code; use engine='scan'"
    )


def _cond(b: Builder, equation: Any, which: Values, *args: Values) -> list[Values]:
    """All branches, and a choice between their results."""
    branches = [_run(b, *opened(branch), args) for branch in equation.params["branches"]]
    results = []
    for choices in zip(*branches, strict=True):
        value = choices[-1]
        for number in range(len(choices) - 2, -1, -1):
            p = int(which)
            of_two = b.dtype(p).kind == "b"
            first = b.emit("not", p) if of_two else b.emit("le", p, _number(b, number, p))
            pairs = zip(choices[number].ravel().tolist(), value.ravel().tolist(), strict=True)
            chosen = np.array([b.emit("select", first, x, y) for x, y in pairs], np.int64)
            value = chosen.reshape(value.shape)
        results.append(value)
    return results


def _expanded(b: Builder, equation: Any, *args: Values) -> list[Values]:
    """A primitive of newer versions of jax that can expand itself (custom_root)."""
    primitive = equation.params["_prim"]

    def expanded(*leaves: Any) -> list[Any]:
        return jax.tree.leaves(primitive.expand(*jax.tree.unflatten(primitive.in_tree, leaves)))

    closed = jax.make_jaxpr(expanded)(*_specs(equation, args))
    return _run(b, closed.jaxpr, closed.consts, args)


def _specs(equation: Any, args: Sequence[Values]) -> list[jax.ShapeDtypeStruct]:
    """Shapes and dtypes of the inputs of an equation, keys as their words."""
    pairs = zip(args, equation.invars, strict=True)
    return [jax.ShapeDtypeStruct(x.shape, _raw_dtype(v.aval)) for x, v in pairs]


def _linear_solve(b: Builder, equation: Any, *args: Values) -> list[Values]:
    lengths, solve = equation.params["const_lengths"], equation.params["jaxprs"].solve
    first = lengths.matvec + lengths.vecmat
    inputs = [*args[first : first + lengths.solve], *args[sum(lengths) :]]
    return _run(b, *opened(solve), inputs)


def _threefry(b: Builder, equation: Any, *words: Values) -> list[Values]:
    """Threefry 2x32 with 20 rounds (Salmon et al., SC 2011): two words of key, two of counter."""
    pairs = []
    arrays = np.broadcast_arrays(*words)
    for a, c, p, q in zip(*(x.ravel().tolist() for x in arrays), strict=True):
        number = lambda value, a=a: b.const(np.uint32(value))  # noqa: E731
        keys = [a, c, b.emit("xor", b.emit("xor", a, c), number(0x1BD11BDA))]
        p, q = b.emit("add", p, a), b.emit("add", q, c)
        for group in range(5):
            for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
                p = b.emit("add", p, q)
                high = b.emit("shl", q, number(turn))
                turned = b.emit("or", high, b.emit("shr", q, number(32 - turn)))
                q = b.emit("xor", p, turned)
            p = b.emit("add", p, keys[(group + 1) % 3])
            q = b.emit("add", b.emit("add", q, keys[(group + 2) % 3]), number(group + 1))
        pairs.append((p, q))
    shape = arrays[0].shape
    return [np.array(column, np.int64).reshape(shape) for column in zip(*pairs, strict=True)]


def _random(name: str) -> Callable[..., Values]:
    """An operation on keys: what their generator does with the words of a key is traced."""

    def rule(b: Builder, equation: Any, *args: Values) -> Values:
        kind = equation.invars[0].aval if name != "random_seed" else equation.outvars[0].aval
        impl, p = kind.dtype._impl, equation.params
        function = {
            "random_bits": lambda key: impl.random_bits(key, p.get("bit_width"), p.get("shape")),
            "random_split": lambda key: impl.split(key, p.get("shape")),
            "random_fold_in": lambda key, data: impl.fold_in(key, data),
            "random_seed": lambda seed: impl.seed(seed),
        }[name]
        if kind.shape:
            raise NotScalarError(
                f"{name}: for an array of keys it has no scalar form; use engine='scan'"
            )
        closed = jax.make_jaxpr(function)(*_specs(equation, args))
        return _run(b, closed.jaxpr, closed.consts, args)[0]

    return rule


def _elements(*places: int) -> Callable[..., Values]:
    return lambda b, equation, *args: _moved(equation, b, args, places)


STRUCTURAL: dict[str, Callable[..., Any]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda b, e, x: x.reshape(_raw_shape(e.outvars[0].aval)),
    "squeeze": lambda b, e, x: x.reshape(_raw_shape(e.outvars[0].aval)),
    "expand_dims": lambda b, e, x: x.reshape(_raw_shape(e.outvars[0].aval)),
    "transpose": lambda b, e, x: x.transpose(*e.params["permutation"]),
    "rev": lambda b, e, x: np.flip(x, e.params["dimensions"]),
    "concatenate": lambda b, e, *xs: np.concatenate(xs, e.params["dimension"]),
    "stack": lambda b, e, *xs: np.stack(xs, e.params.get("axis", 0)),
    "unstack": lambda b, e, x: list(np.moveaxis(x, e.params.get("axis", 0), 0)),
    "slice": _slice,
    "split": _split,
    "iota": _iota,
    "empty": _empty,
    "empty2": _empty,
    "iota_2x32_shape": _iota_words,
    "pad": _pad,
    "tile": lambda b, e, x: np.tile(x, e.params["reps"]),
    "dot_general": _dot,
    "reduce_sum": _reduce("add"),
    "reduce_prod": _reduce("mul"),
    "reduce_max": _reduce("max"),
    "reduce_min": _reduce("min"),
    "reduce_and": _reduce("and"),
    "reduce_or": _reduce("or"),
    "argmax": _arg_extreme(lambda b, x, y: b.emit("lt", y, x)),
    "argmin": _arg_extreme(lambda b, x, y: b.emit("lt", x, y)),
    "cumsum": _cumulative("add"),
    "cumprod": _cumulative("mul"),
    "cummax": _cumulative("max"),
    "cummin": _cumulative("min"),
    "sort": _sort,
    "gather": _elements(0),
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _update_slice,
    "scatter": _scatter(False),
    "scatter-add": _scatter(True),
    "scatter_add": _scatter(True),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "call_hi_primitive": _expanded,
    "custom_linear_solve": _linear_solve,
    "threefry2x32": _threefry,
    "random_wrap": lambda b, e, x: x,
    "random_unwrap": lambda b, e, x: x,
    "random_bits": _random("random_bits"),
    "random_split": _random("random_split"),
    "random_fold_in": _random("random_fold_in"),
    "random_seed": _random("random_seed"),
    "optimization_barrier": lambda b, e, *xs: list(xs),
}

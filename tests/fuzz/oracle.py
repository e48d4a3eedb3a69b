"""The effect of rounding on a function: its jaxpr is run several times with other roundings.

``shaken(function, arguments)`` evaluates the jaxpr operation by operation, because XLA needs
minutes to compile all of a rollout. Sample 0 rounds as each operation rounds. Every other sample
moves each inexact result by a few ulp, depending on a hash of the result, its place and the number
of the sample. A result whose last bits are zero counts as exact and does not move: integers, small
fractions. So a jump at a number that is reached exactly stays where it is.

The spread of the samples bounds by how much two correct engines may differ (``admitted``). Where
the samples disagree on a branch, an integer or an infinity, the point lies at a jump within this
precision.

Parker, Monte Carlo arithmetic, UCLA CSD-970002, 1997.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxquat._internal.jaxprs import called, inputs_of_scan

from .liberties import LIBERTIES, SATURATE, at_random, bind, chosen, hashed, word

SAMPLES = 12
EXACT = {
    "neg", "abs", "floor", "ceil", "round", "sign", "max", "min", "clamp", "select_n", "copy",
    "copy_p", "stop_gradient", "gather", "reduce_precision", "broadcast_in_dim", "reshape",
    "squeeze", "expand_dims", "transpose", "rev", "concatenate", "stack", "unstack", "slice",
    "split", "iota", "empty", "empty2", "pad", "tile", "reduce_max", "reduce_min", "cummax",
    "cummin", "sort", "dynamic_slice", "dynamic_update_slice", "scatter", "optimization_barrier",
    "bitcast_convert_type",
}  # fmt: skip
SELECTING = (
    "max", "min", "clamp", "reduce_max", "reduce_min", "cummax", "cummin", "bitcast_convert_type",
)  # fmt: skip
ONE_ULP = ("add", "add_any", "sub", "mul", "div", "sqrt", "square", "rem", "convert_element_type")
SUMS = (
    "reduce_sum", "cumsum", "reduce_prod", "cumprod", "dot_general", "scatter-add", "scatter_add",
)  # fmt: skip
LINEAR = {
    "neg", "add", "add_any", "sub", "reduce_sum", "select_n", "broadcast_in_dim", "reshape",
    "squeeze", "expand_dims", "transpose", "concatenate", "stack", "slice", "split", "pad",
    "convert_element_type",
}  # fmt: skip
OTHERS = 6  # error in ulp that all other functions may have


def shaken(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """The results of all samples, (bodies, SAMPLES, ...), for arguments with the axis of bodies."""

    def one(sample: Any, *arguments: Any) -> Any:
        leaves = [jnp.asarray(x) for x in jax.tree.leaves(arguments)]
        leaves = [_moved(x, 0, sample, k) for k, x in enumerate(leaves)]
        seen = _Seen({}, {}, {})
        rule = lambda equation, args, salt: _rounded(equation, args, sample, salt, seen)
        read = lambda constant, salt: _moved(constant, 0, sample, salt)
        return interpreted(function, arguments, leaves, rule, read, seen.rearranged)

    bodies = len(jax.tree.leaves(arguments)[0])
    numbers = jnp.tile(jnp.arange(SAMPLES), bodies)
    rows = jax.vmap(one)(numbers, *jax.tree.map(lambda x: np.repeat(x, SAMPLES, 0), arguments))
    return jax.tree.map(lambda x: np.asarray(x).reshape(bodies, SAMPLES, *x.shape[1:]), rows)


Rearranged = Callable[[Any, Sequence[Any]], Any]


class _Seen(NamedTuple):
    """Results of a sample, by id: numbers that were booleans, known zeros, and products."""

    masks: dict[int, Any]
    zeros: dict[int, Any]
    products: dict[int, Any]

    def rearranged(self, result: Any, parts: Sequence[Any]) -> Any:
        """Rows of masks make a mask, and its rows are masks; so do known zeros."""
        for known in (self.masks, self.zeros):
            if all(id(part) in known for part in parts):
                known[id(result)] = result
        return result

    def vanishes(self, name: str, args: Sequence[Any]) -> bool:
        """Whether a result is 0 because of known zeros, as the slope of x^0 is."""
        literal = lambda x: isinstance(x, np.ndarray) and not x.any()
        known = [literal(x) or id(x) in self.zeros for x in args]
        if name in ("mul", "div"):
            return known[0] or (name == "mul" and known[1])
        if name == "select_n":
            which, known = args[0], known[1:]
            if not isinstance(which, jax.core.Tracer):  # the same for all inputs
                known = [known[int(k)] for k in np.unique(which)]
        return bool(known) and all(known) and name in LINEAR


Rule = Callable[[Any, list[Any], int], list[Any]]


def interpreted(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    leaves: Sequence[Any],
    rule: Rule,
    read: Callable[[Any, int], Any],
    rearranged: Rearranged | None = None,
) -> Any:
    """The results of ``function``, traced at ``arguments``, for the values ``leaves``.

    ``rule(equation, args, salt)`` evaluates each operation, where ``salt`` is a number that depends
    on its place; ``read(constant, salt)`` returns the constants. Calls and custom rules are
    inlined. With ``rearranged`` scans are unrolled, and ``rearranged(result, parts) -> result``
    sees the stacked rows of a scan and each row that is taken from an array.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
    results = _Interpreter(rule, read, rearranged).run(closed.jaxpr, closed.consts, leaves, 1)
    return jax.tree.unflatten(jax.tree.structure(shape), results)


class _Interpreter:
    def __init__(
        self, rule: Rule, read: Callable[[Any, int], Any], rearranged: Rearranged | None
    ) -> None:
        self.rule, self.read, self.rearranged = rule, read, rearranged

    def run(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any], salt: int) -> list[Any]:
        """The outputs of a jaxpr."""
        env: dict[Any, Any] = dict(zip(jaxpr.invars, inputs, strict=True))
        env.update((v, self.read(c, salt)) for v, c in zip(jaxpr.constvars, consts, strict=True))
        literal = lambda v: self.read(np.asarray(v.val, v.aval.dtype), salt)
        value = lambda v: literal(v) if hasattr(v, "val") else env[v]
        for number, equation in enumerate(jaxpr.eqns):
            args = [value(v) for v in equation.invars]
            outputs = self.equation(equation, args, salt * 31 + number * 7 + 3)
            env.update(zip(equation.outvars, outputs, strict=True))
        return [value(v) for v in jaxpr.outvars]

    def opened(self, jaxpr: Any, inputs: Sequence[Any], salt: int) -> list[Any]:
        """The outputs of a jaxpr with or without constants."""
        pair = (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())
        return self.run(*pair, inputs, salt)

    def equation(self, equation: Any, args: list[Any], salt: int) -> list[Any]:
        """The outputs of an equation."""
        name, params = equation.primitive.name, equation.params
        if name == "scan":
            return self.scan(equation, args, salt)
        if name == "while":
            return self.while_loop(equation, args, salt)
        if name == "cond":
            branches = [
                lambda *a, branch=branch, k=k: self.opened(branch, a, salt + k)
                for k, branch in enumerate(params["branches"])
            ]
            index = jnp.asarray(args[0]).astype(jnp.int32)  # a bool becomes 0 or 1
            return lax.switch(index, branches, *args[1:])
        inner = called(equation)
        if inner is not None:
            return self.opened(inner, args, salt)
        return self.rule(equation, args, salt)

    def while_loop(self, equation: Any, args: list[Any], salt: int) -> list[Any]:
        """The outputs of a while loop; under ``jax.vmap`` each row has its own condition."""
        params = equation.params
        n, m = params["cond_nconsts"], params["body_nconsts"]
        test, body, carry = args[:n], args[n : n + m], tuple(args[n + m :])
        go = lambda c: self.opened(params["cond_jaxpr"], [*test, *c], salt)[0]

        def turn(c: Any) -> Any:
            goes = go(c)
            news = self.opened(params["body_jaxpr"], [*body, *c], salt + 1)
            if goes.ndim == 0:
                return tuple(news)
            rows = lambda x: goes.reshape(goes.shape + (1,) * (x.ndim - goes.ndim))
            return tuple(jnp.where(rows(x), new, x) for new, x in zip(news, c, strict=True))

        return list(lax.while_loop(lambda c: jnp.any(go(c)), turn, carry))

    def scan(self, equation: Any, args: list[Any], salt: int) -> list[Any]:
        params = equation.params
        n, m = inputs_of_scan(equation)
        fixed, carry, xs = args[:n], args[n : n + m], args[n + m :]

        def body(c: Any, x: Any) -> Any:
            outputs = self.opened(params["jaxpr"], [*fixed, *c, *x], salt)
            return outputs[:m], outputs[m:]

        length, backward, rearranged = params["length"], params["reverse"], self.rearranged
        if rearranged is None or not length:
            carry, rows = lax.scan(body, carry, xs, length=length, reverse=backward)
            return [*carry, *rows]
        many: list[Any] = [None] * length
        for k in reversed(range(length)) if backward else range(length):
            carry, many[k] = body(carry, [rearranged(x[k], [x]) for x in xs])
        stacked = (rearranged(jnp.stack(rows), rows) for rows in zip(*many, strict=True))
        return [*carry, *stacked]


def _rounded(equation: Any, args: list[Any], sample: Any, salt: int, seen: _Seen) -> list[Any]:
    """The outputs of an equation in a sample, with its liberties and another rounding.

    A product in a sum may be rounded or not each time that it is used: x y - y x may be an ulp.
    """
    name, (masks, zeros, products) = equation.primitive.name, seen
    is_float = jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating)
    if is_float and seen.vanishes(name, args):
        gone = (sample == 1) | at_random(sample, salt)
        results = [jnp.where(gone, jnp.zeros_like(x), x) for x in bind(equation, args)]
        zeros.update((id(x), x) for x in results)
        return results
    of_boolean = name == "convert_element_type" and args[0].dtype == bool
    if of_boolean or (name in EXACT and any(id(x) in masks for x in args)):
        results = bind(equation, args)
        masks.update((id(x), x) for x in results)
        return results
    if name in SUMS:
        args = [_moved(x, 1, sample, salt + k, exact=False) for k, x in enumerate(args)]
    if name in ("add", "add_any", "sub"):
        places = enumerate(args)
        args = [_moved(x, 1, sample, salt + k) if id(x) in products else x for k, x in places]
    results = bind(equation, args)
    if is_float:
        if name == "mul":
            results = [chosen(equation, args, results[0], sample, salt, masks)]
        for liberty in LIBERTIES.get(name, ()):
            results = [liberty(equation, args, results[0], sample, salt)]
    if name in SELECTING:
        return [_moved(x, 0, sample, salt) for x in results]  # a NaN with another sign
    if name not in EXACT:
        ulps = _ulps(name, equation.params, args)
        results = [_moved(x, ulps, sample, salt, exact=name not in SATURATE) for x in results]
    if name == "mul" or (name in ("neg", "squeeze") and id(args[0]) in products):
        products[id(results[0])] = results[0]
    return results


def _ulps(name: str, params: Any, args: list[Any]) -> Any:
    """The allowed error of an operation, in ulp.

    XLA's cosh and sinh contain exp(x - log 2), and its log1p has an error of up to 100 ulp.
    """
    if name == "integer_pow":
        return abs(params["y"])
    if name == "log1p":
        return 64 + OTHERS
    if name in ("pow", "exp2", "sinh", "cosh"):  # the error of an exponent
        exponent = args[0]
        if name == "pow":
            exponent = jnp.asarray(args[1]).astype(args[0].dtype) * jnp.log(jnp.abs(args[0]))
        return OTHERS + jnp.where(jnp.isfinite(exponent), jnp.abs(exponent), 0)
    return 1 if name in ONE_ULP or name in SUMS else OTHERS


def _moved(x: Any, ulps: Any, sample: Any, salt: int, exact: bool = True) -> Any:
    """``x`` moved by up to ``ulps``; a subnormal number becomes zero in half of the samples.

    With ``exact``, a number whose last bits are zero does not move.
    """
    kind = getattr(x, "dtype", None)
    if kind not in (jnp.float32, jnp.float64):
        return x
    if isinstance(x, np.ndarray):
        if not ((x != 0) & (np.abs(x) < np.finfo(kind).tiny)).any():
            return x  # a literal that is a normal number
        x = jnp.asarray(x)
    return _displaced(x, jnp.asarray(ulps, kind), sample, word(salt), exact)


@functools.partial(jax.jit, static_argnames="exact")  # traced once for a shape
def _displaced(x: Any, ulps: Any, sample: Any, salt: Any, exact: bool) -> Any:
    kind = x.dtype
    whole, low = (jnp.uint32, 0x3FF) if kind == jnp.float32 else (jnp.uint64, 0xFFFFFF)
    bits = lax.bitcast_convert_type(x, whole)
    words = bits if kind == jnp.float32 else (bits ^ (bits >> 32))
    words = words.astype(jnp.uint32) ^ salt
    if not exact:  # equal numbers move differently too
        words = words + jnp.arange(x.size, dtype=jnp.uint32).reshape(x.shape) * np.uint32(
            0x9E3779B9
        )
    h = hashed(words, sample)
    unit = h.astype(kind) * kind.type(2.0**-31) - 1
    info = jnp.finfo(kind)
    moved = x * (1 + unit * ulps * info.eps)
    small = jnp.abs(x) < info.tiny
    moved = jnp.where(small, jnp.where(h % 2 == 0, x * 0, x), moved)
    moved = jnp.where(jnp.isnan(x) & (h >> 31 == 1), -x, moved)  # a NaN has no certain sign
    still = (sample == 0) | jnp.isinf(x)
    if exact:
        still = still | (((bits & low) == 0) & (jnp.abs(x) >= info.tiny))
    return jnp.where(still, x, moved)


def moved_inputs(arguments: Any, seed: int) -> Any:
    """The arguments with every float moved by up to eight ulp, except floats with few bits."""
    rng = np.random.default_rng(seed)

    def moved(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind != "f":
            return x
        whole, low = (np.uint32, 0x3FF) if x.dtype == np.float32 else (np.uint64, 0xFFFFFF)
        with np.errstate(all="ignore"):
            there = x * (1 + rng.uniform(-8, 8, x.shape) * np.finfo(x.dtype).eps).astype(x.dtype)
        exact = (np.ascontiguousarray(x).view(whole) & whole(low)) == 0
        return np.where(exact | ~np.isfinite(x), x, there)

    return jax.tree.map(lambda x: moved(np.asarray(x)), arguments)


def close(a: np.ndarray, b: np.ndarray, ulps: float = 32.0) -> np.ndarray:
    """Which elements agree: integers by their bits, NaN and infinities by place, floats by ulp.

    The leading axis is the axis of bodies. A float that is small beside the median of its output
    may have lost digits in a difference: its bound is a tenth of ``ulps`` of the median. This does
    not apply below 1e-6 of the median, where no difference of ordinary numbers lies.
    """
    if a.dtype.kind != "f":
        return a == b
    info = np.finfo(a.dtype)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(a), np.abs(b))
        finite = size[np.isfinite(size)]
        usual = np.nan_to_num(np.median(finite)) if finite.size else 0.0
        scale = np.where(size > 1e-6 * usual, np.maximum(size, 0.1 * usual), size)
        near = np.isfinite(size) & (np.abs(a - b) <= ulps * info.eps * scale + 8 * info.tiny)
    return near | (a == b) | (np.isnan(a) & np.isnan(b))


def admitted(
    value: np.ndarray, scan: np.ndarray, samples: np.ndarray, factor: float = 4.0
) -> np.ndarray:
    """Which elements of ``value`` lie within the spread of the samples and the scan's value.

    If some samples are finite and others have the same infinity, the spread extends to the largest
    number.
    """
    every = np.concatenate([samples, scan[None]])
    if value.dtype.kind != "f":
        same = (every == value).any(0)
        if value.dtype.kind == "b":
            return same
        jumps = (every != every[:1]).any(0)
        return same | (jumps & (every.min(0) <= value) & (value <= every.max(0)))
    finite = np.isfinite(every)
    with np.errstate(all="ignore"):
        low, high = np.where(finite, every, np.inf).min(0), np.where(finite, every, -np.inf).max(0)
        info = np.finfo(value.dtype)
        size = np.maximum(np.abs(low), np.abs(high))
        margin = factor * (high - low) + 32 * info.eps * size + 8 * info.tiny
        above, below = (samples == np.inf).any(0), (samples == -np.inf).any(0)
        partly = (above != below) & np.isfinite(samples).any(0)
        low = np.where(partly & below, -info.max, low)
        high = np.where(partly & above, info.max, high)
        inside = np.isfinite(value) & (low - margin <= value) & (value <= high + margin)
        # 1/x of a zero x that may have either sign
        signs = (np.signbit(every) == np.signbit(value)).any(0)
        overflow = (np.isinf(every) | (np.abs(every) > 0.9 * info.max)).any(0)
        nan = np.isnan(value) & np.isnan(every).any(0)
    return inside | nan | (np.isinf(value) & overflow & signs)

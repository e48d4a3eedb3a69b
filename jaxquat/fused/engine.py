"""A loop as one kernel: ``traced`` makes it a ``Recurrence``, ``results_of`` evaluates that.

All arrays are flat, with the axes (members, rows, elements of a leaf), where the first two may be
absent. A loop is an object with these attributes:

- ``start``, ``inputs`` and ``initial_memory()``: pytrees of arrays. Inputs have one row per sample.
- ``steps``, ``sample_every``, ``save_every``: numbers of steps; ``segment``: the number of steps
  between two states that are kept for reverse mode, or None.
- ``step(k, state, command)``: the state after step k.
- ``command(k, state, memory, input)``: the command from step k on, and the new memory. It is called
  every ``sample_every`` steps, and only if ``is_commanded``.
- ``observe(k, state, command)``: what is saved before every ``save_every``-th step, and at the end.
- optionally ``first``, 1 if nothing is saved before the first step, and ``reverse``: whether the
  rows of inputs and saved values go from the last to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import jaxpr_as_fun

from jaxquat._internal.checks import is_key
from jaxquat._internal.collection import paused
from jaxquat._internal.varying import shaped
from jaxquat.fused import cpu, early, lowering, passes, vouching
from jaxquat.fused import transposes as _transposes  # noqa: F401  # registers rules
from jaxquat.fused.errors import report
from jaxquat.fused.kernel import FLOWS, GROUPS
from jaxquat.fused.keys import Operand, primals, shape_of
from jaxquat.fused.primitives import value
from jaxquat.fused.recurrence import Recurrence, recurrence_of
from jaxquat.fused.targets import nvptx
from jaxquat.fused.trace.calls import multiplications
from jaxquat.fused.trace.hoisting import hoist
from jaxquat.fused.trace.values import LARGEST

Result = TypeVar("Result")
MULTIPLICATIONS = {
    "cpu": {"value": 10_000, "derivative": 20_000},
    "gpu": {"value": 2_000, "derivative": 2_000},
}
"""The kernel is faster than XLA up to this many multiplications in a step's matrix products."""


def results_of(loop: Any, strict: bool) -> tuple[Any, Any, Any]:
    """Return the saved rows, the last memory and the last state of a loop, by its kernel.

    With ``strict`` a derivative without a scalar form is an error; otherwise ``lax.scan`` computes
    it, and matrix products that are faster in XLA are an error. NotScalarError, NotImplementedError
    or ImportError say why there is no kernel.
    """
    lacking = missing()
    if lacking:
        raise ImportError(lacking)
    recurrence, operands, (saved, state, memory) = traced(loop, strict)
    lowering.checked_loop(recurrence, "forward")  # raises its errors in this call
    early.begin(recurrence, operands)
    flat = {
        key: Operand(x.reshape(shape_of(recurrence, key).shape), False)
        for key, x in zip(primals(recurrence), operands, strict=True)
    }
    y = iter(x for x, _ in value(flat, recurrence, None).values())
    rows, final = _shaped(y, saved, 1), _shaped(y, state, 0)
    return rows, _shaped(y, memory, 0), final


def if_possible(kernel: Callable[[], Result], scan: Callable[[], Result]) -> Result:
    """Return the results of the kernel, or of the scan where there is none; a fault is reported."""
    if missing():
        return scan()
    try:
        return kernel()
    except Exception as error:
        failure = error.with_traceback(None)  # the traceback holds tracers
    results = scan()  # errors in the user's functions are raised here
    report(failure)
    return results


def _shaped(results: Iterator[Array], spec: Any, leading: int) -> Any:
    def result(leaf: Any) -> Any:
        x, shape = next(results), jax.eval_shape(without_keys, leaf).shape
        return with_keys(x.reshape(*x.shape[:leading], *shape), leaf.dtype)

    return jax.tree.map(result, spec)


def missing() -> str | None:
    """Return an error message if the default platform has no fused kernels, otherwise None."""
    platform = jax.default_backend()
    if platform == "cpu":
        return cpu.missing()
    if platform in ("gpu", "cuda"):
        return nvptx.missing() or vouching.objection()
    return f'engine "fused" has no kernels for {platform}; use engine="scan"'


@paused()
def traced(loop: Any, strict: bool) -> tuple[Recurrence, list[Array], Any]:
    """Return the recurrence, its operands, and the trees of saved values, state and memory."""
    hoisted, trees = _hoisted_functions(loop)
    functions, constants = _with_all_constants(hoisted)
    sample_every = loop.sample_every if loop.is_commanded else loop.steps
    period = {"step": 1, "save": loop.save_every, "sample": sample_every}
    products = {name: multiplications(closed) for name, closed in functions.items()}
    per_step = sum(number / period[name] for name, number in products.items())
    most = MULTIPLICATIONS["cpu" if jax.default_backend() == "cpu" else "gpu"]
    if not strict:
        largest = max((x.size for x in constants), default=0)
        _refuse_large_products(per_step, most["derivative"], max(products.values()), largest)
    recurrence = recurrence_of(
        functions,
        specs={"constants": _specs(constants)} | {k: _specs(trees[k]) for k in GROUPS[1:]},
        steps=loop.steps,
        sample_every=sample_every,
        save_every=loop.save_every,
        segment=loop.segment,
        strict=strict,
        value_by_scan=not strict and per_step > most["value"],
        first=getattr(loop, "first", 0),
        reverse=getattr(loop, "reverse", False),
    )
    start = jax.tree.leaves((loop.inputs, loop.start, loop.initial_memory()))
    operands = [*constants, *map(without_keys, start)]
    floats = {str(x.dtype) for x in operands if jnp.issubdtype(x.dtype, jnp.floating)}
    if len(floats) > 1 and jnp.result_type(float) != jnp.float64:
        got = " and ".join(sorted(floats))
        raise NotImplementedError(f"the kernel has no arrays of {got} without jax_enable_x64")
    return recurrence, operands, (trees["saved"], trees["state"], trees["memory"])


def _hoisted_functions(loop: Any) -> tuple[dict[str, tuple[Any, list[Array]]], dict[str, Any]]:
    trees = {
        "state": loop.start, "memory": loop.initial_memory(),
        "inputs": jax.tree.map(lambda x: x[0], loop.inputs), "command": (), "saved": (),
        "k": shaped((), jnp.int32, jax.tree.leaves(loop.start)[0]),
    }  # fmt: skip
    trees = jax.eval_shape(lambda x: x, trees)
    functions = {"sample": loop.command} if loop.is_commanded else {}
    functions |= {"step": loop.step, "save": loop.observe}
    hoisted = {}
    for name, function in functions.items():
        inner, outer = FLOWS[name]
        closed, constants, results = _hoisted(function, *(trees[x] for x in ("k", *inner)))
        results = results if len(outer) > 1 else (results,)
        trees |= dict(zip(outer, results, strict=True))
        hoisted[name] = closed, constants
    return {name: hoisted[name] for name in FLOWS if name in hoisted}, trees


def _with_all_constants(hoisted: dict[str, tuple[Any, list[Array]]]) -> tuple[Any, list[Array]]:
    constants = [x for _, fixed in hoisted.values() for x in fixed]
    functions, first = {}, 0
    for name, (closed, fixed) in hoisted.items():
        before, after = constants[:first], constants[first + len(fixed) :]
        leaves = range(len(fixed), len(closed.jaxpr.invars))
        inputs = [*_specs(before), *range(len(fixed)), *_specs(after), *leaves]
        functions[name] = passes.arranged(closed, inputs)
        first += len(fixed)
    return functions, constants


def _refuse_large_products(per_step: float, most: int, at_once: int, largest: int) -> None:
    """Raise NotImplementedError if XLA is faster, by the multiplications in one call."""
    # The derivative with respect to the largest array has no scalar form, and its scan within the
    # primitive takes longer than ``engine="scan"``.
    if per_step > most:
        text = f"{per_step:.0f} multiplications in the matrix products of a step"
        raise NotImplementedError(f"{text}; from {most} on XLA is faster")
    if at_once >= largest > LARGEST:
        text = f"{at_once} multiplications in matrix products, by an array of {largest} numbers"
        raise NotImplementedError(
            f"{text}; the kernel has no derivative for arrays of more than {LARGEST}"
        )


def _specs(tree: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Return the shapes and dtypes of the leaves; random keys are represented by their words."""
    return tuple(map(_spec, jax.tree.leaves(tree)))


def _spec(leaf: Any) -> jax.ShapeDtypeStruct:
    known = isinstance(leaf, jax.ShapeDtypeStruct) and not is_key(leaf)
    return leaf if known else jax.eval_shape(without_keys, leaf)


def without_keys(x: Any) -> Array:
    """Return the leaf as an array; random keys become their words."""
    x = jnp.asarray(x)
    return jax.random.key_data(x) if is_key(x) else x


def with_keys(x: Array, dtype: Any) -> Any:
    """Invert ``without_keys``: return keys from their words if ``dtype`` is that of keys."""
    is_words = jnp.issubdtype(dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(x, impl=dtype._impl) if is_words else x


def _hoisted(function: Callable[..., Any], *arguments: Any) -> tuple[Any, list[Array], Any]:
    leaves, structure = jax.tree.flatten(arguments)
    dtypes, trees = [leaf.dtype for leaf in leaves], []

    def of_words(*words: Array) -> list[Array]:
        keyed = [with_keys(x, dtype) for x, dtype in zip(words, dtypes, strict=True)]
        results = function(*jax.tree.unflatten(structure, keyed))
        trees.append(jax.eval_shape(lambda x: x, results))
        return [without_keys(x) for x in jax.tree.leaves(results)]

    words = _specs(arguments)
    closed, fixed = hoist(jax.make_jaxpr(of_words)(*words))
    if any(is_key(x) for x in fixed):
        fixed_dtypes, of_keys = [x.dtype for x in fixed], jaxpr_as_fun(closed)

        def of_all(fixed: Sequence[Array], *words: Array) -> list[Array]:
            keyed = [with_keys(x, dtype) for x, dtype in zip(fixed, fixed_dtypes, strict=True)]
            return of_keys(*keyed, *words)

        closed = jax.make_jaxpr(of_all)(_specs(fixed), *words)
    return closed, [without_keys(x) for x in fixed], trees[-1]

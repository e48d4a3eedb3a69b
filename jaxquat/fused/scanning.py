"""``jq.fused.scan``: a ``lax.scan`` as one kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import jaxpr_as_fun

from jaxquat._internal.checks import arrays, boolean, function, integer, one_of, strong
from jaxquat._internal.collection import paused
from jaxquat._internal.jaxprs import sources
from jaxquat._internal.varying import axes_of, cast, shaped
from jaxquat.fused import engine as fused


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    engine: str = "auto",
) -> tuple[Any, Any]:
    """Run ``jax.lax.scan`` as one kernel. -> (last carry, ys with a leading axis (length,)).

    The kernel has no overhead per step, and under ``jax.vmap`` it computes a vector of rows at
    once. It pays for small arrays, up to some hundred numbers, and many steps. It is differentiable
    in both modes.

    Args:
        f: ``f(carry, x) -> (carry, y)``, of pytrees of arrays.
        init: the first carry, of the shapes and dtypes that f returns. A Python number takes the
            dtype that f returns.
        xs: pytree of arrays with a leading axis (length,); None for none.
        length: the number of steps; required without ``xs``.
        reverse: whether the steps go from the last row of xs and ys to the first.
        engine: "fused" is the kernel, "scan" is ``jax.lax.scan``. "auto" uses the kernel where f
            has a scalar form and the compiler is installed, as in ``jq.rollout``.

    Raises:
        ValueError, TypeError: a bad argument, by name, or what ``jax.lax.scan`` refuses.
        NotScalarError: ``engine="fused"``, and f has no scalar form.
        ImportError: ``engine="fused"`` without its compiler.

    Examples:
        >>> advance = lambda angle, rate: (angle + 0.1 * rate, jnp.sin(angle))  # rad, rad/s
        >>> last, sines = jq.fused.scan(advance, jnp.array(0.0), jnp.ones(10))
        >>> f"{last:.2f} rad", sines.shape
        ('1.00 rad', (10,))
    """
    function("f", f)
    one_of("engine", engine, ("scan", "fused", "auto"))
    arrays("xs", xs)
    arrays("init", init)
    length = None if length is None else integer("length", length, 0)
    reverse = boolean("reverse", reverse)
    by_scan = functools.partial(lax.scan, f, init, xs, length, reverse)
    if engine == "scan":
        return by_scan()
    counts = {len(x) for x in jax.tree.leaves(xs)} | (set() if length is None else {length})
    if counts == {0}:
        return by_scan()
    traced = _traced(f, init, xs, *counts) if len(counts) == 1 else None
    count = len(jax.tree.leaves(init))
    if traced is None or traced.closed.in_avals[:count] != traced.closed.out_avals[:count]:
        # lax.scan says what is wrong, or which dtypes a Python number takes
        carry, _ = jax.eval_shape(by_scan)
        traced = _traced(f, carry, xs, *counts)
    assert traced is not None
    if not jax.tree.leaves(traced.results):  # nothing to compute
        return by_scan()
    loop = _Loop(traced, init, xs, *counts, reverse=reverse)
    if engine == "fused":
        return loop.results(strict=True)
    return fused.if_possible(functools.partial(loop.results, strict=False), by_scan)


class _Traced(NamedTuple):
    closed: Any
    structure: Any
    results: tuple[Any, Any]


@paused()
def _traced(f: Callable[..., Any], init: Any, xs: Any, steps: int) -> _Traced | None:
    """Trace f as it is; None if the carry that it returns has another structure."""
    row = jax.eval_shape(lambda xs: jax.tree.map(lambda x: x[0], xs), xs)
    closed, shape = jax.make_jaxpr(f, return_shape=True)(init, row)
    structure, is_pair = jax.tree.structure(shape), isinstance(shape, tuple) and len(shape) == 2
    if not is_pair or jax.tree.structure(shape[0]) != jax.tree.structure(init):
        return None
    carry, ys = jax.tree.unflatten(structure, closed.out_avals)
    ys = jax.tree.map(lambda x: shaped((steps, *x.shape), x.dtype, x), ys)
    return _Traced(closed, structure, (carry, ys))


class _Loop:
    """A scan as a loop of the engine: the state is the carry and the last y, the command x.

    A y that is also in the carry, or that is another y, is not computed and kept again.
    """

    sample_every = save_every = first = 1
    segment = None

    def __init__(self, traced: _Traced, init: Any, xs: Any, steps: int, reverse: bool) -> None:
        self.inputs, self.steps, self.reverse = xs, steps, reverse
        self.is_commanded = bool(jax.tree.leaves(xs))
        self.f, self.structure = jaxpr_as_fun(traced.closed), traced.structure
        carry, ys = traced.results
        init = jax.tree.map(lambda x, spec: strong(jnp.asarray(x, spec.dtype)), init, carry)
        begin, rows = jax.tree.leaves(init), jax.tree.leaves(ys)
        self.count, outputs = len(begin), sources(traced.closed)
        own = [k for k, x in enumerate(outputs) if k >= self.count and outputs.index(x) == k]
        self.kept = [*range(self.count), *own]  # outputs of f
        self.places = [self.kept.index(outputs.index(x)) for x in outputs[self.count :]]
        self.start = [*begin, *(_zeros(rows[k - self.count]) for k in own)]

    def results(self, *, strict: bool) -> tuple[Any, Any]:
        rows, _, state = fused.results_of(self, strict)
        return jax.tree.unflatten(self.structure, [*state[: self.count], *rows])

    def initial_memory(self) -> tuple[()]:
        return ()

    def command(self, k: Array, state: Any, memory: Any, x: Any) -> tuple[Any, Any]:
        return x, memory

    def step(self, k: Array, state: list[Any], x: Any = None) -> list[Any]:
        outputs = self.f(*state[: self.count], *jax.tree.leaves(x))
        return [outputs[k] for k in self.kept]

    def observe(self, k: Array, state: list[Any], x: Any = None) -> list[Any]:
        return [state[place] for place in self.places]


def _zeros(rows: Any) -> Any:
    words = jax.eval_shape(fused.without_keys, rows)
    zeros = fused.with_keys(jnp.zeros(words.shape[1:], words.dtype), rows.dtype)
    return cast(zeros, axes_of(rows))

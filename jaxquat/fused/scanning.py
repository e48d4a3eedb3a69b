"""``jq.fused.scan``: a ``lax.scan`` as one kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat._checks import arrays, function, one_of, positive_integer, strong
from jaxquat._reprs import shapes
from jaxquat._varying import axes_of, cast
from jaxquat.fused import engine as fused


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    engine: str = "auto",
) -> tuple[Any, Any]:
    """``jax.lax.scan`` as one kernel. -> (last carry, ys with a leading axis (length,)).

    The kernel has no overhead per step, and under ``jax.vmap`` it computes a vector of rows at
    once. It pays for small arrays, up to some hundred numbers, and many steps: a filter, a
    difference equation, a loop of your own over ``jq.rkmk4``. It is differentiable like
    ``jq.rollout``, in both modes.

    Args:
        f: ``f(carry, x) -> (carry, y)``, of pytrees of arrays.
        init: the first carry, of the shapes and dtypes that f returns.
        xs: pytree of arrays with a leading axis (length,); None for none.
        length: the number of steps; required without ``xs``.
        engine: "fused" is the kernel, "scan" is ``jax.lax.scan``. "auto" uses the kernel where f
            has a scalar form and the compiler is installed, as in ``jq.rollout``.

    Raises:
        ValueError, TypeError: a bad argument, by name.
        NotScalarError: ``engine="fused"``, and f has no scalar form.
        ImportError: ``engine="fused"`` without its compiler.

    Examples:
        >>> def advance(angle, rate):  # rad, rad/s
        ...     return angle + 0.1 * rate, jnp.sin(angle)
        >>> run = jax.jit(lambda rates: jq.fused.scan(advance, jnp.array(0.0), rates))
        >>> last, sines = run(jnp.ones(10))
        >>> f"{last:.2f} rad", sines.shape
        ('1.00 rad', (10,))
    """
    function("f", f)
    one_of("engine", engine, ("scan", "fused", "auto"))
    steps = _steps(arrays("xs", xs), length)
    arrays("init", init)
    by_scan = functools.partial(lax.scan, f, init, xs, steps)
    if engine == "scan":
        return by_scan()
    loop = _Loop(f, init, xs, steps)
    if engine == "fused":
        return loop.results(strict=True)
    return fused.if_possible(functools.partial(loop.results, strict=False), by_scan)


def _steps(xs: Any, length: int | None) -> int:
    """The number of steps, from the arrays and the argument ``length``."""
    sizes = {jnp.shape(x)[:1] for x in jax.tree.leaves(xs)}
    if length is not None:
        sizes.add((positive_integer("length", length),))
    if len(sizes) != 1 or sizes in ({()}, {(0,)}):
        got = f"lengths {sorted(sizes)}" if sizes else "neither xs nor length"
        raise ValueError(f"xs: wanted arrays with one axis (length,) in front, got {got}")
    return sizes.pop()[0]


class _Loop:
    """A scan with the attributes that the engine needs of a simulation.

    The state is the carry and the last y; the command is x.
    """

    sample_every = save_every = 1
    segment = None

    def __init__(
        self, f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, steps: int
    ) -> None:
        self.f, self.inputs, self.steps = jax.jit(f), xs, steps  # jit, so that f is traced once
        self.is_commanded = bool(jax.tree.leaves(xs))
        init = jax.tree.map(lambda x: strong(jnp.asarray(x)), init)
        carry, y = jax.eval_shape(self.f, init, jax.tree.map(lambda x: x[0], xs))
        if jax.tree.structure(carry) != jax.tree.structure(init) or shapes(carry) != shapes(init):
            raise TypeError(f"init: wanted what f returns, {shapes(carry)}, got {shapes(init)}")
        self.start = init, jax.tree.map(_zeros, y)

    def results(self, *, strict: bool) -> tuple[Any, Any]:
        """The last carry and the ys; ``strict`` as in ``engine.run``."""
        ys, _, (carry, _) = fused.results_of(self, strict)
        return carry, jax.tree.map(lambda x: x[1:], ys)

    def initial_memory(self) -> tuple[()]:
        """No memory."""
        return ()

    def command(self, k: Array, state: Any, memory: Any, x: Any) -> tuple[Any, Any]:
        """The command of step k is x."""
        return x, memory

    def step(self, k: Array, state: Any, x: Any = None) -> Any:
        """The carry and the y of step k."""
        return self.f(state[0], x)

    def observe(self, k: Array, state: Any, x: Any = None) -> Any:
        """The y of step k - 1."""
        return state[1]


def _zeros(spec: Any) -> Any:
    words = jax.eval_shape(fused.without_keys, spec)
    return cast(fused.with_keys(jnp.zeros(words.shape, words.dtype), spec.dtype), axes_of(spec))

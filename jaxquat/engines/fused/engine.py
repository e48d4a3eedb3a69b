"""The fused engine: a rollout as one kernel.

``trace`` makes a ``Recurrence`` of a simulation: the functions of its step, of ``save`` and of its
controller, hoisted first, so that what does not change becomes "constants". All arrays are flat:
one axis for the elements of a leaf, before it one for rows, where there are any, and one for
bodies. ``run`` gives them to the primitive ``value``, whose batches and programs are in
``primitives`` and whose derivatives are in ``derivatives``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._varying import axes_of, cast, shaped
from jaxquat.engines.fused import cpu, derivatives, primitives, selfcheck
from jaxquat.engines.fused.by_interval import ByInterval
from jaxquat.engines.fused.recurrence import Recurrence
from jaxquat.engines.fused.targets import nvptx
from jaxquat.engines.fused.trace.hoisting import hoist, shared
from jaxquat.engines.fused.trace.values import LARGEST
from jaxquat.simulation.path import Path
from jaxquat.simulation.simulation import Simulation

MULTIPLICATIONS = {"value": 12_000, "derivative": 20_000}
"""Up to so many in the matrix products of a step, the kernel is faster than XLA."""


def run(simulation: Simulation, strict: bool = True) -> Path:
    """Simulate in one kernel.

    For the backward pass it keeps a state every ``simulation.segment`` steps; None leaves it to
    ``Recurrence.kept_every``. With ``strict=False`` a derivative without a scalar form is computed
    by ``lax.scan``, and matrix products that are faster in XLA are an error.

    Raises:
        NotScalarError: the step, ``save`` or the controller has no scalar form; or, if ``strict``,
            a derivative that is asked for.
        NotImplementedError: the kernel has more arrays than a GPU allows; or, if not ``strict``,
            the matrix products are large.
        ImportError: the compiler is not there.
    """
    lacking = missing()
    if lacking:
        raise ImportError(lacking)
    recurrence, operands, (saved, state, memory) = trace(simulation, strict)
    primitives.checked_loop(recurrence, "forward")  # an error is one of this call
    keys = primitives.start(recurrence)
    shapes = [primitives.shape_of(recurrence, key).shape for key in keys]
    x = {k: a.reshape(shape) for k, a, shape in zip(keys, operands, shapes, strict=True)}
    y = iter(derivatives.value(x, dict.fromkeys(keys, False), recurrence, None).values())
    rows, final = _shaped(y, saved, 1), _shaped(y, state, 0)
    return simulation.path(rows, _shaped(y, memory, 0), final)


def _shaped(results: Iterator[Array], spec: Any, leading: int) -> Any:
    """The next results as a pytree of these shapes and dtypes, after ``leading`` axes."""
    leaves, structure = jax.tree.flatten(spec)
    arrays = []
    for leaf in leaves:
        x, shape = next(results), jax.eval_shape(_raw, leaf).shape
        arrays.append(_keyed(x.reshape(*x.shape[:leading], *shape), leaf.dtype))
    return jax.tree.unflatten(structure, arrays)


def missing() -> str | None:
    """Why there are no fused kernels on the default platform, as an error message, or None."""
    platform = jax.default_backend()
    if platform == "cpu":
        return cpu.missing()
    if platform in ("gpu", "cuda"):
        return nvptx.missing() or selfcheck.objection()
    return f'engine "fused" has no kernels for {platform}; use engine="scan"'


def trace(simulation: Simulation, strict: bool = True) -> tuple[Recurrence, list[Array], Any]:
    """The recurrence of a simulation, what it is given, and the trees of what it gives.

    The trees are shapes and dtypes of what is saved, of state and of memory.
    """
    # Here times vary as the state does: the cotangents of operands are summed over devices outside.
    times = simulation.t0, simulation.dt, simulation.intervals
    t0, dt, intervals = cast(times, axes_of(simulation.start))
    torque = shared(simulation.torque)
    simulation = dataclasses.replace(simulation, torque=torque, t0=t0, dt=dt, intervals=intervals)
    if simulation.intervals is not None:
        return _traced(ByInterval(simulation), strict)
    return _traced(simulation, strict)


def _traced(
    simulation: Simulation | ByInterval, strict: bool
) -> tuple[Recurrence, list[Array], Any]:
    """``trace`` of a simulation of which a step has its time from its number, or its command."""
    start, inputs, memory = simulation.start, simulation.inputs, simulation.initial_memory()
    sampled = simulation.is_commanded
    number = shaped((), jnp.int32, start.q)
    state_spec, memory_spec = (jax.eval_shape(lambda x: x, tree) for tree in (start, memory))
    input_spec = jax.eval_shape(lambda tree: jax.tree.map(lambda x: x[0], tree), inputs)
    command_spec: Any = ()
    sample_rest, sample_fixed, in_sample = None, [], 0
    if sampled:
        update = simulation.command
        command_spec, _ = jax.eval_shape(update, number, state_spec, memory_spec, input_spec)
        sample_rest, sample_fixed, in_sample = _hoisted(
            update, number, state_spec, memory_spec, input_spec
        )
    step_rest, step_fixed, in_step = _hoisted(simulation.step, number, state_spec, command_spec)
    save_rest, save_fixed, in_row = _hoisted(simulation.observe, number, state_spec, command_spec)
    in_all = in_step + in_sample / simulation.sample_every + in_row / simulation.save_every
    saved_spec = jax.eval_shape(simulation.observe, number, state_spec, command_spec)
    constants = [_raw(x) for x in (*step_fixed, *save_fixed, *sample_fixed)]
    if not strict:
        _refuse_large_products(in_all, max((x.size for x in constants), default=0))
    n, m = len(step_fixed), len(step_fixed) + len(save_fixed)

    def of_constants(rest: Any, first: int, end: int | None) -> Callable[..., list[Array]]:
        """The hoisted function of all constants, of which its own are those from ``first`` on."""

        def function(constants: Sequence[Array], k: Array, *leaves: Sequence[Array]) -> list[Array]:
            return rest(constants[first:end], k, *(x for group in leaves for x in group))

        return function

    recurrence = Recurrence(
        specs={
            "constants": _specs(constants), "inputs": _specs(input_spec),
            "state": _specs(state_spec), "memory": _specs(memory_spec),
            "command": _specs(command_spec), "saved": _specs(saved_spec),
        },
        step=of_constants(step_rest, 0, n),
        save=of_constants(save_rest, n, m),
        sample=of_constants(sample_rest, m, None) if sampled else None,
        steps=simulation.steps,
        sample_every=simulation.sample_every if sampled else simulation.steps,
        save_every=simulation.save_every,
        segment=simulation.segment,
        strict=strict,
        value_by_scan=not strict and in_all > MULTIPLICATIONS["value"],
    )  # fmt: skip
    operands = [*constants, *(_raw(x) for x in jax.tree.leaves((inputs, start, memory)))]
    return recurrence, operands, (saved_spec, state_spec, memory_spec)


def _refuse_large_products(multiplications: float, largest: int) -> None:
    """NotImplementedError if XLA multiplies faster; ``largest`` is the size of an array."""
    most, text = MULTIPLICATIONS["derivative"], f"{multiplications:.0f} multiplications in the"
    if multiplications > most:
        text = f"{text} matrix products of a step; from {most} on XLA is faster"
        raise NotImplementedError(text)
    if multiplications >= largest > LARGEST:
        text = f"{text} matrix products of a step, by an array of {largest} numbers, of which the"
        raise NotImplementedError(f"{text} kernel has no derivative beyond {LARGEST}")


def _specs(tree: Any) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Shapes and dtypes of the leaves, keys as their words."""
    return tuple(jax.eval_shape(_raw, leaf) for leaf in jax.tree.leaves(tree))


def _is_key(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _raw(x: Any) -> Array:
    """An array; keys as their words."""
    x = jnp.asarray(x)
    return jax.random.key_data(x) if _is_key(x.dtype) else x


def _keyed(x: Array, dtype: Any) -> Any:
    """The inverse of ``_raw``: keys of their words, if ``dtype`` is that of keys."""
    return jax.random.wrap_key_data(x, impl=dtype._impl) if _is_key(dtype) else x


def _hoisted(
    function: Callable[..., Any], *arguments: Any
) -> tuple[Callable[..., list[Array]], list[Any], int]:
    """``hoist`` of a function; keys among its arguments and results are their words."""
    leaves, structure = jax.tree.flatten(arguments)
    dtypes = [leaf.dtype for leaf in leaves]

    def of_words(*words: Array) -> list[Array]:
        keyed = [_keyed(x, dtype) for x, dtype in zip(words, dtypes, strict=True)]
        results = function(*jax.tree.unflatten(structure, keyed))
        return [_raw(x) for x in jax.tree.leaves(results)]

    rest, fixed, multiplications = hoist(of_words, *(jax.eval_shape(_raw, leaf) for leaf in leaves))
    fixed_dtypes = [x.dtype for x in fixed]  # JAX's caches keep ``rest_of_words``: no tracers in it

    def rest_of_words(words: Sequence[Array], *leaves: Array) -> list[Array]:
        keyed = [_keyed(x, dtype) for x, dtype in zip(words, fixed_dtypes, strict=True)]
        return rest(keyed, *leaves)

    return rest_of_words, fixed, multiplications

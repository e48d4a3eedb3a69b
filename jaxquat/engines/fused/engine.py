"""The fused engine: a rollout as one kernel, with a derivative of its own in reverse mode.

``trace`` makes scalar programs of the step, of ``save`` and of the controller (hoisted first, so
what does not change becomes "constants"), and a ``Loop`` of them. ``_solve`` makes a function with
a custom derivative of the loop. All arrays are flat: one axis for the elements of a leaf, before it
one for rows, where there are any, and one for bodies.

The derivative in reverse mode is a kernel of its own. Forward, the kernel "keeping" also keeps
state, memory and command every ``segment`` steps. Backward, the kernel "backward" gets these and
the cotangents of all results. Its programs are the pullbacks of the step, of ``save`` and of the
sample (``_pullback``). If one of them has no scalar form, and the caller admits it (``scan_back``),
the derivative is that of the same loop by ``lax.scan``.

The kernel is one JAX primitive, ``fused_rollout``: it batches by one more axis of bodies, and is
lowered to ``cpu.call`` or ``gpu.call``. A second primitive, through which its arguments go, has the
derivative in forward mode, which is an error that names the way out.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import ShapedArray, Tracer
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jaxquat.dynamics.state import State
from jaxquat.engines.checkpointing import scan
from jaxquat.engines.fused import cpu, loading
from jaxquat.engines.fused.invariants import hoist, shared
from jaxquat.engines.fused.kernel import Leaf, Loop
from jaxquat.engines.fused.scalarize import scalarize
from jaxquat.simulation.path import Path
from jaxquat.simulation.simulation import Simulation

FORWARD_MODE = (
    'engine "fused", which "auto" chooses where it can, has a derivative in reverse mode only; '
    'use engine="scan" for forward mode'
)


def run(simulation: Simulation, scan_back: bool = False) -> Path:
    """Simulate in one kernel.

    For the backward pass it keeps a state every ``simulation.segment`` steps; None is the root of
    the number of steps.

    Raises:
        NotScalarError: the step, ``save`` or the controller has no scalar form; or a derivative is
            asked for and it has none. With ``scan_back`` the derivative is that of a scan then.
        ImportError: the compiler is not there.
    """
    lacking = missing()
    if lacking:
        raise ImportError(lacking)
    rows, memory, final = _solve(trace(simulation), scan_back)
    return simulation.path(rows, memory, final)


def missing() -> str | None:
    """Why there are no fused kernels on the default platform, as an error message, or None."""
    platform = jax.default_backend()
    if platform == "cpu":
        return cpu.missing()
    if platform in ("gpu", "cuda"):
        return None
    return f'engine "fused" has no kernels for {platform}; use engine="scan"'


class Traced(NamedTuple):
    """A loop, its operands, and its derivative.

    Attributes:
        loop: without the programs of the derivative.
        operands: constants, inputs, start, memory.
        trees: shapes and dtypes of what is saved, of state, memory and command.
        differentiated: ``differentiated(live)`` is the loop with the programs of its derivative;
            ``live``: numbers of the saved leaves whose cotangent is not zero, by default all.
        scanned: ``scanned(operands)`` are the results of the kernel, by ``lax.scan``.
    """

    loop: Loop
    operands: list[Array]
    trees: Any
    differentiated: Callable[..., Loop]
    scanned: Callable[[Sequence[Array]], list[Array]]


def trace(simulation: Simulation) -> Traced:
    """The loop of a simulation, with its scalar programs."""
    arrays = simulation.start, simulation.inputs, simulation.body, simulation.params
    tracers = [x for x in jax.tree.leaves(arrays) if isinstance(x, Tracer)]
    if any(map(_differs_by_device, tracers)):
        raise NotImplementedError('engine "fused" within jax.shard_map wants check_vma=False there')
    simulation = dataclasses.replace(simulation, torque=shared(simulation.torque))
    start, inputs, memory = simulation.start, simulation.inputs, simulation.initial_memory()
    sampled = simulation.is_commanded
    sample_every = simulation.sample_every if sampled else simulation.steps
    number = jax.ShapeDtypeStruct((), jnp.int32)
    state_spec, memory_spec = (jax.eval_shape(lambda x: x, tree) for tree in (start, memory))
    input_spec = jax.eval_shape(lambda tree: jax.tree.map(lambda x: x[0], tree), inputs)
    command_spec: Any = ()
    sample_rest, sample_fixed = None, []
    if sampled:
        update = simulation.command
        command_spec, _ = jax.eval_shape(update, number, state_spec, memory_spec, input_spec)
        sample_rest, sample_fixed = _hoisted(update, number, state_spec, memory_spec, input_spec)
    step_rest, step_fixed = _hoisted(simulation.step, number, state_spec, command_spec)
    save_rest, save_fixed = _hoisted(simulation.observe, number, state_spec, command_spec)
    saved_spec = jax.eval_shape(simulation.observe, number, state_spec, command_spec)
    fixed = [_raw(x) for x in (*step_fixed, *save_fixed, *sample_fixed)]
    specs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in fixed]
    groups = {
        "constants": specs, "inputs": _specs(input_spec), "state": _specs(state_spec),
        "memory": _specs(memory_spec), "command": _specs(command_spec),
        "saved": _specs(saved_spec),
    }  # fmt: skip
    n, m = len(step_fixed), len(step_fixed) + len(save_fixed)

    def of_constants(rest: Any, first: int, end: int | None) -> Callable[..., list[Array]]:
        """The hoisted function of all constants, of which its own are those from ``first`` on."""

        def function(constants: Sequence[Array], k: Array, *leaves: Sequence[Array]) -> list[Array]:
            return rest(constants[first:end], k, *(x for group in leaves for x in group))

        return function

    forward, forward_save = of_constants(step_rest, 0, n), of_constants(save_rest, n, m)
    forward_sample = of_constants(sample_rest, m, None)
    of_step = (groups["state"], groups["command"])
    of_sample = (groups["state"], groups["memory"], groups["inputs"])
    leaf = lambda spec: Leaf(np.dtype(spec.dtype), math.prod(spec.shape))  # noqa: E731
    loop = Loop(
        **{name: tuple(map(leaf, leaves)) for name, leaves in groups.items()},
        step=scalarize(forward, specs, number, *of_step),
        save=scalarize(forward_save, specs, number, *of_step),
        sample=scalarize(forward_sample, specs, number, *of_sample) if sampled else None,
        step_back=None,
        save_back=None,
        sample_back=None,
        steps=simulation.steps,
        sample_every=sample_every,
        save_every=simulation.save_every,
        segment=simulation.segment or math.isqrt(simulation.steps - 1) + 1,
    )

    every = tuple(range(len(loop.saved)))

    @functools.cache
    def differentiated(live: tuple[int, ...] = every) -> Loop:
        """The loop with its derivative, in which leaves that are not live are not saved.

        Their cotangent is 0, and 0 times an infinite slope would be NaN.
        """

        def forward_live(*arguments: Any) -> list[Array]:
            saved = forward_save(*arguments)
            return [saved[i] for i in live]

        cotangents = _smooth([groups["saved"][i] for i in live])
        save_back = scalarize(_pullback(forward_live), specs, number, *of_step, cotangents)
        if live != every:
            saved = tuple(loop.saved[i] for i in live)
            return differentiated()._replace(saved=saved, save_back=save_back)
        cotangents = _smooth(groups["state"])
        step_back = scalarize(_pullback(forward), specs, number, *of_step, cotangents)
        back = loop._replace(step_back=step_back, save_back=save_back)
        if not sampled:
            return back
        cotangents = _smooth([*groups["command"], *groups["memory"]])
        sample_back = scalarize(_pullback(forward_sample), specs, number, *of_sample, cotangents)
        return back._replace(sample_back=sample_back)

    operands = [*fixed, *(_raw(x) for x in jax.tree.leaves((inputs, start, memory)))]
    functions = forward, forward_save, forward_sample if sampled else None
    scanned = functools.partial(_scanned, loop, groups, *functions)
    trees = saved_spec, state_spec, memory_spec, command_spec
    return Traced(loop, operands, trees, differentiated, scanned)


def _scanned(
    loop: Loop,
    specs: dict[str, list[Any]],
    step: Callable[..., Any],
    save: Callable[..., Any],
    sample: Any,
    operands: Sequence[Array],
) -> list[Array]:
    """The results of the kernel, by ``lax.scan``: for a derivative that has no scalar form.

    A scan over the rows, and in it one over the steps of a row.
    """
    ends = np.cumsum([len(specs[name]) for name in ("constants", "inputs", "state")])
    constants, inputs, state, memory = (
        [*operands[i:j]] for i, j in zip([0, *ends], [*ends, None], strict=True)
    )

    def command_from(k: Array, state: Any, memory: Any, command: Any) -> tuple[Any, Any]:
        """Command and memory from step k on."""
        if sample is None:
            return command, memory

        def anew() -> tuple[Any, Any]:
            values = [x[k // loop.sample_every] for x in inputs]
            results = sample(constants, k, state, memory, values)
            return results[: len(command)], results[len(command) :]

        return jax.lax.cond(k % loop.sample_every == 0, anew, lambda: (command, memory))

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def one(carry: Any, _: None) -> tuple[Any, None]:
        k, state, memory, command = carry
        command, memory = command_from(k, state, memory, command)
        return (k + 1, step(constants, k, state, command), memory, command), None

    segment = math.isqrt(loop.save_every - 1) + 1

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def row(carry: Any, _: None) -> tuple[Any, Any]:
        k, state, memory, command = carry
        saved = save(constants, k, state, command_from(k, state, memory, command)[0])
        return scan(one, carry, None, loop.save_every, segment)[0], saved

    command = [jnp.zeros(x.shape, x.dtype) for x in specs["command"]]
    carry, rows = scan(row, (jnp.int32(0), state, memory, command), None, loop.rows, None)
    k, state, memory, command = carry
    last = save(constants, k, state, command)
    rows = [jnp.concatenate([x, y[None]]) for x, y in zip(rows, last, strict=True)]
    rows = [x.reshape(loop.rows + 1, -1) for x in rows]
    return [*rows, *(x.reshape(-1) for x in (*state, *memory, *command))]


def _differs_by_device(x: Any) -> bool:
    """Whether ``jax.shard_map`` records that an array differs from device to device."""
    kind = jax.typeof(x)
    varying = getattr(getattr(kind, "manual_axis_type", kind), "varying", None)
    return bool(varying or getattr(kind, "vma", None))


def _specs(tree: Any) -> list[jax.ShapeDtypeStruct]:
    """Shapes and dtypes of the leaves, keys as their words."""
    return [jax.eval_shape(_raw, leaf) for leaf in jax.tree.leaves(tree)]


def _smooth(leaves: Sequence[Any]) -> list[Any]:
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _raw(x: Any) -> Array:
    """An array; keys as their words."""
    x = jnp.asarray(x)
    return jax.random.key_data(x) if _is_key(x) else x


def _keyed(x: Array, like: Any) -> Any:
    """The inverse of ``_raw``: keys of their words, if ``like`` is keys."""
    return jax.random.wrap_key_data(x, impl=like.dtype._impl) if _is_key(like) else x


def _hoisted(
    function: Callable[..., Any], *arguments: Any
) -> tuple[Callable[..., list[Array]], list[Any]]:
    """``hoist`` of a function; keys among its arguments and results are their words."""
    leaves, structure = jax.tree.flatten(arguments)

    def of_words(*words: Array) -> list[Array]:
        keyed = [_keyed(x, like) for x, like in zip(words, leaves, strict=True)]
        results = function(*jax.tree.unflatten(structure, keyed))
        return [_raw(x) for x in jax.tree.leaves(results)]

    rest, fixed = hoist(of_words, *(jax.eval_shape(_raw, leaf) for leaf in leaves))

    def rest_of_words(words: Sequence[Array], *leaves: Array) -> list[Array]:
        keyed = [_keyed(x, like) for x, like in zip(words, fixed, strict=True)]
        return rest(keyed, *leaves)

    return rest_of_words, fixed


def _pullback(function: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
    """The derivative of ``function(constants, k, *groups)`` in reverse mode.

    ``back(constants, k, *groups, cotangents)`` are the cotangents of the smooth leaves of constants
    and groups, in order; ``cotangents`` are those of the smooth results.
    """

    def back(constants: Any, k: Any, *arguments: Any) -> list[Array]:
        *groups, cotangents = arguments
        leaves, structure = jax.tree.flatten((constants, *groups))
        places = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]

        def of_smooth(smooth: list[Array]) -> list[Array]:
            merged = list(leaves)
            for place, leaf in zip(places, smooth, strict=True):
                merged[place] = leaf
            constants, *groups = jax.tree.unflatten(structure, merged)
            return _smooth(function(constants, k, *groups))

        smooth = [leaves[i] for i in places]
        like = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in smooth]
        push = lambda tangents: jax.jvp(of_smooth, (smooth,), (tangents,))[1]  # noqa: E731
        # the same as jax.vjp, in two thirds of its time
        return jax.linear_transpose(push, like)(list(cotangents))[0]

    return back


def _solve(traced: Traced, scan_back: bool) -> tuple[Any, Any, State]:
    """The observations of all rows, the memory and the state at the end, with their derivative.

    ``solve`` is the kernel as a function of its smooth operands (``chosen``) and the others
    (``fixed``); ``keep`` and ``back`` are the two halves of its derivative.
    """
    loop, operands, trees, differentiated, scanned = traced
    flat = [x.reshape(*x.shape[: _leading(loop, k)], -1) for k, x in enumerate(operands)]
    smooth = [k for k, x in enumerate(flat) if jnp.issubdtype(x.dtype, jnp.floating)]

    def merged(chosen: Sequence[Array], fixed: Sequence[Array]) -> list[Array]:
        one, two = iter(chosen), iter(fixed)
        return [next(one) if k in smooth else next(two) for k in range(len(flat))]

    @jax.custom_vjp
    def solve(chosen: list[Array], fixed: list[Array]) -> list[Array]:
        return _bind(loop, "forward", merged(chosen, fixed))

    def keep(chosen: Any, fixed: Any) -> tuple[list[Array], Any]:
        chosen, fixed = ([x.value for x in group] for group in (chosen, fixed))
        if scan_back and not has_derivative(differentiated):
            return solve(chosen, fixed), (chosen, fixed, None)
        results = _bind(loop, "keeping", merged(chosen, fixed))
        count = len(loop.results("forward"))
        last, kept = results[count - len(loop.last()) : count], results[count:]
        return results[:count], (chosen, fixed, [*kept, *last])

    def back(residual: Any, cotangents: list[Any]) -> tuple[list[Array], None]:
        chosen, fixed, kept = residual
        live = tuple(i for i, x in enumerate(cotangents) if not isinstance(x, SymbolicZero))
        if kept is None:

            def live_results(chosen: list[Array]) -> list[Array]:
                pairs = zip(merged(chosen, fixed), operands, strict=True)
                results = scanned([x.reshape(like.shape) for x, like in pairs])
                return [results[i] for i in live]

            return jax.vjp(live_results, chosen)[1]([cotangents[i] for i in live])[0], None
        first = len(loop.constants) + len(loop.inputs)
        derivative = differentiated(tuple(i for i in live if i < len(loop.saved)))
        numbers = []
        for i, (x, (leaf, _)) in enumerate(zip(cotangents, loop.results("forward"), strict=True)):
            if leaf.smooth and (i in live or i >= len(loop.saved)):
                numbers.append(x if i in live else jnp.zeros(x.shape, x.dtype))
        inputs = [*merged(chosen, fixed)[:first], *kept, *numbers]
        gradients: list[Any] = _bind(derivative, "backward", inputs)
        for place, unused in enumerate(_unused_constants(derivative)):
            if unused:  # not 0, which an infinite slope of what made the constant would make NaN
                gradients[place] = None
        return gradients, None

    solve.defvjp(keep, back, symbolic_zeros=True)
    chosen = _guard([flat[k] for k in smooth])
    results = iter(solve(chosen, [x for k, x in enumerate(flat) if k not in smooth]))

    def shaped(spec: Any, leading: int) -> Any:
        """The next results as a pytree of these shapes and dtypes, after ``leading`` axes."""
        leaves, structure = jax.tree.flatten(spec)
        arrays = []
        for leaf in leaves:
            x, shape = next(results), jax.eval_shape(_raw, leaf).shape
            arrays.append(_keyed(x.reshape(*x.shape[:leading], *shape), leaf))
        return jax.tree.unflatten(structure, arrays)

    saved, state, memory, _ = trees
    rows, final = shaped(saved, 1), shaped(state, 0)
    return rows, shaped(memory, 0), final


def _unused_constants(derivative: Loop) -> list[bool]:
    """For each smooth constant whether its cotangent is 0 whatever the values are."""
    zeros = []
    for program in (derivative.step_back, derivative.save_back, derivative.sample_back):
        if program is not None:
            literals = [op.number if op.name == "const" else None for op in program.ops]
            known = [None] * len(program.inputs) + literals
            outputs = [known[value] for value in program.outputs]
            zeros.append([number is not None and number == 0 for number in outputs])
    unused, first = [], 0
    for leaf in derivative.constants:
        if leaf.smooth:
            unused.append(all(all(row[first : first + leaf.size]) for row in zeros))
            first += leaf.size
    return unused


def has_derivative(differentiated: Callable[[], Loop]) -> bool:
    """Whether the derivative has a scalar form."""
    try:
        differentiated()
    except Exception:  # of any primitive, in any rule of its derivative
        return False
    return True


def _leading(loop: Loop, number: int) -> int:
    """How many axes an operand has before those of its leaf."""
    return 0 if loop.operands("forward")[number][1] is None else 1


# the kernel as a primitive, for jit, vmap and the choice of the platform

_kernel = Primitive("fused_rollout")
_kernel.multiple_results = True


def _bind(loop: Loop, kind: str, operands: Sequence[Array]) -> list[Array]:
    return _kernel.bind(
        *operands, loop=loop, kind=kind, bodies=None, batched=(False,) * len(operands)
    )


@_kernel.def_abstract_eval
def _shapes(
    *operands: Any, loop: Loop, kind: str, bodies: int | None, batched: tuple[bool, ...]
) -> list[Any]:
    return _shapes_of(loop, kind, bodies)


def _shapes_of(loop: Loop, kind: str, bodies: int | None) -> list[Any]:
    first = () if bodies is None else (bodies,)
    return [
        ShapedArray((*first, *(() if rows is None else (rows,)), leaf.size), leaf.dtype)
        for leaf, rows in loop.results(kind)
    ]


@functools.lru_cache(maxsize=loading.KEPT)
def _compiled(**params: Any) -> Callable[..., list[Array]]:
    return jax.jit(functools.partial(_kernel.bind, **params))


@_kernel.def_impl
def _computed(*operands: Array, **params: Any) -> list[Array]:
    with jax.disable_jit(False):
        return _compiled(**params)(*operands)


def _batch(
    operands: Sequence[Array],
    axes: Sequence[int | None],
    *,
    loop: Loop,
    kind: str,
    bodies: int | None,
    batched: tuple[bool, ...],
) -> tuple[list[Array], list[int]]:
    """The rule of vmap: one more axis of bodies, which is merged with that of the kernel."""
    count = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    inner = 1 if bodies is None else bodies
    arrays, flags = [], []
    for x, axis, old in zip(operands, axes, batched, strict=True):
        flags.append(old or axis is not None)
        x = x if axis is None else jnp.moveaxis(x, axis, 0)
        if flags[-1] and bodies is not None:
            shape = x.shape[(axis is not None) + old :]
            x = x if axis is not None else x[None]
            x = x if old else x[:, None]
            x = jnp.broadcast_to(x, (count, inner, *shape)).reshape(count * inner, *shape)
        arrays.append(x)
    params = {"loop": loop, "kind": kind, "bodies": count * inner, "batched": tuple(flags)}
    results = _kernel.bind(*arrays, **params)
    if bodies is not None:
        results = [x.reshape(count, inner, *x.shape[1:]) for x in results]
    return results, [0] * len(results)


batching.primitive_batchers[_kernel] = _batch


def _on_cpu(*operands: Array, **params: Any) -> list[Array]:
    return _of_bodies(cpu.call, operands, **params)


def _on_gpu(*operands: Array, **params: Any) -> list[Array]:
    from jaxquat.engines.fused import gpu

    return _of_bodies(gpu.call, operands, **params)


def _of_bodies(
    call: Callable[..., list[Array]], operands: Sequence[Array], bodies: int | None, **params: Any
) -> list[Array]:
    """A call of the kernel; one body has no axis (``bodies`` is None), zero bodies no kernel."""
    if bodies == 0:
        shapes = _shapes_of(params["loop"], params["kind"], bodies)
        return [jnp.zeros(shape.shape, shape.dtype) for shape in shapes]
    results = call(operands=operands, bodies=bodies or 1, **params)
    return results if bodies else [x[0] for x in results]


def _lowering(function: Callable[..., list[Array]]) -> Callable[..., Any]:
    lower = mlir.lower_fun(function, multiple_results=True)

    def rule(context: Any, *operands: Any, **params: Any) -> Any:
        if context.module_context.lowering_parameters.for_export:
            raise NotImplementedError(
                'engine "fused" compiles for this machine alone; use engine="scan" with jax.export'
            )
        return lower(context, *operands, **params)

    return rule


mlir.register_lowering(_kernel, _lowering(_on_cpu), platform="cpu")
mlir.register_lowering(_kernel, _lowering(_on_gpu), platform="cuda")


# The smooth operands go through a primitive that is the identity. In forward mode its tangents go
# through a second one, which only reverse mode removes, by transposing; otherwise it is an error.

_guarded, _guarded_tangent = Primitive("fused_rollout_argument"), Primitive("fused_rollout_tangent")


def _guard(leaves: Sequence[Array]) -> list[Array]:
    """The same arrays, whose derivative in forward mode is the error FORWARD_MODE."""
    return [_guarded.bind(x) for x in leaves]


def _refuse(*_: Any, **__: Any) -> Any:
    raise NotImplementedError(FORWARD_MODE)


_guarded.def_impl(lambda x: x)
_guarded.def_abstract_eval(lambda x: x)
mlir.register_lowering(_guarded, lambda _, x: [x])
batching.defvectorized(_guarded)
ad.primitive_jvps[_guarded] = lambda primals, tangents: (
    _guarded.bind(*primals),
    tangents[0] if type(tangents[0]) is ad.Zero else _guarded_tangent.bind(*tangents),
)
_guarded_tangent.def_impl(_refuse)
_guarded_tangent.def_abstract_eval(lambda x: x)
mlir.register_lowering(_guarded_tangent, _refuse)
batching.primitive_batchers[_guarded_tangent] = _refuse
ad.deflinear2(_guarded_tangent, lambda cotangent, _: [cotangent])

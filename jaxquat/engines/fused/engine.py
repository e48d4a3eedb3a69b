"""The fused engine: a rollout as one kernel, with a derivative of its own in reverse mode."""

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

FORWARD_MODE = 'engine "fused", which "auto" chooses where it can, has a derivative in reverse mode only; use engine="scan" for forward mode'


def run(simulation: Simulation, scan_back: bool = False) -> Path:
    """Simulate in one kernel, which keeps a state every ``segment`` steps for the backward pass.

    Without ``segment`` that is every root of the number of steps.

    Raises:
        NotScalarError: the step, what is saved or the controller has no scalar form, or its
            derivative has none where one is asked for; with ``scan_back`` the derivative is that of
            a scan then.
        ImportError: the compiler is not there.
    """
    lacking = missing()
    if lacking:
        raise ImportError(lacking)
    rows, memory, final = _solve(trace(simulation), scan_back)
    return simulation.path(rows, memory, final)


def missing() -> str | None:
    """What the engine lacks on the default platform, or None."""
    platform = jax.default_backend()
    if platform == "cpu":
        return cpu.missing()
    return (
        None
        if platform in ("gpu", "cuda")
        else f'engine "fused" has no kernels for {platform}; use engine="scan"'
    )


class Traced(NamedTuple):
    """A loop, what goes into it, and how to differentiate it."""

    loop: Loop
    operands: list[Array]  # constants, inputs, start, memory
    trees: Any  # of what is saved, state, memory, held
    differentiated: Callable[
        ..., Loop
    ]  # of which saved leaves the cotangent is not 0, by default of all
    scanned: Callable[
        [Sequence[Array]], list[Array]
    ]  # the results for the operands, by ``lax.scan``


def trace(simulation: Simulation) -> Traced:
    """The scalar programs of a simulation."""
    known = simulation.start, simulation.inputs, simulation.body, simulation.params
    tracers = [x for x in jax.tree.leaves(known) if isinstance(x, Tracer)]
    if any(map(_differs_by_device, tracers)):
        raise NotImplementedError('engine "fused" within jax.shard_map wants check_vma=False there')
    simulation = dataclasses.replace(simulation, torque=shared(simulation.torque))
    start, inputs, memory = simulation.start, simulation.inputs, simulation.initial_memory()
    sampled = simulation.is_commanded
    sample_every = simulation.sample_every if sampled else simulation.steps
    number = jax.ShapeDtypeStruct((), jnp.int32)
    state_spec, memory_spec = (jax.eval_shape(lambda x: x, tree) for tree in (start, memory))
    input_spec = jax.eval_shape(lambda tree: jax.tree.map(lambda x: x[0], tree), inputs)
    held_spec: Any = ()
    sample_rest, sample_fixed = None, []
    if sampled:
        update = simulation.command
        held_spec, _ = jax.eval_shape(update, number, state_spec, memory_spec, input_spec)
        sample_rest, sample_fixed = _hoisted(update, number, state_spec, memory_spec, input_spec)
    step_rest, step_fixed = _hoisted(simulation.step, number, state_spec, held_spec)
    keep = simulation.observe
    save_rest, save_fixed = _hoisted(keep, number, state_spec, held_spec)
    saved_spec = jax.eval_shape(keep, number, state_spec, held_spec)
    fixed = [_raw(x) for x in (*step_fixed, *save_fixed, *sample_fixed)]
    specs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in fixed]
    groups = {
        "constants": specs, "inputs": _specs(input_spec), "state": _specs(state_spec), "memory": _specs(memory_spec),
        "held": _specs(held_spec), "saved": _specs(saved_spec),
    }  # fmt: skip
    n, m = len(step_fixed), len(step_fixed) + len(save_fixed)

    def of_constants(rest: Any, first: int, end: int | None) -> Callable[..., list[Array]]:
        def function(constants: Sequence[Array], k: Array, *leaves: Sequence[Array]) -> list[Array]:
            return rest(constants[first:end], k, *(x for group in leaves for x in group))

        return function

    forward, forward_save = of_constants(step_rest, 0, n), of_constants(save_rest, n, m)
    forward_sample = of_constants(sample_rest, m, None)
    of_step = (groups["state"], groups["held"])
    of_sample = (groups["state"], groups["memory"], groups["inputs"])
    loop = Loop(
        **{
            name: tuple(Leaf(np.dtype(s.dtype), math.prod(s.shape)) for s in leaves)
            for name, leaves in groups.items()
        },
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
        """Leaves that are not live are as if they were not saved: 0 times an infinite slope is NaN."""

        def forward_live(*given: Any) -> list[Array]:
            saved = forward_save(*given)
            return [saved[i] for i in live]

        cotangents = _smooth([groups["saved"][i] for i in live])
        save_back = scalarize(_pullback(forward_live), specs, number, *of_step, cotangents)
        if live != every:
            return differentiated()._replace(
                saved=tuple(loop.saved[i] for i in live), save_back=save_back
            )
        back = loop._replace(
            step_back=scalarize(
                _pullback(forward), specs, number, *of_step, _smooth(groups["state"])
            ),
            save_back=save_back,
        )
        if not sampled:
            return back
        cotangents = _smooth([*groups["held"], *groups["memory"]])
        return back._replace(
            sample_back=scalarize(_pullback(forward_sample), specs, number, *of_sample, cotangents)
        )

    leaves = [*fixed, *(_raw(x) for x in jax.tree.leaves((inputs, start, memory)))]
    scanned = functools.partial(
        _scanned, loop, groups, forward, forward_save, forward_sample if sampled else None
    )
    return Traced(
        loop, leaves, (saved_spec, state_spec, memory_spec, held_spec), differentiated, scanned
    )


def _scanned(
    loop: Loop,
    specs: dict[str, list[Any]],
    step: Callable[..., Any],
    save: Callable[..., Any],
    sample: Any,
    operands: Sequence[Array],
) -> list[Array]:
    """What the kernel gives, by ``lax.scan`` over the rows and the steps of each: for a derivative that has no scalar form."""
    ends = np.cumsum([len(specs[name]) for name in ("constants", "inputs", "state")])
    constants, inputs, state, memory = (
        [*operands[i:j]] for i, j in zip([0, *ends], [*ends, None], strict=True)
    )

    def held_from(k: Array, state: Any, memory: Any, held: Any) -> tuple[Any, Any]:
        """Command and memory from step k on."""
        if sample is None:
            return held, memory

        def anew() -> tuple[Any, Any]:
            found = sample(constants, k, state, memory, [x[k // loop.sample_every] for x in inputs])
            return found[: len(held)], found[len(held) :]

        return jax.lax.cond(k % loop.sample_every == 0, anew, lambda: (held, memory))

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def one(carry: Any, _: None) -> tuple[Any, None]:
        k, state, memory, held = carry
        held, memory = held_from(k, state, memory, held)
        return (k + 1, step(constants, k, state, held), memory, held), None

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def row(carry: Any, _: None) -> tuple[Any, Any]:
        k, state, memory, held = carry
        saved = save(constants, k, state, held_from(k, state, memory, held)[0])
        return scan(one, carry, None, loop.save_every, math.isqrt(loop.save_every - 1) + 1)[
            0
        ], saved

    held = [jnp.zeros(x.shape, x.dtype) for x in specs["held"]]
    carry, rows = scan(row, (jnp.int32(0), state, memory, held), None, loop.rows, None)
    k, state, memory, held = carry
    rows = [
        jnp.concatenate([x, y[None]])
        for x, y in zip(rows, save(constants, k, state, held), strict=True)
    ]
    return [
        *(x.reshape(loop.rows + 1, -1) for x in rows),
        *(x.reshape(-1) for x in (*state, *memory, *held)),
    ]


def _differs_by_device(x: Any) -> bool:
    """Whether ``jax.shard_map`` keeps account of it."""
    kind = jax.typeof(x)
    return bool(
        getattr(getattr(kind, "manual_axis_type", kind), "varying", None)
        or getattr(kind, "vma", None)
    )


def _specs(tree: Any) -> list[jax.ShapeDtypeStruct]:
    return [jax.eval_shape(_raw, leaf) for leaf in jax.tree.leaves(tree)]


def _smooth(leaves: Sequence[Any]) -> list[Any]:
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def _raw(x: Any) -> Array:
    """Keys as their words."""
    x = jnp.asarray(x)
    return jax.random.key_data(x) if _is_key(x) else x


def _keyed(x: Array, like: Any) -> Any:
    return jax.random.wrap_key_data(x, impl=like.dtype._impl) if _is_key(like) else x


def _hoisted(
    function: Callable[..., Any], *arguments: Any
) -> tuple[Callable[..., list[Array]], list[Any]]:
    """``hoist`` of a function whose keys come and go as words."""
    leaves, structure = jax.tree.flatten(arguments)

    def of_words(*words: Array) -> list[Array]:
        given = jax.tree.unflatten(
            structure, [_keyed(x, like) for x, like in zip(words, leaves, strict=True)]
        )
        return [_raw(x) for x in jax.tree.leaves(function(*given))]

    rest, fixed = hoist(of_words, *(jax.eval_shape(_raw, leaf) for leaf in leaves))
    return lambda words, *given: rest(
        [_keyed(x, like) for x, like in zip(words, fixed, strict=True)], *given
    ), fixed


def _pullback(function: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
    """Of constants, number, groups of leaves and cotangents: the cotangents of the smooth leaves, in order."""

    def back(constants: Any, k: Any, *rest: Any) -> list[Array]:
        *groups, cotangents = rest
        leaves, structure = jax.tree.flatten((constants, *groups))
        places = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]

        def of_smooth(chosen: list[Array]) -> list[Array]:
            given = list(leaves)
            for place, leaf in zip(places, chosen, strict=True):
                given[place] = leaf
            constants, *groups = jax.tree.unflatten(structure, given)
            return _smooth(function(constants, k, *groups))

        given = [leaves[i] for i in places]
        like = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in given]
        push = lambda tangents: jax.jvp(of_smooth, (given,), (tangents,))[1]  # noqa: E731
        return jax.linear_transpose(push, like)(list(cotangents))[
            0
        ]  # as jax.vjp, in two thirds of its time

    return back


def _solve(traced: Traced, scan_back: bool) -> tuple[Any, Any, State]:
    """The observations of all rows, the memory and the state at the end."""
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
        found = _bind(loop, "keeping", merged(chosen, fixed))
        count = len(loop.results("forward"))
        return found[:count], (
            chosen,
            fixed,
            [*found[count:], *found[count - len(loop.last()) : count]],
        )

    def back(residual: Any, cotangents: list[Any]) -> tuple[list[Array], None]:
        chosen, fixed, kept = residual
        live = tuple(i for i, bar in enumerate(cotangents) if not isinstance(bar, SymbolicZero))
        if kept is None:

            def live_results(chosen: list[Array]) -> list[Array]:
                given = [
                    x.reshape(like.shape)
                    for x, like in zip(merged(chosen, fixed), operands, strict=True)
                ]
                found = scanned(given)
                return [found[i] for i in live]

            return jax.vjp(live_results, chosen)[1]([cotangents[i] for i in live])[0], None
        first = len(loop.constants) + len(loop.inputs)
        derivative = differentiated(tuple(i for i in live if i < len(loop.saved)))
        bars = []
        for i, (bar, (leaf, _)) in enumerate(zip(cotangents, loop.results("forward"), strict=True)):
            if leaf.smooth and (i in live or i >= len(loop.saved)):
                bars.append(bar if i in live else jnp.zeros(bar.shape, bar.dtype))
        found: list[Any] = _bind(
            derivative, "backward", [*merged(chosen, fixed)[:first], *kept, *bars]
        )
        for place, unused in enumerate(_unused_constants(derivative)):
            if unused:
                found[place] = (
                    None  # no number, which what made the constant would multiply with an infinite slope
                )
        return found, None

    solve.defvjp(keep, back, symbolic_zeros=True)
    chosen = _guard([flat[k] for k in smooth])
    found = solve(chosen, [x for k, x in enumerate(flat) if k not in smooth])
    saved, state, memory, _ = trees
    results = iter(found)

    def shaped(spec: Any, leading: int) -> Any:
        leaves, structure = jax.tree.flatten(spec)
        arrays = [next(results) for _ in leaves]
        return jax.tree.unflatten(
            structure,
            [
                _keyed(x.reshape(*x.shape[:leading], *jax.eval_shape(_raw, leaf).shape), leaf)
                for x, leaf in zip(arrays, leaves, strict=True)
            ],
        )

    rows, final = shaped(saved, 1), shaped(state, 0)
    return rows, shaped(memory, 0), final


def _unused_constants(derivative: Loop) -> list[bool]:
    """For each smooth constant whether its cotangent is 0 whatever the values are."""
    zeros = []
    for program in (derivative.step_back, derivative.save_back, derivative.sample_back):
        if program is not None:
            known = [None] * len(program.inputs) + [
                op.number if op.name == "const" else None for op in program.ops
            ]
            zeros.append(
                [known[value] is not None and known[value] == 0 for value in program.outputs]
            )
    found, first = [], 0
    for leaf in derivative.constants:
        if leaf.smooth:
            found.append(all(all(row[first : first + leaf.size]) for row in zeros))
            first += leaf.size
    return found


def has_derivative(differentiated: Callable[[], Loop]) -> bool:
    """Whether the derivative has a scalar form."""
    try:
        differentiated()
    except Exception:  # of any primitive, in any rule of its derivative
        return False
    return True


def _leading(loop: Loop, number: int) -> int:
    """Axes of an operand before those of its leaf."""
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
    """One more axis of bodies; within the kernel there is only one."""
    count = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    inner = 1 if bodies is None else bodies
    given, flags = [], []
    for x, axis, old in zip(operands, axes, batched, strict=True):
        flags.append(old or axis is not None)
        x = x if axis is None else jnp.moveaxis(x, axis, 0)
        if flags[-1] and bodies is not None:
            rest = x.shape[(axis is not None) + old :]
            x = x if axis is not None else x[None]
            x = x if old else x[:, None]
            x = jnp.broadcast_to(x, (count, inner, *rest)).reshape(count * inner, *rest)
        given.append(x)
    found = _kernel.bind(*given, loop=loop, kind=kind, bodies=count * inner, batched=tuple(flags))
    if bodies is not None:
        found = [x.reshape(count, inner, *x.shape[1:]) for x in found]
    return found, [0] * len(found)


batching.primitive_batchers[_kernel] = _batch


def _on_cpu(*operands: Array, **params: Any) -> list[Array]:
    return _of_bodies(cpu.call, operands, **params)


def _on_gpu(*operands: Array, **params: Any) -> list[Array]:
    from jaxquat.engines.fused import gpu

    return _of_bodies(gpu.call, operands, **params)


def _of_bodies(
    call: Callable[..., list[Array]], operands: Sequence[Array], bodies: int | None, **params: Any
) -> list[Array]:
    """Of one body without an axis; of none nothing is computed."""
    if bodies == 0:
        return [
            jnp.zeros(shape.shape, shape.dtype)
            for shape in _shapes_of(params["loop"], params["kind"], bodies)
        ]
    found = call(operands=operands, bodies=bodies or 1, **params)
    return found if bodies else [x[0] for x in found]


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


# arrays on their way into the kernel: the identity, whose derivative in forward mode is an error with a way out

_guarded, _guarded_tangent = Primitive("fused_rollout_argument"), Primitive("fused_rollout_tangent")


def _guard(leaves: Sequence[Array]) -> list[Array]:
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

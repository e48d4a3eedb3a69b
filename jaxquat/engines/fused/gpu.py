"""Kernels for the GPU through Pallas: a block of bodies per program, their state in registers through the whole time loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from jaxquat.engines.fused.elementary import expand
from jaxquat.engines.fused.kernel import Leaf, Loop
from jaxquat.engines.fused.program import Program, evaluate

BLOCK = 128  # bodies a program, one thread each


def call(
    loop: Loop,
    kind: str,
    batched: Sequence[bool],
    bodies: int,
    operands: Sequence[Array],
    interpret: bool = False,
) -> list[Array]:
    """As ``cpu.call``; ``interpret`` runs the kernel through XLA, on any platform."""
    blocks = -(-bodies // BLOCK)
    spare = blocks * BLOCK - bodies

    def laid(x: Array, per_body: bool) -> Array:
        """(rows, size, bodies), the last body repeated until the blocks are full; booleans as integers."""
        x = x.astype(jnp.int32) if x.dtype == bool else x
        if not per_body:
            return x
        return jnp.pad(
            jnp.moveaxis(x, 0, -1), ((0, 0),) * (x.ndim - 1) + ((0, spare),), mode="edge"
        )

    results = loop.results(kind)
    scratch = (
        [(leaf, loop.segment) for leaf in (*loop.state, *loop.memory, *loop.held)]
        if kind == "backward"
        else []
    )
    shapes = [
        jax.ShapeDtypeStruct(
            (*(() if rows is None else (rows,)), leaf.size, blocks * BLOCK), _stored(leaf.dtype)
        )
        for leaf, rows in (*results, *scratch)
    ]
    kernel = _Block(loop, kind, batched, len(operands), len(results))
    options: dict[str, Any] = {"interpret": True} if interpret else {"compiler_params": _options()}
    found = pl.pallas_call(kernel, out_shape=shapes, grid=(blocks,), **options)(
        *(laid(x, b) for x, b in zip(operands, batched, strict=True))
    )
    found = [jnp.moveaxis(x[..., :bodies], -1, 0) for x in found[: len(results)]]
    return [x.astype(leaf.dtype) for x, (leaf, _) in zip(found, results, strict=True)]


def _options() -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=BLOCK // 32, num_stages=1)


def _stored(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.int32) if dtype.kind == "b" else dtype


class _Block:
    """The kernel of one block."""

    def __init__(
        self, loop: Loop, kind: str, batched: Sequence[bool], operands: int, results: int
    ) -> None:
        self.loop, self.kind, self.batched, self.operands, self.results = (
            loop,
            kind,
            batched,
            operands,
            results,
        )
        self.__name__ = f"fused_{kind}"

    def __call__(self, *refs: Any) -> None:
        self.ins, self.outs = (
            refs[: self.operands],
            refs[self.operands : self.operands + self.results],
        )
        self.past = refs[self.operands + self.results :]
        self.lanes = pl.ds(pl.program_id(0) * np.int32(BLOCK), BLOCK)
        (self.backward if self.kind == "backward" else self.forward)()

    def read(self, leaves: Sequence[Leaf], number: int, row: Any = None) -> list[Array]:
        """All elements of the leaves that begin with operand ``number``."""
        found = []
        for k, leaf in enumerate(leaves, number):
            for e in range(leaf.size):
                place = (*(() if row is None else (row,)), e)
                value = (
                    self.ins[k][(*place, self.lanes)]
                    if self.batched[k]
                    else jnp.full(BLOCK, self.ins[k][place])
                )
                found.append(value != 0 if leaf.dtype.kind == "b" else value)
        return found

    def write(
        self, leaves: Sequence[Leaf], number: int, values: Sequence[Array], row: Any = None
    ) -> None:
        """All elements of the leaves that begin with result ``number``."""
        rest = iter(values)
        for k, leaf in enumerate(leaves, number):
            for e in range(leaf.size):
                self.outs[k][(*(() if row is None else (row,)), e, self.lanes)] = next(rest).astype(
                    _stored(leaf.dtype)
                )

    def run(self, program: Program | None, *inputs: Any) -> list[Array]:
        """The outputs, with one value a body."""
        assert program is not None
        flat = [
            x
            for group in inputs
            for x in (group if isinstance(group, list) else [jnp.full(BLOCK, group, jnp.int32)])
        ]
        return [
            jnp.broadcast_to(x, (BLOCK,)) for x in evaluate(expand(program, ["round"]), flat)
        ]  # Triton has no round

    def zeros(self, leaves: Sequence[Leaf]) -> list[Array]:
        return [jnp.zeros(BLOCK, leaf.dtype) for leaf in leaves for _ in range(leaf.size)]

    def sampled(
        self,
        constants: list[Array],
        k: Any,
        state: list[Array],
        memory: list[Array],
        held: list[Array],
    ) -> Any:
        """(held, memory) from step k on."""
        loop = self.loop
        if loop.sample is None:
            return held, memory

        def anew(memory: list[Array], held: list[Array]) -> tuple[list[Array], list[Array]]:
            values = self.read(loop.inputs, len(loop.constants), _row(k, loop.sample_every))
            found = self.run(loop.sample, constants, k, state, memory, values)
            return found[: len(held)], found[len(held) :]

        return lax.cond(
            _due(k, loop.sample_every), anew, lambda memory, held: (held, memory), memory, held
        )

    def forward(self) -> None:
        loop, n = self.loop, sum(leaf.size for leaf in self.loop.state)
        carried = (*loop.state, *loop.memory, *loop.held)
        constants = self.read(loop.constants, 0)
        start = self.read((*loop.state, *loop.memory), len(loop.constants) + len(loop.inputs))

        def one(k: Any, carry: Any) -> Any:
            k = _int32(k)
            state, memory, held = carry
            if self.kind == "keeping":

                @pl.when(_due(k, loop.segment))
                def _() -> None:
                    self.write(
                        carried,
                        len(loop.saved) + len(carried),
                        [*state, *memory, *held],
                        _row(k, loop.segment),
                    )

            held, memory = self.sampled(constants, k, state, memory, held)

            @pl.when(_due(k, loop.save_every))
            def _() -> None:
                self.save(constants, k, state, held)

            return self.run(loop.step, constants, k, state, held), memory, held

        steps = np.int32(loop.steps)
        state, memory, held = lax.fori_loop(
            np.int32(0), steps, one, (start[:n], start[n:], self.zeros(loop.held))
        )
        self.save(constants, steps, state, held)
        self.write(carried, len(loop.saved), [*state, *memory, *held])

    def save(self, constants: list[Array], k: Any, state: list[Array], held: list[Array]) -> None:
        loop = self.loop
        self.write(
            loop.saved, 0, self.run(loop.save, constants, k, state, held), _row(k, loop.save_every)
        )

    def backward(self) -> None:
        loop = self.loop
        carry = (*loop.state, *loop.memory, *loop.held)
        n, m = (sum(leaf.size for leaf in leaves) for leaves in (loop.state, loop.memory))
        smooth = {
            name: [leaf for leaf in getattr(loop, name) if leaf.smooth]
            for name in ("constants", "inputs", "state", "memory", "held", "saved")
        }
        sizes = {name: sum(leaf.size for leaf in leaves) for name, leaves in smooth.items()}
        kept = len(loop.constants) + len(loop.inputs)
        last = kept + len(carry)
        rows = last + len(carry)
        constants = self.read(loop.constants, 0)

        def remember(row: Any, values: Sequence[Array]) -> None:
            rest = iter(values)
            for ref, leaf in zip(self.past, carry, strict=True):
                for e in range(leaf.size):
                    ref[row, e, self.lanes] = next(rest).astype(_stored(leaf.dtype))

        def recall(row: Any) -> list[Array]:
            found = [
                (ref[row, e, self.lanes], leaf)
                for ref, leaf in zip(self.past, carry, strict=True)
                for e in range(leaf.size)
            ]
            return [x != 0 if leaf.dtype.kind == "b" else x for x, leaf in found]

        def saved(k: Any, state: list[Array], held: list[Array], bars: Any) -> Any:
            """With the cotangents of what is saved before step number k."""
            own = self.read(smooth["saved"], rows, _row(k, loop.save_every))
            found = iter(self.run(loop.save_back, constants, k, state, held, own))
            return tuple([a + next(found) for a in group] for group in bars)

        def segment(number: Any, bars: Any) -> Any:
            number = np.int32(loop.segments - 1) - _int32(number)
            begin = number * np.int32(loop.segment)
            count = jnp.minimum(np.int32(loop.segment), np.int32(loop.steps) - begin)
            start = self.read(carry, kept, number)

            def again(j: Any, values: list[Array]) -> list[Array]:
                j = _int32(j)
                state, memory, held = values[:n], values[n : n + m], values[n + m :]
                held, after = self.sampled(constants, begin + j, state, memory, held)
                remember(j, [*state, *memory, *held])
                return [*self.run(loop.step, constants, begin + j, state, held), *after, *held]

            lax.fori_loop(np.int32(0), count, again, start)

            def back(j: Any, bars: Any) -> Any:
                j = count - np.int32(1) - _int32(j)
                k = begin + j
                there = recall(j)
                state, memory, held = there[:n], there[n : n + m], there[n + m :]
                constants_bar, state_bar, memory_bar, held_bar = bars
                found = iter(self.run(loop.step_back, constants, k, state, held, state_bar))
                constants_bar = [a + next(found) for a in constants_bar]
                state_bar = [next(found) for _ in state_bar]
                held_bar = [a + next(found) for a in held_bar]

                added = lambda bars: saved(k, state, held, bars)  # noqa: E731
                constants_bar, state_bar, held_bar = _either(
                    _due(k, loop.save_every), added, (constants_bar, state_bar, held_bar)
                )

                def sampled(bars: Any) -> Any:
                    constants_bar, state_bar, memory_bar, held_bar = bars
                    row = _row(k, loop.sample_every)
                    values = self.read(loop.inputs, len(loop.constants), row)
                    found = iter(
                        self.run(
                            loop.sample_back,
                            constants,
                            k,
                            state,
                            memory,
                            values,
                            held_bar,
                            memory_bar,
                        )
                    )
                    constants_bar = [a + next(found) for a in constants_bar]
                    state_bar = [a + next(found) for a in state_bar]
                    memory_bar = [next(found) for _ in memory_bar]
                    self.write(smooth["inputs"], len(smooth["constants"]), list(found), row)
                    return constants_bar, state_bar, memory_bar, self.zeros(smooth["held"])

                bars = constants_bar, state_bar, memory_bar, held_bar
                return (
                    bars
                    if loop.sample_back is None
                    else _either(_due(k, loop.sample_every), sampled, bars)
                )

            return lax.fori_loop(np.int32(0), count, back, bars)

        end = self.read(carry, last)
        own = iter(
            self.read(
                [*smooth["state"], *smooth["memory"], *smooth["held"]], rows + len(smooth["saved"])
            )
        )
        state_bar, memory_bar, held_bar = (
            [next(own) for _ in range(sizes[name])] for name in ("state", "memory", "held")
        )
        given = self.zeros(smooth["constants"]), state_bar, held_bar
        constants_bar, state_bar, held_bar = saved(
            np.int32(loop.steps), end[:n], end[n + m :], given
        )
        bars = constants_bar, state_bar, memory_bar, held_bar
        constants_bar, state_bar, memory_bar, _ = lax.fori_loop(
            np.int32(0), np.int32(loop.segments), segment, bars
        )
        self.write(smooth["constants"], 0, constants_bar)
        after = len(smooth["constants"]) + len(smooth["inputs"])
        self.write([*smooth["state"], *smooth["memory"]], after, [*state_bar, *memory_bar])


def _int32(k: Any) -> Array:
    return lax.convert_element_type(k, np.int32)


def _row(k: Any, period: int) -> Array:
    return lax.div(k, np.int32(period))


def _due(k: Any, period: int) -> Array:
    return lax.eq(lax.rem(k, np.int32(period)), np.int32(0))


def _either(due: Any, function: Callable[[Any], Any], value: Any) -> Any:
    return lax.cond(due, function, lambda x: x, value)

"""Kernels for the GPU, by Pallas: a program for each block of bodies, their state in registers.

``call`` is what the primitive of ``engine`` is lowered to. Each program runs the time loop for 128
bodies, one for each thread: ``_Block`` is its text, as traced functions on arrays of 128 numbers.
The loops are those of ``assembly``:

- ``forward`` goes through the steps: keep, sample, save, step.
- ``backward`` goes through the segments, the last one first. ``again`` computes the states of the
  segment and stores them in scratch memory (``remember``); ``back`` goes through them from the last
  step to the first (``recall``) and adds up the cotangents (``..._bar``).

Scalar programs run by ``program.evaluate``. Triton's functions serve for sin, exp and their kin;
only "round" is expanded. Booleans lie in memory as int32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import pallas as pl

from jaxquat.engines.fused.ir.expansion import lowered
from jaxquat.engines.fused.kernel import Leaf, Loop
from jaxquat.engines.fused.ir.program import Program, evaluate

BLOCK = 128  # bodies of a program, one for each thread


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
        """An operand as (rows, size, bodies), with the last body repeated to fill the blocks."""
        x = x.astype(jnp.int32) if x.dtype == bool else x
        if not per_body:
            return x
        widths = ((0, 0),) * (x.ndim - 1) + ((0, spare),)
        return jnp.pad(jnp.moveaxis(x, 0, -1), widths, mode="edge")

    results, carry = loop.results(kind), (*loop.state, *loop.memory, *loop.command)
    scratch = [(leaf, loop.segment) for leaf in carry] if kind == "backward" else []
    shapes = []
    for leaf, rows in (*results, *scratch):
        shape = (*(() if rows is None else (rows,)), leaf.size, blocks * BLOCK)
        shapes.append(jax.ShapeDtypeStruct(shape, _stored(leaf.dtype)))
    kernel = _Block(loop, kind, batched, len(operands), len(results))
    options: dict[str, Any] = {"interpret": True} if interpret else {"compiler_params": _options()}
    launch = pl.pallas_call(kernel, out_shape=shapes, grid=(blocks,), **options)
    arrays = launch(*(laid(x, b) for x, b in zip(operands, batched, strict=True)))
    arrays = [jnp.moveaxis(x[..., :bodies], -1, 0) for x in arrays[: len(results)]]
    return [x.astype(leaf.dtype) for x, (leaf, _) in zip(arrays, results, strict=True)]


def _options() -> Any:
    from jax.experimental.pallas import triton

    return triton.CompilerParams(num_warps=BLOCK // 32, num_stages=1)


def _stored(dtype: np.dtype) -> np.dtype:
    """The dtype in memory."""
    return np.dtype(np.int32) if dtype.kind == "b" else dtype


class _Block:
    """The kernel of one block; ``operands`` and ``results`` are their numbers."""

    def __init__(
        self, loop: Loop, kind: str, batched: Sequence[bool], operands: int, results: int
    ) -> None:
        self.loop, self.kind, self.batched = loop, kind, batched
        self.operands, self.results = operands, results
        self.__name__ = f"fused_{kind}"

    def __call__(self, *refs: Any) -> None:
        """Runs the time loop; ``refs``: operands, results, scratch memory."""
        end = self.operands + self.results
        self.ins, self.outs, self.past = (
            refs[: self.operands],
            refs[self.operands : end],
            refs[end:],
        )
        self.lanes = pl.ds(pl.program_id(0) * np.int32(BLOCK), BLOCK)
        (self.backward if self.kind == "backward" else self.forward)()

    def read(self, leaves: Sequence[Leaf], number: int, row: Any = None) -> list[Array]:
        """All elements of the leaves that begin with operand ``number``."""
        values = []
        for k, leaf in enumerate(leaves, number):
            for e in range(leaf.size):
                place = (*(() if row is None else (row,)), e)
                if self.batched[k]:
                    value = self.ins[k][(*place, self.lanes)]
                else:
                    value = jnp.full(BLOCK, self.ins[k][place])
                values.append(value != 0 if leaf.dtype.kind == "b" else value)
        return values

    def write(
        self, leaves: Sequence[Leaf], number: int, values: Sequence[Array], row: Any = None
    ) -> None:
        """Writes all elements of the leaves that begin with result ``number``."""
        remaining = iter(values)
        for k, leaf in enumerate(leaves, number):
            for e in range(leaf.size):
                place = (*(() if row is None else (row,)), e, self.lanes)
                self.outs[k][place] = next(remaining).astype(_stored(leaf.dtype))

    def run(self, program: Program | None, *inputs: Any) -> list[Array]:
        """The outputs of a program, one value for each body; ``inputs`` are lists, or a number."""
        assert program is not None
        flat = []
        for group in inputs:
            flat += group if isinstance(group, list) else [jnp.full(BLOCK, group, jnp.int32)]
        outputs = evaluate(program, flat)  # Triton has no round
        return [jnp.broadcast_to(x, (BLOCK,)) for x in outputs]

    def zeros(self, leaves: Sequence[Leaf]) -> list[Array]:
        return [jnp.zeros(BLOCK, leaf.dtype) for leaf in leaves for _ in range(leaf.size)]

    def sampled(
        self,
        constants: list[Array],
        k: Any,
        state: list[Array],
        memory: list[Array],
        command: list[Array],
    ) -> Any:
        """(command, memory) from step k on."""
        loop = self.loop
        if loop.sample is None:
            return command, memory

        def anew(memory: list[Array], command: list[Array]) -> tuple[list[Array], list[Array]]:
            values = self.read(loop.inputs, len(loop.constants), _row(k, loop.sample_every))
            results = self.run(loop.sample, constants, k, state, memory, values)
            return results[: len(command)], results[len(command) :]

        same = lambda memory, command: (command, memory)  # noqa: E731
        return lax.cond(_due(k, loop.sample_every), anew, same, memory, command)

    def forward(self) -> None:
        loop, n = self.loop, sum(leaf.size for leaf in self.loop.state)
        carried = (*loop.state, *loop.memory, *loop.command)
        constants = self.read(loop.constants, 0)
        start = self.read((*loop.state, *loop.memory), len(loop.constants) + len(loop.inputs))

        def one(k: Any, carry: Any) -> Any:
            k = _int32(k)
            state, memory, command = carry
            if self.kind == "keeping":

                @pl.when(_due(k, loop.segment))
                def _() -> None:
                    first, row = len(loop.saved) + len(carried), _row(k, loop.segment)
                    self.write(carried, first, [*state, *memory, *command], row)

            command, memory = self.sampled(constants, k, state, memory, command)

            @pl.when(_due(k, loop.save_every))
            def _() -> None:
                self.save(constants, k, state, command)

            return self.run(loop.step, constants, k, state, command), memory, command

        steps, carry = np.int32(loop.steps), (start[:n], start[n:], self.zeros(loop.command))
        state, memory, command = lax.fori_loop(np.int32(0), steps, one, carry)
        self.save(constants, steps, state, command)
        self.write(carried, len(loop.saved), [*state, *memory, *command])

    def save(self, constants: list[Array], k: Any, state: list[Array], command: Any) -> None:
        """Writes the row that is saved before step k."""
        loop = self.loop
        values = self.run(loop.save, constants, k, state, command)
        self.write(loop.saved, 0, values, _row(k, loop.save_every))

    def backward(self) -> None:
        loop = self.loop
        carry = (*loop.state, *loop.memory, *loop.command)
        n, m = (sum(leaf.size for leaf in leaves) for leaves in (loop.state, loop.memory))
        names = ("constants", "inputs", "state", "memory", "command", "saved")
        smooth = {name: [leaf for leaf in getattr(loop, name) if leaf.smooth] for name in names}
        sizes = {name: sum(leaf.size for leaf in leaves) for name, leaves in smooth.items()}
        kept = len(loop.constants) + len(loop.inputs)
        last = kept + len(carry)
        rows = last + len(carry)
        constants = self.read(loop.constants, 0)

        def remember(row: Any, values: Sequence[Array]) -> None:
            remaining = iter(values)
            for ref, leaf in zip(self.past, carry, strict=True):
                for e in range(leaf.size):
                    ref[row, e, self.lanes] = next(remaining).astype(_stored(leaf.dtype))

        def recall(row: Any) -> list[Array]:
            values = [
                (ref[row, e, self.lanes], leaf)
                for ref, leaf in zip(self.past, carry, strict=True)
                for e in range(leaf.size)
            ]
            return [x != 0 if leaf.dtype.kind == "b" else x for x, leaf in values]

        def saved(k: Any, state: list[Array], command: list[Array], bars: Any) -> Any:
            """Adds to ``bars`` what the row contributes that is saved before step k."""
            row_bars = self.read(smooth["saved"], rows, _row(k, loop.save_every))
            more = iter(self.run(loop.save_back, constants, k, state, command, row_bars))
            return tuple([a + next(more) for a in group] for group in bars)

        def segment(number: Any, bars: Any) -> Any:
            number = np.int32(loop.segments - 1) - _int32(number)
            begin = number * np.int32(loop.segment)
            count = jnp.minimum(np.int32(loop.segment), np.int32(loop.steps) - begin)
            start = self.read(carry, kept, number)

            def again(j: Any, values: list[Array]) -> list[Array]:
                j = _int32(j)
                state, memory, command = values[:n], values[n : n + m], values[n + m :]
                command, after = self.sampled(constants, begin + j, state, memory, command)
                remember(j, [*state, *memory, *command])
                state = self.run(loop.step, constants, begin + j, state, command)
                return [*state, *after, *command]

            lax.fori_loop(np.int32(0), count, again, start)

            def back(j: Any, bars: Any) -> Any:
                j = count - np.int32(1) - _int32(j)
                k = begin + j
                values = recall(j)
                state, memory, command = values[:n], values[n : n + m], values[n + m :]
                constants_bar, state_bar, memory_bar, command_bar = bars
                results = self.run(loop.step_back, constants, k, state, command, state_bar)
                remaining = iter(results)
                constants_bar = [a + next(remaining) for a in constants_bar]
                state_bar = [next(remaining) for _ in state_bar]
                command_bar = [a + next(remaining) for a in command_bar]

                added = lambda bars: saved(k, state, command, bars)  # noqa: E731
                bars = constants_bar, state_bar, command_bar
                constants_bar, state_bar, command_bar = _either(
                    _due(k, loop.save_every), added, bars
                )

                def sampled(bars: Any) -> Any:
                    constants_bar, state_bar, memory_bar, command_bar = bars
                    row = _row(k, loop.sample_every)
                    values = self.read(loop.inputs, len(loop.constants), row)
                    point = constants, k, state, memory, values
                    results = self.run(loop.sample_back, *point, command_bar, memory_bar)
                    remaining = iter(results)
                    constants_bar = [a + next(remaining) for a in constants_bar]
                    state_bar = [a + next(remaining) for a in state_bar]
                    memory_bar = [next(remaining) for _ in memory_bar]
                    self.write(smooth["inputs"], len(smooth["constants"]), list(remaining), row)
                    return constants_bar, state_bar, memory_bar, self.zeros(smooth["command"])

                bars = constants_bar, state_bar, memory_bar, command_bar
                if loop.sample_back is None:
                    return bars
                return _either(_due(k, loop.sample_every), sampled, bars)

            return lax.fori_loop(np.int32(0), count, back, bars)

        end = self.read(carry, last)
        leaves = [*smooth["state"], *smooth["memory"], *smooth["command"]]
        remaining = iter(self.read(leaves, rows + len(smooth["saved"])))
        names = ("state", "memory", "command")
        groups = ([next(remaining) for _ in range(sizes[name])] for name in names)
        state_bar, memory_bar, command_bar = groups
        bars = self.zeros(smooth["constants"]), state_bar, command_bar
        bars = saved(np.int32(loop.steps), end[:n], end[n + m :], bars)
        constants_bar, state_bar, command_bar = bars
        bars = constants_bar, state_bar, memory_bar, command_bar
        segments = np.int32(loop.segments)
        bars = lax.fori_loop(np.int32(0), segments, segment, bars)
        constants_bar, state_bar, memory_bar, _ = bars
        self.write(smooth["constants"], 0, constants_bar)
        after = len(smooth["constants"]) + len(smooth["inputs"])
        self.write([*smooth["state"], *smooth["memory"]], after, [*state_bar, *memory_bar])


def _int32(k: Any) -> Array:
    return lax.convert_element_type(k, np.int32)


def _row(k: Any, period: int) -> Array:
    """Which row belongs to step k, of those that come at each multiple of ``period``."""
    return lax.div(k, np.int32(period))


def _due(k: Any, period: int) -> Array:
    """Whether k is a multiple of ``period``."""
    return lax.eq(lax.rem(k, np.int32(period)), np.int32(0))


def _either(due: Any, function: Callable[[Any], Any], value: Any) -> Any:
    """``function(value)`` where ``due``, else the value itself."""
    return lax.cond(due, function, lambda x: x, value)

"""A rollout as a function that knows its derivatives, before any of it is scalar code.

A ``Recurrence`` has the functions of a time loop (step, ``save``, sample) and the shapes of what
they are given. Its programs are made when they are asked for: ``loop`` has those of the values,
``differentiated`` those of the derivative in reverse mode as well.

``tangent`` is the derivative in forward mode, and it is a recurrence again. Its arrays are those of
the first one, and after them ``count`` tangents of each float among them. A state (q, omega, n)
with an integer n becomes (q, omega, n, dq, domega), and a step computes the step and its
derivative. So state and tangents go through one loop, nothing is kept, and several tangents share
what they have in common. As the result is a recurrence, it has derivatives of its own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat.engines.checkpointing import scan
from jaxquat.engines.fused.ir.program import Program
from jaxquat.engines.fused.kernel import Leaf, Loop
from jaxquat.engines.fused.trace.tracing import scalarize

# What it costs to keep a number and to read it again, in additions: 0.4 to 1.1 ns, and in the time
# of 4.9 ns a step of 900 additions runs (1024 to 16384 bodies on two cores). Most of it is the
# memory's: fresh pages for each call.
KEEPING = 800
GROUPS = ("constants", "inputs", "state", "memory", "command", "saved")
Specs = tuple[jax.ShapeDtypeStruct, ...]
# of each group, the numbers of the leaves that have tangents
Chosen = dict[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The functions of a time loop, of flat lists of arrays.

    Attributes:
        specs: shapes and dtypes of one body's arrays, for each of ``GROUPS``.
        step: ``step(constants, k, state, command)`` is the next state.
        save: ``save(constants, k, state, command)`` is what a row keeps.
        sample: ``sample(constants, k, state, memory, inputs)`` is the command and the memory from
            step k on; None without a controller and inputs.
        steps, sample_every, save_every: as in ``kernel.Loop``.
        segment: steps between two states that are kept for the backward pass; None for those of
            ``kept_every``.
        strict: a program without a scalar form is an error, rather than computed by ``lax.scan``.
        primal: the recurrence of which this one is the tangent, or None.
        chosen: which of its leaves have tangents here.
        count: how many tangents each has.
    """

    specs: dict[str, Specs]
    step: Callable[..., list[Array]]
    save: Callable[..., list[Array]]
    sample: Callable[..., list[Array]] | None
    steps: int
    sample_every: int
    save_every: int
    segment: int | None
    strict: bool
    primal: Recurrence | None = None
    chosen: Chosen | None = None
    count: int = 0

    @functools.cached_property
    def loop(self) -> Loop:
        """The loop with the programs of the values."""
        return self.layout._replace(**self._programs)

    @functools.cached_property
    def _programs(self) -> dict[str, Program | None]:
        constants = self.specs["constants"]
        of_step = [self.specs[name] for name in ("state", "command")]
        of_sample = [self.specs[name] for name in ("state", "memory", "inputs")]
        number = jax.ShapeDtypeStruct((), jnp.int32)
        sample = self.sample
        return {
            "step": scalarize(self.step, constants, number, *of_step),
            "save": scalarize(self.save, constants, number, *of_step),
            "sample": sample and scalarize(sample, constants, number, *of_sample),
        }

    @functools.cached_property
    def kept_every(self) -> int:
        """Steps between two states that are kept for the backward pass.

        Every state, where a step costs more to compute again than its state to keep and to read.
        Otherwise as many are kept as there are steps between two of them.
        """
        if self.segment is not None:
            return self.segment
        step, sample = self._programs["step"], self._programs["sample"]
        assert step is not None
        again = step.cost() + (sample.cost() / self.sample_every if sample is not None else 0)
        kept = sum(math.prod(x.shape) for name in GROUPS[2:5] for x in self.specs[name])
        return 1 if again > KEEPING * kept else math.isqrt(self.steps - 1) + 1

    def jaxprs(self) -> list[Any]:
        """Its functions, traced."""
        constants = self.specs["constants"]
        of_step = [self.specs[name] for name in ("state", "command")]
        of_sample = [self.specs[name] for name in ("state", "memory", "inputs")]
        number = jax.ShapeDtypeStruct((), jnp.int32)
        traced = [jax.make_jaxpr(f)(constants, number, *of_step) for f in (self.step, self.save)]
        if self.sample is not None:
            traced.append(jax.make_jaxpr(self.sample)(constants, number, *of_sample))
        return traced

    @functools.cached_property
    def layout(self) -> Loop:
        """The loop without programs: enough to know the arrays of a kernel."""
        leaf = lambda spec: Leaf(np.dtype(spec.dtype), math.prod(spec.shape))  # noqa: E731
        arrays = {name: tuple(map(leaf, self.specs[name])) for name in GROUPS}
        loop = Loop(
            steps=self.steps,
            sample_every=self.sample_every,
            save_every=self.save_every,
            segment=self.kept_every,
        )
        return loop._replace(**arrays)

    def differentiated(self, live: tuple[int, ...] | None = None) -> Loop:
        """The loop with the programs of its derivative in reverse mode.

        ``live`` are the numbers of the saved leaves whose cotangent is not zero, by default all.
        The others are not saved here: 0 times an infinite slope would be NaN.
        """
        every = tuple(range(len(self.specs["saved"])))
        live = every if live is None else live
        if live not in self._derivatives:
            self._derivatives[live] = self._differentiated(live, live == every)
        return self._derivatives[live]

    @functools.cached_property
    def _derivatives(self) -> dict[tuple[int, ...], Loop]:
        return {}

    def _differentiated(self, live: tuple[int, ...], whole: bool) -> Loop:
        constants, inputs, state, memory, command = (self.specs[name] for name in GROUPS[:-1])
        number = jax.ShapeDtypeStruct((), jnp.int32)

        def live_save(*arguments: Any) -> list[Array]:
            saved = self.save(*arguments)
            return [saved[i] for i in live]

        def back(function: Callable[..., Any], *groups: Sequence[Any]) -> Any:
            return scalarize(pullback(function), constants, number, *groups)

        cotangents = _smooth([self.specs["saved"][i] for i in live])
        save_back = back(live_save, state, command, cotangents)
        if not whole:
            saved = tuple(self.layout.saved[i] for i in live)
            return self.differentiated()._replace(saved=saved, save_back=save_back)
        step_back = back(self.step, state, command, _smooth(state))
        sample_back = None
        if self.sample is not None:
            cotangents = _smooth([*command, *memory])
            sample_back = back(self.sample, state, memory, inputs, cotangents)
        return self.loop._replace(step_back=step_back, save_back=save_back, sample_back=sample_back)

    def unused(self, live: tuple[int, ...]) -> set[int]:
        """The numbers of the constants whose cotangent is 0 whatever the values are.

        None is known where the derivative has no scalar form.
        """
        try:
            derivative = self.differentiated(live)
        except Exception:  # of any primitive, in any rule of its derivative
            if self.strict:
                raise
            return set()
        programs = derivative.step_back, derivative.save_back, derivative.sample_back
        zeros = [program.zeros() for program in programs if program is not None]
        unused, first = set(), 0
        for number, leaf in enumerate(self.layout.constants):
            if leaf.smooth:
                if all(all(row[first : first + leaf.size]) for row in zeros):
                    unused.add(number)
                first += leaf.size
        return unused

    def smooth(self, name: str) -> tuple[int, ...]:
        """The numbers of the floats in a group."""
        return tuple(i for i, leaf in enumerate(getattr(self.layout, name)) if leaf.smooth)

    def tangent(
        self, constants: tuple[int, ...], inputs: tuple[int, ...], count: int = 1
    ) -> Recurrence:
        """The recurrence of this one and of its derivative in ``count`` directions.

        ``constants`` and ``inputs`` are the numbers of those leaves that have tangents; of the
        other groups all floats have them.
        """
        key = constants, inputs, count
        if key not in self._tangents:
            chosen = {name: self.smooth(name) for name in GROUPS}
            chosen |= {"constants": constants, "inputs": inputs}
            self._tangents[key] = self._tangent(chosen, count)
        return self._tangents[key]

    @functools.cached_property
    def _tangents(self) -> dict[Any, Recurrence]:
        return {}

    def _tangent(self, chosen: Chosen, count: int) -> Recurrence:
        specs = {}
        for name in GROUPS:
            leaves = self.specs[name]
            tangents = [
                jax.ShapeDtypeStruct((count, *leaves[i].shape), leaves[i].dtype)
                for i in chosen[name]
            ]
            specs[name] = (*leaves, *tangents)

        def pushed(function: Any, inner: Sequence[str], outer: Sequence[str]) -> Any:
            if function is None:
                return None
            names = ("constants", *inner)
            first, numbers_of = 0, {}  # of the results of the function, by group
            for name in outer:
                numbers_of[name] = range(first, first + len(self.specs[name]))
                first += len(self.specs[name])
            smooth = [numbers_of[name][i] for name in outer for i in chosen[name]]

            def both(constants: Any, k: Any, *groups: Any) -> list[Array]:
                given = dict(zip(names, (constants, *groups), strict=True))
                primals = {name: list(x[: len(self.specs[name])]) for name, x in given.items()}
                tangents = {name: list(x[len(self.specs[name]) :]) for name, x in given.items()}
                points = {name: [x[i] for i in chosen[name]] for name, x in primals.items()}

                def of_points(points: dict[str, list[Array]]) -> Any:
                    merged = {name: list(x) for name, x in primals.items()}
                    for name, point in points.items():
                        for i, x in zip(chosen[name], point, strict=True):
                            merged[name][i] = x
                    first, *others = merged.values()
                    results = function(first, k, *others)
                    return [results[i] for i in smooth], results

                push = lambda t: jax.jvp(of_points, (points,), (t,), has_aux=True)  # noqa: E731
                _, slopes, results = jax.vmap(push, out_axes=(None, 0, None))(tangents)
                slopes, ordered = iter(slopes), []
                for name in outer:
                    ordered += [results[i] for i in numbers_of[name]]
                    ordered += [next(slopes) for _ in chosen[name]]
                return ordered

            return both

        return replace(
            self,
            segment=self.kept_every,
            specs=specs,
            step=pushed(self.step, ("state", "command"), ("state",)),
            save=pushed(self.save, ("state", "command"), ("saved",)),
            sample=pushed(self.sample, ("state", "memory", "inputs"), ("command", "memory")),
            primal=self,
            chosen=chosen,
            count=count,
        )

    # By lax.scan, for programs without a scalar form, and where there are no kernels.

    def scanned(self, operands: Sequence[Array]) -> list[Array]:
        """The results of the kernel "forward", flat as its operands are, by ``lax.scan``.

        A scan over the rows, and in it one over the steps of a row.
        """
        shapes = [spec.shape for name in GROUPS[:4] for spec in self.specs[name]]
        leading = [rows for _, rows in self.layout.operands("forward")]
        arrays = [
            x.reshape(shape if rows is None else (rows, *shape))
            for x, shape, rows in zip(operands, shapes, leading, strict=True)
        ]
        ends = np.cumsum([len(self.specs[name]) for name in GROUPS[:3]])
        constants, inputs, state, memory = (
            arrays[i:j] for i, j in zip([0, *ends], [*ends, None], strict=True)
        )
        sample = self.sample

        def command_from(k: Array, state: Any, memory: Any, command: Any) -> tuple[Any, Any]:
            """Command and memory from step k on."""
            if sample is None:
                return command, memory
            sampled = sample

            def anew() -> tuple[Any, Any]:
                values = [x[k // self.sample_every] for x in inputs]
                results = sampled(constants, k, state, memory, values)
                return results[: len(command)], results[len(command) :]

            return jax.lax.cond(k % self.sample_every == 0, anew, lambda: (command, memory))

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def one(carry: Any, _: None) -> tuple[Any, None]:
            k, state, memory, command = carry
            command, memory = command_from(k, state, memory, command)
            return (k + 1, self.step(constants, k, state, command), memory, command), None

        segment = math.isqrt(self.save_every - 1) + 1

        @functools.partial(jax.checkpoint, prevent_cse=False)
        def row(carry: Any, _: None) -> tuple[Any, Any]:
            k, state, memory, command = carry
            saved = self.save(constants, k, state, command_from(k, state, memory, command)[0])
            return scan(one, carry, None, self.save_every, segment)[0], saved

        command = [jnp.zeros(x.shape, x.dtype) for x in self.specs["command"]]
        carry = (jnp.int32(0), state, memory, command)
        carry, rows = scan(row, carry, None, self.layout.rows, None)
        k, state, memory, command = carry
        last = self.save(constants, k, state, command)
        rows = [jnp.concatenate([x, y[None]]) for x, y in zip(rows, last, strict=True)]
        rows = [x.reshape(len(x), -1) for x in rows]
        return [*rows, *(x.reshape(-1) for x in (*state, *memory, *command))]


def _smooth(leaves: Sequence[Any]) -> list[Any]:
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


def pullback(function: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
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

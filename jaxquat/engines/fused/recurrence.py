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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.interpreters import partial_eval as pe

from jaxquat._branches import kept_together
from jaxquat._jaxprs import equations
from jaxquat._varying import axes_of, cast, shaped
from jaxquat.engines.checkpointing import scan
from jaxquat.engines.fused.ir.program import Program
from jaxquat.engines.fused.kernel import Leaf, Loop
from jaxquat.engines.fused.trace.tracing import program_of, scalarize

CARRY = ("state", "memory", "command")
ENDS = ("saved", *CARRY)  # the groups of the results
FLOWS = {  # what the functions of a recurrence are given after constants and k, and what they give
    "step": (("state", "command"), ("state",)),
    "save": (("state", "command"), ("saved",)),
    "sample": (("state", "memory", "inputs"), ("command", "memory")),
}
# What it costs to keep a number and to read it again, in additions: 0.4 to 1.1 ns, and in the time
# of 4.9 ns a step of 900 additions runs (1024 to 16384 bodies on two cores). Most of it is the
# memory's: fresh pages for each call.
KEEPING = 800
GROUPS = ("constants", "inputs", "state", "memory", "command", "saved")
Specs = tuple[jax.ShapeDtypeStruct, ...]
Place = tuple[str, int]  # of a leaf: its group and its number in it
Live = tuple[Place, ...]  # results with a cotangent
Reached = frozenset[Place]
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
        value_by_scan: its value alone, of which no derivative is taken, is computed by
            ``lax.scan``, whose matrix products are faster.
        primal: the recurrence of which this one is the tangent, or None.
        chosen: which of its leaves have tangents here.
        still: those of them whose tangents are 0 at every step.
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
    value_by_scan: bool = False
    primal: Recurrence | None = None
    chosen: Chosen | None = None
    still: frozenset[Place] = frozenset()
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
        sample = self.sample
        return {
            "step": scalarize(self.step, constants, self.number, *of_step),
            "save": scalarize(self.save, constants, self.number, *of_step),
            "sample": sample and scalarize(sample, constants, self.number, *of_sample),
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

    @property
    def number(self) -> jax.ShapeDtypeStruct:
        """What stands for the number of a step."""
        return shaped((), jnp.int32, self.specs["state"][0])

    def jaxprs(self) -> list[Any]:
        """Its functions, traced."""
        constants = self.specs["constants"]
        of_step = [self.specs[name] for name in ("state", "command")]
        of_sample = [self.specs[name] for name in ("state", "memory", "inputs")]
        traced = [
            jax.make_jaxpr(f)(constants, self.number, *of_step) for f in (self.step, self.save)
        ]
        if self.sample is not None:
            traced.append(jax.make_jaxpr(self.sample)(constants, self.number, *of_sample))
        return traced

    @functools.cached_property
    def has_rules(self) -> bool:
        """Whether a second derivative depends on how a user's rule computes the value.

        Once differentiated, ``jax.custom_vjp`` and ``jax.custom_jvp`` functions are what their
        rules compute; that a rule calls its own function again is seen by the calls that remain.
        """
        calls = _custom_calls(self)
        return any(calls) and calls != _custom_calls(self.differentiated_once)

    @functools.cached_property
    def differentiated_once(self) -> Recurrence:
        """The same values, by the rules of functions with a custom derivative."""

        def by_rules(function: Any) -> Any:
            def values(*arguments: Any) -> list[Array]:
                of_smooth, smooth = _by_smooth(function, *arguments)

                def with_values(smooth: list[Array]) -> Any:
                    results = of_smooth(smooth)
                    return _smooth(results), results

                return jax.vjp(with_values, smooth, has_aux=True)[2]

            return function and values

        functions = {name: by_rules(getattr(self, name)) for name in ("step", "save", "sample")}
        return replace(self, **functions)

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

    def differentiated(self, live: Live | None = None) -> Loop:
        """The loop with the programs of its derivative in reverse mode.

        ``live`` are the results whose cotangent is not zero, by default all. The other saved leaves
        are not saved here. A result that has no influence on the live ones has no part in the
        programs: 0 times an infinite slope would be NaN.
        """
        if live is None:
            live = tuple((name, i) for name in ENDS for i in self.smooth(name))
        if live not in self._derivatives:
            self._derivatives[live] = self._differentiated(live)
        return self._derivatives[live]

    @functools.cached_property
    def _derivatives(self) -> dict[Live, Loop]:
        return {}

    def _differentiated(self, live: Live) -> Loop:
        reached = self._reached(live)
        if reached not in self._steps_back:
            step = self._back("step", reached)
            sample = None if self.sample is None else self._back("sample", reached)
            self._steps_back[reached] = self.loop._replace(step_back=step, sample_back=sample)
        saved = tuple(self.layout.saved[i] for name, i in live if name == "saved")
        save = self._back("save", frozenset(live))
        return self._steps_back[reached]._replace(saved=saved, save_back=save)

    @functools.cached_property
    def _steps_back(self) -> dict[Reached, Loop]:
        return {}

    def _back(self, name: str, live: Reached) -> Program:
        """The scalar program of a function's derivative, which leaves out results not in ``live``.

        It is given the cotangents of all smooth results, but of ``save`` those of live ones alone.
        """
        function, (inner, outer) = getattr(self, name), FLOWS[name]
        pairs = [(group, i) for group in outer for i in range(len(self.specs[group]))]
        of_results = [(group, i) for group in outer for i in self.smooth(group)]
        given = [pair for pair in of_results if name != "save" or pair in live]

        def living(*arguments: Any) -> list[Array]:
            found = zip(pairs, function(*arguments), strict=True)
            return [x for pair, x in found if pair in live]

        def back(constants: Any, k: Any, *arguments: Any) -> list[Array]:
            *groups, cotangents = arguments
            bars = [x for pair, x in zip(given, cotangents, strict=True) if pair in live]
            return pullback(living)(constants, k, *groups, bars)

        cotangents = [self.specs[group][i] for group, i in given]
        specs = [self.specs["constants"], self.number, *(self.specs[group] for group in inner)]
        # Operands of a rollout vary from device to device, by a cast: its transpose is the sum over
        # the devices of the cotangents of what does not. So none is taken here.
        sums = not axes_of(self.number) or _has_sums(living, *specs)
        return program_of(jax.make_jaxpr(back)(*specs, cotangents), sums)

    def _reached(self, live: Live) -> Reached:
        """The leaves of state, memory and command with a cotangent at some step."""
        reached, before = set(live), set[Place]()
        while reached != before:
            before = set(reached)
            for result, needed in self._needed:
                reached |= needed if result in before else set()
        return frozenset(
            (group, i) for group, i in reached if i in self.smooth(group) and group in CARRY
        )

    def unmoved(self, moving: set[Place]) -> frozenset[Place]:
        """The floats among the results that depend on none of these leaves, at any step.

        ``moving``: places in constants, inputs, state and memory at the start. None is known where
        there is no scalar form.
        """
        floats = {(group, i) for group in ENDS for i in self.smooth(group)}
        try:
            flows = self._needed
        except Exception:  # the kernel that needs the same programs reports it
            if self.strict:
                raise
            return frozenset()
        moving, before = set(moving), set[Place]()
        while moving != before:
            before = set(moving)
            moving |= {result for result, needed in flows if needed & before}
        return frozenset(floats - moving)

    @functools.cached_property
    def _needed(self) -> list[tuple[Place, set[Place]]]:
        """For each result of each function its place, and the leaves of which it is computed."""
        found = []
        for name, (inner, outer) in FLOWS.items():
            program = getattr(self.loop, name)
            if program is None:
                continue
            inputs = dict(self._numbers(("constants", None, *inner)))
            outputs: dict[Place, list[int]] = {}
            for k, place in self._numbers(outer):
                outputs.setdefault(place, []).append(k)
            for place, numbers in outputs.items():
                needed = {inputs.get(k) for k in program.needed(numbers)} - {None}
                found.append((place, needed))
        return found

    def _numbers(self, groups: Sequence[str | None]) -> Iterator[tuple[int, Place]]:
        """Each number of some groups, one after the other, with its leaf; None is one number."""
        first = 0
        for group in groups:
            for i, leaf in enumerate(getattr(self.layout, group) if group else ()):
                for _ in range(leaf.size):
                    yield first, (group or "", i)
                    first += 1
            first += group is None

    def unused(self, live: Live) -> set[int]:
        """The numbers of the constants whose cotangent is 0 whatever the values are.

        None is known where the derivative has no scalar form.
        """
        try:
            derivative = self.differentiated(live)
        except Exception:  # the kernel that needs the same programs reports it
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
        self,
        constants: tuple[int, ...],
        inputs: tuple[int, ...],
        still: frozenset[Place] = frozenset(),
        count: int = 1,
    ) -> Recurrence:
        """The recurrence of this one and of its derivative in ``count`` directions.

        ``constants`` and ``inputs`` are the numbers of those leaves that have tangents. Of the
        other groups all floats have them, but those of the leaves ``still`` are 0: they have no
        part in the programs, where 0 times an infinite slope would be NaN.
        """
        key = constants, inputs, still, count
        if key not in self._tangents:
            chosen = {name: self.smooth(name) for name in GROUPS}
            chosen |= {"constants": constants, "inputs": inputs}
            self._tangents[key] = self._tangent(chosen, still, count)
        return self._tangents[key]

    @functools.cached_property
    def _tangents(self) -> dict[Any, Recurrence]:
        return {}

    def _tangent(self, chosen: Chosen, still: frozenset[Place], count: int) -> Recurrence:
        moving = {g: [i for i in chosen[g] if (g, i) not in still] for g in GROUPS}
        specs = {}
        for name in GROUPS:
            leaves = self.specs[name]
            tangents = [
                shaped((count, *leaves[i].shape), leaves[i].dtype, leaves[i]) for i in chosen[name]
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
                slopes = {
                    name: dict(zip(chosen[name], x[len(self.specs[name]) :], strict=True))
                    for name, x in given.items()
                }
                tangents = {name: [x[i] for i in moving[name]] for name, x in slopes.items()}
                points = {name: [x[i] for i in moving[name]] for name, x in primals.items()}

                def of_points(points: dict[str, list[Array]]) -> Any:
                    merged = {name: list(x) for name, x in primals.items()}
                    for name, point in points.items():
                        for i, x in zip(moving[name], point, strict=True):
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
            step=pushed(self.step, *FLOWS["step"]),
            save=pushed(self.save, *FLOWS["save"]),
            sample=pushed(self.sample, *FLOWS["sample"]),
            primal=self,
            chosen=chosen,
            still=still,
            count=count,
        )

    # By lax.scan, for programs without a scalar form, and where there are no kernels.

    @kept_together()
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
        k, command = cast((jnp.int32(0), command), axes_of(arrays))
        carry = (k, state, memory, command)
        carry, rows = scan(row, carry, None, self.layout.rows, None)
        k, state, memory, command = carry
        last = self.save(constants, k, state, command)
        rows = [jnp.concatenate([x, y[None]]) for x, y in zip(rows, last, strict=True)]
        rows = [x.reshape(len(x), -1) for x in rows]
        return [*rows, *(x.reshape(-1) for x in (*state, *memory, *command))]


def _custom_calls(recurrence: Recurrence) -> list[int]:
    """How many functions with a custom derivative each function calls for its results."""
    counts = []
    for closed in recurrence.jaxprs():
        needed, _ = pe.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
        names = [equation.primitive.name for equation in equations(needed)]
        counts.append(sum(name.startswith(("custom_jvp", "custom_vjp")) for name in names))
    return counts


def _has_sums(function: Callable[..., list[Array]], *arguments: Any) -> bool:
    """Whether a user's rule of a derivative adds over the devices, or may do so."""

    def pushed(*arguments: Any) -> Any:
        of_smooth, smooth = _by_smooth(function, *arguments)
        return jax.jvp(lambda smooth: _smooth(of_smooth(smooth)), (smooth,), (smooth,))

    names = {equation.primitive.name for equation in equations(jax.make_jaxpr(pushed)(*arguments))}
    return not names.isdisjoint(("psum_invariant", "custom_lin"))


def _smooth(leaves: Sequence[Any]) -> list[Any]:
    return [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]


def pullback(function: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
    """The derivative of ``function(constants, k, *groups)`` in reverse mode.

    ``back(constants, k, *groups, cotangents)`` are the cotangents of the smooth leaves of constants
    and groups, in order; ``cotangents`` are those of the smooth results.
    """

    def back(constants: Any, k: Any, *arguments: Any) -> list[Array]:
        *groups, cotangents = arguments
        of_smooth, smooth = _by_smooth(function, constants, k, *groups)
        like = [shaped(x.shape, x.dtype, x) for x in smooth]
        push = lambda tangents: jax.jvp(  # noqa: E731
            lambda smooth: _smooth(of_smooth(smooth)), (smooth,), (tangents,)
        )[1]
        # the same as jax.vjp, in two thirds of its time
        return jax.linear_transpose(push, like)(list(cotangents))[0]

    return back


def _by_smooth(
    function: Callable[..., list[Array]], constants: Any, k: Any, *groups: Any
) -> tuple[Callable[[list[Array]], list[Array]], list[Array]]:
    """``function(constants, k, *groups)`` by the smooth leaves of constants and groups; these."""
    leaves, structure = jax.tree.flatten((constants, *groups))
    places = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(leaf.dtype, jnp.floating)]

    def of_smooth(smooth: list[Array]) -> list[Array]:
        merged = list(leaves)
        for place, leaf in zip(places, smooth, strict=True):
            merged[place] = leaf
        constants, *groups = jax.tree.unflatten(structure, merged)
        return function(constants, k, *groups)

    return of_smooth, [leaves[i] for i in places]

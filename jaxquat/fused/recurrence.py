"""A loop as a function with its derivatives, before any of it is scalar code.

A ``Recurrence`` has the functions of a time loop (step, save, sample) as jaxprs: ``functions``, and
``branched`` with a ``lax.cond`` for each rare branch. From these it makes on demand ``loop``, the
scalar programs of the values; ``with_vjp``, those of ``transposed``, the derivatives in reverse
mode, too; and ``tangent``, the derivative in forward mode, again a recurrence: a state (x, v, n)
with an integer n becomes (x, v, n, dx, dv). So state and tangents go through one loop, no states
are kept, and several tangents share the values.

An array has a ``Place``, its group and its number in it. A ``Key`` (``keys``) is a place in a role,
such as the cotangent of a result; its ``Leaf`` (``kernel``) has dtype and size.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar, cast

import jax.numpy as jnp

from jaxquat._internal.branches import branched
from jaxquat._internal.jaxprs import depends_on
from jaxquat._internal.varying import axes_of, shaped
from jaxquat.fused import passes
from jaxquat.fused.ir.program import Program
from jaxquat.fused.kernel import CARRY, ENDS, FLOWS, GROUPS, Leaf, Leaves, Loop, is_smooth
from jaxquat.fused.trace.tracing import program_of
from jaxquat.fused.trace.values import scalar_dtype

# The cost to keep a number and to read it again, in additions, where the kept states exceed
# the cache: 700 to 850 with 16384 members and 1024 steps, but 150 with 64 or 1024 members
# (benchmarks/fused.py --tables keeping). How many members there will be is not known here.
KEEPING = 800
# A kernel unrolls loops up to so many operations, as ``size`` counts them: the loops over the steps
# of a sample run a third longer otherwise, the loop over the columns of a Hessian a sixth shorter.
LOOPS = 10_000
Place = tuple[str, int]  # of a leaf: its group and its number within the group
Live = tuple[Place, ...]  # results with a cotangent
F = TypeVar("F", bound=Callable[..., Any])
Functions = dict[str, Any]  # closed jaxprs of (*constants, k, *groups), flat


class Tangents(NamedTuple):
    """Which leaves of a recurrence have tangents."""

    numbers: dict[str, tuple[int, ...]]  # of the leaves with tangents, by group
    zero: frozenset[Place]  # the leaves among these whose tangents are 0 at every step
    directions: int  # the number of tangents of each leaf


def _kept(method: F) -> F:
    """Compute the results of a method once for the same arguments, and keep them in the object."""

    @functools.wraps(method)
    def kept(self: Any, *args: Any) -> Any:
        key = (method.__name__, *args)
        results = self.__dict__.setdefault("_results", {})
        if key not in results:
            results[key] = method(self, *args)
        return results[key]

    return cast(F, kept)


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The functions of a time loop, of flat arrays; ``of_functions(branched)`` makes them.

    "step" returns the next state, "save" the values of a row, and "sample", with a controller or
    inputs, command and memory from step k on.
    """

    specs: dict[str, Leaves]  # shapes and dtypes of one member's arrays, for each of ``GROUPS``
    of_functions: Callable[[bool], Functions]
    steps: int
    sample_every: int
    save_every: int
    segment: int | None  # steps between two kept states; None: ``kept_every``
    strict: bool  # whether a program without a scalar form is an error, else a ``lax.scan``
    value_by_scan: bool = False  # for a value without derivative, whose products are faster
    first: int = 0  # the first row that is saved
    reverse: bool = False  # the order of the rows of inputs and saved values
    primal: Recurrence | None = None  # the recurrence of which this is the tangent
    tangents: Tangents | None = None

    @functools.cached_property
    def functions(self) -> Functions:
        """The functions, which always compute rare branches."""
        return self.of_functions(False)

    @functools.cached_property
    def branched(self) -> Functions:
        """The functions with a ``lax.cond`` in place of each rare branch."""
        return self.of_functions(True)

    @functools.cached_property
    def _programs(self) -> dict[str, Program]:
        return {name: program_of(closed, loops=LOOPS) for name, closed in self.branched.items()}

    @functools.cached_property
    def operations(self) -> int:
        """About how many operations the programs have; those of a tangent are not made for this."""
        if self.primal is not None and self.tangents is not None:
            return self.primal.operations * (1 + self.tangents.directions)
        return sum(len(program.ops) for program in self._programs.values())

    @functools.cached_property
    def loop(self) -> Loop:
        """The loop with the programs of the values."""
        return self.layout._replace(**self._programs)

    @functools.cached_property
    def kept_every(self) -> int:
        """Steps between two kept states: 1 if a state costs less than a step, else the root."""
        if self.segment is not None:
            return self.segment
        step, sample = self._programs["step"], self._programs.get("sample")
        again = step.cost() + (sample.cost() / self.sample_every if sample is not None else 0)
        kept = sum(leaf.size for group in CARRY for leaf in self.specs[group])
        return 1 if again > KEEPING * kept else math.isqrt(self.steps - 1) + 1

    @functools.cached_property
    def layout(self) -> Loop:
        """The loop without programs: enough to know the arrays of a kernel."""
        for place in self.places(GROUPS):
            scalar_dtype(self.spec(place).dtype)
        loop = Loop(
            steps=self.steps, sample_every=self.sample_every, save_every=self.save_every,
            segment=self.kept_every, first=self.first, reverse=self.reverse,
        )  # fmt: skip
        return loop._replace(**self.specs)

    @property
    def number(self) -> Leaf:
        """The shape and dtype of the number of a step."""
        return shaped((), jnp.int32, self.specs["state"][0])

    def smooth(self, group: str) -> tuple[int, ...]:
        """Return the numbers of the float leaves in a group."""
        return tuple(i for i, leaf in enumerate(self.specs[group]) if is_smooth(leaf))

    @property
    def smooth_ends(self) -> Live:
        """The float leaves among the results."""
        return tuple((group, i) for group in ENDS for i in self.smooth(group))

    def inputs(self, name: str) -> list[Place]:
        """Return the leaves that a function takes; the number of the step is ("k", 0)."""
        groups, _ = FLOWS[name]
        return [*self.places(("constants",)), ("k", 0), *self.places(groups)]

    def places(self, groups: Sequence[str]) -> list[Place]:
        """Return all leaves of some groups."""
        return [(group, i) for group in groups for i in range(len(self.specs[group]))]

    def spec(self, place: Place) -> Leaf:
        """Return shape and dtype of a leaf."""
        group, i = place
        return self.number if group == "k" else self.specs[group][i]

    # Reverse mode.

    @_kept
    def with_vjp(self, live: Live | None = None) -> Loop:
        """Return the loop with the programs of ``vjp`` of the results ``live``.

        They leave out results without influence on these: 0 times an infinite slope would be NaN.
        """
        live = self.smooth_ends if live is None else live
        parts = self.live_of_functions(live)
        programs = {f"{name}_back": self._back(name, part) for name, part in parts.items()}
        saved = tuple(self.layout.saved[i] for name, i in live if name == "saved")
        return self.loop._replace(saved=saved, **programs)

    @_kept
    def _back(self, name: str, live: frozenset[Place]) -> Program:
        return program_of(*self.transposed(name, live))

    def live_of_functions(self, live: Live) -> dict[str, frozenset[Place]]:
        """Return, for each function, its results that have a cotangent at some step."""
        carried = frozenset(place for place in self._upstream(live) if place[0] in CARRY)
        return {k: frozenset(live) if k == "save" else carried for k in self.branched}

    def transposed(self, name: str, live: frozenset[Place]) -> tuple[Any, bool]:
        """Return the derivative of a function by live results, and whether to add over devices."""
        function, inner = self.branched[name], self.inputs(name)
        results = self.places(FLOWS[name][1])
        floats = [(group, i) for group, i in results if i in self.smooth(group)]
        taken = [place for place in floats if name != "save" or place in live]
        numbers = [results.index(place) for place in taken if place in live]
        back, order = passes.vjp(function, numbers), iter(range(len(inner), 10**9))
        cotangents = [next(order) if p in live else self.spec(p) for p in taken]
        # The operands of a loop are cast to vary over devices. The transpose of that cast sums
        # the cotangents over the devices, so no sum is taken here.
        sums = not axes_of(self.number) or passes.has_sums(function, numbers)
        return passes.arranged(back, [*range(len(inner)), *cotangents]), sums

    def unmoved(self, moving: set[Place]) -> frozenset[Place]:
        """Return the float results whose derivative with respect to ``moving`` is always zero."""
        return frozenset(self.smooth_ends) - _closure(moving, self._slopes)

    @functools.cached_property
    def _slopes(self) -> list[tuple[Place, Place]]:
        """Leaves (argument, result) of functions that may have a derivative."""
        slopes = []
        for name, closed in self.branched.items():
            inputs, results = self.inputs(name), self.places(FLOWS[name][1])
            smooth = [p for p in inputs if p[0] != "k" and p[1] in self.smooth(p[0])]
            bits = {place: 1 << number for number, place in enumerate(smooth)}
            marks = depends_on(closed, [bits.get(place, 0) for place in inputs], slope=True)
            for place, bit in bits.items():
                slopes += [(place, x) for x, m in zip(results, marks, strict=True) if m & bit]
        return slopes

    def unused(self, live: Live) -> set[int]:
        """Return the numbers of the constants on which the results ``live`` do not depend."""
        reached = self._upstream(live)
        return {i for i in self.smooth("constants") if ("constants", i) not in reached}

    def _upstream(self, live: Live) -> set[Place]:
        return _closure(live, [(result, place) for place, result in self._slopes])

    # Forward mode.

    @_kept
    def tangent(
        self,
        constants: tuple[int, ...],
        inputs: tuple[int, ...],
        zero: frozenset[Place] = frozenset(),
        count: int = 1,
    ) -> Recurrence:
        """Return the recurrence of the values and of their derivative in ``count`` directions.

        In other groups than ``constants`` and ``inputs`` all floats but ``zero`` have tangents.
        """
        numbers = {name: self.smooth(name) for name in GROUPS}
        numbers |= {"constants": constants, "inputs": inputs}
        tangents = Tangents(numbers, zero, count)

        specs = {}
        for group in GROUPS:
            leaves = [self.specs[group][i] for i in tangents.numbers[group]]
            more = [shaped((tangents.directions, *x.shape), x.dtype, x) for x in leaves]
            specs[group] = (*self.specs[group], *more)
        return replace(
            self, segment=self.kept_every, specs=specs, primal=self, tangents=tangents,
            of_functions=self._mapped(lambda name, f: self._pushed(name, f, tangents)),
        )  # fmt: skip

    def _pushed(self, name: str, closed: Any, tangents: Tangents) -> Any:
        """Apply ``passes.jvp``; in each group the tangents follow the leaves."""
        numbers, zero, count = tangents
        inner, outer = self.inputs(name), self.places(FLOWS[name][1])
        has = lambda place: place[1] in numbers.get(place[0], ())  # noqa: E731
        moving = [k for k, p in enumerate(inner) if has(p) and p not in zero]
        slopes = [k for k, p in enumerate(outer) if has(p)]
        both = passes.jvp(closed, moving, slopes, count)

        def grouped(places: Sequence[Place], with_tangent: Sequence[int]) -> list[Any]:
            later = {k: len(places) + j for j, k in enumerate(with_tangent)}
            order: list[Any] = []
            for group in dict.fromkeys(group for group, _ in places):
                here = [k for k, (g, _) in enumerate(places) if g == group]
                order += here
                for k in here:
                    if has(places[k]):
                        spec = self.spec(places[k])
                        order.append(later.get(k, shaped((count, *spec.shape), spec.dtype, spec)))
            return order

        return passes.arranged(both, grouped(inner, moving), grouped(outer, slopes))

    # Rules of custom derivatives.

    @functools.cached_property
    def has_rules(self) -> bool:
        """Whether a second derivative depends on how a user's rule computes the value."""
        calls = lambda f: [passes.custom_calls(x) for x in f.functions.values()]  # noqa: E731
        before = calls(self)
        has_vjp = any("custom_vjp" in kinds for kinds in before)
        return has_vjp or (any(before) and before != calls(self.by_rules))

    @functools.cached_property
    def by_rules(self) -> Recurrence:
        """The same values, computed by the rules of functions with a custom derivative."""
        of_functions = self._mapped(lambda _, closed: passes.by_rules(closed))
        return replace(self, segment=self.kept_every, of_functions=of_functions)

    def _mapped(self, rule: Callable[[str, Any], Any]) -> Callable[[bool], Functions]:
        def of_functions(separate: bool) -> Functions:
            functions = self.branched if separate else self.functions
            return {name: rule(name, closed) for name, closed in functions.items()}

        return of_functions


def recurrence_of(functions: Functions, **attributes: Any) -> Recurrence:
    """Return the recurrence of hoisted functions."""

    def of_functions(separate: bool) -> Functions:
        return {k: branched(f) for k, f in functions.items()} if separate else functions

    return Recurrence(of_functions=of_functions, **attributes)


def _closure(places: Iterable[Place], edges: Sequence[tuple[Place, Place]]) -> set[Place]:
    reached, before = set(places), set[Place]()
    while reached != before:
        before = set(reached)
        reached |= {end for begin, end in edges if begin in before}
    return reached

"""The time loop of a kernel, written once for all targets.

For each k "forward" samples command and memory every ``sample_every`` steps, saves a row every
``save_every``, and takes a step; "keeping" keeps state, memory and command before every ``segment``
steps. "backward" reads the cotangents of the results::

    for each segment, the last one first:
        state, memory, command = kept[segment]
        for each step k of the segment: go forward, with past[k] = state, memory, command
        for each step k, the last one first:
            apply the transposed derivatives of step, save and sample at past[k]

With ``first`` the row before the first step is left out. With ``reverse`` the first step reads and
saves the last row. Each derivative adds to the cotangents of the constants; that of the step
replaces the cotangent of the state. The cotangent of a command is a sum over the steps that used
it. The loops are written with ``targets.lanes``: a number such as k is a name in the text, ``when``
stands for ``if``.
"""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

from jaxquat.fused.kernel import CARRY, FLOWS, OPERANDS, RESULTS, START, Arrays, Loop, split
from jaxquat.fused.targets.lanes import Lanes

Named = dict[tuple[str, str], Arrays]  # by role and group
Values = list[Any]  # one for each number of the leaves
PROGRAMS = (*FLOWS, *(f"{name}_back" for name in FLOWS))
Number = Any  # an int, or an integer of the kernel with Python's operators


def write(target: Lanes, loop: Loop, kind: str) -> None:
    """Write the kernel "forward", "keeping" or "backward" for the target's current members."""
    kernel = _backward if kind == "backward" else _forward
    kernel(target, loop, loop.arrays(OPERANDS[kind]), loop.arrays(RESULTS[kind]))


class _Member:
    """A member in the time loop: its constants, and by group the variables that steps change."""

    def __init__(self, target: Lanes, loop: Loop, operands: Named) -> None:
        self.target, self.loop, self.inputs = target, loop, operands["primal", "inputs"]
        constants = target.read(operands["primal", "constants"])
        programs = {x: getattr(loop, x) for x in PROGRAMS if getattr(loop, x) is not None}
        self.parts = {x: target.apart(program, constants) for x, program in programs.items()}
        self.carried = {group: target.variable(getattr(loop, group)) for group in CARRY}

    def run(self, name: str, k: Number, **inputs: Values) -> dict[str, Values]:
        """Return the results of a function by group; ``inputs`` are not carried."""
        inner, outer = FLOWS[name]
        values = [inputs[x] if x in inputs else self.carried[x].get() for x in inner]
        program, constants = self.parts[name]
        run = self.target.saved if name == "save" else self.target.run
        results = run(program, [*constants, k, *itertools.chain(*values)])
        parts = split(results, *(getattr(self.loop, group) for group in outer))
        return dict(zip(outer, parts, strict=True))

    def sample(self, k: Number) -> None:
        if self.loop.sample is None:
            return
        with self.target.when(k.multiple_of(self.loop.sample_every)):
            row = self.target.read(self.inputs, _input_row(self.loop, k))
            self.set(self.run("sample", k, inputs=row))

    def step(self, k: Number) -> None:
        self.set(self.run("step", k))

    def set(self, values: dict[str, Values]) -> None:
        for group, x in values.items():
            self.carried[group].set(x)


def _forward(target: Lanes, loop: Loop, operands: Named, results: Named) -> None:
    member = _Member(target, loop, operands)
    for group in ("state", "memory"):
        member.carried[group].set(target.read(operands["primal", group]))
    member.carried["command"].set(target.zeros(loop.command))

    def keep(k: Number) -> None:
        if ("residual", "state") in results:
            with target.when(k.multiple_of(loop.segment)):
                for group, variable in member.carried.items():
                    target.write(results["residual", group], variable.get(), k // loop.segment)

    def save(k: Number, row: Number) -> None:
        with _if_saved(target, loop, row):
            saved = member.run("save", k)["saved"]
            target.write(results["result", "saved"], saved, _saved_row(loop, row))

    if loop.sample is None:  # then a row is a loop of its own, in which nothing is asked
        with target.loop(loop.rows + 1) as row:
            first = row * loop.save_every
            save(first, row)
            with target.when(row < loop.rows), target.loop(loop.save_every) as j:
                keep(first + j)
                member.step(first + j)
    else:
        with target.loop(loop.steps + 1) as k:
            with target.when(k < loop.steps):
                keep(k)
                member.sample(k)
            with target.when(k.multiple_of(loop.save_every)):
                save(k, k // loop.save_every)
            with target.when(k < loop.steps):
                member.step(k)
    for group, variable in member.carried.items():
        target.write(results["result", group], variable.get())


def _backward(target: Lanes, loop: Loop, operands: Named, results: Named) -> None:
    member = _Member(target, loop, operands)
    past = {group: target.variable(getattr(loop, group), loop.segment) for group in CARRY}
    cotangents = _Cotangents(member, operands, results)
    last = {group: target.read(operands["result", group]) for group in FLOWS["save"][0]}
    cotangents.of_function("save", loop.steps, _saved_row(loop, loop.rows), last)
    with target.loop(loop.segments) as later:
        segment: Number = loop.segments - 1 - later
        begin = segment * loop.segment
        count = (loop.steps - begin).at_most(loop.segment)
        for group, variable in member.carried.items():
            variable.set(target.read(operands["residual", group], segment))
        with target.loop(count) as j:  # go forward again
            for group in ("state", "memory"):
                past[group].set(member.carried[group].get(), j)
            member.sample(begin + j)
            past["command"].set(member.carried["command"].get(), j)
            with target.when(j + 1 < count):
                member.step(begin + j)
        with target.loop(count) as later_step:  # go back
            j = count - 1 - later_step
            cotangents.back(begin + j, {group: x.get(j) for group, x in past.items()})
    for group in ("constants", "state", "memory"):
        target.write(results["gradient", group], cotangents.by[group].get())


def _if_saved(target: Lanes, loop: Loop, row: Number) -> contextlib.AbstractContextManager[None]:
    return target.when(row >= loop.first) if loop.first else contextlib.nullcontext()


def _saved_row(loop: Loop, row: Number) -> Number:
    return loop.rows - row if loop.reverse else row - loop.first


def _input_row(loop: Loop, k: Number) -> Number:
    row = k // loop.sample_every
    return loop.samples - 1 - row if loop.reverse else row


class _Cotangents:
    """The cotangents of a member, propagated back from step to step; ``by`` group."""

    def __init__(self, member: _Member, operands: Named, results: Named) -> None:
        self.member, self.target, self.loop = member, member.target, member.loop
        self.saved, self.inputs = operands["cotangent", "saved"], results["gradient", "inputs"]
        self.leaves = {group: results["gradient", group].leaves for group in START}
        self.leaves["command"] = operands["cotangent", "command"].leaves
        by = {group: self.target.variable(self.leaves[group]) for group in ("constants", *CARRY)}
        by["constants"].set(self.target.zeros(self.leaves["constants"]))
        for group in CARRY:
            by[group].set(self.target.read(operands["cotangent", group]))
        self.by = by

    def back(self, k: Number, past: dict[str, Values]) -> None:
        loop, target = self.loop, self.target
        self.of_function("step", k, k, past)
        row = k // loop.save_every
        with target.when(k.multiple_of(loop.save_every)), _if_saved(target, loop, row):
            self.of_function("save", k, _saved_row(loop, row), past)
        if loop.sample_back is not None:
            with target.when(k.multiple_of(loop.sample_every)):
                row = _input_row(loop, k)
                inputs = target.read(self.member.inputs, row)
                self.of_function("sample", k, row, past | {"inputs": inputs})
                self.by["command"].set(target.zeros(self.leaves["command"]))

    def of_function(self, name: str, k: Number, row: Number, past: dict[str, Values]) -> None:
        """Apply the derivative of a function; ``row``: of its inputs or saved values."""
        inner, outer = FLOWS[name]
        get = lambda x: self.target.read(self.saved, row) if x == "saved" else self.by[x].get()  # noqa: E731
        values = itertools.chain(*(past[group] for group in inner), *map(get, outer))
        program, constants = self.member.parts[f"{name}_back"]
        results = self.target.run(program, [*constants, k, *values])
        groups = ("constants", *inner)
        parts = split(results, *(self.leaves[group] for group in groups))
        for group, part in zip(groups, parts, strict=True):
            if group == "inputs":
                self.target.write(self.inputs, part, row)
            elif group in outer:  # the function replaced the values
                self.by[group].set(part)
            else:
                self.by[group].add(part)

"""The time loop of a kernel, written once for all targets.

For each k "forward" samples command and memory every ``sample_every`` steps, saves a row every
``save_every``, and takes a step; "keeping" keeps state, memory and command before every ``segment``
steps. "backward" reads the cotangents of the results::

    for each segment, the last one first:
        state, memory, command = kept[segment]
        for each step k of the segment: go forward, with past[k] = state, memory, command
        for each step k, the last one first:
            apply the transposed derivatives of step, save and sample at past[k]

Each derivative adds to the cotangents of the constants; that of the step replaces the cotangent of
the state. The cotangent of a command is a sum over the steps that used it. The loops are written
with ``targets.lanes``: a number such as k is a name in the text, ``when`` stands for ``if``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxquat.fused.kernel import CARRY, OPERANDS, RESULTS, START, Arrays, Loop, split
from jaxquat.fused.targets.lanes import Lanes

Named = dict[tuple[str, str], Arrays]  # by role and group
Values = list[Any]  # one for each number of the leaves
Number = Any  # an int, or an integer of the kernel with Python's operators


def write(target: Lanes, loop: Loop, kind: str) -> None:
    """Write the kernel "forward", "keeping" or "backward" for the target's current members."""
    kernel = _backward if kind == "backward" else _forward
    kernel(target, loop, loop.arrays(OPERANDS[kind]), loop.arrays(RESULTS[kind]))


class _Member:
    """A member in the time loop: its constants, and by group the variables that steps change."""

    def __init__(self, target: Lanes, loop: Loop, operands: Named) -> None:
        self.target, self.loop, self.inputs = target, loop, operands["primal", "inputs"]
        self.constants = target.read(operands["primal", "constants"])
        self.carried = {group: target.variable(getattr(loop, group)) for group in CARRY}

    def point(self, k: Number) -> Values:
        return [
            *self.constants, k, *self.carried["state"].get(), *self.carried["command"].get()
        ]  # fmt: skip

    def sample(self, k: Number) -> None:
        target, loop, carried = self.target, self.loop, self.carried
        if loop.sample is None:
            return
        with target.when(k.multiple_of(loop.sample_every)):
            values = target.read(self.inputs, k // loop.sample_every)
            before = *carried["state"].get(), *carried["memory"].get()
            results = target.run(loop.sample, [*self.constants, k, *before, *values])
            command, memory = split(results, loop.command, loop.memory)
            carried["command"].set(command)
            carried["memory"].set(memory)

    def step(self, k: Number) -> None:
        self.carried["state"].set(self.target.run(self.loop.step, self.point(k)))


def _forward(target: Lanes, loop: Loop, operands: Named, results: Named) -> None:
    member = _Member(target, loop, operands)
    for group in ("state", "memory"):
        member.carried[group].set(target.read(operands["primal", group]))
    member.carried["command"].set(target.zeros(loop.command))
    with target.loop(loop.steps + 1) as k:
        with target.when(k < loop.steps):
            if ("residual", "state") in results:
                with target.when(k.multiple_of(loop.segment)):
                    for group, variable in member.carried.items():
                        target.write(results["residual", group], variable.get(), k // loop.segment)
            member.sample(k)
        with target.when(k.multiple_of(loop.save_every)):
            row = target.run(loop.save, member.point(k))
            target.write(results["result", "saved"], row, k // loop.save_every)
        with target.when(k < loop.steps):
            member.step(k)
    for group, variable in member.carried.items():
        target.write(results["result", group], variable.get())


def _backward(target: Lanes, loop: Loop, operands: Named, results: Named) -> None:
    member = _Member(target, loop, operands)
    past = {group: target.variable(getattr(loop, group), loop.segment) for group in CARRY}
    cotangents = _Cotangents(member, operands, results)
    last = [target.read(operands["result", group]) for group in ("state", "command")]
    cotangents.save([*member.constants, loop.steps, *last[0], *last[1]], loop.rows)
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
        point = [*self.member.constants, k, *past["state"], *past["command"]]
        self.step(point)
        with target.when(k.multiple_of(loop.save_every)):
            self.save(point, k // loop.save_every)
        if loop.sample_back is not None:
            with target.when(k.multiple_of(loop.sample_every)):
                self.sample(k, past, k // loop.sample_every)

    def run(self, program: Any, values: Values, **receivers: Callable[[Values], None]) -> None:
        results = self.target.run(program, values)
        parts = split(results, *(self.leaves[group] for group in receivers))
        for receive, part in zip(receivers.values(), parts, strict=True):
            receive(part)

    def step(self, point: Values) -> None:
        constants, state, command = (self.by[x] for x in ("constants", "state", "command"))
        inputs = [*point, *state.get()]
        receivers = {"constants": constants.add, "state": state.set, "command": command.add}
        self.run(self.loop.step_back, inputs, **receivers)

    def save(self, point: Values, row: Number) -> None:
        inputs = [*point, *self.target.read(self.saved, row)]
        receivers = {group: self.by[group].add for group in ("constants", "state", "command")}
        self.run(self.loop.save_back, inputs, **receivers)

    def sample(self, k: Number, past: dict[str, Values], row: Number) -> None:
        by, target = self.by, self.target
        inputs = [*self.member.constants, k, *past["state"], *past["memory"]]
        inputs += [*target.read(self.member.inputs, row), *by["command"].get(), *by["memory"].get()]
        self.run(
            self.loop.sample_back, inputs, constants=by["constants"].add, state=by["state"].add,
            memory=by["memory"].set, inputs=lambda part: target.write(self.inputs, part, row),
        )  # fmt: skip
        by["command"].set(target.zeros(self.leaves["command"]))

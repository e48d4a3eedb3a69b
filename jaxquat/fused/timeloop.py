"""The time loop of a kernel, written once for all targets.

The kernel "forward" computes, for one member::

    for k in range(steps + 1):
        if k < steps:
            if k % segment == 0: kept[k // segment] = state, memory, command    # only in "keeping"
            if k % sample_every == 0: command, memory = sample(k, state, memory, inputs[...])
        if k % save_every == 0: saved[k // save_every] = save(k, state, command)
        if k < steps: state = step(k, state, command)

The kernel "backward" reads the cotangents of the results of "forward", and goes back from the last
step to the first. Step k needs the state before it, so "backward" goes back segment by segment and
begins each segment with the state that was kept::

    for each segment, the last one first:
        state, memory, command = kept[segment]
        for each step k of the segment:             # again
            past[k].state, past[k].memory = state, memory
            if k % sample_every == 0: command, memory = sample(k, state, memory, inputs[...])
            past[k].command = command               # for step k; kept has the one before
            state = step(k, state, command)
        for each step k, the last one first:        # back
            apply the transposed derivatives of step, save and sample at past[k]

Each derivative adds to the cotangents of the constants. The derivative of the step replaces the
cotangent of the state. The cotangent of a command is a sum over the steps that used it; the sample
that computed the command uses this sum, and the sum begins again from zero.

These loops are written with the operations of ``targets.lanes``, which write text: a number such as
k is a name in it, ``when`` stands for ``if`` and ``loop`` for ``for``, and values that change from
step to step are a ``Variable``.
"""

from __future__ import annotations

from typing import Any

from jaxquat.fused.kernel import Backward, Carried, Loop, Start, split
from jaxquat.fused.targets.lanes import Lanes

Values = list[Any]  # one for each number of the leaves
Number = Any  # an int, or an integer of the kernel with Python's operators


def write(target: Lanes, loop: Loop, kind: str) -> None:
    """Write the kernel "forward", "keeping" or "backward" for the target's current members."""
    if kind == "backward":
        _backward(target, loop)
    else:
        _forward(target, loop, kind == "keeping")


class _Member:
    """A member in the time loop: its constants, and the variables that its steps change."""

    def __init__(self, target: Lanes, loop: Loop, operands: Start | Backward) -> None:
        self.target, self.loop, self.inputs = target, loop, operands.inputs
        self.constants = target.read(operands.constants)
        self.carried = Carried(*(target.variable(leaves) for leaves in loop.carried))

    def point(self, k: Number) -> Values:
        """Return the inputs of ``step`` and ``save``."""
        return [*self.constants, k, *self.carried.state.get(), *self.carried.command.get()]

    def sample(self, k: Number) -> None:
        """Set command and memory at the first step of each sample."""
        target, loop, (state, memory, command) = self.target, self.loop, self.carried
        if loop.sample is None:
            return
        with target.when(k.multiple_of(loop.sample_every)):
            values = target.read(self.inputs, k // loop.sample_every)
            inputs = [*self.constants, k, *state.get(), *memory.get(), *values]
            results = split(target.run(loop.sample, inputs), loop.command, loop.memory)
            command.set(results[0])
            memory.set(results[1])

    def step(self, k: Number) -> None:
        """Replace the state by the next one."""
        self.carried.state.set(self.target.run(self.loop.step, self.point(k)))


def _forward(target: Lanes, loop: Loop, keeping: bool) -> None:
    """The kernels "forward" and "keeping"."""
    operands, results = loop.forward(keeping)
    member = _Member(target, loop, operands)
    member.carried.state.set(target.read(operands.state))
    member.carried.memory.set(target.read(operands.memory))
    member.carried.command.set(target.zeros(loop.command))
    with target.loop(loop.steps + 1) as k:
        with target.when(k < loop.steps):
            if results.kept:
                with target.when(k.multiple_of(loop.segment)):
                    for arrays, variable in zip(results.kept, member.carried, strict=True):
                        target.write(arrays, variable.get(), k // loop.segment)
            member.sample(k)
        with target.when(k.multiple_of(loop.save_every)):
            row = target.run(loop.save, member.point(k))
            target.write(results.saved, row, k // loop.save_every)
        with target.when(k < loop.steps):
            member.step(k)
    for arrays, variable in zip(results.last, member.carried, strict=True):
        target.write(arrays, variable.get())


def _backward(target: Lanes, loop: Loop) -> None:
    """The kernel "backward"."""
    operands, gradients = loop.backward()
    member = _Member(target, loop, operands)
    past = Carried(*(target.variable(leaves, loop.segment) for leaves in loop.carried))
    cotangents = _Cotangents(member, operands, gradients)
    state, command = target.read(operands.last.state), target.read(operands.last.command)
    cotangents.save([*member.constants, loop.steps, *state, *command], loop.rows)
    with target.loop(loop.segments) as later:
        segment: Number = loop.segments - 1 - later
        begin = segment * loop.segment
        count = (loop.steps - begin).at_most(loop.segment)
        for arrays, variable in zip(operands.kept, member.carried, strict=True):
            variable.set(target.read(arrays, segment))
        with target.loop(count) as j:  # again
            past.state.set(member.carried.state.get(), j)
            past.memory.set(member.carried.memory.get(), j)
            member.sample(begin + j)
            past.command.set(member.carried.command.get(), j)
            with target.when(j + 1 < count):
                member.step(begin + j)
        with target.loop(count) as later_step:  # back
            j = count - 1 - later_step
            cotangents.back(begin + j, Carried(*(variable.get(j) for variable in past)))
    target.write(gradients.constants, cotangents.constants.get())
    target.write(gradients.state, cotangents.carried.state.get())
    target.write(gradients.memory, cotangents.carried.memory.get())


class _Cotangents:
    """The cotangents of a member, propagated back from step to step."""

    def __init__(self, member: _Member, operands: Backward, gradients: Start) -> None:
        self.member, self.target, self.loop = member, member.target, member.loop
        self.of_saved, self.by_inputs = operands.cotangents.saved, gradients.inputs
        self.constants = self.target.variable(gradients.constants.leaves)
        self.constants.set(self.target.zeros(gradients.constants.leaves))
        last = operands.cotangents.last
        self.carried = Carried(*(self.target.variable(arrays.leaves) for arrays in last))
        for arrays, variable in zip(last, self.carried, strict=True):
            variable.set(self.target.read(arrays))

    def back(self, k: Number, past: Carried[Values]) -> None:
        """Apply the transposed derivatives of step k, in the reverse order of "forward"."""
        loop, target = self.loop, self.target
        point = [*self.member.constants, k, *past.state, *past.command]
        self.step(point)
        with target.when(k.multiple_of(loop.save_every)):
            self.save(point, k // loop.save_every)
        if loop.sample_back is not None:
            with target.when(k.multiple_of(loop.sample_every)):
                self.sample(k, past, k // loop.sample_every)

    def step(self, point: Values) -> None:
        """Propagate back through ``step`` at a point."""
        assert self.loop.step_back is not None
        (state, _, command), constants = self.carried, self.constants
        results = self.target.run(self.loop.step_back, [*point, *state.get()])
        parts = split(results, constants.leaves, state.leaves, command.leaves)
        constants.add(parts[0])
        state.set(parts[1])
        command.add(parts[2])

    def save(self, point: Values, row: Number) -> None:
        """Propagate the cotangents of a row back through ``save`` at a point."""
        assert self.loop.save_back is not None
        (state, _, command), constants = self.carried, self.constants
        values = self.target.read(self.of_saved, row)
        results = self.target.run(self.loop.save_back, [*point, *values])
        parts = split(results, constants.leaves, state.leaves, command.leaves)
        for variable, part in zip((constants, state, command), parts, strict=True):
            variable.add(part)

    def sample(self, k: Number, past: Carried[Values], row: Number) -> None:
        """Propagate back through ``sample`` before step k."""
        assert self.loop.sample_back is not None
        target, (state, memory, command) = self.target, self.carried
        values = target.read(self.member.inputs, row)
        inputs = [*self.member.constants, k, *past.state, *past.memory, *values]
        results = target.run(self.loop.sample_back, [*inputs, *command.get(), *memory.get()])
        groups = self.constants, state, memory, self.by_inputs
        parts = split(results, *(group.leaves for group in groups))
        self.constants.add(parts[0])
        state.add(parts[1])
        memory.set(parts[2])
        target.write(self.by_inputs, parts[3], row)
        command.set(target.zeros(command.leaves))

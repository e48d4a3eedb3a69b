"""The tour of docs/fused_inside.md: what each stage of the fused engine makes of one small torque.

``python docs/tour.py`` writes it into the page, between the two marks. Whoever changes the engine
runs it again; a test compares the stages that depend neither on the processor nor on jax.
"""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxquat as jq
from jaxquat.fused import passes
from jaxquat.fused.ir.expansion import contracted, expanded
from jaxquat.fused.targets import host
from jaxquat.fused.trace.hoisting import hoist
from jaxquat.fused.trace.tracing import scalarize
from jaxquat.simulation.engines import kernels
from jaxquat.simulation.simulation import checked_simulation

PAGE = Path(__file__).with_name("fused_inside.md")
MARKS = "<!-- tour.py writes from here -->\n", "<!-- to here -->\n"

BODY = jq.Body.from_principal(jnp.array([0.6, 1.0, 1.5], jnp.float32))
GAIN = jnp.float32(0.5)
START = jq.State(
    jnp.array([1.0, 0.0, 0.0, 0.0], jnp.float32), jnp.array([0.1, 0.2, 0.3], jnp.float32)
)
NUMBER = jax.ShapeDtypeStruct((), jnp.float32)


def torque(t, s, p):
    """The torque of the tour: ``lambda t, s, p: -p * s.omega``."""
    return -p * s.omega


def stages() -> Iterator[tuple[str, str, str]]:
    """The title of each stage, a sentence or two, and what the engine prints."""
    turned = jax.make_jaxpr(lambda omega, p: torque(0.0, START._replace(omega=omega), p))
    yield (
        "JAX traces",
        "The result is a jaxpr, which has arrays and no Python.",
        str(turned(START.omega, GAIN)),
    )

    closed = lambda omega: torque(0.0, START._replace(omega=omega), jnp.exp(2.0 * GAIN))  # noqa: E731
    hoisted, fixed = hoist(jax.make_jaxpr(closed)(START.omega))
    shapes = ", ".join(str(jnp.shape(x)) for x in fixed)
    text = f"computed once, shapes: {shapes}\n{hoisted}"
    yield (
        "What does not change is hoisted",
        (
            "The gain is now `jnp.exp(2.0 * gain)`. JAX computes what does not change during a run "
            "once, before it, and the result becomes an argument of the kernel "
            "(`trace/hoisting.py`)."
        ),
        text,
    )

    yield (
        "Forward mode",
        (
            "The same torque, and its derivative along tangents of gain and rate, here in one "
            "direction (`jvp` in `passes.py`)."
        ),
        str(passes.jvp(hoisted, moving=[0, 1], results=[0], count=1)),
    )
    yield (
        "Reverse mode",
        (
            "A cotangent of the torque gives the cotangents of gain and rate. Each pass maps a "
            "jaxpr to a jaxpr, so passes can be chained to derivatives of any order (`vjp` in "
            "`passes.py`)."
        ),
        str(passes.vjp(hoisted, live=[0])),
    )

    program = scalarize(lambda omega, p: torque(0.0, START._replace(omega=omega), p), START.omega,
                        NUMBER)  # fmt: skip
    yield (
        "Arrays become scalars",
        (
            "Each primitive has a rule (`trace/`). An elementwise one gives an operation for each "
            "number; `reshape` and `broadcast_in_dim` only rearrange names."
        ),
        str(program),
    )

    folded = scalarize(lambda x: (x + 0.0) * 1.0 - (-x) * (2.0 + 3.0), NUMBER)
    yield (
        "The builder shortens",
        (
            "In `(x + 0) * 1 - (-x) * (2 + 3)` the builder folds constants, leaves out neutral "
            "operations and moves signs (`ir/builder.py`)."
        ),
        str(folded),
    )

    drag = scalarize(lambda omega, p: -p * omega - omega * abs(omega), NUMBER, NUMBER)
    yield (
        "Products and sums are joined",
        (
            "This is `-p * omega - omega * abs(omega)` before and after. The program decides where "
            "a product and a sum are rounded together, not LLVM (`ir/expansion.py`)."
        ),
        f"{drag}\n\n{contracted(drag)}",
    )

    sine = scalarize(jnp.exp, NUMBER)
    counts = expanded(sine).counts()
    yield (
        "Functions are expanded",
        ("LLVM has no `exp` for vectors. `ir/elementary.py` replaces it with these operations:"),
        ", ".join(f"{count} {name}" for name, count in counts.items()),
    )

    simulation = checked_simulation(
        jq.schemes.lie_midpoint, BODY, torque, START, jq.grid(0.0, 0.01, 100, save_every=50), GAIN
    )
    recurrence, _, _ = kernels.trace(simulation)
    loop = recurrence.loop
    arrays = "\n".join(
        f"{name}: {', '.join(f'{leaf.size} {leaf.dtype}' for leaf in getattr(loop, name)) or '-'}"
        for name in ("constants", "state", "saved")
    )
    yield (
        "The loop over time",
        (
            "A rollout of 100 steps by `lie_midpoint`. The kernel has these arrays for each body "
            "(`kernel.py`), and programs for a step and for a row (`timeloop.py` says when):"
        ),
        f"{arrays}\nstep: {sum(loop.step.counts().values())} operations",
    )

    back = recurrence.with_vjp().step_back
    assert back is not None
    yield (
        "Its derivative",
        (
            "This is the scalar program of the `vjp` of the step. The kernel runs it from the last "
            "step to the first."
        ),
        f"derivative of the step: {sum(back.counts().values())} operations",
    )

    text, _ = host.module(loop, "forward", (False,) * len(loop.operands("forward")), 8)
    lines = [line for line in text.splitlines() if re.search(r"fmul <8 x float> %v\d+, %", line)]
    yield (
        "LLVM",
        (
            "Each operation is one line, for a vector of bodies, here of eight (`targets/`). These "
            "are the first products of the kernel:"
        ),
        "\n".join(lines[:4]),
    )

    import llvmlite.binding as llvm

    machine, parsed = host.machine(), llvm.parse_assembly(text)
    parsed.triple, parsed.data_layout = machine.triple, str(machine.target_data)
    code = machine.emit_assembly(parsed)
    kinds = re.findall(r"^\s+(vf?n?m(?:add|sub|ul)\w*ps)\b", code, re.M)
    counted = dict(zip(*np.unique(kinds, return_counts=True), strict=True))
    yield (
        "Machine code",
        ("This runs on the processor on which this page was written; XLA calls it (`loading.py`)."),
        "\n".join(f"{count:4} {name}" for name, count in counted.items()),
    )


def sections() -> list[str]:
    """The stages as Markdown."""
    return [
        f"{textwrap.fill(f'**{number}. {title}.** {prose}', 100)}\n\n```text\n{text}\n```\n"
        for number, (title, prose, text) in enumerate(stages(), 1)
    ]


def written(page: str) -> str:
    """The part of the page that this script writes."""
    return page.split(MARKS[0])[1].split(MARKS[1])[0]


if __name__ == "__main__":
    before = PAGE.read_text().split(MARKS[0])[0]
    after = PAGE.read_text().split(MARKS[1])[1]
    PAGE.write_text(before + MARKS[0] + "\n" + "\n".join(sections()) + "\n" + MARKS[1] + after)

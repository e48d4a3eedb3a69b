"""The tour of docs/architecture.md: what each stage of the fused engine makes of one small torque.

``python docs/tour.py`` writes it into the page, between the two marks. Whoever changes the engine
runs it again; a test compares the stages that depend neither on the processor nor on jax.
"""

import textwrap
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp

import jaxquat as jq
from jaxquat.fused import passes
from jaxquat.fused.ir.expansion import lowered
from jaxquat.fused.trace.hoisting import hoist
from jaxquat.fused.trace.tracing import scalarize
from jaxquat.simulation.engines import kernels
from jaxquat.simulation.simulation import checked_simulation

PAGE = Path(__file__).with_name("architecture.md")
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
    closed = lambda omega: torque(0.0, START._replace(omega=omega), jnp.exp(2.0 * GAIN))  # noqa: E731
    hoisted, fixed = hoist(jax.make_jaxpr(closed)(START.omega))
    shapes = ", ".join(str(jnp.shape(x)) for x in fixed)
    yield (
        "Hoisting",
        (
            "Here the gain is `jnp.exp(2.0 * gain)`. JAX computes such constants of a run once, "
            "before it, and passes them to the kernel (`trace/hoisting.py`)."
        ),
        f"computed once, shapes: {shapes}\n{hoisted}",
    )

    yield (
        "Reverse mode",
        (
            "`vjp` in `passes.py` maps a jaxpr to the jaxpr of its derivative, here from the "
            "cotangent of the torque to those of gain and rate. Passes can be chained to "
            "derivatives of any order."
        ),
        str(passes.vjp(hoisted, live=[0])),
    )

    program = scalarize(lambda omega, p: torque(0.0, START._replace(omega=omega), p), START.omega,
                        NUMBER)  # fmt: skip
    yield (
        "Scalars",
        (
            "Each primitive has a rule in `trace/`. The rule of an elementwise primitive emits one "
            "operation for each number."
        ),
        str(program),
    )

    drag = scalarize(lambda omega, p: -p * omega - omega * abs(omega), NUMBER, NUMBER)
    yield (
        "Rounding",
        (
            "`ir/expansion.py` joins products and sums that are rounded together: "
            "`-p * omega - omega * abs(omega)` before and after."
        ),
        f"{drag}\n\n{lowered(drag)}",
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
    back = recurrence.with_vjp().step_back
    assert back is not None
    step, step_back = (sum(program.counts().values()) for program in (loop.step, back))
    yield (
        "The loop over time",
        (
            "For a rollout of 100 steps of `lie_midpoint`, the kernel has these arrays for each "
            "body (`kernel.py`). It runs the program of a step forwards and that of its derivative "
            "backwards (`timeloop.py`). `targets/` then writes one line of LLVM for each operation."
        ),
        f"{arrays}\nstep: {step} operations\nderivative of the step: {step_back} operations",
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

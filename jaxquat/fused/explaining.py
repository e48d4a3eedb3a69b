"""What the fused engine makes of a step, in words."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxquat.body import Body
from jaxquat.fused import cpu, engine
from jaxquat.fused.program import Program
from jaxquat.fused.scalarize import NotScalarError
from jaxquat.mechanics import State, Step, Torque, check_state
from jaxquat.scanning import Problem

COSTS = {"div": 8, "sqrt": 10, "rem": 40, "sin": 25, "cos": 25, "exp": 20, "log": 25, "tanh": 30, "atan2": 40}


def explain(step: Step, body: Body, torque: Torque, state: State, params: Any = None, *, dt: ArrayLike = 0.01) -> str:
    """Print, and return, what ``engine="fused"`` makes of one step: scalar operations, what stops it, the estimated floor.

    The floor counts vector operations of the step (a division 8, a square root 10, transcendental functions 20 to 40), two a cycle.
    """
    state = check_state("state", state)
    dtype = state.q.dtype
    problem = Problem(step, body, torque, jnp.zeros((), dtype), jnp.asarray(dt, dtype), 1, params, None)
    lines = []
    lacking = cpu.missing() if jax.default_backend() == "cpu" else None
    if lacking:
        lines.append(lacking)
    try:
        traced = engine.trace(problem, state, None, 1, 1, None)
        for title, program in (("step", traced.loop.step), ("derivative of the step", traced.differentiated().step_back)):
            assert program is not None
            lines += _described(title, program)
    except NotScalarError as error:
        lines.append(f'no scalar form, so that engine "auto" takes the scan: {error}')
    text = "\n".join(lines)
    print(text)  # noqa: T201
    return text


def _described(title: str, program: Program) -> list[str]:
    counts = program.counts()
    cycles = sum(COSTS.get(name, 1) * count for name, count in counts.items()) / 2
    kinds = ", ".join(f"{count} {name}" for name, count in counts.items())
    return [
        f"{title}: {sum(counts.values())} scalar operations ({kinds})",
        f"  floor: about {cycles:.0f} cycles for a vector of bodies",
    ]

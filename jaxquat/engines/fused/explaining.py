"""What the fused engine makes of a rollout, in words."""

from __future__ import annotations

from typing import Any

from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.state import State
from jaxquat.engines.fused import engine
from jaxquat.engines.fused.program import Program
from jaxquat.engines.fused.scalarize import NotScalarError
from jaxquat.schemes.scheme import Scheme
from jaxquat.simulation.grid import Grid
from jaxquat.simulation.simulation import simulation

COSTS = {
    "div": 8, "sqrt": 10, "rem": 40, "sin": 25, "cos": 25, "exp": 20, "expm1": 20, "log": 25, "log1p": 35, "tanh": 30, "atan2": 40,
    "pow": 80,
}  # fmt: skip


def explain(
    scheme: Scheme | Step,
    body: Body,
    torque: Torque,
    start: State,
    grid: Grid,
    params: Any = None,
    *,
    check: bool = False,
    checkpoint: str | int = "none",
    **options: Any,
) -> None:
    """Print what ``jq.rollout(..., engine="auto")`` does with the same arguments, and its cost.

    That is which engine it takes, why, and the scalar operations of the step, of the controller and
    of ``save``, and of their derivatives, with a floor under the time of each: vector operations (a
    division 8, a square root 10, transcendental functions 20 to 40), two a cycle.

    Raises:
        ValueError, TypeError: those of ``jq.rollout``.
    """
    given = simulation(scheme, body, torque, start, grid, params, checkpoint=checkpoint, **options)
    hindrance = engine.missing()
    if check or checkpoint == "reversible":
        hindrance = (
            "only the scan engine has check=True"
            if check
            else 'only the scan engine has checkpoint="reversible"'
        )
    lines = []
    try:
        traced = engine.trace(given)
        lines += _programs(traced.loop, given.save is not None, "")
    except NotScalarError as error:
        hindrance = hindrance or f"no scalar form: {error}"
    except Exception as error:  # as engine="auto" does
        hindrance = hindrance or str(error)
    else:
        try:
            lines += _programs(traced.differentiated(), given.save is not None, "_back")
        except Exception as error:
            lines.append(f"derivative: by a scan (no scalar form: {error})")
    verdict = f"the scan ({hindrance})" if hindrance else "the fused kernel"
    print("\n".join([f'engine="auto" takes {verdict}', *lines]))  # noqa: T201


def _programs(loop: Any, saves: bool, suffix: str) -> list[str]:
    lines = []
    for title, shown in (("step", True), ("sample", True), ("save", saves)):
        program = getattr(loop, title + suffix)
        if program is not None and shown:
            name = {"sample": "controller"}.get(title, title)
            lines += _described(f"derivative of the {name}" if suffix else name, program)
    return lines


def _described(title: str, program: Program) -> list[str]:
    counts = program.counts()
    cycles = sum(COSTS.get(name, 1) * count for name, count in counts.items()) / 2
    kinds = ", ".join(f"{count} {name}" for name, count in counts.items())
    return [
        f"{title}: {sum(counts.values())} scalar operations ({kinds})",
        f"  floor: about {cycles:.0f} cycles for a vector of bodies",
    ]

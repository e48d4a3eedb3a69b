"""``jq.explain``: which engine ``engine="auto"`` chooses, why, and what a step costs.

The rollout is checked and traced, not compiled. The floor is the cost of the scalar programs
(``Program.cost``) divided by two, because a processor starts two vector operations per cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from jaxquat._internal.checks import one_of
from jaxquat._internal.renamed import refuses_old_keywords
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.state import State
from jaxquat.fused import engine, lowering
from jaxquat.fused.errors import NotScalarError
from jaxquat.fused.ir.program import Program
from jaxquat.fused.recurrence import Recurrence
from jaxquat.schemes.scheme import Scheme
from jaxquat.simulation.engines import kernels, scan
from jaxquat.simulation.grid import Grid, GridAt
from jaxquat.simulation.options import RolloutOptions, only_scan
from jaxquat.simulation.simulation import Simulation, checked_simulation


@refuses_old_keywords("explain")
def explain(
    scheme: Scheme | Step,
    body: Body,
    torque: Torque,
    start: State,
    grid: Grid | GridAt,
    params: Any = None,
    *,
    stage: str | None = None,
    options: RolloutOptions = RolloutOptions(),  # noqa: B008
    **others: Any,
) -> None:
    """Print what ``jq.rollout`` with ``engine="auto"`` does with the same arguments.

    ``others`` are the other keyword arguments of ``jq.rollout``; ``options.engine`` is ignored. The
    first line has the engine, and the reason if it is the scan. The next lines count the scalar
    operations of step, controller and ``save``, and of their derivatives, each with a floor for its
    time at two vector operations per cycle (a division counts as 8, a square root as 10,
    transcendental functions as 20 to 80). The last line says how often a state is kept for reverse
    mode.

    With ``stage`` it prints step, ``save`` and controller after a stage of the fused engine:
    "hoisted", without constants of a run; "branched", with a ``cond`` for each rare branch; "jvp"
    and "vjp", the derivatives; "scalar", the programs for machine code. The first four are jaxprs.

    Raises:
        ValueError, TypeError: as ``jq.rollout``, and for an unknown stage.
        NotScalarError: a stage cannot be reached.

    Examples:
        >>> body = jq.Body.from_principal(jnp.array([1.0, 2.0, 3.0]))
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.1, 0.2, 0.3]))
        >>> jq.explain(jq.rkmk4, body, jq.torques.zero, start, jq.grid(0.0, 0.01, 100))
        engine="auto" takes the fused kernel
        ...
        kept for the derivative: a state every ... steps
    """
    simulation = checked_simulation(
        scheme, body, torque, start, grid, params, options=options, **others
    )
    if stage is not None:
        one_of("stage", stage, tuple(_STAGES))
        recurrence, _, _ = kernels.trace(simulation)
        print("\n\n".join(_STAGES[stage](recurrence)))  # noqa: T201
        return
    hindrance = engine.missing()
    if option := only_scan(options):
        hindrance = f"only the scan engine has {option}"
    jax.eval_shape(lambda: scan.run(simulation))  # raises the errors of the user's functions
    reason, lines = _counted(simulation)
    hindrance = hindrance or reason
    verdict = f"the scan ({hindrance})" if hindrance else "the fused kernel"
    print("\n".join([f'engine="auto" takes {verdict}', *lines]))  # noqa: T201


def _counted(simulation: Simulation) -> tuple[str | None, list[str]]:
    """Return why the rollout cannot be a kernel, or None; and the lines about the programs."""
    lines, saves = [], simulation.save is not None
    try:
        recurrence, _, _ = kernels.trace(simulation, strict=False)
        if recurrence.value_by_scan:
            lines.append("value alone: by a scan, whose matrix products are faster")
        lines += _programs(lowering.checked_loop(recurrence, "forward"), saves, "")
    except Exception as error:  # as engine="auto" does
        return _why(error), lines
    try:
        lines += _programs(lowering.checked_loop(recurrence, "backward"), saves, "_back")
        lines.append(f"kept for the derivative: a state every {recurrence.kept_every} steps")
    except Exception as error:
        lines.append(f"derivative: by a scan ({_why(error)})")
    return None, lines


def _why(error: Exception) -> str:
    if isinstance(error, NotScalarError):
        return f"no scalar form: {error}"
    if isinstance(error, NotImplementedError):
        return str(error)
    return f"the engine failed with {type(error).__name__}: {error}"


def _programs(loop: Any, saves: bool, suffix: str) -> list[str]:
    lines = []
    for title, name in (("step", "step"), ("sample", "controller"), ("save", "save")):
        program: Program | None = getattr(loop, title + suffix)
        if program is None or (title == "save" and not saves):
            continue
        name, counts = f"derivative of the {name}" if suffix else name, program.counts()
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        lines.append(f"{name}: {sum(counts.values())} scalar operations ({kinds})")
        lines.append(f"  floor: about {program.cost() / 2:.0f} cycles for a vector of bodies")
    return lines


def _vjps(f: Recurrence) -> dict[str, Any]:
    parts = f.live_of_functions(f.smooth_ends)
    return {name: f.transposed(name, live)[0] for name, live in parts.items()}


def _titled(functions: dict[str, Any]) -> list[str]:
    title = {"sample": "controller"}
    return [f"{title.get(name, name)}:\n{function}" for name, function in functions.items()]


_STAGES: dict[str, Callable[[Recurrence], list[str]]] = {
    "hoisted": lambda f: _titled(f.functions),
    "branched": lambda f: _titled(f.branched),
    "jvp": lambda f: _titled(f.tangent(f.smooth("constants"), f.smooth("inputs")).branched),
    "vjp": lambda f: _titled(_vjps(f)),
    "scalar": lambda f: _titled({name: getattr(f.loop, name) for name in f.branched}),
}

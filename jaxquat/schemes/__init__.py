"""Every scheme of the library, and what is known of each, in one table.

``SCHEMES[name].step`` is also ``jaxquat.<name>``. Tests and docs are generated from the table.
"""

from typing import Literal, NamedTuple

from jaxquat.mechanics import Step
from jaxquat.schemes import tableaus
from jaxquat.schemes.munthe_kaas import rkmk
from jaxquat.schemes.pcdm import zhao
from jaxquat.schemes.tableaus import Tableau, tableau

__all__ = ["SCHEMES", "Scheme", "Tableau", "rkmk", "tableau", "tableaus"]


class Scheme(NamedTuple):
    """The facts about a scheme."""

    step: Step
    order: int
    evaluations: int  # torque evaluations per step
    torques: Literal["any", "attitude", "potential"]  # "any": of time, attitude and rate
    conserves: tuple[Literal["norm", "momentum", "energy"], ...]
    reversible: bool
    aux: bool  # whether aux states are admitted
    source: str


def _lifted(name: str, method: Tableau, source: str) -> Scheme:
    step = rkmk(method)
    stages = len(method.b)
    step.__name__ = step.__qualname__ = name
    step.__doc__ = (
        f"{source}, lifted to the rotation group; order {method.order}, {stages} torque evaluations. See ``rkmk``.\n\n"
        "``step(body, torque, t, state, dt, params) -> state``; one body, dtype of the state."
    )
    return Scheme(step, method.order, stages, "any", ("norm",), False, True, source)


SCHEMES: dict[str, Scheme] = {
    "lie_euler": _lifted("lie_euler", tableaus.EULER, "Euler"),
    "rkmk2": _lifted("rkmk2", tableaus.MIDPOINT, "explicit midpoint"),
    "rkmk3": _lifted("rkmk3", tableaus.KUTTA3, "Kutta's third order"),
    "rkmk4": _lifted("rkmk4", tableaus.RK4, "the classical Runge-Kutta method; Terze, Mueller and Zlatar 2016 (B.1)"),
    "rkmk5": _lifted("rkmk5", tableaus.DORMAND_PRINCE5, "Dormand-Prince 5"),
    "rkmk6": _lifted("rkmk6", tableaus.BUTCHER6, "Butcher's sixth order"),
    "zhao": Scheme(zhao, 2, 2, "any", ("norm",), False, True, "Zhao and van Wachem 2013"),
}

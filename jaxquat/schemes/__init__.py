"""Every scheme of the library, and what is known of each, in one table.

``SCHEMES[name].step`` is also ``jaxquat.<name>``. Tests and docs are generated from the table.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from jaxquat.dynamics.contract import Step
from jaxquat.schemes import composition, hoffmann, tableaus
from jaxquat.schemes.commutator_free import cf4
from jaxquat.schemes.composition import compose
from jaxquat.schemes.frozen_frames import crouch_grossman
from jaxquat.schemes.hoffmann import full_quat, full_quat_corrected, half_quat
from jaxquat.schemes.implicit import NEWTON, lgvi, lie_midpoint, simo_wong
from jaxquat.schemes.munthe_kaas import rkmk
from jaxquat.schemes.pcdm import pcdm1, zhao
from jaxquat.schemes.projected import formulation1, formulation2
from jaxquat.schemes.splitting import (
    damped,
    no_squish,
    no_squish_kl6,
    symmetric_top,
    symmetric_top_bm4,
    symmetric_top_suzuki4,
)
from jaxquat.schemes.tableaus import Tableau, tableau

__all__ = [
    "SCHEMES",
    "Scheme",
    "Tableau",
    "compose",
    "composition",
    "crouch_grossman",
    "damped",
    "hoffmann",
    "rkmk",
    "tableau",
    "tableaus",
]


class Scheme(NamedTuple):
    """The facts about a scheme.

    Attributes:
        step: ``step(body, torque, t, state, dt, params) -> state``.
        order: of the global error in dt; 0 for one that does not converge.
        evaluations: of the torque, per step.
        torques: which it admits: "any", of time, attitude and rate; "attitude", of time and attitude; "potential", those that
            have one.
        conserves: what stays constant to rounding: "norm" of q, the free body's "momentum" in the world, its "energy".
        reversible: whether a step of -dt undoes a step of dt.
        aux: whether states with aux are admitted.
        source: where it comes from.
    """

    step: Step
    order: int
    evaluations: int
    torques: Literal["any", "attitude", "potential"]
    conserves: tuple[Literal["norm", "momentum", "energy"], ...]
    reversible: bool
    aux: bool
    source: str


def _named(name: str, step: Step, doc: str) -> Step:
    step.__name__ = step.__qualname__ = name
    step.__doc__ = f"{doc}\n\n``step(body, torque, t, state, dt, params) -> state``; one body, dtype of the state."
    return step


def _lifted(name: str, method: Tableau, source: str) -> Scheme:
    stages = len(method.b)
    doc = f"{source}, lifted to the rotation group; order {method.order}, {stages} torque evaluations. See ``rkmk``."
    return Scheme(
        _named(name, rkmk(method), doc), method.order, stages, "any", ("norm",), False, True, source
    )


def _crouch_grossman(name: str, method: Tableau, source: str) -> Scheme:
    stages = len(method.b)
    doc = f"Crouch-Grossman, order {method.order}, {stages} torque evaluations. See ``crouch_grossman``."
    return Scheme(
        _named(name, crouch_grossman(method), doc),
        method.order,
        stages,
        "any",
        ("norm",),
        False,
        True,
        source,
    )


SCHEMES: dict[str, Scheme] = {
    "lie_euler": _lifted("lie_euler", tableaus.EULER, "Euler"),
    "rkmk2": _lifted("rkmk2", tableaus.MIDPOINT, "explicit midpoint"),
    "rkmk3": _lifted("rkmk3", tableaus.KUTTA3, "Kutta's third order"),
    "rkmk4": _lifted(
        "rkmk4",
        tableaus.RK4,
        "the classical Runge-Kutta method; Terze, Mueller and Zlatar 2016 (B.1)",
    ),
    "rkmk5": _lifted("rkmk5", tableaus.DORMAND_PRINCE5, "Dormand-Prince 5"),
    "rkmk6": _lifted("rkmk6", tableaus.BUTCHER6, "Butcher's sixth order"),
    "crouch_grossman3": _crouch_grossman(
        "crouch_grossman3", tableaus.CROUCH_GROSSMAN3, "Crouch and Grossman 1993"
    ),
    "crouch_grossman4": _crouch_grossman(
        "crouch_grossman4", tableaus.CROUCH_GROSSMAN4, "Owren and Marthinsen 1999"
    ),
    "cf4": Scheme(cf4, 4, 4, "any", ("norm",), False, True, "Celledoni, Marthinsen and Owren 2003"),
    "zhao": Scheme(zhao, 2, 2, "any", ("norm",), False, True, "Zhao and van Wachem 2013"),
    "pcdm1": Scheme(pcdm1, 2, 1, "attitude", ("norm",), False, False, "zhao with one torque"),
    "formulation1": Scheme(
        formulation1,
        4,
        4,
        "any",
        ("norm",),
        False,
        True,
        "Terze, Mueller and Zlatar 2016 (C.1)-(C.8)",
    ),
    "formulation2": Scheme(
        formulation2,
        4,
        4,
        "any",
        ("norm",),
        False,
        True,
        "Terze, Mueller and Zlatar 2016 (C.9)-(C.11)",
    ),
    "half_quat": Scheme(half_quat, 1, 1, "any", (), False, True, "Hoffmann 1978, 9.1"),
    "full_quat": Scheme(full_quat, 0, 1, "any", (), False, False, "Hoffmann 1978, 10.1"),
    "full_quat_corrected": Scheme(
        full_quat_corrected,
        1,
        1,
        "any",
        (),
        False,
        False,
        "Hoffmann 1978, 10.1, with the right equation",
    ),
    "no_squish": Scheme(
        no_squish, 2, 2, "attitude", ("norm", "momentum"), True, False, "Miller et al. 2002"
    ),
    "symmetric_top": Scheme(
        symmetric_top, 2, 2, "attitude", ("norm", "momentum"), True, False, "Dullweber et al. 1997"
    ),
    "symmetric_top_suzuki4": Scheme(
        symmetric_top_suzuki4, 4, 6, "attitude", ("norm", "momentum"), True, False, "Suzuki 1990"
    ),
    "symmetric_top_bm4": Scheme(
        symmetric_top_bm4,
        4,
        7,
        "attitude",
        ("norm", "momentum", "energy"),
        True,
        False,
        "Blanes and Moan 2002",
    ),
    "no_squish_kl6": Scheme(
        no_squish_kl6, 6, 10, "attitude", ("norm", "momentum"), True, False, "Kahan and Li 1997"
    ),
    "lgvi": Scheme(
        lgvi,
        2,
        2,
        "attitude",
        ("norm", "momentum"),
        True,
        False,
        "Moser and Veselov 1991; Lee et al. 2007",
    ),
    "lie_midpoint": Scheme(
        lie_midpoint,
        2,
        1 + NEWTON,
        "any",
        ("norm", "energy"),
        True,
        False,
        "implicit midpoint rule",
    ),
    "simo_wong": Scheme(
        simo_wong,
        2,
        1 + NEWTON,
        "attitude",
        ("norm", "momentum", "energy"),
        True,
        False,
        "Simo and Wong 1991",
    ),
}

for _scheme in SCHEMES.values():
    composition.reversible_if(_scheme.reversible, _scheme.step)

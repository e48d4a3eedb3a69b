"""All schemes, and the factories that make more. The common ones are also ``jq.<name>``."""

from __future__ import annotations

import dataclasses

from jaxquat.schemes import hoffmann, tableaus, weights
from jaxquat.schemes.composition import compose
from jaxquat.schemes.damping import damp
from jaxquat.schemes.formulations import formulation1, formulation2
from jaxquat.schemes.hoffmann import full_quat, full_quat_corrected, half_quat
from jaxquat.schemes.implicit import lgvi, lie_midpoint, simo_wong
from jaxquat.schemes.munthe_kaas import rkmk
from jaxquat.schemes.pcdm import pcdm1, zhao
from jaxquat.schemes.restarting import Episode, restart
from jaxquat.schemes.scheme import Scheme
from jaxquat.schemes.splitting import (
    no_squish,
    no_squish_kl6,
    symmetric_top,
    symmetric_top_bm4,
    symmetric_top_suzuki4,
)
from jaxquat.schemes.switching import split_steps
from jaxquat.schemes.tableaus import Tableau, tableau

__all__ = [
    "SCHEMES",
    "Episode",
    "Scheme",
    "Tableau",
    "compose",
    "damp",
    "formulation1",
    "formulation2",
    "full_quat",
    "full_quat_corrected",
    "half_quat",
    "hoffmann",
    "lgvi",
    "lie_euler",
    "lie_midpoint",
    "no_squish",
    "no_squish_kl6",
    "pcdm1",
    "restart",
    "rkmk",
    "rkmk2",
    "rkmk3",
    "rkmk4",
    "rkmk5",
    "rkmk6",
    "simo_wong",
    "split_steps",
    "symmetric_top",
    "symmetric_top_bm4",
    "symmetric_top_suzuki4",
    "tableau",
    "tableaus",
    "weights",
    "zhao",
]


def _lifted(tableau: Tableau, name: str, source: str) -> Scheme:
    doc = f"{source}; order {tableau.order}, {len(tableau.b)} torques a step. See ``rkmk``."
    return dataclasses.replace(rkmk(tableau), name=name, source=source, doc=doc)


lie_euler: Scheme = _lifted(tableaus.EULER, "lie_euler", "Euler, lifted")
rkmk2: Scheme = _lifted(tableaus.MIDPOINT, "rkmk2", "explicit midpoint, lifted")
rkmk3: Scheme = _lifted(tableaus.KUTTA3, "rkmk3", "Kutta, lifted")
rkmk4: Scheme = _lifted(
    tableaus.RK4, "rkmk4", "classical Runge-Kutta, lifted; Terze, Mueller and Zlatar 2016 (B.1)"
)
rkmk5: Scheme = _lifted(tableaus.DORMAND_PRINCE5, "rkmk5", "Dormand-Prince 5, lifted")
rkmk6: Scheme = _lifted(tableaus.BUTCHER6, "rkmk6", "Butcher 6, lifted")

_FAMILIES = (
    (lie_euler, rkmk2, rkmk3, rkmk4, rkmk5, rkmk6),
    (zhao, pcdm1),
    (formulation1, formulation2),
    (half_quat, full_quat, full_quat_corrected),
    (no_squish, symmetric_top, symmetric_top_suzuki4, symmetric_top_bm4, no_squish_kl6),
    (lgvi, lie_midpoint, simo_wong),
)
SCHEMES: dict[str, Scheme] = {each.name: each for family in _FAMILIES for each in family}

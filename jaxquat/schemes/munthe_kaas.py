"""Runge-Kutta-Munthe-Kaas methods, from any explicit tableau.

H. Munthe-Kaas, BIT 38, 1998, 92-111, and Appl. Numer. Math. 29, 1999, 115-127. With order 4 it is
(B.1) of Z. Terze, A. Mueller and D. Zlatar, Multibody Syst. Dyn. 38, 2016, 201-225 (whose
"dexp(omega, K)" is dexpinv(K) applied to omega).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jax import Array, lax

from jaxquat import so3
from jaxquat._internal.checks import instance
from jaxquat.dynamics.motion import rates_of
from jaxquat.dynamics.state import Rates, State, displaced
from jaxquat.quaternion import correct_norm, exp, expm1, multiply
from jaxquat.schemes.scheme import Scheme, StepArguments, StepObject
from jaxquat.schemes.tableaus import Tableau, combine


def rkmk(tableau: Tableau) -> Scheme:
    """Lift a tableau to the rotation group: ``q = q0 exp(u)``, ``u' = dexpinv(u, omega)``.

    It keeps its order for torques of time, attitude and rate. The tableau itself integrates aux
    states, positions and velocities.

    Examples:
        >>> jq.schemes.rkmk(jq.schemes.tableaus.HEUN).order
        2
    """
    instance("tableau", tableau, Tableau, "a Tableau")
    return Scheme(
        MuntheKaas(tableau),
        name=f"rkmk(tableau of order {tableau.order})",
        order=tableau.order,
        evaluations=len(tableau.b),
        conserves=("norm",),
        source="Munthe-Kaas 1998, 1999",
    )


@dataclass(frozen=True)
class MuntheKaas(StepObject):
    """The step of ``rkmk``."""

    tableau: Tableau

    def take(self, at: StepArguments) -> State:
        """Take one step."""
        body, torque, t, state, dt, params, _ = at.in_own_units()
        slopes = stages(self.tableau, rates_of(body, torque, params), t, state, dt)
        return moved(state, combine(self.tableau.b, slopes, dt))


def stages(
    tableau: Tableau,
    rates: Callable[[Array, State], Rates],
    t: Array,
    state: State,
    dt: Array,
    first: Rates | None = None,
) -> list[tuple[Array, Rates]]:
    """Return the slopes of u and of everything else at all stages; ``first`` may give the first."""
    # The first stage is at u = 0.
    slopes = [(state.omega, rates(t, state) if first is None else first)]
    for row, node in zip(tableau.a, tableau.c, strict=True):
        u, shift = combine(row, slopes, dt)
        # The barriers keep XLA on CPU from computing exp again for each use of its result
        # (docs/performance.md).
        turned = multiply(state.q, lax.optimization_barrier(exp(u)))
        stage = displaced(state, turned, shift)
        slopes.append((so3.dexpinv(u, stage.omega), rates(t + node * dt, stage)))
    return slopes


def moved(state: State, shift: tuple[Array, Rates]) -> State:
    """Return the state turned and displaced by ``shift``, a slope times dt; q is unit again."""
    u, others = shift
    q = correct_norm(state.q + multiply(state.q, lax.optimization_barrier(expm1(u))))
    return displaced(state, q, others)

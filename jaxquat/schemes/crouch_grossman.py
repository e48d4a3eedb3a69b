"""Crouch-Grossman methods: the attitude of a stage is a product of exponentials.

P. E. Crouch and R. Grossman, J. Nonlinear Sci. 3, 1993, 1-33; B. Owren and A. Marthinsen, BIT 39,
1999, 116-142 (order 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jax import Array, lax

from jaxquat.dynamics.motion import rates_of
from jaxquat.dynamics.state import State, displaced
from jaxquat.quaternion import correct_norm, expm1, multiply
from jaxquat.schemes.scheme import Scheme, StepArguments, StepObject, of_tableau
from jaxquat.schemes.tableaus import Tableau, combine


def crouch_grossman(tableau: Tableau) -> Scheme:
    """Make the scheme with attitudes ``q exp(h a_i1 W_1) exp(h a_i2 W_2) ...``, with the rates W_j.

    All else follows the tableau. The order conditions for exponentials are not checked.

    Examples:
        >>> jq.schemes.crouch_grossman(jq.schemes.tableaus.CROUCH_GROSSMAN3).order
        3
    """
    return of_tableau(CrouchGrossman, tableau, "crouch_grossman", "Crouch and Grossman 1993")


@dataclass(frozen=True)
class CrouchGrossman(StepObject):
    """The step of ``crouch_grossman``."""

    tableau: Tableau

    def take(self, at: StepArguments) -> State:
        """Take one step."""
        body, torque, t, state, dt, params, _ = at.in_own_units()
        derivative = rates_of(body, torque, params)
        rates: list[Array] = []
        slopes: list[Any] = []  # of everything except the attitude

        def moved(weights: tuple[float, ...]) -> State:
            turn = None  # the product of the exponentials, minus 1
            for weight, rate in zip(weights, rates, strict=True):
                if weight != 0:
                    # The barrier: see munthe_kaas.stages.
                    last = lax.optimization_barrier(expm1(weight * dt * rate))
                    turn = last if turn is None else turn + last + multiply(turn, last)
            shift = combine(weights, slopes, dt)
            q = state.q if turn is None else state.q + multiply(state.q, turn)
            return displaced(state, q, shift)

        for row, node in zip(((), *self.tableau.a), (0.0, *self.tableau.c), strict=True):
            stage = moved(row) if row else state
            rates.append(stage.omega)
            slopes.append(derivative(t + node * dt, stage))
        end = moved(self.tableau.b)
        return end._replace(q=correct_norm(end.q))

"""Crouch-Grossman methods: the attitude of a stage is a product of exponentials.

There is one factor for each earlier rate. P. E. Crouch and R. Grossman, J. Nonlinear Sci. 3, 1993,
1-33; coefficients of order 4: B. Owren and A. Marthinsen, BIT 39, 1999, 116-142.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal.checks import instance
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Torque
from jaxquat.dynamics.motion import rates_of
from jaxquat.dynamics.state import State, displaced
from jaxquat.dynamics.units import own_step
from jaxquat.quaternion import correct_norm, expm1, multiply
from jaxquat.schemes.scheme import Scheme
from jaxquat.schemes.tableaus import Tableau, combine


def crouch_grossman(tableau: Tableau) -> Scheme:
    """The scheme whose attitudes are ``q exp(h a_i1 W_1) exp(h a_i2 W_2) ...``, with the rates W_j.

    Everything except the attitude follows the tableau itself. In addition to the classical order
    conditions the tableau must satisfy those for products of exponentials, which are not checked.

    Examples:
        >>> scheme = jq.crouch_grossman(jq.schemes.tableaus.CROUCH_GROSSMAN3)
        >>> scheme.order, scheme.evaluations
        (3, 3)
    """
    instance("tableau", tableau, Tableau, "a Tableau")
    return Scheme(
        CrouchGrossman(tableau),
        name=f"crouch_grossman(tableau of order {tableau.order})",
        order=tableau.order,
        evaluations=len(tableau.b),
        conserves=("norm",),
        source="Crouch and Grossman 1993",
    )


@dataclass(frozen=True)
class CrouchGrossman:
    """The step of ``crouch_grossman``."""

    tableau: Tableau

    def __call__(
        self, body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any
    ) -> State:
        """Take one step."""
        tableau = self.tableau
        body, torque, t, state, dt = own_step(body, torque, t, state, dt)
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

        stage = state
        for row, node in zip(((), *tableau.a), (0.0, *tableau.c), strict=True):
            stage = moved(row) if row else state
            rates.append(stage.omega)
            slopes.append(derivative(t + node * dt, stage))
        end = moved(tableau.b)
        return end._replace(q=correct_norm(end.q))

"""Runge-Kutta-Munthe-Kaas: any explicit tableau, lifted to (attitude, rate, aux).

H. Munthe-Kaas, BIT 38, 1998, 92-111, and Appl. Numer. Math. 29, 1999, 115-127; for the rigid body with order 4 it is the algorithm
(B.1) of Z. Terze, A. Mueller and D. Zlatar, Multibody Syst. Dyn. 38, 2016, 201-225 (there "dexp(omega, K)" means dexpinv(K) applied
to omega).
"""

from typing import Any

import jax
from jax import lax
from jax.typing import ArrayLike

from jaxquat import so3
from jaxquat.arguments import instance
from jaxquat.body import Body
from jaxquat.mechanics import State, Step, Torque, check_step, derivative
from jaxquat.quaternion import correct_norm, exp, multiply
from jaxquat.schemes.tableaus import Tableau, combine


def rkmk(tableau: Tableau) -> Step:
    """The step of ``tableau`` on the rotation group: ``q = q0 exp(u)``, ``u' = dexpinv(u, omega)`` in closed form.

    The order is the tableau's, for torques of time, attitude and rate. Aux states are integrated by the tableau itself.
    """
    instance("tableau", tableau, Tableau, "a Tableau")

    def step(body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any) -> State:
        t, dt = check_step(body, t, state, dt)
        q, omega, aux = state
        omega_dot, aux_dot = derivative(body, torque, t, state, params)
        # The barriers keep XLA on CPU from computing exp again for each use of its result (docs/performance.md).
        slopes = [(omega, omega_dot, aux_dot)]  # of (u, omega, aux); the first stage is at u = 0
        for row, node in zip(tableau.a, tableau.c, strict=True):
            u, omega_shift, aux_shift = combine(row, slopes, dt)
            turned = multiply(q, lax.optimization_barrier(exp(u)))
            stage = State(turned, omega + omega_shift, jax.tree.map(lambda x, d: x + d, aux, aux_shift))
            omega_dot, aux_dot = derivative(body, torque, t + node * dt, stage, params)
            slopes.append((so3.dexpinv(u, stage.omega), omega_dot, aux_dot))
        u, omega_shift, aux_shift = combine(tableau.b, slopes, dt)
        q = correct_norm(multiply(q, lax.optimization_barrier(exp(u))))
        return State(q, omega + omega_shift, jax.tree.map(lambda x, d: x + d, aux, aux_shift))

    return step

"""A plan, and the controller that follows it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat._internal import reprs
from jaxquat._internal.checks import concrete, is_concrete
from jaxquat._internal.linear import matvec
from jaxquat.dynamics.state import State, local
from jaxquat.planning.iteration import (
    CONVERGED,
    INFEASIBLE,
    NO_DESCENT,
    NOT_FINITE,
    ROUNDING,
    RUNNING,
    has_converged,
)
from jaxquat.simulation.controller import Controller
from jaxquat.simulation.path import Path

_REASONS = {
    RUNNING: "iterations reached",
    CONVERGED: "no further decrease",
    ROUNDING: "no further decrease beyond rounding",
    NO_DESCENT: "no step, however short, lowers the cost as the derivatives say",
    NOT_FINITE: "the cost at the start is not finite",
    INFEASIBLE: "constraints not met",
}


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "commands", "path", "gains", "cost", "status", "iterations", "history", "limits",
        "violation", "multipliers",
    ],
    meta_fields=[],
)  # fmt: skip
@dataclass(frozen=True, repr=False, eq=False)
class Plan:
    """The result of ``ilqr`` for commands of m numbers and errors of n; a pytree.

    Under ``jax.vmap`` all arrays have further leading axes.

    Attributes:
        commands: the command of each sample, (samples, m).
        path: the Path that they lead along, with a row for each sample and one for the end.
        gains: K of each sample, (samples, m, n), for the feedback
            ``command - K local(planned, state)``. K minimises the Gauss-Newton model of the cost
            and of violations of active constraints. Rows of commands at a limit are 0.
        cost: half the sum of the squared residuals, ().
        status: how the iteration ended, an integer (); ``converged`` and ``reason`` explain it.
        iterations: the number of steps tried, an integer ().
        history: the cost, with penalties, at the start and after each step, then constant,
            (iterations + 1,) for the largest number of iterations.
        limits: the least and the largest commands, each (samples, m); None without limits.
        violation: the largest violation of a constraint, in its unit, (); 0 without constraints.
        multipliers: of the equalities (e,) and inequalities (samples, c), 0 where inactive; None
            without constraints. If a constraint may have the value b instead of 0, the cost changes
            by ``-multiplier b`` for small b.

    Examples:
        >>> turned = lambda state, params: 100.0 * (state.omega - turning.omega)
        >>> grid, cost = jq.grid(0.0, 1.0, 5), jq.planning.Residuals(effort, turned)
        >>> guess = jnp.zeros((5, 3))
        >>> plan = jq.planning.ilqr(jq.rkmk2, body, motors, still, grid, None, guess, cost)
        >>> plan  # 0.1 rad/s times 5 kg m^2 in 5 s: 0.1 N m
        <Plan: 5 samples, cost 0.02499, converged (no further decrease), 1 iterations>
    """

    commands: Array
    path: Path
    gains: Array
    cost: Array
    status: Array
    iterations: Array
    history: Array
    limits: Any = None
    violation: Any = 0.0
    multipliers: Any = None

    @property
    def converged(self) -> Array:
        """Whether all constraints are met and the model promises no decrease beyond rounding, ().

        Examples:
            >>> bool(plan.converged)
            True
        """
        return has_converged(jnp.asarray(self.status))

    @property
    def reason(self) -> Any:
        """Why the iteration ended, in words; texts for several plans, TypeError for a traced one.

        Examples:
            >>> plan.reason
            'no further decrease'
        """
        concrete("plan", self.status, "read plan.status under jit")
        texts = np.vectorize(_REASONS.get)(np.asarray(self.status))
        return texts if texts.ndim else texts.item()

    def controller(self) -> Controller:
        """Make a controller with the feedback ``command - K local(planned, state)``, within limits.

        It is sampled like the plan. Each sample takes the row of the plan that holds at its time,
        or the next one if that begins within a thousandth of a period. Outside of the plan's times
        the command is NaN. ValueError for several plans: use ``jax.vmap``.

        Examples:
            >>> controller = plan.controller()
            >>> path = jq.rollout(jq.rkmk2, body, motors, still, grid, controller=controller)
            >>> path.final.omega[2].round(3)  # rad/s
            Array(0.1, dtype=float32)
        """
        if jnp.ndim(self.commands) != 2:
            shape = jnp.shape(self.commands)
            raise ValueError(
                f"plan: wanted one plan, got commands of shape {shape}; use jax.vmap over the plans"
            )
        samples, t = len(self.commands), self.path.t
        period = (t[-1] - t[0]) / samples

        def update(
            now: Array, state: State, memory: Any, params: Any, value: Any
        ) -> tuple[Array, Any]:
            rounding = 8.0 * float(jnp.finfo(t.dtype).eps) * jnp.abs(now) / period
            number = jnp.floor((now - t[0]) / period + jnp.maximum(1e-3, rounding))
            k = jnp.clip(number, 0, samples - 1).astype(jnp.int32)
            rows = self.path.state, self.commands, self.gains, self.limits
            planned, command, gain, limits = jax.tree.map(lambda x: x[k], rows)
            command = command - matvec(gain, local(planned, state))
            command = command if limits is None else jnp.clip(command, *limits)
            within = (number >= 0) & (number < samples)
            return jnp.where(within, command, jnp.nan), memory

        return Controller(lambda start, params: (), update, period)

    def __repr__(self) -> str:
        if not is_concrete(self.status) or jnp.ndim(self.status):
            return f"<Plan: commands {reprs.shape(self.commands)}>"
        verdict = "converged" if self.converged else "not converged"
        counts = f"{len(self.commands)} samples, cost {reprs.short(self.cost)}"
        return f"<Plan: {counts}, {verdict} ({self.reason}), {self.iterations} iterations>"

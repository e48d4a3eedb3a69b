"""The horizon ahead of a controller that plans at each sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, is_concrete, positive, positive_integer, takes
from jaxquat.dynamics.body import Body, check_body
from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.state import State
from jaxquat.planning.constraints import Kinds
from jaxquat.planning.problem import (
    Constraints,
    Residuals,
    checked_commands,
    checked_constraints,
    checked_limits,
    kinds_of,
    problem_of,
    residuals_of,
)
from jaxquat.planning.trajectory import Limits, Problem
from jaxquat.schemes.scheme import Scheme, as_deterministic
from jaxquat.simulation.grid import Grid, grid
from jaxquat.simulation.simulation import checked_simulation


class Horizon(NamedTuple):
    """The checked arguments of ``mpc`` and ``mppi`` that describe the problem."""

    scheme: Scheme
    body: Body
    torque: Torque
    dt: Array
    commands: Array
    residuals: Residuals
    limits: Limits
    sample_every: int
    constraints: Constraints

    @property
    def period(self) -> float | None:
        """The time of a sample [s]; None if it is traced."""
        return float(np.asarray(self.dt)) * self.sample_every if is_concrete(self.dt) else None

    def grid(self, t: Array) -> Grid:
        """Return the grid of the horizon from time t [s] on."""
        every = self.sample_every
        steps = len(self.commands) * every
        return grid(t, self.dt, steps, sample_every=every, save_every=every)

    def check_start(self, start: State) -> None:
        """Raise TypeError if the commands have not the dtype of the start."""
        if self.commands.dtype != start.q.dtype:
            wanted = f"the dtype of the start, {start.q.dtype}"
            raise TypeError(f"commands: wanted {wanted}, got {self.commands.dtype}")

    def problem(self, t: Array, state: State, params: Any, k: Array) -> tuple[Problem, State]:
        """Return the problem of the horizon from sample k on, and its start."""
        simulation = checked_simulation(
            self.scheme, self.body, self.torque, state, self.grid(t), params, inputs=self.commands
        )
        stage, final = self.residuals
        ahead = lambda i, *arguments: stage(k + i, *arguments)  # noqa: E731
        end = None if final is None else partial(final, k + len(self.commands))
        return problem_of(simulation, Residuals(ahead, end)), simulation.start

    @property
    def constrained(self) -> bool:
        """Whether there are constraints other than limits."""
        return any(function is not None for function in self.constraints[1:])

    def kinds(self, params: Any, k: Array) -> Kinds:
        """Return the constraints of the horizon from sample k on."""
        _, end, along = self.constraints
        at_end = None if end is None else partial(end, k + len(self.commands))
        ahead = along and (lambda i, *arguments: along(k + i, *arguments))
        return kinds_of(Constraints(None, at_end, ahead), params, self.commands.dtype)


def shifted(rows: Any) -> Any:
    """Shift the rows of a pytree to the horizon of the next sample; the last one is repeated."""
    return jax.tree.map(lambda x: jnp.concatenate([x[1:], x[-1:]]), rows)


def checked_horizon(
    scheme: Scheme | Step,
    body: Body,
    torque: Torque,
    dt: ArrayLike,
    commands: ArrayLike,
    residuals: Callable[..., Array] | Residuals,
    constraints: Constraints | None,
    sample_every: int,
) -> Horizon:
    """Check these arguments; ValueError or TypeError if one is wrong."""
    scheme = as_deterministic("scheme", scheme)
    check_body(body)
    scheme.check(body)
    takes("torque", torque, "t, state, params, command")
    step = exactly("dt", dt, ())
    positive("dt", step)
    guess = checked_commands(commands)
    residuals = residuals_of(residuals, "k, state, params")
    constraints = checked_constraints(constraints, "k, state, params")
    every = positive_integer("sample_every", sample_every)
    limits = checked_limits(constraints.limits, guess)
    return Horizon(scheme, body, torque, step, guess, residuals, limits, every, constraints)

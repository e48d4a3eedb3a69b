"""The units in which ``ilqr`` works, one for each kind of number.

The method squares residuals and their slopes, and float32 can square numbers from 1e-19 to 1e19
only. In these units no slope is above 1, and what underflows is negligible beside the largest. The
unit of the residuals is the largest of them along the guess, or the largest change of one by an
attitude, per rad, if that is larger. The units of a command and of a part of the state are then the
changes of theirs that change a residual by one unit at most, in this sample or later.

A constraint of value v and slope a by a command asks for a change v/a of it, and the residuals
change by at most v/a times their slope. Where they vanish along the guess, this is their unit.

All units are powers of two, so they change no digit, and constants for derivatives.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxquat._linear import power_of_two
from jaxquat.dynamics.state import State, error_size, local
from jaxquat.planning.constraints import Constraints
from jaxquat.planning.iteration import Problem, Trajectory, ends, linear, loops_here


class Units(NamedTuple):
    """Multiply by them to come from numbers in these units to those of the user.

    Attributes:
        residual: of all residuals, ().
        command: of each command, (m,).
        state: of each leaf of a State, (); 1 for q.
    """

    residual: Array
    command: Array
    state: State

    def inside(self, state: State) -> State:
        """The state in these units."""
        return jax.tree.map(lambda x, unit: x * (1.0 / unit), state, self.state)

    def outside(self, state: State) -> State:
        """The state in the units of the user."""
        return jax.tree.map(lambda x, unit: x * unit, state, self.state)

    def functions(self, problem: Problem, constraints: Constraints) -> tuple[Problem, Constraints]:
        """Problem and constraints for states and commands in these units."""
        stage, final = problem
        equalities, inequalities = constraints
        per_residual = 1.0 / self.residual

        def scaled_stage(k: Array, state: State, command: Array) -> tuple[State, Array]:
            after, residuals = stage(k, self.outside(state), command * self.command)
            return self.inside(after), residuals * per_residual

        def along(k: Array, state: State, command: Array) -> Array:
            return inequalities(k, self.outside(state), command * self.command)

        scaled = Problem(scaled_stage, lambda state: final(self.outside(state)) * per_residual)
        return scaled, Constraints(lambda state: equalities(self.outside(state)), along)

    def cost(self, cost: Array) -> Array:
        """A cost or a multiplier in the units of the user."""
        return cost * self.residual * self.residual

    def gains(self, gains: Array, state: State) -> Array:
        """Gains in the units of the user, (samples, m, n), for errors of a state like this one."""
        ours, parts = ((x.omega, x[3:], x.aux) for x in (self.state, state))
        units = jax.tree.map(lambda unit, x: jnp.full(x.size, unit), ours, parts)
        by_error = jnp.concatenate([jnp.ones(3, gains.dtype), *jax.tree.leaves(units)])
        return gains * self.command[None, :, None] / by_error[None, None]


def units_along(problem: Problem, constraints: Constraints, path: Trajectory) -> Units:
    """The units of a problem and its constraints, from a guess."""
    states, commands, _ = lax.stop_gradient(path)
    before, after, last = ends(states)
    n = error_size(last)
    loops = loops_here(n)

    def sample(k: Array, state: State, after: State, command: Array) -> Any:
        def moved(state: State, command: Array) -> Any:
            end, residuals = problem.stage(k, state, command)
            sides = constraints.inequalities(k, state, command)
            return local(after, end), residuals, jnp.maximum(sides, 0.0)

        return linear(moved, state, command)

    def at_end(state: State) -> Any:
        return problem.final(state), constraints.equalities(state)

    rows = jnp.arange(len(commands)), before, after, commands
    (_, *along), (transition, *slopes) = loops.each(sample)(*rows)
    end, end_slopes = linear(at_end, last)
    off = [v[..., None] for v in (along[1], end[1])]
    relative = [
        jnp.where(v == 0, 0.0, slope / jnp.where(v == 0, 1.0, v))
        for v, slope in zip(off, (slopes[1], end_slopes[1]), strict=True)
    ]
    by_cost = sensitivity(transition, slopes[0], end_slopes[0])
    by_constraint = sensitivity(transition, *relative)
    known = (by_cost[n:] > 0) & (by_constraint[n:] > 0)
    least = jnp.where(known, by_cost[n:] / jnp.where(known, by_constraint[n:], 1.0), jnp.inf)
    needed = jnp.where(jnp.any(known), jnp.min(least), 0.0)
    total = jnp.maximum(by_cost, needed * by_constraint)
    residual = _unit(jnp.concatenate([along[0].ravel(), end[0], total[:3], needed[None]]))
    changing = lambda x: jnp.where(jnp.any(x > 0), _clipped(residual / _unit(x)), 1.0)  # noqa: E731
    others, structure = jax.tree.flatten((last.omega, last[3:], last.aux))
    ends_at = np.cumsum([x.size for x in others])[:-1]
    parts = [changing(x) for x in jnp.split(total[3:n], ends_at)]
    omega, place, aux = jax.tree.unflatten(structure, parts)
    command = jax.vmap(changing)(total[n:])
    every = jnp.stack([jnp.ones_like(residual), residual, *parts, *command])
    middle = jnp.sqrt(jnp.sqrt(jnp.max(every)) * jnp.sqrt(jnp.min(every)))
    one: Any = 1.0
    return Units(residual / power_of_two(middle), command, State(one, omega, aux, *place))


def _unit(x: Array) -> Array:
    """The power of two next to the largest element; 1 for zeros and for what is not finite."""
    largest = jnp.max(jnp.abs(x))
    return jnp.where((largest > 0) & jnp.isfinite(largest), _clipped(power_of_two(x)), 1.0)


def _clipped(unit: Array) -> Array:
    """The unit as a number that is normal like its inverse."""
    least = 2.0 * float(jnp.finfo(unit.dtype).tiny)
    return jnp.clip(unit, least, 1.0 / least)


def sensitivity(transition: Array, slopes: Array, end: Array) -> Array:
    """The largest change of an output, now or later, by each error and command: (n + m,).

    Args:
        transition: F of each sample, (samples, n, n + m).
        slopes: of the outputs of each sample by errors and commands, (samples, r, n + m).
        end: of the outputs at the end by the errors, (e, n).
    """
    n = transition.shape[1]
    largest = lambda x: jnp.max(jnp.abs(x), axis=-2, initial=0.0)  # noqa: E731

    def back(after: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        ahead, direct = row
        here = jnp.maximum(direct, largest(ahead * after[:, None]))
        return here[:n], here

    rows = transition, largest(slopes)
    return jnp.max(lax.scan(back, largest(end), rows, reverse=True)[1], axis=0)

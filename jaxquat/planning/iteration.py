"""The iteration of ``ilqr`` between limits; constraints.py puts others around it.

Each pass linearises samples and residuals about the path, solves the quadratic model backwards
(riccati.py), and tries several lengths of the step at once. Where the fused engine has kernels, one
kernel linearises and solves, another tries the lengths. The Hessian is that of the Lagrangian,
whose multipliers are the costates, if it is positive definite, and that of Gauss and Newton
otherwise. After a step whose cost is not low enough, the next one is damped more: a fraction of its
diagonal is added to each Hessian of the commands, so units do not matter. The iteration ends by the
decrease that the model without damping promises.

A guess of the states need not obey the equations of motion. The differences, or gaps, shift the
linear model of each sample; a step of length s closes them by the factor 1 - s (M. Giftthaler et
al., IROS 2018; C. Mastalli et al., Crocoddyl, ICRA 2020). While there are gaps the cost may have to
rise: a step is then good if the cost rises by at most twice what the model says.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat._internal.linear import matvec
from jaxquat.dynamics.state import State, error_size, local
from jaxquat.fused.scanning import scan
from jaxquat.planning.policies import policy_of, within
from jaxquat.planning.riccati import Policy
from jaxquat.planning.trajectory import Limits, Problem, Trajectory, clipped, roll_out

STEPS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01)
"""Lengths of the steps that a pass tries."""

FIRST_DAMPING, LARGEST_DAMPING = 1e-4, 1e8
"""The damping after the first refused step, and the one at which the iteration gives up."""

PATIENCE = 5
"""The passes in whose cost only rounding is left before the iteration ends."""

RUNNING, CONVERGED, ROUNDING, NO_DESCENT, NOT_FINITE, INFEASIBLE = range(6)


class Settings(NamedTuple):
    """The static arguments of an iteration; ``constrained``: by more than limits."""

    iterations: int
    tolerance: float
    exact: bool
    constrained: bool


class Progress(NamedTuple):
    """The best path so far; ``stale`` passes had only rounding left in the cost."""

    path: Trajectory
    cost: Array
    damping: Array
    status: Array
    passes: Array
    history: Array
    smallest: Array
    stale: Array
    gains: Array  # by the model of Gauss and Newton at the path, NaN if not known


def no_steps(path: Trajectory, cost: Array, settings: Settings) -> Progress:
    """Return the progress before the first pass, at a path of this cost."""
    zero, history = jnp.zeros((), jnp.int32), jnp.zeros(settings.iterations + 1, cost.dtype)
    states = jax.tree.map(lambda x: x[0], path.states)
    gains = jnp.zeros((*path.commands.shape, error_size(states)), cost.dtype)
    return Progress(path, cost, cost, zero, zero, history, cost, zero, gains)


def minimise(
    problem: Problem,
    limits: Limits,
    begin: Progress,
    settings: Settings,
    first: Array,
    floor: Array,
) -> Progress:
    """Return the path after the last step, and how the iteration ended.

    ``begin`` has path, cost, passes and history. The rounding of ``first``, the cost of the very
    first path, also limits later ones. A promised decrease is compared with a cost of at least
    ``floor``.
    """
    iterations, tolerance, exact, _ = settings
    eps = float(jnp.finfo(first.dtype).eps)
    least, lengths = 10.0 * eps, jnp.asarray(STEPS, first.dtype)

    def one(c: Progress) -> Progress:
        choice = within(c.path.commands, limits, c.damping)
        policy, gains = policy_of(problem, c.path, choice, exact)
        decrease = -lengths * (policy.slope + 0.5 * lengths * policy.curvature)
        gaps = jnp.zeros((), bool) if c.path.gaps is None else jnp.any(c.path.gaps != 0)
        converged = decrease[0] <= tolerance**2 * jnp.maximum(c.cost, floor)
        converged &= (c.damping <= least) & ~gaps

        # Rounding of the residuals, which may be small differences of numbers as large as the first
        # ones, hides small changes of the cost. Whole steps are then good while they get shorter.
        rounding = 4.0 * eps * jnp.sqrt(c.cost) * jnp.sqrt(first)
        quiet = (decrease[0] <= rounding) & (c.damping <= FIRST_DAMPING) & ~gaps
        stale = jnp.where(quiet & (decrease[0] < c.smallest), 0, c.stale + quiet.astype(jnp.int32))
        smallest = jnp.where(quiet, jnp.minimum(decrease[0], c.smallest), c.smallest)

        most = c.cost - jnp.where(decrease > 0, 1e-4, 2.0) * decrease + rounding
        new, new_cost, length = _searched(problem, c.path, limits, policy, most, rounding, gaps)
        stepped = (length > 0) & ~converged & (stale < PATIENCE) & (c.passes < iterations)
        gains = jnp.where(stepped | (c.damping > least), jnp.nan, gains)
        path, cost = jax.tree.map(
            lambda x, y: jnp.where(stepped, x, y), (new, new_cost), (c.path, c.cost)
        )

        damping = _next_damping(c.damping, length, least)
        status = jnp.where(damping > LARGEST_DAMPING, NO_DESCENT, c.status)
        status = jnp.where(stale == PATIENCE, ROUNDING, status)
        status = jnp.where(converged, CONVERGED, status)
        history = jnp.where(jnp.arange(iterations + 1, dtype=jnp.int32) > c.passes, cost, c.history)
        passes = c.passes + (~converged).astype(jnp.int32)
        return Progress(path, cost, damping, status, passes, history, smallest, stale, gains)

    cost = begin.cost
    start = begin._replace(
        damping=jnp.full_like(cost, least),
        status=jnp.where(jnp.isfinite(cost), RUNNING, NOT_FINITE).astype(jnp.int32),
        history=jnp.where(begin.passes == 0, cost, begin.history),
        smallest=jnp.full_like(cost, jnp.inf),
        stale=jnp.zeros_like(begin.passes),
    )
    # One more pass than steps, to say whether the last step has reached the minimum.
    return lax.while_loop(lambda c: (c.status == RUNNING) & (c.passes <= iterations), one, start)


def _next_damping(damping: Array, length: Array, least: float) -> Array:
    """Reduce the damping after a long step, raise it after a short one or none."""
    less = jnp.where(damping > FIRST_DAMPING, 0.1 * damping, least)
    more = jnp.maximum(10.0 * damping, FIRST_DAMPING)
    return jnp.where(length >= 0.5, less, jnp.where(length > 0.1, damping, more))


def _searched(
    problem: Problem,
    path: Trajectory,
    limits: Limits,
    policy: Policy,
    most: Array,
    rounding: Array,
    gaps: Array,
) -> tuple[Trajectory, Array, Array]:
    """Return the cheapest path, with gaps the longest step, below ``most``; cost and length."""
    lengths = jnp.asarray(STEPS, most.dtype)
    start = jax.tree.map(lambda x: x[0], path.states)
    planned = jax.tree.map(lambda x: x[:-1], path.states)
    rows = path.commands, planned, policy.change, policy.gains, limits

    def tried(length: Array) -> tuple[Trajectory, Array]:
        def command(state: State, row: Any) -> Array:
            u, planned, d, gain, limits = row
            return clipped(u + length * d - matvec(gain, local(planned, state)), limits)

        gaps = None if path.gaps is None else (1.0 - length) * path.gaps
        states, commands, cost = roll_out(problem, start, rows, command, gaps, scan)
        return Trajectory(states, commands, gaps), cost

    paths, costs = jax.vmap(tried)(lengths)
    good = costs <= most
    lowest = jnp.min(jnp.where(good, costs, jnp.inf))
    best = jnp.argmax(good & (gaps | (costs <= lowest + rounding)))
    length = jnp.where(jnp.any(good), lengths[best], 0.0)
    return jax.tree.map(lambda x: x[best], paths), costs[best], length


def has_converged(status: Array) -> Array:
    """Return whether an iteration with this status has ended at a minimum."""
    return (status == CONVERGED) | (status == ROUNDING)

"""Constraints by augmented Lagrangians, around the iteration of iteration.py.

With multipliers y and penalties rho, ``rho/2 (e + y/rho)^2`` is added to the cost for an equality e
= 0, and ``rho/2 max(0, c + y/rho)^2`` for an inequality c <= 0. After each minimisation, y becomes
``y + rho e`` or ``max(0, y + rho c)`` (J. Nocedal and S. J. Wright, Numerical Optimization, 2006,
chapter 17; for trajectories T. A. Howell, B. E. Jackson and Z. Manchester, IROS 2019).

Changing a constraint with the slope a by v costs at least ``v^2/(2 S)``, where ``S = a H^-1 a`` and
H is the Hessian of the cost. So rho is ``strength/S``, and the violation is the sum of these costs:
units do not matter. S is the variance of the constraint under random commands of covariance Q_uu^-1
and the feedback of the Gauss-Newton model. Programs have the roots of S and rho, because squares of
small units leave the range of floats. A path that costs d above the minimum adds at most d/strength
to the violation, so each minimisation only needs a hundredth of the violation before it (D. P.
Bertsekas, Constrained Optimization and Lagrange Multiplier Methods, 1982, section 2.5).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat._internal import linear
from jaxquat.dynamics.state import State
from jaxquat.fused.scanning import scan
from jaxquat.planning.iteration import (
    CONVERGED,
    INFEASIBLE,
    NOT_FINITE,
    ROUNDING,
    RUNNING,
    Progress,
    Settings,
    minimise,
)
from jaxquat.planning.linearization import gauss_newton
from jaxquat.planning.riccati import Choice, Model, backward, held, product, solve_free
from jaxquat.planning.trajectory import (
    Limits,
    Problem,
    Trajectory,
    cost_along,
    jacobian,
    moved,
    parts_of,
    samples_of,
    zeros,
)

FIRST_STRENGTH = 1e2
"""The first penalties times S."""

FALL = 1e-2
"""The strength rises if a minimisation leaves more than this fraction of the violation."""

REGULAR, FLOOR, SECANT = 1e-4, 1e-4, 1e-1
"""The damping of the Hessian in S; its least root as fractions of the largest, and by secants."""


class Kinds(NamedTuple):
    """A function, or an array with a number for each constraint, for both kinds of constraints."""

    equalities: Any  # ``equalities(state) -> (e,)`` at the end, or an array (e,)
    inequalities: Any  # ``inequalities(k, state, command) -> (c,)``, or (samples, c)


class Multiplied(NamedTuple):
    """The state of the outer iteration."""

    inner: Progress  # the last minimisation; its status is that of the whole iteration
    multipliers: Kinds  # y of each constraint
    penalties: Kinds  # roots of the largest rho of each, with which derivatives converge fastest
    strength: Array  # ``rho S`` for the next minimisation
    violation: Array  # the sum of ``v^2/(2 S)``, in the unit of the cost
    done: Array


def values(constraints: Kinds, path: Trajectory) -> Kinds:
    """Evaluate the constraints along a path."""
    rows, _, last = samples_of(path)
    along = jax.vmap(constraints.inequalities)(*rows)
    return Kinds(constraints.equalities(last), along)


def largest_violation(at: Kinds) -> Array:
    """Return the largest violation among these values of the constraints, ()."""
    parts = [jnp.abs(at.equalities), jnp.maximum(at.inequalities.ravel(), 0.0)]
    return jnp.max(jnp.concatenate(parts), initial=0.0)


def updated(multipliers: Kinds, penalties: Kinds, at: Kinds) -> Kinds:
    """Return the next multipliers, for values ``at`` of the constraints."""
    e, c = jax.tree.map(lambda y, root, v: y + root * (root * v), multipliers, penalties, at)
    return Kinds(e, jnp.where(c > 0, c, 0.0))


class Penalised(NamedTuple):
    """A function of a problem, with a residual for each of its constraints."""

    function: Callable[..., Any]
    constraints: Callable[..., Array]

    @property
    def jitted(self) -> Callable[..., Any]:
        """``jitted`` of the function, if it has been traced."""
        return self.function.jitted  # type: ignore[attr-defined]

    def __call__(self, closed: Any, y: Array, root: Array, *arguments: Any) -> Any:
        """Return what the function returns, with these residuals among it."""
        of_function, of_constraints = closed
        results = self.function(*of_function, *arguments)
        value = self.constraints(*of_constraints, *arguments)
        if len(arguments) == 1:  # the state at the end
            return jnp.concatenate([results, _residual(value, y, root)])
        k, (after, residuals) = arguments[0], results
        return after, jnp.concatenate([residuals, _positive(_residual(value, y[k], root[k]))])


def augmented(
    problem: Problem, constraints: Kinds, multipliers: Kinds, penalties: Kinds
) -> Problem:
    """Add a residual for each constraint; ``penalties`` are the roots of rho."""

    def penalised(function: Any, constraint: Any, *weights: Array) -> Any:
        (f, of_f), (c, of_c) = parts_of(function), parts_of(constraint)
        return partial(Penalised(f, c), (of_f, of_c), *weights)

    equalities, inequalities = zip(constraints, multipliers, penalties, strict=True)
    return Problem(penalised(problem.stage, *inequalities), penalised(problem.final, *equalities))


def penalty(at: Kinds, multipliers: Kinds, penalties: Kinds) -> Array:
    """Return what ``augmented`` adds to the cost, where the constraints have these values."""
    end, along = jax.tree.map(_residual, at, multipliers, penalties)
    return 0.5 * (linear.square(end) + linear.square(_positive(along).ravel()))


def _residual(value: Array, y: Array, root: Array) -> Array:
    return jnp.where(root > 0, root * value + y / jnp.where(root > 0, root, 1.0), 0.0)


def _positive(residual: Array) -> Array:
    return jnp.where(residual > 0, residual, 0.0)


def covariances_of(model: Model, damping: float) -> tuple[Array, Array]:
    """Return the covariances of error and command of each sample, and of the error at the end."""
    commands = model.gradient[:, model.end[0].size :]
    choice = Choice(held, jnp.ones(commands.shape, bool), damping)
    policy = backward(model, choice, scan)
    n, m = model.transition.shape[-2], commands.shape[-1]

    def sample(covariance: Array, row: Any) -> tuple[Array, Array]:
        transition, gain, hessian = row
        fed = jnp.concatenate([jnp.eye(n, dtype=gain.dtype), -gain])
        eye = jnp.eye(m, dtype=gain.dtype)
        both = product(fed, product(covariance, fed.T))
        both = both.at[n:, n:].add(solve_free(hessian, eye, jnp.ones(m, bool)))
        return product(transition, product(both, transition.T)), both

    rows = model.transition, policy.gains, policy.hessian
    covariance, covariances = scan(sample, jnp.zeros_like(model.end[1]), rows)
    return covariances, covariance


def spread(slopes: Array, covariance: Array) -> Array:
    """Return the standard deviations (c,) of numbers with these slopes (c, n)."""
    unit = jnp.max(jnp.abs(slopes), axis=1)
    slopes = slopes / jnp.where(unit > 0, unit, 1.0)[:, None]
    return unit * linear.root(jnp.sum(product(slopes, covariance) * slopes, axis=1))


def deviations(
    problem: Problem, constraints: Kinds, path: Trajectory, at: Kinds, cost: Array
) -> Kinds:
    """Return the roots of S, at least SECANT times the change by one deviation of a variable.

    ``at`` and ``cost`` are the values of the constraints and the cost along the path.
    """
    model = gauss_newton(problem, path, by_kernel=True)
    covariances, covariance = covariances_of(model, REGULAR)
    rows, _, last = samples_of(path)
    end = spread(jacobian(constraints.equalities, last), covariance)
    off = jnp.where(end > 0, at.equalities / jnp.where(end > 0, end, 1.0), 0.0)
    deviation = jnp.sqrt(cost + 0.5 * linear.square(off))

    def along(k: Array, state: State, command: Array, covariance: Array) -> Array:
        value = moved(partial(constraints.inequalities, k), state, command)
        slopes = jax.jacfwd(value)(zeros(state, command))
        moves = jnp.diag(deviation * jnp.sqrt(jnp.diagonal(covariance)))
        here = value(jnp.zeros_like(moves[0]))
        secants = (jax.vmap(value)(moves) - here[None]) / deviation
        least = SECANT * jnp.max(jnp.abs(secants), axis=0)
        return jnp.maximum(spread(slopes, covariance), jnp.where(jnp.isfinite(least), least, 0.0))

    sides = scan(lambda _, row: ((), along(*row)), (), (*rows, covariances))[1]
    return Kinds(end, jnp.maximum(sides, FLOOR * jnp.max(sides, axis=0, keepdims=True)))


def verdict(status: Array, met: Array, nearly_met: Array, stuck: Array) -> Array:
    """Return the status of the outer iteration from that of the last minimisation; all are ().

    ``met``: the violation was negligible before and after it. ``nearly_met``: it is small enough
    for a plan. ``stuck``: a stronger penalty does not reduce it.
    """
    reasons = [  # the first one that holds counts
        (INFEASIBLE, (status == RUNNING) & ~nearly_met),
        (status, met | (status == RUNNING) | (status == NOT_FINITE)),
        (INFEASIBLE, stuck & ~nearly_met),
        (ROUNDING, stuck & (status == CONVERGED)),
    ]
    statuses, hold = zip(*reasons, strict=True)
    return jnp.select(hold, statuses, status).astype(jnp.int32)


def violation_of(at: Kinds, least: Array, spread: Kinds) -> Array:
    """Sum ``v^2/(2 S)``, where inequalities count from ``least`` (samples, c) upwards."""
    off = Kinds(at.equalities, jnp.maximum(at.inequalities, least))
    worth = lambda v, s: 0.5 * jnp.sum(jnp.where(v == 0, 0.0, v / s) ** 2)  # noqa: E731
    each = jax.tree.map(worth, off, spread)
    return each.equalities + each.inequalities


def minimise_within(
    problem: Problem, constraints: Kinds, limits: Limits, guess: Progress, settings: Settings
) -> Multiplied:
    """Minimise with multipliers until the constraints are met."""
    # Rounding of a constraint changes its multiplier by rho times as much.
    largest = min(1e6, 1e-3 / float(jnp.finfo(guess.cost.dtype).eps))
    tolerance = settings.tolerance

    at_first = values(constraints, guess.path)

    def one(c: Multiplied) -> Multiplied:
        y, before = c.multipliers, c.inner
        at, plain = values(constraints, before.path), cost_along(problem, before.path)
        spread = deviations(problem, constraints, before.path, at, plain)
        strong = jnp.sqrt(c.strength)
        root = jax.tree.map(lambda s: jnp.where(s > 0, strong / s, 0.0), spread)
        penalised = augmented(problem, constraints, y, root)
        # An inequality that is not active is at -y/rho: its multiplier becomes 0.
        sides = spread.inequalities  # not y/root/root: XLA divides by root * root
        least = -(y.inequalities * sides) * sides / c.strength
        first = guess.cost + penalty(at_first, y, root)
        floor = tolerance * first
        early = violation_of(at, least, spread)
        floor_of_inner = jnp.maximum(floor, early / tolerance**2)
        before = before._replace(cost=plain + penalty(at, y, root))
        inner = minimise(penalised, limits, before, settings, first, floor_of_inner)
        at = values(constraints, inner.path)
        violation = violation_of(at, least, spread)

        scale = jnp.maximum(inner.cost, floor)
        small = tolerance**2 * scale
        met = (violation <= tolerance**2.5 * scale) & (early <= small)
        stuck = (c.strength >= largest) & ~(violation <= 0.5 * c.violation)
        stuck |= jnp.isinf(violation)  # of a constraint that no command changes
        status = verdict(inner.status, met, violation <= small, stuck)
        over = (inner.status == RUNNING) | (inner.status == NOT_FINITE)
        strength = jnp.where(violation <= FALL * c.violation, c.strength, 10.0 * c.strength)
        return Multiplied(
            inner._replace(status=status), updated(y, root, at),
            jax.tree.map(lambda r: (largest / c.strength) ** 0.5 * r, root),
            jnp.minimum(strength, largest), violation, met | over | stuck,
        )  # fmt: skip

    y = jax.tree.map(jnp.zeros_like, at_first)
    strength, infinity = (jnp.full_like(guess.cost, x) for x in (FIRST_STRENGTH, jnp.inf))
    start = Multiplied(guess, y, y, strength, infinity, jnp.zeros((), bool))
    return lax.while_loop(lambda c: ~c.done, one, start)

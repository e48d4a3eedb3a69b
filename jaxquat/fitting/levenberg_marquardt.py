"""The Levenberg-Marquardt iteration, as a trust region (J. J. More, Lect. Notes Math. 630, 1978).

Let f be the residuals, J their Jacobian, and D the largest length so far of each column of J. A
step p minimises ``|J p + f|^2`` within ``|D p| <= radius`` and the bounds (trust_region.py); D
makes it independent of units. It needs only the triangle of the QR decomposition of J. The gain is
the decrease of the cost as a fraction of the predicted decrease. Below 1/4, the new radius is a
quarter of the step; above 3/4, twice the step. The first radius lets the parameters change by their
own size. The minimum of the linear model without a radius judges convergence, because the radius
can make any step small. Where residuals or a parameter vanish, a probe decides whether only
rounding is left (``Problem.is_rounding``). The iteration is on the host in float64. Jacobians are
computed at accepted points alone, so the counts compare with ``nfev`` and ``njev`` of scipy.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxquat.fitting.bounds import Bounds
from jaxquat.fitting.trust_region import held_at, model_change, step_in_box

LOWEST_GAIN = 1e-4  # the smallest gain at which a step is accepted
TRUSTED_GAIN = 0.1  # above it, a short step means a near minimum, not a wrong derivative
PROBES = 10  # steps from one test for rounding to the next
MISMATCH = 0.1  # relative error of a predicted change up to which the Jacobian is right


class Reason(enum.Enum):
    """Why an iteration ended, in words."""

    GRADIENT = "gradient small"
    STEP = "step small"
    COST = "cost change small"
    ZERO = "residuals zero compared with the start"
    ROUNDING = "residuals zero to rounding"
    MAX_STEPS = "max_steps reached"
    NO_DESCENT = "no step, however short, lowers the cost as the derivatives say"
    NOT_FINITE = "residuals or derivatives not finite, however short the step"

    @property
    def converged(self) -> bool:
        """Whether the iteration has ended at a stationary point."""
        return self not in (Reason.MAX_STEPS, Reason.NO_DESCENT, Reason.NOT_FINITE)


class Problem(NamedTuple):
    """A least-squares problem in n bounded parameters x, float64 arrays on the host."""

    residuals: Callable[[np.ndarray], np.ndarray]  # x (n,) -> f (m,)
    linearised: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # x -> f (m,), J (m, n)
    bounds: Bounds
    rounding: float  # the epsilon of the dtype in which f and J are computed

    def cost(self, x: np.ndarray) -> float:
        """Return half the sum of squares of the residuals."""
        return _half_square(self.residuals(x))

    def linearised_at(self, x: np.ndarray) -> Linearised:
        """Return the linear model at x."""
        residuals, jacobian = self.linearised(x)
        finite = bool(np.all(np.isfinite(jacobian)) and np.all(np.isfinite(residuals)))
        if finite:
            triangle = _triangle(np.column_stack([jacobian, residuals]))[: x.size]
        else:
            triangle = np.full((x.size, x.size + 1), np.nan)
        model = triangle[:, :-1], triangle[:, -1]
        return Linearised(x, residuals, jacobian, _half_square(residuals), *model, finite)

    def slope(self, at: Linearised) -> float:
        """Return the largest cosine between residuals and a column of J, of no held parameter."""
        gradient = at.triangle.T @ at.projection
        held = held_at(gradient, at.x, self.bounds.lower, self.bounds.upper)
        sizes = np.where(held, 0.0, at.lengths() * np.sqrt(2.0 * at.cost))
        cosines = np.divide(np.abs(gradient), sizes, out=np.zeros_like(sizes), where=sizes > 0)
        return float(np.max(cosines))

    def whole_step(self, at: Linearised) -> tuple[np.ndarray, float]:
        """Return the step (n,) to the minimum of the linear model, and its decrease."""
        scale = _positive(at.lengths())
        model = at.triangle / scale, at.projection
        step = step_in_box(*model, np.inf, *self.bounds.room(at.x, scale), self.rounding)
        return step / scale, -model_change(*model, step)

    def is_rounding(self, at: Linearised) -> bool:
        """Return whether the residuals at x are so small that only rounding is left in them."""
        # Two probes along the step to the minimum of the linear model decide. A long probe, which
        # changes the model by ``rounding**(-1/3)`` times the residuals, must change the residuals
        # as predicted; it does not if a derivative is wrong, or if a better point is farther away.
        # A backward probe, a third of the step, must not: rounding hides so small a change, but not
        # a jump that lies ahead. Sizes do not enter, so parameters may be 0.
        step = self.whole_step(at)[0]
        change = float(np.linalg.norm(at.triangle @ step))
        if change == 0.0:
            return False
        far = self.rounding ** (-1.0 / 3.0) * np.sqrt(2.0 * at.cost) / change
        long, backwards = (self._mismatch(at, part * step) for part in (far, -1.0 / 3.0))
        return long <= MISMATCH < backwards

    def _mismatch(self, at: Linearised, step: np.ndarray) -> float:
        """Return the error of the linear model after a step, relative to the predicted change."""
        lower, upper = self.bounds.room(at.x, np.ones_like(at.x))
        with np.errstate(over="ignore", invalid="ignore"):  # the step may lead too far
            step = np.clip(np.where((step < lower) | (step > upper), -step, step), lower, upper)
            expected = at.jacobian @ step
            error = np.linalg.norm(self.residuals(at.x + step) - at.residuals - expected)
        size = float(np.linalg.norm(expected))
        return float(error) / size if size > 0 and np.isfinite(error) else np.inf

    def part(self, number: int) -> Problem:
        """Return the problem with the first ``number`` residuals alone."""

        def linearised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            residuals, jacobian = self.linearised(x)
            return residuals[:number], jacobian[:number]

        return self._replace(residuals=lambda x: self.residuals(x)[:number], linearised=linearised)


class Linearised(NamedTuple):
    """The problem, linearised at a point, with k = min(m, n)."""

    x: np.ndarray
    residuals: np.ndarray  # f (m,)
    jacobian: np.ndarray  # J (m, n), of f with respect to x
    cost: float  # half the sum of squares of f
    triangle: np.ndarray  # R (k, n) of the QR decomposition of J
    projection: np.ndarray  # Q^T f (k,)
    finite: bool  # whether f and J are finite

    def lengths(self) -> np.ndarray:
        """Return the lengths of the columns of J, (n,)."""
        return np.linalg.norm(self.triangle, axis=0)


class Criteria(NamedTuple):
    """When an iteration ends: see ``LeastSquaresOptions``."""

    max_steps: int
    ftol: float
    xtol: float
    gtol: float


class Minimum(NamedTuple):
    """Where and why an iteration ended, with its costs and counts as in ``LeastSquares``."""

    at: Linearised
    reason: Reason
    history: np.ndarray
    evaluations: int
    jacobians: int


class Step(NamedTuple):
    """What is known after a step was tried; the rules of ``STOPS`` decide by it."""

    accepted: bool  # the iteration has moved
    finite: bool  # the residuals, and for a promising step the derivatives, were finite
    gain: float  # decrease of the cost as a fraction of the predicted one; 0 if not accepted
    zero: bool  # residuals vanish compared with the start, and hardly a parameter would change
    small_change: bool  # the cost has changed, and could change, by less than ftol
    small_step: bool  # the minimum of the linear model is nearer than xtol
    small_slope: bool  # the largest cosine is below gtol
    flat: bool  # rounding could hide the decrease that the slope promises
    stuck: bool  # a refused step was so short that shorter ones make no sense
    probe_due: bool
    is_rounding: Callable[[], bool]  # tests it by two evaluations
    last: bool  # max_steps is reached


STOPS: list[tuple[Reason, Callable[[Step], bool]]] = [
    (Reason.ZERO, lambda s: s.zero),
    (Reason.COST, lambda s: s.small_change),
    (Reason.GRADIENT, lambda s: s.accepted and s.small_slope),
    (Reason.STEP, lambda s: s.small_step and s.finite and (s.flat or s.gain > TRUSTED_GAIN)),
    # Rounding of the cost hides what a flat direction promises.
    (Reason.COST, lambda s: s.stuck and s.flat and s.finite),
    (Reason.ROUNDING, lambda s: s.finite and not s.flat and s.probe_due and s.is_rounding()),
    (Reason.NO_DESCENT, lambda s: s.stuck and s.finite),
    (Reason.NOT_FINITE, lambda s: s.stuck),
    (Reason.MAX_STEPS, lambda s: s.last),
]
"""Why an iteration ends; the first rule that holds counts."""


def stop(step: Step) -> Reason | None:
    """Return the first reason to end after this step, or None to go on."""
    return next((reason for reason, holds in STOPS if holds(step)), None)


class _Iteration:
    """An iteration in progress: the best point so far, the trust region, and the counts."""

    def __init__(self, problem: Problem, start: Linearised, criteria: Criteria) -> None:
        self.problem, self.criteria = problem, criteria
        self.here, self.history = start, [start.cost]
        self.lengths, self.farthest = start.lengths(), np.abs(start.x)
        self.radius = float(np.linalg.norm(self.lengths * start.x)) or np.inf
        self.steps, self.jacobians, self.probes = 0, 1, 0

    def step(self) -> Step:
        problem, here, (max_steps, ftol, xtol, gtol) = self.problem, self.here, self.criteria
        self.steps += 1
        self.lengths = np.maximum(self.lengths, here.lengths())
        scale = _positive(self.lengths)
        model = here.triangle / scale, here.projection
        room = problem.bounds.room(here.x, scale)
        step = step_in_box(*model, self.radius, *room, problem.rounding)
        size, decrease = float(np.linalg.norm(step)), -model_change(*model, step)
        there, cost = self._tried(problem.bounds.moved(here.x, step, scale), decrease)
        gain = (here.cost - cost) / decrease if there is not None else 0.0
        if gain < 0.25:
            self.radius = 0.25 * size
        elif gain > 0.75:
            self.radius = 2.0 * size
        whole, promise = problem.whole_step(here)
        tiny = np.all(np.abs(whole) <= np.sqrt(problem.rounding) * self.farthest)
        if there is not None:
            self.here, self.farthest = there, np.maximum(self.farthest, np.abs(there.x))
            self.history.append(there.cost)
        slope = problem.slope(self.here)
        stuck = there is None and bool(size <= xtol * np.linalg.norm(scale * here.x))
        return Step(
            accepted=there is not None,
            finite=bool(np.isfinite(cost)),
            gain=gain,
            zero=bool(tiny) and self.here.cost <= problem.rounding**2 * self.history[0],
            small_change=max(abs(here.cost - cost), promise) <= ftol * here.cost,
            small_step=bool(np.all(np.abs(whole) <= xtol * np.abs(here.x))),
            small_slope=slope <= gtol,
            flat=slope**2 <= max(ftol, problem.rounding ** (2.0 / 3.0)),
            stuck=stuck,
            probe_due=stuck or self.steps % PROBES == 0,
            is_rounding=self._is_rounding,
            last=self.steps == max_steps,
        )

    def _tried(self, x: np.ndarray, decrease: float) -> tuple[Linearised | None, float]:
        """Return the linear model at x, None if the step there is refused, and the cost there."""
        cost = self.problem.cost(x)
        if not self.here.cost - cost > LOWEST_GAIN * decrease:
            return None, cost
        self.jacobians += 1
        there = self.problem.linearised_at(x)
        return (there, there.cost) if there.finite else (None, np.inf)

    def _is_rounding(self) -> bool:
        self.probes += 2
        return self.problem.is_rounding(self.here)


def _minimise(
    problem: Problem, start: Linearised, criteria: Criteria, report: Callable[[Linearised], Any]
) -> Minimum:
    iteration = _Iteration(problem, start, criteria)
    reason = Reason.GRADIENT if problem.slope(start) <= criteria.gtol else None
    while reason is None:
        step = iteration.step()
        report(iteration.here)
        reason = stop(step)
    evaluations = 1 + iteration.steps + iteration.probes
    history = np.array(iteration.history)
    return Minimum(iteration.here, reason, history, evaluations, iteration.jacobians)


def minimise_in_parts(
    problem: Problem,
    start: Linearised,
    parts: list[int],
    criteria: Criteria,
    report: Callable[[Linearised], Any],
) -> Minimum:
    """Minimise the first ``parts[0]`` residuals, coarsely, ``parts[1]``, and so on, then all."""
    coarse = criteria._replace(ftol=max(criteria.ftol, 0.1))
    here, evaluations, jacobians = start, 0, 0
    for number in parts:
        part = problem.part(number)
        reached = _minimise(part, part.linearised_at(here.x), coarse, report)
        evaluations, jacobians = evaluations + reached.evaluations, jacobians + reached.jacobians
        here = reached.at
    if parts:
        here = problem.linearised_at(here.x)
        if not here.finite:
            here = start
    last = _minimise(problem, here, criteria, report)
    return last._replace(
        evaluations=last.evaluations + evaluations, jacobians=last.jacobians + jacobians
    )


def _triangle(matrix: np.ndarray) -> np.ndarray:
    """Return R of the QR decomposition of a tall matrix (m, n), in blocks that fit the cache."""
    columns = matrix.shape[1]
    rows = max(256, 4 * columns)
    while len(matrix) > 2 * rows:
        count = len(matrix) // rows
        blocks = matrix[: count * rows].reshape(count, rows, columns)
        parts = np.asarray(np.linalg.qr(blocks, mode="r")).reshape(-1, columns)
        matrix = np.concatenate([parts, matrix[count * rows :]])
    return np.asarray(np.linalg.qr(matrix, mode="r"))


def _positive(lengths: np.ndarray) -> np.ndarray:
    return np.where(lengths > 0, lengths, 1.0)


def _half_square(residuals: np.ndarray) -> float:
    with np.errstate(over="ignore"):
        total = 0.5 * float(np.sum(residuals**2))
    return total if np.isfinite(total) else np.inf

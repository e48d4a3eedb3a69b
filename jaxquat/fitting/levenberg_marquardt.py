"""The Levenberg-Marquardt iteration, as a trust region (J. J. More, Lect. Notes Math. 630, 1978).

Let f be the residuals, J their Jacobian, and D the largest length so far of each column of J. A
step p minimises ``|J p + f|^2`` within ``|D p| <= radius`` and the bounds; D makes it independent
of the units of the parameters. If the step meets no bound, it is the Gauss-Newton step if that is
short enough, otherwise the damped step whose length is the radius. Computing it needs only the
triangle of the QR decomposition of ``J/D``, computed once for each J, and its singular values
(trust_region.py).

Convergence is judged by the minimum of the linear model without a radius, because the radius can
make any step small. Relative tolerances are useless where the residuals or a parameter vanish; a
probe then decides whether only rounding is left (``Problem.is_rounding``).

The gain is the decrease of the cost as a fraction of the decrease that the linear model predicts.
If it is below 1/4, the new radius is a quarter of the step; if it is above 3/4, twice the step. The
first radius lets the parameters change by their own size, whatever their units.

The iteration is on the host in float64. Only residuals and Jacobians are compiled, and a Jacobian
is computed at accepted points alone, so the counts compare with ``nfev`` and ``njev`` of
``scipy.optimize.least_squares``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxquat.fitting.bounds import Bounds
from jaxquat.fitting.robust import Loss
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
    """A least-squares problem in n bounded parameters x, float64 arrays on the host.

    Attributes:
        residuals: x (n,) -> f (m,).
        linearised: x (n,) -> f (m,), J (m, n).
        bounds: bounds of x.
        loss: loss of f.
        rounding: the epsilon of the dtype in which f and J are computed.
    """

    residuals: Callable[[np.ndarray], np.ndarray]
    linearised: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    bounds: Bounds
    loss: Loss
    rounding: float

    def cost(self, x: np.ndarray) -> float:
        """Half the sum of squares of the transformed residuals; infinite in place of NaN."""
        return _half_square(self.loss.transformed(self.residuals(x))[0])

    def linearised_at(self, x: np.ndarray) -> Linearised:
        """The linear model at x."""
        residuals, jacobian = self.linearised(x)
        transformed, weight = self.loss.transformed(residuals)
        finite = bool(np.all(np.isfinite(jacobian)) and np.all(np.isfinite(residuals)))
        if finite:
            columns = np.column_stack([jacobian * weight[:, None], transformed])
            triangle = _triangle(columns)[: x.size]
        else:
            triangle = np.full((x.size, x.size + 1), np.nan)
        cost = _half_square(transformed)
        model = triangle[:, :-1], triangle[:, -1]
        return Linearised(x, residuals, jacobian, cost, *model, finite)

    def slope(self, at: Linearised) -> float:
        """The largest cosine between the residuals and a column of their Jacobian, 0 to 1.

        A parameter that is held at a bound does not count.
        """
        gradient, lengths = at.triangle.T @ at.projection, at.lengths()
        held = held_at(gradient, at.x, self.bounds.lower, self.bounds.upper)
        sizes = np.where(held, 0.0, lengths * np.sqrt(2.0 * at.cost))
        cosines = np.divide(np.abs(gradient), sizes, out=np.zeros_like(sizes), where=sizes > 0)
        return float(np.max(cosines))

    def whole_step(self, at: Linearised) -> tuple[np.ndarray, float]:
        """The step (n,) to the minimum of the linear model between the bounds, and its decrease."""
        lengths = at.lengths()
        scale = np.where(lengths > 0, lengths, 1.0)
        model = at.triangle / scale, at.projection
        step = step_in_box(*model, np.inf, *self.bounds.room(at.x, scale), self.rounding)
        return step / scale, -model_change(*model, step)

    def is_rounding(self, at: Linearised) -> bool:
        """Whether the residuals at x are so small that only rounding is left in them.

        Two probes along the step to the minimum of the linear model decide. A long probe, which
        changes the model by ``rounding**(-1/3)`` times the residuals, must change the residuals as
        the model predicts; it does not if a derivative is wrong, or if a better point is farther
        away than the probe. A backward probe, a third of the step, must not change them as
        predicted: rounding hides so small a change, but a jump that lies ahead does not. The sizes
        of parameters and data do not enter, so parameters may be 0, and the data, which are unknown
        here, of any size.
        """
        step = self.whole_step(at)[0]
        change = float(np.linalg.norm(at.triangle @ step))
        if change == 0.0:
            return False
        far = self.rounding ** (-1.0 / 3.0) * np.sqrt(2.0 * at.cost) / change
        long, backwards = (self._mismatch(at, part * step) for part in (far, -1.0 / 3.0))
        return long <= MISMATCH < backwards

    def _mismatch(self, at: Linearised, step: np.ndarray) -> float:
        """The error of the linear model after a step, as a part of the change that it predicts.

        Components of the step that would pass a bound are reversed. The prediction uses the step
        itself, although x + step may be rounded to x.
        """
        lower, upper = self.bounds.room(at.x, np.ones_like(at.x))
        with np.errstate(over="ignore", invalid="ignore"):  # the step may lead too far
            step = np.clip(np.where((step < lower) | (step > upper), -step, step), lower, upper)
            expected = at.jacobian @ step
            error = np.linalg.norm(self.residuals(at.x + step) - at.residuals - expected)
        size = float(np.linalg.norm(expected))
        return float(error) / size if size > 0 and np.isfinite(error) else np.inf

    def part(self, number: int) -> Problem:
        """The problem with the first ``number`` residuals alone."""

        def linearised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            residuals, jacobian = self.linearised(x)
            return residuals[:number], jacobian[:number]

        return self._replace(residuals=lambda x: self.residuals(x)[:number], linearised=linearised)


class Linearised(NamedTuple):
    """The problem, linearised at a point.

    Attributes:
        x: the parameters, (n,).
        residuals: f (m,), as given, not transformed by the loss.
        jacobian: J (m, n), of f by x.
        cost: half the sum of squares of the transformed f.
        triangle: R of the QR decomposition of the derivative of the transformed f by x, (k, n) with
            k = min(m, n).
        projection: Q^T f of the transformed f, (k,).
        finite: whether f and J are finite.
    """

    x: np.ndarray
    residuals: np.ndarray
    jacobian: np.ndarray
    cost: float
    triangle: np.ndarray
    projection: np.ndarray
    finite: bool

    def lengths(self) -> np.ndarray:
        """The lengths of the columns of the derivative, (n,)."""
        return np.linalg.norm(self.triangle, axis=0)


class Tolerances(NamedTuple):
    """The tolerances at which an iteration ends: see ``least_squares``."""

    ftol: float
    xtol: float
    gtol: float


class Minimum(NamedTuple):
    """Where an iteration ended.

    Attributes:
        at: the point.
        reason: why it ended.
        history: the cost at the start and after each accepted step.
        evaluations, jacobians: how many residuals and Jacobians were computed.
    """

    at: Linearised
    reason: Reason
    history: np.ndarray
    evaluations: int
    jacobians: int


def minimise(
    problem: Problem,
    start: Linearised,
    tolerances: Tolerances,
    max_steps: int,
    report: Callable[[Linearised], Any],
) -> Minimum:
    """Iterate from a start with finite residuals and derivatives.

    ``report`` is called with the best point so far after each step.
    """
    here, history, steps, jacobians, probes = start, [start.cost], 0, 1, 0
    lengths, farthest = start.lengths(), np.abs(start.x)
    radius = float(np.linalg.norm(lengths * start.x)) or np.inf
    reason = Reason.GRADIENT if problem.slope(here) <= tolerances.gtol else None
    while reason is None:
        lengths = np.maximum(lengths, here.lengths())
        scale = np.where(lengths > 0, lengths, 1.0)
        model = here.triangle / scale, here.projection
        room = problem.bounds.room(here.x, scale)
        step = step_in_box(*model, radius, *room, problem.rounding)
        size = float(np.linalg.norm(step))
        decrease = -model_change(*model, step)
        x, steps = problem.bounds.moved(here.x, step, scale), steps + 1
        cost = problem.cost(x)
        there = here
        if here.cost - cost > LOWEST_GAIN * decrease:
            there, jacobians = problem.linearised_at(x), jacobians + 1
            cost = there.cost if there.finite else np.inf
        accepted = there is not here and there.finite
        gain = (here.cost - cost) / decrease if accepted else 0.0
        whole, promise = problem.whole_step(here)
        small_change = max(abs(here.cost - cost), promise) <= tolerances.ftol * here.cost
        small_step = bool(np.all(np.abs(whole) <= tolerances.xtol * np.abs(here.x)))
        stuck = not accepted and size <= tolerances.xtol * np.linalg.norm(scale * here.x)
        if gain < 0.25:
            radius = 0.25 * size
        elif gain > 0.75:
            radius = 2.0 * size
        tiny = bool(np.all(np.abs(whole) <= np.sqrt(problem.rounding) * farthest))
        if accepted:
            here, farthest = there, np.maximum(farthest, np.abs(x))
            history.append(here.cost)
        report(here)
        flat = problem.slope(here) ** 2 <= max(tolerances.ftol, problem.rounding ** (2.0 / 3.0))
        if tiny and here.cost <= problem.rounding**2 * history[0]:
            reason = Reason.ZERO
        elif small_change:
            reason = Reason.COST
        elif accepted and problem.slope(here) <= tolerances.gtol:
            reason = Reason.GRADIENT
        elif small_step and np.isfinite(cost) and (flat or gain > TRUSTED_GAIN):
            reason = Reason.STEP
        elif stuck and flat and np.isfinite(cost):
            reason = Reason.COST  # rounding of the cost hides what a flat direction promises
        elif np.isfinite(cost) and not flat and (stuck or steps % PROBES == 0):
            probes += 2
            if problem.is_rounding(here):
                reason = Reason.ROUNDING
        if reason is None and stuck:
            reason = Reason.NO_DESCENT if np.isfinite(cost) else Reason.NOT_FINITE
        if reason is None and steps == max_steps:
            reason = Reason.MAX_STEPS
    return Minimum(here, reason, np.array(history), 1 + steps + probes, jacobians)


def minimise_in_parts(
    problem: Problem,
    start: Linearised,
    parts: list[int],
    tolerances: Tolerances,
    max_steps: int,
    report: Callable[[Linearised], Any],
) -> Minimum:
    """Minimise the first ``parts[0]`` residuals, the first ``parts[1]``, and so on, then all.

    The minimum of a part is only the start of the next part, so its iteration ends when the cost
    changes by less than a tenth. The history covers only the iteration with all residuals.
    """
    coarse = tolerances._replace(ftol=max(tolerances.ftol, 0.1))
    here, evaluations, jacobians = start, 0, 0
    for number in parts:
        part = problem.part(number)
        reached = minimise(part, part.linearised_at(here.x), coarse, max_steps, report)
        evaluations, jacobians = evaluations + reached.evaluations, jacobians + reached.jacobians
        here = reached.at
    if parts:
        here = problem.linearised_at(here.x)
        if not here.finite:
            here = start
    last = minimise(problem, here, tolerances, max_steps, report)
    return last._replace(
        evaluations=last.evaluations + evaluations, jacobians=last.jacobians + jacobians
    )


def _triangle(matrix: np.ndarray, rows: int = 256) -> np.ndarray:
    """R of the QR decomposition of a tall matrix (m, n), block by block.

    Blocks fit in the cache: for 24,000 rows this is several times as fast as one decomposition.
    """
    columns = matrix.shape[1]
    rows = max(rows, 4 * columns)
    while len(matrix) > 2 * rows:
        count = len(matrix) // rows
        blocks = matrix[: count * rows].reshape(count, rows, columns)
        parts = np.asarray(np.linalg.qr(blocks, mode="r")).reshape(-1, columns)
        matrix = np.concatenate([parts, matrix[count * rows :]])
    return np.asarray(np.linalg.qr(matrix, mode="r"))


def _half_square(residuals: np.ndarray) -> float:
    with np.errstate(over="ignore"):
        total = 0.5 * float(np.sum(residuals**2))
    return total if np.isfinite(total) else np.inf

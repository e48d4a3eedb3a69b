"""The Levenberg-Marquardt iteration, as a trust region (J. J. More, Lect. Notes Math. 630, 1978).

Let f be the residuals, J their Jacobian, and D the lengths of the columns of J, the largest met so
far. A step p minimises ``|J p + f|^2`` within ``|D p| <= radius``; D makes it independent of the
units of the parameters. It is the step of Gauss and Newton where that is short enough, else the
one with the damping that makes it as long as the radius. This needs only the triangle of the QR
decomposition of ``J/D``, computed once for each J, and its singular values.

The gain, the decrease of the cost as a part of the decrease that the linear model predicts, moves
the radius: below 1/4 it is a quarter of the step, above 3/4 twice the step. It begins
where the parameters change by their own size, whatever their units.

The iteration is on the host in float64. Only residuals and Jacobians are compiled, and a Jacobian
is computed at accepted points alone, so the counts compare with ``nfev`` and ``njev`` of
``scipy.optimize.least_squares``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxquat.learning.bounds import Bounds
from jaxquat.learning.robust import Loss

LOWEST_GAIN = 1e-4  # of a step that is accepted
ROUND = 1.1  # times the radius is near enough


class Reason(enum.Enum):
    """Why an iteration ended, in words."""

    GRADIENT = "gradient small"
    STEP = "step small"
    COST = "cost change small"
    ZERO = "residuals zero beside those at the start"
    MAX_STEPS = "max_steps reached"
    NO_DESCENT = "no step, however short, lowers the cost as the derivatives say"
    NOT_FINITE = "residuals or derivatives not finite, however short the step"

    @property
    def converged(self) -> bool:
        """Whether the iteration has ended at a minimum."""
        return self in (Reason.GRADIENT, Reason.STEP, Reason.COST, Reason.ZERO)


class Problem(NamedTuple):
    """A least-squares problem in n bounded parameters x, float64 arrays on the host.

    Attributes:
        residuals: x (n,) -> f (m,).
        linearised: x (n,) -> f (m,), J (m, n).
        bounds: of x.
        loss: of f.
    """

    residuals: Callable[[np.ndarray], np.ndarray]
    linearised: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    bounds: Bounds
    loss: Loss

    def cost(self, y: np.ndarray) -> float:
        """Half the sum of squares at unbounded parameters y; infinite if it is not finite."""
        return _half_square(self.loss.transformed(self.residuals(self.bounds.bounded(y)[0]))[0])

    def linearised_at(self, y: np.ndarray) -> Linearised:
        """The linear model at unbounded parameters y."""
        x, slope = self.bounds.bounded(y)
        residuals, jacobian = self.linearised(x)
        transformed, weight = self.loss.transformed(residuals)
        finite = bool(np.all(np.isfinite(jacobian)) and np.all(np.isfinite(residuals)))
        if finite:
            columns = np.column_stack([jacobian * weight[:, None] * slope, transformed])
            triangle = _triangle(columns)[: slope.size]
        else:
            triangle = np.full((slope.size, slope.size + 1), np.nan)
        cost = _half_square(transformed)
        model = triangle[:, :-1], triangle[:, -1]
        return Linearised(y, x, residuals, jacobian, cost, *model, finite)

    def part(self, number: int) -> Problem:
        """The problem of the first residuals alone, so many."""

        def linearised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            residuals, jacobian = self.linearised(x)
            return residuals[:number], jacobian[:number]

        return self._replace(residuals=lambda x: self.residuals(x)[:number], linearised=linearised)


class Linearised(NamedTuple):
    """The problem at a point.

    Attributes:
        y: unbounded parameters, (n,).
        x: the parameters, (n,).
        residuals: f (m,), as given, not transformed by the loss.
        jacobian: J (m, n), of f by x.
        cost: half the sum of squares of the transformed f.
        triangle: R of the QR decomposition of the derivative of the transformed f by y, (n, n).
        projection: Q^T f of the transformed f, (n,).
        finite: whether f and J are.
    """

    y: np.ndarray
    x: np.ndarray
    residuals: np.ndarray
    jacobian: np.ndarray
    cost: float
    triangle: np.ndarray
    projection: np.ndarray
    finite: bool

    def lengths(self) -> np.ndarray:
        """The lengths of the columns of the derivative by y, (n,)."""
        return np.linalg.norm(self.triangle, axis=0)

    def slope(self) -> float:
        """The largest cosine between the residuals and a column of their derivative, 0 to 1."""
        products = np.abs(self.triangle.T @ self.projection)
        sizes = self.lengths() * np.sqrt(2.0 * self.cost)
        return float(np.max(np.divide(products, sizes, out=np.zeros_like(sizes), where=sizes > 0)))


class Tolerances(NamedTuple):
    """When an iteration ends: see ``least_squares``. ``zero`` is the rounding of residuals."""

    ftol: float
    xtol: float
    gtol: float
    zero: float


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
    report: Callable[[float], Any],
) -> Minimum:
    """Iterate from a start with finite residuals and derivatives.

    ``report`` is called with the cost after each step.
    """
    here, history, steps, jacobians = start, [start.cost], 0, 1
    x, slope = problem.bounds.bounded(start.y)
    lengths = start.lengths()
    radius = float(np.linalg.norm(lengths * x / slope)) or np.inf
    reason = Reason.GRADIENT if here.slope() <= tolerances.gtol else None
    while reason is None:
        lengths = np.maximum(lengths, here.lengths())
        scale = np.where(lengths > 0, lengths, 1.0)
        triangle = here.triangle / scale
        step, damping = step_within(triangle, here.projection, radius)
        size = float(np.linalg.norm(step))
        decrease = 0.5 * np.sum((triangle @ step) ** 2) + damping * size**2
        y, steps = here.y + step / scale, steps + 1
        cost = problem.cost(y)
        there = here
        if here.cost - cost > LOWEST_GAIN * decrease:
            there, jacobians = problem.linearised_at(y), jacobians + 1
            cost = there.cost if there.finite else np.inf
        accepted = there is not here and there.finite
        gain = (here.cost - cost) / decrease if accepted else 0.0
        small_step = size <= tolerances.xtol * np.linalg.norm(scale * here.y)
        # The radius makes any step small in the end, so a refused one says nothing by its size.
        # What a step without a radius promises does.
        promise = decrease if accepted else 0.5 * np.sum(here.projection**2)
        small_change = max(abs(here.cost - cost), promise) <= tolerances.ftol * here.cost
        if gain < 0.25:
            radius = 0.25 * size
        elif gain > 0.75:
            radius = 2.0 * size
        if accepted:
            here = there
            history.append(here.cost)
        report(here.cost)
        if cost <= tolerances.zero**2 * history[0]:
            reason = Reason.ZERO
        elif small_change:
            reason = Reason.COST
        elif accepted and here.slope() <= tolerances.gtol:
            reason = Reason.GRADIENT
        elif small_step:
            failed = Reason.NO_DESCENT if np.isfinite(cost) else Reason.NOT_FINITE
            reason = Reason.STEP if accepted else failed
        elif steps == max_steps:
            reason = Reason.MAX_STEPS
    return Minimum(here, reason, np.array(history), 1 + steps, jacobians)


def minimise_in_parts(
    problem: Problem,
    start: Linearised,
    parts: list[int],
    tolerances: Tolerances,
    max_steps: int,
    report: Callable[[float], Any],
) -> Minimum:
    """Like ``minimise``, but first for the first residuals alone, as many as ``parts`` say.

    A part only has to lead to where the next one begins, so it ends with a change of the cost of a
    tenth. The history is that of all residuals.
    """
    coarse = tolerances._replace(ftol=max(tolerances.ftol, 0.1))
    here, evaluations, jacobians = start, 0, 0
    for number in parts:
        part = problem.part(number)
        reached = minimise(part, part.linearised_at(here.y), coarse, max_steps, report)
        evaluations, jacobians = evaluations + reached.evaluations, jacobians + reached.jacobians
        here = reached.at
    if parts:
        here = problem.linearised_at(here.y)
        if not here.finite:
            here = start
    last = minimise(problem, here, tolerances, max_steps, report)
    return last._replace(
        evaluations=last.evaluations + evaluations, jacobians=last.jacobians + jacobians
    )


def step_within(
    triangle: np.ndarray, projection: np.ndarray, radius: float
) -> tuple[np.ndarray, float]:
    """The p (n,) with ``|p| <= radius`` that minimises ``|triangle p + projection|^2``.

    Also its damping: p minimises ``|triangle p + projection|^2 + damping |p|^2`` without a radius.
    Directions that the triangle does not see stay as they are.
    """
    left, singular, right = np.linalg.svd(triangle)
    seen = singular > len(singular) * np.finfo(float).eps * singular[0]
    singular, projected = singular[seen], (left.T @ projection)[seen]
    damping: float = 0.0
    step = projected / singular
    # Newton's method for 1/|p| = 1/radius, concave in the damping: from 0 it rises to the root.
    while (length := float(np.linalg.norm(step))) > ROUND * radius:
        curvature = float(np.sum(step**2 / (singular**2 + damping)))
        damping += (length / radius - 1.0) * length**2 / curvature
        step = singular * projected / (singular**2 + damping)
    return -right[seen].T @ step, damping


def _triangle(matrix: np.ndarray, rows: int = 256) -> np.ndarray:
    """R of the QR decomposition of a tall matrix (m, n), block by block.

    Blocks stay in the cache: for 24,000 rows that is several times as fast as all at once.
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

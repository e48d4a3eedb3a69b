"""Steps that minimise a linear least-squares model within a radius and within bounds.

``step_in_box`` minimises ``|R p + g|^2``, with the triangle R of the scaled Jacobian and the
projected residuals g, over the steps p with ``|p| <= radius`` and ``lower <= p <= upper``. The
method is that of C. L. Lawson and R. J. Hanson, Solving Least Squares Problems (1974), chapter 23,
with a radius: components at a bound are held there, the step goes towards the solution for the
others until it meets the next bound, and a held component is released if the model then falls.
"""

from __future__ import annotations

import numpy as np

EPS = float(np.finfo(float).eps)
ROUND = 1.1  # a step of at most this many radii counts as within the radius


def held_at(
    gradient: np.ndarray, step: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """Return which components (n,) of a step are at a bound that downhill motion would pass."""
    return ((step <= lower) & (gradient >= 0)) | ((step >= upper) & (gradient <= 0))


def step_in_box(
    triangle: np.ndarray,
    projection: np.ndarray,
    radius: float,
    lower: np.ndarray,
    upper: np.ndarray,
    rounding: float = EPS,
) -> np.ndarray:
    """Return the p (n,) in ball and bounds that minimises ``|triangle p + projection|^2``."""
    step = np.zeros(triangle.shape[1])
    held = held_at(triangle.T @ projection, step, lower, upper)
    best, lowest = step, 0.0
    while True:
        target, damping = _towards(triangle, projection, radius, step, held, rounding)
        share, meets = _way(step, target, lower, upper)
        step = step + share * (target - step)
        if meets is not None:
            step[meets] = (lower if target[meets] < step[meets] else upper)[meets]
            held[meets] = True
            continue
        change = model_change(triangle, projection, step)
        if not change < lowest:
            return best
        best, lowest = step, change
        gradient = triangle.T @ (triangle @ step + projection) + damping * step
        released = held & ~held_at(gradient, step, lower, upper)
        if not np.any(released):
            return best
        held[np.argmax(np.where(released, np.abs(gradient), 0.0))] = False


def model_change(triangle: np.ndarray, projection: np.ndarray, step: np.ndarray) -> float:
    """Return the change of ``1/2 |triangle p + projection|^2`` by a step, without cancellation."""
    moved = triangle @ step
    return float(moved @ (projection + 0.5 * moved))


def _step_within(
    triangle: np.ndarray, projection: np.ndarray, radius: float, rounding: float
) -> tuple[np.ndarray, float]:
    """Return the p (n,), ``|p| <= radius``, that minimises the model, and its damping."""
    left, singular, right = np.linalg.svd(triangle, full_matrices=False)
    seen = singular > max(triangle.shape) * rounding * singular[0]
    singular, projected = singular[seen], (left.T @ projection)[seen]
    damping: float = 0.0
    step = projected / singular
    # Newton's method for 1/|p| = 1/radius, concave in the damping: from 0, it rises to the root.
    while (length := float(np.linalg.norm(step))) > ROUND * radius:
        curvature = float(np.sum(step**2 / (singular**2 + damping)))
        damping += (length / radius - 1.0) * length**2 / curvature
        step = singular * projected / (singular**2 + damping)
    return -right[seen].T @ step, damping


def _towards(
    triangle: np.ndarray,
    projection: np.ndarray,
    radius: float,
    step: np.ndarray,
    held: np.ndarray,
    rounding: float,
) -> tuple[np.ndarray, float]:
    """Return the best step with the held components unchanged, and its damping."""
    if np.all(held):
        return step, 0.0
    free = ~held
    size, fixed = (float(np.linalg.norm(step[part])) for part in (free, held))
    free_radius = float(np.sqrt(max((radius - fixed) * (radius + fixed), 0.0)))
    # The ball contains the step, so the model cannot rise on the way.
    free_radius = max(free_radius, size, 1e-3 * radius)
    residuals = projection + triangle[:, held] @ step[held]
    target = step.copy()
    target[free], damping = _step_within(triangle[:, free], residuals, free_radius, rounding)
    return target, damping


def _way(
    step: np.ndarray, target: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[float, int | None]:
    """Return the share of the way to the target within the bounds, and what limits it."""
    direction = target - step
    room = np.where(direction < 0, lower - step, upper - step)
    beyond = np.abs(direction) > np.abs(room)
    if not np.any(beyond):
        return 1.0, None
    shares = np.divide(room, direction, out=np.ones_like(room), where=beyond)
    return max(float(np.min(shares)), 0.0), int(np.argmin(shares))

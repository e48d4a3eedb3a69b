"""Whether a descent has reached a minimum, judged by the loss and gradient at its end.

If every parameter moved again as far as it has moved, the loss would fall, to first order, by at
most the sum of ways times derivatives. The descent has converged if that is less than a thousandth
of what the loss has fallen: scales and offsets do not matter. Where the loss changes from update to
update, means over updates count; within three standard errors the verdict is unknown.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxquat.fitting.descent import Descent, Position

SHARE = 1e-3
"""A descent has converged if the loss would fall by less than this share of its decrease."""

NOISY_UPDATES = 8
"""Updates to evaluate if the loss is noisy; a twentieth of the updates made if that is more."""

DOUBT = 3.0
"""Standard errors that a verdict needs."""


class Verdict(enum.IntEnum):
    """Whether a descent has converged, as the number that goes to disk."""

    NOT_JUDGED = 0  # the descent is in progress
    NO = 1
    YES = 2
    UNKNOWN = 3

    @property
    def converged(self) -> bool | None:
        """The verdict as in ``Fit.converged``."""
        return {Verdict.NO: False, Verdict.YES: True}.get(self)


def judge(descent: Descent, beginning: Position, end: Position, history: np.ndarray) -> np.ndarray:
    """Return the ``Verdict`` on each start, int8, from the losses before each update (..., n)."""
    number, first = history.shape[-1], np.asarray(history[..., 0], float).ravel()
    here, noise = _moments(descent, end, number, 2, first.size), np.zeros(first.size)
    if np.any(here.square != 0) or np.any(here.seen == 1):  # one of two losses was not finite
        count = max(NOISY_UPDATES, number // 20)
        both = [_moments(descent, x, number, count, first.size) for x in (end, beginning)]
        here, first = both[0], both[1].mean[:, 0]
        noise = np.hypot(*(x.standard_error()[:, 0] for x in both))
    seen, loss = here.seen[:, 0], np.abs(here.mean[:, 0])
    params, begun = (_rows(x.params, first.size) for x in (end, beginning))
    fallen, way = first - here.mean[:, 0], np.abs(params - begun)
    slope, doubt = np.abs(here.mean[:, 1:]), DOUBT * here.standard_error()[:, 1:]
    steepest, flattest = slope + doubt, np.maximum(slope - doubt, 0.0)
    moved = np.any(way > 0, axis=1)  # a start that did not move at all has not converged
    has_scale = np.all((steepest == 0) | (params != 0), axis=1)
    eps = max(float(jnp.finfo(x.dtype).eps) for x in jax.tree.leaves(end.params))
    with np.errstate(over="ignore", invalid="ignore"):  # the fit may have diverged
        yes = moved & (np.sum(steepest * way, axis=1) <= SHARE * (fallen - DOUBT * noise))
        # A gradient that vanishes to rounding is a minimum, too, wherever the descent started.
        yes |= has_scale & (np.sum(steepest * np.abs(params), axis=1) <= np.sqrt(eps) * loss)
        most_fallen = np.maximum(fallen + DOUBT * noise, 0.0)
        no = ~moved | (np.sum(flattest * way, axis=1) > SHARE * most_fallen)
    # A start without finite losses has no minimum; one update alone has no standard error.
    conditions = [seen == 0, seen == 1, yes, no]
    verdicts = [Verdict.NO, Verdict.UNKNOWN, Verdict.YES, Verdict.NO]
    chosen = np.select(conditions, verdicts, Verdict.UNKNOWN)
    return chosen.astype(np.int8).reshape(history.shape[:-1])


class _Moments(NamedTuple):
    """Moments of loss and gradient, (starts, 1 + n), over the updates at which both were finite."""

    seen: np.ndarray  # number of these updates, (starts, 1)
    mean: np.ndarray
    square: np.ndarray  # sums of squared deviations, exactly 0 if all updates had the same bits

    def standard_error(self) -> np.ndarray:
        return np.sqrt(self.square / np.maximum(self.seen * (self.seen - 1.0), 1.0))


@np.errstate(over="ignore", invalid="ignore")
def _moments(
    descent: Descent, position: Position, number: int, count: int, starts: int
) -> _Moments:
    """Return the moments over ``count`` updates from ``number`` on, by Welford's recurrence."""
    moments = _Moments(np.zeros((starts, 1), int), np.zeros(1), np.zeros(1))
    for k in range(number, number + count):
        row = _rows(descent.seen(position, k), starts)
        good = np.all(np.isfinite(row), axis=1, keepdims=True)
        seen, before = moments.seen + good, row - moments.mean
        mean = moments.mean + np.where(good, before / np.maximum(seen, 1), 0.0)
        square = moments.square + np.where(good, before * (row - mean), 0.0)
        moments = _Moments(seen, mean, square)
    return moments


def _rows(tree: Any, starts: int) -> np.ndarray:
    leaves = [np.reshape(x, (starts, -1)).astype(float) for x in jax.tree.leaves(tree)]
    return np.concatenate(leaves, axis=1)

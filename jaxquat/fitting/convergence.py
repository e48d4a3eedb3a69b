"""Whether a descent has reached a minimum, judged by the loss and gradient at its end.

If every parameter moved again as far as it has moved, the loss would fall, to first order, by at
most the sum of ways times derivatives. The descent has converged if that is less than a thousandth
of what the loss has fallen: scales and offsets do not matter. Where the loss changes from update to
update, means over updates count; within three standard errors the verdict is unknown.
"""

from __future__ import annotations

import enum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxquat.fitting.descent import Descent, Moments, Position

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
    number, first = history.shape[-1], np.asarray(history[..., 0], float)
    here, noise = descent.look_ahead(end, number, 2), np.zeros(first.size)
    if _is_noisy(here):
        count = max(NOISY_UPDATES, number // 20)
        here, there = (descent.look_ahead(x, number, count) for x in (end, beginning))
        first = np.asarray(there.mean[0], float)
        noise = np.hypot(*(_standard_error(x.square[0], x.count).ravel() for x in (here, there)))
    seen, loss = np.ravel(here.count), np.abs(np.ravel(here.mean[0]))
    params, begun, slope, square = (
        _rows(tree, seen.size)
        for tree in (end.params, beginning.params, here.mean[1], here.square[1])
    )
    fallen, way = first.ravel() - np.ravel(here.mean[0]), np.abs(params - begun)
    slope, doubt = np.abs(slope), DOUBT * _standard_error(square, seen[:, None])
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


def _is_noisy(moments: Moments) -> bool:
    """Return whether two updates differ in loss or gradient, or one is not finite."""
    deviates = any(np.any(x != 0) for x in jax.tree.leaves(moments.square))
    return bool(np.any(moments.count == 1)) or deviates


def _standard_error(square: Any, count: Any) -> np.ndarray:
    square = np.maximum(np.asarray(square, float), 0.0)  # rounding may make it negative
    return np.sqrt(square / np.maximum(count * (count - 1.0), 1.0))


def _rows(tree: Any, starts: int) -> np.ndarray:
    leaves = [np.reshape(x, (starts, -1)).astype(float) for x in jax.tree.leaves(tree)]
    return np.concatenate(leaves, axis=1)

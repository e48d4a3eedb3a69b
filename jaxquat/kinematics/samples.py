"""Rates between samples, from polynomials through the nearest samples.

The rate at a Gauss node of an interval comes from the polynomial through the nearest ``order``
samples, half of them on either side, one-sided at the ends. All intervals of equally spaced samples
share the same weights. For samples at given times, each has its own, by Lagrange's formula.

Two samples at a distance s give a slope with the error ``eps |omega| / s``; an interval of length h
beside them multiplies this error by h. So if a sample lies too close behind another one, as seen
from the interval, it is omitted there and the next one replaces it: ``_apart`` says how close.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jaxquat._internal.checks import is_concrete
from jaxquat.kinematics.magnus_expansion import NODES
from jaxquat.simulation.grid import grid_at


def checked_times(times: ArrayLike, samples: int) -> Any:
    """Return the times (samples,), in NumPy if concrete; only the last one may be repeated."""
    stamps = grid_at(times).stamps
    if jnp.shape(stamps) != (samples,):
        wanted = f"shape ({samples},), a time for each sample"
        raise ValueError(f"times: wanted {wanted}, got {jnp.shape(stamps)}")
    if not is_concrete(stamps):
        return stamps
    stamps = np.asarray(stamps)
    stands = (np.diff(stamps) == 0) & (stamps[1:] != stamps[-1])
    for k in np.flatnonzero(stands)[:1]:
        wanted = "times that increase, up to repeats of the last one"
        got = f"times[{k}] = times[{k + 1}] = {stamps[k]}"
        raise ValueError(f"times: wanted {wanted}, got {got}")
    return stamps


def rates_at_equal_distances(omega: Array, order: int) -> list[Array]:
    """Return rates at Gauss nodes, each (N - 1, 3), by central stencils of extrapolated samples."""
    places, outside = np.arange(order), np.arange(1, order // 2)
    before = _combine(_weights(places, -outside[::-1]), omega[:order])
    after = _combine(_weights(places, order - 1 + outside), omega[-order:])
    extended = jnp.concatenate([before, omega, after])
    steps, weights = len(omega) - 1, _weights(places, np.array(NODES[order]) + order // 2 - 1)
    stencil = jnp.stack([extended[k : k + steps] for k in range(order)])  # (order, steps, 3)
    rows = [jnp.asarray(row, omega.dtype)[:, None, None] for row in weights]
    return [jnp.sum(row * stencil, axis=0) for row in rows]


def _weights(places: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return Lagrange's weights (points, places) of the values at ``places`` for points ``at``."""
    other_places = [np.delete(places, k) for k in range(len(places))]
    pairs = list(zip(places, other_places, strict=True))
    rows = [[np.prod((x - o) / (p - o)) for p, o in pairs] for x in at]
    return np.array(rows).reshape(len(at), len(places))


def _combine(weights: np.ndarray, rows: Array) -> Array:
    return jnp.sum(jnp.asarray(weights, rows.dtype)[:, :, None] * rows[None], axis=1)


def rates_at_times(
    omega: Array, stamps: Any, order: int, dtype: DTypeLike
) -> tuple[list[Array], Array, Array]:
    """Return the rates at the Gauss nodes between N samples (N, 3) at given times (N,)."""
    # Returns the rates, each (N - 1, 3); the lengths of the intervals [s], (N - 1, 1); and which
    # intervals are empty, (N - 1, 1). The last time may be repeated: only the first sample at that
    # time counts. An empty interval gets the rates of the last nonempty one, so that its
    # derivatives are finite; the caller drops them. If fewer than ``order`` times differ, the
    # polynomial goes through all samples.
    # Times are subtracted in their own dtype, by NumPy if concrete: so Unix times (1.7e9 s)
    # in float64 keep their differences, even if JAX has only float32.
    xp: Any = np if is_concrete(stamps) else jnp
    intervals = xp.arange(len(omega) - 1)
    last = xp.argmax(stamps == stamps[-1])
    steps = xp.minimum(intervals, xp.maximum(last - 1, 0))
    dt, steps, count = jnp.asarray(stamps[1:] - stamps[:-1], dtype), jnp.asarray(steps), last + 1
    width = min(order + 2, len(omega))  # one more on either side, to replace omitted samples
    first = jnp.clip(steps - order // 2, 0, jnp.maximum(count - width, 0))
    stencil, own = first[:, None] + jnp.arange(width)[None], (steps - first)[:, None]
    places, is_apart = _apart(dt[stencil[:, :-1]], own)
    counts = _nearest(is_apart & (stencil < count), own, order)
    values = jnp.where(counts[..., None], omega[stencil], jnp.zeros_like(omega[stencil]))
    rates = []
    for node in NODES[order]:
        weights = _weights_in_rows(places, counts, node * dt[steps][:, None])
        rates.append(jnp.sum(weights[..., None] * values, axis=1))
    return rates, dt[steps][:, None], jnp.asarray(intervals >= last)[:, None]


def _apart(lengths: Array, own: Array) -> tuple[Array, Array]:
    """Return the places of the k samples of stencils, and which are apart from the next inwards."""
    # (rows, k). Places are sums of intervals outwards from the step ``own`` (rows, 1). A sample is
    # apart at ``eps^(1/3)`` times its distance from the far end: rates are right to ``eps^(2/3)``.
    number, zero = np.arange(lengths.shape[1])[None], jnp.zeros_like(lengths[:, :1])
    after = jnp.cumsum(jnp.where(number >= own, lengths, jnp.zeros_like(lengths)), axis=1)
    before = jnp.where(number < own, lengths, jnp.zeros_like(lengths))
    before = jnp.cumsum(before[:, ::-1], axis=1)[:, ::-1]
    places = jnp.concatenate([-before, zero], axis=1) + jnp.concatenate([zero, after], axis=1)
    sample = np.arange(places.shape[1])[None]
    step = jnp.take_along_axis(lengths, own, axis=1)
    is_right = sample > own
    left, right = (jnp.concatenate(x, axis=1) for x in ([lengths, zero], [zero, lengths]))
    inwards = jnp.where(is_right, right, left)
    from_far_end = jnp.where(is_right, places, step - places)
    closest = jnp.finfo(lengths.dtype).eps ** (1 / 3) * from_far_end
    return places, (sample == own) | (sample == own + 1) | (inwards >= closest)


def _nearest(is_candidate: Array, own: Array, order: int) -> Array:
    """Return which candidates (rows, k) are nearest to the step, half of them on either side."""
    rank = jnp.cumsum(is_candidate, axis=1) - 1
    most = jnp.maximum(rank[:, -1:] + 1 - order, 0)
    begin = jnp.clip(jnp.take_along_axis(rank, own, axis=1) - (order // 2 - 1), 0, most)
    return is_candidate & (rank >= begin) & (rank < begin + order)


def _weights_in_rows(places: Array, counts: Array, at: Array) -> Array:
    """Return Lagrange's weights (rows, k) at one point of each row, for places where ``counts``."""
    weights, one = counts.astype(places.dtype), jnp.ones((), places.dtype)
    for j in range(places.shape[1]):
        other = places[:, j : j + 1]
        has_factor = counts & counts[:, j : j + 1] & (np.arange(places.shape[1]) != j)[None]
        distance = jnp.where(has_factor, places - other, one)
        weights = weights * jnp.where(has_factor, (at - other) / distance, one)
    return weights

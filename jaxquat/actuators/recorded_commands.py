"""Responses to recorded commands in closed form: a delay, and a first-order lag.

Each of N recorded commands holds until the next one (a zero-order hold), the last one for good. So
the integral of the commands, and the state of a lag that follows them, are known functions within
each interval, differentiable with respect to the delay although the commands jump.

Times and integrals are sums of two numbers, (high, low), whose differences keep their digits in
float32 far from the beginning of a log: the difference of two similar high parts is exact.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jaxquat._internal import checks
from jaxquat._internal.renamed import refuses_old_keywords
from jaxquat.simulation.grid import grid_at


@refuses_old_keywords("actuators.delay_record")
def delay_record(
    times: ArrayLike,
    commands: ArrayLike,
    delay: ArrayLike,
    between: ArrayLike | None = None,
    *,
    start: ArrayLike | None = None,
) -> Array:
    """Average delayed recorded commands over the intervals between given times.

    The means are inputs for ``rollout``, one per interval of ``jq.grid_at(between)``. So the steps
    of a simulation may be longer than those of the record, and the delay need not be a multiple of
    either. The derivative with respect to the delay is ``(u(a - delay) - u(b - delay))/(b - a)``::

        inputs = actuators.delay_record(stamps, commands, params["latency"])
        path = jq.rollout(jq.rkmk4, body, torque, start, jq.grid_at(stamps), params, inputs=inputs)

    Args:
        times: (N,) [s], at least two, not decreasing. NumPy subtracts concrete times, in float64.
        commands: (N,) or (N, k), one per time.
        delay: () [s]. A negative delay makes the commands earlier.
        between: (..., M) [s], M at least 2, not decreasing along the last axis; ``times`` by
            default. An interval of length 0, for instance padding, gets the command at its time.
        start: the command until the first one arrives, () or (k,); by default that command, as if
            it had held for long. ``lag_record`` has the same argument: give both the same value.

    Returns:
        (..., M - 1) or (..., M - 1, k), in the dtype of commands, delay and start.

    Examples:
        >>> stamps, commands = np.array([0.0, 1.0, 2.0]), jnp.array([0.0, 1.0, 1.0])
        >>> jq.actuators.delay_record(stamps, commands, 0.25)  # arrives in the second interval
        Array([0.  , 0.75], dtype=float32)
        >>> jq.actuators.delay_record(stamps, 1.0 - commands, 0.25, start=0.0)  # a log from rest
        Array([0.75, 0.25], dtype=float32)
    """
    delay = checks.scalar("delay", delay)
    record = _recorded(times, commands, start, delay)
    edges = _instants("between", times if between is None else between)
    if np.ndim(edges) < 1 or np.shape(edges)[-1] < 2:
        raise ValueError(f"between: wanted shape (..., M) with M >= 2, got {np.shape(edges)}")
    checks.not_decreasing("between", edges)

    j, s = _interval(record, edges, delay)
    now = jnp.asarray(record.commands, record.dtype)[j]
    is_before, s = ((j == 0) & (s <= 0))[..., None], s[..., None]
    now = jnp.where(is_before, jnp.broadcast_to(record.first, now.shape), now)
    high, low = _integrals(record)
    parts = high[j], low[j], now * s
    change = jnp.sum(jnp.stack([jnp.diff(part, axis=-2) for part in parts]), axis=0)
    length = jnp.asarray(edges[..., 1:] - edges[..., :-1], record.dtype)[..., None]
    empty = length == 0
    mean = jnp.where(empty, now[..., 1:, :], change / jnp.where(empty, 1.0, length))
    return mean if np.ndim(commands) == 2 else mean[..., 0]


@refuses_old_keywords("actuators.lag_record")
def lag_record(
    times: ArrayLike,
    commands: ArrayLike,
    time_constant: ArrayLike,
    at: ArrayLike | None = None,
    *,
    delay: ArrayLike = 0.0,
    start: ArrayLike | None = None,
) -> Array:
    """Return the states of a first-order lag that follows recorded commands, at any times.

    They solve ``x' = (u(t - delay) - x)/time_constant`` exactly. For instance they are unmeasured
    motor speeds, the initial states for the windows of a fit, computed from the fitted params. They
    are differentiable with respect to all arguments; at the time of a command, the derivative with
    respect to the delay is the one-sided one towards longer delays.

    Args:
        times: as for ``delay_record``.
        commands: as for ``delay_record``.
        time_constant: () or (k,) [s].
        at: the times of the states, any shape [s]; ``times`` by default.
        delay: () [s], from a command to its effect on the lag.
        start: the state until the first command arrives, () or (k,); by default that command, as if
            it had held for long.

    Returns:
        The shape of ``at``, or (..., k), in the dtype of commands, time constant, delay and start.

    Examples:
        >>> stamps, commands = np.array([0.0, 1.0, 2.0]), jnp.array([0.0, 1.0, 1.0])
        >>> x = jq.actuators.lag_record(stamps, commands, 0.5)  # a command holds until the next one
        >>> f"{x[1]:.3f} {x[2]:.3f}"  # 1 - exp(-2) after a second
        '0.000 0.865'
    """
    delay = checks.scalar("delay", delay)
    time_constant = checks.floating("time_constant", time_constant)
    record = _recorded(times, commands, start, delay, time_constant)
    checks.one_shape("time_constant", time_constant, (), record.first.shape)
    checks.positive("time_constant", time_constant)
    j, s = _interval(record, _instants("at", times if at is None else at), delay)

    def moved(x: Array, command: Array, seconds: Array) -> Array:
        """Return the state that x reaches in an interval."""
        ratio = seconds / time_constant.reshape((1,) * (seconds.ndim - 1) + (-1,))
        return x + (command - x) * -jnp.expm1(-ratio)

    def scanned(x: Array, interval: tuple[Array, Array]) -> tuple[Array, Array]:
        x = moved(x, *interval)
        return x, x

    values = jnp.asarray(record.commands, record.dtype)
    lengths = jnp.asarray(record.stamps[1:] - record.stamps[:-1], record.dtype)[:, None]
    _, later = jax.lax.scan(scanned, record.first, (values[:-1], lengths))
    states = jnp.concatenate([record.first[None], later])
    since = jnp.where(s > 0, s, 0.0)[..., None]  # before the first command nothing moves
    x = moved(states[j], values[j], since)
    return x if np.ndim(commands) == 2 else x[..., 0]


class _Record(NamedTuple):
    """Recorded commands: NumPy arrays if they are concrete, even while other arrays are traced."""

    stamps: Any  # (N,) [s]
    commands: Any  # (N, k)
    first: Array  # the command, or state, until the first one arrives, (k,)
    dtype: DTypeLike  # of results


def _recorded(
    times: ArrayLike, commands: ArrayLike, start: ArrayLike | None, *others: Array
) -> _Record:
    """Return the checked record; its dtype is that to which commands, start and others promote."""
    array = checks.floating("commands", commands)
    if array.ndim not in (1, 2):
        raise ValueError(f"commands: wanted shape (N,) or (N, k), got {array.shape}")
    checks.finite("commands", commands)
    stamps: Any = grid_at(times).stamps
    stamps = np.asarray(stamps) if checks.is_concrete(stamps) else stamps
    if np.shape(stamps) != array.shape[:1]:
        wanted = f"shape ({len(array)},), a time for each command"
        raise ValueError(f"times: wanted {wanted}, got {np.shape(stamps)}")
    rows: Any = np.asarray(commands, array.dtype) if checks.is_concrete(commands) else array
    rows = rows.reshape(len(rows), -1)
    shapes = dict.fromkeys([(), array.shape[1:]])
    first = rows[0] if start is None else checks.one_shape("start", start, *shapes)
    checks.finite("start", first)
    dtype = jnp.result_type(array, first, *others)
    return _Record(stamps, rows, jnp.broadcast_to(first, rows.shape[1:]).astype(dtype), dtype)


def _integrals(record: _Record) -> tuple[Array, Array]:
    """Return the integral (N, k) [s] of the commands since the first time, (high, low)."""
    seconds = (record.stamps[1:] - record.stamps[:-1])[:, None]
    gains = seconds * record.commands[:-1]
    xp: Any = np if checks.is_concrete(gains) else jnp
    sums = xp.concatenate([xp.zeros_like(gains[:1]), xp.cumsum(gains, axis=0)])
    return _two_parts(sums, record.dtype)


def _instants(name: str, value: ArrayLike) -> Any:
    """Return times of any shape, checked; as a NumPy array if they are concrete."""
    array = checks.floating(name, value)
    checks.finite(name, value)
    return np.asarray(value, getattr(value, "dtype", float)) if checks.is_concrete(value) else array


def _two_parts(x: Any, dtype: DTypeLike) -> tuple[Array, Array]:
    """Split x into a sum of two numbers of this dtype, (high, low)."""
    high = x.astype(dtype)
    return jnp.asarray(high), jnp.asarray(x - high.astype(x.dtype), dtype)


def _interval(record: _Record, instants: Any, delay: Array) -> tuple[Array, Array]:
    """Return the indices of the last commands before these instants, and the seconds since."""
    origin, dtype = record.stamps[0], record.dtype
    high, low = _two_parts(record.stamps - origin, dtype)
    above, below = _two_parts(instants - origin, dtype)

    def seconds(j: Array) -> Array:
        return ((above - high[j]) + (below - low[j])) - delay.astype(dtype)

    last = len(high) - 1
    j = jnp.clip(jnp.searchsorted(high, above - delay.astype(dtype)) - 1, 0, last)
    # The search uses only the high parts, so it may be off by one.
    j = jnp.where(seconds(j) > 0, j, jnp.maximum(j - 1, 0))
    later = jnp.minimum(j + 1, last)
    j = jnp.where(seconds(later) > 0, later, j)
    return j, seconds(j)

"""The settling time of a loop."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import finite, floating, not_decreasing, positive, scalar


def settling_time(t: ArrayLike, error: ArrayLike, within: ArrayLike) -> Array:
    """Return the time from which ``|error|`` stays at most ``within``. -> (...) [s].

    With the error (..., N) linear between the times t (N,), which do not decrease, it is the last
    crossing into the bound; the first time if the error is never larger, infinite if it is larger
    at the last sample, NaN if it has a NaN. It is differentiable. ``within`` () is absolute and
    positive: for 2 % of the final value (K. Ogata, Modern Control Engineering, 5-3) pass the
    response minus its final value, and 0.02 times the final value.

    Examples:
        >>> t = jnp.linspace(0.0, 10.0, 101)
        >>> error = jnp.exp(-t) * jnp.cos(3.0 * t)  # rad
        >>> f"{jq.control.settling_time(t, error, within=0.05):.2f} s"
        '2.42 s'
    """
    t, error = floating("t", t), floating("error", error)
    if t.ndim != 1 or not t.size:
        raise ValueError(f"t: wanted shape (N,), got {t.shape}")
    finite("t", t)
    not_decreasing("t", t)
    if error.shape[-1:] != t.shape:
        wanted = f"shape (..., {t.size}), a number for each time"
        raise ValueError(f"error: wanted {wanted}, got {error.shape}")
    within = scalar("within", within)
    positive("within", within)

    dtype = jnp.result_type(t, error)
    t, error, within = (x.astype(dtype) for x in (t, error, within))
    first, t = t[0], t.reshape((1,) * (error.ndim - 1) + t.shape)
    outside = jnp.abs(error) > within
    before, after = error[..., :-1], error[..., 1:]
    crosses = outside[..., :-1] & ~outside[..., 1:]  # into the bound, between these samples
    bound = jnp.where(before > 0, within, -within)
    share = (before - bound) / jnp.where(crosses, before - after, 1.0)
    entries = jnp.where(crosses, t[..., :-1] + share * jnp.diff(t, axis=-1), first)
    time = jnp.max(entries, axis=-1, initial=first)
    time = jnp.where(outside[..., -1], jnp.inf, time)
    return jnp.where(jnp.any(jnp.isnan(error), axis=-1), jnp.nan, time)

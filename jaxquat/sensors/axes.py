"""Bias, gains, misalignment and noise of any sensor with three axes, in a record like ``Gyro``."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jaxquat._internal import checks
from jaxquat._internal.declared import Field, checked_record
from jaxquat._internal.linear import inverse, matvec, stacked
from jaxquat._internal.renamed import order_of

Errors = TypeVar("Errors", bound=tuple)


def ideal(dtype: DTypeLike | None) -> tuple[Array, Array, Array, Array, Array]:
    """Return the fields of a sensor without errors."""
    zero = jnp.zeros((), checks.floating_dtype("dtype", dtype))
    three = jnp.zeros(3, zero.dtype)
    return three, three, jnp.zeros(6, zero.dtype), zero, zero


def misaligned(misalignment: Array) -> Array:
    """Return the matrix 1 + M with six misalignments off its diagonal, row by row. -> (3, 3)."""
    xy, xz, yx, yz, zx, zy = misalignment
    one = jnp.ones_like(xy)
    return stacked([[one, xy, xz], [yx, one, yz], [zx, zy, one]])


def _no_gain_reversed(name: str, scale: Array) -> None:
    if checks.is_concrete(scale) and not np.all(np.asarray(scale) > -1):
        raise ValueError(f"{name}: wanted values above -1, got {np.asarray(scale)}")


def _spans(name: str, misalignment: Array) -> None:
    rows = misaligned(misalignment)
    if (
        checks.is_concrete(rows)
        and not np.linalg.det(np.asarray(rows)) > 100 * jnp.finfo(rows.dtype).eps
    ):
        raise ValueError(f"{name}: wanted axes that span space, got {np.asarray(misalignment)}")


_FIELDS = {
    "bias": Field([(3,)], checks.single_or_double, checks.finite),
    "scale": Field([(3,)], checks.single_or_double, checks.finite, _no_gain_reversed),
    "misalignment": Field([(6,)], checks.single_or_double, checks.finite, _spans),
    "noise": Field([(), (3,)], checks.single_or_double, checks.not_negative),
    "bias_random_walk": Field([(), (3,)], checks.single_or_double, checks.not_negative),
}


def checked(errors: Any, kind: type[Errors]) -> Errors:
    """Return the record with its fields as checked arrays; errors begin with "gyro.bias"."""
    return checked_record(kind.__name__.lower(), errors, kind, _FIELDS)


def response(errors: Any) -> Array:
    """Return the matrix ``(1 + diag(scale)) (1 + M)`` from true to measured values. -> (3, 3)."""
    return (1.0 + errors.scale)[:, None] * misaligned(errors.misalignment)


def key_first(owner: str, key: Any, kind: type) -> None:
    """Raise TypeError if ``measure`` is called in its old order, with the sensor before the key."""
    if isinstance(key, kind):
        order = order_of(f"{owner}.measure")
        raise TypeError(f"key: wanted a key of jax.random, got a {kind.__name__}{order}")


def measure(key: Array, errors: Any, true: Array, dt: ArrayLike) -> Array:
    """Simulate the readings of a sensor for N true values, (N, 3), dt [s] apart. -> (N, 3)."""
    dt = spacing(dt, true)
    white, steps = jax.random.normal(checks.random_key("key", key), (2, *true.shape), true.dtype)
    walked = jnp.cumsum(per_axis(errors.bias_random_walk) * jnp.sqrt(dt) * steps, axis=0)
    walked = jnp.concatenate([jnp.zeros_like(walked[:1]), walked[:-1]])  # 0 at the first sample
    distorted = matvec(response(errors)[None], true)
    return distorted + errors.bias[None] + walked + per_axis(errors.noise) / jnp.sqrt(dt) * white


def correct(errors: Any, measured: ArrayLike) -> Array:
    """Estimate the true values from N measured ones. (N, 3) -> (N, 3)."""
    measured = samples("measured", measured)
    return matvec(inverse(response(errors))[None], measured - errors.bias[None])


def per_axis(density: Array) -> Array:
    """Broadcast the density () or (3,) of a noise to (1, 3)."""
    return jnp.broadcast_to(density, (1, 3))


def spacing(dt: ArrayLike, true: Array) -> Array:
    """Return the checked time between samples [s], (), in the dtype of the samples."""
    dt = checks.exactly("dt", dt, ())
    checks.positive("dt", dt)
    return dt.astype(true.dtype)


def samples(name: str, value: ArrayLike, size: int = 3) -> Array:
    """Return ``value`` as an array of N vectors, (N, size)."""
    value = checks.floating(name, value)
    if value.ndim != 2 or value.shape[1] != size:
        raise ValueError(f"{name}: wanted shape (N, {size}), got {value.shape}")
    checks.single_or_double(name, value)
    return value

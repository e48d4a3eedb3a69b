"""Inertias [kg m^2]: principal axes, inertias from six numbers, and checks of their values."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxquat import quaternion
from jaxquat._internal.checks import is_concrete, other_units, symmetric
from jaxquat._internal.linear import matmul, power_of_two, trace, transpose


def symmetric_part(matrix: Array) -> Array:
    """Return the symmetric part: a skew part left by rounding would make the energy drift."""
    return 0.5 * (matrix + transpose(matrix))


def principal_axes(matrix: Array) -> tuple[Array, Array]:
    """Return moments (3,) and axes (4,), principal to body, of an inertia (Jacobi)."""
    axes = jnp.asarray([1.0, 0.0, 0.0, 0.0], matrix.dtype)
    for _ in range(5):
        for k in range(3):
            turn = _jacobi(matrix, k)
            axes, rotation = quaternion.multiply(axes, turn), quaternion.to_matrix(turn)
            matrix = matmul(transpose(rotation), matmul(matrix, rotation))
    return jnp.diagonal(matrix), quaternion.correct_norm(axes)


def _jacobi(matrix: Array, k: int) -> Array:
    """Return the smaller turn about axis k, (4,), that makes the product of the other two 0."""
    i, j = (k + 1) % 3, (k + 2) % 3
    off, gap = 2.0 * matrix[i, j], matrix[i, i] - matrix[j, j]
    size = off * off + gap * gap
    root = jnp.sqrt(jnp.where(size > 0, size, 1.0))
    tangent = jnp.where(gap < 0, -off, off) / (jnp.abs(gap) + root)  # of the angle, at most 1
    half = tangent / (1.0 + jnp.sqrt(1.0 + tangent * tangent))
    across = jnp.where(jnp.arange(3) == k, half, jnp.zeros_like(half))
    return jnp.concatenate([jnp.ones_like(half)[None], across]) / jnp.sqrt(1.0 + half * half)


def equal_moments(moments: Array) -> Array:
    """Return whether two of the moments (3,) are equal, to 100 units of rounding of the largest."""
    moments = moments / power_of_two(moments)
    gap = jnp.min(jnp.abs(moments - jnp.roll(moments, 1)))
    return gap <= 100 * jnp.finfo(moments.dtype).eps * jnp.max(moments)


def from_six(theta: Array) -> Array:
    """Return the inertia (3, 3) of six numbers, as described in ``Body.from_parameters``."""
    a, b, c = jnp.exp(theta[0]), jnp.exp(theta[1]), jnp.exp(theta[2])
    zero = jnp.zeros_like(a)
    factor = jnp.stack([a, zero, zero, theta[3], b, zero, theta[4], theta[5], c]).reshape(3, 3)
    second = matmul(factor, factor.T)
    x, y, z = second[0, 0], second[1, 1], second[2, 2]
    diagonal = jnp.stack([y + z, z + x, x + y])  # tr(S) - S_kk would cancel for a needle
    inertia = jnp.where(jnp.eye(3, dtype=bool), diagonal[:, None], -second)
    if is_concrete(inertia):
        moments, tiny = np.diagonal(inertia), np.finfo(inertia.dtype).tiny
        if not (np.all(np.isfinite(inertia)) and np.all(moments >= tiny)):
            wanted = f"exponentials of theta[:3] and products that {inertia.dtype} can hold"
            raise ValueError(f"theta: wanted {wanted}, got {theta}, of moments {moments}")
    return inertia


def to_six(inertia: Array) -> Array:
    """Return the six numbers (..., 6) of inertias (..., 3, 3); NaN for a flat body."""
    half = trace(0.5 * inertia)  # halved first: the trace may leave the range of the dtype
    second = half[..., None, None] * jnp.eye(3, dtype=inertia.dtype) - inertia
    factor = jnp.linalg.cholesky(second)
    diagonal = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1))
    below = jnp.stack([factor[..., 1, 0], factor[..., 2, 0], factor[..., 2, 1]], axis=-1)
    return jnp.concatenate([diagonal, below], axis=-1)


def check_inertia(inertia: Array) -> None:
    """Raise ValueError if a concrete inertia (3, 3) is not symmetric or not physical."""
    if not is_concrete(inertia):
        return
    matrix = np.asarray(inertia)
    _check_finite("inertia", matrix)
    symmetric("inertia", inertia)
    info, sizes = np.finfo(matrix.dtype), np.abs(matrix)
    # XLA takes subnormal numbers for 0, which here loses more than rounding of the largest element.
    if np.any((sizes > info.eps * sizes.max()) & (sizes < info.tiny)):
        got = f"got {matrix.tolist()}{other_units(matrix.dtype)}"
        raise ValueError(f"inertia: wanted elements that are normal numbers, {got}")
    check_moments("inertia", np.linalg.eigvalsh(matrix))


def check_moments(name: str, moments: Any) -> None:
    """Raise ValueError if concrete moments are not positive or violate the triangle inequality."""
    if not is_concrete(moments):
        return
    moments = np.asarray(moments)
    _check_finite(name, moments)
    values, info = np.sort(moments.astype(np.float64)), np.finfo(moments.dtype)
    got = f"got principal moments {values}"
    if values[0] < info.tiny:
        hint = "" if values[0] < 0 else other_units(moments.dtype)
        raise ValueError(f"{name}: wanted a positive definite inertia, {got}{hint}")
    if values[2] > info.max / 2:
        hint = other_units(moments.dtype)
        raise ValueError(f"{name}: wanted moments whose sums are finite, {got}{hint}")
    rounding = 100 * info.eps
    if values[2] > (values[0] + values[1]) * (1 + rounding):
        raise ValueError(f"{name}: wanted moments with I1 + I2 >= I3 (no mass is negative), {got}")


def _check_finite(name: str, values: np.ndarray) -> None:
    """Raise ValueError for a NaN or an infinity, which may be a number too large for the dtype."""
    if not np.all(np.isfinite(values)):
        hint = other_units(values.dtype) if np.any(np.isinf(values)) else ""
        raise ValueError(f"{name}: wanted finite values, got {values}{hint}")

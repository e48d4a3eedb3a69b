"""Unit quaternions from and to other representations. Conventions: ``jaxquat.quaternion``."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import rotation_matrix, trailing
from jaxquat._internal.linear import dot, near_one, stacked
from jaxquat.quaternion.algebra import canonical, log, normalize


def to_matrix(q: ArrayLike) -> Array:
    """Return the rotation matrix R, body to world: ``R v = q v q*``. (..., 4) -> (..., 3, 3).

    It is quadratic in q: ``R(c q) = c^2 R(q)``.

    Examples:
        >>> (jq.quaternion.to_matrix(q) @ x).round(2)
        Array([0.28, 0.96, 0.  ], dtype=float32)
    """
    w, x, y, z = jnp.moveaxis(trailing("q", q, (4,)), -1, 0)
    rows = [
        [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
    ]
    return stacked(rows)


def from_matrix(matrix: ArrayLike) -> Array:
    """Return the canonical unit quaternion of a rotation matrix, body to world.

    (..., 3, 3) -> (..., 4). The result is smooth at every rotation except for the sign of q at
    exactly a half turn. The four rows of 4 q q^T are linear in the matrix; the one with the largest
    diagonal entry, at least 1, is normalised.

    Raises:
        ValueError: a concrete matrix is not a rotation: an entry of ``R^T R`` differs from the unit
            matrix by more than 5e-4, or the determinant is negative. A traced matrix is not
            checked.

    Examples:
        >>> quarter = jnp.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])  # about z
        >>> jq.quaternion.from_matrix(quarter).round(3)
        Array([0.707, 0.   , 0.   , 0.707], dtype=float32)
    """
    m = trailing("matrix", matrix, (3, 3))
    rotation_matrix("matrix", m)
    xx, yy, zz = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    wx, xy = m[..., 2, 1] - m[..., 1, 2], m[..., 1, 0] + m[..., 0, 1]
    wy, xz = m[..., 0, 2] - m[..., 2, 0], m[..., 2, 0] + m[..., 0, 2]
    wz, yz = m[..., 1, 0] - m[..., 0, 1], m[..., 2, 1] + m[..., 1, 2]
    rows = [
        (1.0 + xx + yy + zz, wx, wy, wz),
        (wx, 1.0 + xx - yy - zz, xy, xz),
        (wy, xy, 1.0 - xx + yy - zz, yz),
        (wz, xz, yz, 1.0 - xx - yy + zz),
    ]
    chosen, largest = jnp.stack(rows[0], axis=-1), rows[0][0]
    for k in (1, 2, 3):
        better = rows[k][k] > largest
        chosen = jnp.where(better[..., None], jnp.stack(rows[k], axis=-1), chosen)
        largest = jnp.where(better, rows[k][k], largest)
    return canonical(normalize(chosen))


def to_axis_angle(q: ArrayLike) -> tuple[Array, Array]:
    """Return the unit axis and the angle [rad] in [0, pi]. (..., 4) -> (..., 3), (...).

    At the identity they are (1, 0, 0) and 0, with derivatives of 0. Use ``log`` in losses.

    Examples:
        >>> axis, angle = jq.quaternion.to_axis_angle(jnp.array([0.5, 0.5, 0.5, 0.5]))
        >>> axis.round(3), jnp.degrees(angle).round(2)
        (Array([0.577, 0.577, 0.577], dtype=float32), Array(120., dtype=float32))
    """
    u = log(near_one(trailing("q", q, (4,))))
    square = dot(u, u)
    turned = ~(square <= 0)  # true for NaN, which propagates
    angle = jnp.sqrt(jnp.where(turned, square, 1.0))
    fallback = jnp.zeros_like(u).at[..., 0].set(1.0)
    axis = jnp.where(turned[..., None], u / angle[..., None], fallback)
    return axis, jnp.where(turned, angle, 0.0)


def from_mrp(p: ArrayLike) -> Array:
    """Return the unit q of modified Rodrigues parameters tan(angle/4) axis. (..., 3) -> (..., 4).

    Examples:
        >>> jq.quaternion.from_mrp(0.5 * z).round(3)  # 4 atan(0.5) about z
        Array([0.6, 0. , 0. , 0.8], dtype=float32)
    """
    p = trailing("p", p, (3,))
    # The square of a long p, nearly a whole turn, may overflow: scale 1 and p by a power of two.
    half = int(jnp.finfo(p.dtype).maxexp) // 2
    long = jnp.max(jnp.abs(p), axis=-1, keepdims=True) > 2.0 ** (half // 2)
    unit = jnp.where(long, jnp.asarray(2.0 ** -(half + 7), p.dtype), jnp.ones((), p.dtype))
    p = unit * p
    one, square = unit * unit, dot(p, p)[..., None]
    return jnp.concatenate([one - square, 2.0 * unit * p], axis=-1) / (one + square)


def to_mrp(q: ArrayLike) -> Array:
    """Return modified Rodrigues parameters ``tan(angle/4) axis``, |p| <= 1. (..., 4) -> (..., 3).

    Examples:
        >>> jq.quaternion.to_mrp(jnp.array([0.6, 0.0, 0.0, 0.8])).round(3)
        Array([0. , 0. , 0.5], dtype=float32)
    """
    q = canonical(q)
    return q[..., 1:] / (1.0 + q[..., :1])


def from_xyzw(q: ArrayLike) -> Array:
    """Convert scalar-last (x, y, z, w), as in scipy and ROS, to (w, x, y, z). (..., 4) -> (..., 4).

    Examples:
        >>> jq.quaternion.from_xyzw(jnp.array([0.6, 0.0, 0.0, 0.8]))
        Array([0.8, 0.6, 0. , 0. ], dtype=float32)
    """
    q = trailing("q", q, (4,))
    return jnp.concatenate([q[..., 3:], q[..., :3]], axis=-1)


def to_xyzw(q: ArrayLike) -> Array:
    """Convert (w, x, y, z) to scalar-last (x, y, z, w), the same attitude. (..., 4) -> (..., 4).

    Examples:
        >>> jq.quaternion.to_xyzw(jnp.array([0.8, 0.6, 0.0, 0.0]))
        Array([0.6, 0. , 0. , 0.8], dtype=float32)
    """
    q = trailing("q", q, (4,))
    return jnp.concatenate([q[..., 1:], q[..., :1]], axis=-1)

"""Euler and Cardan angles in all 24 orders, intrinsic ("ZYX") and extrinsic (lowercase, "zyx").

Angles [rad] are in the order of the letters, as in scipy's Rotation. Intrinsic "ZYX" with (psi,
theta, phi) turns about z, then the new y, then the newest x. These are the aircraft angles of
Hoffmann, Application of Quaternions, section 7; his classical angles of section 6 are "ZXZ" with
(phi, theta, psi).

Gimbal lock occurs where the second angle is ±pi/2 (three different axes) or 0 or pi (first axis
repeated). Only the sum or the difference of the other two angles is determined there.
``from_quaternion`` then sets the third angle to zero, as scipy does. Its derivatives are finite
there but meaningless: they treat the undetermined part as constant. ``rate_matrix`` is singular
there.

Examples:
    >>> angles = jnp.radians(jnp.array([30.0, -20.0, 10.0]))  # yaw, pitch, roll
    >>> q = jq.euler.to_quaternion(angles, "ZYX")
"""

from __future__ import annotations

import itertools

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat import quaternion
from jaxquat._internal.checks import trailing
from jaxquat._internal.linear import near_one, root

__all__ = ["from_quaternion", "rate_matrix", "to_quaternion"]

_INTRINSIC = tuple(a + b + c for a, b, c in itertools.product("XYZ", repeat=3) if a != b != c)
_ORDERS = (*_INTRINSIC, *(order.lower() for order in _INTRINSIC))


def to_quaternion(angles: ArrayLike, order: str) -> Array:
    """Return the unit quaternion of three angles [rad] in this order. (..., 3) -> (..., 4).

    Examples:
        >>> q = jq.euler.to_quaternion(angles, "ZYX")
    """
    axes, angles = _intrinsic(angles, order)
    first, second, third = (_about(axis, angles[..., k]) for k, axis in enumerate(axes))
    return quaternion.multiply(quaternion.multiply(first, second), third)


def from_quaternion(q: ArrayLike, order: str) -> Array:
    """Return the three angles [rad] in the order of the letters. (..., 4) -> (..., 3).

    The first and third lie in [-pi, pi], the second in [-pi/2, pi/2] (three different axes) or in
    [0, pi]. Scale and sign of q have no effect. For gimbal lock see above. The half-sum formula is
    by E. Bernardes and S. Viollet, PLoS ONE 17(11), 2022.

    Examples:
        >>> jnp.degrees(jq.euler.from_quaternion(q, "ZYX")).round(2)
        Array([ 30., -20.,  10.], dtype=float32)
    """
    q = near_one(trailing("q", q, (4,)))
    i, j, k = _axes(order)
    proper, last = i == k, -1.0 if order.islower() else 1.0
    k = 3 - i - j
    sign = 1.0 if (j - i) % 3 == 1 else -1.0
    # q = e_i(a) e_j(b) e_i(c) has w + i x = cos(b/2) exp(i (a + c)/2)
    # and y + i z = sin(b/2) exp(i (a - c)/2)
    w, x, y, z = q[..., 0], q[..., 1 + i], q[..., 1 + j], sign * q[..., 1 + k]
    if not proper:  # q e_j(pi/2) = e_i(a) e_j(b + pi/2) e_i(-sign c), up to sqrt(2)
        w, x, y, z = w - y, x - z, y + w, z + x
    cosine, sine = root(w * w + x * x), root(y * y + z * z)
    tiny = 4.0 * jnp.finfo(q.dtype).eps * (cosine + sine)
    determined, inclined = ~(cosine <= tiny), ~(sine <= tiny)  # true for NaN, which propagates
    half_sum, half_difference = _angle(x, w, determined), _angle(z, y, inclined)
    half_sum = jnp.where(determined, half_sum, last * half_difference)
    half_difference = jnp.where(inclined, half_difference, last * half_sum)
    first, third = half_sum + half_difference, half_sum - half_difference
    second = 2.0 * jnp.arctan2(sine, cosine)
    if not proper:
        second, third = second - 0.5 * jnp.pi, -sign * third
    angles = [_wrapped(first), second, _wrapped(third)]
    return jnp.stack(angles[::-1] if order.islower() else angles, axis=-1)


def rate_matrix(angles: ArrayLike, order: str) -> Array:
    """Return the matrix B with ``omega_body = B angles'``. (..., 3) -> (..., 3, 3).

    ``jnp.linalg.solve(B, omega)`` is the rates of the angles of one body; B is singular in gimbal
    lock.
    Hoffmann's (6.16) is "ZXZ"; his (7.16), where entry (3, 3) should be 0, is "ZYX".

    Examples:
        >>> yaw_pitch_roll = jnp.radians(jnp.array([0.0, 0.0, 30.0]))  # banked
        >>> turning = jnp.array([1.0, 0.0, 0.0])  # rad/s: the yaw alone changes
        >>> (jq.euler.rate_matrix(yaw_pitch_roll, "ZYX") @ turning).round(2)  # omega, body axes
        Array([0.  , 0.5 , 0.87], dtype=float32)
    """
    (i, j, k), ordered = _intrinsic(angles, order)
    third = _about(k, ordered[..., 2])
    unit = jnp.eye(3, dtype=ordered.dtype)
    columns = [
        quaternion.rotate_inverse(quaternion.multiply(_about(j, ordered[..., 1]), third), unit[i]),
        quaternion.rotate_inverse(third, unit[j]),
        jnp.broadcast_to(unit[k], ordered.shape),
    ]
    return jnp.stack(columns[::-1] if order.islower() else columns, axis=-1)


def _axes(order: str) -> list[int]:
    """Return axis numbers of the equivalent intrinsic order: extrinsic letters are reversed."""
    if not isinstance(order, str) or order not in _ORDERS:
        wanted = "three of XYZ (intrinsic) or xyz (extrinsic), no axis twice in a row"
        raise ValueError(f'order: wanted {wanted}, got {order!r}; "ZYX" is yaw, pitch, roll')
    axes = ["XYZ".index(letter) for letter in order.upper()]
    return axes[::-1] if order.islower() else axes


def _intrinsic(angles: ArrayLike, order: str) -> tuple[list[int], Array]:
    """Return axis numbers and angles (..., 3) of the equivalent intrinsic order."""
    axes, angles = _axes(order), trailing("angles", angles, (3,))
    return axes, angles[..., ::-1] if order.islower() else angles


def _about(axis: int, angle: Array) -> Array:
    """Return the turn by ``angle`` [rad] about a coordinate axis. (...) -> (..., 4)."""
    parts = [jnp.cos(0.5 * angle), *[jnp.zeros_like(angle)] * 3]
    parts[1 + axis] = jnp.sin(0.5 * angle)
    return jnp.stack(parts, axis=-1)


def _angle(sine: Array, cosine: Array, determined: Array) -> Array:
    """Return ``atan2(sine, cosine)``; a constant 0 where it is not determined."""
    return jnp.arctan2(jnp.where(determined, sine, 0.0), jnp.where(determined, cosine, 1.0))


def _wrapped(angle: Array) -> Array:
    """Return an angle in [-3 pi, 3 pi], wrapped to [-pi, pi]."""
    raised = jnp.where(angle < -jnp.pi, angle + 2 * jnp.pi, angle)
    return jnp.where(angle > jnp.pi, angle - 2 * jnp.pi, raised)

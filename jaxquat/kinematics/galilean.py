"""The Galilean group: motions with rotation, velocity, displacement and time, and their products.

Elements are ``[[R, v, p], [0, 1, t], [0, 0, 1]]``; those of the Lie algebra,
``[[hat(theta), nu, rho], [0, 0, tau], [0, 0, 0]]``, are stored as ``(theta, nu, rho, tau)``, (10,).
With body rate omega and specific force f, ``Y' = Y A`` for ``A = (omega, f, 0, 1)``, so the motion
under a held sample is one exponential. Closed forms: J. Kelly, All About the Galilean Group
SGal(3), arXiv:2312.07555.
"""

from __future__ import annotations

from typing import NamedTuple

from jax import Array

from jaxquat import quaternion, so3
from jaxquat._internal import series
from jaxquat._internal.linear import cross, square


class Motion(NamedTuple):
    """An element of the group, or many along leading axes."""

    q: Array  # the rotation, a unit quaternion, axes at the end to axes at the start, (..., 4)
    v: Array  # the gain in velocity, axes at the start [m/s], (..., 3)
    p: Array  # the displacement relative to a point at rest, in the same axes [m], (..., 3)
    t: Array  # the time [s], (..., 1)


def multiply(a: Motion, b: Motion) -> Motion:
    """Return the motion a followed by b; leading axes of equal rank."""
    return Motion(
        quaternion.correct_norm(quaternion.multiply(a.q, b.q)),
        a.v + quaternion.rotate(a.q, b.v),
        a.p + a.v * b.t + quaternion.rotate(a.q, b.p),
        a.t + b.t,
    )


def relative(a: Motion, b: Motion) -> Motion:
    """Return the motion c with ``multiply(a, c) = b``; leading axes of equal rank."""
    v, p = b.v - a.v, b.p - a.p - a.v * (b.t - a.t)
    q = quaternion.multiply(quaternion.conjugate(a.q), b.q)
    return Motion(
        q, quaternion.rotate_inverse(a.q, v), quaternion.rotate_inverse(a.q, p), b.t - a.t
    )


def advance(a: Motion, b: Motion) -> Motion:
    """Multiply with less rounding, where ``b.q`` is the quaternion minus 1, as from ``expm1``."""
    return multiply(a, b)._replace(q=quaternion.correct_norm(a.q + quaternion.multiply(a.q, b.q)))


def expm1(xi: Array) -> Motion:
    """Return the exponential, with the quaternion minus 1. (..., 10) -> Motion of (...)."""
    # ``v = J nu``, ``p = J rho + tau N nu``; J sums ``hat(theta)^n/(n+1)!``, N with (n+2)!.
    theta, nu, rho, tau = xi[..., :3], xi[..., 3:6], xi[..., 6:9], xi[..., 9:]
    s = 0.25 * square(theta)[..., None]
    once = cross(theta, nu)
    twice = cross(theta, once)
    held = 0.5 * nu + series.sin_defect(s) * once + series.cos_defect(s) * twice
    v = nu + 0.5 * series.sinc(s) ** 2 * once + series.sin_defect(s) * twice
    p = so3.dexp(theta, rho, frame="world") + tau * held
    return Motion(quaternion.expm1(theta), v, p, tau)

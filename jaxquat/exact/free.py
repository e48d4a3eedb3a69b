"""The motion of free bodies with any three moments, computed in principal axes.

- Units. Moments and rates are divided by powers of two, so that nothing over- or underflows.
- Axes. They are ordered so that the momentum circles axis 3 and the moments increase or decrease
  towards it, and directed so that w1 and w3 are not negative.
- Rates. They are elliptic functions of time (Whittaker 1937, section 69). The addition theorems
  give them from the rates at the start, without a phase, which would lose its digits at some spins.
- Attitude. The rates determine the frame that takes the momentum to axis 3 by the smallest turn.
  About the momentum that frame has turned by an integral of the third kind (van Zon and Schofield),
  again computed from the start by addition theorems.
- Short times. Where the argument of the elliptic functions is small, their Taylor series are used.
  They do not divide by a frequency, which vanishes for a sphere.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal.checks import scalar
from jaxquat._internal.linear import cross, dot, matvec, power_of_two, transpose
from jaxquat.dynamics.body import Body, check_body
from jaxquat.dynamics.motion import drifted
from jaxquat.dynamics.state import State, check_state
from jaxquat.exact import elliptic
from jaxquat.quaternion import conjugate, exp, multiply, normalize, rotate, rotate_inverse


def free_body(body: Body, t: ArrayLike, start: State) -> State:
    """Return the State of a free body with any three moments, at one time t [s] after ``start``.

    The result has the dtype and the aux of the start. Values, and derivatives with respect to
    start, inertia and time, are correct for every spin: about a principal axis, of a symmetric
    body, of a sphere, on the separatrix, at rest. The rates follow Whittaker 1937, section 69; the
    attitude follows van Zon and Schofield.

    The error is a few units of rounding times ``1 + sum |x dy/dx|`` over the input numbers x:
    moments, rates in principal axes, time. This is more than ``|omega| t`` only near the
    separatrix. There a relative error e of w1 or w3 shifts each flip by up to
    ``2 e (gap + fall)/|gap - fall|/rate``, with ``gap = I3 (I3 - I2) w3^2``,
    ``fall = I1 (I2 - I1) w1^2`` and axis 2 the middle one. If gap and fall agree to rounding, or if
    converting omega to principal axes leaves no digits of w1 and w3, the result is the exact motion
    from a start that differs by some units of rounding.

    Near the middle axis, derivatives with respect to the start grow like exp(rate t). Exactly on it
    they stop growing where they would leave the range of the dtype.

    Examples:
        >>> body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.05, 1.5, 0.0]))
        >>> later = jax.jit(jq.exact.free_body)(body, 23.7, start)  # s
        >>> later.omega[1].round(2)  # rad/s: it has turned over
        Array(-1.5, dtype=float32)
    """
    start = check_state("start", start)
    check_body(body, start.q.dtype, "the start")
    t = scalar("t", t).astype(start.q.dtype)
    moments, axes = body.principal()
    turn, rates = _motion(moments, rotate_inverse(axes, start.omega), t)
    turn = jnp.concatenate([turn[:1], rotate(axes, turn[1:])])
    return drifted(start, t)._replace(q=multiply(start.q, turn), omega=rotate(axes, rates))


def _motion(moments: Array, omega: Array, t: Array) -> tuple[Array, Array]:
    """Return the turn (4,) of a free body in time t and its rates (3,), in principal axes."""
    still = jnp.max(jnp.abs(omega)) == 0
    size = power_of_two(jnp.where(still, 1.0, omega))
    omega_in_size = jnp.where(still, 1.0, omega / size)
    moments, matrix, start = _ordered(moments / power_of_two(moments), omega_in_size)
    time = t * size
    large, _ = _squared_frequencies(moments, start)
    short = large * time * time < 2.0**-14

    # Both branches are computed; the one that is not used computes an ordinary motion.
    ordinary = jnp.array([1.0, 2.0, 3.0]), jnp.array([0.5, 0.5, 1.0]), 1.0
    pairs = zip(ordinary, (moments, start, time), strict=True)
    safe = [jnp.where(short, jnp.asarray(x, t.dtype), y) for x, y in pairs]
    near, far = _short(moments, start, jnp.where(short, time, 0.0)), _long(*safe)
    half, end = (jnp.where(short, x, y) for x, y in zip(near, far, strict=True))

    about = jnp.stack([jnp.cos(half), jnp.zeros_like(half), jnp.zeros_like(half), jnp.sin(half)])
    before, after = _upright(moments * start), _upright(moments * end)
    turn = multiply(conjugate(before), multiply(about, after))
    back = transpose(matrix)
    turn = jnp.concatenate([turn[:1], matvec(back, turn[1:])])
    return jnp.where(still, exp(t * omega), turn), jnp.where(still, omega, size * matvec(back, end))


def _squared_frequencies(moments: Array, omega: Array) -> tuple[Array, Array]:
    """Return the squares of the frequency and of k times the frequency, sums of positive terms."""
    (i1, i2, i3), (w1, w2, w3) = moments, omega
    outer, lower, upper = i3 - i1, i2 - i1, i3 - i2
    both = upper * lower / (i1 * i3) * w2 * w2
    return upper * outer / (i1 * i2) * w3 * w3 + both, lower * outer / (i2 * i3) * w1 * w1 + both


def _modulus(moments: Array, start: Array) -> tuple[Array, elliptic.Modulus]:
    """Return the frequency and the modulus of the elliptic functions; not for constant motions."""
    (i1, i2, i3), (w1, _, w3) = moments, start
    large, small = _squared_frequencies(moments, start)
    unit = lax.stop_gradient(jnp.maximum(jnp.abs(w1), jnp.abs(w3)))  # w1^2 and w3^2 may underflow
    unit = jnp.where(unit > 0, unit, 1.0)
    gap, fall = i3 * (i3 - i2) * (w3 / unit) ** 2, i1 * (i2 - i1) * (w1 / unit) ** 2
    m1 = (i3 - i1) / (i1 * i2 * i3) * (gap - fall) / large
    flips = m1 > 0
    root = jnp.where(flips, jnp.sqrt(jnp.where(flips, m1, 1.0)), 0.0)
    # On the separatrix rounding may make m1 negative: it becomes 0 and keeps its derivative.
    m1 = jnp.where(flips, m1, m1 - lax.stop_gradient(m1))
    return jnp.sqrt(large), elliptic.Modulus(small / large, unit * unit * m1, unit * root)


def _rates(moments: Array, start: Array, s: Array, c: Array, d: Array) -> Array:
    """Return the rates by addition theorems; s = sn/frequency. ``scale`` prevents an underflow."""
    (i1, i2, i3), (w1, w2, w3) = moments, start
    c1, c2, c3 = (i2 - i3) / i1, (i3 - i1) / i2, (i1 - i2) / i3  # of Euler's equations
    scale = lax.stop_gradient(jnp.maximum(jnp.abs(c), jnp.sqrt(-c1 * c2) * jnp.abs(w3 * s)))
    c, d, w1, w3 = c / scale, d / scale, w1 / scale, w3 / scale
    numerators = [
        w1 * c + c1 * w2 * w3 * s * d,
        w2 * c * d + c2 * w3 * w1 * s,
        w3 * d + c3 * w1 * w2 * s * c,
    ]
    return jnp.stack(numerators) / (c * c - c1 * c2 * w3 * w3 * s * s)


_NODES, _WEIGHTS = (0.5 * x for x in np.polynomial.legendre.leggauss(3))


def _short(moments: Array, start: Array, t: Array) -> tuple[Array, Array]:
    """Return half the turn about the momentum, and the rates, for arguments below 1/128."""
    # Taylor series (Abramowitz and Stegun, 16.22); three Gauss nodes integrate the rate of turn.
    share = jnp.asarray([*(0.5 + _NODES), 1.0], t.dtype)
    large, small = (x * t * t * share * share for x in _squared_frequencies(moments, start))
    both = large * small
    fourth = (large * large + 14.0 * both + small * small) / 120.0
    s = t * share * (1.0 - (large + small) / 6.0 + fourth)
    c, d = _cn_series(large, small, both), _cn_series(small, large, both)
    rates = jax.vmap(_rates, (None, None, 0, 0, 0), 1)(moments, start, s, c, d)

    momentum = moments * start
    size = jnp.sqrt(dot(momentum, momentum))
    speed = dot(momentum, start) / size + rates[2]
    turning = speed / (1.0 + moments[2] * rates[2] / size)
    half = 0.5 * t * jnp.sum(jnp.asarray(_WEIGHTS, t.dtype) * turning[:-1])
    return half, rates[:, -1]


def _cn_series(own: Array, other: Array, both: Array) -> Array:
    """Return cn by its series in the squares of the phase and of k times it; swapped, dn."""
    fourth, sixth = own * own + 4.0 * both, own * own + 44.0 * both + 16.0 * other**2
    return 1.0 - own / 2.0 + fourth / 24.0 - own * sixth / 720.0


def _long(moments: Array, start: Array, t: Array) -> tuple[Array, Array]:
    """Return half the turn about the momentum, and the rates; not for constant motions."""
    # With the unit momentum l, the frame of ``_upright`` turns about it at
    # ``(2 E/L + w3)/(1 + l3)``, an integral of the third kind. By its addition theorem (NIST DLMF,
    # 19.11(i)) it begins at 0 if the argument of ``1 + l3 - link (l1 - i l2)``, which never
    # vanishes, is added.
    (i1, i2, i3), (w1, w2, w3) = moments, start
    outer, lower, upper = i3 - i1, i2 - i1, i3 - i2
    frequency, modulus = _modulus(moments, start)
    momentum = moments * start
    size = jnp.sqrt(dot(momentum, momentum))
    third = jnp.sqrt(w3 * w3 + i2 * lower / (i3 * outer) * w2 * w2)  # the largest rate about axis 3
    kappa = i3 * third / size
    across = i1 * (i1 * w1 * w1 + i2 * upper / outer * w2 * w2) / (size * size)
    pole = elliptic.Pole(kappa, across, lower * i3 / (i1 * upper))
    sn, cn, dn, integral = elliptic.jacobi_and_third(frequency * t, modulus, pole)
    end = _rates(moments, start, sn / frequency, cn, dn)

    sense = jnp.where(outer < 0, -1.0, 1.0).astype(t.dtype)
    x, y, z = moments * end / size
    link = sense * modulus.m * jnp.sqrt(i1 * upper / (i2 * outer)) * sn * momentum[1] / size
    link = link / ((1.0 + kappa) * (1.0 + dn) * (1.0 + w3 / third))
    between = jnp.arctan2(link * y, 1.0 + z - link * x)
    steady = 0.5 * size * (kappa / i3 + across / ((1.0 + kappa) * i1)) * t  # 1 - kappa cancels
    return steady + sense * integral + between, end


def _ordered(moments: Array, omega: Array) -> tuple[Array, Array, Array]:
    """Return moments, axes and rates ordered so that the momentum circles axis 3; w1, w3 >= 0."""
    order = jnp.argsort(moments)
    (i1, i2, i3), (w1, _, w3) = moments[order], jnp.abs(omega[order])
    circled = jnp.sqrt(i3 * (i3 - i2)) * w3 > jnp.sqrt(i1 * (i2 - i1)) * w1
    order = jnp.where(circled, order, order[::-1])
    matrix = jnp.eye(3, dtype=omega.dtype)[order]
    x, _, z = jnp.where(matvec(matrix, omega) < 0, -1.0, 1.0).astype(omega.dtype)
    y = x * z * dot(matrix[0], cross(matrix[1], matrix[2]))  # makes the matrix a rotation
    matrix = matrix * jnp.stack([x, y, z])[:, None]
    return moments[order], matrix, matvec(matrix, omega)


def _upright(momentum: Array) -> Array:
    """Return the smallest turn (4,) that takes a vector (3,) with z >= 0 to axis 3."""
    x, y, z = momentum / lax.stop_gradient(jnp.max(jnp.abs(momentum)))
    return normalize(jnp.stack([jnp.sqrt(x * x + y * y + z * z) + z, y, -x, jnp.zeros_like(x)]))

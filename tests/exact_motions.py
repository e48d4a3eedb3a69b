"""Exact results that only tests use: elliptic functions, symmetric bodies, tops under gravity.

The potential is ``U = potential cos(tilt)`` [J], where ``tilt`` [rad] is the angle of the body's
axis 3 from the vertical. For ``torques.heavy_top(weight, (0, 0, h))`` it is ``weight * h``.
"""

import jax.numpy as jnp
import numpy as np
from scipy.special import ellipkm1

import jaxquat as jq
from jaxquat.exact import elliptic
from jaxquat.quaternion import exp, multiply, rotate, rotate_inverse


def jacobi(u, modulus):
    """Return (sn, cn, dn)(u | m)."""
    one = jnp.ones_like(u)
    pole = elliptic.Pole(0.6 * one, 0.64 * one, modulus.m * (0.36 / 0.64))  # of the unused integral
    return elliptic.jacobi_and_third(u, modulus, pole)[:3]


def free_symmetric(body, t, start):
    """Return the State of a free body with I1 = I2, ``exp(L t/I1) q0 exp(e3 w3 (1 - I3/I1) t)``."""
    (i1, _, i3), axes = body.principal()
    axis = rotate(axes, jnp.asarray([0.0, 0.0, 1.0], start.q.dtype))
    slip = (1.0 - i3 / i1) * rotate_inverse(axes, start.omega)[2] * axis  # omega - L/I1
    spin = exp(t * slip)
    q = multiply(multiply(exp(t * rotate(start.q, start.omega - slip)), start.q), spin)
    return jq.State(q, rotate_inverse(spin, start.omega))


def flip_interval(moments, omega):
    """Return the time between flips of a free body near its middle axis, ``2 K(m)/frequency``.

    Both arguments are in principal axes. E. T. Whittaker, Analytical Dynamics, 1937, section 69.
    """
    order = np.argsort(moments)
    (i1, i2, i3), (w1, w2, w3) = np.array(moments)[order], np.array(omega)[order]
    if i3 * (i3 - i2) * w3**2 < i1 * (i2 - i1) * w1**2:  # the momentum circles the other axis
        i1, i3, w1, w3 = i3, i1, w3, w1
    gap, fall = i3 * (i3 - i2) * w3**2, i1 * (i2 - i1) * w1**2
    square = (i3 - i2) * ((i3 - i1) / (i1 * i2) * w3**2 + (i2 - i1) / (i1 * i3) * w2**2)
    return 2.0 * ellipkm1((i3 - i1) / (i1 * i2 * i3) * (gap - fall) / square) / np.sqrt(square)


def nutation(body, potential, t, *, tilt, spin):
    """Return the cosine of the tilt of a symmetric top that is released with its axis at rest.

    The body has principal axes and I1 = I2; the potential [J] is positive, and spin is ``omega[2]``
    [rad/s]. L. D. Landau and E. M. Lifshitz, Mechanics, 3rd ed. 1976, section 35.
    """
    i1, i3 = body.inertia[0, 0], body.inertia[2, 2]
    potential, t, tilt, spin = (jnp.asarray(x, i1.dtype) for x in (potential, t, tilt, spin))
    sine, cosine = jnp.sin(tilt), jnp.cos(tilt)
    pull = jnp.sqrt(2.0 * potential / i1)
    # cos(tilt) lies between the turning points cos - below and cos. The third root of the cubic is
    # cos + above, and below * above = sin^2.
    ratio = (i3 / i1 * spin / pull) ** 2
    x = ratio - 2.0 * cosine
    span = jnp.hypot(x, 2.0 * sine)  # below + above
    still = span == 0  # upright, at the spin at which the upright top becomes unstable
    span = jnp.where(still, 1.0, span)
    larger = 0.5 * (span + jnp.abs(x))
    less = sine / larger  # the smaller distance is sine * less, without cancellation
    slow = x < 0
    m = jnp.where(slow, larger, sine * less) / span
    m1 = jnp.where(slow, sine * less, larger) / span
    root = jnp.where(slow, jnp.abs(sine) / jnp.sqrt(larger * span), jnp.sqrt(larger / span))
    sn, _, dn = jacobi(0.5 * pull * jnp.sqrt(span) * t, elliptic.Modulus(m, m1, root))
    return cosine - jnp.where(still, 0.0, (sine * (sn / dn)) ** 2 / span)


def kovalevskaya(scale, potential, state):
    """Return Kovalevskaya's constant of a heavy body with moments (2, 2, 1) * scale [kg m^2].

    Under ``U = potential R[2, 0]`` [J] it is the fourth constant of the motion,
    ``|(w1 + i w2)^2 - potential/scale (g1 + i g2)|^2``, with g the vertical in body axes.
    """
    g1, g2, _ = rotate_inverse(state.q, jnp.asarray([0.0, 0.0, 1.0], state.q.dtype))
    w1, w2, _ = state.omega
    ratio = potential / scale
    return (w1 * w1 - w2 * w2 - ratio * g1) ** 2 + (2.0 * w1 * w2 - ratio * g2) ** 2

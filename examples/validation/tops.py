"""Steady precessions in closed form: of a symmetric top under gravity, and coning."""

import jax.numpy as jnp

import jaxquat as jq


def steady_precession(body, potential, t, tilt, spin):
    """Return the State of a top that precesses at constant tilt, by the slower of its two rates.

    The body has principal axes and I1 = I2; the potential is ``potential cos(tilt)`` [J]. At t = 0
    [s] the attitude is a turn by the tilt [rad] about x; spin is ``omega[2]`` [rad/s]. L. D. Landau
    and E. M. Lifshitz, Mechanics, 3rd ed. 1976, section 35.
    """
    i1, i3 = body.inertia[0, 0], body.inertia[2, 2]
    a, b, cosine = i3 / i1 * spin, potential / i1, jnp.cos(tilt)
    rate = 2.0 * b / (a + jnp.sign(spin) * jnp.sqrt(a * a - 4.0 * b * cosine))
    angle = (spin - rate * cosine) * t
    q = jq.euler.to_quaternion(jnp.stack([rate * t, tilt, angle]), "ZXZ")
    across = rate * jnp.sin(tilt)
    return jq.State(q, jnp.stack([across * jnp.sin(angle), across * jnp.cos(angle), spin]))


def coning(t, half_angle, rate):
    """Return the attitude at t [s] of a body whose axis z describes a cone.

    It is a turn by ``half_angle`` [rad] about a horizontal axis, which turns at ``rate`` [rad/s].
    The body rate is ``rate (-sin b sin(rate t), sin b cos(rate t), cos b - 1)``, b = half_angle.
    """
    half = jnp.sin(0.5 * half_angle)
    across = half * jnp.stack([jnp.cos(rate * t), jnp.sin(rate * t)])
    return jnp.concatenate([jnp.cos(0.5 * half_angle)[None], across, jnp.zeros(1)])

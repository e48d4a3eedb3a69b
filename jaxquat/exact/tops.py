"""Tops under gravity: steady precession, nutation, and Kovalevskaya's constant.

The potential is ``U = potential cos(tilt)`` [J], where ``tilt`` [rad] is the angle of the body's
axis 3 from the vertical. For ``torques.heavy_top(weight, (0, 0, h))`` it is ``weight * h``.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat import euler
from jaxquat._internal.checks import boolean, is_concrete, positive, scalar
from jaxquat._internal.linear import power_of_two, scale_of
from jaxquat.dynamics.body import Body, check_body, check_symmetric
from jaxquat.dynamics.state import State, check_state
from jaxquat.exact import elliptic
from jaxquat.quaternion import rotate_inverse


def steady_precession(
    body: Body,
    potential: ArrayLike,
    t: ArrayLike,
    *,
    tilt: ArrayLike,
    spin: ArrayLike,
    fast: bool = False,
) -> State:
    """The State of a heavy symmetric top that precesses at constant tilt, at one time t [s].

    At t = 0 the attitude is a turn by the tilt about x. Landau and Lifshitz 1976, section 35.

    Args:
        body: with I1 = I2 in principal axes; the result has its dtype.
        potential: U = potential cos(tilt) [J]; ``weight * h`` for
            ``torques.heavy_top(weight, (0, 0, h))``.
        t: time [s].
        tilt: angle of axis 3 from the vertical [rad].
        spin: ``omega[2]`` [rad/s].
        fast: use the faster of the two rates of precession, which is infinite at a tilt of pi/2,
            instead of the slower one.

    Raises:
        ValueError: concrete values with I1 != I2, or with a spin that is too slow,
            ``I3^2 spin^2 < 4 I1 potential cos(tilt)``. If the spin is traced, the result is NaN.

    Examples:
        >>> body = jq.Body.from_principal(jnp.array([0.02, 0.02, 0.01]))  # kg m^2
        >>> tilt, spin = jnp.pi / 2, 100.0  # rad, rad/s
        >>> state = jq.exact.steady_precession(body, 0.5, 0.0, tilt=tilt, spin=spin)  # 0.5 J, 0 s
        >>> state.omega[1].round(2)  # about the vertical: 0.5 J/(0.01 kg m^2 100 rad/s)
        Array(0.5, dtype=float32)
    """
    i1, i3, scale = _symmetric_moments("steady_precession", body)
    potential, t, tilt, spin = _numbers(body, potential=potential, t=t, tilt=tilt, spin=spin)
    with jax.ensure_compile_time_eval():
        potential = scale * potential
        a, b, cosine = i3 / i1 * spin, potential / i1, jnp.cos(tilt)
        # Divide by a unit near these rates: to differentiate b/a JAX computes the cube of a rate.
        unit = power_of_two(jnp.stack([a, jnp.sqrt(jnp.abs(jax.lax.stop_gradient(b)))]))
        a, b = a / unit, b / unit / unit
        square = a * a - 4.0 * b * cosine
        if is_concrete(square) and not float(square) >= 0:
            bound = 4.0 * float(i1) * float(potential) * float(cosine) / float(scale) ** 2
            wanted = f"I3^2 spin^2 >= 4 I1 potential cos(tilt) = {bound:.6g}"
            got = (float(i3) / float(scale) * float(spin)) ** 2
            raise ValueError(f"spin: wanted {wanted}, got {got:.6g}")
    root = jnp.sqrt(square)
    larger = a + jnp.where(spin < 0, -root, root)
    if boolean("fast", fast):
        rate = unit * (larger / (2.0 * cosine))
    else:  # not by a - root, which cancels; 0 without a potential
        rate = unit * (2.0 * b / jnp.where(b == 0, 1.0, larger))
    spin_angle = (spin - rate * cosine) * t
    q = euler.to_quaternion(jnp.stack([rate * t, tilt, spin_angle]), "ZXZ")
    across = rate * jnp.sin(tilt)
    return State(q, jnp.stack([across * jnp.sin(spin_angle), across * jnp.cos(spin_angle), spin]))


def nutation(
    body: Body, potential: ArrayLike, t: ArrayLike, *, tilt: ArrayLike, spin: ArrayLike
) -> Array:
    """Cosine of the tilt of a heavy symmetric top that is released at t = 0 with its axis at rest.

    -> (), at one time t [s]. Landau and Lifshitz 1976, section 35.

    Args:
        body: with I1 = I2 in principal axes; the result has its dtype.
        potential: U = potential cos(tilt) [J], positive; for a hanging top measure the tilt from
            below.
        t: time [s].
        tilt: angle of axis 3 from the vertical at t = 0 [rad].
        spin: ``omega[2]`` [rad/s].

    Raises:
        ValueError: concrete values with I1 != I2, or with a potential that is not positive. If the
            potential is traced, the result is NaN.

    Examples:
        >>> body = jq.Body.from_principal(jnp.array([0.02, 0.02, 0.01]))  # kg m^2
        >>> t, tilt = jnp.linspace(0.0, 0.2, 200), jnp.pi / 3  # s, rad
        >>> top = {"tilt": tilt, "spin": 40.0}  # rad, rad/s
        >>> cosine = jax.vmap(lambda t: jq.exact.nutation(body, 2.0, t, **top))  # 2 J
        >>> tilts = jnp.degrees(jnp.arccos(jax.jit(cosine)(t)))
        >>> f"{tilts.min():.0f} to {tilts.max():.0f} deg"
        '60 to 90 deg'
    """
    i1, i3, scale = _symmetric_moments("nutation", body)
    potential, t, tilt, spin = _numbers(body, potential=potential, t=t, tilt=tilt, spin=spin)
    positive("potential", potential)
    sine, cosine = jnp.sin(tilt), jnp.cos(tilt)
    pull = jnp.sqrt(2.0 * (scale * potential) / i1)
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
    sn, _, dn = elliptic.jacobi(0.5 * pull * jnp.sqrt(span) * t, elliptic.Modulus(m, m1, root))
    return cosine - jnp.where(still, 0.0, (sine * (sn / dn)) ** 2 / span)


def kovalevskaya(scale: ArrayLike, potential: ArrayLike, state: State) -> Array:
    """Kovalevskaya's constant of a heavy body with moments (2, 2, 1) * scale [kg m^2]. -> ().

    Under ``U = potential R[2, 0]`` [J] it is the fourth constant of the motion,
    ``|(w1 + i w2)^2 - potential/scale (g1 + i g2)|^2`` [rad^4/s^4], with g the vertical in body
    axes.

    Examples:
        >>> body = jq.Body.from_principal(jnp.array([2.0, 2.0, 1.0]))
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.5, 0.5, 1.0]))
        >>> torque = jq.torques.heavy_top(1.0, jnp.array([1.0, 0.0, 0.0]))  # U = R[2, 0]
        >>> fly = jax.jit(lambda: jq.rollout(jq.rkmk4, body, torque, start, jq.grid(0.0, 0.02, 50)))
        >>> [f"{jq.exact.kovalevskaya(1.0, 1.0, state):.3f}" for state in (start, fly().final)]
        ['0.250', '0.250']
    """
    state = check_state("state", state)
    scale = scalar("scale", scale).astype(state.q.dtype)
    potential = scalar("potential", potential).astype(state.q.dtype)
    positive("scale", scale)
    g1, g2, _ = rotate_inverse(state.q, jnp.asarray([0.0, 0.0, 1.0], state.q.dtype))
    w1, w2, _ = state.omega
    factor = scale_of(scale)
    ratio = (factor * potential) / (factor * scale)
    return (w1 * w1 - w2 * w2 - ratio * g1) ** 2 + (2.0 * w1 * w2 - ratio * g2) ** 2


def _numbers(body: Body, **named: ArrayLike) -> list[Array]:
    """Finite numbers in the body's dtype; concrete ones stay concrete under jit, for checks."""
    with jax.ensure_compile_time_eval():
        return [scalar(name, value).astype(body.inertia.dtype) for name, value in named.items()]


def _symmetric_moments(name: str, body: Body) -> tuple[Array, Array, Array]:
    """(s I1, s I3, s) of a body with I1 = I2 in principal axes; s is ``scale_of`` its inertia.

    ValueError for any other concrete body.
    """
    check_body(body)
    with jax.ensure_compile_time_eval():
        scale = scale_of(body.inertia)
        inertia = scale * body.inertia
        across = jnp.max(jnp.abs(inertia - jnp.diag(jnp.diagonal(inertia))))
        if is_concrete(across) and across > 100 * jnp.finfo(inertia.dtype).eps * jnp.max(inertia):
            got = f"the inertia {body.inertia.tolist()}"
            raise ValueError(f"body: {name} wanted principal axes, got {got}")
        check_symmetric(name, body)
        return inertia[0, 0], inertia[2, 2], scale

"""The steady precession of a top under gravity."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat import euler
from jaxquat._internal.checks import boolean, is_concrete, scalar
from jaxquat._internal.linear import power_of_two, scale_of
from jaxquat.dynamics.body import Body, check_body, check_symmetric
from jaxquat.dynamics.state import State


def steady_precession(
    body: Body,
    potential: ArrayLike,
    t: ArrayLike,
    *,
    tilt: ArrayLike,
    spin: ArrayLike,
    fast: bool = False,
) -> State:
    """Return the State of a heavy symmetric top that precesses at constant tilt, at one time t [s].

    At t = 0 the attitude is a turn by the tilt about x (Landau and Lifshitz 1976, section 35).
    ValueError for concrete values with I1 != I2 or too slow a spin,
    ``I3^2 spin^2 < 4 I1 potential cos(tilt)``; a traced spin gives NaN.

    Args:
        body: with I1 = I2 in principal axes; the result has its dtype.
        potential: U/cos(tilt) [J]; ``weight * h`` for ``torques.heavy_top(weight, (0, 0, h))``.
        t: time [s].
        tilt: angle of axis 3 from the vertical [rad].
        spin: ``omega[2]`` [rad/s].
        fast: use the faster of the two rates of precession, which is infinite at a tilt of pi/2.

    Examples:
        >>> body = jq.Body.from_principal(jnp.array([0.02, 0.02, 0.01]))  # kg m^2
        >>> state = jq.exact.steady_precession(body, 0.5, 0.0, tilt=jnp.pi / 2, spin=100.0)
        >>> state.omega[1].round(2)  # about the vertical: 0.5 J/(0.01 kg m^2 100 rad/s)
        Array(0.5, dtype=float32)
    """
    check_body(body)
    named = {"potential": potential, "t": t, "tilt": tilt, "spin": spin}
    with jax.ensure_compile_time_eval():  # concrete numbers stay so under jit, for the checks
        scale = scale_of(body.inertia)
        inertia = scale * body.inertia
        _check_principal_axes(body.inertia)
        check_symmetric("steady_precession", body)
        i1, i3 = inertia[0, 0], inertia[2, 2]
        numbers = [scalar(name, value).astype(inertia.dtype) for name, value in named.items()]
        potential, t, tilt, spin = numbers
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


def _check_principal_axes(inertia: Array) -> None:
    across = jnp.max(jnp.abs(inertia - jnp.diag(jnp.diagonal(inertia))))
    if is_concrete(across) and across > 100 * jnp.finfo(inertia.dtype).eps * jnp.max(inertia):
        got = f"the inertia {inertia.tolist()}"
        raise ValueError(f"body: steady_precession wanted principal axes, got {got}")

"""What disturbs a reaction wheel: friction in its bearings, and imbalance of its rotor."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._checks import broadcast, not_negative, positive


def wheel_friction(
    speed: ArrayLike,
    coulomb: ArrayLike,
    viscous: ArrayLike,
    static: ArrayLike | None = None,
    stribeck_speed: ArrayLike | None = None,
) -> Array:
    """The friction of wheels at a speed s [rad/s] relative to the body, against it. -> (...) [N m].

    ``Fc sign(s) + c s``, or with a ``stribeck_speed`` b

        ``(Fs - Fc) x exp((1 - x^2)/2) + Fc tanh(10 x) + c s``,  x = s/b.

    The first is the law of a turning wheel, but at rest it jumps, which no step resolves. The
    second is smooth, so use it where a wheel starts, stops or reverses: it has its peak, Fs,
    near b and no stiction. B. Armstrong-Hélouvry, P. Dupont and C. Canudas de Wit, Automatica
    30(7), 1994, describe the effect; the smooth curve is that of Basilisk. Subtract the friction
    from the torque of the motor: it acts between wheel and body, so their momentum is conserved::

        speed = momentum / spin_inertia - axes @ state.omega
        motor = command - actuators.wheel_friction(speed, 0.002, 1e-5)  # for wheel_torque

    Args:
        speed: of the wheels relative to the body [rad/s], (...).
        coulomb: Fc [N m], not negative; like the others () or a shape that broadcasts with speed.
        viscous: c [N m s], not negative.
        static: Fs [N m], not negative; Fc by default. It needs a stribeck_speed.
        stribeck_speed: b [rad/s], positive; None for the law that jumps.

    Examples:
        >>> speed = jnp.array([-100.0, 0.0, 1.0])  # rad/s
        >>> jq.actuators.wheel_friction(speed, 0.002, 1e-5).round(5)  # N m
        Array([-0.003  ,  0.     ,  0.00201], dtype=float32)
        >>> jq.actuators.wheel_friction(speed, 0.002, 1e-5, 0.004, 1.0).round(5)  # breaks away
        Array([-0.003  ,  0.     ,  0.00401], dtype=float32)
    """
    named = [("speed", speed, ()), ("coulomb", coulomb, ()), ("viscous", viscous, ())]
    if stribeck_speed is None:
        if static is not None:
            raise TypeError("stribeck_speed: wanted a speed, as static is given, got None")
        speed, coulomb, viscous = broadcast(*named)
        dry = coulomb * jnp.sign(speed)
    else:
        named.append(("stribeck_speed", stribeck_speed, ()))
        named.append(("static", coulomb if static is None else static, ()))
        speed, coulomb, viscous, stribeck_speed, static = broadcast(*named)
        positive("stribeck_speed", stribeck_speed)
        not_negative("static", static)
        x = speed / stribeck_speed
        peak = x * jnp.exp(0.5 * (1.0 - x * x))  # 1 at x = 1
        dry = (static - coulomb) * peak + coulomb * jnp.tanh(10.0 * x)
    not_negative("coulomb", coulomb)
    not_negative("viscous", viscous)
    return dry + viscous * speed

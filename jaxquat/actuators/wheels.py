"""Reaction wheels, and the disturbances that they cause."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal import checks
from jaxquat._internal.linear import cross, matvec, transpose
from jaxquat.actuators.actuation import axes_rows
from jaxquat.dynamics.state import State, Wrench, broadcastable, one_body
from jaxquat.quaternion import rotate


def wheel_torque(axes: ArrayLike, state: State, momentum: ArrayLike, motor: ArrayLike) -> Array:
    """Return the torque ``-sum a_i u_i - omega × (sum a_i h_i)`` of n reaction wheels on the body.

    (n, 3), State, (n,), (n,) -> (3,) [N m]. The axes a are unit vectors. ``motor`` is u, the torque
    of each motor on its wheel [N m], and the rate of ``momentum`` h [N m s], about the wheel's
    axis, relative to the world: the inertia of the body excludes the wheels' moments about their
    own axes. Then the world momentum of body and wheels is conserved. P. C. Hughes, Spacecraft
    Attitude Dynamics, 1986, 3.4. docs/control.md has control moment gyros.

    Examples:
        >>> state = still._replace(omega=jnp.array([0.0, 0.0, 0.1]))  # rad/s
        >>> h, motor = jnp.array([0.0, 2.0, 0.0]), jnp.array([0.01, 0.02, 0.05])  # N m s, N m
        >>> np.asarray(jq.actuators.wheel_torque(jnp.eye(3), state, h, motor)).round(3)
        array([ 0.19, -0.02, -0.05], dtype=float32)
    """
    axes = axes_rows("axes", axes)
    checks.unit_vector("axes", axes)
    checks.from_aux("momentum", momentum)
    momentum = checks.exactly("momentum", momentum, axes.shape[:1])
    motor = checks.exactly("motor", motor, axes.shape[:1])
    state = broadcastable("state", state)
    return -matvec(transpose(axes), motor) - cross(state.omega, matvec(transpose(axes), momentum))


def wheel_friction(
    speed: ArrayLike,
    coulomb: ArrayLike,
    viscous: ArrayLike,
    static: ArrayLike | None = None,
    stribeck_speed: ArrayLike | None = None,
) -> Array:
    """Return the friction of wheels at a speed s relative to the body. -> (...) [N m].

    It is ``Fc sign(s) + c s``, or with a ``stribeck_speed`` b, x = s/b,
    ``(Fs - Fc) x exp((1 - x^2)/2) + Fc tanh(10 x) + c s``. The first law jumps at rest, which no
    step resolves; use the second, smooth one where a wheel starts, stops or reverses. It peaks at
    Fs near b and has no stiction (B. Armstrong-Hélouvry, P. Dupont and C. Canudas de Wit,
    Automatica 30(7), 1994; Basilisk's curve). Subtract the friction from the motor's torque::

        speed = momentum / spin_inertia - axes @ state.omega
        motor = command - actuators.wheel_friction(speed, 0.002, 1e-5)  # for wheel_torque

    Args:
        speed: of the wheels relative to the body [rad/s], (...).
        coulomb: Fc [N m], not negative; like the others () or a shape that broadcasts with speed.
        viscous: c [N m s], not negative.
        static: Fs [N m], at least Fc, which is the default. It needs a stribeck_speed.
        stribeck_speed: b [rad/s], positive; None for the law that jumps.

    Examples:
        >>> jq.actuators.wheel_friction(jnp.array([-100.0, 0.0, 1.0]), 0.002, 1e-5).round(5)  # N m
        Array([-0.003  ,  0.     ,  0.00201], dtype=float32)
    """
    named = [("speed", speed, ()), ("coulomb", coulomb, ()), ("viscous", viscous, ())]
    if stribeck_speed is None:
        if static is not None:
            raise TypeError("stribeck_speed: wanted a speed, as static is given, got None")
        speed, coulomb, viscous = checks.broadcast(*named)
        checks.not_negative("coulomb", coulomb)
        dry = coulomb * jnp.sign(speed)
    else:
        named.append(("stribeck_speed", stribeck_speed, ()))
        named.append(("static", coulomb if static is None else static, ()))
        speed, coulomb, viscous, stribeck_speed, static = checks.broadcast(*named)
        checks.not_negative("coulomb", coulomb)
        checks.positive("stribeck_speed", stribeck_speed)
        if checks.is_concrete((static, coulomb)):
            most, least = np.broadcast_arrays(static, coulomb)
            good = (most >= least) & np.isfinite(most)
            checks.every("static", f"finite values of at least coulomb, {least}", most, good)
        x = speed / stribeck_speed
        peak = x * jnp.exp(0.5 * (1.0 - x * x))  # 1 at x = 1
        dry = (static - coulomb) * peak + coulomb * jnp.tanh(10.0 * x)
    checks.not_negative("viscous", viscous)
    return dry + viscous * speed


def wheel_imbalance(
    axes: ArrayLike,
    normals: ArrayLike,
    positions: ArrayLike,
    state: State,
    angle: ArrayLike,
    speed: ArrayLike,
    static: ArrayLike,
    dynamic: ArrayLike,
) -> Wrench:
    """Return force ``Us s^2 r`` and torque ``Ud s^2 r + p × force`` of unbalanced wheels.

    The direction r turns with the wheel: ``r = n cos(angle) + (axis × n) sin(angle)``. This is the
    force on fixed bearings, for wheels far lighter than the body; momentum is not conserved (R. A.
    Masterson, D. W. Miller and R. L. Grogan, Journal of Sound and Vibration 249(3), 2002). Keep the
    angles in ``State.aux``, with the speeds as rates, in steps that resolve a turn. For a body that
    only turns, use the ``torque`` of the result.

    Args:
        axes: unit vectors, body axes, (n, 3).
        normals: n, of the imbalance at angle 0, unit vectors normal to the axes, (n, 3).
        positions: p, of the wheels from the body's centre of mass, body axes [m], (n, 3).
        state: of one body.
        angle: [rad], (n,).
        speed: s, relative to the body [rad/s], (n,).
        static: Us, mass times its distance from the axis [kg m], () or (n,).
        dynamic: Ud, product of inertia [kg m^2], () or (n,).

    Examples:
        >>> x, z, w = jnp.eye(3)[:1], jnp.eye(3)[2:], jnp.array([100.0])  # rad/s
        >>> shake = jq.actuators.wheel_imbalance(z, x, 0.5 * x, still, 0.0 * w, w, 2e-6, 0.0)
        >>> shake.force[0].round(3)  # N
        Array(0.02, dtype=float32)
    """
    checks.from_aux("speed", speed)
    checks.from_aux("angle", angle)
    state, speed = one_body("state", state), checks.vector("speed", speed)
    n, angle = speed.shape, checks.exactly("angle", angle, speed.shape)
    axes = checks.exactly("axes", axes, (*n, 3))
    normals = checks.exactly("normals", normals, (*n, 3))
    checks.unit_vector("axes", axes)
    checks.normal_vectors("normals", normals, axes)
    positions = checks.exactly("positions", positions, (*n, 3))
    static = checks.one_shape("static", static, (), n)
    dynamic = checks.one_shape("dynamic", dynamic, (), n)
    radial = jnp.cos(angle)[:, None] * normals + jnp.sin(angle)[:, None] * cross(axes, normals)
    forces = (static * speed**2)[:, None] * radial
    torques = (dynamic * speed**2)[:, None] * radial + cross(positions, forces)
    force = rotate(state.q, jnp.sum(forces, axis=0))
    return Wrench(jnp.sum(torques, axis=0), force)

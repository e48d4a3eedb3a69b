"""Attitude control laws: pure functions of the state, the gains and the command.

Both laws are those of G. Hoffmann, Application of Quaternions, appendix A; their torques are in body axes and not limited:
``actuators.saturate`` is his limiter.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat import euler, quaternion
from jaxquat.arguments import broadcast, exactly, instance
from jaxquat.mechanics import State


class Gains(NamedTuple):
    """Gains per body axis (x, y, z), a pytree."""

    damping: Array  # (3,) [N m s/rad]
    stiffness: Array  # (3,) [N m/rad]


def shortest(q: ArrayLike, reference: ArrayLike) -> Array:
    """Of ``reference`` and its negative (one attitude) the one nearer to q; +reference at exactly a half turn. -> (..., 4)."""
    q, reference = broadcast(("q", q, (4,)), ("reference", reference, (4,)))
    return jnp.where(jnp.sum(q * reference, axis=-1, keepdims=True) < 0, -reference, reference)


def quaternion_law(state: State, gains: Gains, command: ArrayLike) -> Array:
    """Torque ``-d omega + 2 k vec(q* (s command))`` on the shortest way (s = ±1), all three per axis. -> (3,) [N m].

    ``command`` is the attitude to reach, (4,). For small errors this is ``k`` times the rotation vector to the command. Hoffmann
    9.8 to 9.10. The torque jumps where the attitude is a half turn away from the command.
    """
    command = exactly("command", command, (4,))
    _check_gains(gains)
    error = quaternion.multiply(quaternion.conjugate(state.q), shortest(state.q, command))
    return 2.0 * gains.stiffness * error[1:] - gains.damping * state.omega


def euler_law(state: State, gains: Gains, command: ArrayLike) -> Array:
    """Torque ``-d omega - k sin(angle - command)`` with aircraft angles, roll on x, pitch on y, yaw on z. -> (3,) [N m].

    ``command`` is (roll, pitch, yaw) [rad], in the order of the axes. Hoffmann 9.2 and 9.3. Valid away from gimbal lock (pitch
    ±pi/2).
    """
    command = exactly("command", command, (3,))
    _check_gains(gains)
    angles = euler.from_quaternion(state.q, "ZYX")[::-1]
    return -gains.damping * state.omega - gains.stiffness * jnp.sin(angles - command)


def _check_gains(gains: Gains) -> None:
    instance("gains", gains, Gains, "control.Gains(damping, stiffness)")
    exactly("gains.damping", gains.damping, (3,))
    exactly("gains.stiffness", gains.stiffness, (3,))

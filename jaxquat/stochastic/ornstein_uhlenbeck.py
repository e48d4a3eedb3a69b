"""The exact step of rate and turn, or velocity and displacement, under drag, noise and a load."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxquat._internal.linear import matmul, matvec, square, transpose
from jaxquat.schemes.relaxation import inverse_by_rows, relaxation


class Motion(NamedTuple):
    """The matrices (3, 3) of a step; its changes, added to the state, keep rounding small."""

    change: Array  # of the rate, by itself
    turn: Array
    rate_of_first: Array
    rate_of_last: Array
    turn_of_torque: Array
    rate_of_x: Array
    turn_of_x: Array
    turn_of_y: Array
    gyration: Array  # the time for which the gyroscopic term acts, ()

    def shift(self, rate: Array, torque: Array, noise: Array) -> Array:
        """Return the turn, with the torque at the start and six normals."""
        turn = matvec(self.turn, rate) + matvec(self.turn_of_torque, torque)
        return turn + matvec(self.turn_of_x, noise[:3]) + matvec(self.turn_of_y, noise[3:])

    def gain(self, rate: Array, first: Array, last: Array, noise: Array) -> Array:
        """Return the change of the rate, with the torques at both ends and three normals."""
        gain = matvec(self.change, rate) + matvec(self.rate_of_x, noise)
        return gain + matvec(self.rate_of_first, first) + matvec(self.rate_of_last, last)


def ornstein_uhlenbeck(inertia: Array, damping: Array, temperature: Array, dt: Array) -> Motion:
    """Return the step of rate and turn under drag, noise and a torque that is linear in time."""
    half = jnp.linalg.cholesky(inertia)
    back = inverse_by_rows(half)
    up, down = transpose(half), transpose(back)  # omega = down u, u = up omega
    z = dt * matmul(matmul(back, damping), down)
    mean, ramp, change, spread = (_symmetric(x) for x in relaxation(_symmetric(z)))
    of_rate = jnp.linalg.cholesky(-_symmetric(2.0 * change + matmul(change, change)))
    with_turn = -matmul(matmul(change, mean), transpose(inverse_by_rows(of_rate)))
    of_turn = jnp.linalg.cholesky(_symmetric(spread - matmul(with_turn, transpose(with_turn))))
    noise = jnp.sqrt(temperature)
    turned = dt * down
    parts = Motion(
        change=matmul(down, matmul(change, up)),
        turn=matmul(turned, matmul(mean, up)),
        rate_of_first=dt * matmul(down, matmul(mean - ramp, back)),
        rate_of_last=dt * matmul(down, matmul(ramp, back)),
        turn_of_torque=dt * matmul(turned, matmul(ramp, back)),
        rate_of_x=noise * matmul(down, of_rate),
        turn_of_x=noise * matmul(turned, with_turn),
        turn_of_y=noise * matmul(turned, of_turn),
        gyration=dt / jnp.sqrt(1.0 + square(jnp.diagonal(z))),
    )
    return lax.optimization_barrier(parts)


def _symmetric(matrix: Array) -> Array:
    return 0.5 * (matrix + transpose(matrix))

"""Drag beside a scheme that admits no torque of the rate."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._checks import finite, one_shape
from jaxquat._linear import inverse_inertia, matmul, matvec
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque, check_step
from jaxquat.dynamics.state import State
from jaxquat.schemes.scheme import Scheme, as_scheme


def damped(scheme: Scheme | Step, damping: ArrayLike) -> Scheme:
    """The scheme with drag ``-damping omega`` beside its torque, such as a splitting.

    ``damping`` is (3, 3), or (3,) for a diagonal, in body axes [N m s]; it is a leaf of the Scheme,
    so gradients reach it. The exact decay of the momentum over half a step stands outermost on both
    sides: with D that decay and S the step, a step is D S D. Order 2 stays (inside the kicks of a
    splitting it would fall to 1), and a step of -dt undoes one of dt where it does so in S. Undoing
    amplifies rounding by the factor by which the drag has reduced the momentum.

    Raises:
        TypeError: ``scheme`` is no step, or ``damping`` no array of floats.
        ValueError: ``damping`` has another shape or is not finite.
    """
    scheme = as_scheme("scheme", scheme)
    damping = one_shape("damping", damping, (3,), (3, 3))
    finite("damping", damping)
    damping = damping if damping.ndim == 2 else jnp.diag(damping)
    return dataclasses.replace(
        scheme,
        step=Damped(scheme, damping),
        name=f"damped({scheme.name})",
        order=None if scheme.order is None else min(scheme.order, 2),
        conserves=tuple(kept for kept in scheme.conserves if kept == "norm"),
        doc="",
    )


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["scheme", "damping"], meta_fields=[]
)
@dataclass(frozen=True)
class Damped:
    """The step of ``damped``."""

    scheme: Scheme
    damping: Array  # (3, 3)

    def __call__(
        self,
        body: Body,
        torque: Torque,
        t: ArrayLike,
        state: State,
        dt: ArrayLike,
        params: Any,
    ) -> State:
        """Take one step."""
        t, state, dt = check_step(body, t, state, dt)
        after = self.scheme(body, torque, t, self.decayed(body, state, dt), dt, params)
        return self.decayed(body, after, dt)

    def decayed(self, body: Body, state: State, dt: Array) -> State:
        """The state whose momentum has decayed for half of dt."""
        inverted = inverse_inertia(body.inertia)
        decay = _expm1(-0.5 * dt * matmul(self.damping, inverted))
        change = matvec(decay, matvec(body.inertia, state.omega))
        return state._replace(omega=state.omega + matvec(inverted, change))


def _expm1(matrix: Array) -> Array:
    """``exp(matrix) - 1`` of (3, 3), to rounding up to norm 8.

    Twelve terms of the series at a sixteenth of the matrix, doubled four times.
    """
    small = matrix / 16
    total = small / 12
    for n in range(11, 0, -1):
        total = (small + matmul(small, total)) / n
    for _ in range(4):
        total = 2.0 * total + matmul(total, total)
    return total

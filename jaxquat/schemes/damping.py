"""Drag beside a scheme that admits no torque of the rate."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._checks import exactly, finite, one_shape, takes
from jaxquat._linear import inverse_inertia, matmul, matvec
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque, check_step
from jaxquat.dynamics.state import State
from jaxquat.schemes.scheme import Scheme, as_scheme


def damped(
    scheme: Scheme | Step,
    damping: ArrayLike,
    toward: Callable[[Array, Array], Array] | None = None,
) -> Scheme:
    """The scheme with drag ``-damping (omega - toward(t, q))`` beside its torque.

    It is for schemes that admit no torque of the rate, such as splittings. ``damping`` is (3, 3),
    or (3,) for a diagonal, in body axes [N m s]; it is a leaf of the Scheme, so gradients reach it.
    ``toward(t, q)`` is the rate (3,) [rad/s] at which the drag vanishes, in BODY axes: zero by
    default, for a body in a fluid the rate of the fluid. A rate in world axes is turned into the
    body's by ``quaternion.rotate_inverse(q, rate)``. An example is ``flow.jeffery_rate``.

    The decay towards this rate over half a step, exact at a fixed attitude, stands outermost on
    both sides: with D that decay and S the step, a step is D S D. Order 2 stays (inside the kicks
    of a splitting it would fall to 1), and a step of -dt undoes one of dt where it does so in S.
    Undoing amplifies rounding by the factor by which the drag has reduced the momentum. With steps
    much longer than the decay takes, the body turns at the rate of each step's start: stable, but
    of order 1 where that rate varies.

    Raises:
        TypeError: ``scheme`` is no step, ``damping`` no array of floats, or ``toward`` no function
            of (t, q).
        ValueError: ``damping`` has another shape or is not finite, or ``toward`` returns another
            shape than (3,).

    Examples:
        >>> body = jq.Body(jnp.diag(jnp.array([2.0, 3.0, 4.0])))
        >>> scheme = jq.schemes.damped(jq.no_squish, jnp.array([0.4, 0.4, 0.4]))  # N m s
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.0, 2.0]))
        >>> fly = lambda: jq.rollout(scheme, body, jq.torques.zero, start, jq.grid(0.0, 2.5, 4))
        >>> f"{jax.jit(fly)().final.omega[2]:.2f} rad/s"  # after I3/damping = 10 s: 2/e
        '0.74 rad/s'
    """
    scheme = as_scheme("scheme", scheme)
    damping = one_shape("damping", damping, (3,), (3, 3))
    finite("damping", damping)
    damping = damping if damping.ndim == 2 else jnp.diag(damping)
    if toward is not None:
        takes("toward", toward, "t, q")
    return dataclasses.replace(
        scheme,
        step=Damped(scheme, damping, toward),
        name=f"damped({scheme.name})",
        order=None if scheme.order is None else min(scheme.order, 2),
        conserves=tuple(kept for kept in scheme.conserves if kept == "norm"),
        doc="",
    )


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["scheme", "damping", "toward"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Damped:
    """The step of ``damped``."""

    scheme: Scheme
    damping: Array  # (3, 3)
    toward: Callable[[Array, Array], Array] | None = None

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
        inverted = inverse_inertia(body.inertia)
        decay = _expm1(-0.5 * dt * matmul(self.damping, inverted))
        change = matmul(matmul(inverted, decay), body.inertia)
        before = self.decayed(change, t, state)
        after = self.scheme(body, torque, t, before, dt, params)
        return self.decayed(change, t + dt, after)

    def decayed(self, change: Array, t: Array, state: State) -> State:
        """The state whose excess over the rate at time t has changed by this matrix of it."""
        excess = state.omega
        if self.toward is not None:
            excess = excess - exactly("toward(t, q)", self.toward(t, state.q), (3,))
        return state._replace(omega=state.omega + matvec(change, excess))


def _expm1(matrix: Array) -> Array:
    """``exp(matrix) - 1`` of (3, 3), for eigenvalues between -1e5 and 40.

    Six terms of the series at the 2^16th part of the matrix, doubled sixteen times. The doubling of
    exp - 1 keeps its relative accuracy. Eigenvalues beyond -40, for which six terms are too few,
    still end at -1: all has decayed.
    """
    small = matrix / 2**16
    total = small / 6
    for n in range(5, 0, -1):
        total = (small + matmul(small, total)) / n
    for _ in range(16):
        total = 2.0 * total + matmul(total, total)
    return total

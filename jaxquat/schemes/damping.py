"""A scheme with linear drag of any strength.

At a fixed attitude, under a torque tau and the drag ``-D (omega - c)``, the rate after a time s is
``omega + s phi(s I^-1 D) I^-1 (tau - D (omega - c))``, ``phi(Z) = (1 - exp(-Z)) Z^-1``. Let A be
this flow over half a step, and F the free motion by the scheme. A step is A F A: symmetric, of
order 2. Under strong drag both A end at the terminal rate ``c + D^-1 tau``, which the body follows
with order 1. (If the torque acted in F, without the drag, the body would turn too far by the factor
x/2 coth(x/2), with x = dt I^-1 D.) Force and velocity are treated alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal.checks import is_concrete, not_negative, one_shape, positive, report, takes
from jaxquat._internal.linear import inverse_inertia, matmul, matvec, scale_of
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import (
    Step,
    Torque,
    constant_of,
    evaluate_at_attitude,
    given_command_of,
    rate_at_attitude,
    wind_at,
)
from jaxquat.dynamics.forces import Wind
from jaxquat.dynamics.state import State
from jaxquat.dynamics.torques import zero
from jaxquat.dynamics.units import Scales, own_units
from jaxquat.quaternion import rotate, rotate_inverse
from jaxquat.schemes.relaxation import relaxation
from jaxquat.schemes.scheme import Scheme, StepArguments, StepObject, around, as_part


def damp(
    scheme: Scheme | Step,
    damping: ArrayLike | None = None,
    toward: Callable[..., Array] | None = None,
    *,
    resistance: ArrayLike | None = None,
    wind: Wind | None = None,
) -> Scheme:
    """Add a drag ``-damping (omega - toward)`` of any strength to a scheme.

    Half a step of torque and drag, exact at a fixed attitude, precedes and follows the free motion
    by ``scheme``. The order is 2. In steps much longer than the relaxation time ``I/damping`` it is
    1: the body turns at its terminal rate, and the turn during the decay to it is lost.
    docs/schemes.md has the errors, and the limit on the step under a torque of attitude, beyond
    which the attitude oscillates without an error message. ``resistance`` and ``wind`` add the
    force ``-resistance (velocity - wind)``.

    Torque and force may depend on time, attitude and position, not on rates; aux states are
    refused. The result is reversible if ``scheme`` is, but a step back (also a negative sub-step of
    ``compose``) amplifies rounding as much as the drag has reduced the rate.
    ``checkpoint="reversible"`` is refused if fewer than three digits would remain between two rows,
    and returns NaN derivatives if drag, body or grid are traced.

    Args:
        scheme: the scheme of the free body. No torque acts in it, so its order matters little.
        damping: (), diagonal (3,) or (3, 3), body axes [N m s], positive semidefinite; None for no
            drag on the rotation. It is a leaf of the Scheme, so gradients reach it.
        toward: ``toward(t, state, params) -> (3,)``, the rate in BODY axes [rad/s] at which the
            drag vanishes, such as ``flow.jeffery_rate``; zero by default. It also takes the
            command, if any.
        resistance: () or (3,) along body axes [N s/m], not negative, or None. Also a leaf.
        wind: fluid velocity in WORLD axes [m/s], (3,) or ``wind(t, position) -> (3,)``.

    Raises:
        TypeError: ``scheme`` is no step, or is stochastic, restarted or damped; ``damping`` or
            ``resistance`` is no array of floats; ``toward`` has other arguments.
        ValueError: neither damping nor resistance; a wind without resistance; a wrong shape; a
            number that is negative or not finite.

    Examples:
        >>> body = jq.Body(4.0 * jnp.eye(3))
        >>> push = lambda t, state, params: jnp.array([0.0, 0.0, 0.8])  # N m
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
        >>> scheme = jq.schemes.damp(jq.no_squish, 4e4)  # N m s: relaxes in 0.1 ms
        >>> f"{scheme(body, push, 0.0, start, 2.5, None).omega[2]:.2e} rad/s"
        '2.00e-05 rad/s'
    """
    scheme = as_part("scheme", scheme)
    if isinstance(scheme.step, Damped):
        raise TypeError(f"scheme: wanted one without drag, got {scheme.name}; add the dampings")
    if damping is None and resistance is None:
        raise ValueError("damping, resistance: wanted one of them or both, got neither")
    step = Damped(scheme, Fluid.checked(damping, toward, resistance, wind, definite=False))
    return around(scheme, step, "damped", 2, evaluations=2, torques="attitude", aux=False)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Fluid:
    """The drag of a fluid, and its own motion."""

    damping: Any  # an Array (3, 3), body axes, or None, and so is the resistance
    resistance: Any
    toward: Callable[..., Array] | None
    wind: Callable[..., Array] | None
    definite: bool = field(metadata={"static": True})  # whether both drags must be positive

    @classmethod
    def checked(
        cls,
        damping: ArrayLike | None,
        toward: Callable[..., Array] | None,
        resistance: ArrayLike | None,
        wind: Wind | None,
        *,
        definite: bool,
    ) -> Fluid:
        """Make a fluid of these arguments of ``damp``; errors name the argument."""
        if damping is not None or definite:
            damping = _damping_matrix(damping, definite)
        if toward is not None:
            _check_toward(toward)
            if damping is None:
                raise ValueError("toward: wanted a damping with it, got none")
        if resistance is not None:
            resistance = one_shape("resistance", resistance, (), (3,))
            (positive if definite else not_negative)("resistance", resistance)
            resistance = jnp.diag(jnp.broadcast_to(resistance, (3,)))
        if wind is not None:
            if resistance is None:
                raise ValueError("wind: wanted a resistance with it, got none")
            wind = wind_at(wind)
        return cls(damping, resistance, toward, wind, definite)

    def report(self) -> None:
        """Report traced numbers that ``checked`` refuses where they are known."""
        damping = self.damping
        if damping is not None:
            wanted, rounding = _wanted(self.definite), 100 * jnp.finfo(damping.dtype).eps
            scaled = scale_of(damping) * damping
            report("damping", wanted, _is_drag(jnp, scaled, rounding, self.definite), damping)
        if self.resistance is not None:
            values = jnp.diagonal(self.resistance)
            wanted = "positive numbers" if self.definite else "numbers that are not negative"
            report("resistance", wanted, values > 0 if self.definite else values >= 0, values)

    def within(self, scales: Scales, torque: Torque) -> Fluid:
        """Return the fluid in these units; ``toward`` gets the command of the torque."""
        damping, resistance, toward = self.damping, self.resistance, self.toward
        return dataclasses.replace(
            self,
            damping=None if damping is None else scales.torque * damping,
            resistance=None if resistance is None else scales.force * resistance,
            toward=None if toward is None else given_command_of(torque, toward),
        )

    def acting(
        self, name: str, torque: Torque, t: Array, state: State, params: Any
    ) -> tuple[Array, Any, Any, Any]:
        """Return torque and force, and the rate and velocity of the fluid, each None without."""
        tau, force = evaluate_at_attitude(name, torque, t, state, params)
        rate = air = None
        if self.toward is not None:
            rate = rate_at_attitude(name, "toward", self.toward, t, state, params)
        if self.wind is not None:
            air = jnp.asarray(self.wind(t, state.position), tau.dtype)
        return tau, force, rate, air


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Damped(StepObject):
    """The step of ``damp``."""

    has_drag = True

    scheme: Scheme
    fluid: Fluid

    def take(self, at: StepArguments) -> State:
        """Take one step."""
        _, scales = own_units(at.body)
        settled = self._settling(at.in_own_units(), self.fluid.within(scales, at.torque))
        before = settled(at.t, at.state)
        free = at._replace(torque=zero, state=before)
        return settled(at.t + at.dt, self.scheme(*free))

    def report(self) -> None:
        """Report traced numbers that ``damp`` refuses where they are known."""
        self.fluid.report()

    def decay(self, body: Body) -> Array:
        """Return a bound on the fastest relative decay of the rates [1/s], (): a row-sum norm."""
        own_body, scales = own_units(body)
        fluid, rates = self.fluid.within(scales, zero), []
        if fluid.damping is not None:
            rates.append(matmul(inverse_inertia(own_body.inertia), fluid.damping))
        if fluid.resistance is not None and own_body.mass is not None:
            rates.append(fluid.resistance / own_body.mass)
        return jnp.max(jnp.stack([jnp.max(jnp.sum(jnp.abs(rate), axis=1)) for rate in rates]))

    def _settling(self, at: StepArguments, fluid: Fluid) -> Callable[[Array, State], State]:
        """Return the flow of torque, force and drag at a fixed attitude, for half a step."""
        moves, duration = at.state.position is not None, 0.5 * at.dt
        if fluid.resistance is not None and not moves:
            wanted = "position and velocity because there is a resistance"
            raise ValueError(f"state: wanted {wanted}, got neither")
        name = f"damped({self.scheme.name})"
        turning = _response(at.body.inertia, fluid.damping, duration)
        mass = at.body.mass * jnp.eye(3, dtype=duration.dtype) if moves else None
        moving = None if mass is None else _response(mass, fluid.resistance, duration)

        def settled(t: Array, state: State) -> State:
            tau, force, rate, air = fluid.acting(name, at.torque, t, state, at.params)
            if fluid.damping is not None:
                excess = state.omega if rate is None else state.omega - rate
                tau = tau - matvec(fluid.damping, excess)
            omega = state.omega + matvec(turning, tau)
            if moving is None or force is None:
                return state._replace(omega=omega)
            force = rotate_inverse(state.q, force)
            if fluid.resistance is not None:
                excess = state.velocity if air is None else state.velocity - air
                force = force - matvec(fluid.resistance, rotate_inverse(state.q, excess))
            gained = rotate(state.q, matvec(moving, force))
            return state._replace(omega=omega, velocity=state.velocity + gained)

        return settled


def _response(inertia: Array, damping: Array | None, duration: Array) -> Array:
    """Return the rate per torque that acts for ``duration`` against the drag, from rest. (3, 3)."""
    inverted = inverse_inertia(inertia)
    if damping is None:
        return duration * inverted
    decay = duration * matmul(inverted, damping)
    return lax.optimization_barrier(duration * matmul(relaxation(decay).mean, inverted))


def _damping_matrix(value: Any, definite: bool) -> Array:
    """Return ``damping`` as (3, 3); ValueError if it is concrete and no drag."""
    damping = constant_of("damping", value, (), (3,), (3, 3))
    if not is_concrete(damping):
        return damping if damping.ndim == 2 else jnp.diag(jnp.broadcast_to(damping, (3,)))
    numbers = np.asarray(damping, np.float64)
    numbers = numbers if numbers.ndim == 2 else np.diag(np.broadcast_to(numbers, 3))
    rounding = 100 * float(jnp.finfo(damping.dtype).eps) * np.abs(numbers).max()
    if not _is_drag(np, numbers, rounding, definite):
        raise ValueError(f"damping: wanted {_wanted(definite)}, got {numbers.tolist()}")
    with jax.ensure_compile_time_eval():
        return damping if damping.ndim == 2 else jnp.asarray(numbers, damping.dtype)


def _wanted(definite: bool) -> str:
    return f"a {'symmetric, positive definite' if definite else 'positive semidefinite'} matrix"


def _is_drag(xp: Any, damping: Any, rounding: Any, definite: bool) -> Any:
    if definite:
        is_symmetric = xp.abs(damping - damping.T).max() <= rounding
        return is_symmetric & (xp.linalg.eigvalsh(damping).min() > 0)
    return xp.linalg.eigvalsh(damping + damping.T).min() / 2 >= -rounding


def _check_toward(toward: Any) -> None:
    """Raise TypeError if ``toward`` can be called neither with nor without a command."""
    with contextlib.suppress(TypeError):
        takes("toward", toward, "t, state, params, command")
        return
    takes("toward", toward, "t, state, params")

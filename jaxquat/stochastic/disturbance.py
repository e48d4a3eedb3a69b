"""Random torques for any scheme: white ones, and those that are correlated in time.

A white torque of the spectral density ``B B^T`` changes the momentum by ``B dW``. With standard
normals x and y, its increment W and the integral J of W over a step are

    W = sqrt(dt) x,    J = sqrt(dt^3) (x/2 + y/sqrt(12)).

The body gets ``(x + y)/2`` of the momentum ``sqrt(dt) B`` before the step and ``(x - y)/2`` after
it. These kicks are independent, so the step is Strang's splitting (SIAM J. Numer. Anal. 5, 1968,
506-517), of weak order 2. The first kick turns a body from rest by ``sqrt(dt^3) I^-1 B (x + y)/2``;
a turn by ``(1/sqrt(12) - 1/2) sqrt(dt^3) I^-1 B y``, independent of W, completes ``I^-1 B J``.

A kick before a step with drag would turn the body as if there were none. So schemes with drag take
``B x/sqrt(dt)`` as a constant torque: of weak order 1, but with the right turn in steps of any
length. A Gauss-Markov torque relaxes and spreads like a rate under drag (``relaxation``): its value
after a step and its mean over the step are Gaussian, and exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal import checks
from jaxquat._internal.checks import report
from jaxquat._internal.linear import inverse_inertia, matvec
from jaxquat.dynamics.contract import Commanded, Step, Torque, given_command_of
from jaxquat.dynamics.state import State
from jaxquat.dynamics.torques import total
from jaxquat.dynamics.units import own_units
from jaxquat.quaternion import expm1, multiply
from jaxquat.schemes.relaxation import relaxation
from jaxquat.schemes.scheme import (
    Scheme,
    StepArguments,
    StepAround,
    around,
    as_scheme,
    has_drag,
    is_stochastic,
)


class Disturbance(NamedTuple):
    """The aux states of a body under a Gauss-Markov torque.

    Attributes:
        torque: the disturbance, body axes [N m], (3,).
        aux: the aux states that the torque of the rollout receives and moves; none by default.

    Examples:
        >>> disturbance = jq.stochastic.Disturbance(jnp.array([1e-3, 0.0, 0.0]))
    """

    torque: Array
    aux: Any = ()


def add_torque_noise(scheme: Scheme | Step, density: ArrayLike) -> Scheme:
    """Add a white torque in body axes to a scheme, given by the root of its spectral density.

    In the time t it changes the momentum by a random vector of the variance ``density^2 t`` per
    axis: a two-sided density, as of ``jq.gyro.Gyro`` and IEEE Std 952 (the root of a one-sided one
    is sqrt(2) times larger). For a torque drawn anew after each time h, it is the deviation times
    sqrt(h).

    A step takes six standard normals. Turn and rate of a body at rest have the covariance of an
    integrated Wiener process; if the scheme conserves momentum, ``<|I omega|^2>`` of a free body
    grows by ``tr(density density^T) dt`` exactly. The weak order, the field ``order``, is that of
    the scheme, at most 2, the strong order 1. With ``damp``, ``langevin`` and ``brownian`` a step
    takes three normals, the weak order is 1, and steps may be longer than the relaxation time.
    Schemes whose rate is not ``state.omega``, such as ``full_quat``, are refused in the step. With
    density 0 a step is that of the scheme. The result is reversible if the scheme is.

    Args:
        scheme: any scheme, also one with noise of its own, which takes the last normals.
        density: root of the spectral density [N m/sqrt(Hz)], () or (3,), at least 0 (ValueError),
            or a factor B (3, 3) of the density matrix ``B B^T``. A leaf of the Scheme: gradients
            reach it, also at 0.

    Examples:
        >>> scheme = jq.stochastic.add_torque_noise(jq.rkmk4, 2e-5)  # N m/sqrt(Hz)
        >>> scheme.noise(jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))), scheme.order
        (6, 2)
    """
    density = checks.one_shape("density", density, (), (3,), (3, 3))
    if density.ndim == 2:
        checks.finite("density", density)
    else:
        checks.not_negative("density", density)
    scheme = as_scheme("scheme", scheme)
    order = 1 if has_drag(scheme) else 2
    return around(scheme, TorqueNoise(scheme, density), "add_torque_noise", order)


def add_gauss_markov_torque(
    scheme: Scheme | Step, deviation: ArrayLike, time_constant: ArrayLike
) -> Scheme:
    """Add a torque in body axes to a scheme; its correlation decays as ``exp(-t/time_constant)``.

    The disturbance N is an Ornstein-Uhlenbeck process per axis, in ``state.aux``, a
    ``Disturbance(N, aux)`` (TypeError without). The step adds N to the torque, moves N and passes
    the inner aux states on to scheme and torque; controllers and ``save`` get the whole state.
    Start with zeros, or with ``deviation * jax.random.normal(key, (3,))``.

    A step takes six standard normals. N after the step and its impulse have their exact joint
    distribution; the scheme gets the mean of N over the step. Weak and strong order are those of
    the scheme, at most 2, in steps shorter than the time constant. In longer ones N is a white
    torque of the density ``deviation sqrt(2 time_constant)``, constant within a step.

    Args:
        scheme: any scheme, also one with noise of its own, which takes the last normals.
        deviation: standard deviation of the torque [N m], () or (3,) per axis, at least 0.
        time_constant: of the correlation [s], () or (3,), positive. Both are leaves of the Scheme.

    Examples:
        >>> scheme = jq.stochastic.add_gauss_markov_torque(jq.no_squish, 1e-3, 20.0)  # N m, s
        >>> calm = jq.stochastic.Disturbance(jnp.zeros(3))
        >>> scheme.noise(jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3), calm))
        6
    """
    deviation = checks.one_shape("deviation", deviation, (), (3,))
    checks.not_negative("deviation", deviation)
    time_constant = checks.one_shape("time_constant", time_constant, (), (3,))
    checks.positive("time_constant", time_constant)
    scheme = as_scheme("scheme", scheme)
    step = GaussMarkov(scheme, deviation, time_constant)
    return around(scheme, step, "add_gauss_markov_torque", 2, aux=True, reversible=False)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TorqueNoise(StepAround):
    """The step of ``add_torque_noise``."""

    scheme: Scheme
    density: Array  # (), (3,) or (3, 3), body axes

    def report(self) -> None:
        """Report traced numbers that are refused where they are known."""
        if self.density.ndim < 2:
            report("density", "numbers that are not negative", self.density >= 0, self.density)

    def noise(self, state: State) -> int:
        """Return how many standard normals a step takes."""
        return (3 if has_drag(self.scheme) else 6) + self.scheme.noise(state)

    def take(self, at: StepArguments) -> State:
        """Take one step."""
        state = at.state
        if has_drag(self.scheme):
            return self.scheme(*self._shaken_constantly(at))
        if self.scheme.aux is False and jax.tree.leaves(state.aux):
            wanted = f"none because torques under {self.scheme.name} have no aux states"
            raise TypeError(f"state.aux: add_torque_noise wanted {wanted}, got some")
        turn, first, last = self._kicks(at)
        state = _turned(state, turn)
        state = state._replace(omega=state.omega + first)
        state = self.scheme(*_inner(self.scheme, at, 6)._replace(state=state))
        return state._replace(omega=state.omega + last)

    def undo(self, *arguments: Any) -> State:
        """Return the state before the step that ended at t; a step of -dt has no sqrt(dt)."""
        at = StepArguments.checked(*arguments)
        if has_drag(self.scheme):
            return self.scheme.undo(*self._shaken_constantly(at))
        turn, first, last = self._kicks(at)
        state = at.state._replace(omega=at.state.omega - last)
        state = self.scheme.undo(*_inner(self.scheme, at, 6)._replace(state=state))
        return _turned(state._replace(omega=state.omega - first), -turn)

    def _shaken_constantly(self, at: StepArguments) -> StepArguments:
        """Return the scheme's own arguments, with the white torque constant within the step."""
        acting = self._shaken(at.noise[:3], at.dt) / jnp.sqrt(at.dt)
        return _inner(self.scheme, at, 3)._replace(torque=_plus(at.torque, acting))

    def _kicks(self, at: StepArguments) -> tuple[Array, Array, Array]:
        """Return the turn before a step without drag, and the kicks before and after it."""
        dt, noise = at.dt, at.noise
        own_body, scales = own_units(at.body)
        inverted = inverse_inertia(own_body.inertia)

        def rate(normals: Array) -> Array:
            return matvec(inverted, jnp.sqrt(dt) * self._shaken(normals, dt, scales.torque))

        u, v = rate(noise[:3]), rate(noise[3:6])
        turn = (1.0 / math.sqrt(12.0) - 0.5) * dt * v
        return turn, 0.5 * (u + v), 0.5 * (u - v)

    def _shaken(self, normals: Array, dt: Array, unit: Array | float = 1.0) -> Array:
        density = unit * self.density.astype(dt.dtype)
        return matvec(density, normals) if density.ndim == 2 else density * normals


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GaussMarkov(StepAround):
    """The step of ``add_gauss_markov_torque``."""

    scheme: Scheme
    deviation: Array  # () or (3,), body axes, and so is the time constant
    time_constant: Array

    def report(self) -> None:
        """Report traced numbers that are refused where they are known."""
        deviation, constant = self.deviation, self.time_constant
        report("deviation", "numbers that are not negative", deviation >= 0, deviation)
        report("time_constant", "positive numbers", constant > 0, constant)

    def noise(self, state: State) -> int:
        """Return how many standard normals a step takes."""
        return 6 + self.scheme.noise(state._replace(aux=_disturbance(state).aux))

    def take(self, at: StepArguments) -> State:
        """Take one step."""
        dt, noise = at.dt, at.noise
        now, own_aux = _disturbance(at.state)
        z = dt / self.time_constant.astype(dt.dtype)
        functions = relaxation(jnp.diag(jnp.broadcast_to(z, (3,))))
        mean, _, change, spread = map(jnp.diagonal, functions)
        deviation, x, y = self.deviation.astype(dt.dtype), noise[:3], noise[3:6]
        ratio = -change / (2.0 + change)  # tanh(z/2)
        of_y = jnp.sqrt(spread - ratio * mean * mean)
        acting = mean * now + deviation * (mean * jnp.sqrt(ratio) * x + of_y * y)
        after = now + change * now + deviation * jnp.sqrt(-change * (2.0 + change)) * x

        inner = _inner(self.scheme, at, 6)._replace(state=at.state._replace(aux=own_aux))
        state = self.scheme(*inner._replace(torque=_plus(at.torque, acting)))
        return state._replace(aux=Disturbance(after, state.aux))


def _turned(state: State, turn: Array) -> State:
    return state._replace(q=state.q + multiply(state.q, expm1(turn)))


def _plus(torque: Torque, acting: Array) -> Torque:
    def constant(t: ArrayLike, state: State, params: Any, *command: Any) -> Array:
        return acting

    own = torque.torque if isinstance(torque, Commanded) else torque
    return given_command_of(torque, total(own, constant))


def _inner(scheme: Scheme, at: StepArguments, taken: int) -> StepArguments:
    """Return the arguments of the scheme's own step, with the normals that are left for it."""
    return at._replace(noise=at.noise[taken:] if is_stochastic(scheme) else None)


def _disturbance(state: State) -> Disturbance:
    wanted = "a jq.stochastic.Disturbance, which has the Gauss-Markov torque"
    disturbance = checks.instance("state.aux", state.aux, Disturbance, wanted)
    torque = checks.exactly("state.aux.torque", disturbance.torque, (3,))
    return disturbance._replace(torque=torque)

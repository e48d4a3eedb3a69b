"""Bodies in a fluid that shakes them: Langevin dynamics, and its limit without inertia.

The rates of a body with inertia I and drag ``-D (omega - c)`` in body axes, under a torque tau and
thermal noise of the temperature kT, follow

    I d omega = (tau - omega x I omega - D (omega - c)) dt + sqrt(2 kT D) dW.

Let G be the change of the rate by the gyroscopic term over half a step, by a scheme for the free
body, and O the rest of the step at a constant torque, which is solved exactly: rate and turn are a
Gaussian vector (S. Chandrasekhar, Rev. Mod. Phys. 15, 1943, 1-89, section II.2; D. L. Ermak and H.
Buckholz, J. Comput. Phys. 35, 1980, 169-182). A step is G O G. With ``I = L L^T`` the rates
``u = L^T omega`` have the same temperature about each axis, and their drag ``S = L^-1 D L^-T`` is
symmetric, so the functions m, n, c, g of ``Z = dt S`` (``relaxation``) commute. Over a step

    u    -> (1 + c) u + dt ((m - n) f_0 + n f_1) + sqrt(kT) A x,
    turn =  dt L^-T (m u + dt n f_0 + sqrt(kT) (B x + C y)),

where f is ``L^-1 (tau + D c)`` at both ends, x and y are standard normals (3,), and ``A A^T``,
``B A^T`` and ``B B^T + C C^T`` are -(2 c + c^2), -c m and g. The turn is right for a step of any
length: in a step much longer than I/D it is that of Brownian motion with the mobility D^-1. (An
exact step of the rate alone, between two turns, makes the diffusion wrong by x/2 coth(x/2).)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._checks import exactly, finite, floating, instance, not_negative, positive, scalar
from jaxquat._linear import matmul, matvec, scale_of, square, transpose
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import (
    Step,
    Torque,
    check_step,
    evaluate_at_attitude,
    given_command_of,
    rate_at_attitude,
)
from jaxquat.dynamics.state import State
from jaxquat.dynamics.units import own_step, own_units
from jaxquat.quaternion import correct_norm, exp, multiply
from jaxquat.schemes.damping import check_toward, damping_matrix
from jaxquat.schemes.relaxation import inverse_by_rows, relaxation
from jaxquat.schemes.scheme import Scheme, as_deterministic
from jaxquat.torques import zero


def langevin(
    scheme: Scheme | Step,
    damping: ArrayLike,
    temperature: ArrayLike,
    toward: Callable[..., Array] | None = None,
) -> Scheme:
    """The scheme of a body with drag and thermal noise: Langevin dynamics, for steps of any length.

    A step takes six standard normals, ``jq.rollout(..., noise=jax.random.key(0))``. Rate and turn
    have the right joint distribution at a fixed torque, whatever ``dt damping/I`` is. The weak
    order is 2 where dt is short compared with the relaxation time I/damping, and 1 where it is
    long; there the motion is that of ``brownian``. In equilibrium ``I_i <omega_i^2>`` is the
    temperature.

    Torques may depend on time and attitude, but not on the rate. Aux states and positions are
    refused. The noise has the standard deviation ``sqrt(temperature)``, whose derivative at 0 is
    infinite. At temperature 0 the scheme is that of a drag, as ``damped``.

    Args:
        scheme: a scheme for the free body, for the gyroscopic term alone.
        damping: (3, 3), (3,) for a diagonal, or (), in body axes [N m s]; positive definite. It is
            a leaf of the Scheme, so gradients reach it.
        temperature: k T [J], (), not negative. Gradients reach it, too.
        toward: ``toward(t, state, params)`` is the rate (3,) of the fluid [rad/s] in BODY axes, as
            in ``damped``; zero by default.

    Raises:
        TypeError: ``scheme`` is not a step, an argument is no array of floats, or ``toward`` no
            function.
        ValueError: an argument has a wrong shape, is not finite, or is not positive.

    Examples:
        >>> scheme = jq.schemes.langevin(jq.no_squish, jnp.array(0.4), 1e-2)
        >>> scheme.noise(jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3)))
        6
    """
    scheme = as_deterministic("scheme", scheme)
    if toward is not None:
        check_toward(toward)
    step = Langevin(
        scheme, damping_matrix(damping, _check_definite), _temperature(temperature), toward
    )
    name = f"langevin({scheme.name})"
    return _stochastic(step, name, 1, 2, "Ermak and Buckholz 1980")


def brownian(
    damping: ArrayLike, temperature: ArrayLike, toward: Callable[..., Array] | None = None
) -> Scheme:
    """The scheme of a body without inertia in a fluid: rotational Brownian motion.

    A step turns the body by ``dt (damping^-1 tau + toward)`` and by three standard normals with the
    covariance ``2 dt temperature damping^-1``, all in body axes (geometric Euler, of weak order 1).
    The rate of the state is that of the step's turn without noise; it is not used. Moments of
    inertia are not used either.

    Args:
        damping: as of ``langevin``.
        temperature: k T [J], (), not negative.
        toward: as of ``langevin``.

    Raises:
        TypeError, ValueError: as ``langevin``.

    Examples:
        >>> scheme = jq.schemes.brownian(jnp.array([0.4, 0.4, 0.1]), 1e-2)
        >>> scheme.noise(jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3)))
        3
    """
    if toward is not None:
        check_toward(toward)
    step = Brownian(damping_matrix(damping, _check_definite), _temperature(temperature), toward)
    return _stochastic(step, "brownian", 1, 1, "geometric Euler")


def coarsened(scheme: Scheme, body: Body, noise: ArrayLike, dt: ArrayLike) -> Array:
    """The noise of steps of ``2 dt`` that move a body as the steps of ``dt`` with this noise do.

    Each row is made of two rows of ``noise``, and is standard normal if they are. For ``brownian``
    it is their sum over sqrt(2), for ``langevin`` the six normals with which one step from rest,
    without torque and gyroscopic term, ends at the rate and the sum of the turns of both. So a
    path in long steps follows one in short steps, and the difference is the error of the step,
    without that of sampling: compare final states for the strong order, or means over bodies for
    that of a mean (M. B. Giles, Oper. Res. 56(3), 2008, 607-617).

    Args:
        scheme: ``langevin(...)`` or ``brownian(...)``. Its temperature has no effect.
        body: the body, for its inertia.
        noise: (2 k, n), the normals of 2 k steps, n = ``scheme.noise(state)``.
        dt: the length of one of these steps [s], (), positive.

    Returns:
        (k, n), in the dtype of the body.

    Raises:
        TypeError: ``scheme`` is another one, ``body`` no Body, or an array is not one of floats.
        ValueError: ``noise`` has a wrong shape, an odd number of rows, or elements that are not
            finite; ``dt`` has a wrong shape, or is not positive and finite.

    Examples:
        >>> body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5]))  # kg m^2
        >>> scheme = jq.schemes.langevin(jq.no_squish, jnp.array(0.4), 1e-2)
        >>> noise = jax.random.normal(jax.random.key(0), (100, 6))
        >>> jq.schemes.coarsened(scheme, body, noise, 0.1).shape
        (50, 6)
    """
    step = scheme.step if isinstance(scheme, Scheme) else scheme
    if not isinstance(step, Langevin | Brownian):
        wanted = "schemes.langevin(...) or schemes.brownian(...)"
        raise TypeError(f"scheme: wanted {wanted}, got {getattr(scheme, 'name', scheme)!r}")
    body, scales = own_units(instance("body", body, Body, "a jq.Body"))
    rows = floating("noise", noise)
    count = 3 if isinstance(step, Brownian) else 6
    if rows.ndim != 2 or len(rows) % 2 or rows.shape[1] != count:
        raise ValueError(f"noise: wanted shape (2 k, {count}), got {rows.shape}")
    finite("noise", rows)
    dt = scalar("dt", dt)
    positive("dt", dt)
    inertia = body.inertia
    rows, dt = rows.astype(inertia.dtype), dt.astype(inertia.dtype)
    first, second = rows[0::2], rows[1::2]
    if isinstance(step, Brownian):
        return (first + second) * 0.5**0.5
    back = inverse_by_rows(jnp.linalg.cholesky(inertia))
    drag = matmul(matmul(back, scales.torque * step.damping), transpose(back))
    unit = jnp.eye(3, dtype=dt.dtype)  # the inertia of the rates u, whose roots are triangular
    step_of = jax.vmap(lambda dt: _ornstein_uhlenbeck(unit, drag, jnp.ones_like(dt), dt))
    both = step_of(jnp.stack([dt, 2.0 * dt]))  # compiles in half the time of two calls
    half, whole = (jax.tree.map(lambda matrices, k=k: matrices[k], both) for k in range(2))
    between = matvec(half.rate_of_x, first[:, :3])
    rate = matvec(half.rate, between) + matvec(half.rate_of_x, second[:, :3])
    turn = matvec(half.turn, between) + matvec(half.turn_of_x, first[:, :3] + second[:, :3])
    turn = turn + matvec(half.turn_of_y, first[:, 3:] + second[:, 3:])
    x = matvec(inverse_by_rows(whole.rate_of_x), rate)
    y = matvec(inverse_by_rows(whole.turn_of_y), turn - matvec(whole.turn_of_x, x))
    return jnp.concatenate([x, y], axis=1)


def _stochastic(step: Any, name: str, order: int, evaluations: int, source: str) -> Scheme:
    return Scheme(
        step,
        name,
        order=order,
        evaluations=evaluations,
        torques="attitude",
        conserves=("norm",),
        aux=False,
        translation=False,
        source=source,
    )


def _check_definite(damping: np.ndarray, rounding: float) -> None:
    """Raise ValueError if a damping is not symmetric and positive definite."""
    symmetric = np.abs(damping - damping.T).max() <= rounding
    if not symmetric or not np.linalg.eigvalsh(damping).min() > 0:
        wanted = "a symmetric, positive definite matrix"
        raise ValueError(f"damping: wanted {wanted}, got {damping.tolist()}")


def _temperature(value: ArrayLike) -> Array:
    temperature = exactly("temperature", value, ())
    not_negative("temperature", temperature)
    return temperature


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["scheme", "damping", "temperature", "toward"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Langevin:
    """The step of ``langevin``."""

    scheme: Scheme
    damping: Array  # (3, 3), body axes
    temperature: Array
    toward: Callable[..., Array] | None = None

    def noise(self, state: State) -> int:
        """How many standard normals a step takes."""
        return 6

    def __call__(
        self,
        body: Body,
        torque: Torque,
        t: ArrayLike,
        state: State,
        dt: ArrayLike,
        params: Any,
        noise: Array,
    ) -> State:
        """Take one step."""
        own_body, own_torque, t, state, dt = own_step(body, torque, t, state, dt)
        _, scales = own_units(body)
        toward = None if self.toward is None else given_command_of(torque, self.toward)
        damping = scales.torque * self.damping
        pull = _pull("langevin", own_torque, damping, toward, params)
        o = _ornstein_uhlenbeck(own_body.inertia, damping, scales.torque * self.temperature, dt)

        def gyrated(state: State) -> State:
            free = self.scheme(body, zero, t, state, 0.5 * o.gyration, params)
            return state._replace(omega=free.omega)

        x, y = noise[:3], noise[3:]
        state = gyrated(state)
        f0 = pull(t, state)
        turn = matvec(o.turn, state.omega) + matvec(o.turn_of_torque, f0)
        turn = turn + matvec(o.turn_of_x, x) + matvec(o.turn_of_y, y)
        after = state._replace(q=correct_norm(multiply(state.q, exp(turn))))
        rate = matvec(o.rate, state.omega) + matvec(o.rate_of_x, x)
        f1 = pull(t + dt, after)
        rate = rate + matvec(o.rate_of_first, f0) + matvec(o.rate_of_last, f1)
        return gyrated(after._replace(omega=rate))


class _Step(NamedTuple):
    """The matrices (3, 3) of a step of rate and turn, see the head of the module."""

    rate: Array
    turn: Array
    rate_of_first: Array
    rate_of_last: Array
    turn_of_torque: Array
    rate_of_x: Array
    turn_of_x: Array
    turn_of_y: Array
    gyration: Array  # the time for which the gyroscopic term acts, ()


def _ornstein_uhlenbeck(inertia: Array, damping: Array, temperature: Array, dt: Array) -> _Step:
    """The step of rate and turn under drag, noise and a torque that is linear in time."""
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
    parts = _Step(
        rate=matmul(down, matmul(jnp.eye(3, dtype=dt.dtype) + change, up)),
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


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["damping", "temperature", "toward"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Brownian:
    """The step of ``brownian``."""

    damping: Array  # (3, 3), body axes
    temperature: Array
    toward: Callable[..., Array] | None = None

    def noise(self, state: State) -> int:
        """How many standard normals a step takes."""
        return 3

    def __call__(
        self,
        body: Body,
        torque: Torque,
        t: ArrayLike,
        state: State,
        dt: ArrayLike,
        params: Any,
        noise: Array,
    ) -> State:
        """Take one step."""
        t, state, dt = check_step(body, t, state, dt)
        toward = None if self.toward is None else given_command_of(torque, self.toward)
        unit = scale_of(self.damping)
        damping, temperature = unit * self.damping, unit * self.temperature
        pull = _pull("brownian", torque, self.damping, toward, params)
        factor = inverse_by_rows(jnp.linalg.cholesky(damping))  # the mobility is factor^T factor
        rate = matvec(transpose(factor), matvec(factor, unit * pull(t, state)))
        kick = jnp.sqrt(2.0 * temperature * dt) * matvec(transpose(factor), noise)
        q = correct_norm(multiply(state.q, exp(dt * rate + kick)))
        return state._replace(q=q, omega=rate)


def _pull(
    name: str,
    torque: Torque,
    damping: Array,
    toward: Callable[..., Array] | None,
    params: Any,
) -> Callable[[Array, State], Array]:
    """The torque, and the drag of a body that does not turn, as a function of time and state."""

    def pull(t: Array, state: State) -> Array:
        if state.position is not None:
            raise TypeError(f"{name}: wanted a state without a position, got one")
        tau, _ = evaluate_at_attitude(name, torque, t, state, params)
        if toward is None:
            return tau
        rate = rate_at_attitude(name, "toward", toward, t, state, params)
        return tau + matvec(damping, rate)

    return pull


def _symmetric(matrix: Array) -> Array:
    return 0.5 * (matrix + transpose(matrix))

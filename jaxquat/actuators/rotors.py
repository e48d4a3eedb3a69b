"""Rotors of a rotorcraft: thrust and drag-torque curves, their wrench, and allocation.

``torques.total(forces.gravity(body), rotors.lag(ROTORS, 0.03))`` is a quadrotor whose motors lag by
0.03 s. For heavy rotors with moments J add ``actuators.wheel_torque(axes, state, spins * J *
speeds, spins * J * accelerations)``. The examples use a rotor ahead of the centre of mass, and a
quadrotor:

Examples:
    >>> up, curve = jnp.array([[0.0, 0.0, 1.0]]), jnp.array([0.0, 0.0, 1e-5])  # N/(rad/s)^2
    >>> curves = {"thrust": curve, "drag": 0.02 * curve}
    >>> one = jq.rotors.Rotors(jnp.array([[0.2, 0.0, 0.0]]), up, jnp.ones(1), **curves)  # m
    >>> places = jnp.array([[1.0, 1, 0], [-1, 1, 0], [-1, -1, 0], [1, -1, 0]]) / 8  # m
    >>> spins = jnp.array([1.0, -1.0, 1.0, -1.0])
    >>> quad = jq.rotors.Rotors(places, jnp.tile(up, (4, 1)), spins, **curves)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal import checks
from jaxquat._internal.checks import positive
from jaxquat._internal.declared import Field, checked_record
from jaxquat._internal.linear import (
    cross,
    dot,
    inverse,
    matmul,
    matvec,
    power_of_two,
    root,
    transpose,
)
from jaxquat._internal.renamed import takes_old_names
from jaxquat.actuators import actuation
from jaxquat.control.flight import Lift
from jaxquat.dynamics.contract import Torque
from jaxquat.dynamics.state import State, Wrench
from jaxquat.quaternion import rotate
from jaxquat.simulation.controller import Controller

__all__ = ["Rotors", "allocate", "command_speeds", "lag", "speeds", "wrench"]


class Rotors(NamedTuple):
    """The n rotors of a body, a pytree.

    The curves are polynomials in the speed w >= 0 [rad/s] of a rotor, ``c[0] + c[1] w + c[2] w^2``,
    the same for all rotors; ``(0, 0, k)`` is the curve of a rotor in air at rest.

    Attributes:
        positions: of the hubs from the centre of mass, body axes [m], (n, 3).
        axes: unit vectors along the thrust, body axes, (n, 3).
        spins: +1 for a rotor that turns right-handed about its axis, -1 for the opposite, (n,).
        thrust: the curve of the thrust [N], (3,).
        drag: the curve of the aerodynamic torque against the rotation [N m], (3,).

    Examples:
        >>> quad = jq.rotors.Rotors(places, jnp.tile(up, (4, 1)), spins, **curves)
        >>> lift = jnp.polyval(quad.thrust[::-1], 500.0 * jnp.ones(4)).sum()
        >>> f"{lift:.1f} N at 500 rad/s"
        '10.0 N at 500 rad/s'
    """

    positions: Array
    axes: Array
    spins: Array
    thrust: Array
    drag: Array


def speeds(rotors: Rotors, thrusts: ArrayLike) -> Array:
    """Return the speed at which each rotor has this thrust. (n,) [N] -> (n,) [rad/s].

    Of two speeds it is the higher one; below the minimum of the curve, that of the minimum, with
    slope 0.

    Examples:
        >>> jq.rotors.speeds(one, jnp.array([2.5])).round()
        Array([500.], dtype=float32)
    """
    rotors = _checked(rotors)
    return _speed(rotors.thrust, checks.exactly("thrusts", thrusts, rotors.spins.shape))


def wrench(rotors: Rotors, speeds: ArrayLike, q: ArrayLike) -> Wrench:
    """Return the wrench of all rotors on a body at the attitude q. (n,) [rad/s], (4,) -> Wrench.

    A rotor at p with axis a, thrust T and drag torque Q contributes the torque
    ``p × T a - spin Q a`` in body axes and the force ``T a``, turned into WORLD axes.

    Examples:
        >>> torque, force = jq.rotors.wrench(one, jnp.array([500.0]), jnp.full(4, 0.5))
        >>> f"{force[0]:.2f} N, {torque[1]:.2f} N m about y, {torque[2]:.2f} N m about z"
        '2.50 N, -0.50 N m about y, -0.05 N m about z'
    """
    rotors = _checked(rotors)
    w, q = checks.exactly("speeds", speeds, rotors.spins.shape), checks.exactly("q", q, (4,))
    forces = _curve(rotors.thrust, w)[:, None] * rotors.axes
    turning = (rotors.spins * _curve(rotors.drag, w))[:, None] * rotors.axes
    torque = jnp.sum(cross(rotors.positions, forces) - turning, axis=0)
    return Wrench(torque, rotate(q, jnp.sum(forces, axis=0)))


def lag(rotors: Rotors, time_constant: ArrayLike) -> Torque:
    """Make the wrench of n rotors that follow the commanded speeds with a first-order lag.

    The aux states are the actual speeds (n,) [rad/s], the command the setpoints. Steps should not
    be longer than ``time_constant``, () or (n,) [s]: see ``actuators.lag``. The rotors' own
    momentum is left out.

    Examples:
        >>> state = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3), aux=jnp.array([500.0]))
        >>> wrench, rates = jq.rotors.lag(one, 0.05)(0.0, state, None, jnp.array([600.0]))
        >>> f"{wrench.force[2]:.2f} N, {rates[0]:.0f} rad/s^2"
        '2.50 N, 2000 rad/s^2'
    """
    rotors = _checked(rotors)
    n = len(rotors.spins)
    time_constant = checks.one_shape("time_constant", time_constant, (), (n,))
    positive("time_constant", time_constant)

    def lag(t: ArrayLike, state: State, params: Any, *command: Any) -> tuple[Wrench, Array]:
        if not command:
            wanted = "a controller or inputs, which command the speeds"
            raise TypeError(f"rotors.lag: wanted {wanted}, got neither")
        actual = checks.exactly("state.aux", state.aux, (n,))
        wanted = checks.exactly("command", command[0], (n,))
        rates = actuation.lag(actual, wanted, jnp.asarray(time_constant, actual.dtype))
        return wrench(rotors, actual, state.q), rates

    return lag


@takes_old_names("rotors.command_speeds")
def command_speeds(
    controller: Controller,
    rotors: Rotors,
    *,
    min: ArrayLike = 0.0,  # noqa: A002
    max: ArrayLike | None = None,  # noqa: A002
) -> Controller:
    """Convert a controller of ``control.Lift`` to one of speeds (n,) [rad/s], by ``allocate``.

    Examples:
        >>> lift = jq.control.Lift(jnp.array(10.0), jnp.zeros(3))  # N, N m
        >>> hover = jq.Controller(lambda start, params: (), lambda *_: (lift, ()))
        >>> state = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
        >>> jq.rotors.command_speeds(hover, quad).update(0.0, state, (), None, None)[0].round()
        Array([500., 500., 500., 500.], dtype=float32)
    """
    checks.instance("controller", controller, Controller, "a jq.Controller")
    rotors = _checked(rotors)
    n = len(rotors.spins)
    bounds = {"min": _bound("min", min, n)}
    if max is not None:
        bounds["max"] = _bound("max", max, n)

    def update(
        t: Array, state: State, memory: Any, params: Any, sampled_input: Any
    ) -> tuple[Array, Any]:
        lift, memory = controller.update(t, state, memory, params, sampled_input)
        checks.instance("controller.update(...)[0]", lift, Lift, "a control.Lift")
        limits = {name: jnp.asarray(bound, lift.thrust.dtype) for name, bound in bounds.items()}
        return speeds(rotors, allocate(rotors, lift.thrust, lift.torque, **limits)), memory

    return Controller(controller.init, update, controller.period)


@takes_old_names("rotors.allocate")
def allocate(
    rotors: Rotors,
    thrust: ArrayLike,
    torque: ArrayLike,
    *,
    min: ArrayLike = 0.0,  # noqa: A002
    max: ArrayLike | None = None,  # noqa: A002
) -> Array:
    """Divide a collective thrust and a torque among n >= 4 rotors. -> thrusts (n,) [N].

    The result is the shortest vector of thrusts with ``thrust`` () [N] along body z and ``torque``
    (3,) [N m]. If ``min`` or ``max``, () or (n,) [N], forbid it, in this order,

    1. yaw, the torque about body z, is reduced, down to zero;
    2. the collective thrust rises or falls as far as roll and pitch require;
    3. roll and pitch are scaled down together, if no collective thrust allows both.

    The result is continuous, and differentiable almost everywhere. Drag torque is taken as
    proportional to thrust, in the ratio at an even share of the collective thrust; that is exact
    for curves ``(0, 0, k)``. ValueError for concrete rotors that are fewer than four, cannot lift
    the body and turn it about all axes, or cannot lift it without torque by positive thrusts;
    traced, such rotors give a meaningless result.

    Examples:
        >>> roll = jnp.array([0.25, 0.0, 0.0])  # N m: two rotors 1/8 m left, two right
        >>> np.asarray(jax.jit(jq.rotors.allocate)(quad, 10.0, roll)).round(2)  # N
        array([3., 3., 2., 2.], dtype=float32)
    """
    rotors = _checked(rotors)
    n = len(rotors.spins)
    if n < 4:
        raise ValueError(f"rotors: wanted at least 4 rotors, got {n}")
    thrust, torque = checks.exactly("thrust", thrust, ()), checks.exactly("torque", torque, (3,))
    low = _bound("min", min, n)
    high = None if max is None else _bound("max", max, n)
    if high is not None and checks.is_concrete((low, high)) and not np.all(low < high):
        raise ValueError(f"min: wanted less than max, {high}, got {low}")

    by_thrust, by_torque = _mixer(rotors, thrust)
    tilting = matvec(by_torque[:, :2], torque[:2])
    turning = by_torque[:, 2] * torque[2]
    # Per unit of collective thrust, the margin of each rotor bounds the collective thrust.
    floor, slope = low / by_thrust, tilting / by_thrust
    if high is not None:
        room = high[None, :] / by_thrust[None, :] - floor[:, None]
        tilt = _share(room, slope[None, :] - slope[:, None])
        slope, tilting = tilt * slope, tilt * tilting
        thrust = jnp.minimum(thrust, jnp.min(high / by_thrust - slope))
    thrust = jnp.maximum(thrust, jnp.max(floor - slope))
    base = by_thrust * thrust + tilting
    turn = _share(base - low, -turning)
    if high is not None:
        turn = jnp.minimum(turn, _share(high - base, turning))
    # Rounding may have left a rotor beyond its limit.
    result = jnp.maximum(base + turn * turning, low)
    return result if high is None else jnp.minimum(result, high)


def _mixer(rotors: Rotors, thrust: Array) -> tuple[Array, Array]:
    """Return thrusts per collective thrust (n,) and per torque (n, 3), the pseudoinverse."""
    n = len(rotors.spins)
    share = thrust / n
    share = jnp.where(share > 0, share, jnp.ones_like(share))
    ratio = _curve(rotors.drag, _speed(rotors.thrust, share)) / share
    arms = cross(rotors.positions, rotors.axes) - ratio * rotors.spins[:, None] * rotors.axes
    lift = rotors.axes[:, 2]
    lever = jnp.concatenate([arms, lift[:, None]], axis=1)
    wanted = "rotors that lift the body and turn it about all axes"
    checks.independent_columns("rotors", wanted, lever)
    units = jax.vmap(power_of_two, in_axes=1)(arms)  # squares of small arms leave float32's range
    arms = arms / units[None]
    gram = inverse(matmul(transpose(arms), arms))
    coupling = matvec(gram, matvec(transpose(arms), lift))
    upward = lift - matvec(arms, coupling)
    by_thrust = upward / dot(upward, upward)
    if checks.is_concrete(by_thrust) and np.any(np.asarray(by_thrust) <= 0):
        wanted = "rotors that all lift when the torque is 0"
        raise ValueError(f"rotors: wanted {wanted}, got shares {np.asarray(by_thrust)}")
    by_torque = matmul(arms, gram) - by_thrust[:, None] * coupling[None, :]
    return by_thrust, by_torque / units[None]


def _share(room: Array, change: Array) -> Array:
    """Return the largest s in [0, 1] with ``s change <= room``, for room >= 0 up to rounding."""
    exceeds = change > room
    shares = jnp.where(exceeds, room, 1.0) / jnp.where(exceeds, change, 1.0)
    positive = exceeds & (change > 0)
    return jnp.clip(jnp.min(jnp.where(positive, shares, 1.0)), 0.0, 1.0)


def _curve(coefficients: Array, w: Array) -> Array:
    return coefficients[0] + w * (coefficients[1] + w * coefficients[2])


def _speed(coefficients: Array, thrust: Array) -> Array:
    """Return the higher speed with this thrust, by the formula that does not cancel."""
    constant, linear, square = coefficients
    above = thrust - constant
    discriminant = root(linear * linear + 4.0 * square * above)
    rises = linear > 0  # the curve rises from speed 0 on, and may be a straight line
    forward = 2.0 * above / jnp.where(rises, linear + discriminant, 1.0)
    backward = (discriminant - linear) / jnp.where(rises, 1.0, 2.0 * square)
    return jnp.where(rises, forward, backward)


def _bound(name: str, value: ArrayLike, n: int) -> Array:
    value = checks.one_shape(name, value, (), (n,))
    checks.finite(name, value)
    return jnp.broadcast_to(value, (n,))


def _signs(name: str, value: Array) -> None:
    if checks.is_concrete(value):
        checks.every(name, "1 or -1", value, np.abs(np.asarray(value)) == 1)


def _rising(name: str, curve: Array) -> None:
    if checks.is_concrete(curve):
        _, linear, square = np.asarray(curve)
        if not (square >= 0 and (linear > 0 or square > 0)):
            raise ValueError(f"{name}: wanted a curve that rises, got {curve}")


_FIELDS = {
    "positions": Field([("n", 3)], checks.finite),
    "axes": Field([("n", 3)], checks.finite, checks.unit_vector),
    "spins": Field([("n",)], checks.finite, _signs),
    "thrust": Field([(3,)], checks.finite, _rising),
    "drag": Field([(3,)], checks.finite),
}


def _checked(rotors: Rotors) -> Rotors:
    return checked_record("rotors", rotors, Rotors, _FIELDS, "a rotors.Rotors")

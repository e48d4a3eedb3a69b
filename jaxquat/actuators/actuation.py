"""Limits, lags and reaction wheels, and the allocation of a torque to actuators."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import (
    broadcast,
    every,
    exactly,
    finite,
    floating,
    from_aux,
    independent_columns,
    is_concrete,
    not_negative,
    one_shape,
    positive,
    unit_vector,
)
from jaxquat._internal.linear import (
    cross,
    inverse,
    matmul,
    matvec,
    scale_of,
    square,
    transpose,
)
from jaxquat.actuators.thrusters import allocated
from jaxquat.dynamics.state import State, broadcastable


def saturate(tau: ArrayLike, limits: ArrayLike) -> Array:
    """A hard limit per axis: tau [N m] clipped to the range from -limits to limits.

    (..., n), (..., n) or () -> (..., n). The gradient is 1 inside and 0 outside. Hoffmann,
    Application of Quaternions, 9.10.

    Examples:
        >>> jq.actuators.saturate(jnp.array([0.25, -2.0, 0.125]), 0.5)  # N m
        Array([ 0.25 , -0.5  ,  0.125], dtype=float32)
    """
    tau, limits = _limited(tau, limits)
    return jnp.clip(tau, -limits, limits)


def saturate_smooth(tau: ArrayLike, limits: ArrayLike) -> Array:
    """A smooth limit per axis, ``limits tanh(tau/limits)``: within the limits, slope 1 at zero.

    (..., n), (..., n) or () -> (..., n), all [N m].

    Examples:
        >>> tau = jq.actuators.saturate_smooth(jnp.array([0.01, 0.5, 5.0]), 0.5)  # N m
        >>> np.asarray(tau).round(2)
        array([0.01, 0.38, 0.5 ], dtype=float32)
    """
    tau, limits = _limited(tau, limits)
    finite("limits", limits)
    return limits * jnp.tanh(tau / limits)


def lag(actual: ArrayLike, command: ArrayLike, time_constant: ArrayLike) -> Array:
    """Rate ``(command - actual)/time_constant`` of a first-order lag, per axis or wheel.

    (n,), (n,), () or (n,) [s] -> (n,). A step longer than the time constant makes it inaccurate or
    unstable: after a step of two time constants ``rkmk4`` is at 0.667 of the command, not 0.865.

    Examples:
        >>> actual, command = jnp.array([80.0, 100.0]), jnp.array([100.0, 100.0])  # rad/s
        >>> jq.actuators.lag(actual, command, 0.0625)  # rad/s^2
        Array([320.,   0.], dtype=float32)
    """
    from_aux("actual", actual)
    actual, command = floating("actual", actual), floating("command", command)
    if actual.ndim != 1 or command.shape != actual.shape:
        got = f"{command.shape} for {actual.shape}"
        raise ValueError(f"command: wanted the shape of actual, (n,), got {got}")
    time_constant = one_shape("time_constant", time_constant, (), actual.shape)
    positive("time_constant", time_constant)
    return (command - actual) / time_constant


def wheel_torque(axes: ArrayLike, state: State, momentum: ArrayLike, motor: ArrayLike) -> Array:
    """Torque of n reaction wheels on the body, ``-sum a_i u_i - omega × (sum a_i h_i)`` [N m].

    (n, 3), State, (n,), (n,) -> (3,). The axes are unit vectors. ``motor`` is u, the torque of each
    motor on its wheel [N m]. It is the rate of ``momentum`` h [N m s], the total momentum of the
    wheel about its axis, which includes the part due to the rotation of the body. The inertia of
    the body must therefore exclude the moment of each wheel about its own axis. Then
    ``I omega' = tau - omega × (I omega + A h) - A u`` holds exactly, and the momentum of body and
    wheels in world axes is conserved. P. C. Hughes, Spacecraft Attitude Dynamics, 1986, section
    3.4.

    Examples:
        >>> axes, momentum = jnp.eye(3), jnp.array([0.0, 2.0, 0.0])  # N m s: the second wheel spins
        >>> motor = jnp.array([0.01, 0.02, 0.05])  # N m
        >>> state = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), omega=jnp.array([0.0, 0.0, 0.1]))
        >>> tau = jq.actuators.wheel_torque(axes, state, momentum, motor)
        >>> np.asarray(tau).round(3)  # N m, including 0.2 about x because the spinning wheel turns
        array([ 0.19, -0.02, -0.05], dtype=float32)
    """
    axes = axes_rows("axes", axes)
    unit_vector("axes", axes)
    from_aux("momentum", momentum)
    momentum = exactly("momentum", momentum, axes.shape[:1])
    motor = exactly("motor", motor, axes.shape[:1])
    state = broadcastable("state", state)
    return -matvec(transpose(axes), motor) - cross(state.omega, matvec(transpose(axes), momentum))


def hold_momentum(momentum: ArrayLike, motor: ArrayLike, capacity: ArrayLike) -> Array:
    """The motor torques, with 0 for those that would spin a full wheel faster. -> (n,) [N m].

    A wheel is full if ``|momentum| >= capacity`` [N m s]. Arguments (n,) or () broadcast.

    Examples:
        >>> momentum = jnp.array([1.0, 0.5, -1.0])  # N m s
        >>> motor = jnp.array([0.25, 0.25, 0.25])  # N m
        >>> jq.actuators.hold_momentum(momentum, motor, capacity=1.0)  # the third may slow down
        Array([0.  , 0.25, 0.25], dtype=float32)
    """
    from_aux("momentum", momentum)
    momentum, motor, capacity = broadcast(
        ("momentum", momentum, ()), ("motor", motor, ()), ("capacity", capacity, ())
    )
    positive("capacity", capacity, or_infinite=True)
    full = (jnp.abs(momentum) >= capacity) & (motor * momentum > 0)
    return jnp.where(full, 0.0, motor)


def allocate(axes: ArrayLike, tau: ArrayLike, limits: ArrayLike | None = None) -> Array:
    """Motor torques u of n >= 3 wheels that turn the body with tau. (n, 3), (3,) -> (n,) [N m].

    It is the shortest such u, ``-A (A^T A)^-1 tau`` with the axes, unit vectors, as rows of A.
    Concrete axes that do not span the space raise ValueError. The result means nothing if traced
    ones do not: it may be NaN, infinite, or finite with no correct digit. With limits (n,) or ()
    [N m], all are scaled down together if one exceeds its limit, so that the torque keeps its
    direction. The largest ratio determines the scale and its gradient.

    Examples:
        >>> pyramid = jnp.array([[1.0, 1, 1], [-1, 1, 1], [-1, -1, 1], [1, -1, 1]]) / jnp.sqrt(3.0)
        >>> motor = jq.actuators.allocate(pyramid, jnp.array([0.0, 0.0, 0.04]))  # N m about z
        >>> np.asarray(motor).round(4)  # N m: four wheels share it
        array([-0.0173, -0.0173, -0.0173, -0.0173], dtype=float32)
    """
    axes, tau = axes_rows("axes", axes), exactly("tau", tau, (3,))
    if len(axes) < 3:
        raise ValueError(f"axes: wanted at least 3 axes, got {len(axes)}")
    unit_vector("axes", axes)
    independent_columns("axes", "axes that span the space", axes)
    gram = matmul(transpose(axes), axes)
    return _within(-matvec(axes, matvec(inverse(gram), tau)), limits)


def allocate_thrusters(arms: ArrayLike, tau: ArrayLike, limits: ArrayLike | None = None) -> Array:
    """Nonnegative forces of least sum whose torque is tau, or the nearest torque. -> (n,) [N].

    If no forces give tau, the result gives the torque nearest to it. A torque beyond the limits is
    scaled down just enough to meet them, so that it keeps its direction. Compare ``forces @ arms``
    with tau to detect either case. All bases of the linear program, about ``(n + 3)^3/6``, are
    tried at once. The result is exact, and differentiable except where the basis changes.

    Args:
        arms: torque of each thruster at unit force [m], (n, 3), from ``thruster_arms``. Three arms
            that lie in one plane to within ten units of rounding count as coplanar.
        tau: the torque to produce [N m], (3,), body axes.
        limits: largest forces [N], (n,) or (), not negative; 0 for a failed thruster.

    Examples:
        >>> arms = 0.5 * jnp.vstack([jnp.eye(3), -jnp.eye(3)])  # m: two thrusters for each axis
        >>> forces = jq.actuators.allocate_thrusters(arms, jnp.array([0.25, -0.5, 0.125]))  # N m
        >>> np.asarray(forces @ arms).round(3), bool((forces >= 0.0).all())
        (array([ 0.25 , -0.5  ,  0.125], dtype=float32), True)
    """
    arms, tau = axes_rows("arms", arms), exactly("tau", tau, (3,))
    if limits is not None:
        limits = one_shape("limits", limits, (), arms.shape[:1])
        not_negative("limits", limits, or_infinite=True)
    return allocated(arms, tau, limits)


def thruster_arms(positions: ArrayLike, directions: ArrayLike) -> Array:
    """Torque of each thruster at unit force, ``position × direction`` [m].

    (n, 3), (n, 3) -> (n, 3). ``positions`` [m] lead from the centre of mass to the thrusters;
    ``directions`` are unit vectors along the force on the body. Both are in body axes.

    Examples:
        >>> positions = jnp.array([[0.5, 0.0, 0.0], [0.0, 0.0, 0.5]])  # m
        >>> directions = jnp.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
        >>> jq.actuators.thruster_arms(positions, directions)  # torques about z and y per newton
        Array([[0. , 0. , 0.5],
               [0. , 0.5, 0. ]], dtype=float32)
    """
    positions, directions = broadcast(
        ("positions", positions, (3,)), ("directions", directions, (3,))
    )
    unit_vector("directions", directions)
    return cross(positions, directions)


def pulse_widths(
    forces: ArrayLike, thrust: ArrayLike, interval: ArrayLike, minimum: ArrayLike = 0.0
) -> Array:
    """How long to open on-off thrusters in an interval for mean forces. -> (...) [s].

    ``interval * force/thrust``, at most the interval. A pulse shorter than the minimum, such as a
    valve's least on-time, is not fired: its width is 0. The derivative is that of the branch.

    ``schemes.switched`` steps to the ends of the pulses; its docstring says what it needs where the
    interval lasts several steps.

    Args:
        forces: wanted mean forces [N], (...), for instance of ``allocate_thrusters``. A negative
            one counts as 0, because thrusters only push.
        thrust: force of the open thruster [N], positive; like the others () or a shape that
            broadcasts with forces.
        interval: from one command to the next [s], positive.
        minimum: shortest pulse [s], not negative and at most the interval; 0 by default.

    Examples:
        >>> forces = jnp.array([0.25, 0.01, 3.0])  # N
        >>> jq.actuators.pulse_widths(forces, thrust=1.0, interval=0.5, minimum=0.02)  # s
        Array([0.125, 0.   , 0.5  ], dtype=float32)
    """
    forces, thrust, interval, minimum = broadcast(
        ("forces", forces, ()), ("thrust", thrust, ()), ("interval", interval, ()),
        ("minimum", minimum, ()),
    )  # fmt: skip
    positive("thrust", thrust)
    positive("interval", interval)
    not_negative("minimum", minimum)
    if is_concrete((minimum, interval)):
        shortest, longest = np.broadcast_arrays(minimum, interval)
        every("minimum", f"at most the interval, {longest} s", shortest, shortest <= longest)
    scale = scale_of(thrust)
    forces, thrust = scale * forces, scale * thrust
    full = forces >= thrust
    share = jnp.where(full | (forces <= 0), 0.0, forces) / thrust
    width = interval * jnp.where(full, 1.0, share)
    return jnp.where(width < minimum, 0.0, width)


def magnetorquer_dipoles(
    axes: ArrayLike, tau: ArrayLike, field: ArrayLike, limits: ArrayLike | None = None
) -> Array:
    """Dipoles of n >= 3 magnetic rods or coils for a torque tau. -> (n,) [A m^2].

    The torque on a dipole m is ``m × B``. It is normal to the field B, so the part of tau along B
    is lost. The shortest m for the other part is ``B × tau/|B|^2``, shared by the rods as
    ``allocate`` shares a torque. With limits all dipoles are scaled down together, so that the
    torque keeps its direction; ``saturate`` the result without limits to cut each rod by itself. In
    a field of zero the result is NaN.

    With ``tau = -k A^T h`` the rods take the momenta h of wheels with the axes A out of them, see
    docs/control.md.

    Args:
        axes: of the rods, unit vectors in body axes, (n, 3), which span the space.
        tau: the torque to produce [N m], (3,), body axes.
        field: B at the rods [T], (3,), body axes.
        limits: largest dipoles [A m^2], (n,) or (), positive.

    Examples:
        >>> field, tau = jnp.array([0.0, 0.0, 4e-5]), jnp.array([1e-6, 0.0, 1e-6])  # T, N m
        >>> dipoles = jq.actuators.magnetorquer_dipoles(jnp.eye(3), tau, field, 0.2)
        >>> dipoles.round(4)  # A m^2
        Array([0.   , 0.025, 0.   ], dtype=float32)
        >>> jnp.cross(dipoles, field).round(8)  # N m, without the part along the field
        Array([1.e-06, 0.e+00, 0.e+00], dtype=float32)
    """
    tau, field = exactly("tau", tau, (3,)), exactly("field", field, (3,))
    scale = scale_of(field)
    field = scale * field
    return -allocate(axes, scale * (cross(field, tau) / square(field)), limits)


def _limited(tau: ArrayLike, limits: ArrayLike) -> list[Array]:
    """Arrays tau (..., n) and limits (..., n) that broadcast, from limits (..., n) or ()."""
    tau, limits = floating("tau", tau), floating("limits", limits)
    core = tau.shape[-1:] or (3,)
    with jax.ensure_compile_time_eval():  # stays concrete under jit if the limits are concrete
        limits = limits if limits.ndim else jnp.broadcast_to(limits, core)
    tau, limits = broadcast(("tau", tau, core), ("limits", limits, core))
    positive("limits", limits, or_infinite=True)
    return [tau, limits]


def axes_rows(name: str, value: ArrayLike) -> Array:
    """Vectors, a row each, as an array (n, 3) with n at least 1."""
    value = floating(name, value)
    if value.ndim != 2 or value.shape[1] != 3 or value.shape[0] < 1:
        raise ValueError(f"{name}: wanted shape (n, 3), got {value.shape}")
    return value


def _within(u: Array, limits: ArrayLike | None) -> Array:
    """The vector u (n,), scaled down until no element exceeds its limit, (n,), () or None."""
    if limits is None:
        return u
    limits = one_shape("limits", limits, (), u.shape)
    positive("limits", limits, or_infinite=True)
    return u / jnp.maximum(1.0, jnp.max(jnp.abs(u) / limits))

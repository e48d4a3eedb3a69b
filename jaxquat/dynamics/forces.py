"""Forces on a body that moves: factories that return a ``torque(t, state, params) -> Wrench``.

They are called and added like ``jq.torques``, and need a state with position and velocity. Forces
are in world axes, torques in body axes. Gradients reach the mass of the body; other numbers are
cast to the dtype of the state. On an orbit, the origin of world axes is the centre of attraction,
and float32 is kilometres off after a day, in any units (docs/control.md). The examples use a cube
that rests, and one on an orbit:

Examples:
    >>> body = jq.Body.box(100.0, jnp.ones(3))  # kg, m
    >>> level, still = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3)
    >>> state = jq.State(level, still, position=still, velocity=still)
    >>> in_orbit = state._replace(position=jnp.array([7.0e6, 0.0, 0.0]))  # m
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import not_negative, one_shape
from jaxquat._internal.linear import cross, dot, matvec, root, trace
from jaxquat.dynamics.body import Body, mass_of
from jaxquat.dynamics.contract import Torque, constant_of, of_state, wind_at
from jaxquat.dynamics.state import State, Wrench, broadcastable, moving
from jaxquat.quaternion import rotate, rotate_inverse

__all__ = ["gravity", "linear_drag", "point_mass", "potential", "quadratic_drag", "thrust"]

EARTH = 3.986004418e14  # m^3/s^2

Vector = ArrayLike | Sequence[float]
Wind = Vector | Callable[[ArrayLike, Array], Array]


def gravity(body: Body, acceleration: Vector = (0.0, 0.0, -9.80665)) -> Torque:
    """Make the weight ``m g`` in a uniform field of ``acceleration`` (3,) [m/s^2], world axes.

    Examples:
        >>> jq.forces.gravity(body)(0.0, state, None).force.round(1)  # N
        Array([   0. ,    0. , -980.7], dtype=float32)
    """
    mass, g = mass_of(body), constant_of("acceleration", acceleration, (3,))

    def gravity(t: ArrayLike, state: State, params: Any, *command: Any) -> Wrench:
        return _force(state, mass * jnp.asarray(g, mass.dtype))

    return gravity


def point_mass(body: Body, mu: ArrayLike = EARTH) -> Torque:
    """Make the attraction ``-mu m x/|x|^3`` to the origin of world axes.

    ``mu`` [m^3/s^2] is the Earth's by default. ``torques.gravity_gradient`` adds the next term of
    the field. After one revolution at 7000 km, ``rkmk4`` is off by 50 m in float32 (steps of 10 s)
    and by 1.4e-6 m in float64 (1 s).

    Examples:
        >>> f"{jq.forces.point_mass(body)(0.0, in_orbit, None).force[0]:.0f} N"  # 8.13 m/s^2
        '-813 N'
    """
    mass, mu = mass_of(body), constant_of("mu", mu, ())

    def point_mass(t: ArrayLike, state: State, params: Any, *command: Any) -> Wrench:
        distance, up = _polar(state)
        # Divide twice: in SI units a product of mu and another number may overflow float32.
        return _force(state, -mass * (jnp.asarray(mu, up.dtype) / distance / distance) * up)

    return point_mass


def potential(body: Body, state: State, mu: ArrayLike = EARTH) -> Array:
    """Return the potential energy [J], (), of ``point_mass`` plus gravity gradient.

    It is ``-mu m/r - mu/(2 r^3) (tr I - 3 u . I u)``; ``dynamics.energy`` is the kinetic part.

    Examples:
        >>> f"{jq.forces.potential(body, in_orbit):.3e} J"  # -mu m/r
        '-5.694e+09 J'
    """
    mass, mu = mass_of(body), constant_of("mu", mu, ())
    state = broadcastable("state", state)
    distance, up = _polar(state)
    u = rotate_inverse(state.q, up)
    per_mass = jnp.asarray(mu, u.dtype) / distance
    oblateness = trace(body.inertia) - 3.0 * dot(u, matvec(body.inertia, u))
    return -per_mass * mass - 0.5 * (per_mass / distance / distance) * oblateness


def linear_drag(resistance: ArrayLike, wind: Wind = (0.0, 0.0, 0.0)) -> Torque:
    """Make the force ``-K (v - wind)``, as of a viscous fluid.

    ``resistance`` is K [N s/m], () or (3,) along the body axes, as from
    ``flow.translational_resistance``. ``wind`` is the velocity of the air [m/s], world axes, (3,)
    or ``wind(t, position)``.

    Examples:
        >>> drag = jq.forces.linear_drag(0.5, wind=(4.0, 3.0, 1.0))  # N s/m, m/s
        >>> drag(0.0, state, None).force  # N
        Array([2. , 1.5, 0.5], dtype=float32)
    """
    return _drag("linear", "resistance", resistance, wind, lambda relative: 1.0)


def quadratic_drag(coefficient: ArrayLike, wind: Wind = (0.0, 0.0, 0.0)) -> Torque:
    """Make the force ``-k |v - wind| (v - wind)``, k = 1/2 rho C A [kg/m]; else as ``linear_drag``.

    Examples:
        >>> drag = jq.forces.quadratic_drag(0.5, wind=(2.0, 1.0, -2.0))  # kg/m, m/s
        >>> drag(0.0, state, None).force.round(2)
        Array([ 3. ,  1.5, -3. ], dtype=float32)
    """
    return _drag("quadratic", "coefficient", coefficient, wind, lambda v: root(dot(v, v)))


def thrust(force: Vector | Callable[..., Array], offset: Vector = (0.0, 0.0, 0.0)) -> Torque:
    """Make a force in body axes at a point of the body; its torque is ``offset × force``.

    ``force`` is (3,) [N], BODY axes, or ``force(t, state, params)``, which also takes the command,
    if any. ``offset`` (3,) [m] leads from the centre of mass to the point of application, body
    axes.

    Examples:
        >>> motor = jq.forces.thrust((0.0, 0.0, 20.0), offset=(0.1, 0.0, 0.0))  # N, m
        >>> wrench = motor(0.0, state._replace(q=jnp.full(4, 0.5)), None)  # body z is world x
        >>> wrench.torque[1], wrench.force[0]  # N m about body y, N along world x
        (Array(-2., dtype=float32), Array(20., dtype=float32))
    """
    force_at = of_state("force", force, (3,))
    arm = constant_of("offset", offset, (3,))

    def thrust(t: ArrayLike, state: State, params: Any, *command: Any) -> Wrench:
        f = jnp.asarray(force_at(t, state, params, *command), state.q.dtype)
        moment = cross(jnp.asarray(arm, f.dtype), f)
        return _force(state, rotate(state.q, f))._replace(torque=moment)

    return thrust


def _force(state: State, force: Array) -> Wrench:
    """Return the wrench of a force without torque; ValueError for a state without position."""
    return Wrench(jnp.zeros_like(moving(state).omega), force)


def _polar(state: State) -> tuple[Array, Array]:
    """Return the distance () of the body from the origin, and the unit vector (3,) to it."""
    position = moving(state).position
    distance = jnp.sqrt(dot(position, position))
    return distance, position / distance


def _drag(
    kind: str, name: str, coefficients: ArrayLike, wind: Wind, factor: Callable[[Array], Any]
) -> Torque:
    """Make the force ``-factor(v) k v``; v is the velocity in the air, k () or (3,), body axes."""
    k, air = one_shape(name, coefficients, (), (3,)), wind_at(wind)
    not_negative(name, k)

    def drag(t: ArrayLike, state: State, params: Any, *command: Any) -> Wrench:
        position = moving(state).position
        v = state.velocity - jnp.asarray(air(t, position), position.dtype)
        scale = jnp.asarray(k, v.dtype)
        along = scale * v if k.ndim == 0 else rotate(state.q, scale * rotate_inverse(state.q, v))
        return _force(state, -factor(v) * along)

    drag.__name__ = f"{kind}_drag"
    return drag

"""Masses and modes that move with a body and act back on it: slosh, flexible panels and booms.

Each has one coordinate x_i. With the velocity v of the reference point, the kinetic energy is

    1/2 M v.v + 1/2 omega . I omega + v . (S' + omega × S) + sum_i x_i' d_i . omega + 1/2 m_i x_i'^2

in body axes, where ``S = sum_i x_i l_i`` plus the first moment of added masses. A mode has the
translation l_i and the rotation d_i; a sliding mass has ``l = m axis``, ``d = m position × axis``,
and I depends on x. The energy is invariant under translations, rotations and boosts, so Lagrange's
equations conserve momentum and angular momentum exactly. They are linear in a, omega' and x'', with
a symmetric matrix whose block for x'' is diagonal; without x'' it is 6 x 6: two inverses of 3 x 3.
The torque and force for the scheme are those that give a rigid body this omega' and this a.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat import quaternion, so3
from jaxquat._internal.checks import exactly, instance, not_negative, positive, unit_vector, vector
from jaxquat._internal.declared import Field, checked_record
from jaxquat._internal.linear import cross, dot, inverse_inertia, matmul, matvec, transpose
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import check_parts, constant_of
from jaxquat.dynamics.state import State, Wrench, one_body


class Appendages(NamedTuple):
    """The numbers of n coordinates, from ``slosh_masses`` or ``flexible_modes``.

    Attributes:
        mass: of each coordinate [kg], (n,); 1 for modes.
        translation: momentum per rate, body axes [kg], (n, 3).
        rotation: angular momentum per rate about the reference point, body axes [kg m], (n, 3).
        stiffness: [N/m], (n,).
        damping: [N s/m], (n,).
        added: mass that the body does not include [kg], (n,); 0 for modes.
        position: of the added mass at displacement 0, body axes [m], (n, 3).

    Examples:
        >>> one, axis = jnp.ones(1), jnp.array([[1.0, 0.0, 0.0]])
        >>> panel = jq.dynamics.flexible_modes(one, 0.01 * one, axis, 2.0 * axis)
        >>> two = jax.tree.map(lambda *x: jnp.concatenate(x), panel, panel)  # on one body
    """

    mass: Array
    translation: Array
    rotation: Array
    stiffness: Array
    damping: Array
    added: Array
    position: Array


def slosh_masses(
    mass: ArrayLike, position: ArrayLike, axis: ArrayLike, stiffness: ArrayLike, damping: ArrayLike
) -> Appendages:
    """Make point masses on springs along axes of the body: the first modes of fuel in tanks.

    They are not part of the body, and may move by any distance. F. T. Dodge, The New "Dynamic
    Behavior of Liquids in Moving Containers", SwRI, 2000, has mass and stiffness for a tank;
    Basilisk's linearSpringMassDamper is the same model.

    Args:
        mass: [kg], (n,), positive.
        position: of the relaxed spring, from the body's centre of mass, body axes [m], (n, 3).
        axis: unit vectors, body axes, (n, 3).
        stiffness: [N/m], (n,), not negative.
        damping: [N s/m], (n,), not negative.

    Examples:
        >>> one, axis = jnp.ones(1), jnp.array([[1.0, 0.0, 0.0]])
        >>> tank = jq.dynamics.slosh_masses(20.0 * one, 0.5 * axis, axis, 5.0 * one, 0.2 * one)
    """
    mass = _column("mass", mass, positive)
    rows = (*mass.shape, 3)
    position, axis = constant_of("position", position, rows), constant_of("axis", axis, rows)
    unit_vector("axis", axis)
    moved = mass[:, None] * axis
    stiffness = _column("stiffness", stiffness, not_negative, mass)
    damping = _column("damping", damping, not_negative, mass)
    return Appendages(mass, moved, cross(position, moved), stiffness, damping, mass, position)


def flexible_modes(
    frequency: ArrayLike, ratio: ArrayLike, translation: ArrayLike, rotation: ArrayLike
) -> Appendages:
    """Make modes of flexible panels or booms clamped to the body: hybrid coordinates.

    The body includes the undeformed appendages. The modes have unit mass, so a displacement x is in
    [m sqrt(kg)], and the participations l and d are the rows of the matrices that finite-element
    programs print: ``x'' + 2 z w x' + w^2 x = -l . a - d . omega'`` (P. W. Likins, Dynamics and
    Control of Flexible Space Vehicles, JPL TR 32-1329, 1970). They shift the first moment of mass
    by ``sum l x``, but not the inertia, so x must be small.

    Args:
        frequency: w [rad/s], (n,), positive.
        ratio: z, of the damping to the critical, (n,), not negative.
        translation: l, body axes [sqrt(kg)], (n, 3). The body's mass minus ``sum l l^T`` must stay
            positive definite, as it does for modes of a part of the body.
        rotation: d, about the centre of mass, body axes [m sqrt(kg)], (n, 3), likewise with the
            inertia.

    Examples:
        >>> l, d = jnp.array([[0.0, 0.0, 2.0]]), jnp.array([[6.0, 0.0, 0.0]])
        >>> panel = jq.dynamics.flexible_modes(jnp.array([0.5]), jnp.array([0.01]), l, d)
    """
    frequency = _column("frequency", frequency, positive)
    ratio = _column("ratio", ratio, not_negative, frequency)
    rows = (*frequency.shape, 3)
    translation = constant_of("translation", translation, rows)
    rotation = constant_of("rotation", rotation, rows)
    one, none = jnp.ones_like(frequency), jnp.zeros_like(frequency)
    damping = 2.0 * ratio * frequency
    return Appendages(
        one, translation, rotation, frequency**2, damping, none, jnp.zeros_like(translation)
    )


def coupled(
    body: Body,
    appendages: Appendages,
    state: State,
    displacement: ArrayLike,
    rate: ArrayLike,
    acting: ArrayLike | Wrench,
) -> tuple[Any, Array]:
    """Return the net torque or wrench on the body and the accelerations x'' (n,) of its appendages.

    Keep displacements and rates in ``State.aux``::

        def torque(t, state, params):
            x, rate = state.aux["panels"]
            tau, acceleration = dynamics.coupled(body, panels, state, x, rate, motors(t))
            return tau, {"panels": (rate, acceleration)}

    The position of the state is that of the body alone, without slosh masses. A body without
    position turns about a fixed point, from which positions and rotations then count, so give a
    free spacecraft a position. Add uniform gravity and ``forces.point_mass`` outside, by
    ``torques.total``: they accelerate body and appendages alike. Everything else belongs in
    ``acting``.

    Args:
        body: with a mass if the state has a position; the result is then a ``Wrench``.
        appendages: n of them; differentiable.
        state: of one body.
        displacement: x, (n,) [m], or [m sqrt(kg)] of modes.
        rate: x', (n,).
        acting: the torque (3,) in body axes [N m] or the ``Wrench`` of all other causes.

    Examples:
        >>> one, axis = jnp.ones(1), jnp.array([[1.0, 0.0, 0.0]])
        >>> tank = jq.dynamics.slosh_masses(one, axis, axis, one, 0.0 * one)
        >>> jq.dynamics.coupled(body, tank, state, 0.3 * one, 0.0 * one, jnp.zeros(3))[1].round(1)
        Array([4.9], dtype=float32)
    """
    instance("body", body, Body, "a jq.Body")
    appendages = checked_record(
        "appendages", appendages, Appendages, _FIELDS, "jq.dynamics.Appendages"
    )
    state, n = one_body("state", state), appendages.mass.shape
    x, rate = exactly("displacement", displacement, n), exactly("rate", rate, n)
    tau, _, force = check_parts("acting", acting, state._replace(aux=()))
    if state.position is not None and body.mass is None:
        raise ValueError("body: wanted a mass because the state has a position, got none")
    if force is not None:
        force = quaternion.rotate_inverse(state.q, force)
    appendages = Appendages(*(leaf.astype(state.omega.dtype) for leaf in appendages))
    a, alpha, free = _accelerations(body, appendages, state, x, rate, tau, force)
    coupling = matvec(appendages.translation, a) + matvec(appendages.rotation, alpha)
    acceleration = free - coupling / appendages.mass
    inertia, omega = body.inertia, state.omega
    tau = matvec(inertia, alpha) + cross(omega, matvec(inertia, omega))
    if state.position is None:
        return tau, acceleration
    return Wrench(tau, body.mass * quaternion.rotate(state.q, a)), acceleration


_VECTORS = ("translation", "rotation", "position")
_FIELDS = {x: Field([("n", 3) if x in _VECTORS else ("n",)]) for x in Appendages._fields}


def _accelerations(
    body: Body,
    appendages: Appendages,
    state: State,
    x: Array,
    rate: Array,
    tau: Array,
    force: Array | None,
) -> tuple[Array, Array, Array]:
    """Return a and alpha = omega', by elimination of a, and x'' (n,) without them, in body axes.

    Lagrange's equations without x'', with ``by_mass = sum l l^T/m`` and inertia less d d^T/m::

        (total - by_mass) a + coupling alpha = pull
        coupling^T a + inertia alpha = torque

    The force is in body axes, and None is 0.
    """
    omega = state.omega
    mass, l, d, stiffness, damping, added, position = appendages
    turn = omega[None]  # a row, for vectors of all appendages
    where, velocity = position + (x / mass)[:, None] * l, (rate / mass)[:, None] * l
    turned = cross(turn, cross(turn, where) + 2.0 * velocity)  # accelerations in turning axes
    free = (-stiffness * x - damping * rate - added / mass * dot(l, turned)) / mass
    d_by_mass, l_by_mass = d / mass[:, None], l / mass[:, None]
    hats = so3.hat(where)
    inertia = body.inertia - matmul(transpose(d), d_by_mass)
    inertia = inertia + jnp.sum(added[:, None, None] * matmul(transpose(hats), hats), axis=0)
    # A sliding mass has its angular momentum d x' in ``turned``; a mode has it here.
    of_modes = matvec(transpose(d), (1.0 - added / mass) * rate)
    torque = tau - matvec(transpose(cross(where, turned)), added) - matvec(transpose(d), free)
    torque = torque - cross(omega, matvec(body.inertia, omega) + of_modes)
    first_moment = matvec(transpose(where), mass)
    coupling = -so3.hat(first_moment) - matmul(transpose(l), d_by_mass)
    pull = -matvec(transpose(l), free) - matvec(transpose(turned), mass)
    pull = pull if force is None else pull + force
    if state.position is None:
        alpha = matvec(inverse_inertia(inertia), torque)
        return jnp.zeros_like(alpha), alpha, free
    total = (body.mass + jnp.sum(added)) * jnp.eye(3, dtype=omega.dtype)
    inverted = inverse_inertia(total - matmul(transpose(l), l_by_mass))
    back = matmul(transpose(coupling), inverted)
    reduced = inverse_inertia(inertia - matmul(back, coupling))
    alpha = matvec(reduced, torque - matvec(back, pull))
    return matvec(inverted, pull - matvec(coupling, alpha)), alpha, free


def _column(name: str, value: ArrayLike, check: Any, like: Array | None = None) -> Array:
    value = vector(name, value) if like is None else exactly(name, value, like.shape)
    check(name, value)
    return value

"""Control moment gyros: rotors of constant momentum whose axes gimbals turn."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal.checks import (
    every,
    exactly,
    from_aux,
    is_concrete,
    normal_vectors,
    not_negative,
    one_shape,
    unit_vector,
)
from jaxquat._internal.linear import (
    cross,
    dot,
    inverse,
    matmul,
    matvec,
    stacked,
    transpose,
)
from jaxquat.actuators.actuation import axes_rows
from jaxquat.dynamics.state import State, broadcastable


def cmg_torque(
    gimbals: ArrayLike,
    rotors: ArrayLike,
    momentum: ArrayLike,
    state: State,
    angle: ArrayLike,
    rate: ArrayLike,
) -> Array:
    """Torque of n control moment gyros on the body, ``-sum h (x' t + omega × s)``. -> (3,) [N m].

    A gimbal turns the rotor's axis s by the angle x about its own axis g, towards ``t = g × s``.
    The momentum h of the rotor relative to the body is constant, and the body includes gyros: with
    the momentum ``h s`` of all, the total is then conserved. Keep the angles in ``State.aux``, with
    the gimbals' rates. A gimbal of inertia J is, besides, a wheel of momentum ``J x'`` for
    ``wheel_torque``. B. Wie, Space Vehicle Dynamics and Control, 2nd edition, 2008, chapter 7.

    Args:
        gimbals: g, unit vectors, body axes, (n, 3).
        rotors: s at angle 0, unit vectors normal to the gimbals, (n, 3).
        momentum: h [N m s], () or (n,).
        state: of the body.
        angle: x [rad], (n,).
        rate: x' [rad/s], (n,).

    Examples:
        >>> g, s = jnp.array([[0.0, 0.0, 1.0]]), jnp.array([[1.0, 0.0, 0.0]])
        >>> still = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
        >>> tau = jq.actuators.cmg_torque(g, s, 50.0, still, jnp.zeros(1), jnp.array([0.1]))
        >>> f"{tau[1]:.1f} N m about y"  # h x'
        '-5.0 N m about y'
    """
    h, s, t = _turned(gimbals, rotors, momentum, angle)
    rate = exactly("rate", rate, h.shape)
    state = broadcastable("state", state)
    whole = matvec(transpose(h[:, None] * s), jnp.ones_like(rate))
    return -matvec(transpose(h[:, None] * t), rate) - cross(state.omega, whole)


def steer_cmgs(
    gimbals: ArrayLike,
    rotors: ArrayLike,
    momentum: ArrayLike,
    angle: ArrayLike,
    tau: ArrayLike,
    robustness: ArrayLike = 0.01,
    dither: ArrayLike | tuple[float, float, float] = (0.05, 0.1, -0.15),
) -> Array:
    """Rates of gimbals (n,) [rad/s] for a torque, which also leave singular angles.

    With H^2 the sum of h^2 and the matrix A whose columns are ``h t/H``, it is
    ``-A^T (A A^T + r E)^-1 tau/H`` with ``r = robustness exp(-270 det(A A^T))``; the determinant is
    at most 1/27. E has 1 on its diagonal and the ``dither`` beside it. This is the generalised
    singularity robust inverse of B. Wie, D. Bailey and C. Heiberg, Journal of Guidance 24(5), 2001,
    after N. S. Bedrossian et al., Journal of Guidance 13(6), 1990, who have no dither. Far from
    singular angles the torque is nearly tau: of four gyros in a pyramid the median error at random
    angles is below 0.1 %, at a tenth of them it exceeds 5 %. At singular angles no rates give a
    torque along the singular direction. Without dither the gimbals then stand still; with it they
    turn by null motion and by small torques across tau until they can give it. That takes a time
    proportional to h/|tau|, so small torques take long: four gyros in a pyramid of 45 degrees, at
    (-90, 0, 90, 0) degrees, give half the torque after 6 s at |tau|/h = 0.14 rad/s and after
    10 minutes at 0.0014 rad/s. One or two gyros are singular at all angles.

    Add ``omega × sum h s`` to the torque that the body needs, or let the feedback do so.

    Args:
        gimbals: g, unit vectors, body axes, (n, 3).
        rotors: s at angle 0, unit vectors normal to the gimbals, (n, 3).
        momentum: h [N m s], () or (n,), not all 0.
        angle: x [rad], (n,).
        tau: the torque on the body [N m], (3,).
        robustness: not negative. 0 is the exact inverse, whose rates mean nothing at singular
            angles; those of less than about 1e3 units of rounding are no better.
        dither: below 1/2 in size, () or (3,) for the elements yz, xz and xy of E. Of 252 singular
            states of that pyramid, all those inside of the envelope along directions with the
            components -1, 0 and 1, the default left 250 within ``4 h/|tau|`` (40 s at 0.1 rad/s),
            equal elements of 0.1 left about 200, and without dither rounding freed fewer than
            ten. Wie et al. vary it as ``0.01 sin(pi t/2 + phase)``, which takes longer to leave.

    Examples:
        >>> s = jnp.roll(jnp.eye(3), 1, axis=0)
        >>> tau, zero = jnp.array([0.0, 0.0, 2.0]), jnp.zeros(3)
        >>> rate = jq.actuators.steer_cmgs(jnp.eye(3), s, 10.0, zero, tau, 0.0)
        >>> still = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), zero)
        >>> jq.actuators.cmg_torque(jnp.eye(3), s, 10.0, still, zero, rate)[2].round(3)  # N m
        Array(2., dtype=float32)
    """
    tau = exactly("tau", tau, (3,))
    robustness = exactly("robustness", robustness, ())
    not_negative("robustness", robustness)
    dither = one_shape("dither", dither, (), (3,))
    if is_concrete(dither):
        size = np.abs(np.asarray(dither))
        every("dither", "values between -1/2 and 1/2", dither, size < 0.5)
    h, _, t = _turned(gimbals, rotors, momentum, angle)
    if is_concrete(momentum):
        every("momentum", "a momentum other than 0", momentum, np.any(np.asarray(momentum)))
    unit = lax.stop_gradient(jnp.max(jnp.abs(h)))  # else its square would be out of range
    h = h / unit
    size = jnp.sqrt(dot(h, h))
    a = (h / size)[:, None] * t
    gram = matmul(transpose(a), a)
    volume = dot(gram[0], cross(gram[1], gram[2]))
    (x, y, z), one = jnp.broadcast_to(dither, 3).astype(a.dtype), jnp.ones((), a.dtype)
    shift = stacked([[one, z, y], [z, one, x], [y, x, one]])
    gram = gram + robustness * jnp.exp(-270.0 * volume) * shift
    return -matvec(a, matvec(inverse(gram), tau / unit)) / size


def _turned(
    gimbals: ArrayLike, rotors: ArrayLike, momentum: ArrayLike, angle: ArrayLike
) -> tuple[Array, Array, Array]:
    """Momenta (n,), the axes of the rotors (n, 3), and the directions to which they turn."""
    gimbals = axes_rows("gimbals", gimbals)
    n, rotors = gimbals.shape[:1], exactly("rotors", rotors, gimbals.shape)
    unit_vector("gimbals", gimbals)
    normal_vectors("rotors", rotors, gimbals)
    h = jnp.broadcast_to(one_shape("momentum", momentum, (), n), n)
    from_aux("angle", angle)
    angle, across = exactly("angle", angle, n)[:, None], cross(gimbals, rotors)
    s = jnp.cos(angle) * rotors + jnp.sin(angle) * across
    return h, s, jnp.cos(angle) * across - jnp.sin(angle) * rotors

"""Thrusters that can only push: the least total thrust for a torque, exact by enumeration.

An optimum of a linear program with three equations has all thrusters but three, the basis, off or
at their limit. The few triples are all tried at once: a static program for ``jit`` and ``vmap``.
The choice has no derivative; the forces of the chosen basis, computed from arms, torque and limits,
have those on their side of a change of basis. First, a torque that no forces give is replaced by
the nearest one on the cone of the arms: on the plane of two arms, or on one. The limits reduce it
to the largest multiple in their zonotope, whose faces are parallel to two arms each. Three added
thrusters of limit 0 along the axes make the rank three.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat._internal.checks import (
    broadcast,
    every,
    exactly,
    is_concrete,
    not_negative,
    one_shape,
    positive,
)
from jaxquat._internal.linear import cross, dot, matmul, matvec, scale_of, square, transpose
from jaxquat.actuators.actuation import axes_rows


def allocate_thrusters(arms: ArrayLike, tau: ArrayLike, limits: ArrayLike | None = None) -> Array:
    """Return the nonnegative forces of least sum whose torque is tau. -> (n,) [N].

    If no forces give tau, they give the torque nearest to it. A torque beyond the limits is scaled
    down just enough to meet them, so that it keeps its direction. Compare ``forces @ arms`` with
    tau to detect either case. All bases of the linear program, about ``(n + 3)^3/6``, are tried at
    once. The result is exact, and differentiable except where the basis changes.

    Args:
        arms: torque of each thruster at unit force [m], (n, 3): ``jnp.cross(positions,
            directions)`` in body axes, with positions [m] from the centre of mass and unit vectors
            along the forces. Three arms that lie in one plane to within ten units of rounding count
            as coplanar.
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
    return _allocated(arms, tau, limits)


def pulse_widths(
    forces: ArrayLike, thrust: ArrayLike, interval: ArrayLike, minimum: ArrayLike = 0.0
) -> Array:
    """Return how long to open on-off thrusters in an interval for mean forces. -> (...) [s].

    The width is ``interval * force/thrust``, at most the interval, and 0 below ``minimum``.
    ``schemes.split_steps`` steps to the ends of the pulses.

    Args:
        forces: mean forces [N], (...), as from ``allocate_thrusters``; negative ones count as 0.
        thrust: of the open thruster [N], positive; like the others () or broadcast with forces.
        interval: from one command to the next [s], positive.
        minimum: shortest pulse [s], such as a valve's least on-time, from 0 to the interval.

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


@jax.jit
def _allocated(arms: Array, tau: Array, limits: Array | None) -> Array:
    """Return the forces (n,) of least sum, with arms (n, 3), for the torque tau (3,)."""
    n = len(arms)
    finite = jnp.all(jnp.isfinite(arms)) & jnp.all(jnp.isfinite(tau))
    length, force = _unit(arms), _unit(tau)
    arms, tau = arms / length, tau / force
    # Slightly different costs decide between equally good thrusters.
    spread = float(jnp.finfo(tau.dtype).eps) ** 0.5
    costs = jnp.asarray(1.0 + spread * np.random.default_rng(0).random(n), tau.dtype)
    nearest = _nearest(arms, tau, costs)
    back = jnp.where(finite, force, jnp.nan)  # restores a NaN, which comparisons lose
    if limits is None:
        return nearest * back / length
    limits = jnp.broadcast_to(limits * length / force, (n,))
    torque = matvec(transpose(arms), nearest)
    return _within(arms, _share(arms, torque, limits) * torque, limits, costs) * back / length


def _unit(value: Array) -> Array:
    """Return the power of two next to the largest entry, by which products are exact."""
    size = jnp.max(jnp.abs(lax.stop_gradient(value)))
    unit = lax.reduce_precision(size, jnp.finfo(size.dtype).nexp, 0)
    return jnp.where((unit > 0) & jnp.isfinite(unit), unit, 1.0)


def _nearest(arms: Array, tau: Array, costs: Array) -> Array:
    """Return the cheapest forces, without limits, whose torque is nearest to tau."""
    n = len(arms)
    sets = [c for k in (1, 2, 3) for c in itertools.combinations(range(n), k)]
    sizes = np.array([len(chosen) for chosen in sets])
    index = np.array([chosen + (n,) * (3 - len(chosen)) for chosen in sets])  # n: no thruster
    fixed_arms, target = lax.stop_gradient((arms, tau))
    none = jnp.zeros((1, 3), arms.dtype)
    rows, prices = jnp.concatenate([fixed_arms, none])[index], jnp.append(costs, none[0, 0])[index]
    forces = _solved(rows, sizes, target)
    torques = jnp.einsum("cki,ck->ci", rows, forces)
    best = _best(torques, jnp.sum(prices * forces, axis=1), target)
    members = np.eye(n + 1)[index][:, :, :n]
    chosen = jnp.einsum("c,ckn->kn", best, jnp.asarray(members, arms.dtype))
    forces = _solved(matmul(chosen, arms)[None], jnp.sum(chosen > 0)[None], tau)[0]
    return matvec(transpose(chosen), forces)


def _solved(rows: Array, sizes: Array | np.ndarray, tau: Array) -> Array:
    """Return least-squares forces (c, 3) of the first one to three rows, 0 where negative."""
    a, b, c = rows[:, 0], rows[:, 1], rows[:, 2]
    is_pair, is_single = jnp.asarray(sizes < 3)[:, None], jnp.asarray(sizes < 2)[:, None]
    # A single arm is completed by two vectors across it, a pair by the normal of its plane.
    size = jnp.abs(lax.stop_gradient(a))
    least = jnp.min(size, axis=-1, keepdims=True)
    axis = (size == least).astype(a.dtype) * jnp.asarray([[4.0, 2.0, 1.0]], a.dtype)
    b = jnp.where(is_single, cross(a, axis), b)
    c = jnp.where(is_pair, cross(a, b), c)
    forces = _quotients(jnp.stack([a, b, c], axis=1), tau)
    keep = jnp.arange(3)[None] < jnp.asarray(sizes)[:, None]
    return jnp.where(keep & (forces > 0), forces, 0.0)


def _quotients(rows: Array, tau: Array) -> Array:
    """Return f (..., 3) with ``f @ rows = tau``, 0 where the rows (..., 3, 3) are coplanar."""
    a, b, c = rows[..., 0, :], rows[..., 1, :], rows[..., 2, :]
    volume = dot(a, cross(b, c))
    size = jnp.sqrt(square(a) * square(b) * square(c))
    spans = jnp.abs(volume) > 10 * jnp.finfo(tau.dtype).eps * size
    volume = jnp.where(spans, volume, 1.0)
    tau = jnp.broadcast_to(tau, a.shape)
    parts = [dot(tau, cross(b, c)), dot(tau, cross(c, a)), dot(tau, cross(a, b))]
    return jnp.stack([jnp.where(spans, part / volume, 0.0) for part in parts], axis=-1)


def _best(torques: Array, prices: Array, tau: Array) -> Array:
    """Return one-hot (c,) the cheapest candidate of those whose torques are nearest to tau."""
    errors = jnp.sqrt(square(torques - tau[None]))
    tolerance = 100 * jnp.finfo(tau.dtype).eps * jnp.sqrt(square(tau))
    # Compare with the nearest torque, not by the distance to tau, which hardly changes around it.
    nearest = torques[jnp.argmin(errors)]
    near = jnp.sqrt(square(torques - nearest[None])) <= tolerance
    cheapest = jnp.argmin(jnp.where(near, prices, jnp.inf))
    return (jnp.arange(len(prices)) == cheapest).astype(tau.dtype)


def _share(arms: Array, torque: Array, limits: Array) -> Array:
    """Return the largest s <= 1 for which forces within the limits give s times the torque."""
    every = jnp.concatenate([arms, jnp.eye(3, dtype=arms.dtype)])
    i, j = np.triu_indices(len(every), 1)
    normals = cross(every[i], every[j])
    normals = jnp.concatenate([normals, -normals])
    reach = jnp.maximum(jnp.einsum("ci,ni->cn", normals, arms), 0.0)
    limited, eps = jnp.isfinite(limits), jnp.finfo(arms.dtype).eps
    support = jnp.einsum("cn,n->c", reach, jnp.where(limited, limits, 0.0))
    size = jnp.sqrt(square(normals))
    lengths = jnp.sqrt(square(arms))
    through = reach > 100 * eps * size[:, None] * lengths[None]  # otherwise along the face
    along = matvec(normals, torque)
    bounds = along > 100 * eps * size * jnp.sqrt(square(torque))
    bounds &= ~jnp.any(through & ~limited[None], axis=1)
    return jnp.minimum(
        1.0, jnp.min(jnp.where(bounds, support / jnp.where(bounds, along, 1.0), jnp.inf))
    )


def _within(arms: Array, torque: Array, limits: Array, costs: Array) -> Array:
    """Return the cheapest forces within limits; where ``arm . y > cost`` they are at the limit."""
    n = len(arms)
    index = np.array(list(itertools.combinations(range(n + 3), 3)))
    members = np.eye(n + 3)[index]
    limited = jnp.isfinite(limits)
    limits = jnp.where(limited, limits, 1e6)
    fixed_arms, room, target = lax.stop_gradient((arms, limits, torque))
    axes, none = jnp.eye(3, dtype=arms.dtype), jnp.zeros(3, arms.dtype)
    rows = jnp.concatenate([fixed_arms, axes])[index]
    prices = jnp.concatenate([costs, none])[index]
    y = _quotients(transpose(rows), prices)
    worth = jnp.einsum("ci,ni->cn", y, fixed_arms) > costs[None]
    outside = jnp.asarray(1.0 - members[:, :, :n].sum(axis=1), arms.dtype)
    full = jnp.where(worth & limited[None], outside, 0.0)
    at_limit = full * room[None]
    remaining = target[None] - jnp.einsum("cn,ni->ci", at_limit, fixed_arms)
    basic = jnp.clip(_quotients(rows, remaining), 0.0, jnp.concatenate([room, none])[index])
    torques = jnp.einsum("cki,ck->ci", rows, basic) + target[None] - remaining
    spent = jnp.sum(prices * basic, axis=1) + jnp.einsum("cn,n->c", at_limit, costs)
    best = _best(torques, spent, target)

    chosen = jnp.einsum("c,ckn->kn", best, jnp.asarray(members, arms.dtype))
    at_limit = jnp.einsum("c,cn->n", best, full) * limits
    rows, room = matmul(chosen, jnp.concatenate([arms, axes])), matvec(chosen[:, :n], limits)
    remaining = torque - matvec(transpose(arms), at_limit)
    basic = lax.stop_gradient(_quotients(rows, remaining))
    # If rounding takes one of the three beyond a bound, the others give the nearest torque.
    stuck = (basic <= 0) | (basic >= room)
    bound = jnp.where(stuck & (basic > 0), room, 0.0)
    turn = jnp.eye(3, dtype=arms.dtype)[jnp.argsort(stuck)]  # free thrusters come first
    remaining = remaining - matvec(transpose(rows), bound)
    free = _solved(matmul(turn, rows)[None], jnp.sum(~stuck)[None], remaining)[0]
    basic = bound + matvec(transpose(turn), free)
    return jnp.clip(matvec(transpose(chosen), basic)[:n] + at_limit, 0.0, limits)

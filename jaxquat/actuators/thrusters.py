"""Thrusters that can only push: the least total thrust for a torque, exact by enumeration.

A linear program with three equations has an optimum in which all thrusters except three (the basis)
are off or at their limit. There are few such triples, so all are tried at once: a static program
for ``jit`` and ``vmap``. The choice has no derivative; the forces of the chosen basis are then
computed from arms, torque and limits, which gives the derivatives on both sides of a change of
basis.

A torque that no forces give is first replaced by the nearest one on the cone of the arms: the
projection on the plane of two arms, or on one arm. The limits then reduce it to the largest
multiple that they allow: the torques within the limits are a zonotope, and each of its faces is
parallel to two arms. Three added thrusters of limit 0 along the axes make the rank of any arms
three.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxquat._internal.linear import cross, dot, matmul, matvec, square, transpose


@jax.jit
def allocated(arms: Array, tau: Array, limits: Array | None) -> Array:
    """The forces (n,) of least sum, with arms (n, 3), for the torque tau (3,) or the nearest."""
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
    """A power of two next to the largest entry: dividing and multiplying by it is exact."""
    size = jnp.max(jnp.abs(lax.stop_gradient(value)))
    unit = lax.reduce_precision(size, jnp.finfo(size.dtype).nexp, 0)
    return jnp.where((unit > 0) & jnp.isfinite(unit), unit, 1.0)


def _nearest(arms: Array, tau: Array, costs: Array) -> Array:
    """The cheapest forces, without limits, whose torque is nearest to tau."""
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
    """Least-squares forces (c, 3) of the first one to three rows, 0 where one is negative."""
    a, b, c = rows[:, 0], rows[:, 1], rows[:, 2]
    is_pair, is_single = jnp.asarray(sizes < 3)[:, None], jnp.asarray(sizes < 2)[:, None]
    # A single arm is completed by two vectors across it, a pair by the normal of its plane.
    size = jnp.abs(lax.stop_gradient(a))
    least = jnp.min(size, axis=-1, keepdims=True)
    axis = (size == least).astype(a.dtype) * jnp.asarray([[4.0, 2.0, 1.0]], a.dtype)
    b = jnp.where(is_single, cross(a, axis), b)
    c = jnp.where(is_pair, cross(a, b), c)
    forces = _quotients(a, b, c, tau)
    keep = jnp.arange(3)[None] < jnp.asarray(sizes)[:, None]
    return jnp.where(keep & (forces > 0), forces, 0.0)


def _quotients(a: Array, b: Array, c: Array, tau: Array) -> Array:
    """The f (..., 3) with ``a f0 + b f1 + c f2 = tau``, 0 where a, b, c are coplanar."""
    volume = dot(a, cross(b, c))
    size = jnp.sqrt(square(a) * square(b) * square(c))
    spans = jnp.abs(volume) > 10 * jnp.finfo(tau.dtype).eps * size
    tau = jnp.broadcast_to(tau, a.shape)
    parts = [dot(tau, cross(b, c)), dot(tau, cross(c, a)), dot(tau, cross(a, b))]
    return jnp.where(
        spans[..., None], jnp.stack(parts, -1) / jnp.where(spans, volume, 1.0)[..., None], 0.0
    )


def _best(torques: Array, prices: Array, tau: Array) -> Array:
    """One-hot (c,): the cheapest of the candidates whose torques (c, 3) are nearest to tau."""
    errors = jnp.sqrt(square(torques - tau[None]))
    tolerance = 100 * jnp.finfo(tau.dtype).eps * jnp.sqrt(square(tau))
    # Compare with the nearest torque, not by the distance to tau, which hardly changes around it.
    nearest = torques[jnp.argmin(errors)]
    near = jnp.sqrt(square(torques - nearest[None])) <= tolerance
    cheapest = jnp.argmin(jnp.where(near, prices, jnp.inf))
    return (jnp.arange(len(prices)) == cheapest).astype(tau.dtype)


def _share(arms: Array, torque: Array, limits: Array) -> Array:
    """The largest s <= 1 for which forces within the limits give s times the torque."""
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
    """The cheapest forces within the limits for a torque that they can give.

    At the optimum a price y of torque gives ``arm . y = cost`` for the three arms of the basis.
    Thrusters with ``arm . y > cost`` are at their limits, the others are off.
    """
    n = len(arms)
    index = np.array(list(itertools.combinations(range(n + 3), 3)))
    members = np.eye(n + 3)[index]
    limited = jnp.isfinite(limits)
    limits = jnp.where(limited, limits, 1e6)
    fixed_arms, room, target = lax.stop_gradient((arms, limits, torque))
    axes, none = jnp.eye(3, dtype=arms.dtype), jnp.zeros(3, arms.dtype)
    rows = jnp.concatenate([fixed_arms, axes])[index]
    a, b, c = rows[:, 0], rows[:, 1], rows[:, 2]
    prices = jnp.concatenate([costs, none])[index]
    y = _quotients(rows[:, :, 0], rows[:, :, 1], rows[:, :, 2], prices)
    worth = jnp.einsum("ci,ni->cn", y, fixed_arms) > costs[None]
    outside = jnp.asarray(1.0 - members[:, :, :n].sum(axis=1), arms.dtype)
    full = jnp.where(worth & limited[None], outside, 0.0)
    at_limit = full * room[None]
    remaining = target[None] - jnp.einsum("cn,ni->ci", at_limit, fixed_arms)
    basic = jnp.clip(_quotients(a, b, c, remaining), 0.0, jnp.concatenate([room, none])[index])
    torques = jnp.einsum("cki,ck->ci", rows, basic) + target[None] - remaining
    spent = jnp.sum(prices * basic, axis=1) + jnp.einsum("cn,n->c", at_limit, costs)
    best = _best(torques, spent, target)

    chosen = jnp.einsum("c,ckn->kn", best, jnp.asarray(members, arms.dtype))
    at_limit = jnp.einsum("c,cn->n", best, full) * limits
    rows, room = matmul(chosen, jnp.concatenate([arms, axes])), matvec(chosen[:, :n], limits)
    remaining = torque - matvec(transpose(arms), at_limit)
    basic = lax.stop_gradient(_quotients(rows[0], rows[1], rows[2], remaining))
    # If rounding takes one of the three beyond a bound, the others give the nearest torque.
    stuck = (basic <= 0) | (basic >= room)
    bound = jnp.where(stuck & (basic > 0), room, 0.0)
    turn = jnp.eye(3, dtype=arms.dtype)[jnp.argsort(stuck)]  # free thrusters come first
    remaining = remaining - matvec(transpose(rows), bound)
    free = _solved(matmul(turn, rows)[None], jnp.sum(~stuck)[None], remaining)[0]
    basic = bound + matvec(transpose(turn), free)
    return jnp.clip(matvec(transpose(chosen), basic)[:n] + at_limit, 0.0, limits)

"""Thrusters that push only: the least total thrust for a torque, exact by enumeration.

A linear program with three equations has an optimum in which all thrusters but three are off or at
their limit (a basis). There are few such triples, so all are tried at once: a static program for
``jit`` and ``vmap``. Choosing has no derivative; the forces of the chosen basis are then computed
from arms, torque and limits, which gives the derivatives on both sides of a change of basis.

A torque that no forces give is first replaced by the nearest one: on the cone of the arms that is
the projection on the plane of two of them, or on one. Limits then leave the largest multiple of it
that they admit: the torques within the limits are a zonotope, whose faces are parallel to two arms.
Three thrusters of limit 0 along the axes make the rank of any arms three.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxquat._linear import cross, dot, inverse, matvec, square, transpose


@jax.jit
def allocated(arms: Array, tau: Array, limits: Array | None) -> Array:
    """The forces (n,) of least sum for the torque tau (3,), or the nearest, by arms (n, 3)."""
    n = len(arms)
    length, force = _unit(arms), _unit(tau)
    arms, tau = arms / length, tau / force
    # Costs that differ a little decide between thrusters that serve equally well.
    spread = float(jnp.finfo(tau.dtype).eps) ** 0.5
    costs = jnp.asarray(1.0 + spread * np.random.default_rng(0).random(n), tau.dtype)
    nearest = _nearest(arms, tau, costs)
    if limits is None:
        return nearest * force / length
    limits = jnp.broadcast_to(limits * length / force, (n,))
    torque = matvec(transpose(arms), nearest)
    return _within(arms, _share(arms, torque, limits) * torque, limits, costs) * force / length


def _unit(value: Array) -> Array:
    """A power of two next to the largest entry, so that division by it and back is exact."""
    size = jnp.max(jnp.abs(lax.stop_gradient(value)))
    unit = lax.reduce_precision(size, jnp.finfo(size.dtype).nexp, 0)
    return jnp.where((unit > 0) & jnp.isfinite(unit), unit, 1.0)


def _nearest(arms: Array, tau: Array, costs: Array) -> Array:
    """Forces without limits whose torque is nearest to tau; of these the cheapest."""
    n = len(arms)
    sets = [c for k in (1, 2, 3) for c in itertools.combinations(range(n), min(k, n)) if k <= n]
    member = np.zeros((len(sets), 3, n))
    for row, chosen in enumerate(sets):
        member[row, range(len(chosen)), chosen] = 1.0
    sizes = np.array([len(chosen) for chosen in sets])
    members, held = jnp.asarray(member, tau.dtype), lax.stop_gradient((arms, tau))
    forces = jnp.einsum("ckn,ck->cn", members, _solved(members, sizes, *held))
    best = _best(forces, *held, costs)
    chosen = jnp.einsum("c,ckn->kn", best, members)
    size = jnp.sum(chosen)
    options = [_solved(chosen[None], np.array([k]), arms, tau)[0] for k in (1, 2, 3)]
    picked = jnp.where(size == 1, options[0], jnp.where(size == 2, options[1], options[2]))
    return matvec(transpose(chosen), picked)


def _solved(members: Array, sizes: np.ndarray, arms: Array, tau: Array) -> Array:
    """Least-squares forces (c, 3) of sets of one to three arms, 0 where one is negative."""
    a, b, c = (jnp.einsum("cn,ni->ci", members[:, k], arms) for k in range(3))
    pair, one = jnp.asarray(sizes < 3)[:, None], jnp.asarray(sizes < 2)[:, None]
    # A single arm is completed by two vectors across it, a pair by the normal of its plane.
    axis = jnp.eye(3, dtype=arms.dtype)[jnp.argmin(jnp.abs(lax.stop_gradient(a)), axis=-1)]
    b = jnp.where(one, cross(a, axis), b)
    c = jnp.where(pair, cross(a, b), c)
    forces = _quotients(a, b, c, tau)
    keep = jnp.asarray(np.arange(3)[None] < sizes[:, None])
    return jnp.where(keep & (forces > 0), forces, 0.0)


def _quotients(a: Array, b: Array, c: Array, tau: Array) -> Array:
    """The f (..., 3) with ``a f0 + b f1 + c f2 = tau``, 0 where a, b, c span no space."""
    volume = dot(a, cross(b, c))
    size = jnp.sqrt(square(a) * square(b) * square(c))
    spans = jnp.abs(volume) > 10 * jnp.finfo(tau.dtype).eps * size
    tau = jnp.broadcast_to(tau, a.shape)
    parts = [dot(tau, cross(b, c)), dot(tau, cross(c, a)), dot(tau, cross(a, b))]
    return jnp.where(
        spans[..., None], jnp.stack(parts, -1) / jnp.where(spans, volume, 1.0)[..., None], 0.0
    )


def _best(forces: Array, arms: Array, tau: Array, costs: Array) -> Array:
    """One-hot (c,): of candidates (c, n) as near to tau as any, the cheapest."""
    off = jnp.einsum("cn,ni->ci", forces, arms) - tau[None]
    errors = jnp.sqrt(square(off))
    tolerance = 100 * jnp.finfo(tau.dtype).eps * jnp.sqrt(square(tau))
    near = errors <= jnp.min(errors) + tolerance
    price = jnp.where(near, jnp.sum(costs[None] * forces, axis=1), jnp.inf)
    return (jnp.arange(len(forces)) == jnp.argmin(price)).astype(tau.dtype)


def _share(arms: Array, torque: Array, limits: Array) -> Array:
    """The largest s <= 1 for which forces within the limits give s times the torque."""
    every = jnp.concatenate([arms, jnp.eye(3, dtype=arms.dtype)])
    i, j = np.triu_indices(len(every), 1)
    normals = cross(every[i], every[j])
    normals = jnp.concatenate([normals, -normals])
    support = jnp.einsum(
        "cn,n->c", jnp.maximum(jnp.einsum("ci,ni->cn", normals, arms), 0.0), limits
    )
    along = matvec(normals, torque)
    eps = jnp.finfo(arms.dtype).eps
    bounds = along > 100 * eps * jnp.sqrt(square(normals) * square(torque))
    return jnp.minimum(
        1.0, jnp.min(jnp.where(bounds, support / jnp.where(bounds, along, 1.0), jnp.inf))
    )


def _within(arms: Array, torque: Array, limits: Array, costs: Array) -> Array:
    """The cheapest forces within the limits for a torque that they can give."""
    n = len(arms)
    members = jnp.asarray(np.eye(n + 3)[list(itertools.combinations(range(n + 3), 3))], arms.dtype)
    zero = jnp.zeros(3, arms.dtype)

    def forces(members: Array, full: Array, arms: Array, torque: Array, limits: Array) -> Array:
        every = jnp.concatenate([arms, jnp.eye(3, dtype=arms.dtype)])
        a, b, c = (jnp.einsum("cn,ni->ci", members[:, k], every) for k in range(3))
        rest = torque[None] - jnp.einsum("cn,ni->ci", full * limits[None], arms)
        basic = jnp.einsum("ckn,ck->cn", members[:, :, :n], _quotients(a, b, c, rest))
        return jnp.clip(basic, 0.0, limits[None]) + full * limits[None]

    held, room, target = lax.stop_gradient((arms, limits, torque))
    every = jnp.concatenate([held, jnp.eye(3, dtype=arms.dtype)])
    rows = jnp.einsum("ckn,ni->cki", members, every)
    prices = jnp.einsum("ckn,n->ck", members, jnp.concatenate([costs, zero]))
    singular = jnp.abs(dot(rows[:, 0], cross(rows[:, 1], rows[:, 2]))) < 1e-30
    duals = matvec(
        inverse(jnp.where(singular[:, None, None], jnp.eye(3, dtype=arms.dtype), rows)), prices
    )
    outside = 1.0 - jnp.sum(members[:, :, :n], axis=1)
    worth = jnp.einsum("ci,ni->cn", duals, held) > costs[None]
    full = jnp.where(worth & jnp.isfinite(room)[None], outside, 0.0)
    room = jnp.where(jnp.isfinite(room), room, 1e6)
    best = _best(forces(members, full, held, target, room), held, target, costs)
    chosen, status = jnp.einsum("c,ckn->kn", best, members), jnp.einsum("c,cn->n", best, full)
    limits = jnp.where(jnp.isfinite(limits), limits, 1e6)
    return forces(chosen[None], status[None], arms, torque, limits)[0]

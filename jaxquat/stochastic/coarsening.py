"""The same noise in longer steps: the normals of two steps become those of one of both lengths."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import finite, floating, instance, positive, scalar
from jaxquat._internal.linear import matmul, matvec, transpose
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.units import own_units
from jaxquat.schemes.relaxation import inverse_by_rows
from jaxquat.schemes.scheme import Scheme
from jaxquat.stochastic.langevin import Brownian, Thermal
from jaxquat.stochastic.ornstein_uhlenbeck import ornstein_uhlenbeck


def coarsen(scheme: Scheme, body: Body, noise: ArrayLike, dt: ArrayLike) -> Array:
    """Return the noise (k, n) of steps of ``2 dt`` that move a body like the given steps of ``dt``.

    Each row is made of two rows of ``noise``, and is standard normal if they are. For ``brownian``
    it is their sum over sqrt(2). For ``langevin`` a step from rest with it, without load and
    gyroscopic term, ends at the rate and velocity of both, and at the sums of their turns and
    displacements. The difference of the paths is then the error of the step, without that of
    sampling (M. B. Giles, Oper. Res. 56(3), 2008, 607-617).

    Args:
        scheme: ``langevin(...)`` or ``brownian(...)``. Its temperature has no effect.
        body: the body, for its inertia. The result has its dtype.
        noise: (2 k, n), the finite normals of 2 k steps, n = ``scheme.noise(state)``.
        dt: the length of one of these steps [s], (), positive.

    Examples:
        >>> body = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5]))  # kg m^2
        >>> scheme = jq.stochastic.langevin(jq.no_squish, jnp.array(0.4), 1e-2)
        >>> coarse = jq.stochastic.coarsen(scheme, body, jnp.ones((100, 6)), 0.1)
    """
    step = scheme.step if isinstance(scheme, Scheme) else scheme
    if not isinstance(step, Thermal):
        wanted = "stochastic.langevin(...) or stochastic.brownian(...)"
        raise TypeError(f"scheme: wanted {wanted}, got {getattr(scheme, 'name', scheme)!r}")
    body, scales = own_units(instance("body", body, Body, "a jq.Body"))
    rows = floating("noise", noise)
    moves = step.fluid.resistance is not None
    count = step.normals * (2 if moves else 1)
    if rows.ndim != 2 or len(rows) % 2 or rows.shape[1] != count:
        raise ValueError(f"noise: wanted shape (2 k, {count}), got {rows.shape}")
    finite("noise", rows)
    dt = scalar("dt", dt)
    positive("dt", dt)
    rows, dt = rows.astype(body.inertia.dtype), dt.astype(body.inertia.dtype)
    if isinstance(step, Brownian):
        return (rows[0::2] + rows[1::2]) * 0.5**0.5
    unit = jnp.eye(3, dtype=dt.dtype)
    motions = [(body.inertia, scales.torque * step.fluid.damping)]
    if moves:
        if body.mass is None:
            raise ValueError("body: wanted one with a mass because there is a resistance, got none")
        motions.append((body.mass * unit, scales.force * step.fluid.resistance))
    parts = jnp.split(rows, len(motions), axis=1)
    pairs = zip(motions, parts, strict=True)
    return jnp.concatenate([_coarsened(*motion, part, dt) for motion, part in pairs], axis=1)


def _coarsened(inertia: Array, damping: Array, rows: Array, dt: Array) -> Array:
    """Return the noise (k, 6) of steps ``2 dt`` of rate and turn, or velocity and displacement."""
    first, second = rows[0::2], rows[1::2]
    back = inverse_by_rows(jnp.linalg.cholesky(inertia))
    drag = matmul(matmul(back, damping), transpose(back))
    unit = jnp.eye(3, dtype=dt.dtype)  # the inertia of the rates u, whose roots are triangular
    step_of = jax.vmap(lambda dt: ornstein_uhlenbeck(unit, drag, jnp.ones_like(dt), dt))
    both = step_of(jnp.stack([dt, 2.0 * dt]))  # compiles in half the time of two calls
    half, whole = (jax.tree.map(lambda matrices, k=k: matrices[k], both) for k in range(2))
    between = matvec(half.rate_of_x, first[:, :3])
    rate = between + matvec(half.change, between) + matvec(half.rate_of_x, second[:, :3])
    turn = matvec(half.turn, between) + matvec(half.turn_of_x, first[:, :3] + second[:, :3])
    turn = turn + matvec(half.turn_of_y, first[:, 3:] + second[:, 3:])
    x = matvec(inverse_by_rows(whole.rate_of_x), rate)
    y = matvec(inverse_by_rows(whole.turn_of_y), turn - matvec(whole.turn_of_x, x))
    return jnp.concatenate([x, y], axis=1)

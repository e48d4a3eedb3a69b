"""The linear-quadratic problem of one iteration, solved backwards in time.

Let delta (n,) be the error of the state from its nominal value before a sample, d (m,) the change
of the command, and z both of them. A sample has the model

    delta' = F z,    cost = g . z + 1/2 z . H z,

and the end costs ``v . delta + 1/2 delta . V delta``. The value function before each sample has
this form too. With ``q = g + F^T v`` and ``Q = H + F^T V F``, the change ``d - K delta`` minimises
``q . z + 1/2 z . Q z`` (D. H. Jacobson and D. Q. Mayne, Differential Dynamic Programming, 1970).
Between limits d is the minimum in a box, and commands that it holds at a limit have no feedback
(Y. Tassa, N. Mansard and E. Todorov, ICRA 2014, section IV).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxquat._internal.linear import dot, matvec

ARCS = (1.0, 0.5, 0.25, 0.1, 0.01, 0.0)
"""Lengths of the steps that the minimisation in a box compares."""


class Model(NamedTuple):
    """The samples and the end of a linear-quadratic problem."""

    transition: Array  # F of each sample, (samples, n, n + m)
    gradient: Array  # g of each sample, (samples, n + m)
    hessian: Array  # H of each sample, (samples, n + m, n + m)
    shift: Array | None  # h of each sample, (samples, n): delta' = F z + h; None for 0
    end: tuple[Array, Array]  # v (n,) and V (n, n)


class Policy(NamedTuple):
    """The change ``d - K delta`` of each command, and what the model says of the cost."""

    change: Array  # d of each sample, (samples, m)
    gains: Array  # K of each sample, (samples, m, n)
    slope: Array  # with d scaled by s, the cost changes by ``s slope + 1/2 s^2 curvature``
    curvature: Array
    hessian: Array | None = None  # the damped one of the commands of each sample, (samples, m, m)


class Choice(NamedTuple):
    """How ``backward`` minimises the cost of a sample: ``choose(hessian, gradient, row)``."""

    choose: Callable[[Array, Array, Any], tuple[Array, Array]]  # returns d and which are free, (m,)
    rows: Any  # a pytree with a row for each sample
    damping: Any = None  # this fraction of its diagonal is added to each Hessian of the commands


def product(a: Array, b: Array) -> Array:
    """Multiply matrices in full precision, on a GPU too."""
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def backward(model: Model, choice: Choice, loop: Callable[..., Any] = lax.scan) -> Policy:
    """Solve the problem from its end to its start; linear in the gradients without damping."""

    def sample(value: tuple[Array, Array], stage: Any) -> tuple[tuple[Array, Array], Policy]:
        of_sample, row = stage
        return improved(value, of_sample, choice, row)

    return summed(loop(sample, model.end, (model[:4], choice.rows), reverse=True)[1])


def improved(
    value: tuple[Array, Array],
    stage: tuple[Array, Array, Array, Array | None],
    choice: Choice,
    row: Any,
) -> tuple[tuple[Array, Array], Policy]:
    """Return value function and policy of a sample (F, g, H, h), from the value after it."""
    (transition, gradient, hessian, shift), (v, v_v) = stage, value
    n = v.size
    v = v if shift is None else v + matvec(v_v, shift)
    q = gradient + matvec(transition.T, v)
    q_q = hessian + symmetric(product(transition.T, product(v_v, transition)))
    q_x, q_u, q_xx, q_ux, q_uu = q[:n], q[n:], q_q[:n, :n], q_q[n:, :n], q_q[n:, n:]
    damped = q_uu
    if choice.damping is not None:
        diagonal = jnp.diagonal(q_uu)
        unit = jnp.where(diagonal > 0, diagonal, 1.0)
        lost = out_of_range(diagonal, gradient[n:], transition[:, n:], jnp.diagonal(v_v))
        damped = q_uu + jnp.diag(choice.damping * jnp.where(lost, jnp.nan, unit))
    d, free = choice.choose(damped, q_u, row)
    gain = solve_free(damped, q_ux, free)
    ahead = matvec(q_uu, d)
    # d and K need not be the minimum of the undamped model, hence the longer formulas.
    v = q_x + matvec(q_ux.T, d) - matvec(gain.T, q_u + ahead)
    crossed = product(gain.T, q_ux)
    v_v = q_xx - crossed - crossed.T + product(gain.T, product(q_uu, gain))
    policy = Policy(d, gain, dot(d, q_u), dot(d, ahead), damped)
    return (v, 0.5 * (v_v + v_v.T)), policy


def out_of_range(diagonal: Array, gradient: Array, by_command: Array, curvature: Array) -> Array:
    """Return whether the dtype cannot hold the second derivative with respect to a command, (m,).

    It vanishes only if the command has no effect. The step of ``improved`` is NaN where it is
    infinite, or below the normal numbers although the command has an effect.
    """
    tiny = float(jnp.finfo(diagonal.dtype).tiny)
    root = matvec(jnp.abs(by_command).T, jnp.sqrt(jnp.abs(curvature)))
    small = (gradient != 0) | ((root > 0) & (root < tiny**0.5))
    return ~(jnp.abs(diagonal) < jnp.inf) | ((jnp.abs(diagonal) < tiny) & small)


def symmetric(matrix: Array) -> Array:
    """Complete a matrix from its lower triangle, where a kernel computes only that of a product."""
    return jnp.where(np.tri(len(matrix), dtype=bool), matrix, matrix.T)


def summed(policy: Policy) -> Policy:
    """Sum slope and curvature of the policy over all samples."""
    return policy._replace(slope=jnp.sum(policy.slope), curvature=jnp.sum(policy.curvature))


def held(hessian: Array, gradient: Array, free: Array) -> tuple[Array, Array]:
    """Minimise over the commands that are free, the others unchanged; for ``backward``."""
    return -solve_free(hessian, gradient[:, None], free)[:, 0], free


def in_box(hessian: Array, gradient: Array, room: tuple[Array, Array]) -> tuple[Array, Array]:
    """Minimise between ``room``, the least and the largest change; for ``backward``.

    2 m + 2 projected Newton steps (D. P. Bertsekas, SIAM J. Control Optim. 20, 221, 1982): each
    solves for the commands that no limit stops, and goes along the projected arc.
    """
    lower, upper = room
    lengths = jnp.asarray(ARCS, hessian.dtype)[:, None]

    def slope_and_free(d: Array) -> tuple[Array, Array]:
        slope = gradient + matvec(hessian, d)
        stopped = ((d <= lower) & (slope > 0)) | ((d >= upper) & (slope < 0))
        return slope, ~stopped & (lower < upper)

    def stepped(_: Any, d: Array) -> Array:
        slope, free = slope_and_free(d)
        newton = solve_free(hessian, slope[:, None], free)[:, 0]
        arc = jnp.clip(d[None] - lengths * newton[None], lower[None], upper[None])
        cost = dot(arc, gradient[None] + 0.5 * product(arc, hessian))
        return arc[jnp.argmin(cost)]

    d = lax.fori_loop(0, 2 * gradient.size + 2, stepped, jnp.zeros_like(gradient))
    return d, slope_and_free(d)[1]


def solve_free(hessian: Array, columns: Array, free: Array) -> Array:
    """Solve for the free commands, (m, k); 0 for others, NaN if not positive definite."""
    identity = jnp.eye(free.size, dtype=hessian.dtype)
    matrix = jnp.where(free[:, None] & free[None], hessian, identity)
    # In one array with the matrix, the result would not be linear in the columns for JAX.
    both = matrix, jnp.where(free[:, None], columns, 0.0)
    for j in range(free.size):
        pivot, factor = both[0][j, j], both[0][:, j, None]
        row = [x[j] / jnp.where(pivot > 0, pivot, jnp.nan) for x in both]
        both = [(x - factor * y[None]).at[j].set(y) for x, y in zip(both, row, strict=True)]
    return both[1]


def forward(
    model: Model,
    policy: Policy,
    start: Array | None = None,
    loop: Callable[..., Any] = lax.scan,
) -> tuple[Array, Array]:
    """Return the error after each sample and its z, from this error at the start, or 0."""

    def sample(delta: Array, row: Any) -> tuple[Array, tuple[Array, Array]]:
        transition, shift, d, gain = row
        z = jnp.concatenate([delta, d - matvec(gain, delta)])
        after = matvec(transition, z)
        after = after if shift is None else after + shift
        return after, (after, z)

    rows = model.transition, model.shift, policy.change, policy.gains
    return loop(sample, jnp.zeros_like(model.end[0]) if start is None else start, rows)[1]

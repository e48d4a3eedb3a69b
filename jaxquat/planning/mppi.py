"""Model predictive path integral control: the next commands are a weighted mean of random ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import (
    exactly,
    instance,
    one_shape,
    positive,
    positive_integer,
    reproducible_key,
)
from jaxquat._internal.linear import square
from jaxquat._internal.renamed import refuses_old_keywords
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.state import State
from jaxquat.planning.horizon import Horizon, checked_horizon, shifted
from jaxquat.planning.problem import Constraints, Residuals, Sampling, numbers_of
from jaxquat.planning.trajectory import clipped
from jaxquat.schemes.scheme import Scheme
from jaxquat.simulation.controller import Controller
from jaxquat.simulation.options import RolloutOptions
from jaxquat.simulation.rollout import rollout


@refuses_old_keywords("planning.mppi")
def mppi(
    key: Array,
    scheme: Scheme | Step,
    body: Body,
    torque: Torque,
    dt: ArrayLike,
    commands: ArrayLike,
    residuals: Callable[..., Array] | Residuals,
    *,
    sampling: Sampling,
    constraints: Constraints | None = None,
    sample_every: int = 1,
) -> Controller:
    """Make a ``jq.Controller`` that tries random commands and takes their mean weighted by cost.

    At each sample it draws ``samples`` sequences of commands about the last plan, simulates them
    from the present state, and weighs them with ``exp(-cost/temperature)``. The weighted mean is
    the plan; its first command is applied, and the others, the last one twice, begin the next
    sample. No derivative is used: residuals may jump. (G. Williams, A. Aldrich and E. Theodorou,
    J. Guid. Control Dyn. 40, 344, 2017; in G. Williams et al., IEEE Trans. Robot. 34, 1603, 2018,
    the case alpha = 1: the cost of commands is that of the residuals alone.)

    For a linear plant and linear residuals, ``1/2 |H u - r|^2`` with all commands u, the plan tends
    for many samples to ``(S^-1 + H^T H/temperature)^-1 (S^-1 u_0 + H^T r/temperature)``, where u_0
    are the commands before, and the diagonal matrix S has the squares of ``std``.

    Args:
        key: a ``jax.random.key``; sample k draws from ``fold_in(key, k)``. Under ``jax.vmap`` give
            each body a key of its own (``jax.random.split``).
        scheme: see ``planning.mpc``, like all arguments that are not explained here.
        body: see ``planning.mpc``.
        torque: see ``planning.mpc``.
        dt: see ``planning.mpc``.
        commands: see ``planning.mpc``.
        residuals: see ``planning.mpc``.
        sampling: ``planning.Sampling``: standard deviation, temperature and number of sequences.
        constraints: ``planning.Constraints`` with limits alone, which clip commands before a trial.
        sample_every: see ``planning.mpc``.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value; the error names it.

    Examples:
        >>> controller = jq.planning.mppi(
        ...     jax.random.key(0), jq.rkmk2, body, motors, 0.5, jnp.zeros((5, 3)), effort,
        ...     sampling=jq.planning.Sampling(std=0.2, temperature=0.01, samples=64))
        >>> controller.period  # s
        0.5
    """
    horizon = checked_horizon(
        scheme, body, torque, dt, commands, residuals, constraints, sample_every
    )
    if horizon.constrained:
        raise ValueError("constraints: wanted limits alone, got equalities or inequalities")
    shape, dtype = horizon.commands.shape, horizon.commands.dtype
    key = reproducible_key("key", key)
    instance("sampling", sampling, Sampling, "a planning.Sampling(std, temperature)")
    count = positive_integer("sampling.samples", sampling.samples)
    deviation = one_shape("sampling.std", sampling.std, (), shape[1:])
    temperature = exactly("sampling.temperature", sampling.temperature, ()).astype(dtype)
    positive("sampling.std", deviation)
    positive("sampling.temperature", temperature)
    deviation = jnp.broadcast_to(deviation.astype(dtype), shape)

    def init(start: State, params: Any) -> tuple[Array, Array]:
        horizon.check_start(start)
        return horizon.commands, jnp.zeros((), int)

    def update(t: Array, state: State, memory: Any, params: Any, value: Any) -> Any:
        planned, k = memory
        normals = jax.random.normal(jax.random.fold_in(key, k), (count, *shape), dtype)
        changed = planned[None] + deviation[None] * normals
        if horizon.limits is not None:
            changed = jnp.clip(changed, *(limit[None] for limit in horizon.limits))
        costs = jax.vmap(lambda commands: _cost(horizon, t, state, params, k, commands))(changed)
        costs = jnp.where(jnp.isnan(costs), jnp.inf, costs)
        weights = jax.nn.softmax(-costs / temperature)
        plan = jnp.einsum("i,ijk->jk", weights, changed, precision=jax.lax.Precision.HIGHEST)
        plan = clipped(plan, horizon.limits)  # the mean may be beyond them by rounding
        return plan[0], (shifted(plan), k + 1)

    return Controller(init, update, horizon.period)


def _cost(h: Horizon, t: Array, state: State, params: Any, k: Array, commands: Array) -> Array:
    """Return the cost of the horizon from sample k on, by a kernel where there is one."""
    count, dtype = len(commands), commands.dtype

    def torque(t: Array, state: State, params: Any, numbered: tuple[Array, Array]) -> Any:
        return h.torque(t, state, params, numbered[1])

    def paid(t: Array, state: State, params: Any, numbered: tuple[Array, Array]) -> Array:
        i, command = numbered
        values = h.residuals.stage(i, state, params, command)
        return square(numbers_of("residuals", values, dtype))

    path = rollout(
        h.scheme, h.body, torque, state, h.grid(t), params,
        inputs=(k + jnp.arange(count), commands), options=RolloutOptions(save=paid),
    )  # fmt: skip
    cost = jnp.sum(path.saved[:-1])
    if h.residuals.final is not None:
        end = h.residuals.final(k + count, path.final, params)
        cost = cost + square(numbers_of("residuals.final", end, dtype))
    return 0.5 * cost

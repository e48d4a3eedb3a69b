"""``rollout`` makes a Simulation, chooses its engine, and returns the trajectory."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import checkify

from jaxquat._internal.linear import dot, power_of_two
from jaxquat._internal.renamed import refuses_old_keywords
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.state import State
from jaxquat.fused.engine import if_possible
from jaxquat.schemes.scheme import Scheme
from jaxquat.simulation.controller import Controller
from jaxquat.simulation.engines import kernels, reversible, scan
from jaxquat.simulation.grid import Grid, GridAt, coinciding
from jaxquat.simulation.intervals import Interval
from jaxquat.simulation.options import RolloutOptions
from jaxquat.simulation.path import Path
from jaxquat.simulation.simulation import Simulation, checked_simulation

__all__ = ["rollout"]


@refuses_old_keywords("rollout")
def rollout(
    scheme: Scheme | Step,
    body: Body,
    torque: Torque,
    start: State,
    grid: Grid | GridAt,
    params: Any = None,
    *,
    controller: Controller | None = None,
    inputs: Any = None,
    noise: Any = None,
    options: RolloutOptions = RolloutOptions(),  # noqa: B008
) -> Path:
    """Integrate one body over a time grid; use ``jax.vmap`` for many bodies.

    ``rollout`` is not jitted: jit the function that calls it.

    Args:
        scheme: for example ``jq.rkmk4``, or any function with the signature of a step,
            ``scheme(body, torque, t, state, dt, params) -> state``.
        body: the Body, in the dtype of the start.
        torque: ``torque(t, state, params) -> (3,)`` in body axes [N m]; with a controller or inputs
            ``torque(t, state, params, command)``.
        start: State of one body; a concrete q must be unit within 1e-4.
        grid: equal steps from ``jq.grid``, or steps through given times from ``jq.grid_at``. With
            the latter ``inputs``, ``sample_every`` and ``save_every`` count intervals, not steps.
        params: any pytree, passed to torque, controller and ``options.save``.
        controller: sampled every ``grid.sample_every`` steps; gives the torque its ``command``.
        inputs: pytree with leading axis ``steps // grid.sample_every`` (noise, logged torques, a
            reference). Each sample gets a slice, as the controller's ``input``, or without a
            controller as the ``command``.
        noise: for a stochastic scheme, whose steps take ``n = scheme.noise(start)`` standard
            normals. With a ``jax.random.key``, step k draws from ``fold_in(key, k)`` in every
            engine; under ``jax.vmap`` give each body a key of its own (``jax.random.split``). With
            floats (steps, n), step k takes row k, for instance as common random numbers;
            ``grid.steps`` counts substeps and the steps of empty intervals.
        options: ``jq.RolloutOptions``: what a row keeps, engine, checkpoints, checks of values.

    Returns:
        Path, in the dtype of the start.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value; the error names it.
        NotImplementedError: ``engine="fused"`` with a primitive, named, that has no scalar form.
        ImportError: ``engine="fused"`` without its compiler.

    Examples:
        >>> body = jq.Body(jnp.diag(jnp.array([2.0, 3.0, 4.0])))
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.0, 1.0]))
        >>> torque = lambda t, state, params: -params * state.omega  # N m
        >>> fly = lambda k: jq.rollout(jq.rkmk4, body, torque, start, jq.grid(0.0, 0.1, 50), k)
        >>> f"{jax.jit(fly)(0.8).final.omega[2]:.3f} rad/s"  # exp(-0.8 5/4)
        '0.368 rad/s'
    """
    simulation = checked_simulation(
        scheme, body, torque, start, grid, params, controller=controller, inputs=inputs,
        noise=noise, options=options,
    )  # fmt: skip
    if options.check:
        _report_simulation(simulation, grid)
    if options.checkpoint == "reversible":
        path = reversible.run(simulation, grid, report=options.check)
    elif options.engine == "scan" or options.check:
        path = scan.run(simulation)
    elif options.engine == "fused":
        path = kernels.run(simulation)
    else:
        kernel = functools.partial(kernels.run, simulation, strict=False)
        path = if_possible(kernel, functools.partial(scan.run, simulation))
    if options.check:
        _report_path(path)
    return path


def _report_simulation(simulation: Simulation, grid: Grid | GridAt) -> None:
    """Report for traced values what the checks of concrete values would raise."""
    q, t0, dt = simulation.start.q, simulation.t0, simulation.dt
    norm = jnp.sqrt(dot(q, q))
    text = "start.q: wanted a unit quaternion, got norm {norm}"
    checkify.check(jnp.abs(norm - 1) <= 1e-4, text, norm=norm)
    if simulation.intervals is None:
        checkify.check(jnp.isfinite(t0), "t0: wanted a finite number, got {t0}", t0=t0)
        checkify.check(dt > 0, "dt: wanted a positive step, got {dt}", dt=dt)
        times, steps = jnp.stack([t0, simulation.time(simulation.steps)]), dt[None]
    else:
        _report_times(simulation.intervals)
        times, steps = simulation.intervals.t, simulation.intervals.dt[:-1]
    coincide, text, facts = coinciding(grid, times, steps, dt.dtype)
    checkify.check(~coincide, text, **facts)
    unit = power_of_two(simulation.body.inertia)
    moments = jnp.linalg.eigvalsh(simulation.body.inertia / unit)
    rounding = 100 * jnp.finfo(dt.dtype).eps
    triangle = moments[0] + moments[1] >= moments[2] * (1 - rounding)
    wanted = "a positive definite inertia with I1 + I2 >= I3"
    text = f"body: wanted {wanted}, got principal moments {{moments}}"
    checkify.check((moments[0] > 0) & triangle, text, moments=unit * moments)
    mass = simulation.body.mass
    if mass is not None:
        text = "mass: wanted a positive finite number, got {mass}"
        checkify.check((mass > 0) & jnp.isfinite(mass), text, mass=mass)
    simulation.scheme.check(simulation.body, report=True)


def _report_times(intervals: Interval) -> None:
    _, t, dt = intervals
    finite, rises = jnp.isfinite(t), dt >= 0
    text = "times: wanted finite values, got times[{k}] = {t}"
    k = jnp.argmin(finite)
    checkify.check(jnp.all(finite), text, k=k, t=t[k])
    text = "times: wanted times that do not decrease, got times[{k}] = {t}, then {after}"
    k = jnp.argmin(rises)
    checkify.check(jnp.all(rises), text, k=k, t=t[k], after=t[k + 1])


def _report_path(path: Path) -> None:
    """Report the first row that is not finite; with ``save=``, check the last state only."""
    if isinstance(path.state, State):
        times, states = path.t, path.state
    else:
        times, states = path.t[-1:], jax.tree.map(lambda x: x[None], path.final)
    rows = [x.reshape(times.size, -1) for x in jax.tree.leaves(states)]
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x), axis=1) for x in rows]), 0)
    text = "state: not finite, first at the saved time t = {t}"
    checkify.check(jnp.all(finite), text, t=times[jnp.argmin(finite)])

"""From a step to a trajectory: ``rollout``, and the Path that it returns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import checkify

from jaxquat._checks import boolean, one_of
from jaxquat._linear import dot
from jaxquat.dynamics.body import Body, equal_moments
from jaxquat.dynamics.contract import Step, Torque, evaluate_at_attitude
from jaxquat.dynamics.state import State
from jaxquat.engines import reversible as reversing
from jaxquat.engines.scan import Problem, is_sampled, observe, run
from jaxquat.schemes import SCHEMES
from jaxquat.schemes.composition import is_reversible
from jaxquat.simulation.controller import Controller
from jaxquat.simulation.grid import Grid
from jaxquat.simulation.path import Path
from jaxquat.simulation.simulation import posed

__all__ = ["rollout"]


def rollout(
    step: Step,
    body: Body,
    torque: Torque,
    start: State,
    grid: Grid,
    params: Any = None,
    *,
    controller: Controller | None = None,
    inputs: Any = None,
    sample_every: int = 1,
    save_every: int = 1,
    save: Callable[..., Any] | None = None,
    checkpoint: str | int = "none",
    engine: str = "scan",
    check: bool = False,
) -> Path:
    """Integrate one body over a time grid; ``jax.vmap`` for many. Not jitted: jit the function that calls it.

    Args:
        step: a scheme, ``jq.rkmk4`` for instance.
        body: its inertia, in the dtype of the start.
        torque: ``torque(t, state, params) -> (3,)`` in body axes [N m]; with a controller or inputs ``torque(t, state, params,
            held)``.
        start: State of one body; a concrete q must be unit within 1e-4.
        grid: from ``jq.grid``.
        params: any pytree, handed to torque and controller.
        controller: sampled every ``sample_every`` steps; ``held`` is its command.
        inputs: pytree with leading axis ``steps // sample_every`` (noise, logged torques, a reference), one slice a sample:
            handed to the controller, or held for the torque when there is none.
        sample_every: steps per sample, a divisor of the number of steps.
        save_every: steps per row of the path, a divisor of the number of steps.
        save: ``save(t, state, params) -> pytree of arrays``, with a controller or inputs ``save(t, state, params, held)``: what the
            path keeps of each row, in ``path.saved``, instead of state and command. The fused engine computes it within its kernel.
        checkpoint: memory of the backward pass. "none" keeps the state of every step, from which the step is computed again; an
            integer m keeps one state every m steps (those between are computed again, segment by segment); "sqrt" takes m near
            the root of the number of steps. "reversible" keeps the rows of the path alone and undoes each step by a step of -dt:
            for time-reversible schemes, torques of time and attitude, neither controller nor inputs; reverse mode only.
        engine: "scan"; "fused", one compiled kernel for the whole loop (CPU through the extra ``fused``, GPU), reverse mode only,
            with ``checkpoint`` m steps between two states kept for the backward pass ("none" chooses); "auto", fused where the
            step and the torque have a scalar form and the compiler is there, otherwise scan, forward and backward each:
            ``jq.fused.explain``, called with the same arguments, says which, and why.
        check: report bad values of traced arguments, and a state that ceases to be finite: under ``jit`` by
            ``error, path = checkify.checkify(jax.jit(fly))(start); error.throw()`` with ``jax.experimental.checkify``.

    Returns:
        Path, in the dtype of the start.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
        NotImplementedError: ``engine="fused"`` with a primitive that has no scalar form, named, or in forward mode.
        ImportError: ``engine="fused"`` without its compiler.
    """
    one_of("engine", engine, ("scan", "fused", "auto"))
    boolean("check", check)
    if engine == "fused" and (check or checkpoint == "reversible"):
        raise ValueError(
            'engine: "fused" has neither check=True nor checkpoint="reversible"; use engine="scan"'
        )
    given = posed(
        step,
        body,
        torque,
        start,
        grid,
        params,
        controller=controller,
        inputs=inputs,
        sample_every=sample_every,
        save_every=save_every,
        save=save,
        checkpoint=checkpoint,
    )
    problem, start, save_every, rest = given.problem, given.start, given.save_every, given[1:]
    t0, dt = problem.t0, problem.dt
    if check:
        _check_start(body, start, t0, dt)
        if step is SCHEMES["symmetric_top_bm4"].step:
            moments, _ = body.principal()
            message = "body: symmetric_top_bm4 wanted two equal principal moments, got {moments}"
            checkify.check(equal_moments(moments), message, moments=moments)
    times = grid.times(dt.dtype)[::save_every]
    if engine == "fused":
        return _fused(problem, times, *rest)
    if engine == "auto" and not check and checkpoint != "reversible":
        path = _fused_if_possible(problem, times, *rest)
        if path is not None:
            return path
    if checkpoint == "reversible":
        _check_reversible(step, torque, t0, start, params, controller, inputs)
        states = reversing.run(step, body, torque, t0, dt, grid.steps, params, start, save_every)
        path = Path(times, states, (), ())
    else:
        path = Path(times, *run(problem, *rest))
    if check:
        _check_path(path)
    return path if save is None else _saved(problem, inputs, save_every, path)


def _fused(problem: Problem, times: Array, *rest: Any, scan_back: bool = False) -> Path:
    from jaxquat.engines.fused import engine

    lacking = engine.missing()
    if lacking:
        raise ImportError(lacking)
    rows, *ends, memory = engine.run(problem, *rest, scan_back=scan_back)
    state, command = rows if problem.save is None else jax.tree.map(lambda x: x[None], ends)
    return Path(times, state, command, memory, () if problem.save is None else rows)


def _fused_if_possible(problem: Problem, times: Array, *rest: Any) -> Path | None:
    from jaxquat.engines.fused import engine

    if engine.missing():
        return None
    try:
        return _fused(problem, times, *rest, scan_back=True)
    except Exception:  # whatever it is, the scan does it, or says what is wrong with the arguments
        return None


def _saved(problem: Problem, inputs: Any, save_every: int, path: Path) -> Path:
    """What ``save`` makes of each row, and the last row."""
    numbers = jnp.arange(path.t.size) * save_every
    saved = jax.vmap(partial(observe, problem, is_sampled(problem, inputs)))(
        numbers, path.state, path.command
    )
    state, command = jax.tree.map(lambda x: x[-1:], (path.state, path.command))
    return path._replace(state=state, command=command, saved=saved)


def _check_reversible(
    step: Step,
    torque: Torque,
    t0: Array,
    start: State,
    params: Any,
    controller: Controller | None,
    inputs: Any,
) -> None:
    if not is_reversible(step):
        known = ", ".join(name for name, scheme in SCHEMES.items() if scheme.reversible)
        name = getattr(step, "__name__", repr(step))
        raise ValueError(
            f'checkpoint: "reversible" wanted a time-reversible scheme ({known}, or composed of one), got {name}'
        )
    if controller is not None or jax.tree.leaves(inputs):
        raise ValueError(
            'checkpoint: "reversible" wanted neither controller nor inputs; use "sqrt"'
        )
    evaluate_at_attitude('checkpoint "reversible"', torque, t0, start, params)


def _check_start(body: Body, start: State, t0: Array, dt: Array) -> None:
    norm = jnp.sqrt(dot(start.q, start.q))
    checkify.check(
        jnp.abs(norm - 1) <= 1e-4, "start.q: wanted a unit quaternion, got norm {norm}", norm=norm
    )
    checkify.check(jnp.isfinite(t0), "t0: wanted a finite number, got {t0}", t0=t0)
    checkify.check(dt > 0, "dt: wanted a positive step, got {dt}", dt=dt)
    moments = jnp.linalg.eigvalsh(body.inertia)
    physical = (moments[0] > 0) & (
        moments[0] + moments[1] >= moments[2] * (1 - 100 * jnp.finfo(dt.dtype).eps)
    )
    checkify.check(
        physical,
        "body: wanted a positive definite inertia with I1 + I2 >= I3, got principal moments {moments}",
        moments=moments,
    )


def _check_path(path: Path) -> None:
    finite = jnp.all(
        jnp.stack(
            [
                jnp.all(jnp.isfinite(x.reshape(path.t.size, -1)), axis=1)
                for x in jax.tree.leaves(path.state)
            ]
        ),
        0,
    )
    checkify.check(
        jnp.all(finite),
        "state: not finite, first at the saved time t = {t}",
        t=path.t[jnp.argmin(finite)],
    )

"""What a rollout is given: the time grid, and the checks of all arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxquat._checks import (
    arrays,
    divisor,
    exactly,
    instance,
    is_concrete,
    one_of,
    positive_integer,
    takes,
)
from jaxquat.dynamics.body import Body, check_body
from jaxquat.dynamics.contract import Step, Torque
from jaxquat.dynamics.state import State, check_state
from jaxquat.engines.scan import Problem
from jaxquat.schemes import SCHEMES, Scheme
from jaxquat.simulation.controller import Controller
from jaxquat.simulation.grid import Grid


class Posed(NamedTuple):
    """The arguments of a rollout, checked, in the dtype of the start."""

    problem: Problem
    start: State
    inputs: Any
    sample_every: int
    save_every: int
    segment: int | None  # steps between two states kept for the backward pass


def posed(
    step: Step,
    body: Body,
    torque: Torque,
    start: State,
    grid: Grid,
    params: Any,
    *,
    controller: Controller | None,
    inputs: Any,
    sample_every: int,
    save_every: int,
    save: Callable[..., Any] | None,
    checkpoint: str | int,
) -> Posed:
    """ValueError or TypeError for an argument of wrong shape, dtype or value, by name."""
    takes("step", step, "body, torque, t, state, dt, params", hint=_step_hint(step))
    if controller is not None:
        instance("controller", controller, Controller, "a jq.Controller(init, update)")
        takes("controller.init", controller.init, "start, params")
        takes("controller.update", controller.update, "t, state, memory, params, input")
    given, why = "t, state, params", "there is neither controller nor inputs"
    if controller is not None or inputs is not None:
        given, why = (
            "t, state, params, held",
            "there is a controller" if controller is not None else "there are inputs",
        )
    takes("torque", torque, given, why)
    if save is not None:
        takes("save", save, given, why)
    start = check_state("start", start)
    dtype = start.q.dtype
    instance("grid", grid, Grid, "a jq.grid(t0, dt, steps)")
    check_body(body, dtype, "the start")
    save_every = divisor("save_every", save_every, grid.steps)
    sample_every = divisor("sample_every", sample_every, grid.steps)
    if controller is not None and controller.period is not None:
        _check_period(controller.period, grid.dt, sample_every)
    samples = grid.steps // sample_every
    for leaf in jax.tree.leaves(arrays("inputs", inputs)):
        if jnp.shape(leaf)[:1] != (samples,):
            raise ValueError(
                f"inputs: wanted leading axis {samples} (steps // sample_every), got shape {jnp.shape(leaf)}"
            )
    with np.errstate(over="ignore"):  # refused below
        t0, dt = jnp.asarray(grid.t0, dtype), jnp.asarray(grid.dt, dtype)
    for name, value, cast, least in (
        ("t0", grid.t0, t0, -jnp.inf),
        ("dt", grid.dt, dt, jnp.finfo(dtype).tiny),
    ):
        if is_concrete(cast) and not least <= float(np.asarray(cast)) < jnp.inf:
            raise ValueError(f"grid: wanted a {name} within the range of {dtype}, got {value}")
    problem = Problem(step, body, torque, t0, dt, grid.steps, params, controller, save)
    return Posed(problem, start, inputs, sample_every, save_every, _segment(checkpoint, grid.steps))


def _segment(checkpoint: str | int, steps: int) -> int | None:
    if isinstance(checkpoint, str):
        one_of("checkpoint", checkpoint, ("none", "sqrt", "reversible"))
        return None if checkpoint == "none" else math.isqrt(steps - 1) + 1
    return positive_integer("checkpoint", checkpoint)


def _step_hint(step: Any) -> str:
    if isinstance(step, Scheme):
        return "; its step is .step"
    return (
        f"; write jq.{step}"
        if isinstance(step, str) and step in SCHEMES
        else "; schemes are functions, jq.rkmk4 for instance"
    )


def _check_period(period: ArrayLike, dt: ArrayLike, sample_every: int) -> None:
    exactly("controller.period", period, ())
    if is_concrete((period, dt)):
        wanted, got = sample_every * float(np.asarray(dt)), float(np.asarray(period))
        if not math.isclose(wanted, got, rel_tol=1e-5):  # float32 may have rounded both
            raise ValueError(
                f"controller: wanted a period of {wanted:.6g} s (sample_every * dt), got {got:.6g}"
            )

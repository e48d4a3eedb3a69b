"""A simulation: everything that an engine is given, checked, in one record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
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
from jaxquat.dynamics.contract import Step, Torque, commanded
from jaxquat.dynamics.state import State, check_state
from jaxquat.schemes import SCHEMES
from jaxquat.schemes.scheme import Scheme, as_scheme
from jaxquat.simulation.controller import Controller
from jaxquat.simulation.grid import Grid
from jaxquat.simulation.path import Path


@dataclass(frozen=True)
class Simulation:
    """One body over a time grid, as ``jq.rollout`` was asked for it.

    An engine is a function ``run(simulation) -> Path``. It calls the methods, whose arguments stand
    in one order: the number of a step, the state before it, then memory, input or command. The
    number k is an int or a traced integer ().

    Attributes:
        scheme: takes the steps.
        body: in the dtype of the start.
        torque: called with (t, state, params), and with the command where there is one.
        start: one body's state.
        t0: the time of the start [s], () in the dtype of the start.
        dt: the step [s], ().
        steps: their number.
        params: for torque, controller and ``save``.
        controller: None without one.
        inputs: leading axis ``steps // sample_every``; None without them.
        sample_every: steps between two samples of the controller, or of the inputs.
        save_every: steps between two rows of the path.
        save: what is kept of a row instead of state and command; None for these.
        segment: steps between two states kept for the backward pass; None leaves it to the engine
            (the scan keeps all).
    """

    scheme: Scheme
    body: Body
    torque: Torque
    start: State
    t0: Array
    dt: Array
    steps: int
    params: Any
    controller: Controller | None = None
    inputs: Any = None
    sample_every: int = 1
    save_every: int = 1
    save: Callable[..., Any] | None = None
    segment: int | None = None

    @property
    def is_commanded(self) -> bool:
        """Whether the torque is given a command: the controller's, or the inputs."""
        return self.controller is not None or self.inputs is not None

    def time(self, k: Any) -> Array:
        """The time before step k [s], in the shape of k."""
        return self.t0 + jnp.asarray(k).astype(self.t0.dtype) * self.dt

    def initial_memory(self) -> Any:
        """The controller's memory at the start; () without a controller."""
        if self.controller is None:
            return ()
        return arrays("controller.init", self.controller.init(self.start, self.params))

    def command(self, k: Array, state: State, memory: Any, value: Any) -> tuple[Any, Any]:
        """The command from step k on, and the memory then; ``value`` is this sample's input."""
        if self.controller is None:
            return value if self.is_commanded else (), memory
        update = self.controller.update(self.time(k), state, memory, self.params, value)
        if not (isinstance(update, tuple) and len(update) == 2):
            shapes = jax.tree.map(jnp.shape, update)
            raise TypeError(f"controller.update: wanted (command, memory), got {shapes}")
        arrays("controller.update", update)
        before, after = (jax.tree.map(jnp.shape, x) for x in (memory, update[1]))
        if before != after:
            raise TypeError(
                "controller.update: wanted a memory with the shapes of the one given, "
                f"{before}, got {after}"
            )
        return update

    def step(self, k: Array, state: State, command: Any) -> State:
        """The state after step k."""
        torque = commanded(self.torque, command) if self.is_commanded else self.torque
        after = self.scheme(self.body, torque, self.time(k), state, self.dt, self.params)
        return instance("scheme", after, State, "a State back")

    def observe(self, k: Array, state: State, command: Any) -> Any:
        """What a row keeps before step k: (state, command), or what ``save`` makes of them."""
        if self.save is None:
            return state, command
        also = [command] if self.is_commanded else []
        return jax.tree.map(
            jnp.asarray, arrays("save", self.save(self.time(k), state, self.params, *also))
        )

    def path(self, rows: Any, memory: Any, final: State) -> Path:
        """The path of the stacked observations ``rows``, the memory and the state at the end."""
        t = self.time(jnp.arange(0, self.steps + 1, self.save_every))
        (state, command), saved = (rows, ()) if self.save is None else (((), ()), rows)
        return Path(t, state, saved=saved, command=command, memory=memory, final=final)


def checked_simulation(
    scheme: Scheme | Step,
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
) -> Simulation:
    """The Simulation of these arguments of ``jq.rollout``.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
    """
    scheme = _checked_scheme(scheme)
    _check_functions(torque, controller, inputs, save)
    start = check_state("start", start)
    dtype = start.q.dtype
    instance("grid", grid, Grid, "a jq.grid(t0, dt, steps)")
    check_body(body, dtype, "the start")
    scheme.check(body)
    save_every = divisor("save_every", save_every, grid.steps)
    sample_every = divisor("sample_every", sample_every, grid.steps)
    if controller is not None and controller.period is not None:
        _check_period(controller.period, grid.dt, sample_every)
    samples = grid.steps // sample_every
    for leaf in jax.tree.leaves(arrays("inputs", inputs)):
        if jnp.shape(leaf)[:1] != (samples,):
            wanted = f"leading axis {samples} (steps // sample_every)"
            raise ValueError(f"inputs: wanted {wanted}, got shape {jnp.shape(leaf)}")
    t0, dt = _times(grid, dtype)
    return Simulation(
        scheme, body, torque, start, t0, dt, grid.steps, params,
        controller=controller, inputs=inputs, sample_every=sample_every, save_every=save_every,
        save=save, segment=_segment(checkpoint, grid.steps),
    )  # fmt: skip


def _checked_scheme(scheme: Any) -> Scheme:
    hint = "schemes are jq.rkmk4 and its like, or functions of your own"
    if isinstance(scheme, str) and scheme in SCHEMES:
        hint = f"write jq.{scheme}"
    return as_scheme("scheme", scheme, f"; {hint}")


def _check_functions(
    torque: Any, controller: Controller | None, inputs: Any, save: Callable[..., Any] | None
) -> None:
    """TypeError for a function that does not take what it will be given."""
    arguments, reason = "t, state, params", "there is neither controller nor inputs"
    if inputs is not None:
        arguments, reason = "t, state, params, command", "there are inputs"
    if controller is not None:
        arguments, reason = "t, state, params, command", "there is a controller"
        instance("controller", controller, Controller, "a jq.Controller(init, update)")
        takes("controller.init", controller.init, "start, params")
        takes("controller.update", controller.update, "t, state, memory, params, input")
    takes("torque", torque, arguments, reason)
    if save is not None:
        takes("save", save, arguments, reason)


def _times(grid: Grid, dtype: Any) -> tuple[Array, Array]:
    """t0 and dt in this dtype."""
    with np.errstate(over="ignore"):  # refused below
        t0, dt = jnp.asarray(grid.t0, dtype), jnp.asarray(grid.dt, dtype)
    for name, value, cast, least in (
        ("t0", grid.t0, t0, -jnp.inf),
        ("dt", grid.dt, dt, jnp.finfo(dtype).tiny),
    ):
        if is_concrete(cast) and not least <= float(np.asarray(cast)) < jnp.inf:
            raise ValueError(f"grid: wanted a {name} within the range of {dtype}, got {value}")
    return t0, dt


def _segment(checkpoint: str | int, steps: int) -> int | None:
    """Steps between two kept states: the root of their number, rounded up, for "sqrt"."""
    if isinstance(checkpoint, str):
        one_of("checkpoint", checkpoint, ("none", "sqrt", "reversible"))
        return math.isqrt(steps - 1) + 1 if checkpoint == "sqrt" else None
    return positive_integer("checkpoint", checkpoint)


def _check_period(period: ArrayLike, dt: ArrayLike, sample_every: int) -> None:
    exactly("controller.period", period, ())
    if is_concrete((period, dt)):
        wanted, got = sample_every * float(np.asarray(dt)), float(np.asarray(period))
        if not math.isclose(wanted, got, rel_tol=1e-5):  # float32 may have rounded both
            raise ValueError(
                f"controller: wanted a period of {wanted:.6g} s (sample_every * dt), got {got:.6g}"
            )

"""A simulation: everything that an engine needs, checked, in one record."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal import checks
from jaxquat._internal.varying import Axes, axes_of, cast, within_shard_map
from jaxquat.dynamics.body import Body, check_body
from jaxquat.dynamics.contract import Commanded, Step, Torque
from jaxquat.dynamics.state import State, check_like, check_state
from jaxquat.schemes import SCHEMES
from jaxquat.schemes.scheme import Scheme, as_scheme
from jaxquat.simulation.controller import Controller, settled, update_of
from jaxquat.simulation.grid import Grid, GridAt, check_resolution
from jaxquat.simulation.intervals import (
    Held,
    Interval,
    filled,
    first_step,
    holding,
    intervals_of,
    may_be_empty,
    unless_empty,
)
from jaxquat.simulation.noise import WithNoise, check_noise, draw, passing_noise, without_noise
from jaxquat.simulation.options import RolloutOptions, checked_options, segment_of
from jaxquat.simulation.path import Path


@dataclass(frozen=True)
class Simulation:
    """One body over a time grid: the checked arguments of ``jq.rollout``.

    An engine is a function ``run(simulation) -> Path``. It calls the methods, whose arguments have
    one order: the number k of a step, an int or a traced (), the state before it, then memory,
    input or command, and the interval of the step, a row of ``intervals``, or None if the steps are
    equal.
    """

    scheme: Scheme
    body: Body  # in the dtype of the start
    torque: Torque  # called with (t, state, params), and with the command if there is one
    start: State
    t0: Array  # [s], () in the dtype of the start
    dt: Array  # the step [s], (); with intervals the first step that is not 0
    steps: int
    params: Any
    controller: Controller | None = None
    inputs: Any = None  # leading axis ``steps // sample_every``; or those of ``holding``
    sample_every: int = 1
    save_every: int = 1
    save: Callable[..., Any] | None = None  # None to keep state and command
    segment: int | None = None  # steps between two kept states; None: the engine chooses
    substeps: int = 1  # per interval; ``sample_every`` and ``save_every`` are multiples of it
    intervals: Interval | None = None  # all, and an empty one at the end; None: equal steps
    may_be_empty: bool = False
    noise: Any = None  # the key of the normals; given normals are in the inputs, then ``WithNoise``

    @property
    def is_commanded(self) -> bool:
        """Whether samples have a command: that of the torque, or noise, or both."""
        return self.controller is not None or self.inputs is not None

    @property
    def commands_torque(self) -> bool:
        """Whether the torque receives a command, from the controller or from the inputs."""
        return self.controller is not None or without_noise(self.inputs) is not None

    @property
    def end(self) -> Interval | None:
        """The empty interval at the end; None for equal steps."""
        return jax.tree.map(lambda x: x[-1], self.intervals)

    def time(self, k: Any, interval: Interval | None = None) -> Array:
        """Return the time before step k [s], in the shape of k."""
        if interval is None:
            return self.t0 + jnp.asarray(k).astype(self.t0.dtype) * self.dt
        if self.substeps == 1:
            return interval.t
        return interval.t + (k - interval.first).astype(interval.dt.dtype) * interval.dt

    def initial_memory(self) -> Any:
        """Return the memory at the start, in its final dtypes; () without a controller."""
        if self.controller is None:
            return ()
        memory = checks.arrays("controller.init", self.controller.init(self.start, self.params))
        memory, dtypes = cast(jax.tree.map(jnp.asarray, memory), axes_of(self.start)), None
        value, interval = (jax.tree.map(lambda x: x[0], x) for x in (self.inputs, self.intervals))
        while dtypes != (dtypes := [x.dtype for x in jax.tree.leaves(memory)]):
            at_start = jnp.asarray(0), self.start, memory, value, interval
            memory = settled(memory, jax.eval_shape(self.command, *at_start)[1])
        return memory

    def command(
        self, k: Array, state: State, memory: Any, value: Any, interval: Interval | None = None
    ) -> tuple[Any, Any]:
        """Return the command from step k on and the new memory; ``value`` is the input."""
        if self.controller is None:
            return value if self.is_commanded else (), memory
        t = self.time(k, interval)
        update = update_of(self.controller, t, state, memory, self.params, value)
        return cast(update, axes_of(state))

    def step(self, k: Array, state: State, command: Any, interval: Interval | None = None) -> State:
        """Return the state after step k."""
        noise = None
        if isinstance(command, WithNoise):
            noise = command.noise[0 if self.sample_every == 1 else k % self.sample_every]
        elif self.noise is not None:
            noise = draw(self.noise, k, self.scheme.noise(state), state.q.dtype)
        command = without_noise(command)
        torque = Commanded(self.torque, command) if self.commands_torque else self.torque

        def after(t: Array, state: State, dt: Array, noise: Array | None) -> State:
            after = self.scheme(self.body, torque, t, state, dt, self.params, noise)
            checks.instance("scheme", after, State, "a State back")
            after, kind = jax.tree.map(jnp.asarray, after), "the shapes and dtypes of the one given"
            check_like("scheme", f"a state with {kind}", state, after)
            return after

        if interval is None:
            return after(self.time(k), state, self.dt, noise)
        arguments = self.time(k, interval), state, interval.dt, noise
        if not self.may_be_empty:
            return after(*arguments)
        regular = self.t0, self.start, self.dt, jax.tree.map(jnp.zeros_like, noise)
        return unless_empty(interval.dt == 0, after, arguments, regular, otherwise=state)

    def observe(
        self, k: Array, state: State, command: Any, interval: Interval | None = None
    ) -> Any:
        """Return the row of the path before step k: (state, command), or the result of ``save``."""
        command = without_noise(command)
        if self.save is None:
            return state, command if self.commands_torque else ()
        commands = [command] if self.commands_torque else []
        saved = self.save(self.time(k, interval), state, self.params, *commands)
        return jax.tree.map(jnp.asarray, checks.arrays("save", saved))

    def path(self, rows: Any, memory: Any, final: State) -> Path:
        """Make the Path of these stacked observations, and the memory and state at the end."""
        if self.intervals is None:
            t = self.time(jnp.arange(0, self.steps + 1, self.save_every))
        else:
            t = self.intervals.t[:: self.save_every // self.substeps]
        while isinstance(memory, Held):
            memory = memory.memory
        rows, memory = jax.tree.map(checks.strong, (rows, memory))
        parts: Any = (*rows, ()) if self.save is None else ((), (), rows)
        state, command, saved = parts
        return Path(t, state, saved=saved, command=command, memory=memory, final=final)


def checked_simulation(
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
) -> Simulation:
    """Check these arguments of ``jq.rollout`` and return their Simulation."""
    scheme, options = _checked_scheme(scheme), checked_options(options)
    _check_functions(torque, controller, inputs, options.save)
    start = check_state("start", start)
    dtype = start.q.dtype
    checks.instance("grid", grid, (Grid, GridAt), "a jq.grid(t0, dt, steps) or jq.grid_at(times)")
    check_body(body, dtype, "the start")
    scheme.check(body)
    unit = "steps" if isinstance(grid, Grid) else "intervals"
    save_every = checks.divisor("grid.save_every", grid.save_every, grid.intervals, unit)
    sample_every = checks.divisor("grid.sample_every", grid.sample_every, grid.intervals, unit)
    if controller is not None and controller.period is not None:
        _check_period(controller.period, grid, sample_every)
    samples = grid.intervals // sample_every
    for leaf in jax.tree.leaves(checks.arrays("inputs", inputs)):
        if jnp.shape(leaf)[:1] != (samples,):
            wanted = f"leading axis {samples} ({unit} // grid.sample_every)"
            raise ValueError(f"inputs: wanted {wanted}, got shape {jnp.shape(leaf)}")
    noise = check_noise(noise, scheme, start, grid.steps)
    substeps = grid.substeps if isinstance(grid, GridAt) else 1
    simulation = Simulation(
        scheme, body, torque, start, steps=grid.steps, params=params, controller=controller,
        inputs=inputs, sample_every=sample_every * substeps, save_every=save_every * substeps,
        save=options.save, segment=segment_of(options.checkpoint, grid.steps), substeps=substeps,
        **_times(grid, dtype),
    )  # fmt: skip
    return _settled(_with_noise(_holding(simulation), noise))


def _holding(simulation: Simulation) -> Simulation:
    if simulation.intervals is None or not simulation.may_be_empty:
        return simulation
    samples = simulation.steps // simulation.sample_every
    is_empty = jnp.all(simulation.intervals.dt[:-1].reshape(samples, -1) == 0, axis=1)
    inputs, controller = filled(simulation.inputs, is_empty), simulation.controller
    if controller is None:
        return replace(simulation, inputs=inputs)
    controller = holding(controller, simulation.t0, simulation.start, inputs)
    return replace(simulation, controller=controller, inputs=(is_empty, inputs))


def _with_noise(simulation: Simulation, noise: Any) -> Simulation:
    """Add a random key, or noise (steps, n), to the simulation; its samples become short."""
    # A step's derivative adds to all rows of its sample: without a controller, inputs are repeated.
    if noise is None or checks.is_key(noise):
        return replace(simulation, noise=noise)
    controller, every = simulation.controller, simulation.substeps
    if controller is not None:
        controller, every = passing_noise(controller), simulation.sample_every
    times = simulation.sample_every // every
    repeated = lambda x: jnp.repeat(jnp.asarray(x), times, axis=0)  # noqa: E731
    inputs = jax.tree.map(repeated, simulation.inputs)
    inputs = WithNoise(inputs, noise.reshape(-1, every, noise.shape[1]))
    return replace(simulation, controller=controller, inputs=inputs, sample_every=every)


def _settled(simulation: Simulation) -> Simulation:
    """Let all arrays but times vary over the axes of the states within ``jax.shard_map``."""
    # Otherwise each step would sum a cotangent over devices; casting takes this sum once.
    if not within_shard_map():
        return simulation
    first = lambda tree: jax.tree.map(lambda x: x[0], tree)  # noqa: E731

    def cast_to(axes: Axes) -> Simulation:
        names = "start", "body", "params", "inputs", "noise"
        return replace(simulation, **{n: cast(getattr(simulation, n), axes) for n in names})

    def after_a_step(axes: Axes) -> tuple[State, Any]:
        simulation = cast_to(axes)
        k, start, interval = jnp.asarray(0), simulation.start, first(simulation.intervals)
        memory, value = simulation.initial_memory(), first(simulation.inputs)
        command, memory = simulation.command(k, start, memory, value, interval)
        return simulation.step(k, start, command, interval), memory

    axes, before = axes_of([getattr(simulation, field.name) for field in fields(simulation)]), None
    while axes != before:  # torque and controller may close over arrays that vary over more axes
        before = axes
        axes = axes | axes_of(jax.eval_shape(functools.partial(after_a_step, axes)))
    return cast_to(axes)


def _checked_scheme(scheme: Any) -> Scheme:
    hint = "a scheme is for example jq.rkmk4, or a function of your own"
    if isinstance(scheme, str) and scheme in SCHEMES:
        hint = f"write jq.{scheme}"
    return as_scheme("scheme", scheme, f"; {hint}")


def _check_functions(
    torque: Any, controller: Controller | None, inputs: Any, save: Callable[..., Any] | None
) -> None:
    arguments, reason = "t, state, params", "there is neither controller nor inputs"
    if inputs is not None:
        arguments, reason = "t, state, params, command", "there are inputs"
    if controller is not None:
        arguments, reason = "t, state, params, command", "there is a controller"
        checks.instance("controller", controller, Controller, "a jq.Controller(init, update)")
        checks.takes("controller.init", controller.init, "start, params")
        checks.takes("controller.update", controller.update, "t, state, memory, params, input")
    hint = "; jq.torques.zero is no torque, lambda t, state, params: tau a constant one"
    checks.takes("torque", torque, arguments, reason, hint)
    if save is not None:
        checks.takes("save", save, arguments, reason)


def _times(grid: Grid | GridAt, dtype: Any) -> dict[str, Any]:
    if isinstance(grid, GridAt):
        with np.errstate(over="ignore"):
            if (
                checks.is_concrete(grid.stamps)
                and not np.isfinite(np.asarray(grid.stamps, dtype)).all()
            ):
                wanted = f"times within the range of {dtype}"
                raise ValueError(f"grid: wanted {wanted}, got {np.asarray(grid.stamps)}")
        check_resolution(grid, dtype)
        intervals, empty = intervals_of(grid, dtype), may_be_empty(grid, dtype)
        t0, dt = intervals.t[0], first_step(intervals)
        return {"t0": t0, "dt": dt, "intervals": intervals, "may_be_empty": empty}
    with np.errstate(over="ignore"):  # refused below
        t0, dt = jnp.asarray(grid.t0, dtype), jnp.asarray(grid.dt, dtype)
    for name, value, stored, least in (
        ("t0", grid.t0, t0, -jnp.inf),
        ("dt", grid.dt, dt, jnp.finfo(dtype).tiny),
    ):
        if checks.is_concrete(stored) and not least <= float(np.asarray(stored)) < jnp.inf:
            raise ValueError(f"grid: wanted a {name} within the range of {dtype}, got {value}")
    check_resolution(grid, dtype)
    return {"t0": t0, "dt": dt}


def _check_period(period: ArrayLike, grid: Grid | GridAt, sample_every: int) -> None:
    """Raise ValueError if the length of a sample interval is neither ``period`` nor 0."""
    checks.exactly("controller.period", period, ())
    if not checks.is_concrete((period, grid)):
        return
    got, rounding = float(np.asarray(period)), 0.0
    if isinstance(grid, Grid):
        lengths = np.array([sample_every * float(np.asarray(grid.dt))])
    else:
        stamps = np.asarray(grid.stamps)
        rounding = 4 * float(np.spacing(np.abs(stamps).max()))
        lengths = np.diff(stamps[::sample_every].astype(np.float64))
        lengths = lengths[lengths != 0]
    # float32 may have rounded both
    tolerance = 1e-5 * np.maximum(lengths, got) + rounding
    for wanted in lengths[~(np.abs(lengths - got) <= tolerance)][:1]:
        needed = f"a period of {wanted:.6g} s (sample_every * dt)"
        raise ValueError(f"controller: wanted {needed}, got {got:.6g}")

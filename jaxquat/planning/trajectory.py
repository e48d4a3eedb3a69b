"""Problems and trajectories: simulated from commands, perhaps with gaps, between limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat._internal.linear import square
from jaxquat.dynamics.state import State, error_size, local, near, retract
from jaxquat.fused import early
from jaxquat.fused.scanning import scan

F = TypeVar("F", bound=Callable[..., Any])

Limits = tuple[Array, Array] | None
"""The least and the largest command of each sample, each (samples, m)."""


class Problem(NamedTuple):
    """What to minimise: ``stage(k, state, command) -> (next state, residuals)`` and ``final``."""

    stage: Callable[[Array, State, Array], tuple[State, Array]]
    final: Callable[[State], Array]


def parts_of(function: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function of a ``functools.partial`` without keywords, and its arrays."""
    if isinstance(function, partial) and not function.keywords:
        return function.func, function.args
    return function, ()


class Trajectory(NamedTuple):
    """States (samples + 1) and commands; gaps (samples, n) by ``local``, None if there are none."""

    states: State
    commands: Array
    gaps: Array | None = None


def traced_once(function: F) -> F:
    """Trace a function of a problem once, for equal keywords, if JAX knows the problem's arrays."""

    def of_parts(functions: Any, keywords: Any, closed: Any, *arguments: Any) -> Any:
        parts = (partial(f, *x) for f, x in zip(functions, closed, strict=True))
        return function(Problem(*parts), *arguments, **dict(keywords))

    @wraps(function)
    def call(problem: Problem, *arguments: Any, **keywords: Any) -> Any:
        functions, closed = zip(*map(parts_of, problem), strict=True)
        if not all(hasattr(f, "jitted") for f in functions):
            return function(problem, *arguments, **keywords)
        statics = functions, tuple(keywords.items())
        with early.only_if_plain((closed, arguments)):
            return functions[0].jitted(of_parts, *statics)(closed, *arguments)

    return cast(F, call)


def roll_out(
    problem: Problem,
    start: State,
    rows: Any,
    command: Callable[[State, Any], Array],
    gaps: Array | None = None,
    loop: Callable[..., Any] = lax.scan,
) -> tuple[State, Array, Array]:
    """Return all states (samples + 1), commands ``command(state, row)`` and the cost."""

    def sample(state: State, numbered: Any) -> tuple[State, Any]:
        k, row, gap = numbered
        u = command(state, row)
        after, residuals = problem.stage(k, state, u)
        after = after if gap is None else retract(after, gap)
        return after, (state, u, half_square(residuals))

    count = len(jax.tree.leaves(rows)[0])
    end, (states, commands, costs) = loop(sample, start, (jnp.arange(count), rows, gaps))
    states = jax.tree.map(lambda x, last: jnp.concatenate([x, last[None]]), states, end)
    of_end = lambda end: half_square(problem.final(end))  # noqa: E731
    last = at_once(of_end, end) if loop is scan else of_end(end)
    return states, commands, jnp.sum(costs) + last


@traced_once
def simulated(
    problem: Problem, start: State, commands: Array, *, loop: Callable[..., Any] = lax.scan
) -> tuple[Trajectory, Array]:
    """Return the path of these commands, without feedback, and its cost."""
    states, _, cost = roll_out(problem, start, commands, lambda state, u: u, loop=loop)
    return Trajectory(states, commands), cost


def at_once(function: Callable[[Any], Any], argument: Any) -> Any:
    """Compute a function of arrays by one kernel, because XLA is slow with long scalar programs."""
    one = lambda carry, _: (carry, function(carry))  # noqa: E731
    return jax.tree.map(lambda x: x[0], scan(one, argument, length=1)[1])


def begun(
    problem: Problem, start: State, limits: Limits, guess: tuple[Array, State | None]
) -> tuple[Trajectory, Array]:
    """Return the first path, from commands and perhaps states, and its cost."""
    commands, states = clipped(guess[0], limits), guess[1]
    if states is None:
        return simulated(problem, start, commands, loop=scan)
    states = jax.tree.map(lambda x, first: x.at[0].set(first), states, start)
    rows, after, _ = samples_of(Trajectory(states, commands))
    reached = jax.vmap(problem.stage)(*rows)[0]
    path = Trajectory(states, commands, jax.vmap(local)(reached, after))
    return path, cost_along(problem, path)


def cost_along(problem: Problem, path: Trajectory) -> Array:
    """Return the cost of a path, with gaps or without."""
    rows, _, last = samples_of(path)
    residuals = jax.vmap(problem.stage)(*rows)[1]
    return half_square(residuals.ravel()) + half_square(problem.final(last))


def clipped(commands: Array, limits: Limits) -> Array:
    """Clip the commands (m,) or (samples, m) to limits of their shape."""
    return commands if limits is None else jnp.clip(commands, *limits)


def free_of(commands: Array, limits: Limits) -> Array:
    """Return which commands are at no limit, an array of booleans."""
    if limits is None:
        return jnp.ones(commands.shape, bool)
    return (commands > limits[0]) & (commands < limits[1])


def at_limits(commands: Array, limits: Limits) -> Array:
    """Move the commands that differ from a limit by rounding exactly to it."""
    if limits is not None:
        eps = 8.0 * float(jnp.finfo(commands.dtype).eps)
        for limit in limits:
            near = jnp.abs(commands - limit) <= eps * (jnp.abs(commands) + jnp.abs(limit))
            commands = jnp.where(near & jnp.isfinite(limit), limit, commands)
    return commands


def half_square(residuals: Array) -> Array:
    """Return half the sum of the squares, the cost of residuals."""
    return 0.5 * square(residuals)


def zeros(state: State, *command: Array) -> Array:
    """Return no error of the state and, if given, no change of the command, (n,) or (n + m,)."""
    return jnp.zeros(error_size(state) + sum(u.size for u in command), state.q.dtype)


def moved(
    function: Callable[..., Any],
    state: State,
    *command: Array,
    by: Callable[[State, Array], State] = retract,
) -> Callable[[Array], Any]:
    """Return a function of the state and perhaps the command as one of their changes."""
    n = error_size(state)
    return lambda z: function(by(state, z[:n]), *(u + z[n:] for u in command))


def jacobian(function: Callable[..., Array], state: State, *command: Array) -> Array:
    """Return the Jacobian with respect to the changes, (r, n) or (r, n + m)."""
    return jax.jacfwd(moved(function, state, *command, by=near))(zeros(state, *command))


def samples_of(path: Trajectory) -> tuple[tuple[Array, State, Array], State, State]:
    """Return number, state and command of each sample, the states after them, and the last one."""
    parts = (slice(None, -1), slice(1, None), -1)
    before, after, last = (jax.tree.map(lambda x, i=i: x[i], path.states) for i in parts)
    return (jnp.arange(len(path.commands)), before, path.commands), after, last

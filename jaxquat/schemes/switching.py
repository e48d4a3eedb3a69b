"""A scheme whose steps are split where the torque jumps: valves, relays, contacts on a clock.

The last stage of a part and the first of the next are at the same instant, so the time alone does
not decide on which side of the jump they are: the torque gets the passed instants as well. Instants
outside of the step make parts of length 0, so the number of parts is static. They are a
``lax.scan``: unrolled, XLA takes ten times as long to compile the gradient, and longer to run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxquat._internal.checks import floating, takes
from jaxquat._internal.varying import axes_of, cast, within_shard_map
from jaxquat.dynamics.contract import Commanded, Step, name_of
from jaxquat.dynamics.state import State
from jaxquat.schemes.scheme import Scheme, StepArguments, StepAround, around, as_part


def split_steps(scheme: Scheme | Step, instants: Callable[..., Array]) -> Scheme:
    """Split the steps of a scheme at the instants at which the torque jumps.

    ``instants(t, state, params, command)`` returns seconds from t at the beginning of each step,
    for instance the ends of the pulses of n thrusters. The torque's command is then the pair
    ``(command, passed)``; ``passed`` marks the instants before the current part of the step. A
    torque that depends on ``passed`` instead of the time is smooth within each part, so the scheme
    keeps its order, also in the derivatives with respect to the instants. A command that lasts
    several steps must hold the time of its sample, or its pulses fire again in every step: see
    docs/control.md, which also has thrust that rises and decays.

    Instants before the step have passed, infinity never passes, NaN makes the state NaN. The
    derivative with respect to an instant that is not inside the step is 0. A step computes one part
    more than there are instants, so steps as long as a command are cheapest.
    ``checkpoint="reversible"`` is refused. Put ``split_steps`` outside of ``compose`` and ``damp``,
    inside of ``restart`` and random torques.

    Args:
        scheme: any deterministic scheme without restarts.
        instants: ``instants(t, state, params, command)``, floats of any shape [s].

    Raises:
        TypeError: ``scheme`` is no such step, or ``instants`` has other arguments. In a step: there
            is neither controller nor inputs, or the instants are no floats.

    Examples:
        >>> pulsed = jq.schemes.split_steps(jq.rkmk2, lambda t, state, params, widths: widths)
        >>> def thruster(t, state, params, command):
        ...     widths, passed = command
        ...     return jnp.where(passed[0], 0.0, jnp.array([0.0, 0.0, 2.0]))  # N m
        >>> body = jq.Body(4.0 * jnp.eye(3))  # kg m^2
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
        >>> widths = jnp.array([[0.31], [0.0], [0.07]])  # s, of one thruster in three steps
        >>> path = jq.rollout(pulsed, body, thruster, start, jq.grid(0.0, 0.5, 3), inputs=widths)
        >>> path.final.omega[2].round(4)  # rad/s: 2 N m for 0.38 s
        Array(0.19, dtype=float32)
    """
    scheme = as_part("scheme", scheme)
    takes("instants", instants, "t, state, params, command")
    return around(
        scheme, Switched(scheme, instants), "switched", scheme.order,
        conserves=scheme.conserves, evaluations=None, reversible=False,
    )  # fmt: skip


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Switched(StepAround):
    """The step of ``split_steps``."""

    outermost = "switched"

    scheme: Scheme
    instants: Callable[..., Array]

    def take(self, at: StepArguments) -> State:
        """Take one step, part by part."""
        t, state, dt, params = at.t, at.state, at.dt, at.params
        if not isinstance(at.torque, Commanded):
            wanted = "one with a command, from a controller or inputs=, in jq.rollout"
            raise TypeError(f"torque: switched wanted {wanted}, got {name_of(at.torque)} without")
        torque, command = at.torque.torque, at.torque.command
        ends = floating("instants(...)", self.instants(t, state, params, command)).astype(dt.dtype)
        edges, passed = _parts(ends.reshape(-1), dt)

        def part(state: State, row: tuple[Array, Array, Array]) -> tuple[State, None]:
            begin, length, passed = row
            told = Commanded(torque, (command, passed.reshape(ends.shape)))
            return self.scheme(at.body, told, t + begin, state, length, params), None

        rows = edges[:-1], edges[1:] - edges[:-1], passed
        if within_shard_map():  # what the torque closes over may vary from device to device
            after = jax.eval_shape(part, state, jax.tree.map(lambda x: x[0], rows))
            state = cast(state, axes_of((state, after)))
        return lax.scan(part, state, rows)[0]


def _parts(ends: Array, dt: Array) -> tuple[Array, Array]:
    """Return edges (n + 2,) of the parts, and passed instants (n + 1, n); ranks separate ties."""
    ends = jnp.where(ends <= 0.0, 0.0, jnp.where(ends >= dt, dt, ends))
    i = np.arange(len(ends))
    tied = (ends[None] == ends[:, None]) & (i[None] < i[:, None])
    rank = jnp.sum((ends[None] < ends[:, None]) | tied, axis=1)
    inner = jnp.sum(jnp.where(rank[None] == i[:, None], ends[None], 0.0), axis=1)
    edges = jnp.concatenate([jnp.zeros_like(dt)[None], inner, dt[None]])
    return edges, rank[None] < np.arange(len(ends) + 1)[:, None]

"""A scheme whose body starts afresh where an event has happened: episodes, impacts, separations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._internal.checks import instance, takes
from jaxquat.dynamics.contract import Step
from jaxquat.dynamics.state import State, describe, one_bool
from jaxquat.schemes.scheme import Scheme, StepArguments, StepAround, around, as_scheme


class Episode(NamedTuple):
    """The aux states of a body that counts its restarts.

    Attributes:
        number: how many restarts there were, a float () in the dtype of the state.
        aux: the aux states that the torque of the rollout receives and moves; none by default.

    Examples:
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.zeros(3))
        >>> counting = start._replace(aux=jq.schemes.Episode(jnp.zeros(())))
    """

    number: Array
    aux: Any = ()


def restart(
    scheme: Scheme | Step,
    ended: Callable[[Array, State, Any], Array],
    fresh: Callable[[Array, State, Any], State],
) -> Scheme:
    """Replace the state after a step of the scheme where an event has happened.

    Where ``ended(t, state, params)`` is true after a step, the state is ``fresh(t, state, params)``
    at the same time t: an episode ends and the next begins, a body hits the ground and its velocity
    is reflected, a stage separates. The event counts at the end of the step in which it happens, so
    the order is 1 at most.

    If ``state.aux`` is an ``Episode(number, aux)``, ``number`` counts the restarts. ``fresh`` gets
    the state with the number of the new episode, ``ended`` and controllers with that of the current
    one; the torque gets the inner aux states alone, so any scheme and torque work unchanged. For
    random restarts put a ``jax.random.key`` into params, one for each body; the key of an episode
    is ``fold_in(key, state.aux.number.astype(jnp.uint32))``. The memory of a controller goes on;
    one that must forget compares ``state.aux.number`` with the number in its memory.

    Derivatives are those along the path: after a restart they are the derivatives of ``fresh``. The
    instant of the event has none. ``fresh`` is computed after every step, so its derivatives must
    be finite there, too. In reverse mode, so must those of the step whose result is replaced: after
    an overflow the gradient is NaN (a tangent is not), so let an episode end well before that.
    ``checkpoint="reversible"`` is refused.

    Put ``restart`` outside of ``damp``, ``langevin`` and ``compose``, which refuse a restarted
    scheme. Random torques may be outside or inside.

    Args:
        scheme: any scheme, also a stochastic one, whose noise it gets.
        ended: ``ended(t, state, params) -> ()``, a bool.
        fresh: ``fresh(t, state, params) -> State``, with the fields, shapes and dtypes of the state
            given, and a unit quaternion, which is not checked. Wrap a scheme twice for two kinds of
            events; both count in ``Episode(n, Episode(m))``, n those of the outer one.

    Raises:
        TypeError: ``scheme`` is not a step, or a function does not take these arguments. In a step:
            ``ended`` returns no bool, or ``fresh`` no State.
        ValueError: in a step, the state of ``fresh`` differs in its fields, shapes or dtypes.

    Examples:
        >>> below = lambda t, state, params: state.position[2] < 0.0
        >>> def bounce(t, state, params):
        ...     return state._replace(velocity=state.velocity.at[2].multiply(-1.0))
        >>> bouncing = jq.schemes.restart(jq.rkmk2, below, bounce)
        >>> ball = jq.Body.sphere(0.5, radius=0.1)  # kg, m
        >>> low, down = jnp.zeros(3), jnp.array([0.0, 0.0, -2.0])  # m, m/s
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), low, position=low, velocity=down)
        >>> bouncing(ball, jq.forces.gravity(ball), 0.0, start, 1e-3, None).velocity[2].round(2)
        Array(2.01, dtype=float32)
    """
    scheme = as_scheme("scheme", scheme)
    takes("ended", ended, "t, state, params")
    takes("fresh", fresh, "t, state, params")
    step = Restarted(scheme, ended, fresh)
    return around(scheme, step, "restarted", 1, conserves=(), reversible=False, aux=True)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Restarted(StepAround):
    """The step of ``restart``."""

    outermost = "restarted"

    scheme: Scheme
    ended: Callable[..., Array]
    fresh: Callable[..., State]

    @property
    def noise(self) -> Callable[[State], int]:
        """The number of normals that a step takes; a deterministic scheme has no such attribute."""
        count = self.scheme.step.noise  # type: ignore[attr-defined]
        return lambda state: count(_inner(state))

    def take(self, at: StepArguments) -> State:
        """Take one step, and replace the state where it has ended."""
        state, end, params = at.state, at.t + at.dt, at.params
        after = begun = self.scheme(*at._replace(state=_inner(state)))
        if isinstance(state.aux, Episode):
            numbers = state.aux.number, state.aux.number + 1
            after, begun = (after._replace(aux=Episode(n, after.aux)) for n in numbers)
        ended = one_bool("ended", self.ended(end, after, params))
        anew = instance("fresh", self.fresh(end, begun, params), State, "a State back")
        wanted, got = describe(begun), describe(anew)
        if got != wanted:
            raise ValueError(f"fresh: wanted a state like the one given, {wanted}, got {got}")
        if isinstance(begun.aux, Episode):
            anew = anew._replace(aux=anew.aux._replace(number=begun.aux.number))
        return jax.tree.map(lambda x, y: jnp.where(ended, x, y), anew, after)


def _inner(state: State) -> State:
    """Return the state that the scheme itself moves."""
    return state._replace(aux=state.aux.aux) if isinstance(state.aux, Episode) else state

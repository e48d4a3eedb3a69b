"""A scheme that replaces the state where an event has happened: episodes, impacts, separations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._internal.checks import instance, takes
from jaxquat.dynamics.contract import Step
from jaxquat.dynamics.state import State, check_like, one_bool
from jaxquat.schemes.scheme import Scheme, StepArguments, StepAround, around, as_scheme


class Episode(NamedTuple):
    """The aux states of a body that counts its restarts.

    Attributes:
        number: the number of restarts, a float () in the dtype of the state.
        aux: the aux states that the torque receives and moves; none by default.

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
    """Replace the state after a step in which an event has happened: an episode's end, an impact.

    After a step for which ``ended(t, state, params)`` is true, the state becomes
    ``fresh(t, state, params)`` at the same time. The event counts at the end of its step, so the
    order is 1 at most. If ``state.aux`` is an ``Episode(number, aux)``, ``number`` counts the
    restarts. ``fresh`` gets the number of the new episode, ``ended`` and controllers that of the
    current one, and the torque the inner aux states alone. A controller keeps its memory.
    docs/policies.md has random restarts and controllers that reset.

    After a restart the derivatives are those of ``fresh``; the instant of the event has none.
    ``fresh`` runs after every step, so its derivatives must always be finite, in reverse mode also
    those of the replaced state: end an episode well before an overflow. ``checkpoint="reversible"``
    is refused. Put ``restart`` outside of ``damp``, ``langevin`` and ``compose``, which refuse a
    restarted scheme; random torques may be outside or inside.

    Args:
        scheme: any scheme; a stochastic one gets its noise.
        ended: ``ended(t, state, params) -> ()``, a bool.
        fresh: ``fresh(t, state, params) -> State``, with fields, shapes and dtypes as given, and a
            unit quaternion (not checked). For two kinds of events, restart twice, with aux
            ``Episode(n, Episode(m))``; n counts the outer ones.

    Raises:
        TypeError: ``scheme`` is not a step, or a function has other arguments or results.
        ValueError: in a step, the state of ``fresh`` differs in its fields, shapes or dtypes.

    Examples:
        >>> below = lambda t, state, params: state.position[2] < 0.0
        >>> bounce = lambda t, state, params: state._replace(velocity=-state.velocity)
        >>> bouncing = jq.schemes.restart(jq.rkmk2, below, bounce)
        >>> ball, low = jq.Body.sphere(0.5, radius=0.1), jnp.zeros(3)  # kg, m
        >>> down = jnp.array([0.0, 0.0, -2.0])  # m/s
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
        check_like("fresh", "a state like the one given", begun, anew)
        if isinstance(begun.aux, Episode):
            anew = anew._replace(aux=anew.aux._replace(number=begun.aux.number))
        return jax.tree.map(lambda x, y: jnp.where(ended, x, y), anew, after)


def _inner(state: State) -> State:
    return state._replace(aux=state.aux.aux) if isinstance(state.aux, Episode) else state

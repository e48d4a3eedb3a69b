"""A sampled controller with memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import arrays
from jaxquat.dynamics.state import State, describe


class Controller(NamedTuple):
    """A sampled controller with memory; its command stays the same between two samples.

    Attributes:
        init: ``init(start, params) -> memory``, any pytree of arrays.
        update: ``update(t, state, memory, params, input) -> (command, memory)``, called at each
            sample. The new memory must have the shapes and dtypes of the old one; ``input`` is this
            sample's slice of ``inputs`` or None; the command, any pytree, is passed to the torque.
        period: the time between two samples [s] that the controller assumes, if any. ``rollout``
            raises ValueError if a sample interval that is not empty has another length.

    Examples:
        >>> def update(t, state, memory, params, input):
        ...     memory = memory + 0.1 * state.omega  # the integral, sampled every 0.1 s
        ...     return -params * memory, memory
        >>> controller = jq.Controller(lambda start, params: jnp.zeros(3), update, period=0.1)
        >>> state = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([2.0, 2.0, 2.0]))
        >>> command, memory = controller.update(0.0, state, controller.init(state, 5.0), 5.0, None)
    """

    init: Callable[[State, Any], Any]
    update: Callable[[Array, State, Any, Any, Any], tuple[Any, Any]]
    period: ArrayLike | None = None

    def resume(self, memory: Any) -> Controller:
        """Return the controller that begins with this memory instead of that of ``init``.

        With ``path.memory``, and ``path.final`` as the start, a rollout goes on where another
        ended; noise needs a new key. The rollout raises TypeError for a memory unlike that of
        ``init``.

        Examples:
            >>> controller.resume(memory).init(state, 5.0).round(3)
            Array([0.2, 0.2, 0.2], dtype=float32)
        """
        memory = jax.tree.map(jnp.asarray, arrays("memory", memory))

        def init(start: State, params: Any) -> Any:
            wanted = arrays("controller.init", self.init(start, params))
            wanted, got = jax.tree.map(jnp.asarray, wanted), jax.tree.leaves(memory)
            alike = jax.tree.structure(wanted) == jax.tree.structure(memory)
            if not (alike and all(map(_fits, jax.tree.leaves(wanted), got))):
                text = f"a memory like that of controller.init, {describe(wanted)}"
                raise TypeError(f"memory: wanted {text}, got {describe(memory)}")
            return memory

        return self._replace(init=init)


def _fits(wanted: Array, got: Array) -> bool:
    return wanted.shape == got.shape and (wanted.dtype == got.dtype or _is_weak(wanted))


def update_of(
    controller: Controller, t: Array, state: State, memory: Any, params: Any, value: Any
) -> tuple[Any, Any]:
    """Call ``controller.update`` and check the result; ``value`` is this sample's input."""
    update = controller.update(t, state, memory, params, value)
    if not (isinstance(update, tuple) and len(update) == 2):
        shapes = jax.tree.map(jnp.shape, update)
        raise TypeError(f"controller.update: wanted (command, memory), got {shapes}")
    command, after = arrays("controller.update", update)
    _check_alike("shapes", memory, after, jnp.shape)
    after = jax.tree.map(_kept, after, memory)
    _check_alike("dtypes", settled(memory, after), after, lambda x: str(jnp.asarray(x).dtype))
    return jax.tree.map(jnp.asarray, command), after


def settled(memory: Any, after: Any) -> Any:
    """Return the memory with each Python number in the dtype that it has after an update."""

    def one(x: Any, after: Any) -> Array:
        x = jnp.asarray(x)
        return x.astype(jnp.result_type(x, after)) if _is_weak(x) else x

    return jax.tree.map(one, memory, after)


def _kept(after: Any, before: Any) -> Any:
    """Return a leaf after an update, a Python number in the old dtype if that can hold it."""
    if _is_weak(after) and not _is_weak(before):
        dtype = jnp.asarray(before).dtype
        return jnp.asarray(after, dtype) if jnp.result_type(before, after) == dtype else after
    return after


def _is_weak(x: Any) -> bool:
    return jax.typeof(jnp.asarray(x)).weak_type


def _check_alike(what: str, before: Any, after: Any, fact: Callable[[Any], Any]) -> None:
    wanted, got = jax.tree.map(fact, before), jax.tree.map(fact, after)
    if wanted != got:
        kind = f"a memory with the {what} of the one given"
        raise TypeError(f"controller.update: wanted {kind}, {wanted}, got {got}")

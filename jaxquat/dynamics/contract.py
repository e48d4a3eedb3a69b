"""What a torque is given and must return, and what a step is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import jaxpr_as_fun
from jax.typing import ArrayLike

from jaxquat._checks import exactly, instance, takes
from jaxquat._jaxprs import depends_on
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.state import State, describe, one_body

Torque = Callable[..., Any]
"""``torque(t, state, params) -> (3,)`` in body axes [N m]; with aux states ``-> (torque, d aux/dt)``."""


Step = Callable[[Body, Torque, ArrayLike, State, ArrayLike, Any], State]
"""``step(body, torque, t, state, dt, params) -> state``: every scheme is one of these."""


def evaluate(torque: Torque, t: ArrayLike, state: State, params: Any) -> tuple[Array, Any]:
    """(torque, d aux/dt), checked for shape and dtype.

    With aux states the torque returns both, otherwise the torque alone.
    """
    tau, rates = takes("torque", torque, "t, state, params")(t, state, params), state.aux
    name = torque_name(torque)
    if jax.tree.leaves(state.aux):
        if not (isinstance(tau, tuple) and len(tau) == 2):
            raise TypeError(
                f"{name}: wanted (torque, d aux/dt) because the state has aux, got {describe(tau)}"
            )
        tau, rates = check_rates(name, tau, state)
    return check_torque(name, tau, state), rates


def evaluate_at_attitude(
    scheme: str, torque: Torque, t: ArrayLike, state: State, params: Any
) -> Array:
    """The torque for a scheme that admits torques of time and attitude only; TypeError if it depends on the rate."""
    without_aux(scheme, state)

    def alone(omega: Array) -> Array:
        return evaluate(torque, t, State(state.q, omega), params)[0]

    traced = jax.make_jaxpr(alone)(state.omega)
    if any(depends_on(traced, [True])):
        raise TypeError(
            f"{scheme}: wanted a torque of time and attitude, got {torque_name(torque)}, which reads state.omega"
        )
    return jaxpr_as_fun(traced)(state.omega)[0]


def without_aux(scheme: str, state: State) -> None:
    """TypeError if the state has aux states."""
    if jax.tree.leaves(state.aux):
        raise TypeError(
            f"{scheme}: wanted a state without aux, got {describe(state.aux)}; jq.rkmk4 integrates aux states"
        )


def commanded(torque: Torque, held: Any) -> Torque:
    """The torque of (t, state, params) while ``held`` is what is commanded."""

    def torque_then(t: ArrayLike, state: State, params: Any) -> Any:
        return torque(t, state, params, held)

    return named(name_of(torque), torque_then)


def named(name: str, torque: Torque) -> Torque:
    """The torque with this name for error messages."""
    torque.__name__ = name
    return torque


def name_of(torque: Torque) -> str:
    """For error messages."""
    return getattr(torque, "__name__", repr(torque))


def torque_name(torque: Torque) -> str:
    """For error messages."""
    return f"torque {name_of(torque)}"


def check_torque(name: str, tau: Any, state: State) -> Array:
    """The torque alone, (3,) in the dtype of the state, or an error that names it."""
    if not hasattr(tau, "dtype") or tau.shape != (3,) or not _same_dtype(tau, state.omega):
        wanted = f"an array of shape (3,) and dtype {state.omega.dtype}"
        raise (ValueError if hasattr(tau, "shape") else TypeError)(
            f"{name}: wanted {wanted}, got {describe(tau)}"
        )
    return tau


def check_rates(name: str, pair: tuple[Any, Any], state: State) -> tuple[Any, Any]:
    """(torque, d aux/dt) if the rates are like ``state.aux``, or an error that names the torque."""
    wanted, got = describe(state.aux), describe(pair[1])
    if wanted != got:
        raise ValueError(f"{name}: wanted d aux/dt like state.aux, {wanted}, got {got}")
    return pair


def check_step(body: Body, t: ArrayLike, state: State, dt: ArrayLike) -> tuple[Array, State, Array]:
    """The time, the state and the step, arrays of one dtype; TypeError and ValueError for what is no body and no state of one.

    Values are checked by ``check_state``, once for a trajectory.
    """
    instance("body", body, Body, "a jq.Body")
    state = one_body("state", state)
    dtype = state.q.dtype
    for leaf in jax.tree.leaves(body):
        if leaf.dtype != dtype:
            raise TypeError(f"body: wanted the dtype of the state, {dtype}, got {leaf.dtype}")
    return jnp.asarray(exactly("t", t, ()), dtype), state, jnp.asarray(exactly("dt", dt, ()), dtype)


def _same_dtype(value: Array, reference: Array) -> bool:
    return value.dtype == reference.dtype or getattr(value, "weak_type", False)

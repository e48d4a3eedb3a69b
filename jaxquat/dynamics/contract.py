"""The contract of a torque, the checks of what it returns, and the arguments of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import jaxpr_as_fun
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, finite, instance, one_shape, same_dtype, takes
from jaxquat._internal.jaxprs import depends_on
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.state import State, Wrench, check_like, describe, one_body


class Torque(Protocol):
    """The torque on a body about its centre of mass: a pure function of time, state and params.

    ``jq.torques`` has factories of common ones, ``jq.torques.total`` adds several. JAX traces a
    torque as under ``jit``: use ``jnp.where`` instead of ``if``, and no side effects. A scheme
    calls it several times per step, at intermediate times and states. Here a spring and a damper
    pull the body to the attitude (1, 0, 0, 0):

        def spring(t, state, params):
            angle = quaternion.log(state.q)  # rotation vector [rad]
            return -params["stiffness"] * angle - params["damping"] * state.omega

    With a controller or inputs, the command is the fourth argument:

        def motors(t, state, params, command):
            return params["efficiency"] * command - params["damping"] * state.omega

    With aux states, it returns their rates, too. Here aux is the momentum of three wheels along the
    body axes [N m s], and the command the torque of their motors:

        def wheels(t, state, params, command):
            return -command - jnp.cross(state.omega, state.aux), command

    With a position, it may return a ``Wrench``, with the force in world axes. Here a weight falls:

        def falling(t, state, params):
            return Wrench(-params["damping"] * state.omega, params["weight"])

    Examples:
        >>> spring = lambda t, state, stiffness: -stiffness * jq.quaternion.log(state.q)
        >>> spring(0.0, state, 2.0).shape
        (3,)
    """

    # With **_ after *command, type checkers accept torques with a command and torques without.
    def __call__(self, t: Array, state: State, params: Any, /, *command: Any, **_: Any) -> Any:
        """Return the torque on one body at one time.

        Args:
            t: time [s], () in the dtype of the state.
            state: a ``State`` of one body, also when ``jax.vmap`` maps a rollout over many.
            params: the params of the rollout, any pytree, unchanged.
            *command: the controller's command, or this sample's inputs; absent without either.

        Returns:
            The torque (3,) in body axes [N m], or a ``Wrench`` if the state has a position, in the
                dtype of the state. If the state has aux, a pair of this and d aux/dt [1/s], a
                pytree like aux.

        A step checks this while it is traced; the errors name the torque: TypeError for wrong
        arguments, a result that is no array, missing rates, a Wrench without position; ValueError
        for a wrong shape or dtype. ``rollout(..., check=True)`` reports states that are not finite.
        """


Step = Callable[[Body, Torque, ArrayLike, State, ArrayLike, Any], State]
"""``step(body, torque, t, state, dt, params) -> state``: every scheme is one of these."""


class Parts(NamedTuple):
    """The checked parts of what a torque returned; ``aux_rates`` and ``force`` may be None."""

    torque: Array
    aux_rates: Any
    force: Array | None = None

    def joined(self) -> Any:
        """Return the value that a torque with these parts returns."""
        acting = self.torque if self.force is None else Wrench(self.torque, self.force)
        return acting if self.aux_rates is None else (acting, self.aux_rates)


def evaluate(torque: Torque, t: ArrayLike, state: State, params: Any) -> Parts:
    """Return the checked parts of a torque; the force is 0, not None, if there is a position."""
    returned = takes("torque", torque, "t, state, params")(t, state, params)
    name = f"torque {name_of(torque)}"
    if jax.tree.leaves(state.aux) and not _is_pair(returned):
        wanted = "(torque, d aux/dt) because the state has aux"
        raise TypeError(f"{name}: wanted {wanted}, got {describe(returned)}")
    parts = check_parts(name, returned, state)
    force = parts.force
    if force is None and state.velocity is not None:
        force = jnp.zeros_like(state.velocity)
    return Parts(parts.torque, state.aux if parts.aux_rates is None else parts.aux_rates, force)


def evaluate_at_attitude(
    name: str, torque: Torque, t: ArrayLike, state: State, params: Any
) -> tuple[Array, Array | None]:
    """Return (torque, force or None); TypeError if a rate changes them, or for aux states."""
    without_aux(name, state)

    def acting(state: State) -> list[Array]:
        parts = evaluate(torque, t, state, params)
        return jax.tree.leaves((parts.torque, parts.force))

    tau, *force = _at_attitude(name, f"torque {name_of(torque)}", acting, state)
    return tau, force[0] if force else None


def rate_at_attitude(
    name: str, role: str, rate: Callable[..., Array], t: ArrayLike, state: State, params: Any
) -> Array:
    """Return a rate (3,), ``role``, of time and attitude; TypeError if a rate changes it."""

    def rates(state: State) -> list[Array]:
        return [of_state(role, rate, (3,))(t, state, params).astype(state.omega.dtype)]

    return _at_attitude(name, role, rates, state)[0]


def _at_attitude(
    name: str, role: str, function: Callable[[State], list[Array]], state: State
) -> list[Array]:
    """Return ``function(state)``; TypeError if it depends on a rate or velocity of the state."""
    rates = {name: getattr(state, name) for name in ("omega", "velocity")}
    rates = {name: rate for name, rate in rates.items() if rate is not None}
    traced = jax.make_jaxpr(lambda rates: function(state._replace(**rates)))(rates)
    for field in rates:
        if any(depends_on(traced, [name == field for name in rates])):
            kind = role.split()[0]
            wanted = f"a {kind} of time and attitude"
            raise TypeError(f"{name}: wanted {wanted}, got {role}, which reads state.{field}")
    return jaxpr_as_fun(traced)(*rates.values())


def wind_at(wind: Any) -> Callable[..., Array]:
    """Return the velocity of the air as a function of (t, position)."""
    if callable(wind):
        takes("wind", wind, "t, position")
        return lambda t, position: exactly("wind(...)", wind(t, position), (3,))
    vector = constant_of("wind", wind, (3,))
    return lambda t, position: vector


def of_state(name: str, value: Any, shape: tuple[int, ...]) -> Callable[..., Array]:
    """Return an array, or a function that returns one, as a function with a torque's arguments."""
    if not callable(value):
        array = constant_of(name, value, shape)
        return lambda t, state, params, *command: array

    def at(t: ArrayLike, state: State, params: Any, *command: Any) -> Array:
        arguments = "t, state, params, command" if command else "t, state, params"
        takes(name, value, arguments)
        return exactly(f"{name}(...)", value(t, state, params, *command), shape)

    return at


def constant_of(name: str, value: Any, *shapes: tuple[int, ...]) -> Array:
    """Return ``value`` as a finite floating array of one of these shapes."""
    array = one_shape(name, value, *shapes)
    finite(name, array)
    return array


def without_aux(name: str, state: State) -> None:
    """Raise TypeError, which names the scheme, if the state has aux states."""
    if jax.tree.leaves(state.aux):
        got = f"{describe(state.aux)}; jq.rkmk4 integrates aux states"
        raise TypeError(f"{name}: wanted a state without aux, got {got}")


def without_position(name: str, state: State) -> None:
    """Raise TypeError, which names the scheme, if the state has a position."""
    if state.position is not None:
        got = "one with position; jq.rkmk4 integrates it"
        raise TypeError(f"{name}: wanted a state without position, got {got}")


@dataclass(frozen=True)
class Commanded:
    """A torque as a function of (t, state, params) only; it passes ``command`` at every call."""

    torque: Torque
    command: Any

    @property
    def __name__(self) -> str:
        return name_of(self.torque)

    def __call__(self, t: Array, state: State, params: Any) -> Any:
        """Return the torque at this command."""
        return self.torque(t, state, params, self.command)


def given_command_of(torque: Torque, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function``, bound to the command of ``torque`` if that has one."""
    return Commanded(function, torque.command) if isinstance(torque, Commanded) else function


def name_of(torque: Torque) -> str:
    """Return the name of a torque in messages: that of a function, or the repr."""
    return getattr(torque, "__name__", repr(torque))


def check_parts(name: str, returned: Any, state: State) -> Parts:
    """Return the parts of what ``name`` returned; aux rates may be missing, as in a sum."""
    tau, rates, force = returned, None, None
    if jax.tree.leaves(state.aux) and _is_pair(returned):
        tau, rates = returned
        check_like(name, "d aux/dt like state.aux", state.aux, rates)
    elif _is_pair(returned):
        wrench = "" if state.position is None else " or a jq.Wrench"
        wanted = f"an array of shape (3,){wrench}"
        hint = "for d aux/dt, put the initial aux states into the start"
        got = f"{describe(returned)} for a state without aux"
        raise TypeError(f"{name}: wanted {wanted}, got {got}; {hint}")
    if isinstance(tau, Wrench):
        if state.position is None:
            wanted = "a torque alone because the state has no position"
            raise TypeError(f"{name}: wanted {wanted}, got a jq.Wrench")
        tau, force = tau
        _check_part(f"{name}, force", force, state)
        name = f"{name}, torque of the Wrench"
    _check_part(name, tau, state)
    return Parts(tau, rates, force)


def check_step(body: Body, t: ArrayLike, state: State, dt: ArrayLike) -> tuple[Array, State, Array]:
    """Return time, state and step as arrays of one dtype; ``check_state`` checks the values."""
    instance("body", body, Body, "a jq.Body")
    state = one_body("state", state)
    dtype = state.q.dtype
    for leaf in jax.tree.leaves(body):
        same_dtype("body", leaf, dtype, "the state")
    if state.position is not None and body.mass is None:
        wanted = "a mass because the state has a position"
        raise ValueError(f"body: wanted {wanted}, got none; jq.Body(inertia, mass) has one")
    return jnp.asarray(exactly("t", t, ()), dtype), state, jnp.asarray(exactly("dt", dt, ()), dtype)


def _is_pair(returned: Any) -> bool:
    return isinstance(returned, tuple) and len(returned) == 2 and not isinstance(returned, Wrench)


def _check_part(name: str, part: Any, state: State) -> None:
    of_three = hasattr(part, "dtype") and part.shape == (3,)
    weak = getattr(part, "weak_type", False)
    if not of_three or not (weak or part.dtype == state.omega.dtype):
        error = ValueError if hasattr(part, "shape") else TypeError
        wanted = f"an array of shape (3,) and dtype {state.omega.dtype}"
        raise error(f"{name}: wanted {wanted}, got {describe(part)}")

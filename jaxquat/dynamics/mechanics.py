"""The motion of one rigid body: its state, Euler's equation, the torque's contract, and error states.

``q' = 1/2 q (0, omega)`` and ``I omega' = tau - omega × (I omega)``, all in body axes; conventions in ``jaxquat.quaternion``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import jaxpr_as_fun
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxquat._checks import (
    arrays,
    exactly,
    finite,
    floating,
    instance,
    takes,
    trailing,
    unit_quaternion,
)
from jaxquat._jaxprs import dependent
from jaxquat._linear import cross, dot, inverse_inertia, matvec
from jaxquat.dynamics.body import Body
from jaxquat.rotations import quaternion

__all__ = [
    "State",
    "Step",
    "Torque",
    "angular_acceleration",
    "derivative",
    "energy",
    "linearize",
    "local",
    "momentum",
    "retract",
]


class State(NamedTuple):
    """One body's state, float32 or float64 throughout. A batch is a State with leading axes, made and used under ``jax.vmap``.

    Attributes:
        q: attitude, body to world, a unit quaternion (4,), scalar first; ``quaternion.from_xyzw`` takes those of scipy and ROS.
        omega: angular velocity, body axes [rad/s], (3,).
        aux: any pytree of further vector-space states, such as wheel momentum or actuator lag; the torque then returns a pair,
            ``(torque, d aux/dt)``.
    """

    q: Array
    omega: Array
    aux: Any = ()


Torque = Callable[..., Any]
"""``torque(t, state, params) -> (3,)`` in body axes [N m]; with aux states ``-> (torque, d aux/dt)``."""

Step = Callable[[Body, Torque, ArrayLike, State, ArrayLike, Any], State]
"""``step(body, torque, t, state, dt, params) -> state``: every scheme is one of these."""


def angular_acceleration(body: Body, omega: Array, tau: Array) -> Array:
    """Euler's equation: ``omega' = I^-1 (tau - omega × (I omega))``. (3,) [rad/s], (3,) [N m] -> (3,) [rad/s^2].

    In body axes, all of one dtype.
    """
    instance("body", body, Body, "a jq.Body")
    omega, tau, inertia = trailing("omega", omega, (3,)), trailing("tau", tau, (3,)), body.inertia
    return matvec(inverse_inertia(inertia), tau - cross(omega, matvec(inertia, omega)))


def energy(body: Body, state: State) -> Array:
    """Kinetic energy of the rotation ``1/2 omega . I omega`` [J]. -> ()."""
    instance("body", body, Body, "a jq.Body")
    state = broadcastable("state", state)
    return 0.5 * dot(state.omega, matvec(body.inertia, state.omega))


def momentum(body: Body, state: State) -> Array:
    """Angular momentum of the body in WORLD axes [N m s]. -> (3,)."""
    instance("body", body, Body, "a jq.Body")
    state = broadcastable("state", state)
    return quaternion.rotate(state.q, matvec(body.inertia, state.omega))


def derivative(
    body: Body, torque: Torque, t: ArrayLike, state: State, params: Any
) -> tuple[Array, Any]:
    """(omega', aux') of one body at time t [s], by Euler's equation and the torque: (3,) [rad/s^2], and a pytree like aux, per s.

    ValueError or TypeError, with its name, for a torque of another shape or dtype than the state has.
    """
    t, state, _ = check_step(body, t, state, 0.0)
    tau, rates = evaluate(torque, t, state, params)
    return angular_acceleration(body, state.omega, tau), rates


def evaluate(torque: Torque, t: ArrayLike, state: State, params: Any) -> tuple[Array, Any]:
    """(torque, d aux/dt), checked for shape and dtype.

    With aux states the torque returns both, otherwise the torque alone.
    """
    tau, rates = takes("torque", torque, "t, state, params")(t, state, params), state.aux
    name = torque_name(torque)
    if jax.tree.leaves(state.aux):
        if not (isinstance(tau, tuple) and len(tau) == 2):
            raise TypeError(
                f"{name}: wanted (torque, d aux/dt) because the state has aux, got {_describe(tau)}"
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
    if any(dependent(traced, [True])):
        raise TypeError(
            f"{scheme}: wanted a torque of time and attitude, got {torque_name(torque)}, which reads state.omega"
        )
    return jaxpr_as_fun(traced)(state.omega)[0]


def without_aux(scheme: str, state: State) -> None:
    """TypeError if the state has aux states."""
    if jax.tree.leaves(state.aux):
        raise TypeError(
            f"{scheme}: wanted a state without aux, got {_describe(state.aux)}; jq.rkmk4 integrates aux states"
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
            f"{name}: wanted {wanted}, got {_describe(tau)}"
        )
    return tau


def check_rates(name: str, pair: tuple[Any, Any], state: State) -> tuple[Any, Any]:
    """(torque, d aux/dt) if the rates are like ``state.aux``, or an error that names the torque."""
    wanted, got = _describe(state.aux), _describe(pair[1])
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


def _describe(tree: Any) -> str:
    return str(
        jax.tree.map(
            lambda x: f"{x.dtype}{list(x.shape)}" if hasattr(x, "dtype") else type(x).__name__, tree
        )
    )


def check_state(name: str, state: State) -> State:
    """A State of one body, its arrays as JAX arrays, finite and with a unit quaternion, or an error that names the field."""
    state = one_body(name, state)
    finite(f"{name}.omega", state.omega)
    unit_quaternion(f"{name}.q", state.q)
    for leaf in jax.tree.leaves(state.aux):
        finite(f"{name}.aux", leaf)
    return state


def one_body(name: str, state: State) -> State:
    """A State of JAX arrays of the right shapes and one dtype, or an error that names the field."""
    instance(name, state, State, "a jq.State")
    q, omega = (
        _of_one_body(f"{name}.q", state.q, (4,)),
        _of_one_body(f"{name}.omega", state.omega, (3,)),
    )
    aux = jax.tree.map(lambda leaf: floating(f"{name}.aux", leaf), state.aux)
    for leaf in jax.tree.leaves((omega, aux)):
        if leaf.dtype != q.dtype:
            raise TypeError(f"{name}: wanted one dtype, got q {q.dtype} beside {leaf.dtype}")
    return State(q, omega, aux)


def broadcastable(name: str, state: State) -> State:
    """A State of arrays, of one body or with leading axes, or an error that names the field."""
    instance(name, state, State, "a jq.State")
    return state._replace(
        q=trailing(f"{name}.q", state.q, (4,)), omega=trailing(f"{name}.omega", state.omega, (3,))
    )


def _of_one_body(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    array = floating(name, value)
    hint = (
        "; steps and rollouts see one body: use jax.vmap for a batch"
        if array.ndim > len(shape)
        else ""
    )
    return exactly(name, array, shape, hint)


def retract(state: State, delta: ArrayLike) -> State:
    """The state at the error ``delta``: attitude ``q exp(delta[:3])``, rate and aux plus the rest. (6 + size of aux,) -> State."""
    state = one_body("state", state)
    aux, unravel = ravel_pytree(state.aux)
    delta = exactly("delta", delta, (6 + aux.size,))
    if delta.dtype != state.q.dtype:
        raise TypeError(f"delta: wanted the dtype of the state, {state.q.dtype}, got {delta.dtype}")
    q = quaternion.correct_norm(quaternion.multiply(state.q, quaternion.exp(delta[:3])))
    return State(q, state.omega + delta[3:6], unravel(aux + delta[6:]) if aux.size else state.aux)


def local(a: State, b: State) -> Array:
    """The error of b seen from a, in a's body axes: ``retract(a, local(a, b)) = b``. -> (6 + size of aux,).

    (rotation vector ``log(qa* qb)`` [rad], rate difference [rad/s], aux difference). Smooth while the attitudes differ by less
    than a half turn.
    """
    a, b = one_body("a", a), one_body("b", b)
    if _describe(a.aux) != _describe(b.aux):
        raise ValueError(
            f"b: wanted aux states like those of a, {_describe(a.aux)}, got {_describe(b.aux)}"
        )
    u = quaternion.log(quaternion.relative(a.q, b.q))
    aux = [ravel_pytree(b.aux)[0] - ravel_pytree(a.aux)[0]] if jax.tree.leaves(a.aux) else []
    return jnp.concatenate([u, b.omega - a.omega, *aux])


def linearize(
    step: Step, body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any
) -> tuple[Array, Array]:
    """One step about ``state`` in error coordinates: ``local(next, step(...)) = A delta + B d params`` to first order.

    A is (n, n), B (n, m): n = 6 + size of aux, m the number of parameters, in the order of ``ravel_pytree(params)``. For an LQR let
    the parameters be the commanded torque: ``torque = lambda t, state, u: u``.
    """
    takes("step", step, "body, torque, t, state, dt, params")
    state = one_body("state", state)
    flat, unravel = ravel_pytree(arrays("params", params))
    if not flat.size:
        flat = jnp.zeros(0, state.q.dtype)
    following = step(body, torque, t, state, dt, params)

    def error(delta: Array, vector: Array) -> Array:
        return local(following, step(body, torque, t, retract(state, delta), dt, unravel(vector)))

    zero = jnp.zeros(6 + ravel_pytree(state.aux)[0].size, state.q.dtype)
    a, b = jax.jacfwd(error, argnums=(0, 1))(zero, flat)
    return a, b

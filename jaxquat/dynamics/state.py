"""The state of one rigid body, errors between two states, and the checks of a state that is given."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxquat._checks import exactly, finite, floating, instance, trailing, unit_quaternion
from jaxquat.rotations import quaternion


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
    if describe(a.aux) != describe(b.aux):
        raise ValueError(
            f"b: wanted aux states like those of a, {describe(a.aux)}, got {describe(b.aux)}"
        )
    u = quaternion.log(quaternion.relative(a.q, b.q))
    aux = [ravel_pytree(b.aux)[0] - ravel_pytree(a.aux)[0]] if jax.tree.leaves(a.aux) else []
    return jnp.concatenate([u, b.omega - a.omega, *aux])


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


def describe(tree: Any) -> str:
    """Dtypes and shapes of the leaves, for error messages."""
    return str(
        jax.tree.map(
            lambda x: f"{x.dtype}{list(x.shape)}" if hasattr(x, "dtype") else type(x).__name__, tree
        )
    )

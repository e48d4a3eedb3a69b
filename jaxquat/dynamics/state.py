"""The state of one rigid body, the error between two states, and the checks of a state."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxquat import _reprs
from jaxquat._checks import exactly, finite, floating, instance, trailing, unit_quaternion
from jaxquat.rotations import quaternion


class State(NamedTuple):
    """The state of one body, float32 or float64 throughout.

    A batch is a State with leading axes, made and used under ``jax.vmap``.

    Attributes:
        q: attitude, body to world, a unit quaternion (4,), scalar first; ``quaternion.from_xyzw``
            takes those of scipy and ROS.
        omega: angular velocity, body axes [rad/s], (3,).
        aux: any pytree of further vector-space states, such as wheel momentum or actuator lag; the
            torque then returns a pair, ``(torque, d aux/dt)``.
    """

    q: Array
    omega: Array
    aux: Any = ()


def retract(state: State, delta: ArrayLike) -> State:
    """The state that differs from ``state`` by the error ``delta``. (6 + size of aux,) -> State.

    Its attitude is ``q exp(delta[:3])``, its rate ``omega + delta[3:6]``; the other elements are
    added to aux. Inverse of ``local``.
    """
    state = one_body("state", state)
    aux, unravel = ravel_pytree(state.aux)
    delta = exactly("delta", delta, (6 + aux.size,))
    if delta.dtype != state.q.dtype:
        raise TypeError(f"delta: wanted the dtype of the state, {state.q.dtype}, got {delta.dtype}")
    q = quaternion.correct_norm(quaternion.multiply(state.q, quaternion.exp(delta[:3])))
    return State(q, state.omega + delta[3:6], unravel(aux + delta[6:]) if aux.size else state.aux)


def local(a: State, b: State) -> Array:
    """The error of b seen from a, so that ``retract(a, local(a, b)) = b``. -> (6 + size of aux,).

    It is the rotation vector ``log(qa* qb)`` [rad] in a's body axes, the difference of the rates
    [rad/s] and that of aux. It is smooth while the attitudes differ by less than a half turn.
    """
    a, b = one_body("a", a), one_body("b", b)
    wanted, got = describe(a.aux), describe(b.aux)
    if got != wanted:
        raise ValueError(f"b: wanted aux states like those of a, {wanted}, got {got}")
    u = quaternion.log(quaternion.relative(a.q, b.q))
    aux = [ravel_pytree(b.aux)[0] - ravel_pytree(a.aux)[0]] if jax.tree.leaves(a.aux) else []
    return jnp.concatenate([u, b.omega - a.omega, *aux])


def check_state(name: str, state: State) -> State:
    """A State of JAX arrays, of one body, finite and with a unit quaternion, or an error.

    The error names the field.
    """
    state = one_body(name, state)
    finite(f"{name}.omega", state.omega)
    unit_quaternion(f"{name}.q", state.q)
    for leaf in jax.tree.leaves(state.aux):
        finite(f"{name}.aux", leaf)
    return state


def one_body(name: str, state: State) -> State:
    """A State of JAX arrays of the right shapes and one dtype, or an error that names the field."""
    instance(name, state, State, "a jq.State")
    q = _of_one_body(f"{name}.q", state.q, (4,))
    omega = _of_one_body(f"{name}.omega", state.omega, (3,))
    aux = jax.tree.map(lambda leaf: floating(f"{name}.aux", leaf), state.aux)
    for leaf in jax.tree.leaves((omega, aux)):
        if leaf.dtype != q.dtype:
            raise TypeError(f"{name}: wanted one dtype, got q {q.dtype} beside {leaf.dtype}")
    return State(q, omega, aux)


def broadcastable(name: str, state: State) -> State:
    """A State of arrays, of one body or with leading axes, or an error that names the field."""
    instance(name, state, State, "a jq.State")
    q = trailing(f"{name}.q", state.q, (4,))
    return state._replace(q=q, omega=trailing(f"{name}.omega", state.omega, (3,)))


def _of_one_body(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    array = floating(name, value)
    hint = "; steps and rollouts see one body: use jax.vmap for a batch"
    return exactly(name, array, shape, hint if array.ndim > len(shape) else "")


def describe(tree: Any) -> str:
    """The tree with dtype and shape for each leaf, for error messages."""
    return str(jax.tree.map(_reprs.shape, tree))

"""The state of one rigid body, the error between two states, and the checks of a state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxquat import quaternion
from jaxquat._internal import checks, reprs


class State(NamedTuple):
    """The state of one body, float32 or float64 throughout; under ``jax.vmap``, of many.

    Attributes:
        q: attitude, body to world, a unit quaternion (4,), scalar first; ``quaternion.from_xyzw``
            converts those of scipy and ROS.
        omega: angular velocity, body axes [rad/s], (3,).
        aux: any pytree of further vector-space states, such as wheel momentum or actuator lag; the
            torque then returns a pair, ``(torque, d aux/dt)``.
        position: of the centre of mass, world axes [m], (3,), or None. With it the ``Body`` needs a
            mass, and the torque may return a ``Wrench``.
        velocity: its derivative, world axes [m/s], (3,).

    Examples:
        >>> start = jq.State(q=jnp.array([1.0, 0.0, 0.0, 0.0]), omega=jnp.array([0.0, 0.0, 0.1]))
        >>> flying = start._replace(position=jnp.zeros(3), velocity=jnp.array([10.0, 0.0, 0.0]))
    """

    q: Array
    omega: Array
    aux: Any = ()
    position: Any = None  # an Array or None, and so is the velocity
    velocity: Any = None


class Wrench(NamedTuple):
    """A torque in body axes and a force in world axes.

    Attributes:
        torque: about the centre of mass, BODY axes [N m], (3,).
        force: WORLD axes [N], (3,).

    Examples:
        >>> push = lambda t, state, params: jq.Wrench(jnp.zeros(3), jnp.array([6.0, 0.0, 0.0]))
    """

    torque: Array
    force: Array


class Rates(NamedTuple):
    """The time derivatives of a state, except that of its attitude, per second.

    Attributes:
        omega: body axes [rad/s^2], (3,).
        aux: a pytree like ``state.aux``.
        position: the velocity, world axes [m/s], (3,); None without a position.
        velocity: world axes [m/s^2], (3,); None without a position.

    Examples:
        >>> rates = jq.dynamics.derivative(body, jq.torques.zero, 0.0, state, None)
    """

    omega: Array
    aux: Any
    position: Any = None  # an Array or None, and so is the velocity
    velocity: Any = None


def displaced(state: State, q: Array, shift: Rates) -> State:
    """Return the state with attitude ``q``; all else is ``state`` plus ``shift``."""
    others = Rates(state.omega, state.aux, state.position, state.velocity)
    return State(q, *jax.tree.map(jnp.add, others, shift))


def retract(state: State, delta: ArrayLike) -> State:
    """Return the state at the error ``delta`` (n,) from ``state``: the inverse of ``local``.

    Its attitude is ``q exp(delta[:3])``, its rate ``omega + delta[3:6]``. The next six elements are
    added to position and velocity, if there are any, the others to aux.

    Examples:
        >>> delta = jnp.array([0.0, 0.0, jnp.pi / 3, 0.0, 0.0, 0.5])  # 60 deg and 0.5 rad/s about z
        >>> jq.dynamics.retract(state, delta).omega
        Array([0. , 0. , 2.5], dtype=float32)
    """
    state = one_body("state", state)
    delta = checks.exactly("delta", delta, (error_size(state),))
    checks.same_dtype("delta", delta, state.q.dtype, "the state")
    q = quaternion.correct_norm(quaternion.multiply(state.q, quaternion.exp(delta[:3])))
    return _shifted(state, q, delta[3:])


def near(state: State, delta: Array) -> State:
    """Return ``retract`` to second order: its value and two derivatives at 0, in less code."""
    # ``exp(u)`` is ``(1 - u . u/8, u/2)`` to this order.
    half = 0.5 * delta[:3]
    turn = jnp.concatenate([1.0 - 0.5 * jnp.sum(half * half, keepdims=True), half])
    return _shifted(state, quaternion.multiply(state.q, turn), delta[3:])


def _shifted(state: State, q: Array, shift: Array) -> State:
    """Return the state with attitude ``q``; all else is ``state`` plus ``shift``, flat."""
    others, unravel = ravel_pytree(_vectors(state))
    omega, position, velocity, aux = unravel(others + shift)
    return State(q, omega, aux, position, velocity)


def local(a: State, b: State) -> Array:
    """Return the error of b relative to a, so that ``retract(a, local(a, b)) = b``. -> (n,).

    Its elements are ``log(qa* qb)`` [rad] in a's body axes and the differences of the rates, of
    position and velocity if there are any, and of aux. It is smooth up to a half turn between a and
    b.

    Examples:
        >>> other = jq.State(jq.quaternion.exp(jnp.array([0.0, 0.0, 0.3])), 1.5 * state.omega)
        >>> jq.dynamics.local(state, other).round(3)  # rad and rad/s
        Array([0. , 0. , 0.3, 0. , 0. , 1. ], dtype=float32)
    """
    a, b = one_body("a", a), one_body("b", b)
    check_alike("b", b, "a", a)
    u = quaternion.log(quaternion.relative(a.q, b.q))
    others = jax.tree.map(jnp.subtract, _vectors(b), _vectors(a))
    return jnp.concatenate([u, ravel_pytree(others)[0]])


def _vectors(state: State) -> tuple[Any, ...]:
    """Return all but the attitude, in the order of the error."""
    return state.omega, state.position, state.velocity, state.aux


def check_alike(name: str, state: State, like: str, other: State) -> None:
    """Raise ValueError if the states differ in the structure of aux or in having a position."""
    check_like(name, f"aux states like those of {like}", other.aux, state.aux)
    if (other.position is None) != (state.position is None):
        wanted, got = ("with", "without") if state.position is None else ("without", "with")
        raise ValueError(f"{name}: wanted a state {wanted} position, like {like}, got one {got}")


def error_size(state: State) -> int:
    """Return the number of elements of ``local`` for states like this one."""
    return 3 + sum(leaf.size for leaf in jax.tree.leaves(state[1:]))


def check_state(name: str, state: State) -> State:
    """Return ``one_body(name, state)``, checked to be finite with a unit quaternion."""
    state = one_body(name, state)
    checks.unit_quaternion(f"{name}.q", state.q)
    for field in ("omega", "aux", "position", "velocity"):
        for leaf in jax.tree.leaves(getattr(state, field)):
            checks.finite(f"{name}.{field}", leaf)
    return state


def one_body(name: str, state: State) -> State:
    """Return the state as JAX arrays, checked for shapes and one dtype; errors name the field."""
    checks.instance(name, state, State, "a jq.State")
    q = _of_one_body(f"{name}.q", state.q, (4,))
    omega = _of_one_body(f"{name}.omega", state.omega, (3,))
    aux = jax.tree.map(lambda leaf: checks.floating(f"{name}.aux", leaf), state.aux)
    position, velocity = _moving(name, state, _of_one_body)
    for leaf in jax.tree.leaves((omega, aux, position, velocity)):
        if leaf.dtype != q.dtype:
            raise TypeError(f"{name}: wanted one dtype, got q {q.dtype} beside {leaf.dtype}")
    return State(q, omega, aux, position, velocity)


def broadcastable(name: str, state: State) -> State:
    """Return the state as arrays, of one body or with leading axes; errors name the field."""
    checks.instance(name, state, State, "a jq.State")
    q = checks.trailing(f"{name}.q", state.q, (4,))
    omega = checks.trailing(f"{name}.omega", state.omega, (3,))
    return State(q, omega, state.aux, *_moving(name, state, checks.trailing))


def moving(state: State, name: str = "state", hint: str = "") -> State:
    """Return the state; ValueError if it has no position."""
    if state.position is None:
        raise ValueError(f"{name}: wanted position and velocity, got neither{hint}")
    return state


def _moving(name: str, state: State, checked: Callable[..., Array]) -> tuple[Any, Any]:
    """Return the checked position and velocity; ValueError for one without the other."""
    position, velocity = state.position, state.velocity
    if (position is None) != (velocity is None):
        got = "position without velocity" if velocity is None else "velocity without position"
        raise ValueError(f"{name}: wanted position and velocity, or neither, got {got}")
    if position is None:
        return None, None
    return checked(f"{name}.position", position, (3,)), checked(f"{name}.velocity", velocity, (3,))


def _of_one_body(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    array = checks.floating(name, value)
    hint = "; steps and rollouts see one body: use jax.vmap for a batch"
    return checks.exactly(name, array, shape, hint if array.ndim > len(shape) else "")


def describe(tree: Any) -> str:
    """Return the tree with dtype and shape for each leaf, for error messages."""
    return str(jax.tree.map(reprs.shape, tree))


def check_like(name: str, kind: str, wanted: Any, got: Any) -> None:
    """Raise ValueError if ``got`` differs from ``wanted`` in its structure, shapes or dtypes."""
    wanted, got = describe(wanted), describe(got)
    if got != wanted:
        raise ValueError(f"{name}: wanted {kind}, {wanted}, got {got}")


def one_bool(name: str, value: Any) -> Array:
    """Return ``value`` as an array of one bool; TypeError otherwise."""
    is_array = getattr(value, "dtype", None) == jnp.bool_ and not jnp.shape(value)
    if not (is_array or isinstance(value, bool)):
        raise TypeError(f"{name}: wanted one bool, got {reprs.shape(value)}")
    return jnp.asarray(value)

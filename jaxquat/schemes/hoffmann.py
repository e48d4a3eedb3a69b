"""The schemes of G. Hoffmann, Application of Quaternions, TU Braunschweig 1978, translated 2002.

They are in chapters 5, 9 and 10, and of order 1 at best. As published, components are assigned one
after the other, each with those already updated; otherwise his printed table is not reproduced. His
norm controller n -> n (2 - n) leaves |q| slightly off 1.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, instance
from jaxquat._internal.linear import dot, inverse_inertia, matmul, matvec, transpose
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import evaluate, without_position
from jaxquat.dynamics.motion import euler, rates_of
from jaxquat.dynamics.state import State
from jaxquat.dynamics.units import own_units
from jaxquat.quaternion import from_hoffmann, hoffmann_v, to_hoffmann
from jaxquat.schemes.scheme import StepArguments, scheme

__all__ = ["full_quat", "full_quat_corrected", "full_quat_start", "half_quat", "lagrange"]


@scheme(order=1, evaluations=1, conserves=(), aux=True, source="Hoffmann 1978, as published")
def half_quat(at: StepArguments) -> State:
    """Take a step of Half-Quat as published (9.1); order 1.

    Euler's method updates all but Q; the new rate then updates the components of Q one by one.
    """
    body, torque, t, state, dt, params, _ = at.in_own_units()
    omega_dot, *slopes = rates_of(body, torque, params)(t, state)
    omega = state.omega + dt * omega_dot
    x, y, z = 0.5 * dt * omega
    q1, q2, q3, q4 = to_hoffmann(state.q)
    q1 = q1 + (-q4 * x - q3 * y + q2 * z)
    q2 = q2 + (q3 * x - q4 * y - q1 * z)
    q3 = q3 + (-q2 * x + q1 * y - q4 * z)
    q4 = q4 + (q1 * x + q2 * y + q3 * z)
    others = jax.tree.map(lambda value, rate: value + dt * rate, state[2:], tuple(slopes))
    return State(from_hoffmann(_controlled(jnp.stack([q1, q2, q3, q4]))), omega, *others)


def full_quat_start(q: ArrayLike, omega: ArrayLike) -> State:
    """Return the State at which Full-Quat starts: aux is P = dQ/dt (4,), in Hoffmann's order.

    Examples:
        >>> level, spin = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.0, 0.5])
        >>> jq.schemes.hoffmann.full_quat_start(level, spin).aux
        Array([ 0.  ,  0.  , -0.25,  0.  ], dtype=float32)
    """
    q, omega = exactly("q", q, (4,)), exactly("omega", omega, (3,))
    return State(q, omega, 0.5 * matvec(transpose(hoffmann_v(to_hoffmann(q))), _extended(omega)))


@scheme(
    order=0,
    evaluations=1,
    conserves=(),
    translation=False,
    source="Hoffmann 1978, as published: inconsistent",
)
def full_quat(at: StepArguments) -> State:
    """Take a step of Full-Quat as published (10.1), from ``schemes.hoffmann.full_quat_start``.

    P is a state, and V(Q) V(P)^T is overwritten by an antisymmetric matrix with a one in its
    corner. As dt goes to zero it converges to another motion, because (3.36) is wrong
    (docs/validation.md). With products of inertia the result depends on the units, and small
    moments give NaN: each row overwrites a torque with an acceleration that the next rows use as a
    torque. The rate of the state is only an output.
    """
    body, torque, t, state, dt, params, _ = at  # not in own units: rows below mix units
    hoffmann, p, v, omega = _read("full_quat", state)
    tau = evaluate(torque, t, State(state.q, omega), params)[0]
    inertia, inverted = _bordered(body.inertia), inverse_inertia(body.inertia)
    components = list(tau)
    for k in range(3):  # each row uses the components already overwritten, as in his code
        (x, y, z), row = components, inverted[k]
        components[k] = 0.5 * (row[0] * x + row[1] * y + row[2] * z)
    spin = matmul(v, transpose(hoffmann_v(p)))
    spin = jnp.triu(spin[:3, :3], 1)
    spin = _bordered(spin - spin.T)
    product = matmul(matmul(_bordered(inverted), spin), matmul(inertia, v))
    forcing = matvec(transpose(v), jnp.stack([*components, jnp.zeros_like(components[0])]))
    p_dot = -2.0 * matvec(matmul(transpose(v), product), p) + forcing
    return _moved(hoffmann, p + dt * p_dot, dt)


@scheme(
    order=1,
    evaluations=1,
    conserves=(),
    translation=False,
    source="Hoffmann 1978 with the right equation",
)
def full_quat_corrected(at: StepArguments) -> State:
    """Take a step of ``full_quat`` with the right equation of motion, ``lagrange``; order 1."""
    body, torque, t, state, dt, params, _ = at.in_own_units()
    hoffmann, p, _, omega = _read("full_quat_corrected", state)
    tau = evaluate(torque, t, State(state.q, omega), params)[0]
    return _moved(hoffmann, p + dt * _acceleration(body, hoffmann, p, tau), dt)


def lagrange(body: Body, hoffmann: ArrayLike, p: ArrayLike, generalized: ArrayLike) -> Array:
    """Return dP/dt by the Lagrange form (5.14) of the motion, corrected. All arrays are (4,).

    Q and P = dQ/dt are Hoffmann's; the generalized torque is ``M_L = 2 V^T (tau, 0)`` (5.17):
    ``dP/dt = -|P|^2 Q + 1/2 V^T J^-1 (1/2 V M_L - omega × J omega)``. The first term holds |Q| = 1;
    (5.14) lacks it, because it treats Q as four free coordinates. A sphere with J = j has
    ``-|P|^2 Q + M_L/(4 j)``, instead of (10.2).

    Examples:
        >>> sphere = jq.Body.from_principal(jnp.ones(3))
        >>> level, p = jnp.array([0.0, 0.0, 0.0, 1.0]), jnp.array([0.0, 0.0, 0.25, 0.0])
        >>> jq.schemes.hoffmann.lagrange(sphere, level, p, jnp.zeros(4))
        Array([ 0.    ,  0.    ,  0.    , -0.0625], dtype=float32)
    """
    hoffmann, p = exactly("hoffmann", hoffmann, (4,)), exactly("p", p, (4,))
    generalized = exactly("generalized", generalized, (4,))
    tau = 0.5 * matvec(hoffmann_v(hoffmann), generalized)[:3]
    instance("body", body, Body, "a jq.Body")
    body, scales = own_units(body)
    return _acceleration(body, hoffmann, p, scales.torque * tau)


def _acceleration(body: Body, hoffmann: Array, p: Array, tau: Array) -> Array:
    v = hoffmann_v(hoffmann)
    omega_dot = euler(body)(2.0 * matvec(v, p)[:3], tau)
    return -dot(p, p) * hoffmann + 0.5 * matvec(transpose(v), _extended(omega_dot))


def _read(name: str, state: State) -> tuple[Array, Array, Array, Array]:
    """Return (Q, P, V(Q), omega) of a state; TypeError if it has no P or moves."""
    without_position(name, state)
    if not (hasattr(state.aux, "shape") and state.aux.shape == (4,)):
        wanted = "a state from schemes.hoffmann.full_quat_start(q, omega)"
        raise TypeError(f"{name}: wanted {wanted}, got aux {state.aux!r}")
    hoffmann = to_hoffmann(state.q)
    v = hoffmann_v(hoffmann)
    return hoffmann, state.aux, v, 2.0 * matvec(v, state.aux)[:3]


def _moved(hoffmann: Array, p: Array, dt: Array) -> State:
    hoffmann = _controlled(hoffmann + dt * p)
    return State(from_hoffmann(hoffmann), 2.0 * matvec(hoffmann_v(hoffmann), p)[:3], p)


def _controlled(hoffmann: Array) -> Array:
    return hoffmann * (2.0 - jnp.sqrt(dot(hoffmann, hoffmann)))


def _extended(v: Array) -> Array:
    return jnp.concatenate([v, jnp.zeros_like(v[:1])])


def _bordered(matrix: Array) -> Array:
    """Extend (3, 3) to (4, 4), with a one in the corner."""
    return jnp.pad(matrix, (0, 1)).at[3, 3].set(1.0)

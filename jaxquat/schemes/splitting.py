"""Splitting of the motion into kicks by the torque and drifts of the free body, for torques of time and attitude.

In principal axes with the body momentum m = I omega. A turn by alpha about axis k, ``q -> q exp(alpha
e_k)`` and ``m -> exp(-alpha e_k) m``, is the exact flow of m_k^2/(2 I_k). A step gathers what its kicks
and turns change and adds it to the state once. So the rounding of cosines, of I and I^-1 and of the
axes, whose sign is the same step after step, acts on the change and not on the state.

A. Dullweber, B. Leimkuhler and R. McLachlan, J. Chem. Phys. 107, 1997, 5840-5851; T. F. Miller et al.,
J. Chem. Phys. 116, 2002, 8649-8659; S. Blanes and P. C. Moan, J. Comput. Appl. Math. 142, 2002,
313-330; on rounding G. Vilmart, J. Comput. Phys. 227, 2008.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat import _series as series
from jaxquat._checks import finite, instance, is_concrete, one_shape, takes
from jaxquat._linear import inverse_inertia, matmul, matvec
from jaxquat.dynamics.body import Body, equal_moments
from jaxquat.dynamics.contract import Step, Torque, check_step, evaluate_at_attitude, without_aux
from jaxquat.dynamics.state import State
from jaxquat.rotations.quaternion import (
    conjugate,
    correct_norm,
    expm1,
    multiply,
    rotate,
    rotate_inverse,
)
from jaxquat.schemes.composition import KAHAN_LI6, SUZUKI4, is_reversible, reversible_if


class _Frame(NamedTuple):
    """Principal axes: what turns the body's axes into them, and the moments."""

    axes: Array  # (4,), principal to body
    moments: Array  # (3,)


class _Change(NamedTuple):
    """What a step has done since its start, in principal axes."""

    turn: Array  # (4,), the rotation since then, as a quaternion, minus 1
    m: Array  # (3,)


_Drift = Callable[
    [Array, Array, _Change, Array], _Change
]  # moments, m at the start of the step, change, duration


def no_squish(
    body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any
) -> State:
    """NO_SQUISH (Miller et al. 2002): kick, turns about 3, 2, 1, 2, 3, kick; order 2, symplectic, time-reversible.

    Axes 1, 2, 3 are the principal axes in the order of ``body.principal()``.
    """
    return _kicked("no_squish", _Frame, _turns, body, torque, t, state, dt, params, _STRANG)


def symmetric_top(
    body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any
) -> State:
    """Kick, the exact motion of a symmetric top, kick; order 2, symplectic, time-reversible.

    The axis whose removal leaves the closest pair of moments is the axis of symmetry. What an asymmetric body has beyond it,
    ``m_2^2 (1/I_2 - 1/I_1)/2``, is split off as two half turns around the drift.
    """
    return _kicked(
        "symmetric_top",
        _with_axis_last,
        _symmetric_drift,
        body,
        torque,
        t,
        state,
        dt,
        params,
        _STRANG,
    )


def symmetric_top_bm4(
    body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any
) -> State:
    """Blanes and Moan's seven kicks and six drifts with the exact drift of a symmetric top: order 4, best where torques are weak.

    It needs an exact drift: ValueError for a concrete body with I1 != I2. Traced, an asymmetric body brings it down to order 2;
    ``rollout(check=True)`` reports it.
    """
    instance("body", body, Body, "a jq.Body")
    if is_concrete(body):
        with jax.ensure_compile_time_eval():
            moments, _ = body.principal()
            if not bool(equal_moments(moments)):
                raise ValueError(
                    f"body: symmetric_top_bm4 wanted two equal principal moments, without which it has order 2, got {moments}; "
                    "use symmetric_top_suzuki4"
                )
    return _kicked(
        "symmetric_top_bm4",
        _with_axis_last,
        _symmetric_drift,
        body,
        torque,
        t,
        state,
        dt,
        params,
        _BLANES_MOAN4,
    )


def symmetric_top_suzuki4(
    body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any
) -> State:
    """``compose(symmetric_top, SUZUKI4)`` (Suzuki 1990) whose adjoining kicks are one: order 4."""
    return _kicked(
        "symmetric_top_suzuki4",
        _with_axis_last,
        _symmetric_drift,
        body,
        torque,
        t,
        state,
        dt,
        params,
        _SUZUKI4,
    )


def no_squish_kl6(
    body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any
) -> State:
    """``compose(no_squish, KAHAN_LI6)`` (Kahan and Li 1997) whose adjoining kicks are one: order 6."""
    return _kicked("no_squish_kl6", _Frame, _turns, body, torque, t, state, dt, params, _KAHAN_LI6)


def damped(step: Step, damping: ArrayLike) -> Step:
    """A splitting scheme with drag ``-damping omega`` beside its torque; ``damping`` is (3, 3) or (3,) [N m s], body axes.

    The exact decay of the momentum over half a step stands outermost on both sides: order 2 stays; inside the kicks it falls to 1.
    With D that decay and S the step it is D S D, so that a step of -dt undoes it where one undoes S. Undoing multiplies rounding
    by what the drag has divided the momentum by.
    """
    takes("step", step, "body, torque, t, state, dt, params")
    damping = one_shape("damping", damping, (3,), (3, 3))
    finite("damping", damping)
    damping = damping if damping.ndim == 2 else jnp.diag(damping)

    def decayed(body: Body, state: State, dt: Array) -> State:
        inverted = inverse_inertia(body.inertia)
        change = matvec(
            _expm1(-0.5 * dt * matmul(damping, inverted)), matvec(body.inertia, state.omega)
        )
        return state._replace(omega=state.omega + matvec(inverted, change))

    def damped_step(
        body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any
    ) -> State:
        t, state, dt = check_step(body, t, state, dt)
        return decayed(body, step(body, torque, t, decayed(body, state, dt), dt, params), dt)

    return reversible_if(is_reversible(step), damped_step)


def _merged(weights: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Kicks, and the drifts between them, as shares of the step, of kick-drift-kick steps in a row."""
    return tuple(
        (a + b) / 2 for a, b in zip((0.0, *weights), (*weights, 0.0), strict=True)
    ), weights


_STRANG = _merged((1.0,))
_SUZUKI4, _KAHAN_LI6 = _merged(SUZUKI4), _merged(KAHAN_LI6)
_B = (0.0792036964311957, 0.353172906049774, -0.0420650803577195)
_D = (0.209515106613362, -0.143851773179818)
_BLANES_MOAN4 = (
    (*_B, 1 - 2 * sum(_B), *reversed(_B)),
    (*_D, 0.5 - sum(_D), 0.5 - sum(_D), *reversed(_D)),
)


def _kicked(
    scheme: str, frame: Callable[..., _Frame], drift: _Drift, body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike,
    params: Any, shares: tuple[tuple[float, ...], tuple[float, ...]],
) -> State:  # fmt: skip
    t, state, dt = check_step(body, t, state, dt)
    without_aux(scheme, state)
    moments, axes = body.principal()
    axes, moments = frame(axes, moments)
    m = moments * rotate_inverse(axes, state.omega)

    def kick(change: _Change, here: State, share: float, done: float) -> _Change:
        tau = evaluate_at_attitude(scheme, torque, t + done * dt, here, params)
        return _Change(change.turn, change.m + share * dt * rotate_inverse(axes, tau))

    kicks, drifts = shares
    here, done = state, 0.0
    change = kick(_Change(jnp.zeros_like(state.q), jnp.zeros_like(m)), here, kicks[0], done)
    for share, after in zip(drifts, kicks[1:], strict=True):
        change = drift(moments, m, lax.optimization_barrier(change), share * dt)
        done += share
        turn = jnp.concatenate(
            [change.turn[:1], rotate(axes, change.turn[1:])]
        )  # about the body's axes
        here = state._replace(q=state.q + multiply(state.q, turn))
        change = lax.optimization_barrier(kick(change, here, after, done))
    return State(correct_norm(here.q), state.omega + rotate(axes, change.m / moments), state.aux)


def _turn(m: Array, change: _Change, axis: int, angle: Array) -> _Change:
    """A turn of the body about one of its axes; the barriers keep XLA on CPU from computing every turn again for each use.

    Cosines enter as cos - 1, so that their rounding acts on what the turn adds.
    """
    half = 0.5 * angle
    c1, ratio = series.cosm1_sinc(half * half)
    c1, s = lax.optimization_barrier(jnp.stack([c1, half * ratio]))
    i, j, k = axis, (axis + 1) % 3, (axis + 2) % 3
    w, v, m = change.turn[0] + 1.0, change.turn[1:], m + change.m
    turn: list[Any] = [change.turn[0] + (w * c1 - v[i] * s), None, None, None]
    turn[1 + i] = v[i] + (v[i] * c1 + w * s)
    turn[1 + j] = v[j] + (v[j] * c1 + v[k] * s)
    turn[1 + k] = v[k] + (v[k] * c1 - v[j] * s)
    cosm1, sine = -2.0 * s * s, 2.0 * s * (1.0 + c1)
    push = [change.m[n] for n in range(3)]
    push[j], push[k] = (
        push[j] + (m[j] * cosm1 + m[k] * sine),
        push[k] + (m[k] * cosm1 - m[j] * sine),
    )
    return lax.optimization_barrier(_Change(jnp.stack(turn), jnp.stack(push)))


def _turns(moments: Array, m: Array, change: _Change, duration: Array) -> _Change:
    for axis, share in ((2, 0.5), (1, 0.5), (0, 1.0), (1, 0.5), (2, 0.5)):
        change = _turn(m, change, axis, share * duration * (m + change.m)[axis] / moments[axis])
    return change


def _symmetric_drift(moments: Array, m: Array, change: _Change, duration: Array) -> _Change:
    i1, i2, i3 = moments

    def half_turn(change: _Change) -> _Change:
        return _turn(m, change, 1, 0.5 * duration * (m + change.m)[1] * (1 / i2 - 1 / i1))

    change = half_turn(change)
    whole = lax.optimization_barrier(expm1(duration * (m + change.m) / i1))
    turn = change.turn + whole + multiply(change.turn, whole)
    angle = duration * (m + change.m)[2] * (1 / i3 - 1 / i1)
    return half_turn(_turn(m, _Change(turn, change.m), 2, angle))


def _with_axis_last(axes: Array, moments: Array) -> _Frame:
    """The principal axes in cyclic order, so that the closest pair of moments comes first."""
    gaps = jnp.abs(jnp.roll(moments, -1) - jnp.roll(moments, 1))  # without axis k
    first = (gaps[0] < gaps[1]) & (gaps[0] < gaps[2])
    second = ~first & (gaps[1] < gaps[2])
    half = jnp.asarray(0.5, axes.dtype)
    forth = jnp.stack([half, half, half, half])  # x to y to z to x
    turned = jnp.where(
        first, multiply(axes, forth), jnp.where(second, multiply(axes, conjugate(forth)), axes)
    )
    return _Frame(
        turned,
        jnp.where(first, jnp.roll(moments, -1), jnp.where(second, jnp.roll(moments, 1), moments)),
    )


def _expm1(matrix: Array) -> Array:
    """``exp(matrix) - 1`` of (3, 3): twelve terms of the series at a sixteenth, doubled four times; to rounding up to norm 8."""
    small = matrix / 16
    total = small / 12
    for n in range(11, 0, -1):
        total = (small + matmul(small, total)) / n
    for _ in range(4):
        total = 2.0 * total + matmul(total, total)
    return total

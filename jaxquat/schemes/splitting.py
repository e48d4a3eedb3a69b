"""Splitting of the motion into kicks by the torque and drifts of the free body, for torques of time and attitude.

In principal axes with the body momentum m = I omega. A turn by alpha about axis k, ``q -> q exp(alpha e_k)`` and ``m -> exp(-alpha
e_k) m``, is the exact flow of m_k^2/(2 I_k). A. Dullweber, B. Leimkuhler and R. McLachlan, J. Chem. Phys. 107, 1997, 5840-5851;
T. F. Miller et al., J. Chem. Phys. 116, 2002, 8649-8659; S. Blanes and P. C. Moan, J. Comput. Appl. Math. 142, 2002, 313-330.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from jaxquat import series
from jaxquat.arguments import finite, instance, is_concrete, one_shape, takes
from jaxquat.body import Body
from jaxquat.linear import inverse, matmul, matvec
from jaxquat.mechanics import State, Step, Torque, check_step, evaluate_at_attitude, without_aux
from jaxquat.quaternion import conjugate, correct_norm, exp, multiply, rotate, rotate_inverse
from jaxquat.schemes.composition import KAHAN_LI6, SUZUKI4, is_reversible, reversible_if


class _Frame(NamedTuple):
    """Principal axes: what turns the body's axes into them, and the moments."""

    axes: Array  # (4,), principal to body
    moments: Array  # (3,)


class _Point(NamedTuple):
    """A point of phase space, in principal axes."""

    q: Array  # (4,), principal to world
    m: Array  # (3,)


_Drift = Callable[[Array, _Point, Array], _Point]  # moments, point, duration


def no_squish(body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any) -> State:
    """NO_SQUISH (Miller et al. 2002): kick, turns about 3, 2, 1, 2, 3, kick; order 2, symplectic, time-reversible.

    Axes 1, 2, 3 are the principal axes in the order of ``body.principal()``.
    """
    return _kicked("no_squish", _Frame, _turns, body, torque, t, state, dt, params, _STRANG)


def symmetric_top(body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any) -> State:
    """Kick, the exact motion of a symmetric top, kick; order 2, symplectic, time-reversible.

    The axis whose removal leaves the closest pair of moments is the axis of symmetry. What an asymmetric body has beyond it,
    ``m_2^2 (1/I_2 - 1/I_1)/2``, is split off as two half turns around the drift.
    """
    return _kicked("symmetric_top", _with_axis_last, _symmetric_drift, body, torque, t, state, dt, params, _STRANG)


def symmetric_top_bm4(body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any) -> State:
    """Blanes and Moan's seven kicks and six drifts with the exact drift of a symmetric top: order 4, best where torques are weak.

    It needs an exact drift: ValueError for a concrete body with I1 != I2. Traced, an asymmetric body brings it down to order 2;
    ``rollout(check=True)`` reports it.
    """
    instance("body", body, Body, "a jq.Body")
    if is_concrete(body):
        with jax.ensure_compile_time_eval():
            moments, _ = body.principal()
            if not bool(symmetric(moments)):
                raise ValueError(
                    f"body: symmetric_top_bm4 wanted two equal principal moments, without which it has order 2, got {moments}; "
                    "use symmetric_top_suzuki4"
                )
    return _kicked("symmetric_top_bm4", _with_axis_last, _symmetric_drift, body, torque, t, state, dt, params, _BLANES_MOAN4)


def symmetric_top_suzuki4(body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any) -> State:
    """``compose(symmetric_top, SUZUKI4)`` (Suzuki 1990) whose adjoining kicks are one: order 4."""
    return _kicked("symmetric_top_suzuki4", _with_axis_last, _symmetric_drift, body, torque, t, state, dt, params, _SUZUKI4)


def no_squish_kl6(body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any) -> State:
    """``compose(no_squish, KAHAN_LI6)`` (Kahan and Li 1997) whose adjoining kicks are one: order 6."""
    return _kicked("no_squish_kl6", _Frame, _turns, body, torque, t, state, dt, params, _KAHAN_LI6)


def symmetric(moments: Array, axis: int | None = None) -> Array:
    """Whether two of the moments (3,) are equal, to 100 units of rounding; with ``axis`` those of the other two axes. -> ()."""
    gaps = jnp.abs(moments - jnp.roll(moments, 1))
    gap = jnp.min(gaps) if axis is None else gaps[axis - 1]
    return gap <= 100 * jnp.finfo(moments.dtype).eps * jnp.max(moments)


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
        inverse_inertia = inverse(body.inertia)
        m = matvec(_exponential(-0.5 * dt * matmul(damping, inverse_inertia)), matvec(body.inertia, state.omega))
        return state._replace(omega=matvec(inverse_inertia, m))

    def damped_step(body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any) -> State:
        t, state, dt = check_step(body, t, state, dt)
        return decayed(body, step(body, torque, t, decayed(body, state, dt), dt, params), dt)

    return reversible_if(is_reversible(step), damped_step)


def _merged(weights: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Kicks, and the drifts between them, as shares of the step, of kick-drift-kick steps in a row."""
    return tuple((a + b) / 2 for a, b in zip((0.0, *weights), (*weights, 0.0), strict=True)), weights


_STRANG = _merged((1.0,))
_SUZUKI4, _KAHAN_LI6 = _merged(SUZUKI4), _merged(KAHAN_LI6)
_B = (0.0792036964311957, 0.353172906049774, -0.0420650803577195)
_D = (0.209515106613362, -0.143851773179818)
_BLANES_MOAN4 = ((*_B, 1 - 2 * sum(_B), *reversed(_B)), (*_D, 0.5 - sum(_D), 0.5 - sum(_D), *reversed(_D)))


def _kicked(
    scheme: str, frame: Callable[..., _Frame], drift: _Drift, body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike,
    params: Any, shares: tuple[tuple[float, ...], tuple[float, ...]],
) -> State:  # fmt: skip
    t, state, dt = check_step(body, t, state, dt)
    without_aux(scheme, state)
    moments, axes = body.principal()
    axes, moments = frame(axes, moments)
    back = conjugate(axes)

    def kick(point: _Point, share: float, done: float) -> _Point:
        here = State(multiply(point.q, back), rotate(axes, point.m / moments))
        tau = evaluate_at_attitude(scheme, torque, t + done * dt, here, params)
        return _Point(point.q, point.m + share * dt * rotate_inverse(axes, tau))

    kicks, drifts = shares
    point = _Point(multiply(state.q, axes), moments * rotate_inverse(axes, state.omega))
    point, done = kick(point, kicks[0], 0.0), 0.0
    for share, after in zip(drifts, kicks[1:], strict=True):
        point = drift(moments, lax.optimization_barrier(point), share * dt)
        done += share
        point = lax.optimization_barrier(kick(point, after, done))
    return State(correct_norm(multiply(point.q, back)), rotate(axes, point.m / moments), state.aux)


def _turn(point: _Point, axis: int, angle: Array) -> _Point:
    """A turn of the body about one of its axes; the barriers keep XLA on CPU from computing every turn again for each use."""
    half = 0.5 * angle
    c, s = series.cos(half * half), half * series.sinc(half * half)
    q, m = [point.q[k] for k in range(4)], [point.m[k] for k in range(3)]
    i, j, k = axis, (axis + 1) % 3, (axis + 2) % 3
    turned: list[Any] = [q[0] * c - q[1 + i] * s, None, None, None]
    turned[1 + i] = q[1 + i] * c + q[0] * s
    turned[1 + j] = q[1 + j] * c + q[1 + k] * s
    turned[1 + k] = q[1 + k] * c - q[1 + j] * s
    cosine, sine = c * c - s * s, 2.0 * s * c
    m[j], m[k] = m[j] * cosine + m[k] * sine, m[k] * cosine - m[j] * sine
    return lax.optimization_barrier(_Point(jnp.stack(turned), jnp.stack(m)))


def _turns(moments: Array, point: _Point, duration: Array) -> _Point:
    for axis, share in ((2, 0.5), (1, 0.5), (0, 1.0), (1, 0.5), (2, 0.5)):
        point = _turn(point, axis, share * duration * point.m[axis] / moments[axis])
    return point


def _symmetric_drift(moments: Array, point: _Point, duration: Array) -> _Point:
    i1, i2, i3 = moments
    point = _turn(point, 1, 0.5 * duration * point.m[1] * (1 / i2 - 1 / i1))
    whole, angle = exp(duration * point.m / i1), duration * point.m[2] * (1 / i3 - 1 / i1)
    point = _turn(_Point(multiply(point.q, lax.optimization_barrier(whole)), point.m), 2, angle)
    return _turn(point, 1, 0.5 * duration * point.m[1] * (1 / i2 - 1 / i1))


def _with_axis_last(axes: Array, moments: Array) -> _Frame:
    """The principal axes in cyclic order, so that the closest pair of moments comes first."""
    gaps = jnp.abs(jnp.roll(moments, -1) - jnp.roll(moments, 1))  # without axis k
    first = (gaps[0] < gaps[1]) & (gaps[0] < gaps[2])
    second = ~first & (gaps[1] < gaps[2])
    half = jnp.asarray(0.5, axes.dtype)
    forth = jnp.stack([half, half, half, half])  # x to y to z to x
    turned = jnp.where(first, multiply(axes, forth), jnp.where(second, multiply(axes, conjugate(forth)), axes))
    return _Frame(turned, jnp.where(first, jnp.roll(moments, -1), jnp.where(second, jnp.roll(moments, 1), moments)))


def _exponential(matrix: Array) -> Array:
    """Of a (3, 3) matrix: twelve terms of the series at a sixteenth, squared four times; to rounding up to norm 8."""
    small, eye = matrix / 16, jnp.eye(3, dtype=matrix.dtype)
    total = eye
    for n in range(12, 0, -1):
        total = eye + matmul(small, total) / n
    for _ in range(4):
        total = matmul(total, total)
    return total

"""Splitting of the motion into kicks by a torque of time and attitude, and drifts of the free body.

The steps work in principal axes, with m = I omega. A turn by alpha about axis k,
``q -> q exp(alpha e_k)`` and ``m -> exp(-alpha e_k) m``, is the exact flow of m_k^2/(2 I_k). A step
sums its changes and adds them to the state once, so the systematic rounding of cosines, I, I^-1 and
axes acts on the change only. Forces kick the velocity with the torque's weights; the position
drifts with the turns.

A. Dullweber, B. Leimkuhler and R. McLachlan, J. Chem. Phys. 107, 1997, 5840-5851; T. F. Miller et
al., J. Chem. Phys. 116, 2002, 8649-8659; S. Blanes and P. C. Moan, J. Comput. Appl. Math. 142,
2002, 313-330; on rounding G. Vilmart, J. Comput. Phys. 227, 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxquat._internal import series
from jaxquat.dynamics.contract import evaluate_at_attitude, without_aux
from jaxquat.dynamics.inertia import equal_moments
from jaxquat.dynamics.state import State
from jaxquat.quaternion import conjugate, correct_norm, expm1, multiply, rotate, rotate_inverse
from jaxquat.schemes.scheme import Demand, Scheme, StepArguments, StepObject
from jaxquat.schemes.weights import KAHAN_LI6, SUZUKI4, composed_order


class Change(NamedTuple):
    """The changes since the start of a step, in principal axes."""

    turn: Array  # (4,), the rotation since then, as a quaternion, minus 1
    m: Array  # (3,), the momentum gained
    x: Any  # (3,), the displacement in world axes; None without a position
    v: Any  # (3,), the velocity gained in world axes; None without a position


@dataclass(frozen=True)
class Splitting(StepObject):
    """The step of a splitting: a kick, then drifts and kicks in turn."""

    name: str
    top: bool  # whether the body drifts as a symmetric top, instead of by turns about its axes
    kicks: tuple[float, ...]  # shares of the step, and so are the drifts between them
    drifts: tuple[float, ...]

    def take(self, at: StepArguments) -> State:
        """Take one step."""
        body, torque, t, state, dt, params, _ = at.in_own_units()
        without_aux(self.name, state)
        moments, axes = body.principal()
        axes, moments = _with_axis_last(axes, moments) if self.top else (axes, moments)
        move = _symmetric_drift if self.top else _turns
        m = moments * rotate_inverse(axes, state.omega)

        def kick(change: Change, here: State, share: float, done: float) -> Change:
            tau, force = evaluate_at_attitude(self.name, torque, t + done * dt, here, params)
            change = change._replace(m=change.m + share * dt * rotate_inverse(axes, tau))
            if force is None:
                return change
            return change._replace(v=change.v + share * dt * (force / body.mass))

        here, done = state, 0.0
        zeros = jax.tree.map(jnp.zeros_like, (state.q, m, state.position, state.velocity))
        change = kick(Change(*zeros), here, self.kicks[0], done)
        for share, after in zip(self.drifts, self.kicks[1:], strict=True):
            change = move(moments, m, lax.optimization_barrier(change), share * dt)
            done += share
            about_body = jnp.concatenate([change.turn[:1], rotate(axes, change.turn[1:])])
            here = state._replace(q=state.q + multiply(state.q, about_body))
            if state.position is not None:
                change = change._replace(x=change.x + share * dt * (state.velocity + change.v))
                here = here._replace(position=state.position + change.x)
            change = lax.optimization_barrier(kick(change, here, after, done))
        omega = state.omega + rotate(axes, change.m / moments)
        end = here._replace(q=correct_norm(here.q), omega=omega)
        return end if state.velocity is None else end._replace(velocity=state.velocity + change.v)


def _turn(m: Array, change: Change, axis: int, angle: Array) -> Change:
    """Turn the body about an axis. The barriers keep XLA on CPU from computing the turn again."""
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
    push[j] = push[j] + (m[j] * cosm1 + m[k] * sine)
    push[k] = push[k] + (m[k] * cosm1 - m[j] * sine)
    return lax.optimization_barrier(change._replace(turn=jnp.stack(turn), m=jnp.stack(push)))


# A drift starts at the momentum m + change.m; m is that at the start of the step.
def _turns(moments: Array, m: Array, change: Change, duration: Array) -> Change:
    for axis, share in ((2, 0.5), (1, 0.5), (0, 1.0), (1, 0.5), (2, 0.5)):
        change = _turn(m, change, axis, share * duration * (m + change.m)[axis] / moments[axis])
    return change


def _symmetric_drift(moments: Array, m: Array, change: Change, duration: Array) -> Change:
    i1, i2, i3 = moments

    def half_turn(change: Change) -> Change:
        return _turn(m, change, 1, 0.5 * duration * (m + change.m)[1] * (1 / i2 - 1 / i1))

    change = half_turn(change)
    about_momentum = lax.optimization_barrier(expm1(duration * (m + change.m) / i1))
    turn = change.turn + about_momentum + multiply(change.turn, about_momentum)
    angle = duration * (m + change.m)[2] * (1 / i3 - 1 / i1)
    return half_turn(_turn(m, change._replace(turn=turn), 2, angle))


def _with_axis_last(axes: Array, moments: Array) -> tuple[Array, Array]:
    """Return the principal axes in cyclic order, the closest pair of moments first."""
    gaps = jnp.abs(jnp.roll(moments, -1) - jnp.roll(moments, 1))  # without axis k
    first = (gaps[0] < gaps[1]) & (gaps[0] < gaps[2])
    second = ~first & (gaps[1] < gaps[2])
    half = jnp.asarray(0.5, axes.dtype)
    forth = jnp.stack([half, half, half, half])  # x to y to z to x

    def chosen(one: Array, two: Array, three: Array) -> Array:
        return jnp.where(first, one, jnp.where(second, two, three))

    turned = chosen(multiply(axes, forth), multiply(axes, conjugate(forth)), axes)
    return turned, chosen(jnp.roll(moments, -1), jnp.roll(moments, 1), moments)


def _splitting(
    name: str, kicks: tuple[float, ...], drifts: tuple[float, ...], **facts: Any
) -> Scheme:
    common = {"torques": "attitude", "reversible": True, "conserves": ("norm", "momentum")}
    step = Splitting(name, name.startswith("symmetric_top"), kicks, drifts)
    return Scheme(step, name, evaluations=len(kicks), aux=False, **common | facts)


def _strang(name: str, source: str, doc: str, weights: tuple[float, ...] = (1.0,)) -> Scheme:
    """Return the Scheme of kick-drift-kick steps with these weights; adjoining kicks are merged."""
    pairs = zip((0.0, *weights), (*weights, 0.0), strict=True)
    kicks = tuple((before + after) / 2 for before, after in pairs)
    order = composed_order(2, True, weights)
    return _splitting(name, kicks, weights, order=order, source=source, doc=doc)


no_squish: Scheme = _strang(
    "no_squish",
    "Miller et al. 2002, splitting",
    """NO_SQUISH: kick, turns about 3, 2, 1, 2, 3, kick; order 2, symplectic, time-reversible.

    Axes 1, 2, 3 are the principal axes in the order of ``body.principal()``.
    """,
)

no_squish_kl6: Scheme = _strang(
    "no_squish_kl6",
    "composed by Kahan and Li 1997",
    "``compose(no_squish, KAHAN_LI6)`` with adjoining kicks merged: order 6.",
    KAHAN_LI6,
)

symmetric_top: Scheme = _strang(
    "symmetric_top",
    "Dullweber, Leimkuhler and McLachlan 1997, splitting",
    """Kick, the exact motion of a symmetric top, kick; order 2, symplectic, time-reversible.

    The axis whose removal leaves the closest pair of moments is the axis of symmetry. The asymmetry
    of the body, ``m_2^2 (1/I_2 - 1/I_1)/2``, is split off as two half turns, before and after the
    drift.
    """,
)

symmetric_top_suzuki4: Scheme = _strang(
    "symmetric_top_suzuki4",
    "composed by Suzuki 1990",
    "``compose(symmetric_top, SUZUKI4)`` with adjoining kicks merged: order 4.",
    SUZUKI4,
)

_B = (0.0792036964311957, 0.353172906049774, -0.0420650803577195)
_D = (0.209515106613362, -0.143851773179818)

symmetric_top_bm4: Scheme = _splitting(
    "symmetric_top_bm4",
    kicks=(*_B, 1 - 2 * sum(_B), *reversed(_B)),
    drifts=(*_D, 0.5 - sum(_D), 0.5 - sum(_D), *reversed(_D)),
    order=4,
    conserves=("norm", "momentum", "energy"),
    source="Blanes and Moan 2002; bodies with two equal moments only",
    demand=Demand(
        equal_moments,
        "two equal principal moments, else use symmetric_top_suzuki4 (its order would be 2)",
    ),
    doc="""Seven kicks and six exact drifts of a symmetric top: order 4, best where torques are
    weak.

    ValueError for a concrete body with three different moments: its drift would not be exact, and
    the order would be 2. ``rollout(check=True)`` reports a traced one.
    """,
)

"""Proportional-integral-derivative control with anti-windup."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, instance, is_concrete, one_shape, positive, takes
from jaxquat._internal.renamed import takes_old_names
from jaxquat.control.laws import Gains, check_gains, shortest, tracking_law
from jaxquat.control.reference import Reference, check_reference
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.state import State
from jaxquat.quaternion import conjugate, multiply
from jaxquat.simulation.controller import Controller


class PIDGains(NamedTuple):
    """Gains per body axis (x, y, z), a pytree.

    Attributes:
        damping: of the rate error [N m s/rad], (3,).
        stiffness: of the attitude error [N m/rad], (3,).
        integral: of the integral of the attitude error [N m/(rad s)], (3,).

    Examples:
        >>> gains = jq.control.PIDGains(*(k * jnp.ones(3) for k in (4.0, 1.0, 0.05)))
    """

    damping: Array
    stiffness: Array
    integral: Array


@takes_old_names("control.pid")
def pid(
    body: Body,
    period: ArrayLike,
    reference: Reference | Callable[[Array, Any, Any], Reference],
    *,
    gains: PIDGains | Callable[[Any], PIDGains] = lambda params: params,
    measure: Callable[[State, Any], State] = lambda state, _: state,
    limits: ArrayLike | None = None,
    anti_windup_time: ArrayLike | None = None,
) -> Controller:
    """Make a controller: ``tracking_law`` plus the integral of the attitude error.

    Its command is a torque (3,) [N m], and its memory is the integral part of it, (3,) [N m]. Where
    limits cut the command, each sample adds ``(cut - uncut) period/anti_windup_time`` to the memory
    (back-calculation: K. J. Astrom and T. Hagglund, Advanced PID Control, 2006, 3.5).

    Args:
        body: the body whose inertia the feed-forward assumes.
        period: time between samples [s]; a rollout raises ValueError unless it is
            ``sample_every * dt``.
        reference: ``reference(t, params, input) -> control.Reference`` with this sample's slice of
            the rollout's ``inputs``, or a constant one.
        gains: ``gains(params)``, or constant gains; by default the params are the gains.
        measure: ``measure(state, input)``, the measured state, for instance with noise or a bias.
        limits: of the command, () or per axis (3,) [N m]; None for no limits.
        anti_windup_time: time constant [s] with which the integral part shrinks at a limit, at
            least ``period``; None for 1 s or the period, whichever is longer.

    Examples:
        >>> gains = jq.control.PIDGains(*(k * jnp.ones(3) for k in (3.0, 3.0, 1.0)))
        >>> target = jq.control.Reference(level, zero, zero)
        >>> controller = jq.control.pid(body, 0.2, target, gains=gains)
        >>> push = lambda t, state, params, command: jnp.array([0.03, -0.02, 0.01])  # N m, constant
        >>> torque, grid = jq.torques.total(jq.torques.commanded, push), jq.grid(0.0, 0.2, 100)
        >>> path = jq.rollout(jq.rkmk2, body, torque, start, grid, controller=controller)
        >>> np.asarray(path.memory).round(3)  # N m: it cancels the push
        array([-0.03,  0.02, -0.01], dtype=float32)
    """
    instance("body", body, Body, "a jq.Body")
    reference_at = function_of(
        "reference", reference, Reference, check_reference, "t, params, input"
    )
    checked_gains = functools.partial(check_gains, kind=PIDGains)
    gains_of = function_of("gains", gains, PIDGains, checked_gains, "params")
    takes("measure", measure, "state, input")
    period, unwinding, known_period = checked_times(period, anti_windup_time)
    limits = one_shape("limits", jnp.inf if limits is None else limits, (), (3,))
    positive("limits", limits, or_infinite=True)

    def init(start: State, params: Any) -> Array:
        return jnp.zeros_like(start.omega)

    def update(
        t: Array, state: State, memory: Array, params: Any, sampled_input: Any
    ) -> tuple[Array, Array]:
        measured = measure(state, sampled_input)
        target = reference_at(t, params, sampled_input)
        k, dtype = gains_of(params), memory.dtype
        uncut = tracking_law(measured, Gains(k.damping, k.stiffness), target, body) + memory
        most = limits.astype(dtype)
        cut = jnp.clip(uncut, -most, most)
        error = shortest(multiply(conjugate(measured.q), target.q))
        growth = k.integral * error + (cut - uncut) / unwinding.astype(dtype)
        return cut, memory + period.astype(dtype) * growth

    return Controller(init, update, known_period)


def checked_times(period: ArrayLike, time: ArrayLike | None) -> tuple[Array, Array, float | None]:
    """Return period, anti-windup time, and the period as a float, None if traced."""
    dt = exactly("period", period, ())
    positive("period", dt)
    time = jnp.maximum(1.0, dt) if time is None else exactly("anti_windup_time", time, ())
    if is_concrete((dt, time)) and not float(time) >= float(dt):
        raise ValueError(f"anti_windup_time: wanted at least the period {dt}, got {time}")
    return dt, time, float(dt) if is_concrete(dt) else None


def function_of(
    name: str, value: Any, kind: type, check: Callable[[Any], Any], arguments: str
) -> Callable[..., Any]:
    """Return a function of these arguments that checks its value; a constant becomes one, too."""
    if isinstance(value, kind):
        constant = check(value)
        return lambda *_: constant
    hint = f"; a constant control.{kind.__name__} may be passed, too"
    takes(name, value, arguments, hint=hint)
    return lambda *arguments: check(value(*arguments))

"""Proportional-integral-derivative control with anti-windup."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat.actuators import saturate
from jaxquat.arguments import exactly, function, instance, is_concrete, positive
from jaxquat.body import Body
from jaxquat.control.laws import Gains, Reference, shortest, tracking_law
from jaxquat.mechanics import State
from jaxquat.quaternion import conjugate, multiply
from jaxquat.scanning import Controller


class PIDGains(NamedTuple):
    """Gains per body axis (x, y, z), a pytree.

    Attributes:
        damping: of the rate error [N m s/rad], (3,).
        stiffness: of the attitude error [N m/rad], (3,).
        integral: of the integral of the attitude error [N m/(rad s)], (3,).
    """

    damping: Array
    stiffness: Array
    integral: Array


def pid(
    body: Body,
    period: ArrayLike,
    reference: Callable[[Array, Any, Any], Reference],
    *,
    gains: Callable[[Any], PIDGains] = lambda params: params,
    measure: Callable[[State, Any], State] = lambda state, value: state,
    limits: ArrayLike | None = None,
    unwind: ArrayLike = 1.0,
) -> Controller:
    """A ``jq.Controller``: ``tracking_law`` plus the integral of the attitude error; its command is a torque (3,) [N m].

    Its memory is the integral part of the torque, (3,) [N m]. Where the limits cut the command, the memory gives way by
    ``(cut - uncut) period/unwind`` a sample (back-calculation: K. J. Astrom and T. Hagglund, Advanced PID Control, 2006, section
    3.5), so it cannot wind up.

    Args:
        body: what the feed-forward assumes of the inertia.
        period: time between two samples [s], ``sample_every * dt`` of the rollout.
        reference: ``reference(t, params, value) -> control.Reference``; ``value`` is the slice of the rollout's ``inputs``.
        gains: from the rollout's params; by default they are the gains.
        measure: the state as the controller sees it, ``measure(state, value)``: noise, bias, a sensor that failed.
        limits: of the command per axis [N m]; None for none.
        unwind: time constant [s] of the anti-windup, at least ``period``.
    """
    instance("body", body, Body, "a jq.Body")
    for name, value in (("reference", reference), ("gains", gains), ("measure", measure)):
        function(name, value)
    period, unwind = exactly("period", period, ()), exactly("unwind", unwind, ())
    positive("period", period)
    if is_concrete((period, unwind)) and not float(unwind) >= float(period):
        raise ValueError(f"unwind: wanted at least the period {period}, got {unwind}")

    def init(start: State, params: Any) -> Array:
        return jnp.zeros_like(start.omega)

    def update(t: Array, state: State, memory: Array, params: Any, value: Any) -> tuple[Array, Array]:
        seen, wanted = measure(state, value), reference(t, params, value)
        k = instance("gains", gains(params), PIDGains, "control.PIDGains(damping, stiffness, integral) from gains(params)")
        exactly("gains.integral", k.integral, (3,))
        dtype = memory.dtype
        uncut = tracking_law(body, seen, Gains(k.damping, k.stiffness), wanted) + memory
        cut = uncut if limits is None else saturate(uncut, jnp.broadcast_to(jnp.asarray(limits, dtype), (3,)))
        error = 2.0 * multiply(conjugate(seen.q), shortest(seen.q, wanted.q))[1:]
        growth = k.integral * error + (cut - uncut) / unwind.astype(dtype)
        return cut, memory + period.astype(dtype) * growth

    return Controller(init, update)

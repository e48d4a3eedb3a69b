"""What the sampled controllers share: their times, and arguments that may be constant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import exactly, is_concrete, positive, takes


class Times(NamedTuple):
    """Times of a controller with an integral part [s].

    Attributes:
        period: between two samples, ().
        unwind: time constant of the anti-windup, ().
    """

    period: Array
    unwind: Array

    @property
    def known_period(self) -> float | None:
        """The period for a ``jq.Controller``; None if it is traced."""
        return float(np.asarray(self.period)) if is_concrete(self.period) else None


def checked_times(period: ArrayLike, unwind: ArrayLike | None) -> Times:
    """Return both times; None unwinds in 1 s or the period. ValueError if unwind is shorter."""
    dt = exactly("period", period, ())
    positive("period", dt)
    unwind = jnp.maximum(1.0, dt) if unwind is None else exactly("unwind", unwind, ())
    if is_concrete((dt, unwind)) and not float(unwind) >= float(dt):
        raise ValueError(f"unwind: wanted at least the period {dt}, got {unwind}")
    return Times(dt, unwind)


def function_of(
    name: str, value: Any, kind: type, check: Callable[[Any], Any], arguments: str
) -> Callable[..., Any]:
    """Return a function of these arguments; for a constant of this kind, one that returns it."""
    if isinstance(value, kind):
        constant = check(value)
        return lambda *_: constant
    hint = f"; a constant control.{kind.__name__} may be passed, too"
    return takes(name, value, arguments, hint=hint)

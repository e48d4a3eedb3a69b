"""Steps composed of sub-steps of another scheme, with weights that raise the order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
from jax import Array, lax

from jaxquat._internal.checks import numbers
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step
from jaxquat.dynamics.state import State
from jaxquat.schemes.scheme import Scheme, StepArguments, StepObject, as_part
from jaxquat.schemes.weights import composed_order


def compose(scheme: Scheme | Step, weights: Sequence[float]) -> Scheme:
    """Make the scheme whose step is a sequence of sub-steps ``weights[i] * dt`` of ``scheme``.

    The weights sum to 1 (ValueError) and determine the order: with a reversible scheme of order 2,
    ``SUZUKI4`` and ``TRIPLE_JUMP4`` give order 4, ``KAHAN_LI6`` order 6. Palindromic weights
    preserve reversibility. TypeError for a scheme that is no step, is stochastic or restarted.

    Examples:
        >>> fourth = jq.schemes.compose(jq.no_squish, jq.schemes.weights.SUZUKI4)
        >>> fourth.order, fourth.evaluations, fourth.reversible
        (4, 10, True)
    """
    scheme = as_part("scheme", scheme)
    weights = numbers("weights", weights)
    if not weights or not math.isclose(sum(weights), 1.0, rel_tol=1e-13):
        raise ValueError(f"weights: wanted numbers that sum to 1, got {weights}")
    pairs = zip(weights, reversed(weights), strict=True)
    palindrome = all(math.isclose(a, b, rel_tol=1e-13) for a, b in pairs)
    count = scheme.evaluations
    return dataclasses.replace(
        scheme,
        step=Composition(scheme, weights),
        name=f"compose({scheme.name}, {len(weights)} weights)",
        order=composed_order(scheme.order, scheme.reversible, weights),
        evaluations=None if count is None else count * len(weights),
        reversible=palindrome and scheme.reversible,
        doc="",
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Composition(StepObject):
    """The step of ``compose``."""

    scheme: Scheme
    weights: tuple[float, ...] = field(metadata={"static": True})

    def decay(self, body: Body) -> Array | None:
        """Return the decay of the scheme times the sum of |weights|, over all sub-steps."""
        decay = self.scheme.decay(body)
        return None if decay is None else decay * sum(map(abs, self.weights))

    def take(self, at: StepArguments) -> State:
        """Take one step."""
        state, done = at.state, 0.0
        for weight in self.weights:
            part = at._replace(t=at.t + done * at.dt, state=state, dt=weight * at.dt)
            state = lax.optimization_barrier(self.scheme(*part))
            done += weight
        return state

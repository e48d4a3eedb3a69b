"""Symmetric steps composed to higher order, with the weights of the literature.

M. Suzuki, Phys. Lett. A 146, 1990, 319-323; H. Yoshida, Phys. Lett. A 150, 1990, 262-268 (the triple jump, and why); W. Kahan and
R.-C. Li, Math. Comp. 66, 1997, 1089-1099.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

from jax import lax
from jax.typing import ArrayLike

from jaxquat._checks import numbers, takes
from jaxquat.dynamics.body import Body
from jaxquat.dynamics.contract import Step, Torque, check_step
from jaxquat.dynamics.state import State

_S = 1 / (4 - 4 ** (1 / 3))
SUZUKI4 = (_S, _S, 1 - 4 * _S, _S, _S)

_J = 1 / (2 - 2 ** (1 / 3))
TRIPLE_JUMP4 = (_J, 1 - 2 * _J, _J)

_K = (
    0.39216144400731413928,
    0.33259913678935943860,
    -0.70624617255763935981,
    0.08221359629355080023,
)
KAHAN_LI6 = (*_K, 1 - 2 * sum(_K), *reversed(_K))


_reversible: weakref.WeakSet[Any] = weakref.WeakSet()


def is_reversible(step: Step) -> bool:
    """Whether it is known that a step of -dt undoes a step of dt."""
    return any(step is known for known in _reversible)


def reversible_if(known: bool, step: Step) -> Step:
    """The step, of which this is known from now on."""
    if known:
        _reversible.add(step)
    return step


def compose(step: Step, weights: Sequence[float]) -> Step:
    """The sub-steps ``weights[i] * dt`` of ``step`` in a row, each at its own time. The weights sum to 1.

    With a symmetric step of order 2 and the weights ``SUZUKI4`` or ``TRIPLE_JUMP4`` the order is 4, with ``KAHAN_LI6`` 6. Of a
    reversible step and weights that read the same backwards the composition is reversible: the sub-steps of -dt undo those of dt
    from the last to the first.
    """
    takes("step", step, "body, torque, t, state, dt, params")
    weights = numbers("weights", weights)
    if not weights or not math.isclose(sum(weights), 1.0, abs_tol=1e-13):
        raise ValueError(f"weights: wanted numbers that sum to 1, got {weights}")

    def composed(
        body: Body, torque: Torque, t: ArrayLike, state: State, dt: ArrayLike, params: Any
    ) -> State:
        t, state, dt = check_step(body, t, state, dt)
        done = 0.0
        for weight in weights:
            state = lax.optimization_barrier(
                step(body, torque, t + done * dt, state, weight * dt, params)
            )
            done += weight
        return state

    palindrome = all(
        math.isclose(a, b, rel_tol=1e-13) for a, b in zip(weights, reversed(weights), strict=True)
    )
    return reversible_if(palindrome and is_reversible(step), composed)

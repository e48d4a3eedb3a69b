"""The linear quadratic regulator, in the error coordinates of ``dynamics.linearize``."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from scipy.linalg import LinAlgError, solve_discrete_are

from jaxquat._internal.checks import (
    concrete,
    exactly,
    finite,
    floating,
    positive_integer,
    single_or_double,
    symmetric,
)
from jaxquat.dynamics.state import State, check_alike, local, one_body

_LINEARIZE = "a, b = jq.dynamics.linearize(scheme, body, torque, t, state, dt, command)"
_ERROR = "6 for attitude and rate, 6 more with a position, and the size of aux"


def lqr(
    a: ArrayLike,
    b: ArrayLike,
    state_cost: ArrayLike,
    command_cost: ArrayLike,
    *,
    steps: int | None = None,
    final_cost: ArrayLike | None = None,
) -> Array:
    """Return the gain K (m, n) of ``u = -K delta`` of least ``sum delta.Q delta + u.R u``.

    The sum is over all steps ``delta' = A delta + B u``. With ``steps=N`` it has N terms plus
    ``delta.P delta`` with ``final_cost`` P (n, n), by default Q, and the result is (N, m, n).
    ``dynamics.linearize``, with the command as params, gives a = A (n, n) and b = B (n, m); n is 6
    (attitude and rate), or 12 with a position, plus the size of aux. The costs are Q (n, n) and R
    (m, m). K has the dtype of a. scipy solves the discrete Riccati equation in float64, so all
    arguments must be concrete (TypeError); to optimise a gain, fit K itself as params.

    Raises:
        ValueError: a wrong shape; costs not symmetric, Q not positive semidefinite (to 100 ulp), R
            not positive definite; no stabilising solution; a ``final_cost`` without ``steps``.

    Examples:
        >>> dt = 0.1  # s: one axis of 1 kg m^2, its angle and its rate, turned by a torque
        >>> a, b = jnp.array([[1.0, dt], [0.0, 1.0]]), jnp.array([[0.5 * dt**2], [dt]])
        >>> np.asarray(jq.control.lqr(a, b, jnp.diag(jnp.array([4.0, 1.0])), jnp.eye(1))).round(2)
        array([[1.79, 2.09]], dtype=float32)
    """
    a, b = floating("a", a), floating("b", b)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not a.size:
        raise ValueError(f"a: wanted a square matrix, got shape {a.shape}; {_LINEARIZE} makes it")
    n = len(a)
    if b.ndim != 2 or b.shape[0] != n or not b.size:
        hint = f"; {_LINEARIZE} makes both"
        raise ValueError(f"b: wanted shape ({n}, m), got {b.shape}{hint}")
    m = b.shape[1]
    hint_of_a = f"; like a, whose size from dynamics.linearize is {_ERROR}"
    q = exactly("state_cost", state_cost, (n, n), hint_of_a)
    r = exactly("command_cost", command_cost, (m, m), "; b has a column for each command")
    if steps is None and final_cost is not None:
        raise ValueError("final_cost: wanted None without steps, because the sum has no end")
    end = q if final_cost is None else exactly("final_cost", final_cost, (n, n), hint_of_a)
    costs = ("state_cost", q), ("command_cost", r), ("final_cost", end)
    for name, value in (("a", a), ("b", b), *costs):
        concrete(name, value, "compute the gain outside jit, vmap and grad")
        finite(name, value)
        single_or_double(name, value)
    for name, value in costs:
        _check_cost(name, value, definite=name == "command_cost")
    matrices = [np.asarray(x, np.float64) for x in (a, b, q, r, end)]
    if steps is None:
        return jnp.asarray(_riccati_gain(*matrices[:4]), a.dtype)
    return jnp.asarray(_gains(positive_integer("steps", steps), *matrices), a.dtype)


def _gains(
    steps: int, a: np.ndarray, b: np.ndarray, q: np.ndarray, r: np.ndarray, p: np.ndarray
) -> np.ndarray:
    gains = []
    for _ in range(steps):
        gains.append(np.linalg.solve(r + b.T @ p @ b, b.T @ p @ a))
        closed = a - b @ gains[-1]
        p = closed.T @ p @ closed + gains[-1].T @ r @ gains[-1] + q  # Joseph: stays semidefinite
        if not np.isfinite(p).all():
            raise ValueError(f"a, b: wanted a system whose costs stay finite for {steps} steps")
    return np.stack(gains[::-1])


def _riccati_gain(a: np.ndarray, b: np.ndarray, q: np.ndarray, r: np.ndarray) -> np.ndarray:
    """Return the gain; commands are scaled to R near 1, as scipy fails for b = 1e-10, R = 1e-20."""
    unit = np.exp2(-np.round(0.5 * np.log2(np.diag(r))))
    b, r = b * unit, unit[:, None] * r * unit
    try:
        p = solve_discrete_are(a, b, q, r)
    except (LinAlgError, ValueError) as error:
        wanted = "a system that the costs see and b can stabilise"
        hint = "" if b.any() else "; b is 0: the params of linearize must be the command"
        raise ValueError(f"a, b: wanted {wanted}, got none ({error}){hint}") from error
    return unit[:, None] * np.linalg.solve(r + b.T @ p @ b, b.T @ p @ a)


def _check_cost(name: str, cost: Array, *, definite: bool) -> None:
    """Raise ValueError if a cost, with its diagonal scaled to 1, is not symmetric and definite."""
    symmetric(name, cost)
    matrix = np.asarray(cost, np.float64)
    scale = np.sqrt(np.where(np.diag(matrix) > 0, np.diag(matrix), 1.0))
    values = np.linalg.eigvalsh(matrix / np.outer(scale, scale))
    rounding = 100 * np.finfo(cost.dtype).eps
    if not (values[0] > rounding if definite else values[0] >= -rounding):
        wanted = "positive definite" if definite else "positive semidefinite"
        raise ValueError(f"{name}: wanted a {wanted} matrix, got {matrix.tolist()}")


def lqr_law(state: State, gain: ArrayLike, about: State) -> Array:
    """Return the command ``-K delta`` for the error ``delta = local(about, state)``. -> (m,).

    ``gain`` is K (m, n), n as for ``lqr``; ``about`` is the state about which the plant was
    linearised.

    Examples:
        >>> gain = jnp.hstack([2.0 * jnp.eye(3), 0.5 * jnp.eye(3)])  # N m/rad, N m s/rad
        >>> spinning = start._replace(omega=jnp.array([0.0, 0.0, 0.2]))
        >>> jq.control.lqr_law(spinning, gain, about=start)[2].round(3)
        Array(-0.1, dtype=float32)
    """
    about, state = one_body("about", about), one_body("state", state)
    check_alike("state", state, "about", about)
    delta, gain = local(about, state), floating("gain", gain)
    if gain.ndim != 2 or gain.shape[1] != delta.size:
        hint = f"; the size of its error is {_ERROR}"
        raise ValueError(f"gain: wanted shape (m, {delta.size}), got {gain.shape}{hint}")
    return -jnp.sum(gain * delta[None], axis=-1)

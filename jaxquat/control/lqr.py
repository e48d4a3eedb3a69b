"""The linear quadratic regulator, in the error coordinates of ``dynamics.linearize``."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from scipy.linalg import LinAlgError, solve_discrete_are

from jaxquat._internal import checks

_LINEARIZE = "a, b = jq.dynamics.linearize(scheme, body, torque, t, state, dt, command)"


def lqr(a: ArrayLike, b: ArrayLike, state_cost: ArrayLike, command_cost: ArrayLike) -> Array:
    """Return the gain K (m, n) of ``u = -K delta`` of least ``sum delta.Q delta + u.R u``.

    The sum is over all steps ``delta' = A delta + B u``; ``delta = dynamics.local(about, state)``
    is the error of a state. ``dynamics.linearize``, with the command as params, gives a = A (n, n)
    and b = B (n, m); n is 6 (attitude and rate), or 12 with a position, plus the size of aux. The
    costs are Q (n, n) and R (m, m). K has the dtype of a. scipy solves the discrete Riccati
    equation in float64, so all arguments must be concrete (TypeError); to optimise a gain, fit K
    itself as params. For a finite horizon use the gains of a plan of ``planning.ilqr``.

    Raises:
        ValueError: a wrong shape; costs not symmetric, Q not positive semidefinite (to 100 ulp), R
            not positive definite; no stabilising solution.

    Examples:
        >>> dt = 0.1  # s: one axis of 1 kg m^2, its angle and its rate, turned by a torque
        >>> a, b = jnp.array([[1.0, dt], [0.0, 1.0]]), jnp.array([[0.5 * dt**2], [dt]])
        >>> np.asarray(jq.control.lqr(a, b, jnp.diag(jnp.array([4.0, 1.0])), jnp.eye(1))).round(2)
        array([[1.79, 2.09]], dtype=float32)
    """
    a, b = checks.floating("a", a), checks.floating("b", b)
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not a.size:
        raise ValueError(f"a: wanted a square matrix, got shape {a.shape}; {_LINEARIZE} makes it")
    n = len(a)
    if b.ndim != 2 or b.shape[0] != n or not b.size:
        hint = f"; {_LINEARIZE} makes both"
        raise ValueError(f"b: wanted shape ({n}, m), got {b.shape}{hint}")
    m = b.shape[1]
    size = "; like a, whose size from dynamics.linearize is 6 for attitude and rate, "
    size += "6 more with a position, and the size of aux"
    q = checks.exactly("state_cost", state_cost, (n, n), size)
    r = checks.exactly("command_cost", command_cost, (m, m), "; b has a column for each command")
    for name, value in {"a": a, "b": b, "state_cost": q, "command_cost": r}.items():
        checks.concrete(name, value, "compute the gain outside jit, vmap and grad")
        checks.finite(name, value)
        checks.single_or_double(name, value)
    _check_cost("state_cost", q, definite=False)
    _check_cost("command_cost", r, definite=True)
    return jnp.asarray(_riccati_gain(*(np.asarray(x, np.float64) for x in (a, b, q, r))), a.dtype)


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
    checks.symmetric(name, cost)
    matrix = np.asarray(cost, np.float64)
    scale = np.sqrt(np.where(np.diag(matrix) > 0, np.diag(matrix), 1.0))
    values = np.linalg.eigvalsh(matrix / np.outer(scale, scale))
    rounding = 100 * np.finfo(cost.dtype).eps
    if not (values[0] > rounding if definite else values[0] >= -rounding):
        wanted = "positive definite" if definite else "positive semidefinite"
        raise ValueError(f"{name}: wanted a {wanted} matrix, got {matrix.tolist()}")

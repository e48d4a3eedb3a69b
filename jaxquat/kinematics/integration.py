"""Attitudes from sampled and accelerating rates."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal import checks
from jaxquat.kinematics.known_rates import checked_start
from jaxquat.kinematics.magnus_expansion import NODES, expansion, magnus_vector, product
from jaxquat.kinematics.samples import checked_times, rates_at_equal_distances, rates_at_times
from jaxquat.quaternion import correct_norm, expm1, multiply


def magnus(
    q0: ArrayLike, omega: ArrayLike, alpha: ArrayLike, dt: ArrayLike, *, order: int = 4
) -> Array:
    """Return the attitude after dt [s] of constant angular acceleration. -> (..., 4).

    The rate is ``omega + alpha t`` in body axes. The series converges for turns below 2 pi (the
    source document's 127 degrees bounds the matrix norm). Euler's equation needs a scheme of
    ``jq.schemes``: with alpha frozen over a step, this would be of order 1 in the rate.

    Args:
        q0: unit attitude at the start, (..., 4).
        omega: rate at the start [rad/s], (..., 3).
        alpha: angular acceleration [rad/s^2], (..., 3).
        dt: time [s], (...).
        order: in dt: 2 and 4 are one and two terms of the series, 6 all terms to dt^5, 8 to dt^7.

    Examples:
        >>> omega, alpha = jnp.array([0.0, 0.0, 0.5]), jnp.array([0.0, 0.0, 0.25])  # rad/s, rad/s^2
        >>> q = jq.kinematics.magnus(level, omega, alpha, 2.0)  # a turn by 0.5 2 + 0.25 2^2/2 rad
    """
    checks.one_of("order", order, (2, 4, 6, 8))
    named = (("q0", q0, (4,)), ("omega", omega, (3,)), ("alpha", alpha, (3,)), ("dt", dt, ()))
    q0, omega, alpha, h = checks.broadcast(*named)
    checks.unit_quaternion("q0", q0)
    turn = magnus_vector(omega, alpha, h[..., None], order)
    return correct_norm(q0 + multiply(q0, expm1(turn)))


def integrate(
    q0: ArrayLike,
    omega: ArrayLike,
    dt: ArrayLike | None = None,
    *,
    times: ArrayLike | None = None,
    order: int = 4,
) -> Array:
    """Integrate N samples of the body rate, a gyroscope's for instance. -> attitudes (N, 4).

    The samples are ``dt`` apart, or at ``times``. To pad recordings to equal length for
    ``jax.vmap``, repeat the last time, as ``jq.recordings.windows`` does: the attitude then stays
    constant, and omega there has no effect.

    Args:
        q0: unit attitude at the first sample, (4,); omega and dt must have its dtype.
        omega: samples of the rate [rad/s], (N, 3), at least ``order`` of them.
        dt: spacing of equally spaced samples [s].
        times: of other samples [s], (N,), increasing but for a repeated last one; NaN results if
            traced times repeat earlier. They are subtracted in their own dtype: pass Unix times as
            NumPy float64, because float32 may round a minute of them to one number.
        order: in the spacing, 2, 4 or 6: a polynomial through the nearest 2, 4 or 6 samples (all,
            if fewer times differ), one-sided at the ends, gives the rate at Gauss nodes. Of two
            samples that nearly coincide, as seen from the interval (0.005 of the distance, 6e-6 in
            float64), the farther is left out. Across a gap a high order amplifies noise: use order
            2, or cut there (``jq.recordings.windows``).

    Examples:
        >>> omega = jnp.tile(jnp.array([0.0, 0.3, 0.4]), (101, 1))  # 0.5 rad/s
        >>> q = jq.kinematics.integrate(level, omega, 0.02)  # at 50 Hz
        >>> f"{jq.quaternion.distance(level, q[-1]):.3f} rad"
        '1.000 rad'
    """
    checks.one_of("order", order, tuple(NODES))
    order = int(order)  # 2.0 is 2
    q0 = checked_start(q0, "; the order is integrate(q0, omega, dt)")
    if (dt is None) == (times is None):
        got = "neither" if dt is None else "both"
        raise ValueError(f"dt, times: wanted one of them, got {got}")
    omega = checks.floating("omega", omega)
    if omega.ndim != 2 or omega.shape[1] != 3 or omega.shape[0] < order:
        wanted = f"shape (N, 3) with N >= {order} for order {order}"
        raise ValueError(f"omega: wanted {wanted}, got {omega.shape}")
    _check_dtype("omega", omega, q0)
    if times is not None:
        stamps = checked_times(times, len(omega))
        rates, dt, is_empty = rates_at_times(omega, stamps, order, q0.dtype)
        turns = expansion(rates, dt)
        return product(q0, jnp.where(is_empty, jnp.zeros_like(turns), turns), is_empty)
    shape = getattr(dt, "shape", ())
    if shape == (len(omega),):
        raise ValueError(f"dt: wanted one spacing (), got {shape}; stamps go into times=")
    dt = checks.exactly("dt", dt, ())
    _check_dtype("dt", dt, q0)
    checks.positive("dt", dt)
    return product(q0, expansion(rates_at_equal_distances(omega, order), dt))


def _check_dtype(name: str, value: Array, q0: Array) -> None:
    if not value.weak_type:
        checks.same_dtype(name, value, q0.dtype, "q0")

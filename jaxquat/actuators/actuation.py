"""A lag, and the allocation of a torque to reaction wheels or magnetic rods."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal import checks
from jaxquat._internal.linear import cross, inverse, matmul, matvec, scale_of, square, transpose


def lag(actual: ArrayLike, command: ArrayLike, time_constant: ArrayLike) -> Array:
    """Return the rate ``(command - actual)/time_constant`` of a first-order lag.

    (n,), (n,), () or (n,) [s] -> (n,). Steps longer than the time constant are inaccurate or
    unstable: after a step of two time constants ``rkmk4`` is at 0.667 of the command, not 0.865.

    Examples:
        >>> jq.actuators.lag(jnp.array([80.0, 100.0]), jnp.array([100.0, 100.0]), 0.0625)  # rad/s^2
        Array([320.,   0.], dtype=float32)
    """
    checks.from_aux("actual", actual)
    actual, command = checks.floating("actual", actual), checks.floating("command", command)
    if actual.ndim != 1 or command.shape != actual.shape:
        got = f"{command.shape} for {actual.shape}"
        raise ValueError(f"command: wanted the shape of actual, (n,), got {got}")
    time_constant = checks.one_shape("time_constant", time_constant, (), actual.shape)
    checks.positive("time_constant", time_constant)
    return (command - actual) / time_constant


def allocate(axes: ArrayLike, tau: ArrayLike, limits: ArrayLike | None = None) -> Array:
    """Return the motor torques u of n >= 3 wheels for a torque. (n, 3), (3,) -> (n,) [N m].

    It is the shortest such u, ``-A (A^T A)^-1 tau`` with the axes, unit vectors, as rows of A. If
    one exceeds its limit, (n,) or () [N m], all are scaled down together. Concrete axes that do not
    span the space raise ValueError; traced, they give a meaningless result.

    Examples:
        >>> pyramid = jnp.array([[1.0, 1, 1], [-1, 1, 1], [-1, -1, 1], [1, -1, 1]]) / jnp.sqrt(3.0)
        >>> np.asarray(jq.actuators.allocate(pyramid, jnp.array([0.0, 0.0, 0.04]))).round(4)
        array([-0.0173, -0.0173, -0.0173, -0.0173], dtype=float32)
    """
    axes, tau = axes_rows("axes", axes), checks.exactly("tau", tau, (3,))
    if len(axes) < 3:
        raise ValueError(f"axes: wanted at least 3 axes, got {len(axes)}")
    checks.unit_vector("axes", axes)
    checks.independent_columns("axes", "axes that span the space", axes)
    gram = matmul(transpose(axes), axes)
    return _within(-matvec(axes, matvec(inverse(gram), tau)), limits)


def magnetorquer_dipoles(
    axes: ArrayLike, tau: ArrayLike, field: ArrayLike, limits: ArrayLike | None = None
) -> Array:
    """Return the dipoles of n >= 3 magnetic rods or coils for a torque tau. -> (n,) [A m^2].

    The torque ``m × B`` is normal to the field B, so the part of tau along B is lost. The shortest
    m for the rest is ``B × tau/|B|^2``, shared by the rods as by ``allocate``. At a limit all are
    scaled down together; ``jnp.clip`` the result without limits to cut each rod by itself. A zero
    field gives NaN. To unload the momenta h of wheels with axes A, use ``tau = -k A^T h``.

    Args:
        axes: of the rods, unit vectors in body axes, (n, 3), which span the space.
        tau: the torque to produce [N m], (3,), body axes.
        field: B at the rods [T], (3,), body axes.
        limits: largest dipoles [A m^2], (n,) or (), positive.

    Examples:
        >>> field, tau = jnp.array([0.0, 0.0, 4e-5]), jnp.array([1e-6, 0.0, 1e-6])  # T, N m
        >>> jq.actuators.magnetorquer_dipoles(jnp.eye(3), tau, field, 0.2).round(4)
        Array([0.   , 0.025, 0.   ], dtype=float32)
    """
    tau, field = checks.exactly("tau", tau, (3,)), checks.exactly("field", field, (3,))
    scale = scale_of(field)
    field = scale * field
    return -allocate(axes, scale * (cross(field, tau) / square(field)), limits)


def axes_rows(name: str, value: ArrayLike) -> Array:
    """Return vectors, a row each, as an array (n, 3) with n at least 1."""
    value = checks.floating(name, value)
    if value.ndim != 2 or value.shape[1] != 3 or value.shape[0] < 1:
        raise ValueError(f"{name}: wanted shape (n, 3), got {value.shape}")
    return value


def _within(u: Array, limits: ArrayLike | None) -> Array:
    """Scale u (n,) down until no element exceeds its limit, (n,), () or None."""
    if limits is None:
        return u
    limits = checks.one_shape("limits", limits, (), u.shape)
    checks.positive("limits", limits, or_infinite=True)
    return u / jnp.maximum(1.0, jnp.max(jnp.abs(u) / limits))

"""A model of a magnetometer: simulate its readings, correct its errors, and calibrate it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat import quaternion
from jaxquat._internal import checks
from jaxquat._internal.declared import Field, checked_record
from jaxquat._internal.linear import inverse, matvec, stacked
from jaxquat.fitting.covariance import FitCovariance
from jaxquat.sensors import axes
from jaxquat.sensors.calibration import fit_ellipsoid, static_samples

__all__ = ["Magnetometer", "calibrate", "correct", "measure"]

_ENTRIES = ("xx", "xy", "xz", "yy", "yz", "zz")


class Magnetometer(NamedTuple):
    """The errors of a magnetometer and of the iron that turns with it, a pytree.

    ``measured = soft_iron b + hard_iron + noise`` for the field b in body axes, in any unit.

    Attributes:
        soft_iron: gains, misalignment and soft iron, (3, 3), with positive determinant.
        hard_iron: bias and the field of magnetised parts [unit of the field], (3,).
        noise: density of the white noise [unit of the field/sqrt(Hz)], () or (3,), at least 0.

    Examples:
        >>> sensor = jq.magnetometer.Magnetometer(1.25 * jnp.eye(3), jnp.zeros(3), jnp.array(0.0))
    """

    soft_iron: Array
    hard_iron: Array
    noise: Array

    @staticmethod
    def ideal(dtype: jax.typing.DTypeLike | None = None) -> Magnetometer:
        """Return a magnetometer without errors.

        Examples:
            >>> sensor = jq.magnetometer.Magnetometer.ideal()
        """
        zero = jnp.zeros((), checks.floating_dtype("dtype", dtype))
        return Magnetometer(jnp.eye(3, dtype=zero.dtype), jnp.zeros(3, zero.dtype), zero)


def measure(
    key: Array, magnetometer: Magnetometer, q: ArrayLike, field: ArrayLike, dt: ArrayLike
) -> Array:
    """Simulate the readings at N attitudes. -> (N, 3) [unit of the field].

    Differentiable with respect to all but the key; the result has the dtype of q.

    Args:
        key: key that draws the noise.
        magnetometer: the errors of the magnetometer.
        q: attitudes, body to world, (N, 4), unit.
        field: the magnetic field in world axes, (3,), or (N, 3) if it changes.
        dt: time between the samples [s], ().

    Examples:
        >>> quarter = jq.quaternion.exp(jnp.array([[0.0, 0.0, jnp.pi / 2]]))  # x points along y
        >>> sensor, field = jq.magnetometer.Magnetometer.ideal(), jnp.array([10.0, 20.0, -40.0])
        >>> jq.magnetometer.measure(jax.random.key(0), sensor, quarter, field, 0.01).round()
        Array([[ 20., -10., -40.]], dtype=float32)
    """
    axes.key_first("magnetometer", key, Magnetometer)
    soft_iron, hard_iron, noise = checked_record(
        "magnetometer", magnetometer, Magnetometer, _FIELDS
    )
    q = axes.samples("q", q, 4)
    checks.unit_quaternion("q", q)
    field = checks.one_shape("field", field, (3,), (len(q), 3))
    checks.finite("field", field)
    true = quaternion.rotate_inverse(q, jnp.broadcast_to(field, (len(q), 3)))
    dt = axes.spacing(dt, true)
    white = jax.random.normal(checks.random_key("key", key), true.shape, true.dtype)
    white = axes.per_axis(noise) / jnp.sqrt(dt) * white
    return matvec(soft_iron[None], true) + hard_iron[None] + white


def correct(magnetometer: Magnetometer, measured: ArrayLike) -> Array:
    """Estimate the true fields from N measured ones; the noise remains. (N, 3) -> (N, 3).

    Examples:
        >>> sensor = jq.magnetometer.Magnetometer(1.25 * jnp.eye(3), jnp.zeros(3), jnp.array(0.0))
        >>> jq.magnetometer.correct(sensor, jnp.array([[25.0, 0.0, 50.0]]))  # over 1.25
        Array([[20.,  0., 40.]], dtype=float32)
    """
    soft_iron, hard_iron, _ = checked_record("magnetometer", magnetometer, Magnetometer, _FIELDS)
    measured = axes.samples("measured", measured)
    return matvec(inverse(soft_iron)[None], measured - hard_iron[None])


def calibrate(samples: ArrayLike, strength: ArrayLike) -> tuple[Magnetometer, FitCovariance]:
    """Estimate hard and soft iron from samples at many attitudes in one field.

    Least squares on the distances fits the ellipsoid of the samples (model: V. Renaudin, M. H.
    Afzal and G. Lachapelle, J. Sensors 2010, 967245). A rotation of the true fields changes no
    length, so the result is the symmetric, positive definite soft iron. Its density of noise is 0.
    The second result is the covariance of ``hard_iron`` and xx to zz, the entries of the soft iron,
    from the residuals.

    Args:
        samples: measured fields, body axes, (N, 3), N >= 10, at attitudes that cover the sphere.
        strength: strength of the field, (); 1.0 if only directions matter.

    Raises:
        ValueError, TypeError: a bad argument; attitudes that leave a combination of parameters
            undetermined, which the message names, as a cone of directions or turns about one axis.
            The hard iron c alone, without soft iron, is the centre of a sphere:
            ``jq.least_squares`` of ``jnp.linalg.norm(samples - p["c"], axis=1) - p["radius"]``.

    Examples:
        >>> poses = jq.quaternion.random(jax.random.key(0), (50,))
        >>> measured = jq.quaternion.rotate_inverse(poses, jnp.array([0.0, 30.0, -40.0])) + 5.0
        >>> np.asarray(jq.magnetometer.calibrate(measured, 50.0)[0].hard_iron).round(1)  # uT
        array([5., 5., 5.], dtype=float32)
    """
    samples = static_samples(samples, 10)  # more than parameters
    strength = checks.exactly("strength", strength, ()).astype(samples.dtype)
    checks.positive("strength", strength)
    centre = 0.5 * (jnp.max(samples, axis=0) + jnp.min(samples, axis=0))
    spread = np.linalg.norm(np.asarray(samples - centre[None], float), axis=1)
    spread = jnp.asarray(np.sqrt(np.mean(spread**2)), samples.dtype)
    checks.positive("samples (their spread about the middle)", spread)
    gain, none = spread / strength, jnp.zeros((), samples.dtype)
    diagonal = {name: gain if name[0] == name[1] else none for name in _ENTRIES}
    sphere = {"hard_iron": centre, **diagonal}
    units = {"hard_iron": jnp.zeros_like(centre) + spread, **dict.fromkeys(_ENTRIES, gain)}

    data = samples, strength
    params, covariance = fit_ellipsoid(*data, _ellipsoid, _positive_root, sphere, units)
    soft_iron, hard_iron = _ellipsoid(params)
    return Magnetometer(soft_iron, hard_iron, none), covariance


def _ellipsoid(params: Any) -> tuple[Array, Array]:
    rows = [("xx", "xy", "xz"), ("xy", "yy", "yz"), ("xz", "yz", "zz")]
    return stacked([[params[name] for name in row] for row in rows]), params["hard_iron"]


def _positive_root(square: np.ndarray, hard_iron: np.ndarray) -> dict[str, Any]:
    """Return the parameters of the symmetric, positive definite soft iron with this square."""
    values, axes = np.linalg.eigh(square)
    root = (axes * np.sqrt(values)) @ axes.T
    entries = {name: root["xyz".index(name[0]), "xyz".index(name[1])] for name in _ENTRIES}
    return {"hard_iron": hard_iron, **entries}


def _not_singular(name: str, soft_iron: Array) -> None:
    if checks.is_concrete(soft_iron) and not np.linalg.det(np.asarray(soft_iron, float)) > 0:
        got = np.asarray(soft_iron).tolist()
        raise ValueError(f"{name}: wanted a positive determinant, got {got}")


_FIELDS = {
    "soft_iron": Field([(3, 3)], checks.single_or_double, checks.finite, _not_singular),
    "hard_iron": Field([(3,)], checks.single_or_double, checks.finite),
    "noise": Field([(), (3,)], checks.single_or_double, checks.not_negative),
}

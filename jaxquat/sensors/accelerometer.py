"""A model of an accelerometer: simulate its readings, correct its errors, and calibrate it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat import quaternion
from jaxquat._internal.checks import exactly, positive, single_or_double, unit_quaternion
from jaxquat._internal.renamed import has_old_fields
from jaxquat.fitting.covariance import FitCovariance
from jaxquat.sensors import axes
from jaxquat.sensors.calibration import fit_ellipsoid, static_samples

__all__ = ["Accelerometer", "calibrate", "correct", "measure"]


@has_old_fields("accelerometer.Accelerometer")
class Accelerometer(NamedTuple):
    """The errors of an accelerometer, a pytree.

    ``measured = (1 + diag(scale)) (1 + M) f + bias + noise`` for the specific force f in body axes
    (at rest it is minus gravity), where M has the six misalignments off its diagonal, row by row.

    Attributes:
        bias: bias at the first sample [m/s^2], (3,).
        scale: relative errors of the three gains, (3,), above -1: no gain is 0 or negative.
        misalignment: xy, xz, yx, yz, zx, zy [rad], (6,), so small that the axes span space.
        noise: density of the white noise [m/s^2/sqrt(Hz)], () or (3,), at least 0.
        bias_random_walk: density of the bias's random walk [m/s^3/sqrt(Hz)], () or (3,), at least
            0.

    Examples:
        >>> sensor = jq.accelerometer.Accelerometer.ideal()._replace(scale=jnp.full(3, 0.25))
    """

    bias: Array
    scale: Array
    misalignment: Array
    noise: Array
    bias_random_walk: Array

    @staticmethod
    def ideal(dtype: jax.typing.DTypeLike | None = None) -> Accelerometer:
        """Return an accelerometer without errors.

        Examples:
            >>> sensor = jq.accelerometer.Accelerometer.ideal()
        """
        return Accelerometer(*axes.ideal(dtype))


def measure(
    key: Array,
    accelerometer: Accelerometer,
    q: ArrayLike,
    acceleration: ArrayLike,
    gravity: ArrayLike,
    dt: ArrayLike,
) -> Array:
    """Simulate the readings along a true motion at N instants. -> (N, 3) [m/s^2].

    Differentiable with respect to all but the key; the result has the dtype of q.

    Args:
        key: key that draws the noise.
        accelerometer: the errors of the accelerometer.
        q: attitudes, body to world, (N, 4), unit.
        acceleration: acceleration of the accelerometer, world axes [m/s^2], (N, 3).
        gravity: acceleration of free fall, world axes [m/s^2], (3,): (0, 0, -9.81) with z up.
        dt: time between the instants [s], ().

    Examples:
        >>> q, still = jnp.array([[1.0, 0.0, 0.0, 0.0]]), jnp.zeros((1, 3))
        >>> sensor, gravity = jq.accelerometer.Accelerometer.ideal(), jnp.array([0.0, 0.0, -9.75])
        >>> jq.accelerometer.measure(jax.random.key(0), sensor, q, still, gravity, 0.01)
        Array([[0.  , 0.  , 9.75]], dtype=float32)
    """
    axes.key_first("accelerometer", key, Accelerometer)
    acceleration = axes.samples("acceleration", acceleration)
    gravity = exactly("gravity", gravity, (3,))
    q = exactly("q", q, (len(acceleration), 4))
    single_or_double("q", q)
    unit_quaternion("q", q)
    force = quaternion.rotate_inverse(q, acceleration - gravity[None])
    return axes.measure(key, axes.checked(accelerometer, Accelerometer), force, dt)


def correct(accelerometer: Accelerometer, measured: ArrayLike) -> Array:
    """Estimate the true specific forces from N measured ones [m/s^2]. (N, 3) -> (N, 3).

    Examples:
        >>> sensor = jq.accelerometer.Accelerometer.ideal()._replace(scale=jnp.full(3, 0.25))
        >>> jq.accelerometer.correct(sensor, jnp.array([[0.0, 0.0, 12.5]]))  # 12.5/1.25 m/s^2
        Array([[ 0.,  0., 10.]], dtype=float32)
    """
    return axes.correct(axes.checked(accelerometer, Accelerometer), measured)


def calibrate(samples: ArrayLike, gravity: ArrayLike) -> tuple[Accelerometer, FitCovariance]:
    """Estimate bias, scale and misalignment from samples at rest in many poses.

    Least squares fits the length of the true specific force to the strength of gravity (D. Tedaldi,
    A. Pretto and E. Menegatti, ICRA 2014, (10), without the means of intervals). A common rotation
    of the axes changes no length: the result has the body axes for which xy, xz and yz are 0. Its
    densities of noise are 0. The second result is the covariance of the nine parameters, from the
    residuals.

    Args:
        samples: specific forces at rest, body axes [m/s^2], (N, 3), N >= 10, in poses that cover
            the sphere; many for each pose, or equally accurate means.
        gravity: the local strength of gravity [m/s^2], ().

    Raises:
        ValueError, TypeError: a bad argument; poses that leave a combination of parameters
            undetermined, which the message names; gains outside 0.5 to 1.5 (a wrong unit).

    Examples:
        >>> poses = jq.quaternion.random(jax.random.key(0), (50,))
        >>> measured = jq.quaternion.rotate_inverse(poses, jnp.array([0.0, 0.0, 9.81])) + 0.2
        >>> np.asarray(jq.accelerometer.calibrate(measured, 9.81)[0].bias).round(2)
        array([0.2, 0.2, 0.2], dtype=float32)
    """
    samples = static_samples(samples, 10)  # more than parameters
    gravity = exactly("gravity", gravity, ()).astype(samples.dtype)
    positive("gravity", gravity)
    one, none = jnp.ones((), samples.dtype), jnp.zeros((), samples.dtype)
    zero = jnp.zeros(3, samples.dtype)
    sphere = {"bias": zero, "scale": zero, "yx": none, "zx": none, "zy": none}
    units = {"bias": zero + gravity, "scale": zero + 1.0, "yx": one, "zx": one, "zy": one}
    data = samples, gravity
    params, covariance = fit_ellipsoid(*data, _ellipsoid, _lower_root, sphere, units)
    if not jnp.all(jnp.abs(params["scale"]) < 0.5):
        wanted = f"specific forces in the unit of gravity, {gravity}, and gains of 0.5 to 1.5"
        got = (1.0 + params["scale"]).tolist()
        raise ValueError(f"samples: wanted {wanted}, got gains of {got}")
    angles = _misalignment(params)
    return Accelerometer(params["bias"], params["scale"], angles, none, none), covariance


def _misalignment(params: Any) -> Array:
    none = jnp.zeros_like(params["yx"])
    return jnp.stack([none, none, params["yx"], none, params["zx"], params["zy"]])


def _ellipsoid(params: Any) -> tuple[Array, Array]:
    gains = 1.0 + params["scale"]
    return gains[:, None] * axes.misaligned(_misalignment(params)), params["bias"]


def _lower_root(square: np.ndarray, bias: np.ndarray) -> dict[str, Any]:
    """Return the parameters of the lower triangular matrix with positive gains and this square."""
    root = np.linalg.cholesky(square)
    gains = np.diagonal(root)
    rows = root / gains[:, None]
    lower = {"yx": rows[1, 0], "zx": rows[2, 0], "zy": rows[2, 1]}
    return {"bias": bias, "scale": gains - 1.0, **lower}

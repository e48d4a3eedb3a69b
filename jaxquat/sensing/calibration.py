"""Least squares for sensors that are turned in a field of known strength.

The length of the true vectors is all that is known, so the samples lie on an ellipsoid. Parameters
that the directions do not determine are named in an error. The criterion: residuals and parameters
are taken relative to the field, and the mean square of the residuals' derivative along a
combination of parameters must exceed three times the noise. Noise alone makes it as large as
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from jaxquat._checks import concrete, finite
from jaxquat._linear import dot, inverse, matvec, transpose
from jaxquat._reprs import named_leaves
from jaxquat.learning.covariance import FitCovariance, fit_covariance
from jaxquat.sensing.triad import samples

_ITERATIONS = 200


def static_samples(name: str, value: Any, parameters: int) -> Array:
    """``value`` as concrete finite samples (N, 3), more of them than parameters."""
    array = samples(name, value)
    concrete(name, array, "a calibration needs values, call it outside jit")
    finite(name, array)
    if len(array) <= parameters:
        wanted = f"more samples than the {parameters} parameters"
        raise ValueError(f"{name}: wanted {wanted}, got {len(array)}")
    return array


def fit_ellipsoid(
    name: str,
    samples: Array,
    strength: Array,
    sensor: Callable[[Any], tuple[Array, Array]],
    start: Any,
    units: Any,
) -> tuple[Any, FitCovariance]:
    """The parameters whose ellipsoid ``matrix u + offset``, |u| = strength, fits (N, 3) samples.

    The residuals are distances to the ellipsoid to first order (P. D. Sampson, Comput. Graphics
    Image Process. 18, 1982, 97-108), in the unit of the samples.

    Args:
        name: of the samples, for the errors.
        samples: measured.
        strength: of the field.
        sensor: ``sensor(params) -> (matrix, offset)``.
        start: parameters to begin with.
        units: a tree like ``start``; a change of a parameter by this moves samples by about the
            strength of the field as measured.

    Raises:
        ValueError: by name, where the samples do not determine the parameters.
    """

    def residuals(params: Any) -> Array:
        matrix, offset = sensor(params)
        to_true = inverse(matrix)
        true = matvec(to_true[None], samples - offset[None])
        length = jnp.sqrt(dot(true, true))
        normal = matvec(transpose(to_true)[None], true / length[:, None])
        return (length - strength) / jnp.sqrt(dot(normal, normal))

    flat, unravel = ravel_pytree(start)
    size = np.asarray(ravel_pytree(units)[0], float)
    scale = float(jnp.sqrt(jnp.mean(dot(samples, samples)))) * np.sqrt(len(samples))
    of_vector = lambda x: residuals(unravel(x))  # noqa: E731
    both = jax.jit(lambda x: (of_vector(x), jax.jacfwd(of_vector)(x)))

    def linearised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Relative residuals, whose squares sum to their mean square, and the Jacobian."""
        value, jacobian = both(jnp.asarray(x, flat.dtype))
        return np.asarray(value, float) / scale, np.asarray(jacobian, float) * size / scale

    x = np.asarray(flat, float)
    geometry = linearised(x)[1]
    x, noise = _levenberg_marquardt(linearised, x, size)
    _refuse_flat(name, geometry, 3.0 * noise, start)
    params = unravel(jnp.asarray(x, flat.dtype))
    return params, fit_covariance(residuals, params)


def _levenberg_marquardt(
    linearised: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    x: np.ndarray,
    size: np.ndarray,
) -> tuple[np.ndarray, float]:
    """A minimum, and the root mean square of the relative residuals there.

    It ends where no step makes the residuals smaller, which rounding brings about.
    """
    damping = 1e-3
    value, jacobian = linearised(x)
    for _ in range(_ITERATIONS):
        rows = np.concatenate([jacobian, np.sqrt(damping) * np.eye(len(x))])
        step = np.linalg.lstsq(rows, np.concatenate([-value, np.zeros(len(x))]), rcond=None)[0]
        tried, slopes = linearised(x + size * step)
        if np.sum(tried**2) < np.sum(value**2) and np.all(np.isfinite(slopes)):
            x, value, jacobian, damping = x + size * step, tried, slopes, damping / 10.0
        else:
            damping *= 10.0
        if damping > 1e6:
            break
    return x, float(np.sqrt(np.sum(value**2)))


def _refuse_flat(name: str, jacobian: np.ndarray, tolerance: float, params: Any) -> None:
    """ValueError that names the combinations of parameters which hardly change the residuals."""
    values, directions = np.linalg.svd(jacobian)[1:]
    flat = directions[values <= max(tolerance, 1e-6)]
    if len(flat):
        names = [
            place + (str(list(index)) if index else "")
            for place, leaf in named_leaves(params)
            for index in np.ndindex(leaf.shape)
        ]
        combinations = "; ".join(_combination(row, names) for row in flat)
        wanted = "directions that determine every parameter"
        raise ValueError(f"{name}: wanted {wanted}, got none for {combinations}")


def _combination(row: np.ndarray, names: list[str]) -> str:
    largest = np.abs(row).max()
    parts = zip(row, names, strict=True)
    return " ".join(f"{x:+.2g} {name}" for x, name in parts if abs(x) > 0.1 * largest)

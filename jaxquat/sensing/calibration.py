"""Least squares for sensors that are turned in a field of known strength.

The length of the true vectors is all that is known, so the samples lie on an ellipsoid. Parameters
that the directions do not determine are named in an error. The criterion: residuals and parameters
are taken relative to the field, and the mean square of the residuals' derivative along a
combination of parameters must exceed three times the noise. Noise alone makes it as large as
itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from jaxquat._checks import concrete, finite
from jaxquat._linear import dot, inverse, matvec, transpose
from jaxquat._reprs import named_numbers
from jaxquat.learning.covariance import FitCovariance
from jaxquat.learning.differentiation import with_jacobian
from jaxquat.learning.least_squares import least_squares
from jaxquat.sensing.triad import samples


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
        sensor: ``sensor(params) -> (matrix, offset)``. Its programs are kept, so it must be one
            function for all calls.
        start: parameters to begin with.
        units: a tree like ``start``; a change of a parameter by this moves samples by about the
            strength of the field as measured.

    Raises:
        ValueError: by name, where the samples do not determine the parameters.
    """
    residuals, linearised = _programs(sensor)
    data = samples, strength
    geometry = np.asarray(linearised(start, data)[1], float)
    fit = least_squares(residuals, start, data, progress=False)
    norm = float(jnp.sqrt(jnp.sum(dot(samples, samples))))
    scaled = geometry * np.asarray(ravel_pytree(units)[0], float) / norm
    _refuse_flat(name, scaled, 3.0 * np.sqrt(2.0 * fit.cost) / norm, start)
    return fit.params, fit.covariance


@functools.cache
def _programs(sensor: Callable[[Any], tuple[Array, Array]]) -> tuple[Any, Any]:
    """``(params, (samples, strength)) -> residuals``, and with their Jacobian, compiled."""

    def residuals(params: Any, data: tuple[Array, Array]) -> Array:
        samples, strength = data
        matrix, offset = sensor(params)
        to_true = inverse(matrix)
        true = matvec(to_true[None], samples - offset[None])
        length = jnp.sqrt(dot(true, true))
        normal = matvec(transpose(to_true)[None], true / length[:, None])
        return (length - strength) / jnp.sqrt(dot(normal, normal))

    both = lambda params, data: with_jacobian(lambda p: residuals(p, data))(params)  # noqa: E731
    return residuals, jax.jit(both)


def _refuse_flat(name: str, jacobian: np.ndarray, tolerance: float, params: Any) -> None:
    """ValueError that names the combinations of parameters which hardly change the residuals."""
    values, directions = np.linalg.svd(jacobian)[1:]
    flat = directions[values <= max(tolerance, 1e-6)]
    if len(flat):
        names = named_numbers(params, name)
        combinations = "; ".join(_combination(row, names) for row in flat)
        wanted = "directions that determine every parameter"
        raise ValueError(f"{name}: wanted {wanted}, got none for {combinations}")


def _combination(row: np.ndarray, names: tuple[str, ...]) -> str:
    largest = np.abs(row).max()
    parts = zip(row, names, strict=True)
    return " ".join(f"{x:+.2g} {name}" for x, name in parts if abs(x) > 0.1 * largest)

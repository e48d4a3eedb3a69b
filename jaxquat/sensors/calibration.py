"""Least-squares calibration of sensors that are turned in a field of known strength.

Only the length of the true vectors is known, so the samples lie on an ellipsoid. A combination of
parameters is determined if the root mean square of the residuals' derivative along it exceeds three
times the noise (relative to the field); noise alone makes it as large as the noise.
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

from jaxquat._internal.checks import concrete, finite
from jaxquat._internal.linear import dot, inverse, matvec, transpose
from jaxquat._internal.reprs import named_numbers
from jaxquat.fitting.covariance import FitCovariance
from jaxquat.fitting.differentiation import with_jacobian
from jaxquat.fitting.least_squares import LeastSquares, LeastSquaresOptions, least_squares
from jaxquat.sensors.axes import samples


def static_samples(value: Any, least: int) -> Array:
    """Return ``value`` as concrete finite samples (N, 3), at least so many."""
    array = samples("samples", value)
    concrete("samples", array, "the fit needs values, call it outside jit")
    finite("samples", array)
    if len(array) < least:
        raise ValueError(f"samples: wanted at least {least}, got {len(array)}")
    return array


def fit_ellipsoid(
    samples: Array,  # measured, (N, 3)
    strength: Array,  # of the field, ()
    sensor: Callable[[Any], tuple[Array, Array]],  # params -> (matrix, offset); compiled by object
    params_of: Callable[[np.ndarray, np.ndarray], Any],  # (matrix matrix^T, offset) -> the start
    sphere: Any,  # parameters of a sphere around the samples
    units: Any,  # like ``sphere``, changes that move samples by about the field's strength
) -> tuple[Any, FitCovariance]:
    """Return the parameters whose ellipsoid ``matrix u + offset``, |u| = strength, fits samples."""
    # Residuals are distances to first order (P. D. Sampson, Comput. Graphics Image Process. 18,
    # 1982, 97-108). ValueError if the samples do not determine the parameters.
    if not np.any(np.asarray(samples)):
        raise ValueError("samples: wanted samples of a field, got zeros alone")
    residuals, linearised = _programs(sensor)
    data = samples, strength
    ellipsoid = _algebraic(samples)
    start = sphere
    if ellipsoid is not None:
        start = params_of(ellipsoid[0] / float(strength) ** 2, ellipsoid[1])
    fit = _fitted(residuals, start, data)
    matrix, offset = (np.asarray(x, float) for x in sensor(fit.params))
    root = params_of(matrix @ matrix.T, offset)
    flat, flat_root = (np.asarray(ravel_pytree(x)[0], float) for x in (fit.params, root))
    if np.abs(flat - flat_root).max() > 1e-3 * np.abs(flat_root).max():
        # The iteration has moved to another, mirrored root.
        fit = _fitted(residuals, root, data)
    norm = float(np.linalg.norm(np.asarray(samples, float)))
    scale = np.asarray(ravel_pytree(units)[0], float) / norm
    for params in (sphere, fit.params):  # noise may bend the fitted ellipsoid
        geometry = np.asarray(linearised(params, data)[1], float)
        _check_determined(geometry * scale, 3.0 * np.sqrt(2.0 * fit.cost) / norm, sphere)
    return fit.params, fit.covariance


def _fitted(residuals: Any, start: Any, data: tuple[Array, Array]) -> LeastSquares:
    start = jax.tree.map(lambda x: jnp.asarray(x, data[0].dtype), start)
    return least_squares(residuals, start, data, options=LeastSquaresOptions(progress=False))


@functools.cache
def _programs(sensor: Callable[[Any], tuple[Array, Array]]) -> tuple[Any, Any]:
    """Return the residuals as a function of params and data, and their compiled Jacobian."""

    def residuals(params: Any, data: tuple[Array, Array]) -> Array:
        samples, strength = data
        matrix, offset = sensor(params)
        to_true = inverse(matrix)
        true = matvec(to_true[None], samples - offset[None]) / strength
        length = jnp.sqrt(dot(true, true))
        normal = matvec(transpose(to_true)[None], true / length[:, None])
        return strength * ((length - 1.0) / jnp.sqrt(dot(normal, normal)))

    both = lambda params, data: with_jacobian(lambda p: residuals(p, data))(params)  # noqa: E731
    return residuals, jax.jit(both)


def _algebraic(samples: Array) -> tuple[np.ndarray, np.ndarray] | None:
    """Return C and c of ``(x - c)^T C^-1 (x - c) = 1`` by a biased linear fit, or None."""
    x = np.asarray(samples, float)
    middle = x.mean(axis=0)
    spread = np.abs(x - middle).max() or 1.0
    x = (x - middle) / spread
    i, j = np.triu_indices(3)
    design = np.concatenate([np.where(i == j, 1.0, 2.0) * x[:, i] * x[:, j], 2.0 * x], axis=1)
    entries = np.linalg.lstsq(design, np.ones(len(x)))[0]
    quadric, linear = np.zeros((3, 3)), entries[6:]
    quadric[i, j] = quadric[j, i] = entries[:6]
    values, axes = np.linalg.eigh(quadric)
    if values[0] <= 1e-6 * values[-1]:
        return None
    centre = -axes @ (axes.T @ linear / values)
    size = spread**2 * (1.0 - linear @ centre)
    return size * (axes / values) @ axes.T, middle + spread * centre


def _check_determined(jacobian: np.ndarray, tolerance: float, params: Any) -> None:
    """Raise an error that names combinations of parameters that hardly change the residuals."""
    values, directions = np.linalg.svd(jacobian, full_matrices=False)[1:]
    names, combinations = named_numbers(params, "samples"), []
    for row in directions[values <= max(tolerance, 1e-6)]:
        parts, least = zip(row, names, strict=True), 0.1 * np.abs(row).max()
        combinations.append(" ".join(f"{x:+.2g} {name}" for x, name in parts if abs(x) > least))
    if combinations:
        wanted, got = "directions that determine every parameter", "; ".join(combinations)
        raise ValueError(f"samples: wanted {wanted}, got none for {got}")

"""Least squares for sensors that are turned in a field of known strength.

The length of the corrected samples is all that is known, so the samples lie on an ellipsoid.
Parameters that the directions do not determine are named in an error: the Jacobian of the relative
residuals by parameters in units of the field must exceed, in every direction, three times the
relative noise of the samples, which alone would make it that large.
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


def fit_lengths(
    name: str,
    corrected: Callable[[Any], Array],
    strength: Array,
    start: Any,
    units: Any,
) -> tuple[Any, FitCovariance]:
    """Parameters with which all ``corrected(params)`` (N, 3) have the length ``strength``.

    ``units`` is a tree like ``start`` with the size of each parameter, or what a change of it by 1
    in proportion to the field is. ValueError by ``name`` where the samples do not determine them.
    """

    def residuals(params: Any) -> Array:
        return jnp.sqrt(jnp.sum(corrected(params) ** 2, axis=1)) - strength

    flat, unravel = ravel_pytree(start)
    size = np.asarray(ravel_pytree(units)[0], float)
    scale = float(strength) * np.sqrt(len(residuals(start)))
    relative = lambda x: residuals(unravel(x))  # noqa: E731
    both = jax.jit(lambda x: (relative(x), jax.jacfwd(relative)(x)))

    def linearised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Relative residuals, their squares' sum the mean square, and their Jacobian."""
        value, jacobian = both(jnp.asarray(x, flat.dtype))
        return np.asarray(value, float) / scale, np.asarray(jacobian, float) * size / scale

    x = np.asarray(flat, float)
    geometry = linearised(x)[1]
    x, noise = _levenberg_marquardt(linearised, x, size)
    names = [
        place + (str(list(index)) if index else "")
        for place, leaf in named_leaves(start)
        for index in np.ndindex(leaf.shape)
    ]
    _refuse_flat(name, geometry, 3.0 * noise, names)
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
        if np.sum(tried**2) < np.sum(value**2):
            x, value, jacobian, damping = x + size * step, tried, slopes, damping / 10.0
        else:
            damping *= 10.0
        if damping > 1e6:
            break
    return x, float(np.sqrt(np.sum(value**2)))


def _refuse_flat(name: str, jacobian: np.ndarray, tolerance: float, names: list[str]) -> None:
    """ValueError that names the combinations of parameters which hardly change the residuals."""
    values, directions = np.linalg.svd(jacobian, full_matrices=True)[1:]
    tolerance = max(tolerance, 1e-6)
    flat = [row for row, value in zip(directions, values, strict=True) if value <= tolerance]
    if flat:
        combinations = [
            " ".join(
                f"{x:+.2g} {parameter}"
                for x, parameter in zip(row, names, strict=True)
                if abs(x) > 0.1 * np.abs(row).max()
            )
            for row in flat
        ]
        wanted = "directions that determine every parameter"
        raise ValueError(f"{name}: wanted {wanted}, got none for {'; '.join(combinations)}")

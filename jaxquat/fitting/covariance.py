"""Covariance of fitted parameters, and directions that the data do not determine.

Singular values of the scaled Jacobian J: forming J^T J would double the digits that are lost.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxquat._internal import reprs
from jaxquat._internal.checks import concrete, finite, one_shape, positive, single_or_double, takes
from jaxquat._internal.renamed import has_old_fields
from jaxquat.fitting.differentiation import with_jacobian
from jaxquat.fitting.held import checked_params, estimates, fitted, size_of_one_start, whole
from jaxquat.fitting.prediction import Prediction, propagated, with_unknown

__all__ = ["FitCovariance", "fit_covariance"]

ON_HOST = "its ranks and warnings need values, call it outside jit, grad and vmap"


@has_old_fields("FitCovariance")
@dataclass(frozen=True, eq=False, repr=False)
class FitCovariance:
    """The result of ``fit_covariance`` for n parameters, in the order of ``names`` throughout.

    ``print`` shows all parameters and flat directions, ``repr`` the first lines of it.

    Attributes:
        names: the names of the n parameters, from their places in the tree.
        params: the parameters at which the residuals were linearised.
        standard_errors: a pytree like the parameters; infinite where part of a flat direction.
        covariance: (n, n); infinite on the diagonal and NaN off it where standard errors are
            infinite.
        unidentifiable: (k, n) unit vectors, the flat directions, along which the residuals do not
            change, in the units of the parameters; k = 0 if the data determine all.
        unidentifiable_scaled: (k, n) unit vectors: ``unidentifiable`` with each component
            multiplied by the length of its column of J, so independent of units, as printed.
        singular_values: (n,) of the Jacobian with columns scaled to length 1, as fractions of the
            largest, in falling order.
        sigma: standard deviation of the noise, () or (m,) as given, () if estimated.
        reduced_chi_squared: ``sum((residuals/sigma)^2) / (m - rank)``, 1 within about
            ``sqrt(2/(m - rank))`` if sigma and model are right. None if sigma was estimated, or m =
            rank.
        root: (n, rank); ``root root^T`` is the covariance without the flat directions.

    Examples:
        >>> command = jnp.linspace(0.0, 1.0, 50)  # N m
        >>> model = lambda p: p["gain"] / p["inertia"] * command - 0.5 * command
        >>> params = {"gain": jnp.array(1.0), "inertia": jnp.array(2.0)}
        >>> sure = jq.fit_covariance(model, params, sigma=0.1)
        >>> len(sure.unidentifiable), sure.standard_errors["gain"]  # the ratio alone is known
        (1, Array(inf, dtype=float32))
    """

    names: tuple[str, ...]
    params: Any
    standard_errors: Any
    covariance: np.ndarray
    unidentifiable: np.ndarray
    unidentifiable_scaled: np.ndarray
    singular_values: np.ndarray
    sigma: np.ndarray
    reduced_chi_squared: float | None = None
    root: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def predict(self, function: Callable[[Any], Any]) -> Prediction:
        """Return values that follow from the parameters, with errors by the delta method.

        The covariance of ``function(params)`` is ``G C G^T``, with the covariance C of the
        parameters and the Jacobian G of the function: accurate if the function is linear over the
        standard errors. A value that changes along a flat direction has an infinite standard error.

        Args:
            function: ``function(params) -> pytree of floating arrays``, jittable; its values and
                derivatives must be finite.

        Examples:
            >>> ratio = sure.predict(lambda p: p["gain"] / p["inertia"])
            >>> f"{ratio.value:.2f} +- {ratio.standard_errors:.2f}"  # of the gain alone: inf
            '0.50 +- 0.02'
        """
        return propagated(function, fitted("params", self.params), self.root, self.unidentifiable)

    def __str__(self) -> str:
        width, chi = max(map(len, self.names)), self.reduced_chi_squared
        rows = estimates(self.names, self.params, self.standard_errors)
        lines = [f"{name:{width}s}  {x} +- {error}" for name, x, error in rows]
        for parts in self.unidentifiable_scaled:
            named = (f"{x:+.3g} {name}" for x, name in zip(parts, self.names, strict=True) if x)
            lines.append(f"not identifiable: {' '.join(named)}")
        lines += [] if chi is None else [f"chi-squared per degree of freedom: {chi:.3g}"]
        return "\n".join(lines)

    def __repr__(self) -> str:
        shown, more = reprs.clipped(str(self).splitlines())
        flat = len(self.unidentifiable)
        title = f"FitCovariance: {len(self.names)} parameters, {flat} flat directions"
        return "\n".join([title, *("  " + line for line in [*shown, *more])])


def fit_covariance(
    residuals: Callable[[Any], Array], params: Any, *, sigma: ArrayLike | None = None
) -> FitCovariance:
    """Return the covariance of parameters at a least-squares optimum, ``inv(J^T J / sigma^2)``.

    J is the Jacobian of the residuals. Flat directions, along which the residuals do not change,
    are reported, not inverted: with columns of J scaled to length 1, the right singular vectors
    whose singular value is at most the largest times the root of the dtype's epsilon, below which
    ``J^T J`` has no correct digit. They are combined so that each has few nonzero components. A
    parameter with a part in one has an infinite standard error; those of the others come from the
    remaining directions.

    Args:
        residuals: ``residuals(params) -> (m,)``, jittable: data minus model, or the reverse, in the
            units of the data.
        params: pytree, at the optimum; n numbers in arrays of float32 or float64 count. Other
            leaves are held, signed integers with a UserWarning (write 1.0, not 1). A Body is a
            TypeError.
        sigma: standard deviation of the noise in each residual, () or (m,), absolute as in scipy's
            ``curve_fit(absolute_sigma=True)``; 1.0 if the residuals are already divided by it. None
            estimates one value, the root of ``sum(residuals^2) / (m - rank)``.

    Returns:
        FitCovariance, accurate if the model is linear over the standard errors. J is computed in
        forward mode if n <= m, unless reverse mode is needed or cheaper (fused). A RuntimeWarning
        says that chi-squared makes the errors too small by a factor of 1.5 or more.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name; residuals or
            derivatives that are not finite; too few residuals to estimate sigma.

    Examples:
        >>> readings = 0.02 + 0.1 * jax.random.normal(jax.random.key(0), (400,))  # rad/s, of a gyro
        >>> sure = jq.fit_covariance(lambda bias: readings - bias, readings.mean(), sigma=0.1)
        >>> f"{sure.standard_errors:.4f} rad/s"  # 0.1/sqrt(400)
        '0.0050 rad/s'
    """
    # Check and convert.
    takes("residuals", residuals, "params")
    params = checked_params(params, stacklevel=3)
    concrete("params", params, ON_HOST)
    single_or_double("params", params)
    size_of_one_start(params, None)
    finite("params", ravel_pytree(params)[0])
    value, jacobian = jax.jit(with_jacobian(lambda params: residuals(whole(params))))(params)
    concrete("residuals", value, ON_HOST)
    finite("residuals", value)
    finite("derivatives of residuals", jacobian)
    value, jacobian = np.asarray(value, float), np.asarray(jacobian, float)
    return covariance_of(params, value, jacobian, sigma)


def covariance_of(
    params: Any, value: np.ndarray, jacobian: np.ndarray, sigma: ArrayLike | None = None
) -> FitCovariance:
    """Return the covariance from residuals (m,) and Jacobian (m, n), as ``fit_covariance``."""
    # Check and convert.
    flat, unravel = ravel_pytree(params)
    tolerance = np.sqrt(jnp.finfo(flat.dtype).eps)
    if sigma is not None:
        positive("sigma", one_shape("sigma", sigma, (), value.shape))
        sigma = np.asarray(sigma, float)  # in full precision: JAX would round it to float32
        jacobian = jacobian / np.broadcast_to(sigma, value.shape)[:, None]

    # Compute.
    root, parts, lengths, singular = _decomposed(jacobian, tolerance)
    directions = parts / lengths
    freedom = len(value) - root.shape[1]
    deviation, reduced = sigma, None
    if sigma is None:
        if freedom <= 0:
            wanted = f"more than the {root.shape[1]} identifiable parameters to estimate sigma from"
            raise ValueError(f"residuals: wanted {wanted}, got {len(value)}; give sigma")
        deviation = np.sqrt(np.sum(value**2) / freedom)
        root = deviation * root
    elif freedom > 0:
        reduced = float(np.sum((value / sigma) ** 2) / freedom)
        _warn_if_too_small(reduced, freedom)
    covariance = with_unknown(root @ root.T, np.any(parts != 0.0, axis=0))
    return FitCovariance(
        names=reprs.named_numbers(params, "params"),
        params=whole(params),
        standard_errors=whole(unravel(jnp.asarray(np.sqrt(np.diag(covariance)), flat.dtype))),
        covariance=covariance,
        unidentifiable=directions / np.linalg.norm(directions, axis=1, keepdims=True),
        unidentifiable_scaled=parts / np.linalg.norm(parts, axis=1, keepdims=True),
        singular_values=singular / (singular[0] or 1.0),
        sigma=np.asarray(deviation),
        reduced_chi_squared=reduced,
        root=root,
    )


def _decomposed(
    jacobian: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return a root of the covariance, flat directions, column lengths and singular values."""
    scale = np.linalg.norm(jacobian, axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    values, right = np.linalg.svd(np.linalg.qr(jacobian / scale, mode="r"))[1:]
    singular = np.zeros(len(scale))
    singular[: values.size] = values
    rank = int(np.sum(singular > tolerance * singular[0]))
    root = right[:rank].T / scale[:, None] / singular[:rank]
    return root, _combined(right[rank:], tolerance), scale, singular


def _warn_if_too_small(reduced: float, freedom: int) -> None:
    """Warn if sigma is too small. If it is right, ``reduced`` has mean 1 and variance 2/freedom."""
    if reduced > max(1.0 + 5.0 * np.sqrt(2.0 / freedom), 1.5**2):
        warnings.warn(
            "sigma: wanted the noise of the residuals, "
            f"got a chi-squared per degree of freedom of {reduced:.3g}: "
            f"the residuals are {np.sqrt(reduced):.3g} times what sigma says, "
            "and the standard errors are too small by this factor, "
            "unless the model does not fit or params are not the optimum; "
            "leave out sigma to estimate it from the residuals",
            RuntimeWarning,
            stacklevel=4,
        )


def _combined(rows: np.ndarray, tolerance: float) -> np.ndarray:
    """Return rows that span the same space, by Gauss-Jordan elimination, largest pivot first."""
    rows = rows.copy()
    for k in range(len(rows)):
        remaining = np.abs(rows[k:])
        row, pivot = np.unravel_index(np.argmax(remaining), remaining.shape)
        rows[[k, k + row]] = rows[[k + row, k]]
        rows[k] /= rows[k, pivot]
        other_rows = np.arange(len(rows)) != k
        rows[other_rows] -= rows[other_rows, pivot, None] * rows[k]
    largest = np.max(np.abs(rows), axis=1, keepdims=True, initial=0.0)
    return np.where(np.abs(rows) > tolerance * largest, rows, 0.0)

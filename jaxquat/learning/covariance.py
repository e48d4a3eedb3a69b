"""How well data determine fitted parameters: Gauss-Newton covariance, and the combinations that the data do not see."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxquat._checks import (
    concrete,
    finite,
    floating,
    floating_tree,
    fraction,
    one_shape,
    positive,
    takes,
)
from jaxquat.dynamics.body import refuse_bodies
from jaxquat.learning.differentiation import reverse_only

__all__ = ["FitCovariance", "fit_covariance"]


class FitCovariance(NamedTuple):
    """The result of ``fit_covariance``, n parameters in the order of ``names``; printed, a table and the flat directions.

    Attributes:
        names: of the n parameters, by their place in the tree.
        params: as given.
        standard_errors: of the parameters, a pytree like them; infinite where a flat direction has a part.
        covariance: (n, n); of parameters in a flat direction infinite on the diagonal and NaN beside it.
        flat: (k, n) unit vectors, directions along which the residuals do not change; k = 0 if all is well.
        singular_values: (n,) of the Jacobian with columns scaled to length 1, as fractions of the largest, falling.
        sigma: standard deviation of the noise in the residuals: () or (m,) as given, or () as estimated.
        reduced_chi_squared: ``sum((residuals/sigma)^2) / (m - rank)`` with the sigma given, 1 within about ``sqrt(2/(m - rank))``
            if sigma and model are right. None where sigma was estimated, which makes it 1, and where m = rank.
    """

    names: tuple[str, ...]
    params: Any
    standard_errors: Any
    covariance: np.ndarray
    flat: np.ndarray
    singular_values: np.ndarray
    sigma: np.ndarray
    reduced_chi_squared: float | None = None

    def __str__(self) -> str:
        values, errors = (
            np.asarray(ravel_pytree(tree)[0]) for tree in (self.params, self.standard_errors)
        )
        width = max(map(len, self.names))
        lines = [
            f"{name:{width}s}  {x: .6g} +- {e:.2g}"
            for name, x, e in zip(self.names, values, errors, strict=True)
        ]
        for direction in self.flat:
            largest = np.max(np.abs(direction))
            parts = [
                f"{x:+.3g} {name}"
                for x, name in zip(direction, self.names, strict=True)
                if abs(x) > 1e-3 * largest
            ]
            lines.append("not identifiable: " + " ".join(parts))
        if self.reduced_chi_squared is not None:
            lines.append(f"chi-squared per degree of freedom: {self.reduced_chi_squared:.3g}")
        return "\n".join(lines)


def fit_covariance(
    residuals: Callable[[Any], Array],
    params: Any,
    *,
    sigma: ArrayLike | None = None,
    tolerance: float | None = None,
) -> FitCovariance:
    """Covariance of parameters at a least-squares optimum, ``inv(J^T J / sigma^2)`` with J the Jacobian of the residuals.

    Directions that J does not see are reported, not inverted. They are the right singular vectors of J, its columns scaled to
    length 1 so that units do not matter, with a singular value of at most ``tolerance`` times the largest; several are combined so
    that each has few parts.

    Args:
        residuals: ``residuals(params) -> (m,)``, jittable: data minus model, or the reverse, in the units of the data.
        params: pytree of floating arrays, at the optimum; n numbers in all. A Body is a TypeError, as for ``jq.fit``.
        sigma: standard deviation of the noise in each residual, () or (m,); 1.0 if the residuals are already divided by it. None
            estimates one for all, the root of ``sum(residuals^2) / (m - rank)``. A sigma that is given is believed, as by scipy's
            ``curve_fit(absolute_sigma=True)``: the residuals do not change the errors.
        tolerance: between 0 and 1; None for the square root of the dtype's epsilon: J^T J has no digit left below that.

    Returns:
        FitCovariance. The covariance is that of linear least squares; for a model that is not linear it is right for noise so small
        that the model is linear over the errors found. J is taken in forward mode if n <= m, unless something in the residuals has
        a derivative in reverse mode only. RuntimeWarning where the residuals contradict the sigma given: chi-squared per degree of
        freedom more than five of its standard deviations above 1, and errors thereby too small by a factor of 1.5 or more. One far
        below 1 is in the result alone. It makes the errors too large, and may be meant: residuals that are no independent draws,
        or a forecast, where the model is compared with itself.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name; residuals or derivatives that are not finite;
            no more residuals than identifiable parameters to estimate sigma from.
    """
    takes("residuals", residuals, "params")
    refuse_bodies("params", params)
    params = floating_tree("params", params)
    concrete("params", params, "its ranks and warnings need values, call it outside jit")
    flat, unravel = ravel_pytree(params)
    finite("params", flat)
    if not flat.size:
        raise ValueError("params: wanted at least one number, got none")
    of_flat = lambda vector: floating("residuals", residuals(unravel(vector)))  # noqa: E731
    shape = jax.eval_shape(of_flat, flat).shape
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"residuals: wanted shape (m,), got {shape}")
    forward = flat.size <= shape[0] and not reverse_only(of_flat, flat)
    derivative = (jax.jacfwd if forward else jax.jacrev)(
        lambda vector: (of_flat(vector),) * 2, has_aux=True
    )
    jacobian, value = jax.jit(derivative)(flat)
    finite("residuals", value)
    finite("derivatives of residuals", jacobian)
    jacobian, value = np.asarray(jacobian, float), np.asarray(value, float)
    if tolerance is None:
        tolerance = np.sqrt(jnp.finfo(flat.dtype).eps)
    tolerance = fraction("tolerance", tolerance)
    noise = np.array(1.0)
    if sigma is not None:
        positive("sigma", one_shape("sigma", sigma, (), shape))
        noise = np.asarray(sigma, float)  # as given, where JAX would round it to float32
        jacobian = jacobian / np.broadcast_to(noise, shape)[:, None]

    scale = np.linalg.norm(jacobian, axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    found, right = np.linalg.svd(np.linalg.qr(jacobian / scale, mode="r"))[1:]
    singular = np.zeros(flat.size)
    singular[: found.size] = found
    rank = int(np.sum(singular > tolerance * singular[0]))
    unseen = _combined(right[rank:], tolerance)
    half = right[:rank].T / scale[:, None] / singular[:rank]
    reduced = None
    if sigma is not None and shape[0] > rank:
        reduced = float(np.sum((value / noise) ** 2) / (shape[0] - rank))
        _compare(reduced, shape[0] - rank)
    if sigma is None:
        if shape[0] <= rank:
            raise ValueError(
                f"residuals: wanted more than the {rank} identifiable parameters to get sigma from, got {shape[0]}; give sigma"
            )
        noise = np.sqrt(np.sum(value**2) / (shape[0] - rank))
        half *= noise
    mixed = np.any(unseen != 0.0, axis=0)
    covariance = np.where(np.logical_or.outer(mixed, mixed), np.nan, half @ half.T)
    covariance[mixed, mixed] = np.inf
    directions = unseen / scale
    return FitCovariance(
        names=_names(params),
        params=params,
        standard_errors=unravel(jnp.asarray(np.sqrt(np.diag(covariance)), flat.dtype)),
        covariance=covariance,
        flat=directions / np.linalg.norm(directions, axis=1, keepdims=True),
        singular_values=singular / (singular[0] or 1.0),
        sigma=np.asarray(noise),
        reduced_chi_squared=reduced,
    )


def _compare(reduced: float, freedom: int) -> None:
    """RuntimeWarning if chi-squared per degree of freedom, of mean 1 and variance 2/freedom, says that sigma is too small."""
    if reduced > max(1.0 + 5.0 * np.sqrt(2.0 / freedom), 1.5**2):
        warnings.warn(
            f"sigma: wanted the noise of the residuals, got a chi-squared per degree of freedom of {reduced:.3g}: the residuals "
            f"are {np.sqrt(reduced):.3g} times what sigma says, and the standard errors too small by that, unless the model "
            "does not fit or params are no optimum; leave out sigma to take it from the residuals",
            RuntimeWarning,
            stacklevel=3,
        )


def _combined(rows: np.ndarray, tolerance: float) -> np.ndarray:
    """Rows that span the same space, each the only one with a part along some axis; parts below ``tolerance`` are zero."""
    rows, pivots = rows.copy(), np.zeros(len(rows), int)
    for k in range(len(rows)):
        rest = np.abs(rows[k:])
        row, pivots[k] = np.unravel_index(np.argmax(rest), rest.shape)
        rows[[k, k + row]] = rows[[k + row, k]]
        rows[k] /= rows[k, pivots[k]]
        others = np.arange(len(rows)) != k
        rows[others] -= rows[others, pivots[k], None] * rows[k]
    return np.where(
        np.abs(rows) > tolerance * np.max(np.abs(rows), axis=1, keepdims=True, initial=0.0),
        rows,
        0.0,
    )


def _names(params: Any) -> tuple[str, ...]:
    """A name for each number, in the order of ``ravel_pytree``."""
    return tuple(
        (jax.tree_util.keystr(path, simple=True, separator=".") or "params")
        + (str(list(index)) if index else "")
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        for index in np.ndindex(leaf.shape)
    )

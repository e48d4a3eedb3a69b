"""Values that follow from fitted parameters, with standard errors by the delta method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from jaxquat._internal import reprs
from jaxquat._internal.checks import concrete, finite, floating_tree, takes
from jaxquat.fitting.held import estimates, whole

__all__ = ["Prediction"]


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(reprs.Tabular):
    """The result of ``predict``: values that follow from fitted parameters, k numbers in all.

    Attributes:
        names: the names of the k numbers, from their places in the tree.
        value: what the function returned at the fitted parameters.
        standard_errors: a pytree like ``value``; infinite along directions that are not determined.
        covariance: (k, k); infinite on the diagonal and NaN off it where standard errors are
            infinite.

    Examples:
        >>> residuals = lambda rate: jnp.full(100, 0.5) - rate  # rad/s
        >>> sure = jq.fit_covariance(residuals, jnp.array(0.5), sigma=0.1)
        >>> turned = sure.predict(lambda rate: 60.0 * rate)  # in a minute
        >>> f"{turned.value:.1f} +- {turned.standard_errors:.1f} rad"  # 60 (0.1/sqrt(100))
        '30.0 +- 0.6 rad'
    """

    names: tuple[str, ...]
    value: Any
    standard_errors: Any
    covariance: np.ndarray

    def _table(self) -> reprs.Table:
        rows = estimates(self.names, self.value, self.standard_errors)
        return f"Prediction: {len(rows)} values", rows, ("name", "value", "standard error")


def with_unknown(covariance: np.ndarray, infinite: np.ndarray) -> np.ndarray:
    """Return the covariance with infinite variances, and NaN beside them, where ``infinite``."""
    covariance = np.where(np.logical_or.outer(infinite, infinite), np.nan, covariance)
    covariance[infinite, infinite] = np.inf
    return covariance


def propagated(
    function: Callable[[Any], Any], params: Any, root: np.ndarray, flat: np.ndarray
) -> Prediction:
    """Return the prediction for the covariance ``root root^T``, infinite along ``flat`` (k, n)."""
    # Check and convert.
    takes("function", function, "params")
    x, unravel = ravel_pytree(params)

    def both(x: Array) -> tuple[Array, tuple[Array, Any]]:
        tree = floating_tree("function", function(whole(unravel(x))))
        values = ravel_pytree(tree)[0]
        if not values.size:
            raise ValueError("function: wanted at least one number, got none")
        return values, (values, tree)

    jacobian, (values, tree) = jax.jit(jax.jacfwd(both, has_aux=True))(x)
    concrete("function", values, "it needs values, call predict outside jit, grad and vmap")
    finite("function", values)
    finite("derivatives of function", jacobian)

    # Compute.
    jacobian = np.asarray(jacobian, float)
    covariance = jacobian @ root @ (jacobian @ root).T
    # A value does not change along a direction if its changes due to the single parameters cancel.
    tolerance = np.sqrt(jnp.finfo(x.dtype).eps)
    changes, parts = np.abs(jacobian @ flat.T), np.abs(jacobian) @ np.abs(flat.T)
    infinite = np.any(changes > tolerance * parts, axis=1)
    covariance = with_unknown(covariance, infinite)
    errors = jnp.asarray(np.sqrt(np.diag(covariance)), values.dtype)
    return Prediction(
        names=reprs.named_numbers(tree, "value"),
        value=tree,
        standard_errors=ravel_pytree(tree)[1](errors),
        covariance=covariance,
    )

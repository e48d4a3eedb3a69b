"""Nonlinear least squares by Levenberg and Marquardt's method, with the covariance."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxquat._internal import checks, reprs
from jaxquat._internal import progress as bars
from jaxquat._internal.renamed import refuses_old_keywords, takes_old_names
from jaxquat.fitting.bounds import check_inside, checked_bounds
from jaxquat.fitting.covariance import FitCovariance, covariance_of
from jaxquat.fitting.differentiation import with_jacobian
from jaxquat.fitting.held import checked_params, estimates, size_of_one_start, whole
from jaxquat.fitting.interruption import keeping
from jaxquat.fitting.levenberg_marquardt import (
    Criteria,
    Linearised,
    Minimum,
    Problem,
    minimise_in_parts,
)
from jaxquat.fitting.prediction import Prediction

__all__ = ["LeastSquares", "LeastSquaresOptions", "least_squares"]

ON_HOST = "jq.least_squares iterates on the host, call it outside jit, grad and vmap"


@dataclass(frozen=True, eq=False, repr=False)
class LeastSquares(reprs.Tabular):
    """The result of ``least_squares`` for n parameters and m residuals.

    Attributes:
        params: the parameters at the end.
        cost: half the sum of squares at the end.
        residuals: the residuals at the end, (m,), as the function returned them, in their dtype.
        converged: whether the gradient vanishes at the end, except for parameters at a bound: at a
            minimum, or at a maximum where the iteration started.
        reason: why the iteration ended, in words.
        evaluations: how often residuals were computed; scipy's ``nfev``.
        jacobians: how often their Jacobian was computed; scipy's ``njev``.
        history: the cost at the start and after each accepted step.
        covariance: the FitCovariance of the parameters.

    Examples:
        >>> t = jnp.linspace(0.0, 2.0, 50)
        >>> residuals = lambda p: p[0] * jnp.exp(-p[1] * t) - 3.0 * jnp.exp(-0.7 * t)
        >>> fit = jq.least_squares(residuals, jnp.ones(2), sigma=0.01)
        >>> fit.converged, [f"{x:.2f}" for x in fit.params]
        (True, ['3.00', '0.70'])
    """

    params: Any
    cost: float
    residuals: np.ndarray
    converged: bool
    reason: str
    evaluations: int
    jacobians: int
    history: np.ndarray
    covariance: FitCovariance

    @property
    def standard_errors(self) -> Any:
        """The standard errors of the parameters, a pytree like them, from ``covariance``.

        Examples:
            >>> fit.standard_errors.round(3)
            Array([0.004, 0.002], dtype=float32)
        """
        return self.covariance.standard_errors

    def predict(self, function: Callable[[Any], Any]) -> Prediction:
        """Return values that follow from the parameters: ``FitCovariance.predict``.

        Examples:
            >>> later = fit.predict(lambda p: p[0] * jnp.exp(-p[1] * 3.0))  # y at t = 3
            >>> f"{later.value:.3f} +- {later.standard_errors:.3f}"
            '0.367 +- 0.002'
        """
        return self.covariance.predict(function)

    def _table(self) -> reprs.Table:
        rows = estimates(self.covariance.names, self.params, self.standard_errors)
        verdict = "converged" if self.converged else "not converged"
        counts = f"{self.evaluations} evaluations, {self.jacobians} Jacobians"
        title = f"LeastSquares: cost {self.cost:.6g}, {verdict} ({self.reason}), {counts}"
        return title, rows, ("parameter", "value", "standard error")


class LeastSquaresOptions(NamedTuple):
    """How ``least_squares`` iterates, and when it ends.

    The tolerances lie between 0 and 1. None is the epsilon of the dtype to the power 2/3, 3.7e-11
    in float64 and 2.4e-5 in float32; in ``ftol`` at most 1e-6.

    Attributes:
        max_steps: largest number of steps to try.
        ftol: end as converged if the last step changed the cost by at most this fraction of it, and
            the linear model predicts no larger decrease for any step.
        xtol: end as converged if the step to the minimum of the linear model changes no parameter
            by more than this fraction of it.
        gtol: end as converged if the cosine between the residuals and every column of their
            Jacobian is at most this; parameters held at a bound do not count.
        progress: show a progress bar with the cost.

    Examples:
        >>> options = jq.LeastSquaresOptions(max_steps=1, progress=False)
        >>> jq.least_squares(lambda x: x**2, jnp.ones(1), sigma=1.0, options=options).reason
        'max_steps reached'
    """

    max_steps: int = 100
    ftol: float | None = None
    xtol: float | None = None
    gtol: float | None = None
    progress: bool = True


@takes_old_names("least_squares")
@refuses_old_keywords("least_squares")
def least_squares(
    residuals: Callable[..., Array],
    params: Any,
    data: Any = None,
    *,
    bounds: tuple[Any, Any] | None = None,
    sigma: ArrayLike | None = None,
    prefixes: tuple[float, ...] = (),
    options: LeastSquaresOptions = LeastSquaresOptions(),  # noqa: B008
) -> LeastSquares:
    """Minimise ``1/2 sum(residuals(params)^2)`` by the method of Levenberg and Marquardt.

    The lengths of the columns of the Jacobian scale the parameters, so units do not matter.

    Args:
        residuals: ``residuals(params) -> (m,)``, or ``residuals(params, data)`` with data,
            jittable: data minus model or the reverse.
        params: where to start, a pytree; n numbers in arrays of float32 or float64 are fitted.
            Other leaves are held, signed integers with a UserWarning (write 1.0, not 1). A Body is
            a TypeError, as in ``jq.fit``.
        data: pytree of arrays. A second call with the same function and data of the same shapes
            does not compile again. Without data, each call compiles.
        bounds: ``(lower, upper)``, each a tree like params or a prefix of it, of bounds () or in
            the shape of the leaf. None or an infinity leaves a side open; a bound for held leaves
            alone is a ValueError. The start lies between the bounds, or on one. No step passes a
            bound, and a minimum at a bound lies exactly on it. ``covariance`` ignores bounds.
        sigma: standard deviation of the noise in each residual, () or (m,), used for the covariance
            alone. None estimates it, as in ``jq.fit_covariance``.
        prefixes: rising fractions of the residuals, in the order of time, between 0 and 1:
            ``(0.1,)`` first fits the first tenth of them, then all. Over a long simulation a poor
            guess loses the phase and the cost has spurious minima; over a short part it has none.
        options: number of steps, tolerances, and the progress bar.

    Returns:
        LeastSquares. A step to residuals that are not finite is refused, and a shorter one is
        tried. If no step helps, ``converged`` is False.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name; residuals or
            derivatives that are not finite at the start; no more residuals than parameters and no
            sigma.
        KeyboardInterrupt: its attribute ``params`` has the best parameters so far, from which a
            second call can continue.

    Examples:
        >>> t = jnp.linspace(0.0, 2.0, 50)  # s
        >>> omega = 3.0 * jnp.exp(-0.7 * t)  # rad/s, of a wheel that runs down
        >>> residuals = lambda decay: 3.0 * jnp.exp(-decay * t) - omega
        >>> f"{jq.least_squares(residuals, jnp.ones(()), sigma=0.01).params:.2f} /s"
        '0.70 /s'
    """
    # Check and convert.
    checks.takes("residuals", residuals, "params" if data is None else "params, data")
    params = jax.tree.map(checks.strong, checked_params(params, stacklevel=5))
    for name, value in (("params", params), ("data", data)):
        checks.concrete(name, value, ON_HOST)
    checks.single_or_double("params", params)
    data = jax.tree.map(jnp.asarray, checks.arrays("data", data))
    size_of_one_start(params, None)
    flat, unravel = ravel_pytree(params)
    checks.finite("params", flat)
    limits = checked_bounds(bounds, params)
    check_inside(limits, np.asarray(flat, float), reprs.named_numbers(params, "params"))
    checks.instance("options", options, LeastSquaresOptions, "a jq.LeastSquaresOptions")
    prefixes = _checked_prefixes(prefixes)
    value, both = _programs_for(residuals, data)
    with keeping(lambda: (whole(params), "at the start")):
        shape = value.eval_shape(params, data)
    rounding = max(float(jnp.finfo(dtype).eps) for dtype in (flat.dtype, shape.dtype))
    criteria = _criteria(options, rounding)
    _check_sigma(sigma, shape.size, flat.size)

    # Compute.
    def residuals_at(x: np.ndarray) -> np.ndarray:
        return np.asarray(value(unravel(jnp.asarray(x, flat.dtype)), data), float)

    def linearised_at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, jacobian = both(unravel(jnp.asarray(x, flat.dtype)), data)
        checks.concrete("residuals", values, ON_HOST)
        return np.asarray(values, float), np.asarray(jacobian, float)

    problem = Problem(residuals_at, linearised_at, limits, rounding)
    parts = [round(part * shape.size) for part in prefixes]
    with bars.bar("steps", shown=options.progress) as bar:
        search = _Search(params, bar)
        with keeping(search.reached):
            start = problem.linearised_at(np.asarray(flat, float))
            checks.finite("residuals at the start", start.residuals)
            checks.finite("derivatives of residuals at the start", start.jacobian)
            minimum = minimise_in_parts(problem, start, parts, criteria, search.report)
    return _result(minimum, unravel(jnp.asarray(minimum.at.x, flat.dtype)), shape.dtype, sigma)


def _result(minimum: Minimum, end: Any, dtype: Any, sigma: ArrayLike | None) -> LeastSquares:
    at = minimum.at
    return LeastSquares(
        params=whole(end),
        cost=at.cost,
        residuals=at.residuals.astype(dtype),
        converged=minimum.reason.converged,
        reason=minimum.reason.value,
        evaluations=minimum.evaluations,
        jacobians=minimum.jacobians,
        history=minimum.history,
        covariance=covariance_of(end, at.residuals, at.jacobian, sigma),
    )


class _Search:
    """The latest point of an iteration, for the progress bar and an interrupt."""

    def __init__(self, params: Any, bar: Any) -> None:
        self.params, self.words, self.bar = params, "at the start", bar

    def report(self, here: Linearised) -> None:
        flat, unravel = ravel_pytree(self.params)
        self.params = unravel(jnp.asarray(here.x, flat.dtype))
        self.words = f"of cost {here.cost:.6g} of {here.residuals.size} residuals"
        self.bar.update()
        self.bar.set_postfix(cost=f"{here.cost:.6g}")

    def reached(self) -> tuple[Any, str]:
        """Return the latest parameters and their cost in words."""
        return whole(self.params), self.words


def _criteria(options: LeastSquaresOptions, eps: float) -> Criteria:
    checks.boolean("progress", options.progress)
    default = eps ** (2.0 / 3.0)
    usual = {"ftol": min(default, 1e-6), "xtol": default, "gtol": default}
    given = {name: getattr(options, name) for name in usual}
    checked = {name: checks.fraction(name, x) for name, x in given.items() if x is not None}
    return Criteria(checks.positive_integer("max_steps", options.max_steps), **{**usual, **checked})


def _checked_prefixes(prefixes: Any) -> tuple[float, ...]:
    parts = checks.numbers("prefixes", prefixes)
    parts = tuple(checks.fraction("prefixes", part) for part in parts)
    if list(parts) != sorted(set(parts)):
        raise ValueError(f"prefixes: wanted rising parts, got {prefixes}")
    return parts


def _check_sigma(sigma: Any, number: int, size: int) -> None:
    if sigma is not None:
        checks.positive("sigma", checks.one_shape("sigma", sigma, (), (number,)))
    elif number <= size:
        wanted = f"more than the {size} parameters to estimate sigma from"
        raise ValueError(f"residuals: wanted {wanted}, got {number}; give sigma")


@functools.lru_cache(maxsize=8)
def _programs(residuals: Callable[..., Any]) -> tuple[Any, Any]:
    """Compile ``(params, data) -> f`` and ``(params, data) -> f, J``."""

    def value(params: Any, data: Any) -> Array:
        arguments = () if data is None else (data,)
        return checks.vector("residuals", residuals(whole(params), *arguments))

    def both(params: Any, data: Any) -> tuple[Array, Array]:
        return with_jacobian(lambda params: value(params, data))(params)

    return jax.jit(value), jax.jit(both)


def _programs_for(residuals: Callable[..., Any], data: Any) -> tuple[Any, Any]:
    """Return the programs; with data, those of an earlier call with the same function."""
    if data is not None:
        with contextlib.suppress(TypeError):  # a callable without a hash
            return _programs(residuals)
    return _programs.__wrapped__(residuals)

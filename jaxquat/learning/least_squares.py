"""Nonlinear least squares by Levenberg and Marquardt's method, with the covariance of the result.

``least_squares`` checks its arguments, compiles residuals and Jacobian, and starts the iteration
(levenberg_marquardt.py) from each start. Bounds limit its steps (trust_region.py), a robust loss is
a transformation of the residuals (robust.py).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from jaxquat import _progress, _reprs
from jaxquat._checks import (
    arrays,
    boolean,
    concrete,
    finite,
    floating_tree,
    fraction,
    numbers,
    one_of,
    one_shape,
    positive,
    positive_integer,
    real,
    renamed,
    single_or_double,
    strong,
    takes,
    vector,
)
from jaxquat.dynamics.body import refuse_bodies
from jaxquat.learning.bounds import check_inside, checked_bounds
from jaxquat.learning.covariance import FitCovariance, covariance_of
from jaxquat.learning.differentiation import with_jacobian
from jaxquat.learning.interruption import keeping
from jaxquat.learning.levenberg_marquardt import (
    Linearised,
    Minimum,
    Problem,
    Tolerances,
    minimise_in_parts,
)
from jaxquat.learning.prediction import Prediction
from jaxquat.learning.robust import LOSSES, Loss

__all__ = ["LeastSquares", "least_squares"]

ON_HOST = "jq.least_squares iterates on the host, call it outside jit, grad and vmap"


@dataclass(frozen=True, eq=False, repr=False)
class LeastSquares(_reprs.Tabular):
    """The result of ``least_squares`` for n parameters and m residuals.

    With ``starts`` everything is that of the best start, but for ``costs`` and the counts.

    Attributes:
        params: at the end.
        cost: ``1/2 sum(C^2 rho(f^2/C^2))`` there, as in scipy; half the sum of squares of the
            residuals if the loss is linear.
        residuals: there, (m,) as the function returned them, in their dtype.
        converged: whether the iteration ended at a stationary point, where the gradient vanishes
            but for parameters at a bound. That is a minimum, not always the lowest, or what it
            started on: at a maximum every derivative is zero, too, and it ends there at once.
        reason: why it ended, in words.
        evaluations: how often residuals were computed, scipy's ``nfev``; with starts from all.
        jacobians: how often their Jacobian was computed, scipy's ``njev``; with starts from all.
        history: the cost at the start and after each accepted step.
        covariance: of the parameters, and what the data do not determine.
        best_start: which of the starts led here; None without starts.
        costs: the cost at the end of each start, (starts,), infinite of one at which residuals
            or derivatives were not finite; None without starts.

    Examples:
        >>> t = jnp.linspace(0.0, 2.0, 50)
        >>> y = 3.0 * jnp.exp(-0.7 * t)
        >>> residuals = lambda p: p[0] * jnp.exp(-p[1] * t) - y
        >>> fit = jq.least_squares(residuals, jnp.ones(2), sigma=0.01, progress=False)
        >>> fit.converged, [f"{x:.2f}" for x in fit.params], fit.residuals.shape
        (True, ['3.00', '0.70'], (50,))
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
    best_start: int | None = None
    costs: np.ndarray | None = None

    @property
    def standard_errors(self) -> Any:
        """Of the parameters, a pytree like them: those of ``covariance``.

        Examples:
            >>> readings = 0.02 + 0.1 * jax.random.normal(jax.random.key(0), (400,))  # rad/s
            >>> residuals = lambda p: readings - p["bias"]
            >>> guess = {"bias": jnp.zeros(())}
            >>> fit = jq.least_squares(residuals, guess, sigma=0.1, progress=False)
            >>> f"{fit.standard_errors['bias']:.4f} rad/s"  # 0.1/sqrt(400)
            '0.0050 rad/s'
        """
        return self.covariance.standard_errors

    def predict(self, function: Callable[[Any], Any]) -> Prediction:
        """Values that follow from the parameters, with standard errors by the delta method.

        It is ``FitCovariance.predict``.

        Examples:
            >>> t = jnp.repeat(jnp.array([-1.0, 1.0]), 50)  # s
            >>> residuals = lambda p: p[0] + p[1] * t - 2.0 * t  # rad, of a wheel at 2 rad/s
            >>> fit = jq.least_squares(residuals, jnp.zeros(2), sigma=0.1, progress=False)
            >>> later = fit.predict(lambda p: p[0] + p[1] * 10.0)  # the angle after 10 s
            >>> f"{later.value:.1f} +- {later.standard_errors:.1f} rad"  # 10 (0.1/sqrt(100))
            '20.0 +- 0.1 rad'
        """
        return self.covariance.predict(function)

    def _table(self) -> _reprs.Table:
        values, errors = (
            np.asarray(ravel_pytree(tree)[0]) for tree in (self.params, self.standard_errors)
        )
        rows = zip(self.covariance.names, values, errors, strict=True)
        cells = [(name, f"{x: .6g}", f"{error:.2g}") for name, x, error in rows]
        return self._headline(), cells, ("parameter", "value", "standard error")

    def _headline(self) -> str:
        verdict = "converged" if self.converged else "not converged"
        counts = f"{self.evaluations} evaluations, {self.jacobians} Jacobians"
        start = ""
        if self.costs is not None:
            start = f", start {self.best_start} of {len(self.costs)}"
        return f"LeastSquares: cost {self.cost:.6g}, {verdict} ({self.reason}), {counts}{start}"


@renamed(horizon="prefixes")
def least_squares(
    residuals: Callable[..., Array],
    params: Any,
    data: Any = None,
    *,
    loss: Literal["linear", "huber", "cauchy"] = "linear",
    f_scale: float = 1.0,
    bounds: tuple[Any, Any] | None = None,
    sigma: ArrayLike | None = None,
    prefixes: tuple[float, ...] = (),
    starts: int | None = None,
    max_steps: int = 100,
    ftol: float | None = None,
    xtol: float | None = None,
    gtol: float | None = None,
    progress: bool = True,
) -> LeastSquares:
    """Minimise ``1/2 sum(residuals(params)^2)`` by the method of Levenberg and Marquardt.

    Parameters of any size and unit are moved together: the lengths of the columns of the Jacobian
    scale them, so the iteration does not depend on units.

    Args:
        residuals: ``residuals(params) -> (m,)``, jittable: data minus model or the reverse. With
            data ``residuals(params, data)``.
        params: where to start, a pytree of float32 or float64 arrays, n numbers in all. A Body is
            a TypeError, as for ``jq.fit``: take ``theta`` of ``jq.Body.from_parameters``.
        data: pytree of arrays. A second call with the same function and data of the same shapes
            does not compile again. Without data each call compiles, because what the function
            takes from elsewhere may have changed.
        loss: what is minimised is ``1/2 sum(C^2 rho(f^2/C^2))``, as in scipy, with the residuals f
            and C = ``f_scale``. "linear": rho(z) = z. "huber": z up to 1, then 2 sqrt(z) - 1.
            "cauchy": log(1 + z).
        f_scale: the residual from which on a robust loss takes one for an outlier. Where most are
            larger, the standard errors are NaN, with a warning.
        bounds: ``(lower, upper)``, each a tree like params or a prefix of it, () or of the shape
            of its leaf; None or an infinity leaves a side open. The start must lie between them, or
            on one. No step passes a bound, and a minimum at a bound is exactly there. Each step
            minimises the linear model between the bounds (C. L. Lawson and R. J. Hanson, Solving
            Least Squares Problems, 1974, chapter 23). The parameters are not transformed, as by a
            logarithm: that would lose their digits where a bound is far away, and flatten the
            cost near one. If residuals at a bound are not finite, the step is refused.
            ``covariance`` is that of the parameters themselves, as if there were no bounds.
        sigma: standard deviation of the noise in each residual, () or (m,), for the covariance
            alone: it does not weigh the residuals. None takes it from the residuals, as in
            ``jq.fit_covariance``. With a robust loss it must be None, and the covariance is
            that of M-estimators (P. J. Huber, Ann. Statist. 1, 799, 1973): the noise is
            ``sqrt(sum(psi^2)/(m - rank))/mean(psi')``, with psi the derivative of the loss. With
            m - rank for m the variance is larger than Huber's by a factor of m/(m - rank).
        prefixes: rising parts of the residuals, between 0 and 1: ``(0.1,)`` first fits the
            first tenth of them, then all. Over a long simulation a
            poor guess loses the phase, and the cost has minima that are none; a short part has
            not. The residuals must then be in the order of time.
        starts: iterate from so many starts, one after the other, and keep the one of lowest cost:
            ``params`` then have this leading axis throughout.
        max_steps: steps that are tried at most, from each start.
        ftol: end, converged, where the last step changed the cost by no more than this part of
            it, and the linear model promised no more by any step. None is the dtype's epsilon to
            the power 2/3, at most 1e-6: 3.7e-11 in float64, 1e-6 in float32.
        xtol: end, converged, where the step to the minimum of the linear model changes no
            parameter by more than this part of it.
        gtol: end, converged, where the residuals and every column of their Jacobian have a cosine
            of at most this, but for parameters that are held at a bound. All three lie between 0
            and 1; None is the dtype's epsilon to the power 2/3 in xtol and gtol.
        progress: show a progress bar with the cost.

    Returns:
        LeastSquares. A step to residuals that are not finite is refused and a shorter one tried.
        Where no step helps, the result says so and is not converged.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name; residuals or
            derivatives that are not finite at the start (at all starts, if there are several);
            no more residuals than parameters and no sigma.
        KeyboardInterrupt: it has an attribute ``params``, the best so far (with starts of one of
            them), from which a second call goes on.

    Examples:
        >>> t = jnp.linspace(0.0, 2.0, 50)  # s
        >>> omega = 3.0 * jnp.exp(-0.7 * t)  # rad/s, of a wheel that runs down
        >>> residuals = lambda p: p["start"] * jnp.exp(-p["decay"] * t) - omega
        >>> guess = {"start": jnp.ones(()), "decay": jnp.ones(())}
        >>> fit = jq.least_squares(residuals, guess, sigma=0.01, progress=False)
        >>> f"{fit.params['start']:.2f} rad/s, {fit.params['decay']:.2f} /s"
        '3.00 rad/s, 0.70 /s'
    """
    # Check and convert.
    takes("residuals", residuals, "params" if data is None else "params, data")
    refuse_bodies("params", params)
    params = jax.tree.map(strong, floating_tree("params", params))
    for name, value in (("params", params), ("data", data)):
        concrete(name, value, ON_HOST)
    single_or_double("params", params)
    data = jax.tree.map(jnp.asarray, arrays("data", data))
    begins = _starts(params, starts)
    flat, unravel = ravel_pytree(begins[0])
    if not flat.size:
        raise ValueError("params: wanted at least one number, got none")
    objective = Loss(one_of("loss", loss, LOSSES), real("f_scale", f_scale))
    positive("f_scale", objective.scale)
    limits = checked_bounds(bounds, begins[0])
    names = _reprs.named_numbers(begins[0], "params")
    for begin in begins:
        finite("params", ravel_pytree(begin)[0])
        check_inside(limits, np.asarray(ravel_pytree(begin)[0], float), names)
    max_steps = positive_integer("max_steps", max_steps)
    boolean("progress", progress)
    prefixes = _checked_prefixes(prefixes)
    value, both = _programs_for(residuals, data)
    with keeping(lambda: (begins[0], "at the start")):
        shape = value.eval_shape(begins[0], data)
    number = shape.size
    rounding = max(float(jnp.finfo(dtype).eps) for dtype in (flat.dtype, shape.dtype))
    tolerances = _tolerances(ftol, xtol, gtol, rounding)
    _check_sigma(sigma, objective, number, flat.size)

    # Compute.
    def residuals_at(x: np.ndarray) -> np.ndarray:
        return np.asarray(value(unravel(jnp.asarray(x, flat.dtype)), data), float)

    def linearised_at(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, jacobian = both(unravel(jnp.asarray(x, flat.dtype)), data)
        concrete("residuals", values, ON_HOST)
        return np.asarray(values, float), np.asarray(jacobian, float)

    problem = Problem(residuals_at, linearised_at, limits, objective, rounding)
    minima = []
    latest: list[Linearised] = []

    def reached() -> tuple[Any, str]:
        return _reached([x.at for x in minima if x is not None] + latest, begins[0], number)

    with _progress.bar("steps", shown=progress) as bar, keeping(reached):

        def report(here: Linearised) -> None:
            latest[:] = [here]
            bar.update()
            bar.set_postfix(cost=f"{here.cost:.6g}")

        for begin in begins:
            first = problem.linearised_at(np.asarray(ravel_pytree(begin)[0], float))
            if first.finite:
                parts = [round(part * number) for part in prefixes]
                minima.append(
                    minimise_in_parts(problem, first, parts, tolerances, max_steps, report)
                )
            elif starts is None:
                finite("residuals at the start", first.residuals)
                finite("derivatives of residuals at the start", first.jacobian)
            else:
                minima.append(None)
    return _result(minima, unravel, (flat.dtype, shape.dtype), objective, sigma, starts)


def _starts(params: Any, starts: int | None) -> list[Any]:
    """The trees of parameters to start from; ValueError if their leading axis is another."""
    if starts is None:
        return [params]
    starts = positive_integer("starts", starts)
    for leaf in jax.tree.leaves(params):
        if leaf.shape[:1] != (starts,):
            wanted = f"a leading axis of {starts} starts throughout"
            raise ValueError(f"params: wanted {wanted}, got shape {leaf.shape}")
    return [jax.tree.map(lambda leaf: leaf[k], params) for k in range(starts)]  # noqa: B023


def _tolerances(ftol: Any, xtol: Any, gtol: Any, eps: float) -> Tolerances:
    default = eps ** (2.0 / 3.0)
    named = {"ftol": (ftol, min(default, 1e-6)), "xtol": (xtol, default), "gtol": (gtol, default)}
    checked = [usual if x is None else fraction(name, x) for name, (x, usual) in named.items()]
    return Tolerances(*checked)


def _checked_prefixes(prefixes: Any) -> tuple[float, ...]:
    parts = tuple(fraction("prefixes", part) for part in numbers("prefixes", prefixes))
    if list(parts) != sorted(set(parts)):
        raise ValueError(f"prefixes: wanted rising parts, got {prefixes}")
    return parts


def _check_sigma(sigma: Any, loss: Loss, number: int, size: int) -> None:
    """ValueError or TypeError if there will be no covariance."""
    if sigma is not None:
        positive("sigma", one_shape("sigma", sigma, (), (number,)))
        if loss.name != "linear":
            wanted = "None with a robust loss, whose standard errors follow from the residuals"
            raise ValueError(f"sigma: wanted {wanted}, got {sigma}")
    elif number <= size:
        wanted = f"more than the {size} parameters to get sigma from"
        raise ValueError(f"residuals: wanted {wanted}, got {number}; give sigma")


def _bound(residuals: Callable[..., Any], data: Any) -> Callable[[Any], Array]:
    """The residuals as a function of the parameters alone, checked."""
    arguments = () if data is None else (data,)
    return lambda params: vector("residuals", residuals(params, *arguments))


def _programs(residuals: Callable[..., Any]) -> tuple[Any, Any]:
    """The compiled ``(params, data) -> f`` and ``(params, data) -> f, J``."""
    value = lambda params, data: _bound(residuals, data)(params)  # noqa: E731
    both = lambda params, data: with_jacobian(_bound(residuals, data))(params)  # noqa: E731
    return jax.jit(value), jax.jit(both)


_kept_programs = functools.lru_cache(maxsize=8)(_programs)


def _programs_for(residuals: Callable[..., Any], data: Any) -> tuple[Any, Any]:
    """The programs of ``_programs``, kept from an earlier call with the same function if data."""
    if data is not None:
        with contextlib.suppress(TypeError):  # a callable without a hash
            return _kept_programs(residuals)
    return _programs(residuals)


def _reached(points: list[Linearised], start: Any, number: int) -> tuple[Any, str]:
    """The best of several points, and its cost in words; the start if there are none.

    A point that was reached with a part of the residuals counts only if there is no other.
    """
    if not points:
        return start, "at the start"
    whole = [at for at in points if at.residuals.size == number]
    best = min(whole or points, key=lambda at: at.cost)
    flat, unravel = ravel_pytree(start)
    of = "" if whole else f" of the first {best.residuals.size} residuals"
    return unravel(jnp.asarray(best.x, flat.dtype)), f"of cost {best.cost:.6g}{of}"


def _result(
    minima: list[Minimum | None],
    unravel: Any,
    dtypes: tuple[Any, Any],
    loss: Loss,
    sigma: ArrayLike | None,
    starts: int | None,
) -> LeastSquares:
    """The best minimum and its covariance; ValueError if there is none.

    ``dtypes`` are those of the parameters and of the residuals.
    """
    costs = np.array([np.inf if x is None else x.at.cost for x in minima])
    best = int(np.argmin(costs))
    minimum = minima[best]
    if minimum is None:
        raise ValueError(f"residuals: wanted finite values at one of {starts} starts, got none")
    params = unravel(jnp.asarray(minimum.at.x, dtypes[0]))
    noise = None if loss.name == "linear" else loss.noise
    at = minimum.at
    covariance = covariance_of(params, at.residuals, at.jacobian, sigma, noise=noise)
    return LeastSquares(
        params=params,
        cost=at.cost,
        residuals=at.residuals.astype(dtypes[1]),
        converged=minimum.reason.converged,
        reason=minimum.reason.value,
        evaluations=sum(x.evaluations for x in minima if x is not None),
        jacobians=sum(x.jacobians for x in minima if x is not None),
        history=minimum.history,
        covariance=covariance,
        best_start=None if starts is None else best,
        costs=None if starts is None else costs,
    )

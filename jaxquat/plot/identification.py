"""The report of an identification: fit, residuals, parameters, correlations, predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from matplotlib.axes import Axes

from jaxquat._internal.checks import arrays, finite, instance
from jaxquat.fitting import held
from jaxquat.fitting.covariance import FitCovariance
from jaxquat.fitting.least_squares import LeastSquares
from jaxquat.fitting.prediction import Prediction
from jaxquat.plot.panels import COLOURS, TIME, NotebookFigure, labelled

_NORMAL = 1.96  # standard errors to either side of an interval of 95 %
_LAGS = 40  # of the autocorrelation, at most


def identification(
    fit: LeastSquares | FitCovariance,
    t: ArrayLike,
    measured: ArrayLike,
    fitted: ArrayLike,
    held_out: tuple[ArrayLike, ArrayLike, Prediction],
) -> np.ndarray:
    """Draw the report of an identification: a new figure with six panels.

    95 % of the autocorrelations of white residuals lie in the grey band. A bar is half the interval
    of 95 % of a parameter, in percent of its value; it is open if the data do not determine it. The
    band of held-out data contains 95 % of them if the model and one noise, ``sigma``, are right.

    Args:
        fit: the result of ``jq.least_squares`` or ``jq.fit_covariance``.
        t: times [s] of the data of the fit, (n,).
        measured: these data, (n, k) or (n,).
        fitted: the values of the fitted model, in the same shape.
        held_out: times (m,) [s], measurements (m, k) or (m,) that the fit did not use, and
            ``fit.predict`` of a function that returns the model's values in their shape.

    Returns:
        The axes, an array (3, 2).

    Examples:
        >>> t = np.linspace(0.0, 2.0, 50)  # s
        >>> measured = 3.0 * np.exp(-0.7 * t) + 0.1 * np.random.default_rng(0).normal(size=50)
        >>> model = lambda p, t: p[0] * jnp.exp(-p[1] * t)  # rad/s
        >>> fit = jq.least_squares(lambda p: model(p, t[:40]) - measured[:40], jnp.ones(2))
        >>> held_out = t[40:], measured[40:], fit.predict(lambda p: model(p, t[40:]))
        >>> fitted = model(fit.params, t[:40])
        >>> axes = jq.plot.identification(fit, t[:40], measured[:40], fitted, held_out)
        >>> axes[0, 0].get_title(loc="left")
        'fit'
    """
    fit = instance("fit", fit, (LeastSquares, FitCovariance), "what jq.least_squares returns")
    fit = fit.covariance if isinstance(fit, LeastSquares) else fit
    if not isinstance(held_out, tuple) or len(held_out) != 3:
        raise TypeError("held_out: wanted (times, measurements, prediction), got something else")
    prediction = instance("held_out[2]", held_out[2], Prediction, "what fit.predict returns")
    t, data, model = _columns("t", t, measured=measured, fitted=fitted)
    values = {"held_out[1]": held_out[1], "held_out[2].value": prediction.value}
    later, unseen, predicted = _columns("held_out[0]", held_out[0], **values)
    figure = NotebookFigure(figsize=(11.0, 9.0), dpi=110, layout="constrained")
    axes = figure.subplots(3, 2)
    _compared(axes[0, 0], "fit", t, data, model)
    _residuals(axes[0, 1], axes[1, 0], t, data - model)
    _parameters(axes[1, 1], fit)
    _correlations(axes[2, 0], fit)
    _compared(axes[2, 1], "held out", later, unseen, predicted)
    noise = float(fit.sigma) if np.ndim(fit.sigma) == 0 else 0.0
    errors = np.reshape(np.asarray(prediction.standard_errors, float), predicted.shape)
    half = _NORMAL * np.hypot(errors, noise)
    for k, (x, reach) in enumerate(zip(predicted.T, half.T, strict=True)):
        look: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "alpha": 0.2, "linewidth": 0}
        axes[2, 1].fill_between(later, x - reach, x + reach, **look)
    return axes


def _columns(t_name: str, t: Any, **values: Any) -> list[np.ndarray]:
    """Return times (n,) and values (n, k), checked, all of one shape."""
    given = {t_name: t, **values}
    found = {name: np.asarray(arrays(name, x), float) for name, x in given.items()}
    t, first, *_ = found.values()
    if t.ndim != 1 or not len(t):
        raise ValueError(f"{t_name}: wanted times (n,), got shape {t.shape}")
    for name, x in found.items():
        like = t if name == t_name else first
        if x.ndim not in (1, 2) or len(x) != len(t) or x.shape != like.shape:
            raise ValueError(f"{name}: wanted ({len(t)},) or ({len(t)}, k), got {x.shape}")
        finite(name, x)
    return [t, *(x.reshape(len(t), -1) for x in list(found.values())[1:])]


def _draw(ax: Axes, x: np.ndarray, values: np.ndarray, style: str, **look: Any) -> None:
    for k, column in enumerate(values.T):
        ax.plot(x, column, style, color=COLOURS[k % len(COLOURS)], markersize=3, **look)


def _compared(ax: Axes, title: str, t: np.ndarray, measured: np.ndarray, model: np.ndarray) -> None:
    _draw(ax, t, measured, ".", alpha=0.5)
    _draw(ax, t, model, "-", linewidth=1.2)
    ax.set_title(title, loc="left")
    labelled(ax, TIME, "dots: measured, lines: model")


def _residuals(ax: Axes, below: Axes, t: np.ndarray, residuals: np.ndarray) -> None:
    """Draw residuals, and below them their correlation with later ones."""
    n = len(t)
    _draw(ax, t, residuals, ".")
    rms = ", ".join(f"{x:.3g}" for x in np.sqrt(np.mean(residuals**2, axis=0)))
    ax.set_title(f"residuals, rms {rms}", loc="left")
    labelled(ax, TIME, "measured - model")
    lags, x = np.arange(min(_LAGS, n - 1) + 1), residuals - np.mean(residuals, axis=0)
    products = np.array([np.sum(x[: n - lag] * x[lag:], axis=0) for lag in lags])
    _draw(below, lags, products / np.where(products[0] > 0, products[0], np.nan), ".-")
    below.axhspan(-_NORMAL / np.sqrt(n), _NORMAL / np.sqrt(n), color="0.85", zorder=0)
    below.set_title("autocorrelation of residuals", loc="left")
    labelled(below, "lag [samples]", "correlation")


def _parameters(ax: Axes, sure: FitCovariance) -> None:
    trees = (held.fitted("params", x) for x in (sure.params, sure.standard_errors))
    values, errors = (np.asarray(ravel_pytree(tree)[0], float) for tree in trees)
    percent = 100 * _NORMAL * errors / np.where(values == 0, np.inf, np.abs(values))
    known = np.isfinite(percent) & (percent > 0)
    edge, least = 10 * max(percent[known], default=1.0), min(percent[known], default=1.0) / 10
    for k, x in enumerate(np.where(known, percent, edge)):
        ax.barh(k, x, height=0.6, color=COLOURS[0], fill=known[k], edgecolor="0.5")
    texts = held.estimates(sure.names, sure.params, sure.standard_errors)
    labels = [f"{name} = {value.strip()} ± {error}" for name, value, error in texts]
    ax.set_yticks(range(len(labels)), labels, fontsize=8)
    ax.set(xscale="log", xlim=(least, edge), ylim=(len(labels), -1))
    ax.set_title("parameters and standard errors", loc="left")
    labelled(ax, "half interval of 95 % [% of the value]", "")


def _correlations(ax: Axes, sure: FitCovariance) -> None:
    """Draw the matrix; grey where a parameter is not determined."""
    deviations = np.sqrt(np.diag(sure.covariance))
    with np.errstate(invalid="ignore", divide="ignore"):
        matrix = sure.covariance / np.outer(deviations, deviations)
    ax.set_facecolor("0.8")
    picture = ax.imshow(matrix, cmap="RdBu_r", vmin=-1.0, vmax=1.0)
    ax.set_xticks(range(len(sure.names)), sure.names, rotation=90, fontsize=8)
    ax.set_yticks(range(len(sure.names)), sure.names, fontsize=8)
    ax.figure.colorbar(picture, ax=ax)
    ax.set_title("correlations", loc="left")

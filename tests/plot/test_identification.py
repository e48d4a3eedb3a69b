"""The report of an identification: what its six panels show."""

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest

import jaxquat as jq

mpl.use("Agg")
from matplotlib import pyplot

from jaxquat import plot

T = np.linspace(0.0, 2.0, 200)
NOISE = 0.1
STEEP = np.array([0.7, 2.0])
MEASURED = 3.0 * np.exp(-STEEP * T[:, None])
MEASURED = MEASURED + NOISE * np.random.default_rng(0).normal(size=MEASURED.shape)
PAST, LATER = slice(0, 150), slice(150, None)


def model(params, t):
    unused = 0.0 * params["unused"]
    return params["rate"] * jnp.exp(-params["decay"][None] * t[:, None]) + unused


START = {"rate": jnp.array(1.0), "decay": jnp.ones(2), "unused": jnp.array(1.0)}


@pytest.fixture(scope="module")
def fit():
    quiet = jq.LeastSquaresOptions(progress=False)
    misses = lambda params: jnp.ravel(model(params, T[PAST]) - MEASURED[PAST])
    return jq.least_squares(misses, START, sigma=NOISE, options=quiet)


def report(fit, **changed):
    prediction = fit.predict(lambda params: model(params, T[LATER]))
    arguments = {
        "t": T[PAST],
        "measured": MEASURED[PAST],
        "fitted": model(fit.params, T[PAST]),
        "held_out": (T[LATER], MEASURED[LATER], prediction),
    }
    return plot.identification(fit, **(arguments | changed))


def test_the_panels_hold_data_model_residuals_and_correlations(fit):
    axes = report(fit)
    fitted = np.asarray(model(fit.params, T[PAST]), float)
    lines = [line.get_ydata() for line in axes[0, 0].lines]
    np.testing.assert_array_equal(lines, [*MEASURED[PAST].T, *fitted.T])
    residuals = MEASURED[PAST] - fitted
    np.testing.assert_array_equal([x.get_ydata() for x in axes[0, 1].lines], residuals.T)
    assert all(ax.get_title(loc="left") for ax in axes.flat)
    matrix = np.ma.filled(axes[2, 0].images[0].get_array(), np.nan)
    names = list(fit.covariance.names)
    free = [k for k, name in enumerate(names) if "unused" not in name]
    block = fit.covariance.covariance[np.ix_(free, free)]
    deviations = np.sqrt(np.diag(block))
    np.testing.assert_allclose(matrix[np.ix_(free, free)], block / np.outer(deviations, deviations))
    assert np.all(np.isnan(np.delete(matrix, free, axis=0)))
    assert pyplot.get_fignums() == []


def test_white_residuals_stay_in_the_band_and_a_wrong_model_leaves_it(fit):
    """Of 40 lags of two columns of white noise, 4 are expected beyond 1.96/sqrt(n)."""
    bound = 1.96 / np.sqrt(len(T[PAST]))

    def outside(axes):
        values = np.array([line.get_ydata()[1:] for line in axes[1, 0].lines])
        return np.sum(np.abs(values) > bound)

    assert outside(report(fit)) <= 10
    slow = MEASURED[PAST] - 0.3 * np.sin(3.0 * T[PAST])[:, None]
    assert outside(report(fit, fitted=slow)) > 40
    np.testing.assert_allclose(report(fit)[1, 0].lines[0].get_ydata()[0], 1.0)


def test_a_bar_is_half_an_interval_in_percent_and_an_undetermined_one_is_open(fit):
    bars = report(fit)[1, 1].patches
    for name, bar in zip(fit.covariance.names, bars, strict=True):
        if "unused" in name:
            assert not bar.get_fill()
        elif "rate" in name:
            error = float(fit.standard_errors["rate"]) / float(fit.params["rate"])
            np.testing.assert_allclose(bar.get_width(), 196.0 * error, rtol=1e-5)
            assert bar.get_fill()


def test_the_band_contains_most_of_the_held_out_data(fit):
    band = report(fit)[2, 1].collections[0].get_paths()[0].vertices
    half = np.ptp(band[band[:, 0] == T[LATER][0], 1]) / 2
    assert 1.96 * NOISE < half < 1.2 * 1.96 * NOISE
    middle = np.asarray(model(fit.params, T[LATER]))[:, 0]
    inside = np.abs(MEASURED[LATER][:, 0] - middle) < 1.96 * NOISE * 1.05
    assert 0.85 < np.mean(inside) <= 1.0


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"fitted": MEASURED[PAST][:, :1]}, ValueError, "fitted: wanted"),
        ({"measured": MEASURED}, ValueError, "measured: wanted"),
        ({"t": MEASURED}, ValueError, "t: wanted times"),
        ({"fitted": np.full((150, 2), np.nan)}, ValueError, "fitted"),
        ({"held_out": (T, MEASURED)}, TypeError, "held_out: wanted"),
        ({"held_out": (T, MEASURED, MEASURED)}, TypeError, r"held_out\[2\]: wanted"),
    ],
)
def test_wrong_arguments_are_named(fit, changed, error, message):
    with pytest.raises(error, match=message):
        report(fit, **changed)

"""Nonlinear least squares: minima, bounds, units, covariance, and why it ends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from marks import some
from scipy import optimize

import jaxquat as jq
from examples.validation import fits
from jaxquat.fitting.levenberg_marquardt import Reason, Step, stop
from jaxquat.fitting.trust_region import step_in_box

T = np.linspace(0.0, 2.0, 40)
RNG = np.random.default_rng(0)
DATA = 3.0 * np.exp(-0.7 * T) + 0.01 * RNG.normal(size=T.size)
OUTLIERS = DATA + np.where(np.arange(T.size) % 9 == 4, 1.0, 0.0)


def decay(params, data):
    return params[0] * jnp.exp(-params[1] * jnp.asarray(T, params.dtype)) - data


def solve(residuals=decay, params=None, data=None, **options):
    params = jnp.ones(2) if params is None else params
    data = jnp.asarray(DATA) if data is None else data
    fields = {name: options.pop(name) for name in jq.LeastSquaresOptions._fields if name in options}
    record = jq.LeastSquaresOptions(**{"progress": False, **fields})
    return jq.least_squares(residuals, params, data, options=record, **options)


def scipy_solve(data=DATA, **options):
    def function(x):
        return x[0] * np.exp(-x[1] * T) - data

    tolerances = dict.fromkeys(("ftol", "xtol", "gtol"), 1e-14)
    return optimize.least_squares(function, [1.0, 1.0], **tolerances, **options)


def test_the_minimum_is_that_of_scipy():
    ours, theirs = solve(), scipy_solve()
    np.testing.assert_allclose(ours.params, theirs.x, rtol=1e-8)
    np.testing.assert_allclose(ours.cost, theirs.cost, rtol=1e-10)
    assert ours.converged
    assert ours.evaluations < 20


def test_transformed_residuals_have_the_minimum_of_hubers_loss():
    """As docs/fitting.md says: their squares are those of scipy; the plain fit is 0.1 off."""

    def residuals(params, data):
        f = decay(params, data) / 0.02
        return jnp.clip(f, -1, 1) * jnp.sqrt(jnp.maximum(2 * jnp.abs(f) - 1, 1))

    ours = solve(residuals, data=jnp.asarray(OUTLIERS))
    theirs = scipy_solve(OUTLIERS, loss="huber", f_scale=0.02)
    np.testing.assert_allclose(0.02**2 * ours.cost, theirs.cost, rtol=1e-8)
    np.testing.assert_allclose(ours.params, theirs.x, rtol=1e-5)
    np.testing.assert_allclose(ours.params, [3.0, 0.7], atol=0.02)
    assert ours.converged


def test_units_change_neither_the_way_nor_the_result():
    unit = jnp.array([1e-6, 1e5])
    plain = solve(bounds=(jnp.array([0.0, 0.0]), None))
    scaled = solve(lambda p, y: decay(p / unit, y), unit, bounds=(jnp.array([0.0, 0.0]), None))
    np.testing.assert_allclose(scaled.params, plain.params * unit, rtol=1e-10)
    np.testing.assert_allclose(scaled.history, plain.history, rtol=1e-6)
    np.testing.assert_allclose(scaled.standard_errors, plain.standard_errors * unit, rtol=1e-6)


def test_a_bound_that_is_not_reached_changes_nothing():
    free, bounded = solve(), solve(bounds=(jnp.array([0.0, -jnp.inf]), jnp.array([10.0, 5.0])))
    np.testing.assert_allclose(bounded.params, free.params, rtol=1e-7)
    np.testing.assert_allclose(bounded.standard_errors, free.standard_errors, rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_bounds_that_are_far_away_change_no_step(dtype):
    """However far: the parameters are not transformed, so they keep their digits."""
    start, data = jnp.ones(2, dtype), jnp.asarray(DATA, dtype)
    free = solve(params=start, data=data)
    for bounds in [(-1e4, None), (-1e300, None), (None, 1e9), (-1e20, 1e20), (-1e300, 1e300)]:
        bounded = solve(params=start, data=data, bounds=bounds)
        np.testing.assert_array_equal(bounded.params, free.params)
        np.testing.assert_array_equal(bounded.history, free.history)


def test_a_minimum_at_a_bound_is_exactly_there():
    bounded = solve(bounds=(None, jnp.array([2.0, jnp.inf])))
    theirs = scipy_solve(bounds=([-np.inf, -np.inf], [2.0, np.inf]))
    assert bounded.converged
    assert bounded.params[0] == 2.0
    np.testing.assert_allclose(bounded.params, theirs.x, rtol=1e-6)
    np.testing.assert_allclose(bounded.cost, theirs.cost, rtol=1e-8)


@pytest.mark.parametrize("distance", [0.0, 1e-12, 1e-6])
def test_a_start_on_a_bound_or_near_it_leaves_it(distance):
    found = solve(bounds=(jnp.array([1.0 - distance, 0.0]), None))
    np.testing.assert_allclose(found.params, scipy_solve().x, rtol=1e-8)
    assert found.converged
    assert found.evaluations < 20


def test_a_bound_that_float32_does_not_have_is_not_passed():
    """0.1 lies between two numbers of float32, and the nearer one is above it."""
    residuals = lambda p, y: (p - 1.0) * jnp.ones(3, p.dtype)
    found = solve(residuals, jnp.array(0.0, jnp.float32), bounds=(None, 0.1))
    assert float(found.params) == float(np.nextafter(np.float32(0.1), np.float32(0.0)))
    assert found.converged


def test_steps_in_a_box_are_those_of_scipy():
    rng = np.random.default_rng(3)
    for _ in range(40):
        matrix, right = rng.normal(size=(6, 6)), 3.0 * rng.normal(size=6)
        lower, upper = -rng.exponential(size=6), rng.exponential(size=6)
        lower[rng.random(6) < 0.3], upper[rng.random(6) < 0.3] = 0.0, np.inf
        theirs = optimize.lsq_linear(matrix, -right, (lower, upper), method="bvls", tol=1e-14)
        step = step_in_box(matrix, right, np.inf, lower, upper)
        np.testing.assert_allclose(step, theirs.x, atol=1e-9)


def test_no_step_in_the_box_and_the_ball_is_better():
    rng = np.random.default_rng(4)
    for radius in np.geomspace(0.01, 3.0, 20):
        matrix, right = rng.normal(size=(3, 3)), 3.0 * rng.normal(size=3)
        lower, upper = -rng.exponential(size=3), rng.exponential(size=3)
        step = step_in_box(matrix, right, radius, lower, upper)
        others = rng.normal(size=(1000, 3))
        others *= radius * rng.random((1000, 1)) / np.linalg.norm(others, axis=1, keepdims=True)
        others = np.clip(others, lower, upper)  # they stay in the ball, for 0 is in the box
        values = np.sum((others @ matrix.T + right) ** 2, axis=1)
        assert np.all((lower <= step) & (step <= upper))
        assert np.linalg.norm(step) <= 1.1**2 * radius
        assert np.sum((matrix @ step + right) ** 2) <= np.min(values)


def test_fewer_residuals_than_parameters_have_a_flat_direction():
    """It is orthogonal to both rows: their cross product."""
    rows = jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]])
    found = solve(lambda p, y: rows @ p - 1.0, jnp.ones(3), sigma=1.0)
    assert found.converged
    assert found.cost < 1e-28
    flat = np.array([-1.0, 5.0, -3.0]) / np.sqrt(35.0)
    np.testing.assert_allclose(np.abs(found.covariance.unidentifiable @ flat), [1.0], rtol=1e-12)


def test_residuals_that_fell_far_are_not_zero_while_the_gradient_is_large():
    """From a rate of -20 the cost falls from 1e34 to that of the best amplitude at this rate."""
    found = solve(params=jnp.array([1.0, -20.0]))
    assert not found.converged
    assert found.reason == "no step, however short, lowers the cost as the derivatives say"
    growth = np.exp(20.0 * T)
    explained = (growth @ DATA) ** 2 / (growth @ growth)
    np.testing.assert_allclose(found.cost, 0.5 * (DATA @ DATA - explained), rtol=1e-8)


def test_a_parameter_that_float32_hardly_resolves_does_not_end_the_fit_of_another():
    """A time of 1.7e9 s is rounded to 128 s: the step of the rate is small beside that alone."""

    def residuals(p, t):
        return p[0] - 1.7e9 + jnp.exp(-p[1] * t) - jnp.exp(-0.7 * t)

    t = jnp.asarray(T, jnp.float32)
    found = solve(residuals, jnp.array([1.7e9, 0.1], jnp.float32), t, sigma=1.0)
    assert found.converged
    np.testing.assert_allclose(found.params[1], 0.7, rtol=1e-5)


def test_a_start_at_a_maximum_is_stationary():
    found = solve(lambda p, y: (p**2 - 1.0) * jnp.ones(3), jnp.array(0.0))
    assert (found.converged, found.reason, found.evaluations) == (True, "gradient small", 1)


def test_a_first_part_leads_to_the_minimum_that_all_residuals_hide():
    """Over 10 periods a frequency 20 % off loses the phase; over the first one it does not."""
    t = jnp.linspace(0.0, 10.0, 200)
    residuals = lambda w, y: jnp.sin(2.0 * jnp.pi * w * t) - y
    signal = jnp.sin(2.0 * jnp.pi * t)
    whole = solve(residuals, jnp.array(1.2), signal, sigma=1.0)
    found = solve(residuals, jnp.array(1.2), signal, sigma=1.0, prefixes=(0.1,))
    assert abs(float(whole.params) - 1.0) > 0.01
    np.testing.assert_allclose(found.params, 1.0, rtol=1e-9)
    assert found.converged
    assert found.residuals.shape == (200,)


def test_the_residuals_have_the_dtype_of_the_function():
    found = solve(params=jnp.ones(2, jnp.float32), data=jnp.asarray(DATA, jnp.float32))
    assert found.residuals.dtype == jnp.float32


def test_the_covariance_is_that_of_fit_covariance():
    found = solve()
    alone = jq.fit_covariance(lambda p: decay(p, jnp.asarray(DATA)), found.params)
    np.testing.assert_allclose(found.covariance.covariance, alone.covariance, rtol=1e-10)


def test_a_prediction_has_the_standard_error_of_the_delta_method():
    found = solve()
    predicted = found.predict(lambda p: {"half-life": jnp.log(2.0) / p[1], "product": p[0] * p[1]})
    a, k = np.asarray(found.params)
    gradients = np.array([[0.0, -np.log(2.0) / k**2], [k, a]])
    expected = gradients @ found.covariance.covariance @ gradients.T
    np.testing.assert_allclose(predicted.covariance, expected, rtol=1e-10)
    errors = predicted.standard_errors
    np.testing.assert_allclose(errors["half-life"], np.sqrt(expected[0, 0]), rtol=1e-10)


def test_a_ratio_is_certain_where_a_common_factor_is_not():
    """Of log a and log b the data see the difference alone, with a standard error of 0.1."""
    residuals = lambda p, y: (p[0] - p[1] - y) * jnp.ones(4)
    found = solve(residuals, jnp.zeros(2), jnp.array(0.3), sigma=0.2)
    predicted = found.predict(lambda p: jnp.stack([jnp.exp(p[0] - p[1]), jnp.exp(p[0])]))
    np.testing.assert_allclose(predicted.standard_errors[0], 0.1 * np.exp(0.3), rtol=1e-6)
    assert np.isinf(predicted.standard_errors[1])


def test_float32_ends_converged_at_its_own_floor():
    single = solve(params=jnp.ones(2, jnp.float32), data=jnp.asarray(DATA, jnp.float32))
    assert single.converged
    assert single.params.dtype == jnp.float32
    double = solve()
    shift = np.asarray(single.params, float) - np.asarray(double.params)
    shift /= np.asarray(double.standard_errors)
    assert np.max(np.abs(shift)) < 0.05


NOTHING = Step(
    accepted=True, finite=True, gain=0.5, zero=False, small_change=False, small_step=False,
    small_slope=False, flat=False, stuck=False, probe_due=False, is_rounding=lambda: False,
    last=False,
)  # fmt: skip
STUCK = {"accepted": False, "gain": 0.0, "stuck": True, "probe_due": True}


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, None),
        ({"zero": True, "small_change": True}, Reason.ZERO),
        ({"small_change": True, "small_slope": True}, Reason.COST),
        ({"small_slope": True, "small_step": True}, Reason.GRADIENT),
        ({"small_slope": True, "accepted": False}, None),
        ({"small_step": True}, Reason.STEP),
        ({"small_step": True, "gain": 0.01}, None),
        ({"small_step": True, "gain": 0.01, "flat": True}, Reason.STEP),
        ({"small_step": True, "finite": False}, None),
        (STUCK | {"flat": True}, Reason.COST),
        (STUCK | {"is_rounding": lambda: True}, Reason.ROUNDING),
        (STUCK, Reason.NO_DESCENT),
        (STUCK | {"finite": False}, Reason.NOT_FINITE),
        (STUCK | {"last": True}, Reason.NO_DESCENT),
        ({"last": True}, Reason.MAX_STEPS),
    ],
)
def test_the_first_rule_that_holds_ends_the_iteration(facts, reason):
    assert stop(NOTHING._replace(**facts)) == reason


def test_rounding_is_probed_only_where_no_earlier_rule_holds():
    """Each probe costs two evaluations."""
    unprobed = {"is_rounding": lambda: pytest.fail("probed"), "probe_due": True}
    for facts in ({"zero": True}, {"flat": True}, {"finite": False}, {"probe_due": False}):
        stop(NOTHING._replace(**unprobed | facts))


def test_reasons():
    assert solve(max_steps=2).reason == "max_steps reached"
    assert not solve(max_steps=2).converged
    exact = solve(data=3.0 * jnp.exp(-0.7 * jnp.asarray(T)), sigma=1.0)
    assert exact.converged
    np.testing.assert_allclose(exact.params, [3.0, 0.7], rtol=1e-10)
    at_minimum = solve(params=solve(ftol=1e-15, xtol=1e-15, gtol=1e-12).params, gtol=1e-6)
    assert (at_minimum.reason, at_minimum.evaluations) == ("gradient small", 1)


def test_residuals_that_cease_to_be_finite_are_not_convergence():
    cliff = lambda p, y: jnp.where(p < 1.0, jnp.nan, p) * jnp.array([1.0, 2.0])
    found = solve(cliff, jnp.array(1.0))
    assert not found.converged
    assert "not finite" in found.reason
    assert found.params == 1.0


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("size", [1.0, 1e-9])
def test_a_derivative_that_is_wrong_is_not_convergence(size, dtype):
    @jax.custom_jvp
    def wrong(p):
        return size * (p * p + 1.0)

    wrong.defjvp(lambda p, t: (wrong(p[0]), -2.0 * size * p[0] * t[0]))
    found = solve(lambda p, y: wrong(p) * jnp.ones(3, p.dtype), jnp.array(2.0, dtype))
    assert not found.converged
    assert "no step" in found.reason


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("factor", [1e3, 1e6])
def test_a_step_that_too_large_a_derivative_made_short_is_not_convergence(factor, dtype):
    @jax.custom_jvp
    def steep(p):
        return p

    steep.defjvp(lambda p, t: (p[0], factor * t[0]))
    found = solve(lambda p, y: steep(p) - jnp.array([5.0, 5.1, 4.9], dtype), jnp.array(1.0, dtype))
    assert not found.converged
    assert "no step" in found.reason


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_a_jump_of_the_residuals_is_not_convergence(dtype):
    """The cost falls towards p = 1, and jumps from 1.5 to 37.5 a little before."""
    jump = lambda p, y: (2.0 - p + jnp.where(p > 0.9, 4.0, 0.0)) * jnp.ones(3, p.dtype)
    found = solve(jump, jnp.array(0.0, dtype))
    assert not found.converged
    np.testing.assert_allclose(found.params, 0.9, rtol=1e-4)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("start", [0.3, 0.0])
def test_a_correction_whose_true_value_is_zero_converges_beside_a_known_model(start, dtype):
    """The residuals end as rounding of the model's values, about 1, which the fit never sees."""
    t = jnp.asarray(T, dtype)
    omega = jnp.cos(t) + 1.1  # rad/s
    residuals = lambda bias, y: jnp.cos(t + bias) + 1.1 + bias - y
    found = solve(residuals, jnp.array(start, dtype), omega, sigma=1.0)
    assert found.converged
    assert found.evaluations < 15
    assert abs(float(found.params)) < 4.0 * float(jnp.finfo(dtype).eps)


def check_verdicts(number, dtype):
    """Every fit reaches its true parameters, some of them 0, and says so.

    The bound on the evaluations is ten steps, the two probes that the tenth brings, and the start.
    A fit that takes more was still on its way down: its cost was far above that of rounding, which
    is of order eps^2.
    """
    for seed in range(number):
        residuals, problem = fits.zeros(seed, dtype)
        found = solve(residuals, problem.guess, problem.data, sigma=1.0)
        miss = np.max(np.abs(np.asarray(found.params, float) - problem.truth))
        assert miss < 3000.0 * float(jnp.finfo(dtype).eps), seed
        assert found.converged, (seed, found.reason)
        descending = found.history[:10][-1] > 1e6 * float(jnp.finfo(dtype).eps) ** 2
        assert found.evaluations <= 13 or (descending and found.evaluations <= 30), seed


@pytest.mark.parametrize("dtype", some([jnp.float32, jnp.float64], [jnp.float32]))
def test_verdicts_are_right_where_true_parameters_are_zero(dtype):
    check_verdicts(10, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_200_verdicts_are_right_where_true_parameters_are_zero(dtype):
    check_verdicts(200, dtype)


def test_columns_that_are_parallel_to_float32_are_one_direction():
    """By p the residuals change as t 2p, by q as t: the minima are the parabola p^2 + q = 2."""
    t = jnp.asarray(T, jnp.float32)
    residuals = lambda p, y: (p[0] ** 2 + p[1] - 2.0) * t + p[2]
    for seed in range(8):
        start = jnp.asarray(np.random.default_rng(seed).normal(size=3), jnp.float32)
        found = solve(residuals, start, sigma=1.0)
        assert found.converged, (seed, found.reason)
        assert abs(float(found.params[0]) ** 2 + float(found.params[1]) - 2.0) < 1e-5


def test_a_step_to_infinite_residuals_is_refused_silently():
    """Warnings are errors here."""
    residuals = lambda p, y: jnp.where(p > 1.5, jnp.inf, p) - y
    found = solve(residuals, jnp.array(-10.0), jnp.array([1.3, 1.4, 1.6, 1.2]))
    np.testing.assert_allclose(found.params, 1.375, rtol=1e-6)
    assert found.converged


def interrupted(monkeypatch, after):
    """Make the progress bar of ``least_squares`` raise at a step."""
    bar, steps = jq._internal.progress.bar, []

    def interrupting(*arguments, **options):
        shown = bar(*arguments, **options)

        def update():
            steps.append(1)
            if len(steps) == after:
                raise KeyboardInterrupt

        monkeypatch.setattr(shown, "update", update)
        return shown

    monkeypatch.setattr(jq._internal.progress, "bar", interrupting)


def test_an_interrupt_carries_the_best_parameters_and_a_second_call_goes_on(monkeypatch):
    cost = lambda p: float(0.5 * jnp.sum(decay(p, jnp.asarray(DATA)) ** 2))
    whole = solve()
    interrupted(monkeypatch, 4)
    with pytest.raises(KeyboardInterrupt) as caught:
        solve()
    best = caught.value.params
    np.testing.assert_allclose(cost(best), whole.history[4], rtol=1e-10)  # four accepted steps
    assert f"of cost {cost(best):.6g}" in caught.value.__notes__[0]
    monkeypatch.undo()
    np.testing.assert_allclose(solve(params=best).params, whole.params, rtol=1e-6)


def test_an_interrupt_in_a_part_carries_the_parameters_of_the_part(monkeypatch):
    interrupted(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt) as caught:
        solve(prefixes=(0.5,))
    assert "of 20 residuals" in caught.value.__notes__[0]
    assert np.all(np.isfinite(caught.value.params))


def test_an_interrupt_during_a_callback_or_while_tracing_carries_parameters_too():
    calls = []

    def stop(x):
        calls.append(x)
        if len(calls) > 3:
            raise KeyboardInterrupt

    def watched(params, data):
        jax.debug.callback(stop, params[0])
        return decay(params, data)

    def traced(params, data):
        raise KeyboardInterrupt

    for residuals, note in ((watched, "of cost"), (traced, "at the start")):
        with pytest.raises(KeyboardInterrupt) as caught:
            solve(residuals)
        assert note in caught.value.__notes__[0]
        assert np.all(np.isfinite(caught.value.params))


def test_data_of_the_same_shape_do_not_compile_again():
    traces = []

    def counted(params, data):
        traces.append(1)
        return decay(params, data)

    solve(counted)
    number = len(traces)
    again = solve(counted, data=jnp.asarray(OUTLIERS))
    assert len(traces) == number
    np.testing.assert_allclose(again.params, scipy_solve(OUTLIERS).x, rtol=1e-6)


def test_its_texts():
    found = solve()
    lines = repr(found).splitlines()
    assert lines[0].startswith("LeastSquares: cost 0.00")
    assert "converged (cost change small)" in lines[0]
    assert len(lines) == 4
    assert "value[0]" in repr(found.predict(lambda p: p))


def check_inertia(seed, seconds):
    measured = fits.case(seed, seconds)
    found = solve(fits.residuals, measured.guess, measured.data, sigma=1.0, prefixes=(0.1,))
    inertia = found.predict(fits.inertia_of)
    errors = (inertia.value - fits.inertia_of(measured.truth)) / inertia.standard_errors
    assert found.converged
    assert np.max(np.abs(errors)) < 3.0
    assert found.evaluations < 30
    return measured, found


@pytest.mark.slow
def test_the_inertia_of_a_tumbling_body_is_found_from_4_seconds():
    check_inertia(1, 4.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_inertia_of_a_tumbling_body_is_found_from_20_seconds_as_by_scipy(seed):
    measured, found = check_inertia(seed, 20.0)
    flat, unravel = ravel_pytree(measured.guess)
    value = jax.jit(lambda x: fits.residuals(unravel(x), measured.data))
    tolerances = dict.fromkeys(("ftol", "xtol", "gtol"), 1e-10)
    options = {"method": "lm", "x_scale": "jac", **tolerances}
    theirs = optimize.least_squares(value, flat, jax.jit(jax.jacfwd(value)), **options)
    np.testing.assert_allclose(found.cost, theirs.cost, rtol=1e-8)

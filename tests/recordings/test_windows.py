"""Tests of windows: where they begin, what their masks say, and multiple shooting on them."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from jaxquat import kinematics, quaternion, recordings


def counting(t, **channels):
    """Returns a recording whose channel "row" is the number of its row."""
    t = np.asarray(t, float)
    return recordings.Recording(t, channels={"row": np.arange(len(t)) * 1.0, **channels})


def rows_of(w):
    """The numbers of the rows in each window, without padding."""
    return [list(x[m].astype(int)) for x, m in zip(w.channels["row"], w.mask, strict=True)]


def test_windows_begin_every_stride_and_leave_no_row_out():
    w = recordings.windows(counting(np.arange(10.0)), 4, 3)
    assert rows_of(w) == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    assert w.mask.all()
    w = recordings.windows(counting(np.arange(10.0)), 4, 4)
    assert rows_of(w) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    np.testing.assert_array_equal(w.t[-1], [0.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(w.channels["row"][-1], [8, 9, 9, 9])
    assert rows_of(recordings.windows(counting(np.arange(10.0)), 2, 5)) == [[0, 1], [5, 6]]
    assert rows_of(recordings.windows(counting(np.arange(4.0)), 4, 1)) == [[0, 1, 2, 3]]


def test_no_window_contains_a_gap():
    """The gap lies between the rows 4 and 5; windows begin anew behind it."""
    t = np.array([0.0, 1.0, 2.1, 3.0, 4.0, 15.5, 16.0, 17.0, 18.0])
    w = recordings.windows(counting(t), 3, 2)
    assert rows_of(w) == [[0, 1, 2], [2, 3, 4], [5, 6, 7], [7, 8]]
    np.testing.assert_array_equal(w.first, [0, 2, 5, 7])
    wide = recordings.windows(counting(t), 3, 2, gap=12.0)
    assert rows_of(wide) == [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6, 7, 8]]
    follows = w.first[1:] == w.first[:-1] + w.mask[:-1].sum(axis=1) - 1
    np.testing.assert_array_equal(follows, [True, False, True])


def test_windows_by_time_span_their_duration_to_an_interval():
    """Each begins and ends with the first rows at its instants or later, here 0, 2, 4, ... s."""
    t = np.array([0.0, 0.9, 2.1, 2.2, 3.9, 4.0, 4.1, 6.5, 8.0])
    w = recordings.windows_by_time(counting(t), 2.0, 2.0)
    assert rows_of(w) == [[0, 1, 2], [2, 3, 4, 5], [5, 6, 7], [7, 8]]
    np.testing.assert_array_equal(w.first, [0, 2, 5, 7])
    np.testing.assert_array_equal(w.t[0], [0.0, 0.9, 2.1, 2.1])
    w = recordings.windows_by_time(counting(t), 3.0, 2.0)
    assert rows_of(w) == [[0, 1, 2, 3, 4], [2, 3, 4, 5, 6, 7], [5, 6, 7, 8]]
    w = recordings.windows_by_time(counting(t), 1.0, 4.0)
    assert rows_of(w) == [[0, 1, 2], [5, 6, 7], [8]]
    every = recordings.windows_by_time(counting(t), 1.0, 1e-12)
    assert rows_of(every)[:3] == [[0, 1, 2], [1, 2], [2, 3, 4]]
    np.testing.assert_array_equal(every.first, np.arange(8))


def test_windows_by_time_are_those_of_rows_where_samples_are_regular():
    """The sums 0.1 + 0.1 + ... are off by rounding, so rows come early; no row is missed.

    The same for stamps since 1970, which float64 rounds to 2.4e-7 s.
    """
    for t in (np.cumsum(np.full(101, 0.1)), 0.1 * np.arange(101), 1.7e9 + 0.1 * np.arange(101)):
        timed = recordings.windows_by_time(counting(t), 1.0, 1.0)
        rows = recordings.windows(counting(t), 11, 10)
        jax.tree.map(np.testing.assert_array_equal, timed, rows)


def test_windows_by_time_begin_anew_behind_a_gap():
    t = np.concatenate([0.01 * np.arange(95), 3.333 + 0.01 * np.arange(40)])
    w = recordings.windows_by_time(counting(t, u=np.arange(135.0)), 0.2, 0.1, gap=0.5)
    assert w.t.shape == (12, 21)
    np.testing.assert_array_equal(w.first, [*range(0, 90, 10), 95, 105, 115])
    assert list(w.mask.sum(axis=1)) == [21] * 8 + [15] + [21, 21, 20]


def test_missing_samples_are_masked_and_filled_by_the_one_before():
    field = np.array([np.nan, 1.0, np.nan, np.nan, 4.0, np.nan])
    w = recordings.windows(counting(np.arange(6.0), field=field), 3, 3)
    np.testing.assert_array_equal(w.channels["field"], [[1, 1, 1], [1, 4, 4]])
    np.testing.assert_array_equal(w.present["field"], [[False, True, False], [False, True, False]])
    assert w.present["row"].all()


def test_times_since_1970_keep_their_differences_in_float32():
    """A float32 of 1.7e9 s is off by up to 64 s; here the differences are those of the stamps."""
    t = 1.7e9 + 0.25 * np.arange(8)
    w = recordings.windows(counting(t), 4, 4)
    np.testing.assert_array_equal(jnp.asarray(w.t, jnp.float32), [[0, 0.25, 0.5, 0.75]] * 2)


def test_windows_print_in_a_line_and_map_as_a_pytree():
    w = recordings.windows(counting(np.arange(10.0)), 4, 4)
    assert repr(w) == "<Windows: 3 of 4 rows, channels row, padding 16.7 %>"
    sums = jax.vmap(lambda w: jnp.sum(jnp.where(w.mask, w.channels["row"], 0.0)))(w)
    np.testing.assert_array_equal(sums, [6.0, 22.0, 17.0])


BAD = {
    "longer than the recording": ((11, 1), {}, "length: wanted 2 to the 10 rows of the recording"),
    "one row": ((1, 1), {}, "length: wanted 2 to the 10 rows of the recording, got 1"),
    "no stride": ((4, 0), {}, "stride: wanted at least 1, got 0"),
    "no gap": ((4, 1), {"gap": 0.0}, "gap: wanted positive values, got 0.0"),
}


@pytest.mark.parametrize(("args", "options", "message"), BAD.values(), ids=BAD)
def test_bad_arguments_are_named(args, options, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        recordings.windows(counting(np.arange(10.0)), *args, **options)


BAD_TIMES = {
    "longer than the recording": ((9.5, 1.0), "duration: wanted at most the 9 s of the recording"),
    "no duration": ((0.0, 1.0), "duration: wanted positive values, got 0.0"),
    "backwards": ((1.0, -1.0), "stride: wanted positive values, got -1.0"),
}


@pytest.mark.parametrize(("args", "message"), BAD_TIMES.values(), ids=BAD_TIMES)
def test_bad_durations_are_named(args, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        recordings.windows_by_time(counting(np.arange(10.0)), *args)


def test_bad_recordings_are_named():
    for t, message in (
        ([0.0, 1.0, 1.0], "recording.t: wanted times that increase, got 1.0 and then 1.0 at row 2"),
        ([0.0, 1.0, 0.5], "recording.t: wanted times that increase, got 1.0 and then 0.5 at row 2"),
        ([0.0, np.nan, 2.0], "recording.t: wanted finite times"),
    ):
        with pytest.raises(ValueError, match=message):
            recordings.windows(counting(t), 2, 1)
    empty = counting(np.arange(3.0), u=np.full(3, np.nan))
    with pytest.raises(ValueError, match="recording: wanted a sample of u, got none in 3 rows"):
        recordings.windows(empty, 2, 1)


TEN = np.arange(10.0)
BAD_FIELDS = {
    "gyro too long": ((TEN, np.ones((20, 3))), {}, "gyro: wanted shape (10, 3), a row for each"),
    "gyro too short": ((TEN, np.ones((9, 3))), {}, "each time, got (9, 3)"),
    "gyro turned over": ((TEN, np.ones((3, 10))), {}, "gyro: wanted shape (10, 3), a row for"),
    "movement in a column": ((TEN,), {"movement": np.ones((10, 1))}, "movement: wanted shape"),
    "a channel of one number": (
        (TEN,),
        {"channels": {"u": np.array(1.0)}},
        "channels['u']: wanted shape (10,) or (10, k), a row for each time, got ()",
    ),
    "words": (
        (TEN,),
        {"channels": {"u": np.array(["a"] * 10)}},
        "channels['u']: wanted an array of numbers, got one of <U1",
    ),
    "a list of times": (([0.0, 1.0],), {}, "t: wanted an array of numbers, got list"),
    "times in a column": ((TEN[:, None],), {}, "t: wanted shape (N,), N >= 2, got (10, 1)"),
    "one time": ((TEN[:1],), {}, "t: wanted shape (N,), N >= 2, got (1,)"),
    "channels in a list": (
        (TEN,),
        {"channels": [TEN]},
        "channels: wanted a dict of arrays by name",
    ),
}


@pytest.mark.parametrize(("args", "fields", "message"), BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_a_recording_of_bad_fields_is_refused_by_name(args, fields, message):
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        recordings.Recording(*args, **fields)


@pytest.mark.slow
def test_multiple_shooting_finds_the_bias_of_a_gyroscope_across_a_gap():
    """The start of each window is a parameter, too, in two steps of Gauss and Newton.

    The recording has 160 irregular samples of an exact motion with a hole of 2 s. With and without
    the residual of continuity the fit finds the bias that was added, to the error of order 4.
    """
    spacing = np.random.default_rng(0).uniform(0.002, 0.02, 160)
    spacing[80] = 2.0
    t = np.cumsum(spacing)
    angles = 0.8 * np.sin(t)[:, None] * np.array([0.6, 0.0, 0.8])
    omega = 0.8 * np.cos(t)[:, None] * np.array([0.6, 0.0, 0.8])
    bias = np.array([0.02, -0.01, 0.03])
    q = np.array(quaternion.exp(jnp.asarray(angles)))
    q[5:9] = np.nan
    w = recordings.windows(recordings.Recording(t, omega + bias, q), length=31, stride=30)
    follows = w.first[1:] == w.first[:-1] + w.mask[:-1].sum(axis=1) - 1
    np.testing.assert_array_equal(follows, [True, True, False, True, True])
    starts = jnp.asarray(w.channels["q"][:, 0])

    def attitudes(q0, omega, times):
        return kinematics.integrate(q0, omega, times=times)

    def residuals(x, weight):
        turned = quaternion.multiply(starts, quaternion.exp(x[3:].reshape(-1, 3)))
        q = jax.vmap(attitudes)(turned, w.channels["gyro"] - x[:3].reshape(1, 1, 3), w.t)
        error = quaternion.log(quaternion.relative(w.channels["q"], q))
        jump = quaternion.log(quaternion.relative(q[:-1, -1], turned[1:]))
        seen, joined = w.present["q"][..., None], follows[:, None]
        parts = jnp.where(seen, error, 0.0), weight * jnp.where(joined, jump, 0.0)
        return jnp.concatenate([jnp.ravel(part) for part in parts])

    @jax.jit
    def step(x, weight):
        jacobian = jax.jacfwd(residuals)(x, weight)
        return x - jnp.linalg.lstsq(jacobian, residuals(x, weight))[0]

    for weight in (0.0, 10.0):
        x = step(step(jnp.zeros(3 + 3 * len(starts)), weight), weight)
        np.testing.assert_allclose(x[:3], bias, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_all_rows_of_two_rates_identify_a_body_that_rows_of_the_gyroscope_do_not():
    """The claim of docs/logs.md: gyroscope at 100 Hz, commands at 50 Hz, other stamps."""
    rng = np.random.default_rng(0)
    of_gyro = np.arange(0.0, 10.0, 0.01) + 1e-6
    of_command = np.arange(0.003, 10.0, 0.02) + rng.uniform(0.0, 6e-3, 500)
    waves = np.sin(2 * np.pi * np.outer(of_command, [0.9, 1.3, 0.7]))
    torques = 2e-4 * waves + rng.normal(0.0, 1e-4, (500, 3))
    torques -= torques.mean(axis=0)

    def rates(params, first, times, commands):
        torque = lambda t, state, params, command: command - params["damping"] * state.omega
        start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), first)
        body, grid = jq.Body.from_principal(params["moments"]), jq.grid_at(times)
        return jq.rollout(jq.rkmk4, body, torque, start, grid, params, inputs=commands).state.omega

    true = {"moments": jnp.array([1.2e-5, 1.6e-5, 2.4e-5]), "damping": jnp.array(3e-5)}
    times = np.union1d(of_gyro, of_command)
    last = np.searchsorted(of_command, times, side="right") - 1
    commands = np.where(last[:, None] < 0, 0.0, torques[last])[:-1]
    exact = np.asarray(rates(true, jnp.zeros(3), times, commands))[np.isin(times, of_gyro)]
    recording = recordings.join(
        recordings.Recording(of_gyro, gyro=exact + rng.normal(0.0, 5e-3, exact.shape)),
        recordings.Recording(of_command, channels={"commands": torques}),
    ).hold("commands")

    def errors(recording, length):
        """Returns the errors of the fitted params in standard errors."""
        w = recordings.windows(recording, length=length, stride=length - 1)
        measured, present = w.channels["gyro"], w.present["gyro"][..., None]

        def residuals(both):
            run = jax.vmap(rates, (None, 0, 0, 0))
            omega = run(*both, w.t, w.channels["commands"][:, :-1])
            return jnp.where(present, omega - measured, 0.0).ravel()

        guess = {"moments": jnp.full(3, 2e-5), "damping": jnp.array(1e-5)}
        fit = jq.least_squares(residuals, (guess, jnp.asarray(measured[:, 0])))
        assert fit.converged
        off = lambda name: np.abs(fit.params[0][name] - true[name]) / deviations[name]
        deviations = fit.covariance.standard_errors[0]
        return np.max(off("moments")), off("damping")

    assert max(errors(recording, 63)) < 3.0
    moments, damping = errors(recording.rows_with("gyro"), 41)
    assert moments > 5.0
    assert damping > 20.0

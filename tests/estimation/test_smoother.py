"""The smoother of filters whose gains are not optimal: its mean, its covariance, its claims."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import motions
import numpy as np
import pytest

import jaxquat as jq
from jaxquat import estimation
from jaxquat.estimation import AhrsSettings, ImuSample, Interval, error_state

SMOOTHED = jax.jit(error_state.smoothed)
OBSERVED = jax.jit(error_state.observed, static_argnums=5)
N = 5  # numbers of a linear problem without an attitude
STEPS = 8
KNOWN = AhrsSettings(
    gyro=1e-3, rest_bias=1e-3, bias_random_walk=1e-6, start_response=1e-3
)  # as simulated
BIAS = np.array([0.004, -0.003, 0.005])  # rad/s, as simulated


def limited(gain):
    """The part of a gain that a Schmidt update uses: none for the last two numbers."""
    return gain.at[3:].set(0.0)


@functools.cache
def problem(seed=0):
    """A linear problem: steps (F, Q, blocks of observations) and the covariance at the start.

    Each block is (rows, variances, valid, admitted). Every second one is a Schmidt update, in one
    step only half of a block is observed, and in one the third number starts anew.
    """
    draw = np.random.default_rng(seed).normal
    root = draw(size=(N, N))
    steps = []
    for k in range(STEPS):
        transition = np.eye(N) + 0.3 * draw(size=(N, N))
        noise = np.diag(np.array([0.1, 0.2, 0.1, 1e-2, 1e-2]))
        if k == 4:
            transition[2], noise[2, 2] = 0.0, 2.0
        blocks = []
        for m, admitted in ((2, limited), (1, None)):
            valid = np.array([True, k != 2][:m])
            blocks.append((draw(size=(m, N)), np.array([0.2, 0.5])[:m], valid, admitted))
        steps.append((transition, noise, blocks))
    return steps, root @ root.T


class Row(NamedTuple):
    """A step of the filter: true state, estimate and covariance, and its errors as linear maps.

    All noises together are a vector of unit normals. A map (N, all) gives the error from it, so the
    covariance of an error is ``map @ map.T``, whatever the gains.
    """

    state: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    predicted: np.ndarray  # the map of the error before the step's updates
    error: np.ndarray
    smoothed: error_state.Error  # its mean is relative to the row's


NORMALS = np.random.default_rng(99).normal(size=N * (STEPS + 1) + 3 * STEPS)


@functools.cache
def rows_of(seed=0):
    """The rows of the problem, filtered and smoothed, on one draw of the noises."""
    steps, start = problem(seed)
    free = iter(np.eye(len(NORMALS)))
    take = lambda root: root @ np.stack([next(free) for _ in range(root.shape[1])])
    error, mean, covariance = take(np.linalg.cholesky(start)), np.zeros(N), jnp.asarray(start)
    state, rows, linear = error @ NORMALS, [], []
    for transition, noise, blocks in steps:
        push, f, q = take(np.sqrt(noise)), jnp.asarray(transition), jnp.asarray(noise)
        mean, state = transition @ mean, transition @ state + push @ NORMALS
        predicted = error = transition @ error + push
        before = mean
        covariance = error_state.predicted(covariance, f, q)
        for h, variances, valid, admitted in blocks:
            v = take(np.diag(np.sqrt(variances)))
            gain = gain_of(np.asarray(covariance), h, variances, valid, admitted)
            arguments = map(jnp.asarray, (h, h @ (state - mean) + v @ NORMALS, variances, valid))
            error_before = error_state.Error(jnp.zeros(N), covariance)
            (shift, covariance), _ = OBSERVED(error_before, *arguments, admitted)
            mean, error = mean + shift, error - gain @ (h @ error + v)
        rows.append(Row(state, mean, np.asarray(covariance), predicted, error, None))
        linear.append((f, q, mean - before))
    later = error_state.Error(jnp.zeros(N), covariance)
    for k in reversed(range(STEPS)):
        rows[k] = rows[k]._replace(smoothed=later)
        f, q, correction = linear[k]
        gain, covariance = SMOOTHED(jnp.asarray(rows[k - 1].covariance), f, q, later.covariance)
        # the correction makes the mean relative to the prediction
        later = error_state.Error(gain @ (later.mean + correction), covariance)
    return rows


def gain_of(covariance, h, variances, valid, admitted):
    """The gain (N, m) of a block, optimal or a part of it; 0 for what is not observed."""
    h = h * valid[:, None]
    gain = np.linalg.solve(h @ covariance @ h.T + np.diag(variances), h @ covariance).T
    return gain if admitted is None else np.asarray(admitted(jnp.asarray(gain)))


def assert_near(smoothed, mean, covariance):
    """Both to 1e-9 of the deviations."""
    scale, smoothed = np.sqrt(np.diag(covariance)), error_state.Error(*map(np.asarray, smoothed))
    assert np.abs((smoothed.mean - mean) / scale).max() < 1e-9
    off = (smoothed.covariance - covariance) / scale[:, None] / scale
    assert np.abs(off).max() < 1e-9


def test_it_is_batch_least_squares_in_which_an_update_has_the_information_that_it_gave():
    """One quadratic form over all states: start, transitions, and of each step ``P+^-1 - P-^-1``.

    For optimal gains this difference is ``H^T R^-1 H``. That of a Schmidt update is that of its
    own covariance, and the linear term that of its own mean. Means and covariances agree to 1e-9.
    """
    steps, start = problem()
    size, inverse = N * (STEPS + 1), np.linalg.inv
    information, linear = np.zeros((size, size)), np.zeros(size)
    information[:N, :N] += inverse(start)
    mean, covariance = np.zeros(N), start
    for k, ((transition, noise, _), row) in enumerate(zip(steps, rows_of(), strict=True)):
        pair, new = slice(N * k, N * (k + 2)), slice(N * (k + 1), N * (k + 2))
        both = np.concatenate([-transition, np.eye(N)], axis=1)
        information[pair, pair] += both.T @ inverse(noise) @ both
        predicted = inverse(transition @ covariance @ transition.T + noise)
        information[new, new] += inverse(row.covariance) - predicted
        linear[new] += inverse(row.covariance) @ row.mean - predicted @ (transition @ mean)
        mean, covariance = row.mean, row.covariance
    covariances = inverse(information)
    states = covariances @ linear
    for k, row in enumerate(rows_of()):
        here = slice(N * (k + 1), N * (k + 2))
        assert_near(row.smoothed, states[here] - row.mean, covariances[here, here])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_its_covariance_is_that_of_its_error_whatever_the_gains(seed):
    """The error of ``x_N = x + G (x_N' - x')`` as a map of all noises, from the last step back."""
    steps, rows = problem(seed)[0], rows_of(seed)
    error = rows[-1].error
    for k in reversed(range(STEPS)):
        row = rows[k]
        if k < STEPS - 1:
            transition, noise, _ = steps[k + 1]
            cross = row.covariance @ transition.T
            gain = cross @ np.linalg.inv(transition @ cross + noise)
            error = row.error + gain @ (error - rows[k + 1].predicted)
        assert_near(row.smoothed, row.state - row.mean - error @ NORMALS, error @ error.T)


def moved(motion, magnetometer, seeds, seconds, rate):
    """True attitudes (runs, rows, 3, 3) of simulated motions, and samples in float32."""
    runs = [motions.recorded(getattr(motions, motion), k, seconds, rate) for k in range(seeds)]
    attitude, gyro, force = (np.stack(x) for x in zip(*runs, strict=True))
    field = np.full(gyro.shape, np.nan)
    if magnetometer:
        noise = np.random.default_rng(0).normal(0.0, 0.5, gyro.shape)
        field = np.einsum("snji,j->sni", attitude, np.array([0.0, 18.0, -45.0])) + noise
    samples = ImuSample(Interval(np.full(gyro.shape[:2], 1.0 / rate)), gyro, force, field)
    return attitude, jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), samples)


ONLINE = jax.jit(jax.vmap(lambda x: estimation.run(estimation.ahrs(KNOWN), x)[1]))
AFTER = jax.jit(jax.vmap(lambda x: estimation.smooth(estimation.ahrs(KNOWN), x)))


def least_eigenvalue(covariance):
    """Of covariances (..., n, n) in units of their deviations."""
    covariance = np.asarray(covariance, np.float64)
    deviations = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    scale = deviations[..., :, None] * deviations[..., None, :]
    return np.linalg.eigvalsh(covariance / scale)[..., 0].min()


@pytest.mark.parametrize("magnetometer", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_its_covariances_are_positive_definite_in_float32(magnetometer):
    """In every row of a walk. ``P - P M P`` has negative variances there, in float64 too."""
    _, samples = moved("walk", magnetometer, 2, 40.0, 25.0)
    covariance = AFTER(samples).covariance
    assert covariance.dtype == jnp.float32
    assert least_eigenvalue(covariance) > 0.01


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


@pytest.mark.slow
@pytest.mark.parametrize("magnetometer", [False, True])
@pytest.mark.parametrize("motion", ["hover", "walk", "drive", "fly"])
def test_tilt_and_bias_are_nearer_than_online_and_as_far_off_as_claimed(motion, magnetometer):
    """As online, tilts may be off by three deviations, because velocities are no white noise.

    A car's smoothed tilt is off by four: it drives in one direction for longer than the filter
    measures its velocity. The heading without a magnetometer is compared from the rest on.
    """
    attitude, samples = moved(motion, magnetometer, 8, 200.0, 50.0)
    moving, tilts, headings = slice(500, None), [], []
    for x in (ONLINE(samples), AFTER(samples)):
        off = np.asarray(jq.quaternion.to_matrix(x.q))[:, moving]
        off = off @ np.swapaxes(attitude[:, moving], 2, 3)
        variances = np.diagonal(x.covariance, axis1=2, axis2=3)[:, moving]
        tilts.append(rms(np.arccos(np.clip(off[..., 2, 2], -1.0, 1.0))))
        assert 1 / 3 < tilts[-1] / np.sqrt(np.mean(variances[..., 0] + variances[..., 1])) < 3
        bias = rms(np.asarray(x.bias)[:, moving] - BIAS)
        assert bias / np.sqrt(np.mean(variances[..., 3:6])) < 3
        heading = np.unwrap(
            np.arctan2(off[..., 1, 0] - off[..., 0, 1], off[..., 0, 0] + off[..., 1, 1])
        )
        headings.append(rms(heading if magnetometer else heading[:, -1] - heading[:, 0]))
        assert least_eigenvalue(x.covariance) > 0.01
    assert tilts[1] < tilts[0]
    assert headings[1] < 1.1 * headings[0]


def test_a_stop_at_the_end_gives_the_bias_of_the_whole_drive():
    """Gyroscopes with a bias of 5 mrad/s, unknown until the only rest, after 30 s of turns.

    The rest of 8 s knows the bias to ``rest_bias / sqrt(8)``, .4 mrad/s. Online the heading drifts
    by 8.6 degrees. Smoothed it may drift by three of the rest's deviations, 1.8 degrees, and by
    three of the walk of the noisy turns, 1e-2 rad/s at 25 Hz, 1.9 degrees. Velocities that count as
    0 once turned it as well.
    """
    draw, n, rate = np.random.default_rng(3), 1000, 25.0
    t = np.arange(n) / rate
    still = (t > 30.0)[:, None]
    turn = np.where(still, 0.0, 0.3 * np.sin(0.25 * t)[:, None]) * [0.0, 0.0, 1.0]
    bias = BIAS[2] * np.array([1.0, -1.0])
    gyro = turn + bias[:, None, None] * np.array([0.0, 0.0, 1.0])
    gyro = gyro + draw.normal(0.0, np.where(still, 2e-3, 1e-2), (2, n, 3))
    force = np.array([0.0, 0.0, 9.80665]) + draw.normal(0.0, np.where(still, 0.02, 0.4), (2, n, 3))
    dt = Interval(np.full((2, n), 1.0 / rate))
    samples = ImuSample(dt, gyro, force, np.full((2, n, 3), np.nan))
    smoothed = AFTER(jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), samples))
    smoothed = jax.tree.map(np.asarray, smoothed)
    deviations = np.sqrt(np.diagonal(smoothed.covariance, axis1=2, axis2=3)[..., 5])
    assert np.all(np.abs(smoothed.bias[..., 2] - bias[:, None]) < 3.0 * deviations)
    assert np.all(deviations[:, 0] < 0.1 * 0.01)  # of ``start_bias``
    q = np.asarray(smoothed.q, np.float64)
    off = np.unwrap(2.0 * np.arctan2(q[..., 3], q[..., 0])) - np.cumsum(turn[:, 2]) / rate
    assert np.abs(off - off[:, -1:]).max() < np.deg2rad(np.hypot(1.8, 1.9))


LATE = {
    "all": {},
    "magnetometer": {"magnetometer": slice(0, 300)},
    "gyro": {"gyro": slice(200, 300)},
}


@pytest.mark.slow  # that they are positive definite in float32 is quick
@pytest.mark.parametrize("late", LATE)
def test_they_are_those_of_float64(late):
    """A hand that turns fast, with a magnetometer from 6 s on or a gyroscope that pauses for 2 s.

    Forms that carry the inverse of a covariance had variances of -10 times the right ones there.
    """
    _, samples = moved("walk", True, 2, 12.0, 50.0)
    for sensor, rows in LATE[late].items():
        values = getattr(samples, sensor).at[:, rows].set(jnp.nan)
        samples = samples._replace(**{sensor: values})
    single, double = AFTER(samples), AFTER(jax.tree.map(lambda x: x.astype(float), samples))
    assert least_eigenvalue(single.covariance) > 1e-4
    variances = [np.diagonal(x.covariance, axis1=2, axis2=3) for x in (single, double)]
    assert np.abs(np.log(variances[0] / variances[1])).max() < 0.2


SENSORS = [(1e-4, 1e-6, 1e-4), (1e-5, 1e-6, 1e-4), (1e-6, 1e-8, 1e-5)]
"""Deviations of a gyroscope, of the walk of its bias, and of a star tracker."""


@pytest.mark.parametrize(
    "deviations", [SENSORS[0], *(pytest.param(x, marks=pytest.mark.slow) for x in SENSORS[1:])]
)
def test_a_star_tracker_gives_the_bias_at_the_start_in_float32(deviations):
    """Variances of the bias from 1e-4 at the start down to 1e-13, (rad/s)^2."""

    def smoothed(dtype):
        names = dict(zip(("gyro", "bias_random_walk", "attitude"), deviations, strict=True))
        settings = jax.tree.map(dtype, estimation.MekfSettings(**names))
        fixed = (np.arange(400) % 10 == 0)[:, None]
        attitudes = np.where(fixed, [1.0, 0.0, 0.0, 0.0], np.nan)
        vectors = jnp.zeros((400, 0, 3), dtype)
        samples = estimation.VectorSample(
            Interval(jnp.full(400, 0.05, dtype)), jnp.zeros((400, 3), dtype), vectors, vectors,
            jnp.asarray(attitudes, dtype),
        )  # fmt: skip
        q = jnp.array([1.0, 0.0, 0.0, 0.0], dtype)
        return jax.jit(lambda x: estimation.smooth(estimation.mekf(q, settings), x))(samples)

    single, double = (smoothed(x).covariance for x in (jnp.float32, jnp.float64))
    assert least_eigenvalue(single) > 0.1
    ratio = np.diagonal(single, axis1=1, axis2=2) / np.diagonal(double, axis1=1, axis2=2)
    assert np.abs(np.log(ratio[20:])).max() < 0.01
    assert ratio.min() > 0.9
    assert ratio.max() < 10.0  # at the first rows, where the bias is known 1e5 times worse


def test_a_magnetometer_gives_the_heading_of_the_time_before_it():
    """It begins after 6 s of a walk. Online the heading before has a deviation of 172 degrees."""
    attitude, samples = moved("walk", True, 2, 12.0, 50.0)
    samples = samples._replace(magnetometer=samples.magnetometer.at[:, :300].set(jnp.nan))
    smoothed = AFTER(samples)
    off = np.asarray(jq.quaternion.to_matrix(smoothed.q)) @ np.swapaxes(attitude, 2, 3)
    heading = np.arctan2(off[..., 1, 0] - off[..., 0, 1], off[..., 0, 0] + off[..., 1, 1])
    deviations = np.sqrt(np.asarray(smoothed.covariance)[..., 2, 2])
    assert np.all(np.abs(heading[:, :300]) < 3.0 * deviations[:, :300])
    assert deviations[:, :300].max() < np.deg2rad(20.0)


@pytest.mark.parametrize(("angle", "is_carried"), [(0.3, True), (1.5, False)])
def test_a_first_force_gives_the_tilt_before_it_over_small_turns_only(angle, is_carried):
    """A body at rest, inclined about x, whose accelerometer begins after a second.

    Over large turns the linear error would be too certain: then the tilt before stays unknown.
    """
    n = 150
    force = 9.80665 * np.array([0.0, np.sin(angle), np.cos(angle)])
    forces = np.where(np.arange(n)[:, None] < 50, np.nan, force)
    none = np.full((1, n, 3), np.nan)
    samples = ImuSample(Interval(np.full((1, n), 0.02)), np.zeros((1, n, 3)), forces[None], none)
    before = jax.tree.map(lambda x: x[0, 0], AFTER(jax.tree.map(jnp.asarray, samples)))
    deviation = np.sqrt(before.covariance[0, 0])
    up = jq.quaternion.rotate(before.q, jnp.asarray(force / 9.80665))
    if is_carried:
        assert deviation < 0.5
        assert np.arccos(up[2]) < 0.05
    else:
        assert deviation > 1.0

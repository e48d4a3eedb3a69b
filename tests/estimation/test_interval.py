"""The intervals of samples: a type of their own, so that times cannot pass for them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from jaxquat import estimation
from jaxquat.estimation import Interval

N = 24
LEVEL = jnp.array([1.0, 0.0, 0.0, 0.0])
RNG = np.random.default_rng(0)
EVEN = 0.01 * np.arange(N)
STAMPS = {
    "even": EVEN,
    "since 1970": 1.7e9 + EVEN,
    "with a gap": EVEN + 30.0 * (np.arange(N) > 10),
    "with drops": EVEN[np.sort(RNG.permutation(N)[: N - 6])],
    "with jitter": EVEN + RNG.uniform(-2e-3, 2e-3, N),
    "of two sensors": np.repeat(EVEN[::2], 2),
    "with a gap, drops and an offset": 1e4 + np.delete(EVEN + 5.0 * (EVEN > 0.1), [3, 4, 17]),
    "within a factor of 4": 10.0 + EVEN,
}


def imu(dt, n):
    up = jnp.tile(jnp.array([0.0, 0.0, 9.80665]), (n, 1))
    return estimation.ImuSample(dt, jnp.zeros((n, 3)), up, jnp.tile(jnp.eye(3)[1], (n, 1)))


def stars(dt, n):
    none = jnp.zeros((n, 0, 3))
    return estimation.VectorSample(dt, jnp.zeros((n, 3)), none, none, jnp.tile(LEVEL, (n, 1)))


FILTERS = {"ahrs": (estimation.ahrs(), imu), "mekf": (estimation.mekf(LEVEL), stars)}
MESSAGE = (
    r"^{}: wanted estimation.intervals\(times\), or an estimation.Interval of seconds, got an array"
)


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("case", STAMPS)
def test_stamps_are_refused_by_every_function_traced_or_not(case, name):
    filter_, samples_of = FILTERS[name]
    times = STAMPS[case]
    samples = samples_of(times, len(times))
    memory = filter_.init(jax.tree.map(lambda x: x[0], samples_of(Interval(EVEN), N)))
    first = jax.tree.map(lambda x: x[0], samples)
    calls = {
        "samples.dt": [
            lambda x: estimation.run(filter_, x),
            lambda x: estimation.smooth(filter_, x),
            lambda x: jax.vmap(lambda one: estimation.run(filter_, one))(
                jax.tree.map(lambda leaf: leaf[None], x)
            ),
        ],
        "sample.dt": [
            lambda _: filter_.init(first),
            lambda _: filter_.step(memory, first),
            lambda _: filter_.linearize(memory, first),
        ],
    }
    if name == "ahrs":
        calls["samples.dt"].append(lambda x: estimation.merge(x, 1))
    for argument, functions in calls.items():
        for call in functions:
            for function in (call, jax.jit(call)):
                with pytest.raises(TypeError, match=MESSAGE.format(argument)):
                    function(samples)


@pytest.mark.parametrize("case", STAMPS)
def test_intervals_are_the_differences_of_the_stamps(case):
    times = np.sort(STAMPS[case])
    seconds = estimation.intervals(times).seconds
    assert seconds[0] == 0.0
    np.testing.assert_array_equal(seconds[1:], np.diff(times))


def test_intervals_of_any_distribution_pass():
    """Exponential ones, and ones that rise evenly by a factor of 100."""
    program = jax.jit(lambda dt: estimation.run(estimation.mekf(LEVEL), stars(dt, N))[1].q)
    merged = jax.jit(lambda dt: estimation.merge(imu(dt, N), 2))
    for dt in (*RNG.exponential(size=(100, N)), np.linspace(0.001, 0.1, N)):
        assert np.all(np.isfinite(program(Interval(dt))))
        merged(Interval(dt))
    jax.jit(lambda: estimation.merge(imu(Interval(dt), N), 2))()  # where the numbers are known


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([0.0, 0.2, 0.1], r"times that do not decrease, got 0\.2 and then 0\.1 at row 2"),
        ([0.0, np.nan], "times: wanted finite times"),
        ([0.0, np.inf], "times: wanted finite times"),
        (np.zeros((2, 2)), r"times: wanted numbers \(N,\), got float64 \(2, 2\)"),
        (np.zeros(0), r"times: wanted numbers \(N,\)"),
        (np.float32(1.7e9 + EVEN), "float32 at 1.7e.09 s, where the last digit is 1.3e.02 s"),
        (np.float32(1e5 + EVEN), "where the last digit is 0.0078 s; use float64"),
    ],
)
def test_times_without_intervals_are_refused(times, message):
    with pytest.raises(ValueError, match=message):
        estimation.intervals(times)


def test_traced_times_are_refused():
    with pytest.raises(TypeError, match="times: wanted concrete arrays, got traced ones"):
        jax.jit(estimation.intervals)(EVEN)


def test_float32_times_of_a_short_recording_have_their_digits():
    seconds = estimation.intervals(np.float32(100.0 + EVEN)).seconds
    np.testing.assert_allclose(seconds[1:], 0.01, atol=1e-5)


def gap_variance(seconds):
    """The attitude's variance after a gap: ``start^2 + T^2 start_bias^2 + T gyro^2``, see mekf."""
    deviations = {"gyro": 0.1, "start_attitude": 0.5, "start_bias": 0.2}
    settings = estimation.MekfSettings(bias_random_walk=0.0, **deviations)
    lost = stars(Interval(seconds), 3)._replace(attitude=jnp.full((3, 4), jnp.nan))
    _, estimate = estimation.run(estimation.mekf(LEVEL, settings), lost)
    return estimate.covariance[-1, 2, 2]


def test_derivatives_maps_and_scans_pass_through_an_interval():
    """The variance's derivative by each interval is ``2 T start_bias^2 + gyro^2``."""
    lanes = jnp.array([[0.25, 0.5, 1.25], [0.5, 1.0, 2.5]])
    value, gradient = jax.jit(jax.vmap(jax.value_and_grad(gap_variance)))(lanes)
    total = np.array([2.0, 4.0])
    np.testing.assert_allclose(value, 0.25 + total**2 * 0.04 + total * 0.01, rtol=1e-12)
    wanted = np.broadcast_to(2.0 * total[:, None] * 0.04 + 0.01, (2, 3))
    np.testing.assert_allclose(gradient, wanted, rtol=1e-12)
    kalman, samples = estimation.mekf(LEVEL), stars(Interval(lanes[0]), 3)

    @jax.jit
    def ends(samples):
        memory = kalman.init(jax.tree.map(lambda x: x[0], samples))
        return jax.lax.scan(kalman.step, memory, samples)[0], estimation.run(kalman, samples)[0]

    end, wanted = ends(samples)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), end, wanted)


@pytest.mark.parametrize("name", FILTERS)
def test_samples_of_length_0_without_sensors_change_nothing(name):
    filter_, samples_of = FILTERS[name]
    samples = samples_of(Interval(jnp.full(N, 0.1)), N)
    empty = jax.tree.map(lambda x: jnp.full_like(x[:5], jnp.nan), samples)
    empty = empty._replace(dt=Interval(jnp.zeros(5)))
    padded = jax.tree.map(lambda *x: jnp.concatenate(x), samples, empty)
    estimates = jax.jit(lambda x: estimation.run(filter_, x)[1])(padded)
    q, covariance = np.asarray(estimates.q), np.asarray(estimates.covariance)
    np.testing.assert_allclose(q[-1], q[N - 1], atol=1e-15)
    np.testing.assert_allclose(covariance[-1], covariance[N - 1], rtol=1e-13)


def test_a_recording_has_the_intervals_of_its_times():
    t = 1.7e9 + np.array([0.0, 0.5, 0.5 + 0.25, 2.0])
    force = np.tile([0.0, 0.0, 9.80665], (4, 1))
    recording = jq.recordings.Recording(t, 0.0 * force, accelerometer=force)
    dt = jq.estimation.imu_samples(recording).dt
    assert isinstance(dt, Interval)
    np.testing.assert_array_equal(dt.seconds, np.diff(t, prepend=t[0]))


NS = 10_000_000 * np.arange(5)  # at 100 Hz
BAD = {
    "nanoseconds since 1970": (1_700_000_000_000_000_000 + NS, "int64 with a median interval"),
    "nanoseconds as floats": (1e9 + NS.astype(float), "float64 with a median interval of 1e.07"),
    "milliseconds": (10 * np.arange(5), "int64 with a median interval of 10"),
    "a float32 beyond its range": (np.array([0.0, 1e39]), "median interval of 1e.39"),
    "float32 in float64": ((1.7e9 + EVEN).astype(np.float32).astype(float), "rounded to float32"),
    "a day in float32": ((86400.0 + EVEN).astype(np.float32).astype(float), "rounded to float32"),
    "dates": (np.array(["2026-01-01", "2026-01-02"], "M8[s]"), r"give \(t - t\[0\]\) / np.time"),
    "masked": (np.ma.masked_values([0.0, 1.0, 2.0], 1.0), "without masked values"),
}


@pytest.mark.parametrize("case", BAD)
def test_times_that_are_no_seconds_or_have_lost_digits_are_refused(case):
    times, message = BAD[case]
    with pytest.raises(ValueError, match=f"^times: wanted .*{message}"):
        estimation.intervals(times)


def test_integers_and_coarse_grids_are_exact():
    """Differences of integers beyond 2^53, seconds for twelve days, and quarters of a second."""
    seconds = np.array([2**60, 2**60 + 1, 2**60 + 2], np.int64)
    assert estimation.intervals(seconds).seconds.tolist() == [0.0, 1.0, 1.0]
    assert np.all(estimation.intervals(np.arange(1e6)).seconds[1:] == 1.0)
    quarters = np.array([0.0, 0.25, 0.75, 1.0])
    assert estimation.intervals(quarters).seconds.tolist() == [0.0, 0.25, 0.5, 0.25]


def test_differences_of_float32_times_are_rounded_once():
    """0.1 minus 1e-9 has more digits than float32."""
    times = np.array([1e-9, 0.1, 0.35], np.float32)
    exact = np.diff(times.astype(np.float64))
    np.testing.assert_array_equal(estimation.intervals(times).seconds[1:], exact)

"""The filter and smoother of attitude and bias, on simulated runs with known noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import some
from scipy.spatial.transform import Rotation

import jaxquat as jq
from jaxquat import estimation
from jaxquat.estimation import Interval, MekfSettings, VectorSample
from jaxquat.estimation.error_state import Error, consistency, observed

Q0 = jnp.array([1.0, 0.0, 0.0, 0.0])
NOISES = MekfSettings(
    gyro=2e-3,
    bias_random_walk=3e-4,
    vectors=0.02,
    attitude=5e-3,
    start_attitude=0.1,
    start_bias=0.01,
)
REFERENCES = jnp.array([[0.0, 0.0, 1.0], [0.0, 0.6, -0.8]])


def simulated(key, noises=NOISES, n=200, dt=0.1, dtype=jnp.float64, every=3):
    """Returns true attitudes, true biases and samples of one run; every third sees a vector."""
    keys = jax.random.split(key, 6)
    normal = lambda k, shape: jax.random.normal(keys[k], shape)
    t = dt * jnp.arange(n, dtype=jnp.float64)
    rate = jnp.stack([0.5 * jnp.sin(0.3 * t), 0.4 * jnp.cos(0.5 * t), 0.3 + 0.0 * t], axis=1)
    steps = noises.bias_random_walk * jnp.sqrt(dt) * normal(0, (n, 3))
    bias = noises.start_bias * normal(1, (3,))[None] + jnp.cumsum(steps, axis=0)
    gyro = rate + bias + noises.gyro / jnp.sqrt(dt) * normal(2, (n, 3))
    start = jq.quaternion.exp(noises.start_attitude * normal(3, (3,)))
    q = jax.lax.scan(
        lambda q, u: (jq.quaternion.multiply(q, jq.quaternion.exp(u)),) * 2, start, dt * rate
    )[1]
    seen = jax.vmap(lambda q: jq.quaternion.rotate_inverse(q[None], REFERENCES))(q)
    seen = seen + noises.vectors * normal(4, seen.shape)
    index = jnp.arange(n)
    seen = jnp.where(((index % every) == 0)[:, None, None], seen, jnp.nan)
    tilt = jq.quaternion.exp(noises.attitude * normal(5, (n, 3)))
    measured = jnp.where(
        ((index % 10) == 5)[:, None], jq.quaternion.multiply(tilt, q), jnp.full((n, 4), jnp.nan)
    )
    references = jnp.broadcast_to(REFERENCES, seen.shape)
    samples = VectorSample(Interval(jnp.full(n, dt)), gyro, seen, references, measured)
    return q, bias, jax.tree.map(lambda x: x.astype(dtype), samples)


SIMULATED = jax.jit(simulated, static_argnames=("n", "dtype", "every"))


def errors_of(estimate, q, bias):
    """Returns the errors (N, 6)."""
    multiply, conjugate = jq.quaternion.multiply, jq.quaternion.conjugate
    u = jq.quaternion.log(multiply(q, conjugate(estimate.q)))
    return jnp.concatenate([u, bias - estimate.bias], axis=1)


@jax.jit
@functools.partial(jax.vmap, in_axes=(0, None, None))
def one_run(key, noises, missing):
    """NEES and NIS of a run, filtered and smoothed, what smoothing changed, and the mean errors.

    Without the rates where they are missing, (200,).
    """
    q, bias, samples = simulated(key)
    samples = samples._replace(gyro=jnp.where(missing[:, None], jnp.nan, samples.gyro))
    kalman = estimation.mekf(Q0, noises)
    _, filtered = estimation.run(kalman, samples)
    smoothed = estimation.smooth(kalman, samples)
    error, error_after = errors_of(filtered, q, bias), errors_of(smoothed, q, bias)
    size = lambda x: jnp.mean(jnp.sum(x[:, :3] ** 2, axis=1))
    nis = jnp.sum(filtered.nis), jnp.sum(filtered.observations)
    history = samples.gyro, filtered, smoothed.covariance
    pairs = (error, filtered.covariance), (error_after, smoothed.covariance)
    return *pairs, nis, history, size(error), size(error_after)


@functools.lru_cache
def runs(noises=NOISES, missing=()):
    """One hundred runs."""
    lost = np.isin(np.arange(200), missing)
    keys = jax.random.split(jax.random.key(0), 100)
    *pairs, nis, history, before, after = jax.tree.map(np.asarray, one_run(keys, noises, lost))
    # By NumPy: where two programs of jnp.linalg for many matrices run at once, they may never end.
    nees = [np.sum(x * np.linalg.solve(c, x[..., None])[..., 0], axis=-1) for x, c in pairs]
    return *nees, nis, history, before, after


@jax.jit
def step(noises, gate, memory, sample):
    return estimation.mekf(Q0, noises, gate=gate).step(memory, sample)


@jax.jit
def begun(noises, sample):
    return estimation.mekf(Q0, noises).init(sample)


def band(dof):
    """Returns four standard deviations of a mean of chi-squared / dof, of ``dof`` in all."""
    return 4 * np.sqrt(2 / dof)


def test_a_block_of_observations_is_the_textbook():
    """``P - P H^T (H P H^T + R)^-1 H P`` and its likelihood, the third of four not observed."""
    n, seen = 5, [0, 1, 3]
    draw = np.random.default_rng(0).normal
    root, rows, mean, residuals = draw(size=(n, n)), draw(size=(4, n)), draw(size=n), draw(size=4)
    variances, p = np.array([0.5, 1.0, 2.0, 0.1]), root @ root.T
    there = np.array([True, True, False, True])
    after, update = jax.jit(observed)(Error(mean, p), rows, residuals, variances, there)
    h, y = rows[seen], (residuals - rows @ mean)[seen]
    spread = h @ p @ h.T + np.diag(variances[seen])
    gain = p @ h.T @ np.linalg.inv(spread)
    np.testing.assert_allclose(after.mean, mean + gain @ y, rtol=1e-11)
    np.testing.assert_allclose(after.covariance, p - gain @ h @ p, rtol=1e-10, atol=1e-12)
    squared, count, likelihood = consistency([update])
    nis = y @ np.linalg.solve(spread, y)
    np.testing.assert_allclose([squared, count], [nis, 3.0], rtol=1e-12)
    wanted = -0.5 * (nis + np.linalg.slogdet(2.0 * np.pi * spread)[1])
    np.testing.assert_allclose(likelihood, wanted, rtol=1e-12)


def one_sample(dt, gyro, attitude):
    nothing = jnp.zeros((0, 3))
    return VectorSample(
        Interval(jnp.asarray(dt)), jnp.asarray(gyro), nothing, nothing, jnp.asarray(attitude)
    )


def test_through_a_gap_attitude_and_covariance_are_those_of_the_integrals():
    """Nothing but a gyroscope for 2 s: bias of variance b^2 turns the attitude by ``2 s`` times it.

    So the attitude's variance becomes ``a^2 + 4 b^2 + 2 gyro^2`` and the bias's ``b^2 + 2 w^2``.
    """
    lost = jnp.full(4, jnp.nan)
    memory = begun(NOISES, one_sample(2.0, jnp.zeros(3), lost))
    memory = memory._replace(bias=jnp.array([0.0, 0.0, 0.1]))
    _, estimate = step(NOISES, jnp.inf, memory, one_sample(2.0, [0.0, 0.0, 0.4], lost))
    np.testing.assert_allclose(estimate.q, [np.cos(0.3), 0, 0, np.sin(0.3)], atol=1e-15)
    variances = np.diag(estimate.covariance)
    wanted = 0.1**2 + 4 * 0.01**2 + 2 * 2e-3**2, 0.01**2 + 2 * 3e-4**2
    np.testing.assert_allclose(variances, np.repeat(wanted, 3), rtol=1e-13)


def test_a_missing_rate_is_held_and_the_attitude_becomes_less_certain():
    """By ``T^2 gyro^2/dt + (acceleration T (T + dt)/2)^2`` after 0.1 s and a gap T of 3 s."""
    noises = NOISES._replace(acceleration=0.02)
    lost = jnp.full(4, jnp.nan)
    rates = np.full((4, 3), np.nan)
    rates[0] = [0.0, 0.0, 0.2]
    samples = [
        one_sample(dt, rate, lost) for dt, rate in zip((0.1, 1.0, 0.5, 1.5), rates, strict=True)
    ]
    memory = begun(noises, samples[0])
    for sample in samples:
        memory, estimate = step(noises, jnp.inf, memory, sample)
    np.testing.assert_allclose(estimate.q, [np.cos(0.31), 0, 0, np.sin(0.31)], atol=1e-15)
    held = 9 * 2e-3**2 / 0.1 + (0.5 * 0.02 * 3.0 * 3.1) ** 2
    wanted = 0.1**2 + 3.1**2 * 0.01**2 + 2e-3**2 * 0.1 + held
    walked = 3e-4**2 * (0.1 * 3.0**2 + 1.0 * 2.0**2 + 0.5 * 1.5**2)
    about_the_turn = estimate.covariance[2, 2]  # about the others the turn mixes x and y
    np.testing.assert_allclose(about_the_turn, wanted + walked, rtol=1e-12)


def test_a_star_tracker_with_axes_of_its_own_is_weighed_by_them():
    """After three attitudes NEES of 200 starts has 600 degrees of freedom, NIS of two 1200.

    The tracker's axes are turned against the body's; about its boresight it is eight times worse.
    """
    turn = np.asarray(jq.quaternion.to_matrix(jq.quaternion.random(jax.random.key(8))))
    deviations = np.array([5.0, 5.0, 40.0]) * np.pi / 180 / 3600
    covariance = turn @ np.diag(deviations**2) @ turn.T
    noises = MekfSettings(
        attitude=jnp.asarray(covariance), start_attitude=0.1, gyro=1e-9, bias_random_walk=0.0
    )

    @jax.jit
    @jax.vmap
    def one(key):
        keys = jax.random.split(key)
        q = jq.quaternion.exp(0.1 * jax.random.normal(keys[0], (3,)))
        errors = (deviations[None] * jax.random.normal(keys[1], (3, 3))) @ turn.T
        seen = jq.quaternion.multiply(q[None], jq.quaternion.exp(errors))
        still, none = jnp.zeros((3, 3)), jnp.zeros((3, 0, 3))
        kalman = estimation.mekf(Q0, noises)
        _, run = estimation.run(
            kalman, VectorSample(Interval(jnp.zeros(3)), still, none, none, seen)
        )
        u = jq.quaternion.log(jq.quaternion.multiply(q, jq.quaternion.conjugate(run.q[-1])))
        return u @ jnp.linalg.solve(run.covariance[-1, :3, :3], u) / 3, jnp.sum(run.nis[1:]) / 6

    nees, nis = one(jax.random.split(jax.random.key(9), 200))
    assert np.mean(nees) == pytest.approx(1, abs=band(600))
    assert np.mean(nis) == pytest.approx(1, abs=band(1200))


@pytest.mark.slow  # the closed forms of a gap are quick
def test_through_gaps_of_the_gyroscope_the_errors_are_within_the_covariance():
    """Gaps of 1 and 5 samples. The rate changes by up to 0.2 rad/s^2, here the deviation assumed.

    So NEES is at most that of the noises within the gaps, filtered and smoothed, and after a gap
    and ten attitudes or vectors it is that again.
    """
    noises = NOISES._replace(acceleration=0.2)
    for nees in runs(noises, (30, *range(60, 65)))[:2]:
        nees = np.mean(nees, axis=0) / 6
        assert np.all(nees[20:100] < 1 + band(600))
        assert nees[95] == pytest.approx(1, abs=band(600))


DEVIATIONS = {"axes": jnp.full(3, 0.05), "covariance": 0.05**2 * jnp.eye(3)}


@pytest.mark.parametrize("kind", some(DEVIATIONS, ["axes"]))
def test_one_deviation_and_its_covariance_are_the_same_noise(kind):
    sample = one_sample(0.1, [0.0, 0.1, 0.2], jq.quaternion.exp(jnp.array([0.02, -0.01, 0.03])))
    memory = begun(NOISES, sample)
    several = (NOISES._replace(attitude=noise) for noise in (0.05, DEVIATIONS[kind]))
    estimates = [step(noises, jnp.inf, memory, sample)[1] for noises in several]
    for a, b in zip(*estimates, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


def test_an_attitude_of_another_length_is_refused_and_left_out_where_traced():
    sample = one_sample(0.0, jnp.zeros(3), jnp.array([154.0, 0.0, 0.0, 0.0]))
    kalman = estimation.mekf(Q0, NOISES)
    with pytest.raises(ValueError, match=r"sample\.attitude: wanted a unit quaternion"):
        kalman.step(kalman.init(sample._replace(attitude=Q0)), sample)
    several = jax.tree.map(lambda x: x[None], sample)
    with pytest.raises(ValueError, match=r"samples\.attitude: wanted a unit quaternion"):
        estimation.run(kalman, several)
    memory, estimate = step(NOISES, jnp.inf, begun(NOISES, sample), sample)
    assert estimate.observations == 0
    np.testing.assert_array_equal(memory.q, Q0)


def test_an_attitude_beyond_the_gate_is_left_out():
    """The innovation has a standard deviation of 0.1: 0.6 about one axis is 6 of them."""
    off = jq.quaternion.exp(jnp.array([0.6, 0.0, 0.0]))
    sample = one_sample(0.0, jnp.zeros(3), off)
    for gate, q, count in ((5.0, Q0, 0), (7.0, off, 3)):
        _, estimate = step(NOISES, gate, begun(NOISES, sample), sample)
        assert jq.quaternion.distance(estimate.q, q) < 0.01
        assert estimate.observations == count


def test_the_errors_are_as_large_as_the_covariance_says():
    """At one time NEES of 100 runs has 600 degrees of freedom: 6 +- 4 standard deviations.

    The first twenty samples are left out, where the linearisation at 0.1 rad shows.
    """
    nees, after, *_ = runs()
    for k in (20, 77, 150, 199):
        assert nees[:, k].mean() / 6 == pytest.approx(1, abs=band(600))
        assert after[:, k].mean() / 6 == pytest.approx(1, abs=band(600))


def test_the_innovations_are_as_large_as_the_filter_says():
    """NIS is chi-squared with a degree of freedom per scalar observed."""
    nis, count = runs()[2]
    assert count[0] == 3 * 2 * 67 + 3 * 20
    assert nis.sum() / count.sum() == pytest.approx(1, abs=band(count.sum()))


@pytest.mark.slow
def test_wrong_noises_are_found_out():
    wrong = NOISES._replace(gyro=0.5 * NOISES.gyro, vectors=NOISES.vectors / 0.5)
    nees, _, (nis, count), *_ = runs(wrong)
    assert nees[:, 77].mean() / 6 > 1 + 3 * band(600)
    assert nis.sum() / count.sum() < 1 - 3 * band(count.sum())


def test_the_smoother_halves_the_variance():
    """Inside of a run as much is known from after as from before: the variance is half, or less."""
    *_, filtered, smoothed = runs()
    assert smoothed.mean() < 0.55 * filtered.mean()


def test_the_smoother_is_that_of_rauch_tung_and_striebel():
    """Its covariance obeys ``P_s = P + C (P_s' - P') C^T`` with ``C = P F^T P'^-1``, in float64."""
    gyro, filtered, smoothed = jax.tree.map(lambda x: x[3], runs()[3])
    turns = Rotation.from_quat(np.roll(filtered.q, -1, axis=1))
    turns = turns[:-1] * Rotation.from_rotvec(0.05 * (gyro[1:] - filtered.bias[:-1]))
    transitions = np.tile(np.eye(6), (200, 1, 1))
    transitions[1:, :3, 3:] = -0.1 * turns.as_matrix()
    noise = np.diag(np.repeat([NOISES.gyro**2, NOISES.bias_random_walk**2], 3)) * 0.1
    for k in range(198, 0, -1):
        p, f = filtered.covariance[k], transitions[k + 1]
        predicted = f @ p @ f.T + noise
        c = p @ f.T @ np.linalg.inv(predicted)
        wanted = p + c @ (smoothed[k + 1] - predicted) @ c.T
        scale = np.sqrt(np.diag(wanted))
        difference = (smoothed[k] - wanted) / scale[:, None] / scale
        assert np.abs(difference).max() < 1e-9


@pytest.mark.parametrize("dtype", some([jnp.float32, jnp.float64], [jnp.float32]))
def test_the_covariance_stays_positive(dtype):
    """A star tracker 1e4 times better than the start, over 2000 samples, in both precisions."""
    noises = NOISES._replace(
        attitude=1e-5, start_attitude=0.1, gyro=1e-5, bias_random_walk=1e-8, vectors=0.01
    )
    _, _, samples = SIMULATED(jax.random.key(1), noises, n=2000, dtype=dtype)
    kalman = estimation.mekf(Q0.astype(dtype), noises)
    _, estimates = jax.jit(functools.partial(estimation.run, kalman))(samples)
    assert estimates.covariance.dtype == dtype
    covariance = np.asarray(estimates.covariance, np.float64)
    scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    correlation = covariance / scale[:, :, None] / scale[:, None, :]
    assert np.linalg.eigvalsh(correlation).min() > 0


def loss(log_noises, samples):
    kalman = estimation.mekf(Q0, MekfSettings(*jnp.exp(log_noises)))
    return -jnp.sum(estimation.run(kalman, samples)[1].log_likelihood)


@pytest.mark.slow
def test_the_likelihood_has_gradients_in_both_modes_with_sensors_missing():
    """Central differences with a step of 1e-5 are good to 1e-8 of the largest component."""
    _, _, samples = SIMULATED(jax.random.key(5), n=40)
    x = jnp.log(jnp.array(NOISES))
    reverse, by_sample = jax.jit(jax.grad(loss, (0, 1)))(x, samples)
    forward = jax.jit(jax.jacfwd(loss))(x, samples)
    value = jax.jit(loss)
    central = [
        (value(x.at[k].add(1e-5), samples) - value(x.at[k].add(-1e-5), samples)) / 2e-5
        for k in range(len(x))
    ]
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)
    np.testing.assert_allclose(reverse, central, rtol=1e-6, atol=1e-6 * np.abs(central).max())
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(by_sample))


@pytest.mark.slow
def test_the_likelihood_is_greatest_near_the_true_noises():
    """The gradient by the logarithms, divided by the curvature, is within 4 standard errors of 0.

    With 100 runs of about 460 scalars it tells a gyroscope noise that is 10 % off.
    """
    keys = jax.random.split(jax.random.key(7), 100)
    x = jnp.log(jnp.array(NOISES))

    @jax.jit
    @jax.vmap
    def slopes(key):
        _, _, samples = simulated(key, n=100)
        return jax.grad(loss)(x, samples)

    slope = np.asarray(slopes(keys))[:, [0, 2, 3]]
    error = slope.std(axis=0) / np.sqrt(100)
    assert np.all(np.abs(slope.mean(axis=0)) < 4 * error)


@pytest.mark.slow
def test_what_pads_a_recording_changes_nothing():
    _, _, samples = SIMULATED(jax.random.key(2), n=30)
    empty = jax.tree.map(lambda x: jnp.full_like(x[:5], jnp.nan), samples)
    empty = empty._replace(dt=Interval(jnp.zeros(5)), gyro=jnp.ones((5, 3)))
    padded = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), samples, empty)
    kalman = estimation.mekf(Q0, NOISES)
    plain, long = estimation.run(kalman, samples)[0], estimation.run(kalman, padded)[0]
    for one, other in zip(plain, long, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-15)
    smoothed = estimation.smooth(kalman, padded).q[:30]
    np.testing.assert_allclose(smoothed, estimation.smooth(kalman, samples).q, atol=1e-14)


@pytest.mark.slow
def test_the_gate_leaves_out_an_outlier():
    _, _, samples = SIMULATED(jax.random.key(4), n=60, every=1)
    spoilt = samples._replace(vectors=samples.vectors.at[50, 0].add(1.0))
    without = samples._replace(vectors=samples.vectors.at[50, 0].set(jnp.nan))
    gated, open_ = estimation.mekf(Q0, NOISES, gate=5.0), estimation.mekf(Q0, NOISES)
    wanted = estimation.run(gated, without)[1].q
    np.testing.assert_array_equal(estimation.run(gated, spoilt)[1].q, wanted)
    assert np.abs(estimation.run(open_, spoilt)[1].q - wanted).max() > 1e-3


@pytest.mark.slow
def test_a_run_continues_where_an_earlier_one_ended():
    _, _, samples = SIMULATED(jax.random.key(6), n=40)
    kalman = estimation.mekf(Q0, NOISES)
    whole = estimation.run(kalman, samples)[1]
    part = lambda k: jax.tree.map(lambda x: x[k], samples)
    memory, first = estimation.run(kalman, part(slice(0, 15)))
    second = estimation.run(kalman, part(slice(15, None)), memory)[1]
    joined = jnp.concatenate([first.q, second.q])
    np.testing.assert_allclose(joined, whole.q, rtol=0, atol=1e-15)

"""The filter of an inertial sensor with magnetometer, on simulated and real recordings."""

import importlib.util
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT
from marks import some
from scipy.spatial.transform import Rotation

import jaxquat as jq
from jaxquat import estimation, frames
from jaxquat.estimation import AhrsSettings, ImuSample, Interval
from jaxquat.estimation.imu import transition_of

BROAD = ROOT.parent / "shared" / "data" / "broad"
DT = 0.05
GRAVITY, FIELD = np.array([0.0, 0.0, 9.80665]), np.array([0.0, 18.0, -45.0])
ROWS = 320
PROGRAM = jax.jit(lambda settings, *rest: estimation.run(estimation.ahrs(settings), *rest))
BEGUN = jax.jit(lambda settings, sample: estimation.ahrs(settings).init(sample))
SMOOTH = jax.jit(lambda settings, samples: estimation.smooth(estimation.ahrs(settings), samples))


def padded(x, value=np.nan):
    """Rows are added up to a multiple of ROWS, so that few programs are compiled."""
    x = np.asarray(x)
    return np.pad(x, [(0, -len(x) % ROWS)] + [(0, 0)] * (x.ndim - 1), constant_values=value)


def filtered(settings, samples):
    """The estimates after each sample; the rows that follow do not change them."""
    n = len(samples.gyro)
    dt = Interval(padded(samples.dt.seconds, 0.0))
    rows = ImuSample(dt, *map(padded, samples[1:]))
    memory, parts = BEGUN(settings, jax.tree.map(lambda x: x[0], rows)), []
    for k in range(0, len(rows.gyro), ROWS):
        part = jax.tree.map(lambda x, k=k: x[k : k + ROWS], rows)
        memory, estimates = PROGRAM(settings, part, memory)
        parts.append(estimates)
    return jax.tree.map(lambda *x: np.concatenate(x)[:n], *parts)


def settings(dtype=jnp.float64, **changes):
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), AhrsSettings(**changes))


@jax.jit
def sensed(rate, force):
    """Attitudes, and world forces and the field in body axes."""
    turn = lambda q, u: (jq.quaternion.multiply(q, jq.quaternion.exp(u)),) * 2
    start = jq.quaternion.exp(jnp.array([0.2, -0.3, 0.0]))
    q = jax.lax.scan(turn, start, DT * rate)[1]
    field = jq.quaternion.rotate_inverse(q, jnp.asarray(FIELD)[None])
    return q, jq.quaternion.rotate_inverse(q, force), field


def moved(rate, acceleration=None, dtype=jnp.float64):
    """Returns attitudes (N, 4) and exact samples for body rates and world accelerations (N, 3)."""
    n = len(rate)
    force = GRAVITY + (np.zeros((n, 3)) if acceleration is None else acceleration)
    q, force, field = (np.asarray(x)[:n] for x in sensed(padded(rate, 0.0), padded(force, 0.0)))
    samples = ImuSample(Interval(np.full(n, DT)), np.asarray(rate), force, field)
    return q, jax.tree.map(lambda x: jnp.asarray(x, dtype), samples)


def attitudes(q):
    return Rotation.from_quat(np.roll(q, -1, axis=-1))


def wandering(n):
    t = DT * np.arange(n)
    return np.stack([0.5 * np.sin(0.7 * t), 0.6 * np.cos(0.4 * t), 0.8 * np.sin(0.2 * t)], axis=1)


def angle(p, q):
    p, q = np.asarray(p, float), np.asarray(q, float)
    chord = np.minimum(np.linalg.norm(p - q, axis=-1), np.linalg.norm(p + q, axis=-1))
    return np.rad2deg(4 * np.arcsin(0.5 * chord))


@pytest.mark.parametrize("dtype", some([jnp.float32, jnp.float64], [jnp.float32]))
def test_exact_measurements_give_the_attitude(dtype):
    """The first sample gives it exactly; what remains are the changes of rate within a step."""
    q, samples = moved(wandering(300), dtype=dtype)
    estimate = filtered(settings(dtype), samples)
    assert estimate.q.dtype == estimate.covariance.dtype == dtype
    assert angle(estimate.q, q).max() < (0.05 if dtype == jnp.float32 else 0.01)
    covariance = np.asarray(estimate.covariance, np.float64)
    scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    correlation = covariance / scale[:, :, None] / scale[:, None, :]
    assert np.linalg.eigvalsh(correlation).min() > 0


def test_converted_sensors_give_the_converted_attitude():
    """In FRD gravity is a specific force along -down. Unconverted it is 180 degrees off NED."""
    q, samples = moved(wandering(80))  # here the attitude FRD to NED
    force = attitudes(q).apply([0.0, 0.0, -9.80665], inverse=True)
    field = attitudes(q).apply([18.0, 0.0, 45.0], inverse=True)  # north and down
    sensors = samples.gyro, force, field
    converted = filtered(settings(), ImuSample(samples.dt, *map(frames.frd_flu, sensors)))
    assert angle(converted.q, frames.attitude(q)).max() < 0.01
    assert angle(filtered(settings(), ImuSample(samples.dt, *sensors)).q, q).min() > 179.99


def test_the_blocks_of_the_transition_are_those_of_the_matrix():
    draw = np.random.default_rng(0).normal
    q, gyro = jq.quaternion.exp(jnp.asarray(draw(size=3))), draw(size=3)
    dt, decay, impulse = 0.3, 0.9, 0.7
    by_rate = -dt * np.asarray(jq.quaternion.to_matrix(q))
    matrix = np.eye(18)
    matrix[:3, 3:6], matrix[:3, 9:] = by_rate, np.kron(by_rate, gyro)
    matrix[6, 1], matrix[7, 0], matrix[8, 8] = impulse, -impulse, decay
    root = draw(size=(18, 18))
    product = jax.jit(lambda q, gyro, *x: transition_of(q, gyro, *x)(root))
    got = product(q, gyro, *map(jnp.asarray, (dt, decay, impulse)))
    np.testing.assert_allclose(got, matrix @ root, rtol=0, atol=1e-14)


@pytest.mark.parametrize("value", some([jnp.nan, 0.0, jnp.inf], [jnp.nan]))
@pytest.mark.parametrize("missing", [("magnetometer",), ("accelerometer", "magnetometer")])
def test_what_the_first_rows_miss_is_made_up_for(missing, value):
    """In any attitude. A heading of which nothing is known begins with a deviation of 3 rad.

    After T seconds of a magnetometer at most ``2 heading^2 / (9 T)`` of 180 degrees is left of it:
    the 2 is for the longest innovation.
    """
    turned = np.random.default_rng(0).normal(size=(16, 4))
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    turned[0] = [0.0, 0.0, 1.0, 0.0]  # upside down
    q, samples = moved(wandering(80))
    gone = {name: getattr(samples, name).at[:10].set(value) for name in missing}
    rotations, samples = attitudes(q), samples._replace(**gone)
    for by in attitudes(turned):
        with np.errstate(invalid="ignore"):
            sensors = [by.apply(np.array(x), inverse=True) for x in samples[1:]]
        estimate = filtered(settings(), ImuSample(samples.dt, *sensors))
        off = np.rad2deg((attitudes(estimate.q).inv() * rotations * by).magnitude())
        assert off[50:].max() < 180 * 2 * 0.3**2 / (9 * 2)
        assert estimate.covariance[5, 2, 2] > 9.0


def with_rows_of_their_own(samples, periods, order, late=0.0):
    """The same samples, in which each sensor has rows of its own, and where the gyroscope's are.

    Sensor k has a sample every ``periods[k]`` rows. The rows of one time stand in ``order``, and
    the magnetometer's are ``late`` [s].
    """
    rows, t = [], np.cumsum(np.asarray(samples.dt.seconds))
    for row in range(len(t)):
        for k in order:
            if row % periods[k] == 0:
                rows.append((t[row] + late * (k == 2), len(rows), k, row))
    rows.sort(key=lambda x: x[:2])
    sensors = [np.full((len(rows), 3), np.nan) for _ in range(3)]
    for number, (_, _, k, row) in enumerate(rows):
        sensors[k][number] = samples[1 + k][row]
    dt = np.diff([t[0], *(x[0] for x in rows)])
    apart = ImuSample(Interval(dt), *sensors)
    return apart, np.array([number for number, x in enumerate(rows) if x[2] == 0])


OWN_ROWS = {
    "a slow accelerometer": ((1, 4, 1), (0, 1, 2), 0.0),
    "a slower accelerometer": ((1, 10, 1), (0, 1, 2), 0.0),
    "a slow magnetometer": ((1, 1, 8), (0, 1, 2), 0.0),
    "the gyroscope last": ((1, 2, 3), (2, 1, 0), 0.0),
    "the accelerometer first": ((1, 1, 4), (1, 2, 0), 0.0),
    "a late magnetometer": ((1, 1, 4), (0, 1, 2), 2e-4),
}


@pytest.mark.parametrize("name", some(OWN_ROWS, ["a slower accelerometer", "the gyroscope last"]))
def test_sensors_may_have_rows_of_their_own(name):
    """The attitude differs by less than a tenth of its deviation from that of whole rows.

    A missing acceleration was taken for zero motion: a sample in four lost 6 degrees of tilt.
    """
    _, samples = moved(wandering(400))
    biased = samples._replace(gyro=samples.gyro + np.array([[0.02, -0.01, 0.0]]))
    whole = filtered(settings(), biased)
    apart, rows = with_rows_of_their_own(biased, *OWN_ROWS[name])
    estimate = filtered(settings(), apart)
    deviation = np.sqrt(np.trace(whole.covariance[:, :3, :3], axis1=1, axis2=2))
    off = angle(estimate.q[rows], whole.q)
    assert np.all(off[100:] < 0.1 * np.rad2deg(deviation[100:]))
    own = np.sqrt(np.trace(estimate.covariance[rows[-1], :3, :3]))
    assert own < 1.25 * deviation[-1]


def test_a_first_row_of_the_magnetometer_alone_loses_no_heading():
    """The field is learned in level axes, so not before there are any."""
    q, samples = moved(wandering(200))
    nothing = np.full((1, 3), np.nan)
    first = ImuSample(Interval(np.zeros(1)), nothing, nothing, samples.magnetometer[:1])
    joined = jax.tree.map(lambda a, b: np.concatenate([a, b]), first, samples)
    estimate = filtered(settings(), joined)
    assert angle(estimate.q[1:], q).max() < 0.01  # as of whole rows


def test_at_rest_the_bias_is_found():
    """From rest alone, after 1.5 s, over T: ``r/(r + T start_bias^2)`` is left, r = rest_bias^2.

    That is 3 % of it after 16.5 s; the other sensors take some more away.
    """
    bias = np.array([0.01, -0.02, 0.015])
    _, samples = moved(np.zeros((360, 3)))
    estimate = filtered(settings(), samples._replace(gyro=samples.gyro + bias[None]))
    left = 7e-3**2 / (7e-3**2 + 16.5 * 0.01**2)
    assert np.all(np.abs(estimate.bias[-1] - bias) < left * np.abs(bias))


def test_a_gain_error_is_found_in_motion():
    """At 1 rad/s for 25 s, and back, a gain 0.4 % too high makes 5.7 degrees of heading.

    A bias would not change its sign with the rate.
    """
    rate = np.zeros((2800, 3))
    rate[60:, 2] = np.where(np.arange(2740) // 500 % 2, -1.0, 1.0)
    q, samples = moved(rate)
    estimate = filtered(settings(), samples._replace(gyro=samples.gyro * 1.004))
    assert estimate.others[-1, 11] == pytest.approx(0.004 / 1.004, abs=5e-4)
    assert angle(estimate.q[-1], q[-1]) < 0.5


def test_an_oscillation_is_no_tilt():
    """3 m/s^2 at 1 Hz is a tilt of 17 degrees if taken for one; the covariance claims a tenth."""
    t = DT * np.arange(600)
    sway = 3.0 * np.cos(2 * np.pi * t)[:, None] * np.array([[1.0, 0.0, 0.0]])
    q, samples = moved(0.2 * wandering(600), np.where(t[:, None] > 3, sway, 0.0))
    estimate = filtered(settings(), samples)
    up = np.array([0.0, 0.0, 1.0])
    off = attitudes(estimate.q).apply(attitudes(q).apply(up, inverse=True))
    tilt = np.rad2deg(np.arccos(np.minimum(off[:, 2], 1.0)))
    deviation = np.rad2deg(np.sqrt(estimate.covariance[:, 0, 0] + estimate.covariance[:, 1, 1]))
    assert np.all(tilt < 3.0 * deviation)
    assert np.all(deviation[t > 3.0] < 1.7)


def test_a_magnet_hardly_turns_the_heading():
    """For 5 s the field is turned by 30 degrees and half as long again.

    Ten times the gate divides the weight of these samples by ``(1 + 10^2)^2`` beside those of the
    15 s before: at most a third of 30 degrees over this number is left.
    """
    q, samples = moved(wandering(600))
    near = attitudes(q).apply(1.5 * np.array([-9.0, 15.6, -45.0]), inverse=True)
    field = np.where(((np.arange(600) // 100) == 3)[:, None], near, samples.magnetometer)
    disturbed = samples._replace(magnetometer=field)
    assert angle(filtered(settings(), disturbed).q, q).max() < 30.0 / 3.0 / (1.0 + 10.0**2) ** 2


def test_the_unit_of_the_field_has_no_effect():
    """Fields of 4e-26 to 2e36 in float32, scaled by powers of two, give the same bits."""
    _, samples = moved(wandering(ROWS), dtype=jnp.float32)
    chosen = settings(jnp.float32)
    usual = filtered(chosen, samples)
    for unit in (2.0**-90, 2.0**115):
        scaled = samples._replace(magnetometer=samples.magnetometer * jnp.float32(unit))
        got = filtered(chosen, scaled)
        np.testing.assert_array_equal(got.q, usual.q)
        np.testing.assert_array_equal(got.covariance, usual.covariance)


def test_one_field_of_any_length_is_a_disturbance():
    """Its direction is right and its length wrong: the attitudes stay exact."""
    q, samples = moved(wandering(ROWS), dtype=jnp.float32)
    for row, length in ((0, 1e-30), (50, 1e25)):
        spike = samples.magnetometer.at[row].multiply(jnp.float32(length))
        got = filtered(settings(jnp.float32), samples._replace(magnetometer=spike))
        assert angle(got.q, q).max() < 0.02


def test_an_int_of_the_settings_is_a_number_under_jit():
    first = jax.tree.map(lambda x: x[0], moved(wandering(2))[1])
    start = jax.jit(lambda settings: estimation.ahrs(settings).init(first).covariance[5, 5])
    assert start(AhrsSettings(latency=0, start_bias=2)) == 4.0


@pytest.mark.slow
def test_sensors_may_be_missing_and_derivatives_stay_finite():
    q, samples = moved(wandering(120))
    gone = lambda x, rows: x.at[rows].set(jnp.nan)
    samples = samples._replace(
        accelerometer=gone(samples.accelerometer, slice(40, 60)),
        magnetometer=gone(samples.magnetometer, slice(0, 30)),
        gyro=gone(samples.gyro, slice(80, 81)),
    )

    def loss(settings, samples):
        estimate = estimation.smooth(estimation.ahrs(settings), samples)
        return jnp.sum(estimate.bias**2) + jnp.sum(jq.quaternion.squared_distance(estimate.q, q))

    by_settings, by_samples = jax.jit(jax.grad(loss, argnums=(0, 1)))(settings(), samples)
    for leaf in jax.tree.leaves((by_settings, by_samples)):
        assert np.all(np.isfinite(leaf))
    direction = jax.tree.map(jnp.ones_like, settings())._replace(latency=jnp.array(0.0))
    shift = lambda h: jax.tree.map(lambda x, d: x * (1 + h * d), settings(), direction)
    along = jax.jit(lambda h: jax.jvp(lambda h: loss(shift(h), samples), (h,), (1.0,)))
    forward = float(along(0.0)[1])
    inner = sum(float(g * x) for g, x in zip(by_settings, settings(), strict=True))
    assert forward == pytest.approx(inner, rel=1e-9)
    central = float(along(1e-4)[0] - along(-1e-4)[0]) / 2e-4  # a shorter step loses digits
    assert forward == pytest.approx(central, rel=1e-5)


@pytest.mark.slow
def test_merged_samples_give_the_same_attitudes():
    """Turns are composed exactly; averages over 0.25 s cost less than 0.1 degrees."""
    q, samples = moved(wandering(600))
    merged = estimation.merge(samples, 5)
    np.testing.assert_allclose(merged.dt.seconds, 0.25, rtol=1e-14)
    turns = jq.quaternion.exp(merged.dt.seconds[1:, None] * merged.gyro[1:])
    exact = jq.quaternion.multiply(q[4:-5:5], turns)
    assert angle(exact, q[9::5]).max() < 1e-10
    assert angle(filtered(settings(), merged).q, q[4::5]).max() < 0.1


def test_merged_samples_are_means_in_the_axes_at_the_end_without_what_is_missing():
    """The force in world axes changes while the body turns; the field does not."""
    force = np.random.default_rng(0).normal(size=(6, 3))
    q, samples = moved(4.0 * wandering(6), force)
    samples = samples._replace(
        accelerometer=samples.accelerometer.at[1].set(jnp.nan),
        magnetometer=samples.magnetometer.at[3:].set(jnp.nan),
    )
    merged, turned = jax.jit(estimation.merge, static_argnums=1)(samples, 3), attitudes(q)
    means = GRAVITY + np.stack([force[[0, 2]].mean(axis=0), force[3:].mean(axis=0)])
    wanted = turned[2::3].apply(means, inverse=True)
    np.testing.assert_allclose(merged.accelerometer, wanted, rtol=0, atol=1e-14)
    np.testing.assert_allclose(merged.magnetometer[0], samples.magnetometer[2], rtol=0, atol=1e-13)
    assert np.all(np.isnan(merged.magnetometer[1]))
    turn = (turned[2].inv() * turned[5]).as_rotvec()
    np.testing.assert_allclose(merged.gyro[1] * merged.dt.seconds[1], turn, rtol=0, atol=1e-14)


def test_latency_turns_the_attitude_on():
    _, samples = moved(np.tile([0.0, 0.0, 0.5], (100, 1)))
    plain, late = filtered(settings(), samples), filtered(settings(latency=0.1), samples)
    turn = jax.jit(lambda q, later: jq.quaternion.log(jq.quaternion.relative(q, later)))
    wanted = np.tile([0.0, 0.0, 0.05], (100, 1))
    np.testing.assert_allclose(turn(plain.q, late.q), wanted, rtol=0.01, atol=5e-4)


def scores_on_broad():
    """Returns mean total and aligned errors [deg] by the defaults, and VQF's published ones."""
    files = sorted(BROAD.glob("*.npz"))[::4]
    if not files:
        pytest.skip("BROAD is not beside this checkout: download it, doi 10.3390/data6070072")
    path = ROOT / "examples" / "attitude_filter.py"
    spec = importlib.util.spec_from_file_location("attitude_filter", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    table = json.loads((BROAD / "vqf.json").read_text())
    ours, theirs = [], []
    for file in files:
        samples, reference = example.merged(example.read(file), 12)
        single = settings(jnp.float32)
        both = PROGRAM(single, samples)[1].q, SMOOTH(single, samples).q
        ours.append([np.asarray(example.scores(q, reference))[[0, 3, 2]] for q in both])
        row = table[file.stem]
        names = ("vqf_9d", "offline_vqf_9d")
        theirs.append([[row[x][0], row[f"{x}_aligned"][0], row[x][2]] for x in names])
    return np.mean(ours, axis=0), np.mean(theirs, axis=0)


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.needs("matplotlib")
def test_on_real_recordings_the_defaults_are_better_than_vqf():
    """On every fourth file: total and aligned by a tenth, online and smoothed; tilt no worse."""
    ours, theirs = scores_on_broad()
    assert np.all(ours[:, :2] < 0.9 * theirs[:, :2])
    assert np.all(ours[:, 2] < 1.05 * theirs[:, 2])


@pytest.mark.slow
@pytest.mark.needs("llvmlite")
def test_the_kernel_gives_what_the_scan_gives():
    """A second of rest, then motion, with rows of the sensors missing: values and derivatives."""
    rate = np.concatenate([np.zeros((150, 3)), wandering(150)])
    _, samples = moved(rate, np.random.default_rng(1).normal(size=(300, 3)))
    samples = samples._replace(
        accelerometer=samples.accelerometer.at[200:230].set(jnp.nan),
        magnetometer=samples.magnetometer.at[::3].set(jnp.nan),
    )

    def loss(values, engine):
        estimates = estimation.run(estimation.ahrs(values), samples, engine=engine)[1]
        return jnp.sum(estimates.q[:, 3]) + jnp.sum(estimates.covariance[-1]), estimates

    both = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
    (_, one), slopes = both(settings(), "fused")
    (_, other), wanted = both(settings(), "scan")
    for got, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(jax.tree.leaves(slopes), jax.tree.leaves(wanted), rtol=1e-7)


def test_an_impossible_force_counts_as_missing():
    """Its square leaves the range of float32."""
    n = 100
    force = jnp.tile(jnp.array([0.0, 0.0, 9.81], jnp.float32), (n, 1))
    gyro, none = jnp.zeros((n, 3), jnp.float32), jnp.full((n, 3), jnp.nan, jnp.float32)
    dt = estimation.Interval(jnp.full(n, 0.01, jnp.float32))

    def q_of(force):
        samples = estimation.ImuSample(dt, gyro, force, none)
        return jax.jit(lambda x: estimation.run(estimation.ahrs(), x)[1].q)(samples)

    spoilt, missing = (q_of(force.at[50].set(x)) for x in (1e20, jnp.nan))
    np.testing.assert_array_equal(spoilt, missing)
    assert np.all(np.isfinite(spoilt))

"""Rests of a recording, and the calibration of both inertial sensors on their means."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from commands import ROOT
from scipy.spatial.transform import Rotation

import jaxquat as jq

BROAD = ROOT.parent / "shared" / "data" / "broad"
G, DT, REST, TURN = 9.81, 0.01, 4.0, 1.0  # m/s^2, s: rests of 4 s, turns of 1 s between them
ACCELEROMETER = jq.accelerometer.Accelerometer(
    jnp.array([0.1, -0.2, 0.3]),
    jnp.array([0.01, -0.02, 0.005]),
    jnp.array([0.0, 0.0, 0.01, 0.0, -0.02, 0.015]),
    jnp.array(1e-3),
    jnp.array(0.0),
)
GYRO = jq.gyro.Gyro(
    jnp.array([4e-3, -2e-3, 6e-3]),
    jnp.array([0.01, -0.015, 0.005]),
    jnp.array([0.01, -0.005, 0.004, 0.008, -0.006, 0.003]),
    jnp.array(1e-4),
    jnp.array(0.0),
)
FACES = [*np.eye(3), *-np.eye(3)]
EDGES = [v for v in itertools.product((-1, 0, 1), repeat=3) if np.abs(v).sum() == 2]


def measured(sensor, true, rng):
    """What jq.gyro.measure says, in NumPy, which compiles nothing."""
    rows = np.eye(3)
    rows[~np.eye(3, dtype=bool)] = sensor.misalignment
    response = (1.0 + np.asarray(sensor.scale))[:, None] * rows
    white = float(sensor.noise) / np.sqrt(DT) * rng.normal(size=true.shape)
    return true @ response.T + np.asarray(sensor.bias) + white


def held(directions, seed=0):
    """A recording of a body that is held with these directions upwards, in a random order.

    Between two rests it turns about a fixed axis, with the rate of a smooth step of the angle.
    """
    rng = np.random.default_rng(seed)
    up = rng.permutation(np.array(directions, float))
    up /= np.linalg.norm(up, axis=1, keepdims=True)
    upright = [Rotation.align_vectors([[0, 0, 1]], [u])[0] for u in up]
    poses = [Rotation.from_euler("z", rng.uniform(-3, 3)) * one for one in upright]
    t = np.arange(round((len(poses) * (REST + TURN) - TURN) / DT)) * DT
    pose, since = np.divmod(t, REST + TURN)
    part = np.clip((since - REST) / TURN, 0.0, 1.0)
    step, speed = part**3 * (10 - 15 * part + 6 * part**2), 30 * part**2 * (1 - part) ** 2 / TURN
    turns = [(a.inv() * b).as_rotvec() for a, b in itertools.pairwise(poses)] + [np.zeros(3)]
    pose, turns = pose.astype(int), np.array(turns)
    starts = Rotation.from_quat(np.stack([one.as_quat() for one in poses])[pose])
    attitudes = starts * Rotation.from_rotvec(turns[pose] * step[:, None])
    forces = G * attitudes.inv().apply([0.0, 0.0, 1.0])
    forces = measured(ACCELEROMETER, forces, rng)
    rates = measured(GYRO, turns[pose] * speed[:, None], rng)
    return jq.recordings.Recording(t, rates, accelerometer=forces)


def interleaved(recording, every):
    """The recording with every k-th specific force alone, in rows between those of the rates."""
    rows, n = np.arange(0, len(recording.t) - 1, every), len(recording.t)
    t = np.concatenate([recording.t, recording.t[rows] + 0.3 * DT])
    order, lost = np.argsort(t), np.full((len(rows), 3), np.nan)
    gyro = np.concatenate([recording.gyro, lost])
    forces = np.concatenate([np.full((n, 3), np.nan), recording.accelerometer[rows]])
    return jq.recordings.Recording(t[order], gyro[order], accelerometer=forces[order])


def means(recording, name, rests):
    return np.stack([np.nanmean(recording[name][a:b], axis=0) for a, b in rests])


def scores(got, true, errors):
    return (np.asarray(got) - np.asarray(true)) / np.asarray(errors)


@pytest.mark.parametrize("every", [0, 4])
def test_the_rests_are_found_without_half_a_window_at_their_ends(every):
    """They begin at multiples of 5 s and last for 4 s; those at the ends of the recording too.

    The rate is small where a turn begins and ends: a twentieth of a second may pass for rest.
    """
    recording = held(FACES)
    recording = interleaved(recording, every) if every else recording
    rests = jq.recordings.stationary_intervals(recording)
    begins, ends = recording.t[rests[:, 0]], recording.t[rests[:, 1] - 1]
    np.testing.assert_allclose(begins, 5.0 * np.arange(6) + 0.5, rtol=0, atol=0.1)
    np.testing.assert_allclose(ends, 5.0 * np.arange(6) + 3.5, rtol=0, atol=0.1)


@pytest.mark.slow
def test_an_accelerometer_is_calibrated_on_the_rests_within_its_standard_errors():
    """18 means and 9 parameters: errors over standard errors are Student's t with 9 degrees.

    Their mean square is 9/7. Of 27 of them it is off by 0.5, since a t has a kurtosis of 4.2.
    """
    m, z = ACCELEROMETER.misalignment, []
    for seed in range(3):
        recording = held(FACES + EDGES, seed)
        rests = jq.recordings.stationary_intervals(recording)
        assert len(rests) == 18
        forces = means(recording, "accelerometer", rests)
        sensor, covariance = jq.accelerometer.calibrate(forces, G)
        errors = covariance.standard_errors
        z.append(scores(sensor.bias, ACCELEROMETER.bias, errors["bias"]))
        z.append(scores(sensor.scale, ACCELEROMETER.scale, errors["scale"]))
        lower = np.stack([errors[name] for name in ("yx", "zx", "zy")])
        places = np.array([2, 4, 5])
        z.append(scores(sensor.misalignment[places], m[places], lower))
        assert np.all(np.asarray(errors["bias"]) < 2e-3)
    assert np.max(np.abs(z)) < 5.0
    assert np.mean(np.square(z)) < 9 / 7 + 4 * 0.5


@pytest.mark.slow
def test_six_positions_alone_leave_the_misalignments_open():
    """Along the axes, yx, zx and zy change no length."""
    recording = held(FACES)
    rests = jq.recordings.stationary_intervals(recording)
    samples = np.concatenate([recording.accelerometer[a:b] for a, b in rests])
    with pytest.raises(ValueError, match="samples: wanted directions that determine") as error:
        jq.accelerometer.calibrate(samples, G)
    assert all(name in str(error.value) for name in ("yx", "zx", "zy"))


@pytest.mark.slow
def test_a_gyroscope_is_calibrated_on_the_turns_between_rests_within_its_standard_errors():
    """Tedaldi et al. (2014), (13): the turn of gravity between the means of two rests.

    34 components of 17 turns, and 9 parameters. The bias is the mean over all rests, 54 s.
    """
    recording = held(FACES + EDGES)
    rests = jq.recordings.stationary_intervals(recording)
    bias = np.mean(np.concatenate([recording.gyro[a:b] for a, b in rests]), axis=0)
    np.testing.assert_allclose(bias, GYRO.bias, rtol=0, atol=4 * 1e-4 / np.sqrt(54.0))
    forces = means(recording, "accelerometer", rests)
    sensor, _ = jq.accelerometer.calibrate(forces, G)
    up = jq.accelerometer.correct(sensor, forces) / G
    middle = rests.mean(axis=1).astype(int)
    level = jnp.array([1.0, 0.0, 0.0, 0.0])

    def residuals(params):
        gyro = jq.gyro.Gyro.ideal()._replace(bias=jnp.asarray(bias), **params)
        rates = jq.gyro.correct(gyro, recording.gyro)
        q = jq.kinematics.integrate(level, rates, DT)[middle]
        turn = jq.quaternion.relative(q[:-1], q[1:])
        return (jq.quaternion.rotate_inverse(turn, up[:-1]) - up[1:]).ravel()

    start = {"scale": jnp.zeros(3), "misalignment": jnp.zeros(6)}
    fit = jq.least_squares(residuals, start)
    assert fit.converged
    errors = fit.covariance.standard_errors
    z = [scores(fit.params[key], getattr(GYRO, key), errors[key]) for key in start]
    assert np.max(np.abs(np.concatenate(z))) < 4.0
    assert all(np.all(np.asarray(errors[key]) < 5e-4) for key in start)


def test_a_body_that_never_rests_has_no_rest():
    rng = np.random.default_rng(0)
    t = np.arange(2000) * DT
    waves = np.sin(2 * np.pi * t[:, None] * [0.7, 1.1, 1.3]) + 1e-3 * rng.normal(size=(2000, 3))
    assert jq.recordings.stationary_intervals(jq.recordings.Recording(t, waves)).shape == (0, 2)


def test_a_steady_turn_about_the_vertical_is_no_rest_above_the_limit_of_the_rate():
    rng = np.random.default_rng(0)
    t, forces = np.arange(2000) * DT, G * np.array([0.0, 0.0, 1.0]) + np.zeros((2000, 3))
    rates = np.array([0.0, 0.0, 0.05]) + 1e-3 * rng.normal(size=(2000, 3))
    recording = jq.recordings.Recording(t, rates, accelerometer=forces)
    assert len(jq.recordings.stationary_intervals(recording)) == 0
    assert len(jq.recordings.stationary_intervals(recording, rate=0.1)) == 1


def test_readings_in_float32_of_a_long_recording_are_summed_in_float64():
    recording = held(FACES)
    gyro = jnp.asarray(recording.gyro, jnp.float32)
    forces = jnp.asarray(recording.accelerometer, jnp.float32)
    rests = jq.recordings.stationary_intervals(
        jq.recordings.Recording(recording.t, gyro, accelerometer=forces)
    )
    np.testing.assert_array_equal(rests, jq.recordings.stationary_intervals(recording))


def test_a_gap_of_a_sensor_ends_a_rest():
    """Where windows lack 0.3 of their samples, 0.2 s before the gap and after it."""
    recording = held(FACES[:1])
    longer = np.concatenate([recording.t, recording.t + 6.0])  # two seconds without a row
    twice = jq.recordings.Recording(longer, np.tile(recording.gyro, (2, 1)))
    rests = jq.recordings.stationary_intervals(twice)
    np.testing.assert_allclose(longer[rests[:, 0]], [0.5, 6.2], rtol=0, atol=2 * DT)
    np.testing.assert_allclose(longer[rests[:, 1] - 1], [3.8, 9.5], rtol=0, atol=2 * DT)


@pytest.mark.slow
def test_on_real_recordings_rests_are_outside_of_the_phases_of_movement():
    """BROAD marks these. Windows at the ends of phases and of the recording leave a few percent."""
    files = sorted(BROAD.glob("*.npz"))
    if not files:
        pytest.skip("BROAD is not beside this checkout: download it, doi 10.3390/data6070072")
    shares = []
    for file in files:
        with np.load(file) as data:
            rates, forces = (np.asarray(data[name], float) for name in ("imu_gyr", "imu_acc"))
            moves = np.ravel(data["movement"]) > 0
            t = np.arange(len(moves)) / float(data["sampling_rate"])
        rests = jq.recordings.stationary_intervals(
            jq.recordings.Recording(t, rates, accelerometer=forces)
        )
        still = np.zeros(len(t), bool)
        for a, b in rests:
            still[a:b] = True
        shares.append([np.mean(still[moves]), np.mean(still[~moves])])
    assert np.max(shares, axis=0)[0] < 1e-3
    assert np.min(shares, axis=0)[1] > 0.85


@pytest.mark.parametrize("reading", [1e6, -1e12, 1e200])
def test_a_wild_reading_ends_a_rest_and_hides_no_other(reading):
    """Its square is so large that sums of squares from there on have no digits of the noise."""
    t, noise = np.arange(3000) * DT, 1e-3 * np.random.default_rng(0).normal(size=(3000, 3))
    noise[1000, 1] = reading
    rests = jq.recordings.stationary_intervals(jq.recordings.Recording(t, noise))
    np.testing.assert_array_equal(rests, [[50, 950], [1051, 2950]])


def test_what_has_no_rest_to_find_is_refused():
    t = np.arange(100) * DT
    with pytest.raises(ValueError, match="recording: wanted gyro or accelerometer, got neither"):
        jq.recordings.stationary_intervals(jq.recordings.Recording(t))
    none = jq.recordings.Recording(t, np.full((100, 3), np.nan))
    with pytest.raises(ValueError, match="duration: wanted windows with samples of gyro, got 0"):
        jq.recordings.stationary_intervals(none, duration=0.5)
    with pytest.raises(ValueError, match=r"duration: wanted at most the 0\.99 s of the recording"):
        jq.recordings.stationary_intervals(
            jq.recordings.Recording(t, np.zeros((100, 3))), duration=2.0
        )

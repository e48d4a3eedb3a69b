"""Models of accelerometer and magnetometer, and their calibration within its standard errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import jaxquat as jq
from jaxquat import accelerometer, gyro, magnetometer, quaternion
from jaxquat.sensors import calibration

G = 9.81
FORCE_OF, FIELD_OF = jax.jit(accelerometer.measure), jax.jit(magnetometer.measure)
FORCES, FIELDS = 100, 200  # as many samples in most tests: the programs are compiled once
DOWN = jnp.array([0.0, 0.0, -G])
FIELD = np.array([20.0, 0.0, -45.0])
SOFT_IRON = np.array([[1.1, 0.05, -0.02], [0.05, 0.9, 0.03], [-0.02, 0.03, 1.02]])
ACCELEROMETER = accelerometer.Accelerometer(
    jnp.array([0.1, -0.2, 0.3]),
    jnp.array([0.01, -0.02, 0.005]),
    jnp.array([0.0, 0.0, 0.01, 0.0, -0.02, 0.015]),
    jnp.array(1e-3),
    jnp.array(0.0),
)
MAGNETOMETER = magnetometer.Magnetometer(
    jnp.asarray(SOFT_IRON), jnp.array([20.0, -35.0, 12.0]), jnp.array(0.03)
)


def at_rest(q, seed=0, sensor=ACCELEROMETER):
    key = jax.random.key(seed)
    return FORCE_OF(key, sensor, q, jnp.zeros((len(q), 3)), DOWN, 0.01)


def in_the_field(q, seed=0):
    return FIELD_OF(jax.random.key(seed), MAGNETOMETER, q, FIELD, 0.01)


def turns(axis, n):
    return quaternion.exp(jnp.linspace(0.0, 6.2, n)[:, None] * jnp.asarray(axis)[None])


def test_an_ideal_accelerometer_measures_the_specific_force():
    """In free fall nothing, at rest minus gravity in body axes."""
    q = quaternion.random(jax.random.key(0), (5,))
    ideal, key = accelerometer.Accelerometer.ideal(), jax.random.key(1)
    falling = FORCE_OF(key, ideal, q, jnp.tile(DOWN[None], (5, 1)), DOWN, 0.01)
    np.testing.assert_array_equal(falling, 0.0)
    wanted = -np.einsum("kji,j->ki", quaternion.to_matrix(q), DOWN)
    np.testing.assert_allclose(at_rest(q, sensor=ideal), wanted, atol=1e-14)


def test_what_the_sensors_measure_is_corrected():
    q = quaternion.random(jax.random.key(0), (20,))
    quiet = ACCELEROMETER._replace(noise=jnp.array(0.0))
    wanted = quaternion.rotate_inverse(q, -DOWN)
    got = accelerometer.correct(quiet, at_rest(q, sensor=quiet))
    np.testing.assert_allclose(got, wanted, atol=1e-13)
    still = MAGNETOMETER._replace(noise=jnp.array(0.0))
    measured = FIELD_OF(jax.random.key(0), still, q, FIELD, 0.01)
    field = quaternion.rotate_inverse(q, FIELD)
    np.testing.assert_allclose(
        measured, np.asarray(field) @ SOFT_IRON.T + np.asarray(MAGNETOMETER.hard_iron), atol=1e-13
    )
    np.testing.assert_allclose(magnetometer.correct(still, measured), field, atol=1e-13)


def test_the_noise_of_a_sample_has_the_variance_of_its_density():
    """Estimates from 30,000 numbers are within 5 of their standard errors, 5 sqrt(2/30000)."""
    q = jnp.tile(jnp.array([[1.0, 0.0, 0.0, 0.0]]), (10_000, 1))
    for samples, density in ((at_rest(q), 1e-3), (in_the_field(q), 0.03)):
        assert np.var(samples, axis=0).mean() == pytest.approx(density**2 / 0.01, rel=0.041)


def test_a_gyroscope_in_a_loop_is_that_of_whole_recordings():
    """With the same normals sample by sample; a sum of 500 steps is rounded 500 times."""
    model = gyro.Gyro(
        jnp.array([0.1, -0.2, 0.3]), jnp.array([0.01, -0.02, 0.005]),
        1e-3 * jnp.arange(6.0), jnp.array(1e-3), jnp.array([1e-4, 2e-4, 3e-4]),
    )  # fmt: skip
    rates, key = jax.random.normal(jax.random.key(1), (500, 3)), jax.random.key(2)
    normals = jnp.swapaxes(jax.random.normal(key, (2, 500, 3)), 0, 1)

    def step(memory, row):
        measured, memory = gyro.sample(model, memory, row[0], 0.01, row[1])
        return memory, measured

    @jax.jit
    def both(rates, normals, key):
        in_a_loop = jax.lax.scan(step, jnp.zeros(3), (rates, normals))[1]
        return in_a_loop, gyro.measure(key, model, rates, 0.01)

    got, wanted = both(rates, normals, key)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)


def scores(covariance, truth):
    flat = lambda tree: np.asarray(ravel_pytree(tree)[0])
    return (flat(covariance.params) - flat(truth)) / flat(covariance.standard_errors)


def mean_square_is_one(z):
    """Of k independent standard normals it is off 1 by sqrt(2/k); four of that are allowed."""
    return abs(np.mean(z**2) - 1.0) < 4.0 * np.sqrt(2.0 / z.size) and np.abs(z).max() < 4.5


def test_a_calibrated_accelerometer_is_within_its_standard_errors():
    m, z = ACCELEROMETER.misalignment, []
    truth = {"bias": ACCELEROMETER.bias, "scale": ACCELEROMETER.scale}
    truth |= {"yx": m[2], "zx": m[4], "zy": m[5]}
    for seed in range(6):
        q = quaternion.random(jax.random.key(seed), (FORCES,))
        got, covariance = accelerometer.calibrate(at_rest(q, seed), G)
        z.append(scores(covariance, truth))
        np.testing.assert_array_equal(got.misalignment[jnp.array([0, 1, 3])], 0.0)
    assert mean_square_is_one(np.array(z))


@pytest.mark.slow
@pytest.mark.weekly
def test_the_standard_errors_of_an_accelerometer_are_honest():
    """Errors over their standard errors are Student's t with 91 degrees of freedom.

    Their mean square is 91/89, over 200 calibrations within four of its own errors. Those come from
    the scatter of the calibrations: the nine parameters of one are correlated.
    """
    m, squares = ACCELEROMETER.misalignment, []
    truth = {"bias": ACCELEROMETER.bias, "scale": ACCELEROMETER.scale}
    truth |= {"yx": m[2], "zx": m[4], "zy": m[5]}

    @jax.jit
    def measured(seed):
        keys = jax.random.split(jax.random.key(seed))
        q = quaternion.random(keys[0], (FORCES,))
        return accelerometer.measure(keys[1], ACCELEROMETER, q, jnp.zeros((100, 3)), DOWN, 0.01)

    for seed in range(200):
        covariance = accelerometer.calibrate(measured(seed), G)[1]
        squares.append(np.mean(scores(covariance, truth) ** 2))
    error = np.std(squares) / np.sqrt(len(squares))
    assert error < 0.06
    assert abs(np.mean(squares) - 91 / 89) < 4.0 * error, (np.mean(squares), error)


def test_a_calibrated_magnetometer_is_within_its_standard_errors():
    truth = {
        name: SOFT_IRON["xyz".index(name[0]), "xyz".index(name[1])]
        for name in ("xx", "xy", "xz", "yy", "yz", "zz")
    }
    truth, z = {"hard_iron": MAGNETOMETER.hard_iron, **truth}, []
    for seed in range(6):
        q = quaternion.random(jax.random.key(seed), (FIELDS,))
        got, covariance = magnetometer.calibrate(in_the_field(q, seed), np.linalg.norm(FIELD))
        z.append(scores(covariance, truth))
        np.testing.assert_array_equal(got.soft_iron, got.soft_iron.T)
    assert mean_square_is_one(np.array(z))


def strong_iron(ratio, seed):
    """A symmetric, positive definite soft iron of this axis ratio, and 200 noiseless samples."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    soft_iron = axes @ np.diag([1.0, ratio ** rng.uniform(), ratio]) @ axes.T
    directions = rng.normal(size=(FIELDS, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return soft_iron, 45.0 * directions @ soft_iron.T + 20.0 * rng.normal(size=3)


def iron_is_recovered(ratio, seed):
    """In float64 to rounding, in float32 to a few units of rounding at the ratio."""
    soft_iron, samples = strong_iron(ratio, seed)
    for dtype, digits in ((np.float64, 1e-12), (np.float32, 1e-5)):
        got, covariance = magnetometer.calibrate(samples.astype(dtype), 45.0)
        np.testing.assert_allclose(got.soft_iron, soft_iron, rtol=0, atol=digits * ratio)
        np.testing.assert_allclose(covariance.params["yz"], got.soft_iron[1, 2])


@pytest.mark.parametrize("ratio", [1.0, 4.0, 10.0])
def test_the_soft_iron_is_the_positive_root(ratio):
    """Its square alone is determined, and the mirrored roots of that fit as well."""
    for seed in range(3):
        iron_is_recovered(ratio, seed)


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.parametrize("ratio", [1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0])
def test_the_soft_iron_is_the_positive_root_for_many_seeds(ratio):
    for seed in range(3, 43):
        iron_is_recovered(ratio, seed)


def test_a_fit_that_ends_at_a_mirrored_root_goes_on_to_the_positive_one(monkeypatch):
    """From a sphere the fit of this ellipsoid of axis ratio 5 ends at another root."""
    monkeypatch.setattr(calibration, "_algebraic", lambda samples: None)
    soft_iron, samples = strong_iron(5.0, 0)
    got, _ = magnetometer.calibrate(samples, 45.0)
    np.testing.assert_allclose(got.soft_iron, soft_iron, rtol=0, atol=5e-9)


def test_the_soft_iron_of_a_turned_matrix_is_its_positive_polar_factor():
    """``S R`` with a rotation R gives S."""
    soft_iron, _ = strong_iron(6.0, 1)
    turn = np.asarray(quaternion.to_matrix(quaternion.random(jax.random.key(1))))
    sensor = magnetometer.Magnetometer(soft_iron @ turn, jnp.zeros(3), jnp.array(0.0))
    poses = quaternion.random(jax.random.key(2), (FIELDS,))
    measured = FIELD_OF(jax.random.key(0), sensor, poses, FIELD, 0.01)
    got, _ = magnetometer.calibrate(measured, np.linalg.norm(FIELD))
    np.testing.assert_allclose(got.soft_iron, soft_iron, rtol=0, atol=1e-11)


def test_gains_of_an_accelerometer_that_differ_by_a_factor_of_two_are_right():
    """Among them a set for which a fit from a sphere ended at a negative gain."""
    for seed in (0, 32, 56):
        rng = np.random.default_rng(seed)
        gains, rows = 1.0 + rng.uniform(-0.45, 0.45, 3), np.eye(3)
        rows[[1, 2, 2], [0, 0, 1]] = rng.uniform(-0.3, 0.3, 3)
        force = rng.normal(size=(FORCES, 3))
        force *= G / np.linalg.norm(force, axis=1, keepdims=True)
        bias = 3.0 * rng.normal(size=3)
        got, _ = accelerometer.calibrate(force @ (gains[:, None] * rows).T + bias, G)
        np.testing.assert_allclose(got.scale, gains - 1.0, rtol=0, atol=1e-12)
        np.testing.assert_allclose(got.bias, bias, rtol=0, atol=1e-11)


def test_a_calibration_in_float32_is_that_of_float64_to_its_errors():
    q = quaternion.random(jax.random.key(0), (FORCES,))
    samples = at_rest(q)
    got = accelerometer.calibrate(samples.astype(jnp.float32), G)[0]
    wanted, covariance = accelerometer.calibrate(samples, G)
    assert got.bias.dtype == jnp.float32
    off = np.abs(np.asarray(got.bias, np.float64) - np.asarray(wanted.bias))
    assert (off < 0.1 * np.asarray(covariance.standard_errors["bias"])).all()


@pytest.mark.parametrize("unit", [1e-36, 1e-25, 1e-20, 1e18, 1e36])
@pytest.mark.parametrize("kind", ["accelerometer", "magnetometer"])
def test_a_calibration_does_not_depend_on_the_unit_of_the_field(kind, unit):
    number = {"accelerometer": FORCES, "magnetometer": FIELDS}[kind]
    poses = quaternion.random(jax.random.key(0), (number,))
    field, offset = jnp.array([0.0, 20.0, -40.0]), jnp.array([10.0, 5.0, -5.0])
    measured = np.asarray(quaternion.rotate_inverse(poses, field) + offset[None], np.float64)
    module = {"accelerometer": accelerometer, "magnetometer": magnetometer}[kind]
    samples = jnp.asarray(unit * measured, jnp.float32)
    sensor = module.calibrate(samples, unit * np.sqrt(2000.0))[0]
    got = sensor.bias if kind == "accelerometer" else sensor.hard_iron
    np.testing.assert_allclose(np.asarray(got, np.float64) / unit, offset, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("axis", "flat"),
    [
        pytest.param([1.0, 0.0, 0.0], ["bias[0]", "scale[0]", "yx", "zx"], marks=pytest.mark.slow),
        ([0.0, 0.0, 0.0], ["bias[0]"]),
    ],
)
def test_poses_that_leave_an_accelerometer_open_are_refused_by_the_parameters(axis, flat):
    """Turns about x while gravity is along z, or one pose alone."""
    with pytest.raises(ValueError, match="samples: wanted directions that determine") as error:
        accelerometer.calibrate(at_rest(turns(axis, FORCES)), G)
    assert all(name in str(error.value) for name in flat)


def test_zeros_alone_are_no_field():
    with pytest.raises(ValueError, match=r"^samples: wanted samples of a field, got zeros alone"):
        accelerometer.calibrate(np.zeros((20, 3)), G)


IRON = np.array([20.0, -35.0, 12.0])


def cone(half_angle, noise, seed):
    """Fields of strength 50 in 200 directions, uniform in a cone about z, beside hard iron."""
    rng = np.random.default_rng(seed)
    up = rng.uniform(np.cos(half_angle), 1.0, FIELDS)
    turn, flat = rng.uniform(0.0, 2.0 * np.pi, FIELDS), np.sqrt(1.0 - up**2)
    field = 50.0 * np.stack([flat * np.cos(turn), flat * np.sin(turn), up], axis=1)
    return field + IRON + noise * rng.normal(size=(FIELDS, 3))


def test_the_hard_iron_alone_is_the_centre_of_a_sphere():
    """As the docstring says; an ellipsoid would be 30 uT off along the axis of the cone."""
    samples = cone(np.deg2rad(20.0), 0.1, 0)
    with pytest.raises(ValueError, match="samples: wanted directions that determine"):
        magnetometer.calibrate(samples, 50.0)
    distances = lambda p: jnp.linalg.norm(samples - p["c"][None], axis=1) - p["radius"]
    start = {"c": jnp.asarray(samples.mean(axis=0) - [0.0, 0.0, 50.0]), "radius": jnp.array(50.0)}
    fit = jq.least_squares(distances, start)
    assert np.all(np.abs(fit.params["c"] - IRON) < 4 * np.asarray(fit.standard_errors["c"]))
    assert np.all(np.asarray(fit.standard_errors["c"]) < [0.05, 0.05, 0.6])


@pytest.mark.parametrize(
    "samples",
    [cone(np.deg2rad(20.0), 0.1, 0), cone(np.deg2rad(20.0), 1.0, 0), cone(1e-9, 0.3, 0)],
    ids=["a cone", "a noisy cone", "one attitude"],
)
def test_directions_in_a_cone_are_refused(samples):
    with pytest.raises(ValueError, match="samples: wanted directions that determine") as error:
        magnetometer.calibrate(samples, 50.0)
    assert "zz" in str(error.value)


def test_a_field_in_a_plane_leaves_a_magnetometer_open():
    """Fields of any length up to 1, as where one axis is dead. No message of LAPACK comes of it."""
    fields = np.random.default_rng(0).normal(size=(200, 3))
    fields *= np.array([1.0, 1.0, 0.0]) / np.linalg.norm(fields, axis=1, keepdims=True)
    with pytest.raises(ValueError, match="samples: wanted directions that determine") as error:
        magnetometer.calibrate(fields.astype(np.float32), 1.0)
    assert all(name in str(error.value) for name in ("hard_iron[2]", "xz", "yz", "zz"))


def test_forces_in_another_unit_than_gravity_are_refused():
    with pytest.raises(ValueError, match="samples: wanted specific forces in the unit of gravity"):
        accelerometer.calibrate(at_rest(quaternion.random(jax.random.key(0), (FORCES,))) / G, G)

"""Preintegration: held samples in closed form, orders, errors to first order, gtsam."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
from marks import some
from scipy.linalg import expm

import jaxquat as jq
from examples.validation import problems
from jaxquat import kinematics, quaternion

IMU = kinematics.Imu
NOISE = IMU(0.01, 0.1)
GRAVITY = np.array([0.5, -0.3, -9.8])


def recording(n=12, seed=0, dtype=jnp.float64):
    rng = np.random.default_rng(seed)
    gyro, accel = rng.normal(size=(n, 3)), 5.0 * rng.normal(size=(n, 3))
    return jnp.asarray(gyro, dtype), jnp.asarray(accel, dtype), np.cumsum(rng.uniform(0.1, 0.4, n))


PROGRAM = jax.jit(kinematics.preintegrate)


def motion_of(gyro, accel, times, bias=(0.0, 0.0), noise=(0.0, 0.0)):
    """The motion of twelve samples, by one program."""
    whole = lambda pair: IMU(*(jnp.full(3, x, gyro.dtype) for x in pair))
    return PROGRAM(gyro, accel, jnp.asarray(times), whole(bias), whole(noise))


@jax.jit
def errors(motion, other):
    """The nine errors of ``motion`` from ``other``."""
    turn = quaternion.multiply(quaternion.conjugate(motion.dq), other.dq)
    return jnp.concatenate([quaternion.log(turn), other.dv - motion.dv, other.dp - motion.dp])


def product_of_exponentials(gyro, accel, times):
    """Rotation matrix, velocity and displacement by matrices of 5 x 5 and scipy."""
    total = np.eye(5)
    for omega, force, dt in zip(gyro, accel, np.diff(times), strict=False):
        generator = np.zeros((5, 5))
        generator[:3, :3] = jq.so3.hat(np.asarray(omega, float))
        generator[:3, 3], generator[3, 4] = force, 1.0
        total = total @ expm(dt * generator)
    return total[:3, :3], total[:3, 3], total[:3, 4]


@pytest.mark.parametrize(
    ("dtype", "limit"),
    [pytest.param(jnp.float32, 2e-6, marks=pytest.mark.slow), (jnp.float64, 4e-15)],
)
@pytest.mark.parametrize("turning", some([0.0, 1e-3, 1.0, 30.0], [0.0, 1.0]))
def test_held_samples_give_the_product_of_matrix_exponentials(dtype, limit, turning):
    """To some roundings of the largest number; 30 rad/s turns by up to 20 rad in a step."""
    gyro, accel, times = recording(dtype=dtype)
    motion = motion_of(turning * gyro, accel, times)
    rotation, velocity, position = product_of_exponentials(turning * gyro, accel, times)
    assert motion.dq.dtype == motion.dv.dtype == motion.covariance.dtype == dtype
    scale = max(1.0, turning)  # the rounding of the rate is an error of the turn
    np.testing.assert_allclose(quaternion.to_matrix(motion.dq), rotation, atol=limit * scale)
    np.testing.assert_allclose(motion.dv, velocity, atol=20 * limit * scale)
    np.testing.assert_allclose(motion.dp, position, atol=50 * limit * scale)
    assert float(motion.dt) == pytest.approx(times[-1] - times[0], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_derivatives_at_rest_are_those_of_the_integrals(dtype):
    """Without rotation: dq by -T, dv by -T, dp by -T^2/2; the force c makes the cross terms."""
    still = jnp.zeros((5, 3), dtype)
    force = jnp.asarray([0.0, 0.0, 9.8], dtype)
    times = np.array([0.0, 0.3, 0.5, 1.2, 2.0])
    motion = kinematics.preintegrate(still, still + force[None], times)
    one, c = np.eye(3), np.asarray(jq.so3.hat(force))
    wanted = np.block([[-2 * one, 0 * one], [2 * c, -2 * one], [8 / 6 * c, -2 * one]])
    np.testing.assert_allclose(motion.jacobian, wanted, rtol=1e-5, atol=2e-5)

    def total(gyro, accel, times):
        leaves = jax.tree.leaves(kinematics.preintegrate(gyro, accel, times, None, NOISE))
        return sum(jnp.sum(leaf) for leaf in leaves)

    for mode in (jax.jacfwd, jax.jacrev):
        slopes = jax.jit(mode(total, (0, 1, 2)))(still, still, jnp.asarray(times, dtype))
        assert all(np.isfinite(x).all() for x in slopes)


@pytest.mark.slow
def test_the_jacobian_is_the_derivative_by_the_biases():
    gyro, accel, times = recording()
    run = lambda *bias: kinematics.preintegrate(gyro, accel, times, IMU(*bias))
    bias = jnp.array([0.1, -0.2, 0.3]), jnp.array([0.3, 0.2, -0.1])
    motion = run(*bias)
    for mode in (jax.jacfwd, jax.jacrev):
        slopes = jax.jit(mode(lambda *bias: errors(motion, run(*bias)), (0, 1)))(*bias)
        np.testing.assert_allclose(motion.jacobian, np.hstack(slopes), atol=5e-14)
    step = 1e-5 * jnp.ones(3)
    central = errors(motion, run(bias[0] + step, bias[1])) - errors(
        motion, run(bias[0] - step, bias[1])
    )
    np.testing.assert_allclose(
        np.sum(motion.jacobian[:, :3], axis=1), central / 2e-5, rtol=1e-7, atol=1e-7
    )


def test_other_biases_are_right_to_first_order():
    """What is left falls as the square of the change: slope 2."""
    gyro, accel, times = recording()
    motion, sizes, left = motion_of(gyro, accel, times), np.array([4e-3, 2e-3, 1e-3]), []
    for size in sizes:
        bias = IMU(size * jnp.array([1.0, -0.5, 0.7]), size * jnp.array([0.3, 2.0, -1.0]))
        exact = motion_of(gyro, accel, times, bias)
        left.append(np.linalg.norm(errors(exact, motion.with_bias(bias))))
    assert abs(-problems.slope(sizes, np.array(left)) - 2.0) < 0.05


def attitude(t):
    half = jnp.stack([0.5 * jnp.sin(t), 0.4 * jnp.cos(1.3 * t), 0.3 * t + 0.2 * jnp.sin(2 * t)])
    return quaternion.exp(half)


def position(t):
    return jnp.stack([jnp.sin(1.1 * t), jnp.cos(0.9 * t) + t * t, 0.5 * jnp.sin(1.7 * t)])


def velocity(t):
    return jax.jacfwd(position)(t)


@jax.jit
@jax.vmap
def sensed(t):
    """Rate and specific force of the motion above, body axes."""
    q, slope = jax.jvp(attitude, (t,), (jnp.ones_like(t),))
    omega = 2.0 * quaternion.multiply(quaternion.conjugate(q), slope)[1:]
    return omega, quaternion.rotate_inverse(q, jax.jacfwd(velocity)(t) - jnp.asarray(GRAVITY))


@pytest.mark.slow
def test_the_order_on_a_known_motion_is_1():
    """Distances of the samples change by a factor of 3 along the motion."""
    counts, left = np.array([40, 80, 160]), []
    for n in counts:
        s = np.linspace(0.0, 1.0, n + 1)
        times = 3.0 * (s - 0.5 / (2 * np.pi) * np.sin(2 * np.pi * s))
        gyro, accel = sensed(jnp.asarray(times))
        motion = kinematics.preintegrate(gyro, accel, times)
        zero = jnp.asarray(0.0)
        q, v, p = motion.predict(attitude(zero), velocity(zero), position(zero), GRAVITY)
        end = jnp.asarray(3.0)
        parts = quaternion.distance(q, attitude(end))[None], v - velocity(end), p - position(end)
        left.append([float(jnp.linalg.norm(x)) for x in parts])
    slopes = [-problems.slope(1.0 / counts, x) for x in np.array(left).T]
    assert np.min(left) > 1e-13
    assert np.abs(np.array(slopes) - 1).max() < 0.4, slopes


@pytest.mark.slow
def test_a_sensor_at_rest_stays_where_it_is():
    q, p = quaternion.exp(jnp.array([0.3, -0.5, 0.2])), jnp.array([1.0, 2.0, 3.0])
    accel = jnp.tile(quaternion.rotate_inverse(q, -GRAVITY)[None], (11, 1))
    motion = kinematics.preintegrate(jnp.zeros((11, 3)), accel, 0.1 * np.arange(11))
    for got, wanted in zip(
        motion.predict(q, jnp.zeros(3), p, GRAVITY), (q, 0.0 * p, p), strict=True
    ):
        np.testing.assert_allclose(got, wanted, atol=1e-14)


START = (
    quaternion.exp(jnp.array([0.3, -0.5, 0.2])),
    jnp.array([3.0, -2.0, 1.0]),
    jnp.array([10.0, 20.0, -5.0]),
)
RATE = jnp.array([0.4, -0.7, 1.1])
predict = jax.jit(kinematics.Preintegrated.predict)
residual = jax.jit(kinematics.Preintegrated.residual)


def in_turning_axes(gyro, accel, times, start, gravity, rate):
    """The end by matrices of 16 x 16 and scipy, from the equations of motion in turning axes.

    With the rate w they are R' = R hat(omega) - hat(w) R, p' = v and
    v' = R f + g - 2 w × v - w × (w × p): linear in the nine numbers of R, in v, p and 1.
    """
    w, one = jq.so3.hat(np.asarray(rate, float)), np.eye(3)
    state = np.concatenate([np.ravel(quaternion.to_matrix(start[0])), *start[1:], [1.0]])
    for omega, force, dt in zip(gyro, accel, np.diff(times), strict=False):
        slope = np.zeros((16, 16))
        turn = jq.so3.hat(np.asarray(omega, float))
        slope[:9, :9] = np.kron(one, turn.T) - np.kron(w, one)  # R by rows
        slope[9:12, :9] = np.kron(one, np.asarray(force)[None])
        slope[9:12, 9:] = np.hstack([-2 * w, -w @ w, np.asarray(gravity)[:, None]])
        slope[12:15, 9:12] = one
        state = expm(dt * slope) @ state
    return state[:9].reshape(3, 3), state[9:12], state[12:15]


@pytest.mark.parametrize(
    ("dtype", "limit"),
    [pytest.param(jnp.float32, 1e-6, marks=pytest.mark.slow), (jnp.float64, 1e-14)],
)
@pytest.mark.parametrize("turning", some([1e-9, 7e-5, 1.0, 5.0], [7e-5, 1.0]))
def test_in_axes_that_turn_the_end_is_that_of_their_equations_of_motion(dtype, limit, turning):
    """Over 3 s; position and velocity relative to their size, which turning by w multiplies."""
    gyro, accel, times = recording(dtype=dtype)
    start, rate = [x.astype(dtype) for x in START], (turning * RATE).astype(dtype)
    gravity = jnp.asarray(GRAVITY, dtype)
    q, v, p = predict(motion_of(gyro, accel, times), *start, gravity, rate)
    rotation, velocity, position = in_turning_axes(gyro, accel, times, start, gravity, rate)
    assert q.dtype == v.dtype == p.dtype == dtype
    limit = limit * max(1.0, turning)
    np.testing.assert_allclose(quaternion.to_matrix(q), rotation, atol=limit)
    np.testing.assert_allclose(v, velocity, atol=limit * np.abs(velocity).max())
    np.testing.assert_allclose(p, position, atol=limit * np.abs(position).max())


@pytest.mark.slow
def test_a_sensor_on_the_ground_stays_there_for_a_day():
    """Axes at the centre of the Earth; in a day gravity and its reaction move by g t^2/2 = 4e10 m.

    Rounding of that is 8e-6 m.
    """
    rate, place = jnp.array([0.0, 0.0, 7.292115e-5]), jnp.array([3.9e6, 1e5, 5e6])
    attraction = -9.8 * place / jnp.linalg.norm(place)
    force = jnp.cross(rate, jnp.cross(rate, place)) - attraction
    gyro, accel = (
        jnp.tile(quaternion.rotate_inverse(START[0], x)[None], (2, 1)) for x in (rate, force)
    )
    motion = kinematics.preintegrate(gyro, accel, np.array([0.0, 86400.0]))
    q, v, p = motion.predict(START[0], jnp.zeros(3), place, attraction, rate)
    assert quaternion.distance(q, START[0]) < 1e-14
    np.testing.assert_allclose(v, 0.0, atol=2e-9)
    np.testing.assert_allclose(p, place, atol=5e-5, rtol=0.0)


def test_a_rate_of_zero_changes_no_bit():
    motion = motion_of(*recording())
    for x, y in zip(
        motion.predict(*START, GRAVITY, jnp.zeros(3)), motion.predict(*START, GRAVITY), strict=True
    ):
        np.testing.assert_array_equal(x, y)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize(("dtype", "limit"), [(jnp.float32, 1e-4), (jnp.float64, 1e-13)])
def test_the_derivative_by_the_rate_is_right_at_zero(mode, dtype, limit):
    """To first order in w: p turns by -w T, the start moves by w × p0, gravity turns with the axes.

    So dp/dw = T hat(p - p0) - T^3/6 hat(g) and dv/dw = T hat(v) + hat(p - p0) - T^2/2 hat(g).
    """
    gyro, accel, times = recording(dtype=dtype)
    start, gravity = [x.astype(dtype) for x in START], jnp.asarray(GRAVITY, dtype)
    motion, t, hat = motion_of(gyro, accel, times), float(times[-1] - times[0]), jq.so3.hat
    q, v, p = motion.predict(*start, gravity)

    def end(rate):
        attitude, *others = motion.predict(*start, gravity, rate)
        turn = quaternion.log(quaternion.multiply(attitude, quaternion.conjugate(q)))
        return turn, *others

    got = jax.jit(mode(end))(jnp.zeros(3, dtype))
    wanted = (
        -t * np.eye(3),
        t * hat(v) + hat(p - start[2]) - t**2 / 2 * hat(gravity),
        t * hat(p - start[2]) - t**3 / 6 * hat(gravity),
    )
    for x, y in zip(got, wanted, strict=True):
        np.testing.assert_allclose(x, y, atol=limit * np.abs(y).max())


@pytest.mark.slow
def test_values_in_turning_axes_are_differentiable_by_all_that_they_depend_on():
    """Both modes beside differences: the start, gravity, the rate and the biases."""
    motion = motion_of(*recording())

    def end(vector, velocity, position, gravity, rate, *bias):
        changed, start = motion.with_bias(IMU(*bias)), (quaternion.exp(vector), velocity, position)
        moved = changed.predict(*start, gravity, rate)
        return moved, changed.residual(start, START, gravity, rate)

    zero = jnp.zeros(3)
    given = jnp.array([0.3, -0.5, 0.2]), *START[1:], jnp.asarray(GRAVITY), RATE, zero, zero
    jax.test_util.check_grads(jax.jit(end), given, order=1, atol=1e-7, rtol=1e-7, eps=1e-4)


def test_intervals_in_turning_axes_follow_one_another():
    """The end of the first is the start of the second, and of both it is that of their product."""
    gyro, accel, times = recording()
    run = lambda a, b: motion_of(gyro, accel, np.clip(times, times[a], times[b]))
    middle = predict(run(0, 5), *START, GRAVITY, RATE)
    got = predict(run(5, 11), *middle, GRAVITY, RATE)
    for x, y in zip(got, predict(run(0, 11), *START, GRAVITY, RATE), strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-14)


@pytest.mark.slow
def test_other_world_axes_give_the_same_end():
    change, motion = quaternion.exp(jnp.array([1.0, -0.4, 0.7])), motion_of(*recording())
    turned = [quaternion.rotate(change, x) for x in (*START[1:], jnp.asarray(GRAVITY), RATE)]
    got = predict(motion, quaternion.multiply(change, START[0]), *turned)
    q, v, p = predict(motion, *START, GRAVITY, RATE)
    np.testing.assert_allclose(got[0], quaternion.multiply(change, q), atol=1e-14)
    for x, y in zip(got[1:], (v, p), strict=True):
        np.testing.assert_allclose(x, quaternion.rotate(change, y), rtol=1e-13)


@pytest.mark.parametrize("rate", [pytest.param(None, marks=pytest.mark.slow), RATE])
def test_the_residual_is_the_error_of_the_motion_whatever_its_size(rate):
    """The true motion is (dq exp(a), dv + b, dp + c)."""
    motion = motion_of(*recording())
    a, b, c = np.array([[0.5, -0.8, 0.3], [2.0, 1.0, -3.0], [0.1, 5.0, 0.7]])
    true = dataclasses.replace(
        motion,
        dq=quaternion.multiply(motion.dq, quaternion.exp(a)),
        dv=motion.dv + b,
        dp=motion.dp + c,
    )
    got = residual(motion, START, predict(true, *START, GRAVITY, rate), GRAVITY, rate)
    np.testing.assert_allclose(got, np.concatenate([a, b, c]), atol=1e-13)


@pytest.mark.slow
def test_squared_errors_of_the_end_in_turning_axes_have_the_mean_nine():
    """Normalised by J C J^T, with the derivatives J that ``predict`` documents, and 20,000 runs.

    The mean of the squares has the standard error sqrt(18/n) = 0.03; 0.12 is allowed. Without the
    term of the rate in J it is 80.
    """
    n, (gyro, accel, times) = 20_000, recording()
    noise = IMU(jnp.full(3, 2e-4), jnp.array([1e-3, 2e-3, 3e-3]))
    motion = PROGRAM(gyro, accel, jnp.asarray(times), IMU(jnp.zeros(3), jnp.zeros(3)), noise)
    white = jax.random.normal(jax.random.key(2), (n, 2, 12, 3))
    spread = 1.0 / np.sqrt(np.append(np.diff(times), np.inf))[:, None]
    q, v, p = predict(motion, *START, GRAVITY, RATE)

    @jax.jit
    @jax.vmap
    def simulated(white):
        rows = (
            gyro + noise.gyro[None] * spread * white[0],
            accel + noise.accelerometer[None] * spread * white[1],
        )
        end = kinematics.preintegrate(*rows, times).predict(*START, GRAVITY, RATE)
        turn = quaternion.log(quaternion.multiply(quaternion.conjugate(q), end[0]))
        return jnp.concatenate([turn, end[1] - v, end[2] - p])

    to_world = np.asarray(quaternion.to_matrix(quaternion.exp(-RATE * motion.dt)))
    to_world = to_world @ np.asarray(quaternion.to_matrix(START[0]))
    one, zero, rate = np.eye(3), np.zeros((3, 3)), np.asarray(jq.so3.hat(RATE))
    by_errors = np.block(
        [[one, zero, zero], [zero, to_world, -rate @ to_world], [zero, zero, to_world]]
    )
    covariance = by_errors @ np.asarray(motion.covariance) @ by_errors.T
    drawn = np.asarray(simulated(white))
    nees = np.mean(np.sum(drawn * np.linalg.solve(covariance, drawn.T).T, axis=1))
    assert abs(nees - 9.0) < 0.12


@pytest.mark.slow
def test_empty_intervals_are_the_identity_whatever_their_samples():
    """The padding is NaN, in value and derivative; the recordings of a batch differ in length."""
    gyro, accel, times = recording()
    run = lambda *args: kinematics.preintegrate(*args, None, NOISE)
    pad = lambda x: jnp.insert(jnp.concatenate([x, jnp.full((3, 3), jnp.nan)]), 5, jnp.nan, axis=0)
    padded = jnp.asarray(np.insert(np.append(times, [times[-1]] * 3), 5, times[5]))
    wanted, slopes = (
        run(gyro, accel, times),
        jax.jit(jax.jacrev(lambda g: run(g, accel, times).dp))(gyro),
    )
    got = jax.jit(jax.vmap(run))(pad(gyro)[None], pad(accel)[None], padded[None])
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x[0], y, atol=2e-14)
    by_rate = jax.jit(jax.jacrev(lambda g: run(g, pad(accel), padded).dp))(pad(gyro))
    np.testing.assert_allclose(np.delete(by_rate, [5, 13, 14, 15], axis=1), slopes, atol=1e-13)
    np.testing.assert_array_equal(by_rate[:, [5, 13, 14, 15]], 0.0)


def test_the_covariance_is_that_of_simulated_noise():
    """60,000 runs: a variance has the standard error sqrt(2/n) = 0.6 %, and 2 % is 3.5 of it.

    Whitened errors have the covariance 1, with entries off by 1/sqrt(n) each; 5 of it are allowed.
    """
    n, (gyro, accel, times) = 60_000, recording()
    noise = IMU(2e-4, jnp.array([1e-3, 2e-3, 3e-3]))
    motion = motion_of(gyro, accel, times, noise=noise)
    white = jax.random.normal(jax.random.key(1), (n, 2, 11, 3))
    spread = 1.0 / np.sqrt(np.diff(times))[:, None]

    @jax.jit
    @jax.vmap
    def simulated(white):
        g = gyro[:-1] + noise.gyro * spread * white[0]
        a = accel[:-1] + noise.accelerometer[None] * spread * white[1]
        rows = jnp.concatenate([g, gyro[-1:]]), jnp.concatenate([a, accel[-1:]])
        return errors(motion, kinematics.preintegrate(*rows, times))

    drawn = np.asarray(simulated(white))
    np.testing.assert_allclose(np.mean(drawn**2, axis=0), np.diag(motion.covariance), rtol=0.02)
    whitened = np.linalg.solve(np.linalg.cholesky(motion.covariance), drawn.T)
    np.testing.assert_allclose(
        whitened @ whitened.T / n, np.eye(9), atol=5 * np.sqrt(2) / np.sqrt(n)
    )


@pytest.mark.slow
def test_the_covariance_is_of_degree_two_in_the_noise():
    """By Euler's theorem the derivatives times the densities sum up to 2 C, in both modes."""
    gyro, accel, times = recording()
    run = lambda *noise: kinematics.preintegrate(gyro, accel, times, None, IMU(*noise)).covariance
    noise = jnp.array([0.01, 0.02, 0.03]), jnp.array(0.1)
    for mode in (jax.jacfwd, jax.jacrev):
        by_gyro, by_accel = jax.jit(mode(run, (0, 1)))(*noise)
        total = np.asarray(by_gyro) @ np.asarray(noise[0]) + np.asarray(0.1 * by_accel)
        wanted = 2.0 * np.asarray(run(*noise))
        np.testing.assert_allclose(total, wanted, atol=1e-13 * np.abs(wanted).max())


@pytest.mark.needs("gtsam")
def test_values_and_covariance_are_those_of_gtsam_on_the_galilean_group():
    """Its errors stand as rotation, position, velocity, all in body axes at the end."""
    import gtsam

    n, dt, (gyro, accel, _) = 12, 0.05, recording()
    params = gtsam.PreintegrationParams.MakeSharedU(9.81)
    params.setGyroscopeCovariance(1e-4 * np.eye(3))
    params.setAccelerometerCovariance(1e-2 * np.eye(3))
    params.setIntegrationCovariance(np.zeros((3, 3)))
    peer = gtsam.PreintegratedImuMeasurementsG(params)
    for omega, force in zip(np.asarray(gyro[:-1]), np.asarray(accel[:-1]), strict=True):
        peer.integrateMeasurement(force, omega, dt)
    motion = motion_of(gyro, accel, dt * np.arange(n), noise=NOISE)
    rotation = np.asarray(quaternion.to_matrix(motion.dq))
    np.testing.assert_allclose(rotation, peer.deltaRij().matrix(), atol=2e-15)
    np.testing.assert_allclose(motion.dv, peer.deltaVij(), atol=1e-14)
    np.testing.assert_allclose(motion.dp, peer.deltaPij(), atol=1e-14)
    zero, one = np.zeros((3, 3)), np.eye(3)
    turned = np.block([[one, zero, zero], [zero, zero, rotation.T], [zero, rotation.T, zero]])
    wanted = peer.preintMeasCov()
    got = turned @ np.asarray(motion.covariance) @ turned.T
    np.testing.assert_allclose(got, wanted, atol=1e-13 * np.abs(wanted).max())
    params.setOmegaCoriolis(np.asarray(RATE))
    attitude = gtsam.Rot3(np.asarray(quaternion.to_matrix(START[0])))
    start = gtsam.NavState(attitude, np.asarray(START[2]), np.asarray(START[1]))
    end = peer.predict(start, gtsam.imuBias.ConstantBias())
    q, v, p = predict(motion, *START, jnp.array([0.0, 0.0, -9.81]), RATE)
    np.testing.assert_allclose(quaternion.to_matrix(q), end.attitude().matrix(), atol=1e-14)
    np.testing.assert_allclose(v, end.velocity(), rtol=1e-13)
    np.testing.assert_allclose(p, end.position(), rtol=1e-13)


def test_a_preintegrated_motion_is_shown_in_few_lines():
    text = repr(motion_of(*recording()))
    assert text.startswith("Preintegrated over 3.342 s\n  dq")
    assert len(text.splitlines()) <= 10

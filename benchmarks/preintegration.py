"""Preintegrate beside gtsam: differences as the samples come closer, and time a sample.

    pip install gtsam
    python benchmarks/preintegration.py [--recordings 1 1000] [--trials 3000]

gtsam (PyPI, 4.3) has four rules for a held sample. ``Tangent``, the default, adds to a rotation
vector theta: ``theta += dexpinv(theta, omega) dt``, ``p += v dt + R f dt^2/2``, ``v += R f dt``,
R at the start of the interval; ``Manifold`` and ``LieGroup`` take ``R exp(omega dt)`` in place of
the first; ``G`` is exact, by the Galilean group.

The first table compares them with jaxquat, order 1, over one second of held samples of a smooth
motion, float64: the largest differences of rotation matrix, velocity and displacement, and of the
covariance relative to its largest entry, in the axes of ``G``. ``Tangent`` has the covariance of
theta instead, so that this difference stays.

The second has nanoseconds of processor time a sample, of 200 samples at 200 Hz, gtsam through its
Python interface, one call a sample, which takes longer than its C++.

The third repeats a trial of gtsam (borglab/gtsam, pull request 2771): a rocket climbs for 4 s on
the turning Earth, and the samples of 20 Hz have noise. It has the root mean squares of the errors
of position and velocity at the end, and the mean of the normalised squared error (NEES) of the nine
errors, with the Earth's rate and without it. For jaxquat the errors are those of
``Preintegrated.residual``, for gtsam the logarithms that its factors use, each with the covariance
from the same noisy samples. The constants and the seed are those of its notebook
``gtsam/navigation/doc/GalileanImuFactorNEES.ipynb``, in the order of the draws too; the true end is
integrated by SciPy from the equations of motion in the turning frame.
"""

import argparse
import time

import gtsam  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp
import numpy as np
import scipy

import jaxquat as jq
from jaxquat import kinematics

jax.config.update("jax_enable_x64", True)

RULES = ("Tangent", "Manifold", "LieGroup", "G")
GYRO, ACCEL = 1e-3, 1e-2  # rad/s/sqrt(Hz), m/s^2/sqrt(Hz)


def motion(n):
    """Return rates, specific forces and times of n intervals of a second."""
    t = np.arange(n + 1) / n
    gyro = np.stack([np.sin(3 * t), np.cos(5 * t), 1.0 + t], axis=1)
    accel = np.stack([np.cos(4 * t), 2 * np.sin(2 * t), 9.8 + np.sin(7 * t)], axis=1)
    return gyro, accel, t


def by_gtsam(rule, gyro, accel, dt, noise=(GYRO, ACCEL), gravity=(0, 0, -9.81), earth_rate=None):
    """Return gtsam's measurements by this rule."""
    params = gtsam.PreintegrationParams(np.array(gravity, float))
    for density, setter in zip(
        noise, (params.setGyroscopeCovariance, params.setAccelerometerCovariance), strict=True
    ):
        setter(np.diag(np.broadcast_to(density, 3) ** 2))
    params.setIntegrationCovariance(np.zeros((3, 3)))
    if earth_rate is not None:
        params.setOmegaCoriolis(earth_rate)
    measurements = getattr(gtsam, f"PreintegratedImuMeasurements{rule}")(params)
    for omega, force in zip(gyro, accel, strict=True):
        measurements.integrateMeasurement(force, omega, dt)
    return measurements


def accuracy():
    """Print the first table."""
    noise = kinematics.Imu(GYRO, ACCEL)
    print("| rule | interval [s] | rotation | velocity [m/s] | displacement [m] | covariance |")
    print("|---|---|---|---|---|---|")
    for rule in RULES:
        for n in (10, 100, 1000):
            gyro, accel, t = motion(n)
            rates, forces = jnp.asarray(gyro), jnp.asarray(accel)
            ours = kinematics.preintegrate(rates, forces, t, None, noise)
            theirs = by_gtsam(rule, gyro[:-1], accel[:-1], 1 / n)
            rotation = np.asarray(jq.quaternion.to_matrix(ours.dq))
            zero, one = np.zeros((3, 3)), np.eye(3)
            turned = np.block(
                [[one, zero, zero], [zero, zero, rotation.T], [zero, rotation.T, zero]]
            )
            covariance = turned @ np.asarray(ours.covariance) @ turned.T
            wanted = theirs.preintMeasCov()
            differences = (
                rotation - theirs.deltaRij().matrix(),
                ours.dv - theirs.deltaVij(),
                ours.dp - theirs.deltaPij(),
                (covariance - wanted) / np.abs(wanted).max(),
            )
            cells = " | ".join(f"{np.abs(x).max():.1e}" for x in differences)
            print(f"| {rule} | {1 / n:g} | {cells} |")


def timed(run, repeats=5):
    """Return the least processor time of a call, of all threads together [s]."""
    run()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return min(times)


def speed(recordings):
    """Print the second table."""
    gyro, accel, t = motion(200)
    theirs = timed(lambda: by_gtsam("G", gyro[:-1], accel[:-1], 0.005)) / 200
    noise = kinematics.Imu(GYRO, ACCEL)

    def whole(gyro, accel):
        return kinematics.preintegrate(gyro, accel, t, None, noise)

    def values(gyro, accel):
        result = kinematics.preintegrate(gyro, accel, t)
        return result.dq, result.dv, result.dp

    print(f"gtsam, G, from Python: {1e9 * theirs:.0f} ns a sample\n")
    print("| recordings | precision | all [ns] | ratio to gtsam | values alone [ns] |")
    print("|---|---|---|---|---|")
    for n in recordings:
        for dtype in (jnp.float32, jnp.float64):
            batch = [jnp.tile(jnp.asarray(x, dtype)[None], (n, 1, 1)) for x in (gyro, accel)]
            both = [jax.jit(jax.vmap(function)) for function in (whole, values)]
            seconds = [
                timed(lambda f=f, b=batch: jax.block_until_ready(f(*b))) / n / 200 for f in both
            ]
            cells = f"{1e9 * seconds[0]:.0f} | {seconds[0] / theirs:.2f} | {1e9 * seconds[1]:.0f}"
            print(f"| {n} | {dtype.__name__} | {cells} |")


def flown(omega, force, gravity, earth_rate, duration):
    """Return rotation, velocity and position after a start from rest, in the turning frame."""

    def slope(t, state):
        rotation, velocity, position = state[:9].reshape(3, 3), state[9:12], state[12:]
        turned = rotation @ jq.so3.hat(omega) - jq.so3.hat(earth_rate) @ rotation
        absolute = 2 * velocity + np.cross(earth_rate, position)
        push = rotation @ force + gravity - np.cross(earth_rate, absolute)
        return np.concatenate([turned.ravel(), push, velocity])

    start = np.concatenate([np.eye(3).ravel(), np.zeros(6)])
    solved = scipy.integrate.solve_ivp(
        slope, (0, duration), start, method="DOP853", rtol=1e-13, atol=1e-13
    )
    end = solved.y[:, -1]
    return end[:9].reshape(3, 3), end[9:12], end[12:]


def ascent(trials):
    """Print the third table."""
    standard, latitude = 9.80665, np.deg2rad(32.99)
    earth_rate = 7.292115e-5 * np.array([0.0, np.cos(latitude), np.sin(latitude)])
    gravity, force = np.array([0.0, 0.0, -standard]), np.array([0.0, 0.0, 12 * standard])
    omega = earth_rate + np.array([0.0, -0.04, 0.0])
    steps, dt = 80, 0.05
    noise = kinematics.Imu(np.array([5e-4, 7.5e-4, 1e-3]), np.array([0.03, 0.04, 0.05]))
    white = np.random.default_rng(2232).normal(size=(trials, 2, steps, 3)) / np.sqrt(dt)
    accel, gyro = force + noise.accelerometer * white[:, 0], omega + noise.gyro * white[:, 1]
    rotation, velocity, position = flown(omega, force, gravity, earth_rate, steps * dt)
    print(f"true end: {position[2]:.1f} m high, {np.linalg.norm(velocity):.1f} m/s")
    bounds = scipy.stats.chi2.ppf([0.025, 0.975], 9 * trials) / trials
    print(f"95 % of means of {trials} squared errors: {bounds[0]:.3f} to {bounds[1]:.3f}\n")
    print("| rule | Earth's rate | position [m] | velocity [m/s] | NEES |")
    print("|---|---|---|---|---|")

    def row(rule, is_given, positions, velocities, errors, covariances):
        nees = np.mean(np.sum(errors * np.linalg.solve(covariances, errors[..., None])[..., 0], -1))
        misses = positions - position, velocities - velocity
        cells = " | ".join(f"{np.sqrt(np.mean(np.sum(x**2, -1))):.4f}" for x in misses)
        print(f"| {rule} | {'given' if is_given else 'left out'} | {cells} | {nees:.3f} |")

    start = jnp.eye(4)[0], jnp.zeros(3), jnp.zeros(3)
    end = jq.quaternion.from_matrix(rotation), jnp.asarray(velocity), jnp.asarray(position)
    state, nav = gtsam.NavState(gtsam.Rot3(rotation), position, velocity), gtsam.NavState()
    bias = gtsam.imuBias.ConstantBias()
    for rate in (None, earth_rate):

        def whole(gyro, accel, rate=rate):
            gyro, accel = (jnp.concatenate([x, x[-1:]]) for x in (gyro, accel))
            times = dt * np.arange(steps + 1)
            measured = kinematics.preintegrate(gyro, accel, times, None, noise)
            _, v, p = measured.predict(*start, gravity, rate)
            return p, v, measured.residual(start, end, gravity, rate), measured.covariance

        row("jaxquat", rate is not None, *(np.asarray(x) for x in jax.vmap(whole)(gyro, accel)))
        for rule in RULES:
            results = []
            for omegas, forces in zip(gyro, accel, strict=True):
                peer = by_gtsam(rule, omegas, forces, dt, noise, gravity, rate)
                at = peer.predict(nav, bias)
                errors, covariance = state.logmap(at), peer.residualCovariance()
                results.append((at.position(), at.velocity(), errors, covariance))
            row(
                f"gtsam, {rule}",
                rate is not None,
                *(np.array(x) for x in zip(*results, strict=True)),
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", type=int, nargs="+", default=[1, 1000])
    parser.add_argument("--trials", type=int, default=3000)
    options = parser.parse_args()
    accuracy()
    print()
    ascent(options.trials)
    print()
    speed(options.recordings)

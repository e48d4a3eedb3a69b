"""Preintegrate beside gtsam: differences as the samples come closer, and time a sample.

    pip install gtsam
    python benchmarks/preintegration.py [--recordings 1 1000]

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
"""

import argparse
import time

import gtsam  # pyright: ignore[reportMissingImports]
import jax
import jax.numpy as jnp
import numpy as np

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


def by_gtsam(rule, gyro, accel, dt):
    """Return gtsam's measurements by this rule."""
    params = gtsam.PreintegrationParams.MakeSharedU(9.81)
    params.setGyroscopeCovariance(GYRO**2 * np.eye(3))
    params.setAccelerometerCovariance(ACCEL**2 * np.eye(3))
    params.setIntegrationCovariance(np.zeros((3, 3)))
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", type=int, nargs="+", default=[1, 1000])
    options = parser.parse_args()
    accuracy()
    print()
    speed(options.recordings)

"""Calibrate a real gyroscope on one recording and test the calibration on another.

    python examples/calibrate_gyro.py TRAIN.csv.gz TEST.csv.gz

Twelve numbers (bias, scale, misalignment) and the time offset of the gyroscope are fitted to TRAIN
through the Lie-group integrator. TRAIN's movement is cut into windows of 10 s. Each window is
integrated from its own start, and the attitudes are compared with the optical reference. A prior
keeps all parameters near an ideal gyroscope with the bias of TRAIN's first rest.

The program prints the calibration, and the attitude error over the first 60 s of TEST's movement.
The fit does not use TEST; the prediction uses only its first attitude. The picture is
calibrate_gyro.png.

The files have the same columns as in gyro_attitude.py. Recordings: BROAD, D. Laidig et al., Data
6(7), 2021, doi 10.3390/data6070072 (CC BY 4.0), trials 07 (fast rotation) and 02 (slow rotation),
converted to these columns.

On them the error falls from 2.07 to 0.74 degrees (trained on 07, tested on 02) and from 2.89 to
1.00 (the other way round). These effects limit the accuracy:

- Two minutes determine the bias to 0.01 or 0.02 degrees/s. The fitted biases of the two recordings
  differ by as much, which gives an error of a degree in 60 s.
- The bias in motion differs from the bias at rest by 0.05 to 0.1 degrees/s, in the same way in
  both recordings, while the rest phases before and after the movements agree to 0.005.
- The fitted scales differ by 0.3 %, two of their standard errors. Slow motion hardly determines
  them, fast motion does.
- The reference is accurate to 0.2 or 0.3 degrees within a window, including errors of the model.

The time offset, 4.1 ms, is the same in both.
"""

import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

import jaxquat as jq
from jaxquat import plot

matplotlib.use("Agg")
import matplotlib.pyplot as plt

WINDOW = 10.0  # s
SPACING = 0.07  # s between two comparisons with the reference
# Standard deviation of one comparison [rad]. The errors within a window are not independent, so
# this is more than their spread.
SIGMA = np.deg2rad(1.0)
HORIZON = 60.0  # s of TEST
COLOURS = {"raw": "0.45", "static": plot.COLOURS[1], "calibrated": plot.COLOURS[0]}


class Calibration(NamedTuple):
    """The fitted parameters. The first three are those of ``jq.gyro.Gyro``."""

    bias: ArrayLike  # (3,) [rad/s]
    scale: ArrayLike  # (3,)
    misalignment: ArrayLike  # (6,) [rad]
    offset: ArrayLike  # () [s]: the gyroscope's reading at t is the rate at t - offset


# Standard deviations of the prior.
SPREAD = Calibration(np.full(3, 2e-3), np.full(3, 5e-3), np.full(6, 5e-3), np.array(1e-2))


# The model: from measured rates to attitude errors.


def corrected(calibration, gyro):
    """Return the true rates (N, 3) for the measured rates (N, 3)."""
    zero = jnp.zeros(())
    return jq.gyro.correct(jq.gyro.Gyro(*calibration[:3], noise=zero, bias_random_walk=zero), gyro)


def attitudes(calibration, gyro, dt):
    """Return attitudes (N, 4) relative to the first, at the times of N measured rates (N, 3)."""
    omega = corrected(calibration, gyro)
    q = jq.kinematics.integrate(jnp.array([1.0, 0.0, 0.0, 0.0]), omega, dt)
    return jq.quaternion.multiply(q, jq.quaternion.exp(calibration.offset * omega))


def errors(calibration, gyro, q, dt):
    """Return the error (N, 3) [rad], world axes, of the integrated gyroscope.

    It is relative to the first known attitude of the reference ``q`` (N, 4). Both are NaN where the
    reference was lost.
    """
    seen = ~jnp.isnan(q[:, 0])
    q = jnp.where(seen[:, None], q, jnp.array([1.0, 0.0, 0.0, 0.0]))
    every = (len(gyro) - 1) // (len(q) - 1)
    predicted = attitudes(calibration, gyro, dt)[::every]
    turn = jq.quaternion.multiply(q, jq.quaternion.conjugate(predicted))
    first = turn[jnp.argmax(seen)]
    error = jq.quaternion.log(jq.quaternion.multiply(turn, jq.quaternion.conjugate(first)))
    return jnp.where(seen[:, None], error, jnp.nan)


def deviations(calibration, gyro, q, dt):
    """Return the errors (K, M, 3) [rad] in K windows, without each window's mean (free start).

    They are zero where the reference was lost.
    """
    error = jax.vmap(errors, (None, 0, 0, None))(calibration, gyro, q, dt)
    seen = ~jnp.isnan(error)
    error = jnp.where(seen, error, 0.0)
    count = jnp.sum(seen, axis=1, keepdims=True, dtype=error.dtype)
    mean = jnp.sum(error, axis=1, keepdims=True) / jnp.maximum(count, 1.0)
    return jnp.where(seen, error - mean, 0.0)


# The data: phases and windows of a recording.


def windows(recording, dt):
    """Return the windows of the movement.

    They are measured rates (K, N, 3), and reference attitudes (K, M, 4) at a subset of their times.
    """
    every = max(1, round(SPACING / dt))
    length = every * round(WINDOW / dt / every)
    first, last = movement(recording)
    starts = range(first, last - length, length)
    if not starts:
        raise ValueError(
            f"wanted a movement phase longer than a window of {WINDOW:g} s,"
            f" got {(last - first) * dt:.1f} s"
        )
    gyro = np.stack([recording.gyro[k : k + length + 1] for k in starts])
    return gyro, np.stack([recording.q[k : k + length + 1 : every] for k in starts])


def movement(recording):
    """Return the range of the samples in the movement phase; the first has a reference attitude."""
    inside = np.flatnonzero(recording.movement & ~np.isnan(recording.q[:, 0]))
    if not inside.size:
        raise ValueError("no sample of the movement phase has a reference attitude")
    return int(inside[0]), int(np.flatnonzero(recording.movement)[-1]) + 1


def at_rest(recording):
    """Return an ideal gyroscope with the mean rate of the first rest as its bias."""
    rests = jq.recordings.stationary_intervals(recording)
    if not len(rests):
        raise ValueError("no rest, so no bias to start from")
    bias = jnp.asarray(recording.gyro[slice(*rests[0])].mean(axis=0))
    return Calibration(bias, jnp.zeros(3), jnp.zeros(6), jnp.zeros(()))


# The fit.


def calibrate(recording, iterations=5):
    """Fit the calibration to windows and prior, with the Gauss-Newton method.

    Returns:
        The calibration and its standard errors.
    """
    dt = recording.spacing()
    static, (gyro, q) = at_rest(recording), windows(recording, dt)

    def scaled(z):
        return jax.tree.map(lambda centre, spread, x: centre + spread * x, static, SPREAD, z)

    def residuals(z):
        """Return all residuals in units of their standard deviations.

        Beyond one, an error counts by its size and not by its square (Huber).
        """
        error = deviations(scaled(z), gyro, q, dt) / SIGMA
        size = jnp.sqrt(jnp.maximum(jnp.sum(error**2, axis=-1, keepdims=True), 1.0))
        size = jax.lax.stop_gradient(size)
        return jnp.concatenate([jnp.ravel(error / jnp.sqrt(size)), *map(jnp.ravel, z)])

    flat, unravel = ravel_pytree(jax.tree.map(jnp.zeros_like, static))

    def of_flat(x):
        return residuals(unravel(x))

    linearized = jax.jit(lambda x: (of_flat(x), jax.jacfwd(of_flat)(x)))
    for _ in range(iterations):
        residual, jacobian = linearized(flat)
        flat = flat - jnp.linalg.lstsq(jacobian, residual)[0]
    spread = jq.fit_covariance(residuals, unravel(flat), sigma=1.0).standard_errors
    return scaled(unravel(flat)), jax.tree.map(jnp.multiply, spread, SPREAD)


# What is printed and drawn.


def degrees(calibration, gyro, q, dt):
    """Return the error angle (N,) [deg] of the integrated gyroscope, NaN without a reference."""
    error = np.asarray(jax.jit(errors)(calibration, gyro, q, dt))
    return np.rad2deg(np.linalg.norm(error, axis=-1))


def rms(values):
    """Return the root mean square of the values that are not NaN."""
    return float(np.sqrt(np.nanmean(np.square(values))))


def print_calibration(calibration, static, error):
    """Print the calibration, its standard errors, and the change of the bias since rest."""
    rows = (
        ("bias", "deg/s", np.rad2deg, 4),
        ("scale", "%", lambda x: 100.0 * x, 3),
        ("misalignment", "deg", np.rad2deg, 3),
    )
    for (name, unit, convert, digits), *values in zip(
        rows, calibration[:3], static[:3], error[:3], strict=True
    ):
        value, start, spread = (convert(np.asarray(x)) for x in values)
        lines = {name: value, f"{name} - rest": value - start, f"{name} +-": spread}
        if name != "bias":
            del lines[f"{name} - rest"]
        for label, x in lines.items():
            numbers = " ".join(f"{number:8.{digits}f}" for number in x)
            print(f"{label:20s} [{unit:5s}] {numbers}")
    offset, spread = 1e3 * calibration.offset, 1e3 * error.offset
    print(f"time offset          [ms   ] {offset:8.3f} +- {spread:.3f}")
    drift = np.rad2deg(np.linalg.norm(error.bias)) * HORIZON
    print(f"\none standard error of the bias alone makes {drift:.2f} deg in {HORIZON:g} s")


def print_errors(t, curves):
    """Print the attitude errors at some times, and their root mean squares."""
    times = [s for s in (10, 20, 30, 40, 50, 60) if s <= t[-1] + t[1]]
    print(f"{'after [s]':12s}" + "".join(f"{s:8d}" for s in times) + "     rms")
    for name, values in curves.items():
        seen = np.flatnonzero(~np.isnan(values))
        at = [values[seen[np.argmin(np.abs(t[seen] - s))]] for s in times]
        print(f"{name:12s}" + "".join(f"{x:8.2f}" for x in at) + f"{rms(values):8.2f}")


def draw(t, curves, within, file):
    """Draw TEST's error against time, and the root-mean-square error within TRAIN's windows."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.6), layout="constrained")
    for name, values in curves.items():
        label = f"{name}: rms {rms(values):.2f} deg"
        left.plot(t, values, label=label, color=COLOURS[name], linewidth=1.0)
    left.set(xlabel="time since the start of the movement [s]", ylabel="attitude error [deg]")
    left.set(xlim=(0, t[-1]), ylim=(0, None), title="On TEST, in one piece")
    for name, values in within.items():
        right.plot(np.linspace(0, WINDOW, len(values)), values, label=name, color=COLOURS[name])
    right.set(xlabel="time within the window [s]", ylabel="rms attitude error [deg]")
    right.set(xlim=(0, WINDOW), ylim=(0, None), title="On TRAIN, in windows with free starts")
    left.legend()
    right.legend()
    figure.savefig(file, dpi=150)


# The program.


def read(path):
    """Return a recording with a usable movement phase; exit with one line otherwise."""
    try:
        recording = jq.recordings.read(path)
        if not {"gyro", "q", "movement"} <= {*recording.names}:
            raise ValueError(f"wanted gyro, q and movement, got {', '.join(recording.names)}")
        recording.spacing()
        movement(recording)
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: {error}" if path not in str(error) else str(error))
    return recording


def errors_within(calibrations, gyro, q, dt):
    """Return the root-mean-square error [deg] of each calibration against time in the windows."""
    within = {}
    for name, calibration in calibrations.items():
        size = np.linalg.norm(jax.jit(deviations)(calibration, gyro, q, dt), axis=-1)
        within[name] = np.rad2deg(np.sqrt(np.mean(size**2, axis=0)))
        print(f"rms within TRAIN's windows, {name}: {rms(within[name]):.3f} deg")
    return within


def judge(calibrations, test):
    """Return times [s] and each calibration's attitude error [deg], integrated in one piece."""
    dt = test.spacing()
    first, last = movement(test)
    last = min(last, first + round(HORIZON / dt) + 1)
    t = test.t[first:last] - test.t[first]
    if t[-1] < HORIZON - 1.0:
        print(f"TEST's movement is {t[-1]:.1f} s long: judged over that")
    gyro, q = test.gyro[first:last], test.q[first:last]
    curves = {name: degrees(one, gyro, q, dt) for name, one in calibrations.items()}
    return t, curves


def main():
    """Read both recordings, calibrate on the first, test on the second."""
    if len(sys.argv) != 3:
        sys.exit(
            "wanted two recordings: python examples/calibrate_gyro.py TRAIN.csv.gz TEST.csv.gz"
        )
    train, test = map(read, sys.argv[1:])
    try:
        static, (gyro, q) = at_rest(train), windows(train, train.spacing())
    except ValueError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
    calibration, error = calibrate(train)
    print(f"TRAIN {sys.argv[1]}: {len(q)} windows of {WINDOW:g} s\n")
    print_calibration(calibration, static, error)
    fitted = {"static": static, "calibrated": calibration}
    within = errors_within(fitted, gyro, q, train.spacing())

    raw = static._replace(bias=jnp.zeros(3))
    t, curves = judge({"raw": raw} | fitted, test)
    print(f"\nTEST {sys.argv[2]}: attitude error [deg]\n")
    print_errors(t, curves)
    draw(t, curves, within, "calibrate_gyro.png")
    print("\ndrawn to calibrate_gyro.png")
    print("rms_deg", *(f"{name}={rms(values):.3f}" for name, values in curves.items()))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()

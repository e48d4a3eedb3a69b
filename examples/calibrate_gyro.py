"""Calibrate a real gyroscope on one recording and see what that gains on another.

    python examples/calibrate_gyro.py TRAIN.csv.gz TEST.csv.gz

Bias, scale, misalignment (12 numbers) and the time offset of the gyroscope are fitted to TRAIN through the Lie-group integrator:
its movement is cut into windows of 10 s, each integrated from a start of its own, and the attitudes are compared with the optical
reference. A prior keeps everything near an ideal gyroscope with the bias of TRAIN's rest phase. Prints the calibration and the
attitude error over the first 60 s of TEST's movement, of which the fit sees nothing and the prediction the first attitude; draws
calibrate_gyro.png.

The columns of the files are those of gyro_attitude.py. Recordings: BROAD, D. Laidig et al., Data 6(7), 2021, doi
10.3390/data6070072 (CC BY 4.0), trials 07 (fast rotation) and 02 (slow rotation), converted to these columns.

What limits it on them, where the error falls from 2.07 to 0.74 degrees (07 to 02) and from 2.89 to 1.00 (02 to 07): two minutes
determine the bias to 0.01 or 0.02 degrees/s, and the biases found in the two recordings differ by as much, which makes a degree in
60 s. The bias in motion is not the bias at rest: it is off by 0.05 to 0.1 degrees/s, the same way in both, while the rest phases
before and after the movements agree to 0.005. The scales differ by 0.3 %, two of their standard errors: fast motion shows them,
slow motion hardly. The reference is good to 0.2 or 0.3 degrees within a window, errors of the model included. The time offset,
4.1 ms, is the same in both.
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

matplotlib.use("Agg")
import matplotlib.pyplot as plt

WINDOW = 10.0  # s
SPACING = 0.07  # s between two comparisons with the reference
SIGMA = np.deg2rad(
    1.0
)  # of one comparison: the errors within a window are no independent draws, so more than their spread
HORIZON = 60.0  # s of TEST


class Calibration(NamedTuple):
    """What is fitted. The first three are those of ``jq.gyro.Gyro``."""

    bias: ArrayLike  # (3,) [rad/s]
    scale: ArrayLike  # (3,)
    misalignment: ArrayLike  # (6,) [rad]
    offset: ArrayLike  # () what the gyroscope reports at t was the rate at t - offset [s]


SPREAD = Calibration(
    np.full(3, 2e-3), np.full(3, 5e-3), np.full(6, 5e-3), np.array(1e-2)
)  # of the prior


def corrected(calibration, gyro):
    """Rates (N, 3) from measured ones."""
    zero = jnp.zeros(())
    return jq.gyro.correct(jq.gyro.Gyro(*calibration[:3], noise=zero, walk=zero), gyro)


def attitudes(calibration, gyro, dt):
    """Attitudes (N, 4) relative to the first at the times of N measured rates (N, 3)."""
    omega = corrected(calibration, gyro)
    q = jq.kinematics.integrate(jnp.array([1.0, 0.0, 0.0, 0.0]), omega, dt)
    return jq.quaternion.multiply(q, jq.quaternion.exp(calibration.offset * omega))


def errors(calibration, gyro, q, dt):
    """Error (N, 3) [rad], world axes, of the integrated gyroscope against the reference since the first attitude seen.

    q (N, 4) is NaN where the reference was lost; so is the error.
    """
    seen = ~jnp.isnan(q[:, 0])
    q = jnp.where(seen[:, None], q, jnp.array([1.0, 0.0, 0.0, 0.0]))
    turn = jq.quaternion.multiply(
        q,
        jq.quaternion.conjugate(
            attitudes(calibration, gyro, dt)[:: (len(gyro) - 1) // (len(q) - 1)]
        ),
    )
    first = turn[jnp.argmax(seen)]
    return jnp.where(
        seen[:, None],
        jq.quaternion.log(jq.quaternion.multiply(turn, jq.quaternion.conjugate(first))),
        jnp.nan,
    )


def deviations(calibration, gyro, q, dt):
    """The errors (K, M, 3) [rad] in K windows, without the mean of each: its start is free. Zero where the reference was lost."""
    error = jax.vmap(errors, (None, 0, 0, None))(calibration, gyro, q, dt)
    seen = ~jnp.isnan(error)
    error = jnp.where(seen, error, 0.0)
    count = jnp.sum(seen, axis=1, keepdims=True, dtype=error.dtype)
    return jnp.where(
        seen, error - jnp.sum(error, axis=1, keepdims=True) / jnp.maximum(count, 1.0), 0.0
    )


def windows(recording, dt):
    """The movement in windows: measured rates (K, N, 3), and reference attitudes (K, M, 4) at some of their times."""
    every = max(1, round(SPACING / dt))
    length = every * round(WINDOW / dt / every)
    first, last = movement(recording)
    starts = range(first, last - length, length)
    if not starts:
        raise ValueError(
            f"wanted a movement phase longer than a window of {WINDOW:g} s, got {(last - first) * dt:.1f} s"
        )
    gyro = np.stack([recording.gyro[k : k + length + 1] for k in starts])
    return gyro, np.stack([recording.q[k : k + length + 1 : every] for k in starts])


def movement(recording):
    """First and last + 1 sample of the movement phase; the first has a reference attitude."""
    inside = np.flatnonzero(recording.movement & ~np.isnan(recording.q[:, 0]))
    if not inside.size:
        raise ValueError("no sample of the movement phase has a reference attitude")
    return int(inside[0]), int(np.flatnonzero(recording.movement)[-1]) + 1


def at_rest(recording):
    """An ideal gyroscope but for the mean of the rest phase before the movement."""
    rest = int(np.argmax(recording.movement))
    if rest == 0:
        raise ValueError("no rest phase before the movement, so no bias to start from")
    return Calibration(
        jnp.asarray(recording.gyro[:rest].mean(axis=0)), jnp.zeros(3), jnp.zeros(6), jnp.zeros(())
    )


def calibrate(recording, iterations=5):
    """The calibration and its standard errors, by Gauss and Newton's method on windows and prior."""
    dt = recording.spacing()
    static, (gyro, q) = at_rest(recording), windows(recording, dt)

    def scaled(z):
        return jax.tree.map(lambda centre, spread, x: centre + spread * x, static, SPREAD, z)

    def residuals(z):
        """All in units of their standard deviations; beyond one the error counts by its size, not its square (Huber)."""
        error = deviations(scaled(z), gyro, q, dt) / SIGMA
        size = jax.lax.stop_gradient(
            jnp.sqrt(jnp.maximum(jnp.sum(error**2, axis=-1, keepdims=True), 1.0))
        )
        return jnp.concatenate([jnp.ravel(error / jnp.sqrt(size)), *map(jnp.ravel, z)])

    flat, unravel = ravel_pytree(jax.tree.map(jnp.zeros_like, static))
    both = jax.jit(
        lambda x: (residuals(unravel(x)), jax.jacfwd(lambda x: residuals(unravel(x)))(x))
    )
    for _ in range(iterations):
        residual, jacobian = both(flat)
        flat = flat - jnp.linalg.lstsq(jacobian, residual)[0]
    errors = jq.fit_covariance(residuals, unravel(flat), sigma=1.0).standard_errors
    return scaled(unravel(flat)), jax.tree.map(jnp.multiply, errors, SPREAD)


def degrees(calibration, gyro, q, dt):
    """Error angle (N,) [deg] of the integrated gyroscope, NaN where the reference was lost."""
    return np.rad2deg(
        np.linalg.norm(np.asarray(jax.jit(errors)(calibration, gyro, q, dt)), axis=-1)
    )


def rms(values):
    """Root mean square of what is not NaN."""
    return float(np.sqrt(np.nanmean(np.square(values))))


def table(calibration, static, error):
    """Lines with the calibration, its standard errors and the change from the rest phase."""
    rows = (
        ("bias", "deg/s", np.rad2deg, 4),
        ("scale", "%", lambda x: 100.0 * x, 3),
        ("misalignment", "deg", np.rad2deg, 3),
    )
    for (name, unit, convert, digits), value, start, spread in zip(
        rows, calibration[:3], static[:3], error[:3], strict=True
    ):
        value, start, spread = (convert(np.asarray(x)) for x in (value, start, spread))
        for label, x in (("", value), (" - rest", value - start), (" +-", spread))[
            :: 1 if name == "bias" else 2
        ]:
            yield f"{name + label:20s} [{unit:5s}] " + " ".join(
                f"{number:8.{digits}f}" for number in x
            )
    yield f"time offset          [ms   ] {1e3 * calibration.offset:8.3f} +- {1e3 * error.offset:.3f}"


def draw(t, curves, train, path):
    """TEST's error against time, and the root-mean-square error within TRAIN's windows."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    colours = {"raw": "tab:grey", "static": "tab:orange", "calibrated": "tab:blue"}
    for name, values in curves.items():
        left.plot(
            t,
            values,
            label=f"{name}: rms {rms(values):.2f} deg",
            color=colours[name],
            linewidth=1.0,
        )
    left.set(
        xlabel="time since the start of the movement [s]",
        ylabel="attitude error [deg]",
        xlim=(0, t[-1]),
        ylim=(0, None),
    )
    left.set_title("On TEST, in one piece")
    for name, values in train.items():
        right.plot(np.linspace(0, WINDOW, len(values)), values, label=name, color=colours[name])
    right.set(
        xlabel="time within the window [s]",
        ylabel="rms attitude error [deg]",
        xlim=(0, WINDOW),
        ylim=(0, None),
    )
    right.set_title("On TRAIN, in windows with free starts")
    left.legend()
    right.legend()
    figure.savefig(path, dpi=120)


def main():
    """Read both, calibrate on the first, judge on the second."""
    if len(sys.argv) != 3:
        sys.exit(
            "wanted two recordings: python examples/calibrate_gyro.py TRAIN.csv.gz TEST.csv.gz"
        )
    recordings, spacings = [], []
    for path in sys.argv[1:]:
        try:
            recordings.append(jq.recordings.read(path))
            spacings.append(recordings[-1].spacing())
            movement(recordings[-1])
        except (OSError, ValueError) as error:
            sys.exit(f"{path}: {error}" if path not in str(error) else str(error))
    (train, test), (dt_train, dt) = recordings, spacings
    try:
        static, (gyro, q) = at_rest(train), windows(train, dt_train)
    except ValueError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
    calibration, error = calibrate(train)
    print(f"TRAIN {sys.argv[1]}: {len(q)} windows of {WINDOW:g} s\n")
    print("\n".join(table(calibration, static, error)))
    drift = np.rad2deg(np.linalg.norm(error.bias)) * HORIZON
    print(f"\none standard error of the bias alone makes {drift:.2f} deg in {HORIZON:g} s")

    within = {}
    for name, one in (("static", static), ("calibrated", calibration)):
        size = np.linalg.norm(jax.jit(deviations)(one, gyro, q, dt_train), axis=-1)
        within[name] = np.rad2deg(np.sqrt(np.mean(size**2, axis=0)))
        print(f"rms within TRAIN's windows, {name}: {rms(within[name]):.3f} deg")

    first, last = movement(test)
    last = min(last, first + round(HORIZON / dt) + 1)
    t = test.t[first:last] - test.t[first]
    if t[-1] < HORIZON - 1.0:
        print(f"TEST's movement is {t[-1]:.1f} s long: judged over that")
    raw = static._replace(bias=jnp.zeros(3))
    named = {"raw": raw, "static": static, "calibrated": calibration}
    curves = {
        name: degrees(one, test.gyro[first:last], test.q[first:last], dt)
        for name, one in named.items()
    }
    times = [s for s in (10, 20, 30, 40, 50, 60) if s <= t[-1] + dt]
    print(
        f"\nTEST {sys.argv[2]}: attitude error [deg]\n\n{'after [s]':12s}"
        + "".join(f"{s:8d}" for s in times)
        + "     rms"
    )
    for name, values in curves.items():
        seen = np.flatnonzero(~np.isnan(values))
        at = [values[seen[np.argmin(np.abs(t[seen] - s))]] for s in times]
        print(f"{name:12s}" + "".join(f"{x:8.2f}" for x in at) + f"{rms(values):8.2f}")
    draw(t, curves, within, "calibrate_gyro.png")
    print(
        "\ndrawn to calibrate_gyro.png\nrms_deg "
        + " ".join(f"{name}={rms(values):.3f}" for name, values in curves.items())
    )


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()

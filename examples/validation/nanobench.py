"""Read the flights of NanoBench, and score attitudes by its formula.

S. I. Ullah and J. Baca, NanoBench, 2026 (arXiv 2603.09908): flights of a Crazyflie 2.1 with motion
capture, resampled at 100 Hz. What the files need:

- ``roll``, ``pitch`` and ``yaw`` of the motion capture are in radians, those of the onboard
  estimator in degrees, and the onboard pitch has the opposite sign. The published errors are
  differences of these numbers as they are.
- Where the radio lost the last packets, the onboard columns continue as straight lines to the end
  of the file, in one flight to 163 degrees. ``read`` drops these rows.
- Accelerations are in units of gravity, quaternions have the scalar last.
"""

import numpy as np

import jaxquat as jq

ANGLES = ("roll", "pitch", "yaw")
ONBOARD = tuple(f"att_stateEstimate_{angle}" for angle in ANGLES)
FLYING = 1000  # of 65535: a motor's command in flight
COLUMNS = {
    "t": "t",
    "gyro": tuple(f"imu_gyro_{axis}" for axis in "xyz"),
    "accelerometer": tuple(f"imu_acc_{axis}" for axis in "xyz"),
    "q": ("qw", "qx", "qy", "qz"),
    "onboard": tuple(f"att_stateEstimate_q{axis}" for axis in "wxyz"),
    "position": ("px", "py", "pz"),
    "velocity": ("vx", "vy", "vz"),
    "motors": tuple(f"motor_motor_m{i}" for i in range(1, 5)),
    "battery": "pwr_pm_vbat",
    "angles": ANGLES,
    "onboard angles": ONBOARD,
}


def read(file):
    """Return the recorded rows as a Recording; ``motors`` are commands of 0 to 65535."""
    log = everything(file)
    n = recorded(log.t, np.hstack([log.gyro, log.accelerometer, log["onboard"]]))
    channels = {name: values[:n] for name, values in log.channels.items()}
    gyro, q, force = (log[name][:n] for name in ("gyro", "q", "accelerometer"))
    return jq.recordings.Recording(log.t[:n], gyro, q, accelerometer=force, channels=channels)


def everything(file):
    """Return all rows as a Recording, also those that were not recorded."""
    return jq.recordings.read(file, COLUMNS, units={"accelerometer": "g"})


def recorded(t, signals):
    """Return how many rows there are before a signal (n, k) becomes a straight line to the end."""
    slopes = np.diff(signals, axis=0) / np.diff(t)[:, None]
    bends = np.abs(np.diff(slopes, axis=0)) > 1e-6 + 1e-3 * np.abs(slopes[1:])
    return int(min(np.flatnonzero(column)[-1] for column in bends.T)) + 2


def published(log):
    """Return the published error of the onboard angles: they are subtracted as they stand."""
    flying = log["motors"][:, 0] > FLYING
    return pooled(wrapped(log["onboard angles"] - log["angles"])[flying])


def angles_of(q):
    """Return roll, pitch and yaw (n, 3) [deg] of quaternions (n, 4)."""
    return np.rad2deg(np.asarray(jq.euler.from_quaternion(q, "ZYX"))[:, ::-1])


def scores(q, reference):
    """Return two errors [deg] of attitudes (n, 4) relative to those of the motion capture.

    The first is over all three angles, without the mean difference of the heading. The second is
    over roll and pitch, without their mean differences.
    """
    difference = wrapped(angles_of(q) - angles_of(reference))
    middle = difference.mean(axis=0)
    return pooled(difference - [0.0, 0.0, middle[2]]), pooled((difference - middle)[:, :2])


def wrapped(degrees):
    """Return angles in -180 to 180 degrees."""
    return (degrees + 180.0) % 360.0 - 180.0


def pooled(difference):
    """Return the root of the mean square over samples and angles, the formula of the benchmark."""
    return float(np.sqrt(np.mean(difference**2)))

"""Files of benchmarks: sequences of the EuRoC MAV dataset, and trajectories of TUM RGB-D."""

from __future__ import annotations

import os

from jaxquat._internal.checks import place
from jaxquat.recordings.recording import Recording, join
from jaxquat.recordings.tables import read

_IMU = {
    "t": "timestamp",
    "gyro": tuple(f"w_RS_S_{axis}" for axis in "xyz"),
    "accelerometer": tuple(f"a_RS_S_{axis}" for axis in "xyz"),
}
_TRUTH = {
    "t": "timestamp",
    "q": tuple(f"q_RS_{axis}" for axis in "wxyz"),
    "position": tuple(f"p_RS_R_{axis}" for axis in "xyz"),
    "velocity": tuple(f"v_RS_R_{axis}" for axis in "xyz"),
    "gyro_bias": tuple(f"b_w_RS_S_{axis}" for axis in "xyz"),
    "accelerometer_bias": tuple(f"b_a_RS_S_{axis}" for axis in "xyz"),
}


def read_euroc(path: str | os.PathLike[str]) -> Recording:
    """Read inertial sensor and ground truth of a sequence of the EuRoC MAV dataset.

    M. Burri et al., The EuRoC micro aerial vehicle datasets, IJRR 2016. The files are
    ``mav0/imu0/data.csv`` and, if it exists, ``mav0/state_groundtruth_estimate0/data.csv``, whose
    rows are joined as by ``join``. Stamps become seconds, to 2.4e-7 s. Axes stay as they are: the
    sensor's own, and a world whose z is up. Ground truth becomes q, sensor to world, and the
    channels ``position`` [m] and ``velocity`` [m/s] in world axes, ``gyro_bias`` [rad/s] and
    ``accelerometer_bias`` [m/s^2].

    Args:
        path: the folder of the sequence, which contains ``mav0``, or ``mav0`` itself.

    Raises:
        ValueError, TypeError: the argument; a malformed file, by line and column.
        OSError: a file cannot be opened.

    Examples:
        >>> recording = jq.recordings.read_euroc("V1_01_easy")  # doctest: +SKIP
    """
    folder = place("path", path)
    folder = folder / "mav0" if (folder / "mav0").is_dir() else folder
    imu = read(folder / "imu0" / "data.csv", _IMU, units={"t": "ns"})
    truth = folder / "state_groundtruth_estimate0" / "data.csv"
    return join(imu, read(truth, _TRUTH, units={"t": "ns"})) if truth.exists() else imu


def read_tum(path: str | os.PathLike[str]) -> Recording:
    """Read a trajectory of TUM RGB-D, the format of evo.

    Lines are ``timestamp tx ty tz qx qy qz qw``, comments begin with ``#``. The recording has q,
    body to world, scalar first, and the channel ``position``, (N, 3) [m]. Axes stay as they are.
    (https://cvg.cit.tum.de/data/datasets/rgbd-dataset/file_formats)

    ``np.savetxt(file, np.column_stack([r.t, r["position"], np.roll(r.q, -1, axis=1)]))`` writes the
    rows of a recording r, to the last bit.

    Raises:
        ValueError, TypeError: the argument; a malformed file, by line and column.
        OSError: the file cannot be opened.

    Examples:
        >>> recording = jq.recordings.read_tum("trajectory.txt")  # doctest: +SKIP
    """
    columns = {"t": 0, "position": (1, 2, 3), "q": (7, 4, 5, 6)}
    return read(path, columns, units={"t": "s"})

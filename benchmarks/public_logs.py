"""Attitudes of public logs by ``estimation.ahrs``, VQF and imufusion, against the logs' references.

    python benchmarks/public_logs.py FOLDER [--only TEXT] [--gyro 0.01]

docs/benchmarks/public_logs.txt is what it printed, and docs/validation.md has the medians.

FOLDER/OWNER/NAME is a clone of the repository OWNER/NAME of GitHub, for those of the table ``LOGS``
that are wanted, and rpng/open_vins for the truth of the sequence of EuRoC; the script downloads
nothing. It prints a row for each of these logs that is there. A log goes from its reader to
``estimation.imu_samples`` as it is, each sensor with its own stamps. VQF and imufusion need one row
for all sensors: accelerometer and magnetometer are held at the stamps of the gyroscope. VQF takes
one interval for the whole log, the median; imufusion takes each one. VQF has its default settings,
imufusion those that its README recommends, with its estimate of the bias.

Errors are root mean squares in degrees at the stamps of the gyroscope, where the reference is
interpolated, from 10 s after the start on. References have true north, their own declination, or no
north at all: the mean error of the heading is removed, and printed in brackets. A reference that is
the estimate of another filter has errors of its own. The last column is what ``ahrs`` claims of its
inclination and heading, if there is a magnetometer: without one no heading is known.
"""

import argparse
import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import imufusion
import jax
import jax.numpy as jnp
import numpy as np
import scipy.io
from scipy.spatial.transform import Rotation, Slerp
from vqf import VQF

import jaxquat as jq

START = 10.0  # s: errors count from here on
LONGEST = 0.5  # s: the reference is not interpolated over more
GRAVITY = 9.80665  # m/s^2


# Readers. Each returns a recording in axes x, y, z with z up, and q from body to world.


def px4(path):
    """Return a log of PX4; q is the estimate of its EKF."""
    return jq.recordings.read_ulog(path, frame="flu_enu")


def px4_simulated(path):
    """Return a log of PX4 in simulation; q is the true attitude."""
    columns = {**jq.recordings.PX4, "q": "vehicle_attitude_groundtruth.q"}
    return jq.recordings.read_ulog(path, columns, frame="flu_enu")


def ardupilot(trim=(0.0, 0.0), attitude="ATT"):
    """Return the reader of a log of ArduPilot, most of which end within a message.

    ``trim`` has the log's parameters AHRS_TRIM_X and AHRS_TRIM_Y [deg]: ArduPilot estimates the
    attitude of axes that are turned by them from those of the sensors.
    """
    columns = None  # a log may lack the magnetometer
    if attitude != "ATT":
        names = tuple(f"{attitude}.{name}" for name in ("Roll", "Pitch", "Yaw"))
        columns = {**jq.recordings.ARDUPILOT, "q": names}
    level = Rotation.from_rotvec((trim[0], -trim[1], 0.0), degrees=True)  # forward-left-up

    def read(path):
        log = jq.recordings.read_dataflash(path, columns, frame="flu_enu", skip_damaged=True)
        return with_reference(log, lambda q: q * level)

    return read


def repo_imu(path):
    """Return a recording of RepoIMU; q is relative to the first attitude."""
    rows = np.genfromtxt(path, delimiter=";", skip_header=2)  # below two lines of names
    rows = rows[np.unique(rows[:, 0], return_index=True)[1]]  # the first of rows with one stamp
    force, gyro, field = (
        rows[:, 5:8],
        rows[:, 8:11],
        rows[:, 11:14],
    )  # field: 1 is that of the place
    return aligned(
        jq.recordings.Recording(
            rows[:, 0], gyro=gyro, q=rows[:, 1:5], accelerometer=force, magnetometer=field
        )
    )


def justa(path):
    """Return the recording in a file of MATLAB; forces are in g, the field has norm 1."""
    data = scipy.io.loadmat(path, squeeze_me=True)
    q = data["qViconReference"]
    recording = jq.recordings.Recording(
        data["time"],
        data["Gyroscope"],
        q / np.linalg.norm(q, axis=1, keepdims=True),
        accelerometer=GRAVITY * data["Accelerometer"],
        magnetometer=data["Magnetometer"],
    )
    return aligned(recording)


def euroc(path):
    """Return a sequence of EuRoC, whose file has other lines below the last sample."""
    lines = path.read_text().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "imu0" / "data.csv"
        file.parent.mkdir()
        file.write_text("\n".join(lines[: lines.index(",,,,,,")]))
        imu = jq.recordings.read_euroc(folder)
    truth = path.parents[4] / "rpng/open_vins/ov_data/euroc_mav/MH_01_easy.txt"
    return jq.recordings.join(imu, jq.recordings.read_tum(truth))


def comma(path):
    """Return a segment of comma2k19; q is from body forward-right-down to ECEF.

    The magnetometer is left out: it does not have the axes of the others.
    """

    def load(name):
        return np.load(path / name)

    up = load("global_pose/frame_positions")[0]
    east = np.cross([0.0, 0.0, 1.0], up)
    enu = np.array([x / np.linalg.norm(x) for x in (east, np.cross(up, east), up)])
    to_enu, to_frd = Rotation.from_matrix(enu), Rotation.from_euler("x", 180, degrees=True)
    q = to_enu * rotation(load("global_pose/frame_orientations")) * to_frd
    sensors = {}
    for name in ("gyro", "accelerometer"):
        folder = f"processed_log/IMU/{name}"
        numbers = jq.frames.frd_flu(load(f"{folder}/value"))
        fields: dict[str, Any] = {name: np.asarray(numbers)}
        sensors[name] = jq.recordings.Recording(load(f"{folder}/t"), **fields)
    truth = jq.recordings.Recording(load("global_pose/frame_times"), q=quaternion(q))
    return jq.recordings.join(*sensors.values(), truth)


def iphone(path):
    """Return a recording of the app Sensor Logger on an iPhone, whose forces have the other sign.

    q is the attitude of Core Motion. The raw accelerometer is in g.
    """
    axes = ("x", "y", "z")
    files = {
        "Gyroscope": ({"gyro": axes}, {}),
        "AccelerometerUncalibrated": ({"accelerometer": axes}, {"accelerometer": "g"}),
        "Orientation": ({"q": ("qw", "qx", "qy", "qz")}, {}),
    }
    parts = []
    for name, (columns, units) in files.items():
        columns, units = {"t": "time", **columns}, {"t": "ns", **units}
        parts.append(jq.recordings.read(path / f"{name}.csv", columns, units=units))
    joined = jq.recordings.join(*parts)
    fields = {"gyro": joined.gyro, "q": joined.q, "accelerometer": -joined.accelerometer}
    return jq.recordings.Recording(joined.t, **fields)


def rotation(q):
    """Return SciPy's rotations of quaternions (N, 4), scalar first."""
    return Rotation.from_quat(np.roll(q, -1, axis=1))


def quaternion(rotations):
    """Return quaternions (N, 4), scalar first."""
    return np.roll(rotations.as_quat(), 1, axis=1)


def aligned(recording):
    """Return a recording whose reference has the axes of the sensor, and a world whose z is up.

    Optical systems have axes of their own. The turn between the bodies is the one that makes the
    rates of reference and gyroscope equal; up is the mean specific force.
    """
    seen = recording.rows_with("q").rows_with("gyro")
    q = rotation(seen.q)
    steps = np.diff(seen.t)[:, None]
    rates = (q[:-1].inv() * q[1:]).as_rotvec() / steps
    steady = np.linalg.norm(rates, axis=1) < 10.0  # rad/s: no jump of the reference
    mount = Rotation.align_vectors(rates[steady], seen.gyro[1:][steady])[0]
    up = np.mean((q * mount).apply(seen.accelerometer), axis=0)
    level = Rotation.align_vectors([[0.0, 0.0, 1.0]], up[None])[0]
    return with_reference(recording, lambda q: level * q * mount)


def with_reference(recording, turned):
    """Return a recording with a function of the rotations of its reference in their place."""
    q, present = recording.q.copy(), recording.present("q")
    q[present] = quaternion(turned(rotation(q[present])))
    return dataclasses.replace(recording, q=q)


class Log(NamedTuple):
    """A public log."""

    repository: str
    path: str
    read: Callable
    body: str
    reference: str


JOEY, JOEY_TRIM = "joeydouglas/dataflash_logs", (-0.65, 1.12)
PARSER = "yladzislay/dataflash-parser"
LOGS = (
    Log("PX4/pyulog", "test/sample.ulg", px4, "quadrotor", "EKF"),
    Log("AscendEngineering/UpgradeEnergy", "test.ulg", px4, "quadrotor", "EKF"),
    Log("Auterion/px4-ulog-rs", "tests/fixtures/esc_status_log.ulg", px4, "quadrotor", "EKF"),
    Log("PX4/pyulog", "test/sample_px4_events.ulg", px4, "simulated", "EKF"),
    Log(
        "Auterion/px4-ulog-rs",
        "tests/fixtures/6ba1abc7-b433-4029-b8f5-3b2bb12d3b6c.ulg",
        px4_simulated,
        "simulated",
        "truth",
    ),
    *(
        Log(repository, file, ardupilot(trim), "quadrotor", reference)
        for repository, file, trim, reference in (
            (JOEY, "2014-10-18 20-04-24.bin", JOEY_TRIM, "DCM"),
            (JOEY, "2014-10-18 20-44-05.bin", JOEY_TRIM, "DCM"),
            (JOEY, "2014-10-18 21-12-23.bin", JOEY_TRIM, "DCM"),
            (JOEY, "2014-10-18 21-19-07.bin", JOEY_TRIM, "DCM"),
            ("peterbarker/dataflash-logs", "1.BIN", (-0.48, 1.87), "DCM"),
            ("peterbarker/dataflash-logs", "3.BIN", (0.44, 2.61), "EKF"),
            (PARSER, "Tests/Logs/dataflash-sample-1.bin", (-0.76, 1.76), "EKF"),
            (PARSER, "Tests/Logs/dataflash-sample-2.bin", (-0.52, 1.74), "EKF"),
            (PARSER, "Tests/Logs/dataflash-sample-3.bin", (-2.28, -0.42), "EKF"),
            ("spark404/dataflashlog", "test/log.bin", (0.28, 2.15), "EKF"),
        )
    ),
    Log("peterbarker/dataflash-logs", "6.BIN", ardupilot(attitude="SIM"), "simulated", "truth"),
    *(
        Log("agnieszkaszczesna/RepoIMU", f"{name}.csv", repo_imu, body, "optical")
        for name, body in (
            ("TStick/TStick_Test02_Trial2", "wand"),
            ("TStick/TStick_Test07_Trial1", "wand"),
            ("TStick/TStick_Test09_Trial1", "wand"),
            ("TStick/TStick_Test11_Trial1", "wand"),
            ("Pendulum/Pendulum_Test02a_Trial1_Segment_1", "pendulum"),
            ("Pendulum/Pendulum_Test05_Trial1_Segment_3", "pendulum"),
            ("Pendulum/Pendulum_Test07_Trial1_Segment_1", "pendulum"),
        )
    ),
    Log("Josef4Sci/AHRS_Filter", "Datasets/Justa_dataset.mat", justa, "hand", "optical"),
    Log("kalebburnham/IMU-Research", "mav0/imu0/data.csv", euroc, "hexarotor", "fused"),
    Log(
        "commaai/comma2k19",
        "Example_1/b0c9d2329ad1606b|2018-08-02--08-34-47/40",
        comma,
        "phone in a car",
        "fused",
    ),
    Log("Lynch1206/5ARB0_1_1", "data/2022-09-16_11-15-46", iphone, "phone", "Core Motion"),
)


# The filters. Each returns attitudes at rows with the gyroscope, scalar first, and z up.


def by_ahrs(recording, settings):
    """Return the attitudes of ``estimation.ahrs`` in all rows with the gyroscope, and deviations.

    These are what it claims of inclination and heading, (N, 2) [deg].
    """
    samples = jq.estimation.imu_samples(recording)

    def claimed(estimate):
        to_world = jq.quaternion.to_matrix(estimate.q)
        x, y, z = jnp.diagonal(to_world @ estimate.covariance[:3, :3] @ to_world.T)
        return estimate.q, jnp.rad2deg(jnp.sqrt(jnp.stack([x + y, z])))

    filter_ = jq.estimation.ahrs(settings)
    saved = jax.jit(lambda samples: jq.estimation.run(filter_, samples, save=claimed)[1])(samples)
    return [np.asarray(x, np.float64)[recording.present("gyro")] for x in saved]


def by_vqf(held):
    """Return the attitudes of VQF from rows that have all sensors."""
    filter_ = VQF(float(np.median(np.diff(held.t))))
    sensors = [held.gyro, held.accelerometer]
    if held.magnetometer is None:
        return filter_.updateBatch(*map(np.ascontiguousarray, sensors))["quat6D"]
    return filter_.updateBatch(*map(np.ascontiguousarray, (*sensors, held.magnetometer)))["quat9D"]


def by_imufusion(held):
    """Return the attitudes of imufusion from rows that have all sensors."""
    intervals = np.diff(held.t, prepend=held.t[0])
    rate = 1.0 / float(np.median(np.diff(held.t)))
    bias, filter_ = imufusion.Bias(), imufusion.Ahrs()
    bias.set_settings(imufusion.BiasSettings(sample_rate=rate))
    filter_.set_settings(
        imufusion.AhrsSettings(
            sample_rate=rate,
            convention=imufusion.CONVENTION_NWU,
            gain=0.5,
            gyroscope_range=2000,
            acceleration_rejection=10,
            magnetic_rejection=10,
            rejection_timeout=5,
        )
    )
    gyro, force, q = np.rad2deg(held.gyro), held.accelerometer / GRAVITY, np.zeros((len(held.t), 4))
    for k, interval in enumerate(intervals):
        filter_.set_sample_period(interval)
        rates = bias.update(gyro[k])
        if held.magnetometer is None:
            filter_.update_no_magnetometer(rates, force[k])
        else:
            filter_.update(rates, force[k], held.magnetometer[k] * 1e6)
        q[k] = filter_.get_quaternion()
    return quaternion(Rotation.from_euler("z", 90, degrees=True) * rotation(q))


# The score.


def reference_at(recording, t):
    """Return the reference at these times, (N, 4), NaN where two of its samples are far apart."""
    known = recording.rows_with("q")
    after = np.clip(np.searchsorted(known.t, t), 1, len(known.t) - 1)
    inside = (t >= known.t[0]) & (t <= known.t[-1])
    inside &= known.t[after] - known.t[after - 1] <= LONGEST
    q = np.full((len(t), 4), np.nan)
    q[inside] = quaternion(Slerp(known.t, rotation(known.q))(t[inside]))
    return q


def errors(q, reference):
    """Return inclination and heading without its mean, root mean squares, and this mean [deg]."""
    error = quaternion(rotation(q) * rotation(reference).inv())
    w, x, y, z = error.T
    heading = 2.0 * np.arctan2(z, w)
    mean = np.angle(np.mean(np.exp(1j * heading)))
    turn = np.angle(np.exp(1j * (heading - mean)))
    inclination = 2.0 * np.arctan2(np.hypot(x, y), np.hypot(w, z))
    return np.rad2deg([np.sqrt(np.mean(inclination**2)), np.sqrt(np.mean(turn**2)), mean])


def rates_of(recording):
    """Return the rates of the sensors as text [Hz], their medians, "-" for none."""
    texts = []
    for name in ("gyro", "accelerometer", "magnetometer", "q"):
        if getattr(recording, name) is None:
            texts.append("-")
        else:
            texts.append(f"{1.0 / np.median(np.diff(recording.rows_with(name).t)):.3g}")
    return " / ".join(texts)


def score(recording, settings):
    """Return the errors of the three filters, (3, 3), see ``errors``, and those ahrs claims."""
    held = recording.hold("accelerometer")
    if recording.magnetometer is not None:
        held = held.hold("magnetometer").rows_with("magnetometer")
    held = held.rows_with("accelerometer").rows_with("gyro")
    gyro = recording.rows_with("gyro")
    reference = reference_at(recording, held.t)
    counts = ~np.isnan(reference[:, 0]) & (held.t > gyro.t[0] + START)
    own, deviations = (x[np.isin(gyro.t, held.t)] for x in by_ahrs(recording, settings))
    attitudes = own, by_vqf(held), by_imufusion(held)
    scores = np.array([errors(q[counts], reference[counts]) for q in attitudes])
    return scores, np.sqrt(np.mean(deviations[counts] ** 2, axis=0))


def printed(*cells):
    """Print the cells of a row."""
    print("|", " | ".join(cells), "|", flush=True)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description="Score three filters on public logs.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="a part of the names of the logs")
    gyro = jq.estimation.AhrsSettings().gyro
    parser.add_argument("--gyro", type=float, default=gyro, help="setting of ahrs [rad/s/sqrt(Hz)]")
    options = parser.parse_args()
    settings = jq.estimation.AhrsSettings(gyro=options.gyro)
    print("Rates: gyroscope / accelerometer / magnetometer / reference.")
    print("Errors: ahrs / VQF / imufusion [deg].\n")
    printed(
        "log", "body", "reference", "s", "rates [Hz]", "inclination", "heading (mean)", "claimed"
    )
    print("|" + 8 * "---|")
    scores = []
    for log in LOGS:
        path = options.folder / log.repository / log.path
        if options.only in str(path) and path.exists():
            recording = log.read(path)
            errors_of_all, (tilt, turn) = score(recording, settings)
            scores.append(errors_of_all)
            claims = f"{tilt:.1f} / {turn:.1f}" if recording.magnetometer is not None else "-"
            name = f"[{log.repository}](https://github.com/{log.repository}) {Path(log.path).stem}"
            length = f"{recording.t[-1] - recording.t[0]:.0f}"
            inclination = " / ".join(f"{one[0]:.2f}" for one in scores[-1])
            heading = " / ".join(f"{turn:.1f} ({mean:.0f})" for _, turn, mean in scores[-1])
            cells = log.body, log.reference, length, rates_of(recording), inclination, heading
            printed(name, *cells, claims)
    if len(scores) > 1:
        medians = np.median(scores, axis=0)
        inclination = " / ".join(f"{one[0]:.2f}" for one in medians)
        heading = " / ".join(f"{one[1]:.1f}" for one in medians)
        printed("median", "", "", "", "", inclination, heading, "")


if __name__ == "__main__":
    main()

"""The reader of NanoBench's flights, on a file that has what the real ones have."""

import numpy as np
import pytest

from examples.validation import nanobench
from jaxquat import quaternion

ROWS, LOST = 400, 150  # rows, and those at the end that the radio did not deliver
RATE, TILT = 0.3, 0.1  # rad/s about z, rad about x


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A body tilted about its x axis that turns about the vertical, an estimate 0.02 rad off."""
    t = 0.01 * np.arange(ROWS)
    yaw = RATE * t
    half = np.stack([np.cos(yaw / 2), 0 * t, 0 * t, np.sin(yaw / 2)], axis=1)

    def attitudes(roll):
        return np.asarray(quaternion.multiply(half, [[np.cos(roll / 2), np.sin(roll / 2), 0, 0]]))

    rng = np.random.default_rng(0)
    noise = 1e-3 * rng.normal(size=(ROWS, 6))
    columns = {"t": 1.7e9 + t, "motor_motor_m1": 0 * t + 50000.0}
    q, onboard = attitudes(TILT), attitudes(TILT + 0.02)
    onboard = onboard + 1e-9 * rng.normal(size=onboard.shape)  # a number with nine decimals
    onboard[-LOST:] = onboard[-LOST - 1] + 0.001 * np.arange(1, LOST + 1)[:, None]
    down = [0.0, np.sin(TILT), np.cos(TILT)]
    imu = np.hstack([RATE * np.tile(down, (ROWS, 1)), np.tile(down, (ROWS, 1))]) + noise
    imu[-LOST:] = imu[-LOST - 1] + np.arange(1, LOST + 1)[:, None] * [0.1, 0, 0, 0, 0, 0.05]
    angles = np.stack([0 * t + TILT, 0 * t, yaw], axis=1)
    estimate = np.rad2deg(angles + np.array([0.02, 0.0, 0.0])) * [1, -1, 1]
    groups = {
        nanobench.COLUMNS["gyro"]: imu[:, :3],
        nanobench.COLUMNS["accelerometer"]: imu[:, 3:],
        nanobench.COLUMNS["q"]: q,
        nanobench.COLUMNS["onboard"]: onboard,
        nanobench.ANGLES: angles,
        nanobench.ONBOARD: estimate,
    }
    for names, values in groups.items():
        columns |= dict(zip(names, values.T, strict=True))
    for names in (nanobench.COLUMNS["position"], nanobench.COLUMNS["velocity"]):
        columns |= dict.fromkeys(names, 0 * t)
    columns |= {f"motor_motor_m{i}": 0 * t + 50000.0 for i in (2, 3, 4)} | {
        "pwr_pm_vbat": 0 * t + 4
    }
    path = tmp_path_factory.mktemp("nanobench") / "flight.csv"
    table = np.stack(list(columns.values()), axis=1)
    np.savetxt(path, table, "%.9f", delimiter=",", header=",".join(columns), comments="")
    return path


def test_rows_after_the_last_packet_are_dropped(file):
    assert len(nanobench.everything(file).t) == ROWS
    assert len(nanobench.read(file).t) == ROWS - LOST


def test_units_and_axes_are_those_of_the_library(file):
    log = nanobench.read(file)
    force = 9.80665 * np.array([0.0, np.sin(TILT), np.cos(TILT)])
    np.testing.assert_allclose(log.accelerometer.mean(axis=0), force, atol=3e-3)
    np.testing.assert_allclose(log.gyro.mean(axis=0), RATE * force / 9.80665, atol=3e-4)
    up = quaternion.rotate_inverse(log.q, np.array([0.0, 0.0, 1.0]))
    np.testing.assert_allclose(up, np.tile(force / 9.80665, (len(up), 1)), atol=1e-6)


def test_scores_are_those_of_the_constant_error(file):
    """The roll is 0.02 rad too large: by a formula over three angles, and not in the tilt."""
    log = nanobench.read(file)
    whole, tilt = nanobench.scores(log["onboard"], log.q)
    assert whole == pytest.approx(np.rad2deg(0.02) / np.sqrt(3), rel=1e-5)
    assert tilt == pytest.approx(0.0, abs=1e-5)


def test_the_published_formula_subtracts_radians_from_degrees(file):
    """Its value is computed here by hand for a level body that only turns and has a roll."""
    yaw = RATE * 0.01 * np.arange(ROWS)
    off = np.stack([np.rad2deg(TILT + 0.02) - TILT + 0 * yaw, np.rad2deg(yaw) - yaw])
    expected = np.sqrt(np.sum(off**2) / (3 * ROWS))
    assert nanobench.published(nanobench.everything(file)) == pytest.approx(expected, rel=1e-6)

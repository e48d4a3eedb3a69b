"""Tests of the layout of EuRoC and of trajectories in the format of TUM."""

import numpy as np
import pytest

from jaxquat import recordings

IMU = "#timestamp [ns],w_RS_S_x [rad s^-1],w_RS_S_y [rad s^-1],w_RS_S_z [rad s^-1],"
IMU += "a_RS_S_x [m s^-2],a_RS_S_y [m s^-2],a_RS_S_z [m s^-2]"
TRUTH = "#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], q_RS_y [], "
TRUTH += "q_RS_z [], v_RS_R_x [m s^-1], v_RS_R_y [m s^-1], v_RS_R_z [m s^-1], "
TRUTH += "b_w_RS_S_x [rad s^-1], b_w_RS_S_y [rad s^-1], b_w_RS_S_z [rad s^-1], "
TRUTH += "b_a_RS_S_x [m s^-2], b_a_RS_S_y [m s^-2], b_a_RS_S_z [m s^-2]"
FIRST = 1403636579758555392  # ns, and the next ones are 5 ms apart, as in the dataset


def sequence(tmp_path, truth=True):
    stamps = [FIRST + 5_000_000 * k for k in range(3)]
    files = {"imu0": [IMU, *(f"{t},{k},1,-1,9.75,0,0" for k, t in enumerate(stamps))]}
    if truth:
        numbers = "1,2,3,0.8,0,0,-0.6,4,5,6,0.5,0.25,0.125,7,8,9"
        files["state_groundtruth_estimate0"] = [TRUTH, *(f"{t},{numbers}" for t in stamps[1:])]
    for name, lines in files.items():
        folder = tmp_path / "mav0" / name
        folder.mkdir(parents=True)
        (folder / "data.csv").write_text("\r\n".join([*lines, ""]))
    return tmp_path


def test_a_sequence_of_euroc_is_read_with_its_ground_truth(tmp_path):
    """Stamps of both files that are equal in nanoseconds are one row."""
    got = recordings.read_euroc(sequence(tmp_path))
    assert got.t[0] == FIRST * 1e-9
    np.testing.assert_allclose(np.diff(got.t), 0.005, rtol=0, atol=2.4e-7)
    np.testing.assert_array_equal(got.gyro, [[0, 1, -1], [1, 1, -1], [2, 1, -1]])
    np.testing.assert_array_equal(got.accelerometer, [[9.75, 0, 0]] * 3)
    np.testing.assert_array_equal(got.present("q"), [False, True, True])
    truth = got.rows_with("q")
    np.testing.assert_array_equal(truth.q[0], [0.8, 0, 0, -0.6])
    np.testing.assert_array_equal(truth["position"][0], [1, 2, 3])
    np.testing.assert_array_equal(truth["velocity"][0], [4, 5, 6])
    np.testing.assert_array_equal(truth["gyro_bias"][0], [0.5, 0.25, 0.125])
    np.testing.assert_array_equal(truth["accelerometer_bias"][1], [7, 8, 9])
    again = recordings.read_euroc(tmp_path / "mav0")
    np.testing.assert_array_equal(again.gyro, got.gyro)


def test_a_sequence_without_ground_truth_has_the_sensor_alone(tmp_path):
    got = recordings.read_euroc(sequence(tmp_path, truth=False))
    assert got.names == ("gyro", "accelerometer")
    with pytest.raises(FileNotFoundError):
        recordings.read_euroc(tmp_path / "nowhere")


def test_what_savetxt_writes_is_read_back_to_the_last_bit(tmp_path):
    rng, file = np.random.default_rng(2), tmp_path / "a.txt"
    q, position, t = rng.normal(size=(5, 4)), rng.normal(size=(5, 3)), 1.7e9 + np.arange(5) / 7
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    np.savetxt(file, np.column_stack([t, position, np.roll(q, -1, axis=1)]))
    got = recordings.read_tum(file)
    for one, two in ((got.t, t), (got.q, q), (got["position"], position)):
        np.testing.assert_array_equal(one, two)
    assert got.names == ("q", "position")


def test_a_trajectory_of_the_benchmark_is_read(tmp_path):
    lines = "# ground truth trajectory", "# timestamp tx ty tz qx qy qz qw"
    rows = "1305031098.6659 1.3563 0.6305 1.6380 0.6 0 0 0.8", "1305031098.6758 1 2 3 0 0 0 -1"
    (tmp_path / "a.txt").write_text("\n".join([*lines, *rows]))
    got = recordings.read_tum(tmp_path / "a.txt")
    np.testing.assert_array_equal(got.t, [1305031098.6659, 1305031098.6758])
    np.testing.assert_array_equal(got.q, [[0.8, 0.6, 0, 0], [-1, 0, 0, 0]])
    np.testing.assert_array_equal(got["position"][0], [1.3563, 0.6305, 1.6380])

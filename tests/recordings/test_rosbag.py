"""Tests of reading bags of ROS 1 and ROS 2 that are written here."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from jaxquat import recordings

NEEDS_ROSBAGS = pytest.mark.needs("rosbags")
SECOND = 1_700_000_000
IMU = {
    "gyro": "/imu/data.angular_velocity",
    "accelerometer": "/imu/data.linear_acceleration",
    "q": "/imu/data.orientation",
}


def bag(tmp_path, kind, estimates=True, interval=10):
    """Writes 3 messages of an IMU at 100 Hz, 2 of a magnetometer and 2 of joints; returns the path.

    All were received a second late. ``interval`` is that of the IMU's stamps [ms].
    """
    from rosbags import rosbag1, rosbag2
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC if kind == 1 else Stores.LATEST)
    types = store.types
    header, time = types["std_msgs/msg/Header"], types["builtin_interfaces/msg/Time"]
    vector, quaternion = types["geometry_msgs/msg/Vector3"], types["geometry_msgs/msg/Quaternion"]
    none, zeros = np.array([-1.0] + [0.0] * 8), np.zeros(9)

    def at(milliseconds):
        number = {"seq": 0} if kind == 1 else {}
        return header(stamp=time(SECOND, 10**6 * milliseconds), frame_id="imu", **number)

    messages = {
        ("/imu/data", "sensor_msgs/msg/Imu"): [
            (
                interval * k,
                {
                    "orientation": quaternion(0.0, 0.0, 0.6, 0.8),
                    "orientation_covariance": zeros if estimates else none,
                    "angular_velocity": vector(0.5 * k, 1.0, -1.0),
                    "angular_velocity_covariance": zeros,
                    "linear_acceleration": vector(0.0, 0.0, 9.75),
                    "linear_acceleration_covariance": zeros,
                },
            )
            for k in range(3)
        ],
        ("/imu/mag", "sensor_msgs/msg/MagneticField"): [
            (k, {"magnetic_field": vector(2e-5, 1e-5, -4e-5), "magnetic_field_covariance": zeros})
            for k in (10, 15)
        ],
        ("/joints", "sensor_msgs/msg/JointState"): [
            (
                k,
                {
                    "name": ["a", "b"],
                    "position": np.array([1.0, k]),
                    "velocity": np.array([60.0, 120.0]),
                    "effort": np.array([]),
                },
            )
            for k in (1, 2)
        ],
        ("/text", "std_msgs/msg/String"): [(1, None)],
    }
    path = tmp_path / ("a.bag" if kind == 1 else "bag")
    writer = rosbag1.Writer(path) if kind == 1 else rosbag2.Writer(path, version=9)
    serialize = store.serialize_ros1 if kind == 1 else store.serialize_cdr
    with writer:
        for (topic, name), rows in messages.items():
            connection = writer.add_connection(topic, name, typestore=store)
            for t, fields in rows:
                fields = {"data": "x"} if fields is None else {"header": at(t), **fields}
                raw = serialize(types[name](**fields), name)
                writer.write(connection, 10**9 * (SECOND + 1) + 10**6 * t, raw)
    return path


@NEEDS_ROSBAGS
@pytest.mark.parametrize("kind", [1, 2])
def test_topics_are_read_at_the_times_of_their_headers(tmp_path, kind):
    """In float64 a time since 1970 has a resolution of 2.4e-7 s."""
    columns = {**IMU, "magnetometer": "/imu/mag.magnetic_field"}
    got = recordings.read_rosbag(bag(tmp_path, kind), columns)
    np.testing.assert_allclose(got.t - SECOND, [0, 0.01, 0.015, 0.02], rtol=0, atol=2.4e-7)
    np.testing.assert_array_equal(got.gyro[:, 0], [0, 0.5, np.nan, 1])
    np.testing.assert_array_equal(got.accelerometer[0], [0, 0, 9.75])
    np.testing.assert_array_equal(got.q[0], [0.8, 0, 0, 0.6])
    np.testing.assert_array_equal(got.magnetometer[2], [2e-5, 1e-5, -4e-5])
    np.testing.assert_array_equal(got.present("magnetometer"), [False, True, True, False])


@NEEDS_ROSBAGS
def test_frd_ned_has_the_other_axes(tmp_path):
    """The heading of (0.8, 0, 0, 0.6) is 73.74 degrees from east to the left: 16.26 from north."""
    got = recordings.read_rosbag(bag(tmp_path, 2), IMU, frame="frd_ned")
    np.testing.assert_array_equal(got.gyro[1], [0.5, -1, 1])
    np.testing.assert_array_equal(got.accelerometer[0], [0, 0, -9.75])
    half = 0.5 * (np.pi / 2 - 2 * np.arctan2(0.6, 0.8))
    np.testing.assert_allclose(got.q[0], [np.cos(half), 0, 0, np.sin(half)], rtol=0, atol=2e-16)


@NEEDS_ROSBAGS
def test_an_orientation_without_an_estimate_is_missing(tmp_path):
    """sensor_msgs/Imu says so by -1 in element 0 of the covariance."""
    got = recordings.read_rosbag(bag(tmp_path, 1, estimates=False), IMU)
    assert not got.present("q").any()
    assert got.present("gyro").all()


@NEEDS_ROSBAGS
def test_fields_of_fields_and_elements_of_arrays_are_read_by_name(tmp_path):
    columns = {
        "second": "/joints.position[1]",
        "both": "/joints.position",
        "speed": "/joints.velocity",
        "x": ("/joints.position[0]", "/joints.velocity[1]"),
    }
    got = recordings.read_rosbag(bag(tmp_path, 2), columns, units={"speed": "rpm"})
    np.testing.assert_array_equal(got["second"], [1, 2])
    np.testing.assert_array_equal(got["both"], [[1, 1], [1, 2]])
    np.testing.assert_allclose(got["speed"][0], [2 * np.pi, 4 * np.pi], rtol=1e-15)
    np.testing.assert_array_equal(got["x"][0], [1, 120])
    one = recordings.read_rosbag(tmp_path / "bag", {"z": "/imu/data.angular_velocity.x"})
    np.testing.assert_array_equal(one["z"], [0, 0.5, 1])


@NEEDS_ROSBAGS
def test_messages_of_one_stamp_are_kept_on_request(tmp_path):
    path = bag(tmp_path, 1, interval=0)
    with pytest.raises(ValueError, match=r'duplicates="keep" keeps them all, and np.polyfit'):
        recordings.read_rosbag(path, IMU)
    got = recordings.read_rosbag(path, IMU, duplicates="keep")
    np.testing.assert_array_equal(got.t, [SECOND] * 3)
    np.testing.assert_array_equal(got.gyro[:, 0], [0, 0.5, 1])
    text = 'columns: wanted one topic with duplicates="keep"; recordings.join joins several'
    with pytest.raises(ValueError, match=text):
        recordings.read_rosbag(path, {**IMU, "x": "/joints.effort"}, duplicates="keep")


@NEEDS_ROSBAGS
def test_a_folder_without_metadata_is_named(tmp_path):
    path = bag(tmp_path, 2)
    (path / "metadata.yaml").unlink()
    with pytest.raises(
        ValueError, match=r"wanted metadata\.yaml in the folder of a ROS 2 bag.*db3"
    ):
        recordings.read_rosbag(path, IMU)


BAD = {
    "missing topic": (
        {"x": "/other.y"},
        "topic /other: wanted messages for x, got none in the bag, which has /imu/data "
        "(sensor_msgs/msg/Imu), /imu/mag (sensor_msgs/msg/MagneticField), /joints (sensor_msgs",
    ),
    "missing field": (
        {"x": "/imu/data.speed"},
        "topic /imu/data: wanted a header and the numbers speed for x, got ",
    ),
    "text": ({"x": "/joints.name"}, "topic /joints: wanted a header and the numbers name for x"),
    "no header": ({"x": "/text.data"}, "topic /text: wanted a header and the numbers data for x"),
    "beyond the end": ({"x": "/joints.effort[0]"}, "the numbers effort[0] for x, got index 0"),
    "scalar last": (
        {"q": [f"/imu/data.orientation.{axis}" for axis in "xyzw"]},
        "columns: wanted the columns of q scalar first, got ('/imu/data.orientation.x",
    ),
    "a field twice": (
        {"x": ["/joints.position[0]"] * 2},
        "columns: wanted each column of x once, got ('/joints.position[0]",
    ),
    "two numbers": ({"gyro": "/joints.position"}, "wanted 3 numbers for gyro, got position"),
}


@NEEDS_ROSBAGS
@pytest.mark.parametrize(("columns", "text"), BAD.values(), ids=BAD)
def test_what_a_bag_does_not_have_is_named_by_file_and_topic(tmp_path, columns, text):
    path = bag(tmp_path, 1)
    with pytest.raises(ValueError, match=re.escape(text)) as error:
        recordings.read_rosbag(path, columns)
    assert str(path) in str(error.value) or text.startswith("columns: ")


@NEEDS_ROSBAGS
def test_a_file_that_is_no_bag_is_refused(tmp_path):
    path = bag(tmp_path, 1)
    content = path.read_bytes()
    for damaged in (b"", b"t,x\n", content[:-100], content[:5000] + bytes(100) + content[5100:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.bag: cannot be read as a bag, "):
            recordings.read_rosbag(path, IMU)
    with pytest.raises(FileNotFoundError):
        recordings.read_rosbag(Path("nowhere.bag"), IMU)


def test_without_rosbags_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rosbags.highlevel", None)
    wanted = re.escape('wanted the package rosbags, got none: pip install "jaxquat[logs]"')
    with pytest.raises(ImportError, match=wanted):
        recordings.read_rosbag("nowhere.bag", IMU)

"""Recordings of sensors: tables, logs of flight controllers and robots, and windows of them.

All readers return a ``Recording`` in SI units. Nothing is interpolated; what is missing is NaN in a
recording and masked in windows.
"""

from __future__ import annotations

from jaxquat.recordings.aem import read_aem, write_aem
from jaxquat.recordings.ardupilot import ARDUPILOT, read_dataflash, read_tlog
from jaxquat.recordings.benchmarks import read_euroc, read_tum
from jaxquat.recordings.recording import Recording, join
from jaxquat.recordings.resting import stationary_intervals
from jaxquat.recordings.rosbag import read_rosbag
from jaxquat.recordings.tables import read
from jaxquat.recordings.ulog import PX4, read_ulog
from jaxquat.recordings.units import UNITS
from jaxquat.recordings.windowing import Windows, windows, windows_by_time
from jaxquat.recordings.writing import write

__all__ = [
    "ARDUPILOT",
    "PX4",
    "UNITS",
    "Recording",
    "Windows",
    "join",
    "read",
    "read_aem",
    "read_dataflash",
    "read_euroc",
    "read_rosbag",
    "read_tlog",
    "read_tum",
    "read_ulog",
    "stationary_intervals",
    "windows",
    "windows_by_time",
    "write",
    "write_aem",
]

"""Sensors with stamps of their own on one time axis: the union of their times."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxquat.recordings.recording import Recording, check_recording, check_times, from_channels


def join(*recordings: Recording) -> Recording:
    """Join recordings of several rates, such as one file for each sensor, into one.

    The rows are all times of all recordings. Rows merge only if their times are equal in float64;
    no time is changed and nothing is interpolated. Channels are NaN in the rows that their
    recording does not have, so they become float64; ``movement`` stays bool only if every row has
    it.

    The times must be of one clock. Shift a recording whose clock is ahead by 20 ms with
    ``dataclasses.replace(recording, t=recording.t - 0.02)``.

    Args:
        recordings: recordings whose channels have different names, at least one channel each.

    Raises:
        ValueError, TypeError: times that do not increase, a recording without channels, a name
            that two recordings have, or no recordings; the message has the name or the position.

    Examples:
        >>> imu = jq.recordings.Recording(np.array([0.0, 0.01, 0.02]), gyro=np.ones((3, 3)))
        >>> volts = {"volts": np.array([12.0, 11.5])}
        >>> battery = jq.recordings.Recording(np.array([0.01, 0.015]), channels=volts)
        >>> joined = jq.recordings.join(imu, battery)
        >>> joined.t, joined["volts"]
        (array([0.   , 0.01 , 0.015, 0.02 ]), array([ nan, 12. , 11.5,  nan]))
    """
    if not recordings:
        raise ValueError("recordings: wanted at least one recording, got none")
    samples: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for k, recording in enumerate(recordings):
        check_recording(recording, f"recordings[{k}]")
        check_times(f"recordings[{k}].t", np.asarray(recording.t))
        if not recording.names:
            raise ValueError(f"recordings[{k}]: wanted at least one channel, got none")
        for name in recording.names:
            if name in samples:
                raise ValueError(f"recordings[{k}]: wanted new names, got a second channel {name}")
            samples[name] = np.asarray(recording.t), np.asarray(recording[name])
    return union(samples)


def union(samples: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Recording:
    """A recording at all times of all channels; ``samples`` has (n,) times and n rows of each."""
    t = np.unique(np.concatenate([np.float64(times) for times, _ in samples.values()]))
    values = {}
    for name, (times, numbers) in samples.items():
        values[name] = np.full((len(t), *numbers.shape[1:]), np.nan)
        values[name][np.searchsorted(t, times)] = numbers
    return from_channels(t, values)

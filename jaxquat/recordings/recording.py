"""Recordings: measured channels that share one time axis, and how several are joined."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxquat._internal import reprs
from jaxquat._internal.checks import every, instance, not_negative, real
from jaxquat.recordings.columns import SI, SIZES
from jaxquat.simulation.path import Path

_UNIT_NORM = 1e-2  # largest deviation from 1 of the norm of a recorded attitude
SENSORS = tuple(SI)[1:]  # the channels that have their own fields, in the order of the fields


@dataclass(frozen=True, repr=False, eq=False)
class Recording(reprs.InOneLine):
    """A recording: N rows in time order, float64, in SI units.

    A field that is not in the file is None. ``recording["motors"]`` is the channel of this name. If
    a sensor has no sample in a row, all its numbers are NaN there.

    Attributes:
        t: times [s], (N,); they increase.
        gyro: measured rates, sensor axes [rad/s], (N, 3).
        q: reference attitudes, sensor to world, (N, 4); NaN where the reference was lost.
        movement: whether the row is in the movement phase, (N,) bool; floats 0, 1 and NaN if
            ``join`` added rows without it.
        accelerometer: specific forces, sensor axes [m/s^2], (N, 3).
        magnetometer: magnetic field, sensor axes [T], (N, 3).
        channels: all other channels by name, each (N,) or (N, k): motors, angles, voltages.
        notes: what else the file says, by name: the ``declination`` [rad] in the log of an
            autopilot, the metadata of an attitude ephemeris message.

    Raises:
        ValueError, TypeError: a field that is no array of numbers or has a wrong shape (N is at
            least 2); a channel's name that is no string or that of a field. Values are not checked.

    Examples:
        >>> t, volts = np.arange(4) / 10, np.array([12.0, np.nan, np.nan, 11.5])  # s, V
        >>> recording = jq.recordings.Recording(t, np.zeros((4, 3)), channels={"volts": volts})
        >>> recording
        <Recording: 4 samples, duration 0.3 s, rate 10 Hz, channels gyro volts, volts missing 50 %>
    """

    t: np.ndarray
    gyro: Any = None
    q: Any = None
    movement: Any = None
    accelerometer: Any = None
    magnetometer: Any = None
    channels: Mapping[str, np.ndarray] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        instance("notes", self.notes, Mapping, "a dict by name")
        instance("channels", self.channels, Mapping, "a dict of arrays by name")
        _check_array("t", self.t, "(N,), N >= 2", np.ndim(self.t) == 1 and np.size(self.t) >= 2)
        if self.t.dtype.kind in "iu" and np.any(self.t != np.float64(self.t).astype(self.t.dtype)):
            wanted = "times [s] that float64 holds; subtract the first time before you convert them"
            raise ValueError(f"t: wanted {wanted}, got integers such as {self.t[0]}")
        rows = len(self.t)
        for name in SENSORS:
            value = getattr(self, name)
            if value is not None:
                shape = (rows, SIZES[name]) if name in SIZES else (rows,)
                _check_array(name, value, f"{shape}, a row for each time", np.shape(value) == shape)
        for name, value in self.channels.items():
            instance("channels", name, str, "names that are strings")
            if name in SI:
                raise ValueError(f"channels: wanted names of no field, got {name!r}")
            wanted = f"({rows},) or ({rows}, k), a row for each time"
            is_right = np.ndim(value) in (1, 2) and np.shape(value)[0] == rows
            _check_array(f"channels[{name!r}]", value, wanted, is_right)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the existing channels.

        Examples:
            >>> recording.names
            ('gyro', 'volts')
        """
        return (*(name for name in SENSORS if getattr(self, name) is not None), *self.channels)

    def __getitem__(self, channel: str) -> np.ndarray:
        """Return the channel of this name; ValueError if there is none."""
        if not isinstance(channel, str) or channel not in self.names:
            raise ValueError(f"channel: wanted one of {_listed(self.names)}, got {channel!r}")
        return self.channels[channel] if channel in self.channels else getattr(self, channel)

    __iter__ = None  # a recording does not iterate over rows or channels

    def present(self, channel: str) -> np.ndarray:
        """Return whether a channel has a sample in each row, (N,) bool.

        Examples:
            >>> recording.present("volts")
            array([ True, False, False,  True])
        """
        return np.asarray(~np.isnan(self[channel].reshape(len(self.t), -1)).any(axis=1))

    def rows_with(self, channel: str) -> Recording:
        """Select the rows in which this channel has a sample; ValueError if fewer than two.

        Examples:
            >>> recording.rows_with("volts").t  # s
            array([0. , 0.3])
        """
        rows = self.present(channel)
        if rows.sum() < 2:
            raise ValueError(f"channel: wanted at least two rows with {channel}, got {rows.sum()}")
        values = {key: self[key][rows] for key in self.names}
        return from_channels(self.t[rows], values, self.notes)

    def hold(self, channel: str) -> Recording:
        """Replace missing rows, after the first sample, by the last one before: a held command.

        Examples:
            >>> recording.hold("volts")["volts"]
            array([12. , 12. , 12. , 11.5])
        """
        present = self.present(channel)
        last = np.maximum.accumulate(np.where(present, np.arange(len(self.t)), 0))
        values = {key: self[key] for key in self.names} | {channel: self[channel][last]}
        return from_channels(self.t, values, self.notes)

    def spacing(self, tolerance: float = 1e-3) -> float:
        """Return the mean sampling interval [s]; ValueError if the samples are not uniform.

        A sample may deviate by the fraction ``tolerance`` of the interval, plus a unit of the last
        decimal of t if that is below half the interval. If the decimals are coarser, as for 600 Hz
        in milliseconds, missing samples cannot be detected: ``tolerance=1.0`` accepts such times.

        Examples:
            >>> f"{recording.spacing():.3f} s"
            '0.100 s'
        """
        tolerance = real("tolerance", tolerance)
        not_negative("tolerance", tolerance)
        every("t", "finite times", self.t, np.isfinite(self.t))
        mean = (self.t[-1] - self.t[0]) / (len(self.t) - 1)
        if not mean > 0:
            got = f"{self.t[0]} at first and {self.t[-1]} at last"
            raise ValueError(f"t: wanted times that increase, got {got}")
        off = np.abs(self.t - (self.t[0] + mean * np.arange(len(self.t))))
        worst, digit = int(np.argmax(off)), _last_decimal(self.t)
        decimal = digit if 2.0 * digit < mean else 0.0
        rounding = 4.0 * np.spacing(np.abs(self.t).max())
        if off[worst] > tolerance * mean + decimal + rounding:
            wanted = f"samples {mean:.6g} s apart to within {tolerance:g} of that"
            due = self.t[0] + mean * worst
            raise ValueError(f"t: wanted {wanted}, got t = {self.t[worst]} where {due:.6g} was due")
        return float(mean)

    def _table(self) -> reprs.Table:
        t = np.asarray(self.t, np.float64)
        duration = float(t[-1] - t[0])
        facts: list[tuple[str, ...]] = [("duration", f"{duration:.6g} s")]
        if np.isfinite(t).all() and duration > 0:
            facts.append(("rate", f"{(len(t) - 1) / duration:.6g} Hz"))
            intervals = np.diff(t)
            if intervals.max() > 2.0 * np.median(intervals):
                facts.append(("longest interval", f"{intervals.max():.3g} s"))
        if self.names != ("gyro", "q", "movement"):
            facts.append(("channels", _listed(self.names)))
        for name in self.names:
            missing = 100.0 * (1.0 - self.present(name).mean())
            if name == "q" or missing:
                label = "reference lost" if name == "q" else f"{name} missing"
                facts.append((label, f"{missing:.3g} %"))
        return f"Recording: {len(t)} samples", facts, ()


def join(*recordings: Recording) -> Recording:
    """Join recordings of several rates, such as one file for each sensor, into one.

    The rows are all times of all recordings, merged only if equal in float64; nothing is
    interpolated. Channels are NaN in the rows that their recording does not have, so they become
    float64; ``movement`` stays bool if every row has it. Notes stay unless two differ. The times
    must be of one clock: shift one that is ahead by 20 ms with
    ``dataclasses.replace(recording, t=recording.t - 0.02)``.

    Args:
        recordings: recordings whose channels have different names, at least one channel each.

    Raises:
        ValueError, TypeError: times that do not increase, a recording without channels, a name in
            two recordings, or no recordings.

    Examples:
        >>> imu = jq.recordings.Recording(np.array([0.0, 0.01]), gyro=np.ones((2, 3)))
        >>> volts = {"volts": np.array([12.0, 11.5])}
        >>> battery = jq.recordings.Recording(np.array([0.01, 0.015]), channels=volts)
        >>> jq.recordings.join(imu, battery)["volts"]
        array([ nan, 12. , 11.5])
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
    notes = {key: value for recording in recordings for key, value in recording.notes.items()}
    for recording in recordings:
        notes = {key: x for key, x in notes.items() if recording.notes.get(key, x) == x}
    return dataclasses.replace(union(samples), notes=notes)


def union(samples: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Recording:
    """Return a recording at all times of all channels, given by their times (n,) and n rows."""
    t = np.unique(np.concatenate([np.float64(times) for times, _ in samples.values()]))
    values = {}
    for name, (times, numbers) in samples.items():
        values[name] = np.full((len(t), *numbers.shape[1:]), np.nan)
        values[name][np.searchsorted(t, times)] = numbers
    return from_channels(t, values)


def from_channels(
    t: np.ndarray, values: Mapping[str, np.ndarray], notes: Mapping[str, Any] | None = None
) -> Recording:
    """Return a recording of channels given by name; a movement of floats is bool if complete."""
    fields = {name: value for name, value in values.items() if name in SENSORS}
    movement = fields.get("movement")
    if movement is not None and movement.dtype.kind == "f" and not np.isnan(movement).any():
        fields["movement"] = movement == 1.0
    channels = {name: value for name, value in values.items() if name not in SENSORS}
    return Recording(t, **fields, channels=channels, notes=notes or {})


def check_recording(recording: Any, name: str = "recording") -> None:
    """Raise TypeError if this is no Recording; for a Path, the message has a line to convert it."""
    if isinstance(recording, Path):
        line = (
            "jq.recordings.Recording(np.asarray(path.t), gyro=np.asarray(path.state.omega), "
            "q=np.asarray(path.state.q), movement=np.ones(len(path), bool))"
        )
        raise TypeError(f"{name}: wanted a recordings.Recording, got a Path; use {line}")
    instance(name, recording, Recording, "a recordings.Recording")


def _check_array(name: str, value: Any, wanted: str, has_shape: bool) -> None:
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind not in ("b", "i", "u", "f") or not hasattr(value, "shape"):
        got = f"one of {value.dtype}" if kind else type(value).__name__
        raise TypeError(f"{name}: wanted an array of numbers, got {got}")
    if not has_shape:
        raise ValueError(f"{name}: wanted shape {wanted}, got {value.shape}")


FITS = "np.polyfit over the rows fits an even clock to stamps of bursts or with jitter"


def check_times(where: str, t: np.ndarray, remedy: str = FITS) -> None:
    """Raise ValueError that begins with ``where`` if times do not increase or are not finite."""
    every(where, "finite times", t, np.isfinite(t))
    for k in np.flatnonzero(~(np.diff(t) > 0))[:1]:
        got = f"{t[k]} and then {t[k + 1]} at row {k + 1}"
        got += f"; {remedy}" if remedy else ""
        raise ValueError(f"{where}: wanted times that increase, got {got}")


def check_samples(where: str, name: str, numbers: np.ndarray) -> None:
    """Raise ValueError that begins with ``where`` if samples (N,) or (N, k) are bad."""
    for row, problem in sample_problems(name, numbers):
        raise ValueError(f"{where}: {problem} at row {row}")


def sample_problems(name: str, numbers: np.ndarray) -> Iterator[tuple[int, str]]:
    """Find the bad rows of samples (N,) or (N, k), and what is wrong."""
    rows = numbers if numbers.ndim == 2 else numbers[:, None]
    good, missing = np.all(np.isfinite(rows), axis=1), np.all(np.isnan(rows), axis=1)
    rows, wanted = np.where(good[:, None], rows, 0.0), "finite numbers, or NaN in all of them"
    if name == "q":
        wanted = "a unit quaternion, or NaN in all four"
        good &= np.abs(np.linalg.norm(rows, axis=1) - 1.0) <= _UNIT_NORM
    elif name == "movement":
        wanted = "0 or 1"
        good &= np.isin(rows, (0.0, 1.0)).all(axis=1)
    for k in np.flatnonzero(~(good | missing)):
        yield int(k), f"wanted {wanted}, got {numbers[k].tolist()}"


def check_duration(duration: float, t: np.ndarray, early: float = 0.0) -> None:
    """Raise ValueError if a duration [s] exceeds that of the times by more than ``early``."""
    if duration > t[-1] - t[0] + early:
        wanted = f"at most the {t[-1] - t[0]:.6g} s of the recording"
        raise ValueError(f"duration: wanted {wanted}, got {duration}")


def _listed(names: tuple[str, ...]) -> str:
    return " ".join(names) or "nothing"


def _last_decimal(t: np.ndarray) -> float:
    rounding = 4.0 * np.spacing(np.abs(t).max())
    fits = (10.0**-k for k in range(18) if np.all(np.abs(np.round(t, k) - t) <= rounding))
    return next(fits, 0.0)

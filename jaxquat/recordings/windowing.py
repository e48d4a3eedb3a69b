"""Cut recordings into windows of equal length, for ``vmap`` and for multiple shooting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxquat._internal import reprs
from jaxquat._internal.checks import positive, positive_integer, real
from jaxquat.recordings.recording import Recording, check_duration, check_recording, check_times

_GAP = 10.0  # median intervals: a longer interval is a gap by default
_ON_TIME = 1e-3  # of the median interval: a row that is less early counts as on time


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False, eq=False)
class Windows(reprs.InOneLine):
    """W windows of R rows each, a pytree for ``vmap``, made by ``windows`` or ``windows_by_time``.

    Rows without a measurement repeat the last one before them, so that every number is finite;
    ``mask`` and ``present`` mark these rows.

    Attributes:
        t: times since the start of the window [s], (W, R), subtracted in float64. Padding repeats
            the last time, so its intervals have length 0.
        mask: whether the row comes from the recording, (W, R) bool; False is padding.
        first: the row of the recording at which the window begins, (W,) int.
        channels: the numbers of each channel, (W, R) or (W, R, k).
        present: for each channel, whether it has a sample in the row, (W, R) bool.

    Examples:
        >>> recording = jq.recordings.Recording(t=np.arange(100) / 10, gyro=np.ones((100, 3)))
        >>> jq.recordings.windows(recording, length=40, stride=40).mask.sum(axis=1)  # padded
        array([40, 40, 20])
    """

    t: Any
    mask: Any
    first: Any
    channels: dict[str, Any]
    present: dict[str, Any]

    def _table(self) -> reprs.Table:
        extent = " of ".join(map(str, np.shape(self.t)))
        facts = [("channels", " ".join(self.channels) or "nothing")]
        if isinstance(self.mask, np.ndarray):
            facts.append(("padding", f"{100.0 * (1.0 - self.mask.mean()):.3g} %"))
        return f"Windows: {extent} rows", facts, ()


def windows(recording: Recording, length: int, stride: int, *, gap: float | None = None) -> Windows:
    """Cut a recording into windows of ``length`` rows that begin every ``stride`` rows.

    No window contains a gap, an interval longer than ``gap``. Rows between gaps are cut separately;
    the part of a window beyond them is padding, which changes no state: intervals of length 0 are
    the identity for ``jq.grid_at`` and ``kinematics.integrate``. So no row is omitted if
    ``stride <= length``.

    In multiple shooting the start of each window is a parameter. With ``stride = length - 1`` a
    window ends with the row that begins the next one, unless there is a gap between; the difference
    of their attitudes there is a residual, for the windows of
    ``w.first[1:] == w.first[:-1] + w.mask[:-1].sum(axis=1) - 1``.

    Args:
        recording: a recording of at least ``length`` rows. Missing rows of a channel are filled
            with the last sample before, at the start with the first sample. If every row must have
            a rate, use ``recording.rows_with("gyro")`` first, which delays commands to the next
            such row.
        length: rows in a window, at least 2.
        stride: rows from the start of one window to the start of the next.
        gap: the longest interval that is not a gap [s]; by default ten times the median interval.

    Raises:
        ValueError, TypeError: an argument, by name; a channel without any sample.

    Examples:
        >>> recording = jq.recordings.Recording(t=np.arange(101) / 10, gyro=np.ones((101, 3)))
        >>> w = jq.recordings.windows(recording, length=21, stride=20)  # neighbours share a row
        >>> w.channels["gyro"].shape
        (5, 21, 3)
    """
    stretches = _stretches(recording, gap)
    length, stride = positive_integer("length", length), positive_integer("stride", stride)
    rows = len(recording.t)
    if not 2 <= length <= rows:
        raise ValueError(f"length: wanted 2 to the {rows} rows of the recording, got {length}")
    first, ends = [], []
    for begin, end in stretches:
        starts = [k for k in range(begin, end, stride) if k == begin or k - stride + length < end]
        first += starts
        ends += [min(k + length, end) for k in starts]
    return _cut(recording, np.array(first), np.array(ends), length)


def windows_by_time(
    recording: Recording, duration: float, stride: float, *, gap: float | None = None
) -> Windows:
    """Cut a recording into windows of ``duration`` seconds that begin every ``stride`` seconds.

    This is ``windows`` for unevenly spaced stamps. The clock restarts at the first row after each
    gap. A window begins with the first row at ``k stride`` or later, and ends with the first row
    ``duration`` later or after, so its number of rows varies; the longest window has no padding.
    Windows are cut short at a gap and at the end; ``w.t[:, -1]`` is their duration. With
    ``stride = duration`` neighbours share a row, as in ``windows``.

    Args:
        recording: as for ``windows``.
        duration: duration of a window [s], at most the duration of the recording.
        stride: time from one window to the next [s]; below an interval, every row begins a window.
        gap: as for ``windows``.

    Raises:
        ValueError, TypeError: as for ``windows``.

    Examples:
        >>> recording = jq.recordings.Recording(t=np.arange(101) / 10, gyro=np.ones((101, 3)))
        >>> jq.recordings.windows_by_time(recording, duration=1.0, stride=0.5).t.shape
        (19, 11)
    """
    stretches, t = _stretches(recording, gap), np.asarray(recording.t)
    duration, stride = real("duration", duration), real("stride", stride)
    positive("duration", duration)
    positive("stride", stride)
    early = _ON_TIME * float(np.median(np.diff(t)))
    check_duration(duration, t, early)
    first, ends = [], []
    for begin, end in stretches:
        since = t[begin:end] - t[begin]
        turn = np.floor((since + early) / stride)
        rows = np.flatnonzero(np.diff(turn, prepend=-1.0))
        last = np.searchsorted(since, turn[rows] * stride + duration - early)
        stops = np.minimum(last + 1, len(since))
        has_new_rows = np.concatenate([[True], stops[:-1] < len(since)])
        first.append(begin + rows[has_new_rows])
        ends.append(begin + stops[has_new_rows])
    first, ends = np.concatenate(first), np.concatenate(ends)
    return _cut(recording, first, ends, int(np.max(ends - first)))


def _stretches(recording: Recording, gap: float | None) -> list[tuple[int, int]]:
    """Return the first row, and the row after the last one, of every stretch without a gap."""
    check_recording(recording)
    check_times("recording.t", np.asarray(recording.t))
    steps = np.diff(recording.t)
    gap = real("gap", _GAP * np.median(steps) if gap is None else gap)
    positive("gap", gap, or_infinite=True)
    cuts = [int(k) for k in np.flatnonzero(steps > gap) + 1]
    return list(zip([0, *cuts], [*cuts, len(recording.t)], strict=True))


def _cut(recording: Recording, first: np.ndarray, ends: np.ndarray, length: int) -> Windows:
    t, rows = np.asarray(recording.t), len(recording.t)
    numbers = first[:, None] + np.arange(length)
    mask = numbers < ends[:, None]
    numbers = np.minimum(numbers, ends[:, None] - 1)
    channels, present = {}, {}
    for name in recording.names:
        has_sample = recording.present(name)
        if not has_sample.any():
            raise ValueError(f"recording: wanted a sample of {name}, got none in {rows} rows")
        last = np.maximum.accumulate(np.where(has_sample, np.arange(rows), np.argmax(has_sample)))
        channels[name] = recording[name][last][numbers]
        present[name] = has_sample[numbers] & mask
    return Windows(t[numbers] - t[first][:, None], mask, first, channels, present)

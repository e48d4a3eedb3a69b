"""A recording cut into windows of equal length, for ``vmap`` and for multiple shooting."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxquat._checks import instance, positive, positive_integer, real
from jaxquat._reprs import table
from jaxquat.sensing.recordings.recording import Recording, check_times

_GAP = 10.0
"""By default an interval is a gap if it is longer than this many median intervals."""


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["t", "mask", "first", "channels", "present"],
    meta_fields=[],
)
@dataclass(frozen=True, repr=False, eq=False)
class Windows:
    """W windows of R rows each, made by ``recordings.windows``; a pytree for ``vmap``.

    Rows without a measurement repeat the last one before them, so that every number is finite; the
    masks say which these are.

    Attributes:
        t: times since the start of the window [s], (W, R), subtracted in float64. Padding repeats
            the last time: its intervals have length 0.
        mask: whether the recording has the row, (W, R) bool; False is padding.
        first: the row of the recording with which the window begins, (W,) int.
        channels: measurements by name, (W, R) or (W, R, k).
        present: for each channel whether it has a sample in the row, (W, R) bool.

    Examples:
        >>> recording = jq.recordings.Recording(t=np.arange(100) / 10, gyro=np.ones((100, 3)))
        >>> w = jq.recordings.windows(recording, length=40, stride=40)
        >>> w.first, w.mask.sum(axis=1)  # the last one is padded
        (array([ 0, 40, 80]), array([40, 40, 20]))
    """

    t: Any
    mask: Any
    first: Any
    channels: dict[str, Any]
    present: dict[str, Any]

    def __repr__(self) -> str:
        title, facts = self._described()
        return f"<{title}, {', '.join(f'{name} {text}' for name, text in facts)}>"

    def _repr_html_(self) -> str:
        return table(*self._described())

    def _described(self) -> tuple[str, list[tuple[str, str]]]:
        shape = np.shape(self.t)
        extent = " of ".join(map(str, shape)) + " rows"
        facts = [("channels", " ".join(self.channels) or "nothing")]
        if isinstance(self.mask, np.ndarray):
            facts.append(("padding", f"{100.0 * (1.0 - self.mask.mean()):.3g} %"))
        return f"Windows: {extent}", facts


def windows(recording: Recording, length: int, stride: int, *, gap: float | None = None) -> Windows:
    """Cut a recording into windows of ``length`` rows that begin every ``stride`` rows.

    No window contains a gap, that is an interval longer than ``gap``. The rows between two gaps are
    cut for themselves: the first window begins with the first of them, and where they end before a
    window does, the rest of it is padding, with ``mask`` False and its last time repeated. So no
    row is left out if ``stride <= length``. Intervals of length 0 are the identity for
    ``jq.grid_at`` and ``kinematics.integrate``, so padding changes no state.

    Multiple shooting has the start of each window as a parameter. With ``stride = length - 1`` a
    window ends with the row that begins the next one, and the two attitudes there should agree.
    This continuity is a residual like the others, or is left out::

        w = recordings.windows(recording, length=101, stride=100)
        follows = w.first[1:] == w.first[:-1] + w.mask[:-1].sum(axis=1) - 1  # no gap between

        def attitudes(q0, omega, times):
            return kinematics.integrate(q0, omega, times=times)

        def residuals(bias, starts):
            q = jax.vmap(attitudes)(starts, w.channels["gyro"] - bias, w.t)
            error = quaternion.log(quaternion.relative(w.channels["q"], q))
            jump = quaternion.log(quaternion.relative(q[:-1, -1], starts[1:]))
            seen, joined = w.present["q"][..., None], follows[:, None]
            return jnp.where(seen, error, 0.0), jnp.where(joined, jump, 0.0)

    Args:
        recording: at least ``length`` rows. A channel whose rows are partly missing has them filled
            with the last one before, at the beginning with the first one; ``present`` tells. Take
            ``recording.rows_with("gyro")`` first where several sensors were joined and every row
            must have a rate.
        length: rows in a window, at least 2.
        stride: rows from the start of one window to that of the next.
        gap: the longest interval that is no gap [s]; by default ten times the median one.

    Raises:
        ValueError, TypeError: an argument of wrong type or value, by name. A channel without any
            sample is one.

    Examples:
        >>> recording = jq.recordings.Recording(t=np.arange(101) / 10, gyro=np.ones((101, 3)))
        >>> w = jq.recordings.windows(recording, length=21, stride=20)  # neighbours share a row
        >>> w.t.shape, w.channels["gyro"].shape
        ((5, 21), (5, 21, 3))
    """
    instance("recording", recording, Recording, "a recordings.Recording")
    length, stride = positive_integer("length", length), positive_integer("stride", stride)
    t, rows = np.asarray(recording.t), len(recording.t)
    check_times("recording.t", t)
    if not 2 <= length <= rows:
        raise ValueError(f"length: wanted 2 to the {rows} rows of the recording, got {length}")
    if gap is None:
        gap = _GAP * float(np.median(np.diff(t)))
    gap = real("gap", gap)
    positive("gap", gap, or_infinite=True)
    first, ends = _starts(t, length, stride, gap)
    numbers = first[:, None] + np.arange(length)
    mask = numbers < ends[:, None]
    numbers = np.minimum(numbers, ends[:, None] - 1)
    channels, present = {}, {}
    for name in recording.names:
        there = recording.present(name)
        if not there.any():
            raise ValueError(f"recording: wanted a sample of {name}, got none in {rows} rows")
        last = np.maximum.accumulate(np.where(there, np.arange(rows), np.argmax(there)))
        channels[name] = recording[name][last][numbers]
        present[name] = there[numbers] & mask
    return Windows(t[numbers] - t[first][:, None], mask, first, channels, present)


def _starts(t: np.ndarray, length: int, stride: int, gap: float) -> tuple[np.ndarray, np.ndarray]:
    """The first row of every window, and the row after the last one before the next gap.

    A window none of whose rows is new is left out.
    """
    cuts = np.flatnonzero(np.diff(t) > gap) + 1
    first, ends = [], []
    for begin, end in zip([0, *cuts], [*cuts, len(t)], strict=True):
        starts = [k for k in range(begin, end, stride) if k == begin or k - stride + length < end]
        first += starts
        ends += [end] * len(starts)
    return np.array(first), np.array(ends)

"""Even clocks fitted to stamps of bursts, and to stamps that jitter."""

from __future__ import annotations

import numpy as np

from jaxquat._internal.checks import every, positive, real
from jaxquat.recordings.recording import Recording, check_recording, checked_gap, from_channels

_SEGMENT = 300.0  # s, after which the interval of the clock may change
_REPEATS, _USUAL = 8, 3.0  # least squares; median residuals beyond which one has less weight
_GROUPS = 20_000  # groups of rows, at most, to which the clock is fitted


def even_clock(
    recording: Recording, *, rate: float | None = None, gap: float | None = None
) -> tuple[Recording, np.ndarray]:
    """Fit an even clock to stamps that come in bursts or jitter.

    Phones, USB and ROS drivers deliver several samples with one stamp, or stamps that lag, some
    behind the next one's. If the sensor samples evenly, the rows, whose order is kept (read them
    with ``duplicates="keep"``), count its samples, and least squares give the times: a line between
    gaps, whose slope may change every five minutes, because crystals drift. The times are late by
    the unknown mean lag. A sample lost outside of a gap shows only as a step of the residuals. If
    the residuals have a trend, the clock is not even.

    Args:
        recording: the rows of one sensor, all in the order in which it sampled.
        rate: the sampling rate [Hz] if it is known; otherwise it is fitted.
        gap: the longest increase of the stamps that is no gap [s]; by default ten times the median
            one. After a gap the clock starts anew, with the same rate, unless the samples catch up.

    Raises:
        ValueError, TypeError: an argument, by name; stamps that do not rise as a whole.

    Examples:
        >>> stamps = np.repeat(np.arange(4, 500, 5) / 100, 5)  # bursts of 5
        >>> recording, residuals = jq.recordings.even_clock(jq.recordings.Recording(stamps))
        >>> f"{recording.spacing():.4f} s, {np.ptp(residuals):.3f} s"
        '0.0100 s, 0.040 s'
    """
    check_recording(recording)
    stamps = np.asarray(recording.t, np.float64)
    every("recording.t", "finite times", stamps, np.isfinite(stamps))
    if rate is not None:
        positive("rate", real("rate", rate))
    steps = np.diff(stamps)
    if not np.any(steps > 0):
        raise ValueError(f"recording.t: wanted stamps that rise, got {stamps[0]} in all rows")
    starts = np.flatnonzero(steps > checked_gap(gap, steps)) + 1
    while True:
        times = _fitted(stamps - stamps[0], starts, rate)
        intervals = np.diff(times)
        caught_up = intervals[starts - 1] < 1.5 * np.median(intervals)
        if not caught_up.any():
            break
        starts = starts[~caught_up]
    if not np.all(intervals > 0):
        k = int(np.argmin(intervals))
        wanted = "stamps that rise with the rows"
        raise ValueError(f"recording.t: wanted {wanted}, got a clock that runs back at row {k + 1}")
    times += stamps[0]
    channels = {name: recording[name] for name in recording.names}
    return from_channels(times, channels, recording.notes), stamps - times


def _fitted(stamps: np.ndarray, starts: np.ndarray, rate: float | None) -> np.ndarray:
    """Return the times of the clock: piecewise linear in the row, with steps before ``starts``.

    Late groups of rows weigh less (P. J. Huber, Robust estimation of a location parameter, 1964).
    """
    rows = np.arange(len(stamps))
    knots = np.linspace(0, rows[-1], 2 + int((stamps[-1] - stamps[0]) / _SEGMENT))
    nominal = np.zeros(len(rows)) if rate is None else rows / rate
    edges = np.unique(np.append(starts, rows[:: 1 + len(rows) // _GROUPS]))
    counts = np.diff(np.append(edges, len(rows)))
    means = np.add.reduceat(stamps - nominal, edges) / counts
    centres = edges + 0.5 * (counts - 1)
    hats = np.stack([np.interp(centres, knots, unit) for unit in np.eye(len(knots))])
    hats = hats if rate is None else np.ones((1, len(centres)))
    matrix = np.vstack([hats, edges >= starts[:, None]]).T
    weights, unknowns = np.sqrt(counts), np.empty(0)
    for _ in range(_REPEATS):
        unknowns = np.linalg.lstsq(weights[:, None] * matrix, weights * means, rcond=None)[0]
        off = np.abs(means - matrix @ unknowns)
        usual = max(_USUAL * float(np.median(off)), np.finfo(float).tiny)
        weights = np.sqrt(counts * np.minimum(1.0, usual / np.maximum(off, usual)))
    steps = np.append(0.0, np.cumsum(unknowns[len(hats) :]))
    line = np.interp(rows, knots, unknowns[: len(hats)]) if rate is None else nominal + unknowns[0]
    return line + steps[np.searchsorted(starts, rows, side="right")]

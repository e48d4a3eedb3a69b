"""Intervals in which the body of a recording rests."""

from __future__ import annotations

import numpy as np

from jaxquat._internal.checks import positive, real
from jaxquat.recordings.recording import Recording, check_duration, check_recording, check_times

_QUIET = 1e-3  # of its limit: smaller spreads need no comparison (coarse digits, simulations)
_WILD = 1e3  # of its limit: a larger reading is in no rest; its square would round others


def stationary_intervals(
    recording: Recording,
    *,
    duration: float = 1.0,
    factor: float = 2.0,
    rate: float = 0.035,
    acceleration: float = 0.5,
) -> np.ndarray:
    """Find the rests of a recording by the spreads of its sensors. -> rows (R, 2), start and stop.

    A row is at rest if in the window of ``duration`` around it the standard deviation of each
    sensor, of its three axes together, is at most ``factor`` times that of its quietest windows:
    tests of the moving variance (I. Skog et al., IEEE Trans. Biomed. Eng. 57(11), 2010, 2657-2666)
    with a threshold relative to the noise at rest (D. Tedaldi, A. Pretto and E. Menegatti, ICRA
    2014). So a rest begins half a window after the motion has ended; those shorter than
    ``duration`` are left out. R = 0 if there is none.

    Args:
        recording: with gyro, accelerometer or both, each perhaps at its own rate, NaN elsewhere.
        duration: length of a window [s], best of ten samples of each sensor or more; where more
            than 0.3 of them are missing, there is no rest.
        factor: largest standard deviation in units of that of the quietest windows. A lower factor
            finds fewer and quieter rests; compare the residuals of the calibration.
        rate: largest mean rate, bias included, and largest standard deviation of the rate at rest
            [rad/s]. A slower turn at constant rate about the vertical counts as rest.
        acceleration: largest standard deviation of the specific force at rest [m/s^2].

    Raises:
        ValueError, TypeError: an argument, by name; a recording without gyro and accelerometer, or
            shorter than a window.

    Examples:
        >>> t = np.arange(1000) / 100  # s
        >>> turn = np.sin(np.pi * t) * ((t > 4) & (t < 6))  # rad/s
        >>> gyro = turn[:, None] + 1e-3 * np.random.default_rng(0).normal(size=(1000, 3))
        >>> rests = jq.recordings.stationary_intervals(jq.recordings.Recording(t, gyro))
        >>> t[rests[0, 0]], t[rests[1, 1] - 1]  # the windows at the ends are not complete
        (np.float64(0.5), np.float64(9.49))
    """
    check_recording(recording)
    limits = {"gyro": rate, "accelerometer": acceleration}
    numbers = {"duration": duration, "factor": factor, "rate": rate, "acceleration": acceleration}
    for name, number in numbers.items():
        positive(name, real(name, number))
    t = np.asarray(recording.t, float)
    check_times("recording.t", t)
    sensors = [name for name in limits if getattr(recording, name) is not None]
    if not sensors:
        raise ValueError("recording: wanted gyro or accelerometer, got neither")
    check_duration(duration, t)
    still = np.ones(len(t), bool)
    for name in sensors:
        values = np.asarray(recording[name], float)
        present = np.isfinite(values).all(axis=1)
        wild = np.any(np.abs(values) > _WILD * limits[name], axis=1)
        tame = np.where(wild[:, None], 0.0, values)
        means, spreads = _moving(t, t[present], tame[present], wild[present], duration)
        complete, limit = np.isfinite(spreads), limits[name]
        if not complete.any():
            raise ValueError(f"duration: wanted windows with samples of {name}, got {duration} s")
        quiet = spreads[complete & (spreads <= 2.0 * np.min(spreads[complete]))]
        noise = max(factor * np.median(quiet), _QUIET * limit)
        still &= complete & (spreads <= min(noise, limit))
        if name == "gyro":
            still &= np.linalg.norm(means, axis=1) <= rate
    edges = np.flatnonzero(np.diff(still, prepend=False, append=False))
    runs = edges.reshape(-1, 2)
    return runs[t[runs[:, 1] - 1] - t[runs[:, 0]] >= duration]


def _moving(
    t: np.ndarray, times: np.ndarray, values: np.ndarray, wild: np.ndarray, duration: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return means (N, 3) and standard deviations (N,) in windows; infinite for bad windows."""
    early = 1e-6 * duration  # a time on the edge of a window counts
    begin = np.searchsorted(times, t - 0.5 * duration - early)
    end = np.searchsorted(times, t + 0.5 * duration + early)
    centre = np.mean(values, axis=0) if len(values) else 0.0
    squared = np.sum((values - centre) ** 2, axis=1, keepdims=True)
    sums, squares, strays = (
        np.concatenate([np.zeros((1, x.shape[1])), np.cumsum(x, axis=0)])
        for x in (values - centre, squared, wild[:, None])
    )
    count = end - begin
    usual = duration / np.median(np.diff(times)) if len(times) > 1 else np.inf
    inside = (t - 0.5 * duration >= t[0] - early) & (t + 0.5 * duration <= t[-1] + early)
    complete = inside & (count >= max(2.0, 0.7 * usual)) & (strays[end] == strays[begin])[:, 0]
    count = np.maximum(count, 2)[:, None]
    means = (sums[end] - sums[begin]) / count
    variances = (squares[end] - squares[begin])[:, 0] - count[:, 0] * np.sum(means**2, axis=1)
    spreads = np.sqrt(np.maximum(variances, 0.0) / (count[:, 0] - 1))
    return means + centre, np.where(complete, spreads, np.inf)

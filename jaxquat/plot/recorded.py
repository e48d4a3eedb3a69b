"""The channels of a recording against time."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from jaxquat._internal.checks import instance, one_of
from jaxquat.plot.panels import NotebookFigure, draw_columns, flat
from jaxquat.recordings import Recording
from jaxquat.recordings.columns import SI
from jaxquat.recordings.recording import SENSORS, check_times

_MOST = 8  # panels that are readable in one figure
_LATE = 1.8  # median intervals: a longer one is a gap; without one sample it is 2
_XYZ = ("xyz", (0, 1, 2))  # names of components, and the numbers of their colours and dashes
_NAMED = {"gyro": _XYZ, "q": ("wxyz", (3, 0, 1, 2)), "accelerometer": _XYZ, "magnetometer": _XYZ}


def channels(recording: Recording, *names: str, ax: Any = None) -> np.ndarray:
    """Draw channels of a recording, one panel each, against one time axis [s].

    A line is broken between two samples more than 1.8 median intervals of its channel apart, and a
    sample between two gaps is a dot. So each sensor of a joined recording has an unbroken line.

    Args:
        recording: the recording.
        names: from ``recording.names``; by default gyro, q, movement, accelerometer and
            magnetometer as far as they exist, or else all channels. A new figure holds at most
            eight.
        ax: an array with axes for each channel, as ``figure.subplots(3)``; a new figure if None.

    Returns:
        The axes, an array (channels,), also for one channel.

    Examples:
        >>> recording = jq.recordings.Recording(np.arange(9) / 10, gyro=np.ones((9, 3)))
        >>> [ax.get_ylabel().split() for ax in jq.plot.channels(recording, "gyro")]
        [['gyro', '[rad/s]']]
    """
    instance("recording", recording, Recording, "a jq.recordings.Recording")
    check_times("recording.t", np.asarray(recording.t))
    for name in names:
        one_of("names", name, recording.names)
    if not recording.names:
        raise ValueError("recording: wanted a channel to draw, got none")
    names = names or tuple(x for x in recording.names if x in SENSORS) or recording.names
    panels = _panels(ax, len(names))
    for name, panel in zip(names, panels, strict=True):
        _draw(panel, name, np.asarray(recording.t), np.asarray(recording[name]))
        if ax is None:
            panel.label_outer()
    if ax is None:
        panels[0].figure.align_ylabels(panels)
    return panels


def _panels(ax: Any, count: int) -> np.ndarray:
    if ax is not None:
        panels = np.array([flat(one) for one in np.ravel(np.asarray(ax, object))])
        if len(panels) != count:
            raise ValueError(f"ax: wanted axes for each of {count} channels, got {len(panels)}")
        return panels
    if count > _MOST:
        wanted = f"at most {_MOST} channels in a new figure, or ax for them"
        raise ValueError(f"names: wanted {wanted}, got {count} channels")
    figure = NotebookFigure(figsize=(7.0, 0.9 + 1.5 * count), dpi=120, layout="constrained")
    return figure.subplots(count, sharex=True, squeeze=False)[:, 0]


def _draw(ax: Axes, name: str, t: np.ndarray, values: np.ndarray) -> None:
    unit = SI.get(name, "1").replace("^2", "²")
    columns = values.reshape(len(t), -1).astype(float)
    labels, looks = _NAMED.get(name, (range(columns.shape[1]), range(columns.shape[1])))
    style = {"drawstyle": "steps-post"} if values.dtype == bool else {}
    ylabel = name if unit == "1" else f"{name}\n[{unit}]"
    draw_columns(ax, *_with_gaps(t, columns), list(map(str, labels)), looks, ylabel, **style)
    if values.dtype == bool:
        ax.set_yticks([0, 1], ["no", "yes"])
    if columns.shape[1] > 1:
        beside: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
        ax.legend(frameon=False, markerscale=0, **beside)


def _with_gaps(t: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return times (m,) and values (m, k) of the samples, with a row of NaN in each gap."""
    rows = ~np.all(np.isnan(values), axis=1)
    t, values = t[rows], values[rows]
    intervals = np.diff(t)
    late = _LATE * np.median(intervals) if len(intervals) else 0.0
    later = np.flatnonzero(intervals > late) + 1
    return np.insert(t, later, t[later]), np.insert(values, later, np.nan, axis=0)

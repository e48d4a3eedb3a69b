"""The channels of a recording: samples, gaps, names, units, and the panels that hold them."""

import re

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

import jaxquat as jq

mpl.use("Agg")
from matplotlib import pyplot

from jaxquat import plot

T = 5.0 + 0.1 * np.arange(20)
GYRO = np.stack([T, 2 * T, 3 * T], axis=1)
Q = np.stack([np.cos(T), np.sin(T), 0 * T, 0 * T], axis=1)


def recording(**fields):
    return jq.recordings.Recording(T, **({"gyro": GYRO, "q": Q} | fields))


def lost(values, rows):
    """A copy without the samples of these rows."""
    values = np.array(values)
    values[rows] = np.nan
    return values


def test_a_panel_holds_the_samples_of_its_channel_with_names_and_units():
    fields = {"accelerometer": GYRO + 1, "magnetometer": GYRO + 2, "movement": T > 6}
    panels = plot.channels(recording(**fields))
    assert [ax.get_ylabel().replace("\n", " ") for ax in panels] == [
        "gyro [rad/s]",
        "q",
        "movement",
        "accelerometer [m/s²]",
        "magnetometer [T]",
    ]
    shown = [GYRO, Q, (T > 6)[:, None], GYRO + 1, GYRO + 2]
    for ax, values in zip(panels, shown, strict=True):
        np.testing.assert_array_equal([line.get_ydata() for line in ax.lines], values.T)
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), T)
    names = [[text.get_text() for text in ax.get_legend().get_texts()] for ax in panels[:2]]
    assert names == [["x", "y", "z"], ["w", "x", "y", "z"]]
    assert [line.get_color() for line in panels[1].lines[1:]] == list(plot.COLOURS[:3])
    assert panels[2].lines[0].get_drawstyle() == "steps-post"
    assert [ax.get_xlabel() for ax in panels] == ["", "", "", "", "time [s]"]
    assert panels[0].get_shared_x_axes().joined(panels[0], panels[4])
    assert pyplot.get_fignums() == []


def test_a_missing_sample_breaks_the_line_and_one_alone_is_a_dot():
    """The rows 3, 7 and 9 are lost: 8 is alone."""
    (ax,) = plot.channels(recording(gyro=lost(GYRO, [3, 7, 9])), "gyro")
    gap = [np.nan]
    for line, x in zip(ax.lines, GYRO.T, strict=True):
        wanted = np.concatenate([x[:3], gap, x[4:7], gap, x[8:9], gap, x[10:]])
        np.testing.assert_array_equal(line.get_ydata(), wanted)
        assert line.get_marker() == "."
        np.testing.assert_array_equal(line.get_ydata()[line.get_markevery()], x[8:9])


def test_sensors_that_were_joined_at_different_rates_each_have_their_line():
    """Every fifth row has a field, on its own clock, which comes early or late by 20 ms of 500.

    Between its samples the rows are NaN, and a line through neighbouring rows would show nothing.
    """
    slow, t = np.arange(0, 100, 5), 0.1 * np.arange(100)
    t[slow] += 0.02 * (-1.0) ** np.arange(20)
    field = lost(np.stack([t, t, t], axis=1), np.setdiff1d(np.arange(100), slow))
    (ax,) = plot.channels(jq.recordings.Recording(t, magnetometer=field))
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), t[slow])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), t[slow])


def test_other_channels_are_drawn_by_name_and_without_a_sensor_by_default():
    others = {"motors": np.stack([T] * 7, axis=1), "voltage": T}
    panels = plot.channels(recording(channels=others), "voltage", "motors")
    assert [ax.get_ylabel() for ax in panels] == ["voltage", "motors"]
    texts = [text.get_text() for text in panels[1].get_legend().get_texts()]
    assert texts == list("0123456")
    looks = {(line.get_color(), line.get_linestyle()) for line in panels[1].lines}
    assert len(looks) == 7
    assert len(plot.channels(recording(channels=others))) == 2
    alone = plot.channels(jq.recordings.Recording(T, channels=others))
    assert [ax.get_ylabel() for ax in alone] == ["motors", "voltage"]


def test_a_channel_without_a_sample_is_an_empty_panel():
    (ax,) = plot.channels(recording(q=np.full_like(Q, np.nan)), "q")
    assert all(line.get_ydata().size == 0 for line in ax.lines)


def test_panels_may_be_those_of_a_figure_at_hand():
    axes = Figure().subplots(2, 2)
    given = plot.channels(recording(), "gyro", "q", "q", "gyro", ax=axes)
    assert list(given) == list(axes.flat)
    assert [ax.get_xlabel() for ax in given] == ["time [s]"] * 4
    one = Figure().add_subplot()
    assert list(plot.channels(recording(), "q", ax=one)) == [one]


def test_the_error_for_a_recording_in_place_of_a_path_says_what_runs():
    """Its two calls are taken out of the message and run."""
    measured = recording()
    with pytest.raises(TypeError, match=r"path: wanted a jq\.Path, got a Recording; ") as caught:
        plot.body_axes(measured)
    draw, path = re.findall(r"jq\.[^ ]*\(.*?\)+(?= |$)", str(caught.value).split("; ")[1])
    scope = {"jq": jq, "recording": measured}
    assert len(eval(draw, scope)) == 2
    lines = plot.rates(eval(path, scope)).lines
    np.testing.assert_array_equal([line.get_ydata() for line in lines], GYRO.T)
    np.testing.assert_allclose(
        np.unwrap(plot.euler_angles(eval(path, scope)).lines[2].get_ydata()[:3], period=360),
        np.rad2deg(2 * T[:3]) - 720,
    )
    with pytest.raises(TypeError, match=r"jq.plot.channels\(recording\) draws its channels$"):
        plot.rates(jq.recordings.Recording(T, GYRO))


MANY = jq.recordings.Recording(T, channels={f"motor{k}": T for k in range(9)})
ERRORS = [
    (
        lambda: plot.channels(jq.recordings.Recording(T)),
        ValueError,
        "recording: wanted a channel to draw, got none",
    ),
    (
        lambda: plot.channels(jq.recordings.Recording(T[::-1], GYRO)),
        ValueError,
        "recording.t: wanted times that increase",
    ),
    (lambda: plot.channels(recording(), "omega"), ValueError, "names: .* 'gyro', 'q', got 'omega'"),
    (lambda: plot.channels(MANY), ValueError, "names: wanted at most 8 .*, got 9 channels"),
    (
        lambda: plot.channels(recording(), ax=Figure().subplots(3)),
        ValueError,
        "ax: wanted axes for each of 2 channels, got 3",
    ),
    (
        lambda: plot.euler_angles(jq.Path(jnp.zeros(2), jq.State(Q[:2], GYRO[:2])), "ZZX"),
        ValueError,
        "order: wanted three of XYZ",
    ),
]


@pytest.mark.parametrize(
    ("draw", "kind", "message"), ERRORS, ids=[message for _, _, message in ERRORS]
)
def test_errors(draw, kind, message):
    with pytest.raises(kind, match=message):
        draw()

"""Films as GIF: the colours of their frames, and the bar while they are written."""

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest

import jaxquat as jq

mpl.use("Agg")
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image, ImageSequence

from jaxquat import plot
from jaxquat.plot.gif import reduced

BODY = jq.Body.box(1.0, jnp.array([0.3, 0.5, 1.1]))
TIMES = np.arange(5.0)
TURNS = np.stack([np.cos(TIMES / 4), 0 * TIMES, np.sin(TIMES / 4), 0 * TIMES], -1)
PATH = jq.Path(
    jnp.asarray(TIMES), jq.State(jnp.asarray(TURNS), jnp.tile(jnp.array([0, 0.5, 0]), (5, 1)))
)


def film(file, **options):
    ax = Figure(figsize=(3, 3)).add_subplot(projection="3d")
    return plot.animate(PATH, BODY, file, fps=1, ax=ax, **options)


def packed(rgba):
    """Pixels (high, wide) of four bytes each, as the writer has them."""
    return np.ascontiguousarray(rgba, np.uint8).view("<u4")[..., 0]


def test_a_frame_of_at_most_256_colours_is_kept_as_it_is():
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (256, 3))
    rgb = colours[rng.integers(0, 256, (40, 50))]
    picture = reduced(packed(np.dstack([rgb, np.full((40, 50), 255)])))
    assert picture.mode == "P"
    np.testing.assert_array_equal(picture.convert("RGB"), rgb)


def test_a_frame_of_more_colours_is_as_near_as_pillow_makes_it():
    """Smooth edges of bands in all colours have a thousand; the mean error is near Pillow's."""
    figure = Figure(figsize=(3, 3))
    ax, x = figure.add_subplot(), np.linspace(0, 6, 50)
    for k, colour in enumerate(plot.COLOURS):
        ax.fill_between(x, np.sin(x + k) + k, np.sin(x + k) + 2 * k, color=colour, alpha=0.5)
        ax.plot(x, np.cos(x + k), color=colour)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    rgba = np.asarray(canvas.buffer_rgba())
    rgb = rgba[..., :3].astype(int)
    assert len(np.unique(rgb.reshape(-1, 3), axis=0)) > 1000

    def error(picture):
        return np.abs(np.asarray(picture.convert("RGB")).astype(int) - rgb).mean()

    pillow = Image.fromarray(rgba).convert("RGB").quantize(256)
    assert error(reduced(packed(rgba))) < 1.1 * error(pillow)


def test_a_transparent_frame_is_left_to_pillow():
    rgba = np.zeros((4, 5, 4))
    picture = reduced(packed(rgba))
    assert picture.mode == "RGBA"
    np.testing.assert_array_equal(picture, rgba)


def test_the_frames_of_a_film_have_the_colours_of_the_faces(tmp_path):
    """Navy, vermilion, amber and white fill areas, and stay what they are."""
    film(tmp_path / "turn.gif", progress=False)
    wanted = {
        tuple(np.rint(255 * np.array(mpl.colors.to_rgb(c))).astype(int))
        for c in (*plot.COLOURS[:3], "white")
    }
    with Image.open(tmp_path / "turn.gif") as image:
        frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]
    assert len(frames) == 5
    for frame in frames[1:]:
        assert wanted <= set(map(tuple, frame.reshape(-1, 3).tolist()))


@pytest.mark.parametrize(("progress", "shown"), [(True, "5/5 [00:"), (False, "")])
def test_a_bar_counts_the_frames_while_a_file_is_written(progress, shown, tmp_path, capsys):
    film(tmp_path / "turn.gif", progress=progress)
    printed = capsys.readouterr().err
    assert shown in printed
    assert bool(printed) == progress
    assert not progress or "frames/s" in printed


def test_without_a_file_there_is_no_bar(capsys):
    film(None)._draw_was_started = True
    assert capsys.readouterr().err == ""

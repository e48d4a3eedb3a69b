"""A writer of GIF that reduces each frame to 256 colours as it comes.

Pillow reduces the colours after the last frame is drawn, and looks at every pixel, which takes as
long as the drawing. But a drawing has few colours, in long runs of equal pixels: here Pillow
chooses 256 of these colours from a picture that has each of them in at most 1000 pixels. That is
enough for a colour which fills a face of the box, or the background, to be kept as it is.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib.animation import PillowWriter
from PIL import Image

_PIXELS = 1000
"""Pillow sees a colour in so many pixels at most."""


class GifWriter(PillowWriter):
    """matplotlib's writer by Pillow, with its own frames."""

    def setup(self, fig: Any, outfile: Any, dpi: Any = None) -> None:
        """Begin a film."""
        super().setup(fig, outfile, dpi)
        self.pictures: list[Image.Image] = []

    def grab_frame(self, **savefig_kwargs: Any) -> None:
        """Draw the figure and keep it as a frame."""
        file = io.BytesIO()
        self.fig.savefig(file, **{**savefig_kwargs, "format": "rgba", "dpi": self.dpi})
        wide, high = self.frame_size
        self.pictures.append(reduced(np.frombuffer(file.getbuffer(), "<u4").reshape(high, wide)))

    def finish(self) -> None:
        """Write the file."""
        first, *later = self.pictures
        timing: dict[str, Any] = {"duration": int(1000 / self.fps), "loop": 0}
        first.save(self.outfile, save_all=True, append_images=later, **timing)


def reduced(pixels: np.ndarray) -> Image.Image:
    """Return the picture of pixels (high, wide), each four bytes RGBA, with 256 colours.

    Where a pixel is not opaque the picture is returned as it is, for Pillow.
    """
    rgba = pixels.view(np.uint8).reshape(*pixels.shape, 4)
    if rgba[..., 3].min() < 255:
        return Image.fromarray(rgba)
    flat = pixels.ravel()
    starts = np.flatnonzero(np.append(True, flat[1:] != flat[:-1]))
    lengths = np.diff(starts, append=flat.size)
    colours, which = np.unique(flat[starts], return_inverse=True)
    counts = np.minimum(np.bincount(which, lengths), _PIXELS).astype(int)
    rgb = colours.view(np.uint8).reshape(-1, 4)[:, :3]
    few = Image.fromarray(np.repeat(rgb, counts, axis=0)[None]).quantize(256)
    numbers = np.asarray(few)[0, np.cumsum(counts) - 1]  # of each colour, in the palette
    picture = Image.fromarray(np.repeat(numbers[which], lengths).reshape(pixels.shape))
    picture.putpalette(few.getpalette() or [])
    return picture

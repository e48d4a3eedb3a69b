"""The colours of the pictures, as readers see them who have all cones or lack one kind.

The numbers of the simulations are those of G. M. Machado, M. M. Oliveira and L. A. F. Fernandes
(IEEE Trans. Visualization and Computer Graphics 15, 2009, 1291-1298), severity 1, on linear RGB.
Colours are compared in CIELAB (CIE 1976), where the smallest difference that one sees is about 2.3.
"""

import re
from itertools import combinations

import numpy as np
import pytest
from commands import ROOT
from matplotlib.colors import to_rgb

from jaxquat import plot

SEEN = {
    "all cones": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array(  # of linear sRGB, white D65 (IEC 61966-2-1)
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)


def cielab(colour, simulation):
    """L*, a*, b* of a colour, seen through a matrix on linear RGB."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    ratio = XYZ @ np.clip(simulation @ linear, 0, 1) / (XYZ @ np.ones(3))
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio * (29 / 6) ** 2 / 3 + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_cielab_of_known_colours():
    """White is (100, 0, 0), and sRGB's red (53.24, 80.09, 67.20)."""
    np.testing.assert_allclose(cielab("white", np.eye(3)), [100, 0, 0], atol=1e-10)
    np.testing.assert_allclose(cielab("red", np.eye(3)), [53.24, 80.09, 67.20], atol=0.01)


@pytest.mark.parametrize("simulation", SEEN)
@pytest.mark.parametrize(("count", "apart"), [(4, 32.0), (6, 28.0)])
def test_any_two_colours_stay_apart_for_every_reader(simulation, count, apart):
    """Ten times the smallest difference; for matplotlib's own first four it is 4.6."""
    seen = [cielab(colour, SEEN[simulation]) for colour in plot.COLOURS[:count]]
    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > apart


def test_every_example_draws_in_these_colours():
    """Besides black, white and greys it names none, and leaves none to matplotlib."""
    named = re.compile(r'"(?:tab:\w+|C\d|#[0-9a-f]{6}|gr[ae]y|red|green|blue|orange|gold)"')
    for file in sorted((ROOT / "examples").glob("*.py")):
        assert not named.findall(file.read_text()), file.name

"""Pictures of trajectories, ensembles, fits and schemes with matplotlib (extra ``plot``).

Import it with ``from jaxquat import plot``. Each function draws into ``ax``, or into a new figure
if ``ax`` is None, and returns the axes::

    plot.rates(path).figure.savefig("rates.png")

New figures are not registered with pyplot: nothing has to be closed, and ``plt.show()`` does not
show them. A notebook shows new axes, or ``ax.figure``, at the end of a cell; for a window, pass
``ax=plt.subplots()[1]``. ``COLOURS`` has the colours of all pictures, for curves that you add.
"""

from __future__ import annotations

import sys

from jaxquat._internal.checks import missing_package
from jaxquat._internal.renamed import answer as _answer

try:
    import matplotlib as _matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError(missing_package("plot", "matplotlib", "plot")) from error

from jaxquat.plot.animation import animate, box_sides
from jaxquat.plot.attitude_angles import euler_angles
from jaxquat.plot.curves import (
    allan_deviation,
    attitude_error,
    fan,
    fit_history,
    nyquist,
    rates,
    torque,
    work_precision,
)
from jaxquat.plot.panels import COLOURS
from jaxquat.plot.recorded import channels
from jaxquat.plot.spheres import body_axes, momentum_sphere, polhode
from jaxquat.plot.tracks import track

__all__ = [
    "COLOURS",
    "allan_deviation",
    "animate",
    "attitude_error",
    "body_axes",
    "box_sides",
    "channels",
    "euler_angles",
    "fan",
    "fit_history",
    "momentum_sphere",
    "nyquist",
    "polhode",
    "rates",
    "torque",
    "track",
    "work_precision",
]

_answer({"plot": sys.modules[__name__]})

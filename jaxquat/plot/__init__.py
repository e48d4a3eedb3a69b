"""Pictures of trajectories, recordings and ensembles with matplotlib (extra ``plot``).

Import it with ``from jaxquat import plot``. Each function draws one path, not a batch, into ``ax``,
or into a new figure if ``ax`` is None, and returns the axes. New figures are not registered with
pyplot: nothing has to be closed, and ``plt.show()`` does not show them. A notebook shows new axes,
or ``ax.figure``, at the end of a cell; for a window, pass ``ax=plt.subplots()[1]``. ``COLOURS`` has
the colours of all pictures. The examples draw this path of a body that tumbles.

Examples:
    >>> body = jq.Body.box(3.0, jnp.array([0.5, 0.35, 0.15]))  # kg, m
    >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), omega=jnp.array([0.15, 3.0, 0.15]))
    >>> path = jq.rollout(jq.zhao, body, jq.torques.zero, start, jq.grid(0.0, 0.02, 50))
    >>> ax = jq.plot.rates(path)  # ax.figure.savefig("rates.png") writes it
"""

from __future__ import annotations

import sys

from jaxquat._internal.checks import missing_package
from jaxquat._internal.renamed import answer as _answer

try:
    import matplotlib as _matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError(missing_package("plot", "matplotlib", "plot")) from error

from jaxquat.plot.animation import animate
from jaxquat.plot.curves import attitude_error, euler_angles, fan, nyquist, rates, torque
from jaxquat.plot.identification import identification
from jaxquat.plot.panels import COLOURS
from jaxquat.plot.recorded import channels
from jaxquat.plot.space import body_axes, momentum_sphere, track

__all__ = [
    "COLOURS",
    "animate",
    "attitude_error",
    "body_axes",
    "channels",
    "euler_angles",
    "fan",
    "identification",
    "momentum_sphere",
    "nyquist",
    "rates",
    "torque",
    "track",
]

_answer({"plot": sys.modules[__name__]})

"""A trajectory: what a simulation returns."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat._checks import floating, is_concrete
from jaxquat.dynamics.state import State
from jaxquat.rotations import quaternion, so3


class Path(NamedTuple):
    """A trajectory: ``steps // save_every + 1`` rows, the start included.

    Attributes:
        t: times [s], (rows,).
        state: State with leading axis rows; with ``save`` the last row alone, its axis kept.
        command: what the torque was given as ``held`` from each time on, leading axis rows: the controller's command; with inputs
            but no controller the input; () without both. The last row repeats the last one held.
        memory: of the controller, at the end; () without one.
        saved: what ``save`` made of each row, leading axis rows; () without it.
    """

    t: Array
    state: State
    command: Any
    memory: Any
    saved: Any = ()

    def at(self, t: ArrayLike) -> State:
        """The state at any times within the path, interpolated on the sphere. t (...) [s] -> q (..., 4), omega (..., 3), aux alike.

        NaN outside (ValueError if t is concrete). The rotation vector from the earlier saved attitude is the cubic that meets both
        attitudes and both rates, so the attitude is unit and of order 4 in the spacing, the rate its exact derivative and of order
        3; aux states are interpolated linearly. Saved attitudes must be less than a half turn apart.
        """
        if self.t.ndim != 1:
            raise ValueError(
                f"path: wanted one path, got times of shape {self.t.shape}; use jax.vmap over the paths"
            )
        check_rows(self)
        if self.t.size < 2:
            raise ValueError(
                f"path: wanted at least two rows to interpolate between, got {self.t.size}"
            )
        t = floating("t", t).astype(self.t.dtype)
        first, last = self.t[0], self.t[-1]
        if is_concrete((t, first, last)) and not np.all(
            (np.asarray(t) >= first) & (np.asarray(t) <= last)
        ):
            raise ValueError(f"t: wanted times within [{first}, {last}], got {t}")
        if t.ndim:
            return jax.vmap(self.at)(t)
        k = jnp.clip(jnp.searchsorted(self.t, t, side="right") - 1, 0, self.t.size - 2)
        a, b = (
            jax.tree.map(lambda x: x[k], self.state),
            jax.tree.map(lambda x: x[k + 1], self.state),
        )
        dt = self.t[k + 1] - self.t[k]
        s = jnp.where((t >= first) & (t <= last), (t - self.t[k]) / dt, jnp.nan)
        turn = quaternion.log(quaternion.relative(a.q, b.q))
        start, end = a.omega * dt, so3.dexpinv(turn, b.omega) * dt
        u = s * s * (3 - 2 * s) * turn + s * (1 - s) ** 2 * start - s * s * (1 - s) * end
        rate = 6 * s * (1 - s) * turn + (1 - s) * (1 - 3 * s) * start - s * (2 - 3 * s) * end
        return State(
            quaternion.correct_norm(quaternion.multiply(a.q, quaternion.exp(u))),
            so3.dexp(u, rate) / dt,
            jax.tree.map(lambda x, y: (1 - s) * x + s * y, a.aux, b.aux),
        )


def check_rows(path: Path) -> None:
    """ValueError if the path has not the states of all rows."""
    if len(path.state.q) != path.t.size:
        raise ValueError(
            "path: wanted the states of all rows, got the last alone; leave out save= of rollout"
        )

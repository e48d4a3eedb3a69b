"""The trajectory that a simulation returns."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxquat import quaternion, so3
from jaxquat._internal import reprs
from jaxquat._internal.checks import floating, is_concrete
from jaxquat.dynamics.state import State


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False, eq=False)
class Path(reprs.InOneLine):
    """A trajectory of ``steps // save_every + 1`` rows, the start included; a pytree.

    ``len(path)`` is the number of rows. ``path[10:20]`` is the path of these rows; its ``final`` is
    the last of their states and its ``memory`` is ().

    Attributes:
        t: times [s], (rows,).
        state: State with leading axis rows; () where ``save`` replaces states and commands.
        saved: what ``save`` returned for each row, leading axis rows; () without ``save``.
        command: the command of the controller, or else the input, from each time on, leading axis
            rows; the last row repeats that of the last sample, so sums take ``command[:-1]``. ()
            without controller and inputs, and with ``save``.
        memory: the controller's memory at the end; () without a controller.
        final: the state at the last time; () in a slice that ends before a path without states.

    Examples:
        >>> body = jq.Body(jnp.diag(jnp.array([2.0, 3.0, 4.0])))
        >>> start = jq.State(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.0, 1.0]))
        >>> path = jq.rollout(jq.rkmk4, body, jq.torques.zero, start, jq.grid(0.0, 0.25, 8))
        >>> path
        <Path: 9 rows, t = 0 to 2 s, state .q float32[9, 4], .omega float32[9, 3]>
    """

    t: Array
    state: State
    _: KW_ONLY
    saved: Any = ()
    command: Any = ()
    memory: Any = ()
    final: State = ()  # type: ignore[assignment]

    def at(self, t: ArrayLike) -> State:
        """Interpolate the state at any times within the path.

        t (...) [s] -> q (..., 4), omega (..., 3), and likewise position, velocity and aux. Outside
        the path the state is NaN (ValueError if t is concrete). The rotation vector from the
        earlier row is the cubic that meets both attitudes and both rates: the attitude is unit,
        with an error of order 4 in the spacing; the rate is its exact derivative, with an error of
        order 3. Position and velocity are interpolated likewise, aux states linearly. Attitudes of
        neighbouring rows must be less than a half turn apart.

        Examples:
            >>> between = path.at(0.6)  # s, at 1 rad/s
            >>> f"{jq.quaternion.log(between.q)[2]:.3f} rad, {between.omega[2]:.3f} rad/s"
            '0.600 rad, 1.000 rad/s'
        """
        check_rows(self)
        if self.t.size < 2:
            wanted = "at least two rows to interpolate between"
            raise ValueError(f"path: wanted {wanted}, got {self.t.size}")
        t = floating("t", t).astype(self.t.dtype)
        with jax.ensure_compile_time_eval():  # stays concrete under jit if the path is concrete
            first, last = self.t[0], self.t[-1]
        if is_concrete((t, first, last)):
            times, begin, end = map(np.asarray, (t, first, last))
            if not np.all((times >= begin) & (times <= end)):
                raise ValueError(f"t: wanted times within [{first}, {last}], got {t}")
        if t.ndim:
            return jax.vmap(self.at)(t)
        # Several rows may share one time. The last of them is the row before t; at the last time
        # the first of them is the row after t.
        before = jnp.searchsorted(self.t, t, side="right") - 1
        before = jnp.minimum(before, jnp.searchsorted(self.t, last, side="left") - 1)
        k = jnp.clip(before, 0, self.t.size - 2)
        a, b = (jax.tree.map(lambda x, k=k: x[k], self.state) for k in (k, k + 1))
        dt = self.t[k + 1] - self.t[k]
        dt = jnp.where(dt != 0, dt, jnp.ones_like(dt))  # it is 0 if all rows share one time
        s = jnp.where((t >= first) & (t <= last), (t - self.t[k]) / dt, jnp.nan)
        turn = quaternion.log(quaternion.relative(a.q, b.q))
        u, rate = cubic(s, turn, a.omega * dt, so3.dexpinv(turn, b.omega) * dt)
        position = velocity = None
        if a.position is not None:
            moved, slope = cubic(s, b.position - a.position, a.velocity * dt, b.velocity * dt)
            position, velocity = a.position + moved, slope / dt
        return State(
            quaternion.correct_norm(quaternion.multiply(a.q, quaternion.exp(u))),
            so3.dexp(u, rate) / dt,
            jax.tree.map(lambda x, y: (1 - s) * x + s * y, a.aux, b.aux),
            position,
            velocity,
        )

    __iter__ = None  # iteration over rows is not supported

    def __len__(self) -> int:
        """Return the number of rows. TypeError for more than one path."""
        if jnp.ndim(self.t) != 1:
            hint = "path.t.shape[-1] is the number of rows of each"
            raise TypeError(f"path: wanted one path, got times of shape {self.t.shape}; {hint}")
        return self.t.size

    def __bool__(self) -> bool:
        return True  # also for several paths, which have no length

    def __getitem__(self, rows: slice) -> Path:
        """Return the rows of a slice. ValueError for more than one path, or for no rows."""
        if not isinstance(rows, slice):
            k = rows if isinstance(rows, int) else "k"
            states = f"jax.tree.map(lambda x: x[{k}], path.state) is the state of a row"
            wanted = f"a slice such as path[10:20] ({states}, path.final the last state)"
            raise TypeError(f"rows: wanted {wanted}, got {rows!r}")
        _check_one(self)
        numbers = range(*rows.indices(self.t.size))
        if not numbers:
            raise ValueError(f"rows: wanted at least one of {self.t.size} rows, got {rows}")
        t, state, saved, command = jax.tree.map(
            lambda x: x[rows], (self.t, self.state, self.saved, self.command)
        )
        if isinstance(self.state, State):
            final: Any = jax.tree.map(lambda x: x[-1], state)
        else:
            final = self.final if numbers[-1] == self.t.size - 1 else ()
        return Path(t, state, saved=saved, command=command, final=final)

    def _table(self) -> reprs.Table:
        names = ("state", "saved", "command", "memory")
        parts = [(name, getattr(self, name)) for name in names]
        facts = [(name, reprs.shapes(part)) for name, part in parts if jax.tree.leaves(part)]
        return f"Path: {self._extent()}", list(facts), ()

    def _extent(self) -> str:
        *paths, rows = getattr(self.t, "shape", ()) or (0,)  # JAX may put placeholders in a pytree
        if paths:
            return f"{' x '.join(map(str, paths))} paths of {rows} rows"
        if rows and isinstance(self.t, np.ndarray | Array) and is_concrete(self.t):
            return f"{rows} rows, t = {self.t[0]:.6g} to {self.t[-1]:.6g} s"
        return f"{rows} rows"


def cubic(s: Array, end: Array, v0: Array, v1: Array) -> tuple[Array, Array]:
    """Return Hermite's cubic from 0 (s = 0) to ``end`` (s = 1), slopes v0 and v1; and its slope."""
    value = s * s * (3 - 2 * s) * end + s * (1 - s) ** 2 * v0 - s * s * (1 - s) * v1
    return value, 6 * s * (1 - s) * end + (1 - s) * (1 - 3 * s) * v0 - s * (2 - 3 * s) * v1


def check_rows(path: Path) -> None:
    """Raise ValueError if this is not one path with the states of all rows."""
    _check_one(path)
    if not isinstance(path.state, State):
        got = "none, because save= of rollout replaced them"
        raise ValueError(f"path: wanted the states of all rows, got {got}")


def _check_one(path: Path) -> None:
    if path.t.ndim != 1:
        got = f"times of shape {path.t.shape}; use jax.vmap over the paths"
        raise ValueError(f"path: wanted one path, got {got}")

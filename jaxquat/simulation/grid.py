"""The times of a simulation: equal steps, or steps through given times; no time is accumulated."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jaxquat._internal import checks

STATIC = {"static": True}  # metadata of fields that are not leaves
IN_A_ROW = 8  # intervals in a row that may be too short: more sensors are rarely merged


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Grid:
    """``steps`` equal steps ``dt`` from ``t0``, made by ``jq.grid``.

    It is a pytree in which only ``t0`` and ``dt`` are leaves; change the others with
    ``dataclasses.replace(grid, save_every=10)``.

    Attributes:
        t0: the time of the start [s], ().
        dt: the step [s], ().
        steps: the number of steps.
        sample_every: steps per sample of a controller or of inputs.
        save_every: steps per row of the path.

    Examples:
        >>> grid = jq.grid(0.0, 0.01, 1000)
        >>> grid.steps, grid.times().shape
        (1000, (1001,))
    """

    t0: ArrayLike
    dt: ArrayLike
    steps: int = field(metadata=STATIC)
    sample_every: int = field(default=1, metadata=STATIC)
    save_every: int = field(default=1, metadata=STATIC)

    @property
    def intervals(self) -> int:
        """The number of intervals, here ``steps``; nothing is sampled or saved within an interval.

        Examples:
            >>> grid.intervals  # by default inputs have one row per interval
            1000
        """
        return self.steps

    def times(self, dtype: DTypeLike | None = None) -> Array:
        """Return all times ``t0 + k dt`` [s], not accumulated, (steps + 1,), by default as ``dt``.

        Examples:
            >>> f"{jq.grid(0.0, 0.1, 10_000).times()[-1]:.2f} s"  # a float32 sum would be 999.90 s
            '1000.00 s'
        """
        if checks.floating_dtype("dtype", dtype) is None:
            dtype = jax.dtypes.canonicalize_dtype(getattr(self.dt, "dtype", float))
        t0, dt = jnp.asarray(self.t0, dtype), jnp.asarray(self.dt, dtype)
        return t0 + jnp.arange(self.steps + 1).astype(dtype) * dt


def grid(
    t0: ArrayLike, dt: ArrayLike, steps: int, *, sample_every: int = 1, save_every: int = 1
) -> Grid:
    """Make a grid of ``steps >= 1`` steps ``dt > 0`` [s] from ``t0`` [s].

    ``t0`` and ``dt`` are scalars, differentiable, and cast to the dtype of the state by
    ``rollout``. A controller, or inputs, are sampled every ``sample_every`` steps, and the path has
    a row every ``save_every`` steps; both are divisors of ``steps``. ValueError or TypeError for
    bad values, of traced ones with ``check=True``.

    Each step has the length dt, but the torque sees rounded times, off by about ``eps |t| / 2``.
    ``rollout`` refuses steps below ``eps |t|`` at either end, because times would coincide; eps is
    that of the state's dtype. In float32 that is .012 s at 1e5 s and 119 s at 1e9 s; start at 0 and
    add the offset in the torque, or use float64.

    Examples:
        >>> jq.grid(0.0, 0.25, 4).times()  # s
        Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    steps = checks.positive_integer("steps", steps, "; the order is jq.grid(t0, dt, steps)")
    for name, value in (("t0", t0), ("dt", dt)):
        shape = jnp.shape(checks.floating(name, value))
        if shape != ():
            raise ValueError(f"{name}: wanted a scalar, got shape {shape}")
        if checks.is_concrete(value) and not math.isfinite(float(np.asarray(value))):
            raise ValueError(f"{name}: wanted a finite number, got {value}")
    if checks.is_concrete(dt) and not float(np.asarray(dt)) > 0:
        raise ValueError(f"dt: wanted a positive step, got {dt}")
    sample_every = checks.divisor("sample_every", sample_every, steps, "steps")
    save_every = checks.divisor("save_every", save_every, steps, "steps")
    return Grid(t0, dt, steps, sample_every, save_every)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GridAt:
    """Steps through given times, made by ``jq.grid_at``; a pytree whose only leaf is ``stamps``.

    Attributes:
        stamps: the given times [s], (intervals + 1,), in their own dtype.
        substeps: the number of equal steps in each interval.
        sample_every: intervals per sample of a controller or of inputs.
        save_every: intervals per row of the path.

    Examples:
        >>> grid = jq.grid_at(np.array([0.0, 0.01, 0.03, 0.032]), substeps=4)
        >>> grid.stamps.shape
        (4,)
    """

    stamps: ArrayLike
    substeps: int = field(metadata=STATIC)
    sample_every: int = field(default=1, metadata=STATIC)
    save_every: int = field(default=1, metadata=STATIC)

    @property
    def intervals(self) -> int:
        """The number of intervals, empty ones included.

        Examples:
            >>> grid.intervals
            3
        """
        return jnp.shape(self.stamps)[-1] - 1

    @property
    def steps(self) -> int:
        """The number of steps, including those in empty intervals.

        Examples:
            >>> grid.steps  # 3 intervals of 4
            12
        """
        return self.intervals * self.substeps

    def times(self, dtype: DTypeLike | None = None) -> Array:
        """Return the given times [s], (intervals + 1,), by default in their own dtype.

        Examples:
            >>> grid.times(jnp.float32)
            Array([0.   , 0.01 , 0.03 , 0.032], dtype=float32)
        """
        return jnp.asarray(self.stamps, checks.floating_dtype("dtype", dtype))

    def step_lengths(self) -> Any:
        """Return the step in each interval [s], (intervals,), in the dtype of the given times.

        NumPy subtracts concrete times, so that float64 ones are not first rounded to float32.

        Examples:
            >>> grid.step_lengths()
            array([0.0025, 0.005 , 0.0005])
        """
        stamps: Any = np.asarray(self.stamps) if checks.is_concrete(self.stamps) else self.stamps
        return (stamps[1:] - stamps[:-1]) / self.substeps


def grid_at(
    times: ArrayLike, substeps: int = 1, *, sample_every: int = 1, save_every: int = 1
) -> GridAt:
    """Make a grid through given times, with equal steps in each interval between them.

    Step j of the interval from t_i to t_{i+1} begins at ``t_i + j h``, with
    ``h = (t_{i+1} - t_i) / substeps``. Times may be traced, mapped over and differentiated. In an
    interval of length 0 state, command and memory stay the same, bit for bit, and contribute
    nothing to derivatives; one with respect to its ends assumes that it stays empty. So recordings
    can be padded to one length, for ``jax.vmap``, by repeating their last time.

    Args:
        times: (n + 1,) [s] with n >= 1, floats that do not decrease. Their differences are taken in
            their own dtype, then cast to the dtype of the state; the times are cast, too. A float32
            of 1e9 s is off by up to 32 s: give ``stamps - stamps[0]``, subtracted in float64.
            ``rollout`` refuses times whose steps are below the bound in ``jq.grid``, on average or
            in more than 8 intervals in a row, empty ones left out. If the times have a coarser
            dtype than the state, the bound uses their own eps and whole intervals.
        substeps: steps in each interval, at least 1.
        sample_every: intervals per sample of a controller or of inputs, a divisor of their number.
        save_every: intervals per row of the path, a divisor of their number.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value; the error names it.
            ``rollout`` reports bad traced times with ``check=True``.

    Examples:
        >>> stamps = np.array([0.0, 0.1, 0.4, 0.4])  # s; the last interval is empty
        >>> jq.grid_at(stamps, substeps=2).step_lengths()
        array([0.05, 0.15, 0.  ])
    """
    substeps = checks.positive_integer("substeps", substeps)
    array = checks.floating("times", times)
    if array.ndim != 1 or array.size < 2:
        hint = "; use jax.vmap for several recordings" if array.ndim > 1 else ""
        raise ValueError(f"times: wanted shape (n + 1,) with n >= 1, got {array.shape}{hint}")
    is_host = checks.is_concrete(times) and not isinstance(times, Array)
    stamps = np.asarray(times) if is_host else array
    checks.finite("times", stamps)
    if checks.is_concrete(stamps):
        with np.errstate(over="ignore"):
            lengths = np.diff(np.asarray(stamps))
        checks.finite("differences of times", lengths)
        for k in np.flatnonzero(lengths < 0)[:1]:
            got = f"times[{k}] = {stamps[k]}, times[{k + 1}] = {stamps[k + 1]}"
            raise ValueError(f"times: wanted times that do not decrease, got {got}")
        spacing = np.spacing(np.abs(np.asarray(stamps)[0]))
        if not lengths.any() and spacing > 1e-3:  # s: seconds since 1970 in float32
            got = f"{stamps.size} times {stamps[0]} in {stamps.dtype}"
            hint = f"; {stamps.dtype} there has steps of {spacing:.2g} s: "
            hint += "subtract the first time in float64"
            raise ValueError(f"times: wanted times that differ, got {got}{hint}")
    sample_every = checks.divisor("sample_every", sample_every, len(stamps) - 1, "intervals")
    save_every = checks.divisor("save_every", save_every, len(stamps) - 1, "intervals")
    return GridAt(stamps, substeps, sample_every, save_every)


def check_resolution(grid: Grid | GridAt, dtype: DTypeLike) -> None:
    """Raise ValueError if this dtype cannot tell the times of a concrete grid apart."""
    if not checks.is_concrete(grid):
        return
    if isinstance(grid, Grid):
        t0, dt = float(np.asarray(grid.t0)), float(np.asarray(grid.dt))
        times, steps = np.array([t0, t0 + grid.steps * dt]), np.array([dt])
    else:
        times, steps = np.asarray(grid.stamps, float), grid.step_lengths().astype(float)
    coincide, text, facts = coinciding(grid, times, steps, dtype)
    if coincide:
        raise ValueError(text.format(**facts))


def coinciding(
    grid: Grid | GridAt, times: Any, steps: Any, dtype: DTypeLike
) -> tuple[Any, str, dict[str, Any]]:
    """Return whether steps are below eps times their farther end, and the error with its values."""
    # Neither the mean step may be nor more than ``IN_A_ROW`` in a row: merged stamps have some. If
    # the stamps have a coarser dtype than the state, its eps is used, for whole intervals.
    xp = jnp if isinstance(steps, Array) else np
    eps, hint = float(jnp.finfo(dtype).eps), "start at 0 and add the offset in the torque"
    hint += "" if jnp.dtype(dtype) == jnp.float64 else ", or use float64"
    if isinstance(grid, GridAt):
        stored = jnp.result_type(grid.stamps)
        of_stamps = float(jnp.finfo(stored).eps) / grid.substeps
        if of_stamps > eps:
            eps, dtype, hint = of_stamps, stored, "subtract the first time in float64"
    far = xp.maximum(abs(times[:-1]), abs(times[1:]))
    filled = steps != 0
    apart = filled & (steps >= eps * far)
    short = xp.cumsum(filled & ~apart)
    in_a_row = short - xp.maximum.accumulate(xp.where(apart, short, 0))
    k, mean = in_a_row.argmax(), steps.sum() / filled.sum().clip(1).astype(steps.dtype)
    of_all = filled.any() & (mean < eps * far.max())
    t, step = xp.where(of_all, far.max(), far[k]), xp.where(of_all, mean, steps[k])
    wanted = f"steps that {jnp.dtype(dtype)} can tell apart at t = {{t:.6g}} s"
    text = f"grid: wanted {wanted} (at least {{least:.3g}} s), got {{dt:.6g}} s; {hint}"
    return of_all | (in_a_row[k] > IN_A_ROW), text, {"t": t, "least": eps * t, "dt": step}

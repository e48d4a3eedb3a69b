"""The times of a simulation: equal steps, every time from its index."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jaxquat._checks import floating, floating_dtype, is_concrete, positive_integer


@partial(jax.tree_util.register_dataclass, data_fields=["t0", "dt"], meta_fields=["steps"])
@dataclass(frozen=True)
class Grid:
    """``steps`` equal steps ``dt`` from ``t0``. Made by ``jq.grid``; a pytree, ``steps`` static.

    Attributes:
        t0: the time of the start [s], ().
        dt: the step [s], ().
        steps: their number, an int.
    """

    t0: ArrayLike
    dt: ArrayLike
    steps: int

    def times(self, dtype: DTypeLike | None = None) -> Array:
        """Return all times ``t0 + k dt`` [s] from the index, (steps + 1,).

        Without ``dtype`` they are in that of ``dt``, or the default one.
        """
        if floating_dtype("dtype", dtype) is None:
            dtype = jax.dtypes.canonicalize_dtype(getattr(self.dt, "dtype", float))
        t0, dt = jnp.asarray(self.t0, dtype), jnp.asarray(self.dt, dtype)
        return t0 + jnp.arange(self.steps + 1).astype(dtype) * dt


def grid(t0: ArrayLike, dt: ArrayLike, steps: int) -> Grid:
    """Make a grid of ``steps >= 1`` steps ``dt > 0`` [s] from ``t0`` [s].

    ``t0`` and ``dt`` are scalars, differentiable, and cast to the dtype of the state by
    ``rollout``. ValueError or TypeError for bad values.
    """
    steps = positive_integer("steps", steps)
    for name, value in (("t0", t0), ("dt", dt)):
        shape = jnp.shape(floating(name, value))
        if shape != ():
            raise ValueError(f"{name}: wanted a scalar, got shape {shape}")
        if is_concrete(value) and not math.isfinite(float(np.asarray(value))):
            raise ValueError(f"{name}: wanted a finite number, got {value}")
    if is_concrete(dt) and not float(np.asarray(dt)) > 0:
        raise ValueError(f"dt: wanted a positive step, got {dt}")
    return Grid(t0, dt, steps)

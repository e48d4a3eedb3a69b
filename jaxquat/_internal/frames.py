"""Changes between the axes of aircraft and of robots, of NumPy and of JAX arrays alike."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array

A = TypeVar("A", Array, np.ndarray)


def ned_enu(vector: A) -> A:
    """Change (north, east, down) to (east, north, up), or back. (..., 3) -> (..., 3)."""
    x, y, z = (vector[..., k] for k in range(3))
    return _joined([y, x, -z])


def frd_flu(vector: A) -> A:
    """Change (forward, right, down) to (forward, left, up), or back. (..., 3) -> (..., 3)."""
    x, y, z = (vector[..., k] for k in range(3))
    return _joined([x, -y, -z])


def attitude(q: A) -> A:
    """Change an attitude from FRD-to-NED to FLU-to-ENU, or back. (..., 4) -> (..., 4).

    Both changes of axes are half turns: ``ned_enu`` about (1, 1, 0), ``frd_flu`` about (1, 0, 0).
    With a = sqrt(1/2) (i + j) the new attitude is a q i*, where

        a q = sqrt(1/2) (-(x + y) + (w + z) i + (w - z) j - (x - y) k),

    and the product with i* = -i from the right takes 1, i, j, k to -i, 1, k, -j.
    """
    w, x, y, z = (math.sqrt(0.5) * q[..., k] for k in range(4))
    return _joined([w + z, x + y, x - y, w - z])


def _joined(parts: list[A]) -> A:
    stack: Any = np.stack if isinstance(parts[0], np.ndarray | np.generic) else jnp.stack
    return stack(parts, axis=-1)

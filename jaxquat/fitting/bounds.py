"""Bounds of parameters, at which the steps of the iteration end (trust_region.py)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxquat._internal.checks import floating


class Bounds(NamedTuple):
    """Lower and upper bounds of n parameters, (n,) float64, infinite where a side is open."""

    lower: np.ndarray
    upper: np.ndarray

    def room(self, x: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and highest step from x to the bounds, times a scale."""
        with np.errstate(over="ignore"):  # a bound may be too far away to matter
            return (self.lower - x) * scale, (self.upper - x) * scale

    def moved(self, x: np.ndarray, step: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Return ``x + step/scale``, exactly a bound where the step reaches one."""
        lowest, highest = self.room(x, scale)
        inside = np.clip(x + step / scale, self.lower, self.upper)
        return np.select([step <= lowest, step >= highest], [self.lower, self.upper], inside)


def checked_bounds(bounds: Any, params: Any) -> Bounds:
    """Return the bounds from a pair of prefixes of the tree, rounded inwards to its dtypes."""
    if bounds is None:
        bounds = None, None
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        raise TypeError(f"bounds: wanted a pair (lower, upper) or None, got {bounds!r}")
    lower = _side("bounds[0]", bounds[0], params, -np.inf)
    upper = _side("bounds[1]", bounds[1], params, np.inf)
    if not np.all(lower < upper):
        raise ValueError(f"bounds: wanted lower below upper, got {lower} and {upper}")
    return Bounds(lower, upper)


def check_inside(bounds: Bounds, x: np.ndarray, names: tuple[str, ...]) -> None:
    """Raise a ValueError that names a parameter outside its bounds; it may lie on a bound."""
    for k in np.flatnonzero(~((bounds.lower <= x) & (x <= bounds.upper)))[:1]:
        interval = f"[{bounds.lower[k]:.6g}, {bounds.upper[k]:.6g}]"
        raise ValueError(f"params: wanted {names[k]} in {interval}, got {x[k]:.6g}")


def _side(name: str, side: Any, params: Any, fill: float) -> np.ndarray:
    def of_leaves(path: Any, bound: Any, subtree: Any) -> Any:
        if bound is not None and not jax.tree.leaves(subtree):
            place, wanted = jax.tree_util.keystr(path), "None because nothing is fitted there"
            raise ValueError(f"{name}{place}: wanted {wanted}, got {bound!r}")
        value = fill if bound is None else np.asarray(floating(name, bound), float)
        if np.any(np.isnan(value)):
            raise ValueError(f"{name}: wanted numbers, got {value}")
        return jax.tree.map(lambda leaf: _bound_of(name, value, leaf, -fill), subtree)

    try:
        full = jax.tree_util.tree_map_with_path(
            of_leaves, side, params, is_leaf=lambda x: x is None
        )
    except ValueError as error:
        if str(error).startswith("bounds"):
            raise
        wanted = "a tree like params, or a prefix of it"
        raise ValueError(f"{name}: wanted {wanted}, got {jax.tree.structure(side)}") from error
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(full)])


def _bound_of(name: str, value: Any, leaf: Any, inwards: float) -> np.ndarray:
    """Return the bounds of a leaf, in its shape: float64 numbers that its dtype represents."""
    if np.shape(value) not in ((), leaf.shape):
        raise ValueError(f"{name}: wanted shape () or {leaf.shape}, got {np.shape(value)}")
    with np.errstate(over="ignore"):  # a bound may exceed the dtype's largest number
        rounded = np.asarray(value, leaf.dtype)
    outside = rounded.astype(float) < value if inwards > 0 else rounded.astype(float) > value
    inside = np.where(outside, np.nextafter(rounded, leaf.dtype.type(inwards)), rounded)
    return np.broadcast_to(inside.astype(float), leaf.shape)

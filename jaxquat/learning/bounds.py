"""Bounds of parameters by a transformation: x between its bounds is a function of any real y.

    both bounds   x = lower + (upper - lower) / (1 + exp(-y))
    lower alone   x = lower + exp(y)
    upper alone   x = upper - exp(y)
    none          x = y

The iteration moves y and so never leaves the bounds. Units of x do not matter, because a factor
on x and its bounds changes y by a constant or not at all.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from jaxquat._checks import floating


class Bounds(NamedTuple):
    """Lower and upper bounds of n parameters, (n,) float64, infinite where a side is open."""

    lower: np.ndarray
    upper: np.ndarray

    def unbounded(self, x: np.ndarray) -> np.ndarray:
        """The y of parameters x strictly between the bounds."""
        below, above = x - self.lower, self.upper - x
        has_lower, has_upper = np.isfinite(self.lower), np.isfinite(self.upper)
        with np.errstate(divide="ignore", invalid="ignore"):  # in columns that are not chosen
            choices = [np.log(below / above), np.log(below), np.log(above)]
        return np.select([has_lower & has_upper, has_lower, has_upper], choices, x)

    def bounded(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The parameters x of any y, and the derivatives dx/dy."""
        has_lower, has_upper = np.isfinite(self.lower), np.isfinite(self.upper)
        both = has_lower & has_upper
        width = np.where(both, self.upper - self.lower, 1.0)
        with np.errstate(over="ignore"):  # exp(-y) = inf is the lower bound itself
            share = 1.0 / (1.0 + np.exp(-y))
            grown = np.exp(np.where(has_lower | has_upper, y, 0.0))
        lower, upper = np.where(has_lower, self.lower, 0.0), np.where(has_upper, self.upper, 0.0)
        kinds = [both, has_lower, has_upper]
        x = np.select(kinds, [lower + width * share, lower + grown, upper - grown], y)
        slope = np.select(kinds, [width * share * (1.0 - share), grown, -grown], 1.0)
        return x, slope


def checked_bounds(bounds: Any, params: Any) -> Bounds:
    """The bounds ``(lower, upper)`` of a tree of parameters, each a prefix of it.

    ValueError or TypeError, by name, if they do not fit the tree or one another.
    """
    if bounds is None:
        bounds = None, None
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        raise TypeError(f"bounds: wanted a pair (lower, upper) or None, got {bounds!r}")
    sides = [
        _side(f"bounds[{k}]", side, params, fill)
        for k, (side, fill) in enumerate(zip(bounds, (-np.inf, np.inf), strict=True))
    ]
    lower, upper = sides
    if not np.all(lower < upper):
        raise ValueError(f"bounds: wanted lower below upper, got {lower} and {upper}")
    return Bounds(lower, upper)


def check_inside(bounds: Bounds, x: np.ndarray, names: tuple[str, ...]) -> None:
    """ValueError that names a parameter that is not strictly between its bounds."""
    for k in np.flatnonzero(~((bounds.lower < x) & (x < bounds.upper)))[:1]:
        interval = f"({bounds.lower[k]:.6g}, {bounds.upper[k]:.6g})"
        raise ValueError(f"params: wanted {names[k]} in {interval}, ends excluded, got {x[k]:.6g}")


def _side(name: str, side: Any, params: Any, fill: float) -> np.ndarray:
    """The bounds of one side, (n,), from a prefix of the tree of parameters."""

    def of_leaves(bound: Any, subtree: Any) -> Any:
        value = fill if bound is None else np.asarray(floating(name, bound), float)
        if np.any(np.isnan(value)):
            raise ValueError(f"{name}: wanted numbers, got {value}")
        return jax.tree.map(lambda leaf: _broadcast(name, value, np.shape(leaf)), subtree)

    try:
        full = jax.tree.map(of_leaves, side, params, is_leaf=lambda x: x is None)
    except ValueError as error:
        if str(error).startswith("bounds"):
            raise
        wanted = "a tree like params, or a prefix of it"
        raise ValueError(f"{name}: wanted {wanted}, got {jax.tree.structure(side)}") from error
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(full)])


def _broadcast(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    if np.shape(value) not in ((), shape):
        raise ValueError(f"{name}: wanted shape () or {shape}, got {np.shape(value)}")
    return np.broadcast_to(value, shape)

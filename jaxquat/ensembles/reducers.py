"""What becomes of the members' outputs: summaries of a chunk, computed on the host in float64, that can be merged.

Every reducer here takes ``of``, a function of the outputs of a chunk (a pytree of NumPy arrays with a leading axis of members)
that gives what is to be reduced, a pytree with the same leading axis; None takes all. Booleans count as 0 and 1. Members that
failed are left out before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxquat._checks import arrays, function, numbers, positive_integer, real

Of = Callable[[Any], Any] | None


class Reducer(NamedTuple):
    """A statistic that can be merged. Summaries are pytrees of NumPy arrays; all processes must find the same structure.

    Attributes:
        summarise: ``summarise(outputs, numbers) -> summary`` of m >= 0 members: outputs with leading axis m, their numbers (m,).
        merge: ``merge(a, b) -> summary`` of those of earlier and of later members.
        finish: ``finish(summary) -> result``.
    """

    summarise: Callable[[Any, np.ndarray], Any]
    merge: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any]


class Mean(NamedTuple):
    """Result of ``mean``, float64 pytrees like what was reduced.

    Attributes:
        n: members that did not fail.
        mean: of the members.
        std: standard deviation of the members, with n - 1.
        standard_error: of the mean, ``std / sqrt(n)``.
    """

    n: int
    mean: Any
    std: Any
    standard_error: Any


class Covariance(NamedTuple):
    """Result of ``covariance``: of the leaves raveled and put one after the other, d numbers a member, float64.

    Attributes:
        n: members that did not fail.
        mean: of the members, (d,).
        matrix: covariance of the members, (d, d), with n - 1.
    """

    n: int
    mean: np.ndarray
    matrix: np.ndarray


class Extremes(NamedTuple):
    """Result of ``largest`` and ``smallest``: the most extreme first, of equals the lowest number first.

    Attributes:
        value: (k,) float64, fewer if there are fewer members that did not fail.
        members: (k,) int64, whose they are: numbers for ``keys``, so that ``jax.vmap(sample)(keys(key, members))`` draws these
            members again.
    """

    value: np.ndarray
    members: np.ndarray


class _Moments(NamedTuple):
    """Of the rows of x."""

    n: np.ndarray  # () int64
    mean: np.ndarray
    square: np.ndarray  # sum of the squared deviations from the mean, or of their outer products


class _Bins(NamedTuple):
    """How many values fell where, for each number of a member."""

    least: np.ndarray
    greatest: np.ndarray
    where: np.ndarray  # (bins,) int64, sorted: which number of the member and which bin, in one
    counts: np.ndarray  # (bins,) int64


def mean(of: Of = None) -> Reducer:
    """Mean, standard deviation and standard error, by the pairwise formula of Chan, Golub and LeVeque (Am. Stat. 37, 1983, 242).

    In float64 whatever the dtype of the outputs: a million members in float32 do not drift. Chunks are merged in their order, so
    the same chunks give the same bits; another chunk changes the result by rounding, some 1e-15 of the largest magnitude.
    """
    selected = _selector(of)

    def summarise(rows: Any, index: np.ndarray) -> Any:
        return jax.tree.map(lambda x: _moments(x, lambda d: np.sum(d * d, axis=0)), selected(rows))

    def merge(a: Any, b: Any) -> Any:
        return jax.tree.map(lambda x, y: _merged(x, y, np.square), a, b, is_leaf=_is_moments)

    def finish(summary: Any) -> Mean:
        n = int(jax.tree.leaves(summary)[0])
        std = jax.tree.map(lambda m: np.sqrt(_over(m.square, n - 1)), summary, is_leaf=_is_moments)
        middle = jax.tree.map(lambda m: _over(m.mean, min(n, 1)), summary, is_leaf=_is_moments)
        return Mean(n, middle, std, jax.tree.map(lambda x: _over(x, math.sqrt(n)), std))

    return Reducer(summarise, merge, finish)


def covariance(of: Of = None) -> Reducer:
    """Mean and covariance matrix of all d numbers of a member; numerics as in ``mean``. d^2 numbers are kept."""
    selected = _selector(of)

    def summarise(rows: Any, index: np.ndarray) -> _Moments:
        leaves = [
            x.reshape(len(index), math.prod(x.shape[1:])) for x in jax.tree.leaves(selected(rows))
        ]
        return _moments(np.concatenate(leaves, axis=1), lambda d: d.T @ d)

    def finish(summary: _Moments) -> Covariance:
        n = int(summary.n)
        return Covariance(n, _over(summary.mean, min(n, 1)), _over(summary.square, n - 1))

    return Reducer(summarise, lambda a, b: _merged(a, b, lambda d: np.outer(d, d)), finish)


def quantiles(
    probabilities: Sequence[float] | np.ndarray, of: Of = None, accuracy: float = 1e-3
) -> Reducer:
    """Quantiles of every number: a float64 pytree like what was reduced, with a leading axis of the probabilities.

    The value given for p lies within a relative ``accuracy`` of x, the member at rank floor(p (n - 1)) from 0 in sorted order;
    p = 0 and 1 are the least and the greatest member itself. Logarithmic bins are counted (DDSketch; Masson, Rim and Lee, Proc.
    VLDB 12, 2019, 2195), so the result does not depend on chunks, order or devices at all. Only bins that occur are kept:
    at 1e-3, some 1200 for every decade that the values span.
    """
    levels, accuracy = np.array(numbers("probabilities", probabilities)), real("accuracy", accuracy)
    if levels.ndim != 1 or not levels.size or not np.all((levels >= 0) & (levels <= 1)):
        raise ValueError(
            f"probabilities: wanted a sequence of numbers from 0 to 1, got {probabilities}"
        )
    if not 1e-6 <= accuracy < 1:
        raise ValueError(f"accuracy: wanted a relative error from 1e-6 to below 1, got {accuracy}")
    selected = _selector(of)
    width = math.log((1 + accuracy) / (1 - accuracy))  # logarithm of the ratio of a bin's edges
    offset = math.ceil(-math.log(5e-324) / width) + 1  # the bin of the least float64 is positive
    middle = offset + math.ceil(
        710 / width
    )  # beyond every bin: that of zero, when all are numbered from the negative ones on

    def summarised(x: np.ndarray) -> _Bins:
        size = np.abs(x)
        level = np.ceil(np.log(np.where(size > 0, size, 1.0)) / width).astype(np.int64) + offset
        signed = np.where(size > 0, np.sign(x).astype(np.int64) * level, 0).reshape(
            len(x), math.prod(x.shape[1:])
        )
        where, count = np.unique(
            np.arange(signed.shape[1]) * (2 * middle + 1) + middle + signed, return_counts=True
        )
        return _Bins(
            np.min(x, axis=0, initial=np.inf), np.max(x, axis=0, initial=-np.inf), where, count
        )

    def merged(a: _Bins, b: _Bins) -> _Bins:
        where, origin = np.unique(np.concatenate([a.where, b.where]), return_inverse=True)
        count = np.zeros(where.size, np.int64)
        np.add.at(count, origin, np.concatenate([a.counts, b.counts]))
        return _Bins(np.minimum(a.least, b.least), np.maximum(a.greatest, b.greatest), where, count)

    def finished(summary: _Bins) -> np.ndarray:
        found = np.full((levels.size, summary.least.size), np.nan)
        column, level = np.divmod(summary.where, 2 * middle + 1)
        for k in range(summary.least.size if level.size else 0):
            total, least, greatest = (
                np.cumsum(summary.counts[column == k]),
                summary.least.flat[k],
                summary.greatest.flat[k],
            )
            rank = np.floor(levels * (total[-1] - 1))
            bins = level[column == k][np.searchsorted(total, rank, side="right")] - middle
            size = np.exp(np.minimum((np.abs(bins) - offset) * width, 709.7)) * (1 - accuracy)
            found[:, k] = np.clip(np.sign(bins) * size, least, greatest)
            found[levels == 0, k], found[levels == 1, k] = least, greatest
        return found.reshape(levels.size, *summary.least.shape)

    def is_bins(x: Any) -> bool:
        return isinstance(x, _Bins)

    return Reducer(
        lambda rows, index: jax.tree.map(summarised, selected(rows)),
        lambda a, b: jax.tree.map(merged, a, b, is_leaf=is_bins),
        lambda summary: jax.tree.map(finished, summary, is_leaf=is_bins),
    )


def largest(k: int, of: Of = None) -> Reducer:
    """The k members with the largest of a number: ``Extremes``. ``of`` gives one number a member, shape (members,).

    Of members that tie those with the lowest numbers come first, and into the k: chunks and devices do not matter.
    """
    return _extremes(k, of, -1.0)


def smallest(k: int, of: Of = None) -> Reducer:
    """The k members with the smallest of a number, as ``largest``."""
    return _extremes(k, of, 1.0)


def _extremes(k: int, of: Of, sign: float) -> Reducer:
    k, selected = positive_integer("k", k), _selector(of)

    def best(value: np.ndarray, index: np.ndarray) -> Any:
        order = np.lexsort((index, sign * value))[:k]
        return value[order], index[order]

    def summarise(rows: Any, index: np.ndarray) -> Any:
        leaves = jax.tree.leaves(selected(rows))
        if len(leaves) != 1 or leaves[0].ndim != 1:
            raise ValueError(
                f"of: wanted one number a member, got shapes {[x.shape[1:] for x in leaves]}"
            )
        return best(leaves[0], index)

    def merge(a: Any, b: Any) -> Any:
        return best(np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]]))

    return Reducer(summarise, merge, lambda summary: Extremes(*summary))


def _selector(of: Of) -> Callable[[Any], Any]:
    """Rows of outputs to float64 rows of what is reduced."""
    if of is not None:
        function("of", of)

    def selected(rows: Any) -> Any:
        count = len(jax.tree.leaves(rows)[0])
        tree = jax.tree.map(
            lambda x: np.asarray(x, np.float64), rows if of is None else arrays("of", of(rows))
        )
        for x in jax.tree.leaves(tree):
            if x.shape[:1] != (count,):
                raise ValueError(
                    f"of: wanted the leading axis of its argument, the {count} members, kept, got shape {x.shape}"
                )
        return tree

    return selected


def _is_moments(x: Any) -> bool:
    return isinstance(x, _Moments)


def _moments(x: np.ndarray, squares: Callable[[np.ndarray], np.ndarray]) -> _Moments:
    middle = np.sum(x, axis=0) / max(len(x), 1)
    return _Moments(np.asarray(len(x)), middle, squares(x - middle))


def _merged(a: _Moments, b: _Moments, squares: Callable[[np.ndarray], np.ndarray]) -> _Moments:
    n = a.n + b.n
    share, apart = b.n / max(n, 1), b.mean - a.mean
    return _Moments(n, a.mean + share * apart, a.square + b.square + share * a.n * squares(apart))


def _over(x: np.ndarray, divisor: float) -> np.ndarray:
    """x/divisor, NaN where there are too few members."""
    return x / divisor if divisor > 0 else np.full_like(x, np.nan)

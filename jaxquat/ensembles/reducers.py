"""Statistics of the members' outputs, in float64 on the host: summaries of chunks that are merged.

Every reducer here accepts ``of``, a function that maps the outputs of a chunk (a pytree of NumPy
arrays with a leading axis of members) to the values to reduce, with the same leading axis; None
reduces all outputs. Booleans count as 0 and 1. Members that failed are excluded beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxquat._internal import reprs
from jaxquat._internal.checks import arrays, function, numbers, positive_integer, real

Of = Callable[[Any], Any] | None


@dataclass(frozen=True)
class Reducer:
    """A statistic that can be merged; its summaries may be any objects.

    Attributes:
        summarise: ``summarise(outputs, numbers) -> summary`` of m >= 0 members, from their outputs
            with leading axis m and their numbers (m,).
        merge: ``merge(a, b) -> summary``, from the summaries of earlier and of later members.
        finish: ``finish(summary) -> result``.
        met: ``met(result) -> bool``, whether the members so far suffice, for a rule that ``until``
            of ``jq.ensembles.run`` gets and calls after each chunk; None for others.

    Examples:
        >>> share = jq.ensembles.Reducer(  # of the members that settle within 10 s
        ...     lambda outputs, numbers: np.array([np.sum(outputs < 10.0), len(numbers)]),
        ...     lambda a, b: a + b,
        ...     lambda summary: float(summary[0] / summary[1]),
        ... )
        >>> share.finish(share.summarise(np.array([4.0, 12.0]), np.arange(2)))  # s
        0.5
        >>> rule = jq.ensembles.Reducer(  # stops with 20 members beyond three sigma
        ...     lambda outputs, numbers: np.sum(np.abs(outputs) > 3.0),
        ...     lambda a, b: a + b,
        ...     int,
        ...     met=lambda beyond: beyond >= 20,
        ... )
    """

    summarise: Callable[[Any, np.ndarray], Any]
    merge: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any]
    met: Callable[[Any], bool] | None = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Mean(reprs.Tabular):
    """The result of ``mean``, a pytree. Its fields are float64 pytrees like the reduced values.

    Attributes:
        n: number of members that did not fail.
        mean: mean of the members.
        std: their standard deviation, with n - 1.
        standard_error: standard error of the mean, ``std / sqrt(n)``.

    Examples:
        >>> reducer = jq.ensembles.mean()
        >>> float(reducer.finish(reducer.summarise(np.array([4.0, 6.0, 5.0]), np.arange(3))).std)
        1.0
    """

    n: int
    mean: Any
    std: Any
    standard_error: Any

    def _brief(self) -> list[tuple[str, str]]:
        return [(name, f"{x} +- {error}") for name, x, _, error in self._table()[1]]

    def _table(self) -> reprs.Table:
        names = [name for name, _ in reprs.named_leaves(self.mean)]
        trees = self.mean, self.std, self.standard_error
        columns = [[reprs.short(leaf) for leaf in jax.tree.leaves(tree)] for tree in trees]
        rows = list(zip(names, *columns, strict=True))
        return f"Mean of {self.n} members", rows, ("", "mean", "std", "standard error")


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Extremes(reprs.Tabular):
    """The result of ``largest``. A pytree.

    The most extreme member comes first; among equals, the one with the lowest number; NaN is last.

    Attributes:
        value: (k,) float64; fewer than k if fewer members did not fail.
        members: (k,) int64, the numbers of the members with these values:
            ``jax.vmap(draw)(keys(key, members))`` draws them again.

    Examples:
        >>> reducer, drawn = jq.ensembles.largest(1), np.array([0.1, 0.7, 0.3])
        >>> reducer.finish(reducer.summarise(drawn, np.arange(3))).value
        array([0.7])
    """

    value: np.ndarray
    members: np.ndarray

    def _brief(self) -> list[tuple[str, str]]:
        return [("", f"{reprs.short(self.value)} of members {reprs.short(self.members)}")]

    def _table(self) -> reprs.Table:
        pairs = zip(self.members, self.value, strict=True)
        rows = [(reprs.short(number), reprs.short(value)) for number, value in pairs]
        return f"Extremes of {len(rows)} members", rows, ("member", "value")


def brief(result: Any) -> list[tuple[str, str]]:
    """Return the lines that show a pytree of results: (place, text)."""
    rows, kind = [], reprs.Tabular
    for name, leaf in reprs.named_leaves(result, kinds=kind):
        parts = leaf._brief() if isinstance(leaf, kind) else [("", reprs.short(leaf))]
        rows += [(".".join(filter(None, (name, part))) or "result", text) for part, text in parts]
    return rows


class _Moments(NamedTuple):
    n: np.ndarray  # () int64
    mean: np.ndarray
    square: np.ndarray  # sum of the squared deviations from the mean


class _Counts(NamedTuple):
    least: np.ndarray
    greatest: np.ndarray
    where: np.ndarray  # (k,) int64, sorted: number of the member and bin, in one integer
    counts: np.ndarray  # (k,) int64


def _over_summaries(function: Callable[..., Any], *trees: Any) -> Any:
    return jax.tree.map(function, *trees, is_leaf=lambda x: isinstance(x, _Moments | _Counts))


def mean(of: Of = None) -> Reducer:
    """Reduce to mean, standard deviation and standard error, as a ``Mean``.

    Chunks are merged in their order, in float64, by the pairwise formula of Chan, Golub and LeVeque
    (Am. Stat. 37, 1983, 242): the same chunks give the same bits; another size of chunk changes the
    result by some 1e-15 of the largest magnitude. If ``of`` returns an infinity, the mean is that
    infinity and the deviation NaN. Deviations must lie between 1e-154 and 1e154.

    Examples:
        >>> error = jq.ensembles.mean(lambda outputs: np.degrees(outputs["error"]))
        >>> summary = error.summarise({"error": np.radians([1.0, 2.0, 6.0])}, np.arange(3))
        >>> f"{error.finish(summary).mean:.2f} deg"
        '3.00 deg'
    """
    selected = selector(of)

    def summarise(rows: Any, index: np.ndarray) -> Any:
        return jax.tree.map(_moments, selected(rows))

    def finish(summary: Any) -> Mean:
        n = int(jax.tree.leaves(summary)[0])
        std = _over_summaries(lambda m: np.sqrt(_over(m.square, n - 1)), summary)
        middle = _over_summaries(lambda m: _over(m.mean, min(n, 1)), summary)
        return Mean(n, middle, std, jax.tree.map(lambda x: _over(x, math.sqrt(n)), std))

    return Reducer(summarise, lambda a, b: _over_summaries(_merged, a, b), finish)


def quantiles(
    probabilities: Sequence[float] | np.ndarray, of: Of = None, accuracy: float = 1e-3
) -> Reducer:
    """Reduce to quantiles of every number, float64 with a leading axis of the probabilities.

    The value for p lies within a relative ``accuracy`` of the member at rank floor(p (n - 1)) in
    sorted order, counted from 0; p = 0 and 1 give exactly the least and the greatest member. Values
    are counted in logarithmic bins (DDSketch; Masson, Rim and Lee, Proc. VLDB 12, 2019, 2195), so
    the result does not depend on chunks, order or devices at all. Only bins that occur are stored:
    at 1e-3, some 1200 for every decade. An infinity has a rank like any other value; a NaN makes
    all quantiles of that number NaN.

    Examples:
        >>> median_and_most = jq.ensembles.quantiles([0.5, 1.0])
        >>> summary = median_and_most.summarise(np.arange(101.0), np.arange(101))
        >>> median_and_most.finish(summary).round()  # the median to 0.1 %
        array([ 50., 100.])
    """
    levels, accuracy = np.array(numbers("probabilities", probabilities)), real("accuracy", accuracy)
    if levels.ndim != 1 or not levels.size or not np.all((levels >= 0) & (levels <= 1)):
        wanted = "a sequence of numbers from 0 to 1"
        raise ValueError(f"probabilities: wanted {wanted}, got {probabilities}")
    if not 1e-6 <= accuracy < 1:
        raise ValueError(f"accuracy: wanted a relative error from 1e-6 to below 1, got {accuracy}")
    selected, bins = selector(of), _Bins(accuracy)

    return Reducer(
        lambda rows, index: jax.tree.map(bins.counted, selected(rows)),
        lambda a, b: _over_summaries(_added, a, b),
        lambda summary: _over_summaries(lambda counts: bins.quantiles(counts, levels), summary),
    )


class _Bins:
    """Logarithmic bins, numbered from the most negative values through zero to the largest."""

    # 0 is in bin ``middle``, a positive x in ``middle + offset + ceil(log(x) / width)``. NaN is in
    # any bin, but clips the quantiles to NaN.

    def __init__(self, accuracy: float) -> None:
        self.accuracy = accuracy
        self.width = math.log((1 + accuracy) / (1 - accuracy))  # log of the ratio of a bin's edges
        self.offset = math.ceil(-math.log(5e-324) / self.width) + 1  # of the least positive number
        self.middle = self.offset + math.ceil(710 / self.width) + 1  # beyond the greatest number
        self.count = 2 * self.middle + 1

    def counted(self, x: np.ndarray) -> _Counts:
        size = np.abs(x)
        logarithm = np.log(np.where((size > 0) & np.isfinite(size), size, 1.0))
        level = self.offset + np.ceil(logarithm / self.width).astype(np.int64)
        level = np.where(size > 0, np.where(np.isinf(size), self.middle, level), 0)
        bins = self.middle + np.where(x < 0, -level, level).reshape(len(x), math.prod(x.shape[1:]))
        where = np.arange(bins.shape[1]) * self.count + bins
        least, greatest = np.min(x, axis=0, initial=np.inf), np.max(x, axis=0, initial=-np.inf)
        return _Counts(least, greatest, *np.unique(where, return_counts=True))

    def quantiles(self, counts: _Counts, levels: np.ndarray) -> np.ndarray:
        """Return the values at these levels, (levels, ...); NaN without members."""
        values = np.full((levels.size, counts.least.size), np.nan)
        column, bins = np.divmod(counts.where, self.count)
        for k in range(counts.least.size if bins.size else 0):
            mine = column == k
            total = np.cumsum(counts.counts[mine])
            rank = np.floor(levels * (total[-1] - 1))
            signed = bins[mine][np.searchsorted(total, rank, side="right")] - self.middle
            least, greatest = counts.least.flat[k], counts.greatest.flat[k]
            values[:, k] = np.clip(self._value(signed), least, greatest)
            values[levels == 0, k], values[levels == 1, k] = least, greatest
        return values.reshape(levels.size, *counts.least.shape)

    def _value(self, signed: np.ndarray) -> np.ndarray:
        logarithm = (np.abs(signed) - self.offset) * self.width + math.log1p(-self.accuracy)
        size = np.exp(np.minimum(logarithm, math.log(np.finfo(np.float64).max)))
        return np.sign(signed) * np.where(np.abs(signed) == self.middle, np.inf, size)


def _added(a: _Counts, b: _Counts) -> _Counts:
    where, origin = np.unique(np.concatenate([a.where, b.where]), return_inverse=True)
    counts = np.zeros(where.size, np.int64)
    np.add.at(counts, origin, np.concatenate([a.counts, b.counts]))
    least, greatest = np.minimum(a.least, b.least), np.maximum(a.greatest, b.greatest)
    return _Counts(least, greatest, where, counts)


def largest(k: int, of: Of = None) -> Reducer:
    """Reduce to the k members with the largest values of one number, as ``Extremes``.

    ``of`` returns one number per member, shape (members,); its negative selects the smallest. The
    result does not depend on chunks.

    Examples:
        >>> worst = jq.ensembles.largest(2, lambda outputs: outputs["error"])
        >>> rows = {"error": np.array([0.1, 0.7, 0.3])}  # rad, of three members
        >>> worst.finish(worst.summarise(rows, np.arange(3))).members
        array([1, 2])
    """
    k, selected = positive_integer("k", k), selector(of)

    def best(value: np.ndarray, index: np.ndarray) -> Any:
        order = np.lexsort((index, -value))[:k]
        return value[order], index[order]

    def summarise(rows: Any, index: np.ndarray) -> Any:
        leaves = jax.tree.leaves(selected(rows))
        if len(leaves) != 1 or leaves[0].ndim != 1:
            shapes = [x.shape[1:] for x in leaves]
            raise ValueError(f"of: wanted one number per member, got shapes {shapes}")
        return best(leaves[0], index)

    def merge(a: Any, b: Any) -> Any:
        return best(np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]]))

    return Reducer(summarise, merge, lambda summary: Extremes(*summary))


def selector(of: Of, dtype: Any = np.float64) -> Callable[[Any], Any]:
    """Return the function from outputs to the values to reduce; a dtype of None keeps theirs."""
    if of is not None:
        function("of", of)

    def selected(rows: Any) -> Any:
        count = len(jax.tree.leaves(rows)[0])
        chosen = rows if of is None else arrays("of", of(rows))
        tree = jax.tree.map(lambda x: np.asarray(x, dtype), chosen)
        if not jax.tree.leaves(tree):
            raise ValueError(f"of: wanted at least one array, got {chosen}")
        for x in jax.tree.leaves(tree):
            if x.shape[:1] != (count,):
                wanted = f"an unchanged leading axis of {count} members"
                raise ValueError(f"of: wanted {wanted}, got shape {x.shape}")
        return tree

    return selected


@np.errstate(invalid="ignore")
def _moments(x: np.ndarray) -> _Moments:
    middle = np.sum(x, axis=0) / max(len(x), 1)
    return _Moments(np.asarray(len(x)), middle, np.sum((x - middle) ** 2, axis=0))


@np.errstate(invalid="ignore")
def _merged(a: _Moments, b: _Moments) -> _Moments:
    n = a.n + b.n
    share, apart = b.n / max(n, 1), b.mean - a.mean
    infinite = np.isinf(a.mean) | np.isinf(b.mean)  # means whose difference would be NaN
    middle = np.where(infinite, a.mean + b.mean, a.mean + share * apart)
    return _Moments(n, middle, a.square + b.square + share * a.n * apart**2)


def _over(x: np.ndarray, divisor: float) -> np.ndarray:
    return x / divisor if divisor > 0 else np.full_like(x, np.nan)

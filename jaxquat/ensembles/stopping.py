"""A rule by which an ensemble stops: a reducer whose result may suffice."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from jaxquat._internal.checks import floating, positive, positive_integer
from jaxquat.ensembles.reducers import Mean, Of, Reducer, mean, selector


def standard_error(of: Of, below: Any, *, minimum: int = 100) -> Reducer:
    """Stop when the standard error of the mean of every number is below a limit.

    A confidence interval of 95 % is the mean +- 1.96 standard errors. Because the members decide
    when to stop, it contains the truth slightly less often; the difference vanishes as ``below``
    goes to 0 (Chow and Robbins, Ann. Math. Stat. 36, 1965, 457). n Booleans of which x are True
    have the standard error ``sqrt(p (1 - p)/(n + 4))`` with ``p = (x + 2)/(n + 4)`` (Agresti and
    Coull, Am. Stat. 52, 1998, 119): 1.4/n for an event not seen yet. Any other number that is the
    same in all members never meets the rule.

    Args:
        of: what to reduce, as in ``jq.ensembles.mean``.
        below: the limit, in the units of the mean: a number, or a pytree that is the structure of
            ``of``'s values or a prefix of it; arrays must broadcast to the values of one member.
        minimum: least number of members that did not fail; the deviation of fewer may be too small.

    Returns:
        Reducer with ``met``. Its result, ``Ensemble.statistic``, is a ``Mean`` with these errors.

    Raises:
        ValueError, TypeError: an argument of wrong value or type, by name; from ``run`` for a
            ``below`` that does not fit the values.

    Examples:
        >>> rule = jq.ensembles.standard_error(lambda outputs: outputs["missed"], 0.01)
        >>> draw, simulate = jax.random.normal, lambda member: {"missed": jnp.abs(member) > 2.0}
        >>> options = {"until": rule, "chunk": 100, "progress": False}
        >>> jq.ensembles.run(jax.random.key(0), draw, simulate, 100_000, **options).n < 1000
        True
    """
    minimum = positive_integer("minimum", minimum)
    limits = jax.tree.leaves(below)
    for limit in limits:
        floating("below", limit)
        positive("below", limit)
    if not limits or not all(map(np.size, limits)):
        raise ValueError(f"below: wanted at least one positive number, got {below}")
    chosen, moments = selector(of, None), mean()

    def summarise(rows: Any, index: np.ndarray) -> Any:
        values = chosen(rows)
        try:
            wide = jax.tree.broadcast(below, values)
            jax.tree.map(lambda limit, x: np.broadcast_to(limit, x.shape[1:]), wide, values)
        except ValueError as error:
            shapes = jax.tree.map(lambda x: x.shape[1:], values)
            wanted = f"limits that broadcast to a member's values of shapes {shapes}"
            raise ValueError(f"below: wanted {wanted}, got {below}") from error
        booleans = jax.tree.map(lambda x: np.asarray(x.dtype == bool), values)
        return moments.summarise(values, index), booleans

    def finish(summary: Any) -> Mean:
        result = moments.finish(summary[0])

        def error(middle: np.ndarray, simple: np.ndarray, boolean: np.ndarray) -> np.ndarray:
            p = (result.n * middle + 2) / (result.n + 4)
            return np.sqrt(p * (1 - p) / (result.n + 4)) if boolean else simple

        errors = jax.tree.map(error, result.mean, result.standard_error, summary[1])
        return dataclasses.replace(result, standard_error=errors)

    def met(result: Mean) -> bool:
        def small(middle: np.ndarray, error: np.ndarray, limit: Any) -> bool:
            # Equal numbers have deviations from rounding, some 1e-15 of their mean.
            varied = math.sqrt(result.n) * error > 1e-13 * np.abs(middle)
            return bool(np.all(varied & (error < limit)))

        wide = jax.tree.broadcast(below, result.mean)
        leaves = jax.tree.leaves(jax.tree.map(small, result.mean, result.standard_error, wide))
        return result.n >= minimum and all(leaves)

    return Reducer(summarise, lambda a, b: (moments.merge(a[0], b[0]), b[1]), finish, met)

"""Gradient descent on a simulated loss: gains, inertia, calibration."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree
from tqdm import tqdm

from jaxquat._checks import (
    arrays,
    boolean,
    concrete,
    finite,
    floating_tree,
    instance,
    one_of,
    positive_integer,
    random_key,
    takes,
)
from jaxquat.dynamics.body import refuse_bodies
from jaxquat.learning import snapshots
from jaxquat.learning.descent import Draws, descent, sampled, scalar

__all__ = ["Fit", "fit"]

_CONVERGED = 1e-3
"""Share of the decrease of the loss; see ``Fit.converged``."""

_NOISY = 8
"""Draws of a loss that changes, or a twentieth of the updates if that is more, tell whether its gradient vanishes."""

_VERDICTS = {0: "not judged", 1: "no", 2: "yes", 3: "unknown"}
"""Whether a fit has converged, as numbers that go to disk; 0 for one under way."""


class Fit(NamedTuple):
    """The result of ``fit``. With ``starts`` the arrays have their axis in front; ``params`` and ``best`` are of the best one.

    Attributes:
        params: the parameters after update ``best``.
        history: the loss before each update, (updates,).
        skipped: how many updates were left out because the loss, its gradient or the update was not finite, () or (starts,).
        validation: the validation loss at the start, after every ``chunk`` updates and after the last, (evaluations,); None without
            validation.
        best: the number of updates that led to ``params``: of the lowest validation loss, or all without validation.
        start: which of the starts led to ``params``; None without starts.
        chunk: updates between two evaluations of the validation.
        converged: whether the descent had reached a minimum when it ended (of the start that led to ``params``, whatever the
            validation took): True if the loss would fall, to first order, by less than a thousandth of what it has fallen, were
            every parameter moved again by as much as it has moved. Then the way that is left is about a two-thousandth of the
            way gone. Scales and offsets of the loss and of each parameter do not matter. Parameters that did not move at all are
            taken for frozen. Also True where the gradient vanishes to rounding. None where the loss changes from update to
            update (batches, draws from the key) and three standard errors of the gradient's mean leave it open. A saddle, a
            plateau and another minimum are not told from the lowest minimum.
    """

    params: Any
    history: np.ndarray
    skipped: int | np.ndarray
    validation: np.ndarray | None
    best: int
    start: int | None
    chunk: int
    converged: bool | None = None


class _Run(NamedTuple):
    """A fit under way, as it goes to disk; with starts every array has their axis in front."""

    params: Any
    state: Any  # of the optimiser
    skipped: Any
    history: np.ndarray
    validation: np.ndarray
    best: Any  # parameters of the lowest validation loss so far; () without validation
    verdict: np.ndarray  # an index of _VERDICTS


def fit(
    loss: Callable[[Any, Any, Array], Array],
    params: Any,
    optimizer: optax.GradientTransformation,
    data: Any = None,
    *,
    steps: int,
    key: Array,
    batch: int | None = None,
    starts: int | None = None,
    validation: Callable[[Any], Array] | None = None,
    patience: int | None = None,
    mode: Literal["auto", "forward", "reverse"] = "auto",
    chunk: int = 10,
    checkpoint_dir: str | os.PathLike | None = None,
    checkpoint_every: int = 100,
    progress: bool = True,
) -> Fit:
    """Minimise ``loss(params, batch, key) -> ()`` over a pytree of parameters by ``steps`` updates of an optax optimiser.

    Args:
        loss: jittable; ``batch`` is this update's part of ``data`` (None without data), ``key`` is new at each update.
        params: pytree of floating arrays; keep positive quantities as logarithms, an inertia as ``theta`` of
            ``jq.Body.from_parameters``: a Body here is a TypeError.
        optimizer: any optax gradient transformation, ``optax.adam(1e-2)`` for instance. Those that search along a line or want the
            loss (``optax.lbfgs()``) get it with the batch and key of the update, differentiated in the same mode; give them all
            data and a loss that ignores the key, or their memory mixes different functions.
        data: pytree of arrays with one leading axis; None if the loss draws its own from the key.
        steps: number of updates.
        key: a ``jax.random.key``; the same key gives the same fit. Update n draws from ``fold_in(key, n)``, whatever the number of
            steps and the chunk.
        batch: rows of data per update, drawn without replacement at each; None for all.
        starts: fit from so many starts at once, vmapped, and keep the best: ``params`` then have this leading axis throughout. All
            see the same batches and keys, so each start goes the way it would go alone. The best has the lowest validation loss;
            without validation the lowest loss after the last update, on the draws that the next one would see (if no start has a
            finite one, before the last update at which one had).
        validation: ``validation(params) -> ()``, jittable, evaluated at the start, every ``chunk`` updates and after the last; the
            result has the parameters where it was lowest.
        patience: stop after so many evaluations without a new lowest validation loss, in any of the starts.
        mode: how to differentiate. "forward" costs a few forward passes per parameter and no memory, "reverse" many forward passes
            whatever their number; "auto" is forward up to 6 parameters, unless something in the loss has a derivative in reverse
            mode only (``jax.custom_vjp``, the fused engine).
        chunk: updates between two returns to the host; changes no result but the times of validation.
        checkpoint_dir: local directory that receives the state of the fit (extra ``store``). After an interruption, a kill
            included, the same call goes on from there and ends with the same bits; with more steps it continues a fit that had
            ended. The states of another fit are refused: one that differs in params, data, batch, key, starts, the
            optimiser's state at the start or the times of validation; functions cannot be compared.
        checkpoint_every: updates between two writes, any number; the end is written in any case.
        progress: show a progress bar with the loss.

    Returns:
        Fit. An update whose loss or gradient is not finite, or that is itself not, is skipped, and counted.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name; in ``checkpoint_dir`` a damaged state (the
            message says whether an older one is intact, and how to go on) or that of another fit.
        FloatingPointError: every update was skipped, or no validation loss was finite.
        OSError: a state could not be written, on a full disk for instance; the last one written stays.
        ImportError: ``checkpoint_dir`` without orbax-checkpoint.
    """
    steps, chunk = positive_integer("steps", steps), positive_integer("chunk", chunk)
    checkpoint_every = positive_integer("checkpoint_every", checkpoint_every)
    takes("loss", loss, "params, batch, key")
    instance(
        "optimizer",
        optimizer,
        optax.GradientTransformation,
        "an optax gradient transformation, e.g. optax.adam(1e-2)",
    )
    key = random_key("key", key)
    one_of("mode", mode, ("auto", "forward", "reverse"))
    refuse_bodies("params", params)
    params = jax.tree.map(_strong, floating_tree("params", params))
    for name, value in (("params", params), ("data", data), ("key", key)):
        concrete(name, value, "jq.fit compiles its updates itself, call it outside jit")
    starts = None if starts is None else positive_integer("starts", starts)
    if starts is not None:
        for leaf in jax.tree.leaves(params):
            if leaf.shape[:1] != (starts,):
                raise ValueError(
                    f"params: wanted a leading axis of {starts} starts throughout, got shape {leaf.shape}"
                )
    else:
        finite("params", ravel_pytree(params)[0])
    size = ravel_pytree(params)[0].size // (starts or 1)
    if size == 0:
        raise ValueError("params: wanted at least one number, got none")
    boolean("progress", progress)
    rows = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(arrays("data", data))}
    if len(rows) > 1 or () in rows:
        raise ValueError(
            f"data: wanted one leading axis throughout, got {[jnp.shape(x) for x in jax.tree.leaves(data)]}"
        )
    if (0,) in rows:
        raise ValueError(
            f"data: wanted at least one row, got {[jnp.shape(x) for x in jax.tree.leaves(data)]}"
        )
    if batch is not None:
        batch = positive_integer("batch", batch)
        if not rows or batch > min(rows)[0]:
            raise ValueError(
                f"batch: wanted at most the rows of data, got {batch} for {min(rows)[0] if rows else 'no data'}"
            )
    if validation is not None:
        takes("validation", validation, "params")
    if patience is not None:
        patience = positive_integer("patience", patience)
        if validation is None:
            raise ValueError(
                f"patience: wanted a validation function with it, got {patience} without"
            )
    directory = (
        None if checkpoint_dir is None else snapshots.directory("checkpoint_dir", checkpoint_dir)
    )

    over_starts = jax.vmap if starts is not None else (lambda function, **_: function)
    loss_at = sampled(loss, key, batch, min(rows)[0] if rows else 0)
    advance = descent(loss_at, optimizer, mode, size, over_starts, min(chunk, steps))
    validate = (
        None
        if validation is None
        else jax.jit(over_starts(lambda p: scalar("validation", validation(p))))
    )

    state = jax.tree.map(_strong, over_starts(optimizer.init)(params))
    outer = () if starts is None else (starts,)
    empty = np.zeros((*outer, 0))
    unjudged = np.zeros(outer, np.int8)
    run = _Run(
        params,
        state,
        jnp.zeros(outer, jnp.int32),
        empty,
        empty,
        () if validate is None else params,
        unjudged,
    )
    beginning = run[:3]
    fingerprint = {
        "params": snapshots.digest(params)[:16],
        "optimizer": snapshots.digest(state)[:16],
        "data": snapshots.digest(data)[:16],
        "batch": batch,
        "key": f"{key.dtype} {snapshots.digest(key)[:16]}",
        "starts": starts,
        "validation": None if validate is None else f"every {chunk} updates",
    }
    if directory is not None:
        run = snapshots.newest("checkpoint_dir", directory, run, fingerprint) or run
    number = run.history.shape[-1]
    if number > steps:
        raise ValueError(
            f"steps: wanted at least the {number} updates that checkpoint_dir has, got {steps}"
        )
    if validate is not None and number == 0:
        run = _validated(run, validate)
    with tqdm(total=steps, initial=number, disable=not progress, unit="update") as bar:
        while number < steps and not _stale(run, patience):
            stop = min(
                steps, *(every * (number // every + 1) for every in (chunk, checkpoint_every))
            )
            (params, state, skipped), values, _ = advance(
                run[:3], np.int32(number), np.int32(stop), data, np.True_
            )
            values = np.moveaxis(np.asarray(values)[: stop - number], 0, -1)
            history = _appended(run.history, values)
            run = run._replace(
                params=params, state=state, skipped=skipped, history=history, verdict=unjudged
            )
            bar.update(stop - number)
            shown = {
                "loss": f"{np.fmin.reduce(values[..., -1].ravel()):.4g}",
                "skipped": np.sum(run.skipped),
            }
            number = stop
            if validate is not None and number % chunk == 0:
                run = _validated(run, validate)
            ended = number == steps or _stale(run, patience)
            if ended:
                run = _judged(run, advance, beginning, data)
                shown["converged"] = "/".join(_VERDICTS[int(x)] for x in run.verdict.ravel())
            bar.set_postfix(shown)
            if directory is not None and (number % checkpoint_every == 0 or ended):
                snapshots.save("checkpoint_dir", directory, number, run, fingerprint)
    if np.any(run.verdict == 0):  # read from a directory, where a longer fit wrote it on its way
        run = _judged(run, advance, beginning, data)

    if np.all(np.asarray(run.skipped) == number):
        first = run.history[..., 0]
        raise FloatingPointError(
            f"loss: it or its gradient was not finite at all {number} updates; first loss {first}"
        )
    skipped = int(run.skipped) if starts is None else np.asarray(run.skipped)
    if validate is not None:
        if number % chunk:  # not on disk: with more steps this evaluation would not be there
            run = _validated(run, validate)
        found = _comparable(run.validation)
        if not np.any(np.isfinite(found)):
            raise FloatingPointError(
                f"validation: it was not finite at any of the {found.shape[-1]} evaluations"
            )
        start = None if starts is None else int(np.argmin(found.min(axis=-1)))
        best = min(number, chunk * int(np.argmin(found if start is None else found[start])))
        taken = _of_start(run.best, start)
        return Fit(
            taken, run.history, skipped, run.validation, best, start, chunk, _converged(run, start)
        )
    start = None
    if starts is not None:
        last = jax.jit(jax.vmap(lambda p, data: loss_at(number, data)(p), in_axes=(0, None)))(
            run.params, data
        )
        losses = _comparable(np.column_stack([run.history, last]))
        last_finite = next(column for column in losses.T[::-1] if np.any(np.isfinite(column)))
        start = int(np.argmin(last_finite))
    taken = _of_start(run.params, start)
    return Fit(taken, run.history, skipped, None, number, start, chunk, _converged(run, start))


def _strong(leaf: Any) -> Any:
    """Without JAX's mark of a Python number, which does not survive a file."""
    return jnp.asarray(leaf, leaf.dtype) if getattr(leaf, "weak_type", False) else leaf


def _validated(run: _Run, validate: Callable[[Any], Array]) -> _Run:
    """With one more evaluation."""
    value = np.asarray(validate(run.params))
    better = value < _comparable(run.validation).min(axis=-1, initial=np.inf)
    best = jax.tree.map(
        lambda x, y: np.where(better.reshape(value.shape + (1,) * (x.ndim - value.ndim)), x, y),
        run.params,
        run.best,
    )
    return run._replace(validation=_appended(run.validation, value[..., None]), best=best)


def _stale(run: _Run, patience: int | None) -> bool:
    """Whether ``patience`` evaluations have passed without a new lowest in any start."""
    if patience is None:
        return False
    since = run.validation.shape[-1] - 1 - np.argmin(_comparable(run.validation), axis=-1)
    return bool(np.all(since >= patience))


def _judged(run: _Run, advance: Callable[..., Any], beginning: Any, data: Any) -> _Run:
    """With the verdict whether each start has converged; see ``Fit.converged``.

    The next updates are drawn, and not made: what they would see of loss and gradient. Two tell whether
    the loss changes from draw to draw. One that does is drawn more often, at the beginning too.
    """
    number = run.history.shape[-1]

    def drawn(carry: Any, count: int) -> Draws:
        return jax.device_get(
            advance(carry, np.int32(number), np.int32(number + count), data, np.False_)[2]
        )

    here, noise = drawn(run[:3], 2), np.zeros_like(run.history[..., 0], float)
    fallen = np.asarray(run.history[..., 0], float) - here.mean[0]
    if np.any(here.count == 1) or any(np.any(x != 0) for x in jax.tree.leaves(here.square)):
        count = max(_NOISY, number // 20)
        here, there = drawn(run[:3], count), drawn(beginning, count)
        fallen = np.asarray(there.mean[0], float) - here.mean[0]
        noise = np.hypot(*(_standard_error(x.square[0], x.count) for x in (here, there)))

    def flat(tree: Any) -> np.ndarray:
        return np.concatenate(
            [np.reshape(x, (noise.size, -1)).astype(float) for x in jax.tree.leaves(tree)], axis=1
        )

    slope, error = (
        np.abs(flat(here.mean[1])),
        _standard_error(flat(here.square[1]), np.reshape(here.count, (-1, 1))),
    )
    params, eps = (
        flat(run.params),
        max(float(jnp.finfo(x.dtype).eps) for x in jax.tree.leaves(run.params)),
    )
    way = np.abs(params - flat(beginning[0]))
    most, least = slope + 3.0 * error, np.maximum(slope - 3.0 * error, 0.0)
    fallen, noise, loss = (np.reshape(x, -1) for x in (fallen, noise, np.abs(here.mean[0])))
    moved, seen = np.any(way > 0, axis=1), np.reshape(here.count, -1)
    to_rounding = np.all((most == 0) | (params != 0), axis=1)
    with np.errstate(over="ignore", invalid="ignore"):  # of a fit that has diverged
        yes = moved & (np.sum(most * way, axis=1) <= _CONVERGED * (fallen - 3.0 * noise))
        yes |= to_rounding & (np.sum(most * np.abs(params), axis=1) <= np.sqrt(eps) * loss)
        no = ~moved | (
            np.sum(least * way, axis=1) > _CONVERGED * np.maximum(fallen + 3.0 * noise, 0.0)
        )
    verdict = np.select([seen == 0, seen == 1, yes, no], [1, 3, 2, 1], 3)
    return run._replace(verdict=verdict.astype(np.int8).reshape(run.verdict.shape))


def _standard_error(square: Any, count: Any) -> np.ndarray:
    """Of the mean of so many (at least two), from their sum of squared deviations."""
    return np.sqrt(np.asarray(square, float) / np.maximum(count * (count - 1.0), 1.0))


def _converged(run: _Run, start: int | None) -> bool | None:
    return {1: False, 2: True, 3: None}[int(run.verdict if start is None else run.verdict[start])]


def _comparable(losses: np.ndarray) -> np.ndarray:
    """With infinity for all that is not finite."""
    return np.where(np.isfinite(losses), losses, np.inf)


def _appended(history: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.concatenate([history.astype(values.dtype), values], axis=-1)


def _of_start(params: Any, start: int | None) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x if start is None else x[start]), params)

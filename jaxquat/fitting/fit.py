"""Gradient descent on a simulated loss: gains, inertia, calibration.

Every ``chunk`` updates ``fit`` returns to the host, for validation, snapshots and the progress bar.
The state there is a ``Snapshot``, which also goes to disk; ``_Run`` owns it and advances it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from jaxquat._internal import checks, reprs
from jaxquat._internal import progress as bars
from jaxquat._internal.checks import place
from jaxquat._internal.disk import only_writer
from jaxquat._internal.renamed import refuses_old_keywords
from jaxquat.fitting import snapshots
from jaxquat.fitting.descent import Descent, Objective, Position, checked_loss
from jaxquat.fitting.held import checked_params, size_of_one_start, whole
from jaxquat.fitting.interruption import keeping

__all__ = ["Fit", "FitOptions", "fit"]

ON_HOST = "jq.fit compiles its updates itself, call it outside jit, grad and vmap"


@dataclass(frozen=True, eq=False, repr=False)
class Fit(reprs.Tabular):
    """The result of ``fit``.

    With ``starts``, the arrays have a leading axis (starts,); ``params`` and ``best_update`` are
    those of the best start.

    Attributes:
        params: the parameters after update ``best_update``.
        history: the loss before each update, (updates,).
        skipped: updates skipped because loss, gradient or update was not finite, () or (starts,).
        validation: the validation loss at the start, after every ``chunk`` updates and after the
            last, (evaluations,); None without validation.
        best_update: the updates up to the lowest validation loss, or all without validation.
        best_start: the index of the start that led to ``params``; None without starts.
        chunk: updates between two evaluations of the validation.

    Examples:
        >>> import optax
        >>> loss = lambda params, batch, key: (params - 3.0) ** 2
        >>> descent = jq.fit(loss, jnp.zeros(()), optax.sgd(0.25), steps=30)
        >>> descent.history[:3], f"{descent.params:.2f}"
        (array([9.    , 2.25  , 0.5625], dtype=float32), '3.00')
    """

    params: Any
    history: np.ndarray
    skipped: int | np.ndarray
    validation: np.ndarray | None
    best_update: int
    best_start: int | None
    chunk: int

    def _table(self) -> reprs.Table:
        losses, skipped = self._of_best(self.history), self._of_best(self.skipped)
        first, last = (reprs.short(losses[k]) for k in (0, -1))
        title = f"Fit: {losses.size} updates, loss {first} -> {last}, {skipped} skipped"
        rows: list[tuple[str, ...]] = []
        if self.best_start is not None:
            rows.append(("best_start", f"{self.best_start} of {len(self.history)}"))
        if self.validation is not None:
            lowest = np.nanmin(self._of_best(self.validation))
            rows.append(("best_update", f"{self.best_update}, validation {reprs.short(lowest)}"))
        leaves = reprs.named_leaves(self.params, "params")
        rows += [(name, reprs.short(leaf)) for name, leaf in leaves if hasattr(leaf, "dtype")]
        return title, rows, ()

    def _of_best(self, values: Any) -> Any:
        return values if self.best_start is None else values[self.best_start]


class FitOptions(NamedTuple):
    """How ``fit`` differentiates, when it returns to the host, and what it keeps on disk.

    Attributes:
        mode: "forward" costs a few simulations for each parameter, and no memory; "reverse" about
            fourteen simulations for any number, and memory. "auto" is forward up to 6 parameters,
            unless something in the loss has a derivative in reverse mode only (``jax.custom_vjp``),
            or a cheap one (the fused engine).
        chunk: updates between two returns to the host; changes only when the validation is
            evaluated.
        patience: stop after this many evaluations without a new lowest validation loss in any
            start.
        snapshot_dir: local directory for snapshots. After an interruption, or even a kill, the same
            call continues from the newest snapshot and ends with the same bits; with more steps it
            continues a fit that had ended. Snapshots of a fit with other fitted params, data, batch
            size, key, starts, initial state of the optimiser or times of validation are refused;
            held leaves and functions are not compared.
        snapshot_every: updates between two snapshots, any number; the end is always written.
        progress: show a progress bar with the loss.

    Examples:
        >>> import optax
        >>> loss, distance = lambda x, batch, key: x**2, lambda x: jnp.abs(x - 1.0)
        >>> descent = jq.fit(
        ...     loss, jnp.asarray(3.0), optax.sgd(0.1), steps=100, validation=distance,
        ...     options=jq.FitOptions(chunk=1, patience=3, progress=False),
        ... )  # stops three updates after the validation loss has begun to rise
        >>> descent.best_update, len(descent.history)
        (5, 8)
    """

    mode: Literal["auto", "forward", "reverse"] = "auto"
    chunk: int = 10
    patience: int | None = None
    snapshot_dir: str | os.PathLike[str] | None = None
    snapshot_every: int = 100
    progress: bool = True


@refuses_old_keywords("fit")
def fit(
    loss: Callable[[Any, Any, Any], Array],
    params: Any,
    optimizer: optax.GradientTransformation,
    data: Any = None,
    *,
    steps: int,
    key: Array | None = None,
    batch_size: int | None = None,
    starts: int | None = None,
    validation: Callable[[Any], Array] | None = None,
    options: FitOptions = FitOptions(),  # noqa: B008
) -> Fit:
    """Minimise ``loss(params, batch, key) -> ()`` by ``steps`` updates of an optax optimiser.

    Args:
        loss: jittable. ``batch`` is a part of ``data``, None without data; ``key`` is new at each
            update.
        params: pytree; its arrays of floats, and Python floats, are fitted. All other leaves, such
            as functions, strings and keys in a network of equinox, are held, signed integers with a
            UserWarning (write 1.0, not 1, and close over a counter). Pass positive quantities as
            logarithms, and an inertia as the ``theta`` of ``jq.Body.from_parameters``: a Body here
            is a TypeError.
        optimizer: any optax gradient transformation, ``optax.adam(1e-2)`` for instance. A line
            search (``optax.lbfgs()``) needs a loss without batches and random draws.
        data: pytree of arrays with one leading axis; None if the loss draws its own from the key.
        steps: number of updates.
        key: a ``jax.random.key``, or None, which the loss then receives. Update n draws from
            ``fold_in(key, n)``, whatever the number of steps and the chunk.
        batch_size: rows of data per update, drawn without replacement at each; None for all.
        starts: number of starts to fit from at once, vmapped; every fitted leaf of ``params`` then
            has this leading axis, and held leaves are shared. All starts have the same batches and
            keys, so each takes the path that it would take alone. The best has the lowest
            validation loss, or without validation the lowest loss after the last update, on the
            draws of the next one (if none is finite, at the last update where some start had a
            finite loss).
        validation: ``validation(params) -> ()``, jittable, evaluated at the start, every
            ``options.chunk`` updates and after the last; the result has the parameters at which it
            was lowest.
        options: how to differentiate, when to stop early, snapshots, and the progress bar.

    Returns:
        Fit. An update is skipped, and counted, if it or its loss or gradient is not finite.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name; a snapshot in
            ``snapshot_dir`` that is damaged or of another fit.
        FloatingPointError: every update was skipped, or no validation loss was finite.
        KeyboardInterrupt: its attribute ``params`` has the best parameters so far of all starts
            (without validation, those after the last complete chunk).
        OSError: a snapshot could not be written; the last one written stays. BlockingIOError:
            another fit writes to ``snapshot_dir`` (not detected without file locks, as on Windows).

    Examples:
        >>> import optax
        >>> t = jnp.linspace(0.0, 2.0, 20)  # s
        >>> omega = 3.0 * jnp.exp(-0.7 * t)  # rad/s, of a wheel that runs down
        >>> loss = lambda decay, batch, key: jnp.mean((3.0 * jnp.exp(-decay * t) - omega) ** 2)
        >>> f"{jq.fit(loss, jnp.ones(()), optax.adam(0.1), steps=100).params:.2f} /s"
        '0.70 /s'
    """
    # Check and convert.
    checks.takes("loss", loss, "params, batch, key")
    wanted = "an optax gradient transformation, e.g. optax.adam(1e-2)"
    checks.instance("optimizer", optimizer, optax.GradientTransformation, wanted)
    steps = checks.positive_integer("steps", steps)
    if key is not None or batch_size is not None:
        key = checks.random_key("key", key, "" if batch_size is None else ", to draw batches")
    params = jax.tree.map(checks.strong, checked_params(params, stacklevel=4))
    for name, value in (("params", params), ("data", data), ("key", key)):
        checks.concrete(name, value, ON_HOST)
    starts = None if starts is None else checks.positive_integer("starts", starts)
    size = size_of_one_start(params, starts)
    if starts is None:
        checks.finite("params", ravel_pytree(params)[0])
    rows = _rows_of(data)
    batch_size = None if batch_size is None else checks.positive_integer("batch_size", batch_size)
    if batch_size is not None and batch_size > rows:
        got = f"{batch_size} for {rows or 'no data'}"
        raise ValueError(f"batch_size: wanted at most the rows of data, got {got}")
    if validation is not None:
        checks.takes("validation", validation, "params")
    options = _checked_options(options, validation)

    # Compute.
    of_whole = lambda params, batch, key: loss(whole(params), batch, key)  # noqa: E731
    objective = Objective(of_whole, key, batch_size, rows)
    longest = min(options.chunk, steps)
    descent = Descent(
        objective, optimizer, data, mode=options.mode, size=size, starts=starts, longest=longest
    )
    run = _Run(descent, descent.beginning(params), validation, options, steps)
    with keeping(run.reached):
        run.finish()
    return run.result()


class Snapshot(NamedTuple):
    """A fit in progress, as it goes to disk; with starts, every array has their leading axis."""

    position: Position
    history: np.ndarray  # losses before each update
    validation: np.ndarray  # losses at each evaluation
    best: Any  # parameters of the lowest validation loss so far; () without validation


class _Run:
    """A fit in progress: the compiled descent, the rules that end it, and the state so far."""

    def __init__(
        self,
        descent: Descent,
        beginning: Position,
        validation: Callable[[Any], Array] | None,
        options: FitOptions,
        steps: int,
    ) -> None:
        self.descent, self.beginning = descent, beginning
        self.options, self.steps = options, steps
        self.validate = None
        if validation is not None:
            checked = lambda params: checked_loss("validation", validation(whole(params)))  # noqa: E731
            self.validate = jax.jit(descent.over_starts(checked))
        none_yet = np.zeros((*descent.leading, 0))
        best = () if self.validate is None else beginning.params
        self.snapshot = Snapshot(beginning, none_yet, none_yet, best)

    def identity(self) -> str:
        """Return a digest of what makes the fit what it is, but for functions."""
        descent, every = self.descent, self.options.chunk if self.validate else None
        numbers = {"batch": descent.objective.batch_size, "starts": descent.starts, "every": every}
        return snapshots.digest((self.beginning, descent.data, descent.objective.key, numbers))

    @property
    def updates(self) -> int:
        return self.snapshot.history.shape[-1]

    @property
    def ended(self) -> bool:
        if self.updates == self.steps or self.options.patience is None:
            return self.updates == self.steps
        losses = _comparable(self.snapshot.validation)
        since_lowest = losses.shape[-1] - 1 - np.argmin(losses, axis=-1)
        return bool(np.all(since_lowest >= self.options.patience))

    def finish(self) -> None:
        every, disk = self.options.snapshot_every, None
        if self.options.snapshot_dir is not None:
            disk = snapshots.Snapshots(Path(self.options.snapshot_dir), self.identity())
        with only_writer("snapshot_dir", disk.path, "lock") if disk else contextlib.nullcontext():
            if disk is not None:
                self.snapshot = disk.newest(self.snapshot) or self.snapshot
            if self.updates > self.steps:
                done = f"the {self.updates} updates that snapshot_dir has"
                raise ValueError(f"steps: wanted at least {done}, got {self.steps}")
            if self.updates == 0:
                self._evaluate()
            total, shown = self.steps, self.options.progress
            with bars.bar("updates", total, initial=self.updates, shown=shown) as bar:
                while not self.ended:
                    ends = (k * (self.updates // k + 1) for k in (self.options.chunk, every))
                    stop = min(self.steps, *ends)
                    self._advance(stop)
                    bar.update(stop - bar.n)
                    bar.set_postfix(self._shown())
                    if disk is not None and (stop % every == 0 or self.ended):
                        disk.save(stop, self.snapshot)

    def reached(self) -> tuple[Any, str]:
        """Return the best parameters so far (of all starts), and a description of them in words."""
        if self.validate is None:
            return whole(self.snapshot.position.params), f"after {self.updates} updates"
        return whole(self.snapshot.best), f"of the lowest validation loss in {self.updates} updates"

    def result(self) -> Fit:
        skipped = np.asarray(self.snapshot.position.skipped)
        if np.all(skipped == self.updates):
            raise FloatingPointError(self._never_finite())
        if self.validate is None:
            params, start, update = self.snapshot.position.params, None, self.updates
            if self.descent.starts is not None:
                start = self._start_of_lowest_loss()
        else:
            if self.updates % self.options.chunk:
                self._evaluate()  # not on disk: a fit with more steps would not evaluate here
            start, update = self._lowest_validation()
            params = self.snapshot.best
        place = () if start is None else start
        return Fit(
            params=whole(jax.tree.map(lambda x: jnp.asarray(x[place]), params)),
            history=self.snapshot.history,
            skipped=int(skipped) if self.descent.starts is None else skipped,
            validation=None if self.validate is None else self.snapshot.validation,
            best_update=update,
            best_start=start,
            chunk=self.options.chunk,
        )

    def _advance(self, stop: int) -> None:
        """Make the updates up to ``stop``; evaluate the validation if due."""
        snapshot = self.snapshot
        position, losses = self.descent.advance(snapshot.position, self.updates, stop)
        checks.concrete("loss", losses, f"it or the optimizer closes over traced arrays; {ON_HOST}")
        losses = np.moveaxis(np.asarray(losses)[: stop - self.updates], 0, -1)
        self.snapshot = snapshot._replace(
            position=position, history=_appended(snapshot.history, losses)
        )
        if stop % self.options.chunk == 0:
            self._evaluate()

    def _evaluate(self) -> None:
        if self.validate is None:
            return
        snapshot, params = self.snapshot, self.snapshot.position.params
        value = self.validate(params)
        checks.concrete("validation", value, f"it closes over traced arrays; {ON_HOST}")
        value = np.asarray(value)
        better = value < _comparable(snapshot.validation).min(axis=-1, initial=np.inf)

        def kept(new: Any, old: Any) -> np.ndarray:
            inner = (1,) * (new.ndim - value.ndim)
            return np.where(better.reshape(value.shape + inner), new, old)

        best = jax.tree.map(kept, params, snapshot.best)
        losses = _appended(snapshot.validation, value[..., None])
        self.snapshot = snapshot._replace(validation=losses, best=best)

    def _shown(self) -> dict[str, Any]:
        """Return what the progress bar shows; its loss is the lowest of the starts."""
        snapshot = self.snapshot
        lowest = np.fmin.reduce(snapshot.history[..., -1].ravel())
        return {"loss": f"{lowest:.4g}", "skipped": np.sum(snapshot.position.skipped)}

    def _never_finite(self) -> str:
        first = self.snapshot.history[..., 0]
        what = "its derivative or the optimizer's update" if np.any(np.isfinite(first)) else "it"
        return f"loss: {what} was not finite at all {self.updates} updates; first loss {first}"

    def _lowest_validation(self) -> tuple[int | None, int]:
        """Return the start with the lowest validation loss, and the update that led to it."""
        losses = _comparable(self.snapshot.validation)
        if not np.any(np.isfinite(losses)):
            evaluations = f"any of the {losses.shape[-1]} evaluations"
            raise FloatingPointError(f"validation: it was not finite at {evaluations}")
        start = None
        if self.descent.starts is not None:
            start = int(np.argmin(losses.min(axis=-1)))
            losses = losses[start]
        return start, min(self.updates, self.options.chunk * int(np.argmin(losses)))

    def _start_of_lowest_loss(self) -> int:
        """Return the start with the lowest loss at the end, or at the last update with a finite."""
        n = self.updates
        after_last = self.descent.advance(self.snapshot.position, n, n + 1)[1][0]
        losses = _comparable(np.column_stack([self.snapshot.history, after_last]))
        last_finite = next(column for column in losses.T[::-1] if np.any(np.isfinite(column)))
        return int(np.argmin(last_finite))


def _rows_of(data: Any) -> int:
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(checks.arrays("data", data))]
    rows = {shape[:1] for shape in shapes}
    if len(rows) > 1 or () in rows:
        raise ValueError(f"data: wanted one leading axis throughout, got {shapes}")
    if (0,) in rows:
        raise ValueError(f"data: wanted at least one row, got {shapes}")
    return min(rows)[0] if rows else 0


def _checked_options(options: Any, validation: Any) -> FitOptions:
    checks.instance("options", options, FitOptions, "a jq.FitOptions")
    checks.one_of("mode", options.mode, ("auto", "forward", "reverse"))
    checks.boolean("progress", options.progress)
    counts = {name: getattr(options, name) for name in ("chunk", "snapshot_every", "patience")}
    if options.patience is None:
        del counts["patience"]
    elif validation is None:
        wanted, got = "a validation function with it", f"{options.patience} without"
        raise ValueError(f"patience: wanted {wanted}, got {got}")
    counts = {name: checks.positive_integer(name, x) for name, x in counts.items()}
    options = options._replace(**counts)
    if options.snapshot_dir is None:
        return options
    path = place("snapshot_dir", options.snapshot_dir).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"snapshot_dir: wanted a directory that can be made, got {error}"
        raise OSError(message) from error
    return options._replace(snapshot_dir=path)


def _comparable(losses: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(losses), losses, np.inf)


def _appended(history: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.concatenate([history.astype(values.dtype), values], axis=-1)

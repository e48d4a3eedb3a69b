"""Curves: quantities against time, bands of an ensemble, the history of a fit, work and precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from matplotlib.axes import Axes

from jaxquat._checks import finite, fraction, instance, numbers, trailing, unit_quaternion
from jaxquat.dynamics.contract import Torque, commanded, evaluate
from jaxquat.learning.fit import Fit
from jaxquat.plot.panels import COLOURS, DASHES, MARKERS, flat, one_path
from jaxquat.rotations import quaternion
from jaxquat.simulation.path import Path


def attitude_error(path: Path, target: ArrayLike, *, ax: Axes | None = None) -> Axes:
    """The rotation angle [deg] from the path's attitude to ``target``, (4,) or (rows, 4), against time [s]."""
    path = one_path(path)
    target = trailing("target", target, (4,)).astype(path.state.q.dtype)
    if target.shape not in ((4,), path.state.q.shape):
        raise ValueError(f"target: wanted shape (4,) or {path.state.q.shape}, got {target.shape}")
    unit_quaternion("target", target)
    ax = flat(ax)
    angle = np.rad2deg(np.asarray(jax.jit(quaternion.distance)(path.state.q, target)))
    ax.plot(np.asarray(path.t), angle, color=COLOURS[len(ax.lines) % len(COLOURS)])
    ax.set(xlabel="time [s]", ylabel="attitude error [deg]")
    ax.grid(alpha=0.3)
    return ax


def rates(path: Path, *, ax: Axes | None = None) -> Axes:
    """The body rates [rad/s], in body axes, against time [s]."""
    path = one_path(path)
    return _components(ax, path.t, path.state.omega, r"\omega", "body rate [rad/s]")


def torque(path: Path, torque: Torque, params: Any = None, *, ax: Axes | None = None) -> Axes:
    """The torque [N m], in body axes, against time [s]: ``torque`` as ``rollout`` had it, with its params, at each row.

    Where the path has commands the torque is given them; at the last row the command is that before it.
    """
    path = one_path(path)
    held = [path.command] if jax.tree.leaves(path.command) else []

    def at_row(t: Any, state: Any, *held: Any) -> Any:
        return evaluate(commanded(torque, *held) if held else torque, t, state, params)[0]

    return _components(
        ax, path.t, jax.jit(jax.vmap(at_row))(path.t, path.state, *held), r"\tau", "torque [N m]"
    )


def _components(ax: Axes | None, t: ArrayLike, values: ArrayLike, symbol: str, ylabel: str) -> Axes:
    ax, values = flat(ax), np.asarray(values)
    for k, name in enumerate("xyz"):
        ax.plot(
            np.asarray(t),
            values[:, k],
            color=COLOURS[k],
            linestyle=DASHES[k],
            label=f"${symbol}_{name}$",
        )
    ax.set(xlabel="time [s]", ylabel=ylabel)
    ax.grid(alpha=0.3)
    ax.legend(ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def fan(
    t: ArrayLike,
    values: ArrayLike,
    ylabel: str,
    *,
    shares: Sequence[float] = (0.5, 0.9),
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """An ensemble against time: its median, and bands that hold the middle ``shares`` of the members at each time.

    Args:
        t: (times,) [s], or (members, times), as vmapped rollouts have them, if all members have the same.
        values: (members, times), finite.
        ylabel: quantity and unit, "error angle [deg]" for instance.
        shares: of the members, fractions between 0 and 1.
        label: of the median in the legend, for several fans in one picture.
        ax: where to draw.
    """
    t, values = np.asarray(t), np.asarray(values)
    times = t[0] if t.ndim == 2 and len(t) and np.all(t == t[0]) else t
    if values.ndim != 2 or times.shape != values.shape[1:]:
        raise ValueError(
            f"values: wanted shape (members, times) with one row of times, got {values.shape} and t of {t.shape}"
        )
    if not len(values):
        raise ValueError(f"values: wanted at least one member, got shape {values.shape}")
    failed = np.flatnonzero(~np.all(np.isfinite(values), axis=1))
    if failed.size:
        raise ValueError(
            f"values: wanted finite members, got {failed.size} that are not, the first of number {failed[0]}"
        )
    finite("t", times)
    shares = tuple(fraction("shares", share) for share in numbers("shares", shares))
    if not shares:
        raise ValueError("shares: wanted at least one number, got none")
    ax = flat(ax)
    number = len(ax.lines) % len(COLOURS)
    held = "middle " + ", ".join(f"{100 * share:g}" for share in sorted(shares)) + " %"
    for share in sorted(shares, reverse=True):
        low, high = np.quantile(values, (0.5 - share / 2, 0.5 + share / 2), axis=0)
        ax.fill_between(times, low, high, color=COLOURS[number], alpha=0.22, linewidth=0)
    ax.plot(
        times,
        np.median(values, axis=0),
        color=COLOURS[number],
        linestyle=DASHES[number % 3],
        label=label or f"median, {held}",
    )
    ax.set(xlabel="time [s]", ylabel=ylabel)
    ax.grid(alpha=0.3)
    ax.legend(title=f"median, {held}" if label else None)
    return ax


def fit_history(fit: Fit, *, ax: Axes | None = None) -> Axes:
    """Training and validation loss of a ``jq.fit`` against the number of updates; of several starts the others in grey.

    The scale is logarithmic if no loss is 0 or negative; one that is NaN makes a gap. The line marks the update that led to
    ``fit.params``.
    """
    instance("fit", fit, Fit, "what jq.fit returns")
    training, start = np.atleast_2d(fit.history), fit.best_start or 0
    updates = training.shape[1]
    drawn = [("training", np.arange(updates), training, DASHES[0], COLOURS[0], "")]
    if fit.validation is not None:
        validation = np.atleast_2d(fit.validation)
        times = np.append(np.arange(0, updates, fit.chunk), updates)
        drawn.append(("validation", times, validation, DASHES[1], COLOURS[1], "o"))
    ax = flat(ax)
    for name, times, losses, dashes, colour, marker in drawn:
        others = "other starts" if name == "training" else ""
        for k, values in enumerate(losses):
            if k != start:
                ax.plot(
                    times,
                    values,
                    dashes,
                    color="0.7",
                    linewidth=0.8,
                    zorder=1,
                    label=others if k == (start == 0) else "",
                )
        ax.plot(times, losses[start], dashes, color=colour, marker=marker, markersize=4, label=name)
    line = {"color": "0.3", "linewidth": 0.9, "linestyle": ":"}
    ax.axvline(fit.best_update, **line, label=f"taken: {fit.best_update} updates")
    if all(not np.any(losses <= 0) for _, _, losses, *_ in drawn):
        ax.set_yscale("log")
    ax.set(xlabel="updates", ylabel="loss")
    ax.grid(alpha=0.3)
    shown = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    ax.legend(shown.values(), shown.keys())
    return ax


def work_precision(
    runs: Mapping[str, tuple[ArrayLike, ArrayLike]],
    xlabel: str,
    ylabel: str = "rotation angle error [rad]",
    *,
    ax: Axes | None = None,
) -> Axes:
    """Error against work, both logarithmic, a curve for each scheme.

    ``runs`` has (work, error) by name, (n,) and (n,), positive (an infinite error makes a gap); ``xlabel`` says what the work is,
    "wall time [s]" or "torque evaluations" for instance. Against the number of steps the slope is minus the order.
    """
    if not isinstance(runs, Mapping) or not runs:
        raise TypeError(
            f"runs: wanted a mapping from names to (work, error), got {type(runs).__name__} {runs!r}"
        )
    ax = flat(ax)
    for k, (name, pair) in enumerate(runs.items()):
        work, error = (np.asarray(x, float) for x in pair)
        if (
            work.ndim != 1
            or work.shape != error.shape
            or not (np.all(work > 0) and np.all(error > 0))
        ):
            raise ValueError(
                f"runs: wanted positive work (n,) and error (n,) of {name}, got {work} and {error}"
            )
        dashes, marker = DASHES[k // 6 % 3], MARKERS[k % 6]
        ax.plot(work, error, dashes, color=COLOURS[k % 6], marker=marker, markersize=5, label=name)
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel)
    ax.grid(alpha=0.3)
    ax.legend()
    return ax

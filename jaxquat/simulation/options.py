"""Options of a rollout that most callers leave as they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxquat._internal.checks import boolean, instance, one_of, positive_integer


class RolloutOptions(NamedTuple):
    """What ``rollout`` saves in a row, and how it runs.

    Attributes:
        save: ``save(t, state, params) -> pytree of arrays``, or with a controller or inputs
            ``save(t, state, params, command)``, called within the loop. The path keeps the results
            in ``path.saved``, instead of state and command.
        engine: "fused" compiles the whole loop into one kernel (CPU or GPU, with the extra
            ``fused``), and its derivatives, in both modes and of every order. "scan" is a loop of
            XLA, for every scheme and torque. "auto" uses the kernel, separately for the values and
            for each derivative, where scheme and torque have a scalar form and the compiler is
            installed, else the scan; on a GPU other than H100 or H200 after ``jq.check_gpu()``. The
            results agree up to rounding; ``jq.explain`` prints which engine runs, and why.
        checkpoint: which states are kept for the backward pass. "none" keeps every state; the
            kernel then chooses by itself how many. An integer m keeps one state every m steps and
            recomputes those between; "sqrt" sets m near the square root of the number of steps.
            "reversible" keeps only the rows of the path and undoes each step: for reversible
            schemes, with torques of time and attitude and noise from a key, without controller or
            inputs, in reverse mode only.
        check: report bad values of traced arguments, and a state that ceases to be finite. Under
            ``jit``, call ``error, path = checkify.checkify(jax.jit(fly))(start); error.throw()``
            with ``jax.experimental.checkify``.

    Examples:
        >>> jq.RolloutOptions(save=lambda t, state, params: state.omega[2]).engine
        'auto'
    """

    save: Callable[..., Any] | None = None
    engine: str = "auto"
    checkpoint: str | int = "none"
    check: bool = False


def checked_options(options: Any) -> RolloutOptions:
    """Return the options; ValueError or TypeError if one is wrong, or if two exclude each other."""
    instance("options", options, RolloutOptions, "a jq.RolloutOptions(save=..., engine=...)")
    one_of("options.engine", options.engine, ("scan", "fused", "auto"))
    boolean("options.check", options.check)
    if isinstance(options.checkpoint, str):
        one_of("options.checkpoint", options.checkpoint, ("none", "sqrt", "reversible"))
    else:
        positive_integer("options.checkpoint", options.checkpoint)
    if options.engine == "fused" and (hindrance := only_scan(options)):
        wanted = f'"scan" or "auto" with {hindrance}'
        raise ValueError(f'options.engine: wanted {wanted}, got "fused"')
    return options


def only_scan(options: RolloutOptions) -> str | None:
    """Return the option that no kernel has; None without one."""
    if options.check:
        return "check=True"
    return 'checkpoint="reversible"' if options.checkpoint == "reversible" else None


def segment_of(checkpoint: str | int, steps: int) -> int | None:
    """Return the steps between two kept states; for "sqrt" the root of ``steps``, rounded up."""
    if isinstance(checkpoint, str):
        return math.isqrt(steps - 1) + 1 if checkpoint == "sqrt" else None
    return int(checkpoint)

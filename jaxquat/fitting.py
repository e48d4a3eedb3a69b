"""Gradient descent on a simulated loss: gains, inertia, calibration."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from tqdm import tqdm

from jaxquat.arguments import floating, function, instance, one_of, positive_integer

FORWARD_LIMIT = 6
"""``mode="auto"`` differentiates forward up to this many parameters (benchmarks/fit_mode.py measures both modes)."""


class Fit(NamedTuple):
    """The result of ``fit``."""

    params: Any  # after the last update
    history: np.ndarray  # (steps,) the loss before each update; not finite where the update was skipped
    skipped: int  # updates left out because the loss or its gradient was not finite


def fit(
    loss: Callable[[Any, Any, Array], Array],
    params: Any,
    optimizer: optax.GradientTransformation,
    data: Any = None,
    *,
    steps: int,
    key: Array,
    batch: int | None = None,
    mode: Literal["auto", "forward", "reverse"] = "auto",
    chunk: int = 10,
    progress: bool = True,
) -> Fit:
    """Minimise ``loss(params, batch, key) -> ()`` over a pytree of parameters by ``steps`` updates of an optax optimiser.

    Args:
        loss: jittable; ``batch`` is this update's part of ``data`` (None without data), ``key`` is new at each update.
        params: pytree of floating arrays; keep positive quantities as logarithms.
        optimizer: any optax gradient transformation that needs no loss value, ``optax.adam(1e-2)`` for instance.
        data: pytree of arrays with one leading axis; None if the loss draws its own from the key.
        steps: number of updates.
        key: a ``jax.random.key``; the same key gives the same fit.
        batch: rows of data per update, drawn without replacement at each; None for all.
        mode: how to differentiate. "forward" costs a few forward passes per parameter and no memory, "reverse" many forward passes
            whatever their number; "auto" is forward up to 6 parameters, unless something in the loss has a derivative in reverse
            mode only (``jax.custom_vjp``, the fused engine).
        chunk: updates between two returns to the host.
        progress: show a progress bar with the loss.

    Returns:
        Fit. An update whose loss or gradient is not finite is skipped, and counted.

    Raises:
        ValueError, TypeError: an argument of wrong shape, dtype or value, by name.
        FloatingPointError: every update was skipped.
    """
    steps, chunk = positive_integer("steps", steps), positive_integer("chunk", chunk)
    function("loss", loss)
    instance("optimizer", optimizer, optax.GradientTransformation, "an optax gradient transformation, e.g. optax.adam(1e-2)")
    if not hasattr(key, "dtype") or not (jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.dtype == jnp.uint32):
        raise TypeError(f"key: wanted a jax.random.key, got {key!r}")
    one_of("mode", mode, ("auto", "forward", "reverse"))
    params = jax.tree.map(lambda leaf: floating("params", leaf), params)
    size = ravel_pytree(params)[0].size
    if size == 0:
        raise ValueError("params: wanted at least one number, got none")
    rows = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(data)}
    if len(rows) > 1 or () in rows:
        raise ValueError(f"data: wanted one leading axis throughout, got {[jnp.shape(x) for x in jax.tree.leaves(data)]}")
    if batch is not None:
        batch = positive_integer("batch", batch)
        if not rows or batch > min(rows)[0]:
            raise ValueError(f"batch: wanted at most the rows of data, got {batch} for {min(rows)[0] if rows else 'no data'}")
    guarded = optax.apply_if_finite(optimizer, max_consecutive_errors=steps)

    @jax.jit
    def run(params: Any, state: Any, data: Any, keys: Array) -> tuple[Any, Any, Array]:
        def update(carry: Any, key: Array) -> tuple[Any, Array]:
            params, state = carry
            draw, own = jax.random.split(key)
            part = data
            if batch is not None:
                _, chosen = lax.top_k(jax.random.bits(draw, min(rows)), batch)  # without replacement, cheaper than to permute
                part = jax.tree.map(lambda x: x[chosen], data)
            of_params = lambda p: _scalar(loss(p, part, own))  # noqa: E731
            forward = mode == "forward" or (mode == "auto" and size <= FORWARD_LIMIT and not _reverse_only(of_params, params))
            value, gradient = (_forward if forward else jax.value_and_grad)(of_params)(params)
            gradient = jax.tree.map(lambda g: jnp.where(jnp.isfinite(value), g, jnp.nan), gradient)
            with jax.numpy_dtype_promotion("standard"):  # optax raises a float to the integer count of updates
                updates, state = guarded.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), value

        (params, state), values = lax.scan(update, (params, state), keys)
        return params, state, values

    keys, history = jax.random.split(key, steps), []
    state = guarded.init(params)
    with tqdm(total=steps, disable=not progress, unit="update") as bar:
        for first in range(0, steps, chunk):
            params, state, values = run(params, state, data, keys[first : first + chunk])
            history.append(np.asarray(values))
            bar.update(len(values))
            bar.set_postfix(loss=f"{history[-1][-1]:.4g}", skipped=_skipped(state))
    skipped = _skipped(state)
    if skipped == steps:
        raise FloatingPointError(f"loss: it or its gradient was not finite at all {steps} updates; first loss {history[0][0]}")
    return Fit(params, np.concatenate(history), skipped)


def _scalar(value: Any) -> Array:
    if not hasattr(value, "shape"):
        raise TypeError(f"loss: wanted a scalar, got {type(value).__name__}")
    if value.shape != ():
        raise ValueError(f"loss: wanted a scalar, got shape {value.shape}")
    return value


def _skipped(state: Any) -> int:
    """From the state of ``optax.apply_if_finite``."""
    return int(state.total_notfinite)


def _reverse_only(loss: Callable[[Any], Array], params: Any) -> bool:
    """Whether a ``jax.custom_vjp`` is anywhere in the loss."""

    def within(jaxpr: Any) -> bool:
        return any(
            equation.primitive.name.startswith("custom_vjp_call")
            or any(
                within(getattr(x, "jaxpr", x))
                for x in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr)
                if _is_jaxpr(x)
            )
            for equation in jaxpr.eqns
        )

    return within(jax.make_jaxpr(loss)(params).jaxpr)


def _is_jaxpr(x: Any) -> bool:
    return hasattr(getattr(x, "jaxpr", x), "eqns")


def _forward(loss: Callable[[Any], Array]) -> Callable[[Any], tuple[Array, Any]]:
    """``jax.value_and_grad`` in forward mode: one pass that carries a tangent per parameter."""

    def value_and_grad(params: Any) -> tuple[Array, Any]:
        flat, unravel = ravel_pytree(params)

        def both(vector: Array) -> tuple[Array, Array]:
            value = loss(unravel(vector))
            return value, value

        gradient, value = jax.jacfwd(both, has_aux=True)(flat)
        return value, unravel(gradient)

    return value_and_grad

"""Scans that save memory in the backward pass by recomputation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any, length: int, segment: int | None
) -> tuple[Any, Any]:
    """Run ``lax.scan``, whose backward pass keeps the carry every ``segment`` iterations."""
    if segment is None or segment >= length:
        run = partial(_scan, f, length=length)
        return (run if segment is None else jax.checkpoint(run))(carry, xs)
    count = length // segment
    split = count * segment
    # Inside a scan the compiler cannot merge the recomputation with the original computation, so no
    # barrier is needed.
    run = jax.checkpoint(partial(_scan, f, length=segment), prevent_cse=False)
    head = jax.tree.map(lambda x: x[:split].reshape(count, segment, *x.shape[1:]), xs)
    carry, ys = lax.scan(run, carry, head, length=count)
    ys = jax.tree.map(lambda y: y.reshape(split, *y.shape[2:]), ys)
    if split == length:
        return carry, ys
    run = jax.checkpoint(partial(_scan, f, length=length - split))
    carry, tail = run(carry, jax.tree.map(lambda x: x[split:], xs))
    return carry, jax.tree.map(lambda y, z: jnp.concatenate([y, z]), ys, tail)


def _scan(
    f: Callable[[Any, Any], tuple[Any, Any]], carry: Any, xs: Any, length: int
) -> tuple[Any, Any]:
    if length > 1:
        return lax.scan(f, carry, xs, length=length)
    carry, y = f(carry, jax.tree.map(lambda x: x[0], xs))
    return carry, jax.tree.map(lambda leaf: leaf[None], y)

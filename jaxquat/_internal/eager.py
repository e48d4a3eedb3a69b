"""Small functions that are compiled as a whole when they are called with arrays of numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function of float arrays, which otherwise compiles each of its operations."""
    jitted = jax.jit(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        alone = not named and all(
            isinstance(x, Array)
            and not isinstance(x, Tracer)
            and jnp.issubdtype(x.dtype, jnp.floating)
            for x in arguments
        )
        return (jitted if alone else function)(*arguments, **named)

    return cast(F, call)

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
        if named or not all(map(_is_numbers, arguments)):
            return function(*arguments, **named)
        return jitted(*arguments)

    return cast(F, call)


def _is_numbers(x: Any) -> bool:
    known = isinstance(x, Array) and not isinstance(x, Tracer)
    return known and jnp.issubdtype(x.dtype, jnp.floating)

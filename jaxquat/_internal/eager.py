"""Small functions that are compiled as a whole when they are called with arrays of numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array

from jaxquat._internal.checks import is_concrete

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a function of float arrays, which otherwise compiles each of its operations."""
    jitted = jax.jit(function)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        floats = (isinstance(x, Array) and jnp.issubdtype(x.dtype, jnp.floating) for x in arguments)
        alone = not named and is_concrete(arguments) and all(floats)
        return (jitted if alone else function)(*arguments, **named)

    return cast(F, call)

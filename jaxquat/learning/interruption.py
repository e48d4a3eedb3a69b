"""What an interrupted fit has reached, on the exception that ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax


@contextlib.contextmanager
def keeping(best: Callable[[], tuple[Any, str]]) -> Iterator[None]:
    """Attach ``params`` to a KeyboardInterrupt, and a note that says so.

    The interrupt goes on: a script must stop at it. ``best`` returns the parameters and, in words,
    how far they have come.
    """
    try:
        with _unwrapped():
            yield
    except KeyboardInterrupt as interrupt:
        params, reached = best()
        interrupt.params = params  # type: ignore[attr-defined]
        interrupt.add_note(
            f"The parameters {reached} are the attribute params of this exception: catch it as "
            "error and take error.params, or sys.last_value.params at a prompt."
        )
        raise


@contextlib.contextmanager
def _unwrapped() -> Iterator[None]:
    """Raise the KeyboardInterrupt that JAX wraps if it comes during a ``jax.debug.callback``."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "KeyboardInterrupt" not in str(error):
            raise
        raise KeyboardInterrupt from error

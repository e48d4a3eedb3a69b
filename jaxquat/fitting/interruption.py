"""Attach the best parameters of an interrupted fit to the exception that ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax


@contextlib.contextmanager
def keeping(best: Callable[[], tuple[Any, str]]) -> Iterator[None]:
    """Attach ``params`` and a note to a KeyboardInterrupt; ``best`` returns both."""
    try:
        try:
            yield
        except jax.errors.JaxRuntimeError as error:  # wraps an interrupt in a jax.debug.callback
            if "KeyboardInterrupt" not in str(error):
                raise
            raise KeyboardInterrupt from error
    except KeyboardInterrupt as interrupt:
        params, reached = best()
        interrupt.params = params  # type: ignore[attr-defined]
        interrupt.add_note(
            f"The parameters {reached} are the attribute params of this exception: catch it as "
            "error and use error.params, or sys.last_value.params at a prompt."
        )
        raise

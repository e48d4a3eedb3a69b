"""What an interrupted fit has reached, on the exception that ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def keeping(best: Callable[[], tuple[Any, str]]) -> Iterator[None]:
    """Attach ``params`` to a KeyboardInterrupt, and a note that says so.

    The interrupt goes on: a script must stop at it. ``best`` returns the parameters and, in words,
    how far they have come.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        params, reached = best()
        interrupt.params = params  # type: ignore[attr-defined]
        interrupt.add_note(
            f"The parameters {reached} are the attribute params of this exception: catch it as "
            "error and take error.params, or sys.last_value.params at a prompt."
        )
        raise

"""The error of what has no scalar form."""

from __future__ import annotations


class NotScalarError(NotImplementedError):
    """The function has no scalar form; the message names the primitive that has none."""

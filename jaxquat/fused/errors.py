"""The reasons why a loop is not a kernel: no scalar form, or a fault of the engine."""

from __future__ import annotations

import warnings

_reported: set[str] = set()


class NotScalarError(NotImplementedError):
    """The function has no scalar form; the message names the primitive that has none.

    Examples:
        >>> try:
        ...     jq.fused.scalarize(jnp.linalg.eigh, jnp.eye(3))
        ... except jq.fused.NotScalarError as error:
        ...     print(error)
        eigh: this primitive has no scalar form; use engine='scan'
    """


def not_scalar(reason: str) -> NotScalarError:
    """Return the error for ``reason``, with advice."""
    return NotScalarError(f"{reason}; use engine='scan'")


def report(error: Exception) -> None:
    """Warn once for each error but NotImplementedError that the scan replaced a faulty kernel."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, NotImplementedError) or text in _reported:
        return
    _reported.add(text)
    warnings.warn(
        f'engine="auto" took the scan, because the fused engine failed with {text}\nThe results '
        "are right but may take far longer. This is a bug in jaxquat: please report it with the "
        'traceback that engine="fused" gives',
        RuntimeWarning,
        stacklevel=2,
    )

"""The error of what has no scalar form."""

from __future__ import annotations


class NotScalarError(NotImplementedError):
    """The function has no scalar form; the message names the primitive that has none.

    Examples:
        >>> try:
        ...     jq.fused.scalarize(jnp.linalg.eigh, jnp.eye(3))
        ... except jq.fused.NotScalarError as error:
        ...     print(error)
        eigh: this primitive has no scalar form; use engine='scan'
    """

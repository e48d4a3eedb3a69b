"""The conventions of G. Hoffmann, Application of Quaternions (TU Braunschweig 1978, transl. 2002).

His quaternion Q = (q1, q2, q3, q4) is scalar LAST and maps WORLD to BODY coordinates, (2.2)
``x_body = Q x_world Q'``: it is the conjugate of ours. His Cayley matrix C(Q) (2.12) is our
``to_matrix`` transposed.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxquat._internal.checks import trailing
from jaxquat._internal.linear import stacked


def from_hoffmann(hoffmann: ArrayLike) -> Array:
    """Convert Hoffmann's (q1, q2, q3, q4) to ours, ``(q4, -q1, -q2, -q3)``. (..., 4) -> (..., 4).

    Examples:
        >>> jq.quaternion.from_hoffmann(jnp.array([0.1, 0.5, -0.5, 0.7]))
        Array([ 0.7, -0.1, -0.5,  0.5], dtype=float32)
    """
    hoffmann = trailing("hoffmann", hoffmann, (4,))
    return jnp.concatenate([hoffmann[..., 3:], -hoffmann[..., :3]], axis=-1)


def to_hoffmann(q: ArrayLike) -> Array:
    """Convert ours to Hoffmann's (q1, q2, q3, q4) = ``(-x, -y, -z, w)``. (..., 4) -> (..., 4).

    Examples:
        >>> Q = jq.quaternion.to_hoffmann(q)
    """
    q = trailing("q", q, (4,))
    return jnp.concatenate([-q[..., 1:], q[..., :1]], axis=-1)


def hoffmann_v(hoffmann: ArrayLike) -> Array:
    """Return Hoffmann's V(Q) (3.26), orthogonal for unit Q. (..., 4) -> (..., 4, 4).

    ``V(Q) X = Q . X'`` and ``(omega, 0) = 2 V(Q) dQ/dt``: his W(Q) (3.25) is 2 V(Q), with the
    inverse V(Q)^T/2 (3.28).

    Examples:
        >>> Q = jnp.array([0.0, 0.0, 0.0, 1.0])
        >>> rate = jnp.array([0.0, 0.0, -0.25, 0.0])  # dQ/dt [1/s]
        >>> 2 * jq.quaternion.hoffmann_v(Q) @ rate  # (omega, 0): 0.5 rad/s about z
        Array([0. , 0. , 0.5, 0. ], dtype=float32)
    """
    q1, q2, q3, q4 = jnp.moveaxis(trailing("hoffmann", hoffmann, (4,)), -1, 0)
    rows = [[-q4, q3, -q2, q1], [-q3, -q4, q1, q2], [q2, -q1, -q4, q3], [q1, q2, q3, q4]]
    return stacked(rows)

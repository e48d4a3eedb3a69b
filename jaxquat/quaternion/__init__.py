"""Unit quaternions as attitudes: the algebra, distances, and conversions.

A quaternion ``q = (w, x, y, z)``, scalar first, with Hamilton's product (ij = k), is an attitude if
it is unit: ``v_world = q v_body q*``. ``q`` and ``-q`` are the same attitude. ``omega`` is the
angular velocity relative to the world, in BODY axes [rad/s]: ``q' = 1/2 q (0, omega)``. A rotation
vector ``u`` [rad] stands for ``exp(u) = (cos(|u|/2), sin(|u|/2) u/|u|)``; ``log`` returns it with
``|u| <= pi``.

Functions broadcast over leading axes and keep the dtype of their input. Derivatives are tangent to
the unit sphere: those of ``f(q exp(v))`` with respect to v at ``v = 0``. The examples use:

Examples:
    >>> level, q = jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.8, 0.0, 0.0, 0.6])
    >>> x, z = jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 0.0, 1.0])  # q turns about z
"""

from __future__ import annotations

from jaxquat.quaternion.algebra import (
    canonical,
    conjugate,
    correct_norm,
    exp,
    expm1,
    left_matrix,
    log,
    multiply,
    normalize,
    rotate,
    rotate_inverse,
)
from jaxquat.quaternion.averaging import from_vectors, mean
from jaxquat.quaternion.geometry import (
    distance,
    random,
    relative,
    slerp,
    squared_distance,
)
from jaxquat.quaternion.hoffmann import (
    from_hoffmann,
    hoffmann_v,
    to_hoffmann,
)
from jaxquat.quaternion.representations import (
    from_matrix,
    from_mrp,
    from_xyzw,
    to_axis_angle,
    to_matrix,
    to_mrp,
    to_xyzw,
)

__all__ = [
    "canonical",
    "conjugate",
    "correct_norm",
    "distance",
    "exp",
    "expm1",
    "from_hoffmann",
    "from_matrix",
    "from_mrp",
    "from_vectors",
    "from_xyzw",
    "hoffmann_v",
    "left_matrix",
    "log",
    "mean",
    "multiply",
    "normalize",
    "random",
    "relative",
    "rotate",
    "rotate_inverse",
    "slerp",
    "squared_distance",
    "to_axis_angle",
    "to_hoffmann",
    "to_matrix",
    "to_mrp",
    "to_xyzw",
]

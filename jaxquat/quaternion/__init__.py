"""Unit quaternions as attitudes: the algebra, distances, and conversions.

Conventions, for the whole library:

- A quaternion is an array ``q = (w, x, y, z)``, scalar first, with Hamilton's product (ij = k).
- A unit quaternion is an attitude: it maps body to world, ``v_world = q v_body q*``. ``q`` and
  ``-q`` are the same attitude.
- ``omega`` is the angular velocity of the body relative to the world, in BODY axes [rad/s]:
  ``q' = 1/2 q (0, omega)``.
- A rotation vector ``u`` [rad] stands for ``exp(u) = (cos(|u|/2), sin(|u|/2) u/|u|)``; ``log``
  returns it with ``|u| <= pi``.
- SI units and radians. Every function broadcasts over leading axes and keeps the dtype of its
  input.

Derivatives refer to the tangent space at q: they are those of ``f(q exp(v))`` by v at ``v = 0``.
Where it matters, a function documents its effect on quaternions that are not unit.
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
    right_matrix,
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
    hoffmann_cayley,
    hoffmann_v,
    to_hoffmann,
)
from jaxquat.quaternion.representations import (
    from_axis_angle,
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
    "from_axis_angle",
    "from_hoffmann",
    "from_matrix",
    "from_mrp",
    "from_vectors",
    "from_xyzw",
    "hoffmann_cayley",
    "hoffmann_v",
    "left_matrix",
    "log",
    "mean",
    "multiply",
    "normalize",
    "random",
    "relative",
    "right_matrix",
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

"""The rigid body: its inertia, given as a matrix, by principal axes, or by the shape of a solid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import GetAttrKey
from jax.typing import ArrayLike, DTypeLike

from jaxquat import quaternion
from jaxquat._internal import checks
from jaxquat._internal.linear import dot, matmul, power_of_two, sums_of_others, transpose
from jaxquat._internal.reprs import short
from jaxquat.dynamics.inertia import (
    check_inertia,
    check_moments,
    from_six,
    principal_axes,
    symmetric_part,
    to_six,
)

__all__ = ["Body"]


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Body:
    """A rigid body: its inertia [kg m^2] about the centre of mass (or a fixed point), in body axes.

    Concrete values are checked: shape (3, 3), finite, symmetric, positive definite, triangle
    inequality of the principal moments. A batch of bodies is ``jax.vmap(jq.Body)(inertias)``.

    A body is immutable, and a pytree whose differentiable leaves are the numbers it was made from:
    the inertia, or moments and axes after ``from_principal``. Do not let an optimiser update a
    body: moments could become negative without an error. Make the body within the loss from
    unconstrained numbers: ``jq.Body.from_parameters(theta)`` or
    ``jq.Body.from_principal(jnp.exp(x))``.

    Examples:
        >>> body = jq.Body(jnp.diag(jnp.array([2.0, 3.0, 4.0])), mass=12.0)  # kg m^2, kg
    """

    _inertia: Any = None  # None after from_principal
    _moments: Any = None  # None, like the axes, for a body made from its inertia
    _axes: Any = None
    mass: Any = None
    """Mass [kg], (); None for a body that only turns. A state with a position needs a mass."""

    def __init__(self, inertia: ArrayLike, mass: ArrayLike | None = None):
        inertia = checks.floating("inertia", inertia)
        hints = {
            0: "; the order is jq.Body(inertia, mass)",
            1: "; principal moments: jq.Body.from_principal",
            3: "; make a batch with jax.vmap(jq.Body)",
        }
        inertia = checks.exactly("inertia", inertia, (3, 3), hints.get(inertia.ndim, ""))
        checks.single_or_double("inertia", inertia)
        check_inertia(inertia)
        object.__setattr__(self, "_inertia", symmetric_part(inertia))
        object.__setattr__(self, "mass", _mass(mass, inertia.dtype))

    @classmethod
    def _unchecked(
        cls, inertia: Any = None, moments: Any = None, axes: Any = None, mass: Any = None
    ) -> Body:
        """Return a body of these leaves, unchecked: JAX also makes bodies of placeholders."""
        body = object.__new__(cls)
        vars(body).update(_inertia=inertia, _moments=moments, _axes=axes, mass=mass)
        return body

    def __repr__(self) -> str:
        mass = "" if self.mass is None else f", mass={_shown(self.mass)}"
        if self._moments is None:
            return f"Body(inertia={_shown(self._inertia)}{mass})"
        moments, axes = _shown(self._moments), _shown(self._axes)
        return f"Body.from_principal(moments={moments}, axes={axes}{mass})"

    @property
    def inertia(self) -> Array:
        """Inertia (3, 3) in body axes [kg m^2].

        Examples:
            >>> body.inertia[2, 2]
            Array(4., dtype=float32)
        """
        if self._moments is None:
            return self._inertia
        rotation = quaternion.to_matrix(self._axes)
        return symmetric_part(matmul(rotation * self._moments[..., None, :], transpose(rotation)))

    @property
    def parameters(self) -> Array:
        """The six numbers (6,) for ``from_parameters``; NaN for a flat body, I1 + I2 = I3.

        Examples:
            >>> theta = body.parameters
        """
        return to_six(self.inertia)

    @classmethod
    def from_principal(
        cls, moments: ArrayLike, axes: ArrayLike | None = None, mass: ArrayLike | None = None
    ) -> Body:
        """Make a body of principal moments (3,) [kg m^2] and axes (4,), principal to body axes.

        ``axes`` is a unit quaternion, the identity by default, in the dtype of the moments
        (TypeError). Schemes that work in principal axes then need no eigenvectors, and gradients
        exist at repeated moments.

        Examples:
            >>> tilt = jq.quaternion.exp(jnp.array([0.0, 0.0, jnp.pi / 6]))  # 30 degrees about z
            >>> jq.Body.from_principal(jnp.array([2.0, 4.0, 5.0]), tilt).inertia[0, 0].round(2)
            Array(2.5, dtype=float32)
        """
        moments = checks.exactly("moments", moments, (3,))
        checks.single_or_double("moments", moments)
        if axes is None:
            axes = jnp.asarray([1.0, 0.0, 0.0, 0.0], moments.dtype)
        axes = checks.exactly("axes", axes, (4,))
        checks.same_dtype("axes", axes, moments.dtype, "the moments")
        checks.unit_quaternion("axes", axes)
        check_moments("moments", moments)
        return cls._unchecked(moments=moments, axes=axes, mass=_mass(mass, moments.dtype))

    @classmethod
    def from_parameters(cls, theta: ArrayLike, mass: ArrayLike | None = None) -> Body:
        """Make a body of any six real numbers (6,): a smooth chart of physical inertias.

        L is lower triangular, with the diagonal ``exp(theta[:3])``, theta[3] in the second row,
        theta[4] and theta[5] in the third. ``S = L L^T`` is the matrix of second moments of mass,
        the inertia is ``tr(S) 1 - S`` (log-Cholesky; Rucker and Wensing, IEEE RA-L 7(2), 2022):
        positive definite with the triangle inequality, up to rounding of the largest moment.
        Exponentials beyond the dtype raise ValueError; traced, they make the inertia infinite, NaN
        or 0.

        Examples:
            >>> jq.Body.from_parameters(jnp.zeros(6)).inertia[2, 2]
            Array(2., dtype=float32)
        """
        theta = checks.exactly("theta", theta, (6,))
        checks.finite("theta", theta)
        inertia = from_six(theta)
        return cls._unchecked(inertia, mass=_mass(mass, inertia.dtype))

    @classmethod
    def box(cls, mass: ArrayLike, sides: ArrayLike) -> Body:
        """Make a homogeneous box: mass [kg], sides (3,) [m] along the body axes.

        Examples:
            >>> jnp.diag(jq.Body.box(12.0, jnp.array([1.0, 2.0, 3.0])).inertia)  # 4 + 9, ...
            Array([13., 10.,  5.], dtype=float32)
        """
        mass, sides = _positive("mass", mass, ()), _positive("sides", sides, (3,))
        return cls._of_moments(mass / 12.0 * sums_of_others(sides * sides), mass)

    @classmethod
    def cylinder(cls, mass: ArrayLike, radius: ArrayLike, height: ArrayLike) -> Body:
        """Make a homogeneous cylinder: mass [kg], radius and height [m], its axis along body z.

        Examples:
            >>> jq.Body.cylinder(8.0, radius=0.5, height=0.1).inertia[2, 2]  # 8 0.5^2/2
            Array(1., dtype=float32)
        """
        mass = _positive("mass", mass, ())
        radius, height = _positive("radius", radius, ()), _positive("height", height, ())
        across = mass * (3.0 * radius * radius + height * height) / 12.0
        return cls._of_moments(jnp.stack([across, across, 0.5 * mass * radius * radius]), mass)

    @classmethod
    def sphere(cls, mass: ArrayLike, radius: ArrayLike) -> Body:
        """Make a homogeneous sphere: mass [kg], radius [m].

        Examples:
            >>> jq.Body.sphere(10.0, radius=0.5).inertia[2, 2]  # 2/5 10 0.5^2
            Array(1., dtype=float32)
        """
        mass, radius = _positive("mass", mass, ()), _positive("radius", radius, ())
        return cls.ellipsoid(mass, jnp.broadcast_to(radius, (3,)))

    @classmethod
    def ellipsoid(cls, mass: ArrayLike, semi_axes: ArrayLike) -> Body:
        """Make a homogeneous ellipsoid (see ``jq.flow``): mass [kg], semi-axes (3,) [m], body axes.

        Examples:
            >>> jnp.diag(jq.Body.ellipsoid(5.0, jnp.array([1.0, 2.0, 3.0])).inertia)  # m/5 (4 + 9)
            Array([13., 10.,  5.], dtype=float32)
        """
        mass, semi_axes = _positive("mass", mass, ()), _positive("semi_axes", semi_axes, (3,))
        return cls._of_moments(mass / 5.0 * sums_of_others(semi_axes * semi_axes), mass)

    @classmethod
    def _of_moments(cls, moments: Array, mass: Array) -> Body:
        return cls.from_principal(moments, mass=mass.astype(moments.dtype))

    @classmethod
    def random(
        cls, key: Array, *, dtype: DTypeLike | None = None, mass: ArrayLike | None = None
    ) -> Body:
        """Draw ``from_parameters`` of six normal numbers (std 0.3), in ``dtype``, by default JAX's.

        Examples:
            >>> body = jq.Body.random(jax.random.key(0))  # moments of order 1, products of inertia
        """
        key, dtype = checks.random_key("key", key), checks.floating_dtype("dtype", dtype)
        return cls.from_parameters(0.3 * jax.random.normal(key, (6,), dtype), mass)

    def principal(self) -> tuple[Array, Array]:
        """Return moments (3,) [kg m^2] and axes (4,), a quaternion from principal to body axes.

        After ``from_principal`` they are its arguments. Otherwise Jacobi's rotations compute them,
        with each principal axis nearest to its body axis; derivatives are undefined at equal
        moments.

        Examples:
            >>> inertia = jnp.array([[5.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 6.5]])  # kg m^2
            >>> [f"{x:.2f}" for x in jq.Body(inertia).principal()[0]]
            ['6.00', '1.00', '6.50']
        """
        if self._moments is not None:
            return self._moments, self._axes
        unit = power_of_two(self._inertia)  # so that squares of elements stay within range
        moments, axes = principal_axes(self._inertia / unit)
        return unit * moments, axes

    def shifted(self, mass: ArrayLike, offset: ArrayLike) -> Body:
        """Return the body about a point at ``offset`` d (3,) [m] from its centre of mass.

        Its inertia is ``I + m (|d|^2 1 - d d^T)`` with the mass m [kg] (parallel axis theorem). It
        has no mass, because it turns about a fixed point.

        Examples:
            >>> hanging = jq.Body.box(12.0, jnp.ones(3)).shifted(12.0, jnp.array([0.0, 0.0, -2.0]))
            >>> jnp.diag(hanging.inertia)  # 2 + 12 2^2 kg m^2 where it swings
            Array([50., 50.,  2.], dtype=float32)
        """
        mass, offset = _positive("mass", mass, ()), checks.exactly("offset", offset, (3,))
        checks.finite("offset", offset)
        inertia, eye = self.inertia, jnp.eye(3, dtype=self.inertia.dtype)
        second = dot(offset, offset) * eye - offset[:, None] * offset[None, :]
        return Body._unchecked(inertia + mass * second)


# Names of leaves have no underscore; None is not a leaf. A body that JAX rebuilds is not checked.
_LEAVES = ("_inertia", "_moments", "_axes", "mass")
_KEYS = [GetAttrKey(name.removeprefix("_")) for name in _LEAVES]
jax.tree_util.register_pytree_with_keys(
    Body,
    lambda body: ([(k, getattr(body, x)) for k, x in zip(_KEYS, _LEAVES, strict=True)], None),
    lambda _, leaves: Body._unchecked(*leaves),
)


def scaled(body: Body, inertia: ArrayLike, mass: ArrayLike) -> Body:
    """Return the body with the inertia and, if it has one, the mass multiplied by these numbers."""
    pairs = (inertia, body._inertia), (inertia, body._moments), (mass, body.mass)
    leaves = [None if leaf is None else factor * leaf for factor, leaf in pairs]
    return Body._unchecked(leaves[0], leaves[1], body._axes, leaves[2])


def mass_of(body: Body) -> Array:
    """Return the mass of a body; TypeError for another object, ValueError if it has none."""
    checks.instance("body", body, Body, "a jq.Body")
    if body.mass is None:
        raise ValueError("body: wanted a mass, got none; jq.Body(inertia, mass) has one")
    return body.mass


def check_body(body: Any, dtype: Any = None, of: str = "") -> None:
    """Raise an error if ``body`` is not one body, or has another dtype than the argument ``of``."""
    checks.instance("body", body, Body, "a jq.Body")
    inertia = jax.eval_shape(lambda body: body.inertia, body)
    if inertia.shape != (3, 3) or (body.mass is not None and jnp.ndim(body.mass)):
        wanted = "one body, inertia of shape (3, 3)"
        raise ValueError(f"body: wanted {wanted}, got {inertia.shape}; use jax.vmap for a batch")
    if dtype is not None:
        checks.same_dtype("body", inertia, dtype, of)


def refuse_bodies(name: str, tree: Any) -> None:
    """Raise TypeError if ``tree``, which an optimiser will update, contains a Body."""

    def is_body(node: Any) -> bool:
        return isinstance(node, Body)

    for path, node in jax.tree_util.tree_leaves_with_path(tree, is_leaf=is_body):
        if is_body(node):
            raise TypeError(
                f"{name}: wanted no jq.Body, whose moments an update would make negative, got one "
                f"at {name}{jax.tree_util.keystr(path)}; give theta of "
                "jq.Body.from_parameters(theta), or logarithms of the moments of "
                "jq.Body.from_principal, and make the body within the function"
            )


def _positive(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    array = checks.exactly(name, value, shape)
    checks.measurable(name, array)
    return array


def _mass(mass: ArrayLike | None, dtype: Any) -> Array | None:
    """Return the mass in the dtype of the inertia: a number is cast, an array must have it."""
    if mass is None:
        return None
    array = _positive("mass", mass, ())
    if hasattr(mass, "dtype") and not getattr(mass, "weak_type", False):
        checks.same_dtype("mass", array, dtype, "the inertia")
    return array.astype(dtype)


def _shown(leaf: Any) -> str:
    """Return a leaf in one line: one inertia by its rows, anything else as in other reprs."""
    if isinstance(leaf, np.ndarray | Array) and leaf.shape == (3, 3) and checks.is_concrete(leaf):
        return f"[{', '.join(map(short, np.asarray(leaf)))}]"
    return short(leaf)

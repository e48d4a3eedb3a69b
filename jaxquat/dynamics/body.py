"""The rigid body: its inertia, and the ways to state it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from jaxquat._checks import (
    exactly,
    finite,
    floating,
    floating_dtype,
    instance,
    is_concrete,
    positive,
    random_key,
    symmetric,
    unit_quaternion,
)
from jaxquat._linear import dot, matmul, transpose
from jaxquat.rotations import quaternion

__all__ = ["Body"]


@jax.tree_util.register_pytree_with_keys_class
class Body:
    """A rigid body: its inertia [kg m^2] about the centre of mass (or a fixed point), in body axes.

    Immutable, and a pytree whose leaves are differentiable: the inertia, or the moments and the axes after ``from_principal``;
    ``principal()`` gives both of any body. Concrete values are checked: (3, 3), finite, symmetric, positive definite, triangle
    inequality of the principal moments. A batch of bodies is ``jax.vmap(jq.Body)(inertias)``.

    Not for an optimiser: its updates would make moments negative and take the axes off the unit sphere, and nothing checks what
    JAX rebuilds. Fit ``theta`` of ``Body.from_parameters(theta)``, or logarithms for ``Body.from_principal(jnp.exp(logarithms))``,
    and make the body within the loss: ``jq.fit`` refuses a Body among its params.
    """

    __slots__ = ("_axes", "_inertia", "_moments")

    _inertia: Array | None  # None after from_principal
    _moments: Array | None  # None otherwise
    _axes: Array | None

    def __init__(self, inertia: ArrayLike):
        inertia = floating("inertia", inertia)
        hints = {
            1: "; principal moments: jq.Body.from_principal",
            3: "; make a batch with jax.vmap(jq.Body)",
        }
        inertia = exactly("inertia", inertia, (3, 3), hints.get(inertia.ndim, ""))
        _check_dtype("inertia", inertia)
        _check_inertia(inertia)
        self._set(_symmetric_part(inertia), None, None)

    def _set(self, inertia: Any, moments: Any, axes: Any) -> Body:
        for name, value in zip(
            ("_inertia", "_moments", "_axes"), (inertia, moments, axes), strict=True
        ):
            object.__setattr__(self, name, value)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"Body is immutable: cannot set {name!r}; make another Body")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Body is immutable: cannot delete {name!r}")

    def __reduce__(self):
        return Body._unchecked, (self._inertia, self._moments, self._axes)

    def __repr__(self) -> str:
        if self._moments is None:
            return f"Body(inertia={self._inertia!r})"
        return f"Body.from_principal(moments={self._moments!r}, axes={self._axes!r})"

    def tree_flatten_with_keys(self) -> tuple[Any, None]:
        """For JAX."""
        names = ("inertia", "moments", "axes")
        leaves = (self._inertia, self._moments, self._axes)
        return tuple(zip(map(jax.tree_util.GetAttrKey, names), leaves, strict=True)), None

    @classmethod
    def tree_unflatten(cls, _: None, leaves: Any) -> Body:
        """For JAX; checks nothing."""
        return cls._unchecked(*leaves)

    @classmethod
    def _unchecked(cls, inertia: Any, moments: Any = None, axes: Any = None) -> Body:
        return object.__new__(cls)._set(inertia, moments, axes)

    @property
    def inertia(self) -> Array:
        """(3, 3) inertia in body axes [kg m^2]."""
        if self._moments is None or self._axes is None:
            assert self._inertia is not None
            return self._inertia
        rotation = quaternion.to_matrix(self._axes)
        return _symmetric_part(matmul(rotation * self._moments[..., None, :], transpose(rotation)))

    @property
    def parameters(self) -> Array:
        """The six numbers from which ``Body.from_parameters`` makes this body."""
        inertia = self.inertia
        trace = inertia[..., 0, 0] + inertia[..., 1, 1] + inertia[..., 2, 2]
        second = 0.5 * trace[..., None, None] * jnp.eye(3, dtype=inertia.dtype) - inertia
        factor = jnp.linalg.cholesky(second)
        diagonal = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1))
        return jnp.concatenate(
            [diagonal, jnp.stack([factor[..., 1, 0], factor[..., 2, 0], factor[..., 2, 1]], -1)], -1
        )

    @classmethod
    def from_principal(cls, moments: ArrayLike, axes: ArrayLike | None = None) -> Body:
        """From principal moments (3,) and a unit quaternion (4,), principal to body axes (default: they coincide).

        Both are kept as they are, so a scheme that works in principal axes needs no eigenvectors, and gradients exist at repeated
        moments. TypeError if they are of two dtypes.
        """
        moments = exactly("moments", moments, (3,))
        _check_dtype("moments", moments)
        axes = (
            jnp.asarray([1.0, 0.0, 0.0, 0.0], moments.dtype)
            if axes is None
            else exactly("axes", axes, (4,))
        )
        if axes.dtype != moments.dtype:
            raise TypeError(
                f"axes: wanted the dtype of the moments, {moments.dtype}, got {axes.dtype}"
            )
        unit_quaternion("axes", axes)
        _check_moments("moments", moments)
        return cls._unchecked(None, moments, axes)

    @classmethod
    def from_parameters(cls, theta: ArrayLike) -> Body:
        """From any six real numbers (6,): a smooth chart of the physical inertias, for optimisers.

        With L lower triangular, diagonal exp(theta[:3]), below it theta[3], theta[4] (third row), theta[5]: ``S = L L^T`` is the
        matrix of second moments of mass and the inertia is ``tr(S) 1 - S`` (log-Cholesky; Rucker and Wensing, IEEE RA-L 7(2),
        2022). Every theta whose exponentials the dtype can hold gives a positive definite inertia with the triangle inequality;
        one beyond is a ValueError, and traced an inertia that is infinite, NaN or 0. ``body.parameters`` inverts.
        """
        theta = exactly("theta", theta, (6,))
        finite("theta", theta)
        a, b, c = jnp.exp(theta[0]), jnp.exp(theta[1]), jnp.exp(theta[2])
        zero = jnp.zeros_like(a)
        factor = jnp.stack([a, zero, zero, theta[3], b, zero, theta[4], theta[5], c]).reshape(3, 3)
        second = matmul(factor, factor.T)
        x, y, z = second[0, 0], second[1, 1], second[2, 2]
        sums = jnp.stack([y + z, z + x, x + y])  # not tr(S) - S_kk, which cancels for a needle
        inertia = jnp.where(jnp.eye(3, dtype=bool), sums[:, None], -second)
        if is_concrete(inertia) and not (
            np.all(np.isfinite(inertia)) and np.all(np.asarray(sums) > 0)
        ):
            wanted = f"exponentials of theta[:3] and products that {inertia.dtype} can hold"
            raise ValueError(f"theta: wanted {wanted}, got {theta}, of moments {np.asarray(sums)}")
        return cls._unchecked(inertia)

    @classmethod
    def box(cls, mass: ArrayLike, sides: ArrayLike) -> Body:
        """Homogeneous box: mass [kg], sides (3,) [m] along the body axes."""
        mass, sides = exactly("mass", mass, ()), exactly("sides", sides, (3,))
        positive("mass", mass)
        positive("sides", sides)
        square = sides * sides
        return cls.from_principal(mass / 12.0 * (jnp.roll(square, 1) + jnp.roll(square, -1)))

    @classmethod
    def cylinder(cls, mass: ArrayLike, radius: ArrayLike, height: ArrayLike) -> Body:
        """Homogeneous cylinder: mass [kg], radius and height [m], its axis along body z."""
        named = [("mass", mass), ("radius", radius), ("height", height)]
        mass, radius, height = (exactly(name, value, ()) for name, value in named)
        for name, value in zip(("mass", "radius", "height"), (mass, radius, height), strict=True):
            positive(name, value)
        across = mass * (3.0 * radius * radius + height * height) / 12.0
        return cls.from_principal(jnp.stack([across, across, 0.5 * mass * radius * radius]))

    @classmethod
    def random(cls, key: Array, *, dtype: DTypeLike | None = None) -> Body:
        """A random physical inertia with products: ``from_parameters`` of normal numbers of spread 0.3 (moments of order 1)."""
        return cls.from_parameters(
            0.3 * jax.random.normal(random_key("key", key), (6,), floating_dtype("dtype", dtype))
        )

    def principal(self) -> tuple[Array, Array]:
        """(moments (3,) [kg m^2], axes (4,), principal to body): those kept by ``from_principal``, otherwise by Jacobi's rotations.

        In the order in which the axes lie nearest to the body's. By rotations the derivatives are undefined where two moments are
        equal: there use ``from_principal``.
        """
        if self._moments is not None and self._axes is not None:
            return self._moments, self._axes
        matrix, axes = self.inertia, jnp.asarray([1.0, 0.0, 0.0, 0.0], self.inertia.dtype)
        for _ in range(5):
            for k in range(3):
                turn = _jacobi(matrix, k)
                axes, rotation = quaternion.multiply(axes, turn), quaternion.to_matrix(turn)
                matrix = matmul(transpose(rotation), matmul(matrix, rotation))
        return jnp.diagonal(matrix), quaternion.correct_norm(axes)

    def shifted(self, mass: ArrayLike, offset: ArrayLike) -> Body:
        """The same body about a point ``offset`` (3,) [m] away from its centre of mass (parallel axes): I + m (|d|^2 1 - d d^T).

        For a body about its centre of mass only: to come from one point to another shift the body about its centre.
        """
        mass, offset = exactly("mass", mass, ()), exactly("offset", offset, (3,))
        positive("mass", mass)
        finite("offset", offset)
        eye = jnp.eye(3, dtype=self.inertia.dtype)
        return Body._unchecked(
            self.inertia + mass * (dot(offset, offset) * eye - offset[:, None] * offset[None, :])
        )


def check_body(body: Any, dtype: Any = None, of: str = "") -> None:
    """ValueError or TypeError if ``body`` is not one body, or not of the dtype, which is that ``of`` another argument."""
    instance("body", body, Body, "a jq.Body")
    inertia = jax.eval_shape(lambda body: body.inertia, body)
    if inertia.shape != (3, 3):
        raise ValueError(
            f"body: wanted one body, inertia of shape (3, 3), got {inertia.shape}; use jax.vmap for a batch"
        )
    if dtype is not None and inertia.dtype != dtype:
        raise TypeError(f"body: wanted the dtype of {of}, {dtype}, got {inertia.dtype}")


def equal_moments(moments: Array, axis: int | None = None) -> Array:
    """Whether two of the moments (3,) are equal, to 100 units of rounding of the largest. -> ().

    Any two, or those of the two axes beside ``axis``.
    """
    gaps = jnp.abs(moments - jnp.roll(moments, 1))
    gap = jnp.min(gaps) if axis is None else gaps[axis - 1]
    return gap <= 100 * jnp.finfo(moments.dtype).eps * jnp.max(moments)


def check_symmetric(name: str, body: Body, hint: str = "") -> None:
    """ValueError that begins with ``name`` if the moments of a concrete body differ about axis 3."""
    if is_concrete(body):
        with jax.ensure_compile_time_eval():
            moments, _ = body.principal()
            if not bool(equal_moments(moments, axis=2)):
                wanted = "two equal moments about axis 3"
                raise ValueError(f"body: {name} wanted {wanted}, got {moments.tolist()}{hint}")


def refuse_bodies(name: str, tree: Any) -> None:
    """TypeError if there is a Body in the tree of what an optimiser is to move."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(
        tree, is_leaf=lambda x: isinstance(x, Body)
    ):
        if isinstance(leaf, Body):
            raise TypeError(
                f"{name}: wanted no jq.Body, whose moments an update would make negative, got one at "
                f"{name}{jax.tree_util.keystr(path)}; give theta of jq.Body.from_parameters(theta), or logarithms of the moments "
                "of jq.Body.from_principal, and make the body within the function"
            )


def _symmetric_part(matrix: Array) -> Array:
    """A symmetric matrix without what rounding has made of it: that would make the energy of a free body drift."""
    return 0.5 * (matrix + transpose(matrix))


def _jacobi(matrix: Array, k: int) -> Array:
    """The smaller turn about axis k that makes the element of the other two axes vanish, as a unit quaternion (4,)."""
    i, j = (k + 1) % 3, (k + 2) % 3
    off, gap = 2.0 * matrix[i, j], matrix[i, i] - matrix[j, j]
    size = off * off + gap * gap
    root = jnp.sqrt(jnp.where(size > 0, size, 1.0))
    tangent = jnp.where(gap < 0, -off, off) / (jnp.abs(gap) + root)  # of the angle, at most 1
    half = tangent / (1.0 + jnp.sqrt(1.0 + tangent * tangent))
    across = jnp.where(jnp.arange(3) == k, half, jnp.zeros_like(half))
    return jnp.concatenate([jnp.ones_like(half)[None], across]) / jnp.sqrt(1.0 + half * half)


def _check_dtype(name: str, value: Array) -> None:
    if value.dtype not in (jnp.float32, jnp.float64):
        raise TypeError(f"{name}: wanted float32 or float64, got {value.dtype}")


def _check_inertia(inertia: Array) -> None:
    if not is_concrete(inertia):
        return
    finite("inertia", inertia)
    symmetric("inertia", inertia)
    _check_moments("inertia", np.linalg.eigvalsh(np.asarray(inertia)))


def _check_moments(name: str, moments: Any) -> None:
    if not is_concrete(moments):
        return
    values = np.sort(np.asarray(moments, dtype=np.float64))
    if not np.all(np.isfinite(values)):
        raise ValueError(f"{name}: wanted finite values, got {values}")
    if values[0] <= 0:
        raise ValueError(
            f"{name}: wanted a positive definite inertia, got principal moments {values}"
        )
    if values[2] > (values[0] + values[1]) * (1 + 100 * np.finfo(np.asarray(moments).dtype).eps):
        raise ValueError(
            f"{name}: wanted moments with I1 + I2 >= I3 (no mass is negative), got principal moments {values}"
        )

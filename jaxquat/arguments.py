"""Checks of arguments: each error names the argument, what was wanted and what came.

Facts known while tracing (shape, dtype, an unknown option) are always checked. Facts about values are checked only
where the value is concrete, so the same code runs under ``jit``, ``vmap`` and ``grad``.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike


def is_concrete(tree: Any) -> bool:
    """Whether no leaf of ``tree`` is being traced, so that its values may be read."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def floating(name: str, value: Any) -> Array:
    """``value`` as an array of floating dtype; TypeError otherwise."""
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: wanted an array of floats, got {value!r}") from error
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name}: wanted a floating dtype, got {array.dtype} (write 1.0, not 1)")
    return array


def floating_tree(name: str, tree: Any) -> Any:
    """``tree`` with arrays of floating dtype for leaves; TypeError, with the place in the tree, otherwise."""

    def checked(path: Any, leaf: Any) -> Array:
        try:
            return floating(name, leaf)
        except TypeError as error:
            place = f" at {name}{jax.tree_util.keystr(path)}" if path else ""
            hint = "split the tree (equinox.partition does), give the floats here and let the function join the parts"
            raise TypeError(f"{error}{place}; {hint}") from error

    return jax.tree_util.tree_map_with_path(checked, tree)


def exactly(name: str, value: Any, shape: tuple[int, ...], hint: str = "") -> Array:
    """``value`` as a floating array of exactly this shape."""
    array = floating(name, value)
    if array.shape != shape:
        raise ValueError(f"{name}: wanted shape {shape}, got {array.shape}{hint}")
    return array


def trailing(name: str, value: Any, core: tuple[int, ...]) -> Array:
    """``value`` as a floating array whose last axes are ``core``."""
    array = floating(name, value)
    if array.shape[array.ndim - len(core) :] != core or array.ndim < len(core):
        wanted = ", ".join(["...", *map(str, core)])
        raise ValueError(f"{name}: wanted shape ({wanted}), got {array.shape}")
    return array


def broadcast(*named: tuple[str, Any, tuple[int, ...]]) -> list[Array]:
    """Floating arrays from (name, value, core shape), their leading axes padded to one rank so that they broadcast."""
    arrays = [trailing(name, value, core) for name, value, core in named]
    leading = [array.shape[: array.ndim - len(core)] for array, (_, _, core) in zip(arrays, named, strict=True)]
    try:
        rank = len(np.broadcast_shapes(*leading))
    except ValueError:
        names = ", ".join(name for name, _, _ in named)
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise ValueError(f"{names}: wanted leading axes that broadcast, got shapes {shapes}") from None
    return [array.reshape((1,) * (rank - len(batch)) + array.shape) for array, batch in zip(arrays, leading, strict=True)]


def function(name: str, value: Any) -> Any:
    """``value`` if it can be called; TypeError otherwise."""
    if not callable(value):
        shown = repr(value) if value is None or isinstance(value, str) else type(value).__name__
        raise TypeError(f"{name}: wanted a function, got {shown}")
    return value


def instance(name: str, value: Any, kind: type, wanted: str) -> Any:
    """``value`` if it is of this type; TypeError otherwise."""
    if not isinstance(value, kind):
        shown = repr(value) if value is None or isinstance(value, str) else type(value).__name__
        raise TypeError(f"{name}: wanted {wanted}, got {shown}")
    return value


def random_key(name: str, value: Any) -> Array:
    """``value`` if it is a ``jax.random.key``, also of the older kind; TypeError otherwise."""
    if not hasattr(value, "dtype") or not (jnp.issubdtype(value.dtype, jax.dtypes.prng_key) or value.dtype == jnp.uint32):
        raise TypeError(f"{name}: wanted a jax.random.key, got {value!r}")
    return value


def positive(name: str, value: ArrayLike) -> None:
    """ValueError if a concrete ``value`` is not positive throughout."""
    if is_concrete(value) and not np.all(np.asarray(value) > 0):
        raise ValueError(f"{name}: wanted positive values, got {np.asarray(value)}")


def one_of(name: str, value: Any, options: Sequence[Any]) -> Any:
    """``value`` if it is one of ``options``; ValueError otherwise."""
    if not any(value is option or value == option for option in options):
        raise ValueError(f"{name}: wanted one of {', '.join(map(repr, options))}, got {value!r}")
    return value


def positive_integer(name: str, value: Any) -> int:
    """``value`` as an int of at least 1 (a bool is not one)."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: wanted an integer, got {value!r}")
    if value < 1:
        raise ValueError(f"{name}: wanted at least 1, got {value}")
    return int(value)


def divisor(name: str, value: Any, total: int) -> int:
    """``value`` as a positive integer that divides the number of steps."""
    value = positive_integer(name, value)
    if total % value:
        raise ValueError(f"{name}: wanted a divisor of the {total} steps, got {value}")
    return value


def finite(name: str, value: Array) -> None:
    """ValueError if a concrete ``value`` holds a NaN or an infinity."""
    if is_concrete(value) and not np.all(np.isfinite(np.asarray(value))):
        raise ValueError(f"{name}: wanted finite values, got {np.asarray(value)}")


def unit_quaternion(name: str, value: Array, tolerance: float = 1e-4) -> None:
    """ValueError if a concrete quaternion is off the unit sphere by more than ``tolerance``."""
    if is_concrete(value):
        norm = float(np.linalg.norm(np.asarray(value, dtype=np.float64)))
        if not math.isfinite(norm) or abs(norm - 1.0) > tolerance:
            raise ValueError(
                f"{name}: wanted a unit quaternion (| |q| - 1 | <= {tolerance:g}), got {np.asarray(value)} of norm {norm:.8g}"
            )


def missing_package(name: str, package: str, extra: str) -> str:
    """What the ImportError says where a package of an extra is not installed."""
    return f'{name}: wanted the package {package}, got none: pip install "jaxquat[{extra}]"'

"""Checks of arguments: each error names the argument, what was wanted and what was passed.

Values are checked only if they are concrete, shapes, dtypes and options always.
"""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.experimental import checkify
from jax.typing import ArrayLike

F = TypeVar("F", bound=Callable[..., Any])


def is_concrete(tree: Any) -> bool:
    """Return whether no leaf of ``tree`` is traced, so that its values can be read."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(tree))


def concrete(name: str, value: Any, reason: str) -> None:
    """Raise TypeError if a leaf of ``value`` is traced; ``reason`` says why it must not be."""
    if not is_concrete(value):
        raise TypeError(f"{name}: wanted concrete arrays, got traced ones; {reason}")


def _now(function: Callable[[Any], Array], value: Any) -> Array:
    """Return ``function(value)``, concrete if ``value`` is, even while JAX is tracing."""
    if not is_concrete(value):
        return function(value)
    with jax.ensure_compile_time_eval():
        return function(value)


def floating(name: str, value: Any) -> Array:
    """Return ``value``, which may be a Python int, as an array of floats; TypeError otherwise."""
    try:
        array = _now(jnp.asarray, float(value) if type(value) is int else value)
    except (TypeError, ValueError, OverflowError) as error:
        of = f"one of {value.dtype.str}" if isinstance(value, np.ndarray) else repr(value)
        of = of if len(of) <= 200 else f"a {type(value).__name__}"
        of += "; pass rotation.as_quat()" if hasattr(value, "as_quat") else ""
        raise TypeError(f"{name}: wanted an array of floats, got {of}") from error
    if not jnp.issubdtype(array.dtype, jnp.floating):
        hint = " (write 1.0, not 1)" if jnp.issubdtype(array.dtype, jnp.integer) else ""
        raise TypeError(f"{name}: wanted a floating dtype, got {array.dtype}{hint}")
    return array


def integers(name: str, value: Any) -> Array:
    """Return ``value`` as an array of integer dtype; TypeError otherwise."""
    try:
        array = _now(jnp.asarray, value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name}: wanted integers, got {value!r}") from error
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name}: wanted integers, got {array.dtype}")
    if is_concrete(array):  # without x64, JAX keeps only the lower half of an int64
        every(name, f"integers that {array.dtype} holds", value, np.asarray(array) == value)
    return array


def floating_tree(name: str, tree: Any) -> Any:
    """Return ``tree`` with arrays of floats as leaves; a TypeError names another leaf."""

    def checked(path: Any, leaf: Any) -> Array:
        try:
            return floating(name, np.asarray(leaf) if type(leaf) is int else leaf)
        except TypeError as error:
            raise TypeError(f"{error}{_at(path, name)}") from error

    return jax.tree_util.tree_map_with_path(checked, tree)


def single_or_double(name: str, tree: Any) -> None:
    """Raise TypeError if a floating array in a tree is neither float32 nor float64."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        dtype = getattr(leaf, "dtype", jnp.float32)
        if jnp.issubdtype(dtype, jnp.floating) and dtype not in (jnp.float32, jnp.float64):
            raise TypeError(f"{name}: wanted float32 or float64, got {dtype}{_at(path, name)}")


def _at(path: Any, name: str = "") -> str:
    """Return the place of a leaf in the argument ``name``, as the end of a message."""
    return f" at {name}{jax.tree_util.keystr(path)}" if path else ""


def exactly(name: str, value: Any, shape: tuple[int, ...], hint: str = "") -> Array:
    """Return ``value`` as a floating array of exactly this shape."""
    return one_shape(name, value, shape, hint=hint)


def vector(name: str, value: Any) -> Array:
    """Return ``value`` as a floating array of shape (m,), m at least 1."""
    array = floating(name, value)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name}: wanted shape (m,), got {array.shape}")
    return array


def scalar(name: str, value: Any) -> Array:
    """Return ``value`` as one finite number, a floating array of shape ()."""
    number = exactly(name, value, (), "; use jax.vmap")
    finite(name, number)
    return number


def one_shape(name: str, value: Any, *shapes: tuple[int, ...], hint: str = "") -> Array:
    """Return ``value`` as a floating array of one of these shapes."""
    array = floating(name, value)
    if array.shape not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise ValueError(f"{name}: wanted shape {wanted}, got {array.shape}{hint}")
    return array


def trailing(name: str, value: Any, core: tuple[int, ...]) -> Array:
    """Return ``value`` as a floating array whose last axes are ``core``."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # asarray would stack the fields
        raise TypeError(f"{name}: wanted an array, got a {type(value).__name__}")
    array = floating(name, value)
    if array.shape[array.ndim - len(core) :] != core or array.ndim < len(core):
        wanted = ", ".join(["...", *map(str, core)])
        raise ValueError(f"{name}: wanted shape ({wanted}), got {array.shape}")
    return array


def broadcast(*named: tuple[str, Any, tuple[int, ...]]) -> list[Array]:
    """Return floating arrays of (name, value, core shape), with equally many leading axes."""
    arrays = [trailing(name, value, core) for name, value, core in named]
    leading = [
        array.shape[: array.ndim - len(core)]
        for array, (_, _, core) in zip(arrays, named, strict=True)
    ]
    try:
        rank = len(np.broadcast_shapes(*leading))
    except ValueError:
        names = ", ".join(name for name, _, _ in named)
        got = "shapes " + ", ".join(str(array.shape) for array in arrays)
        raise ValueError(f"{names}: wanted leading axes that broadcast, got {got}") from None
    return [
        _now(partial(jnp.reshape, shape=(1,) * (rank - len(batch)) + array.shape), array)
        for array, batch in zip(arrays, leading, strict=True)
    ]


def function(name: str, value: Any, hint: str = "") -> Any:
    """Return ``value`` if it can be called; TypeError otherwise."""
    if not callable(value):
        raise TypeError(f"{name}: wanted a function, got {_shown(value)}{hint}")
    return value


def takes(name: str, value: Any, arguments: str, why: str = "", hint: str = "") -> Any:
    """Return ``value`` if it is a function of these positional arguments; TypeError otherwise."""
    # ``arguments`` are names, as "t, state"; ``why`` and ``hint`` are parts of the message.
    function(name, value, hint or f"; it is called as {name.split('.')[-1]}({arguments})")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return value
    try:
        signature.bind(*arguments.split(", "))
    except TypeError:
        parameters = signature.parameters.values()
        bare = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
        bare_signature = signature.replace(parameters=bare, return_annotation=signature.empty)
        got = f"{getattr(value, '__name__', type(value).__name__)}{bare_signature}"
        wanted = f"{name.split('.')[-1]}({arguments})" + (f" because {why}" if why else "")
        raise TypeError(f"{name}: wanted {wanted}, got {got}") from None
    return value


def instance(name: str, value: Any, kind: type | tuple[type, ...], wanted: str) -> Any:
    """Return ``value`` if it is of this type, or of one of these types; TypeError otherwise."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}: wanted {wanted}, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, str) else type(value).__name__


def report(name: str, wanted: str, holds: ArrayLike, value: Array) -> None:
    """Report by ``checkify.check`` that a traced argument is not as wanted."""
    checkify.check(jnp.all(holds), f"{name}: wanted {wanted}, got {{value}}", value=value)


def is_key(value: Any) -> bool:
    """Return whether an array, or an object with a dtype, holds keys of ``jax.random``."""
    dtype = getattr(value, "dtype", None)
    return not isinstance(dtype, np.dtype | None) and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def reproducible_key(name: str, key: Any, hint: str = "") -> Array:
    """Return ``key`` as one key; ValueError for a generator whose numbers depend on vmap."""
    key = random_key(name, key, hint)
    generator = jax.random.key_impl(key)
    if "rbg" in str(generator):
        wanted = "a generator whose numbers do not depend on vmap"
        raise ValueError(f"{name}: wanted {wanted}, got {generator}")
    return key


def random_key(name: str, value: Any, hint: str = "") -> Array:
    """Return ``value`` as one ``jax.random.key``; old keys (uint32) are converted."""
    key = value
    if getattr(value, "dtype", None) == jnp.uint32:
        with contextlib.suppress(TypeError, ValueError):
            key = jax.random.wrap_key_data(value)
    if not is_key(key):
        raise TypeError(f"{name}: wanted a jax.random.key, got {value!r}{hint}")
    if key.shape != ():
        raise ValueError(f"{name}: wanted one key, got shape {key.shape}")
    return key


def every(name: str, wanted: str, value: ArrayLike, good: Any, hint: str = "") -> None:
    """Raise ValueError if an element of a concrete ``value`` is not ``good`` (booleans)."""
    array, good = np.asarray(value), np.asarray(good)
    if not good.all():
        k = np.unravel_index(np.argmin(good), array.shape)
        first = f"{array[k]} at [{', '.join(map(str, k))}] of shape {array.shape}"
        got = array if array.size <= 16 else first
        raise ValueError(f"{name}: wanted {wanted}, got {got}{hint}")


def positive(name: str, value: ArrayLike, *, or_infinite: bool = False) -> None:
    """Raise ValueError if an element of a concrete ``value`` is not positive, or not finite."""
    if is_concrete(value):
        array = np.asarray(value)
        every(name, "positive values", array, array > 0)
        every(name, "finite values", array, np.isfinite(array) | or_infinite)


def measurable(name: str, value: Array) -> None:
    """Raise ValueError if concrete elements are not positive and normal: XLA drops subnormals."""
    if is_concrete(value):
        array = np.asarray(value)
        hint = other_units(array.dtype)
        every(name, "positive values", array, array >= np.finfo(array.dtype).tiny, hint)
        every(name, "finite values", array, np.isfinite(array), hint)


def other_units(dtype: Any) -> str:
    """Return the end of a message: what to do about numbers that a dtype cannot hold."""
    info = np.finfo(dtype)
    cure = "use other units of length or mass" + (", or float64" if info.bits < 64 else "")
    return f"; {info.dtype} holds {info.tiny:.2g} to {info.max:.2g}, beyond that {cure}"


def not_negative(name: str, value: ArrayLike) -> None:
    """Raise ValueError if a concrete ``value`` is negative or not finite anywhere."""
    if is_concrete(value):
        array = np.asarray(value)
        every(name, "finite values of at least 0", array, (array >= 0) & np.isfinite(array))


def real(name: str, value: Any) -> float:
    """Return ``value`` as a float; TypeError if it is a bool, traced, or not a number."""
    array = np.asarray(None if isinstance(value, Tracer) else value)
    if array.shape != () or not (
        np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)
    ):
        raise TypeError(f"{name}: wanted a number, got {value!r}")
    return float(array)


def numbers(name: str, value: Any) -> tuple[float, ...]:
    """Return ``value`` as a tuple of floats, from a sequence of numbers; TypeError otherwise."""
    if isinstance(value, str) or not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
        raise TypeError(f"{name}: wanted a sequence of numbers, got {value!r}")
    return tuple(real(name, element) for element in value)


def fraction(name: str, value: Any) -> float:
    """Return ``value`` as a float; ValueError if it is not between 0 and 1, ends excluded."""
    number = real(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name}: wanted a number between 0 and 1, got {value}")
    return number


def same_dtype(name: str, value: Array, dtype: Any, of: str) -> None:
    """Raise TypeError if ``value`` does not have this dtype, that of the argument ``of``."""
    if value.dtype != dtype:
        raise TypeError(f"{name}: wanted the dtype of {of}, {dtype}, got {value.dtype}")


def boolean(name: str, value: Any) -> bool:
    """Return ``value`` if it is True or False; TypeError otherwise."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: wanted True or False, got {value!r}")
    return bool(value)


def floating_dtype(name: str, value: Any) -> Any:
    """Return ``value`` if it is None or denotes a floating dtype; TypeError otherwise."""
    try:
        valid = value is None or jnp.issubdtype(jnp.dtype(value), jnp.floating)
    except TypeError:
        valid = False
    if not valid:
        raise TypeError(f"{name}: wanted a floating dtype or None, got {value!r}")
    return value


def shape(name: str, value: Any) -> tuple[int, ...]:
    """Return ``value`` as a shape: a tuple of integers (TypeError), none negative (ValueError)."""
    hint = f" (write ({value},))" if isinstance(value, int) else ""
    if not isinstance(value, tuple | list) or any(
        isinstance(x, bool) or not isinstance(x, int | np.integer) for x in value
    ):
        raise TypeError(f"{name}: wanted a tuple of integers, got {value!r}{hint}")
    if any(x < 0 for x in value):
        raise ValueError(f"{name}: wanted integers of at least 0, got {value}")
    return tuple(int(x) for x in value)


def place(name: str, value: Any) -> Path:
    """Return ``value`` as the path of a file or folder; TypeError if it is not a path."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise TypeError(f"{name}: wanted a path, got {value!r}")
    return Path(os.fspath(value))


def arrays(name: str, tree: Any) -> Any:
    """Return ``tree`` if all leaves are arrays or numbers; a TypeError names another leaf."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        known = isinstance(leaf, bool | int | float | complex | np.generic | np.ndarray | Array)
        if not (known or (hasattr(leaf, "dtype") and hasattr(leaf, "shape"))):
            raise TypeError(f"{name}: wanted arrays, got {leaf!r}{_at(path)}")
        if isinstance(leaf, np.generic | np.ndarray) and leaf.dtype.kind in "USmMO":
            raise TypeError(f"{name}: wanted arrays of numbers, got {leaf.dtype}")
    return tree


def strong(leaf: Any) -> Any:
    """Return ``leaf`` without a weak type, which does not survive a file or a kernel."""
    return jnp.asarray(leaf, leaf.dtype) if getattr(leaf, "weak_type", False) else leaf


def one_of(name: str, value: Any, options: Sequence[Any]) -> Any:
    """Return ``value`` if it is one of ``options``; ValueError otherwise."""
    if isinstance(value, np.ndarray | Array) or not any(
        value is option or value == option for option in options
    ):
        raise ValueError(f"{name}: wanted one of {', '.join(map(repr, options))}, got {value!r}")
    return value


def positive_integer(name: str, value: Any, hint: str = "") -> int:
    """Return ``value`` as an int of at least 1 (a bool is not one)."""
    return integer(name, value, 1, hint)


def integer(name: str, value: Any, least: int, hint: str = "") -> int:
    """Return ``value`` as an int of at least ``least`` (a bool is not one)."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name}: wanted an integer, got {value!r}{hint}")
    if value < least:
        raise ValueError(f"{name}: wanted at least {least}, got {value}")
    return int(value)


def divisor(name: str, value: Any, total: int, unit: str = "steps") -> int:
    """Return ``value`` as a positive integer that divides ``total``, a number of ``unit``."""
    value = positive_integer(name, value)
    if total % value:
        raise ValueError(f"{name}: wanted a divisor of the {total} {unit}, got {value}")
    return value


def symmetric(name: str, value: Array) -> None:
    """Raise ValueError unless a concrete (n, n) is symmetric, to 100 roundings of its largest."""
    if is_concrete(value):
        matrix = np.asarray(value)
        tolerance = 100 * np.finfo(matrix.dtype).eps * np.abs(matrix).max(initial=0.0)
        if not np.abs(matrix - matrix.T).max(initial=0.0) <= tolerance:
            raise ValueError(f"{name}: wanted a symmetric matrix, got {matrix.tolist()}")


def rotation_matrix(name: str, value: Array) -> None:
    """Raise ValueError if a concrete matrix (..., 3, 3) is not a rotation, up to four decimals."""
    if is_concrete(value):
        finite(name, value)
        matrices = np.asarray(value, dtype=np.float64).reshape(-1, 3, 3)
        with np.errstate(over="ignore", invalid="ignore"):
            defects = np.abs(np.swapaxes(matrices, 1, 2) @ matrices - np.eye(3))
            off = defects.max(axis=(1, 2), initial=0.0)
            determinants = np.sum(matrices[:, 0] * np.cross(matrices[:, 1], matrices[:, 2]), axis=1)
        for k in np.flatnonzero(~((off <= 5e-4) & (determinants > 0)))[:1]:
            wanted = "a rotation matrix (R^T R = 1 to 0.0005, determinant 1)"
            got = f"{matrices[k].tolist()} of determinant {determinants[k]:.6g}"
            raise ValueError(f"{name}: wanted {wanted}, got {got}, R^T R off 1 by {off[k]:.3g}")


def finite(name: str, value: ArrayLike) -> None:
    """Raise ValueError if a concrete ``value`` holds a NaN or an infinity."""
    if is_concrete(value):
        every(name, "finite values", value, np.isfinite(np.asarray(value)))


def not_decreasing(name: str, times: ArrayLike) -> None:
    """Raise ValueError if concrete ``times`` (..., N) decrease along the last axis, or are NaN."""
    if is_concrete(times):
        array = np.asarray(times)
        good = np.diff(array, axis=-1, prepend=array[..., :1]) >= 0
        every(name, "times that do not decrease", array, good)


def unit_quaternion(name: str, value: Array) -> None:
    """Raise ValueError if the norm of a concrete quaternion (..., 4) is off 1 by more than 1e-4."""
    _unit(name, value, "a unit quaternion (| |q| - 1 | <= 0.0001)")


def unit_vector(name: str, value: Array) -> None:
    """Raise ValueError if the length of a concrete vector (..., n) is off 1 by more than 1e-4."""
    _unit(name, value, "a unit vector (to 0.0001)")


def _unit(name: str, value: Array, wanted: str) -> None:
    if is_concrete(value):
        rows = np.asarray(value, dtype=np.float64).reshape(-1, value.shape[-1])
        norms = np.linalg.norm(rows, axis=-1)
        for row in np.flatnonzero(~(np.abs(norms - 1.0) <= 1e-4))[:1]:
            got = f"got {rows[row]} of norm {norms[row]:.8g}"
            if jnp.finfo(value.dtype).bits < 32:
                got += f" in {value.dtype}, which rounds unit vectors by more; use float32"
            raise ValueError(f"{name}: wanted {wanted}, {got}")


def normal_vectors(name: str, value: Array, axes: Array) -> None:
    """Raise ValueError unless concrete vectors (n, 3) are unit and normal to ``axes`` (to 1e-4)."""
    unit_vector(name, value)
    if is_concrete((value, axes)):
        along = np.sum(np.asarray(axes) * np.asarray(value), axis=-1, keepdims=True)
        across = np.broadcast_to(np.abs(along) <= 1e-4, value.shape)
        every(name, "vectors normal to the axes (to 0.0001)", value, across)


def independent_columns(name: str, wanted: str, value: Array) -> None:
    """Raise ValueError unless ``A^T A`` of a concrete (n, k) is regular, columns scaled to 1."""
    if is_concrete(value) and np.isfinite(np.asarray(value)).all():
        matrix = np.asarray(value, dtype=np.float64)
        lengths = np.linalg.norm(matrix, axis=0)
        sizes = np.linalg.svd(matrix / np.where(lengths > 0, lengths, 1.0), compute_uv=False)
        if not sizes[-1] ** 2 > 10 * np.finfo(value.dtype).eps * sizes[0] ** 2:
            raise ValueError(f"{name}: wanted {wanted}, got {np.asarray(value).tolist()}")


def from_aux(name: str, value: Any) -> None:
    """Raise ValueError if ``value`` is (), the ``State.aux`` of a start that was given none."""
    if isinstance(value, tuple) and not value:
        hint = "the default of State.aux; give start an aux"
        raise ValueError(f"{name}: wanted an array, got (), {hint}")


def missing_package(name: str, package: str, extra: str) -> str:
    """Return the message of the ImportError for a package of an extra that is not installed."""
    return f'{name}: wanted the package {package}, got none: pip install "jaxquat[{extra}]"'

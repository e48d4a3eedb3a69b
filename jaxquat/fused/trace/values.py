"""Arrays of scalars of a program, which stand for the arrays of a traced function."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from jaxquat._internal.checks import is_key
from jaxquat.fused.errors import not_scalar
from jaxquat.fused.ir.builder import Builder, Scalar

LARGEST = 4096  # scalars in one array

Values = np.ndarray  # of Scalars, in the shape of the array that they stand for


def opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """Return a jaxpr and its constants; an open jaxpr has none."""
    return (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())


def raw_shape(aval: Any) -> tuple[int, ...]:
    """Return the shape of an array; random keys have one more axis for their words."""
    return (*aval.shape, *aval.dtype._impl.key_shape) if is_key(aval) else aval.shape


def raw_dtype(aval: Any) -> np.dtype:
    """Return the dtype of an array, uint32 for random keys, and bool for float0 (unused)."""
    if is_key(aval):
        return np.dtype(np.uint32)
    if aval.dtype == jax.dtypes.float0:
        return np.dtype(bool)
    return scalar_dtype(np.dtype(aval.dtype))


def scalar_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype, if scalar code has it; else a NotScalarError."""
    if dtype.kind not in "biuf" or (dtype.kind == "f" and dtype.itemsize < 4):
        raise not_scalar(f"{dtype}: scalar code has float32, float64, integers and booleans alone")
    return dtype


def raw_specs(equation: Any, args: Sequence[Values]) -> list[jax.ShapeDtypeStruct]:
    """Return shapes and dtypes of an equation's inputs; random keys count as their words."""
    pairs = zip(args, equation.invars, strict=True)
    return [jax.ShapeDtypeStruct(x.shape, raw_dtype(v.aval)) for x, v in pairs]


def fits(name: str, shape: tuple[int, ...]) -> None:
    """Raise NotScalarError for an array that is too large."""
    if math.prod(shape) > LARGEST:
        raise not_scalar(f"{name}: an array of shape {shape} is too large for scalar code")


def array(scalars: Iterable[Scalar], shape: tuple[int, ...]) -> Values:
    """Return an array of this shape, filled in order."""
    return np.fromiter(scalars, object).reshape(shape)


def shaped(scalars: Iterable[Scalar], shapes: Sequence[tuple[int, ...]]) -> list[Values]:
    """Return arrays of these shapes, filled in order."""
    rest = iter(scalars)
    return [array(itertools.islice(rest, math.prod(shape)), shape) for shape in shapes]


def flat(arrays: Iterable[Values]) -> list[Scalar]:
    """Return the scalars of some arrays."""
    return [x for values in arrays for x in values.flat]


def constants(b: Builder, value: Any) -> Values:
    """Return the values of an array of constants."""
    value = np.asarray(jax.random.key_data(value) if is_key(value) else value)
    fits("constant", value.shape)
    if value.dtype == jax.dtypes.float0:
        value = np.zeros(value.shape, bool)
    scalar_dtype(value.dtype)
    return array(map(b.const, value.ravel()), value.shape)


def known(values: Values) -> np.ndarray | None:
    """Return the constants that these values are, or None if some are not constant."""
    literals = [x.literal for x in values.flat]
    return None if any(x is None for x in literals) else np.array(literals).reshape(values.shape)


def each(rule: Callable[..., Scalar], *columns: Values) -> Values:
    """Return the results of a rule for scalars; all arrays have the same shape."""
    return array(map(rule, *(column.flat for column in columns)), columns[0].shape)

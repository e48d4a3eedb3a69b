"""One program for a problem on its own, and another for many at once.

A kernel computes a vector of problems at once. For a problem on its own it can be a vector of
samples, or of trials. With many problems the results of all samples would go through memory, which
takes longer than to compute them where they are needed. Whether a function is mapped is known when
it is batched or lowered. Only then is one of its two programs traced, and the other never is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from jaxquat._internal.varying import typed

_primitive = Primitive("alone_or_together")
_primitive.multiple_results = True


def alone_or_together(
    alone: Callable[..., Any], together: Callable[..., Any], like: Any, *args: Any
) -> Any:
    """``alone(*args)``, or for many under ``jax.vmap`` the mapped ``together``. No derivatives.

    Args:
        alone: a function that closes over no traced arrays.
        together: another one, with the same results but for rounding.
        like: the shapes and dtypes of the results.
        *args: pytrees of arrays.
    """
    leaves, structure = jax.tree.flatten(args)
    specs, results = jax.tree.flatten(like)

    def flat(function: Callable[..., Any]) -> Callable[..., list[Array]]:
        return lambda *leaves: jax.tree.leaves(function(*jax.tree.unflatten(structure, leaves)))

    outputs = _primitive.bind(
        *leaves, alone=flat(alone), together=flat(together),
        types=tuple((x.shape, x.dtype) for x in specs),
    )  # fmt: skip
    return jax.tree.unflatten(results, outputs)


@_primitive.def_abstract_eval
def _types(*operands: Any, alone: Any, together: Any, types: Any) -> list[Any]:
    return [typed(shape, dtype, operands) for shape, dtype in types]


@_primitive.def_impl
def _alone(*operands: Array, alone: Any, together: Any, types: Any) -> list[Array]:
    return alone(*operands)


def _batched(
    operands: Sequence[Array], axes: Sequence[int | None], alone: Any, together: Any, types: Any
) -> tuple[list[Array], list[int]]:
    # As in the kernels, the problems are the last axis: from one kernel to the next nothing moves.
    last = [len(shape) for shape, _ in types]
    return jax.vmap(together, tuple(axes), last)(*operands), last


batching.primitive_batchers[_primitive] = _batched
mlir.register_lowering(_primitive, mlir.lower_fun(_alone, multiple_results=True))

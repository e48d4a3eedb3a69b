"""Kernels that are compiled while the program around them is still being traced.

A traced loop needs the kernel of its values for one member, unless the program is differentiated or
batched later. JAX's tracers show most of that: then nothing is compiled in vain.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import jax
from jax.core import Tracer
from jax.interpreters import partial_eval

from jaxquat.fused import cpu, lowering
from jaxquat.fused.recurrence import Recurrence

_PLAIN: Any = getattr(partial_eval, "DynamicJaxprTracer", ())
_is_likely = ContextVar("jaxquat_compiles_early", default=True)


def begin(f: Recurrence, operands: Any) -> None:
    """Begin to compile the kernel of the values, if it is likely to be needed."""
    likely = _is_likely.get() and _are_plain(operands)
    if likely and jax.default_backend() == "cpu" and not lowering.is_for_scan(f, "forward"):
        cpu.begin(f.loop, len(jax.tree.leaves(operands)))


@contextlib.contextmanager
def only_if_plain(operands: Any) -> Iterator[None]:
    """Begin nothing in this block if a derivative or a batch of these operands is traced."""
    token = _is_likely.set(_is_likely.get() and _are_plain(operands))
    try:
        yield
    finally:
        _is_likely.reset(token)


def _are_plain(operands: Any) -> bool:
    leaves = jax.tree.leaves(operands)
    return all(isinstance(x, _PLAIN) for x in leaves if isinstance(x, Tracer))

"""A compiler of loops: it makes one kernel of a whole ``lax.scan``, and of each of its derivatives.

The kernel is a JAX primitive that runs on a CPU for a vector of loops at once, on an NVIDIA GPU for
one loop a thread, in both modes, of every order, under ``jit``, ``vmap``, ``jax.checkpoint`` and
``jax.shard_map``. On other platforms it lowers to ``lax.scan``. A loop passes through these
modules:

- ``engine`` traces its functions; ``trace.hoisting`` takes out what is the same in all steps. The
  result is a ``recurrence``, whose functions are jaxprs; ``passes`` makes their derivatives.
- ``primitives`` defines the primitives that evaluate a recurrence, ``derivatives`` their forward
  mode, ``transposes`` their reverse mode.
- In ``lowering``, ``trace`` turns the functions into scalar programs (``ir``), ``timeloop`` puts
  the loop over time around them, and ``targets`` write LLVM code for llvmlite (extra ``fused``).
- XLA calls the code through ``cpu`` and ``loading``, or launches it on a GPU (``targets.nvptx``).
"""

from __future__ import annotations

from jaxquat.fused.cpu import set_threads
from jaxquat.fused.errors import NotScalarError
from jaxquat.fused.scanning import scan
from jaxquat.fused.trace.tracing import scalarize

__all__ = ["NotScalarError", "scalarize", "scan", "set_threads"]

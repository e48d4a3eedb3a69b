"""A compiler of loops: it makes one kernel of a whole ``lax.scan``, and of each of its derivatives.

``scan`` takes a loop in the form of ``jax.lax.scan``, ``engine.results_of`` an object with the
functions of the loop, which may sample a controller and save values every few steps. Arrays, of up
to some hundred numbers, become scalars. A function without a scalar form raises ``NotScalarError``.

The result is a JAX primitive that runs as one kernel: on a CPU for a vector of loops at once, on an
NVIDIA GPU for one loop a thread. ``jit``, ``vmap``, ``jvp``, ``vjp``, ``jax.checkpoint`` and
``jax.shard_map`` work on it, and derivatives of every order and in both modes are kernels too. On
other platforms it lowers to ``lax.scan``. The package imports nothing of ``jaxquat`` but
``_internal``.

A loop passes through these modules:

- ``engine`` traces its functions; ``trace.hoisting`` takes out what is the same in all steps. The
  result is a ``recurrence``, whose functions are jaxprs; ``passes`` makes their derivatives.
- ``primitives`` defines the JAX primitives that evaluate a recurrence, and how they batch.
  ``derivatives`` has their forward mode, ``transposes`` their reverse mode.
- When JAX compiles these primitives, ``lowering`` has ``trace`` turn the functions into scalar
  programs (``ir``), and ``timeloop`` puts the loop over time around them, once for all ``targets``.
- ``targets`` write LLVM code, which llvmlite compiles (extra ``fused``). On a CPU, ``cpu`` keeps
  the compiled code and XLA calls it through ``loading``. On an NVIDIA GPU, XLA launches it
  (``targets.nvptx``), if kernels are known to be right on this kind of GPU (``vouching``).

docs/architecture.md follows one torque through all of these modules.

"""

from __future__ import annotations

from jaxquat.fused.cpu import set_threads
from jaxquat.fused.errors import NotScalarError
from jaxquat.fused.scanning import scan
from jaxquat.fused.trace.tracing import scalarize

__all__ = ["NotScalarError", "scalarize", "scan", "set_threads"]

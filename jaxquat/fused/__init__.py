"""The fused engine: ``jq.rollout(..., engine="fused")`` runs a whole rollout as one kernel.

A rollout passes through these modules:

- ``engine`` traces the scheme, the torque and the controller; ``trace.hoisting`` takes out what is
  the same in all steps. The result is a ``recurrence``, whose functions are jaxprs; ``passes``
  makes their derivatives.
- ``primitives`` defines the JAX primitives that evaluate a recurrence, and how they batch.
  ``derivatives`` has their forward mode, ``transposes`` their reverse mode.
- When JAX compiles these primitives, ``lowering`` has ``trace`` turn the functions into scalar
  programs (``ir``), and ``timeloop`` puts the loop over time around them, once for all ``targets``.
- ``targets`` write LLVM code, which llvmlite compiles (extra ``fused``). On a CPU, ``cpu`` keeps
  the compiled code and XLA calls it through ``loading``. On an NVIDIA GPU, XLA launches it
  (``targets.nvptx``), after ``selfcheck`` has compared it with the scan.

docs/fused_inside.md follows one torque through all of these modules.
"""

from __future__ import annotations

from jaxquat.fused.cpu import set_threads
from jaxquat.fused.errors import NotScalarError
from jaxquat.fused.explaining import explain
from jaxquat.fused.scanning import scan
from jaxquat.fused.selfcheck import check_gpu
from jaxquat.fused.trace.tracing import scalarize

__all__ = ["NotScalarError", "check_gpu", "explain", "scalarize", "scan", "set_threads"]

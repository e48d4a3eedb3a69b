"""The fused engine: ``jq.rollout(..., engine="fused")`` runs a whole rollout as one kernel.

The way of a rollout, and the rooms where it passes:

- ``engine`` traces the scheme, the torque and the controller; ``trace.hoisting`` takes out what is
  the same in all steps. The result is a ``recurrence``, whose functions are jaxprs; ``passes``
  makes their derivatives.
- ``primitives`` call it from JAX: they batch. ``derivatives`` has forward mode, ``transposes``
  reverse mode.
- Where JAX compiles them, ``lowering`` has ``trace`` make scalar programs (``ir``) of the
  functions, and ``timeloop`` puts the loop over time around these, once for all ``targets``.
- ``targets`` write LLVM code, which llvmlite compiles (extra ``fused``). ``cpu`` keeps it, and XLA
  calls it through ``loading``; or XLA launches it on an NVIDIA GPU (``targets.nvptx``), where
  ``selfcheck`` has compared it with the scan.

docs/fused_inside.md follows one torque through all of them.
"""

from __future__ import annotations

from jaxquat.fused.cpu import set_threads
from jaxquat.fused.errors import NotScalarError
from jaxquat.fused.explaining import explain
from jaxquat.fused.selfcheck import check_gpu
from jaxquat.fused.trace.tracing import scalarize

__all__ = ["NotScalarError", "check_gpu", "explain", "scalarize", "set_threads"]

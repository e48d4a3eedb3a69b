"""The fused engine: ``jq.rollout(..., engine="fused")`` runs a whole rollout as one kernel.

The scheme, the torque and the controller are traced by JAX. ``scalarize`` turns the traces into
programs of scalar operations, and ``assembly`` writes them and the time loop around them as LLVM
code, which llvmlite compiles (extra ``fused``): for the CPU, or for an NVIDIA GPU
(``targets.nvptx``).

The way of a rollout: ``engine.trace`` -> ``invariants.hoist`` -> a ``Recurrence``, the operand of
``primitives.value``, which batches and has ``derivatives``. Where JAX compiles it: ``scalarize`` ->
``kernel.Loop`` -> ``cpu.call`` -> ``loading``, where XLA calls it; or ``nvptx.call``, whose text
XLA launches. ``selfcheck`` compares kernels with the scan on a GPU where nobody has done so.
"""

from __future__ import annotations

from jaxquat.engines.fused.cpu import set_threads
from jaxquat.engines.fused.explaining import explain
from jaxquat.engines.fused.scalarize import NotScalarError, scalarize

__all__ = ["NotScalarError", "explain", "scalarize", "set_threads"]

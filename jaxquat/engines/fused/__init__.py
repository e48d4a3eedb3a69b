"""The fused engine: ``jq.rollout(..., engine="fused")`` runs a whole rollout as one kernel.

The scheme, the torque and the controller are traced by JAX. ``scalarize`` turns the traces into
programs of scalar operations, and ``timeloop`` (for a CPU) or ``gpu`` (for a GPU) puts the time
loop around them. On the CPU the kernel is LLVM code, which ``targets`` writes and llvmlite compiles
(extra ``fused``); on the GPU it is a Pallas kernel.

The way of a rollout: ``engine.trace`` -> ``invariants.hoist`` -> a ``Recurrence``, the operand of
``primitives.value``, which batches and has ``derivatives``. Where JAX compiles it: ``scalarize`` ->
``kernel.Loop`` -> ``cpu.call`` or ``gpu.call`` -> ``loading``, where XLA calls it.
"""

from __future__ import annotations

from jaxquat.engines.fused.cpu import set_threads
from jaxquat.engines.fused.explaining import explain
from jaxquat.engines.fused.scalarize import NotScalarError, scalarize

__all__ = ["NotScalarError", "explain", "scalarize", "set_threads"]

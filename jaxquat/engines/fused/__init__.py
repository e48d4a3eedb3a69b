"""The fused engine: a step, a torque and a controller traced to scalar code and compiled with the time loop into one kernel.

``jq.rollout(..., engine="fused")``. On the CPU by LLVM (extra ``fused``), on the GPU by Pallas.
"""

from __future__ import annotations

from jaxquat.engines.fused.cpu import set_threads
from jaxquat.engines.fused.explaining import explain
from jaxquat.engines.fused.scalarize import NotScalarError, scalarize

__all__ = ["NotScalarError", "explain", "scalarize", "set_threads"]

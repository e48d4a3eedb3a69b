"""Kernels for NVIDIA's GPUs: one thread for each member, compiled by llvmlite, launched by XLA.

The time loop is the same as on the CPU, with one lane; nvptx.ll has the code around it. Thread t of
T runs the members t, t + T, t + 2 T and so on. Its own arrays lie in local memory, up to ``LOCAL``
bytes, larger ones in scratch memory, a result of the call; the elements of neighbouring threads are
adjacent. ``call`` passes PTX to XLA, for compute capability 8.0 and later. The bits are those of
the CPU, except that denormal numbers count as zero there.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import numpy as np
from jax import Array

from jaxquat._internal.checks import missing_package
from jaxquat._internal.progress import announced
from jaxquat.fused import timeloop
from jaxquat.fused.kernel import CACHED, Loop, launched
from jaxquat.fused.targets import host, template
from jaxquat.fused.targets.lanes import Lanes
from jaxquat.fused.targets.text import Module

TARGET = "__gpu$xla.gpu.ptx"  # the name of XLA's custom call
TRIPLE, PROCESSOR, FEATURES = "nvptx64-nvidia-cuda", "sm_80", "+ptx80"
BLOCK = 128  # threads per block
LOCAL = 2**12  # bytes of a thread's local memory for arrays
SCRATCH = 2**30  # bytes of scratch memory of a call; if they are not enough, fewer threads run
ARRAYS = 512  # parameters of a kernel; PTX 8.0 allows 544


def missing() -> str | None:
    """Return an error message if there are no fused kernels on this GPU, otherwise None."""
    try:
        import llvmlite.binding as llvm
    except (ImportError, OSError):  # or its library cannot be loaded
        return missing_package("engine", "llvmlite", "fused")
    llvm.initialize_all_targets()
    try:
        llvm.Target.from_triple(TRIPLE)
    except RuntimeError:
        return 'engine "fused" on the GPU needs an llvmlite with NVPTX; use engine="scan"'
    capability = getattr(jax.devices()[0], "compute_capability", "")
    if capability and float(capability) < 8.0:
        return (
            'engine "fused" needs a GPU of compute capability 8.0 or more, '
            f'got {capability}; use engine="scan"'
        )
    return None


def too_many_arrays(layout: Loop, kinds: Sequence[str]) -> str | None:
    """Return an error message if kernels of these kinds have too many arrays, otherwise None."""
    counts = [len(layout.operands(kind)) + len(layout.results(kind)) for kind in kinds]
    count = max(counts) + 2  # the number of members, and scratch memory
    if count <= ARRAYS:
        return None
    return f"a fused kernel has at most {ARRAYS} arrays on the GPU, this one has {count}"


def call(
    loop: Loop, kind: str, batched: Sequence[bool], members: int, operands: Sequence[Array]
) -> list[Array]:
    """Return the results of a kernel, as in ``cpu.call``."""
    excess = too_many_arrays(loop, (kind,))
    if excess:  # only when compiling for a GPU without having one; otherwise checked before
        raise NotImplementedError(excess)
    text, scratch = _kernel(loop, kind, tuple(batched))
    blocks = -(-members // BLOCK)
    if scratch:
        blocks = min(blocks, max(1, SCRATCH // (BLOCK * scratch)))
    memory = (scratch, blocks * BLOCK) if scratch else None
    sizes = {"grid_x": blocks, "grid_y": 1, "grid_z": 1, "block_x": BLOCK, "block_y": 1}
    sizes |= {"block_z": 1, "shared_mem_bytes": 0}
    return launched(
        TARGET, loop, kind, batched, operands, [members], memory, name=_name(kind),
        kernel_type="ptx", kernel_data=text, **{k: np.int32(size) for k, size in sizes.items()},
    )  # fmt: skip


def _name(kind: str) -> str:
    return f"fused_{kind}"


@functools.lru_cache(maxsize=CACHED)
def _kernel(loop: Loop, kind: str, batched: tuple[bool, ...]) -> tuple[str, int]:
    with announced("a kernel"):
        text, scratch = module(loop, kind, batched)
        return compiled(text), scratch


def module(loop: Loop, kind: str, batched: Sequence[bool]) -> tuple[str, int]:
    """Return the text of a module for LLVM, and the bytes of scratch memory of each thread."""
    shared = Module(1, most=LOCAL, interleaved=True, speculates=True)
    member = Lanes(shared, batched)
    member.sources = [f"%operand{number}" for number in range(len(loop.operands(kind)))]
    member.targets = [f"%result{number}" for number in range(len(loop.results(kind)))]
    timeloop.write(member, loop, kind)
    arrays = ", ".join(f"ptr noalias {name}" for name in (*member.sources, *member.targets))
    head = f"internal fastcc void @member({arrays}, ptr %scratch, i64 %members, i64 %first)"
    functions = [*shared.functions, member.function(f"{head} alwaysinline #0")]
    inputs, outputs = [*member.sources, "%counts"], [*member.targets]
    outputs += ["%memory"] if shared.scratch else []
    form = "ptr addrspace(1) noalias{} align 16 {}_at"
    parameters = [form.format(" readonly", name) for name in inputs]
    parameters += [form.format("", name) for name in outputs]
    cast = "  {0} = addrspacecast ptr addrspace(1) {0}_at to ptr"
    text = template(
        "nvptx.ll", kernel=_name(kind), block=BLOCK,
        memory="%memory" if shared.scratch else "null", parameters=", ".join(parameters),
        casts="\n".join(cast.format(name) for name in inputs + outputs),
        arrays=", ".join(f"ptr {name}" for name in (*member.sources, *member.targets)),
        functions="\n".join([*sorted(shared.declared), *functions]),
    )  # fmt: skip
    return text, shared.scratch


def compiled(text: str) -> str:
    """Return the PTX of a module."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE)
    machine = target.create_target_machine(cpu=PROCESSOR, features=FEATURES, opt=3)
    module = host.parsed(text, machine)
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module)

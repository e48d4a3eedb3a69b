"""The target "host": kernels for this processor, as an LLVM module and as object code."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from jaxquat.fused import timeloop
from jaxquat.fused.kernel import Loop, is_smooth
from jaxquat.fused.targets import template
from jaxquat.fused.targets.lanes import Lanes
from jaxquat.fused.targets.text import Module

LEVEL = 1  # of code generation; 2 and 3 schedule once more, for processors that run in order
# Memory of a function becomes registers, and constants are folded: machine code would not take
# denormal ones for zero. Programs come without repetitions, so LLVM's other passes would take as
# long as all the rest and give code of the same speed.
PASSES = ("sroa", "sccp")
BLOCK = "void @block(ptr %operands, ptr %results, ptr %scratch, i64 %members, i64 %first)"


@functools.cache
def processor() -> tuple[str, str]:
    """Return the name and the features of this processor."""
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@functools.cache
def version() -> tuple[str, ...]:
    """Return the triple of this machine, the version of LLVM, and how it compiles."""
    import llvmlite.binding as llvm

    return machine().triple, str(llvm.llvm_version_info), str(LEVEL), *PASSES


def register_bytes() -> int:
    """Return the size of a vector register."""
    features = processor()[1]
    return 64 if "+avx512f" in features else 32 if "+avx" in features else 16


def lanes(loop: Loop, members: int) -> int:
    """Return the members in a vector: a power of two, at most a register or ``members``."""
    leaves = (*loop.constants, *loop.state, *loop.memory, *loop.command)
    widest = max((leaf.dtype.itemsize for leaf in leaves if is_smooth(leaf)), default=8)
    return min(register_bytes() // widest, 1 << (members.bit_length() - 1))


def module(loop: Loop, kind: str, batched: Sequence[bool], lanes: int) -> tuple[str, int]:
    """Return the text of a module, and the bytes of scratch memory of each of its threads."""
    shared = Module(lanes)
    block = Lanes(shared, batched)
    operands, results = len(loop.operands(kind)), len(loop.results(kind))

    def data(table: str, number: int) -> str:
        return block.set(f"call ptr @data(ptr {table}, i64 {number})")

    block.sources = [data("%operands", number) for number in range(operands)]
    block.targets = [data("%results", number) for number in range(results)]
    timeloop.write(block, loop, kind)
    functions = [*sorted(shared.declared), *shared.functions]
    functions.append(block.function(f"internal fastcc {BLOCK} #0"))
    scratch = shared.scratch + 64
    text = template(
        "host.ll", functions="\n".join(functions), operands=operands, results=results, lanes=lanes,
        scratch=scratch, width=8 * register_bytes(),
    )  # fmt: skip
    return text, scratch


def machine() -> Any:
    """Return LLVM's description of this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = processor()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=LEVEL, jit=True
    )


def parsed(text: str, machine: Any) -> Any:
    """Return LLVM's module of a text, for a machine."""
    import llvmlite.binding as llvm

    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    return module


def compiled(text: str) -> bytes:
    """Return the object code of a module."""
    import llvmlite.binding as llvm

    target = machine()
    module = parsed(text, target)
    passes = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options()))
    return target.emit_object(module)


def linked(code: bytes) -> Any:
    """Return an LLVM engine that holds object code in memory and knows its addresses."""
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine

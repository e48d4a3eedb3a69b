"""What the fused kernels for the GPU compile to, without a GPU.

``kernels`` takes the PTX of each kernel out of a lowered function. NVIDIA's assembler ``ptxas``
makes machine code of it and says how many registers a thread has and how many bytes it moves to
memory because they do not suffice ("spills"). ``nvdisasm`` lists the instructions. A step of a body
is one trip of an innermost loop, so its instructions are counted there; lines that are seldom run,
such as those of a division by a denormal number, count too.

Both programs are in the packages nvidia-cuda-nvcc and nvidia-cuda-nvdisasm, or on the path.
"""

import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

TARGET = "__gpu$xla.gpu.ptx"  # the custom call by which XLA launches PTX
SHORT = 50  # instructions of a loop that is no time loop, such as the one after a kernel's end


class Resources(NamedTuple):
    """What a thread of a kernel needs."""

    registers: int
    stores: int  # bytes of spills
    loads: int
    steps: list[int]  # instructions of each time loop, in their order
    fused: list[int]  # of them, products with a sum


def kernels(lowered: Any) -> dict[str, str]:
    """Return the PTX of the fused kernels of a function that JAX lowered for "cuda", by name."""
    texts = {}
    for operation in _operations(lowered.compiler_ir("stablehlo").operation):
        if operation.name != "stablehlo.custom_call":
            continue
        if operation.attributes["call_target_name"].value == TARGET:
            attributes = operation.attributes["mhlo.backend_config"]
            texts[attributes["name"].value] = attributes["kernel_data"].value
    return texts


def _operations(operation):
    yield operation
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _operations(inner.operation)


def program(name: str) -> str | None:
    """Return the path of one of NVIDIA's programs, or None."""
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for path in Path(folder).glob(f"*/bin/{name}"):
            return str(path)
    return shutil.which(name)


def assembled(text: str, processor: str = "sm_90a") -> Resources:
    """Return what a kernel needs on a GPU, such as "sm_90a", the H200."""
    with tempfile.TemporaryDirectory() as folder:
        source, code = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text)
        told = _run("ptxas", "-v", f"-arch={processor}", str(source), "-o", str(code)).stderr
        listing = _run("nvdisasm", "-c", str(code)).stdout

    def number(words: str) -> int:
        """Return the sum over the kernel and its functions."""
        return sum(int(n) for n in re.findall(rf"(\d+) {words}", told))

    loops = time_loops(listing)
    fused = [sum("FMA" in name for name in names) for names in loops]
    return Resources(
        registers=number("registers"),
        stores=number("bytes spill stores"),
        loads=number("bytes spill loads"),
        steps=[len(names) for names in loops],
        fused=fused,
    )


def _run(name, *arguments):
    path = program(name)
    if path is None:
        raise SystemExit(
            f"{name} is not at hand: pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm"
        )
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True)


def time_loops(listing: str) -> list[list[str]]:
    """Return the names of the instructions of each loop in which there is no other loop.

    A loop is what lies between a label and a branch back to it.
    """
    names, labels, branches = [], {}, []
    for line in listing.splitlines():
        label = re.match(r"(\.L\w+):", line)
        instruction = re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)", line)
        if label:
            labels[label[1]] = len(names)
        elif instruction:
            target = re.search(r"`\((\.L\w+)\)", instruction[2])
            if instruction[1].startswith("BRA") and target:
                branches.append((target[1], len(names)))
            names.append(instruction[1])
    loops = {}  # the last branch to a label ends its loop
    for label, last in branches:
        first = labels.get(label, last + 1)
        if last - first >= SHORT:
            loops[first] = max(last + 1, loops.get(first, 0))
    inner = [
        (first, end)
        for first, end in loops.items()
        if not any(first < other and loops[other] <= end for other in loops)
    ]
    return [names[first:end] for first, end in sorted(inner)]

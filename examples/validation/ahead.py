"""What the fused kernels for the GPU compile to, without a GPU.

``kernels`` takes the PTX of each kernel out of a lowered function. NVIDIA's assembler ``ptxas``
makes machine code of it and says how many registers a thread has and how many bytes it moves to
memory because they do not suffice ("spills"). ``nvdisasm`` lists the instructions. A step of a body
is one trip of an innermost loop, so the instructions on its usual path are counted (``sass``).

Both programs are in the packages nvidia-cuda-nvcc and nvidia-cuda-nvdisasm, or on the path.
"""

import contextlib
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax

from examples.validation import sass
from jaxquat.fused import vouching

TARGET = "__gpu$xla.gpu.ptx"  # the custom call by which XLA launches PTX


class Resources(NamedTuple):
    """What a thread of a kernel needs."""

    registers: int
    stores: int  # bytes of spills
    loads: int
    loops: list[sass.Loop]  # the time loops in their order

    @property
    def steps(self) -> list[int]:
        """The instructions of each time loop."""
        return [len(loop.names) for loop in self.loops]

    @property
    def fused(self) -> list[int]:
        """The products with a sum in each time loop."""
        return [loop.classes()["FMA"] for loop in self.loops]


def h200() -> jax.sharding.Sharding:
    """Return an H200 that is not there, as a sharding; it takes the plugin jax-cuda12-plugin."""
    from jax.experimental import topologies

    target = Path(__file__).with_name("h200.txtpb").read_text()
    options = {"target_config": target, "topology": "1x1x1"}
    topology = topologies.get_topology_desc("", "cuda", **options)
    return jax.sharding.SingleDeviceSharding(topology.devices[0])


@contextlib.contextmanager
def as_on_gpu() -> Iterator[None]:
    """Let ``engine="auto"`` choose as on an H200."""
    with (
        mock.patch.object(jax, "default_backend", return_value="gpu"),
        mock.patch.object(vouching, "objection", return_value=None),
    ):
        yield


def lowered(function: Any, *arguments: Any) -> Any:
    """Lower a function of arrays, of which only shapes and dtypes count, for an H200."""
    place = h200()
    number = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)
    with as_on_gpu():
        traced = jax.jit(function).trace(*jax.tree.map(number, arguments))
        return traced.lower(lowering_platforms=("cuda",))


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
        return resources(told, code)


def resources(told: str, code: Path) -> Resources:
    """Return what the only kernel of a file needs."""
    listing = _run("nvdisasm", "-c", "-hex", str(code)).stdout
    return _resources(told, listing)


def by_block(told: str, code: Path) -> dict[int, Resources]:
    """Return what the instances of a template need, by its integer, which C++ names ``ILi64E``."""
    listing = _run("nvdisasm", "-c", "-hex", str(code)).stdout
    texts = re.split(r"Compiling entry function '\w*?ILi(\d+)E", told)[1:]
    codes = re.split(r"\.section\s+\.text\.\w*?ILi(\d+)E", listing)[1:]
    of_block = dict(zip(codes[::2], codes[1::2], strict=True))
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return {int(block): _resources(text, of_block[block]) for block, text in pairs}


def _resources(told, listing):
    def number(words: str) -> int:
        """Return the sum over the kernel and its functions."""
        return sum(int(n) for n in re.findall(rf"(\d+) {words}", told))

    return Resources(
        registers=number("registers"),
        stores=number("bytes spill stores"),
        loads=number("bytes spill loads"),
        loops=sass.loops(listing),
    )


def _run(name, *arguments):
    path = program(name)
    if path is None:
        raise SystemExit(
            f"{name} is not at hand: pip install nvidia-cuda-nvcc nvidia-cuda-nvdisasm"
        )
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True)

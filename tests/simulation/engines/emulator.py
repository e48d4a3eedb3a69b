"""Runs the fused engine's kernels for the GPU on this processor, one thread after the other.

Where JAX has a GPU, the kernels run on it instead. Everything else in these tests runs on the CPU.

The text that LLVM would compile to PTX is compiled for the host instead. Only the numbers of thread
and block are replaced: they are read from memory here. So everything is tested but LLVM's code for
the GPU, the driver and the GPU itself.
"""

import contextlib
import ctypes
import functools
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

from jaxquat.fused import cpu
from jaxquat.fused.targets import host, nvptx

REGISTERS = {name: ctypes.c_int32() for name in ("tid", "ctaid", "nctaid")}
executor = ThreadPoolExecutor(1)  # a GPU has denormal numbers; on XLA's threads they are zero
executor.submit(int).result()  # its thread begins here, in Python's, of which it has its mode
launches: list[str] = []  # names of the kernels
owners: list[np.ndarray] = []  # of each launch: which thread wrote a byte of scratch memory, or -1


def is_real():
    """Whether there is a GPU."""
    return jax.default_backend() == "gpu"


@contextlib.contextmanager
def gpu():
    """Within it the GPU runs the kernels for it; if there is none, the CPU does."""
    ffi_call = jax.ffi.ffi_call

    def launched(target, results, **options):
        if target != nvptx.TARGET:
            return ffi_call(target, results, **options)

        def launch(*arrays, **attributes):
            def run(*arrays):
                return executor.submit(_launched, results, attributes, *arrays).result()

            launches.append(attributes["name"])
            if is_real():
                return ffi_call(target, results, **options)(*arrays, **attributes)
            return jax.pure_callback(run, results, *arrays)

        return launch

    launches.clear()
    owners.clear()
    nvptx._kernel.cache_clear()
    with pytest.MonkeyPatch.context() as patch, jax.default_device(jax.local_devices()[0]):
        patch.setattr(jax.ffi, "ffi_call", launched)
        if not is_real():
            patch.setattr(nvptx, "compiled", lambda text: text)
            patch.setattr(cpu, "call", nvptx.call)
        yield


def _launched(results, attributes, *arrays):
    """The results of a launch; what no thread writes is not a number."""
    assert attributes["kernel_type"] == "ptx"
    assert all(attributes[name] == 1 for name in ("grid_y", "grid_z", "block_y", "block_z"))
    name, blocks = attributes["name"], int(attributes["grid_x"])
    inputs = [np.ascontiguousarray(x) for x in arrays]
    outputs = [np.full(x.size * x.dtype.itemsize, 0xFF, np.uint8) for x in results]
    pointers = [x.ctypes.data for x in (*inputs, *outputs)]
    kernel = _loaded(attributes["kernel_data"], name, len(pointers))[0]
    REGISTERS["nctaid"].value = blocks
    threads = int(attributes["block_x"])
    scratch = outputs[-1] if "%memory_at" in attributes["kernel_data"] else np.zeros(0)
    owner = np.full(len(scratch), -1)
    for number in range(blocks * threads):
        REGISTERS["ctaid"].value, REGISTERS["tid"].value = divmod(number, threads)
        before = scratch.copy()
        kernel(*pointers)
        written = scratch != before
        assert (owner[written] == -1).all()  # threads run at once on a GPU: each has its own part
        owner[written] = number
    owners.append(owner.reshape(-1, blocks * threads))
    return [x.view(r.dtype).reshape(r.shape) for x, r in zip(outputs, results, strict=True)]


@functools.cache
def _loaded(text, name, parameters):
    """The function of a kernel, compiled for the host, and what holds its code."""
    import llvmlite.binding as llvm

    for register, number in REGISTERS.items():
        llvm.add_symbol(f"emulated_{register}", ctypes.addressof(number))
        intrinsic = f"@llvm.nvvm.read.ptx.sreg.{register}.x"
        assert f"declare i32 {intrinsic}()" in text
        read = (
            f"define i32 {intrinsic}() {{\n%x = load i32, ptr @emulated_{register}\nret i32 %x\n}}"
        )
        text = text.replace(f"declare i32 {intrinsic}()", read)
        text = text.replace(intrinsic, f"@{register}")
        text += f"@emulated_{register} = external global i32\n"
    code = host.compiled(text.replace("ptx_kernel ", ""))
    engine = host.linked(code)
    signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * parameters)
    return signature(engine.get_function_address(name)), engine

"""What XLA calls before another thread has compiled the kernel."""

import os
import subprocess
import sys
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxquat as jq
from jaxquat.fused import gates, loading
from jaxquat.fused.targets import host

pytestmark = pytest.mark.needs("llvmlite")


@pytest.fixture
def held(monkeypatch, tmp_path):
    """Hold LLVM until an event, with no kernels on disk; at most to the end of the test."""
    while thread := gates._thread:  # of another test
        thread.join()
    with gates._lock:
        if not gates._free:
            gates._free.extend(gates._new_gates())
    event, compiled = threading.Event(), host.compiled
    monkeypatch.setenv("JAXQUAT_CACHE", str(tmp_path))
    monkeypatch.setattr(host, "compiled", lambda text: event.wait(60) and compiled(text))
    yield event
    event.set()


def advanced(number):
    """A function whose kernel no other test has."""
    step = lambda c, _: (jnp.sin(c) + number, c)
    return lambda x: jq.fused.scan(step, x, length=9, engine="fused")[0]


def test_a_call_waits_for_its_kernel(held):
    """Two programs are compiled and called meanwhile; the second one waits for the first."""
    functions, x = [advanced(0.75), advanced(0.875)], jnp.float32(0.5)
    programs = [jax.jit(f).lower(x).compile() for f in functions]
    results = []
    threads = [threading.Thread(target=lambda p=p: results.append(p(x))) for p in programs]
    for thread in threads:
        thread.start()
        thread.join(0.05)
    assert not results
    held.set()
    for thread in threads:
        thread.join()
    assert sorted(map(float, results)) == sorted(float(p(x)) for p in programs)
    for program, number in zip(programs, (0.75, 0.875), strict=True):
        y = np.float32(0.5)
        for _ in range(9):
            y = np.sin(y) + np.float32(number)
        np.testing.assert_allclose(program(x), y, rtol=1e-6)


@pytest.mark.slow
def test_a_process_ends_although_a_kernel_is_still_being_compiled(tmp_path):
    """It does not wait for its results; Python's end then must not stop XLA's threads."""
    script = """
import time
import jax, jax.numpy as jnp
import jaxquat as jq
from jaxquat.fused import gates, loading
from jaxquat.fused.targets import host
gates._free.extend(gates._new_gates())
compiled = host.compiled
host.compiled = lambda text: time.sleep(1.0) or compiled(text)
step = lambda c, _: (jnp.sin(c) + 0.75, c)
program = jax.jit(lambda x: jq.fused.scan(step, x, length=9, engine="fused")[0] + jnp.ones(9))
program(jnp.float32(0.5))
"""
    environment = os.environ | {"JAXQUAT_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=environment, timeout=60, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_kernel_that_llvm_cannot_compile_is_an_error_of_its_calls(monkeypatch, held, capfd):
    def refused(text):
        raise MemoryError("of this test")

    monkeypatch.setattr(host, "compiled", refused)
    program = jax.jit(advanced(0.625)).lower(jnp.float32(0.5)).compile()
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match="a kernel could not be compiled"):
            program(jnp.float32(0.5))
    assert "MemoryError: of this test" in capfd.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="no fork on Windows")
@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_process_forks_after_its_kernels_are_compiled(held):
    """The child has no thread that could compile them."""
    program = jax.jit(advanced(0.5)).lower(jnp.float32(0.5)).compile()
    threading.Timer(0.1, held.set).start()
    child = os.fork()
    if child == 0:
        os._exit(1 if gates._thread else 0)
    assert os.waitpid(child, 0)[1] == 0
    program(jnp.float32(0.5))


def batched(f):
    """A function of one number that calls f for three."""
    return lambda x: jax.vmap(f)(x * jnp.ones(3, jnp.float32))


@pytest.mark.parametrize(
    ("number", "transformed", "kernels"),
    [
        (17.0, lambda f: f, 1),
        (18.0, jax.jit, 1),
        (19.0, jax.grad, 0),
        (20.0, jax.value_and_grad, 0),
        (21.0, batched, 0),
    ],
    ids=["value", "jit", "grad", "value and grad", "vmap"],
)
def test_only_the_trace_of_a_value_begins_its_kernel(number, transformed, kernels):
    """What is lowered later is the same kernel."""
    program, known = jax.jit(transformed(advanced(number))), len(loading.loaded)
    traced = program.trace(jnp.float32(0.5))
    assert len(loading.loaded) - known == kernels
    traced.lower().compile()
    assert kernels == 0 or len(loading.loaded) - known == kernels


def test_without_threads_a_kernel_is_compiled_by_its_caller(monkeypatch, held):
    """Later ones are compiled by a thread again."""
    x, start, tried = jnp.float32(0.5), threading.Thread.start, []
    held.set()

    def refused(thread):
        if thread.name == "jaxquat compiles kernels":
            tried.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    first = jax.jit(advanced(0.3125))(x)
    monkeypatch.undo()
    assert tried
    assert gates._thread is None
    np.testing.assert_allclose(jax.jit(advanced(0.3125))(x), first)
    assert np.isfinite(jax.jit(advanced(0.34375))(x))


def test_a_warning_that_is_an_error_does_not_spoil_a_kernel(monkeypatch):
    """The cache folder cannot be made, of which the thread warns."""
    monkeypatch.setenv("JAXQUAT_CACHE", "/proc/nowhere")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert np.isfinite(jax.jit(advanced(0.28125))(jnp.float32(0.5)))

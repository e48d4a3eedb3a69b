"""The fused engine is checked on a GPU that nobody vouched for, when the user asks for it.

Here the GPU is a CPU that calls itself one. The check is a process of its own. Where the tests are
about what it may do, such as to end or to hang, a few lines of Python that do so take its place.
"""

import json
import re
import sys

import jax
import jax.numpy as jnp
import pytest
from marks import some

import jaxquat as jq
from jaxquat.fused import cpu, engine, lowering, vouching
from jaxquat.fused.targets import nvptx
from jaxquat.simulation.engines import kernels, selfcheck

CALL = cpu.call
UNCHECKED = re.escape(vouching.UNCHECKED)
OFF, USE = '^engine "fused" is off on cpu: ', '; use engine="scan"$'


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """No answer is known, in memory or on disk."""
    monkeypatch.setenv("JAXQUAT_CACHE", str(tmp_path))
    in_a_new_process(monkeypatch)


def in_a_new_process(monkeypatch):
    monkeypatch.setattr(vouching, "_answers", {})


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


@pytest.fixture
def check(monkeypatch, tmp_path):
    """``check(lines)`` makes these lines the process of a check; ``check.count()`` counts them."""

    class Check:
        log = tmp_path / "begun"

        def __call__(self, lines):
            begin = f"import os, sys, time\nopen({str(self.log)!r}, 'a').write('x')\n"
            monkeypatch.setattr(selfcheck, "COMMAND", ("-S", "-c", begin + lines))

        def count(self):
            return len(self.log.read_text()) if self.log.exists() else 0

    return Check()


def answering(reason, lasting=True):
    return f"print('noise'); print({json.dumps([reason, lasting])!r})"


def files(tmp_path):
    return [file for file in tmp_path.iterdir() if file.suffix == ".check"]


# What a process may do: the lines, what is said of it, and whether that is kept.
ENDS = {
    "differs": (answering("its values differ"), "its values differ", True),
    "error": (answering("its check ended with X: y", False), "its check ended with X: y", False),
    "abort": ("os.abort()", "its check was ended by signal 6", True),
    "hang": ("time.sleep(60)", "its check gave no answer within 0.5 s", True),
    "alarm": ("os.kill(os.getpid(), 14)", "its check gave no answer within ", True),
    "killed": ("os.kill(os.getpid(), 9)", "its check was ended by signal 9", False),
    "exit": ("sys.exit(3)", "its check ended with status 3", False),
    "silent": ("", "its check ended with status 0", False),
    "nonsense": ("print('[1')", "its check ended with status 0", False),
}


@pytest.fixture
def present(gpu, monkeypatch):
    """A GPU that is new enough, with llvmlite."""
    monkeypatch.setattr(nvptx, "missing", lambda: None)


def test_before_a_check_the_scan_is_taken_and_no_process_is_started(gpu, check):
    check(answering(""))
    with pytest.warns(RuntimeWarning, match=f"{OFF}{UNCHECKED}{USE}") as record:
        assert engine.missing()
    assert len(record) == 1
    assert engine.missing()  # without a second warning
    assert check.count() == 0


@pytest.mark.parametrize("end", ENDS)
def test_whatever_the_check_does_is_said_and_the_kernels_are_off(
    present, check, monkeypatch, tmp_path, capsys, end
):
    lines, reason, lasting = ENDS[end]
    if end == "hang":
        monkeypatch.setattr(selfcheck, "LIMIT", 0.5)
    check(lines)
    assert not jq.check_gpu()
    assert re.match(f"{OFF}{reason}.*{USE}", capsys.readouterr().out.strip())
    assert reason in engine.missing()  # without a warning: it has been said
    assert len(files(tmp_path)) == lasting
    in_a_new_process(monkeypatch)
    with pytest.warns(RuntimeWarning, match=f"{OFF}{reason if lasting else UNCHECKED}.*{USE}"):
        assert engine.missing()


def test_the_answer_that_they_agree_is_kept(present, check, monkeypatch, tmp_path, capsys):
    check(answering(""))
    assert jq.check_gpu()
    assert capsys.readouterr().out == "the kernels agree with the scan on cpu\n"
    assert engine.missing() is None
    in_a_new_process(monkeypatch)
    assert engine.missing() is None
    assert check.count() == len(files(tmp_path)) == 1


def test_an_error_while_the_answer_is_looked_for_turns_the_kernels_off(present, check, monkeypatch):
    """Such as a package that has no version."""

    def without_version(device):
        raise vouching.importlib.metadata.PackageNotFoundError("llvmlite")

    check(answering(""))
    with monkeypatch.context() as patch:
        patch.setattr(vouching, "_key", without_version)
        with pytest.warns(RuntimeWarning, match=f"{OFF}.*PackageNotFound"):
            assert engine.missing()
    assert check.count() == 0
    assert jq.check_gpu()


def test_without_a_cache_folder_the_answer_holds_for_the_process(present, check, monkeypatch):
    monkeypatch.setenv("JAXQUAT_CACHE", "")
    check(answering(""))
    assert jq.check_gpu()
    assert engine.missing() is None
    in_a_new_process(monkeypatch)
    with pytest.warns(RuntimeWarning, match=UNCHECKED):
        assert engine.missing()


def test_what_has_no_gpu_is_not_checked(check, monkeypatch):
    check(answering(""))
    with pytest.raises(RuntimeError, match=r"^check_gpu: wanted a GPU, got cpu$"):
        jq.check_gpu()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with pytest.raises(ImportError, match=r'pip install "jaxquat\[fused\]"'):
        jq.check_gpu()
    assert check.count() == 0


def test_the_process_of_a_check_uses_the_kernels(gpu, monkeypatch):
    monkeypatch.setenv(vouching.WITHIN, "1")
    assert engine.missing() is None


def rates(by, gain=0.5):
    body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
    start = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.array([0.1, 0.2, 0.3]))
    torque = lambda t, state, gain: -gain * state.omega
    return jq.rollout(
        jq.lie_euler,
        body,
        torque,
        start,
        jq.grid(0.0, 0.1, 4),
        gain,
        options=jq.RolloutOptions(engine=by),
    ).final.omega


def test_the_scan_is_taken_then(gpu, capsys):
    """One warning, here while a gradient of a batch is traced; ``explain`` and an error say why."""
    slope = jax.vmap(jax.grad(lambda g: rates("auto", g)[0]))
    with pytest.warns(RuntimeWarning, match=OFF) as record:
        program = jax.make_jaxpr(slope)(jnp.array([0.5, 0.7]))
    assert len(record) == 1
    assert "fused_loop" not in str(program)
    with pytest.raises(ImportError, match=OFF):
        rates("fused")
    start = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3))
    body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
    jq.explain(jq.lie_euler, body, jq.torques.zero, start, jq.grid(0.0, 0.1, 4))
    told = capsys.readouterr().out.splitlines()[0]
    assert told.startswith(
        'engine="auto" takes the scan (engine "fused" is off on cpu: it has not '
    )


def test_another_driver_or_engine_is_checked_anew(monkeypatch):
    class Device:
        device_kind = "NVIDIA H200"
        client = type("Client", (), {"platform_version": "cuda 12090"})

    keys = {vouching._key(Device), vouching._key(Device)}
    Device.client.platform_version = "cuda 13000"
    keys.add(vouching._key(Device))
    Device.device_kind = "NVIDIA A100"
    keys.add(vouching._key(Device))
    monkeypatch.setattr(vouching.File, "read_bytes", lambda file: b"")
    keys.add(vouching._key(Device))
    assert len(keys) == 4


def test_a_device_that_is_vouched_for_and_a_cpu_need_no_check(gpu, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(vouching, "VOUCHED", frozenset([jax.devices()[0].device_kind]))
        assert engine.missing() is None
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert engine.missing() is None


def test_a_gpu_without_llvmlite_or_too_old_needs_no_check(gpu, monkeypatch):
    class Old:
        compute_capability = "7.5"

    monkeypatch.setattr(jax, "devices", lambda: [Old])
    assert "compute capability 8.0 or more, got 7.5" in engine.missing()
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    assert 'pip install "jaxquat[fused]"' in nvptx.missing()


# What the check compares.


def off_by(factor, kinds):
    """Kernels of some kinds whose last result is off by a factor."""

    def call(loop, kind, batched, members, operands):
        results = CALL(loop, kind, batched, members, operands)
        if kind in kinds:
            results[-1] = results[-1] * jnp.asarray(factor, results[-1].dtype)
        return results

    return call


LIES = {
    "values": (off_by(1.001, ("forward", "keeping")), r"its float32 values differ .* by .*e-0[34]"),
    "gradient": (off_by(1.01, ("backward",)), r"its float32 gradients differ .* by 1.0e-02"),
    "nan": (off_by(jnp.nan, ("forward", "keeping")), r"its float32 values differ .* by nan"),
}


@pytest.fixture
def anew():
    """Kernels are called anew."""
    lowering._compiled.cache_clear()
    jax.clear_caches()
    yield
    lowering._compiled.cache_clear()
    jax.clear_caches()


@pytest.mark.parametrize("lie", some(LIES, slow=["values", "gradient"]))
def test_a_lie_is_found(monkeypatch, anew, lie):
    """By a scan in full precision: by default a GPU rounds the factors of a product to 10 bits."""
    call, reason = LIES[lie]
    run, precisions = selfcheck.scan.run, set()

    def recorded(simulation):
        precisions.add(jax.config.jax_default_matmul_precision)
        return run(simulation)

    monkeypatch.setattr(selfcheck.scan, "run", recorded)
    monkeypatch.setattr(cpu, "call", call)
    assert re.match(reason, selfcheck.difference(kernels.run))
    assert precisions == {"highest"}


@pytest.mark.slow
def test_the_check_itself_finds_that_the_kernels_agree(present, tmp_path):
    """The whole of it, in another process, by the kernels for the CPU."""
    assert jq.check_gpu()
    assert engine.missing() is None
    assert len(files(tmp_path)) == 1
    assert "fused_loop" in str(jax.make_jaxpr(lambda: rates("auto"))())


@pytest.mark.slow
def test_the_process_checks_the_device_that_was_asked_for(monkeypatch):
    answer = selfcheck.checked("NVIDIA H200")
    assert answer == ("its check ended with RuntimeError: it ran on cpu", False)

"""The fused engine checks itself on a GPU that nobody vouched for.

Here the GPU is a CPU that calls itself one. Its kernels are right, or lie about their results.
"""

import warnings

import jax
import jax.numpy as jnp
import pytest
from marks import some

import jaxquat as jq
from jaxquat.engines.fused import cpu, engine, primitives, selfcheck
from jaxquat.engines.fused.targets import nvptx

CALL = cpu.call


def off_by(factor, kinds):
    """Kernels of some kinds whose last result is off by a factor."""

    def call(loop, kind, batched, bodies, operands):
        results = CALL(loop, kind, batched, bodies, operands)
        if kind in kinds:
            results[-1] = results[-1] * jnp.asarray(factor, results[-1].dtype)
        return results

    return call


def not_a_number(loop, kind, batched, bodies, operands):
    results = CALL(loop, kind, batched, bodies, operands)
    return [x * jnp.asarray(jnp.nan, x.dtype) for x in results]


def failing(*arguments, **options):
    raise RuntimeError("ptxas is not amused\nat line 3")


LIES = {
    "values": (off_by(1.001, ("forward", "keeping")), "its float32 values differ .* by .*e-0[34]"),
    "gradient": (off_by(1.01, ("backward",)), "its float32 gradients differ .* by 1.0e-02"),
    "nan": (not_a_number, "its float32 values differ .* by nan"),
    "error": (failing, "its check ended with RuntimeError: ptxas is not amused"),
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """No answer is known, in memory or on disk; kernels are called anew."""
    monkeypatch.setenv("JAXQUAT_CACHE", str(tmp_path))
    monkeypatch.setattr(selfcheck, "_answers", {})
    primitives._compiled.cache_clear()
    jax.clear_caches()
    yield
    primitives._compiled.cache_clear()
    jax.clear_caches()


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


@pytest.fixture
def checks(monkeypatch):
    """The checks that are made."""
    made, own = [], selfcheck.difference
    monkeypatch.setattr(selfcheck, "difference", lambda e: made.append(0) or own(e))
    return made


def lying(monkeypatch, name):
    call, reason = LIES[name]
    monkeypatch.setattr(cpu, "call", call)
    return f'^engine "fused" is off on cpu: {reason}.*; use engine="scan"$'


def rates(by, gain=0.5):
    body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
    start = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.array([0.1, 0.2, 0.3]))
    torque = lambda t, state, gain: -gain * state.omega
    return jq.rollout(
        jq.zhao, body, torque, start, jq.grid(0.0, 0.1, 4), gain, engine=by
    ).final.omega


def test_kernels_that_agree_are_used_and_the_answer_is_kept(gpu, checks, monkeypatch, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates("fused")
        assert "fused_rollout" in str(jax.make_jaxpr(lambda: rates("auto"))())
        assert [file.suffix for file in tmp_path.iterdir()].count(".check") == 1
        monkeypatch.setattr(selfcheck, "_answers", {})  # as in a new process
        assert engine.missing() is None
    assert checks == [0]


@pytest.mark.parametrize("lie", some(LIES, ("values", "gradient", "error")))
def test_a_lie_is_found_once_and_the_scan_taken(gpu, checks, monkeypatch, capsys, lie):
    """One warning, here while a gradient of a batch is traced; ``explain`` and an error say why."""
    monkeypatch.setattr(selfcheck, "TOLERANCES", {"float32": (1e-5, 1e-4)})
    wanted = jax.grad(lambda g: rates("scan", g)[0])(0.5)
    reason = lying(monkeypatch, lie)
    slope = jax.jit(jax.vmap(jax.grad(lambda g: rates("auto", g)[0])))
    with pytest.warns(RuntimeWarning, match=reason) as record:
        slopes = slope(jnp.array([0.5, 0.7]))
    assert len(record) == 1
    assert abs(slopes[0] - wanted) < 1e-12
    assert "fused_rollout" not in str(jax.make_jaxpr(lambda: rates("auto"))())
    with pytest.raises(ImportError, match=reason):
        rates("fused")
    start = jq.State(jnp.array([1.0, 0, 0, 0]), jnp.zeros(3))
    body = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0]))
    jq.fused.explain(jq.zhao, body, jq.torques.zero, start, jq.grid(0.0, 0.1, 4))
    told = capsys.readouterr().out.splitlines()[0]
    assert told.startswith('engine="auto" takes the scan (engine "fused" is off on cpu: its ')
    assert checks == [0]


def test_an_error_is_not_kept_but_a_difference_is(gpu, checks, monkeypatch):
    """A full memory passes, a wrong kernel does not."""
    monkeypatch.setattr(selfcheck, "TOLERANCES", {"float32": (1e-5, 1e-4)})
    for lie, made in (("error", 1), ("error", 2), ("gradient", 3), ("gradient", 3)):
        reason = lying(monkeypatch, lie)
        with pytest.warns(RuntimeWarning, match=reason):
            assert engine.missing()
        assert len(checks) == made
        monkeypatch.setattr(selfcheck, "_answers", {})


def test_another_driver_or_engine_is_checked_anew(monkeypatch):
    class Device:
        device_kind = "NVIDIA H200"
        client = type("Client", (), {"platform_version": "cuda 12090"})

    keys = {selfcheck._key(Device), selfcheck._key(Device)}
    Device.client.platform_version = "cuda 13000"
    keys.add(selfcheck._key(Device))
    Device.device_kind = "NVIDIA A100"
    keys.add(selfcheck._key(Device))
    monkeypatch.setattr(selfcheck.File, "read_bytes", lambda file: b"")
    keys.add(selfcheck._key(Device))
    assert len(keys) == 4


def test_a_device_that_is_vouched_for_and_a_cpu_are_not_checked(gpu, checks, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(selfcheck, "VOUCHED", frozenset([jax.devices()[0].device_kind]))
        assert engine.missing() is None
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert engine.missing() is None
    rates("fused")
    assert not checks


def test_a_gpu_without_llvmlite_or_too_old_is_not_checked(gpu, checks, monkeypatch):
    class Old:
        compute_capability = "7.5"

    monkeypatch.setattr(jax, "devices", lambda: [Old])
    assert "compute capability 8.0 or more, got 7.5" in engine.missing()
    monkeypatch.setitem(__import__("sys").modules, "llvmlite.binding", None)
    assert 'pip install "jaxquat[fused]"' in nvptx.missing()
    assert not checks

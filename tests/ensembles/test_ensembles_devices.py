"""Several devices have the members and the statistics of one; they do not communicate."""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh

import jaxquat as jq

COMMON = """
from functools import partial
import jax, jax.numpy as jnp, numpy as np, jaxquat as jq
from jax.sharding import Mesh
from jaxquat.ensembles import chunks, largest, mean, quantiles

body, key, n = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0])), jax.random.key(0), 1000

def draw(key):
    turn, spin = jax.random.split(key)
    return jq.State(jq.quaternion.random(turn), jax.random.normal(spin, (3,)))

def simulate(engine, start):
    torque = lambda t, state, params: -2.0 * state.q[1:] - state.omega
    grid, options = jq.grid(0.0, 0.05, 20, save_every=20), jq.RolloutOptions(engine=engine)
    path = jq.rollout(jq.lie_euler, body, torque, start, grid, options=options)
    end = jnp.where(start.q[0] > 0.9, jnp.nan, path.state.omega[-1])
    return {"start": start, "end": end}

reduce = {
    "mean": mean(lambda out: (out["start"].q, out["start"].omega)),
    "end": mean(lambda out: out["end"]),
    "quantiles": quantiles([0.1, 0.5], of=lambda out: out["start"].omega),
    "worst": largest(5, lambda out: out["start"].omega[:, 0]),
}

def run(mesh, chunk=288, engine="scan"):
    options = {"chunk": chunk, "reduce": reduce, "mesh": mesh, "progress": False}
    return jq.ensembles.run(key, draw, partial(simulate, engine), n, **options)

def numbers(found):
    leaves, _ = jax.tree_util.tree_flatten_with_path((found.result, found.failed_index))
    return {jax.tree_util.keystr(path): np.asarray(x) for path, x in leaves}

def compare(found, wanted):
    # The same members, so the same numbers of them. XLA may round their last bit otherwise, and
    # move one over the edge of a bin.
    assert found.keys() == wanted.keys()
    for name, x in wanted.items():
        tolerance = 2.1e-3 if "quantiles" in name else 1e-5 if "end" in name else 1e-6
        np.testing.assert_allclose(found[name], x, rtol=tolerance, atol=1e-7, err_msg=name)
        if name.startswith("[1]") or name.endswith((".n", ".members")):
            np.testing.assert_array_equal(found[name], x, err_msg=name)
"""
DEVICES = """
devices = np.array(jax.devices())
assert len(devices) == 8
line, three = Mesh(devices, ("d",)), Mesh(devices[:3], ("d",))
grid = Mesh(devices.reshape(4, 2), ("d", "e"))
wanted = numbers(run(None))
compare(numbers(run(line)), wanted)
compare(numbers(run(three, engine="fused")), wanted)
for engine in ("scan", "fused"):
    experiment = chunks.Experiment(draw, partial(simulate, engine), n, key, grid)
    print(chunks.compiled(experiment, 96).as_text())
try:
    run(line, 100)
except ValueError as error:
    print("refused", error)
"""
COLLECTIVES = re.compile(
    r"\b(all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute|collective-broadcast)"
)


def start(program, devices):
    flags = os.environ.get("XLA_FLAGS", "")
    environment = {
        **os.environ,
        "XLA_FLAGS": " ".join([f"--xla_force_host_platform_device_count={devices}", flags]),
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-c", COMMON + program]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_eight_devices_without_communication():
    printed, errors = start(DEVICES, devices=8).communicate(timeout=300)
    assert "refused chunk: wanted a multiple of the mesh's 8 devices, got 100" in printed, errors
    assert printed.count("HloModule") == 2
    assert printed.count("partition-id") >= 2  # it is the partitioned program
    assert COLLECTIVES.findall(printed) == []
    assert COLLECTIVES.findall("%x = f32[] all-reduce(%y)") == ["all-reduce"]


def test_devices_of_another_process_are_refused(monkeypatch):
    monkeypatch.setattr(jax, "process_index", lambda: 1)
    with pytest.raises(ValueError, match=r"mesh: wanted devices of this process, 1, got those of "):
        jq.ensembles.run(
            jax.random.key(0), jax.random.normal, jnp.sqrt, 10,
            reduce=jq.ensembles.mean(), mesh=Mesh(jax.devices(), ("d",)),
        )  # fmt: skip

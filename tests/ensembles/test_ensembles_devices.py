"""Several devices and processes have the members and the statistics of one device.

They do not communicate while they simulate.
"""

import os
import re
import socket
import subprocess
import sys

import numpy as np
import pytest
import zarr

COMMON = """
import sys
from functools import partial
import jax, jax.numpy as jnp, numpy as np, jaxquat as jq
from jax.sharding import AxisType, Mesh
from jaxquat.ensembles import chunks, largest, mean, quantiles, standard_error

if len(sys.argv) > 1:
    jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", 2, int(sys.argv[2]))
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

def run(mesh, chunk=288, engine="scan", n=n, **options):
    options = {"chunk": chunk, "reduce": reduce, "mesh": mesh, "progress": False, **options}
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
PROCESS = """
everyone, own = jax.devices(), jax.local_devices()
assert len(everyone) == 6 and len(own) == 3
found = numbers(run(Mesh(np.array(everyone), ("d",)), store=sys.argv[3]))
if jax.process_index() == 0:
    alone = jax.make_mesh((3,), ("d",), devices=own, axis_types=(AxisType.Auto,))
    compare(found, numbers(run(alone)))
rule = standard_error(lambda out: out["start"].omega, 0.06)
options = {"mesh": Mesh(np.array(everyone), ("d",)), "chunk": 48}
stopped = run(until=rule, store=sys.argv[3] + "-stopped", **options)
fixed = numbers(run(n=stopped.n, **options))
for name, x in numbers(stopped).items():
    np.testing.assert_array_equal(x, fixed[name], err_msg=name)
np.savez(sys.argv[4], **found, stopped=stopped.n)
for devices in (everyone[::2] + everyone[1::2], [d for d in everyone if d not in own]):
    try:
        run(Mesh(np.array(devices), ("d",)))
    except ValueError as error:
        print("refused", error)
"""
COLLECTIVES = re.compile(
    r"\b(all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute|collective-broadcast)"
)


def start(program, *arguments, devices):
    flags = os.environ.get("XLA_FLAGS", "")
    environment = {
        **os.environ,
        "XLA_FLAGS": " ".join([f"--xla_force_host_platform_device_count={devices}", flags]),
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-c", COMMON + program, *map(str, arguments)]
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


def processes(folder):
    """Two of them, on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        start(PROCESS, port, k, folder / "store", folder / f"{k}.npz", devices=3) for k in range(2)
    ]


def finished(running):
    results = []
    try:
        results = [(*process.communicate(timeout=120), process.returncode) for process in running]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    for printed, errors, code in results:
        assert code == 0, errors
        assert (
            "refused mesh: wanted the same number of devices of each process, side by side, got "
            in printed
        )
        alone_or_all = "wanted devices of this process alone or of all 2 processes, got ["
        assert f"refused mesh: {alone_or_all}" in printed


@pytest.mark.slow
def test_two_processes(tmp_path):
    """The first compares with a run of its own devices; both have the same result and one store."""
    finished(processes(tmp_path))
    first, second = (np.load(tmp_path / f"{k}.npz") for k in range(2))
    assert set(first.files) == set(second.files)
    for name in first.files:
        np.testing.assert_array_equal(first[name], second[name])
    digests = sorted((tmp_path / "store").rglob("digests-*"))
    done = [(path.name, len(path.read_text().splitlines())) for path in digests]
    assert done == [("digests-0", 4), ("digests-1", 4)]
    x = zarr.open_group(tmp_path / "store", mode="r")["start/q"]
    assert x.chunks == (144, 4)
    assert np.isfinite(x[:]).all()
    n = int(first["stopped"])  # some 278 that did not fail, (1/0.06)^2
    assert 240 < n < 480
    (digests,) = (tmp_path / "store-stopped").rglob("digests-1")
    assert len(digests.read_text().splitlines()) == n // 48


@pytest.mark.slow
def test_two_processes_resume_from_where_the_slower_one_was(tmp_path):
    finished(processes(tmp_path))
    whole = dict(np.load(tmp_path / "0.npz"))
    for part, chunks, store in ((0, 3, "store"), (1, 1, "store"), (0, 2, "store-stopped")):
        (digests,) = (tmp_path / store).rglob(f"digests-{part}")
        digests.write_text("".join(digests.read_text().splitlines(keepends=True)[:chunks]))
    finished(processes(tmp_path))
    for name, x in np.load(tmp_path / "1.npz").items():
        np.testing.assert_array_equal(x, whole[name])

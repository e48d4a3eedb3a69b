"""Members a second of ``jq.ensembles.run`` with either engine, what the host adds, and what 1e9 members would take.

    python benchmarks/ensembles.py [--steps 1000] [--chunks 1024 16384] [--engines fused scan]

A closed loop (rkmk4, a quaternion law, float32) from random starts, three numbers kept of each member, reduced to mean and
quantiles. The rate is that between the first chunk and the last of six, so it contains drawing, transfer and reducing but no
compilation. Memory is XLA's analysis of one chunk.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from rollout import INERTIA, torque

import jaxquat as jq
from jaxquat import ensembles
from jaxquat.ensembles import chunks, stores

CHUNKS = 6


def draw(key):
    """Attitudes uniform over SO(3), rates uniform in the ball of 1 rad/s."""
    turn, spin = jax.random.split(key)
    return jq.State(jq.quaternion.random(turn), jax.random.ball(spin, 3))


def simulate(engine, steps, start):
    """The rate at the end."""
    body, gains = jq.Body(jnp.asarray(INERTIA, start.q.dtype)), jnp.array([6.0, 4.0])
    grid = jq.grid(0.0, 0.01, steps)
    return jq.rollout(
        jq.rkmk4, body, torque, start, grid, gains, save_every=steps, engine=engine
    ).state.omega[-1]


def clock(times):
    """Not a statistic: when a chunk arrived."""
    return ensembles.Reducer(
        lambda rows, index: times.append(time.perf_counter()) or (),
        lambda a, b: a,
        lambda summary: None,
    )


def rate(simulate, chunk, mesh):
    """Members a second."""
    times = []
    reduce = (ensembles.mean(), ensembles.quantiles([0.05, 0.5, 0.95]), clock(times))
    options = {"chunk": chunk, "mesh": mesh, "reduce": reduce, "progress": False}
    jq.ensembles.run(draw, simulate, CHUNKS * chunk, jax.random.key(0), **options)
    return (CHUNKS - 1) * chunk / (times[-1] - times[1])  # the first is that of no member


def main():
    """Print the tables of docs/scaling.md."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--chunks", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--engines", nargs="+", default=["fused", "scan"])
    given = parser.parse_args()
    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("members",))
    print(
        f"{len(devices)} x {devices[0].device_kind}, {given.steps} steps, jax {jax.__version__}\n"
    )
    print("| engine | chunk | members/s | M body-steps/s | MB a device | 1e9 members, hours |")
    print("|---|---|---|---|---|---|")
    for engine in given.engines:
        for chunk in given.chunks:
            one = partial(simulate, engine, given.steps)
            program = chunks.compiled(
                chunks.Experiment(draw, one, CHUNKS * chunk, jax.random.key(0), mesh), chunk
            )
            megabytes = chunks.needed_bytes(program) / 1e6
            members = rate(one, chunk, mesh)
            speed = f"{members:.0f} | {members * given.steps / 1e6:.1f} | {megabytes:.1f} | {1e9 / members / 3600:.1f}"
            print(f"| {engine} | {chunk} | {speed} |", flush=True)
    chunk, rows = (
        max(given.chunks),
        np.random.default_rng(0).standard_normal((max(given.chunks), 3)).astype(np.float32),
    )
    print(
        "\n| on the host, three numbers a member | microseconds a member | 1e9 members, hours |\n|---|---|---|"
    )
    reducers = {
        "mean": ensembles.mean(),
        "covariance": ensembles.covariance(),
        "quantiles": ensembles.quantiles([0.05, 0.5, 0.95]),
    }
    reducers["largest"] = ensembles.largest(10, lambda out: out[:, 0])
    for name, reducer in reducers.items():
        summary = reducer.summarise(rows, np.arange(chunk))
        began = time.perf_counter()
        for _ in range(20):
            summary = reducer.merge(summary, reducer.summarise(rows, np.arange(chunk)))
        each = (time.perf_counter() - began) / (20 * chunk)
        print(f"| {name} | {1e6 * each:.3f} | {1e9 * each / 3600:.2f} |")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        stores.create(path, {"outputs": {"rate": [[3], "float32"]}}, 20 * chunk, chunk)
        store = stores.attach(path, ["rate"], 0)
        began = time.perf_counter()
        for k in range(20):
            store.write(slice(k * chunk, (k + 1) * chunk), [rows], k + 1)
        each = (time.perf_counter() - began) / (20 * chunk)
    print(f"| store | {1e6 * each:.3f} | {1e9 * each / 3600:.2f} |")


if __name__ == "__main__":
    main()

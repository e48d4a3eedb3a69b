"""Measure members a second of ``jq.ensembles.run`` with either engine, and what the host adds.

    python benchmarks/ensembles.py [--steps 1000] [--chunks 1024 16384] [--engines fused scan]

A closed loop (rkmk4, a quaternion law, float32) runs from random starts. Three numbers are kept of
each member, and reduced to mean and quantiles. The rate is that from the first chunk to the last of
six: it contains drawing, transfer and reducing, but no compilation. Memory is XLA's analysis of one
chunk. The tables, with what 1e9 members would take, are those of docs/benchmarks/ensembles.txt.
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
REPEATS = 20


def draw(key):
    """Draw an attitude uniform over SO(3), and a rate uniform in the ball of 1 rad/s."""
    turn, spin = jax.random.split(key)
    return jq.State(jq.quaternion.random(turn), jax.random.ball(spin, 3))


def simulate(engine, steps, start):
    """Return the rate at the end."""
    body, gains = jq.Body(jnp.asarray(INERTIA, start.q.dtype)), jnp.array([6.0, 4.0])
    grid, options = jq.grid(0.0, 0.01, steps, save_every=steps), jq.RolloutOptions(engine=engine)
    return jq.rollout(jq.rkmk4, body, torque, start, grid, gains, options=options).final.omega


def clock(times):
    """Return a reducer that is no statistic: it notes when each chunk arrives."""
    return ensembles.Reducer(
        lambda rows, index: times.append(time.perf_counter()) or (),
        lambda a, b: a,
        lambda summary: None,
    )


def rate(simulate, chunk, mesh):
    """Return members a second."""
    times = []
    reduce = (ensembles.mean(), ensembles.quantiles([0.05, 0.5, 0.95]), clock(times))
    options = {"chunk": chunk, "mesh": mesh, "reduce": reduce, "progress": False}
    ensembles.run(jax.random.key(0), draw, simulate, CHUNKS * chunk, **options)
    return (CHUNKS - 1) * chunk / (times[-1] - times[1])  # times[0] is that of no member


def print_devices(engines, sizes, steps):
    """Print the table of engines and chunks."""
    devices = jax.devices()
    mesh, key = Mesh(np.array(devices), ("members",)), jax.random.key(0)
    print(f"{len(devices)} x {devices[0].device_kind}, {steps} steps, jax {jax.__version__}\n")
    print("| engine | chunk | members/s | M body-steps/s | MB a device | 1e9 members, hours |")
    print("|---|---|---|---|---|---|")
    for engine in engines:
        for chunk in sizes:
            one = partial(simulate, engine, steps)
            experiment = chunks.Experiment(draw, one, CHUNKS * chunk, key, mesh)
            megabytes = chunks.needed_bytes(chunks.compiled(experiment, chunk)) / 1e6
            members = rate(one, chunk, mesh)
            speed = f"{members:.0f} | {members * steps / 1e6:.1f}"
            hours = 1e9 / members / 3600
            print(f"| {engine} | {chunk} | {speed} | {megabytes:.1f} | {hours:.1f} |", flush=True)


def seconds_to_reduce(reducer, rows):
    """Return seconds a member of summarising and merging chunks."""
    index = np.arange(len(rows))
    summary = reducer.summarise(rows, index)
    began = time.perf_counter()
    for _ in range(REPEATS):
        summary = reducer.merge(summary, reducer.summarise(rows, index))
    return (time.perf_counter() - began) / (REPEATS * len(rows))


def seconds_to_store(rows):
    """Return seconds a member of writing chunks to a store."""
    chunk = len(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        outputs = {"rate": [[3], "float32"]}
        stores.create(path, {"outputs": outputs}, REPEATS * chunk, chunk)
        store = stores.attach(path, outputs)
        began = time.perf_counter()
        for k in range(REPEATS):
            store.write(k, slice(k * chunk, (k + 1) * chunk), [rows])
        return (time.perf_counter() - began) / (REPEATS * chunk)


def print_host(chunk):
    """Print the table of what the host does with three numbers a member."""
    rows = np.random.default_rng(0).standard_normal((chunk, 3)).astype(np.float32)
    reducers = {
        "mean": ensembles.mean(),
        "quantiles": ensembles.quantiles([0.05, 0.5, 0.95]),
        "largest": ensembles.largest(10, lambda out: out[:, 0]),
    }
    seconds = {name: seconds_to_reduce(reducer, rows) for name, reducer in reducers.items()}
    seconds["store"] = seconds_to_store(rows)
    print("\n| on the host, three numbers a member | microseconds a member | 1e9 members, hours |")
    print("|---|---|---|")
    for name, each in seconds.items():
        print(f"| {name} | {1e6 * each:.3f} | {1e9 * each / 3600:.2f} |")


def main():
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--chunks", type=int, nargs="+", default=[1024, 16384])
    parser.add_argument("--engines", nargs="+", default=["fused", "scan"])
    options = parser.parse_args()
    print_devices(options.engines, options.chunks, options.steps)
    print_host(max(options.chunks))


if __name__ == "__main__":
    main()

"""How long a sample takes in the filters of ``jq.estimation``, beside VQF.

    python benchmarks/attitude_filter.py

Prints the table of docs/validation.md (Attitude filters, Cost): microseconds of processor time a
sample, float32, for one recording and for 1000 at once, and the ratio to VQF, which runs in the
same process on one recording after the other. The recordings are simulated: a gyroscope, an
accelerometer and a magnetometer at 100 Hz. Every number is the best of five runs. Only the
attitudes are kept.

    python benchmarks/attitude_filter.py --derivatives

Prints what the gradient of the loss with respect to all settings of ``ahrs`` costs: microseconds
of processor time a sample, best of three, for one recording and eight of 2,000 samples each, by the
kernel and by the scan, and the processor time of their compilation.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from vqf import VQF

import jaxquat as jq
from jaxquat import estimation

DT = 0.01
LENGTH = {1: 20_000, 1000: 500}  # samples of a recording, by their number


def recordings(count, length):
    """Return the samples of recordings of one wandering body, each with noise of its own."""
    t = DT * np.arange(length)
    rate = np.stack([np.sin(0.7 * t), np.cos(0.4 * t), 0.8 * np.sin(0.2 * t)], axis=1)
    rate = jnp.asarray(rate, jnp.float32)
    q = jq.kinematics.integrate(jnp.array([1.0, 0.0, 0.0, 0.0]), rate, DT)
    force = jq.quaternion.rotate_inverse(q, jnp.array([[0.0, 0.0, 9.80665]]))
    field = jq.quaternion.rotate_inverse(q, jnp.array([[0.0, 18.0, -45.0]]))

    def one(key):
        white = 0.01 * jax.random.normal(key, (3, *rate.shape))
        dt = estimation.Interval(jnp.full(len(t), DT))
        return estimation.ImuSample(dt, rate + white[0], force + white[1], field + white[2])

    return jax.vmap(one)(jax.random.split(jax.random.key(0), count))


def vectors(samples):
    """Return the samples of ``mekf`` with the same measurements."""
    shape = samples.gyro.shape[:2]
    seen = jnp.stack([samples.accelerometer, samples.magnetometer], axis=2)
    world = jnp.array([[0.0, 0.0, 9.80665], [0.0, 18.0, -45.0]])
    lost = jnp.full((*shape, 4), jnp.nan)
    known = jnp.broadcast_to(world, seen.shape)
    return estimation.VectorSample(samples.dt, samples.gyro, seen, known, lost)


def best(calls, clock, function, *arguments):
    """Return the shortest time [s] by this clock of so many calls after a first one."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(calls):
        start = clock()
        jax.block_until_ready(function(*arguments))
        times.append(clock() - start)
    return min(times)


def run_vqf(samples):
    """Run VQF over recordings, one after the other."""
    sensors = [np.asarray(x, np.float64) for x in samples[1:]]
    for gyr, acc, mag in zip(*sensors, strict=True):
        VQF(DT).updateBatch(gyr, acc, mag)


def loss(settings, samples, engine):
    """Return the mean square of the biases of recordings."""

    def run(one):
        options = {"save": lambda estimate: estimate.bias, "engine": engine}
        return estimation.run(estimation.ahrs(settings), one, **options)[1]

    return jnp.mean(jax.vmap(run)(samples) ** 2)


def by_pushing(settings, samples, engine):
    """Return the loss and its derivatives by all settings, in forward mode."""
    leaves, tree = jax.tree.flatten(settings)

    def value(*leaves):
        return loss(tree.unflatten(leaves), samples, engine)

    def push(direction):
        return jax.jvp(value, tuple(leaves), tuple(direction))

    return jax.vmap(push, out_axes=(None, 0))(jnp.eye(len(leaves)))


def derivatives():
    """Print what the gradient of a loss costs."""
    settings = jax.tree.map(jnp.float32, estimation.AhrsSettings())
    length, counts = 2_000, (1, 8)
    samples = {count: recordings(count, length) for count in counts}
    functions = {
        "a loss": loss,
        "with gradient, reverse mode": jax.value_and_grad(loss),
        f"with gradient, forward mode ({len(settings)} settings)": by_pushing,
    }
    print("| us a sample, processor time | 1 recording | 8 recordings | compilation [s] |")
    print("|---|---|---|---|")
    for name, function in functions.items():
        for engine in ("fused", "scan"):
            cells, compilation = [], 0.0
            for count in counts:
                start = time.process_time()
                lowered = jax.jit(function, static_argnums=2).lower(
                    settings, samples[count], engine
                )
                compiled = lowered.compile()
                compilation = time.process_time() - start
                took = best(3, time.process_time, compiled, settings, samples[count])
                cells.append(f"{1e6 * took / (count * length):.1f}")
            print(f"| {name}, {engine} | {' | '.join(cells)} | {compilation:.1f} |", flush=True)


def throughput():
    """Print the table beside VQF."""
    settings = estimation.MekfSettings(vectors=0.05)
    mekf = estimation.mekf(jnp.array([1.0, 0.0, 0.0, 0.0]), settings)
    ahrs = estimation.ahrs()

    def run(kind, engine="auto"):
        options = {"save": lambda estimate: estimate.q, "engine": engine}
        return lambda samples: estimation.run(kind, samples, **options)[1]

    rows = {
        "mekf": (run(mekf), vectors),
        "ahrs": (run(ahrs), lambda s: s),
        "ahrs, by the scan": (run(ahrs, "scan"), lambda s: s),
        "ahrs, smoothed": (lambda s: estimation.smooth(ahrs, s).q, lambda s: s),
        "ahrs, ten samples merged": (lambda s: run(ahrs)(estimation.merge(s, 10)), lambda s: s),
    }
    print("| us a sample (times VQF) | 1 recording | 1000 recordings |\n|---|---|---|")
    simulated = {count: recordings(count, length) for count, length in LENGTH.items()}
    unit = {count: 1e6 / (count * length) for count, length in LENGTH.items()}
    vqf = {count: best(5, time.process_time, run_vqf, simulated[count]) for count in LENGTH}
    print("| VQF |" + "".join(f" {vqf[count] * unit[count]:.2f} |" for count in LENGTH))
    for name, (function, prepared) in rows.items():
        compiled = jax.jit(jax.vmap(function))
        cells = []
        for count in LENGTH:
            took = best(5, time.process_time, compiled, prepared(simulated[count]))
            cells.append(f" {took * unit[count]:.2f} ({took / vqf[count]:.1f}) |")
        print(f"| {name} |{''.join(cells)}", flush=True)


def main():
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description="Time the filters of estimation.")
    parser.add_argument("--derivatives", action="store_true")
    derivatives() if parser.parse_args().derivatives else throughput()


if __name__ == "__main__":
    main()

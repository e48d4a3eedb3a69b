"""Measure a fused rollout of bodies that are sharded over 8 virtual devices: docs/scaling.md.

    python benchmarks/sharding.py [--bodies 64 1024] [--steps 1024] [--rounds 5]

For a quaternion law by rkmk4 in float32, value and gradient: milliseconds on one device, and in
parts of that the time on eight devices that share its processors. "Gathered" is a kernel of which
XLA does not know that bodies pass through it, as up to 0.2.0. The three are measured in turn, and
the ratios are medians over the rounds. The last line is what eight devices cost in any case: the
time of an addition to 8 numbers on one device and on eight.
"""

import argparse
import os
import time

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxquat as jq
from jaxquat.fused import partitioning

BODY, LEVEL = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0])), jnp.array([0.5, 0.5, -0.5, 0.5])
GAINS = jnp.array([2.0, 1.0])


def torque(t, state, gains):
    """Return the torque of the law."""
    return -gains[0] * state.q[1:] - gains[1] * state.omega


def functions(steps):
    """Return the final rates of bodies, and the gradients of the sum of their squares."""

    def end(omega, gains):
        start, grid = jq.State(LEVEL, omega), jq.grid(0.0, 0.01, steps)
        options = {"save_every": steps, "engine": "fused"}
        return jq.rollout(jq.rkmk4, BODY, torque, start, grid, gains, **options).final.omega

    value = jax.vmap(end, (0, None))
    return value, jax.value_and_grad(lambda *x: jnp.sum(value(*x) ** 2), (0, 1))


def compiled(function, *arguments):
    """Return a function without arguments that computes and waits."""
    program = jax.jit(function).lower(*arguments).compile()
    return lambda: jax.block_until_ready(program(*arguments))


def milliseconds(call):
    """Return the least time of nine calls."""
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return min(times)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bodies", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--steps", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    sharding = NamedSharding(Mesh(jax.devices(), ("bodies",)), PartitionSpec("bodies"))
    print(f"jax {jax.__version__}\n")
    print("| bodies | what | one device, ms | sharded | gathered |\n|---|---|---|---|---|")
    for bodies in options.bodies:
        rates = jax.random.normal(jax.random.key(0), (bodies, 3))
        sharded = jax.device_put(rates, sharding)
        for name, function in zip(("value", "gradient"), functions(options.steps), strict=True):
            one, eight = (compiled(function, x, GAINS) for x in (rates, sharded))
            devices, partitioning.devices = partitioning.devices, lambda context: 1
            gathered = compiled(lambda *x, function=function: function(*x), sharded, GAINS)
            partitioning.devices = devices
            rounds = [
                [milliseconds(f) for f in (one, eight, gathered)] for _ in range(options.rounds)
            ]
            ms, ratios = (
                np.median(rounds, 0)[0],
                np.median([x[1:] / x[0] for x in np.array(rounds)], 0),
            )
            print(f"| {bodies} | {name} | {ms:.2f} | {ratios[0]:.2f} | {ratios[1]:.1f} |")
    numbers = jnp.arange(8.0)
    one, eight = (
        compiled(lambda x: x + 1, x) for x in (numbers, jax.device_put(numbers, sharding))
    )
    ms = np.median([[milliseconds(f) for f in (one, eight)] for _ in range(options.rounds)], 0)
    print(f"\nan addition: {ms[0]:.3f} ms on one device, {ms[1]:.3f} ms on eight")


if __name__ == "__main__":
    main()

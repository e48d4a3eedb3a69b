"""Measure a rollout of bodies that are sharded over 8 virtual devices.

    python benchmarks/sharding.py [--bodies 64 1024] [--steps 1024] [--rounds 7] [--write]

For a quaternion law by rkmk4 in float32, value and gradient: milliseconds by ``engine="auto"`` on
one device and on eight that share its processors, and by ``engine="scan"`` on eight. "Gathered" is
a kernel of which XLA does not know that bodies pass through it, as up to 0.2.0. The four run in
turn; times and ratios are medians over the rounds, and a ratio is of one round. The last line is
what eight devices cost in any case: the time of an addition to 8 numbers on one device and on
eight. ``--write`` puts the first table into docs/benchmarks/sharding.txt. The second needs a quiet
machine: beside other work, eight programs get more of the processors than one.
"""

import argparse
import itertools
import os
import time
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pages import put

import jaxquat as jq
from jaxquat.fused import partitioning

BODY, LEVEL = jq.Body.from_principal(jnp.array([0.6, 0.8, 1.0])), jnp.array([0.5, 0.5, -0.5, 0.5])
GAINS = jnp.array([2.0, 1.0])
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "sharding.txt"
BEGIN, END = "<!-- sharded: benchmarks/sharding.py -->", "<!-- end of sharded -->"
ONE, EIGHT, SCAN, GATHERED = range(4)


def torque(t, state, gains):
    """Return the torque of the law."""
    return -gains[0] * state.q[1:] - gains[1] * state.omega


def functions(steps, engine):
    """Return the final rates of bodies, and the gradients of the sum of their squares."""

    def end(omega, gains):
        start, grid = jq.State(LEVEL, omega), jq.grid(0.0, 0.01, steps, save_every=steps)
        options = jq.RolloutOptions(engine=engine)
        return jq.rollout(jq.rkmk4, BODY, torque, start, grid, gains, options=options).final.omega

    value = jax.vmap(end, (0, None))
    return value, jax.value_and_grad(lambda *x: jnp.sum(value(*x) ** 2), (0, 1))


def compiled(function, *arguments):
    """Return a function without arguments that computes and waits."""
    program = jax.jit(lambda *x: function(*x)).lower(*arguments).compile()
    return lambda: jax.block_until_ready(program(*arguments))


def gathered(function, *arguments):
    """Return the same, where each device computes all bodies."""
    devices, partitioning.devices = partitioning.devices, lambda context: 1
    try:
        return compiled(function, *arguments)
    finally:
        partitioning.devices = devices


def milliseconds(calls, rounds):
    """Return the times of functions that run in turn, (rounds, functions)."""
    times = np.empty((rounds + 1, len(calls)))
    for k, call in itertools.product(range(rounds + 1), range(len(calls))):
        begin = time.perf_counter()
        calls[call]()
        times[k, call] = 1e3 * (time.perf_counter() - begin)
    return times[1:]


def measured(bodies, kernel, scan, sharding, rounds):
    """Return the times of the four programs in milliseconds, (rounds, 4)."""
    rates = jax.random.normal(jax.random.key(0), (bodies, 3))
    sharded = jax.device_put(rates, sharding), GAINS
    calls = [
        compiled(kernel, rates, GAINS),
        compiled(kernel, *sharded),
        compiled(scan, *sharded),
        gathered(kernel, *sharded),
    ]
    return milliseconds(calls, rounds)


def short(x, digits=3):
    """Return a number with some digits, and without an exponent."""
    return np.format_float_positional(float(f"{x:.{digits}g}"), trim="-")


def table(times, shown, over):
    """Return a table of the ``shown`` programs, and of the first ones over the last."""
    names = ["one device", "eight", "scan on eight", "gathered"]
    titles = [f"{names[i]}, ms" for i in shown] + [f"{names[i]} over {names[j]}" for i, j in over]
    lines = [f"| bodies | what | {' | '.join(titles)} |", "|---" * (2 + len(titles)) + "|"]
    for (bodies, what), x in times.items():
        cells = [short(np.median(x[:, i])) for i in shown]
        cells += [short(np.median(x[:, i] / x[:, j]), 2) for i, j in over]
        lines.append(f"| {bodies} | {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bodies", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--steps", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args()
    sharding = NamedSharding(Mesh(jax.devices(), ("bodies",)), PartitionSpec("bodies"))
    print(f"jax {jax.__version__}\n")
    kernels, scans = (functions(options.steps, engine) for engine in ("auto", "scan"))
    times = {}
    for bodies, k in itertools.product(options.bodies, (0, 1)):
        name = bodies, ("value", "gradient")[k]
        times[name] = measured(bodies, kernels[k], scans[k], sharding, options.rounds)
    beside = table(times, (EIGHT, SCAN), [(EIGHT, SCAN)])
    print(beside, table(times, (ONE, EIGHT), [(EIGHT, ONE), (GATHERED, ONE)]), sep="\n\n")
    numbers = jnp.arange(8.0)
    adds = [compiled(lambda x: x + 1, x) for x in (numbers, jax.device_put(numbers, sharding))]
    one, eight = np.median(milliseconds(adds, 99), 0)
    print(f"\nan addition: {one:.3f} ms on one device, {eight:.3f} ms on eight")
    if options.write:
        put(PAGE, BEGIN, END, beside)


if __name__ == "__main__":
    main()

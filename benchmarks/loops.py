"""Measure what an iteration of a loop costs by XLA on CPU, where it computes little.

    python benchmarks/loops.py [--only "kernels"] [--turns 9]

Each row is a pair of programs, run in turn, and the ratio of their times, the median over the
turns: a loop over few numbers and over more, which XLA does not make one kernel of; covariances as
matrices and with an array for each component. The last row has the kernels of a step of rkmk4 by
the scan engine, for one body, and their times.
"""

import argparse
import re
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import rollout as peers
from jax import lax
from xla import compiled, ratio

import jaxquat as jq
from jaxquat._internal import linear

STEPS = 1024
MOVES = "parameter|constant|get-tuple-element|tuple|bitcast|copy"  # no kernels


def smoothing(size):
    """Return 10,000 iterations that smooth an array of this size."""

    def smooth(x, _):
        return 0.999 * x + 0.001 * jnp.roll(x, 1), None

    return compiled(lambda x: lax.scan(smooth, x, None, length=10_000)[0], jnp.ones(size))


def covariances(as_components):
    """Return 200 updates P = F P F' of covariances (3, 3) of 1000 recordings.

    They are products of matrices, or have an array for each component.
    """

    def matrices(p, f):
        return linear.matmul(linear.matmul(f, p), linear.transpose(f)), None

    def components(p, f):
        def times(a, b):
            return [[sum(a[i][k] * b[k][j] for k in range(3)) for j in range(3)] for i in range(3)]

        rows = [[f[i, j] for j in range(3)] for i in range(3)]
        return times(times(rows, p), [list(column) for column in zip(*rows, strict=True)]), None

    def run(f):
        if not as_components:
            return lax.scan(matrices, jnp.eye(3), f)[0]
        p = [[jnp.float32(i == j) for j in range(3)] for i in range(3)]
        rows: Any = lax.scan(components, p, f)[0]
        return linear.stacked(rows)

    turns = 0.01 * jax.random.normal(jax.random.key(0), (1000, 200, 3))
    return compiled(jax.vmap(run), jax.vmap(jax.vmap(jq.so3.exp))(turns))


PAIRS = {
    "a loop over 64 numbers, to one over 8": (smoothing, 64, 8),
    "covariances as matrices, to an array for each component": (covariances, False, True),
}


def kernels(text):
    """Return how many kernels the longest loop of a compiled program has."""
    counts = [0]
    for name in re.findall(r"body=%?([\w.-]+)", text):
        loop = re.search(rf"^%?{re.escape(name)} .*?^}}", text, re.M | re.S)
        operations = re.findall(r" = .*? ([\w-]+)\(", loop[0]) if loop else []
        counts.append(sum(not re.fullmatch(MOVES, name) for name in operations))
    return max(counts)


def print_kernels(turns):
    """Print how many kernels a step of one body has, and how long it takes."""
    start = jax.tree.map(lambda x: x[0], peers.random_starts(1, "float32"))
    engine = partial(peers.library, steps=STEPS, checkpoint="none")
    run = compiled(engine, start, jnp.array([6.0, 4.0]))
    program: Any = run.func
    count, us = kernels(program.as_text()), 1e3 * ratio(run, run, turns)[1] / STEPS
    print(f"a step of one body: {count} kernels, {us:.2f} us, {1e3 * us / count:.0f} ns each")


def main():
    """Print the rows asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--only", default="", help="a regular expression for the rows")
    options = parser.parse_args()
    for name, (program, changed, base) in PAIRS.items():
        if re.search(options.only, name):
            times, _ = ratio(program(changed), program(base), options.turns)
            print(f"{name}: {times:.2f}", flush=True)
    if re.search(options.only, "kernels"):
        print_kernels(options.turns)


if __name__ == "__main__":
    main()

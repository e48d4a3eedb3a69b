"""Measure what XLA on CPU compiles well: a step of rkmk4, one piece at a time written differently.

    python benchmarks/xla.py [--bodies 1024] [--steps 256] [--only "barrier|loop"] [--turns 5]

The step is that of the library, of the problem of benchmarks/rollout.py, made of pieces: vector
product, matrix times vector, exponential, and so on. Each row changes one piece. Its numbers are
ratios: the time of the changed program to that of the step as the library has it, both run in turn,
the median over the turns. They are those of the rollout alone, of value and gradient by the two
gains in reverse mode, and of the same in forward mode.

Below are two loops that are no rollouts, and the cost of a kernel in a rollout of one body.
"""

import argparse
import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import rollout as peers
from jax import Array, lax

import jaxquat as jq
from jaxquat import _linear as linear
from jaxquat.learning.differentiation import forward_value_and_grad


class Pieces(NamedTuple):
    """What the step is made of; the defaults are those of the library."""

    cross: Callable[[Array, Array], Array] = linear.cross
    matvec: Callable[[Array, Array], Array] = linear.matvec
    dot: Callable[[Array, Array], Array] = linear.dot
    square: Callable[[Array], Array] = linear.square
    exp: Callable[[Array], Array] = jq.quaternion.exp
    shared: Callable[[Any], Any] = lax.optimization_barrier  # around the exponential
    repeated: bool = True  # the backward pass computes each step again


def exp_by_library_functions(u: Array) -> Array:
    """Return the exponential by the cosine and the sine of XLA."""
    angle = 0.5 * jnp.sqrt(jnp.maximum(linear.square(u), 1e-30))[None]
    return jnp.concatenate([jnp.cos(angle), 0.5 * jnp.sin(angle) / angle * u])


def exp_without_barrier(u: Array) -> Array:
    """Return the exponential as the library computes it, without the barrier in it."""
    s = 0.25 * linear.square(u)[None]
    return jnp.concatenate([jq._series.cos(s), 0.5 * jq._series.sinc(s) * u])


CHANGES = {
    "the backward pass reads all intermediates": Pieces(repeated=False),
    "`jnp.cross` with JAX's own derivative": Pieces(cross=jnp.cross),
    "matrix times vector: product, and sum over the last axis": Pieces(
        matvec=lambda matrix, vector: jnp.sum(matrix * vector, axis=-1)
    ),
    "matrix times vector: `(3, 3) @ (3, 1)`": Pieces(
        matvec=lambda matrix, vector: (matrix @ vector[:, None])[:, 0]
    ),
    "dot products: reductions": Pieces(dot=lambda a, b: jnp.sum(a * b, axis=-1)),
    "squares: explicit additions": Pieces(square=lambda a: linear.dot(a, a)),
    "`jnp.cos` and `jnp.sin`, no series": Pieces(exp=exp_by_library_functions),
    "no barrier at the exponential": Pieces(exp=exp_without_barrier, shared=lambda x: x),
}


def rollout(start, gains, steps, pieces):
    """Return the last state of one body."""
    cross, matvec, dot, square, exp, shared, repeated = pieces
    inertia = jnp.asarray(peers.INERTIA, start.q.dtype)
    inverse, h = jnp.linalg.inv(inertia), peers.DT

    def product(p, q):
        scalar = p[0] * q[0] - dot(p[1:], q[1:])
        return jnp.append(scalar, p[0] * q[1:] + q[0] * p[1:] + cross(p[1:], q[1:]))

    def dexpinv(u, v):
        once = cross(u, v)
        factor = jq._series.cot_defect(0.25 * square(u)[None])
        return v + 0.5 * once + 0.25 * factor * cross(u, once)

    def acceleration(q, omega):
        tau = peers.torque(0.0, jq.State(q, omega), gains)
        return matvec(inverse, tau - cross(omega, matvec(inertia, omega)))

    def step(state, _):
        q, omega = state
        k, a = [omega], [acceleration(q, omega)]
        for share in (0.5, 0.5, 1.0):
            u, w = share * h * k[-1], omega + share * h * a[-1]
            k.append(dexpinv(u, w))
            a.append(acceleration(product(q, shared(exp(u))), w))
        turn, change = (h / 6 * (x[0] + 2 * x[1] + 2 * x[2] + x[3]) for x in (k, a))
        q = product(q, shared(exp(turn)))
        return (q + q * (0.5 - 0.5 * dot(q, q)), omega + change), None

    step = jax.checkpoint(step, prevent_cse=False) if repeated else step
    return jq.State(*lax.scan(step, (start.q, start.omega), None, length=steps)[0])


def programs(bodies, steps, pieces):
    """Return the compiled programs: rollout, and value and gradient in either mode."""
    starts = peers.random_starts(bodies, "float32")

    def loss(gains):
        ends = jax.vmap(lambda start: rollout(start, gains, steps, pieces))(starts)
        return peers.mean_square(ends)

    functions = loss, jax.value_and_grad(loss), forward_value_and_grad(loss)
    gains = jnp.array([6.0, 4.0])
    return [partial(jax.jit(f).lower(gains).compile(), gains) for f in functions]


def ratio(changed, base, turns):
    """Return how many times as long the changed program takes, and the milliseconds of the base."""

    def seconds(run):
        began = time.perf_counter()
        jax.block_until_ready(run())
        return time.perf_counter() - began

    pairs = [(seconds(changed), seconds(base)) for _ in range(turns + 1)][1:]
    return statistics.median(a / b for a, b in pairs), 1e3 * min(b for _, b in pairs)


def print_changes(names, options):
    """Print the table of the step's pieces."""
    base = programs(options.bodies, options.steps, Pieces())
    print(f"{options.bodies} bodies, {options.steps} steps, float32\n")
    print("| changed | rollout | gradient, reverse mode | gradient, forward mode |")
    print("|---|---|---|---|")
    times = []
    for name in names:
        changed = programs(options.bodies, options.steps, CHANGES[name])
        measured = [ratio(a, b, options.turns) for a, b in zip(changed, base, strict=True)]
        times.append([ms for _, ms in measured])
        print(f"| {name} | {' | '.join(f'{x:.2f}' for x, _ in measured)} |", flush=True)
    least = [f"{min(column):.1f} ms" for column in zip(*times, strict=True)]
    print(f"\nthe step as it is: {', '.join(least)}\n")


# Loops that are no rollouts.


def loop_of(size):
    """Return a loop of 10,000 iterations that smooths an array of this size."""

    def smooth(x, _):
        return 0.999 * x + 0.001 * jnp.roll(x, 1), None

    return jax.jit(lambda x: lax.scan(smooth, x, None, length=10_000)[0]), jnp.ones(size)


def covariances(as_components):
    """Return 200 updates P = F P F' of covariances (3, 3) of 1000 recordings.

    Either as products of matrices, or with an array for each component.
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
        return linear.stacked(lax.scan(components, p, f)[0])

    turns = 0.01 * jax.random.normal(jax.random.key(0), (1000, 200, 3))
    return jax.jit(jax.vmap(run)), jq.so3.exp(turns)


LOOPS = {
    "a loop over 64 numbers, to one over 8": (loop_of(64), loop_of(8)),
    "covariances as matrices, to an array a component": (covariances(False), covariances(True)),
}


def print_kernels(steps, turns):
    """Print how many kernels a step of one body is, and how long each takes."""
    run = programs(1, steps, Pieces())[0]
    text = run.func.as_text()
    bodies = [
        re.search(rf"^%?{re.escape(name)} .*?^}}", text, re.M | re.S)
        for name in re.findall(r"body=%?([\w.-]+)", text)
    ]
    moves = "parameter|constant|get-tuple-element|tuple|bitcast|copy"
    counts = [len(re.findall(rf" = (?!\S+ (?:{moves})\()\S+ [\w-]+\(", b[0])) for b in bodies if b]
    _, ms = ratio(run, run, turns)
    each = 1e6 * ms / steps / max(counts)
    print(f"one body: {max(counts)} kernels a step, {1e3 * ms / steps:.2f} us, {each:.0f} ns each")


def main():
    """Print the rows asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bodies", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default="", help="a regular expression for the rows")
    options = parser.parse_args()
    names = [name for name in CHANGES if re.search(options.only, name)]
    if names:
        print_changes(names, options)
    for name, pair in LOOPS.items():
        if re.search(options.only, name):
            both = (partial(*program) for program in pair)
            print(f"{name}: {ratio(*both, options.turns)[0]:.2f}", flush=True)
    if re.search(options.only, "kernels"):
        print_kernels(4 * options.steps, options.turns)


if __name__ == "__main__":
    main()

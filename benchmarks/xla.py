"""Measure what XLA on CPU compiles well: a step of rkmk4, one piece at a time written differently.

    python benchmarks/xla.py [--bodies 1024] [--steps 256] [--only "barrier|dot"] [--turns 5]

The step is that of the library, of the problem of benchmarks/rollout.py, made of pieces: vector
product, matrix times vector, exponential, and so on. Each row changes one piece. Its numbers are
ratios: the time of the changed program to that of the step as the library has it, both run in turn,
the median over the turns. They are those of the rollout alone, of value and gradient by the two
gains in reverse mode, and of the same in forward mode.
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
from jaxquat._internal import linear
from jaxquat.fitting.differentiation import forward_value_and_grad

GAINS = (6.0, 4.0)


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
    return jnp.concatenate([jq._internal.series.cos(s), 0.5 * jq._internal.series.sinc(s) * u])


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
        factor = jq._internal.series.cot_defect(0.25 * square(u)[None])
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


def loss_of(bodies, steps, pieces):
    """Return the loss of the last states as a function of the gains."""
    starts = peers.random_starts(bodies, "float32")

    def loss(gains):
        ends = jax.vmap(lambda start: rollout(start, gains, steps, pieces))(starts)
        return peers.mean_square(ends)

    return loss


def programs(loss):
    """Return the compiled programs: rollout, and value and gradient in either mode."""
    functions = loss, jax.value_and_grad(loss), forward_value_and_grad(loss)
    return [compiled(function, jnp.array(GAINS)) for function in functions]


def compiled(function, *arguments):
    """Return the program as a function without arguments."""
    return partial(jax.jit(function).lower(*arguments).compile(), *arguments)


def ratio(changed, base, turns):
    """Return how many times as long the changed program takes, and the milliseconds of the base."""

    def seconds(run):
        began = time.perf_counter()
        jax.block_until_ready(run())
        return time.perf_counter() - began

    pairs = [(seconds(changed), seconds(base)) for _ in range(turns + 1)][1:]
    return statistics.median(a / b for a, b in pairs), 1e3 * min(b for _, b in pairs)


def print_changes(names, options):
    """Print a row for each of these changes, and the times of the step as the library has it."""
    size = options.bodies, options.steps
    base = programs(loss_of(*size, Pieces()))
    print(f"{options.bodies} bodies, {options.steps} steps, float32\n")
    print("| changed | rollout | gradient, reverse mode | gradient, forward mode |")
    print("|---|---|---|---|")
    times = []
    for name in names:
        changed = programs(loss_of(*size, CHANGES[name]))
        measured = [ratio(a, b, options.turns) for a, b in zip(changed, base, strict=True)]
        times.append([ms for _, ms in measured])
        print(f"| {name} | {' | '.join(f'{x:.2f}' for x, _ in measured)} |", flush=True)
    least = [f"{min(column):.1f} ms" for column in zip(*times, strict=True)]
    print(f"\nthe step as it is: {', '.join(least)}")


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
    print_changes([name for name in CHANGES if re.search(options.only, name)], options)


if __name__ == "__main__":
    main()

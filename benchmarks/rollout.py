"""Measure rollouts side by side in one run.

    python benchmarks/rollout.py [--bodies 1 64 1024] [--dtypes float32 float64] [--steps 1024]

The rivals are this library, a ``lax.scan`` by hand of the same scheme (also with jaxlie), and
diffrax. For each the table has the milliseconds of the forward pass and of value and gradient by
the two gains (reverse mode, and forward mode where it is there), the seconds to compile the
gradient, and the megabytes of its temporaries. Machines differ: read the ratios to the first row.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import diffrax
import jax
import jax.numpy as jnp
import jaxlie
from jax import lax

import jaxquat as jq

INERTIA = ((0.6, 0.0, -0.2), (0.0, 1.0, 0.0), (-0.2, 0.0, 1.5))
DT = 0.01


def torque(t, state, gains):
    """Return the torque of a quaternion law with two gains, on the shortest way."""
    side = jnp.where(state.q[0] < 0, -1.0, 1.0).astype(state.q.dtype)
    return -2.0 * gains[0] * side * state.q[1:] - gains[1] * state.omega


# The rivals: each returns the last state of one body.


def library(start, gains, steps, checkpoint, engine="scan"):
    """Run ``jq.rollout`` with rkmk4."""
    body = jq.Body(jnp.asarray(INERTIA, start.q.dtype))
    grid = jq.grid(0.0, DT, steps, save_every=steps)
    options = jq.RolloutOptions(engine=engine, checkpoint=checkpoint)
    return jq.rollout(jq.rkmk4, body, torque, start, grid, gains, options=options).final


def product_by_hand(p, q):
    """Return Hamilton's product."""
    scalar = p[0] * q[0] - jnp.dot(p[1:], q[1:])
    vector = p[0] * q[1:] + q[0] * p[1:] + jnp.cross(p[1:], q[1:])
    return jnp.concatenate([scalar[None], vector])


def exp_by_hand(u):
    """Return the exponential by truncated series, which hold for small angles only."""
    s = jnp.dot(u, u) / 4
    cos = 1 - s / 2 * (1 - s / 12 * (1 - s / 30 * (1 - s / 56 * (1 - s / 90))))
    sinc = 1 - s / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72 * (1 - s / 110))))
    return jnp.concatenate([cos[None], 0.5 * sinc * u])


def product_by_jaxlie(p, q):
    """Return the same product."""
    return (jaxlie.SO3(p) @ jaxlie.SO3(q)).wxyz


def exp_by_jaxlie(u):
    """Return the exponential, of any angle."""
    return jaxlie.SO3.exp(u).wxyz


def by_hand(start, gains, steps, product, exp):
    """Run the same scheme as a user would write it, without checks."""
    inertia = jnp.asarray(INERTIA, start.q.dtype)
    inverse = jnp.linalg.inv(inertia)

    def dexpinv(u, v):
        s, once = jnp.dot(u, u), jnp.cross(u, v)
        factor = 1 / 12 + s / 720 + s * s / 30240 + s * s * s / 1209600
        return v + 0.5 * once + factor * jnp.cross(u, once)

    def acceleration(q, omega):
        tau = torque(0.0, jq.State(q, omega), gains)
        return inverse @ (tau - jnp.cross(omega, inertia @ omega))

    def step(state, _):
        (q, omega), h = state, DT
        k1, a1 = omega, acceleration(q, omega)
        u = h / 2 * k1
        w = omega + h / 2 * a1
        k2, a2 = dexpinv(u, w), acceleration(product(q, exp(u)), w)
        u = h / 2 * k2
        w = omega + h / 2 * a2
        k3, a3 = dexpinv(u, w), acceleration(product(q, exp(u)), w)
        u = h * k3
        w = omega + h * a3
        k4, a4 = dexpinv(u, w), acceleration(product(q, exp(u)), w)
        q = product(q, exp(h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)))
        return (q * (1.5 - 0.5 * jnp.dot(q, q)), omega + h / 6 * (a1 + 2 * a2 + 2 * a3 + a4)), None

    return jq.State(*lax.scan(step, (start.q, start.omega), None, length=steps)[0])


def by_diffrax(start, gains, steps):
    """Run Tsit5 with constant steps on the pair (q, omega), off the sphere; the default adjoint."""
    inertia = jnp.asarray(INERTIA, start.q.dtype)
    inverse = jnp.linalg.inv(inertia)

    def field(t, state, gains):
        q, omega = state
        tau = torque(t, jq.State(q, omega), gains)
        scalar = -jnp.sum(q[1:] * omega)
        vector = q[0] * omega + jnp.cross(q[1:], omega)
        q_dot = 0.5 * jnp.concatenate([scalar[None], vector])
        return q_dot, inverse @ (tau - jnp.cross(omega, inertia @ omega))

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Tsit5(),
        0.0,
        DT * steps,
        DT,
        (start.q, start.omega),
        gains,
        stepsize_controller=diffrax.ConstantStepSize(),
        adjoint=diffrax.RecursiveCheckpointAdjoint(),
        max_steps=steps + 8,
    )
    assert solution.ys is not None
    return jq.State(*jax.tree.map(lambda x: x[-1], solution.ys))


ENGINES: dict[str, tuple[Callable, bool]] = {  # and whether forward mode is there
    'rkmk4, "none"': (partial(library, checkpoint="none"), True),
    'rkmk4, "sqrt"': (partial(library, checkpoint="sqrt"), False),
    "scan by hand": (partial(by_hand, product=product_by_hand, exp=exp_by_hand), True),
    "scan with jaxlie": (partial(by_hand, product=product_by_jaxlie, exp=exp_by_jaxlie), True),
    "diffrax Tsit5": (by_diffrax, False),
}


# The measurement.


def random_starts(bodies, dtype):
    """Draw random attitudes and rates."""
    turn, spin = jax.random.split(jax.random.key(0))
    q = jq.quaternion.random(turn, (bodies,), dtype=dtype)
    return jq.State(q, jax.random.normal(spin, (bodies, 3), dtype))


def mean_square(ends):
    """Return the loss of the last states: squares of q[1:] and of omega, their means."""
    return jnp.mean(ends.q[:, 1:] ** 2) + jnp.mean(ends.omega**2)


def measured(function, *arguments):
    """Return the best of five [ms], seconds to compile, and megabytes of temporaries."""
    begin = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    seconds, best = time.perf_counter() - begin, float("inf")
    jax.block_until_ready(compiled(*arguments))
    for _ in range(5):
        begin = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        best = min(best, time.perf_counter() - begin)
    memory = compiled.memory_analysis()
    return 1e3 * best, seconds, memory.temp_size_in_bytes / 1e6 if memory else float("nan")


def table(bodies, dtype, steps):
    """Print one table."""
    starts, gains = random_starts(bodies, dtype), jnp.asarray([6.0, 4.0], dtype)
    print(f"\n{bodies} bodies, {steps} steps, {dtype}\n")
    print("| engine | forward ms | ratio | reverse ms | ratio", end="")
    print(" | compile s | temporaries MB | forward mode ms |")
    print("|---|---|---|---|---|---|---|---|")
    first = None
    for name, (engine, jacfwd) in ENGINES.items():

        def loss(gains, starts, engine=engine):
            return mean_square(jax.vmap(lambda start: engine(start, gains, steps=steps))(starts))

        forward, _, _ = measured(loss, gains, starts)
        reverse, seconds, megabytes = measured(jax.value_and_grad(loss), gains, starts)
        tangent = f"{measured(jax.jacfwd(loss), gains, starts)[0]:.2f}" if jacfwd else ""
        first = first or (forward, reverse)
        times = f"{forward:.2f} | {forward / first[0]:.2f}"
        times += f" | {reverse:.1f} | {reverse / first[1]:.2f}"
        print(f"| {name} | {times} | {seconds:.1f} | {megabytes:.1f} | {tangent} |", flush=True)


def main():
    """Print a table for every combination asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    dtypes = ["float32", "float64"]
    parser.add_argument("--bodies", type=int, nargs="+", default=[1, 64, 1024])
    parser.add_argument("--dtypes", nargs="+", default=dtypes, choices=dtypes)
    parser.add_argument("--steps", type=int, default=1024)
    options = parser.parse_args()
    for dtype in options.dtypes:
        with jax.enable_x64(dtype == "float64"):
            for bodies in options.bodies:
                table(bodies, dtype, options.steps)


if __name__ == "__main__":
    main()

"""Rollouts side by side in one run: this library, a ``lax.scan`` by hand of the same scheme (also with jaxlie), diffrax.

    python benchmarks/rollout.py [--bodies 1 64 1024] [--dtypes float32 float64] [--steps 1024]

For each: milliseconds of the forward pass, of value and gradient by the two gains (reverse mode, and forward mode where it is
there), seconds to compile the gradient, megabytes of its temporaries. Machines differ: read the ratios to the first row.
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
    """A quaternion law with two gains, on the shortest way."""
    side = jnp.where(state.q[0] < 0, -1.0, 1.0).astype(state.q.dtype)
    return -2.0 * gains[0] * side * state.q[1:] - gains[1] * state.omega


def library(start, gains, steps, checkpoint, engine="scan"):
    """``jq.rollout`` with rkmk4, the last state saved."""
    body = jq.Body(jnp.asarray(INERTIA, start.q.dtype))
    grid = jq.grid(0.0, DT, steps)
    path = jq.rollout(
        jq.rkmk4,
        body,
        torque,
        start,
        grid,
        gains,
        save_every=steps,
        checkpoint=checkpoint,
        engine=engine,
    )
    return jax.tree.map(lambda x: x[-1], path.state)


def product_by_hand(p, q):
    """Hamilton's product."""
    return jnp.concatenate(
        [
            (p[0] * q[0] - jnp.dot(p[1:], q[1:]))[None],
            p[0] * q[1:] + q[0] * p[1:] + jnp.cross(p[1:], q[1:]),
        ]
    )


def exp_by_hand(u):
    """Truncated series that hold for small angles only."""
    s = jnp.dot(u, u) / 4
    cos = 1 - s / 2 * (1 - s / 12 * (1 - s / 30 * (1 - s / 56 * (1 - s / 90))))
    sinc = 1 - s / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72 * (1 - s / 110))))
    return jnp.concatenate([cos[None], 0.5 * sinc * u])


def product_by_jaxlie(p, q):
    """The same product."""
    return (jaxlie.SO3(p) @ jaxlie.SO3(q)).wxyz


def exp_by_jaxlie(u):
    """Any angle."""
    return jaxlie.SO3.exp(u).wxyz


def by_hand(start, gains, steps, product, exp):
    """The same scheme as a user would write it, no checks."""
    inertia = jnp.asarray(INERTIA, start.q.dtype)
    inverse = jnp.linalg.inv(inertia)

    def dexpinv(u, v):
        s, once = jnp.dot(u, u), jnp.cross(u, v)
        return (
            v
            + 0.5 * once
            + (1 / 12 + s / 720 + s * s / 30240 + s * s * s / 1209600) * jnp.cross(u, once)
        )

    def acceleration(q, omega):
        return inverse @ (
            torque(0.0, jq.State(q, omega), gains) - jnp.cross(omega, inertia @ omega)
        )

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
    """Tsit5 with constant steps on the pair (q, omega), off the sphere; the default adjoint."""
    inertia = jnp.asarray(INERTIA, start.q.dtype)
    inverse = jnp.linalg.inv(inertia)

    def field(t, state, gains):
        q, omega = state
        q_dot = 0.5 * jnp.concatenate(
            [-jnp.sum(q[1:] * omega)[None], q[0] * omega + jnp.cross(q[1:], omega)]
        )
        return q_dot, inverse @ (
            torque(t, jq.State(q, omega), gains) - jnp.cross(omega, inertia @ omega)
        )

    controller = diffrax.ConstantStepSize()
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, DT * steps, DT, (start.q, start.omega), gains,
        stepsize_controller=controller, adjoint=diffrax.RecursiveCheckpointAdjoint(), max_steps=steps + 8,
    )  # fmt: skip
    assert solution.ys is not None
    return jq.State(*jax.tree.map(lambda x: x[-1], solution.ys))


ENGINES: dict[str, tuple[Callable, bool]] = {
    'rkmk4, "none"': (partial(library, checkpoint="none"), True),
    'rkmk4, "sqrt"': (partial(library, checkpoint="sqrt"), False),
    "scan by hand": (partial(by_hand, product=product_by_hand, exp=exp_by_hand), True),
    "scan with jaxlie": (partial(by_hand, product=product_by_jaxlie, exp=exp_by_jaxlie), True),
    "diffrax Tsit5": (by_diffrax, False),
}


def measured(function, *arguments):
    """Best of five [ms], seconds to compile, megabytes of temporaries."""
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
    turn, spin = jax.random.split(jax.random.key(0))
    starts = jq.State(
        jq.quaternion.random(turn, (bodies,), dtype=dtype),
        jax.random.normal(spin, (bodies, 3), dtype),
    )
    gains = jnp.asarray([6.0, 4.0], dtype)
    print(f"\n{bodies} bodies, {steps} steps, {dtype}\n")
    print(
        "| engine | forward ms | ratio | reverse ms | ratio | compile s | temporaries MB | forward mode ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    first = None
    for name, (engine, jacfwd) in ENGINES.items():

        def loss(gains, starts, engine=engine):
            ends = jax.vmap(lambda start: engine(start, gains, steps=steps))(starts)
            return jnp.mean(ends.q[:, 1:] ** 2) + jnp.mean(ends.omega**2)

        forward, _, _ = measured(loss, gains, starts)
        reverse, seconds, megabytes = measured(jax.value_and_grad(loss), gains, starts)
        tangent = f"{measured(jax.jacfwd(loss), gains, starts)[0]:.2f}" if jacfwd else ""
        first = first or (forward, reverse)
        cells = [
            f"{forward:.2f}",
            f"{forward / first[0]:.2f}",
            f"{reverse:.1f}",
            f"{reverse / first[1]:.2f}",
        ]
        print(
            "|",
            " | ".join([name, *cells, f"{seconds:.1f}", f"{megabytes:.1f}", tangent]),
            "|",
            flush=True,
        )


def main():
    """Every combination asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bodies", type=int, nargs="+", default=[1, 64, 1024])
    parser.add_argument(
        "--dtypes", nargs="+", default=["float32", "float64"], choices=["float32", "float64"]
    )
    parser.add_argument("--steps", type=int, default=1024)
    options = parser.parse_args()
    for dtype in options.dtypes:
        with jax.enable_x64(dtype == "float64"):
            for bodies in options.bodies:
                table(bodies, dtype, options.steps)


if __name__ == "__main__":
    main()

"""Compare forward with reverse mode for the gradient of a fit.

    python benchmarks/fit_mode.py

It is the evidence for ``FORWARD_LIMIT`` in jaxquat/fitting/descent.py. 64 bodies make 200 steps of
rkmk4; the loss is the mean final error as a function of P gains. The table has the times of value
and gradient in both modes, as multiples of the simulation alone in the same run, and the times to
compile.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

import jaxquat as jq
from jaxquat.fitting.differentiation import forward_value_and_grad

BODIES, STEPS = 64, 200
LEVEL = jnp.array([1.0, 0, 0, 0])


def law(t: Array, state: jq.State, gains: Array) -> Array:
    """Return a torque with six gains, given by their logarithms."""
    return -jnp.exp(gains[:3]) * state.q[0] * state.q[1:] - jnp.exp(gains[3:]) * state.omega


def loss(params: Array) -> Array:
    """Return the mean squared final angle; the six gains are sums of P parameters."""
    gains = jnp.resize(params, (6,)) if params.size < 6 else params.reshape(-1, 6).sum(axis=0)
    body = jq.Body.from_principal(jnp.array([0.6, 1.0, 1.5]))

    def one(q: Array, omega: Array) -> Array:
        start, grid = jq.State(q, omega), jq.grid(0.0, 0.05, STEPS, save_every=STEPS)
        options = jq.RolloutOptions(engine="scan")
        path = jq.rollout(jq.rkmk4, body, law, start, grid, gains, options=options)
        return jq.quaternion.squared_distance(path.final.q, LEVEL)

    turn, spin = jax.random.split(jax.random.key(0))
    attitudes, rates = jq.quaternion.random(turn, (BODIES,)), jax.random.normal(spin, (BODIES, 3))
    return jnp.mean(jax.vmap(one)(attitudes, rates))


def clock(function: Callable[[Array], Any], params: Array) -> tuple[float, float]:
    """Return the seconds of a call, the best of seven, and the seconds to compile."""
    began = time.perf_counter()
    compiled = jax.jit(function).lower(params).compile()
    compile_time, times = time.perf_counter() - began, []
    for _ in range(7):
        began = time.perf_counter()
        jax.block_until_ready(compiled(params))
        times.append(time.perf_counter() - began)
    return min(times), compile_time


def main() -> None:
    """Print the table."""
    print("             simulation   forward   reverse   reverse/   compile [s]")
    print("parameters         [ms]      mode      mode    forward   forward   reverse")
    for size in (2, 6, 12, 24, 48):
        params = 0.1 * jnp.ones(size)
        plain, _ = clock(loss, params)
        forward, compile_forward = clock(forward_value_and_grad(loss), params)
        reverse, compile_reverse = clock(jax.value_and_grad(loss), params)
        multiples = f"{forward / plain:9.1f} {reverse / plain:9.1f} {reverse / forward:10.1f}"
        compiling = f"{compile_forward:9.1f} {compile_reverse:9.1f}"
        print(f"{size:10d} {1e3 * plain:12.2f} {multiples} {compiling}", flush=True)


if __name__ == "__main__":
    main()

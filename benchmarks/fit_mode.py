"""Forward against reverse mode for the gradient of a fit: the evidence for ``descent.FORWARD_LIMIT``.

64 bodies, 200 steps of rkmk4, the mean final error as a function of P gains; time of value and gradient in both modes, as multiples
of the simulation alone in the same run, and the compile times.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

import jaxquat as jq
from jaxquat.learning.differentiation import forward_value_and_grad

BODIES, STEPS = 64, 200


def loss(params: Array) -> Array:
    """A torque law whose six gains are sums of P parameters."""
    gains = jnp.resize(params, (6,)) if params.size < 6 else params.reshape(-1, 6).sum(axis=0)

    def torque(t: Array, state: jq.State, gains: Array) -> Array:
        return -jnp.exp(gains[:3]) * state.q[0] * state.q[1:] - jnp.exp(gains[3:]) * state.omega

    def one(q: Array, omega: Array) -> Array:
        body = jq.Body.from_principal(jnp.array([0.6, 1.0, 1.5]))
        path = jq.rollout(
            jq.rkmk4,
            body,
            torque,
            jq.State(q, omega),
            jq.grid(0.0, 0.05, STEPS),
            gains,
            save_every=STEPS,
        )
        return jq.quaternion.squared_distance(path.state.q[-1], jnp.array([1.0, 0, 0, 0]))

    turn, spin = jax.random.split(jax.random.key(0))
    return jnp.mean(
        jax.vmap(one)(jq.quaternion.random(turn, (BODIES,)), jax.random.normal(spin, (BODIES, 3)))
    )


def clock(function: Callable[[Array], Any], params: Array) -> tuple[float, float]:
    """(seconds of a call, the best of seven; seconds to compile)."""
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
    print(
        "parameters   simulation [ms]   forward mode   reverse mode   reverse/forward   compile forward, reverse [s]"
    )
    for size in (2, 6, 12, 24, 48):
        params = 0.1 * jnp.ones(size)
        plain, _ = clock(loss, params)
        forward, compile_forward = clock(forward_value_and_grad(loss), params)
        reverse, compile_reverse = clock(jax.value_and_grad(loss), params)
        print(
            f"{size:10d} {1e3 * plain:17.2f} {forward / plain:14.1f} {reverse / plain:14.1f} {reverse / forward:17.1f}"
            f" {compile_forward:20.1f} {compile_reverse:8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

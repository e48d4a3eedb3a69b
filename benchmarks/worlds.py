"""Steps per second of many worlds that restart where an episode ends, in both engines.

    python benchmarks/worlds.py [--worlds 1024] [--steps 1000] [--rounds 10]

Each world is a body under a control law (rkmk2, float32). An episode ends where the body is nearly
at rest. The next begins at a fixed state, or at one that is drawn from the key of the world.
"""

import argparse
import time

import jax
import jax.numpy as jnp

import jaxquat as jq
from jaxquat.schemes import Episode, restart

BODY = jq.Body.from_principal(jnp.array([2.0, 3.0, 4.0]))  # kg m^2


def torque(t, state, key):
    """Return the torque of a spring and a damper."""
    return -0.5 * jq.quaternion.log(state.q) - 0.7 * state.omega


def at_rest(t, state, key):
    """Tell whether the body is slower than 0.14 rad/s."""
    return jnp.sum(state.omega**2) < 0.02


def fixed(t, state, key):
    """Return the same state for each episode."""
    return state._replace(q=jnp.array([1.0, 0, 0, 0]), omega=jnp.array([0.5, -0.3, 0.2]))


def drawn(t, state, key):
    """Return a state that is drawn for each episode."""
    key = jax.random.fold_in(key, state.aux.number.astype(jnp.uint32))
    attitude, rate = jax.random.normal(key, (2, 3))
    return state._replace(q=jq.quaternion.exp(attitude), omega=0.3 * rate)


def flight(fresh, engine, steps):
    """Return the last states of many worlds as a function of their keys, compiled."""
    scheme = jq.rkmk2 if fresh is None else restart(jq.rkmk2, at_rest, fresh)

    def fly(key):
        start = drawn(0.0, jq.State(jnp.zeros(4), jnp.zeros(3), Episode(jnp.zeros(()))), key)
        start = start._replace(aux=()) if fresh is None else start
        grid = jq.grid(0.0, 0.02, steps, save_every=steps)
        options = jq.RolloutOptions(engine=engine)
        return jq.rollout(scheme, BODY, torque, start, grid, key, options=options).final

    return jax.jit(jax.vmap(fly))


def main():
    """Print the table; the runs of all rows alternate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--worlds", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    keys = jax.random.split(jax.random.key(0), options.worlds)
    restarts = {"none": None, "fixed": fixed, "drawn": drawn}
    flights = {
        (name, engine): flight(fresh, engine, options.steps)
        for name, fresh in restarts.items()
        for engine in ("fused", "scan")
    }
    finals = {place: jax.block_until_ready(fly(keys)) for place, fly in flights.items()}
    seconds = dict.fromkeys(flights, float("inf"))
    for _ in range(options.rounds):
        for place, fly in flights.items():
            began = time.perf_counter()
            jax.block_until_ready(fly(keys))
            seconds[place] = min(seconds[place], time.perf_counter() - began)
    print("| restarts | kernel [M steps/s] | scan [M steps/s] | ratio | episodes |")
    print("|---|---|---|---|---|")
    for name, fresh in restarts.items():
        kernel, scan = (
            options.worlds * options.steps / 1e6 / seconds[name, engine]
            for engine in ("fused", "scan")
        )
        number = 0.0 if fresh is None else float(finals[name, "fused"].aux.number.mean())
        print(f"| {name} | {kernel:.1f} | {scan:.1f} | {kernel / scan:.1f} | {number + 1:.1f} |")


if __name__ == "__main__":
    main()

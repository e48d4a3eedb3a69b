"""Steps per second of many worlds that restart where an episode ends, in both engines.

    python benchmarks/worlds.py [--worlds 1024] [--steps 1000]

Each world is a body under a control law (rkmk2, float32). An episode ends where the body is nearly
at rest. The next begins at a fixed state, or at one that is drawn from the key of the world.
"""

import argparse

import jax
import jax.numpy as jnp
from timing import best

import jaxquat as jq
from jaxquat.schemes import Episode, restarted

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


def main():
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--worlds", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()
    grid, keys = (
        jq.grid(0.0, 0.02, options.steps),
        jax.random.split(jax.random.key(0), options.worlds),
    )
    total = options.worlds * options.steps / 1e6
    print("| restarts | kernel [M steps/s] | scan [M steps/s] | ratio | episodes |")
    print("|---|---|---|---|---|")
    for name, fresh in (("none", None), ("fixed", fixed), ("drawn", drawn)):
        scheme = jq.rkmk2 if fresh is None else restarted(jq.rkmk2, at_rest, fresh)

        def fly(key, engine, scheme=scheme):
            start = jq.State(jnp.zeros(4), jnp.zeros(3), Episode(jnp.zeros(())))
            start = drawn(0.0, start, key)
            start = start if scheme is not jq.rkmk2 else start._replace(aux=())
            return jq.rollout(
                scheme, BODY, torque, start, grid, key, save_every=options.steps, engine=engine
            ).final

        flights = [
            jax.jit(jax.vmap(lambda key, e=engine, fly=fly: fly(key, e)))
            for engine in ("fused", "scan")
        ]
        kernel, scan = (total / best(flight, keys) for flight in flights)
        aux = flights[0](keys).aux
        episodes = 1.0 if fresh is None else 1.0 + float(aux.number.mean())
        print(f"| {name} | {kernel:.1f} | {scan:.1f} | {kernel / scan:.1f} | {episodes:.1f} |")


if __name__ == "__main__":
    main()

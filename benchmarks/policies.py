"""Measure how gradients through a closed loop depend on the horizon, and what helps to train.

    python benchmarks/policies.py [--tables gradients training]

The quadrotor and the policy are those of examples/train_policy.py. The first table has the gradient
of the mean cost of one flight from a random start, by all weights, for horizons of 0.25 to 5 s,
with the first weights and with trained ones: the root mean square norm over 1024 flights, their
median norm, the largest, and the part of the mean square that the mean gradient has,
|E g|^2 / E |g|^2, estimated without bias. Its inverse is about the number of flights whose mean has
as much signal as noise. Flights whose gradient overflows are counted, and left out.

The second table has what trainings reach in 600 updates with different windows, each update of 64 s
of flight: the longer the window, the fewer the worlds.
"""

import argparse
import importlib.util
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

FILE = Path(__file__).parents[1] / "examples" / "train_policy.py"
SPEC = importlib.util.spec_from_file_location("train_policy", FILE)
assert SPEC is not None
assert SPEC.loader is not None
example: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)

FLIGHTS = 1024
KEYS = jax.random.split(jax.random.key(5, impl="rbg"), 4)


def norms(weights, flights, noise):
    """Return the norm of each flight's gradient, and the square of the norm of their mean.

    The mean leaves out the flights whose gradient overflows.
    """

    def one(flight, noise):
        value = lambda weights: jnp.mean(example.fly(weights, flight, noise, example.cost).saved)  # noqa: E731
        return jax.grad(value)(weights)

    slopes = jax.tree.leaves(jax.vmap(one)(flights, noise))
    slopes = jnp.concatenate([x.reshape(FLIGHTS, -1) for x in slopes], axis=1)
    square = jnp.sum(slopes**2, axis=1)
    finite = jnp.isfinite(square)
    mean = jnp.sum(jnp.where(finite[:, None], slopes, 0.0), axis=0) / jnp.sum(finite)
    return jnp.sqrt(square), jnp.sum(mean**2)


def trained(window=example.WINDOW, ended=0.25, clip=1.0, updates=600, peak=1e-2):
    """Return weights trained with this window [samples], and processor time but for compiling."""
    example.WINDOW, example.WORLDS, example.ENDED = window, 6400 // window, ended
    example.ADAM = optax.chain(optax.clip_by_global_norm(clip), optax.scale_by_adam(b2=0.95))
    example.improve.clear_cache()
    weights, flights = example.random_weights(0), example.random_flights(KEYS[0], example.WORLDS)
    moments, began = example.ADAM.init(weights), 0.0
    for k in range(updates):
        rate = peak * (0.5 + 0.5 * np.cos(np.pi * k / updates))
        key = jax.random.fold_in(KEYS[1], k)
        weights, moments, flights, _ = jax.block_until_ready(
            example.improve(weights, moments, flights, key, rate)
        )
        began = began or time.process_time()
    return weights, time.process_time() - began


def held(weights):
    """Return the per cent of 1024 new bodies that a policy holds."""
    flights = example.random_flights(KEYS[2], 1024)
    _, distance, angle = example.judge(weights, flights, KEYS[3])
    ok = np.all((distance[:, 400:] < 0.2) & (angle[:, 400:] < 10.0), axis=1)
    return 100 * np.mean(ok)


def gradients():
    """Print the table of horizons."""
    flights, both = example.random_flights(KEYS[2], FLIGHTS), {"first": example.random_weights(0)}
    both["trained"], _ = trained()
    print(
        f"\nGradients of {FLIGHTS} flights; the trained policy holds {held(both['trained']):.1f} %"
    )
    print("| horizon s | weights | rms norm | median norm | largest norm | signal | overflows |")
    print("|---|---|---|---|---|---|---|")
    for steps in (25, 50, 100, 200, 500):
        noise = jax.random.normal(KEYS[3], (FLIGHTS, steps, 12))
        program = jax.jit(partial(norms, flights=flights, noise=noise))
        for name, weights in both.items():
            each, mean = map(np.asarray, program(weights))
            each = each[np.isfinite(each)]
            n, square = len(each), np.mean(each**2, dtype=np.float64)
            # The square of a mean of n flights has the n-th part of the variance in it.
            signal = (n * mean / square - 1) / (n - 1)
            numbers = (square**0.5, np.median(each), np.max(each))
            cells = (f"{steps * example.DT:g}", name, *(f"{x:.2g}" for x in numbers))
            cells = (*cells, f"{signal:.1g}" if signal > 1 / n else f"< {1 / n:.1g}", FLIGHTS - n)
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def training():
    """Print the table of trainings."""
    print("\n600 updates of 64 s of flight each")
    print("| window s | worlds | restarts after a window | norm clipped at | held % | cpu s |")
    print("|---|---|---|---|---|---|")
    # Flights last 4 s on average, except in the row without restarts.
    rows = [(window, window / 400, 1.0) for window in (25, 50, 100, 200, 400)]
    for window, ended, clip in [*rows, (100, 0.0, 1.0), (100, 0.25, 1e9)]:
        weights, seconds = trained(window, ended, clip)
        cells = (f"{window * example.DT:g}", 6400 // window, f"{ended:.2g}", f"{clip:g}")
        cells = (*cells, f"{held(weights):.1f}", f"{seconds:.0f}")
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = {"gradients": gradients, "training": training}
    parser.add_argument("--tables", nargs="+", choices=tables, default=list(tables))
    for name in parser.parse_args().tables:
        tables[name]()


if __name__ == "__main__":
    main()

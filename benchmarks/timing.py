"""How long a compiled function takes."""

import time

import jax


def best(function, *arguments):
    """Return the seconds of a call, the best of three."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(3):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - began)
    return min(times)

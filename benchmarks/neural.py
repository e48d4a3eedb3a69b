"""A neural torque for the benchmarks, and how long rollouts under it take by each engine.

    python benchmarks/neural.py [--engine auto] [--layers 1 2 3] [--widths 16 ...] [--bodies 1 ...]

``torque`` has two hidden layers of tanh on attitude and rate. The table is for networks of one to
three such layers, written as ``W @ x`` or, as flax does, ``x @ W``. Its cells are the time of an
engine over that of ``engine="scan"``, of the value, of a derivative in forward mode and of the
gradient by all weights. The runs of the two alternate, and a cell is the ratio of the fastest.
"the scan" is where both lower to the same program, letter by letter.
"""

import argparse
import functools
import itertools
import time

import jax
import jax.numpy as jnp

import jaxquat as jq

STEPS, RUNS = 50, 7
BODY = jq.Body.from_principal(jnp.array([1.0, 2.0, 2.5]))


def torque(t, state, params):
    """Return the last layer's three numbers, a torque [N m]."""
    x = jnp.concatenate([state.q, state.omega])
    for weight, bias in params[:-1]:
        x = jnp.tanh(weight @ x + bias)
    return params[-1][0] @ x + params[-1][1]


def transposed(t, state, params):
    """The same torque of transposed weights."""
    x = jnp.concatenate([state.q, state.omega])
    for weight, bias in params[:-1]:
        x = jnp.tanh(x @ weight + bias)
    return x @ params[-1][0] + params[-1][1]


def weights(width, layers=2):
    """Return random weights and zero biases of hidden layers of this width."""
    sizes = [(width, 7), *[(width, width)] * (layers - 1), (3, width)]
    keys = jax.random.split(jax.random.key(1), len(sizes))
    return [
        (1.2 / width**0.5 * jax.random.normal(key, size), jnp.zeros(size[0]))
        for key, size in zip(keys, sizes, strict=True)
    ]


ORDERS = {"W @ x": torque, "x @ W": transposed}


def loss(function, starts, engine, params):
    """Return the mean square of the last rates."""

    def final(start):
        grid = jq.grid(0.0, 0.02, STEPS, save_every=STEPS)
        options = jq.RolloutOptions(engine=engine)
        path = jq.rollout(jq.rkmk4, BODY, function, start, grid, params, options=options)
        return path.final.omega

    return jnp.mean((final(starts) if starts.q.ndim == 1 else jax.vmap(final)(starts)) ** 2)


def pushed(loss, params):
    """Return the derivative of a loss along a direction in all weights."""
    return jax.jvp(loss, (params,), (jax.tree.map(jnp.ones_like, params),))[1]


MODES = {
    "value": lambda loss, params: loss(params),
    "forward": pushed,
    "gradient": lambda loss, params: jax.grad(loss)(params),
}


def row(engine, order, layers, width, bodies):
    """Return a cell for each mode, and one with the seconds that compiling the last takes."""
    params = weights(width, layers)
    if order == "x @ W":
        params = [(weight.T, bias) for weight, bias in params]
    starts = jq.State(jq.quaternion.random(jax.random.key(0), (bodies,)), jnp.ones((bodies, 3)))
    starts = jax.tree.map(lambda x: x[0], starts) if bodies == 1 else starts
    cells, compiling = [], [0.0, 0.0]
    for derivative in MODES.values():
        functions = [functools.partial(loss, ORDERS[order], starts, k) for k in (engine, "scan")]
        lowered, runs, compiling = [], [], []
        for function in functions:
            began = time.perf_counter()
            lowered.append(jax.jit(functools.partial(derivative, function)).lower(params))
            compiling.append(time.perf_counter() - began)
        if lowered[0].as_text() == lowered[1].as_text():
            cells.append("the scan")
            continue
        for k in (0, 1):
            began = time.perf_counter()
            runs.append(lowered[k].compile())
            compiling[k] += time.perf_counter() - began
        fastest = [float("inf")] * 2
        for _, k in itertools.product(range(RUNS), (0, 1)):
            began = time.perf_counter()
            jax.block_until_ready(runs[k](params))
            fastest[k] = min(fastest[k], time.perf_counter() - began)
        cells.append(f"{fastest[0] / fastest[1]:.2f} ({1e3 * fastest[0]:.2g} ms)")
    if cells[-1] == "the scan":
        return [*cells, ""]
    return [*cells, f"{compiling[0]:.1f} s, scan {compiling[1]:.1f} s"]


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", default="auto", choices=("auto", "fused"))
    parser.add_argument("--layers", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--widths", nargs="*", type=int, default=[16, 32, 64, 128, 256, 512])
    parser.add_argument("--bodies", nargs="*", type=int, default=[1, 64, 1024])
    parser.add_argument("--orders", nargs="*", default=list(ORDERS), choices=ORDERS)
    options = parser.parse_args()
    print(f"| layers | order | bodies | {' | '.join(MODES)} | compiling the gradient |")
    print("|---|---|---|" + "---|" * (len(MODES) + 1))
    for layers, width, order, bodies in itertools.product(
        options.layers, options.widths, options.orders, options.bodies
    ):
        cells = row(options.engine, order, layers, width, bodies)
        print(f"| {layers} x {width} | `{order}` | {bodies} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""Step 4096 bodies from PyTorch and from JAX: the table of docs/migration.md.

    pip install torch
    python benchmarks/torch_world.py [--bodies 4096] [--write]

The world is the code of that page. A policy is a network with two layers of 64; "gradient" is that
of the mean square rate after 10 steps with respect to the weights. PyTorch has one thread: others
would wait for work on the cores that JAX uses. The two programs run in turn;
times are medians, and the ratio is the median of neighbouring runs.
"""

import argparse
import re
import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import torch  # pyright: ignore[reportMissingImports]
from pages import put

PAGE = Path(__file__).parents[1] / "docs" / "migration.md"
STEPS, ROUNDS = 10, 15


def world():
    """Run the code of the page, and return its names."""
    names = {}
    exec(
        re.findall(r'```python title="torch_world.py"\n(.*?)```', PAGE.read_text(), re.S)[0], names
    )
    return names


def programs(bodies):
    """Return pairs of functions without arguments: the same work from PyTorch and from JAX."""
    names = world()
    step, advance = names["step"], names["advance"]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(7, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh()]
    policy = torch.nn.Sequential(*layers, torch.nn.Linear(64, 3))
    q, omega = torch.zeros(bodies, 4), torch.randn(bodies, 3)
    q[:, 0] = 1.0
    command = 0.1 * torch.randn(bodies, 3)
    weights = [jnp.asarray(w.detach().numpy()) for w in policy.parameters()]
    arrays = [jnp.asarray(x.numpy()) for x in (q, omega, command)]

    def acted(weights, x):
        for k in (0, 2):
            x = jnp.tanh(x @ weights[k].T + weights[k + 1])
        return x @ weights[4].T + weights[5]

    @jax.jit
    def flown(weights, q, omega):
        def one(state, _):
            command = acted(weights, jnp.concatenate(state, axis=1))
            return advance(*state, command), None

        return jax.lax.scan(one, (q, omega), length=STEPS)[0]

    def loss(weights, q, omega):
        return jnp.mean(flown(weights, q, omega)[1] ** 2)

    slope = jax.jit(jax.grad(loss))

    def loop(q, omega):
        for _ in range(STEPS):
            q, omega = step(q, omega, policy(torch.cat((q, omega), dim=1)))
        return q, omega

    def without_gradient():
        with torch.no_grad():
            return loop(q, omega)

    def gradient():
        policy.zero_grad()
        torch.mean(loop(q, omega)[1] ** 2).backward()
        return [w.grad for w in policy.parameters()]

    return {
        "one step": (lambda: step(q, omega, command), lambda: advance(*arrays)),
        "10 steps with a policy": (without_gradient, lambda: flown(weights, *arrays[:2])),
        "and their gradient": (gradient, lambda: slope(weights, *arrays[:2])),
    }


def milliseconds(call):
    """Return the time of a call."""
    began = time.perf_counter()
    jax.block_until_ready([x for x in jax.tree.leaves(call()) if isinstance(x, jax.Array)])
    return 1e3 * (time.perf_counter() - began)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bodies", type=int, default=4096)
    parser.add_argument("--write", action="store_true", help="put the table into docs/migration.md")
    arguments = parser.parse_args()
    lines = ["| work | from PyTorch [ms] | from JAX [ms] | ratio |", "|---|---:|---:|---:|"]
    for name, pair in programs(arguments.bodies).items():
        for call in pair:
            list(map(milliseconds, (call, call)))
        runs = [tuple(map(milliseconds, pair)) for _ in range(ROUNDS)]
        ours, theirs = (statistics.median(column) for column in zip(*runs, strict=True))
        ratio = statistics.median(a / b for a, b in runs)
        lines.append(f"| {name} | {ours:.2f} | {theirs:.2f} | {ratio:.2f} |")
        print(lines[-1], flush=True)
    versions = f"With torch {torch.__version__} and jax {jax.__version__}."
    if arguments.write:
        put(PAGE, "<!-- torch -->", "<!-- end of torch -->", "\n".join([*lines, "", versions]))


if __name__ == "__main__":
    main()

"""Everything that needs a GPU, in under eight minutes: correctness, throughput, the ratio to the floor; a table and a JSON file.

    python benchmarks/gpu.py [--out docs/benchmarks/gpu.json] [--bodies 1000 10000 ...] [--steps 1000]

The closed loop of benchmarks/rollout.py (rkmk4, two gains) in float32, forward and value and gradient: the fused engine, the
vmapped scan (its gradient up to the N that fits), diffrax. The floor is the larger of the operations over the float32 rate and
the bytes over the memory bandwidth of the device, as given by --teraflops and --terabytes.
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import rollout as peers

import jaxquat as jq
from jaxquat.engines.fused import engine
from jaxquat.engines.scan import Problem

LIMIT = 420.0  # seconds, after which nothing new begins


def starts_of(bodies, dtype):
    """Random attitudes and rates."""
    turn, spin = jax.random.split(jax.random.key(0))
    return jq.State(
        jq.quaternion.random(turn, (bodies,), dtype=dtype),
        jax.random.normal(spin, (bodies, 3), dtype),
    )


def loss_of(run):
    """Of the gains."""

    def loss(gains, starts):
        ends = jax.vmap(lambda start: run(start, gains))(starts)
        return jnp.mean(ends.q[:, 1:] ** 2) + jnp.mean(ends.omega**2)

    return loss


def correctness(steps):
    """Largest relative differences of the fused from the scan engine, values and gradient, for a few schemes and precisions."""
    found = {}
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            starts, gains = starts_of(1000, dtype), jnp.asarray([6.0, 4.0], dtype)
            for name in ("rkmk4", "zhao", "rkmk6", "formulation1"):
                step, body = jq.SCHEMES[name], jq.Body(jnp.asarray(peers.INERTIA, dtype))

                def run(start, gains, engine, step=step, body=body):
                    path = jq.rollout(
                        step,
                        body,
                        peers.torque,
                        start,
                        jq.grid(0.0, peers.DT, steps),
                        gains,
                        save_every=steps,
                        engine=engine,
                    )
                    return jax.tree.map(lambda x: x[-1], path.state)

                values, slopes = {}, {}
                for chosen in ("scan", "fused"):
                    of = partial(run, engine=chosen)
                    values[chosen] = jax.jit(
                        lambda gains, starts, of=of: jax.vmap(lambda s: of(s, gains))(starts)
                    )(gains, starts)
                    slopes[chosen] = jax.jit(jax.grad(loss_of(of)))(gains, starts)
                pairs = zip(
                    jax.tree.leaves(values["fused"]), jax.tree.leaves(values["scan"]), strict=True
                )
                found[f"{name}, {dtype}"] = {
                    "value": max(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in pairs),
                    "gradient": float(
                        jnp.abs(slopes["fused"] - slopes["scan"]).max()
                        / jnp.abs(slopes["scan"]).max()
                    ),
                }
    return found


def best(function, *arguments):
    """Seconds, of three."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(3):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - began)
    return min(times)


def operations():
    """Scalar operations of one step and of its derivative, a division or a root as one."""
    body, dtype = jq.Body(jnp.asarray(peers.INERTIA, jnp.float32)), jnp.float32
    zero, dt = jnp.zeros((), dtype), jnp.asarray(peers.DT, dtype)
    problem = Problem(jq.rkmk4, body, peers.torque, zero, dt, 1, jnp.ones(2, dtype), None)
    traced = engine.trace(
        problem, jq.State(jnp.array([1.0, 0, 0, 0]), jnp.ones(3)), None, 1, 1, None
    )
    back = traced.differentiated().step_back
    assert back is not None
    return sum(traced.loop.step.counts().values()), sum(back.counts().values())


def main():
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "docs" / "benchmarks" / "gpu.json"
    )
    parser.add_argument(
        "--bodies", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6, 10**7]
    )
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument(
        "--teraflops", type=float, default=67.0, help="float32 rate of the device (H200: 67)"
    )
    parser.add_argument(
        "--terabytes", type=float, default=4.8, help="memory bandwidth per second (H200: 4.8)"
    )
    options = parser.parse_args()
    if jax.default_backend() != "gpu":
        raise SystemExit(f"wanted a GPU, got {jax.default_backend()}")
    began, steps = time.perf_counter(), options.steps
    found = {
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "steps": steps,
        "correctness": correctness(200),
    }
    for name, errors in found["correctness"].items():
        print(
            f"{name}: values {errors['value']:.1e}, gradient {errors['gradient']:.1e}", flush=True
        )
    ahead, back = operations()
    engines = {
        "fused": partial(peers.library, steps=steps, checkpoint="none", engine="fused"),
        "scan": partial(peers.library, steps=steps, checkpoint="sqrt"),
        "diffrax Tsit5": partial(peers.by_diffrax, steps=steps),
    }
    print(
        "\n| bodies | engine | forward ms | M body-steps/s | of the floor | gradient ms | of the floor |"
    )
    print("|---|---|---|---|---|---|---|")
    found["rows"], gone = [], set()
    for bodies in options.bodies:
        starts, gains = starts_of(bodies, "float32"), jnp.asarray([6.0, 4.0], jnp.float32)
        for name, run in engines.items():
            if name in gone or time.perf_counter() - began > LIMIT:
                continue
            row = {"bodies": bodies, "engine": name}
            try:
                row["forward"] = best(
                    jax.jit(
                        lambda gains, starts, run=run: jax.vmap(lambda s: run(s, gains))(starts)
                    ),
                    gains,
                    starts,
                )
                row["gradient"] = best(jax.jit(jax.value_and_grad(loss_of(run))), gains, starts)
            except jax.errors.JaxRuntimeError as error:  # out of memory
                row["error"] = str(error).splitlines()[0]
                gone.add(name)
            floors = [
                max(
                    count * bodies * steps / options.teraflops / 1e12,
                    2 * 28 * bodies / options.terabytes / 1e12,
                )
                for count in (ahead, 2 * ahead + back)
            ]
            cells = [f"{bodies}", name]
            for kind, floor in zip(("forward", "gradient"), floors, strict=True):
                seconds = row.get(kind, np.nan)
                cells += [f"{1e3 * seconds:.2f}"] + (
                    [f"{bodies * steps / seconds / 1e6:.0f}"] if kind == "forward" else []
                )
                cells.append(f"{floor / seconds:.2f}")
            print("|", " | ".join(cells), "|", flush=True)
            found["rows"].append(row)
            if row.get("forward", 0.0) > 20.0:
                gone.add(name)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

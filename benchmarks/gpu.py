"""Measure everything that needs a GPU, in under eight minutes.

    python benchmarks/gpu.py [--out docs/benchmarks/gpu.json] [--bodies 1024 16384 ...]
                             [--steps 1024] [--limit 300]
    python benchmarks/gpu.py --ahead

It prints a table and writes a JSON file: what the engine's check of itself says, correctness,
throughput, and the ratio to the floor.

The problem is the closed loop of benchmarks/rollout.py (rkmk4, two gains) in float32, forward and
with value and gradient. The rivals are the fused engine, the vmapped scan (its gradient up to the
N that fits), and diffrax. The floor is the larger of two times: the operations over the float32
rate, and the bytes over the memory bandwidth. --teraflops and --terabytes give these of the device.

Where there is nvcc, it also times the loop by hand, limit.cu, with the same timer. With --ahead it
needs no GPU: it compiles the kernels of the fused engine, and the loop by hand, for an H200, prints
their registers, spills, and instructions a step of a body (examples/validation/ahead.py), and
predicts their times (gpu_ahead.py).
"""

import argparse
import json
import time
from functools import partial
from pathlib import Path

import gpu_ahead
import jax
import jax.numpy as jnp
import limit_cuda
import numpy as np
import rollout as peers
from timing import best

import jaxquat as jq
from examples.validation import ahead
from jaxquat.fused import engine, vouching
from jaxquat.simulation.engines import kernels
from jaxquat.simulation.simulation import checked_simulation

ROOT = Path(__file__).parents[1]
ENGINES = ("fused", "scan", "diffrax Tsit5")
SCHEMES = ("rkmk4", "zhao", "rkmk6", "formulation1")


def batch_of(run):
    """Return the last states of many bodies as a function of gains and starts."""
    return lambda gains, starts: jax.vmap(lambda start: run(start, gains))(starts)


def loss_of(run):
    """Return the loss of the last states as a function of gains and starts."""
    return lambda gains, starts: peers.mean_square(batch_of(run)(gains, starts))


# Correctness.


def correctness(schemes, steps):
    """Compare the fused with the scan engine for these schemes in both precisions.

    Returns:
        The largest relative differences of values and gradients.
    """
    differences = {}
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            for name in schemes:
                differences[f"{name}, {dtype}"] = compared(name, dtype, steps)
    return differences


def compared(name, dtype, steps):
    """Return the largest relative differences of value and gradient for one scheme."""
    starts, gains = peers.random_starts(1000, dtype), jnp.asarray([6.0, 4.0], dtype)
    scheme, body = jq.schemes.SCHEMES[name], jq.Body(jnp.asarray(peers.INERTIA, dtype))
    grid = jq.grid(0.0, peers.DT, steps, save_every=steps)

    def run(start, gains, engine):
        options = jq.RolloutOptions(engine=engine)
        return jq.rollout(scheme, body, peers.torque, start, grid, gains, options=options).final

    values, gradients = [], []
    for name_of_engine in ("fused", "scan"):
        by_engine = partial(run, engine=name_of_engine)
        values.append(jax.jit(batch_of(by_engine))(gains, starts))
        gradients.append(jax.jit(jax.grad(loss_of(by_engine)))(gains, starts))
    pairs = zip(*map(jax.tree.leaves, values), strict=True)
    return {
        "value": max(relative_difference(fused, scan) for fused, scan in pairs),
        "gradient": relative_difference(*gradients),
    }


def relative_difference(a, b):
    """Return the largest difference relative to the largest number of b."""
    return float(jnp.abs(a - b).max() / jnp.abs(b).max())


# Throughput.


def operations():
    """Count the scalar operations of one step and of its derivative; a root counts as one."""
    body, dtype = jq.Body(jnp.asarray(peers.INERTIA, jnp.float32)), jnp.float32
    start = jq.State(jnp.array([1.0, 0, 0, 0], dtype), jnp.ones(3, dtype))
    grid, gains = jq.grid(0.0, peers.DT, 1), jnp.ones(2, dtype)
    simulation = checked_simulation(jq.rkmk4, body, peers.torque, start, grid, gains)
    recurrence, _, _ = kernels.trace(simulation)
    back = recurrence.with_vjp().step_back
    assert back is not None
    return sum(recurrence.loop.step.counts().values()), sum(back.counts().values())


def floors(bodies, options):
    """Return the least seconds of the forward pass, and of value and gradient, on the device."""
    ahead, back = operations()
    moving = 2 * 28 * bodies / options.terabytes / 1e12  # 7 float32 numbers in, 7 out
    steps = bodies * options.steps / options.teraflops / 1e12
    return max(ahead * steps, moving), max((2 * ahead + back) * steps, moving)


def measured(run, starts, gains):
    """Return {"forward": seconds, "gradient": seconds}, or what there is and the "error"."""
    row = {}
    try:
        row["forward"] = best(jax.jit(batch_of(run)), gains, starts)
        row["gradient"] = best(jax.jit(jax.value_and_grad(loss_of(run))), gains, starts)
    except jax.errors.JaxRuntimeError as error:  # out of memory
        row["error"] = str(error).splitlines()[0]
    return row


def throughput(options, rows):
    """Measure every engine with every number of bodies, print the table, and append its rows.

    An engine gets no more bodies once it ran out of memory or took 20 seconds.
    """
    steps, began = options.steps, time.perf_counter()
    engines = {  # by the names in ENGINES
        "fused": partial(peers.library, steps=steps, checkpoint="none", engine="fused"),
        "scan": partial(peers.library, steps=steps, checkpoint="sqrt"),
        "diffrax Tsit5": partial(peers.by_diffrax, steps=steps),
    }
    print("\n| engine | bodies | forward ms | M body-steps/s | of the floor", end="")
    print(" | gradient ms | of the floor |\n|---|---|---|---|---|---|---|")
    for name in options.engines:
        for bodies in options.bodies:
            if time.perf_counter() - began > options.limit:
                return
            starts = peers.random_starts(bodies, "float32")
            row = measured(engines[name], starts, jnp.array([6.0, 4.0], jnp.float32))
            rows.append({"engine": name, "bodies": bodies, **row})
            least_forward, least_gradient = floors(bodies, options)
            forward, gradient = (row.get(kind, np.nan) for kind in ("forward", "gradient"))
            cells = f"{1e3 * forward:.2f} | {bodies * steps / forward / 1e6:.0f}"
            cells += f" | {least_forward / forward:.2f}"
            cells += f" | {1e3 * gradient:.2f} | {least_gradient / gradient:.2f}"
            print(f"| {name} | {bodies} | {cells} |", flush=True)
            yield
            if "error" in row or row.get("forward", 0.0) > 20.0:
                break


# Without a GPU, and by hand.


def compiled_ahead(options):
    """Print what the kernels of rollout and gradient in float32 compile to, and their times."""
    run = partial(peers.library, steps=options.steps, checkpoint="none", engine="fused")
    starts = jax.eval_shape(lambda: peers.random_starts(2**18, "float32"))
    arguments = jax.ShapeDtypeStruct((2,), jnp.float32), starts
    functions = {"forward": batch_of(run), "gradient": jax.value_and_grad(loss_of(run))}
    gpu_ahead.main(functions, arguments, options.steps, options.predictions)


def against_hand(options, rows):
    """Time limit.cu with the timer of the library, print the ratios, and append its rows."""
    run = partial(peers.library, steps=options.steps, checkpoint="none", engine="fused")
    forward, gains = jax.jit(batch_of(run)), jnp.array([6.0, 4.0], jnp.float32)
    print("\n| by hand | bodies | threads | kernel ms | call ms | fused ms | fused / call", end="")
    print(" | fused / kernel | difference |\n|---|---|---|---|---|---|---|---|---|")
    for kind in limit_cuda.KINDS:
        library = limit_cuda.Compiled(kind)
        for bodies in options.bodies:
            starts = peers.random_starts(bodies, "float32")
            row, ends = library.run(starts, gains, options.steps)
            fused = best(forward, gains, starts)
            error = max(limit_cuda.compared(ends, forward(gains, starts)))
            rows.append({"kind": kind, "bodies": bodies, "fused": fused, "error": error, **row})
            cells = f"{row['block']} | {1e3 * row['kernel']:.3f} | {1e3 * row['call']:.3f}"
            cells += f" | {1e3 * fused:.3f} | {fused / row['call']:.2f}"
            cells += f" | {fused / row['kernel']:.2f} | {error:.1e}"
            print(f"| {kind} | {bodies} | {cells} |", flush=True)


def around(options, rows):
    """Time one step: what a call takes besides the time loop, and an empty jitted function."""
    gains = jnp.array([6.0, 4.0], jnp.float32)
    run = partial(peers.library, steps=1, checkpoint="none", engine="fused")
    print("\n| bodies | one step, ms | an addition to the gains, ms |\n|---|---|---|")
    for bodies in options.bodies:
        starts = peers.random_starts(bodies, "float32")
        row = {"one step": best(jax.jit(batch_of(run)), gains, starts)}
        row["addition"] = best(jax.jit(lambda x: x + 1), gains)
        rows.append({"bodies": bodies, **row})
        print(f"| {bodies} | {' | '.join(f'{1e3 * x:.3f}' for x in row.values())} |", flush=True)


def segments(options, rows):
    """Time the gradient where a state is kept every m steps."""
    gains = jnp.array([6.0, 4.0], jnp.float32)
    starts = peers.random_starts(2**18, "float32")
    print("\n| a state is kept every | gradient ms, 2^18 bodies |\n|---|---|")
    for m in (1, 4, 8, 16, 32):
        run = partial(peers.library, steps=options.steps, checkpoint=m, engine="fused")
        seconds = best(jax.jit(jax.value_and_grad(loss_of(run))), gains, starts)
        rows.append({"every": m, "gradient": seconds})
        print(f"| {m} | {1e3 * seconds:.2f} |", flush=True)


# The program.


def parsed():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    out, bodies = ROOT / "docs" / "benchmarks" / "gpu.json", [2**k for k in (10, 14, 17, 18, 20)]
    rate, width = "float32 rate of the device (H200: 67)", "memory bandwidth a second (H200: 4.8)"
    parser.add_argument("--ahead", action="store_true", help="compile only, without a GPU")
    parser.add_argument("--out", type=Path, default=out)
    predictions = ROOT / "docs" / "benchmarks" / "gpu_predicted.json"
    parser.add_argument("--predictions", type=Path, default=predictions, help="with --ahead")
    parser.add_argument("--bodies", type=int, nargs="+", default=bodies)
    parser.add_argument("--schemes", nargs="+", default=SCHEMES, help="those compared")
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--steps", type=int, default=1024)
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds, after which no row begins"
    )
    parser.add_argument("--teraflops", type=float, default=67.0, help=rate)
    parser.add_argument("--terabytes", type=float, default=4.8, help=width)
    return parser.parse_args()


def main():
    """Measure, print, write."""
    options = parsed()
    if options.ahead:
        return compiled_ahead(options)
    if jax.default_backend() != "gpu":
        raise SystemExit(f"wanted a GPU, got {jax.default_backend()}")
    device = jax.devices()[0].device_kind
    report = {"device": device, "jax": jax.__version__, "steps": options.steps}
    jq.check_gpu()
    report["check"] = engine.missing() or "the kernels agree with the scan"
    vouching.VOUCHED = frozenset([device])  # so that they run, whatever it says
    report["correctness"] = correctness(options.schemes, 200)
    for name, errors in report["correctness"].items():
        values, gradients = errors["value"], errors["gradient"]
        print(f"{name}: values {values:.1e}, gradient {gradients:.1e}", flush=True)
    report |= {"rows": [], "by hand": [], "around": [], "segments": []}
    around(options, report["around"])
    if ahead.program("nvcc"):
        against_hand(options, report["by hand"])
    segments(options, report["segments"])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for _ in throughput(options, report["rows"]):
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()

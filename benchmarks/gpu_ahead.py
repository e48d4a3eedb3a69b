"""What the kernels of gpu.py and the loop by hand compile to, and the times that follow from it.

The times are predictions (examples/validation/sass.py), without launches. For the kernels measured
in docs/benchmarks/gpu_h100.json the model is within 5 % of the forward pass, if a launch takes 0.25
ms. The gradient took 1.6 times its prediction: the model leaves out that local memory may exceed
the first cache.

``by_kernel`` and ``by_launches`` predict the programs of gpu_networks.py.
"""

import json
import tempfile
import time
from pathlib import Path

import jax
import limit_cuda

from examples.validation import ahead, launches, sass

BODIES = [2**k for k in (10, 14, 17, 18, 20)]
FORWARD, GRADIENT = ("fused_forward",), ("fused_keeping", "fused_backward")


def kernels(functions, arguments):
    """Return what each kernel needs, by name."""
    needs = {}
    for function in functions.values():
        began = time.perf_counter()
        lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",))
        print(f"to PTX in {time.perf_counter() - began:.1f} s")
        for name, text in sorted(ahead.kernels(lowered).items(), reverse=True):
            needs[name] = ahead.assembled(text)
    return needs


def by_hand():
    """Return what the kernels of limit.cu need, by kind and threads of a block."""
    needs = {}
    for kind in limit_cuda.KINDS if ahead.program("nvcc") else ():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "limit.cubin"
            told = limit_cuda.compiled(kind, path, "-cubin", "-Xptxas=-v")
            for block, kernel in ahead.by_block(told, path).items():
                needs[f"by hand, {kind}, {block} threads"] = kernel
    return needs


def table(needs):
    """Print one line for each kernel."""
    print("\n| kernel | registers | spilled B, stores and loads | instructions a body-step", end="")
    print(" | FMA, other float, special, memory, branches, others | cycles of one warp alone |")
    print("|---|---|---|---|---|---|")
    for name, kernel in needs.items():
        loops = kernel.loops
        classes = [", ".join(map(str, loop.classes().values())) for loop in loops]
        cells = [f"{kernel.registers}", f"{kernel.stores}, {kernel.loads}"]
        cells += [" + ".join(map(str, kernel.steps)), " + ".join(classes)]
        print(f"| {name} | {' | '.join(cells)} | {' + '.join(str(x.latency) for x in loops)} |")


def predicted(needs, steps):
    """Return the milliseconds of forward pass, gradient and each loop by hand, by bodies."""

    def least(bodies, kind):
        times = []
        for block in limit_cuda.BLOCKS:
            kernel = needs[f"by hand, {kind}, {block} threads"]
            times.append(sass.seconds(kernel.loops, kernel.registers, bodies, steps, block))
        return 1e3 * min(times)

    rows = []
    for bodies in BODIES:
        row: dict[str, float] = {"bodies": bodies}
        for title, names in (("forward", FORWARD), ("gradient", GRADIENT)):
            parts = [(needs[name].loops, needs[name].registers) for name in names]
            row[title] = 1e3 * sum(sass.seconds(*part, bodies, steps) for part in parts)
        kinds = limit_cuda.KINDS if len(needs) > 3 else ()
        rows.append(row | {kind: least(bodies, kind) for kind in kinds})
    return rows


def by_kernel(function, arguments, xla):
    """Predict the milliseconds of an update of gpu_networks.py by kernels.

    They multiply by weights in loops: all weights of a step once in the forward kernel, and three
    times in the backward one, which goes forward twice.
    """
    weights, flights, noise = jax.eval_shape(arguments)
    products, seconds = sum(weight.size for weight, _ in weights), 0.0
    for name, text in ahead.kernels(ahead.lowered(function, weights, flights, noise)).items():
        needs = ahead.assembled(text)
        loops = [loop for loop in needs.loops if loop.classes()["FMA"] >= 32]
        times = (3 if "backward" in name else 1) * products
        times /= sum(loop.classes()["FMA"] for loop in loops)
        latency, issue = (round(times * sum(x)) for x in zip(*(y[1:] for y in loops), strict=True))
        loop = sass.Loop([], latency, issue)
        seconds += sass.seconds([loop], needs.registers, *noise.shape[:2])
    return {"ms": 1e3 * seconds}


def by_launches(function, arguments, xla):
    """Return the milliseconds of a program of XLA and its launches; of plans by iteration, too.

    ``arguments()`` are computed here only to count how many iterations the plans take.
    """
    lowered = ahead.lowered(function, *jax.eval_shape(arguments))
    text = lowered.compile(compiler_options=xla or None).as_text()
    total, loops = launches.program(text, launches.GRAPH if xla else launches.LAUNCH)
    row = {}
    unknown = [loop.each for loop in loops if loop.trips is None]
    if unknown:  # the last trip only finds that the plan has converged
        row["iterations"] = int(jax.jit(function)(*arguments()).iterations.max())
        row["launches each"] = int(unknown[0].launches)
        total = total.plus(unknown[0], row["iterations"])
    return {"ms": 1e3 * total.seconds, "launches": int(total.launches), **row}


def main(functions, arguments, steps, out):
    """Print both tables and write the predictions."""
    print(f"sm_90a, float32, {steps} steps: compiled, not run")
    needs = {**kernels(functions, arguments), **by_hand()}
    table(needs)
    rows = predicted(needs, steps)
    print(f"\npredicted, ms\n\n| {' | '.join(rows[0])} |\n|{len(rows[0]) * '---|'}")
    for row in rows:
        cells = [f"{x:.3g}" if isinstance(x, float) else str(x) for x in row.values()]
        print(f"| {' | '.join(cells)} |")
    kernel = {
        name: {
            "registers": each.registers,
            "spilled": [each.stores, each.loads],
            "instructions": each.steps,
            "latency": [loop.latency for loop in each.loops],
        }
        for name, each in needs.items()
    }
    out.write_text(json.dumps({"predicted": rows, "kernels": kernel}, indent=1) + "\n")

"""Measure networks, plans and training on a GPU beside predictions, in under ten minutes.

    python benchmarks/gpu_networks.py [--limit 480] [--only 4096]
    python benchmarks/gpu_networks.py --ahead      # compile for an H200, without a GPU, and predict
    python benchmarks/gpu_networks.py --dry        # small, on a CPU: does the script work?

An update is that of examples/train_policy.py without the optimiser. The kernel computes it with one
thread a window; the scan also with four steps in a trip of its loop, and with the loop in one
command buffer. Plans are those of planning.py. Predictions (gpu_ahead.py) take the iterations of
plans from a CPU, and leave out the time within the kernel that tries the lengths of a step.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import gpu_ahead
import jax
import jax.numpy as jnp
import numpy as np
import planning as plans
from timing import best

import jaxquat as jq
from jaxquat._internal import checkpointing

jax.config.update("jax_enable_x64", False)  # planning.py has enabled it
from policies import FILE, example  # noqa: E402

ROOT = Path(__file__).parents[1]
ONE_GRAPH = {  # the loop is one command buffer, unless this pass copies slices outside of it
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,WHILE,CONDITIONAL",
    "xla_disable_hlo_passes": "fusion-dynamic-memcpy-rewriter",
}
VARIANTS = {  # engine, steps in a trip of its loop, options of XLA
    "kernel": ("fused", 1, {}),
    "scan": ("scan", 1, {}),
    "scan, one graph": ("scan", 1, ONE_GRAPH),
    "scan by 4": ("scan", 4, {}),
    "scan by 4, one graph": ("scan", 4, ONE_GRAPH),
}
TRAINING = ["--worlds", "4096", "--updates", "225", "--rate", "0.015"]
plans.BODY = jq.Body(plans.INERTIA.astype(np.float32), plans.MASS)
plans.HOVER = plans.HOVER.astype(np.float32)


def update(engine, unroll, weights, flights, noise):
    """Return the mean cost of windows, the flights at their ends, and the gradient."""
    options, scan = partial(jq.RolloutOptions, engine=engine), checkpointing.lax.scan
    with (
        mock.patch.object(example.jq, "RolloutOptions", options),
        mock.patch.object(checkpointing.lax, "scan", partial(scan, unroll=unroll)),
    ):
        return jax.value_and_grad(example.loss, has_aux=True)(weights, flights, noise)


def windows(n, steps):
    """Return weights, flights and noise."""
    keys = jax.random.split(jax.random.key(0, impl="rbg"))
    noise = jax.random.normal(keys[1], (n, steps, 12))
    return example.random_weights(0), example.random_flights(keys[0], n), noise


def closed_loop(start):
    """Fly a quadrotor for 20 samples by mpc over 20 samples."""

    def residuals(k, state, params, command):
        errors = jnp.sqrt(plans.DT * plans.FLIGHT.state) * plans.error(state)
        return jnp.concatenate([errors.astype(jnp.float32), 0.1 * (command - plans.HOVER)])

    model, guess = (jq.rkmk2, plans.BODY, plans.rotors), jnp.tile(plans.HOVER, (20, 1))
    controller = jq.planning.mpc(*model, plans.DT, guess, residuals)
    return jq.rollout(*model, start, jq.grid(0.0, plans.DT, 20), controller=controller).final


def starts(n):
    """Return n starts of quadrotors, one of them without an axis."""
    many = jax.tree.map(jnp.float32, plans.starts(n, flies=True))
    return (many if n > 1 else jax.tree.map(lambda x: x[0], many),)


def cases(many_windows, many_plans, steps):
    """Return functions, what returns their arguments, and options of XLA, by name."""
    rows: dict[str, Any] = {}
    for n, (name, (engine, unroll, xla)) in itertools.product(many_windows, VARIANTS.items()):
        function = partial(update, engine, unroll)
        rows[f"update, {n} windows, {name}"] = function, partial(windows, n, steps), xla
    plan = partial(plans.ours, hessian="exact", tolerance=1e-3)
    for name, function in (("one plan", plan), ("one loop of mpc", closed_loop)):
        for graph, xla in (("", {}), (", one graph", ONE_GRAPH)):
            rows[name + graph] = function, partial(starts, 1), xla
    return rows | {f"{n} plans": (jax.vmap(plan), partial(starts, n), {}) for n in many_plans}


def trained(arguments):
    """Train with a cold cache of compiled programs, and print what the example prints."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"HOME": folder, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(FILE), *arguments]
        subprocess.run(command, cwd=folder, env=environment, check=True)
    print(f"{' '.join(command[1:])}: {time.perf_counter() - began:.1f} s")


def main():
    """Print the tables, or predict."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--ahead", action="store_true")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--limit", type=float, default=480, help="no case begins after so many s")
    options, began = parser.parse_args(), time.perf_counter()
    sizes = ([4], [2], 5) if options.dry else ([64, 4096, 65536], [1000, 16384], 100)
    folder = Path(tempfile.gettempdir()) if options.dry else ROOT / "docs" / "benchmarks"
    known, path = (folder / f"gpu_networks{kind}.json" for kind in ("_predicted", ""))
    predictions = json.loads(known.read_text()) if known.exists() else {}
    results: dict[str, Any] = {"device": jax.devices()[0].device_kind}
    print("| case | predicted ms, launches | measured ms |\n|---|---|---|")
    for name, case in cases(*sizes).items():
        if options.only not in name:
            continue
        if options.ahead:
            of = gpu_ahead.by_kernel if name.endswith("kernel") else gpu_ahead.by_launches
            predictions[name] = of(*case)
            known.write_text(json.dumps(predictions, indent=1) + "\n")
        elif time.perf_counter() - began < options.limit:
            try:
                call = jax.jit(case[0], compiler_options=case[2])
                results[name] = 1e3 * best(call, *case[1]())
            except jax.errors.JaxRuntimeError as error:  # such as too little memory
                results[name] = str(error).splitlines()[0]
            path.write_text(json.dumps(results, indent=1) + "\n")
        cells = *predictions.get(name, {}).values(), "|", results.get(name, "")
        print(f"| {name} |", *cells, "|", flush=True)
    if not options.ahead and not options.only:
        trained(["--worlds", "8", "--updates", "3"] if options.dry else TRAINING)


if __name__ == "__main__":
    main()
